//! Settings of the allocator
//!
//! The settings that PLINTH_ALLOC_CONF holds when the process starts, read and changed at run time. They hold for the
//! whole process.

use crate::{
    ffi::{Output, guard::guard, owned_text, status::plinth_status_t, string},
    memory,
};
use std::ffi::c_char;

/// Changes settings of the allocator, as torch.cuda.memory._set_allocator_settings does.
///
/// The text has the form "key:value,key:value", in the grammar of PLINTH_ALLOC_CONF. docs/allocator_settings.md lists
/// the keys. Either all keys in the text change or none; the other keys keep their values. The new values apply to
/// later allocations. Needs no device.
///
/// `backend` and `debug` can change until the first request for memory, and `expandable_segments` until a device has
/// memory.
///
/// @param settings The text.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an unknown key or a bad value, with a
///         message that names it; PLINTH_ERROR_ALREADY_INITIALIZED for a key that cannot change any more;
///         PLINTH_ERROR_INVALID_CONFIGURATION for an invalid setting in the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_allocator_settings(settings: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let settings = unsafe { string(settings, "settings") }?;
        memory::set_allocator_settings(&settings)
    })
}

/// Gets the settings of the allocator as a text that plinth_set_allocator_settings accepts.
///
/// The text has every key that has a value. Needs no device.
///
/// @param settings Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION for
///         an invalid setting in the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_allocator_settings(settings: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let settings = unsafe { Output::new(settings, "settings") }?;
        settings.set(owned_text(&memory::allocator_settings()?)?);
        Ok(())
    })
}
