//! Sharing with other processes by handles of 64 bytes.

use super::{INVALID, Out, enter};
use crate::{
    context,
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    ids::Id,
    memory::ipc,
    stream,
};
use std::ffi::{c_char, c_uint};

pub unsafe extern "C" fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) -> Code {
    enter(Call::cuIpcGetMemHandle, 0, |state| {
        let out = Out::new(handle)?;
        context::current(state)?;
        let bytes = state.memory.write().ipc_handle(pointer, &state.config.visible)?;
        out.put(CUipcMemHandle { reserved: bytes.map(|byte| byte as c_char) });
        Ok(())
    })
}

pub unsafe extern "C" fn cuIpcOpenMemHandle_v2(
    pointer: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Code {
    enter(Call::cuIpcOpenMemHandle_v2, 0, |state| {
        let out = Out::new(pointer)?;
        if flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
            return Err(INVALID);
        }
        let device = context::current(state)?;
        let bytes = handle.reserved.map(|byte| byte as u8);
        if ipc::is_own(&bytes) {
            return Err(codes::CUDA_ERROR_INVALID_CONTEXT);
        }
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        out.put(state.memory.write().ipc_open(bytes, device, &state.config.visible)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuIpcCloseMemHandle(pointer: CUdeviceptr) -> Code {
    enter(Call::cuIpcCloseMemHandle, 0, |state| {
        let device = context::current(state)?;
        if !state.memory.read().ipc_has(pointer, device) {
            return Err(INVALID);
        }
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        // An error here belongs to the work, and its stream still reports it.
        let _ = stream::synchronize_device(state, device);
        state.memory.write().ipc_close(pointer, device)
    })
}

pub unsafe extern "C" fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) -> Code {
    enter(Call::cuIpcGetEventHandle, 0, |state| {
        let out = Out::new(handle)?;
        let engine = state.engine.lock();
        if event.is_null() {
            return Err(INVALID);
        }
        let device = context::current(state)?;
        let event = engine.event(event as Id)?;
        let shared = event.shared.as_ref().ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        if event.device != device {
            // A GPU's driver (580, CUDA 13.0) crashes.
            return Err(codes::CUDA_ERROR_ILLEGAL_STATE);
        }
        out.put(CUipcEventHandle { reserved: shared.handle().map(|byte| byte as c_char) });
        Ok(())
    })
}

pub unsafe extern "C" fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) -> Code {
    enter(Call::cuIpcOpenEventHandle, 0, |state| {
        let out = Out::new(event)?;
        let device = context::current(state)?;
        let bytes = handle.reserved.map(|byte| byte as u8);
        let id = state.engine.lock().open_event(device, &bytes)?;
        out.put(id as CUevent);
        Ok(())
    })
}
