//! Addresses apart from memory: reserving, mapping, access rights.

use super::{Mapping, Memory, Reservation, Rights, containing, os_error, overlaps, sys};
use crate::{
    config::GRANULE,
    driver::{codes, table::Code, types::*},
    ids::Id,
};

const INVALID: Code = codes::CUDA_ERROR_INVALID_VALUE;

/// Access that a location is given: a device and what it may do.
#[derive(Clone, Copy)]
pub struct Access {
    pub device: usize,
    pub read: bool,
    pub write: bool,
}

/// The end of a range that starts and ends at granules and is not empty.
fn granular(address: u64, bytes: u64) -> Result<u64, Code> {
    if bytes == 0 || address == 0 || !address.is_multiple_of(GRANULE) || !bytes.is_multiple_of(GRANULE) {
        return Err(INVALID);
    }
    address.checked_add(bytes).ok_or(INVALID)
}

impl Memory {
    /// Reserves addresses for the program, or for an allocation.
    pub fn reserve(&mut self, bytes: u64, alignment: u64, wanted: u64, users: bool) -> Result<u64, Code> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(INVALID);
        }
        let address = sys::reserve(bytes, alignment.max(GRANULE), wanted).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.reservations.insert(address, Reservation { bytes, users });
        Ok(address)
    }

    /// Frees a whole reservation of the program's, with nothing mapped in it.
    pub fn free_addresses(&mut self, address: u64, bytes: u64) -> Result<(), Code> {
        let reservation = self.reservations.get(&address).filter(|reservation| reservation.users).ok_or(INVALID)?;
        if reservation.bytes != bytes || overlaps(&self.mappings, address, bytes, |mapping| mapping.bytes) {
            return Err(INVALID);
        }
        self.drop_addresses(address);
        Ok(())
    }

    /// Frees a reservation in which nothing is mapped.
    pub fn drop_addresses(&mut self, address: u64) {
        if let Some(reservation) = self.reservations.remove(&address) {
            sys::release(address, reservation.bytes);
        }
    }

    /// Maps a whole handle into a reservation of the program's.
    pub fn map(&mut self, address: u64, bytes: u64, offset: u64, id: Id) -> Result<(), Code> {
        granular(address, bytes)?;
        let physical = self.handle(id)?;
        if offset != 0 || bytes != physical.bytes {
            return Err(INVALID);
        }
        let (start, reservation) = containing(&self.reservations, address, |entry| entry.bytes).ok_or(INVALID)?;
        if !reservation.users || bytes > reservation.bytes - (address - start) {
            return Err(INVALID);
        }
        if overlaps(&self.mappings, address, bytes, |mapping| mapping.bytes) {
            return Err(INVALID);
        }
        self.place(address, id, Rights::Set { read: 0, write: 0 })
    }

    /// Maps memory at reserved addresses that are known to be free.
    pub fn place(&mut self, address: u64, id: Id, rights: Rights) -> Result<(), Code> {
        let buffer = self.next_buffer();
        let physical = self.physical.get_mut(&id).ok_or(INVALID)?;
        let protection = match rights {
            Rights::Set { .. } => sys::PROT_NONE,
            Rights::Whole { .. } | Rights::Opened { .. } => sys::PROT_WRITE,
        };
        sys::map(address, physical.bytes, &physical.file, physical.offset, protection).map_err(os_error)?;
        physical.maps += 1;
        let mapping = Mapping { bytes: physical.bytes, physical: id, device: physical.device, rights, buffer };
        self.mappings.insert(address, mapping);
        Ok(())
    }

    /// The starts of the mappings that exactly cover a range, every one of which is `Rights::Set`.
    fn covered(&self, address: u64, bytes: u64) -> Result<Vec<u64>, Code> {
        let end = granular(address, bytes)?;
        let mut starts = Vec::new();
        let mut next = address;
        for (start, mapping) in self.mappings.range(address..end) {
            if *start != next || !matches!(mapping.rights, Rights::Set { .. }) {
                return Err(INVALID);
            }
            starts.push(*start);
            next = start + mapping.bytes;
        }
        if next == end { Ok(starts) } else { Err(INVALID) }
    }

    /// Unmaps a range made of whole mappings of the program's.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), Code> {
        let starts = self.covered(address, bytes)?;
        sys::unmap(address, bytes).map_err(os_error)?;
        for start in starts {
            if let Some(mapping) = self.mappings.remove(&start) {
                self.unmapped(mapping.physical);
            }
        }
        Ok(())
    }

    /// Takes memory away from an allocation's addresses, and gives those back too.
    pub fn displace(&mut self, address: u64) {
        if let Some(mapping) = self.mappings.remove(&address) {
            // The pages go with the addresses, which the reservation's end returns to the system. Before the memory
            // is given back, so that nothing can touch what is no longer counted.
            self.drop_addresses(address);
            self.unmapped(mapping.physical);
        }
    }

    /// Sets what devices may do in a range made of whole mappings.
    pub fn set_access(&mut self, address: u64, bytes: u64, access: &[Access]) -> Result<(), Code> {
        let starts = self.covered(address, bytes)?;
        for start in starts {
            let Some(mapping) = self.mappings.get_mut(&start) else { continue };
            let Rights::Set { mut read, mut write } = mapping.rights else { continue };
            for one in access {
                let bit = 1 << one.device;
                read = if one.read { read | bit } else { read & !bit };
                write = if one.write { write | bit } else { write & !bit };
            }
            // The devices' work is done by threads of this process, so that the pages allow what any device may do.
            let protection = match (read, write) {
                (0, 0) => sys::PROT_NONE,
                (_, 0) => sys::PROT_READ,
                _ => sys::PROT_WRITE,
            };
            sys::protect(start, mapping.bytes, protection).map_err(os_error)?;
            mapping.rights = Rights::Set { read, write };
        }
        Ok(())
    }

    /// What a device may do at an address, as `CU_MEM_ACCESS_FLAGS`.
    pub fn access(&self, device: usize, address: u64) -> Result<u64, Code> {
        let (_, mapping) = containing(&self.mappings, address, |mapping| mapping.bytes).ok_or(INVALID)?;
        let flags = match (self.may(mapping, device, false), self.may(mapping, device, true)) {
            (_, true) => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            (true, false) => CU_MEM_ACCESS_FLAGS_PROT_READ,
            (false, false) => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        };
        Ok(u64::from(flags))
    }

    /// Holds the handle of the memory mapped at an address once more.
    pub fn retain_at(&mut self, address: u64) -> Result<Id, Code> {
        let (_, mapping) = containing(&self.mappings, address, |mapping| mapping.bytes).ok_or(INVALID)?;
        if !matches!(mapping.rights, Rights::Set { .. }) {
            return Err(INVALID);
        }
        let id = mapping.physical;
        self.physical.get_mut(&id).ok_or(INVALID)?.holds += 1;
        Ok(id)
    }
}
