//! The history of the allocator: allocations, frees and segment events, with time and stack.
//!
//! Each arena writes its own log ([`log`](super::log)), under its own lock, through its recorder
//! ([`recorder`](super::recorder)). So threads with their own arenas do not contend, and events of one address are
//! recorded in order. A reader merges the logs of a device by time. Entries store what is cheap to obtain: clock ticks,
//! a stack id, a tag number. They are resolved when they are read.

use super::{
    log::{Log, RawEntry},
    pool::PoolId,
    tags::Texts,
};
pub use crate::base::stack::{Frame, Line, StackId, fold, frames};
use crate::{
    base::clock,
    error::{Error, Result},
    runtime::{
        names::{self, Subject},
        thread,
    },
    status::Status,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The kind of an entry; the names are those of torch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// A block was allocated.
    Alloc = 0,
    /// The program freed a block.
    FreeRequested = 1,
    /// The block can be reused.
    FreeCompleted = 2,
    /// The driver allocated a segment.
    SegmentAlloc = 3,
    /// A segment was returned to the driver.
    SegmentFree = 4,
    /// Memory was mapped at addresses of a reserved range.
    SegmentMap = 5,
    /// Such memory was unmapped.
    SegmentUnmap = 6,
    /// A snapshot was taken.
    Snapshot = 7,
    /// A request failed because of insufficient memory.
    Oom = 8,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 9] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::Snapshot,
        Action::Oom,
    ];

    /// Returns the name of the action.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Snapshot => "snapshot",
            Action::Oom => "oom",
        }
    }

    /// Returns the bit of the action in a set of actions.
    pub fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns the lowest level at which the action has a stack, as in torch: its calls that allocate capture one for
    /// all that they record.
    pub fn min_context(self) -> Context {
        match self {
            Action::Alloc | Action::SegmentAlloc | Action::SegmentMap | Action::Oom => Context::Alloc,
            _ => Context::All,
        }
    }
}

/// An event in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The kind of event.
    pub action: Action,
    /// The address; for [`Action::Oom`] the free bytes of the device.
    pub address: u64,
    /// The requested size of a block, or the size of a segment, in bytes.
    pub size: u64,
    /// The handle of the stream.
    pub stream: usize,
    /// The pool.
    pub pool: PoolId,
    /// The time in microseconds since 1970.
    pub time_us: u64,
    /// The stack of the call.
    pub stack: StackId,
    /// The tag of the thread.
    pub metadata: Option<Arc<str>>,
    /// The system's thread id.
    pub thread: u64,
    /// The name of the block, if it has one: when it is freed, or the current one if it is live. Trackers receive it
    /// with [`Action::FreeRequested`] only.
    pub name: Option<Arc<str>>,
}

/// An annotation by the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The current device of the thread.
    pub device: u32,
    /// The time in microseconds since 1970.
    pub time_us: u64,
    /// The text.
    pub name: String,
    /// Whether the annotated range begins (`true`) or ends.
    pub begin: bool,
}

/// What is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enabled {
    /// Nothing.
    #[default]
    Off,
    /// The allocation stacks of live blocks.
    State,
    /// The allocation stacks of live blocks, and an entry for every event.
    All,
}

/// The events for which a stack is captured. Each level includes the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Context {
    /// No events.
    #[default]
    None,
    /// Allocations of live blocks.
    State,
    /// Events of calls that allocate.
    Alloc,
    /// All events.
    All,
}

/// The options of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// What is recorded.
    pub enabled: Enabled,
    /// The events for which a stack is captured.
    pub context: Context,
    /// The number of most recent entries to keep for each device, at least 1.
    pub max_entries: usize,
    /// Whether earlier entries are cleared.
    pub clear_history: bool,
    /// Whether annotations are recorded.
    pub annotations: bool,
    /// The bits of the actions that are not recorded.
    pub skip_actions: u32,
}

/// What an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The ordinal of the device.
    pub device: u32,
    /// The handle of the stream.
    pub stream: usize,
    /// The pool.
    pub pool: PoolId,
}

/// An entry outside of an arena's log.
#[derive(Debug, Clone)]
struct UnownedEntry {
    source: Source,
    raw: RawEntry,
    texts: Texts,
}

/// An entry that a reader found.
struct FoundEntry<'a> {
    source: Source,
    /// The time, which does not decrease within a log.
    ticks: u64,
    raw: &'a RawEntry,
    texts: Option<&'a Texts>,
}

/// A stored annotation.
#[derive(Debug, Clone)]
struct RawAnnotation {
    device: u32,
    ticks: u64,
    name: String,
    begin: bool,
}

#[derive(Debug, Default)]
struct StoredHistory {
    options: Options,
    /// The logs of retired arenas.
    logs: Vec<(Source, Log)>,
    /// By the ordinals of the devices.
    unowned: BTreeMap<u32, VecDeque<UnownedEntry>>,
    annotations: VecDeque<RawAnnotation>,
}

static HISTORY: Mutex<Option<StoredHistory>> = Mutex::new(None);
static ON: AtomicBool = AtomicBool::new(false);

fn with<T>(body: impl FnOnce(&mut StoredHistory) -> T) -> T {
    body(HISTORY.lock().get_or_insert_default())
}

/// Returns whether a history is recorded.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns the current options.
pub(super) fn options() -> Options {
    with(|stored| stored.options)
}

/// Checks options.
pub(super) fn check(options: &Options) -> Result<()> {
    if options.max_entries == 0 {
        return Err(Error::new(Status::INVALID_VALUE, "max_entries is 0; it must be at least 1"));
    }
    let known = Action::ALL.into_iter().fold(0, |set, action| set | action.bit());
    let unknown = options.skip_actions & !known;
    if unknown != 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("skip_actions has unknown bits {unknown:#x}")));
    }
    Ok(())
}

/// Sets the options. `clear` drops what is stored here; the caller clears the logs of the arenas.
pub(super) fn configure(options: Options, clear: bool) {
    let off = options.enabled == Enabled::Off;
    if !off {
        clock::record_anchor();
    }
    let context = if off { Context::None } else { options.context };
    with(|stored| {
        if clear {
            *stored = StoredHistory::default();
        }
        stored.options = Options { context, ..options };
        stored.trim();
    });
    ON.store(!off, Ordering::Relaxed);
}

impl StoredHistory {
    /// Drops the oldest stored entries and annotations beyond the maximum.
    fn trim(&mut self) {
        let max_entries = self.options.max_entries;
        for unowned in self.unowned.values_mut() {
            unowned.drain(..unowned.len().saturating_sub(max_entries));
        }
        self.annotations.drain(..self.annotations.len().saturating_sub(max_entries));
    }
}

/// Stores the log of a retired arena.
pub(super) fn store_log(source: Source, mut log: Log) {
    log.close();
    with(|stored| {
        let max_entries = stored.options.max_entries;
        if stored.options.enabled != Enabled::All || log.is_empty() {
            return;
        }
        stored.logs.push((source, log));
        // Drop logs that no reader would see: those that ended before the oldest entry to be shown.
        let device = source.device;
        let of_device = |log: &&(Source, Log)| log.0.device == device;
        let count: usize = stored.logs.iter().filter(of_device).map(|(_, log)| log.len()).sum();
        if count / 2 > max_entries {
            let mut times: Vec<u64> = stored
                .logs
                .iter()
                .filter(of_device)
                .flat_map(|(_, log)| log.entries().map(|(raw, _)| raw.ticks))
                .collect();
            let rank = times.len() - max_entries;
            let (_, oldest, _) = times.select_nth_unstable(rank);
            let oldest = *oldest;
            stored.logs.retain(|(source, log)| source.device != device || log.last_ticks() >= oldest);
        }
    });
}

/// Stores an entry outside of an arena's log.
pub(super) fn store_entry(source: Source, raw: RawEntry, texts: Texts) {
    with(|stored| {
        stored.unowned.entry(source.device).or_default().push_back(UnownedEntry { source, raw, texts });
        stored.trim();
    });
}

/// The entries of a device at one moment. Shares chunks with the logs, so that creating it is fast.
pub struct HistorySnapshot {
    logs: Vec<(Source, Log)>,
    unowned: Vec<UnownedEntry>,
    max_entries: usize,
    /// The names of live memory, by address.
    names: HashMap<u64, Arc<str>>,
}

impl HistorySnapshot {
    /// Collects the logs of a device's arenas and the stored entries without an arena. If all arenas are locked, the
    /// result is a consistent state of the device.
    pub(super) fn new(device: u32, logs: impl Iterator<Item = (Source, Log)>) -> HistorySnapshot {
        // Read the arenas' logs before the stored ones: a log of an arena that is retired meanwhile is then among the
        // stored ones.
        let mut logs: Vec<_> = logs.collect();
        let of_memory = |(subject, name)| match subject {
            Subject::Memory(address) => Some((address, name)),
            Subject::Stream(..) => None,
        };
        let names = names::all().into_iter().filter_map(of_memory).collect();
        with(|stored| {
            logs.extend(stored.logs.iter().filter(|(source, _)| source.device == device).cloned());
            let unowned = stored.unowned.get(&device).into_iter().flatten().cloned().collect();
            HistorySnapshot { logs, unowned, max_entries: stored.options.max_entries, names }
        })
    }

    /// Returns the entries, oldest first.
    pub fn entries(self) -> Vec<Entry> {
        let mut found: Vec<FoundEntry> = Vec::new();
        for (source, log) in &self.logs {
            collect(&mut found, *source, log);
        }
        found.extend(self.unowned.iter().map(|UnownedEntry { source, raw, texts }| FoundEntry {
            source: *source,
            ticks: raw.ticks,
            raw,
            texts: Some(texts),
        }));
        // The sort is stable, so entries with equal times keep their order.
        found.sort_by_cached_key(|entry| entry.ticks);
        let reader = clock::TickConverter::new();
        let newest = &found[found.len().saturating_sub(self.max_entries)..];
        let mut entries: Vec<Entry> = newest.iter().map(|entry| entry.resolve(&reader)).collect();
        name_blocks(&mut entries, self.names);
        entries
    }
}

/// Names the events of each block, oldest entries first. `names` has the names of live blocks by address; the name of
/// another block is that of its [`Action::FreeRequested`].
fn name_blocks(entries: &mut [Entry], mut names: HashMap<u64, Arc<str>>) {
    if names.is_empty() && entries.iter().all(|entry| entry.name.is_none()) {
        return;
    }
    // From the newest to the oldest: `names` has those of the blocks whose allocation is still to come, and `completed`
    // the entries of completed frees whose request is.
    let mut completed: HashMap<u64, usize> = HashMap::new();
    for index in (0..entries.len()).rev() {
        let Entry { action, address, .. } = entries[index];
        match action {
            Action::Alloc => entries[index].name = names.remove(&address),
            Action::FreeRequested => {
                let name = entries[index].name.clone();
                if let Some(later) = completed.remove(&address) {
                    entries[later].name.clone_from(&name);
                }
                names.extend(name.map(|name| (address, name)));
            }
            Action::FreeCompleted => drop(completed.insert(address, index)),
            _ => {}
        }
    }
}

fn collect<'a>(found: &mut Vec<FoundEntry<'a>>, source: Source, log: &'a Log) {
    let mut last = 0;
    // Clocks of processors may differ by some ticks; make times non-decreasing within a log.
    found.extend(log.entries().map(|(raw, texts)| {
        last = raw.ticks.max(last);
        FoundEntry { source, ticks: last, raw, texts }
    }));
}

impl FoundEntry<'_> {
    fn resolve(&self, reader: &clock::TickConverter) -> Entry {
        let RawEntry { address, size, stack, thread, action, .. } = *self.raw;
        let Texts { tag, name } = self.texts.cloned().unwrap_or_default();
        Entry {
            action,
            address,
            size,
            stream: self.source.stream,
            pool: self.source.pool,
            time_us: reader.microseconds(self.ticks),
            stack,
            metadata: tag,
            thread: thread.into(),
            name,
        }
    }
}

/// Returns the annotations, oldest first.
pub fn annotations() -> Vec<Annotation> {
    let annotations: Vec<RawAnnotation> = with(|stored| stored.annotations.iter().cloned().collect());
    let reader = clock::TickConverter::new();
    let resolve = |annotation: RawAnnotation| Annotation {
        device: annotation.device,
        time_us: reader.microseconds(annotation.ticks),
        name: annotation.name,
        begin: annotation.begin,
    };
    annotations.into_iter().map(resolve).collect()
}

/// Records the beginning or the end of an annotation, if annotations are recorded.
pub fn annotate(name: &str, begin: bool) {
    if !is_on() {
        return;
    }
    with(|stored| {
        if stored.options.annotations {
            // Read the clock under the lock, so that annotations are in order.
            let (device, ticks) = (thread::device(), clock::ticks());
            stored.annotations.push_back(RawAnnotation { device, ticks, name: name.to_owned(), begin });
            stored.trim();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(action: Action, address: u64, name: Option<&str>) -> Entry {
        let (stack, pool, name) = (StackId::NONE, PoolId::DEFAULT, name.map(Arc::from));
        Entry { action, address, size: 1, stream: 0, pool, time_us: 0, stack, metadata: None, thread: 1, name }
    }

    #[test]
    fn all_events_of_a_block_have_its_name() {
        use Action::{Alloc, FreeCompleted, FreeRequested, SegmentMap};
        let mut entries = [
            entry(FreeCompleted, 1, None),
            entry(SegmentMap, 1, None),
            entry(Alloc, 1, None),
            entry(Alloc, 2, None),
            entry(FreeRequested, 1, Some("first")),
            entry(FreeRequested, 2, None),
            entry(FreeCompleted, 2, None),
            entry(FreeCompleted, 1, None),
            entry(Alloc, 1, None),
            entry(FreeRequested, 1, None),
            entry(FreeCompleted, 1, None),
            entry(Alloc, 1, None),
            entry(Alloc, 3, None),
        ];
        let live = HashMap::from([(1, Arc::from("live")), (9, Arc::from("older"))]);
        name_blocks(&mut entries, live);
        let names = entries.map(|entry| entry.name.map_or(String::new(), |name| name.to_string()));
        let expected = ["", "", "first", "", "first", "", "", "first", "", "", "", "live", ""];
        assert_eq!(names, expected);
    }
}
