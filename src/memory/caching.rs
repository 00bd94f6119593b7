//! The caching allocator's calls.

use super::{
    arena::{self, Arena, Inner, Key, Use},
    backend,
    biased::Held,
    block::Id,
    cache, config,
    device_memory::{check_fraction, device},
    directory,
    grow::Request,
    ipc, peak_budget, pools, route, slow_path,
    space::{Given, round},
    stats::Stats,
    stats_aggregation, stream_events, summary, trackers,
};
use crate::{
    base::units::Bytes,
    driver::{Stream, types::CU_STREAM_PER_THREAD},
    error::{Error, Result},
    runtime::{self, Runtime, thread},
    sanitizer,
    status::Status,
};

/// Allocates `bytes` on a device for work in a stream, which the caller vouched for, and returns the address; 0 for a
/// size of 0. A device of -1 is the current one.
#[inline(always)] // into the two exported functions that call it: it shares their look-up of the thread's state
pub fn caching_alloc(bytes: u64, number: i32, stream: Stream) -> Result<u64> {
    if bytes == 0 {
        return Ok(0);
    }
    let device = if number == -1 { thread::device() } else { number as u32 };
    let Some(size) = round(bytes) else { return Err(too_large(bytes)) };
    let (arena, generation) = match thread::cached_arena(stream.handle(), device, route::epoch()) {
        Some(found) => found,
        None => return alloc_unremembered(number, stream, bytes),
    };
    let mut inner = arena.lock();
    if inner.space.generation == generation
        && let Some(address) = inner.space.take(size, bytes)
    {
        let counters = &inner.space.counters;
        if counters.live <= counters.credit {
            return Ok(address);
        }
        drop(inner);
        settle(arena);
        return Ok(address);
    }
    drop(inner);
    alloc_more(number, stream, Request { size, requested: bytes })
}

/// Allocates where the thread remembers no arena for the stream: where it has not met it before, and always while another
/// backend is in use or sizes are rounded in a way of their own.
#[cold]
fn alloc_unremembered(number: i32, stream: Stream, bytes: u64) -> Result<u64> {
    let runtime = runtime::ready()?;
    let kind = backend::chosen(runtime)?;
    if kind != backend::Kind::Native {
        return backend::alloc(kind, runtime, number, stream, bytes);
    }
    let Some(size) = config::get()?.round(bytes) else { return Err(too_large(bytes)) };
    let (arena, generation) = find_arena(number, stream)?;
    let mut inner = arena.lock();
    if inner.space.generation == generation
        && let Some(address) = inner.space.take(size, bytes)
    {
        let counters = &inner.space.counters;
        let lent = counters.live <= counters.credit;
        drop(inner);
        if !lent {
            settle(arena);
        }
        return Ok(address);
    }
    drop(inner);
    alloc_more(number, stream, Request { size, requested: bytes })
}

#[cold]
fn too_large(bytes: u64) -> Error {
    Error::new(Status::OUT_OF_MEMORY, format!("tried to allocate {}, more than there are addresses", Bytes(bytes)))
}

#[cold]
fn settle(arena: &Arena) {
    if let Some(runtime) = runtime::usable()
        && let Some(device) = runtime.devices().get(arena.device as usize)
    {
        peak_budget::ask(&device.memory, arena);
    }
    trackers::deliver();
}

#[cold]
fn alloc_more(number: i32, stream: Stream, request: Request) -> Result<u64> {
    let runtime = runtime::ready()?;
    loop {
        let (arena, generation) = find_arena(number, stream)?;
        let device = device(runtime, arena.device)?;
        let climbed = slow_path::climb(runtime, device, arena, generation, request);
        trackers::deliver();
        // None: the arena was given to somebody else meanwhile, its pool being gone.
        if let Some(address) = climbed? {
            peak_budget::ask(&device.memory, arena);
            return Ok(address);
        }
    }
}

/// The arena for the calling thread's requests in a stream, and its generation.
#[cold]
fn find_arena(number: i32, stream: Stream) -> Result<(&'static Arena, u32)> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    // The epoch first: a route that begins meanwhile makes what is found here void.
    let epoch = route::epoch();
    let (pool, lasting) = device.memory.routes.find(runtime, stream);
    // The two handles of the legacy stream are one stream; that of a thread's own default stream is many.
    let handle = route::canonical(stream.handle());
    let thread = if handle == CU_STREAM_PER_THREAD { thread::number() } else { 0 };
    let key = Key { stream: handle, thread, pool };
    let named = if handle == 0 { Stream::DEFAULT } else { stream };
    let (arena, generation) = device.memory.arena(device.ordinal, key, named)?;
    // So does whatever changes who gives memory out, or how it is rounded.
    let plain = backend::chosen(runtime)? == backend::Kind::Native && !config::get()?.rounds();
    if lasting && plain && route::may_remember(epoch) {
        // By the name that was asked for: it is looked up by that.
        thread::cache_arena(stream.handle(), device.ordinal, epoch, arena, generation);
    }
    Ok((arena, generation))
}

/// The arena and the index of the live block at an address.
#[inline]
fn locate(address: u64) -> Option<(&'static Arena, Id)> {
    let entry = directory::find(address)?;
    Some((arena::get(entry.arena)?, entry.block))
}

/// Frees what [`caching_alloc`] gave; 0 does nothing.
#[inline(always)] // as caching_alloc
pub fn caching_free(address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let Some((arena, block)) = locate(address) else { return free_elsewhere(address) };
    let mut inner = arena.lock();
    if inner.space.live(block, address).is_none() {
        drop(inner);
        return free_elsewhere(address);
    }
    let given = inner.space.give_back(block);
    if given != Given::Free {
        after_free(arena, inner, block, given);
    } else if inner.space.orphaned && inner.space.counters.live == 0 {
        drop(inner);
        pools::bury(arena);
    }
    Ok(())
}

/// What is left to do when a block is not simply free.
#[cold]
fn after_free(arena: &'static Arena, mut inner: Held<'_, Inner>, block: Id, given: Given) {
    if given == Given::Waiting {
        let uses = inner.uses.remove(&block).unwrap_or_default();
        drop(inner);
        // In a process that is exiting the block stays what it is.
        if let Some(runtime) = runtime::usable() {
            stream_events::hold_back(runtime, arena, block, uses);
        }
        inner = arena.lock();
    }
    let last = inner.space.orphaned && inner.space.counters.live == 0;
    drop(inner);
    if last {
        pools::bury(arena);
    }
    trackers::deliver();
}

/// Frees a block that is no arena's.
#[cold]
fn free_elsewhere(address: u64) -> Result<()> {
    backend::free(address).unwrap_or_else(|| Err(not_allocated(address)))
}

#[cold]
fn not_allocated(address: u64) -> Error {
    Error::new(
        Status::INVALID_POINTER,
        format!("{address:#x} is no block of the caching allocator's: it was never given out, or was freed already"),
    )
}

/// Notes that work in a stream uses a block, which then stays out of use after its free until that stream has passed.
pub fn record_stream(address: u64, stream: Stream, number: u32) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let Some((arena, id)) = locate(address) else { return record_elsewhere(address, stream, number) };
    let mut inner = arena.lock();
    let key = inner.key;
    let Some(block) = inner.space.live_mut(id, address) else {
        drop(inner);
        return record_elsewhere(address, stream, number);
    };
    let handle = route::canonical(stream.handle());
    let its_own = arena.device == number && key.stream == handle && (key.thread == 0 || key.thread == thread::number());
    if its_own {
        return Ok(());
    }
    block.used_elsewhere = true;
    let (begin, bytes) = (block.address, block.requested);
    if let Some(owned) = inner.space.listener.as_ref().and_then(|listener| listener.owned(begin, bytes)) {
        sanitizer::recorded(owned, stream, number);
    }
    let its_thread = if handle == CU_STREAM_PER_THREAD { thread::number() } else { 0 };
    let wanted = Use { stream, device: number, thread: its_thread };
    let uses = inner.uses.entry(id).or_default();
    if !uses.contains(&wanted) {
        uses.push(wanted);
    }
    Ok(())
}

/// Notes the same for a block of another backend, or one that was received from another process.
#[cold]
fn record_elsewhere(address: u64, stream: Stream, number: u32) -> Result<()> {
    let handle = route::canonical(stream.handle());
    let thread = if handle == CU_STREAM_PER_THREAD { thread::number() } else { 0 };
    let by = Use { stream: if handle == 0 { Stream::DEFAULT } else { stream }, device: number, thread };
    let known = backend::record_stream(address, by) || ipc::add_use(address, by);
    if known { Ok(()) } else { Err(not_allocated(address)) }
}

/// Where the block that an address lies in begins, and its bytes, for an address that [`caching_alloc`] gave.
pub fn block_at(address: u64) -> Option<(u64, u64)> {
    let native = locate(address).and_then(|(arena, id)| {
        let inner = arena.lock();
        inner.space.live(id, address).map(|block| (block.address, block.size))
    });
    native.or_else(|| backend::block_at(address))
}

/// Whether an address is that of memory which the allocator has from the driver.
pub fn is_cached(address: u64) -> bool {
    locate(address).is_some_and(|(arena, _)| arena.lock().space.has(address)) || backend::has(address)
}

/// Gives back to the driver what is free on every device.
pub fn empty_cache() -> Result<()> {
    let runtime = runtime::ready()?;
    let emptied = cache::empty(runtime).and(backend::empty_cache(runtime));
    trackers::deliver();
    emptied
}

/// Runs `body` with the memory of a device.
fn with_memory<T>(
    number: i32,
    body: impl FnOnce(&'static Runtime, &'static crate::runtime::device::Device) -> T,
) -> Result<T> {
    let runtime = runtime::ready()?;
    Ok(body(runtime, runtime.device(number)?))
}

/// Bytes in the program's hands, and the most there ever were since the peaks were reset.
pub fn allocated(number: i32) -> Result<(u64, u64)> {
    with_memory(number, |_, device| {
        let (native, others) = (peak_budget::read(&device.memory), backend::totals(device).allocated_bytes.all);
        (native.0 + others.current, native.1 + others.peak)
    })
}

/// Bytes of the device that are held, and the most there ever were since the peaks were reset.
pub fn reserved(number: i32) -> Result<(u64, u64)> {
    with_memory(number, |runtime, device| {
        backend::held(device, runtime).unwrap_or_else(|| (device.memory.held(), device.memory.held_peak()))
    })
}

/// Lets all peaks of a device begin again.
pub fn reset_peak_stats(number: i32) -> Result<()> {
    with_memory(number, |runtime, device| {
        peak_budget::reset(&device.memory);
        device.memory.moved.reset();
        backend::reset_peak(device, runtime);
        device.memory.reset_held_peak();
    })
}

/// All figures of a device.
pub fn stats(number: i32) -> Result<Stats> {
    with_memory(number, stats_of)
}

/// Those of the caching allocator and of the other backends together.
fn stats_of(runtime: &Runtime, device: &crate::runtime::device::Device) -> Stats {
    let mut stats = stats_aggregation::stats(&device.memory);
    let reserved = stats.reserved_bytes.all;
    stats.merge(&backend::totals(device));
    // What is held is counted in one place.
    stats.reserved_bytes.all = reserved;
    if let Some((now, peak)) = backend::held(device, runtime) {
        (stats.reserved_bytes.all.current, stats.reserved_bytes.all.peak) = (now, peak);
    }
    stats.max_split_size = config::get().ok().map(|config| config.max_split_size).filter(|size| *size != u64::MAX);
    stats
}

/// The figures of a device as a table.
pub fn memory_summary(number: i32, abbreviated: bool) -> Result<String> {
    with_memory(number, |runtime, device| summary::summary(device.ordinal, &stats_of(runtime, device), abbreviated))
}

/// Sets which fraction of a device's memory may be held.
pub fn set_fraction(fraction: f64, number: i32) -> Result<()> {
    check_fraction(fraction)?;
    with_memory(number, |_, device| {
        device.memory.set_fraction(fraction);
        backend::fraction_set(fraction, device.ordinal);
    })
}

/// Which fraction that is.
pub fn fraction(number: i32) -> Result<f64> {
    // Where none was set the settings say it.
    config::get()?;
    with_memory(number, |_, device| device.memory.fraction())
}

/// What is wrong with the allocator's structures, if anything is.
pub fn check() -> Result<()> {
    let runtime = runtime::ready()?;
    for device in runtime.devices() {
        let mut held = backend::check_book(device);
        for arena in device.memory.arenas() {
            let inner = arena.lock();
            let wrong = |what: String| Error::new(Status::PANIC, format!("arena {}: {what}", arena.number));
            inner.space.check().map_err(wrong)?;
            let recorded = inner.space.recorded();
            if inner.uses.keys().any(|id| !recorded.contains(id)) || inner.uses.len() != recorded.len() {
                return Err(wrong("the streams that were recorded belong to other blocks".into()));
            }
            held += inner.space.mapped_bytes();
            held += inner.leaving.iter().filter(|entry| entry.physical.is_some()).map(|entry| entry.bytes).sum::<u64>();
        }
        if held != device.memory.held() {
            let what = format!("device {}: {held} bytes are mapped, {} counted", device.ordinal, device.memory.held());
            return Err(Error::new(Status::PANIC, what));
        }
    }
    Ok(())
}
