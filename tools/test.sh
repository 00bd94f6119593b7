#!/usr/bin/env bash
# Runs one tier of the tests: `tools/test.sh fast|deep|nightly`. Stops at the first step that fails, and sums up with times.
#
#   fast     what every change must pass: under ten minutes on two cores, build included. The library is the one that
#            `cargo test` builds, without optimization.
#   deep     what every submission must pass as well, some 40 minutes more: the release library, every C test in a process
#            of its own and in all its variants, every fault, sanitizers and valgrind.
#   nightly  what takes hours. FUZZ_SECONDS=1800 is the length of each of two runs of the fuzzer.
set -euo pipefail
cd "$(dirname "$0")/.."

tier=${1:-fast}
case $tier in
fast)
    steps=(lint header-check test-rust conformance abi package examples test-c)
    export PROFILE=dev C_TESTS="--first-variant --optimize 0" PLINTH_TEST_FAULTS=sampled PLINTH_TEST_ROUNDS=few
    export HEADER_CHECK=oldest-and-newest
    ;;
deep)
    steps=(abi package examples header-check kernels-check test-replay test-random test-snapshot test-fuzz test-c test-valgrind test-asan)
    export PROFILE=release C_TESTS=--alone
    ;;
nightly)
    steps=(test-asan-faults fuzz test-tsan)
    export FUZZ_SECONDS=${FUZZ_SECONDS:-1800}
    ;;
*)
    echo "usage: test.sh fast|deep|nightly" >&2
    exit 2
    ;;
esac

# What needs no library runs beside the compilation, which leaves a part of the cores idle; its output comes in its turn.
beside=header-check
log=$(mktemp)
make --no-print-directory "$beside" >"$log" 2>&1 &
process=$!
# Its children, too, if a step before it fails.
trap 'pkill -P "$process" 2>/dev/null || true; kill "$process" 2>/dev/null || true; rm -f "$log"' EXIT

# Waits for the step that runs beside the others, and prints what it wrote.
finish_beside() {
    local status=0
    wait "$process" || status=$?
    cat "$log"
    return "$status"
}

run_step() {
    if [ "$1" = "$beside" ]; then finish_beside; else make --no-print-directory "$1"; fi
}

summary=()
begun=$SECONDS
for step in "${steps[@]}"; do
    printf '\n== make %s\n' "$step"
    start=$SECONDS
    if ! run_step "$step"; then
        printf '\n'
        printf '%s\n' ${summary[@]+"${summary[@]}"}
        printf '%-16s FAILED; the steps after it did not run\n' "$step"
        exit 1
    fi
    summary+=("$(printf '%-16s passed in %3d s' "$step" $((SECONDS - start)))")
done
printf '\n'
printf '%s\n' "${summary[@]}"
printf 'All %d steps of the %s tier passed, in %d s.\n' ${#steps[@]} "$tier" $((SECONDS - begun))
