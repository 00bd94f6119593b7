"""Memory that others register."""

import os
import unittest

import plinth
from plinth import registration, sleeping


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
        pools = {"gpu_direct_rdma": "gpu_direct_rdma", "segments": "ipc_handle"}
        for option, use in pools.items():
            with plinth.use_mem_pool(plinth.MemPool(**{option: True})):
                buffer = plinth.empty(1 << 20, "uint8")
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


if __name__ == "__main__":
    unittest.main()
