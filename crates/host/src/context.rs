//! Contexts: one primary context per device, green contexts beside it, and the current context of each thread.

use super::{
    ids::Id,
    state::{self, State},
};
use crate::driver::{codes, table::Code};
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

thread_local! {
    static CURRENT: Cell<Id> = const { Cell::new(0) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Returns the current context's handle, or 0.
pub fn current_handle() -> Id {
    CURRENT.get()
}

pub fn set_current(handle: Id) -> Result<(), Code> {
    if handle != 0 {
        device_of(state::get()?, handle)?;
    }
    CURRENT.set(handle);
    Ok(())
}

/// Returns the device of the current context, or the error of the work that ended the context.
pub fn current(state: &State) -> Result<usize, Code> {
    let device = current_device(state)?;
    check(state, device).map(|()| device)
}

/// Returns the device of the current context, which failed work may have ended.
pub fn current_device(state: &State) -> Result<usize, Code> {
    device_of(state, CURRENT.get())
}

/// Returns the error of the work that ended a device's contexts, if any has.
pub fn check(state: &State, device: usize) -> Result<(), Code> {
    match state.lost.get(device).map_or(codes::CUDA_SUCCESS, |lost| lost.load(Ordering::Acquire)) {
        codes::CUDA_SUCCESS => Ok(()),
        error => Err(error),
    }
}

/// Ends a device's contexts. The first error stays.
pub fn lose(state: &State, device: usize, error: Code) {
    if let Some(lost) = state.lost.get(device) {
        let _ = lost.compare_exchange(codes::CUDA_SUCCESS, error, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Returns the device of an active context.
pub fn device_of(state: &State, handle: Id) -> Result<usize, Code> {
    let primary = state.contexts.iter().position(|known| *known == handle);
    let green = || state.green.lock().device_of_context(handle);
    let device = primary.or_else(green).ok_or(codes::CUDA_ERROR_INVALID_CONTEXT)?;
    if state.retained.get(device).is_some_and(|retained| retained.load(Ordering::Acquire)) {
        Ok(device)
    } else {
        Err(codes::CUDA_ERROR_INVALID_CONTEXT)
    }
}

/// Returns a number for this thread that no other thread of the process has or had.
pub fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if THREAD.get() == 0 {
        THREAD.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// Returns whether this thread runs a host function of the program, which must not call the driver.
pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Runs `body` with this thread marked as running a host function.
pub fn run_as_host_function(body: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    body();
    IN_HOST_FUNCTION.set(false);
}
