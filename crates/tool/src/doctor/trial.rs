//! The trial: creates a context on each device and allocates memory, to find failures that no other check finds.

use super::{Finding, Severity};
use plinth::internal::{
    memory,
    runtime::{self, Runtime, device::Device},
};
use plinth_driver::{Stream, error::Result};

const BYTES: u64 = 1 << 20;

/// Returns the findings.
pub fn check() -> Vec<Finding> {
    let runtime = match runtime::ready() {
        Ok(runtime) => runtime,
        Err(error) => return vec![Finding::new(Severity::Problem, "trial", error.message(), "See above")],
    };
    let each = runtime.devices().iter().map(|device| match try_device(runtime, device) {
        Ok(()) => Finding::fine("trial", format!("Memory of device {} was allocated and freed", device.ordinal)),
        Err(error) => Finding::new(
            Severity::Problem,
            "trial",
            format!("Device {} cannot be used: {}", device.ordinal, error.message()),
            "See plinth top for the processes that use it, and dmesg for NVRM",
        ),
    });
    each.collect()
}

fn try_device(runtime: &Runtime, device: &Device) -> Result<()> {
    let number = device.ordinal as i32;
    let address = memory::caching_alloc(BYTES, number, Stream::DEFAULT)?;
    let reached = device.with_context(&runtime.driver, |driver| Ok(driver.stream_synchronize(Stream::DEFAULT)?));
    memory::caching_free(address)?;
    reached
}
