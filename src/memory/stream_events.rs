//! Stream events: track when the device is done with memory.
//!
//! Nothing here blocks the CPU except the waits that a caller requests. Stream orderings made here are hidden from the
//! stream sanitizer, because whether they exist depends on memory pressure. No event is recorded in a capturing stream,
//! because the event would become part of the graph; it is recorded after the capture ends.

use super::{
    arena::{Arena, DeferredFree, PendingUnmap, StreamEvent, StreamUse},
    ipc,
};
use crate::{
    driver::{Driver, Failure, Stream, codes, observer, types::*},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
    stream::{self, capture_lock, event_pool},
};

/// Makes a call that undoes another one, and retries it on failure. Returns whether it succeeded.
pub fn retry<E>(mut call: impl FnMut() -> std::result::Result<(), E>) -> bool {
    (0..3).any(|_| call().is_ok())
}

/// Returns whether a stream is capturing, or its capture status cannot be determined.
pub fn is_capturing(driver: &Driver, stream: Stream) -> bool {
    !matches!(driver.stream_capture_status(stream), Ok(CU_STREAM_CAPTURE_STATUS_NONE))
}

/// Returns whether all work of the arena's stream is done.
pub fn is_idle(runtime: &Runtime, arena: &Arena) -> bool {
    let (driver, stream_use) = (&runtime.driver, arena.stream_use());
    let _held = capture_lock::lock_shared();
    stream_use.has_usable_handle()
        && !is_capturing(driver, stream_use.stream)
        && driver.stream_query(stream_use.stream).unwrap_or(false)
}

/// Returns whether an event can be recorded in the arena's stream.
pub fn can_record_event(runtime: &Runtime, arena: &Arena) -> bool {
    !is_capturing(&runtime.driver, arena.stream_use().event_stream())
}

/// Makes later work of a stream of the device wait for the current work of an arena's stream. Returns `false`, without
/// effect, if either stream is capturing.
pub fn order_after(runtime: &Runtime, device: &Device, waiting: Stream, arena: &Arena) -> Result<bool> {
    let (driver, awaited) = (&runtime.driver, arena.stream_use().event_stream());
    event_pool::with(runtime, device.ordinal, |event| {
        let _held = capture_lock::lock_shared();
        if is_capturing(driver, waiting) || is_capturing(driver, awaited) {
            return Ok(false);
        }
        observer::run_unobserved(|| {
            driver.event_record(event, awaited)?;
            driver.stream_wait_event(waiting, event, CU_EVENT_WAIT_DEFAULT)
        })?;
        Ok(true)
    })
}

/// Returns the stream after whose work an arena's memory can be reused.
pub fn stream_of(runtime: &Runtime, arena: &Arena) -> stream::Stream {
    let stream_use = arena.stream_use();
    stream::from_validated(runtime, stream_use.event_stream(), stream_use.device)
}

/// Records an event in a stream, if possible.
pub(super) fn record_event(runtime: &Runtime, stream_use: StreamUse) -> StreamEvent {
    let pending = StreamEvent::Pending(stream_use);
    let stream = stream_use.event_stream();
    let Ok(device) = super::device_memory::device(runtime, stream_use.device) else { return pending };
    let recorded = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            let _held = capture_lock::lock_shared();
            if is_capturing(driver, stream) {
                return Err(Error::new(Status::CAPTURE_FORBIDS, "the stream is capturing"));
            }
            let event = event_pool::acquire(device, driver, 0)?;
            match driver.event_record(event, stream) {
                Ok(()) => Ok(StreamEvent::Recorded(event, stream_use.device)),
                Err(failure) => {
                    event_pool::release(device, 0, event);
                    Err(failure.into())
                }
            }
        })?
    });
    recorded.unwrap_or(pending)
}

/// Returns whether an event is complete. Records the event first if that is pending.
pub(super) fn is_complete(runtime: &Runtime, event: &mut StreamEvent, wait: bool) -> bool {
    if let StreamEvent::Pending(stream_use) = *event {
        *event = record_event(runtime, stream_use);
    }
    let (event, number) = match *event {
        StreamEvent::Recorded(event, number) => (event, number),
        // Never waits for other processes, which may never release the block.
        StreamEvent::HeldByProcesses(serial) => return ipc::is_released(serial),
        StreamEvent::Pending(_) => return false,
    };
    let Ok(device) = super::device_memory::device(runtime, number) else { return false };
    let done = device.with_context(&runtime.driver, |driver| {
        Ok(driver.with_relaxed_capture(|| {
            if wait {
                observer::run_unobserved(|| driver.event_synchronize(event)).map(|()| true)
            } else {
                driver.event_query(event)
            }
        })??)
    });
    if matches!(done, Ok(true)) {
        event_pool::release(device, 0, event);
        return true;
    }
    false
}

/// Waits for the current work of a stream of a device. Calls `may_wait` first if the stream is busy. Returns `false`
/// without waiting if the stream is capturing. The caller has made the device's context current and the thread's
/// capture mode relaxed.
///
/// It waits for an event and not for the stream: a stream must not begin a capture while it is synchronized, but
/// another thread may begin one.
pub(super) fn finish_stream(
    device: &Device,
    driver: &Driver,
    stream: Stream,
    may_wait: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let held = capture_lock::lock_shared();
    match driver.stream_capture_status(stream) {
        Ok(CU_STREAM_CAPTURE_STATUS_NONE) => {}
        // This is the error of the legacy default stream while a stream that it would synchronize with is capturing.
        Ok(_) | Err(Failure { code: codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, .. }) => return Ok(false),
        Err(failure) => return Err(failure.into()),
    }
    if driver.stream_query(stream)? {
        return Ok(true);
    }
    may_wait()?;
    let event = event_pool::acquire(device, driver, 0)?;
    let recorded = driver.event_record(event, stream);
    drop(held);
    let waited = recorded.and_then(|()| observer::run_unobserved(|| driver.event_synchronize(event)));
    event_pool::release(device, 0, event);
    waited.map(|()| true).map_err(Error::from)
}

/// Waits for the current work of an arena's stream, unless the stream is capturing.
pub fn wait_for_stream(runtime: &Runtime, arena: &Arena) {
    // Recording an event occupies the device, which other processes may be using.
    if is_idle(runtime, arena) {
        return;
    }
    let mut end = StreamEvent::Pending(arena.stream_use());
    if !is_complete(runtime, &mut end, true)
        && let StreamEvent::Recorded(event, number) = end
        && let Ok(device) = super::device_memory::device(runtime, number)
    {
        event_pool::release(device, 0, event);
    }
}

/// Defers the free of a block until the recorded streams and the processes that hold the block are done with it.
pub fn defer_free(runtime: &Runtime, arena: &Arena, block: u32, uses: Vec<StreamUse>) {
    let mut events: Vec<StreamEvent> = uses.into_iter().map(|stream_use| record_event(runtime, stream_use)).collect();
    events.extend(ipc::holder_event(arena.number, block));
    let mut inner = arena.lock();
    if events.is_empty() {
        inner.space.finish_deferred_free(block);
    } else {
        inner.deferred_frees.push(DeferredFree { block, events });
    }
}

/// Unmaps addresses whose memory was moved or returns to the driver: at once if the arena's stream is idle, otherwise
/// later. A failed unmap is retried later.
pub fn unmap_when_idle(
    runtime: &Runtime,
    device: &Device,
    arena: &Arena,
    mut pending: PendingUnmap,
    idle: bool,
) -> Result<()> {
    let outcome = if idle { unmap(runtime, device, arena, &pending) } else { Ok(()) };
    if !idle || outcome.is_err() {
        if let StreamEvent::Pending(stream_use) = pending.event {
            pending.event = record_event(runtime, stream_use);
        }
        arena.lock().pending_unmaps.push(pending);
    }
    outcome
}

/// Unmaps addresses that the device no longer uses.
fn unmap(runtime: &Runtime, device: &Device, arena: &Arena, pending: &PendingUnmap) -> Result<()> {
    runtime.driver.memory_unmap(pending.address, pending.bytes).context(|| "unmapping memory")?;
    if let Some(physical) = pending.physical
        && retry(|| runtime.driver.memory_release(physical))
    {
        device.memory().released.increment();
        device.memory().release_held(pending.bytes);
    }
    arena.lock().space.mark_unmapped(pending.block, pending.address);
    Ok(())
}

/// Frees the blocks of an arena whose events are complete, and unmaps addresses that the device no longer uses. With
/// `wait`, waits for the remaining events. Returns whether anything was freed.
pub fn process_events(runtime: &Runtime, device: &Device, arena: &Arena, wait: bool) -> bool {
    let (deferred_frees, pending_unmaps) = {
        let mut inner = arena.lock();
        if inner.deferred_frees.is_empty() && inner.pending_unmaps.is_empty() {
            return false;
        }
        (std::mem::take(&mut inner.deferred_frees), std::mem::take(&mut inner.pending_unmaps))
    };
    let mut any = false;
    for mut entry in deferred_frees {
        entry.events.retain_mut(|event| !is_complete(runtime, event, wait));
        let mut inner = arena.lock();
        if entry.events.is_empty() {
            inner.space.finish_deferred_free(entry.block);
            any = true;
        } else {
            inner.deferred_frees.push(entry);
        }
    }
    for mut entry in pending_unmaps {
        let mut complete = is_complete(runtime, &mut entry.event, wait);
        if complete {
            complete = unmap(runtime, device, arena, &entry).is_ok();
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

/// Processes events, and returns whether no deferred frees and no pending unmaps remain.
pub fn poll_events_done(runtime: &Runtime, device: &Device, arena: &Arena) -> bool {
    process_events(runtime, device, arena, false);
    let inner = arena.lock();
    inner.pending_unmaps.is_empty() && inner.deferred_frees.is_empty()
}
