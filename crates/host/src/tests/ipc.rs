//! Memory and events shared with real other processes.

use super::*;
use crate::driver::codes::*;
use std::{
    ffi::c_char,
    io::{BufRead, BufReader, Write},
};

fn text(bytes: &[c_char; 64]) -> String {
    bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

fn bytes(name: &str) -> [c_char; 64] {
    let text = std::env::var(name).expect("the parent passed a handle");
    std::array::from_fn(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).expect("hexadecimal") as c_char)
}

/// Waits until a child reports that it is ready.
fn wait_until_ready(child: &mut Child) {
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert_ne!(reader.read_line(&mut line).expect("the child writes"), 0, "the child ended early");
    }
    child.stdout = Some(reader.into_inner());
}

/// Reports in a child that it is ready, and waits until the parent is done.
fn report_ready_and_wait() {
    let mut out = std::io::stdout();
    out.write_all(b"ready\n").and_then(|()| out.flush()).expect("the parent reads");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent exits");
}

#[test]
fn file_descriptors_share_memory() {
    const NAME: &str = "ipc::file_descriptors_share_memory";
    let t = setup(0);
    if role().as_deref() == Some("importer") {
        let fd: usize = std::env::var("FD").ok().and_then(|fd| fd.parse().ok()).expect("a descriptor");
        let (mut handle, pointer) = (0, reserve(&t, GRANULE));
        ok!(t.cuMemImportFromShareableHandle(&mut handle, fd as *mut c_void, 1));
        ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 3), 1));
        ok!(t.cuMemRelease(handle));
        assert_eq!(read(&t, pointer, 4), [5; 4]);
        let stream = new_stream(&t, 0);
        ok!(t.cuMemsetD8Async(pointer, 6, 4, stream));
        ok!(t.cuStreamSynchronize(stream));
        // SAFETY: the parent's descriptor was inherited, and nothing else here uses it.
        unsafe { libc::close(fd as i32) };
        // The memory counts against the exporter's limit: this device uses none.
        assert_eq!(crate::live().device_bytes[0], 0);
        report_ready_and_wait();
        return;
    }
    in_child(NAME, &[], || {
        let (pointer, handle) = (reserve(&t, GRANULE), create(&t, 0, GRANULE, 1));
        ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 3), 1));
        let stream = new_stream(&t, 0);
        ok!(t.cuMemsetD8Async(pointer, 5, 4096, stream));
        ok!(t.cuStreamSynchronize(stream));
        let mut fd = -1;
        ok!(t.cuMemExportToShareableHandle(std::ptr::from_mut(&mut fd).cast(), handle, 1, 0));
        // SAFETY: a plain call on this test's descriptor, which the child is to inherit.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
        let mut importer = child(NAME, "importer", &[("FD", fd.to_string())]);
        wait_until_ready(&mut importer);
        assert_eq!(read(&t, pointer, 4), [6; 4]);
        ok!(t.cuMemUnmap(pointer, GRANULE));
        ok!(t.cuMemRelease(handle));
        // SAFETY: this test's own descriptor.
        unsafe { libc::close(fd) };
        // The child holds the memory, so it still counts until the child has ended, however it ends.
        assert_eq!(crate::live().device_bytes[0], GRANULE as u64);
        importer.kill().expect("it lives");
        importer.wait().expect("it ends");
        assert_eq!(crate::live().device_bytes[0], 0);
    });
}

#[test]
fn wrong_descriptors_are_refused() {
    let t = setup(0);
    let mut handle = 0;
    for fd in [-1_isize, 0, 99_999] {
        let code = code!(t.cuMemImportFromShareableHandle(&mut handle, fd as *mut c_void, 1));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    }
    let private = create(&t, 0, GRANULE, 0);
    let mut fd = -1;
    let place: *mut c_void = std::ptr::from_mut(&mut fd).cast();
    assert_eq!(code!(t.cuMemExportToShareableHandle(place, private, 1, 0)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuMemRelease(private));
    // A descriptor may be imported by the process that exported it.
    let own = create(&t, 0, GRANULE, 1);
    ok!(t.cuMemExportToShareableHandle(place, own, 1, 0));
    ok!(t.cuMemImportFromShareableHandle(&mut handle, fd as isize as *mut c_void, 1));
    assert_ne!(handle, own);
    ok!(t.cuMemRelease(handle));
    ok!(t.cuMemRelease(own));
    // SAFETY: this test's own descriptor.
    unsafe { libc::close(fd) };
}

#[test]
fn whole_allocations_are_shared_by_handle() {
    const NAME: &str = "ipc::whole_allocations_are_shared_by_handle";
    let t = setup(0);
    if role().as_deref() == Some("importer") {
        let handle = CUipcMemHandle { reserved: bytes("HANDLE") };
        let (mut pointer, mut again) = (0, 0);
        ok!(t.cuIpcOpenMemHandle_v2(&mut pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        ok!(t.cuIpcOpenMemHandle_v2(&mut again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        assert_eq!(pointer, again);
        assert_eq!(read(&t, pointer, 1000), vec![4; 1000]);
        let (mut base, mut size) = (0, 0);
        ok!(t.cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 999));
        assert_eq!((base, size), (pointer, 1000));
        assert_eq!(code!(t.cuMemFree_v2(pointer)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuIpcCloseMemHandle(pointer));
        ok!(t.cuIpcCloseMemHandle(pointer));
        assert_eq!(code!(t.cuIpcCloseMemHandle(pointer)), CUDA_ERROR_INVALID_VALUE);
        let mut wrong = handle;
        wrong.reserved[20] ^= 1;
        let code = code!(t.cuIpcOpenMemHandle_v2(&mut pointer, wrong, 1));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        return;
    }
    share_with_importer(&t, NAME);
}

/// Runs the test's other half in a child, on memory of this process: 1000 bytes that are all 4.
fn share_with_importer(t: &Table, name: &str) {
    let (_first, pointer) = (alloc(t, 1000), alloc(t, 1000));
    let stream = new_stream(t, CU_STREAM_NON_BLOCKING);
    ok!(t.cuMemsetD8Async(pointer, 4, 1000, stream));
    ok!(t.cuStreamSynchronize(stream));
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    ok!(t.cuIpcGetMemHandle(&mut handle, pointer + 10));
    let mut opened = 0;
    assert_eq!(code!(t.cuIpcOpenMemHandle_v2(&mut opened, handle, 1)), CUDA_ERROR_INVALID_CONTEXT);
    let output = child(name, "importer", &[("HANDLE", text(&handle.reserved))]).wait_with_output();
    let output = output.expect("the child exits");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ok!(t.cuMemFree_v2(pointer));
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn opened_memory_is_accessible_to_its_opener_only() {
    const NAME: &str = "ipc::opened_memory_is_accessible_to_its_opener_only";
    let t = setup(0);
    if role().as_deref() != Some("importer") {
        return share_with_importer(&t, NAME);
    }
    let handle = CUipcMemHandle { reserved: bytes("HANDLE") };
    let contexts = [context(&t, 0), context(&t, 1)];
    let mut streams = [std::ptr::null_mut(); 2];
    let mut opened = [0; 2];
    for device in 0..2 {
        ok!(t.cuCtxSetCurrent(contexts[device]));
        ok!(t.cuCtxEnablePeerAccess(contexts[1 - device], 0));
        ok!(t.cuIpcOpenMemHandle_v2(&mut opened[device], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        streams[device] = new_stream(&t, CU_STREAM_NON_BLOCKING);
    }
    assert_ne!(opened[0], opened[1]);
    for device in 0..2 {
        ok!(t.cuCtxSetCurrent(contexts[device]));
        let (own, other, value) = (opened[device], opened[1 - device], 5 + device as u8);
        ok!(t.cuMemsetD8Async(own, value, 1000, streams[device]));
        assert_eq!(code!(t.cuMemsetD8Async(other, 9, 1000, streams[device])), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuStreamSynchronize(streams[device]));
        // It is still the same memory, and a copy determines which context owns which end.
        assert_eq!(read(&t, other, 1000), vec![value; 1000]);
        assert_eq!(code!(t.cuIpcCloseMemHandle(other)), CUDA_ERROR_INVALID_VALUE);
    }
    for device in 0..2 {
        ok!(t.cuCtxSetCurrent(contexts[device]));
        ok!(t.cuIpcCloseMemHandle(opened[device]));
        ok!(t.cuStreamDestroy_v2(streams[device]));
    }
}

#[test]
fn events_are_shared_by_handle() {
    const NAME: &str = "ipc::events_are_shared_by_handle";
    let t = setup(0);
    let flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    if role().as_deref() == Some("waiter") {
        let (mut event, stream) = (std::ptr::null_mut(), new_stream(&t, 0));
        ok!(t.cuIpcOpenEventHandle(&mut event, CUipcEventHandle { reserved: bytes("HANDLE") }));
        assert_eq!(code!(t.cuEventQuery(event)), CUDA_ERROR_NOT_READY);
        ok!(t.cuStreamWaitEvent(stream, event, 0));
        assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        let mut out = std::io::stdout();
        out.write_all(b"ready\n").and_then(|()| out.flush()).expect("the parent reads");
        ok!(t.cuStreamSynchronize(stream));
        ok!(t.cuEventSynchronize(event));
        return;
    }
    if role().as_deref() == Some("recorder") {
        // Records a point that never completes, and exits.
        let (mut event, stream) = (std::ptr::null_mut(), new_stream(&t, 0));
        ok!(t.cuIpcOpenEventHandle(&mut event, CUipcEventHandle { reserved: bytes("HANDLE") }));
        let _gate = Gate::close(&t, stream);
        ok!(t.cuEventRecord(event, stream));
        report_ready_and_wait();
        #[allow(clippy::disallowed_methods)] // not the library: a process made for this test
        std::process::exit(0);
    }
    in_child(NAME, &[], || {
        let (event, stream) = (new_event(&t, flags), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        ok!(t.cuIpcGetEventHandle(&mut handle, event));
        let gate = Gate::close(&t, stream);
        ok!(t.cuEventRecord(event, stream));
        let mut waiter = child(NAME, "waiter", &[("HANDLE", text(&handle.reserved))]);
        wait_until_ready(&mut waiter);
        gate.open();
        assert!(waiter.wait().expect("the child exits").success());
        // A recorder that has ended never reaches its point.
        let mut recorder = child(NAME, "recorder", &[("HANDLE", text(&handle.reserved))]);
        wait_until_ready(&mut recorder);
        assert_eq!(code!(t.cuEventQuery(event)), CUDA_ERROR_NOT_READY);
        let waiting = new_stream(&t, CU_STREAM_NON_BLOCKING);
        ok!(t.cuStreamWaitEvent(waiting, event, 0));
        recorder.kill().expect("it lives");
        recorder.wait().expect("it ends");
        assert_eq!(code!(t.cuStreamSynchronize(waiting)), CUDA_ERROR_LAUNCH_FAILED);
        ok!(t.cuStreamDestroy_v2(waiting));
        ok!(t.cuStreamDestroy_v2(stream));
        let plain = new_event(&t, 0);
        assert_eq!(code!(t.cuIpcGetEventHandle(&mut handle, plain)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(
            code!(t.cuIpcOpenEventHandle(&mut std::ptr::null_mut(), CUipcEventHandle { reserved: [1; 64] })),
            CUDA_ERROR_INVALID_VALUE
        );
        ok!(t.cuEventDestroy_v2(event));
    });
}
