//! Memory that is stuck: free, but in handles that something else uses too, so that it can neither move nor go back.
//!
//! It is all at the rims of free blocks, where the edge of a neighbour lies inside a handle. Two rims a block, some
//! megabytes each: nothing while memory is plentiful, and the difference between a request that is met and one that is not
//! when it is short. So a space watches how much is stuck, and when a cut would leave too much more so, it asks for the
//! handle to be cut first ([`recut`](super::split_handle)): into what lies below the edge, the granule with the edge, and what lies
//! above. Then no more than a granule is shared.

use super::{
    block::{Id, State, Zone},
    mapped::Backing,
    policy::Care,
    space::Space,
};

/// Cuts of large blocks between two countings: counting walks all free blocks.
const CUTS: u32 = 256;

/// What a space knows of its stuck memory.
#[derive(Debug, Default)]
pub struct Stuck {
    care: Care,
    /// The bytes, as of the last counting.
    bytes: u64,
    /// How many more cuts are made before the next one.
    cuts: u32,
    granule: u64,
    watched: bool,
    wanted: Option<Cut>,
}

/// A handle that should be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The free block that it lies in.
    pub block: Id,
    /// Where the handle is mapped.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Where the edge of a block is to be.
    pub edge: u64,
    /// The bytes of a granule.
    pub granule: u64,
}

impl Stuck {
    /// Whether there are handles that could be cut, or blocks that must not be.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Notes whether there are limits to splitting.
    pub(super) fn watch_limits(&mut self, limited: bool) {
        self.watched = limited || self.granule != 0;
    }
}

impl Space {
    /// Tells the space the size of its granules; without, no handle is ever cut.
    pub fn watch_stuck(&mut self, granule: u64) {
        self.stuck.granule = granule;
        self.stuck.watched = true;
    }

    /// Tells the space how much may be stuck.
    pub fn take_care(&mut self, care: Care) {
        self.stuck.care = care;
        self.stuck.bytes = self.count_stuck();
        self.stuck.cuts = CUTS;
    }

    /// Whether a cut of a block to `size` leaves too much stuck. The handle that is to be cut first is kept for
    /// [`wanted_cut`](Self::wanted_cut) then.
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

    /// The handle that the last [`take`](Self::take) wanted cut.
    pub fn wanted_cut(&mut self) -> Option<Cut> {
        self.stuck.wanted.take()
    }

    /// Stops asking for cuts until the next counting: they are not possible at the moment.
    pub fn cut_later(&mut self) {
        self.stuck.care = Care::default();
    }

    /// The free bytes of the large zone that lie in partly used handles.
    fn count_stuck(&self) -> u64 {
        let bins = &self.bins[Zone::Large as usize];
        bins.iter(&self.blocks).map(|id| self.blocks[id].size - self.whole_bytes(id)).sum()
    }

    /// The bytes of a free block that are whole handles.
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
