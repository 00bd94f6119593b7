//! Virtual memory: address ranges are reserved, physical handles are created, and a handle is mapped as a whole at an
//! address in a range.
//!
//! Addresses are plain integers here. For an address that this process has not reserved, or an invalid handle, the
//! driver returns an error code, and host memory is never accessed through them. Therefore these calls are safe. Misuse
//! only affects the device, where work that still uses an unmapped address fails.

use super::{Call, Driver, DriverResult, call, observer, types::*};
use cudarc::driver::sys::{CUmemAccess_flags, CUmemAllocationHandleType_enum};
use std::ffi::c_int;

/// Physical memory of a device, without an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Physical(pub(super) CUmemGenericAllocationHandle);

impl Physical {
    /// Creates an invalid handle, for tests that only store handles.
    #[cfg(any(test, feature = "test-util"))]
    pub fn dangling(number: u64) -> Self {
        Physical(number)
    }
}

/// What physical memory can be used for beyond its process, which is fixed when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HandleTypes {
    /// Whether it can be exported as a file descriptor, to processes of this machine.
    pub file_descriptor: bool,
    /// Whether it can be exported as a fabric handle, also to processes of other machines of the same NVLink fabric.
    pub fabric: bool,
    /// Whether network adapters can access it by its address: GPUDirect RDMA.
    pub gpu_direct_rdma: bool,
}

/// Memory whose address the driver chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment(CUdeviceptr);

impl Segment {
    /// Returns the address.
    pub fn address(self) -> u64 {
        self.0
    }
}

pub(super) fn pinned_on(device: c_int) -> CUmemAllocationProp {
    // SAFETY: the struct consists of integers, for which zeros are valid, and CUDA requires unused fields to be zero.
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

/// Creates descriptors of read and write access.
pub(super) fn read_write(devices: &[c_int]) -> Vec<CUmemAccessDesc> {
    descriptions(devices, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
}

impl Driver {
    /// Returns the allocation granularity of a device's physical memory in bytes.
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
        // SAFETY: the output is a live local; invalid sizes return an error code.
        unsafe { call!(self, cuMemAddressReserve(&mut address, bytes as usize, alignment as usize, 0, 0)) }?;
        observer::notify_allocated(address, bytes);
        Ok(address)
    }

    /// Frees a whole reserved range. Nothing may be mapped in it.
    pub fn memory_unreserve(&self, address: u64, bytes: u64) -> DriverResult<()> {
        // SAFETY: see the module documentation.
        unsafe { call!(self, cuMemAddressFree(address, bytes as usize)) }
    }

    /// Creates physical memory on a device that can be used as `types` say.
    pub fn memory_create(&self, bytes: u64, device: c_int, types: HandleTypes) -> DriverResult<Physical> {
        let file_descriptor = if types.file_descriptor { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } else { 0 };
        let fabric = if types.fabric { CU_MEM_HANDLE_TYPE_FABRIC } else { 0 };
        let mut properties = pinned_on(device);
        properties.requestedHandleTypes = CUmemAllocationHandleType_enum(file_descriptor | fabric);
        properties.allocFlags.gpuDirectRDMACapable = u8::from(types.gpu_direct_rdma);
        let mut handle = 0;
        // SAFETY: the output is a live local and the properties live for the call.
        unsafe { call!(self, cuMemCreate(&mut handle, bytes as usize, &properties, 0)) }?;
        Ok(Physical(handle))
    }

    /// Releases physical memory. It is freed once it is no longer mapped.
    pub fn memory_release(&self, physical: Physical) -> DriverResult<()> {
        // SAFETY: see the module documentation.
        unsafe { call!(self, cuMemRelease(physical.0)) }
    }

    /// Maps a handle of `bytes` bytes at an address. The range must not be accessed before
    /// [`memory_allow`](Self::memory_allow).
    pub fn memory_map(&self, address: u64, bytes: u64, physical: Physical) -> DriverResult<()> {
        // SAFETY: see the module documentation.
        unsafe { call!(self, cuMemMap(address, bytes as usize, 0, physical.0, 0)) }
    }

    /// Unmaps a range that covers whole mappings.
    pub fn memory_unmap(&self, address: u64, bytes: u64) -> DriverResult<()> {
        // SAFETY: see the module documentation.
        unsafe { call!(self, cuMemUnmap(address, bytes as usize)) }?;
        if let Some(observer) = observer::current() {
            observer.unmapped(address, bytes);
        }
        Ok(())
    }

    /// Gives devices read and write access to a mapped range.
    pub fn memory_allow(&self, address: u64, bytes: u64, devices: &[c_int]) -> DriverResult<()> {
        self.memory_access(address, bytes, devices, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    }

    /// Revokes the access of devices to a mapped range.
    pub fn memory_forbid(&self, address: u64, bytes: u64, devices: &[c_int]) -> DriverResult<()> {
        self.memory_access(address, bytes, devices, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE)
    }

    fn memory_access(&self, address: u64, bytes: u64, devices: &[c_int], flags: CUmemAccess_flags) -> DriverResult<()> {
        let access = descriptions(devices, flags);
        // SAFETY: the descriptors live for the call, and their count is correct.
        unsafe { call!(self, cuMemSetAccess(address, bytes as usize, access.as_ptr(), access.len())) }
    }

    /// Allocates memory whose address the driver chooses, in the calling thread's context.
    pub fn segment_alloc(&self, bytes: u64) -> DriverResult<Segment> {
        self.memory_alloc(bytes as usize).map(Segment)
    }

    /// Frees a segment, and waits for the work of its context.
    pub fn segment_free(&self, segment: Segment) -> DriverResult<()> {
        observer::check_wait(Call::cuMemFree_v2)?;
        // SAFETY: a segment comes from the driver, and its owner does not use it after this call.
        unsafe { call!(self, cuMemFree_v2(segment.0)) }
    }
}
