//! Copies and fills.

use super::{INVALID, enter, stream::finish_launch};
use crate::{
    context,
    driver::{
        table::{Call, Code},
        types::*,
    },
    graph::Action,
    ids::Id,
    memory::check::{Accessor, MemoryKind},
    state::State,
    stream,
    work::{CopyWork, Fill, Work},
};
use std::ffi::c_uint;

/// The maximum size of a copy from pageable memory that is staged, so that the call returns at once.
const MAX_STAGED_BYTES: u64 = 64 << 10;

/// Returns the kind of the memory in a range, or an error if it can be neither a device's memory nor the program's.
fn memory_kind(state: &State, address: u64, bytes: u64) -> Result<MemoryKind, Code> {
    if address == 0 || address.checked_add(bytes).is_none() {
        return Err(INVALID);
    }
    match state.memory.read().kind_of(address, bytes) {
        MemoryKind::Unmapped => Err(INVALID),
        kind => Ok(kind),
    }
}

/// Creates a copy with the access rights of these devices for the ends that are not the program's own memory.
pub(super) fn build_copy(
    state: &State,
    to: u64,
    from: u64,
    bytes: u64,
    (to_device, from_device): (usize, usize),
) -> Result<CopyWork, Code> {
    let (to_kind, from_kind) = (memory_kind(state, to, bytes)?, memory_kind(state, from, bytes)?);
    let accessor = |kind, device| if kind == MemoryKind::Pageable { Accessor::Program } else { Accessor::Copy(device) };
    Ok(CopyWork {
        to,
        from,
        bytes,
        to_accessor: accessor(to_kind, to_device),
        from_accessor: accessor(from_kind, from_device),
    })
}

/// Refuses a fill that a device cannot do.
pub(super) fn check_fill(state: &State, fill: &Fill, device: usize) -> Result<(), Code> {
    let bytes = fill.extent().ok_or(INVALID)?;
    if !fill.to.is_multiple_of(fill.width) || memory_kind(state, fill.to, bytes)? == MemoryKind::Pageable {
        return Err(INVALID);
    }
    if state.memory.read().lacks_write_access(fill.to, device) { Err(INVALID) } else { Ok(()) }
}

/// A requested copy.
struct Request {
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: u64,
    /// The devices whose access rights apply to the ends; `None` for the stream's device.
    devices: Option<(usize, usize)>,
}

/// Submits a copy to a stream, and waits for it where CUDA does.
fn copy(state: &'static State, request: Request, handle: CUstream) -> Result<(), Code> {
    let Request { to, from, bytes, devices } = request;
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    engine.forbid_implicit(id)?;
    if devices.is_some() {
        engine.forbid_capturing(id)?;
    }
    let device = engine.stream_device(id)?;
    if bytes == 0 {
        return engine.capture_of(id).map(drop);
    }
    let copy = build_copy(state, to, from, bytes, devices.unwrap_or((device, device)))?;
    let (to_accessor, from_accessor) = (copy.to_accessor, copy.from_accessor);
    let capturing = engine.capture_of(id)?.is_some();
    let pageable = to_accessor == Accessor::Program || from_accessor == Accessor::Program;
    if !capturing && from_accessor == Accessor::Program && to_accessor != Accessor::Program && bytes <= MAX_STAGED_BYTES
    {
        // SAFETY: the program requested a copy of these bytes of its memory, so they are readable now.
        let staged = unsafe { std::slice::from_raw_parts(from as *const u8, bytes as usize) };
        let work = Work::Staged { to, accessor: to_accessor, bytes: staged.into() };
        engine.submit_action(id, Action::Work(work))?;
    } else {
        engine.submit_action(id, Action::Work(Work::Copy(copy)))?;
        if pageable && !capturing {
            drop(engine);
            return stream::synchronize_stream(state, handle);
        }
    }
    drop(engine);
    finish_launch(state, handle, capturing)
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
    engine.submit_action(id, Action::Work(Work::Fill(fill)))?;
    drop(engine);
    finish_launch(state, handle, capturing)
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
