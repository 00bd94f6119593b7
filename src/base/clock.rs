//! The time of things that happen every few nanoseconds: ticks now, and microseconds when somebody asks.
//!
//! Where the processor counts its time stamp at one rate and alike on all cores, a tick is one of those: reading it costs
//! a third of what the system's clock costs. Now and then a tick and the system's time are noted together, and what lies
//! between two such notes is told by the straight line through them; so an entry has one time, whenever it is read.

use parking_lot::Mutex;
use std::{
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

/// A moment, by both clocks.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    ticks: u64,
    nanoseconds: u64,
}

/// More notes than this are thinned out.
const MOST: usize = 256;

static ANCHORS: Mutex<Vec<Anchor>> = Mutex::new(Vec::new());

fn system() -> u64 {
    // Before 1970 all clocks stand still.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(target_arch = "x86_64")]
fn has_time_stamps() -> bool {
    use std::arch::x86_64::__cpuid;
    const INVARIANT: u32 = 1 << 8;
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT != 0)
}

/// The present moment.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> u64 {
    if has_time_stamps() {
        // SAFETY: every processor of this architecture has the instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
    } else {
        system()
    }
}

/// The present moment.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    system()
}

/// Notes what time it is: before the first moment that is to be told.
pub fn note() {
    // The system's time between two readings of the other belongs to the middle of them; of three tries the shortest.
    let tries = (0..3).map(|_| {
        let before = ticks();
        let nanoseconds = system();
        let after = ticks();
        (after.wrapping_sub(before), Anchor { ticks: before + after.wrapping_sub(before) / 2, nanoseconds })
    });
    let Some((_, anchor)) = tries.min_by_key(|(width, _)| *width) else { return };
    let mut anchors = ANCHORS.lock();
    if anchors.last().is_some_and(|last| last.ticks >= anchor.ticks || last.nanoseconds >= anchor.nanoseconds) {
        // The system's clock was set back, or another thread was faster.
        if anchors.last().is_some_and(|last| last.ticks < anchor.ticks) {
            anchors.clear();
            anchors.push(anchor);
        }
        return;
    }
    if anchors.len() >= MOST {
        let mut index = 0;
        anchors.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
    anchors.push(anchor);
}

/// Tells ticks in microseconds since 1970.
pub struct Reader(Vec<Anchor>);

impl Reader {
    /// For moments up to now.
    pub fn new() -> Self {
        note();
        Reader(ANCHORS.lock().clone())
    }

    /// The microseconds of a moment.
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

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ticks_are_told_in_the_systems_time() {
        note();
        let moments: Vec<(u64, u64)> = (0..5)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(3));
                (ticks(), system() / 1000)
            })
            .collect();
        let reader = Reader::new();
        let told: Vec<u64> = moments.iter().map(|(ticks, _)| reader.microseconds(*ticks)).collect();
        for (told, (_, expected)) in told.iter().zip(&moments) {
            // A thread may lose its processor between the two readings.
            assert!(told.abs_diff(*expected) < 2000, "{told} {expected}");
        }
        std::thread::sleep(Duration::from_millis(3));
        let again = Reader::new();
        assert!(moments.iter().zip(&told).all(|((ticks, _), told)| again.microseconds(*ticks) == *told));
    }

    #[test]
    fn lines_go_through_the_notes() {
        let anchor = |ticks, nanoseconds| Anchor { ticks, nanoseconds };
        let reader = Reader(vec![anchor(1000, 1_000_000), anchor(2000, 3_000_000), anchor(3000, 4_000_000)]);
        let told: Vec<u64> = [500, 1000, 1500, 2000, 2500, 4000].map(|ticks| reader.microseconds(ticks)).into();
        assert_eq!(told, [0, 1000, 2000, 3000, 3500, 5000]);
        assert_eq!(Reader(vec![anchor(7, 9000)]).microseconds(1), 9);
    }
}
