//! Addresses and physical memory apart: ranges are reserved, handles are created, and a handle is mapped whole at an
//! address of a range.
//!
//! Addresses here are plain numbers. The driver answers one that is not a reservation of this process, or a handle that
//! is not one, with a code, and no memory of the host is ever touched through them: that is why these calls are safe. What
//! can go wrong goes wrong on the device, where work that still uses an unmapped address is lost.

use super::{Driver, DriverResult, call, observer, types::*};
use cudarc::driver::sys::CUmemAccess_flags;
use std::ffi::c_int;

/// Physical memory of a device, without an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Physical(pub(super) CUmemGenericAllocationHandle);

impl Physical {
    /// A handle that no driver gave, for tests of what only keeps handles.
    #[cfg(any(test, feature = "test-util"))]
    pub fn dangling(number: u64) -> Self {
        Physical(number)
    }
}

/// Memory that came from the driver with its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment(CUdeviceptr);

impl Segment {
    /// Where it begins.
    pub fn address(self) -> u64 {
        self.0
    }
}

pub(super) fn pinned_on(device: c_int) -> CUmemAllocationProp {
    // SAFETY: the struct is plain numbers, and CUDA asks for unused parts to be zero.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = cudarc::driver::sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(device);
    properties
}

fn location(device: c_int) -> CUmemLocation {
    // SAFETY: as above.
    let mut location: CUmemLocation = unsafe { std::mem::zeroed() };
    location.type_ = cudarc::driver::sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    location
}

fn descriptions(devices: &[c_int], flags: CUmemAccess_flags) -> Vec<CUmemAccessDesc> {
    devices.iter().map(|device| CUmemAccessDesc { location: location(*device), flags }).collect()
}

/// Descriptions that let devices read and write.
pub(super) fn read_write(devices: &[c_int]) -> Vec<CUmemAccessDesc> {
    descriptions(devices, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
}

impl Driver {
    /// The size of which physical memory of a device comes in multiples.
    pub fn memory_granularity(&self, device: c_int) -> DriverResult<u64> {
        let mut bytes = 0;
        // SAFETY: the output is a live local and the properties live for the call.
        unsafe {
            call!(self, cuMemGetAllocationGranularity(&mut bytes, &pinned_on(device), CU_MEM_ALLOC_GRANULARITY_MINIMUM))
        }?;
        Ok(bytes as u64)
    }

    /// Reserves a range of addresses, aligned to `alignment`.
    pub fn memory_reserve(&self, bytes: u64, alignment: u64) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: the output is a live local; sizes that make no sense are answered with a code.
        unsafe { call!(self, cuMemAddressReserve(&mut address, bytes as usize, alignment as usize, 0, 0)) }?;
        observer::notify_allocated(address, bytes);
        Ok(address)
    }

    /// Gives a whole reserved range back; nothing is mapped in it any more.
    pub fn memory_unreserve(&self, address: u64, bytes: u64) -> DriverResult<()> {
        // SAFETY: see the module's comment.
        unsafe { call!(self, cuMemAddressFree(address, bytes as usize)) }
    }

    /// Makes physical memory on a device.
    pub fn memory_create(&self, bytes: u64, device: c_int) -> DriverResult<Physical> {
        let mut handle = 0;
        // SAFETY: the output is a live local and the properties live for the call.
        unsafe { call!(self, cuMemCreate(&mut handle, bytes as usize, &pinned_on(device), 0)) }?;
        Ok(Physical(handle))
    }

    /// Gives physical memory back, as soon as it is mapped nowhere.
    pub fn memory_release(&self, physical: Physical) -> DriverResult<()> {
        // SAFETY: see the module's comment.
        unsafe { call!(self, cuMemRelease(physical.0)) }
    }

    /// Maps a handle of `bytes` bytes at an address. Nobody may touch it before [`memory_allow`](Self::memory_allow).
    pub fn memory_map(&self, address: u64, bytes: u64, physical: Physical) -> DriverResult<()> {
        // SAFETY: see the module's comment.
        unsafe { call!(self, cuMemMap(address, bytes as usize, 0, physical.0, 0)) }
    }

    /// Unmaps a range that covers whole mappings.
    pub fn memory_unmap(&self, address: u64, bytes: u64) -> DriverResult<()> {
        // SAFETY: see the module's comment.
        unsafe { call!(self, cuMemUnmap(address, bytes as usize)) }?;
        if let Some(observer) = observer::current() {
            observer.unmapped(address, bytes);
        }
        Ok(())
    }

    /// Lets devices read and write a mapped range.
    pub fn memory_allow(&self, address: u64, bytes: u64, devices: &[c_int]) -> DriverResult<()> {
        self.memory_access(address, bytes, devices, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    }

    /// Lets devices read and write a mapped range no longer.
    pub fn memory_forbid(&self, address: u64, bytes: u64, devices: &[c_int]) -> DriverResult<()> {
        self.memory_access(address, bytes, devices, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE)
    }

    fn memory_access(&self, address: u64, bytes: u64, devices: &[c_int], flags: CUmemAccess_flags) -> DriverResult<()> {
        let access = descriptions(devices, flags);
        // SAFETY: the descriptions live for the call and are as many as it is told.
        unsafe { call!(self, cuMemSetAccess(address, bytes as usize, access.as_ptr(), access.len())) }
    }

    /// Allocates memory whose address the driver chooses, in the calling thread's context.
    pub fn segment_alloc(&self, bytes: u64) -> DriverResult<Segment> {
        self.memory_alloc(bytes as usize).map(Segment)
    }

    /// Frees a segment, and waits for the work of its context.
    pub fn segment_free(&self, segment: Segment) -> DriverResult<()> {
        // SAFETY: a segment comes from the driver, and its owner forgets it with this call.
        unsafe { call!(self, cuMemFree_v2(segment.0)) }
    }
}
