#!/usr/bin/env python3
"""Tests benches/collectives_scale.py against the code and the pages that its numbers come from."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches"))

import collectives_scale as scale  # noqa: E402
import comm_model  # noqa: E402

UNITS = {"B": 1, "KiB": scale.KIB, "MiB": scale.MIB}
UPDATE = "correct benches/collectives_scale.py, run it with --write, and read docs/collectives_scale.md again"


def thresholds(source, name):
    entries = re.search(rf"const {name}: .*? = \[(.*)\];", source)[1]
    return tuple((None if limit == "u32::MAX" else int(limit), int(value) << int(shift))
                 for limit, value, shift in re.findall(r"\(([\w:]+), (\d+) << (\d+)\)", entries))


class Sources(unittest.TestCase):
    def test_tuning(self):
        source = (ROOT / "src/collectives/processes/tuning.rs").read_text()
        self.assertEqual(thresholds(source, "ONE_SHOT"), scale.ONE_SHOT, UPDATE)
        self.assertEqual(thresholds(source, "PACKETS"), scale.PACKETS, UPDATE)
        self.assertIn(f"const FEW_BLOCKS: u32 = {scale.BLOCKS};", source, UPDATE)
        for name, value in (("block_bytes", scale.BLOCK_BYTES), ("staging", scale.STAGING)):
            number, shift = re.search(rf"^ +{name}: (\d+) << (\d+),$", source, re.MULTILINE).groups()
            self.assertEqual(int(number) << int(shift), value, UPDATE)

    def test_kernels(self):
        source = (ROOT / "kernels/group/symmetric_buffer.cuh").read_text()
        for name, value in (("kRanks", scale.MAX_RANKS), ("kThreads", scale.THREADS)):
            self.assertIn(f"constexpr u32 {name} = {value};", source, UPDATE)

    def test_measured(self):
        page = (ROOT / "docs/benchmarks.md").read_text()
        section = re.search(r"^### All-reduce between two processes, before\n(.*?)^#", page, re.MULTILINE | re.DOTALL)[1]
        rows = []
        for line in re.findall(r"^\| (\d.*) \|$", section, re.MULTILINE):
            size, *times = line.replace("*", "").split("|")
            number, unit = size.split()
            rows.append((int(number) * UNITS[unit], *(float(times[column]) for column in (0, 4, 1, 3))))
        self.assertEqual(tuple(rows), scale.TWO_RANKS, UPDATE)

    def test_page(self):
        page = scale.PAGE.read_text()
        for name, lines in scale.tables(scale.Model()):
            self.assertTrue(f"<!-- {name}: begin -->\n{lines}\n<!-- {name}: end -->" in page, f"{name}: {UPDATE}")


class Times(unittest.TestCase):
    model = scale.Model()

    def test_algorithms(self):
        self.assertEqual([scale.chosen(8, size * scale.KIB) for size in (32, 33, 128, 129)],
                         ["packets", "one-shot", "one-shot", "two-shot"])

    def test_counts(self):
        # A slot has 4 MiB between two ranks. 64 blocks of 512 threads load 512 KiB at once.
        self.assertEqual(scale.counts("one-shot", 2, 4 * scale.MIB), (1, 16, 0, 4 * scale.MIB))
        self.assertEqual(scale.counts("one-shot", 2, 4 * scale.MIB + 16)[:2], (2, 18))
        self.assertEqual(scale.counts("two-shot", 2, 8 * scale.MIB), (2, 40, 0, 8 * scale.MIB))
        self.assertEqual(scale.counts("two-shot", 8, 64 * scale.MIB), (16, 8 * 17 * 2, 0, 112 * scale.MIB))
        # Parts of 16 bytes still cost a load for each rank.
        self.assertEqual(scale.counts("two-shot", 16, 256)[:2], (2, 33))
        self.assertEqual(scale.counts("packets", 4, 1024), (0, 0, 6, 6 * 1024))

    def test_fit(self):
        for size, graph, eager, *_ in scale.TWO_RANKS:
            self.assertLess(abs(self.model.measured(size) / graph - 1), 0.1)
            self.assertLess(abs((self.model.measured(size) + self.model.eager) / eager - 1), 0.1)

    def test_fit_predicts_rows_that_it_does_not_see(self):
        for seen in (scale.TWO_RANKS[::2], scale.TWO_RANKS[1::2], scale.TWO_RANKS[:9]):
            model = scale.Model(seen)
            for size, graph, *_ in scale.TWO_RANKS:
                self.assertLess(abs(model.measured(size) / graph - 1), 0.15)

    def test_fit_finds_known_constants(self):
        known = scale.Model()
        known.launch, known.step, known.load = 5.0, 1.5, 0.3
        found = scale.Model([(size, known.default(2, size), known.default(2, size) + 9.0) for size, *_ in scale.TWO_RANKS
                             if scale.chosen(2, size) != "packets"]
                            + [(512, known.default(2, 512), known.default(2, 512) + 9.0)])
        for name, value in (("launch", 5.0), ("step", 1.5), ("load", 0.3), ("eager", 9.0)):
            self.assertAlmostEqual(getattr(found, name), value, 6)

    def test_more_data_and_more_ranks_take_longer(self):
        for algorithm in ("packets", "one-shot", "two-shot", "registered"):
            for ranks in (2, 4, 8, 16):
                times = [self.model.time(algorithm, ranks, 1 << power) for power in range(9, 27)]
                self.assertEqual(times, sorted(times))
        self.assertEqual(self.model.first("two-shot", "one-shot", 8), None)


class Simulation(unittest.TestCase):
    def test_one_block_waits_for_the_latest_rank(self):
        # The largest of n exponential times has the mean 1 + 1/2 + ... + 1/n.
        for ranks in (1, 2, 8):
            expected = sum(1 / k for k in range(1, ranks + 1))
            self.assertAlmostEqual(scale.waiting(ranks, 1, blocks=1, rounds=600), expected, delta=0.1)

    def test_independent_blocks_wait_less(self):
        self.assertLess(scale.waiting(4, 16, rounds=3), scale.waiting(4, 16, whole=True, rounds=3))

    def test_reads(self):
        self.assertAlmostEqual(scale.reading(8, 0), 7 * 2 * scale.POLL)
        self.assertLess(scale.reading(8, 1), scale.reading(8, 0))


class Nccl(unittest.TestCase):
    def test_choice_is_the_fastest(self):
        times = comm_model.candidates(64, scale.MIB, 50)
        self.assertEqual(len(times), 6)
        self.assertEqual(comm_model.nccl(64, scale.MIB, 50)[2], min(time for _, _, time in times))


if __name__ == "__main__":
    unittest.main()
