//! Modules and kernels.

use super::{INVALID, Out, enter, put_optional, stream::finish_launch};
use crate::{
    compiled, context,
    driver::{
        Image, codes,
        table::{Call, Code},
        types::*,
    },
    engine::Engine,
    graph::Action,
    ids::Id,
    kernels::{Function, Launch},
    model::MAX_THREADS_PER_BLOCK,
    state::State,
    stream::lock_for_work,
    work::Work,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    sync::Arc,
};

pub unsafe extern "C" fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> Code {
    // SAFETY: this call has the same contract, without options.
    unsafe { load(Call::cuModuleLoadData, module, image) }
}

/// The options are for the PTX compiler, which does not exist here.
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> Code {
    if count > 0 && (options.is_null() || values.is_null()) {
        return INVALID;
    }
    // SAFETY: the caller passed what this call requires.
    unsafe { load(Call::cuModuleLoadDataEx, module, image) }
}

/// Loads a module.
///
/// # Safety
/// `image` is null or an image: PTX as text that ends in a NUL, a shared library, a cubin or a fatbin; or other bytes that
/// end in a NUL.
unsafe fn load(call: Call, module: *mut CUmodule, image: *const c_void) -> Code {
    enter(call, 0, |state| {
        let out = Out::new(module)?;
        if image.is_null() {
            return Err(INVALID);
        }
        let device = context::current(state)?;
        // SAFETY: guaranteed by the caller.
        let image = unsafe { Image::read(image) };
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        // Loading a library may take a while and accesses nothing behind the lock, so the lock is not held.
        let library = if Image::is_library(image) { Some(compiled::load_library(image)?) } else { None };
        out.put(state.engine.lock().load_module(device, image, library)? as CUmodule);
        Ok(())
    })
}

/// Locks the engine for a call about a module, whose context no work has ended.
fn lock_for_module(state: &'static State, module: CUmodule) -> Result<MutexGuard<'static, Engine>, Code> {
    let engine = state.engine.lock();
    let module = engine.modules.get(&(module as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
    context::check(state, module.device)?;
    Ok(engine)
}

pub unsafe extern "C" fn cuModuleUnload(module: CUmodule) -> Code {
    enter(Call::cuModuleUnload, 0, |state| {
        let mut engine = lock_for_module(state, module)?;
        engine.forbid_unsafe(context::thread_number())?;
        engine.unload_module(module as Id)?;
        drop(engine);
        state.memory.write().remove_variables(module as Id);
        Ok(())
    })
}

pub unsafe extern "C" fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Code {
    enter(Call::cuModuleGetFunction, 0, |state| {
        let out = Out::new(function)?;
        if name.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller passed a string that ends in a NUL.
        let name = unsafe { CStr::from_ptr(name) };
        out.put(lock_for_module(state, module)?.find_function(module as Id, name.to_bytes())? as CUfunction);
        Ok(())
    })
}

/// Both outputs are optional.
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    pointer: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> Code {
    enter(Call::cuModuleGetGlobal_v2, 0, |state| {
        if name.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller passed a string that ends in a NUL.
        let name = unsafe { CStr::from_ptr(name) };
        let (device, variable) = lock_for_module(state, module)?.find_variable(module as Id, name.to_bytes())?;
        state.memory.write().add_variable(device, module as Id, variable);
        put_optional(pointer, variable.address);
        put_optional(bytes, variable.bytes as usize);
        Ok(())
    })
}

/// Returns a kernel whose context no work has ended.
fn function_of(state: &State, engine: &Engine, function: CUfunction) -> Result<Function, Code> {
    let found = *engine.functions.get(&(function as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
    context::check(state, found.device).map(|()| found)
}

pub unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) -> Code {
    enter(Call::cuFuncGetName, 0, |state| {
        let out = Out::new(name)?;
        let engine = state.engine.lock();
        out.put(c_name(function_of(state, &engine, function)?.kernel.name)?.as_ptr());
        Ok(())
    })
}

/// Returns an attribute of a kernel. A kernel here is a CPU function, without registers.
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction) -> Code {
    enter(Call::cuFuncGetAttribute, 0, |state| {
        let out = Out::new(value)?;
        let engine = state.engine.lock();
        let found = function_of(state, &engine, function)?;
        out.put(match attribute {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => found.kernel.max_threads() as c_int,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => found.shared_bytes as c_int,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => found.kernel.static_shared() as c_int,
            CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES
            | CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
            | CU_FUNC_ATTRIBUTE_NUM_REGS
            | CU_FUNC_ATTRIBUTE_PTX_VERSION
            | CU_FUNC_ATTRIBUTE_BINARY_VERSION => 0,
            _ => return Err(INVALID),
        });
        Ok(())
    })
}

pub unsafe extern "C" fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) -> Code {
    enter(Call::cuFuncSetAttribute, 0, |state| {
        let mut engine = state.engine.lock();
        let found = engine.functions.get_mut(&(function as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        context::check(state, found.device)?;
        let bytes = u32::try_from(value).map_err(|_| INVALID)?;
        if attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            || found.kernel.total_shared(bytes as usize) > state.config.model.shared_per_block_optin as usize
        {
            return Err(INVALID);
        }
        found.shared_bytes = bytes;
        Ok(())
    })
}

pub unsafe extern "C" fn cuFuncGetParamInfo(
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> Code {
    enter(Call::cuFuncGetParamInfo, 0, |state| {
        let out = Out::new(offset)?;
        let engine = state.engine.lock();
        let found = function_of(state, &engine, function)?;
        let sizes = found.kernel.parameter_sizes;
        let size = *sizes.get(index).ok_or(INVALID)?;
        out.put(sizes[..index].iter().sum());
        // The size is an optional output.
        if let Ok(out) = Out::new(bytes) {
            out.put(size);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: CUfunction,
    threads: c_int,
    shared_bytes: usize,
) -> Code {
    enter(Call::cuOccupancyMaxActiveBlocksPerMultiprocessor, 0, |state| {
        let out = Out::new(blocks)?;
        let engine = state.engine.lock();
        let found = function_of(state, &engine, function)?;
        let model = state.config.model;
        let threads = usize::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(INVALID)?;
        // As a GPU's driver, this does not regard the kernel's own launch bound.
        if threads > MAX_THREADS_PER_BLOCK as usize {
            out.put(0);
            return Ok(());
        }
        out.put(model.resident_blocks(threads, found.kernel.total_shared(shared_bytes)) as c_int);
        Ok(())
    })
}

/// Returns a kernel's name as a C string, which is never freed: the number of kernels is bounded.
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

/// How a kernel is launched.
pub(super) struct Shape {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub cooperative: bool,
}

/// Creates a launch of a kernel with copies of the parameters that the program points to.
///
/// # Safety
/// `parameters` is null or points to a pointer for each of the kernel's parameters, which is null or points to its
/// value.
pub(super) unsafe fn build_launch(
    function: Function,
    shape: &Shape,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Launch, Code> {
    if !extra.is_null() {
        // The older way to pass parameters, in one buffer, which plinth's kernels do not use.
        return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut launch = Launch::new(function, shape.grid, shape.block, shape.shared_bytes)?;
    if shape.cooperative {
        launch.make_cooperative()?;
    }
    for (index, size) in function.kernel.parameter_sizes.iter().enumerate() {
        if parameters.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller guarantees a pointer for each of the kernel's parameters.
        let parameter = unsafe { parameters.add(index).read() };
        if parameter.is_null() {
            return Err(INVALID);
        }
        // SAFETY: each parameter's pointer points to a value of the kernel's type, hence of this size.
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
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let shape = Shape { grid, block, shared_bytes, cooperative: false };
    // SAFETY: the caller passed what a launch requires.
    unsafe { launch(Call::cuLaunchKernel, function, &shape, stream, parameters, extra) }
}

/// Launches a kernel in a stream.
///
/// # Safety
/// As [`build_launch`].
unsafe fn launch(
    call: Call,
    function: CUfunction,
    shape: &Shape,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    enter(call, 0, |state| {
        let (mut engine, id) = lock_for_work(state, stream)?;
        let function = *engine.functions.get(&(function as Id)).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        if engine.stream_device(id)? != function.device {
            return Err(codes::CUDA_ERROR_INVALID_HANDLE);
        }
        // SAFETY: the caller passed a pointer for each of the kernel's parameters.
        let launch = unsafe { build_launch(function, shape, parameters, extra) }?;
        engine.forbid_implicit(id)?;
        let capturing = engine.capture_of(id)?.is_some();
        engine.submit_action(id, Action::Work(Work::Kernel(Arc::new(launch))))?;
        drop(engine);
        finish_launch(state, stream, capturing)
    })
}

/// Launches a kernel. Of the attributes only the cooperative launch is supported, for kernels in CUDA C++.
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    if config.is_null() {
        return INVALID;
    }
    // SAFETY: the caller passed a configuration, and the pointer is not null.
    let config = unsafe { &*config };
    if config.numAttrs > 0 && config.attrs.is_null() {
        return INVALID;
    }
    let mut cooperative = false;
    for index in 0..config.numAttrs as usize {
        // SAFETY: the caller passed as many attributes as it states.
        let attribute = unsafe { &*config.attrs.add(index) };
        match attribute.id {
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE => {}
            // SAFETY: the attribute's number says which field of the union is set.
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => {
                cooperative = unsafe { attribute.value.cooperative } != 0;
            }
            _ => return codes::CUDA_ERROR_NOT_SUPPORTED,
        }
    }
    let (grid, block) =
        ([config.gridDimX, config.gridDimY, config.gridDimZ], [config.blockDimX, config.blockDimY, config.blockDimZ]);
    // SAFETY: the caller passed what a launch requires.
    unsafe {
        let shape = Shape { grid, block, shared_bytes: config.sharedMemBytes, cooperative };
        launch(Call::cuLaunchKernelEx, function, &shape, config.hStream, parameters, extra)
    }
}
