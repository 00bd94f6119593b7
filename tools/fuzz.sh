#!/usr/bin/env bash
# Fuzzes the allocator with libFuzzer, on the host device: `tools/fuzz.sh`, FUZZ_SECONDS=60 with and without expandable
# segments each. The library is built separately, with coverage counters for the fuzzer and with the checks of a debug
# build. A failing input is saved in target/fuzz.
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

# shellcheck disable=SC2046 # libraries are words
clang++ -std=c++17 -O1 -g -Wall -Wextra -Werror -DFUZZER -fsanitize=fuzzer -Iinclude fuzz/allocator.cpp \
    "$target/library/$triple/release/libplinth.a" $(cat cmake/system-libraries.txt) -o "$target/allocator-libfuzzer"

for segments in True False; do
    echo "== expandable_segments:$segments, $seconds s"
    # Each variant keeps its own folder of interesting inputs from run to run. The checked-in corpus is the seed.
    mkdir -p "$target/found-$segments"
    log=$target/log-$segments
    # Leak detection is off: it would report the host device's threads, and memory that the process never frees.
    if ! PLINTH_ALLOC_CONF=expandable_segments:$segments "$target/allocator-libfuzzer" -max_total_time="$seconds" \
        -max_len=2000 -len_control=0 -timeout=60 -rss_limit_mb=4096 -detect_leaks=0 -print_final_stats=1 -verbosity=1 \
        -artifact_prefix="$target/failed-$segments-" "$target/found-$segments" fuzz/corpus >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "the failing input is $target/failed-$segments-*; target/fuzz/allocator, which make test-fuzz builds, replays it"
        exit 1
    fi
    grep -E '^(Done|stat::number_of_executed_units|stat::average_exec_per_sec)|DONE' "$log"
done
