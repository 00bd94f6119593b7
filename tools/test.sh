#!/usr/bin/env bash
# `make test`: every check there is, the quick ones first; stops at the first that fails, and sums up.
set -euo pipefail
cd "$(dirname "$0")/.."

steps=(lint kernels-check header-check test-rust test-tool abi package examples test-replay test-random test-snapshot test-c test-fuzz test-valgrind test-asan)
summary=()
begun=$SECONDS
for step in "${steps[@]}"; do
    printf '\n== make %s\n' "$step"
    start=$SECONDS
    if ! make --no-print-directory "$step"; then
        printf '\n'
        printf '%s\n' ${summary[@]+"${summary[@]}"}
        printf '%-14s FAILED; the steps after it did not run\n' "$step"
        exit 1
    fi
    summary+=("$(printf '%-14s passed in %3d s' "$step" $((SECONDS - start)))")
done
printf '\n'
printf '%s\n' "${summary[@]}"
printf 'All %d steps passed, in %d s.\n' ${#steps[@]} $((SECONDS - begun))
