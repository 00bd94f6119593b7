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
 * A green context: a part of a device's multiprocessors. The handle is opaque and checked: calls return
 * PLINTH_ERROR_INVALID_HANDLE for an invalid one.
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
 * Creates a green context: a part of a device's multiprocessors.
 *
 * Work in its streams runs on that part only. The parts of several green contexts may overlap, unless
 * plinth_green_context_split created them together. May be called while a stream captures.
 *
 * @param num_sms The minimum number of multiprocessors, from 1 to the number that the device has. The driver rounds
 *        it up, to a multiple of 8 for compute capability 9.0 and higher. plinth_green_context_num_sms returns the
 *        result.
 * @param device The device index; -1 for the current device.
 * @param context Out: the green context. The caller owns it and destroys it with plinth_green_context_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a number
 *         of multiprocessors that the device does not have; PLINTH_ERROR_NOT_SUPPORTED if the driver is older than
 *         CUDA 12.5 or the device cannot be divided; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_create(int32_t num_sms,
                                            int32_t device,
                                            plinth_green_context_t *context)
PLINTH_NOEXCEPT;

/**
 * Divides a device's multiprocessors into green contexts that do not overlap.
 *
 * For example, prefill and decode of an inference server run beside each other on one device. May be called while a stream
 * captures.
 *
 * @param num_sms The minimum number of multiprocessors of each, rounded up as by plinth_green_context_create.
 * @param count The number of green contexts, at least 1.
 * @param device The device index; -1 for the current device.
 * @param contexts Out: `count` green contexts. The caller owns each and destroys it with plinth_green_context_destroy.
 * @param rest Out: a green context of the multiprocessors that are left; NULL if they are fewer than the driver's smallest
 *        partition. The caller owns it. Pass NULL to leave them unused.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a number of
 *         multiprocessors that the device does not have, and for more green contexts than fit;
 *         PLINTH_ERROR_NOT_SUPPORTED, PLINTH_ERROR_OUT_OF_MEMORY, PLINTH_ERROR_DRIVER as for
 *         plinth_green_context_create; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_split(int32_t num_sms,
                                           size_t count,
                                           int32_t device,
                                           plinth_green_context_t *contexts,
                                           plinth_green_context_t *rest)
PLINTH_NOEXCEPT;

/**
 * Destroys a green context.
 *
 * Work in its streams still runs. The streams stay valid: the library keeps them and reuses them for the next green
 * context of this size on the device, or for the next such split when all green contexts of this one are destroyed.
 *
 * @param context The green context; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while the green context is set in a
 *         thread.
 */
PLINTH_API
plinth_status_t plinth_green_context_destroy(plinth_green_context_t context)
PLINTH_NOEXCEPT;

/**
 * Enters a green context in the calling thread.
 *
 * A stream of the green context becomes the thread's current stream on its device, and waits for the stream that was
 * current there. The device becomes current. Calls nest. Calls that name a stream explicitly are not affected; a
 * NULL stream still means the device's default stream. The driver's current context does not change.
 *
 * If the stream that was current captures, the green context's stream joins the capture.
 *
 * @param context The green context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the
 *         stream that was current captures and the green context's stream belongs to another capture;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_set_context(plinth_green_context_t context)
PLINTH_NOEXCEPT;

/**
 * Undoes the thread's last plinth_green_context_set_context.
 *
 * The stream that was current before waits for the stream that is current now on the green context's device. The
 * previous stream and the previous device become current again; if the stream was destroyed meanwhile, the default
 * stream becomes current.
 *
 * @param context The green context, which must be the one that the thread set last.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         green context; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_pop_context(plinth_green_context_t context)
PLINTH_NOEXCEPT;

/**
 * Gets a stream of a green context. The stream does not wait for the default stream.
 *
 * A green context has 32 streams, which are created when first needed, returned in round-robin order, and never
 * destroyed: the 33rd call returns the first stream again. Every function with a stream parameter accepts them.
 *
 * @param context The green context.
 * @param stream Out: the stream, which CUDA and its libraries accept as well. It belongs to the library.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_stream(plinth_green_context_t context,
                                            plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Gets the number of multiprocessors of a green context.
 *
 * @param context The green context.
 * @param num_sms Out: the number of multiprocessors.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_num_sms(plinth_green_context_t context,
                                             int32_t *num_sms)
PLINTH_NOEXCEPT;

/**
 * Gets the device of a green context.
 *
 * @param context The green context.
 * @param device Out: the device index.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_green_context_device(plinth_green_context_t context,
                                            int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Gets the driver's green context, for direct driver calls. It belongs to the library.
 *
 * @param context The green context.
 * @param native Out: the CUgreenCtx. May be NULL.
 * @param as_context Out: the CUcontext that cuCtxFromGreenCtx returns for it. cuCtxSetCurrent accepts it, in one
 *        thread at a time. May be NULL.
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
