//! The live blocks of the backends by address, and their statistics.

use super::{Owner, StreamUse};
use crate::{
    base::stack::StackId,
    memory::{
        block::{Zone, zone_of},
        peak_budget,
        stats::ByPool,
    },
    observe::{self, BlockInfo},
    runtime::{
        Runtime,
        device::Device,
        names::{self, Subject},
    },
    stream::{self, capture_status::may_capture},
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

/// A live block of a backend.
#[derive(Debug)]
pub(super) struct Block {
    pub owner: Owner,
    /// The stream that the block was allocated for.
    pub own: StreamUse,
    pub size: u64,
    pub requested: u64,
    /// The streams that were recorded for the block.
    pub uses: Vec<StreamUse>,
    /// The name that the block had when it was removed to be freed.
    pub name: Option<Arc<str>>,
    /// The stacks of the allocation and of the free, if memory debugging is on.
    pub stacks: [StackId; 2],
}

impl Block {
    /// Returns the block in the form that the sanitizer expects.
    pub fn block_info(&self, address: u64) -> BlockInfo {
        let StreamUse { stream, device, thread, .. } = self.own;
        let of_graphs = matches!(self.owner, Owner::Async { capture: Some(_) });
        BlockInfo { address, bytes: self.requested, device, stream: stream.handle(), thread, of_graphs }
    }

    /// Returns whether a stream that uses the block is capturing, and therefore cannot be waited for.
    pub fn has_capturing_stream(&self, runtime: &Runtime) -> bool {
        std::iter::once(&self.own).chain(&self.uses).any(|user| {
            let user = stream::of_use(runtime, *user);
            runtime.in_stream(user, |driver, raw| Ok(may_capture(driver, raw))).unwrap_or(true)
        })
    }
}

static BLOCKS: Mutex<BTreeMap<u64, Block>> = Mutex::new(BTreeMap::new());

/// Inserts an allocated block.
pub(super) fn insert(address: u64, block: Block, device: &Device) {
    count(device, &block, ByPool::add);
    BLOCKS.lock().insert(address, block);
    peak_budget::count_other_backends(device.memory());
}

/// Updates the statistics of live blocks.
fn count(device: &Device, block: &Block, change: fn(&mut ByPool, Zone, u64)) {
    let zone = zone_of(block.size);
    let stats = &mut *device.memory().others.lock();
    change(&mut stats.allocation, zone, 1);
    change(&mut stats.active, zone, 1);
    change(&mut stats.allocated_bytes, zone, block.size);
    change(&mut stats.active_bytes, zone, block.size);
    change(&mut stats.requested_bytes, zone, block.requested);
}

/// Removes a block that is freed. The caller ends its name.
pub(super) fn remove(address: u64) -> Option<Block> {
    let mut block = BLOCKS.lock().remove(&address)?;
    block.name = names::get(Subject::Memory(address));
    if let Some(runtime) = crate::runtime::usable()
        && let Some(device) = runtime.devices().get(block.own.device as usize)
    {
        count(device, &block, ByPool::sub);
    }
    Some(block)
}

/// Reinserts a block whose free failed, with its name, as if it had not been removed.
pub(super) fn put_back(address: u64, block: Block, device: &Device) {
    if let Some(name) = &block.name {
        names::set(Subject::Memory(address), name);
    }
    if observe::is_on() {
        observe::on_free_failed(address);
    }
    count(device, &block, ByPool::undo_sub);
    BLOCKS.lock().insert(address, block);
    peak_budget::count_other_backends(device.memory());
}

/// Runs `body` with the block that begins at an address.
pub(super) fn with_block<T>(address: u64, body: impl FnOnce(&mut Block) -> T) -> Option<T> {
    BLOCKS.lock().get_mut(&address).map(body)
}

/// Returns the start and the size of the block that contains an address, and the stack of its allocation.
pub(super) fn block_containing(address: u64) -> Option<(u64, u64, StackId)> {
    let blocks = BLOCKS.lock();
    let (start, block) = blocks.range(..=address).next_back()?;
    (address - start < block.size).then_some((*start, block.size, block.stacks[0]))
}

/// Counts memory that a backend allocated from the driver for a block of `size` bytes.
pub(super) fn record_driver_alloc(device: &Device, size: u64, bytes: u64) {
    let mut stats = device.memory().others.lock();
    stats.segment.add(zone_of(size), 1);
    stats.reserved_bytes.add(zone_of(size), bytes);
}

/// Counts memory that was released to the driver.
pub(super) fn record_driver_free(device: &Device, size: u64, bytes: u64) {
    let mut stats = device.memory().others.lock();
    stats.segment.sub(zone_of(size), 1);
    stats.reserved_bytes.sub(zone_of(size), bytes);
    device.memory().released.increment();
    device.memory().release_held(bytes);
}

/// Returns the bytes of a device that backends have reserved, for the allocator's consistency check.
pub fn reserved_bytes(device: &Device) -> u64 {
    device.memory().others.lock().reserved_bytes.all.current
}
