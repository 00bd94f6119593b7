//! Registrations: the promise that a block's physical memory stays where it is, for what uses it by other means than the
//! streams of this process: network adapters, other drivers, libraries that keep a table of buffers.
//!
//! A block keeps its memory while it is live, so a registration costs nothing until then. It matters when the block is
//! freed, which waits until the last registration has ended, and when its pool is put to sleep, which is refused or ends
//! the registration first.

pub mod registered;
pub mod uses;

use super::{
    arena::Arena,
    block::BlockId,
    device_memory::device,
    located_block::not_allocated,
    mapped::{Backing, Mapped},
    shareable, stream_events,
};
use crate::{
    base::{
        handle::{Kind, ReferenceTable},
        log,
        units::Bytes,
    },
    driver::{FABRIC_HANDLE_BYTES, page_size},
    error::{Context, Error, Result},
    runtime::{self, Runtime, thread::call_program},
    status::Status,
};
use parking_lot::Mutex;
use std::{os::fd::OwnedFd, sync::Arc};

/// Called before the memory of a registration is put to sleep, without any lock. After it, nothing uses the memory.
pub type ReleaseCallback = Box<dyn Fn() + Send + Sync>;

/// A registration of a part of a block.
pub struct Registration {
    arena: &'static Arena,
    block: BlockId,
    address: u64,
    bytes: u64,
    name: String,
    /// The mappings under the registered bytes, with their start addresses. They stay as they are while it holds the memory.
    mapped: Vec<(u64, Mapped)>,
    release: Option<ReleaseCallback>,
    /// Held while the memory is exported, so that it is not released meanwhile.
    is_released: Mutex<bool>,
}

/// What a registration covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// The first registered address.
    pub address: u64,
    /// The number of registered bytes.
    pub bytes: u64,
    /// The ordinal of the memory's device.
    pub device: u32,
    /// The number of physical allocations under it.
    pub parts: u32,
    /// Whether it still holds the memory.
    pub is_released: bool,
}

/// One physical allocation under a registration.
pub struct Part {
    /// The address at which it is mapped.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// What another process imports it by.
    pub handle: PartHandle,
}

/// What another process imports physical memory by.
pub enum PartHandle {
    /// A file descriptor.
    FileDescriptor(OwnedFd),
    /// A fabric handle.
    Fabric([u8; FABRIC_HANDLE_BYTES]),
}

/// A DMA-BUF of a range that contains the registered bytes.
pub struct DmaBuf {
    /// The descriptor.
    pub descriptor: OwnedFd,
    /// The offset of the first registered byte.
    pub offset: u64,
    /// The size of the DMA-BUF in bytes.
    pub bytes: u64,
}

static REGISTRATIONS: ReferenceTable<Arc<Registration>> = ReferenceTable::new(Kind::MemoryRegistration);

/// Registers `bytes` bytes from an address on, all of them in one live block, and returns the handle of the registration.
pub fn register(address: u64, bytes: u64, name: &str, release: Option<ReleaseCallback>) -> Result<u64> {
    let runtime = runtime::ready()?;
    let mut found = shareable::find(runtime, address)?;
    let end = found.address + found.requested;
    if bytes == 0 || address.checked_add(bytes).is_none_or(|registered| registered > end) {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!(
                "cannot register {} from {address:#x} on: the block around it has {} from there on",
                Bytes(bytes),
                Bytes(end.saturating_sub(address))
            ),
        ));
    }
    // As for an export, the pool cannot be suspended meanwhile.
    let _growing = found.arena.growth.lock();
    found.read_mapped().ok_or_else(|| not_allocated(address))?;
    if found.mapped.iter().any(|(_, mapped)| mapped.backing == Backing::Suspended) {
        return Err(Error::new(Status::GRAPH_ASLEEP, "the memory to register is asleep"));
    }
    let (arena, block) = (found.arena, found.block);
    let is_live = found.is_live();
    let mut mapped = found.mapped;
    mapped.retain(|(start, mapped)| *start < address + bytes && start + mapped.bytes > address);
    let handle = REGISTRATIONS.insert(Arc::new(Registration {
        arena,
        block,
        address,
        bytes,
        name: name.to_owned(),
        mapped,
        release,
        is_released: Mutex::new(false),
    }))?;
    registered::add(arena.number, block, handle);
    // Another thread may have freed the block before it could see the registration.
    if !is_live || arena.lock().space.live(block, found.address).is_none() {
        unregister(handle)?;
        return Err(not_allocated(address));
    }
    Ok(handle)
}

/// Ends a registration. A block that was freed meanwhile becomes free.
pub fn unregister(handle: u64) -> Result<()> {
    if handle == 0 {
        return Ok(());
    }
    let Some(registration) = REGISTRATIONS.remove(handle)? else { return Ok(()) };
    // An export that found the handle is completed first.
    drop(registration.is_released.lock());
    registration.let_go(handle);
    Ok(())
}

/// A registration of the library's own, which ends when it is dropped.
#[derive(Debug)]
pub struct OwnedRegistration(u64);

impl OwnedRegistration {
    /// Registers `bytes` bytes from an address on, as [`register`] does.
    pub fn new(address: u64, bytes: u64, name: &str) -> Result<OwnedRegistration> {
        register(address, bytes, name, None).map(OwnedRegistration)
    }

    /// Returns the handle.
    pub fn handle(&self) -> u64 {
        self.0
    }

    /// Returns the handle, whose owner now ends the registration.
    pub fn keep(mut self) -> u64 {
        std::mem::take(&mut self.0)
    }
}

impl Drop for OwnedRegistration {
    fn drop(&mut self) {
        // In a forked child a lock may be held by a thread that does not exist there.
        if runtime::usable().is_some() {
            log::ignore(unregister(self.0), "ending a registration");
        }
    }
}

/// Returns what a registration covers.
pub fn info(handle: u64) -> Result<Info> {
    let registration = REGISTRATIONS.get(handle)?;
    let is_released = *registration.is_released.lock();
    let Registration { arena, address, bytes, ref mapped, .. } = *registration;
    Ok(Info { address, bytes, device: arena.device, parts: mapped.len() as u32, is_released })
}

/// Returns the address and the size of each of the physical allocations under a registration.
pub fn parts(handle: u64) -> Result<Vec<(u64, u64)>> {
    Ok(REGISTRATIONS.get(handle)?.mapped.iter().map(|(address, mapped)| (*address, mapped.bytes)).collect())
}

/// Exports the registered bytes as a DMA-BUF, whose ends are multiples of the host's page size.
pub fn dma_buf(handle: u64) -> Result<DmaBuf> {
    let registration = REGISTRATIONS.get(handle)?;
    registration.with_memory(handle, |runtime| {
        let page = page_size();
        let start = registration.address / page * page;
        let bytes = (registration.address + registration.bytes).next_multiple_of(page) - start;
        let device = device(runtime, registration.arena.device)?;
        uses::check(registration.uses(runtime)?.dma_buf, "a DMA-BUF")?;
        let descriptor = device
            .with_context(&runtime.driver, |driver| {
                driver.with_relaxed_capture(|| Ok(driver.memory_dma_buf(start, bytes)?))?
            })
            .context(|| format!("exporting {} as a DMA-BUF", registration.describe()))?;
        Ok(DmaBuf { descriptor, offset: registration.address - start, bytes })
    })
}

/// Exports one of the physical allocations under a registration, as a fabric handle or as a file descriptor.
pub fn part(handle: u64, index: u32, fabric: bool) -> Result<Part> {
    let registration = REGISTRATIONS.get(handle)?;
    registration.with_memory(handle, |runtime| {
        let count = registration.mapped.len();
        let Some((address, mapped)) = registration.mapped.get(index as usize) else {
            let what = format!("{} has {count} parts, and no part {index}", registration.describe());
            return Err(Error::new(Status::INVALID_VALUE, what));
        };
        let uses = registration.uses(runtime)?;
        if fabric {
            uses::check(uses.fabric, "a fabric handle")?;
        } else {
            uses::check(uses.file_descriptor(), "a file descriptor")?;
        }
        let Backing::Handle(physical) = mapped.backing else { return Err(not_allocated(registration.address)) };
        let device = device(runtime, registration.arena.device)?;
        let exported = device.with_context(&runtime.driver, |driver| {
            Ok(if fabric {
                PartHandle::Fabric(driver.memory_export_fabric(physical)?)
            } else {
                PartHandle::FileDescriptor(driver.memory_export(physical)?)
            })
        });
        let handle = exported.context(|| format!("exporting a part of {}", registration.describe()))?;
        Ok(Part { address: *address, bytes: mapped.bytes, handle })
    })
}

/// Ends the registrations in arenas, so that the memory can be put to sleep: each by its callback. If one has none,
/// nothing changes. The caller holds no lock.
pub fn release_all(arenas: &[&'static Arena]) -> Result<()> {
    let all: Vec<(u64, Arc<Registration>)> = arenas
        .iter()
        .flat_map(|arena| registered::in_arena(arena.number))
        .filter_map(|handle| Some((handle, REGISTRATIONS.get(handle).ok()?)))
        .collect();
    if let Some((_, registration)) = all.iter().find(|(_, registration)| registration.release.is_none()) {
        return Err(Error::new(
            Status::GRAPH_MEMORY_IN_USE,
            format!("cannot release {}: it has no callback that ends the use of the memory", registration.describe()),
        ));
    }
    for (handle, registration) in all {
        // The callback of another one may have destroyed it.
        if REGISTRATIONS.get(handle).is_err() {
            continue;
        }
        if let Some(release) = &registration.release {
            call_program(release);
        }
        *registration.is_released.lock() = true;
        registration.let_go(handle);
    }
    Ok(())
}

/// Describes a registration in an arena, if there is one.
pub fn describe_one(arena: &Arena) -> Option<String> {
    let handles = registered::in_arena(arena.number);
    let found = handles.into_iter().find_map(|handle| REGISTRATIONS.get(handle).ok())?;
    Some(found.describe())
}

impl Registration {
    fn describe(&self) -> String {
        format!("the registration \"{}\" of {} at {:#x}", self.name, Bytes(self.bytes), self.address)
    }

    /// Calls `body` while the memory is not released, and the registration with this handle not destroyed.
    fn with_memory<T>(&self, handle: u64, body: impl FnOnce(&'static Runtime) -> Result<T>) -> Result<T> {
        let runtime = runtime::ready()?;
        let is_released = self.is_released.lock();
        REGISTRATIONS.get(handle)?;
        if *is_released {
            return Err(Error::new(
                Status::GRAPH_ASLEEP,
                format!("{} was released when the memory was put to sleep; register the memory again", self.describe()),
            ));
        }
        body(runtime)
    }

    fn uses(&self, runtime: &'static Runtime) -> Result<uses::Uses> {
        let device = device(runtime, self.arena.device)?;
        uses::of(device, &runtime.driver, self.arena.lock().memory, &self.mapped)
    }

    /// Stops holding the memory, and frees the block if it was only waiting for that.
    fn let_go(&self, handle: u64) {
        if !registered::remove(self.arena.number, self.block, handle) || self.arena.lock().deferred_frees.is_empty() {
            return;
        }
        let Some(runtime) = runtime::usable() else { return };
        let Ok(device) = device(runtime, self.arena.device) else { return };
        // If the context is unavailable, the next request that needs memory tries again.
        let _ = device.with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| stream_events::process_events(runtime, device, self.arena))?)
        });
    }
}
