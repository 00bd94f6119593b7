#!/usr/bin/env bash
# Makes Debian packages from the built libraries and the built tool, and checks them with lintian.
# `make package-debian` calls it.
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "$0")/common.sh"
need_built

packaged=$(dpkg-parsechangelog --file packaging/debian/changelog --show-field Version)
[ "${packaged%-*}" = "$version" ] ||
    fail "packaging/debian/changelog is for version ${packaged%-*}, Cargo.toml for $version: add an entry"

# dpkg-buildpackage works in a source tree with a folder debian, and writes to the folder above.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/plinth-$version"
list_sources | tar --null -T - -cf - | tar -xf - -C "$work/plinth-$version"
cp -r packaging/debian "$work/plinth-$version/debian"
architecture=amd64
[ "$machine" = x86_64 ] || architecture=arm64
# -d: nothing is compiled, so the compiler's package is not needed.
(cd "$work/plinth-$version" &&
    BUILT_LIBRARIES=$from BUILT_TOOL=$tool dpkg-buildpackage -d -b -us -uc --host-arch "$architecture") >"$work/log" 2>&1 ||
    { cat "$work/log" && fail "dpkg-buildpackage failed"; }

# Uploads to Debian close the bug in which somebody announced the package; these packages are not from Debian.
lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$work"/*.changes
rm -f "$out"/{libplinth*,plinth-tools_*}.deb
mv "$work"/*.deb "$out/"
echo "made $(cd "$out" && echo ./*.deb) in $out"
