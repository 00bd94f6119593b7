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
    error::{Result, invalid},
    ffi::{
        CUstream_st, Output, c_text,
        guard::{self, guard},
        null, owned_text, plinth_stream_t,
        pool::plinth_pool_id_t,
        status::plinth_status_t,
        string, structs,
    },
    memory::{
        callbacks::Callback,
        history::{self, Context, Enabled, Entry, Options, StackId},
        recorder, tags,
    },
    runtime::{
        self,
        names::{self, Subject},
        thread::call_program,
    },
};
use std::{
    ffi::{c_char, c_void},
    mem,
    sync::Arc,
};

/// Records nothing.
pub const PLINTH_MEMORY_HISTORY_OFF: i32 = 0;
/// Records the stack trace of each live block's allocation. Discards entries from before.
pub const PLINTH_MEMORY_HISTORY_STATE: i32 = 1;
/// Records the stack traces of live blocks, and an entry for every event.
pub const PLINTH_MEMORY_HISTORY_ALL: i32 = 2;

/// Record no stack traces.
pub const PLINTH_MEMORY_CONTEXT_NONE: i32 = 0;
/// Record a stack trace for live blocks.
pub const PLINTH_MEMORY_CONTEXT_STATE: i32 = 1;
/// Record a stack trace for live blocks, and for events of calls that allocate: allocated blocks and segments, mapped
/// memory, and requests that failed.
pub const PLINTH_MEMORY_CONTEXT_ALLOC: i32 = 2;
/// Record a stack trace for every event.
pub const PLINTH_MEMORY_CONTEXT_ALL: i32 = 3;

/// A block was allocated.
pub const PLINTH_MEMORY_ACTION_ALLOC: i32 = 0;
/// The program freed a block.
pub const PLINTH_MEMORY_ACTION_FREE_REQUESTED: i32 = 1;
/// A freed block became reusable: at once, or when the streams that were recorded on it had passed the free.
pub const PLINTH_MEMORY_ACTION_FREE_COMPLETED: i32 = 2;
/// A segment was allocated from the driver (expandable_segments:False).
pub const PLINTH_MEMORY_ACTION_SEGMENT_ALLOC: i32 = 3;
/// A segment was freed to the driver.
pub const PLINTH_MEMORY_ACTION_SEGMENT_FREE: i32 = 4;
/// Physical memory was mapped into an address range that the allocator has reserved.
pub const PLINTH_MEMORY_ACTION_SEGMENT_MAP: i32 = 5;
/// Physical memory was unmapped from an address range, to be released to the driver or mapped elsewhere.
pub const PLINTH_MEMORY_ACTION_SEGMENT_UNMAP: i32 = 6;
/// A snapshot was taken.
pub const PLINTH_MEMORY_ACTION_SNAPSHOT: i32 = 7;
/// A request failed because memory ran out; `address` holds the number of bytes that the device had free.
pub const PLINTH_MEMORY_ACTION_OOM: i32 = 8;

/// Options of a memory history. PLINTH_MEMORY_HISTORY_OPTIONS_INIT has torch's defaults: every event with a stack
/// trace, without a limit.
///
/// The struct grows at its end in newer versions; fields that a program's version lacks have their defaults. Set
/// struct_size to sizeof(plinth_memory_history_options_t).
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_history_options_t {
    /// The size of the struct in the caller.
    pub struct_size: usize,
    /// What is recorded: one of PLINTH_MEMORY_HISTORY_....
    pub enabled: i32,
    /// What has a stack trace: one of PLINTH_MEMORY_CONTEXT_....
    pub context: i32,
    /// The maximum number of entries per device; the newest are kept. 0 is no limit.
    pub max_entries: u64,
    /// 1 discards the history that was recorded before, else 0.
    pub clear_history: i32,
    /// 1 records annotations, else 0.
    pub record_annotations: i32,
    /// The actions that are not recorded: the sum of 1 << PLINTH_MEMORY_ACTION_... for each.
    pub skip_actions: u32,
    /// Reserved: 0.
    pub reserved: u32,
}

/// An event of the allocator. The strings it points to are valid during the callback.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct plinth_memory_history_entry_t {
    /// The size of the struct in the library's version.
    pub struct_size: usize,
    /// The kind of event: one of PLINTH_MEMORY_ACTION_....
    pub action: i32,
    /// The device number.
    pub device: i32,
    /// The address of the block or the segment. For PLINTH_MEMORY_ACTION_OOM the number of bytes that the device had
    /// free.
    pub address: u64,
    /// Size in bytes: of a block, as requested; of a segment, its whole size.
    pub size: u64,
    /// The stream that the memory was allocated for.
    pub stream: plinth_stream_t,
    /// The pool that the memory belongs to.
    pub pool: plinth_pool_id_t,
    /// Time in microseconds since 1970.
    pub time_us: u64,
    /// The thread's id in the operating system (gettid).
    pub thread: u64,
    /// The thread's tag at that time, from plinth_set_memory_metadata; an empty string if there was none.
    pub metadata: *const c_char,
    /// The stack trace, for plinth_memory_stack_each; 0 if none was recorded.
    pub stack: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// The name of the block; an empty string if it has none. It is the name that the block had when it was freed, or
    /// now if it is live; all events of a block have it. A tracker receives it with PLINTH_MEMORY_ACTION_FREE_REQUESTED
    /// only. If that action is skipped, freed blocks have no names.
    pub name: *const c_char,
    /// The name of the stream when the entry is read; an empty string if it has none.
    pub stream_name: *const c_char,
}

/// Receives an entry of the history, and the context. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_memory_history_callback_t =
    Option<unsafe extern "C" fn(entry: *const plinth_memory_history_entry_t, context: *mut c_void)>;

/// Receives a function of a stack trace: its name, its file, its line (from 1; 0 if unknown), and the context. The
/// strings are valid during the call. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_memory_frame_callback_t =
    Option<unsafe extern "C" fn(name: *const c_char, file: *const c_char, line: u32, context: *mut c_void)>;

/// Receives an annotation: the thread's device at that time, the time in microseconds since 1970, the name, whether it
/// is a begin (else an end), and the context. The name is valid during the call. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_memory_annotation_callback_t =
    Option<unsafe extern "C" fn(device: i32, time_us: u64, name: *const c_char, begin: bool, context: *mut c_void)>;

type EntryFunction = unsafe extern "C" fn(*const plinth_memory_history_entry_t, *mut c_void);

/// # Safety
/// It must be valid to call the function with an entry and this context.
unsafe fn show(function: EntryFunction, context: *mut c_void, device: u32, entry: &Entry) {
    let text = |text: &Option<Arc<str>>| c_text(text.as_deref().unwrap_or(""));
    let (metadata, name) = (text(&entry.metadata), text(&entry.name));
    let stream_name = text(&names::get(Subject::stream(entry.stream, device)));
    let shown = plinth_memory_history_entry_t {
        struct_size: mem::size_of::<plinth_memory_history_entry_t>(),
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
        name: name.as_ptr(),
        stream_name: stream_name.as_ptr(),
    };
    // SAFETY: the caller makes this promise.
    call_program(|| unsafe { function(&raw const shown, context) });
}

fn call_tracker(function: usize, context: usize, device: u32, entry: &Entry) {
    // SAFETY: the address is that of a function of this type. The caller of plinth_attach_allocator_trace_tracker
    // passed it and promised to keep it callable until it is detached; function pointers have the size of an address.
    unsafe {
        let function: EntryFunction = mem::transmute(function);
        show(function, context as *mut c_void, device, entry);
    }
}

/// Reads the options of a caller, with defaults for fields that its version of the struct lacks.
///
/// # Safety
/// `options` is NULL or points to a struct whose first field is its size.
unsafe fn read_options(options: *const plinth_memory_history_options_t) -> Result<Options> {
    let initial = plinth_memory_history_options_t {
        struct_size: 0,
        enabled: PLINTH_MEMORY_HISTORY_ALL,
        context: PLINTH_MEMORY_CONTEXT_ALL,
        max_entries: 0,
        clear_history: 0,
        record_annotations: 0,
        skip_actions: 0,
        reserved: 0,
    };
    // SAFETY: the caller makes this promise.
    let known = unsafe { structs::read(options, initial, "options") }?;
    let enabled = match known.enabled {
        PLINTH_MEMORY_HISTORY_OFF => Enabled::Off,
        PLINTH_MEMORY_HISTORY_STATE => Enabled::State,
        PLINTH_MEMORY_HISTORY_ALL => Enabled::All,
        other => {
            return Err(invalid(format!(
                "options->enabled is {other}; use one of the PLINTH_MEMORY_HISTORY_ constants"
            )));
        }
    };
    let context = match known.context {
        PLINTH_MEMORY_CONTEXT_NONE => Context::None,
        PLINTH_MEMORY_CONTEXT_STATE => Context::State,
        PLINTH_MEMORY_CONTEXT_ALLOC => Context::Alloc,
        PLINTH_MEMORY_CONTEXT_ALL => Context::All,
        other => {
            return Err(invalid(format!(
                "options->context is {other}; use one of the PLINTH_MEMORY_CONTEXT_ constants"
            )));
        }
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

/// Starts, changes or stops recording a history of the allocator on all devices, as
/// torch.cuda.memory._record_memory_history does. Stopping discards the history.
///
/// An entry costs about 20 ns. A stack trace costs about 5 ns for each function in it, more when a thread passes
/// through a function for the first time. The library stores up to max_entries entries for each stream; reads return
/// the newest max_entries entries of a device. With PLINTH_MEMORY_HISTORY_OFF requests cost what they cost without a
/// history.
///
/// Stack traces contain C and C++ functions. Function names are looked up when a stack is read, in the debug
/// information and symbols of the program's files.
///
/// @param options The options, with struct_size set.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set, and for an
///         unknown `enabled` or `context`; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_record_memory_history(
    options: *const plinth_memory_history_options_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        recorder::record_history(unsafe { read_options(options) }?)
    })
}

/// Reports whether a history is recorded: stack traces of live blocks, or entries. Needs no device.
///
/// @param enabled Out: whether a history is recorded.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_history_is_enabled(enabled: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let enabled = unsafe { Output::new(enabled, "enabled") }?;
        enabled.set(history::is_on());
        Ok(())
    })
}

/// Passes the entries of a device's history to a callback, the oldest first. Events that happen during the call are not
/// included.
///
/// @param device The device number; -1 for the current device.
/// @param callback Called for each entry, in the calling thread, without any lock of the library held; it may call the
///        library.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL; PLINTH_ERROR_INVALID_DEVICE; the errors of
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
        for entry in recorder::entries(device) {
            // SAFETY: this is the caller's function, with the context that belongs to it.
            unsafe { show(callback, context, device, &entry) };
        }
        Ok(())
    })
}

/// Passes the functions of a stack trace to a callback, the innermost first, starting with the caller of the library.
/// Looking up names may take seconds the first time for a large library. Needs no device.
///
/// C++ names are demangled if the process has a C++ library. A function whose name is unknown is "??". A library must
/// still be loaded for its functions to be found.
///
/// @param stack The stack, from an entry. For 0 and for an invalid number the callback is not called.
/// @param callback Called for each function, in the calling thread; it may call the library.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_stack_each(
    stack: u32,
    callback: plinth_memory_frame_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for frame in history::frames(StackId(stack)).iter() {
            let (name, file) = (c_text(&frame.name), c_text(&frame.file));
            // SAFETY: this is the caller's function, which takes two strings, a number and the context that belongs to
            // it.
            call_program(|| unsafe { callback(name.as_ptr(), file.as_ptr(), frame.line, context) });
        }
        Ok(())
    })
}

/// Returns torch's name of an action, for example "free_requested"; "unknown" for an invalid number. Needs no device.
///
/// @param action The action, one of PLINTH_MEMORY_ACTION_....
/// @return A static string, never NULL.
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

/// Sets the calling thread's tag, which is stored in every entry that the thread records from now on. Needs no device.
///
/// @param text The tag; an empty string for none.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_memory_metadata(text: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        tags::set(&unsafe { string(text, "text") }?);
        Ok(())
    })
}

/// Returns the calling thread's tag. Needs no device.
///
/// @param text Out: the tag, an empty string if there is none. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_memory_metadata(text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let text = unsafe { Output::new(text, "text") }?;
        text.set(owned_text(tags::current().as_deref().unwrap_or_default())?);
        Ok(())
    })
}

/// Records in the history that a named phase of the program begins, such as a step or a layer. Does nothing unless
/// record_annotations is set.
///
/// @param name The name of the phase.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_annotation_begin(name: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        history::annotate(&unsafe { string(name, "name") }?, true);
        Ok(())
    })
}

/// Records in the history that a named phase of the program ends.
///
/// @param name The name of the phase.
/// @return The statuses of plinth_memory_annotation_begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_annotation_end(name: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        history::annotate(&unsafe { string(name, "name") }?, false);
        Ok(())
    })
}

/// Passes the annotations to a callback, the oldest first. The newest max_entries are kept.
///
/// @param callback Called for each annotation, in the calling thread, without any lock of the library held; it may call
///        the library.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_annotations_each(
    callback: plinth_memory_annotation_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for annotation in history::annotations() {
            let (device, name) = (annotation.device as i32, c_text(&annotation.name));
            // SAFETY: this is the caller's function, which takes numbers, a string and the context that belongs to it.
            call_program(|| unsafe { callback(device, annotation.time_us, name.as_ptr(), annotation.begin, context) });
        }
        Ok(())
    })
}

/// Attaches a tracker: a callback that receives every event that a full history would record, on all devices, whether
/// or not a history is recorded and regardless of skip_actions. An entry has a stack if a history is being recorded
/// that has one.
///
/// Trackers are called one at a time, in the order of the events, before the call that caused the event returns: by the
/// thread of that call, or by another thread that is already calling trackers. No allocator lock is held. A tracker may
/// call the library; events that it causes itself are not passed to any tracker. It must not wait for a thread that
/// allocates.
///
/// @param tracker The tracker. It and the context must stay valid until it is detached and every call that may have
///        started before is complete.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_attach_allocator_trace_tracker(
    tracker: plinth_memory_history_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = tracker.ok_or_else(|| null("tracker"))? as usize;
        recorder::attach_tracker(Callback { function, context: context as usize, call: call_tracker })
    })
}

/// Detaches a tracker of plinth_attach_allocator_trace_tracker: the last one that was attached with this function and
/// context.
///
/// @param tracker The tracker.
/// @param context Its context.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is no such tracker; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_detach_allocator_trace_tracker(
    tracker: plinth_memory_history_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let function = tracker.ok_or_else(|| null("tracker"))? as usize;
        recorder::detach_tracker(function, context as usize)
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
            // SAFETY: every number is a valid argument, and the result is a NUL-terminated string.
            let name = unsafe { CStr::from_ptr(plinth_memory_action_name(action as i32)) };
            assert_eq!(name.to_str(), Ok(action.name()));
        }
        // SAFETY: as above.
        let none = unsafe { CStr::from_ptr(plinth_memory_action_name(9)) };
        assert_eq!(none, c"unknown");
    }
}
