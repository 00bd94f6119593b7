//! Physical memory: ranges of a sparse memory file for each device, counted against the device's limit, together with
//! that of other processes if they [share](super::share) the amount.
//!
//! File offsets only grow, so an offset always refers to the same memory, and other processes may refer to it. If
//! another process still holds a range when its last local user releases it, its release is pending, and it still
//! counts against the limit, as on a GPU.

use super::{Memory, os_error, share::SharedAmounts, sys};
use crate::{
    config::GRANULE,
    driver::{HandleTypes, codes, file_description, table::Code},
    ids::{self, Id},
};
use std::{os::fd::OwnedFd, sync::Arc};

/// The memory of one device.
pub struct DeviceMemory {
    pub total: u64,
    pub used: u64,
    /// The amounts that it shares with other processes, and its number there.
    shared: Option<(&'static SharedAmounts, usize)>,
    file: Option<Arc<OwnedFd>>,
    /// The start of the next range in the file.
    next: u64,
    pending_release: Vec<Range>,
}

#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    bytes: u64,
    /// The size of the space before it for its header, if it can be shared, else 0.
    header: u64,
}

impl Range {
    fn punch(self, file: &OwnedFd) {
        sys::punch(file, self.offset - self.header, self.header + self.bytes);
    }
}

/// One allocation of physical memory.
pub struct Physical {
    pub device: usize,
    pub bytes: u64,
    pub file: Arc<OwnedFd>,
    pub offset: u64,
    /// The number of the program's references to its handle: one for creating it, and one for each retain.
    pub references: u32,
    /// The number of addresses at which it is mapped.
    pub mapping_count: u32,
    /// What it was created for. Space for a header precedes memory with a file descriptor in the file.
    pub types: HandleTypes,
    /// Whether other processes may hold it.
    pub exported: bool,
    /// Whether it is another process's memory, held by a lock on `file`.
    pub imported: bool,
}

/// The name of all the memory files.
pub const FILE_NAME: &str = "plinth-host-memory";

/// Bytes for new memory, which as floating-point numbers are NaN, tiny or both, and half of which are small counters.
const ARBITRARY: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0];

impl DeviceMemory {
    pub fn new(total: u64, shared: Option<(&'static SharedAmounts, usize)>) -> DeviceMemory {
        DeviceMemory { total, used: 0, shared, file: None, next: 0, pending_release: Vec::new() }
    }

    /// Counts `bytes` as used, if that many are free. Returns whether it did.
    fn take(&mut self, bytes: u64) -> Result<bool, Code> {
        let taken = match self.shared {
            None => bytes <= self.total - self.used,
            Some((shared, device)) => shared.take(device, self.used, bytes, self.total).map_err(os_error)?,
        };
        if taken {
            self.used += bytes;
        }
        Ok(taken)
    }

    fn give(&mut self, bytes: u64) {
        if let Some((shared, device)) = self.shared {
            shared.give(device, self.used, bytes);
        }
        self.used -= bytes;
    }

    /// Returns the free bytes.
    fn free(&self) -> Result<u64, Code> {
        let others = match self.shared {
            None => 0,
            Some((shared, device)) => shared.held_by_others(device).map_err(os_error)?,
        };
        // Processes may be configured with different amounts.
        Ok((self.total - self.used).saturating_sub(others))
    }

    fn file(&mut self) -> Result<Arc<OwnedFd>, Code> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = Arc::new(sys::memory_file(c"plinth-host-memory").map_err(os_error)?);
        self.file = Some(file.clone());
        Ok(file)
    }

    /// Releases the ranges that other processes no longer hold.
    pub fn reclaim(&mut self) {
        let Some(file) = &self.file else { return };
        let mut released = 0;
        self.pending_release.retain(|range| {
            let locked = file_description::is_locked(file, range.offset, range.bytes);
            if !locked {
                range.punch(file);
                released += range.bytes;
            }
            locked
        });
        self.give(released);
    }

    fn release_range(&mut self, range: Range, exported: bool) {
        let Some(file) = &self.file else { return };
        if exported && file_description::is_locked(file, range.offset, range.bytes) {
            self.pending_release.push(range);
        } else {
            range.punch(file);
            self.give(range.bytes);
        }
    }
}

impl Memory {
    /// Allocates `bytes` (a multiple of the granule) of a device's memory.
    pub fn create(&mut self, device: usize, bytes: u64, types: HandleTypes) -> Result<Id, Code> {
        let owner = self.devices.get_mut(device).ok_or(codes::CUDA_ERROR_INVALID_DEVICE)?;
        let file = owner.file()?;
        if !owner.take(bytes)? {
            owner.reclaim();
            if !owner.take(bytes)? {
                return Err(codes::CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
        let offset = owner.next + if types.file_descriptor { GRANULE } else { 0 };
        sys::grow(&file, offset + bytes)
            .and_then(|()| if self.arbitrary_contents { sys::fill(&file, offset, bytes, &ARBITRARY) } else { Ok(()) })
            .map_err(os_error)
            .inspect_err(|_| owner.give(bytes))?;
        owner.next = offset + bytes;
        let id = ids::next();
        let physical = Physical {
            device,
            bytes,
            file,
            offset,
            references: 1,
            mapping_count: 0,
            types,
            exported: false,
            imported: false,
        };
        self.physical.insert(id, physical);
        Ok(id)
    }

    /// Returns the memory of a handle to which the program still has a reference.
    pub fn handle(&mut self, id: Id) -> Result<&mut Physical, Code> {
        self.physical.get_mut(&id).filter(|physical| physical.references > 0).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Releases one reference to a handle. The memory remains while it is mapped.
    pub fn release(&mut self, id: Id) -> Result<u64, Code> {
        let physical = self.handle(id)?;
        physical.references -= 1;
        let bytes = physical.bytes;
        self.free_if_unused(id);
        Ok(bytes)
    }

    /// Records that one mapping of the memory was removed.
    pub fn release_mapping(&mut self, id: Id) {
        if let Some(physical) = self.physical.get_mut(&id) {
            physical.mapping_count -= 1;
        }
        self.free_if_unused(id);
    }

    /// Frees memory that has no handle references and no mappings here.
    fn free_if_unused(&mut self, id: Id) {
        if !self.physical.get(&id).is_some_and(|physical| physical.references == 0 && physical.mapping_count == 0) {
            return;
        }
        if let Some(physical) = self.physical.remove(&id)
            && !physical.imported
            && let Some(owner) = self.devices.get_mut(physical.device)
        {
            let header = if physical.types.file_descriptor { GRANULE } else { 0 };
            owner.release_range(Range { offset: physical.offset, bytes: physical.bytes, header }, physical.exported);
        }
    }

    /// Returns the free and total bytes of a device.
    pub fn info(&mut self, device: usize) -> Result<(u64, u64), Code> {
        let owner = self.devices.get_mut(device).ok_or(codes::CUDA_ERROR_INVALID_DEVICE)?;
        owner.reclaim();
        Ok((owner.free()?, owner.total))
    }
}
