//! Memory that others register
//!
//! Network adapters, drivers of other devices and communication libraries register memory: they note its physical place
//! and use it without the streams of this process. plinth_memory_uses tells what a block can be used for, and why not. A
//! registration object keeps the block's memory in its place as long as the others use it.
//!
//! A block keeps its memory while it is allocated. While it is registered, its free is deferred: it counts as active, no
//! longer as allocated, until its last registration is destroyed. A pool with registered memory cannot be put to sleep,
//! unless PLINTH_SLEEP_RELEASE_REGISTRATIONS ends the registrations first.
//!
//! The functions may be called from any thread.

use crate::{
    driver::FABRIC_HANDLE_BYTES,
    error::Error,
    ffi::{
        Output,
        guard::{guard, release},
        handle, null,
        status::plinth_status_t,
        string,
        structs::{self, StructOutput},
    },
    memory::{
        registration::{self, PartHandle, ReleaseCallback, uses},
        trackers,
    },
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    os::fd::IntoRawFd,
    ptr,
};

/// A use that memory can be put to. The numbers are indices of plinth_memory_uses_t::reasons and of the bits of
/// plinth_memory_uses_t::supported.
#[allow(non_camel_case_types)]
pub type plinth_memory_use_t = i32;

/// By other processes of this machine: plinth_ipc_send, plinth_ipc_export.
pub const PLINTH_MEMORY_USE_IPC: plinth_memory_use_t = 0;
/// By other processes of this machine, through CUDA's handles of 64 bytes: plinth_ipc_mem_handle, cudaIpcGetMemHandle.
pub const PLINTH_MEMORY_USE_IPC_HANDLE: plinth_memory_use_t = 1;
/// By processes of this and other machines of the same NVLink fabric: PLINTH_MEMORY_HANDLE_FABRIC.
pub const PLINTH_MEMORY_USE_FABRIC: plinth_memory_use_t = 2;
/// By drivers of other devices, such as network adapters: plinth_memory_registration_dma_buf.
pub const PLINTH_MEMORY_USE_DMA_BUF: plinth_memory_use_t = 3;
/// By network adapters that look the address up, as ibv_reg_mr does with nvidia-peermem.
pub const PLINTH_MEMORY_USE_GPU_DIRECT_RDMA: plinth_memory_use_t = 4;
/// As a buffer of an NCCL communicator: ncclCommRegister.
pub const PLINTH_MEMORY_USE_NCCL: plinth_memory_use_t = 5;
/// As a window of an NCCL communicator, like memory of ncclMemAlloc: ncclCommWindowRegister. The answer is about the whole block.
pub const PLINTH_MEMORY_USE_NCCL_WINDOW: plinth_memory_use_t = 6;
/// The number of uses.
pub const PLINTH_MEMORY_USE_COUNT: usize = 7;

/// What another process imports physical memory by. The numbers are those of CUmemAllocationHandleType.
#[allow(non_camel_case_types)]
pub type plinth_memory_handle_type_t = i32;

/// A file descriptor, for processes of this machine.
pub const PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR: plinth_memory_handle_type_t = 1;
/// A fabric handle, for processes of this and other machines of the same NVLink fabric.
pub const PLINTH_MEMORY_HANDLE_FABRIC: plinth_memory_handle_type_t = 8;

/// Size in bytes of a fabric handle, CUmemFabricHandle.
pub const PLINTH_FABRIC_HANDLE_SIZE: usize = 64;

const _: () = assert!(PLINTH_FABRIC_HANDLE_SIZE == FABRIC_HANDLE_BYTES);

/// What a block can be used for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_memory_uses_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The first address of the block.
    pub block: *mut c_void,
    /// The size in bytes that was requested for the block.
    pub size: usize,
    /// The number of the memory's device.
    pub device: i32,
    /// The number of physical allocations under the block.
    pub parts: u32,
    /// The number of registrations of the block.
    pub registrations: u32,
    /// The uses that the block can be put to: bit `1 << PLINTH_MEMORY_USE_...`.
    pub supported: u32,
    /// For each use: NULL if the block can be put to it; otherwise the reason why not, a text that is never freed.
    pub reasons: [*const c_char; PLINTH_MEMORY_USE_COUNT],
}

/// A registration of memory. The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for an invalid one.
#[allow(non_camel_case_types)]
pub struct plinth_memory_registration {
    _private: [u8; 0],
}

/// The handle of a registration of memory.
#[allow(non_camel_case_types)]
pub type plinth_memory_registration_t = *mut plinth_memory_registration;

/// Ends the use of registered memory, because the memory is about to be put to sleep: deregisters it where it was
/// registered, and closes the descriptors that were exported of it. The library holds no lock during the call. The
/// callback may destroy the registration; it must not throw.
///
/// @param context The context of the options.
#[allow(non_camel_case_types)]
pub type plinth_memory_release_callback_t = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// How memory is registered.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_memory_registration_options_t {
    /// The size of the struct in the caller.
    pub struct_size: usize,
    /// A name for messages; NULL for none. It is copied.
    pub name: *const c_char,
    /// Called before the memory is put to sleep with PLINTH_SLEEP_RELEASE_REGISTRATIONS; NULL if the use of the memory
    /// cannot be ended, so that its pool does not sleep.
    pub release: plinth_memory_release_callback_t,
    /// Passed to `release`.
    pub context: *mut c_void,
}

/// What a registration covers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_memory_registration_info_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The first registered address.
    pub pointer: *mut c_void,
    /// The number of registered bytes.
    pub size: usize,
    /// The number of the memory's device.
    pub device: i32,
    /// The number of physical allocations under the registered bytes.
    pub parts: u32,
    /// 1 if the registration was ended because the memory was put to sleep; otherwise 0.
    pub is_released: i32,
    /// Reserved: 0.
    pub reserved: i32,
}

/// A physical allocation under registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_memory_part_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The address at which it is mapped, which may be before the first registered address.
    pub pointer: *mut c_void,
    /// Its size in bytes.
    pub size: usize,
    /// The file descriptor, with the close-on-exec flag; -1 for another handle.
    pub descriptor: i32,
    /// Reserved: 0.
    pub reserved: i32,
    /// The fabric handle; zeros for another handle.
    pub fabric: [u8; PLINTH_FABRIC_HANDLE_SIZE],
}

const NO_OPTIONS: plinth_memory_registration_options_t = plinth_memory_registration_options_t {
    struct_size: size_of::<plinth_memory_registration_options_t>(),
    name: ptr::null(),
    release: None,
    context: ptr::null_mut(),
};

/// Returns what a block of the caching allocator can be used for, and why not.
///
/// @param pointer Any address in memory of plinth_caching_allocator_alloc.
/// @param result In: struct_size. Out: the uses.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER for an address that is not in such memory;
///         PLINTH_ERROR_IPC_REEXPORT for memory of another process; PLINTH_ERROR_IPC_NOT_SHAREABLE for memory of another
///         allocator; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_uses(
    pointer: *const c_void,
    result: *mut plinth_memory_uses_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let result = unsafe { StructOutput::new(result, "result") }?;
        if pointer.is_null() {
            return Err(null("pointer"));
        }
        let found = uses::of_block(pointer as u64)?;
        let uses = found.uses;
        let all =
            [uses.ipc, uses.ipc_handle, uses.fabric, uses.dma_buf, uses.gpu_direct_rdma, uses.nccl, uses.nccl_window];
        let bits = all.iter().enumerate().map(|(index, reason)| u32::from(reason.is_none()) << index);
        result.set(plinth_memory_uses_t {
            struct_size: size_of::<plinth_memory_uses_t>(),
            block: found.address as *mut c_void,
            size: found.bytes as usize,
            device: found.device as i32,
            parts: found.parts,
            registrations: found.registrations,
            supported: bits.sum(),
            reasons: all.map(|reason| reason.map_or(ptr::null(), |text| text.as_ptr())),
        });
        Ok(())
    })
}

/// Registers memory: until the registration is destroyed, the memory keeps its physical place.
///
/// Registering makes no driver call and costs about a microsecond. A part of a block may be registered, and a block several
/// times.
///
/// @param pointer The first address, in memory of plinth_caching_allocator_alloc.
/// @param size Number of bytes, which lie in one block.
/// @param options The options; NULL for those of PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT.
/// @param registration Out: the registration. The caller owns it and destroys it with plinth_memory_registration_destroy,
///        after the others have ended their use of the memory.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER for an address that is not in such memory, or
///         in memory that was freed; PLINTH_ERROR_INVALID_VALUE for bytes beyond the block, and for a struct_size that was
///         not set; PLINTH_ERROR_GRAPH_ASLEEP for memory that sleeps; PLINTH_ERROR_IPC_REEXPORT for memory of another
///         process; PLINTH_ERROR_IPC_NOT_SHAREABLE for memory of another allocator; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_registration_create(
    pointer: *const c_void,
    size: usize,
    options: *const plinth_memory_registration_options_t,
    registration: *mut plinth_memory_registration_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let registration = unsafe { Output::new(registration, "registration") }?;
        if pointer.is_null() {
            return Err(null("pointer"));
        }
        let mut given = NO_OPTIONS;
        if !options.is_null() {
            // SAFETY: the caller passes a struct that begins with its size.
            given = unsafe { structs::read(options, NO_OPTIONS, "options") }?;
        }
        // SAFETY: the name is NULL or a NUL-terminated string.
        let name = if given.name.is_null() { String::new() } else { unsafe { string(given.name, "options->name") }? };
        let context = given.context as usize;
        let release = given.release.map(|callback| -> ReleaseCallback {
            // SAFETY: the caller promises a function of this type, which can be called from any thread.
            Box::new(move || unsafe { callback(context as *mut c_void) })
        });
        let made = registration::register(pointer as u64, size as u64, &name, release)?;
        registration.set(made as plinth_memory_registration_t);
        Ok(())
    })
}

/// Destroys a registration. A block that was freed meanwhile, and that nothing else uses, becomes free.
///
/// The library does not end the use of the memory by others: deregister it with them, and close the descriptors, before
/// this call. A DMA-BUF or a handle that is still open keeps the physical memory allocated but not in its place: what it
/// refers to and what the address refers to may then differ.
///
/// @param registration The registration; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_registration_destroy(
    registration: plinth_memory_registration_t,
) -> plinth_status_t {
    release(|| {
        let ended = registration::unregister(registration as u64);
        trackers::deliver();
        ended
    })
}

/// Returns what a registration covers.
///
/// @param registration The registration.
/// @param result In: struct_size. Out: what it covers.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a struct_size
///         that was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_registration_info(
    registration: plinth_memory_registration_t,
    result: *mut plinth_memory_registration_info_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let result = unsafe { StructOutput::new(result, "result") }?;
        let info = registration::info(handle(registration, "registration")?)?;
        result.set(plinth_memory_registration_info_t {
            struct_size: size_of::<plinth_memory_registration_info_t>(),
            pointer: info.address as *mut c_void,
            size: info.bytes as usize,
            device: info.device as i32,
            parts: info.parts,
            is_released: info.is_released.into(),
            reserved: 0,
        });
        Ok(())
    })
}

/// Exports registered memory as one DMA-BUF, for drivers of other devices: ibv_reg_dmabuf_mr, for example.
///
/// The DMA-BUF is the smallest range of whole pages of the host that contains the registered bytes, however many physical
/// allocations are under them. An open descriptor keeps the physical memory allocated.
///
/// @param registration The registration.
/// @param descriptor Out: the file descriptor, with the close-on-exec flag. The caller owns it and closes it.
/// @param offset Out: the offset of the first registered byte in the DMA-BUF.
/// @param size Out: the size of the DMA-BUF in bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_IPC_NOT_SHAREABLE if the device
///         or the memory does not support it, with the reason; PLINTH_ERROR_GRAPH_ASLEEP if the registration was ended;
///         PLINTH_ERROR_NOT_SUPPORTED if the driver is older than CUDA 11.7; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_registration_dma_buf(
    registration: plinth_memory_registration_t,
    descriptor: *mut i32,
    offset: *mut usize,
    size: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or pointers that are valid for writes.
        let (descriptor, offset, size) = unsafe {
            (Output::new(descriptor, "descriptor")?, Output::new(offset, "offset")?, Output::new(size, "size")?)
        };
        let exported = registration::dma_buf(handle(registration, "registration")?)?;
        offset.set(exported.offset as usize);
        size.set(exported.bytes as usize);
        descriptor.set(exported.descriptor.into_raw_fd());
        Ok(())
    })
}

/// Exports one of the physical allocations under registered memory, for cuMemImportFromShareableHandle in another process.
///
/// @param registration The registration.
/// @param index The index of the allocation, from 0 to plinth_memory_registration_info_t::parts - 1, in the order of their
///        addresses.
/// @param handle_type Which handle to export.
/// @param part In: struct_size. Out: the allocation. The caller closes a descriptor; a fabric handle keeps nothing
///        allocated.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an index that
///         does not exist, an unknown handle type, and a struct_size that was not set; PLINTH_ERROR_IPC_NOT_SHAREABLE if
///         the memory has no such handle, with the reason; PLINTH_ERROR_GRAPH_ASLEEP if the registration was ended;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_registration_part(
    registration: plinth_memory_registration_t,
    index: u32,
    handle_type: plinth_memory_handle_type_t,
    part: *mut plinth_memory_part_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let output = unsafe { StructOutput::new(part, "part") }?;
        let fabric = match handle_type {
            PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR => false,
            PLINTH_MEMORY_HANDLE_FABRIC => true,
            other => {
                let what = format!("handle_type is {other}, which is no plinth_memory_handle_type_t");
                return Err(Error::new(Status::INVALID_VALUE, what));
            }
        };
        let exported = registration::part(handle(registration, "registration")?, index, fabric)?;
        let mut part = plinth_memory_part_t {
            struct_size: size_of::<plinth_memory_part_t>(),
            pointer: exported.address as *mut c_void,
            size: exported.bytes as usize,
            descriptor: -1,
            reserved: 0,
            fabric: [0; PLINTH_FABRIC_HANDLE_SIZE],
        };
        match exported.handle {
            PartHandle::FileDescriptor(descriptor) => part.descriptor = descriptor.into_raw_fd(),
            PartHandle::Fabric(bytes) => part.fabric = bytes,
        }
        output.set(part);
        Ok(())
    })
}
