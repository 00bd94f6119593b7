#!/usr/bin/env bash
# Runs the programs of fuzz/ with libFuzzer, on the host device: `tools/fuzz.sh`, FUZZ_SECONDS=60 with and without
# expandable segments each. The library is built separately, with coverage counters for the fuzzer and with the checks of
# a debug build. A failing input is saved in target/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
target=${CARGO_TARGET_DIR:-target}/fuzz
triple=$(rustc -vV | sed -n 's/^host: //p')

# The flags are for nightly compilers; see tools/sanitize.sh.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
RUSTC_BOOTSTRAP=1 RUSTFLAGS="$coverage -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks" \
    cargo rustc --release --lib --locked --crate-type staticlib --target "$triple" --target-dir "$target/library"

# The most bytes of an input.
declare -A most=([allocator]=2000 [hostile]=5000)

for program in allocator hostile; do
    # shellcheck disable=SC2046 # libraries are words
    clang++ -std=c++17 -O1 -g -Wall -Wextra -Werror -DFUZZER -fsanitize=fuzzer -Iinclude "fuzz/$program.cpp" \
        "$target/library/$triple/release/libplinth.a" $(cat cmake/system-libraries.txt) -o "$target/$program-libfuzzer"
    for segments in True False; do
        echo "== $program, expandable_segments:$segments, $seconds s"
        # Each variant keeps its own folder of interesting inputs from run to run. The checked-in corpus is the seed of the
        # allocator's.
        name=$program-$segments
        mkdir -p "$target/found-$name"
        corpus=("$target/found-$name")
        [ "$program" != allocator ] || corpus+=(fuzz/corpus)
        # Leak detection is off: it would report the host device's threads, and memory that the process never frees.
        if ! PLINTH_ALLOC_CONF=expandable_segments:$segments "$target/$program-libfuzzer" -max_total_time="$seconds" \
            -max_len="${most[$program]}" -len_control=0 -timeout=60 -rss_limit_mb=4096 -detect_leaks=0 \
            -print_final_stats=1 -verbosity=1 -artifact_prefix="$target/failed-$name-" "${corpus[@]}" \
            >"$target/log-$name" 2>&1; then
            tail -n 60 "$target/log-$name"
            echo "the failing input is $target/failed-$name-*; target/fuzz/$program, which make test-fuzz builds, replays it"
            exit 1
        fi
        grep -E '^(Done|stat::number_of_executed_units|stat::average_exec_per_sec)|DONE' "$target/log-$name"
    done
done
