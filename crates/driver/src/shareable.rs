//! Physical memory that other processes can have, too: as a file descriptor, or by the older handles of 64 bytes.
//!
//! As in [`virtual_memory`](super::virtual_memory), addresses and handles are plain numbers that the driver checks.

use super::{Driver, DriverResult, Physical, call, types::*, virtual_memory};
use cudarc::driver::sys::CUmemAllocationHandleType;
use std::{
    ffi::{c_char, c_int, c_void},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

impl Driver {
    /// Makes physical memory on a device that can be exported.
    pub fn memory_create_shareable(&self, bytes: u64, device: c_int) -> DriverResult<Physical> {
        let mut properties = virtual_memory::pinned_on(device);
        properties.requestedHandleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let mut handle = 0;
        // SAFETY: the output is a live local and the properties live for the call.
        unsafe { call!(self, cuMemCreate(&mut handle, bytes as usize, &properties, 0)) }?;
        Ok(Physical(handle))
    }

    /// A descriptor by which another process can import memory that was made for that. It keeps the memory as long as it
    /// is open anywhere.
    pub fn memory_export(&self, physical: Physical) -> DriverResult<OwnedFd> {
        let mut descriptor: c_int = -1;
        // SAFETY: the output is a live local of the size that this kind of handle has; a handle that cannot be exported is
        // answered with a code.
        unsafe {
            call!(
                self,
                cuMemExportToShareableHandle(
                    (&raw mut descriptor).cast(),
                    physical.0,
                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                    0
                )
            )
        }?;
        // A program that this one starts must not keep the memory. Where this fails, it may.
        // SAFETY: a plain call on the descriptor that was just made.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: the driver just made this descriptor for the caller, and nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// The memory behind a descriptor, held once. The descriptor is not needed any more then.
    pub fn memory_import(&self, descriptor: &OwnedFd) -> DriverResult<Physical> {
        let mut handle = 0;
        // A descriptor travels as the pointer's value.
        let shareable = descriptor.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the output is a live local, and the borrow keeps the descriptor open; one of another kind is answered
        // with a code.
        unsafe {
            call!(
                self,
                cuMemImportFromShareableHandle(&mut handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            )
        }?;
        Ok(Physical(handle))
    }

    /// The whole allocation of the driver's that an address lies in: where it begins, and its bytes.
    pub fn memory_range(&self, address: u64) -> DriverResult<(u64, u64)> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: both outputs are live locals; the address is looked up, not followed.
        unsafe { call!(self, cuMemGetAddressRange_v2(&mut base, &mut bytes, address)) }?;
        Ok((base, bytes as u64))
    }

    /// What another process needs to open the whole allocation that an address lies in.
    pub fn memory_ipc_handle(&self, address: u64) -> DriverResult<[u8; 64]> {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the output is a live local; an address that is not of such memory is answered with a code.
        unsafe { call!(self, cuIpcGetMemHandle(&mut handle, address)) }?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    /// Opens another process's allocation in the calling thread's context, and returns its address here: the same for the
    /// same handle, which is to be closed as often as it was opened.
    pub fn memory_open_ipc(&self, handle: [u8; 64]) -> DriverResult<u64> {
        let handle = CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) };
        let mut address = 0;
        // SAFETY: the output is a live local, and a handle that is wrong is answered with a code.
        unsafe { call!(self, cuIpcOpenMemHandle_v2(&mut address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) }?;
        Ok(address)
    }

    /// Closes what [`memory_open_ipc`](Self::memory_open_ipc) opened, in the same context. Waits for the context's work.
    pub fn memory_close_ipc(&self, address: u64) -> DriverResult<()> {
        // SAFETY: an address that was not opened is answered with a code.
        unsafe { call!(self, cuIpcCloseMemHandle(address)) }
    }
}
