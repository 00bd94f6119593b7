# What the scripts of this folder share. Each sources it as its first step, with its own arguments:
#
#   --from FOLDER   the built libraries of the release profile (default target/release)
#   --tool FILE     the built command-line tool (default target/tool/release/plinth)
#   --out FOLDER    where the package goes (default target/packages)
#
# Sets: root, from, tool, out, target (absolute paths), version, machine (x86_64 or aarch64, that of the libraries).
# shellcheck shell=bash disable=SC2034  # the scripts use the variables
set -euo pipefail

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
from=$target/release tool=$target/tool/release/plinth out=$target/packages
while [ $# -gt 0 ]; do
    case $1 in
    --from) from=$(realpath -m "$2") ;;
    --tool) tool=$(realpath -m "$2") ;;
    --out) out=$(realpath -m "$2") ;;
    *)
        echo "usage: $(basename "$0") [--from FOLDER] [--tool FILE] [--out FOLDER]" >&2
        exit 2
        ;;
    esac
    shift 2
done
cd "$root"
version=$(tools/version.sh)
mkdir -p "$out"

# Archives made twice from the same commit are equal: their files have the time of the commit, sorted names, no owner.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)
fi
export SOURCE_DATE_EPOCH
reproducible=(--sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode="go=rX,u+rw,a-s")

# Checks that the libraries and the tool are built, for one architecture. Sets `machine`.
need_built() {
    local file type
    for file in "$from/libplinth.so" "$from/libplinth.a" "$tool"; do
        [ -f "$file" ] || fail "$file does not exist: run make build tool"
    done
    for file in "$from/libplinth.so" "$tool"; do
        type=$(readelf -h "$file" | sed -nE 's/ *Machine: *//p')
        case $type in
        *X86-64) type=x86_64 ;;
        AArch64) type=aarch64 ;;
        *) fail "$file is for $type: packages exist for x86_64 and aarch64" ;;
        esac
        [ "${machine:-$type}" = "$type" ] || fail "$file is for $type, but the library is for $machine"
        machine=$type
    done
}

# Prints the names of the project's files, each followed by a zero byte: those that git does not ignore, in a checkout,
# and all files outside the build folders in an unpacked source archive.
list_sources() {
    if [ -e .git ]; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . \( -path ./target -o -path ./build -o -path ./vendor -o -path ./.cargo -o -path ./debian \) -prune -o \
            \( -type f -o -type l \) -printf '%P\0'
    fi
}

source=$out/plinth-$version-source.tar.xz

# Copies a file and fills in @VERSION@, @RUST@ (the oldest rustc), and of the source archive @URL@, @SHA256@, @SHA512@.
fill() {
    local rust sha256 sha512
    [ -f "$source" ] || fail "$source does not exist: run make package-source"
    rust=$(sed -nE 's/^rust-version = "(.*)"$/\1/p' Cargo.toml)
    sha256=$(sha256sum "$source" | cut -d ' ' -f 1)
    sha512=$(sha512sum "$source" | cut -d ' ' -f 1)
    sed -e "s|@VERSION@|$version|g" -e "s|@RUST@|$rust|g" -e "s|@URL@|${SOURCE_URL:-file://$source}|g" \
        -e "s|@SHA256@|$sha256|g" -e "s|@SHA512@|$sha512|g" "$1" >"$2"
}

# Writes NAME.sha256 beside an archive, for `sha256sum --check`.
write_checksum() {
    (cd "$(dirname "$1")" && sha256sum "$(basename "$1")" >"$(basename "$1").sha256")
}
