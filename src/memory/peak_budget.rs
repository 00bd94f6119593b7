//! The peak of live bytes on a device, without a counter that all threads share.
//!
//! Each arena counts its live bytes, but no arena can see the peak of the sum. So the device assigns a budget to each
//! arena: as long as no arena has more live bytes than its budget, and the budgets sum up to at most the known peak,
//! the sum cannot have exceeded that peak. Only an arena that would exceed its budget asks the device, which then adds
//! up all arenas, records a new peak if there is one, and distributes the difference between peak and sum.
//!
//! Threads that allocate concurrently in their own arenas would ask all the time, and there is no well-defined sum at
//! one moment. So when threads alternate more often than once per `INTERVAL`, most of them get some budget without a
//! count, and the peak is that of the sums taken, which are thousands per second. It is exact if one thread allocates,
//! in any number of arenas, or if several threads allocate one after the other.

use super::{arena::Arena, device_memory::DeviceMemory};
use crate::runtime::thread;
use std::time::{Duration, Instant};

/// The average interval at which another thread may trigger a count.
const INTERVAL: Duration = Duration::from_micros(200);
/// The number of such changes of thread that are allowed in a burst.
const BURST: u32 = 64;
/// The minimum budget that is assigned without a count, in bytes.
const MIN_UNCOUNTED: u64 = 1 << 20;

/// The peak of a device, and the state of the rate limit on counts.
#[derive(Debug)]
pub struct Peak {
    bytes: u64,
    /// The thread that triggered the last count.
    thread: u64,
    /// The remaining number of changes of thread.
    changes: u32,
    /// The time at which `changes` was last replenished.
    since: Option<Instant>,
}

impl Default for Peak {
    fn default() -> Self {
        Peak { bytes: 0, thread: 0, changes: BURST, since: None }
    }
}

impl Peak {
    /// Returns whether the calling thread may trigger a count over all arenas.
    fn admits_count(&mut self) -> bool {
        let thread = thread::number();
        if thread == self.thread {
            return true;
        }
        let now = Instant::now();
        if let Some(since) = self.since {
            let regained = now.duration_since(since).as_nanos() / INTERVAL.as_nanos();
            if regained > 0 {
                self.changes = self.changes.saturating_add(u32::try_from(regained).unwrap_or(BURST)).min(BURST);
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

/// Ensures that an arena has a budget for its live bytes.
pub fn ensure_budget(memory: &DeviceMemory, requester: &Arena) {
    if let Some(mut peak) = memory.peak.try_lock()
        && peak.admits_count()
    {
        flush_peak_locked(memory, &mut peak, requester);
        return;
    }
    // Another thread is counting now or did so recently.
    let counters = &mut requester.lock().space.counters;
    counters.live_budget = counters.live_budget.max(counters.live + (counters.live / 4).max(MIN_UNCOUNTED));
}

/// Counts the live bytes, records a new peak, and distributes the budget, most of it to `requester`. Returns the live
/// bytes and the peak.
pub fn flush_peak(memory: &DeviceMemory, requester: &Arena) -> (u64, u64) {
    flush_peak_locked(memory, &mut memory.peak.lock(), requester)
}

fn flush_peak_locked(memory: &DeviceMemory, peak: &mut Peak, requester: &Arena) -> (u64, u64) {
    let arenas = memory.arenas();
    let mut sum = 0_u64;
    for arena in &arenas {
        let counters = &mut arena.lock().space.counters;
        counters.live_budget = counters.live;
        sum += counters.live;
    }
    peak.bytes = peak.bytes.max(sum);
    let room = peak.bytes - sum;
    let others = arenas.len().saturating_sub(1) as u64;
    let share = (room / 2).checked_div(others).unwrap_or(0);
    for arena in &arenas {
        let part = if arena.number == requester.number { room - share * others } else { share };
        arena.lock().space.counters.live_budget += part;
    }
    (sum, peak.bytes)
}

/// Returns the live bytes and the peak.
pub fn read(memory: &DeviceMemory) -> (u64, u64) {
    let mut peak = memory.peak.lock();
    let sum = memory.arenas().iter().map(|arena| arena.lock().space.counters.live).sum();
    peak.bytes = peak.bytes.max(sum);
    (sum, peak.bytes)
}

/// Resets the peak to the current live bytes.
pub fn reset(memory: &DeviceMemory) {
    let mut peak = memory.peak.lock();
    let mut sum = 0;
    for arena in memory.arenas() {
        let counters = &mut arena.lock().space.counters;
        counters.reset_peaks();
        counters.live_budget = counters.live;
        sum += counters.live;
    }
    peak.bytes = sum;
}
