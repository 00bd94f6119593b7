//! Host memory that devices may use: allocated as pinned memory, or the program's own and registered.

use super::{Memory, containing, overlaps, sys};
use crate::driver::{codes, table::Code};

/// A range of pinned memory.
pub struct Pinned {
    pub bytes: u64,
    /// Whether the memory is the program's own and was registered.
    pub registered: bool,
    /// The device that was current when it was pinned.
    pub device: usize,
    pub buffer: u64,
}

const PAGE: u64 = 4096;

impl Memory {
    pub fn allocate_pinned(&mut self, bytes: u64, device: usize) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let rounded = bytes.checked_next_multiple_of(PAGE).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = sys::map_pinned(rounded).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        let buffer = self.next_buffer();
        self.pinned.insert(address, Pinned { bytes, registered: false, device, buffer });
        Ok(address)
    }

    /// Frees what [`allocate_pinned`](Memory::allocate_pinned) returned. The work on it must be complete.
    pub fn free_pinned(&mut self, address: u64) -> Result<u64, Code> {
        match self.pinned.get(&address) {
            Some(range) if !range.registered => {
                let bytes = range.bytes;
                self.pinned.remove(&address);
                sys::release(address, bytes.next_multiple_of(PAGE));
                Ok(bytes)
            }
            _ => Err(codes::CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub fn register(&mut self, address: u64, bytes: u64, device: usize) -> Result<(), Code> {
        if address == 0 || bytes == 0 || address.checked_add(bytes).is_none() {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        if overlaps(&self.pinned, address, bytes, |range| range.bytes) {
            return Err(codes::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        if overlaps(&self.reservations, address, bytes, |range| range.bytes) || !sys::is_mapped(address, bytes) {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let buffer = self.next_buffer();
        self.pinned.insert(address, Pinned { bytes, registered: true, device, buffer });
        Ok(())
    }

    pub fn unregister(&mut self, address: u64) -> Result<u64, Code> {
        if address == 0 {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        match self.pinned.get(&address) {
            Some(range) if range.registered => {
                let bytes = range.bytes;
                self.pinned.remove(&address);
                Ok(bytes)
            }
            _ if self.is_pinned(address, 1) => Err(codes::CUDA_ERROR_INVALID_VALUE),
            _ => Err(codes::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        }
    }

    /// Returns whether a range lies in pinned memory.
    pub fn is_pinned(&self, address: u64, bytes: u64) -> bool {
        containing(&self.pinned, address, |range| range.bytes)
            .is_some_and(|(start, range)| bytes <= range.bytes - (address - start))
    }
}
