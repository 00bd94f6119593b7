#!/usr/bin/env bash
# Does what a new user does on a minimal Debian, as a user without rights and as one with sudo: `run.sh FOLDER`, where FOLDER
# has the release library, which takes the place of the one that they would build. Exits with 77 and a reason where no
# minimal Debian can be made: see tools/bare_root.sh. `make test-newcomer` calls it.
# shellcheck disable=SC2016 # the users' shells expand the commands
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${BARE_ROOT:-}" ]; then
    exec tools/bare_root.sh with "$PWD/tests/newcomer/run.sh" "$1"
fi
library=$1
version=$(tools/version.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/package/consumers.sh
. tests/package/consumers.sh

as() { tools/bare_root.sh as "$@"; }

# Runs commands as a user; they must fail, and their whole output must be one line that matches a pattern:
# `refused USER COMMANDS PATTERN`. The line stays in $work/log.
refused() {
    if as "$1" "$2" || as "$1" 'ls -d target/release target/debug 2>/dev/null'; then
        echo "the command succeeded, or built something"
        return 1
    fi
    # make adds its own line.
    grep -v '^make: ' "$work/log" >"$work/line"
    [ "$(wc -l <"$work/line")" = 1 ] && grep -E "$3" "$work/line"
}

# Prints the packages that the last refused command asks for.
asked() { sed -nE 's/.*\(apt-get install (.*)\)$/\1/p' "$work/line"; }

# Gives a user the library that `make build` would build.
build_for() {
    local folder=$BARE_ROOT/home/$1/plinth/target/release
    mkdir -p "$folder"
    cp "$library/libplinth.so" "$library/libplinth.a" "$folder/"
    tools/soname_link.sh "$folder"
    chroot "$BARE_ROOT" chown -R "$1:" "/home/$1/plinth/target"
}

listing() { (cd "$BARE_ROOT/$1" && find . -printf '%P %y %m %u %l\n' | sort); }

# Builds and starts programs as a user: `programs USER PREFIX`.
programs() {
    as "$1" "export PLINTH_DEVICE=host work=\$PWD/target/programs; rm -rf \$work; mkdir \$work
        . tests/package/consumers.sh; consumers '$2' $version"
}

rust='Rust [0-9.]+ or newer'
step "without rights and Rust: demo names all tools" refused user 'HOME=/nowhere PATH=/usr/bin:/bin make demo' \
    "lacks $rust \(not found; .*rustup.*\), Debian's packages g\+\+ libc6-dev \(apt-get install g\+\+ libc6-dev\)"
as user 'mkdir ~/old; for tool in cargo rustc; do echo "echo $tool 1.63.0" >~/old/$tool; chmod +x ~/old/$tool; done'
step "with an old Rust: demo names rustup" refused user 'PATH=~/old:$PATH make demo' "lacks $rust \(.*/old/cargo are of 1.63.0; .*rustup"
step "without rights: demo names the packages" refused user 'make demo' 'lacks Debian.s packages g\+\+ libc6-dev'
packages=$(asked)
step "without rights: test names the packages of all steps" refused user 'make test' \
    'lacks Debian.s packages .*clang .*cmake .*doxygen .*g\+\+ .*shellcheck'
step "root installs the packages of the demo" as root \
    "apt-get -o Acquire::Retries=3 update -q && DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -y -q --no-install-recommends $packages"
step "with sudo: missing packages are installed" as admin \
    'tools/bootstrap.sh cmake pkg-config && command -v cmake pkg-config'
step "nothing built: install says what to do" refused admin 'sudo make install' 'run `make build` first'

build_for user
build_for admin
step "without rights: demo" as user 'make -o build demo'
step "without rights: the system's folders are refused" as user \
    'if make install >out 2>&1; then exit 1; fi; grep "use .sudo make install., or choose another PREFIX" out'

# In a folder of the user's.
step "install to a prefix" as user \
    'make install PREFIX=$HOME/prefix >out; grep -e "-Wl,-rpath,$HOME/prefix/lib or set LD_LIBRARY_PATH=$HOME/prefix/lib" out'
programs user /home/user/prefix
step "with an rpath" as user \
    'gcc -std=c99 tests/package/c/main.c $(PKG_CONFIG_PATH=~/prefix/lib/pkgconfig pkg-config --cflags --libs plinth) \
        -Wl,-rpath,$HOME/prefix/lib -o target/with-rpath; PLINTH_DEVICE=host target/with-rpath'
as user 'mv ~/prefix ~/moved'
programs user /home/user/moved
step "a program from before the move" as user 'LD_LIBRARY_PATH=~/moved/lib PLINTH_DEVICE=host target/with-rpath'
step "uninstall" as user 'make uninstall PREFIX=$HOME/moved; [ ! -e ~/moved ]'

# In the system's folders.
before=$(listing usr/local)
step "root has no cargo" as admin '! sudo sh -c "command -v cargo"'
step "sudo make install" as admin 'sudo make install >out; grep "updated the loader.s cache" out'
programs user ''
step "sudo make uninstall" as admin 'sudo make uninstall'
step "uninstall leaves what was there before" [ "$(listing usr/local)" = "$before" ]
step "uninstall updates the loader's cache" as admin '! /sbin/ldconfig -p | grep plinth'
echo "newcomer: all tests passed"
