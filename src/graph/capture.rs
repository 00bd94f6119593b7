//! Stream capture: the begin, the end and the cancellation.

use super::{
    GraphState, Ready, Stage, destroy_native, graph_resources::GraphResources, lock, parts::Parts, replay, replay_order,
};
use crate::{
    base::{log, retry::retry},
    driver::{self, Failure, GraphExec, codes, types::*},
    error::{Context, Error, Result},
    memory::{PoolId, pool},
    ops::random::{
        generator::{self, GeneratorState},
        seed,
    },
    runtime::{self, Runtime, names, thread},
    status::Status,
    stream::{self, Stream, capture_lock, capture_report, capture_status::may_capture},
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
    begin_capture(handle, pool, mode).context(|| "beginning a capture")
}

/// Ends the capture of a graph, in the stream in which it began.
pub fn end(handle: u64) -> Result<()> {
    lock(handle)?.end_capture().context(|| "ending a capture")
}

impl Mode {
    /// Returns the name in the C API, without its prefix.
    fn name(self) -> &'static str {
        match self {
            Mode::Global => "GLOBAL",
            Mode::ThreadLocal => "THREAD_LOCAL",
            Mode::Relaxed => "RELAXED",
        }
    }

    fn native(self) -> u32 {
        match self {
            Mode::Global => CU_STREAM_CAPTURE_MODE_GLOBAL,
            Mode::ThreadLocal => CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Mode::Relaxed => CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

fn check_pool(pool: PoolId) -> Result<PoolId> {
    if pool == PoolId::DEFAULT {
        return Ok(pool::new_capture_id());
    }
    pool::check_usable(pool)?;
    Ok(pool)
}

fn begin_capture(handle: u64, pool: PoolId, mode: Mode) -> Result<()> {
    let (fills_body, mut states) = lock(handle)?.check_before_capture()?;
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
    // A body runs any number of times per replay, so its random numbers cannot be part of a generator's sequence.
    if !fills_body {
        states.push(generator::get(seed::default_generator(device.ordinal as i32)?)?);
    }
    // The graph is not locked: the allocation may call the program's callbacks, which may use the graph.
    let resources = GraphResources::new(device, stream, pool, states)?;
    lock(handle)?.begin_capture(runtime, stream, mode, resources)
}

impl GraphState {
    /// Fails if no capture can begin. Returns whether it would fill a body, and the registered generators.
    fn check_before_capture(&self) -> Result<(bool, Vec<Arc<GeneratorState>>)> {
        let fills_body = self.is_body();
        if !fills_body {
            self.check_new("beginning a capture")?;
        }
        Ok((fills_body, self.registered.clone()))
    }

    fn begin_capture(
        &mut self,
        runtime: &Runtime,
        stream: Stream,
        mode: Mode,
        resources: GraphResources,
    ) -> Result<()> {
        let fills_body = match self.begin_stream_capture(runtime, stream, mode) {
            Ok(fills_body) => fills_body,
            Err(error) => {
                self.released.push(Box::new(resources));
                return Err(error);
            }
        };
        capture_report::on_begin(stream, mode.name());
        let mut capture =
            Capture { id: 0, stream, mode, thread: thread::number(), resources, fills_body, before: None };
        match capture.start(runtime) {
            Ok(()) => {
                self.set_capturing(capture);
                Ok(())
            }
            Err(error) => {
                // The first error is returned. If the capture cannot be ended here, the next reset ends it.
                match capture.abandon(runtime) {
                    Ok(()) => self.released.push(Box::new(capture)),
                    Err(_) => self.set_capturing(capture),
                }
                Err(error)
            }
        }
    }

    /// Begins the capture of the stream. Returns whether it fills a body.
    fn begin_stream_capture(&self, runtime: &Runtime, stream: Stream, mode: Mode) -> Result<bool> {
        // Another thread may have begun a capture meanwhile.
        let (fills_body, _) = self.check_before_capture()?;
        replay_order::record_replay_ends(runtime, stream).context(|| "recording the end of the stream's replays")?;
        capture_lock::begin_capture(stream.device(), || {
            if fills_body {
                self.ready("beginning a capture")?.begin_capture_of_body(runtime, stream, mode.native())
            } else {
                runtime.in_stream(stream, |driver, raw| Ok(driver.stream_begin_capture(raw, mode.native())?))
            }
        })?;
        Ok(fills_body)
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
        let unjoined = capture_report::find_unjoined(runtime, capture.stream, capture.id);
        let native = match end_stream_capture(runtime, capture.stream) {
            Ok(native) => native,
            Err(error) => {
                let error = explain_unjoined(error, capture.stream, &unjoined);
                // If the stream is still capturing, the graph stays in that state as well.
                if !may_capture(&runtime.driver, capture.stream.raw) {
                    capture.close(runtime);
                    let before = capture.before.take();
                    self.set_stage(before.map_or(Stage::Empty, Stage::Ready));
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
        let mut resources = capture.resources;
        match self.finish(runtime, native, capture.stream, &mut resources) {
            Ok((exec, native)) => {
                let (resources, parts) = (Arc::new(resources), Parts::default());
                self.stage = Stage::Ready(Ready { exec, native, resources, parts, updated: None });
                Ok(())
            }
            Err(error) => {
                // The error of `finish` is returned.
                retry(|| destroy_native(runtime, native));
                self.released.push(Box::new(resources));
                Err(error)
            }
        }
    }

    /// Makes the captured graph replayable. Returns the executable graph, and the driver's graph if it is kept.
    fn finish(
        &self,
        runtime: &Runtime,
        native: driver::Graph,
        stream: Stream,
        resources: &mut GraphResources,
    ) -> Result<(Option<GraphExec>, Option<driver::Graph>)> {
        if runtime.in_any_context(|driver| Ok(driver.graph_node_count(native)? == 0))? {
            log::warning(|| {
                format!(
                    "the graph captured in {} is empty: its work was probably launched on another device or stream; \
                     make the capture's stream current, or pass it to the calls",
                    stream.describe()
                )
            });
        }
        resources.finish_capture();
        resources.add_advances(runtime, native).context(|| "adding a node that advances the offset of a generator")?;
        let exec = if self.keep { None } else { Some(replay::instantiate_native(runtime, resources.device, native)?) };
        if self.keep || self.debug {
            return Ok((exec, Some(native)));
        }
        let destroyed = destroy_native(runtime, native);
        let kept = destroyed.is_err().then_some(native);
        log::ignore(destroyed, "destroying a captured graph that is not needed any more, before its reset");
        Ok((exec, kept))
    }
}

/// Adds the streams that were not joined to the error about them.
#[cold]
fn explain_unjoined(error: Error, origin: Stream, unjoined: &[Stream]) -> Error {
    if error.status() != Status::GRAPH_UNJOINED {
        return error;
    }
    let names: Vec<String> = unjoined.iter().map(|stream| stream.describe()).collect();
    let streams =
        if names.is_empty() { "a stream that joined by calls outside of plinth".into() } else { names.join(" and ") };
    let origin = origin.describe();
    error.context(format_args!(
        "the last work of {streams} was not joined: make {origin} wait for it before the end (plinth_stream_wait_stream)"
    ))
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
        let current = thread::stream(self.stream.device());
        if current != self.stream.raw {
            return Err(Error::new(
                Status::GRAPH_WRONG_STREAM,
                format!(
                    "a capture must end in the stream in which it began: that is {}, and the current one is {}",
                    self.stream.describe(),
                    names::describe_stream(current.handle(), self.stream.device())
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
        capture_report::on_end(self.stream);
        capture_lock::end_capture(self.stream.device());
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
