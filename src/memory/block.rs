//! Blocks: what an arena's address ranges are cut into, without a gap.
//!
//! The blocks of an arena lie in one vector and name each other by index. A block knows its neighbours in its region, and
//! where it stands in the one list that its state puts it in.

use super::history::StackId;
use std::ops::{Index, IndexMut};

/// Every block's size and offset are multiples of this many bytes.
pub const UNIT: u64 = 512;

/// The index of a block.
pub type Id = u32;
/// No block.
pub const NONE: Id = u32::MAX;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum State {
    /// No block at all: a place in the vector that waits to be used again.
    #[default]
    Vacant,
    /// In the caller's hands.
    Live,
    /// Free, merged with its neighbours, and in a bin.
    Free,
    /// Free, but kept as it is for the next request of its size.
    Parked,
    /// Freed by the caller, while other streams may still use it.
    Waiting,
    /// Taken out of circulation for a moment: memory is being mapped into it, or out of it.
    Held,
    /// Addresses without memory.
    Hole,
}

/// Which blocks share their memory: small ones keep away from large ones, so that they do not pin large handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Zone {
    /// For requests up to [`SMALL`](super::space::SMALL).
    #[default]
    Small = 0,
    /// For the others.
    Large = 1,
}

impl Zone {
    /// Both.
    pub const ALL: [Zone; 2] = [Zone::Small, Zone::Large];
}

/// A run of addresses.
#[derive(Debug, Clone, Default)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Of a live block: the bytes that were asked for.
    pub requested: u64,
    /// The neighbour below.
    pub previous: Id,
    /// The neighbour above.
    pub next: Id,
    /// The one before in the list of its state.
    pub back_link: Id,
    /// The one after in that list.
    pub link: Id,
    /// The region that it is a part of.
    pub region: u32,
    /// What it is.
    pub state: State,
    /// The zone that it is a part of.
    pub zone: Zone,
    /// Whether the directory leads from its address to it.
    pub listed: bool,
    /// Whether streams other than its own were recorded as using it.
    pub used_elsewhere: bool,
    /// Of a live block: who asked for it, where a history is kept.
    pub stack: StackId,
}

/// The blocks of an arena.
#[derive(Debug)]
pub struct Blocks {
    all: Vec<Block>,
    /// The first of the vacant places, linked by `link`.
    vacant: Id,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks { all: Vec::new(), vacant: NONE }
    }
}

impl Blocks {
    /// Puts a block in and returns its index.
    pub fn add(&mut self, block: Block) -> Id {
        let id = self.vacant;
        if id == NONE {
            self.all.push(block);
            return (self.all.len() - 1) as Id;
        }
        self.vacant = self[id].link;
        self[id] = block;
        id
    }

    /// Takes a block out. Its index is used again.
    pub fn remove(&mut self, id: Id) {
        let vacant = self.vacant;
        self[id] = Block { link: vacant, ..Block::default() };
        self.vacant = id;
    }

    /// The block with this index, if there is such an index.
    #[inline]
    pub fn get(&self, id: Id) -> Option<&Block> {
        self.all.get(id as usize)
    }

    /// How many places there are, vacant ones too.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is no place at all.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Every block with its index, vacant places too.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Block)> {
        self.all.iter().enumerate().map(|(id, block)| (id as Id, block))
    }
}

impl Index<Id> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, id: Id) -> &Block {
        &self.all[id as usize]
    }
}

impl IndexMut<Id> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut Block {
        &mut self.all[id as usize]
    }
}
