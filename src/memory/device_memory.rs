//! The memory of one device: how much is held and may be held, and which arenas have it.

use super::{
    arena::{Arena, Key, MAX_ARENAS},
    backend::DevicePool,
    history, listener,
    peak_budget::Peak,
    pool::{self, PoolId},
    route::Routes,
    space::Region,
    stats::{Stat, Stats},
};
use crate::{
    driver::{self, Driver, codes},
    error::{Context, Error, Result},
    runtime::{device::Device, properties},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// How physical memory gets its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Handles of whole granules are mapped into reserved ranges.
    Virtual {
        /// The bytes of a granule.
        granule: u64,
    },
    /// The driver allocates segments and chooses their addresses.
    Segments,
}

/// The least granule that is worth the driver's calls, whatever smaller one a device may have.
const LEAST_GRANULE: u64 = 2 << 20;

/// A count of things that happened.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn one(&self) {
        self.add(1);
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module's comment.
#[derive(Default)]
pub struct DeviceMemory {
    method: OnceCell<Method>,
    total: OnceCell<u64>,
    /// Whether its memory is made so that it can be shared with other processes.
    pub(super) shareable: OnceCell<bool>,
    held: AtomicU64,
    held_peak: AtomicU64,
    held_in_all: AtomicU64,
    /// What `held_in_all` was, and how much of it had gone, when the sums were reset.
    held_bases: [AtomicU64; 2],
    /// The bits of the fraction that was set; 0 is none.
    fraction: AtomicU64,
    arenas: Mutex<Arenas>,
    /// The driver's numbers of the other devices that have access to it.
    pub(super) peers: Mutex<Vec<i32>>,
    /// Which pools requests go to.
    pub routes: Routes,
    /// The most bytes that were live at once, since the peak was reset.
    pub(super) peak: Mutex<Peak>,
    /// What backends other than the caching allocator have given out.
    pub(super) others: Mutex<Stats>,
    /// The driver's pool, where memory comes from that.
    pub(super) driver_pool: DevicePool,
    /// Requests that failed for want of memory.
    pub ooms: Count,
    /// Requests that were met after everything cached had gone back to the driver.
    pub retries: Count,
    /// Waits for work of the device.
    pub waits: Count,
    /// Handles and segments that were created.
    pub created: Count,
    /// Handles and segments that went back.
    pub released: Count,
    /// Bytes of handles that were moved from where they were idle to where they were needed.
    pub moved: Count,
}

/// The list of all arenas of a device, locked.
pub struct AllArenas<'a>(MutexGuard<'a, Arenas>);

impl AllArenas<'_> {
    /// The arenas.
    pub fn iter(&self) -> impl Iterator<Item = &'static Arena> + '_ {
        self.0.by_key.values().chain(&self.0.unused).copied()
    }
}

#[derive(Default)]
struct Arenas {
    by_key: HashMap<Key, &'static Arena>,
    /// Arenas whose memory is gone and whose key means nothing any more.
    unused: Vec<&'static Arena>,
}

/// What one run of a program does, the next does too: the map's own order is another each time.
fn in_order(mut arenas: Vec<&'static Arena>) -> Vec<&'static Arena> {
    arenas.sort_by_key(|arena| arena.number);
    arenas
}

static NEXT_ARENA: AtomicU32 = AtomicU32::new(0);

impl DeviceMemory {
    /// How the device's memory gets its addresses.
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
                    Ok(granule) => Ok(Method::Virtual { granule: granule.max(LEAST_GRANULE) }),
                    Err(failure) if failure.code == codes::CUDA_ERROR_NOT_SUPPORTED => Ok(Method::Segments),
                    Err(failure) => Err(Error::from(failure).context("asking how the device's memory is cut")),
                }
            })
            .copied()
    }

    /// How it gets them, if that was ever asked.
    pub fn known_method(&self) -> Option<Method> {
        self.method.get().copied()
    }

    /// All memory of the device, in bytes.
    pub fn total(&self, device: &Device, driver: &Driver) -> Result<u64> {
        self.total.get_or_try_init(|| Ok(device.properties(driver)?.total_memory)).copied()
    }

    /// The same, if it was ever asked for. Makes no call of the driver.
    pub fn known_total(&self) -> Option<u64> {
        self.total.get().copied()
    }

    /// The bytes that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// The most that were held at once, since the peak was reset.
    pub fn held_peak(&self) -> u64 {
        self.held_peak.load(Ordering::Relaxed)
    }

    /// What is held, by torch's names.
    pub fn held_stat(&self) -> Stat {
        let (current, in_all) = (self.held(), self.held_in_all.load(Ordering::Relaxed));
        let bases = self.held_bases.each_ref().map(|base| base.load(Ordering::Relaxed));
        // What the driver did not have after all is taken back.
        Stat {
            current,
            peak: self.held_peak(),
            allocated: in_all.saturating_sub(bases[0]),
            freed: in_all.saturating_sub(current).saturating_sub(bases[1]),
        }
    }

    /// Begins all sums and counts anew.
    pub fn reset_accumulated(&self) {
        let in_all = self.held_in_all.load(Ordering::Relaxed);
        self.held_bases[0].store(in_all, Ordering::Relaxed);
        self.held_bases[1].store(in_all.saturating_sub(self.held()), Ordering::Relaxed);
        for count in [&self.ooms, &self.retries, &self.waits, &self.created, &self.released] {
            count.reset();
        }
        for arena in self.arenas() {
            arena.lock().space.counters.reset_accumulated();
        }
        self.others.lock().reset_accumulated();
    }

    /// Counts `bytes` as held if that stays within `most`.
    pub fn try_hold(&self, bytes: u64, most: u64) -> bool {
        let sum = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= most);
        match self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, sum) {
            Ok(before) => {
                self.held_peak.fetch_max(before + bytes, Ordering::Relaxed);
                self.held_in_all.fetch_add(bytes, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    /// Counts `bytes` as held no longer.
    pub fn let_go(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Takes back [`try_hold`](Self::try_hold) for bytes that the driver did not have after all.
    pub fn never_held(&self, bytes: u64) {
        self.held_in_all.fetch_sub(bytes, Ordering::Relaxed);
        self.let_go(bytes);
    }

    /// Forgets the peaks.
    pub fn reset_held_peak(&self) {
        self.held_peak.store(self.held(), Ordering::Relaxed);
    }

    /// The fraction of the device's memory that may be held.
    pub fn fraction(&self) -> f64 {
        match self.fraction.load(Ordering::Acquire) {
            0 => super::config::fraction(),
            bits => f64::from_bits(bits - 1),
        }
    }

    /// Sets the fraction.
    pub fn set_fraction(&self, fraction: f64) {
        self.fraction.store(fraction.to_bits() + 1, Ordering::Release);
    }

    /// The most bytes that may be held, if that was limited.
    pub fn limit(&self, total: u64) -> Option<u64> {
        let fraction = self.fraction();
        (fraction < 1.0).then_some((total as f64 * fraction) as u64)
    }

    /// The arena with this key, made if need be, and its generation.
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
                    Error::new(Status::NOT_SUPPORTED, format!("a process has {MAX_ARENAS} arenas of memory at most"))
                })?
            }
        };
        let mut inner = arena.lock();
        inner.space.no_split = super::pool::options(key.pool).no_split;
        inner.space.orphaned = false;
        listener::tune(device, &mut inner);
        let generation = inner.space.generation;
        drop(inner);
        arenas.by_key.insert(key, arena);
        Ok((arena, generation))
    }

    /// The arenas that have a key.
    pub fn arenas(&self) -> Vec<&'static Arena> {
        in_order(self.arenas.lock().by_key.values().copied().collect())
    }

    /// How many they are.
    pub fn count_arenas(&self) -> u64 {
        self.arenas.lock().by_key.len() as u64
    }

    /// Those of one pool.
    pub fn arenas_of(&self, pool: PoolId) -> Vec<&'static Arena> {
        let arenas = self.arenas.lock();
        in_order(arenas.by_key.iter().filter(|(key, _)| key.pool == pool).map(|(_, arena)| *arena).collect())
    }

    /// Every arena that is or was used, and no new one as long as the list is kept.
    pub fn all_arenas(&self) -> AllArenas<'_> {
        AllArenas(self.arenas.lock())
    }

    /// Takes the key from an arena whose pool is gone, if nothing of it is in use, and gives the ranges that it had. The
    /// caller holds its [`growth`](Arena::growth), so nobody is about to grow it.
    pub fn retire(&self, arena: &'static Arena) -> Vec<Region> {
        let mut arenas = self.arenas.lock();
        let mut inner = arena.lock();
        let key = inner.key;
        if pool::in_use(key.pool, arena.device) || !inner.is_empty() || arenas.by_key.remove(&key).is_none() {
            return Vec::new();
        }
        inner.space.generation += 1;
        if let Some(listener) = inner.space.listener.take() {
            history::keep(listener);
        }
        arenas.unused.push(arena);
        inner.space.remove_regions(|_| true)
    }
}

impl Device {
    /// The driver's numbers of the devices that have access to this one's memory: its own first.
    pub fn memory_readers(&self) -> Vec<i32> {
        std::iter::once(self.native).chain(self.memory.peers.lock().iter().copied()).collect()
    }
}

/// What the fraction of a call must be.
pub fn check_fraction(fraction: f64) -> Result<()> {
    if (0.0..=1.0).contains(&fraction) {
        Ok(())
    } else {
        Err(Error::new(Status::INVALID_VALUE, format!("invalid fraction:{fraction}. Please set within [0, 1].")))
    }
}

impl Device {
    /// Free and total bytes as the driver sees them, all processes counted.
    pub fn memory_info(&self, driver: &Driver) -> Result<(u64, u64)> {
        let (free, total) = self
            .with_context(driver, |driver| Ok(driver.with_relaxed_capture(|| driver.memory_info())??))
            .context(|| format!("asking how much memory device {} has left", self.ordinal))?;
        Ok((free as u64, total as u64))
    }
}

/// The device with this number.
pub fn device(runtime: &crate::runtime::Runtime, number: u32) -> Result<&Device> {
    runtime
        .devices()
        .get(number as usize)
        .ok_or_else(|| properties::no_such_device_error(number as i32, runtime.devices().len()))
}
