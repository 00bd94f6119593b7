//! What an arena counts as it goes, with a few additions an operation. Everything is kept under the arena's lock.

use super::{block::Zone, stats::Stat};

/// What is counted for each zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneCounters {
    /// Blocks in the callers' hands.
    pub count: Stat,
    /// Their bytes.
    pub bytes: Stat,
    /// The bytes that were asked for.
    pub requested: Stat,
    /// Blocks that were freed and wait for other streams.
    pub waiting: Stat,
    /// Their bytes.
    pub waiting_bytes: Stat,
    /// Handles and segments that are mapped.
    pub segments: Stat,
    /// Their bytes.
    pub reserved: Stat,
}

impl ZoneCounters {
    fn each(&mut self) -> [&mut Stat; 7] {
        [
            &mut self.count,
            &mut self.bytes,
            &mut self.requested,
            &mut self.waiting,
            &mut self.waiting_bytes,
            &mut self.segments,
            &mut self.reserved,
        ]
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
        self.live += bytes;
        self.live_peak = self.live_peak.max(self.live);
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
            for stat in zone.each() {
                stat.reset_peak();
            }
        }
        self.live_peak = self.live;
    }
}
