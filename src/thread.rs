//! The state of a thread: its current device, its current stream on each device, and how its last call from C
//! ended.
//!
//! All of it sits in one constant-initialised block without a destructor, so a call finds it with one address
//! computation, also while the thread is ending. In a shared library that computation is a call of its own, and the
//! dearest part of the shortest functions: that is why there is one block and not a variable for each.

use crate::driver::Stream;
use std::cell::Cell;

/// The most devices that the library manages in one process.
pub const MAX_DEVICES: usize = 64;

struct State {
    guarded: Cell<bool>,
    failed: Cell<bool>,
    driver_code: Cell<u32>,
    device: Cell<u32>,
    streams: [Cell<Stream>; MAX_DEVICES],
}

thread_local! {
    static STATE: State = const {
        State {
            guarded: Cell::new(false),
            failed: Cell::new(false),
            driver_code: Cell::new(0),
            device: Cell::new(0),
            streams: [const { Cell::new(Stream::DEFAULT) }; MAX_DEVICES],
        }
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

/// The thread's current stream on `device`; the default stream until it is set.
#[inline]
pub fn stream(device: u32) -> Stream {
    STATE.with(|state| state.streams.get(device as usize).map_or(Stream::DEFAULT, Cell::get))
}

/// Makes a stream the thread's current one on `device`.
pub fn set_stream(device: u32, stream: Stream) {
    STATE.with(|state| {
        if let Some(slot) = state.streams.get(device as usize) {
            slot.set(stream);
        }
    });
}

/// Notes that a call from C begins: a panic from now on is caught, and must not print.
#[inline]
pub fn begin_call() {
    STATE.with(|state| state.guarded.set(true));
}

/// As [`begin_call`], for a call that says nothing of success or failure; returns what [`leave`] puts back.
pub fn enter() -> bool {
    STATE.with(|state| state.guarded.replace(true))
}

/// Ends what [`enter`] began.
pub fn leave(outer: bool) {
    STATE.with(|state| state.guarded.set(outer));
}

/// Notes that a call from C succeeded.
#[inline]
pub fn end_call() {
    STATE.with(|state| {
        state.guarded.set(false);
        state.failed.set(false);
    });
}

/// Notes that a call from C failed, with the driver's code if the driver had a part in it.
pub fn fail_call(driver_code: u32) {
    STATE.with(|state| {
        state.guarded.set(false);
        state.failed.set(true);
        state.driver_code.set(driver_code);
    });
}

/// Whether the thread is in a call from C.
pub fn in_call() -> bool {
    STATE.with(|state| state.guarded.get())
}

/// The driver's code of the thread's last call from C, if that call failed.
pub fn failure() -> Option<u32> {
    STATE.with(|state| state.failed.get().then(|| state.driver_code.get()))
}
