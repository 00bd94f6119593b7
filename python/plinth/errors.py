"""The exceptions of plinth. All derive from PlinthError, which is a RuntimeError, as the errors of torch.cuda are."""

from typing import Dict, Type

from . import _bindings as c

__all__ = [
    "PlinthError", "OutOfMemoryError", "InvalidArgumentError", "NotSupportedError", "UnavailableError", "DeviceLostError",
    "GraphError", "CommunicatorError", "WaitTimeoutError", "MemoryCorruptedError", "RaceError", "CompilationError",
]


class PlinthError(RuntimeError):
    """A call of plinth failed.

    The text says what was attempted, why it failed and what to do. `status` is the number of the PLINTH_ERROR_
    constant, `name` its name, and `driver_code` the CUresult of the driver call that failed, or 0.
    """

    def __init__(
        self,
        message: str,
        status: int = c.PLINTH_ERROR_INVALID_VALUE,
        name: str = "PLINTH_ERROR_INVALID_VALUE",
        driver_code: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.driver_code = driver_code


class OutOfMemoryError(PlinthError, MemoryError):
    """There is not enough free memory for the request. Also a MemoryError."""


class InvalidArgumentError(PlinthError, ValueError):
    """An argument is out of range, malformed, destroyed, or belongs to another device. Also a ValueError."""


class NotSupportedError(PlinthError, NotImplementedError):
    """The device, its driver or the kind of memory does not support this. Also a NotImplementedError."""


class UnavailableError(PlinthError):
    """A device, a driver, or a library that plinth loads when it is needed, is missing or too old."""


class DeviceLostError(PlinthError):
    """Work on the device failed, and the device's context is lost. The process must be started anew."""


class GraphError(PlinthError):
    """A capture, or an operation of a graph, is not possible in this state."""


class CommunicatorError(PlinthError):
    """A communicator failed: a rank ended, aborted, or made another call."""


class WaitTimeoutError(PlinthError, TimeoutError):
    """A wait for other processes or ranks timed out. Also a TimeoutError."""


class MemoryCorruptedError(PlinthError):
    """Guard bytes around an allocation were overwritten."""


class RaceError(PlinthError):
    """The sanitizer found accesses to memory without synchronization."""


class CompilationError(PlinthError):
    """The source of a kernel does not compile. The text has the compiler's log."""


# The exception of each status; PlinthError for all others.
_CLASSES: Dict[int, Type[PlinthError]] = {
    c.PLINTH_ERROR_OUT_OF_MEMORY: OutOfMemoryError,
    c.PLINTH_ERROR_NOT_SUPPORTED: NotSupportedError,
    c.PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED: NotSupportedError,
    c.PLINTH_ERROR_IPC_NOT_SHAREABLE: NotSupportedError,
    c.PLINTH_ERROR_TIMED_OUT: WaitTimeoutError,
    c.PLINTH_ERROR_MEMORY_CORRUPTED: MemoryCorruptedError,
    c.PLINTH_ERROR_RACE: RaceError,
    c.PLINTH_ERROR_COMPILATION_FAILED: CompilationError,
    c.PLINTH_ERROR_ILLEGAL_ADDRESS: DeviceLostError,
    c.PLINTH_ERROR_LAUNCH_FAILED: DeviceLostError,
    **dict.fromkeys((
        c.PLINTH_ERROR_INVALID_VALUE, c.PLINTH_ERROR_NULL_POINTER, c.PLINTH_ERROR_INVALID_DEVICE,
        c.PLINTH_ERROR_INVALID_HANDLE, c.PLINTH_ERROR_INVALID_POINTER, c.PLINTH_ERROR_DEVICE_MISMATCH,
    ), InvalidArgumentError),
    **dict.fromkeys((
        c.PLINTH_ERROR_NO_DEVICE, c.PLINTH_ERROR_DRIVER_TOO_OLD, c.PLINTH_ERROR_STUB_LIBRARY,
        c.PLINTH_ERROR_NCCL_UNAVAILABLE, c.PLINTH_ERROR_NVML_UNAVAILABLE, c.PLINTH_ERROR_LIBRARY_UNAVAILABLE,
        c.PLINTH_ERROR_COMPILER_UNAVAILABLE,
    ), UnavailableError),
    **dict.fromkeys((
        c.PLINTH_ERROR_CAPTURE_FORBIDS, c.PLINTH_ERROR_CAPTURE_INVALIDATED, c.PLINTH_ERROR_GENERATOR_NOT_REGISTERED,
        *(value for name, value in vars(c).items() if name.startswith("PLINTH_ERROR_GRAPH_")),
    ), GraphError),
    **dict.fromkeys((
        c.PLINTH_ERROR_PEER_LOST, c.PLINTH_ERROR_ABORTED, c.PLINTH_ERROR_RANK_MISMATCH, c.PLINTH_ERROR_NCCL,
        c.PLINTH_ERROR_COMMUNICATOR_NOT_READY,
    ), CommunicatorError),
}


# The CUresults after which the context is lost. Most have the status PLINTH_ERROR_DRIVER.
_CONTEXT_LOST = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719}


def class_of(status: int, driver_code: int = 0) -> Type[PlinthError]:
    """Returns the exception class of a status and of the CUresult of the driver call that failed."""
    if status == c.PLINTH_ERROR_DRIVER and driver_code in _CONTEXT_LOST:
        return DeviceLostError
    return _CLASSES.get(status, PlinthError)
