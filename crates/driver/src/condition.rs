//! The kernel that sets the condition of a conditional node, as kernels/condition.cu declares it.

use super::{Conditional, Driver, DriverResult, Function, Graph, GraphNode, KernelNode, Span, Stream};
use std::ffi::c_void;

impl Driver {
    /// Launches `plinth_condition_set`, which sets a condition to the 32-bit value that `value` contains when the
    /// kernel runs.
    pub fn launch_condition_set(
        &self,
        function: Function,
        condition: Conditional,
        value: Span,
        stream: Stream,
    ) -> DriverResult<()> {
        let (condition, value) = (condition.handle(), value.address());
        let pointers = [(&raw const condition).cast::<c_void>(), (&raw const value).cast()];
        // SAFETY: the pointers refer to the two 64-bit integers that the kernel takes and outlive the call; the
        // constructor of the span guarantees its memory.
        unsafe { self.launch(function, [1; 3], [1; 3], 0, &pointers, stream) }
    }

    /// Adds the same kernel to a graph as a node.
    pub fn graph_add_condition_set(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        function: Function,
        condition: Conditional,
        value: Span,
    ) -> DriverResult<GraphNode> {
        let (condition, value) = (condition.handle(), value.address());
        let pointers = [(&raw const condition).cast::<c_void>(), (&raw const value).cast()];
        // SAFETY: as above; adding the node copies the values that the pointers refer to.
        let kernel = unsafe { KernelNode::new(function, &pointers) };
        self.graph_add_kernel(graph, dependencies, &kernel)
    }
}
