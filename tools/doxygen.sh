#!/usr/bin/env bash
# Makes the reference of the headers, in target/doxygen. `make docs` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"

# Arguments: further lines of the configuration.
run() {
    {
        cat docs/Doxyfile
        echo "PROJECT_NUMBER = $(tools/version.sh)"
        echo "OUTPUT_DIRECTORY = $target/doxygen"
        printf '%s\n' "$@"
    } | doxygen -
}

# The C headers are the specification: whatever they do not describe in full is an error.
c_headers=(include/plinth.h include/plinth/*.h include/plinth_philox.h include/plinth_philox.cuh)
run "INPUT = ${c_headers[*]}" "HTML_OUTPUT = c-only"
# The C++ headers' members are those of C by other means, so they may leave out what C's comments say.
headers=("${c_headers[@]}" include/*.hpp)
run "INPUT = ${headers[*]}" "EXTRACT_ALL = YES" "WARN_NO_PARAMDOC = NO"
echo "the reference is $target/doxygen/html/index.html"
