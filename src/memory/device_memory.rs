//! The memory of one device: the bytes that are and may be held, and the arenas.

use super::{
    arena::{Arena, Key, MAX_ARENAS},
    peak_budget::Peak,
    pool::{self, PoolId},
    recorder,
    route::Routes,
    space::Region,
    stats::{AtomicStat, Base, Stat, Statistic, Stats},
};
use crate::{
    driver::{self, Driver, MemoryKind, codes},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, per_device::PerDevice, properties},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
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

/// The smallest granule to use, even if the device supports a smaller one: smaller handles cost too many driver calls.
const MIN_GRANULE: u64 = 2 << 20;

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

/// The memory of one device; see the module documentation.
#[derive(Default)]
pub struct DeviceMemory {
    method: OnceCell<Method>,
    total: OnceCell<u64>,
    /// Whether handles are created shareable with other processes.
    pub(super) shareable: OnceCell<bool>,
    held: AtomicStat,
    /// The sum of all increases of `held`.
    held_total: AtomicU64,
    held_base: Mutex<Base>,
    /// The bits of the explicitly set fraction plus 1; 0 if none was set.
    fraction: AtomicU64,
    arenas: Mutex<Arenas>,
    /// The driver's ordinals of the other devices that have access to the memory.
    pub(super) peers: Mutex<Vec<i32>>,
    /// The routes that assign requests to pools.
    pub routes: Routes,
    /// The peak of live bytes since the last reset.
    pub(super) peak: Mutex<Peak>,
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
    /// Bytes of handles that were moved.
    pub moved: Count,
}

/// The locked list of all arenas of a device.
pub struct AllArenas<'a>(MutexGuard<'a, Arenas>);

impl AllArenas<'_> {
    /// Iterates over the arenas.
    pub fn iter(&self) -> impl Iterator<Item = &'static Arena> + '_ {
        self.0.by_key.values().chain(&self.0.unused).copied()
    }
}

#[derive(Default)]
struct Arenas {
    by_key: HashMap<Key, &'static Arena>,
    /// Arenas without memory, whose key is invalid.
    unused: Vec<&'static Arena>,
}

/// Sorts arenas by number, so that runs of a program are reproducible; the order of the map is random.
fn sorted_by_number(mut arenas: Vec<&'static Arena>) -> Vec<&'static Arena> {
    arenas.sort_by_key(|arena| arena.number);
    arenas
}

static NEXT_ARENA: AtomicU32 = AtomicU32::new(0);

impl DeviceMemory {
    /// Returns how the device's memory gets addresses.
    pub fn method(&self, device: &Device, driver: &Driver) -> Result<Method> {
        self.method
            .get_or_try_init(|| {
                if !super::config::get()?.expandable_segments {
                    return Ok(Method::Segments);
                }
                if !device.properties(driver)?.has_virtual_memory {
                    return Ok(Method::Segments);
                }
                match driver.memory_granularity(device.native) {
                    Ok(granule) => Ok(Method::Virtual { granule: granule.max(MIN_GRANULE) }),
                    Err(failure) if failure.code == codes::CUDA_ERROR_NOT_SUPPORTED => Ok(Method::Segments),
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
        self.held.current()
    }

    /// Returns the peak of held bytes since the last reset.
    pub fn held_peak(&self) -> u64 {
        self.held.peak()
    }

    /// Returns the held bytes as a statistic with torch's fields.
    pub fn held_stat(&self) -> Stat {
        let current = self.held();
        self.held_base.lock().stat(current, self.held_peak(), self.held_sums(current))
    }

    /// Returns the sums of all increases and decreases of the held bytes. Bytes whose allocation failed in the driver
    /// are in neither.
    fn held_sums(&self, current: u64) -> Base {
        let increased = self.held_total.load(Ordering::Relaxed);
        Base { increased, decreased: increased.saturating_sub(current) }
    }

    /// Resets all sums and counts.
    pub fn reset_accumulated(&self) {
        *self.held_base.lock() = self.held_sums(self.held());
        for count in [&self.ooms, &self.retries, &self.waits, &self.created, &self.released] {
            count.reset();
        }
        for arena in self.arenas() {
            arena.lock().space.counters.reset_accumulated();
        }
        self.others.lock().reset_accumulated();
    }

    /// Counts `bytes` as held if the total stays within `max_held`. Returns whether it did.
    pub fn try_hold(&self, bytes: u64, max_held: u64) -> bool {
        let holds = self.held.try_add(bytes, max_held);
        if holds {
            self.held_total.fetch_add(bytes, Ordering::Relaxed);
        }
        holds
    }

    /// Counts `bytes` as no longer held.
    pub fn release_held(&self, bytes: u64) {
        self.held.sub(bytes);
    }

    /// Undoes [`try_hold`](Self::try_hold) for bytes that the driver could not provide.
    pub fn cancel_hold(&self, bytes: u64) {
        self.held_total.fetch_sub(bytes, Ordering::Relaxed);
        self.release_held(bytes);
    }

    /// Resets the peak to the current value.
    pub fn reset_held_peak(&self) {
        self.held.reset_peak();
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

    /// Returns the maximum number of bytes that may be held, if a limit is set.
    pub fn limit(&self, total: u64) -> Option<u64> {
        let fraction = self.fraction();
        (fraction < 1.0).then_some((total as f64 * fraction) as u64)
    }

    /// Returns the arena with this key and its generation. Creates the arena if necessary.
    pub fn arena(&self, device: u32, key: Key, stream: driver::Stream) -> Result<(&'static Arena, u32)> {
        let mut arenas = self.arenas.lock();
        if let Some(arena) = arenas.by_key.get(&key) {
            return Ok((arena, arena.lock().space.generation));
        }
        let arena = match arenas.unused.pop() {
            Some(arena) => {
                *arena.stream.lock() = stream;
                arena.lock().key = key;
                arena
            }
            None => {
                let number = NEXT_ARENA.fetch_add(1, Ordering::Relaxed);
                Arena::new(number, device, key, stream).ok_or_else(|| {
                    Error::new(
                        Status::NOT_SUPPORTED,
                        format!("creating a memory arena: a process can have at most {MAX_ARENAS}"),
                    )
                })?
            }
        };
        let mut inner = arena.lock();
        inner.space.no_split = super::pool::options(key.pool).no_split;
        inner.space.orphaned = false;
        recorder::update(device, &mut inner);
        let generation = inner.space.generation;
        drop(inner);
        arenas.by_key.insert(key, arena);
        Ok((arena, generation))
    }

    /// Returns the arenas that have a key.
    pub fn arenas(&self) -> Vec<&'static Arena> {
        sorted_by_number(self.arenas.lock().by_key.values().copied().collect())
    }

    /// Returns the number of arenas that have a key.
    pub fn count_arenas(&self) -> u64 {
        self.arenas.lock().by_key.len() as u64
    }

    /// Returns the arenas of one pool.
    pub fn arenas_of(&self, pool: PoolId) -> Vec<&'static Arena> {
        let arenas = self.arenas.lock();
        sorted_by_number(arenas.by_key.iter().filter(|(key, _)| key.pool == pool).map(|(_, arena)| *arena).collect())
    }

    /// Locks the list of arenas and returns every arena, including unused ones. No arena is added while the list
    /// exists.
    pub fn all_arenas(&self) -> AllArenas<'_> {
        AllArenas(self.arenas.lock())
    }

    /// Removes the key of an arena whose pool was released, if no block of it is in use, and returns its address
    /// ranges. The caller holds [`growth`](Arena::growth), so no other thread is about to grow the arena.
    pub fn retire(&self, arena: &'static Arena) -> Vec<Region> {
        let mut arenas = self.arenas.lock();
        let mut inner = arena.lock();
        let key = inner.key;
        if pool::in_use(key.pool, arena.device) || !inner.is_empty() || arenas.by_key.remove(&key).is_none() {
            return Vec::new();
        }
        inner.space.generation += 1;
        if let Some(recorder) = inner.space.recorder.take() {
            recorder.retire();
        }
        arenas.unused.push(arena);
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

impl Device {
    /// Returns the memory that the library holds on the device.
    #[inline]
    pub fn memory(&self) -> &'static DeviceMemory {
        static VALUES: PerDevice<DeviceMemory> = PerDevice::new();
        VALUES.of(self)
    }
}
