//! Allocators supplied by the program, as `torch.cuda.memory.CUDAPluggableAllocator`: two functions and optional
//! hooks.
//!
//! plinth maintains the statistics and the errors: if the allocator returns NULL after the program's callbacks and its
//! own reset hook were tried, that is an out-of-memory error.

use super::{BackendRequest, Block, Owner, plugin};
use crate::{
    base::handle::{HandleTable, Kind},
    driver::plugin::Plugin,
    error::{Error, Result},
    runtime::device::Device,
    status::Status,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// The entry of a handle.
#[derive(Default)]
struct AllocatorSlot(Mutex<Option<Arc<Plugin>>>);

static ALLOCATORS: HandleTable<AllocatorSlot> = HandleTable::new(Kind::Allocator);

/// Registers an allocator and returns its handle.
pub fn create(plugin: Plugin) -> Result<u64> {
    let plugin = Arc::new(plugin);
    ALLOCATORS.insert(|slot| *slot.0.lock() = Some(plugin))
}

/// Returns the allocator of a handle.
pub fn allocator_of(handle: u64) -> Result<Arc<Plugin>> {
    let found = ALLOCATORS.get(handle)?.0.lock().clone();
    found.ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the allocator was destroyed"))
}

/// Destroys a handle. The allocator still frees its blocks, and a pool or a process that uses it continues to use it.
pub fn destroy(handle: u64) -> Result<()> {
    if handle == 0 {
        return Ok(());
    }
    ALLOCATORS.remove(handle, |slot| drop(slot.0.lock().take()))
}

/// Changes the hooks of an allocator.
pub fn set_hooks(handle: u64, set: impl FnOnce(&Plugin)) -> Result<()> {
    set(&*allocator_of(handle)?);
    Ok(())
}

pub(super) fn alloc(place: &BackendRequest) -> Option<(u64, Owner)> {
    let plugin = plugin()?.clone();
    let address = plugin.alloc(place.request.requested, place.device.ordinal, place.stream)?;
    Some((address, Owner::Plugin(plugin)))
}

pub(super) fn free(device: &Device, address: u64, block: Block) -> Result<()> {
    if let Owner::Plugin(plugin) = &block.owner {
        plugin.free(address, block.requested, device.ordinal, block.own.stream);
    }
    Ok(())
}
