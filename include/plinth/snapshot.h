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
 * How a snapshot is written: one of the PLINTH_SNAPSHOT_ constants.
 */
typedef int32_t plinth_snapshot_format_t;

/**
 * A segment of a snapshot: a run of addresses with memory behind them, of one stream in one pool of one device.
 *
 * The struct grows at its end in newer versions, and struct_size says how much of it the library has filled.
 */
typedef struct plinth_memory_segment_t {
  /**
   * The size of the struct as the library knows it.
   */
  size_t struct_size;
  /**
   * Where it begins.
   */
  uint64_t address;
  /**
   * Its bytes; its blocks have them all.
   */
  uint64_t total_size;
  /**
   * Bytes in the program's hands, each request rounded up.
   */
  uint64_t allocated_size;
  /**
   * Those, and bytes that were freed while other streams may still use them.
   */
  uint64_t active_size;
  /**
   * The bytes that were asked for of those.
   */
  uint64_t requested_size;
  /**
   * Bytes whose physical memory is away, since the pool sleeps.
   */
  uint64_t asleep_size;
  /**
   * The handle of the stream that it serves.
   */
  uint64_t stream;
  /**
   * The pool.
   */
  plinth_pool_id_t pool;
  /**
   * How many blocks it has.
   */
  size_t block_count;
  /**
   * The device's number.
   */
  int32_t device;
  /**
   * Whether it holds requests above 1 MiB.
   */
  bool is_large;
  /**
   * Whether it can grow and shrink: it consists of handles that are mapped.
   */
  bool is_expandable;
} plinth_memory_segment_t;

/**
 * What a block is: one of the PLINTH_BLOCK_ constants.
 */
typedef int32_t plinth_block_state_t;

/**
 * A block of a segment. The struct grows as plinth_memory_segment_t does.
 */
typedef struct plinth_memory_block_t {
  /**
   * The size of the struct as the library knows it.
   */
  size_t struct_size;
  /**
   * Where it begins.
   */
  uint64_t address;
  /**
   * Its bytes.
   */
  uint64_t size;
  /**
   * The bytes that were asked for; 0 for a free block.
   */
  uint64_t requested_size;
  /**
   * What it is.
   */
  plinth_block_state_t state;
  /**
   * 0.
   */
  int32_t reserved;
} plinth_memory_block_t;

/**
 * Hears of a segment and one of its blocks, in the thread that called and with no lock of the library's held; it may call
 * the library. Both are valid until it returns.
 *
 * Its arguments are the segment; the block, which is NULL once for each segment, before its blocks; and the context. It
 * returns whether to go on.
 */
typedef bool (*plinth_memory_snapshot_callback_t)(const struct plinth_memory_segment_t *segment,
                                                  const struct plinth_memory_block_t *block,
                                                  void *context);

/**
 * As the name of the file ends: .json is JSON, .html and .htm are a page, and everything else is a pickle.
 */
#define PLINTH_SNAPSHOT_BY_NAME 0

/**
 * The pickle of torch.cuda.memory._dump_snapshot, which <https://pytorch.org/memory_viz> and torch's _memory_viz.py read.
 */
#define PLINTH_SNAPSHOT_PICKLE 1

/**
 * The same structure as JSON, as plinth_memory_snapshot gives it.
 */
#define PLINTH_SNAPSHOT_JSON 2

/**
 * An HTML page that shows the snapshot in any browser, without a network.
 */
#define PLINTH_SNAPSHOT_HTML 3

/**
 * Free: "inactive".
 */
#define PLINTH_BLOCK_INACTIVE 0

/**
 * Freed, while other streams may still use it: "active_pending_free".
 */
#define PLINTH_BLOCK_PENDING_FREE 1

/**
 * In the program's hands: "active_allocated".
 */
#define PLINTH_BLOCK_ALLOCATED 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes a snapshot of the caching allocator to a file, for all devices: what torch.cuda.memory._dump_snapshot does. It
 * holds every segment and block at one moment and the history as far as plinth_record_memory_history keeps it.
 *
 * The end of the name says in which form: ".json", ".html" (or ".htm") for a page that opens in any browser and shows
 * it, and with any other name the pickle that <https://pytorch.org/memory_viz> and torch's _memory_viz.py read.
 *
 * Allocations of other threads wait while blocks and history are copied, some milliseconds for a hundred thousand of them,
 * and not while the file is written. No call of the driver is made, so work of the device goes on, and a capture does not
 * mind. May be called in an out-of-memory observer. Thread-safe.
 *
 * @param path Where to write. What is there is replaced when the file is complete, and stays as it is if it cannot be
 *        written; it keeps its permissions, and a link stays one. A pipe or another special file is written to as it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM for a file that cannot be written, with the path and the
 *         reason in the message; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_dump_snapshot(const char *path)
PLINTH_NOEXCEPT;

/**
 * As plinth_dump_snapshot, in a form that the caller chooses. Thread-safe.
 *
 * @param path Where to write.
 * @param format One of the PLINTH_SNAPSHOT_ constants.
 * @return As plinth_dump_snapshot; PLINTH_ERROR_INVALID_VALUE for a format that there is not.
 */
PLINTH_API
plinth_status_t plinth_dump_snapshot_as(const char *path,
                                        plinth_snapshot_format_t format)
PLINTH_NOEXCEPT;

/**
 * Gives a snapshot of the caching allocator as JSON, for all devices: what torch.cuda.memory_snapshot and
 * torch.cuda.memory._snapshot give, with the same keys. One thing differs: "frames" is a number, that of a stack in the list
 * "stacks". Waits and calls as plinth_dump_snapshot does. Thread-safe.
 *
 * @param include_traces Whether "device_traces" and "external_annotations" hold the history; else they are empty.
 * @param json Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_snapshot(bool include_traces,
                                       char **json)
PLINTH_NOEXCEPT;

/**
 * As plinth_memory_snapshot, of the segments of one pool and the history of what happened in it; annotations are all there.
 * A pool that nothing was allocated in, or that there is not, has no segments. Thread-safe.
 *
 * @param pool The pool; {0, 0} for the default one.
 * @param include_traces As there.
 * @param json Out: as there.
 * @return As plinth_memory_snapshot.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_snapshot(plinth_pool_id_t pool,
                                         bool include_traces,
                                         char **json)
PLINTH_NOEXCEPT;

/**
 * Tells a callback every segment of the caching allocator and every block, for all devices and by address, as they were at
 * one moment: the same as plinth_memory_snapshot, without texts. Thread-safe.
 *
 * @param callback What is told; see plinth_memory_snapshot_callback_t.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK, also when the callback ended it; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
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
