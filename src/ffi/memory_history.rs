//! History of the allocator
//!
//! A record of what the caching allocator does, with call stacks, tags and annotations:
//! torch.cuda.memory._record_memory_history. Trackers see each entry when it happens.
//!
//! The history belongs to the library. What a callback receives is valid during the callback only. Recording holds for
//! the whole process. The tag that plinth_set_memory_metadata sets belongs to the calling thread.
//!
//! A tracker is called by whichever thread is processing entries, one entry at a time, with no lock of the allocator
//! held. It may call the library, but must not wait for a thread that allocates.

use crate::{
    error::Result,
    ffi::{
        CUstream_st, Output, guard, guard::guard, null, owned_text, plinth_stream_t, pool::plinth_pool_id_t,
        status::plinth_status_t, string,
    },
    memory::{
        callbacks::Callback,
        history::{self, Context, Enabled, Entry, Options, StackId},
        tags, trackers,
    },
    runtime,
};
use std::{
    ffi::{CString, c_char, c_void},
    mem, ptr,
};

/// No history is kept.
pub const PLINTH_MEMORY_HISTORY_OFF: i32 = 0;
/// For blocks that are live, their callers are kept.
pub const PLINTH_MEMORY_HISTORY_STATE: i32 = 1;
/// That, and an entry for everything that happens.
pub const PLINTH_MEMORY_HISTORY_ALL: i32 = 2;

/// The caller is found out for nothing.
pub const PLINTH_MEMORY_CONTEXT_NONE: i32 = 0;
/// The caller is found out for blocks that are live.
pub const PLINTH_MEMORY_CONTEXT_STATE: i32 = 1;
/// The caller is found out for blocks that are live and for entries of what brings memory into use.
pub const PLINTH_MEMORY_CONTEXT_ALLOC: i32 = 2;
/// The caller is found out for everything.
pub const PLINTH_MEMORY_CONTEXT_ALL: i32 = 3;

/// A block was given out.
pub const PLINTH_MEMORY_ACTION_ALLOC: i32 = 0;
/// The program freed a block.
pub const PLINTH_MEMORY_ACTION_FREE_REQUESTED: i32 = 1;
/// A freed block can be given out again: at once, or when the streams that were recorded on it have passed.
pub const PLINTH_MEMORY_ACTION_FREE_COMPLETED: i32 = 2;
/// The driver gave a segment (expandable_segments:False).
pub const PLINTH_MEMORY_ACTION_SEGMENT_ALLOC: i32 = 3;
/// A segment went back to the driver.
pub const PLINTH_MEMORY_ACTION_SEGMENT_FREE: i32 = 4;
/// Physical memory was mapped at addresses that the allocator has.
pub const PLINTH_MEMORY_ACTION_SEGMENT_MAP: i32 = 5;
/// Physical memory went from addresses: back to the driver, or to where it is needed.
pub const PLINTH_MEMORY_ACTION_SEGMENT_UNMAP: i32 = 6;
/// A snapshot was taken.
pub const PLINTH_MEMORY_ACTION_SNAPSHOT: i32 = 7;
/// A request failed for want of memory; the address is how many bytes the device had free.
pub const PLINTH_MEMORY_ACTION_OOM: i32 = 8;

/// How a history is kept. PLINTH_MEMORY_HISTORY_OPTIONS_INIT is torch's default: everything, without end.
///
/// The struct grows at its end in newer versions, and what a program does not know of has its default then: set struct_size
/// to sizeof(plinth_memory_history_options_t).
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_history_options_t {
    /// The size that the caller knows.
    pub struct_size: usize,
    /// What is kept: one of PLINTH_MEMORY_HISTORY_....
    pub enabled: i32,
    /// For what the caller is found out: one of PLINTH_MEMORY_CONTEXT_....
    pub context: i32,
    /// How many entries of a device are kept: the newest. 0 is no limit.
    pub max_entries: u64,
    /// 1 forgets what was kept before, else 0.
    pub clear_history: i32,
    /// 1 keeps annotations, else 0.
    pub record_annotations: i32,
    /// The actions that are not kept: the sum of 1 << PLINTH_MEMORY_ACTION_... for each.
    pub skip_actions: u32,
    /// 0.
    pub reserved: u32,
}

/// Something that happened. What it points at is valid during the call that shows it.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_history_entry_t {
    /// What happened: one of PLINTH_MEMORY_ACTION_....
    pub action: i32,
    /// The device's number.
    pub device: i32,
    /// Where: the block's address or the segment's. For an OOM how many bytes the device had free.
    pub address: u64,
    /// Its bytes: those that were asked for, of a block; those that there are, of a segment.
    pub size: u64,
    /// The stream that the memory is for.
    pub stream: plinth_stream_t,
    /// The pool that the memory is of.
    pub pool: plinth_pool_id_t,
    /// When: microseconds since 1970.
    pub time_us: u64,
    /// The thread, by the system's number (gettid).
    pub thread: u64,
    /// The thread's tag then, from plinth_set_memory_metadata; an empty text if there was none.
    pub metadata: *const c_char,
    /// Who called, for plinth_memory_stack_each; 0 where that was not found out.
    pub stack: u32,
    /// 0.
    pub reserved: u32,
}

/// Is shown an entry of the history, and the context.
#[allow(non_camel_case_types)]
pub type plinth_memory_history_callback_t =
    Option<unsafe extern "C" fn(entry: *const plinth_memory_history_entry_t, context: *mut c_void)>;

/// Is shown a function of a call stack: its name, its file, its line from 1 or 0 if that is not known, and the context. The
/// texts are valid during the call.
#[allow(non_camel_case_types)]
pub type plinth_memory_frame_callback_t =
    Option<unsafe extern "C" fn(name: *const c_char, file: *const c_char, line: u32, context: *mut c_void)>;

/// Is shown an annotation: the thread's device then, the microseconds since 1970, the name, which is valid during the call,
/// whether it began, and the context.
#[allow(non_camel_case_types)]
pub type plinth_memory_annotation_callback_t =
    Option<unsafe extern "C" fn(device: i32, time_us: u64, name: *const c_char, begin: bool, context: *mut c_void)>;

type EntryFunction = unsafe extern "C" fn(*const plinth_memory_history_entry_t, *mut c_void);

/// A text for C. None of the library's has a NUL inside, but names in files may have anything.
fn text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{FFFD}")).unwrap_or_default()
}

/// # Safety
/// The function may be called with an entry and this context.
unsafe fn show(function: EntryFunction, context: *mut c_void, device: u32, entry: &Entry) {
    let metadata = text(entry.metadata.as_deref().unwrap_or(""));
    let shown = plinth_memory_history_entry_t {
        action: entry.action as i32,
        device: device as i32,
        address: entry.address,
        size: entry.size,
        stream: entry.stream as *mut CUstream_st,
        pool: plinth_pool_id_t { owner: entry.pool.owner, index: entry.pool.index },
        time_us: entry.time_us,
        thread: entry.thread,
        metadata: metadata.as_ptr(),
        stack: entry.stack.0,
        reserved: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { function(&raw const shown, context) }
}

fn call_tracker(function: usize, context: usize, device: u32, entry: &Entry) {
    // SAFETY: the address is that of a function of this type, which the caller of plinth_attach_allocator_trace_tracker gave
    // and promised to keep callable until it is detached; function pointers have the size of an address.
    unsafe {
        let function: EntryFunction = mem::transmute(function);
        show(function, context as *mut c_void, device, entry);
    }
}

/// The options that a caller gave, with defaults for what it does not know of.
///
/// # Safety
/// `options` is NULL or a struct whose first field says its size.
unsafe fn read_options(options: *const plinth_memory_history_options_t) -> Result<Options> {
    if options.is_null() {
        return Err(null("options"));
    }
    let mut known = plinth_memory_history_options_t {
        struct_size: 0,
        enabled: PLINTH_MEMORY_HISTORY_ALL,
        context: PLINTH_MEMORY_CONTEXT_ALL,
        max_entries: 0,
        clear_history: 0,
        record_annotations: 0,
        skip_actions: 0,
        reserved: 0,
    };
    // SAFETY: the struct is not NULL, and begins with its size.
    let size = unsafe { options.cast::<usize>().read() };
    if size < mem::size_of::<usize>() * 2 {
        return Err(invalid(format!(
            "options->struct_size is {size}; set it to the size of the struct before the call"
        )));
    }
    let bytes = size.min(mem::size_of::<plinth_memory_history_options_t>());
    // SAFETY: so many bytes lie in both structs, which are plain numbers, and one of them is this function's.
    unsafe { ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes) };
    let enabled = match known.enabled {
        PLINTH_MEMORY_HISTORY_OFF => Enabled::Off,
        PLINTH_MEMORY_HISTORY_STATE => Enabled::State,
        PLINTH_MEMORY_HISTORY_ALL => Enabled::All,
        other => return Err(invalid(format!("options->enabled is {other}, which is no PLINTH_MEMORY_HISTORY_..."))),
    };
    let context = match known.context {
        PLINTH_MEMORY_CONTEXT_NONE => Context::None,
        PLINTH_MEMORY_CONTEXT_STATE => Context::State,
        PLINTH_MEMORY_CONTEXT_ALLOC => Context::Alloc,
        PLINTH_MEMORY_CONTEXT_ALL => Context::All,
        other => return Err(invalid(format!("options->context is {other}, which is no PLINTH_MEMORY_CONTEXT_..."))),
    };
    let max_entries = match known.max_entries {
        0 => usize::MAX,
        most => usize::try_from(most).unwrap_or(usize::MAX),
    };
    Ok(Options {
        enabled,
        context,
        max_entries,
        clear_history: known.clear_history != 0,
        annotations: known.record_annotations != 0,
        skip_actions: known.skip_actions,
    })
}

#[cold]
fn invalid(message: String) -> crate::error::Error {
    crate::error::Error::new(crate::status::Status::INVALID_VALUE, message)
}

/// Begins to keep a history of the allocator on all devices, as torch.cuda.memory._record_memory_history does, keeps it in
/// another way from now on, or ends it, which forgets it. Thread-safe.
///
/// An entry costs some 20 ns, and a call stack some 5 ns for each function in it, the first time that a thread comes
/// through a function excepted; entries are kept for each stream, so as many as max_entries may be kept of each. With
/// PLINTH_MEMORY_HISTORY_OFF requests cost what they cost without a history.
///
/// Stacks are those of C and C++: what functions they tell of is found out when they are read, from the debug information
/// and the symbols of the program's files.
///
/// @param options The options, with struct_size set.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set and for numbers
///         that mean nothing; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_record_memory_history(
    options: *const plinth_memory_history_options_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        history::record(unsafe { read_options(options) }?)
    })
}

/// Tells whether a history is kept: callers, or entries. Thread-safe; needs no device.
///
/// @param enabled Out: whether it is.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_history_is_enabled(enabled: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let enabled = unsafe { Output::new(enabled, "enabled") }?;
        enabled.set(history::is_on());
        Ok(())
    })
}

/// Shows the entries of a device's history, the oldest first. What happens meanwhile is not among them. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param callback What is called for each, in this thread, with no lock of the library's held; it may call the library.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_history_each(
    device: i32,
    callback: plinth_memory_history_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        let device = runtime::ready()?.device(device)?.ordinal;
        for entry in history::entries(device) {
            // SAFETY: the caller's function, and the context that belongs to it.
            unsafe { show(callback, context, device, &entry) };
        }
        Ok(())
    })
}

/// Shows the functions of a call stack, the innermost first: who called the library. To find out what a function is may take
/// seconds the first time that a large library is looked into. Thread-safe; needs no device.
///
/// Names of C++ are told as they are written if the process has a C++ library. A function of which no file tells anything is
/// "??". A library must still be loaded.
///
/// @param stack The stack, from an entry. For 0, and for what is no stack, the callback is not called.
/// @param callback What is called for each, in this thread; it may call the library.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stack_each(
    stack: u32,
    callback: plinth_memory_frame_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for frame in history::frames(StackId(stack)).iter() {
            let (name, file) = (text(&frame.name), text(&frame.file));
            // SAFETY: the caller's function, which takes two strings, a number and the context that belongs to it.
            unsafe { callback(name.as_ptr(), file.as_ptr(), frame.line, context) };
        }
        Ok(())
    })
}

/// Returns torch's name of an action, "free_requested"; "unknown" for a number that is none. Thread-safe; needs no device.
///
/// @param action The action, one of PLINTH_MEMORY_ACTION_....
/// @return A static text, never NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_action_name(action: i32) -> *const c_char {
    guard::text(|| {
        let name = match action {
            PLINTH_MEMORY_ACTION_ALLOC => c"alloc",
            PLINTH_MEMORY_ACTION_FREE_REQUESTED => c"free_requested",
            PLINTH_MEMORY_ACTION_FREE_COMPLETED => c"free_completed",
            PLINTH_MEMORY_ACTION_SEGMENT_ALLOC => c"segment_alloc",
            PLINTH_MEMORY_ACTION_SEGMENT_FREE => c"segment_free",
            PLINTH_MEMORY_ACTION_SEGMENT_MAP => c"segment_map",
            PLINTH_MEMORY_ACTION_SEGMENT_UNMAP => c"segment_unmap",
            PLINTH_MEMORY_ACTION_SNAPSHOT => c"snapshot",
            PLINTH_MEMORY_ACTION_OOM => c"oom",
            _ => c"unknown",
        };
        name.as_ptr()
    })
}

/// Sets the calling thread's tag, which every entry has that the thread makes from now on. Each text is kept once, and for as
/// long as the process lives. Thread-safe; needs no device.
///
/// @param text The tag; an empty text for none.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_memory_metadata(text: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        tags::set(&unsafe { string(text, "text") }?);
        Ok(())
    })
}

/// Gives the calling thread's tag. Thread-safe; needs no device.
///
/// @param text Out: the tag, an empty text if there is none. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_memory_metadata(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(&tags::get())?);
        Ok(())
    })
}

/// Notes in the history that something of the program's begins, a step or a layer, if the history has record_annotations.
/// Thread-safe.
///
/// @param name What begins.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_annotation_begin(name: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        history::annotate(&unsafe { string(name, "name") }?, true);
        Ok(())
    })
}

/// Notes in the history that something of the program's ends. Thread-safe.
///
/// @param name What ends.
/// @return As plinth_memory_annotation_begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_annotation_end(name: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        history::annotate(&unsafe { string(name, "name") }?, false);
        Ok(())
    })
}

/// Shows the annotations, the oldest first: the newest max_entries. Thread-safe.
///
/// @param callback What is called for each, in this thread, with no lock of the library's held; it may call the library.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_annotations_each(
    callback: plinth_memory_annotation_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for annotation in history::annotations() {
            let (device, name) = (annotation.device as i32, text(&annotation.name));
            // SAFETY: the caller's function, which takes numbers, a string and the context that belongs to it.
            unsafe { callback(device, annotation.time_us, name.as_ptr(), annotation.begin, context) };
        }
        Ok(())
    })
}

/// Attaches a tracker: a callback that is shown everything of which a history would have an entry, on all devices, whether a
/// history is kept or not and whatever it skips. Entries have a stack where a history is kept that has one. Thread-safe.
///
/// Trackers are called in the order in which things happen, one at a time, by the thread whose call made something happen and
/// before that call returns, or by another thread that is at it. No lock of the allocator's is held: a tracker may
/// call the library, and what it makes happen itself is shown to none. It must not wait for a thread that
/// allocates.
///
/// @param tracker The tracker, which stays callable, with the context, until it is detached and no call is under way that may
///        have met it.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_attach_allocator_trace_tracker(
    tracker: plinth_memory_history_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = tracker.ok_or_else(|| null("tracker"))? as usize;
        trackers::attach(Callback { function, context: context as usize, call: call_tracker })
    })
}

/// Detaches what plinth_attach_allocator_trace_tracker attached, the last one of this tracker and context. Thread-safe.
///
/// @param tracker The tracker.
/// @param context Its context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_detach_allocator_trace_tracker(
    tracker: plinth_memory_history_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = tracker.ok_or_else(|| null("tracker"))? as usize;
        trackers::detach(function, context as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::history::Action;
    use std::ffi::CStr;

    #[test]
    fn actions_have_one_name() {
        for action in Action::ALL {
            // SAFETY: any number may be asked for, and the answer is a string.
            let name = unsafe { CStr::from_ptr(plinth_memory_action_name(action as i32)) };
            assert_eq!(name.to_str(), Ok(action.name()));
        }
        // SAFETY: as above.
        let none = unsafe { CStr::from_ptr(plinth_memory_action_name(9)) };
        assert_eq!(none, c"unknown");
    }
}
