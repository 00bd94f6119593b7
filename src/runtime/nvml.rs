//! NVML, the library of the NVIDIA driver that reports on GPUs without initializing CUDA.

use crate::{
    driver::environment::{Environment, is_relative},
    error::{Error, Result},
    status::Status,
};
use nvml_wrapper::Nvml;
use once_cell::sync::OnceCell;
use std::ffi::{OsStr, OsString};

/// The library's name in the driver's package, and the environment variable that names another.
const LIBRARY: &str = "libnvidia-ml.so.1";
const VARIABLE: &str = "PLINTH_NVML_LIBRARY";

/// NVML's number for a GPU that is divided into MIG instances.
const MIG_ENABLED: u32 = 1;

/// Returns NVML, which is loaded once and never unloaded, because the device handles refer to it.
pub fn get() -> Result<&'static Nvml> {
    static NVML: OnceCell<Nvml> = OnceCell::new();
    NVML.get_or_try_init(|| {
        let library = named().unwrap_or_else(|| OsString::from(LIBRARY));
        open(&library).map_err(|error| unavailable(&library, &error))
    })
}

/// Returns the file that the environment names.
pub fn named() -> Option<OsString> {
    Environment::of_process().value(VARIABLE)
}

/// Returns the UUID of each GPU of the machine, "GPU-xxxxxxxx-...", in NVML's order. `None` if NVML cannot be used, and
/// if a GPU is divided into MIG instances, which only the CUDA driver enumerates.
///
/// NVML is closed before the function returns, so that a child made by fork inherits nothing of it.
pub fn gpu_uuids() -> Option<Vec<String>> {
    let nvml = open(&named().unwrap_or_else(|| OsString::from(LIBRARY))).ok()?;
    let mut uuids = Vec::new();
    for index in 0..nvml.device_count().ok()? {
        let gpu = nvml.device_by_index(index).ok()?;
        // A GPU or a driver without MIG does not support the query.
        if gpu.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED) {
            return None;
        }
        uuids.push(gpu.uuid().ok()?);
    }
    Some(uuids)
}

/// Opens NVML. The error is the reason.
pub fn open(library: &OsStr) -> std::result::Result<Nvml, String> {
    if is_relative(library) {
        return Err("the path is relative; name an absolute path".to_owned());
    }
    Nvml::builder().lib_path(library).init().map_err(|error| error.to_string())
}

#[cold]
fn unavailable(library: &OsStr, error: &str) -> Error {
    Error::new(
        Status::NVML_UNAVAILABLE,
        format!("NVML, which knows what GPUs are doing, cannot be used: {}: {error}", library.to_string_lossy()),
    )
}
