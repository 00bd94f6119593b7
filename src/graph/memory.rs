//! The memory of a graph's pool: usage, and sleep, which releases physical memory and keeps the addresses.

use super::lock;
use crate::{
    error::{Context, Result},
    memory::{self, PoolId, pool, trackers},
    runtime::{self, sync_debug},
};

/// Returns the bytes that are allocated and reserved in a graph's pool, on all devices.
pub fn usage(handle: u64) -> Result<(u64, u64)> {
    let runtime = runtime::ready()?;
    Ok(memory::pool_memory_in_all(runtime, super::pool(handle)?))
}

/// Returns a new ID for a pool that graphs share.
pub fn pool_handle() -> PoolId {
    pool::new_graph_id()
}

/// Releases the physical memory of a graph's pool to the driver. Waits for the work of the devices.
pub fn sleep(handle: u64) -> Result<()> {
    // Trackers may call back into this graph, so they run after the graph and its pool are unlocked.
    let slept = put_to_sleep(handle);
    trackers::deliver();
    slept
}

fn put_to_sleep(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let graph_state = lock(handle)?;
    let resources = &graph_state.ready("putting a graph's memory to sleep")?.resources;
    sync_debug::check("plinth_graph_sleep")?;
    // Held so that no replay is launched while the memory is released.
    let mut last_replay = resources.pool.lock_last_replay();
    last_replay.disable_fast_path();
    memory::pool_sleep(runtime, resources.pool.id).context(|| "putting a graph's memory to sleep")
}

/// Maps physical memory for a graph's pool again, at the same addresses.
pub fn wake(handle: u64) -> Result<()> {
    let woken = wake_up(handle);
    trackers::deliver();
    woken
}

fn wake_up(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let graph_state = lock(handle)?;
    let resources = &graph_state.ready("waking a graph's memory")?.resources;
    let _last_replay = resources.pool.lock_last_replay();
    memory::pool_wake(runtime, resources.pool.id).context(|| "waking a graph's memory")
}

/// Returns whether the memory of a graph's pool is asleep.
pub fn is_asleep(handle: u64) -> Result<bool> {
    Ok(pool::is_suspended(super::pool(handle)?))
}
