//! User objects.

use super::{INVALID, Out, enter};
use crate::{
    driver::{
        table::{Call, Code},
        types::*,
    },
    ids::Id,
    work::HostCall,
};
use std::ffi::{c_uint, c_void};

/// Checks a number of references: CUDA accepts 1 to the maximum of an `int`.
fn references(count: c_uint) -> Result<c_uint, Code> {
    if count == 0 || count > i32::MAX as c_uint { Err(INVALID) } else { Ok(count) }
}

pub unsafe extern "C" fn cuUserObjectCreate(
    object: *mut CUuserObject,
    data: *mut c_void,
    destroy: CUhostFn,
    count: c_uint,
    flags: c_uint,
) -> Code {
    enter(Call::cuUserObjectCreate, 0, |state| {
        let out = Out::new(object)?;
        let (function, count) = (destroy.ok_or(INVALID)?, references(count)?);
        if flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC {
            return Err(INVALID);
        }
        let destructor = HostCall { function, data: data as usize };
        out.put(state.engine.lock().create_object(destructor, count) as CUuserObject);
        Ok(())
    })
}

pub unsafe extern "C" fn cuUserObjectRelease(object: CUuserObject, count: c_uint) -> Code {
    enter(Call::cuUserObjectRelease, 0, |state| state.engine.lock().release_object(object as Id, references(count)?))
}

pub unsafe extern "C" fn cuGraphRetainUserObject(
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
    flags: c_uint,
) -> Code {
    enter(Call::cuGraphRetainUserObject, 0, |state| {
        if flags & !CU_GRAPH_USER_OBJECT_MOVE != 0 {
            return Err(INVALID);
        }
        let (count, is_move) = (references(count)?, flags & CU_GRAPH_USER_OBJECT_MOVE != 0);
        state.engine.lock().retain_object(graph as Id, object as Id, count, is_move)
    })
}
