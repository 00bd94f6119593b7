//! Adding nodes and edges to graphs.

use super::{
    INVALID, Out,
    copy::{build_copy, check_fill, end},
    enter,
    module::{Shape, build_launch},
};
use crate::{
    context,
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    engine::Engine,
    graph::Action,
    ids::Id,
    kernels::Launch,
    state::State,
    work::{Fill, HostCall, Work},
};
use std::{ffi::c_uint, sync::Arc};

/// Reads an array of nodes.
///
/// # Safety
/// `list` is null or points to `count` nodes.
pub(super) unsafe fn nodes(list: *const CUgraphNode, count: usize) -> Result<Vec<Id>, Code> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if list.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees that many nodes, and the pointer is not null.
    Ok((0..count).map(|index| unsafe { list.add(index).read() } as Id).collect())
}

/// Refuses edges with ports or types, which only launches from devices need.
///
/// # Safety
/// `data` is null or points to the data of `count` edges.
pub(super) unsafe fn plain_edges(data: *const CUgraphEdgeData, count: usize) -> Result<(), Code> {
    if data.is_null() {
        return Ok(());
    }
    // SAFETY: the caller guarantees data for that many edges, and the pointer is not null.
    let mut edges = (0..count).map(|index| unsafe { data.add(index).read() });
    if edges.all(|edge| (edge.from_port, edge.to_port, edge.type_) == (0, 0, 0)) {
        Ok(())
    } else {
        Err(codes::CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// The output parameter, graph and dependencies of a new node, as passed by the program.
struct NewNode {
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
}

impl NewNode {
    /// Adds a node with the action and device that `make` returns.
    fn add(
        self,
        state: &'static State,
        make: impl FnOnce(&mut Engine) -> Result<(Action, usize), Code>,
    ) -> Result<(), Code> {
        let out = Out::new(self.node)?;
        // SAFETY: the caller of the driver call passed `count` nodes.
        let dependencies = unsafe { nodes(self.dependencies, self.count) }?;
        let graph = self.graph as Id;
        let mut engine = state.engine.lock();
        let indices = engine.node_indices(graph, &dependencies)?;
        let (action, device) = make(&mut engine)?;
        let index = engine.push_node(graph, action, indices, device, 0)?;
        out.put(engine.graph(graph)?.nodes[index].id as CUgraphNode);
        Ok(())
    }
}

/// Returns the device for a node that does not specify one: the current one, or 0 if there is none.
fn current_or_first_device(state: &State) -> usize {
    context::current_device(state).unwrap_or(0)
}

/// Creates the launch of a kernel node from its parameters.
///
/// # Safety
/// `parameters` is null or points to the parameters of a kernel node.
pub(super) unsafe fn build_node_launch(
    state: &State,
    engine: &Engine,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<Launch, Code> {
    if parameters.is_null() {
        return Err(INVALID);
    }
    // libcuda reads an illegal address then (driver 580).
    context::current_device(state).map_err(|_| codes::CUDA_ERROR_UNKNOWN)?;
    // SAFETY: the caller guarantees the parameters of a kernel node, and the pointer is not null.
    let params = unsafe { parameters.read() };
    let function = *engine.functions.get(&(params.func as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
    if !params.ctx.is_null() && context::device_of(state, params.ctx as Id)? != function.device {
        return Err(INVALID);
    }
    let shape = Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared_bytes: params.sharedMemBytes,
        cooperative: false,
    };
    // SAFETY: a kernel node's parameters have the same form as those of a launch.
    unsafe { build_launch(function, &shape, params.kernelParams, params.extra) }
}

pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Code {
    enter(Call::cuGraphAddKernelNode_v2, 0, |state| {
        NewNode { node, graph, dependencies, count }.add(state, |engine| {
            // SAFETY: the caller passed the parameters of a kernel node, or null.
            let launch = unsafe { build_node_launch(state, engine, parameters) }?;
            let device = launch.device;
            Ok((Action::Work(Work::Kernel(Arc::new(launch))), device))
        })
    })
}

pub unsafe extern "C" fn cuGraphAddMemcpyNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const MemcpyNodeParams,
    context: CUcontext,
) -> Code {
    enter(Call::cuGraphAddMemcpyNode, 0, |state| {
        NewNode { node, graph, dependencies, count }.add(state, |_| {
            if parameters.is_null() {
                return Err(INVALID);
            }
            // SAFETY: the caller passed the parameters of a copy node, and the pointer is not null.
            let params = unsafe { parameters.read() };
            let device = context::device_of(state, context as Id)?;
            if params.width == 0 || params.height == 0 || params.depth == 0 {
                return Err(INVALID);
            }
            let layers = [params.source_y, params.source_z, params.destination_y, params.destination_z];
            if params.depth != 1 || layers != [0; 4] {
                // Copies of several layers, which plinth does not use.
                return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
            }
            let offset = params.destination_x as u64;
            let pitch = params.destination_pitch as u64;
            let to = end(params.destination_type, params.destination_host, params.destination_device, offset, pitch)?;
            let (offset, pitch) = (params.source_x as u64, params.source_pitch as u64);
            let from = end(params.source_type, params.source_host, params.source_device, offset, pitch)?;
            let size = (params.width as u64, params.height as u64);
            let copy = build_copy(state, [to, from], size, (device, device))?;
            Ok((Action::Work(Work::Copy(copy)), device))
        })
    })
}

pub unsafe extern "C" fn cuGraphAddMemsetNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Code {
    enter(Call::cuGraphAddMemsetNode, 0, |state| {
        NewNode { node, graph, dependencies, count }.add(state, |_| {
            if parameters.is_null() {
                return Err(INVALID);
            }
            // SAFETY: the caller passed the parameters of a fill node, and the pointer is not null.
            let params = unsafe { parameters.read() };
            let device = context::device_of(state, context as Id)?;
            let (width, count, rows) = (u64::from(params.elementSize), params.width as u64, params.height as u64);
            if !matches!(width, 1 | 2 | 4) || count == 0 || rows == 0 {
                return Err(INVALID);
            }
            let (to, value) = (params.dst, params.value);
            let pitch = if rows == 1 { 0 } else { params.pitch as u64 };
            let row = count.checked_mul(width).ok_or(INVALID)?;
            if rows > 1 && (pitch < row || !pitch.is_multiple_of(width)) {
                return Err(INVALID);
            }
            let fill = Fill { to, value, width, count, rows, pitch };
            check_fill(state, &fill, device)?;
            Ok((Action::Work(Work::Fill(fill)), device))
        })
    })
}

pub unsafe extern "C" fn cuGraphAddHostNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_HOST_NODE_PARAMS,
) -> Code {
    enter(Call::cuGraphAddHostNode, 0, |state| {
        NewNode { node, graph, dependencies, count }.add(state, |_| {
            if parameters.is_null() {
                return Err(INVALID);
            }
            // SAFETY: the caller passed the parameters of a host node, and the pointer is not null.
            let params = unsafe { parameters.read() };
            let function = params.fn_.ok_or(INVALID)?;
            Ok((Action::Host(HostCall { function, data: params.userData as usize }), current_or_first_device(state)))
        })
    })
}

pub unsafe extern "C" fn cuGraphAddChildGraphNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Code {
    enter(Call::cuGraphAddChildGraphNode, 0, |state| {
        state.engine.lock().check_copyable(child as Id)?;
        NewNode { node, graph, dependencies, count }.add(state, |engine| {
            let child = engine.copy_graph(child as Id, Some(graph as Id))?;
            Ok((Action::Child(child), current_or_first_device(state)))
        })
    })
}

pub unsafe extern "C" fn cuGraphAddEmptyNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
) -> Code {
    enter(Call::cuGraphAddEmptyNode, 0, |state| {
        NewNode { node, graph, dependencies, count }.add(state, |_| Ok((Action::Empty, current_or_first_device(state))))
    })
}

pub unsafe extern "C" fn cuGraphAddEventRecordNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Code {
    enter(Call::cuGraphAddEventRecordNode, 0, |state| {
        NewNode { node, graph, dependencies, count }.add(state, |engine| {
            let device = engine.event(event as Id).map_err(|_| INVALID)?.device;
            Ok((Action::Record(event as Id), device))
        })
    })
}

pub unsafe extern "C" fn cuGraphAddEventWaitNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Code {
    enter(Call::cuGraphAddEventWaitNode, 0, |state| {
        NewNode { node, graph, dependencies, count }.add(state, |engine| {
            let device = engine.event(event as Id).map_err(|_| INVALID)?.device;
            Ok((Action::Wait(event as Id), device))
        })
    })
}

pub unsafe extern "C" fn cuGraphAddDependencies(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Code {
    enter(Call::cuGraphAddDependencies, 0, |state| {
        // SAFETY: the caller passed two arrays of `count` nodes.
        let (from, to) = unsafe { (nodes(from, count)?, nodes(to, count)?) };
        state.engine.lock().add_edges(graph as Id, &from, &to)
    })
}

pub unsafe extern "C" fn cuGraphConditionalHandleCreate(
    handle: *mut CUgraphConditionalHandle,
    graph: CUgraph,
    context: CUcontext,
    default: c_uint,
    flags: c_uint,
) -> Code {
    enter(Call::cuGraphConditionalHandleCreate, 0, |state| {
        let out = Out::new(handle)?;
        if flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0 {
            return Err(INVALID);
        }
        let device = context::device_of(state, context as Id)?;
        let assigned = flags & CU_GRAPH_COND_ASSIGN_DEFAULT != 0;
        out.put(state.engine.lock().create_condition(graph as Id, device, default, assigned)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGraphAddNode_v2(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    parameters: *mut ConditionalNodeParams,
) -> Code {
    enter(Call::cuGraphAddNode_v2, 0, |state| {
        if parameters.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller passed the data of `count` edges, or null.
        unsafe { plain_edges(data, count) }?;
        // SAFETY: the caller passed the parameters of a node, which have one size for every type, and any bits are
        // valid as integers; the pointer is not null.
        let params = unsafe { parameters.read() };
        if params.node_type != CU_GRAPH_NODE_TYPE_CONDITIONAL {
            // The other types have their own calls, which plinth uses.
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        if params.reserved0 != [0; 3] || params.reserved2 != 0 {
            return Err(INVALID);
        }
        let mut bodies = std::ptr::null_mut();
        NewNode { node, graph, dependencies, count }.add(state, |engine| {
            let device = context::device_of(state, params.context as Id)?;
            let conditional =
                engine.create_conditional_node(graph as Id, params.handle, params.kind, params.size, device)?;
            // A graph's handle is a number of a pointer's size.
            bodies = conditional.bodies.as_ptr().cast_mut().cast();
            Ok((Action::Conditional(conditional), device))
        })?;
        // SAFETY: the pointer is not null, and the caller passed it for this result, too.
        unsafe { (&raw mut (*parameters).bodies).write(bodies) };
        Ok(())
    })
}
