//! The stream sanitizer: finds two accesses to the same bytes that nothing orders, at least one of them a write.
//!
//! It is told what happens, in the order in which the calls are made, and never looks at the memory itself. [`State`] is the
//! whole of it: work that reads and writes, all that orders work, memory that is given out and taken back, graphs. What
//! it finds are [`Report`]s; [`findings::Found`] keeps them.
//!
//! **Order.** Work runs on tracks: each stream is one, so is each branch of a graph, and so is the CPU. An operation has an
//! epoch on its track, and each track has a clock: of every other track the epoch up to which it has waited (`order`). An
//! access comes after another if its track has waited for that, or if the CPU had, before the call was made: what the
//! CPU knows to be done is done before all work that is submitted later. All threads are one CPU here. A thread that waits
//! and tells another by means of its own is then understood, at the price that two threads which only happen to come
//! one after the other count as ordered.
//!
//! **Bytes.** A map of ranges knows for each byte who wrote it last and who has read it since (`ranges`). That is enough: an
//! access that comes after those comes after all before them, and of each byte the first race is found (tests.rs holds
//! it against a search of all pairs). What the CPU knows to be done is swept out.
//!
//! **Memory.** The allocator gives memory out and takes it back (`blocks`), which orders nothing by itself: a stream that was
//! neither recorded for the block nor waited for may still be at it when its next owner is, and that is found as any race is,
//! with the advice to record the stream.
//!
//! **Hearing.** What orders work is told by the driver's own calls ([`crate::driver::observer`], `watcher`), so that no order
//! that anybody makes is missed; what works on memory, by the library's calls (`hooks`), which know what they read and write;
//! blocks by the allocators. `session` is the one sanitizer of the process, `log` what the environment wants of it.

mod access_names;
pub mod blocks;
mod driver_observer;
pub mod findings;
mod hooks;
pub mod json;
mod log;
mod order;
mod ranges;
mod recording;
pub mod report;
mod session;
mod state;
mod tensor_ranges;
#[cfg(test)]
mod tests;

pub use driver_observer::tell_node;
pub use hooks::*;
pub use log::{begin, wanted};
pub use order::Moment;
pub use report::{Conflict, Report};
pub use session::{Callback, Mode, clear, counts, enter, is_on, leave, mode, reports, set_callback, set_mode};
pub use state::State;
pub use tensor_ranges::operands;

use crate::base::stack::StackId;

/// How a stream goes with the default stream of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Manner {
    /// It does not: the streams of the pools are so.
    Apart,
    /// Each waits for what the other has when it gets more work, as with streams that a program made without the flag
    /// "non-blocking", and the default streams of threads.
    Blocking,
    /// It is the default stream itself.
    Default,
}

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The number of its device.
    pub device: u32,
    /// Its handle.
    pub handle: usize,
    /// Of the default stream of a thread, the thread's number.
    pub thread: u64,
    /// How it goes with the default stream.
    pub manner: Manner,
}

/// Where work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the CPU, while the call is made.
    Cpu,
    /// In a stream.
    Stream(Stream),
}

/// What is done to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// They are read.
    Read,
    /// They are written.
    Write,
    /// Both.
    ReadWrite,
}

impl Kind {
    /// Whether they change.
    pub fn writes(self) -> bool {
        self != Kind::Read
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::ReadWrite => "read_write",
        }
    }

    /// As a sentence says it.
    pub fn verb(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Write => "writes",
            Kind::ReadWrite => "reads and writes",
        }
    }
}

/// Bytes that an operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// The first.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
    /// What is done to them.
    pub kind: Kind,
}

impl Operand {
    /// `bytes` from an address on, so far as there are addresses.
    pub fn new(address: u64, bytes: u64, kind: Kind) -> Operand {
        Operand { start: address, end: address.saturating_add(bytes), kind }
    }
}

/// Who does something.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The name of the call or the kernel.
    pub name: &'a str,
    /// Who made it.
    pub stack: StackId,
}
