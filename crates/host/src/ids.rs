//! The values of handles.
//!
//! A handle is a number that was never assigned before, cast to a pointer. Its object is looked up in the map of live
//! objects. So a stale or invented handle, or one of another type, is always detected, and no memory is ever read
//! through a handle.

use crate::driver::number_map::NumberMap;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A map by handle.
pub type IdMap<T> = NumberMap<T>;
