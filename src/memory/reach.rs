//! Whose memory a device reaches: access between peers, given when a collective first needs it.

use crate::{
    error::Result,
    memory::peer,
    runtime::{Runtime, thread::MAX_DEVICES},
    status::Status,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// For each device, the devices that it was given access to, one bit each.
static REACHED: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];
/// For each device, those that it cannot be given access to.
static APART: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// Whether kernels of a device can use the memory of all of these, which they are given access to by now.
pub fn reaches(runtime: &Runtime, device: u32, others: impl IntoIterator<Item = u32>) -> Result<bool> {
    let reached = REACHED[device as usize % MAX_DEVICES].load(Ordering::Acquire) | 1 << device;
    for other in others {
        if reached >> other & 1 == 0 && !give_access(runtime, device, other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cold]
fn give_access(runtime: &Runtime, device: u32, other: u32) -> Result<bool> {
    let place = device as usize % MAX_DEVICES;
    if APART[place].load(Ordering::Acquire) >> other & 1 == 1 {
        return Ok(false);
    }
    let (from, to) = (runtime.device(device as i32)?, runtime.device(other as i32)?);
    let can = runtime.driver.can_access_peer(from.native, to.native)?;
    let given = if can {
        match runtime.driver.with_relaxed_capture(|| peer::enable(device as i32, other as i32))? {
            // There may be more peers than a device can have at a time.
            Err(error) if error.status() == Status::PEER_ACCESS_UNSUPPORTED => false,
            outcome => outcome.map(|()| true)?,
        }
    } else {
        false
    };
    let known = if given { &REACHED } else { &APART };
    known[place].fetch_or(1 << other, Ordering::AcqRel);
    Ok(given)
}

/// Forgets that a device was given access to another: somebody takes it back.
pub fn forget(device: u32, other: u32) {
    REACHED[device as usize % MAX_DEVICES].fetch_and(!(1 << other), Ordering::AcqRel);
}
