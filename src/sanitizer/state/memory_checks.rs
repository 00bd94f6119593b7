//! Accesses that are wrong in any order: past the end of a block, to freed memory, to memory that sleeps.

use super::{Block, State};
use crate::sanitizer::{
    order::Track,
    ranges::Access,
    report::{Conflict, Missing, Report, Site},
};
use std::collections::BTreeMap;

/// The ranges of device memory that sleep, by their starts, with their ends. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct SleepingMemory(BTreeMap<u64, u64>);

impl SleepingMemory {
    /// Removes a range, and the parts of others in it.
    fn remove(&mut self, start: u64, end: u64) {
        let below = self.0.range(..start).next_back().filter(|(_, other)| **other > start).map(|(other, _)| *other);
        let starts: Vec<u64> = below.into_iter().chain(self.0.range(start..end).map(|(other, _)| *other)).collect();
        for other in starts {
            let Some(other_end) = self.0.remove(&other) else { continue };
            if other < start {
                self.0.insert(other, start);
            }
            if end < other_end {
                self.0.insert(end, other_end);
            }
        }
    }

    /// Returns the first part of a range that sleeps.
    fn overlap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (from, to) = self.0.range(..end).next_back().filter(|(_, to)| **to > start)?;
        let mut first = (*from, *to);
        for (from, to) in self.0.range(..*from).rev().take_while(|(_, to)| **to > start) {
            first = (*from, *to);
        }
        Some((first.0.max(start), first.1.min(end)))
    }
}

impl State {
    /// Puts memory to sleep.
    pub fn sleep(&mut self, address: u64, bytes: u64) {
        self.wake(address, bytes);
        self.sleeping.0.insert(address, address.saturating_add(bytes));
    }

    /// Wakes memory.
    pub fn wake(&mut self, address: u64, bytes: u64) {
        self.sleeping.remove(address, address.saturating_add(bytes));
    }

    /// Reports an access to memory that sleeps.
    pub(super) fn check_awake(&self, track: Track, access: &Access, reports: &mut Vec<Report>) {
        let Some((start, end)) = self.sleeping.overlap(access.start, access.end) else { return };
        reports.push(Report {
            conflict: Conflict::UseWhileAsleep,
            access: self.names.describe_at(self.names.site(track), access),
            previous: None,
            address: start,
            bytes: end - start,
            missing: Missing::Wake,
            allocation: self.blocks.at(start).map(|block| block.allocation.clone()),
            former: None,
            times: 1,
        });
    }

    /// Reports an access that runs past the end of the block in which it begins, and one to freed memory. `planned` is
    /// the number of the intended allocation; 0 if it is not known.
    pub(super) fn check_allocation(&self, site: Site, access: &Access, planned: u32, reports: &mut Vec<Report>) {
        let is_intended = |block: &&Block| planned == 0 || block.allocation.number == planned;
        let begins_in = self.blocks.at(access.start).filter(|block| block.freed_at.is_none()).filter(is_intended);
        // The rest of a former allocation that began before the access: it was probably meant, and its use is reported.
        let is_former = |block: &Block| block.freed_at.is_some() && block.allocation.address <= access.start;
        let in_bounds =
            |block: &Block| block.end >= access.end || self.blocks.overlapping(block.end, access.end).any(is_former);
        if let Some(block) = begins_in.filter(|block| !in_bounds(block)) {
            reports.push(Report {
                conflict: Conflict::OutOfBounds,
                access: self.names.describe_at(site, access),
                previous: None,
                address: block.end,
                bytes: access.end - block.end,
                missing: Missing::LargerBlock,
                allocation: Some(block.allocation.clone()),
                former: None,
                times: 1,
            });
        }
        for block in self.blocks.overlapping(access.start, access.end) {
            let reallocated = planned != 0 && block.allocation.number != planned && block.allocation(planned).is_some();
            if !reallocated && block.freed_at.is_none() {
                continue;
            }
            let allocation = if reallocated { block.allocation(planned) } else { Some(&block.allocation) };
            let from = access.start.max(self.blocks.start_of(block));
            reports.push(Report {
                conflict: Conflict::UseAfterFree,
                access: self.names.describe_at(site, access),
                previous: None,
                address: from,
                bytes: access.end.min(block.end) - from,
                missing: Missing::LaterFree,
                allocation: allocation.cloned(),
                former: None,
                times: 1,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SleepingMemory;

    #[test]
    fn ranges_wake_in_parts() {
        let mut memory = SleepingMemory::default();
        memory.0.extend([(100, 200), (200, 300), (500, 600)]);
        assert_eq!(memory.overlap(0, 100), None);
        assert_eq!(memory.overlap(150, 550), Some((150, 200)));
        memory.remove(150, 250);
        assert_eq!(memory.0, [(100, 150), (250, 300), (500, 600)].into());
        assert_eq!(memory.overlap(140, 600), Some((140, 150)));
        assert_eq!((memory.overlap(150, 250), memory.overlap(160, 501)), (None, Some((250, 300))));
        memory.remove(0, 1000);
        assert!(memory.0.is_empty());
    }
}
