#!/usr/bin/env bash
# Packs the built libraries, headers and tool into an archive that works wherever it is unpacked.
# `make package-tarball` calls it.
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "$0")/common.sh"
need_built

name=plinth-$version-linux-$machine
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools/install.sh --from "$from" --prefix "/$name" --destdir "$work"
tools/install_tool.sh --from "$tool" --prefix "/$name" --destdir "$work"
install -D -m 644 -t "$work/$name/share/doc/plinth" CHANGELOG.md docs/packages.md docs/linking.md

tar "${reproducible[@]}" -C "$work" -cf - "$name" | xz -T0 >"$out/$name.tar.xz"
write_checksum "$out/$name.tar.xz"
echo "made $out/$name.tar.xz"
