"""PyTorch with plinth's memory, in the two ways that PyTorch 2.11 offers; docs/pytorch.md compares them.

    python3 examples/pytorch_allocator.py swap [LIBPLINTH]    plinth instead of PyTorch's allocator
    python3 examples/pytorch_allocator.py pool [LIBPLINTH]    plinth under PyTorch's allocator, while a pool is in use

LIBPLINTH is the path of libplinth.so; the default is $PLINTH_LIBRARY, or a library next to this file. Programs can copy or
import use_plinth, plinth_pool and Plinth. Needs a GPU.
"""
import ctypes
import os
import sys

import torch

# PyTorch's setters of the hooks besides allocation and free, and plinth's functions. PyTorch's names are irregular.
HOOKS = {
    "set_init_fn": "plinth_pluggable_init",
    "set_reset_fn": "plinth_pluggable_reset",
    "set_memory_fraction_fn": "plinth_pluggable_memory_fraction",
    "set_base_alloc_fn": "plinth_pluggable_base_alloc",
    "set_record_stream_fn": "plinth_pluggable_record_stream",
    "set_begin_allocate_to_pool": "plinth_pluggable_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "plinth_pluggable_end_allocate_to_pool",
    "set_release_pool": "plinth_pluggable_release_pool",
}


def plinth_allocator(path):
    """Returns a CUDAPluggableAllocator with plinth's functions and every hook set. Does not initialize CUDA."""
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "plinth_alloc", "plinth_free")
    library = ctypes.CDLL(path)
    for setter, symbol in HOOKS.items():
        # PyTorch takes addresses and knows the prototypes itself, so none is declared here.
        address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    # Never freed: older versions of PyTorch keep a raw pointer in the MemPool, and use it during Python's shutdown.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(allocator.allocator()))
    return allocator


def use_plinth(path):
    """Makes plinth the allocator of all of this process's CUDA memory. Call it before anything uses CUDA."""
    torch.cuda.memory.change_current_allocator(plinth_allocator(path))
    return Plinth(path)


def plinth_pool(path):
    """Returns a torch.cuda.MemPool whose memory is plinth's, for torch.cuda.use_mem_pool. Can be called at any time."""
    return torch.cuda.MemPool(plinth_allocator(path).allocator())


class Plinth:
    """plinth's statistics, by the names of torch.cuda's functions, which raise after use_plinth."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.plinth_last_error.restype = ctypes.c_char_p
        self.library.plinth_string_free.argtypes = [ctypes.c_void_p]
        self.library.plinth_string_free.restype = None

    def call(self, name, *arguments):
        function = getattr(self.library, name)
        function.restype = ctypes.c_int32
        status = function(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: status {status}: {(self.library.plinth_last_error() or b'').decode()}")

    def _bytes(self, name, device):
        value = ctypes.c_size_t()
        self.call(name, ctypes.c_int32(device), ctypes.byref(value))
        return value.value

    def memory_allocated(self, device=0):
        return self._bytes("plinth_memory_allocated", device)

    def max_memory_allocated(self, device=0):
        return self._bytes("plinth_max_memory_allocated", device)

    def memory_reserved(self, device=0):
        return self._bytes("plinth_memory_reserved", device)

    def max_memory_reserved(self, device=0):
        return self._bytes("plinth_max_memory_reserved", device)

    def reset_peak_memory_stats(self, device=0):
        self.call("plinth_reset_peak_memory_stats", ctypes.c_int32(device))

    def memory_summary(self, device=0, abbreviated=False):
        text = ctypes.c_void_p()
        self.call("plinth_memory_summary", ctypes.c_int32(device), ctypes.c_bool(abbreviated), ctypes.byref(text))
        try:
            return ctypes.string_at(text.value).decode()
        finally:
            self.library.plinth_string_free(text)


def find_library(path=None):
    here = os.path.dirname(os.path.abspath(__file__))
    nearby = [os.path.join(here, "..", *folder, "libplinth.so") for folder in (("lib",), ("target", "release"))]
    for candidate in [path] if path else [os.environ.get("PLINTH_LIBRARY"), *nearby]:
        if candidate and os.path.exists(candidate):
            return os.path.abspath(candidate)
    sys.exit(f"cannot find {path or 'libplinth.so; pass its path, or set PLINTH_LIBRARY'}")


def some_work():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a = torch.randn(4096, 4096, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    a.record_stream(torch.cuda.current_stream())
    return (a @ a).norm().item()


def main():
    way = sys.argv[1] if len(sys.argv) > 1 else "swap"
    path = find_library(sys.argv[2] if len(sys.argv) > 2 else None)
    if way == "swap":
        plinth = use_plinth(path)
        print(f"allocator: {torch.cuda.get_allocator_backend()}; result {some_work():.1f}")
    elif way == "pool":
        pool = plinth_pool(path)
        with torch.cuda.use_mem_pool(pool):
            result = some_work()
        plinth = Plinth(path)
        print(f"allocator: {torch.cuda.get_allocator_backend()}, with a pool of plinth's; result {result:.1f}")
    else:
        sys.exit(__doc__)
    print(f"plinth: {plinth.memory_allocated()} bytes in use, {plinth.memory_reserved()} held, at most "
          f"{plinth.max_memory_reserved()}\n\n{plinth.memory_summary(abbreviated=True)}")


if __name__ == "__main__":
    main()
