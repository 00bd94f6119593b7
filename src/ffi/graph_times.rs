//! Times of a graph's nodes
//!
//! Measures how long each node of a graph takes. The nodes really run, and the call waits for them.

use crate::{
    ffi::{
        Output,
        graph::{handle, plinth_graph_t},
        graph_build::{node_to_c, plinth_graph_node_t, type_of},
        guard::guard,
        null, owned_text,
        status::plinth_status_t,
    },
    graph::times::{self, NodeTime},
};
use std::ffi::c_char;

/// How long a node of a graph takes, alone on its device.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plinth_node_time_t {
    /// The node.
    pub node: plinth_graph_node_t,
    /// One of PLINTH_GRAPH_NODE_....
    pub node_type: u32,
    /// 0.
    pub reserved: u32,
    /// The median of its times, in microseconds.
    pub microseconds: f64,
    /// What it does: a kernel's name and launch, a copy's addresses. Cut off where it is longer.
    pub what: [c_char; 128],
}

impl From<&NodeTime> for plinth_node_time_t {
    fn from(time: &NodeTime) -> Self {
        let mut what = [0; 128];
        for (place, byte) in what.iter_mut().take(127).zip(time.what.bytes()) {
            *place = byte as c_char;
        }
        let (node, node_type) = (node_to_c(time.node), type_of(time.kind));
        plinth_node_time_t { node, node_type, reserved: 0, microseconds: time.microseconds, what }
    }
}

/// Measures how long each node of a graph takes. The nodes of a copy of the graph run one after the other, with the recording of
/// an event before, between and behind them, in the current stream of the graph's device; this is waited for.
///
/// They really run: once and then `repeats` times, as by so many replays, with all that this does to the program's memory,
/// random generators and events, and with its host functions. And nothing overlaps: nodes that a replay runs at the same
/// time are timed alone, and the sum of the times can be more than a replay takes. Each time has in it what an event costs,
/// about a microsecond on a GPU. A child graph is one node.
///
/// @param graph The graph, which kept its nodes, and has no conditional ones.
/// @param repeats How many times; 1 to 10000. A node's time is the median.
/// @param times Out: the times, in the order in which the nodes ran; NULL to ask for the count only, which still measures.
/// @param count In: for how many there is room; out: how many nodes there are. If they are more, only as many as fit are
///        written.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other
///         repeats, for the body of a conditional node, and for nodes that wait for each other in a circle;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
///         PLINTH_ERROR_NOT_SUPPORTED with conditional nodes; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_GRAPH_ASLEEP;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_node_times(
    graph: plinth_graph_t,
    repeats: u32,
    times: *mut plinth_node_time_t,
    count: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a count.
        let room = unsafe { count.as_ref() }.copied().ok_or_else(|| null("count"))?;
        // SAFETY: the same pointer is for the result, too.
        let count = unsafe { Output::new(count, "count") }?;
        let measured = times::measure(handle(graph)?, repeats)?;
        if !times.is_null() {
            for (index, time) in measured.iter().take(room).enumerate() {
                // SAFETY: the caller has room for that many, and this is one of them.
                unsafe { times.add(index).write(time.into()) };
            }
        }
        count.set(measured.len());
        Ok(())
    })
}

/// Does the same as plinth_graph_node_times, and gives a table: a line of names, a line for each node with tabs between its time in
/// microseconds, its type and what it does, and a line with the sum.
///
/// @param graph As in plinth_graph_node_times.
/// @param repeats As in plinth_graph_node_times.
/// @param text Out: the table; the caller frees it with plinth_string_free.
/// @return As plinth_graph_node_times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graph_time_table(
    graph: plinth_graph_t,
    repeats: u32,
    text: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the text.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&times::table(&times::measure(handle(graph)?, repeats)?))?);
        Ok(())
    })
}
