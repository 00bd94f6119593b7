//! Changes and returns the settings at run time.

use super::{
    backend,
    config::{self, Config},
    device_memory::Method,
    pinned, route,
};
use crate::{
    error::{Error, Result},
    runtime,
    status::Status,
};

/// Changes the settings that a text names.
pub fn set_allocator_settings(text: &str) -> Result<()> {
    let config = config::set(text, check_change)?;
    // A call may have set another fraction than the settings had.
    let fraction = config::names_fraction(text).then_some(config.per_process_memory_fraction);
    pinned::configure(&config);
    // Rounding is looked up together with the arena, so cached arenas must be invalidated.
    route::invalidate_arenas();
    let Some(runtime) = runtime::usable() else { return Ok(()) };
    for device in runtime.devices() {
        if let Some(fraction) = fraction {
            device.memory().set_fraction(fraction);
            backend::notify_fraction(fraction, device.ordinal);
        }
        if device.memory().known_method() == Some(Method::Segments) {
            for arena in device.memory().arenas() {
                arena.lock().space.set_split_limits(config.split_limits());
            }
        }
    }
    Ok(())
}

/// Rejects changes of settings that are already in use.
fn check_change(before: &Config, after: &Config) -> Result<()> {
    let late =
        |key: &str, why: &str| Err(Error::new(Status::ALREADY_INITIALIZED, format!("cannot change {key}: {why}")));
    if backend::is_chosen() {
        if before.backend != after.backend {
            return late("backend", "memory was requested already");
        }
        if before.debug != after.debug {
            return late("debug", "memory was requested already");
        }
    }
    let grown = runtime::usable()
        .is_some_and(|runtime| runtime.devices().iter().any(|device| device.memory().known_method().is_some()));
    if grown && before.expandable_segments != after.expandable_segments {
        return late("expandable_segments", "a device already holds memory");
    }
    Ok(())
}

/// Returns the settings as a text.
pub fn allocator_settings() -> Result<String> {
    Ok(config::get()?.text())
}
