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
    runtime::{self, DeviceKind, availability},
    status::Status,
};
use std::ffi::c_char;

/// The major version of the library that a program was compiled with. plinth_version returns the version at run time.
pub const PLINTH_VERSION_MAJOR: i32 = 0;
/// The minor version; before 1.0 it changes whenever programs must be recompiled.
pub const PLINTH_VERSION_MINOR: i32 = 2;
/// The patch version.
pub const PLINTH_VERSION_PATCH: i32 = 0;

/// NVIDIA GPUs, through libcuda. The default.
pub const PLINTH_DEVICE_CUDA: i32 = 0;
/// The device that is built into the library and runs on the CPU.
pub const PLINTH_DEVICE_HOST: i32 = 1;
/// GPUs if any is visible to the process, else the built-in device.
pub const PLINTH_DEVICE_AUTO: i32 = 2;

/// Returns the version of the library at run time, as major * 10000 + minor * 100 + patch.
///
/// Needs no device.
///
/// @return The version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_version() -> i32 {
    PLINTH_VERSION_MAJOR * 10_000 + PLINTH_VERSION_MINOR * 100 + PLINTH_VERSION_PATCH
}

/// Returns the version of the library at run time as text, "0.2.0".
///
/// Needs no device.
///
/// @return A static string, never NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_version_string() -> *const c_char {
    guard::text(|| concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast())
}

/// Returns the newest CUDA version that the driver supports.
///
/// Loads the driver, but creates no context.
///
/// @param version Out: the version in CUDA's encoding, 13000 for 13.0. The host device reports 13000.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of plinth_init if there is no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_driver_version(version: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let version = unsafe { Output::new(version, "version") }?;
        version.set(availability::driver_version()?);
        Ok(())
    })
}

/// Selects the kind of device for the process: PLINTH_DEVICE_CUDA, PLINTH_DEVICE_HOST or PLINTH_DEVICE_AUTO.
///
/// Takes precedence over the environment variable PLINTH_DEVICE (cuda, host or auto). Must be called before the first
/// call that uses a device.
///
/// @param kind The kind.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; PLINTH_ERROR_ALREADY_INITIALIZED if another kind
///         is in use already.
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

/// Returns the kind of device that the process uses: PLINTH_DEVICE_CUDA or PLINTH_DEVICE_HOST.
///
/// Does not initialize the driver, as plinth_device_count: until something does, plinth_set_device_kind can change the
/// kind.
///
/// @param kind Out: the kind.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of plinth_init if there is no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_device_kind(kind: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let kind = unsafe { Output::new(kind, "kind") }?;
        kind.set(match availability::kind()? {
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
