//! The watchdog of NCCL's work in streams: NCCL's kernels wait for the other ranks without a limit.
//!
//! Every launch of a rank outside of a capture lies between two events in each of its streams. A thread polls them. It aborts
//! the communicator whose launch has run longer than its limit, or which has an asynchronous error, and the next call reports
//! that launch. The thread exists only while there are launches to watch.

use super::{nccl::NcclRank, nccl_report, operation::Operation};
use crate::{
    base::{
        deadline::Deadline,
        log,
        worker::{self, Worker},
    },
    driver::{Driver, codes, nccl::Nccl},
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
    time::{Duration, Instant},
};

/// The number of launches from which a call removes those that have ended, instead of the thread.
const MANY_LAUNCHES: usize = 64;
/// The most launches with events.
const MAX_LAUNCHES: usize = 1024;
/// The time between two checks is this part of the shortest limit, within bounds.
const CHECKS_OF_LIMIT: u32 = 20;
const MIN_INTERVAL: Duration = Duration::from_millis(1);
const MAX_INTERVAL: Duration = Duration::from_millis(100);
/// How long an abort waits for NCCL's report.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

/// Calls of a rank that NCCL launched together.
struct Launch {
    /// The numbers of the first and of the last call.
    calls: (u64, u64),
    /// The first operation.
    operation: Operation,
    /// The events before and after it, in each of its streams.
    started: Vec<PooledEvent>,
    ended: Vec<PooledEvent>,
    /// When the device was first seen to execute it. NCCL's launches of a communicator execute one after the other.
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
    /// Whether a launch has no events, so that its end is unknown.
    has_unknown_end: bool,
    /// Whether the thread checks the rank.
    watched: bool,
}

/// The operations of a rank that NCCL receives together, and the events before them.
pub(super) struct Started<'a> {
    rank: &'a Arc<NcclRank>,
    operation: &'a Operation,
    calls: u64,
    events: Vec<(Stream, PooledEvent)>,
}

/// Marks the beginning of operations in their streams. What is part of a capture is not watched.
pub(super) fn start<'a>(
    runtime: &Runtime,
    operations: impl Iterator<Item = (&'a Arc<NcclRank>, &'a Operation)>,
) -> Vec<Started<'a>> {
    let mut started: Vec<Started<'a>> = Vec::new();
    for (rank, operation) in operations {
        let stream = operation.stream;
        if !matches!(stream::capture_id(runtime, stream), Ok(None)) {
            continue;
        }
        let found = started.iter().position(|other| Arc::ptr_eq(other.rank, rank));
        let index = found.unwrap_or_else(|| {
            started.push(Started { rank, operation, calls: 0, events: Vec::new() });
            started.len() - 1
        });
        let own = &mut started[index];
        own.calls += 1;
        if !own.events.iter().any(|(other, _)| other.raw == stream.raw) {
            own.events.extend(recorded(runtime, stream).map(|event| (stream, event)));
        }
    }
    started
}

/// Returns an event that is recorded in a stream.
fn recorded(runtime: &Runtime, stream: Stream) -> Option<PooledEvent> {
    let event = PooledEvent::acquire(runtime.device(stream.device() as i32).ok()?, &runtime.driver, 0).ok()?;
    let record = || runtime.in_stream(stream, |driver, raw| Ok(driver.event_record(event.native(), raw)?));
    record().or_else(|_| record()).or_else(|_| record()).is_ok().then_some(event)
}

/// Watches operations that NCCL has put into their streams, each for at most `limit`.
pub(super) fn watch(runtime: &Runtime, started: Vec<Started<'_>>, limit: Duration) {
    for Started { rank, operation, calls, events } in started {
        let mut launches = rank.launches().lock();
        let first = launches.calls + 1;
        launches.calls += calls;
        let calls = (first, launches.calls);
        while launches.pending.len() >= MANY_LAUNCHES && launches.remove_first_if_ended(runtime) {}
        let ended: Vec<PooledEvent> = events.iter().filter_map(|(stream, _)| recorded(runtime, *stream)).collect();
        if events.is_empty() || ended.len() < events.len() || launches.pending.len() >= MAX_LAUNCHES {
            launches.has_unknown_end = true;
            continue;
        }
        let started = events.into_iter().map(|(_, event)| event).collect();
        let launch = Launch { calls, operation: *operation, started, ended, running_since: None, limit };
        launches.pending.push_back(launch);
        if !std::mem::replace(&mut launches.watched, true) {
            drop(launches);
            add(rank);
        }
    }
}

/// Returns whether the device has reached all events. If that cannot be asked, it has not, unless the device has lost all work.
fn are_reached(runtime: &Runtime, events: &[PooledEvent]) -> bool {
    events.iter().all(|event| {
        let query = |driver: &Driver| Ok(driver.with_relaxed_capture(|| driver.event_query(event.native()))??);
        runtime.in_any_context(query).unwrap_or_else(|error| codes::is_context_lost(error.driver_code()))
    })
}

impl Launches {
    fn remove_first_if_ended(&mut self, runtime: &Runtime) -> bool {
        let has_ended = self.pending.front().is_some_and(|launch| are_reached(runtime, &launch.ended));
        if has_ended && let Some(launch) = self.pending.pop_front() {
            self.last_ended = launch.calls.1;
        }
        has_ended
    }
}

/// Returns whether a rank's launches outside of captures have ended; `None` if that is unknown.
pub(super) fn is_idle(runtime: &Runtime, rank: &NcclRank) -> Option<bool> {
    let mut launches = rank.launches().lock();
    while launches.remove_first_if_ended(runtime) {}
    (!launches.has_unknown_end).then_some(launches.pending.is_empty())
}

/// Removes the launches of a rank that have ended. Returns the shortest limit of the others, the error of one that exceeds it,
/// or `None` if there is nothing to watch any more.
fn check(runtime: &Runtime, rank: &NcclRank) -> Result<Option<Duration>> {
    let mut launches = rank.launches().lock();
    while launches.remove_first_if_ended(runtime) {}
    let Launches { pending, last_ended, watched, .. } = &mut *launches;
    let next = pending.iter().map(|launch| launch.limit).min();
    let Some(launch) = pending.front_mut().filter(|_| !rank.has_ended()) else {
        *watched = false;
        return Ok(None);
    };
    let ended = match *last_ended {
        0 => "no call before has ended".to_owned(),
        last => format!("call {last} was the last that ended"),
    };
    rank.check_health().context(|| format!("{launch} was running; {ended}"))?;
    if launch.running_since.is_none() && are_reached(runtime, &launch.started) {
        launch.running_since = Some(Instant::now());
    }
    if launch.running_since.is_some_and(|since| since.elapsed() >= launch.limit) {
        let seconds = launch.limit.as_secs_f64();
        let what = format!("{launch} has waited for the other ranks for {seconds:.3} s, which is the limit; {ended}");
        return Err(Error::new(Status::TIMED_OUT, what));
    }
    Ok(next)
}

/// The thread and the ranks that it watches.
struct State {
    ranks: Vec<Weak<NcclRank>>,
    worker: Worker,
}

impl State {
    fn worker(&mut self) -> &mut Worker {
        &mut self.worker
    }
}

static STATE: Mutex<State> = Mutex::new(State { ranks: Vec::new(), worker: Worker::new() });
static CHANGED: Condvar = Condvar::new();

/// Watches a rank, and starts the thread if there is none. Without a thread the calls that wait still have their limits.
fn add(rank: &Arc<NcclRank>) {
    let mut state = STATE.lock();
    if !state.worker.must_stop() {
        state.ranks.push(Arc::downgrade(rank));
        state.worker.start("plinth-watchdog", run);
    }
}

fn run() {
    // Until the limits are known. A thread that has nothing to watch stays for an interval, because calls follow each other.
    let mut interval = MIN_INTERVAL;
    let mut is_idle = false;
    let mut reported = None;
    let mut state = STATE.lock();
    loop {
        CHANGED.wait_while_for(&mut state, |state| !state.worker.must_stop(), interval);
        if state.worker.must_stop() || is_idle && state.ranks.is_empty() {
            break;
        }
        let ranks = std::mem::take(&mut state.ranks);
        drop(state);
        interval = MAX_INTERVAL;
        let watched: Vec<Weak<NcclRank>> = ranks
            .into_iter()
            .filter(|rank| {
                let next = check_or_abort(rank, &mut reported);
                interval = interval.min(next.unwrap_or(MAX_INTERVAL));
                next.is_some()
            })
            .collect();
        state = STATE.lock();
        if !state.ranks.is_empty() {
            interval = MIN_INTERVAL;
        }
        state.ranks.extend(watched);
        is_idle = state.ranks.is_empty();
    }
    state.ranks.clear();
    worker::end(state, &CHANGED, State::worker);
}

/// Checks a rank, and aborts its communicator after an error. Returns the time to the next check; `None` if there is none.
fn check_or_abort(rank: &Weak<NcclRank>, reported: &mut Option<Instant>) -> Option<Duration> {
    let (rank, runtime) = (rank.upgrade()?, runtime::usable()?);
    match check(runtime, &rank) {
        Ok(limit) => limit.map(|limit| (limit / CHECKS_OF_LIMIT).clamp(MIN_INTERVAL, MAX_INTERVAL)),
        Err(error) => {
            // Several ranks of the process fail one after the other, and have the same report.
            let asks = reported.is_none_or(|time| time.elapsed() > REPORT_LIMIT);
            rank.abort_with_error(runtime, error, || {
                if asks {
                    log_report(rank.nccl());
                }
            });
            *reported = Some(Instant::now());
            None
        }
    }
}

/// Logs NCCL's report, before an abort after which the report would not have the communicator any more. Waits for it no longer
/// when the process exits.
fn log_report(nccl: &Nccl) {
    let exits = || STATE.lock().worker.must_stop();
    log::warning(|| match nccl_report::report(nccl, Deadline::new(REPORT_LIMIT).unless(&exits)) {
        Ok(report) => format!("NCCL's report before the abort:\n{report}"),
        Err(error) => format!("NCCL's report before the abort is not available: {}", error.message()),
    });
}

/// Stops the thread permanently, if there is one. Called when the process begins to exit.
pub fn stop() {
    // A forked child has no such thread, and any thread of the parent may have held the lock at the fork.
    if runtime::usable().is_none() {
        return;
    }
    worker::stop(&STATE, &CHANGED, State::worker);
}
