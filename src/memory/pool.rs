//! Pools: separate memory for a graph or for a part of a program.
//!
//! A pool is only an id until something is allocated in it. Its memory is in its own arenas, one for each stream. While
//! a pool has users, its memory is not used for other requests, even if it is free: the graph that was captured in it
//! writes to the addresses that it had at capture.
//!
//! The library issues the ids of its pools. PyTorch issues its own from its own counters and passes them to the hooks of
//! a pluggable allocator; [`PoolId::foreign`] keeps the two apart. Each kind of pool has a counter, and the kind follows
//! from the id, so that nothing must be stored for an id that has no pool:
//!
//! | id | pool |
//! |---|---|
//! | owner not 0 | of one capture |
//! | index even | created by the program; exists until the program destroys it |
//! | index odd | named by the program for graphs; may be used at any time |

use crate::{
    driver::plugin::Plugin,
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
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
    /// Whether PyTorch issued the id.
    pub foreign: bool,
}

impl PoolId {
    /// The default pool.
    pub const DEFAULT: PoolId = PoolId::new(0, 0);

    /// Returns the id of a pool of the library.
    pub const fn new(owner: u64, index: u64) -> PoolId {
        PoolId { owner, index, foreign: false }
    }

    /// Returns the id of a pool of PyTorch.
    pub const fn of_pytorch(owner: u64, index: u64) -> PoolId {
        PoolId { owner, index, foreign: true }
    }

    /// Returns whether the library issued this id and it needs no pool to be valid.
    pub fn is_issued_for_graphs(self) -> bool {
        let (number, next) = match (self.foreign, self.owner, self.index) {
            (false, owner, 0) => (owner, &NEXT_OF_CAPTURE),
            (false, 0, index) if index % 2 == 1 => (index / 2, &NEXT_OF_GRAPHS),
            _ => return false,
        };
        (1..next.load(Ordering::Relaxed)).contains(&number)
    }
}

impl std::fmt::Display for PoolId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "({}, {})", self.owner, self.index)
    }
}

/// What the memory of a pool is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryOptions {
    /// Whether it is allocated in segments, each with its own addresses, as by `cuMemAlloc`.
    pub segments: bool,
    /// Whether processes of other machines of the same NVLink fabric can import it, if the driver grants that.
    pub fabric: bool,
    /// Whether network adapters can access it by its address, if the device supports that.
    pub gpu_direct_rdma: bool,
    /// Whether each block is in one physical allocation, so that it can be a window of an NCCL communicator.
    pub nccl_window: bool,
}

impl MemoryOptions {
    /// Returns whether [`round`](Self::round) changes sizes.
    pub fn has_rounding(self) -> bool {
        self.nccl_window
    }

    /// Rounds the size of a block, so that the next one can begin where it ends.
    pub fn round(self, size: u64) -> u64 {
        if self.nccl_window { size.checked_next_multiple_of(WINDOW_ALIGNMENT).unwrap_or(size) } else { size }
    }
}

/// What the address of a window of an NCCL communicator must be a multiple of.
pub const WINDOW_ALIGNMENT: u64 = 4096;

/// The options of a pool at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether the default pool may use its free memory when no other memory is left.
    pub use_on_oom: bool,
    /// Whether its blocks are never split.
    pub no_split: bool,
    /// What its memory is made for.
    pub memory: MemoryOptions,
}

#[derive(Debug, Default)]
struct Pool {
    options: Options,
    /// The allocator of its memory, if not the driver.
    allocator: Option<Arc<Plugin>>,
    /// The maximum number of physical bytes on each device.
    budget: Option<u64>,
    /// The name of the group of pools that sleep and wake together.
    tag: Option<Arc<str>>,
    /// Whether the program created the pool and has not destroyed it.
    created: bool,
    /// Whether memory of it was allocated outside of captures.
    used_outside_captures: bool,
    /// Whether the program routed requests to it, and may launch graphs that use its memory.
    routed_by_program: bool,
    /// Whether its memory is suspended.
    suspended: bool,
    /// The number of users on each device.
    users: HashMap<u32, u32>,
}

impl Pool {
    /// Returns whether nothing uses the pool. The settings of a pool for graphs are those of its id, which stays valid; but only a
    /// tag can wake a pool that sleeps.
    fn has_ended(&self, id: PoolId) -> bool {
        let has_limits = self.budget.is_some() || self.options.use_on_oom;
        let has_settings = self.tag.is_some() || has_limits && !self.suspended;
        self.users.is_empty() && !self.created && !(id.is_issued_for_graphs() && has_settings)
    }
}

static POOLS: Mutex<Option<HashMap<PoolId, Pool>>> = Mutex::new(None);
/// The next number of a pool of one capture.
static NEXT_OF_CAPTURE: AtomicU64 = AtomicU64::new(1);
/// The next number of a pool that the program creates.
static NEXT_CREATED: AtomicU64 = AtomicU64::new(1);
/// The next number of a pool that the program names for graphs.
static NEXT_OF_GRAPHS: AtomicU64 = AtomicU64::new(1);

fn with<T>(body: impl FnOnce(&mut HashMap<PoolId, Pool>) -> T) -> T {
    body(POOLS.lock().get_or_insert_default())
}

#[cold]
fn unknown(id: PoolId) -> Error {
    Error::new(Status::INVALID_HANDLE, format!("unknown pool {id}: it was never created or was destroyed"))
}

/// Returns an unused id for a pool of graphs.
pub fn new_graph_id() -> PoolId {
    PoolId::new(0, 2 * NEXT_OF_GRAPHS.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Returns an unused id for the pool of one capture.
pub fn new_capture_id() -> PoolId {
    PoolId::new(NEXT_OF_CAPTURE.fetch_add(1, Ordering::Relaxed), 0)
}

/// Checks that requests may be routed to a pool: the program created it and has not destroyed it, its id is for graphs,
/// or PyTorch issued the id.
pub fn check_usable(id: PoolId) -> Result<()> {
    let usable =
        id.foreign || id.is_issued_for_graphs() || with(|pools| pools.get(&id).is_some_and(|pool| pool.created));
    if usable { Ok(()) } else { Err(unknown(id)) }
}

/// Returns the pool that a program names for a query or a setting: one of the library, or one of PyTorch with this id.
/// Returns `None` if there is none.
pub fn find(id: PoolId) -> Option<PoolId> {
    let foreign = PoolId { foreign: true, ..id };
    if id == PoolId::DEFAULT || id.is_issued_for_graphs() {
        return Some(id);
    }
    with(|pools| [id, foreign].into_iter().find(|id| pools.contains_key(id)))
}

/// Creates a pool for the program.
pub fn create(options: Options, allocator: Option<Arc<Plugin>>) -> PoolId {
    let id = PoolId::new(0, 2 * NEXT_CREATED.fetch_add(1, Ordering::Relaxed));
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

/// Returns a pool whose settings are read or changed; the entry is new if the id is one for graphs.
fn settings_of(pools: &mut HashMap<PoolId, Pool>, id: PoolId) -> Result<&mut Pool> {
    if id.is_issued_for_graphs() {
        return Ok(pools.entry(id).or_default());
    }
    pools.get_mut(&id).ok_or_else(|| unknown(id))
}

/// Sets the maximum number of physical bytes of a pool on each device.
pub fn set_budget(id: PoolId, budget: Option<u64>) -> Result<()> {
    with(|pools| {
        settings_of(pools, id)?.budget = budget;
        Ok(())
    })
}

/// Returns the maximum number of physical bytes of a pool on each device.
pub fn budget(id: PoolId) -> Result<Option<u64>> {
    with(|pools| match pools.get(&id) {
        Some(pool) => Ok(pool.budget),
        None if id.is_issued_for_graphs() => Ok(None),
        None => Err(unknown(id)),
    })
}

/// Called with a pool and a device that nothing uses the pool on any more, before its memory there is released.
static RELEASE_OBSERVER: OnceCell<fn(PoolId, u32)> = OnceCell::new();

/// Sets the function that is called before a pool's memory is released. There is only one such function.
pub fn observe_releases(observer: fn(PoolId, u32)) {
    RELEASE_OBSERVER.get_or_init(|| observer);
}

/// Tells the observer that a pool's memory on a device is released.
pub fn notify_release(id: PoolId, device: u32) {
    if let Some(observer) = RELEASE_OBSERVER.get() {
        observer(id, device);
    }
}

/// Sets the tag of a pool; an empty text removes it.
pub fn set_tag(id: PoolId, tag: &str) -> Result<()> {
    if tag.contains(',') {
        return Err(Error::new(Status::INVALID_VALUE, format!("a tag cannot contain a comma: \"{tag}\"")));
    }
    with(|pools| {
        let pool = settings_of(pools, id)?;
        if tag.is_empty() && pool.suspended && pool.tag.is_some() {
            let what = format!("removing the tag of pool {id}: it is asleep; wake it first");
            return Err(Error::new(Status::GRAPH_ASLEEP, what));
        }
        pool.tag = Some(tag).filter(|tag| !tag.is_empty()).map(Arc::from);
        Ok(())
    })
}

/// Returns the tag of a pool.
pub fn tag(id: PoolId) -> Option<Arc<str>> {
    with(|pools| pools.get(&id)?.tag.clone())
}

/// Returns the pools with tags of a comma-separated list, in its order; every pool that has a tag for an empty list.
pub fn tagged(tags: &str) -> Result<Vec<PoolId>> {
    let mut all: Vec<(Arc<str>, PoolId)> =
        with(|pools| pools.iter().filter_map(|(id, pool)| Some((pool.tag.clone()?, *id))).collect());
    all.sort_by_cached_key(|(_, id)| *id);
    if tags.is_empty() {
        return Ok(all.into_iter().map(|(_, id)| id).collect());
    }
    let mut found = Vec::new();
    for tag in tags.split(',') {
        let before = found.len();
        found.extend(
            all.iter()
                .filter(|(other, id)| &**other == tag && !found.contains(id))
                .map(|(_, id)| *id)
                .collect::<Vec<_>>(),
        );
        if found.len() == before && !all.iter().any(|(other, _)| &**other == tag) {
            return Err(Error::new(Status::INVALID_VALUE, format!("no pool has the tag \"{tag}\"")));
        }
    }
    Ok(found)
}

/// Returns a pool's budget, and a lock that serializes the growth of pools with a budget: two threads at once could
/// both use the rest of the budget.
pub fn lock_budget(id: PoolId) -> Option<(u64, MutexGuard<'static, ()>)> {
    static LOCK: Mutex<()> = Mutex::new(());
    if id == PoolId::DEFAULT {
        return None;
    }
    let budget = || with(|pools| pools.get(&id)?.budget);
    budget()?;
    let lock = LOCK.lock();
    // It may have changed while this waited.
    Some((budget()?, lock))
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
        let pool = settings_of(pools, id)?;
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

/// Records that the program routes requests to the pool, so that graphs may use its memory that the program launches
/// through the driver.
pub fn set_routed_by_program(id: PoolId) {
    with(|pools| pools.entry(id).or_default().routed_by_program = true);
}

/// Returns whether graphs may use the pool's memory that the library does not launch.
pub fn is_routed_by_program(id: PoolId) -> bool {
    with(|pools| pools.get(&id).is_some_and(|pool| pool.routed_by_program))
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
            if pool.has_ended(id) {
                pools.remove(&id);
            }
        }
        Ok(left)
    })
}

/// Returns the number of users of the pool on a device. The program that created it counts as one on each device.
pub fn users(id: PoolId, device: u32) -> Result<u32> {
    with(|pools| {
        let Some(pool) = pools.get(&id) else {
            return if id.is_issued_for_graphs() { Ok(0) } else { Err(unknown(id)) };
        };
        Ok(pool.users.get(&device).copied().unwrap_or(0) + u32::from(pool.created))
    })
}

/// Returns whether the pool has users on a device or can get some.
pub fn in_use(id: PoolId, device: u32) -> bool {
    id == PoolId::DEFAULT || users(id, device).is_ok_and(|users| users > 0)
}

/// Pools that a thread puts to sleep or wakes.
static CHANGING: Mutex<Vec<PoolId>> = Mutex::new(Vec::new());

/// Keeps other threads from moving and releasing the memory of some pools until it is dropped, also if they are destroyed.
pub struct Changing(Vec<PoolId>);

impl Changing {
    /// Begins to keep the memory of pools, which no other thread does.
    pub fn new(ids: &[PoolId]) -> Self {
        CHANGING.lock().extend(ids);
        Changing(ids.to_vec())
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.iter().for_each(|id| end_change(*id));
    }
}

/// Permits other threads to move and release the memory of a pool again.
pub fn end_change(id: PoolId) {
    CHANGING.lock().retain(|changing| *changing != id);
}

/// Returns whether a thread puts the pool to sleep or wakes it.
pub fn is_changing(id: PoolId) -> bool {
    CHANGING.lock().contains(&id)
}

/// Returns whether the pool's free memory may be moved or released: it has no users, does not sleep, and is not about to sleep
/// or wake.
pub fn is_idle(id: PoolId, device: u32) -> bool {
    id == PoolId::DEFAULT || !in_use(id, device) && !is_suspended(id) && !is_changing(id)
}

/// Returns whether the pool has users, settings, or a program that created it.
pub fn exists(id: PoolId) -> bool {
    with(|pools| pools.contains_key(&id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_valid_as_long_as_their_kind_allows() {
        let (created, other) = (create(Options::default(), None), create(Options::default(), None));
        let (graph, capture) = (new_graph_id(), new_capture_id());
        for id in [created, other, graph, capture, PoolId::of_pytorch(0, created.index), PoolId::of_pytorch(9, 9)] {
            assert!(check_usable(id).is_ok(), "{id:?}");
        }
        // Other tests do not issue that many.
        let later = 1 << 40;
        let invented =
            [PoolId::new(0, 2 * later), PoolId::new(0, 2 * later + 1), PoolId::new(later, 0), PoolId::new(1, 1)];
        for id in invented.into_iter().chain([PoolId::new(0, 1)]) {
            assert_eq!(check_usable(id).unwrap_err().status(), Status::INVALID_HANDLE, "{id:?}");
            assert_eq!(find(id), None);
        }
        add_user(other, 0);
        for id in [created, other] {
            destroy(id).unwrap();
            assert_eq!(check_usable(id).unwrap_err().status(), Status::INVALID_HANDLE);
        }
        // One has no users and is gone; the other exists, but nothing new may use it.
        assert_eq!((find(created), find(other)), (None, Some(other)));
        let foreign = PoolId::of_pytorch(0, created.index);
        add_user(foreign, 0);
        assert_eq!(find(created), Some(foreign));
        assert_eq!((remove_user(foreign, 0).unwrap(), remove_user(other, 0).unwrap()), (0, 0));
        assert_eq!(find(created), None);
    }

    #[test]
    fn a_graph_id_keeps_its_settings() {
        let id = new_graph_id();
        assert_eq!((users(id, 0).unwrap(), budget(id).unwrap()), (0, None));
        set_budget(id, Some(4096)).unwrap();
        add_user(id, 0);
        assert_eq!(remove_user(id, 0).unwrap(), 0);
        assert_eq!(budget(id).unwrap(), Some(4096));
    }

    #[test]
    fn a_pool_lives_while_it_has_users() {
        let id = create(Options { use_on_oom: true, ..Options::default() }, None);
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
