//! What the physical memory of a pool can be used for beyond its process: what the pool asks for, as far as the device
//! supports it.

use super::{
    ipc::mode::{Mode, mode},
    pool::MemoryOptions,
};
use crate::{
    base::{
        log::{self, Level},
        retry::retry,
    },
    driver::{
        Driver, Failure, HandleTypes, codes,
        types::{
            CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        },
    },
    error::{Error, Result},
    runtime::device::Device,
};
use once_cell::sync::OnceCell;

/// What a device supports, each found out when it is first needed.
#[derive(Debug, Default)]
pub struct Support {
    file_descriptor: OnceCell<bool>,
    fabric: OnceCell<bool>,
    gpu_direct_rdma: OnceCell<bool>,
    dma_buf: OnceCell<bool>,
}

fn has(device: &Device, driver: &Driver, attribute: u32) -> Result<bool> {
    match driver.device_attribute(attribute, device.native) {
        Ok(supported) => Ok(supported != 0),
        // A driver that does not know the attribute does not support it.
        Err(Failure { code: codes::CUDA_ERROR_INVALID_VALUE | codes::CUDA_ERROR_NOT_SUPPORTED, .. }) => Ok(false),
        Err(failure) => Err(Error::from(failure).context("querying how a device's memory can be shared")),
    }
}

/// Returns whether memory of a device is created so that other processes can import it.
pub fn is_shareable(device: &Device, driver: &Driver) -> Result<bool> {
    let query = || {
        let attribute = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        Ok(mode()? != Mode::Off && has(device, driver, attribute)?)
    };
    device.memory().support.file_descriptor.get_or_try_init(query).copied()
}

/// Returns whether memory for network adapters can be created on a device.
pub fn supports_gpu_direct_rdma(device: &Device, driver: &Driver) -> Result<bool> {
    let query = || has(device, driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    device.memory().support.gpu_direct_rdma.get_or_try_init(query).copied()
}

/// Returns whether memory of a device can be exported as a DMA-BUF.
pub fn supports_dma_buf(device: &Device, driver: &Driver) -> Result<bool> {
    let query = || has(device, driver, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
    device.memory().support.dma_buf.get_or_try_init(query).copied()
}

/// Returns whether the driver grants fabric handles for memory of a device. Its attribute says only what the device could
/// do; whether the machine is set up for it shows when such memory is created.
pub fn supports_fabric(device: &Device, driver: &Driver) -> Result<bool> {
    let query = || {
        if !has(device, driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)? {
            return Ok(false);
        }
        let types = HandleTypes { fabric: true, ..HandleTypes::default() };
        match driver.memory_create(driver.memory_granularity(device.native)?, device.native, types) {
            Ok(physical) => {
                retry(|| driver.memory_release(physical));
                Ok(true)
            }
            Err(Failure { code: codes::CUDA_ERROR_NOT_PERMITTED | codes::CUDA_ERROR_NOT_SUPPORTED, .. }) => {
                log::log(Level::Info, || {
                    format!(
                        "the driver grants no fabric handles for device {}; memory of pools that ask for them is shared \
                         by file descriptors",
                        device.ordinal
                    )
                });
                Ok(false)
            }
            Err(failure) => Err(Error::from(failure).context("asking the driver for fabric handles")),
        }
    };
    device.memory().support.fabric.get_or_try_init(query).copied()
}

/// Returns what handles for a pool's memory are created for.
pub fn types_for(device: &Device, driver: &Driver, options: MemoryOptions) -> Result<HandleTypes> {
    Ok(HandleTypes {
        file_descriptor: is_shareable(device, driver)?,
        fabric: options.fabric && supports_fabric(device, driver)?,
        gpu_direct_rdma: options.gpu_direct_rdma && supports_gpu_direct_rdma(device, driver)?,
    })
}
