//! Contexts: a device's primary context, and the current context of the calling thread.

use super::{Call, Driver, DriverResult, Event, call, observer, types::*};
use std::ptr;

/// A device's primary context, or another context that was current when plinth was called. plinth never destroys it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context(usize);

impl Context {
    /// Wraps a context that the driver returned.
    pub(super) fn from_raw(context: CUcontext) -> Self {
        Context(context as usize)
    }

    /// Returns the driver's handle.
    pub fn handle(self) -> usize {
        self.0
    }

    pub(super) fn raw(self) -> CUcontext {
        self.0 as CUcontext
    }
}

impl Driver {
    /// Retains the primary context of a device and creates it if it does not exist. It stays retained until the process
    /// ends.
    pub fn primary_context(&self, device: CUdevice) -> DriverResult<Context> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local, and any device number returns an error code.
        unsafe { call!(self, cuDevicePrimaryCtxRetain(&mut context, device)) }?;
        Ok(Context::from_raw(context))
    }

    /// Returns whether the primary context of a device already exists.
    pub fn primary_context_is_active(&self, device: CUdevice) -> DriverResult<bool> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: both outputs are live locals, and any device number returns an error code.
        unsafe { call!(self, cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }?;
        Ok(active != 0)
    }

    /// Returns the calling thread's current context.
    pub fn current_context(&self) -> DriverResult<Option<Context>> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuCtxGetCurrent(&mut context)) }?;
        Ok((!context.is_null()).then(|| Context::from_raw(context)))
    }

    /// Makes `context` current in the calling thread.
    pub fn set_current_context(&self, context: Context) -> DriverResult<()> {
        // SAFETY: a `Context` comes from the driver. Primary contexts stay retained. A context that was found current
        // belongs to the code that made it current, which keeps it alive during plinth's call.
        unsafe { call!(self, cuCtxSetCurrent(context.raw())) }
    }

    /// Returns the device of the calling thread's context.
    pub fn context_device(&self) -> DriverResult<CUdevice> {
        let mut device = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuCtxGetDevice(&mut device)) }?;
        Ok(device)
    }

    /// Waits for all work in the calling thread's context.
    pub fn context_synchronize(&self) -> DriverResult<()> {
        observer::observe_wait(
            Call::cuCtxSynchronize,
            |observer| observer.context_awaited(self),
            // SAFETY: the call takes no arguments.
            || unsafe { call!(self, cuCtxSynchronize()) },
        )
    }

    /// Records an event after all work in the calling thread's context, which is a primary context, and in its green
    /// contexts. Invalidates the captures of its streams, if there are any. Observers do not learn of it.
    pub fn context_record_event(&self, event: Event) -> DriverResult<()> {
        let context = self.current_context()?.map_or(ptr::null_mut(), Context::raw);
        // SAFETY: the context is current, so it is live, and so is the event. Null returns an error code.
        unsafe { call!(self, cuCtxRecordEvent(context, event.raw())) }
    }

    /// Starts recording in a profiler that was configured to wait for this call.
    pub fn profiler_start(&self) -> DriverResult<()> {
        // SAFETY: the call takes no arguments.
        unsafe { call!(self, cuProfilerStart()) }
    }

    /// Stops recording.
    pub fn profiler_stop(&self) -> DriverResult<()> {
        // SAFETY: the call takes no arguments.
        unsafe { call!(self, cuProfilerStop()) }
    }

    /// Returns the least and the greatest stream priority of the calling thread's context. Greater priorities are lower
    /// numbers.
    pub fn stream_priority_range(&self) -> DriverResult<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both outputs are live locals.
        unsafe { call!(self, cuCtxGetStreamPriorityRange(&mut least, &mut greatest)) }?;
        Ok((least, greatest))
    }

    /// Gives the calling thread's context access to the memory of `peer`.
    pub fn enable_peer_access(&self, peer: Context) -> DriverResult<()> {
        // SAFETY: `peer` is a driver context, and flags must be 0.
        unsafe { call!(self, cuCtxEnablePeerAccess(peer.raw(), 0)) }
    }

    /// Revokes the access of [`enable_peer_access`](Self::enable_peer_access).
    pub fn disable_peer_access(&self, peer: Context) -> DriverResult<()> {
        // SAFETY: `peer` is a driver context.
        unsafe { call!(self, cuCtxDisablePeerAccess(peer.raw())) }
    }
}
