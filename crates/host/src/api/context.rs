//! Contexts.

use super::{Out, enter, put_optional};
use crate::{
    context,
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    ids::Id,
    state::State,
    stream,
};
use std::{
    ffi::{c_int, c_uint},
    sync::atomic::Ordering,
};

fn ordinal(state: &State, device: CUdevice) -> Result<usize, Code> {
    let index = usize::try_from(device).map_err(|_| codes::CUDA_ERROR_INVALID_DEVICE)?;
    if index < state.contexts.len() { Ok(index) } else { Err(codes::CUDA_ERROR_INVALID_DEVICE) }
}

pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> Code {
    enter(Call::cuDevicePrimaryCtxRetain, 0, |state| {
        let out = Out::new(context)?;
        let index = ordinal(state, device)?;
        state.retained[index].store(true, Ordering::Release);
        out.put(state.contexts[index] as CUcontext);
        Ok(())
    })
}

pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Code {
    enter(Call::cuDevicePrimaryCtxGetState, 0, |state| {
        let index = ordinal(state, device)?;
        let (flags, active) = (Out::new(flags)?, Out::new(active)?);
        flags.put(0);
        active.put(c_int::from(state.retained[index].load(Ordering::Acquire)));
        Ok(())
    })
}

pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> Code {
    enter(Call::cuCtxGetCurrent, 0, |_| {
        Out::new(context)?.put(context::current_handle() as CUcontext);
        Ok(())
    })
}

pub unsafe extern "C" fn cuCtxSetCurrent(context: CUcontext) -> Code {
    enter(Call::cuCtxSetCurrent, 0, |_| context::set_current(context as Id))
}

pub unsafe extern "C" fn cuCtxGetDevice(device: *mut CUdevice) -> Code {
    enter(Call::cuCtxGetDevice, 0, |state| {
        let out = Out::new(device)?;
        out.put(context::current_device(state)? as CUdevice);
        Ok(())
    })
}

pub unsafe extern "C" fn cuCtxSynchronize() -> Code {
    enter(Call::cuCtxSynchronize, 0, |state| {
        let device = context::current_device(state)?;
        // Captures of other devices do not matter, in any mode.
        state.engine.lock().forbid_device(device)?;
        stream::synchronize_device(state, device)
    })
}

pub unsafe extern "C" fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> Code {
    enter(Call::cuCtxRecordEvent, 0, |state| {
        let device = context::device_of(state, context as Id)?;
        context::check(state, device)?;
        let mut engine = state.engine.lock();
        engine.forbid_device(device)?;
        engine.record_in_device(event as Id, device)
    })
}

pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Code {
    enter(Call::cuCtxGetStreamPriorityRange, 0, |state| {
        context::current(state)?;
        put_optional(least, stream::LEAST_PRIORITY);
        put_optional(greatest, stream::GREATEST_PRIORITY);
        Ok(())
    })
}

/// Returns the current device and the device of the peer context.
fn pair(state: &State, peer: CUcontext) -> Result<(usize, usize), Code> {
    Ok((context::current(state)?, context::device_of(state, peer as Id)?))
}

pub unsafe extern "C" fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Code {
    enter(Call::cuCtxEnablePeerAccess, 0, |state| {
        let (device, peer) = pair(state, peer)?;
        if flags != 0 {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        // A device is not its own peer.
        if !state.config.peers || device == peer {
            return Err(codes::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        let peers = &mut state.memory.write().peers[device];
        if *peers & (1 << peer) != 0 {
            return Err(codes::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        *peers |= 1 << peer;
        Ok(())
    })
}

pub unsafe extern "C" fn cuCtxDisablePeerAccess(peer: CUcontext) -> Code {
    enter(Call::cuCtxDisablePeerAccess, 0, |state| {
        let (device, peer) = pair(state, peer)?;
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        let peers = &mut state.memory.write().peers[device];
        if *peers & (1 << peer) == 0 {
            return Err(codes::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        }
        *peers &= !(1 << peer);
        Ok(())
    })
}
