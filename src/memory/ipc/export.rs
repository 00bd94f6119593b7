//! Sharing what this process has.

use super::{
    Mode,
    holder_locks::{Hold, Ledger},
    message::{Head, Holding, Piece, Token, Way},
    system, system_error,
};
use crate::{
    driver::{self, types::CU_EVENT_WAIT_DEFAULT},
    error::{Context, Error, Result},
    memory::{
        Arena,
        arena::Mark,
        backend, block,
        device_memory::device,
        mapped::{Backing, Mapped},
        pools, stream_events,
    },
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
    stream::{self, capture_lock, event_pool},
};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The most events that stand for what others may still wait for. Who sends more waits for the device instead.
const MOST_EVENTS: usize = 1000;

/// A block that was shared, until it is known that nobody holds it.
struct Record {
    arena: u32,
    block: block::Id,
    address: u64,
    byte: u64,
    /// The pipes of those who hold it by one.
    lines: Vec<OwnedFd>,
    backings: Vec<Backing>,
    device: u32,
    /// What the messages about it name, and others may still open.
    events: Vec<driver::Event>,
}

struct Exports {
    ledger: Option<Ledger>,
    records: HashMap<u64, Record>,
    /// By arena and block.
    of_block: HashMap<(u32, block::Id), u64>,
    /// The numbers of the pieces of memory under them, and how many blocks lie in each.
    pieces: HashMap<Backing, (u64, usize)>,
    next: u64,
    /// Events of each device that nobody can know any more.
    spare_events: HashMap<u32, Vec<driver::Event>>,
    events: usize,
}

static EXPORTS: Lazy<Mutex<Exports>> = Lazy::new(|| {
    Mutex::new(Exports {
        ledger: None,
        records: HashMap::new(),
        of_block: HashMap::new(),
        pieces: HashMap::new(),
        next: 1,
        spare_events: HashMap::new(),
        events: 0,
    })
});
/// How many records there are: for those who only want to know that there is none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The name of this process.
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
        let (Some(record), Some(ledger)) = (self.records.get_mut(&serial), &self.ledger) else { return false };
        record.lines.retain(system::has_writer);
        !record.lines.is_empty() || ledger.is_held(record.byte)
    }

    /// Forgets a record of a block that nobody holds.
    fn end(&mut self, serial: u64) {
        let Some(record) = self.records.remove(&serial) else { return };
        COUNT.fetch_sub(1, Ordering::Release);
        self.of_block.remove(&(record.arena, record.block));
        for backing in &record.backings {
            if let Some((_, users)) = self.pieces.get_mut(backing) {
                *users -= 1;
                if *users == 0 {
                    self.pieces.remove(backing);
                }
            }
        }
        self.events -= record.events.len();
        self.spare_events.entry(record.device).or_default().extend(record.events);
        if let Some(ledger) = &mut self.ledger {
            ledger.give_back(record.byte);
        }
    }

    /// Forgets every record of a block that nobody holds.
    fn prune(&mut self) {
        let serials: Vec<u64> = self.records.keys().copied().collect();
        for serial in serials {
            if !self.is_held(serial) {
                self.end(serial);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The record of a block, made if need be, and another hold on it.
    fn hold(&mut self, found: &Found) -> Result<(u64, OwnedFd)> {
        let key = (found.arena.number, found.block);
        if let Some(serial) = self.of_block.get(&key).copied() {
            // An index may be another block's by now, if a block was freed while it was being shared.
            let stale = self.records.get(&serial).is_none_or(|record| record.address != found.address);
            if stale || !self.is_held(serial) {
                self.end(serial);
            }
        }
        if self.ledger.is_none() {
            self.ledger = Some(system_error(Ledger::new(), "making the file of the holders")?);
        }
        let known = self.of_block.get(&key).copied();
        let Some(ledger) = &mut self.ledger else { return Err(Error::new(Status::PANIC, "the ledger is gone")) };
        let byte = match known.and_then(|serial| self.records.get(&serial)) {
            Some(record) => record.byte,
            None => ledger.take(),
        };
        let hold = ledger.hold(byte);
        if hold.is_err() && known.is_none() {
            ledger.give_back(byte);
        }
        let Hold { there, here } = system_error(hold, "making a hold on the block")?;
        let serial = match known {
            Some(serial) => serial,
            None => self.begin(found, byte),
        };
        if let Some(record) = self.records.get_mut(&serial) {
            record.lines.extend(here);
        }
        Ok((serial, there))
    }

    fn begin(&mut self, found: &Found, byte: u64) -> u64 {
        let serial = self.number();
        let backings: Vec<Backing> = found.mapped.iter().map(|(_, mapped)| mapped.backing).collect();
        for backing in &backings {
            if !self.pieces.contains_key(backing) {
                let number = self.number();
                self.pieces.insert(*backing, (number, 0));
            }
            if let Some((_, users)) = self.pieces.get_mut(backing) {
                *users += 1;
            }
        }
        let record = Record {
            arena: found.arena.number,
            block: found.block,
            address: found.address,
            byte,
            lines: Vec::new(),
            backings,
            device: found.arena.device,
            events: Vec::new(),
        };
        self.records.insert(serial, record);
        self.of_block.insert((found.arena.number, found.block), serial);
        COUNT.fetch_add(1, Ordering::Release);
        serial
    }
}

/// A block that an address lies in.
struct Found {
    arena: &'static Arena,
    block: block::Id,
    address: u64,
    requested: u64,
    /// What is mapped under it.
    mapped: Vec<(u64, Mapped)>,
}

/// A piece of memory as a message tells it.
pub struct Exported {
    /// What is told.
    pub piece: Piece,
    backing: Backing,
}

/// A block that is about to be sent. Nobody else gets its memory as long as this lives.
pub struct Offer {
    runtime: &'static Runtime,
    device: &'static Device,
    head: Head,
    hold: OwnedFd,
    pieces: Vec<Exported>,
}

impl Offer {
    /// What the message says first.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The descriptor that goes with that.
    pub fn hold(&self) -> &OwnedFd {
        &self.hold
    }

    /// The same, and nothing else of the offer.
    pub fn into_hold(self) -> OwnedFd {
        self.hold
    }

    /// The pieces of memory that the block lies in.
    pub fn pieces(&self) -> &[Exported] {
        &self.pieces
    }

    /// Descriptors for some of the pieces, where they have such.
    pub fn descriptors(&self, pieces: &[Exported]) -> Result<Vec<OwnedFd>> {
        self.device
            .with_context(&self.runtime.driver, |driver| {
                let mut descriptors = Vec::with_capacity(pieces.len());
                for exported in pieces {
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
    let what = format!("{address:#x} is in no block of the caching allocator's that is in the program's hands");
    Error::new(Status::INVALID_POINTER, what)
}

/// Finds the block, and notes that its end is not a free like any other.
fn find(runtime: &Runtime, address: u64) -> Result<Found> {
    let arenas = runtime.devices().iter().flat_map(|device| device.memory.arenas());
    for arena in arenas {
        let mut inner = arena.lock();
        if !inner.space.has(address) {
            continue;
        }
        let id = inner.space.live_around(address).ok_or_else(|| not_allocated(address))?;
        let block = inner.space.mark_used_elsewhere(id);
        inner.uses.entry(id).or_default();
        let mapped = inner.space.mapped_under(&block);
        return Ok(Found { arena, block: id, address: block.address, requested: block.requested, mapped });
    }
    Err(not_allocated(address))
}

/// Whether an address is in memory that this process has mapped itself.
pub fn is_mapped(runtime: &Runtime, address: u64) -> bool {
    let mut arenas = runtime.devices().iter().flat_map(|device| device.memory.arenas());
    arenas.any(|arena| {
        let backing = arena.lock().space.backing_at(address);
        backing.is_some_and(|backing| !backing.is_whole())
    })
}

/// Gets a block that an address lies in ready to be sent, behind the work of the device's current stream.
pub fn offer(address: u64) -> Result<Offer> {
    let runtime = runtime::ready()?;
    if super::is_imported(address) {
        return Err(Error::new(
            Status::IPC_REEXPORT,
            format!("{address:#x} is memory of another process, which alone can share it"),
        ));
    }
    if backend::around(address).is_some() {
        let what = format!("{address:#x} is memory of a backend other than the native one, which shares nothing");
        return Err(Error::new(Status::IPC_NOT_SHAREABLE, what));
    }
    let found = find(runtime, address)?;
    let device = device(runtime, found.arena.device)?;
    // A pool does not fall asleep meanwhile: for that it looks at the records, under the same lock.
    let growing = found.arena.growth.lock();
    let outcome = offer_found(runtime, device, &found, address);
    drop(growing);
    if outcome.is_err() {
        let mut exports = EXPORTS.lock();
        if let Some(serial) = exports.of_block.get(&(found.arena.number, found.block)).copied()
            && !exports.is_held(serial)
        {
            exports.end(serial);
        }
    }
    outcome
}

fn offer_found(runtime: &'static Runtime, device: &'static Device, found: &Found, address: u64) -> Result<Offer> {
    let uuid = device.properties(&runtime.driver)?.uuid;
    if uuid == [0; 16] {
        return Err(Error::new(Status::NOT_SUPPORTED, "this driver does not tell the name of a device"));
    }
    let mut way = Way::Descriptors;
    for (start, mapped) in &found.mapped {
        match mapped.backing {
            Backing::Handle(_) if super::makes_shareable(device, &runtime.driver)? => {}
            Backing::Handle(_) => {
                return Err(Error::new(
                    Status::IPC_NOT_SHAREABLE,
                    "memory is not made to be shared: PLINTH_IPC=0 says so, or the device cannot",
                ));
            }
            Backing::Segment(_) => way = Way::Handle(device_handle(runtime, device, *start)?),
            Backing::Lent => {
                return Err(Error::new(
                    Status::IPC_NOT_SHAREABLE,
                    "the memory is that of an allocator of the program's, which alone could share it",
                ));
            }
            Backing::Asleep => return Err(Error::new(Status::GRAPH_ASLEEP, "the memory of the block is asleep")),
            Backing::Moved => return Err(not_allocated(address)),
        }
    }
    let Some((start, _)) = found.mapped.first().copied() else { return Err(not_allocated(address)) };
    let (serial, hold) = EXPORTS.lock().hold(found)?;
    if found.arena.lock().space.live(found.block, found.address).is_none() {
        return Err(not_allocated(address));
    }
    let event = event(runtime, device, serial)?;
    let exports = EXPORTS.lock();
    let pieces: Vec<Exported> = found
        .mapped
        .iter()
        .filter_map(|(_, mapped)| {
            let (number, _) = exports.pieces.get(&mapped.backing)?;
            Some(Exported { piece: Piece { serial: *number, bytes: mapped.bytes }, backing: mapped.backing })
        })
        .collect();
    let holding = exports.records.get(&serial).map_or(Holding::Open, |record| {
        if record.lines.is_empty() { Holding::Byte(record.byte) } else { Holding::Open }
    });
    let head = Head {
        token: token(),
        serial,
        holding,
        uuid,
        start: found.address - start,
        bytes: found.requested,
        offset: address - found.address,
        pieces: pieces.len() as u32,
        way,
        event,
    };
    // Beyond what was asked for there is nothing to be shared.
    if head.offset >= head.bytes {
        return Err(not_allocated(address));
    }
    Ok(Offer { runtime, device, head, hold, pieces })
}

fn device_handle(runtime: &Runtime, device: &Device, address: u64) -> Result<[u8; 64]> {
    device
        .with_context(&runtime.driver, |driver| Ok(driver.memory_ipc_handle(address)?))
        .context(|| "making a handle of a segment")
}

/// An event that the device's current stream passes when the block is what the receiver is to see; `None` if it has
/// passed already.
fn event(runtime: &Runtime, device: &Device, serial: u64) -> Result<Option<[u8; 64]>> {
    let current = stream::current_on(runtime, device.ordinal)?;
    let forbidden = || {
        Error::new(
            Status::CAPTURE_FORBIDS,
            "a block cannot be shared while the current stream captures: there would be nothing in it",
        )
    };
    device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            if super::mode()? == Mode::Wait || EXPORTS.lock().events >= MOST_EVENTS {
                let may_wait = || sync_debug::check("plinth_ipc_send");
                let waited = stream_events::finish_stream(device, driver, current.raw, may_wait)?;
                return if waited { Ok(None) } else { Err(forbidden()) };
            }
            // The stream may be other threads', too.
            let _held = capture_lock::lock_shared();
            if stream::is_validated_capturing(runtime, current)? {
                return Err(forbidden());
            }
            if driver.stream_query(current.raw)? {
                return Ok(None);
            }
            let spare = EXPORTS.lock().spare_events.get_mut(&device.ordinal).and_then(Vec::pop);
            let event = match spare {
                Some(event) => event,
                None => event_pool::acquire(device, driver, event_pool::INTERPROCESS)?,
            };
            let outcome = driver.event_record(event, current.raw).and_then(|()| driver.event_ipc_handle(event));
            let mut exports = EXPORTS.lock();
            match exports.records.get_mut(&serial) {
                Some(record) if outcome.is_ok() => {
                    record.events.push(event);
                    exports.events += 1;
                }
                _ => exports.spare_events.entry(device.ordinal).or_default().push(event),
            }
            Ok(Some(outcome?))
        })?
    })
}

/// What a block waits for that was freed, if it was shared and anybody holds it.
pub fn mark_of(arena: u32, block: block::Id) -> Option<Mark> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let exports = &mut *EXPORTS.lock();
    let serial = *exports.of_block.get(&(arena, block))?;
    if exports.is_held(serial) {
        return Some(Mark::Shared(serial));
    }
    exports.end(serial);
    None
}

/// Whether nobody holds a block any more.
pub fn is_over(serial: u64) -> bool {
    let exports = &mut *EXPORTS.lock();
    if exports.is_held(serial) {
        return false;
    }
    exports.end(serial);
    true
}

/// Whether anybody holds a block of an arena, freed or not.
pub fn has_exports(arena: u32) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let exports = &mut *EXPORTS.lock();
    exports.prune();
    exports.records.values().any(|record| record.arena == arena)
}

/// Frees the blocks that waited for other processes, and are held by none any more.
pub fn collect() -> Result<()> {
    let runtime = runtime::ready()?;
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    for device in runtime.devices() {
        let arenas = device.memory.arenas();
        if arenas.is_empty() {
            continue;
        }
        device.with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| {
                for arena in &arenas {
                    stream_events::reap(runtime, device, arena, false);
                }
            })?)
        })?;
        for arena in arenas {
            let is_done = {
                let inner = arena.lock();
                inner.space.orphaned && inner.space.counters.live == 0 && inner.waiting.is_empty()
            };
            if is_done {
                pools::bury(arena);
            }
        }
    }
    EXPORTS.lock().prune();
    Ok(())
}

/// Lets a stream wait for an event of another process's, which is opened for that.
pub fn wait_for(runtime: &Runtime, device: &Device, handle: [u8; 64]) -> Result<()> {
    let current = stream::current_on(runtime, device.ordinal)?;
    device
        .with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let event = driver.event_open_ipc(handle)?;
                let waits = driver.stream_wait_event(current.raw, event, CU_EVENT_WAIT_DEFAULT);
                // What waits goes on waiting. An event that cannot be destroyed is no reason not to have the memory.
                stream_events::insist(|| driver.event_destroy(event));
                Ok(waits?)
            })?
        })
        .context(|| "waiting for what the sender's stream had to do")
}
