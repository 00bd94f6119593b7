//! Stream events: track when the device is done with memory.
//!
//! Nothing here blocks the CPU except the waits that a caller requests. Stream orderings made here are hidden from the
//! stream sanitizer, because whether they exist depends on memory pressure. No event is recorded in a capturing stream,
//! because the event would become part of the graph; it is recorded after the capture ends.

use super::{
    arena::{Arena, DeferredFree, PendingUnmap, StreamEvent, StreamUse},
    handles,
    ipc::exports,
    registration::registered,
};
use crate::{
    driver::{self, Driver, Stream, observer},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
    stream::{self, capture_lock, ordering::OutsideCaptures},
};
use std::{sync::atomic::Ordering, thread, time::Duration};

/// How many deferred frees a request polls.
const MAX_POLLED: usize = 32;
/// How often a thread that waits looks for an event that another one has.
const TAKEN_PAUSE: Duration = Duration::from_micros(50);

/// Returns whether all work of the arena's stream is done. Before a handle is detached, the answer says little about its
/// memory: another thread may get it, use it and free it.
pub fn is_idle(runtime: &Runtime, arena: &Arena) -> bool {
    query(runtime, arena) == Some(true)
}

/// Returns whether work of the arena's stream is known to run.
pub fn is_busy(runtime: &Runtime, arena: &Arena) -> bool {
    query(runtime, arena) == Some(false)
}

/// Returns whether all work of the arena's stream is done; `None` if that cannot be asked, as while it captures.
fn query(runtime: &Runtime, arena: &Arena) -> Option<bool> {
    let stream_use = arena.stream_use();
    if !stream_use.has_usable_handle() {
        return None;
    }
    let outside = OutsideCaptures::lock(runtime);
    let stream = stream::of_use(runtime, stream_use);
    if outside.contains(stream).unwrap_or(false) { outside.is_idle(stream).ok() } else { None }
}

/// Returns whether an event can be recorded in the arena's stream.
pub fn can_record_event(runtime: &Runtime, arena: &Arena) -> bool {
    let outside = OutsideCaptures::lock(runtime);
    outside.contains(stream_of(runtime, arena)).unwrap_or(false)
}

/// Makes later work of a stream of the device wait for the current work of an arena's stream. Returns `false`, without
/// effect, if either stream is capturing.
pub fn order_after(runtime: &Runtime, device: &Device, waiting: Stream, arena: &Arena) -> Result<bool> {
    let outside = OutsideCaptures::lock(runtime);
    let (waiting, awaited) = (stream::from_validated(runtime, waiting, device.ordinal), stream_of(runtime, arena));
    if !outside.contains(waiting)? || !outside.contains(awaited)? {
        return Ok(false);
    }
    observer::run_unobserved(|| outside.make_wait(waiting, awaited)).map(|()| true)
}

/// Returns the stream after whose work an arena's memory can be reused.
pub fn stream_of(runtime: &Runtime, arena: &Arena) -> stream::Stream {
    stream::of_use(runtime, arena.stream_use())
}

/// Records an event in a stream, if possible.
pub(super) fn record_event(runtime: &Runtime, stream_use: StreamUse) -> StreamEvent {
    let recorded = runtime.driver.with_relaxed_capture(|| {
        let outside = OutsideCaptures::lock(runtime);
        let stream = stream::of_use(runtime, stream_use);
        outside.check(stream)?;
        outside.record(stream, 0)
    });
    match recorded {
        Ok(Ok(event)) => StreamEvent::Recorded(event),
        Ok(Err(_)) | Err(_) => StreamEvent::Pending(stream_use),
    }
}

/// Returns whether handles may be taken from an arena: its pool is the default one or has ended, and so has the work of
/// the pool's graphs. With `wait`, waits for that work.
pub fn may_move_memory(runtime: &Runtime, device: &Device, arena: &Arena, wait: bool) -> bool {
    if !arena.is_outside_graphs() {
        return false;
    }
    let take = || {
        let mut inner = arena.lock();
        let generation = inner.space.generation;
        inner.graph_work.as_mut().map(|event| (std::mem::replace(event, StreamEvent::Taken), generation))
    };
    let (mut event, generation) = loop {
        match take() {
            None => return true,
            // The thread that has the event may wait for it.
            Some((StreamEvent::Taken, _)) if wait => thread::sleep(TAKEN_PAUSE),
            Some((StreamEvent::Taken, _)) => return false,
            Some(taken) => break taken,
        }
    };
    let complete = is_graph_work_complete(runtime, device, &mut event, wait);
    let mut inner = arena.lock();
    match inner.graph_work {
        None => complete,
        Some(StreamEvent::Taken) if inner.space.generation == generation => {
            inner.graph_work = (!complete).then_some(event);
            complete
        }
        // The arena got other work meanwhile.
        Some(_) => false,
    }
}

/// Does the same as [`is_complete`] for an event that follows all work of a device. Without CUDA 12.5, which records such
/// events, the work is complete when this has waited for the device.
fn is_graph_work_complete(runtime: &Runtime, device: &Device, event: &mut StreamEvent, wait: bool) -> bool {
    // While hooks route requests of captures, a capture may be in progress that the library does not know of.
    if matches!(event, StreamEvent::PendingDevice) && !device.memory().routes.has_hooks() {
        let recorded = runtime.driver.with_relaxed_capture(|| capture_lock::record_in_device(runtime, device));
        match recorded.map_err(Error::from).flatten() {
            Ok(recorded) => *event = StreamEvent::Recorded(recorded),
            Err(error) if wait && error.status() == Status::NOT_SUPPORTED => {
                return capture_lock::synchronize_device(runtime, device).is_ok();
            }
            Err(_) => {}
        }
    }
    is_complete(runtime, event, wait)
}

/// Returns whether an event is complete. Records the event first if that is pending.
pub(super) fn is_complete(runtime: &Runtime, event: &mut StreamEvent, wait: bool) -> bool {
    if let StreamEvent::Pending(stream_use) = *event {
        *event = record_event(runtime, stream_use);
    }
    let event = match event {
        StreamEvent::Recorded(event) => event.native(),
        // Never waits for other processes, which may never release the block.
        StreamEvent::HeldByProcesses(serial) => return exports::is_released(*serial),
        StreamEvent::Registered(arena, block) => return !registered::is_registered(*arena, *block),
        StreamEvent::Pending(_) | StreamEvent::PendingDevice | StreamEvent::Taken => return false,
    };
    if wait {
        return synchronize(runtime, event).is_ok();
    }
    let query = |driver: &Driver| driver.with_relaxed_capture(|| driver.event_query(event));
    runtime.in_any_context(|driver| Ok(query(driver)??)).unwrap_or(false)
}

/// Waits for the current work of an arena's stream, unless the stream is capturing.
pub fn wait_for_stream(runtime: &Runtime, arena: &Arena) {
    // Recording an event occupies the device, which other processes may be using.
    if is_idle(runtime, arena) {
        return;
    }
    is_complete(runtime, &mut StreamEvent::Pending(arena.stream_use()), true);
}

/// Defers the free of a block until the recorded streams, the processes that hold the block and its registrations are done
/// with it.
pub fn defer_free(runtime: &Runtime, arena: &Arena, block: u32, uses: Vec<StreamUse>) {
    let mut events: Vec<StreamEvent> = uses.into_iter().map(|stream_use| record_event(runtime, stream_use)).collect();
    events.extend(exports::holder_event(arena.number, block));
    if registered::is_registered(arena.number, block) {
        events.push(StreamEvent::Registered(arena.number, block));
    }
    let mut inner = arena.lock();
    if events.is_empty() {
        inner.space.finish_deferred_free(block);
    } else {
        inner.deferred_frees.push(DeferredFree { block, events });
    }
}

/// Frees addresses whose memory was moved or returns to the driver: at once if the stream that used them is idle, otherwise later. After
/// a failed unmap, it is retried later.
pub fn free_addresses_when_idle(
    runtime: &Runtime,
    device: &Device,
    arena: &Arena,
    mut pending: PendingUnmap,
    idle: bool,
) -> Result<()> {
    if pending.physical.is_some() {
        device.memory().pending_release.fetch_add(pending.bytes, Ordering::AcqRel);
    }
    let outcome = if idle { free_addresses(runtime, device, arena, &pending) } else { Ok(()) };
    if !idle || outcome.is_err() {
        if let StreamEvent::Pending(stream_use) = pending.event {
            pending.event = record_event(runtime, stream_use);
        }
        arena.lock().pending_unmaps.push(pending);
    }
    outcome
}

/// Frees addresses that the device no longer uses. If their memory returns to the driver, they are unmapped; if it has moved, that
/// can wait.
fn free_addresses(runtime: &Runtime, device: &Device, arena: &Arena, pending: &PendingUnmap) -> Result<()> {
    let driver = &runtime.driver;
    if let Some(physical) = pending.physical {
        driver.memory_unmap(pending.address, pending.bytes).context(|| "unmapping memory")?;
        if handles::release(device, driver, physical) {
            device.memory().released.increment();
            device.memory().release_held(pending.bytes);
        }
        device.memory().pending_release.fetch_sub(pending.bytes, Ordering::AcqRel);
    } else {
        device.memory().previous_mappings.lock().end_use(driver, pending.address);
    }
    arena.lock().space.free_addresses(pending.block, pending.address);
    Ok(())
}

/// Frees the blocks of an arena whose events are complete, and the addresses that the device no longer uses. Returns whether
/// anything was freed.
pub fn process_events(runtime: &Runtime, device: &Device, arena: &Arena) -> bool {
    let _taking = arena.events.lock();
    process_taken(runtime, device, arena)
}

/// Does the same for a caller that holds [`Arena::events`].
fn process_taken(runtime: &Runtime, device: &Device, arena: &Arena) -> bool {
    let (deferred_frees, pending_unmaps) = {
        let mut inner = arena.lock();
        if inner.deferred_frees.is_empty() && inner.pending_unmaps.is_empty() {
            return false;
        }
        (std::mem::take(&mut inner.deferred_frees), std::mem::take(&mut inner.pending_unmaps))
    };
    let mut any = finish_deferred_frees(runtime, arena, deferred_frees);
    for mut entry in pending_unmaps {
        let mut complete = is_complete(runtime, &mut entry.event, false);
        if complete {
            complete = free_addresses(runtime, device, arena, &entry).is_ok();
            any |= complete;
            if !complete {
                entry.event = StreamEvent::Pending(arena.stream_use());
            }
        }
        if !complete {
            arena.lock().pending_unmaps.push(entry);
        }
    }
    any
}

/// Frees the blocks whose events are complete; the others stay deferred. Returns whether anything was freed.
fn finish_deferred_frees(runtime: &Runtime, arena: &Arena, entries: Vec<DeferredFree>) -> bool {
    let mut any = false;
    for mut entry in entries {
        entry.events.retain_mut(|event| !is_complete(runtime, event, false));
        let mut inner = arena.lock();
        if entry.events.is_empty() {
            inner.space.finish_deferred_free(entry.block);
            any = true;
        } else {
            inner.deferred_frees.push(entry);
        }
    }
    any
}

/// Waits for the events of what an arena defers, and of the work of its pool's graphs. All of it stays in the arena meanwhile:
/// the thread that grows the arena must find it.
pub fn wait_for_events(runtime: &Runtime, device: &Device, arena: &Arena) {
    let events: Vec<driver::Event> = {
        let _taking = arena.events.lock();
        process_taken(runtime, device, arena);
        let inner = arena.lock();
        let deferred = inner.deferred_frees.iter().flat_map(|entry| &entry.events);
        let all = deferred.chain(inner.pending_unmaps.iter().map(|entry| &entry.event)).chain(&inner.graph_work);
        let native = |event: &StreamEvent| match event {
            StreamEvent::Recorded(event) => Some(event.native()),
            _ => None,
        };
        all.filter_map(native).collect()
    };
    // Another thread may find one of them complete meanwhile, and record it anew in another stream: then
    // the wait is unnecessary, but harmless.
    events.into_iter().for_each(|event| drop(synchronize(runtime, event)));
    process_events(runtime, device, arena);
    may_move_memory(runtime, device, arena, true);
}

/// Waits for an event, unseen by the sanitizer.
fn synchronize(runtime: &Runtime, event: driver::Event) -> Result<()> {
    let wait = |driver: &Driver| observer::run_unobserved(|| driver.event_synchronize(event));
    runtime.in_any_context(|driver| Ok(driver.with_relaxed_capture(|| wait(driver))??))
}

/// Frees blocks whose events are complete, of those that have waited longest. A request does this at most once in each
/// interval of [`Inner::is_poll_due`], and not for many blocks, so it costs little, and a block is reused soon after its
/// streams are done with it.
///
/// [`Inner::is_poll_due`]: super::arena::Inner::is_poll_due
pub fn poll_deferred_frees(runtime: &Runtime, device: &Device, arena: &Arena) -> Result<()> {
    // The thread that grows the arena polls itself, and must find all blocks that wait.
    let (Some(_growth), Some(_taking)) = (arena.growth.try_lock(), arena.events.try_lock()) else { return Ok(()) };
    let poll = || {
        let entries: Vec<DeferredFree> = {
            let mut inner = arena.lock();
            let count = inner.deferred_frees.len().min(MAX_POLLED);
            inner.deferred_frees.drain(..count).collect()
        };
        finish_deferred_frees(runtime, arena, entries);
    };
    device.with_context(&runtime.driver, |driver| Ok(driver.with_relaxed_capture(poll)?))
}

/// Returns whether [`wait_for_events`] and [`wait_for_stream`] would wait for work of the device.
pub fn would_wait(runtime: &Runtime, device: &Device, arena: &Arena) -> bool {
    process_events(runtime, device, arena);
    let waits_for_device =
        |event: &StreamEvent| !matches!(event, StreamEvent::HeldByProcesses(_) | StreamEvent::Registered(..));
    let pending = {
        let inner = arena.lock();
        inner.deferred_frees.iter().flat_map(|entry| &entry.events).any(waits_for_device)
            || !inner.pending_unmaps.is_empty()
    };
    let graph_work = arena.is_outside_graphs() && !may_move_memory(runtime, device, arena, false);
    pending || graph_work || !is_idle(runtime, arena) && can_record_event(runtime, arena)
}

/// Processes events, and returns whether no deferred frees and no pending unmaps remain.
pub fn poll_events_done(runtime: &Runtime, device: &Device, arena: &Arena) -> bool {
    process_events(runtime, device, arena);
    let inner = arena.lock();
    inner.pending_unmaps.is_empty() && inner.deferred_frees.is_empty()
}
