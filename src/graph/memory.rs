//! What the pool of a graph holds, and how it sleeps: its physical memory goes back, its addresses stay.

use super::lock;
use crate::{
    error::{Context, Result},
    memory::{self, PoolId, pool, trackers},
    runtime::{self, sync_debug},
};

/// The bytes that are allocated and held in a graph's pool, on all devices.
pub fn usage(handle: u64) -> Result<(u64, u64)> {
    let runtime = runtime::ready()?;
    Ok(memory::pool_memory_in_all(runtime, super::pool(handle)?))
}

/// A name for a pool that graphs are to share.
pub fn pool_handle() -> PoolId {
    pool::new_id()
}

/// Gives the physical memory of a graph's pool back to the driver. Waits for the work of the devices.
pub fn sleep(handle: u64) -> Result<()> {
    // Trackers may ask for anything, this graph too: they hear of it when neither it nor its pool is locked any more.
    let slept = put_to_sleep(handle);
    trackers::deliver();
    slept
}

fn put_to_sleep(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let body = lock(handle)?;
    let kept = &body.ready("letting a graph's memory sleep")?.kept;
    sync_debug::check("plinth_graph_sleep")?;
    // No replay is launched while the memory goes.
    let mut turn = kept.pool.turn();
    turn.interrupt();
    memory::pool_sleep(runtime, kept.pool.id).context(|| "letting a graph's memory sleep")
}

/// Gives a graph's pool memory again, at the addresses that it had.
pub fn wake(handle: u64) -> Result<()> {
    let woken = wake_up(handle);
    trackers::deliver();
    woken
}

fn wake_up(handle: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    let body = lock(handle)?;
    let kept = &body.ready("waking a graph's memory")?.kept;
    let _turn = kept.pool.turn();
    memory::pool_wake(runtime, kept.pool.id).context(|| "waking a graph's memory")
}

/// Whether the memory of a graph's pool sleeps.
pub fn is_asleep(handle: u64) -> Result<bool> {
    Ok(pool::is_suspended(super::pool(handle)?))
}
