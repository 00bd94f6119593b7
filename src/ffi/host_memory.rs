//! Pinned host memory
//!
//! Host memory that is locked in place, so that copies between it and a device do not wait. plinth_host_alloc has a
//! cache, as torch's pinned memory allocator has. plinth_host_register pins memory that the program has already.
//!
//! The caller owns each block and frees it with plinth_host_free, from any thread. A freed block is reused when the
//! streams that use it have passed the free. The library's own copies and fills note their streams themselves; for
//! other work call plinth_host_record_stream. Registered memory stays the program's, and must be unregistered before it
//! is freed.

use crate::{
    ffi::{Output, guard::guard, plinth_stream_t, span, status::plinth_status_t},
    memory, runtime, stream,
};
use std::ffi::c_void;

/// Allocates pinned host memory from what is cached, where possible: memory that every device may use, and whose copies do
/// not wait. Thread-safe.
///
/// Makes no call of the driver as long as there is a free block. Sizes are rounded up by less than an eighth: to multiples
/// of 64 bytes up to 512, then to one of eight sizes between each power of two and the next. Small blocks share pieces of
/// some 2 MiB that are pinned at once; above 1 MiB each block is pinned alone.
///
/// @param size Bytes; 0 gives NULL.
/// @param pointer Out: the memory, aligned to 64 bytes, from 4096 bytes on to 512, above 1 MiB to a page. Its contents are
///        whatever its last user left. The caller owns it and frees it with plinth_host_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY, after everything free went back to the driver
///         and what streams still used was waited for; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_alloc(size: usize, pointer: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::host_alloc(size as u64)? as *mut c_void);
        Ok(())
    })
}

/// Frees what plinth_host_alloc gave, from any thread. Never waits. Thread-safe.
///
/// Memory that no stream used is given out again at once. What streams used, by the copies and fills of this library or by
/// plinth_host_record_stream, stays out of use until they have passed this point; what a graph captured, until the graph and
/// all that was instantiated of it are gone.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_host_alloc did not give or was freed already;
///         PLINTH_ERROR_FORKED_CHILD. In a process that is exiting it does nothing, and succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_free(pointer: *mut c_void) -> plinth_status_t {
    guard(|| memory::host_free(pointer as u64))
}

/// Notes that work in a stream uses memory of plinth_host_alloc, so that after its free it stays out of use until the stream
/// has passed the free. For the program's own kernels and copies; plinth_memcpy, plinth_copy, plinth_memset and
/// plinth_memset_pattern note it themselves. Thread-safe.
///
/// In a stream that captures, the memory becomes the graph's: it stays out of use, though freed, as long as the graph or
/// anything that was instantiated of it is there. Where the driver cannot tell when that is, as before 11.3, the memory stays
/// out of use for good.
///
/// @param pointer An address in the memory, not only its first; NULL does nothing.
/// @param stream The stream; NULL for the current device's default stream. It must outlive the free.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what is in no such memory; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_record_stream(pointer: *const c_void, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| {
        let stream = stream::resolve(runtime::ready()?, stream as usize)?;
        memory::host_record_stream(pointer as u64, stream)
    })
}

/// Gives pinned memory back to the driver: every piece of which nothing is in use. Waits for no stream's work by itself, but
/// the driver may wait for the devices before it lets pinned memory go. Thread-safe.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER, with what could not go back still cached; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_empty_cache() -> plinth_status_t {
    guard(memory::host_empty_cache)
}

/// Tells whether an address is in pinned host memory, no matter who pinned it or how. Managed memory is not.
///
/// Any value may be asked about: it is looked up, not followed. Memory of plinth_host_alloc is known without a call of the
/// driver, also while it is free. Thread-safe.
///
/// @param pointer An address.
/// @param pinned Out: whether it is; false for NULL.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_pinned(pointer: *const c_void, pinned: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let pinned = unsafe { Output::new(pinned, "pinned") }?;
        pinned.set(memory::is_pinned(pointer as u64)?);
        Ok(())
    })
}

/// The memory is pinned for every context of the process, not only for the current one. The usual choice.
pub const PLINTH_HOST_REGISTER_PORTABLE: u32 = 1;
/// The memory is mapped for devices, which most drivers do anyway.
pub const PLINTH_HOST_REGISTER_MAPPED: u32 = 2;
/// The memory is of another device, such as a network card.
pub const PLINTH_HOST_REGISTER_IO_MEMORY: u32 = 4;
/// Devices only read the memory.
pub const PLINTH_HOST_REGISTER_READ_ONLY: u32 = 8;

/// Pins memory that the program has already, as cudaHostRegister does: copies to and from it do not wait then, and devices
/// may use it. Slow: it brings every page in and locks it. Thread-safe.
///
/// @param pointer The memory; best whole pages, since whole pages are pinned.
/// @param bytes How much.
/// @param flags PLINTH_HOST_REGISTER_ constants; torch's pin_memory has PORTABLE.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for 0 bytes, a range past the end of all addresses,
///         unknown flags, memory that is not there, and memory that is pinned already; PLINTH_ERROR_NOT_SUPPORTED for flags that
///         the device lacks; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_register(pointer: *mut c_void, bytes: usize, flags: u32) -> plinth_status_t {
    // SAFETY: the caller promises the range until it is registered no more.
    guard(|| memory::host_register(unsafe { span(pointer, bytes) }, flags))
}

/// Undoes plinth_host_register. To be called before the memory is freed, and when the devices are done with it; may wait for
/// them. Thread-safe.
///
/// @param pointer What plinth_host_register was given; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what is not registered; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug
///         mode; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_unregister(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller hands the registration over.
    guard(|| memory::host_unregister(unsafe { span(pointer, 0) }))
}
