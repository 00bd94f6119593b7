//! The statistics of an allocator for a device, with torch's names. These are plain numbers; the allocator's lock
//! protects them.

use super::block::Zone;

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

    /// Sets the peak to the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// Resets the sums to 0.
    pub fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }

    /// Adds the statistics of another part of the same device. The parts may have peaked at different times, so the sum
    /// of their peaks is an upper bound on the peak of the whole.
    pub fn merge(&mut self, other: &Stat) {
        self.current += other.current;
        self.peak += other.peak;
        self.allocated += other.allocated;
        self.freed += other.freed;
    }
}

/// A quantity in total and separately for small and large blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByPool {
    /// The total. It has its own peak, which is at most the sum of the other two peaks.
    pub all: Stat,
    /// The small blocks.
    pub small: Stat,
    /// The large blocks.
    pub large: Stat,
}

impl ByPool {
    fn of(&mut self, zone: Zone) -> &mut Stat {
        match zone {
            Zone::Small => &mut self.small,
            Zone::Large => &mut self.large,
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

    fn each(&mut self) -> [&mut Stat; 3] {
        [&mut self.all, &mut self.small, &mut self.large]
    }

    /// Merges each quantity as [`Stat::merge`] does.
    pub fn merge(&mut self, other: &ByPool) {
        self.all.merge(&other.all);
        self.small.merge(&other.small);
        self.large.merge(&other.large);
    }
}

/// Appends the four entries of a quantity.
macro_rules! push {
    ($entries:ident, $stat:expr, $key:expr) => {
        $entries.extend([
            (concat!($key, ".current"), as_value($stat.current)),
            (concat!($key, ".peak"), as_value($stat.peak)),
            (concat!($key, ".allocated"), as_value($stat.allocated)),
            (concat!($key, ".freed"), as_value($stat.freed)),
        ]);
    };
}

fn as_value(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

macro_rules! stats {
    (
        by pool { $( #[$pool_doc:meta] $pool:ident, )* }
        whole { $( #[$whole_doc:meta] $whole:ident, )* }
        counters { $( #[$counter_doc:meta] $counter:ident, )* }
    ) => {
        /// The statistics of a device; the names are those of `torch.cuda.memory_stats`.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $( #[$pool_doc] pub $pool: ByPool, )*
            $( #[$whole_doc] pub $whole: Stat, )*
            $( #[$counter_doc] pub $counter: u64, )*
            /// Blocks of this size and above are not split; `None` for no limit.
            pub max_split_size: Option<u64>,
        }

        impl Stats {
            fn each(&mut self) -> impl Iterator<Item = &mut Stat> {
                let pools = [$( self.$pool.each() ),*];
                pools.into_iter().flatten().chain([$( &mut self.$whole ),*])
            }

            /// Sets all peaks to the current values.
            pub fn reset_peaks(&mut self) {
                self.each().for_each(Stat::reset_peak);
            }

            /// Resets all sums and counters to 0.
            pub fn reset_accumulated(&mut self) {
                self.each().for_each(Stat::reset_accumulated);
                $( self.$counter = 0; )*
            }

            /// Adds the statistics of another part of the same device, as [`Stat::merge`] does. A caller that knows the
            /// true peak of the whole must set it afterwards. Keeps `max_split_size`.
            pub fn merge(&mut self, other: &Stats) {
                $( self.$pool.merge(&other.$pool); )*
                $( self.$whole.merge(&other.$whole); )*
                $( self.$counter += other.$counter; )*
            }

            /// Returns the keys of `torch.cuda.memory_stats`, sorted bytewise as there, with their values. No limit on
            /// splitting is -1, as there.
            pub fn entries(&self) -> impl ExactSizeIterator<Item = (&'static str, i64)> {
                let mut entries: Vec<(&'static str, i64)> = Vec::with_capacity(KEYS);
                $(
                    push!(entries, self.$pool.all, concat!(stringify!($pool), ".all"));
                    push!(entries, self.$pool.small, concat!(stringify!($pool), ".small_pool"));
                    push!(entries, self.$pool.large, concat!(stringify!($pool), ".large_pool"));
                )*
                $( push!(entries, self.$whole, stringify!($whole)); )*
                $( entries.push((stringify!($counter), as_value(self.$counter))); )*
                entries.push(("max_split_size", self.max_split_size.map_or(-1, as_value)));
                entries.sort_unstable();
                entries.into_iter()
            }
        }
    };
}

/// The number of entries of [`Stats::entries`].
pub const KEYS: usize = 122;

stats! {
    by pool {
        /// Allocated blocks.
        allocation,
        /// Segments and handles from the driver.
        segment,
        /// Allocated blocks, and freed ones that a stream may still use.
        active,
        /// Free blocks in segments or handles that are partly in use, and so cannot be released.
        inactive_split,
        /// Bytes of allocated blocks, after rounding.
        allocated_bytes,
        /// Bytes from the driver.
        reserved_bytes,
        /// Bytes of the active blocks.
        active_bytes,
        /// Bytes of the free blocks that cannot be released.
        inactive_split_bytes,
        /// Requested bytes of allocated blocks, before rounding.
        requested_bytes,
    }
    whole {
        /// Allocated blocks of at least `max_split_size`.
        oversize_allocations,
        /// Segments of at least `max_split_size`.
        oversize_segments,
    }
    counters {
        /// Requests that succeeded only after the cache was emptied.
        num_alloc_retries,
        /// Requests that failed because of insufficient memory.
        num_ooms,
        /// Waits for all streams.
        num_sync_all_streams,
        /// Driver calls that allocated memory.
        num_device_alloc,
        /// Driver calls that released memory.
        num_device_free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

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
                    let left = if small { counts.small.current } else { counts.large.current };
                    counts.sub(class, amount.min(left));
                }
                history.push(counts.all.current);
            }
            prop_assert_eq!(Some(&counts.all.peak), history.iter().max());
            prop_assert_eq!(counts.all.allocated - counts.all.freed, counts.all.current);
            prop_assert_eq!(counts.small.current + counts.large.current, counts.all.current);
            prop_assert!(counts.all.peak <= counts.small.peak + counts.large.peak);
            let mut both = counts;
            both.merge(&counts);
            prop_assert_eq!(both.large.peak, 2 * counts.large.peak);
            prop_assert_eq!(both.all.current, 2 * counts.all.current);
        }
    }

    #[test]
    fn merging_adds_every_number() {
        let mut part = Stats { num_device_free: 4, max_split_size: Some(9), ..Stats::default() };
        part.each().for_each(|stat| *stat = Stat { current: 1, peak: 2, allocated: 3, freed: 2 });
        let mut whole = Stats { max_split_size: Some(7), ..Stats::default() };
        whole.merge(&part);
        whole.merge(&part);
        assert!(whole.each().all(|stat| *stat == Stat { current: 2, peak: 4, allocated: 6, freed: 4 }));
        assert_eq!((whole.num_device_free, whole.max_split_size), (8, Some(7)));
    }

    #[test]
    fn keys_match_torch() {
        let mut stats = Stats { num_ooms: 3, ..Stats::default() };
        stats.allocated_bytes.add(Zone::Small, 512);
        stats.requested_bytes.add(Zone::Small, u64::MAX);
        let entries: Vec<_> = stats.entries().collect();
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
        assert!(entries.iter().map(|(key, _)| *key).eq(keys.iter().map(String::as_str)));
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
}
