//! Timestamps for events that happen every few nanoseconds: ticks when the event happens, microseconds when it is
//! read.
//!
//! Where the processor's time stamp counter is invariant (one rate, the same on all cores), a tick is one count of it.
//! Elsewhere, and on other processors than x86-64, a tick is a nanosecond of the system clock. Reading the counter costs
//! a third of a read of the system clock. From time to time the module records an anchor, a tick and the system time
//! read together. A time between two anchors is interpolated linearly, so an entry has the same time whenever it is
//! read.

use parking_lot::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment on both clocks.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    ticks: u64,
    nanoseconds: u64,
}

/// Anchors kept; beyond this number every second one is dropped.
const MAX_ANCHORS: usize = 256;

static ANCHORS: Mutex<Vec<Anchor>> = Mutex::new(Vec::new());

fn system_time() -> u64 {
    // A system time before 1970 reads as 0.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(target_arch = "x86_64")]
fn has_time_stamps() -> bool {
    use once_cell::sync::Lazy;
    use std::arch::x86_64::__cpuid;
    const INVARIANT: u32 = 1 << 8;
    static HAS: Lazy<bool> =
        Lazy::new(|| __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT != 0);
    *HAS
}

/// Returns the current tick.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> u64 {
    if has_time_stamps() {
        // SAFETY: every processor of this architecture has the instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
    } else {
        system_time()
    }
}

/// Returns the current tick.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    system_time()
}

/// Records an anchor. Must be called before the first tick that is to be converted.
pub fn record_anchor() {
    // The system time read between two ticks belongs to their middle. Of three tries the one with the shortest gap is
    // used.
    let tries = (0..3).map(|_| {
        let before = ticks();
        let nanoseconds = system_time();
        let after = ticks();
        (after.wrapping_sub(before), Anchor { ticks: before + after.wrapping_sub(before) / 2, nanoseconds })
    });
    let Some((_, anchor)) = tries.min_by_key(|(width, _)| *width) else { return };
    let mut anchors = ANCHORS.lock();
    if anchors.last().is_some_and(|last| last.ticks >= anchor.ticks || last.nanoseconds >= anchor.nanoseconds) {
        // The system clock was set back, or another thread recorded a later anchor first.
        if anchors.last().is_some_and(|last| last.ticks < anchor.ticks) {
            anchors.clear();
            anchors.push(anchor);
        }
        return;
    }
    if anchors.len() >= MAX_ANCHORS {
        let mut index = 0;
        anchors.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
    anchors.push(anchor);
}

/// Converts ticks to microseconds since 1970.
pub struct TickConverter(Vec<Anchor>);

impl TickConverter {
    /// Creates a converter for ticks up to now.
    pub fn new() -> Self {
        record_anchor();
        TickConverter(ANCHORS.lock().clone())
    }

    /// Returns the time of a tick in microseconds since 1970.
    pub fn microseconds(&self, ticks: u64) -> u64 {
        let above = self.0.partition_point(|anchor| anchor.ticks <= ticks);
        let pair = match self.0.len() {
            0 => return 0,
            1 => return self.0[0].nanoseconds / 1000,
            many => &self.0[above.clamp(1, many - 1) - 1..],
        };
        let (one, other) = (pair[0], pair[1]);
        let (width, length) = (i128::from(other.ticks - one.ticks), i128::from(other.nanoseconds - one.nanoseconds));
        let offset = (i128::from(ticks) - i128::from(one.ticks)) * length / width.max(1);
        ((i128::from(one.nanoseconds) + offset).max(0) / 1000) as u64
    }
}

impl Default for TickConverter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ticks_convert_to_system_time() {
        record_anchor();
        let moments: Vec<(u64, u64)> = (0..5)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(3));
                (ticks(), system_time() / 1000)
            })
            .collect();
        let reader = TickConverter::new();
        let converted: Vec<u64> = moments.iter().map(|(ticks, _)| reader.microseconds(*ticks)).collect();
        for (converted, (_, expected)) in converted.iter().zip(&moments) {
            // The scheduler may preempt the thread between the two readings.
            assert!(converted.abs_diff(*expected) < 2000, "{converted} {expected}");
        }
        std::thread::sleep(Duration::from_millis(3));
        let again = TickConverter::new();
        assert!(moments.iter().zip(&converted).all(|((ticks, _), converted)| again.microseconds(*ticks) == *converted));
    }

    #[test]
    fn conversion_interpolates_between_anchors() {
        let anchor = |ticks, nanoseconds| Anchor { ticks, nanoseconds };
        let reader = TickConverter(vec![anchor(1000, 1_000_000), anchor(2000, 3_000_000), anchor(3000, 4_000_000)]);
        let converted: Vec<u64> = [500, 1000, 1500, 2000, 2500, 4000].map(|ticks| reader.microseconds(ticks)).into();
        assert_eq!(converted, [0, 1000, 2000, 3000, 3500, 5000]);
        assert_eq!(TickConverter(vec![anchor(7, 9000)]).microseconds(1), 9);
    }
}
