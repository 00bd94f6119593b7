//! What devices there are, without initializing the driver: a process may count its devices and then fork, and the
//! child can use them. torch.cuda.device_count does the same.
//!
//! NVML counts the GPUs, under CUDA's rules for `CUDA_VISIBLE_DEVICES`. The CUDA driver counts them, and is thereby
//! initialized, where NVML has no answer: it is not installed, a GPU or the list has MIG instances, or
//! `PLINTH_CUDA_LIBRARY` names a driver whose NVML is unknown. `PLINTH_NVML_BASED_CUDA_CHECK=0` lets the driver count
//! always.

use super::{DeviceKind, chosen_kind, loaded, loaded_already, nvml, properties, ready};
use crate::{
    base::cancellation,
    driver::{Driver, Kind, cuda, environment, visible::visible_devices},
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use std::env;

/// The variable that chooses who counts, and PyTorch's.
const CHECK: &str = "PLINTH_NVML_BASED_CUDA_CHECK";
const CHECK_OF_PYTORCH: &str = "PYTORCH_NVML_BASED_CUDA_CHECK";

/// Returns the number of devices; 0 without an error if there is no driver.
pub fn count() -> Result<usize> {
    let _uncancellable = cancellation::disable();
    let count = match survey() {
        Ok(Some((_, count))) => Ok(count),
        Ok(None) => loaded().map(|runtime| runtime.devices().len()),
        Err(error) => Err(error),
    };
    match count {
        Err(error) if error.status() == Status::NO_DEVICE => Ok(0),
        count => count,
    }
}

/// The compute capability from which on devices have instructions for bfloat16 and TF32.
const BF16_MAJOR: i32 = 8;

/// Returns whether the thread's current device computes with bfloat16; false without a device.
pub fn is_bf16_supported(including_emulation: bool) -> Result<bool> {
    if count()? == 0 {
        return Ok(false);
    }
    let runtime = ready()?;
    let properties = runtime.current_device()?.properties(&runtime.driver)?;
    Ok(including_emulation || properties.major >= BF16_MAJOR)
}

/// Checks the number of a device, where there is any, before the library is initialized.
pub fn check_number(number: i32) -> Result<()> {
    let count = count()?;
    if count == 0 || (-1..count as i64).contains(&i64::from(number)) {
        return Ok(());
    }
    Err(properties::no_such_device_error(number, count))
}

/// Returns the kind of the process's devices. Fails if there is none.
pub fn kind() -> Result<Kind> {
    match survey()? {
        Some((kind, count)) if count > 0 => Ok(kind),
        // Only the driver can tell, or its error says why there is no device.
        _ => Ok(loaded()?.driver.kind()),
    }
}

/// Returns the newest CUDA version that the driver supports. Fails if there is no device.
pub fn driver_version() -> Result<i32> {
    if let Some(runtime) = loaded_already()? {
        return Ok(runtime.driver.version()?);
    }
    Ok(match kind()? {
        Kind::Cuda => cuda::load(false)?.version()?,
        Kind::Host => host_driver().version()?,
    })
}

fn host_driver() -> Driver {
    Driver::new(Kind::Host, crate::host::table(), false)
}

/// Returns the kind and the number of the devices that the process would use. `None` if only the CUDA driver can tell.
fn survey() -> Result<Option<(Kind, usize)>> {
    if let Some(runtime) = loaded_already()? {
        return Ok(Some((runtime.driver.kind(), runtime.devices().len())));
    }
    match chosen_kind()? {
        DeviceKind::Host => host().map(Some),
        DeviceKind::Cuda => Ok(gpus()?.map(|count| (Kind::Cuda, count))),
        DeviceKind::Auto => match gpus() {
            Ok(None) => Ok(None),
            Ok(Some(count)) if count > 0 => Ok(Some((Kind::Cuda, count))),
            Err(error) if error.status() == Status::INVALID_CONFIGURATION => Err(error),
            // As in the initialization, a CUDA driver that cannot be used is the same as none.
            _ => host().map(Some),
        },
    }
}

fn host() -> Result<(Kind, usize)> {
    let count = crate::host::device_count().map_err(|reason| Error::new(Status::INVALID_CONFIGURATION, reason))?;
    Ok((Kind::Host, count))
}

/// Returns the number of visible GPUs. `None` if only the CUDA driver can tell.
fn gpus() -> Result<Option<usize>> {
    static GPUS: OnceCell<Option<Vec<String>>> = OnceCell::new();
    if !is_nvml_enabled()? {
        return Ok(None);
    }
    // A GPU without a usable CUDA driver is not a device. The toolkit's stub has no version.
    let gpus = GPUS.get_or_try_init(|| {
        let is_usable = cuda::load(false)?.version().is_ok();
        let is_known = nvml::named().is_some() || cuda::named().is_none();
        Ok::<_, Error>(if is_usable && is_known { nvml::gpu_uuids() } else { None })
    })?;
    let list = env::var_os("CUDA_VISIBLE_DEVICES").map(|list| list.to_string_lossy().into_owned());
    Ok(gpus.as_ref().and_then(|uuids| match list {
        None => Some(uuids.len()),
        Some(list) if list.contains("MIG-") => None,
        Some(list) => Some(visible_devices(&list, uuids).len()),
    }))
}

/// Returns whether NVML counts the GPUs, where it is installed.
pub fn is_nvml_enabled() -> Result<bool> {
    let value = environment::switch(CHECK, env::var_os(CHECK))?;
    Ok(value.unwrap_or_else(|| env::var_os(CHECK_OF_PYTORCH).is_none_or(|value| value != "0")))
}
