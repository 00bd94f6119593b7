//! Conditional nodes
//!
//! Nodes that run a body never, once or repeatedly, depending on a value that kernels set on the device. A condition
//! and the bodies belong to the graph that they were created for and end with it.

use crate::{
    driver::ConditionalKind,
    error::{Error, Result},
    ffi::{
        Output,
        graph::{handle, plinth_graph_t, to_c},
        graph_build::{add_node, node_to_c, nodes_of, plinth_graph_node_t},
        guard::guard,
        null, plinth_stream_t, span,
        status::plinth_status_t,
    },
    graph::condition,
    status::Status,
};
use std::ffi::c_void;

/// A condition: the same value as a `cudaGraphConditionalHandle`, which kernels of the program's give to
/// `cudaGraphSetConditional(condition, value)`. It is looked up before it is used, so that a wrong one is an error.
#[allow(non_camel_case_types)]
pub type plinth_graph_condition_t = u64;

/// The most bodies of one node.
const MOST_BODIES: usize = 1 << 12;

/// Makes a condition for one conditional node of a graph, or of a body inside it: a 32-bit value on the device, which kernels
/// in the graph set, and which the node asks when the graph gets to it. The condition must be used in a node before the graph
/// is instantiated, and lives as long as the graph.
///
/// @param graph The graph: made by plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body of a
///        conditional node.
/// @param default_value What each replay of the graph begins with.
/// @param condition Out: the condition.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
///         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older than
///         CUDA 12.4; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_condition_create(
    graph: plinth_graph_t,
    default_value: u32,
    condition: *mut plinth_graph_condition_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the condition.
        let condition = unsafe { Output::new(condition, "condition") }?;
        condition.set(condition::create(handle(graph)?, default_value)?);
        Ok(())
    })
}

/// Adds a conditional node, and gives its bodies.
///
/// # Safety
/// `dependencies` is NULL or leads to `count` nodes.
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
    let (added, handles) = condition::add(handle(graph)?, &dependencies, condition, kind, N as u32)?;
    bodies.into_iter().zip(handles).for_each(|(body, handle)| body.set(to_c(handle)));
    node.set(node_to_c(added));
    Ok(())
}

/// Adds a node to a graph whose body is carried out if the condition is not 0 when the graph gets there.
///
/// The rules that hold for the bodies of all conditional nodes:
/// - A body is a graph, empty at first. It is filled with the plinth_graph_add_ functions, or by capturing into it: with
///   plinth_graph_capture_begin or plinth_graph_begin, and the end of those. A capture adds to what is there, behind it.
///   Memory that it allocates belongs to the graph around it. Random numbers cannot be taken in it.
/// - It has kernels, copies and fills of device memory, empty nodes, child graphs and conditional nodes, all of one device.
/// - It belongs to the graph around it: it is not instantiated, replayed, reset or destroyed for itself
///   (PLINTH_ERROR_INVALID_VALUE), and its handle ends when that graph is reset or destroyed. plinth_graph_reset of a body that
///   is being captured throws the capture away.
/// - It can be filled until the graph around it is instantiated. Graphs with conditional nodes cannot be copied, added as
///   children, or timed node by node.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param condition A condition of the graph, or of one around it, that no other node asks.
/// @param body Out: the body.
/// @param node Out: the node.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no graph or no condition,
///         and for a dependency that is no node of the graph; PLINTH_ERROR_INVALID_VALUE for a condition that another node
///         asks, or of another graph, and for a dependency that is there twice; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
///         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older than
///         CUDA 12.4; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
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
        // SAFETY: the caller passes NULL or places for both, and NULL or that many nodes.
        unsafe {
            let (body, node) = (Output::new(body, "body")?, Output::new(node, "node")?);
            add(graph, dependencies, count, condition, ConditionalKind::If, [body], node)
        }
    })
}

/// Adds a node to a graph of whose two bodies the first one is carried out if the condition is not 0, and the second one if it
/// is.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param condition As in plinth_graph_add_if.
/// @param then_body Out: the first body.
/// @param else_body Out: the second body.
/// @param node Out: the node.
/// @return As plinth_graph_add_if, but the driver has to be of CUDA 12.8.
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
        // SAFETY: the caller passes NULL or places for all, and NULL or that many nodes.
        unsafe {
            let bodies = [Output::new(then_body, "then_body")?, Output::new(else_body, "else_body")?];
            let node = Output::new(node, "node")?;
            add(graph, dependencies, count, condition, ConditionalKind::If, bodies, node)
        }
    })
}

/// Adds a node to a graph whose body is carried out again and again while the condition is not 0. Something in the body has
/// to set the condition to 0 at some time: what never ends cannot be stopped.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param condition As in plinth_graph_add_if. With a default that is not 0 the body is carried out once at least.
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
        // SAFETY: the caller passes NULL or places for both, and NULL or that many nodes.
        unsafe {
            let (body, node) = (Output::new(body, "body")?, Output::new(node, "node")?);
            add(graph, dependencies, count, condition, ConditionalKind::While, [body], node)
        }
    })
}

/// Adds a node to a graph that carries out the body whose number the condition is, and none if there is no such body.
///
/// @param graph As in plinth_graph_condition_create.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param condition As in plinth_graph_add_if.
/// @param bodies Out: the bodies, from number 0 on.
/// @param body_count How many bodies: 1 to 4096.
/// @param node Out: the node.
/// @return As plinth_graph_add_if, but the driver has to be of CUDA 12.8; PLINTH_ERROR_INVALID_VALUE for another body_count.
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
        // SAFETY: the caller passes NULL or places for them.
        let node = unsafe { Output::new(node, "node") }?;
        if bodies.is_null() {
            return Err(null("bodies"));
        }
        if body_count == 0 || body_count > MOST_BODIES {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("body_count is {body_count}; it can be 1 to {MOST_BODIES}"),
            ));
        }
        // SAFETY: the caller passes NULL or that many nodes.
        let dependencies = unsafe { nodes_of(dependencies, count) }?;
        let kind = ConditionalKind::Switch;
        let (added, handles) = condition::add(handle(graph)?, &dependencies, condition, kind, body_count as u32)?;
        for (index, handle) in handles.into_iter().take(body_count).enumerate() {
            // SAFETY: the caller has room for that many, and this is one of them.
            unsafe { bodies.add(index).write(to_c(handle)) };
        }
        node.set(node_to_c(added));
        Ok(())
    })
}

/// Adds a kernel to a graph that gives a condition the 32-bit value that is in memory when it runs.
///
/// @param graph The graph that asks the condition, or one inside or around it.
/// @param dependencies The nodes that it waits for; may be NULL if there are none.
/// @param count How many they are.
/// @param condition The condition.
/// @param value Where the value is: 4 bytes that the device can read, aligned.
/// @param node Out: the node.
/// @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no condition;
///         PLINTH_ERROR_INVALID_VALUE for an address that is not aligned.
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
        // SAFETY: the caller passes NULL or a place, that many nodes, and memory that stays valid.
        unsafe {
            add_node(graph, dependencies, count, node, |graph, dependencies| {
                condition::add_set(graph, dependencies, condition, span(value, 4))
            })
        }
    })
}

/// Launches the same kernel in a stream that is capturing, so that it becomes a part of what is captured: the body that asks
/// the condition, or a graph around it.
///
/// @param condition The condition.
/// @param value As in plinth_graph_add_condition_set.
/// @param stream The stream, of the condition's device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no condition or no stream;
///         PLINTH_ERROR_INVALID_VALUE for an address that is not aligned; PLINTH_ERROR_DEVICE_MISMATCH;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURING for a stream that is not capturing; PLINTH_ERROR_DRIVER.
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
