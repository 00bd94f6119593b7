#!/usr/bin/env bash
# Installs the tools that a make target needs and the machine lacks: `tools/bootstrap.sh NEED...`.
# Does nothing and prints nothing if all are installed. Needs:
#   rust cc c++ clang cmake pkg-config doxygen valgrind shellcheck chromium
#   python   the packages of tools/requirements.txt, under target/tools/python
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

# One at a time: steps of the tests run side by side, and the package manager refuses a second call.
mkdir -p "$target"
exec {lock}>"$target/bootstrap.lock"
flock "$lock"

# Runs a command of Debian's package manager as root; fails if there is no way to become root.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "neither root nor sudo"
        return 1
    fi
}

apt_install() {
    local log
    log=$(mktemp)
    echo "bootstrap: installing $*"
    if ! { as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@"; } >"$log" 2>&1; then
        cat "$log"
        echo "bootstrap: cannot install packages on this machine; install them by hand (names as in Debian): $*" >&2
        exit 1
    fi
    rm "$log"
}

has() { command -v "$1" >/dev/null; }

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

# Sets `pip` to the installed pip, or to that of a temporary virtual environment. It only installs into a folder.
find_pip() {
    if python3 -m pip --version >/dev/null 2>&1; then
        pip=(python3 -m pip)
        return
    fi
    if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
        apt_install python3-venv
    fi
    python3 -m venv "$target/tools/venv"
    pip=("$target/tools/venv/bin/python" -m pip)
}

python_packages() {
    local folder=$target/tools/python
    # The list is copied after all packages were installed, so a changed list or a broken download leads to a new attempt.
    if cmp -s tools/requirements.txt "$folder/requirements.txt"; then
        return
    fi
    echo "bootstrap: installing the CUDA compiler and headers under $folder"
    mkdir -p "$target/tools"
    find_pip
    rm -rf "$folder"
    PIP_ROOT_USER_ACTION=ignore "${pip[@]}" install --quiet --disable-pip-version-check --no-deps --target "$folder" -r tools/requirements.txt
    cp tools/requirements.txt "$folder/requirements.txt"
}

packages=()
python=no
for need in "$@"; do
    case $need in
    rust)
        if ! has cargo; then
            echo "bootstrap: cargo was not found; install Rust with rustup, and open a new shell" >&2
            exit 1
        fi
        # The first call installs the toolchain that rust-toolchain.toml names.
        cargo --version >/dev/null
        ;;
    cc) compiles c gcc || packages+=(gcc libc6-dev) ;;
    c++) compiles cpp g++ || packages+=(g++ libc6-dev) ;;
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
    cmake | pkg-config | doxygen | shellcheck) has "$need" || packages+=("$need") ;;
    python) python=yes ;;
    *)
        echo "bootstrap: unknown need '$need'; see the list in tools/bootstrap.sh" >&2
        exit 2
        ;;
    esac
done
if [ ${#packages[@]} -gt 0 ]; then
    apt_install "${packages[@]}"
fi

if [ $python = yes ]; then
    python_packages
fi
