//! The host device's calls: one function for each entry of the driver table, in modules by object.
//!
//! Each checks its arguments, converts them, and calls the module that implements the operation. The contracts are
//! those of the CUDA functions of the same names: pointers are valid for what the call reads or writes, or null.

// The safety contract of each call is CUDA's documentation and the paragraph above, which eighty copies would not
// improve. CUDA chose the names and the numbers of arguments.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments, non_snake_case)]

mod capture;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod graph_node;
mod graph_view;
mod green_context;
mod ipc;
mod memory;
mod module;
mod pool;
mod profiler;
mod stream;
mod user_object;
mod vmm;

pub use self::{
    capture::*, context::*, copy::*, device::*, event::*, graph::*, graph_node::*, graph_view::*, green_context::*,
    ipc::*, memory::*, module::*, pool::*, profiler::*, stream::*, user_object::*, vmm::*,
};

use super::{
    context as contexts, cost, scheduler,
    state::{self, State},
};
use crate::driver::{
    codes,
    table::{Call, Code},
};
use std::panic::{AssertUnwindSafe, catch_unwind};

const INVALID: Code = codes::CUDA_ERROR_INVALID_VALUE;

/// Wraps every call: counts and prices it, refuses it before `cuInit` and inside a host function, and converts a result
/// or a panic to a code.
fn enter(call: Call, bytes: u64, body: impl FnOnce(&'static State) -> Result<(), Code>) -> Code {
    enter_at(call, cost::price(call, bytes), body)
}

/// Wraps a call whose price is known; otherwise as [`enter`].
fn enter_at(call: Call, price: u64, body: impl FnOnce(&'static State) -> Result<(), Code>) -> Code {
    let _charge = cost::charge(call, price);
    let result = catch_unwind(AssertUnwindSafe(|| {
        if contexts::in_host_function() {
            return Err(codes::CUDA_ERROR_NOT_PERMITTED);
        }
        let state = state::get()?;
        if scheduler::is_short() {
            state.engine.lock().retry_threads();
        }
        body(state)
    }));
    match result {
        Ok(Ok(())) => codes::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => codes::CUDA_ERROR_UNKNOWN,
    }
}

/// A non-null output parameter.
struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Refuses a null pointer. Must be called before the driver call has any effect.
    fn new(pointer: *mut T) -> Result<Out<T>, Code> {
        if pointer.is_null() { Err(INVALID) } else { Ok(Out(pointer)) }
    }

    fn put(self, value: T) {
        // SAFETY: the pointer is not null, and the caller of the driver call passed it for this result.
        unsafe { self.0.write(value) };
    }
}

/// Writes an optional output parameter, unless it is null.
fn put_optional<T>(pointer: *mut T, value: T) {
    if let Ok(out) = Out::new(pointer) {
        out.put(value);
    }
}

/// Writes a string with its NUL, truncated to the capacity.
fn put_text(output: *mut std::ffi::c_char, capacity: i32, text: &str) -> Result<(), Code> {
    let capacity = usize::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or(INVALID)?;
    if output.is_null() {
        return Err(INVALID);
    }
    let length = text.len().min(capacity - 1);
    // SAFETY: the caller passed `capacity` bytes at `output`; the string and its NUL have at most that many.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), output.cast(), length);
        output.add(length).write(0);
    }
    Ok(())
}
