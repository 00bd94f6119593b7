//! Memory of the driver, copies and fills
//!
//! Memory that comes straight from the driver, for programs that want no cache, and copies and fills of memory of any
//! kind.
//!
//! The caller owns the memory and frees it with the function that belongs to the one that allocated it. Copies and
//! fills are asynchronous: the memory must stay valid until the stream has done them. Frees may wait for all work of
//! the device.

use crate::{
    error::Error,
    ffi::{
        Output,
        guard::{guard, guard_short, release},
        null, plinth_stream_t, span,
        status::plinth_status_t,
        tensor::{DLTensor, tensor_anywhere},
    },
    memory,
    ops::{
        copy::{self, Pattern, Rows},
        copy_tensor::copy_tensor,
    },
    status::Status,
};
use std::ffi::c_void;

/// Allocates device memory from the driver, as cudaMalloc does. Slow; the memory is not cached.
///
/// @param size Number of bytes; 0 returns NULL.
/// @param device The device number; -1 for the current device.
/// @param pointer Out: the memory, aligned to at least 256 bytes. The caller owns it and frees it with
///        plinth_device_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a message
///         that states the requested, free and total bytes; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_malloc(size: usize, device: i32, pointer: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::alloc(size, device)? as *mut c_void);
        Ok(())
    })
}

/// Frees memory of plinth_device_malloc. Waits for all work of the memory's device, as cudaFree does.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_device_malloc did not return, or that was
///         freed already; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
///         PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_free(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller transfers the memory to this call.
    release(|| memory::free(unsafe { span(pointer, 0) }))
}

/// Allocates pinned host memory from the driver, as cudaHostAlloc does. Slow; the memory is not cached. Every device
/// can access it, and copies to and from it are asynchronous.
///
/// @param size Number of bytes; 0 returns NULL.
/// @param pointer Out: the memory, aligned to a page. The caller owns it and frees it with plinth_pinned_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_CAPTURE_FORBIDS;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pinned_malloc(size: usize, pointer: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::alloc_pinned(size)? as *mut c_void);
        Ok(())
    })
}

/// Frees memory of plinth_pinned_malloc. May wait for the device.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_pinned_malloc did not return, or that was
///         freed already; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
///         PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pinned_free(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller transfers the memory to this call.
    release(|| memory::free_pinned(unsafe { span(pointer, 0) }))
}

/// Copies memory in a stream, between any two kinds of memory: pageable or pinned host memory, memory of the stream's
/// device, memory of another device. Asynchronous; as in CUDA, the call may wait if one side is pageable host memory.
///
/// @param destination The destination; must stay valid until the copy is complete.
/// @param source The source; must stay valid until the copy is complete. The two ranges must not overlap.
/// @param bytes Number of bytes; 0 does nothing.
/// @param stream The stream; NULL for the default stream of the destination's device, or of the source's if the
///        destination is in host memory.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range past the end of the address
///         space; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE for pageable host memory if the sync
///         debug mode forbids the wait; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memcpy(
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller promises that both ranges stay valid until the copy is complete.
        let (to, from) = unsafe { (span(destination, bytes), span(source, bytes)) };
        copy::in_stream(to, from, stream as usize)
    })
}

/// Copies memory as torch's copy_ does, in the current streams of the devices that own the memory.
///
/// Between two devices, with or without peer access, the copy runs in the source device's current stream: that stream
/// first waits for the work in the destination device's current stream, and later work of the destination's stream
/// waits for the copy. Between host and device, and within a device, the copy runs in the device's current stream.
/// Between two ranges of host memory, the call waits for the current device's current stream.
///
/// @param destination The destination; must stay valid until the copy is complete.
/// @param source The source; must stay valid until the copy is complete. The two ranges must not overlap.
/// @param bytes Number of bytes; 0 does nothing.
/// @param non_blocking Between host and device: false waits for the copy; true returns at once if the host memory is
///        pinned. Ignored otherwise.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range past the end of the address
///         space; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait; PLINTH_ERROR_CAPTURE_FORBIDS
///         for a copy that would wait for a stream that is capturing, and for a captured one between devices without peer
///         access, which leaves the capture valid; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_copy(
    destination: *mut c_void,
    source: *const c_void,
    bytes: usize,
    non_blocking: bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller promises that both ranges stay valid until the copy is complete.
        let (to, from) = unsafe { (span(destination, bytes), span(source, bytes)) };
        copy::between_current_streams(to, from, non_blocking)
    })
}

/// Copies rows of bytes in a stream, between any two kinds of memory: cudaMemcpy2DAsync with cudaMemcpyDefault.
/// Asynchronous; as in CUDA, the call may wait if one side is pageable host memory.
///
/// @param destination The first row of the destination; all rows must stay valid until the copy is complete.
/// @param destination_pitch Distance between the beginnings of two rows of the destination, in bytes: at least
///        width_bytes, at most 2147483647.
/// @param source The first row of the source; all rows must stay valid until the copy is complete. No row of the source
///        may overlap a row of the destination.
/// @param source_pitch Distance between the beginnings of two rows of the source, in bytes, with the same limits.
/// @param width_bytes Number of bytes of a row; 0 does nothing.
/// @param height Number of rows; 0 does nothing.
/// @param stream The stream; NULL for the default stream of the destination's device, or of the source's if the
///        destination is in host memory.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a pitch out of its limits and for rows
///         past the end of the address space; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE for pageable
///         host memory if the sync debug mode forbids the wait; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memcpy_2d(
    destination: *mut c_void,
    destination_pitch: usize,
    source: *const c_void,
    source_pitch: usize,
    width_bytes: usize,
    height: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller promises that all rows stay valid until the copy is complete.
        let (to, from) = unsafe { (span(destination, 0), span(source, 0)) };
        let (to, from) = (Rows { memory: to, pitch: destination_pitch }, Rows { memory: from, pitch: source_pitch });
        copy::rows_in_stream(to, from, (width_bytes, height), stream as usize)
    })
}

/// Copies the elements of a tensor to another: torch.Tensor.copy_. The tensors may have any strides, also negative ones,
/// different element types, and be on devices or on the CPU.
///
/// The source is broadcast to the shape of the destination: it has at most as many dimensions, and each of them, counted
/// from the last, is 1 or that of the destination. Elements are converted as torch converts them on a GPU: floating-point
/// numbers are truncated towards 0 to integers, and rounded to the nearest, ties to even, in narrower floating-point
/// types; integers that are too wide lose their high bits; complex numbers lose their imaginary part; bool is true for
/// everything but 0, also for NaN. What a float becomes in an integer type that cannot hold it is undefined in torch; here
/// it is what a GPU computes: the nearest value of a 32- or 64-bit type, whose low bits an 8- or 16-bit type keeps; for
/// NaN 0, or the highest bit alone if one of the types has 64 bits.
///
/// Streams are those of plinth_copy: between two devices, the copy runs in the source device's current stream, after the
/// present work of the destination device's current stream and before its later work; between host and device, and
/// within a device, in the device's current stream. Elements are converted and rearranged on the device, with temporary
/// memory of the caching allocator if the tensors are not on one device; between two tensors of the CPU, the call waits for
/// the current device's current stream, and the CPU copies. Captures contain the copy; one that the CPU would wait for is
/// refused there.
///
/// A tensor with kDLCPU memory may be in pageable or in pinned memory.
///
/// @param destination The destination; its memory must stay valid until the copy is complete. No two of its elements may be
///        in one place.
/// @param source The source; its memory must stay valid until the copy is complete. It may be the destination itself, but
///        must not overlap it otherwise.
/// @param non_blocking Between host and device: false waits for the copy; true returns at once if the host memory is
///        pinned. Ignored otherwise.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tensor that is not described correctly,
///         for shapes that cannot be broadcast, for a destination with several elements in one place, and for dense
///         tensors that overlap; PLINTH_ERROR_DEVICE_MISMATCH for a device type other than those of CUDA and the CPU;
///         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode
///         forbids the wait; PLINTH_ERROR_CAPTURE_FORBIDS if the CPU would wait for a stream that is capturing, or if devices
///         without peer access would take part in a capture: nothing is enqueued, and the capture stays valid;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_copy_tensor(
    destination: *const DLTensor,
    source: *const DLTensor,
    non_blocking: bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or valid descriptions, whose elements stay valid until the copy is complete.
        let (to, from) = unsafe {
            let (to, from) = (destination.as_ref(), source.as_ref());
            let (to, from) = (to.ok_or_else(|| null("destination"))?, from.ok_or_else(|| null("source"))?);
            (
                tensor_anywhere(to, to.dtype.element("destination")?, "destination")?,
                tensor_anywhere(from, from.dtype.element("source")?, "source")?,
            )
        };
        copy_tensor(&to, &from, non_blocking)
    })
}

/// Sets every byte of a range of memory to one value, in a stream. Asynchronous.
///
/// @param destination The memory: of the stream's device, of a device that it has access to, or pinned. Must stay valid
///        until the fill is complete.
/// @param value The byte.
/// @param bytes Number of bytes; 0 does nothing.
/// @param stream The stream; NULL for the default stream of the memory's device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range past the end of the address
///         space, and for memory that the stream's device cannot access; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memset(
    destination: *mut c_void,
    value: u8,
    bytes: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller promises that the range stays valid until the fill is complete.
        copy::fill(unsafe { span(destination, bytes) }, Pattern::One(value), stream as usize)
    })
}

/// Fills memory with a pattern of 1, 2 or 4 bytes, in a stream. Asynchronous.
///
/// @param destination The memory, aligned to pattern_size: of the stream's device, of a device that it has access to,
///        or pinned. Must stay valid until the fill is complete.
/// @param pattern The pattern; read before the call returns.
/// @param pattern_size Size of the pattern in bytes: 1, 2 or 4.
/// @param bytes Number of bytes to fill, a multiple of pattern_size; 0 does nothing.
/// @param stream The stream; NULL for the default stream of the memory's device.
/// @return The statuses of plinth_memset; PLINTH_ERROR_INVALID_VALUE also for another pattern_size, and for an address
///         or a length that is not a multiple of it.
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
        // SAFETY: the caller promises `pattern_size` readable bytes; the reads assume no alignment.
        let pattern = unsafe {
            match pattern_size {
                1 => Pattern::One(pattern.cast::<u8>().read()),
                2 => Pattern::Two(pattern.cast::<u16>().read_unaligned()),
                4 => Pattern::Four(pattern.cast::<u32>().read_unaligned()),
                _ => {
                    return Err(Error::new(
                        Status::INVALID_VALUE,
                        format!("pattern_size is {pattern_size}; it must be 1, 2 or 4 bytes"),
                    ));
                }
            }
        };
        // SAFETY: the caller promises that the range stays valid until the fill is complete.
        copy::fill(unsafe { span(destination, bytes) }, pattern, stream as usize)
    })
}
