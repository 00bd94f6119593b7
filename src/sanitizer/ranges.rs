//! The accesses to each byte: the last write, and the reads since then.

use super::order::Track;
use crate::{base::stack::StackId, observe::Kind};
use std::collections::BTreeMap;

/// An access of an operation to a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The first byte.
    pub start: u64,
    /// The end, exclusive.
    pub end: u64,
    /// The track that it ran on.
    pub track: Track,
    /// The epoch on that track.
    pub epoch: u64,
    /// The number of the operation.
    pub number: u64,
    /// The stack of the call.
    pub stack: StackId,
    /// The number of the operation's name.
    pub name: u32,
    /// The number of the allocation that contains its first byte; 0 for other memory.
    pub allocation: u32,
    /// The kind of the access.
    pub kind: Kind,
}

/// A range whose bytes all have the same accesses.
#[derive(Debug, Clone, Default)]
struct Cell {
    end: u64,
    write: Option<Access>,
    /// The mutually unordered reads since then.
    reads: Vec<Access>,
}

impl Cell {
    fn add(&mut self, access: &Access, is_before: impl Fn(&Access) -> bool) {
        if access.kind.writes() {
            self.write = Some(*access);
            self.reads.clear();
        } else {
            // Every access after this read is also after the reads before it.
            self.reads.retain(|read| !is_before(read));
            self.reads.push(*access);
        }
    }

    /// Collects the accesses to this cell that an access of kind `kind` to `start..end` is not ordered after. `first`
    /// is the cell's start.
    fn find_conflicts(
        &self,
        first: u64,
        (start, end): (u64, u64),
        kind: Kind,
        is_before: impl Fn(&Access) -> bool,
        conflicts: &mut Vec<RangeConflict>,
    ) {
        let (from, to) = (start.max(first), end.min(self.end));
        let reads: &[Access] = if kind.writes() { &self.reads } else { &[] };
        let write = if reads.iter().all(&is_before) { self.write.as_slice() } else { &[] };
        for previous in reads.iter().chain(write).filter(|previous| !is_before(previous)) {
            match conflicts.iter_mut().find(|conflict| conflict.previous == *previous) {
                Some(conflict) => (conflict.start, conflict.end) = (conflict.start.min(from), conflict.end.max(to)),
                None => conflicts.push(RangeConflict { previous: *previous, start: from, end: to }),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.write.is_none() && self.reads.is_empty()
    }

    fn retain(&mut self, keep: impl Fn(&Access) -> bool) {
        self.write = self.write.filter(&keep);
        self.reads.retain(keep);
    }
}

/// An earlier access that another one is not ordered after, and the bytes that both access.
#[derive(Debug, Clone, Copy)]
pub struct RangeConflict {
    /// The earlier access.
    pub previous: Access,
    /// The first byte.
    pub start: u64,
    /// The end, exclusive.
    pub end: u64,
}

/// The saved accesses of a range.
#[derive(Debug)]
pub struct SavedRange {
    start: u64,
    end: u64,
    cells: Vec<(u64, Cell)>,
}

/// The map of all accessed ranges.
#[derive(Debug, Default)]
pub struct Ranges(BTreeMap<u64, Cell>);

impl Ranges {
    /// Returns the number of cells.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the accesses.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.0.values().flat_map(|cell| cell.write.iter().chain(&cell.reads))
    }

    /// Returns the start of the cell that contains a byte.
    fn cell_of(&self, byte: u64) -> Option<u64> {
        let (start, cell) = self.0.range(..=byte).next_back()?;
        (cell.end > byte).then_some(*start)
    }

    /// Collects the earlier accesses that an access to `start..end` is not ordered after. A write is left out if a
    /// read after it conflicts, too.
    pub fn find_conflicts(
        &self,
        (start, end): (u64, u64),
        kind: Kind,
        is_before: impl Fn(&Access) -> bool,
        conflicts: &mut Vec<RangeConflict>,
    ) {
        let first = self.cell_of(start).unwrap_or(start);
        for (from, cell) in self.0.range(first..end) {
            cell.find_conflicts(*from, (start, end), kind, &is_before, conflicts);
        }
    }

    /// Adds an access, and collects its conflicts as [`find_conflicts`](Self::find_conflicts).
    pub fn add_and_find_conflicts(
        &mut self,
        access: &Access,
        is_before: impl Fn(&Access) -> bool,
        conflicts: &mut Vec<RangeConflict>,
    ) {
        let (start, end) = (access.start, access.end);
        // Programs usually access the same ranges repeatedly.
        if let Some(cell) = self.0.get_mut(&start)
            && cell.end == end
        {
            cell.find_conflicts(start, (start, end), access.kind, &is_before, conflicts);
            return cell.add(access, is_before);
        }
        self.find_conflicts((start, end), access.kind, &is_before, conflicts);
        self.add(access, is_before);
    }

    /// Adds an access.
    pub fn add(&mut self, access: &Access, is_before: impl Fn(&Access) -> bool) {
        let (start, end) = (access.start, access.end);
        if start >= end {
            return;
        }
        if let Some(cell) = self.0.get_mut(&start)
            && cell.end == end
        {
            return cell.add(access, is_before);
        }
        self.split_at(start);
        self.split_at(end);
        if access.kind.writes() {
            self.remove(start, end);
            self.0.insert(start, Cell { end, write: Some(*access), reads: Vec::new() });
            return;
        }
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, cell) in self.0.range_mut(start..end) {
            if at < *from {
                gaps.push((at, *from));
            }
            cell.add(access, &is_before);
            at = cell.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (from, to) in gaps {
            self.0.insert(from, Cell { end: to, write: None, reads: vec![*access] });
        }
    }

    /// Splits the cell that contains a byte, so that a cell begins there.
    fn split_at(&mut self, byte: u64) {
        let Some((start, cell)) = self.0.range_mut(..byte).next_back() else { return };
        if cell.end > byte && *start < byte {
            let upper = cell.clone();
            cell.end = byte;
            self.0.insert(byte, upper);
        }
    }

    /// Removes the cells that begin in a range. None may extend beyond it.
    fn remove(&mut self, start: u64, end: u64) {
        while let Some((from, _)) = self.0.range(start..end).next() {
            let from = *from;
            self.0.remove(&from);
        }
    }

    /// Removes all accesses to a range.
    pub fn forget(&mut self, start: u64, end: u64) {
        if start < end {
            self.split_at(start);
            self.split_at(end);
            self.remove(start, end);
        }
    }

    /// Saves the accesses of a range for [`restore`](Self::restore).
    pub fn save(&mut self, start: u64, end: u64) -> SavedRange {
        let mut cells = Vec::new();
        if start < end {
            self.split_at(start);
            self.split_at(end);
            cells.extend(self.0.range(start..end).map(|(from, cell)| (*from, cell.clone())));
        }
        SavedRange { start, end, cells }
    }

    /// Restores a saved range.
    pub fn restore(&mut self, saved: SavedRange) {
        self.forget(saved.start, saved.end);
        self.0.extend(saved.cells);
    }

    /// Keeps only the accesses to a range for which `keep` returns true.
    pub fn retain(&mut self, start: u64, end: u64, keep: impl Fn(&Access) -> bool) {
        if start >= end {
            return;
        }
        self.split_at(start);
        self.split_at(end);
        let mut empty = Vec::new();
        for (from, cell) in self.0.range_mut(start..end) {
            cell.retain(&keep);
            if cell.is_empty() {
                empty.push(*from);
            }
        }
        for from in empty {
            self.0.remove(&from);
        }
    }

    /// Removes the completed accesses.
    pub fn sweep(&mut self, is_done: impl Fn(&Access) -> bool) {
        self.0.retain(|_, cell| {
            cell.retain(|access| !is_done(access));
            !cell.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(start: u64, end: u64, number: u64, kind: Kind) -> Access {
        let (track, stack) = (Track::CPU, StackId::NONE);
        Access { start, end, track, epoch: number, number, stack, name: 0, allocation: 0, kind }
    }

    fn conflicts_of(ranges: &Ranges, start: u64, end: u64, kind: Kind) -> Vec<(u64, u64, u64)> {
        let mut conflicts = Vec::new();
        ranges.find_conflicts((start, end), kind, |_| false, &mut conflicts);
        conflicts.iter().map(|conflict| (conflict.previous.number, conflict.start, conflict.end)).collect()
    }

    #[test]
    fn stores_the_last_write_and_the_reads_since() {
        let mut ranges = Ranges::default();
        ranges.add(&access(0, 100, 1, Kind::Write), |_| false);
        ranges.add(&access(40, 120, 2, Kind::Read), |_| false);
        ranges.add(&access(60, 80, 3, Kind::ReadWrite), |_| false);
        assert_eq!(conflicts_of(&ranges, 0, 200, Kind::Read), [(1, 0, 100), (3, 60, 80)]);
        assert_eq!(conflicts_of(&ranges, 0, 200, Kind::Write), [(1, 0, 40), (2, 40, 120), (3, 60, 80)]);
        assert_eq!(conflicts_of(&ranges, 70, 75, Kind::Write), [(3, 70, 75)]);
        assert_eq!(conflicts_of(&ranges, 100, 110, Kind::Read), []);
        assert_eq!(conflicts_of(&ranges, 120, 130, Kind::Write), []);
        ranges.forget(50, 110);
        assert_eq!(conflicts_of(&ranges, 0, 200, Kind::Write), [(1, 0, 40), (2, 40, 120)]);
        ranges.retain(0, 45, |access| access.number != 2);
        assert_eq!(conflicts_of(&ranges, 0, 50, Kind::Write), [(1, 0, 45), (2, 45, 50)]);
        ranges.sweep(|access| access.number == 1);
        assert_eq!(conflicts_of(&ranges, 0, 200, Kind::Write), [(2, 45, 120)]);
        assert_eq!(ranges.len(), 2);
    }

    #[test]
    fn keeps_the_last_of_ordered_reads() {
        let mut ranges = Ranges::default();
        ranges.add(&access(0, 8, 1, Kind::Read), |_| false);
        ranges.add(&access(0, 8, 2, Kind::Read), |_| false);
        ranges.add(&access(0, 8, 3, Kind::Read), |read| read.number == 1);
        assert_eq!(conflicts_of(&ranges, 0, 8, Kind::Write), [(2, 0, 8), (3, 0, 8)]);
    }
}
