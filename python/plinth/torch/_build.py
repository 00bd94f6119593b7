"""Compiles the bridge against the installed PyTorch, and keeps the result.

The interface between PyTorch and its allocator is C++, and changes with PyTorch's version, so no binary fits all. The
bridge is compiled when it is first needed, with any C++20 compiler, in about 30 seconds.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import shlex
import shutil
import stat
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ("allocator", "statistics", "pools", "history", "snapshot", "sharing", "install")
COMPILERS = ("c++", "g++", "clang++")


class BuildError(RuntimeError):
    """The bridge cannot be compiled here; the message says why and what to install."""


@dataclasses.dataclass(frozen=True)
class Torch:
    """What of an installed PyTorch the bridge depends on."""

    folder: pathlib.Path
    version: str
    git: str
    cuda: str
    cxx11_abi: bool

    @classmethod
    def installed(cls, torch):
        """Describes an imported torch module."""
        return cls(folder=pathlib.Path(torch.__file__).resolve().parent, version=str(torch.__version__),
                   git=str(torch.version.git_version), cuda=str(torch.version.cuda),
                   cxx11_abi=bool(torch.compiled_with_cxx11_abi()))


def plinth_headers():
    """Returns the folder of plinth.h: in a wheel, or in a checkout of the sources."""
    for folder in (HERE.parent / "include", HERE.parents[2] / "include"):
        if (folder / "plinth.h").exists():
            return folder
    raise BuildError(f"plinth.h is missing below {HERE.parent}; install libplinth again")


def cuda_headers(torch):
    """Returns the folder of cuda_runtime_api.h for this PyTorch.

    PyTorch's wheels depend on wheels with these headers: nvidia/cu13/include, before CUDA 13
    nvidia/cuda_runtime/include. Other installations have a toolkit: CUDA_HOME, CUDA_PATH, the one of nvcc, or
    /usr/local/cuda.
    """
    site = torch.folder.parent
    major = torch.cuda.split(".")[0]
    folders = [site / f"nvidia/cu{major}/include", site / "nvidia/cuda_runtime/include"]
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    homes += [pathlib.Path(nvcc).resolve().parents[1] if nvcc else None, "/usr/local/cuda"]
    for home in filter(None, homes):
        folders += [pathlib.Path(home) / "include", pathlib.Path(home) / "targets/x86_64-linux/include"]
    for folder in folders:
        if (folder / "cuda_runtime_api.h").exists():
            return folder
    package = "nvidia-cuda-runtime" if int(major) >= 13 else f"nvidia-cuda-runtime-cu{major}"
    raise BuildError(f"cuda_runtime_api.h of CUDA {torch.cuda} was not found in {', '.join(map(str, folders))}; install "
                     f"{package}, or set CUDA_HOME to a CUDA toolkit")


def compiler():
    """Returns the command of a C++ compiler: the variable CXX, else the first of c++, g++, clang++."""
    named = os.environ.get("CXX")
    if named:
        command = shlex.split(named)
        if not command or not shutil.which(command[0]):
            raise BuildError(f"the compiler that CXX names, {named!r}, was not found")
        return command
    for name in COMPILERS:
        path = shutil.which(name)
        if path:
            return [path]
    raise BuildError("no C++ compiler was found: install g++ (Debian: apt install g++) or clang++, or set CXX")


def compiler_version(command):
    """Returns the first line of the compiler's version."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"the C++ compiler {command[0]} does not run: {error}") from None
    return done.stdout.splitlines()[0] if done.stdout else ""


def cuda_includes(cuda):
    """Returns the compiler's flags for a folder of CUDA's headers.

    The wheel of the CUDA runtime lacks those that cuda_runtime.h includes for nvcc; ours take their place.
    """
    complete = (pathlib.Path(cuda) / "crt/host_defines.h").exists()
    return [*([] if complete else ["-isystem", str(HERE / "cuda_headers")]), "-isystem", str(cuda)]


def flags(torch, cuda):
    """Returns the compiler's flags. Headers of others are system headers: their warnings are not ours."""
    # The headers of torch 2.14 and later need C++20.
    minor = int(torch.version.split(".")[1])
    return [f"-std=c++{20 if minor >= 14 else 17}", "-O2", "-fPIC", "-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
            "-I", str(plinth_headers()), "-isystem", str(torch.folder / "include"),
            "-isystem", str(torch.folder / "include/torch/csrc/api/include"), *cuda_includes(cuda)]


def loaded_library(name):
    """Returns the path of a library that this process has loaded, or None."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        mapped = line.split(maxsplit=5)[5:]
        if mapped and pathlib.Path(mapped[0]).name.startswith(name):
            return mapped[0]
    return None


def link(command, objects, torch, library, output):
    """Returns the command that links the bridge.

    Every library is loaded before the bridge, which the loader then finds by name, so no path is recorded. The C++
    library is named, because some compilers link their own statically, and two of them in one process crash.
    """
    standard = loaded_library("libstdc++.so.6")
    return [*command, "-shared", "-o", str(output), *map(str, objects), f"-L{torch.folder / 'lib'}", "-ltorch_cuda",
            "-lc10_cuda", "-lc10", str(library), *filter(None, [standard]), "-Wl,--allow-shlib-undefined"]


def run(command):
    """Runs a compiler, and raises a BuildError with the end of its output if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{command[0]} does not run: {error}") from None
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(command)} failed with exit status {done.returncode}:\n{done.stdout[-4000:]}")


def compile_objects(command, options, folder, sources=SOURCES):
    """Compiles sources of the bridge into a folder, as many at a time as there are processors, and returns the objects."""
    from concurrent.futures import ThreadPoolExecutor

    def one(name):
        output = folder / f"{name}.o"
        run([*command, *options, "-c", str(HERE / "bridge" / f"{name}.cpp"), "-o", str(output)])
        return output

    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        return list(pool.map(one, sources))


def cache_folder():
    """Returns the folder of compiled bridges; creates it with mode 0700.

    It is plinth in XDG_CACHE_HOME, by default ~/.cache. A library that is loaded from it runs in this process, so it
    must belong to this user, and nobody else may write to it.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (pathlib.Path(base) if base and os.path.isabs(base) else pathlib.Path.home() / ".cache") / "plinth"
    except RuntimeError as error:
        raise BuildError(f"there is no folder for the cache: {error}; set XDG_CACHE_HOME to one") from None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise BuildError(f"the cache folder {folder} cannot be used: {error}; set XDG_CACHE_HOME to another one") from None
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(f"the cache folder {folder} is not safe to load code from: it belongs to user {status.st_uid} and "
                         f"has mode {stat.S_IMODE(status.st_mode):04o}; other users must not be able to write to it "
                         f"(chmod 700 {folder}), or set XDG_CACHE_HOME to another folder")
    return folder


def digest(parts):
    """Returns a name for what the parts, the bridge's source and this program determine."""
    state = hashlib.sha256()
    for part in parts:
        state.update(str(part).encode() + b"\0")
    sources = [path for folder in (HERE, plinth_headers()) for path in sorted(folder.rglob("*"))]
    for path in sources:
        if path.suffix in (".cpp", ".h", ".py"):
            state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()[:24]


@contextlib.contextmanager
def locked(path):
    """Holds a file's lock, so that processes that need the same bridge wait for one build."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(torch, library, plinth_version):
    """Returns the path of the bridge for an installed PyTorch, compiled now if no earlier call has done so.

    `torch` is a Torch, `library` the path of libplinth.so. Raises BuildError.
    """
    command = compiler()
    cuda = cuda_headers(torch)
    folder = cache_folder()
    key = digest([torch.version, torch.git, torch.cuda, torch.cxx11_abi, torch.folder, plinth_version, *command,
                  compiler_version(command)])
    result = folder / f"torch-{torch.version.split('+')[0]}-{key}.so"
    if result.exists():
        return result
    try:
        with locked(folder / f"{result.name}.lock"):
            if result.exists():
                return result
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
                work = pathlib.Path(work)
                objects = compile_objects(command, flags(torch, cuda), work)
                run(link(command, objects, torch, library, work / result.name))
                os.replace(work / result.name, result)
    except OSError as error:
        raise BuildError(f"the cache folder {folder} cannot be written: {error}; set XDG_CACHE_HOME to another one") from None
    return result
