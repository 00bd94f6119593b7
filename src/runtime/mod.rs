//! The state of the process: which driver, which devices, and whether they may be used.
//!
//! Loading and initialising are told apart, as torch tells them apart: asking whether there is a device loads the
//! driver; using one initialises the library.

pub mod device;
pub mod handle_pool;
pub mod properties;
pub mod sync_debug;
pub mod tensor;
pub mod thread;

use crate::{
    driver::{self, Driver, Kind, PointerInfo, Stream, StreamTable, codes},
    error::{Context, Error, Result},
    init::{process, testing},
    ops::random,
    sanitizer,
    status::Status,
};
use device::Device;
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

/// Everything that stands once the driver is loaded. It is never dropped: a driver must not be called while the
/// process exits.
pub struct Runtime {
    /// The gate to the devices.
    pub driver: Driver,
    /// The streams whose handles are known.
    pub streams: StreamTable,
    devices: Box<[Device]>,
}

/// How the process chooses its kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// NVIDIA GPUs.
    Cuda = 0,
    /// The built-in CPU device.
    Host = 1,
    /// GPUs where there are any, else the CPU device.
    Auto = 2,
}

const UNLOADED: u8 = 0;
const LOADED: u8 = 1;
const READY: u8 = 2;
const FORKED: u8 = 3;
const EXITING: u8 = 4;

static RUNTIME: OnceCell<Runtime> = OnceCell::new();
static STATE: AtomicU8 = AtomicU8::new(UNLOADED);
/// What [`choose_kind`] was told; -1 while it was not.
static CHOSEN: AtomicI32 = AtomicI32::new(-1);

/// The runtime, initialised by now at the latest.
#[inline]
pub fn ready() -> Result<&'static Runtime> {
    if STATE.load(Ordering::Acquire) == READY
        && let Some(runtime) = RUNTIME.get()
    {
        return Ok(runtime);
    }
    initialize()
}

/// The runtime if it may be used at this moment, for those who would only give something back.
pub fn usable() -> Option<&'static Runtime> {
    matches!(STATE.load(Ordering::Acquire), LOADED | READY).then(|| RUNTIME.get()).flatten()
}

/// Whether the library is initialised and usable.
pub fn is_initialized() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

#[cold]
fn initialize() -> Result<&'static Runtime> {
    let runtime = loaded()?;
    if runtime.devices.is_empty() {
        return Err(driver::cuda::no_driver("the CUDA driver shows this process no device"));
    }
    let sanitizer = sanitizer::wanted()?;
    match STATE.compare_exchange(LOADED, READY, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            sanitizer::begin(sanitizer)?;
            random::seed::apply_pending(runtime)?;
            Ok(runtime)
        }
        Err(READY) => Ok(runtime),
        Err(state) => Err(unusable(state)),
    }
}

/// The runtime with the driver loaded. Uses no device and makes no context.
pub fn loaded() -> Result<&'static Runtime> {
    match STATE.load(Ordering::Acquire) {
        UNLOADED | LOADED | READY => {}
        state => return Err(unusable(state)),
    }
    RUNTIME.get_or_try_init(|| {
        let runtime = Runtime::load()?;
        process::register();
        // A process that began to exit meanwhile stays in that state.
        let _ = STATE.compare_exchange(UNLOADED, LOADED, Ordering::AcqRel, Ordering::Acquire);
        Ok(runtime)
    })
}

/// Fails where the library can never be used any more: in a forked child, and in a process that is exiting.
pub fn check_usable() -> Result<()> {
    match STATE.load(Ordering::Acquire) {
        UNLOADED | LOADED | READY => Ok(()),
        state => Err(unusable(state)),
    }
}

#[cold]
fn unusable(state: u8) -> Error {
    match state {
        FORKED => Error::new(
            Status::FORKED_CHILD,
            "this process was made by fork after its parent had begun to use the device, and CUDA cannot be used in \
             such a child; start it with exec (Python: the 'spawn' start method), or fork before the first use",
        ),
        _ => Error::new(Status::SHUTTING_DOWN, "the process is exiting; the driver is not called any more"),
    }
}

/// Notes that the process is exiting: from now on the driver is left alone.
pub fn mark_exiting() {
    STATE.store(EXITING, Ordering::Release);
}

/// Notes that this is a child of a fork, if its parent had loaded the driver.
pub fn mark_forked() {
    if matches!(STATE.load(Ordering::Acquire), LOADED | READY) {
        STATE.store(FORKED, Ordering::Release);
    }
}

/// Chooses the kind of device before the first use; see `PLINTH_DEVICE` for the choice by environment.
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
            DeviceKind::Auto => match Self::load_cuda() {
                Ok(runtime) if !runtime.devices.is_empty() => Ok(runtime),
                _ => Self::load_host(),
            },
        }
    }

    fn load_cuda() -> Result<Runtime> {
        let driver = driver::cuda::load(testing::faults_wanted())?;
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
        let driver = Driver::new(Kind::Host, driver::Table::host(), testing::faults_wanted());
        if let Err(failure) = driver.init() {
            return Err(match driver::host::config_error() {
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

    /// The devices that the process may see.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The device with this number; -1 is the thread's current one.
    pub fn device(&self, number: i32) -> Result<&Device> {
        let index = if number == -1 { thread::device() as usize } else { number as usize };
        self.devices.get(index).ok_or_else(|| properties::no_such_device(number, self.devices.len()))
    }

    /// The thread's current device.
    pub fn current_device(&self) -> Result<&Device> {
        self.device(-1)
    }

    /// Runs `body`, which needs some driver context, no matter which. A thread that has none gets that of its current
    /// device, and `body` a second chance: asking first would cost every call, and most drivers do not even mind.
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

    /// Gives the thread a context if it has none; if it has one, `error` was about something else.
    #[cold]
    fn attach(&self, error: Error) -> Result<()> {
        if self.driver.current_context()?.is_some() {
            return Err(error);
        }
        let context = self.current_device()?.context(&self.driver)?;
        Ok(self.driver.set_current_context(context)?)
    }

    /// What the driver knows of the memory at an address.
    pub fn pointer_info(&self, address: u64) -> Result<PointerInfo> {
        self.in_any_context(|driver| Ok(driver.pointer_info(address)?))
    }

    /// Runs `body` in the right context for work in `stream`: any will do for a stream with an identity of its own,
    /// but a default stream is that of whichever context is current.
    #[inline]
    pub fn in_stream<T>(
        &self,
        stream: crate::stream::Stream,
        mut body: impl FnMut(&Driver, Stream) -> Result<T>,
    ) -> Result<T> {
        if stream.is_default() {
            self.devices[stream.device as usize].with_context(&self.driver, |driver| body(driver, stream.raw))
        } else {
            self.in_any_context(|driver| body(driver, stream.raw))
        }
    }
}
