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
pub type AtEnd = Box<dyn FnOnce()>;

/// Is told of calls that have succeeded, by the thread that made them, and of waits before they begin.
pub trait Watcher: Sync {
    /// The CPU is about to wait until a stream has nothing left to do.
    fn stream_awaited(&self, driver: &Driver, stream: Stream) -> AtEnd;
    /// The CPU is about to wait for what an event recorded last.
    fn event_awaited(&self, event: Event) -> AtEnd;
    /// The CPU is about to wait until the calling thread's context has nothing left to do.
    fn context_awaited(&self, driver: &Driver) -> AtEnd;
    /// An event was recorded in a stream; with `external`, as a node of the graph that the stream captures.
    fn recorded(&self, driver: &Driver, event: Event, stream: Stream, external: bool);
    /// Later work of a stream waits for an event; with `external`, as a node of the graph that the stream captures.
    fn waits(&self, driver: &Driver, stream: Stream, event: Event, external: bool);
    /// An event is no more.
    fn event_ended(&self, event: Event);
    /// Nothing is mapped at some addresses any more, and nothing that used them runs.
    fn unmapped(&self, address: u64, bytes: u64);
    /// The driver has given addresses out, and nothing that used them before runs.
    fn fresh(&self, address: u64, bytes: u64);
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

static WATCHER: OnceCell<&'static dyn Watcher> = OnceCell::new();
static WATCHING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether what this thread does is told to nobody.
    static UNSEEN: Cell<bool> = const { Cell::new(false) };
}

/// Lets a watcher watch, the same one each time.
pub fn begin(watcher: &'static dyn Watcher) {
    WATCHER.get_or_init(|| watcher);
    WATCHING.store(true, Ordering::Release);
}

/// Lets nobody watch.
pub fn end() {
    WATCHING.store(false, Ordering::Release);
}

/// Runs `body`, of which nobody is told: the allocator's own order, which is not what a program may rely on.
pub fn unseen<T>(body: impl FnOnce() -> T) -> T {
    if !WATCHING.load(Ordering::Relaxed) {
        return body();
    }
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            UNSEEN.with(|unseen| unseen.set(self.0));
        }
    }
    let _leave = Leave(UNSEEN.with(|unseen| unseen.replace(true)));
    body()
}

/// Makes a call by which the CPU waits.
#[inline]
pub(super) fn awaiting<T, E>(
    begin: impl FnOnce(&'static dyn Watcher) -> AtEnd,
    wait: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let end = watcher().map(begin);
    let answer = wait()?;
    if let Some(end) = end {
        end();
    }
    Ok(answer)
}

/// Tells of addresses that the driver has given out.
pub(super) fn fresh(address: u64, bytes: u64) {
    if let Some(watcher) = watcher() {
        watcher.fresh(address, bytes);
    }
}

/// Whoever watches this thread.
#[inline]
pub(super) fn watcher() -> Option<&'static dyn Watcher> {
    if WATCHING.load(Ordering::Relaxed) { seen() } else { None }
}

#[cold]
fn seen() -> Option<&'static dyn Watcher> {
    if UNSEEN.with(Cell::get) { None } else { WATCHER.get().copied() }
}
