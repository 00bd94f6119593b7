#!/usr/bin/env python3
"""Compiles the bridge to PyTorch against real headers and runs it in torch's real c10 libraries, on the host device.

    run.py TORCH CUDA LIBRARY

TORCH is the folder of an unpacked wheel of torch (it holds torch/include and torch/lib), CUDA a folder with CUDA's
headers, LIBRARY libplinth.so. Neither a GPU nor torch's dependencies are needed, but for typing_extensions: libc10_cuda.so runs
on a libcudart.so of this test, which is made of plinth's C API. First C++ programs call every function of the bridge,
then torch is imported in Python, and plinth.torch.enable() installs the bridge in it. With torch 2.10, the bridge is compiled
and linked only.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import host_torch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TESTS = ("main", "pools", "uncached", "history", "history_stacks", "sharing", "gpu_trace")
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def load_build():
    """Loads _build.py alone: the package would load a library."""
    import importlib.util

    path = ROOT / "python/plinth/torch/_build.py"
    spec = importlib.util.spec_from_file_location("_build", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["_build"] = module
    spec.loader.exec_module(module)
    return module


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    wheel, cuda, library = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    folder = wheel / "torch"
    values = {}
    exec((folder / "version.py").read_text(), values)
    build = load_build()
    torch = build.Torch(folder, values["__version__"], values["git_version"], values["cuda"], True)
    compiler = build.compiler()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        options = build.flags(torch, cuda) + WARNINGS
        objects = build.compile_objects(compiler, options, work)
        build.run(build.link(compiler, objects, torch, library, work / "bridge.so") + ["-Wl,-z,defs",
                  "-Wl,--unresolved-symbols=ignore-in-shared-libs", *map(str, (cuda.parent / "lib").glob("libcudart.so.*"))])
        print(f"ok: compiled and linked with torch {torch.version} by {compiler[0]}")

        if torch.version.startswith("2.10."):
            print("ok: nothing is run: the test's programs are for torch 2.11 and later")
            return
        own = work / "own"
        own.mkdir()
        test_options = [*options, "-I", str(ROOT / "python/plinth/torch/bridge")]
        for name in (*TESTS, "under_test"):
            build.run([*compiler, *test_options, "-c", str(HERE / f"{name}.cpp"), "-o", str(own / f"{name}.o")])
        libraries = [f"-L{folder / 'lib'}", "-lc10", "-lc10_cuda", str(library), *runtime(build, compiler, cuda, library, work)]
        core = [str(path) for path in objects if path.stem != "install"]
        tested = work / "libbridge_under_test.so"
        build.run([*compiler, "-shared", "-o", str(tested), *core, str(own / "under_test.o"), *libraries])
        program = work / "test"
        build.run([*compiler, "-o", str(program), *[str(own / f"{name}.o") for name in TESTS], str(tested), *libraries])
        paths = soname_folder(library, work)
        environment = {**os.environ, "PLINTH_DEVICE": "host", "PLINTH_HOST_DEVICES": "2", "PLINTH_HOST_MEMORY": "1GiB",
                       "LD_LIBRARY_PATH": f"{work}:{folder / 'lib'}:{paths}"}
        for settings in ({}, {"PLINTH_ALLOC_CONF": "expandable_segments:False"}):
            print(*settings.values() or ["default settings"])
            subprocess.run([str(program)], env={**environment, **settings}, check=True, timeout=300)
        print("PYTORCH_NO_CUDA_MEMORY_CACHING=1")
        always = {**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        subprocess.run([str(program), "uncached"], env=always, check=True, timeout=300)
        print("PyTorch in Python", flush=True)
        host_torch.run(build, wheel, cuda, library, paths, work)
    print(f"ok: {time.monotonic() - begin:.0f} s")


def runtime(build, compiler, cuda, library, work):
    """Returns the test's libcudart.so.13, which is made at the first call."""
    output = work / "libcudart.so.13"
    if not output.exists():
        cc = ["gcc"] if "clang" not in compiler[0] else ["clang"]
        build.run([*cc, "-std=c11", *WARNINGS, "-shared", "-fPIC", *build.cuda_includes(cuda), "-I", str(ROOT / "include"),
                   str(HERE / "cudart.c"), "-o", str(output), f"-Wl,-soname,{output.name}",
                   f"-Wl,--version-script={HERE / 'cudart.map'}", str(library)])
    return [str(output)]


def soname_folder(library, work):
    """Returns a folder in which the library has the name by which programs load it."""
    text = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    name = text.split("soname: [")[1].split("]")[0]
    folder = work / "plinth"
    folder.mkdir()
    (folder / name).symlink_to(library)
    return folder


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # a failure of a compiler has its output in the message
        sys.exit(f"failed: {error}")
