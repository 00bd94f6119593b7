//! The caching allocator of pinned host memory: a freed block is reused without a driver call.
//!
//! Requests are rounded up to size [`class`]es. Each [shard](shards) has a [slab cache](slab_cache) of each class, under
//! a lock that is held for a few nanoseconds; threads that allocate at the same time use different shards. A free finds
//! the slab by address in the [`map`], without a lock. A block that streams or graphs still use is deferred ([`uses`]);
//! deferred blocks are checked only when a slab cache has no free block. New memory is allocated by [`source`]; it
//! returns to the driver when the cache is emptied or memory is short.
//! docs/host_memory.md documents the behaviour for users.

pub mod background;
mod block_uses;
pub mod class;
mod map;
mod shards;
mod slab_cache;
mod source;
pub mod stats;
mod uses;

use super::{
    config::{self, Config},
    pointer,
};
use crate::{
    base::{cancellation, units::Bytes},
    driver::Span,
    error::{Context, Error, Result},
    runtime::{self, Runtime, names},
    status::Status,
    stream::Stream,
};
use map::SlabId;
use parking_lot::Mutex;
use shards::User;
use slab_cache::{FreeOutcome, Slab};
use stats::HostStats;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Serializes the allocation of slabs that hold several blocks, so that concurrent requests share one new slab.
static GROWTH: Mutex<()> = Mutex::new(());
static TRIMMING: Mutex<()> = Mutex::new(());

/// The size in bytes above which a free block is released to the driver. Updated when a slab is added and when the
/// settings change.
static MAX_CACHED_BLOCK: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether a block above [`MAX_CACHED_BLOCK`] was freed by a graph, on a thread that must not call the driver.
static TRIM_PENDING: AtomicBool = AtomicBool::new(false);
/// The largest block that shares a slab with other blocks.
const MAX_SHARED_BLOCK: u64 = 1 << 20;

/// Allocates pinned memory that every device can access, and returns its address; 0 for a size of 0.
#[inline]
pub fn host_alloc(bytes: u64) -> Result<u64> {
    let runtime = runtime::ready()?;
    if bytes == 0 {
        return Ok(0);
    }
    let Some(class) = class::of(bytes) else { return Err(too_large(bytes)) };
    let user = User::current();
    match shards::take(user, class) {
        Some(address) => Ok(address),
        None => alloc_slow(runtime, user, class, bytes),
    }
}

#[cold]
fn too_large(bytes: u64) -> Error {
    let request = Bytes(bytes);
    Error::new(
        Status::OUT_OF_MEMORY,
        format!("tried to allocate {request} of pinned host memory, more than a process can address"),
    )
}

#[cold]
fn alloc_slow(runtime: &Runtime, user: User, class: usize, bytes: u64) -> Result<u64> {
    let _uncancellable = cancellation::disable();
    let cached =
        || shards::take(user, class).or_else(|| shards::adopt(user.shard, class).then(|| shards::take(user, class))?);
    if uses::process_events(runtime, false)
        && let Some(address) = cached()
    {
        return Ok(address);
    }
    let _growth = (class::slots(class) > 1).then(|| GROWTH.lock());
    if let Some(address) = cached() {
        return Ok(address);
    }
    match grow(runtime, user, class) {
        Err(error) if error.status() == Status::OUT_OF_MEMORY => {}
        result => return result.context(|| describe_request(bytes)),
    }
    // Memory is short: use free blocks of other shards.
    if let Some(address) = shards::take_anywhere(user, class) {
        return Ok(address);
    }
    // First release the free slabs of other classes, then wait for deferred blocks, which may themselves satisfy the
    // request.
    trim(runtime)?;
    match grow(runtime, user, class) {
        Err(error) if error.status() == Status::OUT_OF_MEMORY => {}
        result => return result.context(|| describe_request(bytes)),
    }
    uses::process_events(runtime, true);
    if let Some(address) = shards::take_anywhere(user, class) {
        return Ok(address);
    }
    trim(runtime)?;
    grow(runtime, user, class).context(|| {
        let (reserved, active) = (stats::reserved_bytes(), shards::active_bytes());
        let request = describe_request(bytes);
        format!(
            "out of memory: {request}; plinth has reserved {} of pinned host memory, {} of which are in use, \
             and has released all free memory",
            Bytes(reserved),
            Bytes(active)
        )
    })
}

fn describe_request(bytes: u64) -> String {
    format!("tried to allocate {} of pinned host memory", Bytes(bytes))
}

/// Applies the settings.
pub fn configure(config: &Config) {
    let limit = config.pinned_max_cached_size_mb.saturating_mul(1 << 20);
    MAX_CACHED_BLOCK.store(if limit == 0 { u64::MAX } else { limit.max(MAX_SHARED_BLOCK) }, Ordering::Relaxed);
}

/// Adds a slab to a shard, and takes a block from it.
fn grow(runtime: &Runtime, user: User, class: usize) -> Result<u64> {
    let shard = user.shard;
    let config = config::get()?;
    configure(&config);
    let memory = source::allocate(runtime, &config, class::slab_bytes(class))?;
    let slab = Slab::new(class, memory);
    let number = shards::with(shard, |shard| shard.class(class).reserve_number());
    let id = SlabId { shard, class, number };
    if !map::insert(memory.address, memory.bytes, id) {
        shards::with(shard, |shard| shard.class(class).release_number(number));
        source::release(runtime, &memory)?;
        return Err(Error::new(
            Status::PANIC,
            format!("the driver returned the address {:#x}, which is outside the supported 48 bits", memory.address),
        ));
    }
    let address = shards::insert_and_take(user, id, slab);
    address.ok_or_else(|| Error::new(Status::PANIC, "a new slab has no free block"))
}

/// Frees a block of [`host_alloc`]; 0 is ignored.
#[inline]
pub fn host_free(address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let Some(runtime) = runtime::usable() else { return free_when_unusable(address) };
    let Some(id) = map::find(address) else { return Err(not_allocated(address)) };
    match shards::with(id.shard, |shard| shard.free(id, address)) {
        FreeOutcome::Freed => {
            if class::size(id.class) > MAX_CACHED_BLOCK.load(Ordering::Relaxed) {
                return release_oversized(runtime, id.class);
            }
        }
        FreeOutcome::Deferred => defer_free(runtime, address),
        FreeOutcome::NotLive => return Err(not_allocated(address)),
    }
    Ok(())
}

/// Releases free blocks that are too large to be cached. The free itself has succeeded, so errors are ignored; the
/// next such free tries again.
#[cold]
fn release_oversized(runtime: &Runtime, class: usize) -> Result<()> {
    let _uncancellable = cancellation::disable();
    let _ = trim_class(runtime, class);
    Ok(())
}

#[cold]
fn defer_free(runtime: &Runtime, address: u64) {
    let _uncancellable = cancellation::disable();
    names::forget_memory(address);
    uses::defer_free(runtime, address);
    background::notify();
}

/// Handles a free while the driver cannot be called. While the process exits, the block is left as it is.
#[cold]
fn free_when_unusable(address: u64) -> Result<()> {
    match runtime::check_usable() {
        Err(error) if error.status() == Status::SHUTTING_DOWN => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(not_allocated(address)),
    }
}

#[cold]
fn not_allocated(address: u64) -> Error {
    Error::new(
        Status::INVALID_POINTER,
        format!(
            "{address:#x} is not the start of a live block of plinth_host_alloc: it is {}",
            pointer::describe(address)
        ),
    )
}

/// Makes the free of the live block that contains an address known to [`defer_free`], which ends its name.
pub fn observe_free(address: u64) -> Result<()> {
    uses::observe_free(address)
}

/// Records that work in a stream uses a block. After its free, the block is not reused until that work has completed.
pub fn host_record_stream(address: u64, stream: Stream) -> Result<()> {
    let runtime = runtime::ready()?;
    if address == 0 { Ok(()) } else { uses::record(runtime, address, stream) }
}

/// Records that a copy or a fill in a stream uses memory, if the memory belongs to this allocator.
#[inline]
pub fn record_use(runtime: &Runtime, span: Span, stream: Stream) -> Result<()> {
    if map::may_contain(span.address()) && map::find(span.address()).is_some() {
        return record_own_use(runtime, span.address(), stream);
    }
    Ok(())
}

#[cold] // not rare, but out of line for copies without such memory
fn record_own_use(runtime: &Runtime, address: u64, stream: Stream) -> Result<()> {
    match uses::record(runtime, address, stream) {
        // The memory was freed: the copy is an error of the program, with or without a record.
        Err(error) if error.status() == Status::INVALID_POINTER => Ok(()),
        result => result,
    }
}

/// Returns the start and the size of the live block that contains an address.
pub fn host_block_at(address: u64) -> Option<(u64, u64)> {
    let id = map::find(address)?;
    let size = class::size(id.class);
    shards::with(id.shard, |shard| Some((shard.class(id.class).live_at(id.number, address, size)?, size)))
}

/// Returns whether an address is in memory of this allocator, live or free.
pub fn is_host_cached(address: u64) -> bool {
    map::may_contain(address)
        && map::find(address)
            .is_some_and(|id| shards::with(id.shard, |shard| shard.class(id.class).contains(id.number, address)))
}

/// Releases all wholly free slabs to the driver.
pub fn host_empty_cache() -> Result<()> {
    let runtime = runtime::ready()?;
    uses::process_events(runtime, false);
    trim(runtime).context(|| "releasing pinned host memory")
}

fn trim(runtime: &Runtime) -> Result<()> {
    // One thread at a time. Slabs that another thread is releasing are in no cache and not free yet, so a thread that
    // is short of memory waits here.
    let _trimming = TRIMMING.lock();
    let mut outcome = Ok(());
    for class in 0..class::CLASSES {
        outcome = outcome.and(trim_class(runtime, class));
    }
    outcome
}

/// Releases the wholly free slabs of a class to the driver.
fn trim_class(runtime: &Runtime, class: usize) -> Result<()> {
    shards::in_use().map(|shard| trim_class_of_shard(runtime, shard, class)).fold(Ok(()), Result::and)
}

fn trim_class_of_shard(runtime: &Runtime, shard: usize, class: usize) -> Result<()> {
    let mut outcome = Ok(());
    let free = shards::with(shard, |shard| shard.class(class).remove_free());
    for (number, slab) in free {
        let (memory, id) = (slab.memory, SlabId { shard, class, number });
        // Remove the map entry first: once the driver has the memory, the addresses may belong to another slab, and
        // this entry would hide a part of it.
        map::remove(memory.address, memory.bytes, id);
        match source::release(runtime, &memory) {
            Ok(()) => shards::with(shard, |shard| shard.class(class).release_number(number)),
            // The memory is unchanged, so the slab returns to its cache.
            Err(error) => {
                map::insert(memory.address, memory.bytes, id);
                shards::with(shard, |shard| shard.class(class).insert(number, slab));
                outcome = outcome.and(Err(error));
            }
        }
    }
    outcome
}

/// Returns the class of the block at an address, if its blocks are too large to be cached.
fn oversized_class(address: u64) -> Option<usize> {
    let class = map::find(address)?.class;
    (class::size(class) > MAX_CACHED_BLOCK.load(Ordering::Relaxed)).then_some(class)
}

/// Releases a block whose deferred free has completed, if it is too large to be cached.
fn after_deferred_free(runtime: &Runtime, address: u64) {
    if let Some(class) = oversized_class(address) {
        let _ = release_oversized(runtime, class);
    }
}

/// Does the same on a thread that must not call the driver: the release is left to the next call of [`trim_pending`].
fn after_graph_release(address: u64) {
    if oversized_class(address).is_some() {
        TRIM_PENDING.store(true, Ordering::Release);
    }
}

/// Releases the oversized blocks that graphs have freed.
fn trim_pending(runtime: &Runtime) {
    if TRIM_PENDING.load(Ordering::Relaxed) && TRIM_PENDING.swap(false, Ordering::Acquire) {
        let limit = MAX_CACHED_BLOCK.load(Ordering::Relaxed);
        for class in (0..class::CLASSES).filter(|class| class::size(*class) > limit) {
            let _ = release_oversized(runtime, class);
        }
    }
}

/// Returns all statistics.
pub fn host_memory_stats() -> Result<HostStats> {
    runtime::ready()?;
    Ok(stats::read())
}

/// Resets all peaks.
pub fn reset_peak_host_memory_stats() -> Result<()> {
    runtime::ready()?;
    stats::reset_peaks();
    Ok(())
}

/// Resets the accumulated counters.
pub fn reset_accumulated_host_memory_stats() -> Result<()> {
    runtime::ready()?;
    stats::reset_accumulated();
    Ok(())
}

/// Checks the allocator's structures for consistency, while no other thread of the program uses it.
pub fn check() -> Result<()> {
    // Keeps the background thread from processing deferred frees meanwhile.
    let _processing = uses::lock_processing();
    let inconsistent = |what: String| Error::new(Status::PANIC, format!("pinned memory: {what}"));
    let mut reserved = 0;
    for shard in shards::in_use() {
        let found = shards::with(shard, |shard| shard.check());
        reserved += found.map_err(|what| inconsistent(format!("shard {shard}: {what}")))?;
    }
    // The reserve counts as reserved from the beginning.
    if reserved > stats::reserved_bytes() {
        return Err(inconsistent(format!(
            "{reserved} bytes are in slabs, but {} are counted",
            stats::reserved_bytes()
        )));
    }
    Ok(())
}
