//! The C surface: every exported function, a file a noun.
//!
//! A function is a literal `pub unsafe extern "C" fn` whose body is one [`guard`](guard::guard). What it takes from C
//! is checked by the helpers here before the core sees it. The doc comments are the library's specification: the
//! header is generated from them.
//!
//! # Safety
//! What every function here asks of its caller, in C's terms: a pointer is NULL or valid for what its parameter's comment
//! says; memory that the device is to work on stays valid until that work is done; callbacks do not unwind. Handles and
//! numbers may be anything.

#![allow(clippy::missing_safety_doc)] // the contract is the one above, and each parameter's comment

pub mod allocator;
pub mod allocator_settings;
pub mod backend;
pub mod blas;
pub mod comm;
pub mod communicator;
pub mod communicator_parts;
pub mod communicator_work;
pub mod compile_kernel;
pub mod cufft;
pub mod device;
pub mod device_context;
pub mod event;
pub mod generator;
pub mod graph;
pub mod graph_build;
pub mod graph_callable;
pub mod graph_condition;
pub mod graph_nodes;
pub mod graph_times;
pub mod green_context;
pub mod guard;
pub mod host_kernel;
pub mod host_memory;
pub mod host_memory_stats;
pub mod ipc;
pub mod jiterator;
pub mod kernel_launch;
pub mod log;
pub mod memory;
pub mod memory_history;
pub mod memory_registration;
pub mod memory_share;
pub mod memory_sleep;
pub mod memory_stats;
pub mod names;
pub mod nccl;
pub mod nvtx;
pub mod out_of_memory;
pub mod pluggable;
pub mod pointer;
pub mod pool;
pub mod pool_checkpoint;
pub mod precision;
pub mod properties;
pub mod random;
pub mod sanitizer;
pub mod snapshot;
mod stats;
pub mod status;
pub mod store;
pub mod stream;
mod structs;
pub mod sync_debug;
pub mod telemetry;
pub mod tensor;
pub mod testing;
pub mod trace;
pub mod version;

use crate::{
    driver::Span,
    error::{Error, Result, invalid},
    status::Status,
};
use std::{
    ffi::{CStr, CString, OsStr, c_char, c_void},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    slice,
};

/// The opaque `struct CUstream_st` of C: a stream of the driver, never dereferenced here.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct CUstream_st {
    _private: [u8; 0],
}

/// A stream: the same type as `cudaStream_t` and `CUstream`.
#[allow(non_camel_case_types)]
pub type plinth_stream_t = *mut CUstream_st;

#[cold]
fn null(name: &str) -> Error {
    Error::new(Status::NULL_POINTER, format!("{name} is NULL"))
}

#[cold]
fn too_many(name: &str, count: usize) -> Error {
    invalid(format!("{name}: {count} elements do not fit in the address space; pass the number of elements"))
}

/// Converts the handle of an object that must exist.
#[inline]
fn handle<T>(object: *mut T, name: &str) -> Result<u64> {
    if object.is_null() { Err(null(name)) } else { Ok(object as u64) }
}

/// Returns an array that C passes; NULL is one without elements.
///
/// # Safety
/// `first` is NULL or points to `count` elements.
#[inline]
unsafe fn array<'a, T>(first: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(null(name));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(too_many(name, count));
    }
    // SAFETY: the pointer is not NULL, so the caller promises so many elements.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// Does the same for an array that may be missing, for which C passes NULL.
///
/// # Safety
/// As [`array`].
unsafe fn optional_array<'a, T>(first: *const T, count: usize, name: &str) -> Result<Option<&'a [T]>> {
    // SAFETY: the caller makes this promise.
    if first.is_null() { Ok(None) } else { unsafe { array(first, count, name) }.map(Some) }
}

/// An output parameter: rejected if NULL, written only on success.
struct Output<T>(*mut T);

impl<T> Output<T> {
    /// # Safety
    /// `pointer` is NULL, or a T may be written through it.
    #[inline]
    unsafe fn new(pointer: *mut T, name: &str) -> Result<Self> {
        if pointer.is_null() { Err(null(name)) } else { Ok(Output(pointer)) }
    }

    #[inline]
    fn set(self, value: T) {
        // SAFETY: the caller of `new` promised that a T may be written, and the pointer is not NULL.
        unsafe { self.0.write(value) }
    }
}

/// Copies a C string.
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string.
unsafe fn string(pointer: *const c_char, name: &str) -> Result<String> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises a NUL-terminated string.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Copies a C string that names something. It must be UTF-8, because other bytes would make one name of two.
///
/// # Safety
/// As [`string`].
unsafe fn exact_string(pointer: *const c_char, name: &str) -> Result<String> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises a NUL-terminated string.
    let text = unsafe { CStr::from_ptr(pointer) };
    match text.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(invalid(format!("{name} is not UTF-8: {:?}; pass text in UTF-8", text.to_string_lossy()))),
    }
}

/// Converts a C string to a path. A path may contain any bytes, as in the operating system.
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string.
unsafe fn path(pointer: *const c_char, name: &str) -> Result<PathBuf> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises a NUL-terminated string.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Copies a string into memory of the C allocator, which the C caller will own.
fn owned_text(text: &str) -> Result<*mut c_char> {
    let text = CString::new(text)
        .map_err(|_| Error::new(Status::PANIC, "a string of the library contains a NUL character"))?;
    // SAFETY: the argument is a NUL-terminated string.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() {
        Err(Error::new(Status::OUT_OF_MEMORY, "copying a string: out of host memory"))
    } else {
        Ok(copy)
    }
}

/// Converts a text for C. The library's own texts contain no NUL, but names and paths in them may contain anything.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{FFFD}")).unwrap_or_default()
}

/// Describes a range of bytes that C passed.
///
/// # Safety
/// As [`Span::new`].
unsafe fn span(pointer: *const c_void, bytes: usize) -> Span {
    // SAFETY: the caller makes the same promise.
    unsafe { Span::new(pointer as u64, bytes) }
}
