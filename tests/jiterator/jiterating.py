"""A Python binding of plinth's jiterator, an addition to that in tests/random.

    add = Function(library, "template <typename T> T add(T x, T y) { return x + y; }")
    add.call([x, y], [out])        # descriptors of plinth.descriptor
"""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "random"))

import plinth

BOOL, INT, FLOAT, COMPLEX = range(4)


class Scalar(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("kind", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("integer", ctypes.c_int64), ("real", ctypes.c_double), ("imaginary", ctypes.c_double)]


def scalar(name, value):
    """Returns a scalar of the kind that PyTorch uses for the value."""
    result = Scalar(struct_size=ctypes.sizeof(Scalar), name=name.encode())
    if isinstance(value, bool):
        result.kind, result.integer = BOOL, int(value)
    elif isinstance(value, int):
        result.kind, result.integer = INT, value
    elif isinstance(value, float):
        result.kind, result.real = FLOAT, value
    else:
        result.kind, result.real, result.imaginary = COMPLEX, value.real, value.imag
    return result


def scalars(values):
    return (Scalar * max(1, len(values)))(*[scalar(name, value) for name, value in values.items()])


def pointers(tensors):
    return (ctypes.POINTER(plinth.DLTensor) * max(1, len(tensors)))(*[ctypes.pointer(tensor) for tensor in tensors])


class Function:
    """A jiterator function, destroyed with the object. `outputs` is the number of outputs that are parameters, or None."""

    def __init__(self, library, code, outputs=None, **declared):
        self.library, self.handle = library, ctypes.c_void_p()
        given = scalars(declared), ctypes.c_size_t(len(declared)), ctypes.byref(self.handle)
        if outputs is None:
            library.call("jiterator_create_jit_fn", code.encode(), *given)
        else:
            library.call("jiterator_create_multi_output_jit_fn", code.encode(), ctypes.c_int32(outputs), *given)

    def prepared(self, inputs, outputs, stream=None, **values):
        """Returns the C function and the converted arguments of a call, so that the call alone can be timed."""
        function = self.library.function("jiterator_call")
        arguments = (self.handle, pointers(inputs), ctypes.c_size_t(len(inputs)), pointers(outputs),
                     ctypes.c_size_t(len(outputs)), scalars(values), ctypes.c_size_t(len(values)), stream)
        return function, arguments

    def call(self, inputs, outputs, stream=None, **values):
        _, arguments = self.prepared(inputs, outputs, stream, **values)
        self.library.call("jiterator_call", *arguments)

    def __del__(self):
        if self.handle:
            self.library.function("jiterator_destroy_jit_fn")(self.handle)
