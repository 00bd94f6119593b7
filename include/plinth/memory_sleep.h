/*!
 * @defgroup plinth_memory_sleep Memory that sleeps
 *
 * A program gives the memory of pools to somebody else for a time, and continues later where it was: the physical memory
 * is released and the addresses stay. Pointers stay valid, and graphs that were captured over the memory are replayed
 * afterwards without a new capture.
 *
 * Pools have tags, such as "weights" and "kv". The functions take a list of tags, separated by commas. NULL and "" stand
 * for every pool that has a tag. A tag that no pool has is an error.
 *
 * While a pool sleeps, its blocks stay allocated, and may be freed. They must not be accessed: a kernel that does fails
 * with an illegal address. A replay of a graph that was captured into the pool is refused. Requests cannot be routed to
 * the pool. The default pool cannot have a tag; route the requests to other pools.
 *
 * The functions may be called from any thread. Putting to sleep and waking are serialized.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_MEMORY_SLEEP_H
#define PLINTH_MEMORY_SLEEP_H

#include "base.h"
#include "mem_pool.h"

/*!
 * @file plinth/memory_sleep.h
 * @brief Memory that sleeps.
 */

/*!
 * @addtogroup plinth_memory_sleep
 * @{
 */

/**
 * For the flags of plinth_sleep_options_t: fail with PLINTH_ERROR_GRAPH_MEMORY_IN_USE, rather than wait, if a device has
 * work that is not complete. Needs CUDA 12.5.
 */
#define PLINTH_SLEEP_NO_WAIT 1

/**
 * For the flags of plinth_sleep_options_t: end the registrations of the memory first, by their callbacks, rather than
 * fail with PLINTH_ERROR_GRAPH_MEMORY_IN_USE. It still fails, with no callback called, if a registration has none. What
 * was ended stays so if the sleep fails for another reason.
 */
#define PLINTH_SLEEP_RELEASE_REGISTRATIONS 2

/**
 * For the flags of plinth_sleep_options_t: release the workspaces of cuBLAS, as plinth_clear_blas_workspaces does, and the
 * memory that is cached in other pools, as plinth_empty_cache does. The library allocates workspaces again when a thread
 * calls plinth_current_blas_handle; do not use a handle from an earlier call until then.
 */
#define PLINTH_SLEEP_RELEASE_WORKSPACES 4

/**
 * Where the contents of sleeping memory are kept.
 */
typedef int32_t plinth_backup_t;

/**
 * How memory sleeps.
 */
typedef struct plinth_sleep_options_t {
  /**
   * The size of the struct in the caller.
   */
  size_t struct_size;
  /**
   * Where the contents of allocated blocks are kept.
   */
  plinth_backup_t backup;
  /**
   * PLINTH_SLEEP_NO_WAIT, PLINTH_SLEEP_RELEASE_REGISTRATIONS and PLINTH_SLEEP_RELEASE_WORKSPACES, combined by |; or 0.
   */
  uint32_t flags;
  /**
   * The folder of a file; NULL for that of temporary files (TMPDIR, or /tmp).
   */
  const char *folder;
} plinth_sleep_options_t;

/*! An initializer for a plinth_sleep_options_t: no backup, and a wait for the devices. */
#define PLINTH_SLEEP_OPTIONS_INIT {sizeof(plinth_sleep_options_t), PLINTH_BACKUP_NONE, 0, NULL}

/**
 * What sleeps of some pools, on all devices.
 */
typedef struct plinth_sleep_info_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The number of pools.
   */
  uint32_t pools;
  /**
   * The number of pools that sleep.
   */
  uint32_t pools_asleep;
  /**
   * Bytes of physical memory.
   */
  uint64_t mapped_bytes;
  /**
   * Bytes that have addresses and no physical memory.
   */
  uint64_t asleep_bytes;
  /**
   * Bytes of the contents that backups hold.
   */
  uint64_t saved_bytes;
  /**
   * The size of the backups in bytes.
   */
  uint64_t backup_bytes;
} plinth_sleep_info_t;

/*! An initializer for a plinth_sleep_info_t. */
#define PLINTH_SLEEP_INFO_INIT {sizeof(plinth_sleep_info_t), 0, 0, 0, 0, 0, 0}

/**
 * Nowhere: the contents are lost.
 */
#define PLINTH_BACKUP_NONE 0

/**
 * In pinned host memory, the fastest. It comes from the allocator of plinth_host_alloc.
 */
#define PLINTH_BACKUP_PINNED 1

/**
 * In pageable host memory.
 */
#define PLINTH_BACKUP_PAGEABLE 2

/**
 * In a file without a name, of which nothing is left when the process ends.
 */
#define PLINTH_BACKUP_FILE 3

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets the tag of a pool, which the other functions of this page find it by. Several pools may have one tag.
 *
 * @param pool The pool; not the default pool. A pool of PyTorch needs to be in use.
 * @param tag The tag, which is copied; without a comma. NULL or "" removes the tag.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a tag with a comma or that is not
 *         UTF-8; PLINTH_ERROR_GRAPH_ASLEEP if the tag of a pool that sleeps is removed: it could not wake any more; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_set_tag(plinth_pool_id_t pool,
                                        const char *tag)
PLINTH_NOEXCEPT;

/**
 * Gets the tag of a pool.
 *
 * @param pool The pool.
 * @param tag Out: the tag; "" if the pool has none. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_get_tag(plinth_pool_id_t pool,
                                        char **tag)
PLINTH_NOEXCEPT;

/**
 * Releases the physical memory of the pools with these tags, on all devices at the same time. Waits for all work of the
 * devices. Pools that sleep already stay as they are.
 *
 * The contents of blocks that are allocated are kept in the backup. The contents of freed blocks are lost, also where
 * graphs use them between their captures and replays. If the backup cannot be made, nothing changes. Without tags, memory
 * that is cached in other pools is released too, as by plinth_empty_cache.
 *
 * @param tags The tags, separated by commas; NULL for every pool that has one.
 * @param options How the memory sleeps; NULL for no backup.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has, and for wrong options;
 *         PLINTH_ERROR_GRAPH_MEMORY_IN_USE if requests are routed to one of the pools, if another process holds memory
 *         of it, and with PLINTH_SLEEP_NO_WAIT; PLINTH_ERROR_NOT_SUPPORTED for memory with fixed addresses
 *         (expandable_segments:False, an allocator of the program); PLINTH_ERROR_CAPTURE_FORBIDS while a stream of a
 *         device captures; PLINTH_ERROR_OUT_OF_MEMORY for a backup in host memory and PLINTH_ERROR_SYSTEM for a file;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait; PLINTH_ERROR_TIMED_OUT if another
 *         thread moves memory of a pool for seconds; PLINTH_ERROR_DRIVER: pools some of
 *         whose memory could not be mapped again count as asleep, with their contents if there is a backup; wake
 *         them, or repeat the call to release the rest; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_sleep(const char *tags,
                                    const struct plinth_sleep_options_t *options)
PLINTH_NOEXCEPT;

/**
 * Creates physical memory for the pools with these tags, at the same addresses, and restores the contents that
 * were kept. Pools wake in the order of the tags, pools with one tag in the order of their ids. Those that are awake stay
 * as they are; the call waits for the copies of plinth_memory_wake_async. If memory is short, memory that is cached
 * elsewhere is released.
 *
 * @param tags The tags, separated by commas; NULL for every pool that has one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; PLINTH_ERROR_OUT_OF_MEMORY if a device or a
 *         limit has no room: that pool and those behind it sleep on, and nothing is lost; PLINTH_ERROR_SYSTEM if a file
 *         cannot be read; PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_wake(const char *tags)
PLINTH_NOEXCEPT;

/**
 * Does the same as plinth_memory_wake, without a wait for the copies of pinned backups: they proceed in the order of the
 * pools, in a stream of the library's own on each device. Call plinth_memory_wake_wait for each stream that uses
 * the memory. Blocks may be freed at once; they are not used again before they are restored.
 *
 * @param tags The tags, separated by commas; NULL for every pool that has one.
 * @return The statuses of plinth_memory_wake, except PLINTH_ERROR_WOULD_SYNCHRONIZE.
 */
PLINTH_API
plinth_status_t plinth_memory_wake_async(const char *tags)
PLINTH_NOEXCEPT;

/**
 * Makes later work of a stream wait until the contents of pools are restored on the stream's device. The CPU does not wait.
 *
 * A program that wakes one pool for each layer of a model, in their order, can begin with the first layer while the
 * memory of the others is restored.
 *
 * @param tags The tags, separated by commas; NULL for every pool that has one.
 * @param stream The stream, which does not capture; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; PLINTH_ERROR_GRAPH_ASLEEP for a pool that
 *         sleeps; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_wake_wait(const char *tags,
                                        plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Allocates backups for as many bytes as the pools with these tags hold now, so that plinth_memory_sleep need not: pinning
 * memory takes longer than filling it. They stay when the pools wake, until plinth_memory_free_backup. A pool
 * that has grown since gets a larger one when it sleeps.
 *
 * @param tags The tags, separated by commas; NULL for every pool that has one.
 * @param options The kind of backup, and the folder of a file. The same must be passed to plinth_memory_sleep.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has, for wrong options
 *         and for no backup; PLINTH_ERROR_GRAPH_ASLEEP for a pool that sleeps; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_SYSTEM; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_alloc_backup(const char *tags,
                                           const struct plinth_sleep_options_t *options)
PLINTH_NOEXCEPT;

/**
 * Frees the backups of the pools with these tags.
 *
 * @param tags The tags, separated by commas; NULL for every pool that has one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; PLINTH_ERROR_GRAPH_ASLEEP for a pool that
 *         sleeps; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_free_backup(const char *tags)
PLINTH_NOEXCEPT;

/**
 * Describes what sleeps. Waits while another thread puts pools to sleep or wakes them.
 *
 * @param tags The tags, separated by commas; NULL for every pool that has one.
 * @param info In: struct_size. Out: the sums over the pools and the devices.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_sleep_info(const char *tags,
                                         struct plinth_sleep_info_t *info)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_MEMORY_SLEEP_H */
