//! The history of the allocator: what was given out and taken back, when, and by whose call.
//!
//! Each arena writes a log of its own ([`log`](super::log)), under its own lock, through the listener of its space
//! (`listener`): so threads with arenas of their own do not meet, and what happens to one address is
//! written in the order in which it happens. Whoever reads puts the logs of a device together by time. What is kept is what
//! is cheap: ticks of a clock, the number of a stack, the number of a tag. It is turned into words when it is read.

use super::{
    arena::Inner,
    listener::{self, Listener},
    log::{Log, Raw},
    pool::PoolId,
    tags,
};
pub use crate::base::stack::{Frame, StackId, frames};
use crate::{
    base::clock,
    error::{Error, Result},
    runtime::{self, thread},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What an entry tells of; the names are torch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// A block was given out.
    Alloc = 0,
    /// The program freed a block.
    FreeRequested = 1,
    /// The block can be given out again.
    FreeCompleted = 2,
    /// The driver gave a segment.
    SegmentAlloc = 3,
    /// A segment went back to the driver.
    SegmentFree = 4,
    /// Memory was mapped at addresses of a reserved range.
    SegmentMap = 5,
    /// It is there no more.
    SegmentUnmap = 6,
    /// A snapshot was taken.
    Snapshot = 7,
    /// A request failed for want of memory.
    Oom = 8,
}

impl Action {
    /// All of them.
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

    /// Its name.
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

    /// Its bit in a set of actions.
    pub fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub action: Action,
    /// Where; for [`Action::Oom`] the free bytes of the device.
    pub address: u64,
    /// Its bytes: those that were asked for, of blocks; those that there are, of segments.
    pub size: u64,
    /// The handle of the stream.
    pub stream: usize,
    /// The pool.
    pub pool: PoolId,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// Who called.
    pub stack: StackId,
    /// The thread's tag.
    pub metadata: Option<Arc<str>>,
    /// The system's number of the thread.
    pub thread: u64,
}

/// A remark of the program's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The thread's current device.
    pub device: u32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// The remark.
    pub name: String,
    /// Whether something begins; otherwise it ends.
    pub begin: bool,
}

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enabled {
    /// Nothing.
    #[default]
    Off,
    /// For blocks that are live, who asked for them.
    State,
    /// That, and entries of all that happens.
    All,
}

/// For what the caller is found out. Each has what the one before it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Context {
    /// For nothing.
    #[default]
    None,
    /// For blocks that are live.
    State,
    /// For what brings memory into use.
    Alloc,
    /// For everything.
    All,
}

/// How a history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// What is kept.
    pub enabled: Enabled,
    /// For what the caller is found out.
    pub context: Context,
    /// How many entries of a device are kept, at least 1: the newest.
    pub max_entries: usize,
    /// Whether what was kept before is forgotten.
    pub clear_history: bool,
    /// Whether annotations are kept.
    pub annotations: bool,
    /// The actions that are not kept, by their bits.
    pub skip_actions: u32,
}

/// An entry with whose memory it is about, where that is no arena's log.
#[derive(Debug, Clone, Copy)]
struct Loose {
    device: u32,
    stream: usize,
    pool: PoolId,
    raw: Raw,
}

/// An annotation as it is kept.
#[derive(Debug, Clone)]
struct Remark {
    device: u32,
    ticks: u64,
    name: String,
    begin: bool,
}

#[derive(Debug, Default)]
struct Kept {
    options: Options,
    /// The logs of arenas that are no more, with their devices and keys.
    logs: Vec<(Listener, Log)>,
    loose: VecDeque<Loose>,
    remarks: VecDeque<Remark>,
}

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
static ON: AtomicBool = AtomicBool::new(false);

fn with<T>(body: impl FnOnce(&mut Kept) -> T) -> T {
    body(KEPT.lock().get_or_insert_default())
}

/// Whether a history is kept.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The options that hold.
pub(super) fn options() -> Options {
    with(|kept| kept.options)
}

/// Begins to keep a history, goes on in another way, or ends it; to end it forgets it, as torch does.
pub fn record(options: Options) -> Result<()> {
    static CHANGING: Mutex<()> = Mutex::new(());
    if options.max_entries == 0 {
        return Err(Error::new(Status::INVALID_VALUE, "a history keeps one entry at least"));
    }
    let known = Action::ALL.into_iter().fold(0, |set, action| set | action.bit());
    if options.skip_actions & !known != 0 {
        let unknown = options.skip_actions & !known;
        return Err(Error::new(Status::INVALID_VALUE, format!("the bits {unknown:#x} are no actions")));
    }
    let runtime = runtime::ready()?;
    let _changing = CHANGING.lock();
    let off = options.enabled == Enabled::Off;
    if !off {
        clock::record_anchor();
    }
    let forget = off || options.clear_history;
    // The lists first, so that no arena appears meanwhile.
    let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory.all_arenas()).collect();
    with(|kept| {
        kept.options = options;
        if forget {
            *kept = Kept { options, ..Kept::default() };
        }
        kept.trim();
    });
    ON.store(!off, Ordering::Relaxed);
    for arena in lists.iter().flat_map(|list| list.iter()) {
        let mut inner = arena.lock();
        if forget && let Some(listener) = &mut inner.space.listener {
            listener.forget();
        }
        if off {
            inner.space.forget_stacks();
        }
        listener::tune(arena.device, &mut inner);
    }
    Ok(())
}

impl Kept {
    /// Keeps no more than was asked for of what belongs to no log.
    fn trim(&mut self) {
        let most = self.options.max_entries;
        self.loose.drain(..self.loose.len().saturating_sub(most));
        self.remarks.drain(..self.remarks.len().saturating_sub(most));
    }
}

/// Keeps the log of an arena that is no more.
pub(super) fn keep(mut listener: Box<Listener>) {
    let Some(mut log) = listener.log.take() else { return };
    log.close();
    with(|kept| {
        let most = kept.options.max_entries;
        if kept.options.enabled != Enabled::All || log.is_empty() {
            return;
        }
        kept.logs.push((*listener, log));
        // Logs that nobody would be shown any more are dropped: those that ended before the newest entries began.
        let device = kept.logs[kept.logs.len() - 1].0.device;
        let of_device = |log: &&(Listener, Log)| log.0.device == device;
        let count: usize = kept.logs.iter().filter(of_device).map(|(_, log)| log.len()).sum();
        if count / 2 > most {
            let mut times: Vec<u64> =
                kept.logs.iter().filter(of_device).flat_map(|(_, log)| log.entries().map(|raw| raw.ticks)).collect();
            let rank = times.len() - most;
            let (_, oldest, _) = times.select_nth_unstable(rank);
            let oldest = *oldest;
            kept.logs.retain(|(listener, log)| listener.device != device || log.last_ticks() >= oldest);
        }
    });
}

/// The entries of a device at one moment. What there is of them is shared with the logs, so it is had in no time.
pub struct Frozen {
    logs: Vec<(Listener, Log)>,
    loose: Vec<Loose>,
    most: usize,
}

impl Frozen {
    /// What arenas of a device have written, and what belongs to no arena any more. Where all arenas are locked this is one
    /// moment of the device.
    pub(super) fn new<'a>(device: u32, arenas: impl Iterator<Item = &'a Inner>) -> Frozen {
        // The arenas' logs before the others: one that ends meanwhile is found among those.
        let mut logs: Vec<_> = arenas.filter_map(|inner| inner.space.listener.as_ref()?.share()).collect();
        with(|kept| {
            logs.extend(kept.logs.iter().filter(|(listener, _)| listener.device == device).cloned());
            let loose = kept.loose.iter().filter(|loose| loose.device == device).copied().collect();
            Frozen { logs, loose, most: kept.options.max_entries }
        })
    }

    /// The entries, the oldest first.
    pub fn entries(self) -> Vec<Entry> {
        let mut found: Vec<Loose> = Vec::new();
        for (listener, log) in &self.logs {
            collect(&mut found, listener, log);
        }
        found.extend(self.loose);
        // Stable: what has one time keeps its order.
        found.sort_by_key(|loose| loose.raw.ticks);
        let reader = clock::TickConverter::new();
        let names = tags::names();
        found[found.len().saturating_sub(self.most)..].iter().map(|loose| loose.tell(&reader, &names)).collect()
    }
}

/// The entries of a device, the oldest first.
pub fn entries(device: u32) -> Vec<Entry> {
    let frozen = {
        let memory = runtime::usable().and_then(|runtime| runtime.devices().get(device as usize));
        let lists = memory.map(|device| device.memory.all_arenas());
        let arenas: Vec<_> = lists.iter().flat_map(|list| list.iter()).collect();
        let guards: Vec<_> = arenas.iter().map(|arena| arena.lock()).collect();
        Frozen::new(device, guards.iter().map(|guard| &**guard))
    };
    frozen.entries()
}

fn collect(found: &mut Vec<Loose>, listener: &Listener, log: &Log) {
    let Listener { device, stream, pool, .. } = *listener;
    let mut last = 0;
    // Processors may differ by some ticks: what happened later is not told as earlier.
    found.extend(log.entries().map(|raw| {
        last = raw.ticks.max(last);
        Loose { device, stream, pool, raw: Raw { ticks: last, ..*raw } }
    }));
}

impl Loose {
    fn tell(&self, reader: &clock::TickConverter, names: &[Arc<str>]) -> Entry {
        let Raw { ticks, address, size, stack, thread, tag, action } = self.raw;
        Entry {
            action,
            address,
            size,
            stream: self.stream,
            pool: self.pool,
            time_us: reader.microseconds(ticks),
            stack,
            metadata: (tag as usize).checked_sub(1).and_then(|index| names.get(index)).cloned(),
            thread: thread.into(),
        }
    }
}

/// The annotations, the oldest first.
pub fn annotations() -> Vec<Annotation> {
    let remarks: Vec<Remark> = with(|kept| kept.remarks.iter().cloned().collect());
    let reader = clock::TickConverter::new();
    let tell = |remark: Remark| Annotation {
        device: remark.device,
        time_us: reader.microseconds(remark.ticks),
        name: remark.name,
        begin: remark.begin,
    };
    remarks.into_iter().map(tell).collect()
}

/// Notes that something of the program's begins or ends, if annotations are kept.
pub fn annotate(name: &str, begin: bool) {
    if !is_on() {
        return;
    }
    with(|kept| {
        if kept.options.annotations {
            // Under the lock, so that they are in order.
            let (device, ticks) = (thread::device(), clock::ticks());
            kept.remarks.push_back(Remark { device, ticks, name: name.to_owned(), begin });
            kept.trim();
        }
    });
}

/// Makes an entry that belongs to no stream. Trackers hear of it when somebody [delivers](super::trackers::deliver): locks of
/// the allocator's may be held here, and not there.
pub fn note_later(device: u32, action: Action, address: u64, size: u64) {
    queue(device, action, address, size, 0, PoolId::DEFAULT);
}

/// Makes an entry that no arena makes. To be called without any lock, since trackers are called.
pub(super) fn note_of(device: u32, action: Action, address: u64, size: u64, stream: usize, pool: PoolId) {
    queue(device, action, address, size, stream, pool);
    super::trackers::deliver();
}

fn queue(device: u32, action: Action, address: u64, size: u64, stream: usize, pool: PoolId) {
    let told = super::trackers::are_there();
    if !is_on() && !told {
        return;
    }
    let options = options();
    let raw = Raw::now(action, address, size, options.context >= Context::Alloc);
    if options.enabled == Enabled::All && options.skip_actions & action.bit() == 0 {
        with(|kept| {
            kept.loose.push_back(Loose { device, stream, pool, raw });
            kept.trim();
        });
    }
    if told {
        super::trackers::tell_later(device, stream, pool, &raw);
    }
}
