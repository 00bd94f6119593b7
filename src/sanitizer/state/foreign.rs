//! Memory that the program or another library allocated from the driver.
//!
//! The library does not see its allocation and its free. A free by the driver waits for all work, so when the driver
//! gives the addresses to the next allocation, the earlier accesses cannot conflict any more. The driver numbers its
//! allocations, so the next operation on the addresses shows whether they have a new owner.

use super::{Block, State};
use std::collections::BTreeMap;

/// The known allocations by their starts, with their ends and their numbers. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct ForeignMemory(BTreeMap<u64, (u64, u64)>);

impl ForeignMemory {
    /// Inserts an allocation in place of those that it overlaps. Returns whether it is new.
    fn insert(&mut self, start: u64, end: u64, number: u64) -> bool {
        if self.0.get(&start) == Some(&(end, number)) {
            return false;
        }
        let below = self.0.range(..start).next_back().filter(|(_, known)| known.0 > start).map(|(start, _)| *start);
        let starts: Vec<u64> = below.into_iter().chain(self.0.range(start..end).map(|(start, _)| *start)).collect();
        for overlapped in starts {
            self.0.remove(&overlapped);
        }
        self.0.insert(start, (end, number));
        true
    }
}

impl State {
    /// Returns whether a byte is in a live block, in a freed block, or in none.
    pub fn is_block_live(&self, byte: u64) -> Option<bool> {
        self.blocks.at(byte).map(|block| block.freed_at.is_none())
    }

    /// Forgets what was known about the addresses of an allocation of the program, unless that allocation is known.
    pub fn enter_foreign(&mut self, address: u64, bytes: u64, number: u64) {
        let end = address.saturating_add(bytes);
        let is_live = |block: &Block| block.freed_at.is_none();
        // An allocator of the program may take blocks from the allocation.
        if self.blocks.overlapping(address, end).any(is_live) {
            return;
        }
        let was_own = self.blocks.overlapping(address, end).next().is_some();
        if self.foreign.insert(address, end, number) || was_own {
            self.forget_memory(address, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_replaces_those_that_it_overlaps() {
        let mut known = ForeignMemory::default();
        assert!(known.insert(100, 200, 1) && known.insert(200, 300, 2) && known.insert(400, 500, 3));
        assert!(!known.insert(100, 200, 1));
        assert!(known.insert(100, 200, 4));
        assert!(known.insert(150, 250, 5));
        assert_eq!(known.0.into_iter().collect::<Vec<_>>(), [(150, (250, 5)), (400, (500, 3))]);
    }
}
