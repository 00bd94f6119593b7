//! Single nodes: what they are, and what can be changed of them in a graph that is instantiated.

use super::{Ready, lock};
use crate::{
    driver::{GraphExec, GraphNode, KernelNode, KernelView, NodeType},
    error::{Context, Error, Result},
    runtime,
    sanitizer::{self, Operand},
    status::Status,
};

/// The nodes of a graph, without those of the graphs inside it.
pub fn all(handle: u64) -> Result<Vec<GraphNode>> {
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let ready = body.ready_mut("listing the nodes of a graph")?;
    let native = ready.nodes()?;
    let nodes = runtime.in_any_context(|driver| Ok(driver.graph_nodes(native)?)).context(|| "listing nodes")?;
    nodes.iter().for_each(|node| ready.parts.add(*node));
    Ok(nodes)
}

/// What a node is.
pub fn kind(handle: u64, node: usize) -> Result<NodeType> {
    let runtime = runtime::ready()?;
    let node = lock(handle)?.ready_mut("asking for a node")?.node(runtime, node)?;
    runtime.in_any_context(|driver| Ok(driver.graph_node_type(node)?))
}

/// What a kernel's node launches.
pub fn kernel(handle: u64, node: usize) -> Result<KernelView> {
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let node = body.ready_mut("asking for a kernel")?.node(runtime, node)?;
    runtime.in_any_context(|driver| {
        if driver.graph_node_type(node)? != NodeType::Kernel {
            return Err(Error::new(Status::INVALID_VALUE, format!("node {:#x} is no kernel", node.handle())));
        }
        Ok(driver.graph_kernel(node)?)
    })
}

/// The executable graph and a node of the graph that it was made of.
fn in_exec(ready: &mut Ready, node: usize) -> Result<(GraphExec, GraphNode)> {
    ready.parts.check_whole()?;
    let node = ready.node(runtime::ready()?, node)?;
    let exec = ready.exec.ok_or_else(|| {
        Error::new(
            Status::GRAPH_NOT_CAPTURED,
            "the graph is not instantiated yet; plinth_graph_instantiate does that, and this is about the replays after it",
        )
    })?;
    Ok((exec, node))
}

/// Gives a kernel of an instantiated graph another launch, in the replays from now on.
pub fn set_kernel(handle: u64, node: usize, kernel: &KernelNode) -> Result<()> {
    let attempt = "setting a kernel of an instantiated graph";
    let mut body = lock(handle)?;
    let (exec, node) = in_exec(body.ready_mut(attempt)?, node).context(|| attempt)?;
    runtime::ready()?.in_any_context(|driver| Ok(driver.graph_exec_set_kernel(exec, node, kernel)?)).context(|| attempt)
}

/// Switches a kernel, copy or fill of an instantiated graph on or off, in the replays from now on.
pub fn set_enabled(handle: u64, node: usize, enabled: bool) -> Result<()> {
    let attempt = "switching a node of an instantiated graph";
    let mut body = lock(handle)?;
    let (exec, node) = in_exec(body.ready_mut(attempt)?, node).context(|| attempt)?;
    check_switchable(node)?;
    runtime::ready()?
        .in_any_context(|driver| Ok(driver.graph_node_set_enabled(exec, node, enabled)?))
        .context(|| attempt)
}

/// Whether a kernel, copy or fill of an instantiated graph is switched on.
pub fn is_enabled(handle: u64, node: usize) -> Result<bool> {
    let attempt = "asking whether a node is switched on";
    let mut body = lock(handle)?;
    let (exec, node) = in_exec(body.ready_mut(attempt)?, node).context(|| attempt)?;
    check_switchable(node)?;
    runtime::ready()?.in_any_context(|driver| Ok(driver.graph_node_enabled(exec, node)?)).context(|| attempt)
}

/// Tells the sanitizer what a node does to memory, from when the graph is instantiated next.
pub fn tell(handle: u64, node: usize, name: &str, operands: &[Operand]) -> Result<()> {
    let runtime = runtime::ready()?;
    let mut body = lock(handle)?;
    let ready = body.ready_mut("telling what a node does")?;
    let graph = ready.nodes()?;
    let node = ready.node(runtime, node)?;
    let kind = runtime.in_any_context(|driver| Ok(driver.graph_node_type(node)?))?;
    if matches!(kind, NodeType::Graph | NodeType::EventRecord | NodeType::WaitEvent) {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("node {:#x} is a graph or an event, of which there is nothing to tell", node.handle()),
        ));
    }
    sanitizer::report_node(graph, node, name, operands);
    Ok(())
}

fn check_switchable(node: GraphNode) -> Result<()> {
    let kind = runtime::ready()?.in_any_context(|driver| Ok(driver.graph_node_type(node)?))?;
    match kind {
        NodeType::Kernel | NodeType::Memcpy | NodeType::Memset => Ok(()),
        _ => Err(Error::new(
            Status::INVALID_VALUE,
            format!("node {:#x} is no kernel, copy or fill: only those can be switched on and off", node.handle()),
        )),
    }
}
