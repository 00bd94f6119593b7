//! Whole allocations, pinned host memory, and pointer attributes.

use super::{INVALID, Out, enter};
use crate::{
    context,
    driver::{
        table::{Call, Code},
        types::*,
    },
    memory::pointer::Pointee,
    state::{self, State},
    stream,
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// The flags of allocated pinned memory: portable, mapped and write-combined.
const HOST_ALLOC_FLAGS: c_uint = 0x7;
const REGISTER_FLAGS: c_uint = 0xf;

/// Returns the current device, unless a capture prohibits the unsafe call.
fn device_for_unsafe_call(state: &'static State) -> Result<usize, Code> {
    let device = context::current(state)?;
    state.engine.lock().forbid_unsafe(context::thread_number())?;
    Ok(device)
}

/// Fails if work has ended the current context. A thread without one may free.
fn check_current(state: &State) -> Result<(), Code> {
    context::current_device(state).map_or(Ok(()), |device| context::check(state, device))
}

/// Waits for all work of all devices, including work that failed.
fn synchronize_all_devices(state: &'static State) {
    for device in 0..state.contexts.len() {
        // An error here belongs to the work, and its stream still reports it.
        let _ = stream::synchronize_device(state, device);
    }
}

pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    enter(Call::cuMemGetInfo_v2, 0, |state| {
        let (free, total) = (Out::new(free)?, Out::new(total)?);
        let (free_bytes, total_bytes) = state.memory.write().info(context::current(state)?)?;
        free.put(free_bytes as usize);
        total.put(total_bytes as usize);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) -> Code {
    enter(Call::cuMemAlloc_v2, bytes as u64, |state| {
        let device = device_for_unsafe_call(state)?;
        let out = Out::new(pointer)?;
        let address = state.memory.write().allocate(device, bytes as u64)?;
        out.put(address);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemFree_v2(pointer: CUdeviceptr) -> Code {
    let state = state::get().ok();
    let bytes = state.and_then(|state| state.memory.read().allocations.get(&pointer).map(|one| one.bytes));
    enter(Call::cuMemFree_v2, bytes.unwrap_or(0), |state| {
        check_current(state)?;
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        if pointer == 0 {
            return Ok(());
        }
        let device =
            state.memory.read().allocations.get(&pointer).map(|allocation| allocation.device).ok_or(INVALID)?;
        let current = context::current(state).ok().filter(|current| *current != device);
        for waited in [Some(device), current].into_iter().flatten() {
            // An error here belongs to the work, and its stream still reports it.
            let _ = stream::synchronize_device(state, waited);
        }
        let mut memory = state.memory.write();
        if memory.is_graph_memory(pointer) {
            memory.begin_graph_free(pointer)?;
            memory.release_graph_memory(pointer);
            return Ok(());
        }
        memory.deallocate(pointer).map(drop)
    })
}

pub unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    bytes: *mut usize,
    pointer: CUdeviceptr,
) -> Code {
    enter(Call::cuMemGetAddressRange_v2, 0, |state| {
        context::current(state)?;
        let (start, size) = state.memory.read().address_range(pointer)?;
        super::put_optional(base, start);
        super::put_optional(bytes, size as usize);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Code {
    enter(Call::cuMemHostAlloc, bytes as u64, |state| {
        let device = device_for_unsafe_call(state)?;
        let out = Out::new(pointer)?;
        if flags & !HOST_ALLOC_FLAGS != 0 {
            return Err(INVALID);
        }
        let address = if bytes == 0 { 0 } else { state.memory.write().allocate_pinned(bytes as u64, device)? };
        out.put(address as *mut c_void);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> Code {
    enter(Call::cuMemFreeHost, 0, |state| {
        check_current(state)?;
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        if pointer.is_null() {
            return Ok(());
        }
        synchronize_all_devices(state);
        state.memory.write().free_pinned(pointer as u64).map(drop)
    })
}

pub unsafe extern "C" fn cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> Code {
    enter(Call::cuMemAllocManaged, bytes as u64, |state| {
        let out = Out::new(pointer)?;
        if bytes == 0 || !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(INVALID);
        }
        let device = device_for_unsafe_call(state)?;
        let address = state.memory.write().allocate_managed(device, bytes as u64)?;
        out.put(address);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Code {
    enter(Call::cuMemHostRegister_v2, bytes as u64, |state| {
        let device = device_for_unsafe_call(state)?;
        if flags & !REGISTER_FLAGS != 0 {
            return Err(INVALID);
        }
        state.memory.write().register(pointer as u64, bytes as u64, device)
    })
}

pub unsafe extern "C" fn cuMemHostUnregister(pointer: *mut c_void) -> Code {
    enter(Call::cuMemHostUnregister, 0, |state| {
        check_current(state)?;
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        synchronize_all_devices(state);
        state.memory.write().unregister(pointer as u64).map(drop)
    })
}

/// A value of a pointer attribute, in the type that CUDA documents.
enum Value {
    Pointer(u64),
    Number(c_ulonglong),
    Unsigned(c_uint),
    Signed(c_int),
    Size(usize),
}

impl Value {
    /// Writes the value.
    ///
    /// # Safety
    /// `output` has room for this attribute's value.
    unsafe fn write(self, output: *mut c_void) {
        // SAFETY: the caller guarantees the room; CUDA documents the type of each attribute.
        unsafe {
            match self {
                Value::Pointer(value) => output.cast::<u64>().write(value),
                Value::Number(value) => output.cast::<c_ulonglong>().write(value),
                Value::Unsigned(value) => output.cast::<c_uint>().write(value),
                Value::Signed(value) => output.cast::<c_int>().write(value),
                Value::Size(value) => output.cast::<usize>().write(value),
            }
        }
    }
}

/// Returns an attribute. Programs read a boolean attribute as an `unsigned int` or as a `bool`; a whole word serves
/// both.
fn attribute(state: &State, attribute: c_uint, address: u64, pointee: Option<Pointee>) -> Result<Value, Code> {
    let value = match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => {
            let owner = pointee.filter(|one| one.owned_by_context);
            Value::Pointer(owner.and_then(|one| state.contexts.get(one.device).copied()).unwrap_or(0))
        }
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Unsigned(match pointee {
            None => 0,
            Some(one) if one.host => CU_MEMORYTYPE_HOST,
            Some(_) => CU_MEMORYTYPE_DEVICE,
        }),
        // The address by which kernels of the current context access the memory; 0 without access.
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => {
            let reached = pointee.is_some_and(|one| one.host || one.managed) || {
                let memory = state.memory.read();
                let device = context::current_device(state);
                pointee.is_some() && device.is_ok_and(|device| memory.is_readable(address, device))
            };
            Value::Pointer(if reached { address } else { 0 })
        }
        CU_POINTER_ATTRIBUTE_HOST_POINTER => {
            Value::Pointer(if pointee.is_some_and(|one| one.host || one.managed) { address } else { 0 })
        }
        CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Number(pointee.map_or(0, |one| one.buffer)),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => Value::Unsigned(c_uint::from(pointee.is_some_and(|one| one.managed))),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Signed(pointee.map_or(-2, |one| one.device as c_int)),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Pointer(pointee.map_or(0, |one| one.start)),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Size(pointee.map_or(0, |one| one.bytes as usize)),
        CU_POINTER_ATTRIBUTE_MAPPED => Value::Unsigned(c_uint::from(pointee.is_some())),
        _ => return Err(INVALID),
    };
    Ok(value)
}

pub unsafe extern "C" fn cuPointerGetAttribute(data: *mut c_void, kind: c_uint, pointer: CUdeviceptr) -> Code {
    enter(Call::cuPointerGetAttribute, 0, |state| {
        if data.is_null() {
            return Err(INVALID);
        }
        let pointee = state.memory.read().pointee(pointer).ok_or(INVALID)?;
        // The host can access a device's memory only where the driver reports so, which this one never does.
        if kind == CU_POINTER_ATTRIBUTE_HOST_POINTER && !pointee.host && !pointee.managed {
            return Err(INVALID);
        }
        let value = attribute(state, kind, pointer, Some(pointee))?;
        // Kernels reach it only after an access was set.
        if kind == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && matches!(value, Value::Pointer(0)) {
            return Err(INVALID);
        }
        // SAFETY: the caller passed room for this attribute.
        unsafe { value.write(data) };
        Ok(())
    })
}

pub unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut c_uint,
    data: *mut *mut c_void,
    pointer: CUdeviceptr,
) -> Code {
    enter(Call::cuPointerGetAttributes, 0, |state| {
        if count == 0 || attributes.is_null() || data.is_null() {
            return Err(INVALID);
        }
        let pointee = state.memory.read().pointee(pointer);
        let mut values = Vec::with_capacity(count as usize);
        for index in 0..count as usize {
            // SAFETY: the caller passed `count` attributes and `count` pointers.
            let (kind, output) = unsafe { (attributes.add(index).read(), data.add(index).read()) };
            if output.is_null() {
                return Err(INVALID);
            }
            values.push((attribute(state, kind, pointer, pointee)?, output));
        }
        for (value, output) in values {
            // SAFETY: the caller guarantees room for the attribute's value behind each pointer.
            unsafe { value.write(output) };
        }
        Ok(())
    })
}
