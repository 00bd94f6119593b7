//! Formats statistics as a table with the layout of `torch.cuda.memory_summary`.

use super::stats::{ByPool, Stat, Stats};
use std::fmt::Write;

/// The number of characters between the outer bars.
const WIDTH: usize = 75;

/// Formats a number in the unit for the row's scale.
type Format = fn(value: u64, scale: u64) -> String;

/// Divides a number by `base` for each unit that the scale exceeds, and returns it with the unit. The scale is the
/// number in the first row of a group, so that all rows of a group use the same unit.
fn in_unit(mut value: u64, scale: u64, base: u64, threshold: f64, units: &[&'static str]) -> (u64, &'static str) {
    let mut scale = scale as f64;
    let mut unit = "";
    for (step, next) in units.iter().enumerate() {
        if step > 0 {
            if scale < threshold {
                break;
            }
            value /= base;
            scale /= base as f64;
        }
        unit = next;
    }
    (value, unit)
}

fn size(bytes: u64, scale: u64) -> String {
    let (number, unit) = in_unit(bytes, scale, 1024, 768.0 * 1024.0, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    format!("{number:6} {unit}")
}

fn count(number_of_items: u64, scale: u64) -> String {
    let (number, unit) = in_unit(number_of_items, scale, 1000, 750.0 * 1000.0, &[" ", "K", "M"]);
    format!("{number:7} {unit} ")
}

struct Table(String);

impl Table {
    fn line(&mut self, line: &str) {
        self.0.push('|');
        self.0.push_str(line);
        self.0.push_str("|\n");
    }

    fn rule(&mut self, character: &str) {
        self.line(&character.repeat(WIDTH));
    }

    fn row(&mut self, name: &str, stat: &Stat, scale: &Stat, format: Format) {
        let mut line = format!(" {name:<21} ");
        for (value, scale) in [
            (stat.current, scale.current),
            (stat.peak, scale.peak),
            (stat.allocated, scale.allocated),
            (stat.freed, scale.freed),
        ] {
            // Writing to a string cannot fail.
            let _ = write!(line, "| {} ", format(value, scale));
        }
        self.line(&line);
    }
}

/// Formats the statistics of a device as a table. The abbreviated form omits the rows for small and large blocks.
pub fn summary(device: u32, stats: &Stats, abbreviated: bool) -> String {
    let groups: [(&ByPool, &str, Format); 9] = [
        (&stats.allocated_bytes, "Allocated memory", size),
        (&stats.active_bytes, "Active memory", size),
        (&stats.requested_bytes, "Requested memory", size),
        (&stats.reserved_bytes, "GPU reserved memory", size),
        (&stats.inactive_split_bytes, "Non-releasable memory", size),
        (&stats.allocation, "Allocations", count),
        (&stats.active, "Active allocs", count),
        (&stats.segment, "GPU reserved segments", count),
        (&stats.inactive_split, "Non-releasable allocs", count),
    ];
    let mut table = Table(String::new());
    table.rule("=");
    table.line(&format!("{:18}plinth CUDA memory summary, device ID {device:<18} ", ""));
    table.rule("-");
    table.line(&format!(
        "{:12}CUDA OOMs: {:<12} | {:6} cudaMalloc retries: {:<8}  ",
        "", stats.num_ooms, "", stats.num_alloc_retries
    ));
    table.rule("=");
    table.line("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ");
    for (counts, name, format) in groups {
        table.rule("-");
        table.row(name, &counts.all, &counts.all, format);
        if !abbreviated {
            table.row("      from large pool", &counts.large_pool, &counts.all, format);
            table.row("      from small pool", &counts.small_pool, &counts.all, format);
        }
    }
    for (stat, name) in
        [(&stats.oversize_allocations, "Oversize allocations"), (&stats.oversize_segments, "Oversize GPU segments")]
    {
        table.rule("-");
        table.row(name, stat, stat, count);
    }
    table.rule("=");
    table.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "\
|===========================================================================|
|                  plinth CUDA memory summary, device ID 1                  |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 3            |        cudaMalloc retries: 12345     |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |   5624 MiB |   5673 MiB |  22536 MiB |  16911 MiB |
|       from large pool |   5543 MiB |   5543 MiB |   8875 MiB |   3332 MiB |
|       from small pool |     81 MiB |    243 MiB |  13660 MiB |  13579 MiB |
|---------------------------------------------------------------------------|
| Active memory         |    768 KiB | 786431 B   |    768 MiB | 785408 KiB |
|       from large pool |      0 KiB |      0 B   |      0 MiB |      0 KiB |
|       from small pool |    768 KiB | 786431 B   |    768 MiB | 785408 KiB |
|---------------------------------------------------------------------------|
| Requested memory      |   1000 B   | 786431 B   |    768 KiB |      0 B   |
|       from large pool |      0 B   |      0 B   |      0 KiB |      0 B   |
|       from small pool |   1000 B   | 786431 B   |    768 KiB |      0 B   |
|---------------------------------------------------------------------------|
| GPU reserved memory   |    768 GiB |    769 GiB |   3072 TiB |   1024 PiB |
|       from large pool |    700 GiB |    700 GiB |   2048 TiB |    512 PiB |
|       from small pool |     68 GiB |     69 GiB |   1024 TiB |    512 PiB |
|---------------------------------------------------------------------------|
| Non-releasable memory |      0 B   |      0 B   |      0 B   |      0 B   |
|       from large pool |      0 B   |      0 B   |      0 B   |      0 B   |
|       from small pool |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Allocations           |    4102    |  749999    |     750 K  |     750 K  |
|       from large pool |       1    |       2    |       0 K  |       0 K  |
|       from small pool |    4101    |  749997    |     749 K  |     749 K  |
|---------------------------------------------------------------------------|
| Active allocs         |       7    |       8    |  749999 K  |     750 M  |
|       from large pool |       3    |       4    |       0 K  |       0 M  |
|       from small pool |       4    |       4    |  749999 K  |     749 M  |
|---------------------------------------------------------------------------|
| GPU reserved segments |      12    |      13    |      14    |       2    |
|       from large pool |       2    |       3    |       4    |       2    |
|       from small pool |      10    |      10    |      10    |       0    |
|---------------------------------------------------------------------------|
| Non-releasable allocs |       1    |       1    |    1234 M  |    1234 M  |
|       from large pool |       0    |       0    |       0 M  |       0 M  |
|       from small pool |       1    |       1    |    1234 M  |    1234 M  |
|---------------------------------------------------------------------------|
| Oversize allocations  |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize GPU segments |       1    |       2    |     800 K  |     799 K  |
|===========================================================================|
";

    const ABBREVIATED: &str = "\
|===========================================================================|
|                  plinth CUDA memory summary, device ID 63                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 3            |        cudaMalloc retries: 12345     |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |   5624 MiB |   5673 MiB |  22536 MiB |  16911 MiB |
|---------------------------------------------------------------------------|
| Active memory         |    768 KiB | 786431 B   |    768 MiB | 785408 KiB |
|---------------------------------------------------------------------------|
| Requested memory      |   1000 B   | 786431 B   |    768 KiB |      0 B   |
|---------------------------------------------------------------------------|
| GPU reserved memory   |    768 GiB |    769 GiB |   3072 TiB |   1024 PiB |
|---------------------------------------------------------------------------|
| Non-releasable memory |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Allocations           |    4102    |  749999    |     750 K  |     750 K  |
|---------------------------------------------------------------------------|
| Active allocs         |       7    |       8    |  749999 K  |     750 M  |
|---------------------------------------------------------------------------|
| GPU reserved segments |      12    |      13    |      14    |       2    |
|---------------------------------------------------------------------------|
| Non-releasable allocs |       1    |       1    |    1234 M  |    1234 M  |
|---------------------------------------------------------------------------|
| Oversize allocations  |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize GPU segments |       1    |       2    |     800 K  |     799 K  |
|===========================================================================|
";

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const PIB: u64 = 1 << 50;

    fn stat(current: u64, peak: u64, allocated: u64, freed: u64) -> Stat {
        Stat { current, peak, allocated, freed }
    }

    /// Values on both sides of each change of unit. The tables above are torch 2.11's output for them, except for the
    /// name in the title.
    fn stats() -> Stats {
        Stats {
            allocated_bytes: ByPool {
                all: stat(5624 * MIB + 300, 5673 * MIB, 22536 * MIB, 16911 * MIB),
                large_pool: stat(5543 * MIB, 5543 * MIB, 8875 * MIB, 3332 * MIB),
                small_pool: stat(81 * MIB + 300, 243 * MIB, 13660 * MIB, 13579 * MIB),
            },
            active_bytes: ByPool {
                all: stat(768 * KIB, 768 * KIB - 1, 768 * MIB, 767 * MIB),
                large_pool: Stat::default(),
                small_pool: stat(768 * KIB, 768 * KIB - 1, 768 * MIB, 767 * MIB),
            },
            requested_bytes: ByPool {
                all: stat(1000, 786_431, 786_432, 0),
                large_pool: Stat::default(),
                small_pool: stat(1000, 786_431, 786_432, 0),
            },
            reserved_bytes: ByPool {
                all: stat(768 * GIB, 769 * GIB, 3 * PIB, 1024 * PIB),
                large_pool: stat(700 * GIB, 700 * GIB, 2 * PIB, 512 * PIB),
                small_pool: stat(68 * GIB, 69 * GIB, PIB, 512 * PIB),
            },
            allocation: ByPool {
                all: stat(4102, 749_999, 750_000, 750_001),
                large_pool: stat(1, 2, 3, 2),
                small_pool: stat(4101, 749_997, 749_997, 749_999),
            },
            active: ByPool {
                all: stat(7, 8, 749_999_999, 750_000_000),
                large_pool: stat(3, 4, 5, 2),
                small_pool: stat(4, 4, 749_999_994, 749_999_998),
            },
            segment: ByPool { all: stat(12, 13, 14, 2), large_pool: stat(2, 3, 4, 2), small_pool: stat(10, 10, 10, 0) },
            inactive_split: ByPool {
                all: stat(1, 1, 1_234_567_890, 1_234_567_889),
                large_pool: Stat::default(),
                small_pool: stat(1, 1, 1_234_567_890, 1_234_567_889),
            },
            oversize_segments: stat(1, 2, 800_000, 799_999),
            num_ooms: 3,
            num_alloc_retries: 12_345,
            ..Stats::default()
        }
    }

    #[test]
    fn table_matches_torch() {
        assert_eq!(summary(1, &stats(), false), FULL);
        assert_eq!(summary(63, &stats(), true), ABBREVIATED);
    }

    #[test]
    fn all_lines_have_equal_width() {
        for table in [summary(0, &Stats::default(), false), summary(0, &stats(), true)] {
            assert!(table.lines().all(|line| line.len() == WIDTH + 2), "{table}");
        }
    }

    #[test]
    fn the_largest_numbers_are_written_whole() {
        assert_eq!(size(u64::MAX, u64::MAX), " 16383 PiB");
        assert_eq!(count(u64::MAX, u64::MAX), "18446744073709 M ");
    }
}
