//! The library's own kernels: PTX, embedded, compiled by the driver for whichever device loads it.

use crate::{
    driver::Function,
    error::{Context, Error, Result},
    runtime, stream,
};
use once_cell::sync::OnceCell;
use std::ffi::CStr;

const PTX: &[u8] = concat!(include_str!("../kernels/plinth.ptx"), "\0").as_bytes();

/// The virtual architectures that the kernels are compiled for, as CUDA numbers them: 75 is compute_75. The driver
/// compiles them for every device from that one on.
pub const ARCHITECTURES: &[u32] = &[75];

/// The kernels of one device, loaded at first use.
pub struct Kernels {
    sleep: OnceCell<Function>,
}

impl Kernels {
    /// No kernels yet.
    pub const fn new() -> Self {
        Kernels { sleep: OnceCell::new() }
    }
}

impl Default for Kernels {
    fn default() -> Self {
        Self::new()
    }
}

/// Keeps a stream busy for a number of the multiprocessor's clock cycles.
pub fn sleep(cycles: u64, handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, handle)?;
    let device = runtime.device(stream.device as i32)?;
    let function = device
        .kernels
        .sleep
        .get_or_try_init(|| {
            let ptx = CStr::from_bytes_with_nul(PTX).unwrap_or_default();
            device.with_context(&runtime.driver, |driver| {
                let module = driver.with_relaxed_capture(|| driver.module_load(ptx))??;
                Ok::<_, Error>(driver.module_function(module, c"plinth_sleep")?)
            })
        })
        .map_err(|error: Error| error.context("loading the library's own kernels"))?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.launch_scalar(*function, cycles, raw)?))
        .context(|| "launching plinth_sleep")
}

/// The architectures as torch lists them.
pub fn arch_list() -> Vec<String> {
    ARCHITECTURES.iter().map(|number| format!("compute_{number}")).collect()
}

/// The compiler flags of the architectures, in the form that torch gives them.
pub fn gencode_flags() -> String {
    let flags: Vec<String> =
        ARCHITECTURES.iter().map(|number| format!("-gencode compute=compute_{number},code=compute_{number}")).collect();
    flags.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ptx_is_for_the_listed_architecture() {
        let text = std::str::from_utf8(PTX).unwrap();
        for number in ARCHITECTURES {
            assert!(text.contains(&format!(".target sm_{number}")));
        }
        assert!(text.contains(".entry plinth_sleep"));
        assert_eq!(text.matches('\0').count(), 1);
    }

    #[test]
    fn flags_are_in_torchs_form() {
        assert_eq!(gencode_flags(), "-gencode compute=compute_75,code=compute_75");
        assert_eq!(arch_list(), ["compute_75"]);
    }
}
