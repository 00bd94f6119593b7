#!/usr/bin/env bash
# Makes all packages and tests them: `tests/package/packages.sh LIBRARIES TOOL`, where LIBRARIES is a folder with the built
# libraries of the release profile, and TOOL the built command-line tool. `make test-packages` calls it.
set -euo pipefail
cd "$(dirname "$0")/../.."
library=$(realpath "$1")
target=$(realpath "${CARGO_TARGET_DIR:-target}")
work=$target/packages-test
rm -rf "$work"
mkdir -p "$work/again"
# A program with debugging symbols takes long to pack.
strip -o "$work/plinth" "$2"
make=(--from "$library" --tool "$work/plinth" --out "$work")
# Packing takes longer than all the rest.
export XZ_OPT=-0 DPKG_DEB_COMPRESSOR_LEVEL=1

packaging/tarball.sh "${make[@]}"
tests/package/tarball.sh "$work"/plinth-*-linux-*.tar.xz
packaging/tarball.sh "${make[@]}" --out "$work/again"
(cd "$work/again" && sha256sum --check --quiet "$work"/plinth-*-linux-*.sha256)
echo "ok    archive: the same files again yield the same archive"

packaging/debian.sh "${make[@]}"
tests/package/debian.sh "$work" || {
    [ $? = 77 ] || exit 1
    echo "skip  Debian packages were made and checked by lintian, but not installed"
}

packaging/source.sh "${make[@]}"
for kind in conan vcpkg conda spack; do
    packaging/recipe.sh "$kind" "${make[@]}"
done
# CMake finds this cargo first. It copies the built libraries.
REAL_CARGO=$(command -v cargo)
export REAL_CARGO BUILT_LIBRARIES=$library CMAKE_PROGRAM_PATH=$PWD/tests/package/prebuilt
export PATH=$target/tools/packaging/bin:$PATH

# Runs a command, and shows its output only if it fails.
step() {
    local what=$1
    shift
    "$@" >"$work/log" 2>&1 || { cat "$work/log" && echo "FAIL  $what" >&2 && exit 1; }
    echo "ok    $what"
}
export CONAN_HOME=$work/conan-home
step "conan: profile" conan profile detect
for shared in True False; do
    step "conan create, shared=$shared" conan create "$work/conan" --no-remote -o "&:shared=$shared"
done
step "conda: build and tests of the recipe" python3 tests/package/conda.py "$work/conda/recipe.yaml" "$work/conda-build"
echo "skip  the vcpkg port and the Spack package were filled in, but not built: their tools are in no package registry"
rm -rf "$work"
