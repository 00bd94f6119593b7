#!/usr/bin/env bash
# Compiles the allocators that plinth is compared with: `peers.sh FOLDER`. Prints the result for each; a missing library is
# not a failure. PyTorch is the one that python3 imports, CUDA is in $CUDA_HOME (/usr/local/cuda), RMM is in $RMM_DIR, into
# which the wheels librmm-cu13 and rapids-logger are unpacked.
set -uo pipefail
out=${1:?usage: peers.sh FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")" || exit 1
cuda=${CUDA_HOME:-/usr/local/cuda}
failed=0

# Compiles a peer unless it is up to date. Arguments: its name, its C++ standard, additional arguments of the compiler.
compile() {
    local name=$1 standard=$2
    shift 2
    if [ "$out/peer_$name.so" -nt "peer_$name.cpp" ]; then
        return
    fi
    if g++ "-std=$standard" -O2 -Wall -fPIC -shared "peer_$name.cpp" -o "$out/peer_$name.so" "$@"; then
        echo "peer_$name: compiled"
    else
        echo "peer_$name: FAILED"
        failed=1
    fi
}

compile async c++17 -Wextra -Werror -ldl

torch=$(python3 -c 'import torch; print(torch.__path__[0])' 2>/dev/null)
if [ -z "$torch" ]; then
    echo "peer_torch: skipped, python3 finds no torch"
elif [ ! -f "$cuda/include/cuda_runtime.h" ]; then
    echo "peer_torch: skipped, no CUDA in $cuda"
else
    # An RPATH, unlike a RUNPATH, also applies to the libraries that PyTorch's libraries load.
    paths=$torch/lib
    for folder in "$torch"/../nvidia/*/lib; do
        [ -d "$folder" ] && paths+=:$(cd "$folder" && pwd)
    done
    compile torch c++17 -isystem "$cuda/include" -isystem "$torch/include" \
        -isystem "$torch/include/torch/csrc/api/include" -L"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cuda \
        -ltorch_cpu -lc10 -lc10_cuda -L"$cuda/lib64" -lcudart "-Wl,--disable-new-dtags,-rpath,$paths"
fi

if [ -z "${RMM_DIR:-}" ]; then
    echo "peer_rmm: skipped, RMM_DIR is not set"
elif [ ! -d "$RMM_DIR/librmm/include" ] || [ ! -f "$cuda/include/cuda_runtime.h" ]; then
    echo "peer_rmm: skipped, no $RMM_DIR/librmm/include or no CUDA in $cuda"
else
    rmm=$(cd "$RMM_DIR" && pwd)
    compile rmm c++20 -isystem "$cuda/include" -isystem "$rmm/librmm/include" -isystem "$rmm/librmm/include/rapids" \
        -isystem "$rmm/rapids_logger/include" -L"$rmm/librmm/lib64" -lrmm -L"$rmm/rapids_logger/lib64" -lrapids_logger \
        -L"$cuda/lib64" -lcudart "-Wl,--disable-new-dtags,-rpath,$rmm/librmm/lib64:$rmm/rapids_logger/lib64"
fi
exit $failed
