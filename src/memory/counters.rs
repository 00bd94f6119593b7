//! The counters of an arena, updated by a few additions for each operation. The arena's lock protects them.

use super::{
    block::Zone,
    stats::{Base, Stat, Statistic, Stats},
};

/// The quantities whose peaks are known for the whole device, as indexes into [`Levels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Quantity {
    /// Allocated blocks.
    Count,
    /// Bytes of allocated blocks.
    Bytes,
    /// Requested bytes of the active blocks.
    Requested,
    /// Allocated blocks, and freed ones that wait for other streams.
    Active,
    /// Bytes of the active blocks.
    ActiveBytes,
    /// Mapped handles and segments.
    Segments,
    /// Bytes of mapped handles and segments.
    Reserved,
}

/// The number of quantities.
pub const QUANTITIES: usize = 7;
/// One value for each [`Quantity`].
pub type Levels = [u64; QUANTITIES];
/// The index of both zones together in [`ScopedLevels`]; the other indexes are those of [`Zone`].
pub const ALL: usize = 2;
/// The levels of the small zone, of the large zone, and of both together.
pub type ScopedLevels = [Levels; 3];
/// A set of indexes into flattened [`ScopedLevels`], one bit for each.
pub type QuantitySet = u32;
/// All of them.
pub const EVERYTHING: QuantitySet = (1 << (3 * QUANTITIES)) - 1;
/// Those that have budgets: all but those of mapped memory, whose sums the device [counts itself](super::mapped_totals).
pub const BUDGETED: QuantitySet = EVERYTHING & !(0b110_0000 * (1 | 1 << QUANTITIES | 1 << (2 * QUANTITIES)));

/// A level that changes with every request, relative to a limit: one subtraction both changes and compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Level {
    /// The limit minus the current value.
    headroom: i64,
    /// The value above which [`Counters::note_levels`] must be called.
    limit: u64,
}

impl Level {
    #[inline]
    fn current(&self) -> u64 {
        self.limit.wrapping_sub(self.headroom as u64)
    }

    /// Increases the value. Returns whether it exceeds the limit.
    #[inline]
    fn add(&mut self, amount: u64) -> bool {
        self.headroom -= amount as i64;
        self.headroom < 0
    }

    #[inline]
    fn sub(&mut self, amount: u64) {
        self.headroom += amount as i64;
    }

    fn set_limit(&mut self, limit: u64) {
        self.headroom = limit.wrapping_sub(self.current()) as i64;
        self.limit = limit;
    }
}

/// A level with the sum of its increases. The sum of the decreases is the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunningCount {
    level: Level,
    increased: u64,
}

impl RunningCount {
    /// Returns the current value.
    #[inline]
    pub fn current(&self) -> u64 {
        self.level.current()
    }

    #[inline]
    fn add(&mut self, amount: u64) -> bool {
        self.increased += amount;
        self.level.add(amount)
    }

    /// Returns the values with torch's fields, with the sums counted from a base.
    fn stat(&self, base: &Base, peak: u64) -> Stat {
        base.stat(self.current(), peak, self.total())
    }

    fn total(&self) -> Base {
        Base { increased: self.increased, decreased: self.increased - self.current() }
    }
}

/// The bases of a zone's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bases {
    count: Base,
    bytes: Base,
    requested: Base,
    /// Blocks with a deferred free at the reset, whose frees are still to be counted.
    waiting: u64,
    /// The bytes of those blocks.
    waiting_bytes: u64,
}

/// The counters of one zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneCounters {
    /// Allocated blocks.
    pub count: RunningCount,
    /// Bytes of allocated blocks.
    pub bytes: RunningCount,
    /// Requested bytes of allocated blocks, and of freed blocks that wait for other streams.
    pub requested: RunningCount,
    /// Freed blocks that wait for other streams.
    pub waiting: Stat,
    /// Bytes of freed blocks that wait for other streams.
    pub waiting_bytes: Stat,
    /// Mapped handles and segments.
    pub segments: Stat,
    /// Bytes of mapped handles and segments.
    pub reserved: Stat,
    /// Free blocks whose memory cannot be released, as of the last query.
    pub pinned: Stat,
    /// Bytes of those blocks.
    pub pinned_bytes: Stat,
    bases: Bases,
}

impl ZoneCounters {
    /// Returns the current values.
    #[inline]
    fn levels(&self) -> Levels {
        let (count, bytes) = (self.count.current(), self.bytes.current());
        [
            count,
            bytes,
            self.requested.current(),
            count + self.waiting.current,
            bytes + self.waiting_bytes.current,
            self.segments.current,
            self.reserved.current,
        ]
    }

    /// Returns the values of a quantity with torch's fields.
    pub fn stat(&self, quantity: Quantity, peaks: &Levels) -> Stat {
        let peak = peaks[quantity as usize];
        let count = || self.count.stat(&self.bases.count, peak);
        let bytes = || self.bytes.stat(&self.bases.bytes, peak);
        match quantity {
            Quantity::Count => count(),
            Quantity::Bytes => bytes(),
            Quantity::Requested => self.requested.stat(&self.bases.requested, peak),
            Quantity::Active => active(count(), &self.waiting, self.bases.waiting),
            Quantity::ActiveBytes => active(bytes(), &self.waiting_bytes, self.bases.waiting_bytes),
            Quantity::Segments => Stat { peak, ..self.segments },
            Quantity::Reserved => Stat { peak, ..self.reserved },
        }
    }

    /// Sets the number and bytes of free blocks that cannot be released now.
    pub fn set_pinned(&mut self, (count, bytes): (u64, u64)) {
        self.pinned.set(count);
        self.pinned_bytes.set(bytes);
    }

    fn reset_accumulated(&mut self) {
        self.bases = Bases {
            count: self.count.total(),
            bytes: self.bytes.total(),
            requested: self.requested.total(),
            waiting: self.waiting.current,
            waiting_bytes: self.waiting_bytes.current,
        };
        let stats = [&mut self.segments, &mut self.reserved, &mut self.pinned, &mut self.pinned_bytes];
        stats.into_iter().for_each(Stat::reset_accumulated);
    }

    fn reset_peaks(&mut self) {
        [&mut self.pinned, &mut self.pinned_bytes].into_iter().for_each(Stat::reset_peak);
    }
}

/// Adds the waiting blocks to the allocated ones: a freed block stays active while it waits. `waited` is the number of
/// blocks that waited at the last reset of the sums.
fn active(live: Stat, waiting: &Stat, waited: u64) -> Stat {
    let current = live.current + waiting.current;
    Stat { current, freed: live.freed + waited - waiting.current, ..live }
}

/// The counters of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The counters by zone.
    pub zones: [ZoneCounters; 2],
    count: Level,
    bytes: Level,
    requested: Level,
    /// Whether the thread that allocated must call [`peak_budget::ensure_budget`](super::peak_budget::ensure_budget)
    /// after it released the arena's lock, or deliver events to trackers.
    pub needs_attention: bool,
    /// The quantities that exceeded the budget at the last increase.
    exceeded: QuantitySet,
    /// The peaks of the arena since the last reset.
    peaks: ScopedLevels,
    budget: Budget,
    /// Allocated blocks of at least `max_split_size`, as of the last query.
    oversize_blocks: Stat,
    /// Segments of at least `max_split_size`, as of the last query.
    oversize_segments: Stat,
}

/// The values up to which the device need not count; see [`peak_budget`](super::peak_budget).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    max: ScopedLevels,
    /// What may be added to `max` once without a count.
    allowance: ScopedLevels,
}

impl Default for Budget {
    fn default() -> Self {
        let mut max = ScopedLevels::default();
        for (index, max) in max.as_flattened_mut().iter_mut().enumerate() {
            *max = if BUDGETED & 1 << index == 0 { u64::MAX } else { 0 };
        }
        Budget { max, allowance: ScopedLevels::default() }
    }
}

/// Returns the larger value of each quantity.
pub fn max_of(mut one: ScopedLevels, other: &ScopedLevels) -> ScopedLevels {
    for (one, other) in one.as_flattened_mut().iter_mut().zip(other.as_flattened()) {
        *one = (*one).max(*other);
    }
    one
}

fn exceeds(levels: &ScopedLevels, max: &ScopedLevels) -> bool {
    levels.as_flattened().iter().zip(max.as_flattened()).any(|(level, max)| level > max)
}

impl Counters {
    /// Returns the allocated bytes.
    #[inline]
    pub fn live(&self) -> u64 {
        self.bytes.current()
    }

    /// Returns the bytes of all blocks that were ever allocated in a zone.
    pub fn allocated_in(&self, zone: Zone) -> u64 {
        self.zones[zone as usize].bytes.increased
    }

    /// Counts an allocation.
    #[inline]
    pub fn count_alloc(&mut self, zone: Zone, bytes: u64, requested: u64) {
        let counters = &mut self.zones[zone as usize];
        let beyond_limit = counters.count.add(1)
            | counters.bytes.add(bytes)
            | counters.requested.add(requested)
            | self.count.add(1)
            | self.bytes.add(bytes)
            | self.requested.add(requested);
        if beyond_limit {
            self.note_levels();
        }
    }

    /// Counts a free.
    #[inline]
    pub fn count_free(&mut self, zone: Zone, bytes: u64, requested: u64) {
        let counters = &mut self.zones[zone as usize];
        counters.count.level.sub(1);
        counters.bytes.level.sub(bytes);
        counters.requested.level.sub(requested);
        self.count.sub(1);
        self.bytes.sub(bytes);
        self.requested.sub(requested);
    }

    /// Counts a block, whose free was just counted, as waiting for other streams.
    pub fn count_deferred_free(&mut self, zone: Zone, bytes: u64, requested: u64) {
        let counters = &mut self.zones[zone as usize];
        counters.waiting.add(1);
        counters.waiting_bytes.add(bytes);
        counters.requested.level.add(requested);
        self.requested.add(requested);
        self.set_limits();
    }

    /// Counts the end of such a wait.
    pub fn count_deferred_free_done(&mut self, zone: Zone, bytes: u64, requested: u64) {
        let counters = &mut self.zones[zone as usize];
        counters.waiting.sub(1);
        counters.waiting_bytes.sub(bytes);
        counters.requested.level.sub(requested);
        self.requested.sub(requested);
        self.set_limits();
    }

    /// Counts a mapped handle or segment.
    pub fn map(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].segments.add(1);
        self.zones[zone as usize].reserved.add(bytes);
        self.note_levels();
    }

    /// Counts a handle or segment that was released or moved.
    pub fn unmap(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].segments.sub(1);
        self.zones[zone as usize].reserved.sub(bytes);
    }

    /// Resets all peaks.
    pub fn reset_peaks(&mut self) {
        self.zones.iter_mut().for_each(ZoneCounters::reset_peaks);
        [&mut self.oversize_blocks, &mut self.oversize_segments].into_iter().for_each(Stat::reset_peak);
        self.peaks = self.levels();
        self.set_limits();
    }

    /// Returns the number of allocations and frees so far.
    pub fn activity(&self) -> u64 {
        self.zones.iter().map(|zone| 2 * zone.count.increased - zone.count.current()).sum()
    }

    /// Returns the statistics. Quantities that only the device counts are 0.
    pub fn stats(&self) -> Stats {
        let [small, large] = &self.zones;
        let sum = |mut one: Stat, other: Stat| {
            one.merge(&other);
            one
        };
        let mut stats = Stats {
            oversize_allocations: self.oversize_blocks,
            oversize_segments: self.oversize_segments,
            ..Stats::default()
        };
        for (zones, by_pool) in [
            ([small.pinned, large.pinned], &mut stats.inactive_split),
            ([small.pinned_bytes, large.pinned_bytes], &mut stats.inactive_split_bytes),
        ] {
            [by_pool.small_pool, by_pool.large_pool] = zones;
            by_pool.all = sum(zones[0], zones[1]);
        }
        stats.set_counted(|scope, quantity| match scope {
            ALL => {
                let all = sum(small.stat(quantity, &self.peaks[0]), large.stat(quantity, &self.peaks[1]));
                Stat { peak: self.peaks[ALL][quantity as usize], ..all }
            }
            zone => self.zones[zone].stat(quantity, &self.peaks[zone]),
        });
        stats
    }

    /// Resets all sums.
    pub fn reset_accumulated(&mut self) {
        self.zones.iter_mut().for_each(ZoneCounters::reset_accumulated);
        [&mut self.oversize_blocks, &mut self.oversize_segments].into_iter().for_each(Stat::reset_accumulated);
    }

    /// Sets the numbers of allocated blocks and of segments of at least `max_split_size`.
    pub fn set_oversize(&mut self, (blocks, segments): (u64, u64)) {
        self.oversize_blocks.set(blocks);
        self.oversize_segments.set(segments);
    }

    /// Checks that the totals are the sums of the zones, and that no value exceeds its peak.
    pub fn check(&self) -> Result<(), String> {
        let levels = self.levels();
        let totals = [self.count.current(), self.bytes.current(), self.requested.current()];
        if totals[..] != levels[ALL][..totals.len()] || exceeds(&levels, &self.peaks) {
            return Err(format!("the totals or the peaks are wrong: {self:?}"));
        }
        Ok(())
    }

    // ---- peaks and budgets

    /// Returns the current values.
    pub fn levels(&self) -> ScopedLevels {
        let [small, large] = [self.zones[0].levels(), self.zones[1].levels()];
        [small, large, std::array::from_fn(|quantity| small[quantity] + large[quantity])]
    }

    /// Returns the peaks of the arena since the last reset.
    pub fn peaks(&self) -> &ScopedLevels {
        &self.peaks
    }

    /// Updates the peaks after an increase, and requests attention if a budget is exceeded.
    #[cold]
    fn note_levels(&mut self) {
        let levels = self.levels();
        self.peaks = max_of(self.peaks, &levels);
        let pairs = levels.as_flattened().iter().zip(self.budget.max.as_flattened());
        self.exceeded =
            pairs.enumerate().fold(0, |set, (index, (level, max))| set | QuantitySet::from(level > max) << index);
        if self.exceeded == 0 {
            self.set_limits();
        } else {
            // The count sets the limits.
            self.needs_attention = true;
        }
    }

    /// Sets the limits of the counts: the lowest of what the peaks and the budgets allow.
    pub fn set_limits(&mut self) {
        let max = |scope: usize, quantity: Quantity| {
            self.peaks[scope][quantity as usize].min(self.budget.max[scope][quantity as usize])
        };
        let limits = |scope: usize, waiting: u64, waiting_bytes: u64| {
            let active = max(scope, Quantity::Active).saturating_sub(waiting);
            let active_bytes = max(scope, Quantity::ActiveBytes).saturating_sub(waiting_bytes);
            [
                max(scope, Quantity::Count).min(active),
                max(scope, Quantity::Bytes).min(active_bytes),
                max(scope, Quantity::Requested),
            ]
        };
        let [small, large] = &self.zones;
        let waiting = [small, large].map(|zone| (zone.waiting.current, zone.waiting_bytes.current));
        let zones = [0, 1].map(|zone| limits(zone, waiting[zone].0, waiting[zone].1));
        let all = limits(ALL, waiting[0].0 + waiting[1].0, waiting[0].1 + waiting[1].1);
        for (zone, limits) in self.zones.iter_mut().zip(zones) {
            zone.count.level.set_limit(limits[0]);
            zone.bytes.level.set_limit(limits[1]);
            zone.requested.level.set_limit(limits[2]);
        }
        self.count.set_limit(all[0]);
        self.bytes.set_limit(all[1]);
        self.requested.set_limit(all[2]);
    }

    /// Returns the quantities that exceeded the budget at the last increase, and forgets them.
    pub fn take_exceeded(&mut self) -> QuantitySet {
        self.needs_attention = false;
        std::mem::take(&mut self.exceeded)
    }

    /// Returns whether a level exceeds the budget.
    pub fn exceeds_budget(&self) -> bool {
        exceeds(&self.levels(), &self.budget.max)
    }

    /// Sets the budget of a quantity, by its index in flattened [`ScopedLevels`]: the value up to which the device need
    /// not count, and what may be added to it once without a count. The caller then calls
    /// [`set_limits`](Self::set_limits).
    pub fn set_budget(&mut self, index: usize, max: u64, allowance: u64) {
        self.budget.max.as_flattened_mut()[index] = max;
        self.budget.allowance.as_flattened_mut()[index] = allowance;
    }

    /// Moves budget of another arena here, for the quantities of a set: half of what the other does not need. Returns whether
    /// the budget then suffices.
    pub fn take_budget(&mut self, other: &mut Counters, which: QuantitySet) -> bool {
        let others_levels = other.levels();
        let others_max = other.budget.max.as_flattened_mut().iter_mut();
        let all = self.budget.max.as_flattened_mut().iter_mut().zip(others_max).zip(others_levels.as_flattened());
        for (index, ((max, others_max), others_level)) in all.enumerate() {
            if which & (1 << index) != 0 {
                let spare = others_max.saturating_sub(*others_level) / 2;
                *others_max -= spare;
                *max += spare;
            }
        }
        other.set_limits();
        let enough = !self.exceeds_budget();
        if enough {
            self.set_limits();
        }
        enough
    }

    /// Adds the allowance to the budget. Returns whether the budget then suffices; if not, it is unchanged.
    pub fn use_allowance(&mut self) -> bool {
        let mut max = self.budget.max;
        for (max, more) in max.as_flattened_mut().iter_mut().zip(self.budget.allowance.as_flattened()) {
            *max = max.saturating_add(*more);
        }
        let enough = !exceeds(&self.levels(), &max);
        if enough {
            self.budget = Budget { max, allowance: ScopedLevels::default() };
            self.set_limits();
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(counters: &Counters, quantity: Quantity) -> Stat {
        counters.zones[1].stat(quantity, &counters.peaks()[1])
    }

    #[test]
    fn reset_accumulated_resets_only_sums() {
        let mut counters = Counters::default();
        for _ in 0..3 {
            counters.count_alloc(Zone::Large, 4096, 4000);
        }
        counters.count_free(Zone::Large, 4096, 4000);
        counters.count_deferred_free(Zone::Large, 4096, 4000);
        counters.map(Zone::Large, 1 << 20);
        counters.zones[1].set_pinned((3, 300));
        counters.zones[1].set_pinned((1, 500));
        let zone = counters.zones[1];
        assert_eq!(stat(&counters, Quantity::Count), Stat { current: 2, peak: 3, allocated: 3, freed: 1 });
        assert_eq!(stat(&counters, Quantity::Active), Stat { current: 3, peak: 3, allocated: 3, freed: 0 });
        assert_eq!(zone.pinned, Stat { current: 1, peak: 3, allocated: 3, freed: 2 });
        assert_eq!(zone.pinned_bytes, Stat { current: 500, peak: 500, allocated: 500, freed: 0 });
        counters.reset_accumulated();
        assert_eq!(stat(&counters, Quantity::Count), Stat { current: 2, peak: 3, allocated: 0, freed: 0 });
        assert_eq!(stat(&counters, Quantity::Active), Stat { current: 3, peak: 3, allocated: 0, freed: 0 });
        let requested = Stat { current: 12_000, peak: 12_000, allocated: 0, freed: 0 };
        assert_eq!(stat(&counters, Quantity::Requested), requested);
        let reserved = Stat { current: 1 << 20, peak: 1 << 20, allocated: 0, freed: 0 };
        assert_eq!(stat(&counters, Quantity::Reserved), reserved);
        counters.count_deferred_free_done(Zone::Large, 4096, 4000);
        counters.count_free(Zone::Large, 4096, 4000);
        assert_eq!((stat(&counters, Quantity::Count).freed, stat(&counters, Quantity::Active).freed), (1, 2));
        let freed = (stat(&counters, Quantity::Bytes).freed, stat(&counters, Quantity::ActiveBytes).freed);
        assert_eq!(freed, (4096, 8192));
        let requested = Stat { current: 4000, peak: 12_000, allocated: 0, freed: 8000 };
        assert_eq!(stat(&counters, Quantity::Requested), requested);
    }
}
