"""A Python binding of the parts of plinth's C ABI that the tests need, with ctypes and the standard library only.

    library = plinth.Library("target/release/libplinth.so", "host")
    with library.tensor("float32", [1000]) as tensor:
        library.fill("uniform", tensor, 0.0, 1.0, seed=42)
        raw = tensor.read()

A call that fails raises plinth.Error, which has the status and the library's message.
"""

import ctypes
import os
import struct

CPU, CUDA = 1, 2

# DLPack's code and bits of each dtype, and its letter in the modules array and struct, if there is one.
DTYPES = {
    "int8": (0, 8, "b"), "int16": (0, 16, "h"), "int32": (0, 32, "i"), "int64": (0, 64, "q"),
    "uint8": (1, 8, "B"), "uint16": (1, 16, "H"), "uint32": (1, 32, "I"), "uint64": (1, 64, "Q"),
    "float16": (2, 16, "e"), "float32": (2, 32, "f"), "float64": (2, 64, "d"), "bfloat16": (4, 16, None),
    "bool": (6, 8, "B"), "complex64": (5, 64, "f"), "complex128": (5, 128, "d"),
}
FLOATING = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

# The arguments of each fill between the tensor and the generator: d a double, q an int64.
FILLS = {
    "uniform": "dd", "normal": "dd", "log_normal": "dd", "exponential": "d", "cauchy": "dd", "geometric": "d",
    "bernoulli": "d", "random": "", "random_range": "qq", "randperm": "",
}

# PLINTH_RANDOM_TO_LARGEST
TO_LARGEST = -(2**63)


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Properties(ctypes.Structure):
    """The first fields of plinth_device_properties_t; the library fills struct_size bytes."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char * 256), ("uuid", ctypes.c_uint8 * 16),
                ("pci_bus_id_text", ctypes.c_char * 32), ("sizes", ctypes.c_uint64 * 5), ("major", ctypes.c_int32),
                ("minor", ctypes.c_int32), ("multi_processor_count", ctypes.c_int32),
                ("max_threads_per_multi_processor", ctypes.c_int32)]


class Error(Exception):
    """A failed call."""

    def __init__(self, function, status, name, message):
        super().__init__(f"{function}: {name}: {message}")
        self.status, self.name, self.message = status, name, message


def size_of(dtype):
    """Returns the bytes of an element."""
    return DTYPES[dtype][1] // 8


def as_int64(number):
    """Returns the int64 with the bits of a uint64."""
    return (number + 2**63) % 2**64 - 2**63


def values(raw, dtype):
    """Converts raw bytes to Python numbers."""
    if dtype == "bfloat16":
        halves = memoryview(raw).cast("H")
        return memoryview(struct.pack(f"<{len(halves)}I", *[half << 16 for half in halves])).cast("f").tolist()
    letter = DTYPES[dtype][2]
    if letter == "e":
        return list(struct.unpack(f"<{len(raw) // 2}e", raw))
    return memoryview(raw).cast(letter).tolist()


def descriptor(pointer, device, dtype, shape, strides=None, byte_offset=0, device_type=CUDA):
    """Returns a DLTensor, which keeps its shape and strides alive."""
    tensor = DLTensor()
    code, bits, _ = DTYPES[dtype]
    tensor.data, tensor.device, tensor.dtype = pointer, Device(device_type, device), DataType(code, bits, 1)
    tensor.ndim, tensor.byte_offset = len(shape), byte_offset
    tensor.shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    if strides is not None:
        tensor.strides = (ctypes.c_int64 * max(1, len(strides)))(*strides)
    return tensor


class Memory:
    """Memory of the caching allocator."""

    def __init__(self, library, size, device=0):
        self.library, self.size = library, size
        pointer = ctypes.c_void_p()
        library.call("caching_allocator_alloc", ctypes.c_size_t(size), ctypes.c_int32(device), None,
                     ctypes.byref(pointer))
        self.pointer = pointer.value

    def write(self, content, at=0):
        buffer = (ctypes.c_char * len(content)).from_buffer_copy(content)
        self.library.copy(self.pointer + at, ctypes.addressof(buffer), len(content))

    def read(self, at=0, size=None):
        size = self.size - at if size is None else size
        buffer = (ctypes.c_char * max(1, size))()
        self.library.copy(ctypes.addressof(buffer), (self.pointer or 0) + at, size)
        return memoryview(buffer).cast("B")[:size].tobytes()

    def free(self):
        if self.pointer is not None:
            self.library.call("caching_allocator_delete", ctypes.c_void_p(self.pointer))
            self.pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()


class Tensor(Memory):
    """A contiguous tensor with its own memory."""

    def __init__(self, library, dtype, shape, device=0):
        count = 1
        for extent in shape:
            count *= extent
        super().__init__(library, count * size_of(dtype), device)
        self.dtype, self.count = dtype, count
        self.tensor = descriptor(self.pointer, device, dtype, shape)

    def values(self):
        return values(self.read(), self.dtype)


class Library:
    """A loaded libplinth."""

    def __init__(self, path, kind=None):
        if kind is not None:
            os.environ["PLINTH_DEVICE"] = kind
        self.c = ctypes.CDLL(os.path.abspath(path))
        self.c.plinth_last_error.restype = ctypes.c_char_p
        self.c.plinth_status_name.restype = ctypes.c_char_p
        for name, letters in FILLS.items():
            kinds = [ctypes.c_double if letter == "d" else ctypes.c_int64 for letter in letters]
            self.function(name).argtypes = [ctypes.POINTER(DLTensor), *kinds, ctypes.c_void_p, ctypes.c_void_p]
        tensors = [ctypes.POINTER(DLTensor)] * 2
        self.function("bernoulli_tensor").argtypes = [*tensors, ctypes.c_void_p, ctypes.c_void_p]
        self.function("memcpy").argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]

    def function(self, name):
        return getattr(self.c, "plinth_" + name)

    def call(self, name, *arguments):
        """Calls plinth_NAME; raises Error unless it succeeds."""
        status = self.function(name)(*arguments)
        if status:
            raise Error("plinth_" + name, status, self.c.plinth_status_name(status).decode(),
                        self.c.plinth_last_error().decode(errors="replace"))

    def properties(self, device=0):
        properties = Properties(struct_size=ctypes.sizeof(Properties))
        self.call("get_device_properties", ctypes.c_int32(device), ctypes.byref(properties))
        return properties

    def synchronize(self, device=-1):
        self.call("synchronize", ctypes.c_int32(device))

    def copy(self, to, source, size):
        """Copies in the default stream, and waits for the copy."""
        if size:
            self.call("memcpy", to, source, size, None)
            self.call("stream_synchronize", None)

    def tensor(self, dtype, shape, device=0):
        return Tensor(self, dtype, shape, device)

    def generator(self, device=0, seed=None, offset=None):
        return Generator(self, device, seed, offset)

    def fill(self, name, tensor, *arguments, generator=None, stream=None, seed=None):
        """Calls plinth_NAME on a Tensor or a DLTensor; random_from is random_range without an upper bound. `seed` first seeds
        the generator, or the current device's."""
        described = tensor.tensor if isinstance(tensor, Tensor) else tensor
        if seed is not None and generator is not None:
            generator.manual_seed(seed)
        elif seed is not None:
            self.call("manual_seed", ctypes.c_uint64(seed))
        handle = generator.handle if generator is not None else None
        if name == "bernoulli_tensor":
            other = arguments[0].tensor if isinstance(arguments[0], Tensor) else arguments[0]
            arguments = [ctypes.byref(other)]
        elif name == "random_from":
            name, arguments = "random_range", [*arguments, TO_LARGEST]
        self.call(name, ctypes.byref(described), *arguments, handle, stream)


class Generator:
    """A generator, destroyed with the object."""

    def __init__(self, library, device=0, seed=None, offset=None):
        self.library, self.handle = library, ctypes.c_void_p()
        library.call("generator_create", ctypes.c_int32(device), ctypes.byref(self.handle))
        if seed is not None:
            self.manual_seed(seed)
        if offset is not None:
            self.offset = offset

    def manual_seed(self, seed):
        self.library.call("generator_manual_seed", self.handle, ctypes.c_uint64(seed))

    def number(self, name):
        value = ctypes.c_uint64()
        self.library.call(name, self.handle, ctypes.byref(value))
        return value.value

    @property
    def offset(self):
        return self.number("generator_get_offset")

    @offset.setter
    def offset(self, offset):
        self.library.call("generator_set_offset", self.handle, ctypes.c_uint64(offset))

    @property
    def initial_seed(self):
        return self.number("generator_initial_seed")

    @property
    def state(self):
        buffer = (ctypes.c_uint8 * 16)()
        self.library.call("generator_get_state", self.handle, buffer)
        return bytes(buffer)

    @state.setter
    def state(self, state):
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        self.library.call("generator_set_state", self.handle, buffer, ctypes.c_size_t(len(state)))

    def destroy(self):
        if self.handle:
            self.library.call("generator_destroy", self.handle)
            self.handle = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()
