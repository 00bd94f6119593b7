//! The state of a thread: its current device, its current stream on each device, the arenas that it used last, and
//! the result of its last call from C.
//!
//! All of it is one constant-initialised block without a destructor, so a call finds it with one address computation,
//! even while the thread is ending. In a shared library that computation is a function call and the most expensive
//! part of the shortest functions; hence one block instead of a variable for each.

use crate::driver::{Stream, types::CU_STREAM_PER_THREAD};
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

/// The most devices that the library manages in one process.
pub const MAX_DEVICES: usize = 64;

/// The number of arenas that a thread caches, by stream.
const CACHED_ARENAS: usize = 8;

/// A cached arena of a stream, with the routing epoch in which it was looked up.
#[derive(Debug, Clone, Copy)]
pub struct CachedArena {
    stream: usize,
    device: u32,
    epoch: u32,
    generation: u32,
    /// The arena's number. The memory layer knows what is behind it.
    arena: u32,
}

impl CachedArena {
    const NONE: CachedArena = CachedArena { stream: 0, device: 0, epoch: 0, generation: 0, arena: u32::MAX };
}

static THREADS: AtomicU64 = AtomicU64::new(1);

struct State {
    number: Cell<u64>,
    arenas: [Cell<CachedArena>; CACHED_ARENAS],
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
            arenas: [const { Cell::new(CachedArena::NONE) }; CACHED_ARENAS],
            guarded: Cell::new(false),
            failed: Cell::new(false),
            driver_code: Cell::new(0),
            device: Cell::new(0),
            streams: [const { Cell::new(Stream::DEFAULT) }; MAX_DEVICES],
            ranges: Cell::new(0),
        }
    };
}

/// Returns the thread's number, which no other thread of the process has or ever had.
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

/// Returns the calling thread's number if a handle denotes a different stream in each thread, otherwise 0.
#[inline]
pub fn of_stream(handle: usize) -> u64 {
    if handle == CU_STREAM_PER_THREAD { number() } else { 0 }
}

fn cache_index(stream: usize) -> usize {
    // Handles are addresses at regular distances; the multiplication spreads them.
    ((stream as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61) as usize % CACHED_ARENAS
}

/// Returns the number of the cached arena of a stream on a device and its generation at the lookup, if the lookup was in this
/// epoch. No arena has the number `u32::MAX`.
#[inline]
pub fn cached_arena(stream: usize, device: u32, epoch: u32) -> Option<(u32, u32)> {
    STATE.with(|state| {
        let cached = state.arenas[cache_index(stream)].get();
        let same = cached.stream == stream && cached.device == device && cached.epoch == epoch;
        if same { Some((cached.arena, cached.generation)) } else { None }
    })
}

/// Caches the number of an arena.
pub fn cache_arena(stream: usize, device: u32, epoch: u32, arena: u32, generation: u32) {
    let cached = CachedArena { stream, device, epoch, generation, arena };
    STATE.with(|state| state.arenas[cache_index(stream)].set(cached));
}

/// Returns the thread's current device; 0 until one is set.
#[inline]
pub fn device() -> u32 {
    STATE.with(|state| state.device.get())
}

/// Makes `device` the thread's current device.
pub fn set_device(device: u32) {
    STATE.with(|state| state.device.set(device));
}

/// Returns the thread's current stream on `device`; the default stream until one is set.
#[inline]
pub fn stream(device: u32) -> Stream {
    STATE.with(|state| state.streams.get(device as usize).map_or(Stream::DEFAULT, Cell::get))
}

/// Makes a stream the thread's current one on `device`.
pub fn set_stream(device: u32, stream: Stream) {
    STATE.with(|state| {
        if let Some(current) = state.streams.get(device as usize) {
            current.set(stream);
        }
    });
}

/// Counts a pushed NVTX range. Returns the number of open ranges before.
#[inline]
pub fn push_range() -> i32 {
    STATE.with(|state| state.ranges.replace(state.ranges.get() + 1))
}

/// Counts a popped NVTX range. Returns the number of open ranges after, or `None` if none was open.
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

/// Records that a call from C begins. Panics are caught until it ends, and must not print.
#[inline]
pub fn begin_call() {
    STATE.with(|state| state.guarded.set(true));
}

/// Does the same as [`begin_call`] for a call that reports no status. Returns the value for [`leave`] to restore.
pub fn enter() -> bool {
    STATE.with(|state| state.guarded.replace(true))
}

/// Ends a call that [`enter`] began.
pub fn leave(outer: bool) {
    STATE.with(|state| state.guarded.set(outer));
}

/// Records success for a call from C that had nothing to do and did not use [`begin_call`].
#[inline]
pub fn succeed() {
    STATE.with(|state| state.failed.set(false));
}

/// Records that a call from C succeeded.
#[inline]
pub fn end_call() {
    STATE.with(|state| {
        state.guarded.set(false);
        state.failed.set(false);
    });
}

/// Records that a call from C failed, with the driver's error code, or 0 if the driver did not cause the failure.
pub fn fail_call(driver_code: u32) {
    STATE.with(|state| {
        state.guarded.set(false);
        state.failed.set(true);
        state.driver_code.set(driver_code);
    });
}

/// Returns whether the thread is in a call from C.
pub fn in_call() -> bool {
    STATE.with(|state| state.guarded.get())
}

/// Returns the driver's error code of the thread's last call from C, if that call failed.
pub fn failure() -> Option<u32> {
    STATE.with(|state| state.failed.get().then(|| state.driver_code.get()))
}
