//! What is tried, in turn, when an arena has no block for a request. After each rung the arena is searched again.
//!
//! 1. what is free by now: waits that are over, blocks that were parked and can merge
//! 2. new memory, within a slack of the most that was ever live
//! 3. memory that lies idle in the arena and in idle ones, moved to where it is needed
//! 4. new memory, up to the limit
//! 5. memory of busy arenas, the device ordering one stream after the other
//! 6. whatever is cached, given back to the driver and asked for anew: handles seldom have the size that is missing
//! 7. free blocks of pools that were made for this
//! 8. the program's callbacks, which may free something
//! 9. waiting for the device
//!
//! Rungs 1 to 8 wait for no work of the device.

use super::{
    arena::Arena,
    block::Zone,
    cache, callbacks, config,
    device_memory::DeviceMemory,
    grow::{Grower, Means, Request, Steal},
    history::{self, Action},
    peak_budget, policy,
    pool::{self, PoolId},
    space::zone_of,
    split_handle, stats_aggregation, stream_events,
};
use crate::{
    driver::Stream,
    error::{Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
};

/// Meets a request that the arena's free blocks do not. `None` if the arena is of another generation by now.
#[cold]
pub fn climb(
    runtime: &'static Runtime,
    device: &'static Device,
    arena: &'static Arena,
    generation: u32,
    request: Request,
) -> Result<Option<u64>> {
    let ladder = Ladder { runtime, device, arena, generation, stream: *arena.stream.lock(), request };
    let mut outcome = ladder.climb(false)?;
    // Callbacks are the program's code: nothing is held while they run, and nothing of the driver's is changed. One that
    // says it freed something, again and again, is believed as long as that shows.
    let mut before = None;
    while outcome == Outcome::Short && callbacks::free_memory(device.ordinal, request.requested) {
        let now =
            Some((peak_budget::read(&device.memory).0, device.memory.held(), device.memory_info(&runtime.driver)?.0));
        if now == before {
            break;
        }
        before = now;
        outcome = ladder.climb(false)?;
    }
    if outcome == Outcome::Short {
        outcome = ladder.climb(true)?;
        if matches!(outcome, Outcome::Met(_)) {
            device.memory.retries.one();
        }
    }
    match outcome {
        Outcome::Met(address) => Ok(Some(address)),
        Outcome::Stale => Ok(None),
        Outcome::Short => {
            device.memory.ooms.one();
            let shortage = stats_aggregation::shortage(runtime, device, arena, request);
            let key = arena.key();
            let (action, free) = (Action::Oom, shortage.free);
            history::note_of(device.ordinal, action, free, request.requested, key.stream, key.pool);
            callbacks::observe(device.ordinal, request.requested, shortage.total, shortage.free);
            Err(Error::new(Status::OUT_OF_MEMORY, shortage.to_string()))
        }
    }
}

/// What a climb came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The request is met, by the block at this address.
    Met(u64),
    /// There is not enough memory.
    Short,
    /// The arena is of another generation by now.
    Stale,
}

struct Ladder {
    runtime: &'static Runtime,
    device: &'static Device,
    arena: &'static Arena,
    generation: u32,
    stream: Stream,
    request: Request,
}

impl Ladder {
    fn memory(&self) -> &'static DeviceMemory {
        &self.device.memory
    }

    /// All rungs but the program's callbacks; that of waiting where that is wanted.
    fn climb(&self, wait: bool) -> Result<Outcome> {
        self.device.with_context(&self.runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let _growing = self.arena.growth.lock();
                let turn = pool::budget_turn(self.arena.key().pool);
                // Nobody gives the arena away as long as it may grow.
                if self.arena.lock().space.generation != self.generation {
                    return Ok(Outcome::Stale);
                }
                let budget = turn.as_ref().map(|turn| turn.0);
                Ok(match self.climb_rungs(wait, budget)? {
                    Some(address) => Outcome::Met(address),
                    None => Outcome::Short,
                })
            })?
        })
    }

    fn climb_rungs(&self, wait: bool, budget: Option<u64>) -> Result<Option<u64>> {
        if wait {
            self.wait_for_the_device();
        }
        let limit = self.limit()?;
        let (live, live_peak) = peak_budget::settle(self.memory(), self.arena);
        let arenas = self.memory().count_arenas();
        let soft = policy::soft_limit(live, live_peak, self.request.size, self.memory().moved.get(), arenas).min(limit);
        self.take_care(limit, soft, live, live_peak);
        if let Some(address) = self.look_again() {
            return Ok(Some(address));
        }
        self.collect_garbage()?;
        let grower = Grower { runtime: self.runtime, device: self.device, arena: self.arena, stream: self.stream };
        let means = |most, steal, steal_first| {
            let allowance = budget.map_or(u64::MAX, |budget| self.left_of(budget));
            Means { most, steal, steal_first, live, limit, allowance }
        };
        // Small blocks take little memory, and many threads wait for theirs: it is not worth moving any for them.
        let soft_rungs = match zone_of(self.request.size) {
            Zone::Small => vec![],
            Zone::Large => vec![means(soft, Steal::Nothing, false), means(soft, Steal::Idle, false)],
        };
        let hard_rungs = match zone_of(self.request.size) {
            Zone::Small => [means(limit, Steal::Nothing, false), means(limit, Steal::Idle, true)],
            Zone::Large => [means(limit, Steal::Idle, true), means(limit, Steal::Nothing, false)],
        };
        for rung in soft_rungs.into_iter().chain(hard_rungs) {
            if let Some(address) = grower.grow(self.request, rung)? {
                return Ok(Some(address));
            }
        }
        // The card may have less than the limit allows: other programs use it, too.
        let most = self.most(limit)?;
        for steal in [Steal::Idle, Steal::Ordered] {
            if let Some(address) = grower.grow(self.request, means(most, steal, true))? {
                return Ok(Some(address));
            }
        }
        cache::release_idle(self.runtime, self.device, self.arena, wait);
        if let Some(address) = self.look_again() {
            return Ok(Some(address));
        }
        let most = self.most(limit)?;
        for steal in [Steal::Nothing, Steal::Idle] {
            if let Some(address) = grower.grow(self.request, means(most, steal, false))? {
                return Ok(Some(address));
            }
        }
        Ok(self.take_from_willing_pools())
    }

    /// Gives idle memory back before more is taken, where the settings say so and a limit was set: as much as is held
    /// beyond the part of the limit that they name.
    fn collect_garbage(&self) -> Result<()> {
        let threshold = config::get()?.garbage_collection_threshold;
        let total = self.memory().total(self.device, &self.runtime.driver)?;
        if threshold > 0.0
            && let Some(limit) = self.memory().limit(total)
        {
            let most = (limit as f64 * threshold) as u64;
            cache::collect(self.runtime, self.device, self.arena, most.saturating_sub(self.request.size));
        }
        Ok(())
    }

    fn limit(&self) -> Result<u64> {
        let total = self.memory().total(self.device, &self.runtime.driver)?;
        Ok(self.memory().limit(total).unwrap_or(total))
    }

    /// What the pool may still get of its budget.
    fn left_of(&self, budget: u64) -> u64 {
        budget.saturating_sub(stats_aggregation::of_pool(self.memory(), self.arena.key().pool).1)
    }

    /// How much may be held, with what the device has left.
    fn most(&self, limit: u64) -> Result<u64> {
        let (free, _) = self.device.memory_info(&self.runtime.driver)?;
        Ok(limit.min(self.memory().held().saturating_add(free)))
    }

    fn look_again(&self) -> Option<u64> {
        stream_events::reap(self.runtime, self.device, self.arena, false);
        let mut inner = self.arena.lock();
        inner.space.settle();
        let (size, requested) = (self.request.size, self.request.requested);
        if let Some(address) = inner.space.take(size, requested) {
            return Some(address);
        }
        // There is a block, but its cut would leave memory stuck: cut the handle first, if that is possible.
        let cut = inner.space.wanted_cut()?;
        drop(inner);
        split_handle::recut(self.runtime, self.device, self.arena, cut);
        self.arena.lock().space.take_anyway(size, requested)
    }

    /// Tells the arena how much of its memory may be stuck.
    fn take_care(&self, limit: u64, budget: u64, live: u64, live_peak: u64) {
        let mut inner = self.arena.lock();
        let elsewhere = live.saturating_sub(inner.space.counters.live);
        let care = policy::care(self.memory().held(), limit, budget, elsewhere, live_peak);
        inner.space.take_care(care);
    }

    /// The free blocks of pools that were made with `use_on_oom`, of the same stream: for requests of the default pool.
    fn take_from_willing_pools(&self) -> Option<u64> {
        let key = self.arena.key();
        if key.pool != PoolId::DEFAULT {
            return None;
        }
        for arena in self.memory().arenas() {
            let mut inner = arena.lock();
            let other = inner.key;
            if (other.stream, other.thread) != (key.stream, key.thread) || !pool::helps_on_oom(other.pool) {
                continue;
            }
            inner.space.settle();
            if let Some(address) = inner.space.take(self.request.size, self.request.requested) {
                return Some(address);
            }
        }
        None
    }

    /// The last resort: waits for all that other arenas wait for, and for their streams.
    fn wait_for_the_device(&self) {
        if stream_events::is_capturing(&self.runtime.driver, self.stream) {
            return;
        }
        self.memory().waits.one();
        // The device cannot be waited for as a whole: that would make every capture on it invalid.
        for arena in self.memory().arenas() {
            stream_events::reap(self.runtime, self.device, arena, true);
            stream_events::wait_for(self.runtime, arena);
        }
    }
}
