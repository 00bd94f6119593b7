#!/usr/bin/env bash
# Compiles the public headers in every language that they promise, by gcc and clang, with all warnings as errors: alone,
# and after the headers of CUDA and of DLPack, which their users include too. `make header-check` calls it.
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
count=0

# Arguments: header, extension, compiler, standard.
check() {
    local header=$1 extension=$2 compiler=$3 standard=$4 company
    for company in alone cuda dlpack both; do
        local source=$work/$company-$header.$extension
        # Twice, for the include guard; the declaration keeps the unit from being empty. With CUDA's header there, a
        # cudaStream_t is a plinth_stream_t.
        {
            echo "${before[$company]}"
            echo "#include <$header>"
            echo "#include <$header>"
            echo "extern int unit;"
            if [[ $company == cuda || $company == both ]]; then
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

for standard in c99 c11 c17; do
    for compiler in gcc clang; do
        check plinth.h c $compiler $standard
        link_twice plinth.h c $compiler $standard
    done
done
for standard in c++11 c++17 c++20; do
    for compiler in g++ clang++; do
        check plinth.h cpp $compiler $standard
        link_twice plinth.h cpp $compiler $standard
    done
done
if [ -e include/plinth.hpp ]; then
    for standard in c++17 c++20; do
        for compiler in g++ clang++; do
            check plinth.hpp cpp $compiler $standard
            link_twice plinth.hpp cpp $compiler $standard
        done
    done
fi
echo "header-check: $count compilations, no warning"
