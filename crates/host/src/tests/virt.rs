//! Virtual memory management.

use super::*;
use crate::driver::codes::*;
use std::os::unix::process::ExitStatusExt;

/// Reserves two granules of addresses, with one handle mapped at the start, accessible to device 0.
fn mapped(t: &Table) -> (u64, u64) {
    let (pointer, handle) = (reserve(t, 2 * GRANULE), create(t, 0, GRANULE, 0));
    ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
    ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 3), 1));
    (pointer, handle)
}

fn discard(t: &Table, pointer: u64, handle: u64) {
    ok!(t.cuMemUnmap(pointer, GRANULE));
    ok!(t.cuMemRelease(handle));
    ok!(t.cuMemAddressFree(pointer, 2 * GRANULE));
}

#[test]
fn sizes_and_ranges_are_checked() {
    let t = setup(0);
    let (mut pointer, mut handle) = (0, 0);
    assert_eq!(code!(t.cuMemAddressReserve(&mut pointer, 4096, 0, 0, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemAddressReserve(&mut pointer, GRANULE, 3, 0, 0)), CUDA_ERROR_INVALID_VALUE);
    let props = properties(0, 0);
    assert_eq!(code!(t.cuMemCreate(&mut handle, 4096, &props, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemCreate(&mut handle, 0, &props, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemCreate(&mut handle, GRANULE, &properties(99, 0), 0)), CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(code!(t.cuMemCreate(&mut handle, GRANULE, &properties(0, 9), 0)), CUDA_ERROR_NOT_PERMITTED);
    assert_eq!(code!(t.cuMemCreate(&mut handle, GRANULE, std::ptr::null(), 0)), CUDA_ERROR_INVALID_VALUE);

    let (pointer, handle) = mapped(&t);
    assert_eq!(code!(t.cuMemMap(pointer, GRANULE, 0, handle, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemMap(pointer + 4096, GRANULE, 0, handle, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemMap(pointer + 2 * GRANULE as u64, GRANULE, 0, handle, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemMap(pointer + GRANULE as u64, GRANULE, GRANULE, handle, 0)), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(code!(t.cuMemMap(pointer + GRANULE as u64, 4096, 0, handle, 0)), CUDA_ERROR_NOT_SUPPORTED);
    // A range without mappings can be unmapped, but no part of a mapping.
    assert_eq!(code!(t.cuMemUnmap(pointer, GRANULE / 2)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuMemUnmap(pointer + GRANULE as u64, 4096));
    assert_eq!(code!(t.cuMemSetAccess(pointer, 2 * GRANULE, &access(0, 3), 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemAddressFree(pointer, 2 * GRANULE)), CUDA_ERROR_INVALID_VALUE);
    discard(&t, pointer, handle);
    assert_eq!(code!(t.cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemAddressFree(pointer, 2 * GRANULE)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn one_handle_can_be_mapped_at_two_addresses() {
    let t = setup(0);
    let (pointer, handle) = mapped(&t);
    let second = pointer + GRANULE as u64;
    ok!(t.cuMemMap(second, GRANULE, 0, handle, 0));
    ok!(t.cuMemSetAccess(second, GRANULE, &access(0, 3), 1));
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    ok!(t.cuMemsetD32Async(pointer + 8, 0xdead_beef, 1, stream));
    ok!(t.cuStreamSynchronize(stream));
    assert_eq!(read(&t, second + 8, 4), 0xdead_beef_u32.to_le_bytes());
    // Released while mapped: the memory remains until the last unmapping.
    ok!(t.cuMemRelease(handle));
    let mut again = 0;
    ok!(t.cuMemRetainAllocationHandle(&mut again, second as *mut c_void));
    assert_eq!(again, handle);
    ok!(t.cuMemRelease(again));
    ok!(t.cuMemUnmap(pointer, GRANULE));
    assert_eq!(read(&t, second + 8, 4), 0xdead_beef_u32.to_le_bytes());
    ok!(t.cuMemUnmap(second, GRANULE));
    ok!(t.cuMemAddressFree(pointer, 2 * GRANULE));
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn access_rights_are_enforced() {
    in_child("virt::access_rights_are_enforced", &[], || {
        let t = setup(0);
        let (pointer, handle) = mapped(&t);
        let mut flags = 9;
        ok!(t.cuMemGetAccess(&mut flags, &access(0, 0).location, pointer));
        assert_eq!(flags, 3);
        ok!(t.cuMemGetAccess(&mut flags, &access(1, 0).location, pointer));
        assert_eq!(flags, 0);
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(1, 3), 1));
        ok!(t.cuCtxSetCurrent(context(&t, 1)));
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        ok!(t.cuMemsetD8Async(pointer, 1, 16, stream));
        ok!(t.cuStreamSynchronize(stream));
        // Without access, a fill that device 1 executes fails.
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(1, 0), 1));
        ok!(t.cuMemsetD8Async(pointer, 1, 16, stream));
        assert_eq!(code!(t.cuStreamSynchronize(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(code!(t.cuMemsetD8Async(pointer, 1, 16, stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 1), 1));
        ok!(t.cuMemGetAccess(&mut flags, &access(0, 0).location, pointer));
        assert_eq!(flags, 1);
        discard(&t, pointer, handle);
    });
}

#[test]
fn exclusive_copies_delay_access() {
    in_child("virt::exclusive_copies_delay_access", &[("PLINTH_HOST_COPIES", "exclusive".to_owned())], || {
        let t = setup(0);
        let (pointer, handle) = mapped(&t);
        let streams = [(); 2].map(|()| new_stream(&t, CU_STREAM_NON_BLOCKING));
        let gate = Gate::close(&t, streams[1]);
        for stream in streams {
            for _ in 0..30 {
                ok!(t.cuMemcpyAsync(pointer, pointer + 64, 16, stream));
            }
        }
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(1, 3), 1));
        assert_eq!(code!(t.cuStreamQuery(streams[0])), CUDA_ERROR_NOT_READY);
        ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 3), 1));
        ok!(t.cuStreamQuery(streams[0]));
        // Copies behind other work do not delay it.
        assert_eq!(code!(t.cuStreamQuery(streams[1])), CUDA_ERROR_NOT_READY);
        gate.open();
        for stream in streams {
            ok!(t.cuStreamSynchronize(stream));
            ok!(t.cuStreamDestroy_v2(stream));
        }
        discard(&t, pointer, handle);
    });
}

#[test]
fn copies_to_unmapped_addresses_are_refused() {
    let t = setup(0);
    let (pointer, handle) = mapped(&t);
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    let hole = pointer + GRANULE as u64;
    assert_eq!(code!(t.cuMemcpyAsync(hole, pointer, 16, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemcpyAsync(pointer, hole - 8, 16, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemcpyAsync(pointer, u64::MAX - 4, 16, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemsetD16Async(pointer + 1, 0, 1, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemsetD32Async(pointer + 2, 0, 1, stream)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuStreamDestroy_v2(stream));
    discard(&t, pointer, handle);
}

#[test]
fn work_on_unmapped_memory_fails() {
    in_child("virt::work_on_unmapped_memory_fails", &[], || {
        let t = setup(0);
        let (pointer, handle) = mapped(&t);
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        let gate = Gate::close(&t, stream);
        ok!(t.cuMemsetD8Async(pointer, 1, 16, stream));
        discard(&t, pointer, handle);
        gate.open();
        assert_eq!(code!(t.cuStreamSynchronize(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

#[test]
fn touching_unmapped_memory_faults() {
    if role().is_some() {
        let t = setup(0);
        let (pointer, handle) = mapped(&t);
        // SAFETY: mapped with access to device 0, whose threads belong to this process.
        unsafe { (pointer as *mut u8).write_volatile(1) };
        ok!(t.cuMemUnmap(pointer, GRANULE));
        ok!(t.cuMemRelease(handle));
        // SAFETY: deliberately unsound: this process must die of the fault.
        unsafe { (pointer as *mut u8).write_volatile(1) };
        #[allow(clippy::disallowed_methods)] // not the library: a process made for this test
        std::process::exit(0);
    }
    let output = child("virt::touching_unmapped_memory_faults", "fault", &[]).wait_with_output();
    assert_eq!(output.expect("the child exits").status.signal(), Some(libc::SIGSEGV));
}

#[test]
fn the_limit_is_reached() {
    in_child("virt::the_limit_is_reached", &[("PLINTH_HOST_MEMORY", "16MiB".into())], || {
        let t = setup(0);
        let handles: Vec<u64> = (0..4).map(|_| create(&t, 0, 2 * GRANULE, 0)).collect();
        let (mut free, mut total, mut handle) = (1, 0, 0);
        ok!(t.cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!((free, total), (0, 16 * MIB));
        let props = properties(0, 0);
        assert_eq!(code!(t.cuMemCreate(&mut handle, GRANULE, &props, 0)), CUDA_ERROR_OUT_OF_MEMORY);
        let mut pointer = 0;
        assert_eq!(code!(t.cuMemAlloc_v2(&mut pointer, 1)), CUDA_ERROR_OUT_OF_MEMORY);
        ok!(t.cuMemRelease(handles[1]));
        ok!(t.cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!(free, 2 * GRANULE);
        ok!(t.cuMemAlloc_v2(&mut pointer, 1));
        ok!(t.cuMemFree_v2(pointer));
        ok!(t.cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!(free, 2 * GRANULE);
    });
}
