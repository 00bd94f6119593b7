//! What the library reports about memory and order while it works: accesses, waits, allocations and frees.
//!
//! Every layer above the runtime calls these functions. One observer can receive the reports: the stream sanitizer, which lies
//! above all of them and registers itself. While nobody observes, each function is a single load.

mod tensor_ranges;

pub use tensor_ranges::operands;

use crate::{
    base::stack::StackId,
    driver::{self, Event, Graph, GraphExec, GraphNode, Span},
    error::Result,
    runtime::{
        Runtime,
        checked_stream::{Stream, StreamUse},
        tensor::Tensor,
    },
};
use once_cell::sync::OnceCell;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The bytes are read.
    Read,
    /// The bytes are written.
    Write,
    /// Both.
    ReadWrite,
}

impl Kind {
    /// Returns whether the access writes.
    pub fn writes(self) -> bool {
        self != Kind::Read
    }

    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::ReadWrite => "read_write",
        }
    }

    /// Returns the verb for a report's sentence.
    pub fn verb(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Write => "writes",
            Kind::ReadWrite => "reads and writes",
        }
    }
}

/// A range of bytes that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// The first byte.
    pub start: u64,
    /// The end, exclusive.
    pub end: u64,
    /// The kind of the access.
    pub kind: Kind,
}

impl Operand {
    /// Creates an operand of `bytes` bytes from `address`, clipped at the end of the address space.
    pub fn new(address: u64, bytes: u64, kind: Kind) -> Operand {
        Operand { start: address, end: address.saturating_add(bytes), kind }
    }
}

/// A block of an allocator.
#[derive(Debug, Clone, Copy)]
pub struct BlockInfo {
    /// The start address.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The ordinal of its device.
    pub device: u32,
    /// The handle of the stream that it is allocated for.
    pub stream: usize,
    /// The thread's number if the stream is a per-thread default stream.
    pub thread: u64,
    /// Whether a capture allocated it.
    pub of_graphs: bool,
}

/// What a query or a wait covers.
#[derive(Debug, Clone, Copy)]
pub enum Awaited {
    /// All work of a stream.
    Stream(Stream),
    /// The work that an event recorded.
    Event(Event),
    /// All work of a device, by its ordinal.
    Device(u32),
}

/// The work that the CPU will know to be complete once a wait or a query has succeeded.
#[derive(Default)]
#[must_use = "it has no effect until it is finished"]
pub struct PendingWait(Option<Box<dyn Fn() + Send + Sync>>);

impl PendingWait {
    /// Creates a pending wait whose end calls `finish`.
    pub fn new(finish: impl Fn() + Send + Sync + 'static) -> PendingWait {
        PendingWait(Some(Box::new(finish)))
    }

    /// Reports that the wait or the query has succeeded.
    #[inline]
    pub fn finish(&self) {
        if let Some(finish) = &self.0 {
            finish();
        }
    }
}

/// Receives the reports. The functions of this module with the same names say what each means.
#[allow(clippy::missing_docs_in_private_items)]
pub trait Observer: Sync {
    fn operation(&self, runtime: &Runtime, stream: Stream, name: Option<&str>, operands: &[Operand]) -> Result<()>;
    fn copy(&self, runtime: &Runtime, stream: Stream, destination: &[Operand], source: &[Operand]) -> Result<()>;
    fn copied(&self, runtime: &Runtime, stream: Stream, destination: Span);
    fn replay(&self, exec: GraphExec, stream: driver::Stream, device: u32) -> Result<()>;
    fn report_node(&self, graph: Graph, node: GraphNode, name: &str, operands: &[Operand]);
    fn begin_wait(&self, awaited: &[Awaited]) -> PendingWait;
    fn before_host_function(&self, runtime: &Runtime, stream: Stream) -> Result<Option<Arc<dyn Fn() + Send + Sync>>>;
    fn wait_mutually(&self, streams: &[Stream], is_awaited: &dyn Fn(usize, usize) -> bool);
    fn on_call_begin(&self, name: &'static str) -> &'static str;
    fn on_call_end(&self, outer: &'static str);
    fn on_alloc(&self, block: BlockInfo);
    fn on_existing_block(&self, block: BlockInfo, stack: StackId);
    fn on_free(&self, block: BlockInfo);
    fn on_free_failed(&self, address: u64);
    fn on_record_stream(&self, block: BlockInfo, user: driver::Stream, device: u32);
    fn on_pinned_free(&self, address: u64, bytes: u64, users: &[StreamUse]);
    fn on_pinned_reuse(&self, address: u64, bytes: u64);
    fn on_sleep(&self, address: u64, bytes: u64);
    fn on_wake(&self, address: u64, bytes: u64);
    fn forget_accesses(&self, address: u64, bytes: u64);
    fn forget_memory(&self, address: u64, bytes: u64);
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static OBSERVER: OnceCell<&'static dyn Observer> = OnceCell::new();

/// Returns whether anything is reported.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Lets `observer` receive reports from now on. A process has one observer; a later one is ignored.
pub fn enable(observer: &'static dyn Observer) {
    let _ = OBSERVER.set(observer);
    IS_ON.store(true, Ordering::Release);
}

/// Ends the reports.
pub fn disable() {
    IS_ON.store(false, Ordering::Release);
}

/// Returns the observer while reports are wanted.
#[inline]
fn observer() -> Option<&'static dyn Observer> {
    if is_on() { OBSERVER.get().copied() } else { None }
}

/// Returns the operand of bytes that an operation reads.
#[inline]
pub fn read(span: Span) -> Operand {
    Operand::new(span.address(), span.bytes() as u64, Kind::Read)
}

/// Returns the operand of bytes that an operation writes.
#[inline]
pub fn write(span: Span) -> Operand {
    Operand::new(span.address(), span.bytes() as u64, Kind::Write)
}

/// Reports that the library is about to enqueue work in a stream. Returns an error if the work must not be enqueued.
#[inline]
pub fn access(runtime: &Runtime, stream: Stream, operands: &[Operand]) -> Result<()> {
    observer().map_or(Ok(()), |observer| observer.operation(runtime, stream, None, operands))
}

/// Does the same with operands that are computed only if they are wanted.
#[inline]
pub fn access_with(runtime: &Runtime, stream: Stream, operands: impl FnOnce(&mut Vec<Operand>)) -> Result<()> {
    let Some(observer) = observer() else { return Ok(()) };
    let mut list = Vec::new();
    operands(&mut list);
    observer.operation(runtime, stream, None, &list)
}

/// Does the same for the elements of tensors.
#[inline]
pub fn access_tensors(runtime: &Runtime, stream: Stream, tensors: &[(&Tensor, Kind)]) -> Result<()> {
    access_with(runtime, stream, |list| {
        tensors.iter().for_each(|(tensor, kind)| operands(tensor, *kind, list));
    })
}

/// Does the same for an operation with a name of its own, such as a jitted kernel, whose operands are computed only if
/// they are wanted.
#[inline]
pub fn operation_with(
    runtime: &Runtime,
    stream: Stream,
    name: &str,
    operands: impl FnOnce(&mut Vec<Operand>),
) -> Result<()> {
    let Some(observer) = observer() else { return Ok(()) };
    let mut list = Vec::new();
    operands(&mut list);
    observer.operation(runtime, stream, Some(name), &list)
}

/// Does the same for an operation with a name of its own, such as a kernel of the program's.
#[inline]
pub fn operation(runtime: &Runtime, stream: Stream, name: &str, operands: &[Operand]) -> Result<()> {
    observer().map_or(Ok(()), |observer| observer.operation(runtime, stream, Some(name), operands))
}

/// Reports that a copy is about to be enqueued in a stream. Its accesses to pageable memory are complete when the call
/// returns, so they cannot conflict and are left out.
#[inline]
pub fn copy(runtime: &Runtime, stream: Stream, destination: Span, source: Span) -> Result<()> {
    observer().map_or(Ok(()), |observer| observer.copy(runtime, stream, &[write(destination)], &[read(source)]))
}

/// Does the same for a copy of the elements of a tensor. Each tensor is in one kind of memory.
#[inline]
pub fn copy_tensor(runtime: &Runtime, stream: Stream, destination: &Tensor, source: &Tensor) -> Result<()> {
    let Some(observer) = observer() else { return Ok(()) };
    let (mut written, mut read) = (Vec::new(), Vec::new());
    operands(destination, Kind::Write, &mut written);
    operands(source, Kind::Read, &mut read);
    observer.copy(runtime, stream, &written, &read)
}

/// Reports that a copy was enqueued in a stream.
#[inline]
pub fn copied(runtime: &Runtime, stream: Stream, destination: Span) {
    if let Some(observer) = observer() {
        observer.copied(runtime, stream, destination);
    }
}

/// Reports that a graph is about to be launched in a stream. Returns an error if it must not be launched.
#[inline]
pub fn replay(exec: GraphExec, stream: driver::Stream, device: u32) -> Result<()> {
    observer().map_or(Ok(()), |observer| observer.replay(exec, stream, device))
}

/// Reports the operation of a node, which takes effect when the graph is next instantiated.
pub fn report_node(graph: Graph, node: GraphNode, name: &str, operands: &[Operand]) {
    if let Some(observer) = observer() {
        observer.report_node(graph, node, name, operands);
    }
}

#[inline]
fn begin_wait(awaited: Awaited) -> PendingWait {
    observer().map_or_else(PendingWait::default, |observer| observer.begin_wait(&[awaited]))
}

/// Begins a query or a wait for a stream.
#[inline]
pub fn end_of_stream(stream: Stream) -> PendingWait {
    begin_wait(Awaited::Stream(stream))
}

/// Begins a query or a wait for an event.
#[inline]
pub fn end_of_event(event: Event) -> PendingWait {
    begin_wait(Awaited::Event(event))
}

/// Begins a wait for a device.
#[inline]
pub fn end_of_device(device: u32) -> PendingWait {
    begin_wait(Awaited::Device(device))
}

/// Begins a wait for all devices.
#[inline]
pub fn end_of_all(runtime: &Runtime) -> PendingWait {
    let Some(observer) = observer() else { return PendingWait::default() };
    let devices: Vec<Awaited> = runtime.devices().iter().map(|device| Awaited::Device(device.ordinal)).collect();
    observer.begin_wait(&devices)
}

/// Returns the function that must run before a host function that is about to be enqueued in a stream. `None` if nobody
/// observes, and in a capture, whose host functions run at each replay.
pub fn before_host_function(runtime: &Runtime, stream: Stream) -> Result<Option<Arc<dyn Fn() + Send + Sync>>> {
    observer().map_or(Ok(None), |observer| observer.before_host_function(runtime, stream))
}

/// Reports that streams wait for each other at an operation of all of them. `is_awaited(waiting, awaited)` returns
/// whether the first waits for the second.
pub fn wait_mutually(streams: &[Stream], is_awaited: impl Fn(usize, usize) -> bool) {
    if let Some(observer) = observer() {
        observer.wait_mutually(streams, &is_awaited);
    }
}

/// Reports that the calling thread enters a function of the library; also while reports are disabled, since each end must have
/// its begin. Returns the name of the function that it is in, for [`on_call_end`].
pub fn on_call_begin(name: &'static str) -> &'static str {
    OBSERVER.get().map_or("", |observer| observer.on_call_begin(name))
}

/// Reports that the calling thread leaves it.
pub fn on_call_end(outer: &'static str) {
    if let Some(observer) = OBSERVER.get() {
        observer.on_call_end(outer);
    }
}

/// Reports an allocation.
#[cold]
pub fn on_alloc(block: BlockInfo) {
    if let Some(observer) = observer() {
        observer.on_alloc(block);
    }
}

/// Reports a block that was allocated before the reports began, with the stack of its allocation if it is known.
#[cold]
pub fn on_existing_block(block: BlockInfo, stack: StackId) {
    if let Some(observer) = observer() {
        observer.on_existing_block(block, stack);
    }
}

/// Reports a free.
#[cold]
pub fn on_free(block: BlockInfo) {
    if let Some(observer) = observer() {
        observer.on_free(block);
    }
}

/// Reports that the free of a block, which was reported, has failed: the block is still allocated.
#[cold]
pub fn on_free_failed(address: u64) {
    if let Some(observer) = observer() {
        observer.on_free_failed(address);
    }
}

/// Reports that a stream was recorded for a block.
#[cold]
pub fn on_record_stream(block: BlockInfo, user: driver::Stream, device: u32) {
    if let Some(observer) = observer() {
        observer.on_record_stream(block, user, device);
    }
}

/// Reports the free of a block of pinned memory with its recorded streams.
#[cold]
pub fn on_pinned_free(address: u64, bytes: u64, users: &[StreamUse]) {
    if let Some(observer) = observer() {
        observer.on_pinned_free(address, bytes, users);
    }
}

/// Reports that a block of pinned memory can be reused, because its recorded streams have completed.
#[inline]
pub fn on_pinned_reuse(address: u64, bytes: u64) {
    if let Some(observer) = observer() {
        observer.on_pinned_reuse(address, bytes);
    }
}

/// Reports that all accesses to memory have completed. Its blocks stay known.
#[cold]
pub fn forget_accesses(address: u64, bytes: u64) {
    if let Some(observer) = observer() {
        observer.forget_accesses(address, bytes);
    }
}

/// Reports that device memory loses its physical memory and keeps its addresses and blocks.
#[inline]
pub fn on_sleep(address: u64, bytes: u64) {
    if let Some(observer) = observer() {
        observer.on_sleep(address, bytes);
    }
}

/// Reports that such memory has physical memory again.
#[inline]
pub fn on_wake(address: u64, bytes: u64) {
    if let Some(observer) = observer() {
        observer.on_wake(address, bytes);
    }
}

/// Reports that all accesses to memory have completed and that the memory gets a new owner.
#[inline]
pub fn forget_memory(address: u64, bytes: u64) {
    if let Some(observer) = observer() {
        observer.forget_memory(address, bytes);
    }
}
