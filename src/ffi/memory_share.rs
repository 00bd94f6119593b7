//! A device that processes share
//!
//! Several processes of a user on one device: each has a budget, the most memory that its allocator holds, and a floor. A
//! process whose request finds no memory asks the others for memory that they hold but do not use, before it waits for its
//! own work. They give back what is free above their floors, the oldest first: those that needed no more memory for the
//! longest time are asked first, and each begins with the streams that it used least recently. Memory that a stream's work may
//! still use is given back when that work is done, for which both processes wait for at most 5 s.
//!
//! A thread of each process answers as long as the device is shared. Allocations and frees that need no memory from the
//! driver do not pay for any of this. A process that ends, in whatever way, gives all its memory back.
//!
//! The functions may be called from any thread.

use crate::{
    error::Result,
    ffi::{
        guard::guard,
        status::plinth_status_t,
        string,
        structs::{self, StructOutput},
    },
    memory::share::{self, Options},
};
use std::{ffi::c_char, ptr};

/// How a process shares a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_memory_share_options_t {
    /// The size of the struct in the caller.
    pub struct_size: usize,
    /// The most bytes that the allocator holds of the device; 0 for all of it. Memory that it holds already is kept.
    pub budget: usize,
    /// The bytes that the process is not asked for. They are not reserved.
    pub floor: usize,
    /// The name of the processes that share with each other: at most 64 letters, digits, '-', '_' or '.'; NULL and "" for
    /// those without a name.
    pub name: *const c_char,
}

/// The state of the sharing of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_memory_share_info_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The number of processes that share the device, with this one; 0 if this one does not.
    pub processes: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// The budget of this process in bytes.
    pub budget: u64,
    /// The floor of this process in bytes.
    pub floor: u64,
    /// Bytes that the other processes held when they last needed more memory or gave some back.
    pub held_by_others: u64,
    /// How often this process asked another one.
    pub asked: u64,
    /// How often this process was asked.
    pub answered: u64,
    /// Bytes that this process gave back.
    pub given: u64,
}

const NO_OPTIONS: plinth_memory_share_options_t = plinth_memory_share_options_t {
    struct_size: size_of::<plinth_memory_share_options_t>(),
    budget: 0,
    floor: 0,
    name: ptr::null(),
};

/// Reads options; NULL stands for the initial ones.
///
/// # Safety
/// `options` is NULL or valid, with a name that is NULL or a NUL-terminated string.
unsafe fn read_options(options: *const plinth_memory_share_options_t) -> Result<Options> {
    let mut given = NO_OPTIONS;
    if !options.is_null() {
        // SAFETY: the caller makes this promise.
        given = unsafe { structs::read(options, NO_OPTIONS, "options") }?;
    }
    // SAFETY: likewise.
    let name = if given.name.is_null() { String::new() } else { unsafe { string(given.name, "options->name") }? };
    Ok(Options { budget: given.budget as u64, floor: given.floor as u64, name })
}

/// Begins to share a device with other processes of this user, or changes the budget and the floor.
///
/// The processes find each other by the device's UUID and the name, in a file in /dev/shm, or in the folder of temporary
/// files where there is none. At most 64 processes share a device by one name.
///
/// @param device The device index; -1 for the current device.
/// @param options The options; NULL for those of PLINTH_MEMORY_SHARE_OPTIONS_INIT.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a floor above the budget, a
///         name that is not one, and a struct_size that was not set; PLINTH_ERROR_ALREADY_INITIALIZED if this process
///         shares the device by another name; PLINTH_ERROR_SYSTEM if the file cannot be used or has no room for another
///         process; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_share_enable(
    device: i32,
    options: *const plinth_memory_share_options_t,
) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a struct that begins with its size, and whose name is NULL or a string.
    guard(|| share::enable(device, &unsafe { read_options(options) }?))
}

/// Ends the sharing of a device; a device that is not shared stays so. The process keeps what it holds, and has no budget
/// any more.
///
/// @param device The device index; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_share_disable(device: i32) -> plinth_status_t {
    guard(|| share::disable(device))
}

/// Returns the state of the sharing of a device.
///
/// @param device The device index; -1 for the current device.
/// @param result In: struct_size. Out: the state.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a struct_size
///         that was not set; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_share_info(
    device: i32,
    result: *mut plinth_memory_share_info_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let result = unsafe { StructOutput::new(result, "result") }?;
        let info = share::info(device)?;
        result.set(plinth_memory_share_info_t {
            struct_size: size_of::<plinth_memory_share_info_t>(),
            processes: info.processes,
            reserved: 0,
            budget: info.budget,
            floor: info.floor,
            held_by_others: info.held_by_others,
            asked: info.asked,
            answered: info.answered,
            given: info.given,
        });
        Ok(())
    })
}
