//! The processes that use a device.

use super::gpu;
use crate::{
    driver::Kind,
    error::{Context, Result},
    host,
    runtime::{self, Runtime, device::Device},
};
use std::fmt::Write;

/// A process that computes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Bytes of the device's memory that it uses, if the driver reports them.
    pub memory: Option<u64>,
}

fn find(runtime: &Runtime, device: &Device) -> Result<Vec<Process>> {
    match runtime.driver.kind() {
        Kind::Cuda => gpu::processes(runtime, device),
        // Other processes cannot be told apart, if they share the host device's memory.
        Kind::Host => {
            let memory = host::live().device_bytes.get(device.native as usize).copied();
            Ok(vec![Process { pid: std::process::id(), memory }])
        }
    }
}

/// Returns the processes that compute on a device.
pub fn processes(number: i32) -> Result<Vec<Process>> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    find(runtime, device).context(|| format!("listing the processes on device {}", device.ordinal))
}

/// Returns the processes as text in torch's format.
pub fn list(number: i32) -> Result<String> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    let found = processes(number)?;
    let index = match runtime.driver.kind() {
        Kind::Cuda => gpu::number(runtime, device)?,
        Kind::Host => device.ordinal,
    };
    Ok(describe(index, &found))
}

fn describe(index: u32, processes: &[Process]) -> String {
    let mut text = format!("GPU:{index}");
    if processes.is_empty() {
        text += "\nno processes are running";
    }
    for process in processes {
        let mebibytes = process.memory.unwrap_or(0) as f64 / (1 << 20) as f64;
        // Writing to a String does not fail.
        let _ = write!(text, "\nprocess {:>10} uses {mebibytes:>12.3} MB GPU memory", process.pid);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_torchs() {
        assert_eq!(describe(3, &[]), "GPU:3\nno processes are running");
        let some = [Process { pid: 4711, memory: Some(1536 << 10) }, Process { pid: 12, memory: None }];
        assert_eq!(
            describe(0, &some),
            "GPU:0\nprocess       4711 uses        1.500 MB GPU memory\nprocess         12 uses        0.000 MB GPU memory"
        );
    }
}
