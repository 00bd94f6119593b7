//! The memory of the host devices: real addresses, real pages.
//!
//! Addresses are reserved with no access; physical memory is ranges of one sparse memory file a device; mapping puts
//! the one at the other. So what a program may not touch faults, memory that is not touched costs nothing, one piece
//! can be seen at two addresses, and another process can be given it. [`virtual`](self::virt) is that layer,
//! [`whole`] the older one of whole allocations on top of it, [`pool`] what is allocated in stream order, [`pinned`] host memory that devices may use, [`check`]
//! what an address is and who may use it, and [`ipc`] the sharing.

pub mod check;
pub mod ipc;
pub mod physical;
pub mod pinned;
pub mod pointer;
pub mod pool;
pub mod sys;
pub mod virt;
pub mod whole;

use super::{
    config::{Config, MAX_DEVICES},
    ids::{Id, IdMap},
};
use crate::driver::{codes, table::Code};
use physical::{DeviceMemory, Physical};
use std::{collections::BTreeMap, io};

/// Everything known about memory, under one lock. Copies and fills hold it for reading while they check and touch a
/// stretch of memory, so that an unmapping waits for the stretch and the next one sees it gone.
pub struct Memory {
    pub devices: Vec<DeviceMemory>,
    /// Reserved address ranges by their start, the ones under whole allocations included.
    pub reservations: BTreeMap<u64, Reservation>,
    pub mappings: BTreeMap<u64, Mapping>,
    pub physical: IdMap<Physical>,
    pub chunks: BTreeMap<u64, whole::Chunk>,
    pub allocations: BTreeMap<u64, whole::Allocation>,
    pub opened: BTreeMap<u64, ipc::Opened>,
    pub pinned: BTreeMap<u64, pinned::Pinned>,
    /// The default pool of each device.
    pub pools: Vec<pool::Pool>,
    /// For each device, the devices whose whole allocations it may use, one bit each.
    pub peers: [u64; MAX_DEVICES],
    next_buffer: u64,
}

/// A range of reserved addresses.
pub struct Reservation {
    pub bytes: u64,
    /// Whether the program made it, rather than an allocation.
    pub users: bool,
}

/// Physical memory at an address.
pub struct Mapping {
    pub bytes: u64,
    pub physical: Id,
    /// The device whose memory it is.
    pub device: usize,
    pub rights: Rights,
    pub buffer: u64,
}

/// Who may use a mapping.
#[derive(Clone, Copy)]
pub enum Rights {
    /// The devices named by `cuMemSetAccess`, one bit each.
    Set { read: u64, write: u64 },
    /// The memory's own device, those with peer access to it, and those named here.
    Whole { also: u64 },
    /// The device that opened it by another process's handle, and no other: neither peers nor, if another opened it, the
    /// memory's own.
    Opened { by: usize },
}

impl Memory {
    pub fn new(config: &Config) -> Memory {
        Memory {
            devices: config.visible.iter().map(|_| DeviceMemory::new(config.memory)).collect(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            physical: IdMap::default(),
            chunks: BTreeMap::new(),
            allocations: BTreeMap::new(),
            opened: BTreeMap::new(),
            pinned: BTreeMap::new(),
            pools: config.visible.iter().map(|_| pool::Pool::default()).collect(),
            peers: [0; MAX_DEVICES],
            next_buffer: 1,
        }
    }

    /// A number that no piece of memory had before.
    pub fn next_buffer(&mut self) -> u64 {
        self.next_buffer += 1;
        self.next_buffer
    }
}

/// The entry of a map of ranges that contains `address`.
pub fn containing<T>(map: &BTreeMap<u64, T>, address: u64, bytes: impl Fn(&T) -> u64) -> Option<(u64, &T)> {
    let (start, entry) = map.range(..=address).next_back()?;
    (address - start < bytes(entry)).then_some((*start, entry))
}

/// Whether a map of ranges has an entry that overlaps `bytes` at `address`, which do not overflow.
pub fn overlaps<T>(map: &BTreeMap<u64, T>, address: u64, bytes: u64, size: impl Fn(&T) -> u64) -> bool {
    containing(map, address, size).is_some() || map.range(address..address + bytes).next().is_some()
}

/// What a failed system call means to CUDA.
pub fn os_error(error: io::Error) -> Code {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC) => codes::CUDA_ERROR_OUT_OF_MEMORY,
        _ => codes::CUDA_ERROR_OPERATING_SYSTEM,
    }
}
