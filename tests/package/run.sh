#!/usr/bin/env bash
# Installs plinth, moves the tree, and builds programs with it, in C and C++, shared and static, with CMake and pkg-config:
# `tests/package/run.sh FOLDER [--sources]`, where FOLDER has the built libraries. --sources also tests add_subdirectory and
# FetchContent, which build the release profile. `make package` calls it.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
library=$(realpath "$1")
sources=${2:-}
target=$(realpath "${CARGO_TARGET_DIR:-target}")
work=$target/package
export PLINTH_DEVICE=${PLINTH_DEVICE:-host}
rm -rf "$work"
mkdir -p "$work"

# Runs a command, and shows its output only if it fails. (set -e has no effect in a function that is called in a condition.)
step() {
    local what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok    $what"
    else
        cat "$work/log"
        echo "FAIL  $what: $*"
        exit 1
    fi
}

refused() {
    if "$@"; then
        echo "the command succeeded, but should fail"
        return 1
    fi
    # The reason must be the version.
    grep -qF "version: $version" "$work/log"
}

version=$(tools/version.sh)
IFS=. read -r major minor patch <<<"$version"

# Install to a prefix that does not exist after the move.
step "install" tools/install.sh --from "$library" --prefix /nowhere --destdir "$work/stage"
step "install, other library folder" \
    tools/install.sh --from "$library" --prefix /nowhere --libdir lib/x86_64-linux-gnu --destdir "$work/stage2"
mv "$work/stage/nowhere" "$work/moved"
mv "$work/stage2/nowhere" "$work/moved2"
rmdir "$work/stage" "$work/stage2"
if grep -rIl -e nowhere -e "$root" "$work/moved" "$work/moved2"; then
    echo "FAIL  these files contain the path of the installation"
    exit 1
fi
for file in "lib/libplinth.so.$version" lib/libplinth.a share/licenses/plinth/LICENSE-MIT \
    share/licenses/plinth/LICENSE-APACHE lib/cmake/plinth/plinthConfigVersion.cmake; do
    step "installed: $file" test -f "$work/moved/$file"
done
step "installed: the headers" diff -r include "$work/moved/include"
step "installed: the links" cmp "$work/moved/lib/libplinth.so" "$work/moved/lib/libplinth.so.$version"

# Configures, builds and runs a consumer. Arguments: its description, its folder, arguments of cmake.
cmake_consumer() {
    local what=$1 folder=$2 build
    build=$work/build-${what//[^a-zA-Z_+]/-}
    shift 2
    step "$what: configure" cmake -S "tests/package/$folder" -B "$build" "$@"
    step "$what: build" cmake --build "$build"
    step "$what: run" env -C "$build" ctest --output-on-failure
}

for language in c cpp; do
    cmake_consumer "find_package, $language" $language -DCMAKE_PREFIX_PATH="$work/moved" -DPLINTH_WANTED="$version"
done
cmake_consumer "find_package, multiarch" c -DCMAKE_PREFIX_PATH="$work/moved2"
for wanted in "$major.$((minor + 1))" "$((major + 1)).0" "$major.$minor.$((patch + 1))"; do
    step "find_package refuses $wanted" refused \
        cmake -S tests/package/c -B "$work/refused-$wanted" -DCMAKE_PREFIX_PATH="$work/moved" -DPLINTH_WANTED="$wanted"
done

# Compiles and runs a consumer with pkg-config's flags. Arguments: language, folder of plinth.pc, static or shared.
pkg_config_consumer() {
    local language=$1 tree=$2 kind=$3 source compiler program
    program=$work/pc-$language-$kind
    source=tests/package/c/main.c compiler=(gcc -std=c99)
    if [ "$language" = cpp ]; then
        source=tests/package/cpp/main.cpp compiler=(g++ -std=c++17)
    fi
    local flags
    if [ "$kind" = static ]; then
        # The linker prefers a shared library in the same folder, so the archive is specified by its file name.
        flags=$(PKG_CONFIG_PATH=$tree pkg-config --static --cflags --libs plinth)
        flags=${flags/-lplinth/-l:libplinth.a}
    else
        flags=$(PKG_CONFIG_PATH=$tree pkg-config --cflags --libs plinth)
    fi
    # shellcheck disable=SC2086 # flags are words
    "${compiler[@]}" -Wall -Wextra -Werror "$source" -o "$program" $flags &&
        LD_LIBRARY_PATH=$tree/.. "$program" || return 1
    # The program must depend on the shared library exactly if it was linked as shared.
    local linked=static
    if readelf -d "$program" | grep 'NEEDED.*libplinth' >/dev/null; then
        linked=shared
    fi
    [ "$linked" = "$kind" ]
}
for language in c cpp; do
    for kind in shared static; do
        step "pkg-config, $language, $kind" pkg_config_consumer $language "$work/moved/lib/pkgconfig" $kind
    done
done
step "pkg-config, multiarch" pkg_config_consumer c "$work/moved2/lib/x86_64-linux-gnu/pkgconfig" shared

if [ "$sources" != --sources ]; then
    echo "package: all tests passed"
    exit
fi

# From the sources; cargo's target folder is shared with the build tree.
for by in add_subdirectory FetchContent; do
    for language in c cpp; do
        cmake_consumer "$by, $language" $language -DPLINTH_BY=$by -DPLINTH_SOURCE="$root" \
            -DPLINTH_CARGO_TARGET_DIR="$target"
    done
done

# `cmake --install` of plinth's own project must install the same files as `make install`.
step "cmake --build" cmake -S . -B "$work/own" -DPLINTH_CARGO_TARGET_DIR="$target"
step "cmake --build" cmake --build "$work/own"
step "cmake --install" cmake --install "$work/own" --prefix "$work/by-cmake"
step "the two installed trees are equal" diff -r "$work/moved" "$work/by-cmake"
echo "package: all tests passed"
