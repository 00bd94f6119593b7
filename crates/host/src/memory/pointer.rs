//! Attributes of pointers.

use super::{AccessRights, Memory, containing};
use crate::driver::{codes, table::Code};

/// The memory that a pointer points into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointee {
    pub device: usize,
    /// Whether it is pinned host memory rather than a device's.
    pub host: bool,
    /// Whether the host and every device may use it.
    pub managed: bool,
    /// Whether it belongs to a context: memory of a pool, and what the program mapped itself, do not.
    pub owned_by_context: bool,
    pub start: u64,
    pub bytes: u64,
    pub buffer: u64,
}

impl Memory {
    /// Returns the device or pinned memory that contains an address, if any.
    pub fn pointee(&self, address: u64) -> Option<Pointee> {
        let of_context = |device, start, bytes, buffer| Pointee {
            device,
            host: false,
            managed: false,
            owned_by_context: true,
            start,
            bytes,
            buffer,
        };
        if let Some((start, one)) = containing(&self.allocations, address, |one| one.bytes) {
            let whole = of_context(one.device, start, one.requested, one.buffer);
            let owned_by_context = !self.pools[one.device].has(start);
            return Some(Pointee { managed: one.managed, owned_by_context, ..whole });
        }
        if let Some((start, one)) = containing(&self.opened, address, |one| one.bytes) {
            return Some(of_context(one.device, start, one.bytes, one.buffer));
        }
        if let Some((start, one)) = containing(&self.mappings, address, |one| one.bytes)
            && matches!(one.rights, AccessRights::Set { .. })
        {
            // The range is that of the reservation.
            let reserved = containing(&self.reservations, address, |one| one.bytes);
            let (start, bytes) = reserved.map_or((start, one.bytes), |(start, reserved)| (start, reserved.bytes));
            let mapped = of_context(one.device, start, bytes, one.buffer);
            return Some(Pointee { owned_by_context: false, ..mapped });
        }
        if let Some((start, one)) = containing(&self.variables, address, |one| one.bytes) {
            return Some(of_context(one.device, start, one.bytes, one.buffer));
        }
        let (start, one) = containing(&self.pinned, address, |one| one.bytes)?;
        Some(Pointee { host: true, ..of_context(one.device, start, one.bytes, one.buffer) })
    }

    /// Returns the start and size of the allocation or mapping that contains an address.
    pub fn address_range(&self, address: u64) -> Result<(u64, u64), Code> {
        // What no device may access is not found.
        let mapping = containing(&self.mappings, address, |one| one.bytes);
        let hidden = mapping.is_some_and(|(_, one)| matches!(one.rights, AccessRights::Set { read: 0, .. }));
        let pointee = self.pointee(address).filter(|_| !hidden).ok_or(codes::CUDA_ERROR_NOT_FOUND)?;
        let mapped = mapping.filter(|(_, one)| matches!(one.rights, AccessRights::Set { .. }));
        Ok(mapped.map_or((pointee.start, pointee.bytes), |(start, one)| (start, one.bytes)))
    }
}
