//! Computes the statistics of a device, a pool and a stream from the counters of the arenas.

use super::{
    arena::{Arena, Inner, Key},
    block::BlockState,
    device_memory::{self, DeviceMemory, Method},
    grow::Request,
    peak_budget,
    pool::{self, PoolId},
    pools,
    report::{Budget, PoolShare, Shortage},
    route,
    stats::{Statistic, Stats},
};
use crate::{
    error::Result,
    runtime::{self, Runtime, availability, device::Device, thread},
    stream::Stream,
};
use std::collections::BTreeMap;

/// Returns the statistics of a device, of all backends, at one moment.
pub fn stats(memory: &DeviceMemory) -> Stats {
    // This takes long, so other threads do not wait for it. The rest of the statistics is read while they do.
    memory.arenas().into_iter().for_each(|arena| count_for_query(&mut arena.lock()));
    let (counted, (mut stats, held)) = peak_budget::read_with(memory, |moment| {
        let mut stats = *moment.others;
        stats.merge(moment.retired);
        moment.arenas().for_each(|inner| stats.merge(&inner.space.counters.stats()));
        // Memory counts as held before it is mapped, and until after it is unmapped.
        (stats, memory.held_stat())
    });
    stats.set_levels_and_peaks(&counted.levels, &counted.peaks);
    stats.reserved_bytes.all = held;
    stats.num_alloc_retries = memory.retries.get();
    stats.num_ooms = memory.ooms.get();
    stats.num_sync_all_streams = memory.waits.get();
    stats.num_device_alloc = memory.created.get();
    stats.num_device_free = memory.released.get();
    stats
}

/// Counts what only queries count: the free blocks that cannot be released, and what is too large to be split.
fn count_for_query(inner: &mut Inner) {
    let pinned = inner.space.pinned_free();
    for (zone, pinned) in inner.space.counters.zones.iter_mut().zip(pinned) {
        zone.set_pinned(pinned);
    }
    inner.space.counters.set_oversize(inner.space.oversize());
}

/// Returns the statistics of the arenas whose key `filter` accepts. With several arenas, the peaks are the sums of the
/// arenas' peaks and so upper bounds. Quantities that only the device counts are 0.
pub fn stats_of(arenas: Vec<&'static Arena>, filter: impl Fn(&Key) -> bool) -> Stats {
    let mut stats = Stats::default();
    for arena in arenas {
        let mut inner = arena.lock();
        if filter(&inner.key) {
            count_for_query(&mut inner);
            stats.merge(&inner.space.counters.stats());
        }
    }
    stats
}

/// Returns the statistics of a pool on a device. Quantities that only the device counts are 0.
pub fn pool_stats(id: PoolId, number: i32) -> Result<Stats> {
    let runtime = runtime::ready()?;
    let memory = runtime.device(number)?.memory();
    let id = pools::pool_with_memory(runtime, id)?;
    Ok(stats_of(memory.arenas(), |key| key.pool == id))
}

/// Returns the statistics of a stream in all pools. Quantities that only the device counts are 0.
pub fn stream_stats(stream: &Stream) -> Result<Stats> {
    let memory = device_memory::device(runtime::ready()?, stream.device())?.memory();
    let handle = route::canonical(stream.raw.handle());
    let number = thread::of_stream(handle);
    Ok(stats_of(memory.arenas(), |key| (key.stream, key.thread) == (handle, number)))
}

/// Resets all sums and counters of a device.
pub fn reset_accumulated_stats(number: i32) -> Result<()> {
    match runtime::if_initialized()? {
        Some(runtime) => runtime.device(number)?.memory().reset_accumulated(),
        None => availability::check_number(number)?,
    }
    Ok(())
}

/// Returns the allocated and the held bytes of one pool of a device.
pub fn pool_bytes(memory: &DeviceMemory, pool: PoolId) -> (u64, u64) {
    memory.arenas_of(pool).into_iter().map(arena_bytes).fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

fn arena_bytes(arena: &Arena) -> (u64, u64) {
    let inner = arena.lock();
    (inner.space.counters.live(), inner.space.mapped_bytes())
}

/// Collects the data for the error message of a failed request to another backend; `external` says whether that is an
/// allocator of the program.
pub fn backend_shortage(runtime: &Runtime, device: &Device, request: Request, external: bool) -> Shortage {
    let (driver, memory) = (&runtime.driver, &device.memory());
    let known_total = memory.total(device, driver).unwrap_or(0);
    let (free, total) = device.memory_info(driver).unwrap_or((0, known_total));
    Shortage {
        device: device.ordinal,
        requested: request.requested,
        total,
        free,
        pid: std::process::id(),
        held: memory.held(),
        limit: memory.limit(known_total),
        allocated: peak_budget::read(memory).live().0,
        retries: memory.retries.get(),
        // Suppresses the advice to change how memory is mapped, which does not apply to this backend.
        expandable: true,
        external,
        ..Shortage::default()
    }
}

/// Collects the data for the error message of a failed request.
pub fn shortage(runtime: &Runtime, device: &Device, arena: &Arena, request: Request) -> Shortage {
    let (driver, memory) = (&runtime.driver, &device.memory());
    // A failure to get data for the message must not hide the error that is being reported.
    let known_total = memory.total(device, driver).unwrap_or(0);
    let (free, total) = device.memory_info(driver).unwrap_or((0, known_total));
    let mut pools: BTreeMap<PoolId, (u64, u64)> = BTreeMap::new();
    let (mut allocated, mut pending) = (0, 0);
    for other in memory.arenas() {
        let (live, held) = arena_bytes(other);
        allocated += live;
        let inner = other.lock();
        pending += inner.space.counters.zones.iter().map(|zone| zone.waiting_bytes.current).sum::<u64>();
        if inner.key.pool != PoolId::DEFAULT {
            let entry = pools.entry(inner.key.pool).or_default();
            *entry = (entry.0 + live, entry.1 + held);
        }
    }
    let key = arena.key();
    let largest_free = arena.lock().space.largest_free();
    // The default pool has no budget.
    let budget = pool::budget(key.pool).ok().flatten();
    Shortage {
        device: device.ordinal,
        requested: request.requested,
        total,
        free,
        pid: std::process::id(),
        held: memory.held(),
        limit: memory.limit(known_total),
        allocated,
        pending,
        largest_free,
        private_pools: pools
            .into_iter()
            .map(|(id, (allocated, reserved))| PoolShare { owner: id.owner, index: id.index, allocated, reserved })
            .collect(),
        retries: memory.retries.get(),
        expandable: matches!(memory.method(device, driver), Ok(Method::Virtual { .. })),
        budget: budget.map(|bytes| Budget { bytes, pool: key.pool, reserved: pool_bytes(memory, key.pool).1 }),
        external: pool::allocator(key.pool).is_some(),
    }
}

impl super::space::Space {
    /// Returns, for each zone, the number and bytes of free blocks that cannot be released, because another part of the
    /// same handle is in use.
    fn pinned_free(&self) -> [(u64, u64); 2] {
        let mut pinned = [(0, 0); 2];
        for (id, block) in self.blocks.iter() {
            if !matches!(block.state, BlockState::Free | BlockState::Uncoalesced) {
                continue;
            }
            let bytes = block.size - self.releasable_bytes(id);
            if bytes > 0 {
                let entry = &mut pinned[block.zone as usize];
                *entry = (entry.0 + 1, entry.1 + bytes);
            }
        }
        pinned
    }
}
