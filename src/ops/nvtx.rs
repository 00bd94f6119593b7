//! Ranges and marks for profilers, by NVTX's protocol ([`driver::nvtx`](crate::driver::nvtx)).
//!
//! The nesting depth of a thread's ranges is also counted here, so that a program sees the same depths with and without
//! a tool attached. If a tool is attached, its own count is returned, which includes the ranges that other libraries
//! pushed in the thread.

use crate::{
    base::log::{self, Level},
    driver::{
        HostFunction,
        nvtx::{self, Annotation, Domain},
    },
    error::{Error, Result},
    observe,
    runtime::{
        self,
        call_flags::{self, ANNOTATED, LOGGED, NAMED},
        thread,
    },
    status::Status,
    stream,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    sync::atomic::{AtomicU64, Ordering},
};

/// Returns whether a tool is attached.
#[inline]
pub fn is_active() -> bool {
    nvtx::listens()
}

/// Returns whether it is already known that no tool is attached. In a forked child it is not: calls are refused there.
#[inline]
pub fn is_silent() -> bool {
    nvtx::is_silent()
}

/// Emits an instantaneous event.
#[inline]
pub fn mark(domain: Domain, annotation: &Annotation) {
    if nvtx::listens() {
        domain.mark(annotation);
    }
}

/// Begins a range inside the thread's innermost range and returns the nesting depth around it.
#[inline]
pub fn range_push(domain: Domain, annotation: &Annotation) -> i32 {
    let depth = thread::push_range();
    if nvtx::listens() { domain.range_push(annotation).unwrap_or(depth) } else { depth }
}

/// Ends the thread's innermost range and returns the nesting depth around it.
#[inline]
pub fn range_pop(domain: Domain) -> Result<i32> {
    let tool_depth = if nvtx::listens() { domain.range_pop() } else { None };
    let depth = thread::pop_range();
    // A tool also counts ranges that other libraries pushed in the thread.
    tool_depth.or(depth).ok_or_else(no_range)
}

#[cold]
fn no_range() -> Error {
    Error::new(Status::INVALID_VALUE, "the calling thread has no range that was pushed and not popped")
}

/// Begins a range that any thread may end and returns its id, or 0 if no tool is attached.
#[inline]
pub fn range_start(domain: Domain, annotation: &Annotation) -> u64 {
    if nvtx::listens() { domain.range_start(annotation) } else { 0 }
}

/// Ends a range of [`range_start`].
#[inline]
pub fn range_end(domain: Domain, range: u64) {
    if range != 0 && nvtx::listens() {
        domain.range_end(range);
    }
}

/// A range of a stream: it begins and ends when the stream reaches the corresponding call.
struct StreamRange {
    message: CString,
    /// The tool's id of the range, once it has begun.
    range: u64,
    /// Whether it was captured by a graph, which may replay it at any time.
    captured: bool,
}

static STREAM_RANGES: Mutex<Option<HashMap<u64, StreamRange>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Begins a range when the stream's work so far is done. Returns the range's number, or 0 if no tool is attached.
pub fn stream_range_start(message: &CStr, handle: usize, call: impl FnOnce(u64) -> HostFunction) -> Result<u64> {
    let runtime = runtime::ready()?;
    stream::resolve(runtime, handle)?;
    if !nvtx::listens() {
        return Ok(0);
    }
    let captured = stream::is_capturing(handle)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let range = StreamRange { message: message.to_owned(), range: 0, captured };
    STREAM_RANGES.lock().get_or_insert_default().insert(number, range);
    stream::launch_host_function(handle, call(number)).inspect_err(|_| forget(number))?;
    Ok(number)
}

/// Ends a range when the stream's work so far is done.
pub fn stream_range_end(number: u64, handle: usize, call: impl FnOnce(u64) -> HostFunction) -> Result<()> {
    let runtime = runtime::ready()?;
    stream::resolve(runtime, handle)?;
    if number == 0 {
        return Ok(());
    }
    if !STREAM_RANGES.lock().as_ref().is_some_and(|ranges| ranges.contains_key(&number)) {
        return Err(Error::new(Status::INVALID_HANDLE, format!("no stream's range has the number {number}")));
    }
    stream::launch_host_function(handle, call(number))
}

fn forget(number: u64) {
    if let Some(ranges) = STREAM_RANGES.lock().as_mut() {
        ranges.remove(&number);
    }
}

/// Begins a range; called when the stream reaches its start.
pub fn on_stream_range_begin(number: u64) {
    if let Some(range) = STREAM_RANGES.lock().as_mut().and_then(|ranges| ranges.get_mut(&number)) {
        range.range = Domain::DEFAULT.range_start(&plain(&range.message));
    }
}

/// Ends a range; called when the stream reaches its end.
pub fn on_stream_range_end(number: u64) {
    let mut ranges = STREAM_RANGES.lock();
    let Some(ranges) = ranges.as_mut() else { return };
    if let Some(range) = ranges.get_mut(&number) {
        range_end(Domain::DEFAULT, std::mem::take(&mut range.range));
        if !range.captured {
            ranges.remove(&number);
        }
    }
}

/// Returns an annotation with a message only.
pub fn plain(message: &CStr) -> Annotation<'_> {
    Annotation { message, category: 0, color: None, payload: None }
}

/// Turns ranges around the library's own calls on or off.
pub fn annotate_own_calls(on: bool) {
    call_flags::set(ANNOTATED, on && nvtx::listens());
}

/// Turns reporting the name of the library's current call to the sanitizer on or off.
pub fn report_names(on: bool) {
    call_flags::set(NAMED, on);
}

/// Sets the callback of the log for messages of `level` and above.
pub fn set_log_callback(level: log::Level, callback: Option<log::Callback>) {
    // Two threads that set callbacks agree on whether calls are observed.
    static SETTING: Mutex<()> = Mutex::new(());
    let setting = SETTING.lock();
    call_flags::set(LOGGED, callback.is_some());
    let previous = log::set_callback(level, callback);
    drop(setting);
    drop(previous);
}

/// Returns the name of the exported function in the path of a closure in it.
pub fn function_name(path: &'static str) -> &'static str {
    path.split("::").find(|part| part.starts_with("plinth_")).unwrap_or(path)
}

/// One of the library's own calls that is observed.
#[derive(Debug)]
pub struct OwnCall {
    /// The observers that were notified of its beginning.
    observers: u8,
    /// The name of the call around it for the log.
    outer_logged: &'static str,
    /// That for the sanitizer.
    outer_named: &'static str,
}

/// Reports the beginning of one of the library's own calls, given the path of the function's name. Returns what
/// [`end_own_call`] needs. The calls for ranges are not ranges themselves, because those ranges would enclose what they
/// begin.
#[cold]
#[inline(never)]
pub fn begin_own_call(path: &'static str) -> OwnCall {
    let function = function_name(path);
    let mut observers = call_flags::get();
    if function.starts_with("plinth_nvtx_") {
        observers &= !ANNOTATED;
    }
    let outer_logged = if observers & LOGGED != 0 { log::enter(function) } else { "" };
    let outer_named = if observers & NAMED != 0 { observe::on_call_begin(function) } else { "" };
    if observers & ANNOTATED != 0 {
        let name = CString::new(function).unwrap_or_default();
        Domain::DEFAULT.range_push(&plain(&name));
    }
    OwnCall { observers, outer_logged, outer_named }
}

/// Reports the end of a call, with its error if it failed, to the observers that were notified of its beginning.
#[cold]
#[inline(never)]
pub fn end_own_call(call: OwnCall, error: Option<&Error>) {
    if call.observers & ANNOTATED != 0 {
        Domain::DEFAULT.range_pop();
    }
    if call.observers & NAMED != 0 {
        observe::on_call_end(call.outer_named);
    }
    if call.observers & LOGGED != 0 {
        if let Some(error) = error {
            let level = if error.status() == Status::PANIC { Level::Error } else { Level::Debug };
            log::log(level, || {
                let name = error.status().info().map_or("an unknown status", |info| info.name.trim_end_matches('\0'));
                format!("failed with {name}: {error}")
            });
        }
        log::leave(call.outer_logged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_begin_at_zero_in_each_thread() {
        let push = || range_push(Domain::DEFAULT, &plain(c"range"));
        assert_eq!((push(), push()), (0, 1));
        std::thread::spawn(|| assert_eq!(range_pop(Domain::DEFAULT).unwrap_err().status(), Status::INVALID_VALUE))
            .join()
            .unwrap();
        assert_eq!(range_pop(Domain::DEFAULT).unwrap(), 1);
        assert_eq!(range_pop(Domain::DEFAULT).unwrap(), 0);
        assert!(range_pop(Domain::DEFAULT).is_err());
        assert_eq!(push(), 0);
        range_pop(Domain::DEFAULT).unwrap();
    }
}
