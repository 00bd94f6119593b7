/*!
 * @defgroup plinth_log Log
 *
 * Messages for which no call has a status: warnings, where torch prints one; failures that no call returns, such as a
 * resource that the driver did not release; findings of the sanitizer; what the library decided. A callback of the
 * program receives them. The library itself prints nothing, and without a callback a message is not even formatted.
 *
 * ```c
 * static void print(int32_t level, const char *message, void *context) {
 *   fprintf(stderr, "%s: %s\n", level >= PLINTH_LOG_WARNING ? "warning" : "info", message);
 * }
 * plinth_set_log_callback(PLINTH_LOG_WARNING, print, NULL);
 * ```
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_LOG_H
#define PLINTH_LOG_H

#include "base.h"

/*!
 * @file plinth/log.h
 * @brief Log.
 */

/*!
 * @addtogroup plinth_log
 * @{
 */

/**
 * Details for finding an error in a program: each call that fails, with its message.
 */
#define PLINTH_LOG_DEBUG 0

/**
 * What the library decided, such as the use of the host device because there is no GPU.
 */
#define PLINTH_LOG_INFO 1

/**
 * A probable mistake of the program, or something that does not work as it was asked for, such as an empty capture, a
 * call that waits in the mode PLINTH_SYNC_DEBUG_WARN, or a setting without effect.
 */
#define PLINTH_LOG_WARNING 2

/**
 * A failure that no call returns, a finding of the sanitizer, or a defect of the library.
 */
#define PLINTH_LOG_ERROR 3

/**
 * Receives a message: its level, one of PLINTH_LOG_...; its text, which begins with the name of the call that it is
 * about, if there is one; and the context. The message is valid only during the call. It must not throw.
 */
typedef void (*plinth_log_callback_t)(int32_t level, const char *message, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets the callback for the messages of all threads. It replaces the previous one. Needs no device.
 *
 * A thread calls it at the end of the plinth call in which the message was logged, without any lock of the library
 * held. Messages of the library's own threads wait for the end of the next plinth call of any thread. So the callback
 * runs only in threads that call plinth, possibly in several of them at once. It may call the library, also this
 * function; what those calls log is dropped. Nothing is logged any more once the process exits, and in a child that
 * was forked after the first use of a device.
 *
 * When this returns, other threads may still be in the previous callback, or about to call it, so its context must
 * stay valid.
 *
 * @param level The lowest level to receive: PLINTH_LOG_DEBUG, _INFO, _WARNING or _ERROR.
 * @param callback Called with each message of that level or a higher one; NULL for none.
 * @param context Passed to the callback, which may be called by several threads at once.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another level.
 */
PLINTH_API
plinth_status_t plinth_set_log_callback(int32_t level,
                                        plinth_log_callback_t callback,
                                        void *context)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_LOG_H */
