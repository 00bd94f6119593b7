//! The plans of a device that are kept: at most so many, and the one that was not used for the longest time goes first.

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

/// How many plans a device keeps unless somebody says otherwise: torch's number.
const USUAL: usize = 4096;

/// Things by key, the one used last having the highest number.
struct Kept<K, V> {
    most: usize,
    clock: u64,
    things: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
}

impl<K: Copy + Eq + std::hash::Hash, V: Clone> Kept<K, V> {
    fn new(most: usize) -> Self {
        Kept { most, clock: 0, things: HashMap::new(), order: BTreeMap::new() }
    }

    fn find(&mut self, key: &K) -> Option<V> {
        let (number, thing) = self.things.get_mut(key)?;
        self.clock += 1;
        self.order.remove(number);
        self.order.insert(self.clock, *key);
        *number = self.clock;
        Some(thing.clone())
    }

    /// Adds what was not there, unless nothing is kept. What has to go for it is the caller's.
    fn add(&mut self, key: K, thing: V) -> Vec<V> {
        if self.most == 0 {
            return Vec::new();
        }
        let gone = self.shrink(self.most - 1);
        self.clock += 1;
        self.order.insert(self.clock, key);
        self.things.insert(key, (self.clock, thing));
        gone
    }

    /// Takes out what was not used for the longest time, until so many are left.
    fn shrink(&mut self, most: usize) -> Vec<V> {
        let mut gone = Vec::new();
        while self.things.len() > most
            && let Some((_, key)) = self.order.pop_first()
        {
            gone.extend(self.things.remove(&key).map(|(_, thing)| thing));
        }
        gone
    }
}

type Cache = Mutex<Option<Kept<Params, Arc<Plan>>>>;

static CACHES: [Cache; MAX_DEVICES] = [const { Mutex::new(None) }; MAX_DEVICES];

/// Runs `body` with the plans of a device.
fn with<T>(device: u32, body: impl FnOnce(&mut Kept<Params, Arc<Plan>>) -> T) -> T {
    body(CACHES[device as usize % MAX_DEVICES].lock().get_or_insert_with(|| Kept::new(USUAL)))
}

/// The plan for this on a device; `make` makes it where there is none.
pub fn find(device: u32, params: &Params, make: impl FnOnce() -> Result<Plan>) -> Result<Arc<Plan>> {
    if let Some(plan) = with(device, |kept| kept.find(params)) {
        return Ok(plan);
    }
    // Without the lock: it takes long, and may wait.
    let made = Arc::new(make()?);
    let (plan, gone) = with(device, |kept| match kept.find(params) {
        // Another thread was faster.
        Some(plan) => (plan, vec![made]),
        None => (made.clone(), kept.add(*params, made)),
    });
    drop(gone);
    Ok(plan)
}

fn number(device: i32) -> Result<u32> {
    Ok(runtime::ready()?.device(device)?.ordinal)
}

/// The most plans that a device keeps.
pub fn max_size(device: i32) -> Result<i64> {
    Ok(with(number(device)?, |kept| i64::try_from(kept.most).unwrap_or(i64::MAX)))
}

/// Says how many those are. What is too much goes.
pub fn set_max_size(size: i64, device: i32) -> Result<()> {
    let device = number(device)?;
    let most = usize::try_from(size).map_err(|_| {
        Error::new(Status::INVALID_VALUE, format!("cuFFT plan cache size must be non-negative, but got {size}"))
    })?;
    let gone = with(device, |kept| {
        kept.most = most;
        kept.shrink(most)
    });
    drop(gone);
    Ok(())
}

/// How many plans a device keeps at this moment.
pub fn size(device: i32) -> Result<i64> {
    Ok(with(number(device)?, |kept| kept.things.len() as i64))
}

/// Lets a device keep none of those that it has.
pub fn clear(device: i32) -> Result<()> {
    let gone = with(number(device)?, |kept| kept.shrink(0));
    drop(gone);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_not_used_goes_first() {
        let mut kept = Kept::new(2);
        assert!(kept.add(1, "one").is_empty() && kept.add(2, "two").is_empty());
        assert_eq!(kept.find(&1), Some("one"));
        assert_eq!(kept.add(3, "three"), ["two"]);
        assert_eq!((kept.find(&2), kept.find(&3)), (None, Some("three")));
        kept.most = 0;
        assert_eq!(kept.shrink(0), ["one", "three"]);
        assert!(kept.add(4, "four").is_empty() && kept.find(&4).is_none());
    }

    proptest! {
        #[test]
        fn behaves_like_a_list(most in 0usize..6, keys in proptest::collection::vec(0u8..9, 1..200)) {
            let mut kept = Kept::new(most);
            let mut model: Vec<u8> = Vec::new();
            for key in keys {
                let there = model.iter().position(|known| *known == key);
                prop_assert_eq!(kept.find(&key).is_some(), there.is_some());
                if let Some(index) = there {
                    model.remove(index);
                } else {
                    kept.add(key, ());
                }
                model.push(key);
                let surplus = model.len().saturating_sub(most);
                model.drain(..surplus);
                prop_assert_eq!(kept.things.len(), model.len());
                prop_assert_eq!(kept.order.values().copied().collect::<Vec<_>>(), model.clone());
            }
        }
    }
}
