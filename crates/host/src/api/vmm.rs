//! Virtual memory management.

use super::{INVALID, Out, enter, enter_at};
use crate::{
    config::{Copies, GRANULE},
    cost,
    driver::{
        FABRIC_HANDLE_BYTES, HandleTypes, codes,
        table::{Call, Code},
        types::*,
    },
    ids::Id,
    memory::{Mapping, Memory, virt::Access},
    state::{self, State},
    stream,
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// CUDA's structures with plain integers instead of enumerations, since a program may pass any number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: c_uint,
    id: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: c_uint,
    handle_types: c_uint,
    location: Location,
    win32: *mut c_void,
    compression: u8,
    gpu_direct_rdma: u8,
    unused: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AccessDescription {
    location: Location,
    pub(super) flags: c_uint,
}

const _: () = assert!(size_of::<Properties>() == size_of::<CUmemAllocationProp>());
const _: () = assert!(size_of::<AccessDescription>() == size_of::<CUmemAccessDesc>());
const _: () = assert!(size_of::<Location>() == size_of::<CUmemLocation>());

impl Location {
    fn device(self, state: &State) -> Result<usize, Code> {
        match self.kind {
            CU_MEM_LOCATION_TYPE_DEVICE => {
                let index = usize::try_from(self.id).map_err(|_| codes::CUDA_ERROR_INVALID_DEVICE)?;
                if index < state.contexts.len() { Ok(index) } else { Err(codes::CUDA_ERROR_INVALID_DEVICE) }
            }
            // Host memory with a handle, with or without a NUMA node: 2 to 4.
            CU_MEM_LOCATION_TYPE_HOST..=4 => Err(codes::CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(INVALID),
        }
    }
}

/// Returns the device of the properties, and what the memory can be used for.
fn properties(state: &State, properties: *const CUmemAllocationProp) -> Result<(usize, HandleTypes), Code> {
    if properties.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller passed a structure of this layout, and any bits are a valid value of the one read here.
    let properties = unsafe { properties.cast::<Properties>().read() };
    let known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    if properties.kind != CU_MEM_ALLOCATION_TYPE_PINNED || properties.handle_types & !known != 0 {
        return Err(INVALID);
    }
    let types = HandleTypes {
        file_descriptor: properties.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0,
        fabric: properties.handle_types & CU_MEM_HANDLE_TYPE_FABRIC != 0,
        gpu_direct_rdma: properties.gpu_direct_rdma != 0,
    };
    Ok((properties.location.device(state)?, types))
}

pub unsafe extern "C" fn cuMemAddressReserve(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: c_ulonglong,
) -> Code {
    enter(Call::cuMemAddressReserve, bytes as u64, |state| {
        let out = Out::new(pointer)?;
        if flags != 0 {
            return Err(INVALID);
        }
        out.put(state.memory.write().reserve(bytes as u64, alignment as u64, hint, true)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemAddressFree(pointer: CUdeviceptr, bytes: usize) -> Code {
    enter(Call::cuMemAddressFree, bytes as u64, |state| state.memory.write().free_reservation(pointer, bytes as u64))
}

pub unsafe extern "C" fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    props: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> Code {
    enter(Call::cuMemCreate, bytes as u64, |state| {
        let out = Out::new(handle)?;
        let size = bytes as u64;
        if flags != 0 || size == 0 || !size.is_multiple_of(GRANULE) {
            return Err(INVALID);
        }
        let (device, types) = properties(state, props)?;
        // A GPU whose machine has no fabric reports the attribute all the same.
        if types.fabric && !state.config.fabric {
            return Err(codes::CUDA_ERROR_NOT_PERMITTED);
        }
        out.put(state.memory.write().create(device, size, types)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Code {
    let bytes = handle_bytes(handle);
    enter(Call::cuMemRelease, bytes, |state| state.memory.write().release(handle as Id).map(drop))
}

/// Returns the size of a handle's memory, for the price; 0 for an invalid handle.
fn handle_bytes(handle: CUmemGenericAllocationHandle) -> u64 {
    state::get().ok().and_then(|state| state.memory.read().physical.get(&handle).map(|one| one.bytes)).unwrap_or(0)
}

/// Returns what a mapping of memory for network adapters costs more than another.
fn rdma_price(memory: &Memory, physical: Id) -> u64 {
    let is_capable = memory.physical.get(&physical).is_some_and(|one| one.types.gpu_direct_rdma);
    if is_capable { cost::GPU_DIRECT_RDMA } else { 0 }
}

/// Returns the price of a call that is charged for each mapping in a range.
fn range_price(call: Call, pointer: CUdeviceptr, bytes: usize) -> u64 {
    let end = pointer.saturating_add(bytes as u64);
    let Ok(state) = state::get() else { return cost::price(call, 0) };
    let memory = state.memory.read();
    let of_one = |one: &Mapping| {
        let more = if call == Call::cuMemUnmap { rdma_price(&memory, one.physical) } else { 0 };
        cost::price(call, one.bytes) + more
    };
    let prices: u64 = memory.mappings.range(pointer..end).map(|(_, one)| of_one(one)).sum();
    prices.max(cost::price(call, 0))
}

pub unsafe extern "C" fn cuMemMap(
    pointer: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> Code {
    let more = state::get().map_or(0, |state| rdma_price(&state.memory.read(), handle));
    enter_at(Call::cuMemMap, cost::price(Call::cuMemMap, bytes as u64) + more, |state| {
        if flags != 0 {
            return Err(INVALID);
        }
        state.memory.write().map(pointer, bytes as u64, offset as u64, handle)
    })
}

pub unsafe extern "C" fn cuMemUnmap(pointer: CUdeviceptr, bytes: usize) -> Code {
    enter_at(Call::cuMemUnmap, range_price(Call::cuMemUnmap, pointer, bytes), |state| {
        state.memory.write().unmap(pointer, bytes as u64)
    })
}

/// Reads an access description.
///
/// # Safety
/// `access` points to a structure of CUDA's.
pub(super) unsafe fn read_access(access: *const CUmemAccessDesc) -> AccessDescription {
    // SAFETY: the structures have the same layout, and any bits are a valid value of the one read.
    unsafe { access.cast::<AccessDescription>().read() }
}

impl AccessDescription {
    pub(super) fn access(self, state: &State) -> Result<Access, Code> {
        let device = self.location.device(state)?;
        let (read, write) = match self.flags {
            CU_MEM_ACCESS_FLAGS_PROT_NONE => (false, false),
            CU_MEM_ACCESS_FLAGS_PROT_READ => (true, false),
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE => (true, true),
            _ => return Err(INVALID),
        };
        Ok(Access { device, read, write })
    }
}

pub unsafe extern "C" fn cuMemSetAccess(
    pointer: CUdeviceptr,
    bytes: usize,
    access: *const CUmemAccessDesc,
    count: usize,
) -> Code {
    enter_at(Call::cuMemSetAccess, range_price(Call::cuMemSetAccess, pointer, bytes), |state| {
        if access.is_null() || count == 0 {
            return Err(INVALID);
        }
        let mut accesses = Vec::new();
        for index in 0..count {
            // SAFETY: the caller passed `count` structures.
            let one = unsafe { read_access(access.add(index)) };
            // Here a wrong device is an invalid value.
            accesses.push(
                one.access(state).map_err(
                    |code| {
                        if code == codes::CUDA_ERROR_INVALID_DEVICE { INVALID } else { code }
                    },
                )?,
            );
        }
        if state.config.copies == Copies::Exclusive {
            accesses.iter().for_each(|access| stream::await_copies(state, access.device));
        }
        state.memory.write().set_access(pointer, bytes as u64, &accesses)
    })
}

pub unsafe extern "C" fn cuMemGetAccess(
    flags: *mut c_ulonglong,
    location: *const CUmemLocation,
    pointer: CUdeviceptr,
) -> Code {
    enter(Call::cuMemGetAccess, 0, |state| {
        let out = Out::new(flags)?;
        if location.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller passed a structure of this layout; any bits are a valid value of the one read here.
        let device = unsafe { location.cast::<Location>().read() }.device(state)?;
        out.put(state.memory.read().access(device, pointer)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    bytes: *mut usize,
    props: *const CUmemAllocationProp,
    option: c_uint,
) -> Code {
    enter(Call::cuMemGetAllocationGranularity, 0, |_| {
        let out = Out::new(bytes)?;
        if props.is_null() || !matches!(option, CU_MEM_ALLOC_GRANULARITY_MINIMUM | CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        {
            return Err(INVALID);
        }
        out.put(GRANULE as usize);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemExportToShareableHandle(
    shareable: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: c_uint,
    flags: c_ulonglong,
) -> Code {
    enter(Call::cuMemExportToShareableHandle, 0, |state| {
        let descriptor = Out::new(shareable.cast::<c_int>())?;
        if flags != 0 {
            return Err(INVALID);
        }
        match kind {
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => {
                descriptor.put(state.memory.write().export(handle, &state.config.visible)?);
            }
            CU_MEM_HANDLE_TYPE_FABRIC => {
                let out = Out::new(shareable.cast::<[u8; FABRIC_HANDLE_BYTES]>())?;
                out.put(state.memory.write().export_fabric(handle, &state.config.visible)?);
            }
            _ => return Err(INVALID),
        }
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemImportFromShareableHandle(
    handle: *mut CUmemGenericAllocationHandle,
    shareable: *mut c_void,
    kind: c_uint,
) -> Code {
    enter(Call::cuMemImportFromShareableHandle, 0, |state| {
        let out = Out::new(handle)?;
        match kind {
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => {
                // A file descriptor is passed as the pointer's value.
                let fd = c_int::try_from(shareable as isize).map_err(|_| INVALID)?;
                out.put(state.memory.write().import(fd, &state.config.visible)?);
            }
            CU_MEM_HANDLE_TYPE_FABRIC if !state.config.fabric => return Err(codes::CUDA_ERROR_NOT_PERMITTED),
            CU_MEM_HANDLE_TYPE_FABRIC if shareable.is_null() => return Err(INVALID),
            CU_MEM_HANDLE_TYPE_FABRIC => {
                // SAFETY: the caller passed a handle of this kind, whose bytes may have any values.
                let bytes = unsafe { shareable.cast::<[u8; FABRIC_HANDLE_BYTES]>().read() };
                out.put(state.memory.write().import_fabric(bytes, &state.config.visible)?);
            }
            _ => return Err(codes::CUDA_ERROR_NOT_SUPPORTED),
        }
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    pointer: CUdeviceptr,
    bytes: usize,
    kind: c_uint,
    flags: c_ulonglong,
) -> Code {
    enter(Call::cuMemGetHandleForAddressRange, 0, |state| {
        let out = Out::new(handle.cast::<c_int>())?;
        if kind != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD {
            return Err(INVALID);
        }
        // A mapping for PCIe alone, which the driver of an H200 does not support.
        if flags == 1 {
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        if flags != 0 {
            return Err(INVALID);
        }
        out.put(state.memory.write().dma_buf(pointer, bytes as u64)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemRetainAllocationHandle(
    handle: *mut CUmemGenericAllocationHandle,
    pointer: *mut c_void,
) -> Code {
    enter(Call::cuMemRetainAllocationHandle, 0, |state| {
        let out = Out::new(handle)?;
        out.put(state.memory.write().retain_at(pointer as u64)?);
        Ok(())
    })
}
