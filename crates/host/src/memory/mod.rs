//! The memory of the host devices: real addresses, real pages.
//!
//! Addresses are reserved without access; physical memory is ranges of one sparse memory file per device; mapping
//! connects the two. So a forbidden access faults, untouched memory costs nothing, one allocation can be mapped at two
//! addresses, and another process can receive it. [`virtual`](self::virt) is that layer, [`whole`] the older interface
//! of whole allocations on top of it, [`pool`] stream-ordered allocation, [`mod@graph`] allocation by
//! graphs, [`pinned`] host memory that devices may use,
//! [`check`] the classification of addresses and the access checks, and [`ipc`] the sharing. [`share`] lets processes share
//! the amounts of memory.

pub mod check;
pub mod graph;
pub mod ipc;
pub mod physical;
pub mod pinned;
pub mod pointer;
pub mod pool;
pub mod share;
pub mod sys;
pub mod virt;
pub mod whole;

use super::{
    compiled::Variable,
    config::{Config, MAX_DEVICES},
    ids::{Id, IdMap},
};
use crate::driver::{codes, table::Code};
use physical::{DeviceMemory, Physical};
use share::SharedAmounts;
use std::{collections::BTreeMap, io};

/// All state of the memory, under one lock. Copies and fills lock it for reading while they check and access one chunk.
/// So an unmapping waits for the chunk, and the check of the next chunk fails.
pub struct Memory {
    pub devices: Vec<DeviceMemory>,
    /// Reserved address ranges by their start, including those under whole allocations.
    pub reservations: BTreeMap<u64, Reservation>,
    pub mappings: BTreeMap<u64, Mapping>,
    pub physical: IdMap<Physical>,
    pub chunks: BTreeMap<u64, whole::Chunk>,
    pub allocations: BTreeMap<u64, whole::Allocation>,
    /// The memory that graphs allocate, by address. Each is also an allocation.
    pub graph_memory: BTreeMap<u64, graph::GraphMemory>,
    pub opened: BTreeMap<u64, ipc::OpenedAllocation>,
    pub pinned: BTreeMap<u64, pinned::Pinned>,
    /// The variables of modules whose addresses the program knows.
    pub variables: BTreeMap<u64, ModuleVariable>,
    /// The default pool of each device.
    pub pools: Vec<pool::Pool>,
    /// For each device, the devices whose whole allocations it may access, one bit each.
    pub peers: [u64; MAX_DEVICES],
    /// Whether new memory holds arbitrary bytes.
    arbitrary_contents: bool,
    next_buffer: u64,
}

/// A range of reserved addresses.
pub struct Reservation {
    pub bytes: u64,
    /// Whether the program made the reservation, rather than an allocation.
    pub by_program: bool,
}

/// A variable of a module: memory of the process that stands for a device's.
pub struct ModuleVariable {
    pub bytes: u64,
    pub device: usize,
    pub module: Id,
    pub buffer: u64,
}

/// Physical memory at an address.
pub struct Mapping {
    pub bytes: u64,
    pub physical: Id,
    /// The device whose memory it is.
    pub device: usize,
    pub rights: AccessRights,
    pub buffer: u64,
}

/// The access rights of a mapping.
#[derive(Clone, Copy)]
pub enum AccessRights {
    /// The devices named by `cuMemSetAccess`, one bit each.
    Set { read: u64, write: u64 },
    /// The memory's own device, those with peer access to it, and those in `also`.
    Whole { also: u64 },
    /// The device that opened it by another process's handle, and no other: neither peers nor, if another device opened
    /// it, the memory's own device.
    Opened { by: usize },
}

impl Memory {
    pub fn new(config: &Config, shared: Option<&'static SharedAmounts>) -> Memory {
        Memory {
            devices: config
                .visible
                .iter()
                .map(|&physical| DeviceMemory::new(config.memory, shared.map(|shared| (shared, physical))))
                .collect(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            physical: IdMap::default(),
            chunks: BTreeMap::new(),
            allocations: BTreeMap::new(),
            graph_memory: BTreeMap::new(),
            opened: BTreeMap::new(),
            pinned: BTreeMap::new(),
            variables: BTreeMap::new(),
            pools: config.visible.iter().map(|_| pool::Pool::default()).collect(),
            peers: [0; MAX_DEVICES],
            arbitrary_contents: config.arbitrary_contents,
            next_buffer: 1,
        }
    }

    /// Makes a variable of a module memory of the module's device.
    pub fn add_variable(&mut self, device: usize, module: Id, variable: &Variable) {
        if !self.variables.contains_key(&variable.address) {
            let buffer = self.next_buffer();
            self.variables.insert(variable.address, ModuleVariable { bytes: variable.bytes, device, module, buffer });
        }
    }

    /// Forgets the variables of a module that was unloaded.
    pub fn remove_variables(&mut self, module: Id) {
        self.variables.retain(|_, variable| variable.module != module);
    }

    /// Returns a buffer ID that no memory had before.
    pub fn next_buffer(&mut self) -> u64 {
        self.next_buffer += 1;
        self.next_buffer
    }
}

/// Returns the entry of a map of ranges that contains `address`.
pub fn containing<T>(map: &BTreeMap<u64, T>, address: u64, bytes: impl Fn(&T) -> u64) -> Option<(u64, &T)> {
    let (start, entry) = map.range(..=address).next_back()?;
    (address - start < bytes(entry)).then_some((*start, entry))
}

/// Returns whether a map of ranges has an entry that overlaps `bytes` at `address`, which must not overflow.
pub fn overlaps<T>(map: &BTreeMap<u64, T>, address: u64, bytes: u64, size: impl Fn(&T) -> u64) -> bool {
    containing(map, address, size).is_some() || map.range(address..address + bytes).next().is_some()
}

/// Converts the error of a system call to CUDA's.
pub fn os_error(error: io::Error) -> Code {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC) => codes::CUDA_ERROR_OUT_OF_MEMORY,
        _ => codes::CUDA_ERROR_OPERATING_SYSTEM,
    }
}
