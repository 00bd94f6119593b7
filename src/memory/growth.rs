//! The part of [`space`](super::space) that grows a space and finds handles that it can give up. This module makes no
//! driver calls: the arena makes them between these steps, without the lock, and undoes a step if a call fails.

use super::{
    block::{Block, BlockId, BlockState, NONE, Zone},
    handles::Handle,
    history::Action,
    mapped::{Backing, Mapped},
    policy::MIN_GRANULE,
    sections::{self, LARGEST_SECTION},
    space::{Region, Space},
};
use crate::driver::Physical;

/// A hole where mapping `need` bytes would make room for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthCandidate {
    hole: BlockId,
    /// The bytes to map, in whole granules.
    pub need: u64,
    /// The size of the hole in bytes: the maximum that can be mapped there.
    pub room: u64,
    /// Whether to map at the end of the hole, next to the free block that is used.
    at_end: bool,
}

/// A candidate that is reserved for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthSite {
    before: BlockId,
    hole: BlockId,
    after: BlockId,
    /// As in [`GrowthCandidate`].
    pub need: u64,
    /// As in [`GrowthCandidate`].
    pub room: u64,
    at_end: bool,
    hole_address: u64,
}

impl GrowthSite {
    /// Returns the bytes to map instead of `bytes` so that the memory ends at a multiple of `growth`, or the hole does.
    pub fn whole_growth(&self, bytes: u64, growth: u64) -> u64 {
        let address = if self.at_end { self.hole_address + self.room } else { self.hole_address };
        sections::whole_growth(address, bytes, self.at_end, growth).min(self.room)
    }

    /// Returns the address at which to map `bytes` bytes.
    pub fn address(&self, bytes: u64) -> u64 {
        if self.at_end { self.hole_address + self.room - bytes } else { self.hole_address }
    }
}

/// A mapped handle that lies completely in a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclaimableHandle {
    /// The free block.
    pub block: BlockId,
    /// The block's size in bytes.
    pub block_bytes: u64,
    /// The handle's address.
    pub address: u64,
    /// The handle's size in bytes.
    pub bytes: u64,
}

/// A handle whose addresses were detached from their free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetachedHandle {
    /// The block that covers the addresses.
    pub block: BlockId,
    /// The address at which the handle is mapped.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The handle.
    pub physical: Physical,
}

fn round_up(bytes: u64, granule: u64) -> u64 {
    bytes.div_ceil(granule).saturating_mul(granule)
}

impl Space {
    /// Adds a reserved address range, as one hole.
    pub fn add_region(&mut self, address: u64, bytes: u64, zone: Zone) {
        let first = self.new_region(address, bytes, zone);
        self.blocks[first].state = BlockState::Hole;
        self.holes.push(first);
    }

    /// Adds a segment, which has its own address, and allocates a block of `size` bytes from it.
    pub fn add_segment(
        &mut self,
        (address, backing): (u64, Backing),
        bytes: u64,
        zone: Zone,
        size: u64,
        requested: u64,
    ) -> u64 {
        let first = self.new_region(address, bytes, zone);
        self.mapped.insert(address, Mapped { bytes, backing });
        self.count_mapped(zone, bytes);
        self.on_segment(Action::SegmentAlloc, address, bytes);
        if !self.no_split && self.split_limits.is_none_or(|limits| zone == Zone::Small || limits.may_split(size)) {
            self.trim(first, size);
        }
        self.mark_live(first, requested)
    }

    fn new_region(&mut self, address: u64, bytes: u64, zone: Zone) -> BlockId {
        let region = self.regions.len() as u32;
        let first = self.blocks.add(Block {
            address,
            size: bytes,
            previous: NONE,
            next: NONE,
            back_link: NONE,
            link: NONE,
            region,
            zone,
            state: BlockState::Detached,
            ..Block::default()
        });
        self.regions.push(Region { address, bytes, zone, first });
        first
    }

    /// Removes and returns the regions that `gone` accepts and that are completely unmapped or a detached segment.
    pub fn remove_regions(&mut self, gone: impl Fn(&Region) -> bool) -> Vec<Region> {
        let mut removed = Vec::new();
        let mut index = 0;
        while index < self.regions.len() {
            let region = self.regions[index];
            let first = region.first;
            if self.blocks[first].size != region.bytes || !gone(&region) {
                index += 1;
                continue;
            }
            match self.blocks[first].state {
                BlockState::Hole => self.holes.retain(|hole| *hole != first),
                BlockState::Detached => {
                    self.mapped.remove(&region.address);
                    self.count_unmapped(region.zone, region.bytes);
                    self.on_segment(Action::SegmentFree, region.address, region.bytes);
                }
                _ => {
                    index += 1;
                    continue;
                }
            }
            self.blocks.remove(first);
            self.regions.swap_remove(index);
            if let Some(moved) = self.regions.get(index).copied() {
                let mut id = moved.first;
                while id != NONE {
                    self.blocks[id].region = index as u32;
                    id = self.blocks[id].next;
                }
            }
            removed.push(region);
        }
        removed
    }

    /// Returns the holes where a request of `size` bytes could be served, ordered by the bytes to map. With `in_sections`, a
    /// block that fits into a [section](sections) then lies inside one.
    pub fn growth_candidates(&self, zone: Zone, size: u64, granule: u64, in_sections: bool) -> Vec<GrowthCandidate> {
        let mut candidates: Vec<GrowthCandidate> =
            self.holes.iter().filter_map(|hole| self.candidate_at(*hole, zone, size, granule, in_sections)).collect();
        candidates.sort_unstable_by_key(|candidate| (candidate.need, self.blocks[candidate.hole].address));
        candidates
    }

    /// Returns the smallest region of at least `bytes` addresses without any memory, as a candidate for `bytes`.
    pub fn unmapped_region(&self, zone: Zone, bytes: u64) -> Option<GrowthCandidate> {
        let whole = self.holes.iter().map(|hole| (*hole, &self.blocks[*hole])).filter(|(_, block)| {
            block.zone == zone && block.size >= bytes && block.previous == NONE && block.next == NONE
        });
        let (hole, block) = whole.min_by_key(|(_, block)| (block.size, block.address))?;
        Some(GrowthCandidate { hole, need: bytes, room: block.size, at_end: false })
    }

    fn candidate_at(
        &self,
        hole: BlockId,
        zone: Zone,
        size: u64,
        granule: u64,
        in_sections: bool,
    ) -> Option<GrowthCandidate> {
        let block = &self.blocks[hole];
        if block.zone != zone {
            return None;
        }
        let room = block.size;
        let (before, after) = (self.free_bytes(block.previous), self.free_bytes(block.next));
        // Memory freed since the search may suffice by now; mapping one more granule is harmless.
        let candidate_for = |(up, down): (u64, u64)| {
            let (up, down) = (round_up(up, granule).max(granule), round_up(down, granule).max(granule));
            let at_end = down < up && down <= room || up > room;
            let need = if at_end { down } else { up };
            (need <= room).then_some(GrowthCandidate { hole, need, room, at_end })
        };
        if in_sections && zone == Zone::Large && size <= LARGEST_SECTION {
            let (start, end) = (block.address, block.address + room);
            let (up, down) = sections::bytes_to_map((start, end), start - before, end + after, size);
            // At the end of a region, there is no free block to extend, now or later.
            let down = if block.next == NONE { u64::MAX } else { down };
            return candidate_for((up, down));
        }
        candidate_for((size.saturating_sub(before), size.saturating_sub(after))).or_else(|| {
            let whole = GrowthCandidate { hole, need: room, room, at_end: false };
            (before.saturating_add(room).saturating_add(after) >= size).then_some(whole)
        })
    }

    fn free_bytes(&self, id: BlockId) -> u64 {
        if id != NONE && self.blocks[id].state == BlockState::Free { self.blocks[id].size } else { 0 }
    }

    /// Reserves a candidate: removes its hole and the adjacent free blocks from their lists.
    pub fn reserve_site(&mut self, candidate: GrowthCandidate) -> GrowthSite {
        let hole = candidate.hole;
        let (before, after) = (self.blocks[hole].previous, self.blocks[hole].next);
        self.blocks[hole].state = BlockState::Detached;
        self.holes.retain(|id| *id != hole);
        GrowthSite {
            before: self.detach_free(before),
            hole,
            after: self.detach_free(after),
            need: candidate.need,
            room: candidate.room,
            at_end: candidate.at_end,
            hole_address: self.blocks[hole].address,
        }
    }

    fn detach_free(&mut self, id: BlockId) -> BlockId {
        if self.free_bytes(id) == 0 {
            return NONE;
        }
        self.remove_from_bin(id);
        self.blocks[id].state = BlockState::Detached;
        id
    }

    /// Returns a reserved site to its previous state.
    pub fn release_site(&mut self, site: GrowthSite) {
        self.make_hole(site.hole);
        for id in [site.before, site.after] {
            if id != NONE {
                self.merge(id);
            }
        }
    }

    /// Records that handles are mapped at a site, and allocates a block of `size` bytes from it. `handles` are in
    /// address order and fill the site from [`GrowthSite::address`] on.
    pub fn commit_site(&mut self, site: GrowthSite, handles: &[Handle], size: u64, requested: u64) -> u64 {
        let bytes = handles.iter().map(|(_, bytes)| bytes).sum();
        self.note_mapped(site.address(bytes), self.blocks[site.hole].zone, handles);
        // Split the mapped part off the hole.
        let mut filled = site.hole;
        if bytes < site.room {
            if site.at_end {
                filled = self.split(site.hole, site.room - bytes);
                self.make_hole(site.hole);
            } else {
                let rest = self.split(site.hole, bytes);
                self.make_hole(rest);
            }
        }
        // Merge it with the free blocks that were reserved for it. A block that turned out not to be adjacent is freed.
        let (mut first, mut before_joined, mut after_joined) = (filled, false, false);
        if site.after != NONE && self.blocks[filled].next == site.after {
            self.merge_with_next(filled);
            after_joined = true;
        }
        if site.before != NONE && self.blocks[site.before].next == filled {
            self.merge_with_next(site.before);
            first = site.before;
            before_joined = true;
        }
        for (id, joined) in [(site.before, before_joined), (site.after, after_joined)] {
            if id != NONE && !joined {
                self.merge(id);
            }
        }
        if !self.no_split {
            let distance = self.distance_in_sections(first, size).unwrap_or(0);
            first = self.cut(first, distance, size);
        }
        self.mark_live(first, requested)
    }

    /// Records that handles are mapped from `address` on.
    pub(super) fn note_mapped(&mut self, mut address: u64, zone: Zone, handles: &[Handle]) {
        for (physical, bytes) in handles {
            self.mapped.insert(address, Mapped { bytes: *bytes, backing: Backing::Handle(*physical) });
            self.count_mapped(zone, *bytes);
            self.on_segment(Action::SegmentMap, address, *bytes);
            address += bytes;
        }
    }

    /// Turns a detached block into a hole and merges it with adjacent holes.
    fn make_hole(&mut self, mut id: BlockId) {
        let next = self.blocks[id].next;
        if next != NONE && self.blocks[next].state == BlockState::Hole {
            self.holes.retain(|hole| *hole != next);
            self.merge_with_next(id);
        }
        let previous = self.blocks[id].previous;
        if previous != NONE && self.blocks[previous].state == BlockState::Hole {
            self.merge_with_next(previous);
            id = previous;
        } else {
            self.holes.push(id);
        }
        let block = &mut self.blocks[id];
        block.state = BlockState::Hole;
        block.in_directory = false;
    }

    /// Returns whether the space has segments.
    pub fn has_segments(&self) -> bool {
        self.mapped.values().any(|mapped| mapped.backing.is_segment())
    }

    /// Returns the handles and segments that lie completely in free blocks, those in the smallest blocks first.
    pub fn reclaimable_handles(&self) -> Vec<ReclaimableHandle> {
        self.reclaimable_handles_where(|backing| backing != Backing::Suspended)
    }

    /// Returns the mappings accepted by `filter` that lie completely in free blocks.
    pub(super) fn reclaimable_handles_where(&self, filter: impl Fn(Backing) -> bool) -> Vec<ReclaimableHandle> {
        let mut reclaimable = Vec::new();
        for bins in &self.bins {
            // No handle and no segment is smaller.
            for id in bins.iter_from(&self.blocks, MIN_GRANULE) {
                let block = &self.blocks[id];
                let end = block.address + block.size;
                for (address, mapped) in self.mapped.range(block.address..end) {
                    if address + mapped.bytes <= end && filter(mapped.backing) {
                        reclaimable.push(ReclaimableHandle {
                            block: id,
                            block_bytes: block.size,
                            address: *address,
                            bytes: mapped.bytes,
                        });
                    }
                }
            }
        }
        // Within a block, the highest address comes first: the part below keeps the block's index when a handle is
        // detached.
        reclaimable.sort_unstable_by_key(|handle| (handle.block_bytes, handle.block, u64::MAX - handle.address));
        reclaimable
    }

    /// Detaches a handle's addresses from their free block. Returns `None` if they are no longer there.
    pub fn detach(&mut self, handle: &ReclaimableHandle) -> Option<DetachedHandle> {
        let Some(Mapped { bytes, backing: Backing::Handle(physical) }) = self.mapped.get(&handle.address).copied()
        else {
            return None;
        };
        if bytes != handle.bytes {
            return None;
        }
        let block = self.detach_block(handle)?;
        Some(DetachedHandle { block, address: handle.address, bytes, physical })
    }

    /// Detaches the addresses of a mapping from their free block and returns the block that covers them.
    pub fn detach_block(&mut self, handle: &ReclaimableHandle) -> Option<BlockId> {
        let block = self.blocks.get(handle.block)?;
        let end = handle.address + handle.bytes;
        if block.state != BlockState::Free || block.address > handle.address || block.address + block.size < end {
            return None;
        }
        let (below, above) = (handle.address - block.address, block.address + block.size - end);
        self.remove_from_bin(handle.block);
        self.blocks[handle.block].state = BlockState::Detached;
        let middle = if below > 0 {
            // The middle may get the directory's entry.
            self.blocks[handle.block].in_directory = false;
            self.split(handle.block, below)
        } else {
            handle.block
        };
        if above > 0 {
            let rest = self.split(middle, handle.bytes);
            self.merge(rest);
        }
        if below > 0 {
            self.merge(handle.block);
        }
        Some(middle)
    }

    /// Undoes [`detach`](Self::detach) or [`detach_block`](Self::detach_block).
    pub fn reattach(&mut self, block: BlockId) {
        self.merge(block);
    }

    /// Records that a detached handle was mapped elsewhere. Its addresses here stay detached.
    pub fn mark_moved(&mut self, detached: &DetachedHandle) {
        if let Some(mapped) = self.mapped.get_mut(&detached.address) {
            mapped.backing = Backing::Moved;
            self.count_unmapped(self.blocks[detached.block].zone, detached.bytes);
            self.on_segment(Action::SegmentUnmap, detached.address, detached.bytes);
        }
    }

    /// Turns the addresses of a detached handle into a hole: it was unmapped, or moved, and its previous mapping is left.
    pub fn free_addresses(&mut self, block: BlockId, address: u64) {
        self.mapped.remove(&address);
        self.make_hole(block);
    }

    /// Returns the mapped bytes. Counts each handle once, and suspended memory not at all.
    pub fn mapped_bytes(&self) -> u64 {
        let there =
            self.mapped.values().filter(|mapped| !matches!(mapped.backing, Backing::Moved | Backing::Suspended));
        there.map(|mapped| mapped.bytes).sum()
    }

    /// Returns the size of the largest free block, in bytes.
    pub fn largest_free(&self) -> u64 {
        let free =
            self.blocks.iter().filter(|(_, block)| matches!(block.state, BlockState::Free | BlockState::Uncoalesced));
        free.map(|(_, block)| block.size).max().unwrap_or(0)
    }
}
