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
pub use registry::reserved_bytes;

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
    base::{
        log,
        stack::{self, StackId},
        units::Bytes,
    },
    driver::{Segment, Span, Stream, observer, plugin::Plugin},
    error::{Context, Error, Result},
    observe,
    runtime::{Runtime, device::Device, names, thread::call_program},
    status::Status,
    stream::{
        self, capture_lock,
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

/// A freed block that the driver has not freed yet.
struct DeferredBlock {
    address: u64,
    block: Block,
    /// How often the driver has refused to free it.
    refusals: u32,
}

/// How often a deferred free is attempted, by different calls.
const MAX_REFUSALS: u32 = 3;

/// Blocks that were freed while a stream that uses them was capturing.
static DEFERRED: Mutex<Vec<DeferredBlock>> = Mutex::new(Vec::new());
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

/// Returns whether the memory of freed blocks may stay allocated outside of arenas.
pub fn may_keep_freed_memory() -> bool {
    !matches!(CHOSEN.get(), None | Some(Kind::Native | Kind::Uncached))
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
        (Kind::Pluggable, Some(plugin)) => call_program(|| plugin.init(runtime.devices().len())),
        // No call announces that another device will access a block, so enable all peers now. A device whose peers
        // cannot be queried has none.
        (Kind::Debug, _) => log::ignore(peers::add_all_peers(), "enabling access between devices"),
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

/// The outcome of a free: that of the check of the block, or the block if it is not freed because a driver call failed.
type Freed = std::result::Result<Result<()>, Box<(Block, Error)>>;

/// A request for another backend than the caching allocator.
struct BackendRequest<'a> {
    runtime: &'static Runtime,
    device: &'static Device,
    /// The stream, with the canonical handle.
    stream: Stream,
    config: &'a Config,
    request: Request,
}

/// The memory of a block, which determines how it is freed.
#[derive(Debug)]
enum Owner {
    Uncached(Segment),
    /// The driver's pool, or the graph of the capture with this ID.
    Async {
        capture: Option<u64>,
    },
    Plugin(Arc<Plugin>),
    Debug(debug::Mapping),
}

impl BackendRequest<'_> {
    fn stream_use(&self) -> StreamUse {
        StreamUse::new(stream::from_validated(self.runtime, self.stream, self.device.ordinal))
    }

    /// Counts bytes as held. Returns whether the limit allows it.
    fn hold(&self, bytes: u64) -> Result<bool> {
        let memory = self.device.memory();
        let total = memory.total(self.device, &self.runtime.driver)?;
        Ok(memory.try_hold(bytes, memory.limit(total).unwrap_or(u64::MAX)))
    }

    /// Returns the ID of the capture that the stream is part of. Fails if the backend cannot allocate in a capture: of
    /// the driver's allocations only those in stream order can become nodes of a graph. The device's context is current.
    fn check_capture(&self, kind: Kind) -> Result<Option<u64>> {
        let (driver, name) = (&self.runtime.driver, kind.name().to_string_lossy());
        let status = capture_status::of(driver, self.stream);
        match status.context(|| format!("querying whether the stream is capturing, before {name} allocates"))? {
            CaptureStatus::None => Ok(None),
            CaptureStatus::Active if kind == Kind::Async => capture_status::id_of(driver, self.stream),
            CaptureStatus::Invalidated if kind == Kind::Async => {
                let what = "allocating in a capture: an earlier error made the capture invalid; end it";
                Err(Error::new(Status::CAPTURE_INVALIDATED, what))
            }
            _ => {
                let what = format!(
                    "the backend {name} cannot allocate in a stream that is capturing; allocate before the capture, or \
                     use the backend native or cudaMallocAsync"
                );
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
            let capture = self.check_capture(kind)?;
            driver.with_relaxed_capture(|| match kind {
                Kind::Async => asynchronous::alloc(self, capture),
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
        config: &config,
        request: Request { size, requested: bytes },
    };
    let (address, owner) = observer::run_unobserved(|| backend_request.alloc(kind))?;
    let stack = if kind == Kind::Debug { stack::capture() } else { StackId::NONE };
    let block = Block {
        owner,
        own: backend_request.stream_use(),
        size,
        requested: bytes,
        uses: Vec::new(),
        name: None,
        stacks: [stack, StackId::NONE],
    };
    // Another library may have freed named memory at this address.
    names::forget_memory(address);
    if observe::is_on() {
        // The driver waited for the device when this memory was freed before, or orders it, as it is a graph's: earlier
        // accesses do not conflict.
        if matches!(block.owner, Owner::Uncached(_) | Owner::Async { capture: Some(_) }) {
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
    let mut block = registry::remove(address)?;
    if matches!(block.owner, Owner::Debug(_)) {
        block.stacks[1] = stack::capture();
    }
    let Some(runtime) = crate::runtime::usable() else {
        // The process is exiting, and its memory with it.
        return Some(Ok(()));
    };
    if observe::is_on() {
        observe::on_free(block.block_info(address));
    }
    names::forget_memory(address);
    Some(observer::run_unobserved(|| {
        let later = free_deferred(runtime);
        let freed = give_back(runtime, address, block).unwrap_or_else(|refused| {
            let (block, error) = *refused;
            if let Ok(device) = super::device_memory::device(runtime, block.own.device) {
                registry::put_back(address, block, device);
            }
            Err(error)
        });
        freed.and(later)
    }))
}

/// Frees a block through its backend. Defers the free if a stream that uses the block is capturing.
fn give_back(runtime: &Runtime, address: u64, block: Block) -> Freed {
    let Ok(device) = super::device_memory::device(runtime, block.own.device) else { return Ok(Ok(())) };
    match block.owner {
        Owner::Uncached(_) => uncached::free(runtime, device, block),
        Owner::Plugin(_) => pluggable::free(device, address, block),
        Owner::Debug(_) if waits_for_capture(runtime, &block) => later(address, block),
        Owner::Async { capture } => asynchronous::free(runtime, device, address, block, capture),
        Owner::Debug(_) => debug::free(runtime, device, address, block),
    }
}

/// Returns whether a stream that uses a block is capturing.
fn waits_for_capture(runtime: &Runtime, block: &Block) -> bool {
    let _held = capture_lock::lock_shared();
    block.has_capturing_stream(runtime)
}

/// Counts memory that the driver has freed. Returns the block if it failed.
fn finish_free(device: &Device, block: Block, freed: Result<()>, what: &str) -> Freed {
    match freed {
        Ok(()) => {
            registry::record_driver_free(device, block.size, block.size);
            Ok(Ok(()))
        }
        Err(error) => Err(Box::new((block, error.context(what)))),
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
fn later(address: u64, block: Block) -> Freed {
    DEFERRED.lock().push(DeferredBlock { address, block, refusals: 0 });
    Ok(Ok(()))
}

/// Frees the deferred blocks whose streams are no longer capturing. Returns what the checks of the blocks found. A failure
/// of the driver is no error of the call that happens to be made now: the block is tried again by later calls, and if the
/// driver always refuses, its memory stays reserved, and the failure is logged.
fn free_deferred(runtime: &Runtime) -> Result<()> {
    let deferred = std::mem::take(&mut *DEFERRED.lock());
    let mut outcome = Ok(());
    for DeferredBlock { address, block, refusals } in deferred {
        match give_back(runtime, address, block) {
            Ok(checked) => outcome = outcome.and(checked),
            Err(refused) => {
                let (block, error) = *refused;
                if refusals + 1 < MAX_REFUSALS {
                    DEFERRED.lock().push(DeferredBlock { address, block, refusals: refusals + 1 });
                } else {
                    let bytes = Bytes(block.size);
                    log::log(log::Level::Error, || {
                        format!(
                            "freeing {bytes} at {address:#x}, which was deferred; the memory stays reserved: {error}"
                        )
                    });
                }
            }
        }
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
        call_program(|| plugin.record_stream(address, stream_use.stream));
    }
    plugin.is_some()
}

/// Returns the start and the size in bytes of the block of a backend at an address.
pub fn block_at(address: u64) -> Option<(u64, u64)> {
    let found = registry::with_block(address, |block| block.size);
    let base = plugin().and_then(|plugin| call_program(|| plugin.base(address)));
    base.or(found.map(|size| (address, size)))
}

/// Returns whether an address is that of a block of a backend.
pub fn has(address: u64) -> bool {
    registry::with_block(address, |_| ()).is_some()
}

/// Returns the start and the size in bytes of the block of a backend that contains an address, and the stack of its
/// allocation if memory debugging is on.
pub fn around(address: u64) -> Option<(u64, u64, StackId)> {
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
                call_program(|| plugin.reset());
            }
            Ok(())
        }
        Kind::Debug => debug::empty(runtime),
    }
}

/// Notifies the program's allocator of a memory fraction that was set.
pub fn notify_fraction(fraction: f64, device: u32) {
    if let Some(plugin) = plugin() {
        call_program(|| plugin.set_fraction(fraction, device));
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
        call_program(|| match event {
            PoolEvent::Begun => plugin.begin_pool(device, pair),
            PoolEvent::Ended => plugin.end_pool(device, pair),
            PoolEvent::Released => plugin.release_pool(device, pair),
        });
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
