//! Suspends pools (`sleep` in the API): returns their physical memory to the driver but keeps their addresses reserved.
//!
//! A graph writes to the addresses that it had at capture, so these must not be reused, and every block of the pool
//! stays in its state. Only the memory behind the addresses is released, and its contents are lost. Resuming creates
//! memory of the same sizes and maps it at the same addresses.

use super::{
    arena::Arena,
    cache,
    device_memory::Method,
    handles::{self, Handle},
    history::Action,
    ipc::exports,
    mapped::{Backing, Mapped},
    peak_budget,
    pool::{self, PoolId},
    space::Space,
    stream_events,
};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, Physical},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
    stream::capture_lock,
};
use parking_lot::{Mutex, MutexGuard};

/// Held while a pool is suspended, resumed or restored: only these operations hold the growth locks of several arenas at
/// once.
static CHANGING: Mutex<()> = Mutex::new(());

/// Prevents other threads from suspending, resuming and restoring pools.
pub(super) fn lock_changes() -> MutexGuard<'static, ()> {
    CHANGING.lock()
}

/// A suspended mapping of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SuspendedMapping {
    address: u64,
    bytes: u64,
}

impl Space {
    /// Returns every handle with its address. Returns `None` if there are segments.
    pub(super) fn mapped_handles(&self) -> Option<Vec<(SuspendedMapping, Physical)>> {
        let mut handles = Vec::new();
        for (address, mapped) in &self.mapped {
            match mapped.backing {
                Backing::Handle(physical) => {
                    handles.push((SuspendedMapping { address: *address, bytes: mapped.bytes }, physical));
                }
                Backing::Segment(_) | Backing::External => return None,
                Backing::Moved | Backing::Suspended => {}
            }
        }
        Some(handles)
    }

    /// Returns the suspended mappings.
    pub(super) fn suspended_mappings(&self) -> Vec<SuspendedMapping> {
        let suspended = self.mapped.iter().filter(|(_, mapped)| mapped.backing == Backing::Suspended);
        suspended.map(|(address, mapped)| SuspendedMapping { address: *address, bytes: mapped.bytes }).collect()
    }

    /// Sets the memory behind an address.
    pub(super) fn set_backing(&mut self, mapping: SuspendedMapping, backing: Backing) {
        self.mapped.insert(mapping.address, Mapped { bytes: mapping.bytes, backing });
        let region = self.regions.iter().find(|region| {
            region.address <= mapping.address && mapping.address + mapping.bytes <= region.address + region.bytes
        });
        if let Some(zone) = region.map(|region| region.zone) {
            match backing {
                Backing::Suspended => {
                    self.counters.unmap(zone, mapping.bytes);
                    self.on_segment(Action::SegmentUnmap, mapping.address, mapping.bytes);
                }
                _ => {
                    self.counters.map(zone, mapping.bytes);
                    self.on_segment(Action::SegmentMap, mapping.address, mapping.bytes);
                }
            }
        }
    }

    /// Turns suspended mappings in free blocks into holes, because they will never be resumed.
    pub(super) fn drop_suspended_state(&mut self) {
        for handle in self.reclaimable_handles_where(|backing| backing == Backing::Suspended) {
            if let Some(block) = self.detach_block(&handle) {
                self.mark_unmapped(block, handle.address);
            }
        }
    }
}

/// Releases the physical memory of a pool on every device. Waits for the devices. Memory that the driver fails to
/// release stays mapped until the next attempt. The caller delivers the events to trackers after it released its locks.
pub fn sleep(runtime: &Runtime, id: PoolId) -> Result<()> {
    let _changing = lock_changes();
    let devices = devices(runtime, id);
    for (device, arenas) in &devices {
        check_can_suspend(runtime, device, arenas, id)?;
    }
    for (device, _) in &devices {
        capture_lock::synchronize_device(runtime, device)?;
    }
    let mut outcome = Ok(());
    let mut any = pool::is_suspended(id);
    for (device, arenas) in &devices {
        let device_outcome = device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                arenas.iter().try_for_each(|arena| suspend_arena(runtime, device, arena, &mut any))
            })?
        });
        outcome = outcome.and(device_outcome);
    }
    // Even after a failure some memory is gone, so the pool's graphs must not run before the pool is resumed.
    if any || outcome.is_ok() {
        pool::set_suspended(id, true);
    }
    outcome
}

fn devices(runtime: &Runtime, id: PoolId) -> Vec<(&Device, Vec<&'static Arena>)> {
    let devices = runtime.devices().iter().map(|device| (device, device.memory().arenas_of(id)));
    devices.filter(|(_, arenas)| !arenas.is_empty()).collect()
}

fn check_can_suspend(runtime: &Runtime, device: &Device, arenas: &[&'static Arena], id: PoolId) -> Result<()> {
    if device.memory().routes.leads_to(id) {
        return Err(Error::new(
            Status::GRAPH_MEMORY_IN_USE,
            format!("cannot put pool {id} to sleep: requests on device {} are still routed to it", device.ordinal),
        ));
    }
    let live: u64 = arenas.iter().map(|arena| arena.lock().space.counters.live()).sum();
    if live > 0 && pool::is_used_outside_captures(id) {
        return Err(Error::new(
            Status::GRAPH_MEMORY_IN_USE,
            format!("cannot put pool {id} to sleep: {} of it are allocated, possibly outside of captures", Bytes(live)),
        ));
    }
    for arena in arenas {
        check_not_exported(device, arena, id)?;
        handles_of(arena)?;
    }
    if device.memory().method(device, &runtime.driver)? == Method::Segments {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "cannot put memory to sleep with expandable_segments:False: it has fixed addresses",
        ));
    }
    Ok(())
}

fn check_not_exported(device: &Device, arena: &Arena, id: PoolId) -> Result<()> {
    if exports::has_exports(arena.number) {
        return Err(Error::new(
            Status::GRAPH_MEMORY_IN_USE,
            format!("cannot put pool {id} to sleep: other processes hold memory of it on device {}", device.ordinal),
        ));
    }
    Ok(())
}

/// Returns every handle of an arena. Fails if the arena has other memory, which would not be released.
fn handles_of(arena: &Arena) -> Result<Vec<(SuspendedMapping, Physical)>> {
    arena.lock().space.mapped_handles().ok_or_else(|| {
        let what = "cannot put memory to sleep that the program's allocator or the driver allocated with its addresses";
        Error::new(Status::NOT_SUPPORTED, what)
    })
}

fn suspend_arena(runtime: &Runtime, device: &Device, arena: &'static Arena, any: &mut bool) -> Result<()> {
    let _growing = arena.growth.lock();
    check_not_exported(device, arena, arena.key().pool)?;
    stream_events::process_events(runtime, device, arena, true);
    for (mapping, physical) in handles_of(arena)? {
        let unmapped = runtime.driver.memory_unmap(mapping.address, mapping.bytes);
        unmapped.context(|| format!("unmapping {} to put a pool to sleep", Bytes(mapping.bytes)))?;
        *any = true;
        arena.lock().space.set_backing(mapping, Backing::Suspended);
        if retry(|| runtime.driver.memory_release(physical)) {
            device.memory().released.increment();
            device.memory().release_held(mapping.bytes);
        }
    }
    Ok(())
}

/// Restores the physical memory of a pool on every device. The pool stays suspended if there is not enough memory. The
/// caller delivers the events to trackers as after [`sleep`].
pub fn wake(runtime: &'static Runtime, id: PoolId) -> Result<()> {
    let _changing = lock_changes();
    for (device, arenas) in devices(runtime, id) {
        device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let _growing: Vec<_> = arenas.iter().map(|arena| arena.growth.lock()).collect();
                resume_device(runtime, device, &arenas, id)
            })?
        })?;
    }
    pool::set_suspended(id, false);
    Ok(())
}

fn resume_device(runtime: &'static Runtime, device: &Device, arenas: &[&'static Arena], id: PoolId) -> Result<()> {
    let driver = &runtime.driver;
    let mappings: Vec<(&'static Arena, SuspendedMapping)> = arenas
        .iter()
        .flat_map(|arena| {
            let mappings = arena.lock().space.suspended_mappings();
            mappings.into_iter().map(|mapping| (*arena, mapping))
        })
        .collect();
    let sizes: Vec<u64> = mappings.iter().map(|(_, mapping)| mapping.bytes).collect();
    let mut created = create(device, driver, &sizes)?;
    if created.is_none() {
        // Releasing cached memory may make enough room. A failure to release is not an error here.
        let _ = cache::empty(runtime);
        created = create(device, driver, &sizes)?;
    }
    let Some(created) = created else {
        let (free, _) = device.memory_info(driver).unwrap_or((0, 0));
        let needed = sizes.iter().sum::<u64>();
        return Err(Error::new(
            Status::OUT_OF_MEMORY,
            format!(
                "waking pool {id}: it needs {}, and device {} has {} free; it stays asleep",
                Bytes(needed),
                device.ordinal,
                Bytes(free)
            ),
        ));
    };
    for (index, (_, mapping)) in mappings.iter().enumerate() {
        if let Err(error) = handles::map(device, driver, mapping.address, &created[index..=index]) {
            for (_, mapped) in &mappings[..index] {
                retry(|| driver.memory_unmap(mapped.address, mapped.bytes));
            }
            handles::undo(device, driver, created);
            return Err(error.context(format_args!("waking pool {id}")));
        }
    }
    for ((arena, mapping), (physical, _)) in mappings.into_iter().zip(created) {
        arena.lock().space.set_backing(mapping, Backing::Handle(physical));
    }
    for arena in arenas {
        peak_budget::ensure_budget(device.memory(), arena);
    }
    Ok(())
}

/// Creates handles of these sizes: all of them, or none if memory does not suffice.
fn create(device: &Device, driver: &Driver, sizes: &[u64]) -> Result<Option<Vec<Handle>>> {
    let total = device.memory().total(device, driver)?;
    let limit = device.memory().limit(total).unwrap_or(total);
    let mut created = Vec::with_capacity(sizes.len());
    for size in sizes {
        match handles::create(device, driver, *size, limit) {
            Ok(Some(handle)) => created.push(handle),
            other => {
                handles::undo(device, driver, created);
                return other.map(|_| None);
            }
        }
    }
    Ok(Some(created))
}
