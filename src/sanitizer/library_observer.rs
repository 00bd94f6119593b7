//! Receives what the library reports (`crate::observe`) and changes the sanitizer's state accordingly.

use super::{
    call::{Call, Executor, Stream},
    driver_observer,
    order::Moment,
    session::{self, call_name, caller, deliver, refuses_findings, stream_of_handle, with},
    state::State,
};
use crate::{
    base::stack::StackId,
    driver::{self, MemoryKind, Span},
    error::Result,
    memory,
    observe::{self, Awaited, BlockInfo, Observer, Operand, PendingWait},
    runtime::{
        Runtime,
        checked_stream::{self, StreamUse},
        names::{self, Subject},
    },
    stream,
};
use std::sync::Arc;

/// The sanitizer as an observer of the library.
pub static LIBRARY_OBSERVER: LibraryObserver = LibraryObserver;

/// Updates the sanitizer's state for each report.
#[derive(Debug)]
pub struct LibraryObserver;

/// Returns the sanitizer's name of a stream.
fn name_of(stream: checked_stream::Stream) -> Stream {
    stream_of_handle(stream.raw.handle(), || stream.device())
}

/// Returns the sanitizer's name of the stream that a block is allocated for.
fn stream_of_block(block: &BlockInfo) -> Stream {
    let mut stream = stream_of_handle(block.stream, || block.device);
    if stream.thread != 0 {
        stream.thread = block.thread;
    }
    stream
}

/// Marks a block of a pool that only captures allocate from: its capture may have begun before the sanitizer was enabled.
fn set_of_graph(state: &mut State, block: &BlockInfo) {
    if block.of_graphs {
        state.set_of_graph(block.address);
    }
}

fn is_pageable(runtime: &Runtime, address: u64) -> bool {
    runtime.pointer_info(address).is_ok_and(|info| info.kind == MemoryKind::Unregistered)
}

/// Forgets what is known about addresses that another owner got from the driver, before it uses them.
fn enter_foreign_memory(operands: &[Operand]) {
    for operand in operands {
        let is_live = with(|state| state.is_block_live(operand.start)).flatten();
        if is_live != Some(true)
            && let Some(found) = memory::foreign(operand.start, is_live == Some(false))
        {
            with(|state| state.enter_foreign(found.start, found.bytes as u64, found.buffer));
        }
    }
}

/// Reports that the CPU accesses memory now.
#[cold]
pub fn operation_of_cpu(name: &str, operands: &[Operand]) -> Result<()> {
    enter_foreign_memory(operands);
    let call = Call { name, stack: caller() };
    deliver(with(|state| state.operation(Executor::Cpu, call, operands, refuses_findings())).unwrap_or_default())
}

/// Reports that later work of a stream waits for the current work of another, by means other than a driver call.
pub fn wait_stream(waiting: checked_stream::Stream, awaited: checked_stream::Stream) {
    if observe::is_on() {
        let (waiting, awaited) = (name_of(waiting), name_of(awaited));
        with(|state| state.wait_stream(waiting, awaited));
    }
}

/// The moments of the sanitizer's clocks that a wait covers.
#[derive(Debug, Clone, Default)]
pub struct PendingMoments {
    moments: Vec<Moment>,
    /// The number of the state that the moments belong to. The sanitizer may be disabled and enabled again before the
    /// wait ends.
    state: u64,
}

impl PendingMoments {
    fn new(moments: impl FnOnce(&mut State) -> Vec<Moment>) -> PendingMoments {
        with(|state| PendingMoments { moments: moments(state), state: state.number() }).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn with_moments(state: &State, moments: Vec<Moment>) -> PendingMoments {
        PendingMoments { moments, state: state.number() }
    }

    /// Reports that the wait or the query has succeeded.
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

pub(super) fn pending_stream(stream: Stream) -> PendingMoments {
    PendingMoments::new(|state| vec![state.end_of_stream(stream)])
}

pub(super) fn pending_event(event: driver::Event) -> PendingMoments {
    PendingMoments::new(|state| state.end_of_event(event.native() as u64).into_iter().collect())
}

pub(super) fn pending_device(device: u32) -> PendingMoments {
    PendingMoments::new(|state| state.end_of_device(device))
}

impl Observer for LibraryObserver {
    #[cold]
    fn operation(
        &self,
        runtime: &Runtime,
        stream: checked_stream::Stream,
        name: Option<&str>,
        operands: &[Operand],
    ) -> Result<()> {
        let stream_name = name_of(stream);
        let call = Call { name: name.unwrap_or(call_name()), stack: caller() };
        // A capture that the program began with driver calls of its own may be unknown here; work in it does not run now.
        let capturing = stream::is_validated_capturing(runtime, stream)?;
        enter_foreign_memory(operands);
        let reports = with(|state| {
            if capturing && !state.is_capturing(stream_name) {
                return Vec::new();
            }
            state.operation(Executor::Stream(stream_name), call, operands, refuses_findings())
        });
        deliver(reports.unwrap_or_default())
    }

    #[cold]
    fn copy(
        &self,
        runtime: &Runtime,
        stream: checked_stream::Stream,
        destination: &[Operand],
        source: &[Operand],
    ) -> Result<()> {
        let mut device_accessible = Vec::with_capacity(destination.len() + source.len());
        for side in [source, destination] {
            if side.first().is_some_and(|first| !is_pageable(runtime, first.start)) {
                device_accessible.extend_from_slice(side);
            }
        }
        self.operation(runtime, stream, None, &device_accessible)
    }

    fn copied(&self, runtime: &Runtime, stream: checked_stream::Stream, destination: Span) {
        // The call has waited for the stream if it wrote to pageable memory.
        if is_pageable(runtime, destination.address())
            && !with(|state| state.is_capturing(name_of(stream))).unwrap_or(true)
        {
            pending_stream(name_of(stream)).finish();
        }
    }

    fn replay(&self, exec: driver::GraphExec, stream: driver::Stream, device: u32) -> Result<()> {
        let stream = stream_of_handle(stream.handle(), || device);
        deliver(with(|state| state.replay(exec.handle() as u64, stream, refuses_findings())).unwrap_or_default())
    }

    fn report_node(&self, graph: driver::Graph, node: driver::GraphNode, name: &str, operands: &[Operand]) {
        driver_observer::report_node(graph, node, name, operands);
    }

    fn begin_wait(&self, awaited: &[Awaited]) -> PendingWait {
        let pending = PendingMoments::new(|state| {
            let moments = awaited.iter().flat_map(|awaited| match awaited {
                Awaited::Stream(stream) => vec![state.end_of_stream(name_of(*stream))],
                Awaited::Event(event) => state.end_of_event(event.native() as u64).into_iter().collect(),
                Awaited::Device(device) => state.end_of_device(*device),
            });
            moments.collect()
        });
        PendingWait::new(move || pending.finish())
    }

    fn before_host_function(
        &self,
        runtime: &Runtime,
        stream: checked_stream::Stream,
    ) -> Result<Option<Arc<dyn Fn() + Send + Sync>>> {
        if stream::is_validated_capturing(runtime, stream)? {
            return Ok(None);
        }
        let stream_name = name_of(stream);
        let pending = PendingMoments::new(|state| vec![state.moment(stream_name)]);
        Ok(Some(Arc::new(move || pending.finish())))
    }

    fn wait_mutually(&self, streams: &[checked_stream::Stream], is_awaited: &dyn Fn(usize, usize) -> bool) {
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

    fn on_call_begin(&self, name: &'static str) -> &'static str {
        session::enter(name)
    }

    fn on_call_end(&self, outer: &'static str) {
        session::leave(outer);
    }

    fn on_alloc(&self, block: BlockInfo) {
        self.on_existing_block(block, caller());
    }

    fn on_existing_block(&self, block: BlockInfo, stack: StackId) {
        let stream = stream_of_block(&block);
        with(|state| {
            state.alloc(block.address, block.bytes, stream, stack);
            set_of_graph(state, &block);
        });
    }

    fn on_free(&self, block: BlockInfo) {
        let (stream, stack) = (stream_of_block(&block), caller());
        let name = names::get(Subject::Memory(block.address));
        with(|state| {
            state.ensure_block(block.address, block.bytes, stream);
            set_of_graph(state, &block);
            state.free(block.address, stack, name);
        });
    }

    fn on_free_failed(&self, address: u64) {
        with(|state| state.undo_free(address));
    }

    fn on_record_stream(&self, block: BlockInfo, user: driver::Stream, device: u32) {
        let (stream, user) = (stream_of_block(&block), stream_of_handle(user.handle(), || device));
        with(|state| {
            state.ensure_block(block.address, block.bytes, stream);
            state.record_stream(block.address, user);
        });
    }

    fn on_pinned_free(&self, address: u64, bytes: u64, users: &[StreamUse]) {
        let stack = caller();
        let users: Vec<Stream> = users
            .iter()
            .map(|user| Stream { thread: user.thread, ..stream_of_handle(user.stream.handle(), || user.device) })
            .collect();
        let name = names::get(Subject::Memory(address));
        with(|state| {
            state.ensure_block(address, bytes, None);
            users.iter().for_each(|user| state.record_stream(address, *user));
            state.free(address, stack, name);
        });
    }

    fn on_pinned_reuse(&self, address: u64, bytes: u64) {
        with(|state| drop(state.remove_blocks(address, bytes, None)));
    }

    fn on_sleep(&self, address: u64, bytes: u64) {
        with(|state| state.sleep(address, bytes));
    }

    fn on_wake(&self, address: u64, bytes: u64) {
        with(|state| state.wake(address, bytes));
    }

    fn forget_accesses(&self, address: u64, bytes: u64) {
        with(|state| state.forget_accesses(address, bytes));
    }

    fn forget_memory(&self, address: u64, bytes: u64) {
        with(|state| state.forget_memory(address, bytes));
    }
}
