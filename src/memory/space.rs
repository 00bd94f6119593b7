//! The space of an arena: its address ranges, divided into blocks, and the free blocks. This module makes no driver
//! call.
//!
//! A request is searched for in two steps. A small request first looks at the uncoalesced free blocks of exactly its
//! size, because programs request the same sizes repeatedly. The large block that was freed last is kept in the same
//! way. All other requests use the bins: best fit, always split, and merged with free neighbors on free. If a space
//! finds no block, it coalesces all free blocks and searches again ([`Space::coalesce_all`]) before its arena requests
//! more memory.

use super::{
    bins::Bins,
    block::{Block, BlockId, BlockState, Blocks, NONE, SMALL, UNIT, Zone, zone_of},
    counters::Counters,
    directory::{self, Entry},
    mapped::{Backing, Mapped},
    mapped_totals::MappedTotals,
    policy::{MIN_GRANULE, SplitLimits},
    recorder::Recorder,
    sections::{self, LARGEST_SECTION},
    unreleasable::UnreleasableMemory,
};
use crate::base::stack::StackId;
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

const UNCOALESCED_LISTS: usize = (SMALL / UNIT) as usize + 1;

/// An address range: reserved, or allocated by the driver as a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first address.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The zone of its blocks.
    pub zone: Zone,
    /// The lowest block. It always starts at the region's address.
    pub first: BlockId,
}

/// The blocks of an arena; see the module documentation.
pub struct Space {
    /// The number of the arena, for directory entries.
    number: u32,
    /// The recorder, if events are recorded.
    pub recorder: Option<Box<Recorder>>,
    /// How often the arena got another key. A thread that looked up the arena before a change must look it up again.
    pub generation: u32,
    /// Whether the pool was released, so that freeing the last block releases the memory.
    pub orphaned: bool,
    /// Whether blocks are never split.
    pub no_split: bool,
    /// Whether large blocks are placed so that their addresses repeat; see [`sections`].
    pub uses_sections: bool,
    /// Limits on splitting large blocks.
    pub(super) split_limits: Option<SplitLimits>,
    pub(super) blocks: Blocks,
    pub(super) bins: [Bins; 2],
    /// The uncoalesced small blocks, one list for each size in units.
    pub(super) uncoalesced: Box<[BlockId]>,
    /// Whether these lists may be non-empty.
    pub(super) any_uncoalesced: bool,
    /// The large block that was freed last and is not coalesced yet.
    pub(super) uncoalesced_large: BlockId,
    pub(super) regions: Vec<Region>,
    pub(super) holes: Vec<BlockId>,
    /// The mappings, by address.
    pub(super) mapped: BTreeMap<u64, Mapped>,
    /// The counters of allocations.
    pub counters: Counters,
    /// Those of the device's mapped memory.
    mapped_totals: Arc<MappedTotals>,
    pub(super) unreleasable: UnreleasableMemory,
}

/// The result of a free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeOutcome {
    /// The block is free.
    Free,
    /// Other streams were recorded on the block; the caller defers the free.
    Deferred,
    /// The block is free, and the caller must deliver events to trackers.
    FreeAndNotify,
}

impl Space {
    /// Creates a space without memory.
    pub fn new(number: u32, mapped_totals: Arc<MappedTotals>) -> Self {
        Space {
            number,
            mapped_totals,
            recorder: None,
            generation: 0,
            orphaned: false,
            no_split: false,
            uses_sections: false,
            split_limits: None,
            blocks: Blocks::default(),
            bins: [Bins::default(), Bins::default()],
            uncoalesced: vec![NONE; UNCOALESCED_LISTS].into_boxed_slice(),
            any_uncoalesced: false,
            uncoalesced_large: NONE,
            regions: Vec::new(),
            holes: Vec::new(),
            mapped: BTreeMap::new(),
            counters: Counters::default(),
            unreleasable: UnreleasableMemory::default(),
        }
    }

    /// Counts a mapped handle or segment.
    pub(super) fn count_mapped(&mut self, zone: Zone, bytes: u64) {
        self.counters.map(zone, bytes);
        self.mapped_totals.add(zone, bytes);
    }

    /// Counts a handle or segment that was released or moved.
    pub(super) fn count_unmapped(&mut self, zone: Zone, bytes: u64) {
        self.counters.unmap(zone, bytes);
        self.mapped_totals.sub(zone, bytes);
    }

    // ---- allocation

    /// Allocates a block of `size` bytes, a rounded size. Returns its address, or `None` if no block fits.
    #[inline(always)] // hot path
    pub fn allocate(&mut self, size: u64, requested: u64) -> Option<u64> {
        let id = match zone_of(size) {
            Zone::Small => self.pop_uncoalesced(size),
            Zone::Large => self.pop_uncoalesced_large(size),
        };
        if id != NONE { Some(self.mark_live(id, requested)) } else { self.allocate_from_bins(size, requested) }
    }

    #[inline(always)]
    fn pop_uncoalesced(&mut self, size: u64) -> BlockId {
        let head = &mut self.uncoalesced[(size / UNIT) as usize];
        let id = *head;
        if id != NONE {
            *head = self.blocks[id].link;
        }
        id
    }

    #[inline]
    fn pop_uncoalesced_large(&mut self, size: u64) -> BlockId {
        let id = self.uncoalesced_large;
        if id == NONE {
            return NONE;
        }
        self.uncoalesced_large = NONE;
        if self.blocks[id].size == size && self.blocks[id].zone == Zone::Large {
            return id;
        }
        self.merge(id);
        NONE
    }

    #[inline(never)]
    fn allocate_from_bins(&mut self, size: u64, requested: u64) -> Option<u64> {
        let zone = zone_of(size);
        let id = self.bins[zone as usize].find(&self.blocks, size)?;
        if zone == Zone::Large && self.unreleasable.is_tracked() {
            if let Some(limits) = self.split_limits {
                return self.allocate_within_limits(limits, id, size, requested);
            }
            if self.would_exceed_unreleasable(id, size) {
                return None;
            }
        }
        Some(self.allocate_from_bin(id, size, requested))
    }

    /// Allocates from the bins as [`allocate`](Self::allocate) does, but accepts any amount of unreleasable memory.
    pub fn allocate_unconditionally(&mut self, size: u64, requested: u64) -> Option<u64> {
        let id = self.bins[zone_of(size) as usize].find(&self.blocks, size)?;
        Some(self.allocate_from_bin(id, size, requested))
    }

    /// Allocates a block as far as the limits on splitting allow.
    #[cold]
    fn allocate_within_limits(&mut self, limits: SplitLimits, id: BlockId, size: u64, requested: u64) -> Option<u64> {
        if !limits.allows(self.blocks[id].size, size) {
            return None;
        }
        if limits.may_split(size) {
            return Some(self.allocate_from_bin(id, size, requested));
        }
        self.remove_from_bin(id);
        Some(self.mark_live(id, requested))
    }

    /// Sets the limits on splitting large blocks, for a space whose memory cannot move.
    pub fn set_split_limits(&mut self, limits: Option<SplitLimits>) {
        self.split_limits = limits;
        self.unreleasable.set_split_limited(limits.is_some());
    }

    /// Returns the numbers of allocated blocks and of segments of at least `max_split_size`; none without that limit.
    pub fn oversize(&self) -> (u64, u64) {
        let Some(SplitLimits { min_unsplit, .. }) = self.split_limits else { return (0, 0) };
        let is_oversize = |block: &Block| block.state == BlockState::Live && block.size >= min_unsplit;
        let blocks = self.blocks.iter().filter(|(_, block)| is_oversize(block)).count();
        let segments = self.mapped.values().filter(|mapped| mapped.bytes >= min_unsplit).count();
        (blocks as u64, segments as u64)
    }

    fn allocate_from_bin(&mut self, id: BlockId, size: u64, requested: u64) -> u64 {
        self.remove_from_bin(id);
        if self.no_split {
            return self.mark_live(id, requested);
        }
        let distance = match self.distance_in_sections(id, size) {
            Some(distance) => distance,
            None if self.keeps_handles_whole_at_end(id, size) => self.blocks[id].size - size,
            None => 0,
        };
        let id = self.cut(id, distance, size);
        self.mark_live(id, requested)
    }

    /// Returns at which distance from the beginning of a free block a new block is placed because of sections, if they apply.
    #[inline]
    pub(super) fn distance_in_sections(&self, id: BlockId, size: u64) -> Option<u64> {
        let block = &self.blocks[id];
        (self.uses_sections && block.zone == Zone::Large && size <= LARGEST_SECTION)
            .then(|| sections::place(block.address, block.address + block.size, size))
    }

    /// Returns whether the edge of a new block lies between two handles at the end of a free block, and inside a handle at
    /// its beginning. A handle that is partly in use cannot move.
    #[inline]
    pub(super) fn keeps_handles_whole_at_end(&self, id: BlockId, size: u64) -> bool {
        let block = &self.blocks[id];
        let (at_beginning, at_end) = (block.address + size, block.address + block.size - size);
        // Most sizes need no search. The rest below the block has other entries in the directory than the block.
        block.zone == Zone::Large
            && block.size > size
            && at_end.is_multiple_of(MIN_GRANULE)
            && !self.unreleasable.is_limited()
            && self.mapped.contains_key(&at_end)
            && !self.mapped.contains_key(&at_beginning)
    }

    /// Marks a block that is in no list as live and returns its address.
    #[inline(always)]
    pub(super) fn mark_live(&mut self, id: BlockId, requested: u64) -> u64 {
        let block = &mut self.blocks[id];
        block.state = BlockState::Live;
        block.requested = requested;
        let (address, zone, size) = (block.address, block.zone, block.size);
        if !block.in_directory {
            self.insert_into_directory(id);
        }
        self.counters.count_alloc(zone, size, requested);
        if self.recorder.is_some() {
            self.on_alloc(id, requested);
        }
        address
    }

    /// Cuts a block of `size` bytes out of a block that is in no list, at a distance from its beginning, and frees the rest.
    /// Returns it.
    #[inline]
    pub(super) fn cut(&mut self, mut id: BlockId, distance: u64, size: u64) -> BlockId {
        if distance > 0 {
            self.blocks[id].state = BlockState::Detached;
            let below = id;
            id = self.split(below, distance);
            self.merge(below);
        }
        self.trim(id, size);
        id
    }

    /// Trims a block that is in no list to `size`, and frees the rest.
    pub(super) fn trim(&mut self, id: BlockId, size: u64) {
        self.blocks[id].state = BlockState::Detached;
        if self.blocks[id].size > size {
            let rest = self.split(id, size);
            self.merge(rest);
        }
    }

    /// Splits a block in two. The second block has the state of the first and is in no list.
    pub(super) fn split(&mut self, id: BlockId, size: u64) -> BlockId {
        let block = &mut self.blocks[id];
        let second = Block {
            address: block.address + size,
            size: block.size - size,
            previous: id,
            next: block.next,
            region: block.region,
            state: block.state,
            zone: block.zone,
            requested: 0,
            back_link: NONE,
            link: NONE,
            in_directory: false,
            used_elsewhere: false,
            stack: StackId::default(),
        };
        block.size = size;
        let next = block.next;
        let second = self.blocks.add(second);
        self.blocks[id].next = second;
        if next != NONE {
            self.blocks[next].previous = second;
        }
        second
    }

    // ---- free

    /// Returns the live block with this index, if it starts at `address`.
    #[inline]
    pub fn live(&self, id: BlockId, address: u64) -> Option<&Block> {
        self.blocks.get(id).filter(|block| block.address == address && block.state == BlockState::Live)
    }

    /// Returns a mutable reference to the block that [`live`](Self::live) returns.
    pub fn live_mut(&mut self, id: BlockId, address: u64) -> Option<&mut Block> {
        self.live(id, address)?;
        Some(&mut self.blocks[id])
    }

    /// Frees a block that [`live`](Self::live) returned.
    #[inline(always)] // hot path
    pub fn free(&mut self, id: BlockId) -> FreeOutcome {
        let block = &self.blocks[id];
        self.counters.count_free(block.zone, block.size, block.requested);
        if self.recorder.is_some() {
            return self.free_with_recorder(id);
        }
        if block.used_elsewhere {
            self.begin_deferred_free(id);
            return FreeOutcome::Deferred;
        }
        self.push_uncoalesced(id);
        FreeOutcome::Free
    }

    /// Completes [`free`](Self::free) if there is a recorder.
    #[cold]
    fn free_with_recorder(&mut self, id: BlockId) -> FreeOutcome {
        let has_trackers = self.on_free(id);
        if self.blocks[id].used_elsewhere {
            self.begin_deferred_free(id);
            return FreeOutcome::Deferred;
        }
        self.push_uncoalesced(id);
        if has_trackers { FreeOutcome::FreeAndNotify } else { FreeOutcome::Free }
    }

    /// Adds a block to the directory.
    #[inline(never)]
    fn insert_into_directory(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.in_directory = true;
        directory::insert(block.address, block.zone, Entry { arena: self.number, block: id });
    }

    #[cold]
    fn begin_deferred_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = BlockState::DeferredFree;
        self.counters.count_deferred_free(block.zone, block.size, block.requested);
    }

    /// Frees a block whose deferred free is over.
    pub fn finish_deferred_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.used_elsewhere = false;
        self.counters.count_deferred_free_done(block.zone, block.size, block.requested);
        if self.recorder.is_some() {
            self.on_deferred_free_done(id);
        }
        self.merge(id);
    }

    #[inline(always)]
    fn push_uncoalesced(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        let index = (block.size / UNIT) as usize;
        if block.zone == Zone::Small && index < UNCOALESCED_LISTS {
            block.state = BlockState::Uncoalesced;
            block.link = self.uncoalesced[index];
            self.uncoalesced[index] = id;
            if !self.any_uncoalesced {
                self.any_uncoalesced = true;
            }
            return;
        }
        block.state = BlockState::Uncoalesced;
        let before = std::mem::replace(&mut self.uncoalesced_large, id);
        if before != NONE {
            self.merge(before);
        }
    }

    /// Merges a block that is in no list with adjacent free blocks, and inserts the result into a bin.
    pub(super) fn merge(&mut self, mut id: BlockId) {
        let next = self.blocks[id].next;
        if next != NONE && self.blocks[next].state == BlockState::Free {
            self.remove_from_bin(next);
            self.merge_with_next(id);
        }
        let previous = self.blocks[id].previous;
        if previous != NONE && self.blocks[previous].state == BlockState::Free {
            self.remove_from_bin(previous);
            self.merge_with_next(previous);
            id = previous;
        }
        let block = &mut self.blocks[id];
        block.state = BlockState::Free;
        let zone = block.zone;
        self.bins[zone as usize].insert(&mut self.blocks, id);
    }

    pub(super) fn remove_from_bin(&mut self, id: BlockId) {
        let zone = self.blocks[id].zone;
        self.bins[zone as usize].remove(&mut self.blocks, id);
    }

    /// Merges a block with the block above it, which is in no list.
    pub(super) fn merge_with_next(&mut self, id: BlockId) {
        let next = self.blocks[id].next;
        let (size, after) = (self.blocks[next].size, self.blocks[next].next);
        self.blocks[id].size += size;
        self.blocks[id].next = after;
        if after != NONE {
            self.blocks[after].previous = id;
        }
        self.blocks.remove(next);
    }

    /// Coalesces all free blocks that were left unmerged. Returns whether there were any.
    pub fn coalesce_all(&mut self) -> bool {
        let mut any = false;
        if self.uncoalesced_large != NONE {
            let id = std::mem::replace(&mut self.uncoalesced_large, NONE);
            self.merge(id);
            any = true;
        }
        if !self.any_uncoalesced {
            return any;
        }
        self.any_uncoalesced = false;
        for index in 0..UNCOALESCED_LISTS {
            let mut id = std::mem::replace(&mut self.uncoalesced[index], NONE);
            while id != NONE {
                let link = self.blocks[id].link;
                self.merge(id);
                id = link;
            }
        }
        true
    }

    // ---- queries

    /// Returns the live blocks on which other streams were recorded.
    pub fn recorded(&self) -> HashSet<BlockId> {
        let live = self.blocks.iter().filter(|(_, block)| block.state == BlockState::Live && block.used_elsewhere);
        live.map(|(id, _)| id).collect()
    }

    /// Returns whether an address is in mapped memory of this space. A segment that is being freed is not: the driver may have
    /// given its address to another owner already.
    pub fn has(&self, address: u64) -> bool {
        let Some((start, mapped)) = self.mapped.range(..=address).next_back() else { return false };
        let is_freed =
            |region: &Region| region.address == *start && self.blocks[region.first].state == BlockState::Detached;
        address - start < mapped.bytes && !(mapped.backing.is_segment() && self.regions.iter().any(is_freed))
    }

    /// Returns the first address of a range that has no mapping whose backing `accepts` accepts.
    pub(super) fn first_without(&self, address: u64, bytes: u64, accepts: impl Fn(Backing) -> bool) -> Option<u64> {
        let (mut at, end) = (address, address + bytes);
        while at < end {
            match self.mapped.range(..=at).next_back() {
                Some((start, mapped)) if start + mapped.bytes > at && accepts(mapped.backing) => {
                    at = start + mapped.bytes;
                }
                _ => return Some(at),
            }
        }
        None
    }

    /// Returns the live block that contains an address.
    pub fn live_block_containing(&self, address: u64) -> Option<BlockId> {
        let region = self.regions.iter().find(|region| address.wrapping_sub(region.address) < region.bytes)?;
        let mut id = region.first;
        while id != NONE && address - self.blocks[id].address >= self.blocks[id].size {
            id = self.blocks[id].next;
        }
        let block = self.blocks.get(id)?;
        (block.state == BlockState::Live).then_some(id)
    }

    /// Returns whether nothing is mapped and every block is a hole.
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty()
            && self.blocks.iter().all(|(_, block)| matches!(block.state, BlockState::Hole | BlockState::Vacant))
    }
}
