//! The entry points of the caching allocator.

use super::{
    arena::{self, Arena, Inner, Key, StreamUse},
    backend,
    biased::BiasedGuard,
    block::{BlockId, round},
    cache, config,
    device_memory::{check_fraction, device, device_for},
    directory, ended_streams,
    grow::Request,
    ipc::import,
    peak_budget, pointer, pools, route, slow_path,
    space::FreeOutcome,
    stats::Stats,
    stats_aggregation, stream_events, summary, trackers,
};
use crate::{
    base::{cancellation, retry::retry, units::Bytes},
    driver::Stream,
    error::{Error, Result},
    observe,
    runtime::{self, Runtime, availability, names, thread},
    status::Status,
    stream,
};

/// Allocates `bytes` on a device for work in a stream and returns the address, or 0 for a size of 0. The stream is not
/// checked. A device of -1 means the current device.
#[inline(always)] // into the two exported functions that call it, so that they share one lookup of the thread's state
pub fn caching_alloc(bytes: u64, number: i32, stream: Stream) -> Result<u64> {
    if bytes == 0 {
        return Ok(0);
    }
    let device = if number == -1 { thread::device() } else { number as u32 };
    let Some(size) = round(bytes) else { return Err(too_large(bytes)) };
    let cached = thread::cached_arena(stream.handle(), device, route::epoch());
    let (arena, generation) = match cached.and_then(|(number, generation)| Some((arena::get(number)?, generation))) {
        Some(found) => found,
        None => return alloc_after_lookup(number, stream, bytes),
    };
    let mut inner = arena.lock();
    if !inner.deferred_frees.is_empty() {
        inner = poll_deferred_frees(arena, inner);
    }
    if inner.space.generation == generation
        && let Some(address) = inner.space.allocate(size, bytes)
    {
        if !inner.space.counters.needs_attention {
            return Ok(address);
        }
        drop(inner);
        attend(arena);
        return Ok(address);
    }
    drop(inner);
    alloc_slow(number, stream, Request { size, requested: bytes })
}

/// Allocates for a stream whose arena is not in the thread's cache: on first use, and always while another backend is
/// in use or the settings round sizes differently.
#[cold]
fn alloc_after_lookup(number: i32, stream: Stream, bytes: u64) -> Result<u64> {
    let _uncancellable = cancellation::disable();
    let runtime = runtime::ready()?;
    let kind = backend::chosen(runtime)?;
    if kind != config::Kind::Native {
        return backend::alloc(kind, runtime, number, stream, bytes);
    }
    if ended_streams::has_ended(stream) {
        return ended_streams::alloc(bytes, number, stream);
    }
    let Some(size) = config::get()?.round(bytes) else { return Err(too_large(bytes)) };
    let (arena, generation) = find_arena(number, stream)?;
    let mut inner = arena.lock();
    let size = inner.memory.round(size);
    if !inner.deferred_frees.is_empty() {
        inner = poll_deferred_frees(arena, inner);
    }
    if inner.space.generation == generation
        && let Some(address) = inner.space.allocate(size, bytes)
    {
        let needs_attention = inner.space.counters.needs_attention;
        drop(inner);
        if needs_attention {
            attend(arena);
        }
        return Ok(address);
    }
    drop(inner);
    alloc_slow(number, stream, Request { size, requested: bytes })
}

/// Frees blocks whose streams are done with them, if a poll is due.
#[cold]
fn poll_deferred_frees<'a>(arena: &'a Arena, mut inner: BiasedGuard<'a, Inner>) -> BiasedGuard<'a, Inner> {
    if !inner.is_poll_due() {
        return inner;
    }
    drop(inner);
    let _uncancellable = cancellation::disable();
    if let Some(runtime) = runtime::usable()
        && let Some(device) = runtime.devices().get(arena.device as usize)
    {
        // A block that cannot be polled stays deferred; the slow path reports what fails.
        let _ = stream_events::poll_deferred_frees(runtime, device, arena);
    }
    arena.lock()
}

#[cold]
fn too_large(bytes: u64) -> Error {
    Error::new(Status::OUT_OF_MEMORY, format!("tried to allocate {}: the size exceeds the address space", Bytes(bytes)))
}

/// Updates the device's peaks and delivers events to trackers after an allocation that requested attention.
#[cold]
fn attend(arena: &Arena) {
    let _uncancellable = cancellation::disable();
    if let Some(runtime) = runtime::usable()
        && let Some(device) = runtime.devices().get(arena.device as usize)
    {
        peak_budget::ensure_budget(device.memory(), arena);
    }
    trackers::deliver();
}

#[cold]
fn alloc_slow(number: i32, stream: Stream, request: Request) -> Result<u64> {
    let _uncancellable = cancellation::disable();
    let runtime = runtime::ready()?;
    if ended_streams::has_ended(stream) {
        return ended_streams::alloc(request.requested, number, stream);
    }
    loop {
        let (arena, generation) = find_arena(number, stream)?;
        let device = device(runtime, arena.device)?;
        // It may be in another pool than the one that was searched.
        let request = Request { size: arena.lock().memory.round(request.size), ..request };
        let outcome = slow_path::allocate_slow(runtime, device, arena, generation, request);
        trackers::deliver();
        // None: the arena was retired and reused meanwhile, because its pool was released.
        if let Some(address) = outcome? {
            peak_budget::ensure_budget(device.memory(), arena);
            return Ok(address);
        }
    }
}

/// Returns the arena for the calling thread's requests in a stream, and its generation.
#[cold]
fn find_arena(number: i32, stream: Stream) -> Result<(&'static Arena, u32)> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    // Read the epoch first: a route that begins later invalidates this result.
    let epoch = route::epoch();
    let (pool, lasting) = device.memory().routes.find(runtime, stream)?;
    // The two handles of the legacy stream denote one stream; the handle of the per-thread default stream denotes many.
    let handle = route::canonical(stream.handle());
    let thread = thread::of_stream(handle);
    let key = Key { stream: handle, thread, pool, ended: 0 };
    let named = if handle == 0 { Stream::DEFAULT } else { stream };
    let user = StreamUse::new(stream::from_validated(runtime, named, device.ordinal));
    ended_streams::reuse_arena(runtime, device, key, user);
    let (arena, generation) = device.memory().arena(key, user)?;
    // A change of the backend or of the rounding invalidates the result, too.
    let has_rounding = config::get()?.has_rounding() || arena.lock().memory.has_rounding();
    let cacheable = backend::chosen(runtime)? == config::Kind::Native && !has_rounding;
    if lasting && cacheable && route::may_cache(epoch) {
        // Key the cache entry by the handle that the caller passed, because lookups use it.
        thread::cache_arena(stream.handle(), device.ordinal, epoch, arena.number, generation);
    }
    Ok((arena, generation))
}

/// Returns the arena and the index of the block at an address.
#[inline]
fn locate(address: u64) -> Option<(&'static Arena, BlockId)> {
    let entry = directory::find(address)?;
    Some((arena::get(entry.arena)?, entry.block))
}

/// Frees memory that [`caching_alloc`] returned. An address of 0 is ignored.
#[inline(always)] // as for caching_alloc
pub fn caching_free(address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let Some((arena, block)) = locate(address) else { return free_in_backend(address) };
    let mut inner = arena.lock();
    if inner.space.live(block, address).is_none() {
        drop(inner);
        return free_in_backend(address);
    }
    let outcome = inner.space.free(block);
    if outcome != FreeOutcome::Free {
        after_free(arena, inner, block, outcome);
    } else if inner.space.orphaned && inner.space.counters.live() == 0 {
        drop(inner);
        pools::release_orphaned(arena);
    }
    Ok(())
}

/// Completes a free whose outcome is not [`FreeOutcome::Free`].
#[cold]
fn after_free(arena: &'static Arena, mut inner: BiasedGuard<'_, Inner>, block: BlockId, outcome: FreeOutcome) {
    let _uncancellable = cancellation::disable();
    if outcome == FreeOutcome::Deferred {
        let uses = inner.stream_uses.remove(&block).unwrap_or_default();
        let address = inner.space.blocks[block].address;
        drop(inner);
        names::forget_memory(address);
        // While the process exits, the block stays in its state.
        if let Some(runtime) = runtime::usable() {
            stream_events::defer_free(runtime, arena, block, uses);
        }
        inner = arena.lock();
    }
    let last = inner.space.orphaned && inner.space.counters.live() == 0;
    drop(inner);
    if last {
        pools::release_orphaned(arena);
    }
    trackers::deliver();
}

/// Frees a block that the library allocated for itself. The driver call of another backend may fail, and is retried.
pub fn free_own(address: u64) {
    retry(|| caching_free(address));
}

/// Frees a block of another backend.
#[cold]
fn free_in_backend(address: u64) -> Result<()> {
    let _uncancellable = cancellation::disable();
    backend::free(address).unwrap_or_else(|| Err(not_allocated(address)))
}

#[cold]
fn not_allocated(address: u64) -> Error {
    Error::new(
        Status::INVALID_POINTER,
        format!(
            "{address:#x} is not the start of a live block of the caching allocator: it is {}",
            pointer::describe(address)
        ),
    )
}

/// Records the stream that an argument stands for. A default stream's handle does not name its device, so NULL records
/// the default streams of the block's device and of the current device; so it is with the current stream.
pub fn record_stream_argument(address: u64, handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, handle)?;
    record_stream(address, stream)?;
    if !stream::is_relative(handle) {
        return Ok(());
    }
    let own = stream::resolve_on(runtime, handle, device_for(runtime, [address])?)?;
    if own.device() == stream.device() { Ok(()) } else { record_stream(address, own) }
}

/// Records that work in a stream uses a block. After its free, the block is not reused until that stream has completed
/// the work.
pub fn record_stream(address: u64, stream: stream::Stream) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let Some((arena, id)) = locate(address) else { return record_stream_in_backend(address, stream) };
    let mut inner = arena.lock();
    let key = inner.key;
    let Some(block) = inner.space.live_mut(id, address) else {
        drop(inner);
        return record_stream_in_backend(address, stream);
    };
    let handle = route::canonical(stream.raw.handle());
    let is_own_stream =
        arena.device == stream.device() && key.stream == handle && (key.thread == 0 || key.thread == thread::number());
    if is_own_stream {
        return Ok(());
    }
    block.used_elsewhere = true;
    let (begin, bytes) = (block.address, block.requested);
    if let Some(owned) = inner.space.recorder.as_ref().and_then(|recorder| recorder.owned(begin, bytes)) {
        observe::on_record_stream(owned, stream.raw, stream.device());
    }
    let stream_use = StreamUse::new(stream);
    let uses = inner.stream_uses.entry(id).or_default();
    if !uses.contains(&stream_use) {
        uses.push(stream_use);
    }
    Ok(())
}

/// Records a stream for a block of another backend or one received from another process.
#[cold]
fn record_stream_in_backend(address: u64, stream: stream::Stream) -> Result<()> {
    let handle = route::canonical(stream.raw.handle());
    let by = StreamUse::new(if handle == 0 { stream::Stream { raw: Stream::DEFAULT, ..stream } } else { stream });
    let known = backend::record_stream(address, by) || import::record_use(address, by);
    if known { Ok(()) } else { Err(not_allocated(address)) }
}

/// Makes the free of a live block known to [`after_free`], which the fast path does not call otherwise. Returns whether
/// there is a block that begins at the address.
pub(super) fn observe_free(address: u64) -> bool {
    let Some((arena, id)) = locate(address) else { return false };
    let mut inner = arena.lock();
    let Some(block) = inner.space.live_mut(id, address) else { return false };
    block.used_elsewhere = true;
    inner.stream_uses.entry(id).or_default();
    true
}

/// Returns the start and the size in bytes of the block at an address that [`caching_alloc`] returned.
pub fn block_at(address: u64) -> Option<(u64, u64)> {
    let native = locate(address).and_then(|(arena, id)| {
        let inner = arena.lock();
        inner.space.live(id, address).map(|block| (block.address, block.size))
    });
    native.or_else(|| backend::block_at(address))
}

/// Returns whether an address is in memory that the allocator holds.
pub fn is_cached(address: u64) -> bool {
    locate(address).is_some_and(|(arena, _)| arena.lock().space.has(address)) || backend::has(address)
}

/// Returns all free memory to the driver, on every device.
pub fn empty_cache() -> Result<()> {
    let Some(runtime) = runtime::if_initialized()? else { return Ok(()) };
    stream::prepared_launch::release_recent(runtime);
    let emptied = cache::empty(runtime).and(backend::empty_cache(runtime));
    trackers::deliver();
    emptied
}

/// Calls `body` with a device. Before the initialization, returns the default: nothing is allocated.
fn with_memory<T: Default>(
    number: i32,
    body: impl FnOnce(&'static Runtime, &'static crate::runtime::device::Device) -> T,
) -> Result<T> {
    let Some(runtime) = runtime::if_initialized()? else {
        availability::check_number(number)?;
        return Ok(T::default());
    };
    Ok(body(runtime, runtime.device(number)?))
}

/// Calls `body` with a device, and initializes the library first. Without any device, returns the default.
fn with_device<T: Default>(number: i32, body: impl FnOnce(&'static crate::runtime::device::Device) -> T) -> Result<T> {
    let Some(runtime) = runtime::ready_if_any()? else { return Ok(T::default()) };
    Ok(body(runtime.device(number)?))
}

/// Returns the allocated bytes and their peak since the last reset.
pub fn allocated(number: i32) -> Result<(u64, u64)> {
    with_memory(number, |_, device| peak_budget::read(device.memory()).live())
}

/// Returns the reserved bytes of the device and their peak since the last reset.
pub fn reserved(number: i32) -> Result<(u64, u64)> {
    with_memory(number, |runtime, device| {
        backend::held(device, runtime).unwrap_or_else(|| {
            let held = device.memory().held_stat();
            (held.current, held.peak)
        })
    })
}

/// Resets all peaks of a device to the current values.
pub fn reset_peak_stats(number: i32) -> Result<()> {
    with_memory(number, |runtime, device| {
        backend::reset_peak(device, runtime);
        peak_budget::reset(device.memory());
        device.memory().moves.lock().reset();
        device.memory().reset_held_peak();
    })
}

/// Returns all statistics of a device.
pub fn stats(number: i32) -> Result<Stats> {
    with_memory(number, stats_of)
}

/// Returns the combined statistics of the caching allocator and the other backends.
fn stats_of(runtime: &Runtime, device: &crate::runtime::device::Device) -> Stats {
    let mut stats = stats_aggregation::stats(device.memory());
    if let Some((now, peak)) = backend::held(device, runtime) {
        (stats.reserved_bytes.all.current, stats.reserved_bytes.all.peak) = (now, peak);
    }
    stats.max_split_size = config::get().ok().map(|config| config.max_split_size).filter(|size| *size != u64::MAX);
    stats
}

/// Formats the statistics of a device as a table.
pub fn memory_summary(number: i32, abbreviated: bool) -> Result<String> {
    let stats = stats(number)?;
    let ordinal = u32::try_from(number).unwrap_or_else(|_| thread::device());
    Ok(summary::summary(ordinal, &stats, abbreviated))
}

/// Sets the fraction of a device's memory that may be held.
pub fn set_fraction(fraction: f64, number: i32) -> Result<()> {
    check_fraction(fraction)?;
    with_device(number, |device| {
        device.memory().set_fraction(fraction);
        backend::notify_fraction(fraction, device.ordinal);
    })
}

/// Returns the fraction of a device's memory that may be held.
pub fn fraction(number: i32) -> Result<f64> {
    // Without an explicit fraction, the settings define it.
    config::get()?;
    with_device(number, |device| device.memory().fraction())
}

/// Checks the consistency of the allocator's data structures. Other threads of the program must not use the allocator; the
/// thread that returns memory to other processes waits.
pub fn check() -> Result<()> {
    let runtime = runtime::ready()?;
    for device in runtime.devices() {
        let (mut held, mut mapped) = (backend::reserved_bytes(device), 0);
        let arenas = device.memory().arenas();
        let _growing: Vec<_> = arenas.iter().map(|arena| arena.growth.lock()).collect();
        for arena in &arenas {
            let inner = arena.lock();
            let inconsistent = |what: String| Error::new(Status::PANIC, format!("arena {}: {what}", arena.number));
            inner.space.check().map_err(inconsistent)?;
            let recorded = inner.space.recorded();
            if inner.stream_uses.keys().any(|id| !recorded.contains(id)) || inner.stream_uses.len() != recorded.len() {
                return Err(inconsistent(
                    "the blocks with recorded streams differ from the blocks marked as used elsewhere".into(),
                ));
            }
            held += inner.space.mapped_bytes();
            mapped += inner.space.counters.zones.iter().map(|zone| zone.reserved.current).sum::<u64>();
            held += inner
                .pending_unmaps
                .iter()
                .filter(|entry| entry.physical.is_some())
                .map(|entry| entry.bytes)
                .sum::<u64>();
        }
        let previous: Vec<_> = device.memory().previous_mappings.lock().unused().collect();
        for (address, bytes) in previous {
            if arenas.iter().any(|arena| arena.lock().space.is_any_mapped(address, bytes)) {
                let what = format!("device {}: {address:#x} has memory beside its previous mapping", device.ordinal);
                return Err(Error::new(Status::PANIC, what));
            }
        }
        if mapped != device.memory().mapped_totals.bytes() {
            let what = format!("device {}: {mapped} bytes are mapped, but counted otherwise", device.ordinal);
            return Err(Error::new(Status::PANIC, what));
        }
        if held != device.memory().held() {
            let what = format!(
                "device {}: {held} bytes are mapped, but {} are counted as held",
                device.ordinal,
                device.memory().held()
            );
            return Err(Error::new(Status::PANIC, what));
        }
    }
    Ok(())
}
