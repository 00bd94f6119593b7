#!/usr/bin/env bash
# Tests the archive of built files: `tests/package/tarball.sh ARCHIVE`. Checks its checksum, unpacks it into a folder whose
# name has a space, builds programs with it, shared and static, and starts them and the tool.
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PLINTH_DEVICE=host

(cd "$(dirname "$archive")" && sha256sum --check --quiet "$(basename "$archive").sha256")
if tar -tvf "$archive" | awk '$2 != "0/0" || $6 !~ /^plinth-[^\/]*\//' | grep .; then
    echo "FAIL  the archive has files of a user, or outside its folder" >&2
    exit 1
fi
mkdir "$work/any where"
tar -xf "$archive" -C "$work/any where"
tree=$(echo "$work/any where"/*)
if grep -rIlF -e "$PWD" "$tree"; then
    echo "FAIL  these files contain the path of the build" >&2
    exit 1
fi

cmake -S tests/package/c -B "$work/build" -DCMAKE_PREFIX_PATH="$tree" >"$work/log"
cmake --build "$work/build" >>"$work/log"
env -C "$work/build" ctest --output-on-failure >>"$work/log" || { cat "$work/log" && exit 1; }
echo "ok    archive: CMake, shared and static"

# pkg-config quotes the spaces of paths for a shell.
flags=$(PKG_CONFIG_PATH="$tree/lib/pkgconfig" pkg-config --cflags --libs plinth)
eval "gcc -std=c99 tests/package/c/main.c -o '$work/shared' $flags"
LD_LIBRARY_PATH="$tree/lib" "$work/shared" >"$work/log" || { cat "$work/log" && exit 1; }
echo "ok    archive: pkg-config"

# The commands of docs/packages.md, which quote no path.
ln -s "$tree" "$work/tree"
sed 's|"../consumer.h"|"consumer.h"|' tests/package/c/main.c >"$work/app.c"
cp tests/package/consumer.h "$work"
for build in pkg-config 'no build system'; do
    command=$(sed -n "s/^| $build | \`\(.*\)\` |$/\1/p" docs/packages.md)
    env -C "$work" PLINTH="$work/tree" sh -c "${command:?} && ./a.out" >"$work/log" || { cat "$work/log" && exit 1; }
done
echo "ok    archive: the commands of docs/packages.md"

version=$(tools/version.sh)
[ "$("$tree/bin/plinth" --version)" = "plinth $version" ]
"$tree/bin/plinth" info >"$work/log"
grep -q 'host device' "$work/log" || { cat "$work/log" && exit 1; }
echo "ok    archive: the tool"
