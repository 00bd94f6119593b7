//! Device properties
//!
//! The fixed properties of a device, as torch.cuda.get_device_properties returns them. The caller provides the struct,
//! and the library fills it.

use crate::{
    error::Error,
    ffi::{guard::guard, null, status::plinth_status_t},
    properties::Properties,
    runtime,
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    mem, ptr,
};

/// What a device is. The names are torch's; sizes are in bytes.
///
/// The struct grows at its end in newer versions, and programs compiled against older ones go on working: set
/// struct_size to sizeof(plinth_device_properties_t) before the call, as PLINTH_DEVICE_PROPERTIES_INIT does.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_device_properties_t {
    /// In: the size that the caller knows. Out: how much of it was filled.
    pub struct_size: usize,
    /// The name, NUL-terminated.
    pub name: [c_char; 256],
    /// The identity; all zero where the driver cannot tell it (before CUDA 11.4).
    pub uuid: [u8; 16],
    /// The place on the PCI bus, "0000:3b:00.0", NUL-terminated.
    pub pci_bus_id_text: [c_char; 32],
    /// The memory.
    pub total_memory: u64,
    /// The second-level cache.
    pub l2_cache_size: u64,
    /// Shared memory that a block can have.
    pub shared_memory_per_block: u64,
    /// Shared memory that a block can have if its kernel asks for it.
    pub shared_memory_per_block_optin: u64,
    /// Shared memory of a multiprocessor.
    pub shared_memory_per_multiprocessor: u64,
    /// The first part of the compute capability.
    pub major: i32,
    /// The second part of the compute capability.
    pub minor: i32,
    /// Multiprocessors.
    pub multi_processor_count: i32,
    /// Threads that a multiprocessor can hold.
    pub max_threads_per_multi_processor: i32,
    /// Threads that a block can have.
    pub max_threads_per_block: i32,
    /// Threads of a warp.
    pub warp_size: i32,
    /// 32-bit registers of a multiprocessor.
    pub regs_per_multiprocessor: i32,
    /// The highest clock of the multiprocessors, in kHz.
    pub clock_rate: i32,
    /// The highest clock of the memory, in kHz.
    pub memory_clock_rate: i32,
    /// The width of the bus to the memory, in bits.
    pub memory_bus_width: i32,
    /// The PCI domain.
    pub pci_domain_id: i32,
    /// The PCI bus.
    pub pci_bus_id: i32,
    /// The PCI device.
    pub pci_device_id: i32,
    /// 1 if the device shares the host's memory, else 0.
    pub is_integrated: i32,
    /// 1 if the board holds several GPUs, else 0.
    pub is_multi_gpu_board: i32,
    /// 1 if addresses and physical memory can be managed apart, else 0.
    pub has_virtual_memory: i32,
}

fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (slot, byte) in out.iter_mut().take(N - 1).zip(text.bytes()) {
        *slot = byte as c_char;
    }
    out
}

impl From<&Properties> for plinth_device_properties_t {
    fn from(from: &Properties) -> Self {
        plinth_device_properties_t {
            struct_size: mem::size_of::<Self>(),
            name: text(&from.name),
            uuid: from.uuid,
            pci_bus_id_text: text(&from.pci_bus_id_text),
            total_memory: from.total_memory,
            l2_cache_size: from.l2_cache_size,
            shared_memory_per_block: from.shared_memory_per_block,
            shared_memory_per_block_optin: from.shared_memory_per_block_optin,
            shared_memory_per_multiprocessor: from.shared_memory_per_multiprocessor,
            major: from.major,
            minor: from.minor,
            multi_processor_count: from.multi_processor_count,
            max_threads_per_multi_processor: from.max_threads_per_multi_processor,
            max_threads_per_block: from.max_threads_per_block,
            warp_size: from.warp_size,
            regs_per_multiprocessor: from.regs_per_multiprocessor,
            clock_rate: from.clock_rate,
            memory_clock_rate: from.memory_clock_rate,
            memory_bus_width: from.memory_bus_width,
            pci_domain_id: from.pci_domain_id,
            pci_bus_id: from.pci_bus_id,
            pci_device_id: from.pci_device_id,
            is_integrated: from.is_integrated.into(),
            is_multi_gpu_board: from.is_multi_gpu_board.into(),
            has_virtual_memory: from.has_virtual_memory.into(),
        }
    }
}

/// Writes as much of `value` as the caller has room for, and how much that was.
///
/// # Safety
/// `destination` is aligned for T and begins with a `usize`, the bytes that may be written there; T is `repr(C)`,
/// begins with a `usize` of the same meaning, and may be copied byte by byte.
pub(super) unsafe fn write_growable<T: Copy>(
    destination: *mut T,
    mut value: T,
    name: &str,
) -> crate::error::Result<()> {
    if destination.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller promises the leading size.
    let room = unsafe { destination.cast::<usize>().read() };
    if room < mem::size_of::<usize>() * 2 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{name}->struct_size is {room}; set it to the size of the struct before the call"),
        ));
    }
    let filled = room.min(mem::size_of::<T>());
    // SAFETY: T begins with a usize, and `filled` bytes lie within both structs, which do not overlap because `value`
    // is ours.
    unsafe {
        (&raw mut value).cast::<usize>().write(filled);
        ptr::copy_nonoverlapping((&raw const value).cast::<c_void>().cast::<u8>(), destination.cast::<u8>(), filled);
    }
    Ok(())
}

/// Tells what a device is. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param properties In: struct_size. Out: the properties, as far as struct_size reaches, and in struct_size how far
///        they were filled.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_properties(
    device: i32,
    properties: *mut plinth_device_properties_t,
) -> plinth_status_t {
    guard(|| {
        if properties.is_null() {
            return Err(null("properties"));
        }
        let runtime = runtime::ready()?;
        let found = runtime.device(device)?.properties(&runtime.driver)?;
        // SAFETY: the caller passes a struct whose first field says its size; ours is plain data that begins likewise.
        unsafe { write_growable(properties, found.into(), "properties") }
    })
}
