//! The space of an arena: its address ranges cut into blocks, and which of them are free. No driver call is made here.
//!
//! Finding memory is two steps. A small request first looks at the parked blocks of exactly its size, which were freed
//! and left unmerged: programs ask for the same sizes again and again. The last large block that was freed waits in the
//! same way. Everything else goes through the bins, best fit, split always, and merged with its free neighbours when it
//! comes back. A space that finds nothing merges what is parked and looks once more ([`Space::settle`]) before its arena
//! asks for more memory.

use super::{
    bins::Bins,
    block::{Block, Blocks, Id, NONE, State, UNIT, Zone},
    config::SplitLimits,
    counters::Counters,
    directory::{self, Entry},
    history::StackId,
    listener::Listener,
    mapped::Mapped,
    unreleasable::Stuck,
};
use std::collections::{BTreeMap, HashSet};

/// The largest small request, in bytes.
pub const SMALL: u64 = 1 << 20;
const PARKED: usize = (SMALL / UNIT) as usize + 1;

/// A range of addresses: reserved, or allocated whole from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The zone that its blocks are in.
    pub zone: Zone,
    /// The lowest of its blocks. It always begins at the region's address.
    pub first: Id,
}

/// See the module's comment.
pub struct Space {
    /// The number of the arena, for the directory.
    number: u32,
    /// Who listens, if anybody does.
    pub listener: Option<Box<Listener>>,
    /// How often the arena was given another key: who looked it up before that must look again.
    pub generation: u32,
    /// Whether the pool is gone, so that the last block takes the memory with it.
    pub orphaned: bool,
    /// Whether blocks are given out whole.
    pub no_split: bool,
    /// Which large blocks are given out whole.
    pub(super) split_limits: Option<SplitLimits>,
    pub(super) blocks: Blocks,
    pub(super) bins: [Bins; 2],
    /// The parked small blocks, a list for each size in units.
    pub(super) parked: Box<[Id]>,
    /// Whether there may be any.
    pub(super) any_parked: bool,
    /// The large block that was freed last.
    pub(super) parked_large: Id,
    pub(super) regions: Vec<Region>,
    pub(super) holes: Vec<Id>,
    /// What is mapped, by address.
    pub(super) mapped: BTreeMap<u64, Mapped>,
    /// What the space has given out.
    pub counters: Counters,
    pub(super) stuck: Stuck,
}

/// Rounds a request up to whole units; `None` beyond what addresses can number.
#[inline]
pub fn round(bytes: u64) -> Option<u64> {
    Some(bytes.checked_add(UNIT - 1)? & !(UNIT - 1))
}

/// The zone for a rounded size.
#[inline]
pub fn zone_of(size: u64) -> Zone {
    if size <= SMALL { Zone::Small } else { Zone::Large }
}

/// What a free came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The block is free.
    Free,
    /// Other streams were recorded on it; its owner decides when it is free.
    Waiting,
    /// The block is free, and trackers are to hear of it.
    Heard,
}

impl Space {
    /// A space without memory.
    pub fn new(number: u32) -> Self {
        Space {
            number,
            listener: None,
            generation: 0,
            orphaned: false,
            no_split: false,
            split_limits: None,
            blocks: Blocks::default(),
            bins: [Bins::default(), Bins::default()],
            parked: vec![NONE; PARKED].into_boxed_slice(),
            any_parked: false,
            parked_large: NONE,
            regions: Vec::new(),
            holes: Vec::new(),
            mapped: BTreeMap::new(),
            counters: Counters::default(),
            stuck: Stuck::default(),
        }
    }

    // ---- giving out

    /// Gives out a block of `size`, a rounded size, if there is one. Returns its address.
    #[inline(always)] // the way of every request
    pub fn take(&mut self, size: u64, requested: u64) -> Option<u64> {
        let id = match zone_of(size) {
            Zone::Small => self.unpark(size),
            Zone::Large => self.unpark_large(size),
        };
        if id != NONE { Some(self.hand_out(id, requested)) } else { self.take_from_bins(size, requested) }
    }

    #[inline(always)]
    fn unpark(&mut self, size: u64) -> Id {
        let head = &mut self.parked[(size / UNIT) as usize];
        let id = *head;
        if id != NONE {
            *head = self.blocks[id].link;
        }
        id
    }

    #[inline]
    fn unpark_large(&mut self, size: u64) -> Id {
        let id = self.parked_large;
        if id == NONE {
            return NONE;
        }
        self.parked_large = NONE;
        if self.blocks[id].size == size && self.blocks[id].zone == Zone::Large {
            return id;
        }
        self.merge(id);
        NONE
    }

    #[inline(never)]
    fn take_from_bins(&mut self, size: u64, requested: u64) -> Option<u64> {
        let zone = zone_of(size);
        let id = self.bins[zone as usize].find(&self.blocks, size)?;
        if zone == Zone::Large && self.stuck.is_watched() {
            if let Some(limits) = self.split_limits {
                return self.take_within(limits, id, size, requested);
            }
            if self.would_stick(id, size) {
                return None;
            }
        }
        Some(self.take_out_of_bin(id, size, requested))
    }

    /// As [`take`](Self::take), from the bins, whatever memory is stuck in consequence.
    pub fn take_anyway(&mut self, size: u64, requested: u64) -> Option<u64> {
        let id = self.bins[zone_of(size) as usize].find(&self.blocks, size)?;
        Some(self.take_out_of_bin(id, size, requested))
    }

    /// Gives out a block as far as the limits to splitting allow.
    #[cold]
    fn take_within(&mut self, limits: SplitLimits, id: Id, size: u64, requested: u64) -> Option<u64> {
        if !limits.allow(self.blocks[id].size, size) {
            return None;
        }
        if limits.may_cut(size) {
            return Some(self.take_out_of_bin(id, size, requested));
        }
        self.unbin(id);
        Some(self.hand_out(id, requested))
    }

    /// Sets which large blocks are given out whole, for a space whose memory cannot move.
    pub fn set_split_limits(&mut self, limits: Option<SplitLimits>) {
        self.split_limits = limits;
        self.stuck.watch_limits(limits.is_some());
    }

    fn take_out_of_bin(&mut self, id: Id, size: u64, requested: u64) -> u64 {
        self.unbin(id);
        if !self.no_split {
            self.cut(id, size);
        }
        self.hand_out(id, requested)
    }

    /// Makes a block that is in no list the caller's.
    #[inline(always)]
    pub(super) fn hand_out(&mut self, id: Id, requested: u64) -> u64 {
        let block = &mut self.blocks[id];
        block.state = State::Live;
        block.requested = requested;
        let (address, zone, size) = (block.address, block.zone, block.size);
        if !block.listed {
            self.list(id);
        }
        self.counters.hand_out(zone, size, requested);
        if self.listener.is_some() {
            self.hear_alloc(id, requested);
        }
        address
    }

    /// Cuts a block that is in no list to `size`, and frees the rest.
    pub(super) fn cut(&mut self, id: Id, size: u64) {
        self.blocks[id].state = State::Held;
        if self.blocks[id].size > size {
            let rest = self.split(id, size);
            self.merge(rest);
        }
    }

    /// Splits a block in two; the second part has the state of the first and is in no list.
    pub(super) fn split(&mut self, id: Id, size: u64) -> Id {
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
            listed: false,
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

    // ---- taking back

    /// The live block of an index, if it begins at `address`.
    #[inline]
    pub fn live(&self, id: Id, address: u64) -> Option<&Block> {
        self.blocks.get(id).filter(|block| block.address == address && block.state == State::Live)
    }

    /// As [`live`](Self::live), to be changed.
    pub fn live_mut(&mut self, id: Id, address: u64) -> Option<&mut Block> {
        self.live(id, address)?;
        Some(&mut self.blocks[id])
    }

    /// Takes back a block that [`live`](Self::live) found.
    #[inline(always)] // the way of every free
    pub fn give_back(&mut self, id: Id) -> Given {
        let block = &self.blocks[id];
        self.counters.take_back(block.zone, block.size, block.requested);
        if self.listener.is_some() {
            return self.give_back_heard(id);
        }
        if block.used_elsewhere {
            self.begin_wait(id);
            return Given::Waiting;
        }
        self.park(id);
        Given::Free
    }

    /// The rest of [`give_back`](Self::give_back), where somebody listens.
    #[cold]
    fn give_back_heard(&mut self, id: Id) -> Given {
        let told = self.hear_free(id);
        if self.blocks[id].used_elsewhere {
            self.begin_wait(id);
            return Given::Waiting;
        }
        self.park(id);
        if told { Given::Heard } else { Given::Free }
    }

    /// Lets the directory lead to a block.
    #[inline(never)]
    fn list(&mut self, id: Id) {
        let block = &mut self.blocks[id];
        block.listed = true;
        directory::list(block.address, block.zone, Entry { arena: self.number, block: id });
    }

    #[cold]
    fn begin_wait(&mut self, id: Id) {
        let block = &mut self.blocks[id];
        block.state = State::Waiting;
        self.counters.begin_wait(block.zone, block.size);
    }

    /// Frees a block that waited.
    pub fn end_wait(&mut self, id: Id) {
        let block = &mut self.blocks[id];
        block.used_elsewhere = false;
        self.counters.end_wait(block.zone, block.size);
        if self.listener.is_some() {
            self.hear_end_of_wait(id);
        }
        self.merge(id);
    }

    #[inline(always)]
    fn park(&mut self, id: Id) {
        let block = &mut self.blocks[id];
        let index = (block.size / UNIT) as usize;
        if block.zone == Zone::Small && index < PARKED {
            block.state = State::Parked;
            block.link = self.parked[index];
            self.parked[index] = id;
            if !self.any_parked {
                self.any_parked = true;
            }
            return;
        }
        block.state = State::Parked;
        let before = std::mem::replace(&mut self.parked_large, id);
        if before != NONE {
            self.merge(before);
        }
    }

    /// Merges a block that is in no list with the free blocks beside it, and puts the whole in a bin.
    pub(super) fn merge(&mut self, mut id: Id) {
        let next = self.blocks[id].next;
        if next != NONE && self.blocks[next].state == State::Free {
            self.unbin(next);
            self.swallow_next(id);
        }
        let previous = self.blocks[id].previous;
        if previous != NONE && self.blocks[previous].state == State::Free {
            self.unbin(previous);
            self.swallow_next(previous);
            id = previous;
        }
        let block = &mut self.blocks[id];
        block.state = State::Free;
        let zone = block.zone;
        self.bins[zone as usize].insert(&mut self.blocks, id);
    }

    pub(super) fn unbin(&mut self, id: Id) {
        let zone = self.blocks[id].zone;
        self.bins[zone as usize].remove(&mut self.blocks, id);
    }

    /// Makes a block's upper neighbour, which is in no list, a part of it.
    pub(super) fn swallow_next(&mut self, id: Id) {
        let next = self.blocks[id].next;
        let (size, after) = (self.blocks[next].size, self.blocks[next].next);
        self.blocks[id].size += size;
        self.blocks[id].next = after;
        if after != NONE {
            self.blocks[after].previous = id;
        }
        self.blocks.remove(next);
    }

    /// Merges all that is parked. Returns whether there was anything.
    pub fn settle(&mut self) -> bool {
        let mut any = false;
        if self.parked_large != NONE {
            let id = std::mem::replace(&mut self.parked_large, NONE);
            self.merge(id);
            any = true;
        }
        if !self.any_parked {
            return any;
        }
        self.any_parked = false;
        for index in 0..PARKED {
            let mut id = std::mem::replace(&mut self.parked[index], NONE);
            while id != NONE {
                let link = self.blocks[id].link;
                self.merge(id);
                id = link;
            }
        }
        true
    }

    // ---- looking

    /// The blocks on which other streams were recorded, and which are live.
    pub fn recorded(&self) -> HashSet<Id> {
        let live = self.blocks.iter().filter(|(_, block)| block.state == State::Live && block.used_elsewhere);
        live.map(|(id, _)| id).collect()
    }

    /// Whether an address is in memory of this space's.
    pub fn has(&self, address: u64) -> bool {
        let below = self.mapped.range(..=address).next_back();
        below.is_some_and(|(start, mapped)| address - start < mapped.bytes)
    }

    /// The live block that an address lies in.
    pub fn live_around(&self, address: u64) -> Option<Id> {
        let region = self.regions.iter().find(|region| address.wrapping_sub(region.address) < region.bytes)?;
        let mut id = region.first;
        while id != NONE && address - self.blocks[id].address >= self.blocks[id].size {
            id = self.blocks[id].next;
        }
        let block = self.blocks.get(id)?;
        (block.state == State::Live).then_some(id)
    }

    /// Whether nothing is mapped and no block is anything but a hole.
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty()
            && self.blocks.iter().all(|(_, block)| matches!(block.state, State::Hole | State::Vacant))
    }
}
