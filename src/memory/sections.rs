//! Sections: where blocks are placed so that their addresses repeat.
//!
//! A program that repeats its steps, but not all of their sizes, gets other addresses in every step if its blocks are
//! packed: a block of another size moves all blocks after it. Graph trees of `torch.compile` record a graph again whenever
//! an input has another address, so they are slow then. Sections contain such a change: they are the address ranges between
//! multiples of [`SECTION`]. A block of at most this size is placed inside one section if the chosen free block has room for
//! it there. Memory grows up to multiples of [`GROWTH`]. This costs some memory, so it is done in the default pool of
//! devices where a checkpoint of a pool was created, as only graph trees do, while memory is plentiful and not much of what
//! is held is unused.

/// The size of a section in bytes.
pub const SECTION: u64 = 8 << 20;
/// Memory grows up to multiples of this, in bytes. They contain whole sections, and handles of this size need fewer driver
/// calls.
pub const GROWTH: u64 = 4 * SECTION;

/// Returns the section's start for an address in it.
fn start_of(address: u64) -> u64 {
    address / SECTION * SECTION
}

/// Returns the first border above an address.
fn border_above(address: u64) -> u64 {
    start_of(address) + SECTION
}

/// Returns where to place a block in the free block from `start` to `end`, as the distance from `start`: in the smallest
/// part between borders that it fits, and at the beginning if it fits none.
pub fn place(start: u64, end: u64, size: u64) -> u64 {
    let first_border = border_above(start);
    if first_border >= end {
        return 0;
    }
    let last_border = start_of(end - 1);
    let whole_section = if last_border > first_border { SECTION } else { 0 };
    let parts =
        [(first_border - start, 0), (whole_section, first_border - start), (end - last_border, last_border - start)];
    let fitting = parts.into_iter().filter(|(part, _)| *part >= size);
    fitting.min_by_key(|(part, _)| *part).map_or(0, |(_, distance)| distance)
}

/// Returns the least end of a free block from `start` on that has room for a block in one section.
pub fn least_end(start: u64, size: u64) -> u64 {
    let border = border_above(start);
    if start + size <= border { start + size } else { border + size }
}

/// Returns the greatest start of a free block up to `end` that has room for a block in one section, or 0 if there is none.
pub fn greatest_start(end: u64, size: u64) -> u64 {
    let border = start_of(end - 1);
    let section_end = if end - border >= size { end } else { border };
    section_end.saturating_sub(size)
}

/// Returns the bytes to map in a hole, upwards from its start and downwards from its end, until a block of `size` bytes fits
/// into one section together with the free blocks around, which begin at `before` and end at `after`.
pub fn bytes_to_map(hole: (u64, u64), before: u64, after: u64, size: u64) -> (u64, u64) {
    let (start, end) = hole;
    // Only the parts in the sections of the hole's edges are of use.
    let least = least_end(before.max(start_of(start)), size);
    let greatest = greatest_start(after.min(end.next_multiple_of(SECTION)), size);
    (least.saturating_sub(start), end.saturating_sub(greatest))
}

/// Returns the bytes to map so that the mapped memory ends at a multiple of [`GROWTH`], at least `bytes`: upwards from
/// `address`, or downwards from it.
pub fn whole_growth(address: u64, bytes: u64, down: bool) -> u64 {
    if down {
        address - (address - bytes) / GROWTH * GROWTH
    } else {
        (address + bytes).next_multiple_of(GROWTH) - address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u64 = SECTION / 32;

    fn is_in_one_section(start: u64, size: u64) -> bool {
        start_of(start) == start_of(start + size - 1)
    }

    #[test]
    fn a_block_gets_the_smallest_part_that_fits() {
        let place = |start: u64, end: u64, size: u64| place(start * UNIT, end * UNIT, size * UNIT) / UNIT;
        assert_eq!(place(4, 30, 8), 0);
        assert_eq!(place(4, 32, 8), 0);
        // The parts have 4, 32 and 8 units, then 4 and 8, then 12 and 32.
        assert_eq!([place(28, 72, 3), place(28, 72, 6), place(28, 72, 20)], [0, 36, 4]);
        assert_eq!([place(28, 40, 6), place(28, 40, 10)], [4, 0]);
        assert_eq!([place(20, 64, 12), place(20, 64, 13), place(20, 64, 40)], [0, 12, 0]);
    }

    #[test]
    fn memory_grows_until_a_block_fits_into_a_section() {
        let bytes_to_map = |start: u64, end: u64, before: u64, after: u64, size: u64| {
            let (up, down) = super::bytes_to_map((start * UNIT, end * UNIT), before * UNIT, after * UNIT, size * UNIT);
            (up / UNIT, down / UNIT)
        };
        assert_eq!(bytes_to_map(32, 320, 32, 320, 8), (8, 8));
        // The free block below the hole is in another section; that above it ends in the same one.
        assert_eq!(bytes_to_map(32, 320, 20, 320, 8), (8, 8));
        assert_eq!(bytes_to_map(34, 310, 30, 318, 8), (6, 0));
        // What is left of the first section is too small.
        assert_eq!(bytes_to_map(60, 310, 60, 310, 8), (12, 8));
        assert_eq!(bytes_to_map(60, 290, 60, 290, 8), (12, 10));
        let growths = (whole_growth(60 * UNIT, 12 * UNIT, false), whole_growth(290 * UNIT, 10 * UNIT, true));
        assert_eq!(growths, (68 * UNIT, 34 * UNIT));
    }

    proptest! {
        #[test]
        fn blocks_lie_in_one_section_if_there_is_room(start in 0_u64..300, bytes in 1_u64..200, size in 1_u64..=32) {
            let (start, bytes, size) = (start * UNIT, bytes * UNIT, size * UNIT);
            prop_assume!(bytes >= size);
            let address = start + place(start, start + bytes, size);
            prop_assert!(address + size <= start + bytes);
            let fits = (start..=start + bytes - size).step_by(UNIT as usize).any(|at| is_in_one_section(at, size));
            prop_assert_eq!(is_in_one_section(address, size), fits);
            let has_room = |start: u64, end: u64| is_in_one_section(start + place(start, end, size), size);
            let least = (start + size..).step_by(UNIT as usize).find(|end| has_room(start, *end));
            prop_assert_eq!(Some(least_end(start, size)), least);
            let end = start + 64 * UNIT;
            let greatest = (0..=end - size).rev().step_by(UNIT as usize).find(|start| has_room(*start, end));
            prop_assert_eq!(Some(greatest_start(end, size)), greatest);
        }
    }
}
