//! Streams: pools of streams, each thread's current streams, and the order between streams.
//!
//! A stream is the driver's handle, so kernels and every CUDA library accept it directly. plinth knows the streams of
//! its pools and those registered with [`from_external`], and refuses any other handle. A call passes the device that
//! it is about: NULL and CUDA's special handles 1 (legacy) and 2 (per thread) are default streams of that device, and
//! [`CURRENT`] is the thread's current stream on it. [`DEFAULT_OF`] names the device itself.

pub mod capture_lock;
pub mod capture_report;
pub mod capture_scope;
pub mod capture_status;
pub mod event;
pub mod event_pool;
pub mod kernel;
pub mod lifetime;
pub mod ordering;
pub mod prepared_launch;
pub mod stream_id;

pub use crate::runtime::checked_stream::{Stream, StreamUse};
pub use capture_status::{capture_id, is_capturing, is_current_capturing, is_validated_capturing};
pub use lifetime::{create_dedicated, of_use};
pub use ordering::make_wait;

use crate::{
    driver::{self, Driver, HostFunction, StreamInfo, StreamOrigin, nvtx, types::*},
    error::{Context, Error, Result},
    observe,
    runtime::{
        self, Runtime,
        device::Device,
        names::{self, Subject},
        per_device::PerDevice,
        properties, sync_debug, thread,
    },
    status::Status,
};
use capture_status::CaptureStatus;
use once_cell::sync::OnceCell;
use std::{
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Streams in the pool of one priority.
pub const POOL_SIZE: usize = 32;
/// The most distinct priorities.
const MAX_PRIORITIES: usize = 16;

/// The argument that stands for the calling thread's current stream on the device of the call. No handle has this
/// value, because it exceeds all addresses.
pub const CURRENT: usize = 0x504C_5301_0000_0000;
/// The argument that stands for the default stream of device 0; that of device n is n greater.
pub const DEFAULT_OF: usize = 0x504C_5300_0000_0000;

/// Returns whether an argument is [`CURRENT`] or a value of [`DEFAULT_OF`].
#[inline]
pub fn is_name(handle: usize) -> bool {
    // The names share all bits but the lowest of the upper half.
    handle >> 33 == DEFAULT_OF >> 33
}

/// Returns whether the stream that an argument stands for depends on the device of the call.
pub fn is_relative(handle: usize) -> bool {
    handle <= CU_STREAM_PER_THREAD || handle == CURRENT
}

/// Validates a stream argument of a call that names no device. NULL and [`CURRENT`] refer to the current device.
#[inline]
pub fn resolve(runtime: &Runtime, handle: usize) -> Result<Stream> {
    resolve_on(runtime, handle, thread::device())
}

/// Validates a stream argument of a call about `device`: NULL is that device's default stream, and [`CURRENT`] the
/// calling thread's current stream on it. The stream may belong to another device only if the argument names it.
#[inline]
pub fn resolve_on(runtime: &Runtime, handle: usize, device: u32) -> Result<Stream> {
    if handle <= CU_STREAM_PER_THREAD {
        return default_stream(runtime, handle, device);
    }
    if handle == CURRENT {
        return current_on(runtime, device);
    }
    match runtime.streams.find(handle) {
        Some((raw, info)) => Ok(Stream { raw, info }),
        None if handle & !(u32::MAX as usize) == DEFAULT_OF => {
            default_stream(runtime, 0, runtime.device(handle as u32 as i32)?.ordinal)
        }
        None => Err(unknown_stream(handle)),
    }
}

/// Validates a stream argument of a call whose work runs on `device`: the stream must belong to that device.
#[inline]
pub fn resolve_same(runtime: &Runtime, handle: usize, device: u32) -> Result<Stream> {
    let stream = resolve_on(runtime, handle, device)?;
    if stream.device() == device { Ok(stream) } else { Err(mismatch(stream, device)) }
}

/// Does the same as [`resolve_same`] for the device with this number, where -1 means the current one. Does not need
/// an initialized library for a default stream.
#[inline]
pub fn of_device(handle: usize, number: i32) -> Result<driver::Stream> {
    if handle <= CU_STREAM_PER_THREAD
        && let Some(stream) = driver::Stream::special(handle)
    {
        return Ok(stream);
    }
    let device = if number == -1 { thread::device() } else { number as u32 };
    let runtime = runtime::ready()?;
    match runtime.streams.find_on(handle, device) {
        Some(stream) => Ok(stream),
        None => Ok(resolve_same(runtime, handle, device)?.raw),
    }
}

/// Resolves an external stream without checking its device, and registers it if necessary. The stream may be
/// capturing; its capture stays valid.
pub fn from_unchecked(stream: driver::Stream) -> Result<Stream> {
    let runtime = runtime::ready()?;
    match resolve(runtime, stream.handle()) {
        // It was capturing when it was made known; it can be asked now, or is still capturing.
        Ok(known) if known.origin() != (StreamOrigin::External { blocking: None }) => return Ok(known),
        _ => {}
    }
    // The device is that of the stream's context, which is usually the current one.
    let context = runtime.in_any_context(|driver| Ok(driver.stream_context(stream)?))?;
    for device in runtime.devices() {
        if device.has_context(&runtime.driver)? && device.context(&runtime.driver)? == context {
            from_external(stream, device.ordinal as i32)?;
            return resolve(runtime, stream.handle());
        }
    }
    from_external(stream, -1)?;
    resolve(runtime, stream.handle())
}

fn default_stream(runtime: &Runtime, handle: usize, device: u32) -> Result<Stream> {
    let devices = runtime.devices().len();
    if device as usize >= devices {
        return Err(properties::no_such_device_error(device as i32, devices));
    }
    let raw = driver::Stream::special(handle).ok_or_else(|| unknown_stream(handle))?;
    Ok(Stream { raw, info: StreamInfo::new(device, StreamOrigin::Default) })
}

#[cold]
fn unknown_stream(handle: usize) -> Error {
    Error::new(
        Status::INVALID_HANDLE,
        format!(
            "{handle:#x} is not a stream known to plinth; register a stream of your own with \
             plinth_stream_from_external"
        ),
    )
}

/// The stream pools of one device; streams are created when they are first returned.
pub struct StreamPools {
    range: OnceCell<(i32, i32)>,
    pools: [Pool; MAX_PRIORITIES],
}

struct Pool {
    next: AtomicUsize,
    streams: [OnceCell<driver::Stream>; POOL_SIZE],
}

impl StreamPools {
    /// Creates empty pools.
    pub fn new() -> Self {
        StreamPools {
            range: OnceCell::new(),
            pools: [const { Pool { next: AtomicUsize::new(0), streams: [const { OnceCell::new() }; POOL_SIZE] } };
                MAX_PRIORITIES],
        }
    }
}

impl Default for StreamPools {
    fn default() -> Self {
        Self::new()
    }
}

impl Device {
    /// Returns the least and the greatest priority; greater priorities are lower numbers.
    fn priority_range(&self, driver: &Driver) -> Result<(i32, i32)> {
        let range = self.stream_pools().range.get_or_try_init(|| {
            self.with_context(driver, |driver| {
                let (least, greatest) = driver.stream_priority_range()?;
                Ok::<_, Error>((least, greatest.max(least + 1 - MAX_PRIORITIES as i32)))
            })
        });
        range.copied()
    }
}

/// Returns the least and the greatest stream priority of a device.
pub fn priority_range(device: i32) -> Result<(i32, i32)> {
    let runtime = runtime::ready()?;
    runtime.device(device)?.priority_range(&runtime.driver)
}

/// Returns the handle of the next stream of a device's pool for a priority. Clamps the priority to the device's
/// range.
pub fn create(device: i32, priority: i32) -> Result<usize> {
    let runtime = runtime::ready()?;
    let device = runtime.device(device)?;
    let (least, greatest) = device.priority_range(&runtime.driver)?;
    let priority = priority.clamp(greatest, least);
    let pool = usize::try_from(least - priority).ok().and_then(|level| device.stream_pools().pools.get(level));
    let pool = pool.ok_or_else(|| Error::new(Status::PANIC, "a priority lies outside its own range"))?;
    let index = pool.next.fetch_add(1, Ordering::Relaxed) % POOL_SIZE;
    let stream = pool.streams[index].get_or_try_init(|| {
        let stream = lifetime::new_stream(runtime, device, priority)?;
        let origin = StreamOrigin::Pool { priority: priority as i8, index: index as u8 };
        runtime.streams.add(stream, StreamInfo::new(device.ordinal, origin))?;
        Ok::<_, Error>(stream)
    });
    Ok(stream?.handle())
}

/// Registers a stream that was created outside of plinth.
pub fn from_external(stream: driver::Stream, number: i32) -> Result<usize> {
    let runtime = runtime::ready()?;
    let claimed = runtime.device(number)?;
    let handle = stream.handle();
    if handle <= CU_STREAM_PER_THREAD {
        return Ok(handle);
    }
    if let Some((_, info)) = runtime.streams.find(handle)
        && matches!(info.origin(), StreamOrigin::Pool { .. } | StreamOrigin::Dedicated { .. } | StreamOrigin::Kept)
    {
        let device = info.device();
        return if device == claimed.ordinal { Ok(handle) } else { Err(wrong_device(handle, device, claimed.ordinal)) };
    }
    let driver = &runtime.driver;
    let context = runtime
        .in_any_context(|driver| Ok(driver.stream_context(stream)?))
        .context(|| format!("finding the device of stream {handle:#x}"))?;
    if context != claimed.context(driver)? {
        // This is not the primary context, but a green context or one that the program created: ask it for its
        // device.
        let previous = driver.current_context()?;
        driver.set_current_context(context)?;
        let native = driver.context_device();
        if let Some(previous) = previous {
            driver.set_current_context(previous)?;
        }
        let native = native?;
        if native != claimed.native {
            let actual = runtime.devices().iter().find(|device| device.native == native);
            return Err(wrong_device(handle, actual.map_or(native as u32, |device| device.ordinal), claimed.ordinal));
        }
    }
    let blocking = runtime
        .in_any_context(|driver| is_blocking(driver, stream))
        .context(|| format!("querying whether stream {handle:#x} synchronizes with the default stream"))?;
    runtime.streams.add(stream, StreamInfo::new(claimed.ordinal, StreamOrigin::External { blocking }))?;
    Ok(handle)
}

/// Returns whether a stream and the default stream wait for each other; `None` if it is capturing, because the query
/// would invalidate the capture.
fn is_blocking(driver: &Driver, stream: driver::Stream) -> Result<Option<bool>> {
    let _held = capture_lock::lock_shared();
    if capture_status::of(driver, stream)? != CaptureStatus::None {
        return Ok(None);
    }
    Ok(Some(driver.stream_is_blocking(stream)?))
}

#[cold]
fn mismatch(stream: Stream, device: u32) -> Error {
    Error::new(
        Status::DEVICE_MISMATCH,
        format!("the call works on device {device}, and its stream argument is {}", stream.describe()),
    )
}

#[cold]
fn wrong_device(handle: usize, actual: u32, claimed: u32) -> Error {
    Error::new(Status::DEVICE_MISMATCH, format!("stream {handle:#x} belongs to device {actual}, not {claimed}"))
}

/// Returns the handle of the thread's current stream on a device.
#[inline]
pub fn current(device: i32) -> Result<usize> {
    let runtime = runtime::ready()?;
    if device == -1 {
        return Ok(thread::stream(thread::device()).handle());
    }
    if device as usize >= runtime.devices().len() {
        return Err(properties::no_such_device_error(device, runtime.devices().len()));
    }
    Ok(thread::stream(device as u32).handle())
}

/// Returns the handle of a device's default stream, which is 0 on every device.
pub fn default(device: i32) -> Result<usize> {
    runtime::ready()?.device(device)?;
    Ok(driver::Stream::DEFAULT.handle())
}

/// Makes a stream current on its device, and its device current.
pub fn set(handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = resolve(runtime, handle)?;
    let device = runtime.device(stream.device() as i32)?;
    if thread::device() != stream.device() {
        device.make_current(&runtime.driver)?;
    }
    thread::set_stream(stream.device(), stream.raw);
    Ok(())
}

/// Makes a stream current on its device, and leaves the current device as it is. NULL is the device's
/// default stream.
pub fn set_on(device: i32, handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let device = runtime.device(device)?.ordinal;
    thread::set_stream(device, resolve_same(runtime, handle, device)?.raw);
    Ok(())
}

/// The state that a stream context restores on exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedStreams {
    /// The device that was current.
    pub device: u32,
    /// The stream that was current on that device.
    pub stream: usize,
    /// The device of the stream that was entered.
    pub entered_device: u32,
    /// The stream that was current on the entered device.
    pub entered_stream: usize,
}

/// Makes a stream and its device current, and returns the previous state.
pub fn enter(handle: usize) -> Result<SavedStreams> {
    let runtime = runtime::ready()?;
    let entered_device = resolve(runtime, handle)?.device();
    let device = thread::device();
    let saved = SavedStreams {
        device,
        stream: thread::stream(device).handle(),
        entered_device,
        entered_stream: thread::stream(entered_device).handle(),
    };
    set(handle)?;
    Ok(saved)
}

/// Restores the state that [`enter`] returned: first the stream of the entered device, then the previous device and
/// its stream.
pub fn exit(saved: SavedStreams) -> Result<()> {
    let runtime = runtime::ready()?;
    let device = runtime.device(saved.device as i32)?;
    runtime.device(saved.entered_device as i32)?;
    let (stream, entered_stream) = (resolve(runtime, saved.stream)?.raw, resolve(runtime, saved.entered_stream)?.raw);
    if thread::device() != saved.device {
        device.make_current(&runtime.driver)?;
    }
    thread::set_stream(saved.entered_device, entered_stream);
    thread::set_stream(saved.device, stream);
    Ok(())
}

/// Returns whether all work of a stream is done.
#[inline]
pub fn query(handle: usize) -> Result<bool> {
    let runtime = runtime::ready()?;
    let stream = resolve(runtime, handle)?;
    let ahead = observe::end_of_stream(stream);
    let done = runtime
        .in_stream(stream, |driver, raw| Ok(driver.stream_query(raw)?))
        .context(|| format!("querying {}", stream.describe()))?;
    if done {
        ahead.finish();
    }
    Ok(done)
}

/// Waits until all work of a stream is done.
pub fn synchronize(handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = resolve(runtime, handle)?;
    sync_debug::check("plinth_stream_synchronize")?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.stream_synchronize(raw)?))
        .context(|| format!("synchronizing {}", stream.describe()))
}

/// Waits until all work of a device is done.
pub fn synchronize_device(number: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    sync_debug::check("plinth_synchronize")?;
    capture_lock::synchronize_device(runtime, device)
}

/// Makes later work of one stream wait for the work that another has now.
pub fn wait_stream(handle: usize, other: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let (waiting, awaited) = (resolve(runtime, handle)?, resolve(runtime, other)?);
    if handle == other && waiting.device() == awaited.device() {
        return Ok(());
    }
    make_wait(runtime, waiting, awaited)
}

/// Returns the priority of a stream.
pub fn priority(handle: usize) -> Result<i32> {
    let runtime = runtime::ready()?;
    let stream = resolve(runtime, handle)?;
    match stream.origin() {
        StreamOrigin::Default => Ok(0),
        StreamOrigin::Pool { priority, .. } | StreamOrigin::Dedicated { priority } => Ok(priority.into()),
        StreamOrigin::Kept | StreamOrigin::External { .. } => {
            runtime.in_stream(stream, |driver, raw| Ok(driver.stream_priority(raw)?))
        }
    }
}

/// Returns the stream ID in torch's encoding: 0 for a default stream; for a pooled stream its index, its priority and
/// a low bit of 1; for any other stream its handle.
pub fn id(handle: usize) -> Result<u64> {
    let stream = resolve(runtime::ready()?, handle)?;
    Ok(match stream.origin() {
        StreamOrigin::Default => 0,
        StreamOrigin::Pool { priority, index } => {
            u64::from(index) << 5 | (1 - i64::from(priority)).unsigned_abs() << 1 | 1
        }
        StreamOrigin::Dedicated { .. } | StreamOrigin::Kept | StreamOrigin::External { .. } => {
            stream.raw.handle() as u64
        }
    })
}

/// Names a stream in messages, reports, snapshots and profilers; an empty name removes the name.
pub fn set_name(handle: usize, name: &str) -> Result<()> {
    let stream = resolve(runtime::ready()?, handle)?;
    names::set(Subject::stream(stream.raw.handle(), stream.device()), name);
    if nvtx::listens() && !stream.is_default() {
        nvtx::name_stream(stream.raw, &CString::new(name).unwrap_or_default());
    }
    Ok(())
}

/// Returns the name of a stream; empty if it has none.
pub fn name(handle: usize) -> Result<Arc<str>> {
    let stream = resolve(runtime::ready()?, handle)?;
    Ok(names::get(Subject::stream(stream.raw.handle(), stream.device())).unwrap_or_else(|| "".into()))
}

/// Returns the number of a stream's device.
pub fn device(handle: usize) -> Result<u32> {
    Ok(resolve(runtime::ready()?, handle)?.device())
}

/// Launches a host function in a stream, which calls it once its earlier work is done.
pub fn launch_host_function(handle: usize, function: HostFunction) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = resolve(runtime, handle)?;
    let first = observe::before_host_function(runtime, stream)?;
    runtime
        .in_stream(stream, |driver, raw| {
            Ok(match &first {
                None => driver.launch_host_function(raw, function),
                Some(first) => driver.launch_host_function_after(raw, first.clone(), function),
            }?)
        })
        .context(|| format!("launching a host function on {}", stream.describe()))
}

/// Returns the thread's current stream on a device. Fails if another thread has ended it.
pub fn current_on(runtime: &Runtime, device: u32) -> Result<Stream> {
    let raw = thread::stream(device);
    if raw.handle() <= CU_STREAM_PER_THREAD {
        return default_stream(runtime, raw.handle(), device);
    }
    let Some((raw, info)) = runtime.streams.find(raw.handle()) else { return Err(ended_current(raw, device)) };
    Ok(Stream { raw, info })
}

#[cold]
fn ended_current(raw: driver::Stream, device: u32) -> Error {
    Error::new(
        Status::INVALID_HANDLE,
        format!(
            "the calling thread's current stream on device {device}, {:#x}, was destroyed by another thread; set \
             another one with plinth_set_stream_of",
            raw.handle()
        ),
    )
}

/// Creates a [`Stream`] from a driver stream that was validated before.
pub fn from_validated(runtime: &Runtime, raw: driver::Stream, device: u32) -> Stream {
    match runtime.streams.find(raw.handle()) {
        Some((_, info)) => Stream { raw, info },
        None => {
            let generation = runtime.streams.generation(raw.handle());
            Stream { raw, info: StreamInfo::new(device, StreamOrigin::Default).with_generation(generation) }
        }
    }
}

impl Device {
    /// Returns the pools that streams are handed out from.
    #[inline]
    pub(super) fn stream_pools(&self) -> &'static StreamPools {
        static VALUES: PerDevice<StreamPools> = PerDevice::new();
        VALUES.of(self)
    }
}
