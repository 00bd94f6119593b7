//! Splitting a handle in place: returns the handle to the driver and maps smaller ones at its addresses.
//!
//! The addresses have no memory meanwhile, so the device must not use them: the handles of a busy stream are not split.

use super::{
    arena::Arena,
    growth::ReclaimableHandle,
    handles::{self, Handle},
    stream_events,
    unreleasable::HandleSplit,
};
use crate::{
    driver::Driver,
    runtime::{Runtime, device::Device},
};

/// Splits a handle into up to three: the part below the granule that contains the edge, that granule, and the part
/// above. If that is not possible, nothing changes; if the driver cannot provide the new handles, the addresses become
/// a hole.
pub fn split(runtime: &Runtime, device: &Device, arena: &'static Arena, split: HandleSplit) {
    let driver = &runtime.driver;
    if !stream_events::may_move_memory(runtime, device, arena, false) {
        arena.lock().space.postpone_splits();
        return;
    }
    let handle = ReclaimableHandle { block: split.block, block_bytes: 0, address: split.address, bytes: split.bytes };
    let detached = {
        let mut inner = arena.lock();
        let Some(detached) = inner.space.detach(&handle) else { return };
        detached
    };
    if !stream_events::is_idle(runtime, arena) {
        let mut inner = arena.lock();
        inner.space.reattach(detached.block);
        inner.space.postpone_splits();
        return;
    }
    if driver.memory_unmap(detached.address, detached.bytes).is_err() {
        arena.lock().space.reattach(detached.block);
        return;
    }
    device.memory().moves.lock().add(split.bytes);
    arena.lock().space.mark_moved(&detached);
    if handles::release(device, driver, detached.physical) {
        device.memory().released.increment();
        device.memory().release_held(detached.bytes);
    }
    let handles = create_and_map(device, driver, arena, detached.address, &split_sizes(&split));
    let mut inner = arena.lock();
    match handles {
        Some(handles) => inner.space.replace(&detached, &handles),
        None => inner.space.free_addresses(detached.block, detached.address),
    }
}

/// Returns the sizes of the new handles in address order.
fn split_sizes(split: &HandleSplit) -> Vec<u64> {
    let below = (split.edge - split.address) / split.granule * split.granule;
    let above = split.bytes - below - split.granule;
    [below, split.granule, above].into_iter().filter(|bytes| *bytes > 0).collect()
}

/// Creates handles of these sizes and maps them from `start` on, all or none. The held bytes were just reduced by the
/// same amount, but another thread may have used that room.
fn create_and_map(device: &Device, driver: &Driver, arena: &Arena, start: u64, sizes: &[u64]) -> Option<Vec<Handle>> {
    let total = device.memory().total(device, driver).unwrap_or(u64::MAX);
    let max_held = device.memory().limit(total).unwrap_or(u64::MAX);
    let options = arena.lock().memory;
    let mut created = Vec::new();
    for bytes in sizes {
        match handles::create(device, driver, *bytes, max_held, options) {
            Ok(Some(handle)) => created.push(handle),
            _ => break,
        }
    }
    if created.len() == sizes.len() && handles::map(device, driver, start, &created).is_ok() {
        handles::confirm(device, &created);
        return Some(created);
    }
    handles::undo(device, driver, created);
    None
}

impl super::space::Space {
    /// Records the handles that replace one that was moved, and frees its addresses.
    fn replace(&mut self, detached: &super::growth::DetachedHandle, handles: &[Handle]) {
        let zone = self.blocks[detached.block].zone;
        self.mapped.remove(&detached.address);
        self.note_mapped(detached.address, zone, handles);
        self.reattach(detached.block);
    }
}
