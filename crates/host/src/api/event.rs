//! Events.

use super::{INVALID, Out, enter};
use crate::{
    context,
    driver::{
        table::{Call, Code},
        types::*,
    },
    event,
    ids::Id,
    state::State,
    stream::lock_for_work,
};
use std::ffi::c_uint;

pub unsafe extern "C" fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> Code {
    enter(Call::cuEventCreate, 0, |state| {
        let out = Out::new(event)?;
        let device = context::current(state)?;
        out.put(state.engine.lock().create_event(device, flags)? as CUevent);
        Ok(())
    })
}

pub unsafe extern "C" fn cuEventDestroy_v2(event: CUevent) -> Code {
    enter(Call::cuEventDestroy_v2, 0, |state| {
        let mut engine = state.engine.lock();
        context::check(state, engine.event(event as Id)?.device)?;
        engine.events.remove(&(event as Id));
        Ok(())
    })
}

fn record(state: &'static State, event: CUevent, stream: CUstream, flags: c_uint) -> Result<(), Code> {
    let (mut engine, id) = lock_for_work(state, stream)?;
    engine.forbid_implicit(id)?;
    engine.capture_of(id)?;
    engine.event(event as Id)?;
    if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
        return Err(INVALID);
    }
    engine.record(event as Id, id, flags & CU_EVENT_RECORD_EXTERNAL != 0)
}

pub unsafe extern "C" fn cuEventRecord(event: CUevent, stream: CUstream) -> Code {
    enter(Call::cuEventRecord, 0, |state| record(state, event, stream, CU_EVENT_RECORD_DEFAULT))
}

pub unsafe extern "C" fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> Code {
    enter(Call::cuEventRecordWithFlags, 0, |state| record(state, event, stream, flags))
}

pub unsafe extern "C" fn cuEventQuery(event: CUevent) -> Code {
    enter(Call::cuEventQuery, 0, |state| state.engine.lock().query_event(event as Id))
}

pub unsafe extern "C" fn cuEventSynchronize(event: CUevent) -> Code {
    enter(Call::cuEventSynchronize, 0, |state| event::synchronize_event(state, event as Id))
}

pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Code {
    enter(Call::cuEventElapsedTime, 0, |state| {
        let out = Out::new(milliseconds)?;
        out.put(state.engine.lock().elapsed(start as Id, end as Id)?);
        Ok(())
    })
}
