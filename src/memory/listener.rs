//! The listener of an arena: forwards its events to the trace file, the history, the program's trackers and the stream
//! sanitizer.
//!
//! A space has one pointer to its listener, protected by its arena's lock, so that a process without listeners pays for
//! a null check only. All events are reported under that lock, which keeps them in order.

use super::{
    arena::Inner,
    block::{Id, State},
    history::{self, Action, Context, Enabled, Options, StackId},
    log::{Log, Raw},
    pool::PoolId,
    space::Space,
    trace, tracing, trackers,
};
use crate::sanitizer::{self, Owned};

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
    told: bool,
    /// If the stream sanitizer is on: the thread to which the stream's handle belongs, or 0.
    checked: Option<u64>,
    /// The events for which a stack is captured.
    context: Context,
    /// The bits of the actions that are not recorded.
    skip: u32,
    /// The log, if a history is recorded.
    pub log: Option<Log>,
}

/// Updates an arena's listener to the current consumers. Must be called when the consumers change and when an arena
/// gets a key.
pub fn tune(device: u32, inner: &mut Inner) {
    let before = inner.space.listener.take();
    let Options { enabled, context, max_entries, skip_actions, .. } = history::options();
    let (traced, told) = (tracing::recorder().is_on(), trackers::are_there());
    let checked = sanitizer::is_on().then_some(inner.key.thread);
    if enabled == Enabled::Off && !traced && !told && checked.is_none() {
        return;
    }
    let mut log = before.and_then(|before| before.log);
    if enabled == Enabled::All {
        log.get_or_insert_default().set_most(max_entries);
    }
    let context = if enabled == Enabled::Off { Context::None } else { context };
    let (stream, pool) = (inner.key.stream, inner.key.pool);
    let listener = Listener { device, stream, pool, traced, told, checked, context, skip: skip_actions, log };
    inner.space.listener = Some(Box::new(listener));
}

/// Reports the existing blocks and their recorded streams to the stream sanitizer when it is switched on.
pub fn tell_blocks(inner: &Inner) {
    let Some(listener) = &inner.space.listener else { return };
    for (id, block) in inner.space.blocks.iter().filter(|(_, block)| block.state == State::Live) {
        let Some(owned) = listener.owned(block.address, block.requested) else { continue };
        sanitizer::known(owned, block.stack);
        for user in inner.uses.get(&id).into_iter().flatten() {
            sanitizer::recorded(owned, user.stream, user.device);
        }
    }
}

impl Listener {
    /// Clears the log.
    pub fn forget(&mut self) {
        self.log = None;
    }

    /// Returns a copy of the listener and its log, for a reader.
    pub fn share(&self) -> Option<(Listener, Log)> {
        let log = self.log.clone()?;
        Some((Listener { log: None, ..*self }, log))
    }

    /// Returns whether the history or a tracker needs an entry for the action.
    #[inline]
    fn wants(&self, action: Action) -> bool {
        self.told || self.keeps(action)
    }

    #[inline]
    fn keeps(&self, action: Action) -> bool {
        self.log.is_some() && self.skip & action.bit() == 0
    }

    /// Returns the description of a block for the sanitizer, if that is on.
    pub fn owned(&self, address: u64, bytes: u64) -> Option<Owned> {
        self.checked.map(|thread| Owned { address, bytes, device: self.device, stream: self.stream, thread })
    }

    /// Records an entry with the current time, and with a stack if the context is at least `least`.
    fn write(&mut self, action: Action, address: u64, size: u64, least: Context) {
        if self.wants(action) {
            self.put(Raw::now(action, address, size, self.context >= least));
        }
    }

    fn put(&mut self, raw: Raw) {
        if self.keeps(raw.action)
            && let Some(log) = &mut self.log
        {
            log.push(raw);
        }
        if self.told {
            trackers::tell_later(self.device, self.stream, self.pool, &raw);
        }
    }

    /// Records an allocation. Returns the stack if it is to be stored for the live block.
    fn alloc(&mut self, address: u64, size: u64) -> StackId {
        if self.context < Context::State {
            self.write(Action::Alloc, address, size, Context::Alloc);
            return StackId::NONE;
        }
        let raw = Raw::now(Action::Alloc, address, size, true);
        let stack = if self.context >= Context::Alloc { raw.stack } else { StackId::NONE };
        self.put(Raw { stack, ..raw });
        raw.stack
    }

    /// Records that a block was freed and, if `completed`, that it can be reused.
    fn free(&mut self, address: u64, size: u64, completed: bool) {
        let completed = completed && self.wants(Action::FreeCompleted);
        if !completed && !self.wants(Action::FreeRequested) {
            return;
        }
        // Both entries have the same time and stack.
        let raw = Raw::now(Action::FreeRequested, address, size, self.context >= Context::All);
        self.put(raw);
        if completed {
            self.put(Raw { action: Action::FreeCompleted, ..raw });
        }
    }
}

impl Space {
    /// Reports an allocation.
    #[cold]
    pub(super) fn hear_alloc(&mut self, id: Id, requested: u64) {
        let Some(listener) = &mut self.listener else { return };
        let block = &mut self.blocks[id];
        let address = block.address;
        if listener.traced {
            let (device, stream) = (listener.device, listener.stream);
            tracing::recorder().record_alloc(trace::Block { device, address, stream, size: requested });
        }
        if let Some(owned) = listener.owned(address, requested) {
            sanitizer::allocated(owned);
        }
        block.stack = listener.alloc(address, requested);
        if listener.told {
            // Forces the allocating thread into the path that flushes the peak, which also delivers events to trackers.
            self.counters.credit = 0;
        }
    }

    /// Reports a free. Returns whether there are trackers to notify.
    #[cold]
    pub(super) fn hear_free(&mut self, id: Id) -> bool {
        let Some(listener) = &mut self.listener else { return false };
        let block = &self.blocks[id];
        if listener.traced {
            tracing::recorder().record_free(listener.device, block.address);
        }
        if let Some(owned) = listener.owned(block.address, block.requested) {
            sanitizer::freed(owned);
        }
        listener.free(block.address, block.requested, !block.used_elsewhere);
        listener.told
    }

    /// Reports that a deferred free is complete.
    #[cold]
    pub(super) fn hear_end_of_wait(&mut self, id: Id) {
        let Some(listener) = &mut self.listener else { return };
        let block = &self.blocks[id];
        listener.write(Action::FreeCompleted, block.address, block.requested, Context::All);
    }

    /// Reports an event of a segment.
    pub(super) fn hear_segment(&mut self, action: Action, address: u64, bytes: u64) {
        if let Some(listener) = &mut self.listener {
            let least = match action {
                Action::SegmentAlloc | Action::SegmentMap => Context::Alloc,
                _ => Context::All,
            };
            listener.write(action, address, bytes, least);
        }
    }

    /// Clears the allocation stacks of all blocks.
    pub(super) fn forget_stacks(&mut self) {
        for id in 0..self.blocks.len() as Id {
            self.blocks[id].stack = StackId::NONE;
        }
    }
}
