//! Replaying: one launch in the thread's current stream, and what has to be done before the first.

use super::{Body, Ready, destroy_exec, lock, replay_order::Overlap};
use crate::{
    driver::{self, GraphExec, types::*},
    error::{Context, Error, Result},
    runtime::{self, Runtime, thread},
    sanitizer,
    status::Status,
    stream::{self, Stream, capture_lock},
};

/// What torch makes its graphs ready with: memory that the graph allocates by nodes is freed when it is launched again, and
/// nodes keep the priorities of the streams that they were captured in.
const FLAGS: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

/// Launches a graph in the thread's current stream on the graph's device.
#[inline]
pub fn replay(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    lock(handle)?.replay(runtime)
}

/// Makes a graph that kept its nodes ready for replays, anew if it was.
pub fn instantiate(handle: u64) -> Result<()> {
    let mut body = lock(handle)?;
    let keep = body.keep;
    let ready = body.ready_mut("instantiating a graph")?;
    if !keep {
        return Err(Error::new(
            Status::GRAPH_NOT_KEPT,
            "instantiating a graph is for one that was made with PLINTH_GRAPH_KEEP_GRAPH; this one was instantiated at \
             the end of its capture",
        ));
    }
    ready.instantiate(runtime::ready()?).map(drop)
}

/// Brings a graph to its device, so that its first replay need not.
pub fn upload(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let ready = body.ready_mut("uploading a graph")?;
    let exec = ready.executable(runtime)?;
    let stream = stream::current_on(runtime, ready.kept.device)?;
    runtime.in_stream(stream, |driver, raw| Ok(driver.graph_upload(exec, raw)?)).context(|| "uploading a graph")
}

/// Makes a graph of the driver's ready.
pub(super) fn instantiate_native(runtime: &Runtime, device: u32, native: driver::Graph) -> Result<GraphExec> {
    let device = runtime.device(device as i32)?;
    device
        .with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| driver.graph_instantiate(native, FLAGS))??)
        })
        .context(|| "instantiating a graph")
}

impl Ready {
    /// Makes the graph ready, in place of what was.
    pub(super) fn instantiate(&mut self, runtime: &Runtime) -> Result<GraphExec> {
        self.parts.check_whole()?;
        let exec = instantiate_native(runtime, self.kept.device, self.nodes()?)?;
        if let Some(before) = self.exec.replace(exec)
            && destroy_exec(runtime, before).is_err()
        {
            // The new one is there, and the old one is in nobody's way.
            let _ = destroy_exec(runtime, before);
        }
        Ok(exec)
    }

    #[inline]
    pub(super) fn executable(&mut self, runtime: &Runtime) -> Result<GraphExec> {
        match self.exec {
            Some(exec) => Ok(exec),
            None => self.instantiate(runtime),
        }
    }
}

impl Body {
    #[inline]
    fn replay(&mut self, runtime: &Runtime) -> Result<()> {
        let overlap = self.overlap;
        let ready = self.ready_mut("replaying a graph")?;
        let exec = ready.executable(runtime)?;
        ready.run(runtime, exec, overlap)
    }
}

impl Ready {
    /// Launches an executable graph that has this one's memory and generators, as a replay.
    #[inline]
    pub(super) fn run(&self, runtime: &Runtime, exec: GraphExec, overlap: Overlap) -> Result<()> {
        let kept = &*self.kept;
        let raw = thread::stream(kept.device);
        if capture_lock::any() {
            refuse_capturing(runtime, raw, kept.device)?;
        }
        if self.parts.has_more() {
            let stream = stream::known(runtime, raw, kept.device);
            return self.run_with_more(runtime, exec, stream, overlap);
        }
        // Held until the launch is made: no other graph of the pool comes between.
        let mut turn = kept.pool.turn();
        if !turn.goes_on_in(raw) {
            let stream = stream::known(runtime, raw, kept.device);
            turn.give(runtime, kept.pool.id, stream, overlap).context(|| "replaying a graph")?;
        }
        if kept.is_random() {
            let stream = stream::known(runtime, raw, kept.device);
            return kept
                .launch_random(runtime, stream, &|| launch(runtime, kept.device, exec, raw))
                .context(|| "replaying a graph");
        }
        launch(runtime, kept.device, exec, raw)
    }

    /// The same where parts of the graph have pools of their own: none of them is used by another graph meanwhile.
    #[cold]
    fn run_with_more(&self, runtime: &Runtime, exec: GraphExec, stream: Stream, overlap: Overlap) -> Result<()> {
        let pools = self.parts.pools(&self.kept.pool);
        // Always in the same order: other threads may want several of them, too.
        let mut turns: Vec<_> = pools.iter().map(|pool| (pool.id, pool.turn())).collect();
        for (id, turn) in &mut turns {
            if !turn.goes_on_in(stream.raw) {
                turn.give(runtime, *id, stream, overlap).context(|| "replaying a graph")?;
            }
        }
        self.kept
            .launch_random(runtime, stream, &|| launch(runtime, self.kept.device, exec, stream.raw))
            .context(|| "replaying a graph")
    }
}

#[inline]
fn launch(runtime: &Runtime, device: u32, exec: GraphExec, stream: driver::Stream) -> Result<()> {
    sanitizer::replay(exec, stream, device)?;
    if stream.handle() > CU_STREAM_PER_THREAD {
        return runtime.in_any_context(|driver| driver.graph_launch(exec, stream).context(|| "replaying a graph"));
    }
    // A default stream is that of whichever context is current.
    runtime
        .device(device as i32)?
        .with_context(&runtime.driver, |driver| driver.graph_launch(exec, stream).context(|| "replaying a graph"))
}

/// A replay is not captured: its memory is not that of the graph that is being captured, and its numbers are those of now.
#[cold]
fn refuse_capturing(runtime: &Runtime, raw: driver::Stream, device: u32) -> Result<()> {
    let stream = stream::known(runtime, raw, device);
    if stream::is_capturing_checked(runtime, stream)? {
        return Err(Error::new(
            Status::CAPTURE_FORBIDS,
            "replaying a graph: the current stream is capturing, and a replay cannot be a part of another graph",
        ));
    }
    Ok(())
}
