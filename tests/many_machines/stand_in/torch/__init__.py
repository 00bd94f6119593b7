"""A stand-in of PyTorch for machines without it: what examples/many_machines/torchrun.py uses of it."""
