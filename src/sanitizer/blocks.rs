//! The blocks that an allocator gave out, and what became of them.

use super::{
    Stream,
    order::{Moment, Track},
};
use crate::base::stack::StackId;
use std::{collections::BTreeMap, ops::Bound};

/// Former owners of a block's memory that are remembered.
const PAST: usize = 16;

/// What is told of a block from when it was given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Its number, from 1.
    pub number: u32,
    /// Where the block began.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The stream that it was for; none for memory of the CPU.
    pub stream: Option<Stream>,
    /// Who asked for it.
    pub stack: StackId,
    /// The graph whose capture it was given out in.
    pub graph: Option<u64>,
    /// Who freed it, if anybody did.
    pub freed: Option<StackId>,
}

/// How far the streams were that a freed block waited for, or may have waited for.
#[derive(Debug, Clone)]
pub struct Passed {
    /// Its own stream, which is waited for if the memory goes to another.
    pub own: Moment,
    /// Those that were recorded.
    pub recorded: Vec<Moment>,
}

/// A block, or what is left of one that was freed.
#[derive(Debug, Clone)]
pub struct Block {
    /// The byte after its last.
    pub end: u64,
    /// Its life.
    pub life: Life,
    /// The track of its stream, or the CPU's.
    pub track: Track,
    /// The tracks of the streams that were recorded for it.
    pub recorded: Vec<Track>,
    /// What holds since its free.
    pub passed: Option<Passed>,
    /// The lives that its bytes had before, the last first.
    pub past: Vec<Life>,
}

impl Block {
    /// The life with a number, if its bytes ever had it.
    pub fn life(&self, number: u32) -> Option<&Life> {
        [&self.life].into_iter().chain(&self.past).find(|life| life.number == number)
    }
}

/// All blocks, by address. No two have a byte in common.
#[derive(Debug, Default)]
pub struct Blocks(BTreeMap<u64, Box<Block>>);

impl Blocks {
    /// The block that a byte lies in.
    pub fn at(&self, byte: u64) -> Option<&Block> {
        let (_, block) = self.0.range(..=byte).next_back()?;
        (block.end > byte).then_some(block)
    }

    /// The block that begins at an address and was not freed.
    pub fn live_mut(&mut self, address: u64) -> Option<&mut Block> {
        self.0.get_mut(&address).map(|block| &mut **block).filter(|block| block.passed.is_none())
    }

    /// The blocks that have some of these bytes.
    pub fn across(&self, start: u64, end: u64) -> impl Iterator<Item = &Block> {
        let first = self.at(start).filter(|_| start < end);
        // Mostly that is all. Nothing lies in a range without bytes.
        let goes_on = start < end && first.is_none_or(|block| block.end < end);
        let above = goes_on.then(|| self.0.range((Bound::Excluded(start), Bound::Excluded(end))));
        first.into_iter().chain(above.into_iter().flatten().map(|(_, block)| &**block))
    }

    /// Where what there is of a block begins, of which nothing was cut off below unless the block was freed.
    pub fn start_of(&self, block: &Block) -> u64 {
        self.0.range(..block.end).next_back().map_or(block.life.address, |(start, _)| *start)
    }

    /// Adds a block where there is none.
    pub fn add(&mut self, address: u64, block: Block) {
        self.0.insert(address, Box::new(block));
    }

    /// Takes out what there is of blocks in a range: the pieces, from where to where. Of a freed block that reaches out of it,
    /// the rest stays; a block that was not freed goes as a whole, for the caller knows better.
    pub fn take(&mut self, start: u64, end: u64) -> Vec<(u64, u64, Block)> {
        if start >= end {
            return Vec::new();
        }
        let below = self.0.range(..start).next_back().filter(|(_, block)| block.end > start);
        let first = below.map_or(start, |(from, _)| *from);
        let starts: Vec<u64> = self.0.range(first..end).map(|(from, _)| *from).collect();
        let mut taken = Vec::with_capacity(starts.len());
        for from in starts {
            let Some(block) = self.0.remove(&from) else { continue };
            let (low, high) = (from.max(start), block.end.min(end));
            if block.passed.is_some() {
                if from < low {
                    self.0.insert(from, Box::new(Block { end: low, ..(*block).clone() }));
                }
                if high < block.end {
                    self.0.insert(high, block.clone());
                }
            }
            taken.push((low, high, *block));
        }
        taken
    }
}

/// The lives that memory had, from the pieces that were taken out for a new block.
pub fn past(pieces: Vec<(u64, u64, Block)>) -> Vec<Life> {
    let lives = pieces.into_iter().flat_map(|(_, _, block)| [block.life].into_iter().chain(block.past));
    let mut past: Vec<Life> = Vec::new();
    for life in lives {
        if past.len() < PAST && past.iter().all(|known| known.number != life.number) {
            past.push(life);
        }
    }
    past
}
