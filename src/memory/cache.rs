//! Giving memory back to the driver.

use super::{
    arena::{Arena, Leaving, Mark, Use},
    device_memory::Method,
    mapped::Backing,
    marks, pool,
};
use crate::{
    device::Device,
    driver::types::CU_STREAM_CAPTURE_STATUS_NONE,
    error::{Error, Result},
    runtime::Runtime,
};

/// Gives back every handle that is wholly free in an arena whose stream has nothing to do, for the sake of one that
/// grows. Segments, whose going waits for the device, go only where that is `allowed`.
pub fn release_idle(runtime: &Runtime, device: &Device, growing: &Arena, allowed: bool) {
    if !allowed && matches!(device.memory.method(device, &runtime.driver), Ok(Method::Segments)) {
        return;
    }
    for arena in device.memory.arenas() {
        if arena.number == growing.number {
            let _ = release(runtime, device, arena, false);
        } else if arena.may_move()
            && let Some(_growing) = arena.growth.try_lock()
        {
            // Whoever grows another arena at this moment needs its memory himself.
            let _ = release(runtime, device, arena, false);
        }
    }
}

/// Gives back what an arena has free. With `later`, handles that a busy stream may still use go back when it is done;
/// without, they stay. Gives what can be given; the first failure is told.
pub fn release(runtime: &Runtime, device: &Device, arena: &'static Arena, later: bool) -> Result<()> {
    marks::reap(runtime, device, arena, false);
    if !arena.may_move() {
        return Ok(());
    }
    match device.memory.method(device, &runtime.driver) {
        Ok(Method::Virtual { .. }) => {}
        Ok(Method::Segments) => return release_segments(runtime, device, arena),
        // Where even this is not known, nothing was ever allocated.
        Err(_) => return Ok(()),
    }
    let spares = arena.spares();
    if spares.is_empty() {
        return Ok(());
    }
    let idle = marks::is_idle(runtime, arena);
    if !idle && !(later && marks::can_mark(runtime, arena)) {
        return Ok(());
    }
    let mut outcome = Ok(());
    for spare in spares {
        let lifted = {
            let mut inner = arena.inner.lock();
            let lifted = inner.space.lift(&spare);
            if let Some(lifted) = &lifted {
                inner.space.moved(lifted);
            }
            lifted
        };
        let Some(lifted) = lifted else { continue };
        let leaving = Leaving {
            block: lifted.block,
            address: lifted.address,
            bytes: lifted.bytes,
            physical: Some(lifted.physical),
            mark: Mark::Unmarked(arena.own_use()),
        };
        outcome = outcome.and(marks::leave(runtime, device, arena, leaving, idle));
    }
    outcome
}

fn release_segments(runtime: &Runtime, device: &Device, arena: &'static Arena) -> Result<()> {
    let spares = arena.spares();
    if spares.is_empty() {
        return Ok(());
    }
    // A free would make every capture of this thread invalid that is not relaxed, and wait for the others.
    let stream = *arena.stream.lock();
    if !matches!(runtime.driver.stream_capture_status(stream), Ok(CU_STREAM_CAPTURE_STATUS_NONE)) {
        return Ok(());
    }
    let mut outcome = Ok(());
    for spare in spares {
        let taken = {
            let mut inner = arena.inner.lock();
            match inner.space.mapped.get(&spare.address).map(|mapped| mapped.backing) {
                Some(Backing::Segment(segment)) => inner.space.take_out(&spare).map(|block| (segment, block)),
                _ => None,
            }
        };
        let Some((segment, block)) = taken else { continue };
        let freed = runtime.driver.segment_free(segment);
        let mut inner = arena.inner.lock();
        if let Err(failure) = freed {
            inner.space.put_back(block);
            outcome = outcome.and(Err(Error::from(failure).context("freeing a segment")));
        } else {
            inner.space.remove_regions(|region| region.address == spare.address);
            device.memory.released.one();
            device.memory.let_go(spare.bytes);
        }
    }
    outcome
}

/// Gives back whatever is free, on every device. Gives what can be given; the first failure is told.
pub fn empty(runtime: &'static Runtime) -> Result<()> {
    let mut outcome = Ok(());
    for device in runtime.devices() {
        if device.memory.arenas().is_empty() {
            continue;
        }
        device.memory.moved.reset();
        outcome = outcome.and(device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                let mut outcome = Ok(());
                for arena in device.memory.arenas() {
                    outcome = outcome.and(empty_arena(runtime, device, arena));
                }
                outcome
            })?
        }));
    }
    outcome
}

/// Gives back what is free of an arena, if its pool lets it, and the arena itself if it is of a pool that is gone.
pub fn empty_arena(runtime: &'static Runtime, device: &Device, arena: &'static Arena) -> Result<()> {
    if !arena.may_move() {
        return Ok(());
    }
    let _growing = arena.growth.lock();
    let outcome = release(runtime, device, arena, true);
    marks::reap_soon(runtime, device, arena);
    let key = arena.key();
    if !pool::in_use(key.pool, arena.device) && arena.is_empty() {
        let regions = arena.inner.lock().space.remove_regions(|_| true);
        for region in regions {
            let _ = runtime.driver.memory_unreserve(region.address, region.bytes);
        }
        device.memory.retire(arena);
    }
    outcome
}
