//! Maps the address of a block to its arena and index, without a lock or a hash.
//!
//! Addresses are divided into leaves of 4 GiB, leaves into cells of 1 MiB, and cells with small blocks into units of
//! [`UNIT`] bytes. A block in the large zone is larger than a cell, so at most one starts in each cell, and the cell
//! itself has the entry; small blocks have an entry for each unit. A result is a hint that the arena verifies under its
//! lock: entries are written when a block is allocated and never erased.
//!
//! Leaves and pages are created on demand and never deallocated. A leaf reserves 96 KiB, of which only touched pages
//! are resident; the entries of small blocks use 0.8 % of the blocks' size (16 KiB for 2 MiB) of host memory.

use super::block::{BlockId, UNIT, Zone};
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};

const LEAF_BITS: u32 = 32;
const CELL_BITS: u32 = 20;
const CELLS: usize = 1 << (LEAF_BITS - CELL_BITS);
const UNITS: usize = 1 << (CELL_BITS - UNIT.ilog2());
/// The bits of a program's addresses: 47 on x86-64, and 48 on AArch64.
pub const ADDRESS_BITS: u32 = 48;
const LEAVES: usize = 1 << (ADDRESS_BITS - LEAF_BITS);

/// Returns whether the directory can store blocks in a range of addresses.
pub fn accepts(address: u64, bytes: u64) -> bool {
    address.is_multiple_of(UNIT) && address.checked_add(bytes).is_some_and(|end| end <= 1 << ADDRESS_BITS)
}

/// A directory entry: the arena, and the block that starts at the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The arena's number.
    pub arena: u32,
    /// The block's index in the arena.
    pub block: BlockId,
}

impl Entry {
    /// Encodes the entry for the tables. 0 means no entry.
    fn pack(self) -> u64 {
        u64::from(self.arena + 1) << 32 | u64::from(self.block)
    }

    fn unpack(bits: u64) -> Option<Self> {
        let arena = (bits >> 32) as u32;
        (arena != 0).then(|| Entry { arena: arena - 1, block: bits as u32 })
    }
}

struct Leaf {
    cells: Box<[AtomicU64]>,
    pages: Box<[OnceCell<Box<[AtomicU64]>>]>,
}

impl Leaf {
    fn new() -> Self {
        Leaf { cells: empty(CELLS), pages: (0..CELLS).map(|_| OnceCell::new()).collect() }
    }
}

fn empty(length: usize) -> Box<[AtomicU64]> {
    (0..length).map(|_| AtomicU64::new(0)).collect()
}

static LEAVES_OF_ALL: [OnceCell<Leaf>; LEAVES] = [const { OnceCell::new() }; LEAVES];

fn cell_of(address: u64) -> usize {
    (address >> CELL_BITS) as usize & (CELLS - 1)
}

fn unit_of(address: u64) -> usize {
    (address / UNIT) as usize & (UNITS - 1)
}

/// Returns the entry of an address. It may be stale.
#[inline]
pub fn find(address: u64) -> Option<Entry> {
    let leaf = LEAVES_OF_ALL.get((address >> LEAF_BITS) as usize)?.get()?;
    let cell = cell_of(address);
    if let Some(page) = leaf.pages[cell].get() {
        return Entry::unpack(page[unit_of(address)].load(Ordering::Acquire));
    }
    Entry::unpack(leaf.cells[cell].load(Ordering::Acquire))
}

/// Records that a block starts at an address. Returns `false` for an address that is out of range.
pub fn insert(address: u64, zone: Zone, entry: Entry) -> bool {
    let Some(leaf) = LEAVES_OF_ALL.get((address >> LEAF_BITS) as usize) else {
        return false;
    };
    let leaf = leaf.get_or_init(Leaf::new);
    let cell = cell_of(address);
    match zone {
        Zone::Small => {
            leaf.pages[cell].get_or_init(|| empty(UNITS))[unit_of(address)].store(entry.pack(), Ordering::Release)
        }
        // A cell that belonged to a small zone before keeps its page: the driver can return a range that it got back.
        Zone::Large => match leaf.pages[cell].get() {
            Some(page) => page[unit_of(address)].store(entry.pack(), Ordering::Release),
            None => leaf.cells[cell].store(entry.pack(), Ordering::Release),
        },
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_again() {
        let base = 0x7000_0000_0000_u64;
        assert_eq!(find(base), None);
        let (first, second) = (Entry { arena: 3, block: 9 }, Entry { arena: 3, block: 10 });
        assert!(insert(base, Zone::Small, first));
        assert!(insert(base + UNIT, Zone::Small, second));
        assert_eq!((find(base), find(base + UNIT), find(base + 2 * UNIT)), (Some(first), Some(second), None));

        let large = base + (5 << 20) + 7 * UNIT;
        assert!(insert(large, Zone::Large, first));
        assert_eq!(find(large), Some(first));
    }

    #[test]
    fn out_of_range_addresses_have_no_entry() {
        assert_eq!(find(u64::MAX), None);
        assert!(!insert(u64::MAX, Zone::Large, Entry { arena: 0, block: 0 }));
    }
}
