//! The sizes that pinned memory is given out in: eight to a doubling, so that rounding up adds less than an eighth.

/// The sizes up to `FINE` are the multiples of this, which is also what every address is a multiple of: the line that a
/// processor's caches and a device's writes share.
pub const UNIT: u64 = 64;
/// Up to this size there is a class for each unit; above it, eight to a doubling.
const FINE: u64 = 512;
const FINE_CLASSES: usize = (FINE / UNIT) as usize;
const STEP_BITS: u32 = 3;
const FINE_BITS: u32 = FINE.ilog2();
/// Addresses of a process have 47 bits on every machine that CUDA runs on.
const LARGEST_BITS: u32 = 47;

/// How many classes there are.
pub const CLASSES: usize = FINE_CLASSES + ((LARGEST_BITS - FINE_BITS) as usize) * (1 << STEP_BITS);

/// What is cut into blocks of a class: about so many bytes, or one block if that is larger than half of them.
const SLAB: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// The class of a request, which is not 0; `None` beyond what addresses can number.
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

/// The bytes of a block of a class.
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

/// How many blocks of a class a slab has.
pub fn slots(class: usize) -> u64 {
    (SLAB / size(class)).max(1)
}

/// The bytes of a slab, whole pages: nothing is left over behind the last block but what fills a page.
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
    fn classes_grow_and_are_their_own() {
        for class in 0..CLASSES {
            assert_eq!(of(size(class)), Some(class));
            assert_eq!(size(class) % UNIT, 0);
        }
    }

    /// Both [`map`](super::super::map)'s cells and the 16 bits that number a slab's blocks count on it.
    #[test]
    fn slabs_waste_nothing_and_are_neither_small_nor_many() {
        for class in 0..CLASSES {
            let (bytes, used) = (slab_bytes(class), slots(class) * size(class));
            assert!((bytes - used) < PAGE && (bytes - used) * 256 < bytes, "{class}");
            assert!(bytes >= 1 << 20 && slots(class) <= 1 << 15, "{class}");
        }
    }
}
