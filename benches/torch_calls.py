"""Measures the calls of benches/overhead through PyTorch: their cost in a Python program.

Prints a table row for each call: nanoseconds of host time, the median of several rounds. Needs PyTorch and a GPU.
"""
import statistics
import time

import torch

ROUNDS, CALLS = 21, 2000


def measure(name, call):
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter_ns() - begin) / CALLS)
        torch.cuda.synchronize()
    print(f"| {name:38s} | {statistics.median(rounds):7.0f} |")


def main():
    stream = torch.cuda.Stream()
    event = torch.cuda.Event()
    event.record(stream)
    torch.cuda.set_stream(stream)
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}, ns for each call from Python\n")
    print("| call | ns |\n|---|---|")
    measure("torch.cuda.current_device()", torch.cuda.current_device)
    measure("torch.cuda.current_stream()", torch.cuda.current_stream)
    measure("torch.cuda.set_stream(s)", lambda: torch.cuda.set_stream(stream))
    measure("event.record(s)", lambda: event.record(stream))
    measure("event.query()", event.query)
    measure("s.wait_event(event)", lambda: stream.wait_event(event))
    measure("s.query()", stream.query)
    measure("torch.cuda.is_current_stream_capturing()", torch.cuda.is_current_stream_capturing)
    measure("torch.cuda.Event(); record", lambda: torch.cuda.Event().record(stream))
    graph, numbers = torch.cuda.CUDAGraph(), torch.zeros(64, device="cuda")
    with torch.cuda.graph(graph):
        for _ in range(20):
            numbers = numbers + 1
    # As in benches/graph: many consecutive replays, to the end of the last.
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(2000):
        graph.replay()
    torch.cuda.synchronize()
    print(f"| {'graph.replay(), 20 kernels, done':38s} | {(time.perf_counter_ns() - begin) / 2000:7.0f} |")


main()
