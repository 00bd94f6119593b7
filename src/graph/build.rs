//! Graphs that are built node by node instead of captured.
//!
//! A built graph is a graph that keeps its nodes, so nodes can be added to a captured graph in the same way. Added
//! nodes become part of the replays at the next instantiation.

use super::{GraphState, Ready, Stage, destroy_native, graph_resources::GraphResources, insert, lock, parts::Parts};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Context as DriverContext, Driver, FillNode, Graph, GraphNode, KernelNode, NodeFunction, Span},
    error::{Context, Error, Result},
    memory::pool,
    ops::copy,
    runtime::{self, Runtime},
    status::Status,
    stream::{self, event},
};
use std::sync::Arc;

/// Creates a graph without nodes on a device, and returns its handle.
pub fn create(number: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let stream = stream::current_on(runtime, device.ordinal)?;
    let resources = Arc::new(GraphResources::new(device, stream, pool::new_capture_id(), Vec::new())?);
    let native =
        device.with_context(&runtime.driver, |driver| Ok(driver.graph_create()?)).context(|| "creating a graph")?;
    let ready = Ready { exec: None, native: Some(native), resources, parts: Parts::default(), updated: None };
    insert_ready(ready).inspect_err(|_| {
        // The error of the handle table is returned.
        retry(|| destroy_native(runtime, native));
    })
}

pub(super) fn insert_ready(ready: Ready) -> Result<u64> {
    insert(GraphState { keep: true, stage: Stage::Ready(ready), ..GraphState::default() })
}

/// The arguments for the creation of a node.
pub(super) struct NodeTarget<'a> {
    pub driver: &'a Driver,
    pub graph: Graph,
    pub device: u32,
    pub context: DriverContext,
    pub dependencies: &'a [GraphNode],
}

/// Adds the node that `make` creates to a graph, after its dependencies.
pub(super) fn add(
    handle: u64,
    dependencies: &[usize],
    what: &str,
    make: impl FnOnce(&NodeTarget) -> Result<GraphNode>,
) -> Result<GraphNode> {
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut(&format!("adding {what}"))?;
    ready.add(runtime, dependencies, make).context(|| format!("adding {what} to a graph"))
}

impl Ready {
    pub(super) fn add(
        &mut self,
        runtime: &Runtime,
        dependencies: &[usize],
        make: impl FnOnce(&NodeTarget) -> Result<GraphNode>,
    ) -> Result<GraphNode> {
        let graph = self.nodes()?;
        let dependencies = self.dependencies(runtime, dependencies)?;
        let device = runtime.device(self.resources.device as i32)?;
        let context = device.context(&runtime.driver)?;
        let node = device.with_context(&runtime.driver, |driver| {
            make(&NodeTarget { driver, graph, device: device.ordinal, context, dependencies: &dependencies })
        })?;
        self.parts.add_node(node);
        Ok(node)
    }
}

/// Adds a kernel launch.
pub fn add_kernel(handle: u64, dependencies: &[usize], kernel: &KernelNode) -> Result<GraphNode> {
    add(handle, dependencies, "a kernel", |target| {
        Ok(target.driver.graph_add_kernel(target.graph, target.dependencies, kernel)?)
    })
}

fn check_memory(span: Span, what: &str) -> Result<()> {
    if span.address() == 0 {
        return Err(Error::new(Status::NULL_POINTER, format!("{what} is NULL")));
    }
    if span.bytes() == 0 || span.address().checked_add(span.bytes() as u64).is_none() {
        let (bytes, address) = (span.bytes(), span.address());
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{what}: {bytes} bytes from {address:#x} on are not a valid range of memory"),
        ));
    }
    Ok(())
}

/// Adds a copy between two addresses in any kinds of memory.
pub fn add_copy(handle: u64, dependencies: &[usize], destination: Span, source: Span) -> Result<GraphNode> {
    let what = format!("a copy of {}", Bytes(destination.bytes() as u64));
    add(handle, dependencies, &what, |target| {
        check_memory(destination, "destination")?;
        check_memory(source, "source")?;
        let mut node = None;
        copy::with_peer_access(target.device, &[destination, source], || {
            let NodeTarget { driver, graph, context, dependencies, .. } = *target;
            node = Some(driver.graph_add_copy(graph, dependencies, destination, source, context)?);
            Ok(())
        })
        .map_err(|error| copy::explain_ranges(error, &[("destination", destination), ("source", source)]))?;
        node.ok_or_else(|| Error::new(Status::PANIC, "a copy was added without its node"))
    })
}

/// Adds a fill with elements of 1, 2 or 4 bytes.
pub fn add_fill(
    handle: u64,
    dependencies: &[usize],
    memory: Span,
    value: u32,
    element_size: usize,
) -> Result<GraphNode> {
    add(handle, dependencies, "a fill", |target| {
        if !matches!(element_size, 1 | 2 | 4) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("element_size is {element_size}; it must be 1, 2 or 4 bytes"),
            ));
        }
        check_memory(memory, "pointer")?;
        if !memory.address().is_multiple_of(element_size as u64) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("pointer: {:#x} is not aligned to elements of {element_size} bytes", memory.address()),
            ));
        }
        let fill = FillNode::new(memory, value, element_size as u32);
        let mut node = None;
        copy::with_peer_access(target.device, &[memory], || {
            let NodeTarget { driver, graph, context, dependencies, .. } = *target;
            node = Some(driver.graph_add_fill(graph, dependencies, &fill, context)?);
            Ok(())
        })
        .map_err(|error| copy::explain_ranges(error, &[("memory", memory)]))?;
        node.ok_or_else(|| Error::new(Status::PANIC, "a fill was added without its node"))
    })
}

/// Adds a call of a host function of the program.
pub fn add_host(handle: u64, dependencies: &[usize], function: NodeFunction) -> Result<GraphNode> {
    add(handle, dependencies, "a host function", |target| {
        Ok(target.driver.graph_add_host(target.graph, target.dependencies, function)?)
    })
}

/// Adds a copy of another graph that kept its nodes, as one node. Both graphs then share the other one's memory.
pub fn add_child(handle: u64, dependencies: &[usize], child: u64) -> Result<GraphNode> {
    const WHAT: &str = "a child graph";
    let runtime = runtime::ready()?;
    // The child is cloned first, so that only one graph is locked at a time. The two graphs may be the same.
    let (native, device, resources) = {
        let mut graph_state = lock(child).context(|| "child")?;
        let ready = graph_state.ready_mut("adding a child graph")?;
        if ready.resources.is_random() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "adding a child graph to a graph: the child uses random numbers, which only its own replays can supply",
            ));
        }
        let nodes = ready.nodes()?;
        let native = runtime.in_any_context(|driver| Ok(driver.graph_clone(nodes)?)).context(|| "copying the child")?;
        let mut resources = ready.parts.part_resources();
        resources.push(Arc::clone(&ready.resources));
        (native, ready.resources.device, resources)
    };
    let added = (|| {
        let mut graph_state = lock(handle)?;
        let ready = graph_state.ready_mut("adding a child graph")?;
        if ready.resources.device != device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("the child is on device {device}, the graph on device {}", ready.resources.device),
            ));
        }
        let node = ready.add(runtime, dependencies, |target| {
            Ok(target.driver.graph_add_child(target.graph, target.dependencies, native)?)
        })?;
        let own = Arc::clone(&ready.resources);
        resources
            .into_iter()
            .filter(|resources| !Arc::ptr_eq(resources, &own))
            .for_each(|resources| ready.parts.add_resources(resources));
        Ok(node)
    })();
    // The node has its own copy.
    retry(|| destroy_native(runtime, native));
    added.map_err(|error: Error| error.context(format_args!("adding {WHAT} to a graph")))
}

/// Adds a node that only waits for its dependencies.
pub fn add_empty(handle: u64, dependencies: &[usize]) -> Result<GraphNode> {
    add(handle, dependencies, "an empty node", |target| {
        Ok(target.driver.graph_add_empty(target.graph, target.dependencies)?)
    })
}

/// Adds a record of an event, which is repeated in each replay.
pub fn add_event_record(handle: u64, dependencies: &[usize], recorded: u64) -> Result<GraphNode> {
    add(handle, dependencies, "an event record", |target| {
        let native = event::for_graph(recorded, target.device, true)?;
        Ok(target.driver.graph_add_event_record(target.graph, target.dependencies, native)?)
    })
}

/// Adds a wait for the last record of an event before a replay.
pub fn add_event_wait(handle: u64, dependencies: &[usize], awaited: u64) -> Result<GraphNode> {
    add(handle, dependencies, "an event wait", |target| {
        let native = event::for_graph(awaited, target.device, false)?;
        Ok(target.driver.graph_add_event_wait(target.graph, target.dependencies, native)?)
    })
}

/// Makes a node depend on another one.
pub fn add_dependency(handle: u64, from: usize, to: usize) -> Result<()> {
    let attempt = "adding a dependency";
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut(attempt)?;
    let native = ready.nodes()?;
    let from = ready.node(runtime, from).context(|| "from")?;
    let to = ready.node(runtime, to).context(|| "to")?;
    if from == to {
        return Err(Error::new(Status::INVALID_VALUE, "a node cannot depend on itself"));
    }
    let before = runtime.in_any_context(|driver| Ok(driver.graph_node_dependencies(to)?)).context(|| attempt)?;
    if before.contains(&from) {
        return Err(Error::new(Status::INVALID_VALUE, "the node depends on that one already"));
    }
    runtime
        .in_any_context(|driver| Ok(driver.graph_add_dependencies(native, &[(from, to)])?))
        .context(|| "adding a dependency to a graph")
}
