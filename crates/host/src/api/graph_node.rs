//! Adding to graphs: nodes and edges.

use super::{
    INVALID, Out,
    copy::{check_fill, copying},
    enter,
    module::launch_of,
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
use std::{
    ffi::{c_uint, c_void},
    sync::Arc,
};

/// The nodes that a program lists.
///
/// # Safety
/// `list` is null or leads to `count` nodes.
pub(super) unsafe fn nodes(list: *const CUgraphNode, count: usize) -> Result<Vec<Id>, Code> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if list.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller promises that many nodes, and the pointer is not null.
    Ok((0..count).map(|index| unsafe { list.add(index).read() } as Id).collect())
}

/// Refuses edges that say more than that one node comes after another, as only devices' own launches need.
///
/// # Safety
/// `data` is null or leads to `count` edges' data.
pub(super) unsafe fn plain_edges(data: *const CUgraphEdgeData, count: usize) -> Result<(), Code> {
    if data.is_null() {
        return Ok(());
    }
    // SAFETY: the caller promises data for that many edges, and the pointer is not null.
    let mut edges = (0..count).map(|index| unsafe { data.add(index).read() });
    if edges.all(|edge| (edge.from_port, edge.to_port, edge.type_) == (0, 0, 0)) {
        Ok(())
    } else {
        Err(codes::CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// Where a new node goes: its graph and what it depends on, as the program says it.
struct Target {
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
}

impl Target {
    /// Adds the node that `make` makes, which gets a device, too.
    fn add(
        self,
        state: &'static State,
        make: impl FnOnce(&mut Engine) -> Result<(Action, usize), Code>,
    ) -> Result<(), Code> {
        let out = Out::new(self.node)?;
        // SAFETY: the caller of the driver call gave `count` nodes.
        let dependencies = unsafe { nodes(self.dependencies, self.count) }?;
        let graph = self.graph as Id;
        let mut engine = state.engine.lock();
        let places = engine.places(graph, &dependencies)?;
        let (action, device) = make(&mut engine)?;
        let index = engine.push_node(graph, action, places, device, 0)?;
        out.put(engine.graph(graph)?.nodes[index].id as CUgraphNode);
        Ok(())
    }
}

/// A device for a node that does not say: the current one, if there is one.
fn some_device(state: &State) -> usize {
    context::current(state).unwrap_or(0)
}

/// The launch that a kernel's node is given.
///
/// # Safety
/// `parameters` is null or leads to the parameters of a kernel's node.
pub(super) unsafe fn launch_of_node(
    state: &State,
    engine: &Engine,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<Launch, Code> {
    if parameters.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller promises the parameters of a kernel's node, and the pointer is not null.
    let given = unsafe { parameters.read() };
    let function = *engine.functions.get(&(given.func as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
    if !given.ctx.is_null() && context::device_of(state, given.ctx as Id)? != function.device {
        return Err(INVALID);
    }
    let grid = [given.gridDimX, given.gridDimY, given.gridDimZ];
    let block = [given.blockDimX, given.blockDimY, given.blockDimZ];
    // SAFETY: the parameters of a kernel's node are given as those of a launch are.
    unsafe { launch_of(function, grid, block, given.sharedMemBytes, given.kernelParams, given.extra) }
}

pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Code {
    enter(Call::cuGraphAddKernelNode_v2, 0, |state| {
        Target { node, graph, dependencies, count }.add(state, |engine| {
            // SAFETY: the caller gave the parameters of a kernel's node, or null.
            let launch = unsafe { launch_of_node(state, engine, parameters) }?;
            let device = launch.device;
            Ok((Action::Work(Work::Kernel(Arc::new(launch))), device))
        })
    })
}

/// One end of a copy, as an address.
fn end(kind: c_uint, host: *const c_void, device: CUdeviceptr, offset: usize) -> Result<u64, Code> {
    let start = match kind {
        CU_MEMORYTYPE_HOST => host as u64,
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device,
        // There are no arrays here.
        _ => return Err(INVALID),
    };
    start.checked_add(offset as u64).ok_or(INVALID)
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
        Target { node, graph, dependencies, count }.add(state, |_| {
            if parameters.is_null() {
                return Err(INVALID);
            }
            // SAFETY: the caller gave the parameters of a copy's node, and the pointer is not null.
            let given = unsafe { parameters.read() };
            let device = context::device_of(state, context as Id)?;
            if given.width == 0 || given.height == 0 || given.depth == 0 {
                return Err(INVALID);
            }
            let rows = [given.source_y, given.source_z, given.destination_y, given.destination_z];
            if given.height != 1 || given.depth != 1 || rows != [0; 4] {
                // Copies of rows, which plinth does not use.
                return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
            }
            let to =
                end(given.destination_type, given.destination_host, given.destination_device, given.destination_x)?;
            let from = end(given.source_type, given.source_host, given.source_device, given.source_x)?;
            let copy = copying(state, to, from, given.width as u64, (device, device))?;
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
        Target { node, graph, dependencies, count }.add(state, |_| {
            if parameters.is_null() {
                return Err(INVALID);
            }
            // SAFETY: the caller gave the parameters of a fill's node, and the pointer is not null.
            let given = unsafe { parameters.read() };
            let device = context::device_of(state, context as Id)?;
            let (width, count, rows) = (u64::from(given.elementSize), given.width as u64, given.height as u64);
            if !matches!(width, 1 | 2 | 4) || count == 0 || rows == 0 {
                return Err(INVALID);
            }
            let (to, value) = (given.dst, given.value);
            let pitch = if rows == 1 { 0 } else { given.pitch as u64 };
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
        Target { node, graph, dependencies, count }.add(state, |_| {
            if parameters.is_null() {
                return Err(INVALID);
            }
            // SAFETY: the caller gave the parameters of a host function's node, and the pointer is not null.
            let given = unsafe { parameters.read() };
            let function = given.fn_.ok_or(INVALID)?;
            Ok((Action::Host(HostCall { function, data: given.userData as usize }), some_device(state)))
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
        Target { node, graph, dependencies, count }.add(state, |engine| {
            let child = engine.copy_graph(child as Id, Some(graph as Id))?;
            Ok((Action::Child(child), some_device(state)))
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
        Target { node, graph, dependencies, count }.add(state, |_| Ok((Action::Empty, some_device(state))))
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
        Target { node, graph, dependencies, count }.add(state, |engine| {
            let device = engine.event(event as Id)?.device;
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
        Target { node, graph, dependencies, count }.add(state, |engine| {
            let device = engine.event(event as Id)?.device;
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
        // SAFETY: the caller gave `count` nodes twice.
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
        // SAFETY: the caller gave `count` edges' data or none.
        unsafe { plain_edges(data, count) }?;
        // SAFETY: the caller gave parameters of a node, which are of one size for every type, and all of whose bits
        // mean something as integers; the pointer is not null.
        let given = unsafe { parameters.read() };
        if given.node_type != CU_GRAPH_NODE_TYPE_CONDITIONAL {
            // The other types have calls of their own, which plinth uses.
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        if given.reserved0 != [0; 3] || given.reserved2 != 0 {
            return Err(INVALID);
        }
        let mut bodies = std::ptr::null_mut();
        Target { node, graph, dependencies, count }.add(state, |engine| {
            let device = context::device_of(state, given.context as Id)?;
            let choice = engine.choose_by(graph as Id, given.handle, given.kind, given.size, device)?;
            // A graph's handle is a number of a pointer's size.
            bodies = choice.bodies.as_ptr().cast_mut().cast();
            Ok((Action::Choose(choice), device))
        })?;
        // SAFETY: the pointer is not null, and the caller gave it for this result, too.
        unsafe { (&raw mut (*parameters).bodies).write(bodies) };
        Ok(())
    })
}
