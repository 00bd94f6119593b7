//! Graphs and executable graphs.

use super::{INVALID, Out, enter, graph_node::build_node_launch, stream::finish_launch};
use crate::{
    context,
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    ids::Id,
    stream::lock_for_work,
};
use std::ffi::{c_uint, c_ulonglong};

/// An upload needs the stream that only another call takes.
const INSTANTIATE_FLAGS: c_ulonglong = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

pub unsafe extern "C" fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) -> Code {
    enter(Call::cuGraphCreate, 0, |state| {
        let out = Out::new(graph)?;
        if flags != 0 {
            return Err(INVALID);
        }
        out.put(state.engine.lock().create_graph(None) as CUgraph);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphDestroy(graph: CUgraph) -> Code {
    enter(Call::cuGraphDestroy, 0, |state| state.engine.lock().destroy_graph(graph as Id))
}

pub unsafe extern "C" fn cuGraphClone(clone: *mut CUgraph, graph: CUgraph) -> Code {
    enter(Call::cuGraphClone, 0, |state| {
        let out = Out::new(clone)?;
        out.put(state.engine.lock().copy_graph(graph as Id, None)? as CUgraph);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) -> Code {
    enter(Call::cuGraphNodeFindInClone, 0, |state| {
        let out = Out::new(node)?;
        let engine = state.engine.lock();
        let graph = engine.graph(clone as Id)?;
        let index = *graph.originals.get(&(original as Id)).ok_or(INVALID)?;
        out.put(graph.nodes.get(index).ok_or(INVALID)?.id as CUgraphNode);
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
        context::current(state)?;
        let mut engine = state.engine.lock();
        engine.forbid_unsafe(context::thread_number())?;
        if flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH != 0 {
            // Kernels cannot launch graphs on a host device.
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        out.put(engine.instantiate(graph as Id, flags)? as CUgraphExec);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> Code {
    enter(Call::cuGraphUpload, 0, |state| {
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        engine.forbid_implicit(id)?;
        engine.upload(exec as Id, id)
    })
}

pub unsafe extern "C" fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> Code {
    enter(Call::cuGraphLaunch, 0, |state| {
        let (mut engine, id) = lock_for_work(state, stream)?;
        engine.forbid_implicit(id)?;
        engine.forbid_capturing(id)?;
        engine.launch(exec as Id, id)?;
        drop(engine);
        finish_launch(state, stream, false)
    })
}

pub unsafe extern "C" fn cuGraphExecDestroy(exec: CUgraphExec) -> Code {
    enter(Call::cuGraphExecDestroy, 0, |state| {
        let mut engine = state.engine.lock();
        engine.forbid_unsafe(context::thread_number())?;
        engine.destroy_exec(exec as Id)
    })
}

pub unsafe extern "C" fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut ExecUpdateInfo) -> Code {
    enter(Call::cuGraphExecUpdate_v2, 0, |state| {
        let out = Out::new(info)?;
        let updated = state.engine.lock().update_exec(exec as Id, graph as Id);
        let (result, node, from, code) = match updated {
            Ok(Ok(())) => (CU_GRAPH_EXEC_UPDATE_SUCCESS, 0, 0, Ok(())),
            Ok(Err(mismatch)) => {
                let code = Err(codes::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
                (mismatch.result, mismatch.node, mismatch.from, code)
            }
            Err(code) => (CU_GRAPH_EXEC_UPDATE_ERROR, 0, 0, Err(code)),
        };
        let (error_node, error_from_node) = (node as CUgraphNode, from as CUgraphNode);
        out.put(ExecUpdateInfo { result, error_node, error_from_node });
        code
    })
}

pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Code {
    enter(Call::cuGraphExecKernelNodeSetParams_v2, 0, |state| {
        let mut engine = state.engine.lock();
        // SAFETY: the caller passed the parameters of a kernel node, or null.
        let launch = unsafe { build_node_launch(state, &engine, parameters) }?;
        engine.set_launch(exec as Id, node as Id, launch)
    })
}

pub unsafe extern "C" fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Code {
    enter(Call::cuGraphNodeSetEnabled, 0, |state| state.engine.lock().set_enabled(exec as Id, node as Id, enabled != 0))
}

pub unsafe extern "C" fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) -> Code {
    enter(Call::cuGraphNodeGetEnabled, 0, |state| {
        let out = Out::new(enabled)?;
        out.put(c_uint::from(state.engine.lock().is_enabled(exec as Id, node as Id)?));
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut c_ulonglong) -> Code {
    enter(Call::cuGraphExecGetFlags, 0, |state| {
        let out = Out::new(flags)?;
        // The use of the nodes' priorities leaves no trace in the executable graph.
        out.put(state.engine.lock().exec(exec as Id)?.flags & !CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
        Ok(())
    })
}
