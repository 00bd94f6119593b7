//! Snapshots of the allocator's state and history, in torch's format and in plinth's own.
//!
//! [`mod@take`] copies the blocks of all arenas at one moment, with the recorded history, and symbolizes the stacks; it
//! makes no driver calls. [`write`](mod@write) traverses a snapshot in the structure of
//! `torch.cuda.memory._snapshot()` and passes each part to a [`Writer`](write::Writer): [`pickle`] for torch's
//! viewers, or [`json`]. [`page`] writes the same into one HTML file that opens without a network. Except for the
//! tables of a page, output is streamed, so a million entries take seconds.

pub mod file;
pub mod json;
pub mod page;
pub mod pickle;
mod take;
#[cfg(test)]
mod tests;
pub mod write;

pub use take::{take, take_pool};

use super::{
    block::Zone,
    history::{Annotation, Entry, Frame, StackId},
    pool::PoolId,
};
use crate::error::{Error, Result};
use crate::status::Status;
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

/// Returns a stream's number for files: the lowest 48 bits of its handle, because readers that use floating-point
/// numbers keep 53 bits. The handles of a GPU's streams are addresses and have fewer bits; the host device's handles
/// have tag bits above, which are removed.
fn stream_number(handle: usize) -> u64 {
    handle as u64 & ((1 << 48) - 1)
}

/// The state of a block, named as in torch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockState {
    /// Free.
    Inactive = 0,
    /// Freed, but other streams may still use it.
    Pending = 1,
    /// Allocated.
    Active = 2,
}

impl BlockState {
    /// Returns torch's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::Inactive => "inactive",
            BlockState::Pending => "active_pending_free",
            BlockState::Active => "active_allocated",
        }
    }
}

/// A block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The start address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The requested size in bytes; 0 for a free block.
    pub requested: u64,
    /// The state.
    pub state: BlockState,
    /// The stack of its allocation, if recorded.
    pub stack: StackId,
}

/// A range of mapped addresses of one arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The ordinal of the device.
    pub device: u32,
    /// The start address.
    pub address: u64,
    /// The handle of the stream that it belongs to.
    pub stream: usize,
    /// The pool.
    pub pool: PoolId,
    /// The size class of its blocks: small or large.
    pub zone: Zone,
    /// Whether it consists of mapped handles, and may therefore grow and shrink.
    pub expandable: bool,
    /// The bytes whose physical memory is released while the pool is asleep.
    pub asleep: u64,
    /// Its blocks by address, without gaps.
    pub blocks: Vec<Block>,
}

impl Segment {
    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.size).sum()
    }

    /// Returns the allocated bytes.
    pub fn allocated(&self) -> u64 {
        self.blocks.iter().filter(|block| block.state == BlockState::Active).map(|block| block.size).sum()
    }

    /// Returns the bytes that are allocated or still in use by a stream.
    pub fn active(&self) -> u64 {
        self.blocks.iter().filter(|block| block.state != BlockState::Inactive).map(|block| block.size).sum()
    }

    /// Returns the requested bytes of those blocks.
    pub fn requested(&self) -> u64 {
        self.blocks.iter().map(|block| block.requested).sum()
    }
}

/// Totals of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceTotals {
    /// The device's total memory in bytes, if it was ever queried.
    pub total: Option<u64>,
    /// The limit of reserved memory in bytes, if one is set.
    pub limit: Option<u64>,
    /// The reserved physical memory in bytes.
    pub reserved: u64,
}

/// The stacks of a snapshot, numbered from 0, which is the empty one.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    numbers: HashMap<StackId, u32>,
    frames: Vec<Arc<[Frame]>>,
}

impl Stacks {
    /// Numbers stacks in the order of their first appearance. `frames` returns the frames of a stack.
    pub fn new(stacks: impl IntoIterator<Item = StackId>, frames: impl Fn(StackId) -> Arc<[Frame]>) -> Stacks {
        let mut all = Stacks { numbers: HashMap::new(), frames: vec![Arc::from([])] };
        for stack in stacks {
            if stack.0 != 0 && !all.numbers.contains_key(&stack) {
                all.numbers.insert(stack, all.frames.len() as u32);
                all.frames.push(frames(stack));
            }
        }
        all
    }

    /// Returns the number of a stack.
    pub fn number(&self, stack: StackId) -> u32 {
        self.numbers.get(&stack).copied().unwrap_or(0)
    }

    /// Returns the frames of all stacks by number; the innermost frame comes first.
    pub fn all(&self) -> &[Arc<[Frame]>] {
        &self.frames
    }
}

/// The allocator's state and history.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The segments of every device, by address.
    pub segments: Vec<Segment>,
    /// The history of each device, oldest first.
    pub traces: Vec<Vec<Entry>>,
    /// The program's annotations.
    pub annotations: Vec<Annotation>,
    /// The stacks of blocks and entries.
    pub stacks: Stacks,
    /// The totals of each device.
    pub totals: Vec<DeviceTotals>,
    /// The time of the snapshot, in microseconds since 1970.
    pub time_us: u64,
    /// The names of streams, by the number of [`stream_number`].
    pub stream_names: BTreeMap<u64, Arc<str>>,
    /// The names of live blocks, by address.
    pub block_names: BTreeMap<u64, Arc<str>>,
}

/// The file format of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The pickle that torch's viewers read.
    Pickle,
    /// The same as JSON.
    Json,
    /// An HTML page.
    Html,
}

impl Format {
    /// Returns the format for a file name's extension.
    pub fn of(path: &Path) -> Format {
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        match extension.as_deref().and_then(|extension| extension.to_str()) {
            Some("json") => Format::Json,
            Some("html" | "htm") => Format::Html,
            _ => Format::Pickle,
        }
    }
}

/// Writes a snapshot of all memory to a file. Without a format, the file name's extension selects it.
pub fn dump(path: &Path) -> Result<()> {
    let snapshot = take(true)?;
    file::replace(path, |out| match Format::of(path) {
        Format::Pickle => pickle::write(&snapshot, out),
        Format::Json => json::write(&snapshot, out),
        Format::Html => page::write(&snapshot, out),
    })
}

/// Returns a snapshot of all memory as JSON, with or without the history.
pub fn memory_snapshot(include_traces: bool) -> Result<String> {
    text(&take(include_traces)?)
}

/// Returns a snapshot of one pool as JSON.
pub fn pool_snapshot(pool: PoolId, include_traces: bool) -> Result<String> {
    text(&take_pool(pool, include_traces)?)
}

fn text(snapshot: &Snapshot) -> Result<String> {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail, and JSON is valid UTF-8.
    json::write(snapshot, &mut bytes).map_err(|error| Error::new(Status::SYSTEM, format!("writing JSON: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
