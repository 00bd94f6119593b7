//! Growing an arena: maps physical memory to the arena's addresses, and undoes it on failure.
//!
//! Memory comes from the driver as new handles, or is moved: a handle that is completely free is mapped at the address
//! where it is needed. A handle may have two addresses for a while, so moving does not wait: stream order protects the
//! earlier users of the old address, which becomes a hole after the stream has completed their work.
//!
//! Each step either succeeds or leaves everything unchanged. No arena's lock is held during a driver call.

use super::{
    arena::{Arena, Inner, PendingUnmap, StreamEvent},
    block::{UNIT, Zone, zone_of},
    config,
    device_memory::Method,
    directory::{self, ADDRESS_BITS},
    external_segments,
    growth::{DetachedHandle, GrowthCandidate, GrowthSite, ReclaimableHandle},
    handles::{self, Handle},
    mapped::Backing,
    policy::{self, Supply},
    pool::{self, PoolId},
    sections::LARGEST_GROWTH,
    stream_events,
};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, Stream, codes, plugin::Plugin},
    error::{Error, Result},
    runtime::{Runtime, device::Device, sync_debug},
    status::Status,
    stream::capture_status::may_capture,
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
pub enum MoveSource {
    /// No arena.
    Nothing,
    /// The arena itself and arenas whose streams are idle.
    Idle,
    /// Every arena of the default pool; the device makes the requester's stream wait for theirs.
    Ordered,
}

/// The limits for one growth step.
#[derive(Debug, Clone, Copy)]
pub struct GrowthLimits {
    /// The maximum number of bytes that may be held after the step.
    pub max_held: u64,
    /// The arenas from which memory may be moved.
    pub move_from: MoveSource,
    /// Whether memory is moved before any is created.
    pub move_first: bool,
    /// The multiple up to which memory grows, if it is for large blocks in [sections](super::sections). Then none is moved.
    pub section_growth: Option<u64>,
    /// The live bytes of the device, on which the handles of large blocks depend.
    pub live: u64,
    /// The limit of held bytes of the device.
    pub limit: u64,
    /// The bytes by which the pool may grow; unlimited unless the pool has a budget.
    pub allowance: u64,
}

impl GrowthLimits {
    /// Returns the limits of a step that creates memory up to `limit`, and moves none, while `live` bytes are in use.
    pub fn creation(limit: u64, allowance: u64, live: u64) -> GrowthLimits {
        GrowthLimits {
            max_held: limit,
            move_from: MoveSource::Nothing,
            move_first: false,
            section_growth: None,
            live,
            limit,
            allowance,
        }
    }
}

/// Rejects addresses that the directory cannot store.
fn check_address(allocator: &str, address: u64, bytes: u64) -> Result<()> {
    if directory::accepts(address, bytes) {
        return Ok(());
    }
    let what = format!(
        "{allocator} returned the address {address:#x}, which is not a multiple of {UNIT}, or {} from there on exceed \
         {ADDRESS_BITS} bits",
        Bytes(bytes)
    );
    Err(Error::new(Status::NOT_SUPPORTED, what))
}

/// The number of candidates to try with moved handles, whose sizes seldom match the missing size exactly.
const MAX_CANDIDATES: usize = 8;

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
struct MovableHandle {
    arena: &'static Arena,
    handle: ReclaimableHandle,
    generation: u32,
    /// Whether the arena is another one, all of whose stream's work is done.
    idle: bool,
}

/// The handles to map at a site.
#[derive(Default)]
struct SiteHandles {
    created: Vec<Handle>,
    moved: Vec<(MovableHandle, DetachedHandle)>,
}

impl Grower<'_> {
    fn driver(&self) -> &Driver {
        &self.runtime.driver
    }

    /// Grows the arena and allocates a block for the request. Returns `None`, without any change, if the limits do not
    /// allow it.
    pub fn grow(&self, request: Request, limits: GrowthLimits) -> Result<Option<u64>> {
        let method = self.device.memory().method(self.device, self.driver())?;
        if request.size > limits.max_held || request.size > limits.allowance {
            return Ok(None);
        }
        if let Some(plugin) = pool::allocator(self.arena.key().pool) {
            return self.grow_by_segment(request, limits, Some(plugin));
        }
        match method {
            _ if self.arena.lock().memory.segments => self.grow_by_segment(request, limits, None),
            Method::Segments => self.grow_by_segment(request, limits, None),
            Method::Virtual { granule } if self.arena.lock().memory.nccl_window => {
                self.grow_by_handle(request, limits, granule)
            }
            Method::Virtual { granule } => self.grow_by_mapping(request, limits, granule),
        }
    }

    // ---- segments

    /// Grows by a segment of the driver, or of the pool's own allocator if it has one. That allocator is the program's code
    /// and must not allocate from the caching allocator, whose locks are held.
    fn grow_by_segment(
        &self,
        request: Request,
        limits: GrowthLimits,
        allocator: Option<Arc<Plugin>>,
    ) -> Result<Option<u64>> {
        let (zone, memory, config) = (zone_of(request.size), self.device.memory(), config::get()?);
        let Some(bytes) = policy::segment_size(request.size, config.large_segment_size) else { return Ok(None) };
        if bytes > limits.allowance || !memory.try_hold(bytes, limits.max_held) {
            return Ok(None);
        }
        let segment = match allocator {
            None => self.allocate_segment(bytes),
            Some(plugin) => self.allocate_external_segment(plugin, bytes),
        };
        let Ok(Some(segment)) = segment else {
            memory.cancel_hold(bytes);
            return segment.map(|_| None);
        };
        memory.created.increment();
        let mut inner = self.arena.lock();
        inner.space.set_split_limits(config.split_limits());
        Ok(Some(inner.space.add_segment(segment, bytes, zone, request.size, request.requested)))
    }

    /// Allocates a segment of the driver, whose addresses satisfy the directory's rules in practice.
    fn allocate_segment(&self, bytes: u64) -> Result<Option<(u64, Backing)>> {
        let segment = match self.driver().segment_alloc(bytes) {
            Ok(segment) => segment,
            Err(failure) if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY => return Ok(None),
            Err(failure) => {
                return Err(Error::from(failure).context(format_args!("allocating a segment of {}", Bytes(bytes))));
            }
        };
        let checked = check_address("the driver", segment.address(), bytes);
        if checked.is_err() {
            sync_debug::require("an allocation that failed", || retry(|| self.driver().segment_free(segment)));
        }
        checked.map(|()| Some((segment.address(), Backing::Segment(segment))))
    }

    fn allocate_external_segment(&self, plugin: Arc<Plugin>, bytes: u64) -> Result<Option<(u64, Backing)>> {
        let Some(address) = external_segments::allocate(plugin, bytes, self.device.ordinal, self.stream) else {
            return Ok(None);
        };
        let checked = check_address("the pool's allocator", address, bytes);
        if checked.is_err() {
            external_segments::free(address);
        }
        checked.map(|()| Some((address, Backing::External)))
    }

    // ---- mapping

    fn grow_by_mapping(&self, request: Request, limits: GrowthLimits, granule: u64) -> Result<Option<u64>> {
        let zone = zone_of(request.size);
        let creatable =
            limits.max_held.saturating_sub(self.device.memory().held()).min(limits.allowance) / granule * granule;
        if limits.move_from == MoveSource::Nothing && request.size > creatable.saturating_add(self.free_at_most()) {
            return Ok(None);
        }
        let mut candidates = self.growth_candidates(zone, request.size, granule, limits.section_growth.is_some());
        if candidates.is_empty() {
            if !self.reserve_for(zone, request.size, granule)? {
                return Ok(None);
            }
            candidates = self.growth_candidates(zone, request.size, granule, limits.section_growth.is_some());
        }
        for candidate in candidates.iter().take(MAX_CANDIDATES) {
            if let Some(address) = self.try_candidate(*candidate, request, limits, creatable, granule)? {
                return Ok(Some(address));
            }
            if limits.move_from == MoveSource::Nothing {
                return Ok(None);
            }
        }
        // Moved handles may need more addresses than any hole has.
        let room = request.size.saturating_mul(2);
        if limits.move_from != MoveSource::Nothing
            && candidates.iter().all(|candidate| candidate.room < room)
            && self.reserve_for(zone, room, granule)?
            && let Some(candidate) = self
                .growth_candidates(zone, request.size, granule, limits.section_growth.is_some())
                .iter()
                .max_by_key(|candidate| candidate.room)
        {
            return self.try_candidate(*candidate, request, limits, creatable, granule);
        }
        Ok(None)
    }

    /// Grows by a handle that has a region for itself, of a segment's size: no block extends beyond it.
    fn grow_by_handle(&self, request: Request, limits: GrowthLimits, granule: u64) -> Result<Option<u64>> {
        let zone = zone_of(request.size);
        let segment = policy::segment_size(request.size, config::get()?.large_segment_size);
        let Some(bytes) = segment.and_then(|bytes| bytes.checked_next_multiple_of(granule)) else { return Ok(None) };
        if bytes > limits.allowance {
            return Ok(None);
        }
        let mut site_handles = SiteHandles::default();
        if !self.create(vec![bytes], limits.max_held, &mut site_handles)? {
            return Ok(None);
        }
        let find_site = || {
            let mut inner = self.arena.lock();
            let candidate = inner.space.unmapped_region(zone, bytes)?;
            Some(inner.space.reserve_site(candidate))
        };
        let found = match find_site() {
            Some(site) => Ok(Some(site)),
            None => self.reserve(zone, bytes, bytes, granule).map(|_| find_site()),
        };
        let Ok(Some(site)) = found else {
            self.undo(site_handles);
            return found.map(|_| None);
        };
        let mapped = self.map(site, &site_handles);
        if !matches!(mapped, Ok(true)) {
            self.undo(site_handles);
            self.arena.lock().space.release_site(site);
            return mapped.map(|_| None);
        }
        Ok(Some(self.publish(site, site_handles, request)))
    }

    /// Returns a bound on the free bytes that a candidate can use: no candidate saves more than two free blocks.
    fn free_at_most(&self) -> u64 {
        self.arena.lock().space.largest_free().saturating_mul(2)
    }

    fn growth_candidates(&self, zone: Zone, size: u64, granule: u64, in_sections: bool) -> Vec<GrowthCandidate> {
        self.arena.lock().space.growth_candidates(zone, size, granule, in_sections)
    }

    /// Reserves addresses for at least `size` bytes, and for many more if possible. Returns whether there were enough.
    fn reserve_for(&self, zone: Zone, size: u64, granule: u64) -> Result<bool> {
        let total = self.device.memory().total(self.device, self.driver())?;
        let min_bytes = size.div_ceil(granule).saturating_mul(granule);
        self.reserve(zone, policy::region_size(zone, total, granule).max(min_bytes), min_bytes, granule)
    }

    /// Reserves `bytes` of addresses, or fewer where they are limited, but at least `min_bytes`. Returns whether there were
    /// enough.
    fn reserve(&self, zone: Zone, mut bytes: u64, min_bytes: u64, granule: u64) -> Result<bool> {
        loop {
            // The addresses begin at such a multiple, unless they are scarce, so that the first growth in sections is one handle.
            let alignment = if bytes > min_bytes.max(LARGEST_GROWTH) { LARGEST_GROWTH.max(granule) } else { granule };
            match self.driver().memory_reserve(bytes, alignment) {
                Ok(address) => {
                    check_address("the driver", address, bytes).inspect_err(|_| {
                        let _ = self.driver().memory_unreserve(address, bytes);
                    })?;
                    let mut inner = self.arena.lock();
                    inner.space.add_region(address, bytes, zone);
                    if Self::may_split_handles(&inner) {
                        inner.space.enable_handle_splits(granule);
                    }
                    return Ok(true);
                }
                // Addresses may be scarce, for example under a limit on virtual memory: retry with fewer.
                Err(failure) if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY && bytes > min_bytes => {
                    bytes = (bytes / 2 / granule * granule).max(min_bytes);
                }
                Err(failure) if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY => return Ok(false),
                Err(failure) => {
                    return Err(Error::from(failure).context(format_args!("reserving {} of addresses", Bytes(bytes))));
                }
            }
        }
    }

    /// Returns whether the arena's handles may be split. Those of a private pool may not.
    fn may_split_handles(inner: &Inner) -> bool {
        inner.key.pool == PoolId::DEFAULT && !inner.space.no_split
    }

    fn try_candidate(
        &self,
        candidate: GrowthCandidate,
        request: Request,
        limits: GrowthLimits,
        creatable: u64,
        granule: u64,
    ) -> Result<Option<u64>> {
        if candidate.need > creatable && limits.move_from == MoveSource::Nothing {
            return Ok(None);
        }
        let site = {
            let mut inner = self.arena.lock();
            // The lock was released after the candidates were determined. No other thread grows this arena, but blocks
            // beside the hole may have been freed or allocated.
            match inner
                .space
                .growth_candidates(zone_of(request.size), request.size, granule, limits.section_growth.is_some())
                .into_iter()
                .find(|now| *now == candidate)
            {
                Some(candidate) => inner.space.reserve_site(candidate),
                None => return Ok(None),
            }
        };
        let outcome = self.fill_site(site, request, limits, creatable, granule);
        if !matches!(outcome, Ok(Some(_))) {
            self.arena.lock().space.release_site(site);
        }
        outcome
    }

    /// Gets handles for a site and maps them. If it returns no address, the site is still reserved.
    fn fill_site(
        &self,
        site: GrowthSite,
        request: Request,
        limits: GrowthLimits,
        creatable: u64,
        granule: u64,
    ) -> Result<Option<u64>> {
        let mut site_handles = SiteHandles::default();
        // Create memory first as far as the limits allow, and move the rest.
        let missing_bytes = if limits.move_first { site.need } else { site.need.saturating_sub(creatable) };
        if missing_bytes > 0 && limits.move_from != MoveSource::Nothing {
            let picks = self.pick(missing_bytes, site.room, limits);
            let found: u64 = picks.iter().map(|pick| pick.handle.bytes).sum();
            if found.saturating_add(creatable) < site.need {
                return Ok(None);
            }
            for pick in picks {
                if let Some(detached) = pick.arena.detach(&pick.handle, pick.generation) {
                    site_handles.moved.push((pick, detached));
                }
            }
            self.check_idle(&mut site_handles);
        }
        let moved: u64 = site_handles.moved.iter().map(|(_, detached)| detached.bytes).sum();
        let missing = site.need.saturating_sub(moved);
        let (zone, room) = (zone_of(request.size), site.room.saturating_sub(moved));
        let memory = self.device.memory();
        let supply = memory.supply(limits.limit);
        let zone_bytes = self.arena.lock().space.counters.zones[zone as usize].reserved.current;
        let handle = policy::handle_size(zone, missing, zone_bytes, limits.live, supply, limits.limit, granule);
        // What other processes, or the pool's budget, may need is not rounded up.
        let exact = supply == Supply::Shared || limits.allowance != u64::MAX;
        let (handle, whole) = if let Some(growth) = limits.section_growth {
            // Less than the whole growth would come in small handles. The step moves nothing that would have to go back.
            let whole = site.whole_growth(site.need, growth);
            if whole > creatable {
                return Ok(None);
            }
            (handle.max(whole.min(growth)), whole)
        } else {
            (handle, missing.div_ceil(handle).saturating_mul(handle))
        };
        let create = if missing == 0 { 0 } else { policy::growth(missing, whole, room, creatable, exact) };
        let outcome = self
            .create(policy::handle_sizes(create, handle, granule), limits.max_held, &mut site_handles)
            .and_then(|enough| {
                if !enough || moved + create < site.need {
                    return Ok(false);
                }
                if !self.order_after(&site_handles)? {
                    return Ok(false);
                }
                self.map(site, &site_handles)
            });
        match outcome {
            Ok(true) => Ok(Some(self.publish(site, site_handles, request))),
            Ok(false) => {
                self.undo(site_handles);
                Ok(None)
            }
            Err(error) => {
                self.undo(site_handles);
                Err(error)
            }
        }
    }

    /// Chooses idle handles of `missing` bytes in all, or as many as there are, and of at most `room` bytes. Prefers
    /// the arena's own handles.
    fn pick(&self, missing_bytes: u64, room: u64, limits: GrowthLimits) -> Vec<MovableHandle> {
        let capturing = may_capture(self.driver(), self.stream);
        let sizes = |pick: &MovableHandle| (pick.handle.block_bytes, pick.handle.bytes);
        let mut candidates = Vec::new();
        // Memory that a capturing stream freed may be part of the graph, so no memory of its arena moves.
        if !capturing && stream_events::may_move_memory(self.runtime, self.device, self.arena, false) {
            let (movable, generation) = self.arena.movable_handles();
            candidates.extend(movable.into_iter().map(|handle| MovableHandle {
                arena: self.arena,
                handle,
                generation,
                idle: false,
            }));
        }
        let own_handles = policy::choose(candidates.clone(), missing_bytes, room, sizes);
        // A pool with a budget gets no memory from other arenas: it would count against the budget but cannot be
        // counted beforehand.
        if own_handles.iter().map(|pick| pick.handle.bytes).sum::<u64>() >= missing_bytes
            || limits.allowance != u64::MAX
        {
            return own_handles;
        }
        let ordered = limits.move_from == MoveSource::Ordered && !capturing;
        let options = self.arena.lock().memory;
        let arenas = self.device.memory().arenas();
        let is_other = |arena: &Arena| arena.number != self.arena.number;
        // Programs free memory that another stream still uses, without a record of that stream, and work as long as
        // nothing else gets it. The requesting stream may be the user too: see `publish`.
        let mut quiet = None;
        let mut is_quiet = || {
            *quiet.get_or_insert_with(|| {
                !arenas.iter().any(|arena| is_other(arena) && stream_events::is_busy(self.runtime, arena))
            })
        };
        for arena in arenas.iter().copied() {
            // An event of the device would invalidate the capture, which may be one of the program's own.
            if !is_other(arena)
                || arena.lock().memory != options
                || capturing && arena.lock().graph_work.is_some()
                || !stream_events::may_move_memory(self.runtime, self.device, arena, false)
            {
                continue;
            }
            let (movable, generation) = arena.movable_handles();
            if movable.is_empty() {
                continue;
            }
            let idle = stream_events::is_idle(self.runtime, arena) && is_quiet();
            if idle || (ordered && stream_events::can_record_event(self.runtime, arena)) {
                candidates.extend(movable.into_iter().map(|handle| MovableHandle { arena, handle, generation, idle }));
            }
        }
        policy::choose(candidates, missing_bytes, room, sizes)
    }

    /// Queries again which arenas are idle, now that their handles are detached.
    fn check_idle(&self, site_handles: &mut SiteHandles) {
        let mut known: Vec<(u32, bool)> = Vec::new();
        for (pick, _) in site_handles.moved.iter_mut().filter(|(pick, _)| pick.idle) {
            pick.idle = match known.iter().find(|(number, _)| *number == pick.arena.number) {
                Some((_, idle)) => *idle,
                None => {
                    let idle = stream_events::is_idle(self.runtime, pick.arena);
                    known.push((pick.arena.number, idle));
                    idle
                }
            };
        }
    }

    /// Creates handles of these sizes. Returns whether there was enough memory.
    fn create(&self, sizes: Vec<u64>, max_held: u64, site_handles: &mut SiteHandles) -> Result<bool> {
        let options = self.arena.lock().memory;
        for size in sizes {
            match handles::create(self.device, self.driver(), size, max_held, options)? {
                Some(handle) => site_handles.created.push(handle),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Makes the arena's stream wait for the streams of busy arenas that gave up handles. Returns `false` if one of
    /// them is capturing.
    fn order_after(&self, site_handles: &SiteHandles) -> Result<bool> {
        let mut done: Vec<u32> = Vec::new();
        for (pick, _) in &site_handles.moved {
            if !pick.idle && pick.arena.number != self.arena.number && !done.contains(&pick.arena.number) {
                if !stream_events::order_after(self.runtime, self.device, self.stream, pick.arena)? {
                    return Ok(false);
                }
                done.push(pick.arena.number);
            }
        }
        Ok(true)
    }

    /// Maps the handles at the site, one after the other. Returns `false` if the driver does not unmap what was there before.
    fn map(&self, site: GrowthSite, site_handles: &SiteHandles) -> Result<bool> {
        let site_handles: Vec<Handle> = site_handles.handles().collect();
        let bytes = site_handles.iter().map(|(_, bytes)| bytes).sum();
        let address = site.address(bytes);
        if !self.device.memory().previous_mappings.lock().remove_in(self.driver(), address, bytes) {
            return Ok(false);
        }
        handles::map(self.device, self.driver(), address, &site_handles).map(|()| true)
    }

    /// Allocates the block of the mapped handles, and frees the previous addresses of moved handles.
    fn publish(&self, site: GrowthSite, site_handles: SiteHandles, request: Request) -> u64 {
        let handles: Vec<Handle> = site_handles.handles().collect();
        // First the previous addresses, so that no handle is counted twice.
        for (pick, detached) in &site_handles.moved {
            let memory = self.device.memory();
            memory.moves.lock().add(detached.bytes);
            memory.previous_mappings.lock().add(detached.address, detached.bytes, detached.physical);
            pick.arena.lock().space.mark_moved(detached);
        }
        let address = self.arena.lock().space.commit_site(site, &handles, request.size, request.requested);
        let own_idle = site_handles.moved.is_empty() || stream_events::is_idle(self.runtime, self.arena);
        for (pick, detached) in site_handles.moved {
            // Memory of an idle arena may be in use by this arena's stream, without a record.
            let own = pick.idle || pick.arena.number == self.arena.number;
            let (last_user, idle) = if own { (self.arena, own_idle) } else { (pick.arena, false) };
            let event = StreamEvent::Pending(last_user.stream_use());
            let pending = PendingUnmap {
                block: detached.block,
                address: detached.address,
                bytes: detached.bytes,
                physical: None,
                event,
            };
            // The request succeeded. An address that stays mapped for now concerns the allocator only.
            let _ = stream_events::free_addresses_when_idle(self.runtime, self.device, pick.arena, pending, idle);
        }
        address
    }

    fn undo(&self, site_handles: SiteHandles) {
        handles::undo(self.device, self.driver(), site_handles.created);
        for (pick, detached) in site_handles.moved {
            pick.arena.lock().space.reattach(detached.block);
        }
    }
}

impl SiteHandles {
    /// Returns the handles in the order in which they are mapped.
    fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        let moved = self.moved.iter().map(|(_, detached)| (detached.physical, detached.bytes));
        self.created.iter().copied().chain(moved)
    }
}
