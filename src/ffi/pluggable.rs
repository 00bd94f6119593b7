//! Functions for the allocators of other frameworks
//!
//! plinth's allocator in the form in which PyTorch's CUDAPluggableAllocator, CuPy's CFunctionAllocator and RMM's
//! callback resource call it. Give their names or addresses to those frameworks.
//!
//! The streams belong to the framework, and need not be registered with plinth_stream_from_external. An allocation that
//! fails returns NULL, and plinth_last_error() has the message.

use crate::{
    driver::Stream,
    ffi::{
        guard::{guard, guard_short, release, release_short},
        plinth_stream_t,
        pool::plinth_pool_id_t,
    },
    memory::{self, PoolId},
    runtime, stream,
};
use std::ffi::{c_int, c_void};

/// Returns the pool of an id that PyTorch issued.
fn of_pytorch(id: plinth_pool_id_t) -> PoolId {
    PoolId::of_pytorch(id.owner, id.index)
}

#[inline(always)]
fn alloc(size: u64, device: i32, stream: plinth_stream_t) -> *mut c_void {
    let mut pointer = std::ptr::null_mut();
    guard_short(|| {
        let stream = match stream as usize {
            name if stream::is_name(name) => stream::of_device(name, device)?,
            // SAFETY: the caller passes a live stream, or one of CUDA's special handles.
            handle => unsafe { Stream::from_handle(handle) },
        };
        pointer = memory::caching_alloc(size, device, stream)? as *mut c_void;
        Ok(())
    });
    pointer
}

#[inline(always)]
fn free(pointer: *mut c_void) {
    release_short(|| memory::caching_free(pointer as u64));
}

/// Allocates memory as plinth_caching_allocator_alloc does: the alloc_fn of torch.cuda.memory.CUDAPluggableAllocator.
/// Accepts any live stream, including streams that plinth has not seen before.
///
/// @param size Number of bytes; 0 returns NULL. A negative size is treated as too large.
/// @param device The device number; -1 for the current device.
/// @param stream The stream, of that device; NULL for its default stream.
/// @return The memory, to be freed with plinth_free or plinth_caching_allocator_delete; NULL on failure, with the
///         reason in plinth_last_error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_alloc(size: isize, device: c_int, stream: plinth_stream_t) -> *mut c_void {
    alloc(size as u64, device, stream)
}

/// Frees memory as plinth_caching_allocator_delete does: the free_fn of CUDAPluggableAllocator. A pointer that does not
/// belong to the allocator is ignored, with an error in plinth_last_error.
///
/// @param pointer The memory; NULL does nothing.
/// @param size The requested size; ignored.
/// @param device The device number; ignored.
/// @param stream The stream; ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_free(pointer: *mut c_void, size: isize, device: c_int, stream: plinth_stream_t) {
    let _ = (size, device, stream);
    free(pointer);
}

/// Initializes the library: the init_fn of CUDAPluggableAllocator. If there are several devices, it enables peer access
/// from each device to the memory of every other device that it can access, because PyTorch copies between devices
/// without notifying its allocator.
///
/// @param device_count The number of devices that PyTorch sees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_init(device_count: c_int) {
    guard(|| {
        runtime::ready()?;
        if device_count > 1 { memory::add_all_peers() } else { Ok(()) }
    });
}

/// Releases cached memory, as plinth_empty_cache does: the reset_fn of CUDAPluggableAllocator, which
/// torch.cuda.empty_cache calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_reset() {
    guard(|| {
        memory::empty_cache()?;
        Ok(())
    });
}

/// Limits a device's memory, as plinth_set_per_process_memory_fraction does: the memory_fraction_fn of
/// CUDAPluggableAllocator.
///
/// @param fraction The fraction of the device's memory, from 0 to 1.
/// @param device The device number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_memory_fraction(fraction: f64, device: c_int) {
    guard(|| memory::set_fraction(fraction, device));
}

/// Finds the block of a pointer: the base_alloc_fn of CUDAPluggableAllocator. For pointers into a block, call
/// plinth_pointer_attributes.
///
/// @param pointer Memory of plinth_alloc.
/// @param size Out, unless NULL: the size of the block in bytes. Not written if no block of the allocator begins at the
///        pointer.
/// @return The beginning of the block; the pointer itself if no block of the allocator begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_base_alloc(pointer: *mut c_void, size: *mut usize) -> *mut c_void {
    let mut base = pointer;
    guard(|| {
        if let Some((address, bytes)) = memory::block_at(pointer as u64) {
            base = address as *mut c_void;
            if !size.is_null() {
                // SAFETY: it is not NULL, so the caller passes a valid pointer.
                unsafe { size.write(bytes as usize) };
            }
        }
        Ok(())
    });
    base
}

/// Records that a stream uses memory, as plinth_record_stream does, for any live stream: the record_stream_fn of
/// CUDAPluggableAllocator.
///
/// @param pointer The memory; NULL does nothing.
/// @param stream The stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_record_stream(pointer: *mut c_void, stream: plinth_stream_t) {
    guard(|| {
        if stream::is_relative(stream as usize) {
            return memory::record_stream_argument(pointer as u64, stream as usize);
        }
        // SAFETY: the caller passes a live stream.
        let stream = stream::from_unchecked(unsafe { Stream::from_handle(stream as usize) })?;
        memory::record_stream(pointer as u64, stream)
    });
}

/// Begins allocating to a graph's pool, as plinth_begin_allocate_to_pool does: the begin_allocate_to_pool hook of
/// CUDAPluggableAllocator, which is called before a capture begins.
///
/// @param device The device number.
/// @param pool The graph's pool, with any id: PyTorch issues it, and it never names a pool of the library. PyTorch's
///        MempoolId_t, a pair of 64-bit numbers, has the same ABI.
/// @param filter A C++ function object that selects the streams. It is not called; all capturing streams are selected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_begin_allocate_to_pool(
    device: c_int,
    pool: plinth_pool_id_t,
    filter: *mut c_void,
) {
    let _ = filter;
    guard(|| memory::begin_pluggable_pool(device, of_pytorch(pool)));
}

/// Ends allocating to a graph's pool: the end_allocate_to_pool_fn of CUDAPluggableAllocator. Any thread may call it.
///
/// @param device The device number.
/// @param pool The graph's pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_end_allocate_to_pool(device: c_int, pool: plinth_pool_id_t) {
    guard(|| memory::end_pluggable_pool(device, of_pytorch(pool)));
}

/// Releases a graph's pool, as plinth_release_pool does: the release_pool hook of CUDAPluggableAllocator, which is
/// called when a graph is destroyed.
///
/// @param device The device number.
/// @param pool The graph's pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_release_pool(device: c_int, pool: plinth_pool_id_t) {
    release(|| memory::release_pool(device, of_pytorch(pool)));
}

/// Allocates memory for the calling thread's current plinth stream on a device: the malloc_func of
/// cupy.cuda.CFunctionAllocator. CuPy does not pass its own stream.
///
/// @param param The parameter that was passed to CuPy; ignored.
/// @param size Number of bytes; 0 returns NULL.
/// @param device The device number.
/// @return The memory, or NULL on failure; see plinth_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cupy_malloc(param: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    let _ = param;
    alloc(size as u64, device, stream::CURRENT as plinth_stream_t)
}

/// Frees memory: the free_func of cupy.cuda.CFunctionAllocator.
///
/// @param param The parameter that was passed to CuPy; ignored.
/// @param pointer The memory; NULL does nothing.
/// @param device The device number; ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cupy_free(param: *mut c_void, pointer: *mut c_void, device: c_int) {
    let _ = (param, device);
    free(pointer);
}

/// Allocates memory on the current device: the allocation callback of rmm::mr::callback_memory_resource, whose stream
/// view has the ABI of a stream.
///
/// @param bytes Number of bytes; 0 returns NULL.
/// @param stream The stream, of the current device.
/// @param arg The argument that was passed to RMM; ignored.
/// @return The memory, or NULL on failure; see plinth_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_rmm_allocate(bytes: usize, stream: plinth_stream_t, arg: *mut c_void) -> *mut c_void {
    let _ = arg;
    alloc(bytes as u64, -1, stream)
}

/// Frees memory: the deallocation callback of rmm::mr::callback_memory_resource.
///
/// @param pointer The memory; NULL does nothing.
/// @param bytes The requested size; ignored.
/// @param stream The stream; ignored: the block is returned to the stream that it was allocated for.
/// @param arg The argument that was passed to RMM; ignored.
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
