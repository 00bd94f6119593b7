//! Device properties: name, size and geometry.

use crate::{
    driver::{Answer, Driver, codes, types::*},
    error::{Context, Error, Result},
    status::Status,
};

/// The device properties that torch has, and a few more that identify the device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Properties {
    pub name: String,
    pub uuid: [u8; 16],
    pub pci_bus_id_text: String,
    pub total_memory: u64,
    pub l2_cache_size: u64,
    pub shared_memory_per_block: u64,
    pub shared_memory_per_block_optin: u64,
    pub shared_memory_per_multiprocessor: u64,
    pub major: i32,
    pub minor: i32,
    pub multi_processor_count: i32,
    pub max_threads_per_multi_processor: i32,
    pub max_threads_per_block: i32,
    pub warp_size: i32,
    pub regs_per_multiprocessor: i32,
    pub clock_rate: i32,
    pub memory_clock_rate: i32,
    pub memory_bus_width: i32,
    pub pci_domain_id: i32,
    pub pci_bus_id: i32,
    pub pci_device_id: i32,
    pub is_integrated: bool,
    pub is_multi_gpu_board: bool,
    pub has_virtual_memory: bool,
}

/// Reads all properties from the driver.
pub fn read(driver: &Driver, device: i32) -> Result<Properties> {
    collect(driver, device).context(|| format!("reading the properties of device {device}"))
}

fn collect(driver: &Driver, device: i32) -> Answer<Properties> {
    let attribute = |attribute| driver.device_attribute(attribute, device);
    let bytes = |number| Ok(u64::try_from(attribute(number)?).unwrap_or(0));
    Ok(Properties {
        name: driver.device_name(device)?,
        uuid: where_supported(driver.device_uuid(device))?.unwrap_or_default(),
        pci_bus_id_text: driver.device_pci_bus_id(device)?,
        total_memory: driver.device_total_memory(device)? as u64,
        l2_cache_size: bytes(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        shared_memory_per_block: bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
        shared_memory_per_block_optin: bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_memory_per_multiprocessor: bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        major: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        minor: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        multi_processor_count: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        max_threads_per_multi_processor: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        max_threads_per_block: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        warp_size: attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        regs_per_multiprocessor: attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        clock_rate: attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        memory_clock_rate: attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
        memory_bus_width: attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        pci_domain_id: attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        pci_bus_id: attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        pci_device_id: attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        is_integrated: attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        is_multi_gpu_board: attribute(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD)? != 0,
        has_virtual_memory: where_supported(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))?
            .is_some_and(|supported| supported != 0),
    })
}

/// Converts the error of a driver that is too old to support a query to `None`.
fn where_supported<T>(result: Answer<T>) -> Answer<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(failure) if matches!(failure.code, codes::CUDA_ERROR_NOT_SUPPORTED | codes::CUDA_ERROR_INVALID_VALUE) => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Creates the error for a device number that is out of range.
#[cold]
pub fn no_such_device_error(number: i32, count: usize) -> Error {
    let range = match count {
        1 => "only device 0".to_owned(),
        _ => format!("devices 0 to {}", count.saturating_sub(1)),
    };
    Error::new(Status::INVALID_DEVICE, format!("there is no device {number}; this process sees {range}"))
}
