//! Whole allocations, as `cuMemAlloc` makes them: large ones have granules of their own, small ones share a granule.

use super::{AccessRights, Memory};
use crate::{
    config::GRANULE,
    driver::{HandleTypes, codes, table::Code},
};
use std::collections::BTreeMap;

/// The size from which an allocation has granules of its own.
const LARGE: u64 = 1 << 20;
/// The alignment of what `cuMemAlloc` returns, and the unit of small allocations.
const ALIGNMENT: u64 = 512;

/// A granule that small allocations share.
pub struct Chunk {
    device: usize,
    /// Whether they are blocks of the device's pool.
    pooled: bool,
    /// The free ranges: the offset from the chunk's start, and the size. No two are adjacent.
    free: BTreeMap<u64, u64>,
}

/// One allocation. The map's key is its address.
pub struct Allocation {
    pub device: usize,
    /// The size: the requested one, or that of a pool's block.
    pub bytes: u64,
    /// The size that the program asked for.
    pub requested: u64,
    /// The start of the mapping that contains it.
    pub mapping: u64,
    pub buffer: u64,
    /// Whether every device and the host may use it.
    pub managed: bool,
}

impl Chunk {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (offset, size) =
            self.free.iter().find(|(_, size)| **size >= bytes).map(|(offset, size)| (*offset, *size))?;
        self.free.remove(&offset);
        if size > bytes {
            self.free.insert(offset + bytes, size - bytes);
        }
        Some(offset)
    }

    fn put(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some(after) = self.free.remove(&(offset + bytes)) {
            bytes += after;
        }
        if let Some((before, size)) = self.free.range(..offset).next_back().map(|(before, size)| (*before, *size))
            && before + size == offset
        {
            offset = before;
            bytes += size;
        }
        self.free.insert(offset, bytes);
    }
}

impl Memory {
    /// Allocates memory that its own device, and devices with peer access, may use.
    pub fn allocate(&mut self, device: usize, bytes: u64) -> Result<u64, Code> {
        self.allocate_for(device, bytes, false)
    }

    /// Allocates a block for the device's pool; otherwise as [`allocate`](Memory::allocate).
    pub fn allocate_pooled(&mut self, device: usize, bytes: u64) -> Result<u64, Code> {
        self.allocate_for(device, bytes, true)
    }

    fn allocate_for(&mut self, device: usize, bytes: u64, pooled: bool) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let (address, mapping) = if bytes >= LARGE {
            let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
            let address = self.map_whole(device, rounded, 0)?;
            (address, address)
        } else {
            self.allocate_small(device, bytes.next_multiple_of(ALIGNMENT), pooled)?
        };
        let buffer = self.next_buffer();
        self.allocations
            .insert(address, Allocation { device, bytes, requested: bytes, mapping, buffer, managed: false });
        Ok(address)
    }

    /// Allocates memory that every device and the host may use. It never migrates: the host's processors and this
    /// device are the same.
    pub fn allocate_managed(&mut self, device: usize, bytes: u64) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        let mapping = self.map_whole(device, rounded, u64::MAX)?;
        let buffer = self.next_buffer();
        self.allocations
            .insert(mapping, Allocation { device, bytes, requested: bytes, mapping, buffer, managed: true });
        Ok(mapping)
    }

    fn allocate_small(&mut self, device: usize, bytes: u64, pooled: bool) -> Result<(u64, u64), Code> {
        for (start, chunk) in
            self.chunks.iter_mut().filter(|(_, chunk)| chunk.device == device && chunk.pooled == pooled)
        {
            if let Some(offset) = chunk.take(bytes) {
                return Ok((start + offset, *start));
            }
        }
        let start = self.map_whole(device, GRANULE, 0)?;
        let free = BTreeMap::from([(bytes, GRANULE - bytes)]);
        self.chunks.insert(start, Chunk { device, pooled, free });
        Ok((start, start))
    }

    /// Allocates memory at new addresses, which the devices of `also` may use, too.
    pub(super) fn map_whole(&mut self, device: usize, bytes: u64, also: u64) -> Result<u64, Code> {
        let id = self.create(device, bytes, HandleTypes::default())?;
        let address = self.reserve(bytes, GRANULE, 0, false).inspect_err(|_| drop_handle(self, id))?;
        let placed = self.map_at(address, id, AccessRights::Whole { also });
        // From here on the mapping keeps the memory in use, or nothing does.
        drop_handle(self, id);
        placed.inspect_err(|_| self.release_reservation(address))?;
        Ok(address)
    }

    /// Frees what [`allocate`](Memory::allocate) returned. The work on it must be complete.
    pub fn deallocate(&mut self, address: u64) -> Result<u64, Code> {
        self.remove_from_pool(address)?;
        self.drop_allocation(address)
    }

    /// Frees an allocation that is not in a pool.
    pub fn drop_allocation(&mut self, address: u64) -> Result<u64, Code> {
        let allocation = self.allocations.remove(&address).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let start = allocation.mapping;
        let Some(chunk) = self.chunks.get_mut(&start) else {
            self.unmap_allocation(start);
            return Ok(allocation.bytes);
        };
        chunk.put(address - start, allocation.bytes.next_multiple_of(ALIGNMENT));
        if chunk.free.get(&0) == Some(&GRANULE) {
            self.chunks.remove(&start);
            self.unmap_allocation(start);
        }
        Ok(allocation.bytes)
    }
}

fn drop_handle(memory: &mut Memory, id: u64) {
    // The handle was just created and has one reference, so this cannot fail.
    let _ = memory.release(id);
}
