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
    cache, callbacks,
    device_memory::DeviceMemory,
    gauge,
    grow::{Grower, Means, Request, Steal},
    marks, peak, policy,
    pool::{self, PoolId},
};
use crate::{
    device::Device,
    driver::Stream,
    error::{Error, Result},
    runtime::Runtime,
    status::Status,
};

/// Meets a request that the arena's free blocks do not.
#[cold]
pub fn climb(
    runtime: &'static Runtime,
    device: &'static Device,
    arena: &'static Arena,
    request: Request,
) -> Result<u64> {
    let ladder = Ladder { runtime, device, arena, stream: *arena.stream.lock(), request };
    let found = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| ladder.climb_without_callbacks(false))?
    })?;
    if let Some(address) = found {
        return Ok(address);
    }
    // Callbacks are the program's code: nothing is held while they run, and nothing of the driver's is changed.
    while callbacks::free_memory(device.ordinal, request.requested) {
        let found = device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| ladder.climb_without_callbacks(false))?
        })?;
        if let Some(address) = found {
            return Ok(address);
        }
    }
    let found = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| ladder.climb_without_callbacks(true))?
    })?;
    if let Some(address) = found {
        device.memory.retries.add();
        return Ok(address);
    }
    device.memory.ooms.add();
    let shortage = gauge::shortage(runtime, device, arena, request);
    callbacks::observe(device.ordinal, request.requested, shortage.total, shortage.free);
    Err(Error::new(Status::OUT_OF_MEMORY, shortage.to_string()))
}

struct Ladder {
    runtime: &'static Runtime,
    device: &'static Device,
    arena: &'static Arena,
    stream: Stream,
    request: Request,
}

impl Ladder {
    fn memory(&self) -> &'static DeviceMemory {
        &self.device.memory
    }

    fn climb_without_callbacks(&self, wait: bool) -> Result<Option<u64>> {
        let growing = self.arena.growth.lock();
        if wait {
            self.wait_for_the_device();
        }
        if let Some(address) = self.look_again() {
            return Ok(Some(address));
        }
        let grower = Grower { runtime: self.runtime, device: self.device, arena: self.arena, stream: self.stream };
        let limit = self.limit()?;
        let (live, live_peak) = peak::settle(self.memory(), self.arena);
        let soft = policy::soft_limit(live, live_peak, self.request.size).min(limit);
        for (most, steal) in
            [(soft, Steal::Nothing), (soft, Steal::Idle), (limit, Steal::Nothing), (limit, Steal::Idle)]
        {
            if let Some(address) = grower.grow(self.request, Means { most, steal })? {
                return Ok(Some(address));
            }
        }
        // The card may have less than the limit allows: other programs use it, too.
        let (free, _) = self.device.memory_info(&self.runtime.driver)?;
        let most = limit.min(self.memory().held().saturating_add(free));
        for steal in [Steal::Idle, Steal::Ordered] {
            if let Some(address) = grower.grow(self.request, Means { most, steal })? {
                return Ok(Some(address));
            }
        }
        cache::release_idle(self.runtime, self.device, self.arena, wait);
        if let Some(address) = self.look_again() {
            return Ok(Some(address));
        }
        let (free, _) = self.device.memory_info(&self.runtime.driver)?;
        let most = limit.min(self.memory().held().saturating_add(free));
        if let Some(address) = grower.grow(self.request, Means { most, steal: Steal::Idle })? {
            return Ok(Some(address));
        }
        drop(growing);
        Ok(self.take_from_willing_pools())
    }

    fn limit(&self) -> Result<u64> {
        let total = self.memory().total(self.device, &self.runtime.driver)?;
        Ok(self.memory().limit(total).unwrap_or(total))
    }

    fn look_again(&self) -> Option<u64> {
        marks::reap(self.runtime, self.device, self.arena, false);
        let mut inner = self.arena.inner.lock();
        inner.space.settle();
        inner.space.take(self.request.size, self.request.requested)
    }

    /// The free blocks of pools that were made with `use_on_oom`, of the same stream: for requests of the default pool.
    fn take_from_willing_pools(&self) -> Option<u64> {
        let key = self.arena.key();
        if key.pool != PoolId::DEFAULT {
            return None;
        }
        for arena in self.memory().arenas() {
            let other = arena.key();
            if (other.stream, other.thread) != (key.stream, key.thread) || !pool::options(other.pool).use_on_oom {
                continue;
            }
            let mut inner = arena.inner.lock();
            inner.space.settle();
            if let Some(address) = inner.space.take(self.request.size, self.request.requested) {
                return Some(address);
            }
        }
        None
    }

    /// The last resort: waits for all that other arenas wait for, and for their streams.
    fn wait_for_the_device(&self) {
        if marks::is_capturing(&self.runtime.driver, self.stream) {
            return;
        }
        self.memory().waits.add();
        for arena in self.memory().arenas() {
            marks::reap(self.runtime, self.device, arena, true);
        }
        // Some stream may be capturing, and then nothing may be waited for as a whole; what is idle is taken anyway.
        let _ = self.runtime.driver.context_synchronize();
    }
}
