"""Measures PyTorch's pinned memory, for comparison with benches/pinned: pairs of allocation and free, copies, and their
overlap with kernels.

Prints the same tables. The times include Python's own cost; the column for pageable memory shows how much that is. Needs
PyTorch and a GPU.
"""
import statistics
import threading
import time

import torch

MIB = 1 << 20
ROUNDS, CALLS = 15, 2000


def nanoseconds_of(call, calls=CALLS):
    for _ in range(10):
        call()
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        rounds.append((time.perf_counter_ns() - begin) / calls)
        torch.cuda.synchronize()
    return statistics.median(rounds)


def pairs():
    print("## A pair of calls, ns\n\n| bytes | torch.empty(pin_memory=True), del | torch.empty, del |\n|---|---|---|")
    for size in (64, 4096, 65536, MIB, 16 * MIB, 256 * MIB):
        pinned = nanoseconds_of(lambda: torch.empty(size, dtype=torch.uint8, pin_memory=True))
        plain = nanoseconds_of(lambda: torch.empty(size, dtype=torch.uint8))
        print(f"| {size} | {pinned:.0f} | {plain:.0f} |")


def rounding():
    print("\n## Bytes of a block\n\n| requested | allocated |\n|---|---|")
    for size in (513, 70000, MIB + 1, 9 * MIB, 65 * MIB):
        before = torch.cuda.memory.host_memory_stats()["allocated_bytes.current"]
        block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        print(f"| {size} | {torch.cuda.memory.host_memory_stats()['allocated_bytes.current'] - before} |")
        del block


def calls():
    device = torch.empty(4096, dtype=torch.uint8, device="cuda")
    host = torch.empty(4096, dtype=torch.uint8, pin_memory=True)

    def round_trip():
        memory = torch.empty(4096, dtype=torch.uint8, pin_memory=True)
        device.copy_(memory, non_blocking=True)

    print("\n## A copy of 4 KiB to the device, ns of host time\n\n| call | ns |\n|---|---|")
    print(f"| copy_(pinned, non_blocking=True) | {nanoseconds_of(lambda: device.copy_(host, non_blocking=True), 32):.0f} |")
    print(f"| torch.empty(pin_memory=True), copy_, del | {nanoseconds_of(round_trip, 32):.0f} |")


def seconds_of(body):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    body()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def median_seconds(body):
    body()
    return statistics.median(seconds_of(body) for _ in range(ROUNDS))


def bandwidth(size):
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    print(f"\n## Copies of {size // MIB} MiB, GB/s\n\n| host memory | to the device | from it |\n|---|---|---|")
    for name, pinned in (("pinned", True), ("pageable", False)):
        host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
        upload = median_seconds(lambda: device.copy_(host, non_blocking=True))
        download = median_seconds(lambda: host.copy_(device, non_blocking=True))
        print(f"| {name} | {size / upload * 1e-9:.1f} | {size / download * 1e-9:.1f} |")


def overlap(size):
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    numbers = torch.empty(64 * MIB, device="cuda")
    side = torch.cuda.Stream()
    print(f"\n## Copies of {size // MIB} MiB beside kernels, ms\n")
    print("| copy | kernels alone | copy alone | together | hidden part of the shorter |\n|---|---|---|---|---|")
    for name, pinned in (("pinned", True), ("pageable", False)):
        host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
        for direction, to, origin in (("to the device", device, host), ("from the device", host, device)):
            def copy():
                to.copy_(origin, non_blocking=True)
            one = median_seconds(lambda: numbers.normal_())
            alone = median_seconds(copy)
            launches = int(alone / one) + 1

            def kernels():
                with torch.cuda.stream(side):
                    for _ in range(launches):
                        numbers.normal_()

            def together():
                copy()
                kernels()
            busy, both = median_seconds(kernels), median_seconds(together)
            hidden = 100 * (busy + alone - both) / min(busy, alone)
            print(f"| {name}, {direction} | {busy * 1e3:.2f} | {alone * 1e3:.2f} | {both * 1e3:.2f} | {hidden:.0f} % |")


def threads():
    """Measures pairs from many threads. Python runs one thread at a time, so this overestimates their contention."""
    print("\n## Many threads, million pairs per second in total\n\n| threads | 4 KiB each |\n|---|---|")
    for count in (1, 4, 16):
        def body():
            for _ in range(20000 // count):
                torch.empty(4096, dtype=torch.uint8, pin_memory=True)
        workers = [threading.Thread(target=body) for _ in range(count)]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(f"| {count} | {20000 // count * count / (time.perf_counter() - begin) * 1e-6:.2f} |")


def main():
    print(f"# Pinned memory through PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}\n")
    pairs()
    threads()
    rounding()
    calls()
    bandwidth(512 * MIB)
    overlap(512 * MIB)


if __name__ == "__main__":
    main()
