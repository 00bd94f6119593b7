//! Growing an arena: maps physical memory to the arena's addresses, and undoes it on failure.
//!
//! Memory comes from the driver as new handles, or is moved: a handle that is completely free is mapped at the address
//! where it is needed. A handle may have two addresses for a while, so moving does not wait: stream order protects the
//! earlier users of the old address, and the old address is unmapped after the stream has completed their work.
//!
//! Each step either succeeds or leaves everything unchanged. No arena's lock is held during a driver call.

use super::{
    arena::{Arena, Inner, Leaving, Mark},
    block::{UNIT, Zone},
    config,
    device_memory::Method,
    external_segments,
    growth::{Lifted, Site, Spare, Spot},
    handles::{self, Handle},
    mapped::Backing,
    policy,
    pool::{self, PoolId},
    space::zone_of,
    stream_events,
};
use crate::{
    base::units::Bytes,
    driver::{Driver, Stream, codes, plugin::Plugin},
    error::{Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
};
use std::sync::Arc;

/// A request that no free block of an arena fits.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The rounded size in bytes.
    pub size: u64,
    /// The size that the caller requested, in bytes.
    pub requested: u64,
}

/// The arenas from which idle memory may be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steal {
    /// No arena.
    Nothing,
    /// The arena itself and arenas whose streams are idle.
    Idle,
    /// Every arena of the default pool; the device makes the requester's stream wait for theirs.
    Ordered,
}

/// The limits for one growth step.
#[derive(Debug, Clone, Copy)]
pub struct Means {
    /// The maximum number of bytes that may be held after the step.
    pub most: u64,
    /// The arenas from which memory may be moved.
    pub steal: Steal,
    /// Whether memory is moved before any is created.
    pub steal_first: bool,
    /// The live bytes of the device.
    pub live: u64,
    /// The limit of held bytes of the device.
    pub limit: u64,
    /// The bytes by which the pool may grow; unlimited unless the pool has a budget.
    pub allowance: u64,
}

/// Rejects an address that the directory cannot store: one that is not aligned to units or is beyond the user address
/// range.
fn check_address(giver: &str, address: u64) -> Result<()> {
    if address.is_multiple_of(UNIT) && address >> 47 == 0 {
        return Ok(());
    }
    let what = format!("{giver} allocated at {address:#x}, which is no multiple of {UNIT} or too high");
    Err(Error::new(Status::NOT_SUPPORTED, what))
}

/// The number of candidates to try with moved handles, whose sizes seldom match the missing size exactly.
const SPOTS: usize = 8;

/// Grows one arena.
pub struct Grower<'a> {
    /// The runtime.
    pub runtime: &'a Runtime,
    /// The arena's device, whose context is current.
    pub device: &'a Device,
    /// The arena, whose [`growth`](Arena::growth) lock the caller holds.
    pub arena: &'static Arena,
    /// The arena's stream.
    pub stream: Stream,
}

/// A handle to be moved from an arena.
#[derive(Clone, Copy)]
struct Pick {
    arena: &'static Arena,
    spare: Spare,
    generation: u32,
    idle: bool,
}

/// The handles to map at a site.
#[derive(Default)]
struct Pieces {
    created: Vec<Handle>,
    stolen: Vec<(Pick, Lifted)>,
}

impl Grower<'_> {
    fn driver(&self) -> &Driver {
        &self.runtime.driver
    }

    /// Grows the arena and allocates a block for the request. Returns `None`, without any change, if the limits do not
    /// allow it.
    pub fn grow(&self, request: Request, means: Means) -> Result<Option<u64>> {
        let method = self.device.memory.method(self.device, self.driver())?;
        if request.size > means.most || request.size > means.allowance {
            return Ok(None);
        }
        if let Some(plugin) = pool::allocator(self.arena.key().pool) {
            return self.grow_by_loan(request, means, plugin);
        }
        match method {
            Method::Segments => self.grow_by_segment(request, means),
            Method::Virtual { granule } => self.grow_by_mapping(request, means, granule),
        }
    }

    // ---- segments

    fn grow_by_segment(&self, request: Request, means: Means) -> Result<Option<u64>> {
        let (zone, memory) = (zone_of(request.size), &self.device.memory);
        let config = config::get()?;
        let Some(bytes) = policy::segment_size(request.size, config.large_segment_size) else { return Ok(None) };
        if bytes > means.allowance || !memory.try_hold(bytes, means.most) {
            return Ok(None);
        }
        let segment = match self.driver().segment_alloc(bytes) {
            Ok(segment) => segment,
            Err(failure) => {
                memory.never_held(bytes);
                if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY {
                    return Ok(None);
                }
                return Err(Error::from(failure).context(format_args!("allocating a segment of {}", Bytes(bytes))));
            }
        };
        // The driver's segments satisfy both rules in practice.
        if let Err(error) = check_address("the driver", segment.address()) {
            stream_events::insist(|| self.driver().segment_free(segment));
            memory.never_held(bytes);
            return Err(error);
        }
        memory.created.one();
        let mut inner = self.arena.lock();
        inner.space.set_split_limits(config.split_limits());
        let whole = (segment.address(), Backing::Segment(segment));
        Ok(Some(inner.space.add_whole(whole, bytes, zone, request.size, request.requested)))
    }

    /// Grows by a segment from the pool's own allocator. That allocator is the program's code and must not allocate in
    /// this pool.
    fn grow_by_loan(&self, request: Request, means: Means, plugin: Arc<Plugin>) -> Result<Option<u64>> {
        let (zone, memory, config) = (zone_of(request.size), &self.device.memory, config::get()?);
        let Some(bytes) = policy::segment_size(request.size, config.large_segment_size) else { return Ok(None) };
        if bytes > means.allowance || !memory.try_hold(bytes, means.most) {
            return Ok(None);
        }
        let Some(address) = external_segments::take(plugin, bytes, self.device.ordinal, self.stream) else {
            memory.never_held(bytes);
            return Ok(None);
        };
        if let Err(error) = check_address("the pool's allocator", address) {
            external_segments::give_back(address);
            memory.never_held(bytes);
            return Err(error);
        }
        memory.created.one();
        let mut inner = self.arena.lock();
        inner.space.set_split_limits(config.split_limits());
        Ok(Some(inner.space.add_whole((address, Backing::Lent), bytes, zone, request.size, request.requested)))
    }

    // ---- mapping

    fn grow_by_mapping(&self, request: Request, means: Means, granule: u64) -> Result<Option<u64>> {
        let zone = zone_of(request.size);
        let creatable = means.most.saturating_sub(self.device.memory.held()).min(means.allowance) / granule * granule;
        if means.steal == Steal::Nothing && request.size > creatable.saturating_add(self.free_at_most()) {
            return Ok(None);
        }
        let mut spots = self.spots(zone, request.size, granule);
        if spots.is_empty() {
            if !self.reserve(zone, request.size, granule)? {
                return Ok(None);
            }
            spots = self.spots(zone, request.size, granule);
        }
        for spot in spots.iter().take(SPOTS) {
            if let Some(address) = self.try_spot(*spot, request, means, creatable, granule)? {
                return Ok(Some(address));
            }
            if means.steal == Steal::Nothing {
                return Ok(None);
            }
        }
        // Moved handles may need more addresses than any hole has.
        let room = request.size.saturating_mul(2);
        if means.steal != Steal::Nothing
            && spots.iter().all(|spot| spot.room < room)
            && self.reserve(zone, room, granule)?
            && let Some(spot) = self.spots(zone, request.size, granule).iter().max_by_key(|spot| spot.room)
        {
            return self.try_spot(*spot, request, means, creatable, granule);
        }
        Ok(None)
    }

    /// Returns a bound on the free bytes that a candidate can use: no candidate saves more than two free blocks.
    fn free_at_most(&self) -> u64 {
        self.arena.lock().space.largest_free().saturating_mul(2)
    }

    fn spots(&self, zone: Zone, size: u64, granule: u64) -> Vec<Spot> {
        self.arena.lock().space.spots(zone, size, granule)
    }

    /// Reserves addresses for at least `size` bytes. Returns whether there were enough addresses.
    fn reserve(&self, zone: Zone, size: u64, granule: u64) -> Result<bool> {
        let total = self.device.memory.total(self.device, self.driver())?;
        let least = size.div_ceil(granule).saturating_mul(granule);
        let mut bytes = policy::region_size(zone, total, granule).max(least);
        loop {
            match self.driver().memory_reserve(bytes, granule) {
                Ok(address) if address.checked_add(bytes).is_some_and(|end| end < 1 << 48) => {
                    let mut inner = self.arena.lock();
                    inner.space.add_region(address, bytes, zone);
                    if Self::may_cut(&inner) {
                        inner.space.watch_stuck(granule);
                    }
                    return Ok(true);
                }
                Ok(address) => {
                    let _ = self.driver().memory_unreserve(address, bytes);
                    return Err(Error::new(
                        Status::NOT_SUPPORTED,
                        format!("the driver reserved {address:#x}, beyond 48 bits"),
                    ));
                }
                // Addresses may be scarce, for example under a limit on virtual memory: retry with fewer.
                Err(failure) if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY && bytes > least => {
                    bytes = (bytes / 2 / granule * granule).max(least);
                }
                Err(failure) if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY => return Ok(false),
                Err(failure) => {
                    return Err(Error::from(failure).context(format_args!("reserving {} of addresses", Bytes(bytes))));
                }
            }
        }
    }

    /// Returns whether the arena's handles may be split. Those of a private pool may not.
    fn may_cut(inner: &Inner) -> bool {
        inner.key.pool == PoolId::DEFAULT && !inner.space.no_split
    }

    fn try_spot(
        &self,
        spot: Spot,
        request: Request,
        means: Means,
        creatable: u64,
        granule: u64,
    ) -> Result<Option<u64>> {
        if spot.need > creatable && means.steal == Steal::Nothing {
            return Ok(None);
        }
        let site = {
            let mut inner = self.arena.lock();
            // The lock was released after the candidates were determined. No other thread grows this arena, but blocks
            // beside the hole may have been freed or allocated.
            match inner.space.spots(zone_of(request.size), request.size, granule).into_iter().find(|now| *now == spot) {
                Some(spot) => inner.space.hold(spot),
                None => return Ok(None),
            }
        };
        let outcome = self.fill(site, request, means, creatable, granule);
        if !matches!(outcome, Ok(Some(_))) {
            self.arena.lock().space.abandon(site);
        }
        outcome
    }

    /// Gets handles for a site and maps them. If it returns no address, the site is still reserved.
    fn fill(&self, site: Site, request: Request, means: Means, creatable: u64, granule: u64) -> Result<Option<u64>> {
        let mut pieces = Pieces::default();
        // Create memory first as far as the limits allow, and move the rest.
        let wanted = if means.steal_first { site.need } else { site.need.saturating_sub(creatable) };
        if wanted > 0 && means.steal != Steal::Nothing {
            let picks = self.pick(wanted, site.room, means);
            let found: u64 = picks.iter().map(|pick| pick.spare.bytes).sum();
            if found.saturating_add(creatable) < site.need {
                return Ok(None);
            }
            for pick in picks {
                if let Some(lifted) = pick.arena.lift(&pick.spare, pick.generation) {
                    pieces.stolen.push((pick, lifted));
                }
            }
        }
        let stolen: u64 = pieces.stolen.iter().map(|(_, lifted)| lifted.bytes).sum();
        let missing = site.need.saturating_sub(stolen);
        let (zone, room) = (zone_of(request.size), site.room.saturating_sub(stolen));
        let short = policy::is_short(self.device.memory.held(), means.limit);
        let zone_bytes = self.arena.lock().space.counters.zones[zone as usize].reserved.current;
        let handle = policy::handle_size(zone, missing, zone_bytes, means.live, short, means.limit, granule);
        let create = if missing == 0 { 0 } else { policy::growth(missing, handle, room, creatable) };
        let outcome =
            self.create(policy::handle_sizes(create, handle, granule), means.most, &mut pieces).and_then(|enough| {
                if !enough || stolen + create < site.need {
                    return Ok(false);
                }
                if !self.order_after(&pieces)? {
                    return Ok(false);
                }
                self.map(site, &pieces).map(|()| true)
            });
        match outcome {
            Ok(true) => Ok(Some(self.publish(site, pieces, request))),
            Ok(false) => {
                self.undo(pieces);
                Ok(None)
            }
            Err(error) => {
                self.undo(pieces);
                Err(error)
            }
        }
    }

    /// Chooses idle handles of `missing` bytes in all, or as many as there are, and of at most `room` bytes. Prefers
    /// the arena's own handles.
    fn pick(&self, wanted: u64, room: u64, means: Means) -> Vec<Pick> {
        let capturing = stream_events::is_capturing(self.driver(), self.stream);
        let sizes = |pick: &Pick| (pick.spare.block_bytes, pick.spare.bytes);
        let mut candidates = Vec::new();
        // Memory that a capturing stream freed may be part of the graph, so no memory of its arena moves.
        if self.arena.may_move() && !capturing {
            let (spares, generation) = self.arena.spares();
            let idle = !spares.is_empty() && stream_events::is_idle(self.runtime, self.arena);
            candidates.extend(spares.into_iter().map(|spare| Pick { arena: self.arena, spare, generation, idle }));
        }
        let own = policy::choose(candidates.clone(), wanted, room, sizes);
        // A pool with a budget gets no memory from other arenas: it would count against the budget but cannot be
        // counted beforehand.
        if own.iter().map(|pick| pick.spare.bytes).sum::<u64>() >= wanted || means.allowance != u64::MAX {
            return own;
        }
        let ordered = means.steal == Steal::Ordered && !capturing;
        for arena in self.device.memory.arenas() {
            if arena.number == self.arena.number || !arena.may_move() {
                continue;
            }
            let (spares, generation) = arena.spares();
            if spares.is_empty() {
                continue;
            }
            let idle = stream_events::is_idle(self.runtime, arena);
            if idle || (ordered && stream_events::can_mark(self.runtime, arena)) {
                candidates.extend(spares.into_iter().map(|spare| Pick { arena, spare, generation, idle }));
            }
        }
        policy::choose(candidates, wanted, room, sizes)
    }

    /// Creates handles of these sizes. Returns whether there was enough memory.
    fn create(&self, sizes: Vec<u64>, most: u64, pieces: &mut Pieces) -> Result<bool> {
        for size in sizes {
            match handles::create(self.device, self.driver(), size, most)? {
                Some(handle) => pieces.created.push(handle),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Makes the arena's stream wait for the streams of busy arenas that gave up handles. Returns `false` if one of
    /// them is capturing.
    fn order_after(&self, pieces: &Pieces) -> Result<bool> {
        let mut done: Vec<u32> = Vec::new();
        for (pick, _) in &pieces.stolen {
            if !pick.idle && pick.arena.number != self.arena.number && !done.contains(&pick.arena.number) {
                if !stream_events::order(self.runtime, self.device, self.stream, pick.arena)? {
                    return Ok(false);
                }
                done.push(pick.arena.number);
            }
        }
        Ok(true)
    }

    /// Maps the handles at the site, one after the other.
    fn map(&self, site: Site, pieces: &Pieces) -> Result<()> {
        let pieces: Vec<Handle> = pieces.handles().collect();
        let bytes = pieces.iter().map(|(_, bytes)| bytes).sum();
        handles::map(self.device, self.driver(), site.address(bytes), &pieces)
    }

    /// Allocates the block of the mapped handles, and unmaps the previous addresses of moved handles.
    fn publish(&self, site: Site, pieces: Pieces, request: Request) -> u64 {
        let handles: Vec<Handle> = pieces.handles().collect();
        let address = self.arena.lock().space.fill(site, &handles, request.size, request.requested);
        for (pick, lifted) in pieces.stolen {
            self.device.memory.moved.add(lifted.bytes);
            let mut inner = pick.arena.lock();
            inner.space.moved(&lifted);
            drop(inner);
            let mark = Mark::Unmarked(pick.arena.own_use());
            let leaving =
                Leaving { block: lifted.block, address: lifted.address, bytes: lifted.bytes, physical: None, mark };
            // The request succeeded. An address that stays mapped for now concerns the allocator only.
            let _ = stream_events::leave(self.runtime, self.device, pick.arena, leaving, pick.idle);
        }
        address
    }

    fn undo(&self, pieces: Pieces) {
        handles::undo(self.device, self.driver(), pieces.created);
        for (pick, lifted) in pieces.stolen {
            pick.arena.lock().space.put_back(lifted.block);
        }
    }
}

impl Pieces {
    /// Returns the handles in the order in which they are mapped.
    fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        let stolen = self.stolen.iter().map(|(_, lifted)| (lifted.physical, lifted.bytes));
        self.created.iter().copied().chain(stolen)
    }
}
