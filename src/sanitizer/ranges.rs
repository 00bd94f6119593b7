//! Who used which bytes: the last write of each, and the reads since.

use super::{Kind, order::Track};
use crate::base::stack::StackId;
use std::collections::BTreeMap;

/// An operation's use of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The first byte.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
    /// The track that it ran on.
    pub track: Track,
    /// Its epoch there.
    pub epoch: u64,
    /// The number of the operation.
    pub number: u64,
    /// Who made the call.
    pub stack: StackId,
    /// The number of the operation's name.
    pub name: u32,
    /// The number of the life of the block that it began in; 0 for other memory.
    pub life: u32,
    /// What it did.
    pub kind: Kind,
}

/// Bytes that were all used alike.
#[derive(Debug, Clone, Default)]
struct Cell {
    end: u64,
    write: Option<Access>,
    /// The reads since then that nothing orders among each other.
    reads: Vec<Access>,
}

impl Cell {
    fn add(&mut self, access: &Access, is_before: impl Fn(&Access) -> bool) {
        if access.kind.writes() {
            self.write = Some(*access);
            self.reads.clear();
        } else {
            // What comes after this read comes after the reads before it.
            self.reads.retain(|read| !is_before(read));
            self.reads.push(*access);
        }
    }

    /// Adds the accesses to these bytes, from the first one on, that one to some of them would have to come after.
    fn look(
        &self,
        first: u64,
        (start, end): (u64, u64),
        kind: Kind,
        is_before: impl Fn(&Access) -> bool,
        found: &mut Vec<Meeting>,
    ) {
        let (from, to) = (start.max(first), end.min(self.end));
        let reads: &[Access] = if kind.writes() { &self.reads } else { &[] };
        let write = if reads.iter().all(&is_before) { self.write.as_slice() } else { &[] };
        for previous in reads.iter().chain(write).filter(|previous| !is_before(previous)) {
            match found.iter_mut().find(|meeting| meeting.previous == *previous) {
                Some(meeting) => (meeting.start, meeting.end) = (meeting.start.min(from), meeting.end.max(to)),
                None => found.push(Meeting { previous: *previous, start: from, end: to }),
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

/// An access that another meets, and the bytes where it does.
#[derive(Debug, Clone, Copy)]
pub struct Meeting {
    /// The earlier one.
    pub previous: Access,
    /// The first byte.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

/// What was known of some bytes.
#[derive(Debug)]
pub struct Piece {
    start: u64,
    end: u64,
    cells: Vec<(u64, Cell)>,
}

/// The map of all bytes that were used.
#[derive(Debug, Default)]
pub struct Ranges(BTreeMap<u64, Cell>);

impl Ranges {
    /// How many pieces the map has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the cell begins that a byte lies in.
    fn cell_of(&self, byte: u64) -> Option<u64> {
        let (start, cell) = self.0.range(..=byte).next_back()?;
        (cell.end > byte).then_some(*start)
    }

    /// The earlier accesses that an access to some bytes would have to come after, and does not. A write that is only
    /// missed together with a read after it is left out.
    pub fn meetings(
        &self,
        (start, end): (u64, u64),
        kind: Kind,
        is_before: impl Fn(&Access) -> bool,
        found: &mut Vec<Meeting>,
    ) {
        let first = self.cell_of(start).unwrap_or(start);
        for (from, cell) in self.0.range(first..end) {
            cell.look(*from, (start, end), kind, &is_before, found);
        }
    }

    /// As [`meetings`](Self::meetings), and notes the access.
    pub fn meet_and_add(&mut self, access: &Access, is_before: impl Fn(&Access) -> bool, found: &mut Vec<Meeting>) {
        let (start, end) = (access.start, access.end);
        // Mostly a program works on the same bytes again and again.
        if let Some(cell) = self.0.get_mut(&start)
            && cell.end == end
        {
            cell.look(start, (start, end), access.kind, &is_before, found);
            return cell.add(access, is_before);
        }
        self.meetings((start, end), access.kind, &is_before, found);
        self.add(access, is_before);
    }

    /// Notes an access.
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
        self.cut(start);
        self.cut(end);
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

    /// Lets no cell reach over a byte from below.
    fn cut(&mut self, byte: u64) {
        let Some((start, cell)) = self.0.range_mut(..byte).next_back() else { return };
        if cell.end > byte && *start < byte {
            let upper = cell.clone();
            cell.end = byte;
            self.0.insert(byte, upper);
        }
    }

    /// Removes the cells that begin in a range, of which none reaches out.
    fn remove(&mut self, start: u64, end: u64) {
        while let Some((from, _)) = self.0.range(start..end).next() {
            let from = *from;
            self.0.remove(&from);
        }
    }

    /// Forgets all of some bytes.
    pub fn forget(&mut self, start: u64, end: u64) {
        if start < end {
            self.cut(start);
            self.cut(end);
            self.remove(start, end);
        }
    }

    /// The cells of some bytes, for [`put_back`](Self::put_back).
    pub fn copy(&mut self, start: u64, end: u64) -> Piece {
        let mut cells = Vec::new();
        if start < end {
            self.cut(start);
            self.cut(end);
            cells.extend(self.0.range(start..end).map(|(from, cell)| (*from, cell.clone())));
        }
        Piece { start, end, cells }
    }

    /// Lets some bytes be as they were.
    pub fn put_back(&mut self, piece: Piece) {
        self.forget(piece.start, piece.end);
        self.0.extend(piece.cells);
    }

    /// Of some bytes, keeps the accesses that `keep` says.
    pub fn retain(&mut self, start: u64, end: u64, keep: impl Fn(&Access) -> bool) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
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

    /// Forgets the accesses that are done.
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
        Access { start, end, track, epoch: number, number, stack, name: 0, life: 0, kind }
    }

    fn meet(ranges: &Ranges, start: u64, end: u64, kind: Kind) -> Vec<(u64, u64, u64)> {
        let mut found = Vec::new();
        ranges.meetings((start, end), kind, |_| false, &mut found);
        found.iter().map(|meeting| (meeting.previous.number, meeting.start, meeting.end)).collect()
    }

    #[test]
    fn bytes_know_their_last_write_and_the_reads_since() {
        let mut ranges = Ranges::default();
        ranges.add(&access(0, 100, 1, Kind::Write), |_| false);
        ranges.add(&access(40, 120, 2, Kind::Read), |_| false);
        ranges.add(&access(60, 80, 3, Kind::ReadWrite), |_| false);
        assert_eq!(meet(&ranges, 0, 200, Kind::Read), [(1, 0, 100), (3, 60, 80)]);
        assert_eq!(meet(&ranges, 0, 200, Kind::Write), [(1, 0, 40), (2, 40, 120), (3, 60, 80)]);
        assert_eq!(meet(&ranges, 70, 75, Kind::Write), [(3, 70, 75)]);
        assert_eq!(meet(&ranges, 100, 110, Kind::Read), []);
        assert_eq!(meet(&ranges, 120, 130, Kind::Write), []);
        ranges.forget(50, 110);
        assert_eq!(meet(&ranges, 0, 200, Kind::Write), [(1, 0, 40), (2, 40, 120)]);
        ranges.retain(0, 45, |access| access.number != 2);
        assert_eq!(meet(&ranges, 0, 50, Kind::Write), [(1, 0, 45), (2, 45, 50)]);
        ranges.sweep(|access| access.number == 1);
        assert_eq!(meet(&ranges, 0, 200, Kind::Write), [(2, 45, 120)]);
        assert_eq!(ranges.len(), 2);
    }

    #[test]
    fn of_ordered_reads_the_last_is_kept() {
        let mut ranges = Ranges::default();
        ranges.add(&access(0, 8, 1, Kind::Read), |_| false);
        ranges.add(&access(0, 8, 2, Kind::Read), |_| false);
        ranges.add(&access(0, 8, 3, Kind::Read), |read| read.number == 1);
        assert_eq!(meet(&ranges, 0, 8, Kind::Write), [(2, 0, 8), (3, 0, 8)]);
    }
}
