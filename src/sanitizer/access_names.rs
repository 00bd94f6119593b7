//! Descriptions of accesses: the names of operations, and the site of each track.

use super::{
    order::Track,
    ranges::Access,
    report::{AccessInfo, Site},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The minimum number of names at which those without use are removed. Otherwise it is twice the number that the last
/// removal left.
const MIN_FULL: usize = 4096;

/// The names by number, and the sites of the tracks.
#[derive(Debug)]
pub struct AccessNames {
    names: HashMap<u32, Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// The name of the last operation, with its number.
    last: Option<(Arc<str>, u32)>,
    next: u32,
    /// The number of names at which [`retain`](Self::retain) is due.
    full_at: usize,
    sites: HashMap<Track, Site>,
}

impl Default for AccessNames {
    fn default() -> Self {
        AccessNames {
            names: HashMap::new(),
            numbers: HashMap::new(),
            last: None,
            next: 0,
            full_at: MIN_FULL,
            sites: HashMap::new(),
        }
    }
}

impl AccessNames {
    /// Returns the number of a name, which is added if it is new.
    pub fn number(&mut self, name: &str) -> u32 {
        // Consecutive operations usually have the same name.
        if let Some((last, number)) = &self.last
            && **last == *name
        {
            return *number;
        }
        let (name, number) = match self.numbers.get_key_value(name) {
            Some((name, number)) => (name.clone(), *number),
            None => self.add(name.into()),
        };
        self.last = Some((name, number));
        number
    }

    fn add(&mut self, name: Arc<str>) -> (Arc<str>, u32) {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.names.insert(number, name.clone());
        self.numbers.insert(name.clone(), number);
        (name, number)
    }

    /// Returns whether there are so many names that those without use should be removed.
    pub fn is_full(&self) -> bool {
        self.names.len() >= self.full_at
    }

    /// Removes all names but those with the numbers `used`.
    pub fn retain(&mut self, used: impl Iterator<Item = u32>) {
        let used: HashSet<u32> = used.collect();
        self.names.retain(|number, _| used.contains(number));
        self.numbers.retain(|_, number| used.contains(number));
        self.last = None;
        self.full_at = (2 * self.names.len()).max(MIN_FULL);
    }

    /// Sets the site of a track.
    pub fn set_site(&mut self, track: Track, site: Site) {
        self.sites.insert(track, site);
    }

    /// Returns the site of a track.
    pub fn site(&self, track: Track) -> Site {
        self.sites.get(&track).copied().unwrap_or(Site::Cpu)
    }

    /// Describes an access at a site.
    pub fn describe_at(&self, site: Site, access: &Access) -> AccessInfo {
        AccessInfo {
            name: self.names.get(&access.name).cloned().unwrap_or_default(),
            kind: access.kind,
            site,
            address: access.start,
            bytes: access.end - access.start,
            stack: access.stack,
            number: access.number,
        }
    }

    /// Describes an access on its track.
    pub fn describe(&self, access: &Access) -> AccessInfo {
        self.describe_at(self.site(access.track), access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_use_are_removed() {
        let mut names = AccessNames::default();
        let kept = names.number("kept");
        for step in 0..10 * MIN_FULL {
            let number = names.number(&step.to_string());
            assert_eq!(names.number(&step.to_string()), number);
            if names.is_full() {
                names.retain([kept, number].into_iter());
                assert_eq!((names.names.len(), names.number("kept")), (2, kept));
                assert_eq!(names.number(&step.to_string()), number);
            }
        }
        assert!(names.names.len() <= MIN_FULL);
    }
}
