//! The table of CUDA driver calls, the only interface between plinth and a device.
//!
//! Each line of `driver_calls!` lists one call: whether plinth requires it, the CUDA version whose calling convention
//! is used, the symbol, and the parameters. Everything else that depends on the list is generated from it here: the
//! struct of function pointers, the numbering, the stubs for calls that a driver lacks, the host device's table, and
//! the fault injection table.
//!
//! Every call returns a plain integer, never a closed enum: a newer driver may return unknown codes. Enumerations are
//! passed as `c_uint` for the same reason.

#![allow(missing_docs)]

use super::{calls::calls, codes, types::*};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// The return type of a driver call: 0 or another CUDA error code.
pub type Code = c_uint;

macro_rules! driver_calls {
    ($($lines:tt)*) => {
        calls! { Code, codes::CUDA_ERROR_NOT_SUPPORTED; $($lines)* }
        provided! { $($lines)* }
        exported! { ($) $($lines)* }
    };
}

/// Exports a macro with which other crates repeat something for each call. `$` is a parameter, because a macro cannot
/// write the `$` of another macro.
macro_rules! exported {
    (($d:tt) $( $need:ident $since:literal $name:ident ( $($arg:ident : $ty:ty),* $(,)? ); )*) => {
        /// Passes the names of all calls, in the table's order, to a macro: `for_each_call!(callback)`.
        #[macro_export]
        macro_rules! for_each_call {
            ($d callback:ident) => { $d callback! { $($name)* } };
        }
    };
}

/// Defines the parts that only the driver's table has: the calls that can be made to fail.
macro_rules! provided {
    ($( $need:ident $since:literal $name:ident ( $($arg:ident : $ty:ty),* $(,)? ); )*) => {
        impl Table {
            /// Creates a table that forwards each call to the wrapped table unless the call is to fail.
            pub fn faulty() -> Table {
                Table { $( $name: faulty::$name, )* }
            }

            /// Returns the call's function as an untyped pointer, for programs that call the driver directly.
            pub fn address(&self, call: Call) -> *const c_void {
                match call { $( Call::$name => self.$name as *const c_void, )* }
            }
        }

        /// Calls that are counted and fail on request; see [`crate::fault_injection`].
        #[allow(non_snake_case)]
        mod faulty {
            use super::*;
            $( pub unsafe extern "C" fn $name($( $arg: $ty ),*) -> Code {
                match crate::fault_injection::enter(Call::$name) {
                    Ok(inner) => {
                        // SAFETY: the arguments are the caller's, forwarded unchanged to the call that the caller
                        // requested.
                        unsafe { (inner.$name)($( $arg ),*) }
                    }
                    Err(code) => code,
                }
            } )*
        }
    };
}

driver_calls! {
    // The driver and its devices.
    required  2000 cuInit(flags: c_uint);
    required  2020 cuDriverGetVersion(version: *mut c_int);
    optional 12000 cuGetProcAddress_v2(
        name: *const c_char, function: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_uint);
    required  6000 cuGetErrorName(code: Code, name: *mut *const c_char);
    required  6000 cuGetErrorString(code: Code, text: *mut *const c_char);
    required  2000 cuDeviceGetCount(count: *mut c_int);
    required  2000 cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    required  2000 cuDeviceGetName(name: *mut c_char, capacity: c_int, device: CUdevice);
    required  3020 cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    required  2000 cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice);
    required  4010 cuDeviceGetPCIBusId(text: *mut c_char, capacity: c_int, device: CUdevice);
    optional 11040 cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    required  4000 cuDeviceCanAccessPeer(can_access: *mut c_int, device: CUdevice, peer: CUdevice);

    // Contexts.
    required  7000 cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    required  7000 cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    required  4000 cuCtxGetCurrent(context: *mut CUcontext);
    required  4000 cuCtxSetCurrent(context: CUcontext);
    required  2000 cuCtxGetDevice(device: *mut CUdevice);
    required  2000 cuCtxSynchronize();
    optional 12050 cuCtxRecordEvent(context: CUcontext, event: CUevent);
    required  5050 cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    required  4000 cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    required  4000 cuCtxDisablePeerAccess(peer: CUcontext);

    // Green contexts: partitions of a device's multiprocessors, with their own streams.
    optional 12040 cuDeviceGetDevResource(device: CUdevice, resource: *mut DevResource, kind: c_uint);
    optional 12040 cuDevSmResourceSplitByCount(
        parts: *mut DevResource, count: *mut c_uint, whole: *const DevResource, rest: *mut DevResource, flags: c_uint,
        least: c_uint);
    optional 12040 cuDevResourceGenerateDesc(
        description: *mut CUdevResourceDesc, resources: *mut DevResource, count: c_uint);
    optional 12040 cuGreenCtxCreate(
        green: *mut CUgreenCtx, description: CUdevResourceDesc, device: CUdevice, flags: c_uint);
    optional 12040 cuGreenCtxDestroy(green: CUgreenCtx);
    optional 12040 cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx);
    optional 12050 cuGreenCtxStreamCreate(
        stream: *mut CUstream, green: CUgreenCtx, flags: c_uint, priority: c_int);

    // Memory: allocations, pinned host memory, and pointer attributes.
    required  3020 cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    required  3020 cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
    required  3020 cuMemFree_v2(pointer: CUdeviceptr);
    required  3020 cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, pointer: CUdeviceptr);
    required  2020 cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    required  2000 cuMemFreeHost(pointer: *mut c_void);
    optional  6000 cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    required  6050 cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
    required  4000 cuMemHostUnregister(pointer: *mut c_void);
    required  4000 cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, pointer: CUdeviceptr);
    required  7000 cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, pointer: CUdeviceptr);

    // Memory: virtual addresses and physical memory.
    optional 10020 cuMemAddressReserve(
        pointer: *mut CUdeviceptr, bytes: usize, alignment: usize, wanted: CUdeviceptr, flags: c_ulonglong);
    optional 10020 cuMemAddressFree(pointer: CUdeviceptr, bytes: usize);
    optional 10020 cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp,
        flags: c_ulonglong);
    optional 10020 cuMemRelease(handle: CUmemGenericAllocationHandle);
    optional 10020 cuMemMap(
        pointer: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong);
    optional 10020 cuMemUnmap(pointer: CUdeviceptr, bytes: usize);
    optional 10020 cuMemSetAccess(pointer: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    optional 10020 cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, pointer: CUdeviceptr);
    optional 10020 cuMemGetAllocationGranularity(
        bytes: *mut usize, properties: *const CUmemAllocationProp, option: c_uint);
    optional 10020 cuMemExportToShareableHandle(
        shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: c_uint, flags: c_ulonglong);
    optional 10020 cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: c_uint);
    optional 11000 cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, pointer: *mut c_void);
    optional 11070 cuMemGetHandleForAddressRange(
        handle: *mut c_void, pointer: CUdeviceptr, bytes: usize, kind: c_uint, flags: c_ulonglong);

    // Memory: stream-ordered pools.
    optional 11020 cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    optional 11020 cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    optional 11020 cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    optional 11020 cuMemPoolTrimTo(pool: CUmemoryPool, least: usize);
    optional 11020 cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
    optional 11020 cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    optional 11020 cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);

    // Sharing with other processes.
    optional  4010 cuIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr);
    optional 11000 cuIpcOpenMemHandle_v2(pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
    optional  4010 cuIpcCloseMemHandle(pointer: CUdeviceptr);
    optional  4010 cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
    optional  4010 cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);

    // Copies and fills.
    required  4000 cuMemcpyAsync(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    required  4000 cuMemcpyPeerAsync(
        destination: CUdeviceptr, destination_context: CUcontext, source: CUdeviceptr, source_context: CUcontext,
        bytes: usize, stream: CUstream);
    required  3020 cuMemcpy2DAsync_v2(copy: *const Memcpy2d, stream: CUstream);
    required  3020 cuMemsetD8Async(destination: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    required  3020 cuMemsetD16Async(destination: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    required  3020 cuMemsetD32Async(destination: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);

    // Streams.
    required  5050 cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    required  4000 cuStreamDestroy_v2(stream: CUstream);
    required  2000 cuStreamQuery(stream: CUstream);
    required  2000 cuStreamSynchronize(stream: CUstream);
    required  3020 cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    required  5050 cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    required  5050 cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
    required  9020 cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    optional 12000 cuStreamGetId(stream: CUstream, id: *mut c_ulonglong);
    optional 11070 cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, writes: *mut StreamWrite, flags: c_uint);
    required 10000 cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);

    // Stream capture.
    required 10000 cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);
    required 10010 cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint);
    required 10000 cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    optional 11030 cuStreamGetCaptureInfo_v2(
        stream: CUstream, status: *mut c_uint, id: *mut c_ulonglong, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, count: *mut usize);
    optional 12030 cuStreamBeginCaptureToGraph(
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize,
        mode: c_uint);
    required 10010 cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);

    // Graphs: construction. CUDA 12.3 added variants with edge data; the table uses the variants without it, which
    // every driver still has.
    required 10000 cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    required 10000 cuGraphDestroy(graph: CUgraph);
    optional 12000 cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        parameters: *const CUDA_KERNEL_NODE_PARAMS);
    required 10000 cuGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        parameters: *const MemcpyNodeParams, context: CUcontext);
    required 10000 cuGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        parameters: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext);
    required 10000 cuGraphAddHostNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        parameters: *const CUDA_HOST_NODE_PARAMS);
    required 10000 cuGraphAddChildGraphNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph);
    required 10000 cuGraphAddEmptyNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize);
    optional 11010 cuGraphAddEventRecordNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
    optional 11010 cuGraphAddEventWaitNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
    required 10000 cuGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
    optional 12030 cuGraphConditionalHandleCreate(
        handle: *mut CUgraphConditionalHandle, graph: CUgraph, context: CUcontext, default: c_uint, flags: c_uint);
    // Only for conditional nodes; the other types have separate calls, which older drivers also have.
    optional 12030 cuGraphAddNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, data: *const CUgraphEdgeData,
        count: usize, parameters: *mut ConditionalNodeParams);

    // Graphs: inspection and cloning.
    required 10000 cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    required 10000 cuGraphGetEdges(
        graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    required 10000 cuGraphNodeGetDependencies(node: CUgraphNode, dependencies: *mut CUgraphNode, count: *mut usize);
    required 10000 cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    optional 12000 cuGraphKernelNodeGetParams_v2(node: CUgraphNode, parameters: *mut CUDA_KERNEL_NODE_PARAMS);
    required 10000 cuGraphMemcpyNodeGetParams(node: CUgraphNode, parameters: *mut MemcpyNodeParams);
    required 10000 cuGraphMemsetNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_MEMSET_NODE_PARAMS);
    required 10000 cuGraphHostNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_HOST_NODE_PARAMS);
    required 10000 cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
    optional 11010 cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    optional 11010 cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    optional 11030 cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint);
    required 10000 cuGraphClone(clone: *mut CUgraph, graph: CUgraph);
    required 10000 cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph);

    // Graphs: instantiation, launch and update.
    optional 11040 cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    optional 11010 cuGraphUpload(exec: CUgraphExec, stream: CUstream);
    required 10000 cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    required 10000 cuGraphExecDestroy(exec: CUgraphExec);
    optional 12000 cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut ExecUpdateInfo);
    optional 12000 cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS);
    optional 11060 cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint);
    optional 11060 cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint);
    optional 12000 cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut c_ulonglong);

    // User objects.
    optional 11030 cuUserObjectCreate(
        object: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint);
    optional 11030 cuUserObjectRelease(object: CUuserObject, count: c_uint);
    optional 11030 cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);

    // Events.
    required  2000 cuEventCreate(event: *mut CUevent, flags: c_uint);
    required  4000 cuEventDestroy_v2(event: CUevent);
    required  2000 cuEventRecord(event: CUevent, stream: CUstream);
    optional 11010 cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint);
    required  2000 cuEventQuery(event: CUevent);
    required  2000 cuEventSynchronize(event: CUevent);
    required  2000 cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

    // Profilers.
    optional  4000 cuProfilerStart();
    optional  4000 cuProfilerStop();

    // Kernels.
    required  2010 cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    required  2010 cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void);
    required  2000 cuModuleUnload(module: CUmodule);
    required  3020 cuModuleGetGlobal_v2(
        pointer: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    required  2000 cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    optional 12030 cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    required  2020 cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction);
    required  9000 cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int);
    optional 12040 cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize);
    required  6050 cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: CUfunction, threads: c_int, shared_bytes: usize);
    required  4000 cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void,
        extra: *mut *mut c_void);
    optional 11060 cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_drop_the_version_suffix() {
        assert_eq!(Call::cuMemAlloc_v2.info().base_name(), "cuMemAlloc");
        assert_eq!(Call::cuStreamQuery.info().base_name(), "cuStreamQuery");
        assert_eq!(Call::cuStreamGetCaptureInfo_v2.info().base_name(), "cuStreamGetCaptureInfo");
    }

    #[test]
    fn calls_index_the_table() {
        for (index, call) in Call::ALL.iter().enumerate() {
            assert_eq!(*call as usize, index);
            assert_eq!(format!("{call:?}"), CALLS[index].symbol);
        }
    }

    #[test]
    fn missing_call_returns_not_supported() {
        // SAFETY: no pointer is supplied.
        let (table, missing) = unsafe { Table::from_symbols(|_| None) };
        assert_eq!(missing, Some(Call::cuInit));
        // SAFETY: the stub ignores its arguments.
        assert_eq!(unsafe { (table.cuInit)(0) }, codes::CUDA_ERROR_NOT_SUPPORTED);
    }
}
