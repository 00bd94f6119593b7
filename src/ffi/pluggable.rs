//! The forms in which other frameworks call an allocator: PyTorch's CUDAPluggableAllocator, CuPy's CFunctionAllocator and
//! RMM's callback resource.
//!
//! Their streams are the caller's, and plinth need not have heard of them before.

use crate::{
    driver::Stream,
    ffi::{guard::guard, plinth_stream_t, pool::plinth_pool_id_t},
    memory::{self, route::RouteScope},
    runtime::{self, thread},
    stream,
};
use std::ffi::{c_int, c_void};

#[inline(always)]
fn alloc(size: u64, device: i32, stream: plinth_stream_t) -> *mut c_void {
    let mut pointer = std::ptr::null_mut();
    guard(|| {
        // SAFETY: the caller passes a live stream, or one of CUDA's special handles.
        let stream = unsafe { Stream::from_handle(stream as usize) };
        pointer = memory::caching_alloc(size, device, stream)? as *mut c_void;
        Ok(())
    });
    pointer
}

#[inline(always)]
fn free(pointer: *mut c_void) {
    guard(|| memory::caching_free(pointer as u64));
}

/// Allocates as plinth_caching_allocator_alloc does: the alloc_fn of torch.cuda.memory.CUDAPluggableAllocator. Any live
/// stream will do, known to plinth or not. Thread-safe.
///
/// @param size Bytes; 0 gives NULL. A negative size is one that is too large.
/// @param device The device's number; -1 for the current one.
/// @param stream The stream, of that device; NULL for its default stream.
/// @return The memory, which plinth_free or plinth_caching_allocator_delete frees; NULL on failure, and then
///         plinth_last_error tells why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_alloc(size: isize, device: c_int, stream: plinth_stream_t) -> *mut c_void {
    alloc(size as u64, device, stream)
}

/// Frees as plinth_caching_allocator_delete does: the free_fn of CUDAPluggableAllocator. A pointer that is not the
/// allocator's is left alone, and plinth_last_error tells so. Thread-safe.
///
/// @param pointer The memory; NULL does nothing.
/// @param size What was asked for. The allocator knows better, and does not look.
/// @param device The device; likewise.
/// @param stream The stream; likewise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_free(pointer: *mut c_void, size: isize, device: c_int, stream: plinth_stream_t) {
    let _ = (size, device, stream);
    free(pointer);
}

/// The init_fn of CUDAPluggableAllocator: initializes the library. Where there are several devices, each is given access to
/// the memory of every other that it can reach: PyTorch copies between devices without telling its allocator. Thread-safe.
///
/// @param device_count How many devices PyTorch sees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_init(device_count: c_int) {
    guard(|| {
        runtime::ready()?;
        if device_count > 1 { memory::add_all_peers() } else { Ok(()) }
    });
}

/// The reset_fn of CUDAPluggableAllocator, which torch.cuda.empty_cache calls: plinth_empty_cache. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_reset() {
    guard(memory::empty_cache);
}

/// The memory_fraction_fn of CUDAPluggableAllocator: plinth_set_per_process_memory_fraction. Thread-safe.
///
/// @param fraction From 0 to 1.
/// @param device The device's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_memory_fraction(fraction: f64, device: c_int) {
    guard(|| memory::set_fraction(fraction, device));
}

/// The base_alloc_fn of CUDAPluggableAllocator: the block that a pointer belongs to. Thread-safe.
///
/// @param pointer A pointer that plinth_alloc gave.
/// @param size Out: the block's bytes, if it is one; NULL is allowed.
/// @return The block; the pointer itself where it is none of the allocator's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_base_alloc(pointer: *mut c_void, size: *mut usize) -> *mut c_void {
    let mut base = pointer;
    guard(|| {
        if let Some((address, bytes)) = memory::block_at(pointer as u64) {
            base = address as *mut c_void;
            if !size.is_null() {
                // SAFETY: it is not NULL, so the caller passes a place for the size.
                unsafe { size.write(bytes as usize) };
            }
        }
        Ok(())
    });
    base
}

/// The record_stream_fn of CUDAPluggableAllocator: plinth_record_stream, for any live stream. Thread-safe.
///
/// @param pointer The memory; NULL does nothing.
/// @param stream The stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_record_stream(pointer: *mut c_void, stream: plinth_stream_t) {
    guard(|| {
        // SAFETY: the caller passes a live stream, or one of CUDA's special handles.
        let stream = stream::from_unchecked(unsafe { Stream::from_handle(stream as usize) })?;
        memory::record_stream(pointer as u64, stream.raw, stream.device)
    });
}

/// The begin_allocate_to_pool hook of CUDAPluggableAllocator, called when a capture is about to begin:
/// plinth_begin_allocate_to_pool. Thread-safe.
///
/// @param device The device's number.
/// @param pool The graph's pool. PyTorch's MempoolId_t, a pair of 64-bit numbers, is passed in the same way.
/// @param filter A C++ function object that tells which streams are meant. It is not called; streams that capture are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_begin_allocate_to_pool(
    device: c_int,
    pool: plinth_pool_id_t,
    filter: *mut c_void,
) {
    let _ = filter;
    guard(|| memory::begin_allocate_to_pool(device, RouteScope::Capture, pool.into()));
}

/// The end_allocate_to_pool_fn of CUDAPluggableAllocator: plinth_end_allocate_to_pool. Thread-safe.
///
/// @param device The device's number.
/// @param pool The graph's pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_end_allocate_to_pool(device: c_int, pool: plinth_pool_id_t) {
    guard(|| memory::end_allocate_to_pool(device, pool.into()));
}

/// The release_pool hook of CUDAPluggableAllocator, called when a graph is gone: plinth_release_pool. Thread-safe.
///
/// @param device The device's number.
/// @param pool The graph's pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_release_pool(device: c_int, pool: plinth_pool_id_t) {
    guard(|| memory::release_pool(device, pool.into()));
}

/// The malloc_func of cupy.cuda.CFunctionAllocator: allocates for the calling thread's current plinth stream on the device,
/// since CuPy does not tell its own. Thread-safe.
///
/// @param param What CuPy was given; not looked at.
/// @param size Bytes; 0 gives NULL.
/// @param device The device's number.
/// @return As plinth_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cupy_malloc(param: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    let _ = param;
    let current = if device < 0 { thread::device() } else { device as u32 };
    alloc(size as u64, device, thread::stream(current).handle() as plinth_stream_t)
}

/// The free_func of cupy.cuda.CFunctionAllocator. Thread-safe.
///
/// @param param What CuPy was given; not looked at.
/// @param pointer The memory; NULL does nothing.
/// @param device The device's number; not needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cupy_free(param: *mut c_void, pointer: *mut c_void, device: c_int) {
    let _ = (param, device);
    free(pointer);
}

/// The allocation callback of rmm::mr::callback_memory_resource, whose stream view is passed as a stream is: allocates on the
/// current device. Thread-safe.
///
/// @param bytes Bytes; 0 gives NULL.
/// @param stream The stream, of the current device.
/// @param arg What RMM was given; not looked at.
/// @return As plinth_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_rmm_allocate(bytes: usize, stream: plinth_stream_t, arg: *mut c_void) -> *mut c_void {
    let _ = arg;
    alloc(bytes as u64, -1, stream)
}

/// The deallocation callback of rmm::mr::callback_memory_resource. Thread-safe.
///
/// @param pointer The memory; NULL does nothing.
/// @param bytes What was asked for; not needed.
/// @param stream The stream; not needed: the memory goes back to the stream that it was allocated for.
/// @param arg What RMM was given; not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_rmm_deallocate(
    pointer: *mut c_void,
    bytes: usize,
    stream: plinth_stream_t,
    arg: *mut c_void,
) {
    let _ = (bytes, stream, arg);
    free(pointer);
}
