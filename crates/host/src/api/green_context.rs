//! Green contexts.

use super::{INVALID, Out, enter, put_optional};
use crate::{
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    ids::Id,
    state::State,
    stream::Kind,
};
use std::{
    ffi::{c_int, c_uint},
    sync::atomic::Ordering,
};

fn ordinal(state: &State, device: CUdevice) -> Result<usize, Code> {
    let index = usize::try_from(device).map_err(|_| codes::CUDA_ERROR_INVALID_DEVICE)?;
    if index < state.contexts.len() { Ok(index) } else { Err(codes::CUDA_ERROR_INVALID_DEVICE) }
}

/// Returns the minimum size and the alignment of partitions, as NVIDIA's guideline has them for each generation.
fn granularity(state: &State) -> (u32, u32) {
    match state.config.model.capability.0 {
        ..=7 => (2, 2),
        8 => (4, 2),
        _ => (8, 8),
    }
}

fn multiprocessors(state: &State) -> u32 {
    state.config.model.multiprocessors as u32
}

fn resource(state: &State, device: usize, count: u32) -> DevResource {
    let (least_partition, alignment) = granularity(state);
    let mut resource = DevResource::NOTHING;
    resource.kind = CU_DEV_RESOURCE_TYPE_SM;
    resource.hidden[0] = device as c_uint;
    (resource.count, resource.least_partition, resource.alignment) = (count, least_partition, alignment);
    resource
}

pub unsafe extern "C" fn cuDeviceGetDevResource(device: CUdevice, to: *mut DevResource, kind: c_uint) -> Code {
    enter(Call::cuDeviceGetDevResource, 0, |state| {
        let out = Out::new(to)?;
        let device = ordinal(state, device)?;
        if kind != CU_DEV_RESOURCE_TYPE_SM {
            return Err(codes::CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        out.put(resource(state, device, multiprocessors(state)));
        Ok(())
    })
}

pub unsafe extern "C" fn cuDevSmResourceSplitByCount(
    parts: *mut DevResource,
    count: *mut c_uint,
    whole: *const DevResource,
    rest: *mut DevResource,
    flags: c_uint,
    least: c_uint,
) -> Code {
    enter(Call::cuDevSmResourceSplitByCount, 0, |state| {
        let out = Out::new(count)?;
        if whole.is_null() || flags != 0 {
            return Err(INVALID);
        }
        // SAFETY: neither is null, and the caller passes a resource and a count.
        let (whole, requested) = unsafe { (whole.read(), count.read()) };
        if whole.kind != CU_DEV_RESOURCE_TYPE_SM {
            return Err(codes::CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        if least > whole.count {
            return Err(INVALID);
        }
        let device = whole.hidden[0] as usize;
        let (smallest, alignment) = granularity(state);
        let each = least.max(smallest).next_multiple_of(alignment);
        let available = whole.count / each;
        if available == 0 {
            return Err(codes::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let created = if parts.is_null() { available } else { available.min(requested) };
        if !parts.is_null() {
            for index in 0..created as usize {
                // SAFETY: the caller passed an array for as many partitions as requested.
                unsafe { parts.add(index).write(resource(state, device, each)) };
            }
        }
        put_optional(rest, resource(state, device, whole.count - created * each));
        out.put(created);
        Ok(())
    })
}

pub unsafe extern "C" fn cuDevResourceGenerateDesc(
    description: *mut CUdevResourceDesc,
    resources: *mut DevResource,
    count: c_uint,
) -> Code {
    enter(Call::cuDevResourceGenerateDesc, 0, |state| {
        let out = Out::new(description)?;
        if resources.is_null() || count != 1 {
            return Err(INVALID);
        }
        // SAFETY: the pointer is not null, and the caller passes that many resources.
        let resource = unsafe { resources.read() };
        let device = ordinal(state, resource.hidden[0] as CUdevice)?;
        if resource.kind != CU_DEV_RESOURCE_TYPE_SM {
            return Err(codes::CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        out.put(state.green.lock().describe(device, resource.count) as CUdevResourceDesc);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGreenCtxCreate(
    green: *mut CUgreenCtx,
    description: CUdevResourceDesc,
    device: CUdevice,
    flags: c_uint,
) -> Code {
    enter(Call::cuGreenCtxCreate, 0, |state| {
        let out = Out::new(green)?;
        let device = ordinal(state, device)?;
        if flags != CU_GREEN_CTX_DEFAULT_STREAM {
            return Err(INVALID);
        }
        let id = state.green.lock().create(description as Id, device)?;
        state.retained[device].store(true, Ordering::Release);
        out.put(id as CUgreenCtx);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGreenCtxDestroy(green: CUgreenCtx) -> Code {
    enter(Call::cuGreenCtxDestroy, 0, |state| {
        let context = state.green.lock().destroy(green as Id)?;
        // With CUDA, the context's streams become unusable and can never be destroyed. Here they are destroyed.
        let mut engine = state.engine.lock();
        let streams: Vec<Id> =
            engine.streams.iter().filter(|(_, stream)| stream.green == context).map(|(id, _)| *id).collect();
        streams.into_iter().for_each(|id| engine.destroy_stream(id));
        Ok(())
    })
}

pub unsafe extern "C" fn cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx) -> Code {
    enter(Call::cuCtxFromGreenCtx, 0, |state| {
        let out = Out::new(context)?;
        out.put(state.green.lock().find(green as Id)?.1 as CUcontext);
        Ok(())
    })
}

pub unsafe extern "C" fn cuGreenCtxStreamCreate(
    stream: *mut CUstream,
    green: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> Code {
    enter(Call::cuGreenCtxStreamCreate, 0, |state| {
        let out = Out::new(stream)?;
        if flags != CU_STREAM_NON_BLOCKING {
            return Err(INVALID);
        }
        let (device, context) = state.green.lock().find(green as Id)?;
        let mut engine = state.engine.lock();
        let id = engine.create_stream(device, Kind::Created, flags, priority);
        if let Some(stream) = engine.streams.get_mut(&id) {
            stream.green = context;
        }
        out.put(id as CUstream);
        Ok(())
    })
}
