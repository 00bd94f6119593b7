#!/usr/bin/env bash
# Links a built library's soname, by which programs load it, to its file: `tools/soname_link.sh FOLDER`.
set -euo pipefail
folder=$1
soname=$(readelf -d "$folder/libplinth.so" | sed -nE 's/.*Library soname: \[(.*)\]/\1/p')
ln -sf libplinth.so "$folder/$soname"
