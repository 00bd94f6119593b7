//! Descriptions of accesses: the names of operations, and the site of each track.

use super::{
    order::Track,
    ranges::Access,
    report::{AccessInfo, Site},
};
use std::{collections::HashMap, sync::Arc};

/// The names by number, and the sites of the tracks.
#[derive(Debug, Default)]
pub struct AccessNames {
    names: Vec<Arc<str>>,
    /// The most recently returned number.
    last: u32,
    numbers: HashMap<Arc<str>, u32>,
    sites: HashMap<Track, Site>,
}

impl AccessNames {
    /// Returns the number of a name, which is added if it is new.
    pub fn number(&mut self, name: &str) -> u32 {
        // Consecutive operations usually have the same name.
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
            name: self.names.get(access.name as usize).cloned().unwrap_or_default(),
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
