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
//! more detailed statistics are in memory_stats.h.

use crate::{
    ffi::{Output, guard::guard, owned_text, plinth_stream_t, status::plinth_status_t},
    memory, runtime, stream,
};
use std::ffi::{c_char, c_void};

/// Allocates device memory for work in a stream, from what is cached where possible. Thread-safe.
///
/// Makes no call of the driver as long as there is a free block, and never waits for work of the device unless memory is
/// truly out. Sizes are rounded up to multiples of 512 bytes. Memory that was freed is given out again in the same stream
/// at once: the stream's order protects it. Work in other streams must be told of with plinth_record_stream, or be ordered
/// by the caller before the free.
///
/// While the calling thread, the stream or a capture allocates to a pool (plinth_begin_allocate_to_pool and the like), the
/// memory comes from that. A stream must outlive what is allocated for it, and plinth_empty_cache must be called before a
/// stream is destroyed that memory was allocated for.
///
/// @param size Bytes; 0 gives NULL.
/// @param device The device's number; -1 for the current one.
/// @param stream The stream, of that device; NULL for the device's default stream.
/// @param pointer Out: the memory, aligned to 512 bytes. The caller owns it and frees it with
///        plinth_caching_allocator_delete.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device; PLINTH_ERROR_OUT_OF_MEMORY, with a message that
///         tells request, total, free, held, limit, live and the rest; PLINTH_ERROR_INVALID_CONFIGURATION;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_alloc(
    size: usize,
    device: i32,
    stream: plinth_stream_t,
    pointer: *mut *mut c_void,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        let stream = stream::of_device(stream as usize, device)?;
        pointer.set(memory::caching_alloc(size as u64, device, stream)? as *mut c_void);
        Ok(())
    })
}

/// Frees what plinth_caching_allocator_alloc gave, from any thread and with any device current. Makes no call of the
/// driver, unless other streams were recorded: then the memory stays out of use until they have passed. Thread-safe.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_caching_allocator_alloc did not give, or was freed
///         already, or lies inside a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_delete(pointer: *mut c_void) -> plinth_status_t {
    guard(|| memory::caching_free(pointer as u64))
}

/// Tells the allocator that work in a stream uses memory that was allocated for another. When the memory is freed, it
/// stays out of use until the work has passed which that stream has then; nobody waits for that. The memory's own stream
/// need not be recorded. Thread-safe.
///
/// @param pointer The memory, from plinth_caching_allocator_alloc or plinth_alloc; NULL does nothing.
/// @param stream The stream, of any device; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER as for plinth_caching_allocator_delete; PLINTH_ERROR_INVALID_HANDLE;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_record_stream(pointer: *mut c_void, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| {
        let stream = stream::resolve(runtime::ready()?, stream as usize)?;
        memory::record_stream(pointer as u64, stream.raw, stream.device)
    })
}

/// Gives the free memory of every device back to the driver, in whole handles. Memory of private pools that somebody uses
/// stays. What a stream may still be using goes back too, as soon as the stream has passed: the call gives work that is
/// about to end one millisecond, and waits for nothing longer. Thread-safe.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_empty_cache() -> plinth_status_t {
    guard(memory::empty_cache)
}

/// Tells how much memory is in the program's hands, each request rounded up to 512 bytes. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param bytes Out: bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_allocated(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the bytes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::allocated(device)?.0 as usize);
        Ok(())
    })
}

/// Tells how much memory was in the program's hands at most, since the peaks were reset. Where several threads allocate
/// at the same moment, it is the peak of what was seen of them one after the other. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param bytes Out: bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_max_memory_allocated(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the bytes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::allocated(device)?.1 as usize);
        Ok(())
    })
}

/// Tells how much physical memory the allocator holds: what is in the program's hands and what is cached. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param bytes Out: bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_reserved(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the bytes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.0 as usize);
        Ok(())
    })
}

/// Tells how much physical memory the allocator held at most, since the peaks were reset. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param bytes Out: bytes.
/// @return As plinth_memory_allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_max_memory_reserved(device: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the bytes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::reserved(device)?.1 as usize);
        Ok(())
    })
}

/// Lets all peaks of a device's memory begin again at what is now. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_reset_peak_memory_stats(device: i32) -> plinth_status_t {
    guard(|| memory::reset_peak_stats(device))
}

/// Gives the figures of a device's memory as a table, in the layout of torch.cuda.memory_summary. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param abbreviated Leaves out the lines for small and for large blocks.
/// @param text Out: the table. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_summary(
    device: i32,
    abbreviated: bool,
    text: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&memory::memory_summary(device, abbreviated)?)?);
        Ok(())
    })
}

/// Limits how much memory the allocator may hold on a device: a fraction of the device's memory, all of which counts, not
/// only what is free now. What is held already stays, but nothing is added beyond the limit. Thread-safe.
///
/// @param fraction From 0 to 1; 1 is no limit.
/// @param device The device's number; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a fraction out of range or no number; PLINTH_ERROR_INVALID_DEVICE;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_per_process_memory_fraction(fraction: f64, device: i32) -> plinth_status_t {
    guard(|| memory::set_fraction(fraction, device))
}

/// Tells which fraction of a device's memory the allocator may hold. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param fraction Out: what plinth_set_per_process_memory_fraction was given; if it was not called, the setting
///        per_process_memory_fraction, which is 1 at first.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_CONFIGURATION; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_per_process_memory_fraction(device: i32, fraction: *mut f64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let fraction = unsafe { Output::new(fraction, "fraction") }?;
        fraction.set(memory::fraction(device)?);
        Ok(())
    })
}
