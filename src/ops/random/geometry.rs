//! How PyTorch would launch a fill: that decides which number each element gets.

use crate::runtime::properties::Properties;

/// The threads of a block of PyTorch's.
const BLOCK: u64 = 256;

/// How many threads of PyTorch's a device runs at once, by which it limits a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The most blocks of a launch.
    max_blocks: u64,
}

impl Geometry {
    /// That of a device.
    pub fn of(properties: &Properties) -> Geometry {
        let per_processor = properties.max_threads_per_multi_processor.max(BLOCK as i32) as u64 / BLOCK;
        Geometry { max_blocks: properties.multi_processor_count.max(1) as u64 * per_processor }
    }

    /// The threads that fill `numel` elements, each of which has a subsequence of its own.
    pub fn lanes(self, numel: u64) -> u32 {
        (self.max_blocks.min(numel.div_ceil(BLOCK)) * BLOCK) as u32
    }

    /// How many calls each of them makes of its generator, where a call makes `unroll` elements.
    pub fn calls(self, numel: u64, unroll: u32) -> u64 {
        numel.div_ceil(u64::from(self.lanes(numel)) * u64::from(unroll))
    }

    /// By how much a fill advances the offset: four for each call, whatever it makes of them.
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
