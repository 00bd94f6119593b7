//! Sleeping pools: their physical memory is returned to the driver, and their addresses stay reserved.
//!
//! Every block of a pool stays in its state, so that pointers stay valid, and so do the graphs that were captured over the
//! memory. Waking creates memory, in handles of other sizes, and maps it at the same addresses. A [`backup`] keeps the contents of
//! the live blocks; without one they are lost.

pub mod backup;
mod mappings;
mod resume;
mod suspend;
mod transfer;

use super::{
    arena::Arena,
    pool::{self, Changing, PoolId},
    pools, registration, stats_aggregation,
};
use crate::{
    driver::signals,
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device, per_device::PerDevice},
    status::Status,
    stream::{self, Stream, event_pool::PooledEvent, ordering::OutsideCaptures},
};
use backup::{Backup, Options, Piece};
use once_cell::sync::OnceCell;
use parking_lot::{Mutex, MutexGuard};
use resume::Resumed;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};
use transfer::Transfer;

/// The backups of the pools, by pool and device. Held while pools are suspended, resumed or restored: only these
/// operations hold the growth locks of several arenas at once.
static BACKUPS: Mutex<BTreeMap<(PoolId, u32), Saved>> = Mutex::new(BTreeMap::new());

/// The number of calls that put pools to sleep.
static SLEEPS: AtomicU64 = AtomicU64::new(0);

/// Returns how often pools were put to sleep. While it stays the same, no memory has lost its contents so.
pub fn count() -> u64 {
    SLEEPS.load(Ordering::Acquire)
}

/// The backup of a pool's memory on one device.
#[derive(Debug, Default)]
pub(super) struct Saved {
    backup: Option<Backup>,
    /// Whether the program reserved the backup, so that it stays after the pool wakes.
    is_reserved: bool,
    /// What the backup contains while the pool sleeps.
    pieces: Option<Vec<Piece>>,
    /// The event after the copies of the last asynchronous wake.
    restored: Option<PooledEvent>,
}

/// Prevents other threads from suspending, resuming and restoring pools.
pub(super) fn lock_changes() -> MutexGuard<'static, BTreeMap<(PoolId, u32), Saved>> {
    pool::observe_releases(forget);
    BACKUPS.lock()
}

impl Saved {
    /// Makes the backup one of this kind with at least `bytes` bytes.
    fn reserve(&mut self, options: &Options, bytes: u64) -> Result<()> {
        let fits = |backup: &Backup| backup.kind == options.backup && backup.bytes >= bytes;
        if !self.backup.as_ref().is_some_and(fits) {
            // The old one is freed first, for the memory that it occupies.
            self.backup = None;
            let was_reserved = std::mem::take(&mut self.is_reserved);
            self.backup = Backup::allocate(options, bytes)?;
            self.is_reserved = was_reserved;
        }
        Ok(())
    }

    /// Frees a backup that the program did not reserve.
    fn drop_unreserved(&mut self) {
        if !self.is_reserved {
            self.backup = None;
        }
    }
}

/// The memory of one pool on one device, while it is suspended or resumed.
struct Part<'a> {
    id: PoolId,
    device: &'a Device,
    arenas: Vec<&'static Arena>,
    saved: Saved,
    /// Whether the pool was awake before, so that it wakes again after a failure.
    is_changing: bool,
    /// What is mapped again while the pool wakes.
    resumed: Option<Resumed>,
}

fn parts_of<'a>(runtime: &'a Runtime, changes: &mut BTreeMap<(PoolId, u32), Saved>, id: PoolId) -> Vec<Part<'a>> {
    let parts = runtime.devices().iter().map(|device| {
        let saved = changes.remove(&(id, device.ordinal)).unwrap_or_default();
        Part { id, device, arenas: device.memory().arenas_of(id), saved, is_changing: false, resumed: None }
    });
    // A backup that was reserved stays, whatever becomes of the pool's memory.
    parts.filter(|part| !part.arenas.is_empty() || part.saved.backup.is_some()).collect()
}

fn return_parts(changes: &mut BTreeMap<(PoolId, u32), Saved>, parts: Vec<Part<'_>>) {
    let used = parts.into_iter().filter(|part| {
        let saved = &part.saved;
        saved.backup.is_some() || saved.pieces.is_some() || saved.restored.is_some()
    });
    changes.extend(used.map(|part| ((part.id, part.device.ordinal), part.saved)));
}

/// Calls `body` for the parts, which are sorted by device, at the same time for all devices.
fn on_each_device<'a>(parts: &mut [Part<'a>], body: impl Fn(&mut [Part<'a>]) -> Result<()> + Sync) -> Result<()> {
    let body = &body;
    let mut devices = parts.chunk_by_mut(|one, other| one.device.ordinal == other.device.ordinal);
    let Some(first) = devices.next() else { return Ok(()) };
    thread::scope(|scope| {
        let others: Vec<_> = devices
            .map(|parts| {
                let _blocked = signals::block();
                thread::Builder::new().name("plinth sleep".into()).spawn_scoped(scope, move || body(parts))
            })
            .collect();
        let own = body(first);
        // Join all threads, regardless of errors.
        let ended: Vec<Result<()>> = others
            .into_iter()
            .map(|thread| {
                let what = |error| Error::new(Status::SYSTEM, format!("starting a thread for a device: {error}"));
                let panicked = |_| Err(Error::new(Status::PANIC, "the thread of a device panicked"));
                thread.map_err(what)?.join().unwrap_or_else(panicked)
            })
            .collect();
        ended.into_iter().fold(own, Result::and)
    })
}

impl Part<'_> {
    /// Returns the first addresses of the reservations, in ascending order.
    fn reservations(&self) -> Vec<u64> {
        let starts =
            |arena: &&Arena| -> Vec<u64> { arena.lock().space.regions.iter().map(|region| region.address).collect() };
        let mut all: Vec<u64> = self.arenas.iter().flat_map(starts).collect();
        all.sort_unstable();
        all
    }

    fn is_any_suspended(&self) -> bool {
        self.arenas.iter().any(|arena| arena.lock().space.is_any_suspended())
    }
}

/// Describes a pool for messages.
fn describe(id: PoolId) -> String {
    match pool::tag(id) {
        Some(tag) => format!("pool {id} (\"{tag}\")"),
        None => format!("pool {id}"),
    }
}

/// Returns the device's stream for copies of backups.
fn stream_of(runtime: &Runtime, device: &Device) -> Result<Stream> {
    static STREAMS: PerDevice<OnceCell<usize>> = PerDevice::new();
    let create = || stream::create_dedicated(device.ordinal as i32, 0);
    let handle = STREAMS.of(device).get_or_try_init(create)?;
    stream::resolve_on(runtime, *handle, device.ordinal)
}

/// Prepares the copies of parts of one device, if they have a backup.
fn transfer_of<'a>(runtime: &'a Runtime, parts: &[Part<'a>]) -> Result<Option<Transfer<'a>>> {
    let used = parts.iter().filter(|part| part.saved.pieces.is_some());
    let backups: Vec<&Backup> = used.filter_map(|part| part.saved.backup.as_ref()).collect();
    let Some(device) = parts.first().map(|part| part.device).filter(|_| !backups.is_empty()) else { return Ok(None) };
    Transfer::new(runtime, device, stream_of(runtime, device)?, backups).map(Some)
}

/// Calls `body` in a device's context. Another thread may be capturing.
fn in_context<T>(runtime: &Runtime, device: &Device, body: impl FnOnce() -> Result<T>) -> Result<T> {
    device.with_context(&runtime.driver, |driver| driver.with_relaxed_capture(body)?)
}

/// What becomes of live blocks outside of graphs, whose contents get lost without a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveBlocks {
    /// The pool does not sleep.
    Refuse,
    /// They sleep.
    Allow,
}

/// Ends the registrations of pools by their callbacks. The caller holds no lock.
pub fn release_registrations(runtime: &Runtime, ids: &[PoolId]) -> Result<()> {
    let arenas_of = |device: &Device| ids.iter().flat_map(|id| device.memory().arenas_of(*id)).collect::<Vec<_>>();
    let arenas: Vec<_> = runtime.devices().iter().flat_map(arenas_of).collect();
    registration::release_all(&arenas)
}

/// Releases the physical memory of pools on every device. Waits for the devices. If the contents cannot be saved, nothing
/// changes. Memory that the driver fails to release stays mapped until the next attempt. The caller delivers the events
/// to trackers after it released its locks.
pub fn sleep(runtime: &'static Runtime, ids: &[PoolId], options: &Options, blocks: LiveBlocks) -> Result<()> {
    SLEEPS.fetch_add(1, Ordering::AcqRel);
    let mut changes = lock_changes();
    let _changing = Changing::new(ids);
    // Others may have been destroyed while this waited for the lock.
    let ids: Vec<PoolId> = ids.iter().copied().filter(|id| pool::exists(*id)).collect();
    let awake: Vec<PoolId> = ids.iter().copied().filter(|id| !pool::is_suspended(*id)).collect();
    // From here on no request is routed to the pools.
    awake.iter().for_each(|id| pool::set_suspended(*id, true));
    let mut parts: Vec<Part<'_>> = ids.iter().flat_map(|id| parts_of(runtime, &mut changes, *id)).collect();
    parts.sort_by_cached_key(|part| u64::from(part.device.ordinal));
    let outcome = suspend::suspend_parts(runtime, &mut parts, options, blocks);
    if outcome.is_err() {
        for part in parts.iter_mut().filter(|part| !part.is_any_suspended()) {
            part.saved.pieces = None;
            part.saved.drop_unreserved();
        }
        // If some memory is gone, the pool must not be used before it is resumed.
        for id in awake.iter().filter(|id| !parts.iter().any(|part| part.id == **id && part.is_any_suspended())) {
            pool::set_suspended(*id, false);
        }
    }
    return_parts(&mut changes, parts);
    outcome
}

/// Restores the physical memory of pools on every device, and the contents that were saved, one pool after the other. A
/// pool stays suspended if there is not enough memory. If `asynchronous`, pinned backups are copied in streams of the
/// devices, which [`await_contents`] makes other streams wait for. The caller delivers the events to trackers as after
/// [`sleep`].
pub fn wake(runtime: &'static Runtime, ids: &[PoolId], asynchronous: bool) -> Result<()> {
    let mut changes = lock_changes();
    // Others may have been destroyed while this waited for the lock.
    let existing: Vec<PoolId> = ids.iter().copied().filter(|id| pool::exists(*id)).collect();
    let asleep: Vec<PoolId> = existing.iter().copied().filter(|id| pool::is_suspended(*id)).collect();
    let changing = Changing::new(&asleep);
    let mut pools: Vec<_> = existing.iter().map(|id| (*id, parts_of(runtime, &mut changes, *id))).collect();
    let outcome = resume::resume_pools(runtime, &mut pools, asynchronous);
    pools.into_iter().for_each(|(_, parts)| return_parts(&mut changes, parts));
    drop(changing);
    drop(changes);
    ids.iter().for_each(|id| pools::release_woken(runtime, *id));
    outcome
}

/// Makes later work of a stream wait until the contents of pools are restored on its device.
pub fn await_contents(tags: &str, stream: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, stream)?;
    // Locked in the order in which sleep locks them.
    let changes = lock_changes();
    let outside = OutsideCaptures::lock(runtime);
    outside.check(stream)?;
    for id in pool::tagged(tags)? {
        refuse_asleep(id)?;
        if let Some(event) = changes.get(&(id, stream.device())).and_then(|saved| saved.restored.as_ref()) {
            outside.wait_for_event(stream, event.native())?;
        }
    }
    Ok(())
}

/// Allocates backups for the memory that pools hold, which stay until [`free_backups`].
pub fn alloc_backups(tags: &str, options: &Options) -> Result<()> {
    let runtime = runtime::ready()?;
    let mut changes = lock_changes();
    for id in pool::tagged(tags)? {
        refuse_asleep(id)?;
        for device in runtime.devices() {
            let (_, held) = stats_aggregation::pool_bytes(device.memory(), id);
            if held > 0 {
                let saved = changes.entry((id, device.ordinal)).or_default();
                saved.reserve(options, held).context(|| format!("reserving a backup of {}", describe(id)))?;
                saved.is_reserved = saved.backup.is_some();
            }
        }
    }
    Ok(())
}

/// Frees the backups of pools that are awake.
pub fn free_backups(tags: &str) -> Result<()> {
    runtime::ready()?;
    let mut changes = lock_changes();
    let ids = pool::tagged(tags)?;
    ids.iter().try_for_each(|id| refuse_asleep(*id))?;
    for ((_, _), saved) in changes.iter_mut().filter(|((id, _), _)| ids.contains(id)) {
        (saved.backup, saved.is_reserved) = (None, false);
    }
    Ok(())
}

fn refuse_asleep(id: PoolId) -> Result<()> {
    if pool::is_suspended(id) {
        return Err(Error::new(Status::GRAPH_ASLEEP, format!("{} is asleep; wake it first", describe(id))));
    }
    Ok(())
}

/// Frees the backup of a pool that has ended on a device: nothing can wake it any more.
fn forget(id: PoolId, device: u32) {
    BACKUPS.lock().remove(&(id, device));
}

/// What sleeps of some pools, on all devices, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Info {
    /// The number of pools.
    pub pools: u32,
    /// The number of those that sleep.
    pub pools_asleep: u32,
    /// The physical memory.
    pub mapped: u64,
    /// The memory that has only addresses.
    pub asleep: u64,
    /// The contents that are saved.
    pub saved: u64,
    /// The size of the backups.
    pub backup: u64,
}

/// Returns what sleeps of some pools. Waits while another thread puts pools to sleep or wakes them.
pub fn info(tags: &str) -> Result<Info> {
    let runtime = runtime::ready()?;
    let changes = lock_changes();
    let ids = pool::tagged(tags)?;
    let mut info = Info { pools: ids.len() as u32, ..Info::default() };
    for id in &ids {
        info.pools_asleep += u32::from(pool::is_suspended(*id));
        for device in runtime.devices() {
            info.mapped += stats_aggregation::pool_bytes(device.memory(), *id).1;
            for arena in device.memory().arenas_of(*id) {
                info.asleep += arena.lock().space.suspended_mappings().iter().map(|mapping| mapping.bytes).sum::<u64>();
            }
            if let Some(saved) = changes.get(&(*id, device.ordinal)) {
                info.saved += saved.pieces.iter().flatten().map(|piece| piece.bytes).sum::<u64>();
                info.backup += saved.backup.as_ref().map_or(0, |backup| backup.bytes);
            }
        }
    }
    Ok(info)
}
