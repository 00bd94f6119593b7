//! The mappings of moved memory at its previous addresses.
//!
//! When the device no longer uses such an address, it becomes a hole, but its mapping stays: an unmapping takes as long as a third
//! of a move, and many addresses are never needed again. A mapping is removed before other memory is mapped at its addresses, and
//! when its memory is released, because the driver frees memory with its last mapping.

use crate::{
    base::retry::retry,
    driver::{Driver, Physical},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The mappings of a device.
#[derive(Debug, Default)]
pub struct PreviousMappings {
    by_address: BTreeMap<u64, PreviousMapping>,
    /// The addresses of memory that has not been released, and those of released memory: each is in one of both.
    of_memory: HashMap<Physical, Vec<u64>>,
    released: BTreeSet<u64>,
}

#[derive(Debug, Clone, Copy)]
struct PreviousMapping {
    bytes: u64,
    physical: Physical,
    /// Whether the device may still use the addresses.
    in_use: bool,
}

impl PreviousMappings {
    /// Adds a mapping whose memory moves. The device may still use it.
    pub fn add(&mut self, address: u64, bytes: u64, physical: Physical) {
        self.by_address.insert(address, PreviousMapping { bytes, physical, in_use: true });
        self.of_memory.entry(physical).or_default().push(address);
    }

    /// Records that the device no longer uses a mapping.
    pub fn end_use(&mut self, driver: &Driver, address: u64) {
        let Some(mapping) = self.by_address.get_mut(&address) else { return };
        mapping.in_use = false;
        if self.released.contains(&address) {
            self.remove(driver, &[address]);
        }
    }

    /// Removes the mappings of memory that is to be released; those in use when the device no longer uses them. Mappings of
    /// released memory that the driver refused to unmap are tried again.
    pub fn release(&mut self, driver: &Driver, physical: Physical) {
        self.released.extend(self.of_memory.remove(&physical).into_iter().flatten());
        let unused = |address: &&u64| self.by_address.get(address).is_some_and(|mapping| !mapping.in_use);
        let addresses: Vec<u64> = self.released.iter().filter(unused).copied().collect();
        self.remove(driver, &addresses);
    }

    /// Removes the mappings of a range of addresses, none of which the device uses any more. Returns whether the driver did.
    pub fn remove_in(&mut self, driver: &Driver, address: u64, bytes: u64) -> bool {
        let end = address + bytes;
        let before = self.by_address.range(..address).next_back();
        let first =
            before.filter(|(start, mapping)| *start + mapping.bytes > address).map_or(address, |(start, _)| *start);
        let addresses: Vec<u64> = self.by_address.range(first..end).map(|(address, _)| *address).collect();
        self.remove(driver, &addresses)
    }

    /// Removes all mappings that the device does not use, as far as the driver does.
    pub fn remove_unused(&mut self, driver: &Driver) {
        let addresses: Vec<u64> = self.unused().map(|(address, _)| address).collect();
        self.remove(driver, &addresses);
    }

    /// Returns the addresses and sizes of the mappings that the device does not use.
    pub fn unused(&self) -> impl Iterator<Item = (u64, u64)> {
        let unused = self.by_address.iter().filter(|(_, mapping)| !mapping.in_use);
        unused.map(|(address, mapping)| (*address, mapping.bytes))
    }

    /// Removes the mappings at these addresses. Returns whether the driver unmapped all.
    fn remove(&mut self, driver: &Driver, addresses: &[u64]) -> bool {
        let mut all = true;
        for address in addresses {
            let Some(mapping) = self.by_address.get(address).copied() else { continue };
            if !retry(|| driver.memory_unmap(*address, mapping.bytes)) {
                all = false;
                continue;
            }
            self.by_address.remove(address);
            if !self.released.remove(address)
                && let Some(addresses) = self.of_memory.get_mut(&mapping.physical)
            {
                addresses.retain(|other| other != address);
                if addresses.is_empty() {
                    self.of_memory.remove(&mapping.physical);
                }
            }
        }
        all
    }
}
