//! The blocks that backends have given out, by address, and what was counted of them.

use super::{Owner, StreamUse};
use crate::{
    memory::{
        block::Zone,
        device_memory::device,
        space::zone_of,
        stats::{ByPool, Stats},
        stream_events,
    },
    runtime::{Runtime, device::Device},
    sanitizer::Owned,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A block of a backend's in the program's hands.
#[derive(Debug)]
pub(super) struct Block {
    pub owner: Owner,
    /// The stream that it was allocated for.
    pub own: StreamUse,
    pub size: u64,
    pub requested: u64,
    /// The streams that were recorded on it.
    pub uses: Vec<StreamUse>,
}

impl Block {
    /// The block, as the sanitizer is told of it.
    pub fn owned(&self, address: u64) -> Owned {
        let StreamUse { stream, device, thread } = self.own;
        Owned { address, bytes: self.requested, device, stream: stream.handle(), thread }
    }

    /// Whether a stream that uses it is capturing, so that it cannot be waited for.
    pub fn waits_for_a_capture(&self, runtime: &Runtime) -> bool {
        std::iter::once(&self.own).chain(&self.uses).any(|one| {
            // A default stream is that of the context which is current.
            let asked = device(runtime, one.device).and_then(|device| {
                device
                    .with_context(&runtime.driver, |driver| Ok(stream_events::is_capturing(driver, one.event_stream())))
            });
            asked.unwrap_or(true)
        })
    }
}

static BOOK: Mutex<BTreeMap<u64, Block>> = Mutex::new(BTreeMap::new());

/// Notes a block that is given out.
pub(super) fn enter(address: u64, block: Block, device: &Device) {
    count(device, &block, ByPool::add);
    BOOK.lock().insert(address, block);
}

/// Changes what is counted of blocks in the program's hands.
fn count(device: &Device, block: &Block, change: fn(&mut ByPool, Zone, u64)) {
    let zone = zone_of(block.size);
    let stats = &mut *device.memory.others.lock();
    change(&mut stats.allocation, zone, 1);
    change(&mut stats.active, zone, 1);
    change(&mut stats.allocated_bytes, zone, block.size);
    change(&mut stats.active_bytes, zone, block.size);
    change(&mut stats.requested_bytes, zone, block.requested);
}

/// Takes a block out that is freed.
pub(super) fn leave(address: u64) -> Option<Block> {
    let block = BOOK.lock().remove(&address)?;
    if let Some(runtime) = crate::runtime::usable()
        && let Some(device) = runtime.devices().get(block.own.device as usize)
    {
        count(device, &block, ByPool::sub);
    }
    Some(block)
}

/// Puts a block back whose free failed.
pub(super) fn put_back(address: u64, block: Block, device: &Device) {
    enter(address, block, device);
}

/// Looks at the block at an address.
pub(super) fn with<T>(address: u64, look: impl FnOnce(&mut Block) -> T) -> Option<T> {
    BOOK.lock().get_mut(&address).map(look)
}

/// The block that an address lies in: where it begins, and its bytes.
pub(super) fn around(address: u64) -> Option<(u64, u64)> {
    let book = BOOK.lock();
    let (start, block) = book.range(..=address).next_back()?;
    (address - start < block.size).then_some((*start, block.size))
}

/// Counts memory that a backend got from the driver for a block of some size.
pub(super) fn note_held(device: &Device, size: u64, bytes: u64) {
    let mut stats = device.memory.others.lock();
    stats.segment.add(zone_of(size), 1);
    stats.reserved_bytes.add(zone_of(size), bytes);
}

/// Counts memory that went back to the driver.
pub(super) fn note_released(device: &Device, size: u64, bytes: u64) {
    let mut stats = device.memory.others.lock();
    stats.segment.sub(zone_of(size), 1);
    stats.reserved_bytes.sub(zone_of(size), bytes);
    device.memory.released.increment();
    device.memory.release_held(bytes);
}

/// What backends have counted of a device.
pub fn totals(device: &Device) -> Stats {
    *device.memory.others.lock()
}

/// The bytes that backends hold of a device, for the allocator's check of itself.
pub fn check(device: &Device) -> u64 {
    device.memory.others.lock().reserved_bytes.all.current
}
