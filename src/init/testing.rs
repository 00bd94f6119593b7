//! What programs need to test themselves: faults on demand, counts of driver calls, and what is still held.

use crate::{
    driver::{self, Call, Kind, codes, fault_injection},
    error::{Error, Result},
    host, runtime,
    status::Status,
};
use std::{
    ffi::CStr,
    sync::atomic::{AtomicBool, Ordering},
};

static FAULTS_WANTED: AtomicBool = AtomicBool::new(false);

/// Asks for the faulty provider, before the driver is loaded.
pub fn want_faults() -> Result<()> {
    if let Some(runtime) = runtime::usable() {
        return if runtime.driver.is_faulty() {
            Ok(())
        } else {
            Err(Error::new(
                Status::ALREADY_INITIALIZED,
                "fault injection must be asked for before a device is used or asked about",
            ))
        };
    }
    FAULTS_WANTED.store(true, Ordering::Release);
    Ok(())
}

/// Whether the faulty provider was asked for, by call or by `PLINTH_FAULT_INJECTION=1`.
pub fn faults_wanted() -> bool {
    FAULTS_WANTED.load(Ordering::Acquire)
        || std::env::var_os("PLINTH_FAULT_INJECTION").is_some_and(|value| value == "1")
}

/// Makes the `nth` driver call from now on fail with `code`. Loads no driver, so that the calls which do can be met.
pub fn inject_fault(nth: u64, code: u32) -> Result<()> {
    let on = runtime::usable().map_or_else(faults_wanted, |runtime| runtime.driver.is_faulty());
    if !on {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "faults are off; call plinth_enable_fault_injection before the first use of a device",
        ));
    }
    if nth != 0 && code == codes::CUDA_SUCCESS {
        return Err(Error::new(Status::INVALID_VALUE, "a driver call cannot fail with 0, which is success"));
    }
    fault_injection::arm(nth, code);
    Ok(())
}

/// The symbol of the call that met the last injected fault.
pub fn tripped_fault() -> Option<&'static CStr> {
    fault_injection::tripped().map(|call| call.info().c_symbol)
}

/// The call of the table with this symbol, or with this name without a version.
pub fn find_call(name: &str) -> Result<Call> {
    let matches = |call: &&Call| call.info().symbol == name || call.info().base_name() == name;
    Call::ALL
        .iter()
        .find(matches)
        .copied()
        .ok_or_else(|| Error::new(Status::INVALID_VALUE, format!("{name:?} is not a driver call that plinth uses")))
}

/// How often a driver call was made. Counted on the host device, and wherever fault injection is on.
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

/// What all calls of a kind would have cost on an H200, in nanoseconds. The host device only.
pub fn call_cost(name: &str) -> Result<u64> {
    host_only()?;
    Ok(host::call_cost(find_call(name)?))
}

/// What the host device holds.
pub fn live() -> Result<host::Live> {
    host_only()?;
    Ok(host::live())
}

fn host_only() -> Result<()> {
    if runtime::loaded()?.driver.kind() == Kind::Host {
        return Ok(());
    }
    Err(Error::new(Status::NOT_SUPPORTED, "only the host device keeps this account"))
}

/// The driver's function with this name, for programs that call the driver themselves.
pub fn entry_point(name: &str) -> Result<*const std::ffi::c_void> {
    let runtime = runtime::loaded()?;
    Ok(runtime.driver.table().address(find_call(name)?))
}

/// The newest CUDA version that the driver knows.
pub fn driver_version() -> Result<i32> {
    let runtime: &driver::Driver = &runtime::loaded()?.driver;
    Ok(runtime.version()?)
}
