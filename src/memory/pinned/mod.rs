//! Pinned host memory, cached: what was freed is given out again without a call of the driver.
//!
//! Sizes come in [`class`]es. Each class has a `shelf` of slabs, under a lock of its own that is held for a few
//! nanoseconds; a free finds the slab by the address in the `map`, and asks nobody. What streams and graphs still
//! use waits (`uses`), and is looked at only when a shelf has nothing left. New memory comes from the `source`, and
//! goes back there when the cache is emptied or memory is short. docs/host_memory.md tells what a program has to know.

pub mod background;
pub mod class;
mod map;
mod slab_cache;
mod source;
pub mod stats;
mod uses;

use super::{
    config::{self, Config},
    lock::Lock,
};
use crate::{
    base::units::Bytes,
    driver::Span,
    error::{Context, Error, Result},
    runtime::{self, Runtime},
    status::Status,
    stream::Stream,
};
use map::Place;
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use slab_cache::{Given, Shelf, Slab};
use stats::HostStats;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static SHELVES: OnceCell<Box<[Lock<Shelf>]>> = OnceCell::new();
/// One thread at a time brings slabs of several blocks: the others find theirs in it.
static GROWING: Mutex<()> = Mutex::new(());
static TRIMMING: Mutex<()> = Mutex::new(());

/// Blocks above so many bytes go back to the driver when they are free. Every slab's coming sets it anew, and every change
/// of the settings.
static LARGEST_KEPT: AtomicU64 = AtomicU64::new(u64::MAX);
/// Such a block came back on a thread that must not call the driver: a graph had it.
static OVERDUE: AtomicBool = AtomicBool::new(false);
/// Larger blocks have their slab to themselves.
const LARGEST_SHARED: u64 = 1 << 20;

#[inline]
fn shelves() -> &'static [Lock<Shelf>] {
    match SHELVES.get() {
        Some(shelves) => shelves,
        None => make_shelves(),
    }
}

#[cold]
fn make_shelves() -> &'static [Lock<Shelf>] {
    SHELVES.get_or_init(|| (0..class::CLASSES).map(|_| Lock::new(Shelf::default())).collect())
}

/// Runs `body` with the shelf of a class, locked, and the size of its blocks.
#[inline]
fn with_shelf<T>(class: usize, body: impl FnOnce(&mut Shelf, u64) -> T) -> T {
    body(&mut shelves()[class].lock(), class::size(class))
}

/// Allocates pinned memory that every device may use, and returns its address; 0 for a size of 0.
#[inline]
pub fn host_alloc(bytes: u64) -> Result<u64> {
    let runtime = runtime::ready()?;
    if bytes == 0 {
        return Ok(0);
    }
    let Some(class) = class::of(bytes) else { return Err(too_large(bytes)) };
    match take(class) {
        Some(address) => Ok(address),
        None => alloc_more(runtime, class, bytes),
    }
}

#[inline]
fn take(class: usize) -> Option<u64> {
    let size = class::size(class);
    let address = with_shelf(class, |shelf, size| shelf.take(size))?;
    stats::begin(size);
    Some(address)
}

#[cold]
fn too_large(bytes: u64) -> Error {
    let request = Bytes(bytes);
    Error::new(
        Status::OUT_OF_MEMORY,
        format!("tried to allocate {request} of pinned host memory, more than there are addresses"),
    )
}

#[cold]
fn alloc_more(runtime: &Runtime, class: usize, bytes: u64) -> Result<u64> {
    if uses::reap(runtime, false)
        && let Some(address) = take(class)
    {
        return Ok(address);
    }
    let _growing = (class::slots(class) > 1).then(|| GROWING.lock());
    if let Some(address) = take(class) {
        return Ok(address);
    }
    match grow(runtime, class) {
        Err(error) if error.status() == Status::OUT_OF_MEMORY => {}
        result => return result.context(|| attempt(bytes)),
    }
    // What is free in other sizes goes back first; then what is only waited for, which may be what is needed, too.
    trim(runtime)?;
    match grow(runtime, class) {
        Err(error) if error.status() == Status::OUT_OF_MEMORY => {}
        result => return result.context(|| attempt(bytes)),
    }
    uses::reap(runtime, true);
    if let Some(address) = take(class) {
        return Ok(address);
    }
    trim(runtime)?;
    grow(runtime, class).context(|| {
        let (held, active) = (stats::held(), stats::active());
        let attempt = attempt(bytes);
        format!(
            "out of memory: {attempt}; plinth holds {} of it, {} of which are in use, and has given back what was free",
            Bytes(held),
            Bytes(active)
        )
    })
}

fn attempt(bytes: u64) -> String {
    format!("tried to allocate {} of pinned host memory", Bytes(bytes))
}

/// Takes note of the settings.
pub fn configure(config: &Config) {
    let kept = config.pinned_max_cached_size_mb.saturating_mul(1 << 20);
    LARGEST_KEPT.store(if kept == 0 { u64::MAX } else { kept.max(LARGEST_SHARED) }, Ordering::Relaxed);
}

/// Adds a slab to a shelf, and takes a block of it.
fn grow(runtime: &Runtime, class: usize) -> Result<u64> {
    let config = config::get()?;
    configure(&config);
    let piece = source::get(runtime, &config, class::slab_bytes(class))?;
    let size = class::size(class);
    let slab = Slab::new(class, piece);
    let number = with_shelf(class, |shelf, _| shelf.number());
    let place = Place { class, slab: number };
    if !map::list(piece.address, piece.bytes, place) {
        with_shelf(class, |shelf, _| shelf.vacate(number));
        source::give_back(runtime, &piece)?;
        return Err(Error::new(
            Status::PANIC,
            format!("the driver gave {:#x}, which is out of all bounds", piece.address),
        ));
    }
    let address = with_shelf(class, |shelf, size| {
        shelf.put(number, slab);
        shelf.take(size)
    });
    stats::begin(size);
    address.ok_or_else(|| Error::new(Status::PANIC, "a new slab has no free block"))
}

/// Frees what [`host_alloc`] gave; 0 does nothing.
#[inline]
pub fn host_free(address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let Some(runtime) = runtime::usable() else { return too_late(address) };
    let Some(Place { class, slab }) = map::find(address) else { return Err(not_allocated(address)) };
    let size = class::size(class);
    match with_shelf(class, |shelf, size| shelf.give_back(slab, address, size)) {
        Given::Free => {
            stats::end(size);
            if size > LARGEST_KEPT.load(Ordering::Relaxed) {
                return give_up(runtime, class);
            }
        }
        Given::Waits => hold_back(runtime, address),
        Given::Unknown => return Err(not_allocated(address)),
    }
    Ok(())
}

/// Lets blocks go that are too large to be kept. They are free, whatever comes of it: what fails is tried with the next.
#[cold]
fn give_up(runtime: &Runtime, class: usize) -> Result<()> {
    let _ = trim_class(runtime, class);
    Ok(())
}

#[cold]
fn hold_back(runtime: &Runtime, address: u64) {
    uses::hold_back(runtime, address);
    background::notice();
}

/// A free where the driver cannot be asked. In a process that is exiting the block stays what it is.
#[cold]
fn too_late(address: u64) -> Result<()> {
    match runtime::check_usable() {
        Err(error) if error.status() == Status::SHUTTING_DOWN => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(not_allocated(address)),
    }
}

#[cold]
fn not_allocated(address: u64) -> Error {
    Error::new(
        Status::INVALID_POINTER,
        format!("{address:#x} is no block of pinned memory: plinth_host_alloc never gave it, or it was freed already"),
    )
}

/// Notes that work in a stream uses a block, which then stays out of use after its free until that work is done.
pub fn host_record_stream(address: u64, stream: Stream) -> Result<()> {
    let runtime = runtime::ready()?;
    if address == 0 { Ok(()) } else { uses::note(runtime, address, stream) }
}

/// Notes that a copy or a fill in a stream uses memory, so far as it is of this allocator.
#[inline]
pub fn note_use(runtime: &Runtime, span: Span, stream: Stream) -> Result<()> {
    if map::may_have(span.address()) && map::find(span.address()).is_some() {
        return note_own(runtime, span.address(), stream);
    }
    Ok(())
}

#[cold] // not because it is rare, but to keep it out of the way of copies without such memory
fn note_own(runtime: &Runtime, address: u64, stream: Stream) -> Result<()> {
    match uses::note(runtime, address, stream) {
        // Memory that was freed: the copy is the program's error, and no worse for not being noted.
        Err(error) if error.status() == Status::INVALID_POINTER => Ok(()),
        result => result,
    }
}

/// The block that an address lies in, if it is in somebody's hands: where it begins, and its bytes.
pub fn host_block_at(address: u64) -> Option<(u64, u64)> {
    let place = map::find(address)?;
    with_shelf(place.class, |shelf, size| Some((shelf.live_at(place.slab, address, size)?, size)))
}

/// Whether an address is in memory that the allocator holds, in somebody's hands or not.
pub fn is_host_cached(address: u64) -> bool {
    map::may_have(address)
        && map::find(address).is_some_and(|place| with_shelf(place.class, |shelf, _| shelf.has(place.slab, address)))
}

/// Gives back to the driver what is wholly free.
pub fn host_empty_cache() -> Result<()> {
    let runtime = runtime::ready()?;
    uses::reap(runtime, false);
    trim(runtime).context(|| "giving pinned host memory back")
}

fn trim(runtime: &Runtime) -> Result<()> {
    // One thread at a time: what another one is giving back is neither here nor there, and whoever is short waits for that.
    let _alone = TRIMMING.lock();
    let mut outcome = Ok(());
    for class in 0..class::CLASSES {
        outcome = outcome.and(trim_class(runtime, class));
    }
    outcome
}

/// Gives back to the driver what is wholly free of a class.
fn trim_class(runtime: &Runtime, class: usize) -> Result<()> {
    let mut outcome = Ok(());
    let free = with_shelf(class, |shelf, _| shelf.remove_free());
    for (number, slab) in free {
        let (piece, place) = (slab.piece, Place { class, slab: number });
        // First: once the driver has it, the addresses may be another slab's, of which this one's note would hide a part.
        map::unlist(piece.address, piece.bytes, place);
        match source::give_back(runtime, &piece) {
            Ok(()) => with_shelf(class, |shelf, _| shelf.vacate(number)),
            // It is as good as before.
            Err(error) => {
                map::list(piece.address, piece.bytes, place);
                with_shelf(class, |shelf, _| shelf.put(number, slab));
                outcome = outcome.and(Err(error));
            }
        }
    }
    outcome
}

/// The class of the block at an address, if such blocks are too large to be kept.
fn too_large_to_keep(address: u64) -> Option<usize> {
    let class = map::find(address)?.class;
    (class::size(class) > LARGEST_KEPT.load(Ordering::Relaxed)).then_some(class)
}

/// Lets a block go that waited, if it is too large to be kept.
fn after_wait(runtime: &Runtime, address: u64) {
    if let Some(class) = too_large_to_keep(address) {
        let _ = give_up(runtime, class);
    }
}

/// The same where no driver can be called: it goes when somebody looks what is free by now.
fn after_graph(address: u64) {
    if too_large_to_keep(address).is_some() {
        OVERDUE.store(true, Ordering::Release);
    }
}

/// Lets such blocks go.
fn give_up_overdue(runtime: &Runtime) {
    if OVERDUE.load(Ordering::Relaxed) && OVERDUE.swap(false, Ordering::Acquire) {
        let kept = LARGEST_KEPT.load(Ordering::Relaxed);
        for class in (0..class::CLASSES).filter(|class| class::size(*class) > kept) {
            let _ = give_up(runtime, class);
        }
    }
}

/// All figures.
pub fn host_memory_stats() -> Result<HostStats> {
    runtime::ready()?;
    let (mut blocks, mut bytes) = ((0, 0), (0, 0));
    for class in 0..class::CLASSES {
        let (given, returned) = with_shelf(class, |shelf, _| (shelf.given, shelf.returned));
        let size = class::size(class);
        blocks = (blocks.0 + given, blocks.1 + returned);
        bytes = (bytes.0 + given * size, bytes.1 + returned * size);
    }
    Ok(stats::read(blocks, bytes))
}

/// Lets all peaks begin again.
pub fn reset_peak_host_memory_stats() -> Result<()> {
    runtime::ready()?;
    stats::reset_peaks();
    Ok(())
}

/// Begins the sums anew.
pub fn reset_accumulated_host_memory_stats() -> Result<()> {
    runtime::ready()?;
    for class in 0..class::CLASSES {
        with_shelf(class, |shelf, _| (shelf.given, shelf.returned) = (0, 0));
    }
    stats::reset_accumulated();
    Ok(())
}

/// What is wrong with the allocator's structures, if anything is, while no other thread of the program's uses it.
pub fn check() -> Result<()> {
    // Nor the thread that looks after what waits.
    let _turn = uses::turn();
    let wrong = |what: String| Error::new(Status::PANIC, format!("pinned memory: {what}"));
    loop {
        let counted = stats::active();
        let (mut held, mut active) = (0, 0);
        for class in 0..class::CLASSES {
            let found = with_shelf(class, |shelf, _| shelf.check());
            let (_, bytes, blocks) = found.map_err(|what| wrong(format!("class {class}: {what}")))?;
            held += bytes;
            active += blocks * class::size(class);
        }
        // A thread of the driver's gives back what a graph had, whenever it comes to that.
        if counted != stats::active() {
            continue;
        }
        if active != counted {
            return Err(wrong(format!("{active} bytes are not free, {counted} counted")));
        }
        // The reserve counts as held from the beginning.
        if held > stats::held() {
            return Err(wrong(format!("{held} bytes are held, {} counted", stats::held())));
        }
        return Ok(());
    }
}
