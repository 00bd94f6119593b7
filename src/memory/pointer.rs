//! Attributes of a pointer, from the driver and from the library's allocators.

use super::{
    backend,
    pinned::{host_block_at, is_host_cached},
    pool::PoolId,
};
use crate::{
    driver::{MemoryKind, PointerDetails},
    error::{Context, Result},
    runtime::{self, Runtime},
};

/// The owner of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Owner {
    /// None: the driver does not know the address.
    #[default]
    Unknown,
    /// The program or another library.
    Program,
    /// The caching allocator.
    Cache,
    /// The allocator of pinned memory.
    HostCache,
}

/// The attributes of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Kind, device, addresses, and the range that the driver knows.
    pub details: PointerDetails,
    /// The owner of the allocation.
    pub owner: Owner,
    /// The start and the size of the live block that contains the address. If no allocator of the library owns the
    /// memory, the driver's range. `None` for an address in free memory of an allocator.
    pub block: Option<(u64, u64)>,
    /// The pool of the memory.
    pub pool: PoolId,
}

/// Returns the attributes of a pointer. Any address is valid.
pub fn attributes(address: u64) -> Result<Attributes> {
    let runtime = runtime::ready()?;
    let details = details(runtime, address).context(|| format!("querying the attributes of pointer {address:#x}"))?;
    let unowned = Attributes { details, owner: Owner::Unknown, block: None, pool: PoolId::DEFAULT };
    Ok(match details.info.kind {
        MemoryKind::Unregistered => unowned,
        MemoryKind::Pinned if is_host_cached(address) => {
            Attributes { owner: Owner::HostCache, block: host_block_at(address), ..unowned }
        }
        _ => in_cache(runtime, address, unowned).unwrap_or(Attributes {
            owner: Owner::Program,
            block: Some((details.start, details.bytes as u64)),
            ..unowned
        }),
    })
}

/// Returns the driver's information about an address. The driver reports the address at which the current context's
/// device accesses the memory, and none if it has no access; then this function asks in the context of the memory's own
/// device.
fn details(runtime: &Runtime, address: u64) -> Result<PointerDetails> {
    let details = runtime.in_any_context(|driver| Ok(driver.pointer_details(address)?))?;
    if details.info.kind != MemoryKind::Device || details.device != 0 {
        return Ok(details);
    }
    match usize::try_from(details.info.device).ok().and_then(|ordinal| runtime.devices().get(ordinal)) {
        // The question creates no context.
        Some(home) if home.has_context(&runtime.driver)? => {
            home.with_context(&runtime.driver, |driver| Ok(driver.pointer_details(address)?))
        }
        _ => Ok(details),
    }
}

/// Returns the attributes of memory of the caching allocator.
fn in_cache(runtime: &Runtime, address: u64, unowned: Attributes) -> Option<Attributes> {
    for device in runtime.devices() {
        for arena in device.memory().arenas() {
            let inner = arena.lock();
            if inner.space.has(address) {
                let block = inner.space.live_block_containing(address).map(|id| {
                    let block = &inner.space.blocks[id];
                    (block.address, block.size)
                });
                return Some(Attributes { owner: Owner::Cache, block, pool: inner.key.pool, ..unowned });
            }
        }
    }
    let block = backend::around(address)?;
    Some(Attributes { owner: Owner::Cache, block: Some(block), ..unowned })
}
