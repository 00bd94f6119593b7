//! The history of the allocator: what was given out and taken back, when, and by whose call.

use super::pool::PoolId;
use std::sync::Arc;

/// What an entry tells of; the names are torch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// A block was given out.
    Alloc = 0,
    /// The program freed a block.
    FreeRequested,
    /// The block can be given out again.
    FreeCompleted,
    /// The driver gave a segment.
    SegmentAlloc,
    /// A segment went back to the driver.
    SegmentFree,
    /// Memory was mapped at addresses of a reserved range.
    SegmentMap,
    /// It is there no more.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed for want of memory.
    Oom,
}

impl Action {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Snapshot => "snapshot",
            Action::Oom => "oom",
        }
    }
}

/// The number of a call stack; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StackId(pub u32);

/// One function of a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// Its source file.
    pub file: String,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub action: Action,
    /// Where; for [`Action::Oom`] the free bytes of the device.
    pub address: u64,
    /// Its bytes: those that were asked for, of blocks; those that there are, of segments.
    pub size: u64,
    /// The handle of the stream.
    pub stream: usize,
    /// The pool.
    pub pool: PoolId,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// Who called.
    pub stack: StackId,
    /// The thread's tag.
    pub metadata: Option<Arc<str>>,
    /// The system's number of the thread.
    pub thread: u64,
}

/// A remark of the program's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The thread's current device.
    pub device: u32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// The remark.
    pub name: String,
    /// Whether something begins; otherwise it ends.
    pub begin: bool,
}

/// Whether a history is kept.
pub fn is_on() -> bool {
    false
}

/// The entries of a device, the oldest first.
pub fn entries(_device: u32) -> Vec<Entry> {
    Vec::new()
}

/// The annotations, the oldest first.
pub fn annotations() -> Vec<Annotation> {
    Vec::new()
}

/// The functions of a call stack, innermost first; none for the stack 0.
pub fn frames(_stack: StackId) -> Arc<[Frame]> {
    Arc::new([])
}

/// Makes an entry that belongs to no stream.
pub fn note(_device: u32, _action: Action, _address: u64, _size: u64) {}
