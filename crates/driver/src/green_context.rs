//! Green contexts: partitions of a device's multiprocessors, and streams whose kernels run on a partition.

use super::{Context, Driver, DriverResult, Stream, call, types::*};
use std::{ffi::c_uint, ptr};

/// A green context. The caller of `green_context_destroy` must not use it afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreenContext(usize);

impl GreenContext {
    /// Returns the driver's handle.
    pub fn handle(self) -> usize {
        self.0
    }

    fn raw(self) -> CUgreenCtx {
        self.0 as CUgreenCtx
    }
}

/// The multiprocessors of a device: all of them, or a partition.
#[derive(Debug, Clone, Copy)]
pub struct Multiprocessors(DevResource);

impl Multiprocessors {
    /// Returns their number.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// Rounds a requested partition size up to a size that the driver can create, as far as the driver reports its
    /// constraints.
    pub fn round_up(&self, requested: u32) -> u32 {
        let requested = requested.max(self.0.least_partition);
        requested.checked_next_multiple_of(self.0.alignment.max(1)).unwrap_or(u32::MAX)
    }

    /// Returns the smallest partition that the driver creates, as far as it reports one.
    pub fn least(&self) -> u32 {
        self.0.least_partition.max(1)
    }
}

impl Driver {
    /// Returns all multiprocessors of a device.
    pub fn multiprocessors(&self, device: CUdevice) -> DriverResult<Multiprocessors> {
        let mut resource = DevResource::NOTHING;
        // SAFETY: the output is a live local, and any device number is allowed: an invalid one returns an error code.
        unsafe { call!(self, cuDeviceGetDevResource(device, &mut resource, CU_DEV_RESOURCE_TYPE_SM)) }?;
        Ok(Multiprocessors(resource))
    }

    /// Splits off `count` partitions of at least `min_count` multiprocessors each, which do not overlap. Returns them, which may be
    /// fewer, and the multiprocessors that are left.
    pub fn split_multiprocessors(
        &self,
        whole: &Multiprocessors,
        count: u32,
        min_count: u32,
    ) -> DriverResult<(Vec<Multiprocessors>, Multiprocessors)> {
        let (mut parts, mut rest) = (vec![DevResource::NOTHING; count as usize], DevResource::NOTHING);
        let mut made: c_uint = count;
        let first = parts.as_mut_ptr();
        // SAFETY: the outputs are live locals, with room for as many partitions as the count requests.
        unsafe { call!(self, cuDevSmResourceSplitByCount(first, &mut made, &whole.0, &mut rest, 0, min_count)) }?;
        parts.truncate(made as usize);
        Ok((parts.into_iter().map(Multiprocessors).collect(), Multiprocessors(rest)))
    }

    /// Creates a green context over multiprocessors of a device.
    pub fn green_context_create(&self, device: CUdevice, mut part: Multiprocessors) -> DriverResult<GreenContext> {
        let (mut description, mut green): (CUdevResourceDesc, CUgreenCtx) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the output is a live local, and there is one resource. The driver has no call that frees a
        // descriptor.
        unsafe { call!(self, cuDevResourceGenerateDesc(&mut description, &mut part.0, 1)) }?;
        // SAFETY: the output is a live local, and the descriptor comes from the driver.
        unsafe { call!(self, cuGreenCtxCreate(&mut green, description, device, CU_GREEN_CTX_DEFAULT_STREAM)) }?;
        Ok(GreenContext(green as usize))
    }

    /// Destroys a green context that has no streams.
    pub fn green_context_destroy(&self, green: GreenContext) -> DriverResult<()> {
        // SAFETY: it is live until this call, and its owner does not use it afterwards.
        unsafe { call!(self, cuGreenCtxDestroy(green.raw())) }
    }

    /// Converts a green context to a context that can be made current.
    pub fn green_context_as_context(&self, green: GreenContext) -> DriverResult<Context> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local, and the green context is live.
        unsafe { call!(self, cuCtxFromGreenCtx(&mut context, green.raw())) }?;
        Ok(Context::from_raw(context))
    }

    /// Creates a non-blocking stream whose kernels run on the green context's multiprocessors.
    pub fn green_context_stream(&self, green: GreenContext, priority: i32) -> DriverResult<Stream> {
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: the output is a live local, and the green context is live; a priority out of range is clamped.
        unsafe { call!(self, cuGreenCtxStreamCreate(&mut stream, green.raw(), CU_STREAM_NON_BLOCKING, priority)) }?;
        // SAFETY: the driver just created this stream.
        Ok(unsafe { Stream::from_handle(stream as usize) })
    }
}
