//! Order between streams: later work of one stream waits for the present work of another, through an event.
//!
//! [`make_wait`] and the other functions are for an order that a call of the program asks for. It may be part of a
//! capture: a stream that waits for captured work joins the capture. They hold the capture lock exclusively while a
//! capture is in progress, so that no stream joins one while other code relies on its being outside.
//!
//! [`OutsideCaptures`] is for an order of the library's own, between streams that other threads may use and capture.
//! It must never become part of a capture: a graph would contain it, or the capture would be invalidated.
//!
//! The driver's observer is notified of every event and wait, so the sanitizer knows the order. Code that makes an
//! order on which a program must not rely calls this module in [`crate::driver::observer::run_unobserved`].

use super::{
    Stream, StreamUse,
    capture_lock::{self, lock_shared, run_exclusive},
    capture_report,
    capture_status::{self, CaptureStatus},
    event_pool::PooledEvent,
    lifetime::of_use,
};
use crate::{
    driver::{self, types::CU_EVENT_WAIT_DEFAULT},
    error::{Context, Error, Result},
    runtime::Runtime,
    status::Status,
};

/// Makes later work of `waiting` wait for the work that `awaited` has now. If `awaited` is capturing, `waiting` joins
/// the capture.
pub fn make_wait(runtime: &Runtime, waiting: Stream, awaited: Stream) -> Result<()> {
    make_streams_wait(runtime, &[waiting], awaited)
}

/// Does the same for several waiting streams, with one event.
pub fn make_streams_wait(runtime: &Runtime, waiting: &[Stream], awaited: Stream) -> Result<()> {
    run_exclusive(|| order(runtime, waiting, awaited))
}

/// Makes later work of each stream wait for the work that every other has now.
pub fn make_wait_mutually(runtime: &Runtime, streams: &[Stream]) -> Result<()> {
    run_exclusive(|| {
        // Record all events before any stream waits; otherwise events would include the waits.
        let events = streams.iter().map(|stream| record(runtime, *stream, 0)).collect::<Result<Vec<PooledEvent>>>()?;
        for (index, stream) in streams.iter().enumerate() {
            for (other, event) in events.iter().enumerate() {
                if other != index {
                    wait(runtime, *stream, event.native())?;
                }
            }
        }
        Ok::<_, Error>(())
    })
    .context(|| "making streams wait for each other")
}

/// Makes later work of a stream wait for the last record of an event. If that is part of a capture, the stream joins
/// it.
#[inline]
pub fn wait_for_event(runtime: &Runtime, stream: Stream, event: driver::Event) -> Result<()> {
    run_exclusive(|| wait(runtime, stream, event))
}

/// Makes streams wait for another. The caller holds the capture lock as the streams require.
pub(super) fn order(runtime: &Runtime, waiting: &[Stream], awaited: Stream) -> Result<()> {
    let ordered = record(runtime, awaited, 0).and_then(|event| {
        // A wait refers to the last record at the time of the call, so the event can be reused at once.
        waiting.iter().try_for_each(|stream| wait(runtime, *stream, event.native()))
    });
    ordered.context(|| {
        let waiting: Vec<String> = waiting.iter().map(|stream| stream.describe()).collect();
        format!("making {} wait for {}", waiting.join(" and "), awaited.describe())
    })
}

/// Records an event of a kind after the present work of a stream.
fn record(runtime: &Runtime, stream: Stream, flags: u32) -> Result<PooledEvent> {
    let event = PooledEvent::acquire(runtime.device(stream.device() as i32)?, &runtime.driver, flags)?;
    runtime.in_stream(stream, |driver, raw| Ok(driver.event_record(event.native(), raw)?))?;
    Ok(event)
}

/// Enqueues a wait. The caller holds the capture lock as the event requires.
#[inline]
pub(super) fn wait(runtime: &Runtime, stream: Stream, event: driver::Event) -> Result<()> {
    runtime.in_stream(stream, |driver, raw| Ok(driver.stream_wait_event(raw, event, CU_EVENT_WAIT_DEFAULT)?))?;
    if capture_lock::is_any_capturing() {
        capture_report::on_wait(stream);
    }
    Ok(())
}

/// The use of streams outside of captures. While it lives, a stream that was found outside stays so. Drop it before a
/// call that blocks, and do not lock twice in one thread.
pub struct OutsideCaptures<'a> {
    runtime: &'a Runtime,
    _held: capture_lock::SharedGuard,
}

impl<'a> OutsideCaptures<'a> {
    /// Keeps captures from beginning.
    pub fn lock(runtime: &'a Runtime) -> Self {
        OutsideCaptures { runtime, _held: lock_shared() }
    }

    /// Returns whether work in a stream disturbs no capture and becomes part of none. Streams must be found so before
    /// the other methods use them.
    pub fn contains(&self, stream: Stream) -> Result<bool> {
        self.runtime.in_stream(stream, |driver, raw| Ok(capture_status::of(driver, raw)? == CaptureStatus::None))
    }

    /// Returns an error if a stream is not outside.
    pub fn check(&self, stream: Stream) -> Result<()> {
        if self.contains(stream)? {
            return Ok(());
        }
        Err(Error::new(Status::CAPTURE_FORBIDS, format!("{} is capturing", stream.describe())))
    }

    /// Returns whether all work of a stream is done.
    pub fn is_idle(&self, stream: Stream) -> Result<bool> {
        self.runtime.in_stream(stream, |driver, raw| Ok(driver.stream_query(raw)?))
    }

    /// Makes later work of `waiting` wait for the work that `awaited` has now.
    pub fn make_wait(&self, waiting: Stream, awaited: Stream) -> Result<()> {
        order(self.runtime, &[waiting], awaited)
    }

    /// Makes later work of a stream wait for an event that was recorded outside of captures.
    pub fn wait_for_event(&self, stream: Stream, event: driver::Event) -> Result<()> {
        wait(self.runtime, stream, event)
    }

    /// Records an event of a kind after the present work of a stream.
    pub fn record(&self, stream: Stream, flags: u32) -> Result<PooledEvent> {
        record(self.runtime, stream, flags)
    }
}

/// Waits on the CPU for the present work of a stream. Calls `may_wait` first if the stream is busy. Returns `false`
/// without waiting if the stream is not outside of captures. The caller has made the thread's capture mode relaxed.
///
/// It waits for an event and not for the stream: a stream must not begin a capture while it is synchronized, but
/// another thread may begin one.
pub fn finish_stream(runtime: &Runtime, stream: StreamUse, may_wait: impl FnOnce() -> Result<()>) -> Result<bool> {
    let outside = OutsideCaptures::lock(runtime);
    let stream = of_use(runtime, stream);
    if !outside.contains(stream)? {
        return Ok(false);
    }
    if outside.is_idle(stream)? {
        return Ok(true);
    }
    may_wait()?;
    let event = outside.record(stream, 0)?;
    drop(outside);
    event.synchronize(runtime)?;
    Ok(true)
}
