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
 * What plinth_nvtx_domain_t points at, never looked into.
 */
typedef struct plinth_nvtx_domain plinth_nvtx_domain;

/**
 * A domain of NVTX: names and ranges that keep apart from others'. NULL is the default one, of those who name none.
 */
typedef struct plinth_nvtx_domain *plinth_nvtx_domain_t;

/**
 * A mark, or what a range begins with. All zero but `struct_size` and `message` is a plain one.
 */
typedef struct plinth_nvtx_event_t {
  /**
   * sizeof(plinth_nvtx_event_t), so that later versions may add to it.
   */
  size_t struct_size;
  /**
   * The text; copied by the tool, if it wants it.
   */
  const char *message;
  /**
   * The number of a category of the domain, which plinth_nvtx_name_category gives a name; 0 for none.
   */
  uint32_t category;
  /**
   * The colour as 0xAARRGGBB, where has_color says that there is one.
   */
  uint32_t color;
  /**
   * A number to be shown with it, where has_payload says that there is one.
   */
  int64_t payload;
  /**
   * Whether there is a colour.
   */
  bool has_color;
  /**
   * Whether there is a payload.
   */
  bool has_payload;
} plinth_nvtx_event_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Tells profilers of a moment, as torch.cuda.nvtx.mark. Where none listens, this and the calls below do nothing within a
 * few nanoseconds. A tool listens when the process was started under it (it sets NVTX_INJECTION64_PATH); that is looked
 * up once. These calls need no device and initialize nothing. Thread-safe, and allowed while streams capture.
 *
 * @param message The text; a tool that wants it copies it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_nvtx_mark(const char *message)
PLINTH_NOEXCEPT;

/**
 * Begins a range within the calling thread's innermost one, as torch.cuda.nvtx.range_push. Thread-safe.
 *
 * @param message The text; a tool that wants it copies it.
 * @param depth Out, unless NULL: how many ranges there are around it: 0 for the first. Without a tool it is the number of
 *        those that plinth's calls pushed in this thread.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the message.
 */
PLINTH_API
plinth_status_t plinth_nvtx_range_push(const char *message,
                                       int32_t *depth)
PLINTH_NOEXCEPT;

/**
 * Ends the calling thread's innermost range, as torch.cuda.nvtx.range_pop. Thread-safe.
 *
 * @param depth Out, unless NULL: how many ranges there were around it: what its push told.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE where the thread has no range.
 */
PLINTH_API plinth_status_t plinth_nvtx_range_pop(int32_t *depth) PLINTH_NOEXCEPT;

/**
 * Begins a range that any thread may end, as torch.cuda.nvtx.range_start. Thread-safe.
 *
 * @param message The text; a tool that wants it copies it.
 * @param range Out: its number; 0 where no tool listens, which plinth_nvtx_range_end takes as well.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_nvtx_range_start(const char *message, uint64_t *range) PLINTH_NOEXCEPT;

/**
 * Ends it, in whichever thread. Thread-safe.
 *
 * @param range The range's number.
 * @return PLINTH_OK: what a number means only the tool knows.
 */
PLINTH_API plinth_status_t plinth_nvtx_range_end(uint64_t range) PLINTH_NOEXCEPT;

/**
 * Lets a stream begin a range when its work so far is done: the device's side of a range, by a host function in the stream.
 * Captured, it becomes a part of the graph and is told at each replay; its text is then kept for ever. Thread-safe.
 *
 * @param message The text; copied.
 * @param stream The stream; NULL for the current device's default stream.
 * @param range Out: its number; 0 where no tool listens: then nothing was put into the stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_nvtx_device_range_start(const char *message,
                                               plinth_stream_t stream,
                                               uint64_t *range)
PLINTH_NOEXCEPT;

/**
 * Lets a stream end such a range, the one that began it or one that waits for that. Thread-safe.
 *
 * @param range The range's number; 0 does nothing.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a range that is not, or a stream that is not; PLINTH_ERROR_DRIVER;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_nvtx_device_range_end(uint64_t range,
                                             plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Lets a profiler that was started to wait for this (nsys --capture-range=cudaProfilerApi, ncu --profile-from-start off)
 * record from now on, as torch.cuda.profiler.start. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER, as where the profiler does not allow it; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_profiler_start(void)
PLINTH_NOEXCEPT;

/**
 * Lets it end recording, as torch.cuda.profiler.stop. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_profiler_stop(void) PLINTH_NOEXCEPT;

/**
 * Tells whether a tool listens. Thread-safe.
 *
 * @param active Out: whether one does.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_nvtx_is_active(bool *active) PLINTH_NOEXCEPT;

/**
 * Lets the library tell profilers of its own calls, each as a range with the function's name, or keep quiet again. Without a
 * tool it does nothing. Thread-safe; calls under way are told as they began.
 *
 * @param on Whether to.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_nvtx_annotate_calls(bool on)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread a name in profilers. Thread-safe.
 *
 * @param name The name.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_nvtx_name_thread(const char *name) PLINTH_NOEXCEPT;

/**
 * Makes a domain. Thread-safe.
 *
 * @param name Its name.
 * @param made Out: the domain; NULL where no tool listens, which all calls take. The caller gives it up with
 *        plinth_nvtx_domain_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_create(const char *name,
                                          plinth_nvtx_domain_t *made)
PLINTH_NOEXCEPT;

/**
 * Gives a domain up. Its ranges must have ended. Thread-safe.
 *
 * @param domain The domain; NULL does nothing. It is the tool's, which does not survive one that is not.
 * @return PLINTH_OK.
 */
PLINTH_API plinth_status_t plinth_nvtx_domain_destroy(plinth_nvtx_domain_t domain) PLINTH_NOEXCEPT;

/**
 * Gives a category of a domain a name. Thread-safe.
 *
 * @param domain The domain; NULL for the default one.
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
 * plinth_nvtx_mark with all that a mark can have. Thread-safe.
 *
 * @param domain The domain; NULL for the default one.
 * @param event The mark.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong size of the struct.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_mark(plinth_nvtx_domain_t domain,
                                        const struct plinth_nvtx_event_t *event)
PLINTH_NOEXCEPT;

/**
 * plinth_nvtx_range_push with all that a range can have. Thread-safe.
 *
 * @param domain The domain; NULL for the default one.
 * @param event What the range begins with.
 * @param depth Out, unless NULL: how many ranges there are around it: by the tool's count those of the domain, without a
 *        tool those of all domains.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong size of the struct.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_range_push(plinth_nvtx_domain_t domain,
                                              const struct plinth_nvtx_event_t *event,
                                              int32_t *depth)
PLINTH_NOEXCEPT;

/**
 * Ends the calling thread's innermost range of a domain. Thread-safe.
 *
 * @param domain The domain; NULL for the default one.
 * @param depth Out, unless NULL: how many ranges there were around it.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE where the thread has no range.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_range_pop(plinth_nvtx_domain_t domain,
                                             int32_t *depth)
PLINTH_NOEXCEPT;

/**
 * plinth_nvtx_range_start with all that a range can have. Thread-safe.
 *
 * @param domain The domain; NULL for the default one.
 * @param event What the range begins with.
 * @param range Out: its number; 0 where no tool listens.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a wrong size of the struct.
 */
PLINTH_API
plinth_status_t plinth_nvtx_domain_range_start(plinth_nvtx_domain_t domain,
                                               const struct plinth_nvtx_event_t *event,
                                               uint64_t *range)
PLINTH_NOEXCEPT;

/**
 * Ends it, in whichever thread. Thread-safe.
 *
 * @param domain The domain that it was begun in.
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
