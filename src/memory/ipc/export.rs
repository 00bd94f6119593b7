//! Exports blocks of this process.

use super::{
    Mode,
    holder_locks::{Hold, HolderLocks},
    message::{Chunk, Header, HoldKind, Token, Transport},
    system, system_error,
};
use crate::{
    driver::observer,
    error::{Context, Error, Result},
    memory::{
        Arena,
        arena::StreamEvent,
        backend, block,
        device_memory::device,
        mapped::{Backing, Mapped},
        pools, stream_events,
    },
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
    stream::{
        self,
        event_pool::{EXPORTED, PooledEvent},
        ordering::{self, OutsideCaptures},
    },
};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The maximum number of events that receivers may still wait for. Above it, the sender synchronizes with the device
/// instead.
const MAX_EVENTS: usize = 1000;

/// A shared block, until no process holds it.
struct Record {
    arena: u32,
    block: block::BlockId,
    address: u64,
    byte: u64,
    /// The read ends of the pipes that represent holds.
    pipes: Vec<OwnedFd>,
    backings: Vec<Backing>,
    /// The events named in its messages, which other processes may still open.
    events: Vec<PooledEvent>,
}

struct Exports {
    locks: Option<HolderLocks>,
    records: HashMap<u64, Record>,
    /// Serial numbers by arena and block.
    by_block: HashMap<(u32, block::BlockId), u64>,
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
    fn prune(&mut self) {
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
    fn add_hold(&mut self, found: &LocatedBlock) -> Result<(u64, OwnedFd)> {
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
}

/// The block that contains an address.
struct LocatedBlock {
    arena: &'static Arena,
    block: block::BlockId,
    address: u64,
    requested: u64,
    /// The mappings under the block, with their start addresses.
    mapped: Vec<(u64, Mapped)>,
}

/// A chunk in a message, with the memory that it stands for.
pub struct ExportedChunk {
    /// The chunk as the message describes it.
    pub chunk: Chunk,
    backing: Backing,
}

/// A block that is ready to be sent. Its memory is not reused as long as this value lives.
pub struct PreparedExport {
    runtime: &'static Runtime,
    device: &'static Device,
    header: Header,
    hold: OwnedFd,
    chunks: Vec<ExportedChunk>,
}

impl PreparedExport {
    /// Returns the header of the message.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the descriptor that accompanies the header.
    pub fn hold(&self) -> &OwnedFd {
        &self.hold
    }

    /// Returns that descriptor and drops the rest.
    pub fn into_hold(self) -> OwnedFd {
        self.hold
    }

    /// Returns the chunks that the block spans.
    pub fn chunks(&self) -> &[ExportedChunk] {
        &self.chunks
    }

    /// Exports descriptors for some of the chunks; none for chunks that are transferred by the driver's handle.
    pub fn descriptors(&self, chunks: &[ExportedChunk]) -> Result<Vec<OwnedFd>> {
        self.device
            .with_context(&self.runtime.driver, |driver| {
                let mut descriptors = Vec::with_capacity(chunks.len());
                for exported in chunks {
                    if let Backing::Handle(physical) = exported.backing {
                        descriptors.push(driver.memory_export(physical)?);
                    }
                }
                Ok(descriptors)
            })
            .context(|| "exporting the memory of a block")
    }
}

#[cold]
fn not_allocated(address: u64) -> Error {
    let what = format!("{address:#x} is not in a live block of the caching allocator");
    Error::new(Status::INVALID_POINTER, what)
}

/// Finds the block that contains an address, and marks it so that its free takes the holders into account.
fn locate(runtime: &Runtime, address: u64) -> Result<LocatedBlock> {
    let arenas = runtime.devices().iter().flat_map(|device| device.memory().arenas());
    for arena in arenas {
        let mut inner = arena.lock();
        if !inner.space.has(address) {
            continue;
        }
        let id = inner.space.live_block_containing(address).ok_or_else(|| not_allocated(address))?;
        let block = inner.space.mark_used_elsewhere(id);
        inner.stream_uses.entry(id).or_default();
        let mapped = inner.space.mapped_under(&block);
        return Ok(LocatedBlock { arena, block: id, address: block.address, requested: block.requested, mapped });
    }
    Err(not_allocated(address))
}

/// Returns whether an address is in memory that this process has mapped itself.
pub fn is_mapped(runtime: &Runtime, address: u64) -> bool {
    let mut arenas = runtime.devices().iter().flat_map(|device| device.memory().arenas());
    arenas.any(|arena| {
        let backing = arena.lock().space.backing_at(address);
        backing.is_some_and(|backing| !backing.is_segment())
    })
}

/// Prepares to send the block that contains an address, ordered after the work of the device's current stream.
pub fn prepare(address: u64) -> Result<PreparedExport> {
    let runtime = runtime::ready()?;
    if super::is_imported(address) {
        return Err(Error::new(
            Status::IPC_REEXPORT,
            format!("{address:#x} is memory of another process; only that process can share it"),
        ));
    }
    if backend::around(address).is_some() {
        let what = format!("{address:#x} is memory of another backend; only the native backend can share memory");
        return Err(Error::new(Status::IPC_NOT_SHAREABLE, what));
    }
    let found = locate(runtime, address)?;
    let device = device(runtime, found.arena.device)?;
    // The pool cannot be suspended meanwhile: suspending it takes the same lock before it checks the records.
    let growing = found.arena.growth.lock();
    let outcome = prepare_located(runtime, device, &found, address);
    drop(growing);
    if outcome.is_err() {
        let mut exports = EXPORTS.lock();
        if let Some(serial) = exports.by_block.get(&(found.arena.number, found.block)).copied()
            && !exports.is_held(serial)
        {
            exports.remove_record(serial);
        }
    }
    outcome
}

fn prepare_located(
    runtime: &'static Runtime,
    device: &'static Device,
    found: &LocatedBlock,
    address: u64,
) -> Result<PreparedExport> {
    let uuid = device.properties(&runtime.driver)?.uuid;
    if uuid == [0; 16] {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "sharing a block: this driver does not report the UUID of the device",
        ));
    }
    let mut transport = Transport::Descriptors;
    for (start, mapped) in &found.mapped {
        match mapped.backing {
            Backing::Handle(_) if super::is_shareable(device, &runtime.driver)? => {}
            Backing::Handle(_) => {
                return Err(Error::new(
                    Status::IPC_NOT_SHAREABLE,
                    "the memory was not allocated for sharing: PLINTH_IPC is 0, or the device does not support it",
                ));
            }
            Backing::Segment(_) => transport = Transport::Handle(device_handle(runtime, device, *start)?),
            Backing::External => {
                return Err(Error::new(
                    Status::IPC_NOT_SHAREABLE,
                    "the memory belongs to an allocator of the program; only that allocator could share it",
                ));
            }
            Backing::Suspended => return Err(Error::new(Status::GRAPH_ASLEEP, "the memory of the block is asleep")),
            Backing::Moved => return Err(not_allocated(address)),
        }
    }
    let Some((start, _)) = found.mapped.first().copied() else { return Err(not_allocated(address)) };
    let (serial, hold) = EXPORTS.lock().add_hold(found)?;
    if found.arena.lock().space.live(found.block, found.address).is_none() {
        return Err(not_allocated(address));
    }
    let event = record_ready_event(runtime, device, serial)?;
    let exports = EXPORTS.lock();
    let chunks: Vec<ExportedChunk> = found
        .mapped
        .iter()
        .filter_map(|(_, mapped)| {
            let (number, _) = exports.chunks.get(&mapped.backing)?;
            Some(ExportedChunk { chunk: Chunk { serial: *number, bytes: mapped.bytes }, backing: mapped.backing })
        })
        .collect();
    let hold_kind = exports.records.get(&serial).map_or(HoldKind::Descriptor, |record| {
        if record.pipes.is_empty() { HoldKind::Byte(record.byte) } else { HoldKind::Descriptor }
    });
    let header = Header {
        token: token(),
        serial,
        hold: hold_kind,
        uuid,
        start: found.address - start,
        bytes: found.requested,
        offset: address - found.address,
        chunks: chunks.len() as u32,
        transport,
        event,
    };
    // Bytes beyond the requested size cannot be shared.
    if header.offset >= header.bytes {
        return Err(not_allocated(address));
    }
    Ok(PreparedExport { runtime, device, header, hold, chunks })
}

fn device_handle(runtime: &Runtime, device: &Device, address: u64) -> Result<[u8; 64]> {
    device
        .with_context(&runtime.driver, |driver| Ok(driver.memory_ipc_handle(address)?))
        .context(|| "creating a handle of a segment")
}

/// Returns an event that completes when the device's current stream has written what the receiver is to see; `None` if
/// that has completed already.
fn record_ready_event(runtime: &Runtime, device: &Device, serial: u64) -> Result<Option<[u8; 64]>> {
    let current = stream::current_on(runtime, device.ordinal)?;
    let forbidden = || {
        Error::new(
            Status::CAPTURE_FORBIDS,
            "a block cannot be shared while the current stream is capturing: captured work has not written it",
        )
    };
    runtime.driver.with_relaxed_capture(|| {
        if super::mode()? == Mode::Wait || EXPORTS.lock().events >= MAX_EVENTS {
            let may_wait = || sync_debug::check("plinth_ipc_send");
            let waited = observer::run_unobserved(|| ordering::finish_stream(runtime, current, may_wait))?;
            return if waited { Ok(None) } else { Err(forbidden()) };
        }
        // Other threads may use the stream and begin to capture it.
        let outside = OutsideCaptures::lock(runtime);
        if !outside.contains(current)? {
            return Err(forbidden());
        }
        if outside.is_idle(current)? {
            return Ok(None);
        }
        let event = outside.record(current, EXPORTED)?;
        let handle = runtime.in_any_context(|driver| Ok(driver.event_ipc_handle(event.native())?))?;
        let mut exports = EXPORTS.lock();
        if let Some(record) = exports.records.get_mut(&serial) {
            record.events.push(event);
            exports.events += 1;
        }
        Ok(Some(handle))
    })?
}

/// Returns what the free of a block must wait for if other processes hold it.
pub fn holder_event(arena: u32, block: block::BlockId) -> Option<StreamEvent> {
    if COUNT.load(Ordering::Acquire) == 0 {
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
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let exports = &mut *EXPORTS.lock();
    exports.prune();
    exports.records.values().any(|record| record.arena == arena)
}

/// Completes the deferred frees of blocks that no other process holds any more.
pub fn collect() -> Result<()> {
    let runtime = runtime::ready()?;
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    for device in runtime.devices() {
        let arenas = device.memory().arenas();
        if arenas.is_empty() {
            continue;
        }
        device.with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| {
                for arena in &arenas {
                    stream_events::process_events(runtime, device, arena, false);
                }
            })?)
        })?;
        for arena in arenas {
            let is_done = {
                let inner = arena.lock();
                inner.space.orphaned && inner.space.counters.live == 0 && inner.deferred_frees.is_empty()
            };
            if is_done {
                pools::release_orphaned(arena);
            }
        }
    }
    EXPORTS.lock().prune();
    Ok(())
}

/// Makes the current stream wait for an event of another process.
pub fn wait_for(runtime: &Runtime, device: &Device, handle: [u8; 64]) -> Result<()> {
    let current = stream::current_on(runtime, device.ordinal)?;
    device
        .with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let event = driver.event_open_ipc(handle)?;
                let outside = OutsideCaptures::lock(runtime);
                let waits = outside.check(current).and_then(|()| outside.wait_for_event(current, event));
                drop(outside);
                // The wait stays in effect. If the event cannot be destroyed, the memory is usable all the same.
                stream_events::retry(|| driver.event_destroy(event));
                waits
            })?
        })
        .context(|| "waiting for the work of the sender's stream")
}
