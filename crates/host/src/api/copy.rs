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
    work::{CopyWork, Fill, Work, extent_of_rows},
};
use std::ffi::{c_uint, c_void};

/// The maximum size of a copy from pageable memory that is staged, so that the call returns at once.
const MAX_STAGED_BYTES: u64 = 64 << 10;

/// Returns the kind of the memory in a range, or an error if it can be neither a device's memory nor the program's, or if
/// it runs past the end of an allocation.
fn memory_kind(state: &State, address: u64, bytes: u64) -> Result<MemoryKind, Code> {
    if address == 0 || address.checked_add(bytes).is_none() {
        return Err(INVALID);
    }
    let memory = state.memory.read();
    if memory.is_overrun(address, bytes) {
        return Err(INVALID);
    }
    match memory.kind_of(address, bytes) {
        MemoryKind::Unmapped => Err(INVALID),
        kind => Ok(kind),
    }
}

/// One end of a copy: its address, and the distance between the beginnings of two rows.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub address: u64,
    pub pitch: u64,
}

impl End {
    /// Creates an end of a copy of one row.
    pub(super) fn row(address: u64) -> End {
        End { address, pitch: 0 }
    }
}

/// The maximum of the attribute `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
const MAX_PITCH: u64 = i32::MAX as u64;

/// Creates a copy of rows with the access rights of these devices for the ends that are not the program's own memory.
pub(super) fn build_copy(
    state: &State,
    [to, from]: [End; 2],
    (bytes, rows): (u64, u64),
    (to_device, from_device): (usize, usize),
) -> Result<CopyWork, Code> {
    let kind = |end: End| {
        if rows > 1 && (end.pitch < bytes || end.pitch > MAX_PITCH) {
            return Err(INVALID);
        }
        memory_kind(state, end.address, extent_of_rows(bytes, rows, end.pitch).ok_or(INVALID)?)
    };
    let (to_kind, from_kind) = (kind(to)?, kind(from)?);
    let accessor = |kind, device| if kind == MemoryKind::Pageable { Accessor::Program } else { Accessor::Copy(device) };
    Ok(CopyWork {
        to: to.address,
        from: from.address,
        bytes,
        rows,
        to_pitch: to.pitch,
        from_pitch: from.pitch,
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
    ends: [End; 2],
    bytes: u64,
    rows: u64,
    /// The devices whose access rights apply to the ends; `None` for the stream's device.
    devices: Option<(usize, usize)>,
}

/// Submits a copy to a stream, and waits for it where CUDA does.
fn copy(state: &'static State, request: Request, handle: CUstream) -> Result<(), Code> {
    let Request { ends, bytes, rows, devices } = request;
    let [to, from] = ends.map(|end| end.address);
    let (mut engine, id) = stream::lock_for_work(state, handle)?;
    engine.forbid_implicit(id)?;
    if devices.is_some() {
        engine.forbid_capturing(id)?;
    }
    let device = engine.stream_device(id)?;
    if bytes == 0 || rows == 0 {
        return engine.capture_of(id).map(drop);
    }
    let copy = build_copy(state, ends, (bytes, rows), devices.unwrap_or((device, device)))?;
    let (to_accessor, from_accessor) = (copy.to_accessor, copy.from_accessor);
    let capturing = engine.capture_of(id)?.is_some();
    let pageable = to_accessor == Accessor::Program || from_accessor == Accessor::Program;
    let is_staged = rows == 1 && bytes <= MAX_STAGED_BYTES;
    if !capturing && is_staged && from_accessor == Accessor::Program && to_accessor != Accessor::Program {
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
        let ends = [destination, source].map(End::row);
        copy(state, Request { ends, bytes: bytes as u64, rows: 1, devices: None }, stream)
    })
}

/// Returns one end of a copy from CUDA's parameters. The host device has no CUDA arrays.
pub(super) fn end(
    kind: c_uint,
    host: *const c_void,
    device: CUdeviceptr,
    offset: u64,
    pitch: u64,
) -> Result<End, Code> {
    let start = match kind {
        CU_MEMORYTYPE_HOST => host as u64,
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device,
        _ => return Err(INVALID),
    };
    Ok(End { address: start.checked_add(offset).ok_or(INVALID)?, pitch })
}

pub unsafe extern "C" fn cuMemcpy2DAsync_v2(parameters: *const Memcpy2d, stream: CUstream) -> Code {
    // SAFETY: the caller passed parameters, or null.
    let parameters = unsafe { parameters.as_ref() };
    let bytes = parameters.map_or(0, |copy| copy.width.saturating_mul(copy.height) as u64);
    enter(Call::cuMemcpy2DAsync_v2, bytes, |state| {
        let params = parameters.ok_or(INVALID)?;
        // A pitch of 0 stands for rows without gaps.
        let pitch_of = |pitch: usize| if pitch == 0 { params.width } else { pitch };
        let (source_pitch, pitch) = (pitch_of(params.source_pitch), pitch_of(params.destination_pitch));
        let offset = |x: usize, y: usize, pitch: usize| {
            // A row must end before the next one begins.
            if x.checked_add(params.width).is_none_or(|end| end > pitch) {
                return Err(INVALID);
            }
            (y as u64).checked_mul(pitch as u64).and_then(|rows| rows.checked_add(x as u64)).ok_or(INVALID)
        };
        let from = offset(params.source_x, params.source_y, source_pitch)?;
        let to = offset(params.destination_x, params.destination_y, pitch)?;
        let from = end(params.source_type, params.source_host, params.source_device, from, source_pitch as u64)?;
        let to = end(params.destination_type, params.destination_host, params.destination_device, to, pitch as u64)?;
        let (bytes, rows) = (params.width as u64, params.height as u64);
        copy(state, Request { ends: [to, from], bytes, rows, devices: None }, stream)
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
        let ends = [destination, source].map(End::row);
        copy(state, Request { ends, bytes: bytes as u64, rows: 1, devices }, stream)
    })
}

fn fill(state: &'static State, fill: Fill, handle: CUstream) -> Result<(), Code> {
    let (mut engine, id) = stream::lock_for_work(state, handle)?;
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
