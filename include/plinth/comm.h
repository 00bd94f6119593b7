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
 * Sums are in the order of the tensors; those of 16-bit floats are made in float32 and rounded once, at the end. Only where
 * more than 506 tensors are added is the sum of the first 506 rounded too, and then again after every 505 more.
 */
#define PLINTH_COMM_ORDER_LIST 0

/**
 * Sums are as torch's additions make them: the tensor on the destination (the last one, if there are several) first, then
 * the others in their order, each sum rounded to the tensors' type.
 */
#define PLINTH_COMM_ORDER_TORCH 1

/**
 * From a message of so many bytes on, a broadcast is shared out: each receiver fetches a part, and writes it to all of them.
 */
#define PLINTH_COMM_BROADCAST_SPLIT 0

/**
 * From a message of so many bytes on, a sum is shared out: every device but the destination adds a part.
 */
#define PLINTH_COMM_REDUCE_SPLIT 1

/**
 * From a message of so many bytes on, every rank works in a collective of this process's devices that all ranks receive
 * from.
 */
#define PLINTH_COMM_EXCHANGE_SPLIT 2

/**
 * From a run of so many bytes on, a scatter or a gather is made by the copy engines.
 */
#define PLINTH_COMM_COPY_ENGINE 3

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Copies a tensor to other devices, as torch.cuda.comm.broadcast does.
 *
 * The rules that hold for all functions of this group:
 * - Tensors may have any shape, also an empty one, and any strides. What is only copied may have elements of any type with
 *   8, 16, 32, 64 or 128 bits. Tensors may be on one device more than once.
 * - An output whose data is not NULL is written. Its shape, type and device must be right, and no two of its elements may be
 *   in one place.
 * - An output whose data is NULL is made: by the caching allocator, for the current stream of the device that it names (type
 *   kDLCUDA; -1 is the current device). Of it `device`, `ndim`, which is the number of dimensions that the result has, and
 *   the pointers `shape` and `strides` are read; `data`, `device`, `dtype`, `byte_offset` and the numbers of `shape` are
 *   written, and those of `strides` unless that is NULL. With NULL the elements lie side by side, the last dimension's
 *   fastest; with room for strides they lie as the input's do, where those fill their memory. The caller frees the memory
 *   with plinth_caching_allocator_delete, unless the function says that the output is an input itself.
 * - The work is ordered on the current streams of all devices that take part, as if each did its part: it comes after what
 *   they have now, and before what they get later. Nothing waits on the CPU, but for pageable memory of the CPU. Memory of
 *   streams other than the current ones needs plinth_record_stream, as always.
 * - While a current stream captures, only streams that capture are ordered, and one of them works; what else a replay needs,
 *   the program orders around it. Memory made for a device whose stream does not capture is not of the graph's pool.
 * - Devices get access to each other's memory (plinth_enable_peer_access) when first needed; where they are no peers, the
 *   driver's copies are used. Memory of another allocator that maps it itself must allow these devices access.
 * - Results are the same bit for bit in every run.
 * - Where an error is returned no output is made and none is described; one that was given may be written in part.
 *   Thread-safe.
 *
 * @param tensor The tensor, on a device or in memory of the CPU (types kDLCPU, kDLCUDAHost).
 * @param outputs The outputs, on devices; one that is made on the tensor's own device is the tensor itself: it has its data, and
 *        is not freed. One in memory of the CPU is refused.
 * @param count How many; 0 does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a malformed tensor, and for an output of another
 *         type or shape; PLINTH_ERROR_DEVICE_MISMATCH for an output that is not on a CUDA device; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode for pageable memory of the CPU;
 *         PLINTH_ERROR_NOT_SUPPORTED in a capture that needs streams which do not capture, of devices that are no peers;
 *         PLINTH_ERROR_INVALID_CONFIGURATION for a wrong PLINTH_COMM_CONF; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_comm_broadcast(const DLTensor *tensor,
                                      DLTensor *outputs,
                                      size_t count)
PLINTH_NOEXCEPT;

/**
 * Copies tensors of one device to others, as torch.cuda.comm.broadcast_coalesced does, in a few launches for all of them.
 *
 * @param tensors The tensors, of any types and shapes, all on the first of the devices.
 * @param count How many; 0 does nothing.
 * @param devices The devices.
 * @param device_count How many, 1 at least.
 * @param buffer_size Torch's size of the buffers that tensors are copied into to be sent together. Here they are sent from
 *        where they are, and nothing is buffered: any size is good.
 * @param outputs The outputs: outputs[d * count + t] is tensor t on device d, see plinth_comm_broadcast. Those that are made for
 *        the first device are the tensors themselves; each of the others has memory of its own, also on that same device.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH also for a tensor that is not on the first device, and for an
 *         output on another device than its own; PLINTH_ERROR_INVALID_VALUE for no devices.
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
 * Adds tensors of several devices, as torch.cuda.comm.reduce_add does. The order is that of plinth_comm_set_reduction_order.
 *
 * Integers wrap; a sum of bools is whether one of them is true; complex numbers are added by parts.
 *
 * @param inputs The tensors, on devices, of one shape and one type: integers, float16, bfloat16, float32, float64, complex64,
 *        complex128, bool.
 * @param count How many, 1 at least.
 * @param output The output, see plinth_comm_broadcast, on a device that has one of the inputs. It may be one of them. Made for
 *        one input alone it is that input itself.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA device, and for an output on a
 *         device without an input; PLINTH_ERROR_INVALID_VALUE for inputs of different shapes or types.
 */
PLINTH_API
plinth_status_t plinth_comm_reduce_add(const DLTensor *inputs,
                                       size_t count,
                                       DLTensor *output)
PLINTH_NOEXCEPT;

/**
 * Adds lists of tensors of several devices, as torch.cuda.comm.reduce_add_coalesced does, in a few launches for all of them.
 *
 * @param inputs The tensors: inputs[d * count + t] is tensor t of device d. Those with the same t have one shape and one type;
 *        see plinth_comm_reduce_add.
 * @param count How many tensors of each device; 0 does nothing.
 * @param device_count How many devices, 1 at least.
 * @param buffer_size As in plinth_comm_broadcast_coalesced: any size is good.
 * @param outputs The sums, `count` of them, all on one device that has one of the inputs of each.
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
 * Parts a tensor along a dimension and gives each output a part, as torch.cuda.comm.scatter does.
 *
 * @param tensor The tensor, of one dimension at least, on a device or in memory of the CPU.
 * @param outputs The outputs, see plinth_comm_broadcast: all are given, or none is. A part that is made on the tensor's own
 *        device is a view of the tensor, which is not freed; but if it has no room for strides and the part's elements do not
 *        lie side by side, it is a copy. Outputs that are given say by their shapes how long each part is.
 * @param count How many, 1 at least.
 * @param chunk_sizes The sizes of the parts in that dimension, `count` numbers that add up to the tensor's; NULL for parts as
 *        long as the first, but the last ones: those may be shorter and even empty, where torch gives fewer. NULL with outputs
 *        that are given.
 * @param dim The dimension; negative numbers count from the last one, which is -1.
 * @param streams For each output a stream of its device, in which it is made and copied in place of the current one; an entry of
 *        NULL means the current one, and so does NULL for all.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no outputs, a dimension that the tensor does not have, and
 *         sizes that do not add up; PLINTH_ERROR_DEVICE_MISMATCH also for a stream of another device;
 *         PLINTH_ERROR_INVALID_HANDLE for a stream that is none.
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
 * Puts tensors of several devices together along a dimension, as torch.cuda.comm.gather does.
 *
 * @param inputs The tensors, on devices, of one type, and of one shape in all dimensions but this one.
 * @param count How many, 1 at least.
 * @param dim The dimension; negative numbers count from the last one, which is -1.
 * @param output The output, see plinth_comm_broadcast: on any device, or given in memory of the CPU. With type kDLCPU the call
 *        waits for it; with kDLCUDAHost, which is pinned, it is ordered on the current stream of the first input's device.
 *        One that is made with room for strides has its channels last if all inputs have.
 * @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no inputs, for tensors without dimensions, and for a
 *         dimension that they do not have; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA device.
 */
PLINTH_API
plinth_status_t plinth_comm_gather(const DLTensor *inputs,
                                   size_t count,
                                   int32_t dim,
                                   DLTensor *output)
PLINTH_NOEXCEPT;

/**
 * Sets the order in which plinth_comm_reduce_add and plinth_comm_reduce_add_coalesced add, for the whole process. Whichever it
 * is, results are the same in every run. Thread-safe; needs no device.
 *
 * @param order PLINTH_COMM_ORDER_LIST, which is so from the beginning, or PLINTH_COMM_ORDER_TORCH, for results that are bit for
 *        bit those of torch where it adds without NCCL.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE.
 */
PLINTH_API
plinth_status_t plinth_comm_set_reduction_order(int32_t order)
PLINTH_NOEXCEPT;

/**
 * Gets the order that plinth_comm_set_reduction_order set. Thread-safe; needs no device.
 *
 * @param order Out: the order.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_comm_get_reduction_order(int32_t *order) PLINTH_NOEXCEPT;

/**
 * Sets a size at which collectives go another way, for the whole process. They only change how long things take. What they
 * are from the beginning was measured on H200s, or said by the environment: PLINTH_COMM_CONF=reduce_split:1048576,... with
 * the names broadcast_split, reduce_split, exchange_split, copy_engine. Thread-safe; needs no device.
 *
 * @param which One of PLINTH_COMM_BROADCAST_SPLIT, PLINTH_COMM_REDUCE_SPLIT, PLINTH_COMM_EXCHANGE_SPLIT,
 *        PLINTH_COMM_COPY_ENGINE.
 * @param bytes The size; 0 counts as 1.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE; PLINTH_ERROR_INVALID_CONFIGURATION for a wrong PLINTH_COMM_CONF.
 */
PLINTH_API
plinth_status_t plinth_comm_set_threshold(int32_t which,
                                          size_t bytes)
PLINTH_NOEXCEPT;

/**
 * Gets such a size. Thread-safe; needs no device.
 *
 * @param which As plinth_comm_set_threshold.
 * @param bytes Out: the size.
 * @return As plinth_comm_set_threshold; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_comm_get_threshold(int32_t which, size_t *bytes) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_COMM_H */
