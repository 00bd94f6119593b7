//! The handles that are mapped at a site of an arena, new ones and such that are moved: the second half of a growth.

use super::{
    arena::{Arena, PendingUnmap, StreamEvent},
    block::{Zone, zone_of},
    config,
    grow::{Grower, GrowthLimits, MoveSource, Request},
    growth::{DetachedHandle, GrowthSite, ReclaimableHandle},
    handles::{self, Handle},
    policy::{self, Supply},
    stream_events,
};
use crate::{error::Result, stream::capture_status::may_capture};

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
    /// Grows by a handle that has a region for itself, of a segment's size: no block extends beyond it.
    pub(super) fn grow_by_handle(&self, request: Request, limits: GrowthLimits, granule: u64) -> Result<Option<u64>> {
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

    /// Gets handles for a site and maps them. If it returns no address, the site is still reserved.
    pub(super) fn fill_site(
        &self,
        site: GrowthSite,
        request: Request,
        limits: GrowthLimits,
        creatable: u64,
        granule: u64,
    ) -> Result<Option<u64>> {
        let Some(mut site_handles) = self.detach_handles(site, limits, creatable) else { return Ok(None) };
        let (zone, moved) = (zone_of(request.size), site_handles.bytes());
        let Some(sizes) = self.sizes_to_create(site, zone, moved, limits, creatable, granule) else {
            self.undo(site_handles);
            return Ok(None);
        };
        match self.create_and_map(site, sizes, limits.max_held, &mut site_handles) {
            Ok(true) => Ok(Some(self.publish(site, site_handles, request))),
            failed => {
                self.undo(site_handles);
                failed.map(|_| None)
            }
        }
    }

    /// Detaches idle handles for a site: for what cannot be created, or for all of it if memory is moved first. Returns `None`,
    /// without any change, if they do not suffice together with what can be created.
    fn detach_handles(&self, site: GrowthSite, limits: GrowthLimits, creatable: u64) -> Option<SiteHandles> {
        let wanted = if limits.move_first { site.need } else { site.need.saturating_sub(creatable) };
        let mut site_handles = SiteHandles::default();
        if wanted == 0 || limits.move_from == MoveSource::Nothing {
            return Some(site_handles);
        }
        let picks = self.pick(wanted, site.room, limits);
        let found: u64 = picks.iter().map(|pick| pick.handle.bytes).sum();
        if found.saturating_add(creatable) < site.need {
            return None;
        }
        // Another thread may have allocated from some of these blocks since.
        for pick in picks {
            if let Some(detached) = pick.arena.detach(&pick.handle, pick.generation) {
                site_handles.moved.push((pick, detached));
            }
        }
        self.check_idle(&mut site_handles);
        Some(site_handles)
    }

    /// Returns the sizes of the handles to create for a site beside `moved` bytes. Returns `None` if memory is to grow in
    /// sections and the limits do not allow the whole growth.
    fn sizes_to_create(
        &self,
        site: GrowthSite,
        zone: Zone,
        moved: u64,
        limits: GrowthLimits,
        creatable: u64,
        granule: u64,
    ) -> Option<Vec<u64>> {
        let missing = site.need.saturating_sub(moved);
        if missing == 0 {
            return Some(Vec::new());
        }
        let supply = self.device.memory().supply(limits.limit);
        let zone_bytes = self.arena.lock().space.counters.zones[zone as usize].reserved.current;
        let handle = policy::handle_size(zone, missing, zone_bytes, limits.live, supply, limits.limit, granule);
        let (handle, whole) = match limits.section_growth {
            Some(growth) => {
                let whole = site.whole_growth(site.need, growth);
                // Less than the whole growth would come in small handles.
                if whole > creatable {
                    return None;
                }
                (handle.max(whole.min(growth)), whole)
            }
            None => (handle, missing.div_ceil(handle).saturating_mul(handle)),
        };
        // What other processes, or the pool's budget, may need is not rounded up.
        let exact = supply == Supply::Shared || limits.allowance != u64::MAX;
        let bytes = policy::growth(missing, whole, site.room.saturating_sub(moved), creatable, exact);
        Some(policy::handle_sizes(bytes, handle, granule))
    }

    /// Creates handles of these sizes and maps all handles at the site. Returns `false` if memory does not suffice, a stream
    /// captures, or the driver does not unmap what was there before. The caller undoes what was done then.
    fn create_and_map(
        &self,
        site: GrowthSite,
        sizes: Vec<u64>,
        max_held: u64,
        site_handles: &mut SiteHandles,
    ) -> Result<bool> {
        Ok(self.create(sizes, max_held, site_handles)?
            && site_handles.bytes() >= site.need
            && self.order_after(site_handles)?
            && self.map(site, site_handles)?)
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
        handles::confirm(self.device, &site_handles.created);
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

    /// Returns the size of all handles in bytes.
    fn bytes(&self) -> u64 {
        self.handles().map(|(_, bytes)| bytes).sum()
    }
}
