#!/usr/bin/env bash
# Packs what a GPU machine without Rust needs to run the suite and the benches: `tools/gpu_bundle.sh [FOLDER]`, after
# `make build`. The folder may be taken anywhere; in it, or beside it, tools/gpu_run.sh does the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
bundle=${1:-build/gpu}
stage=$target/gpu-stage

rm -rf "$bundle" "$stage"
mkdir -p "$bundle/sources" "$bundle/benches"
tools/install.sh --from "$target/release" --prefix / --destdir "$stage" >/dev/null
# Links become files: not every way to another machine keeps them.
cp -rL "$stage/." "$bundle/"
rm -rf "$stage"

# The suite: the programs, and the sources, by which run.py knows what each of them needs.
cp -r c_tests "$bundle/sources/c_tests"
python3 "$bundle/sources/c_tests/run.py" --build-only --lib "$bundle/lib" --include "$bundle/include" --build "$bundle/c_tests"
rm -rf "$bundle/sources/c_tests/__pycache__"

# shellcheck disable=SC2016 # $ORIGIN is for the loader, not for the shell
tools/programs.sh benches "$bundle/benches" "$bundle/lib" '$ORIGIN/../lib'

# shellcheck disable=SC2016
tools/programs.sh benches/replay "$bundle/benches/replay" "$bundle/lib" '$ORIGIN/../../lib'

cp benches/*.py "$bundle/benches/"
# The peers are compiled there, where they are. Beside our traces go those of the folder TRACES.
cp benches/replay/{compare.py,chart.py,peers.sh,peer_*.cpp} "$bundle/benches/replay/"
cp -r benches/traces "$bundle/benches/traces"
if [ -n "${TRACES:-}" ]; then
    find "$TRACES" -maxdepth 1 \( -name '*.trace' -o -name '*.trace.xz' \) -exec cp {} "$bundle/benches/traces/" \;
fi

# The judges of random numbers; the bench of them finds their binding here.
mkdir -p "$bundle/tests/random"
cp tests/random/*.py tests/random/*.json.xz "$bundle/tests/random/"
mkdir -p "$bundle/tests/jiterator"
cp tests/jiterator/*.py "$bundle/tests/jiterator/"
mkdir -p "$bundle/tests/comm"
cp tests/comm/*.py "$bundle/tests/comm/"

# A training whose memory is dumped, and what looks at the dump.
mkdir -p "$bundle/tests/snapshot"
cp tests/snapshot/*.py "$bundle/tests/snapshot/"

# The benches load it, so that what users copy is what is tested.
mkdir -p "$bundle/examples"
cp examples/*.py "$bundle/examples/"
cp -r tests/package "$bundle/sources/package"
cp -r tests/cuda "$bundle/sources/cuda"
cp tools/gpu_run.sh "$bundle/gpu_run.sh"
echo "$bundle: $(du -sh "$bundle" | cut -f1); on the GPU machine: tools/gpu_run.sh LOGS, or $bundle/gpu_run.sh LOGS"
