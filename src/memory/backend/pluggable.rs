//! Allocators supplied by the program, as `torch.cuda.memory.CUDAPluggableAllocator`: two functions and optional
//! hooks.
//!
//! plinth maintains the statistics and the errors: if the allocator returns NULL after the program's callbacks and its
//! own reset hook were tried, that is an out-of-memory error.

use super::{BackendRequest, Block, Freed, Owner, plugin};
use crate::{
    base::handle::{Kind, ReferenceTable},
    driver::plugin::Plugin,
    error::Result,
    runtime::{device::Device, thread::call_program},
};
use std::sync::Arc;

static ALLOCATORS: ReferenceTable<Arc<Plugin>> = ReferenceTable::new(Kind::Allocator);

/// Registers an allocator and returns its handle.
pub fn create(plugin: Plugin) -> Result<u64> {
    ALLOCATORS.insert(Arc::new(plugin))
}

/// Returns the allocator of a handle.
pub fn allocator_of(handle: u64) -> Result<Arc<Plugin>> {
    ALLOCATORS.get(handle)
}

/// Destroys a handle. The allocator still frees its blocks, and a pool or a process that uses it continues to use it.
pub fn destroy(handle: u64) -> Result<()> {
    if handle == 0 {
        return Ok(());
    }
    ALLOCATORS.remove(handle).map(drop)
}

/// Changes the hooks of an allocator.
pub fn set_hooks(handle: u64, set: impl FnOnce(&Plugin)) -> Result<()> {
    set(&*allocator_of(handle)?);
    Ok(())
}

pub(super) fn alloc(place: &BackendRequest) -> Option<(u64, Owner)> {
    let plugin = plugin()?.clone();
    let address = call_program(|| plugin.alloc(place.request.requested, place.device.ordinal, place.stream))?;
    Some((address, Owner::Plugin(plugin)))
}

pub(super) fn free(device: &Device, address: u64, block: Block) -> Freed {
    if let Owner::Plugin(plugin) = &block.owner {
        call_program(|| plugin.free(address, block.requested, device.ordinal, block.own.stream));
    }
    Ok(Ok(()))
}
