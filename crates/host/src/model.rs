//! The geometry of the GPU models that a host device can emulate.
//!
//! Programs derive their grids, their shared memory and their random number streams from these numbers, so a host
//! device must report those of the GPU whose results it reproduces.

use crate::driver::types::*;
use std::ffi::{c_int, c_uint};

/// One GPU, as its device attributes describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// The name in `PLINTH_HOST_MODEL`.
    pub key: &'static str,
    /// The device's name, as the driver reports it.
    pub name: &'static str,
    pub capability: (c_int, c_int),
    pub multiprocessors: c_int,
    pub threads_per_multiprocessor: c_int,
    pub blocks_per_multiprocessor: c_int,
    pub l2_bytes: c_int,
    pub shared_per_block: c_int,
    pub shared_per_block_optin: c_int,
    pub shared_per_multiprocessor: c_int,
    pub registers_per_multiprocessor: c_int,
    pub clock_khz: c_int,
    pub memory_clock_khz: c_int,
    pub bus_bits: c_int,
    /// The number of copies that run concurrently with kernels.
    pub copy_engines: c_int,
}

const MIB: c_int = 1 << 20;

/// Every known model; the first is the default.
pub const MODELS: &[Model] = &[
    Model {
        key: "h200",
        name: "NVIDIA H200",
        capability: (9, 0),
        multiprocessors: 132,
        threads_per_multiprocessor: 2048,
        blocks_per_multiprocessor: 32,
        l2_bytes: 60 * MIB,
        shared_per_block: 49_152,
        shared_per_block_optin: 232_448,
        shared_per_multiprocessor: 233_472,
        registers_per_multiprocessor: 65_536,
        clock_khz: 1_980_000,
        memory_clock_khz: 3_201_000,
        bus_bits: 6144,
        copy_engines: 3,
    },
    Model {
        key: "h100",
        name: "NVIDIA H100 80GB HBM3",
        capability: (9, 0),
        multiprocessors: 132,
        threads_per_multiprocessor: 2048,
        blocks_per_multiprocessor: 32,
        l2_bytes: 50 * MIB,
        shared_per_block: 49_152,
        shared_per_block_optin: 232_448,
        shared_per_multiprocessor: 233_472,
        registers_per_multiprocessor: 65_536,
        clock_khz: 1_980_000,
        memory_clock_khz: 2_619_000,
        bus_bits: 5120,
        copy_engines: 3,
    },
    Model {
        key: "a100",
        name: "NVIDIA A100-SXM4-80GB",
        capability: (8, 0),
        multiprocessors: 108,
        threads_per_multiprocessor: 2048,
        blocks_per_multiprocessor: 32,
        l2_bytes: 40 * MIB,
        shared_per_block: 49_152,
        shared_per_block_optin: 166_912,
        shared_per_multiprocessor: 167_936,
        registers_per_multiprocessor: 65_536,
        clock_khz: 1_410_000,
        memory_clock_khz: 1_593_000,
        bus_bits: 5120,
        copy_engines: 3,
    },
    Model {
        key: "l4",
        name: "NVIDIA L4",
        capability: (8, 9),
        multiprocessors: 58,
        threads_per_multiprocessor: 1536,
        blocks_per_multiprocessor: 24,
        l2_bytes: 48 * MIB,
        shared_per_block: 49_152,
        shared_per_block_optin: 101_376,
        shared_per_multiprocessor: 102_400,
        registers_per_multiprocessor: 65_536,
        clock_khz: 2_040_000,
        memory_clock_khz: 6_251_000,
        bus_bits: 192,
        copy_engines: 2,
    },
    Model {
        key: "rtx4090",
        name: "NVIDIA GeForce RTX 4090",
        capability: (8, 9),
        multiprocessors: 128,
        threads_per_multiprocessor: 1536,
        blocks_per_multiprocessor: 24,
        l2_bytes: 72 * MIB,
        shared_per_block: 49_152,
        shared_per_block_optin: 101_376,
        shared_per_multiprocessor: 102_400,
        registers_per_multiprocessor: 65_536,
        clock_khz: 2_520_000,
        memory_clock_khz: 10_501_000,
        bus_bits: 384,
        copy_engines: 2,
    },
    Model {
        key: "b200",
        name: "NVIDIA B200",
        capability: (10, 0),
        multiprocessors: 148,
        threads_per_multiprocessor: 2048,
        blocks_per_multiprocessor: 32,
        l2_bytes: 126 * MIB,
        shared_per_block: 49_152,
        shared_per_block_optin: 232_448,
        shared_per_multiprocessor: 233_472,
        registers_per_multiprocessor: 65_536,
        clock_khz: 1_965_000,
        memory_clock_khz: 3_996_000,
        bus_bits: 8192,
        copy_engines: 4,
    },
];

/// The limits of a launch, the same for every model.
pub const MAX_THREADS_PER_BLOCK: c_uint = 1024;
pub const MAX_BLOCK: [c_uint; 3] = [1024, 1024, 64];
pub const MAX_GRID: [c_uint; 3] = [2_147_483_647, 65_535, 65_535];

const WARP_SIZE: c_int = 32;
/// The shared memory of each block that CUDA reserves, and the unit in which a block gets its shared memory, in bytes: from
/// compute capability 8.0 on.
const RESERVED_SHARED: c_int = 1024;
const SHARED_UNIT: usize = 128;

/// One past the last attribute number of CUDA 12.8.
const ATTRIBUTE_END: c_uint = cudarc::driver::sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX as c_uint;

impl Model {
    pub fn find(key: &str) -> Option<&'static Model> {
        MODELS.iter().find(|model| model.key.eq_ignore_ascii_case(key))
    }

    /// Returns how many blocks of a size and of an amount of shared memory a multiprocessor runs at the same time.
    pub fn resident_blocks(&self, threads: usize, shared_bytes: usize) -> usize {
        let threads = threads.max(1).next_multiple_of(WARP_SIZE as usize);
        let shared_bytes = shared_bytes.min(c_int::MAX as usize) + RESERVED_SHARED as usize;
        let by_threads = self.threads_per_multiprocessor as usize / threads;
        let by_memory = self.shared_per_multiprocessor as usize / shared_bytes.next_multiple_of(SHARED_UNIT);
        by_threads.min(by_memory).min(self.blocks_per_multiprocessor as usize)
    }

    /// Returns the value of a device attribute for the device with this physical ordinal: 0 for what a host device does
    /// not have, `None` for a number that is not an attribute.
    pub fn attribute(&self, attribute: c_uint, physical: usize) -> Option<c_int> {
        use cudarc::driver::sys::CUdevice_attribute_enum as A;
        const fn n(attribute: A) -> c_uint {
            attribute as c_uint
        }
        let value = match attribute {
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => MAX_THREADS_PER_BLOCK as c_int,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) => MAX_BLOCK[0] as c_int,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) => MAX_BLOCK[1] as c_int,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) => MAX_BLOCK[2] as c_int,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) => MAX_GRID[0] as c_int,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) => MAX_GRID[1] as c_int,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) => MAX_GRID[2] as c_int,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => self.shared_per_block,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => self.shared_per_block_optin,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => self.shared_per_multiprocessor,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY) => 65_536,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) => RESERVED_SHARED,
            CU_DEVICE_ATTRIBUTE_WARP_SIZE => WARP_SIZE,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK) => 65_536,
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => self.registers_per_multiprocessor,
            CU_DEVICE_ATTRIBUTE_CLOCK_RATE => self.clock_khz,
            CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => self.memory_clock_khz,
            CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => self.bus_bits,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => self.multiprocessors,
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => self.threads_per_multiprocessor,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR) => self.blocks_per_multiprocessor,
            CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => self.l2_bytes,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => self.capability.0,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => self.capability.1,
            CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => pci_bus(physical),
            CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID
            | CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID
            | CU_DEVICE_ATTRIBUTE_INTEGRATED
            | CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD => 0,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID) => physical as c_int,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT) => self.copy_engines,
            CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
            | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
            | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
            | CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED => 1,
            a if [
                A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP,
                A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
                A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
                A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
                A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
            ]
            .iter()
            .any(|known| n(*known) == a) =>
            {
                1
            }
            a if a == n(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH) => c_int::MAX,
            a if a == n(A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) => 512,
            0 => return None,
            a if a >= ATTRIBUTE_END => return None,
            _ => 0,
        };
        Some(value)
    }

    /// Returns a UUID that is the same in every process and differs between models and physical devices.
    pub fn uuid(&self, physical: usize) -> [u8; 16] {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            for input in self.key.bytes().chain((physical as u64).to_le_bytes()).chain([index as u8]) {
                hash = (hash ^ u64::from(input)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            *byte = (hash >> 32) as u8;
        }
        // The version and variant of a random UUID, as in NVIDIA's UUIDs.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        bytes
    }
}

/// Returns the PCI bus of a physical device. Numbers start at 1, since bus 0 is the host bridge's.
pub fn pci_bus(physical: usize) -> c_int {
    physical as c_int + 1
}

/// Formats a UUID as "GPU-xxxxxxxx-xxxx-...", the form in `CUDA_VISIBLE_DEVICES`.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_distinct_and_stable() {
        let mut seen = std::collections::HashSet::new();
        for model in MODELS {
            for physical in 0..64 {
                assert!(seen.insert(model.uuid(physical)));
                assert_eq!(model.uuid(physical), model.uuid(physical));
            }
        }
        assert_eq!(uuid_text(MODELS[0].uuid(0)).len(), 40);
    }

    #[test]
    fn attributes_outside_the_range_are_none() {
        let model = &MODELS[0];
        assert_eq!(model.attribute(0, 0), None);
        assert_eq!(model.attribute(ATTRIBUTE_END, 0), None);
        assert_eq!(model.attribute(ATTRIBUTE_END - 1, 0), Some(0));
        assert_eq!(model.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 0), Some(62_914_560));
        assert_eq!(model.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 3), Some(4));
    }

    #[test]
    fn blocks_need_whole_warps_and_reserved_shared_memory() {
        let h200 = &MODELS[0];
        for (threads, shared_bytes, blocks) in [
            (1024, 0, 2),
            (682, 0, 2),
            (32, 0, 32),
            (128, 115_712, 2),
            (128, 115_713, 1),
            (128, 232_448, 1),
            (128, usize::MAX, 0),
        ] {
            assert_eq!(h200.resident_blocks(threads, shared_bytes), blocks, "{threads} {shared_bytes}");
        }
    }

    #[test]
    fn keys_are_found_in_any_case() {
        assert_eq!(Model::find("RTX4090").map(|model| model.capability), Some((8, 9)));
        assert_eq!(Model::find("voodoo"), None);
    }
}
