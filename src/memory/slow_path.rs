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
//! Steps 1 to 8 do not wait for device work; step 9 waits for other processes, which may.

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

/// What the steps of one pass have in common.
#[derive(Debug, Clone, Copy)]
struct Pass {
    /// Whether the pass began with a wait for the device.
    waited: bool,
    /// Whether a search and the creation of memory up to the limit have failed already.
    was_tried: bool,
    /// The pool's budget in bytes, if it has one.
    budget: Option<u64>,
    /// The limit of held bytes of the device.
    limit: u64,
    /// The live bytes of the device.
    live: u64,
    /// Their peak, with this request.
    peak: u64,
    /// The bytes that may be held before memory is moved instead of created.
    soft: u64,
    /// As in [`GrowthLimits`].
    section_growth: Option<u64>,
}

impl SlowPath {
    fn memory(&self) -> &'static DeviceMemory {
        self.device.memory()
    }

    /// Runs all steps except the program's callbacks. Waits for the device first if `wait` is set.
    fn run(&self, wait: bool) -> Result<Outcome> {
        self.device.with_context(&self.runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let is_stale = || self.arena.lock().space.generation != self.generation;
                // With no lock, because other threads may need it for as long.
                if wait && !is_stale() {
                    self.wait_for_device()?;
                }
                let _growth = self.arena.growth.lock();
                let locked_budget = pool::lock_budget(self.arena.key().pool);
                // The arena cannot be retired while this thread holds `growth`.
                if is_stale() {
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

    fn run_steps(&self, waited: bool, budget: Option<u64>) -> Result<Option<u64>> {
        let limit = self.memory().max_held(self.device, &self.runtime.driver)?;
        // A count locks all arenas, and many threads may need small blocks. While memory is plentiful, no limit of the search or of
        // the growth depends on the count.
        let is_uncounted = zone_of(self.request.size) == Zone::Small && self.memory().supply(limit) == Supply::Plenty;
        if is_uncounted && let Some(address) = self.search_and_create(limit, budget)? {
            return Ok(Some(address));
        }
        let pass = Pass { waited, was_tried: is_uncounted, ..self.count(limit, budget)? };
        let steps = [
            SlowPath::search_and_collect,
            SlowPath::grow_in_sections,
            SlowPath::grow_within_limits,
            SlowPath::grow_from_busy_arenas,
            SlowPath::release_and_grow,
        ];
        for step in steps {
            if let Some(address) = step(self, &pass)? {
                return Ok(Some(address));
            }
        }
        Ok(self.allocate_from_oom_pools())
    }

    /// Searches the arena, and creates memory up to the limit, for a small block while memory is plentiful.
    fn search_and_create(&self, limit: u64, budget: Option<u64>) -> Result<Option<u64>> {
        if let Ok(address) = self.search() {
            return Ok(Some(address));
        }
        self.collect_garbage()?;
        self.grower().grow(self.request, GrowthLimits::creation(limit, self.allowance(budget), 0))
    }

    /// Adds up what is in use, and sets the limits of the pass and of the arena's blocks.
    fn count(&self, limit: u64, budget: Option<u64>) -> Result<Pass> {
        let (counted, allocated) = peak_budget::flush_peak(self.memory(), self.arena, |moment| {
            moment.arenas().map(|inner| inner.space.counters.allocated_in(Zone::Large)).sum()
        });
        let (live, live_peak) = counted.live();
        let peak = live.saturating_add(self.request.size).max(live_peak);
        let earned = self.memory().moves.lock().earned_slack(allocated, peak);
        let supply = self.memory().supply(limit);
        let arenas = self.memory().count_arenas();
        let section_growth = self.section_growth(supply, peak, limit)?;
        let soft = match section_growth {
            Some(_) => policy::soft_limit_with_sections(peak, earned, arenas, limit),
            None => policy::soft_limit(peak, earned, arenas),
        };
        let soft = soft.min(limit);
        // The addresses of a graph's inputs are those of the default pool.
        let section_growth = section_growth.filter(|_| self.arena.key().pool == PoolId::DEFAULT);
        self.arena.lock().space.uses_sections = section_growth.is_some();
        self.set_unreleasable_limits(supply, limit, soft, live, live_peak);
        Ok(Pass { waited: false, was_tried: false, budget, limit, live, peak, soft, section_growth })
    }

    fn search_and_collect(&self, pass: &Pass) -> Result<Option<u64>> {
        let found = self.search_again();
        if found.is_none() && !pass.was_tried {
            self.collect_garbage()?;
        }
        Ok(found)
    }

    /// Creates memory for whole sections, where addresses must repeat.
    fn grow_in_sections(&self, pass: &Pass) -> Result<Option<u64>> {
        if pass.section_growth.is_none() || zone_of(self.request.size) == Zone::Small {
            return Ok(None);
        }
        let max_held = policy::most_in_sections(pass.live.saturating_add(self.request.size), pass.peak, pass.soft);
        let limits = self.limits(pass, (max_held, MoveSource::Nothing, false));
        let limits = GrowthLimits { section_growth: pass.section_growth, ..limits };
        let address = self.grower().grow(self.request, limits)?;
        if address.is_none() {
            // Blocks are packed into other memory.
            self.arena.lock().space.uses_sections = false;
        }
        Ok(address)
    }

    /// Creates and moves memory, first within the slack, then up to the limit.
    fn grow_within_limits(&self, pass: &Pass) -> Result<Option<u64>> {
        use MoveSource::{Idle, Nothing};
        let (soft, limit) = (pass.soft, pass.limit);
        // Small blocks need little memory, and many threads may wait for theirs: moving memory for them does not pay off.
        match zone_of(self.request.size) {
            Zone::Small if pass.was_tried => self.grow(pass, &[(limit, Idle, true)]),
            Zone::Small => self.grow(pass, &[(limit, Nothing, false), (limit, Idle, true)]),
            Zone::Large => self.grow(
                pass,
                &[(soft, Nothing, false), (soft, Idle, false), (limit, Idle, true), (limit, Nothing, false)],
            ),
        }
    }

    /// Moves memory of every arena. The device may have less free memory than the limit allows, because other processes use it.
    fn grow_from_busy_arenas(&self, pass: &Pass) -> Result<Option<u64>> {
        let max_held = self.max_holdable(pass.limit)?;
        self.grow(pass, &[(max_held, MoveSource::Idle, true), (max_held, MoveSource::Ordered, true)])
    }

    /// Returns idle memory to the driver, and creates it anew in the size that is missing.
    fn release_and_grow(&self, pass: &Pass) -> Result<Option<u64>> {
        cache::release_idle(self.runtime, self.device, self.arena, pass.waited)?;
        if let Some(address) = self.search_again() {
            return Ok(Some(address));
        }
        let max_held = self.max_holdable(pass.limit)?;
        self.grow(pass, &[(max_held, MoveSource::Nothing, false), (max_held, MoveSource::Idle, false)])
    }

    /// Tries growths in order; see [`SlowPath::limits`].
    fn grow(&self, pass: &Pass, growths: &[(u64, MoveSource, bool)]) -> Result<Option<u64>> {
        for growth in growths {
            if let Some(address) = self.grower().grow(self.request, self.limits(pass, *growth))? {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    /// Returns the limits of a growth, given the most bytes to hold, where memory may be moved from, and whether that comes first.
    fn limits(&self, pass: &Pass, (max_held, move_from, move_first): (u64, MoveSource, bool)) -> GrowthLimits {
        let creation = GrowthLimits::creation(pass.limit, self.allowance(pass.budget), pass.live);
        GrowthLimits { max_held, move_from, move_first, ..creation }
    }

    fn grower(&self) -> Grower<'static> {
        Grower { runtime: self.runtime, device: self.device, arena: self.arena, stream: self.stream }
    }

    /// Returns the bytes by which the pool may grow: what remains of its budget, if it has one.
    fn allowance(&self, budget: Option<u64>) -> u64 {
        let held = || stats_aggregation::pool_bytes(self.memory(), self.arena.key().pool).1;
        budget.map_or(u64::MAX, |budget| budget.saturating_sub(held()))
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

    /// Returns how many bytes may be held, given what the device has left.
    fn max_holdable(&self, limit: u64) -> Result<u64> {
        let (free, _) = self.device.memory_info(&self.runtime.driver)?;
        Ok(limit.min(self.memory().held().saturating_add(free)))
    }

    /// Searches the arena for a block, after what is free by now has been coalesced. Fails with the split of a handle that would
    /// make a block fit, if any.
    fn search(&self) -> std::result::Result<u64, Option<HandleSplit>> {
        stream_events::process_events(self.runtime, self.device, self.arena);
        let mut inner = self.arena.lock();
        inner.space.coalesce_all();
        // A split that an earlier search proposed is of no use for this one.
        inner.space.take_pending_split();
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
            stream_events::wait_for_events(self.runtime, self.device, arena);
            stream_events::wait_for_stream(self.runtime, arena);
        }
        Ok(())
    }
}
