//! Who an access was: the names of operations, and what runs on each track.

use super::{
    order::Track,
    ranges::Access,
    report::{Side, Site},
};
use std::{collections::HashMap, sync::Arc};

/// Names by number, and what runs on the tracks.
#[derive(Debug, Default)]
pub struct Sides {
    names: Vec<Arc<str>>,
    /// The number that was asked for last.
    last: u32,
    numbers: HashMap<Arc<str>, u32>,
    sites: HashMap<Track, Site>,
}

impl Sides {
    /// The number of a name.
    pub fn number(&mut self, name: &str) -> u32 {
        // Mostly it is that of the operation before.
        if let Some(last) = self.names.get(self.last as usize)
            && **last == *name
        {
            return self.last;
        }
        if let Some(number) = self.numbers.get(name) {
            self.last = *number;
            return *number;
        }
        let (number, name): (u32, Arc<str>) = (self.names.len() as u32, name.into());
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// Notes what runs on a track from now on.
    pub fn place(&mut self, track: Track, site: Site) {
        self.sites.insert(track, site);
    }

    /// What runs on a track.
    pub fn site(&self, track: Track) -> Site {
        self.sites.get(&track).copied().unwrap_or(Site::Cpu)
    }

    /// An access in a site, as it is told.
    pub fn side_in(&self, site: Site, access: &Access) -> Side {
        Side {
            name: self.names.get(access.name as usize).cloned().unwrap_or_default(),
            kind: access.kind,
            site,
            address: access.start,
            bytes: access.end - access.start,
            stack: access.stack,
            number: access.number,
        }
    }

    /// An access on its track, as it is told.
    pub fn side(&self, access: &Access) -> Side {
        self.side_in(self.site(access.track), access)
    }
}
