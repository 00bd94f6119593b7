#!/usr/bin/env bash
# Compiles every program of a folder: `tools/programs.sh SOURCES PROGRAMS LIB RPATH`, warnings as errors. RPATH is where
# the programs will find the library, which lies in LIB now.
set -euo pipefail
sources=$1 programs=$2 lib=$3 rpath=$4
cd "$(dirname "$0")/.."
mkdir -p "$programs"
for source in "$sources"/*.c "$sources"/*.cpp; do
    [ -e "$source" ] || continue
    case $source in
    # Libraries around other projects' allocators, which few machines have: benches/replay/peers.sh.
    */peer_*) continue ;;
    *.c) compiler=(gcc -std=gnu11) ;;
    *) compiler=(g++ -std=c++17) ;;
    esac
    name=$(basename "$source")
    # As needed: a program that loads the library itself is not to find it loaded.
    "${compiler[@]}" -O2 -Wall -Wextra -Werror -Iinclude "$source" -o "$programs/${name%.*}" \
        "-L$lib" "-Wl,-rpath,$rpath" -Wl,--as-needed -lplinth -ldl -lpthread -lm
done
