//! A call that the sanitizer observes, and the streams in which its work runs.

use crate::base::stack::StackId;

/// How a stream synchronizes with the default stream of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// It does not. The streams of the pools are non-blocking.
    NonBlocking,
    /// Each waits for the preceding work of the other when it gets more work: streams created without the flag
    /// "non-blocking", and the per-thread default streams.
    Blocking,
    /// The default stream itself.
    Default,
}

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The number of its device.
    pub device: u32,
    /// Its handle.
    pub handle: usize,
    /// The thread's number for a per-thread default stream; otherwise 0.
    pub thread: u64,
    /// How it synchronizes with the default stream.
    pub kind: StreamKind,
}

/// Where work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// The CPU, during the call.
    Cpu,
    /// A stream.
    Stream(Stream),
}

/// The caller of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The name of the call or the kernel.
    pub name: &'a str,
    /// The stack of the call.
    pub stack: StackId,
}
