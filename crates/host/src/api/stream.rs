//! Streams.

use super::{INVALID, Out, enter};
use crate::{
    context,
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    engine::Engine,
    graph::Action,
    ids::Id,
    memory::check::Accessor,
    state::State,
    stream::{self, Kind, Stream},
    work::{HostCall, Work},
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// The largest number of operations in one call.
const MAX_WRITES: usize = 256;

/// Waits for a launch before the call returns, if CUDA_LAUNCH_BLOCKING is set.
pub(super) fn finish_launch(state: &'static State, handle: CUstream, capturing: bool) -> Result<(), Code> {
    if state.config.launch_blocking && !capturing {
        return stream::synchronize_stream(state, handle);
    }
    Ok(())
}

/// Reads a property of a stream, which may be in a valid capture.
fn read<T>(state: &'static State, handle: CUstream, get: impl FnOnce(&Stream) -> T) -> Result<T, Code> {
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    engine.forbid_implicit(id)?;
    engine.capture_of(id)?;
    engine.streams.get(&id).map(get).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)
}

/// Reads a property that the driver does not return for a capturing stream: the query invalidates the capture, whatever
/// the modes of the capture and the thread are.
fn read_outside_capture<T>(state: &'static State, handle: CUstream, get: impl FnOnce(&Stream) -> T) -> Result<T, Code> {
    let mut engine = state.engine.lock();
    let id = engine.find_stream(handle, context::current(state))?;
    engine.forbid_implicit(id)?;
    engine.forbid_capturing(id)?;
    engine.streams.get(&id).map(get).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)
}

/// Finds a stream that may be queried or waited for.
fn find_queryable(engine: &mut Engine, state: &'static State, handle: CUstream) -> Result<Id, Code> {
    let id = engine.find_lost_stream(handle, context::current_device(state))?;
    engine.forbid_capturing(id)?;
    engine.forbid_implicit(id)?;
    engine.forbid_unsafe(context::thread_number())?;
    Ok(id)
}

pub unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> Code {
    enter(Call::cuStreamCreateWithPriority, 0, |state| {
        let out = Out::new(stream)?;
        if flags & !CU_STREAM_NON_BLOCKING != 0 {
            return Err(INVALID);
        }
        let device = context::current(state)?;
        let green = state.green.lock().context(context::current_handle());
        let mut engine = state.engine.lock();
        let id = engine.create_stream(device, Kind::Created, flags, priority);
        if let Some(stream) = engine.streams.get_mut(&id) {
            stream.green = green;
        }
        out.put(id as CUstream);
        Ok(())
    })
}

pub unsafe extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> Code {
    enter(Call::cuStreamDestroy_v2, 0, |state| {
        if stream as usize <= CU_STREAM_PER_THREAD {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        if !matches!(engine.streams.get(&id).map(|stream| &stream.kind), Some(Kind::Created)) {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
        engine.destroy_stream(id);
        engine.destroyed_streams.insert(id);
        Ok(())
    })
}

pub unsafe extern "C" fn cuStreamQuery(stream: CUstream) -> Code {
    enter(Call::cuStreamQuery, 0, |state| {
        let mut engine = state.engine.lock();
        let id = find_queryable(&mut engine, state, stream)?;
        engine.query_stream(id)
    })
}

pub unsafe extern "C" fn cuStreamSynchronize(stream: CUstream) -> Code {
    enter(Call::cuStreamSynchronize, 0, |state| {
        find_queryable(&mut state.engine.lock(), state, stream)?;
        stream::synchronize_stream(state, stream)
    })
}

pub unsafe extern "C" fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Code {
    enter(Call::cuStreamWaitEvent, 0, |state| {
        let (mut engine, id) = stream::lock_for_work(state, stream)?;
        engine.forbid_implicit(id)?;
        engine.capture_of(id)?;
        if flags & !CU_EVENT_WAIT_EXTERNAL != 0 {
            return Err(INVALID);
        }
        engine.wait_event(id, event as Id, flags & CU_EVENT_WAIT_EXTERNAL != 0)
    })
}

pub unsafe extern "C" fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) -> Code {
    enter(Call::cuStreamGetPriority, 0, |state| {
        let out = Out::new(priority)?;
        out.put(read(state, stream, |stream| stream.priority)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) -> Code {
    enter(Call::cuStreamGetFlags, 0, |state| {
        let out = Out::new(flags)?;
        out.put(read_outside_capture(state, stream, |stream| stream.flags)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> Code {
    enter(Call::cuStreamGetCtx, 0, |state| {
        let out = Out::new(context)?;
        let (device, green) = read(state, stream, |stream| (stream.device, stream.green))?;
        let primary = state.contexts.get(device).copied().unwrap_or(0);
        out.put(if green == 0 { primary } else { green } as CUcontext);
        Ok(())
    })
}

pub unsafe extern "C" fn cuStreamGetId(stream: CUstream, id: *mut c_ulonglong) -> Code {
    enter(Call::cuStreamGetId, 0, |state| {
        let out = Out::new(id)?;
        out.put(read_outside_capture(state, stream, |stream| stream.number)?);
        Ok(())
    })
}

/// Writes numbers; the other operations are not supported. In a capture each write is a node of its own.
pub unsafe extern "C" fn cuStreamBatchMemOp_v2(
    stream: CUstream,
    count: c_uint,
    writes: *mut StreamWrite,
    flags: c_uint,
) -> Code {
    enter(Call::cuStreamBatchMemOp_v2, 0, |state| {
        if writes.is_null() || count == 0 || count as usize > MAX_WRITES || flags != 0 {
            return Err(INVALID);
        }
        // SAFETY: the program passes as many operations as it states.
        let writes = unsafe { std::slice::from_raw_parts(writes, count as usize) };
        if writes.iter().any(|write| write.operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) {
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        if writes.iter().any(|write| !write.address.is_multiple_of(8)) {
            return Err(INVALID);
        }
        let (mut engine, id) = stream::lock_for_work(state, stream)?;
        engine.forbid_implicit(id)?;
        let accessor = Accessor::Device(engine.stream_device(id)?);
        writes.iter().try_for_each(|write| {
            let bytes = write.value.to_le_bytes().into();
            engine.submit_action(id, Action::Work(Work::Staged { to: write.address, accessor, bytes }))
        })
    })
}

pub unsafe extern "C" fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) -> Code {
    enter(Call::cuLaunchHostFunc, 0, |state| {
        let function = function.ok_or(INVALID)?;
        let (mut engine, id) = stream::lock_for_work(state, stream)?;
        engine.forbid_implicit(id)?;
        engine.submit_action(id, Action::Host(HostCall { function, data: data as usize }))
    })
}
