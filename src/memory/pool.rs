//! Pools: separate memory for a graph or for a part of a program.
//!
//! A pool is only an id until something is allocated in it. Its memory is in its own arenas, one for each stream. While
//! a pool has users, its memory is not used for other requests, even if it is free: the graph that was captured in it
//! writes to the addresses that it had at capture.

use crate::{
    driver::plugin::Plugin,
    error::{Error, Result},
    status::Status,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The id of a pool, as in torch: pools of captures have an owner, other pools have an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct PoolId {
    /// The capture, or 0.
    pub owner: u64,
    /// The number, or 0.
    pub index: u64,
}

impl PoolId {
    /// The default pool.
    pub const DEFAULT: PoolId = PoolId { owner: 0, index: 0 };
}

impl std::fmt::Display for PoolId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "({}, {})", self.owner, self.index)
    }
}

/// The options of a pool at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether the default pool may use its free memory when no other memory is left.
    pub use_on_oom: bool,
    /// Whether its blocks are never split.
    pub no_split: bool,
}

#[derive(Debug, Default)]
struct Pool {
    options: Options,
    /// The allocator of its memory, if not the driver.
    allocator: Option<Arc<Plugin>>,
    /// The maximum number of physical bytes on each device.
    budget: Option<u64>,
    /// Whether the program created the pool and has not destroyed it.
    created: bool,
    /// Whether memory of it was allocated outside of captures.
    used_outside_captures: bool,
    /// Whether its memory is suspended.
    suspended: bool,
    /// The number of users on each device.
    users: HashMap<u32, u32>,
}

static POOLS: Mutex<Option<HashMap<PoolId, Pool>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn with<T>(body: impl FnOnce(&mut HashMap<PoolId, Pool>) -> T) -> T {
    body(POOLS.lock().get_or_insert_default())
}

#[cold]
fn unknown(id: PoolId) -> Error {
    Error::new(Status::INVALID_HANDLE, format!("unknown pool {id}: it was never created or was destroyed"))
}

/// Returns an unused id.
pub fn new_id() -> PoolId {
    PoolId { owner: 0, index: NEXT.fetch_add(1, Ordering::Relaxed) }
}

/// Returns an unused id of the kind that captures use.
pub fn new_capture_id() -> PoolId {
    PoolId { owner: NEXT.fetch_add(1, Ordering::Relaxed), index: 0 }
}

/// Creates a pool for the program.
pub fn create(options: Options, allocator: Option<Arc<Plugin>>) -> PoolId {
    let id = new_id();
    let pool = Pool { options, allocator, created: true, used_outside_captures: options.use_on_oom, ..Pool::default() };
    with(|pools| pools.insert(id, pool));
    id
}

/// Returns the allocator of a pool's memory, if it is not the driver.
pub fn allocator(id: PoolId) -> Option<Arc<Plugin>> {
    if id == PoolId::DEFAULT {
        return None;
    }
    with(|pools| pools.get(&id)?.allocator.clone())
}

/// Sets the maximum number of physical bytes of a pool on each device.
pub fn set_budget(id: PoolId, budget: Option<u64>) -> Result<()> {
    with(|pools| {
        pools.get_mut(&id).ok_or_else(|| unknown(id))?.budget = budget;
        Ok(())
    })
}

/// Returns the maximum number of physical bytes of a pool on each device.
pub fn budget(id: PoolId) -> Result<Option<u64>> {
    with(|pools| Ok(pools.get(&id).ok_or_else(|| unknown(id))?.budget))
}

/// Returns a pool's budget, and a lock that serializes the growth of pools with a budget: two threads at once could
/// both use the rest of the budget.
pub fn lock_budget(id: PoolId) -> Option<(u64, MutexGuard<'static, ()>)> {
    static LOCK: Mutex<()> = Mutex::new(());
    if id == PoolId::DEFAULT {
        return None;
    }
    let budget = with(|pools| pools.get(&id)?.budget)?;
    Some((budget, LOCK.lock()))
}

/// Marks a pool as destroyed by the program. Returns the devices on which it still has users.
pub fn destroy(id: PoolId) -> Result<Vec<u32>> {
    with(|pools| {
        let pool = pools.get_mut(&id).filter(|pool| pool.created).ok_or_else(|| unknown(id))?;
        pool.created = false;
        pool.options.use_on_oom = false;
        let users = pool.users.keys().copied().collect();
        if pool.users.is_empty() {
            pools.remove(&id);
        }
        Ok(users)
    })
}

/// Sets whether the default pool may use the pool's free memory when no other memory is left.
pub fn set_use_on_oom(id: PoolId, use_on_oom: bool) -> Result<()> {
    with(|pools| {
        let pool = pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        pool.options.use_on_oom = use_on_oom;
        pool.used_outside_captures |= use_on_oom;
        Ok(())
    })
}

/// Returns the options of a pool; the defaults for an unknown pool.
pub fn options(id: PoolId) -> Options {
    with(|pools| pools.get(&id).map_or(Options::default(), |pool| pool.options))
}

/// Returns whether the default pool may use the pool's free memory now.
pub fn is_used_on_oom(id: PoolId) -> bool {
    with(|pools| pools.get(&id).is_some_and(|pool| pool.options.use_on_oom && !pool.suspended))
}

/// Records that memory of the pool is allocated outside of captures.
pub fn set_used_outside_captures(id: PoolId) {
    with(|pools| pools.entry(id).or_default().used_outside_captures = true);
}

/// Returns whether blocks of the pool may belong to others than its graphs.
pub fn is_used_outside_captures(id: PoolId) -> bool {
    with(|pools| pools.get(&id).is_some_and(|pool| pool.used_outside_captures))
}

/// Sets whether the pool's memory is suspended.
pub fn set_suspended(id: PoolId, suspended: bool) {
    with(|pools| {
        if let Some(pool) = pools.get_mut(&id) {
            pool.suspended = suspended;
        }
    });
}

/// Returns whether the pool's memory is suspended.
pub fn is_suspended(id: PoolId) -> bool {
    with(|pools| pools.get(&id).is_some_and(|pool| pool.suspended))
}

/// Adds a user of the pool on a device. Creates the pool if necessary.
pub fn add_user(id: PoolId, device: u32) {
    with(|pools| *pools.entry(id).or_default().users.entry(device).or_default() += 1);
}

/// Removes a user. Returns the number of remaining users on the device.
pub fn remove_user(id: PoolId, device: u32) -> Result<u32> {
    with(|pools| {
        let pool = pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        let users = pool.users.get_mut(&device).ok_or_else(|| {
            Error::new(
                Status::INVALID_VALUE,
                format!("releasing pool {id} on device {device}: the pool has no users there"),
            )
        })?;
        *users -= 1;
        let left = *users;
        if left == 0 {
            pool.users.remove(&device);
            if pool.users.is_empty() && !pool.created {
                pools.remove(&id);
            }
        }
        Ok(left)
    })
}

/// Returns the number of users of the pool on a device. The program that created it counts as one on each device.
pub fn users(id: PoolId, device: u32) -> Result<u32> {
    with(|pools| {
        let pool = pools.get(&id).ok_or_else(|| unknown(id))?;
        Ok(pool.users.get(&device).copied().unwrap_or(0) + u32::from(pool.created))
    })
}

/// Returns whether the pool has users on a device or can get some.
pub fn in_use(id: PoolId, device: u32) -> bool {
    id == PoolId::DEFAULT || users(id, device).is_ok_and(|users| users > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_lives_while_it_has_users() {
        let id = create(Options { use_on_oom: true, no_split: false }, None);
        assert_eq!(users(id, 0).unwrap(), 1);
        add_user(id, 0);
        assert!(options(id).use_on_oom);
        assert_eq!(destroy(id).unwrap(), [0]);
        assert!(!options(id).use_on_oom);
        assert!(destroy(id).is_err());
        assert!(in_use(id, 0) && !in_use(id, 1));
        assert_eq!(remove_user(id, 0).unwrap(), 0);
        assert!(!in_use(id, 0));
        assert_eq!(remove_user(id, 0).unwrap_err().status(), Status::INVALID_HANDLE);
        assert!(in_use(PoolId::DEFAULT, 0));
    }
}
