//! What is known of a pointer: by the driver, and by the allocators here.

use super::{PoolId, backend, host_block_at, is_host_cached};
use crate::{
    driver::{MemoryKind, PointerDetails},
    error::{Context, Result},
    runtime::{self, Runtime},
};

/// Who has the memory from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Owner {
    /// Nobody: the driver does not know it.
    #[default]
    Nobody,
    /// The program or another library.
    Program,
    /// The caching allocator.
    Cache,
    /// The allocator of pinned memory.
    HostCache,
}

/// All that is known of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Kind, device, addresses, and the range that the driver knows.
    pub details: PointerDetails,
    /// Who has the memory from the driver.
    pub owner: Owner,
    /// The block in somebody's hands that the address lies in: where it begins, and its bytes. Without an allocator of the
    /// library's, the driver's range; an address in free memory of one of them is in no block.
    pub block: Option<(u64, u64)>,
    /// The pool that the memory belongs to.
    pub pool: PoolId,
}

/// All that is known of a pointer. Any number may be asked about.
pub fn attributes(address: u64) -> Result<Attributes> {
    let runtime = runtime::ready()?;
    let details = details(runtime, address).context(|| format!("asking about the pointer {address:#x}"))?;
    let plain = Attributes { details, owner: Owner::Nobody, block: None, pool: PoolId::DEFAULT };
    Ok(match details.info.kind {
        MemoryKind::Unregistered => plain,
        MemoryKind::Pinned if is_host_cached(address) => {
            Attributes { owner: Owner::HostCache, block: host_block_at(address), ..plain }
        }
        _ => in_caches(runtime, address, plain).unwrap_or(Attributes {
            owner: Owner::Program,
            block: Some((details.start, details.bytes as u64)),
            ..plain
        }),
    })
}

/// What the driver knows of an address. It gives the address by which the current context's device reaches the memory, and none
/// where that device has no access; then the memory's own device is asked.
fn details(runtime: &Runtime, address: u64) -> Result<PointerDetails> {
    let details = runtime.in_any_context(|driver| Ok(driver.pointer_details(address)?))?;
    if details.info.kind != MemoryKind::Device || details.device != 0 {
        return Ok(details);
    }
    match usize::try_from(details.info.device).ok().and_then(|ordinal| runtime.devices().get(ordinal)) {
        Some(home) => home.with_context(&runtime.driver, |driver| Ok(driver.pointer_details(address)?)),
        None => Ok(details),
    }
}

/// The same for memory of the caching allocator.
fn in_caches(runtime: &Runtime, address: u64, plain: Attributes) -> Option<Attributes> {
    for device in runtime.devices() {
        for arena in device.memory.arenas() {
            let inner = arena.lock();
            if inner.space.has(address) {
                let block = inner.space.live_around(address).map(|id| {
                    let block = &inner.space.blocks[id];
                    (block.address, block.size)
                });
                return Some(Attributes { owner: Owner::Cache, block, pool: inner.key.pool, ..plain });
            }
        }
    }
    let block = backend::around(address)?;
    Some(Attributes { owner: Owner::Cache, block: Some(block), ..plain })
}
