#!/usr/bin/env bash
# Compiles the public headers in every language standard that they support, by gcc and clang, with all warnings as errors:
# alone, and after the headers of CUDA and of DLPack, which users include too. `make header-check` calls it.
# `tools/check_header.sh oldest-and-newest` skips the standards in between, and the cases with only one of CUDA's and
# DLPack's headers.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
work=$target/header-check
python=$target/tools/python
rm -rf "$work"
mkdir -p "$work"

warnings=(-pedantic-errors -Wall -Wextra -Werror -Wsign-conversion -Wconversion -Wshadow -Wundef)
# Third-party headers are system headers, so that their warnings are suppressed.
includes=(-Iinclude -isystem "$python/nvidia/cu13/include" -isystem "$python/tvm_ffi/include")

# The lines before plinth's header: none, or includes of third-party headers.
declare -A before=(
    [alone]=""
    [cuda]="#include <cuda_runtime.h>"
    [dlpack]="#include <dlpack/dlpack.h>"
    [both]=$'#include <cuda_runtime.h>\n#include <dlpack/dlpack.h>'
)
c_standards=(c99 c11 c17)
cpp_standards=(c++11 c++17 c++20)
all_contexts=(alone cuda dlpack both)
if [ "${1:-}" = oldest-and-newest ]; then
    c_standards=(c99 c17)
    cpp_standards=(c++11 c++20)
    all_contexts=(alone both)
fi
count=0

# Checks whether a header declares plinth_stream_t.
has_streams() { [[ $1 == plinth.h || $1 == plinth/* || $1 == *.hpp ]]; }

# Compiles a header. Arguments: header, extension, compiler, standard, and keys of `before`, by default all of them.
check() {
    local header=$1 extension=$2 compiler=$3 standard=$4 context
    shift 4
    [ $# -gt 0 ] || set -- "${all_contexts[@]}"
    for context in "$@"; do
        local source=$work/$context-${header//\//-}.$extension
        # The header is included twice, for the include guard. The declaration keeps the unit from being empty. After
        # CUDA's header, a cudaStream_t is a plinth_stream_t.
        {
            echo "${before[$context]}"
            echo "#include <$header>"
            echo "#include <$header>"
            echo "extern int unit;"
            if has_streams "$header" && [[ $context == cuda || $context == both ]]; then
                echo "plinth_stream_t convert(cudaStream_t stream);"
                echo "plinth_stream_t convert(cudaStream_t stream) { return stream; }"
            fi
        } >"$source"
        "$compiler" "-std=$standard" "${warnings[@]}" "${includes[@]}" -fsyntax-only "$source"
        count=$((count + 1))
    done
}

# Links two translation units that both include the header, so that a symbol that it defines twice is found.
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

# Checks that a C++ header gives one error, which names the standard, for a compiler that is
# set to an older one. Arguments: header, compiler.
check_older_standard() {
    local header=$1 cpp=$2 standard errors
    for standard in c++11 c++14; do
        printf '#include <%s>\n#include <%s>\nextern int unit;\n' "$header" "$header" >"$work/older.cpp"
        errors=$("$cpp" "-std=$standard" "${warnings[@]}" -Iinclude -fsyntax-only "$work/older.cpp" 2>&1 |
            grep 'error: ' || true)
        if [ "$(grep -c . <<<"$errors")" -ne 1 ] || [[ $errors != *"-std=c++17"* ]]; then
            printf 'header-check: %s as %s has not just the error about the standard:\n%s\n' "$header" "$standard" "$errors"
            return 1
        fi
        count=$((count + 1))
    done
}

# Compiles plinth.h and plinth_philox.h in either order. Arguments: extension, compiler, standard.
check_both_headers() {
    local extension=$1 compiler=$2 standard=$3 order
    for order in "plinth.h plinth_philox.h" "plinth_philox.h plinth.h"; do
        # shellcheck disable=SC2086 # two headers
        printf '#include <%s>\n' $order >"$work/together.$extension"
        echo "extern int unit;" >>"$work/together.$extension"
        "$compiler" "-std=$standard" "${warnings[@]}" -Iinclude -fsyntax-only "$work/together.$extension"
        count=$((count + 1))
    done
}

# Compiles each header of include/plinth by itself, and tensor.h also with DLPack's. Arguments: extension, compiler,
# standard.
check_parts() {
    local path
    for path in include/plinth/*.h; do
        check "${path#include/}" "$1" "$2" "$3" alone
    done
    check plinth/tensor.h "$1" "$2" "$3"
}

# Runs all checks with one compiler. Arguments: its command for C, its command for C++.
check_with() {
    local c=$1 cpp=$2 standard header path
    work=$work/$c
    mkdir "$work"
    for standard in "${c_standards[@]}"; do
        for header in plinth.h plinth_philox.h; do
            check $header c "$c" "$standard"
            link_twice $header c "$c" "$standard"
        done
        check_both_headers c "$c" "$standard"
        check_parts c "$c" "$standard"
    done
    for standard in "${cpp_standards[@]}"; do
        for header in plinth.h plinth_philox.h; do
            check $header cpp "$cpp" "$standard"
            link_twice $header cpp "$cpp" "$standard"
        done
        check_both_headers cpp "$cpp" "$standard"
        check_parts cpp "$cpp" "$standard"
    done
    # plinth.hpp in every context; then each C++ header by itself, because each must include all that it needs.
    for standard in c++17 c++20; do
        check plinth.hpp cpp "$cpp" "$standard"
        link_twice plinth.hpp cpp "$cpp" "$standard"
    done
    for path in include/*.hpp; do
        check "${path#include/}" cpp "$cpp" c++17 alone
        check_older_standard "${path#include/}" "$cpp"
    done
    echo "header-check: $count compilations by $c and $cpp, no warning"
}

# Compiles a kernel that calls each function of plinth_philox.cuh, by nvcc.
check_kernels() {
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

# In parallel, because each of them runs one process at a time.
check_with gcc g++ &
gcc=$!
check_with clang clang++ &
clang=$!
check_kernels
wait $gcc
wait $clang
