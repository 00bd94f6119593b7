//! Memory of the driver, copies and fills
//!
//! Memory that comes straight from the driver, for programs that want no cache, and copies and fills of memory of any
//! kind.
//!
//! The caller owns the memory and frees it with the function that belongs to the one that allocated it. Copies and
//! fills are asynchronous: the memory must stay valid until the stream has done them. Frees may wait for all work of
//! the device.

use crate::{
    copy::{self, Pattern},
    error::Error,
    ffi::{Output, guard::guard, null, plinth_stream_t, span, status::plinth_status_t},
    memory,
    status::Status,
};
use std::ffi::c_void;

/// Allocates device memory straight from the driver, as cudaMalloc does: slow, and never cached. Thread-safe.
///
/// @param size Bytes; 0 gives NULL.
/// @param device The device's number; -1 for the current one.
/// @param pointer Out: the memory, aligned to 256 bytes at least. The caller owns it and frees it with
///        plinth_device_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a
///         message that tells request, free and total; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_malloc(size: usize, device: i32, pointer: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::alloc(size, device)? as *mut c_void);
        Ok(())
    })
}

/// Frees what plinth_device_malloc gave. As cudaFree does, it waits for all work of the memory's device. Thread-safe.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_device_malloc did not give or was freed already;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_free(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller hands the memory over.
    guard(|| memory::free(unsafe { span(pointer, 0) }))
}

/// Allocates pinned host memory straight from the driver, as cudaHostAlloc does: slow, and never cached. Every device
/// may use it, and copies to and from it do not wait. Thread-safe.
///
/// @param size Bytes; 0 gives NULL.
/// @param pointer Out: the memory, aligned to a page. The caller owns it and frees it with plinth_pinned_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_CAPTURE_FORBIDS;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pinned_malloc(size: usize, pointer: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::alloc_pinned(size)? as *mut c_void);
        Ok(())
    })
}

/// Frees what plinth_pinned_malloc gave. May wait for the device. Thread-safe.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_pinned_malloc did not give or was freed already;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pinned_free(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller hands the memory over.
    guard(|| memory::free_pinned(unsafe { span(pointer, 0) }))
}

/// Copies in a stream, between memories of any kind: host, pinned, this device's, another's. Returns without waiting,
/// except that pageable host memory may make it wait, as in CUDA. Thread-safe.
///
/// @param destination Where to; valid until the copy is done.
/// @param source Where from; valid until the copy is done. The two must not overlap.
/// @param bytes How much; 0 does nothing.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range that runs past the end of all
///         addresses; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode for pageable
///         host memory; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memcpy(
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller promises both ranges until the copy is done.
        let (to, from) = unsafe { (span(destination, bytes), span(source, bytes)) };
        copy::in_stream(to, from, stream as usize)
    })
}

/// Copies as torch's copy_ does, in the current streams of the devices that own the memory.
///
/// Between two devices, with or without peer access, the copy runs in the source device's current stream: it waits for
/// what the destination device's current stream has now, and the later work of that stream waits for it. Between host
/// and device it runs in the device's current stream. Within a device it runs in that device's current stream. Between
/// two places of host memory it waits for the current device's current stream. Thread-safe.
///
/// @param destination Where to; valid until the copy is done.
/// @param source Where from; valid until the copy is done. The two must not overlap.
/// @param bytes How much; 0 does nothing.
/// @param non_blocking Between host and device: false waits for the copy, true returns at once where the host memory is
///        pinned. Otherwise without effect.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range that runs past the end of all
///         addresses; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_copy(
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    non_blocking: bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller promises both ranges until the copy is done.
        let (to, from) = unsafe { (span(destination, bytes), span(source, bytes)) };
        copy::between_current_streams(to, from, non_blocking)
    })
}

/// Fills memory with one byte, in a stream. Returns without waiting. Thread-safe.
///
/// @param destination The memory, of a device that the stream's device has access to, or pinned; valid until the fill is
///        done.
/// @param value The byte.
/// @param bytes How much; 0 does nothing.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range that runs past the end of all
///         addresses, and for memory that the stream's device cannot reach; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memset(
    destination: *mut c_void,
    value: u8,
    bytes: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller promises the range until the fill is done.
        copy::fill(unsafe { span(destination, bytes) }, Pattern::One(value), stream as usize)
    })
}

/// Fills memory with a pattern of 1, 2 or 4 bytes, in a stream. Returns without waiting. Thread-safe.
///
/// @param destination The memory, of a device that the stream's device has access to, or pinned, aligned to the pattern;
///        valid until the fill is done.
/// @param pattern The pattern, read before the call returns.
/// @param pattern_size Its bytes: 1, 2 or 4.
/// @param bytes How much, a multiple of the pattern; 0 does nothing.
/// @param stream The stream; NULL for the current device's default stream.
/// @return As plinth_memset; PLINTH_ERROR_INVALID_VALUE also for another pattern_size, and for an address or a length
///         that is no multiple of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memset_pattern(
    destination: *mut c_void,
    pattern: *const c_void,
    pattern_size: usize,
    bytes: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        if pattern.is_null() {
            return Err(null("pattern"));
        }
        // SAFETY: the caller promises `pattern_size` readable bytes, and no alignment is assumed of them.
        let pattern = unsafe {
            match pattern_size {
                1 => Pattern::One(pattern.cast::<u8>().read()),
                2 => Pattern::Two(pattern.cast::<u16>().read_unaligned()),
                4 => Pattern::Four(pattern.cast::<u32>().read_unaligned()),
                _ => {
                    return Err(Error::new(
                        Status::INVALID_VALUE,
                        format!("a pattern has 1, 2 or 4 bytes, not {pattern_size}"),
                    ));
                }
            }
        };
        // SAFETY: the caller promises the range until the fill is done.
        copy::fill(unsafe { span(destination, bytes) }, pattern, stream as usize)
    })
}
