//! The part of [`space`](super::space) that grows a space and finds handles that it can give up. This module makes no
//! driver calls: the arena makes them between these steps, without the lock, and undoes a step if a call fails.

use super::{
    block::{Block, Id, NONE, State, Zone},
    handles::Handle,
    history::Action,
    mapped::{Backing, Mapped},
    space::{Region, Space},
};
use crate::driver::Physical;

/// A hole where mapping `need` bytes would make room for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    hole: Id,
    /// The bytes to map, in whole granules.
    pub need: u64,
    /// The size of the hole in bytes: the maximum that can be mapped there.
    pub room: u64,
    /// Whether to map at the end of the hole, next to the free block that is used.
    at_end: bool,
}

/// A candidate that is reserved for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    before: Id,
    hole: Id,
    after: Id,
    /// As in [`GrowthCandidate`].
    pub need: u64,
    /// As in [`GrowthCandidate`].
    pub room: u64,
    at_end: bool,
    hole_address: u64,
}

impl Site {
    /// Returns the address at which to map `bytes` bytes.
    pub fn address(&self, bytes: u64) -> u64 {
        if self.at_end { self.hole_address + self.room - bytes } else { self.hole_address }
    }
}

/// A mapped handle that lies completely in a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spare {
    /// The free block.
    pub block: Id,
    /// The block's size in bytes.
    pub block_bytes: u64,
    /// The handle's address.
    pub address: u64,
    /// The handle's size in bytes.
    pub bytes: u64,
}

/// A handle whose addresses were detached from their free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifted {
    /// The block that covers the addresses.
    pub block: Id,
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
        self.blocks[first].state = State::Hole;
        self.holes.push(first);
    }

    /// Adds a segment, which has its own address, and allocates a block of `size` bytes from it.
    pub fn add_whole(
        &mut self,
        (address, backing): (u64, Backing),
        bytes: u64,
        zone: Zone,
        size: u64,
        requested: u64,
    ) -> u64 {
        let first = self.new_region(address, bytes, zone);
        self.mapped.insert(address, Mapped { bytes, backing });
        self.counters.map(zone, bytes);
        self.hear_segment(Action::SegmentAlloc, address, bytes);
        if !self.no_split && self.split_limits.is_none_or(|limits| zone == Zone::Small || limits.may_cut(size)) {
            self.cut(first, size);
        }
        self.hand_out(first, requested)
    }

    fn new_region(&mut self, address: u64, bytes: u64, zone: Zone) -> Id {
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
            state: State::Held,
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
                State::Hole => self.holes.retain(|hole| *hole != first),
                State::Held => {
                    self.mapped.remove(&region.address);
                    self.counters.unmap(region.zone, region.bytes);
                    self.hear_segment(Action::SegmentFree, region.address, region.bytes);
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

    /// Returns the holes where a request of `size` bytes could be served, ordered by the bytes to map.
    pub fn spots(&self, zone: Zone, size: u64, granule: u64) -> Vec<Spot> {
        let mut spots: Vec<Spot> =
            self.holes.iter().filter_map(|hole| self.spot_at(*hole, zone, size, granule)).collect();
        spots.sort_by_key(|spot| (spot.need, self.blocks[spot.hole].address));
        spots
    }

    fn spot_at(&self, hole: Id, zone: Zone, size: u64, granule: u64) -> Option<Spot> {
        let block = &self.blocks[hole];
        if block.zone != zone {
            return None;
        }
        let room = block.size;
        let (before, after) = (self.free_bytes(block.previous), self.free_bytes(block.next));
        // Memory freed since the search may suffice by now; mapping one more granule is harmless.
        let up = round_up(size.saturating_sub(before), granule).max(granule);
        let down = round_up(size.saturating_sub(after), granule).max(granule);
        if up <= room && (up <= down || down > room) {
            return Some(Spot { hole, need: up, room, at_end: false });
        }
        if down <= room {
            return Some(Spot { hole, need: down, room, at_end: true });
        }
        (before.saturating_add(room).saturating_add(after) >= size).then_some(Spot {
            hole,
            need: room,
            room,
            at_end: false,
        })
    }

    fn free_bytes(&self, id: Id) -> u64 {
        if id != NONE && self.blocks[id].state == State::Free { self.blocks[id].size } else { 0 }
    }

    /// Reserves a candidate: removes its hole and the adjacent free blocks from their lists.
    pub fn hold(&mut self, spot: Spot) -> Site {
        let hole = spot.hole;
        let (before, after) = (self.blocks[hole].previous, self.blocks[hole].next);
        self.blocks[hole].state = State::Held;
        self.holes.retain(|id| *id != hole);
        Site {
            before: self.hold_free(before),
            hole,
            after: self.hold_free(after),
            need: spot.need,
            room: spot.room,
            at_end: spot.at_end,
            hole_address: self.blocks[hole].address,
        }
    }

    fn hold_free(&mut self, id: Id) -> Id {
        if self.free_bytes(id) == 0 {
            return NONE;
        }
        self.unbin(id);
        self.blocks[id].state = State::Held;
        id
    }

    /// Returns a reserved site to its previous state.
    pub fn abandon(&mut self, site: Site) {
        self.open(site.hole);
        for id in [site.before, site.after] {
            if id != NONE {
                self.merge(id);
            }
        }
    }

    /// Records that handles are mapped at a site, and allocates a block of `size` bytes from it. `handles` are in
    /// address order and fill the site from [`GrowthSite::address`] on.
    pub fn fill(&mut self, site: Site, pieces: &[Handle], size: u64, requested: u64) -> u64 {
        let bytes = pieces.iter().map(|(_, bytes)| bytes).sum();
        self.note_mapped(site.address(bytes), self.blocks[site.hole].zone, pieces);
        // Split the mapped part off the hole.
        let mut filled = site.hole;
        if bytes < site.room {
            if site.at_end {
                filled = self.split(site.hole, site.room - bytes);
                self.open(site.hole);
            } else {
                let rest = self.split(site.hole, bytes);
                self.open(rest);
            }
        }
        // Merge it with the free blocks that were reserved for it. A block that turned out not to be adjacent is freed.
        let (mut first, mut before_joined, mut after_joined) = (filled, false, false);
        if site.after != NONE && self.blocks[filled].next == site.after {
            self.swallow_next(filled);
            after_joined = true;
        }
        if site.before != NONE && self.blocks[site.before].next == filled {
            self.swallow_next(site.before);
            first = site.before;
            before_joined = true;
        }
        for (id, joined) in [(site.before, before_joined), (site.after, after_joined)] {
            if id != NONE && !joined {
                self.merge(id);
            }
        }
        if !self.no_split {
            self.cut(first, size);
        }
        self.hand_out(first, requested)
    }

    /// Records that handles are mapped from `address` on.
    pub(super) fn note_mapped(&mut self, mut address: u64, zone: Zone, pieces: &[Handle]) {
        for (physical, bytes) in pieces {
            self.mapped.insert(address, Mapped { bytes: *bytes, backing: Backing::Handle(*physical) });
            self.counters.map(zone, *bytes);
            self.hear_segment(Action::SegmentMap, address, *bytes);
            address += bytes;
        }
    }

    /// Turns a detached block into a hole and merges it with adjacent holes.
    fn open(&mut self, mut id: Id) {
        let next = self.blocks[id].next;
        if next != NONE && self.blocks[next].state == State::Hole {
            self.holes.retain(|hole| *hole != next);
            self.swallow_next(id);
        }
        let previous = self.blocks[id].previous;
        if previous != NONE && self.blocks[previous].state == State::Hole {
            self.swallow_next(previous);
            id = previous;
        } else {
            self.holes.push(id);
        }
        let block = &mut self.blocks[id];
        block.state = State::Hole;
        block.listed = false;
    }

    /// Returns whether the space has segments.
    pub fn has_whole(&self) -> bool {
        self.mapped.values().any(|mapped| mapped.backing.is_whole())
    }

    /// Returns the handles and segments that lie completely in free blocks, those in the smallest blocks first.
    pub fn spares(&self) -> Vec<Spare> {
        self.spares_of(|backing| backing != Backing::Asleep)
    }

    /// Returns the mappings accepted by `filter` that lie completely in free blocks.
    pub(super) fn spares_of(&self, wanted: impl Fn(Backing) -> bool) -> Vec<Spare> {
        let mut spares = Vec::new();
        for bins in &self.bins {
            for id in bins.iter(&self.blocks) {
                let block = &self.blocks[id];
                let end = block.address + block.size;
                for (address, mapped) in self.mapped.range(block.address..end) {
                    if address + mapped.bytes <= end && wanted(mapped.backing) {
                        spares.push(Spare {
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
        spares.sort_by_key(|spare| (spare.block_bytes, spare.block, u64::MAX - spare.address));
        spares
    }

    /// Detaches a handle's addresses from their free block. Returns `None` if they are no longer there.
    pub fn lift(&mut self, spare: &Spare) -> Option<Lifted> {
        let Some(Mapped { bytes, backing: Backing::Handle(physical) }) = self.mapped.get(&spare.address).copied()
        else {
            return None;
        };
        let block = self.take_out(spare)?;
        Some(Lifted { block, address: spare.address, bytes, physical })
    }

    /// Detaches the addresses of a mapping from their free block and returns the block that covers them.
    pub fn take_out(&mut self, spare: &Spare) -> Option<Id> {
        let block = self.blocks.get(spare.block)?;
        let end = spare.address + spare.bytes;
        if block.state != State::Free || block.address > spare.address || block.address + block.size < end {
            return None;
        }
        let (below, above) = (spare.address - block.address, block.address + block.size - end);
        self.unbin(spare.block);
        self.blocks[spare.block].state = State::Held;
        let middle = if below > 0 { self.split(spare.block, below) } else { spare.block };
        if above > 0 {
            let rest = self.split(middle, spare.bytes);
            self.merge(rest);
        }
        if below > 0 {
            self.merge(spare.block);
        }
        Some(middle)
    }

    /// Undoes [`detach`](Self::detach) or [`detach_block`](Self::detach_block).
    pub fn put_back(&mut self, block: Id) {
        self.merge(block);
    }

    /// Records that a detached handle was mapped elsewhere. Its addresses here stay detached.
    pub fn moved(&mut self, lifted: &Lifted) {
        if let Some(mapped) = self.mapped.get_mut(&lifted.address) {
            mapped.backing = Backing::Moved;
            self.counters.unmap(self.blocks[lifted.block].zone, lifted.bytes);
            self.hear_segment(Action::SegmentUnmap, lifted.address, lifted.bytes);
        }
    }

    /// Records that a detached handle is unmapped, and turns its addresses into a hole.
    pub fn vacate(&mut self, block: Id, address: u64) {
        self.mapped.remove(&address);
        self.open(block);
    }

    /// Returns the mapped bytes. Counts each handle once, and suspended memory not at all.
    pub fn mapped_bytes(&self) -> u64 {
        let there = self.mapped.values().filter(|mapped| !matches!(mapped.backing, Backing::Moved | Backing::Asleep));
        there.map(|mapped| mapped.bytes).sum()
    }

    /// Returns the size of the largest free block, in bytes.
    pub fn largest_free(&self) -> u64 {
        let free = self.blocks.iter().filter(|(_, block)| matches!(block.state, State::Free | State::Parked));
        free.map(|(_, block)| block.size).max().unwrap_or(0)
    }
}
