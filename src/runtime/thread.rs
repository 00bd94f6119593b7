//! The state of a thread: its current device, its current stream on each device, the arenas that it used last, and
//! the result of its last call from C.
//!
//! All of it is one constant-initialised block without a destructor, so a call finds it with one address computation,
//! even while the thread is ending. In a shared library that computation is a function call and the most expensive
//! part of the shortest functions; hence one block instead of a variable for each.
//!
//! What a thread leaves behind elsewhere is released by functions that run at its end; see [`run_at_end`].

use crate::{
    base::stack,
    driver::{Stream, types::CU_STREAM_PER_THREAD},
    status::Status,
};
use std::{
    cell::{Cell, RefCell},
    ffi::CStr,
    ops::Deref,
    panic,
    sync::atomic::{AtomicU64, Ordering, compiler_fence},
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

/// The thread is in a call from C.
const IN_CALL: u8 = 1;
/// The sync debug mode knows that the thread's call from C waits for the device.
const WAIT_REPORTED: u8 = 2;

static THREADS: AtomicU64 = AtomicU64::new(1);

struct State {
    number: Cell<u64>,
    arenas: [Cell<CachedArena>; CACHED_ARENAS],
    /// The shard of pinned memory, and how often the thread has moved to another.
    pinned_shard: Cell<(u8, u8)>,
    /// [`IN_CALL`] and [`WAIT_REPORTED`].
    call: Cell<u8>,
    /// The status of the last call.
    status: Cell<i32>,
    driver_code: Cell<u32>,
    /// The message of the last call, if it was refused before it began.
    refusal: Cell<Option<&'static CStr>>,
    device: Cell<u32>,
    streams: [Cell<Stream>; MAX_DEVICES],
    ranges: Cell<i32>,
}

thread_local! {
    static STATE: State = const {
        State {
            number: Cell::new(0),
            arenas: [const { Cell::new(CachedArena::NONE) }; CACHED_ARENAS],
            pinned_shard: Cell::new((0, 0)),
            call: Cell::new(0),
            status: Cell::new(Status::OK.0),
            driver_code: Cell::new(0),
            refusal: Cell::new(None),
            device: Cell::new(0),
            streams: [const { Cell::new(Stream::DEFAULT) }; MAX_DEVICES],
            ranges: Cell::new(0),
        }
    };
}

/// A variable of a thread that is dropped as in a call from C: the calls of a signal handler that interrupts the destructor
/// are refused. Every variable whose destructor takes a lock or frees memory must be in one.
pub struct DroppedInCall<T> {
    // Fields are dropped in this order.
    _begin: CallBegin,
    value: T,
    _end: CallEnd,
}

struct CallBegin;
struct CallEnd;

impl Drop for CallBegin {
    fn drop(&mut self) {
        enter();
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        leave(0);
    }
}

impl<T> DroppedInCall<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        DroppedInCall { _begin: CallBegin, value, _end: CallEnd }
    }
}

impl<T> Deref for DroppedInCall<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The functions that run at the end of the thread.
struct AtEnd(Vec<fn()>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        for function in &self.0 {
            // A panic here would end the process, and there is no caller to report it to.
            let _ = panic::catch_unwind(function);
        }
    }
}

thread_local! {
    static AT_END: DroppedInCall<RefCell<AtEnd>> = const { DroppedInCall::new(RefCell::new(AtEnd(Vec::new()))) };
}

/// Runs a function once at the end of the calling thread, but not in the main thread, whose end is that of the process.
/// Returns `false` if the thread is past that point: other destructors of a thread that ends may still make calls.
///
/// The function may make driver calls: the driver ends a thread's own streams after the destructors of its variables.
pub fn run_at_end(function: fn()) -> bool {
    if stack::thread_id() == std::process::id() {
        return true;
    }
    // While the destructor runs, the variable is no longer accessible, so nothing borrows the list twice.
    let added = AT_END.try_with(|at_end| {
        let functions = &mut at_end.borrow_mut().0;
        if !functions.iter().any(|other| std::ptr::fn_addr_eq(*other, function)) {
            functions.push(function);
        }
    });
    added.is_ok()
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

/// Returns the thread's [`number`], and its shard of pinned memory; 0 until it moves to another.
#[inline]
pub fn number_and_pinned_shard() -> (u64, u8) {
    STATE.with(|state| {
        let number = match state.number.get() {
            0 => first_number(state),
            number => number,
        };
        (number, state.pinned_shard.get().0)
    })
}

/// Moves the thread to another shard of pinned memory, unless it has moved often already.
pub fn move_pinned_shard(max_moves: u8, next: impl FnOnce() -> u8) {
    STATE.with(|state| {
        let (_, moves) = state.pinned_shard.get();
        if moves < max_moves {
            state.pinned_shard.set((next(), moves + 1));
        }
    });
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

/// Records that a call from C begins. Panics are caught until it ends, and must not print. Returns false, and records
/// nothing, if the thread is in a call already: then a signal handler that interrupted that call makes this one. The call
/// that it interrupted may hold any lock, and may be in the middle of any change.
#[inline]
pub fn begin_call() -> bool {
    STATE.with(|state| {
        let begins = state.call.get() & IN_CALL == 0;
        if begins {
            state.call.set(IN_CALL);
        }
        // A signal handler must not see what the call does before it sees the call.
        compiler_fence(Ordering::SeqCst);
        begins
    })
}

/// Does the same as [`begin_call`] for a call that reports no status. Returns the value for [`leave`] to restore.
pub fn enter() -> u8 {
    STATE.with(|state| state.call.replace(IN_CALL))
}

/// Ends a call that [`enter`] began.
pub fn leave(outer: u8) {
    STATE.with(|state| state.call.set(outer));
}

/// Records success for a call from C that had nothing to do and did not use [`begin_call`].
#[inline]
pub fn succeed() {
    STATE.with(|state| state.status.set(Status::OK.0));
}

/// Records that a call from C succeeded.
#[inline]
pub fn end_call() {
    compiler_fence(Ordering::SeqCst);
    STATE.with(|state| {
        state.call.set(0);
        state.status.set(Status::OK.0);
    });
}

/// Records that a call from C failed, with the driver's error code, or 0 if the driver did not cause the failure.
pub fn fail_call(status: Status, driver_code: u32) {
    STATE.with(|state| {
        state.status.set(status.0);
        state.driver_code.set(driver_code);
        state.refusal.set(None);
        compiler_fence(Ordering::SeqCst);
        state.call.set(0);
    });
}

/// Records that a call from C was refused before it began.
pub fn refuse_call(status: Status, message: &'static CStr) {
    STATE.with(|state| {
        state.status.set(status.0);
        state.driver_code.set(0);
        state.refusal.set(Some(message));
    });
}

/// Returns the message of the last call, if it was refused.
pub fn refusal() -> Option<&'static CStr> {
    STATE.with(|state| state.refusal.get())
}

/// Returns whether the thread is in a call from C.
pub fn in_call() -> bool {
    STATE.with(|state| state.call.get() & IN_CALL != 0)
}

/// Returns whether the sync debug mode knows that the thread's call from C waits.
pub fn is_wait_reported() -> bool {
    STATE.with(|state| state.call.get() & WAIT_REPORTED != 0)
}

/// Runs `body`, which may change what is recorded about the call. Afterwards the thread is in the same call as before.
pub fn within_call<T>(body: impl FnOnce() -> T) -> T {
    let outer = STATE.with(|state| state.call.get());
    let value = body();
    leave(outer);
    value
}

/// Calls the program, which may make other calls from C. Afterwards the thread is in the same call as before. Everything
/// that the library calls and that may call the library must be called here.
pub fn call_program<T>(body: impl FnOnce() -> T) -> T {
    let outer = STATE.with(|state| state.call.replace(0));
    let value = body();
    leave(outer);
    value
}

/// Records that the sync debug mode knows that the thread's call from C waits.
pub fn mark_wait_reported() {
    STATE.with(|state| state.call.set(state.call.get() | WAIT_REPORTED));
}

/// Returns the status and the driver's error code of the thread's last call from C, if that call failed.
pub fn failure() -> Option<(Status, u32)> {
    STATE.with(|state| match state.status.get() {
        0 => None,
        status => Some((Status(status), state.driver_code.get())),
    })
}
