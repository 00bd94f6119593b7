//! The functions with which the library reports events to the sanitizer. Each is a single load while the sanitizer is
//! disabled.

use super::{
    Call, Executor, Kind, Operand, State, Stream,
    order::Moment,
    session::{call_name, caller, deliver, is_on, refuses_findings, stream_of_handle, with},
    tensor_ranges,
};
use crate::{
    base::stack::StackId,
    driver::{self, MemoryKind, Span},
    error::Result,
    memory::arena::StreamUse,
    runtime::{Runtime, tensor::Tensor},
    stream,
};
use std::sync::Arc;

/// Returns the sanitizer's name of a stream.
fn name_of(stream: stream::Stream) -> Stream {
    stream_of_handle(stream.raw.handle(), || stream.device)
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
pub fn access(runtime: &Runtime, stream: stream::Stream, operands: &[Operand]) -> Result<()> {
    if is_on() { operation(runtime, stream, call_name(), operands) } else { Ok(()) }
}

/// Does the same with operands that are computed only if the sanitizer is enabled.
#[inline]
pub fn access_with(runtime: &Runtime, stream: stream::Stream, operands: impl FnOnce(&mut Vec<Operand>)) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    let mut list = Vec::new();
    operands(&mut list);
    operation(runtime, stream, call_name(), &list)
}

/// Does the same for the elements of tensors.
#[inline]
pub fn access_tensors(runtime: &Runtime, stream: stream::Stream, tensors: &[(&Tensor, Kind)]) -> Result<()> {
    access_with(runtime, stream, |operands| {
        tensors.iter().for_each(|(tensor, kind)| tensor_ranges::operands(tensor, *kind, operands));
    })
}

/// Reports that a copy is about to be enqueued in a stream. Its accesses to pageable memory are complete when the call
/// returns, so they cannot conflict and are left out.
#[inline]
pub fn copy(runtime: &Runtime, stream: stream::Stream, destination: Span, source: Span) -> Result<()> {
    if is_on() { operation_of_copy(runtime, stream, destination, source) } else { Ok(()) }
}

/// Reports that a copy was enqueued in a stream.
#[inline]
pub fn copied(runtime: &Runtime, stream: stream::Stream, destination: Span) {
    // The call has waited for the stream if it wrote to pageable memory.
    if is_on()
        && is_pageable(runtime, destination)
        && !with(|state| state.is_capturing(name_of(stream))).unwrap_or(true)
    {
        end_of_stream(stream).finish();
    }
}

fn is_pageable(runtime: &Runtime, span: Span) -> bool {
    runtime.pointer_info(span.address()).is_ok_and(|info| info.kind == MemoryKind::Unregistered)
}

#[cold]
fn operation_of_copy(runtime: &Runtime, stream: stream::Stream, destination: Span, source: Span) -> Result<()> {
    let operands = [read(source), write(destination)];
    let mut device_accessible = Vec::with_capacity(2);
    for (operand, span) in operands.into_iter().zip([source, destination]) {
        if !is_pageable(runtime, span) {
            device_accessible.push(operand);
        }
    }
    operation(runtime, stream, call_name(), &device_accessible)
}

/// Reports that an operation is about to be enqueued in a stream.
#[cold]
pub fn operation(runtime: &Runtime, stream: stream::Stream, name: &str, operands: &[Operand]) -> Result<()> {
    let stream_name = name_of(stream);
    let call = Call { name, stack: caller() };
    // A capture that the program began with driver calls of its own may be unknown here; work in it does not run now.
    let capturing = stream::is_validated_capturing(runtime, stream)?;
    let reports = with(|state| {
        if capturing && !state.is_capturing(stream_name) {
            return Vec::new();
        }
        state.operation(Executor::Stream(stream_name), call, operands, refuses_findings())
    });
    deliver(reports.unwrap_or_default())
}

/// Reports that the CPU accesses memory now.
#[cold]
pub fn operation_of_cpu(name: &str, operands: &[Operand]) -> Result<()> {
    let call = Call { name, stack: caller() };
    deliver(with(|state| state.operation(Executor::Cpu, call, operands, refuses_findings())).unwrap_or_default())
}

/// Reports that a graph is about to be launched in a stream. Returns an error if it must not be launched.
#[inline]
pub fn replay(exec: driver::GraphExec, stream: driver::Stream, device: u32) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    let stream = stream_of_handle(stream.handle(), || device);
    deliver(with(|state| state.replay(exec.handle() as u64, stream, refuses_findings())).unwrap_or_default())
}

/// The work that the CPU will know to be complete once a wait or a query has succeeded.
#[derive(Debug, Clone, Default)]
#[must_use = "it has no effect until it is finished"]
pub struct PendingWait {
    moments: Vec<Moment>,
    /// The number of the state that the moments belong to. The sanitizer may be disabled and enabled again before the
    /// wait ends.
    state: u64,
}

impl PendingWait {
    fn new(moments: impl FnOnce(&mut State) -> Vec<Moment>) -> PendingWait {
        with(|state| PendingWait { moments: moments(state), state: state.number() }).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn with_moments(state: &State, moments: Vec<Moment>) -> PendingWait {
        PendingWait { moments, state: state.number() }
    }

    /// Reports that the wait or the query has succeeded.
    #[inline]
    pub fn finish(&self) {
        if !self.moments.is_empty() {
            with(|state| self.finish_in(state));
        }
    }

    pub(super) fn finish_in(&self, state: &mut State) {
        if state.number() == self.state {
            self.moments.iter().for_each(|moment| state.finish(moment));
        }
    }
}

/// Begins a query or a wait for a stream.
#[inline]
pub fn end_of_stream(stream: stream::Stream) -> PendingWait {
    if is_on() { pending_stream(name_of(stream)) } else { PendingWait::default() }
}

/// Begins a query or a wait for an event.
#[inline]
pub fn end_of_event(event: driver::Event) -> PendingWait {
    if is_on() { pending_event(event) } else { PendingWait::default() }
}

/// Begins a wait for a device.
#[inline]
pub fn end_of_device(device: u32) -> PendingWait {
    if is_on() { pending_device(device) } else { PendingWait::default() }
}

/// Begins a wait for all devices.
#[inline]
pub fn end_of_all(runtime: &Runtime) -> PendingWait {
    if !is_on() {
        return PendingWait::default();
    }
    let devices = runtime.devices().iter().map(|device| device.ordinal);
    PendingWait::new(|state| devices.flat_map(|device| state.end_of_device(device)).collect())
}

pub(super) fn pending_stream(stream: Stream) -> PendingWait {
    PendingWait::new(|state| vec![state.end_of_stream(stream)])
}

pub(super) fn pending_event(event: driver::Event) -> PendingWait {
    PendingWait::new(|state| state.end_of_event(event.native() as u64).into_iter().collect())
}

pub(super) fn pending_device(device: u32) -> PendingWait {
    PendingWait::new(|state| state.end_of_device(device))
}

/// Returns the function that must run before a host function that is about to be enqueued in a stream. `None` if the
/// sanitizer is disabled, and in a capture, whose host functions run at each replay.
pub fn before_host_function(runtime: &Runtime, stream: stream::Stream) -> Result<Option<Arc<dyn Fn() + Send + Sync>>> {
    if !is_on() || stream::is_validated_capturing(runtime, stream)? {
        return Ok(None);
    }
    let stream_name = name_of(stream);
    let pending = PendingWait::new(|state| vec![state.moment(stream_name)]);
    Ok(Some(Arc::new(move || pending.finish())))
}

/// Reports that later work of a stream waits for the current work of another, by means other than a driver call.
pub fn wait_stream(waiting: stream::Stream, awaited: stream::Stream) {
    if is_on() {
        let (waiting, awaited) = (name_of(waiting), name_of(awaited));
        with(|state| state.wait_stream(waiting, awaited));
    }
}

/// Reports that streams wait for each other at an operation of all of them. `is_awaited(waiting, awaited)` returns
/// whether the first waits for the second.
pub fn wait_mutually(streams: &[stream::Stream], is_awaited: impl Fn(usize, usize) -> bool) {
    if !is_on() {
        return;
    }
    let names: Vec<Stream> = streams.iter().map(|stream| name_of(*stream)).collect();
    with(|state| {
        let positions: Vec<_> = names.iter().map(|stream| state.position(*stream)).collect();
        for (waiting, stream) in names.iter().enumerate() {
            for (awaited, position) in positions.iter().enumerate() {
                if waiting != awaited && is_awaited(waiting, awaited) {
                    state.wait_for(*stream, position);
                }
            }
        }
    });
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
}

impl BlockInfo {
    fn stream(&self) -> Stream {
        let mut stream = stream_of_handle(self.stream, || self.device);
        if stream.thread != 0 {
            stream.thread = self.thread;
        }
        stream
    }
}

/// Reports an allocation.
#[cold]
pub fn on_alloc(block: BlockInfo) {
    let (stream, stack) = (block.stream(), caller());
    with(|state| state.alloc(block.address, block.bytes, stream, stack));
}

/// Reports a block that was allocated before the sanitizer was enabled, with the stack of its allocation if it is
/// known.
#[cold]
pub fn on_existing_block(block: BlockInfo, stack: StackId) {
    let stream = block.stream();
    with(|state| state.alloc(block.address, block.bytes, stream, stack));
}

/// Reports a free.
#[cold]
pub fn on_free(block: BlockInfo) {
    let (stream, stack) = (block.stream(), caller());
    with(|state| {
        state.ensure_block(block.address, block.bytes, stream);
        state.free(block.address, stack);
    });
}

/// Reports that a stream was recorded for a block.
#[cold]
pub fn on_record_stream(block: BlockInfo, user: driver::Stream, device: u32) {
    let (stream, user) = (block.stream(), stream_of_handle(user.handle(), || device));
    with(|state| {
        state.ensure_block(block.address, block.bytes, stream);
        state.record_stream(block.address, user);
    });
}

/// Reports the free of a block of pinned memory with its recorded streams.
#[cold]
pub fn on_pinned_free(address: u64, bytes: u64, users: &[StreamUse]) {
    let stack = caller();
    let users: Vec<Stream> = users
        .iter()
        .map(|user| Stream { thread: user.thread, ..stream_of_handle(user.stream.handle(), || user.device) })
        .collect();
    with(|state| {
        state.ensure_block(address, bytes, None);
        users.iter().for_each(|user| state.record_stream(address, *user));
        state.free(address, stack);
    });
}

/// Reports that a block of pinned memory can be reused, because its recorded streams have completed.
#[inline]
pub fn on_pinned_reuse(address: u64, bytes: u64) {
    if is_on() {
        with(|state| drop(state.remove_blocks(address, bytes, None)));
    }
}

/// Reports that all accesses to memory have completed. Its blocks stay known.
#[cold]
pub fn forget_accesses(address: u64, bytes: u64) {
    with(|state| state.forget_accesses(address, bytes));
}

/// Reports that all accesses to memory have completed and that the memory gets a new owner.
#[inline]
pub fn forget_memory(address: u64, bytes: u64) {
    if is_on() {
        with(|state| state.forget_memory(address, bytes));
    }
}
