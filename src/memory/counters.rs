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

    /// By torch's names.
    pub fn stat(&self) -> Stat {
        Stat { current: self.current(), peak: self.peak, allocated: self.increased, freed: self.decreased }
    }
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
}

impl ZoneCounters {
    #[cold]
    fn note_active(&mut self) {
        self.active_peak = self.active_peak.max(self.count.current() + self.waiting.current);
        self.active_bytes_peak = self.active_bytes_peak.max(self.bytes.current() + self.waiting_bytes.current);
    }

    /// Blocks in the callers' hands and those that wait: a block that is freed goes on being active while it waits.
    pub fn active(&self) -> Stat {
        active(&self.count.stat(), &self.waiting, self.active_peak)
    }

    /// Their bytes.
    pub fn active_bytes(&self) -> Stat {
        active(&self.bytes.stat(), &self.waiting_bytes, self.active_bytes_peak)
    }

    fn reset_peaks(&mut self) {
        for flow in [&mut self.count, &mut self.bytes, &mut self.requested] {
            flow.peak = flow.current();
        }
        for stat in [&mut self.waiting, &mut self.waiting_bytes, &mut self.segments, &mut self.reserved] {
            stat.reset_peak();
        }
        (self.active_peak, self.active_bytes_peak) = (0, 0);
    }
}

fn active(live: &Stat, waiting: &Stat, peak: u64) -> Stat {
    let current = live.current + waiting.current;
    Stat {
        current,
        peak: live.peak.max(peak).max(current),
        allocated: live.allocated,
        freed: live.freed - waiting.current,
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
    /// How far `live` may rise before the device must hear of it; see [`peak`](super::peak).
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
}
