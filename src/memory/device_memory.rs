//! The memory of one device: the bytes that are and may be held, and the arenas.

use super::{
    arena::{Arena, Key, MAX_ARENAS, StreamEvent, StreamUse},
    handle_types::Support,
    lock::Lock,
    mapped_totals::MappedTotals,
    peak_budget::Peak,
    policy::{self, ExcessMoves, Supply},
    pool::{self, PoolId},
    previous_mappings::PreviousMappings,
    recorder,
    route::Routes,
    space::Region,
    stats::{Stat, Statistic, Stats},
};
use crate::{
    base::log,
    driver::{Driver, Failure, MemoryKind, codes},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, per_device::PerDevice, properties, thread},
    status::Status,
    stream,
};
use once_cell::sync::OnceCell;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

/// How physical memory gets addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Handles of whole granules are mapped into reserved ranges.
    Virtual {
        /// The granule size in bytes.
        granule: u64,
    },
    /// The driver allocates segments and chooses their addresses.
    Segments,
}

/// An event counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Increments the count.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Resets the count to 0.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds `more` to the count.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bytes that a device holds, and those that calls of the driver in progress may add.
#[derive(Debug, Default)]
struct Held {
    stat: Stat,
    pending: u64,
}

/// The memory of one device; see the module documentation.
#[derive(Default)]
pub struct DeviceMemory {
    method: OnceCell<Method>,
    total: OnceCell<u64>,
    /// How memory can be shared.
    pub(super) support: Support,
    /// The held bytes. Only calls that also make driver calls change them.
    held: Mutex<Held>,
    /// The bits of the explicitly set fraction plus 1; 0 if none was set.
    fraction: AtomicU64,
    /// The budget beside other processes in bytes; 0 for none.
    share: AtomicU64,
    arenas: Mutex<Arenas>,
    /// The driver's ordinals of the other devices that have access to the memory.
    pub(super) peers: Mutex<Vec<i32>>,
    /// Held while mappings get or lose the access of a peer. Lock order: before [`growth`](Arena::growth).
    pub(super) changing_peers: Mutex<()>,
    /// The routes that assign requests to pools.
    pub routes: Routes,
    /// The peaks since the last reset. Held during a count, which is shorter than a sleep.
    pub(super) peak: Lock<Peak>,
    /// The mapped memory of all arenas.
    pub(super) mapped_totals: Arc<MappedTotals>,
    /// The statistics of backends other than the caching allocator.
    pub(super) others: Mutex<Stats>,
    /// Requests that failed because of insufficient memory.
    pub ooms: Count,
    /// Requests that succeeded after all cached memory was returned to the driver.
    pub retries: Count,
    /// Waits for device work.
    pub waits: Count,
    /// Handles and segments that were created.
    pub created: Count,
    /// Handles and segments that were returned to the driver.
    pub released: Count,
    /// Handles that were moved, in excess of what allocations account for.
    pub moves: Mutex<ExcessMoves>,
    /// Whether the program compares the addresses of blocks with earlier ones: a checkpoint of a pool was created.
    pub compares_addresses: AtomicBool,
    /// The mappings of moved memory at its previous addresses. No other lock of the allocator is taken while this is held.
    pub previous_mappings: Mutex<PreviousMappings>,
    /// The held bytes that are released when the work that may use them is done.
    pub pending_release: AtomicU64,
}

/// The locked list of all arenas of a device.
pub struct AllArenas<'a>(MutexGuard<'a, Arenas>);

/// Sorts arenas by their numbers.
fn in_order(mut arenas: Vec<&'static Arena>) -> Vec<&'static Arena> {
    arenas.sort_unstable_by_key(|arena| arena.number);
    arenas
}

impl AllArenas<'_> {
    /// Iterates over the arenas in the order of their numbers, in which several are locked.
    pub fn iter(&self) -> impl Iterator<Item = &'static Arena> {
        in_order(self.0.in_use.iter().chain(&self.0.unused).copied().collect()).into_iter()
    }

    /// Returns the sums of the arenas that were retired.
    pub fn retired(&self) -> &Stats {
        &self.0.retired
    }

    /// Returns the arenas that have a key, in the order of their numbers.
    pub fn in_use(&self) -> &[&'static Arena] {
        &self.0.in_use
    }
}

#[derive(Default)]
struct Arenas {
    by_key: HashMap<Key, &'static Arena>,
    /// The arenas in `by_key`, in the order of their numbers, so that runs of a program are reproducible.
    in_use: Vec<&'static Arena>,
    /// Arenas without memory, whose key is invalid.
    unused: Vec<&'static Arena>,
    /// Arenas of the default pool whose streams have ended, for other streams; see [`ended_streams`](super::ended_streams).
    of_ended_streams: VecDeque<EndedArena>,
    /// Those of threads, for other threads.
    of_ended_threads: VecDeque<EndedArena>,
    /// The sums of the arenas that were retired; they have no current values and no peaks.
    retired: Stats,
}

impl Arenas {
    /// Returns the queue of the arenas that a stream with this key may get.
    fn queue(&mut self, key: &Key) -> &mut VecDeque<EndedArena> {
        if key.thread == 0 { &mut self.of_ended_streams } else { &mut self.of_ended_threads }
    }
}

/// An arena of a stream that has ended, maybe with its thread.
pub(super) struct EndedArena {
    /// The arena's key.
    pub(super) key: Key,
    /// The event after which the stream's work uses none of the memory that was free when it ended.
    pub(super) done: StreamEvent,
}

static NEXT_ARENA: AtomicU32 = AtomicU32::new(0);
static NEXT_ENDED: AtomicU32 = AtomicU32::new(1);

impl DeviceMemory {
    /// Returns how the device's memory gets addresses.
    pub fn method(&self, device: &Device, driver: &Driver) -> Result<Method> {
        self.method
            .get_or_try_init(|| {
                if !super::config::get()?.expandable_segments {
                    return Ok(Method::Segments);
                }
                let granularity = if device.properties(driver)?.has_virtual_memory {
                    driver.memory_granularity(device.native).map(Some)
                } else {
                    Ok(None)
                };
                match granularity {
                    Ok(Some(granule)) => Ok(Method::Virtual { granule: granule.max(policy::MIN_GRANULE) }),
                    Ok(None) | Err(Failure { code: codes::CUDA_ERROR_NOT_SUPPORTED, .. }) => {
                        log::warning(|| {
                            format!(
                                "expandable_segments has no effect on device {}, which has no virtual memory \
                                 management: free memory of a segment cannot move to where it is needed",
                                device.ordinal
                            )
                        });
                        Ok(Method::Segments)
                    }
                    Err(failure) => {
                        Err(Error::from(failure).context("querying the allocation granularity of the device"))
                    }
                }
            })
            .copied()
    }

    /// Returns the result of [`method`](Self::method) if it was determined before.
    pub fn known_method(&self) -> Option<Method> {
        self.method.get().copied()
    }

    /// Returns the total memory of the device in bytes.
    pub fn total(&self, device: &Device, driver: &Driver) -> Result<u64> {
        self.total.get_or_try_init(|| Ok(device.properties(driver)?.total_memory)).copied()
    }

    /// Returns the total memory if it was determined before. Makes no driver call.
    pub fn known_total(&self) -> Option<u64> {
        self.total.get().copied()
    }

    /// Returns the held bytes.
    pub fn held(&self) -> u64 {
        let held = self.held.lock();
        held.stat.current.saturating_add(held.pending)
    }

    /// Returns the held bytes as a statistic with torch's fields.
    pub fn held_stat(&self) -> Stat {
        self.held.lock().stat
    }

    /// Resets all sums and counts.
    pub fn reset_accumulated(&self) {
        // No statistics are read meanwhile.
        let _peak = self.peak.lock();
        self.held.lock().stat.reset_accumulated();
        for count in [&self.ooms, &self.retries, &self.waits, &self.created, &self.released] {
            count.reset();
        }
        self.others.lock().reset_accumulated();
        let mut arenas = self.arenas.lock();
        arenas.retired.reset_accumulated();
        arenas.in_use.iter().for_each(|arena| arena.lock().space.counters.reset_accumulated());
    }

    /// Counts `bytes` as about to be held if the total stays within `max_held`. Returns whether it did; then
    /// [`confirm_hold`](Self::confirm_hold) or [`cancel_hold`](Self::cancel_hold) must follow.
    pub fn try_hold(&self, bytes: u64, max_held: u64) -> bool {
        let mut held = self.held.lock();
        let sum = held.stat.current.checked_add(held.pending).and_then(|sum| sum.checked_add(bytes));
        let holds = sum.is_some_and(|sum| sum <= max_held);
        if holds {
            held.pending += bytes;
        }
        holds
    }

    /// Counts bytes that the driver has provided as held.
    pub fn confirm_hold(&self, bytes: u64) {
        let mut held = self.held.lock();
        held.pending = held.pending.saturating_sub(bytes);
        held.stat.add(bytes);
    }

    /// Forgets bytes that the driver could not provide, or that were never used. They are in no sum and no peak.
    pub fn cancel_hold(&self, bytes: u64) {
        let mut held = self.held.lock();
        held.pending = held.pending.saturating_sub(bytes);
    }

    /// Counts `bytes` as no longer held.
    pub fn release_held(&self, bytes: u64) {
        self.held.lock().stat.sub(bytes);
    }

    /// Resets the peak to the current value.
    pub fn reset_held_peak(&self) {
        self.held.lock().stat.reset_peak();
    }

    /// Returns the fraction of the device's memory that may be held.
    pub fn fraction(&self) -> f64 {
        match self.fraction.load(Ordering::Acquire) {
            0 => super::config::fraction(),
            bits => f64::from_bits(bits - 1),
        }
    }

    /// Sets the fraction of the device's memory that may be held.
    pub fn set_fraction(&self, fraction: f64) {
        self.fraction.store(fraction.to_bits() + 1, Ordering::Release);
    }

    /// Sets the maximum number of bytes that may be held beside other processes.
    pub fn set_share(&self, budget: Option<u64>) {
        self.share.store(budget.unwrap_or(0), Ordering::Release);
    }

    /// Returns whether other processes may ask for idle memory.
    pub fn is_shared(&self) -> bool {
        self.share.load(Ordering::Acquire) != 0
    }

    /// Returns the maximum number of bytes that may be held, if a limit is set.
    pub fn limit(&self, total: u64) -> Option<u64> {
        let (fraction, share) = (self.fraction(), self.share.load(Ordering::Acquire));
        let part = (fraction < 1.0).then_some((total as f64 * fraction) as u64);
        if share == 0 { part } else { Some(part.map_or(share, |part| part.min(share))) }
    }

    /// Returns the maximum number of bytes that may be held: the limit, or all of the device.
    pub fn max_held(&self, device: &Device, driver: &Driver) -> Result<u64> {
        let total = self.total(device, driver)?;
        Ok(self.limit(total).unwrap_or(total))
    }

    /// Returns how much memory there is of this maximum.
    pub fn supply(&self, max_held: u64) -> Supply {
        policy::supply(self.held(), max_held, self.is_shared())
    }

    /// Returns the arena with this key and its generation. Creates the arena if necessary.
    pub fn arena(&self, key: Key, stream_use: StreamUse) -> Result<(&'static Arena, u32)> {
        let mut arenas = self.arenas.lock();
        if let Some(arena) = arenas.by_key.get(&key) {
            return Ok((arena, arena.lock().space.generation));
        }
        let arena = match arenas.unused.pop() {
            Some(arena) => {
                *arena.stream_use.lock() = stream_use;
                arena.lock().key = key;
                arena
            }
            None => {
                let number = NEXT_ARENA.fetch_add(1, Ordering::Relaxed);
                Arena::new(number, key, stream_use, self.mapped_totals.clone()).ok_or_else(|| {
                    Error::new(
                        Status::NOT_SUPPORTED,
                        format!("creating a memory arena: a process can have at most {MAX_ARENAS}"),
                    )
                })?
            }
        };
        let mut inner = arena.lock();
        let options = super::pool::options(key.pool);
        inner.space.no_split = options.no_split;
        inner.memory = options.memory;
        inner.space.orphaned = false;
        inner.graph_work = None;
        recorder::update(stream_use.device, &mut inner);
        let generation = inner.space.generation;
        drop(inner);
        arenas.by_key.insert(key, arena);
        let index = arenas.in_use.partition_point(|other| other.number < arena.number);
        arenas.in_use.insert(index, arena);
        arena.in_use.store(true, Ordering::Relaxed);
        Ok((arena, generation))
    }

    /// Returns the arenas that have a key.
    pub fn arenas(&self) -> Vec<&'static Arena> {
        self.all_arenas().in_use().to_vec()
    }

    /// Returns the number of arenas that have a key.
    pub fn count_arenas(&self) -> u64 {
        self.arenas.lock().by_key.len() as u64
    }

    /// Returns the arenas of one pool.
    pub fn arenas_of(&self, pool: PoolId) -> Vec<&'static Arena> {
        let arenas = self.arenas.lock();
        let of_pool = arenas.by_key.iter().filter(|(key, _)| key.pool == pool);
        in_order(of_pool.map(|(_, arena)| *arena).collect())
    }

    /// Locks the list of arenas and returns every arena, including unused ones. No arena is added while the list
    /// exists.
    pub fn all_arenas(&self) -> AllArenas<'_> {
        AllArenas(self.arenas.lock())
    }

    /// Gives the arenas of a stream that is ending to the stream that waits for its work.
    pub fn hand_over(&self, ending: stream::Stream, successor: stream::Stream) {
        let mut arenas = self.arenas.lock();
        let keys: Vec<Key> = arenas.by_key.keys().filter(|key| key.stream == ending.raw.handle()).copied().collect();
        for key in keys {
            let Some(arena) = arenas.by_key.remove(&key) else { continue };
            let ended = NEXT_ENDED.fetch_add(1, Ordering::Relaxed);
            let key = Key { stream: successor.raw.handle(), ended, ..key };
            *arena.stream_use.lock() = StreamUse::new(successor);
            let mut inner = arena.lock();
            inner.key = key;
            recorder::update(arena.device, &mut inner);
            drop(inner);
            arenas.by_key.insert(key, arena);
            if key.pool == PoolId::DEFAULT && key.thread == 0 {
                let done = StreamEvent::Pending(StreamUse::new(successor));
                arenas.of_ended_streams.push_back(EndedArena { key, done });
            }
        }
    }

    /// Returns the arena with this key, if there is one.
    pub(super) fn find_arena(&self, key: &Key) -> Option<&'static Arena> {
        self.arenas.lock().by_key.get(key).copied()
    }

    /// Queues the arena with this key, of a thread that is ending, for other threads.
    pub(super) fn queue_arena(&self, key: Key, done: StreamEvent) {
        let mut arenas = self.arenas.lock();
        let Some(arena) = arenas.by_key.remove(&key) else { return };
        let key = Key { ended: NEXT_ENDED.fetch_add(1, Ordering::Relaxed), ..key };
        let stream_use = arena.stream_use();
        arena.lock().end_thread(key, stream_use);
        arena.release_ownership();
        arenas.by_key.insert(key, arena);
        arenas.of_ended_threads.push_back(EndedArena { key, done });
    }

    /// Takes the first arena from the queue for a key, unless there is an arena with this key.
    pub(super) fn take_queued_arena(&self, key: &Key) -> Option<EndedArena> {
        let mut arenas = self.arenas.lock();
        if arenas.by_key.contains_key(key) { None } else { arenas.queue(key).pop_front() }
    }

    /// Returns an arena to the end of the queue.
    pub(super) fn return_queued_arena(&self, ended: EndedArena) {
        self.arenas.lock().queue(&ended.key).push_back(ended);
    }

    /// Gives an arena that was taken from the queue to a stream, unless another thread has created one with this key.
    /// Returns `false` if the arena was retired meanwhile.
    pub(super) fn give_arena(&self, ended: EndedArena, key: Key, stream_use: StreamUse) -> bool {
        let mut arenas = self.arenas.lock();
        if arenas.by_key.contains_key(&key) {
            arenas.queue(&ended.key).push_back(ended);
            return true;
        }
        let Some(arena) = arenas.by_key.remove(&ended.key) else { return false };
        *arena.stream_use.lock() = stream_use;
        let mut inner = arena.lock();
        inner.key = key;
        recorder::update(arena.device, &mut inner);
        if key.thread != 0 {
            inner.make_owner(key.thread);
        }
        drop(inner);
        arenas.by_key.insert(key, arena);
        true
    }

    /// Removes the key of an arena whose pool was released, or whose stream has ended, if no block of it is in use, and returns its address
    /// ranges. The caller holds [`growth`](Arena::growth), so no other thread is about to grow the arena.
    pub fn retire(&self, arena: &'static Arena) -> Vec<Region> {
        let mut arenas = self.arenas.lock();
        let mut inner = arena.lock();
        let key = inner.key;
        let may_be_used = key.ended == 0 && pool::in_use(key.pool, arena.device);
        if may_be_used || pool::is_changing(key.pool) || !inner.is_empty() || arenas.by_key.remove(&key).is_none() {
            return Vec::new();
        }
        inner.space.generation += 1;
        inner.space.forget_limits();
        if let Some(recorder) = inner.space.recorder.take() {
            recorder.retire();
        }
        arenas.in_use.retain(|other| other.number != arena.number);
        arena.in_use.store(false, Ordering::Relaxed);
        arenas.queue(&key).retain(|ended| ended.key != key);
        arenas.unused.push(arena);
        inner.space.counters.zones.iter_mut().for_each(|zone| zone.set_pinned((0, 0)));
        inner.space.counters.set_oversize((0, 0));
        let mut sums = std::mem::take(&mut inner.space.counters).stats();
        // All current values are 0.
        sums.reset_peak();
        arenas.retired.merge(&sums);
        inner.space.remove_regions(|_| true)
    }
}

impl Device {
    /// Returns the driver's ordinals of the devices that have access to this device's memory, its own first.
    pub fn memory_readers(&self) -> Vec<i32> {
        std::iter::once(self.native).chain(self.memory().peers.lock().iter().copied()).collect()
    }
}

/// Checks that a fraction is in [0, 1].
pub fn check_fraction(fraction: f64) -> Result<()> {
    if (0.0..=1.0).contains(&fraction) {
        Ok(())
    } else {
        Err(Error::new(Status::INVALID_VALUE, format!("invalid fraction:{fraction}. Please set within [0, 1].")))
    }
}

impl Device {
    /// Returns the free and total bytes of the device as the driver reports them, across all processes.
    pub fn memory_info(&self, driver: &Driver) -> Result<(u64, u64)> {
        let (free, total) = self
            .with_context(driver, |driver| Ok(driver.with_relaxed_capture(|| driver.memory_info())??))
            .context(|| format!("querying the free memory of device {}", self.ordinal))?;
        Ok((free as u64, total as u64))
    }
}

/// Returns the device with this ordinal.
pub fn device(runtime: &Runtime, number: u32) -> Result<&Device> {
    runtime
        .devices()
        .get(number as usize)
        .ok_or_else(|| properties::no_such_device_error(number as i32, runtime.devices().len()))
}

/// Returns the ordinal of the device whose memory a nonzero address is in; `None` for host memory and unknown addresses.
pub fn owner(runtime: &Runtime, address: u64) -> Result<Option<u32>> {
    let info = runtime.pointer_info(address)?;
    match info.kind {
        MemoryKind::Device | MemoryKind::Managed => Ok(Some(runtime.device(info.device)?.ordinal)),
        MemoryKind::Pinned | MemoryKind::Unregistered => Ok(None),
    }
}

/// Returns the ordinal of the device that work on some addresses is about: the owner of the first that is in device
/// memory; the current device if none is.
#[inline]
pub fn device_for(runtime: &Runtime, addresses: impl IntoIterator<Item = u64>) -> Result<u32> {
    if runtime.devices().len() == 1 {
        return Ok(0);
    }
    for address in addresses.into_iter().filter(|address| *address != 0) {
        if let Some(device) = owner(runtime, address)? {
            return Ok(device);
        }
    }
    Ok(thread::device())
}

impl Device {
    /// Returns the memory that the library holds on the device.
    #[inline]
    pub fn memory(&self) -> &'static DeviceMemory {
        static VALUES: PerDevice<DeviceMemory> = PerDevice::new();
        VALUES.of(self)
    }
}
