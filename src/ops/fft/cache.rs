//! The plan cache of a device: an LRU cache with a limit on the number of plans.

use super::{params::Params, plan::Plan};
use crate::{
    error::{Error, Result},
    runtime::{self, thread::MAX_DEVICES},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The default limit of a device's plans: torch's number.
const DEFAULT_LIMIT: usize = 4096;

/// An LRU cache. The entry that was used last has the highest clock value.
struct LruCache<K, V> {
    limit: usize,
    clock: u64,
    entries: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
}

impl<K: Copy + Eq + std::hash::Hash, V: Clone> LruCache<K, V> {
    fn new(limit: usize) -> Self {
        LruCache { limit, clock: 0, entries: HashMap::new(), order: BTreeMap::new() }
    }

    fn find(&mut self, key: &K) -> Option<V> {
        let (stamp, value) = self.entries.get_mut(key)?;
        self.clock += 1;
        self.order.remove(stamp);
        self.order.insert(self.clock, *key);
        *stamp = self.clock;
        Some(value.clone())
    }

    /// Adds an entry that is not in the cache, unless the limit is 0. Returns the entries that were evicted, which the
    /// caller drops.
    fn add(&mut self, key: K, value: V) -> Vec<V> {
        if self.limit == 0 {
            return Vec::new();
        }
        let evicted = self.shrink(self.limit - 1);
        self.clock += 1;
        self.order.insert(self.clock, key);
        self.entries.insert(key, (self.clock, value));
        evicted
    }

    /// Evicts the least recently used entries until at most `limit` are left.
    fn shrink(&mut self, limit: usize) -> Vec<V> {
        let mut evicted = Vec::new();
        while self.entries.len() > limit
            && let Some((_, key)) = self.order.pop_first()
        {
            evicted.extend(self.entries.remove(&key).map(|(_, value)| value));
        }
        evicted
    }
}

type Cache = Mutex<Option<LruCache<Params, Arc<Plan>>>>;

static CACHES: [Cache; MAX_DEVICES] = [const { Mutex::new(None) }; MAX_DEVICES];

/// Runs `body` with the plan cache of a device.
fn with_cache<T>(device: u32, body: impl FnOnce(&mut LruCache<Params, Arc<Plan>>) -> T) -> T {
    body(CACHES[device as usize % MAX_DEVICES].lock().get_or_insert_with(|| LruCache::new(DEFAULT_LIMIT)))
}

/// Returns the plan for `params` on a device; calls `make` to create it if the cache has none.
pub fn find(device: u32, params: &Params, make: impl FnOnce() -> Result<Plan>) -> Result<Arc<Plan>> {
    if let Some(plan) = with_cache(device, |cache| cache.find(params)) {
        return Ok(plan);
    }
    // Create the plan without the lock: it takes long, and may wait.
    let made = Arc::new(make()?);
    let (plan, evicted) = with_cache(device, |cache| match cache.find(params) {
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
        let mut cache = LruCache::new(2);
        assert!(cache.add(1, "one").is_empty() && cache.add(2, "two").is_empty());
        assert_eq!(cache.find(&1), Some("one"));
        assert_eq!(cache.add(3, "three"), ["two"]);
        assert_eq!((cache.find(&2), cache.find(&3)), (None, Some("three")));
        cache.limit = 0;
        assert_eq!(cache.shrink(0), ["one", "three"]);
        assert!(cache.add(4, "four").is_empty() && cache.find(&4).is_none());
    }

    proptest! {
        #[test]
        fn behaves_like_a_list(limit in 0usize..6, keys in proptest::collection::vec(0u8..9, 1..200)) {
            let mut cache = LruCache::new(limit);
            let mut model: Vec<u8> = Vec::new();
            for key in keys {
                let position = model.iter().position(|known| *known == key);
                prop_assert_eq!(cache.find(&key).is_some(), position.is_some());
                if let Some(index) = position {
                    model.remove(index);
                } else {
                    cache.add(key, ());
                }
                model.push(key);
                let surplus = model.len().saturating_sub(limit);
                model.drain(..surplus);
                prop_assert_eq!(cache.entries.len(), model.len());
                prop_assert_eq!(cache.order.values().copied().collect::<Vec<_>>(), model.clone());
            }
        }
    }
}
