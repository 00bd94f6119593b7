//! Classification of addresses, and access checks.

use super::{AccessRights, Mapping, Memory, containing, overlaps};
use crate::driver::{codes, table::Code, work_report};
use std::fmt::{self, Display, Formatter};

/// The kind of memory in an address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// The program's own memory, which is unknown to devices.
    Pageable,
    Pinned,
    /// Memory of this device, mapped throughout the range.
    Device(usize),
    /// Reserved for devices, but not mapped throughout the range.
    Unmapped,
}

impl Mapping {
    /// Returns the device whose context owns the memory.
    fn home(&self) -> usize {
        match self.rights {
            AccessRights::Opened { by } => by,
            _ => self.device,
        }
    }
}

/// Whose access rights apply to a use of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accessor {
    /// Work that runs on this device.
    Device(usize),
    /// A copy that this device executes. Where it has no access itself, the rights of the device whose context owns the
    /// memory apply.
    Copy(usize),
    /// Memory that was the program's own when the copy was requested. An end that was device or pinned memory then must
    /// not change to this: memory that was freed during a copy is an illegal address, and must not be accessed.
    Program,
}

impl Display for Accessor {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Accessor::Device(device) => write!(formatter, "device {device}"),
            Accessor::Copy(device) => write!(formatter, "a copy by device {device}"),
            Accessor::Program => write!(formatter, "a copy of pageable memory"),
        }
    }
}

impl Memory {
    /// Returns whether a device may read or write a mapping.
    pub fn can_access(&self, mapping: &Mapping, device: usize, write: bool) -> bool {
        let bit = 1_u64 << device;
        match mapping.rights {
            AccessRights::Set { read, write: writers } => (if write { writers } else { read }) & bit != 0,
            AccessRights::Whole { also } => {
                device == mapping.device || also & bit != 0 || self.peers[device] & (1 << mapping.device) != 0
            }
            AccessRights::Opened { by } => device == by,
        }
    }

    /// Returns the kind of the memory in a range. The range must not overflow.
    pub fn kind_of(&self, address: u64, bytes: u64) -> MemoryKind {
        match containing(&self.mappings, address, |mapping| mapping.bytes) {
            Some((_, mapping)) => {
                let device = mapping.device;
                if self.is_covered(address, bytes, |_| true) {
                    MemoryKind::Device(device)
                } else {
                    MemoryKind::Unmapped
                }
            }
            None if overlaps(&self.reservations, address, bytes.max(1), |range| range.bytes) => MemoryKind::Unmapped,
            None if self.is_pinned(address, bytes) => MemoryKind::Pinned,
            None => self.variable_device(address, bytes).map_or(MemoryKind::Pageable, MemoryKind::Device),
        }
    }

    /// Returns whether a range begins in pinned memory or in an allocation, and runs past its end. Copies and fills of such a
    /// range are refused to the byte, though more is mapped. Memory of graphs is not regarded.
    pub fn is_overrun(&self, address: u64, bytes: u64) -> bool {
        let is_too_long = |start: u64, size: u64| bytes > size - (address - start);
        let pinned = containing(&self.pinned, address, |range| range.bytes);
        let allocation = containing(&self.allocations, address, |one| one.requested)
            .filter(|(start, _)| !self.is_graph_memory(*start));
        pinned.is_some_and(|(start, range)| is_too_long(start, range.bytes))
            || allocation.is_some_and(|(start, one)| is_too_long(start, one.requested))
    }

    /// Returns whether an address is in an allocation that a device cannot write. Such a fill is refused when it is
    /// submitted, as CUDA does, instead of failing when it runs.
    pub fn lacks_write_access(&self, address: u64, device: usize) -> bool {
        containing(&self.mappings, address, |mapping| mapping.bytes).is_some_and(|(_, mapping)| {
            !matches!(mapping.rights, AccessRights::Set { .. }) && !self.can_access(mapping, device, true)
        })
    }

    /// Returns whether kernels of a device may read the device memory at an address.
    pub fn is_readable(&self, address: u64, device: usize) -> bool {
        containing(&self.mappings, address, |mapping| mapping.bytes)
            .is_some_and(|(_, mapping)| self.can_access(mapping, device, false))
    }

    /// Returns the device of the module whose variable covers a range.
    fn variable_device(&self, address: u64, bytes: u64) -> Option<usize> {
        let (start, variable) = containing(&self.variables, address, |variable| variable.bytes)?;
        (bytes <= start + variable.bytes - address).then_some(variable.device)
    }

    /// Returns whether mappings that pass `test` cover a range.
    fn is_covered(&self, address: u64, bytes: u64, test: impl Fn(&Mapping) -> bool) -> bool {
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

    /// Checks whether a range may be accessed now. If so, it stays accessible while the memory is locked for reading.
    /// `what` is the work that accesses it, for the report of an error.
    pub fn check_access(
        &self,
        what: impl Display,
        address: u64,
        bytes: u64,
        write: bool,
        accessor: Accessor,
    ) -> Result<(), Code> {
        if self.is_accessible(address, bytes, write, accessor) {
            return Ok(());
        }
        let access = if write { "writes" } else { "reads" };
        let why = match self.kind_of(address, bytes) {
            MemoryKind::Unmapped | MemoryKind::Pageable => "where no device memory is mapped".to_owned(),
            MemoryKind::Pinned | MemoryKind::Device(_) => format!("which {accessor} may not access so"),
        };
        let report = format!("{what} {access} {bytes} bytes at {address:#x}, {why}");
        work_report::set(Some((codes::CUDA_ERROR_ILLEGAL_ADDRESS, report)));
        Err(codes::CUDA_ERROR_ILLEGAL_ADDRESS)
    }

    fn is_accessible(&self, address: u64, bytes: u64, write: bool, accessor: Accessor) -> bool {
        if address.checked_add(bytes.max(1)).is_none() {
            return false;
        }
        match self.kind_of(address, bytes) {
            MemoryKind::Pinned => true,
            MemoryKind::Pageable => accessor == Accessor::Program,
            MemoryKind::Unmapped => false,
            MemoryKind::Device(_) if self.is_unlaunched(address) => false,
            MemoryKind::Device(home) if self.variable_device(address, bytes).is_some() => match accessor {
                Accessor::Device(device) => device == home,
                Accessor::Copy(_) => true,
                Accessor::Program => false,
            },
            MemoryKind::Device(_) => self.is_covered(address, bytes, |mapping| match accessor {
                Accessor::Device(device) => self.can_access(mapping, device, write),
                Accessor::Copy(device) => {
                    self.can_access(mapping, device, write) || self.can_access(mapping, mapping.home(), write)
                }
                Accessor::Program => false,
            }),
        }
    }
}
