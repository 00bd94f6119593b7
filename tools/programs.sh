#!/usr/bin/env bash
# Compiles every program of a folder, with warnings as errors: `tools/programs.sh SOURCES PROGRAMS LIB RPATH`. LIB is the
# folder of the library now; RPATH is its folder when the programs run.
set -euo pipefail
sources=$1 programs=$2 lib=$3 rpath=$4
cd "$(dirname "$0")/.."
mkdir -p "$programs"
for source in "$sources"/*.c "$sources"/*.cpp; do
    [ -e "$source" ] || continue
    case $source in
    # benches/replay/peers.sh compiles these, because few machines have the libraries that they wrap.
    */peer_*) continue ;;
    *.c) compiler=(gcc -std=gnu11) ;;
    *) compiler=(g++ -std=c++17) ;;
    esac
    name=$(basename "$source")
    # With --as-needed, a program that loads the library itself with dlopen is not linked to it.
    "${compiler[@]}" -O2 -Wall -Wextra -Werror -Iinclude "$source" -o "$programs/${name%.*}" \
        "-L$lib" "-Wl,-rpath,$rpath" -Wl,--as-needed -lplinth -ldl -lpthread -lm
done
