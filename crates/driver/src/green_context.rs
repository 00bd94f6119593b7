//! Green contexts: parts of a device's multiprocessors, and streams whose kernels run on such a part.

use super::{Context, Driver, DriverResult, Stream, call, types::*};
use std::{ffi::c_uint, ptr};

/// A green context of the driver's. Whoever destroys it forgets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreenContext(usize);

impl GreenContext {
    /// The driver's handle.
    pub fn handle(self) -> usize {
        self.0
    }

    fn raw(self) -> CUgreenCtx {
        self.0 as CUgreenCtx
    }
}

/// Multiprocessors of a device: all, or a part.
#[derive(Debug, Clone, Copy)]
pub struct Multiprocessors(DevResource);

impl Multiprocessors {
    /// How many they are.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// How many a part of them that is to have `requested` will have, where the driver tells its rules.
    pub fn round_up(&self, requested: u32) -> u32 {
        let requested = requested.max(self.0.least_partition);
        requested.checked_next_multiple_of(self.0.alignment.max(1)).unwrap_or(u32::MAX)
    }
}

impl Driver {
    /// All multiprocessors of a device.
    pub fn multiprocessors(&self, device: CUdevice) -> DriverResult<Multiprocessors> {
        let mut resource = DevResource::NOTHING;
        // SAFETY: the output is a live local, and any device number is answered with a code.
        unsafe { call!(self, cuDeviceGetDevResource(device, &mut resource, CU_DEV_RESOURCE_TYPE_SM)) }?;
        Ok(Multiprocessors(resource))
    }

    /// A part of at least so many; `None` where the driver makes none.
    pub fn split_multiprocessors(&self, whole: &Multiprocessors, least: u32) -> DriverResult<Option<Multiprocessors>> {
        let (mut part, mut count): (DevResource, c_uint) = (DevResource::NOTHING, 1);
        let rest = ptr::null_mut();
        // SAFETY: the outputs are live locals, room for one part is what the count says, and the rest may be null.
        unsafe { call!(self, cuDevSmResourceSplitByCount(&mut part, &mut count, &whole.0, rest, 0, least)) }?;
        Ok((count == 1).then_some(Multiprocessors(part)))
    }

    /// Makes a green context over multiprocessors of a device.
    pub fn green_context_create(&self, device: CUdevice, mut part: Multiprocessors) -> DriverResult<GreenContext> {
        let (mut description, mut green): (CUdevResourceDesc, CUgreenCtx) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the output is a live local, and there is one resource. The driver has no call to free a description.
        unsafe { call!(self, cuDevResourceGenerateDesc(&mut description, &mut part.0, 1)) }?;
        // SAFETY: the output is a live local, and the driver gave the description.
        unsafe { call!(self, cuGreenCtxCreate(&mut green, description, device, CU_GREEN_CTX_DEFAULT_STREAM)) }?;
        Ok(GreenContext(green as usize))
    }

    /// Destroys one that has no streams.
    pub fn green_context_destroy(&self, green: GreenContext) -> DriverResult<()> {
        // SAFETY: it is live until this call, after which its owner forgets it.
        unsafe { call!(self, cuGreenCtxDestroy(green.raw())) }
    }

    /// A green context as a context that can be current.
    pub fn green_context_as_context(&self, green: GreenContext) -> DriverResult<Context> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local, and the green context is live.
        unsafe { call!(self, cuCtxFromGreenCtx(&mut context, green.raw())) }?;
        Ok(Context::from_raw(context))
    }

    /// Makes a stream that does not wait for the default stream, whose kernels run on the green context's
    /// multiprocessors.
    pub fn green_context_stream(&self, green: GreenContext, priority: i32) -> DriverResult<Stream> {
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: the output is a live local, and the green context is live; a priority out of range is clamped.
        unsafe { call!(self, cuGreenCtxStreamCreate(&mut stream, green.raw(), CU_STREAM_NON_BLOCKING, priority)) }?;
        // SAFETY: the driver just made this stream.
        Ok(unsafe { Stream::from_handle(stream as usize) })
    }
}
