#!/usr/bin/env python3
"""Compares the functions of plinth.h and of a built library with tests/abi/signatures.abi, by libabigail's abidiff.

The description has the symbol and the type of every function, and every type that a function uses. It is read from the
debugging information of a library that a C compiler makes of the headers: each declaration becomes an empty function. So
it states what a C compiler understands. (The library itself describes its functions in Rust's types, and the release has
no debugging information.) tests/header.rs generates the headers from the sources, and tests/layout.rs compares the structs
in Rust. The built library is compared as well: its symbols and its soname. Values of constants are in layout.txt.

  signatures.py --library FILE   compares the headers and this library
  signatures.py --write          rewrites the description from the headers (`make layout`)
  signatures.py --self-test      changes copies of the headers, and expects that each change is reported

--compiler NAME uses another C compiler, for example of another architecture.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DESCRIPTION = ROOT / "tests" / "abi" / "signatures.abi"

# Changes that break programs: what is changed, the header, a pattern, its replacement, and a part of abidiff's report.
CHANGES = [
    ("the type of a parameter", "event.h", r"plinth_event_create\(uint32_t flags", "plinth_event_create(uint64_t flags",
     "type size changed from 32 to 64"),
    ("an added parameter", "event.h", r"plinth_event_create\(uint32_t flags,",
     "plinth_event_create(uint32_t flags, int more,", "parameter 3"),
    ("the type of a result", "event.h", r"plinth_status_t plinth_event_destroy\(", "bool plinth_event_destroy(",
     "return type changed"),
    ("a removed function", "event.h", r"PLINTH_API\s+\w+ plinth_event_destroy\([^;]*;", "",
     "[D] 'function plinth_status_t plinth_event_destroy("),
    ("an added function", "event.h", r"(PLINTH_API\s+\w+) plinth_event_destroy(\([^;]*;)",
     r"\g<0>\n\1 plinth_event_added\2", "[A] 'function plinth_status_t plinth_event_added("),
    ("an added field", "memory.h", r"typedef struct plinth_pointer_attributes_t \{.*?size_t struct_size;",
     r"\g<0> int64_t added;", "'int64_t added'"),
    ("the order of fields", "memory.h", r"int32_t kind;(.*?)void \*device_pointer;", r"void *device_pointer;\1int32_t kind;",
     "offset changed"),
    ("a parameter of a callback", "log.h", r"\(\*plinth_log_callback_t\)\(", "(*plinth_log_callback_t)(int64_t added, ",
     "parameter 1"),
    ("the soname", "base.h", r"#define PLINTH_VERSION_MINOR \d+", "#define PLINTH_VERSION_MINOR 99", "SONAME changed"),
]


def stand_in(include, compiler, folder):
    """Compiles a library that has an empty function for every declaration of the headers, and returns its path."""
    copy = folder / "include"
    shutil.copytree(include, copy)
    base = copy / "plinth" / "base.h"
    # Every declaration ends with this macro.
    text, count = re.subn(r"^#define PLINTH_NOEXCEPT$", "#define PLINTH_NOEXCEPT { __builtin_trap(); }", base.read_text(),
                          flags=re.MULTILINE)
    if count != 1:
        sys.exit("signatures.py: plinth/base.h does not define PLINTH_NOEXCEPT for C as expected")
    base.write_text(text)
    major, minor = (re.search(rf"#define PLINTH_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR"))
    soname = f"libplinth.so.0.{minor}" if major == "0" else f"libplinth.so.{major}"
    source, library = folder / "functions.c", folder / "libplinth.so"
    source.write_text("#include <plinth.h>\n")
    # Relative names, because the description has that of the source.
    subprocess.run([compiler, "-std=c11", "-g", "-shared", "-fPIC", "-Iinclude", source.name, "-o", library.name,
                    f"-Wl,-soname,{soname}"], check=True, cwd=folder)
    return library


def differences(library):
    """Returns abidiff's report, or an empty text if the library's ABI is the description's."""
    done = subprocess.run(["abidiff", "--no-architecture", DESCRIPTION, library], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    # Bit 0: an error; bit 1: wrong usage; bit 2: a difference; bit 3: a difference that breaks programs.
    if done.returncode & 3:
        sys.exit(f"abidiff failed with status {done.returncode}: {done.stdout}")
    return done.stdout if done.returncode else ""


def compare(fact, library):
    report = differences(library)
    if report:
        sys.exit(f"{report}\nFAIL  {fact}: not as in tests/abi/signatures.abi. Removed or changed functions and types\n"
                 "break programs that were compiled before; added ones do not. If it is intended, run `make layout`.")
    print(f"ok    {fact}: as in tests/abi/signatures.abi")


def write(compiler):
    with tempfile.TemporaryDirectory() as folder:
        library = stand_in(ROOT / "include", compiler, pathlib.Path(folder))
        # Nothing that differs from machine to machine. Names of types instead of numbers keep differences small.
        subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed",
                        "--type-id-style", "hash", "--out-file", DESCRIPTION, library], check=True)


def self_test(compiler):
    for what, header, pattern, replacement, expected in CHANGES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            include = folder / "changed"
            shutil.copytree(ROOT / "include", include)
            path = include / "plinth" / header
            text, count = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.DOTALL)
            if count != 1:
                sys.exit(f"FAIL  self-test, {what}: plinth/{header} has no {pattern}")
            path.write_text(text)
            report = differences(stand_in(include, compiler, folder))
            if expected not in report:
                sys.exit(f"FAIL  self-test, {what}: abidiff reports {report or 'no difference'!r}, without {expected!r}")
        print(f"ok    reported: {what}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--compiler", default="gcc")
    options = parser.parse_args()
    if options.write:
        write(options.compiler)
        return
    if options.self_test:
        self_test(options.compiler)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare("the ABI of the headers", stand_in(ROOT / "include", options.compiler, pathlib.Path(folder)))
    if options.library:
        compare("the library's symbols and soname", options.library)


main()
