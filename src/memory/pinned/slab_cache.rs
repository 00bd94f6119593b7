//! The slab cache of one size class: slabs of pinned memory, divided into equal blocks, and the list of free blocks.
//! It makes no driver calls.

use super::class;

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Allocated, with no recorded use.
    Live,
    /// Allocated, with recorded uses by streams or graphs.
    LiveWithUses,
    /// Freed, while recorded uses may still be running.
    PendingFree,
}

/// How the memory of a slab was allocated, which determines how it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Allocated by the driver.
    Driver,
    /// Pages of the process that were registered.
    Registered,
    /// A part of the reserve, which is never released.
    Reserve,
}

/// Pinned memory of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedMemory {
    /// The start address.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// How it was allocated.
    pub origin: Origin,
}

/// A slab: pinned memory, and the state of its blocks.
#[derive(Debug)]
pub struct Slab {
    /// The memory.
    pub memory: PinnedMemory,
    /// The free blocks, a stack: the most recently freed block is reused first.
    free: Vec<u16>,
    states: Box<[State]>,
}

impl Slab {
    /// Creates a slab of a class with all blocks free; the lowest address is taken first.
    pub fn new(class: usize, memory: PinnedMemory) -> Self {
        let slots = class::slots(class) as usize;
        // A slab of any class has fewer than 2^16 blocks.
        let free = (0..slots).rev().map(|slot| slot as u16).collect();
        Slab { memory, free, states: vec![State::Free; slots].into() }
    }

    fn is_free(&self) -> bool {
        self.free.len() == self.states.len()
    }
}

/// The outcome of a free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeOutcome {
    /// The block is free.
    Freed,
    /// The block has recorded uses. It stays out of use until they have completed.
    Deferred,
    /// No live block begins at the address.
    NotLive,
}

/// The slabs of one size class.
#[derive(Debug, Default)]
pub struct SlabCache {
    /// By number; `None` for an unused number, and for a slab that is being released.
    slabs: Vec<Option<Slab>>,
    /// The unused numbers.
    unused_numbers: Vec<u32>,
    /// The slabs with free blocks; the last is used first.
    with_free_blocks: Vec<u32>,
    /// Blocks allocated since the counters were reset.
    pub allocated: u64,
    /// Blocks that became free again since the counters were reset.
    pub freed: u64,
}

impl SlabCache {
    /// Takes a free block, if there is one.
    #[inline]
    pub fn take(&mut self, size: u64) -> Option<u64> {
        let number = *self.with_free_blocks.last()?;
        let slab = self.slabs.get_mut(number as usize)?.as_mut()?;
        let slot = slab.free.pop()?;
        slab.states[slot as usize] = State::Live;
        if slab.free.is_empty() {
            self.with_free_blocks.pop();
        }
        self.allocated += 1;
        Some(slab.memory.address + u64::from(slot) * size)
    }

    /// Returns the slab with this number, and the index of its block that contains an address.
    #[inline]
    fn locate(&mut self, number: u32, address: u64, size: u64) -> Option<(&mut Slab, usize)> {
        let slab = self.slabs.get_mut(number as usize)?.as_mut()?;
        let offset = address.checked_sub(slab.memory.address)?;
        let slot = (offset / size) as usize;
        (slot < slab.states.len()).then_some((slab, slot))
    }

    /// Frees the block that begins at an address, or defers the free if the block has recorded uses.
    #[inline]
    pub fn free(&mut self, number: u32, address: u64, size: u64) -> FreeOutcome {
        let Some((slab, slot)) = self.locate(number, address, size) else { return FreeOutcome::NotLive };
        if slab.memory.address + slot as u64 * size != address {
            return FreeOutcome::NotLive;
        }
        match slab.states[slot] {
            State::Live => {
                self.push_free(number, slot);
                FreeOutcome::Freed
            }
            State::LiveWithUses => {
                slab.states[slot] = State::PendingFree;
                FreeOutcome::Deferred
            }
            State::Free | State::PendingFree => FreeOutcome::NotLive,
        }
    }

    /// Adds a block to the free blocks.
    #[inline]
    fn push_free(&mut self, number: u32, slot: usize) {
        let Some(Some(slab)) = self.slabs.get_mut(number as usize) else { return };
        slab.states[slot] = State::Free;
        if slab.free.is_empty() {
            self.with_free_blocks.push(number);
        }
        slab.free.push(slot as u16);
        self.freed += 1;
    }

    /// Completes a deferred free. Returns whether the free of the block was deferred.
    pub fn finish_deferred_free(&mut self, number: u32, address: u64, size: u64) -> bool {
        let Some((slab, slot)) = self.locate(number, address, size) else { return false };
        let pending = slab.states[slot] == State::PendingFree;
        if pending {
            self.push_free(number, slot);
        }
        pending
    }

    /// Marks the live block that contains an address as used by streams or graphs, and returns its start.
    pub fn mark_used(&mut self, number: u32, address: u64, size: u64) -> Option<u64> {
        let (slab, slot) = self.locate(number, address, size)?;
        if !matches!(slab.states[slot], State::Live | State::LiveWithUses) {
            return None;
        }
        slab.states[slot] = State::LiveWithUses;
        Some(slab.memory.address + slot as u64 * size)
    }

    /// Returns the start of the live block that contains an address.
    pub fn live_at(&mut self, number: u32, address: u64, size: u64) -> Option<u64> {
        let (slab, slot) = self.locate(number, address, size)?;
        let live = matches!(slab.states[slot], State::Live | State::LiveWithUses);
        live.then(|| slab.memory.address + slot as u64 * size)
    }

    /// Returns whether an address is in the memory of a slab.
    pub fn contains(&self, number: u32, address: u64) -> bool {
        let slab = self.slabs.get(number as usize).and_then(Option::as_ref);
        slab.is_some_and(|slab| address.wrapping_sub(slab.memory.address) < slab.memory.bytes)
    }

    /// Reserves a number for a new slab.
    pub fn reserve_number(&mut self) -> u32 {
        self.unused_numbers.pop().unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() as u32 - 1
        })
    }

    /// Releases the number of a slab that no longer exists.
    pub fn release_number(&mut self, number: u32) {
        self.unused_numbers.push(number);
    }

    /// Inserts a slab under its reserved number.
    pub fn insert(&mut self, number: u32, slab: Slab) {
        if let Some(entry) = self.slabs.get_mut(number as usize) {
            *entry = Some(slab);
            self.with_free_blocks.push(number);
        }
    }

    /// Removes a slab that is wholly free. Its number stays reserved.
    pub fn remove_one_free(&mut self) -> Option<(u32, Slab)> {
        let position = self
            .with_free_blocks
            .iter()
            .position(|number| self.slabs.get(*number as usize).and_then(Option::as_ref).is_some_and(Slab::is_free))?;
        let number = self.with_free_blocks.remove(position);
        Some((number, self.slabs.get_mut(number as usize)?.take()?))
    }

    /// Removes the slabs that are wholly free and can be released. Their numbers stay reserved.
    pub fn remove_free(&mut self) -> Vec<(u32, Slab)> {
        let mut removed = Vec::new();
        for (number, entry) in self.slabs.iter_mut().enumerate() {
            let slab = entry.take_if(|slab| slab.is_free() && slab.memory.origin != Origin::Reserve);
            removed.extend(slab.map(|slab| (number as u32, slab)));
        }
        if !removed.is_empty() {
            let slabs = &self.slabs;
            self.with_free_blocks.retain(|number| slabs[*number as usize].is_some());
        }
        removed
    }

    /// Checks the structure for consistency. Returns the number of slabs, their bytes, and the number of blocks that
    /// are not free.
    pub fn check(&self) -> Result<(u64, u64, u64), String> {
        let (mut slabs, mut bytes, mut active) = (0, 0, 0);
        for (number, slab) in self.slabs.iter().enumerate() {
            let number = number as u32;
            let listed = self.with_free_blocks.iter().filter(|listed| **listed == number).count();
            let Some(slab) = slab else {
                if listed != 0 {
                    return Err(format!("slab {number} is absent, but listed as having free blocks"));
                }
                continue;
            };
            let free = slab.states.iter().filter(|state| **state == State::Free).count();
            let listed_free = slab.free.iter().all(|slot| slab.states.get(*slot as usize) == Some(&State::Free));
            let mut slots = slab.free.clone();
            slots.sort_unstable();
            slots.dedup();
            if !listed_free || slots.len() != free || slab.free.len() != free {
                return Err(format!("slab {number} lists {} free blocks, but has {free}", slab.free.len()));
            }
            if listed != usize::from(free > 0) {
                return Err(format!("slab {number} has {free} free blocks, but is listed {listed} times"));
            }
            slabs += 1;
            bytes += slab.memory.bytes;
            active += (slab.states.len() - free) as u64;
        }
        Ok((slabs, bytes, active))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    fn memory(class: usize, index: u64, origin: Origin) -> PinnedMemory {
        PinnedMemory { address: (index + 1) << 40, bytes: class::slab_bytes(class), origin }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Take,
        Free(usize),
        MarkUsed(usize),
        FinishDeferredFree(usize),
        FreeInvalid(u64),
        RemoveOne,
        Trim,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => Just(Step::Take),
            4 => any::<usize>().prop_map(Step::Free),
            2 => any::<usize>().prop_map(Step::MarkUsed),
            2 => any::<usize>().prop_map(Step::FinishDeferredFree),
            1 => any::<u64>().prop_map(Step::FreeInvalid),
            1 => Just(Step::RemoveOne),
            1 => Just(Step::Trim),
        ];
        proptest::collection::vec(step, 1..300)
    }

    fn nth<T: Copy>(map: &BTreeMap<u64, T>, index: usize) -> Option<(u64, T)> {
        map.iter().nth(index.checked_rem(map.len())?).map(|(key, value)| (*key, *value))
    }

    proptest! {
        /// Compares the slab cache with a model that knows blocks by their addresses alone.
        #[test]
        fn cache_behaves_like_its_model(
            steps in steps(),
            class in prop_oneof![Just(70usize), Just(94), Just(96), Just(200)],
        ) {
            let size = class::size(class);
            let mut cache = SlabCache::default();
            let mut slabs: HashMap<u32, PinnedMemory> = HashMap::new();
            // Live blocks with whether they have recorded uses, and blocks whose free is deferred.
            let (mut live, mut pending) = (BTreeMap::new(), BTreeMap::new());
            let mut added = 0;
            let number_of = |slabs: &HashMap<u32, PinnedMemory>, address: u64| {
                let found = slabs.iter().find(|(_, memory)| address.wrapping_sub(memory.address) < memory.bytes);
                found.map_or(0, |(number, _)| *number)
            };
            for step in steps {
                match step {
                    Step::Take => {
                        let address = cache.take(size).unwrap_or_else(|| {
                            let number = cache.reserve_number();
                            let origin = if added % 4 == 3 { Origin::Reserve } else { Origin::Driver };
                            let memory = memory(class, added, origin);
                            added += 1;
                            assert!(slabs.insert(number, memory).is_none());
                            cache.insert(number, Slab::new(class, memory));
                            cache.take(size).unwrap()
                        });
                        let memory = slabs[&number_of(&slabs, address)];
                        prop_assert!(address >= memory.address && address + size <= memory.address + memory.bytes);
                        prop_assert!((address - memory.address).is_multiple_of(size));
                        prop_assert!(!pending.contains_key(&address) && live.insert(address, false).is_none());
                    }
                    Step::Free(index) => if let Some((address, used)) = nth(&live, index) {
                        let number = number_of(&slabs, address);
                        let expected = if used { FreeOutcome::Deferred } else { FreeOutcome::Freed };
                        prop_assert_eq!(cache.free(number, address + 1, size), FreeOutcome::NotLive);
                        prop_assert_eq!(cache.free(number, address, size), expected);
                        prop_assert_eq!(cache.free(number, address, size), FreeOutcome::NotLive);
                        live.remove(&address);
                        if used {
                            pending.insert(address, ());
                        }
                    },
                    Step::MarkUsed(index) => if let Some((address, _)) = nth(&live, index) {
                        let number = number_of(&slabs, address);
                        prop_assert_eq!(cache.mark_used(number, address + size - 1, size), Some(address));
                        live.insert(address, true);
                    },
                    Step::FinishDeferredFree(index) => if let Some((address, ())) = nth(&pending, index) {
                        let number = number_of(&slabs, address);
                        prop_assert_eq!(cache.mark_used(number, address, size), None);
                        prop_assert!(cache.finish_deferred_free(number, address, size));
                        prop_assert!(!cache.finish_deferred_free(number, address, size));
                        pending.remove(&address);
                    },
                    Step::FreeInvalid(address) => {
                        let outcome = cache.free((address % 7) as u32, address | 1 << 63, size);
                        prop_assert_eq!(outcome, FreeOutcome::NotLive);
                    }
                    Step::RemoveOne => {
                        let is_busy = |memory: &PinnedMemory| {
                            let mut busy = live.keys().chain(pending.keys());
                            busy.any(|address| address.wrapping_sub(memory.address) < memory.bytes)
                        };
                        match cache.remove_one_free() {
                            Some((number, slab)) => {
                                prop_assert_eq!(slabs.remove(&number), Some(slab.memory));
                                prop_assert!(!is_busy(&slab.memory));
                                cache.release_number(number);
                            }
                            None => prop_assert!(slabs.values().all(is_busy)),
                        }
                    }
                    Step::Trim => {
                        let busy: Vec<u64> = live.keys().chain(pending.keys()).copied().collect();
                        for (number, slab) in cache.remove_free() {
                            let memory = slabs.remove(&number).unwrap();
                            prop_assert_eq!(memory, slab.memory);
                            prop_assert!(memory.origin != Origin::Reserve);
                            let is_inside = |address: &u64| address.wrapping_sub(memory.address) < memory.bytes;
                            prop_assert!(!busy.iter().any(is_inside));
                            cache.release_number(number);
                        }
                        for memory in slabs.values().filter(|memory| memory.origin != Origin::Reserve) {
                            let is_inside = |address: &u64| address.wrapping_sub(memory.address) < memory.bytes;
                            prop_assert!(busy.iter().any(is_inside));
                        }
                    }
                }
                let found = cache.check().unwrap();
                let bytes = slabs.values().map(|memory| memory.bytes).sum();
                prop_assert_eq!(found, (slabs.len() as u64, bytes, (live.len() + pending.len()) as u64));
                prop_assert_eq!(cache.allocated - cache.freed, found.2);
            }
        }
    }

    #[test]
    fn reuses_the_most_recently_freed_block_first() {
        let (class, mut cache) = (0, SlabCache::default());
        let size = class::size(class);
        let number = cache.reserve_number();
        cache.insert(number, Slab::new(class, memory(class, 0, Origin::Driver)));
        let blocks: Vec<u64> = (0..4).map(|_| cache.take(size).unwrap()).collect();
        assert_eq!(blocks[1], blocks[0] + size);
        assert_eq!(cache.free(number, blocks[2], size), FreeOutcome::Freed);
        assert_eq!(cache.take(size), Some(blocks[2]));
    }
}
