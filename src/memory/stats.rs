//! Statistics: what is counted, its peaks and sums, their resets, and their form as torch's dictionaries.
//!
//! [`Statistic`] is what every count has in common. A set of them, defined by `statistics!`, is one too; its keys are
//! the names of its fields. The statistics of a device are defined here, those of pinned memory in
//! [`pinned::stats`](super::pinned::stats). They are plain numbers, which a lock of their owner
//! protects.

use super::{
    block::Zone,
    counters::{ALL, Quantity, ScopedLevels},
};
use std::fmt::Write;

/// A count, or a set of counts.
pub trait Statistic: Sized {
    /// The value before anything is counted.
    const ZERO: Self;

    /// Sets the peaks to the current values.
    fn reset_peak(&mut self);

    /// Resets the sums to 0.
    fn reset_accumulated(&mut self);

    /// Adds the statistics of another part of the same memory. The parts may have peaked at different times, so the sum
    /// of their peaks is an upper bound on the peak of the whole; a caller that knows the true peak must set it
    /// afterwards.
    fn merge(&mut self, other: &Self);

    /// Passes each value to `visit` with its key, which begins with `key`.
    fn visit(&self, key: &str, visit: &mut dyn FnMut(String, i64));

    /// Returns the keys, sorted bytewise as in torch, with their values.
    fn entries(&self) -> Vec<(String, i64)> {
        let mut entries = Vec::new();
        self.visit("", &mut |key, value| entries.push((key, value)));
        entries.sort_unstable();
        entries
    }

    /// Formats the statistics as JSON: one flat object, or objects nested at the dots of the keys.
    fn json(&self, nested: bool) -> String {
        let entries = self.entries();
        let entries: Vec<(&str, i64)> = entries.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let mut text = String::new();
        if nested {
            write_nested(&mut text, &entries);
        } else {
            write_object(&mut text, entries.iter(), |text, (key, value)| write!(text, "\"{key}\": {value}"));
        }
        text
    }
}

fn write_object<T>(
    text: &mut String,
    members: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T) -> std::fmt::Result,
) {
    text.push('{');
    for (index, member) in members.enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        // Writing to a string cannot fail.
        let _ = write(text, member);
    }
    text.push('}');
}

/// Writes entries in sorted key order, so that keys with a common prefix are adjacent.
fn write_nested(text: &mut String, entries: &[(&str, i64)]) {
    let first = |key: &str| key.split_once('.').map_or(key, |(first, _)| first).to_owned();
    let groups = entries.chunk_by(|one, other| first(one.0) == first(other.0));
    write_object(text, groups, |text, group| {
        write!(text, "\"{}\": ", first(group[0].0))?;
        if let [(key, value)] = group
            && !key.contains('.')
        {
            return write!(text, "{value}");
        }
        let inner: Vec<(&str, i64)> =
            group.iter().filter_map(|(key, value)| Some((key.split_once('.')?.1, *value))).collect();
        write_nested(text, &inner);
        Ok(())
    });
}

/// Returns the key of a part of a statistic.
pub fn key_of(key: &str, part: &str) -> String {
    if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") }
}

/// Converts a count to a value, which is signed in torch.
pub fn as_value(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Passes the counts of a statistic to `visit`.
pub fn visit_counts<const N: usize>(key: &str, counts: [(&str, u64); N], visit: &mut dyn FnMut(String, i64)) {
    for (part, count) in counts {
        visit(key_of(key, part), as_value(count));
    }
}

/// Defines a set of statistics: a struct whose fields are statistics and whose keys are the names of the fields.
macro_rules! statistics {
    ($( #[$doc:meta] )* $name:ident { $( $( #[$field_doc:meta] )* $field:ident: $kind:ty, )* }) => {
        $( #[$doc] )*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $( $( #[$field_doc] )* pub $field: $kind, )*
        }

        impl $crate::memory::stats::Statistic for $name {
            const ZERO: Self = $name { $( $field: <$kind as $crate::memory::stats::Statistic>::ZERO, )* };

            fn reset_peak(&mut self) {
                $( $crate::memory::stats::Statistic::reset_peak(&mut self.$field); )*
            }

            fn reset_accumulated(&mut self) {
                $( $crate::memory::stats::Statistic::reset_accumulated(&mut self.$field); )*
            }

            fn merge(&mut self, other: &Self) {
                $( $crate::memory::stats::Statistic::merge(&mut self.$field, &other.$field); )*
            }

            fn visit(&self, key: &str, visit: &mut dyn FnMut(String, i64)) {
                $(
                    let part = $crate::memory::stats::key_of(key, stringify!($field));
                    $crate::memory::stats::Statistic::visit(&self.$field, &part, visit);
                )*
            }
        }
    };
}
pub(super) use statistics;

/// A quantity that increases and decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// The current value.
    pub current: u64,
    /// The maximum value since the peak was reset.
    pub peak: u64,
    /// The sum of all increases, since the sums were reset.
    pub allocated: u64,
    /// The sum of all decreases, since the sums were reset.
    pub freed: u64,
}

impl Stat {
    /// Increases the quantity.
    #[inline]
    pub fn add(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    /// Decreases the quantity, but not below zero: subtracting more would be a bug, and a counter that wraps around
    /// would be less useful than one that stops.
    #[inline]
    pub fn sub(&mut self, amount: u64) {
        debug_assert!(amount <= self.current, "{amount} taken from a count of {}", self.current);
        let amount = amount.min(self.current);
        self.current -= amount;
        self.freed += amount;
    }

    /// Increases or decreases the quantity to a value.
    pub fn set(&mut self, value: u64) {
        self.add(value.saturating_sub(self.current));
        self.sub(self.current - value);
    }

    /// Undoes a decrease. The sums may have been reset since.
    pub fn undo_sub(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.freed = self.freed.saturating_sub(amount);
    }
}

impl Statistic for Stat {
    const ZERO: Self = Stat { current: 0, peak: 0, allocated: 0, freed: 0 };

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        (self.allocated, self.freed) = (0, 0);
    }

    fn merge(&mut self, other: &Stat) {
        self.current += other.current;
        self.peak += other.peak;
        self.allocated += other.allocated;
        self.freed += other.freed;
    }

    fn visit(&self, key: &str, visit: &mut dyn FnMut(String, i64)) {
        let Stat { current, peak, allocated, freed } = *self;
        let counts = [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)];
        visit_counts(key, counts, visit);
    }
}

/// A number of events.
impl Statistic for u64 {
    const ZERO: Self = 0;

    fn reset_peak(&mut self) {}

    fn reset_accumulated(&mut self) {
        *self = 0;
    }

    fn merge(&mut self, other: &u64) {
        *self += other;
    }

    fn visit(&self, key: &str, visit: &mut dyn FnMut(String, i64)) {
        visit(key.to_owned(), as_value(*self));
    }
}

/// A limit, which nothing counts; `None` is -1, as in torch.
impl Statistic for Option<u64> {
    const ZERO: Self = None;

    fn reset_peak(&mut self) {}

    fn reset_accumulated(&mut self) {}

    fn merge(&mut self, _: &Option<u64>) {}

    fn visit(&self, key: &str, visit: &mut dyn FnMut(String, i64)) {
        visit(key.to_owned(), self.map_or(-1, as_value));
    }
}

statistics! {
    /// A quantity in total and separately for small and large blocks.
    ByPool {
        /// The total. It has its own peak, which is at most the sum of the other two peaks.
        all: Stat,
        /// The small blocks.
        small_pool: Stat,
        /// The large blocks.
        large_pool: Stat,
    }
}

impl ByPool {
    fn of(&mut self, zone: Zone) -> &mut Stat {
        match zone {
            Zone::Small => &mut self.small_pool,
            Zone::Large => &mut self.large_pool,
        }
    }

    /// Increases the quantity of a zone and the total.
    #[inline]
    pub fn add(&mut self, zone: Zone, amount: u64) {
        self.all.add(amount);
        self.of(zone).add(amount);
    }

    /// Decreases the quantity of a zone and the total.
    #[inline]
    pub fn sub(&mut self, zone: Zone, amount: u64) {
        self.all.sub(amount);
        self.of(zone).sub(amount);
    }

    /// Undoes a decrease of the quantity of a zone and of the total.
    pub fn undo_sub(&mut self, zone: Zone, amount: u64) {
        self.all.undo_sub(amount);
        self.of(zone).undo_sub(amount);
    }
}

/// The sums of a quantity at their last reset. Later sums are relative to these, so that a reset adds no cost to
/// counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Base {
    /// The sum of all increases.
    pub increased: u64,
    /// The sum of all decreases.
    pub decreased: u64,
}

impl Base {
    /// Returns the values with torch's fields: `total` has the sums of all increases and decreases so far.
    pub fn stat(&self, current: u64, peak: u64, total: Base) -> Stat {
        Stat {
            current,
            peak,
            allocated: total.increased.saturating_sub(self.increased),
            freed: total.decreased.saturating_sub(self.decreased),
        }
    }
}

statistics! {
    /// The statistics of a device; the names are those of `torch.cuda.memory_stats`.
    Stats {
        /// Allocated blocks.
        allocation: ByPool,
        /// Segments and handles from the driver.
        segment: ByPool,
        /// Allocated blocks, and freed ones that a stream may still use.
        active: ByPool,
        /// Free blocks in segments or handles that are partly in use, and so cannot be released.
        inactive_split: ByPool,
        /// Bytes of allocated blocks, after rounding.
        allocated_bytes: ByPool,
        /// Bytes from the driver.
        reserved_bytes: ByPool,
        /// Bytes of the active blocks.
        active_bytes: ByPool,
        /// Bytes of the free blocks that cannot be released.
        inactive_split_bytes: ByPool,
        /// Requested bytes of allocated blocks, before rounding.
        requested_bytes: ByPool,
        /// Allocated blocks of at least `max_split_size`.
        oversize_allocations: Stat,
        /// Segments of at least `max_split_size`.
        oversize_segments: Stat,
        /// Requests that succeeded only after the cache was emptied.
        num_alloc_retries: u64,
        /// Requests that failed because of insufficient memory.
        num_ooms: u64,
        /// Waits for all streams.
        num_sync_all_streams: u64,
        /// Driver calls that allocated memory.
        num_device_alloc: u64,
        /// Driver calls that released memory.
        num_device_free: u64,
        /// Blocks of this size and above are not split; `None` for no limit.
        max_split_size: Option<u64>,
    }
}

impl ByPool {
    /// Returns the statistics of a scope: a zone, or both.
    fn scope(&mut self, scope: usize) -> &mut Stat {
        match scope {
            ALL => &mut self.all,
            scope => self.of(Zone::ALL[scope]),
        }
    }
}

/// Returns one quantity of the statistics.
type QuantityField = fn(&mut Stats) -> &mut ByPool;

impl Stats {
    /// The quantities whose peaks are counted for the whole device.
    const COUNTED: [(Quantity, QuantityField); 7] = [
        (Quantity::Count, |stats| &mut stats.allocation),
        (Quantity::Bytes, |stats| &mut stats.allocated_bytes),
        (Quantity::Requested, |stats| &mut stats.requested_bytes),
        (Quantity::Active, |stats| &mut stats.active),
        (Quantity::ActiveBytes, |stats| &mut stats.active_bytes),
        (Quantity::Segments, |stats| &mut stats.segment),
        (Quantity::Reserved, |stats| &mut stats.reserved_bytes),
    ];

    /// Sets every counted quantity of every scope to what `value` returns.
    pub fn set_counted(&mut self, mut value: impl FnMut(usize, Quantity) -> Stat) {
        for (quantity, field) in Stats::COUNTED {
            for scope in 0..=ALL {
                *field(self).scope(scope) = value(scope, quantity);
            }
        }
    }

    /// Sets the current values and the peaks of the counted quantities.
    pub fn set_levels_and_peaks(&mut self, levels: &ScopedLevels, peaks: &ScopedLevels) {
        for (quantity, field) in Stats::COUNTED {
            for scope in 0..=ALL {
                let stat = field(self).scope(scope);
                (stat.current, stat.peak) = (levels[scope][quantity as usize], peaks[scope][quantity as usize]);
            }
        }
    }

    /// Returns the current values of the counted quantities.
    pub fn levels(&mut self) -> ScopedLevels {
        let mut levels = ScopedLevels::default();
        if self.allocation.all.current == 0 && self.segment.all.current == 0 {
            return levels;
        }
        for (quantity, field) in Stats::COUNTED {
            for (scope, levels) in levels.iter_mut().enumerate() {
                levels[quantity as usize] = field(self).scope(scope).current;
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// The number of keys of the statistics of a device.
    const KEYS: usize = 122;

    fn each(stats: &mut Stats) -> Vec<&mut Stat> {
        let pools = [
            &mut stats.allocation,
            &mut stats.segment,
            &mut stats.active,
            &mut stats.inactive_split,
            &mut stats.allocated_bytes,
            &mut stats.reserved_bytes,
            &mut stats.active_bytes,
            &mut stats.inactive_split_bytes,
            &mut stats.requested_bytes,
        ];
        let pools = pools.into_iter().flat_map(|pool| [&mut pool.all, &mut pool.small_pool, &mut pool.large_pool]);
        pools.chain([&mut stats.oversize_allocations, &mut stats.oversize_segments]).collect()
    }

    #[test]
    fn peak_is_the_maximum() {
        let mut stat = Stat::default();
        stat.add(10);
        stat.sub(4);
        stat.add(1);
        assert_eq!(stat, Stat { current: 7, peak: 10, allocated: 11, freed: 4 });
        stat.reset_peak();
        stat.reset_accumulated();
        assert_eq!(stat, Stat { current: 7, peak: 7, allocated: 0, freed: 0 });
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "3 taken from a count of 2"))]
    fn a_count_stops_at_zero() {
        let mut stat = Stat::default();
        stat.add(2);
        stat.sub(3);
        assert_eq!(stat, Stat { current: 0, peak: 2, allocated: 2, freed: 2 });
    }

    proptest! {
        #[test]
        fn counts_match_their_history(
            steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0u64..1 << 40), 1..100),
        ) {
            let mut counts = ByPool::default();
            let mut history = vec![0];
            for (add, small, amount) in steps {
                let class = if small { Zone::Small } else { Zone::Large };
                if add {
                    counts.add(class, amount);
                } else {
                    let left = if small { counts.small_pool.current } else { counts.large_pool.current };
                    counts.sub(class, amount.min(left));
                }
                history.push(counts.all.current);
            }
            prop_assert_eq!(Some(&counts.all.peak), history.iter().max());
            prop_assert_eq!(counts.all.allocated - counts.all.freed, counts.all.current);
            prop_assert_eq!(counts.small_pool.current + counts.large_pool.current, counts.all.current);
            prop_assert!(counts.all.peak <= counts.small_pool.peak + counts.large_pool.peak);
            let mut both = counts;
            both.merge(&counts);
            prop_assert_eq!(both.large_pool.peak, 2 * counts.large_pool.peak);
            prop_assert_eq!(both.all.current, 2 * counts.all.current);
        }
    }

    #[test]
    fn merging_adds_every_number() {
        let mut part = Stats { num_device_free: 4, max_split_size: Some(9), ..Stats::default() };
        for stat in each(&mut part) {
            *stat = Stat { current: 1, peak: 2, allocated: 3, freed: 2 };
        }
        let mut whole = Stats { max_split_size: Some(7), ..Stats::default() };
        whole.merge(&part);
        whole.merge(&part);
        assert!(each(&mut whole).into_iter().all(|stat| *stat == Stat { current: 2, peak: 4, allocated: 6, freed: 4 }));
        assert_eq!((whole.num_device_free, whole.max_split_size), (8, Some(7)));
    }

    #[test]
    fn keys_match_torch() {
        let mut stats = Stats { num_ooms: 3, ..Stats::default() };
        stats.allocated_bytes.add(Zone::Small, 512);
        stats.requested_bytes.add(Zone::Small, u64::MAX);
        let entries = stats.entries();
        assert_eq!((entries.len(), stats.entries().len()), (KEYS, KEYS));
        assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0));
        // The keys of torch 2.11, by its own rule.
        let mut keys: Vec<String> = Vec::new();
        for quantity in [
            "allocation",
            "segment",
            "active",
            "inactive_split",
            "allocated_bytes",
            "reserved_bytes",
            "active_bytes",
            "inactive_split_bytes",
            "requested_bytes",
        ] {
            for pool in ["all", "small_pool", "large_pool"] {
                keys.extend(["current", "peak", "allocated", "freed"].map(|sum| format!("{quantity}.{pool}.{sum}")));
            }
        }
        for quantity in ["oversize_allocations", "oversize_segments"] {
            keys.extend(["current", "peak", "allocated", "freed"].map(|sum| format!("{quantity}.{sum}")));
        }
        keys.extend(["num_alloc_retries", "num_ooms", "max_split_size"].map(str::to_owned));
        keys.extend(["num_sync_all_streams", "num_device_alloc", "num_device_free"].map(str::to_owned));
        keys.sort_unstable();
        assert!(entries.iter().map(|(key, _)| key.as_str()).eq(keys.iter().map(String::as_str)));
        let values: HashMap<_, _> = entries.into_iter().collect();
        for (key, value) in [
            ("allocated_bytes.all.current", 512),
            ("allocated_bytes.small_pool.peak", 512),
            ("allocated_bytes.large_pool.peak", 0),
            ("requested_bytes.all.current", i64::MAX),
            ("oversize_segments.freed", 0),
            ("num_ooms", 3),
            ("num_sync_all_streams", 0),
            ("max_split_size", -1),
        ] {
            assert_eq!(values.get(key), Some(&value), "{key}");
        }
    }

    #[test]
    fn stats_are_formatted_as_json() {
        let mut stats = Stats { num_ooms: 2, ..Stats::default() };
        stats.active.add(Zone::Large, 7);
        let flat = stats.json(false);
        assert!(flat.starts_with("{\"active.all.allocated\": 7, \"active.all.current\": 7, "), "{flat}");
        assert!(flat.ends_with("\"segment.small_pool.peak\": 0}"), "{flat}");
        assert_eq!((flat.matches(": ").count(), flat.matches(", ").count()), (KEYS, KEYS - 1));
        let nested = stats.json(true);
        let begin =
            "{\"active\": {\"all\": {\"allocated\": 7, \"current\": 7, \"freed\": 0, \"peak\": 7}, \"large_pool\": {";
        assert!(nested.starts_with(begin), "{nested}");
        assert!(nested.contains("}}, \"max_split_size\": -1, \"num_alloc_retries\": 0, "), "{nested}");
        assert_eq!(nested.matches('{').count(), 1 + 9 * 4 + 2);
        assert_eq!(nested.matches('}').count(), nested.matches('{').count());
        // One value for each key and one object for each group.
        assert_eq!(nested.matches(": ").count(), KEYS + 9 * 4 + 2);
    }
}
