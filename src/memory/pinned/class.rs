//! Size classes of pinned memory: eight per power of two, so that rounding up adds less than an eighth.

/// The step between classes up to `FINE`, and the alignment of every block: the cache line size, for processors and
/// for writes of devices.
pub const UNIT: u64 = 64;
/// The largest size with a class for each unit. Above it, there are eight classes per power of two.
const FINE: u64 = 512;
const FINE_CLASSES: usize = (FINE / UNIT) as usize;
const STEP_BITS: u32 = 3;
const FINE_BITS: u32 = FINE.ilog2();
/// No larger memory can be pinned: a program's addresses have 47 bits on x86-64, and 48 on AArch64.
const LARGEST_BITS: u32 = 47;

/// The number of classes.
pub const CLASSES: usize = FINE_CLASSES + ((LARGEST_BITS - FINE_BITS) as usize) * (1 << STEP_BITS);

/// The approximate size of a slab. A block that is larger than half of it has its own slab.
const SLAB: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// Returns the class of a nonzero request; `None` for more than the address space.
#[inline]
pub fn of(bytes: u64) -> Option<usize> {
    if bytes <= FINE {
        return Some(bytes.div_ceil(UNIT) as usize - 1);
    }
    let last = bytes - 1;
    let bits = last.ilog2();
    let step = (last >> (bits - STEP_BITS)) as usize - (1 << STEP_BITS);
    let class = FINE_CLASSES + (((bits - FINE_BITS) as usize) << STEP_BITS) + step;
    (class < CLASSES).then_some(class)
}

/// Returns the block size of a class in bytes.
#[inline]
pub fn size(class: usize) -> u64 {
    if class < FINE_CLASSES {
        return (class as u64 + 1) * UNIT;
    }
    let above = class - FINE_CLASSES;
    let bits = FINE_BITS + (above >> STEP_BITS) as u32;
    let step = (above & ((1 << STEP_BITS) - 1)) as u64;
    ((1 << STEP_BITS) + step + 1) << (bits - STEP_BITS)
}

/// Returns the number of blocks in a slab of a class.
pub fn slots(class: usize) -> u64 {
    (SLAB / size(class)).max(1)
}

/// Returns the size of a slab in bytes, rounded up to whole pages. Only that rounding is left over behind the last
/// block.
pub fn slab_bytes(class: usize) -> u64 {
    (slots(class) * size(class)).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: u64) {
        let class = of(bytes).unwrap();
        let size = size(class);
        assert!(size >= bytes, "{bytes} in {size}");
        assert!(size - bytes < UNIT || (size - bytes) * 8 < bytes, "{bytes} in {size}");
        assert!(class == 0 || super::size(class - 1) < bytes, "{bytes} fits a smaller class than {size}");
    }

    #[test]
    fn less_than_an_eighth_is_added() {
        (1..=1 << 21).for_each(check);
        for bits in 21..LARGEST_BITS {
            for eighth in 8..=16u64 {
                let exact = eighth << (bits - STEP_BITS);
                [exact - 1, exact, exact + 1].into_iter().filter(|bytes| *bytes <= 1 << LARGEST_BITS).for_each(check);
            }
        }
        assert_eq!((of(1 << LARGEST_BITS), of((1 << LARGEST_BITS) + 1)), (Some(CLASSES - 1), None));
        assert_eq!(of(u64::MAX), None);
    }

    #[test]
    fn class_sizes_increase_and_map_to_their_class() {
        for class in 0..CLASSES {
            assert_eq!(of(size(class)), Some(class));
            assert_eq!(size(class) % UNIT, 0);
        }
    }

    /// The cells of [`map`](super::super::map) and the 16-bit block numbers of a slab depend on these bounds.
    #[test]
    fn slabs_waste_little_and_keep_within_bounds() {
        for class in 0..CLASSES {
            let (bytes, used) = (slab_bytes(class), slots(class) * size(class));
            assert!((bytes - used) < PAGE && (bytes - used) * 256 < bytes, "{class}");
            assert!(bytes >= 1 << 20 && slots(class) <= 1 << 15, "{class}");
        }
    }
}
