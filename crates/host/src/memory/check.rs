//! What an address is, and who may use it.

use super::{Mapping, Memory, Rights, containing, overlaps};
use crate::driver::{codes, table::Code};

/// What a range of addresses is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The program's own memory, of which devices know nothing.
    Pageable,
    Pinned,
    /// Memory of this device, mapped throughout.
    Device(usize),
    /// Reserved for devices, but not mapped throughout.
    Hole,
}

impl Mapping {
    /// The device whose context has the memory.
    fn home(&self) -> usize {
        match self.rights {
            Rights::Opened { by } => by,
            _ => self.device,
        }
    }
}

/// On whose authority memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Work that runs on this device.
    Device(usize),
    /// A copy that this device carries out: where it has no right itself, the device whose context has the memory helps.
    Copy(usize),
    /// What was the program's own memory when the copy was asked for. An end that was not must not become so: memory
    /// that was freed under a copy is an illegal address, and not to be touched.
    Program,
}

impl Memory {
    /// Whether a device may read or write a mapping.
    pub fn may(&self, mapping: &Mapping, device: usize, write: bool) -> bool {
        let bit = 1_u64 << device;
        match mapping.rights {
            Rights::Set { read, write: writers } => (if write { writers } else { read }) & bit != 0,
            Rights::Whole { also } => {
                device == mapping.device || also & bit != 0 || self.peers[device] & (1 << mapping.device) != 0
            }
            Rights::Opened { by } => device == by,
        }
    }

    /// What `bytes` at `address` are. The range must not overflow.
    pub fn place_of(&self, address: u64, bytes: u64) -> Place {
        match containing(&self.mappings, address, |mapping| mapping.bytes) {
            Some((_, mapping)) => {
                let device = mapping.device;
                if self.walk(address, bytes, |_| true) { Place::Device(device) } else { Place::Hole }
            }
            None if overlaps(&self.reservations, address, bytes.max(1), |range| range.bytes) => Place::Hole,
            None if self.is_pinned(address, bytes) => Place::Pinned,
            None => Place::Pageable,
        }
    }

    /// Whether an address is in an allocation that a device has no access to: a fill there is refused when it is asked
    /// for, as CUDA refuses it, and does not fail when it runs.
    pub fn is_out_of_reach(&self, address: u64, device: usize) -> bool {
        containing(&self.mappings, address, |mapping| mapping.bytes).is_some_and(|(_, mapping)| {
            !matches!(mapping.rights, Rights::Set { .. }) && !self.may(mapping, device, true)
        })
    }

    /// Whether kernels of a device may read the device memory at an address.
    pub fn is_reached(&self, address: u64, device: usize) -> bool {
        containing(&self.mappings, address, |mapping| mapping.bytes)
            .is_some_and(|(_, mapping)| self.may(mapping, device, false))
    }

    /// Whether mappings that pass `test` cover a range.
    fn walk(&self, address: u64, bytes: u64, test: impl Fn(&Mapping) -> bool) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut at = address;
        while at < end {
            match containing(&self.mappings, at, |mapping| mapping.bytes) {
                Some((start, mapping)) if test(mapping) => at = start + mapping.bytes,
                _ => return false,
            }
        }
        true
    }

    /// Whether a range may be used now; if so, it stays usable while the memory is locked for reading.
    pub fn usable(&self, address: u64, bytes: u64, write: bool, by: By) -> Result<(), Code> {
        if address.checked_add(bytes.max(1)).is_none() {
            return Err(codes::CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        let usable = match self.place_of(address, bytes) {
            Place::Pinned => true,
            Place::Pageable => by == By::Program,
            Place::Hole => false,
            Place::Device(_) => self.walk(address, bytes, |mapping| match by {
                By::Device(device) => self.may(mapping, device, write),
                By::Copy(device) => self.may(mapping, device, write) || self.may(mapping, mapping.home(), write),
                By::Program => false,
            }),
        };
        if usable { Ok(()) } else { Err(codes::CUDA_ERROR_ILLEGAL_ADDRESS) }
    }
}
