//! Nodes of a graph
//!
//! Lists the nodes of a graph, and reads and changes them.

use crate::{
    driver::Function,
    ffi::{
        Output,
        graph::plinth_graph_t,
        graph_build::{kernel_of, node_to_c, plinth_graph_kernel_t, plinth_graph_node_t, type_of},
        guard::guard,
        handle,
        status::plinth_status_t,
        structs::StructOutput,
    },
    graph::node,
};
use std::ffi::c_void;

/// Lists the nodes of a graph in the driver's order, without those of child graphs and bodies.
///
/// @param graph The graph, which must have kept its nodes.
/// @param nodes Out: up to `capacity` nodes; NULL to get only the count.
/// @param capacity The number of elements that `nodes` has room for.
/// @param count Out: the number of nodes, which may exceed the number that was written.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
///         PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_nodes(
    graph: plinth_graph_t,
    nodes: *mut plinth_graph_node_t,
    capacity: usize,
    count: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let count = unsafe { Output::new(count, "count") }?;
        let found = node::all(handle(graph, "graph")?)?;
        if !nodes.is_null() {
            for (index, node) in found.iter().take(capacity).enumerate() {
                // SAFETY: the caller has room for that many, and this is one of them.
                unsafe { nodes.add(index).write(node_to_c(*node)) };
            }
        }
        count.set(found.len());
        Ok(())
    })
}

/// Gets the type of a node.
///
/// @param graph The graph, which must have kept its nodes.
/// @param node A node of the graph.
/// @param node_type Out: one of the PLINTH_GRAPH_NODE_ constants, or another value of CUDA's CUgraphNodeType.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
///         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_type(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    node_type: *mut u32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(node_type, "type") }?;
        output.set(type_of(node::kind(handle(graph, "graph")?, node as usize)?));
        Ok(())
    })
}

/// Gets the launch of a kernel node.
///
/// @param graph The graph, which must have kept its nodes.
/// @param node A kernel node of the graph.
/// @param kernel In: struct_size. Out: the launch. Its parameters belong to the graph and must not be written; they are
///        NULL if the program passed them packed into one buffer. The function is NULL if the driver has no CUfunction
///        for the kernel.
/// @return As plinth_graph_node_type; PLINTH_ERROR_INVALID_VALUE for a node that is not a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_get_kernel(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    kernel: *mut plinth_graph_kernel_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { StructOutput::new(kernel, "kernel") }?;
        let view = node::kernel(handle(graph, "graph")?, node as usize)?;
        output.set(plinth_graph_kernel_t {
            struct_size: size_of::<plinth_graph_kernel_t>(),
            function: view.function.map_or(0, Function::handle) as *mut c_void,
            grid: view.grid,
            block: view.block,
            shared_bytes: view.shared_bytes,
            parameters: view.parameters as *mut *mut c_void,
        });
        Ok(())
    })
}

/// Changes the launch of a kernel node of an instantiated graph.
///
/// The change applies to later replays. It does not affect running replays, or the next plinth_graph_instantiate.
///
/// @param graph The graph, which must have kept its nodes and be instantiated.
/// @param node A kernel node of the graph, which must have existed when the graph was instantiated.
/// @param kernel The launch, of a kernel of the same device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node
///         that is not a kernel or was added later, for an invalid launch, and for the body of a conditional node;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURED, also for a graph that is not instantiated; PLINTH_ERROR_GRAPH_CAPTURING;
///         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_set_kernel(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    kernel: *const plinth_graph_kernel_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid launch.
        let kernel = unsafe { kernel_of(kernel) }?;
        node::set_kernel(handle(graph, "graph")?, node as usize, &kernel)
    })
}

/// Enables or disables a kernel, copy or fill node of an instantiated graph for later replays.
///
/// Nodes that depend on a disabled node wait for that node's dependencies. plinth_graph_instantiate enables all nodes
/// again. If the last node of a graph is disabled, driver 580 (CUDA 13.0) may report the end of a replay before the
/// nodes that precede it are done: add another node after it.
///
/// @param graph The graph, which must have kept its nodes and be instantiated.
/// @param node A kernel, copy or fill node of the graph, which must have existed when the graph was instantiated.
/// @param enabled Whether replays execute the node.
/// @return As plinth_graph_node_set_kernel; PLINTH_ERROR_INVALID_VALUE for a node of another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_set_enabled(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    enabled: bool,
) -> plinth_status_t {
    guard(|| node::set_enabled(handle(graph, "graph")?, node as usize, enabled))
}

/// Gets whether a kernel, copy or fill node of an instantiated graph is enabled.
///
/// @param graph The graph, which must have kept its nodes and be instantiated.
/// @param node As in plinth_graph_node_set_enabled.
/// @param enabled Out: whether it is.
/// @return As plinth_graph_node_set_enabled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_get_enabled(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    enabled: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let enabled = unsafe { Output::new(enabled, "enabled") }?;
        enabled.set(node::is_enabled(handle(graph, "graph")?, node as usize)?);
        Ok(())
    })
}
