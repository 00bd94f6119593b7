//! The program's out-of-memory callbacks: callbacks that may free memory, and observers.

use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use std::cell::Cell;

/// A callback of the program, with its opaque context. The C API layer provides the function that makes the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Callback<F> {
    /// The address of the C function.
    pub function: usize,
    /// The context to pass to it.
    pub context: usize,
    /// The function that calls it.
    pub call: F,
}

/// Calls a callback that may free memory, with the device and the requested size. Returns whether it freed any.
pub type FreeMemory = fn(function: usize, context: usize, device: u32, size: u64) -> bool;
/// Notifies an observer of the device, the requested size, and the device's total and free memory.
pub type Observer = fn(function: usize, context: usize, device: u32, size: u64, total: u64, free: u64);

static FREE_MEMORY: Mutex<Vec<Callback<FreeMemory>>> = Mutex::new(Vec::new());
static OBSERVERS: Mutex<Vec<Callback<Observer>>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is running a callback.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn add<F: Copy>(list: &Mutex<Vec<Callback<F>>>, callback: Callback<F>) {
    list.lock().push(callback);
}

fn remove<F: Copy>(list: &Mutex<Vec<Callback<F>>>, function: usize, context: usize) -> Result<()> {
    let mut list = list.lock();
    match list.iter().rposition(|entry| (entry.function, entry.context) == (function, context)) {
        Some(index) => {
            list.remove(index);
            Ok(())
        }
        None => Err(Error::new(Status::INVALID_VALUE, "no callback was added with this function and this context")),
    }
}

/// Adds a callback that may free memory.
pub fn add_free_memory(callback: Callback<FreeMemory>) {
    add(&FREE_MEMORY, callback);
}

/// Removes the callback that was added last with this function and context.
pub fn remove_free_memory(function: usize, context: usize) -> Result<()> {
    remove(&FREE_MEMORY, function, context)
}

/// Adds an observer.
pub fn attach_observer(callback: Callback<Observer>) {
    add(&OBSERVERS, callback);
}

/// Removes the observer that was added last with this function and context.
pub fn detach_observer(function: usize, context: usize) -> Result<()> {
    remove(&OBSERVERS, function, context)
}

/// Calls `body` unless this thread is running a callback: allocations of a callback must not call it again.
fn outermost<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    struct ClearInside;
    impl Drop for ClearInside {
        fn drop(&mut self) {
            INSIDE.with(|inside| inside.set(false));
        }
    }
    if INSIDE.with(|inside| inside.replace(true)) {
        return otherwise;
    }
    let _clear_inside = ClearInside;
    body()
}

/// Calls every callback that may free memory. Returns whether any did. The list may change meanwhile.
pub fn free_memory(device: u32, size: u64) -> bool {
    let callbacks = FREE_MEMORY.lock().clone();
    if callbacks.is_empty() {
        return false;
    }
    outermost(false, || {
        let mut any = false;
        for entry in &callbacks {
            any |= (entry.call)(entry.function, entry.context, device, size);
        }
        any
    })
}

/// Notifies every observer.
pub fn observe(device: u32, size: u64, total: u64, free: u64) {
    let observers = OBSERVERS.lock().clone();
    if observers.is_empty() {
        return;
    }
    outermost((), || {
        for entry in observers {
            (entry.call)(entry.function, entry.context, device, size, total, free);
        }
    });
}
