//! Device memory shared between processes.
//!
//! The file descriptor exported for a handle is a new open file description of the device's memory file. Its file
//! position marks a header just before the memory. The description holds a shared lock on the memory's bytes, and so
//! does the importer's own description. Locks are released with their descriptions, so the owner learns from the kernel
//! when no process holds the memory any more, even if a holder crashed.
//!
//! The older handles of 64 bytes contain a process, its descriptor and an offset in the file. They are opened through
//! `/proc`, so both processes must belong to one user and see each other. Fabric handles are made in the same way.
//!
//! A DMA-BUF is a file description that holds the locks of all the memory under its range. It keeps the memory in use, as
//! on a GPU. Its file position is the place of the range's first byte, so a test can read what a network adapter would,
//! up to the end of the first handle.

use super::{
    AccessRights, Memory, containing, os_error,
    physical::{FILE_NAME, Physical},
    sys,
};
use crate::{
    config::GRANULE,
    driver::{FABRIC_HANDLE_BYTES, HandleTypes, codes, file_description, table::Code},
    ids::{self, Id},
};
use std::{
    os::{
        fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

/// Another process's allocation, opened here. The map's key is its address in the context that opened it.
pub struct OpenedAllocation {
    pub device: usize,
    /// The device of that context.
    pub by: usize,
    pub bytes: u64,
    pub buffer: u64,
    /// The start of the mapping that contains it.
    mapping: u64,
    handle: [u8; 64],
    count: u32,
}

const INVALID: Code = codes::CUDA_ERROR_INVALID_VALUE;
const FILE_MAGIC: u64 = u64::from_le_bytes(*b"plinthMF");
const HANDLE_MAGIC: u64 = u64::from_le_bytes(*b"plinthMH");
const FABRIC_MAGIC: u64 = u64::from_le_bytes(*b"plinthFH");
/// Both ends of a DMA-BUF are multiples of the host's page size.
const PAGE: u64 = 4096;

/// Packs numbers with a checksum, so that other bytes are not mistaken for them.
pub fn seal<const N: usize>(numbers: &[u64]) -> [u8; N] {
    let mut bytes = [0; N];
    let sum = checksum(numbers);
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers.iter().chain([&sum])) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Returns the numbers that [`seal`] packed, or `None` if the checksum or the magic number does not match.
pub fn unseal<const M: usize>(bytes: &[u8], magic: u64) -> Option<[u64; M]> {
    let mut numbers = [0; M];
    let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    for number in &mut numbers {
        *number = words.next()?;
    }
    (numbers.first() == Some(&magic) && words.next()? == checksum(&numbers)).then_some(numbers)
}

fn checksum(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15, |sum, number| (sum ^ number).rotate_left(23).wrapping_mul(0x2545_f491_4f6c_dd1d))
}

/// Returns this process's ID and start time.
pub fn this_process() -> Result<(i32, u64), Code> {
    let process = std::process::id() as i32;
    let start = sys::start_time(process).map_err(os_error)?.ok_or(codes::CUDA_ERROR_OPERATING_SYSTEM)?;
    Ok((process, start))
}

/// Packs a process and its descriptor of a memory file.
fn place_of(process: i32, fd: RawFd) -> u64 {
    (process as u64) << 32 | fd as u64
}

/// Opens the memory file at a place, if the process there still is the one that started at that time.
fn open_place(place: u64, start: u64) -> Result<OwnedFd, Code> {
    let (process, fd) = ((place >> 32) as i32, place as u32 as RawFd);
    if sys::start_time(process).map_err(os_error)? != Some(start) {
        return Err(INVALID);
    }
    let file = file_description::reopen(Some(process), fd).map_err(|_| INVALID)?;
    if sys::is_memory_file(file.as_raw_fd(), FILE_NAME) { Ok(file) } else { Err(INVALID) }
}

/// Returns the number of a device in this process.
fn device_of(ordinal: u64, physical_ordinals: &[usize]) -> Result<usize, Code> {
    let device = physical_ordinals.iter().position(|known| *known as u64 == ordinal);
    device.ok_or(codes::CUDA_ERROR_INVALID_DEVICE)
}

/// Returns whether a handle names this process's own memory.
pub fn is_own(handle: &[u8; 64]) -> bool {
    unseal(handle, HANDLE_MAGIC).is_some_and(|[_, place, ..]: [u64; 7]| (place >> 32) as u32 == std::process::id())
}

impl Memory {
    /// Exports shareable memory as a file descriptor, which keeps the memory in use until it is closed.
    pub fn export(&mut self, id: Id, physical_ordinals: &[usize]) -> Result<RawFd, Code> {
        let physical = self.handle(id)?;
        if !physical.types.file_descriptor || physical.imported {
            return Err(INVALID);
        }
        let ordinal = *physical_ordinals.get(physical.device).ok_or(INVALID)? as u64;
        let file = file_description::reopen(None, physical.file.as_raw_fd()).map_err(os_error)?;
        let header = physical.offset - GRANULE;
        let bytes: [u8; 40] = seal(&[FILE_MAGIC, physical.offset, physical.bytes, ordinal]);
        let writer = std::fs::File::from(file.try_clone().map_err(os_error)?);
        writer.write_all_at(&bytes, header).map_err(os_error)?;
        file_description::lock_shared(&file, physical.offset, physical.bytes).map_err(os_error)?;
        sys::seek(&file, header).map_err(os_error)?;
        physical.exported = true;
        Ok(file.into_raw_fd())
    }

    /// Creates a handle for the memory behind a file descriptor, which the caller keeps.
    pub fn import(&mut self, fd: RawFd, physical_ordinals: &[usize]) -> Result<Id, Code> {
        if fd < 0 || !sys::is_memory_file(fd, FILE_NAME) {
            return Err(INVALID);
        }
        let header = sys::position(fd).map_err(|_| INVALID)?;
        let file = std::fs::File::from(file_description::reopen(None, fd).map_err(os_error)?);
        let mut bytes = [0; 40];
        file.read_exact_at(&mut bytes, header).map_err(|_| INVALID)?;
        let [_, offset, size, ordinal] = unseal(&bytes, FILE_MAGIC).ok_or(INVALID)?;
        if offset != header + GRANULE {
            return Err(INVALID);
        }
        let device = device_of(ordinal, physical_ordinals)?;
        let types = HandleTypes { file_descriptor: true, ..HandleTypes::default() };
        self.add_foreign_physical(file.into(), device, offset, size, types)
    }

    /// Exports memory as a fabric handle. Only an import keeps the memory in use.
    pub fn export_fabric(&mut self, id: Id, physical_ordinals: &[usize]) -> Result<[u8; FABRIC_HANDLE_BYTES], Code> {
        let physical = self.handle(id)?;
        if !physical.types.fabric || physical.imported {
            return Err(INVALID);
        }
        let ordinal = *physical_ordinals.get(physical.device).ok_or(INVALID)? as u64;
        let (process, start) = this_process()?;
        physical.exported = true;
        let place = place_of(process, physical.file.as_raw_fd());
        Ok(seal(&[FABRIC_MAGIC, place, start, physical.offset, physical.bytes, ordinal]))
    }

    /// Creates a handle for the memory of a fabric handle.
    pub fn import_fabric(
        &mut self,
        handle: [u8; FABRIC_HANDLE_BYTES],
        physical_ordinals: &[usize],
    ) -> Result<Id, Code> {
        let [_, place, start, offset, bytes, ordinal] = unseal(&handle, FABRIC_MAGIC).ok_or(INVALID)?;
        let device = device_of(ordinal, physical_ordinals)?;
        let file = open_place(place, start)?;
        let types = HandleTypes { fabric: true, ..HandleTypes::default() };
        self.add_foreign_physical(file, device, offset, bytes, types)
    }

    /// Exports a range, all of which is mapped, as a DMA-BUF.
    pub fn dma_buf(&mut self, address: u64, bytes: u64) -> Result<RawFd, Code> {
        let end = address.checked_add(bytes).ok_or(INVALID)?;
        if bytes == 0 || !address.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
            return Err(INVALID);
        }
        let (mut next, mut parts) = (address, Vec::new());
        while next < end {
            let (start, mapping) = containing(&self.mappings, next, |mapping| mapping.bytes).ok_or(INVALID)?;
            if matches!(mapping.rights, AccessRights::Opened { .. }) {
                return Err(INVALID);
            }
            parts.push((mapping.physical, next - start));
            next = start + mapping.bytes;
        }
        let (mut first, mut whole): (_, Option<OwnedFd>) = (0, None);
        for (id, within) in parts {
            let physical = self.physical.get_mut(&id).ok_or(INVALID)?;
            if physical.imported {
                return Err(INVALID);
            }
            let file = match whole.take() {
                Some(file) => file,
                None => {
                    first = physical.offset + within;
                    file_description::reopen(None, physical.file.as_raw_fd()).map_err(os_error)?
                }
            };
            file_description::lock_shared(&file, physical.offset, physical.bytes).map_err(os_error)?;
            physical.exported = true;
            whole = Some(file);
        }
        let file = whole.ok_or(INVALID)?;
        sys::seek(&file, first).map_err(os_error)?;
        Ok(file.into_raw_fd())
    }

    /// Adds another process's memory, with one reference to its handle.
    fn add_foreign_physical(
        &mut self,
        file: OwnedFd,
        device: usize,
        offset: u64,
        bytes: u64,
        types: HandleTypes,
    ) -> Result<Id, Code> {
        let end = offset.checked_add(bytes).ok_or(INVALID)?;
        if bytes == 0
            || !offset.is_multiple_of(GRANULE)
            || !bytes.is_multiple_of(GRANULE)
            || !sys::has_fixed_bytes(&file, end)
        {
            return Err(INVALID);
        }
        file_description::lock_shared(&file, offset, bytes).map_err(os_error)?;
        let id = ids::next();
        let file = Arc::new(file);
        let physical = Physical {
            device,
            bytes,
            file,
            offset,
            references: 1,
            mapping_count: 0,
            types,
            exported: false,
            imported: true,
        };
        self.physical.insert(id, physical);
        Ok(id)
    }

    /// Returns the IPC handle of the whole allocation that contains an address.
    pub fn ipc_handle(&mut self, address: u64, physical_ordinals: &[usize]) -> Result<[u8; 64], Code> {
        let pointee = self.pointee(address).ok_or(INVALID)?;
        let allocation = self.allocations.get(&pointee.start).ok_or(INVALID)?;
        let mapping = self.mappings.get(&allocation.mapping).ok_or(INVALID)?;
        let within = pointee.start - allocation.mapping;
        let physical = self.physical.get_mut(&mapping.physical).ok_or(INVALID)?;
        let ordinal = *physical_ordinals.get(physical.device).ok_or(INVALID)? as u64;
        let (process, start) = this_process()?;
        physical.exported = true;
        let place = place_of(process, physical.file.as_raw_fd());
        // Chunks are whole granules, so 32 bits suffice for the offset of an allocation in its chunk, and 32 for the
        // device.
        Ok(seal(&[HANDLE_MAGIC, place, start, physical.offset, physical.bytes, within << 32 | ordinal, pointee.bytes]))
    }

    /// Maps another process's allocation for the current device. Opening the same handle there again returns the same
    /// address.
    pub fn ipc_open(&mut self, handle: [u8; 64], current: usize, physical_ordinals: &[usize]) -> Result<u64, Code> {
        let [_, place, start, offset, bytes, within_ordinal, size] = unseal(&handle, HANDLE_MAGIC).ok_or(INVALID)?;
        let (within, ordinal) = (within_ordinal >> 32, within_ordinal & 0xffff_ffff);
        let mut known = self.opened.iter_mut();
        if let Some((address, opened)) = known.find(|(_, one)| one.handle == handle && one.by == current) {
            opened.count += 1;
            return Ok(*address);
        }
        let device = device_of(ordinal, physical_ordinals)?;
        if within.checked_add(size).is_none_or(|end| end > bytes) {
            return Err(INVALID);
        }
        let file = open_place(place, start)?;
        let id = self.add_foreign_physical(file, device, offset, bytes, HandleTypes::default())?;
        let mapped = self.reserve(bytes, GRANULE, 0, false).and_then(|address| {
            self.map_at(address, id, AccessRights::Opened { by: current })
                .inspect_err(|_| self.release_reservation(address))
                .map(|()| address)
        });
        // From here on the mapping keeps the memory in use, or nothing does.
        let released = self.release(id);
        let mapping = mapped?;
        released?;
        let buffer = self.next_buffer();
        let address = mapping + within;
        self.opened
            .insert(address, OpenedAllocation { device, by: current, bytes: size, buffer, mapping, handle, count: 1 });
        Ok(address)
    }

    /// Returns whether a device has opened the allocation at an address.
    pub fn ipc_has(&self, address: u64, current: usize) -> bool {
        self.opened.get(&address).is_some_and(|opened| opened.by == current)
    }

    /// Closes an allocation once. The last close unmaps it.
    pub fn ipc_close(&mut self, address: u64, current: usize) -> Result<(), Code> {
        let opened = self.opened.get_mut(&address).filter(|opened| opened.by == current).ok_or(INVALID)?;
        opened.count -= 1;
        if opened.count == 0 {
            let mapping = opened.mapping;
            self.opened.remove(&address);
            self.unmap_allocation(mapping);
        }
        Ok(())
    }
}
