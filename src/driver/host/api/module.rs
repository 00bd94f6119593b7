//! Modules and kernels.

use super::{INVALID, Out, enter, stream::after_launch};
use crate::driver::{
    codes,
    host::{
        context,
        graph::Action,
        ids::Id,
        kernels::{Function, Launch},
        work::Work,
    },
    table::{Call, Code},
    types::*,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_uint, c_void},
    sync::Arc,
};

pub unsafe extern "C" fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> Code {
    enter(Call::cuModuleLoadData, 0, |state| {
        let out = Out::new(module)?;
        if image.is_null() {
            return Err(INVALID);
        }
        let device = context::current(state)?;
        // SAFETY: an image without a length of its own is PTX, text that ends in a NUL; anything else is an image
        // for real devices, whose first bytes are its kind and end no later than its first zero byte.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        let mut engine = state.engine.lock();
        engine.forbid_unsafe(context::thread())?;
        out.put(engine.load_module(device, text.to_bytes())? as CUmodule);
        Ok(())
    })
}

pub unsafe extern "C" fn cuModuleUnload(module: CUmodule) -> Code {
    enter(Call::cuModuleUnload, 0, |state| {
        let mut engine = state.engine.lock();
        engine.forbid_unsafe(context::thread())?;
        engine.unload_module(module as Id)
    })
}

pub unsafe extern "C" fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Code {
    enter(Call::cuModuleGetFunction, 0, |state| {
        let out = Out::new(function)?;
        if name.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller gave a text that ends in a NUL.
        let name = unsafe { CStr::from_ptr(name) };
        out.put(state.engine.lock().find_function(module as Id, name.to_bytes())? as CUfunction);
        Ok(())
    })
}

pub unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) -> Code {
    enter(Call::cuFuncGetName, 0, |state| {
        let out = Out::new(name)?;
        let engine = state.engine.lock();
        let function = engine.functions.get(&(function as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        out.put(c_name(function.kernel.name)?.as_ptr());
        Ok(())
    })
}

/// A kernel's name as C reads it, which stays for ever: there are only so many kernels.
fn c_name(name: &'static str) -> Result<&'static CStr, Code> {
    static NAMES: Mutex<BTreeMap<&str, &CStr>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return Ok(known);
    }
    let text: &'static CStr = Box::leak(CString::new(name).map_err(|_| INVALID)?.into_boxed_c_str());
    names.insert(name, text);
    Ok(text)
}

/// A launch of a kernel with the parameters that the program points to, of its own copying.
///
/// # Safety
/// `parameters` is null or leads to a pointer for each of the kernel's parameters, which is null or leads to its value.
pub(super) unsafe fn launch_of(
    function: Function,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Launch, Code> {
    if !extra.is_null() {
        // The older way to pass parameters, as one buffer, which plinth's own kernels do not use.
        return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut launch = Launch::new(function, grid, block, shared_bytes)?;
    for (index, size) in function.kernel.parameter_sizes.iter().enumerate() {
        if parameters.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller promises a pointer for each of the kernel's parameters.
        let parameter = unsafe { parameters.add(index).read() };
        if parameter.is_null() {
            return Err(INVALID);
        }
        // SAFETY: each parameter's pointer leads to a value of the kernel's type, hence of this size.
        launch.push(unsafe { std::slice::from_raw_parts(parameter.cast::<u8>(), *size) });
    }
    Ok(launch)
}

pub unsafe extern "C" fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    enter(Call::cuLaunchKernel, 0, |state| {
        let mut engine = state.engine.lock();
        let function = *engine.functions.get(&(function as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        let id = engine.find_stream(stream, context::current(state))?;
        if engine.stream_device(id)? != function.device {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        // SAFETY: the caller gave a pointer for each of the kernel's parameters.
        let launch = unsafe { launch_of(function, grid, block, shared_bytes, parameters, extra) }?;
        engine.forbid_implicit(id)?;
        let capturing = engine.capture_of(id)?.is_some();
        engine.act(id, Action::Work(Work::Kernel(Arc::new(launch))))?;
        drop(engine);
        after_launch(state, stream, capturing)
    })
}
