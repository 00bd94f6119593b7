#!/usr/bin/env bash
# Gives a built library the name that programs ask for at run time: `tools/soname_link.sh FOLDER`.
set -euo pipefail
folder=$1
soname=$(readelf -d "$folder/libplinth.so" | sed -nE 's/.*Library soname: \[(.*)\]/\1/p')
ln -sf libplinth.so "$folder/$soname"
