/*!
 * @defgroup plinth_green_context Green contexts
 *
 * A green context is a part of a device's multiprocessors: torch.cuda.GreenContext. Work in its streams runs on that
 * part only.
 *
 * The caller owns a green context and destroys it. Its streams and the driver's handle belong to the library, and the
 * streams stay valid after the green context is destroyed.
 *
 * plinth_green_context_set_context and plinth_green_context_pop_context change the calling thread's current stream.
 * They nest, and a thread undoes its own calls only.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_GREEN_CONTEXT_H
#define PLINTH_GREEN_CONTEXT_H

#include "base.h"

/*!
 * @file plinth/green_context.h
 * @brief Green contexts.
 */

/*!
 * @addtogroup plinth_green_context
 * @{
 */

/**
 * A green context: a part of a device's multiprocessors. Opaque, and checked.
 */
typedef struct plinth_green_context plinth_green_context;

/**
 * The handle of a green context.
 */
typedef struct plinth_green_context *plinth_green_context_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a green context: a part of a device's multiprocessors. What comes into its streams runs on the part alone.
 * Parts of several green contexts may overlap. Thread-safe; may be called while a stream captures.
 *
 * @param num_sms How many multiprocessors it is to have at least, from 1 to as many as the device has. The driver
 *        rounds up, to a multiple of 8 from compute capability 9.0 on; plinth_green_context_num_sms tells what came of
 *        it.
 * @param device The device's number; -1 for the current one.
 * @param context Out: the green context. The caller owns it and destroys it with plinth_green_context_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a number
 *         of multiprocessors that the device does not have; PLINTH_ERROR_NOT_SUPPORTED where the driver is older than
 *         CUDA 12.5 or the device cannot be divided; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_create(int32_t num_sms,
                                            int32_t device,
                                            plinth_green_context_t *context)
PLINTH_NOEXCEPT;

/**
 * Destroys a green context. What is in its streams still runs, and the streams stay streams: the library keeps them,
 * and gives them to who next makes a green context of this size on the device. Thread-safe.
 *
 * @param context The green context; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while a thread has it set.
 */
PLINTH_API
plinth_status_t plinth_green_context_destroy(plinth_green_context_t context)
PLINTH_NOEXCEPT;

/**
 * Lets the calling thread work on the green context: a stream of it becomes the thread's current stream on its device,
 * after that waits for the stream that was current there, and the device becomes current. Calls nest. What names a
 * stream of its own, and NULL names the device's default stream, is not moved; nor is the driver's current context
 * changed.
 *
 * In a capture of the stream that was current, the green context's stream becomes part of the capture.
 *
 * @param context The green context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS where the
 *         stream that was current captures, and the green context's does for somebody else; PLINTH_ERROR_DRIVER; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_set_context(plinth_green_context_t context)
PLINTH_NOEXCEPT;

/**
 * Undoes the thread's last plinth_green_context_set_context: the stream that was current waits for the one that is
 * current now on the green context's device, and is current again, and so is the device that was.
 *
 * @param context The green context, which must be the one that the thread has set last.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         green context; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_pop_context(plinth_green_context_t context)
PLINTH_NOEXCEPT;

/**
 * Hands out a stream of the green context, which does not wait for the default stream. There are 32, made as they are
 * first needed, handed out in turn, and never destroyed: the 33rd call gives the first stream again. Every call that
 * takes a stream takes them. Thread-safe.
 *
 * @param context The green context.
 * @param stream Out: the stream, which CUDA and its libraries take as it is. It belongs to the library.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_stream(plinth_green_context_t context,
                                            plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Tells how many multiprocessors a green context has. Thread-safe.
 *
 * @param context The green context.
 * @param num_sms Out: how many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_num_sms(plinth_green_context_t context,
                                             int32_t *num_sms)
PLINTH_NOEXCEPT;

/**
 * Tells the device of a green context. Thread-safe.
 *
 * @param context The green context.
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_device(plinth_green_context_t context,
                                            int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Gives the driver's own green context, for programs that call the driver themselves. It belongs to the library.
 * Thread-safe.
 *
 * @param context The green context.
 * @param native Out: the CUgreenCtx; NULL if nobody wants it.
 * @param as_context Out: the CUcontext that cuCtxFromGreenCtx makes of it, which cuCtxSetCurrent takes, in one thread
 *        at a time; NULL if nobody wants it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_native(plinth_green_context_t context,
                                            void **native,
                                            void **as_context)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_GREEN_CONTEXT_H */
