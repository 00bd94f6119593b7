//! The calls about pools.

use super::{
    Arena, PoolId,
    backend::{self, PoolNews},
    cache,
    device_memory::device,
    pool::{self, Options},
    route::{self, Who},
    stats_aggregation, stream_events, trackers,
};
use crate::{
    driver::{self, plugin::Plugin},
    error::{Error, Result},
    runtime::{self, Runtime, thread},
    status::Status,
    stream::Stream,
};
use std::{sync::Arc, time::Instant};

/// Makes a pool.
pub fn pool_create(options: Options, allocator: Option<Arc<Plugin>>) -> Result<PoolId> {
    runtime::ready()?;
    Ok(pool::create(options, allocator))
}

/// Says how much physical memory a pool may hold on each device.
pub fn pool_set_budget(id: PoolId, budget: Option<u64>) -> Result<()> {
    runtime::ready()?;
    pool::set_budget(id, budget)
}

/// How much that is.
pub fn pool_budget(id: PoolId) -> Result<Option<u64>> {
    runtime::ready()?;
    pool::budget(id)
}

/// Gives a pool up. What is allocated in it stays valid until it is freed.
pub fn pool_destroy(id: PoolId) -> Result<()> {
    let runtime = runtime::ready()?;
    pool::destroy(id)?;
    for device in runtime.devices() {
        give_up(runtime, device.ordinal, id);
    }
    Ok(())
}

/// Says whether the default pool may take the pool's free memory when there is no other.
pub fn pool_set_use_on_oom(id: PoolId, use_on_oom: bool) -> Result<()> {
    runtime::ready()?;
    pool::set_use_on_oom(id, use_on_oom)
}

/// How many users a pool has on a device.
pub fn pool_use_count(id: PoolId, number: i32) -> Result<u32> {
    pool::users(id, runtime::ready()?.device(number)?.ordinal)
}

/// What is allocated and held in a pool of a device.
pub fn pool_memory(id: PoolId, number: i32) -> Result<(u64, u64)> {
    Ok(stats_aggregation::of_pool(&runtime::ready()?.device(number)?.memory, id))
}

/// Lets requests on a device go to a pool.
pub fn begin_allocate_to_pool(number: i32, who: Who, id: PoolId) -> Result<()> {
    let device = runtime::ready()?.device(number)?;
    if id == PoolId::DEFAULT {
        return Err(Error::new(Status::INVALID_VALUE, "the default pool is where requests go anyway"));
    }
    check_awake(id)?;
    device.memory.routes.begin(who, id, None)?;
    pool::add_user(id, device.ordinal);
    if who != Who::Capture {
        pool::set_eager(id);
    }
    backend::tell_of_pool(PoolNews::Begun, device.ordinal, id);
    Ok(())
}

fn check_awake(id: PoolId) -> Result<()> {
    if pool::is_asleep(id) {
        return Err(Error::new(Status::GRAPH_ASLEEP, format!("pool {id} sleeps, and nothing can be allocated in it")));
    }
    Ok(())
}

/// Lets the requests of one capture go to a pool, on every device, each of which gains a user of it.
pub fn begin_capture_to_pool(runtime: &Runtime, id: PoolId, capture: u64) -> Result<()> {
    check_awake(id)?;
    for (index, device) in runtime.devices().iter().enumerate() {
        if let Err(error) = device.memory.routes.begin(Who::Capture, id, Some(capture)) {
            for begun in &runtime.devices()[..index] {
                // It was begun a moment ago.
                let _ = begun.memory.routes.end(id);
            }
            return Err(error);
        }
    }
    for device in runtime.devices() {
        pool::add_user(id, device.ordinal);
    }
    Ok(())
}

/// Ends that; the users stay.
pub fn end_capture_to_pool(runtime: &Runtime, id: PoolId) {
    for device in runtime.devices() {
        // Each was begun.
        let _ = device.memory.routes.end(id);
    }
}

/// The streams behind which the memory of a pool goes back.
pub fn streams_of_pool(runtime: &Runtime, id: PoolId) -> Vec<Stream> {
    let arenas = runtime.devices().iter().flat_map(|device| device.memory.arenas_of(id));
    arenas.map(|arena| stream_events::stream_of(runtime, arena)).collect()
}

/// Takes the users of a capture's graph away: with the last one the pool's free memory goes back.
pub fn release_captured_pool(runtime: &'static Runtime, id: PoolId) {
    for device in runtime.devices() {
        if matches!(pool::remove_user(id, device.ordinal), Ok(0)) {
            give_up(runtime, device.ordinal, id);
        }
    }
}

/// What is allocated and held in a pool on all devices.
pub fn pool_memory_in_all(runtime: &Runtime, id: PoolId) -> (u64, u64) {
    let parts = runtime.devices().iter().map(|device| stats_aggregation::of_pool(&device.memory, id));
    parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// As above, for the calling thread.
pub fn begin_allocate_current_thread_to_pool(number: i32, id: PoolId) -> Result<()> {
    begin_allocate_to_pool(number, Who::Thread(thread::number()), id)
}

/// As above, for one stream.
pub fn begin_allocate_stream_to_pool(number: i32, stream: driver::Stream, id: PoolId) -> Result<()> {
    begin_allocate_to_pool(number, Who::Stream(stream.handle()), id)
}

/// Ends that.
pub fn end_allocate_to_pool(number: i32, id: PoolId) -> Result<()> {
    let device = runtime::ready()?.device(number)?;
    device.memory.routes.end(id)?;
    backend::tell_of_pool(PoolNews::Ended, device.ordinal, id);
    Ok(())
}

/// Takes a user of a pool away; with the last one its free memory goes back.
pub fn release_pool(number: i32, id: PoolId) -> Result<()> {
    let runtime = runtime::ready()?;
    let ordinal = runtime.device(number)?.ordinal;
    let left = pool::remove_user(id, ordinal)?;
    backend::tell_of_pool(PoolNews::Released, ordinal, id);
    if left == 0 {
        give_up(runtime, ordinal, id);
    }
    Ok(())
}

/// Gives back what is free of a pool that nobody uses any more on a device. What the driver does not take now stays
/// cached: the pool is gone all the same, and whoever needs the memory next tries again.
fn give_up(runtime: &'static Runtime, number: u32, id: PoolId) {
    if pool::in_use(id, number) {
        return;
    }
    let Ok(device) = device(runtime, number) else { return };
    let arenas = device.memory.arenas_of(id);
    if arenas.is_empty() {
        return;
    }
    route::forget();
    for arena in &arenas {
        arena.lock().space.orphaned = true;
    }
    let _ = cache::empty_arenas(runtime, device, arenas, Instant::now() + cache::GRACE);
    trackers::deliver();
}

/// Gives back the memory of an arena whose pool is gone, and whose last block is free now.
#[cold]
pub fn bury(arena: &'static Arena) {
    if let Some(runtime) = runtime::usable() {
        give_up(runtime, arena.device, arena.key().pool);
    }
}
