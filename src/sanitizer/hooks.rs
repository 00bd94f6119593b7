//! What the library tells the sanitizer while it works. Each of these is one load where the sanitizer is off.

use super::{
    Call, Kind, Operand, Place, State, Stream,
    order::Moment,
    session::{call_name, caller, deliver, is_on, named, refuses, with},
    tensor_ranges,
};
use crate::{
    base::stack::StackId,
    driver::{self, MemoryKind, Span},
    error::Result,
    memory::arena::Use,
    runtime::{Runtime, tensor::Tensor},
    stream,
};
use std::sync::Arc;

/// The stream, as the sanitizer calls it.
fn of(stream: stream::Stream) -> Stream {
    named(stream.raw.handle(), || stream.device)
}

/// Bytes that an operation reads.
#[inline]
pub fn read(span: Span) -> Operand {
    Operand::new(span.address(), span.bytes() as u64, Kind::Read)
}

/// Bytes that an operation writes.
#[inline]
pub fn write(span: Span) -> Operand {
    Operand::new(span.address(), span.bytes() as u64, Kind::Write)
}

/// Work of the library's is about to go into a stream. An error if it must not.
#[inline]
pub fn access(runtime: &Runtime, stream: stream::Stream, operands: &[Operand]) -> Result<()> {
    if is_on() { operation(runtime, stream, call_name(), operands) } else { Ok(()) }
}

/// The same, where it takes a moment to tell on what it works.
#[inline]
pub fn access_with(runtime: &Runtime, stream: stream::Stream, operands: impl FnOnce(&mut Vec<Operand>)) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    let mut list = Vec::new();
    operands(&mut list);
    operation(runtime, stream, call_name(), &list)
}

/// The same for the elements of tensors.
#[inline]
pub fn access_tensors(runtime: &Runtime, stream: stream::Stream, tensors: &[(&Tensor, Kind)]) -> Result<()> {
    access_with(runtime, stream, |operands| {
        tensors.iter().for_each(|(tensor, kind)| tensor_ranges::operands(tensor, *kind, operands));
    })
}

/// A copy is about to go into a stream. What it reads or writes of memory that is not pinned it has read or written when the
/// call returns, so that nothing can be in conflict with that.
#[inline]
pub fn copy(runtime: &Runtime, stream: stream::Stream, destination: Span, source: Span) -> Result<()> {
    if is_on() { operation_of_copy(runtime, stream, destination, source) } else { Ok(()) }
}

/// A copy was put into a stream.
#[inline]
pub fn copied(runtime: &Runtime, stream: stream::Stream, destination: Span) {
    // The call has waited where it wrote to memory that is not pinned.
    if is_on() && is_pageable(runtime, destination) && !with(|state| state.captures(of(stream))).unwrap_or(true) {
        end_of_stream(stream).finish();
    }
}

fn is_pageable(runtime: &Runtime, span: Span) -> bool {
    runtime.pointer_info(span.address()).is_ok_and(|info| info.kind == MemoryKind::Unregistered)
}

#[cold]
fn operation_of_copy(runtime: &Runtime, stream: stream::Stream, destination: Span, source: Span) -> Result<()> {
    let operands = [read(source), write(destination)];
    let mut kept = Vec::with_capacity(2);
    for (operand, span) in operands.into_iter().zip([source, destination]) {
        if !is_pageable(runtime, span) {
            kept.push(operand);
        }
    }
    operation(runtime, stream, call_name(), &kept)
}

/// An operation is about to go into a stream.
#[cold]
pub fn operation(runtime: &Runtime, stream: stream::Stream, name: &str, operands: &[Operand]) -> Result<()> {
    let own = of(stream);
    let call = Call { name, stack: caller() };
    // A capture that the program began by calls of its own is not known here, and nothing that goes into it is done now.
    let captures = stream::is_validated_capturing(runtime, stream)?;
    let reports = with(|state| {
        if captures && !state.captures(own) {
            return Vec::new();
        }
        state.operation(Place::Stream(own), call, operands, refuses())
    });
    deliver(reports.unwrap_or_default())
}

/// The CPU works on memory now.
#[cold]
pub fn operation_of_cpu(name: &str, operands: &[Operand]) -> Result<()> {
    let call = Call { name, stack: caller() };
    deliver(with(|state| state.operation(Place::Cpu, call, operands, refuses())).unwrap_or_default())
}

/// A graph is about to be launched in a stream. An error if it must not.
#[inline]
pub fn replay(exec: driver::GraphExec, stream: driver::Stream, device: u32) -> Result<()> {
    if !is_on() {
        return Ok(());
    }
    let own = named(stream.handle(), || device);
    deliver(with(|state| state.replay(exec.handle() as u64, own, refuses())).unwrap_or_default())
}

/// What the CPU will know to be done when it has seen something.
#[derive(Debug, Clone, Default)]
#[must_use = "it says nothing until it is seen"]
pub struct Ahead {
    moments: Vec<Moment>,
    /// The number of the state that they are moments of: the sanitizer may be off and on again by the time that they are seen.
    state: u64,
}

impl Ahead {
    fn of(moments: impl FnOnce(&mut State) -> Vec<Moment>) -> Ahead {
        with(|state| Ahead { moments: moments(state), state: state.number() }).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn before(state: &State, moments: Vec<Moment>) -> Ahead {
        Ahead { moments, state: state.number() }
    }

    /// The CPU has seen it.
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

/// For a look whether a stream has anything left to do.
#[inline]
pub fn end_of_stream(stream: stream::Stream) -> Ahead {
    if is_on() { stream_ahead(of(stream)) } else { Ahead::default() }
}

/// For a look whether an event is complete.
#[inline]
pub fn end_of_event(event: driver::Event) -> Ahead {
    if is_on() { event_ahead(event) } else { Ahead::default() }
}

/// For a call that waits for a device.
#[inline]
pub fn end_of_device(device: u32) -> Ahead {
    if is_on() { device_ahead(device) } else { Ahead::default() }
}

/// For a call that waits for all devices.
#[inline]
pub fn end_of_all(runtime: &Runtime) -> Ahead {
    if !is_on() {
        return Ahead::default();
    }
    let devices = runtime.devices().iter().map(|device| device.ordinal);
    Ahead::of(|state| devices.flat_map(|device| state.end_of_device(device)).collect())
}

pub(super) fn stream_ahead(stream: Stream) -> Ahead {
    Ahead::of(|state| vec![state.end_of_stream(stream)])
}

pub(super) fn event_ahead(event: driver::Event) -> Ahead {
    Ahead::of(|state| state.end_of_event(event.native() as u64).into_iter().collect())
}

pub(super) fn device_ahead(device: u32) -> Ahead {
    Ahead::of(|state| state.end_of_device(device))
}

/// For a host function that a stream is about to get: what it is to call before. None where nobody wants to know, and in a
/// capture, whose functions are called at each replay.
pub fn before_host_function(runtime: &Runtime, stream: stream::Stream) -> Result<Option<Arc<dyn Fn() + Send + Sync>>> {
    if !is_on() || stream::is_validated_capturing(runtime, stream)? {
        return Ok(None);
    }
    let own = of(stream);
    let ahead = Ahead::of(|state| vec![state.moment(own)]);
    Ok(Some(Arc::new(move || ahead.finish())))
}

/// Later work of one stream waits for what another has now, by something that the driver is not asked for.
pub fn wait_stream(waiting: stream::Stream, awaited: stream::Stream) {
    if is_on() {
        let (waiting, awaited) = (of(waiting), of(awaited));
        with(|state| state.wait_stream(waiting, awaited));
    }
}

/// Streams wait for each other at an operation of all of them: each for those that `is_awaited` names by waiting and
/// awaited.
pub fn meet(streams: &[stream::Stream], is_awaited: impl Fn(usize, usize) -> bool) {
    if !is_on() {
        return;
    }
    let own: Vec<Stream> = streams.iter().map(|stream| of(*stream)).collect();
    with(|state| {
        let marks: Vec<_> = own.iter().map(|stream| state.mark(*stream)).collect();
        for (waiting, stream) in own.iter().enumerate() {
            for (awaited, mark) in marks.iter().enumerate() {
                if waiting != awaited && is_awaited(waiting, awaited) {
                    state.obey(*stream, mark);
                }
            }
        }
    });
}

/// A block of an allocator's, as the sanitizer is told of it.
#[derive(Debug, Clone, Copy)]
pub struct Owned {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The number of its device.
    pub device: u32,
    /// The handle of the stream that it is for.
    pub stream: usize,
    /// Where the stream's handle means another one in each thread, the thread's number.
    pub thread: u64,
}

impl Owned {
    fn stream(&self) -> Stream {
        let mut stream = named(self.stream, || self.device);
        if stream.thread != 0 {
            stream.thread = self.thread;
        }
        stream
    }
}

/// A block was given out.
#[cold]
pub fn allocated(block: Owned) {
    let (stream, stack) = (block.stream(), caller());
    with(|state| state.alloc(block.address, block.bytes, stream, stack));
}

/// A block is there since before anybody listened; who asked for it, if that is known.
#[cold]
pub fn known(block: Owned, stack: StackId) {
    let stream = block.stream();
    with(|state| state.alloc(block.address, block.bytes, stream, stack));
}

/// A block was freed.
#[cold]
pub fn freed(block: Owned) {
    let (stream, stack) = (block.stream(), caller());
    with(|state| {
        state.ensure(block.address, block.bytes, stream);
        state.free(block.address, stack);
    });
}

/// A stream of a device was recorded for a block.
#[cold]
pub fn recorded(block: Owned, user: driver::Stream, device: u32) {
    let (stream, user) = (block.stream(), named(user.handle(), || device));
    with(|state| {
        state.ensure(block.address, block.bytes, stream);
        state.record_stream(block.address, user);
    });
}

/// A block of pinned memory was freed, for which these streams are recorded.
#[cold]
pub fn pinned_freed(address: u64, bytes: u64, users: &[Use]) {
    let stack = caller();
    let users: Vec<Stream> = users
        .iter()
        .map(|user| Stream { thread: user.thread, ..named(user.stream.handle(), || user.device) })
        .collect();
    with(|state| {
        state.ensure(address, bytes, None);
        users.iter().for_each(|user| state.record_stream(address, *user));
        state.free(address, stack);
    });
}

/// The streams that were recorded for a block of pinned memory are done with it.
#[inline]
pub fn pinned_passed(address: u64, bytes: u64) {
    if is_on() {
        with(|state| drop(state.take_back(address, bytes, None)));
    }
}

/// All that used memory is done. What is known of its blocks stays.
#[cold]
pub fn forget_accesses(address: u64, bytes: u64) {
    with(|state| state.forget_accesses(address, bytes));
}

/// All that used memory is done, and it is somebody else's next.
#[inline]
pub fn forget_memory(address: u64, bytes: u64) {
    if is_on() {
        with(|state| state.forget_memory(address, bytes));
    }
}
