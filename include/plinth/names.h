/*!
 * @defgroup plinth_names Names of streams and memory
 *
 * Names that the program gives to its streams and blocks of memory. Messages, reports of the sanitizer, snapshots and
 * profilers show them beside handles and addresses. Kernels have names of their own. While there was never a name,
 * nothing costs more.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_NAMES_H
#define PLINTH_NAMES_H

#include "base.h"

/*!
 * @file plinth/names.h
 * @brief Names of streams and memory.
 */

/*!
 * @addtogroup plinth_names
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Names a stream, until plinth_stream_destroy or plinth_stream_unregister ends it.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param name The name, which is copied; NULL or "" removes the name.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_stream_set_name(plinth_stream_t stream, const char *name) PLINTH_NOEXCEPT;

/**
 * Gets the name of a stream.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param name Out: the name; "" if the stream has none. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_get_name(plinth_stream_t stream,
                                       char **name)
PLINTH_NOEXCEPT;

/**
 * Names a block of memory, until it is freed with the function that belongs to its allocation. Memory that is
 * reallocated at the same address has no name, also if another library freed and allocated it. A profiler learns of such a
 * free at the next call about the memory.
 *
 * @param pointer Any address in a live block: of the caching allocator or of another backend, of plinth_host_alloc, or
 *        of memory that the driver knows, such as that of plinth_device_malloc.
 * @param name The name, which is copied; NULL or "" removes the name.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for other addresses, and for memory of another process; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_set_name(const void *pointer,
                                       const char *name)
PLINTH_NOEXCEPT;

/**
 * Gets the name of a block of memory.
 *
 * @param pointer Any address in a live block, as for plinth_memory_set_name.
 * @param name Out: the name; "" if the block has none. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_get_name(const void *pointer,
                                       char **name)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_NAMES_H */
