/*!
 * @defgroup plinth_mem_pool Memory pools
 *
 * A memory pool keeps its memory apart from all other memory of the caching allocator: torch.cuda.MemPool. Graphs
 * allocate in pools too.
 *
 * A pool lives as long as it has users. The caller who creates a pool is one, and gives it up with
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
 * The name of a pool. {0, 0} is the default pool, which has everything that goes to no other.
 */
typedef struct plinth_pool_id_t {
  /**
   * The capture that made it; 0 for one that a program made.
   */
  uint64_t owner;
  /**
   * Its number.
   */
  uint64_t index;
} plinth_pool_id_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a pool, as torch.cuda.MemPool does: memory that is kept apart from all other. It takes no memory until something
 * is allocated in it. Thread-safe.
 *
 * @param use_on_oom Whether requests to the default pool may use its free memory when there is no other.
 * @param no_split Whether a free block is given out whole, however small the request.
 * @param pool Out: the pool's name. The caller gives it up with plinth_mem_pool_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_create(bool use_on_oom,
                                       bool no_split,
                                       struct plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Gives a pool up. Its free memory goes back to the driver once nobody else uses the pool; what is allocated in it stays
 * valid until it is freed. Thread-safe.
 *
 * @param pool The pool, from plinth_mem_pool_create.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for what is no such pool, or was destroyed; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_destroy(struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Says how much physical memory a pool may hold on each device. A request beyond fails with an out-of-memory error that
 * names the budget. What the pool holds already stays; memory comes in pieces of 2 MiB or more. Thread-safe.
 *
 * @param pool The pool, not the default one.
 * @param bytes Bytes; SIZE_MAX, as at first, for no budget.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_set_budget(struct plinth_pool_id_t pool,
                                           size_t bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much physical memory a pool may hold on each device. Thread-safe.
 *
 * @param pool The pool, not the default one.
 * @param bytes Out: bytes; SIZE_MAX for no budget.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_get_budget(struct plinth_pool_id_t pool,
                                           size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Changes whether requests to the default pool may use the pool's free memory when there is no other. Thread-safe.
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
 * Tells how many users a pool has on a device: the program that made it is one, and so is each begin that no release
 * followed. Thread-safe.
 *
 * @param pool The pool.
 * @param device The device's number; -1 for the current one.
 * @param count Out: users.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_use_count(struct plinth_pool_id_t pool,
                                          int32_t device,
                                          int32_t *count)
PLINTH_NOEXCEPT;

/**
 * Tells how much memory a pool has on a device. Thread-safe.
 *
 * @param pool The pool; {0, 0} for the default one.
 * @param device The device's number; -1 for the current one.
 * @param allocated Out: bytes in the program's hands.
 * @param reserved Out: physical bytes that are held.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_memory(struct plinth_pool_id_t pool,
                                       int32_t device,
                                       size_t *allocated,
                                       size_t *reserved)
PLINTH_NOEXCEPT;

/**
 * Lets the requests of streams that capture go to a pool, on one device and from every thread: what a graph's capture
 * begins with. The pool comes into being if its name is new, and gains a user. Where several captures begin, each
 * capture takes the pool that was begun last and that no other capture has taken. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool, not the default one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for the default pool and for one that requests go to already;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_to_pool(int32_t device,
                                              struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Lets the requests of the calling thread go to a pool, on one device and for every stream: the beginning of what
 * torch.cuda.use_mem_pool does. Pools may be nested; what began last counts. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool, not the default one; it gains a user.
 * @return As plinth_begin_allocate_to_pool.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_current_thread_to_pool(int32_t device,
                                                             struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Lets the requests for one stream go to a pool, from every thread. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param stream The stream, of that device; NULL for its default stream.
 * @param pool The pool, not the default one; it gains a user.
 * @return As plinth_begin_allocate_to_pool; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_current_stream_to_pool(int32_t device,
                                                             plinth_stream_t stream,
                                                             struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Ends what one of the three calls above began. The pool keeps its user: plinth_release_pool takes it away. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE where no requests go to the pool; PLINTH_ERROR_INVALID_DEVICE; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_end_allocate_to_pool(int32_t device,
                                            struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Takes a user of a pool away on one device. With the last one the pool's free memory goes back to the driver; what is
 * allocated in it stays valid until it is freed. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a pool that there is not; PLINTH_ERROR_INVALID_VALUE for one without
 *         users there; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of initialization.
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
