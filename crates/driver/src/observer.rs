//! Who is told of what orders work: events, waits of streams and of the CPU, captures, and the graphs that come of them.
//!
//! All of it goes through the calls of this folder, whoever makes them, so that is where it is told. Nothing is told but
//! while somebody watches, and looking whether anybody does is one load.

use super::{Driver, Event, Graph, GraphExec, GraphNode, Stream};
use once_cell::sync::OnceCell;
use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
};

/// To be called when a wait is over.
pub type OnWaitEnd = Box<dyn FnOnce()>;

/// Is told of calls that have succeeded, by the thread that made them, and of waits before they begin.
pub trait Observer: Sync {
    /// The CPU is about to wait until a stream has nothing left to do.
    fn stream_awaited(&self, driver: &Driver, stream: Stream) -> OnWaitEnd;
    /// The CPU is about to wait for what an event recorded last.
    fn event_awaited(&self, event: Event) -> OnWaitEnd;
    /// The CPU is about to wait until the calling thread's context has nothing left to do.
    fn context_awaited(&self, driver: &Driver) -> OnWaitEnd;
    /// An event was recorded in a stream; with `external`, as a node of the graph that the stream captures.
    fn recorded(&self, driver: &Driver, event: Event, stream: Stream, external: bool);
    /// Later work of a stream waits for an event; with `external`, as a node of the graph that the stream captures.
    fn waits(&self, driver: &Driver, stream: Stream, event: Event, external: bool);
    /// An event is no more.
    fn event_ended(&self, event: Event);
    /// Nothing is mapped at some addresses any more, and nothing that used them runs.
    fn unmapped(&self, address: u64, bytes: u64);
    /// The driver has given addresses out, and nothing that used them before runs.
    fn allocated(&self, address: u64, bytes: u64);
    /// A stream begins to capture; with `part`, into a graph that is a part of another.
    fn capture_begun(&self, driver: &Driver, stream: Stream, part: bool);
    /// The capture that began in a stream has ended, with this graph if with any.
    fn capture_ended(&self, driver: &Driver, stream: Stream, graph: Option<Graph>);
    /// A graph has other nodes than before.
    fn graph_changed(&self, graph: Graph);
    /// A node of a graph records an event, or waits for it.
    fn event_node_added(&self, graph: Graph, node: GraphNode, event: Event);
    /// A graph is a copy of another.
    fn graph_copied(&self, from: Graph, to: Graph);
    /// A graph is no more.
    fn graph_ended(&self, graph: Graph);
    /// Launches of an executable graph do what a graph says.
    fn exec_made(&self, driver: &Driver, exec: GraphExec, graph: Graph);
    /// Launches of an executable graph do something else than its graph says.
    fn exec_changed(&self, exec: GraphExec);
    /// An executable graph is no more.
    fn exec_ended(&self, exec: GraphExec);
}

static OBSERVER: OnceCell<&'static dyn Observer> = OnceCell::new();
static ENABLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether what this thread does is told to nobody.
    static UNOBSERVED: Cell<bool> = const { Cell::new(false) };
}

/// Lets a observer watch, the same one each time.
pub fn enable(observer: &'static dyn Observer) {
    OBSERVER.get_or_init(|| observer);
    ENABLED.store(true, Ordering::Release);
}

/// Lets nobody watch.
pub fn disable() {
    ENABLED.store(false, Ordering::Release);
}

/// Runs `body`, of which nobody is told: the allocator's own order, which is not what a program may rely on.
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

/// Makes a call by which the CPU waits.
#[inline]
pub(super) fn observe_wait<T, E>(
    begin: impl FnOnce(&'static dyn Observer) -> OnWaitEnd,
    wait: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let end = current().map(begin);
    let answer = wait()?;
    if let Some(end) = end {
        end();
    }
    Ok(answer)
}

/// Tells of addresses that the driver has given out.
pub(super) fn notify_allocated(address: u64, bytes: u64) {
    if let Some(observer) = current() {
        observer.allocated(address, bytes);
    }
}

/// Whoever watches this thread.
#[inline]
pub(super) fn current() -> Option<&'static dyn Observer> {
    if ENABLED.load(Ordering::Relaxed) { current_of_thread() } else { None }
}

#[cold]
fn current_of_thread() -> Option<&'static dyn Observer> {
    if UNOBSERVED.with(Cell::get) { None } else { OBSERVER.get().copied() }
}
