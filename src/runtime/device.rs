//! Devices: the state of each device, and the current device.

use crate::{
    base::cancellation,
    driver::{self, Driver},
    error::{Context, Error, Result},
    runtime::{
        self, Runtime,
        properties::{self, Properties},
        thread,
    },
};
use once_cell::sync::OnceCell;

/// The state of one device. Its context and everything in it are created at first use.
pub struct Device {
    /// The device's number in this process.
    pub ordinal: u32,
    /// The driver's number for the device.
    pub native: i32,
    context: OnceCell<driver::Context>,
    properties: OnceCell<Properties>,
}

impl Device {
    /// Creates the state of a device; calls nothing of the driver.
    pub fn new(ordinal: u32, native: i32) -> Self {
        Device { ordinal, native, context: OnceCell::new(), properties: OnceCell::new() }
    }

    /// Returns the device's primary context, and retains it first if necessary.
    pub fn context(&self, driver: &Driver) -> Result<driver::Context> {
        self.context
            .get_or_try_init(|| {
                let _uncancellable = cancellation::disable();
                let context = driver.with_relaxed_capture(|| driver.primary_context(self.native))??;
                Ok(context)
            })
            .copied()
            .map_err(|error: Error| error.context(format_args!("creating a context on device {}", self.ordinal)))
    }

    /// Returns whether the device's primary context is active, in this library or elsewhere in the process.
    pub fn has_context(&self, driver: &Driver) -> Result<bool> {
        Ok(self.context.get().is_some() || driver.primary_context_is_active(self.native)?)
    }

    /// Returns the device's properties, read at first use.
    pub fn properties(&self, driver: &Driver) -> Result<&Properties> {
        self.properties.get_or_try_init(|| properties::read(driver, self.native))
    }

    /// Runs `body` with the device's context current, then restores the thread's previous context. If there was none,
    /// the device's context stays current: that surprises no other code and makes the thread's next call cheaper.
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
            // The result of `body` is returned in every case, because an error here would hide it. A context that was
            // current a moment ago can be set again unless the driver has failed, and then the next call reports
            // that.
            let _ = driver.set_current_context(previous);
        }
        result
    }

    /// Runs `body` with the thread's context, whatever it is, or with the device's if there is none. For calls that need a context
    /// and do not say so: libcuda reads an illegal address without one.
    pub fn with_some_context<T>(&self, driver: &Driver, body: impl FnOnce(&Driver) -> Result<T>) -> Result<T> {
        match driver.current_context()? {
            Some(_) => body(driver),
            None => self.with_context(driver, body),
        }
    }

    /// Makes this the thread's current device, for plinth and for the driver.
    pub fn make_current(&self, driver: &Driver) -> Result<()> {
        let context = self.context(driver)?;
        if driver.current_context()? != Some(context) {
            driver.set_current_context(context)?;
        }
        thread::set_device(self.ordinal);
        Ok(())
    }
}

/// Returns the thread's current device.
#[inline]
pub fn current() -> Result<i32> {
    runtime::ready()?;
    Ok(thread::device() as i32)
}

/// Makes a device current; a negative number has no effect.
pub fn set(number: i32) -> Result<()> {
    exchange(number).map(drop)
}

/// Makes a device current and returns the previous one; a negative number has no effect and returns -1.
pub fn exchange(number: i32) -> Result<i32> {
    if number < 0 {
        return Ok(-1);
    }
    let runtime = runtime::ready()?;
    let previous = thread::device() as i32;
    runtime.device(number)?.make_current(&runtime.driver)?;
    Ok(previous)
}

/// Does the same as [`exchange`], but never creates a context. If the device has none, only plinth's current device
/// changes, and the driver's context changes at the first use.
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

/// Starts or stops recording by a profiler that is attached and waits for this.
pub fn profile(start: bool) -> Result<()> {
    let runtime = runtime::ready()?;
    let record = |driver: &driver::Driver| if start { driver.profiler_start() } else { driver.profiler_stop() };
    let context = || if start { "starting the profiler" } else { "stopping the profiler" };
    runtime.current_device()?.with_context(&runtime.driver, |driver| Ok(record(driver)?)).context(context)
}

/// Returns the free and total bytes of a device, counting all processes.
pub fn memory_info(number: i32) -> Result<(usize, usize)> {
    with(number, |_, driver| Ok(driver.memory_info()?))
}

/// Runs `body` in the context of the device with this number; -1 means the current device.
pub fn with<T>(number: i32, body: impl FnOnce(&'static Runtime, &Driver) -> Result<T>) -> Result<T> {
    let runtime = runtime::ready()?;
    runtime.device(number)?.with_context(&runtime.driver, |driver| body(runtime, driver))
}
