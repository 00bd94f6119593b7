//! The allocator's policies: handle sizes, growth of arenas, and when to move memory. The constants come from replays
//! of recorded programs; see docs/allocator.md.

use super::{
    block::{SMALL, Zone},
    sections::{LARGEST_GROWTH, LARGEST_SECTION},
};

/// The smallest granule to use, even if the device supports a smaller one: smaller handles cost too many driver calls. Every
/// handle begins at a multiple of it.
pub const MIN_GRANULE: u64 = 2 << 20;
/// The memory that may be held before memory is moved instead of created, in thousandths of the live peak.
const SLACK: u64 = 1040;
/// The bytes of large blocks allocated for each byte that may be moved meanwhile. Programs with a repeated step move less, and
/// random sizes several times as much.
const ALLOCATED_FOR_MOVE: u64 = 64;
/// The moved bytes beyond that which earn no slack, in thousandths of the live peak: reorganizations that happen once.
const FREE_MOVES: u64 = 500;
/// The maximum slack that further moves earn, in thousandths of the live peak.
const MAX_EARNED_SLACK: u64 = 150;
/// The slack in addition to [`SLACK`] where addresses are to repeat, in thousandths of the live peak: moved handles change the
/// addresses of later blocks.
const SLACK_OF_SECTIONS: u64 = 100;
/// The live peak divided by this is the preferred growth in sections: several must fit into the slack.
const SECTION_GROWTHS_OF_PEAK: u64 = 16;
/// The most that may be held to use sections, in thousandths of the live bytes. Blocks of some sizes leave much of a section
/// unused, and the live peak may be long ago.
const MOST_IN_SECTIONS: u64 = 1200;
/// The additional bytes that each arena may hold, because its handles are never all full.
const SLACK_OF_ARENA: u64 = 4 << 20;
/// The maximum growth of a zone of small blocks. A zone grows by its current size up to this, so that threads soon stop
/// requesting memory.
const MAX_SMALL_GROWTH: u64 = 8 << 20;
/// The growth is at most the limit divided by this.
const SMALL_GROWTHS_OF_LIMIT: u64 = 1024;
/// The largest handle. A larger one saves few driver calls: releasing it takes longer in proportion to its size.
const MAX_HANDLE: u64 = 256 << 20;
/// The smallest handle for large blocks while memory is not short.
const MIN_LARGE_HANDLE: u64 = 8 << 20;
/// The live bytes divided by this give the handle size. Unreleasable memory in partly used handles amounts to a few
/// handles of any size, and should stay at a few thousandths of the whole.
const HANDLES_OF_LIVE: u64 = 128;
/// The same for a limit on a device that processes share. Handles of a busy stream cannot be split, so they are smaller.
const HANDLES_OF_SHARED_LIMIT: u64 = 1024;
/// From this size on, growth uses at least the next size of handles, regardless of the live bytes. They give kernels the
/// bandwidth of the driver's own allocations.
const LARGE_NEED: u64 = 256 << 20;
const LARGE_NEED_HANDLE: u64 = 32 << 20;
/// While memory is plentiful, a growth is one handle up to [`LARGE_NEED_HANDLE`], and from three of those on it is divided by this:
/// a few handles instead of many, whose driver calls cost as much each.
const HANDLES_OF_GROWTH: u64 = 3;
/// The largest handle that a growth gets for its own size.
const LARGEST_GROWTH_HANDLE: u64 = 128 << 20;
/// The limit divided by this is the largest handle, unless that is less than for a large need; and the largest for a growth
/// while memory is plentiful.
const HANDLES_OF_LIMIT: u64 = 512;
/// The held part of the limit, in thousandths, from which memory counts as short.
const SHORT: u64 = 900;
/// The unreleasable memory that is allowed when memory is short: what the limit leaves beyond the live peak, divided by the
/// first, within bounds in thousandths of the live peak.
const SPARE_FOR_UNRELEASABLE: u64 = 4;
const MIN_UNRELEASABLE: u64 = 5;
const MAX_UNRELEASABLE: u64 = 15;

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

/// The moves of a device that its allocations do not account for. They earn slack, because a program that keeps moving
/// memory is better off with more of it; allocations without moves use it up again.
#[derive(Debug, Default)]
pub struct ExcessMoves {
    bytes: u64,
    /// The bytes of large blocks that were allocated before the last query.
    allocated: u64,
}

impl ExcessMoves {
    /// Counts a moved handle.
    pub fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Forgets all moves.
    pub fn reset(&mut self) {
        self.bytes = 0;
    }

    /// Returns the earned slack in bytes: a byte for each byte moved, within the limits, while large blocks of `allocated`
    /// bytes were allocated so far. That sum decreases if an arena retires.
    pub fn earned_slack(&mut self, allocated: u64, peak: u64) -> u64 {
        let part = |thousandths| peak / 1000 * thousandths;
        let allowed = allocated.saturating_sub(self.allocated) / ALLOCATED_FOR_MOVE;
        self.allocated = allocated;
        self.bytes = self.bytes.saturating_sub(allowed).min(part(FREE_MOVES + MAX_EARNED_SLACK));
        self.bytes.saturating_sub(part(FREE_MOVES))
    }
}

/// Returns how many bytes may be held when the peak of live memory is `peak`, moves have earned `earned` bytes of slack, and
/// there are `arenas` arenas.
pub fn soft_limit(peak: u64, earned: u64, arenas: u64) -> u64 {
    (peak / 1000).saturating_mul(SLACK).saturating_add(earned).saturating_add(SLACK_OF_ARENA * arenas)
}

/// How much memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// More than a tenth of the limit is not held.
    Plenty,
    /// At least nine tenths of the limit are held.
    Short,
    /// Other processes may ask for it: what this one cannot release is missing in them.
    Shared,
}

/// Returns the held bytes from which memory counts as short.
fn short_from(limit: u64) -> u64 {
    limit / 1_000_000 * SHORT * 1000
}

/// Returns how much memory there is when `held` bytes of `limit` are held on a device that processes share or not.
pub fn supply(held: u64, limit: u64, shared: bool) -> Supply {
    match (shared, held >= short_from(limit)) {
        (true, _) => Supply::Shared,
        (false, true) => Supply::Short,
        (false, false) => Supply::Plenty,
    }
}

/// Returns up to multiples of how many bytes memory grows where large blocks are placed in [`sections`](super::sections), when
/// the live peak is `peak`; `None` if they are not. A growth is at most the part of the limit that a handle may have.
pub fn section_growth(supply: Supply, peak: u64, limit: u64, granule: u64) -> Option<u64> {
    let preferred = (peak / SECTION_GROWTHS_OF_PEAK).clamp(LARGEST_SECTION, LARGEST_GROWTH);
    let growth = 1 << preferred.min(limit / HANDLES_OF_LIVE).checked_ilog2()?;
    (supply == Supply::Plenty && growth >= LARGEST_SECTION && growth.is_multiple_of(granule)).then_some(growth)
}

/// Returns the [`soft_limit`] where blocks are placed in sections. Memory does not become short by it.
pub fn soft_limit_with_sections(peak: u64, earned: u64, arenas: u64, limit: u64) -> u64 {
    let larger = soft_limit(peak, earned.max(peak / 1000 * SLACK_OF_SECTIONS), arenas);
    soft_limit(peak, earned, arenas).max(larger.min(short_from(limit).saturating_sub(1)))
}

/// Returns how many bytes may be held after a growth in sections, when `live` bytes are in use then and the soft limit is
/// `soft`. It leaves as much of that as other programs have, so that further memory comes in large handles.
pub fn most_in_sections(live: u64, peak: u64, soft: u64) -> u64 {
    (live / 1000).saturating_mul(MOST_IN_SECTIONS).min(soft.saturating_sub(peak / 1000 * (SLACK - 1000)))
}

/// Returns an arena's limits on unreleasable memory; see [`UnreleasableLimits`]. There are none while memory is plentiful:
/// a split costs as much as three moves, and leaves more handles to move.
///
/// The arena may hold `budget` bytes together with those that have `live_elsewhere` bytes in use.
pub fn unreleasable_limits(
    supply: Supply,
    limit: u64,
    budget: u64,
    live_elsewhere: u64,
    live_peak: u64,
) -> UnreleasableLimits {
    if supply == Supply::Plenty {
        return UnreleasableLimits::default();
    }
    let part = |thousandths| live_peak / 1000 * thousandths;
    let spare = limit.saturating_sub(live_peak) / SPARE_FOR_UNRELEASABLE;
    let max_unreleasable = match supply {
        Supply::Shared => part(MIN_UNRELEASABLE),
        Supply::Plenty | Supply::Short => spare.clamp(part(MIN_UNRELEASABLE), part(MAX_UNRELEASABLE)),
    };
    UnreleasableLimits { budget: budget.saturating_sub(live_elsewhere), max_unreleasable }
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
        Zone::Large => large_handle_size(need, LARGEST_GROWTH_HANDLE, live, supply, limit),
    };
    within_limit(size, supply, limit, granule)
}

/// Returns the handle size for the large blocks of a pool that wakes, of `bytes` bytes in all, while `live` other bytes are in use.
/// Its memory was there before, so it is no large growth: a block that is larger than the handles gets its own.
pub fn handle_size_of_wake(bytes: u64, live: u64, supply: Supply, limit: u64, granule: u64) -> u64 {
    within_limit(large_handle_size(bytes, LARGE_NEED_HANDLE, live, supply, limit), supply, limit, granule)
}

/// Returns the handle size for large blocks: a power of two. A growth gets handles of up to `largest` for its own size.
fn large_handle_size(need: u64, largest: u64, live: u64, supply: Supply, limit: u64) -> u64 {
    let share = (live.saturating_add(need) / HANDLES_OF_LIVE).clamp(1, largest_handle(limit));
    let least = if need >= LARGE_NEED { LARGE_NEED_HANDLE } else { MIN_LARGE_HANDLE };
    let of_growth = match supply {
        Supply::Plenty => {
            let part = need.min(LARGE_NEED_HANDLE).max(need / HANDLES_OF_GROWTH);
            let largest = (limit / HANDLES_OF_LIMIT).clamp(MIN_LARGE_HANDLE, largest);
            1 << part.clamp(MIN_LARGE_HANDLE, largest).ilog2()
        }
        Supply::Short | Supply::Shared => MIN_LARGE_HANDLE,
    };
    (1 << share.ilog2()).max(least).max(of_growth)
}

fn within_limit(size: u64, supply: Supply, limit: u64, granule: u64) -> u64 {
    let handles_of_limit = if supply == Supply::Shared { HANDLES_OF_SHARED_LIMIT } else { HANDLES_OF_LIVE };
    size.min(limit / handles_of_limit).max(granule) / granule * granule
}

/// Returns the bytes to create when `need` bytes are needed: the rounded need `whole` if `room` bytes of addresses and
/// `creatable` bytes of memory allow it, otherwise `need`; `need`, too, if it is to be `exact`: then the last handle ends with the
/// block, so that all handles can be returned with the block.
pub fn growth(need: u64, whole: u64, room: u64, creatable: u64, exact: bool) -> u64 {
    if whole <= room && whole <= creatable && !exact { whole } else { need }
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

/// Returns the largest handle if at most `limit` bytes may be held.
pub fn largest_handle(limit: u64) -> u64 {
    (limit / HANDLES_OF_LIMIT).clamp(LARGE_NEED_HANDLE, MAX_HANDLE)
}

/// Divides the memory from `start` to `end`, multiples of `granule`, into handles as [`handle_sizes`] does. A live block of at least
/// `handle` bytes gets separate handles, as large as possible, because they can be released with the block. `blocks` are such
/// blocks and others, sorted by address; `largest` is the size of the largest handle, whose granules are whole.
pub fn handle_sizes_with_blocks(
    start: u64,
    end: u64,
    blocks: &[(u64, u64)],
    handle: u64,
    largest: u64,
    granule: u64,
) -> Vec<u64> {
    let (mut sizes, mut done) = (Vec::new(), start);
    let first = blocks.partition_point(|(_, block_end)| *block_end <= start);
    for (block, block_end) in blocks[first..].iter().take_while(|(block, _)| *block < end) {
        let from = block.next_multiple_of(granule).max(done);
        let to = (block_end / granule * granule).min(end);
        if to < from + handle {
            continue;
        }
        sizes.extend(handle_sizes(from - done, handle, granule));
        let (count, rest) = ((to - from) / largest, (to - from) % largest);
        sizes.extend((0..count).map(|_| largest).chain((rest > 0).then_some(rest)));
        done = to;
    }
    sizes.extend(handle_sizes(end - done, handle, granule));
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
    const SMALL_SEGMENT: u64 = MIN_GRANULE;
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
    fn blocks_get_handles_of_their_own_if_they_are_large() {
        const MIB: u64 = 1 << 20;
        let sizes = |start: u64, end: u64, blocks: &[(u64, u64)]| {
            let blocks: Vec<_> = blocks.iter().map(|(start, end)| (start * MIB, end * MIB)).collect();
            let sizes = handle_sizes_with_blocks(start * MIB, end * MIB, &blocks, 32 * MIB, 256 * MIB, 2 * MIB);
            assert_eq!(sizes.iter().sum::<u64>(), (end - start) * MIB);
            sizes.into_iter().map(|size| size / MIB).collect::<Vec<_>>()
        };
        assert_eq!(sizes(0, 100, &[]), [32, 32, 32, 4]);
        assert_eq!(sizes(0, 100, &[(0, 100)]), [100]);
        assert_eq!(sizes(10, 310, &[(0, 40), (40, 70), (70, 600)]), [32, 16, 8, 4, 240]);
        assert_eq!(sizes(0, 600, &[(0, 600)]), [256, 256, 88]);
        // The granules that blocks share.
        assert_eq!(sizes(0, 100, &[(0, 49), (49, 100)]), [48, 2, 50]);
        assert_eq!(sizes(0, 64, &[(0, 33), (33, 64)]), [32, 32]);
    }

    #[test]
    fn handles_are_split_only_while_memory_is_short() {
        const LIVE: u64 = 1000 << 20;
        let limits = |supply, limit| unreleasable_limits(supply, limit, 1100 << 20, 0, LIVE);
        assert_eq!(limits(Supply::Plenty, 1100 << 20), UnreleasableLimits::default());
        assert_eq!(limits(Supply::Short, LIVE).allowance(LIVE), LIVE / 1000 * MIN_UNRELEASABLE);
        assert_eq!(limits(Supply::Short, 1040 << 20).allowance(LIVE), 10 << 20);
        assert_eq!(limits(Supply::Short, 1100 << 20).allowance(LIVE), LIVE / 1000 * MAX_UNRELEASABLE);
        assert_eq!(limits(Supply::Shared, 1100 << 20).allowance(LIVE), LIVE / 1000 * MIN_UNRELEASABLE);
        assert_eq!(limits(Supply::Short, 1100 << 20).allowance(1099 << 20), 1 << 19);
    }

    #[test]
    fn handles_grow_with_live_memory_within_the_limit() {
        let size = |need: u64, live: u64, limit: u64| {
            handle_size(Zone::Large, need << 20, 0, live << 30, Supply::Plenty, limit << 30, 2 << 20) >> 20
        };
        assert_eq!([size(2, 0, 64), size(2, 2, 64), size(2, 16, 64), size(2, 30, 40)], [8, 16, 128, 64]);
        assert_eq!(
            [size(20, 0, 64), size(20, 0, 6), size(63, 0, 64), size(63, 0, 8), size(191, 0, 64)],
            [16, 8, 32, 16, 32]
        );
        assert_eq!([size(192, 0, 64), size(192, 0, 31), size(900, 0, 64), size(900, 0, 140)], [64, 32, 128, 128]);
        assert_eq!([size(300, 0, 16), size(300, 16, 16), size(2, 100, 140)], [32, 32, 256]);
        let wake =
            |bytes: u64, limit: u64| handle_size_of_wake(bytes << 20, 0, Supply::Plenty, limit << 30, 2 << 20) >> 20;
        assert_eq!([wake(900, 140), wake(900, 4), wake(200, 140), wake(20, 140)], [32, 32, 32, 16]);
    }

    #[test]
    fn moves_earn_slack_and_allocations_use_it_up() {
        const PEAK: u64 = 1000 << 20;
        let mut moves = ExcessMoves::default();
        assert_eq!(moves.earned_slack(0, PEAK), 0);
        // As many moves as the allocations account for, however often.
        for step in 1..1000 {
            moves.add(PEAK);
            assert_eq!(moves.earned_slack(step * PEAK * ALLOCATED_FOR_MOVE, PEAK), 0);
        }
        let allocated = 999 * PEAK * ALLOCATED_FOR_MOVE;
        moves.add(PEAK / 2);
        assert_eq!(moves.earned_slack(allocated, PEAK), 0);
        moves.add(10 << 20);
        assert_eq!(moves.earned_slack(allocated, PEAK), 10 << 20);
        moves.add(u64::MAX);
        assert_eq!(moves.earned_slack(allocated, PEAK), PEAK / 1000 * MAX_EARNED_SLACK);
        let unused = PEAK / 1000 * MAX_EARNED_SLACK - (20 << 20);
        assert_eq!(moves.earned_slack(allocated + (20 << 20) * ALLOCATED_FOR_MOVE, PEAK), unused);
        // An arena has retired.
        assert_eq!(moves.earned_slack(0, PEAK), unused);
        moves.reset();
        assert_eq!(moves.earned_slack(0, PEAK), 0);
    }

    #[test]
    fn sections_get_more_slack_unless_memory_becomes_short() {
        const GIB: u64 = 1 << 30;
        let growth = |peak, limit| section_growth(Supply::Plenty, peak, limit, MIN_GRANULE).map(|bytes| bytes >> 20);
        assert_eq!([GIB, GIB - 1].map(|limit| growth(GIB, limit)), [Some(8), None]);
        assert_eq!(
            [0, GIB / 4 - 1, GIB / 4, GIB, 9 * GIB].map(|peak| growth(peak, 40 * GIB)),
            [8, 8, 16, 64, 64].map(Some)
        );
        assert_eq!([4 * GIB, 8 * GIB - 1].map(|limit| growth(GIB, limit)), [32, 32].map(Some));
        assert_eq!(
            [Supply::Short, Supply::Shared].map(|supply| section_growth(supply, GIB, 40 * GIB, MIN_GRANULE)),
            [None; 2]
        );
        assert_eq!(section_growth(Supply::Plenty, GIB, 40 * GIB, 3 << 20), None);
        let peak = 10_000_000_000;
        let limits = |earned, limit| soft_limit_with_sections(peak, earned, 0, limit) / 1_000_000;
        assert_eq!([limits(0, 40 * GIB), limits(1_100_000_000, 40 * GIB)], [11_400, 11_500]);
        // Nine tenths of the limit, and the slack of all programs.
        assert_eq!([limits(0, 12_000_000_000), limits(0, 11_000_000_000)], [10_799, 10_400]);
        let soft = soft_limit_with_sections(peak, 0, 0, 12_000_000_000);
        assert_eq!(supply(soft, 12_000_000_000, false), Supply::Plenty);
        assert_eq!(supply(soft + 1, 12_000_000_000, false), Supply::Short);
        let most = |live| most_in_sections(live, peak, 11_400_000_000) / 1_000_000;
        assert_eq!([most(peak), most(9_000_000_000)], [11_000, 10_800]);
    }

    #[test]
    fn large_blocks_are_not_split() {
        let limits = SplitLimits { min_unsplit: 100, max_excess: 20 };
        assert!(limits.allows(99, 10) && !limits.allows(100, 10));
        assert!(limits.allows(119, 100) && !limits.allows(120, 100));
        assert!(limits.may_split(99) && !limits.may_split(100));
    }
}
