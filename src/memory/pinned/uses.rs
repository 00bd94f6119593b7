//! What uses pinned memory: streams whose work reads or writes it, and graphs that will at each replay.
//!
//! A block that a stream uses waits after its free for an event that is recorded in the stream then. A use in a stream that
//! captures becomes a part of the graph: the graph, and everything that is made of it, holds a ticket, which the driver
//! gives back when the last of them is gone. Nothing is asked of the driver under the lock here, since it may give tickets
//! back from a thread that holds locks of its own.

use super::{class, map, with_shelf};
use crate::{
    driver::{Graph, ReleaseCallback, codes, types::*},
    error::{Context, Error, Result},
    memory::{
        arena::{Mark, Use},
        route, stream_events,
    },
    runtime::{Runtime, thread},
    sanitizer,
    status::Status,
    stream::Stream,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// What uses a block.
#[derive(Debug, Default)]
struct Uses {
    streams: Vec<Use>,
    /// The captures that used it, and the tickets that their graphs hold.
    graphs: Vec<(u64, u64)>,
    /// Whether it was freed.
    freed: bool,
    /// Whether it waits for streams.
    waits: bool,
}

/// A freed block, and the marks that streams have to pass.
#[derive(Debug)]
struct Waiting {
    address: u64,
    marks: Vec<(Use, Mark)>,
}

#[derive(Debug, Default)]
struct Book {
    /// By the address at which the block begins.
    uses: HashMap<u64, Uses>,
    /// The block that a ticket is for.
    tickets: HashMap<u64, u64>,
    /// In the order of the frees.
    waiting: Vec<Waiting>,
    /// How many may wait before a free looks whether any need to.
    patience: usize,
}

/// [`Book::patience`] at least.
const PATIENCE: usize = 16;

static BOOK: Mutex<Option<Book>> = Mutex::new(None);
/// One thread at a time looks whether marks are passed; the others wait for what it finds.
static REAPING: Mutex<()> = Mutex::new(());
/// One thread at a time waits for streams, and takes all that waits for that long: for another that is short of memory the
/// queue is not empty, but out.
static OUT: Mutex<()> = Mutex::new(());
static NEXT_TICKET: AtomicU64 = AtomicU64::new(1);

fn with<T>(body: impl FnOnce(&mut Book) -> T) -> T {
    body(BOOK.lock().get_or_insert_default())
}

#[cold]
fn not_live(address: u64) -> Error {
    Error::new(
        Status::INVALID_POINTER,
        format!("{address:#x} is in no block of pinned memory: it was never given out, or was freed already"),
    )
}

/// Runs `body` with what uses the live block that an address lies in, and that block's address.
fn with_uses<T>(address: u64, body: impl FnOnce(&mut Book, u64) -> T) -> Result<T> {
    let place = map::find(address).ok_or_else(|| not_live(address))?;
    with(|book| {
        let begin = with_shelf(place.class, |shelf, size| shelf.note_use(place.slab, address, size));
        let begin = begin.ok_or_else(|| not_live(address))?;
        book.uses.entry(begin).or_default();
        Ok(body(book, begin))
    })
}

/// Notes that work in a stream uses the block that an address lies in.
pub fn note(runtime: &Runtime, address: u64, stream: Stream) -> Result<()> {
    let handle = route::canonical(stream.raw.handle());
    // Nothing can be captured in the legacy default stream, and asking it would end the captures of others.
    if handle != 0 {
        let status = runtime.in_stream(stream, |driver, raw| Ok(driver.stream_capture_status(raw)?))?;
        if status == CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return note_capture(runtime, address, stream).context(|| "keeping pinned memory for a graph");
        }
    }
    let thread = if handle == CU_STREAM_PER_THREAD { thread::number() } else { 0 };
    let wanted = Use { stream: stream.raw, device: stream.device, thread };
    with_uses(address, |book, begin| {
        let streams = &mut book.uses.entry(begin).or_default().streams;
        if !streams.contains(&wanted) {
            streams.push(wanted);
        }
    })
}

/// What the graphs of a capture hold for a block.
struct HostTicket;

impl ReleaseCallback for HostTicket {
    fn released(number: u64) {
        release(number);
    }
}

fn note_capture(runtime: &Runtime, address: u64, stream: Stream) -> Result<()> {
    let found = runtime.in_stream(stream, |driver, raw| Ok(driver.stream_capture_info(raw)?));
    let (capture, graph) = match found {
        Ok(info) => (info.id, info.graph),
        // A driver that cannot tell which graph it is.
        Err(error) if error.driver_code() == codes::CUDA_ERROR_NOT_SUPPORTED => (0, None),
        Err(error) => return Err(error),
    };
    let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
    let new = with_uses(address, |book, begin| {
        let graphs = &mut book.uses.entry(begin).or_default().graphs;
        let new = !graphs.iter().any(|(known, _)| *known == capture);
        if new {
            graphs.push((capture, ticket));
            book.tickets.insert(ticket, begin);
        }
        new
    })?;
    if !new {
        return Ok(());
    }
    // Where the driver has no such objects, the ticket never comes back, and the block is the graph's for good.
    let kept = graph.map_or(Ok(()), |graph| keep(runtime, graph, ticket));
    kept.inspect_err(|_| release(ticket))
}

fn keep(runtime: &Runtime, graph: Graph, ticket: u64) -> Result<()> {
    match runtime.in_any_context(|driver| Ok(driver.graph_attach_release_callback::<HostTicket>(graph, ticket)?)) {
        // An old driver, or a graph that may hold nothing.
        Err(error)
            if matches!(error.driver_code(), codes::CUDA_ERROR_NOT_SUPPORTED | codes::CUDA_ERROR_INVALID_VALUE) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// A ticket is back. The calling thread may be the driver's.
fn release(ticket: u64) {
    let done = with(|book| {
        let begin = book.tickets.remove(&ticket)?;
        let uses = book.uses.get_mut(&begin)?;
        uses.graphs.retain(|(_, held)| *held != ticket);
        book.settle(begin)
    });
    if let Some(address) = done {
        if let Some(place) = map::find(address) {
            sanitizer::forget_memory(address, class::size(place.class));
        }
        give_back(address);
        super::after_graph(address);
    }
}

impl Book {
    /// The block at an address if it was freed and nothing uses it any more; it is forgotten then.
    fn settle(&mut self, begin: u64) -> Option<u64> {
        let uses = self.uses.get(&begin)?;
        let done = uses.freed && !uses.waits && uses.graphs.is_empty();
        done.then(|| self.uses.remove(&begin)).map(|_| begin)
    }
}

/// Puts a block that waited among the free ones.
fn give_back(address: u64) {
    let Some(place) = map::find(address) else { return };
    sanitizer::pinned_passed(address, class::size(place.class));
    with_shelf(place.class, |shelf, size| {
        if shelf.end_wait(place.slab, address, size) {
            super::stats::end(size);
        }
    });
}

/// Lets a freed block wait for what uses it.
pub fn hold_back(runtime: &Runtime, address: u64) {
    let (streams, free_for_all) = with(|book| {
        let Some(uses) = book.uses.get_mut(&address) else { return (Vec::new(), true) };
        (uses.freed, uses.waits) = (true, true);
        (std::mem::take(&mut uses.streams), uses.graphs.is_empty())
    });
    // What a graph uses it may use as long as it is there.
    if sanitizer::is_on()
        && free_for_all
        && let Some(place) = map::find(address)
    {
        sanitizer::pinned_freed(address, class::size(place.class), &streams);
    }
    let mut marks: Vec<(Use, Mark)> =
        streams.into_iter().map(|wanted| (wanted, stream_events::mark(runtime, wanted))).collect();
    // What was over long ago needs no place in the queue.
    if let [(_, mark)] = &mut marks[..]
        && stream_events::is_passed(runtime, mark, false)
    {
        marks.clear();
    }
    let (done, many) = with(|book| {
        if !marks.is_empty() {
            book.waiting.push(Waiting { address, marks });
            return (None, book.waiting.len() > book.patience.max(PATIENCE));
        }
        if let Some(uses) = book.uses.get_mut(&address) {
            uses.waits = false;
        }
        (book.settle(address), false)
    });
    if let Some(address) = done {
        give_back(address);
        super::after_wait(runtime, address);
    }
    // A shelf that has enough for long asks for nothing back, and each of those that wait has an event.
    if many {
        reap(runtime, false);
    }
}

/// Frees the blocks whose waits are over; with `wait`, waits for the streams of the others, and for whoever does so already.
/// Whether any is free now.
pub fn reap(runtime: &Runtime, wait: bool) -> bool {
    super::give_up_overdue(runtime);
    let _out = wait.then(|| OUT.lock());
    let turn = REAPING.lock();
    let mut queue = with(|book| std::mem::take(&mut book.waiting));
    // Who waits for streams keeps nobody from looking.
    let _turn = (!wait).then_some(turn);
    if queue.is_empty() {
        return false;
    }
    // A stream that has not passed one mark has not passed its later ones.
    let mut behind: Vec<Use> = Vec::new();
    for entry in &mut queue {
        entry.marks.retain_mut(|(stream, mark)| {
            if !wait && behind.contains(stream) {
                return true;
            }
            let passed = stream_events::is_passed(runtime, mark, wait);
            if !passed {
                behind.push(*stream);
            }
            !passed
        });
    }
    let mut any = false;
    let (over, mut left): (Vec<_>, Vec<_>) = queue.into_iter().partition(|entry| entry.marks.is_empty());
    let done: Vec<u64> = with(|book| {
        left.append(&mut book.waiting);
        book.patience = 2 * left.len();
        book.waiting = left;
        let over = over.into_iter().filter_map(|entry| {
            book.uses.get_mut(&entry.address)?.waits = false;
            book.settle(entry.address)
        });
        over.collect()
    });
    for address in done {
        give_back(address);
        super::after_wait(runtime, address);
        any = true;
    }
    any
}

/// Lets nobody else look whether marks are passed, as long as it is kept.
pub fn turn() -> MutexGuard<'static, ()> {
    REAPING.lock()
}

/// Whether any block waits for streams.
pub fn any_waiting() -> bool {
    BOOK.lock().as_ref().is_some_and(|book| !book.waiting.is_empty())
}
