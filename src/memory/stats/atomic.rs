//! A count that any thread updates without a lock.

use super::Stat;
use std::sync::atomic::{AtomicU64, Ordering};

/// A current value and its peak, which any thread updates.
#[derive(Debug, Default)]
pub struct AtomicStat {
    current: AtomicU64,
    peak: AtomicU64,
}

impl AtomicStat {
    /// Creates a count of 0.
    pub const fn new() -> Self {
        AtomicStat { current: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Increases the value.
    #[inline]
    pub fn add(&self, amount: u64) {
        let now = self.current.fetch_add(amount, Ordering::Relaxed) + amount;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Decreases the value.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.current.fetch_sub(amount, Ordering::Release);
    }

    /// Returns the current value.
    pub fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Returns the maximum value since the peak was reset.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns the values with torch's fields, with sums that are counted elsewhere.
    pub fn stat(&self, allocated: u64, freed: u64) -> Stat {
        let current = self.current();
        Stat { current, peak: self.peak().max(current), allocated, freed }
    }

    /// Sets the peak to the current value.
    pub fn reset_peak(&self) {
        self.peak.store(self.current(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_the_maximum() {
        let stat = AtomicStat::new();
        stat.add(10);
        stat.sub(4);
        stat.add(1);
        assert_eq!(stat.stat(11, 4), Stat { current: 7, peak: 10, allocated: 11, freed: 4 });
        stat.reset_peak();
        assert_eq!(stat.stat(0, 0), Stat { current: 7, peak: 7, allocated: 0, freed: 0 });
    }
}
