//! Memory as the driver sees it: allocations, copies and fills, and what a pointer is.

use super::{Context, Driver, DriverResult, Stream, call, observer, types::*};
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
    #[cfg(any(test, feature = "test-util"))]
    pub fn dangling(address: u64) -> Self {
        Span { address, bytes: 0 }
    }

    /// A block that the caching allocator gave out, whose holder gives it back only behind the work that it is for: so it
    /// stays valid until that is done.
    pub fn owned(address: u64, bytes: usize) -> Self {
        Span { address, bytes }
    }

    /// A part of it.
    pub fn part(self, from: usize, bytes: usize) -> Self {
        let from = from.min(self.bytes);
        Span { address: self.address + from as u64, bytes: bytes.min(self.bytes - from) }
    }

    /// The same, begun elsewhere: what was vouched for was the whole of which both are parts.
    pub fn offset_by(self, bytes: i64) -> Self {
        Span { address: self.address.wrapping_add_signed(bytes), bytes: self.bytes }
    }

    /// The same with the length that its shape tells: what was vouched for is the whole tensor that begins there.
    pub fn with_length(self, bytes: usize) -> Self {
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

/// All that the driver knows of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerDetails {
    /// Kind and device.
    pub info: PointerInfo,
    /// The address for devices; 0 if they cannot use it.
    pub device: u64,
    /// The address for the host; 0 if it cannot use it.
    pub host: u64,
    /// Where the allocation begins.
    pub start: u64,
    /// How long it is.
    pub bytes: usize,
    /// Whether there is memory behind the address.
    pub mapped: bool,
    /// Whether that was created apart from the address.
    pub is_virtual: bool,
}

impl Driver {
    /// Free and total bytes of the device of the calling thread's context.
    pub fn memory_info(&self) -> DriverResult<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outputs are live locals.
        unsafe { call!(self, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Allocates memory in the calling thread's context; returns its address.
    pub fn memory_alloc(&self, bytes: usize) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuMemAlloc_v2(&mut address, bytes)) }?;
        observer::notify_allocated(address, bytes as u64);
        Ok(address)
    }

    /// Frees what [`memory_alloc`](Self::memory_alloc) gave, and waits for the work of its context.
    pub fn memory_free(&self, span: Span) -> DriverResult<()> {
        // SAFETY: the caller vouched for the span, and hands it over.
        unsafe { call!(self, cuMemFree_v2(span.address)) }
    }

    /// Allocates pinned host memory that every context may use.
    pub fn pinned_alloc(&self, bytes: usize) -> DriverResult<u64> {
        let mut pointer: *mut c_void = ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuMemHostAlloc(&mut pointer, bytes, CU_MEMHOSTALLOC_PORTABLE)) }?;
        observer::notify_allocated(pointer as u64, bytes as u64);
        Ok(pointer as u64)
    }

    /// Frees what [`pinned_alloc`](Self::pinned_alloc) gave.
    pub fn pinned_free(&self, span: Span) -> DriverResult<()> {
        // SAFETY: the caller vouched for the span, and hands it over.
        unsafe { call!(self, cuMemFreeHost(span.address as *mut c_void)) }
    }

    /// Pins memory of the program's own, and lets devices use it. `flags` are `CU_MEMHOSTREGISTER_...`.
    pub fn host_register(&self, span: Span, flags: c_uint) -> DriverResult<()> {
        // SAFETY: the caller vouched for the span until it is registered no more, and wrong flags are answered with a code.
        unsafe { call!(self, cuMemHostRegister_v2(span.address as *mut c_void, span.bytes, flags)) }
    }

    /// Undoes [`host_register`](Self::host_register) for what begins at the span's address.
    pub fn host_unregister(&self, span: Span) -> DriverResult<()> {
        // SAFETY: the address is looked up, not followed, and the caller vouched that the devices are done with the span.
        unsafe { call!(self, cuMemHostUnregister(span.address as *mut c_void)) }
    }

    /// Allocates managed memory in the calling thread's context, which every device and the host may use.
    pub fn managed_alloc(&self, bytes: usize) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuMemAllocManaged(&mut address, bytes, CU_MEM_ATTACH_GLOBAL)) }?;
        observer::notify_allocated(address, bytes as u64);
        Ok(address)
    }

    /// All that the driver knows of the memory at an address. Any number may be asked about.
    pub fn pointer_details(&self, address: u64) -> DriverResult<PointerDetails> {
        let info = self.pointer_info(address)?;
        let (mut device, mut host, mut start, mut bytes, mut mapped): (u64, u64, u64, usize, c_uint) = (0, 0, 0, 0, 0);
        let mut attributes = [
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_HOST_POINTER,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_MAPPED,
        ];
        let mut data = [
            (&raw mut device).cast(),
            (&raw mut host).cast(),
            (&raw mut start).cast(),
            (&raw mut bytes).cast(),
            (&raw mut mapped).cast(),
        ];
        // SAFETY: there are as many outputs as attributes, each a live local of the size that its attribute has; the
        // address is looked up, not followed.
        unsafe { call!(self, cuPointerGetAttributes(5, attributes.as_mut_ptr(), data.as_mut_ptr(), address)) }?;
        let is_virtual = info.kind == MemoryKind::Device && self.is_mapped_handle(address);
        Ok(PointerDetails { info, device, host, start, bytes, mapped: mapped & 0xFF != 0, is_virtual })
    }

    /// Whether physical memory that was created on its own is mapped at an address: such a handle can be had again.
    fn is_mapped_handle(&self, address: u64) -> bool {
        let mut handle = 0;
        // SAFETY: the output is a live local; the address is looked up, not followed.
        let found = unsafe { call!(self, cuMemRetainAllocationHandle(&mut handle, address as *mut c_void)) }.is_ok();
        if found {
            // SAFETY: the handle was retained by the call above, for this one. That it stayed would cost memory that is
            // in use anyway, so a failure is tried again once and no more.
            unsafe {
                if call!(self, cuMemRelease(handle)).is_err() {
                    let _ = call!(self, cuMemRelease(handle));
                }
            }
        }
        found
    }

    /// What the driver knows of the memory at an address. Any number may be asked about.
    pub fn pointer_info(&self, address: u64) -> DriverResult<PointerInfo> {
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
    pub fn copy(&self, destination: Span, source: Span, stream: Stream) -> DriverResult<()> {
        // SAFETY: the caller vouched for both spans and they are of one length; the stream is live.
        unsafe { call!(self, cuMemcpyAsync(destination.address, source.address, destination.bytes, stream.raw())) }
    }

    /// Copies bytes of the program's to a span, and waits for them.
    pub fn copy_from_host(&self, destination: Span, source: &[u8], stream: Stream) -> DriverResult<()> {
        let bytes = destination.bytes.min(source.len());
        // SAFETY: the caller vouched for the span; the bytes are borrowed until the copy is done, here or in what waits.
        unsafe {
            call!(self, cuMemcpyAsync(destination.address, source.as_ptr() as CUdeviceptr, bytes, stream.raw()))
        }?;
        self.stream_synchronize(stream)
    }

    /// Copies a span to bytes of the program's, and waits for them.
    pub fn copy_to_host(&self, destination: &mut [u8], source: Span, stream: Stream) -> DriverResult<()> {
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
    ) -> DriverResult<()> {
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

    /// Copies as many bytes of the device's memory as `bytes` has to there, in a stream, and waits for them.
    pub fn read_back(&self, source: Span, bytes: &mut [u8], stream: Stream) -> DriverResult<()> {
        let count = bytes.len().min(source.bytes);
        // SAFETY: the caller vouched for the span; the bytes are borrowed until the copy is done, which is waited for
        // here. Where waiting fails the device is lost, and writes no more.
        unsafe { call!(self, cuMemcpyAsync(bytes.as_mut_ptr() as u64, source.address, count, stream.raw())) }?;
        self.stream_synchronize(stream)
    }

    /// Fills a span with one byte.
    pub fn fill_8(&self, span: Span, value: u8, stream: Stream) -> DriverResult<()> {
        // SAFETY: the caller vouched for the span; the stream is live.
        unsafe { call!(self, cuMemsetD8Async(span.address, value, span.bytes, stream.raw())) }
    }

    /// Fills a span with a 2-byte pattern; its address and length are multiples of 2.
    pub fn fill_16(&self, span: Span, value: u16, stream: Stream) -> DriverResult<()> {
        // SAFETY: the caller vouched for the span; the stream is live.
        unsafe { call!(self, cuMemsetD16Async(span.address, value, span.bytes / 2, stream.raw())) }
    }

    /// Fills a span with a 4-byte pattern; its address and length are multiples of 4.
    pub fn fill_32(&self, span: Span, value: u32, stream: Stream) -> DriverResult<()> {
        // SAFETY: the caller vouched for the span; the stream is live.
        unsafe { call!(self, cuMemsetD32Async(span.address, value, span.bytes / 4, stream.raw())) }
    }
}
