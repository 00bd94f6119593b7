//! The listener of an arena: forwards its events to the trace file, the history, the program's trackers and the stream
//! sanitizer.
//!
//! A space has one pointer to its listener, protected by its arena's lock, so that a process without listeners pays for
//! a null check only. All events are reported under that lock, which keeps them in order.

use super::{
    arena::Inner,
    block::{BlockId, BlockState},
    history::{self, Action, Context, Enabled, Options, StackId},
    log::{Log, RawEntry},
    pool::PoolId,
    space::Space,
    trace, tracing, trackers,
};
use crate::observe::{self, BlockInfo};

/// What to record about an arena; see the module documentation.
#[derive(Debug, Clone)]
pub struct Listener {
    /// The arena's device.
    pub device: u32,
    /// The handle of its stream.
    pub stream: usize,
    /// Its pool.
    pub pool: PoolId,
    /// Whether a trace is being written.
    traced: bool,
    /// Whether there are trackers.
    has_trackers: bool,
    /// If the stream sanitizer is on: the thread to which the stream's handle belongs, or 0.
    sanitizer_thread: Option<u64>,
    /// The events for which a stack is captured.
    context: Context,
    /// The bits of the actions that are not recorded.
    skip: u32,
    /// The log, if a history is recorded.
    pub log: Option<Log>,
}

/// Updates an arena's listener to the current consumers. Must be called when the consumers change and when an arena
/// gets a key.
pub fn update(device: u32, inner: &mut Inner) {
    let before = inner.space.listener.take();
    let Options { enabled, context, max_entries, skip_actions, .. } = history::options();
    let (traced, has_trackers) = (tracing::recorder().is_on(), trackers::any());
    let sanitizer_thread = observe::is_on().then_some(inner.key.thread);
    if enabled == Enabled::Off && !traced && !has_trackers && sanitizer_thread.is_none() {
        return;
    }
    let mut log = before.and_then(|before| before.log);
    if enabled == Enabled::All {
        log.get_or_insert_default().set_capacity(max_entries);
    }
    let context = if enabled == Enabled::Off { Context::None } else { context };
    let (stream, pool) = (inner.key.stream, inner.key.pool);
    let listener =
        Listener { device, stream, pool, traced, has_trackers, sanitizer_thread, context, skip: skip_actions, log };
    inner.space.listener = Some(Box::new(listener));
}

/// Reports the existing blocks and their recorded streams to the stream sanitizer when it is switched on.
pub fn report_blocks(inner: &Inner) {
    let Some(listener) = &inner.space.listener else { return };
    for (id, block) in inner.space.blocks.iter().filter(|(_, block)| block.state == BlockState::Live) {
        let Some(owned) = listener.owned(block.address, block.requested) else { continue };
        observe::on_existing_block(owned, block.stack);
        for user in inner.stream_uses.get(&id).into_iter().flatten() {
            observe::on_record_stream(owned, user.stream, user.device);
        }
    }
}

impl Listener {
    /// Clears the log.
    pub fn clear_log(&mut self) {
        self.log = None;
    }

    /// Returns a copy of the listener and its log, for a reader.
    pub fn share(&self) -> Option<(Listener, Log)> {
        let log = self.log.clone()?;
        Some((Listener { log: None, ..*self }, log))
    }

    /// Returns whether the history or a tracker needs an entry for the action.
    #[inline]
    fn needs(&self, action: Action) -> bool {
        self.has_trackers || self.records(action)
    }

    #[inline]
    fn records(&self, action: Action) -> bool {
        self.log.is_some() && self.skip & action.bit() == 0
    }

    /// Returns the description of a block for the sanitizer, if that is on.
    pub fn owned(&self, address: u64, bytes: u64) -> Option<BlockInfo> {
        self.sanitizer_thread.map(|thread| BlockInfo {
            address,
            bytes,
            device: self.device,
            stream: self.stream,
            thread,
        })
    }

    /// Records an entry with the current time, and with a stack if the context is at least `min_context`.
    fn record(&mut self, action: Action, address: u64, size: u64, min_context: Context) {
        if self.needs(action) {
            self.push(RawEntry::now(action, address, size, self.context >= min_context));
        }
    }

    fn push(&mut self, raw: RawEntry) {
        if self.records(raw.action)
            && let Some(log) = &mut self.log
        {
            log.push(raw);
        }
        if self.has_trackers {
            trackers::enqueue(self.device, self.stream, self.pool, &raw);
        }
    }

    /// Records an allocation. Returns the stack if it is to be stored for the live block.
    fn alloc(&mut self, address: u64, size: u64) -> StackId {
        if self.context < Context::State {
            self.record(Action::Alloc, address, size, Context::Alloc);
            return StackId::NONE;
        }
        let raw = RawEntry::now(Action::Alloc, address, size, true);
        let stack = if self.context >= Context::Alloc { raw.stack } else { StackId::NONE };
        self.push(RawEntry { stack, ..raw });
        raw.stack
    }

    /// Records that a block was freed and, if `completed`, that it can be reused.
    fn free(&mut self, address: u64, size: u64, completed: bool) {
        let completed = completed && self.needs(Action::FreeCompleted);
        if !completed && !self.needs(Action::FreeRequested) {
            return;
        }
        // Both entries have the same time and stack.
        let raw = RawEntry::now(Action::FreeRequested, address, size, self.context >= Context::All);
        self.push(raw);
        if completed {
            self.push(RawEntry { action: Action::FreeCompleted, ..raw });
        }
    }
}

impl Space {
    /// Reports an allocation.
    #[cold]
    pub(super) fn on_alloc(&mut self, id: BlockId, requested: u64) {
        let Some(listener) = &mut self.listener else { return };
        let block = &mut self.blocks[id];
        let address = block.address;
        if listener.traced {
            let (device, stream) = (listener.device, listener.stream);
            tracing::recorder().record_alloc(trace::Block { device, address, stream, size: requested });
        }
        if let Some(owned) = listener.owned(address, requested) {
            observe::on_alloc(owned);
        }
        block.stack = listener.alloc(address, requested);
        if listener.has_trackers {
            // Forces the allocating thread into the path that flushes the peak, which also delivers events to trackers.
            self.counters.live_budget = 0;
        }
    }

    /// Reports a free. Returns whether there are trackers to notify.
    #[cold]
    pub(super) fn on_free(&mut self, id: BlockId) -> bool {
        let Some(listener) = &mut self.listener else { return false };
        let block = &self.blocks[id];
        if listener.traced {
            tracing::recorder().record_free(listener.device, block.address);
        }
        if let Some(owned) = listener.owned(block.address, block.requested) {
            observe::on_free(owned);
        }
        listener.free(block.address, block.requested, !block.used_elsewhere);
        listener.has_trackers
    }

    /// Reports that a deferred free is complete.
    #[cold]
    pub(super) fn on_deferred_free_done(&mut self, id: BlockId) {
        let Some(listener) = &mut self.listener else { return };
        let block = &self.blocks[id];
        listener.record(Action::FreeCompleted, block.address, block.requested, Context::All);
    }

    /// Reports an event of a segment.
    pub(super) fn on_segment(&mut self, action: Action, address: u64, bytes: u64) {
        if let Some(listener) = &mut self.listener {
            let min_context = match action {
                Action::SegmentAlloc | Action::SegmentMap => Context::Alloc,
                _ => Context::All,
            };
            listener.record(action, address, bytes, min_context);
        }
    }

    /// Clears the allocation stacks of all blocks.
    pub(super) fn clear_stacks(&mut self) {
        for id in 0..self.blocks.len() as BlockId {
            self.blocks[id].stack = StackId::NONE;
        }
    }
}
