//! The driver's memory pools, and stream-ordered allocation.

use super::{INVALID, Out, enter, stream::finish_launch, vmm};
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
    state::State,
    stream::{Op, lock_for_work},
};
use std::ffi::{c_int, c_uint, c_void};

/// Returns whether an attribute is an `int`; the others are 64-bit numbers.
fn is_flag(attribute: c_uint) -> bool {
    attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
}

pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> Code {
    enter(Call::cuDeviceGetDefaultMemPool, 0, |state| {
        let out = Out::new(pool)?;
        let memory = state.memory.read();
        let found = usize::try_from(device).ok().and_then(|device| memory.pools.get(device));
        out.put(found.ok_or(codes::CUDA_ERROR_INVALID_DEVICE)?.id as CUmemoryPool);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> Code {
    enter(Call::cuMemPoolSetAttribute, 0, |state| {
        if value.is_null() {
            return Err(INVALID);
        }
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        // SAFETY: the caller passes a value of the type that CUDA documents for the attribute.
        let value = unsafe {
            if is_flag(attribute) { u64::from(value.cast::<c_uint>().read()) } else { value.cast::<u64>().read() }
        };
        let mut memory = state.memory.write();
        let device = memory.pool_device(pool as Id)?;
        memory.pools[device].set_attribute(attribute, value).ok_or(INVALID)
    })
}

pub unsafe extern "C" fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) -> Code {
    enter(Call::cuMemPoolGetAttribute, 0, |state| {
        if value.is_null() {
            return Err(INVALID);
        }
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        let memory = state.memory.read();
        let device = memory.pool_device(pool as Id)?;
        let found = memory.pools[device].attribute(attribute).ok_or(INVALID)?;
        // SAFETY: the caller passes room for the type that CUDA documents for the attribute.
        unsafe {
            if is_flag(attribute) {
                value.cast::<c_int>().write(found as c_int)
            } else {
                value.cast::<u64>().write(found)
            }
        }
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemPoolTrimTo(pool: CUmemoryPool, least: usize) -> Code {
    enter(Call::cuMemPoolTrimTo, 0, |state| {
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        let mut memory = state.memory.write();
        let device = memory.pool_device(pool as Id)?;
        memory.trim_pool(device, least as u64);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) -> Code {
    enter(Call::cuMemPoolSetAccess, 0, |state| {
        if access.is_null() && count > 0 {
            return Err(INVALID);
        }
        state.engine.lock().forbid_unsafe(context::thread_number())?;
        let mut memory = state.memory.write();
        let device = memory.pool_device(pool as Id)?;
        let (mut set, mut clear) = (0, 0);
        for index in 0..count {
            // SAFETY: the caller passes `count` access descriptions.
            let one = unsafe { vmm::read_access(access.add(index)) };
            if one.flags == CU_MEM_ACCESS_FLAGS_PROT_READ {
                return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
            }
            let one = one.access(state)?;
            let bit = 1_u64 << one.device;
            if one.device == device && !one.write {
                return Err(codes::CUDA_ERROR_INVALID_DEVICE);
            }
            if one.write { set |= bit } else { clear |= bit }
        }
        memory.set_pool_readers(device, set, clear);
        Ok(())
    })
}

pub unsafe extern "C" fn cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Code {
    enter(Call::cuMemAllocAsync, bytes as u64, |state| {
        let out = Out::new(pointer)?;
        let mut engine = state.engine.lock();
        let id = engine.find_stream(stream, context::current(state))?;
        engine.forbid_implicit(id)?;
        let device = engine.stream_device(id)?;
        if engine.capture_of(id)?.is_some() {
            let address = if bytes == 0 { 0 } else { allocate_in_capture(state, &mut engine, id, device, bytes)? };
            out.put(address);
            return Ok(());
        }
        engine.forbid_unsafe(context::thread_number())?;
        // The engine stays locked, so that blocks that the stream freed are still pending in it.
        out.put(state.memory.write().allocate_from_pool(device, bytes as u64, id)?);
        Ok(())
    })
}

/// Adds an allocation node to the capture of a stream.
fn allocate_in_capture(
    state: &State,
    engine: &mut Engine,
    stream: Id,
    device: usize,
    bytes: usize,
) -> Result<CUdeviceptr, Code> {
    let graph_id = engine.captured_graph(stream).ok_or(codes::CUDA_ERROR_ILLEGAL_STATE)?;
    let before = engine.graph(graph_id)?.ancestors(engine.frontier(stream));
    let is_before = |node: usize| before.get(node).is_some_and(|is_before| *is_before);
    let address = state.memory.write().allocate_in_graph(graph_id, device, bytes as u64, is_before)?;
    engine.add_node(stream, Action::Allocate(address));
    Ok(address)
}

/// Adds a node that frees memory of a graph to the capture of a stream.
fn free_in_capture(state: &State, engine: &mut Engine, stream: Id, address: CUdeviceptr) -> Result<(), Code> {
    let graph_id = engine.captured_graph(stream).ok_or(codes::CUDA_ERROR_ILLEGAL_STATE)?;
    let node = engine.graph(graph_id)?.nodes.len();
    state.memory.write().free_in_graph(graph_id, address, node)?;
    engine.add_node(stream, Action::Free(address));
    Ok(())
}

pub unsafe extern "C" fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream) -> Code {
    enter(Call::cuMemFreeAsync, 0, |state| {
        let (mut engine, id) = lock_for_work(state, stream)?;
        engine.forbid_implicit(id)?;
        if engine.capture_of(id)?.is_some() {
            return if pointer == 0 { Ok(()) } else { free_in_capture(state, &mut engine, id, pointer) };
        }
        engine.forbid_unsafe(context::thread_number())?;
        if let Some(stream) = engine.streams.get(&id) {
            stream.check()?;
        }
        if pointer == 0 {
            return Ok(());
        }
        let mut memory = state.memory.write();
        let op = if memory.is_graph_memory(pointer) {
            memory.begin_graph_free(pointer)?;
            Op::FreeGraphMemory(pointer)
        } else {
            let (device, ticket) = memory.free_to_pool(pointer, id)?;
            Op::Free(device, ticket)
        };
        drop(memory);
        engine.submit(id, op);
        drop(engine);
        finish_launch(state, stream, false)
    })
}
