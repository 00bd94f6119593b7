//! Devices
//!
//! The devices of the process, numbered from 0 as CUDA_VISIBLE_DEVICES orders them. Nothing here is created or
//! destroyed. A device's context is made when the device is first used.
//!
//! Each thread has its own current device, which is 0 until the thread sets it. Access between devices, once enabled,
//! holds for the whole process.

use crate::{
    device,
    ffi::{
        Output,
        guard::{self, guard},
        null, owned_text,
        status::plinth_status_t,
    },
    kernel, memory, peer, runtime,
};
use std::ffi::{c_char, c_void};

/// Initializes the library: loads the driver and makes sure that there is a device.
///
/// Never needed: every call that uses a device does this first. Idempotent and thread-safe. Makes no context. After a
/// failure it may be tried again.
///
/// @return PLINTH_OK; PLINTH_ERROR_NO_DEVICE with a message that says how to run without a GPU;
///         PLINTH_ERROR_DRIVER_TOO_OLD with a message that names the missing call; PLINTH_ERROR_STUB_LIBRARY;
///         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN;
///         PLINTH_ERROR_DRIVER. These are "the errors of initialization" of all other calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_init() -> plinth_status_t {
    guard(|| runtime::ready().map(drop))
}

/// Tells whether there is a device to use. Never fails, and does not initialize the library.
///
/// @return Whether plinth_device_count would say more than 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_available() -> bool {
    guard::value(false, || device::count().is_ok_and(|count| count > 0))
}

/// Tells whether the library is initialized and usable; false in a child made by fork.
///
/// @return Whether it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_initialized() -> bool {
    guard::value(false, runtime::is_initialized)
}

/// Counts the devices that the process may see. CUDA_VISIBLE_DEVICES has its say, on the host device too.
///
/// Thread-safe. Loads the driver, but does not initialize the library. Where there is no driver or no device the
/// count is 0, and that is no error.
///
/// @param count Out: the count.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_count(count: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the count.
        let count = unsafe { Output::new(count, "count") }?;
        count.set(device::count()? as i32);
        Ok(())
    })
}

/// Tells the calling thread's current device: 0 until it is set.
///
/// plinth keeps it for each thread. Setting it with plinth_set_device also makes the device current for the CUDA
/// runtime and driver; a device set there behind plinth's back is not seen here, and each call of plinth that depends
/// on the current device uses plinth's.
///
/// @param device Out: the device's number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_device(device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let output = unsafe { Output::new(device, "device") }?;
        output.set(device::current()?);
        Ok(())
    })
}

/// Makes a device the calling thread's current one, for plinth and for CUDA. Makes its context if need be.
///
/// @param device The device's number; a negative one does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_device(device: i32) -> plinth_status_t {
    guard(|| device::set(device))
}

/// Tells whose memory a pointer is.
///
/// The pointer may lie anywhere in the memory, and any value may be asked about: it is looked up, not followed.
/// Thread-safe.
///
/// @param pointer An address.
/// @param device Out: the number of the device whose memory it is; -1 for host memory, pinned or not, for NULL, and
///        for what is no memory at all. A value for plinth_exchange_device, as torch's device_of context uses it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL device; the errors of initialization; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_of(pointer: *const c_void, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let output = unsafe { Output::new(device, "device") }?;
        output.set(memory::device_of(pointer as u64)?.map_or(-1, |device| device as i32));
        Ok(())
    })
}

/// Tells the name of a device, "NVIDIA H200". Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param name Out: the name, NUL-terminated. A name that does not fit is cut to capacity - 1 bytes.
/// @param capacity The bytes that name can take, at least 1; 256 is always enough.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a capacity of 0;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_name(device: i32, name: *mut c_char, capacity: usize) -> plinth_status_t {
    guard(|| {
        if name.is_null() {
            return Err(null("name"));
        }
        if capacity == 0 {
            return Err(crate::error::Error::new(crate::status::Status::INVALID_VALUE, "capacity is 0"));
        }
        let runtime = runtime::ready()?;
        let text = &runtime.device(device)?.properties(&runtime.driver)?.name;
        let length = text.len().min(capacity - 1);
        // SAFETY: the caller promises room for `capacity` bytes, of which length + 1 are written; the text has at
        // least `length`, and cannot overlap memory that the caller may write.
        unsafe {
            name.copy_from_nonoverlapping(text.as_ptr().cast(), length);
            name.add(length).write(0);
        }
        Ok(())
    })
}

/// Tells the compute capability of a device. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param major Out: the first part, 9 on an H200.
/// @param minor Out: the second part, 0 on an H200.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_capability(
    device: i32,
    major: *mut i32,
    minor: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or places for the numbers.
        let (major, minor) = unsafe { (Output::new(major, "major")?, Output::new(minor, "minor")?) };
        let runtime = runtime::ready()?;
        let properties = runtime.device(device)?.properties(&runtime.driver)?;
        major.set(properties.major);
        minor.set(properties.minor);
        Ok(())
    })
}

/// Tells whether one device can be given access to the memory of another. Thread-safe; makes no context.
///
/// @param device The device that would access; -1 for the current one.
/// @param peer The device whose memory it would access; -1 for the current one.
/// @param can_access Out: the answer; false for a device and itself, as CUDA answers.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_can_device_access_peer(
    device: i32,
    peer: i32,
    can_access: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let can_access = unsafe { Output::new(can_access, "can_access") }?;
        can_access.set(peer::can_access(device, peer)?);
        Ok(())
    })
}

/// Gives a device access to the memory that another has allocated, and will allocate, with plinth_device_malloc or
/// cudaMalloc. One direction only. Does nothing where that is so already, and for a device and itself. Thread-safe.
///
/// @param device The device that will access; -1 for the current one.
/// @param peer The device whose memory it will access; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_enable_peer_access(device: i32, peer: i32) -> plinth_status_t {
    guard(|| peer::enable(device, peer))
}

/// Takes back what plinth_enable_peer_access gave. Does nothing where there is nothing to take back. Thread-safe.
///
/// @param device The device that accessed; -1 for the current one.
/// @param peer The device whose memory it accessed; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_disable_peer_access(device: i32, peer: i32) -> plinth_status_t {
    guard(|| peer::disable(device, peer))
}

/// Waits until all work on a device is done, in every stream. Reports errors of that work. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode;
///         PLINTH_ERROR_CAPTURE_FORBIDS while a stream of it captures; PLINTH_ERROR_ILLEGAL_ADDRESS,
///         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_synchronize(device: i32) -> plinth_status_t {
    guard(|| device::synchronize(device))
}

/// Tells how much memory of a device is free, all processes counted: the driver's view, to which memory that an
/// allocator holds in its cache is not free. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param free_bytes Out: the bytes that are free.
/// @param total_bytes Out: the bytes that there are.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_get_info(
    device: i32,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or places for the numbers.
        let (free_bytes, total_bytes) =
            unsafe { (Output::new(free_bytes, "free_bytes")?, Output::new(total_bytes, "total_bytes")?) };
        let (free, total) = device::memory_info(device)?;
        free_bytes.set(free);
        total_bytes.set(total);
        Ok(())
    })
}

/// Lists the architectures that the library's own kernels are compiled for, separated by spaces: "compute_75" is PTX
/// that the driver compiles for every device from compute capability 7.5 on. Empty where there is no device.
///
/// Thread-safe.
///
/// @param text Out: the list. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization except
///         PLINTH_ERROR_NO_DEVICE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_arch_list(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let text = unsafe { Output::new(text, "text") }?;
        let list = if device::count()? > 0 { kernel::arch_list().join(" ") } else { String::new() };
        text.set(owned_text(&list)?);
        Ok(())
    })
}

/// Tells the compiler flags for the architectures of plinth_get_arch_list, in torch's form, which says "compute="
/// where nvcc says "arch=". Empty where there is no device. Thread-safe.
///
/// @param text Out: the flags. The caller owns them and frees them with plinth_string_free.
/// @return As plinth_get_arch_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_gencode_flags(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let text = unsafe { Output::new(text, "text") }?;
        let flags = if device::count()? > 0 { kernel::gencode_flags() } else { String::new() };
        text.set(owned_text(&flags)?);
        Ok(())
    })
}

/// Frees a text that the library gave to the caller. NULL does nothing. Thread-safe.
///
/// @param text The text, which must have come from a call that says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_string_free(text: *mut c_char) {
    guard::value((), || {
        // SAFETY: the caller passes NULL or a text of `owned_text`, which is the C allocator's.
        unsafe { libc::free(text.cast()) }
    });
}
