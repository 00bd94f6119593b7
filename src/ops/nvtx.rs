//! Ranges and marks for profilers, by NVTX's protocol ([`driver::nvtx`](crate::driver::nvtx)).
//!
//! How deep a thread's ranges are nested is counted here too, so that a program sees the same depths whether a tool listens
//! or not. Where a tool does, its own count is told, which has in it what others in the thread pushed.

use crate::{
    driver::{
        HostFunction,
        nvtx::{self, Annotation, Domain},
    },
    error::{Error, Result},
    runtime::{self, thread},
    sanitizer,
    status::Status,
    stream,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

/// Who wants to know of the library's own calls.
static OWN_CALLS: AtomicU8 = AtomicU8::new(0);
/// A profiler, of all of them.
const ANNOTATED: u8 = 1;
/// The stream sanitizer, of the one that a thread is in.
const NAMED: u8 = 2;

/// Whether a tool listens.
#[inline]
pub fn is_active() -> bool {
    nvtx::listens()
}

/// Whether it is known by now that none does.
#[inline]
pub fn is_silent() -> bool {
    nvtx::is_silent()
}

/// Tells of a moment.
#[inline]
pub fn mark(domain: Domain, annotation: &Annotation) {
    if nvtx::listens() {
        domain.mark(annotation);
    }
}

/// Begins a range inside the thread's innermost one; how many there are around it.
#[inline]
pub fn range_push(domain: Domain, annotation: &Annotation) -> i32 {
    let depth = thread::push_range();
    if nvtx::listens() { domain.range_push(annotation).unwrap_or(depth) } else { depth }
}

/// Ends the thread's innermost range; how many there are around it.
#[inline]
pub fn range_pop(domain: Domain) -> Result<i32> {
    let told = if nvtx::listens() { domain.range_pop() } else { None };
    let depth = thread::pop_range();
    // A tool may know of ranges that others in the thread pushed.
    told.or(depth).ok_or_else(no_range)
}

#[cold]
fn no_range() -> Error {
    Error::new(Status::INVALID_VALUE, "the calling thread has no range that was pushed and not popped")
}

/// Begins a range that any thread may end; its number, 0 where no tool listens.
#[inline]
pub fn range_start(domain: Domain, annotation: &Annotation) -> u64 {
    if nvtx::listens() { domain.range_start(annotation) } else { 0 }
}

/// Ends it.
#[inline]
pub fn range_end(domain: Domain, range: u64) {
    if range != 0 && nvtx::listens() {
        domain.range_end(range);
    }
}

/// A range of a stream: it begins and ends when the stream's work gets there.
struct StreamRange {
    message: CString,
    /// The tool's number of it, once it has begun.
    range: u64,
    /// Whether a graph has it, which may replay it at any time.
    captured: bool,
}

static STREAM_RANGES: Mutex<Option<HashMap<u64, StreamRange>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Lets a stream begin a range once its work so far is done; the range's number, 0 where no tool listens.
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

/// Lets a stream end it.
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

/// The stream has come to where a range begins.
pub fn stream_range_begins(number: u64) {
    if let Some(range) = STREAM_RANGES.lock().as_mut().and_then(|ranges| ranges.get_mut(&number)) {
        range.range = Domain::DEFAULT.range_start(&plain(&range.message));
    }
}

/// The stream has come to where it ends.
pub fn stream_range_ends(number: u64) {
    let mut ranges = STREAM_RANGES.lock();
    let Some(ranges) = ranges.as_mut() else { return };
    if let Some(range) = ranges.get_mut(&number) {
        range_end(Domain::DEFAULT, std::mem::take(&mut range.range));
        if !range.captured {
            ranges.remove(&number);
        }
    }
}

/// An annotation of nothing but a text.
pub fn plain(message: &CStr) -> Annotation<'_> {
    Annotation { message, category: 0, color: None, payload: None }
}

/// Lets the library tell of its own calls, or keep quiet again.
pub fn annotate_own_calls(on: bool) {
    want(ANNOTATED, on && nvtx::listens());
}

/// Lets the sanitizer be told of which of the library's calls a thread is in, or not any more.
pub fn want_names(on: bool) {
    want(NAMED, on);
}

fn want(who: u8, on: bool) {
    if on {
        OWN_CALLS.fetch_or(who, Ordering::Relaxed);
    } else {
        OWN_CALLS.fetch_and(!who, Ordering::Relaxed);
    }
}

/// Whether anybody wants to know of the library's own calls.
#[inline(always)]
pub fn tells_own_calls() -> bool {
    OWN_CALLS.load(Ordering::Relaxed) != 0
}

/// Tells of a call of the library's own that begins, by the path of the function's name. What [`end_own_call`] is to be told.
/// The calls for ranges are no ranges themselves, for theirs would lie around what they begin.
#[cold]
#[inline(never)]
pub fn begin_own_call(path: &'static str) -> u8 {
    let function = path.split("::").find(|part| part.starts_with("plinth_")).unwrap_or(path);
    let wanted = OWN_CALLS.load(Ordering::Relaxed);
    if wanted & NAMED != 0 {
        sanitizer::enter(function);
    }
    if wanted & ANNOTATED == 0 || function.starts_with("plinth_nvtx_") {
        return wanted & NAMED;
    }
    let name = CString::new(function).unwrap_or_default();
    Domain::DEFAULT.range_push(&plain(&name));
    wanted
}

/// Tells of its end.
#[cold]
#[inline(never)]
pub fn end_own_call(told: u8) {
    if told & ANNOTATED != 0 {
        Domain::DEFAULT.range_pop();
    }
    if told & NAMED != 0 {
        sanitizer::leave();
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
