//! Memory and events shared with real other processes.

use super::*;
use crate::driver::codes::*;
use rustix::{
    fs::{MemfdFlags, SealFlags, SeekFrom},
    io::{Errno, FdFlags},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    ffi::c_char,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::fs::FileExt,
    },
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
fn fabric_handles_share_memory() {
    const NAME: &str = "ipc::fabric_handles_share_memory";
    in_child(NAME, &[("PLINTH_HOST_FABRIC", "1".to_owned())], || {
        let t = setup(0);
        let (pointer, handle) = (reserve(&t, GRANULE), create(&t, 0, GRANULE, 9));
        ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 3), 1));
        let stream = new_stream(&t, 0);
        ok!(t.cuMemsetD8Async(pointer, 5, 4096, stream));
        ok!(t.cuStreamSynchronize(stream));
        let mut fabric = [0_u8; 64];
        let place: *mut c_void = fabric.as_mut_ptr().cast();
        ok!(t.cuMemExportToShareableHandle(place, handle, 8, 0));
        let (mut imported, other) = (0, reserve(&t, GRANULE));
        ok!(t.cuMemImportFromShareableHandle(&mut imported, place, 8));
        ok!(t.cuMemMap(other, GRANULE, 0, imported, 0));
        ok!(t.cuMemSetAccess(other, GRANULE, &access(0, 3), 1));
        assert_eq!(read(&t, other, 4), [5; 4]);
        fabric[20] ^= 1;
        let place = fabric.as_mut_ptr().cast();
        assert_eq!(code!(t.cuMemImportFromShareableHandle(&mut imported, place, 8)), CUDA_ERROR_INVALID_VALUE);
        let private = create(&t, 0, GRANULE, 1);
        assert_eq!(code!(t.cuMemExportToShareableHandle(place, private, 8, 0)), CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn a_dma_buf_holds_all_memory_of_its_range() {
    const NAME: &str = "ipc::a_dma_buf_holds_all_memory_of_its_range";
    in_child(NAME, &[], || {
        let t = setup(0);
        let start = reserve(&t, 4 * GRANULE);
        for index in 0..2 {
            let (pointer, handle) = (start + (index * GRANULE) as u64, create(&t, 0, GRANULE, 1));
            ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
            ok!(t.cuMemRelease(handle));
        }
        ok!(t.cuMemSetAccess(start, 2 * GRANULE, &access(0, 3), 1));
        let stream = new_stream(&t, 0);
        ok!(t.cuMemsetD8Async(start + 4096, 7, 4096, stream));
        ok!(t.cuStreamSynchronize(stream));
        let mut fd = -1;
        let place: *mut c_void = std::ptr::from_mut(&mut fd).cast();
        for (offset, bytes, flags, code) in [
            (256, 4096, 0, CUDA_ERROR_INVALID_VALUE),
            (0, 1000, 0, CUDA_ERROR_INVALID_VALUE),
            (0, 0, 0, CUDA_ERROR_INVALID_VALUE),
            (GRANULE, 2 * GRANULE, 0, CUDA_ERROR_INVALID_VALUE),
            (2 * GRANULE, GRANULE, 0, CUDA_ERROR_INVALID_VALUE),
            (0, GRANULE, 1, CUDA_ERROR_NOT_SUPPORTED),
        ] {
            let found = code!(t.cuMemGetHandleForAddressRange(place, start + offset as u64, bytes, 1, flags));
            assert_eq!(found, code, "{offset} {bytes} {flags}");
        }
        ok!(t.cuMemGetHandleForAddressRange(place, start + 4096, 2 * GRANULE - 4096, 1, 0));
        let position = rustix::fs::tell(borrow(fd)).expect("a position");
        let file = File::from(borrow(fd).try_clone_to_owned().expect("a descriptor"));
        let mut contents = [0; 8];
        file.read_exact_at(&mut contents, position).expect("the memory");
        assert_eq!(contents, [7; 8]);
        ok!(t.cuMemUnmap(start, 2 * GRANULE));
        assert_eq!(crate::live().device_bytes[0], 2 * GRANULE as u64);
        drop(file);
        // SAFETY: this test's own descriptor.
        unsafe { libc::close(fd) };
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

/// Returns a file in memory with the name of the device's memory files and a copy of the header of an exported one.
fn forged(fd: i32, bytes: u64, seals: SealFlags) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("plinth-host-memory", flags).expect("a file"));
    let (mut header, position) = ([0; 40], rustix::fs::tell(borrow(fd)).expect("a position"));
    let source = File::from(borrow(fd).try_clone_to_owned().expect("a descriptor"));
    source.read_exact_at(&mut header, position).expect("a header");
    file.set_len(bytes).expect("memory");
    file.write_all_at(&header, position).expect("room for the header");
    rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
    rustix::fs::seek(&file, SeekFrom::Start(position)).expect("a position");
    file
}

fn borrow(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: the tests keep their descriptor open as long as they use it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// A process that accesses a mapping beyond the end of its file is killed.
#[test]
fn another_process_cannot_shorten_shared_memory() {
    const NAME: &str = "ipc::another_process_cannot_shorten_shared_memory";
    let t = setup(0);
    if role().as_deref() == Some("attacker") {
        let fd = std::env::var("FD").ok().and_then(|fd| fd.parse().ok()).expect("a descriptor");
        let path = format!("/proc/self/fd/{fd}");
        let again = File::options().read(true).write(true).open(path).expect("another description");
        assert_eq!(rustix::fs::ftruncate(borrow(fd), 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&again, 0), Err(Errno::PERM));
        return;
    }
    in_child(NAME, &[], || {
        let (pointer, handle) = (reserve(&t, GRANULE), create(&t, 0, GRANULE, 1));
        ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 3), 1));
        let mut fd = -1;
        ok!(t.cuMemExportToShareableHandle(std::ptr::from_mut(&mut fd).cast(), handle, 1, 0));
        rustix::io::fcntl_setfd(borrow(fd), FdFlags::empty()).expect("it is open");
        let attacker = child(NAME, "attacker", &[("FD", fd.to_string())]);
        assert!(attacker.wait_with_output().expect("it ends").status.success());
        assert_eq!(read(&t, pointer + GRANULE as u64 - 4, 4), [0; 4]);
        // A file that another process can shorten, or that is too short, is not mapped.
        let import = |file: &File| {
            let mut imported = 0;
            let code = code!(t.cuMemImportFromShareableHandle(&mut imported, file.as_raw_fd() as *mut c_void, 1));
            (code, imported)
        };
        let end = rustix::fs::tell(borrow(fd)).expect("a position") + 2 * GRANULE as u64;
        for (bytes, seals) in [(end, SealFlags::empty()), (end, SealFlags::GROW), (end - 1, SealFlags::SHRINK)] {
            assert_eq!(import(&forged(fd, bytes, seals)).0, CUDA_ERROR_INVALID_VALUE);
        }
        let (code, imported) = import(&forged(fd, end, SealFlags::SHRINK));
        assert_eq!(code, CUDA_SUCCESS);
        ok!(t.cuMemRelease(imported));
    });
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
        // A handle with a valid checksum whose allocation does not lie within its memory, or beyond the file.
        for (word, added) in [(6, 1 << 40), (5, 1 << 60), (4, 1 << 40), (3, 1 << 40), (4, 1)] {
            let bytes = handle.reserved.map(|byte| byte as u8);
            let mut numbers: [u64; 7] = std::array::from_fn(|at| u64::from_le_bytes(bytes.as_chunks().0[at]));
            numbers[word] += added;
            let forged = crate::memory::ipc::seal::<64>(&numbers);
            let forged = CUipcMemHandle { reserved: forged.map(|byte| byte as c_char) };
            let code = code!(t.cuIpcOpenMemHandle_v2(&mut pointer, forged, 1));
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "word {word}");
        }
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
        // Without a free descriptor, nothing can tell whether the recorder lives, and the stream goes on waiting.
        let none = Rlimit { current: Some(0), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, none).expect("fewer descriptors");
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
        // The waiter checks several times whether this process lives.
        std::thread::sleep(Duration::from_millis(300));
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
