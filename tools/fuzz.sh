#!/usr/bin/env bash
# Fuzzes the allocator with libFuzzer, on the host device: `tools/fuzz.sh`, FUZZ_SECONDS=60 for each way in which memory
# gets its addresses. The library is built anew, so that the fuzzer sees which of its code an input reaches, and with the
# checks of a debug build. An input that fails is kept in target/fuzz.
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
    # What is found is kept from run to run in a folder of each way's own; the checked-in inputs are where it begins.
    mkdir -p "$target/found-$segments"
    log=$target/log-$segments
    # Leaks: threads of the host device, and what the process keeps for ever.
    if ! PLINTH_ALLOC_CONF=expandable_segments:$segments "$target/allocator-libfuzzer" -max_total_time="$seconds" \
        -max_len=2000 -len_control=0 -timeout=60 -rss_limit_mb=4096 -detect_leaks=0 -print_final_stats=1 -verbosity=1 \
        -artifact_prefix="$target/failed-$segments-" "$target/found-$segments" fuzz/corpus >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "the input is $target/failed-$segments-*; target/fuzz/allocator replays it (make test-fuzz builds that)"
        exit 1
    fi
    grep -E '^(Done|stat::number_of_executed_units|stat::average_exec_per_sec)|DONE' "$log"
done
