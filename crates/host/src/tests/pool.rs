//! The driver's memory pools.

use super::*;
use crate::driver::codes::*;

fn pool(t: &Table) -> CUmemoryPool {
    let mut pool = std::ptr::null_mut();
    ok!(t.cuDeviceGetDefaultMemPool(&mut pool, 0));
    pool
}

fn bytes(t: &Table, attribute: u32) -> u64 {
    let mut value = 0_u64;
    ok!(t.cuMemPoolGetAttribute(pool(t), attribute, (&raw mut value).cast()));
    value
}

fn alloc_async(t: &Table, bytes: usize, stream: CUstream) -> u64 {
    let mut pointer = 0;
    ok!(t.cuMemAllocAsync(&mut pointer, bytes, stream));
    pointer
}

fn keep_all(t: &Table) {
    let mut most = u64::MAX;
    ok!(t.cuMemPoolSetAttribute(pool(t), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut most).cast()));
}

#[test]
fn frees_take_effect_in_stream_order() {
    in_child("pool::frees_take_effect_in_stream_order", &[], || {
        let t = setup(0);
        keep_all(&t);
        let (one, other) = (new_stream(&t, CU_STREAM_NON_BLOCKING), new_stream(&t, CU_STREAM_NON_BLOCKING));
        let first = alloc_async(&t, 4 * MIB, one);
        let gate = Gate::close(&t, one);
        ok!(t.cuMemFreeAsync(first, one));
        // Another stream must not reuse it yet; its own stream may, after the free.
        let second = alloc_async(&t, 4 * MIB, other);
        assert_ne!(second, first);
        let again = alloc_async(&t, 4 * MIB, one);
        assert_eq!(again, first);
        ok!(t.cuMemFreeAsync(again, one));
        gate.open();
        ok!(t.cuStreamSynchronize(one));
        assert_eq!(alloc_async(&t, 4 * MIB, other), first);
        assert_eq!(bytes(&t, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 << 20);
        assert_eq!(code!(t.cuMemFreeAsync(first + 512, one)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuMemFreeAsync(first, other));
        assert_eq!(code!(t.cuMemFreeAsync(first, other)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuMemFree_v2(first)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuMemFree_v2(second));
        ok!(t.cuStreamSynchronize(other));
        assert_eq!(bytes(&t, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 << 20);
        ok!(t.cuMemPoolTrimTo(pool(&t), 0));
        assert_eq!(bytes(&t, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
        assert_eq!(crate::live().device_bytes[0], 0);
    });
}

#[test]
fn without_a_threshold_all_memory_is_released() {
    in_child("pool::without_a_threshold_all_memory_is_released", &[], || {
        let t = setup(0);
        let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
        let pointers: Vec<u64> = [1, 512, MIB, 3 * MIB].map(|bytes| alloc_async(&t, bytes, stream)).into();
        for pointer in pointers {
            ok!(t.cuMemsetD8Async(pointer, 1, 1, stream));
            ok!(t.cuMemFreeAsync(pointer, stream));
        }
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(crate::live().device_bytes[0], 0);
        assert!(bytes(&t, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 4 << 20);
    });
}

#[test]
fn wrong_arguments_are_refused() {
    let t = setup(0);
    let mut pointer = 0;
    let none = std::ptr::null_mut();
    ok!(t.cuMemAllocAsync(&mut pointer, 0, none));
    assert_eq!(pointer, 0);
    // What is not of a pool can be freed in a stream, but only once.
    ok!(t.cuMemAlloc_v2(&mut pointer, 100));
    ok!(t.cuMemFreeAsync(pointer, none));
    assert_eq!(code!(t.cuMemFreeAsync(pointer, none)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemFree_v2(pointer)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemAllocAsync(&mut pointer, usize::MAX, none)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(code!(t.cuMemPoolTrimTo(std::ptr::null_mut(), 0)), CUDA_ERROR_INVALID_VALUE);
    let mut value = 7_u64;
    let wrong = code!(t.cuMemPoolSetAttribute(pool(&t), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (&raw mut value).cast()));
    assert_eq!(wrong, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuMemPoolGetAttribute(pool(&t), 99, (&raw mut value).cast())), CUDA_ERROR_INVALID_VALUE);
}
