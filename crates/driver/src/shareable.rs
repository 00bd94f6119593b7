//! Physical memory that other processes can map: shared by a file descriptor, or by the older 64-byte IPC handles.
//!
//! As in [`virtual_memory`](super::virtual_memory), addresses and handles are plain integers that the driver validates.

use super::{Driver, DriverResult, Physical, call, types::*};
use std::{
    ffi::{c_char, c_int, c_void},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// The size of a fabric handle in bytes.
pub const FABRIC_HANDLE_BYTES: usize = 64;

/// Takes ownership of a descriptor that the driver has just created.
///
/// # Safety
/// The descriptor is open and has no other owner.
unsafe fn take(descriptor: c_int) -> OwnedFd {
    // A child program must not keep the memory allocated. If this call fails, it may.
    // SAFETY: the call only changes a flag of the descriptor.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: the caller makes this promise.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

impl Driver {
    /// Exports memory with a [`file_descriptor`](super::HandleTypes::file_descriptor) as one that another process can
    /// import. The memory stays allocated while any copy of the descriptor is open.
    pub fn memory_export(&self, physical: Physical) -> DriverResult<OwnedFd> {
        let mut descriptor: c_int = -1;
        // SAFETY: the output is a live local of the size of this kind of handle; a handle that cannot be exported
        // returns an error code.
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
        // SAFETY: the driver just created this descriptor for the caller.
        Ok(unsafe { take(descriptor) })
    }

    /// Exports memory with a [`fabric`](super::HandleTypes::fabric) handle as the bytes with which a process, also on
    /// another machine of the same NVLink fabric, can import it.
    pub fn memory_export_fabric(&self, physical: Physical) -> DriverResult<[u8; FABRIC_HANDLE_BYTES]> {
        let mut handle = [0u8; FABRIC_HANDLE_BYTES];
        // SAFETY: the output is a live local of the size of this kind of handle; a handle that cannot be exported
        // returns an error code.
        unsafe {
            call!(
                self,
                cuMemExportToShareableHandle(handle.as_mut_ptr().cast(), physical.0, CU_MEM_HANDLE_TYPE_FABRIC, 0)
            )
        }?;
        Ok(handle)
    }

    /// Exports a mapped range as a DMA-BUF, with which drivers of other devices access the memory. Both ends are
    /// multiples of the host's page size. The memory stays allocated while any copy of the descriptor is open.
    pub fn memory_dma_buf(&self, address: u64, bytes: u64) -> DriverResult<OwnedFd> {
        let mut descriptor: c_int = -1;
        // SAFETY: the output is a live local of the size of this kind of handle; a range that cannot be exported returns
        // an error code.
        unsafe {
            call!(
                self,
                cuMemGetHandleForAddressRange(
                    (&raw mut descriptor).cast(),
                    address,
                    bytes as usize,
                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                    0
                )
            )
        }?;
        // SAFETY: the driver just created this descriptor for the caller.
        Ok(unsafe { take(descriptor) })
    }

    /// Imports the memory of a descriptor, with one reference. The descriptor may be closed afterwards.
    pub fn memory_import(&self, descriptor: &OwnedFd) -> DriverResult<Physical> {
        let mut handle = 0;
        // The driver takes the descriptor as the pointer's value.
        let shareable = descriptor.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the output is a live local, and the borrow keeps the descriptor open; a descriptor of another kind
        // returns an error code.
        unsafe {
            call!(
                self,
                cuMemImportFromShareableHandle(&mut handle, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            )
        }?;
        Ok(Physical(handle))
    }

    /// Returns the start and the bytes of the driver's allocation that contains an address.
    pub fn memory_range(&self, address: u64) -> DriverResult<(u64, u64)> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: both outputs are live locals; the address is looked up, not dereferenced.
        unsafe { call!(self, cuMemGetAddressRange_v2(&mut base, &mut bytes, address)) }?;
        Ok((base, bytes as u64))
    }

    /// Returns the IPC handle with which another process can open the allocation that contains an address.
    pub fn memory_ipc_handle(&self, address: u64) -> DriverResult<[u8; 64]> {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the output is a live local; an address that is not of such memory returns an error code.
        unsafe { call!(self, cuIpcGetMemHandle(&mut handle, address)) }?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    /// Opens an allocation of another process in the calling thread's context, and returns its address in this process.
    /// The same handle returns the same address, and must be closed once for each time it was opened.
    pub fn memory_open_ipc(&self, handle: [u8; 64]) -> DriverResult<u64> {
        let handle = CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) };
        let mut address = 0;
        // SAFETY: the output is a live local, and a handle that is wrong returns an error code.
        unsafe { call!(self, cuIpcOpenMemHandle_v2(&mut address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) }?;
        Ok(address)
    }

    /// Closes an address from [`memory_open_ipc`](Self::memory_open_ipc), in the same context. Waits for the context's
    /// work.
    pub fn memory_close_ipc(&self, address: u64) -> DriverResult<()> {
        // SAFETY: an address that was not opened returns an error code.
        unsafe { call!(self, cuIpcCloseMemHandle(address)) }
    }
}
