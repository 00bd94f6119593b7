//! Whole allocations, pinned memory, pointers, copies.

use super::*;
use crate::driver::codes::*;

#[test]
fn new_memory_holds_arbitrary_bytes_if_the_environment_says_so() {
    let variables = [("PLINTH_HOST_CONTENTS", "arbitrary".into())];
    in_child("memory::new_memory_holds_arbitrary_bytes_if_the_environment_says_so", &variables, || {
        let t = setup(0);
        for bytes in [8, 3 * MIB] {
            let pointer = alloc(&t, bytes);
            assert!(read(&t, pointer, bytes).chunks(8).all(|chunk| chunk == [0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0]));
            ok!(t.cuMemFree_v2(pointer));
        }
    });
}

#[test]
fn small_and_large_allocations() {
    in_child("memory::small_and_large_allocations", &[], || {
        let t = setup(0);
        let before = crate::live();
        let sizes = [1, 511, 512, 513, 100_000, MIB - 1, MIB, 3 * MIB, 64 * MIB];
        let pointers: Vec<u64> = sizes.iter().map(|bytes| alloc(&t, *bytes)).collect();
        for (pointer, bytes) in pointers.iter().zip(sizes) {
            assert_eq!(pointer % 512, 0);
            let (mut base, mut size) = (0, 0);
            ok!(t.cuMemGetAddressRange_v2(&mut base, &mut size, pointer + bytes as u64 - 1));
            assert_eq!((base, size), (*pointer, bytes));
        }
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        for (index, (pointer, bytes)) in pointers.iter().zip(sizes).enumerate() {
            ok!(t.cuMemsetD8Async(*pointer, index as u8 + 1, bytes, stream));
        }
        ok!(t.cuStreamSynchronize(stream));
        for (index, (pointer, bytes)) in pointers.iter().zip(sizes).enumerate() {
            assert!(read(&t, *pointer, bytes).iter().all(|byte| *byte == index as u8 + 1));
        }
        assert_eq!(code!(t.cuMemFree_v2(pointers[0] + 8)), CUDA_ERROR_INVALID_VALUE);
        for pointer in pointers {
            ok!(t.cuMemFree_v2(pointer));
            assert_eq!(code!(t.cuMemFree_v2(pointer)), CUDA_ERROR_INVALID_VALUE);
        }
        ok!(t.cuMemFree_v2(0));
        ok!(t.cuStreamDestroy_v2(stream));
        let mut pointer = 0;
        assert_eq!(code!(t.cuMemAlloc_v2(&mut pointer, 0)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuMemAlloc_v2(&mut pointer, usize::MAX)), CUDA_ERROR_OUT_OF_MEMORY);
        let after = crate::live();
        assert_eq!(crate::Live { threads: 0, ..after }, crate::Live { threads: 0, ..before });
    });
}

#[test]
fn copies_and_fills_past_the_end_of_an_allocation_are_refused() {
    let (t, mut host) = (setup(0), std::ptr::null_mut());
    ok!(t.cuMemHostAlloc(&mut host, 4096, 0));
    let (stream, small, large) = (new_stream(&t, CU_STREAM_NON_BLOCKING), alloc(&t, 1000), alloc(&t, 3 * MIB));
    let (pageable, pinned) = (vec![0_u8; 5 * MIB], host as u64);
    let from = pageable.as_ptr() as u64;
    let (mut managed, mut pooled) = (0, 0);
    ok!(t.cuMemAllocManaged(&mut managed, 1000, CU_MEM_ATTACH_GLOBAL));
    ok!(t.cuMemAllocAsync(&mut pooled, 1000, stream));
    // What an H200's driver (580.159.04) answers, to the byte.
    for (at, room) in
        [(small, 1000), (small + 600, 400), (large, 3 * MIB), (large + 8, 3 * MIB - 8), (managed, 1000), (pooled, 1000)]
    {
        ok!(t.cuMemcpyAsync(at, from, room, stream));
        ok!(t.cuMemsetD8Async(at, 0, room, stream));
        assert_eq!(code!(t.cuMemcpyAsync(at, from, room + 1, stream)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuMemcpyAsync(from, at, room + 1, stream)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuMemsetD8Async(at, 0, room + 1, stream)), CUDA_ERROR_INVALID_VALUE);
    }
    ok!(t.cuMemcpyAsync(large, pinned + 4000, 96, stream));
    assert_eq!(code!(t.cuMemcpyAsync(large, pinned + 4000, 97, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemcpyAsync(pinned + 4000, large, 97, stream)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuStreamSynchronize(stream));
    ok!(t.cuStreamDestroy_v2(stream));
    for allocation in [small, large, managed, pooled] {
        ok!(t.cuMemFree_v2(allocation));
    }
    ok!(t.cuMemFreeHost(host));
}

#[test]
fn rows_are_copied_with_the_pitches_that_a_gpu_takes() {
    let (t, stream) = (setup(0), new_stream(&setup(0), CU_STREAM_NON_BLOCKING));
    let memory = alloc(&t, MIB);
    let copy = |width, height, source_pitch, destination_pitch, source_x| {
        // SAFETY: all zeros is a valid value of each of its fields.
        let mut copy: Memcpy2d = unsafe { std::mem::zeroed() };
        (copy.source_type, copy.destination_type) = (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
        (copy.source_device, copy.destination_device) = (memory, memory + 4096);
        (copy.source_pitch, copy.destination_pitch, copy.source_x) = (source_pitch, destination_pitch, source_x);
        (copy.width, copy.height) = (width, height);
        code!(t.cuMemcpy2DAsync_v2(&copy, stream))
    };
    // What an H200's driver (580.159.04) answers.
    assert_eq!(
        [copy(64, 1, 0, 0, 0), copy(64, 2, 0, 0, 0), copy(64, 2, 64, 64, 0), copy(64, 1, 1 << 31, 64, 0)],
        [0; 4]
    );
    assert_eq!([copy(0, 2, 0, 0, 0), copy(64, 0, 64, 64, 0), copy(64, 0, 0, 0, 0)], [0; 3]);
    let refused =
        [copy(64, 1, 32, 64, 0), copy(64, 2, 32, 64, 0), copy(64, 2, 1 << 31, 64, 0), copy(64, 2, 96, 64, 40)];
    assert_eq!(refused, [CUDA_ERROR_INVALID_VALUE; 4]);
    ok!(t.cuStreamDestroy_v2(stream));
    ok!(t.cuMemFree_v2(memory));
}

#[test]
fn freeing_waits_for_work() {
    let t = setup(0);
    let pointer = alloc(&t, 4 * MIB);
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    let gate = Gate::close(&t, stream);
    ok!(t.cuMemsetD8Async(pointer, 1, 4 * MIB, stream));
    let start = Instant::now();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    ok!(t.cuMemFree_v2(pointer));
    assert!(start.elapsed() >= Duration::from_millis(50));
    ok!(t.cuStreamSynchronize(stream));
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn copies_from_pageable_memory_are_staged() {
    let t = setup(0);
    let pointer = alloc(&t, 64 << 10);
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    let gate = Gate::close(&t, stream);
    let mut data = vec![7_u8; 64 << 10];
    ok!(t.cuMemcpyAsync(pointer, data.as_ptr() as u64, data.len(), stream));
    data.fill(0);
    gate.open();
    ok!(t.cuStreamSynchronize(stream));
    assert!(read(&t, pointer, data.len()).iter().all(|byte| *byte == 7));
    ok!(t.cuMemFree_v2(pointer));
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn pinned_copies_do_not_wait() {
    let t = setup(0);
    let pointer = alloc(&t, MIB);
    let mut host = std::ptr::null_mut();
    ok!(t.cuMemHostAlloc(&mut host, MIB, 0));
    // SAFETY: just allocated, with that size.
    unsafe { std::ptr::write_bytes(host.cast::<u8>(), 9, MIB) };
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    let gate = Gate::close(&t, stream);
    ok!(t.cuMemcpyAsync(pointer, host as u64, MIB, stream));
    assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(t.cuStreamSynchronize(stream));
    assert!(read(&t, pointer, MIB).iter().all(|byte| *byte == 9));
    ok!(t.cuMemFreeHost(host));
    assert_eq!(code!(t.cuMemFreeHost(host)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuMemFree_v2(pointer));
    ok!(t.cuStreamDestroy_v2(stream));
}

#[test]
fn host_memory_is_registered_once() {
    let t = setup(0);
    let mut memory = vec![0_u8; 3 * 4096];
    let pointer: *mut c_void = memory.as_mut_ptr().cast();
    assert_eq!(code!(t.cuMemHostUnregister(pointer)), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    ok!(t.cuMemHostRegister_v2(pointer, 8192, 0));
    assert_eq!(code!(t.cuMemHostRegister_v2(pointer, 1, 0)), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    let mut kind = 0_u32;
    ok!(t.cuPointerGetAttribute(
        std::ptr::from_mut(&mut kind).cast(),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        pointer as u64
    ));
    assert_eq!(kind, CU_MEMORYTYPE_HOST);
    assert_eq!(code!(t.cuMemFreeHost(pointer)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuMemHostUnregister(pointer));
    assert_eq!(code!(t.cuMemHostRegister_v2(std::ptr::null_mut(), 1, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemHostRegister_v2(4096 as *mut c_void, 4096, 0)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn pointers_have_attributes() {
    let t = setup(1);
    let pointer = alloc(&t, 1000);
    let (mut kind, mut ordinal, mut start, mut size, mut owner) = (0_u32, 0_i32, 0_u64, 0_usize, 0_u64);
    let mut kinds = [
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_CONTEXT,
    ];
    let mut places: [*mut c_void; 5] = [
        std::ptr::from_mut(&mut kind).cast(),
        std::ptr::from_mut(&mut ordinal).cast(),
        std::ptr::from_mut(&mut start).cast(),
        std::ptr::from_mut(&mut size).cast(),
        std::ptr::from_mut(&mut owner).cast(),
    ];
    ok!(t.cuPointerGetAttributes(5, kinds.as_mut_ptr(), places.as_mut_ptr(), pointer + 5));
    let own = context(&t, 1) as u64;
    assert_eq!((kind, ordinal, start, size, owner), (CU_MEMORYTYPE_DEVICE, 1, pointer, 1000, own));
    let local = 0_u8;
    let unknown = std::ptr::from_ref(&local) as u64;
    ok!(t.cuPointerGetAttributes(5, kinds.as_mut_ptr(), places.as_mut_ptr(), unknown));
    assert_eq!((kind, ordinal, start, size, owner), (0, -2, 0, 0, 0));
    assert_eq!(code!(t.cuPointerGetAttribute(places[0], kinds[0], unknown)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuMemFree_v2(pointer));
}

#[test]
fn copies_cross_devices_and_fills_need_peers() {
    in_child("memory::copies_cross_devices_and_fills_need_peers", &[], || {
        let t = setup(1);
        let theirs = alloc(&t, 4096);
        let (zero, one) = (context(&t, 0), context(&t, 1));
        ok!(t.cuCtxSetCurrent(zero));
        let ours = alloc(&t, 4096);
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        ok!(t.cuMemsetD8Async(ours, 5, 4096, stream));
        ok!(t.cuMemcpyAsync(theirs, ours, 2048, stream));
        ok!(t.cuMemcpyPeerAsync(theirs + 2048, one, ours, zero, 2048, stream));
        ok!(t.cuStreamSynchronize(stream));
        assert!(read(&t, theirs, 4096).iter().all(|byte| *byte == 5));
        assert_eq!(code!(t.cuMemsetD8Async(theirs, 6, 1, stream)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuStreamSynchronize(stream));
        ok!(t.cuCtxEnablePeerAccess(one, 0));
        ok!(t.cuMemsetD8Async(theirs, 6, 1, stream));
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(read(&t, theirs, 1), [6]);
    });
}
