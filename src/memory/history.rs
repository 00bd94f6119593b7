//! Stand-in with the signatures that the history will have; replaced at the merge.

use super::pool::PoolId;
use std::sync::Arc;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A block was given out.
    Alloc,
    /// The caller freed a block.
    FreeRequested,
    /// The block is free.
    FreeCompleted,
    /// The driver gave a segment.
    SegmentAlloc,
    /// A segment went back.
    SegmentFree,
    /// A handle was mapped.
    SegmentMap,
    /// A handle was unmapped.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed.
    Oom,
}

impl Action {
    /// torch's name.
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

/// A stack; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StackId(pub u32);

/// An entry.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Stream.
    pub stream: usize,
    /// Pool.
    pub pool: PoolId,
    /// When.
    pub time_us: u64,
    /// From where.
    pub stack: StackId,
    /// Tag.
    pub metadata: Option<Arc<str>>,
    /// Who.
    pub thread: u64,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Function.
    pub name: String,
    /// File.
    pub file: String,
    /// Line.
    pub line: u32,
}

/// An annotation.
#[derive(Debug, Clone)]
pub struct Annotation {
    /// Device.
    pub device: u32,
    /// When.
    pub time_us: u64,
    /// What.
    pub name: String,
    /// Whether it begins.
    pub begin: bool,
}

/// Whether there is a history.
pub fn is_on() -> bool {
    false
}

/// The entries of a device.
pub fn entries(_device: u32) -> Vec<Entry> {
    Vec::new()
}

/// The annotations.
pub fn annotations() -> Vec<Annotation> {
    Vec::new()
}

/// The frames of a stack.
pub fn frames(_stack: StackId) -> Arc<[Frame]> {
    Arc::from([])
}

/// Adds an entry.
pub fn note(_device: u32, _action: Action, _address: u64, _size: u64) {}
