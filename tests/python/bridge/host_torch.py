"""Runs real PyTorch in Python on the host device, with the bridge, on a machine without a GPU.

The test's libcudart takes the place of the functions that PyTorch calls to allocate and copy. All other functions of
CUDA's libraries (cuBLAS, cuDNN, NCCL, ...) end the process with their names; one library of these has the names of all,
so that PyTorch can be imported without the packages that it depends on. No kernel can run.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# What PyTorch asks the driver itself for.
DRIVER = {
    "cuDeviceGet": "int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }",
    "cuDevicePrimaryCtxGetState": """int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  (void)device, *flags = 0, *active = 1;
  return 0;
}""",
}
# The names of NVIDIA's functions and libraries, but for those of the runtime.
FUNCTIONS = re.compile(r"(cublas|cudnn|cufft|cuFile|cupti|curand|cusolver|cusparse|nccl|nvJit|nvrtc|nvshmem|cu(?!da)[A-Z])\w+")
LIBRARIES = re.compile(r"\[(lib(?:cu(?!dart)|nccl|nv)[^\]]*)\]")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def make_stand_ins(build, libraries, folder):
    """Makes the library that has the functions and the names of all that PyTorch's libraries need; returns its path."""
    undefined = {line.split()[-1].split("@")[0] for path in libraries
                 for line in output("nm", "-D", "--undefined-only", path).splitlines()}
    lines = ["#include <stdio.h>", "#include <stdlib.h>"]
    for name in sorted(filter(FUNCTIONS.fullmatch, undefined)):
        lines.append(DRIVER.get(name) or f'void {name}(void) {{ fputs("the test has no {name}\\n", stderr), abort(); }}')
    source = folder / "stand_ins.c"
    source.write_text("\n".join(lines))
    result = folder / "libstand_ins.so"
    build.run(["cc", "-w", "-shared", "-fPIC", str(source), "-o", str(result)])
    for name in {name for path in libraries for name in LIBRARIES.findall(output("readelf", "-d", path))}:
        (folder / name).symlink_to(result.name)
    return result


def run(build, wheel, cuda, library, paths, work):
    """Runs torch_on_host.py. `wheel` is the folder that has torch, `paths` that where programs find the library, `work` a
    folder for what is made."""
    folder = work / "stand_ins"
    folder.mkdir()
    stand_ins = make_stand_ins(build, sorted((wheel / "torch/lib").glob("*.so*")), folder)
    runtime = folder / "libcudart_on_host.so"
    build.run(["cc", "-std=c11", "-shared", "-fPIC", *build.cuda_includes(cuda), "-I", str(ROOT / "include"),
               str(HERE / "cudart.c"), "-o", str(runtime), f"-Wl,--version-script={HERE / 'cudart.map'}", str(library)])
    environment = {**os.environ, "PLINTH_DEVICE": "host", "PLINTH_HOST_DEVICES": "2", "PLINTH_HOST_MEMORY": "1GiB",
                   "PLINTH_LIBRARY": str(library), "XDG_CACHE_HOME": str(work / "cache"),
                   "LD_PRELOAD": f"{stand_ins} {runtime}",
                   "LD_LIBRARY_PATH": f"{folder}:{paths}",
                   "PYTHONPATH": os.pathsep.join(map(str, (wheel, ROOT / "python", ROOT / "tests/snapshot"))),
                   "PYTHONWARNINGS": "ignore:Failed to initialize NumPy", "CUDA_HOME": str(cuda.parent)}
    subprocess.run([sys.executable, str(HERE / "torch_on_host.py")], env=environment, check=True, timeout=600)
