"""plinth from Python: memory, streams, events, a graph, random numbers, the jiterator and two devices.

  PLINTH_DEVICE=host PLINTH_HOST_DEVICES=2 python3 examples/09-python.py

A GPU is used without the variables. In a checkout, set PLINTH_LIBRARY to libplinth.so and PYTHONPATH to the folder python.
"""

import array

import plinth

COUNT = 1 << 16

print(f"plinth {plinth.__version__}: {plinth.device_count()} device(s), {plinth.get_device_name()} ({plinth.device_kind()})")

# Memory of the caching allocator, filled with random numbers in the current stream.
plinth.manual_seed(42)
numbers = plinth.empty(COUNT, "float32")
plinth.random.normal_(numbers, mean=1.0, std=2.0)

# A second stream copies them to pinned memory while the CPU goes on. It waits for the fill, the CPU does not.
copies = plinth.Stream()
copies.name = "copies"
start, end = plinth.Event(enable_timing=True), plinth.Event(enable_timing=True)
pinned = plinth.empty_pinned(COUNT, "float32")
copies.wait_stream(plinth.current_stream())
with plinth.stream(copies):
    start.record()
    numbers.copy_to(pinned, non_blocking=True)
    end.record()
numbers.record_stream(copies)  # Memory is not reused before the copy is done, even if it is freed now.
end.synchronize()
print(f"the mean is {sum(pinned) / COUNT:.2f}; the copy took {start.elapsed_time(end):.3f} ms")

# Work is captured once and replayed: each replay draws new numbers.
graph = plinth.CUDAGraph()
with plinth.graph(graph):
    plinth.random.uniform_(numbers)
firsts = set()
for _ in range(3):
    graph.replay()
    numbers.copy_to(pinned)
    firsts.add(pinned[0])
print(f"three replays gave {len(firsts)} different numbers")

# A C++ function of elements becomes a function of tensors.
x = plinth.to_device(array.array("f", [1, 2, 3]))
try:
    axpy = plinth.jiterator._create_jit_fn("template <typename T> T axpy(T x, T y, T a) { return a * x + y; }", a=2.0)
    print(f"2 x + x is {axpy(x, x).tolist()}")
except plinth.errors.UnavailableError as error:
    print(f"the jiterator has no compiler: {error}")

# The same tensor on every device, and its sum.
everywhere = plinth.comm.broadcast(x, range(plinth.device_count()))
print(f"the sum over {len(everywhere)} device(s) is {plinth.comm.reduce_add(everywhere, 0).tolist()}")

# A request that does not fit is an exception, and the program goes on.
try:
    plinth.empty(1 << 50)
except plinth.OutOfMemoryError as error:
    print(str(error).split(". ")[0])
print(f"allocated {plinth.memory_allocated()} bytes, at most {plinth.max_memory_allocated()}")
