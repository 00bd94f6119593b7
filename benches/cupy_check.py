"""CuPy on plinth's memory, by both of the ways that CuPy has, with its results compared with numpy's.

    python3 benches/cupy_check.py [LIBPLINTH]

CFunctionAllocator calls plinth from C, without the interpreter; CuPy gives it no stream, so plinth takes its own current
one. PythonFunctionAllocator goes through Python and passes CuPy's current stream on. Exit status 1 if a result is wrong,
memory is lost or plinth was not asked; 77 without CuPy.
"""
import ctypes
import gc
import importlib.util
import os
import sys

if importlib.util.find_spec("cupy") is None:
    print("skipped: no CuPy")
    sys.exit(77)

import cupy  # noqa: E402
import numpy  # noqa: E402


broken = []  # what could not be freed


def load(path):
    library = ctypes.CDLL(path)
    library.plinth_last_error.restype = ctypes.c_char_p
    library.plinth_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.plinth_alloc.restype = ctypes.c_void_p
    library.plinth_caching_allocator_delete.argtypes = [ctypes.c_void_p]
    for name in ("plinth_memory_allocated", "plinth_max_memory_reserved"):
        getattr(library, name).argtypes = [ctypes.c_int32, ctypes.POINTER(ctypes.c_size_t)]
    return library


def ask(library, name):
    value = ctypes.c_size_t()
    status = getattr(library, name)(0, ctypes.byref(value))
    if status:
        sys.exit(f"{name}: status {status}: {library.plinth_last_error().decode()}")
    return value.value


def by_c_functions(library):
    address = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value
               for name in ("plinth_cupy_malloc", "plinth_cupy_free")]
    return cupy.cuda.memory.CFunctionAllocator(0, *address, library).malloc


def by_python_functions(library):
    def allocate(size, device):
        pointer = library.plinth_alloc(size, device, cupy.cuda.get_current_stream().ptr)
        if not pointer:
            raise MemoryError(library.plinth_last_error().decode())
        return pointer

    def free(pointer, _device):
        # plinth knows by the address which stream the memory belongs to, so CuPy need not.
        if library.plinth_caching_allocator_delete(pointer):
            print(f"FAILED  to free: {library.plinth_last_error().decode()}")
            broken.append(pointer)

    return cupy.cuda.memory.PythonFunctionAllocator(allocate, free).malloc


def check(name, got, expected, tolerance=0.0):
    got = cupy.asnumpy(got)
    if got.shape != expected.shape or not numpy.allclose(got, expected, rtol=tolerance, atol=tolerance):
        raise AssertionError(f"{name}: CuPy's result is not numpy's")


def compute():
    """Integers have to be equal, floating-point numbers near."""
    rng = numpy.random.default_rng(7)
    whole = rng.integers(-1000, 1000, 1_000_003)
    check("sort", cupy.sort(cupy.asarray(whole)), numpy.sort(whole))
    check("cumsum", cupy.cumsum(cupy.asarray(whole)), numpy.cumsum(whole))
    check("unique", cupy.unique(cupy.asarray(whole)), numpy.unique(whole))
    a, b = rng.standard_normal((257, 300)), rng.standard_normal((300, 129))
    check("matmul", cupy.asarray(a) @ cupy.asarray(b), a @ b, 1e-9)
    image = rng.standard_normal((128, 256))
    check("fft2", cupy.abs(cupy.fft.fft2(cupy.asarray(image))), numpy.abs(numpy.fft.fft2(image)), 1e-7)
    # Many sizes with short lives, so that blocks are split, merged and used again.
    for length in rng.integers(1, 300_000, 200):
        values = numpy.arange(length, dtype=numpy.int64)
        on_device = cupy.asarray(values)
        check("arithmetic", on_device * 3 - on_device[::-1], values * 3 - values[::-1])
    if cupy.zeros((0, 5)).sum() != 0:
        raise AssertionError("empty array")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.join(here, "..", *place, "libplinth.so") for place in (("lib",), ("target", "release"))]
    named = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PLINTH_LIBRARY")
    path = next((p for p in ([named] if named else places) if os.path.exists(p)), None)
    if path is None:
        sys.exit("there is no libplinth.so; name it")
    library = load(os.path.abspath(path))
    # Not C functions with a stream: CuPy would not tell plinth of it; docs/pytorch.md says what to do then.
    null, other = cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)
    ways = (("C functions", by_c_functions, null), ("Python functions", by_python_functions, null),
            ("Python functions, a stream", by_python_functions, other))
    failed = False
    for name, way, stream in ways:
        before = ask(library, "plinth_memory_allocated")
        cupy.cuda.set_allocator(way(library))
        try:
            with stream:
                compute()
                stream.synchronize()
            if ask(library, "plinth_max_memory_reserved") == 0:
                raise AssertionError("plinth was not asked for any memory")
        except Exception as error:  # the other ways are tried, too
            print(f"FAILED  {name}: {type(error).__name__}: {error}")
            failed = True
        cupy.cuda.set_allocator(None)
        cupy.fft.config.get_plan_cache().clear()
        gc.collect()
        left = ask(library, "plinth_memory_allocated") - before
        print(f"{name}: {left} bytes still in use, at most {ask(library, 'plinth_max_memory_reserved')} held")
        # Libraries that CuPy calls may keep a workspace; the arrays of this check come to some hundreds of MiB.
        if left > 64 << 20:
            print(f"FAILED  {name}: memory was not given back")
            failed = True
    failed = failed or bool(broken)
    print(f"CuPy {cupy.__version__}: {'FAILED' if failed else 'all results are as numpy has them'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
