//! Graphs that are not captured but built, node by node.
//!
//! A built graph is one that kept its nodes, so nodes can be added to a captured one just so. What is added is in the replays
//! after the graph is instantiated next.

use super::{Body, Ready, Stage, destroy_native, graph_resources::Kept, insert, lock, parts::Parts};
use crate::{
    base::units::Bytes,
    driver::{Context as DriverContext, Driver, FillNode, Graph, GraphNode, KernelNode, NodeFunction, Span},
    error::{Context, Error, Result},
    memory::pool,
    ops::copy,
    runtime::{self, Runtime},
    status::Status,
    stream::{self, event},
};
use std::sync::Arc;

/// Makes a graph without nodes on a device, as a handle.
pub fn create(number: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let stream = stream::current_on(runtime, device.ordinal)?;
    let kept = Arc::new(Kept::new(device, stream, pool::new_capture_id(), Vec::new())?);
    let native =
        device.with_context(&runtime.driver, |driver| Ok(driver.graph_create()?)).context(|| "making a graph")?;
    let ready = Ready { exec: None, native: Some(native), kept, parts: Parts::default() };
    insert_ready(ready).inspect_err(|_| {
        // The error that counts is the table's.
        let _ = destroy_native(runtime, native);
    })
}

pub(super) fn insert_ready(ready: Ready) -> Result<u64> {
    insert(Body { keep: true, stage: Stage::Ready(ready), ..Body::default() })
}

/// What a new node is made with.
pub(super) struct Place<'a> {
    pub driver: &'a Driver,
    pub graph: Graph,
    pub device: u32,
    pub context: DriverContext,
    pub dependencies: &'a [GraphNode],
}

/// Adds what `make` makes to a graph, behind nodes of it.
pub(super) fn add(
    handle: u64,
    dependencies: &[usize],
    what: &str,
    make: impl FnOnce(&Place) -> Result<GraphNode>,
) -> Result<GraphNode> {
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let ready = body.ready_mut(&format!("adding {what}"))?;
    ready.add(runtime, dependencies, make).context(|| format!("adding {what} to a graph"))
}

impl Ready {
    pub(super) fn add(
        &mut self,
        runtime: &Runtime,
        dependencies: &[usize],
        make: impl FnOnce(&Place) -> Result<GraphNode>,
    ) -> Result<GraphNode> {
        let graph = self.nodes()?;
        let dependencies = self.dependencies(runtime, dependencies)?;
        let device = runtime.device(self.kept.device as i32)?;
        let context = device.context(&runtime.driver)?;
        let node = device.with_context(&runtime.driver, |driver| {
            make(&Place { driver, graph, device: device.ordinal, context, dependencies: &dependencies })
        })?;
        self.parts.add(node);
        Ok(node)
    }
}

/// Adds a launch of a kernel.
pub fn add_kernel(handle: u64, dependencies: &[usize], kernel: &KernelNode) -> Result<GraphNode> {
    add(handle, dependencies, "a kernel", |place| {
        Ok(place.driver.graph_add_kernel(place.graph, place.dependencies, kernel)?)
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
            format!("{what}: {bytes} bytes from {address:#x} on is not a range of memory"),
        ));
    }
    Ok(())
}

/// Adds a copy, between whatever memories the two addresses lie in.
pub fn add_copy(handle: u64, dependencies: &[usize], destination: Span, source: Span) -> Result<GraphNode> {
    let what = format!("a copy of {}", Bytes(destination.bytes() as u64));
    add(handle, dependencies, &what, |place| {
        check_memory(destination, "destination")?;
        check_memory(source, "source")?;
        let mut node = None;
        copy::with_peer_access(place.device, &[destination, source], || {
            let Place { driver, graph, context, dependencies, .. } = *place;
            node = Some(driver.graph_add_copy(graph, dependencies, destination, source, context)?);
            Ok(())
        })?;
        node.ok_or_else(|| Error::new(Status::PANIC, "a copy was added without its node"))
    })
}

/// Adds a fill of elements of 1, 2 or 4 bytes.
pub fn add_fill(
    handle: u64,
    dependencies: &[usize],
    memory: Span,
    value: u32,
    element_size: usize,
) -> Result<GraphNode> {
    add(handle, dependencies, "a fill", |place| {
        if !matches!(element_size, 1 | 2 | 4) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("element_size is {element_size}; it can be 1, 2 or 4 bytes"),
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
        copy::with_peer_access(place.device, &[memory], || {
            let Place { driver, graph, context, dependencies, .. } = *place;
            node = Some(driver.graph_add_fill(graph, dependencies, &fill, context)?);
            Ok(())
        })?;
        node.ok_or_else(|| Error::new(Status::PANIC, "a fill was added without its node"))
    })
}

/// Adds a call of a function of the program's.
pub fn add_host(handle: u64, dependencies: &[usize], function: NodeFunction) -> Result<GraphNode> {
    add(handle, dependencies, "a host function", |place| {
        Ok(place.driver.graph_add_host(place.graph, place.dependencies, function)?)
    })
}

/// Adds a copy of another graph that kept its nodes, as one node. Both share the other's memory then.
pub fn add_child(handle: u64, dependencies: &[usize], child: u64) -> Result<GraphNode> {
    const WHAT: &str = "a child graph";
    let runtime = runtime::ready()?;
    // A copy is what is added: so only one of the two graphs is locked at a time, and they can be one and the same.
    let (native, device, kept) = {
        let mut body = lock(child).context(|| "child")?;
        let ready = body.ready_mut("adding a child graph")?;
        if ready.kept.is_random() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "adding a child graph to a graph: the child takes random numbers, whose place only its own replays know",
            ));
        }
        let nodes = ready.nodes()?;
        let native = runtime.in_any_context(|driver| Ok(driver.graph_clone(nodes)?)).context(|| "copying the child")?;
        let mut kept = ready.parts.all_kept();
        kept.push(Arc::clone(&ready.kept));
        (native, ready.kept.device, kept)
    };
    let added = (|| {
        let mut body = lock(handle)?;
        let ready = body.ready_mut("adding a child graph")?;
        if ready.kept.device != device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("the child is on device {device}, the graph on device {}", ready.kept.device),
            ));
        }
        let node = ready.add(runtime, dependencies, |place| {
            Ok(place.driver.graph_add_child(place.graph, place.dependencies, native)?)
        })?;
        let own = Arc::clone(&ready.kept);
        kept.into_iter().filter(|kept| !Arc::ptr_eq(kept, &own)).for_each(|kept| ready.parts.keep(kept));
        Ok(node)
    })();
    // The node has a copy of its own.
    if destroy_native(runtime, native).is_err() {
        let _ = destroy_native(runtime, native);
    }
    added.map_err(|error: Error| error.context(format_args!("adding {WHAT} to a graph")))
}

/// Adds a node that does nothing but wait for others.
pub fn add_empty(handle: u64, dependencies: &[usize]) -> Result<GraphNode> {
    add(handle, dependencies, "an empty node", |place| {
        Ok(place.driver.graph_add_empty(place.graph, place.dependencies)?)
    })
}

/// Adds a recording of an event, which each replay makes anew.
pub fn add_event_record(handle: u64, dependencies: &[usize], recorded: u64) -> Result<GraphNode> {
    add(handle, dependencies, "a recording of an event", |place| {
        let native = event::for_graph(recorded, place.device, true)?;
        Ok(place.driver.graph_add_event_record(place.graph, place.dependencies, native)?)
    })
}

/// Adds a wait for what an event recorded last before a replay.
pub fn add_event_wait(handle: u64, dependencies: &[usize], awaited: u64) -> Result<GraphNode> {
    add(handle, dependencies, "a wait for an event", |place| {
        let native = event::for_graph(awaited, place.device, false)?;
        Ok(place.driver.graph_add_event_wait(place.graph, place.dependencies, native)?)
    })
}

/// Makes a node wait for another one.
pub fn add_dependency(handle: u64, from: usize, to: usize) -> Result<()> {
    let attempt = "adding a dependency";
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let ready = body.ready_mut(attempt)?;
    let native = ready.nodes()?;
    let from = ready.node(runtime, from).context(|| "from")?;
    let to = ready.node(runtime, to).context(|| "to")?;
    if from == to {
        return Err(Error::new(Status::INVALID_VALUE, "a node cannot wait for itself"));
    }
    let before = runtime.in_any_context(|driver| Ok(driver.graph_node_dependencies(to)?)).context(|| attempt)?;
    if before.contains(&from) {
        return Err(Error::new(Status::INVALID_VALUE, "the node waits for that one already"));
    }
    runtime
        .in_any_context(|driver| Ok(driver.graph_add_dependencies(native, &[(from, to)])?))
        .context(|| "adding a dependency to a graph")
}
