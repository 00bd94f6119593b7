//! Pointer attributes and managed memory
//!
//! What the library and the driver know of an address, and managed memory, which the host and all devices use at the
//! same address. Any value may be asked about: the library looks addresses up and never reads what they point to.

use crate::{
    driver::MemoryKind,
    ffi::{
        Output,
        guard::{guard, release},
        pool::plinth_pool_id_t,
        span,
        status::plinth_status_t,
        structs::StructOutput,
    },
    memory::{self, Attributes, Owner},
};
use std::{ffi::c_void, mem};

/// Memory that the driver does not know: pageable host memory, or an unmapped address.
pub const PLINTH_MEMORY_UNREGISTERED: i32 = 0;
/// Pinned host memory.
pub const PLINTH_MEMORY_HOST: i32 = 1;
/// Device memory.
pub const PLINTH_MEMORY_DEVICE: i32 = 2;
/// Managed memory, which the driver migrates between host and devices.
pub const PLINTH_MEMORY_MANAGED: i32 = 3;

/// The memory was not allocated by CUDA.
pub const PLINTH_OWNER_NONE: i32 = 0;
/// Allocated by the program or another library, or by plinth without a cache: plinth_device_malloc,
/// plinth_pinned_malloc and the like.
pub const PLINTH_OWNER_PROGRAM: i32 = 1;
/// The caching allocator, plinth_caching_allocator_alloc.
pub const PLINTH_OWNER_CACHING_ALLOCATOR: i32 = 2;
/// The allocator of pinned host memory, plinth_host_alloc.
pub const PLINTH_OWNER_HOST_ALLOCATOR: i32 = 3;

/// The attributes of a pointer.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_pointer_attributes_t) before the
/// call.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_pointer_attributes_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The kind of memory: one of PLINTH_MEMORY_....
    pub kind: i32,
    /// The device that the memory belongs to; for pinned memory the device that was current when it was pinned. -1 for
    /// unregistered memory.
    pub device: i32,
    /// What allocated the memory from the driver: one of PLINTH_OWNER_....
    pub owner: i32,
    /// 1 if the address range and the physical memory were allocated separately (virtual memory management), so that
    /// physical memory can be remapped, else 0.
    pub is_virtual: i32,
    /// The address for access by devices; NULL if devices cannot access the memory.
    pub device_pointer: *mut c_void,
    /// The address for access by the host; NULL if the host cannot access the memory, and for unregistered memory.
    pub host_pointer: *mut c_void,
    /// The beginning of the block that contains the pointer: a block of one of the library's allocators, else the
    /// driver's allocation. NULL for unregistered memory, and for free memory of the library's allocators.
    pub base: *mut c_void,
    /// Size of the block in bytes.
    pub size: usize,
    /// The beginning of the driver allocation that contains the block; NULL for unregistered memory.
    pub range_base: *mut c_void,
    /// Size of the driver allocation in bytes.
    pub range_size: usize,
    /// The pool of the caching allocator that the memory belongs to; {0, 0} for the default pool, and for all other
    /// memory.
    pub pool: plinth_pool_id_t,
}

fn kind_of(kind: MemoryKind) -> i32 {
    match kind {
        MemoryKind::Unregistered => PLINTH_MEMORY_UNREGISTERED,
        MemoryKind::Pinned => PLINTH_MEMORY_HOST,
        MemoryKind::Device => PLINTH_MEMORY_DEVICE,
        MemoryKind::Managed => PLINTH_MEMORY_MANAGED,
    }
}

fn owner_of(owner: Owner) -> i32 {
    match owner {
        Owner::Unknown => PLINTH_OWNER_NONE,
        Owner::Program => PLINTH_OWNER_PROGRAM,
        Owner::Cache => PLINTH_OWNER_CACHING_ALLOCATOR,
        Owner::HostCache => PLINTH_OWNER_HOST_ALLOCATOR,
    }
}

impl From<Attributes> for plinth_pointer_attributes_t {
    fn from(from: Attributes) -> Self {
        let details = from.details;
        let (base, size) = from.block.unwrap_or((0, 0));
        let known = details.info.kind != MemoryKind::Unregistered;
        plinth_pointer_attributes_t {
            struct_size: mem::size_of::<Self>(),
            kind: kind_of(details.info.kind),
            device: if known { details.info.device } else { -1 },
            owner: owner_of(from.owner),
            is_virtual: details.is_virtual.into(),
            device_pointer: details.device as *mut c_void,
            host_pointer: details.host as *mut c_void,
            base: base as *mut c_void,
            size: size as usize,
            range_base: details.start as *mut c_void,
            range_size: details.bytes,
            pool: plinth_pool_id_t { owner: from.pool.owner, index: from.pool.index },
        }
    }
}

/// Returns the attributes of a pointer: the kind of memory, its device, its addresses, its allocator and its block.
///
/// Every value is valid: the address is looked up, not dereferenced. For memory of the caching allocator, the block is
/// found by a search through all blocks of its stream, so do not call this in a hot path.
///
/// @param pointer An address.
/// @param attributes In: struct_size. Out: the attributes.
/// @return PLINTH_OK, also for unregistered memory; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if
///         struct_size is too small; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pointer_attributes(
    pointer: *const c_void,
    attributes: *mut plinth_pointer_attributes_t,
) -> plinth_status_t {
    guard(|| {
        let found = memory::attributes(pointer as u64)?;
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        unsafe { StructOutput::new(attributes, "attributes") }?.set(found.into());
        Ok(())
    })
}

/// Allocates managed memory, which the host and every device access by the same address, and which the driver migrates
/// on access. Slow; the memory is not cached.
///
/// The driver itself would allow more managed memory than the device has, and migrate it in and out with every use.
/// This call does not oversubscribe: it fails if the device has less free memory now than requested.
///
/// @param size Number of bytes; 0 returns NULL.
/// @param device The number of the device that the memory belongs to; -1 for the current device.
/// @param pointer Out: the memory. The caller owns it and frees it with plinth_managed_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a message
///         that states the requested, free and total bytes; PLINTH_ERROR_NOT_SUPPORTED for a device or a driver without
///         managed memory; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_managed_malloc(size: usize, device: i32, pointer: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::managed_alloc(size, device)? as *mut c_void);
        Ok(())
    })
}

/// Frees memory of plinth_managed_malloc. Waits for all work of the memory's device, as cudaFree does.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_managed_malloc did not return, or that was
///         freed already; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
///         PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_managed_free(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller transfers the memory to this call.
    release(|| memory::managed_free(unsafe { span(pointer, 0) }))
}
