//! The free blocks of a zone by size, for best-fit search.
//!
//! Sizes are divided into classes, 32 per power of two, so that the sizes of one class differ by at most 3 %. Two
//! levels of bitmaps record which classes have blocks, so two count-zeros instructions find the next larger non-empty
//! class, regardless of the number of blocks. This is the two-level segregated fit of Masmano, Ripoll, Crespo and Real
//! (2004) with one difference: the blocks of a class are sorted by size and then by address, as far as the bounded
//! insertion search reaches, so that the search returns the best fit and not any fit.

use super::block::{BlockId, Blocks, NONE, UNIT};

const SUBCLASSES: usize = 32;
const SUBCLASS_BITS: u32 = 5;
/// The number of powers of two that are distinguished: enough for sizes of 63 bits.
const GROUPS: usize = 64 - UNIT.ilog2() as usize - SUBCLASS_BITS as usize + 2;
/// The maximum number of blocks of a class to visit for an insertion or a search.
const MAX_VISITS: usize = 64;

/// The lists of free blocks by class.
pub struct Bins {
    groups: u64,
    subclasses: [u32; GROUPS],
    heads: Box<[[BlockId; SUBCLASSES]; GROUPS]>,
}

/// Returns the class of a size: its group and its index in the group.
fn class(size: u64) -> (usize, usize) {
    let units = size / UNIT;
    if units < SUBCLASSES as u64 {
        return (0, units as usize);
    }
    let exponent = units.ilog2();
    let index = (units >> (exponent - SUBCLASS_BITS)) as usize & (SUBCLASSES - 1);
    ((exponent - SUBCLASS_BITS + 1) as usize, index)
}

impl Default for Bins {
    fn default() -> Self {
        Bins { groups: 0, subclasses: [0; GROUPS], heads: Box::new([[NONE; SUBCLASSES]; GROUPS]) }
    }
}

impl Bins {
    /// Inserts a free block.
    pub fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        let (size, address) = (blocks[id].size, blocks[id].address);
        let (group, index) = class(size);
        let (mut before, mut after) = (NONE, self.heads[group][index]);
        for _ in 0..MAX_VISITS {
            if after == NONE || (blocks[after].size, blocks[after].address) >= (size, address) {
                break;
            }
            (before, after) = (after, blocks[after].link);
        }
        blocks[id].back_link = before;
        blocks[id].link = after;
        if after != NONE {
            blocks[after].back_link = id;
        }
        if before != NONE {
            blocks[before].link = id;
        } else {
            self.heads[group][index] = id;
            self.subclasses[group] |= 1 << index;
            self.groups |= 1 << group;
        }
    }

    /// Removes a block that is in a list.
    pub fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        let (before, after) = (blocks[id].back_link, blocks[id].link);
        if after != NONE {
            blocks[after].back_link = before;
        }
        if before != NONE {
            blocks[before].link = after;
            return;
        }
        let (group, index) = class(blocks[id].size);
        self.heads[group][index] = after;
        if after == NONE {
            self.subclasses[group] &= !(1 << index);
            if self.subclasses[group] == 0 {
                self.groups &= !(1 << group);
            }
        }
    }

    /// Returns the smallest block of at least `size` bytes.
    pub fn find(&self, blocks: &Blocks, size: u64) -> Option<BlockId> {
        let (group, index) = class(size);
        // The class of the size itself may contain blocks that are too small.
        let mut id = self.heads[group][index];
        for _ in 0..MAX_VISITS {
            if id == NONE {
                break;
            }
            if blocks[id].size >= size {
                return Some(id);
            }
            id = blocks[id].link;
        }
        // Every block of a larger class is large enough, and the first one is the smallest of its class.
        self.head_after(group, index)
    }

    /// Returns the first block of the next larger class that has blocks.
    fn head_after(&self, group: usize, index: usize) -> Option<BlockId> {
        let higher = self.subclasses[group] & (u32::MAX << index << 1);
        if higher != 0 {
            return Some(self.heads[group][higher.trailing_zeros() as usize]);
        }
        let groups = self.groups & (u64::MAX << group << 1);
        if groups == 0 {
            return None;
        }
        let group = groups.trailing_zeros() as usize;
        Some(self.heads[group][self.subclasses[group].trailing_zeros() as usize])
    }

    /// Iterates over the blocks, smallest classes first.
    pub fn iter<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        self.iter_from(blocks, UNIT)
    }

    /// Iterates over the blocks of at least `size` bytes, and some that are smaller by at most 3 %, smallest classes first.
    pub fn iter_from<'a>(&'a self, blocks: &'a Blocks, size: u64) -> impl Iterator<Item = BlockId> + 'a {
        let (group, index) = class(size);
        let head = Some(self.heads[group][index]).filter(|head| *head != NONE);
        std::iter::successors(head.or_else(|| self.head_after(group, index)), move |id| {
            let block = &blocks[*id];
            if block.link != NONE {
                return Some(block.link);
            }
            let (group, index) = class(block.size);
            self.head_after(group, index)
        })
    }

    /// Checks the lists and bitmaps. Returns a description of the first error.
    pub fn check(&self, blocks: &Blocks) -> Result<(), String> {
        for (group, heads) in self.heads.iter().enumerate() {
            if (self.groups >> group & 1 == 1) != (self.subclasses[group] != 0) {
                return Err(format!("the bitmap of groups is wrong about group {group}"));
            }
            if self.subclasses[group] == 0 && *heads == [NONE; SUBCLASSES] {
                continue;
            }
            for (index, head) in heads.iter().enumerate() {
                if (self.subclasses[group] >> index & 1 == 1) != (*head != NONE) {
                    return Err(format!("the bitmap of group {group} is wrong about class {index}"));
                }
                let (mut before, mut id) = (NONE, *head);
                while id != NONE {
                    let block = &blocks[id];
                    if class(block.size) != (group, index) {
                        return Err(format!("block {id} of {} bytes is in class {group}/{index}", block.size));
                    }
                    if block.back_link != before {
                        return Err(format!("block {id} in class {group}/{index} is not linked back to {before}"));
                    }
                    (before, id) = (id, block.link);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::block::{Block, BlockState};
    use proptest::prelude::*;

    fn block(size: u64, address: u64) -> Block {
        Block { size, address, state: BlockState::Free, ..Block::default() }
    }

    #[test]
    fn classes_ascend() {
        let mut last = (0, 0);
        for units in 1..100_000_u64 {
            let class = class(units * UNIT);
            assert!(class >= last, "{units}");
            last = class;
        }
        assert!(class(1 << 63).0 < GROUPS);
        assert!(class(!(UNIT - 1)).0 < GROUPS);
    }

    proptest! {
        /// Compares with a plain list: the found block has the size of the smallest block that fits.
        #[test]
        fn finds_best_fit(steps in prop::collection::vec((0_u8..3, 1_u64..5_000), 1..200)) {
            let (mut blocks, mut bins, mut plain) = (Blocks::default(), Bins::default(), Vec::<(u64, BlockId)>::new());
            for (number, (what, units)) in steps.into_iter().enumerate() {
                let size = units * UNIT;
                match what {
                    0 | 1 => {
                        let id = blocks.add(block(size, number as u64 * (1 << 30)));
                        bins.insert(&mut blocks, id);
                        plain.push((size, id));
                    }
                    _ => {
                        let best = plain.iter().filter(|entry| entry.0 >= size).min().map(|entry| entry.0);
                        let found = bins.find(&blocks, size);
                        prop_assert_eq!(found.map(|id| blocks[id].size), best);
                        if let Some(id) = found {
                            bins.remove(&mut blocks, id);
                            plain.retain(|entry| entry.1 != id);
                            blocks.remove(id);
                        }
                    }
                }
                prop_assert_eq!(bins.check(&blocks), Ok(()));
                prop_assert_eq!(bins.iter(&blocks).count(), plain.len());
                let sizes: Vec<u64> = bins.iter_from(&blocks, size).map(|id| blocks[id].size).collect();
                prop_assert!(sizes.iter().all(|found| found + found / 32 >= size));
                let large = plain.iter().filter(|entry| entry.0 >= size).count();
                prop_assert_eq!(sizes.iter().filter(|found| **found >= size).count(), large);
            }
        }
    }
}
