//! Times of a graph's nodes
//!
//! Measures how long each node of a graph takes. The nodes really run, and the call waits for them.

use crate::{
    ffi::{
        Output,
        graph::plinth_graph_t,
        graph_build::{node_to_c, plinth_graph_node_t, type_of},
        guard::guard,
        handle, owned_text,
        status::plinth_status_t,
        structs::StructOutputList,
    },
    graph::times::{self, NodeTime},
};
use std::ffi::c_char;

/// The duration of a node of a graph that runs alone on its device.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_node_time_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The node.
    pub node: plinth_graph_node_t,
    /// One of the PLINTH_GRAPH_NODE_ constants.
    pub node_type: u32,
    /// 0.
    pub reserved: u32,
    /// The median of the node's durations, in microseconds.
    pub microseconds: f64,
    /// A description: a kernel's name and launch configuration, or a copy's addresses. Truncated if it is longer.
    pub what: [c_char; 128],
}

impl From<&NodeTime> for plinth_node_time_t {
    fn from(time: &NodeTime) -> Self {
        let mut what = [0; 128];
        for (place, byte) in what.iter_mut().take(127).zip(time.what.bytes()) {
            *place = byte as c_char;
        }
        let (node, node_type) = (node_to_c(time.node), type_of(time.kind));
        plinth_node_time_t {
            struct_size: size_of::<Self>(),
            node,
            node_type,
            reserved: 0,
            microseconds: time.microseconds,
            what,
        }
    }
}

/// Measures the duration of each node of a graph.
///
/// The call runs the nodes of a copy of the graph one after the other in the current stream of the graph's device,
/// records an event before the first node, between the nodes and after the last one, and waits for the results.
///
/// The nodes really run: once and then `repeats` times. Each run has all effects of a replay on the program's memory,
/// random generators and events, and calls its host functions. Nodes do not overlap: nodes that a replay runs
/// concurrently are measured one at a time, so the sum of the durations can be longer than a replay. Each duration
/// includes the cost of an event, about one microsecond on a GPU. A child graph is one node.
///
/// @param graph The graph, which must have kept its nodes and have no conditional nodes.
/// @param repeats The number of measured runs, 1 to 10000. The duration of a node is the median.
/// @param times In: struct_size of the first element. Out: up to `capacity` durations, in the order in which the nodes
///        ran; NULL to get only the count, which still measures.
/// @param capacity The number of elements that `times` has room for.
/// @param count Out: the number of nodes, which may exceed the number that was written.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if
///         struct_size was not set, for another number of repeats, for the body of a conditional node, and for a cycle
///         of dependencies; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
///         PLINTH_ERROR_NOT_SUPPORTED with conditional nodes; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_GRAPH_ASLEEP;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_times(
    graph: plinth_graph_t,
    repeats: u32,
    times: *mut plinth_node_time_t,
    capacity: usize,
    count: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let count = unsafe { Output::new(count, "count") }?;
        // SAFETY: the caller passes NULL or `capacity` structs, of which the first begins with its size.
        let output = unsafe { StructOutputList::new(times, capacity, "times") }?;
        let measured = times::measure(handle(graph, "graph")?, repeats)?;
        output.set(measured.iter().map(plinth_node_time_t::from));
        count.set(measured.len());
        Ok(())
    })
}

/// Measures the duration of each node of a graph, as plinth_graph_node_times does, and returns a table.
///
/// The table has a header line, a line for each node and a line with the sum. The columns, separated by tabs, are the
/// duration in microseconds, the type and the description of the node.
///
/// @param graph As in plinth_graph_node_times.
/// @param repeats As in plinth_graph_node_times.
/// @param text Out: the table. The caller owns it and frees it with plinth_string_free.
/// @return As plinth_graph_node_times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_time_table(
    graph: plinth_graph_t,
    repeats: u32,
    text: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&times::table(&times::measure(handle(graph, "graph")?, repeats)?))?);
        Ok(())
    })
}
