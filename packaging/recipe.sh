#!/usr/bin/env bash
# Writes a recipe that builds the source archive: `packaging/recipe.sh conan|vcpkg|conda|spack`. `make package-conan` and
# so on call it. SOURCE_URL is the address where the archive is published; by default the recipe uses the file itself.
set -euo pipefail
kind=${1:-}
shift || true
# shellcheck source=packaging/common.sh
. "$(dirname "$0")/common.sh" "$@"

program=
case $kind in
conan) program=test_package ;;
conda) program=test_program ;;
vcpkg | spack) ;;
*) fail "usage: recipe.sh conan|vcpkg|conda|spack [--out FOLDER]" ;;
esac

rm -rf "${out:?}/$kind"
cp -r "packaging/$kind" "$out/$kind"
if [ -n "$program" ]; then
    mkdir -p "$out/$kind/$program"
    cp packaging/test_program/* "$out/$kind/$program/"
fi
while read -r template; do
    fill "$template" "${template%.in}"
    rm "$template"
done < <(find "$out/$kind" -name '*.in')
echo "made $out/$kind"
