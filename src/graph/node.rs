//! Single nodes: queries, and changes to nodes of an instantiated graph.

use super::{Ready, lock};
use crate::{
    driver::{GraphExec, GraphNode, KernelNode, KernelView, NodeType},
    error::{Context, Error, Result},
    observe::{self, Operand},
    runtime,
    status::Status,
};

/// Returns the nodes of a graph, without those of nested graphs.
pub fn all(handle: u64) -> Result<Vec<GraphNode>> {
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut("listing the nodes of a graph")?;
    let native = ready.nodes()?;
    let nodes = runtime.in_any_context(|driver| Ok(driver.graph_nodes(native)?)).context(|| "listing nodes")?;
    nodes.iter().for_each(|node| ready.parts.add_node(*node));
    Ok(nodes)
}

/// Returns the type of a node.
pub fn kind(handle: u64, node: usize) -> Result<NodeType> {
    let runtime = runtime::ready()?;
    let node = lock(handle)?.ready_mut("getting the type of a node")?.node(runtime, node)?;
    runtime.in_any_context(|driver| Ok(driver.graph_node_type(node)?))
}

/// Returns the launch of a kernel node.
pub fn kernel(handle: u64, node: usize) -> Result<KernelView> {
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let node = graph_state.ready_mut("getting the launch of a kernel node")?.node(runtime, node)?;
    runtime.in_any_context(|driver| {
        if driver.graph_node_type(node)? != NodeType::Kernel {
            return Err(Error::new(Status::INVALID_VALUE, format!("node {:#x} is not a kernel", node.handle())));
        }
        Ok(driver.graph_kernel(node)?)
    })
}

/// Returns the executable graph, and a node of the graph from which it was instantiated.
fn exec_and_node(ready: &mut Ready, node: usize) -> Result<(GraphExec, GraphNode)> {
    ready.parts.check_not_body()?;
    let node = ready.node(runtime::ready()?, node)?;
    let exec = ready.exec.ok_or_else(|| {
        Error::new(
            Status::GRAPH_NOT_CAPTURED,
            "the graph is not instantiated; call plinth_graph_instantiate first, then this call changes later replays",
        )
    })?;
    ready.replay_resources().write_each_time();
    Ok((exec, node))
}

/// Sets the launch of a kernel node of an instantiated graph, for later replays.
pub fn set_kernel(handle: u64, node: usize, kernel: &KernelNode) -> Result<()> {
    let attempt = "setting a kernel of an instantiated graph";
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut(attempt)?;
    let (exec, node) = exec_and_node(ready, node).context(|| attempt)?;
    let runtime = runtime::ready()?;
    runtime
        .device(ready.resources.device as i32)?
        .with_some_context(&runtime.driver, |driver| Ok(driver.graph_exec_set_kernel(exec, node, kernel)?))
        .context(|| attempt)
}

/// Enables or disables a kernel, copy or fill of an instantiated graph, for later replays.
pub fn set_enabled(handle: u64, node: usize, enabled: bool) -> Result<()> {
    let attempt = "enabling or disabling a node of an instantiated graph";
    let mut graph_state = lock(handle)?;
    let (exec, node) = exec_and_node(graph_state.ready_mut(attempt)?, node).context(|| attempt)?;
    check_switchable(node)?;
    runtime::ready()?
        .in_any_context(|driver| Ok(driver.graph_node_set_enabled(exec, node, enabled)?))
        .context(|| attempt)
}

/// Returns whether a kernel, copy or fill of an instantiated graph is enabled.
pub fn is_enabled(handle: u64, node: usize) -> Result<bool> {
    let attempt = "querying whether a node is enabled";
    let mut graph_state = lock(handle)?;
    let (exec, node) = exec_and_node(graph_state.ready_mut(attempt)?, node).context(|| attempt)?;
    check_switchable(node)?;
    runtime::ready()?.in_any_context(|driver| Ok(driver.graph_node_enabled(exec, node)?)).context(|| attempt)
}

/// Declares to the sanitizer the memory accesses of a node, effective from the next instantiation.
pub fn declare_accesses(handle: u64, node: usize, name: &str, operands: &[Operand]) -> Result<()> {
    let runtime = runtime::ready()?;
    let mut graph_state = lock(handle)?;
    let ready = graph_state.ready_mut("declaring the accesses of a node")?;
    let graph = ready.nodes()?;
    let node = ready.node(runtime, node)?;
    let kind = runtime.in_any_context(|driver| Ok(driver.graph_node_type(node)?))?;
    if matches!(kind, NodeType::Graph | NodeType::EventRecord | NodeType::WaitEvent) {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!(
                "node {:#x} is a child graph or an event node, for which no accesses can be declared",
                node.handle()
            ),
        ));
    }
    observe::report_node(graph, node, name, operands);
    Ok(())
}

fn check_switchable(node: GraphNode) -> Result<()> {
    let kind = runtime::ready()?.in_any_context(|driver| Ok(driver.graph_node_type(node)?))?;
    match kind {
        NodeType::Kernel | NodeType::Memcpy | NodeType::Memset => Ok(()),
        _ => Err(Error::new(
            Status::INVALID_VALUE,
            format!("node {:#x} is not a kernel, copy or fill; only those can be enabled and disabled", node.handle()),
        )),
    }
}
