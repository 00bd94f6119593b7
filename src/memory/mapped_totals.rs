//! The mapped handles and segments of a device, over all arenas, and their peaks. They change with calls of the driver, beside
//! which atomic counters that all threads share cost nothing; so these peaks are exact without budgets. Other backends than the
//! caching allocator are not included: a program uses one.

use super::{
    block::Zone,
    counters::{ALL, Quantity},
};
use std::sync::atomic::{AtomicU64, Ordering};

/// The quantities of mapped memory: the last ones.
const FIRST: usize = Quantity::Segments as usize;
const _: () = assert!(Quantity::Reserved as usize == FIRST + 1);

/// The number and the bytes, of the small zone, of the large zone, and of both together.
#[derive(Debug, Default)]
pub struct MappedTotals([[Total; 2]; 3]);

#[derive(Debug, Default)]
struct Total {
    current: AtomicU64,
    peak: AtomicU64,
}

impl MappedTotals {
    /// Counts a mapped handle or segment.
    pub fn add(&self, zone: Zone, bytes: u64) {
        for (total, amount) in self.totals_of(zone, bytes) {
            let current = total.current.fetch_add(amount, Ordering::Relaxed) + amount;
            total.peak.fetch_max(current, Ordering::AcqRel);
        }
    }

    /// Counts a handle or segment that was released or moved.
    pub fn sub(&self, zone: Zone, bytes: u64) {
        for (total, amount) in self.totals_of(zone, bytes) {
            let before = total.current.fetch_sub(amount, Ordering::Relaxed);
            debug_assert!(before >= amount, "{amount} of {before} are no longer mapped");
        }
    }

    fn totals_of(&self, zone: Zone, bytes: u64) -> impl Iterator<Item = (&Total, u64)> {
        [zone as usize, ALL].into_iter().flat_map(move |scope| self.0[scope].iter().zip([1, bytes]))
    }

    /// Returns the mapped bytes.
    pub fn bytes(&self) -> u64 {
        self.0[ALL][1].current.load(Ordering::Relaxed)
    }

    /// Returns the peak of a quantity in a scope; `None` if it is not one of mapped memory.
    pub fn peak(&self, scope: usize, quantity: usize) -> Option<u64> {
        let total = &self.0[scope][quantity.checked_sub(FIRST)?];
        // During a reset the peak is 0 for a moment.
        Some(total.peak.load(Ordering::Relaxed).max(total.current.load(Ordering::Relaxed)))
    }

    /// Resets the peaks to the current values. What another thread adds meanwhile is in the old peak or in the new one.
    pub fn reset_peaks(&self) {
        for total in self.0.as_flattened() {
            total.peak.swap(0, Ordering::AcqRel);
            total.peak.fetch_max(total.current.load(Ordering::Relaxed), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn the_peaks_of_concurrent_threads_are_exact() {
        const THREADS: u64 = 4;
        let (totals, barrier) = (MappedTotals::default(), Barrier::new(THREADS as usize));
        let peaks = |scope| [FIRST, FIRST + 1].map(|quantity| totals.peak(scope, quantity).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..100 {
                        totals.add(Zone::Large, 8);
                        totals.add(Zone::Small, 2);
                        // All are mapped here.
                        barrier.wait();
                        totals.sub(Zone::Small, 2);
                        totals.sub(Zone::Large, 8);
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!(totals.bytes(), 0);
        assert_eq!([peaks(Zone::Small as usize), peaks(Zone::Large as usize)], [[4, 8], [4, 32]]);
        assert_eq!(peaks(ALL), [8, 40]);
        totals.add(Zone::Small, 2);
        totals.reset_peaks();
        assert_eq!((peaks(ALL), totals.peak(ALL, Quantity::Bytes as usize)), ([1, 2], None));
    }
}
