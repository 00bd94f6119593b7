//! The recorder: the way by which the history, the trace file, the program's trackers and the stream sanitizer receive
//! the events of the allocator.
//!
//! A space has one pointer to its recorder, protected by its arena's lock, so that a process that records nothing pays
//! for a null check only. All events are recorded under that lock, which keeps them in order: a block's allocation
//! comes before its free, and the free before the next allocation at its address. What is recorded changes for all
//! arenas at once, by [`reconfigure`].

use super::{
    arena::{Arena, Inner},
    biased::BiasedGuard,
    block::{BlockId, BlockState},
    callbacks::Callback,
    history::{self, Action, Context, Enabled, Entry, HistorySnapshot, Options, Source, StackId},
    log::{Log, RawEntry},
    space::Space,
    tags::{self, Texts},
    trace,
    trackers::{self, Tracker},
};
use crate::{
    error::Result,
    observe::{self, BlockInfo},
    runtime::{
        self, Runtime,
        names::{self, Subject},
    },
};
use std::{path::Path, sync::Arc};

/// The recorder of an arena; see the module documentation.
#[derive(Debug)]
pub struct Recorder {
    /// The arena's device, stream and pool.
    source: Source,
    /// Whether a trace is being written.
    to_trace: bool,
    /// Whether there are trackers.
    to_trackers: bool,
    /// If the stream sanitizer is on: the thread to which the stream's handle belongs, or 0.
    sanitizer_thread: Option<u64>,
    /// The events for which a stack is captured.
    context: Context,
    /// The bits of the actions that are not recorded in the log.
    skip: u32,
    /// The log, if a history is recorded.
    log: Option<Log>,
}

/// An arena and its lock.
pub type LockedArena = (&'static Arena, BiasedGuard<'static, Inner>);

/// Calls `change`, which may change what is recorded, while all arenas are locked, and then updates their recorders.
pub fn reconfigure<T>(runtime: &Runtime, change: impl FnOnce(&mut [LockedArena]) -> T) -> T {
    // Lock order: the lists first, so that no arena is created meanwhile, then each arena.
    let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory().all_arenas()).collect();
    let mut arenas: Vec<LockedArena> =
        lists.iter().flat_map(|list| list.iter()).map(|arena| (arena, arena.lock())).collect();
    let result = change(&mut arenas);
    for (arena, inner) in &mut arenas {
        update(arena.device, inner);
    }
    result
}

/// Updates an arena's recorder to what is recorded now. [`reconfigure`] calls it; otherwise it must be called when an
/// arena gets a key.
pub fn update(device: u32, inner: &mut Inner) {
    let before = inner.space.recorder.take();
    let Options { enabled, context, max_entries, skip_actions, .. } = history::options();
    let (to_trace, to_trackers) = (trace::WRITER.is_on(), trackers::any());
    let sanitizer_thread = observe::is_on().then_some(inner.key.thread);
    if enabled == Enabled::Off && !to_trace && !to_trackers && sanitizer_thread.is_none() {
        return;
    }
    let had_sanitizer = before.as_ref().is_some_and(|before| before.sanitizer_thread.is_some());
    let source = Source { device, stream: inner.key.stream, pool: inner.key.pool };
    let mut log = match before {
        Some(before) if before.source == source => before.log,
        // The events so far belong to the stream that the arena had.
        Some(before) => {
            before.retire();
            None
        }
        None => None,
    };
    if enabled == Enabled::All {
        log.get_or_insert_default().set_capacity(max_entries);
    }
    let recorder = Recorder { source, to_trace, to_trackers, sanitizer_thread, context, skip: skip_actions, log };
    if sanitizer_thread.is_some() && !had_sanitizer {
        recorder.report_existing_blocks(inner);
    }
    inner.space.recorder = Some(Box::new(recorder));
}

/// Starts, changes or stops the history. A mode without entries discards those so far, as in torch: without later ones
/// they would not lead to the present blocks.
pub fn record_history(options: Options) -> Result<()> {
    history::check(&options)?;
    let off = options.enabled == Enabled::Off;
    let clear = options.enabled != Enabled::All || options.clear_history;
    reconfigure(runtime::ready()?, |arenas| {
        history::configure(options, clear);
        for (_, inner) in arenas {
            if clear && let Some(recorder) = &mut inner.space.recorder {
                recorder.log = None;
            }
            if off {
                inner.space.clear_stacks();
            }
        }
    });
    Ok(())
}

/// Returns the history of a device, oldest entries first.
pub fn entries(device: u32) -> Vec<Entry> {
    let snapshot = {
        let memory = runtime::usable().and_then(|runtime| runtime.devices().get(device as usize));
        let lists = memory.map(|device| device.memory().all_arenas());
        let arenas: Vec<_> = lists.iter().flat_map(|list| list.iter()).collect();
        let guards: Vec<_> = arenas.iter().map(|arena| arena.lock()).collect();
        HistorySnapshot::new(device, guards.iter().filter_map(|inner| log_of(inner)))
    };
    snapshot.entries()
}

/// Returns a copy of an arena's log, if it has one. Copying is fast, because it shares the full chunks.
pub fn log_of(inner: &Inner) -> Option<(Source, Log)> {
    let recorder = inner.space.recorder.as_ref()?;
    Some((recorder.source, recorder.log.clone()?))
}

/// Starts a trace, with the live blocks first.
pub fn trace_start(path: &Path) -> Result<()> {
    let runtime = runtime::ready()?;
    reconfigure(runtime, |arenas| {
        let live = arenas.iter().flat_map(|(arena, inner)| {
            let blocks = inner.space.blocks.iter().filter(|(_, block)| block.state == BlockState::Live);
            blocks.map(|(_, block)| trace::Block {
                device: arena.device,
                address: block.address,
                stream: inner.key.stream,
                size: block.requested,
            })
        });
        trace::WRITER.start(path, runtime.devices().len(), live)
    })
}

/// Stops the trace.
pub fn trace_stop() -> Result<()> {
    reconfigure(runtime::ready()?, |_| trace::WRITER.stop())
}

/// Adds a tracker.
pub fn attach_tracker(callback: Callback<Tracker>) -> Result<()> {
    reconfigure(runtime::ready()?, |_| trackers::attach(callback));
    Ok(())
}

/// Removes the tracker that was added last with this function and context.
pub fn detach_tracker(function: usize, context: usize) -> Result<()> {
    reconfigure(runtime::ready()?, |_| trackers::detach(function, context))
}

/// Records an event that concerns no memory of an arena. Trackers receive it at the next
/// [`deliver`](trackers::deliver). The caller may hold locks of the allocator here, but not when it delivers.
pub fn record_without_arena(source: Source, action: Action, address: u64, size: u64) {
    let options = history::options();
    let to_log = options.enabled == Enabled::All && options.skip_actions & action.bit() == 0;
    let to_trackers = trackers::any();
    if !to_log && !to_trackers {
        return;
    }
    let raw = RawEntry::now(action, address, size, options.context >= action.min_context());
    let texts = Texts { tag: tags::current(), name: None };
    if to_trackers {
        trackers::enqueue(source, &raw, &texts);
    }
    if to_log {
        history::store_entry(source, raw, texts);
    }
}

impl Recorder {
    /// Passes the log to the history, when the arena loses its key or goes to another stream.
    pub fn retire(self) {
        if let Some(log) = self.log {
            history::store_log(self.source, log);
        }
    }

    /// Returns the description of a block for the sanitizer, if that is on.
    pub fn owned(&self, address: u64, bytes: u64) -> Option<BlockInfo> {
        let Source { device, stream, pool } = self.source;
        let of_graphs = pool.is_issued_for_graphs();
        self.sanitizer_thread.map(|thread| BlockInfo { address, bytes, device, stream, thread, of_graphs })
    }

    /// Reports the existing blocks and their recorded streams to the stream sanitizer when it is switched on.
    fn report_existing_blocks(&self, inner: &Inner) {
        for mapping in inner.space.suspended_mappings() {
            observe::on_sleep(mapping.address, mapping.bytes);
        }
        for (id, block) in inner.space.blocks.iter().filter(|(_, block)| block.state == BlockState::Live) {
            let Some(owned) = self.owned(block.address, block.requested) else { continue };
            observe::on_existing_block(owned, block.stack);
            for user in inner.stream_uses.get(&id).into_iter().flatten() {
                observe::on_record_stream(owned, user.stream, user.device);
            }
        }
    }

    fn logs(&self, action: Action) -> bool {
        self.log.is_some() && self.skip & action.bit() == 0
    }

    /// Records an event, or two of one moment, which then have the same time, stack and name of the block. Returns the
    /// stack if it is to be stored for a live block.
    fn record(&mut self, actions: &[Action], address: u64, size: u64, name: Option<Arc<str>>) -> StackId {
        let is_alloc = actions.contains(&Action::Alloc);
        if self.to_trace {
            let Source { device, stream, .. } = self.source;
            for action in actions {
                trace::WRITER.record(*action, trace::Block { device, address, stream, size });
            }
        }
        let for_block = is_alloc && self.context >= Context::State;
        if !for_block && !self.to_trackers && !actions.iter().any(|action| self.logs(*action)) {
            return StackId::NONE;
        }
        let with_stack = for_block || actions.iter().any(|action| self.context >= action.min_context());
        let raw = RawEntry::now(actions[0], address, size, with_stack);
        let texts = Texts { tag: tags::current(), name };
        for action in actions {
            let stack = if self.context >= action.min_context() { raw.stack } else { StackId::NONE };
            let entry = RawEntry { action: *action, stack, ..raw };
            if self.logs(*action)
                && let Some(log) = &mut self.log
            {
                log.push(entry, &texts);
            }
            if self.to_trackers {
                trackers::enqueue(self.source, &entry, &texts);
            }
        }
        raw.stack
    }
}

impl Space {
    /// Records an allocation.
    #[cold]
    pub(super) fn on_alloc(&mut self, id: BlockId, requested: u64) {
        let Some(recorder) = &mut self.recorder else { return };
        let block = &mut self.blocks[id];
        if let Some(owned) = recorder.owned(block.address, requested) {
            observe::on_alloc(owned);
        }
        block.stack = recorder.record(&[Action::Alloc], block.address, requested, None);
        if recorder.to_trackers {
            self.counters.needs_attention = true;
        }
    }

    /// Records a free. Returns whether there are trackers to notify.
    #[cold]
    pub(super) fn on_free(&mut self, id: BlockId) -> bool {
        let Some(recorder) = &mut self.recorder else { return false };
        let block = &self.blocks[id];
        if let Some(owned) = recorder.owned(block.address, block.requested) {
            observe::on_free(owned);
        }
        let both = [Action::FreeRequested, Action::FreeCompleted];
        let actions = if block.used_elsewhere { &both[..1] } else { &both[..] };
        // A named block counts as used elsewhere.
        let name = if block.used_elsewhere { names::get(Subject::Memory(block.address)) } else { None };
        recorder.record(actions, block.address, block.requested, name);
        recorder.to_trackers
    }

    /// Records that a deferred free is complete.
    #[cold]
    pub(super) fn on_deferred_free_done(&mut self, id: BlockId) {
        let Some(recorder) = &mut self.recorder else { return };
        let block = &self.blocks[id];
        recorder.record(&[Action::FreeCompleted], block.address, block.requested, None);
    }

    /// Records an event of a segment.
    pub(super) fn on_segment(&mut self, action: Action, address: u64, bytes: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&[action], address, bytes, None);
        }
    }

    /// Clears the allocation stacks of all blocks.
    fn clear_stacks(&mut self) {
        for id in 0..self.blocks.len() as BlockId {
            self.blocks[id].stack = StackId::NONE;
        }
    }
}
