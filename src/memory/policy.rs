//! The allocator's policies: handle sizes, growth of arenas, and when to move memory. The constants come from replays
//! of recorded programs; see docs/allocator.md.

use super::block::{SMALL, Zone};

/// The memory that may be held before memory is moved instead of created, in thousandths of the live peak.
const SLACK: u64 = 1040;
/// The increment of [`SLACK`], in thousandths, for each time that as many bytes were moved as the live peak, not
/// counting the first half; and the maximum increment. A program that keeps moving memory is better off with more of
/// it.
const SLACK_FOR_MOVES: u64 = 40;
const MORE_SLACK: u64 = 150;
/// The additional bytes that each arena may hold, because its handles are never all full.
const SLACK_OF_ARENA: u64 = 4 << 20;
/// The maximum growth of a zone of small blocks. A zone grows by its current size up to this, so that threads soon stop
/// requesting memory.
const MAX_SMALL_GROWTH: u64 = 8 << 20;
/// The growth is at most the limit divided by this.
const SMALL_GROWTHS_OF_LIMIT: u64 = 1024;
/// The largest handle. Handles of this size give kernels the bandwidth of the driver's own allocations; larger ones are
/// seldom completely free.
const MAX_HANDLE: u64 = 32 << 20;
/// The smallest handle for large blocks while memory is not short.
const MIN_LARGE_HANDLE: u64 = 8 << 20;
/// The live bytes divided by this give the handle size. Unreleasable memory in partly used handles amounts to a few
/// handles of any size, and should stay at a few thousandths of the whole.
const HANDLES_OF_LIVE: u64 = 128;
/// The same for a limit on a device that processes share. Handles of a busy stream cannot be split, so they are smaller.
const HANDLES_OF_SHARED_LIMIT: u64 = 1024;
/// From this size on, growth uses the largest handles regardless of the live bytes.
const LARGE_NEED: u64 = 256 << 20;
/// The held part of the limit, in thousandths, from which memory counts as short.
const SHORT: u64 = 500;
/// The maximum unreleasable memory when memory is short, in thousandths of the live peak.
const UNRELEASABLE_WHEN_SHORT: u64 = 5;

/// Limits on splitting blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitLimits {
    /// Blocks of at least this size are never split, and serve only requests of at least this size.
    pub min_unsplit: u64,
    /// Such a block exceeds the request by less than this.
    pub max_excess: u64,
}

impl SplitLimits {
    /// Returns whether a block may serve a request.
    pub fn allows(&self, block: u64, size: u64) -> bool {
        if size < self.min_unsplit { block < self.min_unsplit } else { block < size.saturating_add(self.max_excess) }
    }

    /// Returns whether the rest of a block may be split off.
    pub fn may_split(&self, size: u64) -> bool {
        size < self.min_unsplit
    }
}

/// Returns how many bytes may be held while `live` bytes are in use, the live peak is `live_peak`, `request` more bytes
/// are requested, `moved` bytes were moved so far, and there are `arenas` arenas.
pub fn soft_limit(live: u64, live_peak: u64, request: u64, moved: u64, arenas: u64) -> u64 {
    let peak = live.saturating_add(request).max(live_peak);
    let often = moved.saturating_sub(peak / 2);
    let more = (often.saturating_mul(SLACK_FOR_MOVES) / peak.max(1)).min(MORE_SLACK);
    (peak / 1000).saturating_mul(SLACK + more).saturating_add(SLACK_OF_ARENA * arenas)
}

/// How much memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// More than half of the limit is not held.
    Plenty,
    /// At least half of the limit is held.
    Short,
    /// Other processes may ask for it: what this one cannot release is missing in them.
    Shared,
}

/// Returns how much memory there is when `held` bytes of `limit` are held on a device that processes share or not.
pub fn supply(held: u64, limit: u64, shared: bool) -> Supply {
    match (shared, held / 1000 >= limit / 1_000_000 * SHORT) {
        (true, _) => Supply::Shared,
        (false, true) => Supply::Short,
        (false, false) => Supply::Plenty,
    }
}

/// Returns an arena's limits on unreleasable memory; see [`UnreleasableLimits`]. There are none while memory is plentiful:
/// a split costs as much as three moves, and leaves more handles to move.
pub fn unreleasable_limits(supply: Supply, budget: u64, live_elsewhere: u64, live_peak: u64) -> UnreleasableLimits {
    if supply == Supply::Plenty {
        return UnreleasableLimits::default();
    }
    UnreleasableLimits {
        budget: budget.saturating_sub(live_elsewhere),
        max_unreleasable: live_peak / 1000 * UNRELEASABLE_WHEN_SHORT,
    }
}

/// How much memory in partly used handles may be unreleasable before an arena splits a handle instead of placing the
/// edge of a block inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreleasableLimits {
    /// The bytes that the arena may hold. Half of the free part of them may be unreleasable.
    budget: u64,
    /// The upper bound on unreleasable bytes.
    max_unreleasable: u64,
}

impl Default for UnreleasableLimits {
    fn default() -> Self {
        UnreleasableLimits { budget: u64::MAX, max_unreleasable: u64::MAX }
    }
}

impl UnreleasableLimits {
    /// Returns the allowed unreleasable bytes while `live` bytes of the arena are in use.
    pub fn allowance(&self, live: u64) -> u64 {
        (self.budget.saturating_sub(live) / 2).min(self.max_unreleasable)
    }

    /// Returns whether `unreleasable` bytes may exceed the allowance after one more handle becomes partly used.
    pub fn may_matter(&self, unreleasable: u64, live: u64) -> bool {
        unreleasable.saturating_add(MAX_HANDLE) > self.allowance(live)
    }
}

/// Returns the handle size for a growth by `need` bytes while `live` bytes are in use and at most `limit` may be held.
///
/// A zone of small blocks grows by one handle at a time, whose size depends on `zone_bytes`, the zone's current size.
pub fn handle_size(zone: Zone, need: u64, zone_bytes: u64, live: u64, supply: Supply, limit: u64, granule: u64) -> u64 {
    let size = match zone {
        Zone::Small if supply != Supply::Plenty => granule,
        Zone::Small => {
            let max_handle = MAX_SMALL_GROWTH.min(limit / SMALL_GROWTHS_OF_LIMIT).max(granule);
            (1 << zone_bytes.max(1).ilog2()).clamp(granule, max_handle)
        }
        Zone::Large if need >= LARGE_NEED => MAX_HANDLE,
        Zone::Large => {
            let share = (live.saturating_add(need) / HANDLES_OF_LIVE).max(1);
            (1 << share.ilog2()).clamp(MIN_LARGE_HANDLE, MAX_HANDLE)
        }
    };
    let handles_of_limit = if supply == Supply::Shared { HANDLES_OF_SHARED_LIMIT } else { HANDLES_OF_LIVE };
    size.min(limit / handles_of_limit).max(granule) / granule * granule
}

/// Returns the bytes to create when `need` bytes are needed: a multiple of `handle` if `room` bytes of addresses and
/// `creatable` bytes of memory allow it, otherwise `need`. On a device that processes share it is `need`: the last handle
/// ends with the block, so that all handles can be returned with the block.
pub fn growth(need: u64, handle: u64, room: u64, creatable: u64, supply: Supply) -> u64 {
    let whole = need.div_ceil(handle).saturating_mul(handle);
    if whole <= room && whole <= creatable && supply != Supply::Shared { whole } else { need }
}

/// Divides `bytes` bytes of new memory, a multiple of `granule`, into handles: as many of size `handle` as fit, then
/// smaller ones.
pub fn handle_sizes(bytes: u64, handle: u64, granule: u64) -> Vec<u64> {
    let (mut sizes, mut left, mut size) = (Vec::new(), bytes, handle);
    while left > 0 {
        while left >= size {
            sizes.push(size);
            left -= size;
        }
        size = (size / 2 / granule * granule).max(granule);
    }
    sizes
}

/// Chooses handles to move, those in the smallest free blocks first: at least `missing` bytes if there are enough, and
/// at most `room` bytes. `sizes` returns the size of a candidate's block and of the candidate itself.
pub fn choose<T: Copy>(mut candidates: Vec<T>, missing: u64, room: u64, sizes: impl Fn(&T) -> (u64, u64)) -> Vec<T> {
    candidates.sort_by_key(|candidate| sizes(candidate).0);
    let (mut chosen, mut sum) = (Vec::new(), 0);
    for candidate in candidates {
        let bytes = sizes(&candidate).1;
        if sum >= missing {
            break;
        }
        if sum + bytes <= room {
            sum += bytes;
            chosen.push(candidate);
        }
    }
    // The last candidates may have made some of the first unnecessary.
    chosen.retain(|candidate| {
        let rest = sum - sizes(candidate).1;
        let needless = rest >= missing;
        if needless {
            sum = rest;
        }
        !needless
    });
    chosen
}

/// Returns the size of the address range to reserve for a zone of an arena.
pub fn region_size(zone: Zone, total: u64, granule: u64) -> u64 {
    let bytes = match zone {
        Zone::Small => 1 << 30,
        Zone::Large => (total / 4).max(1 << 30),
    };
    bytes.div_ceil(granule) * granule
}

/// Returns the segment size for a request if memory cannot be mapped: the same as in torch. `None` on overflow.
///
/// `large_segment` is the setting `large_segment_size_mb`.
pub fn segment_size(size: u64, large_segment: u64) -> Option<u64> {
    const SMALL_SEGMENT: u64 = 2 << 20;
    const LARGE: u64 = 10 << 20;
    if size <= SMALL {
        Some(SMALL_SEGMENT)
    } else if size < LARGE {
        Some(large_segment)
    } else {
        size.div_ceil(SMALL_SEGMENT).checked_mul(SMALL_SEGMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_split_only_while_memory_is_short() {
        let limits = |supply| unreleasable_limits(supply, 1100 << 20, 0, 1000 << 20);
        assert_eq!(limits(Supply::Plenty), UnreleasableLimits::default());
        assert_eq!(limits(Supply::Short).allowance(1000 << 20), (1000 << 20) / 1000 * UNRELEASABLE_WHEN_SHORT);
        assert_eq!(limits(Supply::Shared).allowance(1099 << 20), 1 << 19);
    }

    #[test]
    fn large_blocks_are_not_split() {
        let limits = SplitLimits { min_unsplit: 100, max_excess: 20 };
        assert!(limits.allows(99, 10) && !limits.allows(100, 10));
        assert!(limits.allows(119, 100) && !limits.allows(120, 100));
        assert!(limits.may_split(99) && !limits.may_split(100));
    }
}
