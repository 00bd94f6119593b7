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
 * No history is kept.
 */
#define PLINTH_MEMORY_HISTORY_OFF 0

/**
 * For blocks that are live, their callers are kept.
 */
#define PLINTH_MEMORY_HISTORY_STATE 1

/**
 * That, and an entry for everything that happens.
 */
#define PLINTH_MEMORY_HISTORY_ALL 2

/**
 * The caller is found out for nothing.
 */
#define PLINTH_MEMORY_CONTEXT_NONE 0

/**
 * The caller is found out for blocks that are live.
 */
#define PLINTH_MEMORY_CONTEXT_STATE 1

/**
 * The caller is found out for blocks that are live and for entries of what brings memory into use.
 */
#define PLINTH_MEMORY_CONTEXT_ALLOC 2

/**
 * The caller is found out for everything.
 */
#define PLINTH_MEMORY_CONTEXT_ALL 3

/**
 * A block was given out.
 */
#define PLINTH_MEMORY_ACTION_ALLOC 0

/**
 * The program freed a block.
 */
#define PLINTH_MEMORY_ACTION_FREE_REQUESTED 1

/**
 * A freed block can be given out again: at once, or when the streams that were recorded on it have passed.
 */
#define PLINTH_MEMORY_ACTION_FREE_COMPLETED 2

/**
 * The driver gave a segment (expandable_segments:False).
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_ALLOC 3

/**
 * A segment went back to the driver.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_FREE 4

/**
 * Physical memory was mapped at addresses that the allocator has.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_MAP 5

/**
 * Physical memory went from addresses: back to the driver, or to where it is needed.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_UNMAP 6

/**
 * A snapshot was taken.
 */
#define PLINTH_MEMORY_ACTION_SNAPSHOT 7

/**
 * A request failed for want of memory; the address is how many bytes the device had free.
 */
#define PLINTH_MEMORY_ACTION_OOM 8

/**
 * How a history is kept. PLINTH_MEMORY_HISTORY_OPTIONS_INIT is torch's default: everything, without end.
 *
 * The struct grows at its end in newer versions, and what a program does not know of has its default then: set struct_size
 * to sizeof(plinth_memory_history_options_t).
 */
typedef struct plinth_memory_history_options_t {
  /**
   * The size that the caller knows.
   */
  size_t struct_size;
  /**
   * What is kept: one of PLINTH_MEMORY_HISTORY_....
   */
  int32_t enabled;
  /**
   * For what the caller is found out: one of PLINTH_MEMORY_CONTEXT_....
   */
  int32_t context;
  /**
   * How many entries of a device are kept: the newest. 0 is no limit.
   */
  uint64_t max_entries;
  /**
   * 1 forgets what was kept before, else 0.
   */
  int32_t clear_history;
  /**
   * 1 keeps annotations, else 0.
   */
  int32_t record_annotations;
  /**
   * The actions that are not kept: the sum of 1 << PLINTH_MEMORY_ACTION_... for each.
   */
  uint32_t skip_actions;
  /**
   * 0.
   */
  uint32_t reserved;
} plinth_memory_history_options_t;

/*! An initializer for a plinth_memory_history_options_t: everything is kept, without end. */
#define PLINTH_MEMORY_HISTORY_OPTIONS_INIT {sizeof(plinth_memory_history_options_t), 2, 3, 0, 0, 0, 0, 0}

/**
 * Something that happened. What it points at is valid during the call that shows it.
 */
typedef struct plinth_memory_history_entry_t {
  /**
   * What happened: one of PLINTH_MEMORY_ACTION_....
   */
  int32_t action;
  /**
   * The device's number.
   */
  int32_t device;
  /**
   * Where: the block's address or the segment's. For an OOM how many bytes the device had free.
   */
  uint64_t address;
  /**
   * Its bytes: those that were asked for, of a block; those that there are, of a segment.
   */
  uint64_t size;
  /**
   * The stream that the memory is for.
   */
  plinth_stream_t stream;
  /**
   * The pool that the memory is of.
   */
  plinth_pool_id_t pool;
  /**
   * When: microseconds since 1970.
   */
  uint64_t time_us;
  /**
   * The thread, by the system's number (gettid).
   */
  uint64_t thread;
  /**
   * The thread's tag then, from plinth_set_memory_metadata; an empty text if there was none.
   */
  const char *metadata;
  /**
   * Who called, for plinth_memory_stack_each; 0 where that was not found out.
   */
  uint32_t stack;
  /**
   * 0.
   */
  uint32_t reserved;
} plinth_memory_history_entry_t;

/**
 * Is shown an entry of the history, and the context.
 */
typedef void (*plinth_memory_history_callback_t)(const struct plinth_memory_history_entry_t *entry,
                                                 void *context);

/**
 * Is shown a function of a call stack: its name, its file, its line from 1 or 0 if that is not known, and the context. The
 * texts are valid during the call.
 */
typedef void (*plinth_memory_frame_callback_t)(const char *name,
                                               const char *file,
                                               uint32_t line,
                                               void *context);

/**
 * Is shown an annotation: the thread's device then, the microseconds since 1970, the name, which is valid during the call,
 * whether it began, and the context.
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
 * Begins to keep a history of the allocator on all devices, as torch.cuda.memory._record_memory_history does, keeps it in
 * another way from now on, or ends it, which forgets it. Thread-safe.
 *
 * An entry costs some 20 ns, and a call stack some 5 ns for each function in it, the first time that a thread comes
 * through a function excepted; entries are kept for each stream, so as many as max_entries may be kept of each. With
 * PLINTH_MEMORY_HISTORY_OFF requests cost what they cost without a history.
 *
 * Stacks are those of C and C++: what functions they tell of is found out when they are read, from the debug information
 * and the symbols of the program's files.
 *
 * @param options The options, with struct_size set.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set and for numbers
 *         that mean nothing; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_record_memory_history(const struct plinth_memory_history_options_t *options)
PLINTH_NOEXCEPT;

/**
 * Tells whether a history is kept: callers, or entries. Thread-safe; needs no device.
 *
 * @param enabled Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_memory_history_is_enabled(bool *enabled) PLINTH_NOEXCEPT;

/**
 * Shows the entries of a device's history, the oldest first. What happens meanwhile is not among them. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param callback What is called for each, in this thread, with no lock of the library's held; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_history_each(int32_t device,
                                           plinth_memory_history_callback_t callback,
                                           void *context)
PLINTH_NOEXCEPT;

/**
 * Shows the functions of a call stack, the innermost first: who called the library. To find out what a function is may take
 * seconds the first time that a large library is looked into. Thread-safe; needs no device.
 *
 * Names of C++ are told as they are written if the process has a C++ library. A function of which no file tells anything is
 * "??". A library must still be loaded.
 *
 * @param stack The stack, from an entry. For 0, and for what is no stack, the callback is not called.
 * @param callback What is called for each, in this thread; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback.
 */
PLINTH_API
plinth_status_t plinth_memory_stack_each(uint32_t stack,
                                         plinth_memory_frame_callback_t callback,
                                         void *context)
PLINTH_NOEXCEPT;

/**
 * Returns torch's name of an action, "free_requested"; "unknown" for a number that is none. Thread-safe; needs no device.
 *
 * @param action The action, one of PLINTH_MEMORY_ACTION_....
 * @return A static text, never NULL.
 */
PLINTH_API
const char *plinth_memory_action_name(int32_t action)
PLINTH_NOEXCEPT;

/**
 * Sets the calling thread's tag, which every entry has that the thread makes from now on. Each text is kept once, and for as
 * long as the process lives. Thread-safe; needs no device.
 *
 * @param text The tag; an empty text for none.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_set_memory_metadata(const char *text)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread's tag. Thread-safe; needs no device.
 *
 * @param text Out: the tag, an empty text if there is none. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_get_memory_metadata(char **text)
PLINTH_NOEXCEPT;

/**
 * Notes in the history that something of the program's begins, a step or a layer, if the history has record_annotations.
 * Thread-safe.
 *
 * @param name What begins.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_memory_annotation_begin(const char *name)
PLINTH_NOEXCEPT;

/**
 * Notes in the history that something of the program's ends. Thread-safe.
 *
 * @param name What ends.
 * @return As plinth_memory_annotation_begin.
 */
PLINTH_API plinth_status_t plinth_memory_annotation_end(const char *name) PLINTH_NOEXCEPT;

/**
 * Shows the annotations, the oldest first: the newest max_entries. Thread-safe.
 *
 * @param callback What is called for each, in this thread, with no lock of the library's held; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback.
 */
PLINTH_API
plinth_status_t plinth_memory_annotations_each(plinth_memory_annotation_callback_t callback,
                                               void *context)
PLINTH_NOEXCEPT;

/**
 * Attaches a tracker: a callback that is shown everything of which a history would have an entry, on all devices, whether a
 * history is kept or not and whatever it skips. Entries have a stack where a history is kept that has one. Thread-safe.
 *
 * Trackers are called in the order in which things happen, one at a time, by the thread whose call made something happen and
 * before that call returns, or by another thread that is at it. No lock of the allocator's is held: a tracker may
 * call the library, and what it makes happen itself is shown to none. It must not wait for a thread that
 * allocates.
 *
 * @param tracker The tracker, which stays callable, with the context, until it is detached and no call is under way that may
 *        have met it.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_attach_allocator_trace_tracker(plinth_memory_history_callback_t tracker,
                                                      void *context)
PLINTH_NOEXCEPT;

/**
 * Detaches what plinth_attach_allocator_trace_tracker attached, the last one of this tracker and context. Thread-safe.
 *
 * @param tracker The tracker.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none; the errors of initialization.
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
 * Begins to write every allocation and free of the caching allocator to a file, on all devices and from all threads. What
 * is live already is written first. benches/replay replays such files. Thread-safe.
 *
 * A file is a row of events of 16 bytes, little-endian: the block's number (32 bits), 0 for an allocation or 1 for a free
 * (16 bits), the number of its stream in order of first use, 0 in a free (16 bits), and the bytes that were asked for (64
 * bits). Device 0's file has the path that was given; for the other devices ".1", ".2" and so on follow it, and files
 * without an event are removed at the end.
 *
 * @param path Where to write. What is there is overwritten.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE while there is a trace already;
 *         PLINTH_ERROR_SYSTEM for a file that cannot be written; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_trace_start(const char *path)
PLINTH_NOEXCEPT;

/**
 * Ends the trace, and writes what is not written yet. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE without a trace; PLINTH_ERROR_SYSTEM if something could not be written: the
 *         message tells after how many events the file ends; PLINTH_ERROR_NOT_SUPPORTED for more blocks or streams than
 *         the format can number; the errors of initialization.
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
