//! The peaks of a device's quantities, without a counter that all threads share.
//!
//! Each arena counts its own allocations, but no arena can see the peak of a sum. So the device assigns a budget to
//! each arena, for each [`Quantity`] of the small zone, of the large zone, and of both: as long as no arena exceeds its
//! budget, and the budgets sum up to at most the known peak, the sum cannot have exceeded that peak. Only an arena that
//! exceeds a budget asks the device, which then adds up all arenas, records a new peak if there is one, and distributes
//! the difference between peak and sum. All arenas are locked together meanwhile, so a sum is that of one moment.
//!
//! Threads that allocate concurrently in their own arenas would ask all the time. So when threads alternate more often
//! than once per `INTERVAL`, an arena that asks gets its allowance without a count, once until the next count. The
//! allowances are the possible error: all of them together are an eighth of the peak, or `MIN_ALLOWANCE` for each arena
//! if that is more. An arena that has used its allowance takes budget of some other arenas, which changes no sum, and is
//! counted if that does not suffice.
//!
//! A program whose sum stays close to the peak would trigger counts all the time, too. So only the peaks of all allocated
//! bytes and of mappings are exact: the budgets of the other quantities sum up to a little more than the peak, by one part
//! in `SLACK_DIVISOR`, unless there is one arena only.
//!
//! So those peaks are exact if one thread allocates, in any number of arenas, or if several threads allocate one after
//! the other. With concurrent threads it is that of the allocations and frees in the order in which the counts saw them,
//! less what the allowances hide; it is never too high.

use super::{
    arena::{self, Arena, Inner},
    biased::BiasedGuard,
    counters::{ALL, EVERYTHING, QUANTITIES, Quantity, QuantitySet, ScopedLevels},
    device_memory::DeviceMemory,
    stats::Stats,
};
use crate::runtime::thread;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The average interval at which another thread may trigger a count.
const INTERVAL: Duration = Duration::from_millis(1);
/// The number of such changes of thread that are allowed in a burst.
const BURST: u32 = 64;
/// The number of arenas that are asked for budget before a count.
const LENDERS: usize = 4;
/// The number of arenas, also of other devices, among which these are looked for.
const MAX_LOOKUPS: usize = 64;
/// The part of a peak by which the budgets of all arenas may exceed it, for quantities whose peak is not exact: one in
/// `SLACK_DIVISOR`.
const SLACK_DIVISOR: u64 = 64;
/// The part of a peak that all allowances may be in sum: one in `ALLOWANCE_DIVISOR`.
const ALLOWANCE_DIVISOR: u64 = 8;
/// The minimum allowance of an arena, by quantity: 1024 blocks, 4 MiB. Mappings have no allowance: a request that maps
/// memory makes driver calls, which cost more than a count.
const MIN_ALLOWANCE: [u64; QUANTITIES] = [1 << 10, 4 << 20, 4 << 20, 1 << 10, 4 << 20, 0, 0];

/// The index of all allocated bytes.
const ALL_BYTES: usize = ALL * QUANTITIES + Quantity::Bytes as usize;

/// Returns whether the peak of a quantity, by its index in flattened [`ScopedLevels`], is exact for one thread.
fn is_exact(index: usize) -> bool {
    index == ALL_BYTES || MIN_ALLOWANCE[index % QUANTITIES] == 0
}

/// The peaks of a device, and the state of the rate limit on counts.
#[derive(Debug)]
pub struct Peak {
    peaks: ScopedLevels,
    /// The thread that triggered the last count.
    thread: u64,
    /// The remaining number of changes of thread.
    changes: u32,
    /// The time at which `changes` was last replenished.
    since: Option<Instant>,
}

impl Default for Peak {
    fn default() -> Self {
        Peak { peaks: ScopedLevels::default(), thread: 0, changes: BURST, since: None }
    }
}

impl Peak {
    /// Returns whether the calling thread may trigger a count over all arenas.
    fn admits_count(&mut self) -> bool {
        let thread = thread::number();
        if thread == self.thread {
            return true;
        }
        let now = Instant::now();
        if let Some(since) = self.since {
            let regained = now.duration_since(since).as_nanos() / INTERVAL.as_nanos();
            if regained > 0 {
                self.changes = self.changes.saturating_add(u32::try_from(regained).unwrap_or(BURST)).min(BURST);
                self.since = Some(now);
            }
        } else {
            self.since = Some(now);
        }
        if self.changes == 0 {
            return false;
        }
        self.changes -= 1;
        self.thread = thread;
        true
    }
}

/// Current values of a device, and their peaks since the last reset.
#[derive(Debug, Clone, Copy)]
pub struct LevelsAndPeaks {
    /// The current values.
    pub levels: ScopedLevels,
    /// The peaks.
    pub peaks: ScopedLevels,
}

impl LevelsAndPeaks {
    /// Returns the allocated bytes and their peak.
    pub fn live(&self) -> (u64, u64) {
        let quantity = Quantity::Bytes as usize;
        (self.levels[ALL][quantity], self.peaks[ALL][quantity])
    }
}

/// Ensures that an arena has a budget for what it has allocated. The caller must have released the arena's lock, and
/// must still own the allocation that may exceed the budget.
pub fn ensure_budget(memory: &DeviceMemory, requester: &Arena) {
    let exceeded = requester.lock().space.counters.take_exceeded();
    if exceeded == 0 {
        return;
    }
    if let Some(mut peak) = memory.peak.try_lock()
        && peak.admits_count()
    {
        count(memory, &mut peak, exceeded, Budgets::Prefer(requester));
        return;
    }
    // Another thread is counting now or did so recently.
    if requester.lock().space.counters.use_allowance() || take_budget(requester, exceeded) {
        return;
    }
    let mut peak = memory.peak.lock();
    // The count that this thread waited for may have given the arena a sufficient budget.
    if requester.lock().space.counters.exceeds_budget() {
        count(memory, &mut peak, exceeded, Budgets::Prefer(requester));
    }
}

/// Moves budget of other arenas, one after the other, to `requester`, until it suffices. Returns whether it does. The sum of
/// the budgets stays the same. Only two arenas at a time are locked, and not the list of arenas, whose lock counts hold. An
/// arena that has left the list meanwhile has no budget.
fn take_budget(requester: &Arena, exceeded: QuantitySet) -> bool {
    let following = (requester.number + 1..).map_while(arena::get);
    let preceding = (0..requester.number).filter_map(arena::get);
    let is_lender = |arena: &&Arena| arena.device == requester.device && arena.in_use.load(Ordering::Relaxed);
    let others = following.chain(preceding).take(MAX_LOOKUPS).filter(is_lender);
    others.take(LENDERS).any(|other| {
        // In the order in which all code locks several.
        let (mut own, mut lender);
        if requester.number < other.number {
            (own, lender) = (requester.lock(), other.lock());
        } else {
            (lender, own) = (other.lock(), requester.lock());
        }
        own.space.counters.take_budget(&mut lender.space.counters, exceeded)
    })
}

/// Counts, distributes the budget, most of it to `requester`, and calls `body` at the same moment.
pub fn flush_peak<T>(memory: &DeviceMemory, requester: &Arena, body: impl FnOnce(Moment) -> T) -> (LevelsAndPeaks, T) {
    count_with(memory, &mut memory.peak.lock(), EVERYTHING, Budgets::Prefer(requester), body)
}

/// Counts after an allocation of another backend, which has no budget.
pub fn count_other_backends(memory: &DeviceMemory) {
    count(memory, &mut memory.peak.lock(), EVERYTHING, Budgets::Share);
}

/// Counts, and leaves the budgets as they are.
pub fn read(memory: &DeviceMemory) -> LevelsAndPeaks {
    read_with(memory, |_| ()).0
}

/// Counts as [`read`] does, and calls `body` at the same moment.
pub fn read_with<T>(memory: &DeviceMemory, body: impl FnOnce(Moment) -> T) -> (LevelsAndPeaks, T) {
    count_with(memory, &mut memory.peak.lock(), EVERYTHING, Budgets::Keep, body)
}

/// An arena that is locked, with the levels of its counters.
type Counted<'a> = (BiasedGuard<'a, Inner>, ScopedLevels);

/// The counters of a device while none of them can change.
pub struct Moment<'a> {
    /// The statistics of other backends than the caching allocator.
    pub others: &'a Stats,
    /// The sums of retired arenas.
    pub retired: &'a Stats,
    locked: &'a [Counted<'a>],
}

impl Moment<'_> {
    /// Returns the arenas that have a key.
    pub fn arenas(&self) -> impl Iterator<Item = &Inner> {
        self.locked.iter().map(|(inner, _)| &**inner)
    }
}

/// What a count does with the budgets.
enum Budgets<'a> {
    /// They stay as they are.
    Keep,
    /// Every arena gets the same share.
    Share,
    /// The arena gets more than the others.
    Prefer(&'a Arena),
}

/// Adds up all arenas and the other backends for the quantities of a set, and records new peaks. The levels of other
/// quantities are 0.
fn count(memory: &DeviceMemory, peak: &mut Peak, which: QuantitySet, budgets: Budgets) -> LevelsAndPeaks {
    count_with(memory, peak, which, budgets, |_| ()).0
}

/// Counts as [`count`] does, and calls `body` before any counter can change.
fn count_with<T>(
    memory: &DeviceMemory,
    peak: &mut Peak,
    which: QuantitySet,
    budgets: Budgets,
    body: impl FnOnce(Moment) -> T,
) -> (LevelsAndPeaks, T) {
    let mut others = memory.others.lock();
    let mut levels = others.levels();
    // Lock order: first the list, as for a snapshot, then each arena.
    let list = memory.all_arenas();
    let locked: Vec<Counted> = list
        .in_use()
        .iter()
        .map(|arena| {
            let inner = arena.lock();
            let levels = inner.space.counters.levels();
            (inner, levels)
        })
        .collect();
    let mut rooms = [Room::default(); 3 * QUANTITIES];
    for index in indexes(which) {
        let level = &mut levels.as_flattened_mut()[index];
        let mut needs = 0;
        for counted in &locked {
            let (own, need) = level_and_need(counted, index);
            *level += own;
            needs += need;
        }
        let peak = &mut peak.peaks.as_flattened_mut()[index];
        *peak = (*peak).max(*level);
        rooms[index] = Room::new(*peak, *level, needs);
    }
    let value = body(Moment { others: &others, retired: list.retired(), locked: &locked });
    if !matches!(budgets, Budgets::Keep) {
        let arenas = locked.len() as u64;
        let preferred = match budgets {
            Budgets::Prefer(requester) => list.in_use().iter().position(|arena| arena.number == requester.number),
            Budgets::Keep | Budgets::Share => None,
        };
        // Each arena is unlocked as soon as it has its budgets: its thread waits.
        for (number, mut counted) in locked.into_iter().enumerate() {
            for index in indexes(which) {
                let is_preferred = preferred.map(|preferred| preferred == number);
                rooms[index].distribute(&mut counted, index, arenas, is_preferred);
            }
            counted.0.space.counters.set_limits();
        }
    }
    (LevelsAndPeaks { levels, peaks: peak.peaks }, value)
}

/// Returns the indexes in a set.
fn indexes(mut set: QuantitySet) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(index)
    })
}

/// Returns a level of an arena, and by how much the arena's own peak exceeds it.
fn level_and_need((inner, levels): &Counted, index: usize) -> (u64, u64) {
    let level = levels.as_flattened()[index];
    (level, inner.space.counters.peaks().as_flattened()[index].saturating_sub(level))
}

/// The difference between the peak and the sum of a quantity, which the arenas share.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    peak: u64,
    /// Whether each arena gets what it needs to reach its own peak. If there is not enough for all arenas, none does.
    meets_needs: bool,
    /// What is left then.
    rest: u64,
}

impl Room {
    fn new(peak: u64, sum: u64, needs: u64) -> Room {
        let room = peak - sum;
        let meets_needs = needs <= room;
        Room { peak, meets_needs, rest: if meets_needs { room - needs } else { room } }
    }

    /// Sets the budget of one of `arenas`: half of the rest is for the preferred arena, if any, and half for the others.
    /// `is_preferred` is `None` if there is none.
    fn distribute(&self, counted: &mut Counted, index: usize, arenas: u64, is_preferred: Option<bool>) {
        // Powers of two, because divisions would take half of the time of a count.
        let shift = arenas.next_power_of_two().trailing_zeros();
        let share = self.rest >> (shift + u32::from(is_preferred.is_some()));
        let part = if is_preferred == Some(true) { self.rest - share * (arenas - 1) } else { share };
        let allowance = match MIN_ALLOWANCE[index % QUANTITIES] {
            0 => 0,
            least => ((self.peak / ALLOWANCE_DIVISOR) >> shift).max(least),
        };
        let slack = if is_exact(index) || arenas == 1 { 0 } else { (self.peak / SLACK_DIVISOR) >> shift };
        let (own, need) = level_and_need(counted, index);
        let max = own + part + slack + if self.meets_needs { need } else { 0 };
        counted.0.space.counters.set_budget(index, max, allowance);
    }
}

/// Resets the peaks to the current values.
pub fn reset(memory: &DeviceMemory) {
    let mut peak = memory.peak.lock();
    for arena in memory.arenas() {
        arena.lock().space.counters.reset_peaks();
    }
    peak.peaks = ScopedLevels::default();
    count(memory, &mut peak, EVERYTHING, Budgets::Share);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        driver::Stream,
        memory::{
            arena::{Key, StreamUse},
            block::{UNIT, Zone, zone_of},
            counters::{Counters, max_of},
            pool::PoolId,
            stats::ByPool,
        },
    };
    use proptest::prelude::*;
    use std::{
        sync::atomic::{AtomicU32, AtomicU64},
        thread as threads,
    };

    fn arenas(memory: &DeviceMemory, count: usize) -> Vec<&'static Arena> {
        let key = |stream| Key { stream, thread: 0, pool: PoolId::DEFAULT, ended: 0 };
        // Arenas of other tests must not lend budget.
        static DEVICES: AtomicU32 = AtomicU32::new(1 << 16);
        let device = DEVICES.fetch_add(1, Ordering::Relaxed);
        let user = StreamUse { stream: Stream::DEFAULT, device, thread: 0, generation: 0 };
        (0..count).map(|stream| memory.arena(key(stream), user).unwrap().0).collect()
    }

    /// Changes the counters of an arena as an allocation does.
    fn change(memory: &DeviceMemory, arena: &Arena, body: impl FnOnce(&mut Counters)) {
        let mut inner = arena.lock();
        body(&mut inner.space.counters);
        let needs_attention = inner.space.counters.needs_attention;
        drop(inner);
        if needs_attention {
            ensure_budget(memory, arena);
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Allocates a block in an arena.
        Alloc(usize, u64),
        /// Frees a block; at once, or after another stream.
        Free(usize, bool),
        /// Completes a deferred free.
        Complete(usize),
        /// Maps a handle in an arena.
        Map(usize, u64),
        /// Unmaps a handle.
        Unmap(usize),
        /// Allocates a block of another backend.
        AllocOther(u64),
        /// Frees the blocks of the other backend.
        FreeOther,
        /// Resets the peaks.
        Reset,
        /// Continues in another thread.
        NextThread,
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = || prop_oneof![1_u64..5_000, 1_u64..4 << 20];
        prop_oneof![
            12 => (0_usize..ARENAS, bytes()).prop_map(|(arena, bytes)| Step::Alloc(arena, bytes)),
            9 => (any::<usize>(), any::<bool>()).prop_map(|(index, deferred)| Step::Free(index, deferred)),
            3 => any::<usize>().prop_map(Step::Complete),
            2 => (0_usize..ARENAS, bytes()).prop_map(|(arena, bytes)| Step::Map(arena, bytes)),
            1 => any::<usize>().prop_map(Step::Unmap),
            2 => bytes().prop_map(Step::AllocOther),
            1 => Just(Step::FreeOther),
            1 => Just(Step::Reset),
            1 => Just(Step::NextThread),
        ]
    }

    const ARENAS: usize = 5;

    /// A device with arenas, and a model of it: the blocks and the peaks of their sums.
    struct Program {
        memory: DeviceMemory,
        arenas: Vec<&'static Arena>,
        /// Arena and requested bytes.
        live: Vec<(usize, u64)>,
        waiting: Vec<(usize, u64)>,
        mapped: Vec<(usize, u64)>,
        other: Vec<u64>,
        peaks: ScopedLevels,
    }

    fn size_of(requested: u64) -> u64 {
        requested.next_multiple_of(UNIT)
    }

    impl Program {
        fn new() -> Self {
            let memory = DeviceMemory::default();
            let arenas = arenas(&memory, ARENAS);
            let peaks = ScopedLevels::default();
            Program { memory, arenas, live: vec![], waiting: vec![], mapped: vec![], other: vec![], peaks }
        }

        fn levels(&self) -> ScopedLevels {
            let mut levels = ScopedLevels::default();
            let mut add = |requested: u64, quantities: &[(Quantity, u64)]| {
                for scope in [zone_of(size_of(requested)) as usize, ALL] {
                    for (quantity, amount) in quantities {
                        levels[scope][*quantity as usize] += amount;
                    }
                }
            };
            let live = self.live.iter().map(|(_, requested)| requested);
            for requested in live.chain(&self.other) {
                let size = size_of(*requested);
                add(*requested, &[(Quantity::Count, 1), (Quantity::Bytes, size), (Quantity::Requested, *requested)]);
                add(*requested, &[(Quantity::Active, 1), (Quantity::ActiveBytes, size)]);
            }
            for (_, requested) in &self.waiting {
                add(*requested, &[(Quantity::Active, 1), (Quantity::ActiveBytes, size_of(*requested))]);
            }
            for (_, bytes) in &self.mapped {
                add(*bytes, &[(Quantity::Segments, 1), (Quantity::Reserved, *bytes)]);
            }
            levels
        }

        fn run(&mut self, step: &Step) {
            let zone = |requested: u64| zone_of(size_of(requested));
            let memory = &self.memory;
            match *step {
                Step::Alloc(arena, requested) => {
                    self.live.push((arena, requested));
                    change(memory, self.arenas[arena], |counters| {
                        counters.count_alloc(zone(requested), size_of(requested), requested);
                    });
                }
                Step::Free(index, deferred) if !self.live.is_empty() => {
                    let (arena, requested) = self.live.swap_remove(index % self.live.len());
                    change(memory, self.arenas[arena], |counters| {
                        counters.count_free(zone(requested), size_of(requested), requested);
                        if deferred {
                            counters.count_deferred_free(zone(requested), size_of(requested));
                        }
                    });
                    if deferred {
                        self.waiting.push((arena, requested));
                    }
                }
                Step::Complete(index) if !self.waiting.is_empty() => {
                    let (arena, requested) = self.waiting.swap_remove(index % self.waiting.len());
                    change(memory, self.arenas[arena], |counters| {
                        counters.count_deferred_free_done(zone(requested), size_of(requested));
                    });
                }
                Step::Map(arena, bytes) => {
                    self.mapped.push((arena, bytes));
                    change(memory, self.arenas[arena], |counters| counters.map(zone(bytes), bytes));
                }
                Step::Unmap(index) if !self.mapped.is_empty() => {
                    let (arena, bytes) = self.mapped.swap_remove(index % self.mapped.len());
                    change(memory, self.arenas[arena], |counters| counters.unmap(zone(bytes), bytes));
                }
                Step::AllocOther(requested) => {
                    self.other.push(requested);
                    self.count_others(|by_pool, amount| by_pool.add(zone(requested), amount), requested);
                    count_other_backends(&self.memory);
                }
                Step::FreeOther => {
                    for requested in std::mem::take(&mut self.other) {
                        self.count_others(|by_pool, amount| by_pool.sub(zone(requested), amount), requested);
                    }
                }
                Step::Reset => {
                    reset(memory);
                    self.peaks = ScopedLevels::default();
                }
                Step::Free(..) | Step::Complete(_) | Step::Unmap(_) | Step::NextThread => {}
            }
            self.peaks = max_of(self.peaks, &self.levels());
        }

        fn count_others(&self, change: impl Fn(&mut ByPool, u64), requested: u64) {
            let mut others = self.memory.others.lock();
            change(&mut others.allocation, 1);
            change(&mut others.active, 1);
            change(&mut others.allocated_bytes, size_of(requested));
            change(&mut others.active_bytes, size_of(requested));
            change(&mut others.requested_bytes, requested);
        }
    }

    fn assert_peaks(found: &ScopedLevels, expected: &ScopedLevels) {
        for (index, (found, expected)) in found.as_flattened().iter().zip(expected.as_flattened()).enumerate() {
            let slack = if is_exact(index) { 0 } else { found / SLACK_DIVISOR };
            assert!(found <= expected && expected - found <= slack, "{index}: {found} instead of {expected}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// The peaks of one thread at a time are exact, or too low by the slack at most, whichever thread it is and
        /// whether or not they are read.
        #[test]
        fn peaks_match_the_model(steps in prop::collection::vec(step(), 1..150), read_each in any::<bool>()) {
            let mut program = Program::new();
            for steps in steps.split(|step| matches!(step, Step::NextThread)) {
                let program = &mut program;
                let run = move || {
                    for step in steps {
                        program.run(step);
                        for arena in &program.arenas {
                            assert_eq!(arena.lock().space.counters.check(), Ok(()));
                        }
                        if read_each {
                            let counted = read(&program.memory);
                            assert_eq!(counted.levels, program.levels(), "{step:?}");
                            assert_peaks(&counted.peaks, &program.peaks);
                        }
                    }
                };
                threads::scope(|scope| scope.spawn(run).join()).unwrap();
            }
            assert_peaks(&read(&program.memory).peaks, &program.peaks);
        }
    }

    /// Concurrent threads: the peak is between what was certainly allocated at once, less the allowances, and what can
    /// have been allocated at once.
    #[test]
    fn concurrent_peaks_are_within_the_allowances() {
        const THREADS: usize = 4;
        let memory = DeviceMemory::default();
        let arenas = arenas(&memory, THREADS);
        let (least, most) = ([const { AtomicU64::new(0) }; 2], [const { AtomicU64::new(0) }; 2]);
        let add = |sum: &[AtomicU64; 2], bytes: u64| {
            let now = sum[0].fetch_add(bytes, Ordering::SeqCst) + bytes;
            sum[1].fetch_max(now, Ordering::SeqCst);
        };
        threads::scope(|scope| {
            for (number, arena) in arenas.iter().enumerate() {
                let (memory, add, least, most) = (&memory, &add, &least, &most);
                scope.spawn(move || {
                    let mut random = number as u64 + 1;
                    let mut live = Vec::new();
                    for _ in 0..4000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        if (random >> 40) % 32 > live.len() as u64 {
                            let bytes = ((random >> 33) % (32 << 20) + 1).next_multiple_of(UNIT);
                            live.push(bytes);
                            add(most, bytes);
                            change(memory, arena, |counters| counters.count_alloc(Zone::Large, bytes, bytes));
                            add(least, bytes);
                        } else if let Some(bytes) = live.pop() {
                            least[0].fetch_sub(bytes, Ordering::SeqCst);
                            arena.lock().space.counters.count_free(Zone::Large, bytes, bytes);
                            most[0].fetch_sub(bytes, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        let (_, peak) = read(&memory).live();
        let [least, most] = [least, most].map(|sum| sum[1].load(Ordering::SeqCst));
        let allowances = (peak / ALLOWANCE_DIVISOR).max(THREADS as u64 * MIN_ALLOWANCE[Quantity::Bytes as usize]);
        assert!(least <= peak + allowances, "{least} were allocated at once, the peak is {peak}");
        assert!(peak <= most, "at most {most} were allocated at once, the peak is {peak}");
    }
}
