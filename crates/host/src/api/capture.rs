//! Stream capture.

use super::{
    Out, enter,
    graph_node::{nodes, plain_edges},
    put_optional,
};
use crate::{
    capture, context,
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    ids::Id,
};
use std::ffi::{c_uint, c_ulonglong};

pub unsafe extern "C" fn cuStreamIsCapturing(stream: CUstream, status: *mut c_uint) -> Code {
    enter(Call::cuStreamIsCapturing, 0, |state| {
        let out = Out::new(status)?;
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        engine.check_implicit(id)?;
        out.put(match engine.capture_of(id) {
            Ok(None) => CU_STREAM_CAPTURE_STATUS_NONE,
            Ok(Some(_)) => CU_STREAM_CAPTURE_STATUS_ACTIVE,
            Err(_) => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        });
        Ok(())
    })
}

pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> Code {
    enter(Call::cuStreamBeginCapture_v2, 0, |state| {
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        engine.begin_capture(id, mode, context::thread_number(), None)
    })
}

pub unsafe extern "C" fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: c_uint,
) -> Code {
    enter(Call::cuStreamBeginCaptureToGraph, 0, |state| {
        // SAFETY: the caller passed `count` nodes, and data for `count` edges or none.
        let dependencies = unsafe { plain_edges(data, count).and_then(|()| nodes(dependencies, count)) }?;
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        if engine.graph(graph as Id)?.capturing {
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        let frontier = engine.node_indices(graph as Id, &dependencies)?;
        engine.begin_capture(id, mode, context::thread_number(), Some((graph as Id, frontier)))
    })
}

pub unsafe extern "C" fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> Code {
    enter(Call::cuStreamEndCapture, 0, |state| {
        let out = Out::new(graph)?;
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        match engine.end_capture(id, context::thread_number()) {
            Ok(id) => {
                out.put(id as CUgraph);
                Ok(())
            }
            Err(code) => {
                // As CUDA specifies: a caller that destroys the graph without checking the code must not destroy
                // garbage.
                out.put(std::ptr::null_mut());
                Err(code)
            }
        }
    })
}

pub unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    status: *mut c_uint,
    id: *mut c_ulonglong,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> Code {
    enter(Call::cuStreamGetCaptureInfo_v2, 0, |state| {
        let status = Out::new(status)?;
        let mut engine = state.engine.lock();
        let stream_id = engine.find_stream(stream, context::current(state))?;
        engine.check_implicit(stream_id)?;
        let capture_id = match engine.capture_of(stream_id) {
            Ok(Some(capture)) => capture,
            Ok(None) => {
                status.put(CU_STREAM_CAPTURE_STATUS_NONE);
                return Ok(());
            }
            Err(_) => {
                status.put(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
                return Ok(());
            }
        };
        let frontier = engine.frontier(stream_id);
        let capture = engine.captures.get(&capture_id).ok_or(codes::CUDA_ERROR_ILLEGAL_STATE)?;
        let (number, graph_id) = (capture.number, capture.graph);
        let nodes = engine.graphs.get(&graph_id).map_or(&[][..], |graph| &graph.nodes);
        let reported = frontier.iter().filter_map(|index| nodes.get(*index)).map(|node| node.id).collect();
        let capturing = engine.streams.get_mut(&stream_id).and_then(|stream| stream.capture.as_mut());
        let capture_state = capturing.ok_or(codes::CUDA_ERROR_ILLEGAL_STATE)?;
        capture_state.reported = reported;
        status.put(CU_STREAM_CAPTURE_STATUS_ACTIVE);
        put_optional(id, number);
        put_optional(graph, graph_id as CUgraph);
        // A node's handle is a number of a pointer's size.
        put_optional(dependencies, capture_state.reported.as_ptr().cast());
        put_optional(count, capture_state.reported.len());
        Ok(())
    })
}

pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> Code {
    enter(Call::cuThreadExchangeStreamCaptureMode, 0, |_| {
        let out = Out::new(mode)?;
        // SAFETY: the pointer is not null, and the caller passed it for a mode to be read and written.
        let new_mode = unsafe { mode.read() };
        out.put(capture::exchange_mode(new_mode));
        Ok(())
    })
}
