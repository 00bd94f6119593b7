//! The host device's calls: one function for each line of the driver table, by noun.
//!
//! Each checks its arguments, converts them, and asks the part of the host device that knows. All of them are called
//! as their CUDA namesakes are: pointers are valid for what the call reads or writes, or null.

// What each call demands of its caller is CUDA's documentation and the paragraph above, not eighty copies of it; and
// CUDA chose the names and how many arguments there are.
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
    context as contexts, cost,
    state::{self, State},
};
use crate::driver::{
    codes,
    table::{Call, Code},
};
use std::panic::{AssertUnwindSafe, catch_unwind};

const INVALID: Code = codes::CUDA_ERROR_INVALID_VALUE;

/// The frame around every call: counts and prices it, refuses it before `cuInit` and inside a host function, and
/// turns a result, or a panic, into a code.
fn enter(call: Call, bytes: u64, body: impl FnOnce(&'static State) -> Result<(), Code>) -> Code {
    enter_at(call, cost::price(call, bytes), body)
}

/// The same for a call whose price is known.
fn enter_at(call: Call, price: u64, body: impl FnOnce(&'static State) -> Result<(), Code>) -> Code {
    let _charge = cost::charge(call, price);
    let result = catch_unwind(AssertUnwindSafe(|| {
        if contexts::in_host_function() {
            return Err(codes::CUDA_ERROR_NOT_PERMITTED);
        }
        body(state::get()?)
    }));
    match result {
        Ok(Ok(())) => codes::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => codes::CUDA_ERROR_UNKNOWN,
    }
}

/// A place for a result.
struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Refuses a null pointer. To be called before the call has any effect.
    fn new(pointer: *mut T) -> Result<Out<T>, Code> {
        if pointer.is_null() { Err(INVALID) } else { Ok(Out(pointer)) }
    }

    fn put(self, value: T) {
        // SAFETY: the pointer is not null, and the caller of the driver call gave it for this result.
        unsafe { self.0.write(value) };
    }
}

/// Like [`Out`] for results that the caller may not want.
fn put_if_wanted<T>(pointer: *mut T, value: T) {
    if let Ok(out) = Out::new(pointer) {
        out.put(value);
    }
}

/// Writes a text with its NUL, cut to the room there is.
fn put_text(place: *mut std::ffi::c_char, capacity: i32, text: &str) -> Result<(), Code> {
    let capacity = usize::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or(INVALID)?;
    if place.is_null() {
        return Err(INVALID);
    }
    let length = text.len().min(capacity - 1);
    // SAFETY: the caller gave `capacity` bytes at `place`; the text and its NUL are at most as many.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), length);
        place.add(length).write(0);
    }
    Ok(())
}
