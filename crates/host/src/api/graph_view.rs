//! Queries of graphs: nodes, edges, and the parameters of nodes.

use super::{INVALID, Out, enter};
use crate::{
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    engine::Engine,
    graph::Action,
    ids::Id,
    kernels::Launch,
    memory::check::MemoryKind,
    state::State,
    work::{Work, extent_of_rows},
};
use std::ffi::{CStr, c_char, c_uint, c_void};

/// Writes nodes up to the capacity, then nulls. If `output` is null, writes only the count.
fn write_nodes(found: &[Id], output: *mut CUgraphNode, count: Out<usize>) {
    if output.is_null() {
        return count.put(found.len());
    }
    // SAFETY: the output parameter is not null, and on input it contains the capacity of `output`.
    let room = unsafe { count.0.read() };
    for index in 0..room {
        let node = found.get(index).copied().unwrap_or(0);
        // SAFETY: the caller passed an array for that many nodes.
        unsafe { output.add(index).write(node as CUgraphNode) };
    }
    count.put(room.min(found.len()));
}

pub unsafe extern "C" fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Code {
    enter(Call::cuGraphGetNodes, 0, |state| {
        let out = Out::new(count)?;
        let engine = state.engine.lock();
        let found: Vec<Id> = engine.graph(graph as Id)?.nodes.iter().map(|node| node.id).collect();
        write_nodes(&found, nodes, out);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphGetEdges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Code {
    enter(Call::cuGraphGetEdges, 0, |state| {
        let out = Out::new(count)?;
        if from.is_null() != to.is_null() {
            return Err(INVALID);
        }
        let engine = state.engine.lock();
        let graph = engine.graph(graph as Id)?;
        let ends: (Vec<Id>, Vec<Id>) =
            graph.edges().map(|(from, to)| (graph.nodes[from].id, graph.nodes[to].id)).unzip();
        // SAFETY: the output parameter is not null, and if there are arrays for nodes, it contains their capacity.
        let mut room = if from.is_null() { 0 } else { unsafe { count.read() } };
        write_nodes(&ends.0, from, Out(&raw mut room));
        write_nodes(&ends.1, to, out);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphNodeGetDependencies(
    node: CUgraphNode,
    dependencies: *mut CUgraphNode,
    count: *mut usize,
) -> Code {
    enter(Call::cuGraphNodeGetDependencies, 0, |state| {
        let out = Out::new(count)?;
        let engine = state.engine.lock();
        let (graph, index) = *engine.nodes.get(&(node as Id)).ok_or(INVALID)?;
        let nodes = &engine.graph(graph)?.nodes;
        let found: Vec<Id> =
            nodes.get(index).ok_or(INVALID)?.dependencies.iter().map(|before| nodes[*before].id).collect();
        write_nodes(&found, dependencies, out);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint) -> Code {
    enter(Call::cuGraphNodeGetType, 0, |state| {
        let out = Out::new(kind)?;
        out.put(state.engine.lock().node(node as Id)?.action.node_type());
        Ok(())
    })
}

/// Writes what `get` returns for a node's action. `None` means that the node has another type, and is an error.
fn write_parameters<T>(
    state: &'static State,
    node: CUgraphNode,
    output: *mut T,
    get: impl FnOnce(&mut Engine, &Action) -> Option<T>,
) -> Result<(), Code> {
    let out = Out::new(output)?;
    let mut engine = state.engine.lock();
    let action = engine.node(node as Id)?.action.clone();
    out.put(get(&mut engine, &action).ok_or(INVALID)?);
    Ok(())
}

/// Returns the first handle that the program got for the kernel of a launch.
fn function_of(engine: &Engine, launch: &Launch) -> Id {
    let same = engine
        .functions
        .iter()
        .filter(|(_, function)| std::ptr::eq(function.kernel, launch.kernel) && function.device == launch.device);
    same.map(|(id, _)| *id).min().unwrap_or(0)
}

pub unsafe extern "C" fn cuGraphKernelNodeGetParams_v2(
    node: CUgraphNode,
    parameters: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Code {
    enter(Call::cuGraphKernelNodeGetParams_v2, 0, |state| {
        write_parameters(state, node, parameters, |engine, action| {
            let Action::Work(Work::Kernel(launch)) = action else { return None };
            let function = function_of(engine, launch);
            // The node owns the launch, and with it the memory of its parameters.
            let count = launch.kernel.parameter_sizes.len();
            let reported =
                (0..count).filter_map(|index| launch.bytes(index)).map(|bytes| bytes.as_ptr() as usize).collect();
            let (graph, index) = *engine.nodes.get(&(node as Id))?;
            let owner = engine.graphs.get_mut(&graph)?.nodes.get_mut(index)?;
            if owner.reported.is_empty() {
                owner.reported = reported;
            }
            let [grid_x, grid_y, grid_z] = launch.grid;
            let [block_x, block_y, block_z] = launch.block;
            Some(CUDA_KERNEL_NODE_PARAMS {
                func: function as CUfunction,
                gridDimX: grid_x,
                gridDimY: grid_y,
                gridDimZ: grid_z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: launch.shared_bytes,
                kernelParams: if count == 0 { std::ptr::null_mut() } else { owner.reported.as_ptr().cast_mut().cast() },
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: state.contexts.get(launch.device).copied().unwrap_or(0) as CUcontext,
            })
        })
    })
}

pub unsafe extern "C" fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, parameters: *mut MemcpyNodeParams) -> Code {
    enter(Call::cuGraphMemcpyNodeGetParams, 0, |state| {
        write_parameters(state, node, parameters, |_, action| {
            let Action::Work(Work::Copy(copy)) = action else { return None };
            // An end is given by the pointer of its type; the other pointer is null.
            let extent = |pitch| extent_of_rows(copy.bytes, copy.rows, pitch).unwrap_or(copy.bytes);
            let end = |address: u64, pitch| match state.memory.read().kind_of(address, extent(pitch)) {
                MemoryKind::Pageable | MemoryKind::Pinned => (CU_MEMORYTYPE_HOST, address as *mut c_void, 0),
                MemoryKind::Device(_) | MemoryKind::Unmapped => (CU_MEMORYTYPE_DEVICE, std::ptr::null_mut(), address),
            };
            let (source_type, source_host, source_device) = end(copy.from, copy.from_pitch);
            let (destination_type, destination_host, destination_device) = end(copy.to, copy.to_pitch);
            Some(MemcpyNodeParams {
                source_type,
                source_host,
                source_device,
                destination_type,
                destination_host,
                destination_device,
                width: copy.bytes as usize,
                height: copy.rows as usize,
                source_pitch: copy.from_pitch as usize,
                destination_pitch: copy.to_pitch as usize,
                ..MemcpyNodeParams::ROW
            })
        })
    })
}

pub unsafe extern "C" fn cuGraphMemsetNodeGetParams(
    node: CUgraphNode,
    parameters: *mut CUDA_MEMSET_NODE_PARAMS,
) -> Code {
    enter(Call::cuGraphMemsetNodeGetParams, 0, |state| {
        write_parameters(state, node, parameters, |_, action| {
            let Action::Work(Work::Fill(fill)) = action else { return None };
            Some(CUDA_MEMSET_NODE_PARAMS {
                dst: fill.to,
                pitch: fill.pitch as usize,
                value: fill.value,
                elementSize: fill.width as c_uint,
                width: fill.count as usize,
                height: fill.rows as usize,
            })
        })
    })
}

pub unsafe extern "C" fn cuGraphHostNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_HOST_NODE_PARAMS) -> Code {
    enter(Call::cuGraphHostNodeGetParams, 0, |state| {
        write_parameters(state, node, parameters, |_, action| {
            let Action::Host(call) = action else { return None };
            Some(CUDA_HOST_NODE_PARAMS { fn_: Some(call.function), userData: call.data as *mut c_void })
        })
    })
}

pub unsafe extern "C" fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) -> Code {
    enter(Call::cuGraphChildGraphNodeGetGraph, 0, |state| {
        write_parameters(state, node, graph, |_, action| match action {
            Action::Child(child) => Some(*child as CUgraph),
            _ => None,
        })
    })
}

pub unsafe extern "C" fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) -> Code {
    enter(Call::cuGraphEventRecordNodeGetEvent, 0, |state| {
        write_parameters(state, node, event, |_, action| match action {
            Action::Record(event) => Some(*event as CUevent),
            _ => None,
        })
    })
}

pub unsafe extern "C" fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) -> Code {
    enter(Call::cuGraphEventWaitNodeGetEvent, 0, |state| {
        write_parameters(state, node, event, |_, action| match action {
            Action::Wait(event) => Some(*event as CUevent),
            _ => None,
        })
    })
}

pub unsafe extern "C" fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint) -> Code {
    enter(Call::cuGraphDebugDotPrint, 0, |state| {
        if path.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller passed a string that ends in a NUL.
        let path = unsafe { CStr::from_ptr(path) };
        let text = state.engine.lock().draw(graph as Id, flags)?;
        let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes());
        std::fs::write(path, text).map_err(|_| codes::CUDA_ERROR_OPERATING_SYSTEM)
    })
}
