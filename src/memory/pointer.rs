//! Attributes of a pointer, from the driver and from the library's allocators.

use super::{
    backend, caching,
    ipc::import,
    pinned::{self, host_block_at, is_host_cached},
    pool::PoolId,
};
use crate::{
    base::{
        stack::{self, StackId},
        units::Bytes,
    },
    driver::{MemoryKind, PointerDetails},
    error::{Context, Error, Result},
    runtime::{
        self, Runtime,
        names::{self, Subject},
    },
    status::Status,
};
use std::sync::Arc;

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
    /// The stack of the block's allocation, if it was recorded.
    pub stack: StackId,
}

impl Attributes {
    /// Returns the attributes of memory that no allocator of the library owns.
    fn unowned(details: PointerDetails) -> Attributes {
        Attributes { details, owner: Owner::Unknown, block: None, pool: PoolId::DEFAULT, stack: StackId::NONE }
    }

    fn with_block(self, block: Option<(u64, u64, StackId)>) -> Attributes {
        let stack = block.map_or(StackId::NONE, |block| block.2);
        Attributes { block: block.map(|(start, bytes, _)| (start, bytes)), stack, ..self }
    }
}

/// Returns the attributes of a pointer. Any address is valid.
pub fn attributes(address: u64) -> Result<Attributes> {
    let runtime = runtime::ready()?;
    let details = details(runtime, address).context(|| format!("querying the attributes of pointer {address:#x}"))?;
    let unowned = Attributes::unowned(details);
    Ok(match details.info.kind {
        MemoryKind::Unregistered => unowned,
        MemoryKind::Pinned if is_host_cached(address) => {
            Attributes { owner: Owner::HostCache, block: host_block_at(address), ..unowned }
        }
        _ => in_cache(runtime, address, unowned).unwrap_or_else(|| {
            names::check_memory(details.start, details.buffer);
            Attributes { owner: Owner::Program, block: Some((details.start, details.bytes as u64)), ..unowned }
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

/// Returns what the driver knows about memory that the program or another library allocated from it; `None` for other
/// memory. `was_own` says whether the address was that of a block; then there is no answer if the backend keeps freed memory
/// where nothing distinguishes it from the program's.
pub fn foreign(address: u64, was_own: bool) -> Option<PointerDetails> {
    if was_own && backend::may_keep_freed_memory() {
        return None;
    }
    let found = attributes(address).ok()?;
    (found.owner == Owner::Program).then_some(found.details)
}

/// Returns the attributes of memory of the caching allocator.
fn in_cache(runtime: &Runtime, address: u64, unowned: Attributes) -> Option<Attributes> {
    for device in runtime.devices() {
        for arena in device.memory().arenas() {
            let inner = arena.lock();
            if inner.space.has(address) {
                let block = inner.space.live_block_containing(address).map(|id| {
                    let block = &inner.space.blocks[id];
                    (block.address, block.size, block.stack)
                });
                let found = Attributes { owner: Owner::Cache, pool: inner.key.pool, ..unowned };
                return Some(found.with_block(block));
            }
        }
    }
    let block = backend::around(address)?;
    Some(Attributes { owner: Owner::Cache, ..unowned }.with_block(Some(block)))
}

/// Returns the address of the first byte of the live block that contains an address, and the driver's number of its
/// allocation if the library does not see it freed, otherwise 0.
fn start_of_block(address: u64) -> Result<(u64, u64)> {
    let found = attributes(address)?;
    let number = if found.owner == Owner::Program { found.details.buffer } else { 0 };
    let block = found.block.filter(|_| !import::is_imported(address));
    block.map(|(start, _)| (start, number)).ok_or_else(|| {
        let what = format!("{address:#x} is in no live block of this process: it is {}", describe(address));
        Error::new(Status::INVALID_POINTER, what)
    })
}

/// Names the block that contains an address, until the block is freed; an empty name removes it.
pub fn set_name(address: u64, name: &str) -> Result<()> {
    let (start, allocation) = start_of_block(address)?;
    if is_host_cached(start) {
        pinned::observe_free(start)?;
    } else {
        // A free of other memory is observed anyway.
        caching::observe_free(start);
    }
    names::set(Subject::Memory(start), name);
    names::bind_memory(start, allocation);
    Ok(())
}

/// Returns the name of the block that contains an address; empty if it has none.
pub fn name(address: u64) -> Result<Arc<str>> {
    Ok(names::get(Subject::Memory(start_of_block(address)?.0)).unwrap_or_else(|| "".into()))
}

/// Returns the name of the memory that begins at an address in quotation marks, after a blank; empty if it has none.
fn quoted_name(start: u64) -> String {
    names::get(Subject::Memory(start)).map_or(String::new(), |name| format!(" \"{name}\""))
}

/// Says where in the program a block was allocated, after a semicolon; empty if that is unknown.
fn allocation_place(stack: StackId) -> String {
    stack::describe_place(stack).map_or(String::new(), |place| format!("; the block was allocated in {place}"))
}

/// Describes a range of bytes that runs past the end of the block in which it begins; `None` if it does not. Any range
/// is valid; no lock may be held.
#[cold]
pub fn describe_overrun(address: u64, bytes: u64) -> Option<String> {
    let Attributes { block: Some((start, size)), stack, .. } = attributes(address).ok()? else { return None };
    let past = address.checked_add(bytes)?.checked_sub(start + size).filter(|past| *past > 0)?;
    Some(format!(
        "{} from byte {} of a block{} of {} at {start:#x}, of which {} lie past its end{}",
        Bytes(bytes),
        address - start,
        quoted_name(start),
        Bytes(size),
        Bytes(past),
        allocation_place(stack)
    ))
}

/// Describes the memory at an address for a message about a wrong pointer: "byte 16 of a live block of 4.00 KiB ...".
/// Any address is valid; no lock may be held.
#[cold]
pub fn describe(address: u64) -> String {
    let Some(runtime) = runtime::usable().filter(|_| runtime::is_initialized()) else {
        return "no memory of this process".into();
    };
    let in_block = |block: Option<(u64, u64)>, what: &str, call: &str| match block {
        Some((start, bytes)) if start == address => {
            format!("a live block{} of {} of {what} ({call})", quoted_name(start), Bytes(bytes))
        }
        Some((start, bytes)) => {
            let (offset, name) = (address - start, quoted_name(start));
            format!("byte {offset} of a live block{name} of {} at {start:#x} of {what} ({call})", Bytes(bytes))
        }
        None => format!("free memory of {what}: its block was freed already"),
    };
    if is_host_cached(address) {
        return in_block(host_block_at(address), "the allocator of pinned memory", "plinth_host_alloc");
    }
    if import::is_imported(address) {
        return "memory of another process, which plinth_ipc_close closes".into();
    }
    if let Some(found) = in_cache(runtime, address, Attributes::unowned(PointerDetails::UNKNOWN)) {
        let memory = in_block(found.block, "the caching allocator", "plinth_caching_allocator_alloc");
        return memory + &allocation_place(found.stack);
    }
    let Ok(details) = details(runtime, address) else { return "memory that the driver cannot describe".into() };
    let (what, call) = match details.info.kind {
        MemoryKind::Unregistered => {
            return "host memory that is not pinned, or an address that was freed or never allocated".into();
        }
        MemoryKind::Pinned => ("pinned memory of the driver", "plinth_pinned_malloc, plinth_host_register"),
        MemoryKind::Device => ("device memory of the driver", "plinth_device_malloc, cudaMalloc"),
        MemoryKind::Managed => ("managed memory of the driver", "plinth_managed_malloc"),
    };
    names::check_memory(details.start, details.buffer);
    in_block(Some((details.start, details.bytes as u64)), what, call)
}
