//! Taking a snapshot: a copy of the blocks of all arenas at one moment.
//!
//! All arenas are locked for as long as copying takes, so that a block which moves from one stream's hands to another's is
//! there once, and so that the history ends where the blocks stand: who plays it backwards from them must never meet a
//! block that it does not know. Stacks get their names afterwards, without a lock: that can take long.

use super::{
    super::{
        arena::Inner,
        block,
        history::{self, Action, HistorySnapshot, StackId},
        mapped::Backing,
        pool::PoolId,
        space::{Region, Space},
        trackers,
    },
    Block, Figures, Segment, Snapshot, Stacks, State,
};
use crate::{
    error::Result,
    runtime::{self, device::Device},
};
use std::time::{SystemTime, UNIX_EPOCH};

/// A snapshot of everything, with the history or without.
pub fn take(include_traces: bool) -> Result<Snapshot> {
    take_of(None, include_traces)
}

/// A snapshot of one pool.
pub fn take_pool(pool: PoolId, include_traces: bool) -> Result<Snapshot> {
    take_of(Some(pool), include_traces)
}

fn take_of(pool: Option<PoolId>, include_traces: bool) -> Result<Snapshot> {
    let runtime = runtime::ready()?;
    let mut snapshot = Snapshot::default();
    let mut frozen = Vec::new();
    {
        // In order: first the lists, so that no arena appears meanwhile, then each arena.
        let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory.all_arenas()).collect();
        let guards: Vec<_> = lists.iter().flat_map(|list| list.iter()).map(|arena| (arena, arena.lock())).collect();
        for (arena, inner) in &guards {
            if pool.is_none_or(|pool| inner.key.pool == pool) {
                segments(arena.device, inner, &mut snapshot.segments);
            }
        }
        for device in runtime.devices() {
            let ordinal = device.ordinal;
            if history::is_on() {
                let ours = snapshot.segments.iter().filter(|segment| segment.device == ordinal);
                history::record_undelivered(ordinal, Action::Snapshot, 0, ours.map(Segment::active).sum());
            }
            if include_traces {
                let inners = guards.iter().filter(|(arena, _)| arena.device == ordinal).map(|(_, inner)| &**inner);
                frozen.push(HistorySnapshot::new(ordinal, inners));
            }
            snapshot.figures.push(figures(device));
        }
    }
    // Not before: a tracker may ask for memory, and another thread's may wait for an arena at this moment.
    trackers::deliver();
    snapshot.traces = frozen.into_iter().map(HistorySnapshot::entries).collect();
    snapshot.traces.resize_with(runtime.devices().len(), Vec::new);
    if let Some(pool) = pool {
        snapshot.traces.iter_mut().for_each(|trace| trace.retain(|entry| entry.pool == pool));
    }
    if include_traces {
        snapshot.annotations = history::annotations();
    }
    snapshot.segments.sort_by_key(|segment| (segment.address, segment.device));
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks).map(|block| block.stack);
    let entries = snapshot.traces.iter().flatten().map(|entry| entry.stack);
    snapshot.stacks = Stacks::new(blocks.chain(entries), history::frames);
    // A clock before 1970 says nothing of use.
    snapshot.time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    Ok(snapshot)
}

fn figures(device: &Device) -> Figures {
    let total = device.memory.known_total();
    Figures { total, limit: total.and_then(|total| device.memory.limit(total)), held: device.memory.held() }
}

/// Adds the segments of an arena.
fn segments(device: u32, inner: &Inner, to: &mut Vec<Segment>) {
    for region in &inner.space.regions {
        for blocks in inner.space.runs(region) {
            let Some(first) = blocks.first() else { continue };
            let (address, bytes) = (first.address, blocks.iter().map(|block| block.size).sum::<u64>());
            let (expandable, asleep) = inner.space.kind_of(address, bytes);
            to.push(Segment {
                device,
                address,
                stream: inner.key.stream,
                pool: inner.key.pool,
                zone: region.zone,
                expandable,
                asleep,
                blocks,
            });
        }
    }
}

impl Space {
    /// The runs of a region that have memory behind them, in blocks. What is held for a moment is free, as far as memory is
    /// behind it.
    fn runs(&self, region: &Region) -> Vec<Vec<Block>> {
        let mut runs: Vec<Vec<Block>> = Vec::new();
        let mut end_of_last = None;
        let mut add = |block: Block| {
            match runs.last_mut() {
                Some(run) if end_of_last == Some(block.address) => run.push(block),
                _ => runs.push(vec![block]),
            }
            end_of_last = Some(block.address + block.size);
        };
        let free = |address, size| Block { address, size, requested: 0, state: State::Inactive, stack: StackId(0) };
        let mut id = region.first;
        while id != block::NONE {
            let block = &self.blocks[id];
            let used = |state| Block {
                address: block.address,
                size: block.size,
                requested: block.requested,
                state,
                stack: block.stack,
            };
            match block.state {
                block::BlockState::Live => add(used(State::Active)),
                block::BlockState::DeferredFree => add(used(State::Pending)),
                block::BlockState::Free | block::BlockState::Uncoalesced => add(free(block.address, block.size)),
                block::BlockState::Detached => {
                    for (address, size) in self.mapped_within(block) {
                        add(free(address, size));
                    }
                }
                block::BlockState::Hole | block::BlockState::Vacant => {}
            }
            id = block.next;
        }
        runs
    }

    /// The parts of a block that have memory of this arena's behind them.
    fn mapped_within(&self, block: &block::Block) -> Vec<(u64, u64)> {
        let end = block.address + block.size;
        let first = self.mapped.range(..=block.address).next_back().map_or(block.address, |(address, _)| *address);
        let mut parts = Vec::new();
        for (address, mapped) in self.mapped.range(first..end) {
            let (from, to) = ((*address).max(block.address), (address + mapped.bytes).min(end));
            if mapped.backing != Backing::Moved && from < to {
                parts.push((from, to - from));
            }
        }
        parts
    }

    /// Of a run: whether it is made of handles, and how many bytes of it sleep.
    fn kind_of(&self, address: u64, bytes: u64) -> (bool, u64) {
        let (mut expandable, mut asleep) = (true, 0);
        for mapped in self.mapped.range(address..address + bytes).map(|(_, mapped)| mapped) {
            match mapped.backing {
                Backing::Segment(_) | Backing::External => expandable = false,
                Backing::Suspended => asleep += mapped.bytes,
                Backing::Handle(_) | Backing::Moved => {}
            }
        }
        (expandable, asleep)
    }
}
