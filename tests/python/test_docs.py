"""Runs the Python code of the README and of docs/python.md in processes of their own; checks the page's signatures."""

import inspect
import pathlib
import re
import subprocess
import sys
import unittest

from plinth import sleeping

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

    def test_signatures_of_the_table(self):
        rows = re.findall(r"^\| (`.+?) \|", (ROOT / "docs/python.md").read_text(), re.MULTILINE)
        signatures = [found for row in rows for found in re.findall(r"`(\w+)\((.*?)\)`", row)]
        signatures = [found for found in signatures if hasattr(sleeping, found[0])]
        self.assertGreater(len(signatures), 8)
        for name, parameters in signatures:
            own = inspect.signature(getattr(sleeping, name)).parameters.values()
            own = [str(parameter.replace(annotation=parameter.empty)) for parameter in own]
            self.assertEqual(parameters.replace('"', "'"), ", ".join(own), name)


if __name__ == "__main__":
    unittest.main()
