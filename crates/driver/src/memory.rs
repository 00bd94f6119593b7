//! Memory: allocations, copies and fills, and pointer attributes.

use super::{Call, Context, Driver, DriverResult, Stream, call, observer, types::*};
use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
};

/// A range of bytes whose validity the constructor's caller guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    address: u64,
    bytes: usize,
}

impl Span {
    /// Creates the span of `bytes` bytes at `address`.
    ///
    /// # Safety
    /// The range stays valid, for every use of the span, until the work that receives it is complete. So does the memory
    /// outside of the range that [`offset_by`](Self::offset_by) and [`with_length`](Self::with_length) reach.
    pub unsafe fn new(address: u64, bytes: usize) -> Self {
        Span { address, bytes }
    }

    /// Creates an empty span at an address that is aligned for every element type and that is not accessed.
    pub const fn placeholder() -> Self {
        Span { address: 256, bytes: 0 }
    }

    /// Creates a span for tests that never access the address.
    #[cfg(any(test, feature = "test-util"))]
    pub fn dangling(address: u64) -> Self {
        Span { address, bytes: 0 }
    }

    /// Returns a part of the span, clamped to its end.
    pub fn part(self, from: usize, bytes: usize) -> Self {
        let from = from.min(self.bytes);
        Span { address: self.address + from as u64, bytes: bytes.min(self.bytes - from) }
    }

    /// Returns the span shifted by `bytes`. The constructor's contract must cover the memory that contains both spans.
    pub fn offset_by(self, bytes: i64) -> Self {
        Span { address: self.address.wrapping_add_signed(bytes), bytes: self.bytes }
    }

    /// Returns the span with another length. The constructor's contract must cover the whole tensor that begins at its
    /// address.
    pub fn with_length(self, bytes: usize) -> Self {
        Span { bytes, ..self }
    }

    /// Returns the address.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub fn bytes(self) -> usize {
        self.bytes
    }
}

/// The kind of memory that a pointer refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory unknown to the driver: ordinary host memory, or an invalid address.
    Unregistered,
    /// Pinned host memory.
    Pinned,
    /// Device memory.
    Device,
    /// Managed memory, which the driver migrates between host and devices.
    Managed,
}

/// The kind and device of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerInfo {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The device that the memory belongs to; meaningless for unregistered memory.
    pub device: c_int,
}

/// All attributes of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerDetails {
    /// Kind and device.
    pub info: PointerInfo,
    /// The address for devices; 0 if devices cannot use it.
    pub device: u64,
    /// The address for the host; 0 if the host cannot use it.
    pub host: u64,
    /// The start of the allocation.
    pub start: u64,
    /// Returns the length in bytes.
    pub bytes: usize,
    /// The number of the allocation, which no other of the process ever has; 0 if the driver numbers none of its kind.
    pub buffer: u64,
    /// Whether memory is mapped at the address.
    pub mapped: bool,
    /// Whether the mapped memory was created separately from the address (`cuMemCreate`).
    pub is_virtual: bool,
}

impl PointerDetails {
    /// The attributes of an address that the driver does not know.
    pub const UNKNOWN: PointerDetails = PointerDetails {
        info: PointerInfo { kind: MemoryKind::Unregistered, device: -1 },
        device: 0,
        host: 0,
        start: 0,
        bytes: 0,
        buffer: 0,
        mapped: false,
        is_virtual: false,
    };
}

impl Driver {
    /// Returns the free and the total bytes of the device of the calling thread's context.
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

    /// Frees memory from [`memory_alloc`](Self::memory_alloc), and waits for the work of its context.
    pub fn memory_free(&self, span: Span) -> DriverResult<()> {
        observer::check_wait(Call::cuMemFree_v2)?;
        // SAFETY: the span's constructor guarantees the memory, and the caller passes on its ownership.
        unsafe { call!(self, cuMemFree_v2(span.address)) }
    }

    /// Allocates pinned host memory that is usable in every context.
    pub fn pinned_alloc(&self, bytes: usize) -> DriverResult<u64> {
        let mut pointer: *mut c_void = ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuMemHostAlloc(&mut pointer, bytes, CU_MEMHOSTALLOC_PORTABLE)) }?;
        observer::notify_allocated(pointer as u64, bytes as u64);
        Ok(pointer as u64)
    }

    /// Frees memory from [`pinned_alloc`](Self::pinned_alloc).
    pub fn pinned_free(&self, span: Span) -> DriverResult<()> {
        observer::check_wait(Call::cuMemFreeHost)?;
        // SAFETY: the span's constructor guarantees the memory, and the caller passes on its ownership.
        unsafe { call!(self, cuMemFreeHost(span.address as *mut c_void)) }
    }

    /// Pins memory of the program and makes it accessible to devices. `flags` are `CU_MEMHOSTREGISTER_...`.
    pub fn host_register(&self, span: Span, flags: c_uint) -> DriverResult<()> {
        // SAFETY: the span's constructor guarantees the memory until it is unregistered, and wrong flags return an
        // error code.
        unsafe { call!(self, cuMemHostRegister_v2(span.address as *mut c_void, span.bytes, flags)) }
    }

    /// Undoes [`host_register`](Self::host_register) for the range that begins at the span's address.
    pub fn host_unregister(&self, span: Span) -> DriverResult<()> {
        observer::check_wait(Call::cuMemHostUnregister)?;
        // SAFETY: the address is looked up, not dereferenced, and the caller guarantees that no device still uses the
        // span.
        unsafe { call!(self, cuMemHostUnregister(span.address as *mut c_void)) }
    }

    /// Allocates managed memory in the calling thread's context, usable by every device and the host.
    pub fn managed_alloc(&self, bytes: usize) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuMemAllocManaged(&mut address, bytes, CU_MEM_ATTACH_GLOBAL)) }?;
        observer::notify_allocated(address, bytes as u64);
        Ok(address)
    }

    /// Returns all attributes of the memory at an address. Any address is allowed.
    pub fn pointer_details(&self, address: u64) -> DriverResult<PointerDetails> {
        let info = self.pointer_info(address)?;
        let (mut device, mut host, mut start, mut bytes): (u64, u64, u64, usize) = (0, 0, 0, 0);
        let (mut mapped, mut buffer): (c_uint, u64) = (0, 0);
        let mut attributes = [
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_HOST_POINTER,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_MAPPED,
            CU_POINTER_ATTRIBUTE_BUFFER_ID,
        ];
        let mut data = [
            (&raw mut device).cast(),
            (&raw mut host).cast(),
            (&raw mut start).cast(),
            (&raw mut bytes).cast(),
            (&raw mut mapped).cast(),
            (&raw mut buffer).cast(),
        ];
        // SAFETY: there are as many outputs as attributes, each a live local of the size of its attribute; the address
        // is looked up, not dereferenced.
        unsafe { call!(self, cuPointerGetAttributes(6, attributes.as_mut_ptr(), data.as_mut_ptr(), address)) }?;
        let is_virtual = info.kind == MemoryKind::Device && self.is_mapped_handle(address);
        Ok(PointerDetails { info, device, host, start, bytes, buffer, mapped: mapped & 0xFF != 0, is_virtual })
    }

    /// Returns whether memory from `cuMemCreate` is mapped at an address: only then does the driver return its handle.
    fn is_mapped_handle(&self, address: u64) -> bool {
        let mut handle = 0;
        // SAFETY: the output is a live local; the address is looked up, not dereferenced.
        let found = unsafe { call!(self, cuMemRetainAllocationHandle(&mut handle, address as *mut c_void)) }.is_ok();
        if found {
            // SAFETY: the call above retained the handle for this one. A reference that stays would only delay the
            // release of memory that is in use anyway, so a failure is retried once and then ignored.
            unsafe {
                if call!(self, cuMemRelease(handle)).is_err() {
                    let _ = call!(self, cuMemRelease(handle));
                }
            }
        }
        found
    }

    /// Returns the kind and the device of the memory at an address. Any address is allowed.
    pub fn pointer_info(&self, address: u64) -> DriverResult<PointerInfo> {
        let (mut memory_type, mut ordinal, mut managed): (c_uint, c_int, c_uint) = (0, -1, 0);
        let mut attributes =
            [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED];
        let mut data = [(&raw mut memory_type).cast(), (&raw mut ordinal).cast(), (&raw mut managed).cast()];
        // SAFETY: there are as many outputs as attributes, each a live local of the size of its attribute; the address
        // is looked up, not dereferenced.
        unsafe { call!(self, cuPointerGetAttributes(3, attributes.as_mut_ptr(), data.as_mut_ptr(), address)) }?;
        let kind = match memory_type {
            _ if managed & 0xFF != 0 => MemoryKind::Managed,
            CU_MEMORYTYPE_DEVICE => MemoryKind::Device,
            CU_MEMORYTYPE_HOST => MemoryKind::Pinned,
            _ => MemoryKind::Unregistered,
        };
        Ok(PointerInfo { kind, device: ordinal })
    }

    /// Copies `destination.bytes()` bytes in a stream. Each of the two addresses may be in host or device memory.
    #[inline]
    pub fn copy(&self, destination: Span, source: Span, stream: Stream) -> DriverResult<()> {
        // SAFETY: the constructors of both spans guarantee their memory and the spans have the same length; the stream
        // is live.
        unsafe { call!(self, cuMemcpyAsync(destination.address, source.address, destination.bytes, stream.raw())) }
    }

    /// Copies `height` rows of `width` bytes in a stream, from rows that begin `source_pitch` bytes apart to rows that
    /// begin `destination_pitch` bytes apart. The spans contain all rows. Each of the two addresses may be in host or
    /// device memory.
    pub fn copy_2d(
        &self,
        (destination, destination_pitch): (Span, usize),
        (source, source_pitch): (Span, usize),
        (width, height): (usize, usize),
        stream: Stream,
    ) -> DriverResult<()> {
        let copy = Memcpy2d {
            source_x: 0,
            source_y: 0,
            source_type: CU_MEMORYTYPE_UNIFIED,
            source_host: ptr::null(),
            source_device: source.address,
            source_array: ptr::null_mut(),
            source_pitch,
            destination_x: 0,
            destination_y: 0,
            destination_type: CU_MEMORYTYPE_UNIFIED,
            destination_host: ptr::null_mut(),
            destination_device: destination.address,
            destination_array: ptr::null_mut(),
            destination_pitch,
            width,
            height,
        };
        // SAFETY: the constructors of both spans guarantee the memory of all rows; the parameters are a live local, which
        // the driver reads during the call; the stream is live.
        unsafe { call!(self, cuMemcpy2DAsync_v2(&copy, stream.raw())) }
    }

    /// Copies bytes from the program's memory to a span, and waits for the copy.
    pub fn copy_from_host(&self, destination: Span, source: &[u8], stream: Stream) -> DriverResult<()> {
        observer::check_wait(Call::cuStreamSynchronize)?;
        let bytes = destination.bytes.min(source.len());
        // SAFETY: the span's constructor guarantees its memory; the bytes are borrowed until the copy is complete,
        // because the call below waits for it.
        unsafe {
            call!(self, cuMemcpyAsync(destination.address, source.as_ptr() as CUdeviceptr, bytes, stream.raw()))
        }?;
        self.complete_copy(stream)
    }

    /// Copies a span to the program's memory, and waits for the copy.
    pub fn copy_to_host(&self, destination: &mut [u8], source: Span, stream: Stream) -> DriverResult<()> {
        observer::check_wait(Call::cuStreamSynchronize)?;
        let bytes = source.bytes.min(destination.len());
        // SAFETY: as in `copy_from_host`. If no wait succeeds, the device is lost and writes no more.
        unsafe {
            call!(self, cuMemcpyAsync(destination.as_mut_ptr() as CUdeviceptr, source.address, bytes, stream.raw()))
        }?;
        self.complete_copy(stream)
    }

    /// Waits for a copy whose memory is borrowed only until this returns; tries again after a failure.
    fn complete_copy(&self, stream: Stream) -> DriverResult<()> {
        let wait = || self.stream_synchronize(stream);
        wait().or_else(|_| wait()).or_else(|_| wait())
    }

    /// Copies between the memories of two devices, with or without peer access.
    pub fn copy_peer(
        &self,
        destination: Span,
        destination_context: Context,
        source: Span,
        source_context: Context,
        stream: Stream,
    ) -> DriverResult<()> {
        // SAFETY: the constructors of both spans guarantee their memory and the spans have the same length; contexts
        // and stream are live.
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
    pub fn fill_8(&self, span: Span, value: u8, stream: Stream) -> DriverResult<()> {
        // SAFETY: the span's constructor guarantees its memory; the stream is live.
        unsafe { call!(self, cuMemsetD8Async(span.address, value, span.bytes, stream.raw())) }
    }

    /// Fills a span with a 2-byte pattern. Address and length must be multiples of 2.
    pub fn fill_16(&self, span: Span, value: u16, stream: Stream) -> DriverResult<()> {
        // SAFETY: the span's constructor guarantees its memory; the stream is live.
        unsafe { call!(self, cuMemsetD16Async(span.address, value, span.bytes / 2, stream.raw())) }
    }

    /// Fills a span with a 4-byte pattern. Address and length must be multiples of 4.
    pub fn fill_32(&self, span: Span, value: u32, stream: Stream) -> DriverResult<()> {
        // SAFETY: the span's constructor guarantees its memory; the stream is live.
        unsafe { call!(self, cuMemsetD32Async(span.address, value, span.bytes / 4, stream.raw())) }
    }
}
