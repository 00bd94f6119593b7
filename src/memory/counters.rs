//! What an arena counts as it goes, with a few additions an operation. Everything is kept under the arena's lock.

use super::{block::Zone, stats::Stat};

/// A quantity that changes with every request: as few stores as it can be counted with. What it is now is the difference
/// of the sums, and the peak is only written when there is a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    increased: u64,
    decreased: u64,
    peak: u64,
}

impl Flow {
    /// What it is now.
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

    /// By torch's names, the sums counted from a base.
    fn stat(&self, base: &Base) -> Stat {
        Stat {
            current: self.current(),
            peak: self.peak,
            allocated: self.increased - base.increased,
            freed: self.decreased - base.decreased,
        }
    }

    fn base(&self) -> Base {
        Base { increased: self.increased, decreased: self.decreased }
    }
}

/// The sums of a flow when they were reset: what happens later is counted from there, so that counting is as cheap as ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Base {
    increased: u64,
    decreased: u64,
}

/// The bases of a zone's flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bases {
    count: Base,
    bytes: Base,
    requested: Base,
    /// Blocks that waited: their frees were still to be counted.
    waiting: u64,
    /// Their bytes.
    waiting_bytes: u64,
}

/// What is counted for each zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneCounters {
    /// Blocks in the callers' hands.
    pub count: Flow,
    /// Their bytes.
    pub bytes: Flow,
    /// The bytes that were asked for.
    pub requested: Flow,
    /// Blocks that were freed and wait for other streams.
    pub waiting: Stat,
    /// Their bytes.
    pub waiting_bytes: Stat,
    /// The most blocks that were in the callers' hands or waiting at once, as far as any waited.
    active_peak: u64,
    /// Their bytes.
    active_bytes_peak: u64,
    /// Handles and segments that are mapped.
    pub segments: Stat,
    /// Their bytes.
    pub reserved: Stat,
    /// Free blocks whose memory cannot go back, as far as anybody looked.
    pub pinned: Stat,
    /// Their bytes.
    pub pinned_bytes: Stat,
    bases: Bases,
}

impl ZoneCounters {
    #[cold]
    fn note_active(&mut self) {
        self.active_peak = self.active_peak.max(self.count.current() + self.waiting.current);
        self.active_bytes_peak = self.active_bytes_peak.max(self.bytes.current() + self.waiting_bytes.current);
    }

    /// Blocks in the callers' hands.
    pub fn live(&self) -> Stat {
        self.count.stat(&self.bases.count)
    }

    /// Their bytes.
    pub fn live_bytes(&self) -> Stat {
        self.bytes.stat(&self.bases.bytes)
    }

    /// The bytes that were asked for.
    pub fn requested(&self) -> Stat {
        self.requested.stat(&self.bases.requested)
    }

    /// Blocks in the callers' hands and those that wait: a block that is freed goes on being active while it waits.
    pub fn active(&self) -> Stat {
        active(&self.live(), &self.waiting, self.active_peak, self.bases.waiting)
    }

    /// Their bytes.
    pub fn active_bytes(&self) -> Stat {
        active(&self.live_bytes(), &self.waiting_bytes, self.active_bytes_peak, self.bases.waiting_bytes)
    }

    /// Notes how many free blocks cannot go back now, and their bytes.
    pub fn note_pinned(&mut self, (count, bytes): (u64, u64)) {
        for (stat, now) in [(&mut self.pinned, count), (&mut self.pinned_bytes, bytes)] {
            stat.add(now.saturating_sub(stat.current));
            stat.sub(stat.current - now);
        }
    }

    fn reset_accumulated(&mut self) {
        self.bases = Bases {
            count: self.count.base(),
            bytes: self.bytes.base(),
            requested: self.requested.base(),
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

/// See the module's comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// By zone.
    pub zones: [ZoneCounters; 2],
    /// Bytes in the callers' hands, in both zones.
    pub live: u64,
    /// The most that `live` ever was, since the peak was reset.
    pub live_peak: u64,
    /// How far `live` may rise before the device must hear of it; see [`peak`](super::peak_budget).
    pub credit: u64,
}

impl Counters {
    /// A block was given out.
    #[inline]
    pub fn hand_out(&mut self, zone: Zone, bytes: u64, requested: u64) {
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

    /// A block was freed.
    #[inline]
    pub fn take_back(&mut self, zone: Zone, bytes: u64, requested: u64) {
        let counters = &mut self.zones[zone as usize];
        counters.count.sub(1);
        counters.bytes.sub(bytes);
        counters.requested.sub(requested);
        self.live -= bytes;
    }

    /// A freed block waits for other streams.
    pub fn begin_wait(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].waiting.add(1);
        self.zones[zone as usize].waiting_bytes.add(bytes);
    }

    /// Its wait is over.
    pub fn end_wait(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].waiting.sub(1);
        self.zones[zone as usize].waiting_bytes.sub(bytes);
    }

    /// A handle or a segment was mapped.
    pub fn map(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].segments.add(1);
        self.zones[zone as usize].reserved.add(bytes);
    }

    /// A handle or a segment is gone, or has another address now.
    pub fn unmap(&mut self, zone: Zone, bytes: u64) {
        self.zones[zone as usize].segments.sub(1);
        self.zones[zone as usize].reserved.sub(bytes);
    }

    /// Forgets all peaks.
    pub fn reset_peaks(&mut self) {
        for zone in &mut self.zones {
            zone.reset_peaks();
        }
        self.live_peak = self.live;
    }

    /// Begins all sums anew.
    pub fn reset_accumulated(&mut self) {
        self.zones.iter_mut().for_each(ZoneCounters::reset_accumulated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_begin_anew_and_the_rest_stays() {
        let mut counters = Counters::default();
        for _ in 0..3 {
            counters.hand_out(Zone::Large, 4096, 4000);
        }
        counters.take_back(Zone::Large, 4096, 4000);
        counters.begin_wait(Zone::Large, 4096);
        counters.map(Zone::Large, 1 << 20);
        counters.zones[1].note_pinned((3, 300));
        counters.zones[1].note_pinned((1, 500));
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
        counters.end_wait(Zone::Large, 4096);
        counters.take_back(Zone::Large, 4096, 4000);
        let zone = counters.zones[1];
        assert_eq!((zone.live().freed, zone.active().freed), (1, 2));
        assert_eq!((zone.live_bytes().freed, zone.active_bytes().freed), (4096, 8192));
    }
}
