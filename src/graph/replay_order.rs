//! Whose turn it is in a pool: the graphs that share one, and the stream of their last replay.
//!
//! A graph may have been captured over memory that another graph of its pool had freed, so two of them never run at once. In
//! one stream order sees to that, and costs nothing. When a graph is replayed in another stream than the one before, the
//! device lets that stream wait for the other one; the CPU does not wait. No event is recorded at a replay, only when the
//! stream changes, which covers the replay and whatever came behind it.

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

/// What happens when a graph is replayed while another replay of its pool runs in another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// The stream waits for the other one.
    #[default]
    Order,
    /// The replay is refused.
    Refuse,
}

/// No stream: what no handle is equal to.
const NOBODY: usize = usize::MAX;

/// A pool as its graphs share it.
#[derive(Debug)]
pub struct Shared {
    /// The pool.
    pub id: PoolId,
    turn: Mutex<Turn>,
}

/// The last replay of a pool.
#[derive(Debug)]
pub struct Turn {
    /// The handle of its stream, where that says everything: replays in this stream need not look further.
    last: usize,
    /// The stream, and the thread if the handle means another stream in each.
    stream: Option<(Stream, u64)>,
    /// What stands for the stream since it began to capture: an event of a device's pool.
    mark: Option<(u32, driver::Event)>,
}

static POOLS: Mutex<Option<HashMap<PoolId, Weak<Shared>>>> = Mutex::new(None);

/// The pool as one that graphs share.
pub fn join(id: PoolId) -> Arc<Shared> {
    let mut pools = POOLS.lock();
    let pools = pools.get_or_insert_default();
    if let Some(shared) = pools.get(&id).and_then(Weak::upgrade) {
        return shared;
    }
    let turn = Turn { last: NOBODY, stream: None, mark: None };
    let shared = Arc::new(Shared { id, turn: Mutex::new(turn) });
    pools.retain(|_, other| other.strong_count() > 0);
    pools.insert(id, Arc::downgrade(&shared));
    shared
}

/// Keeps where the replays of a stream end that is about to capture: afterwards nothing can be recorded in it.
pub fn keep_marks(runtime: &Runtime, stream: Stream) -> Result<()> {
    let all: Vec<Arc<Shared>> = {
        let pools = POOLS.lock();
        pools.iter().flat_map(|pools| pools.values()).filter_map(Weak::upgrade).collect()
    };
    all.iter().try_for_each(|shared| shared.turn().keep_mark(runtime, stream))
}

impl Shared {
    /// Takes the turn, for as long as a replay is being launched.
    #[inline]
    pub fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock()
    }
}

/// An event that is recorded in a capturing stream belongs to its capture, and takes whoever waits for it along.
fn refuse_capturing(runtime: &Runtime, stream: Stream) -> Result<()> {
    if !stream::is_capturing_checked(runtime, stream)? {
        return Ok(());
    }
    Err(Error::new(Status::CAPTURE_FORBIDS, format!("stream {:#x} is capturing", stream.raw.handle())))
}

/// Waits for what a stream has now: by an event, since a stream that is waited for itself may not begin to capture.
fn wait_for(runtime: &Runtime, stream: Stream) -> Result<()> {
    event_pool::with(runtime, stream.device, |event| {
        let held = capture_lock::hold_off();
        refuse_capturing(runtime, stream)?;
        runtime.in_stream(stream, |driver, raw| Ok(driver.event_record(event, raw)?))?;
        drop(held);
        runtime.in_any_context(|driver| Ok(driver.event_synchronize(event)?))
    })
}

/// Whose stream a handle means: that of a thread's own default stream is one in each.
fn thread_of(stream: Stream) -> u64 {
    if stream.raw.handle() == CU_STREAM_PER_THREAD { thread::number() } else { 0 }
}

impl Turn {
    /// Whether the last replay was in this stream, and nothing else is to be looked at.
    #[inline]
    pub fn goes_on_in(&self, stream: driver::Stream) -> bool {
        self.last == stream.handle()
    }

    /// Gives the turn to a stream, behind the one that has it.
    #[cold]
    pub fn give(&mut self, runtime: &Runtime, id: PoolId, stream: Stream, overlap: Overlap) -> Result<()> {
        if pool::is_suspended(id) {
            return Err(Error::new(
                Status::GRAPH_ASLEEP,
                format!("the memory of pool {id} sleeps; plinth_graph_wake brings it back"),
            ));
        }
        let mine = (stream.raw.handle(), thread_of(stream));
        match self.stream {
            Some((last, thread)) if (last.raw.handle(), thread) != mine => {
                if overlap == Overlap::Refuse && !self.is_over(runtime)? {
                    return Err(Error::new(
                        Status::GRAPH_OVERLAP,
                        format!(
                            "a graph of pool {id} still runs in stream {:#x}, and this one may use the same memory",
                            last.raw.handle()
                        ),
                    ));
                }
                self.let_wait(runtime, stream).context(|| "waiting for the pool's last replay, in another stream")?;
            }
            _ => {}
        }
        self.note(runtime, stream);
        Ok(())
    }

    /// Gives the turn to the stream of a capture that has ended: what it was given before may use the pool's memory still. A
    /// stream that cannot wait does not get it.
    pub fn pass_on(&mut self, runtime: &Runtime, stream: Stream) {
        if self.let_wait(runtime, stream).is_ok() {
            self.note(runtime, stream);
        }
    }

    /// Notes that a stream has used the pool.
    fn note(&mut self, runtime: &Runtime, stream: Stream) {
        self.drop_mark(runtime);
        let thread = thread_of(stream);
        self.stream = Some((stream, thread));
        self.last = if thread == 0 { stream.raw.handle() } else { NOBODY };
    }

    /// Lets the next replay look at everything again.
    pub fn interrupt(&mut self) {
        self.last = NOBODY;
    }

    /// Whether the last replay is done.
    fn is_over(&self, runtime: &Runtime) -> Result<bool> {
        if let Some((_, event)) = self.mark {
            return runtime.in_any_context(|driver| Ok(driver.with_relaxed_capture(|| driver.event_query(event))??));
        }
        let Some(last) = self.last_stream() else { return Ok(true) };
        let _held = capture_lock::hold_off();
        if stream::is_capturing_checked(runtime, last)? {
            return Ok(false);
        }
        runtime.in_stream(last, |driver, raw| Ok(driver.with_relaxed_capture(|| driver.stream_query(raw))??))
    }

    fn let_wait(&self, runtime: &Runtime, stream: Stream) -> Result<()> {
        runtime.driver.with_relaxed_capture(|| {
            let _held = capture_lock::hold_off();
            refuse_capturing(runtime, stream)?;
            match (self.mark, self.last_stream()) {
                (Some((_, event)), _) => runtime.in_stream(stream, |driver, raw| {
                    Ok(driver.stream_wait_event(raw, event, CU_EVENT_WAIT_DEFAULT)?)
                }),
                (None, Some(last)) if last.raw == stream.raw && last.device == stream.device => Ok(()),
                (None, Some(last)) => {
                    refuse_capturing(runtime, last)?;
                    stream::order_outside(runtime, stream, last)
                }
                (None, None) => Ok(()),
            }
        })?
    }

    /// Lets streams wait for the last replay before what comes later in them: what goes back behind them may have been used by
    /// it. Where one cannot be told to wait, since it captures, the CPU waits.
    pub fn let_follow(&self, runtime: &Runtime, streams: &[Stream]) {
        let Some(last) = self.last_stream() else { return };
        let others = streams.iter().filter(|stream| stream.raw != last.raw || stream.device != last.device);
        for stream in others {
            if self.let_wait(runtime, *stream).is_err() {
                // If this fails, too, the device is lost, or captures by the program's own calls, which then has to see to it.
                let _ = runtime.driver.with_relaxed_capture(|| match self.mark {
                    Some((_, event)) => runtime.in_any_context(|driver| Ok(driver.event_synchronize(event)?)),
                    None => wait_for(runtime, last),
                });
            }
        }
    }

    fn keep_mark(&mut self, runtime: &Runtime, stream: Stream) -> Result<()> {
        let Some(last) = self.last_stream().filter(|last| last.raw == stream.raw && self.mark.is_none()) else {
            return Ok(());
        };
        let device = runtime.device(last.device as i32)?;
        let event = event_pool::take(device, &runtime.driver, 0)?;
        let recorded = runtime.in_stream(last, |driver, raw| Ok(driver.event_record(event, raw)?));
        if recorded.is_err() {
            event_pool::give_back(device, 0, event);
            return recorded;
        }
        self.mark = Some((last.device, event));
        self.last = NOBODY;
        Ok(())
    }

    fn drop_mark(&mut self, runtime: &Runtime) {
        if let Some((number, event)) = self.mark.take()
            && let Ok(device) = runtime.device(number as i32)
        {
            event_pool::give_back(device, 0, event);
        }
    }

    /// The stream of the last replay, or one that comes after it: another thread's own default stream has no name here, and
    /// the legacy one waits for it.
    pub fn last_stream(&self) -> Option<Stream> {
        let (last, thread) = self.stream?;
        if thread == 0 || thread == thread::number() { Some(last) } else { Some(last.legacy()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = crate::runtime::usable() {
            self.turn.get_mut().drop_mark(runtime);
        }
    }
}
