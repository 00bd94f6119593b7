"""CuPy on plinth's memory, by both of the ways that CuPy has, with its results compared with numpy's, and bit for bit with
those on CuPy's own memory pool.

    python3 benches/cupy_check.py [LIBPLINTH]

CFunctionAllocator calls plinth from C, without the interpreter; CuPy gives it no stream, so plinth takes its own current
one. PythonFunctionAllocator goes through Python and passes CuPy's current stream on. One program passes arrays from one
stream to another and frees them while the other still reads them, which requires plinth_record_stream; it runs once more
with a limit of 1.05 times the memory that it had in use at its peak.

The exit status is 1 if a result is wrong or differs from that on CuPy's pool, if memory leaks, or if plinth was not used;
it is 77 without CuPy.
"""
import ctypes
import gc
import hashlib
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
    library.plinth_stream_from_external.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
    library.plinth_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.plinth_set_per_process_memory_fraction.argtypes = [ctypes.c_double, ctypes.c_int32]
    for name in ("plinth_memory_allocated", "plinth_max_memory_allocated", "plinth_max_memory_reserved"):
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


def check(digest, name, got, expected, tolerance=0.0):
    got = cupy.asnumpy(got)
    digest.update(got.tobytes())
    if got.shape != expected.shape or not numpy.allclose(got, expected, rtol=tolerance, atol=tolerance):
        raise AssertionError(f"{name}: CuPy's result is not numpy's")


def compute():
    """Compares with numpy: integers have to be equal, floating-point numbers near. Returns a digest of all results."""
    digest = hashlib.sha256()
    rng = numpy.random.default_rng(7)
    whole = rng.integers(-1000, 1000, 1_000_003)
    check(digest, "sort", cupy.sort(cupy.asarray(whole)), numpy.sort(whole))
    check(digest, "cumsum", cupy.cumsum(cupy.asarray(whole)), numpy.cumsum(whole))
    check(digest, "unique", cupy.unique(cupy.asarray(whole)), numpy.unique(whole))
    a, b = rng.standard_normal((257, 300)), rng.standard_normal((300, 129))
    check(digest, "matmul", cupy.asarray(a) @ cupy.asarray(b), a @ b, 1e-9)
    image = rng.standard_normal((128, 256))
    check(digest, "fft2", cupy.abs(cupy.fft.fft2(cupy.asarray(image))), numpy.abs(numpy.fft.fft2(image)), 1e-7)
    # Many sizes with short lives, so that blocks are split, merged and used again.
    for length in rng.integers(1, 300_000, 200):
        values = numpy.arange(length, dtype=numpy.int64)
        on_device = cupy.asarray(values)
        check(digest, "arithmetic", on_device * 3 - on_device[::-1], values * 3 - values[::-1])
    if cupy.zeros((0, 5)).sum() != 0:
        raise AssertionError("empty array")
    return digest.hexdigest()


def hand_over(producer, consumer, used_by):
    """Computes arrays in one stream and sums them in another; `used_by(array, stream)` keeps an array's memory from being
    reused before the stream has read it. Returns a digest of the sums."""
    rng = numpy.random.default_rng(11)
    sums = []
    for step in range(300):
        rows, columns = (int(size) for size in rng.integers(1, 3000, 2))
        with producer:
            values = cupy.sin(cupy.arange(rows * columns, dtype=cupy.float64) * (step + 1)).reshape(rows, columns)
            values = cupy.ascontiguousarray(values.T)
            ready = producer.record()
        with consumer:
            consumer.wait_event(ready)
            used_by(values, consumer)
            sums.append((values * values).sum())
        del values
    consumer.synchronize()
    with consumer:
        return hashlib.sha256(cupy.asnumpy(cupy.stack(sums)).tobytes()).hexdigest()


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
    # Both live as long as memory of theirs is in plinth's cache.
    pair = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    for stream in pair:
        if library.plinth_stream_from_external(stream.ptr, 0, ctypes.byref(ctypes.c_void_p())):
            sys.exit(library.plinth_last_error().decode())

    def record(array, stream):
        if library.plinth_record_stream(array.data.ptr, stream.ptr):
            raise RuntimeError(library.plinth_last_error().decode())

    def hand_over_on_plinth():
        library.plinth_reset_peak_memory_stats(0)
        return hand_over(*pair, record)

    def hand_over_within_limit():
        total = cupy.cuda.runtime.memGetInfo()[1]
        limit = int(1.05 * ask(library, "plinth_max_memory_allocated"))
        cupy.get_default_memory_pool().free_all_blocks()
        for fraction in (limit / total, 1.0):
            if library.plinth_empty_cache() or library.plinth_set_per_process_memory_fraction(fraction, 0):
                raise RuntimeError(library.plinth_last_error().decode())
            if fraction != 1.0:
                digest = hand_over(*pair, record)
        return digest

    # CuPy's own pool has no record_stream: the arrays live until the end.
    kept = []
    expected = compute(), hand_over(*pair, lambda array, _stream: kept.append(array))
    kept.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    ways = (("C functions", by_c_functions, null, compute, expected[0]),
            ("Python functions, two streams", by_python_functions, null, hand_over_on_plinth, expected[1]),
            ("the same within 1.05 of its peak", by_python_functions, null, hand_over_within_limit, expected[1]),
            ("Python functions", by_python_functions, null, compute, expected[0]),
            ("Python functions, a stream", by_python_functions, other, compute, expected[0]))
    failed = False
    for name, way, stream, work, digest in ways:
        before = ask(library, "plinth_memory_allocated")
        cupy.cuda.set_allocator(way(library))
        try:
            with stream:
                if work() != digest:
                    raise AssertionError("the results differ from those on CuPy's pool")
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
    verdict = "FAILED" if failed else "all results are as numpy has them, and equal bit for bit to those on CuPy's pool"
    print(f"CuPy {cupy.__version__}: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
