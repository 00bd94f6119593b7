//! The driver's pools for stream-ordered allocation.
//!
//! A freed block is pending until its stream reaches the free. Until then only later requests of the same stream may
//! reuse it, as the stream's order protects them. Afterwards every stream may reuse it, and it may be returned to the
//! device.

use super::{AccessRights, Memory};
use crate::{
    driver::{codes, table::Code, types::*},
    ids::{self, Id},
};
use std::collections::BTreeMap;

/// The allocation unit of a pool.
const ALIGNMENT: u64 = 512;

/// The default pool of one device.
pub struct Pool {
    /// The handle.
    pub id: Id,
    /// The release threshold: how many bytes a pool may keep reserved when a stream reaches a free.
    threshold: u64,
    /// The three reuse policies. They are stored but have no effect: all settings permit the pool's behaviour.
    reuse: [i32; 3],
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    /// The other devices that may use its memory, one bit each.
    readers: u64,
    /// The sizes of the blocks that the program has, by address.
    live: BTreeMap<u64, u64>,
    /// The free blocks: address and bytes.
    free: Vec<(u64, u64)>,
    pending: Vec<Pending>,
    ticket: u64,
}

struct Pending {
    address: u64,
    bytes: u64,
    stream: Id,
    ticket: u64,
    /// Whether it is an allocation outside the pool, which nothing may reuse.
    whole: bool,
}

/// Returns the index of the smallest block that is large enough and at most twice as large.
fn find_best_fit(blocks: impl Iterator<Item = (usize, u64)>, bytes: u64) -> Option<usize> {
    blocks
        .filter(|(_, size)| (bytes..=bytes.saturating_mul(2)).contains(size))
        .min_by_key(|(_, size)| *size)
        .map(|one| one.0)
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            id: ids::next(),
            threshold: 0,
            reuse: [1; 3],
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            readers: 0,
            live: BTreeMap::new(),
            free: Vec::new(),
            pending: Vec::new(),
            ticket: 0,
        }
    }
}

impl Pool {
    fn mark_used(&mut self, address: u64, bytes: u64) -> u64 {
        self.live.insert(address, bytes);
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        address
    }

    /// Allocates a block that a stream may reuse, without new memory.
    fn reuse_block(&mut self, bytes: u64, stream: Id) -> Option<u64> {
        let own = self.pending.iter().enumerate().filter(|(_, block)| block.stream == stream && !block.whole);
        if let Some(index) = find_best_fit(own.map(|(index, block)| (index, block.bytes)), bytes) {
            let block = self.pending.swap_remove(index);
            return Some(self.mark_used(block.address, block.bytes));
        }
        let index = find_best_fit(self.free.iter().enumerate().map(|(index, block)| (index, block.1)), bytes)?;
        let (address, bytes) = self.free.swap_remove(index);
        Some(self.mark_used(address, bytes))
    }

    /// Returns the other devices that may use the pool's memory, one bit each.
    pub fn readers(&self) -> u64 {
        self.readers
    }

    /// Returns whether the program has a block.
    pub fn has(&self, address: u64) -> bool {
        self.live.contains_key(&address)
    }

    /// Returns whether the program has freed a block that is not returned to the device yet.
    fn has_freed(&self, address: u64) -> bool {
        self.free.iter().any(|block| block.0 == address) || self.pending.iter().any(|block| block.address == address)
    }

    /// Returns an attribute, or `None` if there is no such attribute.
    pub fn attribute(&self, attribute: u32) -> Option<u64> {
        Some(match attribute {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                self.reuse[(attribute - 1) as usize] as u64
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => self.threshold,
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => self.reserved,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => self.reserved_high,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => self.used,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => self.used_high,
            _ => return None,
        })
    }

    /// Sets an attribute. Returns `None` if it cannot be set to this value.
    pub fn set_attribute(&mut self, attribute: u32, value: u64) -> Option<()> {
        match attribute {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                self.reuse[(attribute - 1) as usize] = i32::from(value as u32 != 0);
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => self.threshold = value,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value == 0 => self.reserved_high = self.reserved,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH if value == 0 => self.used_high = self.used,
            _ => return None,
        }
        Some(())
    }
}

impl Memory {
    /// Returns the device whose pool has this handle.
    pub fn pool_device(&self, id: Id) -> Result<usize, Code> {
        self.pools.iter().position(|pool| pool.id == id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Allocates a block for later work in a stream.
    pub fn allocate_from_pool(&mut self, device: usize, bytes: u64, stream: Id) -> Result<u64, Code> {
        if bytes == 0 {
            return Ok(0);
        }
        let address = self.allocate_block(device, bytes, stream)?;
        if let Some(allocation) = self.allocations.get_mut(&address) {
            allocation.requested = bytes;
        }
        Ok(address)
    }

    fn allocate_block(&mut self, device: usize, bytes: u64, stream: Id) -> Result<u64, Code> {
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Some(address) = self.pools[device].reuse_block(bytes, stream) {
            return Ok(address);
        }
        let address = match self.allocate_pooled(device, bytes) {
            Err(codes::CUDA_ERROR_OUT_OF_MEMORY) => {
                self.trim_pool(device, 0);
                self.allocate_pooled(device, bytes)?
            }
            result => result?,
        };
        let readers = self.pools[device].readers;
        self.set_mapping_readers(address, readers);
        let pool = &mut self.pools[device];
        pool.reserved += bytes;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        Ok(pool.mark_used(address, bytes))
    }

    /// Frees a block, or a whole allocation, after the work that is now in a stream. Returns the arguments of
    /// [`complete_free`](Self::complete_free).
    pub fn free_to_pool(&mut self, address: u64, stream: Id) -> Result<(usize, u64), Code> {
        let allocation = self.allocations.get(&address).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let (device, bytes) = (allocation.device, allocation.bytes);
        let pool = &mut self.pools[device];
        if pool.has_freed(address) {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let whole = pool.live.remove(&address).is_none();
        if !whole {
            pool.used -= bytes;
        }
        pool.ticket += 1;
        let ticket = pool.ticket;
        pool.pending.push(Pending { address, bytes, stream, ticket, whole });
        Ok((device, ticket))
    }

    /// Records that a stream has reached a free. The block may have been reused meanwhile.
    pub fn complete_free(&mut self, device: usize, ticket: u64) {
        let pool = &mut self.pools[device];
        let Some(index) = pool.pending.iter().position(|block| block.ticket == ticket) else { return };
        let block = pool.pending.swap_remove(index);
        if block.whole {
            // It is an allocation until here, so this cannot fail.
            let _ = self.drop_allocation(block.address);
            return;
        }
        pool.free.push((block.address, block.bytes));
        let threshold = pool.threshold;
        if pool.reserved > threshold {
            self.trim_pool(device, threshold);
        }
    }

    /// Returns free blocks of a pool to the device until at most `least` bytes are reserved.
    pub fn trim_pool(&mut self, device: usize, least: u64) {
        while self.pools[device].reserved > least
            && let Some((address, bytes)) = self.pools[device].free.pop()
        {
            self.pools[device].reserved -= bytes;
            // A free block is an allocation that only the pool frees, so this cannot fail.
            let _ = self.drop_allocation(address);
        }
    }

    /// Removes a block from its pool when it is freed as a whole allocation. A block that is already free is an error.
    pub fn remove_from_pool(&mut self, address: u64) -> Result<(), Code> {
        for pool in &mut self.pools {
            if let Some(bytes) = pool.live.remove(&address) {
                pool.used -= bytes;
                pool.reserved -= bytes;
                return Ok(());
            }
            if pool.has_freed(address) {
                return Err(codes::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Sets and clears devices' access to all current and future blocks of a pool.
    pub fn set_pool_readers(&mut self, device: usize, set: u64, clear: u64) {
        let pool = &mut self.pools[device];
        pool.readers = pool.readers & !clear | set;
        let readers = pool.readers;
        let blocks: Vec<u64> = pool.live.keys().copied().chain(pool.free.iter().map(|block| block.0)).collect();
        let pending: Vec<u64> = pool.pending.iter().filter(|one| !one.whole).map(|one| one.address).collect();
        for address in blocks.into_iter().chain(pending) {
            self.set_mapping_readers(address, readers);
        }
    }

    /// Sets the devices with access to the mapping that contains a block; it contains only blocks of the same pool.
    fn set_mapping_readers(&mut self, address: u64, readers: u64) {
        let Some(mapping) = self.allocations.get(&address).map(|one| one.mapping) else { return };
        if let Some(mapping) = self.mappings.get_mut(&mapping) {
            mapping.rights = AccessRights::Whole { also: readers };
        }
    }
}
