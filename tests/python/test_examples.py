"""Runs the examples in Python."""

import os
import pathlib
import subprocess
import sys
import unittest

import support

EXAMPLES = sorted((pathlib.Path(__file__).resolve().parents[2] / "examples").glob("[0-9]*.py"))


class Examples(unittest.TestCase):
    def test_each(self):
        self.assertTrue(EXAMPLES)
        for path in EXAMPLES:
            with self.subTest(example=path.name):
                done = subprocess.run([sys.executable, str(path)], env={**os.environ, "PYTHONPATH": support.FOLDER},
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn("out of memory", done.stdout)
                self.assertIn("three replays gave 3 different numbers", done.stdout)


if __name__ == "__main__":
    unittest.main()
