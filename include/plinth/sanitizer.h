/*!
 * @defgroup plinth_sanitizer Stream sanitizer
 *
 * Finds accesses to the same memory that no stream order, event or wait separates, and uses of freed memory:
 * torch.cuda._sanitizer.
 *
 * The mode, the callback and the reports hold for the whole process. Reports belong to the library, and what a
 * callback receives is valid during the callback only. A text that a function returns is the caller's, who frees it
 * with plinth_string_free. The callback is called by the thread whose call found something, possibly by several
 * threads at once.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_SANITIZER_H
#define PLINTH_SANITIZER_H

#include "base.h"
#include "graph.h"

/*!
 * @file plinth/sanitizer.h
 * @brief Stream sanitizer.
 */

/*!
 * @addtogroup plinth_sanitizer
 * @{
 */

/**
 * The sanitizer is off. The initial mode.
 */
#define PLINTH_SANITIZER_OFF 0

/**
 * Findings are stored, for plinth_sanitizer_each, _text and _json.
 */
#define PLINTH_SANITIZER_COLLECT 1

/**
 * Findings are stored, and the callback is called for each new report.
 */
#define PLINTH_SANITIZER_WARN 2

/**
 * As PLINTH_SANITIZER_WARN, and each call in which something is found fails with PLINTH_ERROR_RACE, before it has any
 * effect.
 */
#define PLINTH_SANITIZER_ERROR 3

/**
 * An operation reads bytes.
 */
#define PLINTH_SANITIZER_READ 1

/**
 * An operation writes bytes. Combine both constants for an operation that reads and writes.
 */
#define PLINTH_SANITIZER_WRITE 2

/**
 * Two accesses to the same bytes, at least one of them a write, are unordered.
 */
#define PLINTH_SANITIZER_RACE 0

/**
 * A race where an allocator freed and reused the memory between the two accesses.
 */
#define PLINTH_SANITIZER_REUSE 1

/**
 * Freed memory is used.
 */
#define PLINTH_SANITIZER_USE_AFTER_FREE 2

/**
 * An access begins in a block and runs past its end.
 */
#define PLINTH_SANITIZER_OUT_OF_BOUNDS 3

/**
 * Memory that sleeps is used.
 */
#define PLINTH_SANITIZER_USE_WHILE_ASLEEP 4

/**
 * The stream of the access, or the CPU, did not wait for the stream of the earlier access.
 */
#define PLINTH_SANITIZER_MISSING_WAIT 0

/**
 * It did wait, but before the earlier access was enqueued.
 */
#define PLINTH_SANITIZER_MISSING_LATER_WAIT 1

/**
 * The stream of the earlier access was not recorded for the block (plinth_record_stream) before the block was freed.
 */
#define PLINTH_SANITIZER_MISSING_RECORD_STREAM 2

/**
 * The block was freed before the access.
 */
#define PLINTH_SANITIZER_MISSING_LATER_FREE 3

/**
 * The block is too small for the access.
 */
#define PLINTH_SANITIZER_MISSING_LARGER_BLOCK 4

/**
 * The memory must wake before the access.
 */
#define PLINTH_SANITIZER_MISSING_WAKE 5

/**
 * One of the two accesses of a report.
 */
typedef struct plinth_sanitizer_side_t {
  /**
   * The size of the struct in the library's version.
   */
  size_t struct_size;
  /**
   * The name of the library's function, or the name that the program gave its operation; NULL if there is no such
   * access.
   */
  const char *name;
  /**
   * The first byte of the access.
   */
  uint64_t address;
  /**
   * Number of bytes.
   */
  uint64_t bytes;
  /**
   * The sequence number of the operation, in the order of the calls.
   */
  uint64_t operation;
  /**
   * The stream; NULL for a default stream, and for the CPU.
   */
  plinth_stream_t stream;
  /**
   * The stream's device; -1 for the CPU.
   */
  int32_t device;
  /**
   * PLINTH_SANITIZER_READ, _WRITE, or both.
   */
  uint32_t kind;
} plinth_sanitizer_side_t;

/*! An initializer for a plinth_sanitizer_side_t. */
#define PLINTH_SANITIZER_SIDE_INIT {sizeof(plinth_sanitizer_side_t), NULL, 0, 0, 0, NULL, 0, 0}

/**
 * A finding of the sanitizer. What it points to is valid during the callback.
 */
typedef struct plinth_sanitizer_report_t {
  /**
   * The size of the struct, which grows at its end in newer versions.
   */
  size_t struct_size;
  /**
   * The kind: PLINTH_SANITIZER_RACE, _REUSE, _USE_AFTER_FREE, _OUT_OF_BOUNDS or _USE_WHILE_ASLEEP.
   */
  int32_t kind;
  /**
   * What would have ordered the two accesses: one of PLINTH_SANITIZER_MISSING_....
   */
  int32_t missing;
  /**
   * The first conflicting byte; for an access out of bounds, the end of the block.
   */
  uint64_t address;
  /**
   * Number of conflicting bytes.
   */
  uint64_t bytes;
  /**
   * How often this was found so far.
   */
  uint64_t times;
  /**
   * The access that caused the report.
   */
  const struct plinth_sanitizer_side_t *access;
  /**
   * The earlier access; its name is NULL unless the kind is PLINTH_SANITIZER_RACE or _REUSE.
   */
  const struct plinth_sanitizer_side_t *previous;
  /**
   * A full description in several lines: both accesses with stack traces, what would have ordered them, the block,
   * and where it was allocated.
   */
  const char *text;
  /**
   * The report as a JSON object; see plinth_sanitizer_json.
   */
  const char *json;
} plinth_sanitizer_report_t;

/*! An initializer for a plinth_sanitizer_report_t. */
#define PLINTH_SANITIZER_REPORT_INIT {sizeof(plinth_sanitizer_report_t), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL}

/**
 * Receives a report, and the context. It must not throw.
 */
typedef void (*plinth_sanitizer_callback_t)(const struct plinth_sanitizer_report_t *report, void *context);

/**
 * A range of bytes that an operation accesses.
 */
typedef struct plinth_sanitizer_access_t {
  /**
   * sizeof(plinth_sanitizer_access_t) in the caller's version of the header.
   */
  size_t struct_size;
  /**
   * The first byte. NULL with 0 bytes is no access.
   */
  const void *pointer;
  /**
   * Number of bytes.
   */
  size_t bytes;
  /**
   * PLINTH_SANITIZER_READ, _WRITE, or both.
   */
  uint32_t kind;
  /**
   * Reserved: 0.
   */
  uint32_t reserved;
} plinth_sanitizer_access_t;

/*! An initializer for a plinth_sanitizer_access_t. */
#define PLINTH_SANITIZER_ACCESS_INIT {sizeof(plinth_sanitizer_access_t), NULL, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Enables the stream sanitizer, as torch.cuda._sanitizer.enable_cuda_sanitizer does, or changes its mode. While
 * enabled, it checks all calls of the library for two accesses to the same bytes that are unordered and of which at
 * least one is a write (from different streams, or from a stream and the CPU), for uses of freed memory, and for
 * accesses past the end of a block. It checks order, not timing: what it finds is a defect even if nothing went wrong
 * in this run. docs/sanitizer.md describes what it covers.
 *
 * Of the time before it was enabled, it knows only which blocks are allocated. While it is enabled, an access costs
 * about one microsecond more, and host memory is used for the work in progress; while it is off, it costs nothing. The
 * library prints nothing; to have reports printed, see PLINTH_SANITIZER_LOG in docs/sanitizer.md.
 *
 * @param mode PLINTH_SANITIZER_COLLECT, _WARN or _ERROR. _OFF is the same as plinth_sanitizer_disable.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_enable(int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Disables the stream sanitizer. Its state is discarded; reports are kept until plinth_sanitizer_clear.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_sanitizer_disable(void) PLINTH_NOEXCEPT;

/**
 * Returns the mode of the stream sanitizer. Needs no device.
 *
 * @param mode Out: PLINTH_SANITIZER_OFF, _COLLECT, _WARN or _ERROR.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_sanitizer_mode(int32_t *mode) PLINTH_NOEXCEPT;

/**
 * Sets the callback for new reports, in the modes PLINTH_SANITIZER_WARN and _ERROR. All findings between the same two
 * places in the program are one report, however often they occur. Needs no device.
 *
 * When this returns, other threads may still be in the previous callback, or about to call it, so its context must
 * stay valid.
 *
 * @param callback Called by the thread whose call finds something, before that call returns. It may call the library;
 *        findings in those calls are only stored. NULL for none. It must not unwind or throw.
 * @param context Passed to the callback, which may be called by several threads at once.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_set_callback(plinth_sanitizer_callback_t callback,
                                              void *context)
PLINTH_NOEXCEPT;

/**
 * Declares an access of the program's own work to a range of bytes: for example of a kernel that it is about to launch
 * into a stream, or of another library. In a capture it becomes a part of the graph, and is checked at each replay.
 * Does nothing while the sanitizer is off.
 *
 * @param pointer The first byte.
 * @param bytes Number of bytes.
 * @param kind PLINTH_SANITIZER_READ, PLINTH_SANITIZER_WRITE, or both.
 * @param stream The stream; NULL for the default stream of the memory's device.
 * @return PLINTH_OK; PLINTH_ERROR_RACE in the mode PLINTH_SANITIZER_ERROR, in which case the work must not be
 *         enqueued; PLINTH_ERROR_INVALID_VALUE for another kind; PLINTH_ERROR_NULL_POINTER for a NULL pointer;
 *         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_access(const void *pointer,
                                        size_t bytes,
                                        uint32_t kind,
                                        plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Declares a named operation of the program in a stream, with all ranges of bytes that it accesses. Otherwise like
 * plinth_sanitizer_access.
 *
 * @param name The operation's name in reports, for example a kernel's name.
 * @param accesses The ranges of bytes.
 * @param access_count The number of ranges.
 * @param stream The stream; NULL for the default stream of the device of the first range in device memory.
 * @return The statuses of plinth_sanitizer_access; PLINTH_ERROR_NULL_POINTER also for a NULL name or list.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_operation(const char *name,
                                           const struct plinth_sanitizer_access_t *accesses,
                                           size_t access_count,
                                           plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Declares an operation that the CPU performs now, on memory that streams access too: pinned or managed memory, or
 * memory that is read through a mapping. Declare what a host function does with plinth_sanitizer_operation in its
 * stream, when it is enqueued.
 *
 * @param name The operation's name in reports.
 * @param accesses The ranges of bytes.
 * @param access_count The number of ranges.
 * @return The statuses of plinth_sanitizer_operation.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_host_operation(const char *name,
                                                const struct plinth_sanitizer_access_t *accesses,
                                                size_t access_count)
PLINTH_NOEXCEPT;

/**
 * Declares what a node of a graph accesses at each replay: a kernel or a host function of an explicitly built graph,
 * or a conditional node with its whole body. The declaration replaces earlier ones for the node, and what the
 * sanitizer observed of it; it applies from the next instantiation on. For a captured graph the accesses are known
 * from the capture, and a declaration applies only once the graph has got further nodes. A declaration does not apply
 * to a copy of the graph that is a child node of another graph. Does nothing while the sanitizer is off.
 *
 * @param graph The graph, which must have kept its nodes.
 * @param node A node of the graph; not a child graph node or an event node.
 * @param name The operation's name in reports.
 * @param accesses The ranges of bytes.
 * @param access_count The number of ranges.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another kind of access and another kind
 *         of node; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_graph_operation(plinth_graph_t graph,
                                                 plinth_graph_node_t node,
                                                 const char *name,
                                                 const struct plinth_sanitizer_access_t *accesses,
                                                 size_t access_count)
PLINTH_NOEXCEPT;

/**
 * Declares that later work of a stream waits for the present work of another, by a mechanism that the sanitizer does
 * not observe, such as a CUDA event of another library or a flag in memory. The order that the library's own calls
 * establish is known without it.
 *
 * @param stream The stream that waits.
 * @param other The stream that is waited for.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_wait_stream(plinth_stream_t stream,
                                             plinth_stream_t other)
PLINTH_NOEXCEPT;

/**
 * Declares that all work of a stream is complete, and that the CPU knows it by a mechanism that the sanitizer does not
 * observe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_stream_done(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Returns the number of reports. Needs no device.
 *
 * @param reports Out: the number of stored reports, at most 1000.
 * @param findings Out, unless NULL: the total number of findings, including repeated ones.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if `reports` is NULL.
 */
PLINTH_API plinth_status_t plinth_sanitizer_count(size_t *reports, uint64_t *findings) PLINTH_NOEXCEPT;

/**
 * Passes all reports to a callback, in the order in which they were found. Looks up the function names of the stack
 * traces, which takes milliseconds the first time. Needs no device.
 *
 * @param callback Called for each report, in the calling thread; it may call the library.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_each(plinth_sanitizer_callback_t callback,
                                      void *context)
PLINTH_NOEXCEPT;

/**
 * Returns all reports as text, in the order in which they were found; an empty string if there are none. Needs no
 * device.
 *
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_text(char **text)
PLINTH_NOEXCEPT;

/**
 * Returns all reports as JSON: a list of objects, in the order in which they were found.
 *
 * A report has "kind" ("race", "reuse", "use_after_free", "out_of_bounds", "use_while_asleep"), "message", "times",
 * "address", "bytes", "access", "previous" (null unless the kind is "race" or "reuse"), "missing" ("wait", "later_wait",
 * "record_stream", "later_free", "larger_block", "wake"), "advice", "allocation" (the block that contains the bytes, or
 * null), and "former_allocation" (the block that contained them before, if it is involved). An access has "name", "kind" ("read", "write", "read_write"), "device"
 * and "stream" (null for the CPU), "graph" (the driver's handle of the executable graph, or null), "address", "bytes",
 * "operation" and "frames". A block has "address", "bytes", "device", "stream", "frames" and "freed_frames" (null if
 * it is not freed). A frame has "name", "filename" and "line". Needs no device.
 *
 * @param json Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_json(char **json)
PLINTH_NOEXCEPT;

/**
 * Discards all reports; a finding that was reported before is new again. The sanitizer's state is kept. Needs no
 * device.
 *
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_clear(void)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_SANITIZER_H */
