"""The jiterator: functions of tensors from C++ functions of elements: torch.cuda.jiterator.

The code is compiled at the first call with each list of types and each kind of layout, on a GPU with NVRTC, on the host
device with a C++ compiler. Threads may call one function at the same time.
"""

from __future__ import annotations

import numbers
import weakref
from ctypes import POINTER, byref, c_int32, c_int64, c_void_p, pointer
from typing import Any, List, Optional, Sequence, Union

from . import _native, tensor
from ._arguments import StreamLike, integer_argument, result, stream_handle
from ._native import DLDataType, DLTensor, check, lib
from ._release import Unpicklable, release
from .buffer import Buffer, empty


def _scalars(values: dict[str, Any]) -> Any:
    """Converts named numbers to an array of plinth_jit_scalar_t."""
    scalars = (_native.plinth_jit_scalar_t * max(len(values), 1))()
    for scalar, (name, value) in zip(scalars, values.items()):
        scalar.struct_size = _native.plinth_jit_scalar_t.init().struct_size
        scalar.name = name.encode()
        if isinstance(value, bool):
            scalar.kind, scalar.integer = _native.PLINTH_JIT_BOOL, value
        elif isinstance(value, numbers.Integral):
            scalar.kind = _native.PLINTH_JIT_INT
            scalar.integer = integer_argument(int(value), f"the scalar {name} =", -(2**63), 2**63)
        elif isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
            scalar.kind, scalar.real, scalar.imaginary = _native.PLINTH_JIT_COMPLEX, float(value.real), float(value.imag)
        else:
            scalar.kind, scalar.real = _native.PLINTH_JIT_FLOAT, float(value)
    return scalars


class JitFunction(Unpicklable):
    """A function of tensors, made with create_jit_fn or create_multi_output_jit_fn; destroyed when collected."""

    def __init__(self, code: str, num_outputs: Optional[int], scalars: dict[str, Any]) -> None:
        raw = _scalars(scalars)
        if num_outputs is None:
            self._handle = result(c_void_p, lib.plinth_jiterator_create_jit_fn, code.encode(), raw, len(scalars))
        else:
            num_outputs = integer_argument(num_outputs, "num_outputs", 0, 2**31)
            self._handle = result(
                c_void_p, lib.plinth_jiterator_create_multi_output_jit_fn, code.encode(), num_outputs, raw, len(scalars)
            )
        self._num_outputs = num_outputs
        weakref.finalize(self, release, lib.plinth_jiterator_destroy_jit_fn, self._handle).atexit = False

    def __call__(self, *tensors: Any, out: Any = None, stream: StreamLike = None, **scalars: Any) -> Any:
        """Computes the outputs in a stream, by default the current stream of the tensors' device, asynchronously.

        The inputs are buffers or tensors of other libraries on one device; they are broadcast, and converted to their
        common type. Keywords replace the defaults of scalars. `out` is a tensor, or a list of them for several outputs;
        without it new buffers are allocated for the stream. Returns a tensor, or a list of them if the function has
        several outputs.
        """
        views = [tensor.view(item, stream=stream) for item in tensors]
        inputs = (POINTER(DLTensor) * max(len(views), 1))(*(pointer(view.dl) for view in views))
        if out is None:
            made: List[Any] = self._allocate(inputs, views, stream)
        else:
            made = [out] if self._num_outputs is None else list(out)
        targets = [tensor.view(item, writable=True, stream=stream) for item in made]
        outputs = (POINTER(DLTensor) * max(len(targets), 1))(*(pointer(view.dl) for view in targets))
        check(
            lib.plinth_jiterator_call(
                self._handle,
                inputs,
                len(views),
                outputs,
                len(targets),
                _scalars(scalars),
                len(scalars),
                stream_handle(stream),
            )
        )
        return made[0] if self._num_outputs is None else made

    def _allocate(self, inputs: Any, views: Sequence[tensor.TensorView], stream: StreamLike) -> List[Buffer]:
        dtype, ndim, shape = DLDataType(), c_int32(), (c_int64 * 25)()
        check(lib.plinth_jiterator_result(self._handle, inputs, len(views), byref(dtype), byref(ndim), shape))
        extents = tuple(shape[: ndim.value])
        name = tensor.name_of(dtype)
        return [empty(extents, name, views[0].device, stream) for _ in range(self._num_outputs or 1)]


def create_jit_fn(code_string: str, **kwargs: Union[bool, int, float, complex]) -> JitFunction:
    """Makes a function with one output of `template <typename T> T name(T x, ..., T scalar, ...) { ... }`.

    The keywords are the scalars and their defaults, in the order of the template's last parameters. Needs no device.
    Raises ValueError (InvalidArgumentError) for code without such a template.
    """
    return JitFunction(code_string, None, kwargs)


def create_multi_output_jit_fn(
    code_string: str, num_outputs: int, **kwargs: Union[bool, int, float, complex]
) -> JitFunction:
    """Makes a function with several outputs: the template returns void, and its last parameters are `T &out`."""
    return JitFunction(code_string, num_outputs, kwargs)


_create_jit_fn = create_jit_fn
_create_multi_output_jit_fn = create_multi_output_jit_fn
