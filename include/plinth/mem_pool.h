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
 * Of the plinth_begin_allocate_ functions, plinth_begin_allocate_current_thread_to_pool affects the calling thread
 * only. The others affect all threads.
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
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_memory(struct plinth_pool_id_t pool,
                                       int32_t device,
                                       size_t *allocated,
                                       size_t *reserved)
PLINTH_NOEXCEPT;

/**
 * Routes the requests of capturing streams to a pool, on one device and from all threads; called before a graph's
 * capture begins. Creates the pool if its id is new, and adds a reference. If several captures begin, each capture
 * takes the pool that was begun last among those that no other capture has taken.
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool; not the default pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for the default pool, and for a pool that requests are routed to
 *         already; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
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
 * Ends the routing of requests that one of the three begin-allocate calls started. The reference remains:
 * plinth_release_pool drops it.
 *
 * @param device The device number; -1 for the current device.
 * @param pool The pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no requests are routed to the pool; PLINTH_ERROR_INVALID_DEVICE;
 *         the errors of initialization.
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

/*! @} */

#endif /* PLINTH_MEM_POOL_H */
