#!/usr/bin/env python3
"""Checks the built libraries: `tests/abi/binary.py FOLDER [--release]`. Prints a line for each check; stops at a failure.

--release adds the checks for the release profile: the size, stripped symbols, and the system libraries.
"""

import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 6_000_000
# Libraries that every program loads: the C library, its loader, and gcc's unwinder.
ALLOWED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libgcc_s.so.1"}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def expect(fact, actual, expected):
    if actual != expected:
        if isinstance(actual, set):
            sys.exit(f"FAIL  {fact}: unexpected {sorted(actual - expected)}, missing {sorted(expected - actual)}")
        sys.exit(f"FAIL  {fact}: {actual} instead of {expected}")
    print(f"ok    {fact}")


def check_library(library, version):
    symbols = {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    expect("the exports are those of tests/symbols.txt", symbols, set((ROOT / "tests/symbols.txt").read_text().split()))
    expect("every export begins with plinth_", [name for name in symbols if not name.startswith("plinth_")], [])

    dynamic = output("readelf", "-d", library)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    loader = {name for name in needed if name.startswith("ld-linux")}
    expect("it needs only libraries of the system", sorted(needed - ALLOWED - loader), [])
    expect("it has no RPATH or RUNPATH", re.findall(r"\((?:RPATH|RUNPATH)\).*", dynamic), [])
    major, minor, _ = version.split(".")
    soname = f"libplinth.so.0.{minor}" if major == "0" else f"libplinth.so.{major}"
    expect(f"the soname is {soname}", re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), [soname])
    expect("it is not unloaded by dlclose", "NODELETE" in dynamic, True)
    expect("its stack is not executable", re.findall(r"GNU_STACK.*\n.* RWE", output("readelf", "-lW", library)), [])


def check_release(library):
    expect("it is stripped of symbols", ".symtab" in output("readelf", "-SW", library), False)
    size = library.stat().st_size
    expect(f"it is smaller than 6 MB: {size / 1e6:.2f} MB", size < LARGEST, True)


def check_archive(archive):
    # readelf instead of nm, because nm may pass the objects to a plug-in of another LLVM version and then find no symbols.
    symbols = set(re.findall(r"FUNC +GLOBAL +DEFAULT +\d+ (plinth_\w+)$", output("readelf", "-sW", archive), re.MULTILINE))
    expect("the static library has the same functions", symbols, set((ROOT / "tests/symbols.txt").read_text().split()))


def check_versions(library, version):
    header = (ROOT / "include/plinth/base.h").read_text()
    parts = [re.search(rf"#define PLINTH_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    expect(f"the header's version is {version}", ".".join(parts), version)

    plinth = ctypes.CDLL(str(library))
    plinth.plinth_version_string.restype = ctypes.c_char_p
    major, minor, patch = map(int, version.split("."))
    expect("plinth_version() agrees", plinth.plinth_version(), major * 10000 + minor * 100 + patch)
    expect("plinth_version_string() agrees", plinth.plinth_version_string().decode(), version)

    with tempfile.TemporaryDirectory() as folder:
        output("tools/install.sh", "--from", library.parent, "--prefix", "/p", "--destdir", folder)
        lib = pathlib.Path(folder, "p/lib")
        pc = (lib / "pkgconfig/plinth.pc").read_text()
        expect("plinth.pc agrees", re.findall(r"^Version: (.*)$", pc, re.MULTILINE), [version])
        cmake = (lib / "cmake/plinth/plinthConfigVersion.cmake").read_text()
        expect("the CMake package agrees", re.findall(r'^set\(PACKAGE_VERSION "(.*)"\)$', cmake, re.MULTILINE), [version])
        expect("the library's file name agrees", (lib / f"libplinth.so.{version}").is_file(), True)
        unfilled = [path for path in lib.rglob("*") if path.suffix in {".pc", ".cmake"} and "@" in path.read_text()]
        expect("no placeholder is left in the installed files", unfilled, [])

    changelog = ROOT / "CHANGELOG.md"
    if changelog.exists():
        versions = re.findall(r"^## \[?(\d+\.\d+\.\d+|Unreleased)", changelog.read_text(), re.MULTILINE)
        expect("CHANGELOG.md has this version", version in versions or "Unreleased" in versions, True)


def check_system_libraries(folder):
    """Compares the libraries that programs with the static library must link with those that rustc lists."""
    command = ["cargo", "rustc", "--locked", "--lib", "--crate-type", "staticlib",
               # A separate folder: in the usual one, other flags would make cargo rebuild everything.
               "--target-dir", str(folder / "system-libraries"), "--", "--print", "native-static-libs"]
    done = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    listed = re.findall(r"native-static-libs: (.*)", done.stderr)
    written = (ROOT / "cmake/system-libraries.txt").read_text().strip()
    expect("cmake/system-libraries.txt equals rustc's list", written, listed[-1] if listed else "nothing")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    version = output("tools/version.sh").strip()
    check_library(folder / "libplinth.so", version)
    check_archive(folder / "libplinth.a")
    check_versions(folder / "libplinth.so", version)
    if sys.argv[2:] == ["--release"]:
        check_release(folder / "libplinth.so")
        check_system_libraries(folder.parent)


main()
