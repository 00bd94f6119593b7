//! Versions and the kind of device
//!
//! The constants are the version that a program was compiled with; the functions return the version that it runs with.
//!
//! A process uses one kind of device: NVIDIA GPUs, or the host device, which runs on the CPU and needs no GPU. The
//! choice holds for the whole process. It is made before the first use of a device and cannot change afterwards.

use crate::{
    driver::Kind,
    error::{Error, Result},
    ffi::{
        Output,
        guard::{self, guard},
        status::plinth_status_t,
    },
    runtime::{self, DeviceKind},
    status::Status,
    testing,
};
use std::ffi::c_char;

/// The library's version when a program was compiled. Compare with plinth_version, which tells the one it runs with.
pub const PLINTH_VERSION_MAJOR: i32 = 0;
/// The minor version; before 1.0 it changes whenever a program must be compiled anew.
pub const PLINTH_VERSION_MINOR: i32 = 1;
/// The patch version.
pub const PLINTH_VERSION_PATCH: i32 = 0;

/// NVIDIA GPUs, through libcuda. What happens when nothing is said.
pub const PLINTH_DEVICE_CUDA: i32 = 0;
/// The built-in device on the CPU.
pub const PLINTH_DEVICE_HOST: i32 = 1;
/// GPUs where the process sees any, else the built-in device.
pub const PLINTH_DEVICE_AUTO: i32 = 2;

/// Returns the version of the library that is running, as major * 10000 + minor * 100 + patch.
///
/// Thread-safe; needs no device.
///
/// @return The version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_version() -> i32 {
    PLINTH_VERSION_MAJOR * 10_000 + PLINTH_VERSION_MINOR * 100 + PLINTH_VERSION_PATCH
}

/// Returns the version of the library that is running as text, "0.1.0".
///
/// The text is static. Thread-safe; needs no device.
///
/// @return A static text, never NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_version_string() -> *const c_char {
    guard::text(|| concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast())
}

/// Tells the newest version of CUDA that the driver knows.
///
/// Thread-safe. Loads the driver, but makes no context.
///
/// @param version Out: the version as CUDA counts, 13000 for 13.0. The host device answers 13000.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; what plinth_init returns where there is no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_version(version: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the version.
        let version = unsafe { Output::new(version, "version") }?;
        version.set(testing::driver_version()?);
        Ok(())
    })
}

/// Chooses the kind of device for the process: PLINTH_DEVICE_CUDA, PLINTH_DEVICE_HOST or PLINTH_DEVICE_AUTO.
///
/// Goes before the environment variable PLINTH_DEVICE (cuda, host or auto), which decides when this is not called.
/// Must come before the first use of a device and before the first question about one. Thread-safe.
///
/// @param kind The kind.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; PLINTH_ERROR_ALREADY_INITIALIZED if it is too
///         late for another kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_device_kind(kind: i32) -> plinth_status_t {
    guard(|| runtime::choose_kind(device_kind(kind)?))
}

fn device_kind(kind: i32) -> Result<DeviceKind> {
    match kind {
        PLINTH_DEVICE_CUDA => Ok(DeviceKind::Cuda),
        PLINTH_DEVICE_HOST => Ok(DeviceKind::Host),
        PLINTH_DEVICE_AUTO => Ok(DeviceKind::Auto),
        _ => Err(Error::new(
            Status::INVALID_VALUE,
            format!("{kind} is not a kind of device; PLINTH_DEVICE_CUDA, _HOST and _AUTO are 0, 1 and 2"),
        )),
    }
}

/// Tells which kind of device the process uses: PLINTH_DEVICE_CUDA or PLINTH_DEVICE_HOST.
///
/// Thread-safe. Loads the driver, and so settles the question for the process.
///
/// @param kind Out: the kind.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; what plinth_init returns where there is no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_kind(kind: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the kind.
        let kind = unsafe { Output::new(kind, "kind") }?;
        kind.set(match runtime::loaded()?.driver.kind() {
            Kind::Cuda => PLINTH_DEVICE_CUDA,
            Kind::Host => PLINTH_DEVICE_HOST,
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_the_packages_version() {
        let text = format!("{PLINTH_VERSION_MAJOR}.{PLINTH_VERSION_MINOR}.{PLINTH_VERSION_PATCH}");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
    }
}
