"""Runs the Python code of the package's README and of docs/python.md, each page in a process of its own."""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Pages(unittest.TestCase):
    def run_page(self, page):
        text = (ROOT / page).read_text()
        blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        self.assertTrue(blocks)
        code = ""
        for block in blocks:
            # Blank lines, so that an error has the line of the page.
            code += "\n" * (text.count("\n", 0, block.start()) + 1 - code.count("\n")) + block[1]
        program = f"exec(compile({code!r}, {page!r}, 'exec'))"
        result = subprocess.run([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_readme(self):
        self.run_page("python/README.md")

    def test_page(self):
        self.run_page("docs/python.md")


if __name__ == "__main__":
    unittest.main()
