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
    ffi::{
        Output,
        guard::{guard, guard_short, release, release_short},
        plinth_stream_t, span,
        status::plinth_status_t,
    },
    memory, runtime, stream,
};
use std::ffi::c_void;

/// Allocates pinned host memory from the cache. Every device can access the memory, and copies to and from it are
/// asynchronous.
///
/// Makes no driver call while the cache has a free block of the size class. Sizes are rounded up by less than one
/// eighth: to multiples of 64 bytes up to 512, then to one of eight sizes between each power of two and the next. Small
/// blocks are cut from slabs of about 2 MiB, each pinned by one driver call; a block above 1 MiB is pinned on its own.
///
/// @param size Number of bytes; 0 returns NULL.
/// @param pointer Out: the memory, aligned to 64 bytes; to 512 bytes from 4096 bytes on; to a page above 1 MiB. Its
///        contents are undefined. The caller owns it and frees it with plinth_host_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY, after the cache released all free memory
///         to the driver and waited for the blocks that streams still used; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_alloc(size: usize, pointer: *mut *mut c_void) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::host_alloc(size as u64)? as *mut c_void);
        Ok(())
    })
}

/// Frees memory of plinth_host_alloc. Never waits.
///
/// A block that no stream used can be reused at once. A block that streams used (by the library's copies and fills, or
/// by plinth_host_record_stream) can be reused when these streams have passed the point of this call. A block that a
/// graph captured can be reused when the graph and all of its executable graphs are destroyed.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_host_alloc did not return, or that was freed
///         already. In a process that is exiting it does nothing, and succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_free(pointer: *mut c_void) -> plinth_status_t {
    release_short(|| memory::host_free(pointer as u64))
}

/// Records that work in a stream uses memory of plinth_host_alloc: after the memory is freed, it is not reused before
/// the stream has passed the point of the free. Call it for your own kernels and copies; plinth_memcpy, plinth_copy,
/// plinth_memset and plinth_memset_pattern record their streams themselves.
///
/// If the stream is capturing, the graph keeps the memory: after a free it is not reused as long as the graph or one of
/// its executable graphs exists. If the driver cannot report when that is (before CUDA 11.3), the memory is never
/// reused.
///
/// @param pointer Any address in the memory; NULL does nothing.
/// @param stream The stream; NULL for the current device's default stream. It must not be destroyed before the memory
///        is freed.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for an address that is not in memory of plinth_host_alloc;
///         PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_record_stream(pointer: *const c_void, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| {
        let stream = stream::resolve(runtime::ready()?, stream as usize)?;
        memory::host_record_stream(pointer as u64, stream)
    })
}

/// Releases unused pinned memory to the driver: every driver allocation in which no block is in use. The call itself
/// waits for no stream, but the driver may wait for the devices before it unpins memory.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER (memory that could not be released stays cached); the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_empty_cache() -> plinth_status_t {
    guard(|| {
        memory::host_empty_cache()?;
        Ok(())
    })
}

/// Reports whether an address is in pinned host memory, whatever pinned it. Managed memory is not pinned memory.
///
/// Every value is valid: the address is looked up, not dereferenced. Memory of plinth_host_alloc, in use or free, is
/// found without a driver call.
///
/// @param pointer An address.
/// @param pinned Out: whether the address is in pinned memory; false for NULL.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_pinned(pointer: *const c_void, pinned: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pinned = unsafe { Output::new(pinned, "pinned") }?;
        pinned.set(memory::is_pinned(pointer as u64)?);
        Ok(())
    })
}

/// Pins the memory for every context of the process, not only for the current one. The usual choice.
pub const PLINTH_HOST_REGISTER_PORTABLE: u32 = 1;
/// Maps the memory for devices. Most drivers do so without this flag.
pub const PLINTH_HOST_REGISTER_MAPPED: u32 = 2;
/// The memory belongs to another device, such as a network card.
pub const PLINTH_HOST_REGISTER_IO_MEMORY: u32 = 4;
/// Devices only read the memory.
pub const PLINTH_HOST_REGISTER_READ_ONLY: u32 = 8;

/// Pins memory that the program has allocated, as cudaHostRegister does. Copies to and from it are asynchronous
/// afterwards, and devices can access it. Slow: the driver faults in and locks every page.
///
/// @param pointer The memory. Whole pages are pinned, so it should begin and end at a page.
/// @param bytes Number of bytes.
/// @param flags A combination of PLINTH_HOST_REGISTER_ constants; torch's pin_memory uses PORTABLE.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for 0 bytes, a range past the end of the
///         address space, unknown flags, memory that is not mapped, and memory that is pinned already;
///         PLINTH_ERROR_NOT_SUPPORTED for flags that the device does not support; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_register(pointer: *mut c_void, bytes: usize, flags: u32) -> plinth_status_t {
    // SAFETY: the caller promises that the range stays valid until it is unregistered.
    guard(|| memory::host_register(unsafe { span(pointer, bytes) }, flags))
}

/// Unpins memory of plinth_host_register. Call it before the memory is freed, when the devices have finished with the
/// memory. May wait for the devices.
///
/// @param pointer The address that was passed to plinth_host_register; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that is not registered; PLINTH_ERROR_WOULD_SYNCHRONIZE if
///         the sync debug mode forbids the wait; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_unregister(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller transfers the registration to this call.
    release(|| memory::host_unregister(unsafe { span(pointer, 0) }))
}
