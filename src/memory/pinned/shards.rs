//! The shards of the cache: slab caches of every class, under one [biased lock](super::super::biased).
//!
//! All threads begin with the first shard. A thread that meets another allocating thread at the lock moves to the next
//! shard, so threads that allocate at the same time get shards of their own, and a program in which one thread allocates
//! has one shard. A block returns to its shard, whichever thread frees it. A shard without a free block takes over
//! a free slab of another shard before memory is pinned, so shards that are no longer used do not hold memory back.
//!
//! A peak of a sum is not visible to a shard, and a sum that all threads update would cost more than the allocation. So
//! each shard has a budget: as long as no shard exceeds its budget, and the budgets sum up to the known peak, the sum
//! has not exceeded that peak. A shard that exceeds its budget adds up all shards. With one shard the peaks are exact.
//! With several, budgets sum up to a little more than the peak (`SLACK_DIVISOR`, `MIN_SLACK`), so that threads which take
//! turns near the peak do not add up at every call; a peak can be too low by that much, and is never too high.

use super::{
    block_uses::UsesByBlock,
    class,
    map::{self, SlabId},
    slab_cache::{FreeOutcome, Slab, SlabCache},
};
use crate::{
    memory::{
        biased::{Biased, BiasedGuard},
        stats::Stat,
    },
    runtime::thread,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest number of shards.
const SHARDS: usize = 32;
/// The number of times that a thread moves to another shard. More threads than shards would move forever.
const MAX_MOVES: u8 = SHARDS as u8;
/// The part of a peak by which the budgets of all shards may exceed it: one in `SLACK_DIVISOR`.
const SLACK_DIVISOR: u64 = 64;
/// The least slack of a shard: 64 blocks, 256 KiB.
const MIN_SLACK: Amounts = [64, 256 << 10];

/// A number of blocks, and their bytes.
type Amounts = [u64; 2];

/// Aligned so that two shards share no cache line.
#[repr(align(128))]
struct AlignedLock(Biased<Shard>);

static ALL: [OnceCell<Box<AlignedLock>>; SHARDS] = [const { OnceCell::new() }; SHARDS];
/// The peaks of all shards together.
static PEAKS: Mutex<Amounts> = Mutex::new([0; 2]);
/// The shard to which the next thread moves.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The slab caches of a shard, and its counts.
#[derive(Debug)]
pub struct Shard {
    classes: [SlabCache; class::CLASSES],
    /// The uses of live blocks, and of blocks whose free is deferred. A slab with such blocks does not move.
    uses: UsesByBlock,
    /// Live blocks, and blocks whose free is deferred.
    active: Amounts,
    /// The most that was active when the shard last exceeded its budget, halved at each count since: what it needs.
    recent_most: Amounts,
    budgets: Amounts,
    /// The number of the thread that allocated last.
    user: u64,
}

impl Shard {
    fn new() -> Self {
        let classes = std::array::from_fn(|_| SlabCache::default());
        Shard { classes, uses: UsesByBlock::default(), active: [0; 2], recent_most: [0; 2], budgets: [0; 2], user: 0 }
    }

    /// Returns the slab cache of a class.
    pub fn class(&mut self, class: usize) -> &mut SlabCache {
        &mut self.classes[class]
    }

    /// Returns the uses of the shard's blocks.
    pub fn uses(&mut self) -> &mut UsesByBlock {
        &mut self.uses
    }

    #[inline]
    fn take(&mut self, class: usize) -> Option<u64> {
        let size = class::size(class);
        let address = self.classes[class].take(size)?;
        self.active[0] += 1;
        self.active[1] += size;
        Some(address)
    }

    fn subtract(&mut self, size: u64) {
        self.active[0] -= 1;
        self.active[1] -= size;
    }

    /// Frees the block that begins at an address, or defers the free.
    #[inline]
    pub fn free(&mut self, id: SlabId, address: u64) -> FreeOutcome {
        let size = class::size(id.class);
        let outcome = self.classes[id.class].free(id.number, address, size);
        if outcome == FreeOutcome::Freed {
            self.subtract(size);
        }
        outcome
    }

    /// Completes the deferred free of a block.
    pub fn finish_deferred_free(&mut self, id: SlabId, address: u64) {
        let size = class::size(id.class);
        if self.classes[id.class].finish_deferred_free(id.number, address, size) {
            self.subtract(size);
        }
    }

    #[inline]
    fn exceeds_budget(&self) -> bool {
        self.active[0] > self.budgets[0] || self.active[1] > self.budgets[1]
    }

    /// Checks the structure for consistency. Returns the bytes of all slabs.
    pub fn check(&self) -> Result<u64, String> {
        let (mut bytes, mut active) = (0, [0; 2]);
        for (class, cache) in self.classes.iter().enumerate() {
            let (_, held, blocks) = cache.check().map_err(|what| format!("class {class}: {what}"))?;
            bytes += held;
            active[0] += blocks;
            active[1] += blocks * class::size(class);
        }
        if active != self.active {
            return Err(format!("{active:?} blocks and bytes are not free, but {:?} are counted", self.active));
        }
        Ok(bytes)
    }
}

/// Locks a shard for the thread with this number, the calling thread. The first thread that locks a shard owns its lock.
#[inline]
fn lock(index: usize, thread: u64) -> BiasedGuard<'static, Shard> {
    match ALL[index].get() {
        Some(shard) => shard.0.lock(thread),
        None => lock_new(index, thread),
    }
}

#[cold]
fn lock_new(index: usize, thread: u64) -> BiasedGuard<'static, Shard> {
    ALL[index].get_or_init(|| Box::new(AlignedLock(Biased::new(Shard::new(), thread)))).0.lock(thread)
}

/// Runs `body` with a locked shard.
#[inline]
pub fn with<T>(index: usize, body: impl FnOnce(&mut Shard) -> T) -> T {
    body(&mut lock(index, thread::number()))
}

/// Returns the indices of the shards in use.
pub fn in_use() -> impl Iterator<Item = usize> {
    (0..SHARDS).filter(|index| ALL[*index].get().is_some())
}

/// The calling thread, as the shards know it.
#[derive(Debug, Clone, Copy)]
pub struct User {
    /// The thread's number.
    pub thread: u64,
    /// The index of its shard.
    pub shard: usize,
}

impl User {
    /// Returns the calling thread.
    #[inline]
    pub fn current() -> Self {
        let (thread, shard) = thread::number_and_pinned_shard();
        User { thread, shard: usize::from(shard) }
    }
}

/// Takes a free block of a class from the thread's shard.
#[inline]
pub fn take(user: User, class: usize) -> Option<u64> {
    let mut shard = lock(user.shard, user.thread);
    let address = shard.take(class);
    finish_take(shard, user);
    address
}

/// Takes a free block of a class from any shard.
pub fn take_anywhere(user: User, class: usize) -> Option<u64> {
    in_use().find_map(|shard| take(User { shard, ..user }, class))
}

/// Inserts a new slab under its reserved number, and takes a block from it.
pub fn insert_and_take(user: User, id: SlabId, slab: Slab) -> Option<u64> {
    let mut shard = lock(id.shard, user.thread);
    shard.classes[id.class].insert(id.number, slab);
    let address = shard.take(id.class);
    finish_take(shard, User { shard: id.shard, ..user });
    address
}

#[inline]
fn finish_take(mut shard: BiasedGuard<'_, Shard>, user: User) {
    let contended = shard.was_contended();
    let another = std::mem::replace(&mut shard.user, user.thread) != user.thread;
    let exceeded = shard.exceeds_budget();
    drop(shard);
    if exceeded {
        count(Some(user.shard));
    }
    if contended && another {
        move_to_next();
    }
}

#[cold]
fn move_to_next() {
    thread::move_pinned_shard(MAX_MOVES, || (NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS) as u8);
}

/// Moves a free slab of a class from another shard to this one. Returns whether there was one.
pub fn adopt(index: usize, class: usize) -> bool {
    in_use().filter(|other| *other != index).any(|other| {
        // In the order of their indices, as everywhere.
        let thread = thread::number();
        let (mut first, mut second) = (lock(index.min(other), thread), lock(index.max(other), thread));
        let (to, from) = if index < other { (&mut first, &mut second) } else { (&mut second, &mut first) };
        let Some((old, slab)) = from.classes[class].remove_one_free() else { return false };
        from.classes[class].release_number(old);
        let number = to.classes[class].reserve_number();
        // All cells were in the map before, so this cannot fail.
        map::insert(slab.memory.address, slab.memory.bytes, SlabId { shard: index, class, number });
        to.classes[class].insert(number, slab);
        true
    })
}

fn lock_all(indices: &[usize]) -> Vec<BiasedGuard<'static, Shard>> {
    let thread = thread::number();
    indices.iter().map(|index| lock(*index, thread)).collect()
}

/// Adds up all shards and records new peaks. With a requester, the budgets are distributed anew. Returns what is active,
/// and the peaks.
fn count(requester: Option<usize>) -> (Amounts, Amounts) {
    let mut peaks = PEAKS.lock();
    let indices: Vec<usize> = in_use().collect();
    let mut shards = lock_all(&indices);
    let first = requester.and_then(|requester| indices.iter().position(|index| *index == requester));
    let mut sums = [0; 2];
    for (quantity, sum) in sums.iter_mut().enumerate() {
        *sum = shards.iter().map(|shard| shard.active[quantity]).sum();
        peaks[quantity] = peaks[quantity].max(*sum);
        if let Some(first) = first {
            let unused = peaks[quantity] - *sum;
            let slack = (peaks[quantity] / SLACK_DIVISOR / shards.len() as u64).max(MIN_SLACK[quantity]);
            distribute(&mut shards, first, quantity, unused, slack);
        }
    }
    (sums, *peaks)
}

/// Distributes what a sum leaves of the peak: first what each shard needs, beginning with the requester, and then
/// the rest to the requester.
fn distribute(shards: &mut [BiasedGuard<'_, Shard>], first: usize, quantity: usize, mut unused: u64, slack: u64) {
    let several = shards.len() > 1;
    let requester = &mut *shards[first];
    requester.recent_most[quantity] = requester.recent_most[quantity].max(requester.active[quantity]);
    for position in (first..shards.len()).chain(0..first) {
        let shard = &mut *shards[position];
        let active = shard.active[quantity];
        let need = shard.recent_most[quantity].saturating_sub(active);
        let granted = need.min(unused);
        unused -= granted;
        shard.budgets[quantity] = active + granted + if several { slack } else { 0 };
        // Halved at each count, so that a shard which no longer needs it does not keep it.
        shard.recent_most[quantity] = active + need / 2;
    }
    shards[first].budgets[quantity] += unused;
}

/// Returns the bytes of live blocks and of blocks whose free is deferred.
pub fn active_bytes() -> u64 {
    in_use().map(|index| with(index, |shard| shard.active[1])).sum()
}

/// Returns the statistics of active blocks, and of their bytes.
pub fn stats() -> [Stat; 2] {
    let (mut allocated, mut freed) = ([0; 2], [0; 2]);
    for index in in_use() {
        with(index, |shard| {
            for (class, cache) in shard.classes.iter().enumerate() {
                let size = class::size(class);
                allocated = [allocated[0] + cache.allocated, allocated[1] + cache.allocated * size];
                freed = [freed[0] + cache.freed, freed[1] + cache.freed * size];
            }
        });
    }
    let (active, peaks) = count(None);
    [0, 1].map(|quantity| Stat {
        current: active[quantity],
        peak: peaks[quantity],
        allocated: allocated[quantity],
        freed: freed[quantity],
    })
}

/// Sets the peaks to what is active.
pub fn reset_peaks() {
    let mut peaks = PEAKS.lock();
    *peaks = [0; 2];
    let indices: Vec<usize> = in_use().collect();
    let mut shards = lock_all(&indices);
    for shard in &mut shards {
        for (quantity, peak) in peaks.iter_mut().enumerate() {
            *peak += shard.active[quantity];
            (shard.budgets[quantity], shard.recent_most[quantity]) = (shard.active[quantity], shard.active[quantity]);
        }
    }
}

/// Resets the accumulated counters.
pub fn reset_accumulated() {
    for index in in_use() {
        with(index, |shard| {
            for cache in &mut shard.classes {
                (cache.allocated, cache.freed) = (0, 0);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::pinned::slab_cache::{Origin, PinnedMemory};
    use proptest::{prelude::*, test_runner::TestRunner};

    const CLASS: usize = 70;
    const SIZE: u64 = 120 << 10;
    /// Addresses that memory of a test cannot have, and shards that no thread of the tests uses.
    const BASE: u64 = 0x8041_0000_0000;
    const FIRST: usize = 20;

    fn add_slab(index: usize, address: u64) {
        let memory = PinnedMemory { address, bytes: class::slab_bytes(CLASS), origin: Origin::Driver };
        let number = with(index, |shard| shard.class(CLASS).reserve_number());
        let id = SlabId { shard: index, class: CLASS, number };
        assert!(map::insert(address, memory.bytes, id));
        let first = insert_and_take(User::current(), id, Slab::new(CLASS, memory)).unwrap();
        free(first);
    }

    fn take(shard: usize, class: usize) -> Option<u64> {
        super::take(User { shard, ..User::current() }, class)
    }

    fn free(address: u64) {
        let id = map::find(address).unwrap();
        assert_eq!(with(id.shard, |shard| shard.free(id, address)), FreeOutcome::Freed);
    }

    fn slabs_move_only_when_free() {
        let (from, to) = (FIRST + 3, FIRST + 1);
        add_slab(from, BASE);
        with(to, |_| ());
        let live = take(from, CLASS).unwrap();
        assert!(!adopt(to, CLASS) && take(to, CLASS).is_none());
        free(live);
        assert!(adopt(to, CLASS) && !adopt(to, CLASS) && take(from, CLASS).is_none());
        let taken = take(to, CLASS).unwrap();
        assert_eq!((taken, map::find(taken).map(|id| id.shard)), (live, Some(to)));
        free(taken);
        // Also to a higher index.
        assert!(adopt(from, CLASS));
        in_use().for_each(|index| assert!(with(index, |shard| shard.check()).is_ok()));
    }

    /// Compares the peaks with those of a program that allocates and frees in three shards.
    fn peaks_are_those_of_the_sum() {
        let slots = class::slots(CLASS) as usize;
        for index in 0..3 {
            (0..8).for_each(|slab| add_slab(FIRST + index, BASE + ((1 + index as u64 * 8 + slab) << 30)));
        }
        let steps = proptest::collection::vec((0..3usize, any::<bool>(), 1..4 * slots), 1..60);
        let mut runner = TestRunner::default();
        let outcome = runner.run(&(steps, any::<bool>()), |(steps, one_shard)| {
            reset_peaks();
            let (mut live, mut peak) = (vec![], 0);
            for (index, frees, amount) in steps {
                let index = if one_shard { 0 } else { index };
                for _ in 0..amount {
                    if frees {
                        live.pop().into_iter().for_each(free);
                    } else if let Some(address) = take(FIRST + index, CLASS) {
                        live.push(address);
                    }
                    peak = peak.max(live.len() as u64);
                }
                let [blocks, bytes] = stats();
                prop_assert_eq!((blocks.current, bytes.current), (live.len() as u64, live.len() as u64 * SIZE));
                let shards = in_use().count() as u64;
                let slack =
                    [0, 1].map(|quantity| peak * [1, SIZE][quantity] / SLACK_DIVISOR + shards * MIN_SLACK[quantity]);
                prop_assert!(blocks.peak <= peak && blocks.peak + slack[0] >= peak, "{} of {peak}", blocks.peak);
                prop_assert!(bytes.peak <= peak * SIZE && bytes.peak + slack[1] >= peak * SIZE, "{}", bytes.peak);
            }
            live.into_iter().for_each(free);
            Ok(())
        });
        outcome.unwrap();
    }

    /// One test, because all shards of the process share the peaks.
    #[test]
    fn shards_exchange_slabs_and_add_up_their_peaks() {
        assert_eq!(class::size(CLASS), SIZE);
        slabs_move_only_when_free();
        peaks_are_those_of_the_sum();
    }
}
