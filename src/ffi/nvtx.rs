//! Ranges and marks for profilers
//!
//! Marks and ranges that profilers such as Nsight Systems show: torch.cuda.nvtx and torch.cuda.profiler. Without a
//! profiler the functions do almost nothing. Marks and ranges are allowed during captures; those of the CPU need no
//! device.
//!
//! Texts are needed during the call only. The caller owns a domain and destroys it. Ranges that are pushed belong to
//! the calling thread, which pops them. Ranges that are started may be ended by any thread.

use crate::{
    driver::{
        HostFunction,
        nvtx::{Annotation, Domain},
    },
    error::{Error, Result},
    ffi::{
        Output,
        guard::{guard, nothing_to_do, release},
        null, plinth_stream_t,
        status::plinth_status_t,
        structs,
    },
    ops::nvtx,
    runtime::{device, thread},
    status::Status,
};
use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

/// The opaque type behind plinth_nvtx_domain_t; never dereferenced by the library.
#[allow(non_camel_case_types)]
pub struct plinth_nvtx_domain {
    _private: [u8; 0],
}

/// An NVTX domain: a separate namespace for ranges, marks and categories. NULL is the default domain.
#[allow(non_camel_case_types)]
pub type plinth_nvtx_domain_t = *mut plinth_nvtx_domain;

/// The attributes of a mark, or of the start of a range. `struct_size` and `message` are required; everything else may
/// be 0.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_nvtx_event_t {
    /// Set to sizeof(plinth_nvtx_event_t); newer versions may add fields at the end.
    pub struct_size: usize,
    /// The text. The tool copies it if it needs it.
    pub message: *const c_char,
    /// The number of a category of the domain, see plinth_nvtx_name_category; 0 for none.
    pub category: u32,
    /// The color as 0xAARRGGBB, if has_color is set.
    pub color: u32,
    /// A number to be displayed with the event, if has_payload is set.
    pub payload: i64,
    /// Whether `color` is valid.
    pub has_color: bool,
    /// Whether `payload` is valid.
    pub has_payload: bool,
}

/// Borrows a C string.
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string that outlives the result.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a CStr> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises a NUL-terminated string.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// # Safety
/// `event` is NULL, or points to as many readable bytes as its first member states, with a message that is NULL or a
/// NUL-terminated string.
unsafe fn annotation<'a>(event: *const plinth_nvtx_event_t) -> Result<Annotation<'a>> {
    let initial = plinth_nvtx_event_t {
        struct_size: 0,
        message: ptr::null(),
        category: 0,
        color: 0,
        payload: 0,
        has_color: false,
        has_payload: false,
    };
    // SAFETY: the caller makes this promise.
    let event = unsafe { structs::read(event, initial, "event") }?;
    Ok(Annotation {
        // SAFETY: the caller makes this promise.
        message: unsafe { text(event.message, "event->message") }?,
        category: event.category,
        color: event.has_color.then_some(event.color),
        payload: event.has_payload.then_some(event.payload),
    })
}

/// # Safety
/// As [`Domain::from_raw`].
unsafe fn domain(domain: plinth_nvtx_domain_t) -> Domain {
    // SAFETY: the caller makes this promise.
    unsafe { Domain::from_raw(domain.cast()) }
}

/// # Safety
/// `output` is NULL, or a T may be written through it.
unsafe fn write_unless_null<T>(output: *mut T, value: T) {
    if !output.is_null() {
        // SAFETY: the caller makes this promise.
        unsafe { output.write(value) }
    }
}

/// Emits an instantaneous marker to profilers, as torch.cuda.nvtx.mark. Without a tool attached, this and the following
/// NVTX functions return within a few nanoseconds. A tool is attached if the process was started under it (it sets
/// NVTX_INJECTION64_PATH); this is checked once. The functions need no device and initialize nothing. They may be
/// called while streams capture.
///
/// @param message The text. The tool copies it if it needs it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_mark(message: *const c_char) -> plinth_status_t {
    if nvtx::is_silent() && !message.is_null() {
        return nothing_to_do();
    }
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        nvtx::mark(Domain::DEFAULT, &nvtx::plain(unsafe { text(message, "message") }?));
        Ok(())
    })
}

/// Begins a range nested in the calling thread's innermost range, as torch.cuda.nvtx.range_push.
///
/// @param message The text. The tool copies it if it needs it.
/// @param depth Out, unless NULL: the number of enclosing ranges, 0 for the outermost range. Without a tool, ranges
///        that plinth's functions pushed in this thread are counted.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the message is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_range_push(message: *const c_char, depth: *mut i32) -> plinth_status_t {
    if nvtx::is_silent() && !message.is_null() {
        // SAFETY: the caller passes NULL or a valid pointer.
        unsafe { write_unless_null(depth, thread::push_range()) };
        return nothing_to_do();
    }
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let level = nvtx::range_push(Domain::DEFAULT, &nvtx::plain(unsafe { text(message, "message") }?));
        // SAFETY: the caller passes NULL or a valid pointer.
        unsafe { write_unless_null(depth, level) };
        Ok(())
    })
}

/// Ends the calling thread's innermost range, as torch.cuda.nvtx.range_pop.
///
/// @param depth Out, unless NULL: the number of ranges that enclosed it, the same value that the push returned.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if the thread has no open range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_range_pop(depth: *mut i32) -> plinth_status_t {
    if nvtx::is_silent()
        && let Some(level) = thread::pop_range()
    {
        // SAFETY: the caller passes NULL or a valid pointer.
        unsafe { write_unless_null(depth, level) };
        return nothing_to_do();
    }
    guard(|| {
        let level = nvtx::range_pop(Domain::DEFAULT)?;
        // SAFETY: the caller passes NULL or a valid pointer.
        unsafe { write_unless_null(depth, level) };
        Ok(())
    })
}

/// Begins a range that any thread may end, as torch.cuda.nvtx.range_start.
///
/// @param message The text. The tool copies it if it needs it.
/// @param range Out: the range's number; 0 if no tool is attached, which plinth_nvtx_range_end accepts.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_range_start(message: *const c_char, range: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let range = unsafe { Output::new(range, "range") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        range.set(nvtx::range_start(Domain::DEFAULT, &nvtx::plain(unsafe { text(message, "message") }?)));
        Ok(())
    })
}

/// Ends a range of plinth_nvtx_range_start, in any thread.
///
/// @param range The range's number.
/// @return PLINTH_OK. The number is not validated: only the tool knows which ranges exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_range_end(range: u64) -> plinth_status_t {
    if nvtx::is_silent() {
        return nothing_to_do();
    }
    guard(|| {
        nvtx::range_end(Domain::DEFAULT, range);
        Ok(())
    })
}

unsafe extern "C" fn stream_range_begins(number: *mut c_void) {
    nvtx::on_stream_range_begin(number as u64);
}

unsafe extern "C" fn stream_range_ends(number: *mut c_void) {
    nvtx::on_stream_range_end(number as u64);
}

/// Begins a range when a stream has completed its earlier work, by a host function in the stream. This marks the range
/// on the device's timeline. In a capture it becomes a node of the graph and is emitted at each replay; the message is
/// then kept for the lifetime of the process.
///
/// @param message The text; copied.
/// @param stream The stream; NULL for the current device's default stream.
/// @param range Out: the range's number; 0 if no tool is attached, in which case nothing is enqueued.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_device_range_start(
    message: *const c_char,
    stream: plinth_stream_t,
    range: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let range = unsafe { Output::new(range, "range") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let message = unsafe { text(message, "message") }?;
        range.set(nvtx::stream_range_start(message, stream as usize, |number| {
            // SAFETY: the function takes the pointer as a number, does not dereference it, and does not unwind.
            unsafe { HostFunction::new(stream_range_begins, number as *mut c_void) }
        })?);
        Ok(())
    })
}

/// Ends a range of plinth_nvtx_device_range_start when a stream has completed its earlier work. Use the stream that
/// began the range, or one that waits for it.
///
/// @param range The range's number; 0 does nothing.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for an unknown range or an invalid stream; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_device_range_end(range: u64, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| {
        nvtx::stream_range_end(range, stream as usize, |number| {
            // SAFETY: as above.
            unsafe { HostFunction::new(stream_range_ends, number as *mut c_void) }
        })
    })
}

/// Starts recording in a profiler that was launched to wait for this call (nsys --capture-range=cudaProfilerApi, ncu
/// --profile-from-start off), as torch.cuda.profiler.start.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER, for example if the profiler does not allow it; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_profiler_start() -> plinth_status_t {
    guard(|| device::profile(true))
}

/// Stops recording in the profiler, as torch.cuda.profiler.stop.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_profiler_stop() -> plinth_status_t {
    guard(|| device::profile(false))
}

/// Reports whether an NVTX tool is attached.
///
/// @param active Out: whether a tool is attached.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_is_active(active: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let active = unsafe { Output::new(active, "active") }?;
        active.set(nvtx::is_active());
        Ok(())
    })
}

/// Enables or disables NVTX ranges around the library's own calls; each range has the name of the function. Does
/// nothing without a tool. Calls that are in progress keep the setting with which they began.
///
/// @param on Whether to emit the ranges.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_annotate_calls(on: bool) -> plinth_status_t {
    guard(|| {
        nvtx::annotate_own_calls(on);
        Ok(())
    })
}

/// Sets the name of the calling thread in profilers.
///
/// @param name The name.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_name_thread(name: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let name = unsafe { text(name, "name") }?;
        if nvtx::is_active() {
            crate::driver::nvtx::name_thread(name);
        }
        Ok(())
    })
}

/// Creates an NVTX domain.
///
/// @param name Its name.
/// @param made Out: the domain; NULL if no tool is attached, which all functions accept. The caller owns it and
///        destroys it with plinth_nvtx_domain_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_create(
    name: *const c_char,
    made: *mut plinth_nvtx_domain_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let made = unsafe { Output::new(made, "made") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let name = unsafe { text(name, "name") }?;
        made.set(if nvtx::is_active() { Domain::create(name).raw().cast() } else { std::ptr::null_mut() });
        Ok(())
    })
}

/// Destroys an NVTX domain. All of its ranges must have ended.
///
/// @param domain The domain; NULL does nothing. The pointer is not validated: the tool may crash if it is not a domain.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_destroy(domain: plinth_nvtx_domain_t) -> plinth_status_t {
    release(|| {
        // SAFETY: the caller passes NULL or a domain that it owns.
        unsafe { self::domain(domain) }.destroy();
        Ok(())
    })
}

/// Sets the name of a category of a domain.
///
/// @param domain The domain; NULL for the default domain.
/// @param category The category's number, above 0.
/// @param name Its name.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for category 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_name_category(
    domain: plinth_nvtx_domain_t,
    category: u32,
    name: *const c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string, and NULL or a domain.
        let (name, domain) = unsafe { (text(name, "name")?, self::domain(domain)) };
        if category == 0 {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "category 0 means \"no category\" and cannot be named; use numbers from 1",
            ));
        }
        if nvtx::is_active() {
            domain.name_category(category, name);
        }
        Ok(())
    })
}

/// Emits a marker with all attributes; see plinth_nvtx_mark.
///
/// @param domain The domain; NULL for the default domain.
/// @param event The attributes of the mark.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong struct_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_mark(
    domain: plinth_nvtx_domain_t,
    event: *const plinth_nvtx_event_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a mark, and NULL or a domain.
        let (event, domain) = unsafe { (annotation(event)?, self::domain(domain)) };
        nvtx::mark(domain, &event);
        Ok(())
    })
}

/// Begins a nested range with all attributes; see plinth_nvtx_range_push.
///
/// @param domain The domain; NULL for the default domain.
/// @param event The attributes of the range.
/// @param depth Out, unless NULL: the number of enclosing ranges: those of the domain if a tool counts them, those of
///        all domains without a tool.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong struct_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_range_push(
    domain: plinth_nvtx_domain_t,
    event: *const plinth_nvtx_event_t,
    depth: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a range, and NULL or a domain.
        let (event, domain) = unsafe { (annotation(event)?, self::domain(domain)) };
        let level = nvtx::range_push(domain, &event);
        // SAFETY: the caller passes NULL or a valid pointer.
        unsafe { write_unless_null(depth, level) };
        Ok(())
    })
}

/// Ends the calling thread's innermost range of a domain.
///
/// @param domain The domain; NULL for the default domain.
/// @param depth Out, unless NULL: the number of ranges that enclosed it.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if the thread has no open range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_range_pop(
    domain: plinth_nvtx_domain_t,
    depth: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a domain.
        let level = nvtx::range_pop(unsafe { self::domain(domain) })?;
        // SAFETY: the caller passes NULL or a valid pointer.
        unsafe { write_unless_null(depth, level) };
        Ok(())
    })
}

/// Begins a range that any thread may end, with all attributes; see plinth_nvtx_range_start.
///
/// @param domain The domain; NULL for the default domain.
/// @param event The attributes of the range.
/// @param range Out: the range's number; 0 if no tool is attached.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong struct_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_range_start(
    domain: plinth_nvtx_domain_t,
    event: *const plinth_nvtx_event_t,
    range: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let range = unsafe { Output::new(range, "range") }?;
        // SAFETY: the caller passes NULL or a range, and NULL or a domain.
        let (event, domain) = unsafe { (annotation(event)?, self::domain(domain)) };
        range.set(nvtx::range_start(domain, &event));
        Ok(())
    })
}

/// Ends a range of plinth_nvtx_domain_range_start, in any thread.
///
/// @param domain The domain that the range was begun in.
/// @param range The range's number.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_range_end(domain: plinth_nvtx_domain_t, range: u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a domain.
        nvtx::range_end(unsafe { self::domain(domain) }, range);
        Ok(())
    })
}
