//! The geometry of PyTorch's launch of a fill, which determines the number that each element gets.

use crate::runtime::properties::Properties;

/// Threads per block in PyTorch's launches.
const BLOCK_THREADS: u64 = 256;

/// The number of PyTorch's blocks that a device runs concurrently, which limits a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The maximum number of blocks of a launch.
    max_blocks: u64,
}

impl Geometry {
    /// Returns the geometry of a device.
    pub fn of(properties: &Properties) -> Geometry {
        let per_processor = properties.max_threads_per_multi_processor.max(BLOCK_THREADS as i32) as u64 / BLOCK_THREADS;
        Geometry { max_blocks: properties.multi_processor_count.max(1) as u64 * per_processor }
    }

    /// Returns the number of threads that fill `numel` elements; each has its own subsequence.
    pub fn lanes(self, numel: u64) -> u32 {
        (self.max_blocks.min(numel.div_ceil(BLOCK_THREADS)) * BLOCK_THREADS) as u32
    }

    /// Returns how many calls of the generator each thread makes, if a call produces `unroll` elements.
    pub fn calls(self, numel: u64, unroll: u32) -> u64 {
        numel.div_ceil(u64::from(self.lanes(numel)) * u64::from(unroll))
    }

    /// Returns the increment of the offset for a fill: four for each call, regardless of `unroll`.
    pub fn increment(self, numel: u64, unroll: u32) -> u64 {
        if numel == 0 { 0 } else { self.calls(numel, unroll) * 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> Geometry {
        Geometry::of(&Properties {
            multi_processor_count: 132,
            max_threads_per_multi_processor: 2048,
            ..Properties::default()
        })
    }

    #[test]
    fn an_h200_has_its_known_lanes_and_increments() {
        for (numel, blocks, increment) in [
            (1, 1, 4),
            (256, 1, 4),
            (257, 2, 4),
            (270_336, 1056, 4),
            (1_081_344, 1056, 4),
            (1_081_345, 1056, 8),
            (10_000_000, 1056, 40),
        ] {
            assert_eq!(h200().lanes(numel), blocks * 256, "{numel}");
            assert_eq!(h200().increment(numel, 4), increment, "{numel}");
        }
        assert_eq!(h200().increment(540_673, 2), 8);
        assert_eq!(h200().increment(0, 4), 0);
    }
}
