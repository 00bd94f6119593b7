//! The parts of a graph: its nodes, the bodies of its conditional nodes, and the resources of both.
//!
//! A node is the driver's pointer, so that programs can pass it to CUDA. A pointer from a program is looked up among
//! the graph's nodes before it is used, and never dereferenced.

use super::{
    GRAPHS, GraphState, Ready, Released, Stage, condition, graph_resources::GraphResources, lock,
    replay_order::SharedPool,
};
use crate::{
    driver::GraphNode,
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

/// The parts of one graph.
#[derive(Default)]
pub struct Parts {
    /// Nodes by their handles; the graph may have further nodes.
    nodes: HashMap<usize, GraphNode>,
    is_body: bool,
    /// The handles of the bodies of its conditional nodes.
    bodies: Vec<u64>,
    /// The conditions that were created for it.
    conditions: Vec<u64>,
    from_parts: Arc<PartResources>,
}

/// The resources of a graph's children and bodies, which the graph shares with its bodies.
#[derive(Default)]
struct PartResources {
    any: AtomicBool,
    resources: Mutex<Vec<Arc<GraphResources>>>,
}

impl Parts {
    /// Creates the parts of a new body of the graph.
    pub fn for_body(&self) -> Parts {
        Parts { is_body: true, from_parts: Arc::clone(&self.from_parts), ..Parts::default() }
    }

    /// Creates the parts of a copy of the graph, which has other nodes over the same memory.
    pub fn for_copy(&self) -> Parts {
        Parts { from_parts: Arc::clone(&self.from_parts), ..Parts::default() }
    }

    /// Fails for the body of a conditional node; for operations on whole graphs only.
    pub fn check_not_body(&self) -> Result<()> {
        if !self.is_body {
            return Ok(());
        }
        Err(Error::new(
            Status::INVALID_VALUE,
            "the graph is the body of a conditional node; call this for the graph that contains the node",
        ))
    }

    /// Adds the resources of a part of the graph.
    pub fn add_resources(&self, resources: impl Into<Arc<GraphResources>>) {
        let resources = resources.into();
        let mut all = self.from_parts.resources.lock();
        if !all.iter().any(|other| Arc::ptr_eq(other, &resources)) {
            all.push(resources);
        }
        self.from_parts.any.store(true, Ordering::Release);
    }

    /// Returns the resources of all parts.
    pub fn part_resources(&self) -> Vec<Arc<GraphResources>> {
        self.from_parts.resources.lock().clone()
    }

    /// Returns whether any part has resources.
    #[inline]
    pub fn has_part_resources(&self) -> bool {
        self.from_parts.any.load(Ordering::Acquire)
    }

    /// Adds a node.
    pub fn add_node(&mut self, node: GraphNode) {
        self.nodes.insert(node.handle(), node);
    }

    /// Adds a body.
    pub fn add_body(&mut self, handle: u64) {
        self.bodies.push(handle);
    }

    /// Adds a condition.
    pub fn add_condition(&mut self, condition: u64) {
        self.conditions.push(condition);
    }

    /// Discards the captures into bodies that are in progress.
    pub(super) fn abandon_captures(&self, runtime: &Runtime, released: &mut Vec<Released>) -> Result<()> {
        self.bodies.iter().try_for_each(|handle| {
            let Ok(mut body) = lock(*handle) else { return Ok(()) };
            body.abandon_capture(runtime)?;
            released.append(&mut body.released);
            match &body.stage {
                Stage::Ready(ready) => ready.parts.abandon_captures(runtime, released),
                _ => Ok(()),
            }
        })
    }

    /// Destroys the handles of the bodies, whose graphs are about to be destroyed, and removes the conditions.
    pub fn destroy_bodies(&mut self) {
        for handle in self.bodies.drain(..) {
            let Ok(mut body) = lock(handle) else { continue };
            if let Stage::Ready(ready) = &mut body.stage {
                ready.parts.destroy_bodies();
            }
            *body = GraphState::default();
            drop(body);
            let _ = GRAPHS.remove(handle, |_| {});
        }
        condition::remove(&self.conditions);
        self.conditions.clear();
        self.nodes.clear();
    }
}

/// Returns the distinct pools of a graph and its parts in the order of their IDs, in which a thread has to lock several
/// of them; `plinth_memory_sleep` locks pools, too.
pub(super) fn pools(own: &Arc<SharedPool>, parts: &[Arc<GraphResources>]) -> Vec<Arc<SharedPool>> {
    let mut pools: Vec<Arc<SharedPool>> = parts.iter().map(|resources| Arc::clone(&resources.pool)).collect();
    pools.push(Arc::clone(own));
    pools.sort_by_cached_key(|pool| pool.id);
    pools.dedup_by(|one, other| Arc::ptr_eq(one, other));
    pools
}

impl GraphState {
    /// Returns whether the graph is the body of a conditional node.
    pub(super) fn is_body(&self) -> bool {
        match &self.stage {
            Stage::Ready(ready) => ready.parts.is_body,
            Stage::Capturing(capture) => capture.before.is_some(),
            Stage::Empty => false,
        }
    }
}

impl Ready {
    /// Returns the node of the graph with this handle.
    pub(super) fn node(&mut self, runtime: &Runtime, handle: usize) -> Result<GraphNode> {
        let native = self.nodes()?;
        if let Some(node) = self.parts.nodes.get(&handle) {
            return Ok(*node);
        }
        // A capture, or the program's own calls of the driver, may have added the node.
        let nodes = runtime.in_any_context(|driver| Ok(driver.graph_nodes(native)?))?;
        self.parts.nodes = nodes.into_iter().map(|node| (node.handle(), node)).collect();
        let found = self.parts.nodes.get(&handle).copied();
        found.ok_or_else(|| Error::new(Status::INVALID_HANDLE, format!("{handle:#x} is not a node of this graph")))
    }

    /// Returns the nodes of a list of dependencies.
    pub(super) fn dependencies(&mut self, runtime: &Runtime, handles: &[usize]) -> Result<Vec<GraphNode>> {
        let mut nodes = Vec::with_capacity(handles.len());
        for (index, handle) in handles.iter().enumerate() {
            nodes.push(self.node(runtime, *handle).context(|| format!("dependencies[{index}]"))?);
        }
        let mut sorted = handles.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("dependencies: node {:#x} is listed twice", twice[0]),
            ));
        }
        Ok(nodes)
    }

    /// Begins a capture into this body, after the existing nodes.
    pub(super) fn begin_capture_of_body(&self, runtime: &Runtime, stream: Stream, mode: u32) -> Result<()> {
        if stream.device() != self.resources.device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!(
                    "the body is on device {}, the current stream on device {}",
                    self.resources.device,
                    stream.device()
                ),
            ));
        }
        let native = self.nodes()?;
        runtime.in_stream(stream, |driver, raw| {
            let leaves = driver.graph_leaves(native)?;
            Ok(driver.stream_begin_capture_to_graph(raw, native, &leaves, mode)?)
        })
    }
}
