//! Copies and fills.

use super::{INVALID, enter, stream::after_launch};
use crate::{
    context,
    driver::{
        table::{Call, Code},
        types::*,
    },
    graph::Action,
    ids::Id,
    memory::check::{By, Place},
    state::State,
    stream,
    work::{Copying, Fill, Work},
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

/// A copy on the authority of these devices, where its ends are not the program's own memory.
pub(super) fn copying(
    state: &State,
    to: u64,
    from: u64,
    bytes: u64,
    (to_device, from_device): (usize, usize),
) -> Result<Copying, Code> {
    let (to_place, from_place) = (place(state, to, bytes)?, place(state, from, bytes)?);
    let by = |place, device| if place == Place::Pageable { By::Program } else { By::Copy(device) };
    Ok(Copying { to, from, bytes, to_by: by(to_place, to_device), from_by: by(from_place, from_device) })
}

/// Refuses a fill that a device cannot do.
pub(super) fn check_fill(state: &State, fill: &Fill, device: usize) -> Result<(), Code> {
    let bytes = fill.extent().ok_or(INVALID)?;
    if !fill.to.is_multiple_of(fill.width) || place(state, fill.to, bytes)? == Place::Pageable {
        return Err(INVALID);
    }
    if state.memory.read().is_out_of_reach(fill.to, device) { Err(INVALID) } else { Ok(()) }
}

/// A copy as it is asked for.
struct Request {
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: u64,
    /// The devices on whose authority the ends are used; the stream's, if none are named.
    devices: Option<(usize, usize)>,
}

/// Puts a copy into a stream, and waits for it where CUDA does.
fn copy(state: &'static State, request: Request, handle: CUstream) -> Result<(), Code> {
    let Request { to, from, bytes, devices } = request;
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    engine.forbid_implicit(id)?;
    let device = engine.stream_device(id)?;
    if bytes == 0 {
        return engine.capture_of(id).map(drop);
    }
    let copy = copying(state, to, from, bytes, devices.unwrap_or((device, device)))?;
    let (to_by, from_by) = (copy.to_by, copy.from_by);
    let capturing = engine.capture_of(id)?.is_some();
    let pageable = to_by == By::Program || from_by == By::Program;
    if !capturing && from_by == By::Program && to_by != By::Program && bytes <= STAGED {
        // SAFETY: the program asked for these bytes of its memory to be copied, so they are readable now.
        let staged = unsafe { std::slice::from_raw_parts(from as *const u8, bytes as usize) };
        let work = Work::Staged { to, by: to_by, bytes: staged.into() };
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
        copy(state, Request { to: destination, from: source, bytes: bytes as u64, devices: None }, stream)
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
        let to_device = context::device_of(state, destination_context as Id)?;
        let from_device = context::device_of(state, source_context as Id)?;
        let devices = Some((to_device, from_device));
        copy(state, Request { to: destination, from: source, bytes: bytes as u64, devices }, stream)
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
    check_fill(state, &fill, engine.stream_device(id)?)?;
    engine.act(id, Action::Work(Work::Fill(fill)))?;
    drop(engine);
    after_launch(state, handle, capturing)
}

pub unsafe extern "C" fn cuMemsetD8Async(destination: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> Code {
    enter(Call::cuMemsetD8Async, count as u64, |state| {
        fill(state, Fill::row(destination, u32::from(value), 1, count as u64), stream)
    })
}

pub unsafe extern "C" fn cuMemsetD16Async(
    destination: CUdeviceptr,
    value: u16,
    count: usize,
    stream: CUstream,
) -> Code {
    enter(Call::cuMemsetD16Async, count as u64, |state| {
        fill(state, Fill::row(destination, u32::from(value), 2, count as u64), stream)
    })
}

pub unsafe extern "C" fn cuMemsetD32Async(
    destination: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> Code {
    enter(Call::cuMemsetD32Async, count as u64, |state| {
        fill(state, Fill::row(destination, value, 4, count as u64), stream)
    })
}
