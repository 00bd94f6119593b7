//! The allocation slow path: the steps that are tried in order when an arena has no block for a request. The arena is
//! searched again after each step.
//!
//! 1. process completed stream events and coalesce free blocks
//! 2. create memory, up to the live peak plus some slack; where addresses must repeat, first for whole sections
//! 3. move idle memory from this arena and from idle arenas
//! 4. create memory, up to the limit
//! 5. move memory from busy arenas; the device orders the streams
//! 6. return cached memory to the driver and create it anew, because cached handles seldom have the size that is
//!    missing
//! 7. use free blocks of pools created with `use_on_oom`
//! 8. call the program's callbacks, which may free memory
//! 9. ask the processes that share the device for idle memory
//! 10. wait for the device
//!
//! While memory is plentiful, small blocks begin with the search of step 1 and step 4.
//!
//! Steps 1 to 9 do not wait for device work.

use super::{
    arena::Arena,
    block::{Zone, zone_of},
    cache, callbacks, config,
    device_memory::{DeviceMemory, Method},
    grow::{Grower, GrowthLimits, MoveSource, Request},
    history::{Action, Source},
    peak_budget,
    policy::{self, Supply},
    pool::{self, PoolId},
    recorder, share, split_handle, stats_aggregation, stream_events, trackers,
    unreleasable::HandleSplit,
};
use crate::{
    base::{
        log::{self, Level},
        units::Bytes,
    },
    driver::Stream,
    error::{Error, Result},
    runtime::{Runtime, device::Device, sync_debug},
    status::Status,
    stream::capture_status::may_capture,
};
use std::sync::atomic::Ordering;

/// What a process asks of others beyond the size of its request, in bytes.
const SHARE_MARGIN: u64 = 64 << 20;

/// Serves a request that no free block of the arena fits. Returns `None` if the arena's generation changed.
#[cold]
pub fn allocate_slow(
    runtime: &'static Runtime,
    device: &'static Device,
    arena: &'static Arena,
    generation: u32,
    request: Request,
) -> Result<Option<u64>> {
    let slow_path = SlowPath { runtime, device, arena, generation, stream: arena.stream_use().stream, request };
    let mut outcome = slow_path.run(false)?;
    // Callbacks are the program's code, so no lock is held and no driver setting is changed while they run. If callbacks report
    // freed memory, the steps are repeated as long as less is live, less is held, or more is free than ever before.
    let mut best: Option<[u64; 3]> = None;
    while outcome == Outcome::Short && callbacks::free_memory(device.ordinal, request.requested) {
        let free = device.memory_info(&runtime.driver)?.0;
        let now = [peak_budget::read(device.memory()).live().0, device.memory().held(), u64::MAX - free];
        if best.is_some_and(|best| now.iter().zip(best).all(|(now, best)| *now >= best)) {
            break;
        }
        best = Some(best.map_or(now, |best| std::array::from_fn(|index| best[index].min(now[index]))));
        outcome = slow_path.run(false)?;
    }
    // The driver needs some memory of its own for what it maps, so the size alone may not suffice.
    let mut wanted = request.size.saturating_add(SHARE_MARGIN);
    while outcome == Outcome::Short && share::ask(runtime, device, request.size, wanted)? {
        outcome = slow_path.run(false)?;
        wanted = wanted.saturating_mul(2);
    }
    if outcome == Outcome::Short {
        outcome = slow_path.run(true)?;
        if matches!(outcome, Outcome::Served(_)) {
            device.memory().retries.increment();
            log::log(Level::Info, || {
                let (bytes, device) = (Bytes(request.requested), device.ordinal);
                format!("device {device} was out of memory for a request of {bytes} until the call had waited for it")
            });
        }
    }
    match outcome {
        Outcome::Served(address) => {
            share::note_growth(device);
            Ok(Some(address))
        }
        Outcome::Stale => Ok(None),
        Outcome::Short => {
            device.memory().ooms.increment();
            let shortage = stats_aggregation::shortage(runtime, device, arena, request);
            let key = arena.key();
            let source = Source { device: device.ordinal, stream: key.stream, pool: key.pool };
            recorder::record_without_arena(source, Action::Oom, shortage.free, request.requested);
            trackers::deliver();
            callbacks::observe(device.ordinal, request.requested, shortage.total, shortage.free);
            Err(Error::new(Status::OUT_OF_MEMORY, shortage.to_string()))
        }
    }
}

/// The result of one pass over the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The request was served by the block at this address.
    Served(u64),
    /// There is not enough memory.
    Short,
    /// The arena's generation changed.
    Stale,
}

struct SlowPath {
    runtime: &'static Runtime,
    device: &'static Device,
    arena: &'static Arena,
    generation: u32,
    stream: Stream,
    request: Request,
}

impl SlowPath {
    fn memory(&self) -> &'static DeviceMemory {
        self.device.memory()
    }

    /// Runs all steps except the program's callbacks. Waits for the device first if `wait` is set.
    fn run(&self, wait: bool) -> Result<Outcome> {
        self.device.with_context(&self.runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let _growth = self.arena.growth.lock();
                let locked_budget = pool::lock_budget(self.arena.key().pool);
                // The arena cannot be retired while this thread holds `growth`.
                if self.arena.lock().space.generation != self.generation {
                    return Ok(Outcome::Stale);
                }
                let budget = locked_budget.as_ref().map(|locked| locked.0);
                Ok(match self.run_steps(wait, budget)? {
                    Some(address) => Outcome::Served(address),
                    None => Outcome::Short,
                })
            })?
        })
    }

    fn run_steps(&self, wait: bool, budget: Option<u64>) -> Result<Option<u64>> {
        if wait {
            self.wait_for_device()?;
        }
        let limit = self.memory().max_held(self.device, &self.runtime.driver)?;
        let grower = Grower { runtime: self.runtime, device: self.device, arena: self.arena, stream: self.stream };
        let allowance = || budget.map_or(u64::MAX, |budget| self.remaining_budget(budget));
        // A count locks all arenas, and many threads may need small blocks. While memory is plentiful, no limit of the search or of
        // the growth depends on the count.
        if zone_of(self.request.size) == Zone::Small && self.memory().supply(limit) == Supply::Plenty {
            if let Ok(address) = self.search() {
                return Ok(Some(address));
            }
            self.collect_garbage()?;
            if let Some(address) = grower.grow(self.request, GrowthLimits::creation(limit, allowance(), 0))? {
                return Ok(Some(address));
            }
        }
        let (counted, allocated) = peak_budget::flush_peak(self.memory(), self.arena, |moment| {
            moment.arenas().map(|inner| inner.space.counters.allocated_in(Zone::Large)).sum()
        });
        let (live, live_peak) = counted.live();
        let peak = live.saturating_add(self.request.size).max(live_peak);
        let earned = self.memory().moves.lock().earned_slack(allocated, peak);
        let supply = self.memory().supply(limit);
        let arenas = self.memory().count_arenas();
        let section_growth = self.section_growth(supply, peak, limit)?;
        let soft = if section_growth.is_some() {
            policy::soft_limit_with_sections(peak, earned, arenas, limit)
        } else {
            policy::soft_limit(peak, earned, arenas)
        };
        let soft = soft.min(limit);
        // The addresses of a graph's inputs are those of the default pool.
        let section_growth = section_growth.filter(|_| self.arena.key().pool == PoolId::DEFAULT);
        self.arena.lock().space.uses_sections = section_growth.is_some();
        self.set_unreleasable_limits(supply, limit, soft, live, live_peak);
        if let Some(address) = self.search_again() {
            return Ok(Some(address));
        }
        self.collect_garbage()?;
        let limits = |max_held, move_from, move_first| GrowthLimits {
            max_held,
            move_from,
            move_first,
            ..GrowthLimits::creation(limit, allowance(), live)
        };
        if section_growth.is_some() && zone_of(self.request.size) == Zone::Large {
            let max_held = policy::most_in_sections(live.saturating_add(self.request.size), peak, soft);
            let step = GrowthLimits { section_growth, ..limits(max_held, MoveSource::Nothing, false) };
            if let Some(address) = grower.grow(self.request, step)? {
                return Ok(Some(address));
            }
            // Blocks are packed into other memory.
            self.arena.lock().space.uses_sections = false;
        }
        // Small blocks need little memory, and many threads may wait for theirs: moving memory for them does not pay
        // off.
        let soft_steps = match zone_of(self.request.size) {
            Zone::Small => vec![],
            Zone::Large => vec![limits(soft, MoveSource::Nothing, false), limits(soft, MoveSource::Idle, false)],
        };
        let hard_steps = match zone_of(self.request.size) {
            Zone::Small => [limits(limit, MoveSource::Nothing, false), limits(limit, MoveSource::Idle, true)],
            Zone::Large => [limits(limit, MoveSource::Idle, true), limits(limit, MoveSource::Nothing, false)],
        };
        for step in soft_steps.into_iter().chain(hard_steps) {
            if let Some(address) = grower.grow(self.request, step)? {
                return Ok(Some(address));
            }
        }
        // The device may have less free memory than the limit allows, because other processes use it too.
        let max_held = self.max_holdable(limit)?;
        for move_from in [MoveSource::Idle, MoveSource::Ordered] {
            if let Some(address) = grower.grow(self.request, limits(max_held, move_from, true))? {
                return Ok(Some(address));
            }
        }
        cache::release_idle(self.runtime, self.device, self.arena, wait)?;
        if let Some(address) = self.search_again() {
            return Ok(Some(address));
        }
        let max_held = self.max_holdable(limit)?;
        for move_from in [MoveSource::Nothing, MoveSource::Idle] {
            if let Some(address) = grower.grow(self.request, limits(max_held, move_from, false))? {
                return Ok(Some(address));
            }
        }
        Ok(self.allocate_from_oom_pools())
    }

    /// Returns [`policy::section_growth`] if addresses should repeat on the device.
    fn section_growth(&self, supply: Supply, peak: u64, limit: u64) -> Result<Option<u64>> {
        Ok(match self.memory().method(self.device, &self.runtime.driver)? {
            Method::Virtual { granule } if self.memory().compares_addresses.load(Ordering::Relaxed) => {
                policy::section_growth(supply, peak, limit, granule)
            }
            Method::Virtual { .. } | Method::Segments => None,
        })
    }

    /// Returns idle memory to the driver before more is created, if the garbage collection threshold and a limit are
    /// set: the amount held above that fraction of the limit.
    fn collect_garbage(&self) -> Result<()> {
        let threshold = config::get()?.garbage_collection_threshold;
        let total = self.memory().total(self.device, &self.runtime.driver)?;
        if threshold > 0.0
            && let Some(limit) = self.memory().limit(total)
        {
            let max_held = (limit as f64 * threshold) as u64;
            cache::collect(self.runtime, self.device, self.arena, max_held.saturating_sub(self.request.size));
        }
        Ok(())
    }

    /// Returns the bytes that remain of the pool's budget.
    fn remaining_budget(&self, budget: u64) -> u64 {
        budget.saturating_sub(stats_aggregation::pool_bytes(self.memory(), self.arena.key().pool).1)
    }

    /// Returns how many bytes may be held, given what the device has left.
    fn max_holdable(&self, limit: u64) -> Result<u64> {
        let (free, _) = self.device.memory_info(&self.runtime.driver)?;
        Ok(limit.min(self.memory().held().saturating_add(free)))
    }

    /// Searches the arena for a block, after what is free by now has been coalesced. Fails with the split of a handle that would
    /// make a block fit, if any.
    fn search(&self) -> std::result::Result<u64, Option<HandleSplit>> {
        stream_events::process_events(self.runtime, self.device, self.arena, false);
        let mut inner = self.arena.lock();
        inner.space.coalesce_all();
        let found = inner.space.allocate(self.request.size, self.request.requested);
        found.ok_or_else(|| inner.space.take_pending_split())
    }

    /// Searches the arena, and splits a handle if a block fits but would leave memory unreleasable.
    fn search_again(&self) -> Option<u64> {
        let split = match self.search() {
            Ok(address) => return Some(address),
            Err(split) => split?,
        };
        split_handle::split(self.runtime, self.device, self.arena, split);
        self.arena.lock().space.allocate_unconditionally(self.request.size, self.request.requested)
    }

    /// Sets how much of the arena's memory may be unreleasable.
    fn set_unreleasable_limits(&self, supply: Supply, limit: u64, budget: u64, live: u64, live_peak: u64) {
        let mut inner = self.arena.lock();
        let live_elsewhere = live.saturating_sub(inner.space.counters.live());
        let limits = policy::unreleasable_limits(supply, limit, budget, live_elsewhere, live_peak);
        inner.space.set_unreleasable_limits(limits);
    }

    /// Allocates from free blocks of pools created with `use_on_oom`, of the same stream, for requests of the default
    /// pool.
    fn allocate_from_oom_pools(&self) -> Option<u64> {
        let key = self.arena.key();
        if key.pool != PoolId::DEFAULT {
            return None;
        }
        for arena in self.memory().arenas() {
            let mut inner = arena.lock();
            let other = inner.key;
            if (other.stream, other.thread) != (key.stream, key.thread) || !pool::is_used_on_oom(other.pool) {
                continue;
            }
            inner.space.coalesce_all();
            let size = inner.memory.round(self.request.size);
            if let Some(address) = inner.space.allocate(size, self.request.requested) {
                drop(inner);
                peak_budget::ensure_budget(self.memory(), arena);
                return Some(address);
            }
        }
        None
    }

    /// Last resort: waits for all deferred frees of all arenas and for their streams. Fails if the sync debug mode
    /// forbids that.
    fn wait_for_device(&self) -> Result<()> {
        if may_capture(&self.runtime.driver, self.stream) {
            return Ok(());
        }
        let would_wait = |arena: &&Arena| stream_events::would_wait(self.runtime, self.device, arena);
        if sync_debug::is_on() && self.memory().arenas().iter().any(would_wait) {
            sync_debug::check("an allocation that needs memory of running work")?;
        }
        self.memory().waits.increment();
        // Synchronizing the whole device would invalidate every capture on it.
        for arena in self.memory().arenas() {
            stream_events::process_events(self.runtime, self.device, arena, true);
            stream_events::may_move_memory(self.runtime, self.device, arena, true);
            stream_events::wait_for_stream(self.runtime, arena);
        }
        Ok(())
    }
}
