//! Device properties
//!
//! The fixed properties of a device, as torch.cuda.get_device_properties returns them. The caller provides the struct,
//! and the library fills it.

use crate::{
    ffi::{Output, guard::guard, status::plinth_status_t, structs::StructOutput},
    runtime::{self, availability, properties::Properties},
};
use std::{ffi::c_char, mem};

/// The properties of a device. The names are torch's; sizes are in bytes.
///
/// The struct grows at its end in newer versions, and programs that were compiled against older versions keep working:
/// set struct_size to sizeof(plinth_device_properties_t) before the call, as PLINTH_DEVICE_PROPERTIES_INIT does.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_device_properties_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The name, NUL-terminated.
    pub name: [c_char; 256],
    /// The UUID; all zero if the driver cannot report it (before CUDA 11.4).
    pub uuid: [u8; 16],
    /// The PCI address, such as "0000:3b:00.0", NUL-terminated.
    pub pci_bus_id_text: [c_char; 32],
    /// The size of the device's memory.
    pub total_memory: u64,
    /// The size of the L2 cache.
    pub l2_cache_size: u64,
    /// Maximum shared memory per block.
    pub shared_memory_per_block: u64,
    /// Maximum shared memory per block if the kernel opts in.
    pub shared_memory_per_block_optin: u64,
    /// Shared memory per multiprocessor.
    pub shared_memory_per_multiprocessor: u64,
    /// The major number of the compute capability.
    pub major: i32,
    /// The minor number of the compute capability.
    pub minor: i32,
    /// The number of multiprocessors.
    pub multi_processor_count: i32,
    /// Maximum resident threads per multiprocessor.
    pub max_threads_per_multi_processor: i32,
    /// Maximum threads per block.
    pub max_threads_per_block: i32,
    /// Threads per warp.
    pub warp_size: i32,
    /// 32-bit registers per multiprocessor.
    pub regs_per_multiprocessor: i32,
    /// Peak clock rate of the multiprocessors, in kHz.
    pub clock_rate: i32,
    /// Peak clock rate of the memory, in kHz.
    pub memory_clock_rate: i32,
    /// Width of the memory bus, in bits.
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
    /// 1 if the device supports virtual memory management (separate address reservation and physical memory), else 0.
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

/// Returns whether the current device computes with bfloat16: torch.cuda.is_bf16_supported.
///
/// @param including_emulation Whether it is enough that bfloat16 is emulated, as every device does it. Otherwise the device
///        needs compute capability 8.0.
/// @param supported Out: whether it does; false without a device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_bf16_supported(including_emulation: bool, supported: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let supported = unsafe { Output::new(supported, "supported") }?;
        supported.set(availability::is_bf16_supported(including_emulation)?);
        Ok(())
    })
}

/// Returns whether the current device computes with TF32: torch.cuda.is_tf32_supported. As in torch, the devices are those
/// that compute with bfloat16 without emulation.
///
/// @param supported Out: whether it does; false without a device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_is_tf32_supported(supported: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let supported = unsafe { Output::new(supported, "supported") }?;
        supported.set(availability::is_bf16_supported(false)?);
        Ok(())
    })
}

/// Returns the properties of a device.
///
/// @param device The device number; -1 for the current device.
/// @param properties In: struct_size. Out: the properties, as far as struct_size reaches; struct_size is set to the
///        number of bytes that were filled.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_properties(
    device: i32,
    properties: *mut plinth_device_properties_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let output = unsafe { StructOutput::new(properties, "properties") }?;
        let runtime = runtime::ready()?;
        output.set(runtime.device(device)?.properties(&runtime.driver)?.into());
        Ok(())
    })
}
