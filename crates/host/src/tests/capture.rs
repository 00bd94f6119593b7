//! Captures and graphs. A capture prohibits calls in the whole process, so each test runs in a separate process.

use super::*;
use crate::driver::codes::*;

const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

fn end(t: &Table, stream: CUstream) -> CUgraph {
    let mut graph = std::ptr::null_mut();
    ok!(t.cuStreamEndCapture(stream, &mut graph));
    graph
}

fn end_code(t: &Table, stream: CUstream) -> u32 {
    let mut graph = std::ptr::dangling_mut();
    let code = code!(t.cuStreamEndCapture(stream, &mut graph));
    assert!(graph.is_null() == (code != 0));
    code
}

fn status(t: &Table, stream: CUstream) -> u32 {
    let mut status = 9;
    ok!(t.cuStreamIsCapturing(stream, &mut status));
    status
}

#[test]
fn a_capture_replays() {
    in_child("capture::a_capture_replays", &[], || {
        let t = setup(0);
        let pointer = alloc(&t, 4096);
        let (stream, side) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (fork, join, log) = (new_event(&t, 2), new_event(&t, 2), Log::default());
        ok!(t.cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!(status(&t, stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        assert_eq!(code!(t.cuStreamBeginCapture_v2(stream, GLOBAL)), CUDA_ERROR_ILLEGAL_STATE);
        log.note(&t, stream, 1);
        ok!(t.cuEventRecord(fork, stream));
        ok!(t.cuStreamWaitEvent(side, fork, 0));
        assert_eq!(status(&t, side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        log.note(&t, side, 2);
        ok!(t.cuMemsetD8Async(pointer, 3, 4096, stream));
        ok!(t.cuEventRecord(join, side));
        ok!(t.cuStreamWaitEvent(stream, join, 0));
        let (mut state, mut id, mut graph, mut nodes, mut count) = (0, 0, std::ptr::null_mut(), std::ptr::null(), 0);
        ok!(t.cuStreamGetCaptureInfo_v2(stream, &mut state, &mut id, &mut graph, &mut nodes, &mut count));
        assert_eq!((state, count), (CU_STREAM_CAPTURE_STATUS_ACTIVE, 2));
        assert!(id > 0 && !graph.is_null());
        log.note(&t, stream, 4);
        let ended = end(&t, stream);
        assert_eq!(ended, graph);
        assert_eq!((status(&t, stream), status(&t, side)), (0, 0));
        assert!(log.entries().is_empty());
        let mut count = 0;
        ok!(t.cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count));
        assert_eq!(count, 4);
        let mut nodes = [std::ptr::null_mut(); 6];
        count = 6;
        ok!(t.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
        assert!(count == 4 && nodes[4].is_null());
        let mut kind = 0;
        ok!(t.cuGraphNodeGetType(nodes[2], &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_MEMSET);
        let mut exec = std::ptr::null_mut();
        ok!(t.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(t.cuGraphDestroy(graph));
        assert_eq!(code!(t.cuGraphNodeGetType(nodes[2], &mut kind)), CUDA_ERROR_INVALID_VALUE);
        for _ in 0..3 {
            ok!(t.cuGraphLaunch(exec, stream));
        }
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(log.entries(), [1, 2, 4, 1, 2, 4, 1, 2, 4]);
        assert_eq!(read(&t, pointer, 4096), vec![3; 4096]);
        // A launch cannot be captured.
        ok!(t.cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(code!(t.cuGraphLaunch(exec, stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ok!(t.cuGraphExecDestroy(exec));
        assert_eq!(code!(t.cuGraphExecDestroy(exec)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuGraphLaunch(exec, stream)), CUDA_ERROR_INVALID_VALUE);
        let live = crate::live();
        assert_eq!((live.graphs, live.execs), (0, 0));
    });
}

#[test]
fn branches_run_at_the_same_time() {
    in_child("capture::branches_run_at_the_same_time", &[], || {
        let t = setup(0);
        let (stream, side) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (fork, join, sleep_kernel) = (new_event(&t, 2), new_event(&t, 2), super::kernel::sleep_kernel(&t));
        ok!(t.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(t.cuEventRecord(fork, stream));
        ok!(t.cuStreamWaitEvent(side, fork, 0));
        super::kernel::sleep(&t, sleep_kernel, stream, Duration::from_secs(1));
        super::kernel::sleep(&t, sleep_kernel, side, Duration::from_secs(1));
        ok!(t.cuEventRecord(join, side));
        ok!(t.cuStreamWaitEvent(stream, join, 0));
        let (graph, mut exec) = (end(&t, stream), std::ptr::null_mut());
        ok!(t.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        let start = Instant::now();
        ok!(t.cuGraphLaunch(exec, stream));
        ok!(t.cuStreamSynchronize(stream));
        let time = start.elapsed();
        assert!((1000..1900).contains(&time.as_millis()), "{time:?}");
        // A second launch waits for the first, even in another stream.
        let start = Instant::now();
        ok!(t.cuGraphLaunch(exec, stream));
        ok!(t.cuGraphLaunch(exec, side));
        ok!(t.cuStreamSynchronize(side));
        assert!(start.elapsed().as_millis() >= 2000);
    });
}

#[test]
fn captures_end_in_their_origin() {
    in_child("capture::captures_end_in_their_origin", &[], || {
        let t = setup(0);
        let (stream, side) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (event, log) = (new_event(&t, 2), Log::default());
        assert_eq!(end_code(&t, stream), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(
            code!(t.cuStreamBeginCapture_v2(std::ptr::null_mut(), GLOBAL)),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        );
        assert_eq!(code!(t.cuStreamBeginCapture_v2(stream, 3)), CUDA_ERROR_INVALID_VALUE);
        // A fork that is not joined.
        ok!(t.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(t.cuEventRecord(event, stream));
        ok!(t.cuStreamWaitEvent(side, event, 0));
        log.note(&t, side, 1);
        assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        assert_eq!((status(&t, stream), status(&t, side)), (0, 0));
        // The wrong stream.
        ok!(t.cuStreamBeginCapture_v2(stream, GLOBAL));
        ok!(t.cuEventRecord(event, stream));
        ok!(t.cuStreamWaitEvent(side, event, 0));
        assert_eq!(end_code(&t, side), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // The wrong thread, unless the capture is relaxed.
        for (mode, expected) in [(GLOBAL, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD), (RELAXED, 0)] {
            ok!(t.cuStreamBeginCapture_v2(stream, mode));
            let handle = stream as usize;
            let other = std::thread::spawn(move || end_code(&setup(0), handle as CUstream));
            assert_eq!(other.join().expect("the thread succeeds"), expected);
            // The capture has ended in either case.
            assert_eq!(end_code(&t, stream), CUDA_ERROR_ILLEGAL_STATE);
        }
        assert!(log.entries().is_empty());
    });
}

#[test]
fn dependencies_stay_inside() {
    in_child("capture::dependencies_stay_inside", &[], || {
        let t = setup(0);
        let (stream, other) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (inside, outside) = (new_event(&t, 2), new_event(&t, 2));
        ok!(t.cuEventRecord(outside, other));
        ok!(t.cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(code!(t.cuStreamWaitEvent(stream, outside, 0)), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        assert_eq!(status(&t, stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // Two captures cannot be merged.
        ok!(t.cuStreamBeginCapture_v2(stream, RELAXED));
        ok!(t.cuStreamBeginCapture_v2(other, RELAXED));
        ok!(t.cuEventRecord(inside, stream));
        assert_eq!(code!(t.cuStreamWaitEvent(other, inside, 0)), CUDA_ERROR_STREAM_CAPTURE_MERGE);
        assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(end_code(&t, other), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // A captured event cannot be queried.
        ok!(t.cuStreamBeginCapture_v2(stream, RELAXED));
        ok!(t.cuEventRecord(inside, stream));
        let mut mode = RELAXED;
        ok!(t.cuThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, GLOBAL);
        assert_eq!(code!(t.cuEventQuery(inside)), CUDA_ERROR_CAPTURED_EVENT);
        assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ok!(t.cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(code!(t.cuStreamSynchronize(stream)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        // The event is valid again once it is recorded outside a capture.
        ok!(t.cuEventRecord(inside, stream));
        ok!(t.cuEventSynchronize(inside));
    });
}

#[test]
fn unsafe_calls_are_forbidden_by_mode() {
    in_child("capture::unsafe_calls_are_forbidden_by_mode", &[], || {
        let t = setup(0);
        let (stream, other) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (event, mut pointer) = (new_event(&t, 2), 0);
        let forbidden = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        for attempt in 0..4 {
            ok!(t.cuStreamBeginCapture_v2(stream, GLOBAL));
            let code = match attempt {
                0 => code!(t.cuMemAlloc_v2(&mut pointer, 1)),
                1 => code!(t.cuEventQuery(event)),
                2 => code!(t.cuStreamQuery(other)),
                _ => code!(t.cuCtxSynchronize()),
            };
            assert_eq!(code, forbidden);
            assert_eq!(end_code(&t, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        // Another thread is restricted by a global capture, and not by a thread-local one.
        for (mode, expected) in [(GLOBAL, forbidden), (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 0)] {
            ok!(t.cuStreamBeginCapture_v2(stream, mode));
            let handle = event as usize;
            let asked = std::thread::spawn(move || {
                let t = setup(0);
                code!(t.cuEventQuery(handle as CUevent))
            });
            assert_eq!(asked.join().expect("the thread succeeds"), expected);
            let ended = end_code(&t, stream);
            assert_eq!(ended != 0, expected != 0);
        }
        // Copies, and events of other streams, are always legal; a relaxed thread may make any call.
        ok!(t.cuStreamBeginCapture_v2(stream, GLOBAL));
        let (addresses, handle) = (reserve(&t, GRANULE), create(&t, 0, GRANULE, 0));
        ok!(t.cuMemMap(addresses, GRANULE, 0, handle, 0));
        ok!(t.cuMemSetAccess(addresses, GRANULE, &access(0, 3), 1));
        ok!(t.cuMemUnmap(addresses, GRANULE));
        ok!(t.cuMemRelease(handle));
        ok!(t.cuEventRecord(event, other));
        let mut mode = RELAXED;
        ok!(t.cuThreadExchangeStreamCaptureMode(&mut mode));
        ok!(t.cuMemAlloc_v2(&mut pointer, 1));
        ok!(t.cuEventSynchronize(event));
        ok!(t.cuThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, RELAXED);
        assert_eq!(end_code(&t, stream), 0);
    });
}

#[test]
fn the_legacy_stream_cannot_be_used_during_a_capture() {
    in_child("capture::the_legacy_stream_cannot_be_used_during_a_capture", &[], || {
        let t = setup(0);
        let (blocking, free) = (new_stream(&t, 0), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (pointer, legacy) = (alloc(&t, 64), std::ptr::null_mut());
        ok!(t.cuStreamBeginCapture_v2(blocking, RELAXED));
        // A query does not invalidate the capture; a use does.
        let mut capturing = 0;
        assert_eq!(code!(t.cuStreamIsCapturing(legacy, &mut capturing)), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(status(&t, blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        assert_eq!(code!(t.cuMemsetD8Async(pointer, 1, 64, legacy)), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(end_code(&t, blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ok!(t.cuStreamBeginCapture_v2(free, RELAXED));
        ok!(t.cuMemsetD8Async(pointer, 1, 64, legacy));
        assert_eq!(end_code(&t, free), 0);
    });
}

#[test]
fn external_events_are_nodes() {
    in_child("capture::external_events_are_nodes", &[], || {
        let t = setup(0);
        let (stream, other) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (before, after, log) = (new_event(&t, 2), new_event(&t, 2), Log::default());
        ok!(t.cuStreamBeginCapture_v2(stream, RELAXED));
        ok!(t.cuStreamWaitEvent(stream, before, CU_EVENT_WAIT_EXTERNAL));
        log.note(&t, stream, 2);
        ok!(t.cuEventRecordWithFlags(after, stream, CU_EVENT_RECORD_EXTERNAL));
        let (graph, mut exec) = (end(&t, stream), std::ptr::null_mut());
        ok!(t.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        let gate = Gate::close(&t, other);
        log.note(&t, other, 1);
        ok!(t.cuEventRecord(before, other));
        ok!(t.cuGraphLaunch(exec, stream));
        assert_eq!(code!(t.cuEventQuery(after)), CUDA_ERROR_NOT_READY);
        gate.open();
        ok!(t.cuEventSynchronize(after));
        assert_eq!(log.entries(), [1, 2]);
    });
}

#[test]
fn a_branch_that_fails_fails_the_launch() {
    in_child("capture::a_branch_that_fails_fails_the_launch", &[], || {
        let t = setup(0);
        let (stream, side) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let (fork, join, log) = (new_event(&t, 2), new_event(&t, 2), Log::default());
        let (pointer, handle) = (reserve(&t, GRANULE), create(&t, 0, GRANULE, 0));
        ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
        ok!(t.cuStreamBeginCapture_v2(stream, RELAXED));
        log.note(&t, stream, 1);
        ok!(t.cuEventRecord(fork, stream));
        ok!(t.cuStreamWaitEvent(side, fork, 0));
        log.note(&t, stream, 2);
        ok!(t.cuMemsetD8Async(pointer, 1, 64, side));
        ok!(t.cuEventRecord(join, side));
        ok!(t.cuStreamWaitEvent(stream, join, 0));
        log.note(&t, stream, 3);
        let (graph, mut exec) = (end(&t, stream), std::ptr::null_mut());
        ok!(t.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(t.cuGraphLaunch(exec, stream));
        assert_eq!(code!(t.cuStreamSynchronize(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code!(t.cuGraphLaunch(exec, stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(!log.entries().contains(&3));
    });
}

/// Changes of peer access are unsafe during a capture, as an H200's driver has it; a wait for another device is not.
#[test]
fn peer_access_does_not_change_in_a_capture() {
    in_child("capture::peer_access_does_not_change_in_a_capture", &[], || {
        let t = setup(0);
        let (own, peer) = (context(&t, 0), context(&t, 1));
        let captured = |call: &dyn Fn() -> u32| {
            let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
            ok!(t.cuStreamBeginCapture_v2(stream, GLOBAL));
            (call(), end_code(&t, stream))
        };
        let refused = (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        let enable = |peer, flags| code!(t.cuCtxEnablePeerAccess(peer, flags));
        assert_eq!(captured(&|| enable(peer, 0)), refused);
        assert_eq!(captured(&|| enable(peer, 1)), (CUDA_ERROR_INVALID_VALUE, 0));
        assert_eq!(captured(&|| enable(own, 0)), (CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 0));
        ok!(t.cuCtxEnablePeerAccess(peer, 0));
        assert_eq!(captured(&|| enable(peer, 0)), refused);
        assert_eq!(captured(&|| code!(t.cuCtxDisablePeerAccess(peer))), refused);
        let synchronize = |context| {
            ok!(t.cuCtxSetCurrent(context));
            let code = code!(t.cuCtxSynchronize());
            ok!(t.cuCtxSetCurrent(own));
            code
        };
        assert_eq!(captured(&|| synchronize(peer)), (0, 0));
        assert_eq!(captured(&|| synchronize(own)), refused);
    });
}
