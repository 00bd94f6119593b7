//! Snapshots: what the allocator has at a moment and how it came to that, in torch's form and in one of our own.
//!
//! [`take`] copies the blocks of all arenas at one moment, with the history as far as it is kept, and puts names to the
//! stacks; it makes no call of the driver. The rest is writing: [`write`](mod@write) walks a snapshot in the structure of
//! `torch.cuda.memory._snapshot()` and tells a [`Writer`](write::Writer) what it meets, which is [`pickle`] for torch's own
//! viewers or [`json`]; [`page`] packs the same into one HTML file that opens without a network. Nothing but a page's tables
//! is built in memory, so a million entries take seconds.

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
use std::{collections::HashMap, path::Path, sync::Arc};

/// A stream as files have it: its handle, of which readers that count in floating point keep 53 bits. The handles of a GPU's
/// streams are addresses and have fewer; the host device's have marks above, which are left out.
fn stream_number(handle: usize) -> u64 {
    handle as u64 & ((1 << 48) - 1)
}

/// What a block is, by torch's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Free.
    Inactive = 0,
    /// Freed, while other streams may still use it.
    Pending = 1,
    /// In the program's hands.
    Active = 2,
}

impl State {
    /// torch's name.
    pub fn name(self) -> &'static str {
        match self {
            State::Inactive => "inactive",
            State::Pending => "active_pending_free",
            State::Active => "active_allocated",
        }
    }
}

/// A block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// The bytes that were asked for; 0 for a free block.
    pub requested: u64,
    /// What it is.
    pub state: State,
    /// From where it was allocated, if that was recorded.
    pub stack: StackId,
}

/// A run of addresses with memory behind them, of one arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The number of the device.
    pub device: u32,
    /// Where it begins.
    pub address: u64,
    /// The handle of the stream that it serves.
    pub stream: usize,
    /// The pool.
    pub pool: PoolId,
    /// The kind of blocks in it.
    pub zone: Zone,
    /// Whether it consists of handles that are mapped, and so may grow and shrink.
    pub expandable: bool,
    /// The bytes of it whose memory is away, since the pool sleeps.
    pub asleep: u64,
    /// What it is cut into, by address and without a gap.
    pub blocks: Vec<Block>,
}

impl Segment {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.size).sum()
    }

    /// The bytes in the program's hands.
    pub fn allocated(&self) -> u64 {
        self.blocks.iter().filter(|block| block.state == State::Active).map(|block| block.size).sum()
    }

    /// The bytes in the program's hands or in use by a stream.
    pub fn active(&self) -> u64 {
        self.blocks.iter().filter(|block| block.state != State::Inactive).map(|block| block.size).sum()
    }

    /// The bytes that were asked for of those.
    pub fn requested(&self) -> u64 {
        self.blocks.iter().map(|block| block.requested).sum()
    }
}

/// A device's figures beside its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// All its memory, if that was ever asked for.
    pub total: Option<u64>,
    /// The most that may be held, if that was limited.
    pub limit: Option<u64>,
    /// Physical memory that is held.
    pub held: u64,
}

/// The stacks that a snapshot names, numbered from 0, which is the empty one.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    numbers: HashMap<StackId, u32>,
    frames: Vec<Arc<[Frame]>>,
}

impl Stacks {
    /// Numbers the stacks as they come, and asks `frames` for what each is.
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

    /// The number of a stack.
    pub fn number(&self, stack: StackId) -> u32 {
        self.numbers.get(&stack).copied().unwrap_or(0)
    }

    /// The frames of all stacks, by number; the innermost frame first.
    pub fn all(&self) -> &[Arc<[Frame]>] {
        &self.frames
    }
}

/// What the allocator has, and how it came to that.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The segments of every device, by address.
    pub segments: Vec<Segment>,
    /// The history of each device, oldest first.
    pub traces: Vec<Vec<Entry>>,
    /// What the program was doing.
    pub annotations: Vec<Annotation>,
    /// The stacks of blocks and entries.
    pub stacks: Stacks,
    /// Of each device.
    pub figures: Vec<Figures>,
    /// When it was taken, in microseconds since 1970.
    pub time_us: u64,
}

/// How a snapshot is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The pickle that torch's viewers read.
    Pickle,
    /// The same as JSON.
    Json,
    /// A page that shows it.
    Html,
}

impl Format {
    /// What the end of a file's name asks for.
    pub fn of(path: &Path) -> Format {
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        match extension.as_deref().and_then(|extension| extension.to_str()) {
            Some("json") => Format::Json,
            Some("html" | "htm") => Format::Html,
            _ => Format::Pickle,
        }
    }
}

/// Writes a snapshot of everything to a file, by its name's end where no format is given.
pub fn dump(path: &Path, format: Option<Format>) -> Result<()> {
    let snapshot = take(true)?;
    file::replace(path, |out| match format.unwrap_or_else(|| Format::of(path)) {
        Format::Pickle => pickle::write(&snapshot, out),
        Format::Json => json::write(&snapshot, out),
        Format::Html => page::write(&snapshot, out),
    })
}

/// A snapshot of everything as JSON, with the history or without.
pub fn memory_snapshot(include_traces: bool) -> Result<String> {
    text(&take(include_traces)?)
}

/// The same of one pool.
pub fn pool_snapshot(pool: PoolId, include_traces: bool) -> Result<String> {
    text(&take_pool(pool, include_traces)?)
}

fn text(snapshot: &Snapshot) -> Result<String> {
    let mut bytes = Vec::new();
    // Memory takes whatever is written to it, and JSON is made of text: neither can fail.
    json::write(snapshot, &mut bytes).map_err(|error| Error::new(Status::SYSTEM, format!("writing JSON: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
