//! The allocator's choices: how large handles are, how much an arena grows, what is worth moving. The numbers come
//! from replays of recorded programs; docs/allocator.md tells them.

use super::{block::Zone, space::SMALL};

/// How much may be held before memory is moved instead of created, in thousandths of the most that was ever live.
const SLACK: u64 = 1040;
/// What is added to that, in thousandths, for each time that as much was moved as was ever live, but for the first half
/// time, and at most. A program that would move memory for ever is better off with some more of it.
const SLACK_FOR_MOVES: u64 = 40;
const MORE_SLACK: u64 = 150;
/// What each arena may hold beyond in any case: its handles are never all full.
const SLACK_OF_ARENA: u64 = 4 << 20;
/// How far a zone of small blocks grows at a time: as far as it has come, up to this, so that a program's threads soon
/// stop asking.
const LARGEST_SMALL_GROWTH: u64 = 8 << 20;
/// It is no more than this part of what may be held at all.
const SMALL_GROWTHS_OF_LIMIT: u64 = 1024;
/// Handles of this size or more give kernels the bandwidth of the driver's own allocations; larger ones are seldom wholly
/// free.
const LARGEST_HANDLE: u64 = 32 << 20;
/// The smallest handle that large blocks are put on while memory is plentiful.
const LEAST_LARGE_HANDLE: u64 = 8 << 20;
/// A handle is about this part of what is live: what is stuck in partly used handles is some handles' worth, whatever
/// their size, and should stay a few thousandths of the whole.
const HANDLES_OF_LIVE: u64 = 128;
/// From this size on a growth is cut into the largest handles, however little is live yet.
const LARGE_NEED: u64 = 256 << 20;
/// When this much of the limit is held, in thousandths, memory counts as short.
const SHORT: u64 = 500;
/// What may be stuck when memory is short, in thousandths of the most that was ever live.
const STUCK_WHEN_SHORT: u64 = 5;

/// How much may be held while `live` bytes are in use, `live_peak` were at most, `request` more are asked for, `moved`
/// bytes were moved so far, and there are so many arenas.
pub fn soft_limit(live: u64, live_peak: u64, request: u64, moved: u64, arenas: u64) -> u64 {
    let most = live.saturating_add(request).max(live_peak);
    let often = moved.saturating_sub(most / 2);
    let more = (often.saturating_mul(SLACK_FOR_MOVES) / most.max(1)).min(MORE_SLACK);
    (most / 1000).saturating_mul(SLACK + more).saturating_add(SLACK_OF_ARENA * arenas)
}

/// Whether memory is short while so much of a limit is held.
pub fn is_short(held: u64, limit: u64) -> bool {
    held / 1000 >= limit / 1_000_000 * SHORT
}

/// How careful an arena is with its handles; see [`Care`].
pub fn care(held: u64, limit: u64, budget: u64, live_elsewhere: u64, live_peak: u64) -> Care {
    let short = is_short(held, limit);
    Care {
        budget: budget.saturating_sub(live_elsewhere),
        stuck_at_most: if short { live_peak / 1000 * STUCK_WHEN_SHORT } else { u64::MAX },
    }
}

/// How much memory may be stuck in handles that are partly used, before an arena pays for cutting a handle in pieces
/// rather than put the edge of a block into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Care {
    /// What the arena may hold: half of what is free of that may be stuck.
    budget: u64,
    /// What may be stuck in any case.
    stuck_at_most: u64,
}

impl Default for Care {
    fn default() -> Self {
        Care { budget: u64::MAX, stuck_at_most: u64::MAX }
    }
}

impl Care {
    /// What may be stuck while `live` bytes of the arena are in use.
    pub fn allowance(&self, live: u64) -> u64 {
        (self.budget.saturating_sub(live) / 2).min(self.stuck_at_most)
    }

    /// Whether so much stuck memory could matter at all, whatever handle is cut.
    pub fn may_matter(&self, stuck: u64, live: u64) -> bool {
        stuck.saturating_add(LARGEST_HANDLE) > self.allowance(live)
    }
}

/// The size of the handles that a growth by `need` bytes is cut into, while `live` bytes are in use and `limit` may be
/// held.
///
/// A zone of small blocks grows by one handle at a time, which counts by `zone_bytes`, what it has already.
pub fn handle_size(zone: Zone, need: u64, zone_bytes: u64, live: u64, short: bool, limit: u64, granule: u64) -> u64 {
    let size = match zone {
        Zone::Small if short => granule,
        Zone::Small => {
            let most = LARGEST_SMALL_GROWTH.min(limit / SMALL_GROWTHS_OF_LIMIT).max(granule);
            (1 << zone_bytes.max(1).ilog2()).clamp(granule, most)
        }
        Zone::Large if need >= LARGE_NEED => LARGEST_HANDLE,
        Zone::Large => {
            let share = (live.saturating_add(need) / HANDLES_OF_LIVE).max(1);
            (1 << share.ilog2()).clamp(LEAST_LARGE_HANDLE, LARGEST_HANDLE)
        }
    };
    size.min(limit / HANDLES_OF_LIVE).max(granule) / granule * granule
}

/// The bytes to create where `need` bytes are needed, in handles of `handle` bytes if there is room for whole ones: `room`
/// bytes of addresses, and `creatable` bytes of memory.
pub fn growth(need: u64, handle: u64, room: u64, creatable: u64) -> u64 {
    let whole = need.div_ceil(handle).saturating_mul(handle);
    if whole <= room && whole <= creatable { whole } else { need }
}

/// How `bytes` bytes of new memory, in whole granules, are cut into handles: whole ones, and the rest in ever smaller
/// ones.
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

/// Chooses from what could be moved, the smallest free blocks first: `missing` bytes or some more, `room` at most. Less
/// than `missing` where there is no more. `sizes` tells a candidate's block's bytes and its own.
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
    // The last ones may have made some of the first needless.
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

/// The bytes of addresses to reserve for a zone of an arena, at a time.
pub fn region_size(zone: Zone, total: u64, granule: u64) -> u64 {
    let bytes = match zone {
        Zone::Small => 1 << 30,
        Zone::Large => (total / 4).max(1 << 30),
    };
    bytes.div_ceil(granule) * granule
}

/// The segment for a request where memory cannot be mapped: torch's sizes. `None` beyond what there are numbers for.
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
