//! What a pointer is, and managed memory, as C sees them.

use crate::{
    driver::MemoryKind,
    ffi::{Output, guard::guard, pool::plinth_pool_id_t, properties::write_growable, span, status::plinth_status_t},
    memory::{self, Attributes, Owner},
};
use std::{ffi::c_void, mem};

/// Memory that the driver does not know: plain host memory, or none at all.
pub const PLINTH_MEMORY_UNREGISTERED: i32 = 0;
/// Pinned host memory.
pub const PLINTH_MEMORY_HOST: i32 = 1;
/// A device's memory.
pub const PLINTH_MEMORY_DEVICE: i32 = 2;
/// Memory that the driver moves between host and devices.
pub const PLINTH_MEMORY_MANAGED: i32 = 3;

/// Nobody has the memory from the driver.
pub const PLINTH_OWNER_NONE: i32 = 0;
/// The program, another library, or plinth for them: plinth_device_malloc, plinth_pinned_malloc and the like.
pub const PLINTH_OWNER_PROGRAM: i32 = 1;
/// The caching allocator, plinth_caching_allocator_alloc.
pub const PLINTH_OWNER_CACHING_ALLOCATOR: i32 = 2;
/// The allocator of pinned memory, plinth_host_alloc.
pub const PLINTH_OWNER_HOST_ALLOCATOR: i32 = 3;

/// What is known of a pointer.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_pointer_attributes_t) before the call.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_pointer_attributes_t {
    /// In: the size that the caller knows. Out: how much of it was filled.
    pub struct_size: usize,
    /// PLINTH_MEMORY_...: the kind of memory.
    pub kind: i32,
    /// The device that it belongs to; of pinned memory the one that was current when it was pinned. -1 for unregistered
    /// memory.
    pub device: i32,
    /// PLINTH_OWNER_...: who has it from the driver.
    pub owner: i32,
    /// 1 if the addresses and the memory behind them were made apart, so that memory may move, else 0.
    pub is_virtual: i32,
    /// The address by which devices use it; NULL if they cannot.
    pub device_pointer: *mut c_void,
    /// The address by which the host uses it; NULL if it cannot, and for unregistered memory.
    pub host_pointer: *mut c_void,
    /// Where the block begins that the pointer lies in: one of an allocator's of the library, else of the driver's. NULL for
    /// unregistered memory and for free memory of an allocator's.
    pub base: *mut c_void,
    /// The bytes of the block.
    pub size: usize,
    /// Where the piece of memory begins that the driver knows, in which the block lies; NULL for unregistered memory.
    pub range_base: *mut c_void,
    /// The bytes of that.
    pub range_size: usize,
    /// The pool of the caching allocator that it belongs to; {0, 0} for the default one and for all other memory.
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

/// Tells what is known of a pointer: its kind of memory, its device, its addresses, whose it is and where it begins.
///
/// Any value may be asked about: it is looked up, not followed. For the caching allocator's memory the block is found by
/// looking at all blocks of its stream, so this is not for every copy. Thread-safe.
///
/// @param pointer An address.
/// @param attributes In: struct_size. Out: what is known.
/// @return PLINTH_OK, also for memory that nobody knows; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size
///         that is too small; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pointer_attributes(
    pointer: *const c_void,
    attributes: *mut plinth_pointer_attributes_t,
) -> plinth_status_t {
    guard(|| {
        let found = memory::attributes(pointer as u64)?;
        // SAFETY: the caller passes a struct whose first field says its size; ours is plain data that begins likewise.
        unsafe { write_growable(attributes, found.into(), "attributes") }
    })
}

/// Allocates managed memory: memory that the host and every device use by one address, and that the driver moves to where it
/// is touched. Slow, and never cached. Thread-safe.
///
/// The driver would give more than the device has, and move it in and out with every use. This call does not: it fails
/// beyond what is free on the device now.
///
/// @param size Bytes; 0 gives NULL.
/// @param device The device that it belongs to; -1 for the current one.
/// @param pointer Out: the memory. The caller owns it and frees it with plinth_managed_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a message that tells
///         request, free and total; PLINTH_ERROR_NOT_SUPPORTED for a device or a driver without it; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_managed_malloc(size: usize, device: i32, pointer: *mut *mut c_void) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        pointer.set(memory::managed_alloc(size, device)? as *mut c_void);
        Ok(())
    })
}

/// Frees what plinth_managed_malloc gave. As cudaFree does, it waits for all work of the memory's device. Thread-safe.
///
/// @param pointer The memory; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_managed_malloc did not give or was freed already;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_managed_free(pointer: *mut c_void) -> plinth_status_t {
    // SAFETY: the caller hands the memory over.
    guard(|| memory::managed_free(unsafe { span(pointer, 0) }))
}
