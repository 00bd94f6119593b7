//! The most that was ever live on a device, without a counter that all its threads share.
//!
//! Each arena counts what it has given out, and their sum has a peak that none of them can see. So the device lends each
//! arena credit: as long as no arena has more live than its credit, and the credits sum up to no more than the peak that
//! is known, the sum cannot have passed that peak. Only an arena that would exceed its credit asks the device, which
//! then adds all arenas up, notes a new peak if it is one, and shares out what lies between the sum and the peak.
//!
//! Threads that allocate at the same moment in arenas of their own would ask all the time, and there is no such thing as the
//! sum at one moment to be had. So when they ask more often than `OFTEN`, most of them are lent some credit unseen, and
//! the peak is that of the sums that were taken, thousands of them a second. It is exact where one thread allocates,
//! however many arenas it uses, and where several do so one after the other.

use super::{arena::Arena, device_memory::DeviceMemory};
use crate::runtime::thread;
use std::time::{Duration, Instant};

/// How often threads may change places at asking, in the long run.
const OFTEN: Duration = Duration::from_micros(200);
/// How often they may do so at once, before that counts.
const AT_ONCE: u32 = 64;
/// What is lent unseen, at least.
const UNSEEN: u64 = 1 << 20;

/// The peak of a device, and who asked for it.
#[derive(Debug)]
pub struct Peak {
    bytes: u64,
    /// The thread that asked last.
    thread: u64,
    /// How many more times the thread may be another one.
    changes: u32,
    /// Since when that is so.
    since: Option<Instant>,
}

impl Default for Peak {
    fn default() -> Self {
        Peak { bytes: 0, thread: 0, changes: AT_ONCE, since: None }
    }
}

impl Peak {
    /// Whether the calling thread may have all arenas looked at.
    fn admits(&mut self) -> bool {
        let thread = thread::number();
        if thread == self.thread {
            return true;
        }
        let now = Instant::now();
        if let Some(since) = self.since {
            let regained = now.duration_since(since).as_nanos() / OFTEN.as_nanos();
            if regained > 0 {
                self.changes = self.changes.saturating_add(u32::try_from(regained).unwrap_or(AT_ONCE)).min(AT_ONCE);
                self.since = Some(now);
            }
        } else {
            self.since = Some(now);
        }
        if self.changes == 0 {
            return false;
        }
        self.changes -= 1;
        self.thread = thread;
        true
    }
}

/// Makes sure that an arena has credit for what it has live.
pub fn ask(memory: &DeviceMemory, asking: &Arena) {
    if let Some(mut peak) = memory.peak.try_lock()
        && peak.admits()
    {
        settle_all(memory, &mut peak, asking);
        return;
    }
    // Another thread is at it, or was a moment ago.
    let counters = &mut asking.lock().space.counters;
    counters.credit = counters.credit.max(counters.live + (counters.live / 4).max(UNSEEN));
}

/// Adds up what is live, notes a peak, and lends credit anew, most of it to `asking`. Returns what is live and the peak.
pub fn settle(memory: &DeviceMemory, asking: &Arena) -> (u64, u64) {
    settle_all(memory, &mut memory.peak.lock(), asking)
}

fn settle_all(memory: &DeviceMemory, peak: &mut Peak, asking: &Arena) -> (u64, u64) {
    let arenas = memory.arenas();
    let mut sum = 0_u64;
    for arena in &arenas {
        let counters = &mut arena.lock().space.counters;
        counters.credit = counters.live;
        sum += counters.live;
    }
    peak.bytes = peak.bytes.max(sum);
    let room = peak.bytes - sum;
    let others = arenas.len().saturating_sub(1) as u64;
    let share = (room / 2).checked_div(others).unwrap_or(0);
    for arena in &arenas {
        let part = if arena.number == asking.number { room - share * others } else { share };
        arena.lock().space.counters.credit += part;
    }
    (sum, peak.bytes)
}

/// What is live, and the peak.
pub fn read(memory: &DeviceMemory) -> (u64, u64) {
    let mut peak = memory.peak.lock();
    let sum = memory.arenas().iter().map(|arena| arena.lock().space.counters.live).sum();
    peak.bytes = peak.bytes.max(sum);
    (sum, peak.bytes)
}

/// Lets the peak begin again at what is live now.
pub fn reset(memory: &DeviceMemory) {
    let mut peak = memory.peak.lock();
    let mut sum = 0;
    for arena in memory.arenas() {
        let counters = &mut arena.lock().space.counters;
        counters.reset_peaks();
        counters.credit = counters.live;
        sum += counters.live;
    }
    peak.bytes = sum;
}
