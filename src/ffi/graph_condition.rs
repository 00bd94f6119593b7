//! Conditional nodes
//!
//! Nodes that run a body never, once or repeatedly, depending on a value that kernels set on the device. A condition
//! and the bodies belong to the graph that they were created for and end with it.

use crate::{
    driver::ConditionalKind,
    error::{Error, Result},
    ffi::{
        Output,
        graph::{plinth_graph_t, to_c},
        graph_build::{add_node, node_to_c, nodes_of, plinth_graph_node_t},
        guard::guard,
        handle, null, plinth_stream_t, span,
        status::plinth_status_t,
    },
    graph::condition,
    status::Status,
};
use std::ffi::c_void;

/// A condition: the same value as a `cudaGraphConditionalHandle`, which the program's kernels pass to
/// `cudaGraphSetConditional(condition, value)`. Each call looks it up before use, so an invalid condition is an
/// error.
#[allow(non_camel_case_types)]
pub type plinth_graph_condition_t = u64;

/// The maximum number of bodies of one node.
const MOST_BODIES: usize = 1 << 12;

/// Creates a condition for one conditional node of a graph, or of a body inside it.
///
/// A condition is a 32-bit value on the device. Kernels in the graph set it, and the node reads it when the replay
/// reaches the node. The condition must be used in a node before the graph is instantiated. It lives as long as the
/// graph.
///
/// @param graph The graph: created with plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body
///        of a conditional node.
/// @param default_value The value of the condition at the start of each replay.
/// @param condition Out: the condition.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
///         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older
///         than CUDA 12.4; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_condition_create(
    graph: plinth_graph_t,
    default_value: u32,
    condition: *mut plinth_graph_condition_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let condition = unsafe { Output::new(condition, "condition") }?;
        condition.set(condition::create(handle(graph, "graph")?, default_value)?);
        Ok(())
    })
}

/// Adds a conditional node, and returns it and its bodies to C.
///
/// # Safety
/// `dependencies` is NULL or points to `count` nodes.
unsafe fn add<const N: usize>(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    condition: plinth_graph_condition_t,
    kind: ConditionalKind,
    bodies: [Output<plinth_graph_t>; N],
    node: Output<plinth_graph_node_t>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let dependencies = unsafe { nodes_of(dependencies, count) }?;
    let (added, handles) = condition::add(handle(graph, "graph")?, &dependencies, condition, kind, N as u32)?;
    bodies.into_iter().zip(handles).for_each(|(body, handle)| body.set(to_c(handle)));
    node.set(node_to_c(added));
    Ok(())
}

/// Adds a conditional node to a graph whose body runs if the condition is not 0 when the replay reaches the node.
///
/// These rules hold for the bodies of all conditional nodes:
/// - A body is a graph that is empty at first. It is filled with the plinth_graph_add_ functions, or by a capture
///   into it with plinth_graph_capture_begin or plinth_graph_begin and the functions that end them. A capture adds
///   its nodes after the existing ones. Memory that is allocated in it belongs to the enclosing graph. Random numbers
///   cannot be used in it.
/// - It can contain kernels, copies and fills of device memory, empty nodes, child graphs and conditional nodes, all
///   of one device.
/// - It belongs to the enclosing graph: it cannot be instantiated, replayed, reset or destroyed by itself
///   (PLINTH_ERROR_INVALID_VALUE), and its handle becomes invalid when the enclosing graph is reset or destroyed.
///   plinth_graph_reset of a body that is being captured discards the capture.
/// - It can be filled until the enclosing graph is instantiated. Graphs with conditional nodes cannot be copied or
///   added as children, and their nodes cannot be measured with plinth_graph_node_times.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param condition A condition of the graph, or of an enclosing graph, that no other node uses.
/// @param body Out: the body.
/// @param node Out: the node.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid graph or condition, and
///         for a dependency that is not a node of the graph; PLINTH_ERROR_INVALID_VALUE for a condition that another
///         node uses or that belongs to another graph, and for a duplicate dependency;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
///         PLINTH_ERROR_NOT_SUPPORTED with a driver older than CUDA 12.4; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_if(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    condition: plinth_graph_condition_t,
    body: *mut plinth_graph_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or pointers that are valid for writes, and NULL or that many nodes.
        unsafe {
            let (body, node) = (Output::new(body, "body")?, Output::new(node, "node")?);
            add(graph, dependencies, count, condition, ConditionalKind::If, [body], node)
        }
    })
}

/// Adds a conditional node to a graph with two bodies: the first one runs if the condition is not 0, the second one
/// if it is 0.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param condition As in plinth_graph_add_if.
/// @param then_body Out: the first body.
/// @param else_body Out: the second body.
/// @param node Out: the node.
/// @return As plinth_graph_add_if, but PLINTH_ERROR_NOT_SUPPORTED with a driver older than CUDA 12.8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_if_else(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    condition: plinth_graph_condition_t,
    then_body: *mut plinth_graph_t,
    else_body: *mut plinth_graph_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or pointers that are valid for writes, and NULL or that many nodes.
        unsafe {
            let bodies = [Output::new(then_body, "then_body")?, Output::new(else_body, "else_body")?];
            let node = Output::new(node, "node")?;
            add(graph, dependencies, count, condition, ConditionalKind::If, bodies, node)
        }
    })
}

/// Adds a conditional node to a graph whose body runs repeatedly while the condition is not 0.
///
/// A kernel in the body must set the condition to 0 eventually: an endless loop cannot be stopped.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param condition As in plinth_graph_add_if. If its default value is not 0, the body runs at least once.
/// @param body Out: the body.
/// @param node Out: the node.
/// @return As plinth_graph_add_if.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_while(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    condition: plinth_graph_condition_t,
    body: *mut plinth_graph_t,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or pointers that are valid for writes, and NULL or that many nodes.
        unsafe {
            let (body, node) = (Output::new(body, "body")?, Output::new(node, "node")?);
            add(graph, dependencies, count, condition, ConditionalKind::While, [body], node)
        }
    })
}

/// Adds a conditional node to a graph that runs the body whose index is the value of the condition, or no body if the
/// value is out of range.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param condition As in plinth_graph_add_if.
/// @param bodies Out: the bodies, starting with index 0.
/// @param body_count The number of bodies, 1 to 4096.
/// @param node Out: the node.
/// @return As plinth_graph_add_if, but PLINTH_ERROR_NOT_SUPPORTED with a driver older than CUDA 12.8;
///         PLINTH_ERROR_INVALID_VALUE for another body_count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_switch(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    condition: plinth_graph_condition_t,
    bodies: *mut plinth_graph_t,
    body_count: usize,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let node = unsafe { Output::new(node, "node") }?;
        if bodies.is_null() {
            return Err(null("bodies"));
        }
        if body_count == 0 || body_count > MOST_BODIES {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("body_count is {body_count}; it must be 1 to {MOST_BODIES}"),
            ));
        }
        // SAFETY: the caller passes NULL or that many nodes.
        let dependencies = unsafe { nodes_of(dependencies, count) }?;
        let kind = ConditionalKind::Switch;
        let (added, handles) =
            condition::add(handle(graph, "graph")?, &dependencies, condition, kind, body_count as u32)?;
        for (index, handle) in handles.into_iter().take(body_count).enumerate() {
            // SAFETY: the caller has room for that many, and this is one of them.
            unsafe { bodies.add(index).write(to_c(handle)) };
        }
        node.set(node_to_c(added));
        Ok(())
    })
}

/// Adds a kernel node to a graph that sets a condition to a 32-bit value, which it reads from memory when it runs.
///
/// @param graph The graph whose node uses the condition, or one inside or around it.
/// @param dependencies The nodes for which the node waits; may be NULL if there are none.
/// @param count The number of dependencies.
/// @param condition The condition.
/// @param value The address of the value: 4 bytes of memory that the device can read, aligned to 4 bytes.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for an invalid condition;
///         PLINTH_ERROR_INVALID_VALUE for a misaligned address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_add_condition_set(
    graph: plinth_graph_t,
    dependencies: *const plinth_graph_node_t,
    count: usize,
    condition: plinth_graph_condition_t,
    value: *const c_void,
    node: *mut plinth_graph_node_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer for the node, `count` nodes, and memory that stays valid.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                condition::add_set(graph, dependencies, condition, span(value, 4))
            })
        }
    })
}

/// Launches the kernel of plinth_graph_add_condition_set in a stream that captures, so that it becomes a node of the
/// captured graph: the body whose node uses the condition, or an enclosing graph.
///
/// @param condition The condition.
/// @param value As in plinth_graph_add_condition_set.
/// @param stream The stream, of the condition's device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid condition or stream;
///         PLINTH_ERROR_INVALID_VALUE for a misaligned address; PLINTH_ERROR_DEVICE_MISMATCH;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURING for a stream that does not capture; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_condition_set_from(
    condition: plinth_graph_condition_t,
    value: *const c_void,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes memory that stays valid.
        let value = unsafe { span(value, 4) };
        condition::set_from(condition, value, stream as usize)
    })
}
