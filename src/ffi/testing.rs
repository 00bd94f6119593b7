//! Testing
//!
//! Failures of driver calls on demand, counts of driver calls, and what the host device still holds, for tests of
//! plinth and of programs that use it.
//!
//! All of it holds for the whole process. A text that a function returns is the caller's, who frees it with
//! plinth_string_free.

use crate::{
    ffi::{
        Output,
        guard::{self, guard},
        owned_text,
        status::plinth_status_t,
        string,
        structs::StructOutput,
    },
    init::testing,
    memory,
};
use std::{
    ffi::{c_char, c_void},
    mem,
};

/// Enables the injection of driver errors, and counts driver calls. For tests: it adds an indirection to every driver
/// call.
///
/// Must be called before the first call that uses or queries a device. Setting PLINTH_FAULT_INJECTION=1 in the
/// environment has the same effect.
///
/// @return PLINTH_OK; PLINTH_ERROR_ALREADY_INITIALIZED if a device was used already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_enable_fault_injection() -> plinth_status_t {
    guard(|| {
        testing::enable_faults()?;
        Ok(())
    })
}

/// Makes one future driver call fail, before it has any effect: the nth from now on, counted over all threads. The
/// fault happens once.
///
/// A test runs an operation with nth = 1, 2, 3 and so on until plinth_tripped_fault reports that the operation ended
/// before the fault; it then has covered every driver failure.
///
/// @param nth The index of the call, where 1 is the next call; 0 cancels a pending fault.
/// @param driver_code The CUresult to return; 2 is CUDA_ERROR_OUT_OF_MEMORY. Must not be 0, unless nth is 0.
/// @return PLINTH_OK; PLINTH_ERROR_NOT_SUPPORTED without plinth_enable_fault_injection; PLINTH_ERROR_INVALID_VALUE for
///         a driver_code of 0; PLINTH_ERROR_INVALID_CONFIGURATION if PLINTH_FAULT_INJECTION is neither 1 nor 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_inject_fault(nth: u64, driver_code: i32) -> plinth_status_t {
    guard(|| testing::inject_fault(nth, driver_code as u32))
}

/// Returns the name of the driver call in which the last fault of plinth_inject_fault happened.
///
/// @return The name, a static string; NULL if the fault has not happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_tripped_fault() -> *const c_char {
    guard::value(std::ptr::null(), || testing::tripped_fault().map_or(std::ptr::null(), |name| name.as_ptr()))
}

/// Returns how often a driver function was called. Calls are counted on the host device, and on a GPU after
/// plinth_enable_fault_injection.
///
/// @param name The name of the function, for example "cuMemCreate".
/// @param count Out: the number of calls in this process.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
///         PLINTH_ERROR_NOT_SUPPORTED if calls are not counted; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_call_count(name: *const c_char, count: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer, and NULL or a NUL-terminated string.
        let (count, name) = unsafe { (Output::new(count, "count")?, string(name, "name")?) };
        count.set(testing::call_count(&name)?);
        Ok(())
    })
}

/// Returns the time that the calls of a driver function would have taken on an H200 (driver 580), by the host device's
/// cost model.
///
/// @param name The name of the function, for example "cuMemCreate".
/// @param nanoseconds Out: the total time of all calls in this process, in nanoseconds.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
///         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_call_cost(name: *const c_char, nanoseconds: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer, and NULL or a NUL-terminated string.
        let (nanoseconds, name) = unsafe { (Output::new(nanoseconds, "nanoseconds")?, string(name, "name")?) };
        nanoseconds.set(testing::call_cost(&name)?);
        Ok(())
    })
}

/// Returns the address of a driver function, for programs that call the driver themselves, on a GPU or on the host
/// device, and for benchmarks of plinth against the driver call.
///
/// A function that plinth uses (plinth_driver_calls lists them) has the version that plinth uses. Any other function of
/// the driver has the newest version that the driver knows; plinth_driver_entry_point_by_version finds a given one. The
/// host device has the functions that plinth uses.
///
/// @param name The name of the function: "cuMemAlloc"; of a function that plinth uses also with its version suffix,
///        "cuMemAlloc_v2".
/// @param function Out: the function, with the type that cuda.h declares. For a function that plinth uses and the driver
///        lacks, it is a stub that returns CUDA_ERROR_NOT_SUPPORTED.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a name that is no function of the driver;
///         PLINTH_ERROR_NOT_SUPPORTED for a function that plinth does not use if the driver is older than CUDA 12.0;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_entry_point(name: *const c_char, function: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer, and NULL or a NUL-terminated string.
        let (function, name) = unsafe { (Output::new(function, "function")?, string(name, "name")?) };
        function.set(testing::entry_point(&name)?.cast_mut());
        Ok(())
    })
}

/// Returns the address of a driver function as of a CUDA version: cuGetProcAddress, and
/// cudaGetDriverEntryPointByVersion of torch.cuda.cudart().
///
/// @param name The name of the function without a version suffix, for example "cuMemAlloc".
/// @param cuda_version The version of CUDA whose cuda.h declares the function as the program calls it, in CUDA's encoding:
///        13000 for 13.0. With 12000, a function is found as CUDA 12.0 declares it, whatever came later.
/// @param flags 0, or 1 (CU_GET_PROC_ADDRESS_LEGACY_STREAM) for the legacy default stream, or 2
///        (CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) for the variant that uses the default stream of each thread. The
///        host device has no such variants.
/// @param function Out: the function.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a name that is no function of the driver as
///         of that version, and for other flags; PLINTH_ERROR_NOT_SUPPORTED if the driver is older than CUDA 12.0;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_entry_point_by_version(
    name: *const c_char,
    cuda_version: i32,
    flags: u64,
    function: *mut *mut c_void,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer, and NULL or a NUL-terminated string.
        let (function, name) = unsafe { (Output::new(function, "function")?, string(name, "name")?) };
        function.set(testing::entry_point_by_version(&name, cuda_version, flags)?.cast_mut());
        Ok(())
    })
}

/// The resources that the host device holds at one time, for leak tests.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_usage_t) before the call.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_usage_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// Bytes of device memory in use, all devices together.
    pub device_bytes: u64,
    /// Bytes of pinned host memory in use.
    pub pinned_bytes: u64,
    /// Streams that were created and not destroyed.
    pub streams: u64,
    /// Events that were created and not destroyed.
    pub events: u64,
    /// Graphs that were created and not destroyed.
    pub graphs: u64,
    /// Executable graphs that were instantiated and not destroyed.
    pub executable_graphs: u64,
    /// Modules that were loaded and not unloaded.
    pub modules: u64,
    /// Physical memory handles that were created and not released.
    pub memory_handles: u64,
    /// Mappings of physical memory that were not unmapped.
    pub mappings: u64,
    /// Address ranges that were reserved and not freed.
    pub reservations: u64,
    /// Threads that are working or waiting for work.
    pub threads: u64,
}

/// Returns the resources that the host device holds.
///
/// @param usage In: struct_size. Out: the counts, as far as struct_size reaches.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
///         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_usage(usage: *mut plinth_host_usage_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let output = unsafe { StructOutput::new(usage, "usage") }?;
        let live = testing::live_resources()?;
        output.set(plinth_host_usage_t {
            struct_size: mem::size_of::<plinth_host_usage_t>(),
            device_bytes: live.device_bytes.iter().sum(),
            pinned_bytes: live.pinned_bytes,
            streams: live.streams as u64,
            events: live.events as u64,
            graphs: live.graphs as u64,
            executable_graphs: live.execs as u64,
            modules: live.modules as u64,
            memory_handles: live.handles as u64,
            mappings: live.mappings as u64,
            reservations: live.reservations as u64,
            threads: live.threads as u64,
        });
        Ok(())
    })
}

/// Lists the driver functions that plinth uses, one per line: name, the CUDA version that introduced it, and "required"
/// or "optional". Needs no device.
///
/// @param text Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_calls(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let text = unsafe { Output::new(text, "text") }?;
        let lines: Vec<String> = crate::driver::table::CALLS
            .iter()
            .map(|info| {
                let need = if info.required { "required" } else { "optional" };
                format!("{} {}.{} {need}", info.symbol, info.since / 1000, info.since % 1000 / 10)
            })
            .collect();
        text.set(owned_text(&lines.join("\n"))?);
        Ok(())
    })
}

/// Checks the internal consistency of the caching allocator and of the pinned memory allocator. For tests. No other
/// thread may allocate or free during the call, because operations in progress leave inconsistent intermediate states.
///
/// @return PLINTH_OK; PLINTH_ERROR_PANIC with a message that names the inconsistency; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_testing_check_allocator() -> plinth_status_t {
    guard(|| memory::check().and_then(|()| memory::check_pinned()))
}
