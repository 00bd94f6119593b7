//! The state of a thread: its current device, its current stream on each device, the arenas that it last allocated
//! from, and how its last call from C ended.
//!
//! All of it sits in one constant-initialised block without a destructor, so a call finds it with one address
//! computation, also while the thread is ending. In a shared library that computation is a call of its own, and the
//! dearest part of the shortest functions: that is why there is one block and not a variable for each.

use crate::{driver::Stream, memory::Arena};
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

/// The most devices that the library manages in one process.
pub const MAX_DEVICES: usize = 64;

/// Arenas that a thread remembers, by stream.
const REMEMBERED: usize = 8;

/// An arena that the thread found for a stream, and the epoch of routing in which that was.
#[derive(Debug, Clone, Copy)]
pub struct Remembered {
    stream: usize,
    device: u32,
    epoch: u32,
    generation: u32,
    arena: Option<&'static Arena>,
}

static THREADS: AtomicU64 = AtomicU64::new(1);

struct State {
    number: Cell<u64>,
    arenas: [Cell<Remembered>; REMEMBERED],
    guarded: Cell<bool>,
    failed: Cell<bool>,
    driver_code: Cell<u32>,
    device: Cell<u32>,
    streams: [Cell<Stream>; MAX_DEVICES],
    ranges: Cell<i32>,
}

thread_local! {
    static STATE: State = const {
        State {
            number: Cell::new(0),
            arenas: [const { Cell::new(Remembered { stream: 0, device: 0, epoch: 0, generation: 0, arena: None }) }; REMEMBERED],
            guarded: Cell::new(false),
            failed: Cell::new(false),
            driver_code: Cell::new(0),
            device: Cell::new(0),
            streams: [const { Cell::new(Stream::DEFAULT) }; MAX_DEVICES],
            ranges: Cell::new(0),
        }
    };
}

/// The thread's number: no other thread of the process has it, nor ever had it.
#[inline]
pub fn number() -> u64 {
    STATE.with(|state| match state.number.get() {
        0 => first_number(state),
        number => number,
    })
}

#[cold]
fn first_number(state: &State) -> u64 {
    state.number.set(THREADS.fetch_add(1, Ordering::Relaxed));
    state.number.get()
}

fn place_of(stream: usize) -> usize {
    // Handles are addresses; the multiplication spreads their equal distances.
    ((stream as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61) as usize % REMEMBERED
}

/// The arena that the thread remembers for a stream of a device, if it was found in this epoch, and the generation in
/// which it was found.
#[inline]
pub fn arena(stream: usize, device: u32, epoch: u32) -> Option<(&'static Arena, u32)> {
    STATE.with(|state| {
        let remembered = state.arenas[place_of(stream)].get();
        let same = remembered.stream == stream && remembered.device == device && remembered.epoch == epoch;
        if same { remembered.arena.map(|arena| (arena, remembered.generation)) } else { None }
    })
}

/// Remembers an arena.
pub fn remember_arena(stream: usize, device: u32, epoch: u32, arena: &'static Arena, generation: u32) {
    let remembered = Remembered { stream, device, epoch, generation, arena: Some(arena) };
    STATE.with(|state| state.arenas[place_of(stream)].set(remembered));
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

/// Counts a range that the thread pushed; how many there were before.
#[inline]
pub fn push_range() -> i32 {
    STATE.with(|state| state.ranges.replace(state.ranges.get() + 1))
}

/// Counts one that it popped; how many there are now, or `None` if there was none.
#[inline]
pub fn pop_range() -> Option<i32> {
    STATE.with(|state| {
        let left = state.ranges.get() - 1;
        (left >= 0).then(|| {
            state.ranges.set(left);
            left
        })
    })
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

/// Notes that a call from C succeeded that never began: it had nothing to do.
#[inline]
pub fn succeed() {
    STATE.with(|state| state.failed.set(false));
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
