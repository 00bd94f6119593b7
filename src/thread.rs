//! The state of a thread: its current device, its current stream on each device, and whether a context is current.
//!
//! All of it sits in one constant-initialised block without a destructor, so reading it is one address computation
//! and one load, also while the thread is ending.

use std::cell::Cell;

/// The most devices that the library manages in one process.
pub const MAX_DEVICES: usize = 64;

struct State {
    device: Cell<u32>,
    attached: Cell<bool>,
    streams: [Cell<usize>; MAX_DEVICES],
}

thread_local! {
    static STATE: State = const {
        State { device: Cell::new(0), attached: Cell::new(false), streams: [const { Cell::new(0) }; MAX_DEVICES] }
    };
}

/// The thread's current device; 0 until it is set.
#[inline]
pub fn device() -> u32 {
    STATE.with(|state| state.device.get())
}

/// Makes `device` the thread's current device.
pub fn set_device(device: u32) {
    STATE.with(|state| state.device.set(device));
}

/// The handle of the thread's current stream on `device`; 0, the default stream, until it is set.
#[inline]
pub fn stream(device: u32) -> usize {
    STATE.with(|state| state.streams.get(device as usize).map_or(0, Cell::get))
}

/// Makes the stream with this handle the thread's current stream on `device`.
pub fn set_stream(device: u32, handle: usize) {
    STATE.with(|state| {
        if let Some(stream) = state.streams.get(device as usize) {
            stream.set(handle);
        }
    });
}

/// Whether this thread is known to have a driver context.
#[inline]
pub fn attached() -> bool {
    STATE.with(|state| state.attached.get())
}

/// Notes that this thread has a driver context.
pub fn set_attached() {
    STATE.with(|state| state.attached.set(true));
}
