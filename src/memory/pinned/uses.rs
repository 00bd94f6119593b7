//! Uses of pinned memory: by streams whose work accesses it, and by graphs that access it at each replay.
//!
//! The free of a block that streams use is deferred until an event that is recorded in each of these streams at the
//! free has completed. A use in a capturing stream becomes a part of the graph, and lasts until the driver has destroyed
//! the graph, its clones and its executables. No driver call is made under the lock of a shard, which holds the uses of its
//! blocks, or of this module, because the driver may report that on a thread that holds the driver's own locks.

use super::{
    block_uses::BlockUses,
    class,
    map::{self, SlabId},
    shards,
};
use crate::{
    error::{Context, Error, Result},
    memory::{
        arena::{StreamEvent, StreamUse},
        pointer, stream_events,
    },
    observe,
    runtime::Runtime,
    status::Status,
    stream::{
        self, Stream,
        capture_scope::{self, CaptureResource},
    },
};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// A freed block, and the events that must complete first.
#[derive(Debug)]
struct DeferredFree {
    address: u64,
    events: Vec<(StreamUse, StreamEvent)>,
}

/// The deferred frees, in the order of the frees.
#[derive(Debug)]
struct DeferredFrees {
    queue: Vec<DeferredFree>,
    /// A free checks the deferred frees if there are more than this many.
    check_threshold: usize,
}

/// The minimum of [`DeferredFrees::check_threshold`].
const MIN_CHECK_THRESHOLD: usize = 16;

static DEFERRED: Mutex<DeferredFrees> = Mutex::new(DeferredFrees { queue: Vec::new(), check_threshold: 0 });
/// Only one thread at a time queries events; the others wait for its result.
static PROCESSING: Mutex<()> = Mutex::new(());
/// Only one thread at a time waits for streams. Meanwhile it holds all deferred frees, so another thread that is short
/// of memory must wait for it instead of finding an empty queue.
static SYNCHRONIZING: Mutex<()> = Mutex::new(());

#[cold]
fn not_live(address: u64) -> Error {
    Error::new(
        Status::INVALID_POINTER,
        format!("{address:#x} is not in a live block of plinth_host_alloc: it is {}", pointer::describe(address)),
    )
}

/// Marks the live block that contains an address as used, and runs `body` with its uses and its start.
fn with_marked_block<T>(address: u64, body: impl FnOnce(&mut BlockUses, u64) -> T) -> Result<T> {
    let id = map::find(address).ok_or_else(|| not_live(address))?;
    let marked = shards::with(id.shard, |shard| {
        let start = shard.class(id.class).mark_used(id.number, address, class::size(id.class))?;
        Some(body(shard.uses().entry(start).or_default(), start))
    });
    marked.ok_or_else(|| not_live(address))
}

/// Makes the free of the block that contains an address known to [`defer_free`].
pub fn observe_free(address: u64) -> Result<()> {
    with_marked_block(address, |_, _| ())
}

/// Records that work in a stream uses the block that contains an address.
pub fn record(runtime: &Runtime, address: u64, stream: Stream) -> Result<()> {
    if let Some(capture) = stream::capture_id(runtime, stream)? {
        return record_capture(runtime, address, stream, capture).context(|| "keeping pinned memory alive for a graph");
    }
    let user = StreamUse::new(stream);
    with_marked_block(address, |uses, _| {
        if !uses.streams.contains(&user) {
            uses.streams.push(user);
        }
    })
}

/// The use of the block with this start by the graph of a capture.
struct GraphUse(u64);

impl CaptureResource for GraphUse {
    fn on_graph_destroyed(&self, capture: u64) -> bool {
        end_graph_use(self.0, capture);
        true
    }
}

fn record_capture(runtime: &Runtime, address: u64, stream: Stream, capture: u64) -> Result<()> {
    let new = with_marked_block(address, |uses, start| {
        let new = !uses.graphs.contains(&capture);
        if new {
            uses.graphs.push(capture);
        }
        new.then_some(start)
    })?;
    let Some(start) = new else { return Ok(()) };
    // If the driver has no user objects, the block stays reserved for the graph permanently.
    capture_scope::add_to_driver_graph(runtime, stream, capture, Arc::new(GraphUse(start)))
        .inspect_err(|_| end_graph_use(start, capture))
}

/// Drops a graph's use of a block. The calling thread may belong to the driver.
fn end_graph_use(start: u64, capture: u64) {
    if let Some(id) = remove_use(start, |uses| uses.graphs.retain(|held| *held != capture)) {
        observe::forget_memory(start, class::size(id.class));
        finish_free(start, id);
        super::after_graph_release(start);
    }
}

/// Ends a use of the block with this start: `body` removes it. Returns where the block is if it was freed and has no uses
/// left: then the caller finishes its free.
fn remove_use(start: u64, body: impl FnOnce(&mut BlockUses)) -> Option<SlabId> {
    let id = map::find(start)?;
    shards::with(id.shard, |shard| {
        let uses = shard.uses().get_mut(&start)?;
        body(uses);
        let done = uses.is_over();
        done.then(|| shard.uses().remove(&start)).map(|_| id)
    })
}

/// Ends the uses of a freed block by streams.
fn finish_stream_uses(runtime: &Runtime, address: u64) -> bool {
    let Some(id) = remove_use(address, |uses| uses.waits_for_streams = false) else { return false };
    finish_free(address, id);
    super::after_deferred_free(runtime, address);
    true
}

/// Completes the deferred free of a block.
fn finish_free(address: u64, id: SlabId) {
    observe::on_pinned_reuse(address, class::size(id.class));
    shards::with(id.shard, |shard| shard.finish_deferred_free(id, address));
}

/// Defers the free of a block until its recorded uses have completed.
pub fn defer_free(runtime: &Runtime, address: u64) {
    let Some(id) = map::find(address) else { return };
    let (streams, unused_by_graphs) = shards::with(id.shard, |shard| {
        let Some(uses) = shard.uses().get_mut(&address) else { return (Vec::new(), true) };
        (uses.freed, uses.waits_for_streams) = (true, true);
        (std::mem::take(&mut uses.streams), uses.graphs.is_empty())
    });
    // A graph may access the block as long as the graph exists.
    if observe::is_on() && unused_by_graphs {
        observe::on_pinned_free(address, class::size(id.class), &streams);
    }
    let mut events: Vec<(StreamUse, StreamEvent)> =
        streams.into_iter().map(|user| (user, stream_events::record_event(runtime, user))).collect();
    // A use that has completed already need not enter the queue.
    if let [(_, event)] = &mut events[..]
        && stream_events::is_complete(runtime, event, false)
    {
        events.clear();
    }
    if events.is_empty() {
        finish_stream_uses(runtime, address);
        return;
    }
    let many = {
        let mut deferred = DEFERRED.lock();
        deferred.queue.push(DeferredFree { address, events });
        deferred.queue.len() > deferred.check_threshold.max(MIN_CHECK_THRESHOLD)
    };
    // A slab cache with free blocks does not check deferred frees, and each of them holds an event.
    if many {
        process_events(runtime, false);
    }
}

/// Frees the blocks whose events have completed. With `wait`, waits for the events of the others, and for a thread
/// that is already waiting. Returns whether any block was freed.
pub fn process_events(runtime: &Runtime, wait: bool) -> bool {
    super::trim_pending(runtime);
    let _synchronizing = wait.then(|| SYNCHRONIZING.lock());
    let processing = PROCESSING.lock();
    let mut queue = std::mem::take(&mut DEFERRED.lock().queue);
    // A thread that waits for streams does not block threads that only query events.
    let _processing = (!wait).then_some(processing);
    if queue.is_empty() {
        return false;
    }
    // A stream that has not completed one event has not completed its later ones.
    let mut incomplete: Vec<StreamUse> = Vec::new();
    for entry in &mut queue {
        entry.events.retain_mut(|(stream, event)| {
            if !wait && incomplete.contains(stream) {
                return true;
            }
            let passed = stream_events::is_complete(runtime, event, wait);
            if !passed {
                incomplete.push(*stream);
            }
            !passed
        });
    }
    let (completed, mut remaining): (Vec<_>, Vec<_>) = queue.into_iter().partition(|entry| entry.events.is_empty());
    {
        let mut deferred = DEFERRED.lock();
        remaining.append(&mut deferred.queue);
        deferred.check_threshold = 2 * remaining.len();
        deferred.queue = remaining;
    }
    completed.into_iter().filter(|entry| finish_stream_uses(runtime, entry.address)).count() > 0
}

/// Keeps other threads from processing deferred frees as long as the guard lives.
pub fn lock_processing() -> MutexGuard<'static, ()> {
    PROCESSING.lock()
}

/// Returns whether any free is deferred until streams have completed.
pub fn has_deferred_frees() -> bool {
    !DEFERRED.lock().queue.is_empty()
}
