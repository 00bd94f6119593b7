//! CUDA events.

use super::{Call, Driver, DriverResult, Stream, call, codes, observer, types::*};
use std::{
    ffi::c_uint,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A CUDA event. plinth destroys an event only after the last handle that refers to it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event(usize);

impl Event {
    /// Returns the driver's pointer, for programs that call CUDA directly.
    pub fn native(self) -> usize {
        self.0
    }

    pub(super) fn raw(self) -> CUevent {
        self.0 as CUevent
    }

    pub(super) fn from_raw(event: CUevent) -> Event {
        Event(event as usize)
    }
}

/// An atomic cell that contains an event or none, so that many threads can read it without a lock.
#[derive(Debug, Default)]
pub struct EventCell(AtomicUsize);

impl EventCell {
    /// Returns the event.
    #[inline]
    pub fn get(&self) -> Option<Event> {
        let bits = self.0.load(Ordering::Acquire);
        (bits != 0).then_some(Event(bits))
    }

    /// Replaces the event.
    pub fn set(&self, event: Event) {
        self.0.store(event.0, Ordering::Release);
    }

    /// Removes and returns the event.
    pub fn take(&self) -> Option<Event> {
        let bits = self.0.swap(0, Ordering::AcqRel);
        (bits != 0).then_some(Event(bits))
    }
}

impl Driver {
    /// Creates an event in the calling thread's context. `flags` are `CU_EVENT_...`.
    pub fn event_create(&self, flags: c_uint) -> DriverResult<Event> {
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: the output is a live local, and wrong flags return an error code.
        unsafe { call!(self, cuEventCreate(&mut event, flags)) }?;
        Ok(Event(event as usize))
    }

    /// Destroys an event.
    pub fn event_destroy(&self, event: Event) -> DriverResult<()> {
        // SAFETY: an `Event` is live until this call, and its owner does not use it afterwards.
        unsafe { call!(self, cuEventDestroy_v2(event.raw())) }?;
        if let Some(observer) = observer::current() {
            observer.event_ended(event);
        }
        Ok(())
    }

    /// Records an event in a stream.
    #[inline]
    pub fn event_record(&self, event: Event, stream: Stream) -> DriverResult<()> {
        // SAFETY: both are live driver objects.
        unsafe { call!(self, cuEventRecord(event.raw(), stream.raw())) }?;
        if let Some(observer) = observer::current() {
            observer.recorded(self, event, stream, false);
        }
        Ok(())
    }

    /// Records an event in a capturing stream as a separate node of the graph.
    pub fn event_record_external(&self, event: Event, stream: Stream) -> DriverResult<()> {
        // SAFETY: both are live driver objects.
        unsafe { call!(self, cuEventRecordWithFlags(event.raw(), stream.raw(), CU_EVENT_RECORD_EXTERNAL)) }?;
        if let Some(observer) = observer::current() {
            observer.recorded(self, event, stream, true);
        }
        Ok(())
    }

    /// Returns whether the work that the event captured is complete.
    #[inline]
    pub fn event_query(&self, event: Event) -> DriverResult<bool> {
        // SAFETY: the event is a live driver object.
        match unsafe { call!(self, cuEventQuery(event.raw())) } {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == codes::CUDA_ERROR_NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Waits until the work that the event captured is complete.
    pub fn event_synchronize(&self, event: Event) -> DriverResult<()> {
        observer::observe_wait(
            Call::cuEventSynchronize,
            |observer| observer.event_awaited(event),
            // SAFETY: the event is a live driver object.
            || unsafe { call!(self, cuEventSynchronize(event.raw())) },
        )
    }

    /// Returns the milliseconds between `start` and `end`.
    pub fn event_elapsed_time(&self, start: Event, end: Event) -> DriverResult<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: the output is a live local, and both events are live driver objects.
        unsafe { call!(self, cuEventElapsedTime(&mut milliseconds, start.raw(), end.raw())) }?;
        Ok(milliseconds)
    }

    /// Returns the IPC handle with which another process can open the event.
    pub fn event_ipc_handle(&self, event: Event) -> DriverResult<[u8; 64]> {
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: the output is a live local, and the event is a live driver object.
        unsafe { call!(self, cuIpcGetEventHandle(&mut handle, event.raw())) }?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    /// Opens an event of another process in the calling thread's context.
    pub fn event_open_ipc(&self, handle: [u8; 64]) -> DriverResult<Event> {
        let handle = CUipcEventHandle { reserved: handle.map(|byte| byte as std::ffi::c_char) };
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: the output is a live local, and a handle that is wrong returns an error code.
        unsafe { call!(self, cuIpcOpenEventHandle(&mut event, handle)) }?;
        Ok(Event(event as usize))
    }
}
