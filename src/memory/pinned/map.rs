//! From any address to the slab of pinned memory that it lies in, without a lock.
//!
//! Addresses are cut into leaves of 4 GiB, leaves into cells of 1 MiB. No slab is smaller than a cell, so a cell holds at
//! most two: the one that its first byte is in, and one that begins behind that. What is found is a guess that the
//! slab's shelf checks under its lock.

use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};

const LEAF_BITS: u32 = 32;
const CELL_BITS: u32 = 20;
const PAGE_BITS: u32 = 12;
const CELLS: u64 = 1 << (LEAF_BITS - CELL_BITS);
const LEAVES: usize = 1 << (48 - LEAF_BITS);
const CLASS_BITS: u32 = 16;
const BEGIN_BITS: u32 = 8;

/// Where a slab is known: the number of its class, and its own in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The class.
    pub class: usize,
    /// The slab's number in the class's shelf.
    pub slab: u32,
}

impl Place {
    /// As it lies in a cell, with the page of the cell in which the slab begins. 0 is no slab.
    fn pack(self, begin: u64) -> u64 {
        u64::from(self.slab + 1) << (CLASS_BITS + BEGIN_BITS) | (self.class as u64) << BEGIN_BITS | begin
    }

    #[inline]
    fn unpack(bits: u64) -> Option<Place> {
        let slab = (bits >> (CLASS_BITS + BEGIN_BITS)) as u32;
        let class = (bits >> BEGIN_BITS) as usize & ((1 << CLASS_BITS) - 1);
        (slab != 0).then(|| Place { class, slab: slab - 1 })
    }
}

#[derive(Default)]
struct Cell {
    /// The slab that the cell's first byte is in.
    first: AtomicU64,
    /// The slab that begins behind that.
    second: AtomicU64,
}

static LEAVES_OF_ALL: [OnceCell<Box<[Cell]>>; LEAVES] = [const { OnceCell::new() }; LEAVES];
/// The addresses that were ever listed lie between these: most that are asked about do not.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static END: AtomicU64 = AtomicU64::new(0);

#[inline]
fn leaf(address: u64) -> Option<&'static OnceCell<Box<[Cell]>>> {
    LEAVES_OF_ALL.get((address >> LEAF_BITS) as usize)
}

#[inline]
fn cell(leaf: &[Cell], address: u64) -> &Cell {
    &leaf[((address >> CELL_BITS) & (CELLS - 1)) as usize]
}

#[inline]
fn page_in_cell(address: u64) -> u64 {
    (address >> PAGE_BITS) & ((1 << BEGIN_BITS) - 1)
}

/// Whether an address may be one of pinned memory at all.
#[inline]
pub fn may_have(address: u64) -> bool {
    address < END.load(Ordering::Relaxed) && address >= LOWEST.load(Ordering::Relaxed)
}

/// The slab that an address lies in, as far as is known here.
#[inline]
pub fn find(address: u64) -> Option<Place> {
    let cell = cell(leaf(address)?.get()?, address);
    let second = cell.second.load(Ordering::Acquire);
    if second != 0 && page_in_cell(address) >= second & ((1 << BEGIN_BITS) - 1) {
        return Place::unpack(second);
    }
    Place::unpack(cell.first.load(Ordering::Acquire))
}

/// Runs `body` with the word of each cell that a slab lies in, and what is to stand there. False for addresses that are out
/// of all bounds.
fn each(address: u64, bytes: u64, place: Place, body: impl Fn(&AtomicU64, u64)) -> bool {
    let end = address + bytes;
    if leaf(end - 1).is_none() {
        return false;
    }
    let mut at = address;
    while at < end {
        let Some(leaf) = leaf(at) else { return false };
        let cell = cell(leaf.get_or_init(|| (0..CELLS).map(|_| Cell::default()).collect()), at);
        let begin = page_in_cell(at);
        body(if begin == 0 { &cell.first } else { &cell.second }, place.pack(begin));
        at = (at >> CELL_BITS << CELL_BITS) + (1 << CELL_BITS);
    }
    true
}

/// Notes where a slab lies. False for addresses that are out of all bounds.
pub fn list(address: u64, bytes: u64, place: Place) -> bool {
    let listed = each(address, bytes, place, |word, bits| word.store(bits, Ordering::Release));
    if listed {
        LOWEST.fetch_min(address, Ordering::Relaxed);
        END.fetch_max(address + bytes, Ordering::Relaxed);
    }
    listed
}

/// Forgets where a slab lies, before its addresses can be another's: in the cell in which it begins, its word goes before the
/// word of one that covers the cell.
pub fn unlist(address: u64, bytes: u64, place: Place) {
    each(address, bytes, place, |word, bits| {
        // Only its own word: what else is there is not this slab's to forget.
        let _ = word.compare_exchange(bits, 0, Ordering::AcqRel, Ordering::Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// Addresses that no test's memory can have.
    const BASE: u64 = 0x8001_0000_0000;

    #[test]
    fn neighbours_in_one_cell_are_told_apart() {
        let (low, high) = (Place { class: 3, slab: 0 }, Place { class: 311, slab: u32::MAX - 1 });
        let middle = BASE + MIB + 17 * 4096;
        assert_eq!(find(middle), None);
        assert!(list(BASE, MIB + 17 * 4096, low) && list(middle, 5 * MIB, high));
        for (address, place) in [
            (BASE, Some(low)),
            (BASE + MIB, Some(low)),
            (middle - 1, Some(low)),
            (middle, Some(high)),
            (middle + 5 * MIB - 1, Some(high)),
            (BASE - 1, None),
            (BASE + 8 * MIB, None),
        ] {
            assert_eq!(find(address), place, "{address:#x}");
        }
        assert!(may_have(BASE) && may_have(middle) && !may_have(u64::MAX));
        unlist(BASE, MIB + 17 * 4096, low);
        assert_eq!((find(BASE), find(BASE + MIB), find(middle)), (None, None, Some(high)));
        unlist(middle, 5 * MIB, high);
        assert_eq!((find(middle), find(middle + 4 * MIB)), (None, None));
        // Another slab over all of it: nothing of the older ones hides it.
        let third = Place { class: 3, slab: 9 };
        assert!(list(BASE, 8 * MIB, third));
        for address in [BASE, middle - 1, middle, middle + 5 * MIB - 1, BASE + 8 * MIB - 1] {
            assert_eq!(find(address), Some(third), "{address:#x}");
        }
        unlist(BASE, 8 * MIB, high);
        assert_eq!(find(middle), Some(third));
        unlist(BASE, 8 * MIB, third);
        assert_eq!(find(middle), None);
    }

    #[test]
    fn a_slab_may_cross_leaves() {
        let place = Place { class: 200, slab: 4 };
        let begin = BASE + (8 << 32) - MIB / 2;
        assert!(list(begin, 3 * MIB, place));
        assert_eq!((find(begin), find(begin + 3 * MIB - 1)), (Some(place), Some(place)));
        unlist(begin, 3 * MIB, place);
        assert_eq!((find(begin), find(begin + 2 * MIB)), (None, None));
    }

    #[test]
    fn addresses_out_of_bounds_are_refused() {
        let place = Place { class: 0, slab: 0 };
        assert!(!list(1 << 50, MIB, place));
        assert_eq!(find(1 << 50), None);
    }
}
