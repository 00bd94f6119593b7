//! The blocks of the allocators, with the history of their memory.

use super::{call::Stream, order::Moment};
use crate::base::stack::StackId;
use std::{collections::BTreeMap, ops::Bound, sync::Arc};

/// The number of former allocations that are remembered for a block.
const MAX_FORMER: usize = 16;

/// One allocation of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The number of the allocation, from 1.
    pub number: u32,
    /// The start of the block.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The stream that it was allocated for; `None` for host memory.
    pub stream: Option<Stream>,
    /// The stack of the allocation.
    pub stack: StackId,
    /// Whether it was allocated in a capture, so that graphs use its memory also after its free.
    pub of_graph: bool,
    /// The stack of the free, if it was freed.
    pub freed: Option<StackId>,
    /// Its name at the free, or at the report if it is live.
    pub name: Option<Arc<str>>,
}

/// The progress of the streams that the allocator waits for before it reuses a freed block.
#[derive(Debug, Clone)]
pub struct FreeProgress {
    /// The block's own stream. The allocator waits for it only if the memory goes to another stream.
    pub own: Moment,
    /// The recorded streams.
    pub recorded: Vec<Moment>,
}

/// A block, or the remaining part of a freed one.
#[derive(Debug, Clone)]
pub struct Block {
    /// The end, exclusive.
    pub end: u64,
    /// The current or last allocation.
    pub allocation: Allocation,
    /// The streams that were recorded for it.
    pub recorded: Vec<Stream>,
    /// The progress of its streams at the free; `None` while the block is live.
    pub freed_at: Option<FreeProgress>,
    /// Former allocations of its bytes, latest first.
    pub former: Vec<Allocation>,
}

impl Block {
    /// Returns the allocation with a number, if its bytes ever belonged to it.
    pub fn allocation(&self, number: u32) -> Option<&Allocation> {
        [&self.allocation].into_iter().chain(&self.former).find(|allocation| allocation.number == number)
    }
}

/// All blocks by address. Blocks do not overlap.
#[derive(Debug, Default)]
pub struct Blocks(BTreeMap<u64, Box<Block>>);

impl Blocks {
    /// Returns the block that contains a byte.
    pub fn at(&self, byte: u64) -> Option<&Block> {
        let (_, block) = self.0.range(..=byte).next_back()?;
        (block.end > byte).then_some(block)
    }

    /// Returns the live block that begins at an address.
    pub fn live_mut(&mut self, address: u64) -> Option<&mut Block> {
        self.0.get_mut(&address).map(|block| &mut **block).filter(|block| block.freed_at.is_none())
    }

    /// Returns the freed block that begins at an address.
    pub fn freed_mut(&mut self, address: u64) -> Option<&mut Block> {
        self.0.get_mut(&address).map(|block| &mut **block).filter(|block| block.freed_at.is_some())
    }

    /// Returns the blocks that overlap a range.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Block> {
        let first = self.at(start).filter(|_| start < end);
        // That is usually all. An empty range overlaps nothing.
        let has_more = start < end && first.is_none_or(|block| block.end < end);
        let above = has_more.then(|| self.0.range((Bound::Excluded(start), Bound::Excluded(end))));
        first.into_iter().chain(above.into_iter().flatten().map(|(_, block)| &**block))
    }

    /// Returns the start of the remaining part of a block. Only freed blocks lose a part at their start.
    pub fn start_of(&self, block: &Block) -> u64 {
        self.0.range(..block.end).next_back().map_or(block.allocation.address, |(start, _)| *start)
    }

    /// Inserts a block. No other block may overlap it.
    pub fn insert(&mut self, address: u64, block: Block) {
        self.0.insert(address, Box::new(block));
    }

    /// Removes the blocks in a range and returns the removed parts with their bounds. The rest of a freed block
    /// outside the range stays. A live block is removed as a whole: its free was not observed.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, u64, Block)> {
        if start >= end {
            return Vec::new();
        }
        let below = self.0.range(..start).next_back().filter(|(_, block)| block.end > start);
        let first = below.map_or(start, |(from, _)| *from);
        let starts: Vec<u64> = self.0.range(first..end).map(|(from, _)| *from).collect();
        let mut removed = Vec::with_capacity(starts.len());
        for from in starts {
            let Some(block) = self.0.remove(&from) else { continue };
            let (low, high) = (from.max(start), block.end.min(end));
            if block.freed_at.is_some() {
                if from < low {
                    self.0.insert(from, Box::new(Block { end: low, ..(*block).clone() }));
                }
                if high < block.end {
                    self.0.insert(high, block.clone());
                }
            }
            removed.push((low, high, *block));
        }
        removed
    }
}

/// Collects the former allocations of memory from the parts that were removed for a new block.
pub fn former(parts: Vec<(u64, u64, Block)>) -> Vec<Allocation> {
    let allocations = parts.into_iter().flat_map(|(_, _, block)| [block.allocation].into_iter().chain(block.former));
    let mut former: Vec<Allocation> = Vec::new();
    for allocation in allocations {
        if former.len() < MAX_FORMER && former.iter().all(|known| known.number != allocation.number) {
            former.push(allocation);
        }
    }
    former
}
