//! Memory as the driver sees it: allocations, copies and fills, and what a pointer is.

use super::{Answer, Context, Driver, Stream, call, types::*};
use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
};

/// A run of bytes that the caller vouched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    address: u64,
    bytes: usize,
}

impl Span {
    /// The `bytes` bytes from `address` on.
    ///
    /// # Safety
    /// They stay valid, for the use that is made of the span, until the work that is given it is done.
    pub unsafe fn new(address: u64, bytes: usize) -> Self {
        Span { address, bytes }
    }

    /// A span of an address that the test at hand never follows.
    #[cfg(test)]
    pub fn nowhere(address: u64) -> Self {
        Span { address, bytes: 0 }
    }

    /// A block that the caching allocator gave out, whose holder gives it back only behind the work that it is for: so it
    /// stays valid until that is done.
    pub(crate) fn owned(address: u64, bytes: usize) -> Self {
        Span { address, bytes }
    }

    /// A part of it.
    pub fn part(self, from: usize, bytes: usize) -> Self {
        let from = from.min(self.bytes);
        Span { address: self.address + from as u64, bytes: bytes.min(self.bytes - from) }
    }

    /// The same, begun elsewhere: what was vouched for was the whole of which both are parts.
    pub fn moved(self, bytes: i64) -> Self {
        Span { address: self.address.wrapping_add_signed(bytes), bytes: self.bytes }
    }

    /// The same with the length that its shape tells: what was vouched for is the whole tensor that begins there.
    pub(crate) fn of_length(self, bytes: usize) -> Self {
        Span { bytes, ..self }
    }

    /// Where it begins.
    pub fn address(self) -> u64 {
        self.address
    }

    /// How long it is.
    pub fn bytes(self) -> usize {
        self.bytes
    }
}

/// Which kind of memory a pointer leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory that the driver has never heard of: plain host memory, or nothing at all.
    Unregistered,
    /// Host memory that is pinned.
    Pinned,
    /// Memory of a device.
    Device,
    /// Memory that the driver moves between host and device.
    Managed,
}

/// What the driver knows of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerInfo {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The device that it belongs to; meaningless for unregistered memory.
    pub device: c_int,
}

impl Driver {
    /// Free and total bytes of the device of the calling thread's context.
    pub fn memory_info(&self) -> Answer<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outputs are live locals.
        unsafe { call!(self, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Allocates memory in the calling thread's context; returns its address.
    pub fn memory_alloc(&self, bytes: usize) -> Answer<u64> {
        let mut address = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuMemAlloc_v2(&mut address, bytes)) }?;
        Ok(address)
    }

    /// Frees what [`memory_alloc`](Self::memory_alloc) gave, and waits for the work of its context.
    pub fn memory_free(&self, span: Span) -> Answer<()> {
        // SAFETY: the caller vouched for the span, and hands it over.
        unsafe { call!(self, cuMemFree_v2(span.address)) }
    }

    /// Allocates pinned host memory that every context may use.
    pub fn pinned_alloc(&self, bytes: usize) -> Answer<u64> {
        let mut pointer: *mut c_void = ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuMemHostAlloc(&mut pointer, bytes, CU_MEMHOSTALLOC_PORTABLE)) }?;
        Ok(pointer as u64)
    }

    /// Frees what [`pinned_alloc`](Self::pinned_alloc) gave.
    pub fn pinned_free(&self, span: Span) -> Answer<()> {
        // SAFETY: the caller vouched for the span, and hands it over.
        unsafe { call!(self, cuMemFreeHost(span.address as *mut c_void)) }
    }

    /// What the driver knows of the memory at an address. Any number may be asked about.
    pub fn pointer_info(&self, address: u64) -> Answer<PointerInfo> {
        let (mut memory_type, mut ordinal, mut managed): (c_uint, c_int, c_uint) = (0, -1, 0);
        let mut attributes =
            [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED];
        let mut data = [(&raw mut memory_type).cast(), (&raw mut ordinal).cast(), (&raw mut managed).cast()];
        // SAFETY: there are as many outputs as attributes, each a live local of the size that its attribute has; the
        // address is looked up, not followed.
        unsafe { call!(self, cuPointerGetAttributes(3, attributes.as_mut_ptr(), data.as_mut_ptr(), address)) }?;
        let kind = match memory_type {
            _ if managed & 0xFF != 0 => MemoryKind::Managed,
            CU_MEMORYTYPE_DEVICE => MemoryKind::Device,
            CU_MEMORYTYPE_HOST => MemoryKind::Pinned,
            _ => MemoryKind::Unregistered,
        };
        Ok(PointerInfo { kind, device: ordinal })
    }

    /// Copies as many bytes as `destination` has, in a stream, between whatever memories the two addresses lie in.
    #[inline]
    pub fn copy(&self, destination: Span, source: Span, stream: Stream) -> Answer<()> {
        // SAFETY: the caller vouched for both spans and they are of one length; the stream is live.
        unsafe { call!(self, cuMemcpyAsync(destination.address, source.address, destination.bytes, stream.raw())) }
    }

    /// Copies bytes of the program's to a span, and waits for them.
    pub fn copy_from_host(&self, destination: Span, source: &[u8], stream: Stream) -> Answer<()> {
        let bytes = destination.bytes.min(source.len());
        // SAFETY: the caller vouched for the span; the bytes are borrowed until the copy is done, here or in what waits.
        unsafe {
            call!(self, cuMemcpyAsync(destination.address, source.as_ptr() as CUdeviceptr, bytes, stream.raw()))
        }?;
        self.stream_synchronize(stream)
    }

    /// Copies a span to bytes of the program's, and waits for them.
    pub fn copy_to_host(&self, destination: &mut [u8], source: Span, stream: Stream) -> Answer<()> {
        let bytes = source.bytes.min(destination.len());
        // SAFETY: as in `copy_from_host`.
        unsafe {
            call!(self, cuMemcpyAsync(destination.as_mut_ptr() as CUdeviceptr, source.address, bytes, stream.raw()))
        }?;
        self.stream_synchronize(stream)
    }

    /// Copies from one device's memory to another's, with or without peer access.
    pub fn copy_peer(
        &self,
        destination: Span,
        destination_context: Context,
        source: Span,
        source_context: Context,
        stream: Stream,
    ) -> Answer<()> {
        // SAFETY: the caller vouched for both spans and they are of one length; contexts and stream are live.
        unsafe {
            call!(
                self,
                cuMemcpyPeerAsync(
                    destination.address,
                    destination_context.raw(),
                    source.address,
                    source_context.raw(),
                    destination.bytes,
                    stream.raw()
                )
            )
        }
    }

    /// Fills a span with one byte.
    pub fn fill_8(&self, span: Span, value: u8, stream: Stream) -> Answer<()> {
        // SAFETY: the caller vouched for the span; the stream is live.
        unsafe { call!(self, cuMemsetD8Async(span.address, value, span.bytes, stream.raw())) }
    }

    /// Fills a span with a 2-byte pattern; its address and length are multiples of 2.
    pub fn fill_16(&self, span: Span, value: u16, stream: Stream) -> Answer<()> {
        // SAFETY: the caller vouched for the span; the stream is live.
        unsafe { call!(self, cuMemsetD16Async(span.address, value, span.bytes / 2, stream.raw())) }
    }

    /// Fills a span with a 4-byte pattern; its address and length are multiples of 4.
    pub fn fill_32(&self, span: Span, value: u32, stream: Stream) -> Answer<()> {
        // SAFETY: the caller vouched for the span; the stream is live.
        unsafe { call!(self, cuMemsetD32Async(span.address, value, span.bytes / 4, stream.raw())) }
    }
}
