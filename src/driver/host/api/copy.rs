//! Copies and fills.

use super::{INVALID, enter, stream::after_launch};
use crate::driver::{
    host::{
        context,
        graph::Action,
        ids::Id,
        memory::check::Place,
        state::State,
        stream,
        work::{Copying, Fill, Work},
    },
    table::{Call, Code},
    types::*,
};
use std::ffi::c_uint;

/// A copy from pageable memory of up to this size takes its bytes along and returns at once.
const STAGED: u64 = 64 << 10;

/// What a range is; an error when it is known to be neither memory of a device nor possibly the program's.
fn place(state: &State, address: u64, bytes: u64) -> Result<Place, Code> {
    if address == 0 || address.checked_add(bytes).is_none() {
        return Err(INVALID);
    }
    match state.memory.read().place_of(address, bytes) {
        Place::Hole => Err(INVALID),
        place => Ok(place),
    }
}

/// Puts a copy into a stream, and waits for it where CUDA does.
fn copy(
    state: &'static State,
    mut copy: Copying,
    authority: Option<(usize, usize)>,
    handle: CUstream,
) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    engine.forbid_implicit(id)?;
    let device = engine.stream_device(id)?;
    (copy.to_by, copy.from_by) = authority.unwrap_or((device, device));
    if copy.bytes == 0 {
        return engine.capture_of(id).map(drop);
    }
    let (to, from) = (place(state, copy.to, copy.bytes)?, place(state, copy.from, copy.bytes)?);
    let capturing = engine.capture_of(id)?.is_some();
    let pageable = to == Place::Pageable || from == Place::Pageable;
    if !capturing && from == Place::Pageable && to != Place::Pageable && copy.bytes <= STAGED {
        // SAFETY: the program asked for these bytes of its memory to be copied, so they are readable now.
        let bytes = unsafe { std::slice::from_raw_parts(copy.from as *const u8, copy.bytes as usize) };
        let work = Work::Staged { to: copy.to, by: copy.to_by, bytes: bytes.into() };
        engine.act(id, Action::Work(work))?;
    } else {
        engine.act(id, Action::Work(Work::Copy(copy)))?;
        if pageable && !capturing {
            drop(engine);
            return stream::synchronize_stream(state, handle);
        }
    }
    drop(engine);
    after_launch(state, handle, capturing)
}

pub unsafe extern "C" fn cuMemcpyAsync(
    destination: CUdeviceptr,
    source: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    enter(Call::cuMemcpyAsync, bytes as u64, |state| {
        let wanted = Copying { to: destination, from: source, bytes: bytes as u64, to_by: 0, from_by: 0 };
        copy(state, wanted, None, stream)
    })
}

pub unsafe extern "C" fn cuMemcpyPeerAsync(
    destination: CUdeviceptr,
    destination_context: CUcontext,
    source: CUdeviceptr,
    source_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Code {
    enter(Call::cuMemcpyPeerAsync, bytes as u64, |state| {
        let to_by = context::device_of(state, destination_context as Id)?;
        let from_by = context::device_of(state, source_context as Id)?;
        let wanted = Copying { to: destination, from: source, bytes: bytes as u64, to_by, from_by };
        copy(state, wanted, Some((to_by, from_by)), stream)
    })
}

fn fill(state: &'static State, fill: Fill, handle: CUstream) -> Result<(), Code> {
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    engine.forbid_implicit(id)?;
    let capturing = engine.capture_of(id)?.is_some();
    if fill.count == 0 {
        return Ok(());
    }
    let bytes = fill.count.checked_mul(fill.width).ok_or(INVALID)?;
    if !fill.to.is_multiple_of(fill.width) || place(state, fill.to, bytes)? == Place::Pageable {
        return Err(INVALID);
    }
    engine.act(id, Action::Work(Work::Fill(fill)))?;
    drop(engine);
    after_launch(state, handle, capturing)
}

pub unsafe extern "C" fn cuMemsetD8Async(destination: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> Code {
    enter(Call::cuMemsetD8Async, count as u64, |state| {
        fill(state, Fill { to: destination, value: u32::from(value), width: 1, count: count as u64 }, stream)
    })
}

pub unsafe extern "C" fn cuMemsetD16Async(
    destination: CUdeviceptr,
    value: u16,
    count: usize,
    stream: CUstream,
) -> Code {
    enter(Call::cuMemsetD16Async, count as u64, |state| {
        fill(state, Fill { to: destination, value: u32::from(value), width: 2, count: count as u64 }, stream)
    })
}

pub unsafe extern "C" fn cuMemsetD32Async(
    destination: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> Code {
    enter(Call::cuMemsetD32Async, count as u64, |state| {
        fill(state, Fill { to: destination, value, width: 4, count: count as u64 }, stream)
    })
}
