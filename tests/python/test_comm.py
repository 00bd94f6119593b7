"""Tests collectives between devices of this process: plinth.comm and plinth.nccl."""

import array
import gc
import os
import types
import unittest
from unittest import mock

import support
import plinth
from plinth import comm, nccl


def floats(*numbers, device=0):
    return plinth.to_device(array.array("f", numbers), device)


@support.two_devices
class Comm(unittest.TestCase):
    def test_broadcast(self):
        x = floats(1, 2, 3)
        first, second = comm.broadcast(x, [0, "cuda:1"])
        self.assertIs(first, x)
        self.assertEqual((second.device.index, second.dtype, second.tolist()), (1, "float32", [1, 2, 3]))
        out = [plinth.zeros(3, "float32", 1), plinth.zeros(3, "float32", 0)]
        self.assertEqual(comm.broadcast(array.array("f", [4, 5, 6]), out=out), tuple(out))
        self.assertEqual([tensor.tolist() for tensor in out], [[4, 5, 6]] * 2)
        (copy,) = comm.broadcast(support.DLPackTensor(x), [1])
        self.assertEqual(copy.tolist(), [1, 2, 3])
        for options in ({}, {"devices": [0], "out": out}):
            with self.assertRaises(ValueError):
                comm.broadcast(x, **options)
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            comm.broadcast(x, out=[plinth.zeros(4, "float32", 1)])

    def test_created_outputs_are_freed(self):
        x, before = floats(1, 2, 3), plinth.memory_allocated(1)
        outputs = comm.broadcast(x, [1, 1])
        self.assertEqual(plinth.memory_allocated(1), before + 1024)
        del outputs
        self.assertEqual(plinth.memory_allocated(1), before)

    def test_broadcast_coalesced(self):
        tensors = [floats(1, 2), plinth.to_device(array.array("q", [7]))]
        here, there = comm.broadcast_coalesced(tensors, [0, 1])
        self.assertTrue(here[0] is tensors[0] and here[1] is tensors[1])
        self.assertEqual([(tensor.dtype, tensor.tolist()) for tensor in there], [("float32", [1, 2]), ("int64", [7])])

    def test_reduce_add(self):
        inputs = [floats(1, 2), floats(10, 20, device=1)]
        self.assertEqual(comm.reduce_add(inputs).tolist(), [11, 22])
        total = comm.reduce_add(inputs, 1)
        self.assertEqual((total.device.index, total.tolist()), (1, [11, 22]))
        self.assertIs(comm.reduce_add(inputs[:1]), inputs[0])
        sums = comm.reduce_add_coalesced([inputs[:1], inputs[1:]], 0)
        self.assertEqual([tensor.tolist() for tensor in sums], [[11, 22]])
        with self.assertRaises(ValueError):
            comm.reduce_add_coalesced([inputs, inputs[:1]])
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            comm.reduce_add([inputs[0], floats(1, 2, 3, device=1)])
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            comm.reduce_add([])

    def test_scatter_and_gather(self):
        data = memoryview(array.array("d", range(12)).tobytes()).cast("d", (6, 2))
        parts = comm.scatter(data, [0, 1])
        self.assertEqual([part.tolist() for part in parts], [data.tolist()[:3], data.tolist()[3:]])
        self.assertEqual([part.device.index for part in parts], [0, 1])
        self.assertEqual(comm.gather(parts).tolist(), data.tolist())
        self.assertEqual(comm.gather(parts, destination=1).device.index, 1)
        for cpu in ("cpu", -1, types.SimpleNamespace(type="cpu", index=None)):
            host = comm.gather(parts, destination=cpu)
            self.assertEqual((host.shape, host.tolist()), ((6, 2), data.tolist()))
        out = plinth.zeros((3, 4), "float64")
        self.assertIs(comm.gather(parts, 1, out=out), out)
        self.assertEqual(out.tolist(), [left + right for left, right in zip(parts[0].tolist(), parts[1].tolist())])
        columns = comm.scatter(data, [0, 1], [1, 1], dim=-1, streams=[None, plinth.Stream(1)])
        plinth.synchronize(1)
        self.assertEqual(columns[1].tolist(), [[row[1]] for row in data.tolist()])
        rows = data.shape[0]
        for options in ({"devices": [0], "chunk_sizes": [3, 3]}, {"devices": [0, 1], "streams": [None]}, {},
                        {"devices": [0, 1], "chunk_sizes": [1, 1]}, {"devices": [0, 1], "dim": 2},
                        {"devices": [0, 1], "chunk_sizes": [2**64 + 1, rows - 1]}):
            with self.assertRaises(ValueError, msg=options):
                comm.scatter(data, **options)

    def test_part_of_a_strided_tensor_keeps_it_alive(self):
        x = floats(*range(8))
        rows = support.ArrayInterface(x, shape=(2, 2), strides=(16, 4))
        _, part = comm.scatter(rows, [1, 0])
        self.assertEqual((part.ptr, part.tolist()), (x.ptr + 16, [[4, 5]]))
        before = plinth.memory_allocated(0)
        del x, rows
        gc.collect()
        self.assertEqual((plinth.memory_allocated(0), part.tolist()), (before, [[4, 5]]))
        del part
        gc.collect()
        self.assertLess(plinth.memory_allocated(0), before)

    def test_part_keeps_the_tensor_alive(self):
        x = floats(1, 2, 3, 4)
        part, other = comm.scatter(x, [0, 1])
        self.assertEqual(part.ptr, x.ptr)
        before = plinth.memory_allocated(0)
        del x
        gc.collect()
        self.assertEqual(plinth.memory_allocated(0), before)
        self.assertEqual((part.tolist(), other.tolist()), ([1, 2], [3, 4]))
        del part
        self.assertEqual(plinth.memory_allocated(0), before - 512)


@support.two_devices
class Nccl(unittest.TestCase):
    def test_collectives(self):
        x, y = floats(1, 2), floats(10, 20, device=1)
        self.assertTrue(nccl.is_available([x, y]))
        self.assertFalse(nccl.is_available([x, x]))
        self.assertFalse(nccl.is_available([x, 3]))
        outputs = [plinth.zeros(2, "float32", 0), plinth.zeros(2, "float32", 1)]
        nccl.all_reduce([x, y], outputs)
        self.assertEqual([tensor.tolist() for tensor in outputs], [[11, 22]] * 2)
        nccl.all_reduce([x, y], op="max")
        self.assertEqual(x.tolist(), [10, 20])
        nccl.reduce([x, y], outputs[1], 1)
        self.assertEqual(outputs[1].tolist(), [20, 40])
        nccl.reduce([x, y])
        self.assertEqual(x.tolist(), [20, 40])
        nccl.broadcast([x, y], 0)
        self.assertEqual(y.tolist(), [20, 40])
        gathered = [plinth.zeros(4, "float32", device) for device in (0, 1)]
        nccl.all_gather([x, y], gathered)
        self.assertEqual(gathered[1].tolist(), [20, 40, 20, 40])
        parts = [plinth.zeros(2, "float32", device) for device in (0, 1)]
        nccl.reduce_scatter(gathered, parts, streams=[plinth.current_stream(0), plinth.current_stream(1)])
        self.assertEqual(parts[1].tolist(), [40, 80])
        with self.assertRaises(ValueError):
            nccl.all_reduce([x, y], outputs[:1])
        with self.assertRaises(ValueError):
            nccl.all_reduce([x, y], op="xor")
        self.assertEqual(len(nccl.unique_id()), 128)

    def test_report(self):
        # NCCL is not installed, or not in use.
        with mock.patch.dict(os.environ, NCCL_RAS_ADDR="127.0.0.1:1"):
            with self.assertRaisesRegex(plinth.PlinthError, "NCCL .*not (found|supported)|nobody listens"):
                nccl.report(timeout=0.5)


if __name__ == "__main__":
    unittest.main()
