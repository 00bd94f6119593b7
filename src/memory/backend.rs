//! Allocator backends other than the caching allocator: the driver, the driver's memory pools, functions of the
//! program, and the debugging allocator.
//!
//! They add no cost to requests to the caching allocator. A request whose arena is in its thread's cache takes a block
//! of it; only other requests check the backend. While another backend is in use, no arena is cached. A free that finds
//! no block of an arena at an address looks here.
//!
//! The backend is chosen by the first request and does not change, except that caching can be switched off and on.

mod asynchronous;
mod debug;
mod pluggable;
mod registry;
mod uncached;

pub use pluggable::{allocator_of, create, destroy, set_hooks};
pub use registry::{reserved_bytes, totals};

use super::{
    arena::StreamUse,
    block::round,
    callbacks,
    config::{self, Config, Kind},
    grow::Request,
    peers,
    pool::PoolId,
    route,
    stats::Statistic,
    stats_aggregation,
};
use crate::{
    base::units::Bytes,
    driver::{Segment, Span, Stream, observer, plugin::Plugin},
    error::{Context, Error, Result},
    observe,
    runtime::{Runtime, device::Device, thread},
    status::Status,
    stream::{
        capture_lock,
        capture_status::{self, CaptureStatus},
    },
};
use once_cell::sync::OnceCell;
use parking_lot::{Mutex, ReentrantMutex};
use registry::Block;
use std::{
    cell::Cell,
    ffi::CStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Blocks that were freed while a stream that uses them was capturing.
static DEFERRED: Mutex<Vec<(u64, Block)>> = Mutex::new(Vec::new());
static CHOSEN: OnceCell<Kind> = OnceCell::new();
/// The plugin that the program chose instead of the backend in the settings.
static PLUGIN: OnceCell<Arc<Plugin>> = OnceCell::new();
static CACHING: AtomicBool = AtomicBool::new(true);
/// Whether the backend is initialized.
static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Returns whether a request was made, so that the backend can no longer change.
pub fn is_chosen() -> bool {
    CHOSEN.get().is_some()
}

/// Returns the backend in the settings, unless the program chose a plugin.
fn choice(config: &Config) -> Kind {
    if PLUGIN.get().is_some() { Kind::Pluggable } else { config.kind() }
}

/// Returns the backend for requests. The first call makes the choice final.
pub fn chosen(runtime: &Runtime) -> Result<Kind> {
    let kind = match CHOSEN.get() {
        Some(kind) => *kind,
        None => config::with(|config| *CHOSEN.get_or_init(|| choice(config)))?,
    };
    if !INITIALIZED.load(Ordering::Acquire) {
        initialize(runtime, kind);
    }
    Ok(if kind == Kind::Native && !CACHING.load(Ordering::Acquire) { Kind::Uncached } else { kind })
}

/// Initializes a backend before its first request. Requests of other threads wait for it; requests that the program's
/// own initialization function makes do not.
#[cold]
fn initialize(runtime: &Runtime, kind: Kind) {
    static INITIALIZING: ReentrantMutex<Cell<bool>> = ReentrantMutex::new(Cell::new(false));
    let initializing = INITIALIZING.lock();
    if initializing.replace(true) {
        return;
    }
    match (kind, PLUGIN.get()) {
        (Kind::Pluggable, Some(plugin)) => plugin.init(runtime.devices().len()),
        // No call announces that another device will access a block, so enable all peers now. A device whose peers
        // cannot be queried has none.
        (Kind::Debug, _) => drop(peers::add_all_peers()),
        _ => {}
    }
    INITIALIZED.store(true, Ordering::Release);
}

/// Returns the name of the backend that is, or would be, chosen.
pub fn name() -> Result<&'static CStr> {
    let kind = match CHOSEN.get() {
        Some(kind) => *kind,
        None => config::with(choice)?,
    };
    Ok(kind.name())
}

/// Switches caching on or off; without caching each request goes to the driver. Blocks are always freed the way they
/// were allocated.
pub fn enable_caching(enable: bool) {
    CACHING.store(enable, Ordering::Release);
    route::invalidate_arenas();
}

/// Returns whether caching is on.
pub fn is_caching() -> bool {
    CACHING.load(Ordering::Acquire)
}

/// Makes a plugin the backend. Possible once, and only before the first request.
pub fn change(plugin: Arc<Plugin>) -> Result<()> {
    config::with(|_| {
        if is_chosen() || PLUGIN.set(plugin).is_err() {
            return Err(Error::new(Status::ALREADY_INITIALIZED, "Can't swap an already initialized allocator"));
        }
        Ok(())
    })?
}

/// Returns the program's own allocator, if that is the backend.
fn plugin() -> Option<&'static Arc<Plugin>> {
    PLUGIN.get()
}

/// A request for another backend than the caching allocator.
struct BackendRequest<'a> {
    runtime: &'static Runtime,
    device: &'static Device,
    /// The stream, with the canonical handle.
    stream: Stream,
    /// The thread, if the handle denotes a different stream in each thread; otherwise 0.
    thread: u64,
    config: &'a Config,
    request: Request,
}

/// The memory of a block, which determines how it is freed.
#[derive(Debug)]
enum Owner {
    Uncached(Segment),
    Async,
    Plugin(Arc<Plugin>),
    Debug(debug::Mapping),
}

impl BackendRequest<'_> {
    fn stream_use(&self) -> StreamUse {
        StreamUse { stream: self.stream, device: self.device.ordinal, thread: self.thread }
    }

    /// Counts bytes as held. Returns whether the limit allows it.
    fn hold(&self, bytes: u64) -> Result<bool> {
        let memory = self.device.memory();
        let total = memory.total(self.device, &self.runtime.driver)?;
        Ok(memory.try_hold(bytes, memory.limit(total).unwrap_or(u64::MAX)))
    }

    /// Rejects requests in a capturing stream, which only the caching allocator supports. The device's context is
    /// current.
    fn check_capture(&self, kind: Kind) -> Result<()> {
        let name = kind.name().to_string_lossy();
        let status = capture_status::of(&self.runtime.driver, self.stream);
        match status.context(|| format!("querying whether the stream is capturing, where {name} cannot allocate"))? {
            CaptureStatus::None => Ok(()),
            _ => {
                let what = format!("the backend {name} cannot allocate in a stream that is capturing");
                Err(Error::new(Status::CAPTURE_FORBIDS, what))
            }
        }
    }

    /// Allocates a block, if there is memory for it.
    fn attempt(&self, kind: Kind) -> Result<Option<(u64, Owner)>> {
        if kind == Kind::Pluggable {
            // A plugin is the program's code: it runs in the caller's context.
            return Ok(pluggable::alloc(self));
        }
        self.device.with_context(&self.runtime.driver, |driver| {
            // In a capturing stream the driver's own allocation becomes part of the capture.
            let _held = (kind == Kind::Async).then(capture_lock::lock_shared);
            self.check_capture(kind)?;
            driver.with_relaxed_capture(|| match kind {
                Kind::Async => asynchronous::alloc(self),
                Kind::Debug => debug::alloc(self),
                _ => uncached::alloc(self),
            })?
        })
    }

    /// Allocates a block. If there is no memory, calls the program's callbacks and then releases cached memory.
    fn alloc(&self, kind: Kind) -> Result<(u64, Owner)> {
        free_deferred(self.runtime)?;
        let (device, request, memory) = (self.device, self.request, self.device.memory());
        let mut made = self.attempt(kind)?;
        let mut before = None;
        while made.is_none() && callbacks::free_memory(device.ordinal, request.requested) {
            let now = Some((memory.held(), device.memory_info(&self.runtime.driver)?.0));
            if now == before {
                break;
            }
            before = now;
            made = self.attempt(kind)?;
        }
        if made.is_none() {
            empty(self.runtime, kind)?;
            super::cache::empty(self.runtime)?;
            made = self.attempt(kind)?;
            if made.is_some() {
                memory.retries.increment();
            }
        }
        made.ok_or_else(|| {
            memory.ooms.increment();
            let shortage = stats_aggregation::backend_shortage(self.runtime, device, request, kind == Kind::Pluggable);
            callbacks::observe(device.ordinal, request.requested, shortage.total, shortage.free);
            Error::new(Status::OUT_OF_MEMORY, shortage.to_string())
        })
    }
}

/// Allocates from a backend other than the caching allocator.
#[cold]
pub fn alloc(kind: Kind, runtime: &'static Runtime, number: i32, stream: Stream, bytes: u64) -> Result<u64> {
    let device = runtime.device(number)?;
    let config = config::get()?;
    let Some(size) = round(bytes) else {
        let what = format!("tried to allocate {}: the size exceeds the address space", Bytes(bytes));
        return Err(Error::new(Status::OUT_OF_MEMORY, what));
    };
    let handle = route::canonical(stream.handle());
    let backend_request = BackendRequest {
        runtime,
        device,
        stream: if handle == 0 { Stream::DEFAULT } else { stream },
        thread: thread::of_stream(handle),
        config: &config,
        request: Request { size, requested: bytes },
    };
    let (address, owner) = observer::run_unobserved(|| backend_request.alloc(kind))?;
    let block = Block { owner, own: backend_request.stream_use(), size, requested: bytes, uses: Vec::new() };
    if observe::is_on() {
        // The driver waited for the device when this memory was freed before, so its earlier accesses are ordered.
        if matches!(block.owner, Owner::Uncached(_)) {
            observe::forget_accesses(address, size);
        }
        observe::on_alloc(block.block_info(address));
    }
    registry::insert(address, block, device);
    Ok(address)
}

/// Frees a block of a backend. Returns `None` if there is none at this address.
#[cold]
pub fn free(address: u64) -> Option<Result<()>> {
    let block = registry::remove(address)?;
    let Some(runtime) = crate::runtime::usable() else {
        // The process is exiting, and its memory with it.
        return Some(Ok(()));
    };
    if observe::is_on() {
        observe::on_free(block.block_info(address));
    }
    Some(observer::run_unobserved(|| {
        let later = free_deferred(runtime);
        give_back(runtime, address, block).and(later)
    }))
}

/// Frees a block through its backend. Defers the free if a stream that uses the block is capturing.
fn give_back(runtime: &Runtime, address: u64, block: Block) -> Result<()> {
    let Ok(device) = super::device_memory::device(runtime, block.own.device) else { return Ok(()) };
    match block.owner {
        Owner::Uncached(_) => uncached::free(runtime, device, address, block),
        Owner::Plugin(_) => pluggable::free(device, address, block),
        Owner::Debug(_) if block.has_capturing_stream(runtime) => later(address, block),
        Owner::Async => asynchronous::free(runtime, device, address, block),
        Owner::Debug(_) => debug::free(runtime, device, address, block),
    }
}

/// Counts memory that the driver has freed. If it failed, the block stays live.
fn finish_free(device: &Device, address: u64, block: Block, freed: Result<()>, what: &str) -> Result<()> {
    match freed {
        Ok(()) => {
            registry::record_driver_free(device, block.size, block.size);
            Ok(())
        }
        Err(error) => {
            registry::put_back(address, block, device);
            Err(error.context(what))
        }
    }
}

/// Returns a range of a block's mapping, for calls that end before the mapping is released.
fn block_span(address: u64, bytes: u64) -> Span {
    // SAFETY: the callers take the range from a block that they own, and release its mapping afterwards.
    #[allow(unsafe_code)]
    unsafe {
        Span::new(address, bytes as usize)
    }
}

/// Stores a freed block until no stream that uses it is capturing.
fn later(address: u64, block: Block) -> Result<()> {
    DEFERRED.lock().push((address, block));
    Ok(())
}

/// Frees the deferred blocks whose streams are no longer capturing.
fn free_deferred(runtime: &Runtime) -> Result<()> {
    let later = std::mem::take(&mut *DEFERRED.lock());
    let mut outcome = Ok(());
    for (address, block) in later {
        outcome = outcome.and(give_back(runtime, address, block));
    }
    outcome
}

/// Records that a stream uses a block of a backend. Returns whether there is one at this address.
#[cold]
pub fn record_stream(address: u64, stream_use: StreamUse) -> bool {
    let plugin = registry::with_block(address, |block| {
        if observe::is_on() {
            observe::on_record_stream(block.block_info(address), stream_use.stream, stream_use.device);
        }
        if let Owner::Plugin(plugin) = &block.owner {
            return Some(plugin.clone());
        }
        if block.own != stream_use && !block.uses.contains(&stream_use) {
            block.uses.push(stream_use);
        }
        None
    });
    // The program's code is called without any lock.
    if let Some(Some(plugin)) = &plugin {
        plugin.record_stream(address, stream_use.stream);
    }
    plugin.is_some()
}

/// Returns the start and the size in bytes of the block of a backend at an address.
pub fn block_at(address: u64) -> Option<(u64, u64)> {
    let found = registry::with_block(address, |block| block.size);
    let base = plugin().and_then(|plugin| plugin.base(address));
    base.or(found.map(|size| (address, size)))
}

/// Returns whether an address is that of a block of a backend.
pub fn has(address: u64) -> bool {
    registry::with_block(address, |_| ()).is_some()
}

/// Returns the start and the size in bytes of the block of a backend that contains an address.
pub fn around(address: u64) -> Option<(u64, u64)> {
    registry::block_containing(address)
}

/// Releases the memory that the backend in use caches.
pub fn empty_cache(runtime: &'static Runtime) -> Result<()> {
    match CHOSEN.get() {
        Some(kind) => empty(runtime, *kind),
        None => Ok(()),
    }
}

fn empty(runtime: &'static Runtime, kind: Kind) -> Result<()> {
    free_deferred(runtime)?;
    match kind {
        Kind::Native | Kind::Uncached => Ok(()),
        Kind::Async => asynchronous::empty(runtime),
        Kind::Pluggable => {
            if let Some(plugin) = plugin() {
                plugin.reset();
            }
            Ok(())
        }
        Kind::Debug => debug::empty(runtime),
    }
}

/// Notifies the program's allocator of a memory fraction that was set.
pub fn notify_fraction(fraction: f64, device: u32) {
    if let Some(plugin) = plugin() {
        plugin.set_fraction(fraction, device);
    }
}

/// An event of a pool that a program's allocator is notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolEvent {
    /// Requests are now routed to the pool.
    Begun,
    /// Requests are no longer routed to the pool.
    Ended,
    /// The pool lost a user.
    Released,
}

/// Notifies the program's allocator of an event of a pool.
pub fn notify_pool_event(event: PoolEvent, device: u32, pool: PoolId) {
    if let Some(plugin) = plugin() {
        let pair = crate::driver::plugin::PoolPair { owner: pool.owner, index: pool.index };
        match event {
            PoolEvent::Begun => plugin.begin_pool(device, pair),
            PoolEvent::Ended => plugin.end_pool(device, pair),
            PoolEvent::Released => plugin.release_pool(device, pair),
        }
    }
}

/// Resets the peaks of a device.
pub fn reset_peak(device: &Device, runtime: &Runtime) {
    device.memory().others.lock().reset_peak();
    asynchronous::reset_peak(device, runtime);
}

/// Returns the held bytes of the device and their peak, if the backend in use reports them itself.
pub fn held(device: &Device, runtime: &Runtime) -> Option<(u64, u64)> {
    (CHOSEN.get() == Some(&Kind::Async)).then(|| asynchronous::reserved_bytes(device, runtime)).flatten()
}
