#!/usr/bin/env bash
# Tests the Debian packages on a minimal Debian: `tests/package/debian.sh FOLDER`. Installs them, builds programs with
# CMake and pkg-config and starts them, starts the tool, and removes everything. Exits with 77 and a reason where no minimal
# Debian can be made.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${BARE_ROOT:-}" ]; then
    exec tools/bare_root.sh with "$PWD/tests/package/debian.sh" "$(realpath "$1")"
fi

log=$BARE_ROOT/log
# Runs commands as a user of the minimal Debian, and shows their output only if they fail.
step() {
    local what=$1
    if ! tools/bare_root.sh as "$2" "$3" >"$log" 2>&1; then
        cat "$log"
        echo "FAIL  Debian packages: $what" >&2
        exit 1
    fi
    echo "ok    Debian packages: $what"
}
# Prints all files but those that programs write in passing.
files() {
    find "$BARE_ROOT" -xdev \( -path "$BARE_ROOT/home" -o -path "$BARE_ROOT/var/cache" -o -path "$BARE_ROOT/var/log" \
        -o -path "$BARE_ROOT/var/lib/dpkg" -o -path "$BARE_ROOT/var/lib/apt" -o -path "$BARE_ROOT/log" \) -prune -o -print | sort
}
install='apt-get -o Acquire::Retries=3 install -y -q --no-install-recommends'

mkdir "$BARE_ROOT/packages"
cp "$1"/*.deb "$BARE_ROOT/packages/"
step "tools of the test" root "apt-get -o Acquire::Retries=3 update -q && $install cmake g++ pkg-config"
before=$(files)

step "the library and its development files install" root "$install /packages/libplinth*.deb"
# A clone of the project is in the user's folder; only the test programs in it are used.
for language in c cpp; do
    step "CMake, $language, shared and static" user "
        export PLINTH_DEVICE=host
        cmake -S tests/package/$language -B ~/build-$language
        cmake --build ~/build-$language
        cd ~/build-$language
        ctest --output-on-failure"
done
# The commands of docs/linking.md; the other machine's shell expands them.
# shellcheck disable=SC2016
{
    step "pkg-config, shared" user '
        cc tests/package/c/main.c -o ~/shared $(pkg-config --cflags --libs plinth)
        PLINTH_DEVICE=host ~/shared'
    step "pkg-config, static" user '
        cc tests/package/c/main.c -o ~/static $(pkg-config --cflags --libs --static plinth | sed s/-lplinth/-l:libplinth.a/)
        PLINTH_DEVICE=host ~/static
        ! readelf -d ~/static | grep "NEEDED.*libplinth"'
}

step "the development files are removed" root 'apt-get purge -y -q libplinth-dev'
step "a program needs the library only" user 'PLINTH_DEVICE=host ~/shared'
step "the tool installs" root "$install /packages/plinth-tools*.deb"
step "the tool shows the host device" user 'PLINTH_DEVICE=host plinth info | grep "host device"'

step "everything is removed" root 'apt-get purge -y -q "libplinth*" plinth-tools'
step "nothing is left in the loader's cache" user '! /sbin/ldconfig -p | grep libplinth && ! PLINTH_DEVICE=host ~/shared'
if ! diff <(echo "$before") <(files); then
    echo "FAIL  Debian packages: these files were left" >&2
    exit 1
fi
echo "ok    Debian packages: no file is left"
