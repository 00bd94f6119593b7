//! Graphs.

use super::{INVALID, Out, enter, stream::after_launch};
use crate::driver::{
    codes,
    host::{context, ids::Id},
    table::{Call, Code},
    types::*,
};
use std::ffi::{c_uint, c_ulonglong};

/// Free what the graph allocates on launch, upload, launch from the device, use the nodes' priorities.
const INSTANTIATE_FLAGS: c_ulonglong = 0xf;
/// Launching from the device itself, which a host device has not.
const DEVICE_LAUNCH: c_ulonglong = 4;

pub unsafe extern "C" fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Code {
    enter(Call::cuGraphGetNodes, 0, |state| {
        let out = Out::new(count)?;
        let engine = state.engine.lock();
        let known = &engine.graph(graph as Id)?.nodes;
        if nodes.is_null() {
            out.put(known.len());
            return Ok(());
        }
        // SAFETY: the pointer is not null, and the caller put the room that `nodes` has there.
        let room = unsafe { count.read() };
        for index in 0..room {
            let node = known.get(index).map_or(0, |node| node.id);
            // SAFETY: the caller gave room for that many nodes; past the last one CUDA writes nulls.
            unsafe { nodes.add(index).write(node as CUgraphNode) };
        }
        out.put(room.min(known.len()));
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint) -> Code {
    enter(Call::cuGraphNodeGetType, 0, |state| {
        let out = Out::new(kind)?;
        let engine = state.engine.lock();
        let (graph, index) = *engine.nodes.get(&(node as Id)).ok_or(INVALID)?;
        let node = engine.graph(graph)?.nodes.get(index).ok_or(INVALID)?;
        out.put(node.action.node_type());
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Code {
    enter(Call::cuGraphInstantiateWithFlags, 0, |state| {
        let out = Out::new(exec)?;
        if flags & !INSTANTIATE_FLAGS != 0 {
            return Err(INVALID);
        }
        if flags & DEVICE_LAUNCH != 0 {
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        out.put(state.engine.lock().instantiate(graph as Id)? as CUgraphExec);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> Code {
    enter(Call::cuGraphLaunch, 0, |state| {
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        engine.forbid_implicit(id)?;
        let capture = engine.capture_of(id)?;
        if let Some(capture) = capture.filter(|_| exec.is_null()) {
            engine.invalidate(capture);
            return Err(codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        engine.launch(exec as Id, id)?;
        drop(engine);
        after_launch(state, stream, capture.is_some())
    })
}

pub unsafe extern "C" fn cuGraphExecDestroy(exec: CUgraphExec) -> Code {
    enter(Call::cuGraphExecDestroy, 0, |state| state.engine.lock().destroy_exec(exec as Id))
}

pub unsafe extern "C" fn cuGraphDestroy(graph: CUgraph) -> Code {
    enter(Call::cuGraphDestroy, 0, |state| {
        let mut engine = state.engine.lock();
        if engine.graph(graph as Id)?.capturing {
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        engine.drop_graph(graph as Id);
        Ok(())
    })
}
