//! Devices: choosing one, and what belongs to each.

use crate::{
    driver::{self, Driver},
    error::{Context, Error, Result},
    graph::context::CaptureStream,
    memory::DeviceMemory,
    ops::random::seed::DefaultGenerator,
    runtime::{
        self, Runtime,
        properties::{self, Properties},
        sync_debug, thread,
    },
    status::Status,
    stream::{StreamPools, event_pool::EventPool, kernel::Kernels},
};
use once_cell::sync::OnceCell;

/// A device and what plinth keeps for it. Its context and everything in it come into being at first use.
pub struct Device {
    /// Its number in this process.
    pub ordinal: u32,
    /// The driver's own number for it.
    pub native: i32,
    context: OnceCell<driver::Context>,
    properties: OnceCell<Properties>,
    /// The streams that are handed out in turn.
    pub streams: StreamPools,
    /// The stream that graphs are captured in for which none is named.
    pub capture_stream: CaptureStream,
    /// Events that wait to be used again.
    pub events: EventPool,
    /// The library's own kernels, loaded at first use.
    pub kernels: Kernels,
    /// The memory that plinth holds on it.
    pub memory: DeviceMemory,
    /// Its own generator of random numbers.
    pub generator: DefaultGenerator,
}

impl Device {
    /// A device of which nothing but its number is known yet.
    pub fn new(ordinal: u32, native: i32) -> Self {
        Device {
            ordinal,
            native,
            context: OnceCell::new(),
            properties: OnceCell::new(),
            streams: StreamPools::new(),
            capture_stream: CaptureStream::default(),
            events: EventPool::new(),
            kernels: Kernels::new(),
            memory: DeviceMemory::default(),
            generator: DefaultGenerator::default(),
        }
    }

    /// The device's primary context, made if need be.
    pub fn context(&self, driver: &Driver) -> Result<driver::Context> {
        self.context
            .get_or_try_init(|| {
                let context = driver.with_relaxed_capture(|| driver.primary_context(self.native))??;
                Ok(context)
            })
            .copied()
            .map_err(|error: Error| error.context(format_args!("making a context on device {}", self.ordinal)))
    }

    /// Whether the device has its context already, made by anyone.
    pub fn has_context(&self, driver: &Driver) -> Result<bool> {
        Ok(self.context.get().is_some() || driver.primary_context_is_active(self.native)?)
    }

    /// Everything that is known of the device.
    pub fn properties(&self, driver: &Driver) -> Result<&Properties> {
        self.properties.get_or_try_init(|| properties::read(driver, self.native))
    }

    /// Runs `body` with the device's context current, and leaves the thread with the context that it came with. A
    /// thread that came with none keeps this one: there is nobody to surprise, and its next call is cheaper.
    pub fn with_context<T>(&self, driver: &Driver, body: impl FnOnce(&Driver) -> Result<T>) -> Result<T> {
        let context = self.context(driver)?;
        let previous = driver.current_context()?;
        if previous == Some(context) {
            return body(driver);
        }
        driver.set_current_context(context)?;
        let result = body(driver);
        if let Some(previous) = previous
            && driver.set_current_context(previous).is_err()
        {
            // What was asked for is done, or has failed for its own reason, and saying otherwise would lose it. A
            // context that was current a moment ago can be set again unless the driver itself is lost, and then the
            // next call says so.
            let _ = driver.set_current_context(previous);
        }
        result
    }

    /// Makes this the thread's current device, to plinth and to the driver.
    pub fn make_current(&self, driver: &Driver) -> Result<()> {
        let context = self.context(driver)?;
        if driver.current_context()? != Some(context) {
            driver.set_current_context(context)?;
        }
        thread::set_device(self.ordinal);
        Ok(())
    }
}

/// How many devices there are; 0, and no error, where there is no driver.
pub fn count() -> Result<usize> {
    match runtime::loaded() {
        Ok(runtime) => Ok(runtime.devices().len()),
        Err(error) if error.status() == Status::NO_DEVICE => Ok(0),
        Err(error) => Err(error),
    }
}

/// The thread's current device.
#[inline]
pub fn current() -> Result<i32> {
    runtime::ready()?;
    Ok(thread::device() as i32)
}

/// Makes a device current; a negative number does nothing.
pub fn set(number: i32) -> Result<()> {
    exchange(number).map(drop)
}

/// Makes a device current and returns the one that was; a negative number changes nothing and returns -1.
pub fn exchange(number: i32) -> Result<i32> {
    if number < 0 {
        return Ok(-1);
    }
    let runtime = runtime::ready()?;
    let previous = thread::device() as i32;
    runtime.device(number)?.make_current(&runtime.driver)?;
    Ok(previous)
}

/// As [`exchange`], but never makes a context: where the device has none yet, only plinth's own idea of the current
/// device changes, and the driver follows at the first use.
pub fn maybe_exchange(number: i32) -> Result<i32> {
    if number < 0 {
        return Ok(-1);
    }
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let previous = thread::device() as i32;
    if device.has_context(&runtime.driver)? {
        device.make_current(&runtime.driver)?;
    } else {
        thread::set_device(device.ordinal);
    }
    Ok(previous)
}

/// Waits for all work on a device.
pub fn synchronize(number: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    sync_debug::check("plinth_synchronize")?;
    device
        .with_context(&runtime.driver, |driver| Ok(driver.context_synchronize()?))
        .context(|| format!("synchronizing device {}", device.ordinal))
}

/// Lets a profiler that waits for this record the current device's work, or end recording.
pub fn profile(start: bool) -> Result<()> {
    let runtime = runtime::ready()?;
    let record = |driver: &driver::Driver| if start { driver.profiler_start() } else { driver.profiler_stop() };
    let context = || if start { "beginning to profile" } else { "ending to profile" };
    runtime.current_device()?.with_context(&runtime.driver, |driver| Ok(record(driver)?)).context(context)
}

/// Free and total bytes of a device, all processes counted.
pub fn memory_info(number: i32) -> Result<(usize, usize)> {
    with(number, |_, driver| Ok(driver.memory_info()?))
}

/// Runs `body` in the context of the device with this number.
pub fn with<T>(number: i32, body: impl FnOnce(&'static Runtime, &Driver) -> Result<T>) -> Result<T> {
    let runtime = runtime::ready()?;
    runtime.device(number)?.with_context(&runtime.driver, |driver| body(runtime, driver))
}
