//! Calls with only nulls and zeros: a list of every call, so that a new call cannot be forgotten.

use super::*;
use crate::driver::table::Call;
use std::ptr::{null, null_mut};

#[test]
fn nulls_and_zeros_never_crash() {
    in_child("null::nulls_and_zeros_never_crash", &[], || {
        let t = setup(0);
        let mut codes = Vec::new();
        macro_rules! call {
            ($name:ident($($argument:expr),*)) => {
                codes.push((Call::$name, code!(t.$name($($argument),*))))
            };
        }
        call!(cuInit(0));
        call!(cuDriverGetVersion(null_mut()));
        call!(cuGetErrorName(0, null_mut()));
        call!(cuGetErrorString(0, null_mut()));
        call!(cuGetProcAddress_v2(null(), null_mut(), 0, 0, null_mut()));
        call!(cuDeviceGetCount(null_mut()));
        call!(cuDeviceGet(null_mut(), 0));
        call!(cuDeviceGetName(null_mut(), 0, 0));
        call!(cuDeviceTotalMem_v2(null_mut(), 0));
        call!(cuDeviceGetAttribute(null_mut(), 0, 0));
        call!(cuDeviceGetPCIBusId(null_mut(), 0, 0));
        call!(cuDeviceGetUuid_v2(null_mut(), 0));
        call!(cuDeviceCanAccessPeer(null_mut(), 0, 0));
        call!(cuDevicePrimaryCtxRetain(null_mut(), 0));
        call!(cuDevicePrimaryCtxGetState(0, null_mut(), null_mut()));
        call!(cuCtxGetCurrent(null_mut()));
        call!(cuCtxGetDevice(null_mut()));
        call!(cuCtxSynchronize());
        call!(cuCtxRecordEvent(null_mut(), null_mut()));
        call!(cuCtxGetStreamPriorityRange(null_mut(), null_mut()));
        call!(cuCtxEnablePeerAccess(null_mut(), 0));
        call!(cuCtxDisablePeerAccess(null_mut()));
        call!(cuMemGetInfo_v2(null_mut(), null_mut()));
        call!(cuMemAlloc_v2(null_mut(), 0));
        call!(cuMemFree_v2(0));
        call!(cuMemGetAddressRange_v2(null_mut(), null_mut(), 0));
        call!(cuMemHostAlloc(null_mut(), 0, 0));
        call!(cuMemFreeHost(null_mut()));
        call!(cuMemHostRegister_v2(null_mut(), 0, 0));
        call!(cuMemHostUnregister(null_mut()));
        call!(cuMemAllocManaged(null_mut(), 0, 0));
        call!(cuPointerGetAttribute(null_mut(), 0, 0));
        call!(cuPointerGetAttributes(0, null_mut(), null_mut(), 0));
        call!(cuMemAddressReserve(null_mut(), 0, 0, 0, 0));
        call!(cuMemAddressFree(0, 0));
        call!(cuMemCreate(null_mut(), 0, null(), 0));
        call!(cuMemRelease(0));
        call!(cuMemMap(0, 0, 0, 0, 0));
        call!(cuMemUnmap(0, 0));
        call!(cuMemSetAccess(0, 0, null(), 0));
        call!(cuMemGetAccess(null_mut(), null(), 0));
        call!(cuMemGetAllocationGranularity(null_mut(), null(), 0));
        call!(cuMemExportToShareableHandle(null_mut(), 0, 0, 0));
        call!(cuMemImportFromShareableHandle(null_mut(), null_mut(), 0));
        call!(cuMemRetainAllocationHandle(null_mut(), null_mut()));
        call!(cuMemGetHandleForAddressRange(null_mut(), 0, 0, 0, 0));
        call!(cuDeviceGetDefaultMemPool(null_mut(), 0));
        call!(cuMemPoolSetAttribute(null_mut(), 0, null_mut()));
        call!(cuMemPoolGetAttribute(null_mut(), 0, null_mut()));
        call!(cuMemPoolTrimTo(null_mut(), 0));
        call!(cuMemPoolSetAccess(null_mut(), null(), 0));
        call!(cuMemAllocAsync(null_mut(), 0, null_mut()));
        call!(cuMemFreeAsync(0, null_mut()));
        call!(cuIpcGetMemHandle(null_mut(), 0));
        call!(cuIpcOpenMemHandle_v2(null_mut(), CUipcMemHandle { reserved: [0; 64] }, 0));
        call!(cuIpcCloseMemHandle(0));
        call!(cuIpcGetEventHandle(null_mut(), null_mut()));
        call!(cuIpcOpenEventHandle(null_mut(), CUipcEventHandle { reserved: [0; 64] }));
        call!(cuMemcpyAsync(0, 0, 0, null_mut()));
        call!(cuMemcpyPeerAsync(0, null_mut(), 0, null_mut(), 0, null_mut()));
        call!(cuMemcpy2DAsync_v2(null(), null_mut()));
        call!(cuMemsetD8Async(0, 0, 0, null_mut()));
        call!(cuMemsetD16Async(0, 0, 0, null_mut()));
        call!(cuMemsetD32Async(0, 0, 0, null_mut()));
        call!(cuStreamCreateWithPriority(null_mut(), 0, 0));
        call!(cuStreamDestroy_v2(null_mut()));
        call!(cuStreamQuery(null_mut()));
        call!(cuStreamSynchronize(null_mut()));
        call!(cuStreamWaitEvent(null_mut(), null_mut(), 0));
        call!(cuStreamGetPriority(null_mut(), null_mut()));
        call!(cuStreamGetFlags(null_mut(), null_mut()));
        call!(cuStreamGetCtx(null_mut(), null_mut()));
        call!(cuStreamGetId(null_mut(), null_mut()));
        call!(cuStreamBatchMemOp_v2(null_mut(), 0, null_mut(), 0));
        call!(cuLaunchHostFunc(null_mut(), None, null_mut()));
        call!(cuStreamIsCapturing(null_mut(), null_mut()));
        call!(cuStreamBeginCapture_v2(null_mut(), 0));
        call!(cuStreamEndCapture(null_mut(), null_mut()));
        call!(cuStreamGetCaptureInfo_v2(null_mut(), null_mut(), null_mut(), null_mut(), null_mut(), null_mut()));
        call!(cuThreadExchangeStreamCaptureMode(null_mut()));
        call!(cuStreamBeginCaptureToGraph(null_mut(), null_mut(), null(), null(), 0, 0));
        call!(cuGraphCreate(null_mut(), 0));
        call!(cuGraphDestroy(null_mut()));
        call!(cuGraphAddKernelNode_v2(null_mut(), null_mut(), null(), 0, null()));
        call!(cuGraphAddMemcpyNode(null_mut(), null_mut(), null(), 0, null(), null_mut()));
        call!(cuGraphAddMemsetNode(null_mut(), null_mut(), null(), 0, null(), null_mut()));
        call!(cuGraphAddHostNode(null_mut(), null_mut(), null(), 0, null()));
        call!(cuGraphAddChildGraphNode(null_mut(), null_mut(), null(), 0, null_mut()));
        call!(cuGraphAddEmptyNode(null_mut(), null_mut(), null(), 0));
        call!(cuGraphAddEventRecordNode(null_mut(), null_mut(), null(), 0, null_mut()));
        call!(cuGraphAddEventWaitNode(null_mut(), null_mut(), null(), 0, null_mut()));
        call!(cuGraphAddDependencies(null_mut(), null(), null(), 0));
        call!(cuGraphConditionalHandleCreate(null_mut(), null_mut(), null_mut(), 0, 0));
        call!(cuGraphAddNode_v2(null_mut(), null_mut(), null(), null(), 0, null_mut()));
        call!(cuGraphGetNodes(null_mut(), null_mut(), null_mut()));
        call!(cuGraphGetEdges(null_mut(), null_mut(), null_mut(), null_mut()));
        call!(cuGraphNodeGetDependencies(null_mut(), null_mut(), null_mut()));
        call!(cuGraphNodeGetType(null_mut(), null_mut()));
        call!(cuGraphKernelNodeGetParams_v2(null_mut(), null_mut()));
        call!(cuGraphMemcpyNodeGetParams(null_mut(), null_mut()));
        call!(cuGraphMemsetNodeGetParams(null_mut(), null_mut()));
        call!(cuGraphHostNodeGetParams(null_mut(), null_mut()));
        call!(cuGraphChildGraphNodeGetGraph(null_mut(), null_mut()));
        call!(cuGraphEventRecordNodeGetEvent(null_mut(), null_mut()));
        call!(cuGraphEventWaitNodeGetEvent(null_mut(), null_mut()));
        call!(cuGraphDebugDotPrint(null_mut(), null(), 0));
        call!(cuGraphClone(null_mut(), null_mut()));
        call!(cuGraphNodeFindInClone(null_mut(), null_mut(), null_mut()));
        call!(cuGraphInstantiateWithFlags(null_mut(), null_mut(), 0));
        call!(cuGraphUpload(null_mut(), null_mut()));
        call!(cuGraphLaunch(null_mut(), null_mut()));
        call!(cuGraphExecDestroy(null_mut()));
        call!(cuGraphExecUpdate_v2(null_mut(), null_mut(), null_mut()));
        call!(cuGraphExecKernelNodeSetParams_v2(null_mut(), null_mut(), null()));
        call!(cuGraphNodeSetEnabled(null_mut(), null_mut(), 0));
        call!(cuGraphNodeGetEnabled(null_mut(), null_mut(), null_mut()));
        call!(cuGraphExecGetFlags(null_mut(), null_mut()));
        call!(cuUserObjectCreate(null_mut(), null_mut(), None, 0, 0));
        call!(cuUserObjectRelease(null_mut(), 0));
        call!(cuGraphRetainUserObject(null_mut(), null_mut(), 0, 0));
        call!(cuEventCreate(null_mut(), 0));
        call!(cuEventDestroy_v2(null_mut()));
        call!(cuEventRecord(null_mut(), null_mut()));
        call!(cuEventRecordWithFlags(null_mut(), null_mut(), 0));
        call!(cuEventQuery(null_mut()));
        call!(cuEventSynchronize(null_mut()));
        call!(cuEventElapsedTime(null_mut(), null_mut(), null_mut()));
        call!(cuDeviceGetDevResource(0, null_mut(), 0));
        call!(cuDevSmResourceSplitByCount(null_mut(), null_mut(), null(), null_mut(), 0, 0));
        call!(cuDevResourceGenerateDesc(null_mut(), null_mut(), 0));
        call!(cuGreenCtxCreate(null_mut(), null_mut(), 0, 0));
        call!(cuGreenCtxDestroy(null_mut()));
        call!(cuCtxFromGreenCtx(null_mut(), null_mut()));
        call!(cuGreenCtxStreamCreate(null_mut(), null_mut(), 0, 0));
        call!(cuProfilerStart());
        call!(cuProfilerStop());
        call!(cuModuleLoadData(null_mut(), null()));
        call!(cuModuleLoadDataEx(null_mut(), null(), 0, null_mut(), null_mut()));
        call!(cuModuleUnload(null_mut()));
        call!(cuModuleGetFunction(null_mut(), null_mut(), null()));
        call!(cuModuleGetGlobal_v2(null_mut(), null_mut(), null_mut(), null()));
        call!(cuFuncGetName(null_mut(), null_mut()));
        call!(cuFuncGetAttribute(null_mut(), 0, null_mut()));
        call!(cuFuncSetAttribute(null_mut(), 0, 0));
        call!(cuFuncGetParamInfo(null_mut(), 0, null_mut(), null_mut()));
        call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(null_mut(), null_mut(), 0, 0));
        call!(cuLaunchKernelEx(null(), null_mut(), null_mut(), null_mut()));
        call!(cuLaunchKernel(null_mut(), 0, 0, 0, 0, 0, 0, 0, null_mut(), null_mut(), null_mut()));
        call!(cuCtxSetCurrent(null_mut()));
        // These request nothing, or an operation that has no effect.
        let successful = [
            Call::cuCtxGetStreamPriorityRange,
            Call::cuCtxSetCurrent,
            Call::cuCtxSynchronize,
            Call::cuInit,
            Call::cuMemFreeAsync,
            Call::cuMemFreeHost,
            Call::cuMemFree_v2,
            Call::cuMemcpyAsync,
            Call::cuMemsetD16Async,
            Call::cuMemsetD32Async,
            Call::cuMemsetD8Async,
            Call::cuProfilerStart,
            Call::cuProfilerStop,
            Call::cuStreamQuery,
            Call::cuStreamSynchronize,
        ];
        for (call, code) in &codes {
            assert_eq!(*code == 0, successful.contains(call), "{call:?} returns {code}");
        }
        assert_eq!(codes.len(), Call::ALL.len());
    });
}
