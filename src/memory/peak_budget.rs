//! The peaks of a device's quantities, without a counter that all threads share.
//!
//! Each arena counts its own allocations, but no arena can see the peak of a sum. So the device assigns a budget to
//! each arena, for each [`Quantity`] of blocks, of the small zone, of the large zone, and of both: as long as no arena exceeds its
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
//! A program whose sum stays close to the peak would trigger counts all the time, too. So only the peak of all allocated bytes
//! is exact: the budgets of the other quantities sum up to a little more than the peak, by one part in `SLACK_DIVISOR`, unless
//! there is one arena only. Mapped memory has no budgets: a request that maps makes driver calls, beside which
//! [shared counters](super::mapped_totals) cost nothing.
//!
//! So that peak is exact if one thread allocates, in any number of arenas, or if several threads allocate one after
//! the other. With concurrent threads it is that of the allocations and frees in the order in which the counts saw them,
//! less what the allowances hide; it is never too high.

use super::{
    arena::{self, Arena, Inner},
    biased::BiasedGuard,
    counters::{ALL, BUDGETED, EVERYTHING, QUANTITIES, Quantity, QuantitySet, ScopedLevels},
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
const LENDERS: usize = 8;
/// The number of arenas, also of other devices, among which these are looked for.
const MAX_LOOKUPS: usize = 64;
/// The part of a peak by which the budgets of all arenas may exceed it, for quantities whose peak is not exact: one in
/// `SLACK_DIVISOR`.
const SLACK_DIVISOR: u64 = 64;
/// The part of a peak that all allowances may be in sum: one in `ALLOWANCE_DIVISOR`.
const ALLOWANCE_DIVISOR: u64 = 8;
/// The minimum allowance of an arena, by quantity: 1024 blocks, 4 MiB. Mapped memory has no budgets.
const MIN_ALLOWANCE: [u64; QUANTITIES] = [1 << 10, 4 << 20, 4 << 20, 1 << 10, 4 << 20, 0, 0];

/// The index of all allocated bytes.
const ALL_BYTES: usize = ALL * QUANTITIES + Quantity::Bytes as usize;

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
    let mut own = requester.lock();
    // An arena that only its own thread has used lends nothing until a count. A thread that uses its arena all the time takes the
    // lock again before one that waits sees it free. So nothing is awaited, in whichever order two arenas are locked.
    let mut lenders = others.filter_map(Arena::try_lock).take(LENDERS);
    lenders.any(|mut lender| own.space.counters.take_budget(&mut lender.space.counters, exceeded))
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

/// Adds up all arenas and the other backends for the quantities of a set, and records new peaks.
fn count(memory: &DeviceMemory, peak: &mut Peak, which: QuantitySet, budgets: Budgets) {
    count_with(memory, peak, which, budgets, |_| ());
}

/// Counts as [`count`] does, and calls `body` before any counter can change. Returns the levels of these quantities; those of
/// others are of the other backends only.
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
            let inner = arena.lock_first();
            let levels = inner.space.counters.levels();
            (inner, levels)
        })
        .collect();
    let preferred = match budgets {
        Budgets::Prefer(requester) => list.in_use().iter().position(|arena| arena.number == requester.number),
        Budgets::Keep | Budgets::Share => None,
    };
    let mut rooms = [Room::default(); 3 * QUANTITIES];
    for index in indexes(which) {
        let level = &mut levels.as_flattened_mut()[index];
        let mut needs = 0;
        for counted in &locked {
            let (own, need) = level_and_need(counted, index);
            *level += own;
            needs += need;
        }
        let mapped = memory.mapped_totals.peak(index / QUANTITIES, index % QUANTITIES);
        let peak = &mut peak.peaks.as_flattened_mut()[index];
        *peak = (*peak).max(*level).max(mapped.unwrap_or(0));
        if BUDGETED & 1 << index != 0 {
            rooms[index] = Room::new(index, (*peak, *level, needs), locked.len() as u64, preferred.is_some());
        }
    }
    let value = body(Moment { others: &others, retired: list.retired(), locked: &locked });
    if !matches!(budgets, Budgets::Keep) {
        // Each arena is unlocked as soon as it has its budgets: its thread waits.
        for (number, mut counted) in locked.into_iter().enumerate() {
            for index in indexes(which & BUDGETED) {
                rooms[index].distribute(&mut counted, index, preferred == Some(number));
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

/// What each arena gets of the difference between the peak and the sum of a quantity. Half of what the needs leave is for the
/// preferred arena, if any, and half for the others.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    /// Whether each arena gets what it needs to reach its own peak. If there is not enough for all arenas, none does.
    meets_needs: bool,
    share: u64,
    share_of_preferred: u64,
    slack: u64,
    allowance: u64,
}

impl Room {
    /// Divides the room of a quantity, by its index, among arenas.
    fn new(index: usize, (peak, sum, needs): (u64, u64, u64), arenas: u64, any_preferred: bool) -> Room {
        // Powers of two, because divisions would take half of the time of a count.
        let shift = arenas.next_power_of_two().trailing_zeros();
        let room = peak - sum;
        let meets_needs = needs <= room;
        let rest = if meets_needs { room - needs } else { room };
        let share = rest >> (shift + u32::from(any_preferred));
        let allowance = ((peak / ALLOWANCE_DIVISOR) >> shift).max(MIN_ALLOWANCE[index % QUANTITIES]);
        let slack = if index == ALL_BYTES || arenas == 1 { 0 } else { (peak / SLACK_DIVISOR) >> shift };
        let share_of_preferred = if any_preferred { rest - share * (arenas - 1) } else { share };
        Room { meets_needs, share, share_of_preferred, slack, allowance }
    }

    /// Sets the budget of an arena.
    fn distribute(&self, counted: &mut Counted, index: usize, is_preferred: bool) {
        let (own, need) = level_and_need(counted, index);
        let share = if is_preferred { self.share_of_preferred } else { self.share };
        let max = own + share + self.slack + if self.meets_needs { need } else { 0 };
        counted.0.space.counters.set_budget(index, max, self.allowance);
    }
}

/// Resets the peaks to the current values.
pub fn reset(memory: &DeviceMemory) {
    let mut peak = memory.peak.lock();
    for arena in memory.arenas() {
        arena.lock().space.counters.reset_peaks();
    }
    memory.mapped_totals.reset_peaks();
    peak.peaks = ScopedLevels::default();
    count(memory, &mut peak, EVERYTHING, Budgets::Share);
}

#[cfg(test)]
mod tests;
