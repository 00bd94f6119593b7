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
 * The sanitizer is off. The mode at the start.
 */
#define PLINTH_SANITIZER_OFF 0

/**
 * What is found is kept, for plinth_sanitizer_each, _text and _json.
 */
#define PLINTH_SANITIZER_COLLECT 1

/**
 * The same, and the callback is told of each report that is new.
 */
#define PLINTH_SANITIZER_WARN 2

/**
 * The same, and each call at which something is found fails with PLINTH_ERROR_RACE, without having done anything.
 */
#define PLINTH_SANITIZER_ERROR 3

/**
 * An operation reads bytes.
 */
#define PLINTH_SANITIZER_READ 1

/**
 * An operation writes bytes. Both together are one that does both.
 */
#define PLINTH_SANITIZER_WRITE 2

/**
 * Nothing orders two accesses to the same bytes, of which one writes at least.
 */
#define PLINTH_SANITIZER_RACE 0

/**
 * The same, and between the two an allocator took the memory back and gave it out again.
 */
#define PLINTH_SANITIZER_REUSE 1

/**
 * Memory is used that was freed.
 */
#define PLINTH_SANITIZER_USE_AFTER_FREE 2

/**
 * The stream of the access, or the CPU, did not wait for that of the earlier one.
 */
#define PLINTH_SANITIZER_MISSING_WAIT 0

/**
 * It did, but before the earlier access was there.
 */
#define PLINTH_SANITIZER_MISSING_LATER_WAIT 1

/**
 * The stream of the earlier access was not recorded for the block (plinth_record_stream) before that was freed.
 */
#define PLINTH_SANITIZER_MISSING_RECORD_STREAM 2

/**
 * The block was freed before the access.
 */
#define PLINTH_SANITIZER_MISSING_LATER_FREE 3

/**
 * One of the two accesses of a report.
 */
typedef struct plinth_sanitizer_side_t {
  /**
   * The library's call, or the name that the program gave its operation; NULL where there is no such access.
   */
  const char *name;
  /**
   * The first byte of the access.
   */
  uint64_t address;
  /**
   * How many there are.
   */
  uint64_t bytes;
  /**
   * The number of the operation, in the order in which the calls were made.
   */
  uint64_t operation;
  /**
   * The stream; NULL is a default stream, or the CPU.
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

/**
 * Something that the sanitizer found. What it points at is valid during the call that shows it.
 */
typedef struct plinth_sanitizer_report_t {
  /**
   * The size of the struct, which grows at its end in newer versions.
   */
  size_t struct_size;
  /**
   * What is wrong: PLINTH_SANITIZER_RACE, _REUSE or _USE_AFTER_FREE.
   */
  int32_t kind;
  /**
   * What would have ordered the two: one of PLINTH_SANITIZER_MISSING_....
   */
  int32_t missing;
  /**
   * The first byte that is concerned.
   */
  uint64_t address;
  /**
   * How many there are.
   */
  uint64_t bytes;
  /**
   * How often it was found so far.
   */
  uint64_t times;
  /**
   * The access at which it was found.
   */
  struct plinth_sanitizer_side_t access;
  /**
   * The earlier one; without a name if freed memory was used.
   */
  struct plinth_sanitizer_side_t previous;
  /**
   * All that is known, in words, on several lines: both accesses with the calls' stacks, what would have ordered them, the
   * block and who asked for it.
   */
  const char *text;
  /**
   * The same as a JSON object; see plinth_sanitizer_json.
   */
  const char *json;
} plinth_sanitizer_report_t;

/**
 * Is shown a report, and the context.
 */
typedef void (*plinth_sanitizer_callback_t)(const struct plinth_sanitizer_report_t *report, void *context);

/**
 * Bytes that an operation works on.
 */
typedef struct plinth_sanitizer_access_t {
  /**
   * The first. NULL with 0 bytes is none.
   */
  const void *pointer;
  /**
   * How many bytes.
   */
  size_t bytes;
  /**
   * PLINTH_SANITIZER_READ, _WRITE, or both.
   */
  uint32_t kind;
  /**
   * 0.
   */
  uint32_t reserved;
} plinth_sanitizer_access_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Switches the stream sanitizer on, as torch.cuda._sanitizer.enable_cuda_sanitizer does, or changes its mode. From then on
 * it looks at all that the library does, for accesses to the same bytes from different streams, or from a stream and the
 * CPU, that nothing orders and of which one writes at least; and for uses of freed memory. It is about order and not about
 * time: what it finds is wrong also in a run in which nothing happened to go wrong. docs/sanitizer.md tells what it knows.
 *
 * Of what happened before it knows only which blocks there are. An access costs about a microsecond more while it is on, and
 * memory of the CPU is taken for what is under way; off, it costs nothing. The library prints nothing; see
 * PLINTH_SANITIZER_LOG in docs/sanitizer.md for who wants that. Thread-safe.
 *
 * @param mode PLINTH_SANITIZER_COLLECT, _WARN or _ERROR; _OFF as plinth_sanitizer_disable.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_enable(int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Switches the stream sanitizer off. What it knows is forgotten; the reports stay until plinth_sanitizer_clear. Thread-safe.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_disable(void)
PLINTH_NOEXCEPT;

/**
 * Tells the mode of the stream sanitizer. Needs no device. Thread-safe.
 *
 * @param mode Out: PLINTH_SANITIZER_OFF, _COLLECT, _WARN or _ERROR.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_sanitizer_mode(int32_t *mode) PLINTH_NOEXCEPT;

/**
 * Sets who is told of reports that are new, in the modes PLINTH_SANITIZER_WARN and _ERROR. What two calls of the same places
 * in the program have between them is one report, however often it is found. Needs no device. Thread-safe.
 *
 * Other threads may still be in the callback that was set before when this returns, or about to call it, so that one's context
 * has to stay.
 *
 * @param callback Called by the thread whose call finds something, before that call returns. It may call the library, and what
 *        is wrong with these calls is only kept. NULL for nobody. It must not unwind or throw.
 * @param context Passed to the callback, which may be called by several threads at once.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_set_callback(plinth_sanitizer_callback_t callback,
                                              void *context)
PLINTH_NOEXCEPT;

/**
 * Tells the sanitizer of work of the program's own on some bytes: a kernel that it is about to launch into a stream, a call of
 * another library. In a capture it becomes a part of the graph, and is looked at in each replay. Does nothing while the
 * sanitizer is off. Thread-safe.
 *
 * @param pointer The first byte.
 * @param bytes How many.
 * @param kind PLINTH_SANITIZER_READ, PLINTH_SANITIZER_WRITE, or both.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_RACE in the mode PLINTH_SANITIZER_ERROR, if the work must not be done;
 *         PLINTH_ERROR_INVALID_VALUE for another kind; PLINTH_ERROR_NULL_POINTER for a NULL pointer;
 *         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_access(const void *pointer,
                                        size_t bytes,
                                        uint32_t kind,
                                        plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * The same for one operation that works on several runs of bytes, under a name. Thread-safe.
 *
 * @param name What reports call it: a kernel's name, say.
 * @param accesses The runs of bytes.
 * @param access_count How many.
 * @param stream The stream; NULL for the current device's default stream.
 * @return As plinth_sanitizer_access; PLINTH_ERROR_NULL_POINTER also for a NULL name or list.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_operation(const char *name,
                                           const struct plinth_sanitizer_access_t *accesses,
                                           size_t access_count,
                                           plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * The same for work that the CPU does itself and now, on memory that streams work on, too: pinned, managed, or read through
 * a mapping. What a host function does is told as an operation of its stream, when it is launched. Thread-safe.
 *
 * @param name What reports call it.
 * @param accesses The runs of bytes.
 * @param access_count How many.
 * @return As plinth_sanitizer_operation.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_host_operation(const char *name,
                                                const struct plinth_sanitizer_access_t *accesses,
                                                size_t access_count)
PLINTH_NOEXCEPT;

/**
 * Tells the sanitizer what a node of a graph does to memory at each replay: a kernel or a host function of a graph that was
 * built, or a conditional node with all that is in it. It takes the place of what was told of the node before, or seen of it,
 * and counts from when the graph is instantiated next. What a capture made is known from the capture, and has this counted
 * only once the graph got other nodes; in a copy of the graph that became a node of another graph it does not count. Does nothing while
 * the sanitizer is off. Thread-safe.
 *
 * @param graph The graph, which kept its nodes.
 * @param node A node of it that is neither a graph nor an event.
 * @param name What reports call it.
 * @param accesses The runs of bytes.
 * @param access_count How many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another kind of access and another kind of node;
 *         PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
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
 * Tells the sanitizer that later work of a stream waits for what another has now, by something that it does not see: an event
 * of CUDA's own, a flag in memory. It knows what the library's own calls order. Thread-safe.
 *
 * @param stream The stream that waits.
 * @param other The one that is waited for.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_wait_stream(plinth_stream_t stream,
                                             plinth_stream_t other)
PLINTH_NOEXCEPT;

/**
 * Tells the sanitizer that the CPU knows by something that it does not see that all work of a stream is done. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_stream_done(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Tells how many reports there are. Needs no device. Thread-safe.
 *
 * @param reports Out: how many there are to read: 1000 at most.
 * @param findings Out: how often anything was found, the same again included; may be NULL.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for NULL reports.
 */
PLINTH_API plinth_status_t plinth_sanitizer_count(size_t *reports, uint64_t *findings) PLINTH_NOEXCEPT;

/**
 * Shows all reports, in the order in which they were found. Finds out what functions their stacks are of, which takes
 * milliseconds the first time. Needs no device. Thread-safe.
 *
 * @param callback Called for each report, by this thread; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_each(plinth_sanitizer_callback_t callback,
                                      void *context)
PLINTH_NOEXCEPT;

/**
 * Gives all reports in words, in the order in which they were found; an empty text if there are none. Needs no device.
 * Thread-safe.
 *
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_text(char **text)
PLINTH_NOEXCEPT;

/**
 * Gives all reports as JSON: a list of objects, in the order in which they were found.
 *
 * Each has "kind" ("race", "reuse", "use_after_free"), "message", "times", "address", "bytes", "access" and "previous", which
 * is null where freed memory was used, "missing" ("wait", "later_wait", "record_stream", "later_free"), "advice",
 * "allocation", the block that the bytes are in or null, and "former_allocation", the block that they were in before, if that
 * is concerned. An access has "name", "kind" ("read", "write", "read_write"), "device" and "stream", null for the CPU, "graph",
 * the driver's handle of what was launched or null, "address", "bytes", "operation" and "frames"; a block has "address",
 * "bytes", "device", "stream", "frames" and "freed_frames", null if it is not freed. A frame has "name", "filename" and "line".
 * Needs no device. Thread-safe.
 *
 * @param json Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_json(char **json)
PLINTH_NOEXCEPT;

/**
 * Forgets all reports, so that the same would be new again. What the sanitizer knows of the program stays. Needs no device.
 * Thread-safe.
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
