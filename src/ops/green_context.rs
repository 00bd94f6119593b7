//! Green contexts: partitions of a device's multiprocessors, with their own streams.
//!
//! Work in such a stream runs on the partition and nowhere else, so two parts of a program do not compete for
//! multiprocessors. If a green context is current in a thread, one of its streams is the thread's current stream; every
//! function of this library that works in the current stream then works on the partition. The driver's current context
//! remains the device's primary context, because memory, events, modules and libraries belong to that, and a green
//! context can be current in one thread only.
//!
//! The driver's green contexts and their streams are never destroyed, like the streams of the pools: memory, graphs and
//! threads may still refer to the streams. Destroying a green context returns it to an idle list, and the next request
//! for a partition of the same size on the device reuses it. The partitions of a split are reused together, when all of
//! its green contexts are destroyed, because only these do not overlap.

use crate::{
    base::{
        handle::{Kind, ReferenceTable},
        retry::retry,
    },
    driver::{self, Driver, Multiprocessors, StreamInfo, StreamOrigin, codes},
    error::{Context, Error, Result},
    runtime::{
        self, Runtime,
        device::Device,
        thread::{self, DroppedInCall},
    },
    status::Status,
    stream::{self, SavedStreams, Stream, StreamUse, lifetime},
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{
    cell::RefCell,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The number of streams that a green context hands out in round-robin order.
pub const STREAMS: usize = 32;

/// A partition of a device's multiprocessors. It lives until the process ends.
#[derive(Debug)]
pub struct Partition {
    /// Ordinal of its device.
    pub device: u32,
    /// The number of multiprocessors that was requested.
    requested: u32,
    /// The number of multiprocessors it has.
    pub count: u32,
    /// The driver's green context.
    pub native: driver::GreenContext,
    /// The same green context, as a context that can be made current.
    pub context: driver::Context,
    /// The stream that is current while the green context is current.
    own: OnceCell<driver::Stream>,
    streams: [OnceCell<driver::Stream>; STREAMS],
    next: AtomicUsize,
    /// The split that it belongs to, if it was not made alone.
    split: OnceCell<&'static Split>,
    /// How many times threads have it set now. Locked while its handle is removed, or found in order to set it.
    set: Mutex<usize>,
}

/// Partitions that do not overlap.
#[derive(Debug)]
struct Split {
    request: Request,
    /// As many as requested, and what is left of the device, if that was requested and anything is.
    partitions: Vec<&'static Partition>,
    /// How many of them have a green context.
    in_use: AtomicUsize,
}

/// A request for a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    device: u32,
    multiprocessors: i32,
    count: usize,
    has_rest: bool,
}

static CONTEXTS: ReferenceTable<&'static Partition> = ReferenceTable::new(Kind::GreenContext);
/// Partitions of destroyed green contexts.
static IDLE: Mutex<Vec<&'static Partition>> = Mutex::new(Vec::new());
/// Splits of which all green contexts are destroyed.
static IDLE_SPLITS: Mutex<Vec<&'static Split>> = Mutex::new(Vec::new());

/// A green context that a thread has set, and the previous state.
struct Entry {
    handle: u64,
    partition: &'static Partition,
    saved: SavedStreams,
    /// The stream that was current on the partition's device.
    parent: Stream,
}

impl Drop for Entry {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist there may hold the lock.
        if runtime::usable().is_some() {
            *self.partition.set.lock() -= 1;
        }
    }
}

thread_local! {
    /// The green contexts that the thread has set; the most recent one is last.
    static ENTRIES: DroppedInCall<RefCell<Vec<Entry>>> = const { DroppedInCall::new(RefCell::new(Vec::new())) };
}

fn with_entries<T>(body: impl FnOnce(&mut Vec<Entry>) -> T) -> Result<T> {
    let outcome = ENTRIES.try_with(|entries| body(&mut entries.borrow_mut()));
    outcome.map_err(|_| Error::new(Status::SHUTTING_DOWN, "the thread is ending"))
}

/// Creates a green context with at least `requested` of a device's multiprocessors and returns its handle.
pub fn create(requested: i32, number: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let partition = take_idle(device.ordinal, requested).map_or_else(|| make(runtime, device, requested), Ok);
    let partition = partition.context(|| format!("making a green context on device {}", device.ordinal))?;
    insert(partition)
}

/// Makes the handle of a partition; returns it to the idle ones if that fails.
fn insert(partition: &'static Partition) -> Result<u64> {
    CONTEXTS.insert(partition).inspect_err(|_| release(partition))
}

/// Returns a partition, which has no green context any more, to the idle ones.
fn release(partition: &'static Partition) {
    match partition.split.get() {
        None => IDLE.lock().push(partition),
        Some(split) if split.in_use.fetch_sub(1, Ordering::AcqRel) == 1 => IDLE_SPLITS.lock().push(split),
        Some(_) => {}
    }
}

/// Creates `count` green contexts with at least `requested` multiprocessors each, and one of those that are left if `has_rest`
/// and there are enough for one. No two of them overlap. Returns their handles.
pub fn split(requested: i32, count: usize, number: i32, has_rest: bool) -> Result<(Vec<u64>, Option<u64>)> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let request = Request { device: device.ordinal, multiprocessors: requested, count, has_rest };
    let taken = take_idle_split(request).map_or_else(|| make_split(runtime, device, request), Ok);
    let split = taken.context(|| format!("splitting device {} into green contexts", device.ordinal))?;
    split.in_use.store(split.partitions.len(), Ordering::Release);
    let handles: Vec<Result<u64>> = split.partitions.iter().map(|partition| insert(partition)).collect();
    if handles.iter().any(Result::is_err) {
        for handle in handles.iter().flatten() {
            destroy(*handle)?;
        }
    }
    let mut handles = handles.into_iter().collect::<Result<Vec<u64>>>()?;
    let rest = if handles.len() > count { handles.pop() } else { None };
    Ok((handles, rest))
}

fn take_idle_split(request: Request) -> Option<&'static Split> {
    let mut idle = IDLE_SPLITS.lock();
    let index = idle.iter().position(|split| split.request == request)?;
    Some(idle.swap_remove(index))
}

fn make_split(runtime: &Runtime, device: &Device, request: Request) -> Result<&'static Split> {
    let driver = &runtime.driver;
    device.with_context(driver, |driver| {
        let whole = driver.multiprocessors(device.native).map_err(explain)?;
        let requested = checked(&whole, request.multiprocessors)?;
        let fit = whole.count() / whole.round_up(requested).min(whole.count());
        let too_many = || {
            let what = format!(
                "{} partitions of {requested} multiprocessors, {} with the driver's rounding, do not fit in {}; at most {fit} do",
                request.count,
                whole.round_up(requested),
                whole.count()
            );
            Error::new(Status::INVALID_VALUE, what)
        };
        let count = u32::try_from(request.count).ok().filter(|count| (1..=fit).contains(count)).ok_or_else(too_many)?;
        // Creating green contexts does not belong to a capture of this thread.
        driver.with_relaxed_capture(|| {
            // If rounding up the partition gives the whole device, it is the whole device.
            let (mut parts, rest) = if whole.round_up(requested) >= whole.count() {
                (vec![whole], None)
            } else {
                let (parts, rest) = driver.split_multiprocessors(&whole, count, requested)?;
                (parts, Some(rest))
            };
            if parts.len() < request.count {
                return Err(too_many());
            }
            if request.has_rest {
                parts.extend(rest.filter(|rest| rest.count() >= whole.least()));
            }
            let mut partitions: Vec<&'static Partition> = Vec::with_capacity(parts.len());
            for part in parts {
                match make_partition(driver, device, part, part.count()) {
                    Ok(partition) => partitions.push(partition),
                    Err(error) => {
                        // Those that exist serve requests for a single one.
                        partitions.into_iter().for_each(release);
                        return Err(error);
                    }
                }
            }
            let split: &'static Split = Box::leak(Box::new(Split { request, partitions, in_use: AtomicUsize::new(0) }));
            for partition in &split.partitions {
                let _ = partition.split.set(split); // it is new, so it has none
            }
            Ok(split)
        })?
    })
}

fn take_idle(device: u32, requested: i32) -> Option<&'static Partition> {
    let mut idle = IDLE.lock();
    let same = |partition: &&'static Partition| {
        partition.device == device && i64::from(partition.requested) == i64::from(requested)
    };
    let index = idle.iter().position(same)?;
    Some(idle.swap_remove(index))
}

fn make(runtime: &Runtime, device: &Device, requested: i32) -> Result<&'static Partition> {
    let driver = &runtime.driver;
    device.with_context(driver, |driver| {
        let whole = driver.multiprocessors(device.native).map_err(explain)?;
        let requested = checked(&whole, requested)?;
        // Creating a green context does not belong to a capture of this thread.
        driver.with_relaxed_capture(|| make_in_context(driver, device, whole, requested))?
    })
}

/// Returns the requested number of multiprocessors, if the device has so many.
fn checked(whole: &Multiprocessors, requested: i32) -> Result<u32> {
    let count = u32::try_from(requested).ok().filter(|count| (1..=whole.count()).contains(count));
    count.ok_or_else(|| {
        let what = format!("invalid number of SMs requested for green context: {requested} of {}", whole.count());
        Error::new(Status::INVALID_VALUE, what)
    })
}

fn make_in_context(
    driver: &Driver,
    device: &Device,
    whole: Multiprocessors,
    requested: u32,
) -> Result<&'static Partition> {
    // If rounding up the partition gives at least the whole device, use the whole device.
    let partition = if whole.round_up(requested) >= whole.count() {
        Some(whole)
    } else {
        driver.split_multiprocessors(&whole, 1, requested)?.0.pop()
    };
    let partition = partition.ok_or_else(|| {
        Error::new(Status::NOT_SUPPORTED, format!("the driver makes no partition of {requested} multiprocessors"))
    })?;
    make_partition(driver, device, partition, requested)
}

fn make_partition(
    driver: &Driver,
    device: &Device,
    partition: Multiprocessors,
    requested: u32,
) -> Result<&'static Partition> {
    let native = driver.green_context_create(device.native, partition).map_err(explain)?;
    // Create the first stream now, to detect a driver that has green contexts but no streams for them.
    let made = driver
        .green_context_as_context(native)
        .and_then(|context| Ok((context, driver.green_context_stream(native, 0)?)));
    let (context, stream) = match made {
        Ok(made) => made,
        Err(failure) => {
            // Return the error of the failed call, not one of the cleanup.
            retry(|| driver.green_context_destroy(native));
            return Err(explain(failure));
        }
    };
    let made = Partition {
        device: device.ordinal,
        requested,
        count: partition.count(),
        native,
        context,
        own: OnceCell::with_value(stream),
        streams: [const { OnceCell::new() }; STREAMS],
        next: AtomicUsize::new(0),
        split: OnceCell::new(),
        set: Mutex::new(0),
    };
    let partition: &'static Partition = Box::leak(Box::new(made));
    register_stream(stream, device.ordinal)?;
    Ok(partition)
}

fn register_stream(stream: driver::Stream, device: u32) -> Result<()> {
    runtime::ready()?.streams.add(stream, StreamInfo::new(device, StreamOrigin::Kept))
}

/// Adds the missing requirement to the error of a driver without green contexts.
fn explain(failure: driver::Failure) -> Error {
    let error = Error::from(failure);
    if failure.code == codes::CUDA_ERROR_NOT_SUPPORTED {
        return error
            .context("the driver is too old for green contexts, which came with CUDA 12.5, or the device has none");
    }
    error
}

/// Returns a green context to the idle list. Work in its streams still runs.
pub fn destroy(handle: u64) -> Result<()> {
    let partition = CONTEXTS.get(handle)?;
    let set = partition.set.lock();
    if *set != 0 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "the green context is set in a thread; plinth_green_context_pop_context comes first",
        ));
    }
    CONTEXTS.remove(handle)?;
    drop(set);
    release(partition);
    Ok(())
}

/// Returns the partition of a handle.
pub fn partition(handle: u64) -> Result<&'static Partition> {
    runtime::ready()?;
    CONTEXTS.get(handle)
}

/// Returns the next stream of the green context as a handle, in round-robin order: the 33rd is the first again.
pub fn stream(handle: u64) -> Result<usize> {
    let runtime = runtime::ready()?;
    let partition = CONTEXTS.get(handle)?;
    let index = partition.next.fetch_add(1, Ordering::Relaxed) % STREAMS;
    let stream = partition.streams[index].get_or_try_init(|| {
        let made = runtime.device(partition.device as i32)?.with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| driver.green_context_stream(partition.native, 0))??)
        });
        let stream = made.context(|| format!("making a stream of a green context on device {}", partition.device))?;
        register_stream(stream, partition.device)?;
        Ok::<_, Error>(stream)
    });
    Ok(stream?.handle())
}

/// Makes a stream of the green context the thread's current stream, ordered after the stream that is current on its
/// device, and makes its device current.
pub fn set_context(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let partition = CONTEXTS.get(handle)?;
    let own = *partition.own.get().ok_or_else(|| Error::new(Status::PANIC, "a green context without a stream"))?;
    let parent = stream::current_on(runtime, partition.device)?;
    let device = thread::device();
    let saved = SavedStreams {
        device,
        stream: thread::stream(device).handle(),
        entered_device: partition.device,
        entered_stream: parent.raw.handle(),
    };
    // Count it before anything else, so that no other thread can destroy it in the meantime.
    let mut set = partition.set.lock();
    CONTEXTS.get(handle)?;
    *set += 1;
    drop(set);
    let entry = Entry { handle, partition, saved, parent };
    let green = stream::from_validated(runtime, own, partition.device);
    if own != parent.raw {
        stream::make_wait(runtime, green, parent)?;
    }
    with_entries(|entries| entries.push(entry))?;
    let entered = stream::set(own.handle());
    if entered.is_err() {
        with_entries(Vec::pop)?;
    }
    entered
}

/// Undoes the thread's last [`set_context`], which must have set this green context. The stream that was current before
/// waits for the one that is current now, and becomes current again; so does the device. In place of a stream that was
/// destroyed meanwhile, the default stream becomes current.
pub fn pop_context(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    CONTEXTS.get(handle)?;
    let last = with_entries(|entries| entries.last().map(|entry| (entry.handle, entry.saved, entry.parent)))?;
    let Some((_, saved, parent)) = last.filter(|(set, ..)| *set == handle) else {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "the green context is not the one that this thread has set last",
        ));
    };
    let green = stream::current_on(runtime, parent.device())?;
    let has_parent_ended = lifetime::has_ended(runtime, StreamUse::new(parent));
    if green.raw != parent.raw && !has_parent_ended {
        stream::make_wait(runtime, parent, green)?;
    }
    let live = |device: u32, handle: usize| {
        let known = stream::resolve_same(runtime, handle, device).is_ok();
        if known && !(has_parent_ended && device == parent.device()) { handle } else { 0 }
    };
    let stream = live(saved.device, saved.stream);
    let entered_stream = live(saved.entered_device, saved.entered_stream);
    stream::exit(SavedStreams { stream, entered_stream, ..saved })?;
    with_entries(Vec::pop).map(drop)
}
