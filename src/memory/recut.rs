//! Cutting a handle in pieces, where it is: the driver takes the whole one back and gives smaller ones for its addresses.
//!
//! The addresses are without memory meanwhile, so the device must be done with them: a stream that is busy keeps its
//! handles as they are.

use super::{
    arena::Arena,
    growth::Spare,
    mapped::{Backing, Mapped},
    marks,
    stuck::Cut,
};
use crate::{
    device::Device,
    driver::{Driver, Physical},
    runtime::Runtime,
};

/// Cuts a handle in up to three: below the granule with the edge, that granule, and above it. Where that is not possible
/// everything stays as it is, or, if the driver gives nothing for what it got back, the addresses become a hole.
pub fn recut(runtime: &Runtime, device: &Device, arena: &'static Arena, cut: Cut) {
    let driver = &runtime.driver;
    if !arena.may_move() || !marks::is_idle(runtime, arena) {
        arena.lock().space.cut_later();
        return;
    }
    device.memory.moved.add(cut.bytes);
    let spare = Spare { block: cut.block, block_bytes: 0, address: cut.address, bytes: cut.bytes };
    let lifted = {
        let mut inner = arena.lock();
        let Some(lifted) = inner.space.lift(&spare) else { return };
        lifted
    };
    if driver.memory_unmap(lifted.address, lifted.bytes).is_err() {
        arena.lock().space.put_back(lifted.block);
        return;
    }
    if marks::insist(|| driver.memory_release(lifted.physical)) {
        device.memory.released.one();
        device.memory.let_go(lifted.bytes);
    }
    let pieces = create(device, driver, &pieces(&cut)).and_then(|pieces| map(device, driver, lifted.address, pieces));
    let mut inner = arena.lock();
    match pieces {
        Some(pieces) => inner.space.replace(&lifted, &pieces),
        None => {
            inner.space.moved(&lifted);
            inner.space.vacate(lifted.block, lifted.address);
        }
    }
}

/// The sizes of the pieces, in order of address.
fn pieces(cut: &Cut) -> Vec<u64> {
    let below = (cut.edge - cut.address) / cut.granule * cut.granule;
    let above = cut.bytes - below - cut.granule;
    [below, cut.granule, above].into_iter().filter(|bytes| *bytes > 0).collect()
}

/// Creates handles of these sizes, all or none. The budget had room for them a moment ago, but another thread may have
/// taken it.
fn create(device: &Device, driver: &Driver, sizes: &[u64]) -> Option<Vec<(Physical, u64)>> {
    let total = device.memory.total(device, driver).unwrap_or(u64::MAX);
    let most = device.memory.limit(total).unwrap_or(u64::MAX);
    let mut created = Vec::new();
    for bytes in sizes {
        if device.memory.try_hold(*bytes, most) {
            if let Ok(physical) = driver.memory_create(*bytes, device.native) {
                device.memory.created.one();
                created.push((physical, *bytes));
                continue;
            }
            device.memory.never_held(*bytes);
        }
        release(device, driver, created);
        return None;
    }
    Some(created)
}

fn map(device: &Device, driver: &Driver, start: u64, pieces: Vec<(Physical, u64)>) -> Option<Vec<(Physical, u64)>> {
    let mut end = start;
    for (physical, bytes) in &pieces {
        if driver.memory_map(end, *bytes, *physical).is_err() {
            break;
        }
        end += bytes;
    }
    let bytes: u64 = pieces.iter().map(|(_, bytes)| bytes).sum();
    if end == start + bytes && driver.memory_allow(start, bytes, &device.memory_readers()).is_ok() {
        return Some(pieces);
    }
    if end > start {
        marks::insist(|| driver.memory_unmap(start, end - start));
    }
    release(device, driver, pieces);
    None
}

fn release(device: &Device, driver: &Driver, pieces: Vec<(Physical, u64)>) {
    for (physical, bytes) in pieces {
        if marks::insist(|| driver.memory_release(physical)) {
            device.memory.released.one();
            device.memory.never_held(bytes);
        }
    }
}

impl super::space::Space {
    /// Notes that other handles are mapped where one was lifted out, and frees the addresses again.
    fn replace(&mut self, lifted: &super::growth::Lifted, pieces: &[(Physical, u64)]) {
        let zone = self.blocks[lifted.block].zone;
        self.mapped.remove(&lifted.address);
        self.counters.unmap(zone, lifted.bytes);
        let mut address = lifted.address;
        for (physical, bytes) in pieces {
            self.mapped.insert(address, Mapped { bytes: *bytes, backing: Backing::Handle(*physical) });
            self.counters.map(zone, *bytes);
            address += bytes;
        }
        self.put_back(lifted.block);
    }
}
