"""CuPy and RMM on plinth's memory, through plinth.cupy.enable() and plinth.rmm.enable(). CuPy's results are compared
with numpy's, and bit for bit with those on CuPy's own memory pool.

    python3 benches/cupy_check.py [LIBPLINTH]

CuPy has two ways: C functions, which know no stream (current_stream=False), and Python functions, which pass CuPy's
current stream on. One program passes arrays from one stream to another and frees them while the other still reads them,
which requires record_stream; it runs once more with a limit of 1.05 times the memory that it had in use at its peak. A
request that does not fit must raise CuPy's OutOfMemoryError, and the program goes on. Where RMM is installed, its
buffers, and CuPy's arrays through RMM's allocator for CuPy, are in plinth's memory, too.

The exit status is 1 if a result is wrong or differs from that on CuPy's pool, if memory leaks, or if plinth was not
used; it is 77 without CuPy.
"""
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


def load(named):
    """Imports plinth with the named library: the installed package, else that of the repository."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.join(here, "..", *place, "libplinth.so") for place in (("lib",), ("target", "release"))]
    path = next(filter(os.path.exists, [named] if named else places), None)
    if named and path is None:
        sys.exit(f"there is no {named}")
    if path:
        os.environ["PLINTH_LIBRARY"] = os.path.abspath(path)
    if importlib.util.find_spec("plinth") is None:
        sys.path.insert(0, os.path.join(here, "..", "python"))
    import plinth.cupy
    import plinth.rmm

    return plinth


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
    """Computes arrays in one stream and sums them in another; `used_by(array, stream)` keeps an array's memory from
    being reused before the stream has read it. Returns a digest of the sums."""
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


def run_out_of_memory(plinth):
    """Asks for twice the memory of the device, then for some that fits."""
    total = cupy.cuda.runtime.memGetInfo()[1]
    try:
        cupy.empty(2 * total, dtype=cupy.uint8)
        raise AssertionError("twice the memory of the device was allocated")
    except cupy.cuda.memory.OutOfMemoryError as error:
        if not isinstance(error.__cause__, plinth.errors.OutOfMemoryError):
            raise AssertionError("the error does not have plinth's reasons") from error
    if int(cupy.arange(1000).sum()) != 499_500:
        raise AssertionError("wrong sum after running out of memory")


def use_rmm(plinth):
    """Copies to and from a buffer of RMM in plinth's memory, and runs out of memory."""
    import rmm

    before = plinth.memory_allocated()
    data = numpy.random.default_rng(5).bytes(3_000_000)
    buffer = rmm.DeviceBuffer.to_device(data)
    if plinth.memory_allocated() < before + len(data):
        raise AssertionError("RMM's buffer is not in plinth's memory")
    if buffer.tobytes() != data:
        raise AssertionError("RMM's buffer has other bytes")
    try:
        rmm.DeviceBuffer(size=2 * cupy.cuda.runtime.memGetInfo()[1])
        raise AssertionError("twice the memory of the device was allocated")
    except MemoryError:
        pass
    del buffer
    if plinth.memory_allocated() != before:
        raise AssertionError("RMM's buffer was not given back")


def main():
    plinth = load(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PLINTH_LIBRARY"))
    # Not C functions with a stream: CuPy would not tell plinth of it; docs/pytorch.md says what to do then.
    null, other = cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)
    # Both live as long as memory of theirs is in plinth's cache.
    pair = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)

    def hand_over_on_plinth():
        plinth.reset_peak_memory_stats()
        return hand_over(*pair, plinth.cupy.record_stream)

    def hand_over_within_limit():
        limit = 1.05 * plinth.max_memory_allocated()
        cupy.get_default_memory_pool().free_all_blocks()
        plinth.empty_cache()
        plinth.set_per_process_memory_fraction(limit / cupy.cuda.runtime.memGetInfo()[1])
        try:
            return hand_over(*pair, plinth.cupy.record_stream)
        finally:
            plinth.empty_cache()
            plinth.set_per_process_memory_fraction(1.0)

    # CuPy's own pool has no record_stream: the arrays live until the end.
    kept = []
    expected = compute(), hand_over(*pair, lambda array, _stream: kept.append(array))
    kept.clear()
    cupy.get_default_memory_pool().free_all_blocks()

    def by_c_functions():
        plinth.cupy.enable(current_stream=False)

    def by_rmm():
        import rmm.allocators.cupy

        plinth.rmm.enable()
        cupy.cuda.set_allocator(rmm.allocators.cupy.rmm_cupy_allocator)

    python = plinth.cupy.enable
    ways = [("C functions", by_c_functions, null, compute, expected[0]),
            ("Python functions, two streams", python, null, hand_over_on_plinth, expected[1]),
            ("the same within 1.05 of its peak", python, null, hand_over_within_limit, expected[1]),
            ("Python functions", python, null, compute, expected[0]),
            ("Python functions, a stream", python, other, compute, expected[0]),
            ("out of memory", python, null, lambda: run_out_of_memory(plinth), None)]
    if importlib.util.find_spec("rmm") is None:
        print("RMM: skipped, it is not installed")
    else:
        ways += [("RMM", by_rmm, null, lambda: use_rmm(plinth), None),
                 ("CuPy through RMM", by_rmm, null, compute, expected[0]),
                 ("CuPy through RMM, two streams", by_rmm, null, hand_over_on_plinth, expected[1])]
    failed = False
    for name, enable, stream, work, digest in ways:
        before = plinth.memory_allocated()
        enable()
        requests = plinth.memory_stats()["allocation.all.allocated"]
        try:
            with stream:
                if work() != digest:
                    raise AssertionError("the results differ from those on CuPy's pool")
                stream.synchronize()
            if plinth.memory_stats()["allocation.all.allocated"] == requests:
                raise AssertionError("plinth was not asked for any memory")
        except Exception as error:  # the other ways are tried, too
            print(f"FAILED  {name}: {type(error).__name__}: {error}")
            failed = True
        plinth.cupy.disable()
        cupy.fft.config.get_plan_cache().clear()
        gc.collect()
        left = plinth.memory_allocated() - before
        print(f"{name}: {left} bytes still in use, at most {plinth.max_memory_reserved()} held")
        # Libraries that CuPy calls may keep a workspace; the arrays of this check come to some hundreds of MiB.
        if left > 64 << 20:
            print(f"FAILED  {name}: memory was not given back")
            failed = True
    verdict = "FAILED" if failed else "all results are as numpy has them, and equal bit for bit to those on CuPy's pool"
    print(f"CuPy {cupy.__version__}: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
