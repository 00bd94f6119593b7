//! Pools of the caching allocator, as C sees them.

use crate::{
    ffi::{Output, backend::plinth_pluggable_allocator_t, guard::guard, plinth_stream_t, status::plinth_status_t},
    memory::{self, PoolId, pool::Options, route::RouteScope},
    stream,
};

/// The name of a pool. {0, 0} is the default pool, which has everything that goes to no other.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct plinth_pool_id_t {
    /// The capture that made it; 0 for one that a program made.
    pub owner: u64,
    /// Its number.
    pub index: u64,
}

impl From<plinth_pool_id_t> for PoolId {
    fn from(id: plinth_pool_id_t) -> PoolId {
        PoolId { owner: id.owner, index: id.index }
    }
}

/// Makes a pool, as torch.cuda.MemPool does: memory that is kept apart from all other. It takes no memory until something
/// is allocated in it. Thread-safe.
///
/// @param use_on_oom Whether requests to the default pool may use its free memory when there is no other.
/// @param no_split Whether a free block is given out whole, however small the request.
/// @param pool Out: the pool's name. The caller gives it up with plinth_mem_pool_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_create(
    use_on_oom: bool,
    no_split: bool,
    pool: *mut plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the name.
        let pool = unsafe { Output::new(pool, "pool") }?;
        let id = memory::pool_create(Options { use_on_oom, no_split }, None)?;
        pool.set(plinth_pool_id_t { owner: id.owner, index: id.index });
        Ok(())
    })
}

/// Gives a pool up. Its free memory goes back to the driver once nobody else uses the pool; what is allocated in it stays
/// valid until it is freed. Thread-safe.
///
/// @param pool The pool, from plinth_mem_pool_create.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for what is no such pool, or was destroyed; PLINTH_ERROR_DRIVER; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_destroy(pool: plinth_pool_id_t) -> plinth_status_t {
    guard(|| memory::pool_destroy(pool.into()))
}

/// Makes a pool whose memory comes from an allocator of the program's own, as torch.cuda.MemPool(allocator) does. The
/// caching allocator stays on top: the allocator is asked for segments (2 MiB; PLINTH_ALLOC_CONF's large_segment_size_mb;
/// multiples of 2 MiB), for the stream of the request, and gets them back with the pool, or when memory is out. It is called
/// with a lock of the pool's held, and must not allocate from the caching allocator. Thread-safe.
///
/// @param allocator The allocator. The pool keeps it; the handle may be destroyed.
/// @param use_on_oom As in plinth_mem_pool_create.
/// @param no_split As in plinth_mem_pool_create.
/// @param pool Out: the pool's name. The caller gives it up with plinth_mem_pool_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_create_with_allocator(
    allocator: plinth_pluggable_allocator_t,
    use_on_oom: bool,
    no_split: bool,
    pool: *mut plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the name.
        let pool = unsafe { Output::new(pool, "pool") }?;
        let allocator = memory::backend::allocator_of(allocator as u64)?;
        let id = memory::pool_create(Options { use_on_oom, no_split }, Some(allocator))?;
        pool.set(plinth_pool_id_t { owner: id.owner, index: id.index });
        Ok(())
    })
}

/// Says how much physical memory a pool may hold on each device. A request beyond fails with an out-of-memory error that
/// names the budget. What the pool holds already stays; memory comes in pieces of 2 MiB or more. Thread-safe.
///
/// @param pool The pool, not the default one.
/// @param bytes Bytes; SIZE_MAX, as at first, for no budget.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_set_budget(pool: plinth_pool_id_t, bytes: usize) -> plinth_status_t {
    guard(|| memory::pool_set_budget(pool.into(), (bytes != usize::MAX).then_some(bytes as u64)))
}

/// Tells how much physical memory a pool may hold on each device. Thread-safe.
///
/// @param pool The pool, not the default one.
/// @param bytes Out: bytes; SIZE_MAX for no budget.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_get_budget(pool: plinth_pool_id_t, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the bytes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::pool_budget(pool.into())?.map_or(usize::MAX, |budget| budget as usize));
        Ok(())
    })
}

/// Changes whether requests to the default pool may use the pool's free memory when there is no other. Thread-safe.
///
/// @param pool The pool.
/// @param use_on_oom Whether they may.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_set_use_on_oom(pool: plinth_pool_id_t, use_on_oom: bool) -> plinth_status_t {
    guard(|| memory::pool_set_use_on_oom(pool.into(), use_on_oom))
}

/// Tells how many users a pool has on a device: the program that made it is one, and so is each begin that no release
/// followed. Thread-safe.
///
/// @param pool The pool.
/// @param device The device's number; -1 for the current one.
/// @param count Out: users.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_use_count(
    pool: plinth_pool_id_t,
    device: i32,
    count: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the count.
        let count = unsafe { Output::new(count, "count") }?;
        count.set(memory::pool_use_count(pool.into(), device)? as i32);
        Ok(())
    })
}

/// Tells how much memory a pool has on a device. Thread-safe.
///
/// @param pool The pool; {0, 0} for the default one.
/// @param device The device's number; -1 for the current one.
/// @param allocated Out: bytes in the program's hands.
/// @param reserved Out: physical bytes that are held.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_memory(
    pool: plinth_pool_id_t,
    device: i32,
    allocated: *mut usize,
    reserved: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or places for both.
        let (allocated, reserved) =
            unsafe { (Output::new(allocated, "allocated")?, Output::new(reserved, "reserved")?) };
        let (live, held) = memory::pool_memory(pool.into(), device)?;
        allocated.set(live as usize);
        reserved.set(held as usize);
        Ok(())
    })
}

/// Lets the requests of streams that capture go to a pool, on one device and from every thread: what a graph's capture
/// begins with. The pool comes into being if its name is new, and gains a user. Where several captures begin, each
/// capture takes the pool that was begun last and that no other capture has taken. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param pool The pool, not the default one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for the default pool and for one that requests go to already;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_begin_allocate_to_pool(device: i32, pool: plinth_pool_id_t) -> plinth_status_t {
    guard(|| memory::begin_allocate_to_pool(device, RouteScope::Capture, pool.into()))
}

/// Lets the requests of the calling thread go to a pool, on one device and for every stream: the beginning of what
/// torch.cuda.use_mem_pool does. Pools may be nested; what began last counts. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param pool The pool, not the default one; it gains a user.
/// @return As plinth_begin_allocate_to_pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_begin_allocate_current_thread_to_pool(
    device: i32,
    pool: plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| memory::begin_allocate_current_thread_to_pool(device, pool.into()))
}

/// Lets the requests for one stream go to a pool, from every thread. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param stream The stream, of that device; NULL for its default stream.
/// @param pool The pool, not the default one; it gains a user.
/// @return As plinth_begin_allocate_to_pool; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_begin_allocate_current_stream_to_pool(
    device: i32,
    stream: plinth_stream_t,
    pool: plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        let stream = stream::of_device(stream as usize, device)?;
        memory::begin_allocate_stream_to_pool(device, stream, pool.into())
    })
}

/// Ends what one of the three calls above began. The pool keeps its user: plinth_release_pool takes it away. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param pool The pool.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE where no requests go to the pool; PLINTH_ERROR_INVALID_DEVICE; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_end_allocate_to_pool(device: i32, pool: plinth_pool_id_t) -> plinth_status_t {
    guard(|| memory::end_allocate_to_pool(device, pool.into()))
}

/// Takes a user of a pool away on one device. With the last one the pool's free memory goes back to the driver; what is
/// allocated in it stays valid until it is freed. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param pool The pool.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a pool that there is not; PLINTH_ERROR_INVALID_VALUE for one without
///         users there; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_release_pool(device: i32, pool: plinth_pool_id_t) -> plinth_status_t {
    guard(|| memory::release_pool(device, pool.into()))
}
