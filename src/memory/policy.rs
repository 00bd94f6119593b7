//! The allocator's choices: how large handles are, how much an arena grows, what is worth moving. The numbers come
//! from replays of recorded programs; docs/allocator.md tells them.

use super::{block::Zone, space::SMALL};

/// How much more than the most that was ever live may be held before memory is moved instead of created.
pub const SLACK_PERCENT: u64 = 103;
/// Below this, holding more costs nobody anything.
pub const SLACK_FLOOR: u64 = 64 << 20;
/// The size of handle that large growth is cut into. Smaller ones cost kernels bandwidth, larger ones are seldom
/// wholly free.
const HANDLE: u64 = 32 << 20;

/// How much may be held while `live` bytes are in use and `live_peak` were at most.
pub fn soft_limit(live: u64, live_peak: u64, request: u64) -> u64 {
    let most = live.saturating_add(request).max(live_peak);
    (most / 100).saturating_mul(SLACK_PERCENT).max(most.saturating_add(SLACK_FLOOR.min(most / 8)))
}

/// The bytes to create where `need` bytes are needed at least and `room` bytes of addresses are free.
pub fn growth(need: u64, room: u64, creatable: u64, _held: u64, _zone: Zone, _granule: u64) -> u64 {
    let _ = (room, creatable);
    need
}

/// How `bytes` bytes of new memory are cut into handles.
pub fn handle_sizes(bytes: u64, granule: u64) -> Vec<u64> {
    let handle = HANDLE.max(granule) / granule * granule;
    let mut sizes = Vec::new();
    let mut left = bytes;
    while left >= 2 * handle {
        sizes.push(handle);
        left -= handle;
    }
    if left > 0 {
        sizes.push(left);
    }
    sizes
}

/// Chooses from what could be moved: at least `missing` bytes, at most `room`, the smallest free blocks first. `sizes`
/// tells a candidate's block's bytes and its own.
pub fn choose<T: Copy>(
    mut candidates: Vec<T>,
    missing: u64,
    room: u64,
    sizes: impl Fn(&T) -> (u64, u64),
) -> Option<Vec<T>> {
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
    if sum < missing {
        return None;
    }
    // The last ones may have made some of the first needless.
    chosen.retain(|candidate| {
        let needless = sum - sizes(candidate).1 >= missing;
        if needless {
            sum -= sizes(candidate).1;
        }
        !needless
    });
    Some(chosen)
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
pub fn segment_size(size: u64) -> Option<u64> {
    const SMALL_SEGMENT: u64 = 2 << 20;
    const LARGE_SEGMENT: u64 = 20 << 20;
    const LARGE: u64 = 10 << 20;
    if size <= SMALL {
        Some(SMALL_SEGMENT)
    } else if size < LARGE {
        Some(LARGE_SEGMENT)
    } else {
        size.div_ceil(SMALL_SEGMENT).checked_mul(SMALL_SEGMENT)
    }
}
