//! Virtual memory management: reservations, mappings, access rights.

use super::{AccessRights, Mapping, Memory, Reservation, containing, os_error, overlaps, sys};
use crate::{
    config::GRANULE,
    driver::{codes, table::Code, types::*},
    ids::Id,
};

const INVALID: Code = codes::CUDA_ERROR_INVALID_VALUE;

/// The access rights of a device.
#[derive(Clone, Copy)]
pub struct Access {
    pub device: usize,
    pub read: bool,
    pub write: bool,
}

/// Returns the end of a range, which must be non-empty and start and end at granules.
fn granular(address: u64, bytes: u64) -> Result<u64, Code> {
    if bytes == 0 || address == 0 || !address.is_multiple_of(GRANULE) || !bytes.is_multiple_of(GRANULE) {
        return Err(INVALID);
    }
    address.checked_add(bytes).ok_or(INVALID)
}

impl Memory {
    /// Reserves addresses for the program, or for an allocation.
    pub fn reserve(&mut self, bytes: u64, alignment: u64, hint: u64, by_program: bool) -> Result<u64, Code> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(INVALID);
        }
        let address = sys::reserve(bytes, alignment.max(GRANULE), hint).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.reservations.insert(address, Reservation { bytes, by_program });
        Ok(address)
    }

    /// Frees a whole reservation of the program, in which nothing may be mapped.
    pub fn free_reservation(&mut self, address: u64, bytes: u64) -> Result<(), Code> {
        let reservation =
            self.reservations.get(&address).filter(|reservation| reservation.by_program).ok_or(INVALID)?;
        if reservation.bytes != bytes || overlaps(&self.mappings, address, bytes, |mapping| mapping.bytes) {
            return Err(INVALID);
        }
        self.release_reservation(address);
        Ok(())
    }

    /// Frees a reservation in which nothing is mapped.
    pub fn release_reservation(&mut self, address: u64) {
        if let Some(reservation) = self.reservations.remove(&address) {
            sys::release(address, reservation.bytes);
        }
    }

    /// Maps a whole handle into a reservation of the program.
    pub fn map(&mut self, address: u64, bytes: u64, offset: u64, id: Id) -> Result<(), Code> {
        let physical = self.handle(id)?;
        if bytes != 0 && (offset != 0 || bytes != physical.bytes) {
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        granular(address, bytes)?;
        let (start, reservation) = containing(&self.reservations, address, |entry| entry.bytes).ok_or(INVALID)?;
        if !reservation.by_program || bytes > reservation.bytes - (address - start) {
            return Err(INVALID);
        }
        if overlaps(&self.mappings, address, bytes, |mapping| mapping.bytes) {
            return Err(INVALID);
        }
        self.map_at(address, id, AccessRights::Set { read: 0, write: 0 })
    }

    /// Maps memory at reserved addresses that are known to be free.
    pub fn map_at(&mut self, address: u64, id: Id, rights: AccessRights) -> Result<(), Code> {
        let buffer = self.next_buffer();
        let physical = self.physical.get_mut(&id).ok_or(INVALID)?;
        let protection = match rights {
            AccessRights::Set { .. } => sys::PROT_NONE,
            AccessRights::Whole { .. } | AccessRights::Opened { .. } => sys::PROT_WRITE,
        };
        sys::map(address, physical.bytes, &physical.file, physical.offset, protection).map_err(os_error)?;
        physical.mapping_count += 1;
        let mapping = Mapping { bytes: physical.bytes, physical: id, device: physical.device, rights, buffer };
        self.mappings.insert(address, mapping);
        Ok(())
    }

    /// Returns the starts of the mappings that exactly cover a range; all of them must be `AccessRights::Set`.
    fn covering_mappings(&self, address: u64, bytes: u64) -> Result<Vec<u64>, Code> {
        let end = granular(address, bytes)?;
        let mut starts = Vec::new();
        let mut next = address;
        for (start, mapping) in self.mappings.range(address..end) {
            if *start != next || !matches!(mapping.rights, AccessRights::Set { .. }) {
                return Err(INVALID);
            }
            starts.push(*start);
            next = start + mapping.bytes;
        }
        if next == end { Ok(starts) } else { Err(INVALID) }
    }

    /// Unmaps the mappings in a range of the program's reservations. None may be cut, but there may be gaps.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), Code> {
        let end = address.checked_add(bytes).filter(|end| *end > address).ok_or(INVALID)?;
        let (start, reservation) = containing(&self.reservations, address, |entry| entry.bytes).ok_or(INVALID)?;
        if !reservation.by_program || end - start > reservation.bytes {
            return Err(INVALID);
        }
        let mut next = address;
        let mut whole = Vec::new();
        while next < end
            && let Some((start, mapping)) = self.mappings.range(next..end).next()
        {
            whole.push((*start, mapping.bytes));
            next = start + mapping.bytes;
        }
        let cut =
            containing(&self.mappings, address, |mapping| mapping.bytes).is_some_and(|(start, _)| start < address);
        if cut || next > end {
            return Err(INVALID);
        }
        for (start, bytes) in whole {
            sys::unmap(start, bytes).map_err(os_error)?;
            if let Some(mapping) = self.mappings.remove(&start) {
                self.release_mapping(mapping.physical);
            }
        }
        Ok(())
    }

    /// Unmaps an allocation and frees its addresses.
    pub fn unmap_allocation(&mut self, address: u64) {
        if let Some(mapping) = self.mappings.remove(&address) {
            // Releasing the reservation also unmaps the pages. This happens before the memory is released, so that
            // memory that is no longer counted cannot be accessed.
            self.release_reservation(address);
            self.release_mapping(mapping.physical);
        }
    }

    /// Sets the access rights of devices in a range that consists of whole mappings.
    pub fn set_access(&mut self, address: u64, bytes: u64, access: &[Access]) -> Result<(), Code> {
        let starts = self.covering_mappings(address, bytes)?;
        for start in starts {
            let Some(mapping) = self.mappings.get_mut(&start) else { continue };
            let AccessRights::Set { mut read, mut write } = mapping.rights else { continue };
            for one in access {
                let bit = 1 << one.device;
                read = if one.read { read | bit } else { read & !bit };
                write = if one.write { write | bit } else { write & !bit };
            }
            // Threads of this process do the devices' work, so the pages allow whatever any device may do.
            let protection = match (read, write) {
                (0, 0) => sys::PROT_NONE,
                (_, 0) => sys::PROT_READ,
                _ => sys::PROT_WRITE,
            };
            sys::protect(start, mapping.bytes, protection).map_err(os_error)?;
            mapping.rights = AccessRights::Set { read, write };
        }
        Ok(())
    }

    /// Returns the access rights of a device at an address, as `CU_MEM_ACCESS_FLAGS`.
    pub fn access(&self, device: usize, address: u64) -> Result<u64, Code> {
        let (_, mapping) = containing(&self.mappings, address, |mapping| mapping.bytes).ok_or(INVALID)?;
        let flags = match (self.can_access(mapping, device, false), self.can_access(mapping, device, true)) {
            (_, true) => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            (true, false) => CU_MEM_ACCESS_FLAGS_PROT_READ,
            (false, false) => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        };
        Ok(u64::from(flags))
    }

    /// Adds a reference to the handle of the memory mapped at an address.
    pub fn retain_at(&mut self, address: u64) -> Result<Id, Code> {
        let (_, mapping) = containing(&self.mappings, address, |mapping| mapping.bytes).ok_or(INVALID)?;
        if !matches!(mapping.rights, AccessRights::Set { .. }) {
            return Err(INVALID);
        }
        let id = mapping.physical;
        self.physical.get_mut(&id).ok_or(INVALID)?.references += 1;
        Ok(id)
    }
}
