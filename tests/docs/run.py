#!/usr/bin/env python3
# Compiles and runs the code blocks of README.md and of the pages in docs/.
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compiles and runs the code blocks of README.md and docs/*.md. Every block is of one of these kinds:

tutorial  A page with a block that has a title, such as ```c title="first.c", is a tutorial: its titled blocks are written
          to a folder, and its shell blocks run there in their order, with plinth installed in $HOME/.local, and its Python
          package in PYTHONPATH. A block of text below a shell block is the output, in which ... stands for anything. A
          comment <!-- fails --> above a shell block says that its last command fails.
fragment  Blocks of C and C++ on other pages use names that the page does not declare. tests/docs/PAGE.c, .cpp or .cu
          declares them and includes each block, numbered from 1: #include "PAGE.3.inc". The program is compiled with
          warnings as errors and runs on the host device; any plinth call that fails ends it. A .cu file is compiled by nvcc
          and does not run. Lines in the file say what else holds: "// compiled only: REASON", "// env: NAME=VALUE",
          "// headers: rmm" for RMM's headers.
checked   Python and shell blocks on other pages: the syntax, that the plinth functions named exist, that the targets of
          `make` exist. NOT_RUN says why they do not run.
text      Output, which is only shown.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FENCE = re.compile(r"^( *)(`{3,})([^`\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"<!-- (fails|not run: [^>]*) -->\s*\Z")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused"]
LANGUAGES = {"c", "cpp", "cmake", "python", "rust", "sh", "text"}

# Blocks outside of tutorials that are checked, but not run, by page and language.
NOT_RUN = {
    ("README", "sh"): "the demo and the tests; continuous integration runs both commands",
    ("CONTRIBUTING", "sh"): "the steps of the tests themselves",
    ("allocator", "sh"): "measurements, which take minutes",
    ("allocator_settings", "sh"): "./program stands for the reader's program",
    ("benchmarks", "sh"): "measurements, which take minutes",
    ("from_torch", "python"): "needs PyTorch, CuPy or RMM, and a GPU",
    ("how_to", "sh"): "./tests stands for the reader's tests",
    ("linking", "sh"): "builds and installs; tests/package/run.sh and tests/newcomer/run.sh do the same",
    ("memory_snapshot", "sh"): "measurements, which take minutes",
    ("many_machines", "python"): "a part of an example; tests/many_machines/run.py runs the example",
    ("many_machines", "sh"): "needs several machines; tests/many_machines/run.py runs the examples on two namespaces",
    ("nccl", "sh"): "needs NCCL and a GPU",
    ("nvtx", "sh"): "needs Nsight Systems and a GPU",
    ("packages", "sh"): "installs packages; tests/package/packages.sh installs each kind",
    ("pytorch", "python"): "needs PyTorch, CuPy or RMM, and a GPU",
    ("pytorch", "sh"): "needs vLLM and a GPU",
    ("python", "python"): "tests/python/test_docs.py runs it",
    ("python", "sh"): "installs the wheel; tests/package/wheel.sh does the same",
    ("sanitizer", "sh"): "./program stands for the reader's program",
    ("tool", "sh"): "builds and installs the tool; tests of crates/tool run it",
}


class Failure(Exception):
    """A block that is wrong."""


class Block:
    """A fenced code block of a page."""

    def __init__(self, page, number, match, text):
        self.page, self.number = page, number
        info = match[3].strip()
        self.language = info.split(" ")[0]
        title = re.search(r'title="([^"]*)"', info)
        self.title = title[1] if title else None
        indentation = match[1]
        self.code = "".join(line.removeprefix(indentation) for line in match[4].splitlines(keepends=True))
        self.line = text.count("\n", 0, match.start()) + 1
        directive = DIRECTIVE.search(text[: match.start()])
        self.directive = directive[1] if directive else ""
        self.name = f"{page.name}:{self.line} (block {number}, {self.language or 'no language'})"


def blocks_of(page):
    text = page.read_text()
    return [Block(page, number, match, text) for number, match in enumerate(FENCE.finditer(text), 1)]


def run(command, what, **options):
    """Runs a command, and fails with its output if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False, **options)
    if done.returncode != 0:
        raise Failure(f"{what}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def matches(expected, actual):
    """Compares lines; ... stands for any text, also over several lines."""
    pattern = r".*?".join(re.escape(part) for part in "\n".join(map(str.rstrip, expected.strip().splitlines())).split("..."))
    return re.fullmatch(pattern, "\n".join(map(str.rstrip, actual.strip().splitlines())), re.DOTALL) is not None


class Documentation:
    """The pages, what they are tested with, and the counts."""

    def __init__(self, arguments):
        self.build, self.library, self.tools = arguments.build.resolve(), arguments.library.resolve(), arguments.tools
        self.symbols = set((ROOT / "tests/symbols.txt").read_text().split())
        self.targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        self.counts, self.reasons, self.used = collections.Counter(), collections.Counter(), set()
        self.build.mkdir(parents=True, exist_ok=True)
        self.home = self.build / "home"
        # rustc is found through rustup's folders, which are in the real home.
        rustup = {"RUSTUP_HOME": str(pathlib.Path.home() / ".rustup"), "CARGO_HOME": str(pathlib.Path.home() / ".cargo")}
        self.environment = {**rustup, **os.environ, "HOME": str(self.home), "PLINTH_DEVICE": "host", "PYTHONDONTWRITEBYTECODE": "1",
                            "PLINTH_LIBRARY": str(self.home / ".local/lib/libplinth.so"), "PYTHONPATH": str(ROOT / "python")}
        run([str(ROOT / "tools/install.sh"), "--from", str(self.library), "--prefix", str(self.home / ".local")], "install")

    def count(self, kind, reason=None):
        self.counts[kind] += 1
        if reason:
            self.reasons[f"{kind}: {reason}"] += 1

    # ---- tutorials

    def tutorial(self, page, blocks):
        output = None
        with tempfile.TemporaryDirectory(dir=self.build) as folder:
            for block in blocks:
                if block.title:
                    (pathlib.Path(folder) / block.title).write_text(block.code)
                    self.count("tutorial: files that are compiled and run")
                elif block.language == "sh" and block.directive.startswith("not run: "):
                    run(["bash", "-n"], block.name, input=block.code)
                    self.count("not run", block.directive.removeprefix("not run: "))
                elif block.language == "sh":
                    output = self.shell(block, folder)
                    self.count("tutorial: shell blocks that are run")
                elif block.language == "text" and output is not None:
                    if not matches(block.code, output):
                        raise Failure(f"{block.name}: the output is different:\n{output}")
                    self.count("tutorial: outputs that are compared")
                    output = None
                else:
                    raise Failure(f"{block.name}: a block of a tutorial has a title, or is a command, or its output")

    def shell(self, block, folder):
        # Exported variables hold for the blocks below.
        code = f"[ ! -e .exported ] || . ./.exported\n{block.code}\nexport -p >.exported\n"
        done = subprocess.run(["bash", "-euo", "pipefail"], input=code, cwd=folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False)
        if (done.returncode != 0) != (block.directive == "fails"):
            raise Failure(f"{block.name}: exit status {done.returncode}\n{done.stdout}")
        return done.stdout

    # ---- fragments

    def fragments(self, page, blocks):
        included = collections.Counter()
        for source in sorted(HERE.glob(f"{page.stem}.c*")):
            numbers = [int(number) for number in re.findall(rf'#include "{page.stem}\.(\d+)\.inc"', source.read_text())]
            included.update(numbers)
            for block in blocks:
                # A #line makes the compiler's messages name the page.
                (self.build / f"{page.stem}.{block.number}.inc").write_text(f'#line {block.line + 1} "{page.name}"\n{block.code}')
            reason = self.program(source)
            for _ in numbers:
                self.count("fragment: compiled, not run" if reason else "fragment: compiled and run", reason)
        for block in blocks:
            if included[block.number] != 1:
                raise Failure(f"{block.name}: tests/docs/{page.stem}.* must include it once, as {page.stem}.{block.number}.inc")

    def program(self, source):
        """Compiles a program and runs it. Returns the reason if it is not to be run."""
        text = source.read_text()
        reason = re.search(r"^// compiled only: (.*)$", text, re.MULTILINE)
        environment = dict(re.findall(r"^// env: (\w+)=(.*)$", text, re.MULTILINE))
        output = self.build / f"{source.stem}.{source.suffix[1:]}.out"
        flags = ["-g", f"-I{self.build}", f"-I{HERE}", f"-I{ROOT / 'include'}"]
        link = [f"-L{self.library}", "-lplinth", "-lm", "-pthread", f"-Wl,-rpath,{self.library}"]
        if source.suffix == ".cu":
            run([str(self.tools / "python/nvidia/cu13/bin/nvcc"), "-std=c++17", "-arch=sm_90", "-c", str(source), "-o", str(output), *flags], source.name)
            return "CUDA C++: nvcc compiles it, and only a GPU can run it"
        if "// headers: rmm\n" in text:
            # The library of RMM is not needed: its inline functions are not linked.
            folders = ["rmm/librmm/include", "rmm/nvidia/cu13/include/cccl", "python/nvidia/cu13/include"]
            include = [option for folder in folders for option in ("-isystem", str(self.tools / folder))]
            run(["g++", "-std=c++20", *WARNINGS, "-c", str(source), "-o", str(output), *include, *flags], source.name)
            return reason[1]
        compiler = ["gcc", "-std=gnu11"] if source.suffix == ".c" else ["g++", "-std=c++17"]
        run([*compiler, *WARNINGS, str(source), "-o", str(output), *flags, *link], source.name)
        if reason:
            return reason[1]
        with tempfile.TemporaryDirectory(dir=self.build) as folder:
            run([str(output)], source.name, cwd=folder, env={**self.environment, **environment})
        return None

    # ---- blocks that are checked only

    def check_names(self, block):
        named = set(re.findall(r"\bplinth_[a-z0-9_]+\b(?=[\"'(])", block.code))
        # Functions of examples/pytorch_allocator.py.
        unknown = {name for name in named - self.symbols if not re.search(rf"^def {name}\(", self.example, re.MULTILINE)}
        if unknown:
            raise Failure(f"{block.name}: no such function: {', '.join(sorted(unknown))}")
        targets = re.findall(r"^(?:sudo )?make ([a-z-]+)", block.code, re.MULTILINE)
        if missing := set(targets) - self.targets:
            raise Failure(f"{block.name}: no such target: {', '.join(sorted(missing))}")

    @property
    def example(self):
        return (ROOT / "examples/pytorch_allocator.py").read_text()

    def checked(self, page, block):
        key = (page.stem, block.language)
        if key not in NOT_RUN:
            raise Failure(f"{block.name}: NOT_RUN in tests/docs/run.py has no reason for it")
        self.used.add(key)
        if block.language == "python":
            compile(block.code, block.name, "exec")
        else:
            run(["bash", "-n"], block.name, input=block.code)
        self.check_names(block)
        self.count("checked, not run", NOT_RUN[key])

    def page(self, page):
        blocks = blocks_of(page)
        for block in blocks:
            if block.language not in LANGUAGES:
                raise Failure(f"{block.name}: the language must be one of {', '.join(sorted(LANGUAGES))}")
        if any(block.title for block in blocks):
            self.tutorial(page, blocks)
            return
        code = [block for block in blocks if block.language in ("c", "cpp")]
        self.fragments(page, code)
        for block in blocks:
            if block.language in ("python", "sh"):
                self.checked(page, block)
            elif block.language in ("cmake", "rust"):
                raise Failure(f"{block.name}: this language belongs into a tutorial, where it is run")
            elif block.language == "text":
                self.count("text: shown only")

    def check_tables(self):
        unused = NOT_RUN.keys() - self.used
        if unused:
            raise Failure(f"these entries of tests/docs/run.py have no block: {sorted(map(str, unused))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "target/release", help="folder of libplinth.so")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "target/docs-test", help="folder for programs")
    parser.add_argument("--tools", type=pathlib.Path, default=ROOT / "target/tools", help="what tools/bootstrap.sh installed")
    parser.add_argument("pages", nargs="*", type=pathlib.Path, help="only these pages")
    arguments = parser.parse_args()
    everything = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    documentation = Documentation(arguments)
    failed = 0
    pages = arguments.pages or everything
    for page in pages:
        try:
            documentation.page(page)
        except (Failure, subprocess.TimeoutExpired, SyntaxError) as failure:
            failed += 1
            print(f"FAIL  {failure}", file=sys.stderr)
    if not arguments.pages and not failed:
        documentation.check_tables()
    for kind, count in sorted(documentation.counts.items()):
        print(f"{count:4d}  {kind}")
        for reason, part in sorted(documentation.reasons.items()):
            if reason.startswith(f"{kind}: "):
                print(f"      {part:4d}  {reason.removeprefix(f'{kind}: ')}")
    print(f"{sum(documentation.counts.values())} code blocks of {len(pages)} pages, {failed} pages failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
