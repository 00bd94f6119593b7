/*!
 * @defgroup plinth_mem_pool Memory pools
 *
 * A memory pool keeps its memory apart from all other memory of the caching allocator: torch.cuda.MemPool. Graphs
 * allocate in pools too.
 *
 * A pool lives as long as it has users. The caller that creates a pool is one, and stops being one with
 * plinth_mem_pool_destroy. Each plinth_begin_allocate_ function adds one, and plinth_release_pool removes it. Blocks
 * that are allocated in a pool stay valid until they are freed, even when the pool has no user any more.
 *
 * Of the plinth_begin_allocate_ functions, plinth_begin_allocate_current_thread_to_pool affects the requests of the
 * calling thread only. The others affect those of all threads. Requests of a device are routed to a pool by one thread
 * at a time: as long as one does, the functions fail for that pool. The thread that began the routing ends it; another
 * thread's plinth_end_allocate_to_pool fails and ends nothing, unless the thread that began it has exited.
 *
 * A program may route requests to a pool, capture a graph with the driver's own calls, and launch it in any stream. When
 * such a pool loses its last user, no memory of it is released or used again until all work that the device has then is
 * complete. Do not let that happen while a stream captures with the driver's own calls: the capture may be invalidated.
 * Drivers before CUDA 12.5 keep the memory until a request would fail without it.
 *
 * The library issues the ids of its pools: plinth_mem_pool_create, plinth_mem_pool_create_with_allocator,
 * plinth_graph_pool_handle, plinth_graph_pool. Every function refuses other ids, and those of destroyed pools, with
 * PLINTH_ERROR_INVALID_HANDLE. PyTorch issues its ids itself and passes them to the plinth_pluggable_ functions; these
 * pools are never those of the library, even if an id is the same. The functions that query a pool or set an option
 * accept an id of PyTorch, unless the library has issued the same.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_MEM_POOL_H
#define PLINTH_MEM_POOL_H

#include "base.h"

/*!
 * @file plinth/mem_pool.h
 * @brief Memory pools.
 */

/*!
 * @addtogroup plinth_mem_pool
 * @{
 */

/**
 * For plinth_mem_pool_create_with_flags: requests to the default pool may use the pool's free memory when nothing else is
 * left.
 */
#define PLINTH_MEM_POOL_USE_ON_OOM 1

/**
 * For plinth_mem_pool_create_with_flags: free blocks are never split, however small the request.
 */
#define PLINTH_MEM_POOL_NO_SPLIT 2

/**
 * For plinth_mem_pool_create_with_flags: the memory can be exported as fabric handles, to processes of other machines of
 * the same NVLink fabric, where the driver permits it. Elsewhere the memory is created without them; plinth_memory_uses
 * tells. It can be shared on this machine in either case.
 */
#define PLINTH_MEM_POOL_FABRIC 4

/**
 * For plinth_mem_pool_create_with_flags: network adapters can access the memory by its address, as with nvidia-peermem,
 * where the device supports it. A DMA-BUF does not need this flag. It makes mapping and unmapping slower: see
 * docs/registration.md.
 */
#define PLINTH_MEM_POOL_GPU_DIRECT_RDMA 8

/**
 * For plinth_mem_pool_create_with_flags: the memory is allocated in segments, each of which has a CUDA handle of 64 bytes
 * (plinth_ipc_mem_handle, cudaIpcGetMemHandle). Segments are not moved to where memory is needed, and cannot sleep. Not
 * together with PLINTH_MEM_POOL_FABRIC.
 */
#define PLINTH_MEM_POOL_SEGMENTS 16

/**
 * For plinth_mem_pool_create_with_flags: each block is in one physical allocation, so that it can be a window of an NCCL
 * communicator, as memory of ncclMemAlloc can (plinth_communicator_register, ncclCommWindowRegister). The allocations have
 * the sizes of segments and are not moved to where memory is needed. They can sleep. Sizes of blocks are rounded to
 * multiples of 4096, at which windows begin. Not together with PLINTH_MEM_POOL_SEGMENTS.
 */
#define PLINTH_MEM_POOL_NCCL_WINDOW 32

/**
 * The id of a pool. {0, 0} is the default pool, which serves all requests that are not routed to another pool.
 */
typedef struct plinth_pool_id_t {
  /**
   * The capture that created the pool; 0 for a pool that a program created.
   */
  uint64_t owner;
  /**
   * The pool's number.
   */
  uint64_t index;
} plinth_pool_id_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates a pool, as torch.cuda.MemPool does: memory that is kept separate from all other pools. It holds no memory
 * until something is allocated in it.
 *
 * @param use_on_oom Whether requests to the default pool may use the pool's free memory when nothing else is left.
 * @param no_split Whether free blocks are never split, however small the request.
 * @param pool Out: the pool's id. The caller releases it with plinth_mem_pool_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_create(bool use_on_oom,
                                       bool no_split,
                                       struct plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Creates a pool, as plinth_mem_pool_create does, whose memory is made for a purpose.
 *
 * @param flags PLINTH_MEM_POOL_..., combined by |; 0 for a pool as that of plinth_mem_pool_create(false, false).
 * @param pool Out: the pool's id. The caller releases it with plinth_mem_pool_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for unknown flags and for flags that exclude
 *         each other; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_create_with_flags(uint32_t flags,
                                                  struct plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Releases the caller's reference to a pool. The pool's free memory is released to the driver when no references
 * remain; blocks that are allocated in it stay valid until they are freed.
 *
 * @param pool The pool, from plinth_mem_pool_create.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a pool that does not exist, was not created by
 *         plinth_mem_pool_create, or was destroyed; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_destroy(struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Sets how much physical memory a pool may hold on each device. A request that would exceed the budget fails with an
 * out-of-memory error that names the budget. Memory that the pool already holds is kept. Physical memory is counted in
 * units of 2 MiB or more.
 *
 * @param pool The pool; not the default pool.
 * @param bytes Number of bytes; SIZE_MAX, the initial value, for no budget.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_set_budget(struct plinth_pool_id_t pool,
                                           size_t bytes)
PLINTH_NOEXCEPT;

/**
 * Returns how much physical memory a pool may hold on each device.
 *
 * @param pool The pool; not the default pool.
 * @param bytes Out: the number of bytes; SIZE_MAX for no budget.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_get_budget(struct plinth_pool_id_t pool,
                                           size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Sets whether requests to the default pool may use a pool's free memory when nothing else is left.
 *
 * @param pool The pool.
 * @param use_on_oom Whether they may.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_set_use_on_oom(struct plinth_pool_id_t pool,
                                               bool use_on_oom)
PLINTH_NOEXCEPT;

/**
 * Returns the reference count of a pool on a device. The program that created it holds one reference; each
 * begin-allocate call adds one until plinth_release_pool.
 *
 * @param pool The pool.
 * @param device The device number; -1 for the current device.
 * @param count Out: the number of references.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_DEVICE; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_use_count(struct plinth_pool_id_t pool,
                                          int32_t device,
                                          int32_t *count)
PLINTH_NOEXCEPT;

/**
 * Returns how much memory a pool holds on a device.
 *
 * @param pool The pool; {0, 0} for the default pool.
 * @param device The device number; -1 for the current device.
 * @param allocated Out: bytes of allocated blocks.
 * @param reserved Out: bytes of physical memory.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an id that was never issued, and for a
 *         destroyed pool without memory; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_memory(struct plinth_pool_id_t pool,
                                       int32_t device,
                                       size_t *allocated,
                                       size_t *reserved)
PLINTH_NOEXCEPT;

/**
 * Routes the requests of capturing streams to a pool, on one device and from all threads; called before a graph's
 * capture begins. Adds a reference. If several captures begin, each capture takes the pool that was begun last among
 * those that no other capture has taken.
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool; not the default pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for the default pool, and for a pool that requests are routed to
 *         already, by any thread; PLINTH_ERROR_INVALID_HANDLE for a pool that was never created or was destroyed;
 *         PLINTH_ERROR_GRAPH_ASLEEP for a pool whose memory was released with plinth_graph_sleep;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_to_pool(int32_t device,
                                              struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Routes the requests of the calling thread to a pool, on one device and for all streams: the begin of
 * torch.cuda.use_mem_pool. Calls may be nested; the last one applies.
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool; not the default pool. The call adds a reference.
 * @return The statuses of plinth_begin_allocate_to_pool.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_current_thread_to_pool(int32_t device,
                                                             struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Routes the requests for one stream to a pool, from all threads.
 *
 * @param device The device number; -1 for the current device.
 * @param stream The stream, of that device; NULL for its default stream.
 * @param pool The pool; not the default pool. The call adds a reference.
 * @return The statuses of plinth_begin_allocate_to_pool; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_current_stream_to_pool(int32_t device,
                                                             plinth_stream_t stream,
                                                             struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Ends the routing of requests that one of the three begin-allocate calls started in the calling thread, or in a thread
 * that has exited. The reference remains: plinth_release_pool drops it.
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool; it may be destroyed.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no requests are routed to the pool, or if another thread or the
 *         capture of a graph began to route them; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_end_allocate_to_pool(int32_t device,
                                            struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Drops a reference to a pool on one device. When no references remain, the pool's free memory is released to the
 * driver; blocks that are allocated in it stay valid until they are freed.
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a pool that does not exist; PLINTH_ERROR_INVALID_VALUE for a pool
 *         without references on the device; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_release_pool(int32_t device,
                                    struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_pool_checkpoint Checkpoints of pools
 *
 * Which blocks of a pool are allocated on a device, recorded and restored: what torch's cudagraph trees do with
 * getCheckpointState, setCheckpointPoolState and checkPoolLiveAllocations. Several graphs can then share a pool although
 * each begins with other blocks allocated: record a checkpoint after a graph was captured, restore it, and capture the
 * next graph, which gets no memory of the blocks that the checkpoint keeps.
 *
 * The caller owns a checkpoint and destroys it. A checkpoint does not keep the pool or its memory: keep the pool in use
 * (plinth_mem_pool_create, plinth_begin_allocate_to_pool, a graph).
 *
 * A restored block has the address, the size, the requested size and the physical memory that it had. The memory of a pool
 * in use is neither moved nor returned to the driver, also by plinth_empty_cache, as long as the stream that it was
 * allocated for exists. plinth_graph_sleep and plinth_graph_wake replace the physical memory behind the same addresses,
 * and its contents are lost.
 *
 * @{
 */

/**
 * The state of a pool on a device.
 *
 * The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that is of
 * another kind, or that never was a handle.
 */
typedef struct plinth_pool_checkpoint plinth_pool_checkpoint;

/**
 * The handle of a checkpoint.
 */
typedef struct plinth_pool_checkpoint *plinth_pool_checkpoint_t;

/**
 * Receives a block that a restore changed: its address, the requested size in bytes, whether it is allocated now or free
 * now, and the context. It must not throw.
 */
typedef void (*plinth_pool_checkpoint_callback_t)(void *pointer, size_t bytes, bool allocated, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Records which blocks of a pool are allocated on a device: torch's getCheckpointState. No block is changed.
 *
 * A program with checkpoints usually compares addresses with earlier ones. While memory is plentiful, the caching allocator
 * therefore places later blocks of the device's default pool so that the addresses of a repeated step repeat, and may hold some
 * 14 % more than is in use at the peak instead of 4 % (docs/allocator.md, "Sections").
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool; not the default pool.
 * @param checkpoint Out: the checkpoint. The caller owns it and destroys it with plinth_pool_checkpoint_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for the default pool;
 *         PLINTH_ERROR_INVALID_HANDLE for a pool that was never created or was destroyed; PLINTH_ERROR_GRAPH_ASLEEP for
 *         a pool whose memory was released with plinth_graph_sleep; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_pool_checkpoint_create(int32_t device,
                                              plinth_pool_id_t pool,
                                              plinth_pool_checkpoint_t *checkpoint)
PLINTH_NOEXCEPT;

/**
 * Restores a checkpoint: torch's setCheckpointPoolState. Afterwards exactly the blocks of the checkpoint are allocated in
 * the pool on the device. Blocks that the checkpoint does not have are freed; the caller must not free or use them again.
 * Blocks that were freed since are allocated again, at the same addresses; the caller frees them like any others. Blocks
 * that are allocated in both states are not touched. A block of another requested size at the same address is freed, and
 * the checkpoint's is allocated.
 *
 * No contents are copied or cleared. Memory is reused in the order of the stream that it belongs to, as after any free.
 * The checkpoint can be restored again.
 *
 * The pool must not be used by other threads during the call. No requests may be routed to it, and what other streams or
 * processes use (plinth_record_stream, plinth_ipc_send) cannot be freed this way.
 *
 * @param checkpoint The checkpoint.
 * @param stale Blocks that the caller knows and that the call will free, as a check: if one is not among those, the call
 *        fails. NULL if count is 0.
 * @param count The number of stale blocks; 0 for no check.
 * @param callback Called for each block that was freed and then for each that was allocated again, in the calling thread,
 *        with no lock of the library held; it may call the library. NULL for none.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE, also if the pool was destroyed; PLINTH_ERROR_NULL_POINTER;
 *         PLINTH_ERROR_INVALID_POINTER for a stale block that the call would not free; PLINTH_ERROR_INVALID_VALUE if
 *         memory of the checkpoint was returned to the driver since; PLINTH_ERROR_GRAPH_MEMORY_IN_USE if requests are
 *         routed to the pool, and if other streams or processes still use a block that must be freed or was freed;
 *         PLINTH_ERROR_GRAPH_ASLEEP; PLINTH_ERROR_DRIVER; the errors of initialization. After an error nothing is changed.
 */
PLINTH_API
plinth_status_t plinth_pool_checkpoint_restore(plinth_pool_checkpoint_t checkpoint,
                                               void *const *stale,
                                               size_t count,
                                               plinth_pool_checkpoint_callback_t callback,
                                               void *context)
PLINTH_NOEXCEPT;

/**
 * Destroys a checkpoint. The pool and its blocks do not change.
 *
 * @param checkpoint The checkpoint; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_pool_checkpoint_destroy(plinth_pool_checkpoint_t checkpoint)
PLINTH_NOEXCEPT;

/**
 * Checks whether exactly these blocks of a pool are allocated on a device: torch's checkPoolLiveAllocations.
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool; {0, 0} for the default pool.
 * @param pointers The addresses at which the blocks begin, in any order; an address that occurs twice counts once. NULL
 *        if count is 0.
 * @param count The number of addresses.
 * @param equal Out: whether these blocks, and no others, are allocated.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a count of more addresses than there are;
 *         PLINTH_ERROR_INVALID_HANDLE as for plinth_mem_pool_memory; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_pool_check_live_allocations(int32_t device,
                                                   plinth_pool_id_t pool,
                                                   void *const *pointers,
                                                   size_t count,
                                                   bool *equal)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_MEM_POOL_H */
