#!/usr/bin/env bash
# Links a built library's soname, by which programs load it, to its file: `tools/soname_link.sh FOLDER [SONAME]`. Without
# SONAME the library is asked; READELF names the program that does.
set -euo pipefail
folder=$1
if [ ! -f "$folder/libplinth.so" ]; then
    echo "soname_link.sh: there is no $folder/libplinth.so. Cargo builds for another folder if its configuration has a build.target:" \
        "remove it, or build with CMake and set PLINTH_CARGO_TARGET to it (docs/linking.md)" >&2
    exit 1
fi
soname=${2:-$("${READELF:-readelf}" -d "$folder/libplinth.so" | sed -nE 's/.*Library soname: \[(.*)\]/\1/p')}
ln -sf libplinth.so "$folder/$soname"
