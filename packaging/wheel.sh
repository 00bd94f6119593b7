#!/usr/bin/env bash
# Makes the wheel of the Python package, with the library, headers, CMake package and tool. `make wheel` calls it.
# The libraries and the tool were built for the C library of the tag, manylinux_2_28.
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "$0")/common.sh"
need_built
platform=manylinux_2_28_$machine

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r python Cargo.toml LICENSE-MIT LICENSE-APACHE licenses "$work"
cd "$work/python"
mv ../LICENSE-* ../licenses/* .

# A wheel has no symbolic links: the library has the name by which programs load it, and the name by which linkers find
# it is a linker script.
"$root/tools/install.sh" --from "$from" --prefix / --destdir "$work/tree"
soname=$(readlink "$work/tree/lib/libplinth.so")
mkdir plinth/lib plinth/bin
cp "$work/tree/lib/$soname" "plinth/lib/$soname"
echo "INPUT($soname)" >plinth/lib/libplinth.so
cp -r "$work/tree/lib/cmake" "$work/tree/lib/pkgconfig" plinth/lib
cp -r "$work/tree/include" plinth
sed -i "s|libplinth\.so\.$version|$soname|" plinth/lib/cmake/plinth/plinthConfig.cmake
grep -qF "libplinth.so.${soname#libplinth.so.}\")" plinth/lib/cmake/plinth/plinthConfig.cmake
install -m 755 "$tool" plinth/bin/plinth

PLINTH_WHEEL_PLATFORM=$platform "$target/tools/wheel/bin/python" -m hatchling build -t wheel -d "$out"
