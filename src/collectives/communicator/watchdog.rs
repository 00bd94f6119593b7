//! The watchdog of NCCL's work in streams: NCCL's kernels wait for the other ranks without a limit.
//!
//! Every launch of a rank outside of a capture lies between two events. A thread asks for them, and ends the communicator whose
//! launch has run longer than its limit, or which has an asynchronous error; its later calls explain which launch that was. The
//! thread exists only while there are launches to watch, and a launch costs two records of an event.

use super::{nccl::NcclRank, operation::Operation};
use crate::{
    driver,
    error::{Context, Error, Result},
    runtime::{self, Runtime},
    status::Status,
    stream::{self, Stream, event_pool::PooledEvent},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The launches of a rank that have events of their own. Those behind them share the events of the last.
const MOST_LAUNCHES: usize = 16;
/// The time between two checks is this part of the shortest limit, within bounds.
const CHECKS_OF_LIMIT: u32 = 20;
const MIN_INTERVAL: Duration = Duration::from_millis(1);
const MAX_INTERVAL: Duration = Duration::from_millis(100);
/// How long the exit of the process waits for a check.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Consecutive launches of a rank in one stream.
struct Launch {
    /// The numbers of the first and of the last call.
    calls: (u64, u64),
    /// The first operation.
    operation: Operation,
    started: PooledEvent,
    ended: PooledEvent,
    /// When the device was first seen to execute it.
    running_since: Option<Instant>,
    limit: Duration,
}

impl fmt::Display for Launch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.calls {
            (first, last) if first == last => write!(formatter, "{} (call {first})", self.operation),
            (first, last) => write!(formatter, "{} (call {first}) or one of the calls to {last}", self.operation),
        }
    }
}

/// The launches of a rank that have not been seen to end.
#[derive(Default)]
pub(super) struct Launches {
    pending: VecDeque<Launch>,
    /// The number of calls so far, of which those up to `last_ended` have ended.
    calls: u64,
    last_ended: u64,
    /// Whether the thread knows the rank.
    watched: bool,
}

/// The operations of a rank in a stream that NCCL receives together, and the event before them.
pub(super) struct Started<'a> {
    rank: &'a Arc<NcclRank>,
    operation: &'a Operation,
    calls: u64,
    event: PooledEvent,
}

/// Marks the beginning of operations in their streams. What is part of a capture is not watched, and neither is an operation for
/// which the driver has no event.
pub(super) fn start<'a>(
    runtime: &Runtime,
    operations: impl Iterator<Item = (&'a Arc<NcclRank>, &'a Operation)>,
) -> Vec<Started<'a>> {
    let mut started: Vec<Started<'a>> = Vec::new();
    for (rank, operation) in operations {
        let is_same = |other: &&mut Started<'a>| {
            Arc::ptr_eq(other.rank, rank) && other.operation.stream.raw == operation.stream.raw
        };
        match started.iter_mut().find(is_same) {
            Some(other) => other.calls += 1,
            None => started.extend(event_before(runtime, operation.stream).map(|event| Started {
                rank,
                operation,
                calls: 1,
                event,
            })),
        }
    }
    started
}

fn event_before(runtime: &Runtime, stream: Stream) -> Option<PooledEvent> {
    if stream::capture_id(runtime, stream).ok()?.is_some() {
        return None;
    }
    recorded(runtime, stream).ok()
}

/// Returns an event that is recorded in a stream.
fn recorded(runtime: &Runtime, stream: Stream) -> Result<PooledEvent> {
    let event = PooledEvent::acquire(runtime.device(stream.device as i32)?, &runtime.driver, 0)?;
    record(runtime, stream, &event)?;
    Ok(event)
}

fn record(runtime: &Runtime, stream: Stream, event: &PooledEvent) -> Result<()> {
    runtime.in_stream(stream, |driver, raw| Ok(driver.event_record(event.native(), raw)?))
}

/// Watches operations that NCCL has put into their streams, each for at most `limit`.
pub(super) fn watch(runtime: &Runtime, started: Vec<Started<'_>>, limit: Duration) {
    for Started { rank, operation, calls, event } in started {
        let stream = operation.stream;
        let mut launches = rank.launches().lock();
        let first = launches.calls + 1;
        launches.calls += calls;
        let last = launches.calls;
        let is_full = launches.pending.len() >= MOST_LAUNCHES;
        let shares = |before: &&mut Launch| is_full && before.operation.stream.raw == stream.raw;
        if let Some(before) = launches.pending.back_mut().filter(shares) {
            if record(runtime, stream, &before.ended).is_ok() {
                before.calls.1 = last;
            }
            continue;
        }
        let Ok(ended) = recorded(runtime, stream) else { continue };
        launches.pending.push_back(Launch {
            calls: (first, last),
            operation: *operation,
            started: event,
            ended,
            running_since: None,
            limit,
        });
        if !std::mem::replace(&mut launches.watched, true) {
            drop(launches);
            add(rank);
        }
    }
}

/// Returns whether the device has reached an event. After an error of the context there is nothing to wait for: its calls report
/// the error.
fn is_reached(runtime: &Runtime, event: &PooledEvent) -> bool {
    let query = |driver: &driver::Driver| Ok(driver.with_relaxed_capture(|| driver.event_query(event.native()))??);
    runtime.in_any_context(query).unwrap_or(true)
}

impl Launches {
    /// Removes the launches that have ended.
    fn remove_ended(&mut self, runtime: &Runtime) {
        self.pending.retain(|launch| {
            let is_done = is_reached(runtime, &launch.ended);
            self.last_ended = self.last_ended.max(if is_done { launch.calls.1 } else { 0 });
            !is_done
        });
    }
}

/// Returns whether a rank's launches outside of captures have ended.
pub(super) fn is_idle(runtime: &Runtime, rank: &NcclRank) -> bool {
    let mut launches = rank.launches().lock();
    launches.remove_ended(runtime);
    launches.pending.is_empty()
}

/// Removes the launches of a rank that have ended. Returns the shortest limit of the others, the error of one that exceeds it,
/// or `None` if there is nothing to watch any more.
fn check(runtime: &Runtime, rank: &NcclRank) -> Result<Option<Duration>> {
    let mut launches = rank.launches().lock();
    launches.remove_ended(runtime);
    let Launches { pending, last_ended, watched, .. } = &mut *launches;
    if pending.is_empty() {
        *watched = false;
        return Ok(None);
    }
    for launch in pending.iter_mut().filter(|launch| launch.running_since.is_none()) {
        launch.running_since = is_reached(runtime, &launch.started).then(Instant::now);
    }
    let ended = match *last_ended {
        0 => "no call before has ended".to_owned(),
        last => format!("call {last} was the last that ended"),
    };
    let running = || pending.iter().filter_map(|launch| Some((launch, launch.running_since?)));
    let oldest = running().min_by_key(|(_, since)| *since).map(|(launch, _)| launch).or(pending.front());
    rank.check_health()
        .context(|| oldest.map_or_else(String::new, |launch| format!("{launch} was running; {ended}")))?;
    if let Some((launch, _)) = running().find(|(launch, since)| since.elapsed() >= launch.limit) {
        let seconds = launch.limit.as_secs_f64();
        let what = format!("{launch} has waited for the other ranks for {seconds:.3} s, which is the limit; {ended}");
        return Err(Error::new(Status::TIMED_OUT, what));
    }
    Ok(pending.iter().map(|launch| launch.limit).min())
}

/// The thread and the ranks that it watches.
struct State {
    ranks: Vec<Weak<NcclRank>>,
    thread: Option<JoinHandle<()>>,
    running: bool,
    stop: bool,
}

static STATE: Mutex<State> = Mutex::new(State { ranks: Vec::new(), thread: None, running: false, stop: false });
static CHANGED: Condvar = Condvar::new();

/// Watches a rank, and starts the thread if there is none. Without a thread the calls that wait still have their limits.
fn add(rank: &Arc<NcclRank>) {
    let mut state = STATE.lock();
    if state.stop {
        return;
    }
    state.ranks.push(Arc::downgrade(rank));
    if !state.running {
        // The handle of a thread that has ended is dropped.
        state.thread = thread::Builder::new().name("plinth-watchdog".into()).spawn(run).ok();
        state.running = state.thread.is_some();
    }
    drop(state);
    // The new rank may have a shorter limit than the others.
    CHANGED.notify_all();
}

fn run() {
    let mut state = STATE.lock();
    while !state.stop && !state.ranks.is_empty() {
        let ranks = std::mem::take(&mut state.ranks);
        drop(state);
        let mut interval = MAX_INTERVAL;
        let watched: Vec<Weak<NcclRank>> = ranks
            .into_iter()
            .filter(|rank| {
                let next = check_or_end(rank);
                interval = interval.min(next.unwrap_or(MAX_INTERVAL));
                next.is_some()
            })
            .collect();
        state = STATE.lock();
        state.ranks.extend(watched);
        if !state.ranks.is_empty() && !state.stop {
            CHANGED.wait_for(&mut state, interval);
        }
    }
    state.ranks.clear();
    state.running = false;
    drop(state);
    CHANGED.notify_all();
}

/// Checks a rank, and ends its communicator after an error. Returns the time to the next check; `None` if there is none.
fn check_or_end(rank: &Weak<NcclRank>) -> Option<Duration> {
    let (rank, runtime) = (rank.upgrade()?, runtime::usable()?);
    match check(runtime, &rank) {
        Ok(limit) => limit.map(|limit| (limit / CHECKS_OF_LIMIT).clamp(MIN_INTERVAL, MAX_INTERVAL)),
        Err(error) => {
            rank.end_because(runtime, error);
            None
        }
    }
}

/// Stops the thread permanently, if there is one. Called when the process begins to exit.
pub fn stop() {
    // A forked child has no such thread, and any thread of the parent may have held the lock at the fork.
    if runtime::usable().is_none() {
        return;
    }
    let mut state = STATE.lock();
    state.stop = true;
    CHANGED.notify_all();
    CHANGED.wait_while_for(&mut state, |state| state.running, EXIT_TIMEOUT);
    let thread = if state.running { None } else { state.thread.take() };
    drop(state);
    if let Some(thread) = thread {
        // The thread has ended; a panic in it does not matter any more.
        let _ = thread.join();
    }
}
