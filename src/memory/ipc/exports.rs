//! The registry of the blocks that other processes hold.

use super::{
    holder_locks::{Hold, HolderLocks},
    message::{HoldKind, Token},
    system::{self, system_error},
};
use crate::{
    error::{Error, Result},
    memory::{arena::StreamEvent, block::BlockId, located_block::LocatedBlock, mapped::Backing},
    status::Status,
    stream::event_pool::PooledEvent,
};
use once_cell::sync::Lazy;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A shared block, until no process holds it.
struct Record {
    arena: u32,
    block: BlockId,
    address: u64,
    byte: u64,
    /// The read ends of the pipes that represent holds.
    pipes: Vec<OwnedFd>,
    backings: Vec<Backing>,
    /// The events named in its messages, which other processes may still open.
    events: Vec<PooledEvent>,
}

/// The records and what belongs to them.
pub(super) struct Exports {
    locks: Option<HolderLocks>,
    records: HashMap<u64, Record>,
    /// Serial numbers by arena and block.
    by_block: HashMap<(u32, BlockId), u64>,
    /// The serial number of each chunk under the records, and the number of records that use it.
    chunks: HashMap<Backing, (u64, usize)>,
    next: u64,
    /// The number of events of all records.
    events: usize,
}

static EXPORTS: Lazy<Mutex<Exports>> = Lazy::new(|| {
    Mutex::new(Exports {
        locks: None,
        records: HashMap::new(),
        by_block: HashMap::new(),
        chunks: HashMap::new(),
        next: 1,
        events: 0,
    })
});
/// The number of records, for a check without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Locks the registry.
pub(super) fn lock() -> MutexGuard<'static, Exports> {
    EXPORTS.lock()
}

/// Returns whether no block was exported, or all are released.
pub(super) fn is_empty() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

/// Returns the identifier of this process.
pub fn token() -> Token {
    static TOKEN: Lazy<Token> = Lazy::new(|| {
        let mut token = [0; 16];
        for half in token.as_chunks_mut::<8>().0 {
            *half = RandomState::new().hash_one((std::process::id(), std::time::Instant::now())).to_le_bytes();
        }
        token
    });
    *TOKEN
}

impl Exports {
    fn is_held(&mut self, serial: u64) -> bool {
        let (Some(record), Some(locks)) = (self.records.get_mut(&serial), &self.locks) else { return false };
        record.pipes.retain(system::has_writer);
        !record.pipes.is_empty() || locks.is_held(record.byte)
    }

    /// Removes the record of a block that no process holds.
    fn remove_record(&mut self, serial: u64) {
        let Some(record) = self.records.remove(&serial) else { return };
        COUNT.fetch_sub(1, Ordering::Release);
        self.by_block.remove(&(record.arena, record.block));
        for backing in &record.backings {
            if let Some((_, users)) = self.chunks.get_mut(backing) {
                *users -= 1;
                if *users == 0 {
                    self.chunks.remove(backing);
                }
            }
        }
        self.events -= record.events.len();
        if let Some(locks) = &mut self.locks {
            locks.free_byte(record.byte);
        }
    }

    /// Removes the records of all blocks that no process holds.
    pub(super) fn prune(&mut self) {
        let serials: Vec<u64> = self.records.keys().copied().collect();
        for serial in serials {
            if !self.is_held(serial) {
                self.remove_record(serial);
            }
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Returns the serial number of a block's record, which is created if necessary, and a new hold on the block.
    pub(super) fn add_hold(&mut self, found: &LocatedBlock) -> Result<(u64, OwnedFd)> {
        let key = (found.arena.number, found.block);
        if let Some(serial) = self.by_block.get(&key).copied() {
            // The index may belong to another block by now, if a block was freed while it was being shared.
            let stale = self.records.get(&serial).is_none_or(|record| record.address != found.address);
            if stale || !self.is_held(serial) {
                self.remove_record(serial);
            }
        }
        if self.locks.is_none() {
            self.locks = Some(system_error(HolderLocks::new(), "creating the file of the holders")?);
        }
        let known = self.by_block.get(&key).copied();
        let Some(locks) = &mut self.locks else {
            return Err(Error::new(Status::PANIC, "the file of the holders is missing"));
        };
        let byte = match known.and_then(|serial| self.records.get(&serial)) {
            Some(record) => record.byte,
            None => locks.allocate_byte(),
        };
        let hold = locks.hold(byte);
        if hold.is_err() && known.is_none() {
            locks.free_byte(byte);
        }
        let Hold { sent, pipe } = system_error(hold, "creating a hold on the block")?;
        let serial = match known {
            Some(serial) => serial,
            None => self.insert_record(found, byte),
        };
        if let Some(record) = self.records.get_mut(&serial) {
            record.pipes.extend(pipe);
        }
        Ok((serial, sent))
    }

    fn insert_record(&mut self, found: &LocatedBlock, byte: u64) -> u64 {
        let serial = self.next_serial();
        let backings: Vec<Backing> = found.mapped.iter().map(|(_, mapped)| mapped.backing).collect();
        for backing in &backings {
            if !self.chunks.contains_key(backing) {
                let number = self.next_serial();
                self.chunks.insert(*backing, (number, 0));
            }
            if let Some((_, users)) = self.chunks.get_mut(backing) {
                *users += 1;
            }
        }
        let record = Record {
            arena: found.arena.number,
            block: found.block,
            address: found.address,
            byte,
            pipes: Vec::new(),
            backings,
            events: Vec::new(),
        };
        self.records.insert(serial, record);
        self.by_block.insert((found.arena.number, found.block), serial);
        COUNT.fetch_add(1, Ordering::Release);
        serial
    }

    /// Returns the serial number of a chunk.
    pub(super) fn chunk_number(&self, backing: Backing) -> Option<u64> {
        self.chunks.get(&backing).map(|(number, _)| *number)
    }

    /// Returns how the latest hold on a block is represented.
    pub(super) fn hold_kind(&self, serial: u64) -> HoldKind {
        self.records.get(&serial).map_or(HoldKind::Descriptor, |record| {
            if record.pipes.is_empty() { HoldKind::Byte(record.byte) } else { HoldKind::Descriptor }
        })
    }

    /// Returns the number of events that other processes may still open.
    pub(super) fn event_count(&self) -> usize {
        self.events
    }

    /// Stores an event with the record of the block in whose message it is.
    pub(super) fn add_event(&mut self, event: PooledEvent, serial: u64) {
        if let Some(record) = self.records.get_mut(&serial) {
            record.events.push(event);
            self.events += 1;
        }
    }
}

/// Returns what the free of a block must wait for if other processes hold it.
pub fn holder_event(arena: u32, block: BlockId) -> Option<StreamEvent> {
    if is_empty() {
        return None;
    }
    let exports = &mut *EXPORTS.lock();
    let serial = *exports.by_block.get(&(arena, block))?;
    if exports.is_held(serial) {
        return Some(StreamEvent::HeldByProcesses(serial));
    }
    exports.remove_record(serial);
    None
}

/// Returns whether no process holds a block any more.
pub fn is_released(serial: u64) -> bool {
    let exports = &mut *EXPORTS.lock();
    if exports.is_held(serial) {
        return false;
    }
    exports.remove_record(serial);
    true
}

/// Returns whether any process holds a block of an arena, freed or not.
pub fn has_exports(arena: u32) -> bool {
    if is_empty() {
        return false;
    }
    let exports = &mut *EXPORTS.lock();
    exports.prune();
    exports.records.values().any(|record| record.arena == arena)
}
