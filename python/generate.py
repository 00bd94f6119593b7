#!/usr/bin/env python3
"""Writes python/plinth/_bindings.py from the headers: `generate.py --write`. Without it, checks that the file is current.

The headers are preprocessed by gcc, without those of the system, and parsed by pycparser (python/requirements.txt).
`make bindings` installs pycparser and writes the file; `make abi` checks it.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

from pycparser import c_ast, c_parser

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "python" / "plinth" / "_bindings.py"

# C's types that ctypes has.
SCALARS = {"size_t": "c_size_t", "ptrdiff_t": "c_ssize_t", "uintptr_t": "c_size_t", "char": "c_char", "int": "c_int", "unsigned int": "c_uint",
           "long long": "c_longlong", "unsigned long long": "c_ulonglong", "float": "c_float", "double": "c_double",
           "_Bool": "c_bool", "void": "None"}
SCALARS |= {f"{sign}int{bits}_t": f"c_{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

# What the headers use of the system's headers.
SYSTEM = {
    "stdbool.h": "#define bool _Bool\n#define true 1\n#define false 0\n",
    "stddef.h": "typedef unsigned long long size_t;\ntypedef long long ptrdiff_t;\n#define NULL 0\n#define offsetof __builtin_offsetof\n",
    "stdint.h": "".join(f"typedef int {name};\n" for name in SCALARS if re.match(r"u?int.*_t$", name))
                + "#define INT64_MIN (-9223372036854775807 - 1)\n",
}

HEAD = '''"""The C API of plinth for ctypes: types, constants and functions by their C names.

Written by python/generate.py from include/plinth/*.h; changes made here are lost. `make bindings` writes it anew.

- A handle, a stream and any `void *` is a c_void_p, and a text a c_char_p. A stream may be an integer; None is NULL.
- A struct with a PLINTH_..._INIT macro has a class method init(), which returns a struct with the macro's values. It is
  INIT() where the struct has a field `init`.
- The type of a callback is called with a Python function. Keep the result for as long as C may call it. Without an
  argument, as in plinth_log_callback_t(), it is NULL.
- PROTOTYPES maps a function's name to its result and the types of its parameters.
"""

'''


def preprocess(text, *options):
    """Preprocesses a C source with plinth's headers and the above instead of the system's."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in SYSTEM.items():
            pathlib.Path(folder, name).write_text(content)
        command = ["gcc", "-E", "-P", "-std=c11", "-nostdinc", f"-I{ROOT / 'include'}", f"-I{folder}",
                   "-D__attribute__(x)=", *options, "-"]
        return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def value_of(node):
    """Returns the value of a constant expression: an int, a float, a list of values, or Python source for a sizeof."""
    match node:
        case c_ast.Constant(type="double" | "float"):
            return float(node.value)
        case c_ast.Constant():
            return int(node.value.rstrip("uUlL"), 0)
        case c_ast.UnaryOp(op="-"):
            return -value_of(node.expr)
        case c_ast.UnaryOp(op="sizeof"):
            return "sizeof(cls)"
        case c_ast.BinaryOp(op="-"):
            return value_of(node.left) - value_of(node.right)
        case c_ast.BinaryOp(op="|"):
            return value_of(node.left) | value_of(node.right)
        case c_ast.Cast():
            return value_of(node.expr)
        case c_ast.InitList():
            return [value_of(item) for item in node.exprs]
    sys.exit(f"generate.py: cannot evaluate {node}")


class Generator:
    """Makes Python source from the declarations of the headers, in their order."""

    def __init__(self, initializers):
        self.initializers = initializers  # by the struct's name, a list of values
        self.complete = set()  # structs and unions with fields
        self.handles = set()  # typedefs of pointers to structs without fields
        self.lines = []
        self.prototypes = []

    def type_of(self, node):
        """Returns the ctypes source of a type."""
        match node:
            case c_ast.TypeDecl() | c_ast.Typename():
                return self.type_of(node.type)
            case c_ast.IdentifierType():
                name = " ".join(node.names)
                return SCALARS.get(name, "c_void_p" if name in self.handles else name)
            case c_ast.Struct() | c_ast.Union():
                return node.name if node.name in self.complete else "None"
            case c_ast.ArrayDecl():
                return f"{self.type_of(node.type)} * {value_of(node.dim)}"
            case c_ast.FuncDecl():
                parameters = [self.type_of(parameter) for _, parameter in self.parameters(node)]
                return f"CFUNCTYPE({', '.join([self.type_of(node.type), *parameters])})"
            case c_ast.PtrDecl(type=c_ast.FuncDecl()):
                return self.type_of(node.type)
            case c_ast.PtrDecl():
                target = self.type_of(node.type)
                return {"None": "c_void_p", "c_char": "c_char_p"}.get(target, f"POINTER({target})")
        sys.exit(f"generate.py: unknown type {node}")

    @staticmethod
    def parameters(node):
        """Returns the names and types of a function's parameters."""
        declared = [(item.name, item.type) for item in node.args.params] if node.args else []
        return [] if declared and declared[0][0] is None else declared  # (void)

    def add_struct(self, node):
        """Adds a struct or union with fields."""
        kind = type(node).__name__.replace("Struct", "Structure")
        fields = []
        for field in node.decls:
            if isinstance(field.type, c_ast.TypeDecl) and isinstance(field.type.type, (c_ast.Struct, c_ast.Union)):
                inner = field.type.type
                if inner.decls and inner.name not in self.complete:
                    inner.name = inner.name or f"{node.name}_{field.name}"
                    self.add_struct(inner)
            fields.append((field.name, self.type_of(field.type)))
        self.complete.add(node.name)
        self.lines += ["", "", f"class {node.name}({kind}):", "    _fields_ = ["]
        self.lines += [f'        ("{name}", {kind}),' for name, kind in fields]
        self.lines += ["    ]", "", ""]
        if node.name in self.initializers:
            values = zip(fields, self.initializers[node.name], strict=True)
            given = [(name, value) for (name, _), value in values if any(flat([value]))]
            text = ", ".join(f"{name}={tuple(value) if isinstance(value, list) else value}" for name, value in given)
            method = "INIT" if "init" in dict(fields) else "init"
            self.lines[-1:] = ["    @classmethod", f"    def {method}(cls):", f"        return cls({text})", "", ""]

    def add(self, node):
        """Adds a declaration."""
        match node:
            case c_ast.Typedef(type=c_ast.TypeDecl(type=c_ast.Struct() | c_ast.Union() as struct)):
                if struct.decls:
                    self.add_struct(struct)
            case c_ast.Typedef(type=c_ast.PtrDecl(type=c_ast.TypeDecl(type=c_ast.Struct(name=name)))) \
                    if name not in self.complete:
                self.handles.add(node.name)
                self.lines.append(f"{node.name} = c_void_p")
            case c_ast.Typedef(name=name) if name not in SCALARS:
                self.lines.append(f"{name} = {self.type_of(node.type)}")
            case c_ast.Decl(type=c_ast.FuncDecl() as function):
                parameters = self.parameters(function)
                types = [self.type_of(kind) for _, kind in parameters]
                types = f"({types[0]},)" if len(types) == 1 else f"({', '.join(types)})"
                names = ", ".join(name for name, _ in parameters)
                self.prototypes.append(f'    "{node.name}": ({self.type_of(function.type)}, {types}),'
                                       f'  # {names}'.rstrip(" #"))


def flat(values):
    """Returns the values of nested lists."""
    return [item for value in values for item in (flat(value) if isinstance(value, list) else [value])]


def generate():
    """Returns the text of _bindings.py."""
    include = "#include <plinth.h>\n"
    macros = re.findall(r"^#define (PLINTH_\w+) \S", preprocess(include, "-dD"), re.MULTILINE)
    structs = [name for name in macros if name.endswith("_INIT")]
    others = {"PLINTH_API", "PLINTH_NOEXCEPT", "PLINTH_PHILOX_STATE_T"}
    constants = [name for name in macros if name not in others and name not in structs]
    # Macros become variables, which pycparser can read.
    program = include + "".join(f"long long {name}_ = {name};\n" for name in constants)
    program += "long long default_of = PLINTH_STREAM_DEFAULT_OF(0);\n"
    program += "".join(f"struct x {name}_ = {name};\n" for name in structs)
    declarations = c_parser.CParser().parse(preprocess(program)).ext
    values = {node.name: value_of(node.init) for node in declarations if getattr(node, "init", None)}
    generator = Generator({name.removesuffix("_INIT").lower() + "_t": values[f"{name}_"] for name in structs})
    for node in declarations:
        generator.add(node)
    lines = [f"{name} = {values[name + '_']}" for name in constants]
    lines += ["", "", "def PLINTH_STREAM_DEFAULT_OF(device):", '    """Returns the name of a device\'s default stream."""',
              f"    return {hex(values['default_of'])} | (device & 0xFFFFFFFF)", "", "", *generator.lines, "", "",
              "PROTOTYPES = {", *generator.prototypes, "}", ""]
    body = re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines))
    used = set(re.findall(r"\b(c_\w+|CFUNCTYPE|POINTER|Structure|Union|sizeof)\b", body))
    names = textwrap.fill(", ".join(sorted(used)), 110, initial_indent="    ", subsequent_indent="    ")
    return f"{HEAD}from ctypes import (\n{names},\n)\n\n{body}"


def main():
    text = generate()
    if sys.argv[1:] == ["--write"]:
        OUTPUT.write_text(text)
    elif OUTPUT.read_text() != text:
        sys.exit("python/plinth/_bindings.py is not what python/generate.py makes of the headers. Run `make bindings`.")
    else:
        print("ok    python/plinth/_bindings.py is as the headers")


if __name__ == "__main__":
    main()
