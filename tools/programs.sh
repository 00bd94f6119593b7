#!/usr/bin/env bash
# Compiles every program of a folder, with warnings as errors: `tools/programs.sh SOURCES PROGRAMS LIB RPATH`. LIB is the
# folder of the library now; RPATH is its folder when the programs run.
set -euo pipefail
sources=$1 programs=$2 lib=$3 rpath=$4
cd "$(dirname "$0")/.."
mkdir -p "$programs"

# Compiles the source $1.
compile() {
    local compiler=(g++ -std=c++17) name
    case $1 in *.c) compiler=(gcc -std=gnu11) ;; esac
    name=$(basename "$1")
    # With --as-needed, a program that loads the library itself with dlopen is not linked to it.
    "${compiler[@]}" -O2 -Wall -Wextra -Werror -Iinclude "$1" -o "$programs/${name%.*}" \
        "-L$lib" "-Wl,-rpath,$rpath" -Wl,--as-needed -lplinth -ldl -lpthread -lm
}
export -f compile
export programs lib rpath

# benches/replay/peers.sh compiles the peers, because few machines have the libraries that they wrap.
# shellcheck disable=SC2016 # the inner shell expands it
find "$sources" -maxdepth 1 -name '*.c*' ! -name 'peer_*' -print0 |
    xargs -0 -r -n 1 -P "$(nproc)" bash -euo pipefail -c 'compile "$1"' compile
