"""Handles of CUDA's libraries for the current stream, to pass to their own Python packages."""

from __future__ import annotations

from ._arguments import result
from ._native import c_void_p, lib


def current_blas_handle() -> int:
    """Returns the cublasHandle_t for the current device, stream and thread; it belongs to the library.

    Raises UnavailableError without cuBLAS, and NotSupportedError on the host device.
    """
    return int(result(c_void_p, lib.plinth_current_blas_handle))


def current_solver_handle() -> int:
    """Returns the cusolverDnHandle_t for the current device, stream and thread; it belongs to the library.

    Raises UnavailableError without cuSOLVER, and NotSupportedError on the host device.
    """
    return int(result(c_void_p, lib.plinth_current_solver_handle))
