//! Statistics of the allocator of pinned memory, named as in `torch.cuda.host_memory_stats`.

use super::super::stats::Stat;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A current value and its peak, which allocations and frees update from any thread.
#[derive(Debug, Default)]
struct AtomicStat {
    current: AtomicU64,
    peak: AtomicU64,
}

impl AtomicStat {
    const fn new() -> Self {
        AtomicStat { current: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    #[inline]
    fn add(&self, amount: u64) {
        let now = self.current.fetch_add(amount, Ordering::Relaxed) + amount;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    #[inline]
    fn sub(&self, amount: u64) {
        self.current.fetch_sub(amount, Ordering::Relaxed);
    }

    fn stat(&self, allocated: u64, freed: u64) -> Stat {
        let current = self.current.load(Ordering::Relaxed);
        Stat { current, peak: self.peak.load(Ordering::Relaxed).max(current), allocated, freed }
    }

    fn reset_peak(&self) {
        self.peak.store(self.current.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Live blocks and blocks whose free is deferred: their number and their bytes. Aligned so that no other data shares
/// their cache lines.
#[repr(align(128))]
struct Active {
    count: AtomicStat,
    bytes: AtomicStat,
}

static ACTIVE: Active = Active { count: AtomicStat::new(), bytes: AtomicStat::new() };

/// Counts an allocated block.
#[inline]
pub fn record_alloc(bytes: u64) {
    ACTIVE.count.add(1);
    ACTIVE.bytes.add(bytes);
}

/// Counts a block that is free again.
#[inline]
pub fn record_free(bytes: u64) {
    ACTIVE.count.sub(1);
    ACTIVE.bytes.sub(bytes);
}

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
    const ZERO: DurationStats = DurationStats { total: 0, max: 0, min: 0, count: 0 };

    fn add(&mut self, time: Duration) {
        let time = time.as_micros() as u64;
        // After a reset of the peaks, the first duration sets the minimum.
        self.min = if self.max == 0 && self.min == 0 { time } else { self.min.min(time) };
        self.max = self.max.max(time);
        self.total += time;
        self.count += 1;
    }

    /// Returns the mean; 0 without calls.
    pub fn average(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// Statistics of the memory from the driver, which only slow calls change.
#[derive(Debug, Clone, Copy)]
struct DriverStats {
    slabs: Stat,
    bytes: Stat,
    alloc_time: DurationStats,
    free_time: DurationStats,
    allocs: u64,
    frees: u64,
}

const ZERO: Stat = Stat { current: 0, peak: 0, allocated: 0, freed: 0 };

static DRIVER_STATS: Mutex<DriverStats> = Mutex::new(DriverStats {
    slabs: ZERO,
    bytes: ZERO,
    alloc_time: DurationStats::ZERO,
    free_time: DurationStats::ZERO,
    allocs: 0,
    frees: 0,
});

/// Counts an allocation by the driver and its duration.
pub fn record_driver_alloc(bytes: u64, time: Duration) {
    let mut driver = DRIVER_STATS.lock();
    driver.slabs.add(1);
    driver.bytes.add(bytes);
    driver.alloc_time.add(time);
    driver.allocs += 1;
}

/// Counts memory that was released to the driver, and the duration of the call.
pub fn record_driver_free(bytes: u64, time: Duration) {
    let mut driver = DRIVER_STATS.lock();
    driver.slabs.sub(1);
    driver.bytes.sub(bytes);
    driver.free_time.add(time);
    driver.frees += 1;
}

/// Returns the bytes allocated by the driver.
pub fn reserved_bytes() -> u64 {
    DRIVER_STATS.lock().bytes.current
}

/// Returns the bytes of live blocks and of blocks whose free is deferred.
pub fn active_bytes() -> u64 {
    ACTIVE.bytes.current.load(Ordering::Relaxed)
}

/// All statistics; the names are those of `torch.cuda.host_memory_stats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Allocations by the driver.
    pub allocations: Stat,
    /// Live blocks, and blocks whose free is deferred.
    pub active_requests: Stat,
    /// Bytes allocated by the driver.
    pub allocated_bytes: Stat,
    /// Bytes of the active blocks, with their rounded sizes.
    pub active_bytes: Stat,
    /// Number of driver calls that pinned memory.
    pub num_host_alloc: u64,
    /// Number of driver calls that released it.
    pub num_host_free: u64,
    /// Durations of the calls that pinned memory.
    pub host_alloc_time: DurationStats,
    /// Durations of the calls that released it.
    pub host_free_time: DurationStats,
}

/// The number of entries of [`HostStats::entries`].
pub const KEYS: usize = 28;

impl HostStats {
    /// Returns the keys of `torch.cuda.host_memory_stats` with their values, in byte order. A key has two parts,
    /// separate for nested output; a plain number has an empty second part.
    pub fn entries(&self) -> [(&'static str, &'static str, u64); KEYS] {
        let stat = |key, stat: Stat| {
            [
                (key, "allocated", stat.allocated),
                (key, "current", stat.current),
                (key, "freed", stat.freed),
                (key, "peak", stat.peak),
            ]
        };
        let times = |key, times: DurationStats| {
            [
                (key, "avg", times.average()),
                (key, "count", times.count),
                (key, "max", times.max),
                (key, "min", times.min),
                (key, "total", times.total),
            ]
        };
        let mut all = stat("active_bytes", self.active_bytes)
            .into_iter()
            .chain(stat("active_requests", self.active_requests))
            .chain(stat("allocated_bytes", self.allocated_bytes))
            .chain(stat("allocations", self.allocations))
            .chain(times("host_alloc_time", self.host_alloc_time))
            .chain(times("host_free_time", self.host_free_time))
            .chain([("num_host_alloc", "", self.num_host_alloc), ("num_host_free", "", self.num_host_free)]);
        std::array::from_fn(|_| all.next().unwrap_or_default())
    }

    /// Returns the statistics as a JSON object: flat, `"active_bytes.current": 0`, or nested, `"active_bytes":
    /// {"current": 0}`.
    pub fn json(&self, nested: bool) -> String {
        let mut text = String::from("{");
        let mut open = "";
        for (index, (key, part, value)) in self.entries().into_iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match (nested, part) {
                (true, "") => {
                    let end = if open.is_empty() { "" } else { "}" };
                    text += &format!("{end}{comma}\"{key}\": {value}");
                    open = "";
                }
                (true, _) if key == open => text += &format!(", \"{part}\": {value}"),
                (true, _) => {
                    let end = if open.is_empty() { "" } else { "}" };
                    text += &format!("{end}{comma}\"{key}\": {{\"{part}\": {value}");
                    open = key;
                }
                (false, "") => text += &format!("{comma}\"{key}\": {value}"),
                (false, _) => text += &format!("{comma}\"{key}.{part}\": {value}"),
            }
        }
        text + if open.is_empty() { "}" } else { "}}" }
    }
}

/// Returns all statistics. `blocks` and `bytes` are what was allocated and freed since the counters were reset.
pub fn read(blocks: (u64, u64), bytes: (u64, u64)) -> HostStats {
    let driver = *DRIVER_STATS.lock();
    HostStats {
        allocations: driver.slabs,
        active_requests: ACTIVE.count.stat(blocks.0, blocks.1),
        allocated_bytes: driver.bytes,
        active_bytes: ACTIVE.bytes.stat(bytes.0, bytes.1),
        num_host_alloc: driver.allocs,
        num_host_free: driver.frees,
        host_alloc_time: driver.alloc_time,
        host_free_time: driver.free_time,
    }
}

/// Resets all peaks to the current values, and the longest and the shortest durations, as torch does.
pub fn reset_peaks() {
    ACTIVE.count.reset_peak();
    ACTIVE.bytes.reset_peak();
    let mut driver = DRIVER_STATS.lock();
    driver.slabs.reset_peak();
    driver.bytes.reset_peak();
    (driver.alloc_time.max, driver.alloc_time.min) = (0, 0);
    (driver.free_time.max, driver.free_time.min) = (0, 0);
}

/// Resets the accumulated counters.
pub fn reset_accumulated() {
    let mut driver = DRIVER_STATS.lock();
    driver.slabs.reset_accumulated();
    driver.bytes.reset_accumulated();
    (driver.allocs, driver.frees) = (0, 0);
    (driver.alloc_time, driver.free_time) = (DurationStats::ZERO, DurationStats::ZERO);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_the_maximum() {
        let stat = AtomicStat::new();
        stat.add(10);
        stat.sub(4);
        stat.add(1);
        assert_eq!(stat.stat(11, 4), Stat { current: 7, peak: 10, allocated: 11, freed: 4 });
        stat.reset_peak();
        assert_eq!(stat.stat(0, 0), Stat { current: 7, peak: 7, allocated: 0, freed: 0 });
    }

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
        assert!(entries.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
        for entry in [
            ("active_bytes", "allocated", 3),
            ("active_bytes", "peak", 2),
            ("host_free_time", "avg", 3),
            ("host_alloc_time", "count", 0),
            ("num_host_free", "", 5),
        ] {
            assert!(entries.contains(&entry), "{entry:?}");
        }
        let (flat, nested) = (stats.json(false), stats.json(true));
        assert!(flat.starts_with("{\"active_bytes.allocated\": 3, \"active_bytes.current\": 1, "), "{flat}");
        assert!(flat.ends_with(", \"num_host_alloc\": 0, \"num_host_free\": 5}"), "{flat}");
        assert_eq!(flat.matches("\": ").count(), KEYS);
        assert!(
            nested.starts_with("{\"active_bytes\": {\"allocated\": 3, \"current\": 1, \"freed\": 4, \"peak\": 2}, "),
            "{nested}"
        );
        assert!(nested.ends_with("\"total\": 7}, \"num_host_alloc\": 0, \"num_host_free\": 5}"), "{nested}");
        assert_eq!(nested.matches('{').count(), nested.matches('}').count());
    }
}
