//! The driver's stream-ordered memory pools.

use super::{Driver, DriverResult, Span, Stream, call, types::*, virtual_memory};
use std::ffi::{c_int, c_uint, c_void};

/// A memory pool of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPool(usize);

impl MemoryPool {
    fn raw(self) -> CUmemoryPool {
        self.0 as CUmemoryPool
    }
}

/// The attributes that let a pool reuse freed memory.
pub const REUSE: [c_uint; 3] = [
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
];

impl Driver {
    /// Returns the default memory pool of a device.
    pub fn default_memory_pool(&self, device: c_int) -> DriverResult<MemoryPool> {
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDeviceGetDefaultMemPool(&mut pool, device)) }?;
        Ok(MemoryPool(pool as usize))
    }

    /// Enables one of the attributes in [`REUSE`] for a pool.
    pub fn memory_pool_allow_reuse(&self, pool: MemoryPool, which: c_uint) -> DriverResult<()> {
        let mut enabled: c_int = 1;
        // SAFETY: the pool comes from the driver, and the value is a live local of the size of these attributes.
        unsafe { call!(self, cuMemPoolSetAttribute(pool.raw(), which, (&raw mut enabled).cast::<c_void>())) }
    }

    /// Sets an attribute that is a number of bytes.
    pub fn memory_pool_set(&self, pool: MemoryPool, attribute: PoolBytes, mut bytes: u64) -> DriverResult<()> {
        // SAFETY: the pool comes from the driver, and the value is a live local of the size of these attributes.
        unsafe {
            call!(self, cuMemPoolSetAttribute(pool.raw(), attribute as c_uint, (&raw mut bytes).cast::<c_void>()))
        }
    }

    /// Returns an attribute that is a number of bytes.
    pub fn memory_pool_get(&self, pool: MemoryPool, attribute: PoolBytes) -> DriverResult<u64> {
        let mut bytes = 0_u64;
        // SAFETY: as above.
        unsafe {
            call!(self, cuMemPoolGetAttribute(pool.raw(), attribute as c_uint, (&raw mut bytes).cast::<c_void>()))
        }?;
        Ok(bytes)
    }

    /// Releases free memory of a pool to the system, keeping at least `min_reserved` bytes reserved.
    pub fn memory_pool_trim(&self, pool: MemoryPool, min_reserved: u64) -> DriverResult<()> {
        // SAFETY: the pool comes from the driver.
        unsafe { call!(self, cuMemPoolTrimTo(pool.raw(), min_reserved as usize)) }
    }

    /// Gives devices read and write access to a pool's memory.
    pub fn memory_pool_allow(&self, pool: MemoryPool, devices: &[c_int]) -> DriverResult<()> {
        let access = virtual_memory::read_write(devices);
        // SAFETY: the pool comes from the driver; the descriptors live for the call, and their count is correct.
        unsafe { call!(self, cuMemPoolSetAccess(pool.raw(), access.as_ptr(), access.len())) }
    }

    /// Allocates from the pool of a stream's device, for later work in the stream.
    pub fn memory_alloc_async(&self, bytes: u64, stream: Stream) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuMemAllocAsync(&mut address, bytes as usize, stream.raw())) }?;
        Ok(address)
    }

    /// Frees memory from [`memory_alloc_async`](Self::memory_alloc_async) after the earlier work in a stream.
    pub fn memory_free_async(&self, span: Span, stream: Stream) -> DriverResult<()> {
        // SAFETY: the span's constructor guarantees the memory, and the caller passes on its ownership; the stream is
        // live.
        unsafe { call!(self, cuMemFreeAsync(span.address(), stream.raw())) }
    }
}

/// The pool attributes that are numbers of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PoolBytes {
    /// The memory that may stay reserved when a stream is synchronized.
    ReleaseThreshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
    /// The memory that the pool has reserved.
    Reserved = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    /// The maximum of the reserved memory; may be reset to 0.
    ReservedHigh = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
}
