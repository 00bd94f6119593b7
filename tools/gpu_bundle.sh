#!/usr/bin/env bash
# Packs the files that a GPU machine without Rust needs to run tests and benches: `tools/gpu_bundle.sh [FOLDER]`, after
# `make build`. The folder can be copied to any machine; tools/gpu_run.sh, in it or next to it, runs everything.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
bundle=${1:-build/gpu}
stage=$target/gpu-stage

rm -rf "$bundle" "$stage"
mkdir -p "$bundle/sources" "$bundle/benches"
tools/install.sh --from "$target/release" --prefix / --destdir "$stage" >/dev/null
# Symbolic links become files, because not every way of copying keeps links.
cp -rL "$stage/." "$bundle/"
rm -rf "$stage"

# The tests: the programs, and their sources, from which run.py reads the requirements of each program.
cp -r c_tests "$bundle/sources/c_tests"
python3 "$bundle/sources/c_tests/run.py" --build-only --lib "$bundle/lib" --include "$bundle/include" --build "$bundle/c_tests"
rm -rf "$bundle/sources/c_tests/__pycache__"

# shellcheck disable=SC2016 # $ORIGIN is for the loader, not for the shell
tools/programs.sh benches "$bundle/benches" "$bundle/lib" '$ORIGIN/../lib'

# shellcheck disable=SC2016
tools/programs.sh benches/host_kernels "$bundle/benches/host_kernels" "$bundle/lib" '$ORIGIN/../../lib'

# shellcheck disable=SC2016
tools/programs.sh benches/replay "$bundle/benches/replay" "$bundle/lib" '$ORIGIN/../../lib'

# shellcheck disable=SC2016
tools/programs.sh fuzz "$bundle/fuzz" "$bundle/lib" '$ORIGIN/../lib'

cp benches/*.py "$bundle/benches/"
# The package, with the source of the bridge to PyTorch, which is compiled there.
mkdir -p "$bundle/python"
cp -r python/plinth "$bundle/python/"
cp -r include "$bundle/python/plinth/include"
find "$bundle/python" -name __pycache__ -exec rm -rf {} +
# The peers are compiled on the GPU machine, which has their libraries. The traces of the folder TRACES are added.
cp benches/replay/{compare.py,chart.py,peers.sh,peer_*.cpp} "$bundle/benches/replay/"
cp -r benches/traces "$bundle/benches/traces"
if [ -n "${TRACES:-}" ]; then
    find "$TRACES" -maxdepth 1 \( -name '*.trace' -o -name '*.trace.xz' \) -exec cp {} "$bundle/benches/traces/" \;
fi

# The tests of random numbers; benches/random_table.py uses their binding.
mkdir -p "$bundle/tests/random"
cp tests/random/*.py tests/random/*.json.xz "$bundle/tests/random/"
mkdir -p "$bundle/tests/jiterator"
cp tests/jiterator/*.py "$bundle/tests/jiterator/"
mkdir -p "$bundle/tests/comm"
cp tests/comm/*.py "$bundle/tests/comm/"

# Ranks of processes, as a program of its own.
mkdir -p "$bundle/tests/group"
program=$(cargo test --test group --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))$/\1/p')
strip -o "$bundle/tests/group/group" "$program"

# The training whose memory is dumped, and the checks of the dump.
mkdir -p "$bundle/tests/snapshot"
cp tests/snapshot/*.py "$bundle/tests/snapshot/"

# The benches load the example, so that the code that users copy is tested.
mkdir -p "$bundle/examples"
cp examples/*.py "$bundle/examples/"
cp -r tests/package "$bundle/sources/package"
cp -r tests/cuda "$bundle/sources/cuda"
cp tools/gpu_run.sh "$bundle/gpu_run.sh"
echo "$bundle: $(du -sh "$bundle" | cut -f1); on the GPU machine: tools/gpu_run.sh LOGS, or $bundle/gpu_run.sh LOGS"
