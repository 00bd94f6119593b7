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
        Output,
        event::plinth_event_t,
        graph::{handle, plinth_graph_t, to_c},
        guard::guard,
        null, span,
        status::plinth_status_t,
        stream::plinth_host_function_t,
    },
    graph::{build, node},
    status::Status,
};
use std::ffi::c_void;

/// What C declares as `struct CUgraphNode_st`: the driver's node, never looked into.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct CUgraphNode_st {
    _private: [u8; 0],
}

/// A node of a graph: the same type as `cudaGraphNode_t` and `CUgraphNode`. It is looked up among the nodes of the graph that
/// a call names, so that a wrong one is an error.
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
/// A node that is a graph of its own.
pub const PLINTH_GRAPH_NODE_GRAPH: u32 = 4;
/// A node that only waits for others.
pub const PLINTH_GRAPH_NODE_EMPTY: u32 = 5;
/// A node that waits for an event.
pub const PLINTH_GRAPH_NODE_WAIT_EVENT: u32 = 6;
/// A node that records an event.
pub const PLINTH_GRAPH_NODE_EVENT_RECORD: u32 = 7;
/// A conditional node.
pub const PLINTH_GRAPH_NODE_CONDITIONAL: u32 = 13;

/// A launch of a kernel.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plinth_graph_kernel_t {
    /// The kernel: a CUfunction, or a cudaFunction_t, which is the same. It must be loaded as long as the graph has it, in
    /// the primary context of the graph's device.
    pub function: *mut c_void,
    /// How many blocks, along each axis.
    pub grid: [u32; 3],
    /// How many threads a block has, along each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory, in bytes a block.
    pub shared_bytes: u32,
    /// The address of each parameter, in order; what they lead to is copied by the call. May be NULL for a kernel without
    /// parameters.
    pub parameters: *mut *mut c_void,
}

pub(super) fn node_to_c(node: GraphNode) -> plinth_graph_node_t {
    node.handle() as plinth_graph_node_t
}

/// The nodes that C lists.
///
/// # Safety
/// `dependencies` is NULL or leads to `count` nodes.
pub(super) unsafe fn nodes_of(dependencies: *const plinth_graph_node_t, count: usize) -> Result<Vec<usize>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if dependencies.is_null() {
        return Err(null("dependencies"));
    }
    if count > isize::MAX as usize / size_of::<plinth_graph_node_t>() {
        return Err(Error::new(Status::INVALID_VALUE, format!("{count} dependencies are more than can be")));
    }
    // SAFETY: the pointer is not NULL, so the caller promises as many nodes.
    let nodes = unsafe { std::slice::from_raw_parts(dependencies, count) };
    Ok(nodes.iter().map(|node| *node as usize).collect())
}

/// Adds what `make` makes to the graph behind a handle, and gives C the node.
///
/// # Safety
/// `node` is NULL or a place for a node; `dependencies` is NULL or leads to `count` nodes.
pub(super) unsafe fn add_node(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    node: *mut plinth_graph_node_t,
    make: impl FnOnce(u64, &[usize]) -> Result<GraphNode>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let (node, dependencies) = unsafe { (Output::new(node, "node")?, nodes_of(dependencies, count)?) };
    node.set(node_to_c(make(handle(graph)?, &dependencies)?));
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

/// The launch that C describes.
///
/// # Safety
/// `kernel` is NULL or leads to a launch, whose function is a live one and whose parameters are those that it takes.
unsafe fn kernel_of<'a>(kernel: *const plinth_graph_kernel_t) -> Result<driver::KernelNode<'a>> {
    // SAFETY: the caller's promise.
    let kernel = unsafe { kernel.as_ref() }.ok_or_else(|| null("kernel"))?;
    if kernel.function.is_null() {
        return Err(null("kernel->function"));
    }
    for (name, size) in [("grid", kernel.grid), ("block", kernel.block)] {
        if size.contains(&0) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("kernel->{name} is {} x {} x {}: none may be 0", size[0], size[1], size[2]),
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

/// Creates a graph that is built by hand: it has no nodes yet, and they come by the plinth_graph_add_ functions. From then on
/// it is as a captured one that was made with PLINTH_GRAPH_KEEP_GRAPH: plinth_graph_instantiate makes it ready,
/// plinth_graph_replay launches it. A captured graph that kept its nodes can be added to in the same way.
///
/// The rules that hold for all functions that add a node:
/// - The node waits for its dependencies, which are nodes of the same graph, each once. Nodes between which there is no way
///   along dependencies may run at once.
/// - What is added is in the replays after the next plinth_graph_instantiate, not in those before.
/// - Memory that a node uses, and what its function is given, must stay valid as long as the graph, or what was instantiated of
///   it, may run. Nodes do not allocate; the program does that before.
/// - A node lives as long as its graph. It cannot be taken out again, but kernels, copies and fills can be switched off:
///   plinth_graph_node_set_enabled.
/// - Thread-safe; calls with one graph follow one another.
///
/// @param device The device whose work the graph is; -1 for the current one.
/// @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_create_empty(device: i32, graph: *mut plinth_graph_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the graph.
        let graph = unsafe { Output::new(graph, "graph") }?;
        graph.set(to_c(build::create(device)?));
        Ok(())
    })
}

/// Adds a launch of a kernel to a graph.
///
/// @param graph The graph: made by plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body of a
///        conditional node.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param kernel The launch.
/// @param node Out: the node.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no graph, and for a
///         dependency that is no node of it; PLINTH_ERROR_INVALID_VALUE for a dependency that is there twice, for a grid or a
///         block of a size that the device does not have; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is neither built
///         nor captured; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_kernel(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    kernel: *const plinth_graph_kernel_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place, that many nodes, and a launch that is right.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_kernel(graph, dependencies, &kernel_of(kernel)?)
            })
        }
    })
}

/// Adds a copy to a graph, between memory of devices and of the CPU, as plinth_memcpy makes it.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param destination The first byte written.
/// @param source The first byte read. It is read at each replay.
/// @param bytes How many; not 0.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE for 0 bytes, too, and for a range that is no memory.
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
        // SAFETY: the caller passes NULL or a place, that many nodes, and memory that stays valid.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_copy(graph, dependencies, span(destination, bytes), span(source, bytes))
            })
        }
    })
}

/// Adds a fill of memory of a device to a graph.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param pointer The first element, aligned to its size.
/// @param value What each element becomes; of smaller elements the low bits.
/// @param element_size The size of an element: 1, 2 or 4 bytes.
/// @param elements How many elements; not 0.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE for another element_size, a pointer that is not aligned, 0
///         elements, and for a range that is no memory of a device.
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
                format!("{elements} elements of {element_size} bytes are more than there are addresses"),
            )
        })?;
        // SAFETY: the caller passes NULL or a place, that many nodes, and memory that stays valid.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_fill(graph, dependencies, span(pointer, bytes), value, element_size)
            })
        }
    })
}

/// Adds a call of a function on the CPU to a graph. What depends on it waits for its return.
///
/// @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param function The function; called at each replay, by a thread of the driver's.
/// @param context Passed to the function. The caller keeps it alive as long as the graph may run.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_host(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    function: plinth_host_function_t,
    context: *mut c_void,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        let function = function.ok_or_else(|| null("function"))?;
        // SAFETY: the caller passes NULL or a place, that many nodes, and a function that may be called with its context.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_host(graph, dependencies, NodeFunction::new(function, context))
            })
        }
    })
}

/// Adds a copy of another graph to a graph, as one node. The child may be changed or destroyed afterwards. Memory of the
/// child's pool stays as long as either graph, and replays of the two, and of all other graphs of the pool, do not overlap.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param child The other graph, which kept its nodes and takes no random numbers.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel, for both graphs; PLINTH_ERROR_INVALID_VALUE for a child that takes random numbers;
///         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_NOT_SUPPORTED for a child with conditional nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_child(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    child: plinth_graph_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        if child.is_null() {
            return Err(null("child"));
        }
        // SAFETY: the caller passes NULL or a place, and that many nodes.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_child(graph, dependencies, child as u64)
            })
        }
    })
}

/// Adds a node to a graph that does nothing but wait: a point that others can depend on.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
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
        // SAFETY: the caller passes NULL or a place, and that many nodes.
        unsafe { add_node(graph, dependencies, count, node, build::add_empty) }
    })
}

/// Adds the recording of an event to a graph: each replay records it anew, and streams outside can wait for it, or ask for the
/// time between two. Counts as recorded from this call on; before the first replay it is complete.
///
/// @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param event The event, of the graph's device from now on. It must not be destroyed while the graph may run.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no event;
///         PLINTH_ERROR_DEVICE_MISMATCH for an event of another device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_event_record(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    event: plinth_event_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        if event.is_null() {
            return Err(null("event"));
        }
        // SAFETY: the caller passes NULL or a place, and that many nodes.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_event_record(graph, dependencies, event as u64)
            })
        }
    })
}

/// Adds a wait for an event to a graph: each replay waits for what the event recorded last before the replay.
///
/// @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param event The event. It must not be destroyed while the graph may run.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_event_wait(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    event: plinth_event_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        if event.is_null() {
            return Err(null("event"));
        }
        // SAFETY: the caller passes NULL or a place, and that many nodes.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                build::add_event_wait(graph, dependencies, event as u64)
            })
        }
    })
}

/// Makes a node of a graph wait for another one. Dependencies must not form a circle; plinth_graph_instantiate finds those.
///
/// @param graph As in plinth_graph_add_kernel.
/// @param from The node that is waited for.
/// @param to The node that waits.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node and itself,
///         and for a dependency that is there already; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
///         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_dependency(
    graph: plinth_graph_t,
    from: plinth_graph_node_t,
    to: plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| build::add_dependency(handle(graph)?, from as usize, to as usize))
}

/// Lists the nodes of a graph, without those of the graphs inside it, in an order of the driver's.
///
/// @param graph The graph, which kept its nodes.
/// @param nodes Out: the nodes; NULL to ask for the count only.
/// @param count In: for how many there is room; out: how many there are. If they are more, only as many as fit are written.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
///         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_nodes(
    graph: plinth_graph_t,
    nodes: *mut plinth_graph_node_t,
    count: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a count.
        let room = unsafe { count.as_ref() }.copied().ok_or_else(|| null("count"))?;
        // SAFETY: the same pointer is for the result, too.
        let count = unsafe { Output::new(count, "count") }?;
        let found = node::all(handle(graph)?)?;
        if !nodes.is_null() {
            for (index, node) in found.iter().take(room).enumerate() {
                // SAFETY: the caller has room for that many, and this is one of them.
                unsafe { nodes.add(index).write(node_to_c(*node)) };
            }
        }
        count.set(found.len());
        Ok(())
    })
}

/// Tells what a node is.
///
/// @param graph The graph, which kept its nodes.
/// @param node A node of it.
/// @param node_type Out: one of PLINTH_GRAPH_NODE_..., or another number of CUDA's CUgraphNodeType.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
///         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_type(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    node_type: *mut u32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the type.
        let output = unsafe { Output::new(node_type, "type") }?;
        output.set(type_of(node::kind(handle(graph)?, node as usize)?));
        Ok(())
    })
}

/// Tells what a kernel's node launches.
///
/// @param graph The graph, which kept its nodes.
/// @param node A node of it that launches a kernel.
/// @param kernel Out: the launch. Its parameters are the graph's own and must not be written to; they are NULL where the
///        program gave them packed into one buffer. The function is NULL where the driver has no CUfunction for it.
/// @return As plinth_graph_node_type; PLINTH_ERROR_INVALID_VALUE for a node that is no kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_kernel(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    kernel: *mut plinth_graph_kernel_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the launch.
        let output = unsafe { Output::new(kernel, "kernel") }?;
        let view = node::kernel(handle(graph)?, node as usize)?;
        output.set(plinth_graph_kernel_t {
            function: view.function.map_or(0, Function::handle) as *mut c_void,
            grid: view.grid,
            block: view.block,
            shared_bytes: view.shared_bytes,
            parameters: view.parameters as *mut *mut c_void,
        });
        Ok(())
    })
}

/// Gives a kernel of an instantiated graph another launch, in the replays from now on; those that run are not changed, nor
/// is what plinth_graph_instantiate will make of the graph next.
///
/// @param graph The graph, which kept its nodes and is instantiated.
/// @param node A node of it that launches a kernel. It had to be there when the graph was instantiated.
/// @param kernel The launch, of a kernel of the same device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node that is no
///         kernel or came later, for a launch that cannot be, and for the body of a conditional node;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is not instantiated, too; PLINTH_ERROR_GRAPH_CAPTURING;
///         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_set_kernel(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    kernel: *const plinth_graph_kernel_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a launch that is right.
        let kernel = unsafe { kernel_of(kernel) }?;
        node::set_kernel(handle(graph)?, node as usize, &kernel)
    })
}

/// Switches a kernel, copy or fill of an instantiated graph off or on, in the replays from now on. What waits for it waits
/// for its dependencies then. plinth_graph_instantiate makes all nodes anew, switched on. With a last node that is switched
/// off, driver 580 (CUDA 13.0) may tell of the end of a replay before the nodes in front of it are done: let another node
/// come after it.
///
/// @param graph The graph, which kept its nodes and is instantiated.
/// @param node A node of it that is a kernel, a copy or a fill. It had to be there when the graph was instantiated.
/// @param enabled Whether it is to be carried out.
/// @return As plinth_graph_set_kernel, for a node that is none of the three.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_set_enabled(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    enabled: bool,
) -> plinth_status_t {
    guard(|| node::set_enabled(handle(graph)?, node as usize, enabled))
}

/// Tells whether a kernel, copy or fill of an instantiated graph is switched on.
///
/// @param graph The graph, which kept its nodes and is instantiated.
/// @param node As in plinth_graph_node_set_enabled.
/// @param enabled Out: whether it is.
/// @return As plinth_graph_node_set_enabled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_enabled(
    graph: plinth_graph_t,
    node: plinth_graph_node_t,
    enabled: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let enabled = unsafe { Output::new(enabled, "enabled") }?;
        enabled.set(node::is_enabled(handle(graph)?, node as usize)?);
        Ok(())
    })
}
