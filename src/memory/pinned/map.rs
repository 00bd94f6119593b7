//! A lock-free map from any address to the slab of pinned memory that contains it.
//!
//! The address space is divided into leaves of 4 GiB, and leaves into cells of 1 MiB. No slab is smaller than a cell,
//! so at most two slabs overlap a cell: the one that contains its first byte, and one that begins after it. A result
//! is a hint, which the slab cache verifies under its lock.

use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};

const LEAF_BITS: u32 = 32;
const CELL_BITS: u32 = 20;
const PAGE_BITS: u32 = 12;
const CELLS: u64 = 1 << (LEAF_BITS - CELL_BITS);
const LEAVES: usize = 1 << (48 - LEAF_BITS);
const CLASS_BITS: u32 = 16;
const START_BITS: u32 = 8;
const SHARD_BITS: u32 = 8;

/// Identifies a slab by its shard, its class and its number in that class of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabId {
    /// The index of the shard.
    pub shard: usize,
    /// The size class.
    pub class: usize,
    /// The slab's number in the slab cache of the class.
    pub number: u32,
}

impl SlabId {
    /// Packs the id with the page of the cell in which the slab begins. 0 means no slab.
    fn pack(self, start: u64) -> u64 {
        let shard = (self.shard as u64) << (CLASS_BITS + START_BITS);
        u64::from(self.number + 1) << (SHARD_BITS + CLASS_BITS + START_BITS)
            | shard
            | (self.class as u64) << START_BITS
            | start
    }

    #[inline]
    fn unpack(bits: u64) -> Option<SlabId> {
        let number = (bits >> (SHARD_BITS + CLASS_BITS + START_BITS)) as u32;
        let shard = (bits >> (CLASS_BITS + START_BITS)) as usize & ((1 << SHARD_BITS) - 1);
        let class = (bits >> START_BITS) as usize & ((1 << CLASS_BITS) - 1);
        (number != 0).then(|| SlabId { shard, class, number: number - 1 })
    }
}

#[derive(Default)]
struct Cell {
    /// The slab that contains the cell's first byte.
    first: AtomicU64,
    /// The slab that begins after the first byte.
    second: AtomicU64,
}

static ALL_LEAVES: [OnceCell<Box<[Cell]>>; LEAVES] = [const { OnceCell::new() }; LEAVES];
/// Bounds of all addresses that were ever inserted. Most queried addresses are outside them.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static END: AtomicU64 = AtomicU64::new(0);

#[inline]
fn leaf(address: u64) -> Option<&'static OnceCell<Box<[Cell]>>> {
    ALL_LEAVES.get((address >> LEAF_BITS) as usize)
}

#[inline]
fn cell(leaf: &[Cell], address: u64) -> &Cell {
    &leaf[((address >> CELL_BITS) & (CELLS - 1)) as usize]
}

#[inline]
fn page_in_cell(address: u64) -> u64 {
    (address >> PAGE_BITS) & ((1 << START_BITS) - 1)
}

/// Returns whether an address may be in pinned memory of the allocator.
#[inline]
pub fn may_contain(address: u64) -> bool {
    address < END.load(Ordering::Relaxed) && address >= LOWEST.load(Ordering::Relaxed)
}

/// Returns the slab that contains an address, if one was inserted.
#[inline]
pub fn find(address: u64) -> Option<SlabId> {
    let cell = cell(leaf(address)?.get()?, address);
    let second = cell.second.load(Ordering::Acquire);
    if second != 0 && page_in_cell(address) >= second & ((1 << START_BITS) - 1) {
        return SlabId::unpack(second);
    }
    SlabId::unpack(cell.first.load(Ordering::Acquire))
}

/// Runs `body` with the word of each cell that a slab overlaps and the value to store there. Returns false for
/// addresses beyond the supported range.
fn for_each_cell(address: u64, bytes: u64, id: SlabId, body: impl Fn(&AtomicU64, u64)) -> bool {
    let end = address + bytes;
    if leaf(end - 1).is_none() {
        return false;
    }
    let mut at = address;
    while at < end {
        let Some(leaf) = leaf(at) else { return false };
        let cell = cell(leaf.get_or_init(|| (0..CELLS).map(|_| Cell::default()).collect()), at);
        let start = page_in_cell(at);
        body(if start == 0 { &cell.first } else { &cell.second }, id.pack(start));
        at = (at >> CELL_BITS << CELL_BITS) + (1 << CELL_BITS);
    }
    true
}

/// Inserts a slab. Returns false for addresses beyond the supported range.
pub fn insert(address: u64, bytes: u64, id: SlabId) -> bool {
    let inserted = for_each_cell(address, bytes, id, |word, bits| word.store(bits, Ordering::Release));
    if inserted {
        LOWEST.fetch_min(address, Ordering::Relaxed);
        END.fetch_max(address + bytes, Ordering::Relaxed);
    }
    inserted
}

/// Removes a slab. Call it before the addresses can be reused: in the cell in which the slab begins, its word must be
/// removed before another slab that covers the cell is inserted.
pub fn remove(address: u64, bytes: u64, id: SlabId) {
    for_each_cell(address, bytes, id, |word, bits| {
        // Only the slab's own word: any other value belongs to another slab.
        let _ = word.compare_exchange(bits, 0, Ordering::AcqRel, Ordering::Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// Addresses that memory of a test cannot have.
    const BASE: u64 = 0x8001_0000_0000;

    #[test]
    fn distinguishes_two_slabs_in_one_cell() {
        let (low, high) =
            (SlabId { shard: 0, class: 3, number: 0 }, SlabId { shard: 255, class: 311, number: u32::MAX - 1 });
        let middle = BASE + MIB + 17 * 4096;
        assert_eq!(find(middle), None);
        assert!(insert(BASE, MIB + 17 * 4096, low) && insert(middle, 5 * MIB, high));
        for (address, id) in [
            (BASE, Some(low)),
            (BASE + MIB, Some(low)),
            (middle - 1, Some(low)),
            (middle, Some(high)),
            (middle + 5 * MIB - 1, Some(high)),
            (BASE - 1, None),
            (BASE + 8 * MIB, None),
        ] {
            assert_eq!(find(address), id, "{address:#x}");
        }
        assert!(may_contain(BASE) && may_contain(middle) && !may_contain(u64::MAX));
        remove(BASE, MIB + 17 * 4096, low);
        assert_eq!((find(BASE), find(BASE + MIB), find(middle)), (None, None, Some(high)));
        remove(middle, 5 * MIB, high);
        assert_eq!((find(middle), find(middle + 4 * MIB)), (None, None));
        // Another slab covers all of it, and no entry of the removed slabs hides it.
        let third = SlabId { shard: 1, class: 3, number: 9 };
        assert!(insert(BASE, 8 * MIB, third));
        for address in [BASE, middle - 1, middle, middle + 5 * MIB - 1, BASE + 8 * MIB - 1] {
            assert_eq!(find(address), Some(third), "{address:#x}");
        }
        remove(BASE, 8 * MIB, high);
        assert_eq!(find(middle), Some(third));
        remove(BASE, 8 * MIB, third);
        assert_eq!(find(middle), None);
    }

    #[test]
    fn a_slab_may_cross_leaves() {
        let id = SlabId { shard: 7, class: 200, number: 4 };
        let start = BASE + (8 << 32) - MIB / 2;
        assert!(insert(start, 3 * MIB, id));
        assert_eq!((find(start), find(start + 3 * MIB - 1)), (Some(id), Some(id)));
        remove(start, 3 * MIB, id);
        assert_eq!((find(start), find(start + 2 * MIB)), (None, None));
    }

    #[test]
    fn addresses_out_of_range_are_rejected() {
        let id = SlabId { shard: 0, class: 0, number: 0 };
        assert!(!insert(1 << 50, MIB, id));
        assert_eq!(find(1 << 50), None);
    }
}
