#!/usr/bin/env bash
# Runs some of the C tests under valgrind: `tools/valgrind.sh [FILTER]`; FILTER is that of c_tests/run.py. Not all of them,
# because valgrind runs one thread at a time, twenty times slower.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
filter=${1:-^(init|status|device|stream|event|copy|memory)/}
python3 c_tests/run.py --lib "$target/release" --include include --build "$target/c_tests" --device host \
    --valgrind --filter "$filter"
