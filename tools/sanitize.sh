#!/usr/bin/env bash
# Builds library and C tests with a sanitizer and runs them on the host device: `tools/sanitize.sh address [FILTER
# [OPTION...]]`, or thread instead of address. FILTER and OPTIONs are those of c_tests/run.py. With --fuzz in their place, runs the fuzzers with the
# inputs of FUZZ_SEEDS=300 seeds instead of the C tests, and fuzz/chaos for CHAOS_SECONDS=60.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitizer=$1
filter=${2:-}
case $sanitizer in
address) short=asan ;;
thread) short=tsan ;;
*)
    echo "usage: sanitize.sh address|thread [FILTER [OPTION...]|--fuzz]" >&2
    exit 2
    ;;
esac
target=${CARGO_TARGET_DIR:-target}/$short
triple=$(rustc -vV | sed -n 's/^host: //p')
lib=$target/$triple/debug

# The sanitizer flag is for nightly compilers. RUSTC_BOOTSTRAP enables it in the pinned stable compiler.
export RUSTC_BOOTSTRAP=1
flags="-Zsanitizer=$sanitizer"
export LSAN_OPTIONS="suppressions=$PWD/tools/lsan.supp:print_suppressions=0 ${LSAN_OPTIONS:-}"
if [ "$sanitizer" = thread ]; then
    # The standard library is built without the sanitizer; rustc requires this flag to accept that.
    flags+=" -Cunsafe-allow-abi-mismatch=sanitizer"
    export TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp ${TSAN_OPTIONS:-}"
fi
# With --target, the flags do not apply to build scripts and macros, which run in the compiler.
# The checks of a debug build stay on; optimisation level 1 compensates for a part of the sanitizer's cost.
CARGO_PROFILE_DEV_OPT_LEVEL=1 RUSTFLAGS=$flags cargo build --locked --lib --target "$triple" --target-dir "$target"
tools/soname_link.sh "$lib"

if ! nm -D --undefined-only "$lib/libplinth.so" | grep "__${short}_init" >/dev/null; then
    echo "FAIL  the library was built without the sanitizer"
    exit 1
fi

# The sanitizer's run-time functions are undefined in the library, so programs must link them. They link rustc's, because
# clang's may be older than those that the library was compiled for.
runtime=$(rustc --print target-libdir)/librustc-stable_rt.$short.a
with_runtime="-fsanitize=$sanitizer -fno-sanitize-link-runtime"
with_runtime+=" -Wl,--whole-archive $runtime -Wl,--no-whole-archive -Wl,--export-dynamic -lm -ldl -lrt -lpthread -lresolv"

# Checks that the sanitizer is effective: it must report that the library writes to freed memory.
if [ "$sanitizer" = address ]; then
    # shellcheck disable=SC2086 # flags are words
    clang $with_runtime -Iinclude tests/sanitizer/freed.c -o "$target/freed" -L"$lib" -lplinth -Wl,-rpath,"$lib"
    if "$target/freed" >"$target/freed.log" 2>&1 || ! grep -q 'heap-use-after-free' "$target/freed.log" ||
        ! grep -q 'in plinth_driver_calls\|src/ffi/' "$target/freed.log"; then
        cat "$target/freed.log"
        echo "FAIL  the sanitizer did not report the library's write to freed memory"
        exit 1
    fi
fi
echo "ok    the sanitizer checks the library"

if [ "$filter" = --fuzz ]; then
    for program in allocator hostile chaos; do
        # shellcheck disable=SC2086 # flags are words
        clang++ $with_runtime -std=c++17 -O1 -g -Wall -Wextra -Werror -Iinclude "fuzz/$program.cpp" -o "$target/$program" \
            -L"$lib" -lplinth -Wl,-rpath,"$lib"
    done
    for program in allocator hostile; do
        for segments in True False; do
            echo "== $program, expandable_segments:$segments"
            PLINTH_ALLOC_CONF=expandable_segments:$segments PLINTH_DEVICE=host "$target/$program" \
                --save "$target/failed-$program-$segments" --seeds 0 "${FUZZ_SEEDS:-300}"
        done
    done
    echo "== chaos"
    # A sanitizer's address space cannot be limited. The handlers of signals allocate, which ThreadSanitizer reports.
    TSAN_OPTIONS="${TSAN_OPTIONS:-} report_signal_unsafe=0" PLINTH_DEVICE=host "$target/chaos" \
        --seconds "${CHAOS_SECONDS:-60}" --processes 2 --threads 3 --without limits
    exit
fi

python3 c_tests/run.py --lib "$lib" --include include --build "$target/c_tests" --device host \
    --cc "clang $with_runtime" --cxx "clang++ $with_runtime" --sanitizer "$sanitizer" --timeout 180 --filter "$filter" "${@:3}"
