"""Enables plinth in PyTorch right after `import torch`, if PLINTH_TORCH=1. plinth_torch.pth imports this file whenever
Python starts; without the variable it does nothing."""

import os

if os.environ.get("PLINTH_TORCH", "") not in ("", "0"):
    import importlib.abc
    import importlib.util
    import sys
    import threading
    import warnings

    class _Loader(importlib.abc.Loader):
        """Loads torch with its own loader, then calls enable()."""

        def __init__(self, loader):
            self.loader = loader

        def create_module(self, spec):
            return self.loader.create_module(spec)

        def exec_module(self, module):
            module.__spec__.loader = module.__loader__ = self.loader
            self.loader.exec_module(module)
            try:
                import plinth.torch

                plinth.torch.enable()
            except Exception as error:  # The program runs as it would without plinth.
                warnings.warn(f"PLINTH_TORCH=1: {error}", RuntimeWarning, stacklevel=2)

        def __getattr__(self, name):
            return getattr(self.loader, name)

    class _Finder(importlib.abc.MetaPathFinder):
        """Finds torch with the other finders, and puts the loader above before theirs."""

        searching = threading.local()

        def find_spec(self, name, path=None, target=None):
            if name != "torch" or getattr(self.searching, "active", False):
                return None
            self.searching.active = True
            try:
                spec = importlib.util.find_spec(name)
            finally:
                self.searching.active = False
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader)
            return spec

    sys.meta_path.insert(0, _Finder())
