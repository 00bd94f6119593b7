"""Telemetry: what a device is doing now. GPUs are read through NVML, the host device through Linux.

A `device` argument is None for the current device. No function waits for a device. Raises UnavailableError without
NVML, and NotSupportedError for a reading that the device lacks.
"""

from __future__ import annotations

import weakref
from ctypes import byref, c_uint32, c_uint64
from typing import Any, List, NamedTuple, Optional, Tuple

from . import _native
from ._arguments import DeviceLike, device_index, integer_argument, result, take_text
from ._native import c_size_t, c_void_p, check, lib
from ._release import Unpicklable, release


def utilization(device: DeviceLike = None) -> int:
    """Returns the percentage of time in which at least one kernel ran, over the GPU's sample period, 1/6 to 1 s."""
    return int(result(c_uint32, lib.plinth_utilization, device_index(device)))


def memory_usage(device: DeviceLike = None) -> int:
    """Returns the percentage of time in which memory was read or written; not the fraction in use."""
    return int(result(c_uint32, lib.plinth_memory_usage, device_index(device)))


def temperature(device: DeviceLike = None) -> int:
    """Returns the temperature in degrees Celsius."""
    return int(result(c_uint32, lib.plinth_temperature, device_index(device)))


def power_draw(device: DeviceLike = None) -> int:
    """Returns the power draw in milliwatts."""
    return int(result(c_uint32, lib.plinth_power_draw, device_index(device)))


def clock_rate(device: DeviceLike = None) -> int:
    """Returns the clock rate of the multiprocessors in MHz."""
    return int(result(c_uint32, lib.plinth_clock_rate, device_index(device)))


def device_memory_used(device: DeviceLike = None) -> int:
    """Returns the bytes of the device's memory that all processes use."""
    return int(result(c_uint64, lib.plinth_device_memory_used, device_index(device)))


def energy_used(device: DeviceLike = None) -> int:
    """Returns the energy in millijoules since the driver was loaded."""
    return int(result(c_uint64, lib.plinth_energy_used, device_index(device)))


def throttle_reasons(device: DeviceLike = None) -> str:
    """Returns why the clocks are reduced, as a text."""
    return take_text(
        lib.plinth_throttle_reasons_text, result(c_uint64, lib.plinth_throttle_reasons, device_index(device))
    )


def list_gpu_processes(device: DeviceLike = None) -> str:
    """Returns the processes of a device and their memory, as torch formats them."""
    return take_text(lib.plinth_list_gpu_processes, device_index(device))


class GpuProcess(NamedTuple):
    """A process with a context on a device; the memory is in bytes."""

    pid: int
    memory_used: int


def gpu_processes(device: DeviceLike = None) -> List[GpuProcess]:
    """Returns the processes that have a context on a device."""
    found: List[GpuProcess] = []

    def add(process: Any, context: Any) -> None:
        found.append(GpuProcess(process[0].pid, process[0].memory_used))

    check(lib.plinth_gpu_processes_each(device_index(device), _native.plinth_gpu_process_callback_t(add), None))
    return found


class Telemetry(NamedTuple):
    """Readings of a device at one time; None for one that the device lacks.

    Time in microseconds since 1970, utilization and memory_usage in percent, temperature in degrees Celsius, power_draw
    in milliwatts, clock rates in MHz, memory_used in bytes, energy in millijoules, throttle_reasons as PLINTH_THROTTLE_
    bits.
    """

    time_us: int
    utilization: Optional[int]
    memory_usage: Optional[int]
    temperature: Optional[int]
    power_draw: Optional[int]
    clock_rate: Optional[int]
    memory_clock_rate: Optional[int]
    memory_used: Optional[int]
    energy: Optional[int]
    throttle_reasons: Optional[int]


def _telemetry(raw: Any) -> Telemetry:
    def reading(field: str) -> Optional[int]:
        valid = raw.valid & getattr(_native, "PLINTH_TELEMETRY_" + field.upper())
        return int(getattr(raw, field)) if valid else None

    return Telemetry(raw.time_us, *(reading(field) for field in Telemetry._fields[1:]))


def read_telemetry(device: DeviceLike = None) -> Telemetry:
    """Reads everything at once."""
    raw = _native.plinth_telemetry_t.init()
    check(lib.plinth_read_telemetry(device_index(device), byref(raw)))
    return _telemetry(raw)


class TelemetrySampler(Unpicklable):
    """Reads a device every `interval_ms` milliseconds, in a thread of the library that needs no GIL.

    Up to `capacity` readings wait for take(); older ones are lost. An expensive reading is None in most of them.
    close(), the end of a `with` block, or the object's collection ends the thread.
    """

    def __init__(self, device: DeviceLike = None, interval_ms: int = 100, capacity: int = 1024) -> None:
        self._capacity = integer_argument(capacity, "the capacity", 1, 2**31)
        self._handle = result(
            c_void_p, lib.plinth_telemetry_sampler_create, device_index(device), interval_ms, capacity
        )
        self._finalizer = weakref.finalize(self, release, lib.plinth_telemetry_sampler_destroy, self._handle)
        self._finalizer.atexit = False

    def take(self) -> Tuple[List[Telemetry], int]:
        """Returns the readings since the last call, oldest first, and how many were lost."""
        raw = (_native.plinth_telemetry_t * self._capacity)()
        raw[0] = _native.plinth_telemetry_t.init()
        count, lost = c_size_t(), c_uint64()
        check(lib.plinth_telemetry_sampler_take(self._handle, raw, self._capacity, byref(count), byref(lost)))
        return [_telemetry(raw[i]) for i in range(count.value)], lost.value

    def close(self) -> None:
        """Ends the thread. Repeated calls do nothing."""
        self._finalizer()

    def __enter__(self) -> "TelemetrySampler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
