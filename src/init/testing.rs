//! Support for programs' tests: fault injection, counts of driver calls, and the resources that are still held.

use crate::{
    driver::{Call, Kind, codes, fault_injection},
    error::{Error, Result, invalid},
    host, runtime,
    status::Status,
};
use std::ffi::{CStr, CString, c_void};

pub use crate::runtime::enable_faults;

/// Makes the `nth` driver call from now on fail with `code`. Does not load the driver, so that the loading calls can
/// fail too.
pub fn inject_fault(nth: u64, code: u32) -> Result<()> {
    let on = runtime::usable().map_or_else(runtime::are_faults_enabled, |runtime| Ok(runtime.driver.is_faulty()));
    if !on? {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "injecting a fault: call plinth_enable_fault_injection before the first use of a device",
        ));
    }
    if nth != 0 && code == codes::CUDA_SUCCESS {
        return Err(Error::new(Status::INVALID_VALUE, "injecting a fault: code 0 means success; use an error code"));
    }
    fault_injection::arm(nth, code);
    Ok(())
}

/// Returns the symbol of the call that the last injected fault hit.
pub fn tripped_fault() -> Option<&'static CStr> {
    fault_injection::tripped().map(|call| call.info().c_symbol)
}

/// Finds a driver call by its symbol, or by its name without a version.
pub fn find_call(name: &str) -> Result<Call> {
    let matches = |call: &&Call| call.info().symbol == name || call.info().base_name() == name;
    Call::ALL
        .iter()
        .find(matches)
        .copied()
        .ok_or_else(|| Error::new(Status::INVALID_VALUE, format!("{name:?} is not a driver call that plinth uses")))
}

/// Returns the number of calls of a driver function. Works on the host device, and with fault injection on.
pub fn call_count(name: &str) -> Result<u64> {
    let runtime = runtime::loaded()?;
    let call = find_call(name)?;
    if runtime.driver.is_faulty() {
        Ok(fault_injection::count(call))
    } else if runtime.driver.kind() == Kind::Host {
        Ok(host::call_count(call))
    } else {
        Err(Error::new(
            Status::NOT_SUPPORTED,
            "calls of the CUDA driver are counted only with plinth_enable_fault_injection",
        ))
    }
}

/// Returns the modelled cost of all calls of a driver function on an H200, in nanoseconds. Host device only.
pub fn call_cost(name: &str) -> Result<u64> {
    host_only()?;
    Ok(host::call_cost(find_call(name)?))
}

/// Returns the resources that the host device holds. Host device only.
pub fn live_resources() -> Result<host::Live> {
    host_only()?;
    Ok(host::live())
}

fn host_only() -> Result<()> {
    if runtime::loaded()?.driver.kind() == Kind::Host {
        return Ok(());
    }
    Err(Error::new(Status::NOT_SUPPORTED, "only the host device records call costs and live resources"))
}

/// Returns the address of a driver function, for programs that call the driver themselves: with the signature of the
/// version that plinth uses, or, for a function that plinth does not use, of the driver's version.
pub fn entry_point(name: &str) -> Result<*const c_void> {
    let driver = &runtime::loaded()?.driver;
    match find_call(name) {
        Ok(call) => Ok(driver.table().address(call)),
        Err(_) => entry_point_by_version(name, driver.version()?, 0),
    }
}

/// The largest of CUDA's flags for the search of a function: the variant for the default stream of each thread.
const MAX_FLAGS: u64 = 2;

/// Returns the address of a driver function, given by its name without a version, as of a CUDA version.
pub fn entry_point_by_version(name: &str, version: i32, flags: u64) -> Result<*const c_void> {
    let driver = &runtime::loaded()?.driver;
    if flags > MAX_FLAGS {
        return Err(invalid(format!(
            "flags is {flags}; it must be 0, 1 (the legacy default stream) or 2 (the default stream of each thread)"
        )));
    }
    let missing = || {
        invalid(format!(
            "{name:?} is no function of this driver as of CUDA {}.{}; give its name without a version suffix, and the \
             version that declares it",
            version / 1000,
            version % 1000 / 10
        ))
    };
    let symbol = CString::new(name).map_err(|_| missing())?;
    let found = driver.find_function(&symbol, version, flags).map_err(|failure| match failure.code {
        codes::CUDA_ERROR_NOT_SUPPORTED => Error::new(
            Status::NOT_SUPPORTED,
            format!("finding {name}: the driver is older than CUDA 12.0, and plinth does not use this function"),
        ),
        _ => Error::from(failure).context(format_args!("finding {name}")),
    });
    found?.ok_or_else(missing)
}
