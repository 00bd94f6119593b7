//! Graphs: work that is captured once and then launched as a whole, any number of times.
//!
//! A [`capture`] begins and ends in the thread's current stream. During the capture, memory requests of its streams
//! are served from the graph's pool, and its random numbers are part of the graph instead of the generator's
//! sequence; both are [`graph_resources`] for the replays. A [`replay`] is one launch in the thread's current stream.
//! [`replay_order`] keeps graphs that share a pool from running at the same time. [`context`] wraps a capture as a
//! scope. [`memory`] reports the memory of a graph's pool and puts it to sleep. [`draw`] shows the nodes, and
//! [`update`] changes what a graph does.
//!
//! [`build`] creates graphs node by node, without a capture. [`condition`] adds nodes whose bodies run only if, or as
//! long as, the device decides so. [`node`] inspects and changes single nodes, and [`parts`] tracks the nodes, bodies
//! and resources for that. [`times`] measures the nodes. [`callable`] captures a program's functions like torch's
//! make_graphed_callables.
//!
//! docs/graph.md is the guide for programs.

pub mod build;
pub mod callable;
pub mod capture;
pub mod condition;
pub mod context;
pub mod draw;
pub mod graph_resources;
pub mod memory;
pub mod node;
pub mod parts;
pub mod replay;
pub mod replay_order;
pub mod times;
pub mod update;

use crate::{
    base::handle::{HandleTable, Kind},
    driver,
    error::{Context, Error, Result},
    memory::{
        PoolId,
        trackers::{self, Deferral},
    },
    ops::random::generator::{self, GeneratorState},
    runtime::{self, Runtime},
    status::Status,
};
use capture::Capture;
use graph_resources::GraphResources;
use parking_lot::{Mutex, MutexGuard};
use parts::Parts;
use replay_order::Overlap;
use std::{
    any::Any,
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// Flag: keep the nodes after the end of the capture, and instantiate only on request.
pub const KEEP_GRAPH: u32 = 1;

/// A slot of the table of graphs.
#[derive(Default)]
pub struct Graph(Mutex<GraphState>);

/// The state of a graph. A call holds its lock until it returns.
#[derive(Default)]
pub struct GraphState {
    /// Whether the nodes are kept, and the graph is instantiated only on request.
    keep: bool,
    /// Whether the nodes are kept for debug output.
    debug: bool,
    overlap: Overlap,
    /// The generators that the program registered.
    registered: Vec<Arc<GeneratorState>>,
    stage: Stage,
    /// What the call has released. It is dropped when the graph is unlocked, because the program's callbacks may be
    /// called then.
    released: Vec<Released>,
}

/// Anything that owns resources of a graph.
type Released = Box<dyn Any + Send>;

/// The stage of a graph.
#[derive(Default)]
enum Stage {
    /// No capture has begun.
    #[default]
    Empty,
    /// A capture is in progress.
    Capturing(Box<Capture>),
    /// A capture has succeeded, or the graph was built.
    Ready(Ready),
}

/// A graph that can be replayed, or instantiated for that.
struct Ready {
    exec: Option<driver::GraphExec>,
    native: Option<driver::Graph>,
    /// The resources of the graph's nodes.
    resources: Arc<GraphResources>,
    parts: Parts,
    /// The resources of the executable graph, if it was updated to another graph after its instantiation.
    updated: Option<UpdatedResources>,
}

/// The resources of an executable graph that was updated to another graph, which are those of that graph.
struct UpdatedResources {
    resources: Arc<GraphResources>,
    /// The resources of the children and bodies of that graph.
    parts: Vec<Arc<GraphResources>>,
}

static GRAPHS: HandleTable<Graph> = HandleTable::new(Kind::Graph);

/// Creates an empty graph and returns its handle. Needs no device.
pub fn create() -> Result<u64> {
    insert(GraphState::default())
}

/// Sets the flags of a graph that has no capture.
pub fn set_flags(handle: u64, flags: u32) -> Result<()> {
    if flags & !KEEP_GRAPH != 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("setting a graph's flags: {flags:#x} is undefined")));
    }
    let mut graph_state = lock(handle)?;
    graph_state.check_new("setting a graph's flags")?;
    graph_state.keep = flags & KEEP_GRAPH != 0;
    Ok(())
}

fn insert(graph_state: GraphState) -> Result<u64> {
    GRAPHS.insert(|graph| *graph.0.lock() = graph_state)
}

/// A locked graph. Callbacks of the program may use the graph, so they are called only when it is unlocked.
struct LockedGraph {
    // Dropped in this order.
    state: MutexGuard<'static, GraphState>,
    released: Vec<Released>,
    _deferral: Deferral,
}

impl Drop for LockedGraph {
    #[inline]
    fn drop(&mut self) {
        self.released = std::mem::take(&mut self.state.released);
    }
}

impl Deref for LockedGraph {
    type Target = GraphState;

    #[inline]
    fn deref(&self) -> &GraphState {
        &self.state
    }
}

impl DerefMut for LockedGraph {
    #[inline]
    fn deref_mut(&mut self) -> &mut GraphState {
        &mut self.state
    }
}

/// Locks the graph of a handle.
#[inline]
fn lock(handle: u64) -> Result<LockedGraph> {
    let graph = GRAPHS.get(handle)?;
    let deferral = trackers::defer();
    let locked = LockedGraph { state: graph.0.lock(), released: Vec::new(), _deferral: deferral };
    // Another thread may have destroyed it meanwhile, and its slot may hold another graph.
    GRAPHS.get(handle)?;
    Ok(locked)
}

/// Destroys a graph and discards a capture in progress. Replays that are running finish.
pub fn destroy(handle: u64) -> Result<()> {
    let mut graph_state = lock(handle)?;
    graph_state.reset().context(|| "destroying a graph")?;
    *graph_state = GraphState { released: std::mem::take(&mut graph_state.released), ..GraphState::default() };
    drop(graph_state);
    GRAPHS.remove(handle, |_| {})
}

/// Makes a graph empty again and discards a capture in progress. Replays that are running finish.
pub fn reset(handle: u64) -> Result<()> {
    lock(handle)?.reset().context(|| "resetting a graph")
}

/// Registers a generator that captures of the graph may use beside the device's default generator.
pub fn register_generator(handle: u64, generator: u64) -> Result<()> {
    let mut graph_state = lock(handle)?;
    graph_state.check_new("registering a generator")?;
    let state = if generator == 0 { None } else { Some(generator::get(generator)?) };
    // The default generator is registered with every capture.
    if let Some(state) = state.filter(|state| !graph_state.registered.iter().any(|known| Arc::ptr_eq(known, state))) {
        graph_state.registered.push(state);
    }
    Ok(())
}

/// Makes a graph keep its nodes for debug output, from its next capture on.
pub fn enable_debug_mode(handle: u64) -> Result<()> {
    lock(handle)?.debug = true;
    Ok(())
}

/// Sets the behaviour of a replay that would overlap with another one of the pool.
pub fn set_overlap(handle: u64, overlap: Overlap) -> Result<()> {
    lock(handle)?.overlap = overlap;
    Ok(())
}

/// Returns the pool of a graph that is captured or being captured.
pub fn pool(handle: u64) -> Result<PoolId> {
    Ok(lock(handle)?.resources()?.pool.id)
}

/// Returns the driver's graph.
pub fn native(handle: u64) -> Result<driver::Graph> {
    let graph_state = lock(handle)?;
    let ready = graph_state.ready("getting the driver's graph")?;
    ready.resources.write_each_time();
    ready.nodes()
}

/// Returns the driver's executable graph.
pub fn exec_native(handle: u64) -> Result<driver::GraphExec> {
    let graph_state = lock(handle)?;
    let ready = graph_state.ready("getting the driver's executable graph")?;
    ready.replay_resources().write_each_time();
    ready.exec.ok_or_else(|| {
        Error::new(Status::GRAPH_NOT_CAPTURED, "the graph is not instantiated; call plinth_graph_instantiate first")
    })
}

#[cold]
fn capturing(attempt: &str) -> Error {
    Error::new(Status::GRAPH_CAPTURING, format!("{attempt}: the graph is being captured"))
}

impl GraphState {
    /// Returns the resources of a graph that is captured or being captured.
    fn resources(&self) -> Result<&GraphResources> {
        match &self.stage {
            Stage::Capturing(capture) => Ok(&capture.resources),
            _ => Ok(self.ready("getting the pool of a graph")?.replay_resources()),
        }
    }

    fn check_new(&self, attempt: &str) -> Result<()> {
        match self.stage {
            Stage::Empty => Ok(()),
            Stage::Capturing(_) => Err(capturing(attempt)),
            Stage::Ready(_) => Err(Error::new(
                Status::GRAPH_CAPTURED,
                format!(
                    "{attempt}: the graph already owns a capture; call plinth_graph_reset, or create another graph"
                ),
            )),
        }
    }

    #[inline]
    fn ready(&self, attempt: &str) -> Result<&Ready> {
        match &self.stage {
            Stage::Ready(ready) => Ok(ready),
            _ => Err(self.not_ready(attempt)),
        }
    }

    #[inline]
    fn ready_mut(&mut self, attempt: &str) -> Result<&mut Ready> {
        if !matches!(self.stage, Stage::Ready(_)) {
            return Err(self.not_ready(attempt));
        }
        match &mut self.stage {
            Stage::Ready(ready) => Ok(ready),
            _ => Err(capturing(attempt)),
        }
    }

    #[cold]
    fn not_ready(&self, attempt: &str) -> Error {
        match self.stage {
            Stage::Capturing(_) => capturing(attempt),
            _ => Error::new(
                Status::GRAPH_NOT_CAPTURED,
                format!(
                    "{attempt}: the graph has no successful capture; call plinth_graph_capture_begin and _end first"
                ),
            ),
        }
    }

    /// Replaces the stage.
    fn set_stage(&mut self, stage: Stage) {
        let before = std::mem::replace(&mut self.stage, stage);
        self.released.push(Box::new(before));
    }

    /// Discards a capture in progress, if there is one.
    fn abandon_capture(&mut self, runtime: &Runtime) -> Result<()> {
        if let Stage::Capturing(capture) = &mut self.stage {
            capture.abandon(runtime)?;
            let before = capture.before.take();
            self.set_stage(before.map_or(Stage::Empty, Stage::Ready));
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        let Some(runtime) = runtime::usable() else {
            // The driver must not be called any more.
            self.stage = Stage::Empty;
            return Ok(());
        };
        if matches!(self.stage, Stage::Capturing(_)) {
            self.abandon_capture(runtime)?;
            if self.is_body() {
                return Ok(());
            }
        }
        if let Stage::Ready(ready) = &mut self.stage {
            ready.destroy(runtime, &mut self.released)?;
            self.set_stage(Stage::Empty);
        }
        Ok(())
    }
}

impl Ready {
    /// Returns the resources that replays use.
    fn replay_resources(&self) -> &Arc<GraphResources> {
        self.updated.as_ref().map_or(&self.resources, |updated| &updated.resources)
    }

    /// Returns the driver's graph, if it was kept.
    fn nodes(&self) -> Result<driver::Graph> {
        self.native.ok_or_else(|| {
            Error::new(
                Status::GRAPH_NOT_KEPT,
                "the graph has not kept its nodes; capture it with PLINTH_GRAPH_KEEP_GRAPH, or call \
                 plinth_graph_enable_debug_mode before the end of the capture",
            )
        })
    }

    /// Destroys the driver's objects. After a failure the call can be repeated.
    fn destroy(&mut self, runtime: &Runtime, released: &mut Vec<Released>) -> Result<()> {
        self.parts.check_not_body()?;
        self.parts.abandon_captures(runtime, released)?;
        if let Some(exec) = self.exec {
            destroy_exec(runtime, exec)?;
            self.exec = None;
        }
        if let Some(native) = self.native {
            // The conditional bodies are destroyed with the graph, so their handles are destroyed first.
            self.parts.destroy_bodies();
            destroy_native(runtime, native)?;
            self.native = None;
        }
        Ok(())
    }
}

fn destroy_exec(runtime: &Runtime, exec: driver::GraphExec) -> Result<()> {
    runtime.in_any_context(|driver| Ok(driver.with_relaxed_capture(|| driver.graph_exec_destroy(exec))??))
}

fn destroy_native(runtime: &Runtime, native: driver::Graph) -> Result<()> {
    runtime.in_any_context(|driver| Ok(driver.with_relaxed_capture(|| driver.graph_destroy(native))??))
}
