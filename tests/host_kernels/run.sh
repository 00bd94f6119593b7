#!/usr/bin/env bash
# Compiles the tests of the headers for kernels on the host device with each compiler that there is, in the oldest standard and
# a newer one, without warnings, and runs them.
#   tests/host_kernels/run.sh FOLDER    FOLDER is for the programs
set -euo pipefail
mkdir -p "$1"
work=$(realpath "$1")
cd "$(dirname "$0")"

options=(-O2 -ffp-contract=off -fno-strict-aliasing -fwrapv -pthread -Wall -Wextra -Werror -I../../kernels/host)
for compiler in g++ clang++; do
    if ! command -v "$compiler" >/dev/null; then
        echo "host_kernels: there is no $compiler"
        continue
    fi
    for standard in c++17 c++20; do
        for source in *.cpp; do
            program=$work/${source%.cpp}
            "$compiler" -std=$standard "${options[@]}" "$source" -o "$program"
            # The exact comparisons take seconds, and depend on the compiler only.
            if [ "$source" = rounding.cpp ] && [ $standard != c++17 ]; then continue; fi
            "$program" >"$work/log" || { cat "$work/log" && echo "host_kernels: $source failed ($compiler, $standard)" && exit 1; }
        done
        echo "host_kernels: passed with $compiler, $standard"
    done
done
