//! Peer access for collectives, enabled on first use.

use crate::{
    error::Result,
    memory::peer,
    runtime::{Runtime, thread::MAX_DEVICES},
    status::Status,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// For each device, a bit mask of the devices whose memory it has access to.
static ACCESSIBLE: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];
/// For each device, a bit mask of the devices whose memory it cannot access.
static INACCESSIBLE: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// Returns whether kernels of a device can access the memory of all these devices. Enables access as needed.
pub fn ensure_access(runtime: &Runtime, device: u32, others: impl IntoIterator<Item = u32>) -> Result<bool> {
    let reached = ACCESSIBLE[device as usize % MAX_DEVICES].load(Ordering::Acquire) | 1 << device;
    for other in others {
        if reached >> other & 1 == 0 && !enable_access(runtime, device, other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cold]
fn enable_access(runtime: &Runtime, device: u32, other: u32) -> Result<bool> {
    let index = device as usize % MAX_DEVICES;
    if INACCESSIBLE[index].load(Ordering::Acquire) >> other & 1 == 1 {
        return Ok(false);
    }
    let (from, to) = (runtime.device(device as i32)?, runtime.device(other as i32)?);
    let can = runtime.driver.can_access_peer(from.native, to.native)?;
    let enabled = if can {
        match runtime.driver.with_relaxed_capture(|| peer::enable(device as i32, other as i32))? {
            // The number of peers of a device is limited.
            Err(error) if error.status() == Status::PEER_ACCESS_UNSUPPORTED => false,
            outcome => outcome.map(|()| true)?,
        }
    } else {
        false
    };
    let known = if enabled { &ACCESSIBLE } else { &INACCESSIBLE };
    known[index].fetch_or(1 << other, Ordering::AcqRel);
    Ok(enabled)
}

/// Clears the record that a device has access to another, before the access is disabled.
pub fn clear_access(device: u32, other: u32) {
    ACCESSIBLE[device as usize % MAX_DEVICES].fetch_and(!(1 << other), Ordering::AcqRel);
}
