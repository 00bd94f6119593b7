//! Replay ordering: graphs that share a pool never run at the same time.
//!
//! A graph may have been captured over memory that another graph of its pool had freed. Within one stream the
//! stream's order suffices and costs nothing. When a graph is replayed in another stream than the pool's last replay,
//! the device makes the new stream wait for the previous one; the CPU does not wait. Replays record no event. An
//! event is recorded only when the stream changes, and covers the replay and all later work of the previous stream.

use crate::{
    driver::{self, types::*},
    error::{Context, Error, Result},
    memory::{PoolId, pool},
    runtime::{Runtime, thread},
    status::Status,
    stream::{self, Stream, capture_lock, event_pool},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// The behaviour of a replay while another replay of its pool runs in another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// The stream waits for the other one.
    #[default]
    Order,
    /// The replay fails.
    Refuse,
}

/// A value that no stream handle has.
const NO_STREAM: usize = usize::MAX;

/// A pool that graphs share.
#[derive(Debug)]
pub struct SharedPool {
    /// The ID of the pool.
    pub id: PoolId,
    last_replay: Mutex<LastReplay>,
}

/// The last replay in a pool.
#[derive(Debug)]
pub struct LastReplay {
    /// The handle of its stream if the handle is unambiguous, for the fast path: replays in this stream need no
    /// further check.
    last: usize,
    /// The stream, and the thread if the handle means a different stream in each thread.
    stream: Option<(Stream, u64)>,
    /// The event that stands for the end of the stream's replays since the stream began to capture, and the device
    /// whose event pool it came from.
    end_event: Option<(u32, driver::Event)>,
}

static POOLS: Mutex<Option<HashMap<PoolId, Weak<SharedPool>>>> = Mutex::new(None);

/// Returns the shared state of a pool, and creates it first if necessary.
pub fn shared_pool(id: PoolId) -> Arc<SharedPool> {
    let mut pools = POOLS.lock();
    let pools = pools.get_or_insert_default();
    if let Some(shared) = pools.get(&id).and_then(Weak::upgrade) {
        return shared;
    }
    let last_replay = LastReplay { last: NO_STREAM, stream: None, end_event: None };
    let shared = Arc::new(SharedPool { id, last_replay: Mutex::new(last_replay) });
    pools.retain(|_, other| other.strong_count() > 0);
    pools.insert(id, Arc::downgrade(&shared));
    shared
}

/// Records an event after the replays in a stream that is about to capture: during the capture nothing outside of it
/// can be recorded there.
pub fn record_replay_ends(runtime: &Runtime, stream: Stream) -> Result<()> {
    let all: Vec<Arc<SharedPool>> = {
        let pools = POOLS.lock();
        pools.iter().flat_map(|pools| pools.values()).filter_map(Weak::upgrade).collect()
    };
    all.iter().try_for_each(|shared| shared.lock_last_replay().record_end(runtime, stream))
}

impl SharedPool {
    /// Locks the pool's last replay, for the launch of the next one.
    #[inline]
    pub fn lock_last_replay(&self) -> MutexGuard<'_, LastReplay> {
        self.last_replay.lock()
    }
}

/// Fails if a stream is capturing: an event recorded in it would belong to its capture, and any stream that waits for
/// the event would join the capture.
fn refuse_capturing(runtime: &Runtime, stream: Stream) -> Result<()> {
    if !stream::is_validated_capturing(runtime, stream)? {
        return Ok(());
    }
    Err(Error::new(Status::CAPTURE_FORBIDS, format!("stream {:#x} is capturing", stream.raw.handle())))
}

/// Waits on the CPU for the present work of a stream. Waits for an event, because a stream must not begin to capture
/// while a thread synchronizes with it.
fn wait_for(runtime: &Runtime, stream: Stream) -> Result<()> {
    event_pool::with(runtime, stream.device, |event| {
        let held = capture_lock::lock_shared();
        refuse_capturing(runtime, stream)?;
        runtime.in_stream(stream, |driver, raw| Ok(driver.event_record(event, raw)?))?;
        drop(held);
        runtime.in_any_context(|driver| Ok(driver.event_synchronize(event)?))
    })
}

/// Returns the thread whose stream a handle means: the number of this thread for the per-thread default stream,
/// otherwise 0.
fn stream_owner(stream: Stream) -> u64 {
    if stream.raw.handle() == CU_STREAM_PER_THREAD { thread::number() } else { 0 }
}

impl LastReplay {
    /// Returns whether the last replay was in this stream and no further check is needed.
    #[inline]
    pub fn is_in(&self, stream: driver::Stream) -> bool {
        self.last == stream.handle()
    }

    /// Makes `stream` the stream of the last replay, ordered after the present one.
    #[cold]
    pub fn set_ordered(&mut self, runtime: &Runtime, id: PoolId, stream: Stream, overlap: Overlap) -> Result<()> {
        if pool::is_asleep(id) {
            return Err(Error::new(
                Status::GRAPH_ASLEEP,
                format!("the memory of pool {id} is asleep; call plinth_graph_wake first"),
            ));
        }
        let new = (stream.raw.handle(), stream_owner(stream));
        match self.stream {
            Some((last, thread)) if (last.raw.handle(), thread) != new => {
                if overlap == Overlap::Refuse && !self.is_done(runtime)? {
                    return Err(Error::new(
                        Status::GRAPH_OVERLAP,
                        format!(
                            "a graph of pool {id} still runs in stream {:#x}, and this one may use the same memory",
                            last.raw.handle()
                        ),
                    ));
                }
                self.make_wait(runtime, stream)
                    .context(|| "waiting for the last replay of the pool in another stream")?;
            }
            _ => {}
        }
        self.set_stream(runtime, stream);
        Ok(())
    }

    /// Makes the stream of a capture that has ended the stream of the last use: work launched there before may still
    /// use the pool's memory. If the stream cannot wait for the last replay, nothing changes.
    pub fn set_after_capture(&mut self, runtime: &Runtime, stream: Stream) {
        if self.make_wait(runtime, stream).is_ok() {
            self.set_stream(runtime, stream);
        }
    }

    /// Records that a stream has used the pool.
    fn set_stream(&mut self, runtime: &Runtime, stream: Stream) {
        self.release_end_event(runtime);
        let thread = stream_owner(stream);
        self.stream = Some((stream, thread));
        self.last = if thread == 0 { stream.raw.handle() } else { NO_STREAM };
    }

    /// Disables the fast path for the next replay.
    pub fn disable_fast_path(&mut self) {
        self.last = NO_STREAM;
    }

    /// Returns whether the last replay is done.
    fn is_done(&self, runtime: &Runtime) -> Result<bool> {
        if let Some((_, event)) = self.end_event {
            return runtime.in_any_context(|driver| Ok(driver.with_relaxed_capture(|| driver.event_query(event))??));
        }
        let Some(last) = self.last_stream() else { return Ok(true) };
        let _held = capture_lock::lock_shared();
        if stream::is_validated_capturing(runtime, last)? {
            return Ok(false);
        }
        runtime.in_stream(last, |driver, raw| Ok(driver.with_relaxed_capture(|| driver.stream_query(raw))??))
    }

    fn make_wait(&self, runtime: &Runtime, stream: Stream) -> Result<()> {
        runtime.driver.with_relaxed_capture(|| {
            let _held = capture_lock::lock_shared();
            refuse_capturing(runtime, stream)?;
            match (self.end_event, self.last_stream()) {
                (Some((_, event)), _) => runtime.in_stream(stream, |driver, raw| {
                    Ok(driver.stream_wait_event(raw, event, CU_EVENT_WAIT_DEFAULT)?)
                }),
                (None, Some(last)) if last.raw == stream.raw && last.device == stream.device => Ok(()),
                (None, Some(last)) => {
                    refuse_capturing(runtime, last)?;
                    stream::make_wait_uncaptured(runtime, stream, last)
                }
                (None, None) => Ok(()),
            }
        })?
    }

    /// Makes streams wait for the last replay, which may have used the memory that is freed behind them. The CPU
    /// waits if a stream cannot, because it is capturing.
    pub fn make_streams_wait(&self, runtime: &Runtime, streams: &[Stream]) {
        let Some(last) = self.last_stream() else { return };
        let others = streams.iter().filter(|stream| stream.raw != last.raw || stream.device != last.device);
        for stream in others {
            if self.make_wait(runtime, *stream).is_err() {
                // If this fails too, either the device has failed, or the program began a capture with the driver's
                // own calls and is responsible for the order.
                let _ = runtime.driver.with_relaxed_capture(|| match self.end_event {
                    Some((_, event)) => runtime.in_any_context(|driver| Ok(driver.event_synchronize(event)?)),
                    None => wait_for(runtime, last),
                });
            }
        }
    }

    fn record_end(&mut self, runtime: &Runtime, stream: Stream) -> Result<()> {
        let Some(last) = self.last_stream().filter(|last| last.raw == stream.raw && self.end_event.is_none()) else {
            return Ok(());
        };
        let device = runtime.device(last.device as i32)?;
        let event = event_pool::acquire(device, &runtime.driver, 0)?;
        let recorded = runtime.in_stream(last, |driver, raw| Ok(driver.event_record(event, raw)?));
        if recorded.is_err() {
            event_pool::release(device, 0, event);
            return recorded;
        }
        self.end_event = Some((last.device, event));
        self.last = NO_STREAM;
        Ok(())
    }

    fn release_end_event(&mut self, runtime: &Runtime) {
        if let Some((number, event)) = self.end_event.take()
            && let Ok(device) = runtime.device(number as i32)
        {
            event_pool::release(device, 0, event);
        }
    }

    /// Returns the stream of the last replay, or one that is ordered after it: another thread's per-thread default
    /// stream has no handle here, but the legacy default stream waits for it.
    pub fn last_stream(&self) -> Option<Stream> {
        let (last, thread) = self.stream?;
        if thread == 0 || thread == thread::number() { Some(last) } else { Some(last.legacy()) }
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        if let Some(runtime) = crate::runtime::usable() {
            self.last_replay.get_mut().release_end_event(runtime);
        }
    }
}
