//! Notifications about operations that order work: events, waits of streams and of the CPU, captures, and the graphs
//! that captures create. A gate can refuse the waits of the CPU.
//!
//! Every such operation goes through this crate, so the notifications are sent here. They are sent only while an
//! observer is enabled; the check costs one load.

use super::{Call, Driver, DriverResult, Event, Failure, Graph, GraphExec, Stream, codes};
use once_cell::sync::OnceCell;
use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
};

/// Called when a wait is over.
pub type OnWaitEnd = Box<dyn FnOnce()>;

/// Receives notifications of successful calls, in the thread that made them, and of waits before they begin.
pub trait Observer: Sync {
    /// The CPU is about to wait until a stream is idle.
    fn stream_awaited(&self, driver: &Driver, stream: Stream) -> OnWaitEnd;
    /// The CPU is about to wait for an event's last recording.
    fn event_awaited(&self, event: Event) -> OnWaitEnd;
    /// The CPU is about to wait until the calling thread's context is idle.
    fn context_awaited(&self, driver: &Driver) -> OnWaitEnd;
    /// An event was recorded in a stream; with `external`, as a node of the graph that the stream captures.
    fn recorded(&self, driver: &Driver, event: Event, stream: Stream, external: bool);
    /// Later work in a stream waits for an event; with `external`, as a node of the graph that the stream captures.
    fn waits(&self, driver: &Driver, stream: Stream, event: Event, external: bool);
    /// A stream was destroyed. Its work may not be complete.
    fn stream_ended(&self, stream: Stream);
    /// An event was destroyed.
    fn event_ended(&self, event: Event);
    /// A range of addresses was unmapped, and no running work uses it.
    fn unmapped(&self, address: u64, bytes: u64);
    /// The driver allocated a range of addresses, and no running work uses an earlier allocation at them.
    fn allocated(&self, address: u64, bytes: u64);
    /// A stream began to capture; with `part`, into a part of another graph.
    fn capture_begun(&self, driver: &Driver, stream: Stream, part: bool);
    /// The capture that began in a stream ended, with its graph if it produced one.
    fn capture_ended(&self, driver: &Driver, stream: Stream, graph: Option<Graph>);
    /// The nodes of a graph changed.
    fn graph_changed(&self, graph: Graph);
    /// A graph was cloned.
    fn graph_copied(&self, from: Graph, to: Graph);
    /// A graph was destroyed.
    fn graph_ended(&self, graph: Graph);
    /// An executable graph was instantiated from a graph, or updated to it.
    fn exec_made(&self, driver: &Driver, exec: GraphExec, graph: Graph);
    /// The launches of an executable graph no longer match its graph.
    fn exec_changed(&self, exec: GraphExec);
    /// An executable graph was destroyed.
    fn exec_ended(&self, exec: GraphExec);
}

static OBSERVER: OnceCell<&'static dyn Observer> = OnceCell::new();
static ENABLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread's operations are hidden from the observer.
    static UNOBSERVED: Cell<bool> = const { Cell::new(false) };
}

/// Enables notifications to an observer. Every call must pass the same observer.
pub fn enable(observer: &'static dyn Observer) {
    OBSERVER.get_or_init(|| observer);
    ENABLED.store(true, Ordering::Release);
}

/// Disables notifications.
pub fn disable() {
    ENABLED.store(false, Ordering::Release);
}

/// Runs `body` without notifications. The allocator uses this for its own ordering, on which a program must not rely.
pub fn run_unobserved<T>(body: impl FnOnce() -> T) -> T {
    if !ENABLED.load(Ordering::Relaxed) {
        return body();
    }
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            UNOBSERVED.with(|flag| flag.set(self.0));
        }
    }
    let _leave = Leave(UNOBSERVED.with(|flag| flag.replace(true)));
    body()
}

/// Decides whether the calling thread may make a call that blocks the CPU until the device has done work.
pub type WaitGate = fn(Call) -> bool;

static GATE: OnceCell<WaitGate> = OnceCell::new();
static GATED: AtomicBool = AtomicBool::new(false);

/// Asks `gate` before each call that blocks the CPU, while `enabled`. Every call must pass the same gate. A call that it
/// refuses is not made, and fails with [`codes::WAIT_REFUSED`].
pub fn gate_waits(gate: WaitGate, enabled: bool) {
    GATE.get_or_init(|| gate);
    GATED.store(enabled, Ordering::Release);
}

/// Fails if the calling thread may not make a call that blocks the CPU.
#[inline]
pub(super) fn check_wait(call: Call) -> DriverResult<()> {
    if GATED.load(Ordering::Acquire) && GATE.get().is_some_and(|may_wait| !may_wait(call)) {
        return Err(Failure { call, code: codes::WAIT_REFUSED });
    }
    Ok(())
}

/// Makes a call that blocks the CPU, if the thread may make it. Notifies the observer before the wait, and after it if it
/// succeeds.
#[inline]
pub(super) fn observe_wait<T>(
    call: Call,
    begin: impl FnOnce(&'static dyn Observer) -> OnWaitEnd,
    wait: impl FnOnce() -> DriverResult<T>,
) -> DriverResult<T> {
    check_wait(call)?;
    let end = current().map(begin);
    let value = wait()?;
    if let Some(end) = end {
        end();
    }
    Ok(value)
}

/// Notifies the observer of an allocated range of addresses.
pub(super) fn notify_allocated(address: u64, bytes: u64) {
    if let Some(observer) = current() {
        observer.allocated(address, bytes);
    }
}

/// Returns the observer if it is enabled for the calling thread.
#[inline]
pub(super) fn current() -> Option<&'static dyn Observer> {
    if ENABLED.load(Ordering::Relaxed) { current_of_thread() } else { None }
}

#[cold]
fn current_of_thread() -> Option<&'static dyn Observer> {
    if UNOBSERVED.with(Cell::get) { None } else { OBSERVER.get().copied() }
}
