#!/usr/bin/env bash
# Runs one tier of the tests: `tools/test.sh fast|deep|nightly`. Stops at the first step that fails, and sums up with times.
#
#   fast     what every change must pass: under ten minutes on two cores, build included. The library is the one that
#            `cargo test` builds, without optimization.
#   deep     what every submission must pass as well, some 40 minutes more: the release library, every C test in a process
#            of its own and in all its variants, a fault in each driver call, valgrind, and the first variants with
#            AddressSanitizer.
#   nightly  what takes hours: every kind of fault in each driver call, among others. FUZZ_SECONDS=1800 is the length of
#            each of four runs of the fuzzers.
set -euo pipefail
cd "$(dirname "$0")/.."

# The steps in their order, and those that run at the same time as they: a compilation leaves cores idle, at its end above
# all, and so do tests of packages and documents. Their output and their times come last.
tier=${1:-fast}
# MiB that a tier needs below target/, and for the copies that its tests make.
room=14000
case $tier in
fast)
    room=6000
    steps=(lint test-rust abi examples test-c)
    beside=(test-python header-check conformance package)
    export PROFILE=dev C_TESTS="--first-variant --optimize 0" PLINTH_TEST_FAULTS=sampled PLINTH_TEST_ROUNDS=few
    export HEADER_CHECK=oldest-and-newest
    ;;
deep)
    steps=(abi test-c test-valgrind test-chaos test-fuzz package test-newcomer test-packages test-bridge
        test-bridge-newest examples test-many-machines test-replay test-random test-snapshot test-docs)
    beside=(header-check deny kernels-check test-host-kernels test-wheel test-asan)
    export PROFILE=release C_TESTS=--alone PLINTH_TEST_FAULTS=each ASAN_TESTS=--first-variant ASAN_FAULTS=sampled
    ;;
nightly)
    steps=(test-chaos test-asan test-asan-faults fuzz fuzz-sanitized test-tsan test-aarch64 test-bridge-oldest)
    beside=()
    export PROFILE=release CHAOS=${CHAOS:---seconds 3600} FUZZ_SECONDS=${FUZZ_SECONDS:-1800}
    ;;
*)
    echo "usage: test.sh fast|deep|nightly" >&2
    exit 2
    ;;
esac

# A full disk fails some test after half an hour, with another message each time.
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
used=$(du -sm "$target" | cut -f1)
free=$(df -Pm "$target" | awk 'NR == 2 { print $4 }')
if [ "$free" -lt $((room - used)) ]; then
    echo "the $tier tier needs $((room - used)) MiB more in $target; $free MiB are free" >&2
    exit 1
fi

# The tools that all steps need are checked before the first builds.
# shellcheck disable=SC2046 # the needs are words
tools/bootstrap.sh $(make -n "${steps[@]}" ${beside[@]+"${beside[@]}"} | sed -n 's|^tools/bootstrap.sh ||p')

summary=$(mktemp)
output=$(mktemp)
begun=$SECONDS
trap 'trap - INT TERM; kill 0' INT TERM
trap 'rm -f "$summary" "$output"' EXIT

# Runs steps one after the other until one fails, and adds a line for each to the summary.
run_steps() {
    local step start
    for step in "$@"; do
        printf '\n== make %s\n' "$step"
        start=$SECONDS
        if ! make --no-print-directory "$step"; then
            printf '%-16s FAILED; the steps after it did not run\n' "$step" >>"$summary"
            return 1
        fi
        printf '%-16s passed in %3d s\n' "$step" $((SECONDS - start)) >>"$summary"
    done
}

run_steps ${beside[@]+"${beside[@]}"} >"$output" 2>&1 &
process=$!
failed=0
run_steps "${steps[@]}" || failed=1
wait "$process" || failed=1
cat "$output"
printf '\n'
cat "$summary"
[ $failed = 0 ] || exit 1
printf 'All %d steps of the %s tier passed, in %d s.\n' $((${#steps[@]} + ${#beside[@]})) "$tier" $((SECONDS - begun))
