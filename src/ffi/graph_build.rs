//! Graphs built by hand
//!
//! Adds nodes to a graph one by one, instead of capturing them, and reads and changes the nodes of a graph.
//!
//! A node belongs to its graph and lives as long as it. Memory and contexts that a node uses are the program's, and
//! must stay valid as long as the graph may run. Calls for one graph wait for each other.

use crate::{
    driver::{self, Function, GraphNode, NodeFunction, NodeType, types::*},
    error::{Error, Result},
    ffi::{
        Output, array,
        event::plinth_event_t,
        graph::{plinth_graph_t, to_c},
        guard::guard,
        handle, null, span,
        status::plinth_status_t,
        stream::plinth_host_function_callback_t,
        structs::{self},
    },
    graph::build,
    status::Status,
};
use std::{ffi::c_void, ptr};

/// The type that C declares as `struct CUgraphNode_st`: the driver's node, which is opaque to the library.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct CUgraphNode_st {
    _private: [u8; 0],
}

/// A node of a graph: the same type as `cudaGraphNode_t` and `CUgraphNode`. Each call looks it up among the nodes of
/// the graph that it names, so an invalid node is an error.
#[allow(non_camel_case_types)]
pub type plinth_graph_node_t = *mut CUgraphNode_st;

/// A node that launches a kernel.
pub const PLINTH_GRAPH_NODE_KERNEL: u32 = 0;
/// A node that copies memory.
pub const PLINTH_GRAPH_NODE_MEMCPY: u32 = 1;
/// A node that fills memory.
pub const PLINTH_GRAPH_NODE_MEMSET: u32 = 2;
/// A node that calls a function on the CPU.
pub const PLINTH_GRAPH_NODE_HOST: u32 = 3;
/// A node that contains a child graph.
pub const PLINTH_GRAPH_NODE_GRAPH: u32 = 4;
/// A node that does nothing but wait for its dependencies.
pub const PLINTH_GRAPH_NODE_EMPTY: u32 = 5;
/// A node that waits for an event.
pub const PLINTH_GRAPH_NODE_WAIT_EVENT: u32 = 6;
/// A node that records an event.
pub const PLINTH_GRAPH_NODE_EVENT_RECORD: u32 = 7;
/// A conditional node.
pub const PLINTH_GRAPH_NODE_CONDITIONAL: u32 = 13;

/// The launch of a kernel. PLINTH_GRAPH_KERNEL_INIT is one block of one thread.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_graph_kernel_t {
    /// sizeof(plinth_graph_kernel_t) in the caller's version of the header.
    pub struct_size: usize,
    /// The kernel: a CUfunction or a cudaFunction_t, which are the same. It must stay loaded as long as the graph
    /// contains it, in the primary context of the graph's device.
    pub function: *mut c_void,
    /// The number of blocks in the grid, along x, y and z.
    pub grid: [u32; 3],
    /// The number of threads in a block, along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// An array with the address of each parameter, in order. The call copies the parameters. May be NULL for a
    /// kernel without parameters.
    pub parameters: *mut *mut c_void,
}

pub(super) fn node_to_c(node: GraphNode) -> plinth_graph_node_t {
    node.handle() as plinth_graph_node_t
}

/// Returns the nodes that C lists.
///
/// # Safety
/// `dependencies` is NULL or points to `count` nodes.
pub(super) unsafe fn nodes_of(dependencies: *const plinth_graph_node_t, count: usize) -> Result<Vec<usize>> {
    // SAFETY: the caller makes this promise.
    let nodes = unsafe { array(dependencies, count, "dependencies") }?;
    Ok(nodes.iter().map(|node| *node as usize).collect())
}

/// Calls `make` with the graph behind a handle and its dependencies, and returns the node to C.
///
/// # Safety
/// `node` is NULL or valid for writes; `dependencies` is NULL or points to `count` nodes.
pub(super) unsafe fn add_node(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    node: *mut plinth_graph_node_t,
    make: impl FnOnce(u64, &[usize]) -> Result<GraphNode>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let (node, dependencies) = unsafe { (Output::new(node, "node")?, nodes_of(dependencies, count)?) };
    node.set(node_to_c(make(handle(graph, "graph")?, &dependencies)?));
    Ok(())
}

pub(super) fn type_of(kind: NodeType) -> u32 {
    match kind {
        NodeType::Kernel => CU_GRAPH_NODE_TYPE_KERNEL,
        NodeType::Memcpy => CU_GRAPH_NODE_TYPE_MEMCPY,
        NodeType::Memset => CU_GRAPH_NODE_TYPE_MEMSET,
        NodeType::Host => CU_GRAPH_NODE_TYPE_HOST,
        NodeType::Graph => CU_GRAPH_NODE_TYPE_GRAPH,
        NodeType::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
        NodeType::WaitEvent => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        NodeType::EventRecord => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        NodeType::Conditional => CU_GRAPH_NODE_TYPE_CONDITIONAL,
        NodeType::Other(other) => other,
    }
}

/// Returns the launch that C describes.
///
/// # Safety
/// `kernel` is NULL or points to a launch with a live function and the parameters that the function takes.
pub(super) unsafe fn kernel_of<'a>(kernel: *const plinth_graph_kernel_t) -> Result<driver::KernelNode<'a>> {
    let initial = plinth_graph_kernel_t {
        struct_size: 0,
        function: ptr::null_mut(),
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        parameters: ptr::null_mut(),
    };
    // SAFETY: the caller's promise.
    let kernel = unsafe { structs::read(kernel, initial, "kernel") }?;
    if kernel.function.is_null() {
        return Err(null("kernel->function"));
    }
    for (name, size) in [("grid", kernel.grid), ("block", kernel.block)] {
        if size.contains(&0) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("kernel->{name} is {} x {} x {}; each extent must be at least 1", size[0], size[1], size[2]),
            ));
        }
    }
    // SAFETY: the caller promises a live function and its parameters.
    Ok(unsafe {
        let function = Function::from_handle(kernel.function as usize);
        driver::KernelNode::of_list(
            function,
            kernel.parameters.cast_const().cast(),
            kernel.grid,
            kernel.block,
            kernel.shared_bytes,
        )
    })
}

/// Creates a graph without nodes, to which the plinth_graph_add_ functions add nodes.
///
/// The graph behaves like a graph that was captured with PLINTH_GRAPH_KEEP_GRAPH: plinth_graph_instantiate
/// instantiates it, plinth_graph_replay launches it. Nodes can be added to a captured graph that kept its nodes in
/// the same way.
///
/// These rules hold for all functions that add a node:
/// - The node waits for its dependencies, which are nodes of the same graph, without duplicates. Nodes that are not
///   connected by a path of dependencies may run concurrently.
/// - A new node takes part in replays after the next plinth_graph_instantiate, not in earlier ones.
/// - Memory that a node uses, and the context of a host function, must stay valid as long as the graph or an
///   instantiation of it may run. Nodes do not allocate memory; the program does so beforehand.
/// - A node lives as long as its graph and cannot be removed, but kernel, copy and fill nodes can be disabled with
///   plinth_graph_node_set_enabled.
/// - Calls for one graph are serialized.
///
/// @param device The index of the device on which the graph runs; -1 for the current device.
/// @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_create_empty(device: i32, graph: *mut plinth_graph_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let graph = unsafe { Output::new(graph, "graph") }?;
        graph.set(to_c(build::create(device)?));
        Ok(())
    })
}

/// Adds a kernel node to a graph.
///
/// @param graph The graph: created with plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body
///        of a conditional node.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param kernel The launch.
/// @param node Out: the node.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid graph, and for a
///         dependency that is not a node of it; PLINTH_ERROR_INVALID_VALUE for a duplicate dependency, and for a grid
///         or block size that the device does not support; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is
///         neither built nor captured; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
///         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_kernel(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    kernel: *const plinth_graph_kernel_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer for the node, `count` nodes, and a valid launch.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_kernel(graph, dependencies, &kernel_of(kernel)?)
            })
        }
    })
}

/// Adds a copy node to a graph, between device and CPU memory, as plinth_memcpy copies.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param destination The memory to write.
/// @param source The memory to read, at each replay.
/// @param bytes The number of bytes; not 0.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE also for 0 bytes, and for an address range that is
///         not memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_copy(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer for the node, `count` nodes, and memory that stays valid.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_copy(graph, dependencies, span(destination, bytes), span(source, bytes))
            })
        }
    })
}

/// Adds a node to a graph that fills device memory.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param pointer The first element, aligned to its size.
/// @param value The value of each element. Smaller elements use its low bits.
/// @param element_size The size of an element: 1, 2 or 4 bytes.
/// @param elements The number of elements; not 0.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE also for another element_size, a misaligned
///         pointer, 0 elements, and for an address range that is not device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_fill(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    pointer: *mut c_void,
    value: u32,
    element_size: usize,
    elements: usize,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        let bytes = elements.checked_mul(element_size).ok_or_else(|| {
            Error::new(
                Status::INVALID_VALUE,
                format!("{elements} elements of {element_size} bytes do not fit in the address space"),
            )
        })?;
        // SAFETY: the caller passes NULL or a valid pointer for the node, `count` nodes, and memory that stays valid.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_fill(graph, dependencies, span(pointer, bytes), value, element_size)
            })
        }
    })
}

/// Adds a node to a graph that calls a function on the CPU. Nodes that depend on it wait until the function returns.
///
/// @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param function The function. A thread of the driver calls it at each replay.
/// @param context Passed to the function. The caller keeps it alive as long as the graph may run.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_host(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    function: plinth_host_function_callback_t,
    context: *mut c_void,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        let function = function.ok_or_else(|| null("function"))?;
        // SAFETY: the caller passes NULL or a valid pointer for the node, `count` nodes, and a function that may be
        // called with its context.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_host(graph, dependencies, NodeFunction::new(function, context))
            })
        }
    })
}

/// Adds a copy of another graph to a graph, as one node.
///
/// The child may be changed or destroyed afterwards. Memory of the child's pool stays allocated as long as either
/// graph exists. Replays of the two graphs, and of all other graphs of the pool, do not overlap.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param child The other graph, which must have kept its nodes and must not use random numbers.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel, for both graphs; PLINTH_ERROR_INVALID_VALUE for a child that uses random
///         numbers; PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_NOT_SUPPORTED for a child with conditional nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_child(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    child: plinth_graph_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        let child = handle(child, "child")?;
        // SAFETY: the caller passes NULL or a valid pointer for the node, and `count` nodes.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_child(graph, dependencies, child)
            })
        }
    })
}

/// Adds an empty node to a graph, which only waits for its dependencies. Other nodes can depend on it.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_empty(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer for the node, and `count` nodes.
        unsafe { add_node(graph, dependencies, count, node, build::add_empty) }
    })
}

/// Adds a node to a graph that records an event.
///
/// Each replay records the event again. Streams outside of the graph can wait for it, and the program can measure the
/// time between two such events. Before the first replay, the event is complete and has no time unless it was recorded
/// elsewhere.
///
/// @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param event The event, which belongs to the graph's device from now on. Do not destroy it while the graph may
///        run.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for an invalid event; PLINTH_ERROR_DEVICE_MISMATCH
///         for an event of another device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_event_record(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    event: plinth_event_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        let event = handle(event, "event")?;
        // SAFETY: the caller passes NULL or a valid pointer for the node, and `count` nodes.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_event_record(graph, dependencies, event)
            })
        }
    })
}

/// Adds a node to a graph that waits for an event: each replay waits for the last record of the event before the
/// replay.
///
/// @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param event The event. Do not destroy it while the graph may run.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for an invalid event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_event_wait(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    event: plinth_event_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        let event = handle(event, "event")?;
        // SAFETY: the caller passes NULL or a valid pointer for the node, and `count` nodes.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_event_wait(graph, dependencies, event)
            })
        }
    })
}

/// Makes a node of a graph wait for another one. Dependencies must not form a cycle; plinth_graph_instantiate detects
/// cycles.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param from The node for which the other one waits.
/// @param to The node that waits.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if both are
///         the same node, and for a dependency that already exists; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
///         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_dependency(
    graph: plinth_graph_t,
    from: plinth_graph_node_t,
    to: plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| build::add_dependency(handle(graph, "graph")?, from as usize, to as usize))
}
