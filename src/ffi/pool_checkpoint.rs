//! Checkpoints of pools
//!
//! Which blocks of a pool are allocated on a device, recorded and restored: what torch's cudagraph trees do with
//! getCheckpointState, setCheckpointPoolState and checkPoolLiveAllocations. Several graphs can then share a pool although
//! each begins with other blocks allocated: record a checkpoint after a graph was captured, restore it, and capture the
//! next graph, which gets no memory of the blocks that the checkpoint keeps.
//!
//! The caller owns a checkpoint and destroys it. A checkpoint does not keep the pool or its memory: keep the pool in use
//! (plinth_mem_pool_create, plinth_begin_allocate_to_pool, a graph).
//!
//! A restored block has the address, the size, the requested size and the physical memory that it had. The memory of a pool
//! in use is neither moved nor returned to the driver, also by plinth_empty_cache, as long as the stream that it was
//! allocated for exists. plinth_graph_sleep and plinth_graph_wake replace the physical memory behind the same addresses,
//! and its contents are lost.

use crate::{
    error::Result,
    ffi::{
        Output, array,
        guard::{guard, release},
        handle,
        pool::plinth_pool_id_t,
        status::plinth_status_t,
    },
    memory::checkpoint,
    runtime::thread::call_program,
};
use std::ffi::c_void;

/// The state of a pool on a device.
///
/// The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that is of
/// another kind, or that never was a handle.
#[allow(non_camel_case_types)]
pub struct plinth_pool_checkpoint {
    _private: [u8; 0],
}

/// The handle of a checkpoint.
#[allow(non_camel_case_types)]
pub type plinth_pool_checkpoint_t = *mut plinth_pool_checkpoint;

/// Receives a block that a restore changed: its address, the requested size in bytes, whether it is allocated now or free
/// now, and the context. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_pool_checkpoint_callback_t =
    Option<unsafe extern "C" fn(pointer: *mut c_void, bytes: usize, allocated: bool, context: *mut c_void)>;

/// Returns the addresses that C passed.
///
/// # Safety
/// `pointers` is NULL or points to `count` pointers.
unsafe fn addresses(pointers: *const *mut c_void, count: usize, name: &str) -> Result<Vec<u64>> {
    // SAFETY: the caller makes this promise.
    let pointers = unsafe { array(pointers, count, name) }?;
    Ok(pointers.iter().map(|pointer| *pointer as u64).collect())
}

/// Records which blocks of a pool are allocated on a device: torch's getCheckpointState. No block is changed.
///
/// A program with checkpoints usually compares addresses with earlier ones. While memory is plentiful, the caching allocator
/// therefore places later blocks of the device's default pool so that the addresses of a repeated step repeat, and may hold some
/// 14 % more than is in use at the peak instead of 4 % (docs/allocator.md, "Sections").
///
/// @param device The device number; -1 for the current device.
/// @param pool The pool; not the default pool.
/// @param checkpoint Out: the checkpoint. The caller owns it and destroys it with plinth_pool_checkpoint_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for the default pool;
///         PLINTH_ERROR_INVALID_HANDLE for a pool that was never created or was destroyed; PLINTH_ERROR_GRAPH_ASLEEP for
///         a pool whose memory was released with plinth_graph_sleep; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pool_checkpoint_create(
    device: i32,
    pool: plinth_pool_id_t,
    checkpoint: *mut plinth_pool_checkpoint_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let checkpoint = unsafe { Output::new(checkpoint, "checkpoint") }?;
        checkpoint.set(checkpoint::create(device, pool.into())? as plinth_pool_checkpoint_t);
        Ok(())
    })
}

/// Restores a checkpoint: torch's setCheckpointPoolState. Afterwards exactly the blocks of the checkpoint are allocated in
/// the pool on the device. Blocks that the checkpoint does not have are freed; the caller must not free or use them again.
/// Blocks that were freed since are allocated again, at the same addresses; the caller frees them like any others. Blocks
/// that are allocated in both states are not touched. A block of another requested size at the same address is freed, and
/// the checkpoint's is allocated.
///
/// No contents are copied or cleared. Memory is reused in the order of the stream that it belongs to, as after any free.
/// The checkpoint can be restored again.
///
/// The pool must not be used by other threads during the call. No requests may be routed to it, and what other streams or
/// processes use (plinth_record_stream, plinth_ipc_send) cannot be freed this way.
///
/// @param checkpoint The checkpoint.
/// @param stale Blocks that the caller knows and that the call will free, as a check: if one is not among those, the call
///        fails. NULL if count is 0.
/// @param count The number of stale blocks; 0 for no check.
/// @param callback Called for each block that was freed and then for each that was allocated again, in the calling thread,
///        with no lock of the library held; it may call the library. NULL for none.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE, also if the pool was destroyed; PLINTH_ERROR_NULL_POINTER;
///         PLINTH_ERROR_INVALID_POINTER for a stale block that the call would not free; PLINTH_ERROR_INVALID_VALUE if
///         memory of the checkpoint was returned to the driver since; PLINTH_ERROR_GRAPH_MEMORY_IN_USE if requests are
///         routed to the pool, and if other streams or processes still use a block that must be freed or was freed;
///         PLINTH_ERROR_GRAPH_ASLEEP; PLINTH_ERROR_DRIVER; the errors of initialization. After an error nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pool_checkpoint_restore(
    checkpoint: plinth_pool_checkpoint_t,
    stale: *const *mut c_void,
    count: usize,
    callback: plinth_pool_checkpoint_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or `count` pointers.
        let stale = unsafe { addresses(stale, count, "stale") }?;
        let restored = checkpoint::restore(handle(checkpoint, "checkpoint")?, &stale)?;
        let Some(callback) = callback else { return Ok(()) };
        for (blocks, allocated) in [(restored.freed, false), (restored.revived, true)] {
            for block in blocks {
                // SAFETY: the caller promises that the function has this signature and does not unwind.
                call_program(|| unsafe {
                    callback(block.address as *mut c_void, block.requested as usize, allocated, context)
                });
            }
        }
        Ok(())
    })
}

/// Destroys a checkpoint. The pool and its blocks do not change.
///
/// @param checkpoint The checkpoint; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pool_checkpoint_destroy(checkpoint: plinth_pool_checkpoint_t) -> plinth_status_t {
    release(|| checkpoint::destroy(checkpoint as u64))
}

/// Checks whether exactly these blocks of a pool are allocated on a device: torch's checkPoolLiveAllocations.
///
/// @param device The device number; -1 for the current device.
/// @param pool The pool; {0, 0} for the default pool.
/// @param pointers The addresses at which the blocks begin, in any order; an address that occurs twice counts once. NULL
///        if count is 0.
/// @param count The number of addresses.
/// @param equal Out: whether these blocks, and no others, are allocated.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a count of more addresses than there are;
///         PLINTH_ERROR_INVALID_HANDLE as for plinth_mem_pool_memory; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pool_check_live_allocations(
    device: i32,
    pool: plinth_pool_id_t,
    pointers: *const *mut c_void,
    count: usize,
    equal: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes, and NULL or `count` pointers.
        let (equal, pointers) = unsafe { (Output::new(equal, "equal")?, addresses(pointers, count, "pointers")?) };
        equal.set(checkpoint::has_allocations(device, pool.into(), &pointers.into_iter().collect())?);
        Ok(())
    })
}
