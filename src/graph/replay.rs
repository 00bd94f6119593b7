//! Replays: launches of a graph in the thread's current stream, and instantiation before the first.

use super::{
    GraphState, Ready, UpdatedResources, destroy_exec, graph_resources::GraphResources, lock, parts,
    replay_order::Overlap,
};
use crate::{
    base::retry::retry,
    driver::{self, GraphExec, types::*},
    error::{Context, Error, Result},
    observe,
    runtime::{self, Runtime, thread},
    status::Status,
    stream::{self, Stream, capture_lock, capture_scope},
};
use std::sync::Arc;

/// The flags that torch instantiates its graphs with: memory allocated by the graph's own nodes is freed when it is
/// launched again, and nodes keep the priorities of the streams that they were captured in.
const FLAGS: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

/// Launches a graph in the thread's current stream on the graph's device.
#[inline]
pub fn replay(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    lock(handle)?.replay(runtime)
}

/// Instantiates a graph that kept its nodes; replaces an earlier instance.
pub fn instantiate(handle: u64) -> Result<()> {
    let mut graph_state = lock(handle)?;
    let keep = graph_state.keep;
    let ready = graph_state.ready_mut("instantiating a graph")?;
    if !keep {
        return Err(Error::new(
            Status::GRAPH_NOT_KEPT,
            "instantiating a graph: it was instantiated at the end of its capture; create graphs with \
                         PLINTH_GRAPH_KEEP_GRAPH to instantiate them on request",
        ));
    }
    ready.instantiate(runtime::ready()?)?;
    // The new instance uses the resources of the nodes.
    let before = ready.updated.take();
    graph_state.released.push(Box::new(before));
    Ok(())
}

/// Uploads a graph to its device, so that its first replay does not have to.
pub fn upload(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut("uploading a graph")?;
    let exec = ready.executable(runtime)?;
    let stream = stream::current_on(runtime, ready.resources.device)?;
    runtime.in_stream(stream, |driver, raw| Ok(driver.graph_upload(exec, raw)?)).context(|| "uploading a graph")
}

/// Instantiates a driver graph.
pub(super) fn instantiate_native(runtime: &Runtime, device: u32, native: driver::Graph) -> Result<GraphExec> {
    let device = runtime.device(device as i32)?;
    device
        .with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| driver.graph_instantiate(native, FLAGS))??)
        })
        .context(|| "instantiating a graph")
}

impl Ready {
    /// Instantiates the graph, and destroys the earlier instance. The caller drops the resources of the graph to which
    /// that was updated.
    pub(super) fn instantiate(&mut self, runtime: &Runtime) -> Result<GraphExec> {
        self.parts.check_not_body()?;
        let exec = instantiate_native(runtime, self.resources.device, self.nodes()?)?;
        if let Some(before) = self.exec.replace(exec) {
            // The new instance is in use. If the old one cannot be destroyed, it only occupies memory.
            retry(|| destroy_exec(runtime, before));
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

impl GraphState {
    #[inline]
    fn replay(&mut self, runtime: &Runtime) -> Result<()> {
        let overlap = self.overlap;
        let ready = self.ready_mut("replaying a graph")?;
        let exec = ready.executable(runtime)?;
        ready.run_with(runtime, exec, overlap, ready.updated.as_ref())
    }
}

impl Ready {
    /// Replays an executable graph that uses the memory and the generators of this graph's nodes; those of `updated` if
    /// it was updated to another graph.
    #[inline]
    pub(super) fn run_with(
        &self,
        runtime: &Runtime,
        exec: GraphExec,
        overlap: Overlap,
        updated: Option<&UpdatedResources>,
    ) -> Result<()> {
        let (resources, has_parts) = match updated {
            None => (&self.resources, self.parts.has_part_resources()),
            Some(updated) => (&updated.resources, !updated.parts.is_empty()),
        };
        let raw = thread::stream(resources.device);
        if capture_lock::is_any_capturing() {
            refuse_capturing(runtime, resources.device)?;
        }
        if capture_scope::is_any_asleep() {
            self.check_awake(updated).context(|| "replaying a graph")?;
        }
        if has_parts {
            let stream = stream::current_on(runtime, resources.device)?;
            return run_with_parts(runtime, exec, stream, overlap, resources, &self.part_resources(updated));
        }
        // Held until the launch returns, so that no other graph of the pool is launched in between.
        let mut last_replay = resources.pool.lock_last_replay();
        if !last_replay.is_in(raw) {
            let stream = stream::current_on(runtime, resources.device)?;
            last_replay.set_ordered(runtime, resources.pool.id, stream, overlap).context(|| "replaying a graph")?;
        }
        if resources.is_random() {
            let stream = stream::from_validated(runtime, raw, resources.device);
            return resources
                .launch_random(runtime, stream, &|| launch(runtime, resources.device, exec, raw))
                .context(|| "replaying a graph");
        }
        launch(runtime, resources.device, exec, raw)
    }

    /// Returns the resources of the children and bodies of the executable graph.
    #[cold]
    fn part_resources(&self, updated: Option<&UpdatedResources>) -> Vec<Arc<GraphResources>> {
        updated.map_or_else(|| self.parts.part_resources(), |updated| updated.parts.clone())
    }

    #[cold]
    fn check_awake(&self, updated: Option<&UpdatedResources>) -> Result<()> {
        updated.map_or(&self.resources, |updated| &updated.resources).check_awake()?;
        self.part_resources(updated).iter().try_for_each(|resources| resources.check_awake())
    }
}

/// Replays a graph whose parts have pools of their own. Locks all of them for the launch.
#[cold]
fn run_with_parts(
    runtime: &Runtime,
    exec: GraphExec,
    stream: Stream,
    overlap: Overlap,
    resources: &GraphResources,
    parts: &[Arc<GraphResources>],
) -> Result<()> {
    let pools = parts::pools(&resources.pool, parts);
    // Always in the same order, because other threads may lock several of the pools too.
    let mut replays: Vec<_> = pools.iter().map(|pool| (pool.id, pool.lock_last_replay())).collect();
    for (id, last_replay) in &mut replays {
        if !last_replay.is_in(stream.raw) {
            last_replay.set_ordered(runtime, *id, stream, overlap).context(|| "replaying a graph")?;
        }
    }
    resources
        .launch_random(runtime, stream, &|| launch(runtime, resources.device, exec, stream.raw))
        .context(|| "replaying a graph")
}

#[inline]
fn launch(runtime: &Runtime, device: u32, exec: GraphExec, stream: driver::Stream) -> Result<()> {
    observe::replay(exec, stream, device)?;
    if stream.handle() > CU_STREAM_PER_THREAD {
        return runtime.in_any_context(|driver| driver.graph_launch(exec, stream).context(|| "replaying a graph"));
    }
    // A default stream belongs to the current context.
    runtime
        .device(device as i32)?
        .with_context(&runtime.driver, |driver| driver.graph_launch(exec, stream).context(|| "replaying a graph"))
}

/// Fails if the current stream of a device is capturing. A replay cannot be captured: its memory does not belong to the graph that is
/// being captured, and its random numbers are chosen at the launch.
#[cold]
fn refuse_capturing(runtime: &Runtime, device: u32) -> Result<()> {
    let stream = stream::current_on(runtime, device)?;
    if stream::is_validated_capturing(runtime, stream)? {
        return Err(Error::new(
            Status::CAPTURE_FORBIDS,
            "replaying a graph: the current stream is capturing, and a replay cannot be a part of another graph",
        ));
    }
    Ok(())
}
