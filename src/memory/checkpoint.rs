//! Checkpoints of a pool on a device: which blocks are allocated, to be restored later. `torch.compile` keeps a tree of
//! graphs in one pool this way: before a branch is captured, the pool gets the state that the branch starts from.
//!
//! A restore changes the state of blocks and nothing else: it makes no driver call for memory and moves no bytes. An
//! address that had memory when the checkpoint was created must therefore have memory now. That is so as long as the pool
//! has users, because the memory of a pool in use is neither moved nor returned to the driver, except that a sleep replaces
//! the memory behind the same addresses. A restore checks it all the same. It need not be the same memory: the contents of
//! a block that it allocates were those of a freed one.

use super::{
    arena::Inner,
    biased::BiasedGuard,
    block::{BlockId, BlockState, NONE},
    device_memory::DeviceMemory,
    growth::ReclaimableHandle,
    ipc::exports,
    mapped::Backing,
    peak_budget,
    pool::{self, PoolId},
    pools,
    registration::registered,
    sleep,
    space::Space,
    stream_events, trackers,
};
use crate::{
    base::handle::{Kind, ReferenceTable},
    error::{Error, Result},
    runtime::{self, Runtime, device::Device, names},
    status::Status,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

/// An allocated block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocatedBlock {
    /// The first address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The requested size in bytes.
    pub requested: u64,
}

/// The state of an arena.
#[derive(Debug)]
struct ArenaState {
    arena: u32,
    generation: u32,
    /// Address and size of each mapping.
    mapped: Vec<(u64, u64)>,
    /// The allocated blocks, by address.
    blocks: Vec<AllocatedBlock>,
}

/// The state of a pool on a device.
#[derive(Debug)]
pub struct Checkpoint {
    device: u32,
    pool: PoolId,
    arenas: Vec<ArenaState>,
}

/// What a restore changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The blocks that were allocated and are free now.
    pub freed: Vec<AllocatedBlock>,
    /// The blocks that were free and are allocated now.
    pub revived: Vec<AllocatedBlock>,
}

static CHECKPOINTS: ReferenceTable<Arc<Checkpoint>> = ReferenceTable::new(Kind::PoolCheckpoint);

/// Records which blocks of a pool are allocated on a device, and returns the handle of the checkpoint.
pub fn create(number: i32, id: PoolId) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let what = || format!("creating a checkpoint of pool {id}");
    if id == PoolId::DEFAULT {
        return Err(Error::new(Status::INVALID_VALUE, "the default pool has no checkpoints; name another pool"));
    }
    let pool = pools::pool_with_memory(runtime, id)?;
    let arenas = with_pool(runtime, device, pool, &what, |arenas| {
        arenas.iter().map(|(number, inner)| inner.space.state(*number)).collect()
    });
    trackers::deliver();
    let arenas = arenas?;
    device.memory().compares_addresses.store(true, Ordering::Relaxed);
    CHECKPOINTS.insert(Arc::new(Checkpoint { device: device.ordinal, pool, arenas }))
}

/// Destroys a checkpoint.
pub fn destroy(handle: u64) -> Result<()> {
    if handle == 0 {
        return Ok(());
    }
    CHECKPOINTS.remove(handle).map(drop)
}

/// Frees and allocates blocks of the pool so that exactly those of the checkpoint are allocated. `stale` are addresses
/// of blocks that the caller expects to be freed. If it fails, nothing is changed.
pub fn restore(handle: u64, stale: &[u64]) -> Result<Restored> {
    let checkpoint = CHECKPOINTS.get(handle)?;
    let runtime = runtime::ready()?;
    let device = runtime.device(checkpoint.device as i32)?;
    let pool = checkpoint.pool;
    let what = || format!("restoring a checkpoint of pool {pool}");
    pool::check_usable(pool).map_err(|error| error.context(what()))?;
    if device.memory().routes.leads_to(pool) {
        return Err(in_use(&what, "requests are still routed to the pool; end that first"));
    }
    let arenas = device.memory().arenas_of(pool);
    let exporting: HashSet<u32> = arenas.iter().map(|arena| arena.number).filter(|number| is_shared(*number)).collect();
    let restored = with_pool(runtime, device, pool, &what, |arenas| {
        let states: HashMap<u32, &ArenaState> = checkpoint.arenas.iter().map(|state| (state.arena, state)).collect();
        let found = arenas.iter().filter(|(number, _)| states.contains_key(number)).count();
        if found < states.len() {
            return Err(gone(&what, "a stream's memory"));
        }
        for (number, inner) in arenas.iter() {
            check_arena(inner, states.get(number).copied(), exporting.contains(number), &what)?;
        }
        let target = |number: &u32| states.get(number).map_or(&[][..], |state| &state.blocks);
        let freed: HashSet<u64> = arenas
            .iter()
            .flat_map(|(number, inner)| inner.space.allocated_besides(target(number)))
            .map(|(_, block)| block.address)
            .collect();
        if let Some(index) = stale.iter().position(|address| !freed.contains(address)) {
            let why = format!("stale[{index}] ({:#x}) is not a block that it frees", stale[index]);
            return Err(Error::new(Status::INVALID_POINTER, format!("{}: {why}", what())));
        }
        let mut restored = Restored::default();
        for (number, inner) in arenas.iter_mut() {
            // A name is all that these blocks have, besides their memory.
            for (id, _) in inner.space.allocated_besides(target(number)) {
                inner.stream_uses.remove(&id);
                inner.space.blocks[id].used_elsewhere = false;
            }
            inner.space.restore(target(number), &mut restored);
        }
        Ok(restored)
    });
    let restored = restored.and_then(|restored| restored).inspect(|restored| {
        for arena in device.memory().arenas_of(pool) {
            peak_budget::ensure_budget(device.memory(), arena);
        }
        restored.freed.iter().for_each(|block| names::forget_memory(block.address));
    });
    trackers::deliver();
    restored
}

/// Returns whether the allocated blocks of a pool on a device begin at exactly these addresses.
pub fn has_allocations(number: i32, id: PoolId, addresses: &HashSet<u64>) -> Result<bool> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let pool = pools::pool_with_memory(runtime, id)?;
    let memory: &DeviceMemory = device.memory();
    let mut count = 0;
    for arena in memory.arenas_of(pool) {
        for (_, block) in arena.lock().space.allocated_besides(&[]) {
            if !addresses.contains(&block.address) {
                return Ok(false);
            }
            count += 1;
        }
    }
    Ok(count == addresses.len())
}

fn in_use(what: &dyn Fn() -> String, why: &str) -> Error {
    Error::new(Status::GRAPH_MEMORY_IN_USE, format!("{}: {why}", what()))
}

fn gone(what: &dyn Fn() -> String, memory: &str) -> Error {
    let why = "was returned to the driver or moved since the checkpoint was created; create a new one";
    Error::new(Status::INVALID_VALUE, format!("{}: {memory} {why}", what()))
}

/// Locks all arenas of a pool on a device, after processing completed events, and calls `body` with them. No other
/// thread is growing one of them, suspending or resuming the pool. The caller delivers the events to trackers, even if
/// this fails.
fn with_pool<T>(
    runtime: &'static Runtime,
    device: &Device,
    pool: PoolId,
    what: &dyn Fn() -> String,
    body: impl FnOnce(&mut [(u32, BiasedGuard<'_, Inner>)]) -> T,
) -> Result<T> {
    let _changing = sleep::lock_changes();
    if pool::is_suspended(pool) {
        return Err(Error::new(Status::GRAPH_ASLEEP, format!("{}: the pool is asleep; wake it first", what())));
    }
    let memory = device.memory();
    let arenas = memory.arenas_of(pool);
    let _growing: Vec<_> = arenas.iter().map(|arena| arena.growth.lock()).collect();
    device.with_context(&runtime.driver, |driver| {
        Ok(driver.with_relaxed_capture(|| {
            for arena in &arenas {
                stream_events::process_events(runtime, device, arena);
            }
        })?)
    })?;
    // Lock order: first the list, as for a snapshot, then each arena.
    let _list = memory.all_arenas();
    let mut locked: Vec<_> = arenas.iter().map(|arena| (arena.number, arena.lock())).collect();
    // The pool of an arena changes if the pool was released meanwhile.
    locked.retain(|(_, inner)| inner.key.pool == pool);
    Ok(body(&mut locked))
}

/// Returns whether other processes hold a block of an arena, or one is registered.
fn is_shared(arena: u32) -> bool {
    exports::has_exports(arena) || registered::has_registrations(arena)
}

/// Checks that an arena can be set to a state; to one without allocated blocks, if there is none.
fn check_arena(inner: &Inner, state: Option<&ArenaState>, exports: bool, what: &dyn Fn() -> String) -> Result<()> {
    if !inner.deferred_frees.is_empty() {
        return Err(in_use(what, "other streams or processes still use a freed block; synchronize with them first"));
    }
    let target = state.map_or(&[][..], |state| &state.blocks);
    for (id, block) in inner.space.allocated_besides(target) {
        let is_recorded = inner.stream_uses.get(&id).is_some_and(|uses| !uses.is_empty());
        if is_recorded || exports && inner.space.blocks[id].used_elsewhere {
            let why = format!("{:#x} was recorded for another stream or shared; free it first", block.address);
            return Err(in_use(what, &why));
        }
    }
    let Some(state) = state else { return Ok(()) };
    if inner.space.generation != state.generation {
        return Err(gone(what, "a stream's memory"));
    }
    match inner.space.first_missing(state) {
        Some(address) => Err(gone(what, &format!("the memory at {address:#x}"))),
        None => Ok(()),
    }
}

impl Space {
    /// Returns the state of the arena.
    fn state(&self, arena: u32) -> ArenaState {
        let mut blocks: Vec<AllocatedBlock> = self.allocated_besides(&[]).into_iter().map(|(_, block)| block).collect();
        blocks.sort_unstable();
        let mapped = self.mapped.iter().filter(|(_, mapped)| has_memory(mapped.backing));
        let mapped = mapped.map(|(address, mapped)| (*address, mapped.bytes)).collect();
        ArenaState { arena, generation: self.generation, mapped, blocks }
    }

    /// Returns the allocated blocks that are not in a list.
    fn allocated_besides(&self, list: &[AllocatedBlock]) -> Vec<(BlockId, AllocatedBlock)> {
        let list: HashSet<&AllocatedBlock> = list.iter().collect();
        let live = self.blocks.iter().filter(|(_, block)| block.state == BlockState::Live);
        let allocated = live.map(|(id, block)| {
            (id, AllocatedBlock { address: block.address, size: block.size, requested: block.requested })
        });
        allocated.filter(|(_, block)| !list.contains(block)).collect()
    }

    /// Returns the first address of a state that no longer has its memory.
    fn first_missing(&self, state: &ArenaState) -> Option<u64> {
        // The memory may be in other handles than before, because it slept.
        let missing = |(address, bytes): &(u64, u64)| self.first_without(*address, *bytes, has_memory);
        if let Some(address) = state.mapped.iter().find_map(missing) {
            return Some(address);
        }
        // The runs of adjacent blocks that are allocated or free.
        let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
        for region in &self.regions {
            let (mut id, mut start) = (region.first, None);
            while id != NONE {
                let block = &self.blocks[id];
                if matches!(block.state, BlockState::Live | BlockState::Free | BlockState::Uncoalesced) {
                    let start = *start.get_or_insert(block.address);
                    runs.insert(start, block.address + block.size);
                } else {
                    start = None;
                }
                id = block.next;
            }
        }
        let has_room = |block: &&AllocatedBlock| {
            let run = runs.range(..=block.address).next_back();
            run.is_some_and(|(_, end)| block.address + block.size <= *end)
        };
        state.blocks.iter().find(|block| !has_room(block)).map(|block| block.address)
    }

    /// Frees and allocates blocks so that exactly those of a list are allocated. [`first_missing`](Self::first_missing)
    /// found none of them missing.
    fn restore(&mut self, blocks: &[AllocatedBlock], restored: &mut Restored) {
        self.coalesce_all();
        for (id, block) in self.allocated_besides(blocks) {
            self.counters.count_free(self.blocks[id].zone, block.size, block.requested);
            self.on_free(id);
            self.merge(id);
            restored.freed.push(block);
        }
        let kept: HashSet<u64> = self.allocated_besides(&[]).iter().map(|(_, block)| block.address).collect();
        let free = self.blocks.iter().filter(|(_, block)| block.state == BlockState::Free);
        let mut free: BTreeMap<u64, BlockId> = free.map(|(id, block)| (block.address, id)).collect();
        for block in blocks.iter().filter(|block| !kept.contains(&block.address)) {
            let Some((start, around)) = free.range(..=block.address).next_back().map(|(start, id)| (*start, *id))
            else {
                continue;
            };
            let part = ReclaimableHandle { block: around, block_bytes: 0, address: block.address, bytes: block.size };
            let Some(id) = self.detach_block(&part) else { continue };
            if start == block.address {
                free.remove(&start);
            }
            let next = self.blocks[id].next;
            if next != NONE && self.blocks[next].state == BlockState::Free {
                free.insert(self.blocks[next].address, next);
            }
            self.mark_live(id, block.requested);
            restored.revived.push(*block);
        }
    }
}

fn has_memory(backing: Backing) -> bool {
    matches!(backing, Backing::Handle(_) | Backing::Segment(_) | Backing::External)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        driver::Physical,
        memory::{
            block::{Zone, round, zone_of},
            grow::Request,
        },
    };
    use proptest::prelude::*;

    const GRANULE: u64 = 2 << 20;

    /// A space that grows at once, and the state that its model expects.
    struct Program {
        space: Space,
        handles: u64,
    }

    impl Program {
        fn new() -> Program {
            let mut space = Space::new(0, Default::default());
            space.add_region(1 << 40, 1 << 34, Zone::Small);
            space.add_region(1 << 41, 1 << 36, Zone::Large);
            Program { space, handles: 0 }
        }

        fn alloc(&mut self, bytes: u64) -> u64 {
            let request = Request { size: round(bytes).unwrap(), requested: bytes };
            if let Some(address) = self.space.allocate(request.size, bytes) {
                return address;
            }
            let candidate = self.space.growth_candidates(zone_of(request.size), request.size, GRANULE, false)[0];
            let site = self.space.reserve_site(candidate);
            self.handles += 1;
            self.space.commit_site(site, &[(Physical::dangling(self.handles), candidate.need)], request.size, bytes)
        }

        fn free(&mut self, address: u64) {
            let id = self.space.allocated_besides(&[]).into_iter().find(|(_, block)| block.address == address);
            self.space.free(id.unwrap().0);
        }

        fn allocated(&self) -> Vec<AllocatedBlock> {
            self.space.state(0).blocks
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Alloc(u64),
        Free(usize),
        Checkpoint,
        Restore(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => prop_oneof![1_u64..5_000, 1_u64..20 << 20].prop_map(Step::Alloc),
            6 => any::<usize>().prop_map(Step::Free),
            1 => Just(Step::Checkpoint),
            2 => any::<usize>().prop_map(Step::Restore),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_restore_allocates_exactly_the_blocks_of_its_checkpoint(steps in prop::collection::vec(step(), 1..150)) {
            let mut program = Program::new();
            let mut states = vec![program.space.state(0)];
            for step in steps {
                let allocated = program.allocated();
                match step {
                    Step::Alloc(bytes) => {
                        let address = program.alloc(bytes);
                        let all = program.allocated();
                        prop_assert_eq!(all.len(), allocated.len() + 1);
                        prop_assert!(all.windows(2).all(|pair| pair[0].address + pair[0].size <= pair[1].address));
                        prop_assert!(all.iter().any(|block| (block.address, block.requested) == (address, bytes)));
                    }
                    Step::Free(index) if !allocated.is_empty() => program.free(allocated[index % allocated.len()].address),
                    Step::Free(_) => {}
                    Step::Checkpoint => states.push(program.space.state(0)),
                    Step::Restore(index) => {
                        let state = &states[index % states.len()];
                        prop_assert_eq!(program.space.first_missing(state), None);
                        let mut restored = Restored::default();
                        program.space.restore(&state.blocks, &mut restored);
                        prop_assert_eq!(&program.allocated(), &state.blocks);
                        let (before, after): (HashSet<_>, HashSet<_>) =
                            (allocated.into_iter().collect(), state.blocks.iter().copied().collect());
                        prop_assert_eq!(restored.freed.len(), before.difference(&after).count());
                        prop_assert!(restored.freed.iter().all(|block| before.contains(block) && !after.contains(block)));
                        prop_assert_eq!(restored.revived.len(), after.difference(&before).count());
                        prop_assert!(restored.revived.iter().all(|block| after.contains(block) && !before.contains(block)));
                    }
                }
                prop_assert_eq!(program.space.check(), Ok(()));
            }
        }
    }

    #[test]
    fn released_memory_is_missing() {
        let mut program = Program::new();
        let (first, second) = (program.alloc(GRANULE), program.alloc(3 * GRANULE));
        let state = program.space.state(0);
        program.free(first);
        program.free(second);
        program.space.coalesce_all();
        assert_eq!(program.space.first_missing(&state), None);
        let handle = program.space.reclaimable_handles().into_iter().find(|handle| handle.address == second).unwrap();
        let detached = program.space.detach(&handle).unwrap();
        program.space.mark_moved(&detached);
        assert_eq!(program.space.first_missing(&state), Some(second));
        program.space.free_addresses(detached.block, detached.address);
        assert_eq!(program.space.first_missing(&state), Some(second));
    }
}
