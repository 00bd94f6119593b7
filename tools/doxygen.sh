#!/usr/bin/env bash
# Builds the reference of the headers, in target/doxygen. `make docs` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"

# Runs doxygen. Arguments: additional lines of the configuration.
run() {
    {
        cat docs/Doxyfile
        echo "PROJECT_NUMBER = $(tools/version.sh)"
        echo "OUTPUT_DIRECTORY = $target/doxygen"
        printf '%s\n' "$@"
    } | doxygen -
}

# The C headers are the specification, so incomplete documentation in them is an error.
c_headers=(include/plinth.h include/plinth/*.h include/plinth_philox.h include/plinth_philox.cuh)
run "INPUT = ${c_headers[*]}" "HTML_OUTPUT = c-only"
# The C++ members wrap C functions, so they need not repeat the documentation of those.
headers=("${c_headers[@]}" include/*.hpp)
run "INPUT = ${headers[*]}" "EXTRACT_ALL = YES" "WARN_NO_PARAMDOC = NO"
echo "the reference is $target/doxygen/html/index.html"
