"""Tests communicators and stores: between devices, threads and processes; timeouts, aborts and Ctrl-C."""

import array
import multiprocessing
import pathlib
import tempfile
import threading
import unittest

import support
import plinth
from plinth import communicator


def floats(*numbers, device=0):
    return plinth.to_device(array.array("f", numbers), device)


@support.two_devices
class InOneProcess(unittest.TestCase):
    def setUp(self):
        self.ranks = plinth.Communicator.init_all([0, 1], timeout=10)

    def each(self, call):
        """Makes a call for each rank in a group, and returns the results."""
        with communicator.group():
            return [call(rank) for rank in self.ranks]

    def test_properties(self):
        self.assertEqual([(rank.rank, rank.size, rank.device) for rank in self.ranks], [(0, 2, 0), (1, 2, 1)])
        self.assertIn(self.ranks[0].engine, ("local", "nccl"))
        self.assertTrue(self.ranks[0].query())
        with self.assertRaises(TypeError):
            plinth.Communicator()

    def test_collectives(self):
        inputs = [floats(1, 2, 3, 4), floats(10, 20, 30, 40, device=1)]
        outputs = [plinth.zeros(4, "float32", device) for device in (0, 1)]
        self.each(lambda c: c.all_reduce(inputs[c.rank], outputs[c.rank]))
        self.assertEqual([tensor.tolist() for tensor in outputs], [[11, 22, 33, 44]] * 2)
        self.each(lambda c: c.all_reduce(inputs[c.rank], outputs[c.rank], "min"))
        self.assertEqual(outputs[1].tolist(), [1, 2, 3, 4])
        self.each(lambda c: c.reduce(inputs[c.rank], outputs[c.rank], 1, "average"))
        self.assertEqual(outputs[1].tolist(), [5.5, 11, 16.5, 22])
        parts = [plinth.zeros(2, "float32", device) for device in (0, 1)]
        self.each(lambda c: c.reduce_scatter(inputs[c.rank], parts[c.rank]))
        self.assertEqual([tensor.tolist() for tensor in parts], [[11, 22], [33, 44]])
        self.each(lambda c: c.all_gather(parts[c.rank], outputs[c.rank]))
        self.assertEqual(outputs[0].tolist(), [11, 22, 33, 44])
        self.each(lambda c: c.all_to_all(inputs[c.rank], outputs[c.rank]))
        self.assertEqual([tensor.tolist() for tensor in outputs], [[1, 2, 10, 20], [3, 4, 30, 40]])
        self.each(lambda c: c.broadcast(inputs[c.rank], 1))
        self.assertEqual(inputs[0].tolist(), [10, 20, 30, 40])
        with communicator.group():
            self.ranks[0].send(parts[0], 1)
            self.ranks[1].recv(parts[1], 0)
        self.ranks[1].wait()
        self.assertEqual(parts[1].tolist(), [11, 22])

    def test_calls_that_wait_are_refused_in_a_group(self):
        def refused():
            errors = []
            for call in (
                self.ranks[0].sleep,
                self.ranks[0].wake,
                lambda: plinth.Communicator.init_rank(2, communicator.unique_id(), 0, timeout=3),
            ):
                try:
                    with communicator.group():
                        call()
                except plinth.errors.InvalidArgumentError as error:
                    errors.append(str(error))
            return errors

        of_main, of_thread = refused(), []
        thread = threading.Thread(target=lambda: of_thread.extend(refused()))
        thread.start()
        thread.join()
        self.assertEqual(len(of_main), 3)
        self.assertEqual(of_main, of_thread)

    def test_an_exception_discards_the_group(self):
        tensors = [floats(1, 2), floats(3, 4, device=1)]
        with self.assertRaises(KeyboardInterrupt), communicator.group():
            for rank in self.ranks:
                rank.all_reduce(tensors[rank.rank])
            raise KeyboardInterrupt
        self.assertEqual([tensor.tolist() for tensor in tensors], [[1, 2], [3, 4]])
        self.each(lambda c: c.all_reduce(tensors[c.rank]))
        self.assertEqual([tensor.tolist() for tensor in tensors], [[4, 6]] * 2)

    def test_a_split_is_refused_in_a_group(self):
        with self.assertRaisesRegex(plinth.errors.InvalidArgumentError, "cannot be split in a group"):
            self.each(lambda c: c.split(0))
        with self.assertRaisesRegex(plinth.errors.InvalidArgumentError, "cannot be shrunk in a group"):
            self.each(lambda c: c.shrink([1 - c.rank]))

    def test_registration_is_for_processes(self):
        with self.assertRaisesRegex(NotImplementedError, "without a registration"):
            self.ranks[0].register(floats(1))

    def test_bad_tensors(self):
        rank, x = self.ranks[0], floats(1, 2, 3, 4)
        for call in (lambda: rank.all_reduce(x, plinth.zeros(3, "float32")),
                     lambda: rank.all_reduce(x, plinth.zeros(4, "float64")),
                     lambda: rank.all_gather(x, x), lambda: rank.reduce_scatter(x, x),
                     lambda: rank.all_reduce(x, op="xor"),
                     lambda: rank.all_to_all(floats(1, 2, 3), plinth.zeros(3, "float32")),
                     lambda: rank.send(support.ArrayInterface(x, shape=(2,), strides=(8,)), 1),
                     lambda: rank.all_reduce(array.array("f", [1]))):
            with self.assertRaises(ValueError):
                call()

    def test_abort_and_destroy(self):
        for rank in self.ranks:
            rank.abort()
        with self.assertRaises(plinth.errors.CommunicatorError):
            self.ranks[0].all_reduce(floats(1))
        self.ranks[0].destroy()
        self.ranks[0].destroy()
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            self.ranks[0].rank

    def test_split(self):
        results = [None, None]

        def split(i):
            results[i] = self.ranks[i].split(0 if i == 0 else -1)

        threads = [threading.Thread(target=split, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((results[0].size, results[1]), (1, None))

    def test_shrink(self):
        with self.assertRaisesRegex(plinth.errors.InvalidArgumentError, "excludes itself"):
            self.ranks[1].shrink([1])
        with self.assertRaisesRegex(plinth.errors.InvalidArgumentError, "excludes no rank"):
            self.ranks[1].shrink([])
        part = self.ranks[1].shrink((0,))
        self.assertEqual((part.size, part.rank, part.device), (1, 0, 1))
        self.assertTrue(self.ranks[1].query())
        part = self.ranks[1].shrink([0], abort=True)
        self.assertEqual(part.all_reduce(floats(3, device=1)).tolist(), [3])
        with self.assertRaises(plinth.errors.CommunicatorError):
            self.ranks[0].query()


@support.two_devices
class InThreads(unittest.TestCase):
    def test_ranks_in_threads(self):
        uid, results, failures = communicator.unique_id(), {}, []

        def work(rank):
            try:
                with plinth.Communicator.init_rank(2, uid, rank, rank, timeout=30) as ranks:
                    results[rank] = ranks.all_reduce(floats(rank + 1, device=rank)).tolist()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((failures, results), ([], {0: [3], 1: [3]}))

    def test_sleep(self):
        uid, results, failures = communicator.unique_id(), {}, []

        def work(rank):
            try:
                with plinth.Communicator.init_rank(2, uid, rank, rank, timeout=30) as ranks:
                    if ranks.engine != "shared":
                        return
                    x = floats(rank + 1, device=rank)
                    ranks.sleep()
                    with self.assertRaisesRegex(plinth.errors.GraphError, "asleep"):
                        ranks.all_reduce(x)
                    ranks.wake()
                    results[rank] = ranks.all_reduce(x).tolist()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        if results or plinth.device_kind() == "host":
            self.assertEqual(results, {0: [3], 1: [3]})

    @support.host_device
    def test_ranks_do_not_wait_for_one_that_ctrl_c_ended(self):
        code = """
            import os, signal, threading, plinth
            uid = plinth.communicator.unique_id()
            try:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                plinth.Communicator.init_rank(2, uid, 0, 0, timeout=10)
            except KeyboardInterrupt:
                pass
            with plinth.Communicator.init_rank(2, uid, 1, LAST, timeout=10) as rank:
                try:
                    rank.all_reduce(plinth.zeros(4, "float32", LAST))
                    rank.wait()
                except plinth.errors.WaitTimeoutError as error:
                    print(error)
                except plinth.errors.CommunicatorError as error:
                    print(error.name)
        """.replace("LAST", str(support.LAST))
        self.assertEqual(support.run_python(code, timeout=60), (0, "PLINTH_ERROR_PEER_LOST\n"))

    def test_missing_rank(self):
        with self.assertRaises(TimeoutError):
            plinth.Communicator.init_rank(2, communicator.unique_id(), 0, 0, timeout=0.2)
        with self.assertRaises(ValueError):
            plinth.Communicator.init_rank(2, b"short", 0)
        with self.assertRaises(ValueError):
            plinth.Communicator.init_rank(2, communicator.unique_id(), 0, engine="mpi")


def process(address, rank, results):
    store = plinth.Store(address)
    uid = store.unique_id("group", rank, 3, timeout=30)
    plinth.set_device(rank % 2)
    with plinth.Communicator.init_rank(3, uid, rank, timeout=30) as ranks:
        x = floats(rank, 1, device=rank % 2)
        ranks.register(x)
        ranks.all_reduce(x)
        ranks.deregister(x)
        gathered = ranks.all_gather(floats(rank, device=rank % 2), plinth.zeros(3, "float32", rank % 2))
        results.put((rank, ranks.engine, x.tolist(), gathered.tolist()))
        store.barrier("end", 3, timeout=30)


@support.two_devices
class InProcesses(unittest.TestCase):
    def test_processes(self):
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            address = f"{folder}/run"
            children = [context.Process(target=process, args=(address, rank, results)) for rank in range(3)]
            for child in children:
                child.start()
            found = sorted(results.get(timeout=60) for _ in children)
            for child in children:
                child.join(60)
        self.assertEqual(found, [(rank, "shared", [3, 3], [0, 1, 2]) for rank in range(3)])
        self.assertEqual([child.exitcode for child in children], [0, 0, 0])


class Stores(unittest.TestCase):
    def test_folder(self):
        with tempfile.TemporaryDirectory() as folder, plinth.Store(pathlib.Path(folder, "store")) as store:
            store.set("key", b"a\0b")
            self.assertEqual(store.get("key"), b"a\0b")
            with self.assertRaisesRegex(ValueError, "used already"):
                store.set("key", b"again")
            store.barrier("one", 1)
            with self.assertRaises(TimeoutError):
                store.get("missing", timeout=0.05)
            with self.assertRaisesRegex(TimeoutError, "1"):
                store.barrier("two", 2, timeout=0.05)
            for timeout in (-1, 2**64):
                with self.assertRaisesRegex(ValueError, "the timeout in milliseconds"):
                    store.get("missing", timeout)
            with plinth.Store(f"file://{folder}/store") as other:
                self.assertEqual(other.get("key"), b"a\0b")
                self.assertEqual(len(other.unique_id("id", 0, 1)), 128)

    def test_addresses(self):
        for address in "http://somewhere", "relative", "":
            with self.assertRaises(ValueError):
                plinth.Store(address)
        with self.assertRaisesRegex(plinth.PlinthError, "unique_id by MPI"):
            plinth.Store("tcp://127.0.0.1:29500")

    def test_waits_end_on_ctrl_c(self):
        with tempfile.TemporaryDirectory() as folder:
            code = f"""
                import os, signal, threading, time, plinth
                store = plinth.Store("{folder}/store")
                begin = time.monotonic()
                try:
                    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                    store.get("missing", timeout=3)
                except KeyboardInterrupt:
                    print("interrupted", time.monotonic() - begin < 2.5)
            """
            status, output = support.run_python(code)
        self.assertEqual(output, "interrupted True\n")


if __name__ == "__main__":
    unittest.main()
