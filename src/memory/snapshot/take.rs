//! Takes a snapshot: a copy of the blocks of all arenas at one moment.
//!
//! All arenas are locked while they are copied, so that a block that moves between streams appears exactly once, and
//! so that the history ends exactly at the copied state: a reader that plays the history backwards from the blocks
//! must never meet an unknown block. Stacks are symbolized afterwards without a lock, because that can take long.

use super::{
    super::{
        arena::Inner,
        block,
        history::{self, Action, HistorySnapshot, Source, StackId},
        mapped::Backing,
        pool::PoolId,
        pools, recorder,
        space::{Region, Space},
        trackers,
    },
    Block, BlockState, DeviceTotals, Segment, Snapshot, Stacks, stream_number,
};
use crate::{
    error::Result,
    runtime::{
        self,
        device::Device,
        names::{self, Subject},
    },
};
use std::{
    collections::HashSet,
    time::{SystemTime, UNIX_EPOCH},
};

/// Takes a snapshot of all memory, with or without the history.
pub fn take(include_traces: bool) -> Result<Snapshot> {
    take_of(None, include_traces)
}

/// Takes a snapshot of one pool.
pub fn take_pool(pool: PoolId, include_traces: bool) -> Result<Snapshot> {
    take_of(Some(pools::pool_with_memory(runtime::ready()?, pool)?), include_traces)
}

fn take_of(pool: Option<PoolId>, include_traces: bool) -> Result<Snapshot> {
    let runtime = runtime::ready()?;
    let mut snapshot = Snapshot::default();
    let mut frozen = Vec::new();
    {
        // Lock order: first the lists, so that no arena is added meanwhile, then each arena.
        let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory().all_arenas()).collect();
        let guards: Vec<_> = lists.iter().flat_map(|list| list.iter()).map(|arena| (arena, arena.lock())).collect();
        for (arena, inner) in &guards {
            if pool.is_none_or(|pool| inner.key.pool == pool) {
                add_segments(arena.device, inner, &mut snapshot.segments);
            }
        }
        for device in runtime.devices() {
            let ordinal = device.ordinal;
            if history::is_on() {
                let ours = snapshot.segments.iter().filter(|segment| segment.device == ordinal);
                let source = Source { device: ordinal, stream: 0, pool: PoolId::DEFAULT };
                recorder::record_without_arena(source, Action::Snapshot, 0, ours.map(Segment::active).sum());
            }
            if include_traces {
                let arenas = guards.iter().filter(|(arena, _)| arena.device == ordinal);
                frozen.push(HistorySnapshot::new(ordinal, arenas.filter_map(|(_, inner)| recorder::log_of(inner))));
            }
            snapshot.totals.push(device_totals(device));
        }
        for (subject, name) in names::all() {
            match subject {
                // A default stream has one number on all devices.
                Subject::Stream(0, _) => {}
                Subject::Stream(handle, _) => drop(snapshot.stream_names.insert(stream_number(handle), name)),
                Subject::Memory(address) => drop(snapshot.block_names.insert(address, name)),
            }
        }
    }
    let live = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let live: HashSet<u64> =
        live.filter(|block| block.state == BlockState::Active).map(|block| block.address).collect();
    snapshot.block_names.retain(|address, _| live.contains(address));
    // Not earlier: a tracker may allocate, and another thread's tracker may be waiting for an arena now.
    trackers::deliver();
    snapshot.traces = frozen.into_iter().map(HistorySnapshot::entries).collect();
    snapshot.traces.resize_with(runtime.devices().len(), Vec::new);
    if let Some(pool) = pool {
        snapshot.traces.iter_mut().for_each(|trace| trace.retain(|entry| entry.pool == pool));
    }
    if include_traces {
        snapshot.annotations = history::annotations();
    }
    snapshot.segments.sort_unstable_by_key(|segment| (segment.address, segment.device));
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks).map(|block| block.stack);
    let entries = snapshot.traces.iter().flatten().map(|entry| entry.stack);
    snapshot.stacks = Stacks::new(blocks.chain(entries), history::frames);
    // A clock before 1970 is not useful.
    snapshot.time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    Ok(snapshot)
}

fn device_totals(device: &Device) -> DeviceTotals {
    let total = device.memory().known_total();
    DeviceTotals {
        total,
        limit: total.and_then(|total| device.memory().limit(total)),
        reserved: device.memory().held(),
    }
}

/// Adds the segments of an arena.
fn add_segments(device: u32, inner: &Inner, to: &mut Vec<Segment>) {
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
    /// Returns the mapped runs of a region, each as a list of blocks. Blocks that are held internally count as free
    /// where they are mapped.
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
        let free =
            |address, size| Block { address, size, requested: 0, state: BlockState::Inactive, stack: StackId(0) };
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
                block::BlockState::Live => add(used(BlockState::Active)),
                block::BlockState::DeferredFree => add(used(BlockState::Pending)),
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

    /// Returns the parts of a block that this arena's memory is mapped to.
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

    /// Returns whether a run consists of mapped handles, and how many of its bytes are asleep.
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
