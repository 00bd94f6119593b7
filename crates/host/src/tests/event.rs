//! Events.

use super::*;
use crate::driver::codes::*;

#[test]
fn an_event_refers_to_its_last_recording() {
    let t = setup(0);
    let (stream, event) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_event(&t, CU_EVENT_DISABLE_TIMING));
    ok!(t.cuEventQuery(event));
    ok!(t.cuEventSynchronize(event));
    let gate = Gate::close(&t, stream);
    ok!(t.cuEventRecord(event, stream));
    assert_eq!(code!(t.cuEventQuery(event)), CUDA_ERROR_NOT_READY);
    // A wait refers to the recording that was the last when the wait was submitted.
    let (other, log) = (new_stream(&t, CU_STREAM_NON_BLOCKING), Log::default());
    ok!(t.cuStreamWaitEvent(other, event, 0));
    log.note(&t, other, 1);
    let idle = new_stream(&t, CU_STREAM_NON_BLOCKING);
    ok!(t.cuEventRecord(event, idle));
    ok!(t.cuEventQuery(event));
    assert!(log.entries().is_empty());
    gate.open();
    ok!(t.cuStreamSynchronize(other));
    assert_eq!(log.entries(), [1]);
    for stream in [stream, other, idle] {
        ok!(t.cuStreamDestroy_v2(stream));
    }
    ok!(t.cuEventDestroy_v2(event));
}

#[test]
fn elapsed_time_is_measured() {
    let t = setup(0);
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    let (start, end, untimed) = (new_event(&t, 0), new_event(&t, 0), new_event(&t, CU_EVENT_DISABLE_TIMING));
    let mut time = 0.0;
    assert_eq!(code!(t.cuEventElapsedTime(&mut time, start, end)), CUDA_ERROR_INVALID_HANDLE);
    ok!(t.cuEventRecord(start, stream));
    ok!(t.cuEventRecord(untimed, stream));
    super::kernel::sleep(&t, super::kernel::sleep_kernel(&t), stream, Duration::from_millis(20));
    let gate = Gate::close(&t, stream);
    ok!(t.cuEventRecord(end, stream));
    assert_eq!(code!(t.cuEventElapsedTime(&mut time, start, end)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(t.cuEventSynchronize(end));
    ok!(t.cuEventElapsedTime(&mut time, start, end));
    assert!((20.0..2000.0).contains(&time), "{time}");
    ok!(t.cuEventElapsedTime(&mut time, end, start));
    assert!(time <= -20.0);
    assert_eq!(code!(t.cuEventElapsedTime(&mut time, untimed, end)), CUDA_ERROR_INVALID_HANDLE);
    for event in [start, end, untimed] {
        ok!(t.cuEventDestroy_v2(event));
    }
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn flags_and_contexts_are_checked() {
    let t = setup(0);
    let mut event = std::ptr::null_mut();
    assert_eq!(code!(t.cuEventCreate(&mut event, 64)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuEventCreate(&mut event, CU_EVENT_INTERPROCESS)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuEventCreate(std::ptr::null_mut(), 0)), CUDA_ERROR_INVALID_VALUE);
    let event = new_event(&t, 0);
    ok!(t.cuCtxSetCurrent(context(&t, 1)));
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    assert_eq!(code!(t.cuEventRecord(event, stream)), CUDA_ERROR_INVALID_HANDLE);
    // Waiting across devices is allowed.
    ok!(t.cuStreamWaitEvent(stream, event, 0));
    ok!(t.cuStreamDestroy_v2(stream));
    ok!(t.cuEventDestroy_v2(event));
}

#[test]
fn streams_of_different_devices_wait_for_each_other() {
    let t = setup(0);
    let (here, event, log) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_event(&t, 0), Log::default());
    let gate = Gate::close(&t, here);
    log.note(&t, here, 1);
    ok!(t.cuEventRecord(event, here));
    ok!(t.cuCtxSetCurrent(context(&t, 1)));
    let there = new_stream(&t, CU_STREAM_NON_BLOCKING);
    ok!(t.cuStreamWaitEvent(there, event, 0));
    log.note(&t, there, 2);
    // The event may be destroyed: the waits keep its signal.
    ok!(t.cuEventDestroy_v2(event));
    gate.open();
    ok!(t.cuStreamSynchronize(there));
    assert_eq!(log.entries(), [1, 2]);
    ok!(t.cuStreamDestroy_v2(here));
    ok!(t.cuStreamDestroy_v2(there));
}
