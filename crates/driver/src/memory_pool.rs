//! The driver's own pools of memory, from which it allocates in stream order.

use super::{Driver, DriverResult, Span, Stream, call, types::*, virtual_memory};
use std::ffi::{c_int, c_uint, c_void};

/// A pool of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPool(usize);

impl MemoryPool {
    fn raw(self) -> CUmemoryPool {
        self.0 as CUmemoryPool
    }
}

/// What a pool may do to meet a request with memory that was freed.
pub const REUSE: [c_uint; 3] = [
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
];

impl Driver {
    /// The pool that a device allocates from unless told otherwise.
    pub fn default_memory_pool(&self, device: c_int) -> DriverResult<MemoryPool> {
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDeviceGetDefaultMemPool(&mut pool, device)) }?;
        Ok(MemoryPool(pool as usize))
    }

    /// Allows a pool one of [`REUSE`].
    pub fn memory_pool_allow_reuse(&self, pool: MemoryPool, which: c_uint) -> DriverResult<()> {
        let mut yes: c_int = 1;
        // SAFETY: the pool is the driver's, and the value a live local of the size that these attributes have.
        unsafe { call!(self, cuMemPoolSetAttribute(pool.raw(), which, (&raw mut yes).cast::<c_void>())) }
    }

    /// Sets an attribute of a pool that is a number of bytes.
    pub fn memory_pool_set(&self, pool: MemoryPool, attribute: PoolBytes, mut bytes: u64) -> DriverResult<()> {
        // SAFETY: the pool is the driver's, and the value a live local of the size that these attributes have.
        unsafe {
            call!(self, cuMemPoolSetAttribute(pool.raw(), attribute as c_uint, (&raw mut bytes).cast::<c_void>()))
        }
    }

    /// Tells an attribute of a pool that is a number of bytes.
    pub fn memory_pool_get(&self, pool: MemoryPool, attribute: PoolBytes) -> DriverResult<u64> {
        let mut bytes = 0_u64;
        // SAFETY: as above.
        unsafe {
            call!(self, cuMemPoolGetAttribute(pool.raw(), attribute as c_uint, (&raw mut bytes).cast::<c_void>()))
        }?;
        Ok(bytes)
    }

    /// Gives what is free in a pool back, but for so many bytes.
    pub fn memory_pool_trim(&self, pool: MemoryPool, least: u64) -> DriverResult<()> {
        // SAFETY: the pool is the driver's.
        unsafe { call!(self, cuMemPoolTrimTo(pool.raw(), least as usize)) }
    }

    /// Lets devices read and write a pool's memory.
    pub fn memory_pool_allow(&self, pool: MemoryPool, devices: &[c_int]) -> DriverResult<()> {
        let access = virtual_memory::read_write(devices);
        // SAFETY: the pool is the driver's; the descriptions live for the call and are as many as it is told.
        unsafe { call!(self, cuMemPoolSetAccess(pool.raw(), access.as_ptr(), access.len())) }
    }

    /// Allocates from the pool of a stream's device, for work that comes later in the stream.
    pub fn memory_alloc_async(&self, bytes: u64, stream: Stream) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuMemAllocAsync(&mut address, bytes as usize, stream.raw())) }?;
        Ok(address)
    }

    /// Frees what [`memory_alloc_async`](Self::memory_alloc_async) gave, behind what is in a stream.
    pub fn memory_free_async(&self, span: Span, stream: Stream) -> DriverResult<()> {
        // SAFETY: the caller vouched for the span and hands it over; the stream is live.
        unsafe { call!(self, cuMemFreeAsync(span.address(), stream.raw())) }
    }
}

/// The attributes of a pool that are numbers of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PoolBytes {
    /// What may stay free when a stream is waited for.
    ReleaseThreshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
    /// What the pool holds.
    Reserved = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    /// The most that it held; may be set to 0.
    ReservedHigh = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
}
