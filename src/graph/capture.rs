//! Capturing: from the begin to the end in one stream, or to where it is given up.

use super::{Body, Ready, Stage, destroy_native, graph_resources::Kept, lock, parts::Parts, replay, replay_order};
use crate::{
    driver::{self, Driver, Failure, codes, types::*},
    error::{Context, Error, Result},
    memory::{PoolId, pool},
    ops::random::{generator, seed},
    runtime::{self, Runtime, thread},
    status::Status,
    stream::{self, Stream, capture_lock},
};
use std::sync::Arc;

/// What a capture forbids while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Unsafe calls of every thread.
    Global,
    /// Unsafe calls of its own thread.
    ThreadLocal,
    /// Nothing.
    Relaxed,
}

/// A capture that goes on.
pub struct Capture {
    /// Its number.
    id: u64,
    stream: Stream,
    mode: Mode,
    /// The thread that began it.
    thread: u64,
    pub(super) kept: Kept,
    /// Whether it fills the body of a conditional node, a graph that was there before.
    fills_body: bool,
    /// That graph.
    pub(super) before: Option<Ready>,
}

/// Begins to capture a graph in the thread's current stream. Its memory comes from a pool, its own if none is named.
pub fn begin(handle: u64, pool: PoolId, mode: Mode) -> Result<()> {
    lock(handle)?.begin_capture(pool, mode).context(|| "beginning a capture")
}

/// Ends the capture of a graph, in the stream that it began in.
pub fn end(handle: u64) -> Result<()> {
    lock(handle)?.end_capture().context(|| "ending a capture")
}

impl Mode {
    fn native(self) -> u32 {
        match self {
            Mode::Global => CU_STREAM_CAPTURE_MODE_GLOBAL,
            Mode::ThreadLocal => CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Mode::Relaxed => CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

fn check_pool(pool: PoolId) -> Result<PoolId> {
    if pool.owner != 0 && pool.index != 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("{pool} names no pool: one of both numbers must be 0")));
    }
    Ok(if pool == PoolId::DEFAULT { pool::new_capture_id() } else { pool })
}

impl Body {
    fn begin_capture(&mut self, pool: PoolId, mode: Mode) -> Result<()> {
        let fills_body = self.is_body();
        if !fills_body {
            self.check_new("the capture")?;
        }
        let runtime = runtime::ready()?;
        let device = runtime.current_device()?;
        let pool = check_pool(pool)?;
        let stream = stream::current_on(runtime, device.ordinal)?;
        if stream.is_default() {
            return Err(Error::new(
                Status::GRAPH_DEFAULT_STREAM,
                "graphs must be captured in a stream other than the default one; replays may be in any",
            ));
        }
        if runtime.in_stream(stream, |driver, raw| Ok(driver.stream_capture_status(raw)?))?
            != CU_STREAM_CAPTURE_STATUS_NONE
        {
            return Err(Error::new(Status::CAPTURE_FORBIDS, "the current stream is capturing already"));
        }
        let mut states = self.registered.clone();
        // A body is carried out any number of times, so that its numbers have no place in a sequence.
        if !fills_body {
            states.push(generator::get(seed::default_generator(device.ordinal as i32)?)?);
        }
        let kept = Kept::new(device, stream, pool, states)?;
        replay_order::keep_marks(runtime, stream).context(|| "marking the end of the stream's replays")?;
        capture_lock::begin(|| {
            if fills_body {
                self.ready("the capture")?.begin_capture_of_body(runtime, stream, mode.native())
            } else {
                runtime.in_stream(stream, |driver, raw| Ok(driver.stream_begin_capture(raw, mode.native())?))
            }
        })?;
        let mut capture = Capture { id: 0, stream, mode, thread: thread::number(), kept, fills_body, before: None };
        match capture.start(runtime) {
            Ok(()) => {
                self.go_on_with(capture);
                Ok(())
            }
            Err(error) => {
                // The error that counts is the one that is told; a capture that will not end ends with the next reset.
                if capture.abandon(runtime).is_err() {
                    self.go_on_with(capture);
                }
                Err(error)
            }
        }
    }

    fn go_on_with(&mut self, mut capture: Capture) {
        if let Stage::Ready(ready) = std::mem::take(&mut self.stage) {
            capture.before = Some(ready);
        }
        self.stage = Stage::Capturing(Box::new(capture));
    }

    fn end_capture(&mut self) -> Result<()> {
        let Stage::Capturing(capture) = &mut self.stage else {
            return Err(Error::new(
                Status::GRAPH_NOT_CAPTURING,
                "the graph is not being captured; plinth_graph_capture_begin begins that",
            ));
        };
        let runtime = runtime::ready()?;
        capture.check_place()?;
        let native = match end_in(runtime, capture.stream) {
            Ok(native) => native,
            Err(error) => {
                // If the capture goes on, so does the graph's.
                if !is_capturing(&runtime.driver, capture.stream.raw) {
                    capture.close(runtime);
                    let before = capture.before.take();
                    self.stage = before.map_or(Stage::Empty, Stage::Ready);
                }
                return Err(error);
            }
        };
        capture.close(runtime);
        let Stage::Capturing(capture) = std::mem::take(&mut self.stage) else { return Ok(()) };
        if let Some(body) = capture.before {
            body.parts.keep(capture.kept);
            self.stage = Stage::Ready(body);
            return Ok(());
        }
        match self.finish(runtime, native, capture.kept) {
            Ok(ready) => {
                self.stage = Stage::Ready(ready);
                Ok(())
            }
            Err(error) => {
                // The error that counts is why there is no graph.
                if destroy_native(runtime, native).is_err() {
                    let _ = destroy_native(runtime, native);
                }
                Err(error)
            }
        }
    }

    /// Makes of what was captured what can be replayed.
    fn finish(&self, runtime: &Runtime, native: driver::Graph, mut kept: Kept) -> Result<Ready> {
        let empty = runtime.in_any_context(|driver| Ok(driver.graph_node_count(native)? == 0))?;
        if empty {
            return Err(Error::new(
                Status::GRAPH_EMPTY,
                "the graph is empty; this usually means that the work went to another device or another stream than the \
                 one that was captured",
            ));
        }
        kept.settle(runtime)?;
        let exec = if self.keep { None } else { Some(replay::instantiate_native(runtime, kept.device, native)?) };
        let mut ready = Ready { exec, native: Some(native), kept: Arc::new(kept), parts: Parts::default() };
        if !self.keep && !self.debug {
            if destroy_native(runtime, native).is_err() {
                // It is of no use any more, and costs some memory until the graph is reset.
                return Ok(ready);
            }
            ready.native = None;
        }
        Ok(ready)
    }
}

fn is_capturing(driver: &Driver, stream: driver::Stream) -> bool {
    !matches!(driver.stream_capture_status(stream), Ok(CU_STREAM_CAPTURE_STATUS_NONE))
}

/// Ends the capture in a stream, and gives what there is of its graph.
fn end_in(runtime: &Runtime, stream: Stream) -> Result<driver::Graph> {
    runtime.in_stream(stream, |driver, raw| {
        let wrong_thread = |failure: &Failure| failure.code == codes::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        match driver.stream_end_capture(raw) {
            // The call may have failed before it came to anything.
            Err(failure) if !wrong_thread(&failure) && is_capturing(driver, raw) => Ok(driver.stream_end_capture(raw)?),
            outcome => Ok(outcome?),
        }
    })
}

impl Capture {
    /// Asks for the capture's number, and lets its requests and its numbers be the graph's.
    fn start(&mut self, runtime: &Runtime) -> Result<()> {
        let id = runtime.in_stream(self.stream, |driver, raw| Ok(driver.stream_capture_id(raw)?))?;
        self.id = id.ok_or_else(|| Error::new(Status::CAPTURE_INVALIDATED, "the capture ended as it began"))?;
        self.kept.begin(runtime, self.id)
    }

    /// Whether this is where the capture may end.
    fn check_place(&self) -> Result<()> {
        let current = thread::stream(self.stream.device);
        if current != self.stream.raw {
            return Err(Error::new(
                Status::GRAPH_WRONG_STREAM,
                format!(
                    "a capture must end in the stream that it began in: that is {:#x}, and the current one is {:#x}",
                    self.stream.raw.handle(),
                    current.handle()
                ),
            ));
        }
        self.check_thread()
    }

    fn check_thread(&self) -> Result<()> {
        if self.mode != Mode::Relaxed && self.thread != thread::number() {
            return Err(Error::new(
                Status::GRAPH_WRONG_THREAD,
                "a capture that is not relaxed must end in the thread that it began in",
            ));
        }
        Ok(())
    }

    /// The stream captures no more.
    fn close(&mut self, runtime: &Runtime) {
        capture_lock::end();
        self.kept.end(runtime, self.id);
    }

    /// Ends the capture and throws away what came of it.
    pub(super) fn abandon(&mut self, runtime: &Runtime) -> Result<()> {
        self.check_thread()?;
        match end_in(runtime, self.stream) {
            // What came into a body stays there.
            Ok(_) if self.fills_body => {}
            Ok(native) => {
                if destroy_native(runtime, native).is_err() {
                    let _ = destroy_native(runtime, native);
                }
            }
            Err(error) if is_capturing(&runtime.driver, self.stream.raw) => return Err(error),
            // It was invalid, and there is no graph.
            Err(_) => {}
        }
        self.close(runtime);
        Ok(())
    }
}
