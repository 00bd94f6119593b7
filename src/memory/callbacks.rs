//! The program's callbacks for the moment when memory is out: those that may free some, and those that only want to know.

use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use std::cell::Cell;

/// A callback of the program's, with its context: what C gave, never looked into. The C surface makes the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Callback<F> {
    /// The address of the C function.
    pub function: usize,
    /// Its context.
    pub context: usize,
    /// How to call it.
    pub call: F,
}

/// Calls a callback that may free memory, with the device and the size that was asked for; whether it freed any.
pub type FreeMemory = fn(function: usize, context: usize, device: u32, size: u64) -> bool;
/// Tells an observer the device, the size that was asked for, and the device's total and free memory.
pub type Observer = fn(function: usize, context: usize, device: u32, size: u64, total: u64, free: u64);

static FREE_MEMORY: Mutex<Vec<Callback<FreeMemory>>> = Mutex::new(Vec::new());
static OBSERVERS: Mutex<Vec<Callback<Observer>>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is in a callback already.
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

/// Removes one that was added last with this function and context.
pub fn remove_free_memory(function: usize, context: usize) -> Result<()> {
    remove(&FREE_MEMORY, function, context)
}

/// Adds an observer.
pub fn attach_observer(callback: Callback<Observer>) {
    add(&OBSERVERS, callback);
}

/// Removes one.
pub fn detach_observer(function: usize, context: usize) -> Result<()> {
    remove(&OBSERVERS, function, context)
}

/// Runs `body` unless this thread is in a callback already: what a callback itself asks for must not call it again.
fn outermost<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.with(|inside| inside.set(false));
        }
    }
    if INSIDE.with(|inside| inside.replace(true)) {
        return otherwise;
    }
    let _leave = Leave;
    body()
}

/// Calls every callback that may free memory. Whether any did. The list may change while they run.
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

/// Tells every observer.
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
