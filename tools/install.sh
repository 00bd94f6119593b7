#!/usr/bin/env bash
# Installs a built plinth: libraries, headers, CMake package, pkg-config file, licences. `make install` and
# `cmake --install` call it. It needs no cargo, so root can call it. The installed tree can be moved, because it contains no
# absolute path.
#
# --uninstall removes exactly what was installed without --destdir: see tools/install_tree.sh. With --destdir the tree is for
# a package manager, which has its own list.
set -euo pipefail
cd "$(dirname "$0")/.."

from=target/release prefix=/usr/local libdir=lib destdir='' uninstall=no
while [ $# -gt 0 ]; do
    case $1 in
    --uninstall)
        uninstall=yes
        shift
        continue
        ;;
    --from) from=$2 ;;
    --prefix) prefix=$2 ;;
    --libdir) libdir=$2 ;; # below the prefix: lib, lib64, lib/x86_64-linux-gnu
    --destdir) destdir=$2 ;;
    *)
        echo "usage: install.sh [--uninstall] [--from FOLDER] [--prefix FOLDER] [--libdir NAME] [--destdir FOLDER]" >&2
        exit 2
        ;;
    esac
    shift 2
done
case $libdir in /*)
    echo "install.sh: --libdir is relative to the prefix; it must not begin with /" >&2
    exit 2
    ;;
esac
# Without . and .., because the paths from it up to the prefix count its parts.
libdir=$(realpath -ms --relative-to=/ "/$libdir")
case $prefix in
/*) ;;
*)
    echo "install.sh: the prefix $prefix is not an absolute path" >&2
    exit 2
    ;;
esac
root=$destdir$prefix
lib=$root/$libdir
PATH=$PATH:/usr/sbin:/sbin

# Whether the loader searches a folder because of its configuration, which `ldconfig` reads.
searched() {
    local folders
    command -v ldconfig >/dev/null || return 1
    folders=$(ldconfig -N -X -v 2>/dev/null | sed -n 's/:.*//p' | xargs -r realpath -q || true)
    grep -xF "$(realpath "$1")" <<<"$folders" >/dev/null
}

if [ $uninstall = yes ]; then
    tools/install_tree.sh --remove "$root"
    if [ "$(id -u)" = 0 ] && [ -z "$destdir" ] && [ -d "$lib" ] && searched "$lib"; then
        ldconfig
    fi
    echo "removed plinth from $root"
    exit
fi

for library in libplinth.so libplinth.a; do
    if [ ! -f "$from/$library" ]; then
        echo "install.sh: there is no $from/$library: run \`make build\` first, as a user with Rust" >&2
        exit 1
    fi
done
# Cargo's list of what the library was made from.
if [ -f "$from/libplinth.d" ]; then
    # shellcheck disable=SC2016 # the inner shell expands it
    newer=$(sed 's/^[^:]*://' "$from/libplinth.d" |
        xargs -r bash -c 'find "$@" -newer "$0" -print -quit 2>/dev/null || true' "$from/libplinth.so")
    [ -z "$newer" ] || echo "install.sh: warning: $newer is newer than $from/libplinth.so; \`make build\` builds it anew" >&2
fi

version=$(tools/version.sh)
# READELF and OBJCOPY name the programs for a library of another architecture, and those of conda's compilers.
soname=$("${READELF:-readelf}" -d "$from/libplinth.so" | sed -nE 's/.*Library soname: \[(.*)\]/\1/p')
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
stage_lib=$stage/$libdir

install -d "$stage_lib/cmake/plinth" "$stage_lib/pkgconfig" "$stage/include/plinth" "$stage/share/licenses/plinth" \
    "$stage/share/doc/plinth"
install -m 755 "$from/libplinth.so" "$stage_lib/libplinth.so.$version"
ln -s "libplinth.so.$version" "$stage_lib/$soname"
ln -s "$soname" "$stage_lib/libplinth.so"
# rustc puts its bitcode next to the machine code, which it exceeds seven times in size. C linkers do not use it.
"${OBJCOPY:-objcopy}" --remove-section=.llvmbc --remove-section=.llvmcmd --strip-debug "$from/libplinth.a" "$stage_lib/libplinth.a"
chmod 644 "$stage_lib/libplinth.a"
install -m 644 include/*.h include/*.hpp include/*.cuh "$stage/include/"
install -m 644 include/plinth/*.h "$stage/include/plinth/"
install -m 644 LICENSE-MIT LICENSE-APACHE licenses/THIRD-PARTY.txt "$stage/share/licenses/plinth/"
install -m 644 licenses/plinth.cdx.json "$stage/share/doc/plinth/"

# The path from the library folder up to the prefix: one .. for each part of the folder's name.
up=$(sed -E 's|[^/]+|..|g' <<<"$libdir")
fill() {
    sed -e "s|@VERSION@|$version|g" -e "s|@SONAME@|$soname|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@UP@|$up|g" \
        -e "s|@SYSTEM_LIBRARIES@|$(cat cmake/system-libraries.txt)|g" "$1" >"$2"
    chmod 644 "$2"
}
fill cmake/plinth.pc.in "$stage_lib/pkgconfig/plinth.pc"
fill cmake/plinthConfig.cmake.in "$stage_lib/cmake/plinth/plinthConfig.cmake"
fill cmake/plinthConfigVersion.cmake.in "$stage_lib/cmake/plinth/plinthConfigVersion.cmake"

if [ -n "$destdir" ]; then
    tools/install_tree.sh "$stage" "$root"
    echo "installed plinth $version under $root"
    exit
fi
tools/install_tree.sh "$stage" "$root" --list
echo "installed plinth $version under $root"

if searched "$lib"; then
    if [ "$(id -u)" = 0 ]; then
        ldconfig
        echo "updated the loader's cache with ldconfig"
    else
        echo "run \`sudo ldconfig\`, so that the loader finds the library"
    fi
else
    echo "the loader does not search $lib: link with -Wl,-rpath,$lib or set LD_LIBRARY_PATH=$lib (docs/linking.md)"
fi
