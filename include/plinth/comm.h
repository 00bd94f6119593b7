/*!
 * @defgroup plinth_comm Collectives between the devices of a process
 *
 * Broadcast, reduce, scatter and gather between devices of one process, made by one thread: torch.cuda.comm. For
 * several processes, see communicator.h.
 *
 * The tensors are the caller's. Where a function makes an output, the caller owns its memory and frees it with
 * plinth_caching_allocator_delete. The work is ordered on the calling thread's current streams of all devices that
 * take part. The order of sums and the thresholds hold for the whole process.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_COMM_H
#define PLINTH_COMM_H

#include "base.h"
#include "tensor.h"

/*!
 * @file plinth/comm.h
 * @brief Collectives between the devices of a process.
 */

/*!
 * @addtogroup plinth_comm
 * @{
 */

/**
 * Adds in the order of the tensors. Sums of 8- and 16-bit floats are computed in float32 and rounded once, at the end. Only
 * if more than 506 tensors are added is the sum of the first 506 rounded as well, and then again after every 505
 * more.
 */
#define PLINTH_COMM_ORDER_LIST 0

/**
 * Adds as torch does: the tensor on the destination (the last one if there are several) first, then the others in
 * their order. Each partial sum is rounded to the tensors' type.
 */
#define PLINTH_COMM_ORDER_TORCH 1

/**
 * The message size in bytes from which a broadcast is split: each receiver fetches a part and writes it to all
 * receivers.
 */
#define PLINTH_COMM_BROADCAST_SPLIT 0

/**
 * The message size in bytes from which a sum is split: every device except the destination adds a part.
 */
#define PLINTH_COMM_REDUCE_SPLIT 1

/**
 * The message size in bytes from which every rank does part of the work of a collective whose result all ranks
 * receive. Applies to collectives between devices of this process.
 */
#define PLINTH_COMM_EXCHANGE_SPLIT 2

/**
 * The size in bytes of a contiguous run from which a scatter or a gather uses the copy engines.
 */
#define PLINTH_COMM_COPY_ENGINE 3

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Copies a tensor to other devices, as torch.cuda.comm.broadcast does.
 *
 * These rules hold for all plinth_comm_ functions:
 * - Tensors may have any shape, including an empty one, and any strides. Operations that only copy accept elements
 *   of any type with 8, 16, 32, 64 or 128 bits. Several tensors may be on the same device.
 * - An output whose data is not NULL is written. Its shape, type and device must match, and no two of its elements
 *   may overlap.
 * - An output whose data is NULL is created: the caching allocator allocates it for the current stream of the device
 *   that the output names (type kDLCUDA; -1 is the current device). The call reads `device`, `ndim`, which is the
 *   number of dimensions of the result, and the pointers `shape` and `strides`. It writes `data`, `device`, `dtype`,
 *   `byte_offset`, the elements of `shape`, and the elements of `strides` unless that pointer is NULL. If `strides`
 *   is NULL, the tensor is contiguous in row-major order. Otherwise its strides follow those of the input if the
 *   input's elements fill their memory. The caller frees the memory with plinth_caching_allocator_delete, unless the
 *   function says that the output is an input itself.
 * - The work is ordered on the current streams of all devices that take part, as if each device did its part: after
 *   the work that these streams have now and before work that is added later. The CPU does not wait, except for
 *   pageable CPU memory. Call plinth_record_stream for memory that was allocated for streams other than the current
 *   ones.
 * - While a current stream captures, the call orders only streams that capture, and one of them does the work. The
 *   program must order everything else that a replay needs. Memory that is created for a device whose stream does
 *   not capture does not belong to the graph's pool.
 * - Peer access between devices (plinth_enable_peer_access) is enabled when it is first needed. Devices without peer
 *   access use the driver's copies. Memory that another allocator maps itself must be mapped with access for these
 *   devices.
 * - Results are bitwise identical in every run.
 * - After an error no output is created and no description is written; outputs that the caller supplied may be
 *   partly written.
 *
 * @param tensor The tensor, on a device or in CPU memory (types kDLCPU, kDLCUDAHost).
 * @param outputs The outputs, on devices. An output that is created on the tensor's own device is the tensor itself:
 *        it has the same data and must not be freed. An output in CPU memory is an error.
 * @param count The number of outputs; 0 does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a malformed tensor, and for an output
 *         of another type or shape; PLINTH_ERROR_DEVICE_MISMATCH for an output that is not on a CUDA device;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_WOULD_SYNCHRONIZE for pageable CPU
 *         memory if the sync debug mode forbids synchronization; PLINTH_ERROR_NOT_SUPPORTED in a capture if devices
 *         without peer access need a stream that does not capture, and for a tensor with too many dimensions for one
 *         launch; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid PLINTH_COMM_CONF; PLINTH_ERROR_DRIVER; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_comm_broadcast(const DLTensor *tensor,
                                      DLTensor *outputs,
                                      size_t count)
PLINTH_NOEXCEPT;

/**
 * Copies tensors from one device to others, as torch.cuda.comm.broadcast_coalesced does, with a few launches for all
 * tensors.
 *
 * @param tensors The tensors, of any types and shapes, all on the first of the devices.
 * @param count The number of tensors; 0 does nothing.
 * @param devices The device indices.
 * @param device_count The number of devices, at least 1.
 * @param buffer_size Accepted for compatibility with torch, where it is the size in bytes of the buffers into which
 *        tensors are copied before they are sent together. This library sends tensors directly and ignores the
 *        value.
 * @param outputs The outputs: outputs[d * count + t] is tensor t on device d, see plinth_comm_broadcast. The outputs
 *        that are created for the first device are the tensors themselves. Each other created output has memory of
 *        its own, even if it is on the same device.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH also for a tensor that is not on the first device,
 *         and for an output that is not on its device; PLINTH_ERROR_INVALID_VALUE also for no devices.
 */
PLINTH_API
plinth_status_t plinth_comm_broadcast_coalesced(const DLTensor *tensors,
                                                size_t count,
                                                const int32_t *devices,
                                                size_t device_count,
                                                size_t buffer_size,
                                                DLTensor *outputs)
PLINTH_NOEXCEPT;

/**
 * Adds tensors of several devices, as torch.cuda.comm.reduce_add does. plinth_comm_set_reduction_order sets the
 * order of the additions.
 *
 * Integers wrap. The sum of bools is their logical or. Complex numbers are added by parts.
 *
 * @param inputs The tensors, on devices, of one shape and one type: integers, float8_e4m3fn, float8_e5m2, float16,
 *        bfloat16, float32, float64, complex64, complex128, bool.
 * @param count The number of inputs, at least 1.
 * @param output The output, see plinth_comm_broadcast, on a device that has one of the inputs. It may be one of the
 *        inputs. If it is created for a single input, it is that input itself.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA device, and for
 *         an output on a device without an input; PLINTH_ERROR_INVALID_VALUE for inputs of different shapes or
 *         types.
 */
PLINTH_API
plinth_status_t plinth_comm_reduce_add(const DLTensor *inputs,
                                       size_t count,
                                       DLTensor *output)
PLINTH_NOEXCEPT;

/**
 * Adds lists of tensors of several devices, as torch.cuda.comm.reduce_add_coalesced does, with a few launches for
 * all tensors.
 *
 * @param inputs The tensors: inputs[d * count + t] is tensor t of device d. Tensors with the same t have the same
 *        shape and type; see plinth_comm_reduce_add.
 * @param count The number of tensors of each device; 0 does nothing.
 * @param device_count The number of devices, at least 1.
 * @param buffer_size Ignored, as in plinth_comm_broadcast_coalesced.
 * @param outputs The sums: `count` outputs, all on one device, which must have an input of each sum.
 * @return As plinth_comm_reduce_add; PLINTH_ERROR_DEVICE_MISMATCH also for outputs on different devices.
 */
PLINTH_API
plinth_status_t plinth_comm_reduce_add_coalesced(const DLTensor *inputs,
                                                 size_t count,
                                                 size_t device_count,
                                                 size_t buffer_size,
                                                 DLTensor *outputs)
PLINTH_NOEXCEPT;

/**
 * Splits a tensor along a dimension into one part for each output, as torch.cuda.comm.scatter does.
 *
 * @param tensor The tensor, of at least one dimension, on a device or in CPU memory.
 * @param outputs The outputs, see plinth_comm_broadcast: either the caller supplies all of them or all are created.
 *        A part that is created on the tensor's own device is a view of the tensor, which must not be freed. But if
 *        its description has no room for strides and the part is not contiguous, it is a copy. The shapes of
 *        supplied outputs determine the size of each part.
 * @param count The number of outputs, at least 1.
 * @param chunk_sizes The sizes of the parts in that dimension: `count` numbers whose sum is the size of the tensor.
 *        NULL for parts of equal size, except that the last ones may be shorter and even empty, where torch returns
 *        fewer parts. Must be NULL with supplied outputs.
 * @param dim The dimension; a negative number counts from the last dimension, which is -1.
 * @param streams For each output a stream of its device, in which it is created and copied; NULL for the current
 *        streams of all outputs' devices.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no outputs, for a dimension that the tensor
 *         does not have, and for sizes whose sum is wrong; PLINTH_ERROR_DEVICE_MISMATCH also for a stream of another
 *         device; PLINTH_ERROR_INVALID_HANDLE for an invalid stream.
 */
PLINTH_API
plinth_status_t plinth_comm_scatter(const DLTensor *tensor,
                                    DLTensor *outputs,
                                    size_t count,
                                    const int64_t *chunk_sizes,
                                    int32_t dim,
                                    const plinth_stream_t *streams)
PLINTH_NOEXCEPT;

/**
 * Concatenates tensors of several devices along a dimension, as torch.cuda.comm.gather does.
 *
 * @param inputs The tensors, on devices, of one type, and of one shape except in this dimension.
 * @param count The number of inputs, at least 1.
 * @param dim The dimension; a negative number counts from the last dimension, which is -1.
 * @param output The output, see plinth_comm_broadcast: on any device, or supplied in CPU memory. With type kDLCPU
 *        the call waits until the copy is done. With kDLCUDAHost, which is pinned memory, the copy is ordered on the
 *        current stream of the first input's device. An output that is created with room for strides is in
 *        channels-last format if all inputs are.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no inputs, for tensors without dimensions,
 *         and for a dimension that they do not have; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA
 *         device.
 */
PLINTH_API
plinth_status_t plinth_comm_gather(const DLTensor *inputs,
                                   size_t count,
                                   int32_t dim,
                                   DLTensor *output)
PLINTH_NOEXCEPT;

/**
 * Sets the order in which plinth_comm_reduce_add and plinth_comm_reduce_add_coalesced add, for the whole process.
 *
 * In either order results are identical in every run. Needs no device.
 *
 * @param order PLINTH_COMM_ORDER_LIST, the default, or PLINTH_COMM_ORDER_TORCH, for results that are bitwise equal
 *        to those of torch when torch adds without NCCL.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE.
 */
PLINTH_API
plinth_status_t plinth_comm_set_reduction_order(int32_t order)
PLINTH_NOEXCEPT;

/**
 * Gets the order that plinth_comm_set_reduction_order set. Needs no device.
 *
 * @param order Out: the order.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_comm_get_reduction_order(int32_t *order) PLINTH_NOEXCEPT;

/**
 * Sets the size from which collectives use another algorithm, for the whole process.
 *
 * Thresholds affect only performance. The defaults were measured on H200 GPUs. The environment can replace them:
 * PLINTH_COMM_CONF=reduce_split:1048576,... with the names broadcast_split, reduce_split, exchange_split,
 * copy_engine. Needs no device.
 *
 * @param which One of PLINTH_COMM_BROADCAST_SPLIT, PLINTH_COMM_REDUCE_SPLIT, PLINTH_COMM_EXCHANGE_SPLIT,
 *        PLINTH_COMM_COPY_ENGINE.
 * @param bytes The size in bytes; 0 counts as 1.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid PLINTH_COMM_CONF.
 */
PLINTH_API
plinth_status_t plinth_comm_set_threshold(int32_t which,
                                          size_t bytes)
PLINTH_NOEXCEPT;

/**
 * Gets the size from which collectives use another algorithm. Needs no device.
 *
 * @param which As plinth_comm_set_threshold.
 * @param bytes Out: the size in bytes.
 * @return As plinth_comm_set_threshold; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_comm_get_threshold(int32_t which, size_t *bytes) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_COMM_H */
