//! The beginning and the end of streams that have one owner.
//!
//! plinth refers to streams long after the calls that used them: memory is cached for a stream, and a freed block may
//! wait for one. Before a stream ends, a stream of the library, its successor, waits for its work. From then on every
//! [`StreamUse`] of the ended stream stands for the successor, so nothing uses the handle again, even if the driver
//! gives it to another stream.

use super::{
    Stream, StreamUse, capture_lock, capture_status::CaptureStatus, capture_status::of as capture_status,
    from_validated, ordering,
};
use crate::{
    base::retry::retry,
    driver::{self, StreamInfo, StreamOrigin},
    error::{Context, Error, Result},
    runtime::{
        self, Runtime,
        device::Device,
        names::{self, Subject},
        per_device::PerDevice,
        thread,
    },
    status::Status,
};
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of streams that have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// Returns the number of streams that have ended. While it stays the same, a handle denotes the same stream.
#[inline]
pub fn count_ended() -> u32 {
    ENDED.load(Ordering::Acquire)
}

/// Creates a stream for the caller alone. Clamps the priority to the device's range.
pub fn create_dedicated(device: i32, priority: i32) -> Result<usize> {
    create(device, priority, |priority| StreamOrigin::Dedicated { priority })
}

/// Creates a stream that never ends.
pub fn create_kept(device: i32) -> Result<usize> {
    create(device, 0, |_| StreamOrigin::Kept)
}

fn create(device: i32, priority: i32, origin: impl FnOnce(i8) -> StreamOrigin) -> Result<usize> {
    let runtime = runtime::ready()?;
    let device = runtime.device(device)?;
    let (least, greatest) = device.priority_range(&runtime.driver)?;
    let priority = priority.clamp(greatest, least);
    let stream = new_stream(runtime, device, priority)?;
    let info = StreamInfo::new(device.ordinal, origin(priority as i8));
    if let Err(error) = runtime.streams.add(stream, info) {
        // The first error is returned.
        retry(|| runtime.in_any_context(|driver| Ok(driver.stream_destroy(stream)?)));
        return Err(error);
    }
    Ok(stream.handle())
}

/// Creates a stream of the driver's.
pub(super) fn new_stream(runtime: &Runtime, device: &Device, priority: i32) -> Result<driver::Stream> {
    device
        .with_context(&runtime.driver, |driver| Ok(driver.with_relaxed_capture(|| driver.stream_create(priority))??))
        .context(|| format!("creating a stream of priority {priority} on device {}", device.ordinal))
}

/// What the owner of a stream is doing with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// plinth destroys a stream that [`create_dedicated`] created.
    Destroy,
    /// The owner is about to destroy an external stream.
    Unregister,
}

/// Returns the stream that a caller ends.
pub fn owned(runtime: &Runtime, handle: usize, end: End) -> Result<Stream> {
    let stream = super::resolve(runtime, handle)?;
    let reason = match (stream.origin(), end) {
        (StreamOrigin::Dedicated { .. }, End::Destroy) | (StreamOrigin::External { .. }, End::Unregister) => {
            return Ok(stream);
        }
        (StreamOrigin::Default, _) => "a default stream has no owner",
        (StreamOrigin::Pool { .. }, _) => "the library owns the streams of its pools, and keeps them",
        (StreamOrigin::Kept, _) => {
            "the library owns the streams of green contexts and its own for captures, and keeps them"
        }
        (StreamOrigin::External { .. }, End::Destroy) => {
            "plinth did not create it; call plinth_stream_unregister, and then destroy it with the call of its owner"
        }
        (StreamOrigin::Dedicated { .. }, End::Unregister) => "plinth created it; call plinth_stream_destroy",
    };
    Err(Error::new(Status::INVALID_HANDLE, format!("ending {}: {reason}", stream.describe())))
}

/// Ends a stream. `hand_over` gives what belongs to the stream on a device to the successor there, which waits for the
/// stream's work; `is_used_on` says of other devices than the stream's own whether there is anything. The CPU does not
/// wait.
pub fn end(
    runtime: &Runtime,
    stream: Stream,
    end: End,
    is_used_on: impl Fn(&Device) -> bool,
    hand_over: impl Fn(&Device, Stream),
) -> Result<()> {
    let handle = stream.raw.handle();
    let devices = runtime.devices().iter().filter(|device| device.ordinal == stream.device() || is_used_on(device));
    let devices: Vec<&Device> = devices.collect();
    let ended = runtime.driver.with_relaxed_capture(|| {
        let successors = devices.iter().map(|device| device.successor(runtime)).collect::<Result<Vec<Stream>>>()?;
        // Library code that refers to a stream of another thread holds the lock shared, from the lookup to its last call.
        let _exclusive = capture_lock::lock_exclusive();
        if runtime.in_stream(stream, capture_status)? != CaptureStatus::None {
            return Err(Error::new(
                Status::CAPTURE_FORBIDS,
                format!("{} is capturing; end the capture first", stream.describe()),
            ));
        }
        ordering::order(runtime, &successors, stream)?;
        devices.iter().zip(successors).for_each(|(device, successor)| hand_over(device, successor));
        runtime.streams.end(handle);
        ENDED.fetch_add(1, Ordering::AcqRel);
        // Once the driver has destroyed the stream, its handle may be that of another one.
        let subject = Subject::stream(handle, stream.device());
        let name = names::get(subject);
        names::set(subject, "");
        if end == End::Destroy
            && let Err(error) = runtime.in_any_context(|driver| Ok(driver.stream_destroy(stream.raw)?))
        {
            // The stream exists. It begins anew, without memory.
            runtime.streams.add(stream.raw, stream.info)?;
            names::set(subject, name.as_deref().unwrap_or_default());
            return Err(error);
        }
        if thread::stream(stream.device()) == stream.raw {
            thread::set_stream(stream.device(), driver::Stream::DEFAULT);
        }
        Ok(())
    })?;
    ended.context(|| format!("ending {}", stream.describe()))
}

/// Returns whether the stream of a use has ended.
pub fn has_ended(runtime: &Runtime, stream_use: StreamUse) -> bool {
    runtime.streams.generation(stream_use.stream.handle()) != stream_use.generation
}

/// Returns the stream of a use, or a stream that is ordered after it: for a stream that has ended its successor, and for
/// another thread's per-thread default stream, which has no handle here, the legacy default stream.
pub fn of_use(runtime: &Runtime, stream_use: StreamUse) -> Stream {
    let device = runtime.devices().get(stream_use.device as usize);
    match device.and_then(|device| device.successor_cell().get()) {
        Some(successor) if has_ended(runtime, stream_use) => from_validated(runtime, *successor, stream_use.device),
        // The generation is that of the use, because the stream may end before the result is used.
        _ => {
            let Stream { raw, info } = from_validated(runtime, stream_use.event_stream(), stream_use.device);
            Stream { raw, info: info.with_generation(stream_use.generation) }
        }
    }
}

impl Device {
    /// Returns the stream that stands for all streams of the device that have ended. No program has its handle, so it
    /// never captures.
    fn successor(&self, runtime: &Runtime) -> Result<Stream> {
        let successor = self.successor_cell().get_or_try_init(|| new_stream(runtime, self, 0))?;
        Ok(from_validated(runtime, *successor, self.ordinal))
    }

    fn successor_cell(&self) -> &'static OnceCell<driver::Stream> {
        static VALUES: PerDevice<OnceCell<driver::Stream>> = PerDevice::new();
        VALUES.of(self)
    }
}
