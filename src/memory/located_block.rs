//! Finds the block that contains an address, and the memory under it, for what uses that memory beyond the streams: other
//! processes and registrations.

use super::{
    arena::Arena,
    block::{Block, BlockId},
    mapped::{Backing, Mapped},
    space::Space,
};
use crate::{
    error::{Error, Result},
    runtime::Runtime,
    status::Status,
};

/// The live block that contains an address.
pub struct LocatedBlock {
    /// Its arena.
    pub arena: &'static Arena,
    /// Its index in the arena.
    pub block: BlockId,
    /// Its first address.
    pub address: u64,
    /// The requested size in bytes.
    pub requested: u64,
    /// The mappings under the block, with their start addresses.
    pub mapped: Vec<(u64, Mapped)>,
}

#[cold]
pub(super) fn not_allocated(address: u64) -> Error {
    Error::new(Status::INVALID_POINTER, format!("{address:#x} is not in a live block of the caching allocator"))
}

impl LocatedBlock {
    /// Finds the block that contains an address, and marks it so that its free takes into account who uses it.
    pub fn find(runtime: &Runtime, address: u64) -> Result<LocatedBlock> {
        for arena in runtime.devices().iter().flat_map(|device| device.memory().arenas()) {
            let mut inner = arena.lock();
            if !inner.space.has(address) {
                continue;
            }
            let id = inner.space.live_block_containing(address).ok_or_else(|| not_allocated(address))?;
            let block = inner.space.mark_used_elsewhere(id);
            inner.stream_uses.entry(id).or_default();
            let (address, requested) = (block.address, block.requested);
            return Ok(LocatedBlock { arena, block: id, address, requested, mapped: Vec::new() });
        }
        Err(not_allocated(address))
    }

    /// Returns whether the block is still allocated.
    pub fn is_live(&self) -> bool {
        self.arena.lock().space.live(self.block, self.address).is_some()
    }

    /// Reads the mappings under the block. Returns `None` if the block was freed. They stay valid while the caller holds
    /// the arena's [`growth`](Arena::growth), and while the block is exported or registered.
    pub fn read_mapped(&mut self) -> Option<()> {
        let inner = self.arena.lock();
        self.mapped = inner.space.mapped_under(inner.space.live(self.block, self.address)?);
        Some(())
    }
}

impl Space {
    /// Marks a block as used outside its stream, and returns a copy of it.
    fn mark_used_elsewhere(&mut self, id: BlockId) -> Block {
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
    fn mapped_under(&self, block: &Block) -> Vec<(u64, Mapped)> {
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
        let mut space = Space::new(0, Default::default());
        space.add_region(1 << 40, 64 * MIB, Zone::Large);
        let spot = space.growth_candidates(Zone::Large, 8 * MIB, 2 * MIB, false)[0];
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
