//! Graphs: work that is captured once, and launched as a whole again and again.
//!
//! A [`capture`] begins in the thread's current stream and ends in it. Meanwhile the memory that its streams ask for comes
//! from the graph's pool, and its random numbers have their place in the graph instead of in a sequence: both are
//! [`graph_resources`] for the replays. A [`replay`] is one launch in the thread's current stream; [`replay_order`] keeps graphs of one pool from
//! running at once. [`context`] is a capture as a block of a program, [`memory`] what the pool of a graph holds, and how it
//! sleeps; [`draw`] and [`update`] look at a graph's nodes and change what it does.
//!
//! [`build`] makes graphs without a capture, node by node, and [`condition`] those whose parts are carried out or not as the
//! device decides; [`node`] looks at single nodes and changes them, and [`parts`] is what has to be known for that. [`times`]
//! measures the nodes. [`callable`] captures a program's functions as torch's make_graphed_callables does.
//!
//! docs/graph.md tells what a program has to know of this.

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
    memory::PoolId,
    ops::random::generator::{self, GeneratorState},
    runtime::{self, Runtime},
    status::Status,
};
use capture::Capture;
use graph_resources::Kept;
use parking_lot::{Mutex, MutexGuard};
use parts::Parts;
use replay_order::Overlap;
use std::sync::Arc;

/// The nodes stay after the end of the capture, and the program says when the graph is made ready.
pub const KEEP_GRAPH: u32 = 1;

/// A slot of the table of graphs.
#[derive(Default)]
pub struct Graph(Mutex<Body>);

/// What a graph is. A call holds its lock to the end.
#[derive(Default)]
pub struct Body {
    /// Whether the nodes stay, and the graph is made ready when the program says so.
    keep: bool,
    /// Whether the nodes stay for a drawing.
    debug: bool,
    overlap: Overlap,
    /// Generators that the program registered.
    registered: Vec<Arc<GeneratorState>>,
    stage: Stage,
}

/// How far a graph is.
#[derive(Default)]
enum Stage {
    /// Nothing is captured.
    #[default]
    Empty,
    /// A capture goes on.
    Capturing(Box<Capture>),
    /// A capture has succeeded.
    Ready(Ready),
}

/// A graph that can be replayed, or made ready for that.
struct Ready {
    exec: Option<driver::GraphExec>,
    native: Option<driver::Graph>,
    kept: Arc<Kept>,
    parts: Parts,
}

static GRAPHS: HandleTable<Graph> = HandleTable::new(Kind::Graph);

/// Makes a graph with nothing captured, as a handle. Needs no device.
pub fn create(flags: u32) -> Result<u64> {
    if flags & !KEEP_GRAPH != 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("{flags:#x} are not flags of a graph")));
    }
    insert(Body { keep: flags & KEEP_GRAPH != 0, ..Body::default() })
}

fn insert(body: Body) -> Result<u64> {
    GRAPHS.insert(|graph| *graph.0.lock() = body)
}

/// The graph behind a handle, locked.
#[inline]
fn lock(handle: u64) -> Result<MutexGuard<'static, Body>> {
    let body = GRAPHS.get(handle)?.0.lock();
    // Another thread may have ended it meanwhile, and its slot may be another graph's.
    GRAPHS.get(handle)?;
    Ok(body)
}

/// Ends a graph; a capture that goes on is thrown away. What still runs of it finishes.
pub fn destroy(handle: u64) -> Result<()> {
    let mut body = lock(handle)?;
    body.reset().context(|| "destroying a graph")?;
    *body = Body::default();
    drop(body);
    GRAPHS.remove(handle, |_| {})
}

/// Makes a graph one with nothing captured; a capture that goes on is thrown away. What still runs of it finishes.
pub fn reset(handle: u64) -> Result<()> {
    lock(handle)?.reset().context(|| "resetting a graph")
}

/// Lets a graph's captures use a generator beside the device's own.
pub fn register_generator(handle: u64, generator: u64) -> Result<()> {
    let mut body = lock(handle)?;
    body.check_new("registering a generator")?;
    let state = if generator == 0 { None } else { Some(generator::get(generator)?) };
    // The device's own is registered with every capture.
    if let Some(state) = state.filter(|state| !body.registered.iter().any(|known| Arc::ptr_eq(known, state))) {
        body.registered.push(state);
    }
    Ok(())
}

/// Lets a graph keep its nodes for a drawing from its next capture on.
pub fn enable_debug_mode(handle: u64) -> Result<()> {
    lock(handle)?.debug = true;
    Ok(())
}

/// Says what happens when a replay would overlap with another of the pool.
pub fn set_overlap(handle: u64, overlap: Overlap) -> Result<()> {
    lock(handle)?.overlap = overlap;
    Ok(())
}

/// The pool of a graph that is captured, or is being captured.
pub fn pool(handle: u64) -> Result<PoolId> {
    Ok(lock(handle)?.kept()?.pool.id)
}

/// The driver's graph.
pub fn native(handle: u64) -> Result<driver::Graph> {
    lock(handle)?.ready("asking for the driver's graph")?.nodes()
}

/// The driver's executable graph.
pub fn exec_native(handle: u64) -> Result<driver::GraphExec> {
    let body = lock(handle)?;
    let ready = body.ready("asking for the driver's executable graph")?;
    ready.exec.ok_or_else(|| {
        Error::new(Status::GRAPH_NOT_CAPTURED, "the graph is not instantiated yet; plinth_graph_instantiate does that")
    })
}

/// How many graphs are live.
pub fn live() -> usize {
    GRAPHS.live()
}

#[cold]
fn capturing(attempt: &str) -> Error {
    Error::new(Status::GRAPH_CAPTURING, format!("{attempt}: the graph is being captured"))
}

impl Body {
    /// What a graph that is captured, or is being captured, keeps.
    fn kept(&self) -> Result<&Kept> {
        match &self.stage {
            Stage::Capturing(capture) => Ok(&capture.kept),
            _ => Ok(&self.ready("asking for the pool of a graph")?.kept),
        }
    }

    fn check_new(&self, attempt: &str) -> Result<()> {
        match self.stage {
            Stage::Empty => Ok(()),
            Stage::Capturing(_) => Err(capturing(attempt)),
            Stage::Ready(_) => Err(Error::new(
                Status::GRAPH_CAPTURED,
                format!(
                    "{attempt}: the graph already owns a capture; plinth_graph_reset makes it new, or make another graph"
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
                format!("{attempt}: there was no successful capture before, by plinth_graph_capture_begin and _end"),
            ),
        }
    }

    fn reset(&mut self) -> Result<()> {
        let Some(runtime) = runtime::usable() else {
            // Nothing of the driver's may be touched any more.
            self.stage = Stage::Empty;
            return Ok(());
        };
        if let Stage::Capturing(capture) = &mut self.stage {
            capture.abandon(runtime)?;
            let before = capture.before.take();
            self.stage = before.map_or(Stage::Empty, Stage::Ready);
            if self.is_body() {
                return Ok(());
            }
        }
        if let Stage::Ready(ready) = &mut self.stage {
            ready.destroy(runtime)?;
            self.stage = Stage::Empty;
        }
        Ok(())
    }
}

impl Ready {
    /// The driver's graph, where it was kept.
    fn nodes(&self) -> Result<driver::Graph> {
        self.native.ok_or_else(|| {
            Error::new(
                Status::GRAPH_NOT_KEPT,
                "the graph kept no nodes: that needs PLINTH_GRAPH_KEEP_GRAPH, or plinth_graph_enable_debug_mode before \
                 the end of the capture",
            )
        })
    }

    /// Gives the driver's objects back. What fails can be tried again.
    fn destroy(&mut self, runtime: &Runtime) -> Result<()> {
        self.parts.check_whole()?;
        self.parts.end_captures(runtime)?;
        if let Some(exec) = self.exec {
            destroy_exec(runtime, exec)?;
            self.exec = None;
        }
        if let Some(native) = self.native {
            // The bodies go with it, and nobody may find them afterwards.
            self.parts.end();
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
