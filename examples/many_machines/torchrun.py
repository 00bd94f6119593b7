"""Ranks that torchrun starts, on any number of machines: rank 0 creates the unique id, and torch's store passes it to
the others.

  torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node0:29400 torchrun.py
"""

import array
import os
import sys

from torch.distributed import TCPStore

import plinth
from plinth.communicator import unique_id

COUNT = 1 << 20

rank, ranks, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))

# Each rank of a machine has a device of its own.
plinth.init()  # an error if there is no device
device = local_rank % plinth.device_count()
plinth.set_device(device)

# Either torchrun itself serves the store, or rank 0 does. Ranks that torchrun starts again use another key.
serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=serves)
key = f"plinth/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
if rank == 0:
    store.set(key, unique_id())
uid = store.get(key)  # waits for rank 0

with plinth.Communicator.init_rank(ranks, uid, rank, device) as communicator:
    numbers = plinth.to_device(array.array("f", [rank + 1]) * COUNT, device)
    communicator.all_reduce(numbers)
    sums = set(numbers.tolist())
    right = sums == {ranks * (ranks + 1) / 2}
    # A line in one write, unlike print's, so that the lines of ranks that share an output do not mix.
    sys.stdout.write(f"rank {rank} of {ranks}, device {device}, engine {communicator.engine}: the sum is "
                     f"{', '.join(f'{number:g}' for number in sums)}, {'as expected' if right else 'which is wrong'}\n")
raise SystemExit(not right)
