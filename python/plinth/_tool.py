"""The `plinth` command: starts the tool, which is a program in the wheel. Not a part of the API."""

import os
import sys


def main():
    """Replaces the process by the tool, with the same arguments."""
    try:
        # It names an unrelated package `plinth` whose files are mixed with those of this one.
        from ._native import FOLDER
    except ImportError as error:
        sys.exit(str(error))
    tool = FOLDER / "bin" / "plinth"
    try:
        os.execv(tool, [str(tool), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"plinth: cannot start {tool}: {error.strerror}; only the wheel holds the tool, and `make tool` builds it")
