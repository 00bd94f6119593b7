//! The numbers by which the rows of the ranks are matched.

use crate::driver::group::MAX_RANKS;

/// The number of a row. Calls of all ranks count from 1. The number of a shrink, which only the ranks that remain call, has the
/// bits of the excluded ranks and the number of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowNumber(pub u64);

const SHRINK: u64 = 1 << 63;
const ATTEMPT_BITS: u32 = 24;
const ATTEMPT: u64 = (1 << ATTEMPT_BITS) - 1;
const _: () = assert!(MAX_RANKS + (ATTEMPT_BITS as usize) < 63);

impl RowNumber {
    /// Returns the number of the first attempt of a shrink.
    pub fn first_without(excluded: &[u32]) -> RowNumber {
        RowNumber(excluded.iter().fold(SHRINK, |number, rank| number | 1 << (rank + ATTEMPT_BITS)))
    }

    /// Returns the number of the next attempt.
    pub fn next_attempt(self) -> RowNumber {
        RowNumber(self.0 & !ATTEMPT | (self.0 + 1) & ATTEMPT)
    }

    /// Returns whether it is one of a shrink.
    pub fn is_of_shrink(self) -> bool {
        self.0 & SHRINK != 0
    }

    /// Returns whether both are attempts of a shrink with the same excluded ranks.
    pub fn is_of_same_shrink(self, other: RowNumber) -> bool {
        self.is_of_shrink() && self.0 & !ATTEMPT == other.0 & !ATTEMPT
    }

    /// Returns the ranks that the shrink excludes; none for other calls.
    pub fn excluded(self) -> Vec<u32> {
        let is_excluded = |rank: &u32| self.is_of_shrink() && self.0 >> (rank + ATTEMPT_BITS) & 1 == 1;
        (0..MAX_RANKS as u32).filter(is_excluded).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_shrinks_have_the_excluded_ranks_and_the_attempt() {
        let first = RowNumber::first_without(&[0, 3, MAX_RANKS as u32 - 1]);
        let second = first.next_attempt();
        assert_eq!(second.excluded(), [0, 3, MAX_RANKS as u32 - 1]);
        assert!(second > first && second.is_of_same_shrink(first));
        assert!(!second.is_of_same_shrink(RowNumber::first_without(&[0, 3])));
        let last = RowNumber(first.0 | ATTEMPT);
        assert_eq!(last.next_attempt(), first);
        let other = RowNumber(7);
        assert!(!other.is_of_shrink() && other.excluded().is_empty() && !other.is_of_same_shrink(RowNumber(7)));
    }
}
