//! Growing an arena: maps physical memory to the arena's addresses, and undoes it on failure.
//!
//! Memory comes from the driver as new handles, or is moved: a handle that is completely free is mapped at the address
//! where it is needed. A handle may have two addresses for a while, so moving does not wait: stream order protects the
//! earlier users of the old address, which becomes a hole after the stream has completed their work.
//!
//! Each step either succeeds or leaves everything unchanged. No arena's lock is held during a driver call.

use super::{
    arena::{Arena, Inner},
    block::{UNIT, Zone, zone_of},
    config,
    device_memory::Method,
    directory::{self, ADDRESS_BITS},
    external_segments,
    growth::GrowthCandidate,
    mapped::Backing,
    policy,
    pool::{self, PoolId},
    sections::LARGEST_GROWTH,
};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, Stream, codes, plugin::Plugin},
    error::{Error, Result},
    runtime::{Runtime, device::Device, sync_debug},
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
pub enum MoveSource {
    /// No arena.
    Nothing,
    /// The arena itself and, while no third stream is busy, arenas whose streams are idle.
    Idle,
    /// Every arena of the default pool and of pools that have ended; the device makes the requester's stream wait for theirs.
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

impl Grower<'_> {
    pub(super) fn driver(&self) -> &Driver {
        &self.runtime.driver
    }

    /// Grows the arena and allocates a block for the request. Returns `None`, without any change, if the limits do not
    /// allow it.
    pub fn grow(&self, request: Request, limits: GrowthLimits) -> Result<Option<u64>> {
        let method = self.device.memory().method(self.device, self.driver())?;
        if request.size > limits.max_held || request.size > limits.allowance {
            return Ok(None);
        }
        let (plugin, memory) = (pool::allocator(self.arena.key().pool), self.arena.lock().memory);
        match method {
            Method::Virtual { granule } if plugin.is_none() && !memory.segments && !memory.nccl_window => {
                self.grow_by_mapping(request, limits, granule)
            }
            // Such memory cannot be moved, and a step that moves none was tried.
            _ if limits.move_from != MoveSource::Nothing => Ok(None),
            Method::Virtual { granule } if plugin.is_none() && !memory.segments => {
                self.grow_by_handle(request, limits, granule)
            }
            Method::Virtual { .. } | Method::Segments => self.grow_by_segment(request, limits, plugin),
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
        memory.confirm_hold(bytes);
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
    pub(super) fn reserve(&self, zone: Zone, mut bytes: u64, min_bytes: u64, granule: u64) -> Result<bool> {
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
}
