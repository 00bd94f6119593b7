//! Events: points in streams to wait for, query and time.
//!
//! Creating an event calls no driver function. Its first record decides its device and gets a driver event. The
//! driver events of destroyed events are pooled, so that creating and destroying events does not call the driver.
//! Interprocess events, and those that were first used in a graph, are not pooled.

use crate::{
    base::{
        cancellation,
        handle::{HandleTable, Kind},
        retry::retry,
    },
    driver::{self, EventCell, codes, types::*},
    error::{Context, Error, Result},
    observe,
    runtime::{self, Runtime, device::Device, sync_debug, thread},
    status::Status,
    stream::{
        self, Stream, capture_lock,
        capture_status::{self, CaptureStatus},
        event_pool, ordering,
    },
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

pub use event_pool::{BLOCKING, EXTERNAL, INTERPROCESS, TIMING};

/// An event. Its fields are read without a lock.
#[derive(Default)]
pub struct Event {
    flags: AtomicU32,
    device: AtomicI32,
    recorded: AtomicBool,
    native: EventCell,
    creation: Mutex<Creation>,
}

/// Serializes the threads that create driver objects for an event.
#[derive(Default)]
struct Creation {
    /// The stream of [`Event::wait_through_relay`].
    relay: Option<driver::Stream>,
    /// Whether the driver event was created for a graph's node. It is destroyed, since the pool would grow by each one.
    for_node: bool,
    /// Whether the driver has refused to record a driver event from the pool, which may have a record of another event.
    refused: bool,
}

static EVENTS: HandleTable<Event> = HandleTable::new(Kind::Event);

/// Creates an event that is not recorded, and returns its handle. Needs no device.
pub fn create(flags: u32) -> Result<u64> {
    if flags & !(TIMING | BLOCKING | INTERPROCESS | EXTERNAL) != 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("creating an event: {flags:#x} has undefined flags")));
    }
    if flags & INTERPROCESS != 0 && flags & TIMING != 0 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "creating an event: PLINTH_EVENT_INTERPROCESS and PLINTH_EVENT_TIMING exclude each other",
        ));
    }
    EVENTS.insert(|event| {
        event.flags.store(flags, Ordering::Relaxed);
        event.device.store(-1, Ordering::Relaxed);
        event.recorded.store(false, Ordering::Relaxed);
    })
}

/// Destroys an event. Work that waits for it continues to wait for its last record. If the driver fails to destroy
/// its event, which is possible only for an interprocess event or one of a graph, the event stays valid.
pub fn destroy(handle: u64) -> Result<()> {
    let event = EVENTS.get(handle)?;
    let mut creation = event.creation.lock();
    // Another thread may have destroyed it meanwhile, and its slot may hold another event. From here on only this
    // thread can destroy it.
    EVENTS.get(handle)?;
    // In a forked child or an exiting process the operating system reclaims the driver's objects.
    if let Some(runtime) = runtime::usable()
        && let Some(relay) = creation.relay.take()
        && let Err(error) = runtime.in_any_context(|driver| Ok(driver.stream_destroy(relay)?))
    {
        creation.relay = Some(relay);
        return Err(error.context("destroying an event"));
    }
    if (creation.for_node || event.flags.load(Ordering::Relaxed) & INTERPROCESS != 0)
        && let Some(runtime) = runtime::usable()
        && let Some(native) = event.native.take()
        && let Err(error) = runtime.in_any_context(|driver| Ok(driver.event_destroy(native)?))
    {
        event.native.set(native);
        return Err(error.context("destroying an event"));
    }
    (creation.for_node, creation.refused) = (false, false);
    EVENTS.remove(handle, |event| {
        if let Some(native) = event.native.take()
            && let Some(runtime) = runtime::usable()
            && let Ok(device) = runtime.device(event.device.load(Ordering::Relaxed))
        {
            event_pool::release(device, event.flags.load(Ordering::Relaxed), native);
        }
    })
}

impl Event {
    /// Returns the device that the event can be recorded on; the current one if any.
    #[inline]
    fn device(&self) -> u32 {
        u32::try_from(self.device.load(Ordering::Relaxed)).unwrap_or_else(|_| thread::device())
    }

    /// Returns the driver event, and gets one on `device` first if there is none.
    #[inline]
    fn native_on(&self, runtime: &Runtime, device: u32) -> Result<driver::Event> {
        match self.native.get() {
            Some(native) if self.device.load(Ordering::Relaxed) == device as i32 => Ok(native),
            _ => self.make_native(runtime, device, false),
        }
    }

    /// Returns the driver event for a graph's node, and creates one on `device` first if there is none. It is not from
    /// the pool: until the graph is replayed, it must not show the record of another event.
    fn native_of_node(&self, runtime: &Runtime, device: u32, records: bool) -> Result<driver::Event> {
        let mut creation = self.creation.lock();
        match self.native.get() {
            Some(unused) if creation.refused && self.recorded_native().is_none() => {
                let pool = runtime.device(self.device.load(Ordering::Relaxed))?;
                creation.refused = false;
                self.native.take();
                event_pool::release(pool, self.flags.load(Ordering::Relaxed), unused);
            }
            // A wait may be for another device's event.
            Some(native) if !records => return Ok(native),
            _ => {}
        }
        drop(creation);
        self.make_native(runtime, device, true)
    }

    #[cold]
    fn on_refused_record(&self) {
        let mut creation = self.creation.lock();
        creation.refused = !creation.for_node;
    }

    /// Returns the driver event, if it has a record of this event. If the driver has refused the first record, the
    /// driver event may have one of its previous owner.
    #[inline]
    fn recorded_native(&self) -> Option<driver::Event> {
        // Another process may have recorded an interprocess event.
        let recorded = self.recorded.load(Ordering::Acquire) || self.flags.load(Ordering::Relaxed) & INTERPROCESS != 0;
        self.native.get().filter(|_| recorded)
    }

    #[cold]
    fn make_native(&self, runtime: &Runtime, device: u32, for_node: bool) -> Result<driver::Event> {
        let _uncancellable = cancellation::disable();
        let mut creation = self.creation.lock();
        let own = self.device.load(Ordering::Relaxed);
        match self.native.get() {
            Some(native) if own == device as i32 => Ok(native),
            Some(_) => Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("event device {own} does not match recording stream's device {device}"),
            )),
            None => {
                let flags = self.flags.load(Ordering::Relaxed);
                let make = if for_node { event_pool::create } else { event_pool::acquire };
                let native = make(runtime.device(device as i32)?, &runtime.driver, flags)?;
                creation.for_node = for_node;
                self.device.store(device as i32, Ordering::Relaxed);
                self.native.set(native);
                Ok(native)
            }
        }
    }

    /// Returns whether operations on this event in `stream` become nodes of a graph.
    #[inline]
    fn is_node_in(&self, runtime: &Runtime, stream: Stream) -> Result<bool> {
        if self.flags.load(Ordering::Relaxed) & EXTERNAL == 0 { Ok(false) } else { Self::is_captured(runtime, stream) }
    }

    #[cold]
    fn is_captured(runtime: &Runtime, stream: Stream) -> Result<bool> {
        let _uncancellable = cancellation::disable();
        runtime.in_stream(stream, |driver, raw| Ok(capture_status::of(driver, raw)? == CaptureStatus::Active))
    }
}

impl Event {
    #[cold]
    fn wait_with_flags(&self, runtime: &Runtime, stream: Stream) -> Result<()> {
        let _uncancellable = cancellation::disable();
        let device = self.device.load(Ordering::Relaxed);
        if let Some(native) = self.recorded_native()
            && self.flags.load(Ordering::Relaxed) & INTERPROCESS != 0
            && device != stream.device() as i32
        {
            return self.wait_through_relay(runtime, runtime.device(device)?, native, stream);
        }
        if self.is_node_in(runtime, stream)? {
            // Replays wait for the last record before them, also if the event is recorded only later.
            let native = self.native_of_node(runtime, stream.device(), false)?;
            return runtime
                .in_stream(stream, |driver, raw| Ok(driver.stream_wait_event(raw, native, CU_EVENT_WAIT_EXTERNAL)?));
        }
        self.recorded_native().map_or(Ok(()), |native| ordering::wait(runtime, stream, native))
    }

    /// Makes a stream of another device wait for an interprocess event. The driver (580, CUDA 13.0) crashes on a
    /// direct wait. Therefore a relay stream of the event's device waits for it and records an ordinary event, and
    /// `stream` waits for that one. Each event has its own relay stream, because in a shared one the waits for one
    /// event would also wait for another.
    fn wait_through_relay(
        &self,
        runtime: &Runtime,
        device: &Device,
        native: driver::Event,
        stream: Stream,
    ) -> Result<()> {
        let mut creation = self.creation.lock();
        let relay = match creation.relay {
            Some(relay) => relay,
            None => {
                let relay = device.with_context(&runtime.driver, |driver| {
                    Ok(driver.with_relaxed_capture(|| driver.stream_create(0))??)
                })?;
                creation.relay = Some(relay);
                relay
            }
        };
        let relay = stream::from_validated(runtime, relay, device.ordinal);
        ordering::wait(runtime, relay, native)?;
        ordering::order(runtime, &[stream], relay)
    }
}

/// Records an event in a stream: it is complete when the work that the stream has now is.
#[inline]
pub fn record(handle: u64, stream_handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let event = EVENTS.get(handle)?;
    let stream = stream::resolve_on(runtime, stream_handle, event.device())?;
    if event.is_node_in(runtime, stream)? {
        let native = event.native_of_node(runtime, stream.device(), true)?;
        runtime.in_stream(stream, |driver, raw| Ok(driver.event_record_external(native, raw)?))?;
    } else {
        let native = event.native_on(runtime, stream.device())?;
        let recorded = runtime.in_stream(stream, |driver, raw| Ok(driver.event_record(native, raw)?));
        recorded.inspect_err(|_: &Error| event.on_refused_record())?;
    }
    event.recorded.store(true, Ordering::Release);
    Ok(())
}

/// Returns the driver event for graph nodes on a device that record it or wait for it.
pub fn for_graph(handle: u64, device: u32, records: bool) -> Result<driver::Event> {
    let runtime = runtime::ready()?;
    let event = EVENTS.get(handle)?;
    let native = event.native_of_node(runtime, device, records)?;
    if records {
        event.recorded.store(true, Ordering::Release);
    }
    Ok(native)
}

/// Makes later work of a stream wait for the last record of an event; has no effect if it was never recorded, unless it
/// adds a node to a capture.
#[inline]
pub fn wait(handle: u64, stream_handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let event = EVENTS.get(handle)?;
    let stream = stream::resolve(runtime, stream_handle)?;
    if event.flags.load(Ordering::Relaxed) & (EXTERNAL | INTERPROCESS) != 0 {
        return capture_lock::run_exclusive(|| event.wait_with_flags(runtime, stream))
            .context(|| format!("making {} wait for an event", stream.describe()));
    }
    let Some(native) = event.recorded_native() else { return Ok(()) };
    ordering::wait_for_event(runtime, stream, native)
        .context(|| format!("making {} wait for an event", stream.describe()))
}

/// Returns whether the last record of an event is complete; true if it was never recorded.
#[inline]
pub fn query(handle: u64) -> Result<bool> {
    let event = EVENTS.get(handle)?;
    let Some(native) = event.recorded_native() else { return Ok(true) };
    let runtime = runtime::ready()?;
    let ahead = observe::end_of_event(native);
    let done = runtime.in_any_context(|driver| Ok(driver.event_query(native)?)).context(|| "querying an event")?;
    if done {
        ahead.finish();
    }
    Ok(done)
}

/// Blocks the CPU until the last record of an event is complete; returns at once if it was never recorded.
pub fn synchronize(handle: u64) -> Result<()> {
    let event = EVENTS.get(handle)?;
    let Some(native) = event.recorded_native() else { return Ok(()) };
    let runtime = runtime::ready()?;
    sync_debug::check("plinth_event_synchronize")?;
    runtime.in_any_context(|driver| Ok(driver.event_synchronize(native)?)).context(|| "synchronizing an event")
}

#[cold]
fn not_recorded() -> Error {
    Error::new(
        Status::EVENT_NOT_RECORDED,
        "measuring the time between events: both events must be recorded first, those of a graph by a replay",
    )
}

/// Returns the milliseconds from one event to another.
pub fn elapsed_time(start: u64, end: u64) -> Result<f32> {
    let (start, end) = (EVENTS.get(start)?, EVENTS.get(end)?);
    let both = |condition: fn(&Event) -> bool| condition(start) && condition(end);
    if !both(|event| event.flags.load(Ordering::Relaxed) & TIMING != 0) {
        return Err(Error::new(
            Status::EVENT_TIMING_DISABLED,
            "measuring the time between events: both events must be created with PLINTH_EVENT_TIMING",
        ));
    }
    let recorded = both(|event| event.recorded.load(Ordering::Acquire));
    let (Some(start_native), Some(end_native), true) = (start.native.get(), end.native.get(), recorded) else {
        return Err(not_recorded());
    };
    let devices = (start.device.load(Ordering::Relaxed), end.device.load(Ordering::Relaxed));
    if devices.0 != devices.1 {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("the start event is on device {}, the end event on device {}", devices.0, devices.1),
        ));
    }
    let runtime = runtime::ready()?;
    let ahead = [start_native, end_native].map(observe::end_of_event);
    let elapsed = runtime.in_any_context(|driver| Ok(driver.event_elapsed_time(start_native, end_native)?));
    if elapsed.is_ok() {
        ahead.iter().for_each(observe::PendingWait::finish);
    }
    elapsed.map_err(|error| match error.driver_code() {
        codes::CUDA_ERROR_NOT_READY => {
            let reason = "measuring the time between events: both events must be complete; synchronize them first";
            Error::new(Status::EVENT_NOT_COMPLETE, reason)
        }
        // A graph records the event, but has not been replayed yet.
        codes::CUDA_ERROR_INVALID_HANDLE => not_recorded(),
        _ => error,
    })
}

/// Returns the number of the device that an event belongs to; `None` before its first record.
pub fn device(handle: u64) -> Result<Option<u32>> {
    let event = EVENTS.get(handle)?;
    Ok(event.native.get().and_then(|_| u32::try_from(event.device.load(Ordering::Relaxed)).ok()))
}

/// Returns the driver's handle of an event; 0 before its first record.
pub fn native(handle: u64) -> Result<usize> {
    Ok(EVENTS.get(handle)?.native.get().map_or(0, driver::Event::native))
}

/// Returns the IPC handle with which another process can open an event. Creates a driver event on the current device
/// if there is none.
pub fn ipc_handle(handle: u64) -> Result<[u8; 64]> {
    let event = EVENTS.get(handle)?;
    if event.flags.load(Ordering::Relaxed) & INTERPROCESS == 0 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "sharing an event with other processes: the event must be created with PLINTH_EVENT_INTERPROCESS",
        ));
    }
    let runtime = runtime::ready()?;
    let native = match event.native.get() {
        Some(native) => native,
        None => event.native_on(runtime, runtime.current_device()?.ordinal)?,
    };
    let device = runtime.device(event.device.load(Ordering::Relaxed))?;
    event_pool::ipc_handle(device, &runtime.driver, native).context(|| "sharing an event with other processes")
}

/// Opens another process's event on a device, and returns its handle.
pub fn from_ipc_handle(number: i32, shared: [u8; 64]) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let native = device
        .with_context(&runtime.driver, |driver| Ok(driver.event_open_ipc(shared)?))
        .map_err(|error| match error.driver_code() {
            // The driver tries to map whatever memory the bytes of the handle name.
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
        // The handle table is full, and its error is returned.
        retry(|| runtime.driver.event_destroy(native));
    })
}
