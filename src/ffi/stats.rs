//! What the statistics of device memory and of pinned memory share.

use crate::{
    error::Result,
    ffi::{Output, owned_text},
    memory::stats::Statistic,
    runtime::thread::call_program,
};
use std::ffi::{CString, c_char, c_void};

/// Passes each value of the statistics to a callback, in the order of the keys.
///
/// # Safety
/// It must be valid to call the callback with a string, a number and this context.
pub(super) unsafe fn visit<V>(
    stats: &impl Statistic,
    callback: unsafe extern "C" fn(*const c_char, V, *mut c_void),
    context: *mut c_void,
    convert: fn(i64) -> V,
) {
    for (key, value) in stats.entries() {
        // The keys contain no NUL.
        let key = CString::new(key).unwrap_or_default();
        // SAFETY: the caller makes this promise.
        call_program(|| unsafe { callback(key.as_ptr(), convert(value), context) });
    }
}

/// Writes statistics as JSON.
///
/// # Safety
/// `text` is NULL, or a pointer may be written through it.
pub(super) unsafe fn write_json<S: Statistic>(
    text: *mut *mut c_char,
    nested: bool,
    read: impl FnOnce() -> Result<S>,
) -> Result<()> {
    // SAFETY: the caller makes this promise.
    let text = unsafe { Output::new(text, "text") }?;
    text.set(owned_text(&read()?.json(nested))?);
    Ok(())
}
