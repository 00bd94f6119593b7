"""Compares the bindings with the lists of the C API's tests, and calls the library with each kind of type."""

import ctypes
import pathlib
import unittest

from plinth import _bindings
from plinth._native import check, lib

TESTS = pathlib.Path(__file__).resolve().parents[1]


def layout(kind):
    """Yields the words of the lines of one kind of tests/abi/layout.txt, which a C program wrote."""
    for line in (TESTS / "abi" / "layout.txt").read_text().splitlines():
        words = line.split(" ")
        if words[0] == kind:
            yield words[1:]


def structs():
    """Returns the structs and unions of the bindings by their names."""
    return {name: value for name, value in vars(_bindings).items()
            if isinstance(value, type) and issubclass(value, (ctypes.Structure, ctypes.Union))
            and value not in (ctypes.Structure, ctypes.Union)}


class Lists(unittest.TestCase):
    def test_constants(self):
        expected = {name: int(value, 0) for name, value in layout("constant")}
        self.assertEqual(_bindings.PLINTH_STREAM_DEFAULT_OF(1), expected.pop("PLINTH_STREAM_DEFAULT_OF(1)"))
        actual = {name: value for name, value in vars(_bindings).items()
                  if name.startswith("PLINTH_") and isinstance(value, int)}
        self.assertEqual(actual, expected)

    def test_structs(self):
        expected = {name: (int(size), int(align)) for name, _, size, _, align in layout("struct")}
        actual = {name: (ctypes.sizeof(kind), ctypes.alignment(kind)) for name, kind in structs().items()}
        # DLPack's structs are checked by the tensors that the tests of the package pass.
        self.assertEqual({name: value for name, value in actual.items() if name.startswith("plinth_")},
                         {name: value for name, value in expected.items() if name.startswith("plinth_")})

    def test_fields(self):
        expected = {field: (int(offset), int(size)) for field, _, offset, _, size in layout("field")}
        actual = {}
        for name, kind in structs().items():
            for field, field_type in kind._fields_:
                actual[f"{name}.{field}"] = (getattr(kind, field).offset, ctypes.sizeof(field_type))
        self.assertEqual({name: actual.get(name) for name in expected}, expected)
        self.assertEqual({name for name in actual if name.startswith("plinth_")} - expected.keys(), set())

    def test_other_types(self):
        for name, _, size in layout("type"):
            with self.subTest(name):
                self.assertEqual(ctypes.sizeof(getattr(_bindings, name)), int(size))

    def test_functions(self):
        self.assertEqual(sorted(_bindings.PROTOTYPES), (TESTS / "symbols.txt").read_text().split())
        for name in _bindings.PROTOTYPES:
            self.assertEqual(len(getattr(lib, name).argtypes), len(_bindings.PROTOTYPES[name][1]))

    def test_initial_values(self):
        for name, kind in structs().items():
            if name.startswith("plinth_") and kind._fields_[0][0] == "struct_size":
                with self.subTest(name):
                    init = kind.INIT if "init" in dict(kind._fields_) else kind.init
                    self.assertEqual(init().struct_size, ctypes.sizeof(kind))
        launch = _bindings.plinth_kernel_launch_t.init()
        self.assertEqual((list(launch.grid), list(launch.block)), ([1, 1, 1], [1, 1, 1]))
        options = _bindings.plinth_memory_history_options_t.init()
        self.assertEqual((options.enabled, options.context), (2, 3))


class Calls(unittest.TestCase):
    def test_struct_by_value_and_output(self):
        pool = _bindings.plinth_pool_id_t()
        check(lib.plinth_mem_pool_create(None, 0, ctypes.byref(pool)))
        count = ctypes.c_size_t(99)
        check(lib.plinth_mem_pool_set_budget(pool, 1 << 25))
        check(lib.plinth_mem_pool_get_budget(pool, ctypes.byref(count)))
        self.assertEqual(count.value, 1 << 25)
        check(lib.plinth_mem_pool_destroy(pool))
        with self.assertRaises(ValueError):
            check(lib.plinth_mem_pool_destroy(pool))

    def test_text_that_the_caller_frees(self):
        text = ctypes.c_char_p()
        check(lib.plinth_get_arch_list(ctypes.byref(text)))
        self.assertIsInstance(text.value, bytes)
        lib.plinth_string_free(text)

    def test_callback(self):
        contexts = []
        function = _bindings.plinth_host_function_callback_t(contexts.append)
        check(lib.plinth_launch_host_function(_bindings.PLINTH_STREAM_DEFAULT_OF(0), function, 42))
        check(lib.plinth_synchronize(0))
        self.assertEqual(contexts, [42])

    def test_null_callback(self):
        check(lib.plinth_set_log_callback(0, _bindings.plinth_log_callback_t(), None))

    def test_array_in_a_struct(self):
        properties = _bindings.plinth_device_properties_t.init()
        check(lib.plinth_get_device_properties(0, ctypes.byref(properties)))
        self.assertTrue(properties.name)
        self.assertGreater(properties.total_memory, 0)


if __name__ == "__main__":
    unittest.main()
