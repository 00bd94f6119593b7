"""Shared by the tests of the Python layer. Import it before plinth: it gives the host device two devices."""

import os
import signal
import subprocess
import sys
import textwrap
import unittest

os.environ.setdefault("PLINTH_HOST_DEVICES", "2")
# A command that a script runs in the background ignores SIGINT, and so do its children, unless this is done.
signal.signal(signal.SIGINT, signal.default_int_handler)

import plinth  # noqa: E402
from plinth import _dlpack  # noqa: E402

# A GPU machine may have one device only.
LAST = max(plinth.device_count(), 1) - 1
two_devices = unittest.skipIf(LAST == 0, "there is one device")
host_device = unittest.skipIf(plinth.device_kind() != "host", "it is a test of the host device")

FOLDER = os.path.dirname(os.path.dirname(plinth.__file__))


def run_python(code, timeout=60, **environment):
    """Runs code in a process of its own, and returns its exit status and its output and errors, in the order written."""
    environment = {**os.environ, "PYTHONPATH": FOLDER, "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run([sys.executable, "-u", "-c", textwrap.dedent(code)], env=environment, timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class DLPackTensor:
    """A tensor of another library on a CUDA device, over a buffer's memory."""

    def __init__(self, buffer, versioned=False, flags=0):
        self.buffer = buffer
        self.versioned = versioned
        self.flags = flags
        self.streams = []

    def __dlpack_device__(self):
        return 2, self.buffer.device.index

    def __dlpack__(self, stream=None, **options):
        if options and not self.versioned:
            raise TypeError("an old producer does not know max_version")
        self.streams.append(stream)
        capsule = _dlpack.export(self.buffer, self.__dlpack_device__(), self.versioned)
        if self.versioned:
            from plinth import tensor

            address = tensor._capsule_pointer(capsule, b"dltensor_versioned")
            tensor.ManagedTensorVersioned.from_address(address).flags = self.flags
        return capsule


class ArrayInterface:
    """A tensor of another library with __cuda_array_interface__ over a buffer's memory."""

    def __init__(self, buffer, **changes):
        self.__cuda_array_interface__ = {**buffer.__cuda_array_interface__, **changes}
        self.buffer = buffer
