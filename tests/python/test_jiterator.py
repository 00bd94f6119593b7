"""Tests jiterated functions. On the host device they need a C++ compiler."""

import array
import numbers
import shutil
import unittest

import support
import plinth
from plinth import jiterator

AXPY = "template <typename T> T axpy(T x, T y, T alpha) { return alpha * x + y; }"
TWO = "template <typename T> void two(T x, T &sum, T &square) { sum = x + x; square = x * x; }"


def floats(*numbers):
    return plinth.to_device(array.array("f", numbers))


class Declaration(unittest.TestCase):
    def test_bad_code(self):
        for code in ("", "int f(int x) { return x; }"):
            with self.assertRaises(ValueError, msg=code):
                jiterator._create_jit_fn(code, alpha=1.0)
        with self.assertRaises(ValueError):
            jiterator._create_multi_output_jit_fn(TWO, 9)
        with self.assertRaises(ValueError):
            jiterator._create_multi_output_jit_fn(TWO, 2**32 + 2)


@unittest.skipIf(shutil.which("c++") is None, "there is no C++ compiler")
class Calls(unittest.TestCase):
    def test_scalars_and_outputs(self):
        axpy = jiterator._create_jit_fn(AXPY, alpha=2.0)
        x, y = floats(1, 2, 3), floats(10, 20, 30)
        self.assertEqual(axpy(x, y).tolist(), [12, 24, 36])
        self.assertEqual(axpy(x, y, alpha=-1).tolist(), [9, 18, 27])
        self.assertIs(axpy(x, y, out=x), x)
        self.assertEqual(x.tolist(), [12, 24, 36])
        with self.assertRaises(ValueError):
            axpy(x, y, beta=1.0)
        with self.assertRaises(ValueError):
            axpy(x)
        with self.assertRaisesRegex(ValueError, "alpha"):
            axpy(x, y, alpha=2**63)

    def test_numbers_of_other_libraries(self):
        class Whole:
            def __init__(self, value):
                self.value = value

            def __int__(self):
                return self.value

            def __float__(self):
                return float(self.value)

        class Complex:
            real, imag = 0.0, 2.0

            def __float__(self):
                return self.real

        numbers.Integral.register(Whole)
        numbers.Complex.register(Complex)
        axpy = jiterator._create_jit_fn(AXPY, alpha=1)
        one, zero = (plinth.to_device(array.array("q", [number])) for number in (1, 0))
        self.assertEqual(axpy(one, zero, alpha=Whole(2**62 + 1)).tolist(), [2**62 + 1])
        one, zero = plinth.to_device(array.array("f", [1, 0])), plinth.zeros(1, "complex64")
        one = plinth.zeros(1, "complex64").copy_from(one.tobytes())
        self.assertEqual(axpy(one, zero, alpha=Complex()).tobytes(), array.array("f", [0, 2]).tobytes())

    def test_types_and_broadcast(self):
        axpy = jiterator._create_jit_fn(AXPY, alpha=1.0)
        column = plinth.to_device(memoryview(array.array("i", [1, 2]).tobytes()).cast("i", (2, 1)))
        result = axpy(column, floats(0.5, 1.5))
        self.assertEqual((result.dtype, result.tolist()), ("float32", [[1.5, 2.5], [2.5, 3.5]]))
        with self.assertRaises(ValueError):
            axpy(floats(1, 2), floats(1, 2, 3))

    def test_several_outputs(self):
        two = jiterator._create_multi_output_jit_fn(TWO, 2)
        self.assertEqual([tensor.tolist() for tensor in two(floats(3, 4))], [[6, 8], [9, 16]])
        out = [plinth.zeros(2, "float32"), plinth.zeros(2, "float32")]
        self.assertIs(two(floats(1, 2), out=out)[1], out[1])
        self.assertEqual(out[1].tolist(), [1, 4])

    def test_tensors_of_other_libraries_and_streams(self):
        axpy, side, x = jiterator._create_jit_fn(AXPY, alpha=1.0), plinth.Stream(), floats(1, 2)
        plinth.synchronize()
        out = plinth.zeros(2, "float32", stream=side)
        axpy(support.DLPackTensor(x), support.ArrayInterface(x), out=out, stream=side)
        side.synchronize()
        self.assertEqual(out.tolist(), [2, 4])

    def test_compiler_error(self):
        broken = jiterator._create_jit_fn("template <typename T> T f(T x) { return x + nonsense; }")
        with self.assertRaisesRegex(plinth.errors.CompilationError, "nonsense"):
            broken(floats(1))


if __name__ == "__main__":
    unittest.main()
