//! What the memory of a block can be used for, and why not.

use super::registered;
use crate::{
    driver::{
        Driver,
        types::{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
    },
    error::{Error, Result},
    memory::{
        device_memory::device,
        handle_types::{is_shareable, supports_dma_buf, supports_fabric, supports_gpu_direct_rdma},
        located_block::not_allocated,
        mapped::{Backing, Mapped},
        pool::{MemoryOptions, WINDOW_ALIGNMENT},
        shareable,
    },
    runtime::{self, device::Device},
    status::Status,
};
use std::ffi::CStr;

/// `None` if memory can be used for something; otherwise the reason why it cannot.
pub type Reason = Option<&'static CStr>;

/// What memory can be used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uses {
    /// By other processes of this machine, through `plinth_ipc_send` and `plinth_ipc_export`.
    pub ipc: Reason,
    /// By other processes, through CUDA's handles of 64 bytes.
    pub ipc_handle: Reason,
    /// By processes of other machines of the same NVLink fabric.
    pub fabric: Reason,
    /// By drivers of other devices, as a DMA-BUF.
    pub dma_buf: Reason,
    /// By network adapters, which look the address up.
    pub gpu_direct_rdma: Reason,
    /// As a buffer that is registered with an NCCL communicator.
    pub nccl: Reason,
    /// As a window of an NCCL communicator.
    pub nccl_window: Reason,
    /// Whether the memory consists of segments.
    pub is_segment: bool,
}

/// What memory can be used for, with the block that it is in.
pub struct BlockUses {
    /// The first address.
    pub address: u64,
    /// The requested size in bytes.
    pub bytes: u64,
    /// The ordinal of the device.
    pub device: u32,
    /// The number of physical allocations under it.
    pub parts: u32,
    /// The number of its registrations.
    pub registrations: u32,
    /// What it can be used for.
    pub uses: Uses,
}

const EXTERNAL: &CStr = c"the memory belongs to an allocator of the program";
const ASLEEP: &CStr = c"the memory is asleep";
const SEVERAL_ALLOCATIONS: &CStr =
    c"the block is in several physical allocations, and NCCL maps only that in which a window begins; allocate it in a pool \
      with PLINTH_MEM_POOL_NCCL_WINDOW";
const MISALIGNED: &CStr = c"the block does not begin at a multiple of 4096; allocate it in a pool with \
      PLINTH_MEM_POOL_NCCL_WINDOW";
const NOT_SHAREABLE: &CStr =
    c"the memory was not created for sharing: PLINTH_IPC is 0, or the device does not support it";

impl Uses {
    fn none(reason: &'static CStr) -> Uses {
        let reason = Some(reason);
        Uses {
            ipc: reason,
            ipc_handle: reason,
            fabric: reason,
            dma_buf: reason,
            gpu_direct_rdma: reason,
            nccl: reason,
            nccl_window: reason,
            is_segment: false,
        }
    }

    /// Returns why memory cannot be exported as a file descriptor.
    pub(super) fn file_descriptor(&self) -> Reason {
        if self.is_segment { self.nccl_window } else { self.ipc }
    }
}

/// Fails if memory cannot be used for something.
pub(super) fn check(reason: Reason, what: &str) -> Result<()> {
    match reason {
        None => Ok(()),
        Some(reason) => Err(Error::new(
            Status::IPC_NOT_SHAREABLE,
            format!("the memory cannot be exported as {what}: {}", reason.to_string_lossy()),
        )),
    }
}

/// Returns what memory can be used for that a pool with these options mapped.
pub(super) fn of(device: &Device, driver: &Driver, options: MemoryOptions, mapped: &[(u64, Mapped)]) -> Result<Uses> {
    let backings = || mapped.iter().map(|(_, mapped)| mapped.backing);
    if backings().any(|backing| matches!(backing, Backing::Suspended)) {
        return Ok(Uses::none(ASLEEP));
    }
    if backings().any(|backing| matches!(backing, Backing::External)) {
        return Ok(Uses::none(EXTERNAL));
    }
    let dma_buf = if supports_dma_buf(device, driver)? { None } else { Some(c"the device does not export DMA-BUFs") };
    if backings().any(Backing::is_segment) {
        let segment = c"the memory is a segment, which has no handles; allocate it in a pool without \
                        PLINTH_MEM_POOL_SEGMENTS";
        let rdma = driver.device_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device.native);
        let has_rdma = matches!(rdma, Ok(supported) if supported != 0);
        return Ok(Uses {
            fabric: Some(segment),
            dma_buf,
            gpu_direct_rdma: if has_rdma { None } else { Some(c"the device does not support GPUDirect RDMA") },
            nccl_window: Some(segment),
            is_segment: true,
            ..Uses::default()
        });
    }
    let ipc = if is_shareable(device, driver)? { None } else { Some(NOT_SHAREABLE) };
    let fabric = match options.fabric {
        false => Some(c"the pool was created without PLINTH_MEM_POOL_FABRIC"),
        true if supports_fabric(device, driver)? => None,
        true => Some(no_fabric(device, driver)),
    };
    let gpu_direct_rdma = match options.gpu_direct_rdma {
        false => Some(c"the pool was created without PLINTH_MEM_POOL_GPU_DIRECT_RDMA"),
        true if supports_gpu_direct_rdma(device, driver)? => None,
        true => Some(c"the device does not support GPUDirect RDMA of mapped memory"),
    };
    Ok(Uses {
        ipc,
        ipc_handle: Some(
            c"the memory is mapped; CUDA's handles need a segment: allocate it in a pool with PLINTH_MEM_POOL_SEGMENTS",
        ),
        fabric,
        dma_buf,
        gpu_direct_rdma,
        nccl: None,
        nccl_window: ipc.or(if mapped.len() > 1 { Some(SEVERAL_ALLOCATIONS) } else { None }),
        is_segment: false,
    })
}

fn no_fabric(device: &Device, driver: &Driver) -> &'static CStr {
    let attribute = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED;
    match driver.device_attribute(attribute, device.native) {
        Ok(supported) if supported != 0 => {
            c"the driver does not permit fabric handles: the process needs an IMEX channel, and the machine the service"
        }
        _ => c"the device does not support fabric handles",
    }
}

/// Returns what the block that contains an address can be used for.
pub fn of_block(address: u64) -> Result<BlockUses> {
    let runtime = runtime::ready()?;
    let mut found = shareable::find(runtime, address)?;
    found.read_mapped().ok_or_else(|| not_allocated(address))?;
    let device = device(runtime, found.arena.device)?;
    let mut uses = of(device, &runtime.driver, found.arena.lock().memory, &found.mapped)?;
    if !found.address.is_multiple_of(WINDOW_ALIGNMENT) {
        uses.nccl_window = uses.nccl_window.or(Some(MISALIGNED));
    }
    Ok(BlockUses {
        address: found.address,
        bytes: found.requested,
        device: device.ordinal,
        parts: found.mapped.len() as u32,
        registrations: registered::count(found.arena.number, found.block) as u32,
        uses,
    })
}
