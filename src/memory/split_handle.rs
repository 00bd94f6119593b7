//! Splitting a handle in place: returns the handle to the driver and maps smaller ones at its addresses.
//!
//! The addresses have no memory meanwhile, so the device must not use them: the handles of a busy stream are not split.

use super::{
    arena::Arena,
    growth::Spare,
    handles::{self, Handle},
    history::Action,
    stream_events,
    unreleasable::Cut,
};
use crate::{
    driver::Driver,
    runtime::{Runtime, device::Device},
};

/// Splits a handle into up to three: the part below the granule that contains the edge, that granule, and the part
/// above. If that is not possible, nothing changes; if the driver cannot provide the new handles, the addresses become
/// a hole.
pub fn recut(runtime: &Runtime, device: &Device, arena: &'static Arena, cut: Cut) {
    let driver = &runtime.driver;
    if !arena.may_move() || !stream_events::is_idle(runtime, arena) {
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
    if stream_events::insist(|| driver.memory_release(lifted.physical)) {
        device.memory.released.one();
        device.memory.let_go(lifted.bytes);
    }
    let pieces = put(device, driver, lifted.address, &pieces(&cut));
    let mut inner = arena.lock();
    match pieces {
        Some(pieces) => inner.space.replace(&lifted, &pieces),
        None => {
            inner.space.moved(&lifted);
            inner.space.vacate(lifted.block, lifted.address);
        }
    }
}

/// Returns the sizes of the new handles in address order.
fn pieces(cut: &Cut) -> Vec<u64> {
    let below = (cut.edge - cut.address) / cut.granule * cut.granule;
    let above = cut.bytes - below - cut.granule;
    [below, cut.granule, above].into_iter().filter(|bytes| *bytes > 0).collect()
}

/// Creates handles of these sizes and maps them from `start` on, all or none. The held bytes were just reduced by the
/// same amount, but another thread may have used that room.
fn put(device: &Device, driver: &Driver, start: u64, sizes: &[u64]) -> Option<Vec<Handle>> {
    let total = device.memory.total(device, driver).unwrap_or(u64::MAX);
    let most = device.memory.limit(total).unwrap_or(u64::MAX);
    let mut created = Vec::new();
    for bytes in sizes {
        match handles::create(device, driver, *bytes, most) {
            Ok(Some(handle)) => created.push(handle),
            _ => break,
        }
    }
    if created.len() == sizes.len() && handles::map(device, driver, start, &created).is_ok() {
        return Some(created);
    }
    handles::undo(device, driver, created);
    None
}

impl super::space::Space {
    /// Records the handles that replace a detached one, and frees its addresses.
    fn replace(&mut self, lifted: &super::growth::Lifted, pieces: &[Handle]) {
        let zone = self.blocks[lifted.block].zone;
        self.mapped.remove(&lifted.address);
        self.counters.unmap(zone, lifted.bytes);
        self.hear_segment(Action::SegmentUnmap, lifted.address, lifted.bytes);
        self.note_mapped(lifted.address, zone, pieces);
        self.put_back(lifted.block);
    }
}
