//! What messages say about captures that fail: which capture forbids a call and what to do instead, the call that broke
//! a capture, and the streams that were not joined.
//!
//! The driver reports none of it. So the library keeps its captures, the last of its calls that failed because of a
//! capture, and the streams that waited while a capture was in progress. All are about the captures since the first of
//! those that are in progress began.

use super::{Stream, capture_lock};
use crate::{
    driver::{GraphNode, codes},
    error::{Error, Result},
    runtime::{Runtime, thread},
};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

/// A capture of the library.
struct Begun {
    stream: Stream,
    /// The name of its mode, without PLINTH_CAPTURE_.
    mode: &'static str,
    /// The thread that began it.
    thread: u64,
}

#[derive(Default)]
struct Report {
    /// The captures in progress.
    captures: Vec<Begun>,
    /// The last call that failed, with its message.
    failure: Option<String>,
    /// The streams that may have joined a capture, because they waited for others.
    waiting: Vec<Stream>,
}

static REPORT: Mutex<Option<Report>> = Mutex::new(None);

/// Forgets earlier captures.
pub(super) fn clear() {
    *REPORT.lock() = None;
}

/// Records that a capture began in a stream.
pub fn on_begin(stream: Stream, mode: &'static str) {
    REPORT.lock().get_or_insert_default().captures.push(Begun { stream, mode, thread: thread::number() });
}

/// Records that the capture of a stream ended.
pub fn on_end(stream: Stream) {
    if let Some(report) = REPORT.lock().as_mut() {
        report.captures.retain(|begun| begun.stream.raw != stream.raw);
    }
}

/// Records that a stream waits for other work, by which it may join a capture.
#[cold]
pub(super) fn on_wait(stream: Stream) {
    let mut report = REPORT.lock();
    let waiting = &mut report.get_or_insert_default().waiting;
    if !stream.is_default() && waiting.iter().all(|known| known.raw != stream.raw) {
        waiting.push(stream);
    }
}

/// Records the error of a call that broke a capture. Adds the recorded call to the error of one that found a capture
/// broken. Returns other errors as they are.
#[cold]
pub fn explain(call: &str, error: Error) -> Error {
    match error.driver_code() {
        codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        | codes::CUDA_ERROR_STREAM_CAPTURE_MERGE
        | codes::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
        | codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
        | codes::CUDA_ERROR_CAPTURED_EVENT => {
            let mut report = REPORT.lock();
            let report = report.get_or_insert_default();
            // A call may return the error of an earlier one.
            if report.failure.as_ref().is_some_and(|failure| failure.ends_with(error.message())) {
                return error;
            }
            let error = with_remedy(error, &report.captures);
            report.failure = Some(format!("{call} broke it: {error}"));
            error
        }
        code @ codes::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => {
            let report = REPORT.lock();
            let failure = report.as_ref().and_then(|report| report.failure.as_deref());
            let cause = failure.unwrap_or("it was broken by a call outside of plinth");
            Error::new(error.status(), format!("{error}; {cause}")).with_driver_code(code)
        }
        _ => error,
    }
}

/// Adds the captures in progress and what to do instead to the error of a call that a capture forbids.
fn with_remedy(error: Error, captures: &[Begun]) -> Error {
    let others = captures.iter().any(|begun| begun.thread != thread::number());
    let remedy = match error.driver_code() {
        codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if others => {
            "make the call before or after the capture, or begin that in mode PLINTH_CAPTURE_THREAD_LOCAL, which forbids \
             such calls in its own thread only"
        }
        codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => "make the call before or after the capture",
        codes::CUDA_ERROR_STREAM_CAPTURE_MERGE => "a stream of a capture can wait for streams of the same capture only",
        codes::CUDA_ERROR_STREAM_CAPTURE_ISOLATION => {
            "order the two before the capture begins, or create the event with PLINTH_EVENT_EXTERNAL: in a capture a \
             stream can only wait for what was captured in it"
        }
        codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => {
            "use another stream: the default stream waits for the capturing ones"
        }
        codes::CUDA_ERROR_CAPTURED_EVENT => {
            "record the event again after the capture, or create it with PLINTH_EVENT_EXTERNAL, so that replays record it"
        }
        _ => return error,
    };
    let forbids = captures.iter().map(|begun| {
        let by = if begun.thread == thread::number() { "this thread" } else { "another thread" };
        format!("{} is capturing (PLINTH_CAPTURE_{}, begun by {by})", begun.stream.describe(), begun.mode)
    });
    let forbids: Vec<String> = forbids.collect();
    let forbids =
        if forbids.is_empty() { "a capture outside of plinth is in progress".into() } else { forbids.join(", ") };
    let code = error.driver_code();
    Error::new(error.status(), format!("{error}; {forbids}; {remedy}")).with_driver_code(code)
}

/// Returns the streams of a capture whose last work the stream in which it began does not wait for. Makes driver calls
/// only if a stream may have joined.
pub fn find_unjoined(runtime: &Runtime, origin: Stream, capture: u64) -> Vec<Stream> {
    let mut waiting = REPORT.lock().as_ref().map(|report| report.waiting.clone()).unwrap_or_default();
    waiting.retain(|stream| stream.raw != origin.raw);
    // Only a message needs the answer, so an error here is not one of the call.
    if waiting.is_empty() { Vec::new() } else { unjoined(runtime, origin, capture, &waiting).unwrap_or_default() }
}

fn unjoined(runtime: &Runtime, origin: Stream, capture: u64, others: &[Stream]) -> Result<Vec<Stream>> {
    let _held = capture_lock::lock_shared();
    let info = |stream: Stream| runtime.in_stream(stream, |driver, raw| Ok(driver.stream_capture_info(raw)?));
    let begun = info(origin)?;
    let Some(graph) = begun.graph else { return Ok(Vec::new()) };
    let mut ends = Vec::new();
    // The lock keeps streams from ending. Those that have ended are not in the table any more.
    for other in others.iter().filter(|other| runtime.streams.find(other.raw.handle()).is_some()) {
        let found = info(*other)?;
        if found.id == capture && !found.dependencies.is_empty() {
            ends.push((*other, found.dependencies));
        }
    }
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let mut before: HashMap<GraphNode, Vec<GraphNode>> = HashMap::new();
    for (from, to) in runtime.in_any_context(|driver| Ok(driver.graph_edges(graph)?))? {
        before.entry(to).or_default().push(from);
    }
    let (mut joined, mut next) = (HashSet::new(), begun.dependencies);
    while let Some(node) = next.pop() {
        if joined.insert(node) {
            next.extend(before.get(&node).into_iter().flatten());
        }
    }
    ends.retain(|(_, nodes)| nodes.iter().any(|node| !joined.contains(node)));
    Ok(ends.into_iter().map(|(stream, _)| stream).collect())
}
