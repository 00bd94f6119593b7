//! The summary of a snapshot: sums by device, pool and stack, and the peaks and failures in its history.

use plinth::internal::memory::{
    PoolId,
    history::{Action, Entry, Frame},
    snapshot::{BlockState, Segment, Snapshot},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Sums over segments and blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// The number of segments.
    pub segments: u64,
    /// The number of blocks, including free ones.
    pub blocks: u64,
    /// The bytes of the segments.
    pub bytes: u64,
    /// The bytes that the program has allocated.
    pub active: u64,
    /// The bytes that were freed while a stream may still use them.
    pub pending: u64,
    /// The size of the largest free block.
    pub largest_free: u64,
}

impl Sums {
    fn add(&mut self, segment: &Segment) {
        self.segments += 1;
        self.blocks += segment.blocks.len() as u64;
        self.bytes += segment.bytes();
        self.active += segment.allocated();
        self.pending += segment.active() - segment.allocated();
        let free = segment.blocks.iter().filter(|block| block.state == BlockState::Inactive).map(|block| block.size);
        self.largest_free = self.largest_free.max(free.max().unwrap_or(0));
    }

    /// Returns the free bytes.
    pub fn free(&self) -> u64 {
        self.bytes - self.active - self.pending
    }
}

/// The memory that one stack allocated.
#[derive(Debug, Clone)]
pub struct ByStack {
    /// The bytes that are allocated.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The functions, innermost first.
    pub frames: Arc<[Frame]>,
}

/// A moment in the history.
#[derive(Debug, Clone)]
pub struct Moment {
    /// The number of the device.
    pub device: u32,
    /// The time in microseconds since 1970.
    pub time_us: u64,
    /// The requested bytes of all blocks that were allocated.
    pub live: u64,
    /// The stack of the caller.
    pub frames: Arc<[Frame]>,
    /// If memory ran out, the requested bytes and the free bytes of the device.
    pub request: Option<(u64, u64)>,
}

/// The summary of a snapshot.
#[derive(Debug, Default)]
pub struct Summary {
    /// Sums by device.
    pub devices: BTreeMap<u32, Sums>,
    /// Sums by device, pool and stream.
    pub pools: BTreeMap<(u32, PoolId, usize), Sums>,
    /// Stacks, largest first.
    pub stacks: Vec<ByStack>,
    /// The moment of each device's peak, within the recorded history.
    pub peaks: Vec<Moment>,
    /// The moments when memory ran out, in order of time.
    pub out_of_memory: Vec<Moment>,
    /// The number of entries in the history.
    pub entries: u64,
}

impl Summary {
    /// Summarizes a snapshot.
    pub fn of(snapshot: &Snapshot) -> Summary {
        let mut summary = Summary::default();
        for device in 0..snapshot.totals.len() as u32 {
            summary.devices.insert(device, Sums::default());
        }
        for segment in &snapshot.segments {
            summary.devices.entry(segment.device).or_default().add(segment);
            summary.pools.entry((segment.device, segment.pool, segment.stream)).or_default().add(segment);
        }
        summary.stacks = by_stack(snapshot);
        for (device, trace) in snapshot.traces.iter().enumerate() {
            summary.entries += trace.len() as u64;
            summary.play_back(snapshot, device as u32, trace);
        }
        summary.out_of_memory.sort_by_key(|moment| moment.time_us);
        summary
    }

    /// Plays a history backwards from the state at its end.
    fn play_back(&mut self, snapshot: &Snapshot, device: u32, trace: &[Entry]) {
        let ours = snapshot.segments.iter().filter(|segment| segment.device == device);
        let mut live: u64 = ours.map(Segment::requested).sum();
        let mut peak: Option<Moment> = None;
        for entry in trace.iter().rev() {
            let moment =
                |request| Moment { device, time_us: entry.time_us, live, frames: frames(snapshot, entry), request };
            if entry.action == Action::Alloc && peak.as_ref().is_none_or(|peak| live > peak.live) {
                peak = Some(moment(None));
            }
            if entry.action == Action::Oom {
                self.out_of_memory.push(moment(Some((entry.size, entry.address))));
            }
            // Saturating, because a history with gaps or a late start does not balance.
            match entry.action {
                Action::Alloc => live = live.saturating_sub(entry.size),
                Action::FreeCompleted => live = live.saturating_add(entry.size),
                _ => {}
            }
        }
        self.peaks.extend(peak);
    }
}

fn frames(snapshot: &Snapshot, entry: &Entry) -> Arc<[Frame]> {
    let number = snapshot.stacks.number(entry.stack) as usize;
    snapshot.stacks.all().get(number).cloned().unwrap_or_default()
}

fn by_stack(snapshot: &Snapshot) -> Vec<ByStack> {
    let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
    for block in snapshot.segments.iter().flat_map(|segment| &segment.blocks) {
        if block.state == BlockState::Active {
            let (bytes, blocks) = sums.entry(snapshot.stacks.number(block.stack)).or_default();
            *bytes += block.size;
            *blocks += 1;
        }
    }
    let all = snapshot.stacks.all();
    let each = sums.into_iter().map(|(number, (bytes, blocks))| {
        (number, ByStack { bytes, blocks, frames: all.get(number as usize).cloned().unwrap_or_default() })
    });
    let mut stacks: Vec<(u32, ByStack)> = each.collect();
    stacks.sort_by_key(|(number, stack)| (std::cmp::Reverse(stack.bytes), *number));
    stacks.into_iter().map(|(_, stack)| stack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth::internal::memory::{
        block::Zone,
        history::StackId,
        snapshot::{Block, DeviceTotals, Stacks},
    };

    fn block(address: u64, size: u64, state: BlockState, stack: u32) -> Block {
        let requested = if state == BlockState::Inactive { 0 } else { size };
        Block { address, size, requested, state, stack: StackId(stack) }
    }

    fn entry(action: Action, size: u64, time_us: u64) -> Entry {
        let (stack, pool) = (StackId(1), PoolId::DEFAULT);
        Entry { action, address: 7, size, stream: 0, pool, time_us, stack, metadata: None, thread: 1, name: None }
    }

    fn snapshot() -> Snapshot {
        let frame = Frame { name: "train".into(), file: "train.c".into(), line: 7 };
        let blocks = vec![
            block(0, 100, BlockState::Active, 1),
            block(100, 50, BlockState::Inactive, 0),
            block(150, 30, BlockState::Pending, 1),
            block(180, 20, BlockState::Active, 0),
        ];
        let segment = Segment {
            device: 0,
            address: 0,
            stream: 0,
            pool: PoolId::DEFAULT,
            zone: Zone::Small,
            expandable: true,
            asleep: 0,
            blocks,
        };
        let trace = vec![
            entry(Action::Alloc, 100, 1),
            entry(Action::Alloc, 1000, 2),
            entry(Action::Oom, 5000, 3),
            entry(Action::FreeRequested, 1000, 4),
            entry(Action::FreeCompleted, 1000, 5),
            entry(Action::Alloc, 50, 6),
        ];
        Snapshot {
            segments: vec![segment],
            traces: vec![trace],
            stacks: Stacks::new([StackId(1)], |_| Arc::from([frame.clone()])),
            totals: vec![DeviceTotals::default()],
            ..Snapshot::default()
        }
    }

    #[test]
    fn sums_are_those_of_the_blocks() {
        let summary = Summary::of(&snapshot());
        let expected = Sums { segments: 1, blocks: 4, bytes: 200, active: 120, pending: 30, largest_free: 50 };
        assert_eq!(summary.devices[&0], expected);
        assert_eq!(summary.devices[&0].free(), 50);
        assert_eq!(summary.pools.len(), 1);
        assert_eq!(summary.stacks.iter().map(|stack| stack.bytes).collect::<Vec<_>>(), [100, 20]);
        assert_eq!(summary.stacks[0].frames[0].name, "train");
        assert!(summary.stacks[1].frames.is_empty());
    }

    #[test]
    fn the_history_is_played_backwards() {
        let summary = Summary::of(&snapshot());
        // 150 at the end, 100 before the last allocation, 1100 while the freed block was still allocated.
        let out = &summary.out_of_memory[0];
        assert_eq!((out.time_us, out.live, out.request), (3, 1100, Some((5000, 7))));
        assert_eq!((summary.peaks[0].time_us, summary.peaks[0].live), (2, 1100));
        assert_eq!(summary.entries, 6);
    }
}
