#!/usr/bin/env bash
# Packs the sources and those of all crates that they use, so that they build without a network: the archive that the
# recipes and distributions build from. `make package-source` calls it.
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "$0")/common.sh"

name=plinth-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/$name/.cargo"
list_sources | tar --null -T - -cf - | tar -xf - -C "$work/$name"
# vendor/ has a folder for each crate. config.toml, which cargo prints, makes cargo use them.
(cd "$work/$name" && cargo vendor --locked --versioned-dirs vendor 2>"$work/log" >.cargo/config.toml) ||
    { cat "$work/log" && fail "cargo vendor failed"; }

tar "${reproducible[@]}" -C "$work" -cf - "$name" | xz -T0 >"$source"
write_checksum "$source"
echo "made $source"
