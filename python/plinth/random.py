"""Random numbers: the generators of torch.cuda, and fills of any tensor on a device.

The same seed gives the numbers that PyTorch generates on the same GPU model. Threads that share a generator get
different numbers, in the order of their calls. A tensor is a plinth.Buffer or has DLPack or `__cuda_array_interface__`;
it is filled asynchronously in a stream, by default the calling thread's current stream on its device, and must live
until then.
"""

from __future__ import annotations

import numbers
import weakref
from ctypes import byref, c_uint8, c_uint64
from typing import Any, List, Optional, Sequence, Tuple, TypeVar

from . import _native, tensor
from ._arguments import DeviceLike, StreamLike, device_index, integer_argument, result, stream_handle
from ._native import c_int32, c_void_p, check, lib
from ._release import release
from .device import device as Device
from .device import device_count

__all__ = [
    "Generator",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

T = TypeVar("T")


def _seed(seed: int) -> int:
    """Converts a seed, from -2^63 to 2^64 - 1 as in torch, to 64 bits."""
    seed = int(seed)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"the seed {seed} is not in -2^63 to 2^64 - 1")
    return seed & (2**64 - 1)


def manual_seed(seed: int) -> None:
    """Seeds the current device's default generator. Does not fail without a device: the seed is kept for later."""
    check(lib.plinth_manual_seed(_seed(seed)))


def manual_seed_all(seed: int) -> None:
    """Seeds the default generators of all devices."""
    check(lib.plinth_manual_seed_all(_seed(seed)))


def seed() -> None:
    """Seeds the current device's default generator with a seed from the operating system."""
    check(lib.plinth_seed())


def seed_all() -> None:
    """Seeds the default generators of all devices with one seed from the operating system."""
    check(lib.plinth_seed_all())


def initial_seed() -> int:
    """Returns the seed of the current device's default generator."""
    return int(result(c_uint64, lib.plinth_initial_seed))


def _state_bytes(state: Any) -> Any:
    data = bytes(memoryview(state)) if not hasattr(state, "numpy") else bytes(state.numpy())
    if len(data) != _native.PLINTH_RNG_STATE_SIZE:
        raise ValueError(f"a state has {_native.PLINTH_RNG_STATE_SIZE} bytes, not {len(data)}")
    return (c_uint8 * len(data)).from_buffer_copy(data)


def get_rng_state(device: DeviceLike = "cuda") -> bytes:
    """Returns the state of a device's default generator: the 16 bytes that torch's has."""
    data = (c_uint8 * _native.PLINTH_RNG_STATE_SIZE)()
    check(lib.plinth_get_rng_state(device_index(device), data))
    return bytes(data)


def set_rng_state(new_state: Any, device: DeviceLike = "cuda") -> None:
    """Sets the state of a device's default generator, from get_rng_state or torch.cuda.get_rng_state."""
    check(lib.plinth_set_rng_state(device_index(device), _state_bytes(new_state)))


def get_rng_state_all() -> List[bytes]:
    """Returns the states of all devices' default generators."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Sequence[Any]) -> None:
    """Sets the states of the first devices' default generators. If one is malformed, none is set."""
    states = b"".join(bytes(_state_bytes(state)) for state in new_states)
    check(lib.plinth_set_rng_state_all((c_uint8 * len(states)).from_buffer_copy(states), len(new_states)))


class Generator:
    """A generator of random numbers for tensors of a device, with a seed and an offset.

    A new generator has PyTorch's default seed. It is destroyed when the object is collected; graphs that use it keep
    its state.
    """

    def __init__(self, device: DeviceLike = None) -> None:
        self._own(result(c_void_p, lib.plinth_generator_create, device_index(device)))

    def _own(self, handle: int) -> None:
        self._handle = handle
        weakref.finalize(self, release, lib.plinth_generator_destroy, handle).atexit = False

    @classmethod
    def _wrap(cls, handle: int, owned: bool) -> "Generator":
        generator = object.__new__(cls)
        if owned:
            generator._own(handle)
        else:
            generator._handle = handle
        return generator

    @property
    def device(self) -> Device:
        """The generator's device, as an object with `index`."""
        return Device(result(c_int32, lib.plinth_generator_device, self._handle))

    def manual_seed(self, seed: int) -> "Generator":
        """Sets the seed, and the offset to 0, and returns the generator."""
        check(lib.plinth_generator_manual_seed(self._handle, _seed(seed)))
        return self

    def seed(self) -> int:
        """Sets a seed from the operating system, and returns it."""
        return int(result(c_uint64, lib.plinth_generator_seed, self._handle))

    def initial_seed(self) -> int:
        """Returns the seed."""
        return int(result(c_uint64, lib.plinth_generator_initial_seed, self._handle))

    def get_state(self) -> bytes:
        """Returns the seed and the offset as 16 bytes, the format of torch."""
        data = (c_uint8 * _native.PLINTH_RNG_STATE_SIZE)()
        check(lib.plinth_generator_get_state(self._handle, data))
        return bytes(data)

    def set_state(self, new_state: Any) -> "Generator":
        """Sets the seed and the offset, and returns the generator."""
        data = _state_bytes(new_state)
        check(lib.plinth_generator_set_state(self._handle, data, len(data)))
        return self

    def get_offset(self) -> int:
        """Returns the offset: how many numbers were drawn, rounded up to 4."""
        return int(result(c_uint64, lib.plinth_generator_get_offset, self._handle))

    def set_offset(self, offset: int) -> "Generator":
        """Sets the offset, a multiple of 4, and returns the generator."""
        offset = integer_argument(offset, "the offset", 0, 2**64)
        check(lib.plinth_generator_set_offset(self._handle, offset))
        return self

    def clone_state(self) -> "Generator":
        """Returns a new generator with a copy of the state."""
        return self._wrap(result(c_void_p, lib.plinth_generator_clone, self._handle), True)

    def graphsafe_get_state(self) -> "Generator":
        """Returns a generator that shares this one's state."""
        return self._wrap(result(c_void_p, lib.plinth_generator_graphsafe_get_state, self._handle), True)

    def graphsafe_set_state(self, state: "Generator") -> "Generator":
        """Makes this generator share the state of another, and returns this one."""
        check(lib.plinth_generator_graphsafe_set_state(self._handle, state._handle))
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a generator cannot be pickled; use get_state()")


def default_generator(device: DeviceLike = None) -> Generator:
    """Returns the default generator of a device, which belongs to the library."""
    return Generator._wrap(result(c_void_p, lib.plinth_default_generator, device_index(device)), False)


def default_generators() -> Tuple[Generator, ...]:
    """Returns the default generators of all devices; torch's tuple of this name, read when it is needed."""
    return tuple(default_generator(index) for index in range(device_count()))


def _fill(function: Any, target: T, arguments: Sequence[Any], generator: Optional[Generator], stream: StreamLike) -> T:
    with tensor.view(target, writable=True, stream=stream) as view:
        handle = None if generator is None else generator._handle
        check(function(byref(view.dl), *arguments, handle, stream_handle(stream)))
    return target


def uniform_(
    tensor: T, low: float = 0.0, high: float = 1.0, generator: Optional[Generator] = None, stream: StreamLike = None
) -> T:
    """Fills a floating-point or complex tensor with uniform numbers in [low, high), and returns it."""
    return _fill(lib.plinth_uniform, tensor, (low, high), generator, stream)


def normal_(
    tensor: T, mean: float = 0.0, std: float = 1.0, generator: Optional[Generator] = None, stream: StreamLike = None
) -> T:
    """Fills a floating-point or complex tensor with normally distributed numbers, and returns it."""
    return _fill(lib.plinth_normal, tensor, (mean, std), generator, stream)


def log_normal_(
    tensor: T, mean: float = 1.0, std: float = 2.0, generator: Optional[Generator] = None, stream: StreamLike = None
) -> T:
    """Fills a floating-point tensor with exponentials of normally distributed numbers, and returns it."""
    return _fill(lib.plinth_log_normal, tensor, (mean, std), generator, stream)


def exponential_(tensor: T, lambd: float = 1.0, generator: Optional[Generator] = None, stream: StreamLike = None) -> T:
    """Fills a floating-point tensor with exponentially distributed numbers of a rate, and returns it."""
    return _fill(lib.plinth_exponential, tensor, (lambd,), generator, stream)


def cauchy_(
    tensor: T, median: float = 0.0, sigma: float = 1.0, generator: Optional[Generator] = None, stream: StreamLike = None
) -> T:
    """Fills a floating-point tensor with Cauchy-distributed numbers, and returns it."""
    return _fill(lib.plinth_cauchy, tensor, (median, sigma), generator, stream)


def geometric_(tensor: T, p: float, generator: Optional[Generator] = None, stream: StreamLike = None) -> T:
    """Fills a tensor with the numbers of trials, of success probability p, until the first success, and returns it."""
    return _fill(lib.plinth_geometric, tensor, (p,), generator, stream)


def bernoulli_(tensor: T, p: Any = 0.5, generator: Optional[Generator] = None, stream: StreamLike = None) -> T:
    """Fills a tensor with ones, with probability p, and zeros, and returns it.

    p is a number or a tensor of probabilities, which is broadcast to the tensor's shape.
    """
    if isinstance(p, numbers.Real):
        return _fill(lib.plinth_bernoulli, tensor, (p,), generator, stream)
    with _view(p, stream=stream) as probabilities:
        return _fill(lib.plinth_bernoulli_tensor, tensor, (byref(probabilities.dl),), generator, stream)


def random_(
    tensor: T,
    low: Optional[int] = None,
    high: Optional[int] = None,
    generator: Optional[Generator] = None,
    stream: StreamLike = None,
) -> T:
    """Fills a tensor with uniformly distributed integers, and returns it.

    random_(x) takes all numbers from 0 that the type represents exactly, random_(x, n) those in [0, n), and
    random_(x, low, high) those in [low, high).
    """
    if low is None:
        if high is not None:
            raise TypeError("random_: high needs low")
        return _fill(lib.plinth_random, tensor, (), generator, stream)
    bounds = (0, low) if high is None else (low, high)
    if any(not -(2**63) <= bound < 2**63 for bound in bounds) or bounds[1] == -(2**63):
        raise ValueError(f"random_: the range {bounds} does not fit in 64 bits")
    return _fill(lib.plinth_random_range, tensor, bounds, generator, stream)


def randperm_(tensor: T, generator: Optional[Generator] = None, stream: StreamLike = None) -> T:
    """Writes a random permutation of 0 to n - 1 to a tensor of one dimension and n elements, and returns it."""
    return _fill(lib.plinth_randperm, tensor, (), generator, stream)


_view = tensor.view
