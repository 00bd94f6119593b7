//! The counters of an arena, updated by a few additions for each operation. The arena's lock protects them.

use super::{
    block::Zone,
    stats::{Base, Stat, Statistic},
};

/// A quantity that changes with every request, with as few stores as possible. The current value is the difference of
/// the sums, and the peak is written only when it increases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunningCount {
    increased: u64,
    decreased: u64,
    peak: u64,
}

impl RunningCount {
    /// Returns the current value.
    #[inline]
    pub fn current(&self) -> u64 {
        self.increased - self.decreased
    }

    #[inline]
    fn add(&mut self, amount: u64) {
        self.increased += amount;
        let current = self.current();
        if current > self.peak {
            self.peak = current;
        }
    }

    #[inline]
    fn sub(&mut self, amount: u64) {
        self.decreased += amount;
    }

    /// Returns the values with torch's fields, with the sums counted from a base.
    fn stat(&self, base: &Base) -> Stat {
        base.stat(self.current(), self.peak, self.total())
    }

    fn total(&self) -> Base {
        Base { increased: self.increased, decreased: self.decreased }
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
    /// Requested bytes of allocated blocks.
    pub requested: RunningCount,
    /// Freed blocks that wait for other streams.
    pub waiting: Stat,
    /// Bytes of freed blocks that wait for other streams.
    pub waiting_bytes: Stat,
    /// The peak of allocated and waiting blocks, updated only while blocks wait.
    active_peak: u64,
    /// The peak of the bytes of those blocks.
    active_bytes_peak: u64,
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
    #[cold]
    fn note_active(&mut self) {
        self.active_peak = self.active_peak.max(self.count.current() + self.waiting.current);
        self.active_bytes_peak = self.active_bytes_peak.max(self.bytes.current() + self.waiting_bytes.current);
    }

    /// Returns the allocated blocks.
    pub fn live(&self) -> Stat {
        self.count.stat(&self.bases.count)
    }

    /// Returns the bytes of the allocated blocks.
    pub fn live_bytes(&self) -> Stat {
        self.bytes.stat(&self.bases.bytes)
    }

    /// Returns the requested bytes of the allocated blocks.
    pub fn requested(&self) -> Stat {
        self.requested.stat(&self.bases.requested)
    }

    /// Returns the allocated and waiting blocks: a freed block stays active while it waits.
    pub fn active(&self) -> Stat {
        active(&self.live(), &self.waiting, self.active_peak, self.bases.waiting)
    }

    /// Returns the bytes of the allocated and waiting blocks.
    pub fn active_bytes(&self) -> Stat {
        active(&self.live_bytes(), &self.waiting_bytes, self.active_bytes_peak, self.bases.waiting_bytes)
    }

    /// Sets the number and bytes of free blocks that cannot be released now.
    pub fn set_pinned(&mut self, (count, bytes): (u64, u64)) {
        for (stat, now) in [(&mut self.pinned, count), (&mut self.pinned_bytes, bytes)] {
            stat.add(now.saturating_sub(stat.current));
            stat.sub(stat.current - now);
        }
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
        for flow in [&mut self.count, &mut self.bytes, &mut self.requested] {
            flow.peak = flow.current();
        }
        let held = [&mut self.segments, &mut self.reserved, &mut self.pinned, &mut self.pinned_bytes];
        [&mut self.waiting, &mut self.waiting_bytes].into_iter().chain(held).for_each(Stat::reset_peak);
        (self.active_peak, self.active_bytes_peak) = (0, 0);
    }
}

fn active(live: &Stat, waiting: &Stat, peak: u64, waited: u64) -> Stat {
    let current = live.current + waiting.current;
    Stat {
        current,
        peak: live.peak.max(peak).max(current),
        allocated: live.allocated,
        freed: live.freed + waited - waiting.current,
    }
}

/// The counters of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The counters by zone.
    pub zones: [ZoneCounters; 2],
    /// The allocated bytes of both zones.
    pub live: u64,
    /// The peak of `live` since the last reset.
    pub live_peak: u64,
    /// The value of `live` up to which the device need not be notified; see [`peak_budget`](super::peak_budget).
    pub live_budget: u64,
}

impl Counters {
    /// Counts an allocation.
    #[inline]
    pub fn count_alloc(&mut self, zone: Zone, bytes: u64, requested: u64) {
        let counters = &mut self.zones[zone as usize];
        counters.count.add(1);
        counters.bytes.add(bytes);
        counters.requested.add(requested);
        if counters.waiting.current > 0 {
            counters.note_active();
        }
        self.live += bytes;
        if self.live > self.live_peak {
            self.live_peak = self.live;
        }
    }

    /// Counts a free.
    #[inline]
    pub fn count_free(&mut self, zone: Zone, bytes: u64, requested: u64) {
        let counters = &mut self.zones[zone as usize];
        counters.count.sub(1);
        counters.bytes.sub(bytes);
        counters.requested.sub(requested);
        self.live -= bytes;
    }

    /// Counts a freed block that waits for other streams.
    pub fn count_deferred_free(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].waiting.add(1);
        self.zones[zone as usize].waiting_bytes.add(bytes);
    }

    /// Counts the end of such a wait.
    pub fn count_deferred_free_done(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].waiting.sub(1);
        self.zones[zone as usize].waiting_bytes.sub(bytes);
    }

    /// Counts a mapped handle or segment.
    pub fn map(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].segments.add(1);
        self.zones[zone as usize].reserved.add(bytes);
    }

    /// Counts a handle or segment that was released or moved.
    pub fn unmap(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].segments.sub(1);
        self.zones[zone as usize].reserved.sub(bytes);
    }

    /// Resets all peaks.
    pub fn reset_peaks(&mut self) {
        for zone in &mut self.zones {
            zone.reset_peaks();
        }
        self.live_peak = self.live;
    }

    /// Resets all sums.
    pub fn reset_accumulated(&mut self) {
        self.zones.iter_mut().for_each(ZoneCounters::reset_accumulated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_accumulated_resets_only_sums() {
        let mut counters = Counters::default();
        for _ in 0..3 {
            counters.count_alloc(Zone::Large, 4096, 4000);
        }
        counters.count_free(Zone::Large, 4096, 4000);
        counters.count_deferred_free(Zone::Large, 4096);
        counters.map(Zone::Large, 1 << 20);
        counters.zones[1].set_pinned((3, 300));
        counters.zones[1].set_pinned((1, 500));
        let zone = counters.zones[1];
        assert_eq!(zone.live(), Stat { current: 2, peak: 3, allocated: 3, freed: 1 });
        assert_eq!(zone.active(), Stat { current: 3, peak: 3, allocated: 3, freed: 0 });
        assert_eq!(zone.pinned, Stat { current: 1, peak: 3, allocated: 3, freed: 2 });
        assert_eq!(zone.pinned_bytes, Stat { current: 500, peak: 500, allocated: 500, freed: 0 });
        counters.reset_accumulated();
        let zone = counters.zones[1];
        assert_eq!(zone.live(), Stat { current: 2, peak: 3, allocated: 0, freed: 0 });
        assert_eq!(zone.active(), Stat { current: 3, peak: 3, allocated: 0, freed: 0 });
        assert_eq!(zone.requested(), Stat { current: 8000, peak: 12_000, allocated: 0, freed: 0 });
        assert_eq!(zone.reserved, Stat { current: 1 << 20, peak: 1 << 20, allocated: 0, freed: 0 });
        counters.count_deferred_free_done(Zone::Large, 4096);
        counters.count_free(Zone::Large, 4096, 4000);
        let zone = counters.zones[1];
        assert_eq!((zone.live().freed, zone.active().freed), (1, 2));
        assert_eq!((zone.live_bytes().freed, zone.active_bytes().freed), (4096, 8192));
    }
}
