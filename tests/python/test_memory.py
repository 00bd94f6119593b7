"""Tests the allocator's functions: statistics, snapshots, history, pools, limits, settings and observers."""

import os
import pickle
import sys
import tempfile
import threading
import unittest

import support
import plinth
from plinth import memory


class Memory(unittest.TestCase):
    @support.two_devices
    def test_alloc_and_delete(self):
        before = plinth.memory_allocated(1)
        pointer = plinth.caching_allocator_alloc(1000, 1, plinth.Stream(1))
        self.assertEqual(pointer % 512, 0)
        self.assertEqual(plinth.memory_allocated("cuda:1"), before + 1024)
        plinth.caching_allocator_delete(pointer)
        self.assertEqual(plinth.memory_allocated(1), before)
        self.assertEqual(plinth.caching_allocator_alloc(0), 0)
        plinth.caching_allocator_delete(0)
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            plinth.caching_allocator_delete(pointer + 8)
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            plinth.caching_allocator_alloc(8, 0, plinth.Stream(1))
        with self.assertRaises(ValueError):
            plinth.caching_allocator_alloc(-1)

    def test_peaks(self):
        plinth.reset_peak_memory_stats()
        before = plinth.memory_allocated()
        plinth.empty(3 << 20).free()
        self.assertEqual(plinth.max_memory_allocated(), before + (3 << 20))
        self.assertGreaterEqual(plinth.max_memory_reserved(), plinth.max_memory_allocated())
        plinth.reset_max_memory_allocated()
        self.assertEqual(plinth.max_memory_allocated(), before)
        self.assertEqual(plinth.memory_cached(), plinth.memory_reserved())
        self.assertEqual(plinth.max_memory_cached(), plinth.max_memory_reserved())

    def test_empty_cache(self):
        plinth.empty(64 << 20).free()
        held = plinth.memory_reserved()
        plinth.synchronize()
        plinth.empty_cache()
        self.assertLessEqual(plinth.memory_reserved(), held - (64 << 20))

    def test_stats(self):
        buffer = plinth.empty(1 << 20)
        stats, nested = plinth.memory_stats(), plinth.memory_stats_as_nested_dict()
        self.assertEqual(len(stats), 122)
        self.assertEqual(stats["allocated_bytes.all.current"], plinth.memory_allocated())
        self.assertEqual(nested["allocated_bytes"]["all"]["current"], plinth.memory_allocated())
        plinth.reset_accumulated_memory_stats()
        self.assertEqual(plinth.memory_stats()["allocation.all.allocated"], 0)
        self.assertIn("Allocated memory", plinth.memory_summary())
        self.assertLess(len(plinth.memory_summary(abbreviated=True)), len(plinth.memory_summary()))
        del buffer

    def test_host_stats(self):
        pinned = plinth.empty_pinned(1 << 20)
        stats = plinth.host_memory_stats()
        self.assertGreaterEqual(stats["active_bytes.current"], 1 << 20)
        self.assertEqual(plinth.host_memory_stats_as_nested_dict()["active_bytes"]["current"],
                         stats["active_bytes.current"])
        del pinned
        plinth.reset_peak_host_memory_stats()
        stats = plinth.host_memory_stats()
        self.assertEqual(stats["active_bytes.peak"], stats["active_bytes.current"])
        plinth.reset_accumulated_host_memory_stats()
        self.assertEqual(plinth.host_memory_stats()["num_host_alloc"], 0)
        plinth.host_empty_cache()

    def test_fraction(self):
        total = plinth.mem_get_info()[1]
        plinth.synchronize()
        plinth.empty_cache()
        plinth.set_per_process_memory_fraction(0.25)
        try:
            self.assertEqual(plinth.get_per_process_memory_fraction(), 0.25)
            with self.assertRaises(plinth.OutOfMemoryError):
                plinth.empty(total // 2)
        finally:
            plinth.set_per_process_memory_fraction(1.0)
        with self.assertRaises(ValueError):
            plinth.set_per_process_memory_fraction(1.5)

    def test_snapshot_and_history(self):
        memory._record_memory_history(max_entries=1000, clear_history=True)
        try:
            memory._set_memory_metadata("a tag")
            self.assertEqual(memory._get_memory_metadata(), "a tag")
            buffer = plinth.empty(12345, device=0)
            pointer = buffer.ptr
            buffer.free()
            snapshot = memory._snapshot()
            entries = [entry for entry in snapshot["device_traces"][0] if entry["addr"] == pointer]
            self.assertEqual([entry["action"] for entry in entries], ["alloc", "free_requested", "free_completed"])
            self.assertEqual(entries[0]["size"], 12345)
            self.assertTrue(all(set(frame) >= {"name", "filename", "line"} for frame in entries[0]["frames"]))
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "snapshot.pickle")
                memory._dump_snapshot(path)
                with open(path, "rb") as file:
                    dumped = pickle.load(file)
            self.assertEqual(set(dumped), set(snapshot))
            self.assertEqual(len(dumped["segments"]), len(snapshot["segments"]))
            total = sum(segment["total_size"] - segment.get("asleep_size", 0) for segment in plinth.memory_snapshot())
            self.assertEqual(total, sum(map(plinth.memory_reserved, range(plinth.device_count()))))
        finally:
            memory._set_memory_metadata("")
            memory._record_memory_history(None)
        self.assertEqual(sum(map(len, memory._snapshot()["device_traces"])), 0)

    def test_skipped_actions(self):
        memory._record_memory_history(context=None, clear_history=True,
                                      skip_actions=["free_requested", "free_completed"])
        try:
            plinth.empty(100).free()
            actions = {entry["action"] for trace in memory._snapshot()["device_traces"] for entry in trace}
            self.assertIn("alloc", actions)
            self.assertFalse(actions & {"free_requested", "free_completed"})
        finally:
            memory._record_memory_history(None)
        for options in ({"enabled": "some"}, {"context": "x"}, {"stacks": "c"}, {"skip_actions": ["sleep"]},
                        {"max_entries": 0}, {"max_entries": -1}):
            with self.assertRaises(ValueError):
                memory._record_memory_history(**options)

    def test_pools(self):
        pool = plinth.MemPool()
        self.assertEqual((pool.use_count(), pool.memory(), pool.budget), (1, (0, 0), None))
        for budget in -1, 2**64 + 4096:
            with self.assertRaises(ValueError):
                pool.budget = budget
        with plinth.use_mem_pool(pool):
            self.assertEqual(pool.use_count(), 2)
            inside = plinth.empty(1000)
            with self.assertRaises(plinth.PlinthError), plinth.use_mem_pool(pool):
                self.fail("a pool was entered twice")
            seen = []
            thread = threading.Thread(target=lambda: seen.append(plinth.empty(1000)))
            thread.start()
            thread.join()
            self.assertEqual(pool.memory()[0], 1024)
        outside = plinth.empty(1000)
        self.assertEqual((pool.use_count(), pool.memory()[0]), (1, 1024))
        (segment,) = pool.snapshot()
        self.assertEqual(tuple(segment["segment_pool_id"]), pool.id)
        self.assertEqual(plinth.memory_snapshot(pool.id)[0]["address"], segment["address"])
        pool.budget = 4 << 20
        self.assertEqual(pool.budget, 4 << 20)
        with plinth.use_mem_pool(pool), self.assertRaisesRegex(plinth.OutOfMemoryError, "budget"):
            plinth.empty(32 << 20)
        pool.budget = None
        self.assertIsNone(pool.budget)
        del pool
        inside.fill_(1)
        plinth.synchronize()
        del inside, outside
        with self.assertRaises(plinth.errors.InvalidArgumentError), plinth.use_mem_pool((1 << 40, 5)):
            self.fail("a pool that does not exist was entered")

    @support.two_devices
    def test_pool_of_another_device(self):
        pool = plinth.MemPool(no_split=True, use_on_oom=True)
        with plinth.use_mem_pool(pool, 1):
            buffer = plinth.empty(1000, device=1)
            here = plinth.empty(1000, device=0)
        self.assertEqual((pool.memory(1)[0], pool.memory(0)[0]), (2 << 20, 0))  # The block is not split.
        del buffer, here

    def test_settings(self):
        settings = plinth.get_allocator_settings()
        memory._set_allocator_settings("garbage_collection_threshold:0.75")
        self.assertIn("garbage_collection_threshold:0.75", plinth.get_allocator_settings())
        plinth.set_allocator_settings(settings)
        with self.assertRaisesRegex(ValueError, "no_such_key"):
            plinth.set_allocator_settings("no_such_key:1")
        self.assertIsInstance(plinth.get_allocator_backend(), str)

    def test_cache_can_be_disabled(self):
        plinth.synchronize()
        plinth.empty_cache()
        with plinth.caching_allocator_disabled():
            before = plinth.memory_reserved()
            plinth.empty(4 << 20).free()
            self.assertEqual(plinth.memory_reserved(), before)
        plinth.empty(4 << 20).free()
        self.assertGreaterEqual(plinth.memory_reserved(), before + (4 << 20))

    @support.two_devices
    def test_observer(self):
        seen, reports = [], []

        def observe(device, requested, total, free):
            seen.append((device, requested, total, free, plinth.memory_allocated()))
            raise RuntimeError("in an observer")

        memory.attach_out_of_memory_observer(observe)
        hook, sys.unraisablehook = sys.unraisablehook, reports.append
        try:
            with self.assertRaises(plinth.OutOfMemoryError):
                plinth.empty(1 << 45, device=1)
        finally:
            sys.unraisablehook = hook
            memory.detach_out_of_memory_observer(observe)
        self.assertEqual([entry[:3] for entry in seen], [(1, 1 << 45, plinth.mem_get_info(1)[1])])
        self.assertEqual([str(report.exc_value) for report in reports], ["in an observer"])
        with self.assertRaises(plinth.OutOfMemoryError):
            plinth.empty(1 << 45)
        self.assertEqual(len(seen), 1)
        with self.assertRaises(ValueError):
            memory.detach_out_of_memory_observer(observe)

    def test_free_memory_callback(self):
        free = plinth.mem_get_info()[0]
        size = int(free * 0.6)
        cache, calls, reports = [plinth.empty(size)], [], []

        def release(device, requested):
            calls.append((device, requested))
            if not cache:
                raise RuntimeError("nothing to free")
            cache.clear()
            return True

        memory.add_free_memory_callback(release)
        hook, sys.unraisablehook = sys.unraisablehook, reports.append
        try:
            second = plinth.empty(size)
            self.assertEqual((calls, cache), ([(0, size)], []))
            with self.assertRaises(plinth.OutOfMemoryError):
                plinth.empty(size)
        finally:
            sys.unraisablehook = hook
            memory.remove_free_memory_callback(release)
        self.assertEqual({str(report.exc_value) for report in reports}, {"nothing to free"})
        count = len(calls)
        with self.assertRaises(plinth.OutOfMemoryError):
            plinth.empty(size)
        self.assertEqual(len(calls), count)
        with self.assertRaises(ValueError):
            memory.remove_free_memory_callback(release)
        second.free()
        plinth.empty_cache()

    def test_pluggable_allocator(self):
        with self.assertRaisesRegex(plinth.PlinthError, "nowhere.so"):
            memory.CUDAPluggableAllocator("nowhere.so", "alloc", "free")
        allocator = memory.CUDAPluggableAllocator(plinth._native.library_path, "plinth_alloc", "plinth_free")
        self.assertGreater(allocator.handle, 0)
        plinth.empty(1)
        with self.assertRaises(plinth.PlinthError):
            plinth.change_current_allocator(allocator)


if __name__ == "__main__":
    unittest.main()
