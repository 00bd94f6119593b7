//! Replay ordering: graphs that share a pool never run at the same time.
//!
//! A graph may have been captured over memory that another graph of its pool had freed. Within one stream the
//! stream's order suffices and costs nothing. When a graph is replayed in another stream than the pool's last replay,
//! the device makes the new stream wait for the previous one; the CPU does not wait. Replays record no event. An
//! event is recorded only when the stream changes, and covers the replay and all later work of the previous stream.

use crate::{
    base::log,
    driver,
    error::{Context, Error, Result},
    memory::{PoolId, pool},
    runtime::{Runtime, names, sync_debug},
    status::Status,
    stream::{
        self, Stream, StreamUse,
        event_pool::PooledEvent,
        lifetime,
        ordering::{self, OutsideCaptures},
    },
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
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
    /// The handle of the last replay's stream. It is read without the lock, which a launch holds while it waits for room
    /// in its stream.
    last_stream: Arc<AtomicUsize>,
    last_replay: Mutex<LastReplay>,
}

/// The last replay in a pool.
#[derive(Debug)]
pub struct LastReplay {
    /// The handle of its stream if the handle is unambiguous, for the fast path: replays in this stream need no
    /// further check.
    last: usize,
    /// The number of streams that had ended then. If it has changed, the handle may denote another stream.
    ended: u32,
    /// The stream.
    stream: Option<StreamUse>,
    /// The handle of the stream.
    handle: Arc<AtomicUsize>,
    /// Whether a replay may still run in the stream. After a capture only other work there may use the pool's memory.
    launched: bool,
    /// The event that stands for the end of the stream's replays since the stream began to capture.
    end_event: Option<Arc<PooledEvent>>,
}

/// A replay for which streams could not be made to wait.
#[must_use = "memory may be reused only after the wait"]
pub struct RunningReplay {
    stream: StreamUse,
    end_event: Option<Arc<PooledEvent>>,
}

impl RunningReplay {
    /// Waits on the CPU until the replay is done. The caller holds no lock, because the program's callback for waits is
    /// called.
    pub fn wait(self, runtime: &Runtime) {
        let waited = sync_debug::require("a free of graph memory", || {
            runtime.driver.with_relaxed_capture(|| match &self.end_event {
                Some(event) => event.synchronize(runtime),
                None => ordering::finish_stream(runtime, self.stream, || Ok(())).map(drop),
            })
        });
        // If this fails, either the device has failed, or the program began a capture with the driver's own calls and is
        // responsible for the order.
        let waited = waited.map_err(Error::from).flatten();
        log::ignore(waited, "waiting for a graph's last replay before its memory is reused");
    }
}

static POOLS: Mutex<Option<HashMap<PoolId, Weak<SharedPool>>>> = Mutex::new(None);

/// Returns the shared state of a pool, and creates it first if necessary.
pub fn shared_pool(id: PoolId) -> Arc<SharedPool> {
    let mut pools = POOLS.lock();
    let pools = pools.get_or_insert_default();
    if let Some(shared) = pools.get(&id).and_then(Weak::upgrade) {
        return shared;
    }
    let last_stream = Arc::new(AtomicUsize::new(NO_STREAM));
    let handle = Arc::clone(&last_stream);
    let last_replay = LastReplay { last: NO_STREAM, ended: 0, stream: None, handle, launched: false, end_event: None };
    let shared = Arc::new(SharedPool { id, last_stream, last_replay: Mutex::new(last_replay) });
    pools.retain(|_, other| other.strong_count() > 0);
    pools.insert(id, Arc::downgrade(&shared));
    shared
}

/// Records an event after the replays in a stream that is about to capture: during the capture nothing outside of it
/// can be recorded there. Locks only the pools of these replays.
pub fn record_replay_ends(runtime: &Runtime, stream: Stream) -> Result<()> {
    let all: Vec<Arc<SharedPool>> = {
        let pools = POOLS.lock();
        pools.iter().flat_map(|pools| pools.values()).filter_map(Weak::upgrade).collect()
    };
    let mut here = all.iter().filter(|shared| shared.last_stream.load(Ordering::Relaxed) == stream.raw.handle());
    here.try_for_each(|shared| shared.lock_last_replay().record_end(runtime, stream))
}

impl SharedPool {
    /// Locks the pool's last replay, for the launch of the next one.
    #[inline]
    pub fn lock_last_replay(&self) -> MutexGuard<'_, LastReplay> {
        self.last_replay.lock()
    }
}

impl LastReplay {
    /// Returns whether the last replay was in this stream and no further check is needed.
    #[inline]
    pub fn is_in(&self, stream: driver::Stream) -> bool {
        self.last == stream.handle() && self.ended == lifetime::count_ended()
    }

    /// Makes `stream` the stream of the last replay, ordered after the present one.
    #[cold]
    pub fn set_ordered(&mut self, runtime: &Runtime, id: PoolId, stream: Stream, overlap: Overlap) -> Result<()> {
        if pool::is_suspended(id) {
            return Err(Error::new(
                Status::GRAPH_ASLEEP,
                format!("the memory of pool {id} is asleep; call plinth_graph_wake first"),
            ));
        }
        match self.stream {
            Some(last) if last != StreamUse::new(stream) => {
                if overlap == Overlap::Refuse && self.launched && !self.is_done(runtime)? {
                    return Err(Error::new(
                        Status::GRAPH_OVERLAP,
                        format!(
                            "a graph of pool {id} still runs in {}, and this one may use the same memory",
                            names::describe_stream(last.stream.handle(), last.device)
                        ),
                    ));
                }
                self.make_wait(runtime, StreamUse::new(stream))
                    .context(|| "waiting for the last replay of the pool in another stream")?;
            }
            _ => {}
        }
        self.set_stream(stream);
        self.launched = true;
        Ok(())
    }

    /// Makes the stream of a capture that has ended the stream of the last use: work launched there before may still
    /// use the pool's memory. If the stream cannot wait for the last replay, nothing changes.
    pub fn set_after_capture(&mut self, runtime: &Runtime, stream: Stream) {
        let done = self.is_done(runtime).unwrap_or(false);
        if self.make_wait(runtime, StreamUse::new(stream)).is_ok() {
            self.set_stream(stream);
            self.launched &= !done;
            // The pool may have been put to sleep since the capture.
            self.disable_fast_path();
        }
    }

    /// Records that a stream has used the pool.
    fn set_stream(&mut self, stream: Stream) {
        let new = StreamUse::new(stream);
        self.ended = lifetime::count_ended();
        self.end_event = None;
        self.stream = Some(new);
        self.handle.store(stream.raw.handle(), Ordering::Relaxed);
        self.last = if new.thread == 0 { stream.raw.handle() } else { NO_STREAM };
    }

    /// Disables the fast path for the next replay.
    pub fn disable_fast_path(&mut self) {
        self.last = NO_STREAM;
    }

    /// Returns whether the last replay is done.
    fn is_done(&self, runtime: &Runtime) -> Result<bool> {
        runtime.driver.with_relaxed_capture(|| {
            if let Some(event) = &self.end_event {
                return runtime.in_any_context(|driver| Ok(driver.event_query(event.native())?));
            }
            let outside = OutsideCaptures::lock(runtime);
            let Some(last) = self.last_stream(runtime) else { return Ok(true) };
            Ok(outside.contains(last)? && outside.is_idle(last)?)
        })?
    }

    fn make_wait(&self, runtime: &Runtime, waiting: StreamUse) -> Result<()> {
        runtime.driver.with_relaxed_capture(|| {
            let outside = OutsideCaptures::lock(runtime);
            let stream = stream::of_use(runtime, waiting);
            outside.check(stream)?;
            match (&self.end_event, self.last_stream(runtime)) {
                (Some(event), _) => outside.wait_for_event(stream, event.native()),
                (None, Some(last)) if last.raw != stream.raw || last.device() != stream.device() => {
                    outside.check(last)?;
                    outside.make_wait(stream, last)
                }
                (None, _) => Ok(()),
            }
        })?
    }

    /// Makes streams wait for the last replay, which may have used the memory that is freed behind them. Returns the
    /// replay if a stream cannot, because it is capturing: then the CPU must wait.
    pub fn make_streams_wait(&self, runtime: &Runtime, streams: &[StreamUse]) -> Option<RunningReplay> {
        let stream = self.stream?;
        let others = streams.iter().filter(|other| **other != stream);
        let unordered = others.fold(false, |unordered, other| unordered | self.make_wait(runtime, *other).is_err());
        unordered.then(|| RunningReplay { stream, end_event: self.end_event.clone() })
    }

    fn record_end(&mut self, runtime: &Runtime, stream: Stream) -> Result<()> {
        if let Some(last) = self.last_stream(runtime)
            && last.raw == stream.raw
            && self.end_event.is_none()
        {
            let outside = OutsideCaptures::lock(runtime);
            outside.check(last)?;
            self.end_event = Some(Arc::new(outside.record(last, 0)?));
            self.last = NO_STREAM;
        }
        Ok(())
    }

    /// Returns the stream of the last replay, or one that is ordered after it.
    pub fn last_stream(&self, runtime: &Runtime) -> Option<Stream> {
        self.stream.map(|last| stream::of_use(runtime, last))
    }
}
