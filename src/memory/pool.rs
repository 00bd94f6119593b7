//! Pools: memory that is kept apart, for a graph that replays or for a part of a program.
//!
//! A pool is a name until something is allocated in it; its memory lies in arenas of its own, one for each stream. While
//! anyone uses the pool, nothing of its memory is given to others, free or not: the graph that was captured in it
//! writes to the addresses that were its own at the time.

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

/// The name of a pool, as torch has it: pools that captures make have an owner, the others an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct PoolId {
    /// The capture, or 0.
    pub owner: u64,
    /// The number, or 0.
    pub index: u64,
}

impl PoolId {
    /// The pool of everything that asks for none.
    pub const DEFAULT: PoolId = PoolId { owner: 0, index: 0 };
}

impl std::fmt::Display for PoolId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "({}, {})", self.owner, self.index)
    }
}

/// What was said of a pool when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether the default pool may take its free memory when there is no other.
    pub use_on_oom: bool,
    /// Whether its blocks are given out whole.
    pub no_split: bool,
}

#[derive(Debug, Default)]
struct Pool {
    options: Options,
    /// Who its memory is from, if not the driver.
    allocator: Option<Arc<Plugin>>,
    /// How much physical memory it may hold on each device.
    budget: Option<u64>,
    /// Whether the program made it, and has not destroyed it.
    made: bool,
    /// Whether others than captures were given memory of it.
    eager: bool,
    /// Whether its memory is away.
    asleep: bool,
    /// How many users it has on each device.
    users: HashMap<u32, u32>,
}

static POOLS: Mutex<Option<HashMap<PoolId, Pool>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn with<T>(body: impl FnOnce(&mut HashMap<PoolId, Pool>) -> T) -> T {
    body(POOLS.lock().get_or_insert_default())
}

#[cold]
fn unknown(id: PoolId) -> Error {
    Error::new(Status::INVALID_HANDLE, format!("there is no pool {id}; it was never made, or was destroyed"))
}

/// A name that no pool has.
pub fn new_id() -> PoolId {
    PoolId { owner: 0, index: NEXT.fetch_add(1, Ordering::Relaxed) }
}

/// A name that no pool has, of the kind that captures give.
pub fn new_capture_id() -> PoolId {
    PoolId { owner: NEXT.fetch_add(1, Ordering::Relaxed), index: 0 }
}

/// Makes a pool of a program's.
pub fn create(options: Options, allocator: Option<Arc<Plugin>>) -> PoolId {
    let id = new_id();
    let pool = Pool { options, allocator, made: true, eager: options.use_on_oom, ..Pool::default() };
    with(|pools| pools.insert(id, pool));
    id
}

/// Who the memory of a pool is from, if not the driver.
pub fn allocator(id: PoolId) -> Option<Arc<Plugin>> {
    if id == PoolId::DEFAULT {
        return None;
    }
    with(|pools| pools.get(&id)?.allocator.clone())
}

/// Says how much physical memory a pool may hold on each device.
pub fn set_budget(id: PoolId, budget: Option<u64>) -> Result<()> {
    with(|pools| {
        pools.get_mut(&id).ok_or_else(|| unknown(id))?.budget = budget;
        Ok(())
    })
}

/// How much that is.
pub fn budget(id: PoolId) -> Result<Option<u64>> {
    with(|pools| Ok(pools.get(&id).ok_or_else(|| unknown(id))?.budget))
}

/// A pool's budget, and the turn of whoever grows such a pool: two at once could both use what is left.
pub fn budget_turn(id: PoolId) -> Option<(u64, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    if id == PoolId::DEFAULT {
        return None;
    }
    let budget = with(|pools| pools.get(&id)?.budget)?;
    Some((budget, TURN.lock()))
}

/// Forgets that a program made the pool. Returns the devices on which somebody still uses it.
pub fn destroy(id: PoolId) -> Result<Vec<u32>> {
    with(|pools| {
        let pool = pools.get_mut(&id).filter(|pool| pool.made).ok_or_else(|| unknown(id))?;
        pool.made = false;
        pool.options.use_on_oom = false;
        let users = pool.users.keys().copied().collect();
        if pool.users.is_empty() {
            pools.remove(&id);
        }
        Ok(users)
    })
}

/// Says whether the default pool may use the pool's free memory when there is no other.
pub fn set_use_on_oom(id: PoolId, use_on_oom: bool) -> Result<()> {
    with(|pools| {
        let pool = pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        pool.options.use_on_oom = use_on_oom;
        pool.eager |= use_on_oom;
        Ok(())
    })
}

/// What was said of a pool; nothing for one that nobody has heard of.
pub fn options(id: PoolId) -> Options {
    with(|pools| pools.get(&id).map_or(Options::default(), |pool| pool.options))
}

/// Whether the default pool may use the pool's free memory at this moment.
pub fn helps_on_oom(id: PoolId) -> bool {
    with(|pools| pools.get(&id).is_some_and(|pool| pool.options.use_on_oom && !pool.asleep))
}

/// Notes that others than captures are given memory of the pool.
pub fn set_eager(id: PoolId) {
    with(|pools| pools.entry(id).or_default().eager = true);
}

/// Whether blocks of the pool may be others' than its graphs'.
pub fn is_shared_with_others(id: PoolId) -> bool {
    with(|pools| pools.get(&id).is_some_and(|pool| pool.eager))
}

/// Notes whether the pool's memory is away.
pub fn set_asleep(id: PoolId, asleep: bool) {
    with(|pools| {
        if let Some(pool) = pools.get_mut(&id) {
            pool.asleep = asleep;
        }
    });
}

/// Whether the pool's memory is away.
pub fn is_asleep(id: PoolId) -> bool {
    with(|pools| pools.get(&id).is_some_and(|pool| pool.asleep))
}

/// Adds a user of the pool on a device, and makes the pool if need be.
pub fn add_user(id: PoolId, device: u32) {
    with(|pools| *pools.entry(id).or_default().users.entry(device).or_default() += 1);
}

/// Takes a user away. Returns how many remain on the device.
pub fn remove_user(id: PoolId, device: u32) -> Result<u32> {
    with(|pools| {
        let pool = pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        let users = pool.users.get_mut(&device).ok_or_else(|| {
            Error::new(
                Status::INVALID_VALUE,
                format!("nobody uses pool {id} on device {device}, so nobody can release it"),
            )
        })?;
        *users -= 1;
        let left = *users;
        if left == 0 {
            pool.users.remove(&device);
            if pool.users.is_empty() && !pool.made {
                pools.remove(&id);
            }
        }
        Ok(left)
    })
}

/// How many users the pool has on a device; the program that made it counts as one on each.
pub fn users(id: PoolId, device: u32) -> Result<u32> {
    with(|pools| {
        let pool = pools.get(&id).ok_or_else(|| unknown(id))?;
        Ok(pool.users.get(&device).copied().unwrap_or(0) + u32::from(pool.made))
    })
}

/// Whether anybody uses the pool on a device, or may begin to.
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
