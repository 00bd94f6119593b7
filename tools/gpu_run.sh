#!/usr/bin/env bash
# Runs what tools/gpu_bundle.sh packed, on a machine with a GPU: `tools/gpu_run.sh LOGS`. Each step has a time limit and
# writes a log of its own; one that fails does not keep the others from running. Ends with a summary; the exit status
# is 1 if anything failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
self=$here/$(basename "$0")
bundle=$here
# The script lies in the bundle, or in the tools of the repository that the bundle was made in.
[ -d "$bundle/c_tests" ] || bundle=$here/../build/gpu
export PLINTH_DEVICE=cuda

# Calls that are meant to fail are part of the tests; what counts here is access to memory. A test that needs no device
# ends before there is anything to see, which compute-sanitizer takes for an error.
memcheck() {
    local program test output code failed=0
    for program in stream event copy memory fill capture_rules random graph; do
        for test in $("c_tests/$program" --list | head -n 6); do
            output=$(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
                "c_tests/$program" "$test" 2>&1)
            code=$?
            case $code:$output in
            0:* | 77:* | *"terminated before first instrumented API call"* | *"skipped: "*) echo "ok    $program/$test" ;;
            *) printf 'FAIL  %s/%s: exit status %d\n%s\n' "$program" "$test" "$code" "$output" && failed=1 ;;
            esac
        done
    done
    return "$failed"
}

# The profiler sees a kernel of ours inside the ranges that were pushed around it.
nvtx() {
    local output
    output=$(ncu --nvtx c_tests/nvtx a_kernel_lies_in_its_ranges 2>&1)
    echo "$output"
    grep -q "plinth: initialise weights" <<<"$output" && grep -q "plinth: first layer" <<<"$output"
}

# A CUDA C++ program on both allocators, its results compared bit for bit.
cuda_program() {
    nvcc -std=c++17 -arch=native -Iinclude sources/cuda/two_streams.cu -o "$1" -Llib -lplinth -Xlinker "-rpath=$PWD/lib" &&
        "$1" && rm "$1"
}

consumer() {
    rm -rf "$1" && cmake -S sources/package/c -B "$1" -DCMAKE_PREFIX_PATH="$PWD" && cmake --build "$1" &&
        "$1/with_static" && "$1/with_plinth"
}

# The steps that are more than one command run by this script itself, so that they too have a time limit.
case ${1:-} in
--memcheck)
    cd "$bundle" && memcheck
    exit
    ;;
--nvtx)
    cd "$bundle" && nvtx
    exit
    ;;
--cuda-program)
    cd "$bundle" && cuda_program "$2"
    exit
    ;;
--consumer)
    cd "$bundle" && consumer "$2"
    exit
    ;;
esac

logs=${1:?usage: gpu_run.sh LOGS}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
cd "$bundle" || {
    echo "gpu_run.sh: there is no bundle; make it by tools/gpu_bundle.sh" >&2
    exit 2
}

summary=()
failed=0
# Arguments: the step's name, its limit in seconds, and the command.
step() {
    local name=$1 limit=$2 start=$SECONDS code outcome
    shift 2
    echo "== $name"
    timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1
    code=$?
    case $code in
    0) outcome=passed ;;
    77) outcome="skipped itself" ;;
    124 | 137) outcome="FAILED: took longer than $limit s" failed=1 ;;
    *) outcome="FAILED: exit status $code" failed=1 ;;
    esac
    tail -n 40 "$logs/$name.log"
    summary+=("$(printf '%-18s %s, %d s; %s' "$name" "$outcome" $((SECONDS - start)) "$(tail -n 1 "$logs/$name.log")")")
}
skip() {
    summary+=("$(printf '%-18s skipped: %s' "$1" "$2")")
}

if command -v nvidia-smi >/dev/null; then
    step machine 30 nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader
else
    skip machine "no nvidia-smi"
fi

# Python's packages have NVRTC where no loader looks, and a system's Python other packages than this one.
if [ -z "${PLINTH_NVRTC_LIBRARY:-}" ]; then
    nvrtc=$(python3 -c 'import glob, sys; print(*[f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/libnvrtc.so.1[23]")][:1])')
    [ -n "$nvrtc" ] && export PLINTH_NVRTC_LIBRARY=$nvrtc
fi

# Each call of the driver fails once; the host device has all kinds of faults.
export PLINTH_TEST_FAULTS=${PLINTH_TEST_FAULTS:-each}
# Each test once, without the variants of its program. At most 16 at a time: some tests measure time, and the driver makes contexts one after the other.
cores=$(nproc)
step c_tests 900 python3 sources/c_tests/run.py --no-build --lib lib --include include --build c_tests --device cuda \
    --first-variant --jobs $((cores < 16 ? cores : 16)) --filter '^(?!communicator|nccl)'
# One at a time: NCCL's kernels wait for those on other GPUs, which hardly ever run at the same time where others want them.
step c_tests-ranks 400 python3 sources/c_tests/run.py --no-build --lib lib --include include --build c_tests --device cuda \
    --jobs 1 --filter '^(communicator|nccl)'

# More ranks than GPUs share them, and run by turns.
step group 300 tests/group/group --test-threads 1

# Killed more often, the processes would not live until they have a context.
step chaos 200 fuzz/chaos --seconds 60 --kill-every 2
# Every bit beside the recorded ones; skips itself on a GPU of another build.
step random-golden 120 python3 tests/random/golden.py --library lib/libplinth.so --device cuda
step random-statistics 180 python3 tests/random/distributions.py --library lib/libplinth.so --device cuda

for bench in benches/*; do
    # It wants to know which allocator; compare.py runs it for each.
    [ "$bench" = benches/allocator ] && continue
    [ -f "$bench" ] && [ -x "$bench" ] && step "bench-$(basename "$bench")" 120 "$bench"
done

# A process for each GPU.
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
if [ "$gpus" -gt 1 ]; then
    step bench-processes 120 benches/communicator --processes "$gpus"
    step bench-registered 120 benches/communicator --processes "$gpus" --registered --graph
else
    skip bench-processes "needs two GPUs"
fi

if python3 -c 'import torch' 2>/dev/null; then
    step bench-torch 120 python3 benches/torch_calls.py
    step bench-torch-pinned 120 python3 benches/torch_pinned.py
    # Fills in one process with PyTorch's, bit for bit; other cases with another seed.
    step random-torch 300 python3 tests/random/against_torch.py --library lib/libplinth.so --cases 3000 --seconds 240 \
        --seed "${RANDOM_SEED:-1}"
    step random-captured 120 python3 tests/random/captured.py --library lib/libplinth.so --seed "${RANDOM_SEED:-1}"
    step bench-random-table 180 python3 benches/random_table.py --library lib/libplinth.so --program benches/random \
        --json "$logs/random.json"
    # Both skip themselves with one GPU.
    step comm-torch 240 python3 tests/comm/against_torch.py --library lib/libplinth.so --cases 2000 --seed "${RANDOM_SEED:-1}"
    step bench-comm-table 240 python3 benches/comm_table.py --library lib/libplinth.so --svg "$logs/comm.svg" \
        --json "$logs/comm.json"
    # Programs that are made up, compiled and run by both; then both beside each other.
    step jiterator-torch 300 python3 tests/jiterator/against_torch.py --library lib/libplinth.so --cases 400 --seconds 240 \
        --seed "${RANDOM_SEED:-1}"
    step bench-jiterator-table 180 python3 benches/jiterator_table.py --library lib/libplinth.so --json "$logs/jiterator.json"
    # GPT-2, ResNet-50 and a mixture of experts on PyTorch's memory and on plinth's, in turns: results by their bits,
    # memory held, step times.
    step torch 600 python3 benches/torch_training.py --library lib/libplinth.so --seconds 540 --json "$logs/torch.json"
    step snapshot-torch 120 python3 tests/snapshot/torch_training.py --library lib/libplinth.so --out "$logs/snapshot"
    step snapshot-bridge 120 python3 tests/snapshot/torch_training.py --route bridge --library lib/libplinth.so \
        --out "$logs/snapshot-bridge"
else
    skip random-torch "no PyTorch"
    skip random-captured "no PyTorch"
    skip bench-random-table "no PyTorch"
    skip comm-torch "no PyTorch"
    skip jiterator-torch "no PyTorch"
    skip bench-jiterator-table "no PyTorch"
    skip bench-comm-table "no PyTorch"
    skip bench-torch "no PyTorch"
    skip bench-torch-pinned "no PyTorch"
    skip torch "no PyTorch"
    skip snapshot-torch "no PyTorch"
    skip snapshot-bridge "no PyTorch"
fi

# Without PyTorch, or with RMM_DIR unset, there are fewer to compare with.
step bench-peers 400 benches/replay/peers.sh "$logs/peers"
step bench-allocators 600 python3 benches/replay/compare.py --replay benches/replay/replay --bench benches/allocator \
    --plinth lib/libplinth.so --peers "$logs/peers" --out "$logs/replay" --limits 1.01,1.02,1.05,1.1,1.2,1.5,2 \
    benches/traces
rm -rf "$logs/peers"

# Skips itself where there is no CuPy.
step cupy 90 python3 benches/cupy_check.py lib/libplinth.so

if command -v nvcc >/dev/null; then
    step cuda-program 120 "$self" --cuda-program "$logs/two_streams"
else
    skip cuda-program "no nvcc"
fi

if command -v compute-sanitizer >/dev/null; then
    step memcheck 240 "$self" --memcheck
else
    skip memcheck "no compute-sanitizer"
fi

# Another tool's own words on our ranges.
if command -v ncu >/dev/null; then
    step nvtx 60 "$self" --nvtx
else
    skip nvtx "no ncu"
fi

if command -v cmake >/dev/null; then
    step consumer 120 "$self" --consumer "$logs/consumer"
    rm -rf "$logs/consumer"
else
    skip consumer "no cmake"
fi

printf '\n%s\n' "== summary"
printf '%s\n' "${summary[@]}" | tee "$logs/summary.txt"
exit $failed
