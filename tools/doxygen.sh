#!/usr/bin/env bash
# Makes the C reference from the headers, in target/doxygen. `make docs` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
headers=(include/plinth.h)
if [ -e include/plinth.hpp ]; then
    headers+=(include/plinth.hpp)
fi
{
    cat docs/Doxyfile
    echo "PROJECT_NUMBER = $(tools/version.sh)"
    echo "OUTPUT_DIRECTORY = $target/doxygen"
    echo "INPUT = ${headers[*]}"
} | doxygen -
echo "the C reference is $target/doxygen/html/index.html"
