#!/usr/bin/env bash
# Collects what a release consists of in target/dist-VERSION: packages, documentation, licences, ABI, notes, checksums.
# `make release` builds the parts and calls it; docs/releasing.md describes a release.
#
#   --draft            accept uncommitted changes and a changelog that has no section for the version
#   --packages FOLDER  the built packages (default target/packages)
#   --wheels FOLDER    the built wheel (default target/wheels)
#   --site FOLDER      the built documentation (default target/site)
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
draft=no packages=$target/packages wheels=$target/wheels site=$target/site
while [ $# -gt 0 ]; do
    case $1 in
    --draft) draft=yes ;;
    --packages) packages=$2 && shift ;;
    --wheels) wheels=$2 && shift ;;
    --site) site=$2 && shift ;;
    *)
        echo "usage: release.sh [--draft] [--packages FOLDER] [--wheels FOLDER] [--site FOLDER]" >&2
        exit 2
        ;;
    esac
    shift
done
version=$(tools/version.sh)
dist=$target/dist-$version

fail() {
    echo "release.sh: $*" >&2
    exit 1
}

# Prints the changelog's section of a version.
notes() {
    awk -v heading="## $1" '/^## / { inside = $0 == heading || index($0, heading " ") == 1; next } inside' CHANGELOG.md
}

section=$version
if [ $draft = yes ]; then
    [ -n "$(notes "$version")" ] || section=Unreleased
else
    [ -z "$(git status --porcelain)" ] || fail "there are uncommitted changes; commit them, or pass --draft"
    [ -n "$(notes "$version")" ] || fail "CHANGELOG.md has no section '## $version'; write it, or pass --draft"
fi
for part in "plinth-$version-source.tar.xz" "plinth-$version-linux-*.tar.xz" "libplinth${version%.*}_$version*.deb" \
    "libplinth-dev_$version*.deb" "plinth-tools_$version*.deb"; do
    compgen -G "$packages/$part" >/dev/null || fail "$packages has no $part; run make packages"
done
wheel="libplinth-$version-py3-none-*.whl"
compgen -G "$wheels/$wheel" >/dev/null || fail "$wheels has no $wheel; run make wheel"
[ -f "$site/index.html" ] || fail "$site has no index.html; run make site"

rm -rf "$dist"
mkdir -p "$dist"
cp -r "$packages/." "$dist/"
# shellcheck disable=SC2086 # a pattern
cp "$wheels"/$wheel "$dist/"
# The same commit yields the same archive.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" --mode=go=rX,u+rw,a-s \
    --transform "s|^\.|plinth-$version-documentation|" -C "$site" -cJf "$dist/plinth-$version-documentation.tar.xz" .
install -m 644 licenses/plinth.cdx.json "$dist/plinth-$version.cdx.json"
install -m 644 licenses/plinth-tool.cdx.json "$dist/plinth-tool-$version.cdx.json"
install -m 644 LICENSE-MIT LICENSE-APACHE licenses/THIRD-PARTY.txt "$dist/"
install -m 644 tests/abi/signatures.abi "$dist/plinth-$version.abi"
notes "$section" >"$dist/NOTES.md"
# Binaries contain the standard library.
notices=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
[ -f "$notices" ] || fail "the toolchain has no $notices; install rustc with its documentation files"
install -m 644 "$notices" "$dist/RUST-STANDARD-LIBRARY.html"

sums=$(cd "$dist" && find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum)
printf '%s\n' "$sums" >"$dist/SHA256SUMS"
(cd "$dist" && sha256sum --check --quiet SHA256SUMS)
echo "made $dist: $(wc -l <"$dist/SHA256SUMS") files, $(du -sh "$dist" | cut -f 1)"
