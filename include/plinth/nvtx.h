/*!
 * @defgroup plinth_nvtx Ranges and marks for profilers
 *
 * Marks and ranges that profilers such as Nsight Systems show: torch.cuda.nvtx and torch.cuda.profiler. Without a
 * profiler the functions do almost nothing. Marks and ranges are allowed during captures; those of the CPU need no
 * device.
 *
 * Texts are needed during the call only. The caller owns a domain and destroys it. Ranges that are pushed belong to
 * the calling thread, which pops them. Ranges that are started may be ended by any thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_NVTX_H
#define PLINTH_NVTX_H

#include "base.h"

/*!
 * @file plinth/nvtx.h
 * @brief Ranges and marks for profilers.
 */

/*!
 * @addtogroup plinth_nvtx
 * @{
 */

/**
 * The opaque type behind plinth_nvtx_domain_t; never dereferenced by the library.
 */
typedef struct plinth_nvtx_domain plinth_nvtx_domain;

/**
 * An NVTX domain: a separate namespace for ranges, marks and categories. NULL is the default domain.
 */
typedef struct plinth_nvtx_domain *plinth_nvtx_domain_t;

/**
 * The attributes of a mark, or of the start of a range. `struct_size` and `message` are required; everything else may
 * be 0.
 */
typedef struct plinth_nvtx_event_t {
  /**
   * Set to sizeof(plinth_nvtx_event_t); newer versions may add fields at the end.
   */
  size_t struct_size;
  /**
   * The text. The tool copies it if it needs it.
   */
  const char *message;
  /**
   * The number of a category of the domain, see plinth_nvtx_name_category; 0 for none.
   */
  uint32_t category;
  /**
   * The color as 0xAARRGGBB, if has_color is set.
   */
  uint32_t color;
  /**
   * A number to be displayed with the event, if has_payload is set.
   */
  int64_t payload;
  /**
   * Whether `color` is valid.
   */
  bool has_color;
  /**
   * Whether `payload` is valid.
   */
  bool has_payload;
} plinth_nvtx_event_t;

/*! An initializer for a plinth_nvtx_event_t. */
#define PLINTH_NVTX_EVENT_INIT {sizeof(plinth_nvtx_event_t), NULL, 0, 0, 0, false, false}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Emits an instantaneous marker to profilers, as torch.cuda.nvtx.mark. Without a tool attached, this and the following
 * NVTX functions return within a few nanoseconds. A tool is attached if the process was started under it (it sets
 * NVTX_INJECTION64_PATH); this is checked once. The functions need no device and initialize nothing. They may be
 * called while streams capture.
 *
 * @param message The text. The tool copies it if it needs it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_nvtx_mark(const char *message)
PLINTH_NOEXCEPT;

/**
 * Begins a range nested in the calling thread's innermost range, as torch.cuda.nvtx.range_push.
 *
 * @param message The text. The tool copies it if it needs it.
 * @param depth Out, unless NULL: the number of enclosing ranges, 0 for the outermost range. Without a tool, ranges
 *        that plinth's functions pushed in this thread are counted.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER if the message is NULL.
 */
PLINTH_API
plinth_status_t plinth_nvtx_range_push(const char *message,
                                       int32_t *depth)
PLINTH_NOEXCEPT;

/**
 * Ends the calling thread's innermost range, as torch.cuda.nvtx.range_pop.
 *
 * @param depth Out, unless NULL: the number of ranges that enclosed it, the same value that the push returned.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if the thread has no open range.
 */
PLINTH_API
plinth_status_t plinth_nvtx_range_pop(int32_t *depth)
PLINTH_NOEXCEPT;

/**
 * Begins a range that any thread may end, as torch.cuda.nvtx.range_start.
 *
 * @param message The text. The tool copies it if it needs it.
 * @param range Out: the range's number; 0 if no tool is attached, which plinth_nvtx_range_end accepts.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_nvtx_range_start(const char *message, uint64_t *range) PLINTH_NOEXCEPT;

/**
 * Ends a range of plinth_nvtx_range_start, in any thread.
 *
 * @param range The range's number.
 * @return PLINTH_OK. The number is not validated: only the tool knows which ranges exist.
 */
PLINTH_API plinth_status_t plinth_nvtx_range_end(uint64_t range) PLINTH_NOEXCEPT;

/**
 * Begins a range when a stream has completed its earlier work, by a host function in the stream. This marks the range
 * on the device's timeline. In a capture it becomes a node of the graph and is emitted at each replay; the message is
 * then kept for the lifetime of the process.
 *
 * @param message The text; copied.
 * @param stream The stream; NULL for the current device's default stream.
 * @param range Out: the range's number; 0 if no tool is attached, in which case nothing is enqueued.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_nvtx_device_range_start(const char *message,
                                               plinth_stream_t stream,
                                               uint64_t *range)
PLINTH_NOEXCEPT;

/**
 * Ends a range of plinth_nvtx_device_range_start when a stream has completed its earlier work. Use the stream that
 * began the range, or one that waits for it.
 *
 * @param range The range's number; 0 does nothing.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for an unknown range or an invalid stream; PLINTH_ERROR_DRIVER; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_nvtx_device_range_end(uint64_t range,
                                             plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Starts recording in a profiler that was launched to wait for this call (nsys --capture-range=cudaProfilerApi, ncu
 * --profile-from-start off), as torch.cuda.profiler.start.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER, for example if the profiler does not allow it; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_profiler_start(void)
PLINTH_NOEXCEPT;

/**
 * Stops recording in the profiler, as torch.cuda.profiler.stop.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_profiler_stop(void) PLINTH_NOEXCEPT;

/**
 * Reports whether an NVTX tool is attached.
 *
 * @param active Out: whether a tool is attached.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_nvtx_is_active(bool *active) PLINTH_NOEXCEPT;

/**
 * Enables or disables NVTX ranges around the library's own calls; each range has the name of the function. Does
 * nothing without a tool. Calls that are in progress keep the setting with which they began.
 *
 * @param on Whether to emit the ranges.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_nvtx_annotate_calls(bool on)
PLINTH_NOEXCEPT;

/**
 * Sets the name of the calling thread in profilers.
 *
 * @param name The name.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_nvtx_name_thread(const char *name) PLINTH_NOEXCEPT;

/**
 * Creates an NVTX domain.
 *
 * @param name Its name.
 * @param made Out: the domain; NULL if no tool is attached, which all functions accept. The caller owns it and
 *        destroys it with plinth_nvtx_domain_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_create(const char *name,
                                          plinth_nvtx_domain_t *made)
PLINTH_NOEXCEPT;

/**
 * Destroys an NVTX domain. All of its ranges must have ended.
 *
 * @param domain The domain; NULL does nothing. The pointer is not validated: the tool may crash if it is not a domain.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_destroy(plinth_nvtx_domain_t domain)
PLINTH_NOEXCEPT;

/**
 * Sets the name of a category of a domain.
 *
 * @param domain The domain; NULL for the default domain.
 * @param category The category's number, above 0.
 * @param name Its name.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for category 0.
 */
PLINTH_API
plinth_status_t plinth_nvtx_name_category(plinth_nvtx_domain_t domain,
                                          uint32_t category,
                                          const char *name)
PLINTH_NOEXCEPT;

/**
 * Emits a marker with all attributes; see plinth_nvtx_mark.
 *
 * @param domain The domain; NULL for the default domain.
 * @param event The attributes of the mark.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong struct_size.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_mark(plinth_nvtx_domain_t domain,
                                        const struct plinth_nvtx_event_t *event)
PLINTH_NOEXCEPT;

/**
 * Begins a nested range with all attributes; see plinth_nvtx_range_push.
 *
 * @param domain The domain; NULL for the default domain.
 * @param event The attributes of the range.
 * @param depth Out, unless NULL: the number of enclosing ranges: those of the domain if a tool counts them, those of
 *        all domains without a tool.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong struct_size.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_range_push(plinth_nvtx_domain_t domain,
                                              const struct plinth_nvtx_event_t *event,
                                              int32_t *depth)
PLINTH_NOEXCEPT;

/**
 * Ends the calling thread's innermost range of a domain.
 *
 * @param domain The domain; NULL for the default domain.
 * @param depth Out, unless NULL: the number of ranges that enclosed it.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if the thread has no open range.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_range_pop(plinth_nvtx_domain_t domain,
                                             int32_t *depth)
PLINTH_NOEXCEPT;

/**
 * Begins a range that any thread may end, with all attributes; see plinth_nvtx_range_start.
 *
 * @param domain The domain; NULL for the default domain.
 * @param event The attributes of the range.
 * @param range Out: the range's number; 0 if no tool is attached.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong struct_size.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_range_start(plinth_nvtx_domain_t domain,
                                               const struct plinth_nvtx_event_t *event,
                                               uint64_t *range)
PLINTH_NOEXCEPT;

/**
 * Ends a range of plinth_nvtx_domain_range_start, in any thread.
 *
 * @param domain The domain that the range was begun in.
 * @param range The range's number.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_range_end(plinth_nvtx_domain_t domain,
                                             uint64_t range)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_NVTX_H */
