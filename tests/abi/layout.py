#!/usr/bin/env python3
"""Compares the constants and struct layouts of plinth.h in C with tests/abi/layout.txt.

The list has the value of every constant and the size, alignment and offsets of every struct. A C program that is generated
from the header prints it, so the list is complete. A changed or removed line breaks programs that were compiled before.
`make layout` rewrites the list; tests/layout.rs compares it with the structs in Rust.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
LIST = ROOT / "tests" / "abi" / "layout.txt"

# The macros whose values are streams, and a use of each.
STREAM_NAMES = {"PLINTH_STREAM_CURRENT": "PLINTH_STREAM_CURRENT", "PLINTH_STREAM_DEFAULT_OF": "PLINTH_STREAM_DEFAULT_OF(1)"}


def declarations(header):
    """Returns the constants, the complete structs with their fields, and the other types of the header."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    constants = re.findall(r"^#define (PLINTH_\w+) +(?:[-(]*\d|INT64_)", text, re.MULTILINE)
    structs = {}
    for name, body in re.findall(r"^typedef struct (\w+) \{(.*?)^\} \1;", text, re.MULTILINE | re.DOTALL):
        fields = [re.fullmatch(r".*?\(\*(\w+)\)\(.*\)|.*?(\w+)(\[\w+\])*", line.strip(), re.DOTALL)
                  for line in body.split(";")[:-1]]
        structs[name] = [field[1] or field[2] for field in fields]
    others = re.findall(r"^typedef [^{;]*?\(?\*?\b(plinth_\w+_t)\b[^;{]*;", text, re.MULTILINE)
    return constants, structs, [name for name in others if name not in structs]


def check_complete(header, constants, structs):
    """Checks that the patterns above found every constant and struct of the header."""
    exceptions = {"PLINTH_API", "PLINTH_NOEXCEPT", "PLINTH_PHILOX_STATE_T"}
    exceptions |= set(re.findall(r"^#ifndef (PLINTH_\w*H)$", header, re.MULTILINE))  # include guards
    defined = set(re.findall(r"^#define (\w+)", header, re.MULTILINE)) - exceptions
    missed = {name for name in defined - set(constants) - set(STREAM_NAMES) if not name.endswith("_INIT")}
    if missed or len(re.findall(r"^\} \w+;", header, re.MULTILINE)) != len(structs):
        sys.exit(f"layout.py cannot parse all of plinth.h: missed {sorted(missed)}, found structs {sorted(structs)}")


def program(constants, structs, others):
    """Returns the C program that prints the list."""
    lines = ["#include <plinth.h>", "#include <stdio.h>", "int main(void) {"]
    for name in constants:
        lines.append(f'  printf("constant {name} %lld\\n", (long long){name});')
    for name, value in STREAM_NAMES.items():
        lines.append(f'  printf("constant {value} %#llx\\n", (unsigned long long)(uintptr_t){value});')
    for name in others:
        lines.append(f'  printf("type {name} size %zu\\n", sizeof({name}));')
    for name, fields in structs.items():
        lines.append(f'  printf("struct {name} size %zu align %zu\\n", sizeof({name}), _Alignof({name}));')
        for field in fields:
            size = f"sizeof((({name} *)0)->{field})"
            lines.append(f'  printf("field {name}.{field} offset %zu size %zu\\n", offsetof({name}, {field}), {size});')
        # An initializer with too many or too few values does not compile here.
        initializer = name.removesuffix("_t").upper() + "_INIT"
        lines += [f"#ifdef {initializer}", f"  {{ {name} value = {initializer}; (void)value; }}", "#endif"]
    return "\n".join(lines + ["  return 0;", "}", ""])


def text(path):
    """Returns the text of a header."""
    return (INCLUDE / path).read_text()


def actual():
    """Generates the current list."""
    header = "".join(text(path) for path in re.findall(r'^#include "(.*)"', text("plinth.h"), re.MULTILINE))
    constants, structs, others = declarations(header)
    check_complete(header, constants, structs)
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
        source.write_text(program(constants, structs, others))
        subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", source, "-o", binary],
                       check=True)
        return subprocess.run([binary], check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    now = actual()
    if sys.argv[1:] == ["--write"]:
        LIST.write_text(now)
        return
    known = LIST.read_text()
    # The order of the headers does not matter: each line names its struct.
    if sorted(now.splitlines()) != sorted(known.splitlines()):
        gone = [line for line in known.splitlines() if line not in now.splitlines()]
        new = [line for line in now.splitlines() if line not in known.splitlines()]
        sys.exit("\n".join(["The layout of the headers differs from tests/abi/layout.txt. If that is intended, run `make layout`."]
                           + [f"- {line}" for line in gone] + [f"+ {line}" for line in new]))
    print(f"ok    constants and layouts: {len(now.splitlines())} lines as in tests/abi/layout.txt")


main()
