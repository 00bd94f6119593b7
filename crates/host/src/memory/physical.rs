//! Physical memory: ranges of a sparse memory file for each device, counted against the device's limit.
//!
//! File offsets only grow, so an offset means the same memory for ever and other processes may name it. A range that
//! another process still holds when its last user here lets go waits in limbo, and still counts: on a GPU it would.

use super::{Memory, os_error, sys};
use crate::{
    config::GRANULE,
    driver::{codes, table::Code},
    ids::{self, Id},
};
use std::{os::fd::OwnedFd, sync::Arc};

/// The memory of one device.
pub struct DeviceMemory {
    pub total: u64,
    pub used: u64,
    file: Option<Arc<OwnedFd>>,
    /// Where the next range starts in the file.
    next: u64,
    limbo: Vec<Range>,
}

#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    bytes: u64,
    /// The room before it that holds its header, if it can be shared.
    header: u64,
}

impl Range {
    fn punch(self, file: &OwnedFd) {
        sys::punch(file, self.offset - self.header, self.header + self.bytes);
    }
}

/// One piece of physical memory.
pub struct Physical {
    pub device: usize,
    pub bytes: u64,
    pub file: Arc<OwnedFd>,
    pub offset: u64,
    /// How often the program holds its handle: once for creating it, once for each retaining.
    pub holds: u32,
    /// At how many addresses it is mapped.
    pub maps: u32,
    /// Whether it was made to be shared as a file descriptor: then a header's room lies before it in the file.
    pub shareable: bool,
    /// Whether other processes may hold it.
    pub exported: bool,
    /// Whether it is another process's memory, held by a lock on `file`.
    pub imported: bool,
}

/// What all the memory files are called.
pub const FILE_NAME: &str = "plinth-host-memory";

impl DeviceMemory {
    pub fn new(total: u64) -> DeviceMemory {
        DeviceMemory { total, used: 0, file: None, next: 0, limbo: Vec::new() }
    }

    fn file(&mut self) -> Result<Arc<OwnedFd>, Code> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = Arc::new(sys::memory_file(c"plinth-host-memory").map_err(os_error)?);
        self.file = Some(file.clone());
        Ok(file)
    }

    /// Gives back what other processes have let go of.
    pub fn sweep(&mut self) {
        let Some(file) = &self.file else { return };
        let used = &mut self.used;
        self.limbo.retain(|range| {
            let held = sys::is_held(file, range.offset, range.bytes);
            if !held {
                range.punch(file);
                *used -= range.bytes;
            }
            held
        });
    }

    fn give_back(&mut self, range: Range, exported: bool) {
        let Some(file) = &self.file else { return };
        if exported && sys::is_held(file, range.offset, range.bytes) {
            self.limbo.push(range);
        } else {
            range.punch(file);
            self.used -= range.bytes;
        }
    }
}

impl Memory {
    /// Takes `bytes` (a multiple of the granule) of a device's memory.
    pub fn create(&mut self, device: usize, bytes: u64, shareable: bool) -> Result<Id, Code> {
        let owner = self.devices.get_mut(device).ok_or(codes::CUDA_ERROR_INVALID_DEVICE)?;
        if bytes > owner.total - owner.used {
            owner.sweep();
            if bytes > owner.total - owner.used {
                return Err(codes::CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
        let file = owner.file()?;
        let offset = owner.next + if shareable { GRANULE } else { 0 };
        sys::grow(&file, offset + bytes).map_err(os_error)?;
        owner.next = offset + bytes;
        owner.used += bytes;
        let id = ids::next();
        let physical =
            Physical { device, bytes, file, offset, holds: 1, maps: 0, shareable, exported: false, imported: false };
        self.physical.insert(id, physical);
        Ok(id)
    }

    /// The memory behind a handle that the program still holds.
    pub fn handle(&mut self, id: Id) -> Result<&mut Physical, Code> {
        self.physical.get_mut(&id).filter(|physical| physical.holds > 0).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Lets go of a handle once; the memory stays while it is mapped.
    pub fn release(&mut self, id: Id) -> Result<u64, Code> {
        let physical = self.handle(id)?;
        physical.holds -= 1;
        let bytes = physical.bytes;
        self.collect(id);
        Ok(bytes)
    }

    /// Notes that memory is mapped at one address fewer.
    pub fn unmapped(&mut self, id: Id) {
        if let Some(physical) = self.physical.get_mut(&id) {
            physical.maps -= 1;
        }
        self.collect(id);
    }

    /// Gives memory back if nothing here uses it any more.
    fn collect(&mut self, id: Id) {
        if !self.physical.get(&id).is_some_and(|physical| physical.holds == 0 && physical.maps == 0) {
            return;
        }
        if let Some(physical) = self.physical.remove(&id)
            && !physical.imported
            && let Some(owner) = self.devices.get_mut(physical.device)
        {
            let header = if physical.shareable { GRANULE } else { 0 };
            owner.give_back(Range { offset: physical.offset, bytes: physical.bytes, header }, physical.exported);
        }
    }

    /// Free and total bytes of a device.
    pub fn info(&mut self, device: usize) -> Result<(u64, u64), Code> {
        let owner = self.devices.get_mut(device).ok_or(codes::CUDA_ERROR_INVALID_DEVICE)?;
        owner.sweep();
        Ok((owner.total - owner.used, owner.total))
    }
}
