//! The mappings of moved memory at its previous addresses.
//!
//! When the device no longer uses such an address, it becomes a hole, but its mapping stays: an unmapping takes as long as a third
//! of a move, and many addresses are never needed again. A mapping is removed before other memory is mapped at its addresses, and
//! when its memory is released, because the driver frees memory with its last mapping.

use crate::{
    base::retry::retry,
    driver::{Driver, Physical},
};
use std::collections::BTreeMap;

/// The mappings of a device, by address.
#[derive(Debug, Default)]
pub struct PreviousMappings(BTreeMap<u64, PreviousMapping>);

#[derive(Debug, Clone, Copy)]
struct PreviousMapping {
    bytes: u64,
    physical: Physical,
    /// Whether the device may still use the addresses.
    in_use: bool,
    /// Whether the memory has been released since.
    released: bool,
}

impl PreviousMappings {
    /// Adds a mapping whose memory moves. The device may still use it.
    pub fn add(&mut self, address: u64, bytes: u64, physical: Physical) {
        self.0.insert(address, PreviousMapping { bytes, physical, in_use: true, released: false });
    }

    /// Records that the device no longer uses a mapping.
    pub fn end_use(&mut self, driver: &Driver, address: u64) {
        let Some(mapping) = self.0.get_mut(&address) else { return };
        mapping.in_use = false;
        if mapping.released {
            self.remove(driver, &[address]);
        }
    }

    /// Removes the mappings of memory that is to be released; those in use when the device no longer uses them. Mappings of
    /// released memory that the driver refused to unmap are tried again.
    pub fn release(&mut self, driver: &Driver, physical: Physical) {
        let mut addresses = Vec::new();
        for (address, mapping) in &mut self.0 {
            mapping.released |= mapping.physical == physical;
            if mapping.released && !mapping.in_use {
                addresses.push(*address);
            }
        }
        self.remove(driver, &addresses);
    }

    /// Removes the mappings of a range of addresses that the device does not use. Returns whether the driver did.
    pub fn remove_in(&mut self, driver: &Driver, address: u64, bytes: u64) -> bool {
        let end = address + bytes;
        let before = self.0.range(..address).next_back();
        let first =
            before.filter(|(start, mapping)| *start + mapping.bytes > address).map_or(address, |(start, _)| *start);
        let addresses: Vec<u64> = self.0.range(first..end).map(|(address, _)| *address).collect();
        self.remove(driver, &addresses)
    }

    /// Removes all mappings that the device does not use, as far as the driver does.
    pub fn remove_unused(&mut self, driver: &Driver) {
        let addresses: Vec<u64> = self.unused().map(|(address, _)| address).collect();
        self.remove(driver, &addresses);
    }

    /// Returns the addresses and sizes of the mappings that the device does not use.
    pub fn unused(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().filter(|(_, mapping)| !mapping.in_use).map(|(address, mapping)| (*address, mapping.bytes))
    }

    /// Removes the mappings at these addresses. Returns whether the driver unmapped all.
    fn remove(&mut self, driver: &Driver, addresses: &[u64]) -> bool {
        let mut all = true;
        for address in addresses {
            let Some(mapping) = self.0.get(address) else { continue };
            if retry(|| driver.memory_unmap(*address, mapping.bytes)) {
                self.0.remove(address);
            } else {
                all = false;
            }
        }
        all
    }
}
