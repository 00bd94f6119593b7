"""plinth's jiterator from Python, beside the binding of the tests of random numbers.

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
    """A scalar of the kind that PyTorch takes the value for."""
    made = Scalar(struct_size=ctypes.sizeof(Scalar), name=name.encode())
    if isinstance(value, bool):
        made.kind, made.integer = BOOL, int(value)
    elif isinstance(value, int):
        made.kind, made.integer = INT, value
    elif isinstance(value, float):
        made.kind, made.real = FLOAT, value
    else:
        made.kind, made.real, made.imaginary = COMPLEX, value.real, value.imag
    return made


def scalars(values):
    return (Scalar * max(1, len(values)))(*[scalar(name, value) for name, value in values.items()])


def pointers(tensors):
    return (ctypes.POINTER(plinth.DLTensor) * max(1, len(tensors)))(*[ctypes.pointer(tensor) for tensor in tensors])


class Function:
    """A jiterated function, destroyed with the object. `outputs` for one whose outputs are parameters."""

    def __init__(self, library, code, outputs=None, **declared):
        self.library, self.handle = library, ctypes.c_void_p()
        given = scalars(declared), ctypes.c_size_t(len(declared)), ctypes.byref(self.handle)
        if outputs is None:
            library.call("jiterator_create_jit_fn", code.encode(), *given)
        else:
            library.call("jiterator_create_multi_output_jit_fn", code.encode(), ctypes.c_int32(outputs), *given)

    def prepared(self, inputs, outputs, stream=None, **values):
        """A call with everything in C's form, for those who time it."""
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
