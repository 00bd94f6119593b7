//! The names that the program gives to streams and to memory, for messages, reports, snapshots and profilers.
//!
//! While there was never a name, a look-up is a single load.

use crate::driver::{
    nvtx::{self, Resource},
    types::CU_STREAM_PER_THREAD,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A stream: its handle, and its device if that does not follow from the handle.
    Stream(usize, u32),
    /// Memory, by the address of its first byte.
    Memory(u64),
}

impl Subject {
    /// Returns the stream with a handle on a device.
    pub fn stream(handle: usize, device: u32) -> Subject {
        match handle {
            0..CU_STREAM_PER_THREAD => Subject::Stream(0, device),
            CU_STREAM_PER_THREAD => Subject::Stream(handle, device),
            _ => Subject::Stream(handle, 0),
        }
    }
}

struct Name {
    text: Arc<str>,
    /// The driver's number of the allocation, for memory that the library does not see freed; otherwise 0.
    allocation: u64,
    /// The profiler's record of named memory, which ends with the name.
    _resource: Option<Resource>,
}

static ANY: AtomicBool = AtomicBool::new(false);
static NAMES: Mutex<Option<HashMap<Subject, Name>>> = Mutex::new(None);

/// Sets a name; an empty one removes it.
pub fn set(subject: Subject, name: &str) {
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    if name.is_empty() {
        names.remove(&subject);
    } else {
        // The previous resource ends before the next one begins.
        names.remove(&subject);
        let resource = match subject {
            Subject::Memory(address) if nvtx::listens() => Resource::of_memory(address, &c_name(name)),
            _ => None,
        };
        names.insert(subject, Name { text: name.into(), allocation: 0, _resource: resource });
        ANY.store(true, Ordering::Release);
    }
}

/// Converts a name for a profiler.
fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

/// Returns the name of something, if it has one.
#[inline]
pub fn get(subject: Subject) -> Option<Arc<str>> {
    if ANY.load(Ordering::Acquire) { NAMES.lock().as_ref()?.get(&subject).map(|name| name.text.clone()) } else { None }
}

/// Removes the name of memory that was freed.
#[inline]
pub fn forget_memory(address: u64) {
    if ANY.load(Ordering::Acquire) {
        set(Subject::Memory(address), "");
    }
}

/// Ends the name of memory with its allocation, which has this number. The library does not see its free.
pub fn bind_memory(address: u64, allocation: u64) {
    if let Some(name) = NAMES.lock().as_mut().and_then(|names| names.get_mut(&Subject::Memory(address))) {
        name.allocation = allocation;
    }
}

/// Removes the name of the memory at an address if it is that of another allocation than the present one.
pub fn check_memory(address: u64, allocation: u64) {
    if !ANY.load(Ordering::Acquire) {
        return;
    }
    let subject = Subject::Memory(address);
    let is_other = |name: &Name| name.allocation != 0 && name.allocation != allocation;
    if let Some(names) = NAMES.lock().as_mut()
        && names.get(&subject).is_some_and(is_other)
    {
        names.remove(&subject);
    }
}

/// Returns all names.
pub fn all() -> Vec<(Subject, Arc<str>)> {
    if !ANY.load(Ordering::Acquire) {
        return Vec::new();
    }
    let names = NAMES.lock();
    names.iter().flatten().map(|(subject, name)| (*subject, name.text.clone())).collect()
}

/// Describes a stream for messages, by its name and its handle.
pub fn describe_stream(handle: usize, device: u32) -> String {
    let name = get(Subject::stream(handle, device)).map_or(String::new(), |name| format!(" \"{name}\""));
    if handle < CU_STREAM_PER_THREAD {
        format!("the default stream{name} of device {device}")
    } else {
        format!("stream{name} {handle:#x} of device {device}")
    }
}
