/*!
 * @defgroup plinth_nccl torch.cuda.nccl
 *
 * The functions of torch.cuda.nccl. They reduce and copy between devices of one process without a communicator, and
 * make the id by which the ranks of a communicator meet.
 *
 * The tensors are the caller's, and must stay valid until the work is done. A communicator that plinth_nccl_init_rank
 * returns is the caller's, as those of communicator.h are.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_NCCL_H
#define PLINTH_NCCL_H

#include "base.h"
#include "tensor.h"
#include "communicator.h"

/*!
 * @file plinth/nccl.h
 * @brief torch.cuda.nccl.
 */

/*!
 * @addtogroup plinth_nccl
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of NCCL, and loads NCCL if necessary. It is searched in the process, then in the system's
 * library path (libnccl.so.2), then in folders of Python packages; PLINTH_NCCL_LIBRARY names another file. Needs no
 * device.
 *
 * @param major Out: the 2 of 2.28.3. Each of the three outputs may be NULL.
 * @param minor Out: the 28 of 2.28.3.
 * @param patch Out: the 3 of 2.28.3.
 * @return PLINTH_OK; PLINTH_ERROR_NCCL_UNAVAILABLE if NCCL was not found or is too old, with a message that lists
 *         where it was searched.
 */
PLINTH_API
plinth_status_t plinth_nccl_version(int32_t *major,
                                    int32_t *minor,
                                    int32_t *patch)
PLINTH_NOEXCEPT;

/**
 * Writes NCCL's own report of the running job: its processes and communicators, ranks and processes that do not
 * answer, and how many collectives of each kind the ranks have launched, where these numbers differ; sends, receives,
 * exchanges and graphs are not counted. It helps to explain why ranks wait for each other. The library's log has the
 * same report before it aborts a communicator whose work exceeds its timeout.
 *
 * NCCL 2.24 and newer answer at a socket of this machine, if the process or another one of the job on the machine uses
 * a communicator of NCCL: at localhost:28028, or at the address in NCCL's variable NCCL_RAS_ADDR. Jobs of one user
 * that run on one machine at the same time need different addresses. NCCL_RAS_ENABLE=0 switches the reports off. The
 * text is for people; its form depends on the version. Needs no device.
 *
 * @param timeout_milliseconds How long to wait for the report; 0 for 15 seconds. NCCL waits for processes that do not
 *        answer until 6 seconds before this, but for one second at least. The time to resolve a name in NCCL_RAS_ADDR
 *        does not count.
 * @param text Out: the report. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_NCCL_UNAVAILABLE; PLINTH_ERROR_NOT_SUPPORTED if NCCL is
 *         older than 2.24; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_SYSTEM if nobody listens at the address, or the
 *         connection fails; PLINTH_ERROR_NCCL if it is not NCCL that answers; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_nccl_report(uint64_t timeout_milliseconds,
                                   char **text)
PLINTH_NOEXCEPT;

/**
 * Reports whether the plinth_nccl_ functions support a list of tensors: whether each is contiguous and on its own
 * device. Without tensors it reports whether NCCL is available; the plinth_nccl_ functions work without it.
 *
 * @param tensors The tensors; NULL with a count of 0.
 * @param count The number of tensors.
 * @param available Out: whether the tensors are supported. Tensors that are not on CUDA devices give false, not an
 *        error.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_nccl_is_available(const DLTensor *tensors,
                                         size_t count,
                                         bool *available)
PLINTH_NOEXCEPT;

/**
 * Creates the unique id of a communicator. One process creates it and sends its bytes to the others by any channel,
 * and every rank passes it to plinth_communicator_init_rank or plinth_nccl_init_rank. An id is for one communicator.
 * The process that created it must live until all ranks have joined. With NCCL it is an ncclUniqueId, which works
 * across machines; without NCCL it is the library's own, which works on one machine.
 *
 * @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_NCCL; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_nccl_unique_id(uint8_t *id)
PLINTH_NOEXCEPT;

/**
 * Creates a communicator on the current device with default options; see plinth_communicator_init_rank.
 *
 * @param ranks The number of ranks.
 * @param id The PLINTH_UNIQUE_ID_SIZE bytes of plinth_nccl_unique_id.
 * @param rank The number of this rank, from 0.
 * @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
 * @return The statuses of plinth_communicator_init_rank.
 */
PLINTH_API
plinth_status_t plinth_nccl_init_rank(int32_t ranks,
                                      const uint8_t *id,
                                      int32_t rank,
                                      plinth_communicator_t *communicator)
PLINTH_NOEXCEPT;

/**
 * Reduces tensors on several devices of this process; every device gets the result. The work is enqueued into one
 * stream per device, in order with the work that these streams hold, and the call does not wait for it; it may be
 * captured. The tensors' memory must stay valid until the work is complete.
 *
 * @param inputs The input tensors: contiguous, of the same type and size, each on its own device.
 * @param outputs The output tensors, on the same devices; NULL to write the results to the inputs.
 * @param count The number of inputs, and of outputs.
 * @param op One of the PLINTH_REDUCE_ constants.
 * @param streams One stream per device; NULL for the current streams of all devices.
 * @param communicators One communicator per device; NULL for communicators that the library creates for each list of
 *        devices and caches.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for tensors or numbers that do not meet
 *         these conditions; PLINTH_ERROR_DEVICE_MISMATCH if an input and its output, stream or communicator are on
 *         different devices, and for tensors on the CPU; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_ABORTED; PLINTH_ERROR_NCCL;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_nccl_all_reduce(const DLTensor *inputs,
                                       const DLTensor *outputs,
                                       size_t count,
                                       int32_t op,
                                       const plinth_stream_t *streams,
                                       const plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Reduces tensors on several devices of this process; one device gets the result. Otherwise like
 * plinth_nccl_all_reduce.
 *
 * @param inputs The input tensors.
 * @param output The output tensor, on the root's device; NULL to write the result to the root's input.
 * @param count The number of inputs.
 * @param root The index of the input whose device gets the result.
 * @param op One of the PLINTH_REDUCE_ constants.
 * @param streams As in plinth_nccl_all_reduce.
 * @param communicators As in plinth_nccl_all_reduce.
 * @return The statuses of plinth_nccl_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_nccl_reduce(const DLTensor *inputs,
                                   const DLTensor *output,
                                   size_t count,
                                   int32_t root,
                                   int32_t op,
                                   const plinth_stream_t *streams,
                                   const plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Broadcasts the tensor of one device to the tensors of the other devices. Otherwise like plinth_nccl_all_reduce.
 *
 * @param tensors The tensors.
 * @param count The number of tensors.
 * @param root The index of the tensor that is copied.
 * @param streams As in plinth_nccl_all_reduce.
 * @param communicators As in plinth_nccl_all_reduce.
 * @return The statuses of plinth_nccl_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_nccl_broadcast(const DLTensor *tensors,
                                      size_t count,
                                      int32_t root,
                                      const plinth_stream_t *streams,
                                      const plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Gathers the tensors of all devices on every device, in the order of the ranks, which without communicators is that of
 * the inputs. Otherwise like plinth_nccl_all_reduce.
 *
 * @param inputs The input tensors.
 * @param outputs The output tensors: on each device one with `count` times as many elements as an input.
 * @param count The number of inputs, and of outputs.
 * @param streams As in plinth_nccl_all_reduce.
 * @param communicators As in plinth_nccl_all_reduce; they must have `count` ranks.
 * @return The statuses of plinth_nccl_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_nccl_all_gather(const DLTensor *inputs,
                                       const DLTensor *outputs,
                                       size_t count,
                                       const plinth_stream_t *streams,
                                       const plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Reduces tensors on several devices, and scatters the result: each device gets its part. Otherwise like
 * plinth_nccl_all_reduce.
 *
 * @param inputs The input tensors.
 * @param outputs The output tensors: on each device one with a `count`-th of an input's elements.
 * @param count The number of inputs, and of outputs.
 * @param op One of the PLINTH_REDUCE_ constants.
 * @param streams As in plinth_nccl_all_reduce.
 * @param communicators As in plinth_nccl_all_reduce; they must have `count` ranks.
 * @return The statuses of plinth_nccl_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_nccl_reduce_scatter(const DLTensor *inputs,
                                           const DLTensor *outputs,
                                           size_t count,
                                           int32_t op,
                                           const plinth_stream_t *streams,
                                           const plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_NCCL_H */
