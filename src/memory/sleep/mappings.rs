//! The suspended mappings of an arena, and what of its memory must be saved. This module makes no driver call.

use super::backup::Piece;
use crate::{
    driver::Physical,
    memory::{
        block::{Block, BlockState, Zone},
        history::Action,
        mapped::{Backing, Mapped},
        space::{Region, Space},
    },
    observe,
};

/// Free memory between live blocks is saved with them up to this size, because a copy costs the time of so many bytes.
const MAX_GAP: u64 = 64 << 10;

/// A suspended mapping of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::memory) struct SuspendedMapping {
    pub address: u64,
    pub bytes: u64,
}

impl Space {
    /// Returns every handle with its address. Returns `None` if there are segments.
    pub(in crate::memory) fn mapped_handles(&self) -> Option<Vec<(SuspendedMapping, Physical)>> {
        let mut handles = Vec::new();
        for (address, mapped) in &self.mapped {
            match mapped.backing {
                Backing::Handle(physical) => {
                    handles.push((SuspendedMapping { address: *address, bytes: mapped.bytes }, physical));
                }
                Backing::Segment(_) | Backing::External => return None,
                Backing::Moved | Backing::Suspended => {}
            }
        }
        Some(handles)
    }

    /// Returns the suspended mappings.
    pub(in crate::memory) fn suspended_mappings(&self) -> Vec<SuspendedMapping> {
        let suspended = self.mapped.iter().filter(|(_, mapped)| mapped.backing == Backing::Suspended);
        suspended.map(|(address, mapped)| SuspendedMapping { address: *address, bytes: mapped.bytes }).collect()
    }

    /// Returns whether any mapping is suspended.
    pub(in crate::memory) fn is_any_suspended(&self) -> bool {
        self.mapped.values().any(|mapped| mapped.backing == Backing::Suspended)
    }

    /// Returns whether a handle was detached to be moved, and is neither moved nor reattached yet.
    pub(super) fn is_any_moving(&self) -> bool {
        let has_handle =
            |block: &Block| matches!(self.mapped.get(&block.address), Some(Mapped { backing: Backing::Handle(_), .. }));
        self.blocks.iter().any(|(_, block)| block.state == BlockState::Detached && has_handle(block))
    }

    /// Returns the suspended memory in ascending order: mappings of large blocks that are adjacent as one, since their handles
    /// may have other sizes when they are created again.
    pub(super) fn suspended_runs(&self) -> Vec<(SuspendedMapping, Zone)> {
        let mut runs: Vec<(SuspendedMapping, Zone)> = Vec::new();
        for mapping in self.suspended_mappings() {
            let Some(region) = self.region_of(mapping) else { continue };
            match runs.last_mut() {
                Some((run, Zone::Large))
                    if run.address + run.bytes == mapping.address && mapping.address != region.address =>
                {
                    run.bytes += mapping.bytes;
                }
                _ => runs.push((mapping, region.zone)),
            }
        }
        runs
    }

    /// Puts handles behind all suspended memory.
    pub(super) fn resume(&mut self, handles: impl IntoIterator<Item = (SuspendedMapping, Physical)>) {
        self.mapped.retain(|_, mapped| mapped.backing != Backing::Suspended);
        for (mapping, physical) in handles {
            self.set_backing(mapping, Backing::Handle(physical));
        }
    }

    fn region_of(&self, mapping: SuspendedMapping) -> Option<&Region> {
        self.regions.iter().find(|region| {
            region.address <= mapping.address && mapping.address + mapping.bytes <= region.address + region.bytes
        })
    }

    /// Sets the memory behind an address.
    pub(in crate::memory) fn set_backing(&mut self, mapping: SuspendedMapping, backing: Backing) {
        self.mapped.insert(mapping.address, Mapped { bytes: mapping.bytes, backing });
        if let Some(zone) = self.region_of(mapping).map(|region| region.zone) {
            match backing {
                Backing::Suspended => {
                    self.count_unmapped(zone, mapping.bytes);
                    self.on_segment(Action::SegmentUnmap, mapping.address, mapping.bytes);
                }
                _ => {
                    self.count_mapped(zone, mapping.bytes);
                    self.on_segment(Action::SegmentMap, mapping.address, mapping.bytes);
                }
            }
        }
    }

    /// Returns the address ranges that the program requested.
    pub(super) fn live_requests(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let live = self.blocks.iter().filter(|(_, block)| block.state == BlockState::Live);
        live.map(|(_, block)| (block.address, block.address + block.requested))
    }

    /// Returns the address ranges of the live large blocks, in ascending order.
    pub(super) fn large_live_blocks(&self) -> Vec<(u64, u64)> {
        let is_large = |block: &Block| block.state == BlockState::Live && block.zone == Zone::Large;
        let live = self.blocks.iter().filter(|(_, block)| is_large(block));
        let mut blocks: Vec<(u64, u64)> = live.map(|(_, block)| (block.address, block.address + block.size)).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Returns the address ranges of adjacent live blocks, in ascending order.
    pub(super) fn live_runs(&self) -> Vec<(u64, u64)> {
        let live = self.blocks.iter().filter(|(_, block)| block.state == BlockState::Live);
        let mut runs: Vec<(u64, u64)> = live.map(|(_, block)| (block.address, block.address + block.size)).collect();
        runs.sort_unstable();
        runs.dedup_by(|next, run| {
            let adjacent = run.1 == next.0;
            if adjacent {
                run.1 = next.1;
            }
            adjacent
        });
        runs
    }

    /// Turns suspended mappings in free blocks into holes, because they will never be resumed.
    pub(in crate::memory) fn drop_suspended_state(&mut self) {
        for handle in self.reclaimable_handles_where(|backing| backing == Backing::Suspended) {
            if let Some(block) = self.detach_block(&handle) {
                // Memory that is mapped there from now on does not sleep.
                observe::on_wake(handle.address, handle.bytes);
                self.free_addresses(block, handle.address);
            }
        }
    }
}

/// The parts of `ranges` that lie in `runs`; both are sorted.
pub(super) fn intersect<'a>(ranges: &'a [(u64, u64)], runs: &'a [(u64, u64)]) -> impl Iterator<Item = (u64, u64)> + 'a {
    ranges.iter().flat_map(move |(start, end)| {
        let first = runs.partition_point(|run| run.1 <= *start);
        runs[first..].iter().take_while(move |run| run.0 < *end).map(move |run| (run.0.max(*start), run.1.min(*end)))
    })
}

/// Returns what must be copied of these mappings to keep the contents of the live runs, without offsets.
pub(super) fn pieces_of(mappings: &[(SuspendedMapping, Physical)], runs: &[(u64, u64)]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (mapping, _) in mappings {
        let first = pieces.len();
        for (start, end) in intersect(&[(mapping.address, mapping.address + mapping.bytes)], runs) {
            match pieces[first..].last_mut() {
                Some(last) if start - (last.address + last.bytes) <= MAX_GAP => last.bytes = end - last.address,
                _ => pieces.push(Piece { address: start, bytes: end - start, offset: 0 }),
            }
        }
    }
    pieces
}

/// The parts of pieces, sorted by address, that lie between two addresses.
pub(super) fn clip(pieces: &[Piece], (start, end): (u64, u64)) -> Vec<Piece> {
    let first = pieces.partition_point(|piece| piece.address + piece.bytes <= start);
    let parts = pieces[first..].iter().take_while(|piece| piece.address < end).map(|piece| {
        let address = piece.address.max(start);
        Piece {
            address,
            bytes: (piece.address + piece.bytes).min(end) - address,
            offset: piece.offset + (address - piece.address),
        }
    });
    parts.collect()
}

/// The pieces, sorted by address, of mappings that are adjacent in memory.
pub(super) fn pieces_in<'a, T>(
    pieces: &'a [Piece],
    mappings: &[T],
    mapping: impl Fn(&T) -> SuspendedMapping,
) -> &'a [Piece] {
    let ends = mappings.first().map(&mapping).zip(mappings.last().map(&mapping));
    let (start, end) = ends.map_or((0, 0), |(first, last)| (first.address, last.address + last.bytes));
    let from = pieces.partition_point(|piece| piece.address < start);
    &pieces[from..pieces.partition_point(|piece| piece.address < end).max(from)]
}

/// The consecutive items that are adjacent in memory and at most `most` bytes together, or one larger item. Reservations may be
/// adjacent, too, but a driver call is about one of them: `reservations` are their first addresses in ascending order.
pub(super) fn adjacent<'a, T>(
    items: &'a [T],
    reservations: &[u64],
    most: u64,
    mapping: impl Fn(&T) -> SuspendedMapping,
) -> Vec<&'a [T]> {
    let (mut groups, mut first, mut bytes) = (Vec::new(), 0, 0);
    for index in 0..items.len() {
        let next = mapping(&items[index]);
        let continues = index > first && {
            let last = mapping(&items[index - 1]);
            last.address + last.bytes == next.address
                && bytes + next.bytes <= most
                && reservations.binary_search(&next.address).is_err()
        };
        if !continues {
            if index > first {
                groups.push(&items[first..index]);
            }
            (first, bytes) = (index, 0);
        }
        bytes += next.bytes;
    }
    if first < items.len() {
        groups.push(&items[first..]);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(address: u64, bytes: u64) -> SuspendedMapping {
        SuspendedMapping { address, bytes }
    }

    #[test]
    fn ranges_are_clipped_to_runs() {
        let runs = [(0, 10), (20, 30), (35, 60)];
        let clipped: Vec<_> = intersect(&[(5, 25), (29, 40), (60, 70)], &runs).collect();
        assert_eq!(clipped, [(5, 10), (20, 25), (29, 30), (35, 40)]);
        assert_eq!(intersect(&[(0, 100)], &[]).count(), 0);
    }

    #[test]
    fn small_gaps_are_saved_and_large_ones_are_not() {
        let mib = 1 << 20;
        let handles =
            [(mapping(0, 2 * mib), Physical::dangling(1)), (mapping(2 * mib, 2 * mib), Physical::dangling(2))];
        let runs =
            [(0, 512), (512 + MAX_GAP, mib), (mib + MAX_GAP + 512, mib + 400_000), (2 * mib - 512, 2 * mib + 512)];
        let pieces: Vec<_> = pieces_of(&handles, &runs).iter().map(|piece| (piece.address, piece.bytes)).collect();
        let second = (mib + MAX_GAP + 512, 400_000 - MAX_GAP - 512);
        assert_eq!(pieces, [(0, mib), second, (2 * mib - 512, 512), (2 * mib, 512)]);
    }

    #[test]
    fn pieces_are_clipped() {
        let pieces = [Piece { address: 10, bytes: 10, offset: 100 }, Piece { address: 30, bytes: 10, offset: 200 }];
        let parts = |start, end| -> Vec<_> {
            clip(&pieces, (start, end)).iter().map(|piece| (piece.address, piece.bytes, piece.offset)).collect()
        };
        assert_eq!(parts(0, 100), [(10, 10, 100), (30, 10, 200)]);
        assert_eq!(parts(15, 35), [(15, 5, 105), (30, 5, 200)]);
        assert_eq!(parts(12, 18), [(12, 6, 102)]);
        assert_eq!(parts(20, 30), []);
    }

    #[test]
    fn groups_are_adjacent_in_a_reservation_and_not_too_large() {
        let all = [mapping(0, 4), mapping(4, 4), mapping(8, 4), mapping(16, 4), mapping(20, 40), mapping(60, 1)];
        let groups = |reservations: &[u64], most| -> Vec<usize> {
            adjacent(&all, reservations, most, |mapping| *mapping).iter().map(|group| group.len()).collect()
        };
        assert_eq!(groups(&[0], 10), [2, 1, 1, 1, 1]);
        assert_eq!(groups(&[0], 100), [3, 3]);
        assert_eq!(groups(&[0, 8, 60], 100), [2, 1, 2, 1]);
        assert!(adjacent(&all[..0], &[], 10, |mapping| *mapping).is_empty());
    }
}
