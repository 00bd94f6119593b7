//! Consistency checks of a space, for tests and for debugging.

use super::{
    block::{BlockId, BlockState, NONE, Zone},
    mapped::Backing,
    space::Space,
};
use std::collections::{BTreeMap, HashSet};

impl Space {
    /// Checks all invariants of the space. Returns a description of the first violation.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = HashSet::new();
        let mut totals = [[0_u64; 2]; 2];
        for (number, region) in self.regions.iter().enumerate() {
            self.check_region(number as u32, &mut seen, &mut totals)?;
            if self.blocks[region.first].address != region.address {
                return Err(format!("region {number} does not start at its first block"));
            }
        }
        for (id, block) in self.blocks.iter() {
            if (block.state != BlockState::Vacant) != seen.contains(&id) {
                return Err(format!("block {id} is {:?}, and in a region: {}", block.state, seen.contains(&id)));
            }
        }
        self.check_lists()?;
        self.check_mapped()?;
        for zone in Zone::ALL {
            let (counted, [count, bytes]) = (&self.counters.zones[zone as usize], totals[zone as usize]);
            if (counted.count.current(), counted.bytes.current()) != (count, bytes) {
                return Err(format!("{zone:?}: {count} live blocks of {bytes} bytes, counted otherwise: {counted:?}"));
            }
        }
        self.counters.check()?;
        Ok(())
    }

    fn check_region(&self, number: u32, seen: &mut HashSet<BlockId>, totals: &mut [[u64; 2]; 2]) -> Result<(), String> {
        let region = &self.regions[number as usize];
        let (mut previous, mut id, mut address) = (NONE, region.first, region.address);
        while id != NONE {
            let block = &self.blocks[id];
            let violation = |what: &str| Err(format!("block {id} ({block:?}) of region {number}: {what}"));
            if !seen.insert(id) {
                return violation("it appears twice");
            }
            if block.address != address || block.size == 0 {
                return violation("it does not start at the end of the previous block");
            }
            if block.previous != previous || block.region != number || block.zone != region.zone {
                return violation("its links, region or zone are wrong");
            }
            if previous != NONE {
                let both = (self.blocks[previous].state, block.state);
                if both == (BlockState::Free, BlockState::Free) || both == (BlockState::Hole, BlockState::Hole) {
                    return violation("it should be merged with the previous block");
                }
            }
            if block.state == BlockState::Live {
                totals[block.zone as usize][0] += 1;
                totals[block.zone as usize][1] += block.size;
                if block.requested > block.size {
                    return violation("its requested size exceeds its size");
                }
            }
            address += block.size;
            (previous, id) = (id, block.next);
        }
        if address != region.address + region.bytes {
            return Err(format!("the blocks of region {number} end at {address:#x}"));
        }
        Ok(())
    }

    fn check_lists(&self) -> Result<(), String> {
        let in_state = |state| self.blocks.iter().filter(move |(_, block)| block.state == state).map(|(id, _)| id);
        for zone in Zone::ALL {
            self.bins[zone as usize].check(&self.blocks)?;
            let binned: HashSet<BlockId> = self.bins[zone as usize].iter(&self.blocks).collect();
            let free: HashSet<BlockId> =
                in_state(BlockState::Free).filter(|id| self.blocks[*id].zone == zone).collect();
            if binned != free {
                return Err(format!("{zone:?}: {} blocks are free, {} are in bins", free.len(), binned.len()));
            }
        }
        let mut uncoalesced = HashSet::new();
        for (index, head) in self.uncoalesced.iter().enumerate() {
            let mut id = *head;
            while id != NONE {
                if self.blocks[id].size != index as u64 * super::block::UNIT || !uncoalesced.insert(id) {
                    return Err(format!("block {id} is in the wrong list of uncoalesced blocks"));
                }
                id = self.blocks[id].link;
            }
        }
        if !uncoalesced.is_empty() && !self.any_uncoalesced {
            return Err(format!("{} blocks are in uncoalesced lists, but any_uncoalesced is false", uncoalesced.len()));
        }
        if self.uncoalesced_large != NONE {
            uncoalesced.insert(self.uncoalesced_large);
        }
        if uncoalesced != in_state(BlockState::Uncoalesced).collect() {
            return Err("the uncoalesced blocks differ from the blocks in the uncoalesced lists".into());
        }
        let holes: HashSet<BlockId> = self.holes.iter().copied().collect();
        if holes.len() != self.holes.len() || holes != in_state(BlockState::Hole).collect() {
            return Err("the holes differ from the blocks in the list of holes".into());
        }
        Ok(())
    }

    /// Returns whether memory is mapped in a range of addresses.
    pub fn is_any_mapped(&self, address: u64, bytes: u64) -> bool {
        let last = self.mapped.range(..address + bytes).next_back();
        last.is_some_and(|(start, mapped)| start + mapped.bytes > address)
    }

    /// Checks that every byte outside of holes is mapped once, except in detached blocks, and that no byte of a hole is
    /// mapped, except by [previous mappings](super::previous_mappings).
    fn check_mapped(&self) -> Result<(), String> {
        let blocks: BTreeMap<u64, BlockId> =
            self.blocks.iter().filter(|(_, b)| b.state != BlockState::Vacant).map(|(id, b)| (b.address, id)).collect();
        let mut end_of_last = 0;
        for (address, mapped) in &self.mapped {
            if *address < end_of_last {
                return Err(format!("two mappings overlap at {address:#x}"));
            }
            end_of_last = address + mapped.bytes;
            let first = blocks.range(..=address).next_back().map_or(*address, |(start, _)| *start);
            for (_, id) in blocks.range(first..end_of_last) {
                let block = &self.blocks[*id];
                let usable = mapped.backing != Backing::Moved;
                if block.state == BlockState::Hole || (!usable && block.state != BlockState::Detached) {
                    return Err(format!("the mapping at {address:#x} lies under {block:?}"));
                }
            }
        }
        for (address, id) in &blocks {
            let block = &self.blocks[*id];
            if matches!(block.state, BlockState::Hole | BlockState::Detached) {
                continue;
            }
            if let Some(at) = self.first_without(*address, block.size, |_| true) {
                return Err(format!("nothing is mapped at {at:#x} under {block:?}"));
            }
        }
        Ok(())
    }
}
