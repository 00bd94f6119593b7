#!/usr/bin/env bash
# Builds the library and its tests for aarch64 and runs them under qemu-user: `tools/aarch64.sh [build|test]`. Exits with
# 77 if the machine has no standard library of Rust for aarch64 and none can be installed. `make test-aarch64` calls it.
#
# The tests show that the code compiles, that layouts and calls agree, and that nothing needs x86-64. The emulator has the
# memory model and the page size of this machine, so they cannot show a missing memory barrier, and pages have 4 KiB.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-test}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
triple=aarch64-unknown-linux-gnu
library=$target/aarch64/$triple/debug

if [ "$(uname -m)" = aarch64 ]; then
    echo "skipped: this machine is an aarch64; run make test"
    exit 77
fi
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] && ! rustup target add "$triple"; then
    echo "skipped: there is no standard library of Rust for aarch64, and rustup cannot install it"
    exit 77
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
# For the C code that tests compile.
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
cargo=(--locked --target "$triple" --target-dir "$target/aarch64")

echo "== the library"
cargo build "${cargo[@]}" --lib
tools/soname_link.sh "$library"
python3 tests/abi/signatures.py --compiler aarch64-linux-gnu-gcc --library "$library/libplinth.so"

echo "== an installed tree, programs linked with the shared and with the static library"
work=$target/aarch64/installed
rm -rf "$work"
OBJCOPY=aarch64-linux-gnu-objcopy tools/install.sh --from "$library" --prefix / --libdir lib/aarch64-linux-gnu \
    --destdir "$work"
export PKG_CONFIG_LIBDIR=$work/lib/aarch64-linux-gnu/pkgconfig
for kind in shared static; do
    flags=$(pkg-config --cflags --libs plinth)
    if [ $kind = static ]; then
        flags=$(pkg-config --static --cflags --libs plinth | sed s/-lplinth/-l:libplinth.a/)
    fi
    # shellcheck disable=SC2086 # flags are words
    aarch64-linux-gnu-gcc -std=c99 -Wall -Wextra -Werror tests/package/c/main.c -o "$work/$kind" $flags \
        -Wl,-rpath,"$work/lib/aarch64-linux-gnu"
    PLINTH_DEVICE=host $CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER "$work/$kind"
    echo "ok    a program with the $kind library"
done
[ "$what" = test ] || exit 0

echo "== unit tests"
PLINTH_TEST_FAULTS=sampled cargo test "${cargo[@]}" -p plinth-driver --lib

echo "== C and C++ tests"
# Without binfmt_misc, a program cannot start itself again under the emulator, as tests with several processes do, and most
# unit tests of the host device.
again='environment|event_ipc|fault_ipc|ipc_\w*|communicator_shortage'
# The compiler of kernels from source.
export PLINTH_CXX=aarch64-linux-gnu-g++
PLINTH_TEST_FAULTS=sampled PLINTH_TEST_ROUNDS=few python3 c_tests/run.py --lib "$library" --include include \
    --build "$target/aarch64/c_tests" --device host --first-variant --optimize 0 --filter "^(?!($again)/)" \
    --cc aarch64-linux-gnu-gcc --cxx aarch64-linux-gnu-g++ --runner "$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
