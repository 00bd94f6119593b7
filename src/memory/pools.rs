//! The calls about pools.

use super::{
    Arena, PoolId, cache,
    device_memory::device,
    gauge,
    pool::{self, Options},
    route::{self, Who},
};
use crate::{
    driver::Stream,
    error::{Error, Result},
    runtime::{self, Runtime},
    status::Status,
    thread,
};
use std::time::Instant;

/// Makes a pool.
pub fn pool_create(options: Options) -> Result<PoolId> {
    runtime::ready()?;
    Ok(pool::create(options))
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
    Ok(gauge::of_pool(&runtime::ready()?.device(number)?.memory, id))
}

/// Lets requests on a device go to a pool.
pub fn begin_allocate_to_pool(number: i32, who: Who, id: PoolId) -> Result<()> {
    let device = runtime::ready()?.device(number)?;
    if id == PoolId::DEFAULT {
        return Err(Error::new(Status::INVALID_VALUE, "the default pool is where requests go anyway"));
    }
    device.memory.routes.begin(who, id)?;
    pool::add_user(id, device.ordinal);
    Ok(())
}

/// As above, for the calling thread.
pub fn begin_allocate_current_thread_to_pool(number: i32, id: PoolId) -> Result<()> {
    begin_allocate_to_pool(number, Who::Thread(thread::number()), id)
}

/// As above, for one stream.
pub fn begin_allocate_stream_to_pool(number: i32, stream: Stream, id: PoolId) -> Result<()> {
    begin_allocate_to_pool(number, Who::Stream(stream.handle()), id)
}

/// Ends that.
pub fn end_allocate_to_pool(number: i32, id: PoolId) -> Result<()> {
    runtime::ready()?.device(number)?.memory.routes.end(id)
}

/// Takes a user of a pool away; with the last one its free memory goes back.
pub fn release_pool(number: i32, id: PoolId) -> Result<()> {
    let runtime = runtime::ready()?;
    let ordinal = runtime.device(number)?.ordinal;
    if pool::remove_user(id, ordinal)? == 0 {
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
}

/// Gives back the memory of an arena whose pool is gone, and whose last block is free now.
#[cold]
pub fn bury(arena: &'static Arena) {
    if let Some(runtime) = runtime::usable() {
        give_up(runtime, arena.device, arena.key().pool);
    }
}
