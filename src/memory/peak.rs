//! The most that was ever live on a device, without a counter that all its threads share.
//!
//! Each arena counts what it has given out, and their sum has a peak that none of them can see. So the device lends each
//! arena credit: as long as no arena has more live than its credit, and the credits sum up to no more than the peak that
//! is known, the sum cannot have passed that peak. Only an arena that would exceed its credit asks the device, which
//! then adds all arenas up, notes a new peak if it is one, and shares out what lies between the sum and the peak.
//!
//! The peak is exact where requests come one after the other. Where threads allocate at the same moment, the sum is that of
//! the moments at which each arena was looked at.

use super::{arena::Arena, device_memory::DeviceMemory};

/// Adds up what is live, notes a peak, and lends credit anew, most of it to `asking`. Returns what is live and the peak.
pub fn settle(memory: &DeviceMemory, asking: &Arena) -> (u64, u64) {
    let mut peak = memory.live_peak.lock();
    let arenas = memory.arenas();
    let mut sum = 0_u64;
    for arena in &arenas {
        let counters = &mut arena.inner.lock().space.counters;
        counters.credit = counters.live;
        sum += counters.live;
    }
    *peak = (*peak).max(sum);
    let room = *peak - sum;
    let others = arenas.len().saturating_sub(1) as u64;
    let share = if others == 0 { 0 } else { room / 2 / others };
    for arena in &arenas {
        let part = if arena.number == asking.number { room - share * others } else { share };
        arena.inner.lock().space.counters.credit += part;
    }
    (sum, *peak)
}

/// What is live, and the peak.
pub fn read(memory: &DeviceMemory) -> (u64, u64) {
    let mut peak = memory.live_peak.lock();
    let sum = memory.arenas().iter().map(|arena| arena.inner.lock().space.counters.live).sum();
    *peak = (*peak).max(sum);
    (sum, *peak)
}

/// Lets the peak begin again at what is live now.
pub fn reset(memory: &DeviceMemory) {
    let mut peak = memory.live_peak.lock();
    let mut sum = 0;
    for arena in memory.arenas() {
        let counters = &mut arena.inner.lock().space.counters;
        counters.reset_peaks();
        counters.credit = counters.live;
        sum += counters.live;
    }
    *peak = sum;
}
