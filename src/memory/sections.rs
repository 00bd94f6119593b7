//! Sections: where blocks are placed so that their addresses repeat.
//!
//! A program that repeats its steps, but not all of their sizes, gets other addresses in every step if its blocks are
//! packed: a block of another size moves all blocks after it. Graph trees of `torch.compile` record a graph again whenever
//! an input has another address, so they are slow then. Sections contain such a change: they are the address ranges between
//! multiples of a power of two. A block of at most [`LARGEST_SECTION`] is placed inside a section of the smallest power of two
//! that it fits into, if the chosen free block has room for it there. Memory grows up to multiples of a larger power of two.
//! This costs some memory, so it is done in the default pool of devices where a checkpoint of a pool was created, as only graph
//! trees do, while memory is plentiful and not much of what is held is unused.

/// The size of the largest sections in bytes.
pub const LARGEST_SECTION: u64 = 8 << 20;
/// Memory grows at most up to multiples of this many bytes. They contain whole sections, and large handles need fewer driver
/// calls.
pub const LARGEST_GROWTH: u64 = 8 * LARGEST_SECTION;

/// Returns the size of the sections for blocks of `size` bytes, at most [`LARGEST_SECTION`].
fn section_for(size: u64) -> u64 {
    size.next_power_of_two()
}

/// Returns the start of the section of `section` bytes for an address in it.
fn start_of(address: u64, section: u64) -> u64 {
    address / section * section
}

/// Returns the first border above an address between sections of `section` bytes.
fn border_above(address: u64, section: u64) -> u64 {
    start_of(address, section) + section
}

/// Returns where to place a block in the free block from `start` to `end`, as the distance from `start`: in the smallest
/// part between borders that it fits, and at the beginning if it fits none.
pub fn place(start: u64, end: u64, size: u64) -> u64 {
    let section = section_for(size);
    let first_border = border_above(start, section);
    if first_border >= end {
        return 0;
    }
    let last_border = start_of(end - 1, section);
    let whole_section = if last_border > first_border { section } else { 0 };
    let parts =
        [(first_border - start, 0), (whole_section, first_border - start), (end - last_border, last_border - start)];
    let fitting = parts.into_iter().filter(|(part, _)| *part >= size);
    fitting.min_by_key(|(part, _)| *part).map_or(0, |(_, distance)| distance)
}

/// Returns the least end of a free block from `start` on that has room for a block in one section.
pub fn least_end(start: u64, size: u64) -> u64 {
    let border = border_above(start, section_for(size));
    if start + size <= border { start + size } else { border + size }
}

/// Returns the greatest start of a free block up to `end` that has room for a block in one section, or 0 if there is none.
pub fn greatest_start(end: u64, size: u64) -> u64 {
    let border = start_of(end - 1, section_for(size));
    let section_end = if end - border >= size { end } else { border };
    section_end.saturating_sub(size)
}

/// Returns the bytes to map in a hole, upwards from its start and downwards from its end, until a block of `size` bytes fits
/// into one section together with the free blocks around, which begin at `before` and end at `after`.
pub fn bytes_to_map(hole: (u64, u64), before: u64, after: u64, size: u64) -> (u64, u64) {
    let ((start, end), section) = (hole, section_for(size));
    // Only the parts in the sections of the hole's edges are of use.
    let least = least_end(before.max(start_of(start, section)), size);
    let greatest = greatest_start(after.min(end.next_multiple_of(section)), size);
    (least.saturating_sub(start), end.saturating_sub(greatest))
}

/// Returns the bytes to map so that the mapped memory ends at a multiple of `growth`, at least `bytes`: upwards from `address`,
/// or downwards from it.
pub fn whole_growth(address: u64, bytes: u64, down: bool, growth: u64) -> u64 {
    if down {
        address - (address - bytes) / growth * growth
    } else {
        (address + bytes).next_multiple_of(growth) - address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u64 = LARGEST_SECTION / 32;

    fn is_in_one_section(start: u64, size: u64) -> bool {
        let section = section_for(size);
        start_of(start, section) == start_of(start + size - 1, section)
    }

    #[test]
    fn a_block_gets_the_smallest_part_that_fits() {
        let place = |start: u64, end: u64, size: u64| place(start * UNIT, end * UNIT, size * UNIT) / UNIT;
        // In sections of 32 units, the parts have 4, 32 and 8 units, then 4, 32 and 26, then 18 and 32.
        assert_eq!([place(28, 72, 20), place(28, 90, 20)], [4, 36]);
        assert_eq!([place(14, 64, 18), place(14, 64, 19)], [0, 18]);
        // One section.
        assert_eq!([place(4, 30, 20), place(4, 32, 20)], [0, 0]);
        // Sections of 4 units, then of 8.
        assert_eq!([place(28, 72, 3), place(30, 72, 3), place(28, 72, 6), place(28, 40, 6)], [0, 2, 4, 4]);
        // In no section of 16 units is room; no section is so large.
        assert_eq!([place(28, 40, 10), place(20, 64, 40)], [0, 0]);
    }

    #[test]
    fn memory_grows_until_a_block_fits_into_a_section() {
        let bytes_to_map = |start: u64, end: u64, before: u64, after: u64, size: u64| {
            let (up, down) = super::bytes_to_map((start * UNIT, end * UNIT), before * UNIT, after * UNIT, size * UNIT);
            (up / UNIT, down / UNIT)
        };
        assert_eq!(bytes_to_map(32, 320, 32, 320, 8), (8, 8));
        // The free block below the hole is in another section.
        assert_eq!(bytes_to_map(32, 320, 20, 320, 8), (8, 8));
        // The free blocks belong to the sections at the hole's edges, as far as those reach.
        assert_eq!(bytes_to_map(34, 310, 30, 318, 8), (6, 6));
        assert_eq!(bytes_to_map(34, 310, 30, 318, 20), (18, 12));
        // What is left of the first section is too small, then of the last, too.
        assert_eq!(bytes_to_map(60, 310, 60, 310, 20), (24, 20));
        assert_eq!(bytes_to_map(60, 290, 60, 290, 20), (24, 22));
        let growths = [(60, 12, false), (290, 10, true), (290, 40, true)]
            .map(|(address, bytes, down)| whole_growth(address * UNIT, bytes * UNIT, down, 64 * UNIT) / UNIT);
        assert_eq!(growths, [68, 34, 98]);
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
