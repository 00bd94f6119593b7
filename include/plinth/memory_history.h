/*!
 * @defgroup plinth_memory_history History of the allocator
 *
 * A record of what the caching allocator does, with call stacks, tags and annotations:
 * torch.cuda.memory._record_memory_history. Trackers see each entry when it happens.
 *
 * The history belongs to the library. What a callback receives is valid during the callback only. Recording holds for
 * the whole process. The tag that plinth_set_memory_metadata sets belongs to the calling thread.
 *
 * A tracker is called by whichever thread is processing entries, one entry at a time, with no lock of the allocator
 * held. It may call the library, but must not wait for a thread that allocates.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_MEMORY_HISTORY_H
#define PLINTH_MEMORY_HISTORY_H

#include "base.h"
#include "mem_pool.h"

/*!
 * @file plinth/memory_history.h
 * @brief History of the allocator.
 */

/*!
 * @addtogroup plinth_memory_history
 * @{
 */

/**
 * Records nothing.
 */
#define PLINTH_MEMORY_HISTORY_OFF 0

/**
 * Records the stack trace of each live block's allocation. Discards entries from before.
 */
#define PLINTH_MEMORY_HISTORY_STATE 1

/**
 * Records the stack traces of live blocks, and an entry for every event.
 */
#define PLINTH_MEMORY_HISTORY_ALL 2

/**
 * Record no stack traces.
 */
#define PLINTH_MEMORY_CONTEXT_NONE 0

/**
 * Record a stack trace for live blocks.
 */
#define PLINTH_MEMORY_CONTEXT_STATE 1

/**
 * Record a stack trace for live blocks, and for events of calls that allocate: allocated blocks and segments, mapped
 * memory, and requests that failed.
 */
#define PLINTH_MEMORY_CONTEXT_ALLOC 2

/**
 * Record a stack trace for every event.
 */
#define PLINTH_MEMORY_CONTEXT_ALL 3

/**
 * A block was allocated.
 */
#define PLINTH_MEMORY_ACTION_ALLOC 0

/**
 * The program freed a block.
 */
#define PLINTH_MEMORY_ACTION_FREE_REQUESTED 1

/**
 * A freed block became reusable: at once, or when the streams that were recorded on it had passed the free.
 */
#define PLINTH_MEMORY_ACTION_FREE_COMPLETED 2

/**
 * A segment was allocated from the driver (expandable_segments:False).
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_ALLOC 3

/**
 * A segment was freed to the driver.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_FREE 4

/**
 * Physical memory was mapped into an address range that the allocator has reserved.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_MAP 5

/**
 * Physical memory was unmapped from an address range, to be released to the driver or mapped elsewhere.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_UNMAP 6

/**
 * A snapshot was taken.
 */
#define PLINTH_MEMORY_ACTION_SNAPSHOT 7

/**
 * A request failed because memory ran out; `address` holds the number of bytes that the device had free.
 */
#define PLINTH_MEMORY_ACTION_OOM 8

/**
 * Options of a memory history. PLINTH_MEMORY_HISTORY_OPTIONS_INIT has torch's defaults: every event with a stack
 * trace, without a limit.
 *
 * The struct grows at its end in newer versions; fields that a program's version lacks have their defaults. Set
 * struct_size to sizeof(plinth_memory_history_options_t).
 */
typedef struct plinth_memory_history_options_t {
  /**
   * The size of the struct in the caller.
   */
  size_t struct_size;
  /**
   * What is recorded: one of PLINTH_MEMORY_HISTORY_....
   */
  int32_t enabled;
  /**
   * What has a stack trace: one of PLINTH_MEMORY_CONTEXT_....
   */
  int32_t context;
  /**
   * The maximum number of entries per device; the newest are kept. 0 is no limit.
   */
  uint64_t max_entries;
  /**
   * 1 discards the history that was recorded before, else 0.
   */
  int32_t clear_history;
  /**
   * 1 records annotations, else 0.
   */
  int32_t record_annotations;
  /**
   * The actions that are not recorded: the sum of 1 << PLINTH_MEMORY_ACTION_... for each.
   */
  uint32_t skip_actions;
  /**
   * Reserved: 0.
   */
  uint32_t reserved;
} plinth_memory_history_options_t;

/*! An initializer for a plinth_memory_history_options_t: every event with a stack trace, without a limit. */
#define PLINTH_MEMORY_HISTORY_OPTIONS_INIT {sizeof(plinth_memory_history_options_t), 2, 3, 0, 0, 0, 0, 0}

/**
 * An event of the allocator. The strings it points to are valid during the callback.
 */
typedef struct plinth_memory_history_entry_t {
  /**
   * The size of the struct in the library's version.
   */
  size_t struct_size;
  /**
   * The kind of event: one of PLINTH_MEMORY_ACTION_....
   */
  int32_t action;
  /**
   * The device number.
   */
  int32_t device;
  /**
   * The address of the block or the segment. For PLINTH_MEMORY_ACTION_OOM the number of bytes that the device had
   * free.
   */
  uint64_t address;
  /**
   * Size in bytes: of a block, as requested; of a segment, its whole size.
   */
  uint64_t size;
  /**
   * The stream that the memory was allocated for.
   */
  plinth_stream_t stream;
  /**
   * The pool that the memory belongs to.
   */
  plinth_pool_id_t pool;
  /**
   * Time in microseconds since 1970.
   */
  uint64_t time_us;
  /**
   * The thread's id in the operating system (gettid).
   */
  uint64_t thread;
  /**
   * The thread's tag at that time, from plinth_set_memory_metadata; an empty string if there was none.
   */
  const char *metadata;
  /**
   * The stack trace, for plinth_memory_stack_each; 0 if none was recorded.
   */
  uint32_t stack;
  /**
   * Reserved: 0.
   */
  uint32_t reserved;
  /**
   * The name of the block; an empty string if it has none. It is the name that the block had when it was freed, or
   * now if it is live; all events of a block have it. A tracker receives it with PLINTH_MEMORY_ACTION_FREE_REQUESTED
   * only. If that action is skipped, freed blocks have no names.
   */
  const char *name;
  /**
   * The name of the stream when the entry is read; an empty string if it has none.
   */
  const char *stream_name;
} plinth_memory_history_entry_t;

/*! An initializer for a plinth_memory_history_entry_t. */
#define PLINTH_MEMORY_HISTORY_ENTRY_INIT {sizeof(plinth_memory_history_entry_t), 0, 0, 0, 0, NULL, {0, 0}, 0, 0, NULL, 0, 0, NULL, NULL}

/**
 * Receives an entry of the history, and the context. It must not throw.
 */
typedef void (*plinth_memory_history_callback_t)(const struct plinth_memory_history_entry_t *entry,
                                                 void *context);

/**
 * Receives a function of a stack trace: its name, its file, its line (from 1; 0 if unknown), and the context. The
 * strings are valid during the call. It must not throw.
 */
typedef void (*plinth_memory_frame_callback_t)(const char *name,
                                               const char *file,
                                               uint32_t line,
                                               void *context);

/**
 * Receives an annotation: the thread's device at that time, the time in microseconds since 1970, the name, whether it
 * is a begin (else an end), and the context. The name is valid during the call. It must not throw.
 */
typedef void (*plinth_memory_annotation_callback_t)(int32_t device,
                                                    uint64_t time_us,
                                                    const char *name,
                                                    bool begin,
                                                    void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Starts, changes or stops recording a history of the allocator on all devices, as
 * torch.cuda.memory._record_memory_history does. Stopping discards the history.
 *
 * An entry costs about 20 ns. A stack trace costs about 5 ns for each function in it, more when a thread passes
 * through a function for the first time. The library stores up to max_entries entries for each stream; reads return
 * the newest max_entries entries of a device. With PLINTH_MEMORY_HISTORY_OFF requests cost what they cost without a
 * history.
 *
 * Stack traces contain C and C++ functions. Function names are looked up when a stack is read, in the debug
 * information and symbols of the program's files.
 *
 * @param options The options, with struct_size set.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set, and for an
 *         unknown `enabled` or `context`; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_record_memory_history(const struct plinth_memory_history_options_t *options)
PLINTH_NOEXCEPT;

/**
 * Reports whether a history is recorded: stack traces of live blocks, or entries. Needs no device.
 *
 * @param enabled Out: whether a history is recorded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_memory_history_is_enabled(bool *enabled) PLINTH_NOEXCEPT;

/**
 * Passes the entries of a device's history to a callback, the oldest first. Events that happen during the call are not
 * included.
 *
 * @param device The device number; -1 for the current device.
 * @param callback Called for each entry, in the calling thread, without any lock of the library held; it may call the
 *        library.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_history_each(int32_t device,
                                           plinth_memory_history_callback_t callback,
                                           void *context)
PLINTH_NOEXCEPT;

/**
 * Passes the functions of a stack trace to a callback, the innermost first, starting with the caller of the library.
 * Looking up names may take seconds the first time for a large library. Needs no device.
 *
 * C++ names are demangled if the process has a C++ library. A function whose name is unknown is "??". A library must
 * still be loaded for its functions to be found.
 *
 * @param stack The stack, from an entry. For 0 and for an invalid number the callback is not called.
 * @param callback Called for each function, in the calling thread; it may call the library.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL.
 */
PLINTH_API
plinth_status_t plinth_memory_stack_each(uint32_t stack,
                                         plinth_memory_frame_callback_t callback,
                                         void *context)
PLINTH_NOEXCEPT;

/**
 * Returns torch's name of an action, for example "free_requested"; "unknown" for an invalid number. Needs no device.
 *
 * @param action The action, one of PLINTH_MEMORY_ACTION_....
 * @return A static string, never NULL.
 */
PLINTH_API
const char *plinth_memory_action_name(int32_t action)
PLINTH_NOEXCEPT;

/**
 * Sets the calling thread's tag, which is stored in every entry that the thread records from now on. Needs no device.
 *
 * @param text The tag; an empty string for none.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_set_memory_metadata(const char *text)
PLINTH_NOEXCEPT;

/**
 * Returns the calling thread's tag. Needs no device.
 *
 * @param text Out: the tag, an empty string if there is none. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_get_memory_metadata(char **text)
PLINTH_NOEXCEPT;

/**
 * Records in the history that a named phase of the program begins, such as a step or a layer. Does nothing unless
 * record_annotations is set.
 *
 * @param name The name of the phase.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_memory_annotation_begin(const char *name)
PLINTH_NOEXCEPT;

/**
 * Records in the history that a named phase of the program ends.
 *
 * @param name The name of the phase.
 * @return The statuses of plinth_memory_annotation_begin.
 */
PLINTH_API plinth_status_t plinth_memory_annotation_end(const char *name) PLINTH_NOEXCEPT;

/**
 * Passes the annotations to a callback, the oldest first. The newest max_entries are kept.
 *
 * @param callback Called for each annotation, in the calling thread, without any lock of the library held; it may call
 *        the library.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the callback is NULL.
 */
PLINTH_API
plinth_status_t plinth_memory_annotations_each(plinth_memory_annotation_callback_t callback,
                                               void *context)
PLINTH_NOEXCEPT;

/**
 * Attaches a tracker: a callback that receives every event that a full history would record, on all devices, whether
 * or not a history is recorded and regardless of skip_actions. An entry has a stack if a history is being recorded
 * that has one.
 *
 * Trackers are called one at a time, in the order of the events, before the call that caused the event returns: by the
 * thread of that call, or by another thread that is already calling trackers. No allocator lock is held. A tracker may
 * call the library; events that it causes itself are not passed to any tracker. It must not wait for a thread that
 * allocates.
 *
 * @param tracker The tracker. It and the context must stay valid until it is detached and every call that may have
 *        started before is complete.
 * @param context Passed to the callback; the library does not dereference it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_attach_allocator_trace_tracker(plinth_memory_history_callback_t tracker,
                                                      void *context)
PLINTH_NOEXCEPT;

/**
 * Detaches a tracker of plinth_attach_allocator_trace_tracker: the last one that was attached with this function and
 * context.
 *
 * @param tracker The tracker.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is no such tracker; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_detach_allocator_trace_tracker(plinth_memory_history_callback_t tracker,
                                                      void *context)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_trace Allocation traces
 *
 * Writes every allocation and free of the process to files, which benches/replay can replay with different allocators.
 * One trace at a time is written; it covers all devices and threads.
 *
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Starts a trace: writes every allocation and free of the caching allocator to a file, on all devices and from all
 * threads. Blocks that are allocated already are written first. benches/replay replays such files.
 *
 * A file is a sequence of 16-byte events, little-endian: the block's number (32 bits); 0 for an allocation or 1 for a
 * free (16 bits); the number of its stream in order of first use, 0 in a free (16 bits); and the requested number of
 * bytes (64 bits). The trace of device 0 is written to the given path; ".1", ".2" and so on are appended for the other
 * devices. Files without events are removed at the end.
 *
 * Call plinth_trace_stop to end the trace and to learn of failures. Otherwise the trace ends when the process exits: by
 * exit, or by a return from main. Events are written in blocks of 64 KiB, and a process that _exit or a signal ends
 * loses those of the last block.
 *
 * @param path The path of the file. An existing file is overwritten.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if a trace is running already;
 *         PLINTH_ERROR_SYSTEM for a file that cannot be written; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_trace_start(const char *path)
PLINTH_NOEXCEPT;

/**
 * Stops the trace, and writes all buffered events.
 *
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no trace is running; PLINTH_ERROR_SYSTEM if something could not be
 *         written (the message states after how many events the file ends); PLINTH_ERROR_NOT_SUPPORTED for more blocks
 *         or streams than the format can number; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_trace_stop(void)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_MEMORY_HISTORY_H */
