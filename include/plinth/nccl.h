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
 * Tells the version of the NCCL that is used, and loads it. NCCL is looked for in the process, then where the system finds
 * libraries (libnccl.so.2), then in folders of Python packages; PLINTH_NCCL_LIBRARY names another file. Thread-safe; needs no
 * device.
 *
 * @param major Out: as the 2 of 2.28.3; NULL if nobody wants it, and so are the others.
 * @param minor Out: as the 28.
 * @param patch Out: as the 3.
 * @return PLINTH_OK; PLINTH_ERROR_NCCL_UNAVAILABLE where there is none, or one too old, with a message that says where it was
 *         looked for.
 */
PLINTH_API
plinth_status_t plinth_nccl_version(int32_t *major,
                                    int32_t *minor,
                                    int32_t *patch)
PLINTH_NOEXCEPT;

/**
 * Tells whether the functions here can work with tensors: whether each is contiguous and on a device of its own. With no
 * tensors it tells whether NCCL is there, which the functions here do not need. Thread-safe.
 *
 * @param tensors The tensors; NULL with a count of 0.
 * @param count How many.
 * @param available Out: whether they can. Tensors that are not on devices are no error here.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_nccl_is_available(const DLTensor *tensors,
                                         size_t count,
                                         bool *available)
PLINTH_NOEXCEPT;

/**
 * Makes an id that ranks meet by: one process makes it, the others get its bytes by any channel, and each passes it to
 * plinth_communicator_init_rank or plinth_nccl_init_rank. It is for one meeting. The process that made it must live until all
 * have met. With NCCL it is NCCL's own, and good across machines; without, it is the library's, and good on one machine.
 * Thread-safe.
 *
 * @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_NCCL; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_nccl_unique_id(uint8_t *id)
PLINTH_NOEXCEPT;

/**
 * As plinth_communicator_init_rank, on the current device, with defaults.
 *
 * @param ranks How many ranks there are.
 * @param id The PLINTH_UNIQUE_ID_SIZE bytes of plinth_nccl_unique_id.
 * @param rank The number of this rank, from 0 on.
 * @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
 * @return As plinth_communicator_init_rank.
 */
PLINTH_API
plinth_status_t plinth_nccl_init_rank(int32_t ranks,
                                      const uint8_t *id,
                                      int32_t rank,
                                      plinth_communicator_t *communicator)
PLINTH_NOEXCEPT;

/**
 * Reduces tensors of several devices of this process; each output gets the result. The work goes into a stream of each
 * device, in order with what those have, and is not waited for; it may be captured. Memory stays valid until the work is
 * done. Thread-safe.
 *
 * @param inputs The tensors: contiguous, of one type and size, each on a device of its own.
 * @param outputs Where the results go, on the same devices; NULL to have them in the inputs.
 * @param count How many inputs there are, and outputs.
 * @param op One of PLINTH_REDUCE_.
 * @param streams A stream for each device, NULL among them for its current one; NULL for all current ones.
 * @param communicators A communicator for each device; NULL for ones that the library makes for each list of devices that
 *        comes, and keeps.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for tensors or numbers that are not as they must be;
 *         PLINTH_ERROR_DEVICE_MISMATCH for an input and an output, a stream or a communicator of different devices, and for
 *         tensors of the CPU; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_TIMED_OUT;
 *         PLINTH_ERROR_ABORTED; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER; the errors of initialization.
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
 * Reduces tensors of several devices of this process; one output gets the result. Otherwise as plinth_nccl_all_reduce.
 *
 * @param inputs The tensors.
 * @param output Where the result goes, on the root's device; NULL to have it in the root's input.
 * @param count How many inputs there are.
 * @param root The index of the input whose device gets the result.
 * @param op One of PLINTH_REDUCE_.
 * @param streams As for plinth_nccl_all_reduce.
 * @param communicators As for plinth_nccl_all_reduce.
 * @return As plinth_nccl_all_reduce.
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
 * Copies the tensor of one device over those of others. Otherwise as plinth_nccl_all_reduce.
 *
 * @param tensors The tensors.
 * @param count How many.
 * @param root The index of the one that is copied.
 * @param streams As for plinth_nccl_all_reduce.
 * @param communicators As for plinth_nccl_all_reduce.
 * @return As plinth_nccl_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_nccl_broadcast(const DLTensor *tensors,
                                      size_t count,
                                      int32_t root,
                                      const plinth_stream_t *streams,
                                      const plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Gives each device the tensors of all, one after the other. Otherwise as plinth_nccl_all_reduce.
 *
 * @param inputs The tensors.
 * @param outputs Where they go: on each device a tensor of `count` times as many elements.
 * @param count How many inputs there are, and outputs.
 * @param streams As for plinth_nccl_all_reduce.
 * @param communicators As for plinth_nccl_all_reduce.
 * @return As plinth_nccl_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_nccl_all_gather(const DLTensor *inputs,
                                       const DLTensor *outputs,
                                       size_t count,
                                       const plinth_stream_t *streams,
                                       const plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Reduces tensors of several devices, and gives each device its part of the result. Otherwise as plinth_nccl_all_reduce.
 *
 * @param inputs The tensors.
 * @param outputs Where the parts go: on each device a tensor with a `count`-th of the elements.
 * @param count How many inputs there are, and outputs.
 * @param op One of PLINTH_REDUCE_.
 * @param streams As for plinth_nccl_all_reduce.
 * @param communicators As for plinth_nccl_all_reduce.
 * @return As plinth_nccl_all_reduce.
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
