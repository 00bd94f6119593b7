//! When the device is done with memory: marks in streams, and what waits for them.
//!
//! Nothing here makes the CPU wait but [`reap`] when it is told to, and no order that is made here is one that the stream
//! sanitizer is told of: it is there or not as memory happens to be short. A mark is an event; a stream that is capturing gets none,
//! since the event would become a part of the graph, and what waits for it stays unmarked until the capture is over.

use super::{
    arena::{Arena, Leaving, Mark, Use, Waiting},
    ipc,
};
use crate::{
    driver::{Answer, Driver, Failure, Stream, codes, observer, types::*},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
    stream::{self, capture_lock, event_pool},
};

/// Makes a call that undoes another: again if it fails. Whether it succeeded.
pub fn insist(mut call: impl FnMut() -> Answer<()>) -> bool {
    (0..3).any(|_| call().is_ok())
}

/// Whether a stream is capturing, or may be for all that can be known.
pub fn is_capturing(driver: &Driver, stream: Stream) -> bool {
    !matches!(driver.stream_capture_status(stream), Ok(CU_STREAM_CAPTURE_STATUS_NONE))
}

/// Whether everything that was given to the arena's stream is done.
pub fn is_idle(runtime: &Runtime, arena: &Arena) -> bool {
    let (driver, own) = (&runtime.driver, arena.own_use());
    let _held = capture_lock::lock_shared();
    own.can_be_named() && !is_capturing(driver, own.stream) && driver.stream_query(own.stream).unwrap_or(false)
}

/// Whether an event can be recorded in the arena's stream.
pub fn can_mark(runtime: &Runtime, arena: &Arena) -> bool {
    !is_capturing(&runtime.driver, arena.own_use().stand_in())
}

/// Lets later work of one stream of a device wait for what an arena's stream has now. Whether it does: no stream that is
/// capturing can.
pub fn order(runtime: &Runtime, device: &Device, waiting: Stream, arena: &Arena) -> Result<bool> {
    let (driver, awaited) = (&runtime.driver, arena.own_use().stand_in());
    event_pool::with(runtime, device.ordinal, |event| {
        let _held = capture_lock::lock_shared();
        if is_capturing(driver, waiting) || is_capturing(driver, awaited) {
            return Ok(false);
        }
        observer::unseen(|| {
            driver.event_record(event, awaited)?;
            driver.stream_wait_event(waiting, event, CU_EVENT_WAIT_DEFAULT)
        })?;
        Ok(true)
    })
}

/// The stream behind which an arena's memory goes.
pub fn stream_of(runtime: &Runtime, arena: &Arena) -> stream::Stream {
    let own = arena.own_use();
    stream::from_validated(runtime, own.stand_in(), own.device)
}

/// Marks where a stream is now, if it can be marked.
pub(super) fn mark(runtime: &Runtime, wanted: Use) -> Mark {
    let unmarked = Mark::Unmarked(wanted);
    let stream = wanted.stand_in();
    let Ok(device) = super::device_memory::device(runtime, wanted.device) else { return unmarked };
    let marked = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            let _held = capture_lock::lock_shared();
            if is_capturing(driver, stream) {
                return Err(Error::new(Status::CAPTURE_FORBIDS, "the stream is capturing"));
            }
            let event = event_pool::acquire(device, driver, 0)?;
            match driver.event_record(event, stream) {
                Ok(()) => Ok(Mark::Event(event, wanted.device)),
                Err(failure) => {
                    event_pool::release(device, 0, event);
                    Err(failure.into())
                }
            }
        })?
    });
    marked.unwrap_or(unmarked)
}

/// Whether a mark is passed. One that was not made yet is made now.
pub(super) fn is_passed(runtime: &Runtime, slot: &mut Mark, wait: bool) -> bool {
    if let Mark::Unmarked(wanted) = *slot {
        *slot = mark(runtime, wanted);
    }
    let (event, number) = match *slot {
        Mark::Event(event, number) => (event, number),
        // Nobody is waited for who may never come.
        Mark::Shared(serial) => return ipc::is_over(serial),
        Mark::Unmarked(_) => return false,
    };
    let Ok(device) = super::device_memory::device(runtime, number) else { return false };
    let done = device.with_context(&runtime.driver, |driver| {
        Ok(driver.with_relaxed_capture(|| {
            if wait {
                observer::unseen(|| driver.event_synchronize(event)).map(|()| true)
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

/// Waits for what a stream of a device has now, after `may_wait` where that takes time. Whether it did: no stream that is
/// capturing is waited for. The device's context is current, and the thread's capture mode relaxed.
///
/// By an event: a stream that is waited for itself may not begin to capture, and another thread may let it.
pub(super) fn finish_stream(
    device: &Device,
    driver: &Driver,
    stream: Stream,
    may_wait: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let held = capture_lock::lock_shared();
    match driver.stream_capture_status(stream) {
        Ok(CU_STREAM_CAPTURE_STATUS_NONE) => {}
        // The error is that of the legacy default stream, when a stream captures that it would wait for.
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
    let waited = recorded.and_then(|()| observer::unseen(|| driver.event_synchronize(event)));
    event_pool::release(device, 0, event);
    waited.map(|()| true).map_err(Error::from)
}

/// Waits for what an arena's stream has now, unless it is capturing.
pub fn wait_for(runtime: &Runtime, arena: &Arena) {
    // An event is recorded by the device itself, which other processes may be using.
    if is_idle(runtime, arena) {
        return;
    }
    let mut end = Mark::Unmarked(arena.own_use());
    if !is_passed(runtime, &mut end, true)
        && let Mark::Event(event, number) = end
        && let Ok(device) = super::device_memory::device(runtime, number)
    {
        event_pool::release(device, 0, event);
    }
}

/// Lets a freed block wait for the streams that were recorded on it, and for the processes that hold it.
pub fn hold_back(runtime: &Runtime, arena: &Arena, block: u32, uses: Vec<Use>) {
    let mut marks: Vec<Mark> = uses.into_iter().map(|wanted| mark(runtime, wanted)).collect();
    marks.extend(ipc::mark_of(arena.number, block));
    let mut inner = arena.lock();
    if marks.is_empty() {
        inner.space.end_wait(block);
    } else {
        inner.waiting.push(Waiting { block, marks });
    }
}

/// Lets go of addresses whose memory has others by now, or goes back to the driver: at once where the arena's stream is
/// idle. What fails is tried again later.
pub fn leave(runtime: &Runtime, device: &Device, arena: &Arena, mut leaving: Leaving, idle: bool) -> Result<()> {
    let outcome = if idle { finish(runtime, device, arena, &leaving) } else { Ok(()) };
    if !idle || outcome.is_err() {
        if let Mark::Unmarked(wanted) = leaving.mark {
            leaving.mark = mark(runtime, wanted);
        }
        arena.lock().leaving.push(leaving);
    }
    outcome
}

/// Unmaps addresses that the device is done with.
fn finish(runtime: &Runtime, device: &Device, arena: &Arena, leaving: &Leaving) -> Result<()> {
    runtime.driver.memory_unmap(leaving.address, leaving.bytes).context(|| "unmapping memory")?;
    if let Some(physical) = leaving.physical
        && insist(|| runtime.driver.memory_release(physical))
    {
        device.memory.released.one();
        device.memory.let_go(leaving.bytes);
    }
    arena.lock().space.vacate(leaving.block, leaving.address);
    Ok(())
}

/// Frees the blocks of an arena whose waits are over, and unmaps the addresses that the device is done with. With `wait`,
/// waits for the rest. Whether anything came of it.
pub fn reap(runtime: &Runtime, device: &Device, arena: &Arena, wait: bool) -> bool {
    let (waiting, leaving) = {
        let mut inner = arena.lock();
        if inner.waiting.is_empty() && inner.leaving.is_empty() {
            return false;
        }
        (std::mem::take(&mut inner.waiting), std::mem::take(&mut inner.leaving))
    };
    let mut any = false;
    for mut entry in waiting {
        entry.marks.retain_mut(|mark| !is_passed(runtime, mark, wait));
        let mut inner = arena.lock();
        if entry.marks.is_empty() {
            inner.space.end_wait(entry.block);
            any = true;
        } else {
            inner.waiting.push(entry);
        }
    }
    for mut entry in leaving {
        let mut passed = is_passed(runtime, &mut entry.mark, wait);
        if passed {
            passed = finish(runtime, device, arena, &entry).is_ok();
            any |= passed;
            if !passed {
                entry.mark = Mark::Unmarked(arena.own_use());
            }
        }
        if !passed {
            arena.lock().leaving.push(entry);
        }
    }
    any
}

/// As [`reap`]; whether nothing waits any more.
pub fn reap_all(runtime: &Runtime, device: &Device, arena: &Arena) -> bool {
    reap(runtime, device, arena, false);
    let inner = arena.lock();
    inner.leaving.is_empty() && inner.waiting.is_empty()
}
