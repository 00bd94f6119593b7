//! What the allocator of pinned memory counts, by the names of `torch.cuda.host_memory_stats`.

use super::super::stats::Stat;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A quantity that every request and every free changes, from any thread.
#[derive(Debug, Default)]
struct Gauge {
    current: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    const fn new() -> Self {
        Gauge { current: AtomicU64::new(0), peak: AtomicU64::new(0) }
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

/// Blocks in the callers' hands, and freed ones that may still be used; and their bytes. On a line of their own.
#[repr(align(128))]
struct Active {
    count: Gauge,
    bytes: Gauge,
}

static ACTIVE: Active = Active { count: Gauge::new(), bytes: Gauge::new() };

/// A block was given out.
#[inline]
pub fn begin(bytes: u64) {
    ACTIVE.count.add(1);
    ACTIVE.bytes.add(bytes);
}

/// A block may be given out again.
#[inline]
pub fn end(bytes: u64) {
    ACTIVE.count.sub(1);
    ACTIVE.bytes.sub(bytes);
}

/// How long calls of the driver took, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// All of them together.
    pub total: u64,
    /// The longest.
    pub max: u64,
    /// The shortest.
    pub min: u64,
    /// How many there were.
    pub count: u64,
}

impl Times {
    const ZERO: Times = Times { total: 0, max: 0, min: 0, count: 0 };

    fn add(&mut self, time: Duration) {
        let time = time.as_micros() as u64;
        // Since the peaks were reset there may have been none yet.
        self.min = if self.max == 0 && self.min == 0 { time } else { self.min.min(time) };
        self.max = self.max.max(time);
        self.total += time;
        self.count += 1;
    }

    /// The mean; 0 where there was none.
    pub fn average(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// What is had from the driver, which only slow calls change.
#[derive(Debug, Clone, Copy)]
struct Held {
    slabs: Stat,
    bytes: Stat,
    alloc_time: Times,
    free_time: Times,
    allocs: u64,
    frees: u64,
}

const NOTHING: Stat = Stat { current: 0, peak: 0, allocated: 0, freed: 0 };

static HELD: Mutex<Held> = Mutex::new(Held {
    slabs: NOTHING,
    bytes: NOTHING,
    alloc_time: Times::ZERO,
    free_time: Times::ZERO,
    allocs: 0,
    frees: 0,
});

/// The driver gave memory, in so long.
pub fn came(bytes: u64, time: Duration) {
    let mut held = HELD.lock();
    held.slabs.add(1);
    held.bytes.add(bytes);
    held.alloc_time.add(time);
    held.allocs += 1;
}

/// Memory went back to the driver, in so long.
pub fn went(bytes: u64, time: Duration) {
    let mut held = HELD.lock();
    held.slabs.sub(1);
    held.bytes.sub(bytes);
    held.free_time.add(time);
    held.frees += 1;
}

/// Bytes that are had from the driver.
pub fn held() -> u64 {
    HELD.lock().bytes.current
}

/// Bytes in the callers' hands, and freed ones that may still be used.
pub fn active() -> u64 {
    ACTIVE.bytes.current.load(Ordering::Relaxed)
}

/// All figures; the names are those of `torch.cuda.host_memory_stats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Pieces of memory that the driver gave.
    pub allocations: Stat,
    /// Blocks in the callers' hands, and freed ones that may still be used.
    pub active_requests: Stat,
    /// Bytes that the driver gave.
    pub allocated_bytes: Stat,
    /// Bytes of the active blocks, each as large as it was rounded up to.
    pub active_bytes: Stat,
    /// Calls that pinned memory.
    pub num_host_alloc: u64,
    /// Calls that gave it back.
    pub num_host_free: u64,
    /// What the former took, in microseconds.
    pub host_alloc_time: Times,
    /// What the latter took.
    pub host_free_time: Times,
}

/// How many keys [`HostStats::entries`] gives.
pub const KEYS: usize = 28;

impl HostStats {
    /// The keys of `torch.cuda.host_memory_stats` with their values, in the order of their bytes. The key's two parts are
    /// apart, for those who want them nested; a number alone has no second part.
    pub fn entries(&self) -> [(&'static str, &'static str, u64); KEYS] {
        let stat = |key, stat: Stat| {
            [
                (key, "allocated", stat.allocated),
                (key, "current", stat.current),
                (key, "freed", stat.freed),
                (key, "peak", stat.peak),
            ]
        };
        let times = |key, times: Times| {
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

    /// The same as a JSON object: flat, `"active_bytes.current": 0`, or nested, `"active_bytes": {"current": 0}`.
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

/// All figures, with how many blocks were given out and came back, and their bytes, since the sums were reset.
pub fn read(blocks: (u64, u64), bytes: (u64, u64)) -> HostStats {
    let held = *HELD.lock();
    HostStats {
        allocations: held.slabs,
        active_requests: ACTIVE.count.stat(blocks.0, blocks.1),
        allocated_bytes: held.bytes,
        active_bytes: ACTIVE.bytes.stat(bytes.0, bytes.1),
        num_host_alloc: held.allocs,
        num_host_free: held.frees,
        host_alloc_time: held.alloc_time,
        host_free_time: held.free_time,
    }
}

/// Lets all peaks begin again at what is now, and with them, as torch does, the longest and the shortest times.
pub fn reset_peaks() {
    ACTIVE.count.reset_peak();
    ACTIVE.bytes.reset_peak();
    let mut held = HELD.lock();
    held.slabs.reset_peak();
    held.bytes.reset_peak();
    (held.alloc_time.max, held.alloc_time.min) = (0, 0);
    (held.free_time.max, held.free_time.min) = (0, 0);
}

/// Begins the sums anew.
pub fn reset_accumulated() {
    let mut held = HELD.lock();
    held.slabs.reset_accumulated();
    held.bytes.reset_accumulated();
    (held.allocs, held.frees) = (0, 0);
    (held.alloc_time, held.free_time) = (Times::ZERO, Times::ZERO);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_the_most_there_was() {
        let gauge = Gauge::new();
        gauge.add(10);
        gauge.sub(4);
        gauge.add(1);
        assert_eq!(gauge.stat(11, 4), Stat { current: 7, peak: 10, allocated: 11, freed: 4 });
        gauge.reset_peak();
        assert_eq!(gauge.stat(0, 0), Stat { current: 7, peak: 7, allocated: 0, freed: 0 });
    }

    #[test]
    fn times_are_told_in_microseconds() {
        let mut times = Times::ZERO;
        for micros in [30, 10, 21] {
            times.add(Duration::from_nanos(micros * 1000 + 900));
        }
        assert_eq!(times, Times { total: 61, max: 30, min: 10, count: 3 });
        assert_eq!((times.average(), Times::ZERO.average()), (20, 0));
    }

    #[test]
    fn the_keys_are_torchs() {
        let stats = HostStats {
            active_bytes: Stat { current: 1, peak: 2, allocated: 3, freed: 4 },
            num_host_free: 5,
            host_free_time: Times { total: 7, max: 6, min: 1, count: 2 },
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
