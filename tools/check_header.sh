#!/usr/bin/env bash
# Compiles the public headers in every language that they promise, by gcc and clang, with all warnings as errors: alone,
# and after the headers of CUDA and of DLPack, which their users include too. `make header-check` calls it.
# `tools/check_header.sh oldest-and-newest` leaves out the standards between, and CUDA's and DLPack's headers without
# each other.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
work=$target/header-check
python=$target/tools/python
rm -rf "$work"
mkdir -p "$work"

warnings=(-pedantic-errors -Wall -Wextra -Werror -Wsign-conversion -Wconversion -Wshadow -Wundef)
# Other people's headers are system headers: their warnings are not ours.
includes=(-Iinclude -isystem "$python/nvidia/cu13/include" -isystem "$python/tvm_ffi/include")

# What stands before our header: nothing, or a header of somebody else.
declare -A before=(
    [alone]=""
    [cuda]="#include <cuda_runtime.h>"
    [dlpack]="#include <dlpack/dlpack.h>"
    [both]=$'#include <cuda_runtime.h>\n#include <dlpack/dlpack.h>'
)
c_standards=(c99 c11 c17)
cpp_standards=(c++11 c++17 c++20)
every_company=(alone cuda dlpack both)
if [ "${1:-}" = oldest-and-newest ]; then
    c_standards=(c99 c17)
    cpp_standards=(c++11 c++20)
    every_company=(alone both)
fi
count=0

# Whether a header declares plinth_stream_t.
has_streams() { [[ $1 == plinth.h || $1 == plinth/* || $1 == *.hpp ]]; }

# Arguments: header, extension, compiler, standard, and what stands before it; all of those one after the other without.
check() {
    local header=$1 extension=$2 compiler=$3 standard=$4 company
    shift 4
    [ $# -gt 0 ] || set -- "${every_company[@]}"
    for company in "$@"; do
        local source=$work/$company-${header//\//-}.$extension
        # Twice, for the include guard; the declaration keeps the unit from being empty. With CUDA's header there, a
        # cudaStream_t is a plinth_stream_t.
        {
            echo "${before[$company]}"
            echo "#include <$header>"
            echo "#include <$header>"
            echo "extern int unit;"
            if has_streams "$header" && [[ $company == cuda || $company == both ]]; then
                echo "plinth_stream_t convert(cudaStream_t stream);"
                echo "plinth_stream_t convert(cudaStream_t stream) { return stream; }"
            fi
        } >"$source"
        "$compiler" "-std=$standard" "${warnings[@]}" "${includes[@]}" -fsyntax-only "$source"
        count=$((count + 1))
    done
}

# Two translation units with the header in each make one program: nothing in it may be defined twice.
# Arguments: header, extension, compiler, standard.
link_twice() {
    local header=$1 extension=$2 compiler=$3 standard=$4
    printf '#include <%s>\nint other(void);\nint other(void) { return 0; }\n' "$header" >"$work/one.$extension"
    printf '#include <%s>\nint other(void);\nint main(void) { return other(); }\n' "$header" >"$work/two.$extension"
    "$compiler" "-std=$standard" "${warnings[@]}" -Iinclude "$work/one.$extension" "$work/two.$extension" \
        -o "$work/linked" -Wl,--unresolved-symbols=ignore-all
    "$work/linked"
    count=$((count + 1))
}

# plinth.h and plinth_philox.h in either order. Arguments: extension, compiler, standard.
together() {
    local extension=$1 compiler=$2 standard=$3 order
    for order in "plinth.h plinth_philox.h" "plinth_philox.h plinth.h"; do
        # shellcheck disable=SC2086 # two headers
        printf '#include <%s>\n' $order >"$work/together.$extension"
        echo "extern int unit;" >>"$work/together.$extension"
        "$compiler" "-std=$standard" "${warnings[@]}" -Iinclude -fsyntax-only "$work/together.$extension"
        count=$((count + 1))
    done
}

# Each header of a noun by itself, and tensor.h also beside DLPack. Arguments: extension, compiler, standard.
each_noun() {
    local path
    for path in include/plinth/*.h; do
        check "${path#include/}" "$1" "$2" "$3" alone
    done
    check plinth/tensor.h "$1" "$2" "$3"
}

# All that a compiler is asked to take. Arguments: the compiler for C, the one for C++.
by() {
    local c=$1 cpp=$2 standard header path
    work=$work/$c
    mkdir "$work"
    for standard in "${c_standards[@]}"; do
        for header in plinth.h plinth_philox.h; do
            check $header c "$c" "$standard"
            link_twice $header c "$c" "$standard"
        done
        together c "$c" "$standard"
        each_noun c "$c" "$standard"
    done
    for standard in "${cpp_standards[@]}"; do
        for header in plinth.h plinth_philox.h; do
            check $header cpp "$cpp" "$standard"
            link_twice $header cpp "$cpp" "$standard"
        done
        together cpp "$cpp" "$standard"
        each_noun cpp "$cpp" "$standard"
    done
    # The whole of C++ in every way; then each of its headers by itself, which has all that it needs.
    for standard in c++17 c++20; do
        check plinth.hpp cpp "$cpp" "$standard"
        link_twice plinth.hpp cpp "$cpp" "$standard"
    done
    for path in include/*.hpp; do
        check "${path#include/}" cpp "$cpp" c++17 alone
    done
    echo "header-check: $count compilations by $c and $cpp, no warning"
}

# For kernels, by nvcc: each function in a kernel, and for the program itself.
in_kernels() {
    local standard
    for standard in c++17 c++20; do
        printf '%s\n' "#include <plinth_philox.cuh>" "#include <plinth_philox.cuh>" \
            "__global__ void draw(float4 *out, double2 *wide, plinth_philox_state_t state) {" \
            "  plinth_philox_engine_t engine = plinth_philox_engine_of_thread(state);" \
            "  out[0] = plinth_philox_uniform4(&engine);" \
            "  out[1] = plinth_philox_normal4(&engine);" \
            "  wide[0] = plinth_philox_uniform2_double(&engine);" \
            "  wide[1] = plinth_philox_normal2_double(&engine);" \
            "  out[2].x = plinth_philox_uniform_below_1(plinth_philox_next(&engine));" \
            "}" \
            "int main() { return 0; }" >"$work/kernel.cu"
        "$python/nvidia/cu13/bin/nvcc" -std=$standard -arch=compute_75 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror \
            -Iinclude -c "$work/kernel.cu" -o "$work/kernel.o"
    done
    echo "header-check: plinth_philox.cuh in kernels, no warning"
}

# Side by side, for each is one process at a time.
by gcc g++ &
gcc=$!
by clang clang++ &
clang=$!
in_kernels
wait $gcc
wait $clang
