//! Faults on demand, counts of driver calls, and what is still held, as C sees them.

use crate::{
    ffi::{
        Output,
        guard::{self, guard},
        null, owned_text,
        properties::write_growable,
        status::plinth_status_t,
        string,
    },
    init::testing,
    memory,
};
use std::{
    ffi::{c_char, c_void},
    mem,
};

/// Lets driver calls be made to fail, and counts them. For tests: it puts a layer before every driver call.
///
/// Must come before the first use of a device and the first question about one; PLINTH_FAULT_INJECTION=1 in the
/// environment does the same. Thread-safe.
///
/// @return PLINTH_OK; PLINTH_ERROR_ALREADY_INITIALIZED if it is too late.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_enable_fault_injection() -> plinth_status_t {
    guard(testing::enable_faults)
}

/// Makes one driver call fail, before it has any effect: the nth from now on, of all threads. It happens once.
///
/// A test runs a piece of work with nth = 1, 2, 3 and so on until plinth_tripped_fault tells that the work ended before
/// the fault, and so sees every failure that the driver could cause.
///
/// @param nth Which call from now on, the next being 1; 0 calls a fault off that has not happened yet.
/// @param driver_code The CUresult that it fails with; 2 is CUDA_ERROR_OUT_OF_MEMORY. Not 0, unless nth is.
/// @return PLINTH_OK; PLINTH_ERROR_NOT_SUPPORTED without plinth_enable_fault_injection; PLINTH_ERROR_INVALID_VALUE for a
///         driver_code of 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_inject_fault(nth: u64, driver_code: i32) -> plinth_status_t {
    guard(|| testing::inject_fault(nth, driver_code as u32))
}

/// Tells which driver call met the fault that plinth_inject_fault set last.
///
/// @return The call's name, a static text; NULL if none has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_tripped_fault() -> *const c_char {
    guard::value(std::ptr::null(), || testing::tripped_fault().map_or(std::ptr::null(), |name| name.as_ptr()))
}

/// Counts the calls of a driver function: always on the host device, and on a GPU with plinth_enable_fault_injection.
/// Thread-safe.
///
/// @param name The function, "cuMemCreate".
/// @param count Out: how often it was called in this process.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
///         PLINTH_ERROR_NOT_SUPPORTED where nobody counts; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_call_count(name: *const c_char, count: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the count, and NULL or a string.
        let (count, name) = unsafe { (Output::new(count, "count")?, string(name, "name")?) };
        count.set(testing::call_count(&name)?);
        Ok(())
    })
}

/// Tells what the calls of a driver function would have cost on an H200 (driver 580): the host device keeps account
/// of it. Thread-safe.
///
/// @param name The function, "cuMemCreate".
/// @param nanoseconds Out: the cost of all its calls in this process.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
///         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_call_cost(name: *const c_char, nanoseconds: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the cost, and NULL or a string.
        let (nanoseconds, name) = unsafe { (Output::new(nanoseconds, "nanoseconds")?, string(name, "name")?) };
        nanoseconds.set(testing::call_cost(&name)?);
        Ok(())
    })
}

/// Gives the driver's function of a name, for programs that call the driver themselves, on a GPU and on the host device
/// alike, and for measuring plinth against the bare call. Thread-safe.
///
/// @param name The function, with or without its version: "cuMemAlloc" or "cuMemAlloc_v2".
/// @param function Out: the function, of the type that cuda.h gives it. A function that the driver lacks is present
///        and returns CUDA_ERROR_NOT_SUPPORTED.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_entry_point(name: *const c_char, function: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer, and NULL or a string.
        let (function, name) = unsafe { (Output::new(function, "function")?, string(name, "name")?) };
        function.set(testing::entry_point(&name)?.cast_mut());
        Ok(())
    })
}

/// What the host device holds at a moment: for tests that nothing is lost.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_usage_t) before the call.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_usage_t {
    /// In: the size that the caller knows. Out: how much of it was filled.
    pub struct_size: usize,
    /// Bytes of device memory in use, all devices together.
    pub device_bytes: u64,
    /// Bytes of pinned host memory.
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
    /// Handles of physical memory.
    pub memory_handles: u64,
    /// Mappings of physical memory.
    pub mappings: u64,
    /// Reserved ranges of addresses.
    pub reservations: u64,
    /// Threads that work at this moment, or wait for work.
    pub threads: u64,
}

/// Tells what the host device holds. Thread-safe.
///
/// @param usage In: struct_size. Out: the counts, as far as struct_size reaches.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
///         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_usage(usage: *mut plinth_host_usage_t) -> plinth_status_t {
    guard(|| {
        if usage.is_null() {
            return Err(null("usage"));
        }
        let live = testing::live_resources()?;
        let found = plinth_host_usage_t {
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
        };
        // SAFETY: the caller passes a struct whose first field says its size; ours is plain data that begins likewise.
        unsafe { write_growable(usage, found, "usage") }
    })
}

/// Describes the driver calls that plinth uses, a line each: name, the CUDA version that brought it, and "required" or
/// "optional". Needs no device. Thread-safe.
///
/// @param text Out: the lines. The caller owns them and frees them with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_calls(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
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

/// Walks every structure of the caching allocator and of that of pinned memory, and checks that they agree. For tests, while no other
/// thread allocates or frees: what is in the middle of a step does not agree with itself.
///
/// @return PLINTH_OK; PLINTH_ERROR_PANIC with a message that names what is broken; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_testing_check_allocator() -> plinth_status_t {
    guard(|| memory::check().and_then(|()| memory::check_pinned()))
}
