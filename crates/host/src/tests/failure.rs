//! Work that fails ends the contexts of its device. The list has what an H200's driver (580.159.04) refuses, and what it
//! does not, after a kernel that traps.

use super::*;
use crate::driver::codes::*;
use std::ptr::null_mut;

const LOST: u32 = CUDA_ERROR_ILLEGAL_ADDRESS;

/// Fills memory that no device may access. Returns its address.
fn fail(t: &Table, stream: CUstream) -> u64 {
    let (pointer, handle) = (reserve(t, GRANULE), create(t, 0, GRANULE, 0));
    ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
    ok!(t.cuMemsetD8Async(pointer, 1, 64, stream));
    pointer
}

#[test]
fn failed_work_ends_the_contexts_of_its_device() {
    in_child("failure::failed_work_ends_the_contexts_of_its_device", &[], || {
        let t = setup(0);
        let (sleep, mut module) = (kernel::sleep_kernel(&t), null_mut());
        ok!(t.cuModuleLoadData(&mut module, kernel::PTX.as_ptr().cast()));
        let (failing, stream) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (event, unrecorded, memory) = (new_event(&t, 0), new_event(&t, 0), alloc(&t, 64));
        let (mut graph, mut exec) = (null_mut(), null_mut());
        ok!(t.cuGraphCreate(&mut graph, 0));
        ok!(t.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(t.cuEventRecord(event, stream));
        ok!(t.cuEventSynchronize(event));
        let capturing = new_stream(&t, CU_STREAM_NON_BLOCKING);
        ok!(t.cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        ok!(t.cuThreadExchangeStreamCaptureMode(&mut mode));
        let unmapped = fail(&t, failing);
        assert_eq!(code!(t.cuStreamSynchronize(failing)), LOST);
        // The capture has ended, too: it would refuse most of these calls with another code.
        ok!(t.cuThreadExchangeStreamCaptureMode(&mut mode));
        let (mut flags, mut size, mut number, mut address, mut time) = (0, 0, 0, 0, 0.0);
        let (mut new_stream, mut new_event, mut pinned, mut ended) = (null_mut(), null_mut(), null_mut(), null_mut());
        let (mut function, mut new_exec, mut own) = (null_mut(), null_mut(), 0_u64);
        let refused = [
            code!(t.cuCtxSynchronize()),
            code!(t.cuCtxGetStreamPriorityRange(&mut number, &mut number)),
            code!(t.cuStreamCreateWithPriority(&mut new_stream, 0, 0)),
            code!(t.cuStreamQuery(stream)),
            code!(t.cuStreamQuery(null_mut())),
            code!(t.cuStreamSynchronize(stream)),
            code!(t.cuStreamGetFlags(stream, &mut flags)),
            code!(t.cuStreamIsCapturing(stream, &mut flags)),
            code!(t.cuStreamBeginCapture_v2(stream, 2)),
            code!(t.cuStreamIsCapturing(capturing, &mut flags)),
            code!(t.cuStreamEndCapture(capturing, &mut ended)),
            code!(t.cuStreamSynchronize(capturing)),
            code!(t.cuStreamWaitEvent(stream, event, 0)),
            code!(t.cuStreamWaitEvent(stream, unrecorded, 0)),
            code!(t.cuStreamDestroy_v2(stream)),
            code!(t.cuEventCreate(&mut new_event, 0)),
            code!(t.cuEventRecord(event, stream)),
            code!(t.cuEventQuery(event)),
            code!(t.cuEventQuery(unrecorded)),
            code!(t.cuEventSynchronize(event)),
            code!(t.cuEventElapsedTime(&mut time, event, event)),
            code!(t.cuEventDestroy_v2(event)),
            code!(t.cuMemGetInfo_v2(&mut size, &mut size)),
            code!(t.cuMemAlloc_v2(&mut address, 64)),
            code!(t.cuMemAllocAsync(&mut address, 64, stream)),
            code!(t.cuMemHostAlloc(&mut pinned, 64, 0)),
            code!(t.cuMemFree_v2(memory)),
            code!(t.cuMemFree_v2(1)),
            code!(t.cuMemcpyAsync(memory, memory, 0, stream)),
            code!(t.cuMemsetD8Async(memory, 1, 64, stream)),
            code!(t.cuMemHostRegister_v2((&raw mut own).cast(), 8, 0)),
            code!(t.cuMemGetAddressRange_v2(&mut address, &mut size, memory)),
            code!(t.cuModuleGetFunction(&mut function, module, c"plinth_sleep".as_ptr())),
            code!(t.cuModuleUnload(module)),
            code!(t.cuFuncGetAttribute(&mut number, 0, sleep)),
            code!(t.cuGraphInstantiateWithFlags(&mut new_exec, graph, 0)),
            code!(t.cuGraphLaunch(exec, stream)),
        ];
        assert!(refused.iter().all(|code| *code == LOST), "{refused:?}");
        let (mut other, mut pool) = (null_mut(), null_mut());
        ok!(t.cuCtxGetCurrent(&mut other));
        ok!(t.cuCtxGetDevice(&mut number));
        ok!(t.cuDeviceGetDefaultMemPool(&mut pool, 0));
        ok!(t.cuPointerGetAttribute((&raw mut flags).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
        ok!(t.cuGraphCreate(&mut graph, 0));
        ok!(t.cuGraphDestroy(graph));
        ok!(t.cuGraphExecDestroy(exec));
        ok!(t.cuMemSetAccess(unmapped, GRANULE, &access(0, 3), 1));
        ok!(t.cuMemUnmap(unmapped, GRANULE));
        ok!(t.cuMemRelease(create(&t, 0, GRANULE, 0)));
        ok!(t.cuMemAddressFree(unmapped, GRANULE));
        // The other device is none the worse.
        ok!(t.cuCtxSetCurrent(context(&t, 1)));
        assert_eq!(code!(t.cuStreamQuery(stream)), LOST);
        let pointer = alloc(&t, 64);
        ok!(t.cuMemsetD8Async(pointer, 7, 64, null_mut()));
        ok!(t.cuStreamSynchronize(null_mut()));
        assert_eq!(read(&t, pointer, 1), [7]);
        ok!(t.cuCtxSetCurrent(context(&t, 0)));
        assert_eq!(code!(t.cuCtxSynchronize()), LOST);
    });
}

#[test]
fn work_in_other_streams_is_skipped_once_work_has_failed() {
    in_child("failure::work_in_other_streams_is_skipped_once_work_has_failed", &[], || {
        let (t, log) = (setup(0), Log::default());
        let (failing, stream) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let event = new_event(&t, 0);
        let gate = Gate::close(&t, stream);
        log.note(&t, stream, 1);
        ok!(t.cuEventRecord(event, stream));
        fail(&t, failing);
        assert_eq!(code!(t.cuStreamSynchronize(failing)), LOST);
        // A host function that runs ends first.
        assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        assert_eq!(code!(t.cuEventQuery(event)), CUDA_ERROR_NOT_READY);
        gate.open();
        assert_eq!(code!(t.cuStreamSynchronize(stream)), LOST);
        assert_eq!(code!(t.cuEventQuery(event)), LOST);
        assert!(log.entries().is_empty());
    });
}
