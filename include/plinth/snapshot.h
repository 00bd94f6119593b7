/*!
 * @defgroup plinth_snapshot Snapshots of the allocator
 *
 * The segments and blocks of the caching allocator at one moment, with the history as far as it is recorded:
 * torch.cuda.memory_snapshot and torch.cuda.memory._dump_snapshot.
 *
 * A snapshot is written to a file, returned as a text that the caller frees with plinth_string_free, or passed to a
 * callback. What a callback receives is valid during the callback only. Allocations of other threads wait while the
 * blocks are copied, but not while a file is written or a callback runs.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_SNAPSHOT_H
#define PLINTH_SNAPSHOT_H

#include "base.h"
#include "mem_pool.h"

/*!
 * @file plinth/snapshot.h
 * @brief Snapshots of the allocator.
 */

/*!
 * @addtogroup plinth_snapshot
 * @{
 */

/**
 * A segment in a snapshot: a contiguous, mapped address range of one stream in one pool of one device.
 *
 * The struct grows at its end in newer versions; struct_size states how much of it the library has filled.
 */
typedef struct plinth_memory_segment_t {
  /**
   * The size of the struct in the library's version.
   */
  size_t struct_size;
  /**
   * The address of the segment.
   */
  uint64_t address;
  /**
   * The size in bytes; the sizes of its blocks add up to it.
   */
  uint64_t total_size;
  /**
   * Bytes of allocated blocks, each request rounded up.
   */
  uint64_t allocated_size;
  /**
   * Bytes of allocated blocks, and of freed blocks that other streams may still use.
   */
  uint64_t active_size;
  /**
   * Bytes that were requested for the active blocks.
   */
  uint64_t requested_size;
  /**
   * Bytes without physical memory, because the pool is suspended.
   */
  uint64_t asleep_size;
  /**
   * The handle of the stream that the segment serves.
   */
  uint64_t stream;
  /**
   * The pool.
   */
  plinth_pool_id_t pool;
  /**
   * The number of blocks.
   */
  size_t block_count;
  /**
   * The device number.
   */
  int32_t device;
  /**
   * Whether the segment serves requests above 1 MiB.
   */
  bool is_large;
  /**
   * Whether the segment can grow and shrink, because it consists of mapped physical memory handles (expandable
   * segments).
   */
  bool is_expandable;
  /**
   * The name of the stream; an empty string if it has none.
   */
  const char *stream_name;
} plinth_memory_segment_t;

/*! An initializer for a plinth_memory_segment_t. */
#define PLINTH_MEMORY_SEGMENT_INIT {sizeof(plinth_memory_segment_t), 0, 0, 0, 0, 0, 0, 0, {0, 0}, 0, 0, false, false, NULL}

/**
 * The state of a block: one of the PLINTH_BLOCK_ constants.
 */
typedef int32_t plinth_block_state_t;

/**
 * A block of a segment in a snapshot. The struct grows as plinth_memory_segment_t does.
 */
typedef struct plinth_memory_block_t {
  /**
   * The size of the struct in the library's version.
   */
  size_t struct_size;
  /**
   * The address of the block.
   */
  uint64_t address;
  /**
   * The size in bytes.
   */
  uint64_t size;
  /**
   * The number of bytes that were requested; 0 for a free block.
   */
  uint64_t requested_size;
  /**
   * The state of the block.
   */
  plinth_block_state_t state;
  /**
   * Reserved: 0.
   */
  int32_t reserved;
  /**
   * The name of the block; an empty string if it has none or is not allocated.
   */
  const char *name;
} plinth_memory_block_t;

/*! An initializer for a plinth_memory_block_t. */
#define PLINTH_MEMORY_BLOCK_INIT {sizeof(plinth_memory_block_t), 0, 0, 0, 0, 0, NULL}

/**
 * Receives a segment and one of its blocks, in the thread of the call and without any lock of the library held; it may
 * call the library. Both structs and their strings are valid until it returns.
 *
 * Its arguments are the segment; the block, which is NULL in a first call for each segment, before its blocks; and the
 * context. It returns whether to continue. It must not throw.
 */
typedef bool (*plinth_memory_snapshot_callback_t)(const struct plinth_memory_segment_t *segment,
                                                  const struct plinth_memory_block_t *block,
                                                  void *context);

/**
 * Free: "inactive".
 */
#define PLINTH_BLOCK_INACTIVE 0

/**
 * Freed, but other streams may still use it: "active_pending_free".
 */
#define PLINTH_BLOCK_PENDING_FREE 1

/**
 * Allocated: "active_allocated".
 */
#define PLINTH_BLOCK_ALLOCATED 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes a snapshot of the caching allocator to a file, for all devices, as torch.cuda.memory._dump_snapshot does. It
 * contains all segments and blocks at one moment, and the history that plinth_record_memory_history has recorded.
 *
 * The end of the file name selects the format: ".json" for JSON, ".html" (or ".htm") for a page that displays the
 * snapshot in any browser, and any other name for the pickle that <https://pytorch.org/memory_viz> and torch's
 * _memory_viz.py read.
 *
 * Allocations of other threads wait while blocks and history are copied, some milliseconds for a hundred thousand of
 * them, but not while the file is written. The call makes no driver call, so it does not disturb the device's work or
 * a capture. It may be called in an out-of-memory observer.
 *
 * @param path The path of the file. An existing file is replaced when the new one is complete, and is unchanged if
 *        writing fails; permissions are kept, and a symbolic link remains a link. A pipe or another special file is
 *        written directly. In a folder that all users share, such as /tmp, another user's link or pipe is an error.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM if the file cannot be written, with the path and
 *         the reason in the message; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_dump_snapshot(const char *path)
PLINTH_NOEXCEPT;

/**
 * Returns a snapshot of the caching allocator as JSON, for all devices: the content of torch.cuda.memory_snapshot and
 * torch.cuda.memory._snapshot, with the same keys. One difference: "frames" is an index into the list "stacks". Locks
 * and driver calls are as in plinth_dump_snapshot.
 *
 * @param include_traces Whether "device_traces" and "external_annotations" contain the history; otherwise they are
 *        empty.
 * @param json Out: the JSON text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_snapshot(bool include_traces,
                                       char **json)
PLINTH_NOEXCEPT;

/**
 * Returns a snapshot of one pool as JSON: its segments, the history of its events, and all annotations. A pool in
 * which nothing was allocated has no segments. Otherwise like plinth_memory_snapshot.
 *
 * @param pool The pool; {0, 0} for the default pool.
 * @param include_traces As in plinth_memory_snapshot.
 * @param json Out: the JSON text. The caller owns it and frees it with plinth_string_free.
 * @return The statuses of plinth_memory_snapshot; PLINTH_ERROR_INVALID_HANDLE as for plinth_mem_pool_memory.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_snapshot(plinth_pool_id_t pool,
                                         bool include_traces,
                                         char **json)
PLINTH_NOEXCEPT;

/**
 * Passes every segment and every block of the caching allocator to a callback, for all devices, in the order of
 * addresses, as of one moment: the content of plinth_memory_snapshot without text formatting.
 *
 * @param callback Called for each segment and block; see plinth_memory_snapshot_callback_t.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK, also if the callback ended the iteration; PLINTH_ERROR_NULL_POINTER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_snapshot_each(plinth_memory_snapshot_callback_t callback,
                                            void *context)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_SNAPSHOT_H */
