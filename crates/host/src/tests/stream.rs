//! Streams: order, the default streams, priorities, wrong handles.

use super::*;
use crate::{driver::codes::*, kernels};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

#[test]
fn streams_keep_their_order() {
    let t = setup(0);
    let (stream, log) = (new_stream(&t, CU_STREAM_NON_BLOCKING), Log::default());
    (0..100).for_each(|entry| log.note(&t, stream, entry));
    ok!(t.cuStreamSynchronize(stream));
    assert_eq!(log.entries(), (0..100).collect::<Vec<_>>());
    ok!(t.cuStreamQuery(stream));
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn a_full_stream_blocks_calls_that_add_work() {
    let t = setup(0);
    let (stream, other, log) =
        (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING), Log::default());
    let gate = Gate::close(&t, stream);
    let (noted, handle) = (AtomicUsize::new(0), stream as usize);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok!(t.cuCtxSetCurrent(context(&t, 0)));
            (0..2000).for_each(|entry| {
                log.note(&t, handle as CUstream, entry);
                noted.store(entry + 1, Ordering::SeqCst);
            });
        });
        while noted.load(Ordering::SeqCst) < 1024 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(noted.load(Ordering::SeqCst), 1024);
        // Queries and other streams go on.
        assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        let elsewhere = Log::default();
        elsewhere.note(&t, other, 1);
        ok!(t.cuStreamSynchronize(other));
        gate.open();
    });
    ok!(t.cuStreamSynchronize(stream));
    assert_eq!(log.entries(), (0..2000).collect::<Vec<_>>());
    [stream, other].iter().for_each(|stream| ok!(t.cuStreamDestroy_v2(*stream)));
}

#[test]
fn a_call_that_waits_for_room_in_a_destroyed_stream_fails_alone() {
    let t = setup(0);
    let (stream, other) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
    let (gate, event) = (Gate::close(&t, stream), new_event(&t, 0));
    (1..1024).for_each(|_| ok!(t.cuEventRecord(event, stream)));
    let (handle, mut memory) = (stream as usize, 0);
    ok!(t.cuMemAlloc_v2(&mut memory, 4));
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            ok!(t.cuCtxSetCurrent(context(&t, 0)));
            (0..100).map(|_| code!(t.cuMemsetD8Async(memory, 0, 4, handle as CUstream))).find(|code| *code != 0)
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!blocked.is_finished());
        ok!(t.cuStreamDestroy_v2(stream));
        assert_eq!(blocked.join().unwrap(), Some(CUDA_ERROR_INVALID_HANDLE));
        gate.open();
    });
    ok!(t.cuStreamSynchronize(other));
    ok!(t.cuStreamDestroy_v2(other));
}

#[test]
fn wrong_handles_are_errors() {
    let t = setup(0);
    let event = new_event(&t, 0);
    let wrong = [event as CUstream, 3 as CUstream, 0xdead_beef_usize as CUstream, usize::MAX as CUstream];
    for handle in wrong {
        assert_eq!(code!(t.cuStreamQuery(handle)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(code!(t.cuStreamSynchronize(handle)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(code!(t.cuStreamDestroy_v2(handle)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(code!(t.cuEventRecord(event, handle)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(code!(t.cuMemsetD8Async(1, 0, 1, handle)), CUDA_ERROR_INVALID_HANDLE);
    }
    ok!(t.cuEventDestroy_v2(event));
    assert_eq!(code!(t.cuEventQuery(event)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(code!(t.cuEventDestroy_v2(event)), CUDA_ERROR_INVALID_HANDLE);
    let mut created = std::ptr::null_mut();
    assert_eq!(code!(t.cuStreamCreateWithPriority(&mut created, 16, 0)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn streams_return_their_attributes() {
    let t = setup(1);
    let mut stream = std::ptr::null_mut();
    ok!(t.cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, -99));
    let (mut priority, mut flags, mut own, mut id, mut other) = (0, 0, std::ptr::null_mut(), 0, 0);
    ok!(t.cuStreamGetPriority(stream, &mut priority));
    ok!(t.cuStreamGetFlags(stream, &mut flags));
    ok!(t.cuStreamGetCtx(stream, &mut own));
    assert_eq!((priority, flags, own), (-5, CU_STREAM_NON_BLOCKING, context(&t, 1)));
    ok!(t.cuStreamGetId(stream, &mut id));
    ok!(t.cuStreamGetId(CU_STREAM_PER_THREAD as CUstream, &mut other));
    assert_ne!(id, other);
    let (mut least, mut greatest) = (9, 9);
    ok!(t.cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert_eq!((least, greatest), (0, -5));
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn destroyed_streams_finish_their_work() {
    let t = setup(0);
    let (stream, log) = (new_stream(&t, CU_STREAM_NON_BLOCKING), Log::default());
    let gate = Gate::close(&t, stream);
    log.note(&t, stream, 1);
    ok!(t.cuStreamDestroy_v2(stream));
    gate.open();
    wait_until("the work of a destroyed stream", || log.entries() == [1]);
}

#[test]
fn a_call_with_a_destroyed_stream_ends_the_contexts() {
    in_child("stream::a_call_with_a_destroyed_stream_ends_the_contexts", &[], || {
        let t = setup(0);
        let (stream, other) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        ok!(t.cuStreamDestroy_v2(stream));
        ok!(t.cuStreamQuery(other));
        assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code!(t.cuStreamQuery(other)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code!(t.cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

#[test]
fn the_legacy_stream_orders_blocking_streams() {
    in_child("stream::the_legacy_stream_orders_blocking_streams", &[], || {
        let t = setup(0);
        let legacy: CUstream = std::ptr::null_mut();
        let (first, second) = (new_stream(&t, 0), new_stream(&t, 0));
        let (free, log) = (new_stream(&t, CU_STREAM_NON_BLOCKING), Log::default());
        let gate = Gate::close(&t, first);
        log.note(&t, first, 1);
        log.note(&t, legacy, 2);
        log.note(&t, second, 3);
        log.note(&t, CU_STREAM_PER_THREAD as CUstream, 4);
        log.note(&t, free, 0);
        ok!(t.cuStreamSynchronize(free));
        assert_eq!(log.entries(), [0]);
        assert_eq!(code!(t.cuStreamQuery(legacy)), CUDA_ERROR_NOT_READY);
        assert_eq!(code!(t.cuStreamQuery(second)), CUDA_ERROR_NOT_READY);
        gate.open();
        ok!(t.cuCtxSynchronize());
        let mut entries = log.entries();
        entries[3..].sort_unstable();
        assert_eq!(entries, [0, 1, 2, 3, 4]);
        // Waiting for the legacy stream waits for the blocking ones.
        let gate = Gate::close(&t, second);
        log.note(&t, second, 5);
        assert_eq!(code!(t.cuStreamQuery(CU_STREAM_LEGACY as CUstream)), CUDA_ERROR_NOT_READY);
        let opener = std::thread::spawn(move || gate.open());
        ok!(t.cuStreamSynchronize(legacy));
        assert_eq!(log.entries().last(), Some(&5));
        opener.join().expect("the gate opens");
    });
}

#[test]
fn an_event_of_a_context_comes_after_all_streams() {
    let t = setup(0);
    let streams = [new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, 0)];
    let mut event = std::ptr::null_mut();
    ok!(t.cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
    let mut context = std::ptr::null_mut();
    ok!(t.cuCtxGetCurrent(&mut context));
    ok!(t.cuCtxRecordEvent(context, event));
    ok!(t.cuEventSynchronize(event));
    for stream in streams {
        let gate = Gate::close(&t, stream);
        ok!(t.cuCtxRecordEvent(context, event));
        assert_eq!(code!(t.cuEventQuery(event)), CUDA_ERROR_NOT_READY);
        gate.open();
        ok!(t.cuEventSynchronize(event));
    }
    assert_eq!(code!(t.cuCtxRecordEvent(context, std::ptr::null_mut())), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(code!(t.cuCtxRecordEvent(std::ptr::null_mut(), event)), CUDA_ERROR_INVALID_CONTEXT);
    // A capture is refused, and invalid afterwards.
    ok!(t.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_eq!(code!(t.cuCtxRecordEvent(context, event)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let mut graph = std::ptr::null_mut();
    assert_eq!(code!(t.cuStreamEndCapture(streams[0], &mut graph)), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ok!(t.cuEventDestroy_v2(event));
}

#[test]
fn each_thread_has_a_default_stream() {
    let t = setup(0);
    let own = CU_STREAM_PER_THREAD as CUstream;
    let gate = Gate::close(&t, own);
    let mut id = 0;
    ok!(t.cuStreamGetId(own, &mut id));
    std::thread::spawn(move || {
        let (t, own) = (setup(0), CU_STREAM_PER_THREAD as CUstream);
        let mut other = 0;
        ok!(t.cuStreamGetId(own, &mut other));
        assert_ne!(id, other);
        ok!(t.cuStreamQuery(own));
    })
    .join()
    .expect("the thread succeeds");
    assert_eq!(code!(t.cuStreamQuery(own)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(t.cuStreamSynchronize(own));
}

/// Uses the thread's default stream when it is dropped.
struct UseAtEnd(std::cell::Cell<u64>);

impl Drop for UseAtEnd {
    fn drop(&mut self) {
        let (t, mut id) = (setup(0), 0);
        ok!(t.cuStreamGetId(CU_STREAM_PER_THREAD as CUstream, &mut id));
        assert_eq!(id, self.0.get());
    }
}

#[test]
fn a_threads_default_stream_outlives_its_variables() {
    thread_local! {
        static BEFORE: UseAtEnd = const { UseAtEnd(std::cell::Cell::new(0)) };
        static AFTER: UseAtEnd = const { UseAtEnd(std::cell::Cell::new(0)) };
    }
    let thread = std::thread::spawn(|| {
        let (t, mut id) = (setup(0), 0);
        BEFORE.with(|before| before.0.set(0));
        ok!(t.cuStreamGetId(CU_STREAM_PER_THREAD as CUstream, &mut id));
        BEFORE.with(|before| before.0.set(id));
        AFTER.with(|after| after.0.set(id));
    });
    thread.join().expect("the stream exists");
}

#[test]
fn higher_priorities_go_first() {
    in_child("stream::higher_priorities_go_first", &[], || {
        let t = setup(0);
        let sleep_kernel = super::kernel::sleep_kernel(&t);
        kernels::register(&super::kernel::HOLD);
        let (hold, none) = (super::kernel::function(&t, c"test_hold"), std::ptr::null_mut());
        // All workers are busy, so later work has to queue; the lowest priority is submitted first.
        for _ in 0..crate::scheduler::WORKERS_PER_DEVICE {
            let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
            ok!(t.cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, stream, none, none));
        }
        let log = Log::default();
        for priority in [0, 0, 0, 0, -5, -5, -5, -5] {
            let mut stream = std::ptr::null_mut();
            ok!(t.cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, priority));
            super::kernel::sleep(&t, sleep_kernel, stream, Duration::from_millis(150));
            log.note(&t, stream, priority.unsigned_abs() as usize);
        }
        *super::kernel::HELD.0.lock() = true;
        super::kernel::HELD.1.notify_all();
        ok!(t.cuCtxSynchronize());
        assert_eq!(log.entries(), [5, 5, 5, 5, 0, 0, 0, 0]);
    });
}

#[test]
fn host_functions_occupy_no_worker_and_may_not_call() {
    let t = setup(0);
    let streams: Vec<CUstream> = (0..12).map(|_| new_stream(&t, CU_STREAM_NON_BLOCKING)).collect();
    let gates: Vec<Gate> = streams.iter().map(|stream| Gate::close(&t, *stream)).collect();
    let (other, pointer) = (new_stream(&t, CU_STREAM_NON_BLOCKING), alloc(&t, 64));
    ok!(t.cuMemsetD8Async(pointer, 1, 64, other));
    ok!(t.cuStreamSynchronize(other));
    gates.iter().for_each(Gate::open);
    for stream in streams {
        ok!(t.cuStreamSynchronize(stream));
        ok!(t.cuStreamDestroy_v2(stream));
    }
    unsafe extern "C" fn call(data: *mut c_void) {
        let (t, mut device) = (crate::table(), 0);
        let result = code!(t.cuCtxGetDevice(&mut device));
        // SAFETY: the test waits for this function before its local goes.
        unsafe { data.cast::<u32>().write(result) };
    }
    let mut code = 0_u32;
    ok!(t.cuLaunchHostFunc(other, Some(call), std::ptr::from_mut(&mut code).cast()));
    ok!(t.cuStreamSynchronize(other));
    assert_eq!(code, CUDA_ERROR_NOT_PERMITTED);
    ok!(t.cuMemFree_v2(pointer));
    ok!(t.cuStreamDestroy_v2(other));
}

#[test]
fn idle_threads_end() {
    in_child("stream::idle_threads_end", &[], || {
        let t = setup(0);
        let (stream, pointer) = (new_stream(&t, 0), alloc(&t, 64));
        ok!(t.cuMemsetD8Async(pointer, 1, 64, stream));
        ok!(t.cuStreamSynchronize(stream));
        assert!(crate::live().threads > 0);
        wait_until("threads that have nothing to do end", || crate::live().threads == 0);
        ok!(t.cuMemsetD8Async(pointer, 2, 64, stream));
        ok!(t.cuStreamSynchronize(stream));
    });
}

#[test]
fn launches_may_block() {
    in_child("stream::launches_may_block", &[("CUDA_LAUNCH_BLOCKING", "1".into())], || {
        let t = setup(0);
        let (stream, sleep_kernel) = (new_stream(&t, 0), super::kernel::sleep_kernel(&t));
        super::kernel::sleep(&t, sleep_kernel, stream, Duration::from_millis(30));
        ok!(t.cuStreamQuery(stream));
    });
}

/// Sets the limit of the process's address space, and returns the one before.
fn limit_address_space(bytes: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, bytes);
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
        before
    }
}

#[test]
fn work_waits_for_threads_that_the_system_refuses() {
    in_child("stream::work_waits_for_threads_that_the_system_refuses", &[], || {
        let t = setup(0);
        let (stream, log, pointer) = (new_stream(&t, CU_STREAM_NON_BLOCKING), Log::default(), alloc(&t, 4096));
        let waiting = stream as usize;
        let (begin, begun) = std::sync::mpsc::channel();
        let (start, started) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            start.send(()).expect("the test waits");
            begun.recv().expect("the test goes on");
            let t = setup(0);
            code!(t.cuStreamSynchronize(waiting as CUstream))
        });
        // A thread maps memory when it begins.
        started.recv().expect("the thread has begun");
        let statm = std::fs::read_to_string("/proc/self/statm").expect("the size of the process");
        let pages: libc::rlim_t = statm.split(' ').next().and_then(|size| size.parse().ok()).expect("a number");
        // Less than a thread's stack.
        let before = limit_address_space(pages * 4096 + 4 * MIB as libc::rlim_t);
        log.note(&t, stream, 1);
        ok!(t.cuMemsetD8Async(pointer, 1, 4096, stream));
        let other = new_stream(&t, CU_STREAM_NON_BLOCKING);
        ok!(t.cuMemsetD8Async(pointer, 1, 4096, other));
        begin.send(()).expect("the thread waits");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        assert_eq!(code!(t.cuStreamQuery(other)), CUDA_ERROR_NOT_READY);
        limit_address_space(before);
        assert_eq!(waiter.join().expect("the thread ends"), CUDA_SUCCESS);
        assert_eq!(log.entries(), [1]);
        ok!(t.cuStreamSynchronize(other));
        log.note(&t, stream, 2);
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(log.entries(), [1, 2]);
        assert!(!crate::scheduler::is_short());
    });
}
