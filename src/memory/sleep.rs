//! Pools that sleep: their physical memory goes back to the driver, their addresses stay theirs.
//!
//! A graph writes to the addresses that it was captured with, so those must not become anybody else's, and every block of the
//! pool stays what it is. Only what is behind the addresses goes, and with it the contents. Waking creates memory of the same
//! sizes and maps it where the old memory was.

use super::{
    arena::Arena,
    cache,
    device_memory::Method,
    handles::{self, Handle},
    history::Action,
    ipc,
    mapped::{Backing, Mapped},
    pool::{self, PoolId},
    space::Space,
    stream_events,
};
use crate::{
    base::units::Bytes,
    driver::{Driver, Physical},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
    stream::capture_lock,
};
use parking_lot::Mutex;

/// Held while a pool falls asleep or wakes: the only ones who hold the growth of several arenas at once.
static CHANGING: Mutex<()> = Mutex::new(());

/// A part of an arena whose memory is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dream {
    address: u64,
    bytes: u64,
}

impl Space {
    /// Every handle, with its address. `None` if there is memory that the driver gave with its address.
    pub(super) fn sleepers(&self) -> Option<Vec<(Dream, Physical)>> {
        let mut sleepers = Vec::new();
        for (address, mapped) in &self.mapped {
            match mapped.backing {
                Backing::Handle(physical) => {
                    sleepers.push((Dream { address: *address, bytes: mapped.bytes }, physical));
                }
                Backing::Segment(_) | Backing::Lent => return None,
                Backing::Moved | Backing::Asleep => {}
            }
        }
        Some(sleepers)
    }

    /// The parts whose memory is away.
    pub(super) fn dreams(&self) -> Vec<Dream> {
        let asleep = self.mapped.iter().filter(|(_, mapped)| mapped.backing == Backing::Asleep);
        asleep.map(|(address, mapped)| Dream { address: *address, bytes: mapped.bytes }).collect()
    }

    /// Notes what is behind an address now.
    pub(super) fn change(&mut self, dream: Dream, backing: Backing) {
        self.mapped.insert(dream.address, Mapped { bytes: dream.bytes, backing });
        let region = self.regions.iter().find(|region| {
            region.address <= dream.address && dream.address + dream.bytes <= region.address + region.bytes
        });
        if let Some(zone) = region.map(|region| region.zone) {
            match backing {
                Backing::Asleep => {
                    self.counters.unmap(zone, dream.bytes);
                    self.hear_segment(Action::SegmentUnmap, dream.address, dream.bytes);
                }
                _ => {
                    self.counters.map(zone, dream.bytes);
                    self.hear_segment(Action::SegmentMap, dream.address, dream.bytes);
                }
            }
        }
    }

    /// Makes holes of the parts whose memory is away and that nobody has blocks in: nobody will wake them any more.
    pub(super) fn forget_dreams(&mut self) {
        for spare in self.spares_of(|backing| backing == Backing::Asleep) {
            if let Some(block) = self.take_out(&spare) {
                self.vacate(block, spare.address);
            }
        }
    }
}

/// Gives the physical memory of a pool back, on every device. Waits for the devices. What the driver does not take stays
/// mapped, and goes the next time. The caller delivers to the trackers what happened, when it holds no lock any more.
pub fn sleep(runtime: &Runtime, id: PoolId) -> Result<()> {
    let _changing = CHANGING.lock();
    // The driver would refuse to wait, too, but not without making the capture invalid, which may be another thread's.
    if capture_lock::is_any_capturing() {
        return Err(Error::new(Status::CAPTURE_FORBIDS, "memory cannot sleep while a stream captures"));
    }
    let homes = homes(runtime, id);
    for (device, arenas) in &homes {
        check_may_sleep(runtime, device, arenas, id)?;
    }
    for (device, _) in &homes {
        device
            .with_context(&runtime.driver, |driver| Ok(driver.context_synchronize()?))
            .context(|| format!("waiting for the work on device {} before its memory goes", device.ordinal))?;
    }
    let mut outcome = Ok(());
    let mut any = pool::is_asleep(id);
    for (device, arenas) in &homes {
        let slept = device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                arenas.iter().try_for_each(|arena| sleep_arena(runtime, device, arena, &mut any))
            })?
        });
        outcome = outcome.and(slept);
    }
    // Whatever failed, what went is gone: the pool's graphs cannot run any more until they are woken.
    if any || outcome.is_ok() {
        pool::set_asleep(id, true);
    }
    outcome
}

fn homes(runtime: &Runtime, id: PoolId) -> Vec<(&Device, Vec<&'static Arena>)> {
    let homes = runtime.devices().iter().map(|device| (device, device.memory.arenas_of(id)));
    homes.filter(|(_, arenas)| !arenas.is_empty()).collect()
}

fn check_may_sleep(runtime: &Runtime, device: &Device, arenas: &[&'static Arena], id: PoolId) -> Result<()> {
    if device.memory.routes.lead_to(id) {
        return Err(Error::new(
            Status::GRAPH_MEMORY_IN_USE,
            format!("requests on device {} still go to pool {id}, so it cannot sleep", device.ordinal),
        ));
    }
    let live: u64 = arenas.iter().map(|arena| arena.lock().space.counters.live).sum();
    if live > 0 && pool::is_shared_with_others(id) {
        return Err(Error::new(
            Status::GRAPH_MEMORY_IN_USE,
            format!(
                "{} of pool {id} are allocated, and not by captures alone, so what they hold may not be lost",
                Bytes(live)
            ),
        ));
    }
    for arena in arenas {
        check_nobody_holds(device, arena, id)?;
        sleepers_of(arena)?;
    }
    if device.memory.method(device, &runtime.driver)? == Method::Segments {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "memory that the driver allocates with its addresses (expandable_segments:False) cannot sleep",
        ));
    }
    Ok(())
}

fn check_nobody_holds(device: &Device, arena: &Arena, id: PoolId) -> Result<()> {
    if ipc::has_exports(arena.number) {
        return Err(Error::new(
            Status::GRAPH_MEMORY_IN_USE,
            format!("other processes hold memory of pool {id} on device {}, so it cannot sleep", device.ordinal),
        ));
    }
    Ok(())
}

/// Every handle of an arena. Refused where there is other memory, which would stay.
fn sleepers_of(arena: &Arena) -> Result<Vec<(Dream, Physical)>> {
    arena.lock().space.sleepers().ok_or_else(|| {
        let what =
            "memory of the program's own allocator, or that the driver allocated with its addresses, cannot sleep";
        Error::new(Status::NOT_SUPPORTED, what)
    })
}

fn sleep_arena(runtime: &Runtime, device: &Device, arena: &'static Arena, any: &mut bool) -> Result<()> {
    let _growing = arena.growth.lock();
    check_nobody_holds(device, arena, arena.key().pool)?;
    stream_events::reap(runtime, device, arena, true);
    for (dream, physical) in sleepers_of(arena)? {
        let unmapped = runtime.driver.memory_unmap(dream.address, dream.bytes);
        unmapped.context(|| format!("unmapping {} of a pool that is to sleep", Bytes(dream.bytes)))?;
        *any = true;
        arena.lock().space.change(dream, Backing::Asleep);
        if stream_events::insist(|| runtime.driver.memory_release(physical)) {
            device.memory.released.one();
            device.memory.let_go(dream.bytes);
        }
    }
    Ok(())
}

/// Gives a pool physical memory again, on every device. If there is not enough, it sleeps on. Trackers as with [`sleep`].
pub fn wake(runtime: &'static Runtime, id: PoolId) -> Result<()> {
    let _changing = CHANGING.lock();
    for (device, arenas) in homes(runtime, id) {
        device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let _growing: Vec<_> = arenas.iter().map(|arena| arena.growth.lock()).collect();
                wake_device(runtime, device, &arenas, id)
            })?
        })?;
    }
    pool::set_asleep(id, false);
    Ok(())
}

fn wake_device(runtime: &'static Runtime, device: &Device, arenas: &[&'static Arena], id: PoolId) -> Result<()> {
    let driver = &runtime.driver;
    let dreams: Vec<(&'static Arena, Dream)> = arenas
        .iter()
        .flat_map(|arena| {
            let dreams = arena.lock().space.dreams();
            dreams.into_iter().map(|dream| (*arena, dream))
        })
        .collect();
    let sizes: Vec<u64> = dreams.iter().map(|(_, dream)| dream.bytes).collect();
    let mut created = create(device, driver, &sizes)?;
    if created.is_none() {
        // What others have in the cache may be enough. What cannot be given back is not what is wanted here.
        let _ = cache::empty(runtime);
        created = create(device, driver, &sizes)?;
    }
    let Some(created) = created else {
        let (free, _) = device.memory_info(driver).unwrap_or((0, 0));
        let wanted = sizes.iter().sum::<u64>();
        return Err(Error::new(
            Status::OUT_OF_MEMORY,
            format!(
                "pool {id} needs {} to wake, and device {} has {} free; it sleeps on",
                Bytes(wanted),
                device.ordinal,
                Bytes(free)
            ),
        ));
    };
    for (index, (_, dream)) in dreams.iter().enumerate() {
        if let Err(error) = handles::map(device, driver, dream.address, &created[index..=index]) {
            for (_, mapped) in &dreams[..index] {
                stream_events::insist(|| driver.memory_unmap(mapped.address, mapped.bytes));
            }
            handles::undo(device, driver, created);
            return Err(error.context(format_args!("waking pool {id}")));
        }
    }
    for ((arena, dream), (physical, _)) in dreams.into_iter().zip(created) {
        arena.lock().space.change(dream, Backing::Handle(physical));
    }
    Ok(())
}

/// Creates handles of these sizes: all, or, where memory does not suffice, none.
fn create(device: &Device, driver: &Driver, sizes: &[u64]) -> Result<Option<Vec<Handle>>> {
    let total = device.memory.total(device, driver)?;
    let limit = device.memory.limit(total).unwrap_or(total);
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
