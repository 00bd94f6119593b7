//! Contexts: a device's primary context, and which context the calling thread has.

use super::{Driver, DriverResult, call, observer, types::*};
use std::ptr;

/// A device's primary context, or another that was current when plinth came. Never destroyed by plinth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context(usize);

impl Context {
    /// A context that the driver named.
    pub(super) fn from_raw(context: CUcontext) -> Self {
        Context(context as usize)
    }

    /// The driver's handle.
    pub fn handle(self) -> usize {
        self.0
    }

    pub(super) fn raw(self) -> CUcontext {
        self.0 as CUcontext
    }
}

impl Driver {
    /// Retains the primary context of a device, and makes it if it does not exist. It stays until the process ends.
    pub fn primary_context(&self, device: CUdevice) -> DriverResult<Context> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local, and any device number is answered with a code.
        unsafe { call!(self, cuDevicePrimaryCtxRetain(&mut context, device)) }?;
        Ok(Context::from_raw(context))
    }

    /// Whether the primary context of a device exists already.
    pub fn primary_context_is_active(&self, device: CUdevice) -> DriverResult<bool> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: both outputs are live locals, and any device number is answered with a code.
        unsafe { call!(self, cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }?;
        Ok(active != 0)
    }

    /// The calling thread's context.
    pub fn current_context(&self) -> DriverResult<Option<Context>> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuCtxGetCurrent(&mut context)) }?;
        Ok((!context.is_null()).then(|| Context::from_raw(context)))
    }

    /// Makes `context` the calling thread's.
    pub fn set_current_context(&self, context: Context) -> DriverResult<()> {
        // SAFETY: a `Context` comes from the driver; primary contexts stay retained, and one found current belongs to
        // whoever made it current, who keeps it alive while plinth's call lasts.
        unsafe { call!(self, cuCtxSetCurrent(context.raw())) }
    }

    /// The device of the calling thread's context.
    pub fn context_device(&self) -> DriverResult<CUdevice> {
        let mut device = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuCtxGetDevice(&mut device)) }?;
        Ok(device)
    }

    /// Waits for all work of the calling thread's context.
    pub fn context_synchronize(&self) -> DriverResult<()> {
        observer::observe_wait(
            |observer| observer.context_awaited(self),
            // SAFETY: the call takes no arguments.
            || unsafe { call!(self, cuCtxSynchronize()) },
        )
    }

    /// Lets a profiler that was told to wait for this begin to record.
    pub fn profiler_start(&self) -> DriverResult<()> {
        // SAFETY: the call takes no arguments.
        unsafe { call!(self, cuProfilerStart()) }
    }

    /// Lets it end.
    pub fn profiler_stop(&self) -> DriverResult<()> {
        // SAFETY: the call takes no arguments.
        unsafe { call!(self, cuProfilerStop()) }
    }

    /// The least and the greatest stream priority of the calling thread's context; greater ones are lower numbers.
    pub fn stream_priority_range(&self) -> DriverResult<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both outputs are live locals.
        unsafe { call!(self, cuCtxGetStreamPriorityRange(&mut least, &mut greatest)) }?;
        Ok((least, greatest))
    }

    /// Lets the calling thread's context access the memory of `peer`.
    pub fn enable_peer_access(&self, peer: Context) -> DriverResult<()> {
        // SAFETY: `peer` is a context of the driver's, and flags must be 0.
        unsafe { call!(self, cuCtxEnablePeerAccess(peer.raw(), 0)) }
    }

    /// Takes back what [`enable_peer_access`](Self::enable_peer_access) gave.
    pub fn disable_peer_access(&self, peer: Context) -> DriverResult<()> {
        // SAFETY: `peer` is a context of the driver's.
        unsafe { call!(self, cuCtxDisablePeerAccess(peer.raw())) }
    }
}
