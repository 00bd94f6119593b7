"""Tests generators and fills: the numbers of a seed, states, types, distributions, and errors."""

import array
import fractions
import statistics
import threading
import unittest

import support
import plinth
from plinth import random


class Generators(unittest.TestCase):
    def test_seed_gives_the_same_numbers(self):
        buffer = plinth.empty(1000, "float32")
        plinth.manual_seed(42)
        first = random.uniform_(buffer).tolist()
        second = random.uniform_(buffer).tolist()
        plinth.manual_seed(42)
        self.assertEqual(random.uniform_(buffer).tolist(), first)
        self.assertNotEqual(first, second)
        self.assertEqual(plinth.initial_seed(), 42)

    @support.two_devices
    def test_seeds(self):
        plinth.manual_seed(-1)
        self.assertEqual(plinth.initial_seed(), 2**64 - 1)
        for seed in (2**64, -(2**63) - 1):
            with self.assertRaises(ValueError):
                plinth.manual_seed(seed)
        plinth.manual_seed_all(7)
        self.assertEqual({generator.initial_seed() for generator in plinth.default_generators}, {7})
        plinth.seed_all()
        first, second = plinth.default_generators[:2]
        self.assertEqual(first.initial_seed(), second.initial_seed())
        plinth.seed()
        self.assertNotEqual(first.initial_seed(), second.initial_seed())

    @support.two_devices
    def test_states(self):
        buffer = plinth.empty(100, "float64", 1)
        state = plinth.get_rng_state("cuda:1")
        self.assertEqual(len(state), 16)
        first = random.normal_(buffer).tolist()
        plinth.set_rng_state(array.array("B", state), 1)
        self.assertEqual(random.normal_(buffer).tolist(), first)
        states = plinth.get_rng_state_all()
        self.assertEqual(len(states), plinth.device_count())
        random.normal_(buffer)
        plinth.set_rng_state_all(states)
        self.assertEqual(plinth.get_rng_state_all(), states)
        with self.assertRaises(ValueError):
            plinth.set_rng_state(b"short")
        with self.assertRaises(ValueError):
            plinth.set_rng_state(b"\0" * 8 + b"\1" + b"\0" * 7)  # The offset is no multiple of 4.

    @support.two_devices
    def test_generator(self):
        generator = plinth.Generator("cuda:1")
        self.assertEqual((generator.device.index, generator.initial_seed()), (1, 67280421310721))
        self.assertIs(generator.manual_seed(5), generator)
        buffer = plinth.empty(100, "float32", 1)
        first = random.uniform_(buffer, generator=generator).tolist()
        self.assertEqual(generator.get_offset() % 4, 0)
        self.assertGreater(generator.get_offset(), 0)
        copy = plinth.Generator(1).set_state(generator.get_state())
        self.assertEqual(copy.get_offset(), generator.get_offset())
        clone, shared = generator.clone_state(), generator.graphsafe_get_state()
        generator.set_offset(0)
        self.assertEqual((clone.get_offset() > 0, shared.get_offset()), (True, 0))
        self.assertEqual(random.uniform_(buffer, generator=shared).tolist(), first)
        self.assertEqual(generator.get_offset(), shared.get_offset())
        self.assertIs(clone.graphsafe_set_state(generator), clone)
        self.assertEqual(clone.seed(), generator.initial_seed())
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            random.uniform_(plinth.empty(4, "float32", 0), generator=generator)
        for offset in -4, 2**64 + 8:
            with self.assertRaises(ValueError):
                generator.set_offset(offset)

    def test_threads_get_different_numbers(self):
        generator, rows = plinth.Generator(), []

        def work():
            buffer = plinth.empty(64, "float64")
            for _ in range(20):
                rows.append(tuple(random.uniform_(buffer, generator=generator).tolist()))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(rows)), 80)


class Fills(unittest.TestCase):
    def setUp(self):
        plinth.manual_seed(1)

    def numbers(self, fill, *arguments, dtype="float32", count=20000):
        buffer = plinth.empty(count, dtype)
        self.assertIs(fill(buffer, *arguments), buffer)
        return buffer.tolist()

    def test_distributions(self):
        uniform = self.numbers(random.uniform_, -1, 3)
        self.assertTrue(all(-1 <= number < 3 for number in uniform))
        self.assertAlmostEqual(statistics.fmean(uniform), 1, delta=0.05)
        normal = self.numbers(random.normal_, 5, 2)
        self.assertAlmostEqual(statistics.fmean(normal), 5, delta=0.1)
        self.assertAlmostEqual(statistics.stdev(normal), 2, delta=0.1)
        self.assertAlmostEqual(statistics.fmean(self.numbers(random.exponential_, 4.0)), 0.25, delta=0.02)
        self.assertAlmostEqual(statistics.median(self.numbers(random.cauchy_, 3.0, 0.5)), 3, delta=0.1)
        self.assertAlmostEqual(statistics.median(self.numbers(random.log_normal_, 0.0, 1.0)), 1, delta=0.1)
        self.assertAlmostEqual(statistics.fmean(self.numbers(random.geometric_, 0.25)), 4, delta=0.2)
        self.assertAlmostEqual(statistics.fmean(self.numbers(random.bernoulli_, 0.3)), 0.3, delta=0.03)

    def test_integers(self):
        self.assertEqual(set(self.numbers(random.random_, 3, dtype="int64")), {0, 1, 2})
        self.assertEqual(set(self.numbers(random.random_, -2, 1, dtype="int8")), {-2, -1, 0})
        self.assertGreater(max(self.numbers(random.random_, dtype="int32")), 2**30)
        self.assertEqual(sorted(self.numbers(random.randperm_, dtype="int32", count=5000)), list(range(5000)))
        for arguments in ((5, 5), (2**63,), (None, 5)):
            with self.assertRaises((ValueError, TypeError)):
                self.numbers(random.random_, *arguments, dtype="int64")

    def test_probabilities_of_each_element(self):
        p = plinth.to_device(array.array("f", [0, 1, 0, 1]))
        buffer = plinth.empty((5, 4), "bool")
        self.assertEqual(random.bernoulli_(buffer, p).tolist(), [[False, True, False, True]] * 5)
        self.assertEqual(random.bernoulli_(buffer, fractions.Fraction(1)).tolist(), [[True] * 4] * 5)

    def test_tensors_of_other_libraries(self):
        buffer = plinth.zeros((4, 4), "float32", support.LAST)
        for make in (support.DLPackTensor, support.ArrayInterface):
            buffer.zero_()
            obj = make(buffer)
            self.assertIs(random.uniform_(obj, 1, 2), obj)
            self.assertTrue(all(1 <= number < 2 for row in buffer.tolist() for number in row))
        buffer.zero_()
        random.uniform_(support.ArrayInterface(buffer, shape=(4,), strides=(20,)), 1, 2)
        self.assertEqual([[number > 0 for number in row] for row in buffer.tolist()],
                         [[row == column for column in range(4)] for row in range(4)])

    @support.two_devices
    def test_stream(self):
        side, buffer = plinth.Stream(), plinth.zeros(4, "float32")
        plinth.synchronize()
        event = plinth.Event()
        random.uniform_(buffer, stream=side)
        event.record(side)
        event.synchronize()
        self.assertNotEqual(buffer.tolist(), [0, 0, 0, 0])
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            random.uniform_(buffer, stream=plinth.Stream(1))

    def test_errors(self):
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            random.uniform_(array.array("f", [0]))  # Memory of the CPU.
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            random.normal_(plinth.empty(4, "int32"))
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            random.normal_(plinth.empty(4, "float32"), 0, -1)
        with self.assertRaises(TypeError):
            random.normal_([0.0])


if __name__ == "__main__":
    unittest.main()
