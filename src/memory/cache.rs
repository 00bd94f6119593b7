//! Returns cached memory to the driver.

use super::{
    arena::{Arena, PendingUnmap, StreamEvent},
    device_memory::Method,
    external_segments,
    mapped::Backing,
    stream_events,
};
use crate::{
    base::deadline::Deadline,
    driver::Driver,
    error::{Error, Result},
    runtime::{Runtime, device::Device, sync_debug},
    status::Status,
};
use std::{sync::atomic::Ordering, time::Duration};

/// Releases every completely free handle of the arenas whose streams are idle, so that `growing` can grow. Releases
/// segments, which makes the driver wait for the device, only if `allowed`. Fails only if the sync debug mode forbids
/// that: other memory that cannot be released now is tried again later.
pub fn release_idle(runtime: &Runtime, device: &Device, growing: &Arena, allowed: bool) -> Result<()> {
    let target = Target { spares_segments: !allowed, ..Target::default() };
    let mut refused = Ok(());
    let mut released = |outcome: Result<()>| {
        if outcome.as_ref().is_err_and(|error| error.status() == Status::WOULD_SYNCHRONIZE) {
            refused = outcome;
        }
    };
    for arena in device.memory().arenas() {
        if arena.number == growing.number {
            released(release_until(runtime, device, arena, false, target));
        } else if arena.is_outside_graphs()
            && let Some(_growing) = arena.growth.try_lock()
        {
            // A thread that grows another arena now needs that arena's memory itself.
            released(release_until(runtime, device, arena, false, target));
        }
    }
    refused
}

/// Releases idle memory, arena by arena, until at most `max_held` bytes are held, so that `growing` can grow.
pub fn collect(runtime: &Runtime, device: &Device, growing: &Arena, max_held: u64) {
    for arena in device.memory().arenas() {
        if device.memory().held() <= max_held {
            return;
        }
        let mut _growing = None;
        if arena.number != growing.number {
            _growing = arena.growth.try_lock();
            if _growing.is_none() {
                continue;
            }
        }
        // Memory that cannot be released now is tried again when more is needed.
        let _ = release_until(runtime, device, arena, false, Target { most: max_held, ..Target::default() });
    }
}

/// Releases idle memory of arenas, in their order, until at most `most` bytes of the device are held, and not to less than
/// `least`. Waits until the deadline for threads that grow an arena, and for the work that may still use the memory.
pub fn give_back(
    runtime: &Runtime,
    device: &Device,
    arenas: &[&'static Arena],
    (most, least): (u64, u64),
    deadline: &Deadline,
) {
    let target = Target { most, least, spares_segments: false };
    for arena in arenas {
        if arena.is_outside_graphs()
            && !target.is_reached(device)
            && let Some(_growing) = arena.growth.try_lock_for(deadline.remaining())
        {
            // Memory that cannot be released is kept.
            let _ = release_until(runtime, device, arena, true, target);
        }
    }
    let is_released = || {
        for arena in arenas {
            if let Some(_growing) = arena.growth.try_lock() {
                stream_events::process_events(runtime, device, arena);
            }
        }
        Ok((device.memory().pending_release.load(Ordering::Acquire) == 0).then_some(()))
    };
    // What running work still uses is released when other events of the arena are processed.
    let _ = deadline.until(|| "waiting for work that uses idle memory", is_released);
}

/// Releases the free memory of an arena. With `later`, handles that a busy stream may still use are released when it is
/// done; otherwise they stay. Continues after a failure and returns the first one.
pub fn release(runtime: &Runtime, device: &Device, arena: &'static Arena, later: bool) -> Result<()> {
    release_until(runtime, device, arena, later, Target::default())
}

/// How much of a device's memory is to stay.
#[derive(Debug, Clone, Copy, Default)]
struct Target {
    /// Nothing more is released when at most so many bytes are held.
    most: u64,
    /// Nothing is released that would leave fewer bytes.
    least: u64,
    /// Whether segments stay, for whose release the driver waits for the device.
    spares_segments: bool,
}

impl Target {
    /// Returns the bytes that are held when what is released already has returned to the driver.
    fn held(device: &Device) -> u64 {
        let pending_release = device.memory().pending_release.load(Ordering::Acquire);
        device.memory().held().saturating_sub(pending_release)
    }

    fn is_reached(self, device: &Device) -> bool {
        Target::held(device) <= self.most
    }

    fn allows(self, device: &Device, bytes: u64) -> bool {
        Target::held(device) >= self.least.saturating_add(bytes)
    }
}

/// Releases as [`release`] does, until a target is reached.
fn release_until(runtime: &Runtime, device: &Device, arena: &'static Arena, later: bool, target: Target) -> Result<()> {
    stream_events::process_events(runtime, device, arena);
    if !stream_events::may_move_memory(runtime, device, arena, false) {
        return Ok(());
    }
    if !target.spares_segments && arena.lock().space.has_segments() {
        release_segments(runtime, device, arena, target)?;
    }
    match device.memory().method(device, &runtime.driver) {
        Ok(Method::Virtual { .. }) => {
            let mut inner = arena.lock();
            inner.space.coalesce_all();
            inner.space.drop_suspended_state();
        }
        // If the method is unknown, nothing was ever allocated.
        Ok(Method::Segments) | Err(_) => return Ok(()),
    }
    let (reclaimable, generation) = arena.reclaimable_handles();
    if reclaimable.is_empty() {
        return Ok(());
    }
    let can_wait = later && stream_events::can_record_event(runtime, arena);
    let mut outcome = Ok(());
    for handle in reclaimable {
        if target.is_reached(device) {
            break;
        }
        if !target.allows(device, handle.bytes) {
            continue;
        }
        let Some(detached) = arena.detach(&handle, generation) else { continue };
        let idle = stream_events::is_idle(runtime, arena);
        if !idle && !can_wait {
            arena.lock().space.reattach(detached.block);
            break;
        }
        arena.lock().space.mark_moved(&detached);
        let pending = PendingUnmap {
            block: detached.block,
            address: detached.address,
            bytes: detached.bytes,
            physical: Some(detached.physical),
            event: StreamEvent::Pending(arena.stream_use()),
        };
        outcome = outcome.and(stream_events::free_addresses_when_idle(runtime, device, arena, pending, idle));
    }
    outcome
}

fn release_segments(runtime: &Runtime, device: &Device, arena: &'static Arena, target: Target) -> Result<()> {
    let (reclaimable, _) = arena.reclaimable_handles();
    if reclaimable.is_empty() {
        return Ok(());
    }
    // A free would invalidate every non-relaxed capture of this thread, and wait for the other captures.
    if !stream_events::can_record_event(runtime, arena) {
        return Ok(());
    }
    let mut outcome = Ok(());
    for handle in reclaimable {
        if target.is_reached(device) {
            break;
        }
        if !target.allows(device, handle.bytes) {
            continue;
        }
        let taken = {
            let mut inner = arena.lock();
            match inner.space.mapped.get(&handle.address).map(|mapped| mapped.backing) {
                Some(backing) if backing.is_segment() => {
                    inner.space.detach_block(&handle).map(|block| (backing, block))
                }
                _ => None,
            }
        };
        let Some((backing, block)) = taken else { continue };
        let freed = match backing {
            Backing::Segment(segment) => runtime.driver.segment_free(segment),
            _ => {
                external_segments::free(handle.address);
                Ok(())
            }
        };
        let mut inner = arena.lock();
        if let Err(failure) = freed {
            inner.space.reattach(block);
            outcome = outcome.and(Err(Error::from(failure).context("freeing a segment")));
        } else {
            inner.space.remove_regions(|region| region.address == handle.address);
            device.memory().released.increment();
            device.memory().release_held(handle.bytes);
        }
    }
    outcome
}

/// Releases all free memory on every device. Continues after a failure and returns the first one.
pub fn empty(runtime: &'static Runtime) -> Result<()> {
    let deadline = Deadline::new(GRACE);
    let mut outcome = Ok(());
    for device in runtime.devices() {
        device.memory().waits.increment();
        device.memory().moves.lock().reset();
        outcome = outcome.and(empty_arenas(runtime, device, device.memory().arenas(), deadline));
    }
    outcome
}

/// How long a call that releases memory waits for work that is about to complete.
pub const GRACE: Duration = Duration::from_millis(1);

/// Makes an arena without a user available for other streams and pools, if it is empty, and releases its addresses.
pub fn retire(driver: &Driver, device: &Device, arena: &'static Arena) {
    let _growing = arena.growth.lock();
    for region in device.memory().retire(arena) {
        // A failure only leaves addresses reserved.
        if device.memory().previous_mappings.lock().remove_in(driver, region.address, region.bytes) {
            let _ = driver.memory_unreserve(region.address, region.bytes);
        }
    }
}

/// Releases the free memory of some arenas of a device as far as their pools allow it, and retires arenas of released
/// pools. Memory that only waits for the device is tried again until the deadline.
pub fn empty_arenas(
    runtime: &'static Runtime,
    device: &Device,
    mut arenas: Vec<&'static Arena>,
    deadline: Deadline,
) -> Result<()> {
    arenas.retain(|arena| arena.is_outside_graphs());
    if arenas.is_empty() {
        return Ok(());
    }
    device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            let mut outcome = Ok(());
            poll(&arenas, &deadline, |arena| stream_events::may_move_memory(runtime, device, arena, false));
            for arena in &arenas {
                let _growing = arena.growth.lock();
                outcome = outcome.and(release(runtime, device, arena, true));
            }
            poll(&arenas, &deadline, |arena| stream_events::poll_events_done(runtime, device, arena));
            arenas.iter().for_each(|arena| retire(driver, device, arena));
            outcome
        })?
    })
}

/// Asks until the deadline whether every arena is done.
fn poll(arenas: &[&'static Arena], deadline: &Deadline, is_done: impl Fn(&'static Arena) -> bool) {
    while arenas.iter().any(|arena| !is_done(arena))
        && !deadline.is_expired()
        // In the error mode, memory that running work uses stays cached.
        && sync_debug::check("the release of cached memory").is_ok()
    {
        std::thread::yield_now();
    }
}
