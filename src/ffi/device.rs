//! Devices
//!
//! The devices of the process, numbered from 0 as CUDA_VISIBLE_DEVICES orders them. Nothing here is created or
//! destroyed. A device's context is made when the device is first used.
//!
//! Each thread has its own current device, which is 0 until the thread sets it. Access between devices, once enabled,
//! holds for the whole process.

use crate::{
    ffi::{
        Output,
        guard::{self, guard, guard_short},
        null, owned_text,
        status::plinth_status_t,
    },
    memory::{self, peer},
    runtime::{self, availability, device},
    stream::{self, kernel},
};
use std::ffi::{c_char, c_void};

/// Initializes the library: loads the driver and checks that there is a device.
///
/// The call is optional: every call that uses a device initializes the library first. It may be repeated, also after
/// a failure. Creates no context.
///
/// @return PLINTH_OK; PLINTH_ERROR_NO_DEVICE with a message that says how to run without a GPU;
///         PLINTH_ERROR_DRIVER_TOO_OLD with a message that names the missing function; PLINTH_ERROR_STUB_LIBRARY;
///         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN;
///         PLINTH_ERROR_DRIVER. These are "the errors of initialization" of all other calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_init() -> plinth_status_t {
    guard(|| runtime::ready().map(drop))
}

/// Checks whether a device is available. Never fails, and does not initialize the driver, as plinth_device_count.
///
/// @return Whether plinth_device_count would report more than 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_available() -> bool {
    guard::value(false, || availability::count().is_ok_and(|count| count > 0))
}

/// Checks whether the library is initialized and usable; false in a child process created by fork.
///
/// @return Whether it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_initialized() -> bool {
    guard::value(false, runtime::is_initialized)
}

/// Counts the devices that are visible to the process. CUDA_VISIBLE_DEVICES applies, also to the host device.
///
/// Does not initialize the driver, so a process can count its devices and then fork children that use them: NVML counts
/// the GPUs. The driver counts them, and is initialized, if NVML is not installed, for MIG instances, and with
/// PLINTH_NVML_BASED_CUDA_CHECK=0 in the environment. If there is no driver or no device, the count is 0, which is not
/// an error.
///
/// @param count Out: the number of devices.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_count(count: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let count = unsafe { Output::new(count, "count") }?;
        count.set(availability::count()? as i32);
        Ok(())
    })
}

/// Gets the calling thread's current device, initially 0.
///
/// plinth stores the current device of each thread. plinth_set_device also makes the device current for the CUDA
/// runtime and driver. A device that the program sets directly with CUDA is not visible here: each call of plinth
/// that depends on the current device uses plinth's.
///
/// @param device Out: the device index.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_current_device(device: *mut i32) -> plinth_status_t {
    guard_short(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(device, "device") }?;
        output.set(device::current()?);
        Ok(())
    })
}

/// Sets the calling thread's current device, for plinth and for CUDA. Creates the device's context if necessary.
///
/// @param device The device index; a negative one does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_device(device: i32) -> plinth_status_t {
    guard_short(|| device::set(device))
}

/// Gets the device to whose memory a pointer belongs.
///
/// The pointer may be anywhere in the memory, and may have any value: it is looked up, not dereferenced.
///
/// @param pointer An address.
/// @param device Out: the device index; -1 for host memory, pinned or not, for NULL, and for an address that is not
///        in any memory. The value suits plinth_exchange_device, as torch's device_of context uses it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL device; the errors of initialization; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_device_of(pointer: *const c_void, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(device, "device") }?;
        output.set(memory::device_of(pointer as u64)?.map_or(-1, |device| device as i32));
        Ok(())
    })
}

/// Gets the name of a device, such as "NVIDIA H200".
///
/// @param device The device index; -1 for the current device.
/// @param name Out: the name, NUL-terminated. A longer name is truncated to capacity - 1 bytes.
/// @param capacity The size of `name` in bytes, at least 1; 256 is always enough.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a capacity of 0;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_name(device: i32, name: *mut c_char, capacity: usize) -> plinth_status_t {
    guard(|| {
        if name.is_null() {
            return Err(null("name"));
        }
        if capacity == 0 {
            return Err(crate::error::Error::new(
                crate::status::Status::INVALID_VALUE,
                "capacity is 0; pass the size of name in bytes",
            ));
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

/// Gets the compute capability of a device.
///
/// @param device The device index; -1 for the current device.
/// @param major Out: the major version, 9 on an H200.
/// @param minor Out: the minor version, 0 on an H200.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_capability(
    device: i32,
    major: *mut i32,
    minor: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or pointers that are valid for writes.
        let (major, minor) = unsafe { (Output::new(major, "major")?, Output::new(minor, "minor")?) };
        let runtime = runtime::ready()?;
        let properties = runtime.device(device)?.properties(&runtime.driver)?;
        major.set(properties.major);
        minor.set(properties.minor);
        Ok(())
    })
}

/// Checks whether one device can access the memory of another. Creates no context.
///
/// @param device The device that would access; -1 for the current device.
/// @param peer The device whose memory it would access; -1 for the current device.
/// @param can_access Out: whether it can; false if both are the same device, as in CUDA.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_can_device_access_peer(
    device: i32,
    peer: i32,
    can_access: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let can_access = unsafe { Output::new(can_access, "can_access") }?;
        can_access.set(peer::can_access(device, peer)?);
        Ok(())
    })
}

/// Enables access of one device to the memory of another, in one direction.
///
/// The access covers existing and later allocations with plinth_device_malloc or cudaMalloc. Does nothing if the
/// access is already enabled or if both are the same device.
///
/// @param device The device that will access; -1 for the current device.
/// @param peer The device whose memory it will access; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_enable_peer_access(device: i32, peer: i32) -> plinth_status_t {
    guard(|| peer::enable(device, peer))
}

/// Disables access that plinth_enable_peer_access enabled. Does nothing if the access is not enabled.
///
/// @param device The device that accessed; -1 for the current device.
/// @param peer The device whose memory it accessed; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_disable_peer_access(device: i32, peer: i32) -> plinth_status_t {
    guard(|| peer::disable(device, peer))
}

/// Waits until all work in all streams of a device is done. Reports errors of that work.
///
/// @param device The device index; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids it;
///         PLINTH_ERROR_CAPTURE_FORBIDS while a stream of the device captures, whose capture stays valid if plinth began
///         it; PLINTH_ERROR_ILLEGAL_ADDRESS,
///         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_synchronize(device: i32) -> plinth_status_t {
    guard(|| stream::synchronize_device(device))
}

/// Gets the free and total memory of a device, as the driver reports them for all processes. Memory that an allocator
/// caches is not free. On the host device other processes count only if they have the same PLINTH_HOST_MEMORY_NAME in
/// their environment; without that name each process has a device's memory to itself.
///
/// @param device The device index; -1 for the current device.
/// @param free_bytes Out: the free memory in bytes.
/// @param total_bytes Out: the total memory in bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_get_info(
    device: i32,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or pointers that are valid for writes.
        let (free_bytes, total_bytes) =
            unsafe { (Output::new(free_bytes, "free_bytes")?, Output::new(total_bytes, "total_bytes")?) };
        let (free, total) = device::memory_info(device)?;
        free_bytes.set(free);
        total_bytes.set(total);
        Ok(())
    })
}

/// Lists the architectures for which the library's own kernels are compiled, separated by spaces.
///
/// "compute_75" is PTX that the driver compiles for every device of compute capability 7.5 or higher. The list is
/// empty if there is no device.
///
/// @param text Out: the list. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization except
///         PLINTH_ERROR_NO_DEVICE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_arch_list(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let text = unsafe { Output::new(text, "text") }?;
        let list = if availability::count()? > 0 { kernel::arch_list().join(" ") } else { String::new() };
        text.set(owned_text(&list)?);
        Ok(())
    })
}

/// Gets the compiler flags for the architectures of plinth_get_arch_list.
///
/// The flags have torch's form, with "compute=" instead of nvcc's "arch=". The text is empty if there is no device.
///
/// @param text Out: the flags. The caller owns them and frees them with plinth_string_free.
/// @return As plinth_get_arch_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_gencode_flags(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let text = unsafe { Output::new(text, "text") }?;
        let flags = if availability::count()? > 0 { kernel::gencode_flags() } else { String::new() };
        text.set(owned_text(&flags)?);
        Ok(())
    })
}

/// Frees a text that the library returned to the caller. NULL does nothing.
///
/// @param text The text, from a function that says that the caller frees it with plinth_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_string_free(text: *mut c_char) {
    guard::value((), || {
        // SAFETY: the caller passes NULL or a text from `owned_text`, which the C allocator allocated.
        unsafe { libc::free(text.cast()) }
    });
}
