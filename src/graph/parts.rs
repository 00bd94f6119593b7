//! What is known of a graph beside its memory: its nodes, the bodies of its conditional nodes, and what these keep.
//!
//! A node is the driver's own pointer, so that programs can give it to CUDA. One that comes from a program is looked up among
//! the graph's nodes before it is used, and never followed.

use super::{Body, GRAPHS, Ready, Stage, condition, graph_resources::Kept, lock, replay_order::Shared};
use crate::{
    driver::{self, GraphNode},
    error::{Context, Error, Result},
    runtime::Runtime,
    status::Status,
    stream::Stream,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// See the module's comment.
#[derive(Default)]
pub struct Parts {
    /// Nodes by their handles. There may be more in the graph.
    known: HashMap<usize, GraphNode>,
    is_body: bool,
    /// The handles of the bodies of its conditional nodes.
    bodies: Vec<u64>,
    /// The conditions that were made for it.
    conditions: Vec<u64>,
    more: Arc<More>,
}

/// What children and bodies of a graph were captured with, which the graph shares with its bodies.
#[derive(Default)]
struct More {
    any: AtomicBool,
    kept: Mutex<Vec<Arc<Kept>>>,
}

impl Parts {
    /// What a body of the graph begins with.
    pub fn of_body(&self) -> Parts {
        Parts { is_body: true, more: Arc::clone(&self.more), ..Parts::default() }
    }

    /// What a copy of the graph begins with: other nodes, over the same memory.
    pub fn of_copy(&self) -> Parts {
        Parts { more: Arc::clone(&self.more), ..Parts::default() }
    }

    /// Refuses what can be done with whole graphs only.
    pub fn check_whole(&self) -> Result<()> {
        if !self.is_body {
            return Ok(());
        }
        Err(Error::new(
            Status::INVALID_VALUE,
            "the graph is the body of a conditional node: it runs, and goes, with the graph that the node is in",
        ))
    }

    /// Keeps what a part of the graph was captured with.
    pub fn keep(&self, kept: impl Into<Arc<Kept>>) {
        let kept = kept.into();
        let mut all = self.more.kept.lock();
        if !all.iter().any(|other| Arc::ptr_eq(other, &kept)) {
            all.push(kept);
        }
        self.more.any.store(true, Ordering::Release);
    }

    /// All that its parts keep.
    pub fn all_kept(&self) -> Vec<Arc<Kept>> {
        self.more.kept.lock().clone()
    }

    /// Whether parts keep anything.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.more.any.load(Ordering::Acquire)
    }

    /// The pools of the graph and its parts, each once, in an order that is the same for every graph.
    pub fn pools(&self, own: &Arc<Shared>) -> Vec<Arc<Shared>> {
        let mut pools: Vec<Arc<Shared>> = self.more.kept.lock().iter().map(|kept| Arc::clone(&kept.pool)).collect();
        pools.push(Arc::clone(own));
        pools.sort_by_key(|pool| Arc::as_ptr(pool).addr());
        pools.dedup_by(|one, other| Arc::ptr_eq(one, other));
        pools
    }

    /// Notes a node that was added.
    pub fn add(&mut self, node: GraphNode) {
        self.known.insert(node.handle(), node);
    }

    /// Notes a body.
    pub fn add_body(&mut self, handle: u64) {
        self.bodies.push(handle);
    }

    /// Notes a condition.
    pub fn add_condition(&mut self, condition: u64) {
        self.conditions.push(condition);
    }

    /// Throws away the captures into bodies that go on.
    pub fn end_captures(&self, runtime: &Runtime) -> Result<()> {
        self.bodies.iter().try_for_each(|handle| {
            let Ok(mut body) = lock(*handle) else { return Ok(()) };
            if let Stage::Capturing(capture) = &mut body.stage {
                capture.abandon(runtime)?;
                let before = capture.before.take();
                body.stage = before.map_or(Stage::Empty, Stage::Ready);
            }
            match &body.stage {
                Stage::Ready(ready) => ready.parts.end_captures(runtime),
                _ => Ok(()),
            }
        })
    }

    /// Ends the handles of the bodies, which are gone, and forgets the conditions.
    pub fn end(&mut self) {
        for handle in self.bodies.drain(..) {
            let Ok(mut body) = lock(handle) else { continue };
            if let Stage::Ready(ready) = &mut body.stage {
                ready.parts.end();
            }
            *body = Body::default();
            drop(body);
            let _ = GRAPHS.remove(handle, |_| {});
        }
        condition::forget(&self.conditions);
        self.conditions.clear();
        self.known.clear();
    }
}

impl Body {
    /// Whether the graph is the body of a conditional node.
    pub(super) fn is_body(&self) -> bool {
        match &self.stage {
            Stage::Ready(ready) => ready.parts.is_body,
            Stage::Capturing(capture) => capture.before.is_some(),
            Stage::Empty => false,
        }
    }
}

impl Ready {
    /// A node of the graph, by what a program calls it.
    pub(super) fn node(&mut self, runtime: &Runtime, handle: usize) -> Result<GraphNode> {
        let native = self.nodes()?;
        if let Some(node) = self.parts.known.get(&handle) {
            return Ok(*node);
        }
        // It may have come by a capture, or by the program's own calls of the driver.
        let nodes = runtime.in_any_context(|driver| Ok(driver.graph_nodes(native)?))?;
        self.parts.known = nodes.into_iter().map(|node| (node.handle(), node)).collect();
        let found = self.parts.known.get(&handle).copied();
        found.ok_or_else(|| Error::new(Status::INVALID_HANDLE, format!("{handle:#x} is not a node of this graph")))
    }

    /// The nodes that another is to wait for.
    pub(super) fn dependencies(&mut self, runtime: &Runtime, handles: &[usize]) -> Result<Vec<GraphNode>> {
        let mut nodes = Vec::with_capacity(handles.len());
        for (index, handle) in handles.iter().enumerate() {
            nodes.push(self.node(runtime, *handle).context(|| format!("dependencies[{index}]"))?);
        }
        let mut sorted = handles.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(Status::INVALID_VALUE, format!("dependencies: {:#x} is there twice", twice[0])));
        }
        Ok(nodes)
    }

    /// Begins a capture into this body, behind what is there.
    pub(super) fn begin_capture_of_body(&self, runtime: &Runtime, stream: Stream, mode: u32) -> Result<()> {
        if stream.device != self.kept.device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("the body is of device {}, the current stream of device {}", self.kept.device, stream.device),
            ));
        }
        let native = self.nodes()?;
        runtime.in_stream(stream, |driver, raw| {
            let leaves = leaves(driver, native)?;
            Ok(driver.stream_begin_capture_to_graph(raw, native, &leaves, mode)?)
        })
    }
}

/// The nodes that no other waits for.
pub fn leaves(driver: &driver::Driver, graph: driver::Graph) -> Result<Vec<GraphNode>> {
    let mut leaves = driver.graph_nodes(graph)?;
    let awaited: std::collections::HashSet<GraphNode> =
        driver.graph_edges(graph)?.into_iter().map(|(from, _)| from).collect();
    leaves.retain(|node| !awaited.contains(node));
    Ok(leaves)
}
