//! Green contexts: parts of a device's multiprocessors, with streams of their own.
//!
//! What comes into such a stream runs on the part and nowhere else, so that two parts of a program do not take each
//! other's multiprocessors. To be the thread's green context means that one of its streams is the thread's current
//! stream: everything here that works in the current stream then works on the part. The driver's current context stays
//! what it is, the device's primary one, because memory, events, modules and libraries belong to that, and a green
//! context may be current in one thread only.
//!
//! The driver's green contexts and their streams are never destroyed, as streams of the pools are not: memory, graphs
//! and threads may still hold the streams. Who destroys a green context gives it back, and who next asks for as large a
//! part of the device gets it again.

use crate::{
    base::handle::{HandleTable, Kind},
    driver::{self, Driver, Multiprocessors, StreamInfo, StreamOrigin, codes},
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device, thread},
    status::Status,
    stream::{self, SavedStreams, Stream},
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{
    cell::RefCell,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The streams that a green context hands out in turn.
pub const STREAMS: usize = 32;

/// A part of a device's multiprocessors. It lives as long as the process.
#[derive(Debug)]
pub struct Part {
    /// The number of its device.
    pub device: u32,
    /// How many multiprocessors were asked for.
    wanted: u32,
    /// How many it has.
    pub count: u32,
    /// The driver's green context.
    pub native: driver::GreenContext,
    /// The same as a context that can be made current.
    pub context: driver::Context,
    /// The stream that is current while the green context is.
    own: OnceCell<driver::Stream>,
    streams: [OnceCell<driver::Stream>; STREAMS],
    next: AtomicUsize,
    /// How often threads have it set at this moment.
    set: AtomicUsize,
}

/// A slot of the table of green contexts.
#[derive(Default)]
pub struct GreenContext(Mutex<Option<&'static Part>>);

static GREEN: HandleTable<GreenContext> = HandleTable::new(Kind::GreenContext);
/// Parts that were given back.
static IDLE: Mutex<Vec<&'static Part>> = Mutex::new(Vec::new());

/// A green context that a thread has set, and what was before.
struct Entry {
    handle: u64,
    part: &'static Part,
    saved: SavedStreams,
    /// The stream that was current on the device of the part.
    parent: Stream,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.part.set.fetch_sub(1, Ordering::AcqRel);
    }
}

thread_local! {
    /// What the thread has set, the last at the end.
    static ENTRIES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

fn with_entries<T>(body: impl FnOnce(&mut Vec<Entry>) -> T) -> Result<T> {
    let outcome = ENTRIES.try_with(|entries| body(&mut entries.borrow_mut()));
    outcome.map_err(|_| Error::new(Status::SHUTTING_DOWN, "the thread is ending"))
}

fn get(handle: u64) -> Result<&'static Part> {
    let part = *GREEN.get(handle)?.0.lock();
    // Another thread may have destroyed it meanwhile.
    GREEN.get(handle)?;
    part.ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the green context is being destroyed"))
}

/// Makes a green context with at least so many of a device's multiprocessors, as a handle.
pub fn create(wanted: i32, number: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let part = take_idle(device.ordinal, wanted).map_or_else(|| make(runtime, device, wanted), Ok);
    let part = part.context(|| format!("making a green context on device {}", device.ordinal))?;
    let handle = GREEN.insert(|slot| *slot.0.lock() = Some(part));
    if handle.is_err() {
        IDLE.lock().push(part);
    }
    handle
}

fn take_idle(device: u32, wanted: i32) -> Option<&'static Part> {
    let mut idle = IDLE.lock();
    let same = |part: &&'static Part| part.device == device && i64::from(part.wanted) == i64::from(wanted);
    let index = idle.iter().position(same)?;
    Some(idle.swap_remove(index))
}

fn make(runtime: &Runtime, device: &Device, wanted: i32) -> Result<&'static Part> {
    let driver = &runtime.driver;
    device.with_context(driver, |driver| {
        let whole = driver.multiprocessors(device.native).map_err(explain)?;
        let wanted =
            u32::try_from(wanted).ok().filter(|wanted| (1..=whole.count()).contains(wanted)).ok_or_else(|| {
                Error::new(
                    Status::INVALID_VALUE,
                    format!("invalid number of SMs requested for green context: {wanted} of {}", whole.count()),
                )
            })?;
        // What happens in a capture of this thread's is not about it.
        driver.with_relaxed_capture(|| make_here(driver, device, whole, wanted))?
    })
}

fn make_here(driver: &Driver, device: &Device, whole: Multiprocessors, wanted: u32) -> Result<&'static Part> {
    // Where parts are rounded up beyond the whole, the whole is what there is.
    let part = if whole.round_up(wanted) >= whole.count() {
        Some(whole)
    } else {
        driver.split_multiprocessors(&whole, wanted)?
    };
    let part = part.ok_or_else(|| {
        Error::new(Status::NOT_SUPPORTED, format!("the driver makes no part of {wanted} multiprocessors"))
    })?;
    let native = driver.green_context_create(device.native, part).map_err(explain)?;
    // The first stream is made at once: a driver that has green contexts without streams shows itself here.
    let made = driver
        .green_context_as_context(native)
        .and_then(|context| Ok((context, driver.green_context_stream(native, 0)?)));
    let (context, stream) = match made {
        Ok(made) => made,
        Err(failure) => {
            // The error that counts is why there is none.
            if driver.green_context_destroy(native).is_err() {
                let _ = driver.green_context_destroy(native);
            }
            return Err(explain(failure));
        }
    };
    let made = Part {
        device: device.ordinal,
        wanted,
        count: part.count(),
        native,
        context,
        own: OnceCell::with_value(stream),
        streams: [const { OnceCell::new() }; STREAMS],
        next: AtomicUsize::new(0),
        set: AtomicUsize::new(0),
    };
    let part: &'static Part = Box::leak(Box::new(made));
    know(stream, device.ordinal)?;
    Ok(part)
}

fn know(stream: driver::Stream, device: u32) -> Result<()> {
    runtime::ready()?
        .streams
        .add(stream, StreamInfo { device, origin: StreamOrigin::External { blocking: Some(false) } })
}

/// Says of a driver without green contexts what it lacks.
fn explain(failure: driver::Failure) -> Error {
    let error = Error::from(failure);
    if failure.code == codes::CUDA_ERROR_NOT_SUPPORTED {
        return error
            .context("the driver is too old for green contexts, which came with CUDA 12.5, or the device has none");
    }
    error
}

/// Gives a green context back. What is in its streams still runs.
pub fn destroy(handle: u64) -> Result<()> {
    let part = get(handle)?;
    if part.set.load(Ordering::Acquire) != 0 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "the green context is set in a thread; plinth_green_context_pop_context comes first",
        ));
    }
    GREEN.remove(handle, |slot| *slot.0.lock() = None)?;
    IDLE.lock().push(part);
    Ok(())
}

/// The part behind a handle.
pub fn part(handle: u64) -> Result<&'static Part> {
    runtime::ready()?;
    get(handle)
}

/// The next of the green context's streams, as a handle: the 33rd is the first again.
pub fn stream(handle: u64) -> Result<usize> {
    let runtime = runtime::ready()?;
    let part = get(handle)?;
    let index = part.next.fetch_add(1, Ordering::Relaxed) % STREAMS;
    let stream = part.streams[index].get_or_try_init(|| {
        let made = runtime.device(part.device as i32)?.with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| driver.green_context_stream(part.native, 0))??)
        });
        let stream = made.context(|| format!("making a stream of a green context on device {}", part.device))?;
        know(stream, part.device)?;
        Ok::<_, Error>(stream)
    });
    Ok(stream?.handle())
}

/// Makes a stream of the green context the thread's current one, behind the one that is current on its device, and its
/// device current.
pub fn set_context(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let part = get(handle)?;
    let own = *part.own.get().ok_or_else(|| Error::new(Status::PANIC, "a green context without a stream"))?;
    let parent = stream::current_on(runtime, part.device)?;
    // Counted before anything else, so that nobody gives it back meanwhile.
    part.set.fetch_add(1, Ordering::AcqRel);
    let device = thread::device();
    let saved = SavedStreams {
        device,
        stream: thread::stream(device).handle(),
        entered_device: part.device,
        entered_stream: parent.raw.handle(),
    };
    let entry = Entry { handle, part, saved, parent };
    GREEN.get(handle)?;
    let green = stream::from_validated(runtime, own, part.device);
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

/// Undoes the thread's last [`set_context`], which must have been of this green context: the stream that was current
/// then waits for the one that is current now, and is current again, as is the device.
pub fn pop_context(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    get(handle)?;
    let last = with_entries(|entries| entries.last().map(|entry| (entry.handle, entry.saved, entry.parent)))?;
    let Some((_, saved, parent)) = last.filter(|(set, ..)| *set == handle) else {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "the green context is not the one that this thread has set last",
        ));
    };
    let green = stream::current_on(runtime, parent.device)?;
    if green.raw != parent.raw {
        stream::make_wait(runtime, parent, green)?;
    }
    stream::exit(saved)?;
    with_entries(Vec::pop).map(drop)
}
