"""Memory that others register."""

import ctypes
import ctypes.util
import importlib.util
import os
import struct
import unittest
from unittest import mock

import support
import plinth
from plinth import _native, registration, sleeping


def load_nccl():
    """Returns NCCL of the Python package or of the system, None without one."""
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        package = None
    folders = list(package.submodule_search_locations) if package else []
    for path in [*(os.path.join(folder, "lib", "libnccl.so.2") for folder in folders), "libnccl.so.2"]:
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
    return None


class Sharing(unittest.TestCase):
    def test_budget(self):
        memory, name = plinth.memory, f"python-{os.getpid()}"
        self.assertEqual(memory.share_info().processes, 0)
        held = plinth.memory_reserved()
        memory.enable_sharing(budget=held + (64 << 20), floor=1 << 20, name=name)
        info = memory.share_info(0)
        self.assertEqual((info.processes, info.budget, info.floor), (1, held + (64 << 20), 1 << 20))
        with self.assertRaises(plinth.OutOfMemoryError):
            plinth.empty(held + (100 << 20), "uint8")
        with self.assertRaises(ValueError):
            memory.enable_sharing(budget=1, floor=2, name=name)
        memory.disable_sharing()
        self.assertEqual(memory.share_info().processes, 0)


class Registration(unittest.TestCase):
    def test_uses(self):
        buffer = plinth.empty(1 << 20, "uint8")
        uses = registration.uses(buffer)
        self.assertEqual(
            set(uses), {"ipc", "ipc_handle", "fabric", "dma_buf", "gpu_direct_rdma", "nccl", "nccl_window"}
        )
        self.assertIsNone(uses["ipc"])
        self.assertIsNone(uses["dma_buf"])
        self.assertIn("PLINTH_MEM_POOL_GPU_DIRECT_RDMA", uses["gpu_direct_rdma"])
        with self.assertRaises(ValueError):
            registration.uses(0x1000)

    def test_pools(self):
        pools = {"gpu_direct_rdma": "gpu_direct_rdma", "segments": "ipc_handle", "nccl_window": "nccl_window"}
        for option, use in pools.items():
            with plinth.use_mem_pool(plinth.MemPool(**{option: True})):
                buffer = plinth.empty(300 << 20, "uint8")
            self.assertIsNone(registration.uses(buffer)[use], option)
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            plinth.MemPool(fabric=True, segments=True)

    def test_exports(self):
        buffer = plinth.empty(5 << 20, "uint8")
        with registration.MemoryRegistration(buffer, name="adapter") as held:
            exported = held.dma_buf()
            self.assertEqual((exported.offset, exported.size), (buffer.ptr % 4096, 5 << 20))
            os.close(exported.descriptor)
            parts = held.parts()
            self.assertTrue(parts[0].pointer <= buffer.ptr)
            self.assertGreaterEqual(sum(part.size for part in parts), 5 << 20)
            for part in parts:
                os.close(part.handle)
            self.assertFalse(held.is_released)
        held.end()
        with self.assertRaises(plinth.PlinthError):
            held.dma_buf()
        with self.assertRaises(TypeError):
            registration.MemoryRegistration(buffer.ptr)

    def test_sleep(self):
        calls = []
        with sleeping.pool("registered"):
            buffer = plinth.zeros(1 << 20, "uint8")
        held = registration.MemoryRegistration(buffer, release=lambda: calls.append(1))
        with self.assertRaises(plinth.PlinthError):
            sleeping.sleep_memory("registered")
        sleeping.sleep_memory("registered", release_registrations=True)
        self.assertEqual(calls, [1])
        self.assertTrue(held.is_released)
        sleeping.wake_memory("registered")
        fixed = registration.MemoryRegistration(buffer.ptr, 100)
        with self.assertRaises(plinth.PlinthError):
            sleeping.sleep_memory("registered", release_registrations=True)
        fixed.end()

    def test_parts_that_fail(self):
        real, made = _native.lib.plinth_memory_registration_part, []

        def export(handle, index, kind, part):
            if made:
                return _native.PLINTH_ERROR_SYSTEM
            status = real(handle, index, kind, part)
            made.append(part._obj.descriptor)
            return status

        held = registration.MemoryRegistration(plinth.zeros(300 << 20))
        if held._info().parts < 2:
            self.skipTest("the memory is one physical allocation")
        with mock.patch.object(_native.lib, "plinth_memory_registration_part", export):
            with self.assertRaises(plinth.PlinthError):
                held.parts()
        with self.assertRaises(OSError):
            os.fstat(made[0])

    def test_release_ends_with_the_interpreter(self):
        code = """
            import atexit
            @atexit.register  # It runs behind the handlers of plinth.
            def sleep():
                sleeping.sleep_memory("w", release_registrations=True)
                print("asleep")
            import plinth
            from plinth import registration, sleeping
            with sleeping.pool("w"):
                buffer = plinth.zeros(1000)
            held = registration.MemoryRegistration(buffer, release=lambda: print("released"))
        """
        self.assertEqual(support.run_python(code), (0, "asleep\n"))

    def test_nccl(self):
        """A communicator over all devices uses registered memory, first as a buffer, then as a window."""
        nccl = load_nccl() if plinth.device_kind() == "cuda" else None
        if nccl is None or not hasattr(nccl, "ncclCommWindowRegister"):
            self.skipTest("needs GPUs, and NCCL 2.27 or newer")
        devices, pointer = plinth.device_count(), ctypes.c_void_p

        def call(name, *arguments):
            self.assertEqual(getattr(nccl, name)(*arguments), 0, name)

        def on_each(name, arguments):
            call("ncclGroupStart")
            for device in range(devices):
                call(name, *arguments(device))
            call("ncclGroupEnd")

        comms = (pointer * devices)()
        call("ncclCommInitAll", comms, devices, None)
        count = 3 << 20
        buffers = [plinth.zeros(count, "float32", device) for device in range(devices)]
        size = ctypes.c_size_t(4 * count)
        for register, deregister in (
            ("ncclCommRegister", "ncclCommDeregister"),
            ("ncclCommWindowRegister", "ncclCommWindowDeregister"),
        ):
            flags = (1,) if "Window" in register else ()
            held = [registration.MemoryRegistration(buffer, name=register) for buffer in buffers]
            handles = [pointer() for _ in buffers]

            def registered(device, flags=flags, handles=handles):
                address = pointer(buffers[device].ptr)
                return (pointer(comms[device]), address, size, ctypes.byref(handles[device]), *flags)

            on_each(register, registered)
            for device, buffer in enumerate(buffers):
                buffer.fill_(struct.pack("<f", device + 1))
                plinth.synchronize(device)

            def reduced(device):
                address = pointer(buffers[device].ptr)
                kind, sum_of = ctypes.c_int(7), ctypes.c_int(0)
                return (address, address, ctypes.c_size_t(count), kind, sum_of, pointer(comms[device]), pointer(0))

            on_each("ncclAllReduce", reduced)
            for device, buffer in enumerate(buffers):
                plinth.synchronize(device)
                expected = struct.pack("<f", devices * (devices + 1) / 2)
                self.assertEqual(bytes(buffer.tobytes()), expected * count)
                call(deregister, pointer(comms[device]), handles[device])
                held[device].end()
        for comm in comms:
            call("ncclCommDestroy", pointer(comm))


if __name__ == "__main__":
    unittest.main()
