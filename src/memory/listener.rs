//! Who listens to an arena: the trace that is written to a file, the history, and the program's trackers.
//!
//! A space knows whether anybody listens, under its arena's lock and by one pointer, so that a process in which nobody does
//! pays for none of them. All that happens is told under that lock, which keeps it in order.

use super::{
    arena::Inner,
    block::{Id, State},
    history::{self, Action, Context, Enabled, Options, StackId},
    log::{Log, Raw},
    pool::PoolId,
    space::Space,
    trace, tracing, trackers,
};
use crate::sanitizer::{self, BlockInfo};

/// See the module's comment.
#[derive(Debug, Clone)]
pub struct Listener {
    /// The arena's device.
    pub device: u32,
    /// The handle of its stream.
    pub stream: usize,
    /// Its pool.
    pub pool: PoolId,
    /// Whether a trace is written.
    traced: bool,
    /// Whether there are trackers.
    told: bool,
    /// Whether the stream sanitizer is on, and of which thread the stream's handle is then.
    checked: Option<u64>,
    /// For what the caller is found out.
    context: Context,
    /// The actions that are not kept.
    skip: u32,
    /// The entries, where they are kept.
    pub log: Option<Log>,
}

/// Lets those listen to an arena who want to now. To be called whenever that changes, and when an arena gets its key.
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

/// Tells the stream sanitizer, which begins to listen, of the blocks that there are, and of the streams that were recorded.
pub fn tell_blocks(inner: &Inner) {
    let Some(listener) = &inner.space.listener else { return };
    for (id, block) in inner.space.blocks.iter().filter(|(_, block)| block.state == State::Live) {
        let Some(owned) = listener.owned(block.address, block.requested) else { continue };
        sanitizer::on_existing_block(owned, block.stack);
        for user in inner.uses.get(&id).into_iter().flatten() {
            sanitizer::on_record_stream(owned, user.stream, user.device);
        }
    }
}

impl Listener {
    /// Forgets what was logged.
    pub fn forget(&mut self) {
        self.log = None;
    }

    /// Whose memory it is, and the log, for a reader.
    pub fn share(&self) -> Option<(Listener, Log)> {
        let log = self.log.clone()?;
        Some((Listener { log: None, ..*self }, log))
    }

    /// Whether anybody wants an entry of such an action.
    #[inline]
    fn wants(&self, action: Action) -> bool {
        self.told || self.keeps(action)
    }

    #[inline]
    fn keeps(&self, action: Action) -> bool {
        self.log.is_some() && self.skip & action.bit() == 0
    }

    /// A block, as the sanitizer is told of it, if it is on.
    pub fn owned(&self, address: u64, bytes: u64) -> Option<BlockInfo> {
        self.checked.map(|thread| BlockInfo { address, bytes, device: self.device, stream: self.stream, thread })
    }

    /// Makes an entry of this moment, with the caller where the context has `least`.
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

    /// Writes that a block was given out. Gives the caller, if it is wanted for the live block.
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

    /// Writes that a block was freed, and, if that is so already, that it can be given out again.
    fn free(&mut self, address: u64, size: u64, completed: bool) {
        let completed = completed && self.wants(Action::FreeCompleted);
        if !completed && !self.wants(Action::FreeRequested) {
            return;
        }
        // One moment and one caller for both.
        let raw = Raw::now(Action::FreeRequested, address, size, self.context >= Context::All);
        self.put(raw);
        if completed {
            self.put(Raw { action: Action::FreeCompleted, ..raw });
        }
    }
}

impl Space {
    /// Tells that a block was given out.
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
            sanitizer::on_alloc(owned);
        }
        block.stack = listener.alloc(address, requested);
        if listener.told {
            // Whoever asked hears that there is something to settle, and the trackers with it.
            self.counters.credit = 0;
        }
    }

    /// Tells that a block was freed. Whether trackers are to be told.
    #[cold]
    pub(super) fn hear_free(&mut self, id: Id) -> bool {
        let Some(listener) = &mut self.listener else { return false };
        let block = &self.blocks[id];
        if listener.traced {
            tracing::recorder().record_free(listener.device, block.address);
        }
        if let Some(owned) = listener.owned(block.address, block.requested) {
            sanitizer::on_free(owned);
        }
        listener.free(block.address, block.requested, !block.used_elsewhere);
        listener.told
    }

    /// Tells that a freed block waits no more.
    #[cold]
    pub(super) fn hear_end_of_wait(&mut self, id: Id) {
        let Some(listener) = &mut self.listener else { return };
        let block = &self.blocks[id];
        listener.write(Action::FreeCompleted, block.address, block.requested, Context::All);
    }

    /// Tells of a segment.
    pub(super) fn hear_segment(&mut self, action: Action, address: u64, bytes: u64) {
        if let Some(listener) = &mut self.listener {
            let least = match action {
                Action::SegmentAlloc | Action::SegmentMap => Context::Alloc,
                _ => Context::All,
            };
            listener.write(action, address, bytes, least);
        }
    }

    /// Forgets who asked for the blocks.
    pub(super) fn forget_stacks(&mut self) {
        for id in 0..self.blocks.len() as Id {
            self.blocks[id].stack = StackId::NONE;
        }
    }
}
