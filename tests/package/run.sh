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

# shellcheck source=tests/package/consumers.sh
. tests/package/consumers.sh

fails() {
    if "$@"; then
        echo "the command succeeded, but should fail"
        return 1
    fi
}

refused() {
    fails "$@" || return 1
    # The reason must be the version.
    grep -qF "version: $version" "$work/log"
}

version=$(tools/version.sh)
IFS=. read -r major minor patch <<<"$version"
soname=$(readelf -d "$library/libplinth.so" | sed -nE 's/.*Library soname: \[(.*)\]/\1/p')

# Install to a prefix that does not exist after the move.
step "install" tools/install.sh --from "$library" --prefix /nowhere --destdir "$work/stage"
step "install, other library folder" \
    tools/install.sh --from "$library" --prefix /nowhere --libdir ./lib//x86_64-linux-gnu --destdir "$work/stage2"
mv "$work/stage/nowhere" "$work/moved"
mv "$work/stage2/nowhere" "$work/moved2"
rmdir "$work/stage" "$work/stage2"
if grep -rIl -e nowhere -e "$root" "$work/moved" "$work/moved2"; then
    echo "FAIL  these files contain the path of the installation"
    exit 1
fi
for file in "lib/libplinth.so.$version" lib/libplinth.a share/licenses/plinth/LICENSE-MIT \
    share/licenses/plinth/LICENSE-APACHE share/licenses/plinth/THIRD-PARTY.txt share/doc/plinth/plinth.cdx.json \
    lib/cmake/plinth/plinthConfigVersion.cmake; do
    step "installed: $file" test -f "$work/moved/$file"
done
step "installed: the headers" diff -r include "$work/moved/include"
step "installed: the links" cmp "$work/moved/lib/libplinth.so" "$work/moved/lib/libplinth.so.$version"

# Without DESTDIR, `--uninstall` removes what was installed, also twice, and keeps what was there before.
listing() { (cd "$work/kept" && find . -printf '%P %y %m\n' | sort); }
mkdir -p "$work/kept/lib"
chmod 2775 "$work/kept/lib"
touch "$work/kept/lib/libother.so"
before=$(listing)
for round in first second; do
    step "install, $round" tools/install.sh --from "$library" --prefix "$work/kept"
    grep -qF "$work/kept/lib" "$work/log" # where the loader finds the library
done
files() { (cd "$1" && find . ! -type d ! -name manifest.txt ! -name libother.so | sort); }
step "the same files are installed" [ "$(files "$work/moved")" = "$(files "$work/kept")" ]
step "uninstall" tools/install.sh --uninstall --prefix "$work/kept"
step "uninstall leaves what was there before" [ "$(listing)" = "$before" ]
step "install, new prefix" tools/install.sh --from "$library" --prefix "$work/new prefix"
mv "$work/new prefix" "$work/renamed"
step "uninstall, moved tree" tools/install.sh --uninstall --prefix "$work/renamed"
step "uninstall removes its prefix" [ ! -e "$work/renamed" ]
# The tool is removed with the library, or alone. A stand-in writes the pages.
# shellcheck disable=SC2016 # the stand-in expands it
printf '#!/bin/sh\n[ "$1" != man-pages ] || touch "$2/plinth.1"\n' >"$work/tool"
chmod +x "$work/tool"
step "install the tool" tools/install_tool.sh --from "$work/tool" --prefix "$work/new prefix"
step "installed: the tool" cmp "$work/tool" "$work/new prefix/bin/plinth"
step "install the library beside it" tools/install.sh --from "$library" --prefix "$work/new prefix"
step "uninstall both" tools/install.sh --uninstall --prefix "$work/new prefix"
step "uninstall removes their prefix" [ ! -e "$work/new prefix" ]
step "refused: install_tool.sh --prefix relative" fails tools/install_tool.sh --from "$work/tool" --prefix relative
# The programs of another toolchain. In these places none of this machine is found.
mkdir "$work/other"
for program in bash sed cat mktemp install ln chmod rm realpath dirname grep find sort cp xargs; do
    ln -s "$(command -v $program)" "$work/other/$program"
done
step "install with READELF and OBJCOPY" env PATH="$work/other" READELF="$(command -v readelf)" OBJCOPY="$(command -v objcopy)" \
    "$(command -v bash)" tools/install.sh --from "$library" --prefix /usr --destdir "$work/other toolchain"
for arguments in "--from $work" "--uninstall --prefix $work" "--from $library --prefix relative"; do
    # shellcheck disable=SC2086 # the arguments are words
    step "refused: install.sh $arguments" fails tools/install.sh $arguments
done

consumers "$work/moved" "$version"
cmake_consumer "find_package, multiarch" c -DCMAKE_PREFIX_PATH="$work/moved2"
for wanted in "$major.$((minor + 1))" "$((major + 1)).0" "$major.$minor.$((patch + 1))"; do
    step "find_package refuses $wanted" refused \
        cmake -S tests/package/c -B "$work/refused-$wanted" -DCMAKE_PREFIX_PATH="$work/moved" -DPLINTH_WANTED="$wanted"
done

step "pkg-config, multiarch" pkg_config_consumer c "$work/moved2/lib/x86_64-linux-gnu/pkgconfig" shared

# Some package managers install one library. plinth::plinth is the static one then.
rm "$work/moved2/lib/x86_64-linux-gnu"/libplinth.so*
step "static library only: configure" \
    cmake -S packaging/test_program -B "$work/build-static-only" -DCMAKE_PREFIX_PATH="$work/moved2"
step "static library only: build" cmake --build "$work/build-static-only"
step "static library only: run" "$work/build-static-only/test_program"

component() { # NAME: looks for a component of the installation without a shared library
    printf 'cmake_minimum_required(VERSION 3.16)\nproject(component LANGUAGES C)\nfind_package(plinth REQUIRED COMPONENTS %s)\n' \
        "$1" >"$work/component/CMakeLists.txt"
    cmake -S "$work/component" -B "$work/component/build" -DCMAKE_PREFIX_PATH="$work/moved2"
}
mkdir "$work/component"
step "static library only: the component static" component static
for name in shared other; do
    step "static library only: no component $name" fails component $name
    grep -qF "no plinth of the kind $name" <(tr -s ' \n' ' ' <"$work/log")
done

# An old cargo is refused before it fails with an error about Cargo.toml.
mkdir "$work/old"
printf '#!/bin/sh\necho "cargo 1.63.0"\n' >"$work/old/cargo"
chmod +x "$work/old/cargo"
old_cargo_refused() {
    fails cmake -S . -B "$work/old/build" -DPLINTH_CARGO="$work/old/cargo" || return 1
    # CMake breaks lines.
    tr -s ' \n' ' ' <"$work/log" | grep -F "is of 1.63.0. Install Rust with rustup"
}
step "an old cargo is refused" old_cargo_refused

# With a target, as conda's Rust selects one, cargo builds into a folder of its name. The stand-in does so, and copies.
mkdir "$work/target cargo"
cat >"$work/target cargo/cargo" <<EOF
#!/usr/bin/env bash
case \$1 in --version) exec $(command -v cargo) --version ;; esac
to=\$CARGO_TARGET_DIR/\${CARGO_BUILD_TARGET:+\$CARGO_BUILD_TARGET/}
while [ \$# -gt 0 ]; do
    [ "\$1" != --target ] || to=\$CARGO_TARGET_DIR/\$2/
    shift
done
install -D -t "\${to}release" "$library/libplinth.so" "$library/libplinth.a"
EOF
chmod +x "$work/target cargo/cargo"
(
    export CARGO_BUILD_TARGET=x86_64-unknown-linux-gnu
    cmake_consumer "add_subdirectory, CARGO_BUILD_TARGET" c -DPLINTH_BY=add_subdirectory -DPLINTH_SOURCE="$root" \
        -DPLINTH_CARGO="$work/target cargo/cargo"
    step "make build, CARGO_BUILD_TARGET" \
        env PATH="$work/target cargo:$PATH" CARGO_TARGET_DIR="$work/make" make build
    step "make build, CARGO_BUILD_TARGET: the soname" test -e "$work/make/release/$soname"
)
other_processor_refused() {
    printf 'set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR other)\n' >"$work/other.cmake"
    fails cmake -S . -B "$work/other" -DCMAKE_TOOLCHAIN_FILE="$work/other.cmake" || return 1
    grep -qF "PLINTH_CARGO_TARGET is empty" "$work/log"
}
step "another processor without a target is refused" other_processor_refused
step "cmake --build, lib64" cmake -S . -B "$work/lib64" -DPLINTH_CARGO="$work/target cargo/cargo" -DCMAKE_INSTALL_LIBDIR=lib64
step "cmake --build, lib64" cmake --build "$work/lib64"
step "cmake --install, lib64" cmake --install "$work/lib64" --prefix "$work/lib64 prefix"
step "the libraries are in lib64" test -f "$work/lib64 prefix/lib64/libplinth.a"

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
step "cmake --install" env DESTDIR="$work/by-cmake" cmake --install "$work/own" --prefix /nowhere
step "the two installed trees are equal" diff -r "$work/moved" "$work/by-cmake/nowhere"
echo "package: all tests passed"
