//! Memory pools
//!
//! A memory pool keeps its memory apart from all other memory of the caching allocator: torch.cuda.MemPool. Graphs
//! allocate in pools too.
//!
//! A pool lives as long as it has users. The caller that creates a pool is one, and stops being one with
//! plinth_mem_pool_destroy. Each plinth_begin_allocate_ function adds one, and plinth_release_pool removes it. Blocks
//! that are allocated in a pool stay valid until they are freed, even when the pool has no user any more.
//!
//! Of the plinth_begin_allocate_ functions, plinth_begin_allocate_current_thread_to_pool affects the requests of the
//! calling thread only. The others affect those of all threads. Requests of a device are routed to a pool by one thread
//! at a time: as long as one does, the functions fail for that pool. The thread that began the routing ends it; another
//! thread's plinth_end_allocate_to_pool fails and ends nothing, unless the thread that began it has exited.
//!
//! A program may route requests to a pool, capture a graph with the driver's own calls, and launch it in any stream. When
//! such a pool loses its last user, no memory of it is released or used again until all work that the device has then is
//! complete. Do not let that happen while a stream captures with the driver's own calls: the capture may be invalidated.
//! Drivers before CUDA 12.5 keep the memory until a request would fail without it.
//!
//! The library issues the ids of its pools: plinth_mem_pool_create, plinth_mem_pool_create_with_allocator,
//! plinth_graph_pool_handle, plinth_graph_pool. Every function refuses other ids, and those of destroyed pools, with
//! PLINTH_ERROR_INVALID_HANDLE. PyTorch issues its ids itself and passes them to the plinth_pluggable_ functions; these
//! pools are never those of the library, even if an id is the same. The functions that query a pool or set an option
//! accept an id of PyTorch, unless the library has issued the same.

use crate::{
    error::{Error, Result},
    ffi::{
        Output,
        guard::{guard, release},
        plinth_stream_t,
        status::plinth_status_t,
    },
    memory::{
        self, PoolId,
        pool::{MemoryOptions, Options},
        route::RouteScope,
    },
    status::Status,
    stream,
};

/// The id of a pool. {0, 0} is the default pool, which serves all requests that are not routed to another pool.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct plinth_pool_id_t {
    /// The capture that created the pool; 0 for a pool that a program created.
    pub owner: u64,
    /// The pool's number.
    pub index: u64,
}

impl From<plinth_pool_id_t> for PoolId {
    fn from(id: plinth_pool_id_t) -> PoolId {
        PoolId::new(id.owner, id.index)
    }
}

/// Creates a pool, as torch.cuda.MemPool does: memory that is kept separate from all other pools. It holds no memory
/// until something is allocated in it.
///
/// @param use_on_oom Whether requests to the default pool may use the pool's free memory when nothing else is left.
/// @param no_split Whether free blocks are never split, however small the request.
/// @param pool Out: the pool's id. The caller releases it with plinth_mem_pool_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_create(
    use_on_oom: bool,
    no_split: bool,
    pool: *mut plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pool = unsafe { Output::new(pool, "pool") }?;
        let id = memory::pool_create(Options { use_on_oom, no_split, ..Options::default() }, None)?;
        pool.set(plinth_pool_id_t { owner: id.owner, index: id.index });
        Ok(())
    })
}

/// For plinth_mem_pool_create_with_flags: requests to the default pool may use the pool's free memory when nothing else is
/// left.
pub const PLINTH_MEM_POOL_USE_ON_OOM: u32 = 1;
/// For plinth_mem_pool_create_with_flags: free blocks are never split, however small the request.
pub const PLINTH_MEM_POOL_NO_SPLIT: u32 = 2;
/// For plinth_mem_pool_create_with_flags: the memory can be exported as fabric handles, to processes of other machines of
/// the same NVLink fabric, where the driver permits it. Elsewhere the memory is created without them; plinth_memory_uses
/// tells. It can be shared on this machine in either case.
pub const PLINTH_MEM_POOL_FABRIC: u32 = 4;
/// For plinth_mem_pool_create_with_flags: network adapters can access the memory by its address, as with nvidia-peermem,
/// where the device supports it. A DMA-BUF does not need this flag. It makes mapping and unmapping slower: see
/// docs/registration.md.
pub const PLINTH_MEM_POOL_GPU_DIRECT_RDMA: u32 = 8;
/// For plinth_mem_pool_create_with_flags: the memory is allocated in segments, each of which has a CUDA handle of 64 bytes
/// (plinth_ipc_mem_handle, cudaIpcGetMemHandle). Segments are not moved to where memory is needed, and cannot sleep. Not
/// together with PLINTH_MEM_POOL_FABRIC.
pub const PLINTH_MEM_POOL_SEGMENTS: u32 = 16;
/// For plinth_mem_pool_create_with_flags: each block is in one physical allocation, so that it can be a window of an NCCL
/// communicator, as memory of ncclMemAlloc can (plinth_communicator_register, ncclCommWindowRegister). The allocations have
/// the sizes of segments and are not moved to where memory is needed. They can sleep. Sizes of blocks are rounded to
/// multiples of 4096, at which windows begin. Not together with PLINTH_MEM_POOL_SEGMENTS.
pub const PLINTH_MEM_POOL_NCCL_WINDOW: u32 = 32;

/// Creates a pool, as plinth_mem_pool_create does, whose memory is made for a purpose.
///
/// @param flags PLINTH_MEM_POOL_..., combined by |; 0 for a pool as that of plinth_mem_pool_create(false, false).
/// @param pool Out: the pool's id. The caller releases it with plinth_mem_pool_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for unknown flags and for flags that exclude
///         each other; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_create_with_flags(flags: u32, pool: *mut plinth_pool_id_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pool = unsafe { Output::new(pool, "pool") }?;
        let id = memory::pool_create(options_of(flags)?, None)?;
        pool.set(plinth_pool_id_t { owner: id.owner, index: id.index });
        Ok(())
    })
}

fn options_of(flags: u32) -> Result<Options> {
    let has = |flag| flags & flag != 0;
    let memory = MemoryOptions {
        segments: has(PLINTH_MEM_POOL_SEGMENTS),
        fabric: has(PLINTH_MEM_POOL_FABRIC),
        gpu_direct_rdma: has(PLINTH_MEM_POOL_GPU_DIRECT_RDMA),
        nccl_window: has(PLINTH_MEM_POOL_NCCL_WINDOW),
    };
    if flags > 63 || memory.segments && (memory.fabric || memory.nccl_window) {
        let what = format!("creating a pool: flags is {flags:#x}, with unknown flags or some that exclude each other");
        return Err(Error::new(Status::INVALID_VALUE, what));
    }
    Ok(Options { use_on_oom: has(PLINTH_MEM_POOL_USE_ON_OOM), no_split: has(PLINTH_MEM_POOL_NO_SPLIT), memory })
}

/// Releases the caller's reference to a pool. The pool's free memory is released to the driver when no references
/// remain; blocks that are allocated in it stay valid until they are freed.
///
/// @param pool The pool, from plinth_mem_pool_create.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a pool that does not exist, was not created by
///         plinth_mem_pool_create, or was destroyed; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_destroy(pool: plinth_pool_id_t) -> plinth_status_t {
    release(|| memory::pool_destroy(pool.into()))
}

/// Sets how much physical memory a pool may hold on each device. A request that would exceed the budget fails with an
/// out-of-memory error that names the budget. Memory that the pool already holds is kept. Physical memory is counted in
/// units of 2 MiB or more.
///
/// @param pool The pool; not the default pool.
/// @param bytes Number of bytes; SIZE_MAX, the initial value, for no budget.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_set_budget(pool: plinth_pool_id_t, bytes: usize) -> plinth_status_t {
    guard(|| memory::pool_set_budget(pool.into(), (bytes != usize::MAX).then_some(bytes as u64)))
}

/// Returns how much physical memory a pool may hold on each device.
///
/// @param pool The pool; not the default pool.
/// @param bytes Out: the number of bytes; SIZE_MAX for no budget.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_get_budget(pool: plinth_pool_id_t, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(memory::pool_budget(pool.into())?.map_or(usize::MAX, |budget| budget as usize));
        Ok(())
    })
}

/// Sets whether requests to the default pool may use a pool's free memory when nothing else is left.
///
/// @param pool The pool.
/// @param use_on_oom Whether they may.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_set_use_on_oom(pool: plinth_pool_id_t, use_on_oom: bool) -> plinth_status_t {
    guard(|| memory::pool_set_use_on_oom(pool.into(), use_on_oom))
}

/// Returns the reference count of a pool on a device. The program that created it holds one reference; each
/// begin-allocate call adds one until plinth_release_pool.
///
/// @param pool The pool.
/// @param device The device number; -1 for the current device.
/// @param count Out: the number of references.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_DEVICE; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_use_count(
    pool: plinth_pool_id_t,
    device: i32,
    count: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let count = unsafe { Output::new(count, "count") }?;
        count.set(memory::pool_use_count(pool.into(), device)? as i32);
        Ok(())
    })
}

/// Returns how much memory a pool holds on a device.
///
/// @param pool The pool; {0, 0} for the default pool.
/// @param device The device number; -1 for the current device.
/// @param allocated Out: bytes of allocated blocks.
/// @param reserved Out: bytes of physical memory.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an id that was never issued, and for a
///         destroyed pool without memory; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_memory(
    pool: plinth_pool_id_t,
    device: i32,
    allocated: *mut usize,
    reserved: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or valid pointers.
        let (allocated, reserved) =
            unsafe { (Output::new(allocated, "allocated")?, Output::new(reserved, "reserved")?) };
        let (live, held) = memory::pool_memory(pool.into(), device)?;
        allocated.set(live as usize);
        reserved.set(held as usize);
        Ok(())
    })
}

/// Routes the requests of capturing streams to a pool, on one device and from all threads; called before a graph's
/// capture begins. Adds a reference. If several captures begin, each capture takes the pool that was begun last among
/// those that no other capture has taken.
///
/// @param device The device number; -1 for the current device.
/// @param pool The pool; not the default pool.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for the default pool, and for a pool that requests are routed to
///         already, by any thread; PLINTH_ERROR_INVALID_HANDLE for a pool that was never created or was destroyed;
///         PLINTH_ERROR_GRAPH_ASLEEP for a pool whose memory was released with plinth_graph_sleep;
///         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_begin_allocate_to_pool(device: i32, pool: plinth_pool_id_t) -> plinth_status_t {
    guard(|| memory::begin_allocate_to_pool(device, RouteScope::Capture, pool.into()))
}

/// Routes the requests of the calling thread to a pool, on one device and for all streams: the begin of
/// torch.cuda.use_mem_pool. Calls may be nested; the last one applies.
///
/// @param device The device number; -1 for the current device.
/// @param pool The pool; not the default pool. The call adds a reference.
/// @return The statuses of plinth_begin_allocate_to_pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_begin_allocate_current_thread_to_pool(
    device: i32,
    pool: plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| memory::begin_allocate_current_thread_to_pool(device, pool.into()))
}

/// Routes the requests for one stream to a pool, from all threads.
///
/// @param device The device number; -1 for the current device.
/// @param stream The stream, of that device; NULL for its default stream.
/// @param pool The pool; not the default pool. The call adds a reference.
/// @return The statuses of plinth_begin_allocate_to_pool; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH.
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

/// Ends the routing of requests that one of the three begin-allocate calls started in the calling thread, or in a thread
/// that has exited. The reference remains: plinth_release_pool drops it.
///
/// @param device The device number; -1 for the current device.
/// @param pool The pool; it may be destroyed.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no requests are routed to the pool, or if another thread or the
///         capture of a graph began to route them; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_end_allocate_to_pool(device: i32, pool: plinth_pool_id_t) -> plinth_status_t {
    guard(|| memory::end_allocate_to_pool(device, pool.into()))
}

/// Drops a reference to a pool on one device. When no references remain, the pool's free memory is released to the
/// driver; blocks that are allocated in it stay valid until they are freed.
///
/// @param device The device number; -1 for the current device.
/// @param pool The pool.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a pool that does not exist; PLINTH_ERROR_INVALID_VALUE for a pool
///         without references on the device; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_release_pool(device: i32, pool: plinth_pool_id_t) -> plinth_status_t {
    release(|| memory::release_pool(device, pool.into()))
}
