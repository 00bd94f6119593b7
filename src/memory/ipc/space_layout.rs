//! What a space knows of the memory under a block.

use crate::memory::{
    block::{Block, Id},
    mapped::{Backing, Mapped},
    space::Space,
};

impl Space {
    /// Notes that a block is used by others than its stream, and tells what it is.
    pub(super) fn mark_used_elsewhere(&mut self, id: Id) -> Block {
        let block = &mut self.blocks[id];
        block.used_elsewhere = true;
        block.clone()
    }

    /// What is mapped at an address.
    pub(super) fn backing_at(&self, address: u64) -> Option<Backing> {
        let (start, mapped) = self.mapped.range(..=address).next_back()?;
        (address - start < mapped.bytes).then_some(mapped.backing)
    }

    /// What is mapped under a block, from where on.
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
    fn a_block_is_found_by_any_address_in_it() {
        let mut space = Space::new(0);
        space.add_region(1 << 40, 64 * MIB, Zone::Large);
        let spot = space.spots(Zone::Large, 8 * MIB, 2 * MIB)[0];
        let site = space.hold(spot);
        let pieces = [(Physical::dangling(1), 4 * MIB), (Physical::dangling(2), 4 * MIB)];
        let first = space.fill(site, &pieces, 3 * MIB, 3 * MIB);
        let second = space.take(3 * MIB, 3 * MIB).unwrap();
        let id = space.live_around(first + 1).unwrap();
        assert_eq!(space.live_around(first), Some(id));
        assert_eq!(space.live_around(first + 3 * MIB - 1), Some(id));
        assert_ne!(space.live_around(second), Some(id));
        assert_eq!(space.live_around(second + 3 * MIB), None, "that is free");
        assert_eq!(space.live_around(first + 20 * MIB), None, "that is a hole");
        assert_eq!(space.live_around(first - 1), None);
        let under = |id| {
            let block = space.blocks[id].clone();
            space.mapped_under(&block).iter().map(|(address, _)| *address - (1 << 40)).collect::<Vec<_>>()
        };
        assert_eq!(under(id), [0]);
        assert_eq!(under(space.live_around(second).unwrap()), [0, 4 * MIB]);
    }
}
