//! Reader of the JSON snapshots that `plinth_dump_snapshot` writes.

use super::super::{
    failure::{Failure, Result},
    output::Output,
};
use plinth::internal::memory::{
    PoolId,
    block::Zone,
    history::{self, Annotation, Entry, Frame, StackId},
    snapshot::{self, Block, DeviceTotals, Segment, Snapshot, Stacks},
};
use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    sync::Arc,
};

/// Bytes of a file that are read at a time.
const BUFFER: usize = 1 << 20;

#[derive(Deserialize)]
struct SnapshotFile {
    stacks: Vec<Vec<StackFrame>>,
    segments: Vec<SegmentRecord>,
    #[serde(default)]
    device_traces: Vec<Vec<EntryRecord>>,
    #[serde(default)]
    external_annotations: Vec<AnnotationRecord>,
    plinth: PlinthRecord,
}

#[derive(Deserialize)]
struct StackFrame {
    name: String,
    filename: String,
    line: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ZoneName {
    Small,
    Large,
}

#[derive(Deserialize)]
struct SegmentRecord {
    device: u32,
    address: u64,
    stream: usize,
    segment_type: ZoneName,
    segment_pool_id: (u64, u64),
    is_expandable: bool,
    #[serde(default)]
    asleep_size: u64,
    blocks: Vec<BlockRecord>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    Inactive,
    ActivePendingFree,
    ActiveAllocated,
}

#[derive(Deserialize)]
struct BlockRecord {
    address: u64,
    size: u64,
    requested_size: u64,
    state: StateName,
    frames: u32,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActionName {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    Snapshot,
    Oom,
}

#[derive(Deserialize)]
struct EntryRecord {
    action: ActionName,
    #[serde(alias = "device_free")]
    addr: u64,
    size: u64,
    stream: usize,
    time_us: u64,
    #[serde(default)]
    user_metadata: String,
    frames: u32,
    pool_id: (u64, u64),
    #[serde(default)]
    thread: u64,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AnnotationRecord {
    name: String,
    stage: String,
    device: u32,
    time_us: u64,
}

#[derive(Deserialize)]
struct PlinthRecord {
    version: String,
    time_us: u64,
    #[serde(default)]
    devices: Vec<FiguresRecord>,
    #[serde(default)]
    stream_names: Vec<StreamNameRecord>,
}

#[derive(Deserialize)]
struct StreamNameRecord {
    stream: u64,
    name: String,
}

#[derive(Deserialize)]
struct FiguresRecord {
    total_memory: Option<u64>,
    limit: Option<u64>,
    reserved: u64,
}

fn action(name: &ActionName) -> history::Action {
    use history::Action;
    match name {
        ActionName::Alloc => Action::Alloc,
        ActionName::FreeRequested => Action::FreeRequested,
        ActionName::FreeCompleted => Action::FreeCompleted,
        ActionName::SegmentAlloc => Action::SegmentAlloc,
        ActionName::SegmentFree => Action::SegmentFree,
        ActionName::SegmentMap => Action::SegmentMap,
        ActionName::SegmentUnmap => Action::SegmentUnmap,
        ActionName::Snapshot => Action::Snapshot,
        ActionName::Oom => Action::Oom,
    }
}

fn block(record: &BlockRecord) -> Block {
    let state = match record.state {
        StateName::Inactive => snapshot::BlockState::Inactive,
        StateName::ActivePendingFree => snapshot::BlockState::Pending,
        StateName::ActiveAllocated => snapshot::BlockState::Active,
    };
    let stack = StackId(record.frames);
    Block { address: record.address, size: record.size, requested: record.requested_size, state, stack }
}

fn segment(record: &SegmentRecord) -> Segment {
    let (owner, index) = record.segment_pool_id;
    Segment {
        device: record.device,
        address: record.address,
        stream: record.stream,
        pool: PoolId::new(owner, index),
        zone: match record.segment_type {
            ZoneName::Small => Zone::Small,
            ZoneName::Large => Zone::Large,
        },
        expandable: record.is_expandable,
        asleep: record.asleep_size,
        blocks: record.blocks.iter().map(block).collect(),
    }
}

/// Interned tags and names, since many entries have the same.
#[derive(Default)]
struct Tags(HashMap<String, Arc<str>>);

impl Tags {
    fn get(&mut self, text: String) -> Option<Arc<str>> {
        if text.is_empty() {
            return None;
        }
        let tag = self.0.entry(text).or_insert_with_key(|text| Arc::from(text.as_str()));
        Some(Arc::clone(tag))
    }
}

fn entry(record: EntryRecord, tags: &mut Tags) -> Entry {
    let (owner, index) = record.pool_id;
    Entry {
        action: action(&record.action),
        address: record.addr,
        size: record.size,
        stream: record.stream,
        pool: PoolId::new(owner, index),
        time_us: record.time_us,
        stack: StackId(record.frames),
        metadata: tags.get(record.user_metadata),
        thread: record.thread,
        name: tags.get(record.name),
    }
}

impl SnapshotFile {
    /// Returns whether every sum of sizes, and every end of a range, is a number.
    fn has_possible_sizes(&self) -> bool {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        // The size of a request that failed may be any, and is in no sum.
        let is_range = |entry: &&EntryRecord| !matches!(entry.action, ActionName::Oom | ActionName::Snapshot);
        let entries = self.device_traces.iter().flatten().filter(is_range);
        let ranges = blocks
            .flat_map(|block| [(block.address, block.size), (block.address, block.requested_size)])
            .chain(entries.map(|entry| (entry.addr, entry.size)))
            .chain(self.segments.iter().map(|segment| (segment.address, segment.asleep_size)))
            .chain(self.plinth.devices.iter().map(|device| (0, device.reserved)));
        let mut sum = 0_u64;
        ranges.into_iter().all(|(start, size)| {
            let next = sum.checked_add(size).filter(|_| start.checked_add(size).is_some());
            next.map(|next| sum = next).is_some()
        })
    }
}

/// Converts the contents of a file, which refers to stacks by number, to a snapshot.
fn restore(contents: SnapshotFile) -> Snapshot {
    let frames: Vec<Arc<[Frame]>> = contents
        .stacks
        .into_iter()
        .map(|stack| {
            let each =
                stack.into_iter().map(|frame| Frame { name: frame.name, file: frame.filename, line: frame.line });
            each.collect()
        })
        .collect();
    let numbers = (1..frames.len() as u32).map(StackId);
    let stacks = Stacks::new(numbers, |stack| frames.get(stack.0 as usize).cloned().unwrap_or_default());
    let blocks = contents.segments.iter().flat_map(|segment| &segment.blocks);
    let block_names = blocks.filter_map(|block| Some((block.address, Arc::from(block.name.as_deref()?)))).collect();
    let mut tags = Tags::default();
    let trace = |entries: Vec<EntryRecord>, tags: &mut Tags| entries.into_iter().map(|one| entry(one, tags)).collect();
    let mut traces: Vec<Vec<Entry>> =
        contents.device_traces.into_iter().map(|entries| trace(entries, &mut tags)).collect();
    // The page expects a history for each device, even an empty one.
    traces.resize_with(traces.len().max(contents.plinth.devices.len()), Vec::new);
    Snapshot {
        segments: contents.segments.iter().map(segment).collect(),
        traces,
        annotations: contents
            .external_annotations
            .into_iter()
            .map(|one| Annotation {
                device: one.device,
                time_us: one.time_us,
                name: one.name,
                begin: one.stage == "START",
            })
            .collect(),
        stacks,
        totals: contents
            .plinth
            .devices
            .iter()
            .map(|one| DeviceTotals { total: one.total_memory, limit: one.limit, reserved: one.reserved })
            .collect(),
        time_us: contents.plinth.time_us,
        stream_names: contents.plinth.stream_names.into_iter().map(|one| (one.stream, one.name.into())).collect(),
        block_names,
    }
}

/// Reads a snapshot, and the version of plinth that wrote it.
pub fn read(path: &Path, output: &Output) -> Result<(Snapshot, String)> {
    let unread = |error: std::io::Error| Failure::file(path, error);
    let file = File::open(path).map_err(unread)?;
    let bar = output.progress("reading", file.metadata().map_err(unread)?.len());
    let mut reader = BufReader::with_capacity(BUFFER, bar.wrap_read(file));
    match reader.fill_buf().map_err(unread)?.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {}
        Some(0x80) => {
            let advice = "it is a pickle, for PyTorch's viewers; for this tool write a snapshot named *.json";
            return Err(Failure::file(path, advice));
        }
        Some(b'<') => return Err(Failure::file(path, "it is an HTML page; open it in a browser")),
        _ => return Err(Failure::file(path, "it is not JSON")),
    }
    let contents: SnapshotFile = serde_json::from_reader(reader)
        .map_err(|error| Failure::file(path, format!("it is not a snapshot written by plinth: {error}")))?;
    if !contents.has_possible_sizes() {
        return Err(Failure::file(path, "its sizes are impossible; the file is damaged"));
    }
    let version = contents.plinth.version.clone();
    Ok((restore(contents), version))
}
