//! Launches of the library's own kernels that have one parameter, as launches and as nodes of graphs.

use super::{Driver, DriverResult, Function, Graph, GraphExec, GraphNode, KernelNode, Stream};
use std::ffi::c_void;

/// A kernel with its launch configuration and its parameter, for one launch: whoever keeps it in a graph replaces it, or compares it
/// with the next launch, before the graph is launched again, because the memory that it accesses may be gone by then.
pub trait KernelCall: Clone + PartialEq {
    /// Calls `body` with the kernel as a node of a graph, and with its list of parameters.
    fn with_node<T>(&self, body: impl FnOnce(&KernelNode, &[*const c_void]) -> T) -> T;
}

/// Calls `body` with a kernel that takes `parameter` as its only one.
///
/// # Safety
/// The kernel takes one value of this type, and its accesses through the addresses in it are valid at the launch that `body`
/// makes or prepares.
pub(super) unsafe fn with_parameter<P, T>(
    function: Function,
    grid: [u32; 3],
    threads: u32,
    parameter: &P,
    body: impl FnOnce(&KernelNode, &[*const c_void]) -> T,
) -> T {
    let parameters = [std::ptr::from_ref(parameter).cast::<c_void>()];
    // SAFETY: the caller guarantees the type and the addresses, and the parameter outlives the node.
    let mut node = unsafe { KernelNode::new(function, &parameters) };
    (node.grid, node.block) = (grid, [threads, 1, 1]);
    body(&node, &parameters)
}

impl Driver {
    /// Launches a kernel.
    pub fn launch_call(&self, call: &impl KernelCall, stream: Stream) -> DriverResult<()> {
        call.with_node(|node, parameters| {
            // SAFETY: the node was made of these parameters, under the contract of `KernelNode::new`.
            unsafe { self.launch(node.function, node.grid, node.block, node.shared_bytes, parameters, stream) }
        })
    }

    /// Adds a kernel to a graph, depending on nothing.
    pub fn graph_add_call(&self, graph: Graph, call: &impl KernelCall) -> DriverResult<GraphNode> {
        call.with_node(|node, _| self.graph_add_kernel(graph, &[], node))
    }

    /// Replaces a kernel that was added to the graph of an executable graph.
    pub fn graph_exec_set_call(&self, exec: GraphExec, node: GraphNode, call: &impl KernelCall) -> DriverResult<()> {
        call.with_node(|kernel, _| self.graph_exec_set_kernel(exec, node, kernel))
    }
}
