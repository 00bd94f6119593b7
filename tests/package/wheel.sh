#!/usr/bin/env bash
# Tests the wheel: `tests/package/wheel.sh WHEEL`. Checks what is in it, makes it again, installs it without a network
# into an empty environment of each Python 3.10 to 3.14 that is here, and runs the unit tests, the tool and C programs there.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
wheel=$(realpath "$1")
target=$(realpath "${CARGO_TARGET_DIR:-target}")
tools=$target/tools/wheel/bin
version=$(tools/version.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PLINTH_LIBRARY PYTHONPATH
export PLINTH_DEVICE=host PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

fail() {
    echo "FAIL  wheel: $*" >&2
    exit 1
}
ok() { echo "ok    wheel: $*"; }

# Runs a command, and shows its output only if it fails.
quiet() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && fail "$*"; }
}

# ---- what is in it

"$tools/auditwheel" show "$wheel" >"$work/log"
minor=$(tr '\n' ' ' <"$work/log" | sed -nE 's/.*following platform tag: +"manylinux_2_([0-9]+)_.*/\1/p')
[ "${minor:-99}" -le 28 ] || { cat "$work/log" && fail "it needs a newer C library than that of manylinux_2_28"; }
ok "auditwheel: manylinux_2_$minor"
quiet "$tools/twine" check --strict "$wheel"
quiet "$tools/check-wheel-contents" --config python/pyproject.toml "$wheel"
ok "twine, check-wheel-contents"

mkdir "$work/unpacked" "$work/again"
python3 -m zipfile -e "$wheel" "$work/unpacked"
# auditwheel knows the versions of symbols only. The linker gives none to a function that an old C library lacks.
for file in "$work/unpacked/plinth/lib/"libplinth.so.* "$work/unpacked/plinth/bin/plinth"; do
    missing=$(nm -D --undefined-only "$file" | awk '$1 == "U" && $2 !~ /@/ { print $2 }')
    [ -z "$missing" ] || fail "$(basename "$file") needs functions that glibc 2.28 lacks: $missing"
done
if grep -rlF -e "$root" "$work/unpacked"; then
    fail "these files contain the path of the build"
fi
built=$target/wheel
quiet packaging/wheel.sh --from "$built/library/x86_64-unknown-linux-gnu/release" \
    --tool "$built/tool/x86_64-unknown-linux-gnu/release/plinth" --out "$work/again"
cmp "$wheel" "$work/again/"*.whl
ok "the same files again yield the same wheel"

# ---- installed

mkdir "$work/wheels"
cp "$wheel" "$work/wheels"
# Another package with this name, as there is one on PyPI.
mkdir -p "$work/other/plinth"
echo 'raise ImportError("the other package")' >"$work/other/plinth/errors.py"
touch "$work/other/plinth/__init__.py"
cat >"$work/other/pyproject.toml" <<'END'
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "plinth"
version = "0.0.9"
END
quiet env -C "$work/other" "$tools/python" -m hatchling build -t wheel -d "$work/wheels"

pythons=0
for python in python3 python3.{10..14}; do
    # A manager of Python versions has commands that do not work.
    minor=$("$python" -c 'import sys, venv, ensurepip; print(sys.version_info.minor)' 2>/dev/null) || continue
    [ "$minor" -ge 10 ] || continue
    name="Python 3.$minor"
    [ ! -d "$work/$name" ] || continue
    pythons=$((pythons + 1))
    environment=$work/$name bin=$work/$name/bin
    "$python" -m venv "$environment"
    pip=("$bin/python" -m pip)
    quiet "${pip[@]}" install --no-index --find-links "$work/wheels" libplinth
    quiet env -C "$work" "$bin/python" -m unittest discover -s "$root/tests/python"
    tests=$(sed -nE 's/^Ran (.*) in .*/\1/p' "$work/log")
    [ "$("$bin/plinth" --version)" = "plinth $version" ] || fail "$name: plinth --version"
    "$bin/python" -m plinth info >"$work/log"
    grep -q 'host device' "$work/log" || { cat "$work/log" && fail "$name: python -m plinth info"; }
    ok "$name: the unit tests ($tests) and the tool"
done
[ $pythons -gt 0 ] || fail "there is no Python 3.10 or newer that can make environments"

# ---- C programs

folder=$("$bin/python" -c 'import pathlib, plinth; print(pathlib.Path(plinth.__file__).parent)')
mkdir -p "$work/project/c"
cp tests/package/c/main.c "$work/project/c"
cp tests/package/consumer.h "$work/project"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(consumer LANGUAGES C)
find_package(plinth REQUIRED CONFIG)
add_executable(consumer c/main.c)
target_link_libraries(consumer PRIVATE plinth::plinth)
END
quiet cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$folder"
quiet cmake --build "$work/build"
quiet "$work/build/consumer"
flags=$(PKG_CONFIG_PATH="$folder/lib/pkgconfig" pkg-config --cflags --libs plinth)
eval "gcc -std=c99 tests/package/c/main.c -o '$work/program' $flags"
quiet env LD_LIBRARY_PATH="$folder/lib" "$work/program"
ok "C programs by CMake and pkg-config"

# ---- another package with this name

message="the package plinth 0.0.9, which is unrelated to libplinth"
quiet "${pip[@]}" install --no-index --find-links "$work/wheels" plinth
if "$bin/plinth" --version >"$work/log" 2>&1; then fail "the command works with the other package installed over it"; fi
grep -qF "$message" "$work/log" || { cat "$work/log" && fail "the command does not name the other package"; }
quiet "${pip[@]}" install --no-index --find-links "$work/wheels" --force-reinstall libplinth
if "$bin/python" -c 'import plinth' >"$work/log" 2>&1; then fail "import plinth works with the other package below it"; fi
grep -qF "$message" "$work/log" || { cat "$work/log" && fail "import plinth does not name the other package"; }
quiet "${pip[@]}" uninstall -y plinth libplinth
quiet "${pip[@]}" install --no-index --find-links "$work/wheels" libplinth
"$bin/python" -c 'import plinth'
ok "another package plinth is named, and the advice of the message works"

quiet "${pip[@]}" uninstall -y libplinth
left=$(find "$environment" -name '*plinth*')
[ -z "$left" ] || fail "left after it was removed: $left"
ok "removed without a file left"
