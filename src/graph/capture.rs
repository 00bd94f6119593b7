//! Stream capture: the begin, the end and the cancellation.

use super::{
    GraphState, Ready, Stage, destroy_native, graph_resources::GraphResources, lock, parts::Parts, replay, replay_order,
};
use crate::{
    base::retry::retry,
    driver::{self, Failure, codes, types::*},
    error::{Context, Error, Result},
    memory::{PoolId, pool},
    ops::random::{generator, seed},
    runtime::{self, Runtime, thread},
    status::Status,
    stream::{self, Stream, capture_lock, capture_status::may_capture},
};
use std::sync::Arc;

/// The calls that a capture forbids while it is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Potentially unsafe calls of every thread.
    Global,
    /// Potentially unsafe calls of the capturing thread.
    ThreadLocal,
    /// No calls.
    Relaxed,
}

/// A capture in progress.
pub struct Capture {
    /// The capture's ID.
    id: u64,
    stream: Stream,
    mode: Mode,
    /// The thread that began the capture.
    thread: u64,
    pub(super) resources: GraphResources,
    /// Whether the capture fills the body of a conditional node, which is an existing graph.
    fills_body: bool,
    /// The body graph, while the capture into it is in progress.
    pub(super) before: Option<Ready>,
}

/// Begins to capture a graph in the thread's current stream. The memory comes from `pool`; from a new pool if that is
/// the default pool's ID.
pub fn begin(handle: u64, pool: PoolId, mode: Mode) -> Result<()> {
    lock(handle)?.begin_capture(pool, mode).context(|| "beginning a capture")
}

/// Ends the capture of a graph, in the stream in which it began.
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

impl GraphState {
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
                "graphs must be captured in a stream other than the default stream; replays may use any stream",
            ));
        }
        if stream::is_validated_capturing(runtime, stream)? {
            return Err(Error::new(Status::CAPTURE_FORBIDS, "the current stream is capturing already"));
        }
        let mut states = self.registered.clone();
        // A body runs any number of times per replay, so its random numbers cannot be part of a generator's sequence.
        if !fills_body {
            states.push(generator::get(seed::default_generator(device.ordinal as i32)?)?);
        }
        let resources = GraphResources::new(device, stream, pool, states)?;
        replay_order::record_replay_ends(runtime, stream).context(|| "recording the end of the stream's replays")?;
        capture_lock::begin_capture(|| {
            if fills_body {
                self.ready("the capture")?.begin_capture_of_body(runtime, stream, mode.native())
            } else {
                runtime.in_stream(stream, |driver, raw| Ok(driver.stream_begin_capture(raw, mode.native())?))
            }
        })?;
        let mut capture =
            Capture { id: 0, stream, mode, thread: thread::number(), resources, fills_body, before: None };
        match capture.start(runtime) {
            Ok(()) => {
                self.set_capturing(capture);
                Ok(())
            }
            Err(error) => {
                // The first error is returned. If the capture cannot be ended here, the next reset ends it.
                if capture.abandon(runtime).is_err() {
                    self.set_capturing(capture);
                }
                Err(error)
            }
        }
    }

    fn set_capturing(&mut self, mut capture: Capture) {
        if let Stage::Ready(ready) = std::mem::take(&mut self.stage) {
            capture.before = Some(ready);
        }
        self.stage = Stage::Capturing(Box::new(capture));
    }

    fn end_capture(&mut self) -> Result<()> {
        let Stage::Capturing(capture) = &mut self.stage else {
            return Err(Error::new(
                Status::GRAPH_NOT_CAPTURING,
                "the graph is not being captured; call plinth_graph_capture_begin first",
            ));
        };
        let runtime = runtime::ready()?;
        capture.check_stream_and_thread()?;
        let native = match end_stream_capture(runtime, capture.stream) {
            Ok(native) => native,
            Err(error) => {
                // If the stream is still capturing, the graph stays in that state as well.
                if !may_capture(&runtime.driver, capture.stream.raw) {
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
            body.parts.add_resources(capture.resources);
            self.stage = Stage::Ready(body);
            return Ok(());
        }
        match self.finish(runtime, native, capture.resources) {
            Ok(ready) => {
                self.stage = Stage::Ready(ready);
                Ok(())
            }
            Err(error) => {
                // The error of `finish` is returned; that of destroying the driver's graph is ignored.
                retry(|| destroy_native(runtime, native));
                Err(error)
            }
        }
    }

    /// Makes the captured graph replayable.
    fn finish(&self, runtime: &Runtime, native: driver::Graph, mut resources: GraphResources) -> Result<Ready> {
        let empty = runtime.in_any_context(|driver| Ok(driver.graph_node_count(native)? == 0))?;
        if empty {
            return Err(Error::new(
                Status::GRAPH_EMPTY,
                "the graph is empty; this usually means that the work was launched on another device or stream than \
                 the one that was captured",
            ));
        }
        resources.finish_capture(runtime)?;
        let exec = if self.keep { None } else { Some(replay::instantiate_native(runtime, resources.device, native)?) };
        let mut ready = Ready { exec, native: Some(native), resources: Arc::new(resources), parts: Parts::default() };
        if !self.keep && !self.debug {
            if destroy_native(runtime, native).is_err() {
                // The graph is not needed any more; it occupies some memory until the reset.
                return Ok(ready);
            }
            ready.native = None;
        }
        Ok(ready)
    }
}

/// Ends the capture in a stream, and returns its graph.
fn end_stream_capture(runtime: &Runtime, stream: Stream) -> Result<driver::Graph> {
    runtime.in_stream(stream, |driver, raw| {
        let wrong_thread = |failure: &Failure| failure.code == codes::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        match driver.stream_end_capture(raw) {
            // The call may have failed before it had any effect.
            Err(failure) if !wrong_thread(&failure) && may_capture(driver, raw) => Ok(driver.stream_end_capture(raw)?),
            outcome => Ok(outcome?),
        }
    })
}

impl Capture {
    /// Gets the capture's ID, and routes its memory requests and random numbers to the graph.
    fn start(&mut self, runtime: &Runtime) -> Result<()> {
        let id = runtime.in_stream(self.stream, |driver, raw| Ok(driver.stream_capture_id(raw)?))?;
        self.id =
            id.ok_or_else(|| Error::new(Status::CAPTURE_INVALIDATED, "the capture was invalidated as it began"))?;
        self.resources.begin(runtime, self.id)
    }

    /// Checks that the capture may end in the current stream and thread.
    fn check_stream_and_thread(&self) -> Result<()> {
        let current = thread::stream(self.stream.device);
        if current != self.stream.raw {
            return Err(Error::new(
                Status::GRAPH_WRONG_STREAM,
                format!(
                    "a capture must end in the stream in which it began: that is {:#x}, and the current one is {:#x}",
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
                "a capture that is not relaxed must end in the thread in which it began",
            ));
        }
        Ok(())
    }

    /// Cleans up after the stream has stopped capturing.
    fn close(&mut self, runtime: &Runtime) {
        capture_lock::end_capture();
        self.resources.end(runtime, self.id);
    }

    /// Ends the capture and discards its graph.
    pub(super) fn abandon(&mut self, runtime: &Runtime) -> Result<()> {
        self.check_thread()?;
        match end_stream_capture(runtime, self.stream) {
            // Nodes that were captured into a body stay there.
            Ok(_) if self.fills_body => {}
            Ok(native) => {
                retry(|| destroy_native(runtime, native));
            }
            Err(error) if may_capture(&runtime.driver, self.stream.raw) => return Err(error),
            // The capture was invalid, and there is no graph.
            Err(_) => {}
        }
        self.close(runtime);
        Ok(())
    }
}
