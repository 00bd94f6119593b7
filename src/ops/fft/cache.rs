//! The plan cache of a device: an LRU cache with a limit on the number of plans.

use super::{params::Params, plan::Plan};
use crate::{
    error::{Error, Result},
    runtime::{self, thread::MAX_DEVICES},
    status::Status,
};
use lru::LruCache;
use parking_lot::Mutex;
use std::{hash::Hash, sync::Arc};

/// The default limit of a device's plans: torch's number.
const DEFAULT_LIMIT: usize = 4096;

/// An LRU cache with a limit, which may be 0.
struct LimitedCache<K: Eq + Hash, V> {
    limit: usize,
    entries: LruCache<K, V>,
}

impl<K: Eq + Hash, V> LimitedCache<K, V> {
    fn new(limit: usize) -> Self {
        LimitedCache { limit, entries: LruCache::unbounded() }
    }

    /// Adds an entry that is not in the cache, unless the limit is 0. Returns the entries that were evicted, which the
    /// caller drops.
    fn add(&mut self, key: K, value: V) -> Vec<V> {
        if self.limit == 0 {
            return Vec::new();
        }
        let evicted = self.shrink(self.limit - 1);
        self.entries.put(key, value);
        evicted
    }

    /// Evicts the least recently used entries until at most `limit` are left.
    fn shrink(&mut self, limit: usize) -> Vec<V> {
        let surplus = self.entries.len().saturating_sub(limit);
        (0..surplus).filter_map(|_| Some(self.entries.pop_lru()?.1)).collect()
    }
}

type Cache = Mutex<Option<LimitedCache<Params, Arc<Plan>>>>;

static CACHES: [Cache; MAX_DEVICES] = [const { Mutex::new(None) }; MAX_DEVICES];

/// Runs `body` with the plan cache of a device.
fn with_cache<T>(device: u32, body: impl FnOnce(&mut LimitedCache<Params, Arc<Plan>>) -> T) -> T {
    body(CACHES[device as usize % MAX_DEVICES].lock().get_or_insert_with(|| LimitedCache::new(DEFAULT_LIMIT)))
}

/// Returns the plan for `params` on a device; calls `make` to create it if the cache has none.
pub fn find(device: u32, params: &Params, make: impl FnOnce() -> Result<Plan>) -> Result<Arc<Plan>> {
    if let Some(plan) = with_cache(device, |cache| cache.entries.get(params).cloned()) {
        return Ok(plan);
    }
    // Create the plan without the lock: it takes long, and may wait.
    let made = Arc::new(make()?);
    let (plan, evicted) = with_cache(device, |cache| match cache.entries.get(params).cloned() {
        // Another thread added the plan first.
        Some(plan) => (plan, vec![made]),
        None => (made.clone(), cache.add(*params, made)),
    });
    drop(evicted);
    Ok(plan)
}

fn ordinal(device: i32) -> Result<u32> {
    Ok(runtime::ready()?.device(device)?.ordinal)
}

/// Returns the limit of a device's plan cache.
pub fn max_size(device: i32) -> Result<i64> {
    Ok(with_cache(ordinal(device)?, |cache| i64::try_from(cache.limit).unwrap_or(i64::MAX)))
}

/// Sets the limit of a device's plan cache and evicts the plans beyond it.
pub fn set_max_size(size: i64, device: i32) -> Result<()> {
    let device = ordinal(device)?;
    let limit = usize::try_from(size).map_err(|_| {
        Error::new(Status::INVALID_VALUE, format!("cuFFT plan cache size must be non-negative, but got {size}"))
    })?;
    let evicted = with_cache(device, |cache| {
        cache.limit = limit;
        cache.shrink(limit)
    });
    drop(evicted);
    Ok(())
}

/// Returns the number of plans in a device's cache.
pub fn size(device: i32) -> Result<i64> {
    Ok(with_cache(ordinal(device)?, |cache| cache.entries.len() as i64))
}

/// Removes all plans from a device's cache.
pub fn clear(device: i32) -> Result<()> {
    let evicted = with_cache(ordinal(device)?, |cache| cache.shrink(0));
    drop(evicted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let mut cache = LimitedCache::new(2);
        assert!(cache.add(1, "one").is_empty() && cache.add(2, "two").is_empty());
        assert_eq!(cache.entries.get(&1), Some(&"one"));
        assert_eq!(cache.add(3, "three"), ["two"]);
        assert_eq!(cache.entries.get(&2), None);
        assert_eq!(cache.entries.get(&3), Some(&"three"));
        cache.limit = 0;
        assert_eq!(cache.shrink(0), ["one", "three"]);
        assert!(cache.add(4, "four").is_empty() && cache.entries.get(&4).is_none());
    }

    proptest! {
        #[test]
        fn behaves_like_a_list(limit in 0usize..6, keys in proptest::collection::vec(0u8..9, 1..200)) {
            let mut cache = LimitedCache::new(limit);
            let mut model: Vec<u8> = Vec::new();
            for key in keys {
                let position = model.iter().position(|known| *known == key);
                prop_assert_eq!(cache.entries.get(&key).is_some(), position.is_some());
                if let Some(index) = position {
                    model.remove(index);
                } else {
                    cache.add(key, ());
                }
                model.push(key);
                let surplus = model.len().saturating_sub(limit);
                model.drain(..surplus);
                prop_assert_eq!(cache.entries.len(), model.len());
                prop_assert_eq!(cache.entries.iter().rev().map(|(key, ())| *key).collect::<Vec<_>>(), model.clone());
            }
        }
    }
}
