//! The pools that the driver allocates from in stream order.
//!
//! A piece that is freed is pending until its stream comes to the free. Until then later requests of the same stream may have
//! it, as the stream's order protects them, and nobody else; then everybody may, and it may go back to the device.

use super::{Memory, Rights};
use crate::{
    driver::{codes, table::Code, types::*},
    ids::{self, Id},
};
use std::collections::BTreeMap;

/// The unit of what a pool gives out.
const ALIGNMENT: u64 = 512;

/// The default pool of one device.
pub struct Pool {
    /// The handle.
    pub id: Id,
    /// How much may stay free when something waits.
    threshold: u64,
    /// The three ways to use freed memory again, which are all kept to in any case.
    reuse: [i32; 3],
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    /// The other devices that may use its memory, one bit each.
    readers: u64,
    /// What the program has, by address.
    live: BTreeMap<u64, u64>,
    /// What nobody uses: address and bytes.
    idle: Vec<(u64, u64)>,
    pending: Vec<Pending>,
    ticket: u64,
}

struct Pending {
    address: u64,
    bytes: u64,
    stream: Id,
    ticket: u64,
}

/// The place of the smallest piece that is large enough, and not much larger.
fn fitting(pieces: impl Iterator<Item = (usize, u64)>, bytes: u64) -> Option<usize> {
    pieces
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
            idle: Vec::new(),
            pending: Vec::new(),
            ticket: 0,
        }
    }
}

impl Pool {
    fn use_piece(&mut self, address: u64, bytes: u64) -> u64 {
        self.live.insert(address, bytes);
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        address
    }

    /// A piece that a stream may have without new memory.
    fn again(&mut self, bytes: u64, stream: Id) -> Option<u64> {
        let own = self.pending.iter().enumerate().filter(|(_, piece)| piece.stream == stream);
        if let Some(index) = fitting(own.map(|(index, piece)| (index, piece.bytes)), bytes) {
            let piece = self.pending.swap_remove(index);
            return Some(self.use_piece(piece.address, piece.bytes));
        }
        let index = fitting(self.idle.iter().enumerate().map(|(index, piece)| (index, piece.1)), bytes)?;
        let (address, bytes) = self.idle.swap_remove(index);
        Some(self.use_piece(address, bytes))
    }

    /// An attribute.
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

    /// Sets an attribute, if it can be set to this.
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
    /// The device whose pool has this handle.
    pub fn pool_device(&self, id: Id) -> Result<usize, Code> {
        self.pools.iter().position(|pool| pool.id == id).ok_or(codes::CUDA_ERROR_INVALID_VALUE)
    }

    /// Allocates for work that comes later in a stream.
    pub fn allocate_from_pool(&mut self, device: usize, bytes: u64, stream: Id) -> Result<u64, Code> {
        if bytes == 0 {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Some(address) = self.pools[device].again(bytes, stream) {
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
        self.let_read(address, readers);
        let pool = &mut self.pools[device];
        pool.reserved += bytes;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        Ok(pool.use_piece(address, bytes))
    }

    /// Notes that a piece is freed behind what is in a stream now. Gives what [`reach_free`](Self::reach_free) takes.
    pub fn free_to_pool(&mut self, address: u64, stream: Id) -> Result<(usize, u64), Code> {
        let found = self.pools.iter().position(|pool| pool.live.contains_key(&address));
        let device = found.ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let pool = &mut self.pools[device];
        let bytes = pool.live.remove(&address).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        pool.used -= bytes;
        pool.ticket += 1;
        let ticket = pool.ticket;
        pool.pending.push(Pending { address, bytes, stream, ticket });
        Ok((device, ticket))
    }

    /// Notes that a stream has come to a free. The piece may have been given out again meanwhile.
    pub fn reach_free(&mut self, device: usize, ticket: u64) {
        let pool = &mut self.pools[device];
        let Some(index) = pool.pending.iter().position(|piece| piece.ticket == ticket) else { return };
        let piece = pool.pending.swap_remove(index);
        pool.idle.push((piece.address, piece.bytes));
        let threshold = pool.threshold;
        if pool.reserved > threshold {
            self.trim_pool(device, threshold);
        }
    }

    /// Gives free memory of a pool back until no more than `least` bytes are held.
    pub fn trim_pool(&mut self, device: usize, least: u64) {
        while self.pools[device].reserved > least
            && let Some((address, bytes)) = self.pools[device].idle.pop()
        {
            self.pools[device].reserved -= bytes;
            // It is an allocation until now, and nobody else frees it.
            let _ = self.drop_allocation(address);
        }
    }

    /// Takes a piece out of its pool that is freed as a whole allocation is. What the program has not is none to free.
    pub fn leave_pool(&mut self, address: u64) -> Result<(), Code> {
        for pool in &mut self.pools {
            if let Some(bytes) = pool.live.remove(&address) {
                pool.used -= bytes;
                pool.reserved -= bytes;
                return Ok(());
            }
            let freed = pool.idle.iter().any(|piece| piece.0 == address)
                || pool.pending.iter().any(|piece| piece.address == address);
            if freed {
                return Err(codes::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Lets devices use what a pool has and will have, or no longer.
    pub fn set_pool_readers(&mut self, device: usize, set: u64, clear: u64) {
        let pool = &mut self.pools[device];
        pool.readers = pool.readers & !clear | set;
        let readers = pool.readers;
        let pieces: Vec<u64> = pool.live.keys().copied().chain(pool.idle.iter().map(|piece| piece.0)).collect();
        let pending: Vec<u64> = pool.pending.iter().map(|piece| piece.address).collect();
        for address in pieces.into_iter().chain(pending) {
            self.let_read(address, readers);
        }
    }

    /// Lets devices use the mapping that a piece is in, which has pieces of the same pool only.
    fn let_read(&mut self, address: u64, readers: u64) {
        let Some(mapping) = self.allocations.get(&address).map(|one| one.mapping) else { return };
        if let Some(mapping) = self.mappings.get_mut(&mapping) {
            mapping.rights = Rights::Whole { also: readers };
        }
    }
}
