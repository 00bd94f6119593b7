//! The state of the process: which driver, which devices, and whether they are usable.
//!
//! Asking whether there is a device does not initialize the driver ([`availability`]); using one initializes the driver
//! and the library. A fork before leaves the child free to use the devices.

pub mod availability;
pub mod call_flags;
pub mod checked_stream;
pub mod device;
pub mod handle_pool;
pub mod names;
pub mod nvml;
pub mod per_device;
pub mod properties;
pub mod sync_debug;
pub mod tensor;
pub mod thread;

use crate::{
    base::{
        cancellation,
        log::{self, Level},
    },
    driver::{self, Driver, Kind, PointerInfo, Stream, StreamTable, codes, environment},
    error::{Context, Error, Result},
    status::Status,
};
use device::Device;
use once_cell::sync::OnceCell;
use parking_lot::ReentrantMutex;
use std::{
    cell::Cell,
    ffi::CStr,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering},
};

/// The process-wide state that exists once the driver is loaded. It is never dropped, because the driver must not be
/// called while the process exits.
pub struct Runtime {
    /// The table of driver calls.
    pub driver: Driver,
    /// The streams whose handles are known.
    pub streams: StreamTable,
    devices: Box<[Device]>,
}

/// The kind of device that the process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// NVIDIA GPUs.
    Cuda = 0,
    /// The built-in CPU device.
    Host = 1,
    /// GPUs if there are any, otherwise the CPU device.
    Auto = 2,
}

const UNLOADED: u8 = 0;
const LOADED: u8 = 1;
const READY: u8 = 2;
const FORKED: u8 = 3;
const EXITING: u8 = 4;

static RUNTIME: OnceCell<Runtime> = OnceCell::new();
/// The number of threads that are loading the driver, or wait for one that is.
static LOADING: AtomicU32 = AtomicU32::new(0);
static STATE: AtomicU8 = AtomicU8::new(UNLOADED);
/// Held by the thread that executes [`Startup::ready`], during which the value is true. No thread may hold another lock when
/// it initializes the library.
static STARTING: ReentrantMutex<Cell<bool>> = ReentrantMutex::new(Cell::new(false));
/// The argument of [`choose_kind`]; -1 if it was not called.
static CHOSEN: AtomicI32 = AtomicI32::new(-1);

/// Returns the runtime, and initializes the library first if necessary.
#[inline]
pub fn ready() -> Result<&'static Runtime> {
    if STATE.load(Ordering::Acquire) == READY
        && let Some(runtime) = RUNTIME.get()
    {
        return Ok(runtime);
    }
    initialize()
}

/// Returns the runtime if the library is initialized; for calls that have an answer before, such as 0 bytes. Fails only
/// if the library can never be used.
pub fn if_initialized() -> Result<Option<&'static Runtime>> {
    check_usable()?;
    Ok(if is_initialized() { RUNTIME.get() } else { None })
}

/// Returns the runtime if the driver is loaded.
fn loaded_already() -> Result<Option<&'static Runtime>> {
    check_usable()?;
    Ok(RUNTIME.get())
}

/// Returns the runtime, or `None` on a machine without devices; for calls that have an answer there, such as 0 bytes.
pub fn ready_if_any() -> Result<Option<&'static Runtime>> {
    match ready() {
        Err(error) if error.status() == Status::NO_DEVICE => Ok(None),
        ready => ready.map(Some),
    }
}

/// Returns the runtime if the driver may be called now; for code that only releases resources.
pub fn usable() -> Option<&'static Runtime> {
    matches!(STATE.load(Ordering::Acquire), LOADED | READY).then(|| RUNTIME.get()).flatten()
}

/// Returns whether the library is initialized and usable.
pub fn is_initialized() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

/// Returns whether the library is initialized. Waits for a thread that is initializing it.
pub fn is_initialized_or_starting() -> bool {
    is_initialized() || {
        let _started = STARTING.lock();
        is_initialized()
    }
}

/// What the layers above the runtime do as the library starts. [`crate::init`] sets it when the library is loaded.
pub struct Startup {
    /// Runs once the driver is loaded.
    pub loaded: fn(),
    /// Checks the environment before the first use of a device.
    pub check: fn() -> Result<()>,
    /// Runs before the library becomes ready, in one thread; others wait for it. After an error, the next call runs it again.
    pub ready: fn(&'static Runtime) -> Result<()>,
}

static STARTUP: OnceCell<Startup> = OnceCell::new();

/// Sets what happens at start-up; a second call changes nothing.
pub fn set_startup(startup: Startup) {
    let _ = STARTUP.set(startup);
}

fn startup() -> Result<&'static Startup> {
    STARTUP.get().ok_or_else(|| Error::new(Status::PANIC, "starting the library: it was called before it was loaded"))
}

static FAULTS_ENABLED: AtomicBool = AtomicBool::new(false);

/// Enables fault injection. Must be called before the driver is loaded.
pub fn enable_faults() -> Result<()> {
    if let Some(runtime) = usable() {
        return if runtime.driver.is_faulty() {
            Ok(())
        } else {
            Err(Error::new(
                Status::ALREADY_INITIALIZED,
                "enabling fault injection: a device was used or queried already; enable it before the first such call",
            ))
        };
    }
    FAULTS_ENABLED.store(true, Ordering::Release);
    Ok(())
}

/// Returns whether fault injection was enabled, by [`enable_faults`] or by `PLINTH_FAULT_INJECTION=1`.
pub fn are_faults_enabled() -> Result<bool> {
    const VARIABLE: &str = "PLINTH_FAULT_INJECTION";
    let value = environment::switch(VARIABLE, std::env::var_os(VARIABLE))?;
    Ok(FAULTS_ENABLED.load(Ordering::Acquire) || value == Some(true))
}

#[cold]
fn initialize() -> Result<&'static Runtime> {
    let _uncancellable = cancellation::disable();
    let runtime = loaded()?;
    if runtime.devices.is_empty() {
        return Err(driver::cuda::no_driver("the CUDA driver shows this process no device"));
    }
    let startup = startup()?;
    (startup.check)()?;
    let is_starting = STARTING.lock();
    // The start itself makes calls that need the runtime.
    if STATE.load(Ordering::Acquire) == READY || is_starting.get() {
        return Ok(runtime);
    }
    is_starting.set(true);
    let started = (startup.ready)(runtime);
    is_starting.set(false);
    started?;
    match STATE.compare_exchange(LOADED, READY, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(runtime),
        Err(state) => Err(unusable(state)),
    }
}

/// Returns the runtime with the driver loaded. Uses no device and creates no context.
pub fn loaded() -> Result<&'static Runtime> {
    match STATE.load(Ordering::Acquire) {
        UNLOADED | LOADED | READY => {}
        state => return Err(unusable(state)),
    }
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    LOADING.fetch_add(1, Ordering::AcqRel);
    let loaded = RUNTIME.get_or_try_init(|| {
        let runtime = Runtime::load()?;
        (startup()?.loaded)();
        // A process that began to exit meanwhile stays in that state.
        let _ = STATE.compare_exchange(UNLOADED, LOADED, Ordering::AcqRel, Ordering::Acquire);
        Ok(runtime)
    });
    LOADING.fetch_sub(1, Ordering::AcqRel);
    loaded
}

/// Fails if the library can never be used again: in a forked child, and in a process that is exiting.
pub fn check_usable() -> Result<()> {
    match STATE.load(Ordering::Acquire) {
        UNLOADED | LOADED | READY => Ok(()),
        state => Err(unusable(state)),
    }
}

/// The message of a call in a forked child.
pub const FORKED_CHILD: &CStr =
    c"this process was made by fork after its parent had begun to use the device, and CUDA cannot be used in such a \
      child; start it with exec (Python: the 'spawn' start method), or fork before the first use";

#[cold]
fn unusable(state: u8) -> Error {
    match state {
        FORKED => Error::new(Status::FORKED_CHILD, FORKED_CHILD.to_string_lossy()),
        _ => Error::new(Status::SHUTTING_DOWN, "the process is exiting; the driver is not called any more"),
    }
}

/// Records that the process is exiting, so that the driver is no longer called.
pub fn mark_exiting() {
    STATE.store(EXITING, Ordering::Release);
}

/// Records that this is a forked child, if its parent had loaded the driver or was about to. Returns whether it is one.
/// Takes no lock.
pub fn mark_forked() -> bool {
    let forked = STATE.load(Ordering::Acquire) != UNLOADED || LOADING.load(Ordering::Acquire) != 0;
    if forked {
        STATE.store(FORKED, Ordering::Release);
        call_flags::set_forked();
        driver::nvtx::forget();
    }
    forked
}

/// Returns whether this is a forked child of a process that had initialized the driver.
pub fn is_forked() -> bool {
    STATE.load(Ordering::Acquire) == FORKED
}

/// Chooses the kind of device. Must be called before the first use, and overrides `PLINTH_DEVICE`.
pub fn choose_kind(kind: DeviceKind) -> Result<()> {
    if let Some(runtime) = RUNTIME.get() {
        let same = match kind {
            DeviceKind::Cuda => runtime.driver.kind() == Kind::Cuda,
            DeviceKind::Host => runtime.driver.kind() == Kind::Host,
            DeviceKind::Auto => true,
        };
        return if same {
            Ok(())
        } else {
            Err(Error::new(
                Status::ALREADY_INITIALIZED,
                "the kind of device cannot change once a device was used or asked about",
            ))
        };
    }
    CHOSEN.store(kind as i32, Ordering::Release);
    Ok(())
}

fn chosen_kind() -> Result<DeviceKind> {
    match CHOSEN.load(Ordering::Acquire) {
        0 => return Ok(DeviceKind::Cuda),
        1 => return Ok(DeviceKind::Host),
        2 => return Ok(DeviceKind::Auto),
        _ => {}
    }
    match std::env::var_os("PLINTH_DEVICE").as_deref().map(|value| value.to_string_lossy()).as_deref() {
        None | Some("" | "cuda") => Ok(DeviceKind::Cuda),
        Some("host") => Ok(DeviceKind::Host),
        Some("auto") => Ok(DeviceKind::Auto),
        Some(other) => Err(Error::new(
            Status::INVALID_CONFIGURATION,
            format!("PLINTH_DEVICE is {other:?}; it can be cuda, host or auto"),
        )),
    }
}

impl Runtime {
    fn load() -> Result<Runtime> {
        match chosen_kind()? {
            DeviceKind::Cuda => Self::load_cuda(),
            DeviceKind::Host => Self::load_host(),
            DeviceKind::Auto => {
                let reason = match Self::load_cuda() {
                    Ok(runtime) if !runtime.devices.is_empty() => return Ok(runtime),
                    Ok(_) => "the CUDA driver shows this process no device".to_owned(),
                    Err(error) => error.to_string(),
                };
                log::log(Level::Info, || format!("the host device is used, because no GPU can be: {reason}"));
                Self::load_host()
            }
        }
    }

    fn load_cuda() -> Result<Runtime> {
        let driver = driver::cuda::load(are_faults_enabled()?)?;
        match driver.init() {
            Ok(()) => Self::with(driver),
            Err(failure) if failure.code == codes::CUDA_ERROR_STUB_LIBRARY => Err(Error::from(failure).context(
                "the libcuda that was found is the stub that CUDA's toolkit has for linking, not a driver; take \
                 the toolkit's stubs folder out of LD_LIBRARY_PATH",
            )),
            Err(failure) if failure.code == codes::CUDA_ERROR_NO_DEVICE => {
                Err(driver::cuda::no_driver("the CUDA driver shows this process no device"))
            }
            Err(failure) => Err(Error::from(failure).context("the CUDA driver did not start")),
        }
    }

    fn load_host() -> Result<Runtime> {
        let driver = Driver::new(Kind::Host, crate::host::table(), are_faults_enabled()?);
        if let Err(failure) = driver.init() {
            return Err(match crate::host::config_error() {
                Some(reason) => Error::new(Status::INVALID_CONFIGURATION, reason),
                None if failure.code == codes::CUDA_ERROR_NO_DEVICE => {
                    Error::new(Status::NO_DEVICE, "CUDA_VISIBLE_DEVICES shows this process no host device")
                }
                None => Error::from(failure).context("the host device did not start"),
            });
        }
        Self::with(driver)
    }

    fn with(driver: Driver) -> Result<Runtime> {
        let count = driver.device_count().context(|| "counting the devices")?;
        let count = usize::try_from(count).unwrap_or(0).min(thread::MAX_DEVICES);
        let devices = (0..count)
            .map(|ordinal| Ok(Device::new(ordinal as u32, driver.device(ordinal as i32)?)))
            .collect::<Result<_>>()
            .context(|| "listing the devices")?;
        Ok(Runtime { driver, streams: StreamTable::new(), devices })
    }

    /// Returns the devices that are visible to the process.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the device with this number; -1 means the thread's current one.
    pub fn device(&self, number: i32) -> Result<&Device> {
        let index = if number == -1 { thread::device() as usize } else { number as usize };
        self.devices.get(index).ok_or_else(|| properties::no_such_device_error(number, self.devices.len()))
    }

    /// Returns the thread's current device.
    pub fn current_device(&self) -> Result<&Device> {
        self.device(-1)
    }

    /// Runs `body`, which needs any driver context. If it fails because the thread has none, makes the context of the
    /// current device current and runs `body` again. A check in advance would cost every call, and most driver calls
    /// do not need a context.
    #[inline]
    pub fn in_any_context<T>(&self, mut body: impl FnMut(&Driver) -> Result<T>) -> Result<T> {
        match body(&self.driver) {
            Err(error) if error.driver_code() == codes::CUDA_ERROR_INVALID_CONTEXT => {
                self.attach(error)?;
                body(&self.driver)
            }
            result => result,
        }
    }

    /// Makes the current device's context current if the thread has none; otherwise returns `error`, which has
    /// another cause.
    #[cold]
    fn attach(&self, error: Error) -> Result<()> {
        if self.driver.current_context()?.is_some() {
            return Err(error);
        }
        let context = self.current_device()?.context(&self.driver)?;
        Ok(self.driver.set_current_context(context)?)
    }

    /// Returns what the driver reports about the memory at an address.
    pub fn pointer_info(&self, address: u64) -> Result<PointerInfo> {
        self.in_any_context(|driver| Ok(driver.pointer_info(address)?))
    }

    /// Runs `body` in the right context for work in `stream`. Any context works for a stream that is not a default
    /// stream; a default stream belongs to the current context.
    #[inline]
    pub fn in_stream<T>(
        &self,
        stream: checked_stream::Stream,
        mut body: impl FnMut(&Driver, Stream) -> Result<T>,
    ) -> Result<T> {
        if stream.is_default() {
            self.devices[stream.device() as usize].with_context(&self.driver, |driver| body(driver, stream.raw))
        } else {
            self.in_any_context(|driver| body(driver, stream.raw))
        }
    }
}
