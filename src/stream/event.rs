//! Events: marks in streams that can be waited for, asked, and timed.
//!
//! An event costs nothing until its first record, which decides its device. The driver's events behind destroyed ones
//! are kept and used again, so that making and destroying events does not go through the driver; an event that other
//! processes may have opened is the exception.

use crate::{
    base::handle::{HandleTable, Kind},
    driver::{self, EventCell, StreamCell, codes, types::*},
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device, sync_debug},
    sanitizer,
    status::Status,
    stream::{self, Stream, capture_lock, event_pool},
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

pub use event_pool::{BLOCKING, EXTERNAL, INTERPROCESS, TIMING};

/// An event. Its fields are read without a lock; `creation` orders the threads that would make the driver's event.
#[derive(Default)]
pub struct Event {
    flags: AtomicU32,
    device: AtomicI32,
    recorded: AtomicBool,
    native: EventCell,
    /// See [`Event::wait_through_relay`].
    relay: StreamCell,
    creation: Mutex<()>,
}

static EVENTS: HandleTable<Event> = HandleTable::new(Kind::Event);

/// Makes an event that is not recorded, as a handle. Needs no device.
pub fn create(flags: u32) -> Result<u64> {
    if flags & !(TIMING | BLOCKING | INTERPROCESS | EXTERNAL) != 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("{flags:#x} are not flags of an event")));
    }
    if flags & INTERPROCESS != 0 && flags & TIMING != 0 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "an event cannot have both PLINTH_EVENT_INTERPROCESS and PLINTH_EVENT_TIMING",
        ));
    }
    EVENTS.insert(|event| {
        event.flags.store(flags, Ordering::Relaxed);
        event.device.store(-1, Ordering::Relaxed);
        event.recorded.store(false, Ordering::Relaxed);
    })
}

/// Ends an event. Work that waits for it goes on waiting for what it had recorded. If the driver refuses to destroy its
/// event, which only one for other processes comes to, the event stays as it was.
pub fn destroy(handle: u64) -> Result<()> {
    let event = EVENTS.get(handle)?;
    let _creation = event.creation.lock();
    // Another thread may have ended it meanwhile, and its slot may be another event's. From here on only this thread can.
    EVENTS.get(handle)?;
    // In a forked child or an exiting process the driver's objects are left to the operating system.
    if let Some(runtime) = runtime::usable()
        && let Some(relay) = event.relay.take()
        && let Err(error) = runtime.in_any_context(|driver| Ok(driver.stream_destroy(relay)?))
    {
        event.relay.set(relay);
        return Err(error.context("destroying an event"));
    }
    if event.flags.load(Ordering::Relaxed) & INTERPROCESS != 0
        && let Some(runtime) = runtime::usable()
        && let Some(native) = event.native.take()
        && let Err(error) = runtime.in_any_context(|driver| Ok(driver.event_destroy(native)?))
    {
        event.native.set(native);
        return Err(error.context("destroying an event"));
    }
    EVENTS.remove(handle, |event| {
        if let Some(native) = event.native.take()
            && let Some(runtime) = runtime::usable()
            && let Ok(device) = runtime.device(event.device.load(Ordering::Relaxed))
        {
            event_pool::give_back(device, event.flags.load(Ordering::Relaxed), native);
        }
    })
}

impl Event {
    /// The driver's event, made on `device` if there is none yet.
    #[inline]
    fn native_on(&self, runtime: &Runtime, device: u32) -> Result<driver::Event> {
        match self.native.get() {
            Some(native) if self.device.load(Ordering::Relaxed) == device as i32 => Ok(native),
            _ => self.make_native(runtime, device),
        }
    }

    #[cold]
    fn make_native(&self, runtime: &Runtime, device: u32) -> Result<driver::Event> {
        let _creation = self.creation.lock();
        let own = self.device.load(Ordering::Relaxed);
        match self.native.get() {
            Some(native) if own == device as i32 => Ok(native),
            Some(_) => Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("event device {own} does not match recording stream's device {device}"),
            )),
            None => {
                let flags = self.flags.load(Ordering::Relaxed);
                let native = event_pool::take(runtime.device(device as i32)?, &runtime.driver, flags)?;
                self.device.store(device as i32, Ordering::Relaxed);
                self.native.set(native);
                Ok(native)
            }
        }
    }

    /// Whether work with this event in `stream` is to become a node of a graph.
    #[inline]
    fn is_external_in(&self, runtime: &Runtime, stream: Stream) -> Result<bool> {
        if self.flags.load(Ordering::Relaxed) & EXTERNAL == 0 { Ok(false) } else { Self::is_active(runtime, stream) }
    }

    #[cold]
    fn is_active(runtime: &Runtime, stream: Stream) -> Result<bool> {
        runtime
            .in_stream(stream, |driver, raw| Ok(driver.stream_capture_status(raw)? == CU_STREAM_CAPTURE_STATUS_ACTIVE))
    }
}

impl Event {
    #[cold]
    fn wait_specially(&self, runtime: &Runtime, native: driver::Event, stream: Stream) -> Result<()> {
        let device = self.device.load(Ordering::Relaxed);
        if self.flags.load(Ordering::Relaxed) & INTERPROCESS != 0 && device != stream.device as i32 {
            return self.wait_through_relay(runtime, runtime.device(device)?, native, stream);
        }
        let external = self.is_external_in(runtime, stream)?;
        let flags = if external { CU_EVENT_WAIT_EXTERNAL } else { CU_EVENT_WAIT_DEFAULT };
        runtime.in_stream(stream, |driver, raw| Ok(driver.stream_wait_event(raw, native, flags)?))
    }

    /// Lets a stream of another device wait for an interprocess event. The driver (580, CUDA 13.0) crashes when asked
    /// for that, so a stream of the event's own device waits in its place, and is waited for by an ordinary event. The
    /// stream is this event's alone: shared, it would make one event's waiters wait for another's.
    fn wait_through_relay(
        &self,
        runtime: &Runtime,
        device: &Device,
        native: driver::Event,
        stream: Stream,
    ) -> Result<()> {
        let _creation = self.creation.lock();
        let relay = match self.relay.get() {
            Some(relay) => relay,
            None => {
                let relay = device.with_context(&runtime.driver, |driver| {
                    Ok(driver.with_relaxed_capture(|| driver.stream_create(0))??)
                })?;
                self.relay.set(relay);
                relay
            }
        };
        event_pool::with(runtime, device.ordinal, |pooled| {
            runtime.in_any_context(|driver| {
                driver.stream_wait_event(relay, native, CU_EVENT_WAIT_DEFAULT)?;
                Ok(driver.event_record(pooled, relay)?)
            })?;
            runtime.in_stream(stream, |driver, raw| Ok(driver.stream_wait_event(raw, pooled, CU_EVENT_WAIT_DEFAULT)?))
        })
    }
}

/// Records an event in a stream: it is complete when the work that the stream has now is.
#[inline]
pub fn record(handle: u64, stream_handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let event = EVENTS.get(handle)?;
    let stream = stream::resolve(runtime, stream_handle)?;
    let native = event.native_on(runtime, stream.device)?;
    if event.is_external_in(runtime, stream)? {
        runtime.in_stream(stream, |driver, raw| Ok(driver.event_record_external(native, raw)?))?;
    } else {
        runtime.in_stream(stream, |driver, raw| Ok(driver.event_record(native, raw)?))?;
    }
    event.recorded.store(true, Ordering::Release);
    Ok(())
}

/// The driver's event behind one that nodes of a graph on a device record or wait for.
pub fn for_graph(handle: u64, device: u32, records: bool) -> Result<driver::Event> {
    let runtime = runtime::ready()?;
    let event = EVENTS.get(handle)?;
    let native = match event.native.get() {
        // A wait may be for another device's event.
        Some(native) if !records => native,
        _ => event.native_on(runtime, device)?,
    };
    if records {
        event.recorded.store(true, Ordering::Release);
    }
    Ok(native)
}

/// Lets later work of a stream wait for what an event recorded last; nothing happens if it never was recorded.
#[inline]
pub fn wait(handle: u64, stream_handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let event = EVENTS.get(handle)?;
    let stream = stream::resolve(runtime, stream_handle)?;
    let Some(native) = event.native.get() else { return Ok(()) };
    if event.flags.load(Ordering::Relaxed) & (EXTERNAL | INTERPROCESS) != 0 {
        return capture_lock::join(|| event.wait_specially(runtime, native, stream));
    }
    capture_lock::join(|| {
        runtime.in_stream(stream, |driver, raw| Ok(driver.stream_wait_event(raw, native, CU_EVENT_WAIT_DEFAULT)?))
    })
}

/// Whether what an event recorded last is complete; true if it never was recorded.
#[inline]
pub fn query(handle: u64) -> Result<bool> {
    let event = EVENTS.get(handle)?;
    let Some(native) = event.native.get() else { return Ok(true) };
    let runtime = runtime::ready()?;
    let ahead = sanitizer::end_of_event(native);
    let done = runtime.in_any_context(|driver| Ok(driver.event_query(native)?))?;
    if done {
        ahead.finish();
    }
    Ok(done)
}

/// Waits on the CPU for what an event recorded last; returns at once if it never was recorded.
pub fn synchronize(handle: u64) -> Result<()> {
    let event = EVENTS.get(handle)?;
    let Some(native) = event.native.get() else { return Ok(()) };
    let runtime = runtime::ready()?;
    sync_debug::check("plinth_event_synchronize")?;
    runtime.in_any_context(|driver| Ok(driver.event_synchronize(native)?)).context(|| "synchronizing an event")
}

/// Milliseconds from one event to another.
pub fn elapsed_time(start: u64, end: u64) -> Result<f32> {
    let (start, end) = (EVENTS.get(start)?, EVENTS.get(end)?);
    let both = |condition: fn(&Event) -> bool| condition(start) && condition(end);
    if !both(|event| event.flags.load(Ordering::Relaxed) & TIMING != 0) {
        return Err(Error::new(
            Status::EVENT_TIMING_DISABLED,
            "both events must be created with PLINTH_EVENT_TIMING to measure the time between them",
        ));
    }
    let recorded = both(|event| event.recorded.load(Ordering::Acquire));
    let (Some(start_native), Some(end_native), true) = (start.native.get(), end.native.get(), recorded) else {
        return Err(Error::new(
            Status::EVENT_NOT_RECORDED,
            "both events must be recorded before the time between them is asked",
        ));
    };
    let devices = (start.device.load(Ordering::Relaxed), end.device.load(Ordering::Relaxed));
    if devices.0 != devices.1 {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("the start event is on device {}, the end event on device {}", devices.0, devices.1),
        ));
    }
    let runtime = runtime::ready()?;
    let ahead = [start_native, end_native].map(sanitizer::end_of_event);
    let elapsed = runtime.in_any_context(|driver| Ok(driver.event_elapsed_time(start_native, end_native)?));
    if elapsed.is_ok() {
        ahead.iter().for_each(sanitizer::PendingWait::finish);
    }
    elapsed.map_err(|error| match error.driver_code() {
        codes::CUDA_ERROR_NOT_READY => {
            Error::new(Status::EVENT_NOT_COMPLETE, "both events must be complete before the time between them is asked")
        }
        _ => error,
    })
}

/// The number of the device that an event belongs to; `None` before its first record.
pub fn device(handle: u64) -> Result<Option<u32>> {
    let event = EVENTS.get(handle)?;
    Ok(event.native.get().and_then(|_| u32::try_from(event.device.load(Ordering::Relaxed)).ok()))
}

/// The driver's own handle of an event; 0 before its first record.
pub fn native(handle: u64) -> Result<usize> {
    Ok(EVENTS.get(handle)?.native.get().map_or(0, driver::Event::native))
}

/// What another process needs to open an event. Makes the event on the current device if it has none.
pub fn ipc_handle(handle: u64) -> Result<[u8; 64]> {
    let event = EVENTS.get(handle)?;
    if event.flags.load(Ordering::Relaxed) & INTERPROCESS == 0 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "only an event created with PLINTH_EVENT_INTERPROCESS can be opened by other processes",
        ));
    }
    let runtime = runtime::ready()?;
    let native = match event.native.get() {
        Some(native) => native,
        None => event.native_on(runtime, runtime.current_device()?.ordinal)?,
    };
    runtime
        .in_any_context(|driver| Ok(driver.event_ipc_handle(native)?))
        .context(|| "sharing an event with other processes")
}

/// Opens another process's event on a device, as a handle.
pub fn from_ipc_handle(number: i32, shared: [u8; 64]) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let native = device
        .with_context(&runtime.driver, |driver| Ok(driver.event_open_ipc(shared)?))
        .map_err(|error| match error.driver_code() {
            // The driver tries to map whatever memory the bytes name.
            codes::CUDA_ERROR_MAP_FAILED => error.with_status(Status::INVALID_VALUE),
            _ => error,
        })
        .context(|| "opening another process's event")?;
    let opened = EVENTS.insert(|event| {
        event.flags.store(INTERPROCESS, Ordering::Relaxed);
        event.device.store(device.ordinal as i32, Ordering::Relaxed);
        event.recorded.store(true, Ordering::Relaxed);
        event.native.set(native);
    });
    opened.inspect_err(|_| {
        // The handle table is full: give the driver's event back; the error that counts is the table's.
        let _ = runtime.driver.event_destroy(native);
    })
}

/// How many events are live.
pub fn live() -> usize {
    EVENTS.live()
}
