//! Where a space grows, and which mapped memory it could spare. Like [`space`](super::space), without a driver call:
//! the arena makes the calls between these steps, without the lock, and takes a step back if one fails.

use super::{
    block::{Block, Id, NONE, State, Zone},
    handles::Handle,
    history::Action,
    mapped::{Backing, Mapped},
    space::{Region, Space},
};
use crate::driver::Physical;

/// A place where mapping `need` bytes would make room for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    hole: Id,
    /// The bytes to map, in whole granules.
    pub need: u64,
    /// The bytes of the hole: what could be mapped there at most.
    pub room: u64,
    /// Whether to map at the hole's end, where the free memory is that counts.
    at_end: bool,
}

/// A spot that is held for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    before: Id,
    hole: Id,
    after: Id,
    /// As in [`Spot`].
    pub need: u64,
    /// As in [`Spot`].
    pub room: u64,
    at_end: bool,
    hole_address: u64,
}

impl Site {
    /// Where `bytes` bytes are to be mapped.
    pub fn address(&self, bytes: u64) -> u64 {
        if self.at_end { self.hole_address + self.room - bytes } else { self.hole_address }
    }
}

/// A mapped handle that lies in a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spare {
    /// The block.
    pub block: Id,
    /// The block's bytes.
    pub block_bytes: u64,
    /// The handle's address.
    pub address: u64,
    /// The handle's bytes.
    pub bytes: u64,
}

/// A handle's addresses that were taken out of a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifted {
    /// The block that holds the addresses.
    pub block: Id,
    /// Where the handle is mapped.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The handle.
    pub physical: Physical,
}

fn round_up(bytes: u64, granule: u64) -> u64 {
    bytes.div_ceil(granule).saturating_mul(granule)
}

impl Space {
    /// Adds a reserved range; it is one hole.
    pub fn add_region(&mut self, address: u64, bytes: u64, zone: Zone) {
        let first = self.new_region(address, bytes, zone);
        self.blocks[first].state = State::Hole;
        self.holes.push(first);
    }

    /// Adds memory that came with its address, and gives a block of `size` bytes of it out.
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

    /// Takes out every region in which nothing is mapped, and every segment that `gone` names, and returns them.
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

    /// The places where a request of `size` could be met, those first that need the least.
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
        // Memory that was freed since the request found none may be enough by now; a granule more does no harm.
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

    /// Holds a spot: nobody else gets its hole, nor the free blocks beside it.
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

    /// Gives a site up: everything is as it was.
    pub fn abandon(&mut self, site: Site) {
        self.open(site.hole);
        for id in [site.before, site.after] {
            if id != NONE {
                self.merge(id);
            }
        }
    }

    /// Notes that handles are mapped at a site, and gives a block of `size` bytes of it out. `pieces` are in order of
    /// address and fill the site from [`Site::address`] on.
    pub fn fill(&mut self, site: Site, pieces: &[Handle], size: u64, requested: u64) -> u64 {
        let bytes = pieces.iter().map(|(_, bytes)| bytes).sum();
        self.note_mapped(site.address(bytes), self.blocks[site.hole].zone, pieces);
        // Cut the filled part out of the hole.
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
        // Join it with the free blocks that were held for it. One that turned out not to touch it is free again.
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

    /// Notes that handles are mapped from `address` on.
    pub(super) fn note_mapped(&mut self, mut address: u64, zone: Zone, pieces: &[Handle]) {
        for (physical, bytes) in pieces {
            self.mapped.insert(address, Mapped { bytes: *bytes, backing: Backing::Handle(*physical) });
            self.counters.map(zone, *bytes);
            self.hear_segment(Action::SegmentMap, address, *bytes);
            address += bytes;
        }
    }

    /// Makes a held block a hole, one with the holes beside it.
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

    /// Whether there is memory that came with its address.
    pub fn has_whole(&self) -> bool {
        self.mapped.values().any(|mapped| mapped.backing.is_whole())
    }

    /// The handles and segments that lie in free blocks, those of the smallest blocks first.
    pub fn spares(&self) -> Vec<Spare> {
        self.spares_of(|backing| backing != Backing::Asleep)
    }

    /// The mappings of some kinds that lie in free blocks.
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
        // Of one block the highest first: the part below keeps the block's index when a handle is lifted out.
        spares.sort_by_key(|spare| (spare.block_bytes, spare.block, u64::MAX - spare.address));
        spares
    }

    /// Takes a handle's addresses out of the free block that they lie in. `None` if it is not there any more.
    pub fn lift(&mut self, spare: &Spare) -> Option<Lifted> {
        let Some(Mapped { bytes, backing: Backing::Handle(physical) }) = self.mapped.get(&spare.address).copied()
        else {
            return None;
        };
        let block = self.take_out(spare)?;
        Some(Lifted { block, address: spare.address, bytes, physical })
    }

    /// Takes the addresses of a spare out of its free block. They are held then.
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

    /// Puts back what [`lift`](Self::lift) or [`take_out`](Self::take_out) took.
    pub fn put_back(&mut self, block: Id) {
        self.merge(block);
    }

    /// Notes that a lifted handle has another address now; its addresses here stay held.
    pub fn moved(&mut self, lifted: &Lifted) {
        if let Some(mapped) = self.mapped.get_mut(&lifted.address) {
            mapped.backing = Backing::Moved;
            self.counters.unmap(self.blocks[lifted.block].zone, lifted.bytes);
            self.hear_segment(Action::SegmentUnmap, lifted.address, lifted.bytes);
        }
    }

    /// Notes that nothing is mapped any more where a handle was lifted out.
    pub fn vacate(&mut self, block: Id, address: u64) {
        self.mapped.remove(&address);
        self.open(block);
    }

    /// The bytes that are mapped, each handle once, and those that sleep not at all.
    pub fn mapped_bytes(&self) -> u64 {
        let there = self.mapped.values().filter(|mapped| !matches!(mapped.backing, Backing::Moved | Backing::Asleep));
        there.map(|mapped| mapped.bytes).sum()
    }

    /// The bytes of the largest free block.
    pub fn largest_free(&self) -> u64 {
        let free = self.blocks.iter().filter(|(_, block)| matches!(block.state, State::Free | State::Parked));
        free.map(|(_, block)| block.size).max().unwrap_or(0)
    }
}
