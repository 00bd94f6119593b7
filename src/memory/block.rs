//! Blocks: the consecutive pieces of an arena's address ranges.
//!
//! The blocks of an arena are stored in one vector and refer to each other by index. A block has links to its neighbors
//! in its region and to its neighbors in the list of its state.

use crate::base::stack::StackId;
use std::ops::{Index, IndexMut};

/// The alignment of every block's size and offset, in bytes.
pub const UNIT: u64 = 512;
/// The largest small request, in bytes.
pub const SMALL: u64 = 1 << 20;

/// The index of a block.
pub type BlockId = u32;
/// The index that denotes no block.
pub const NONE: BlockId = u32::MAX;

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum BlockState {
    /// An unused entry of the vector.
    #[default]
    Vacant,
    /// Allocated by the caller.
    Live,
    /// Free, merged with free neighbors, and in a bin.
    Free,
    /// Free, but not merged, so that the next request of the same size can reuse it.
    Uncoalesced,
    /// Freed by the caller, but other streams may still use it.
    DeferredFree,
    /// In no list, while memory is mapped into it or unmapped from it.
    Detached,
    /// Addresses without memory.
    Hole,
}

/// The size class of a region's blocks. Small blocks are kept apart from large ones, so that they do not pin large
/// handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Zone {
    /// For requests up to [`SMALL`].
    #[default]
    Small = 0,
    /// For larger requests.
    Large = 1,
}

impl Zone {
    /// Both zones.
    pub const ALL: [Zone; 2] = [Zone::Small, Zone::Large];
}

/// Rounds a size up to a multiple of [`UNIT`]. Returns `None` on overflow.
#[inline]
pub fn round(bytes: u64) -> Option<u64> {
    Some(bytes.checked_add(UNIT - 1)? & !(UNIT - 1))
}

/// Returns the zone for a rounded size.
#[inline]
pub fn zone_of(size: u64) -> Zone {
    if size <= SMALL { Zone::Small } else { Zone::Large }
}

/// A range of addresses.
#[derive(Debug, Clone, Default)]
pub struct Block {
    /// The first address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The requested size in bytes, for a live block.
    pub requested: u64,
    /// The block below in the same region.
    pub previous: BlockId,
    /// The block above in the same region.
    pub next: BlockId,
    /// The previous block in the list of the block's state.
    pub back_link: BlockId,
    /// The next block in the list of the block's state.
    pub link: BlockId,
    /// The index of the region.
    pub region: u32,
    /// The state.
    pub state: BlockState,
    /// The zone.
    pub zone: Zone,
    /// Whether the directory has an entry for the block's address.
    pub in_directory: bool,
    /// Whether other streams were recorded on the block.
    pub used_elsewhere: bool,
    /// The stack of the allocation, for a live block, if a history is recorded.
    pub stack: StackId,
}

/// The blocks of an arena.
#[derive(Debug)]
pub struct Blocks {
    all: Vec<Block>,
    /// The first vacant entry; vacant entries are linked by `link`.
    vacant: BlockId,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks { all: Vec::new(), vacant: NONE }
    }
}

impl Blocks {
    /// Inserts a block and returns its index.
    pub fn add(&mut self, block: Block) -> BlockId {
        let id = self.vacant;
        if id == NONE {
            self.all.push(block);
            return (self.all.len() - 1) as BlockId;
        }
        self.vacant = self[id].link;
        self[id] = block;
        id
    }

    /// Removes a block. Its index is reused.
    pub fn remove(&mut self, id: BlockId) {
        let vacant = self.vacant;
        self[id] = Block { link: vacant, ..Block::default() };
        self.vacant = id;
    }

    /// Returns the block with this index, if the index exists.
    #[inline]
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        self.all.get(id as usize)
    }

    /// Returns the number of entries, including vacant ones.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Iterates over every entry and its index, including vacant ones.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.all.iter().enumerate().map(|(id, block)| (id as BlockId, block))
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.all[id as usize]
    }
}

impl IndexMut<BlockId> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.all[id as usize]
    }
}
