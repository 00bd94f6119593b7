//! The mapped handles and segments of a device, over all arenas, and their peaks. They change with calls of the driver, beside
//! which atomic counters that all threads share cost nothing; so these peaks are exact without budgets.

use super::{
    block::Zone,
    counters::{ALL, Quantity},
};
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts and bytes of the small zone, of the large zone, and of both together.
#[derive(Debug, Default)]
pub struct MappedTotals([Scope; 3]);

#[derive(Debug, Default)]
struct Scope {
    segments: Total,
    reserved: Total,
}

#[derive(Debug, Default)]
struct Total {
    current: AtomicU64,
    peak: AtomicU64,
}

impl Total {
    fn add(&self, amount: u64) {
        let current = self.current.fetch_add(amount, Ordering::Relaxed) + amount;
        self.peak.fetch_max(current, Ordering::Relaxed);
    }

    fn sub(&self, amount: u64) {
        self.current.fetch_sub(amount, Ordering::Relaxed);
    }
}

impl MappedTotals {
    /// Counts a mapped handle or segment.
    pub fn add(&self, zone: Zone, bytes: u64) {
        for scope in [zone as usize, ALL] {
            self.0[scope].segments.add(1);
            self.0[scope].reserved.add(bytes);
        }
    }

    /// Counts a handle or segment that was released or moved.
    pub fn sub(&self, zone: Zone, bytes: u64) {
        for scope in [zone as usize, ALL] {
            self.0[scope].segments.sub(1);
            self.0[scope].reserved.sub(bytes);
        }
    }

    /// Returns the peak of a quantity in a scope; `None` if it is not one of mapped memory.
    pub fn peak(&self, scope: usize, quantity: usize) -> Option<u64> {
        let total = match quantity {
            of if of == Quantity::Segments as usize => &self.0[scope].segments,
            of if of == Quantity::Reserved as usize => &self.0[scope].reserved,
            _ => return None,
        };
        Some(total.peak.load(Ordering::Relaxed))
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&self) {
        for total in self.0.iter().flat_map(|scope| [&scope.segments, &scope.reserved]) {
            total.peak.store(total.current.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
