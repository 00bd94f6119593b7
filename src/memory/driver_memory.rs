//! Memory directly from the driver: device, pinned and managed allocations, registered host memory, and the device of a
//! pointer.

use super::{caching, device_memory::owner, pinned, pointer};
use crate::{
    base::units::Bytes,
    driver::{MemoryKind, Span, codes},
    error::{Context, Error, Result},
    observe,
    runtime::{self, names, sync_debug},
    status::Status,
};

/// The valid flags for registering memory.
const REGISTER_FLAGS: u32 = 0xF;

/// Removes the name of memory that another library freed, once its address is that of new memory.
fn forget_older_name(address: &u64) {
    names::forget_memory(*address);
}

/// Allocates memory on a device and returns its address, or 0 for a size of 0.
pub fn alloc(bytes: usize, number: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    if bytes == 0 {
        return Ok(0);
    }
    device
        .with_context(&runtime.driver, |driver| {
            driver.memory_alloc(bytes).map_err(|failure| {
                let error = Error::from(failure);
                let free = match driver.memory_info() {
                    Ok((free, total)) => {
                        format!("; {} of {} are free", Bytes(free as u64), Bytes(total as u64))
                    }
                    Err(_) => String::new(),
                };
                error.context(format_args!(
                    "tried to allocate {} on device {}{free}",
                    Bytes(bytes as u64),
                    device.ordinal
                ))
            })
        })
        .inspect(forget_older_name)
}

/// Frees memory that [`alloc`] returned. Waits for the work of the memory's context.
pub fn free(span: Span) -> Result<()> {
    let runtime = runtime::ready()?;
    if span.address() == 0 {
        return Ok(());
    }
    let info = runtime.pointer_info(span.address())?;
    if info.kind != MemoryKind::Device || caching::is_cached(span.address()) {
        return Err(not_allocated(span, "plinth_device_malloc"));
    }
    sync_debug::check("plinth_device_free")?;
    let device = runtime.device(info.device)?;
    let ahead = observe::end_of_device(device.ordinal);
    device
        .with_context(&runtime.driver, |driver| Ok(driver.memory_free(span)?))
        .map_err(|error| refused(error, span, "plinth_device_malloc"))?;
    ahead.finish();
    names::forget_memory(span.address());
    Ok(())
}

/// Allocates pinned host memory that every device can access, and returns its address, or 0 for a size of 0.
pub fn alloc_pinned(bytes: usize) -> Result<u64> {
    let runtime = runtime::ready()?;
    if bytes == 0 {
        return Ok(0);
    }
    runtime
        .current_device()?
        .with_context(&runtime.driver, |driver| Ok(driver.pinned_alloc(bytes)?))
        .context(|| format!("tried to allocate {} of pinned host memory", Bytes(bytes as u64)))
        .inspect(forget_older_name)
}

/// Frees memory that [`alloc_pinned`] returned.
pub fn free_pinned(span: Span) -> Result<()> {
    let runtime = runtime::ready()?;
    if span.address() == 0 {
        return Ok(());
    }
    if pinned::is_host_cached(span.address()) || runtime.pointer_info(span.address())?.kind != MemoryKind::Pinned {
        return Err(not_allocated(span, "plinth_pinned_malloc"));
    }
    sync_debug::check("plinth_pinned_free")?;
    let ahead = observe::end_of_all(runtime);
    runtime
        .in_any_context(|driver| Ok(driver.pinned_free(span)?))
        .map_err(|error| refused(error, span, "plinth_pinned_malloc"))?;
    ahead.finish();
    names::forget_memory(span.address());
    Ok(())
}

/// Pins memory that the program allocated. `flags` are `CU_MEMHOSTREGISTER_...`.
pub fn host_register(span: Span, flags: u32) -> Result<()> {
    let runtime = runtime::ready()?;
    let (address, bytes) = (span.address(), span.bytes());
    if address == 0 {
        return Err(Error::new(Status::NULL_POINTER, "the memory to register is NULL"));
    }
    if bytes == 0 || address.checked_add(bytes as u64).is_none() || flags & !REGISTER_FLAGS != 0 {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("cannot register {bytes} bytes from {address:#x} with the flags {flags:#x}"),
        ));
    }
    runtime
        .current_device()?
        .with_context(&runtime.driver, |driver| Ok(driver.with_relaxed_capture(|| driver.host_register(span, flags))??))
        .map_err(|error| match error.driver_code() {
            codes::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => error.with_status(Status::INVALID_VALUE),
            _ => error,
        })
        .context(|| format!("registering {} of host memory at {address:#x}", Bytes(bytes as u64)))
}

/// Undoes [`host_register`].
pub fn host_unregister(span: Span) -> Result<()> {
    let runtime = runtime::ready()?;
    if span.address() == 0 {
        return Ok(());
    }
    if pinned::is_host_cached(span.address()) {
        return Err(not_allocated(span, "plinth_host_register"));
    }
    sync_debug::check("plinth_host_unregister")?;
    let ahead = observe::end_of_all(runtime);
    runtime.in_any_context(|driver| Ok(driver.with_relaxed_capture(|| driver.host_unregister(span))??)).map_err(
        |error| match error.driver_code() {
            codes::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED => not_allocated(span, "plinth_host_register"),
            _ => refused(error, span, "plinth_host_register"),
        },
    )?;
    ahead.finish();
    names::forget_memory(span.address());
    Ok(())
}

/// Allocates managed memory on a device and returns its address, or 0 for a size of 0. Fails if the size exceeds the
/// free memory of the device: the driver would allocate it, but paging would slow the device extremely.
pub fn managed_alloc(bytes: usize, number: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    if bytes == 0 {
        return Ok(0);
    }
    device
        .with_context(&runtime.driver, |driver| {
            let attempt =
                || format!("tried to allocate {} of managed memory on device {}", Bytes(bytes as u64), device.ordinal);
            let (free, total) = driver.memory_info().context(attempt)?;
            if bytes > free {
                return Err(Error::new(
                    Status::OUT_OF_MEMORY,
                    format!("{}; {} of {} are free", attempt(), Bytes(free as u64), Bytes(total as u64)),
                ));
            }
            driver.with_relaxed_capture(|| driver.managed_alloc(bytes)).context(attempt)?.context(attempt)
        })
        .inspect(forget_older_name)
}

/// Frees memory that [`managed_alloc`] returned. Waits for the work of the memory's context.
pub fn managed_free(span: Span) -> Result<()> {
    let runtime = runtime::ready()?;
    if span.address() == 0 {
        return Ok(());
    }
    let info = runtime.pointer_info(span.address())?;
    if info.kind != MemoryKind::Managed {
        return Err(not_allocated(span, "plinth_managed_malloc"));
    }
    sync_debug::check("plinth_managed_free")?;
    let device = runtime.device(info.device)?;
    let ahead = observe::end_of_device(device.ordinal);
    device
        .with_context(&runtime.driver, |driver| Ok(driver.memory_free(span)?))
        .map_err(|error| refused(error, span, "plinth_managed_malloc"))?;
    ahead.finish();
    names::forget_memory(span.address());
    Ok(())
}

/// Returns whether an address is in pinned memory, regardless of who pinned it.
pub fn is_pinned(address: u64) -> Result<bool> {
    let runtime = runtime::ready()?;
    if address == 0 {
        return Ok(false);
    }
    Ok(pinned::is_host_cached(address) || runtime.pointer_info(address)?.kind == MemoryKind::Pinned)
}

#[cold]
fn not_allocated(span: Span, call: &str) -> Error {
    let address = span.address();
    let what = format!("{address:#x} is not memory of {call}: it is {}", pointer::describe(address));
    Error::new(Status::INVALID_POINTER, what)
}

/// Turns a driver error about the argument of a free into an error about the pointer.
fn refused(error: Error, span: Span, call: &str) -> Error {
    if matches!(error.status(), Status::INVALID_VALUE | Status::INVALID_HANDLE) {
        not_allocated(span, call)
    } else {
        error.context(format_args!("freeing {:#x}", span.address()))
    }
}

/// Returns the ordinal of the device whose memory an address is in; `None` for host memory and unknown addresses.
pub fn device_of(address: u64) -> Result<Option<u32>> {
    if address == 0 {
        runtime::check_usable()?;
        return Ok(None);
    }
    match runtime::ready_if_any()? {
        Some(runtime) => owner(runtime, address),
        None => Ok(None),
    }
}
