//! Ranges and marks for profilers, as C sees them.

use crate::{
    driver::{
        HostFunction,
        nvtx::{Annotation, Domain},
    },
    error::{Error, Result},
    ffi::{
        Output,
        guard::{guard, nothing_to_do},
        null, plinth_stream_t,
        status::plinth_status_t,
    },
    ops::nvtx,
    runtime::{device, thread},
    status::Status,
};
use std::ffi::{CStr, c_char, c_void};

/// What plinth_nvtx_domain_t points at, never looked into.
#[allow(non_camel_case_types)]
pub struct plinth_nvtx_domain {
    _private: [u8; 0],
}

/// A domain of NVTX: names and ranges that keep apart from others'. NULL is the default one, of those who name none.
#[allow(non_camel_case_types)]
pub type plinth_nvtx_domain_t = *mut plinth_nvtx_domain;

/// A mark, or what a range begins with. All zero but `struct_size` and `message` is a plain one.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plinth_nvtx_event_t {
    /// sizeof(plinth_nvtx_event_t), so that later versions may add to it.
    pub struct_size: usize,
    /// The text; copied by the tool, if it wants it.
    pub message: *const c_char,
    /// The number of a category of the domain, which plinth_nvtx_name_category gives a name; 0 for none.
    pub category: u32,
    /// The colour as 0xAARRGGBB, where has_color says that there is one.
    pub color: u32,
    /// A number to be shown with it, where has_payload says that there is one.
    pub payload: i64,
    /// Whether there is a colour.
    pub has_color: bool,
    /// Whether there is a payload.
    pub has_payload: bool,
}

/// The text that C points at, not copied.
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string that lives as long as the result is used.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a CStr> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises that it is a string.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// # Safety
/// `event` is NULL, or as many readable bytes as its first member says, with a message that is NULL or a string.
unsafe fn annotation<'a>(event: *const plinth_nvtx_event_t) -> Result<Annotation<'a>> {
    // SAFETY: the caller's promise.
    let event = unsafe { event.as_ref() }.ok_or_else(|| null("event"))?;
    if event.struct_size < size_of::<plinth_nvtx_event_t>() {
        return Err(Error::new(Status::INVALID_VALUE, "event->struct_size is not sizeof(plinth_nvtx_event_t)"));
    }
    Ok(Annotation {
        // SAFETY: the caller's promise.
        message: unsafe { text(event.message, "event->message") }?,
        category: event.category,
        color: event.has_color.then_some(event.color),
        payload: event.has_payload.then_some(event.payload),
    })
}

/// # Safety
/// As [`Domain::from_raw`].
unsafe fn domain(domain: plinth_nvtx_domain_t) -> Domain {
    // SAFETY: the caller's promise.
    unsafe { Domain::from_raw(domain.cast()) }
}

/// # Safety
/// `output` is NULL, or a T may be written through it.
unsafe fn set_if_wanted<T>(output: *mut T, value: T) {
    if !output.is_null() {
        // SAFETY: the caller's promise.
        unsafe { output.write(value) }
    }
}

/// Tells profilers of a moment, as torch.cuda.nvtx.mark. Where none listens, this and the calls below do nothing within a
/// few nanoseconds. A tool listens when the process was started under it (it sets NVTX_INJECTION64_PATH); that is looked
/// up once. These calls need no device and initialize nothing. Thread-safe, and allowed while streams capture.
///
/// @param message The text; a tool that wants it copies it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_mark(message: *const c_char) -> plinth_status_t {
    if nvtx::is_silent() && !message.is_null() {
        return nothing_to_do();
    }
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        nvtx::mark(Domain::DEFAULT, &nvtx::plain(unsafe { text(message, "message") }?));
        Ok(())
    })
}

/// Begins a range within the calling thread's innermost one, as torch.cuda.nvtx.range_push. Thread-safe.
///
/// @param message The text; a tool that wants it copies it.
/// @param depth Out, unless NULL: how many ranges there are around it: 0 for the first. Without a tool it is the number of
///        those that plinth's calls pushed in this thread.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_range_push(message: *const c_char, depth: *mut i32) -> plinth_status_t {
    if nvtx::is_silent() && !message.is_null() {
        // SAFETY: the caller passes NULL or a place for the depth.
        unsafe { set_if_wanted(depth, thread::push_range()) };
        return nothing_to_do();
    }
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let level = nvtx::range_push(Domain::DEFAULT, &nvtx::plain(unsafe { text(message, "message") }?));
        // SAFETY: the caller passes NULL or a place for the depth.
        unsafe { set_if_wanted(depth, level) };
        Ok(())
    })
}

/// Ends the calling thread's innermost range, as torch.cuda.nvtx.range_pop. Thread-safe.
///
/// @param depth Out, unless NULL: how many ranges there were around it: what its push told.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE where the thread has no range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_range_pop(depth: *mut i32) -> plinth_status_t {
    if nvtx::is_silent()
        && let Some(level) = thread::pop_range()
    {
        // SAFETY: the caller passes NULL or a place for the depth.
        unsafe { set_if_wanted(depth, level) };
        return nothing_to_do();
    }
    guard(|| {
        let level = nvtx::range_pop(Domain::DEFAULT)?;
        // SAFETY: the caller passes NULL or a place for the depth.
        unsafe { set_if_wanted(depth, level) };
        Ok(())
    })
}

/// Begins a range that any thread may end, as torch.cuda.nvtx.range_start. Thread-safe.
///
/// @param message The text; a tool that wants it copies it.
/// @param range Out: its number; 0 where no tool listens, which plinth_nvtx_range_end takes as well.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_range_start(message: *const c_char, range: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let range = unsafe { Output::new(range, "range") }?;
        // SAFETY: the caller passes NULL or a string.
        range.set(nvtx::range_start(Domain::DEFAULT, &nvtx::plain(unsafe { text(message, "message") }?)));
        Ok(())
    })
}

/// Ends it, in whichever thread. Thread-safe.
///
/// @param range The range's number.
/// @return PLINTH_OK: what a number means only the tool knows.
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

/// Lets a stream begin a range when its work so far is done: the device's side of a range, by a host function in the stream.
/// Captured, it becomes a part of the graph and is told at each replay; its text is then kept for ever. Thread-safe.
///
/// @param message The text; copied.
/// @param stream The stream; NULL for the current device's default stream.
/// @param range Out: its number; 0 where no tool listens: then nothing was put into the stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_device_range_start(
    message: *const c_char,
    stream: plinth_stream_t,
    range: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let range = unsafe { Output::new(range, "range") }?;
        // SAFETY: the caller passes NULL or a string.
        let message = unsafe { text(message, "message") }?;
        range.set(nvtx::stream_range_start(message, stream as usize, |number| {
            // SAFETY: the function takes the number for what it is, follows no pointer, and does not unwind.
            unsafe { HostFunction::new(stream_range_begins, number as *mut c_void) }
        })?);
        Ok(())
    })
}

/// Lets a stream end such a range, the one that began it or one that waits for that. Thread-safe.
///
/// @param range The range's number; 0 does nothing.
/// @param stream The stream; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a range that is not, or a stream that is not; PLINTH_ERROR_DRIVER;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_device_range_end(range: u64, stream: plinth_stream_t) -> plinth_status_t {
    guard(|| {
        nvtx::stream_range_end(range, stream as usize, |number| {
            // SAFETY: as above.
            unsafe { HostFunction::new(stream_range_ends, number as *mut c_void) }
        })
    })
}

/// Lets a profiler that was started to wait for this (nsys --capture-range=cudaProfilerApi, ncu --profile-from-start off)
/// record from now on, as torch.cuda.profiler.start. Thread-safe.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER, as where the profiler does not allow it; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_profiler_start() -> plinth_status_t {
    guard(|| device::profile(true))
}

/// Lets it end recording, as torch.cuda.profiler.stop. Thread-safe.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_profiler_stop() -> plinth_status_t {
    guard(|| device::profile(false))
}

/// Tells whether a tool listens. Thread-safe.
///
/// @param active Out: whether one does.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_is_active(active: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let active = unsafe { Output::new(active, "active") }?;
        active.set(nvtx::is_active());
        Ok(())
    })
}

/// Lets the library tell profilers of its own calls, each as a range with the function's name, or keep quiet again. Without a
/// tool it does nothing. Thread-safe; calls under way are told as they began.
///
/// @param on Whether to.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_annotate_calls(on: bool) -> plinth_status_t {
    guard(|| {
        nvtx::annotate_own_calls(on);
        Ok(())
    })
}

/// Gives the calling thread a name in profilers. Thread-safe.
///
/// @param name The name.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_name_thread(name: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let name = unsafe { text(name, "name") }?;
        if nvtx::is_active() {
            crate::driver::nvtx::name_thread(name);
        }
        Ok(())
    })
}

/// Makes a domain. Thread-safe.
///
/// @param name Its name.
/// @param made Out: the domain; NULL where no tool listens, which all calls take. The caller gives it up with
///        plinth_nvtx_domain_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_create(
    name: *const c_char,
    made: *mut plinth_nvtx_domain_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the domain.
        let made = unsafe { Output::new(made, "made") }?;
        // SAFETY: the caller passes NULL or a string.
        let name = unsafe { text(name, "name") }?;
        made.set(if nvtx::is_active() { Domain::create(name).raw().cast() } else { std::ptr::null_mut() });
        Ok(())
    })
}

/// Gives a domain up. Its ranges must have ended. Thread-safe.
///
/// @param domain The domain; NULL does nothing. It is the tool's, which does not survive one that is not.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_destroy(domain: plinth_nvtx_domain_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a domain that it gives up.
        unsafe { self::domain(domain) }.destroy();
        Ok(())
    })
}

/// Gives a category of a domain a name. Thread-safe.
///
/// @param domain The domain; NULL for the default one.
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
        // SAFETY: the caller passes NULL or a string, and NULL or a domain.
        let (name, domain) = unsafe { (text(name, "name")?, self::domain(domain)) };
        if category == 0 {
            return Err(Error::new(Status::INVALID_VALUE, "category 0 means none, and has no name"));
        }
        if nvtx::is_active() {
            domain.name_category(category, name);
        }
        Ok(())
    })
}

/// plinth_nvtx_mark with all that a mark can have. Thread-safe.
///
/// @param domain The domain; NULL for the default one.
/// @param event The mark.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong size of the struct.
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

/// plinth_nvtx_range_push with all that a range can have. Thread-safe.
///
/// @param domain The domain; NULL for the default one.
/// @param event What the range begins with.
/// @param depth Out, unless NULL: how many ranges there are around it: by the tool's count those of the domain, without a
///        tool those of all domains.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong size of the struct.
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
        // SAFETY: the caller passes NULL or a place for the depth.
        unsafe { set_if_wanted(depth, level) };
        Ok(())
    })
}

/// Ends the calling thread's innermost range of a domain. Thread-safe.
///
/// @param domain The domain; NULL for the default one.
/// @param depth Out, unless NULL: how many ranges there were around it.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE where the thread has no range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_range_pop(
    domain: plinth_nvtx_domain_t,
    depth: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a domain.
        let level = nvtx::range_pop(unsafe { self::domain(domain) })?;
        // SAFETY: the caller passes NULL or a place for the depth.
        unsafe { set_if_wanted(depth, level) };
        Ok(())
    })
}

/// plinth_nvtx_range_start with all that a range can have. Thread-safe.
///
/// @param domain The domain; NULL for the default one.
/// @param event What the range begins with.
/// @param range Out: its number; 0 where no tool listens.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong size of the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvtx_domain_range_start(
    domain: plinth_nvtx_domain_t,
    event: *const plinth_nvtx_event_t,
    range: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let range = unsafe { Output::new(range, "range") }?;
        // SAFETY: the caller passes NULL or a range, and NULL or a domain.
        let (event, domain) = unsafe { (annotation(event)?, self::domain(domain)) };
        range.set(nvtx::range_start(domain, &event));
        Ok(())
    })
}

/// Ends it, in whichever thread. Thread-safe.
///
/// @param domain The domain that it was begun in.
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
