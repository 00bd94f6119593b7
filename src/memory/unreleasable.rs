//! Unreleasable memory: free memory in handles that are partly in use, so that they can neither move nor return to the
//! driver.
//!
//! Unreleasable memory is at the edges of free blocks, where a handle extends into a neighbor: up to two edges per
//! block, some megabytes each. That does not matter while memory is plentiful, but may decide whether a request
//! succeeds when memory is short. So a space tracks its unreleasable bytes. If splitting a block would exceed the
//! limit, the space requests that the handle is split first ([`split_handle`](super::split_handle)) into the part below
//! the edge, the granule that contains the edge, and the part above. Then at most one granule is shared.

use super::{
    block::{Id, State, Zone},
    mapped::Backing,
    policy::Care,
    space::Space,
};

/// The number of splits of large blocks between two counts; a count visits all free blocks.
const CUTS: u32 = 256;

/// What a space knows about its unreleasable memory.
#[derive(Debug, Default)]
pub struct Stuck {
    care: Care,
    /// The unreleasable bytes at the last count.
    bytes: u64,
    /// The number of splits until the next count.
    cuts: u32,
    granule: u64,
    watched: bool,
    wanted: Option<Cut>,
}

/// A handle to be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The free block that contains the handle.
    pub block: Id,
    /// The address of the handle.
    pub address: u64,
    /// The size of the handle in bytes.
    pub bytes: u64,
    /// The address of the new block edge.
    pub edge: u64,
    /// The granule size in bytes.
    pub granule: u64,
}

impl Stuck {
    /// Returns whether the space has handles that can be split, or limits on splitting blocks.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Sets whether there are limits on splitting blocks.
    pub(super) fn watch_limits(&mut self, limited: bool) {
        self.watched = limited || self.granule != 0;
    }
}

impl Space {
    /// Enables splitting of handles. Without a granule size, no handle is ever split.
    pub fn watch_stuck(&mut self, granule: u64) {
        self.stuck.granule = granule;
        self.stuck.watched = true;
    }

    /// Sets the limits on unreleasable memory.
    pub fn take_care(&mut self, care: Care) {
        self.stuck.care = care;
        self.stuck.bytes = self.count_stuck();
        self.stuck.cuts = CUTS;
    }

    /// Returns whether splitting a block at `size` would leave too much memory unreleasable. If so, stores the handle
    /// to be split first for [`take_pending_split`](Self::take_pending_split).
    pub(super) fn would_stick(&mut self, id: Id, size: u64) -> bool {
        let live = self.counters.live;
        if self.blocks[id].size == size || !self.stuck.care.may_matter(self.stuck.bytes, live) {
            return false;
        }
        if self.stuck.cuts == 0 {
            self.stuck.bytes = self.count_stuck();
            self.stuck.cuts = CUTS;
        }
        self.stuck.cuts -= 1;
        let (start, end) = (self.blocks[id].address, self.blocks[id].address + self.blocks[id].size);
        let edge = start + size;
        let Some((address, mapped)) = self.mapped.range(..edge).next_back() else { return false };
        let (below, above) = (edge - address, (address + mapped.bytes).saturating_sub(edge));
        let whole = *address >= start && address + mapped.bytes <= end;
        if !whole || above == 0 || mapped.bytes <= self.stuck.granule || !matches!(mapped.backing, Backing::Handle(_)) {
            return false;
        }
        if self.stuck.bytes.saturating_add(below.max(above)) <= self.stuck.care.allowance(live) {
            return false;
        }
        let (address, bytes, granule) = (*address, mapped.bytes, self.stuck.granule);
        self.stuck.wanted = Some(Cut { block: id, address, bytes, edge, granule });
        true
    }

    /// Returns the handle that the last [`allocate`](Self::allocate) requested to be split.
    pub fn wanted_cut(&mut self) -> Option<Cut> {
        self.stuck.wanted.take()
    }

    /// Stops requesting splits of handles until the next count, because they are not possible now.
    pub fn cut_later(&mut self) {
        self.stuck.care = Care::default();
    }

    /// Counts the free bytes of the large zone that lie in partly used handles.
    fn count_stuck(&self) -> u64 {
        let bins = &self.bins[Zone::Large as usize];
        bins.iter(&self.blocks).map(|id| self.blocks[id].size - self.whole_bytes(id)).sum()
    }

    /// Returns the bytes of a free block that consist of complete handles.
    pub(super) fn whole_bytes(&self, id: Id) -> u64 {
        let block = &self.blocks[id];
        debug_assert!(matches!(block.state, State::Free | State::Parked));
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
