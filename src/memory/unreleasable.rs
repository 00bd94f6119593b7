//! Unreleasable memory: free memory in handles that are partly in use, so that they can neither move nor return to the
//! driver.
//!
//! Unreleasable memory is at the edges of free blocks, where a handle extends into a neighbor: up to two edges per
//! block, some megabytes each. That does not matter while memory is plentiful, but may decide whether a request
//! succeeds when memory is short. So a space tracks its unreleasable bytes. If splitting a block would exceed the
//! limit, the space requests that the handle is split first ([`split_handle`](super::split_handle)) into the part below
//! the edge, the granule that contains the edge, and the part above. Then at most one granule is shared.

use super::{
    block::{BlockId, BlockState, Zone},
    mapped::Backing,
    policy::UnreleasableLimits,
    space::Space,
};

/// The number of splits of large blocks between two counts; a count visits all free blocks.
const SPLITS_PER_COUNT: u32 = 256;

/// What a space knows about its unreleasable memory.
#[derive(Debug, Default)]
pub struct UnreleasableMemory {
    limits: UnreleasableLimits,
    /// The unreleasable bytes at the last count.
    bytes: u64,
    /// The number of splits until the next count.
    splits_until_count: u32,
    granule: u64,
    tracked: bool,
    pending_split: Option<HandleSplit>,
}

/// A handle to be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleSplit {
    /// The free block that contains the handle.
    pub block: BlockId,
    /// The address of the handle.
    pub address: u64,
    /// The size of the handle in bytes.
    pub bytes: u64,
    /// The address of the new block edge.
    pub edge: u64,
    /// The granule size in bytes.
    pub granule: u64,
}

impl UnreleasableMemory {
    /// Returns whether the space has handles that can be split, or limits on splitting blocks.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.tracked
    }

    /// Returns whether there are limits on unreleasable memory.
    pub fn is_limited(&self) -> bool {
        self.limits != UnreleasableLimits::default()
    }

    /// Sets whether there are limits on splitting blocks.
    pub(super) fn set_split_limited(&mut self, limited: bool) {
        self.tracked = limited || self.granule != 0;
    }
}

impl Space {
    /// Enables splitting of handles. Without a granule size, no handle is ever split.
    pub fn enable_handle_splits(&mut self, granule: u64) {
        self.unreleasable.granule = granule;
        self.unreleasable.tracked = true;
    }

    /// Forgets the limits on splitting blocks and handles, which are those of the pool.
    pub fn forget_limits(&mut self) {
        self.unreleasable = UnreleasableMemory::default();
        self.split_limits = None;
    }

    /// Sets the limits on unreleasable memory. Counts it only if there are any: a count visits all free blocks.
    pub fn set_unreleasable_limits(&mut self, limits: UnreleasableLimits) {
        self.unreleasable.limits = limits;
        if self.unreleasable.is_limited() {
            self.unreleasable.bytes = self.count_unreleasable();
            self.unreleasable.splits_until_count = SPLITS_PER_COUNT;
        }
    }

    /// Returns whether splitting a block at `size` would leave too much memory unreleasable. If so, stores the handle
    /// to be split first for [`take_pending_split`](Self::take_pending_split).
    pub(super) fn would_exceed_unreleasable(&mut self, id: BlockId, size: u64) -> bool {
        let live = self.counters.live();
        if self.blocks[id].size == size || !self.unreleasable.limits.may_matter(self.unreleasable.bytes, live) {
            return false;
        }
        if self.unreleasable.splits_until_count == 0 {
            self.unreleasable.bytes = self.count_unreleasable();
            self.unreleasable.splits_until_count = SPLITS_PER_COUNT;
        }
        self.unreleasable.splits_until_count -= 1;
        let (start, end) = (self.blocks[id].address, self.blocks[id].address + self.blocks[id].size);
        let edge = start + size;
        let Some((address, mapped)) = self.mapped.range(..edge).next_back() else { return false };
        let (below, above) = (edge - address, (address + mapped.bytes).saturating_sub(edge));
        let whole = *address >= start && address + mapped.bytes <= end;
        if !whole
            || above == 0
            || mapped.bytes <= self.unreleasable.granule
            || !matches!(mapped.backing, Backing::Handle(_))
        {
            return false;
        }
        if self.unreleasable.bytes.saturating_add(below.max(above)) <= self.unreleasable.limits.allowance(live) {
            return false;
        }
        let (address, bytes, granule) = (*address, mapped.bytes, self.unreleasable.granule);
        self.unreleasable.pending_split = Some(HandleSplit { block: id, address, bytes, edge, granule });
        true
    }

    /// Returns the handle that the last [`allocate`](Self::allocate) requested to be split.
    pub fn take_pending_split(&mut self) -> Option<HandleSplit> {
        self.unreleasable.pending_split.take()
    }

    /// Stops requesting splits of handles until the next count, because they are not possible now.
    pub fn postpone_splits(&mut self) {
        self.unreleasable.limits = UnreleasableLimits::default();
    }

    /// Counts the free bytes of the large zone that lie in partly used handles.
    fn count_unreleasable(&self) -> u64 {
        let bins = &self.bins[Zone::Large as usize];
        bins.iter(&self.blocks).map(|id| self.blocks[id].size - self.releasable_bytes(id)).sum()
    }

    /// Returns the bytes of a free block that consist of complete handles.
    pub(super) fn releasable_bytes(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        debug_assert!(matches!(block.state, BlockState::Free | BlockState::Uncoalesced));
        let (start, end) = (block.address, block.address + block.size);
        let first = match self.mapped.range(..=start).next_back() {
            Some((address, mapped)) if *address < start => address + mapped.bytes,
            _ => start,
        };
        let last = match self.mapped.range(..end).next_back() {
            Some((address, mapped)) if address + mapped.bytes > end => *address,
            _ => end,
        };
        last.saturating_sub(first)
    }
}
