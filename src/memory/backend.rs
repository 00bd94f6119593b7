//! Who gives memory out, where it is not the caching allocator: the driver itself, the driver's own pools, functions of the
//! program's, or the debugging allocator.
//!
//! None of them is on the way of a request to the caching allocator. A request that meets an arena which its thread
//! remembers takes a block of it; only one that does not is asked who it is for. While another backend is in use no arena
//! is remembered. A free that finds no block of an arena's at an address looks here.
//!
//! The backend is chosen with the first request and stays, but that caching may be switched off and on.

mod asynchronous;
mod debug;
mod pluggable;
mod registry;
mod uncached;

pub use asynchronous::DevicePool;
pub use pluggable::{allocator_of, create, destroy, set_hooks};
pub use registry::{check as check_book, totals};

use super::{
    arena::Use,
    callbacks,
    config::{self, Config},
    grow::Request,
    pool::PoolId,
    route,
    space::round,
    stats_aggregation,
};
use crate::{
    base::units::Bytes,
    driver::{
        Segment, Stream, observer,
        plugin::Plugin,
        types::{CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_PER_THREAD},
    },
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, thread},
    sanitizer,
    status::Status,
    stream::capture_lock,
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

/// Who gives memory out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The caching allocator.
    Native,
    /// The driver's pools, in stream order.
    Async,
    /// The driver, each time.
    Uncached,
    /// Functions of the program's.
    Pluggable,
    /// Each block a mapping of its own.
    Debug,
}

impl Kind {
    /// As torch.cuda.get_allocator_backend names it, and plinth's own in the same way.
    pub fn name(self) -> &'static CStr {
        match self {
            Kind::Native => c"native",
            Kind::Async => c"cudaMallocAsync",
            Kind::Uncached => c"uncached",
            Kind::Pluggable => c"pluggable",
            Kind::Debug => c"debug",
        }
    }
}

/// Blocks that were freed while a stream that uses them was capturing.
static LATER: Mutex<Vec<(u64, Block)>> = Mutex::new(Vec::new());
static CHOSEN: OnceCell<Kind> = OnceCell::new();
/// What the program chose instead of what the settings say.
static CHANGED: OnceCell<Arc<Plugin>> = OnceCell::new();
static CACHING: AtomicBool = AtomicBool::new(true);
/// Whether the backend has what it needs before its first request.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether requests have been made already, so that the backend stays what it is.
pub fn is_chosen() -> bool {
    CHOSEN.get().is_some()
}

/// Whoever the settings choose, unless the program did.
fn choice(config: &Config) -> Kind {
    if CHANGED.get().is_some() { Kind::Pluggable } else { config.kind() }
}

/// Who gives memory out, chosen now at the latest.
pub fn chosen(runtime: &Runtime) -> Result<Kind> {
    let kind = match CHOSEN.get() {
        Some(kind) => *kind,
        None => config::with(|config| *CHOSEN.get_or_init(|| choice(config)))?,
    };
    if !BEGUN.load(Ordering::Acquire) {
        begin(runtime, kind);
    }
    Ok(if kind == Kind::Native && !CACHING.load(Ordering::Acquire) { Kind::Uncached } else { kind })
}

/// What a backend needs once, before its first request. Requests of other threads wait for it; those that the program's own
/// function makes here do not.
#[cold]
fn begin(runtime: &Runtime, kind: Kind) {
    static BEGINNING: ReentrantMutex<Cell<bool>> = ReentrantMutex::new(Cell::new(false));
    let beginning = BEGINNING.lock();
    if beginning.replace(true) {
        return;
    }
    match (kind, CHANGED.get()) {
        (Kind::Pluggable, Some(plugin)) => plugin.init(runtime.devices().len()),
        // Nobody is told of a block that another device will want to reach. One that cannot be asked cannot reach any.
        (Kind::Debug, _) => drop(super::add_all_peers()),
        _ => {}
    }
    BEGUN.store(true, Ordering::Release);
}

/// Who gives memory out, or will when the first request comes.
pub fn name() -> Result<&'static CStr> {
    let kind = match CHOSEN.get() {
        Some(kind) => *kind,
        None => config::with(choice)?,
    };
    Ok(kind.name())
}

/// Switches caching off, so that each request goes to the driver, or on again. Blocks that were given out before are freed
/// as they were allocated.
pub fn enable_caching(enable: bool) {
    CACHING.store(enable, Ordering::Release);
    route::forget();
}

/// Whether caching is on.
pub fn is_caching() -> bool {
    CACHING.load(Ordering::Acquire)
}

/// Makes a plugin the backend, once, and before any request.
pub fn change(plugin: Arc<Plugin>) -> Result<()> {
    config::with(|_| {
        if is_chosen() || CHANGED.set(plugin).is_err() {
            return Err(Error::new(Status::ALREADY_INITIALIZED, "Can't swap an already initialized allocator"));
        }
        Ok(())
    })?
}

/// The program's own allocator, where that is the backend.
fn plugin() -> Option<&'static Arc<Plugin>> {
    CHANGED.get()
}

/// A request that no arena is for.
struct Place<'a> {
    runtime: &'static Runtime,
    device: &'static Device,
    /// The stream, by the one name that it has here.
    stream: Stream,
    /// The thread, where the handle means another stream in each; otherwise 0.
    thread: u64,
    config: &'a Config,
    request: Request,
}

/// What a block is made of, and so who takes it back.
#[derive(Debug)]
enum Owner {
    Uncached(Segment),
    Async,
    Plugin(Arc<Plugin>),
    Debug(debug::Mapping),
}

impl Place<'_> {
    fn own_use(&self) -> Use {
        Use { stream: self.stream, device: self.device.ordinal, thread: self.thread }
    }

    /// Counts bytes as held, if the limit allows.
    fn hold(&self, bytes: u64) -> Result<bool> {
        let memory = &self.device.memory;
        let total = memory.total(self.device, &self.runtime.driver)?;
        Ok(memory.try_hold(bytes, memory.limit(total).unwrap_or(u64::MAX)))
    }

    /// Refuses what only the caching allocator can do. The device's context is current.
    fn check_capture(&self, kind: Kind) -> Result<()> {
        let name = kind.name().to_string_lossy();
        let status = self.runtime.driver.stream_capture_status(self.stream);
        match status.context(|| format!("asking whether the stream captures, for which {name} allocates nothing"))? {
            CU_STREAM_CAPTURE_STATUS_NONE => Ok(()),
            _ => {
                let what = format!("the stream is capturing, and the backend {name} allocates for no capture");
                Err(Error::new(Status::CAPTURE_FORBIDS, what))
            }
        }
    }

    /// A block, if there is memory for one.
    fn attempt(&self, kind: Kind) -> Result<Option<(u64, Owner)>> {
        if kind == Kind::Pluggable {
            // Somebody else's code: it runs in the context that its caller has.
            return Ok(pluggable::alloc(self));
        }
        self.device.with_context(&self.runtime.driver, |driver| {
            // The driver's own allocation belongs to the capture that its stream is in.
            let _held = (kind == Kind::Async).then(capture_lock::lock_shared);
            self.check_capture(kind)?;
            driver.with_relaxed_capture(|| match kind {
                Kind::Async => asynchronous::alloc(self),
                Kind::Debug => debug::alloc(self),
                _ => uncached::alloc(self),
            })?
        })
    }

    /// A block; with what the program can free, and with what lies idle, if there is no memory.
    fn alloc(&self, kind: Kind) -> Result<(u64, Owner)> {
        finish_later(self.runtime)?;
        let (device, request, memory) = (self.device, self.request, &self.device.memory);
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
                memory.retries.one();
            }
        }
        made.ok_or_else(|| {
            memory.ooms.one();
            let shortage = stats_aggregation::shortage_elsewhere(self.runtime, device, request);
            callbacks::observe(device.ordinal, request.requested, shortage.total, shortage.free);
            Error::new(Status::OUT_OF_MEMORY, shortage.to_string())
        })
    }
}

/// Allocates from another backend than the caching allocator.
#[cold]
pub fn alloc(kind: Kind, runtime: &'static Runtime, number: i32, stream: Stream, bytes: u64) -> Result<u64> {
    let device = runtime.device(number)?;
    let config = config::get()?;
    let Some(size) = round(bytes) else {
        let what = format!("tried to allocate {}, more than there are addresses", Bytes(bytes));
        return Err(Error::new(Status::OUT_OF_MEMORY, what));
    };
    let handle = route::canonical(stream.handle());
    let place = Place {
        runtime,
        device,
        stream: if handle == 0 { Stream::DEFAULT } else { stream },
        thread: if handle == CU_STREAM_PER_THREAD { thread::number() } else { 0 },
        config: &config,
        request: Request { size, requested: bytes },
    };
    let (address, owner) = observer::unseen(|| place.alloc(kind))?;
    let block = Block { owner, own: place.own_use(), size, requested: bytes, uses: Vec::new() };
    if sanitizer::is_on() {
        // The driver waited for the device when it got this memory back, whoever had it then.
        if matches!(block.owner, Owner::Uncached(_)) {
            sanitizer::forget_accesses(address, size);
        }
        sanitizer::allocated(block.owned(address));
    }
    registry::enter(address, block, device);
    Ok(address)
}

/// Frees a block of a backend's; `None` if there is none at this address.
#[cold]
pub fn free(address: u64) -> Option<Result<()>> {
    let block = registry::leave(address)?;
    let Some(runtime) = crate::runtime::usable() else {
        // The process is exiting, and its memory goes with it.
        return Some(Ok(()));
    };
    if sanitizer::is_on() {
        sanitizer::freed(block.owned(address));
    }
    Some(observer::unseen(|| {
        let later = finish_later(runtime);
        give_back(runtime, address, block).and(later)
    }))
}

/// Gives a block back to whoever it is from; later, if a stream that uses it is capturing and that cannot be done now.
fn give_back(runtime: &Runtime, address: u64, block: Block) -> Result<()> {
    let Ok(device) = super::device_memory::device(runtime, block.own.device) else { return Ok(()) };
    match block.owner {
        Owner::Uncached(_) => uncached::free(runtime, device, address, block),
        Owner::Plugin(_) => pluggable::free(device, address, block),
        Owner::Debug(_) if block.waits_for_a_capture(runtime) => later(address, block),
        Owner::Async => asynchronous::free(runtime, device, address, block),
        Owner::Debug(_) => debug::free(runtime, device, address, block),
    }
}

/// Keeps a block that was freed until no stream that uses it is capturing.
fn later(address: u64, block: Block) -> Result<()> {
    LATER.lock().push((address, block));
    Ok(())
}

/// Gives back what was freed while a stream was capturing that is so no longer.
fn finish_later(runtime: &Runtime) -> Result<()> {
    let later = std::mem::take(&mut *LATER.lock());
    let mut outcome = Ok(());
    for (address, block) in later {
        outcome = outcome.and(give_back(runtime, address, block));
    }
    outcome
}

/// Notes that a stream uses a block of a backend's. Whether there is one at this address.
#[cold]
pub fn record_stream(address: u64, wanted: Use) -> bool {
    let plugin = registry::with(address, |block| {
        if sanitizer::is_on() {
            sanitizer::recorded(block.owned(address), wanted.stream, wanted.device);
        }
        if let Owner::Plugin(plugin) = &block.owner {
            return Some(plugin.clone());
        }
        if block.own != wanted && !block.uses.contains(&wanted) {
            block.uses.push(wanted);
        }
        None
    });
    // The program's code is called with nothing held.
    if let Some(Some(plugin)) = &plugin {
        plugin.record_stream(address, wanted.stream);
    }
    plugin.is_some()
}

/// Where the block of a backend's at an address begins, and its bytes.
pub fn block_at(address: u64) -> Option<(u64, u64)> {
    let found = registry::with(address, |block| block.size);
    let told = plugin().and_then(|plugin| plugin.base(address));
    told.or(found.map(|size| (address, size)))
}

/// Whether an address is that of a block of a backend's.
pub fn has(address: u64) -> bool {
    registry::with(address, |_| ()).is_some()
}

/// The block of a backend's that an address lies in: where it begins, and its bytes.
pub fn around(address: u64) -> Option<(u64, u64)> {
    registry::around(address)
}

/// Gives back to the driver what the backend in use keeps.
pub fn empty_cache(runtime: &'static Runtime) -> Result<()> {
    match CHOSEN.get() {
        Some(kind) => empty(runtime, *kind),
        None => Ok(()),
    }
}

fn empty(runtime: &'static Runtime, kind: Kind) -> Result<()> {
    finish_later(runtime)?;
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

/// Tells the program's allocator of a fraction that was set.
pub fn fraction_set(fraction: f64, device: u32) {
    if let Some(plugin) = plugin() {
        plugin.set_fraction(fraction, device);
    }
}

/// What a program's allocator is told of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolNews {
    /// Requests begin to go to it.
    Begun,
    /// They do so no longer.
    Ended,
    /// It has lost a user.
    Released,
}

/// Tells the program's allocator of a pool.
pub fn tell_of_pool(news: PoolNews, device: u32, pool: PoolId) {
    if let Some(plugin) = plugin() {
        let pair = crate::driver::plugin::PoolPair { owner: pool.owner, index: pool.index };
        match news {
            PoolNews::Begun => plugin.begin_pool(device, pair),
            PoolNews::Ended => plugin.end_pool(device, pair),
            PoolNews::Released => plugin.release_pool(device, pair),
        }
    }
}

/// Lets the peaks of a device begin again.
pub fn reset_peak(device: &Device, runtime: &Runtime) {
    device.memory.others.lock().reset_peaks();
    asynchronous::reset_peak(device, runtime);
}

/// Bytes of the device that are held, as the backend in use tells it.
pub fn held(device: &Device, runtime: &Runtime) -> Option<(u64, u64)> {
    (CHOSEN.get() == Some(&Kind::Async)).then(|| asynchronous::held(device, runtime)).flatten()
}
