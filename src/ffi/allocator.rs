//! Caching allocator
//!
//! The caching allocator gives device memory to streams and keeps freed memory for the next request: the allocator of
//! torch.cuda.
//!
//! The caller owns each block and frees it with plinth_caching_allocator_delete. A block belongs to the stream that it
//! was allocated for. Freed memory is reused in that stream at once, because the stream's order protects it. For every
//! other stream that uses the block, call plinth_record_stream before the free.
//!
//! Any thread may free what another thread allocated. Statistics, limits and settings hold for the whole process; the
//! more detailed statistics are in memory_stats.h. Without any device, all statistics are 0, and calls that release
//! cached memory or reset statistics do nothing.

use crate::{
    ffi::{
        Output,
        guard::{guard, guard_short, release_short},
        owned_text, plinth_stream_t,
        status::plinth_status_t,
    },
    memory, stream,
};
use std::ffi::{c_char, c_void};

/// Allocates device memory for work in a stream, from cached blocks if possible.
///
/// If a free block fits, the call makes no driver call, except queries of events while freed blocks wait for recorded
/// streams. It waits for work of the device only when no memory is left otherwise. Sizes are rounded up to multiples of
/// 512 bytes. A freed block is reused immediately in the same stream: the order of the stream protects it. For every
/// other stream that uses the block, call plinth_record_stream, or order the work of that stream before the free.
///
/// While the calling thread, the stream or a capture allocates to a pool (plinth_begin_allocate_to_pool and similar
/// calls), the memory comes from that pool. Call plinth_stream_unregister before a stream of the program or of another
/// library is destroyed.
///
/// @param size The size in bytes; 0 returns NULL.
/// @param device The device index; -1 for the current device.
/// @param stream The stream, of that device; NULL for the device's default stream.
/// @param pointer Out: the memory, aligned to 512 bytes. The caller owns it and frees it with
///        plinth_caching_allocator_delete.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device; PLINTH_ERROR_OUT_OF_MEMORY, with a message
///         that lists the requested, total, free, reserved and allocated bytes, the limit and further details;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE if only waiting for running work helps, and the sync debug mode forbids it;
///         PLINTH_ERROR_CAPTURE_FORBIDS for a backend that cannot allocate in a capture; PLINTH_ERROR_NOT_SUPPORTED in
///         a signal handler that interrupted another call of its thread;
///         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_alloc(
    size: usize,
    device: i32,
    stream: plinth_stream_t,
    pointer: *mut *mut c_void,
) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        let stream = stream::of_device(stream as usize, device)?;
        pointer.set(memory::caching_alloc(size as u64, device, stream)? as *mut c_void);
        Ok(())
    })
}

/// Frees memory from plinth_caching_allocator_alloc, from any thread and with any current device.
///
/// The call makes no driver call unless other streams were recorded with plinth_record_stream, or the block is the last one
/// of a destroyed pool, whose memory is then released. A recorded block is not reused until the recorded work of those
/// streams is done.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for a pointer that plinth_caching_allocator_alloc did not return,
///         that was freed already, or that is inside a block; PLINTH_ERROR_WOULD_SYNCHRONIZE if the backend waits for
///         the device and the sync debug mode forbids it, and PLINTH_ERROR_NOT_SUPPORTED in a signal handler that
///         interrupted another call of its thread: the memory is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_delete(pointer: *mut c_void) -> plinth_status_t {
    release_short(|| memory::caching_free(pointer as u64))
}

/// Records that work in a stream uses memory that was allocated for another stream.
///
/// When the memory is freed, it is not reused until the work that is in the recorded stream at that time is done. The
/// free does not wait for it. The stream for which the memory was allocated need not be recorded.
///
/// @param pointer The memory, from plinth_caching_allocator_alloc or plinth_alloc; NULL does nothing.
/// @param stream The stream, of any device. NULL does not tell on which device the work is, and records two streams: the
///        default streams of the memory's device and of the current device. PLINTH_STREAM_CURRENT does the same with
///        the calling thread's current streams on both.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER as for plinth_caching_allocator_delete;
///         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_record_stream(pointer: *mut c_void, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| memory::record_stream_argument(pointer as u64, stream as usize))
}

/// Releases the unused cached memory of every device to the driver.
///
/// Only whole physical allocations are released. Memory of private pools that are in use stays. The call waits at most one
/// millisecond for work of streams that may still use memory. What is in use after that is released by the next call when
/// the work is done, or when memory is short. The call also destroys the executable graphs that the library keeps for its
/// next copies of tensors and collectives of one process.
///
/// @return PLINTH_OK; PLINTH_ERROR_WOULD_SYNCHRONIZE for memory whose release waits for the device, which stays cached;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_empty_cache() -> plinth_status_t {
    guard(|| {
        memory::empty_cache()?;
        Ok(())
    })
}

/// Gets the number of bytes that the program has allocated and not freed. Each request counts rounded up to 512
/// bytes.
///
/// @param device The device index; -1 for the current device.
/// @param bytes Out: the number of bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_allocated(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::allocated(device)?.0 as usize);
        Ok(())
    })
}

/// Gets the peak of plinth_memory_allocated since the peaks were last reset.
///
/// If several threads allocate at the same time, the peak may be too low within the bound that plinth_memory_stats
/// states; otherwise it is exact.
///
/// @param device The device index; -1 for the current device.
/// @param bytes Out: the number of bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_max_memory_allocated(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::allocated(device)?.1 as usize);
        Ok(())
    })
}

/// Gets the number of bytes of physical memory that the allocator holds: allocated and cached memory.
///
/// @param device The device index; -1 for the current device.
/// @param bytes Out: the number of bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_reserved(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.0 as usize);
        Ok(())
    })
}

/// Gets the peak of plinth_memory_reserved since the peaks were last reset.
///
/// @param device The device index; -1 for the current device.
/// @param bytes Out: the number of bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_max_memory_reserved(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.1 as usize);
        Ok(())
    })
}

/// Resets all peak statistics of a device's memory to the current values.
///
/// @param device The device index; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_peak_memory_stats(device: i32) -> plinth_status_t {
    guard(|| memory::reset_peak_stats(device))
}

/// Writes the memory statistics of a device as a table, in the layout of torch.cuda.memory_summary.
///
/// @param device The device index; -1 for the current device.
/// @param abbreviated Whether to omit the rows for small and for large blocks.
/// @param text Out: the table. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_summary(
    device: i32,
    abbreviated: bool,
    text: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&memory::memory_summary(device, abbreviated)?)?);
        Ok(())
    })
}

/// Limits the memory that the allocator may hold on a device to a fraction of the device's total memory.
///
/// The fraction refers to all memory of the device, not only to the memory that is free now. Memory that the
/// allocator already holds above the limit stays, but the allocator adds none.
///
/// @param fraction From 0 to 1; 1 means no limit.
/// @param device The device index; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a fraction that is out of range or NaN;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_per_process_memory_fraction(fraction: f64, device: i32) -> plinth_status_t {
    guard(|| memory::set_fraction(fraction, device))
}

/// Gets the fraction of a device's memory that the allocator may hold.
///
/// @param device The device index; -1 for the current device.
/// @param fraction Out: the last value set with plinth_set_per_process_memory_fraction. Before the first such call,
///        the setting per_process_memory_fraction, whose default is 1.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_CONFIGURATION; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_per_process_memory_fraction(device: i32, fraction: *mut f64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let fraction = unsafe { Output::new(fraction, "fraction") }?;
        fraction.set(memory::fraction(device)?);
        Ok(())
    })
}
