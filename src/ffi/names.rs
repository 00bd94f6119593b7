//! Names of streams and memory
//!
//! Names that the program gives to its streams and blocks of memory. Messages, reports of the sanitizer, snapshots and
//! profilers show them beside handles and addresses. Kernels have names of their own. While there was never a name,
//! nothing costs more.

use crate::{
    error::Result,
    ffi::{Output, guard::guard, owned_text, plinth_stream_t, status::plinth_status_t, string},
    memory, stream,
};
use std::ffi::{c_char, c_void};

/// Converts a name; NULL is the empty name.
///
/// # Safety
/// `name` is NULL or a NUL-terminated string.
unsafe fn name_of(name: *const c_char) -> Result<String> {
    if name.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the caller makes this promise.
    unsafe { string(name, "name") }
}

/// Names a stream, until plinth_stream_destroy or plinth_stream_unregister ends it.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param name The name, which is copied; NULL or "" removes the name.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_set_name(stream: plinth_stream_t, name: *const c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    guard(|| stream::set_name(stream as usize, &unsafe { name_of(name) }?))
}

/// Gets the name of a stream.
///
/// @param stream The stream; NULL for the current device's default stream.
/// @param name Out: the name; "" if the stream has none. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_stream_get_name(stream: plinth_stream_t, name: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let name = unsafe { Output::new(name, "name") }?;
        name.set(owned_text(&stream::name(stream as usize)?)?);
        Ok(())
    })
}

/// Names a block of memory, until it is freed with the function that belongs to its allocation. Memory that is
/// reallocated at the same address has no name, also if another library freed and allocated it. A profiler learns of such a
/// free at the next call about the memory.
///
/// @param pointer Any address in a live block: of the caching allocator or of another backend, of plinth_host_alloc, or
///        of memory that the driver knows, such as that of plinth_device_malloc.
/// @param name The name, which is copied; NULL or "" removes the name.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for other addresses, and for memory of another process; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_set_name(pointer: *const c_void, name: *const c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    guard(|| memory::set_memory_name(pointer as u64, &unsafe { name_of(name) }?))
}

/// Gets the name of a block of memory.
///
/// @param pointer Any address in a live block, as for plinth_memory_set_name.
/// @param name Out: the name; "" if the block has none. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_get_name(pointer: *const c_void, name: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let name = unsafe { Output::new(name, "name") }?;
        name.set(owned_text(&memory::memory_name(pointer as u64)?)?);
        Ok(())
    })
}
