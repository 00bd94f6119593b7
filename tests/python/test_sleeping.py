"""Tests plinth.sleeping: contents and addresses over cycles, what is released, tags, threads, backups and errors."""

import os
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import support
import plinth
import plinth.torch
from plinth import errors, sleeping

SIZE = 5 << 20


class Cases(unittest.TestCase):
    """Gives each test tags of its own, wakes them at its end, and frees its buffers."""

    def setUp(self):
        self.addCleanup(sleeping.wake_memory)
        self.buffers = []
        self.addCleanup(self.buffers.clear)

    def tag(self, name="memory"):
        return f"{self.id()}.{name}"

    def allocate(self, tag, seed=1, device=None):
        """Allocates memory in the tag's pool, and returns it with its contents."""
        with sleeping.pool(tag, device):
            buffer = plinth.empty(SIZE, device=device)
        contents = bytes((i * 31 + seed) % 251 for i in range(4096)) * (SIZE // 4096)
        buffer.copy_from(contents)
        self.buffers.append(buffer)
        return buffer, contents


class Contents(Cases):
    def test_every_backup_keeps_contents_and_addresses(self):
        for backup in ("pinned", "pageable", "file"):
            with self.subTest(backup=backup):
                tag = self.tag(backup)
                buffer, contents = self.allocate(tag, seed=len(backup))
                pointer = buffer.ptr
                for _ in range(2):
                    sleeping.sleep_memory(tag, backup)
                    info = sleeping.sleep_info(tag)
                    self.assertEqual((info.pools, info.pools_asleep, info.mapped_bytes), (1, 1, 0))
                    self.assertGreaterEqual(info.asleep_bytes, SIZE)
                    self.assertGreaterEqual(info.saved_bytes, SIZE)
                    self.assertGreaterEqual(info.backup_bytes, info.saved_bytes)
                    # Memory with other contents takes what was released.
                    plinth.empty(2 * SIZE).fill_(0xEE).free()
                    sleeping.wake_memory(tag)
                    info = sleeping.sleep_info(tag)
                    self.assertEqual((info.pools_asleep, info.asleep_bytes, info.saved_bytes), (0, 0, 0))
                    self.assertGreaterEqual(info.mapped_bytes, SIZE)
                    self.assertEqual((buffer.ptr, buffer.tobytes()), (pointer, contents))

    def test_without_a_backup_nothing_is_saved(self):
        buffer, _ = self.allocate(self.tag())
        sleeping.sleep_memory(self.tag(), "none")
        info = sleeping.sleep_info(self.tag())
        self.assertEqual((info.pools_asleep, info.saved_bytes, info.backup_bytes), (1, 0, 0))
        sleeping.wake_memory(self.tag())
        self.assertEqual(set(buffer.fill_(7).tobytes()), {7})

    def test_backup_in_a_folder(self):
        buffer, contents = self.allocate(self.tag())
        with tempfile.TemporaryDirectory() as folder:
            sleeping.sleep_memory(self.tag(), "file", folder)
            sleeping.wake_memory(self.tag())
            self.assertEqual(buffer.tobytes(), contents)
        with self.assertRaises(plinth.PlinthError):
            sleeping.sleep_memory(self.tag(), "file", os.path.join(folder, "missing"))
        self.assertEqual(buffer.tobytes(), contents)

    @support.two_devices
    def test_all_devices(self):
        buffers = [self.allocate(self.tag(), seed, device) for seed, device in ((1, 0), (2, 1))]
        before = [plinth.memory_reserved(device) for device in (0, 1)]
        sleeping.sleep_memory(self.tag())
        for device in (0, 1):
            self.assertLessEqual(plinth.memory_reserved(device), before[device] - SIZE)
        sleeping.wake_memory(self.tag())
        for buffer, contents in buffers:
            self.assertEqual(buffer.tobytes(), contents)

    def test_memory_is_released_and_allocated_again(self):
        self.allocate(self.tag())
        before = plinth.memory_reserved()
        sleeping.sleep_memory(self.tag())
        self.assertEqual(plinth.memory_reserved(), before - sleeping.sleep_info(self.tag()).asleep_bytes)
        sleeping.wake_memory(self.tag())
        self.assertEqual(plinth.memory_reserved(), before)

    def test_a_block_is_freed_while_it_sleeps(self):
        buffer, _ = self.allocate(self.tag())
        kept, contents = self.allocate(self.tag(), seed=9)
        before = plinth.memory_allocated()
        sleeping.sleep_memory(self.tag())
        buffer.free()
        self.assertEqual(plinth.memory_allocated(), before - SIZE)
        sleeping.wake_memory(self.tag())
        self.assertEqual(kept.tobytes(), contents)


class Tags(Cases):
    def test_each_tag_sleeps_alone(self):
        first, contents = self.allocate(self.tag("first"))
        second, _ = self.allocate(self.tag("second"), seed=2)
        sleeping.sleep_memory(self.tag("second"))
        self.assertEqual(sleeping.sleep_info(self.tag("first")).pools_asleep, 0)
        self.assertEqual(first.tobytes(), contents)
        sleeping.sleep_memory([self.tag("first"), self.tag("second")])
        self.assertEqual(sleeping.sleep_info((self.tag("first"), self.tag("second")))[:2], (2, 2))
        sleeping.wake_memory(self.tag("first"))
        self.assertEqual(sleeping.sleep_info([self.tag("second")]).pools_asleep, 1)
        self.assertEqual(first.tobytes(), contents)
        self.assertLess(sleeping.known_tags().index(self.tag("first")), sleeping.known_tags().index(self.tag("second")))

    def test_none_is_every_tag(self):
        self.allocate(self.tag("first"))
        self.allocate(self.tag("second"))
        sleeping.sleep_memory(backup="pageable")
        info = sleeping.sleep_info()
        self.assertEqual(info.pools, info.pools_asleep)
        self.assertGreaterEqual(info.pools, 2)
        sleeping.wake_memory()
        self.assertEqual(sleeping.sleep_info().pools_asleep, 0)

    def test_states_are_kept(self):
        buffer, contents = self.allocate(self.tag())
        sleeping.wake_memory(self.tag())
        sleeping.sleep_memory(self.tag())
        sleeping.sleep_memory(self.tag(), "none")
        self.assertGreaterEqual(sleeping.sleep_info(self.tag()).saved_bytes, SIZE)
        sleeping.wake_memory(self.tag())
        sleeping.wake_memory(self.tag())
        self.assertEqual(buffer.tobytes(), contents)

    def test_wrong_arguments(self):
        with sleeping.pool(self.tag()):
            pass
        for function in (sleeping.sleep_memory, sleeping.wake_memory, sleeping.sleep_info, sleeping.wait_awake,
                         sleeping.alloc_backup, sleeping.free_backup, sleeping.wake):
            with self.subTest(function=function.__name__):
                with self.assertRaisesRegex(errors.InvalidArgumentError, "never-used"):
                    function([self.tag(), "never-used"])
                for tags in ((), "", "a,b", ["a", ""]):
                    with self.assertRaises(ValueError):
                        function(tags)
        self.assertEqual(sleeping.sleep_info(self.tag()).pools_asleep, 0)
        for tag in ("", "a,b"):
            with self.assertRaises(ValueError):
                sleeping.pool(tag).__enter__()
        with self.assertRaisesRegex(ValueError, "the backup 'disk' is not one of none, pinned, pageable, file"):
            sleeping.sleep_memory(self.tag(), "disk")
        with self.assertRaisesRegex(ValueError, "a folder is for"):
            sleeping.sleep_memory(self.tag(), "pinned", "/tmp")

    def test_a_pool_of_the_program(self):
        pool = plinth.MemPool()
        self.assertIsNone(pool.tag)
        pool.tag = self.tag()
        self.assertEqual(pool.tag, self.tag())
        with plinth.use_mem_pool(pool):
            buffer = plinth.zeros(SIZE)
        sleeping.sleep_memory(self.tag())
        self.assertNotIn(self.tag(), sleeping.known_tags())
        sleeping.wake_memory(self.tag())
        self.assertEqual(set(buffer.tobytes()), {0})
        pool.tag = None
        with self.assertRaises(errors.InvalidArgumentError):
            sleeping.sleep_info(self.tag())


class Contexts(Cases):
    def allocated(self, name="memory", device=0):
        """Returns the bytes that are allocated in the pools that no context uses."""
        return sum(pool.memory(device)[0] for pool in sleeping._idle[self.tag(name)])

    def test_nested(self):
        with sleeping.pool(self.tag("outer")):
            with sleeping.pool(self.tag("inner")):
                with sleeping.pool(self.tag("outer")):
                    self.buffers.append(plinth.empty(SIZE))
                self.buffers.append(plinth.empty(2 * SIZE))
            self.buffers.append(plinth.empty(4 * SIZE))
        self.buffers.append(plinth.empty(SIZE))
        self.assertEqual((self.allocated("outer"), self.allocated("inner")), (5 * SIZE, 2 * SIZE))

    def test_threads_share_a_tag(self):
        inside = threading.Barrier(4, timeout=60)
        results = []

        def use(seed):
            with sleeping.pool(self.tag()):
                inside.wait()
                results.append(self.allocate(self.tag(), seed))
                inside.wait()

        threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 4)
        self.assertEqual(self.allocated(), 4 * SIZE)
        pools = sleeping.sleep_info(self.tag()).pools
        sleeping.sleep_memory(self.tag())
        sleeping.wake_memory(self.tag())
        for buffer, contents in results:
            self.assertEqual(buffer.tobytes(), contents)
        # Pools are used again.
        self.allocate(self.tag())
        self.assertEqual(sleeping.sleep_info(self.tag()).pools, pools)

    def test_open_contexts_and_sleep_exclude_each_other(self):
        buffer, contents = self.allocate(self.tag())
        with sleeping.pool(self.tag()):
            with self.assertRaises(errors.GraphError):
                sleeping.sleep_memory(self.tag())
        self.assertEqual(buffer.tobytes(), contents)
        sleeping.sleep_memory(self.tag())
        with self.assertRaises(errors.GraphError):
            sleeping.pool(self.tag()).__enter__()
        sleeping.wake_memory(self.tag())
        self.allocate(self.tag())
        self.assertEqual(sleeping.sleep_info(self.tag()).pools, 1)

    def test_the_context_ends_with_an_exception(self):
        with self.assertRaises(KeyError):
            with sleeping.pool(self.tag()):
                raise KeyError
        self.buffers.append(plinth.empty(SIZE))
        self.assertEqual(self.allocated(), 0)

    @support.two_devices
    def test_device_argument(self):
        with sleeping.pool(self.tag(), "cuda:1"):
            self.buffers += [plinth.empty(SIZE, device=0), plinth.empty(SIZE, device=1)]
        self.assertEqual((self.allocated(device=0), self.allocated(device=1)), (0, SIZE))

    @support.two_devices
    def test_current_device_and_stream_of_torch(self):
        """PyTorch has its own current device, which plinth's does not follow."""
        stream = plinth.Stream(1)
        torch = types.ModuleType("torch")
        torch.cuda = types.SimpleNamespace(current_device=lambda: 1, current_stream=lambda: stream)
        with mock.patch.dict(sys.modules, torch=torch):
            self.assertEqual(sleeping.allocation_device(), -1)
            with mock.patch.object(plinth.torch, "is_enabled", lambda: True):
                self.assertEqual((sleeping.allocation_device(), sleeping.allocation_device(0)), (1, 0))
                with sleeping.pool(self.tag()):
                    self.buffers.append(plinth.empty(SIZE, device=1))
                self.assertEqual(self.allocated(device=1), SIZE)
                with mock.patch.object(sleeping, "stream_handle", wraps=sleeping.stream_handle) as handle:
                    sleeping.wait_awake(self.tag())
                handle.assert_called_once_with(stream)


class Waiting(Cases):
    def test_a_stream_waits_for_the_contents(self):
        buffer, contents = self.allocate(self.tag())
        sleeping.sleep_memory(self.tag())
        sleeping.wake_memory(self.tag(), wait=False)
        stream = plinth.Stream()
        sleeping.wait_awake(self.tag(), stream)
        copy = plinth.empty_pinned(SIZE)
        with plinth.stream(stream):
            buffer.copy_to(copy, non_blocking=True)
        stream.synchronize()
        self.assertEqual(bytes(copy), contents)
        # The current stream, and pools that have been awake for long.
        sleeping.wait_awake()
        self.assertEqual(buffer.tobytes(), contents)

    def test_work_in_progress(self):
        buffer, contents = self.allocate(self.tag())
        stream = plinth.Stream()
        plinth._sleep(300_000_000, stream)
        with self.assertRaises(plinth.PlinthError):
            sleeping.sleep_memory(self.tag(), wait=False)
        self.assertEqual(sleeping.sleep_info(self.tag()).pools_asleep, 0)
        sleeping.sleep_memory(self.tag())
        self.assertTrue(stream.query())
        sleeping.wake_memory(self.tag())
        self.assertEqual(buffer.tobytes(), contents)
        plinth.synchronize()
        sleeping.sleep_memory(self.tag(), wait=False)
        self.assertEqual(sleeping.sleep_info(self.tag()).pools_asleep, 1)


class Backups(Cases):
    def test_errors(self):
        self.allocate(self.tag())
        with self.assertRaises(errors.InvalidArgumentError):
            sleeping.alloc_backup(self.tag(), "none")
        sleeping.sleep_memory(self.tag())
        for function in (sleeping.alloc_backup, sleeping.free_backup, sleeping.wait_awake):
            with self.assertRaises(errors.GraphError):
                function(self.tag())

    def test_a_reserved_backup_stays(self):
        buffer, contents = self.allocate(self.tag())
        for backup in ("pinned", "pageable"):
            with self.subTest(backup=backup):
                sleeping.alloc_backup(self.tag(), backup)
                reserved = sleeping.sleep_info(self.tag()).backup_bytes
                self.assertGreaterEqual(reserved, SIZE)
                for _ in range(2):
                    sleeping.sleep_memory(self.tag(), backup)
                    sleeping.wake_memory(self.tag())
                    self.assertEqual(sleeping.sleep_info(self.tag()).backup_bytes, reserved)
                    self.assertEqual(buffer.tobytes(), contents)
                sleeping.free_backup(self.tag())
                self.assertEqual(sleeping.sleep_info(self.tag()).backup_bytes, 0)

    def test_a_backup_goes_when_its_pool_wakes(self):
        self.allocate(self.tag())
        sleeping.sleep_memory(self.tag())
        self.assertGreaterEqual(sleeping.sleep_info(self.tag()).backup_bytes, SIZE)
        sleeping.wake_memory(self.tag())
        self.assertEqual(sleeping.sleep_info(self.tag()).backup_bytes, 0)


class Levels(Cases):
    def test_levels(self):
        weights, contents = self.allocate("weights")
        self.allocate("kv_cache")
        sleeping.sleep()
        self.assertGreaterEqual(sleeping.sleep_info("weights").saved_bytes, SIZE)
        self.assertEqual(sleeping.sleep_info("kv_cache")[1:2] + sleeping.sleep_info("kv_cache")[4:], (1, 0, 0))
        sleeping.wake("weights")
        self.assertEqual(weights.tobytes(), contents)
        self.assertEqual(sleeping.sleep_info("kv_cache").pools_asleep, 1)
        sleeping.wake()
        self.assertEqual(sleeping.sleep_info().pools_asleep, 0)
        sleeping.sleep(2)
        self.assertEqual(sleeping.sleep_info("weights")[1:2] + sleeping.sleep_info("weights")[4:], (1, 0, 0))
        for level in (0, 3):
            with self.assertRaises(ValueError):
                sleeping.sleep(level)

    def test_no_pool_is_named_weights(self):
        """Runs in a process of its own, because pools stay."""
        status, output = support.run_python("""
            import plinth
            from plinth import sleeping
            assert sleeping.sleep_info() == (0, 0, 0, 0, 0, 0)
            sleeping.sleep()
            sleeping.wake()
            with sleeping.pool("other"):
                buffer = plinth.empty(1 << 20)
            sleeping.sleep()
            assert sleeping.sleep_info("other").pools_asleep == 1
            # Exiting with sleeping memory is an ordinary end.
        """)
        self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
