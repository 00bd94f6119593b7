//! Stream capture: recording work as a graph instead of executing it.

use super::{Driver, DriverResult, Graph, GraphNode, Stream, call, graph_node::raw_nodes, observer, types::*};
use std::{ffi::c_uint, ptr};

/// The state of a stream's capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureInfo {
    /// One of `CU_STREAM_CAPTURE_STATUS_...`.
    pub status: c_uint,
    /// The capture's number; 0 unless it is active.
    pub id: u64,
    /// The graph that the capture builds, if it is active. The program may already add nodes to it.
    pub graph: Option<Graph>,
    /// The nodes that the stream's next node will depend on.
    pub dependencies: Vec<GraphNode>,
}

impl Driver {
    /// Begins a capture in a stream. `mode` is one of `CU_STREAM_CAPTURE_MODE_...`.
    pub fn stream_begin_capture(&self, stream: Stream, mode: c_uint) -> DriverResult<()> {
        // SAFETY: the stream is live, and a wrong mode returns an error code.
        unsafe { call!(self, cuStreamBeginCapture_v2(stream.raw(), mode)) }?;
        if let Some(observer) = observer::current() {
            observer.capture_begun(self, stream, false);
        }
        Ok(())
    }

    /// Begins a capture into an existing graph, such as the body of a conditional node. The first captured nodes depend
    /// on `dependencies`.
    pub fn stream_begin_capture_to_graph(
        &self,
        stream: Stream,
        graph: Graph,
        dependencies: &[GraphNode],
        mode: c_uint,
    ) -> DriverResult<()> {
        // SAFETY: stream and graph are live, the list has `dependencies.len()` nodes, and edge data may be null.
        unsafe {
            call!(
                self,
                cuStreamBeginCaptureToGraph(
                    stream.raw(),
                    graph.raw(),
                    raw_nodes(dependencies),
                    ptr::null(),
                    dependencies.len(),
                    mode
                )
            )
        }?;
        if let Some(observer) = observer::current() {
            observer.capture_begun(self, stream, true);
        }
        Ok(())
    }

    /// Ends the capture that began in a stream and returns its graph. The capture ends even if the call fails.
    pub fn stream_end_capture(&self, stream: Stream) -> DriverResult<Graph> {
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the output is a live local, and the stream is live.
        let ended = unsafe { call!(self, cuStreamEndCapture(stream.raw(), &mut graph)) };
        let ended = ended.map(|()| Graph::from_raw(graph));
        if let Some(observer) = observer::current() {
            observer.capture_ended(self, stream, ended.ok());
        }
        ended
    }

    /// Returns the state of the capture that a stream takes part in.
    pub fn stream_capture_info(&self, stream: Stream) -> DriverResult<CaptureInfo> {
        let (mut status, mut id, mut graph) = (CU_STREAM_CAPTURE_STATUS_NONE, 0, ptr::null_mut());
        let (mut nodes, mut count): (*const CUgraphNode, usize) = (ptr::null(), 0);
        // SAFETY: the outputs are live locals, and the stream is live.
        unsafe {
            call!(
                self,
                cuStreamGetCaptureInfo_v2(stream.raw(), &mut status, &mut id, &mut graph, &mut nodes, &mut count)
            )
        }?;
        if status != CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Ok(CaptureInfo { status, id: 0, graph: None, dependencies: Vec::new() });
        }
        // SAFETY: the driver returned the address of `count` nodes. They stay valid until the next use of the stream,
        // and are copied here before that.
        let dependencies = (0..count).map(|index| GraphNode::from_raw(unsafe { nodes.add(index).read() })).collect();
        Ok(CaptureInfo { status, id, graph: Some(Graph::from_raw(graph)), dependencies })
    }
}
