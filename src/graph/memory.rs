//! The memory of a graph's pool: usage, and sleep, which releases physical memory and keeps the addresses.

use super::{lock, replay_order};
use crate::{
    error::{Context, Result},
    memory::{
        self, PoolId, pool,
        sleep::{self as memory_sleep, LiveBlocks, backup::Options},
        trackers,
    },
    runtime::{self, Runtime, sync_debug},
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
    let attempt = "putting a graph's memory to sleep";
    lock(handle)?.ready(attempt)?;
    // Calls the program's callback, which may use the graph.
    sync_debug::check("plinth_graph_sleep")?;
    let graph_state = lock(handle)?;
    let resources = graph_state.ready(attempt)?.replay_resources();
    // Held so that no replay is launched while the memory is released.
    let mut last_replay = resources.pool.lock_last_replay();
    last_replay.disable_fast_path();
    memory_sleep::sleep(runtime, &[resources.pool.id], &Options::default(), LiveBlocks::Refuse).context(|| attempt)
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
    let resources = graph_state.ready("waking a graph's memory")?.replay_resources();
    let _last_replay = resources.pool.lock_last_replay();
    memory_sleep::wake(runtime, &[resources.pool.id], false).context(|| "waking a graph's memory")
}

/// Returns whether the memory of a graph's pool is asleep.
pub fn is_asleep(handle: u64) -> Result<bool> {
    Ok(pool::is_suspended(super::pool(handle)?))
}

/// Puts the pools with these tags to sleep. Waits for the work of the devices. With an empty list, every pool that has a tag
/// sleeps, and memory that is cached elsewhere is released too, as with [`Options::release_workspaces`].
pub fn sleep_tagged(tags: &str, options: &Options) -> Result<()> {
    let runtime = runtime::ready()?;
    let ids = pool::tagged(tags)?;
    let slept = put_tagged_to_sleep(runtime, ids.clone(), tags, options);
    if slept.is_err() {
        // What could not be released while the pools were about to sleep.
        ids.into_iter().for_each(|id| memory::release_woken(runtime, id));
    }
    trackers::deliver();
    slept
}

fn put_tagged_to_sleep(runtime: &'static Runtime, mut ids: Vec<PoolId>, tags: &str, options: &Options) -> Result<()> {
    sync_debug::check("plinth_memory_sleep")?;
    // In one order in all threads, because several pools are locked at once here and by replays of graphs with parts.
    ids.sort_unstable();
    if options.release_registrations {
        memory_sleep::release_registrations(runtime, &ids)?;
    }
    // Also of pools without a graph: one may be captured while this waits for another sleep or wake.
    let shared: Vec<_> = ids.iter().map(|id| replay_order::shared_pool(*id)).collect();
    let mut last_replays: Vec<_> = shared.iter().map(|pool| pool.lock_last_replay()).collect();
    last_replays.iter_mut().for_each(|last_replay| last_replay.disable_fast_path());
    memory_sleep::sleep(runtime, &ids, options, LiveBlocks::Allow)?;
    if tags.is_empty() || options.release_workspaces {
        memory::empty_cache()?;
    }
    Ok(())
}

/// Wakes the pools with these tags, in the order of the tags. With `asynchronous`, does not wait for the copies of pinned
/// backups.
pub fn wake_tagged(tags: &str, asynchronous: bool) -> Result<()> {
    let woken = wake_pools(tags, asynchronous);
    trackers::deliver();
    woken
}

fn wake_pools(tags: &str, asynchronous: bool) -> Result<()> {
    let runtime = runtime::ready()?;
    let ids = pool::tagged(tags)?;
    if !asynchronous {
        sync_debug::check("plinth_memory_wake")?;
    }
    memory_sleep::wake(runtime, &ids, asynchronous)
}
