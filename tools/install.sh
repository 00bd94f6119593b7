#!/usr/bin/env bash
# Installs a built plinth: libraries, headers, CMake package, pkg-config file, licences. `make install` and
# `cmake --install` call it. The installed tree can be moved, because it contains no absolute path.
set -euo pipefail
cd "$(dirname "$0")/.."

from=target/release prefix=/usr/local libdir=lib destdir=
while [ $# -gt 0 ]; do
    case $1 in
    --from) from=$2 ;;
    --prefix) prefix=$2 ;;
    --libdir) libdir=$2 ;; # below the prefix: lib, lib64, lib/x86_64-linux-gnu
    --destdir) destdir=$2 ;;
    *)
        echo "usage: install.sh [--from FOLDER] [--prefix FOLDER] [--libdir NAME] [--destdir FOLDER]" >&2
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

version=$(tools/version.sh)
soname=$(readelf -d "$from/libplinth.so" | sed -nE 's/.*Library soname: \[(.*)\]/\1/p')
root=$destdir$prefix
lib=$root/$libdir

install -d "$lib/cmake/plinth" "$lib/pkgconfig" "$root/include/plinth" "$root/share/licenses/plinth"
install -m 755 "$from/libplinth.so" "$lib/libplinth.so.$version"
ln -sf "libplinth.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libplinth.so"
# rustc puts its bitcode next to the machine code, which it exceeds seven times in size. C linkers do not use it.
objcopy --remove-section=.llvmbc --remove-section=.llvmcmd --strip-debug "$from/libplinth.a" "$lib/libplinth.a"
chmod 644 "$lib/libplinth.a"
install -m 644 include/*.h include/*.hpp include/*.cuh "$root/include/"
install -m 644 include/plinth/*.h "$root/include/plinth/"
install -m 644 LICENSE-MIT LICENSE-APACHE "$root/share/licenses/plinth/"

# The path from the library folder up to the prefix: one .. for each part of the folder's name.
up=$(sed -E 's|[^/]+|..|g' <<<"$libdir")
fill() {
    sed -e "s|@VERSION@|$version|g" -e "s|@SONAME@|$soname|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@UP@|$up|g" \
        -e "s|@SYSTEM_LIBRARIES@|$(cat cmake/system-libraries.txt)|g" "$1" >"$2"
    chmod 644 "$2"
}
fill cmake/plinth.pc.in "$lib/pkgconfig/plinth.pc"
fill cmake/plinthConfig.cmake.in "$lib/cmake/plinth/plinthConfig.cmake"
fill cmake/plinthConfigVersion.cmake.in "$lib/cmake/plinth/plinthConfigVersion.cmake"
echo "installed plinth $version under $root"
