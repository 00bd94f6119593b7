//! Allocators of the program's own, as torch.cuda.memory.CUDAPluggableAllocator has them: two functions and some hooks.
//!
//! plinth keeps the figures and the errors: a NULL is an out-of-memory error here, after the program's callbacks and the
//! allocator's own reset were tried.

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

/// What a handle leads to.
#[derive(Default)]
struct Slot(Mutex<Option<Arc<Plugin>>>);

static ALLOCATORS: HandleTable<Slot> = HandleTable::new(Kind::Allocator);

/// Gives an allocator a handle.
pub fn create(plugin: Plugin) -> Result<u64> {
    let plugin = Arc::new(plugin);
    ALLOCATORS.insert(|slot| *slot.0.lock() = Some(plugin))
}

/// The allocator of a handle.
pub fn allocator_of(handle: u64) -> Result<Arc<Plugin>> {
    let found = ALLOCATORS.get(handle)?.0.lock().clone();
    found.ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the allocator was destroyed"))
}

/// Takes the handle away. What the allocator gave out is still freed by it, and a pool or a process that uses it goes on
/// to do so.
pub fn destroy(handle: u64) -> Result<()> {
    if handle == 0 {
        return Ok(());
    }
    ALLOCATORS.remove(handle, |slot| drop(slot.0.lock().take()))
}

/// Gives an allocator other hooks.
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
