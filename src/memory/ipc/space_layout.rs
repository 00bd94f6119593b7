//! Queries an address space for the memory under a block.

use crate::memory::{
    block::{Block, BlockId},
    mapped::{Backing, Mapped},
    space::Space,
};

impl Space {
    /// Marks a block as used outside its stream, and returns a copy of it.
    pub(super) fn mark_used_elsewhere(&mut self, id: BlockId) -> Block {
        let block = &mut self.blocks[id];
        block.used_elsewhere = true;
        block.clone()
    }

    /// Returns what is mapped at an address.
    pub(super) fn backing_at(&self, address: u64) -> Option<Backing> {
        let (start, mapped) = self.mapped.range(..=address).next_back()?;
        (address - start < mapped.bytes).then_some(mapped.backing)
    }

    /// Returns the mappings under a block with their start addresses.
    pub(super) fn mapped_under(&self, block: &Block) -> Vec<(u64, Mapped)> {
        let first = self.mapped.range(..=block.address).next_back().map_or(block.address, |(start, _)| *start);
        let under = self.mapped.range(first..block.address + block.size);
        under.map(|(address, mapped)| (*address, *mapped)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        driver::Physical,
        memory::{block::Zone, space::Space},
    };

    const MIB: u64 = 1 << 20;

    #[test]
    fn finds_a_block_by_any_address_in_it() {
        let mut space = Space::new(0);
        space.add_region(1 << 40, 64 * MIB, Zone::Large);
        let spot = space.growth_candidates(Zone::Large, 8 * MIB, 2 * MIB)[0];
        let site = space.reserve_site(spot);
        let chunks = [(Physical::dangling(1), 4 * MIB), (Physical::dangling(2), 4 * MIB)];
        let first = space.commit_site(site, &chunks, 3 * MIB, 3 * MIB);
        let second = space.allocate(3 * MIB, 3 * MIB).unwrap();
        let id = space.live_block_containing(first + 1).unwrap();
        assert_eq!(space.live_block_containing(first), Some(id));
        assert_eq!(space.live_block_containing(first + 3 * MIB - 1), Some(id));
        assert_ne!(space.live_block_containing(second), Some(id));
        assert_eq!(space.live_block_containing(second + 3 * MIB), None, "a free block");
        assert_eq!(space.live_block_containing(first + 20 * MIB), None, "a hole");
        assert_eq!(space.live_block_containing(first - 1), None);
        let under = |id| {
            let block = space.blocks[id].clone();
            space.mapped_under(&block).iter().map(|(address, _)| *address - (1 << 40)).collect::<Vec<_>>()
        };
        assert_eq!(under(id), [0]);
        assert_eq!(under(space.live_block_containing(second).unwrap()), [0, 4 * MIB]);
    }
}
