//! Statistics of the allocator of pinned memory, named as in `torch.cuda.host_memory_stats`.

use super::{
    super::stats::{Stat, Statistic, statistics, visit_counts},
    shards,
};
use parking_lot::Mutex;
use std::time::Duration;

/// Durations of driver calls, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurationStats {
    /// The sum.
    pub total: u64,
    /// The longest.
    pub max: u64,
    /// The shortest.
    pub min: u64,
    /// The number of calls.
    pub count: u64,
}

impl DurationStats {
    /// Counts a call.
    pub fn add(&mut self, time: Duration) {
        let time = time.as_micros() as u64;
        self.merge(&DurationStats { total: time, max: time, min: time, count: 1 });
    }

    /// Returns the mean; 0 without calls.
    pub fn average(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

impl Statistic for DurationStats {
    const ZERO: Self = DurationStats { total: 0, max: 0, min: 0, count: 0 };

    fn reset_peak(&mut self) {
        (self.max, self.min) = (0, 0);
    }

    fn reset_accumulated(&mut self) {
        *self = Self::ZERO;
    }

    fn merge(&mut self, other: &DurationStats) {
        // After a reset of the peaks, the first duration sets the minimum.
        self.min = if self.max == 0 && self.min == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.total += other.total;
        self.count += other.count;
    }

    fn visit(&self, key: &str, visit: &mut dyn FnMut(String, i64)) {
        let DurationStats { total, max, min, count } = *self;
        let counts = [("avg", self.average()), ("count", count), ("max", max), ("min", min), ("total", total)];
        visit_counts(key, counts, visit);
    }
}

statistics! {
    /// All statistics; the names are those of `torch.cuda.host_memory_stats`.
    HostStats {
        /// Allocations by the driver.
        allocations: Stat,
        /// Live blocks, and blocks whose free is deferred.
        active_requests: Stat,
        /// Bytes allocated by the driver.
        allocated_bytes: Stat,
        /// Bytes of the active blocks, with their rounded sizes.
        active_bytes: Stat,
        /// Number of driver calls that pinned memory.
        num_host_alloc: u64,
        /// Number of driver calls that released it.
        num_host_free: u64,
        /// Durations of the calls that pinned memory.
        host_alloc_time: DurationStats,
        /// Durations of the calls that released it.
        host_free_time: DurationStats,
    }
}

/// The statistics that only slow calls change; [`shards`] have the others.
static DRIVER_STATS: Mutex<HostStats> = Mutex::new(HostStats::ZERO);

/// Counts an allocation by the driver and its duration.
pub fn record_driver_alloc(bytes: u64, time: Duration) {
    let mut driver = DRIVER_STATS.lock();
    driver.allocations.add(1);
    driver.allocated_bytes.add(bytes);
    driver.host_alloc_time.add(time);
    driver.num_host_alloc += 1;
}

/// Counts memory that was released to the driver, and the duration of the call.
pub fn record_driver_free(bytes: u64, time: Duration) {
    let mut driver = DRIVER_STATS.lock();
    driver.allocations.sub(1);
    driver.allocated_bytes.sub(bytes);
    driver.host_free_time.add(time);
    driver.num_host_free += 1;
}

/// Returns the bytes allocated by the driver.
pub fn reserved_bytes() -> u64 {
    DRIVER_STATS.lock().allocated_bytes.current
}

/// Returns all statistics.
pub fn read() -> HostStats {
    let [active_requests, active_bytes] = shards::stats();
    HostStats { active_requests, active_bytes, ..*DRIVER_STATS.lock() }
}

/// Resets all peaks to the current values, and the longest and the shortest durations, as torch does.
pub fn reset_peaks() {
    shards::reset_peaks();
    DRIVER_STATS.lock().reset_peak();
}

/// Resets the accumulated counters.
pub fn reset_accumulated() {
    shards::reset_accumulated();
    DRIVER_STATS.lock().reset_accumulated();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_in_microseconds() {
        let mut times = DurationStats::ZERO;
        for micros in [30, 10, 21] {
            times.add(Duration::from_nanos(micros * 1000 + 900));
        }
        assert_eq!(times, DurationStats { total: 61, max: 30, min: 10, count: 3 });
        assert_eq!((times.average(), DurationStats::ZERO.average()), (20, 0));
    }

    #[test]
    fn keys_match_torch() {
        let stats = HostStats {
            active_bytes: Stat { current: 1, peak: 2, allocated: 3, freed: 4 },
            num_host_free: 5,
            host_free_time: DurationStats { total: 7, max: 6, min: 1, count: 2 },
            ..HostStats::default()
        };
        let entries = stats.entries();
        assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (key, value) in [
            ("active_bytes.allocated", 3),
            ("active_bytes.peak", 2),
            ("host_free_time.avg", 3),
            ("host_alloc_time.count", 0),
            ("num_host_free", 5),
        ] {
            assert!(entries.contains(&(key.to_owned(), value)), "{key}");
        }
        let (flat, nested) = (stats.json(false), stats.json(true));
        assert!(flat.starts_with("{\"active_bytes.allocated\": 3, \"active_bytes.current\": 1, "), "{flat}");
        assert!(flat.ends_with(", \"num_host_alloc\": 0, \"num_host_free\": 5}"), "{flat}");
        assert_eq!(flat.matches("\": ").count(), 28);
        assert!(
            nested.starts_with("{\"active_bytes\": {\"allocated\": 3, \"current\": 1, \"freed\": 4, \"peak\": 2}, "),
            "{nested}"
        );
        assert!(nested.ends_with("\"total\": 7}, \"num_host_alloc\": 0, \"num_host_free\": 5}"), "{nested}");
        assert_eq!(nested.matches('{').count(), nested.matches('}').count());
    }
}
