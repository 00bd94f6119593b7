//! The values of handles.
//!
//! A handle is a number that was never assigned before, cast to a pointer. Its object is looked up in the map of live
//! objects. So a stale or invented handle, or one of another type, is always detected, and no memory is ever read
//! through a handle.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};

/// A handle's number.
pub type Id = u64;

/// Far above anything that `mmap` returns, and not canonical as an address: a program that dereferences a handle faults
/// at once.
const FIRST: u64 = 0x5154_0000_0000_0000;
static NEXT: AtomicU64 = AtomicU64::new(FIRST);

/// Returns a number that no handle had before.
pub fn next() -> Id {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// A map by handle. This library assigns the numbers, so a multiplication spreads them well enough.
pub type IdMap<T> = HashMap<Id, T, BuildHasherDefault<IdHasher>>;

#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
