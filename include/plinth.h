/*!
 * @file plinth.h
 * @brief plinth: torch.cuda without libtorch. Devices, streams, events and memory of NVIDIA GPUs, and of a device
 *        built into the library for machines that have none.
 *
 * The rules that hold for every call:
 *
 * - torch.cuda.X.y(...) is plinth_X_y(...). Outputs come last, and are written only on success.
 * - A call returns a status: PLINTH_OK, or one of the PLINTH_ERROR_ constants. plinth_last_error() has the sentence
 *   that says what was asked for and why it failed; plinth_last_driver_error() has the driver's own code.
 * - A device of -1 is the calling thread's current one. A NULL stream is the current device's default stream.
 * - The library initializes itself when a device is first used. It never prints, and never ends the process.
 * - Calls may be made from any thread at any time, except that an object must not be destroyed while another thread
 *   is in a call with it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_H
#define PLINTH_H

/* Generated from the library's sources by `make header`; changes made here are lost. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define PLINTH_API __declspec(dllimport)
#elif defined(__GNUC__)
#define PLINTH_API __attribute__((visibility("default")))
#else
#define PLINTH_API
#endif

#if defined(__cplusplus)
#define PLINTH_NOEXCEPT noexcept
#else
#define PLINTH_NOEXCEPT
#endif

/*! A stream: the same type as cudaStream_t and CUstream, so that it goes straight into kernel<<<...>>>. */
typedef struct CUstream_st *plinth_stream_t;

/*! A node of a graph: the same type as cudaGraphNode_t and CUgraphNode. */
typedef struct CUgraphNode_st *plinth_graph_node_t;

/* DLPack's tensors (https://dmlc.github.io/dlpack): its own declarations where a program has them, else the same. */
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#if !defined(DLPACK_DLPACK_H_)
/*! A device. */
typedef struct DLDevice {
  /*! 1 is the CPU, 2 CUDA, 3 pinned host memory. */
  int32_t device_type;
  /*! The device's number. */
  int32_t device_id;
} DLDevice;

/*! The type of an element. */
typedef struct DLDataType {
  /*! 0 is int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool. */
  uint8_t code;
  /*! The bits of a number. */
  uint8_t bits;
  /*! The numbers of an element: 1. */
  uint16_t lanes;
} DLDataType;

/*! A tensor. It owns nothing. */
typedef struct DLTensor {
  /*! The memory. */
  void *data;
  /*! Where that is. */
  DLDevice device;
  /*! How many dimensions there are. */
  int32_t ndim;
  /*! The type of the elements. */
  DLDataType dtype;
  /*! The extent of each dimension. */
  int64_t *shape;
  /*! The distance of neighbours in each, in elements; NULL for elements side by side, the last dimension's fastest. */
  int64_t *strides;
  /*! How far from `data` element 0 is, in bytes. */
  uint64_t byte_offset;
} DLTensor;
#endif

#if !defined(PLINTH_PHILOX_STATE_T)
/*! plinth_philox_state_t is declared: here, or by plinth_philox.h. */
#define PLINTH_PHILOX_STATE_T
/*! Where a kernel takes its random numbers: a seed and an offset, or, in a capture, where each replay finds them.
 *  plinth_philox.cuh has what a kernel does with it. */
typedef struct plinth_philox_state_t {
  /*! The seed; in a capture the address of one in the device's memory. */
  uint64_t seed;
  /*! How many 32-bit numbers each subsequence has given; in a capture the address of such a count. */
  uint64_t offset;
  /*! In a capture, what is added to the offset there. */
  uint64_t graph_offset;
  /*! 1 in a capture, else 0. */
  uint32_t captured;
  /*! 0. */
  uint32_t reserved;
} plinth_philox_state_t;
#endif

/*! An initializer for a plinth_device_properties_t. */
#define PLINTH_DEVICE_PROPERTIES_INIT {sizeof(plinth_device_properties_t), {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/*! An initializer for a plinth_memory_history_options_t: everything is kept, without end. */
#define PLINTH_MEMORY_HISTORY_OPTIONS_INIT {sizeof(plinth_memory_history_options_t), 2, 3, 0, 0, 0, 0, 0}
/*! An initializer for a plinth_host_memory_stats_t. */
#define PLINTH_HOST_MEMORY_STATS_INIT {sizeof(plinth_host_memory_stats_t), {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, \
    {0, 0, 0, 0}, 0, 0, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}}

/*! An initializer for a plinth_pointer_attributes_t. */
#define PLINTH_POINTER_ATTRIBUTES_INIT {sizeof(plinth_pointer_attributes_t), 0, 0, 0, 0, NULL, NULL, NULL, 0, NULL, 0, {0, 0}}
/*! An initializer for a plinth_cufft_params_t. */
#define PLINTH_CUFFT_PARAMS_INIT {sizeof(plinth_cufft_params_t), 0, 0, {0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}

/*! An initializer for a plinth_kernel_launch_t: one block of one thread. */
#define PLINTH_KERNEL_LAUNCH_INIT {sizeof(plinth_kernel_launch_t), {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 0, 0}
/*! An initializer for a plinth_kernel_attributes_t. */
#define PLINTH_KERNEL_ATTRIBUTES_INIT {sizeof(plinth_kernel_attributes_t), 0, 0, 0, 0, 0, 0, 0, 0}

/*! An initializer for a plinth_communicator_options_t. */
#define PLINTH_COMMUNICATOR_OPTIONS_INIT {sizeof(plinth_communicator_options_t), 0, 0, 0}

/*! An initializer for a plinth_host_usage_t. */
#define PLINTH_HOST_USAGE_INIT {sizeof(plinth_host_usage_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * The library's version when a program was compiled. Compare with plinth_version, which tells the one it runs with.
 */
#define PLINTH_VERSION_MAJOR 0

/**
 * The minor version; before 1.0 it changes whenever a program must be compiled anew.
 */
#define PLINTH_VERSION_MINOR 1

/**
 * The patch version.
 */
#define PLINTH_VERSION_PATCH 0

/**
 * NVIDIA GPUs, through libcuda. What happens when nothing is said.
 */
#define PLINTH_DEVICE_CUDA 0

/**
 * The built-in device on the CPU.
 */
#define PLINTH_DEVICE_HOST 1

/**
 * GPUs where the process sees any, else the built-in device.
 */
#define PLINTH_DEVICE_AUTO 2

/**
 * Calls that wait for the device do so without a word. The mode at the start.
 */
#define PLINTH_SYNC_DEBUG_DEFAULT 0

/**
 * The callback of plinth_set_sync_debug_callback is told of each call that waits, and the call is counted.
 */
#define PLINTH_SYNC_DEBUG_WARN 1

/**
 * Each call that would wait fails with PLINTH_ERROR_WOULD_SYNCHRONIZE, before it has done anything.
 */
#define PLINTH_SYNC_DEBUG_ERROR 2

/**
 * The event records the time at which it is reached.
 */
#define PLINTH_EVENT_TIMING 1

/**
 * A thread that waits for the event sleeps instead of spinning.
 */
#define PLINTH_EVENT_BLOCKING 2

/**
 * The event can be opened by other processes. Not together with PLINTH_EVENT_TIMING.
 */
#define PLINTH_EVENT_INTERPROCESS 4

/**
 * In a capture, recording the event and waiting for it become nodes of the graph, by which a replay and the world
 * outside it order themselves. Outside a capture the flag changes nothing.
 */
#define PLINTH_EVENT_EXTERNAL 8

/**
 * The bytes of an event's handle for other processes.
 */
#define PLINTH_IPC_EVENT_HANDLE_SIZE 64

/**
 * The memory is pinned for every context of the process, not only for the current one. The usual choice.
 */
#define PLINTH_HOST_REGISTER_PORTABLE 1

/**
 * The memory is mapped for devices, which most drivers do anyway.
 */
#define PLINTH_HOST_REGISTER_MAPPED 2

/**
 * The memory is of another device, such as a network card.
 */
#define PLINTH_HOST_REGISTER_IO_MEMORY 4

/**
 * Devices only read the memory.
 */
#define PLINTH_HOST_REGISTER_READ_ONLY 8

/**
 * The bytes of a handle of CUDA's for memory: a cudaIpcMemHandle_t.
 */
#define PLINTH_IPC_MEM_HANDLE_SIZE 64

/**
 * No history is kept.
 */
#define PLINTH_MEMORY_HISTORY_OFF 0

/**
 * For blocks that are live, their callers are kept.
 */
#define PLINTH_MEMORY_HISTORY_STATE 1

/**
 * That, and an entry for everything that happens.
 */
#define PLINTH_MEMORY_HISTORY_ALL 2

/**
 * The caller is found out for nothing.
 */
#define PLINTH_MEMORY_CONTEXT_NONE 0

/**
 * The caller is found out for blocks that are live.
 */
#define PLINTH_MEMORY_CONTEXT_STATE 1

/**
 * The caller is found out for blocks that are live and for entries of what brings memory into use.
 */
#define PLINTH_MEMORY_CONTEXT_ALLOC 2

/**
 * The caller is found out for everything.
 */
#define PLINTH_MEMORY_CONTEXT_ALL 3

/**
 * A block was given out.
 */
#define PLINTH_MEMORY_ACTION_ALLOC 0

/**
 * The program freed a block.
 */
#define PLINTH_MEMORY_ACTION_FREE_REQUESTED 1

/**
 * A freed block can be given out again: at once, or when the streams that were recorded on it have passed.
 */
#define PLINTH_MEMORY_ACTION_FREE_COMPLETED 2

/**
 * The driver gave a segment (expandable_segments:False).
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_ALLOC 3

/**
 * A segment went back to the driver.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_FREE 4

/**
 * Physical memory was mapped at addresses that the allocator has.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_MAP 5

/**
 * Physical memory went from addresses: back to the driver, or to where it is needed.
 */
#define PLINTH_MEMORY_ACTION_SEGMENT_UNMAP 6

/**
 * A snapshot was taken.
 */
#define PLINTH_MEMORY_ACTION_SNAPSHOT 7

/**
 * A request failed for want of memory; the address is how many bytes the device had free.
 */
#define PLINTH_MEMORY_ACTION_OOM 8

/**
 * Memory that the driver does not know: plain host memory, or none at all.
 */
#define PLINTH_MEMORY_UNREGISTERED 0

/**
 * Pinned host memory.
 */
#define PLINTH_MEMORY_HOST 1

/**
 * A device's memory.
 */
#define PLINTH_MEMORY_DEVICE 2

/**
 * Memory that the driver moves between host and devices.
 */
#define PLINTH_MEMORY_MANAGED 3

/**
 * Nobody has the memory from the driver.
 */
#define PLINTH_OWNER_NONE 0

/**
 * The program, another library, or plinth for them: plinth_device_malloc, plinth_pinned_malloc and the like.
 */
#define PLINTH_OWNER_PROGRAM 1

/**
 * The caching allocator, plinth_caching_allocator_alloc.
 */
#define PLINTH_OWNER_CACHING_ALLOCATOR 2

/**
 * The allocator of pinned memory, plinth_host_alloc.
 */
#define PLINTH_OWNER_HOST_ALLOCATOR 3

/**
 * The graph keeps its nodes after the end of the capture, and is made ready by plinth_graph_instantiate, or by its first
 * replay: torch's keep_graph.
 */
#define PLINTH_GRAPH_KEEP_GRAPH 1

/**
 * While the capture goes on, no thread may make calls that could disturb it.
 */
#define PLINTH_CAPTURE_GLOBAL 0

/**
 * While the capture goes on, its own thread may make no calls that could disturb it.
 */
#define PLINTH_CAPTURE_THREAD_LOCAL 1

/**
 * While the capture goes on, every call may be made; it may end in another thread than it began in.
 */
#define PLINTH_CAPTURE_RELAXED 2

/**
 * A replay that would overlap with another one of its pool waits on the device for that one.
 */
#define PLINTH_GRAPH_OVERLAP_ORDER 0

/**
 * A replay that would overlap with another one of its pool is refused with PLINTH_ERROR_GRAPH_OVERLAP.
 */
#define PLINTH_GRAPH_OVERLAP_REFUSE 1

/**
 * A node that launches a kernel.
 */
#define PLINTH_GRAPH_NODE_KERNEL 0

/**
 * A node that copies memory.
 */
#define PLINTH_GRAPH_NODE_MEMCPY 1

/**
 * A node that fills memory.
 */
#define PLINTH_GRAPH_NODE_MEMSET 2

/**
 * A node that calls a function on the CPU.
 */
#define PLINTH_GRAPH_NODE_HOST 3

/**
 * A node that is a graph of its own.
 */
#define PLINTH_GRAPH_NODE_GRAPH 4

/**
 * A node that only waits for others.
 */
#define PLINTH_GRAPH_NODE_EMPTY 5

/**
 * A node that waits for an event.
 */
#define PLINTH_GRAPH_NODE_WAIT_EVENT 6

/**
 * A node that records an event.
 */
#define PLINTH_GRAPH_NODE_EVENT_RECORD 7

/**
 * A conditional node.
 */
#define PLINTH_GRAPH_NODE_CONDITIONAL 13

/**
 * How often torch runs a callable before it captures it.
 */
#define PLINTH_CALLABLE_WARMUPS 3

/**
 * How often torch does where gradients are averaged over processes (DistributedDataParallel).
 */
#define PLINTH_CALLABLE_WARMUPS_DDP 11

/**
 * The bytes of a generator's state: the seed as a little-endian 64-bit integer, then the offset as one, as in PyTorch.
 */
#define PLINTH_RNG_STATE_SIZE 16

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

/**
 * The bytes of an id that ranks meet by.
 */
#define PLINTH_UNIQUE_ID_SIZE 128

/**
 * The engine is the library's choice, or that of the environment variable PLINTH_COMMUNICATOR_ENGINE.
 */
#define PLINTH_ENGINE_AUTO 0

/**
 * NCCL carries out what ranks do together.
 */
#define PLINTH_ENGINE_NCCL 1

/**
 * The library's own kernels and copies do, between devices of one process.
 */
#define PLINTH_ENGINE_LOCAL 2

/**
 * The library's own kernels do, between processes of one machine.
 */
#define PLINTH_ENGINE_SHARED 3

/**
 * Where ranks meet through NCCL, plinth_communicator_init_rank returns before they have met; plinth_communicator_query tells
 * when they have. Ranks that meet by an id of the library's own, and by whatever engine the ranks of one process, have met
 * when it returns.
 */
#define PLINTH_COMMUNICATOR_NONBLOCKING 1

/**
 * NCCL is used in its blocking mode: each call costs the CPU some microseconds less, and has no limit of time, so that a
 * rank that never comes makes the others wait for ever.
 */
#define PLINTH_COMMUNICATOR_UNLIMITED 2

/**
 * The sum of all ranks' elements; of truths, whether any is. The numbers are NCCL's own.
 */
#define PLINTH_REDUCE_SUM 0

/**
 * Their product; of truths, whether all are.
 */
#define PLINTH_REDUCE_PRODUCT 1

/**
 * The greatest of them; complex numbers have none.
 */
#define PLINTH_REDUCE_MAX 2

/**
 * The least of them; complex numbers have none.
 */
#define PLINTH_REDUCE_MIN 3

/**
 * Their sum divided by the number of ranks; truths have none.
 */
#define PLINTH_REDUCE_AVERAGE 4

/**
 * The most inputs of a jiterated function, and the most outputs.
 */
#define PLINTH_JIT_MAX_TENSORS 8

/**
 * The most named scalars of a jiterated function.
 */
#define PLINTH_JIT_MAX_SCALARS 16

/**
 * A scalar that is true or false: its `integer` is not 0, or 0.
 */
#define PLINTH_JIT_BOOL 0

/**
 * A scalar that is a 64-bit integer: its `integer`.
 */
#define PLINTH_JIT_INT 1

/**
 * A scalar that is a double: its `real`.
 */
#define PLINTH_JIT_FLOAT 2

/**
 * A scalar that is a complex number: its `real` and `imaginary`.
 */
#define PLINTH_JIT_COMPLEX 3

/**
 * An argument that is a tensor: `value` leads to a DLTensor, and the kernel gets the address of its first element.
 */
#define PLINTH_ARGUMENT_TENSOR 0

/**
 * An argument that is an address: `value` leads to the pointer.
 */
#define PLINTH_ARGUMENT_POINTER 1

/**
 * An argument that is a bool: `value` leads to it.
 */
#define PLINTH_ARGUMENT_BOOL 2

/**
 * An argument that is a 32-bit integer, of either sign: `value` leads to it.
 */
#define PLINTH_ARGUMENT_INT32 3

/**
 * An argument that is a 64-bit integer, of either sign: `value` leads to it.
 */
#define PLINTH_ARGUMENT_INT64 4

/**
 * An argument that is a float: `value` leads to it.
 */
#define PLINTH_ARGUMENT_FLOAT32 5

/**
 * An argument that is a double: `value` leads to it.
 */
#define PLINTH_ARGUMENT_FLOAT64 6

/**
 * An argument of any other type, a struct mostly: `value` leads to its `bytes` bytes.
 */
#define PLINTH_ARGUMENT_BYTES 7

/**
 * All blocks of a launch run at the same time, and may wait for each other (cooperative groups' grid).
 */
#define PLINTH_LAUNCH_COOPERATIVE 1

/**
 * From complex numbers to complex ones.
 */
#define PLINTH_CUFFT_C2C 0

/**
 * From real numbers to complex ones, of which the last dimension has n / 2 + 1.
 */
#define PLINTH_CUFFT_R2C 1

/**
 * From those back to real numbers.
 */
#define PLINTH_CUFFT_C2R 2

/**
 * From a signal to its frequencies.
 */
#define PLINTH_CUFFT_FORWARD -1

/**
 * Back. Like cuFFT's, it does not divide by the number of elements.
 */
#define PLINTH_CUFFT_INVERSE 1

/**
 * In plinth_telemetry_t.valid: utilization is known.
 */
#define PLINTH_TELEMETRY_UTILIZATION 1

/**
 * In plinth_telemetry_t.valid: memory_usage is known.
 */
#define PLINTH_TELEMETRY_MEMORY_USAGE 2

/**
 * In plinth_telemetry_t.valid: temperature is known.
 */
#define PLINTH_TELEMETRY_TEMPERATURE 4

/**
 * In plinth_telemetry_t.valid: power_draw is known.
 */
#define PLINTH_TELEMETRY_POWER_DRAW 8

/**
 * In plinth_telemetry_t.valid: clock_rate is known.
 */
#define PLINTH_TELEMETRY_CLOCK_RATE 16

/**
 * In plinth_telemetry_t.valid: memory_clock_rate is known.
 */
#define PLINTH_TELEMETRY_MEMORY_CLOCK_RATE 32

/**
 * In plinth_telemetry_t.valid: memory_used is known.
 */
#define PLINTH_TELEMETRY_MEMORY_USED 64

/**
 * In plinth_telemetry_t.valid: energy is known.
 */
#define PLINTH_TELEMETRY_ENERGY 128

/**
 * In plinth_telemetry_t.valid: throttle_reasons is known.
 */
#define PLINTH_TELEMETRY_THROTTLE_REASONS 256

/**
 * Why a clock is slower than it could be: there is nothing to do.
 */
#define PLINTH_THROTTLE_IDLE 1

/**
 * Somebody set the clocks that applications get.
 */
#define PLINTH_THROTTLE_APPLICATION_CLOCKS 2

/**
 * The card may not take more power.
 */
#define PLINTH_THROTTLE_POWER_CAP 4

/**
 * The hardware slows down, for heat or for power.
 */
#define PLINTH_THROTTLE_HARDWARE 8

/**
 * The card keeps in step with others.
 */
#define PLINTH_THROTTLE_SYNC_BOOST 16

/**
 * It is too warm, the driver found.
 */
#define PLINTH_THROTTLE_THERMAL 32

/**
 * It is too warm, the hardware found.
 */
#define PLINTH_THROTTLE_HARDWARE_THERMAL 64

/**
 * The power supply asked for less.
 */
#define PLINTH_THROTTLE_POWER_BRAKE 128

/**
 * A display needs this clock.
 */
#define PLINTH_THROTTLE_DISPLAY 256

/**
 * The sanitizer is off. The mode at the start.
 */
#define PLINTH_SANITIZER_OFF 0

/**
 * What is found is kept, for plinth_sanitizer_each, _text and _json.
 */
#define PLINTH_SANITIZER_COLLECT 1

/**
 * The same, and the callback is told of each report that is new.
 */
#define PLINTH_SANITIZER_WARN 2

/**
 * The same, and each call at which something is found fails with PLINTH_ERROR_RACE, without having done anything.
 */
#define PLINTH_SANITIZER_ERROR 3

/**
 * An operation reads bytes.
 */
#define PLINTH_SANITIZER_READ 1

/**
 * An operation writes bytes. Both together are one that does both.
 */
#define PLINTH_SANITIZER_WRITE 2

/**
 * Nothing orders two accesses to the same bytes, of which one writes at least.
 */
#define PLINTH_SANITIZER_RACE 0

/**
 * The same, and between the two an allocator took the memory back and gave it out again.
 */
#define PLINTH_SANITIZER_REUSE 1

/**
 * Memory is used that was freed.
 */
#define PLINTH_SANITIZER_USE_AFTER_FREE 2

/**
 * The stream of the access, or the CPU, did not wait for that of the earlier one.
 */
#define PLINTH_SANITIZER_MISSING_WAIT 0

/**
 * It did, but before the earlier access was there.
 */
#define PLINTH_SANITIZER_MISSING_LATER_WAIT 1

/**
 * The stream of the earlier access was not recorded for the block (plinth_record_stream) before that was freed.
 */
#define PLINTH_SANITIZER_MISSING_RECORD_STREAM 2

/**
 * The block was freed before the access.
 */
#define PLINTH_SANITIZER_MISSING_LATER_FREE 3

/**
 * One rank's communicator: what it takes to work together with other ranks, which are devices of this process, or other
 * processes, on this machine or others. Opaque, and checked: a handle that was destroyed, is of another kind, or never was
 * one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_communicator plinth_communicator;

/**
 * A plan of Fourier transforms. Opaque, and checked.
 */
typedef struct plinth_cufft_plan plinth_cufft_plan;

/**
 * An event: a mark in a stream. Opaque, and checked: a handle that was destroyed, is of another kind, or never was
 * one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_event plinth_event;

/**
 * A generator of random numbers: Philox4x32-10 with a seed and an offset. Opaque, and checked: a handle that was
 * destroyed, is of another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_generator plinth_generator;

/**
 * A graph: work that is captured once and replayed as a whole. Opaque, and checked: a handle that was destroyed, is of
 * another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 *
 * Calls for one graph wait for each other; different graphs may be used by different threads at once.
 */
typedef struct plinth_graph plinth_graph;

/**
 * A function of the program's that was captured. Opaque, and checked: a handle that was destroyed, is of another kind, or
 * never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_graphed_callable plinth_graphed_callable;

/**
 * A green context: a part of a device's multiprocessors. Opaque, and checked.
 */
typedef struct plinth_green_context plinth_green_context;

/**
 * A jiterated function. Opaque, and checked: a handle that was destroyed, is of another kind, or never was one is answered
 * with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_jit_function plinth_jit_function;

/**
 * A kernel that was compiled from a program's own source, or found in a module. Opaque, and checked: a handle that was
 * destroyed, is of another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_kernel plinth_kernel;

/**
 * A module that was loaded from an image. Opaque, and checked.
 */
typedef struct plinth_kernel_module plinth_kernel_module;

/**
 * What plinth_nvtx_domain_t points at, never looked into.
 */
typedef struct plinth_nvtx_domain plinth_nvtx_domain;

/**
 * An allocator of the program's own: two functions and some hooks, with the signatures of torch's CUDAPluggableAllocator.
 * Opaque, and checked: a handle that was destroyed, is of another kind, or never was one is answered with
 * PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_pluggable_allocator plinth_pluggable_allocator;

/**
 * A store: small values under names, by which processes find each other before they have a communicator. Opaque, and checked
 * as every handle is.
 */
typedef struct plinth_store plinth_store;

/**
 * What plinth_telemetry_sampler_t points at, never looked into.
 */
typedef struct plinth_telemetry_sampler plinth_telemetry_sampler;

/**
 * What a call came to: PLINTH_OK, which is 0, or one of the PLINTH_ERROR_ constants. The numbers never change their
 * meaning; newer versions of the library add more, so a program treats one that it does not know as a failure.
 */
typedef int32_t plinth_status_t;

/**
 * What a device is. The names are torch's; sizes are in bytes.
 *
 * The struct grows at its end in newer versions, and programs compiled against older ones go on working: set
 * struct_size to sizeof(plinth_device_properties_t) before the call, as PLINTH_DEVICE_PROPERTIES_INIT does.
 */
typedef struct plinth_device_properties_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * The name, NUL-terminated.
   */
  char name[256];
  /**
   * The identity; all zero where the driver cannot tell it (before CUDA 11.4).
   */
  uint8_t uuid[16];
  /**
   * The place on the PCI bus, "0000:3b:00.0", NUL-terminated.
   */
  char pci_bus_id_text[32];
  /**
   * The memory.
   */
  uint64_t total_memory;
  /**
   * The second-level cache.
   */
  uint64_t l2_cache_size;
  /**
   * Shared memory that a block can have.
   */
  uint64_t shared_memory_per_block;
  /**
   * Shared memory that a block can have if its kernel asks for it.
   */
  uint64_t shared_memory_per_block_optin;
  /**
   * Shared memory of a multiprocessor.
   */
  uint64_t shared_memory_per_multiprocessor;
  /**
   * The first part of the compute capability.
   */
  int32_t major;
  /**
   * The second part of the compute capability.
   */
  int32_t minor;
  /**
   * Multiprocessors.
   */
  int32_t multi_processor_count;
  /**
   * Threads that a multiprocessor can hold.
   */
  int32_t max_threads_per_multi_processor;
  /**
   * Threads that a block can have.
   */
  int32_t max_threads_per_block;
  /**
   * Threads of a warp.
   */
  int32_t warp_size;
  /**
   * 32-bit registers of a multiprocessor.
   */
  int32_t regs_per_multiprocessor;
  /**
   * The highest clock of the multiprocessors, in kHz.
   */
  int32_t clock_rate;
  /**
   * The highest clock of the memory, in kHz.
   */
  int32_t memory_clock_rate;
  /**
   * The width of the bus to the memory, in bits.
   */
  int32_t memory_bus_width;
  /**
   * The PCI domain.
   */
  int32_t pci_domain_id;
  /**
   * The PCI bus.
   */
  int32_t pci_bus_id;
  /**
   * The PCI device.
   */
  int32_t pci_device_id;
  /**
   * 1 if the device shares the host's memory, else 0.
   */
  int32_t is_integrated;
  /**
   * 1 if the board holds several GPUs, else 0.
   */
  int32_t is_multi_gpu_board;
  /**
   * 1 if addresses and physical memory can be managed apart, else 0.
   */
  int32_t has_virtual_memory;
} plinth_device_properties_t;

/**
 * Is told of a warning. The message is valid during the call only.
 */
typedef void (*plinth_sync_debug_callback_t)(const char *message, void *context);

/**
 * What plinth_stream_context_exit must put back. Filled by plinth_stream_context_enter, and not to be changed.
 */
typedef struct plinth_stream_context_t {
  /**
   * The device that was current.
   */
  int32_t device;
  /**
   * The device of the stream that was entered.
   */
  int32_t entered_device;
  /**
   * The stream that was current on the device that was current.
   */
  plinth_stream_t stream;
  /**
   * The stream that was current on the device of the stream that was entered.
   */
  plinth_stream_t entered_stream;
} plinth_stream_context_t;

/**
 * A function that a stream calls. It must not unwind or throw, nor call CUDA or a function of plinth that does.
 */
typedef void (*plinth_host_function_t)(void *context);

/**
 * The handle of a green context.
 */
typedef struct plinth_green_context *plinth_green_context_t;

/**
 * The handle of an event.
 */
typedef struct plinth_event *plinth_event_t;

/**
 * A quantity that goes up and down.
 */
typedef struct plinth_host_stat_t {
  /**
   * What it is.
   */
  uint64_t current;
  /**
   * The most that it was, since the peaks were reset.
   */
  uint64_t peak;
  /**
   * The sum of all increases, since the sums were reset.
   */
  uint64_t allocated;
  /**
   * The sum of all decreases, since the sums were reset.
   */
  uint64_t freed;
} plinth_host_stat_t;

/**
 * How long calls of the driver took, in microseconds.
 */
typedef struct plinth_host_time_t {
  /**
   * All of them together, since the sums were reset.
   */
  uint64_t total;
  /**
   * The longest, since the peaks or the sums were reset.
   */
  uint64_t max;
  /**
   * The shortest, since then.
   */
  uint64_t min;
  /**
   * How many there were, since the sums were reset.
   */
  uint64_t count;
  /**
   * Their mean: total / count, rounded down; 0 where there was none.
   */
  uint64_t avg;
} plinth_host_time_t;

/**
 * The figures of pinned memory, by the names of torch.cuda.host_memory_stats. They are right where torch 2.11's are not:
 * active_requests and active_bytes go down with every block that may be given out again, by its own size.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_memory_stats_t) before the call.
 */
typedef struct plinth_host_memory_stats_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * Pieces of memory that the driver gave, each of one block or many.
   */
  struct plinth_host_stat_t allocations;
  /**
   * Blocks in the callers' hands, and freed ones that streams or graphs may still use.
   */
  struct plinth_host_stat_t active_requests;
  /**
   * Bytes that the driver gave.
   */
  struct plinth_host_stat_t allocated_bytes;
  /**
   * Bytes of the active blocks, each as large as it was rounded up to.
   */
  struct plinth_host_stat_t active_bytes;
  /**
   * How often the driver was asked for pinned memory and gave it, since the sums were reset.
   */
  uint64_t num_host_alloc;
  /**
   * How often it was given back, since the sums were reset.
   */
  uint64_t num_host_free;
  /**
   * What the former took.
   */
  struct plinth_host_time_t host_alloc_time;
  /**
   * What the latter took.
   */
  struct plinth_host_time_t host_free_time;
} plinth_host_memory_stats_t;

/**
 * Is told of a figure. The key is valid during the call only.
 */
typedef void (*plinth_host_memory_stats_visitor_t)(const char *key, uint64_t value, void *context);

/**
 * Memory of another process, as it is in this one.
 */
typedef struct plinth_ipc_memory_t {
  /**
   * The place that the other process named.
   */
  void *pointer;
  /**
   * The bytes from there to the end of the block that the other process had allocated.
   */
  size_t size;
  /**
   * How far that place is from the beginning of the block.
   */
  size_t offset;
  /**
   * The number of the memory's device in this process.
   */
  int32_t device;
  /**
   * 0.
   */
  int32_t reserved;
} plinth_ipc_memory_t;

/**
 * A message about memory, for a program that brings it to the other process itself.
 */
typedef struct plinth_ipc_export_t {
  /**
   * The bytes of the message.
   */
  uint8_t *bytes;
  /**
   * How many they are.
   */
  size_t size;
  /**
   * The file descriptors of the message, in order.
   */
  int32_t *descriptors;
  /**
   * How many they are.
   */
  size_t descriptor_count;
} plinth_ipc_export_t;

/**
 * The name of a pool. {0, 0} is the default pool, which has everything that goes to no other.
 */
typedef struct plinth_pool_id_t {
  /**
   * The capture that made it; 0 for one that a program made.
   */
  uint64_t owner;
  /**
   * Its number.
   */
  uint64_t index;
} plinth_pool_id_t;

/**
 * The handle of such an allocator.
 */
typedef struct plinth_pluggable_allocator *plinth_pluggable_allocator_t;

/**
 * A quantity that goes up and down.
 */
typedef struct plinth_memory_stat_t {
  /**
   * What it is.
   */
  int64_t current;
  /**
   * The most that it was, since the peaks were reset.
   */
  int64_t peak;
  /**
   * The sum of all increases, since the sums were reset.
   */
  int64_t allocated;
  /**
   * The sum of all decreases, since the sums were reset.
   */
  int64_t freed;
} plinth_memory_stat_t;

/**
 * A quantity of the whole, and of requests up to 1 MiB and above.
 */
typedef struct plinth_memory_stat_by_pool_t {
  /**
   * The whole.
   */
  struct plinth_memory_stat_t all;
  /**
   * Small blocks.
   */
  struct plinth_memory_stat_t small_pool;
  /**
   * Large blocks.
   */
  struct plinth_memory_stat_t large_pool;
} plinth_memory_stat_by_pool_t;

/**
 * All that the allocator counts; the names are those of torch.cuda.memory_stats.
 *
 * The struct grows at its end in newer versions, and programs compiled against older ones go on working: set struct_size to
 * sizeof(plinth_memory_stats_t) before the call.
 */
typedef struct plinth_memory_stats_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * Blocks in the program's hands.
   */
  struct plinth_memory_stat_by_pool_t allocation;
  /**
   * Pieces of memory that the driver gave.
   */
  struct plinth_memory_stat_by_pool_t segment;
  /**
   * Blocks in the program's hands, and freed ones that a stream may still be using.
   */
  struct plinth_memory_stat_by_pool_t active;
  /**
   * Free blocks in pieces that are partly in use, and so cannot go back to the driver. They are counted when somebody
   * asks, so peak and sums are those of what was told.
   */
  struct plinth_memory_stat_by_pool_t inactive_split;
  /**
   * Bytes in the program's hands, each request rounded up to 512.
   */
  struct plinth_memory_stat_by_pool_t allocated_bytes;
  /**
   * Bytes that the driver gave.
   */
  struct plinth_memory_stat_by_pool_t reserved_bytes;
  /**
   * Bytes of the active blocks.
   */
  struct plinth_memory_stat_by_pool_t active_bytes;
  /**
   * Bytes of the free blocks that cannot go back to the driver, counted as those.
   */
  struct plinth_memory_stat_by_pool_t inactive_split_bytes;
  /**
   * Bytes that the program asked for, before rounding.
   */
  struct plinth_memory_stat_by_pool_t requested_bytes;
  /**
   * Blocks in the program's hands of at least max_split_size.
   */
  struct plinth_memory_stat_t oversize_allocations;
  /**
   * Pieces of memory from the driver of at least max_split_size.
   */
  struct plinth_memory_stat_t oversize_segments;
  /**
   * Requests that were met only after the device was waited for.
   */
  int64_t num_alloc_retries;
  /**
   * Requests that failed for want of memory.
   */
  int64_t num_ooms;
  /**
   * Blocks of this size and above are not split; -1 where every block may be.
   */
  int64_t max_split_size;
  /**
   * Times that every stream was waited for.
   */
  int64_t num_sync_all_streams;
  /**
   * Driver calls that brought memory.
   */
  int64_t num_device_alloc;
  /**
   * Driver calls that gave memory back.
   */
  int64_t num_device_free;
} plinth_memory_stats_t;

/**
 * Hears of a figure: torch's key for it, which is valid during the call, its value, and the context.
 */
typedef void (*plinth_memory_stats_callback_t)(const char *name, int64_t value, void *context);

/**
 * How a history is kept. PLINTH_MEMORY_HISTORY_OPTIONS_INIT is torch's default: everything, without end.
 *
 * The struct grows at its end in newer versions, and what a program does not know of has its default then: set struct_size
 * to sizeof(plinth_memory_history_options_t).
 */
typedef struct plinth_memory_history_options_t {
  /**
   * The size that the caller knows.
   */
  size_t struct_size;
  /**
   * What is kept: one of PLINTH_MEMORY_HISTORY_....
   */
  int32_t enabled;
  /**
   * For what the caller is found out: one of PLINTH_MEMORY_CONTEXT_....
   */
  int32_t context;
  /**
   * How many entries of a device are kept: the newest. 0 is no limit.
   */
  uint64_t max_entries;
  /**
   * 1 forgets what was kept before, else 0.
   */
  int32_t clear_history;
  /**
   * 1 keeps annotations, else 0.
   */
  int32_t record_annotations;
  /**
   * The actions that are not kept: the sum of 1 << PLINTH_MEMORY_ACTION_... for each.
   */
  uint32_t skip_actions;
  /**
   * 0.
   */
  uint32_t reserved;
} plinth_memory_history_options_t;

/**
 * Something that happened. What it points at is valid during the call that shows it.
 */
typedef struct plinth_memory_history_entry_t {
  /**
   * What happened: one of PLINTH_MEMORY_ACTION_....
   */
  int32_t action;
  /**
   * The device's number.
   */
  int32_t device;
  /**
   * Where: the block's address or the segment's. For an OOM how many bytes the device had free.
   */
  uint64_t address;
  /**
   * Its bytes: those that were asked for, of a block; those that there are, of a segment.
   */
  uint64_t size;
  /**
   * The stream that the memory is for.
   */
  plinth_stream_t stream;
  /**
   * The pool that the memory is of.
   */
  struct plinth_pool_id_t pool;
  /**
   * When: microseconds since 1970.
   */
  uint64_t time_us;
  /**
   * The thread, by the system's number (gettid).
   */
  uint64_t thread;
  /**
   * The thread's tag then, from plinth_set_memory_metadata; an empty text if there was none.
   */
  const char *metadata;
  /**
   * Who called, for plinth_memory_stack_each; 0 where that was not found out.
   */
  uint32_t stack;
  /**
   * 0.
   */
  uint32_t reserved;
} plinth_memory_history_entry_t;

/**
 * Is shown an entry of the history, and the context.
 */
typedef void (*plinth_memory_history_callback_t)(const struct plinth_memory_history_entry_t *entry,
                                                 void *context);

/**
 * Is shown a function of a call stack: its name, its file, its line from 1 or 0 if that is not known, and the context. The
 * texts are valid during the call.
 */
typedef void (*plinth_memory_frame_callback_t)(const char *name,
                                               const char *file,
                                               uint32_t line,
                                               void *context);

/**
 * Is shown an annotation: the thread's device then, the microseconds since 1970, the name, which is valid during the call,
 * whether it began, and the context.
 */
typedef void (*plinth_memory_annotation_callback_t)(int32_t device,
                                                    uint64_t time_us,
                                                    const char *name,
                                                    bool begin,
                                                    void *context);

/**
 * What is known of a pointer.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_pointer_attributes_t) before the call.
 */
typedef struct plinth_pointer_attributes_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * PLINTH_MEMORY_...: the kind of memory.
   */
  int32_t kind;
  /**
   * The device that it belongs to; of pinned memory the one that was current when it was pinned. -1 for unregistered
   * memory.
   */
  int32_t device;
  /**
   * PLINTH_OWNER_...: who has it from the driver.
   */
  int32_t owner;
  /**
   * 1 if the addresses and the memory behind them were made apart, so that memory may move, else 0.
   */
  int32_t is_virtual;
  /**
   * The address by which devices use it; NULL if they cannot.
   */
  void *device_pointer;
  /**
   * The address by which the host uses it; NULL if it cannot, and for unregistered memory.
   */
  void *host_pointer;
  /**
   * Where the block begins that the pointer lies in: one of an allocator's of the library, else of the driver's. NULL for
   * unregistered memory and for free memory of an allocator's.
   */
  void *base;
  /**
   * The bytes of the block.
   */
  size_t size;
  /**
   * Where the piece of memory begins that the driver knows, in which the block lies; NULL for unregistered memory.
   */
  void *range_base;
  /**
   * The bytes of that.
   */
  size_t range_size;
  /**
   * The pool of the caching allocator that it belongs to; {0, 0} for the default one and for all other memory.
   */
  struct plinth_pool_id_t pool;
} plinth_pointer_attributes_t;

/**
 * The hooks of an allocator of the program's own; NULL for those that it has not. They are torch's, and are called from any
 * thread, with nothing of the library's held.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_allocator_hooks_t), and the rest to 0.
 */
typedef struct plinth_allocator_hooks_t {
  /**
   * The size that the caller knows.
   */
  size_t struct_size;
  /**
   * Called once before the first request, with the number of devices.
   */
  void (*init)(int device_count);
  /**
   * Called by plinth_empty_cache, and when there is no memory for a request.
   */
  void (*reset)(void);
  /**
   * Called by plinth_set_per_process_memory_fraction.
   */
  void (*memory_fraction)(double fraction, int device);
  /**
   * Gives the base of the allocation that a pointer is in, and writes its bytes.
   */
  void *(*base_alloc)(void *pointer, size_t *size);
  /**
   * Called by plinth_record_stream. An allocator without it must keep freed memory from streams that still use it in
   * another way.
   */
  void (*record_stream)(void *pointer, plinth_stream_t stream);
  /**
   * Called when requests begin to go to a pool, with an empty std::function for a filter: any stream may be meant.
   */
  void (*begin_allocate_to_pool)(int device, struct plinth_pool_id_t pool, void *filter);
  /**
   * Called when they do so no longer.
   */
  void (*end_allocate_to_pool)(int device, struct plinth_pool_id_t pool);
  /**
   * Called when a pool has lost a user.
   */
  void (*release_pool)(int device, struct plinth_pool_id_t pool);
} plinth_allocator_hooks_t;

/**
 * The handle of a graph.
 */
typedef struct plinth_graph *plinth_graph_t;

/**
 * The handle of a generator. Where a function takes one, NULL stands for the device's default generator.
 */
typedef struct plinth_generator *plinth_generator_t;

/**
 * What plinth_graph_end must put back. Filled by plinth_graph_begin, and not to be changed.
 */
typedef struct plinth_graph_context_t {
  /**
   * The graph.
   */
  plinth_graph_t graph;
  /**
   * The streams and the device that were current.
   */
  struct plinth_stream_context_t streams;
} plinth_graph_context_t;

/**
 * A launch of a kernel.
 */
typedef struct plinth_graph_kernel_t {
  /**
   * The kernel: a CUfunction, or a cudaFunction_t, which is the same. It must be loaded as long as the graph has it, in
   * the primary context of the graph's device.
   */
  void *function;
  /**
   * How many blocks, along each axis.
   */
  uint32_t grid[3];
  /**
   * How many threads a block has, along each axis.
   */
  uint32_t block[3];
  /**
   * Dynamic shared memory, in bytes a block.
   */
  uint32_t shared_bytes;
  /**
   * The address of each parameter, in order; what they lead to is copied by the call. May be NULL for a kernel without
   * parameters.
   */
  void **parameters;
} plinth_graph_kernel_t;

/**
 * A condition: the same value as a `cudaGraphConditionalHandle`, which kernels of the program's give to
 * `cudaGraphSetConditional(condition, value)`. It is looked up before it is used, so that a wrong one is an error.
 */
typedef uint64_t plinth_graph_condition_t;

/**
 * How long a node of a graph takes, alone on its device.
 */
typedef struct plinth_node_time_t {
  /**
   * The node.
   */
  plinth_graph_node_t node;
  /**
   * One of PLINTH_GRAPH_NODE_....
   */
  uint32_t node_type;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * The median of its times, in microseconds.
   */
  double microseconds;
  /**
   * What it does: a kernel's name and launch, a copy's addresses. Cut off where it is longer.
   */
  char what[128];
} plinth_node_time_t;

/**
 * A pass of a callable: gives work to the stream, which is current, that reads the inputs and writes the outputs. It is
 * called only while plinth_make_graphed_callables runs: a few times for warming up, then once to be captured, when it must
 * do what it will do at each call, without waiting for the device. What it allocates from the caching allocator in between
 * comes from the graphs' pool. It must not unwind or throw. Anything but PLINTH_OK ends plinth_make_graphed_callables with
 * that status.
 */
typedef plinth_status_t (*plinth_callable_fn)(void *context,
                                              const DLTensor *inputs,
                                              size_t input_count,
                                              DLTensor *outputs,
                                              size_t output_count,
                                              plinth_stream_t stream);

/**
 * A function of the program's, and what it is captured with.
 */
typedef struct plinth_callable_t {
  /**
   * From the inputs to the outputs.
   */
  plinth_callable_fn forward;
  /**
   * From the gradients of the outputs to those of the inputs; NULL if there is none. What it needs of the forward pass
   * that one must leave where both know.
   */
  plinth_callable_fn backward;
  /**
   * Passed to both.
   */
  void *context;
  /**
   * The inputs that are captured. Their memory stays the program's, and valid until the callable is destroyed: a call
   * copies other inputs there. Each fills one piece of memory.
   */
  const DLTensor *inputs;
  /**
   * How many inputs.
   */
  size_t input_count;
  /**
   * What the outputs are: device, type and shape. Data and strides are not looked at: the library allocates outputs in the
   * graphs' pool, with their elements side by side.
   */
  const DLTensor *outputs;
  /**
   * How many outputs.
   */
  size_t output_count;
  /**
   * For each input whether the backward pass gives its gradient; NULL if it does for all. A gradient that it does not
   * give has NULL for data.
   */
  const bool *differentiable;
} plinth_callable_t;

/**
 * The handle of a graphed callable.
 */
typedef struct plinth_graphed_callable *plinth_graphed_callable_t;

/**
 * Frees memory that the program can do without, when there is none for a request. It is called in the thread that asks,
 * with no lock of the library's held, and may call the library; it is not called again from within itself.
 *
 * Its arguments are the device, the bytes that were asked for, and the context. It returns whether it freed anything: if
 * so, the request is tried again.
 */
typedef bool (*plinth_free_memory_callback_t)(int32_t device, size_t size, void *context);

/**
 * Hears of a request that fails for want of memory, just before the call returns: the device, the bytes that were asked
 * for, the device's total and free bytes, and the context. The rules of plinth_free_memory_callback_t hold.
 */
typedef void (*plinth_out_of_memory_observer_t)(int32_t device,
                                                size_t requested,
                                                size_t device_total,
                                                size_t device_free,
                                                void *context);

/**
 * How a snapshot is written: one of the PLINTH_SNAPSHOT_ constants.
 */
typedef int32_t plinth_snapshot_format_t;

/**
 * A segment of a snapshot: a run of addresses with memory behind them, of one stream in one pool of one device.
 *
 * The struct grows at its end in newer versions, and struct_size says how much of it the library has filled.
 */
typedef struct plinth_memory_segment_t {
  /**
   * The size of the struct as the library knows it.
   */
  size_t struct_size;
  /**
   * Where it begins.
   */
  uint64_t address;
  /**
   * Its bytes; its blocks have them all.
   */
  uint64_t total_size;
  /**
   * Bytes in the program's hands, each request rounded up.
   */
  uint64_t allocated_size;
  /**
   * Those, and bytes that were freed while other streams may still use them.
   */
  uint64_t active_size;
  /**
   * The bytes that were asked for of those.
   */
  uint64_t requested_size;
  /**
   * Bytes whose physical memory is away, since the pool sleeps.
   */
  uint64_t asleep_size;
  /**
   * The handle of the stream that it serves.
   */
  uint64_t stream;
  /**
   * The pool.
   */
  struct plinth_pool_id_t pool;
  /**
   * How many blocks it has.
   */
  size_t block_count;
  /**
   * The device's number.
   */
  int32_t device;
  /**
   * Whether it holds requests above 1 MiB.
   */
  bool is_large;
  /**
   * Whether it can grow and shrink: it consists of handles that are mapped.
   */
  bool is_expandable;
} plinth_memory_segment_t;

/**
 * What a block is: one of the PLINTH_BLOCK_ constants.
 */
typedef int32_t plinth_block_state_t;

/**
 * A block of a segment. The struct grows as plinth_memory_segment_t does.
 */
typedef struct plinth_memory_block_t {
  /**
   * The size of the struct as the library knows it.
   */
  size_t struct_size;
  /**
   * Where it begins.
   */
  uint64_t address;
  /**
   * Its bytes.
   */
  uint64_t size;
  /**
   * The bytes that were asked for; 0 for a free block.
   */
  uint64_t requested_size;
  /**
   * What it is.
   */
  plinth_block_state_t state;
  /**
   * 0.
   */
  int32_t reserved;
} plinth_memory_block_t;

/**
 * Hears of a segment and one of its blocks, in the thread that called and with no lock of the library's held; it may call
 * the library. Both are valid until it returns.
 *
 * Its arguments are the segment; the block, which is NULL once for each segment, before its blocks; and the context. It
 * returns whether to go on.
 */
typedef bool (*plinth_memory_snapshot_callback_t)(const struct plinth_memory_segment_t *segment,
                                                  const struct plinth_memory_block_t *block,
                                                  void *context);

/**
 * How a communicator is made.
 */
typedef struct plinth_communicator_options_t {
  /**
   * sizeof(plinth_communicator_options_t).
   */
  size_t struct_size;
  /**
   * How long ranks wait for each other, in milliseconds; 0 for ten minutes.
   */
  uint64_t timeout_milliseconds;
  /**
   * One of PLINTH_ENGINE_.
   */
  uint32_t engine;
  /**
   * 0, or PLINTH_COMMUNICATOR_NONBLOCKING and _UNLIMITED or-ed together.
   */
  uint32_t flags;
} plinth_communicator_options_t;

/**
 * The handle of a communicator.
 */
typedef struct plinth_communicator *plinth_communicator_t;

/**
 * A named scalar: the default that a function declares, or the value that a call gives. Of the values only what `kind`
 * names counts.
 */
typedef struct plinth_jit_scalar_t {
  /**
   * The name.
   */
  const char *name;
  /**
   * One of the PLINTH_JIT_ constants above.
   */
  int32_t kind;
  /**
   * 0.
   */
  int32_t reserved;
  /**
   * A bool or an integer.
   */
  int64_t integer;
  /**
   * A double, or the real part.
   */
  double real;
  /**
   * The imaginary part.
   */
  double imaginary;
} plinth_jit_scalar_t;

/**
 * The handle of a jiterated function.
 */
typedef struct plinth_jit_function *plinth_jit_function_t;

/**
 * The handle of a kernel.
 */
typedef struct plinth_kernel *plinth_kernel_t;

/**
 * The handle of a module.
 */
typedef struct plinth_kernel_module *plinth_kernel_module_t;

/**
 * What is known of a kernel.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_kernel_attributes_t) before the call, as
 * PLINTH_KERNEL_ATTRIBUTES_INIT does.
 */
typedef struct plinth_kernel_attributes_t {
  /**
   * In: the bytes of the struct. Out: how many of them were filled.
   */
  size_t struct_size;
  /**
   * Registers a thread.
   */
  int32_t registers;
  /**
   * Static shared memory, in bytes a block.
   */
  int32_t shared_bytes;
  /**
   * The most dynamic shared memory that a launch may have as things are, in bytes.
   */
  int32_t max_dynamic_shared_bytes;
  /**
   * Local memory, in bytes a thread: what did not fit into registers.
   */
  int32_t local_bytes;
  /**
   * Constant memory, in bytes.
   */
  int32_t const_bytes;
  /**
   * The most threads of a block.
   */
  int32_t max_threads_per_block;
  /**
   * The virtual architecture that it was compiled for, 90 for compute_90.
   */
  int32_t ptx_version;
  /**
   * The architecture that its code is for, 90 for sm_90.
   */
  int32_t binary_version;
} plinth_kernel_attributes_t;

/**
 * How a kernel is launched. An extent of 0 is 1. PLINTH_KERNEL_LAUNCH_INIT is one block of one thread.
 */
typedef struct plinth_kernel_launch_t {
  /**
   * sizeof(plinth_kernel_launch_t).
   */
  size_t struct_size;
  /**
   * How many blocks, along x, y and z.
   */
  uint32_t grid[3];
  /**
   * How many threads a block has.
   */
  uint32_t block[3];
  /**
   * How many blocks a cluster has; all 0 for no clusters. The grid must be a multiple of it.
   */
  uint32_t cluster[3];
  /**
   * Dynamic shared memory, in bytes a block; more than 48 KiB, too.
   */
  uint32_t shared_bytes;
  /**
   * PLINTH_LAUNCH_COOPERATIVE, or 0.
   */
  uint32_t flags;
} plinth_kernel_launch_t;

/**
 * An argument of a launch.
 */
typedef struct plinth_kernel_argument_t {
  /**
   * Where the value is.
   */
  const void *value;
  /**
   * The bytes of the value where `kind` is PLINTH_ARGUMENT_BYTES; else 0.
   */
  size_t bytes;
  /**
   * One of the PLINTH_ARGUMENT_ constants.
   */
  int32_t kind;
  /**
   * What the kernel does to the elements of a tensor, for the stream sanitizer: PLINTH_SANITIZER_READ,
   * PLINTH_SANITIZER_WRITE, or both. 0 leaves that open, and counts as reading, which is never too much: it is in conflict
   * with what others write, and that is wrong whatever the kernel does. 0 for what is no tensor.
   */
  uint32_t access;
} plinth_kernel_argument_t;

/**
 * The handle of a store.
 */
typedef struct plinth_store *plinth_store_t;

/**
 * What a plan is for. PLINTH_CUFFT_PARAMS_INIT sets struct_size, and the rest to 0.
 */
typedef struct plinth_cufft_params_t {
  /**
   * sizeof(plinth_cufft_params_t).
   */
  size_t struct_size;
  /**
   * How many dimensions a signal has: 1, 2 or 3.
   */
  int32_t rank;
  /**
   * PLINTH_CUFFT_C2C, _R2C or _C2R.
   */
  int32_t transform;
  /**
   * The type of the real numbers, or of the parts of complex ones: a float of 16, 32 or 64 bits.
   */
  DLDataType number;
  /**
   * How many signals there are, then the size of each dimension, as of real numbers.
   */
  int64_t sizes[4];
  /**
   * The distance of neighbours in the input, in its elements: of signals, then in each dimension. All 0: side by
   * side.
   */
  int64_t input_strides[4];
  /**
   * The same of the output.
   */
  int64_t output_strides[4];
} plinth_cufft_params_t;

/**
 * The handle of a plan.
 */
typedef struct plinth_cufft_plan *plinth_cufft_plan_t;

/**
 * All readings of a device at a moment. Which of them there are, `valid` tells; the others are 0.
 */
typedef struct plinth_telemetry_t {
  /**
   * In: sizeof(plinth_telemetry_t), so that later versions may add to it. No more than that is written.
   */
  size_t struct_size;
  /**
   * When they were read, in microseconds since 1970.
   */
  uint64_t time_us;
  /**
   * PLINTH_TELEMETRY_ bits: what is known.
   */
  uint32_t valid;
  /**
   * Per cent of the time in which at least one kernel ran. The card chooses the period, from 1/6 to 1 s.
   */
  uint32_t utilization;
  /**
   * Per cent of the time in which memory was read or written; not how much of it is in use.
   */
  uint32_t memory_usage;
  /**
   * Degrees Celsius.
   */
  uint32_t temperature;
  /**
   * Milliwatts.
   */
  uint32_t power_draw;
  /**
   * Megahertz of the multiprocessors.
   */
  uint32_t clock_rate;
  /**
   * Megahertz of the memory.
   */
  uint32_t memory_clock_rate;
  /**
   * Nothing yet.
   */
  uint32_t reserved;
  /**
   * Bytes that all processes have.
   */
  uint64_t memory_used;
  /**
   * Millijoules since the driver was loaded.
   */
  uint64_t energy;
  /**
   * PLINTH_THROTTLE_ bits.
   */
  uint64_t throttle_reasons;
} plinth_telemetry_t;

/**
 * A process that computes on a device.
 */
typedef struct plinth_gpu_process_t {
  /**
   * The bytes of the device's memory that it has; UINT64_MAX where the driver does not tell.
   */
  uint64_t memory_used;
  /**
   * Its number.
   */
  uint32_t pid;
  /**
   * Nothing yet.
   */
  uint32_t reserved;
} plinth_gpu_process_t;

/**
 * A sampler of a device's telemetry.
 */
typedef struct plinth_telemetry_sampler *plinth_telemetry_sampler_t;

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

/**
 * One of the two accesses of a report.
 */
typedef struct plinth_sanitizer_side_t {
  /**
   * The library's call, or the name that the program gave its operation; NULL where there is no such access.
   */
  const char *name;
  /**
   * The first byte of the access.
   */
  uint64_t address;
  /**
   * How many there are.
   */
  uint64_t bytes;
  /**
   * The number of the operation, in the order in which the calls were made.
   */
  uint64_t operation;
  /**
   * The stream; NULL is a default stream, or the CPU.
   */
  plinth_stream_t stream;
  /**
   * The stream's device; -1 for the CPU.
   */
  int32_t device;
  /**
   * PLINTH_SANITIZER_READ, _WRITE, or both.
   */
  uint32_t kind;
} plinth_sanitizer_side_t;

/**
 * Something that the sanitizer found. What it points at is valid during the call that shows it.
 */
typedef struct plinth_sanitizer_report_t {
  /**
   * The size of the struct, which grows at its end in newer versions.
   */
  size_t struct_size;
  /**
   * What is wrong: PLINTH_SANITIZER_RACE, _REUSE or _USE_AFTER_FREE.
   */
  int32_t kind;
  /**
   * What would have ordered the two: one of PLINTH_SANITIZER_MISSING_....
   */
  int32_t missing;
  /**
   * The first byte that is concerned.
   */
  uint64_t address;
  /**
   * How many there are.
   */
  uint64_t bytes;
  /**
   * How often it was found so far.
   */
  uint64_t times;
  /**
   * The access at which it was found.
   */
  struct plinth_sanitizer_side_t access;
  /**
   * The earlier one; without a name if freed memory was used.
   */
  struct plinth_sanitizer_side_t previous;
  /**
   * All that is known, in words, on several lines: both accesses with the calls' stacks, what would have ordered them, the
   * block and who asked for it.
   */
  const char *text;
  /**
   * The same as a JSON object; see plinth_sanitizer_json.
   */
  const char *json;
} plinth_sanitizer_report_t;

/**
 * Is shown a report, and the context.
 */
typedef void (*plinth_sanitizer_callback_t)(const struct plinth_sanitizer_report_t *report, void *context);

/**
 * Bytes that an operation works on.
 */
typedef struct plinth_sanitizer_access_t {
  /**
   * The first. NULL with 0 bytes is none.
   */
  const void *pointer;
  /**
   * How many bytes.
   */
  size_t bytes;
  /**
   * PLINTH_SANITIZER_READ, _WRITE, or both.
   */
  uint32_t kind;
  /**
   * 0.
   */
  uint32_t reserved;
} plinth_sanitizer_access_t;

/**
 * What the host device holds at a moment: for tests that nothing is lost.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_host_usage_t) before the call.
 */
typedef struct plinth_host_usage_t {
  /**
   * In: the size that the caller knows. Out: how much of it was filled.
   */
  size_t struct_size;
  /**
   * Bytes of device memory in use, all devices together.
   */
  uint64_t device_bytes;
  /**
   * Bytes of pinned host memory.
   */
  uint64_t pinned_bytes;
  /**
   * Streams that were created and not destroyed.
   */
  uint64_t streams;
  /**
   * Events that were created and not destroyed.
   */
  uint64_t events;
  /**
   * Graphs that were created and not destroyed.
   */
  uint64_t graphs;
  /**
   * Executable graphs that were instantiated and not destroyed.
   */
  uint64_t executable_graphs;
  /**
   * Modules that were loaded and not unloaded.
   */
  uint64_t modules;
  /**
   * Handles of physical memory.
   */
  uint64_t memory_handles;
  /**
   * Mappings of physical memory.
   */
  uint64_t mappings;
  /**
   * Reserved ranges of addresses.
   */
  uint64_t reservations;
  /**
   * Threads that work at this moment, or wait for work.
   */
  uint64_t threads;
} plinth_host_usage_t;

/**
 * The call succeeded.
 */
#define PLINTH_OK 0

/**
 * An argument is out of range or malformed.
 */
#define PLINTH_ERROR_INVALID_VALUE 1

/**
 * A pointer that must not be NULL is NULL.
 */
#define PLINTH_ERROR_NULL_POINTER 2

/**
 * There is no device with this number.
 */
#define PLINTH_ERROR_INVALID_DEVICE 3

/**
 * The handle was never given out, was destroyed, or is of another kind.
 */
#define PLINTH_ERROR_INVALID_HANDLE 4

/**
 * The pointer is not memory that the device knows.
 */
#define PLINTH_ERROR_INVALID_POINTER 5

/**
 * There is not enough free memory for the request.
 */
#define PLINTH_ERROR_OUT_OF_MEMORY 6

/**
 * This machine has no CUDA driver, or no device that the process may see.
 */
#define PLINTH_ERROR_NO_DEVICE 7

/**
 * The CUDA driver lacks a call that is needed.
 */
#define PLINTH_ERROR_DRIVER_TOO_OLD 8

/**
 * The libcuda that was found is the toolkit's stub, not a driver.
 */
#define PLINTH_ERROR_STUB_LIBRARY 9

/**
 * An environment variable has a value that makes no sense.
 */
#define PLINTH_ERROR_INVALID_CONFIGURATION 10

/**
 * It is too late for this call: the library is initialized.
 */
#define PLINTH_ERROR_ALREADY_INITIALIZED 11

/**
 * A child made by fork cannot use the devices of its parent.
 */
#define PLINTH_ERROR_FORKED_CHILD 12

/**
 * The process is exiting, and the driver must not be called any more.
 */
#define PLINTH_ERROR_SHUTTING_DOWN 13

/**
 * The device or its driver cannot do this.
 */
#define PLINTH_ERROR_NOT_SUPPORTED 14

/**
 * The objects belong to different devices.
 */
#define PLINTH_ERROR_DEVICE_MISMATCH 15

/**
 * Both events must be created with PLINTH_EVENT_TIMING.
 */
#define PLINTH_ERROR_EVENT_TIMING_DISABLED 16

/**
 * Both events must be recorded before the time between them is asked.
 */
#define PLINTH_ERROR_EVENT_NOT_RECORDED 17

/**
 * Both events must be complete before the time between them is asked.
 */
#define PLINTH_ERROR_EVENT_NOT_COMPLETE 18

/**
 * The call would wait for the device, and the sync debug mode forbids that.
 */
#define PLINTH_ERROR_WOULD_SYNCHRONIZE 19

/**
 * The call is not permitted while a stream is capturing.
 */
#define PLINTH_ERROR_CAPTURE_FORBIDS 20

/**
 * An earlier error made the capture invalid.
 */
#define PLINTH_ERROR_CAPTURE_INVALIDATED 21

/**
 * The two devices cannot access each other's memory.
 */
#define PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED 22

/**
 * Work on the device touched memory that it may not; the context is lost.
 */
#define PLINTH_ERROR_ILLEGAL_ADDRESS 23

/**
 * A kernel failed on the device; the context is lost.
 */
#define PLINTH_ERROR_LAUNCH_FAILED 24

/**
 * A driver call failed; plinth_last_driver_error has its code.
 */
#define PLINTH_ERROR_DRIVER 25

/**
 * A call to the operating system failed.
 */
#define PLINTH_ERROR_SYSTEM 26

/**
 * A defect in the library was caught before it could reach the caller.
 */
#define PLINTH_ERROR_PANIC 27

/**
 * The generator is not registered with the graph that is being captured.
 */
#define PLINTH_ERROR_GENERATOR_NOT_REGISTERED 28

/**
 * The graph owns a capture already; reset it, or make another graph, to capture again.
 */
#define PLINTH_ERROR_GRAPH_CAPTURED 29

/**
 * The graph is being captured, and the call is about a capture that has ended.
 */
#define PLINTH_ERROR_GRAPH_CAPTURING 30

/**
 * The graph is not being captured.
 */
#define PLINTH_ERROR_GRAPH_NOT_CAPTURING 31

/**
 * The graph has no capture yet that succeeded.
 */
#define PLINTH_ERROR_GRAPH_NOT_CAPTURED 32

/**
 * A graph is captured in a stream other than the default one; replays may be in any.
 */
#define PLINTH_ERROR_GRAPH_DEFAULT_STREAM 33

/**
 * A capture ends in the stream that it began in.
 */
#define PLINTH_ERROR_GRAPH_WRONG_STREAM 34

/**
 * A capture that is not relaxed ends in the thread that it began in.
 */
#define PLINTH_ERROR_GRAPH_WRONG_THREAD 35

/**
 * A stream that took part in the capture was not joined to the one that the capture began in.
 */
#define PLINTH_ERROR_GRAPH_UNJOINED 36

/**
 * Nothing was captured.
 */
#define PLINTH_ERROR_GRAPH_EMPTY 37

/**
 * The graph has no nodes to look at: it was made to keep only what replays.
 */
#define PLINTH_ERROR_GRAPH_NOT_KEPT 38

/**
 * The memory of the graph is asleep; wake it first.
 */
#define PLINTH_ERROR_GRAPH_ASLEEP 39

/**
 * Memory of the pool is in the hands of others than its graphs.
 */
#define PLINTH_ERROR_GRAPH_MEMORY_IN_USE 40

/**
 * Another replay of the pool's graphs still runs in another stream.
 */
#define PLINTH_ERROR_GRAPH_OVERLAP 41

/**
 * The graphs differ in what an update cannot change.
 */
#define PLINTH_ERROR_GRAPH_UPDATE_REFUSED 42

/**
 * Memory debugging found bytes that somebody wrote who should not have.
 */
#define PLINTH_ERROR_MEMORY_CORRUPTED 43

/**
 * The memory came from another process, and only that can share it.
 */
#define PLINTH_ERROR_IPC_REEXPORT 44

/**
 * The process at the other end is gone, or gave up.
 */
#define PLINTH_ERROR_IPC_PEER_GONE 45

/**
 * Memory of this kind cannot be shared in this way.
 */
#define PLINTH_ERROR_IPC_NOT_SHAREABLE 46

/**
 * Others did not do their part in time.
 */
#define PLINTH_ERROR_TIMED_OUT 47

/**
 * Another rank's process has ended, or has left the group.
 */
#define PLINTH_ERROR_PEER_LOST 48

/**
 * The group was aborted, here or by another rank.
 */
#define PLINTH_ERROR_ABORTED 49

/**
 * The ranks of a group made calls that do not belong together.
 */
#define PLINTH_ERROR_RANK_MISMATCH 50

/**
 * A call of NCCL failed; the message says which.
 */
#define PLINTH_ERROR_NCCL 51

/**
 * NCCL is needed, and it is not on this machine, or is too old.
 */
#define PLINTH_ERROR_NCCL_UNAVAILABLE 52

/**
 * The communicator is still being made.
 */
#define PLINTH_ERROR_COMMUNICATOR_NOT_READY 53

/**
 * NVML, which knows what GPUs are doing, is not on this machine or cannot be used.
 */
#define PLINTH_ERROR_NVML_UNAVAILABLE 54

/**
 * A call of one of CUDA's libraries failed; the message says which.
 */
#define PLINTH_ERROR_LIBRARY 55

/**
 * One of CUDA's libraries is needed, and it is not on this machine, or is too old.
 */
#define PLINTH_ERROR_LIBRARY_UNAVAILABLE 56

/**
 * The stream sanitizer found that nothing orders the call after others that it must come after.
 */
#define PLINTH_ERROR_RACE 57

/**
 * A compiler is needed, and it is not on this machine, or is too old.
 */
#define PLINTH_ERROR_COMPILER_UNAVAILABLE 58

/**
 * The source does not compile; the message has the compiler's log.
 */
#define PLINTH_ERROR_COMPILATION_FAILED 59

/**
 * As the name of the file ends: .json is JSON, .html and .htm are a page, and everything else is a pickle.
 */
#define PLINTH_SNAPSHOT_BY_NAME 0

/**
 * The pickle of torch.cuda.memory._dump_snapshot, which <https://pytorch.org/memory_viz> and torch's _memory_viz.py read.
 */
#define PLINTH_SNAPSHOT_PICKLE 1

/**
 * The same structure as JSON, as plinth_memory_snapshot gives it.
 */
#define PLINTH_SNAPSHOT_JSON 2

/**
 * An HTML page that shows the snapshot in any browser, without a network.
 */
#define PLINTH_SNAPSHOT_HTML 3

/**
 * Free: "inactive".
 */
#define PLINTH_BLOCK_INACTIVE 0

/**
 * Freed, while other streams may still use it: "active_pending_free".
 */
#define PLINTH_BLOCK_PENDING_FREE 1

/**
 * In the program's hands: "active_allocated".
 */
#define PLINTH_BLOCK_ALLOCATED 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the name of a status, "PLINTH_ERROR_OUT_OF_MEMORY"; "PLINTH_ERROR_UNKNOWN" for a number that is none.
 *
 * The text is static. Thread-safe; needs no device.
 *
 * @param status The status.
 * @return A static text, never NULL.
 */
PLINTH_API
const char *plinth_status_name(plinth_status_t status)
PLINTH_NOEXCEPT;

/**
 * Returns one sentence about a status. plinth_last_error says more: it names the request.
 *
 * The text is static. Thread-safe; needs no device.
 *
 * @param status The status.
 * @return A static text, never NULL.
 */
PLINTH_API const char *plinth_status_string(plinth_status_t status) PLINTH_NOEXCEPT;

/**
 * Returns the message of the calling thread's last call that returned a status: what was asked for and why it
 * failed, or "" after a success.
 *
 * The text belongs to the library and is valid until the thread's next call that returns a status. Needs no device.
 *
 * @return A text, never NULL.
 */
PLINTH_API
const char *plinth_last_error(void)
PLINTH_NOEXCEPT;

/**
 * Returns the raw CUresult of the driver call that made the calling thread's last call fail; 0 after a success, and
 * after an error that the driver had no part in.
 *
 * @return The driver's code.
 */
PLINTH_API
int32_t plinth_last_driver_error(void)
PLINTH_NOEXCEPT;

/**
 * How many statuses there are: they are numbered from 0 without gaps.
 *
 * @return The count.
 */
PLINTH_API int32_t plinth_status_count(void) PLINTH_NOEXCEPT;

/**
 * Returns the version of the library that is running, as major * 10000 + minor * 100 + patch.
 *
 * Thread-safe; needs no device.
 *
 * @return The version.
 */
PLINTH_API int32_t plinth_version(void) PLINTH_NOEXCEPT;

/**
 * Returns the version of the library that is running as text, "0.1.0".
 *
 * The text is static. Thread-safe; needs no device.
 *
 * @return A static text, never NULL.
 */
PLINTH_API const char *plinth_version_string(void) PLINTH_NOEXCEPT;

/**
 * Tells the newest version of CUDA that the driver knows.
 *
 * Thread-safe. Loads the driver, but makes no context.
 *
 * @param version Out: the version as CUDA counts, 13000 for 13.0. The host device answers 13000.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; what plinth_init returns where there is no device.
 */
PLINTH_API plinth_status_t plinth_driver_version(int32_t *version) PLINTH_NOEXCEPT;

/**
 * Chooses the kind of device for the process: PLINTH_DEVICE_CUDA, PLINTH_DEVICE_HOST or PLINTH_DEVICE_AUTO.
 *
 * Goes before the environment variable PLINTH_DEVICE (cuda, host or auto), which decides when this is not called.
 * Must come before the first use of a device and before the first question about one. Thread-safe.
 *
 * @param kind The kind.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; PLINTH_ERROR_ALREADY_INITIALIZED if it is too
 *         late for another kind.
 */
PLINTH_API
plinth_status_t plinth_set_device_kind(int32_t kind)
PLINTH_NOEXCEPT;

/**
 * Tells which kind of device the process uses: PLINTH_DEVICE_CUDA or PLINTH_DEVICE_HOST.
 *
 * Thread-safe. Loads the driver, and so settles the question for the process.
 *
 * @param kind Out: the kind.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; what plinth_init returns where there is no device.
 */
PLINTH_API plinth_status_t plinth_get_device_kind(int32_t *kind) PLINTH_NOEXCEPT;

/**
 * Initializes the library: loads the driver and makes sure that there is a device.
 *
 * Never needed: every call that uses a device does this first. Idempotent and thread-safe. Makes no context. After a
 * failure it may be tried again.
 *
 * @return PLINTH_OK; PLINTH_ERROR_NO_DEVICE with a message that says how to run without a GPU;
 *         PLINTH_ERROR_DRIVER_TOO_OLD with a message that names the missing call; PLINTH_ERROR_STUB_LIBRARY;
 *         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN;
 *         PLINTH_ERROR_DRIVER. These are "the errors of initialization" of all other calls.
 */
PLINTH_API
plinth_status_t plinth_init(void)
PLINTH_NOEXCEPT;

/**
 * Tells whether there is a device to use. Never fails, and does not initialize the library.
 *
 * @return Whether plinth_device_count would say more than 0.
 */
PLINTH_API bool plinth_is_available(void) PLINTH_NOEXCEPT;

/**
 * Tells whether the library is initialized and usable; false in a child made by fork.
 *
 * @return Whether it is.
 */
PLINTH_API bool plinth_is_initialized(void) PLINTH_NOEXCEPT;

/**
 * Counts the devices that the process may see. CUDA_VISIBLE_DEVICES has its say, on the host device too.
 *
 * Thread-safe. Loads the driver, but does not initialize the library. Where there is no driver or no device the
 * count is 0, and that is no error.
 *
 * @param count Out: the count.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
 */
PLINTH_API
plinth_status_t plinth_device_count(int32_t *count)
PLINTH_NOEXCEPT;

/**
 * Tells the calling thread's current device: 0 until it is set.
 *
 * plinth keeps it for each thread. Setting it with plinth_set_device also makes the device current for the CUDA
 * runtime and driver; a device set there behind plinth's back is not seen here, and each call of plinth that depends
 * on the current device uses plinth's.
 *
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_current_device(int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Makes a device the calling thread's current one, for plinth and for CUDA. Makes its context if need be.
 *
 * @param device The device's number; a negative one does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_set_device(int32_t device) PLINTH_NOEXCEPT;

/**
 * Tells whose memory a pointer is.
 *
 * The pointer may lie anywhere in the memory, and any value may be asked about: it is looked up, not followed.
 * Thread-safe.
 *
 * @param pointer An address.
 * @param device Out: the number of the device whose memory it is; -1 for host memory, pinned or not, for NULL, and
 *        for what is no memory at all. A value for plinth_exchange_device, as torch's device_of context uses it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL device; the errors of initialization; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_device_of(const void *pointer,
                                 int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Tells the name of a device, "NVIDIA H200". Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param name Out: the name, NUL-terminated. A name that does not fit is cut to capacity - 1 bytes.
 * @param capacity The bytes that name can take, at least 1; 256 is always enough.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a capacity of 0;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_device_name(int32_t device,
                                       char *name,
                                       size_t capacity)
PLINTH_NOEXCEPT;

/**
 * Tells the compute capability of a device. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param major Out: the first part, 9 on an H200.
 * @param minor Out: the second part, 0 on an H200.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_device_capability(int32_t device,
                                             int32_t *major,
                                             int32_t *minor)
PLINTH_NOEXCEPT;

/**
 * Tells whether one device can be given access to the memory of another. Thread-safe; makes no context.
 *
 * @param device The device that would access; -1 for the current one.
 * @param peer The device whose memory it would access; -1 for the current one.
 * @param can_access Out: the answer; false for a device and itself, as CUDA answers.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_can_device_access_peer(int32_t device,
                                              int32_t peer,
                                              bool *can_access)
PLINTH_NOEXCEPT;

/**
 * Gives a device access to the memory that another has allocated, and will allocate, with plinth_device_malloc or
 * cudaMalloc. One direction only. Does nothing where that is so already, and for a device and itself. Thread-safe.
 *
 * @param device The device that will access; -1 for the current one.
 * @param peer The device whose memory it will access; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED; PLINTH_ERROR_DRIVER; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_enable_peer_access(int32_t device,
                                          int32_t peer)
PLINTH_NOEXCEPT;

/**
 * Takes back what plinth_enable_peer_access gave. Does nothing where there is nothing to take back. Thread-safe.
 *
 * @param device The device that accessed; -1 for the current one.
 * @param peer The device whose memory it accessed; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_disable_peer_access(int32_t device,
                                           int32_t peer)
PLINTH_NOEXCEPT;

/**
 * Waits until all work on a device is done, in every stream. Reports errors of that work. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while a stream of it captures; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_synchronize(int32_t device) PLINTH_NOEXCEPT;

/**
 * Tells how much memory of a device is free, all processes counted: the driver's view, to which memory that an
 * allocator holds in its cache is not free. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param free_bytes Out: the bytes that are free.
 * @param total_bytes Out: the bytes that there are.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_get_info(int32_t device,
                                    size_t *free_bytes,
                                    size_t *total_bytes)
PLINTH_NOEXCEPT;

/**
 * Lists the architectures that the library's own kernels are compiled for, separated by spaces: "compute_75" is PTX
 * that the driver compiles for every device from compute capability 7.5 on. Empty where there is no device.
 *
 * Thread-safe.
 *
 * @param text Out: the list. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization except
 *         PLINTH_ERROR_NO_DEVICE.
 */
PLINTH_API
plinth_status_t plinth_get_arch_list(char **text)
PLINTH_NOEXCEPT;

/**
 * Tells the compiler flags for the architectures of plinth_get_arch_list, in torch's form, which says "compute="
 * where nvcc says "arch=". Empty where there is no device. Thread-safe.
 *
 * @param text Out: the flags. The caller owns them and frees them with plinth_string_free.
 * @return As plinth_get_arch_list.
 */
PLINTH_API
plinth_status_t plinth_get_gencode_flags(char **text)
PLINTH_NOEXCEPT;

/**
 * Frees a text that the library gave to the caller. NULL does nothing. Thread-safe.
 *
 * @param text The text, which must have come from a call that says so.
 */
PLINTH_API void plinth_string_free(char *text) PLINTH_NOEXCEPT;

/**
 * Makes a device current and tells which one was: the beginning of torch's `device` context. It ends with
 * plinth_maybe_exchange_device(previous, ...).
 *
 * @param device The device's number; a negative one changes nothing.
 * @param previous Out: the device that was current; -1 if nothing was changed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_exchange_device(int32_t device, int32_t *previous) PLINTH_NOEXCEPT;

/**
 * As plinth_exchange_device, but never makes a context: a device that has none yet becomes current to plinth, and
 * to CUDA when it is first used.
 *
 * @param device The device's number; a negative one changes nothing.
 * @param previous Out: the device that was current; -1 if nothing was changed.
 * @return As plinth_exchange_device.
 */
PLINTH_API
plinth_status_t plinth_maybe_exchange_device(int32_t device,
                                             int32_t *previous)
PLINTH_NOEXCEPT;

/**
 * Makes the device current whose memory a pointer is, and tells which one was: the beginning of torch's `device_of`
 * context. It ends with plinth_maybe_exchange_device(previous, ...).
 *
 * @param pointer An address; for one that is no device's memory nothing changes.
 * @param previous Out: the device that was current; -1 if nothing was changed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL previous; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_exchange_device_of(const void *pointer,
                                          int32_t *previous)
PLINTH_NOEXCEPT;

/**
 * Tells what a device is. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param properties In: struct_size. Out: the properties, as far as struct_size reaches, and in struct_size how far
 *        they were filled.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_device_properties(int32_t device,
                                             struct plinth_device_properties_t *properties)
PLINTH_NOEXCEPT;

/**
 * Sets what happens when a call of the library makes the CPU wait for the device, for all threads.
 *
 * Such calls are plinth_synchronize, plinth_stream_synchronize, plinth_event_synchronize, blocking copies and copies
 * with pageable host memory, plinth_device_free, plinth_pinned_free, plinth_managed_free and plinth_host_unregister. Needs no device. Thread-safe.
 *
 * @param mode PLINTH_SYNC_DEBUG_DEFAULT, _WARN or _ERROR.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
 */
PLINTH_API
plinth_status_t plinth_set_sync_debug_mode(int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Tells the sync debug mode. Needs no device. Thread-safe.
 *
 * @param mode Out: the mode.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_get_sync_debug_mode(int32_t *mode) PLINTH_NOEXCEPT;

/**
 * Sets who is told of warnings in the mode PLINTH_SYNC_DEBUG_WARN, for all threads. Without a callback they are only
 * counted: the library itself prints nothing. Needs no device. Thread-safe.
 *
 * @param callback Called with the message by the thread whose call waits, before it waits; NULL for nobody. It must
 *        not unwind or throw.
 * @param context Passed to the callback, which may be called by several threads at once.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_set_sync_debug_callback(plinth_sync_debug_callback_t callback,
                                               void *context)
PLINTH_NOEXCEPT;

/**
 * Counts the warnings since the process began, told or not. Needs no device. Thread-safe.
 *
 * @param count Out: the count.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_sync_debug_warnings(uint64_t *count) PLINTH_NOEXCEPT;

/**
 * Hands out a stream of a device's pool. The stream does not wait for the default stream.
 *
 * Each priority of each device has a pool of 32 streams, made as they are first needed, handed out in turn, and never
 * destroyed: the 33rd call gives the first stream again. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param priority The priority; lower numbers go first. One out of range becomes the nearest in it; see
 *        plinth_stream_priority_range.
 * @param stream Out: the stream, which CUDA and its libraries take as it is. It belongs to the library.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_create(int32_t device,
                                     int32_t priority,
                                     plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Makes a stream known that somebody else made, with CUDA or another library, so that plinth's calls take it.
 *
 * The stream stays its maker's, who keeps it alive while it is used here. It may be made known again, also for
 * another device once it was destroyed and its address came back. Thread-safe.
 *
 * @param native A live CUstream or cudaStream_t; a value that never was a stream is the caller's error, which the
 *        CUDA driver does not survive. NULL, 1 and 2, CUDA's default streams, need not be made known.
 * @param device The number of the stream's device; -1 for the current one.
 * @param stream Out: the same handle.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL output; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_DEVICE_MISMATCH if the stream is on another device; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_OUT_OF_MEMORY after some millions of streams; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_from_external(void *native,
                                            int32_t device,
                                            plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Tells the calling thread's current stream on a device: the default stream until it is set.
 *
 * @param device The device's number; -1 for the current one.
 * @param stream Out: the stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_current_stream(int32_t device, plinth_stream_t *stream) PLINTH_NOEXCEPT;

/**
 * Tells a device's default stream, which is NULL for every device: CUDA's legacy default stream, which waits for the
 * streams that cuStreamCreate made without CU_STREAM_NON_BLOCKING, and they for it. As an argument, NULL is the
 * default stream of the device that is current at that moment.
 *
 * @param device The device's number; -1 for the current one.
 * @param stream Out: the stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_default_stream(int32_t device,
                                      plinth_stream_t *stream)
PLINTH_NOEXCEPT;

/**
 * Makes a stream the calling thread's current one on the stream's device, and makes that device current.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_set_stream(plinth_stream_t stream) PLINTH_NOEXCEPT;

/**
 * Makes a stream and its device current and saves what was: the beginning of torch's StreamContext. Contexts nest;
 * each is left by the thread that entered it.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param saved Out: what plinth_stream_context_exit needs.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL saved; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_context_enter(plinth_stream_t stream,
                                            struct plinth_stream_context_t *saved)
PLINTH_NOEXCEPT;

/**
 * Puts back what plinth_stream_context_enter saved: the streams of both devices, and the current device.
 *
 * @param saved What was saved.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE or PLINTH_ERROR_INVALID_HANDLE for
 *         contents that plinth_stream_context_enter did not write; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_context_exit(const struct plinth_stream_context_t *saved)
PLINTH_NOEXCEPT;

/**
 * Tells whether all work of a stream is done. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param done Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL done; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while it captures; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or
 *         PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_query(plinth_stream_t stream,
                                    bool *done)
PLINTH_NOEXCEPT;

/**
 * Waits until all work of a stream is done. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while it captures; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or
 *         PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_synchronize(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Lets the work that a stream is given from now on wait for the work that another has now. The CPU does not wait, and
 * the streams may be on different devices. Thread-safe.
 *
 * @param stream The stream that waits; NULL for the current device's default stream.
 * @param other The stream that is waited for; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_wait_stream(plinth_stream_t stream,
                                          plinth_stream_t other)
PLINTH_NOEXCEPT;

/**
 * Tells the range of stream priorities of a device. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param least Out: the priority that goes last, 0.
 * @param greatest Out: the priority that goes first, a negative number: -5 on an H200. torch shows the last four of
 *        them only.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_priority_range(int32_t device,
                                             int32_t *least,
                                             int32_t *greatest)
PLINTH_NOEXCEPT;

/**
 * Tells the priority of a stream. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param priority Out: the priority; lower numbers go first, and a default stream has 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL priority; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_priority(plinth_stream_t stream,
                                       int32_t *priority)
PLINTH_NOEXCEPT;

/**
 * Tells the number that torch gives a stream (Stream.stream_id). Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param id Out: 0 for a default stream; for a stream of a pool, index * 32 + (1 - priority) * 2 + 1; for an external
 *        stream its handle. A number says which stream of its device it is, not which device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL id; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_id(plinth_stream_t stream,
                                 uint64_t *id)
PLINTH_NOEXCEPT;

/**
 * Tells the device of a stream. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL device; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API plinth_status_t plinth_stream_device(plinth_stream_t stream, int32_t *device) PLINTH_NOEXCEPT;

/**
 * Tells whether a stream is capturing into a graph. Thread-safe.
 *
 * @param stream The stream; a default stream never captures.
 * @param capturing Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL capturing; PLINTH_ERROR_INVALID_HANDLE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_is_capturing(plinth_stream_t stream,
                                           bool *capturing)
PLINTH_NOEXCEPT;

/**
 * Tells whether the calling thread's current stream is capturing into a graph. Makes no context.
 *
 * @param capturing Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_is_current_stream_capturing(bool *capturing) PLINTH_NOEXCEPT;

/**
 * Lets a stream call a function on the CPU once its earlier work is done; its later work waits for the function to
 * return. In a capture, the function becomes a node of the graph. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param function The function; called by a thread of the driver's.
 * @param context Passed to the function; the caller keeps it alive until then.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL function; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_launch_host_function(plinth_stream_t stream,
                                            plinth_host_function_t function,
                                            void *context)
PLINTH_NOEXCEPT;

/**
 * Keeps a stream busy, with one thread of a kernel, for a number of the multiprocessor's clock cycles: torch's
 * `torch.cuda._sleep`, for tests of order. Thread-safe.
 *
 * @param cycles The cycles: some 1.98e9 a second on an H200. The host device sleeps as long.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sleep(uint64_t cycles,
                             plinth_stream_t stream)
PLINTH_NOEXCEPT;

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

/**
 * Creates an event. It belongs to no device and is not recorded; its first record decides the device. Needs no device
 * itself. Thread-safe.
 *
 * @param flags 0, or PLINTH_EVENT_TIMING, _BLOCKING, _INTERPROCESS and _EXTERNAL or-ed together.
 * @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for other flags, and for
 *         PLINTH_EVENT_TIMING with PLINTH_EVENT_INTERPROCESS; PLINTH_ERROR_OUT_OF_MEMORY with 16 million live events.
 */
PLINTH_API
plinth_status_t plinth_event_create(uint32_t flags,
                                    plinth_event_t *event)
PLINTH_NOEXCEPT;

/**
 * Destroys an event. Streams that wait for what it recorded go on waiting for that. Thread-safe, but an event must
 * not be destroyed while another thread is in a call with it.
 *
 * @param event The event; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, which only an event for other processes comes to:
 *         it stays, and can be destroyed again.
 */
PLINTH_API
plinth_status_t plinth_event_destroy(plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * Records an event in a stream: it will be complete when the work that the stream has now is done. A later record
 * takes the place of an earlier one. Thread-safe.
 *
 * @param event The event.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH if its first record was on another device; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_event_record(plinth_event_t event,
                                    plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Lets the work that a stream is given from now on wait for what an event recorded last. The CPU does not wait. The
 * stream may be on another device than the event. Does nothing for an event that never was recorded. Thread-safe.
 *
 * @param event The event.
 * @param stream The stream that waits; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL event; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_event_wait(plinth_event_t event,
                                  plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * The same as plinth_event_wait, with the stream first.
 *
 * @param stream The stream that waits; NULL for the current device's default stream.
 * @param event The event.
 * @return As plinth_event_wait.
 */
PLINTH_API
plinth_status_t plinth_stream_wait_event(plinth_stream_t stream,
                                         plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * The same as plinth_event_record, with the stream first.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @param event The event.
 * @return As plinth_event_record.
 */
PLINTH_API
plinth_status_t plinth_stream_record_event(plinth_stream_t stream,
                                           plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * Tells whether what an event recorded last is complete. Thread-safe.
 *
 * @param event The event.
 * @param done Out: whether it is; true for an event that never was recorded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a
 *         capture forbids it; PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for
 *         failed work.
 */
PLINTH_API
plinth_status_t plinth_event_query(plinth_event_t event,
                                   bool *done)
PLINTH_NOEXCEPT;

/**
 * Waits on the CPU until what an event recorded last is complete; returns at once for an event that never was
 * recorded. Thread-safe.
 *
 * @param event The event.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the
 *         sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS while a capture forbids it; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work.
 */
PLINTH_API
plinth_status_t plinth_event_synchronize(plinth_event_t event)
PLINTH_NOEXCEPT;

/**
 * Tells the time from one event to another, with a resolution of about half a microsecond on a GPU. Thread-safe.
 *
 * @param start The event at the beginning.
 * @param end The event at the end, on the same device.
 * @param milliseconds Out: the time in milliseconds; negative if the end was reached before the start.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_EVENT_TIMING_DISABLED unless
 *         both were created with PLINTH_EVENT_TIMING; PLINTH_ERROR_EVENT_NOT_RECORDED; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_EVENT_NOT_COMPLETE; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_event_elapsed_time(plinth_event_t start,
                                          plinth_event_t end,
                                          float *milliseconds)
PLINTH_NOEXCEPT;

/**
 * Tells the device of an event. Thread-safe.
 *
 * @param event The event.
 * @param device Out: the device's number; -1 for an event that never was recorded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API plinth_status_t plinth_event_device(plinth_event_t event, int32_t *device) PLINTH_NOEXCEPT;

/**
 * Tells the CUevent behind an event, for calls of CUDA's own. It is the event's until plinth_event_destroy; then it
 * may become another event's.
 *
 * @param event The event.
 * @param native Out: the CUevent; NULL for an event that never was recorded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_event_native(plinth_event_t event,
                                    void **native)
PLINTH_NOEXCEPT;

/**
 * Tells what another process needs to open an event. An event that never was recorded is made on the current device.
 * Thread-safe.
 *
 * @param event An event created with PLINTH_EVENT_INTERPROCESS. It must outlive its use in other processes.
 * @param ipc_handle Out: PLINTH_IPC_EVENT_HANDLE_SIZE bytes, to be sent to the other process by any way.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an event
 *         of another kind; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_event_ipc_handle(plinth_event_t event,
                                        uint8_t *ipc_handle)
PLINTH_NOEXCEPT;

/**
 * Opens an event of another process. Thread-safe.
 *
 * @param device The number of the event's device in this process; -1 for the current one.
 * @param ipc_handle The PLINTH_IPC_EVENT_HANDLE_SIZE bytes that plinth_event_ipc_handle gave in the other process.
 * @param event Out: the event. The caller owns it and destroys it with plinth_event_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for bytes that
 *         are no handle; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER, as for a handle of this very process; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_event_from_ipc_handle(int32_t device,
                                             const uint8_t *ipc_handle,
                                             plinth_event_t *event)
PLINTH_NOEXCEPT;

/**
 * Allocates device memory straight from the driver, as cudaMalloc does: slow, and never cached. Thread-safe.
 *
 * @param size Bytes; 0 gives NULL.
 * @param device The device's number; -1 for the current one.
 * @param pointer Out: the memory, aligned to 256 bytes at least. The caller owns it and frees it with
 *        plinth_device_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a
 *         message that tells request, free and total; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_device_malloc(size_t size,
                                     int32_t device,
                                     void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees what plinth_device_malloc gave. As cudaFree does, it waits for all work of the memory's device. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_device_malloc did not give or was freed already;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_device_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Allocates pinned host memory straight from the driver, as cudaHostAlloc does: slow, and never cached. Every device
 * may use it, and copies to and from it do not wait. Thread-safe.
 *
 * @param size Bytes; 0 gives NULL.
 * @param pointer Out: the memory, aligned to a page. The caller owns it and frees it with plinth_pinned_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_CAPTURE_FORBIDS;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_pinned_malloc(size_t size,
                                     void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees what plinth_pinned_malloc gave. May wait for the device. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_pinned_malloc did not give or was freed already;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_pinned_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Copies in a stream, between memories of any kind: host, pinned, this device's, another's. Returns without waiting,
 * except that pageable host memory may make it wait, as in CUDA. Thread-safe.
 *
 * @param destination Where to; valid until the copy is done.
 * @param source Where from; valid until the copy is done. The two must not overlap.
 * @param bytes How much; 0 does nothing.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range that runs past the end of all
 *         addresses; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode for pageable
 *         host memory; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memcpy(void *destination,
                              const void *source,
                              size_t bytes,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Copies as torch's copy_ does, in the current streams of the devices that own the memory.
 *
 * Between two devices, with or without peer access, the copy runs in the source device's current stream: it waits for
 * what the destination device's current stream has now, and the later work of that stream waits for it. Between host
 * and device it runs in the device's current stream. Within a device it runs in that device's current stream. Between
 * two places of host memory it waits for the current device's current stream. Thread-safe.
 *
 * @param destination Where to; valid until the copy is done.
 * @param source Where from; valid until the copy is done. The two must not overlap.
 * @param bytes How much; 0 does nothing.
 * @param non_blocking Between host and device: false waits for the copy, true returns at once where the host memory is
 *        pinned. Otherwise without effect.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range that runs past the end of all
 *         addresses; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_copy(void *destination,
                            const void *source,
                            size_t bytes,
                            bool non_blocking)
PLINTH_NOEXCEPT;

/**
 * Fills memory with one byte, in a stream. Returns without waiting. Thread-safe.
 *
 * @param destination The memory, of a device that the stream's device has access to, or pinned; valid until the fill is
 *        done.
 * @param value The byte.
 * @param bytes How much; 0 does nothing.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range that runs past the end of all
 *         addresses, and for memory that the stream's device cannot reach; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_memset(void *destination,
                              uint8_t value,
                              size_t bytes,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills memory with a pattern of 1, 2 or 4 bytes, in a stream. Returns without waiting. Thread-safe.
 *
 * @param destination The memory, of a device that the stream's device has access to, or pinned, aligned to the pattern;
 *        valid until the fill is done.
 * @param pattern The pattern, read before the call returns.
 * @param pattern_size Its bytes: 1, 2 or 4.
 * @param bytes How much, a multiple of the pattern; 0 does nothing.
 * @param stream The stream; NULL for the current device's default stream.
 * @return As plinth_memset; PLINTH_ERROR_INVALID_VALUE also for another pattern_size, and for an address or a length
 *         that is no multiple of it.
 */
PLINTH_API
plinth_status_t plinth_memset_pattern(void *destination,
                                      const void *pattern,
                                      size_t pattern_size,
                                      size_t bytes,
                                      plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Allocates pinned host memory from what is cached, where possible: memory that every device may use, and whose copies do
 * not wait. Thread-safe.
 *
 * Makes no call of the driver as long as there is a free block. Sizes are rounded up by less than an eighth: to multiples
 * of 64 bytes up to 512, then to one of eight sizes between each power of two and the next. Small blocks share pieces of
 * some 2 MiB that are pinned at once; above 1 MiB each block is pinned alone.
 *
 * @param size Bytes; 0 gives NULL.
 * @param pointer Out: the memory, aligned to 64 bytes, from 4096 bytes on to 512, above 1 MiB to a page. Its contents are
 *        whatever its last user left. The caller owns it and frees it with plinth_host_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY, after everything free went back to the driver
 *         and what streams still used was waited for; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_alloc(size_t size,
                                  void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees what plinth_host_alloc gave, from any thread. Never waits. Thread-safe.
 *
 * Memory that no stream used is given out again at once. What streams used, by the copies and fills of this library or by
 * plinth_host_record_stream, stays out of use until they have passed this point; what a graph captured, until the graph and
 * all that was instantiated of it are gone.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_host_alloc did not give or was freed already;
 *         PLINTH_ERROR_FORKED_CHILD. In a process that is exiting it does nothing, and succeeds.
 */
PLINTH_API
plinth_status_t plinth_host_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Notes that work in a stream uses memory of plinth_host_alloc, so that after its free it stays out of use until the stream
 * has passed the free. For the program's own kernels and copies; plinth_memcpy, plinth_copy, plinth_memset and
 * plinth_memset_pattern note it themselves. Thread-safe.
 *
 * In a stream that captures, the memory becomes the graph's: it stays out of use, though freed, as long as the graph or
 * anything that was instantiated of it is there. Where the driver cannot tell when that is, as before 11.3, the memory stays
 * out of use for good.
 *
 * @param pointer An address in the memory, not only its first; NULL does nothing.
 * @param stream The stream; NULL for the current device's default stream. It must outlive the free.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what is in no such memory; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_record_stream(const void *pointer,
                                          plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gives pinned memory back to the driver: every piece of which nothing is in use. Waits for no stream's work by itself, but
 * the driver may wait for the devices before it lets pinned memory go. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER, with what could not go back still cached; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_empty_cache(void)
PLINTH_NOEXCEPT;

/**
 * Tells whether an address is in pinned host memory, no matter who pinned it or how. Managed memory is not.
 *
 * Any value may be asked about: it is looked up, not followed. Memory of plinth_host_alloc is known without a call of the
 * driver, also while it is free. Thread-safe.
 *
 * @param pointer An address.
 * @param pinned Out: whether it is; false for NULL.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_is_pinned(const void *pointer,
                                 bool *pinned)
PLINTH_NOEXCEPT;

/**
 * Pins memory that the program has already, as cudaHostRegister does: copies to and from it do not wait then, and devices
 * may use it. Slow: it brings every page in and locks it. Thread-safe.
 *
 * @param pointer The memory; best whole pages, since whole pages are pinned.
 * @param bytes How much.
 * @param flags PLINTH_HOST_REGISTER_ constants; torch's pin_memory has PORTABLE.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for 0 bytes, a range past the end of all addresses,
 *         unknown flags, memory that is not there, and memory that is pinned already; PLINTH_ERROR_NOT_SUPPORTED for flags that
 *         the device lacks; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_register(void *pointer,
                                     size_t bytes,
                                     uint32_t flags)
PLINTH_NOEXCEPT;

/**
 * Undoes plinth_host_register. To be called before the memory is freed, and when the devices are done with it; may wait for
 * them. Thread-safe.
 *
 * @param pointer What plinth_host_register was given; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what is not registered; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug
 *         mode; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_unregister(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Tells the figures of the pinned memory of plinth_host_alloc. Thread-safe: while other threads allocate, each figure is
 * right for a moment of the call.
 *
 * @param stats In: struct_size. Out: the figures.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that is too small; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats(struct plinth_host_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Tells the same figures one by one, under the keys of torch.cuda.host_memory_stats ("active_bytes.current"), in the order
 * of their bytes: 28 of them. Thread-safe.
 *
 * @param visitor Is called for each, in the calling thread; not NULL. It may call the library.
 * @param context Is passed to the visitor.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats_each(plinth_host_memory_stats_visitor_t visitor,
                                              void *context)
PLINTH_NOEXCEPT;

/**
 * Gives the same figures as a JSON object with the keys of torch.cuda.host_memory_stats: {"active_bytes.current": 0, ...}.
 * Thread-safe.
 *
 * @param text Out: the object. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_memory_stats_json(char **text)
PLINTH_NOEXCEPT;

/**
 * Gives the same figures as a JSON object of objects, as torch.cuda.host_memory_stats_as_nested_dict:
 * {"active_bytes": {"current": 0, ...}, ...}. Thread-safe.
 *
 * @param text Out: the object. The caller owns it and frees it with plinth_string_free.
 * @return As plinth_host_memory_stats_json.
 */
PLINTH_API plinth_status_t plinth_host_memory_stats_as_nested_dict(char **text) PLINTH_NOEXCEPT;

/**
 * Lets all peaks of pinned memory begin again at what is now, and the longest and shortest times with the next call of the
 * driver. Thread-safe.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_peak_host_memory_stats(void)
PLINTH_NOEXCEPT;

/**
 * Sets all sums of pinned memory to 0: allocated and freed of each quantity, the counts of driver calls, and their times.
 * Thread-safe.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_accumulated_host_memory_stats(void)
PLINTH_NOEXCEPT;

/**
 * Allocates device memory for work in a stream, from what is cached where possible. Thread-safe.
 *
 * Makes no call of the driver as long as there is a free block, and never waits for work of the device unless memory is
 * truly out. Sizes are rounded up to multiples of 512 bytes. Memory that was freed is given out again in the same stream
 * at once: the stream's order protects it. Work in other streams must be told of with plinth_record_stream, or be ordered
 * by the caller before the free.
 *
 * While the calling thread, the stream or a capture allocates to a pool (plinth_begin_allocate_to_pool and the like), the
 * memory comes from that. A stream must outlive what is allocated for it, and plinth_empty_cache must be called before a
 * stream is destroyed that memory was allocated for.
 *
 * @param size Bytes; 0 gives NULL.
 * @param device The device's number; -1 for the current one.
 * @param stream The stream, of that device; NULL for the device's default stream.
 * @param pointer Out: the memory, aligned to 512 bytes. The caller owns it and frees it with
 *        plinth_caching_allocator_delete.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device; PLINTH_ERROR_OUT_OF_MEMORY, with a message that
 *         tells request, total, free, held, limit, live and the rest; PLINTH_ERROR_INVALID_CONFIGURATION;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_alloc(size_t size,
                                               int32_t device,
                                               plinth_stream_t stream,
                                               void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees what plinth_caching_allocator_alloc gave, from any thread and with any device current. Makes no call of the
 * driver, unless other streams were recorded: then the memory stays out of use until they have passed. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_caching_allocator_alloc did not give, or was freed
 *         already, or lies inside a block.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_delete(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Tells the allocator that work in a stream uses memory that was allocated for another. When the memory is freed, it
 * stays out of use until the work has passed which that stream has then; nobody waits for that. The memory's own stream
 * need not be recorded. Thread-safe.
 *
 * @param pointer The memory, from plinth_caching_allocator_alloc or plinth_alloc; NULL does nothing.
 * @param stream The stream, of any device; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER as for plinth_caching_allocator_delete; PLINTH_ERROR_INVALID_HANDLE;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_record_stream(void *pointer,
                                     plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gives the free memory of every device back to the driver, in whole handles. Memory of private pools that somebody uses
 * stays. What a stream may still be using goes back too, as soon as the stream has passed: the call gives work that is
 * about to end one millisecond, and waits for nothing longer. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_empty_cache(void)
PLINTH_NOEXCEPT;

/**
 * Tells how much memory is in the program's hands, each request rounded up to 512 bytes. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_memory_allocated(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Tells how much memory was in the program's hands at most, since the peaks were reset. Where several threads allocate
 * at the same moment, it is the peak of what was seen of them one after the other. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API
plinth_status_t plinth_max_memory_allocated(int32_t device,
                                            size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much physical memory the allocator holds: what is in the program's hands and what is cached. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API
plinth_status_t plinth_memory_reserved(int32_t device,
                                       size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much physical memory the allocator held at most, since the peaks were reset. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_max_memory_reserved(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * Lets all peaks of a device's memory begin again at what is now. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_reset_peak_memory_stats(int32_t device) PLINTH_NOEXCEPT;

/**
 * Gives the figures of a device's memory as a table, in the layout of torch.cuda.memory_summary. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param abbreviated Leaves out the lines for small and for large blocks.
 * @param text Out: the table. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_summary(int32_t device,
                                      bool abbreviated,
                                      char **text)
PLINTH_NOEXCEPT;

/**
 * Limits how much memory the allocator may hold on a device: a fraction of the device's memory, all of which counts, not
 * only what is free now. What is held already stays, but nothing is added beyond the limit. Thread-safe.
 *
 * @param fraction From 0 to 1; 1 is no limit.
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a fraction out of range or no number; PLINTH_ERROR_INVALID_DEVICE;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_set_per_process_memory_fraction(double fraction,
                                                       int32_t device)
PLINTH_NOEXCEPT;

/**
 * Tells which fraction of a device's memory the allocator may hold. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param fraction Out: what plinth_set_per_process_memory_fraction was given; if it was not called, the setting
 *        per_process_memory_fraction, which is 1 at first.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_CONFIGURATION; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_get_per_process_memory_fraction(int32_t device,
                                                       double *fraction)
PLINTH_NOEXCEPT;

/**
 * Changes settings of the allocator, as torch.cuda.memory._set_allocator_settings does: "key:value,key:value", in the
 * grammar of PLINTH_ALLOC_CONF. docs/allocator_settings.md has the keys. Those that the text names change, all or none;
 * the others stay. They hold for what is allocated from now on. Needs no device. Thread-safe.
 *
 * `backend` and `debug` can change until the first request for memory, and `expandable_segments` until a device has
 * memory.
 *
 * @param settings The text.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an unknown key or a bad value, with a message
 *         that names it; PLINTH_ERROR_ALREADY_INITIALIZED for a key that cannot change any more;
 *         PLINTH_ERROR_INVALID_CONFIGURATION where the environment makes no sense.
 */
PLINTH_API
plinth_status_t plinth_set_allocator_settings(const char *settings)
PLINTH_NOEXCEPT;

/**
 * Tells the settings of the allocator, as a text that plinth_set_allocator_settings takes: every key that has a value.
 * Needs no device. Thread-safe.
 *
 * @param settings Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION where the
 *         environment makes no sense.
 */
PLINTH_API
plinth_status_t plinth_get_allocator_settings(char **settings)
PLINTH_NOEXCEPT;

/**
 * Sends memory of the caching allocator to another process, through a Unix socket.
 *
 * The other process sees the same physical memory; nothing is copied. It has what the current stream of the memory's
 * device had to do to the memory when this was called: its own stream waits for that. From then on the two processes order
 * their uses themselves. The message, and then the receiver, hold the block: a free by
 * plinth_caching_allocator_delete is good at any time, but the memory is given to nobody else before every
 * receiver has closed it or has ended, however it ended. Until then the block counts as active, and no longer as allocated.
 *
 * The call may wait until the receiver takes a part of a long message out of the socket; on a socket that does not block it
 * waits only in the middle of a message. With PLINTH_IPC=wait in the environment it also waits for the device, and the
 * message names no event; so it does when 1000 events of messages may be in use already. Thread-safe, as long as no two
 * threads send through one socket.
 *
 * @param socket A connected Unix socket of any type: SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM. It stays the caller's.
 * @param pointer An address in memory that plinth_caching_allocator_alloc gave: its beginning, or any place in it.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for an address that is in no such memory; PLINTH_ERROR_IPC_REEXPORT for
 *         memory that was received itself; PLINTH_ERROR_IPC_NOT_SHAREABLE with PLINTH_IPC=0 and on a device that cannot;
 *         PLINTH_ERROR_GRAPH_ASLEEP for memory of a pool that sleeps; PLINTH_ERROR_CAPTURE_FORBIDS while the current
 *         stream of the memory's device captures; PLINTH_ERROR_INVALID_VALUE for a descriptor that is no Unix socket;
 *         PLINTH_ERROR_IPC_PEER_GONE when the other end is closed; PLINTH_ERROR_SYSTEM, as for a full socket that
 *         does not block; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode where the call waits for the device;
 *         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_send(int32_t socket,
                                const void *pointer)
PLINTH_NOEXCEPT;

/**
 * Receives memory that another process sent with plinth_ipc_send, and maps it in this one.
 *
 * Waits for a message, on the CPU, as the socket does. Then the current stream of the memory's device waits for what the
 * sender's stream had to do to the memory; the call does not. The device is found by its UUID, whatever its number is in
 * either process. Memory that was received before and not closed is the same pointer again, which is to be closed as often.
 * Where the sender allocates without expandable segments, that is so for each device that the memory is received for: CUDA
 * opens such memory for one device, and no other can use it at that pointer.
 * The memory stays valid when the sender ends. plinth_record_stream notes further streams that use it. It cannot be sent on.
 * Thread-safe, as long as no two threads receive from one socket.
 *
 * @param socket The connected Unix socket. It stays the caller's.
 * @param device A device that is to use the memory, too, and whose current stream then waits as well; -1 for none beside
 *        the memory's own. Devices that plinth_enable_peer_access gave access to the memory's device have it here in
 *        any case. But where the sender allocates without expandable segments the device that is named here, or else the
 *        memory's own, is the only one that can use it, whatever access peers have.
 * @param memory Out: the memory. Give it back with plinth_ipc_close.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE, also when this process does not see the
 *         memory's device; PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED when `device` cannot use it; PLINTH_ERROR_INVALID_VALUE for
 *         a descriptor that is no Unix socket, for what is no message, and for a message of this very process;
 *         PLINTH_ERROR_IPC_PEER_GONE when the other end is closed or gave up in the middle; PLINTH_ERROR_SYSTEM, as for an
 *         empty socket that does not block, for a time limit of the socket's, and for too many open files;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_receive(int32_t socket,
                                   int32_t device,
                                   struct plinth_ipc_memory_t *memory)
PLINTH_NOEXCEPT;

/**
 * Makes the message that plinth_ipc_send would send, for a program that has a channel of its own: bytes to be copied, and
 * file descriptors to be passed on (SCM_RIGHTS, or inherited), which the receiver gives to plinth_ipc_import in the
 * same order.
 *
 * The message holds the block, as if it were received, until plinth_ipc_export_free. Each message is for one receiver.
 * Thread-safe.
 *
 * @param pointer As of plinth_ipc_send.
 * @param message Out: the message. Free it with plinth_ipc_export_free when it is sent.
 * @return As plinth_ipc_send, but for the errors of sockets; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_ipc_export(const void *pointer,
                                  struct plinth_ipc_export_t *message)
PLINTH_NOEXCEPT;

/**
 * Frees a message of plinth_ipc_export and closes its file descriptors. Thread-safe; needs no device.
 *
 * @param message The message, which is empty afterwards; NULL and an empty one do nothing.
 * @return PLINTH_OK.
 */
PLINTH_API plinth_status_t plinth_ipc_export_free(struct plinth_ipc_export_t *message) PLINTH_NOEXCEPT;

/**
 * Maps the memory that a message of plinth_ipc_export is about. See plinth_ipc_receive. Thread-safe.
 *
 * @param bytes The bytes of the message.
 * @param size How many they are.
 * @param descriptors The message's file descriptors as they are in this process, in order. They stay the caller's, who
 *        closes them after this call: an open one holds the block.
 * @param descriptor_count How many they are.
 * @param device As of plinth_ipc_receive.
 * @param memory Out: the memory. Give it back with plinth_ipc_close.
 * @return As plinth_ipc_receive, but for the errors of sockets; PLINTH_ERROR_SYSTEM for a number that is no open
 *         descriptor.
 */
PLINTH_API
plinth_status_t plinth_ipc_import(const uint8_t *bytes,
                                  size_t size,
                                  const int32_t *descriptors,
                                  size_t descriptor_count,
                                  int32_t device,
                                  struct plinth_ipc_memory_t *memory)
PLINTH_NOEXCEPT;

/**
 * Gives received memory back. With the last close the memory is unmapped here, and free for its own process.
 *
 * So that nobody writes there what this process still reads, the last close waits, on the CPU, for the current stream of
 * the memory's device, for those that were current at earlier closes, and for those that plinth_record_stream noted.
 * Thread-safe.
 *
 * @param pointer What plinth_ipc_receive or plinth_ipc_import gave, or any address in the block; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what was not received or was closed already;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while such a stream captures; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode
 *         where it would wait; PLINTH_ERROR_DRIVER; the errors of initialization. After an error the memory is as before.
 */
PLINTH_API
plinth_status_t plinth_ipc_close(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Frees the memory that was freed while other processes held it, and is held by none any more.
 *
 * The allocator looks by itself, too: whenever a stream's memory does not suffice for a request. Waits for nothing.
 * Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_collect(void)
PLINTH_NOEXCEPT;

/**
 * Makes CUDA's own handle of memory, a cudaIpcMemHandle_t: for programs that know nothing of plinth. Nothing is counted:
 * the memory must not be freed before every process has closed it. Thread-safe.
 *
 * @param pointer An address in memory of plinth_device_malloc, or of the caching allocator without expandable segments
 *        (PLINTH_ALLOC_CONF=expandable_segments:False).
 * @param ipc_handle Out: PLINTH_IPC_MEM_HANDLE_SIZE bytes, to be sent to the other process by any way.
 * @param offset Out: how far the pointer is from the beginning of the driver's allocation, which is what the other
 *        process gets.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER; PLINTH_ERROR_IPC_NOT_SHAREABLE for mapped
 *         memory, which has no such handle; PLINTH_ERROR_IPC_REEXPORT for another process's memory;
 *         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_mem_handle(const void *pointer,
                                      uint8_t *ipc_handle,
                                      size_t *offset)
PLINTH_NOEXCEPT;

/**
 * Opens memory of another process by CUDA's own handle. The same handle again, for the same device, gives the same pointer,
 * which is to be closed as often. Thread-safe.
 *
 * @param device The device that is to use the memory: its own, or one that can access that one; -1 for the current one. No
 *        other can use it at this pointer.
 * @param ipc_handle The PLINTH_IPC_MEM_HANDLE_SIZE bytes.
 * @param pointer Out: the beginning of the driver's allocation. Close it with plinth_ipc_close_mem_handle.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for bytes that are
 *         no handle; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER, as for a handle of this
 *         very process; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_open_mem_handle(int32_t device,
                                           const uint8_t *ipc_handle,
                                           void **pointer)
PLINTH_NOEXCEPT;

/**
 * Closes what plinth_ipc_open_mem_handle opened. As cudaIpcCloseMemHandle does, it waits for all work in this process of the
 * device that the memory was opened for. Thread-safe.
 *
 * @param pointer The pointer; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what was not opened so; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync
 *         debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_close_mem_handle(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Makes a pool, as torch.cuda.MemPool does: memory that is kept apart from all other. It takes no memory until something
 * is allocated in it. Thread-safe.
 *
 * @param use_on_oom Whether requests to the default pool may use its free memory when there is no other.
 * @param no_split Whether a free block is given out whole, however small the request.
 * @param pool Out: the pool's name. The caller gives it up with plinth_mem_pool_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_create(bool use_on_oom,
                                       bool no_split,
                                       struct plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Gives a pool up. Its free memory goes back to the driver once nobody else uses the pool; what is allocated in it stays
 * valid until it is freed. Thread-safe.
 *
 * @param pool The pool, from plinth_mem_pool_create.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for what is no such pool, or was destroyed; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_destroy(struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Makes a pool whose memory comes from an allocator of the program's own, as torch.cuda.MemPool(allocator) does. The
 * caching allocator stays on top: the allocator is asked for segments (2 MiB; PLINTH_ALLOC_CONF's large_segment_size_mb;
 * multiples of 2 MiB), for the stream of the request, and gets them back with the pool, or when memory is out. It is called
 * with a lock of the pool's held, and must not allocate from the caching allocator. Thread-safe.
 *
 * @param allocator The allocator. The pool keeps it; the handle may be destroyed.
 * @param use_on_oom As in plinth_mem_pool_create.
 * @param no_split As in plinth_mem_pool_create.
 * @param pool Out: the pool's name. The caller gives it up with plinth_mem_pool_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_create_with_allocator(plinth_pluggable_allocator_t allocator,
                                                      bool use_on_oom,
                                                      bool no_split,
                                                      struct plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Says how much physical memory a pool may hold on each device. A request beyond fails with an out-of-memory error that
 * names the budget. What the pool holds already stays; memory comes in pieces of 2 MiB or more. Thread-safe.
 *
 * @param pool The pool, not the default one.
 * @param bytes Bytes; SIZE_MAX, as at first, for no budget.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_set_budget(struct plinth_pool_id_t pool,
                                           size_t bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much physical memory a pool may hold on each device. Thread-safe.
 *
 * @param pool The pool, not the default one.
 * @param bytes Out: bytes; SIZE_MAX for no budget.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_get_budget(struct plinth_pool_id_t pool,
                                           size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Changes whether requests to the default pool may use the pool's free memory when there is no other. Thread-safe.
 *
 * @param pool The pool.
 * @param use_on_oom Whether they may.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_set_use_on_oom(struct plinth_pool_id_t pool,
                                               bool use_on_oom)
PLINTH_NOEXCEPT;

/**
 * Tells how many users a pool has on a device: the program that made it is one, and so is each begin that no release
 * followed. Thread-safe.
 *
 * @param pool The pool.
 * @param device The device's number; -1 for the current one.
 * @param count Out: users.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_use_count(struct plinth_pool_id_t pool,
                                          int32_t device,
                                          int32_t *count)
PLINTH_NOEXCEPT;

/**
 * Tells how much memory a pool has on a device. Thread-safe.
 *
 * @param pool The pool; {0, 0} for the default one.
 * @param device The device's number; -1 for the current one.
 * @param allocated Out: bytes in the program's hands.
 * @param reserved Out: physical bytes that are held.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_memory(struct plinth_pool_id_t pool,
                                       int32_t device,
                                       size_t *allocated,
                                       size_t *reserved)
PLINTH_NOEXCEPT;

/**
 * Lets the requests of streams that capture go to a pool, on one device and from every thread: what a graph's capture
 * begins with. The pool comes into being if its name is new, and gains a user. Where several captures begin, each
 * capture takes the pool that was begun last and that no other capture has taken. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool, not the default one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for the default pool and for one that requests go to already;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_to_pool(int32_t device,
                                              struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Lets the requests of the calling thread go to a pool, on one device and for every stream: the beginning of what
 * torch.cuda.use_mem_pool does. Pools may be nested; what began last counts. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool, not the default one; it gains a user.
 * @return As plinth_begin_allocate_to_pool.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_current_thread_to_pool(int32_t device,
                                                             struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Lets the requests for one stream go to a pool, from every thread. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param stream The stream, of that device; NULL for its default stream.
 * @param pool The pool, not the default one; it gains a user.
 * @return As plinth_begin_allocate_to_pool; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH.
 */
PLINTH_API
plinth_status_t plinth_begin_allocate_current_stream_to_pool(int32_t device,
                                                             plinth_stream_t stream,
                                                             struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Ends what one of the three calls above began. The pool keeps its user: plinth_release_pool takes it away. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE where no requests go to the pool; PLINTH_ERROR_INVALID_DEVICE; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_end_allocate_to_pool(int32_t device,
                                            struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Takes a user of a pool away on one device. With the last one the pool's free memory goes back to the driver; what is
 * allocated in it stays valid until it is freed. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param pool The pool.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE for a pool that there is not; PLINTH_ERROR_INVALID_VALUE for one without
 *         users there; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_release_pool(int32_t device,
                                    struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Tells all that the allocator counts of a device, as torch.cuda.memory_stats does. Counting costs requests nothing that could
 * be measured; to ask walks over all blocks. Thread-safe.
 *
 * The peaks of all allocated and of all reserved bytes are exact. Every other peak of a whole is the sum of the peaks of its
 * parts, small and large blocks, one stream and another, and so the most that it can have been.
 *
 * @param device The device's number; -1 for the current one.
 * @param stats In: struct_size. Out: the figures, as far as struct_size reaches, and in struct_size how far they were
 *        filled.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats(int32_t device,
                                    struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Tells all that the allocator counts of a pool on a device. What only the device counts is 0: retries, failures, waits and
 * driver calls. Thread-safe.
 *
 * @param pool The pool; {0, 0} for the default one. A pool without memory has zeros.
 * @param device The device's number; -1 for the current one.
 * @param stats As for plinth_memory_stats.
 * @return As plinth_memory_stats.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_stats(struct plinth_pool_id_t pool,
                                      int32_t device,
                                      struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Tells all that the allocator counts of what was allocated for a stream, in every pool. What only the device counts is 0,
 * as for plinth_mem_pool_stats. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream. For a thread's own default stream what the calling
 *        thread has.
 * @param stats As for plinth_memory_stats.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
 *         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_stream_memory_stats(plinth_stream_t stream,
                                           struct plinth_memory_stats_t *stats)
PLINTH_NOEXCEPT;

/**
 * Calls a callback for each figure of a device: with the 122 keys of torch.cuda.memory_stats, in their order. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param callback What is called, in this thread, with no lock of the library's held; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats_each(int32_t device,
                                         plinth_memory_stats_callback_t callback,
                                         void *context)
PLINTH_NOEXCEPT;

/**
 * Gives the figures of a device in JSON: {"active.all.allocated": 0, ...} or, nested, {"active": {"all": {"allocated": 0,
 * ...}, ...}, ...} as torch.cuda.memory_stats_as_nested_dict has them. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param nested Whether there are objects in objects.
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_stats_as_json(int32_t device,
                                            bool nested,
                                            char **text)
PLINTH_NOEXCEPT;

/**
 * Lets all sums of a device's memory begin again at 0, what was allocated and freed, and all counts: of retries, failures,
 * waits and driver calls. Peaks stay, and so does what is. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_reset_accumulated_memory_stats(int32_t device)
PLINTH_NOEXCEPT;

/**
 * As plinth_memory_reserved: its old name, as torch.cuda.memory_cached is. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_memory_cached(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * As plinth_max_memory_reserved: its old name, as torch.cuda.max_memory_cached is. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_memory_allocated.
 */
PLINTH_API plinth_status_t plinth_max_memory_cached(int32_t device, size_t *bytes) PLINTH_NOEXCEPT;

/**
 * As plinth_reset_peak_memory_stats: its old name, as torch.cuda.reset_max_memory_allocated is; it resets all peaks.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return As plinth_reset_peak_memory_stats.
 */
PLINTH_API
plinth_status_t plinth_reset_max_memory_allocated(int32_t device)
PLINTH_NOEXCEPT;

/**
 * As plinth_reset_peak_memory_stats: its old name, as torch.cuda.reset_max_memory_cached is; it resets all peaks.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return As plinth_reset_peak_memory_stats.
 */
PLINTH_API
plinth_status_t plinth_reset_max_memory_cached(int32_t device)
PLINTH_NOEXCEPT;

/**
 * Begins to keep a history of the allocator on all devices, as torch.cuda.memory._record_memory_history does, keeps it in
 * another way from now on, or ends it, which forgets it. Thread-safe.
 *
 * An entry costs some 20 ns, and a call stack some 5 ns for each function in it, the first time that a thread comes
 * through a function excepted; entries are kept for each stream, so as many as max_entries may be kept of each. With
 * PLINTH_MEMORY_HISTORY_OFF requests cost what they cost without a history.
 *
 * Stacks are those of C and C++: what functions they tell of is found out when they are read, from the debug information
 * and the symbols of the program's files.
 *
 * @param options The options, with struct_size set.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set and for numbers
 *         that mean nothing; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_record_memory_history(const struct plinth_memory_history_options_t *options)
PLINTH_NOEXCEPT;

/**
 * Tells whether a history is kept: callers, or entries. Thread-safe; needs no device.
 *
 * @param enabled Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_memory_history_is_enabled(bool *enabled) PLINTH_NOEXCEPT;

/**
 * Shows the entries of a device's history, the oldest first. What happens meanwhile is not among them. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param callback What is called for each, in this thread, with no lock of the library's held; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_history_each(int32_t device,
                                           plinth_memory_history_callback_t callback,
                                           void *context)
PLINTH_NOEXCEPT;

/**
 * Shows the functions of a call stack, the innermost first: who called the library. To find out what a function is may take
 * seconds the first time that a large library is looked into. Thread-safe; needs no device.
 *
 * Names of C++ are told as they are written if the process has a C++ library. A function of which no file tells anything is
 * "??". A library must still be loaded.
 *
 * @param stack The stack, from an entry. For 0, and for what is no stack, the callback is not called.
 * @param callback What is called for each, in this thread; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback.
 */
PLINTH_API
plinth_status_t plinth_memory_stack_each(uint32_t stack,
                                         plinth_memory_frame_callback_t callback,
                                         void *context)
PLINTH_NOEXCEPT;

/**
 * Returns torch's name of an action, "free_requested"; "unknown" for a number that is none. Thread-safe; needs no device.
 *
 * @param action The action, one of PLINTH_MEMORY_ACTION_....
 * @return A static text, never NULL.
 */
PLINTH_API
const char *plinth_memory_action_name(int32_t action)
PLINTH_NOEXCEPT;

/**
 * Sets the calling thread's tag, which every entry has that the thread makes from now on. Each text is kept once, and for as
 * long as the process lives. Thread-safe; needs no device.
 *
 * @param text The tag; an empty text for none.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_set_memory_metadata(const char *text)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread's tag. Thread-safe; needs no device.
 *
 * @param text Out: the tag, an empty text if there is none. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_get_memory_metadata(char **text)
PLINTH_NOEXCEPT;

/**
 * Notes in the history that something of the program's begins, a step or a layer, if the history has record_annotations.
 * Thread-safe.
 *
 * @param name What begins.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_memory_annotation_begin(const char *name)
PLINTH_NOEXCEPT;

/**
 * Notes in the history that something of the program's ends. Thread-safe.
 *
 * @param name What ends.
 * @return As plinth_memory_annotation_begin.
 */
PLINTH_API plinth_status_t plinth_memory_annotation_end(const char *name) PLINTH_NOEXCEPT;

/**
 * Shows the annotations, the oldest first: the newest max_entries. Thread-safe.
 *
 * @param callback What is called for each, in this thread, with no lock of the library's held; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for the callback.
 */
PLINTH_API
plinth_status_t plinth_memory_annotations_each(plinth_memory_annotation_callback_t callback,
                                               void *context)
PLINTH_NOEXCEPT;

/**
 * Attaches a tracker: a callback that is shown everything of which a history would have an entry, on all devices, whether a
 * history is kept or not and whatever it skips. Entries have a stack where a history is kept that has one. Thread-safe.
 *
 * Trackers are called in the order in which things happen, one at a time, by the thread whose call made something happen and
 * before that call returns, or by another thread that is at it. No lock of the allocator's is held: a tracker may
 * call the library, and what it makes happen itself is shown to none. It must not wait for a thread that
 * allocates.
 *
 * @param tracker The tracker, which stays callable, with the context, until it is detached and no call is under way that may
 *        have met it.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_attach_allocator_trace_tracker(plinth_memory_history_callback_t tracker,
                                                      void *context)
PLINTH_NOEXCEPT;

/**
 * Detaches what plinth_attach_allocator_trace_tracker attached, the last one of this tracker and context. Thread-safe.
 *
 * @param tracker The tracker.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_detach_allocator_trace_tracker(plinth_memory_history_callback_t tracker,
                                                      void *context)
PLINTH_NOEXCEPT;

/**
 * Tells what is known of a pointer: its kind of memory, its device, its addresses, whose it is and where it begins.
 *
 * Any value may be asked about: it is looked up, not followed. For the caching allocator's memory the block is found by
 * looking at all blocks of its stream, so this is not for every copy. Thread-safe.
 *
 * @param pointer An address.
 * @param attributes In: struct_size. Out: what is known.
 * @return PLINTH_OK, also for memory that nobody knows; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size
 *         that is too small; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_pointer_attributes(const void *pointer,
                                          struct plinth_pointer_attributes_t *attributes)
PLINTH_NOEXCEPT;

/**
 * Allocates managed memory: memory that the host and every device use by one address, and that the driver moves to where it
 * is touched. Slow, and never cached. Thread-safe.
 *
 * The driver would give more than the device has, and move it in and out with every use. This call does not: it fails
 * beyond what is free on the device now.
 *
 * @param size Bytes; 0 gives NULL.
 * @param device The device that it belongs to; -1 for the current one.
 * @param pointer Out: the memory. The caller owns it and frees it with plinth_managed_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a message that tells
 *         request, free and total; PLINTH_ERROR_NOT_SUPPORTED for a device or a driver without it; PLINTH_ERROR_DRIVER; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_managed_malloc(size_t size,
                                      int32_t device,
                                      void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees what plinth_managed_malloc gave. As cudaFree does, it waits for all work of the memory's device. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what plinth_managed_malloc did not give or was freed already;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_managed_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Makes an allocator of two functions of a shared library, found by their names, as
 * torch.cuda.memory.CUDAPluggableAllocator does. The library is loaded and stays so.
 *
 * They are `void *alloc(size_t size, int device, cudaStream_t stream)`, where NULL is the answer if there is no memory, and
 * `void free(void *pointer, size_t size, int device, cudaStream_t stream)`, with what the allocation was asked with. They
 * are called from any thread, with nothing of the library's held, and must not throw. Thread-safe.
 *
 * @param path The library, as dlopen takes it; NULL for the program itself.
 * @param alloc_name The name of the first.
 * @param free_name The name of the second.
 * @param allocator Out: the allocator. The caller owns it and gives it up with plinth_pluggable_allocator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM where the library cannot be loaded, with the system's
 *         reason; PLINTH_ERROR_INVALID_VALUE for a name that it has not.
 */
PLINTH_API
plinth_status_t plinth_pluggable_allocator_create(const char *path,
                                                  const char *alloc_name,
                                                  const char *free_name,
                                                  plinth_pluggable_allocator_t *allocator)
PLINTH_NOEXCEPT;

/**
 * Gives an allocator its hooks, in place of those that it had. Thread-safe.
 *
 * @param allocator The allocator.
 * @param hooks The hooks, which are copied; the functions stay callable.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a struct_size
 *         that was not set.
 */
PLINTH_API
plinth_status_t plinth_pluggable_allocator_set_hooks(plinth_pluggable_allocator_t allocator,
                                                     const struct plinth_allocator_hooks_t *hooks)
PLINTH_NOEXCEPT;

/**
 * Gives an allocator up. What it gave out is still freed by it, and where it is in use it stays so. Thread-safe.
 *
 * @param allocator The allocator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_pluggable_allocator_destroy(plinth_pluggable_allocator_t allocator)
PLINTH_NOEXCEPT;

/**
 * Lets an allocator of the program's own meet all requests, as torch.cuda.memory.change_current_allocator does: once, and
 * before the first request for memory. Thread-safe.
 *
 * @param allocator The allocator.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_ALREADY_INITIALIZED after a request for memory, or after an
 *         earlier change; PLINTH_ERROR_INVALID_CONFIGURATION where the environment makes no sense.
 */
PLINTH_API
plinth_status_t plinth_change_current_allocator(plinth_pluggable_allocator_t allocator)
PLINTH_NOEXCEPT;

/**
 * Tells who gives memory out, as torch.cuda.get_allocator_backend does: "native", "cudaMallocAsync" or "pluggable", and
 * "uncached" or "debug", which are plinth's own. Needs no device. Thread-safe.
 *
 * @param backend Out: the name, which stays the library's.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_CONFIGURATION where the environment makes no sense.
 */
PLINTH_API
plinth_status_t plinth_get_allocator_backend(const char **backend)
PLINTH_NOEXCEPT;

/**
 * Switches the caching of memory off or on, as torch.cuda.caching_allocator_enable does. While it is off each request goes
 * to the driver, and each free of such memory back, which waits for the device. Memory that was allocated before is freed
 * as it was allocated. Backends other than the native one are not concerned. Thread-safe.
 *
 * @param enable Whether memory is cached, as it is at first.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_enable(bool enable)
PLINTH_NOEXCEPT;

/**
 * Tells whether memory is cached, as far as plinth_caching_allocator_enable says so. Thread-safe.
 *
 * @param enabled Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_caching_allocator_is_enabled(bool *enabled) PLINTH_NOEXCEPT;

/**
 * Creates a graph with nothing captured. Needs no device. Thread-safe.
 *
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY with 16 million live graphs.
 */
PLINTH_API plinth_status_t plinth_graph_create(plinth_graph_t *graph) PLINTH_NOEXCEPT;

/**
 * As plinth_graph_create, with a choice.
 *
 * @param flags 0 or PLINTH_GRAPH_KEEP_GRAPH.
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return As plinth_graph_create; PLINTH_ERROR_INVALID_VALUE for other flags.
 */
PLINTH_API
plinth_status_t plinth_graph_create_with_options(uint32_t flags,
                                                 plinth_graph_t *graph)
PLINTH_NOEXCEPT;

/**
 * Destroys a graph, as plinth_graph_reset leaves it. Thread-safe, but a graph must not be destroyed while another thread
 * is in a call with it.
 *
 * @param graph The graph; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_WRONG_THREAD and PLINTH_ERROR_DRIVER as
 *         plinth_graph_reset: the graph stays, and can be destroyed again.
 */
PLINTH_API
plinth_status_t plinth_graph_destroy(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Makes a graph new, so that another capture can begin. A replay that runs finishes; the pool's memory that was this
 * graph's alone goes back to the driver behind it, and the call waits only where that memory is not mapped
 * (expandable_segments:False). What the program has allocated in captures stays valid until the program frees it. A capture
 * that goes on is ended and thrown away.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_WRONG_THREAD for a
 *         capture that is not relaxed and was begun by another thread: it goes on; PLINTH_ERROR_DRIVER where the driver
 *         does not take its objects back: the call can be made again.
 */
PLINTH_API
plinth_status_t plinth_graph_reset(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Begins to capture a graph in the calling thread's current stream: work that is given to the stream from now on, and to
 * streams that wait for it, is not done, but becomes nodes of the graph. Memory that these streams ask for comes from the
 * graph's pool. Random fills take numbers that each replay decides, from the device's own generator and from those that
 * were registered.
 *
 * A call that would make the capture invalid, such as synchronizing, fails with PLINTH_ERROR_CAPTURE_FORBIDS and names
 * the driver's call; the capture is invalid then, and its end says so.
 *
 * @param graph The graph, which is new or was reset.
 * @param pool The pool, from plinth_graph_pool_handle, plinth_graph_pool or plinth_mem_pool_create; NULL or {0, 0} for
 *        one of the graph's own. Graphs that share a pool share its memory: one that was captured later may use what an
 *        earlier one had freed, and is replayed after it.
 * @param mode PLINTH_CAPTURE_GLOBAL, _THREAD_LOCAL or _RELAXED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         mode, for a pool with two numbers, and for a pool that another capture or a begin of the program's uses at the
 *         moment; PLINTH_ERROR_GRAPH_CAPTURED and PLINTH_ERROR_GRAPH_CAPTURING for a graph that is not new;
 *         PLINTH_ERROR_GRAPH_DEFAULT_STREAM; PLINTH_ERROR_CAPTURE_FORBIDS where the stream captures already;
 *         PLINTH_ERROR_GRAPH_ASLEEP for a pool that sleeps; PLINTH_ERROR_DEVICE_MISMATCH for a registered generator of
 *         another device; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization. After an error
 *         nothing is being captured.
 */
PLINTH_API
plinth_status_t plinth_graph_capture_begin(plinth_graph_t graph,
                                           const struct plinth_pool_id_t *pool,
                                           int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Ends a capture, in the stream that it began in, which must be the current one. The graph can be replayed then, unless
 * it was made with PLINTH_GRAPH_KEEP_GRAPH: then plinth_graph_instantiate comes first, or the first replay does that.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURING;
 *         PLINTH_ERROR_GRAPH_WRONG_STREAM, and PLINTH_ERROR_GRAPH_WRONG_THREAD for a capture that is not relaxed: it goes
 *         on, and can be ended where it began. After any other error the graph is new, the stream captures no more, and
 *         what was allocated in the capture stays the program's: PLINTH_ERROR_CAPTURE_INVALIDATED after a call that the
 *         capture forbade; PLINTH_ERROR_GRAPH_UNJOINED; PLINTH_ERROR_GRAPH_EMPTY; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_capture_end(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Makes a graph ready that was made with PLINTH_GRAPH_KEEP_GRAPH; again, if its nodes were changed by the program's own
 * calls of the driver.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_NOT_KEPT for a graph without PLINTH_GRAPH_KEEP_GRAPH;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_instantiate(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Brings a graph to its device, in the calling thread's current stream there, so that the first replay need not. Calls
 * plinth_graph_instantiate where that was not done.
 *
 * @param graph The graph.
 * @return As plinth_graph_instantiate, but any graph may be uploaded; PLINTH_ERROR_CAPTURE_FORBIDS.
 */
PLINTH_API
plinth_status_t plinth_graph_upload(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Replays a graph: its work is given, as a whole, to the calling thread's current stream on the graph's device, the
 * default stream or any other. Returns before it is done. Generators that the graph uses are advanced as the same calls
 * without a graph would have advanced them.
 *
 * Graphs of one pool never run at once: a replay in another stream than the pool's last one is made to wait for it on the
 * device, or refused; see plinth_graph_set_overlap_policy. Within one stream they run in the order of their replays, which
 * should be that of their captures where one reads what the other leaves.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_ASLEEP; PLINTH_ERROR_GRAPH_OVERLAP;
 *         PLINTH_ERROR_CAPTURE_FORBIDS where the current stream is capturing; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER. After an error nothing was launched and no random numbers were taken.
 */
PLINTH_API
plinth_status_t plinth_graph_replay(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Says what happens when a graph is replayed in one stream while another replay of its pool, its own or another graph's,
 * still runs in another stream. The graphs may use the same memory, so the replays must not overlap. Thread-safe.
 *
 * @param graph The graph whose replays this is about.
 * @param policy PLINTH_GRAPH_OVERLAP_ORDER, which is what happens unless this is called, or PLINTH_GRAPH_OVERLAP_REFUSE.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         policy.
 */
PLINTH_API
plinth_status_t plinth_graph_set_overlap_policy(plinth_graph_t graph,
                                                int32_t policy)
PLINTH_NOEXCEPT;

/**
 * Lets the captures of a graph use a generator beside the device's own, which always may. Call it before the capture. The
 * graph holds on to the generator's state, also when the generator is destroyed.
 *
 * @param graph The graph, which is new or was reset; it remembers its generators over a reset.
 * @param generator The generator, of the device that will be captured; NULL for the device's own.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL graph; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_GRAPH_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING.
 */
PLINTH_API
plinth_status_t plinth_graph_register_generator_state(plinth_graph_t graph,
                                                      plinth_generator_t generator)
PLINTH_NOEXCEPT;

/**
 * Gives a name for a pool that graphs are to share: none that any pool has. It takes no memory. Thread-safe.
 *
 * @param pool Out: the name. The pool lives as long as graphs use it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_graph_pool_handle(struct plinth_pool_id_t *pool) PLINTH_NOEXCEPT;

/**
 * Tells the pool of a graph that is captured or being captured.
 *
 * @param graph The graph.
 * @param pool Out: its name.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API
plinth_status_t plinth_graph_pool(plinth_graph_t graph,
                                  struct plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Tells how much memory the pool of a graph has, on all devices, for whichever graphs share it.
 *
 * @param graph The graph, captured or being captured.
 * @param allocated Out: bytes in the program's hands: what captures allocated and nobody has freed.
 * @param held Out: physical bytes that are held for the pool; 0 while it sleeps.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API
plinth_status_t plinth_graph_memory(plinth_graph_t graph,
                                    size_t *allocated,
                                    size_t *held)
PLINTH_NOEXCEPT;

/**
 * Gives the physical memory of a graph's pool back to the driver and keeps the addresses. Waits for all work of the
 * devices first. The contents are lost, those of inputs and outputs that captures allocated in the pool too; whatever a
 * replay reads and does not write itself has to be written again after plinth_graph_wake. Every graph of the pool sleeps,
 * and is refused with PLINTH_ERROR_GRAPH_ASLEEP until it is woken; blocks of the pool can be freed meanwhile, and must not
 * be touched. Does nothing to a pool that sleeps.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_MEMORY_IN_USE while requests go to the pool, and for a pool
 *         with allocated blocks that served others than captures, whose blocks could be anybody's;
 *         PLINTH_ERROR_NOT_SUPPORTED for memory that is not mapped (expandable_segments:False) and for that of an
 *         allocator of the program's own; PLINTH_ERROR_CAPTURE_FORBIDS while a stream captures, which the question does
 *         not disturb; PLINTH_ERROR_WOULD_SYNCHRONIZE;
 *         PLINTH_ERROR_DRIVER: what did not go yet goes with the next call, and the pool sleeps if any went.
 */
PLINTH_API
plinth_status_t plinth_graph_sleep(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Gives a graph's pool physical memory again, at the addresses that it had. What it holds is not defined. Does nothing to
 * a pool that does not sleep.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_OUT_OF_MEMORY and PLINTH_ERROR_DRIVER: the pool sleeps on.
 */
PLINTH_API
plinth_status_t plinth_graph_wake(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Tells whether a graph's pool sleeps.
 *
 * @param graph The graph, captured or being captured.
 * @param asleep Out: whether it does.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API plinth_status_t plinth_graph_is_asleep(plinth_graph_t graph, bool *asleep) PLINTH_NOEXCEPT;

/**
 * Lets a graph keep its nodes after the end of the capture, for plinth_graph_debug_dump and plinth_graph_summary. To be
 * called before that end.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_graph_enable_debug_mode(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Draws a graph into a file in the language of Graphviz: `dot -Tsvg FILE` makes a picture of it. Can be called again, which
 * torch's cannot.
 *
 * @param graph The graph, which kept its nodes.
 * @param path The file, which is made anew.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT without PLINTH_GRAPH_KEEP_GRAPH and plinth_graph_enable_debug_mode;
 *         PLINTH_ERROR_DRIVER where the file cannot be written.
 */
PLINTH_API
plinth_status_t plinth_graph_debug_dump(plinth_graph_t graph,
                                        const char *path)
PLINTH_NOEXCEPT;

/**
 * Describes a graph's nodes, ready to be drawn: a line of names, then a line for each node, with tabs between its number,
 * its layer (the length of the longest way to it), its place in the layer, its type, what it does, and the numbers of the
 * nodes that it waits for, with commas between them.
 *
 * @param graph The graph, which kept its nodes.
 * @param text Out: the text; the caller frees it with plinth_string_free.
 * @return As plinth_graph_debug_dump.
 */
PLINTH_API
plinth_status_t plinth_graph_summary(plinth_graph_t graph,
                                     char **text)
PLINTH_NOEXCEPT;

/**
 * Gives the CUgraph of a graph that kept its nodes, for the program's own calls of the driver: torch's raw_cuda_graph. It
 * stays the library's, and lives until the graph is reset or destroyed.
 *
 * @param graph The graph.
 * @param native Out: the CUgraph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT.
 */
PLINTH_API
plinth_status_t plinth_graph_native(plinth_graph_t graph,
                                    void **native)
PLINTH_NOEXCEPT;

/**
 * Gives the CUgraphExec of a graph that is instantiated: torch's raw_cuda_graph_exec. It stays the library's, and lives
 * until the graph is instantiated anew, reset or destroyed. Who launches it himself answers for its generators, which are
 * not advanced, and for replays that overlap.
 *
 * @param graph The graph.
 * @param native Out: the CUgraphExec.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API
plinth_status_t plinth_graph_exec_native(plinth_graph_t graph,
                                         void **native)
PLINTH_NOEXCEPT;

/**
 * Lets the replays of a graph from now on do what another graph does, without instantiating it: much cheaper, and possible
 * where both have the same nodes and edges and differ in parameters. The graph has the other's memory and generators then,
 * beside it. What its replays had before goes on to the end; the memory that was its own goes back behind that.
 *
 * @param graph The graph.
 * @param other A graph of the same device that kept its nodes. It stays as it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for the same
 *         graph; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_UPDATE_REFUSED, with the reason and the node in the message: the graph is as it was, and
 *         capturing it anew is the other way; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_update(plinth_graph_t graph,
                                    plinth_graph_t other)
PLINTH_NOEXCEPT;

/**
 * As plinth_graph_update, to a CUgraph of the program's. The graph keeps its memory and its generators.
 *
 * @param graph The graph.
 * @param native The CUgraph, which stays the program's.
 * @return As plinth_graph_update.
 */
PLINTH_API plinth_status_t plinth_graph_update_native(plinth_graph_t graph, void *native) PLINTH_NOEXCEPT;

/**
 * Copies a graph that kept its nodes. Both share their memory and their generators, which stay until both are gone, so
 * their replays do not overlap. The copy keeps its nodes and is not instantiated.
 *
 * @param graph The graph.
 * @param copy Out: the copy. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_clone(plinth_graph_t graph,
                                   plinth_graph_t *copy)
PLINTH_NOEXCEPT;

/**
 * Begins a capture as a block of a program, as `with torch.cuda.graph(...)` does: waits for the stream's device, gives
 * cached memory back, makes the stream and its device current, and begins to capture. plinth_graph_end ends the block.
 *
 * @param graph The graph, which is new or was reset.
 * @param pool As in plinth_graph_capture_begin.
 * @param stream The stream; NULL for one that the library keeps for captures on the current device.
 * @param mode As in plinth_graph_capture_begin.
 * @param context Out: what plinth_graph_end needs.
 * @return As plinth_graph_capture_begin; PLINTH_ERROR_WOULD_SYNCHRONIZE. After an error the current stream and device are
 *         what they were.
 */
PLINTH_API
plinth_status_t plinth_graph_begin(plinth_graph_t graph,
                                   const struct plinth_pool_id_t *pool,
                                   plinth_stream_t stream,
                                   int32_t mode,
                                   struct plinth_graph_context_t *context)
PLINTH_NOEXCEPT;

/**
 * Ends what plinth_graph_begin began, in the thread that began it: ends the capture, and makes current what was current
 * before, whatever comes of the capture.
 *
 * A block that failed is ended with its error: the capture is thrown away, the graph is new, and the call returns that
 * error, with the message of the thread's last call if that was the one that failed with it.
 *
 * @param context What plinth_graph_begin filled.
 * @param body What the block came to: PLINTH_OK to keep the capture, or the status of the call that failed in it.
 * @return `body`, unless that is PLINTH_OK; PLINTH_ERROR_NULL_POINTER; otherwise as plinth_graph_capture_end.
 */
PLINTH_API
plinth_status_t plinth_graph_end(const struct plinth_graph_context_t *context,
                                 plinth_status_t body)
PLINTH_NOEXCEPT;

/**
 * Creates a graph that is built by hand: it has no nodes yet, and they come by the plinth_graph_add_ functions. From then on
 * it is as a captured one that was made with PLINTH_GRAPH_KEEP_GRAPH: plinth_graph_instantiate makes it ready,
 * plinth_graph_replay launches it. A captured graph that kept its nodes can be added to in the same way.
 *
 * The rules that hold for all functions that add a node:
 * - The node waits for its dependencies, which are nodes of the same graph, each once. Nodes between which there is no way
 *   along dependencies may run at once.
 * - What is added is in the replays after the next plinth_graph_instantiate, not in those before.
 * - Memory that a node uses, and what its function is given, must stay valid as long as the graph, or what was instantiated of
 *   it, may run. Nodes do not allocate; the program does that before.
 * - A node lives as long as its graph. It cannot be taken out again, but kernels, copies and fills can be switched off:
 *   plinth_graph_node_set_enabled.
 * - Thread-safe; calls with one graph follow one another.
 *
 * @param device The device whose work the graph is; -1 for the current one.
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_graph_create_empty(int32_t device,
                                          plinth_graph_t *graph)
PLINTH_NOEXCEPT;

/**
 * Adds a launch of a kernel to a graph.
 *
 * @param graph The graph: made by plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body of a
 *        conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param kernel The launch.
 * @param node Out: the node.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no graph, and for a
 *         dependency that is no node of it; PLINTH_ERROR_INVALID_VALUE for a dependency that is there twice, for a grid or a
 *         block of a size that the device does not have; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is neither built
 *         nor captured; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_kernel(plinth_graph_t graph,
                                        const plinth_graph_node_t *dependencies,
                                        size_t count,
                                        const struct plinth_graph_kernel_t *kernel,
                                        plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a copy to a graph, between memory of devices and of the CPU, as plinth_memcpy makes it.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param destination The first byte written.
 * @param source The first byte read. It is read at each replay.
 * @param bytes How many; not 0.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE for 0 bytes, too, and for a range that is no memory.
 */
PLINTH_API
plinth_status_t plinth_graph_add_copy(plinth_graph_t graph,
                                      const plinth_graph_node_t *dependencies,
                                      size_t count,
                                      void *destination,
                                      const void *source,
                                      size_t bytes,
                                      plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a fill of memory of a device to a graph.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param pointer The first element, aligned to its size.
 * @param value What each element becomes; of smaller elements the low bits.
 * @param element_size The size of an element: 1, 2 or 4 bytes.
 * @param elements How many elements; not 0.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE for another element_size, a pointer that is not aligned, 0
 *         elements, and for a range that is no memory of a device.
 */
PLINTH_API
plinth_status_t plinth_graph_add_fill(plinth_graph_t graph,
                                      const plinth_graph_node_t *dependencies,
                                      size_t count,
                                      void *pointer,
                                      uint32_t value,
                                      size_t element_size,
                                      size_t elements,
                                      plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a call of a function on the CPU to a graph. What depends on it waits for its return.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param function The function; called at each replay, by a thread of the driver's.
 * @param context Passed to the function. The caller keeps it alive as long as the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_add_host(plinth_graph_t graph,
                                      const plinth_graph_node_t *dependencies,
                                      size_t count,
                                      plinth_host_function_t function,
                                      void *context,
                                      plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a copy of another graph to a graph, as one node. The child may be changed or destroyed afterwards. Memory of the
 * child's pool stays as long as either graph, and replays of the two, and of all other graphs of the pool, do not overlap.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param child The other graph, which kept its nodes and takes no random numbers.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel, for both graphs; PLINTH_ERROR_INVALID_VALUE for a child that takes random numbers;
 *         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_NOT_SUPPORTED for a child with conditional nodes.
 */
PLINTH_API
plinth_status_t plinth_graph_add_child(plinth_graph_t graph,
                                       const plinth_graph_node_t *dependencies,
                                       size_t count,
                                       plinth_graph_t child,
                                       plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph that does nothing but wait: a point that others can depend on.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_add_empty(plinth_graph_t graph,
                                       const plinth_graph_node_t *dependencies,
                                       size_t count,
                                       plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds the recording of an event to a graph: each replay records it anew, and streams outside can wait for it, or ask for the
 * time between two. Counts as recorded from this call on; before the first replay it is complete.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param event The event, of the graph's device from now on. It must not be destroyed while the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no event;
 *         PLINTH_ERROR_DEVICE_MISMATCH for an event of another device.
 */
PLINTH_API
plinth_status_t plinth_graph_add_event_record(plinth_graph_t graph,
                                              const plinth_graph_node_t *dependencies,
                                              size_t count,
                                              plinth_event_t event,
                                              plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a wait for an event to a graph: each replay waits for what the event recorded last before the replay.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param event The event. It must not be destroyed while the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no event.
 */
PLINTH_API
plinth_status_t plinth_graph_add_event_wait(plinth_graph_t graph,
                                            const plinth_graph_node_t *dependencies,
                                            size_t count,
                                            plinth_event_t event,
                                            plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Makes a node of a graph wait for another one. Dependencies must not form a circle; plinth_graph_instantiate finds those.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param from The node that is waited for.
 * @param to The node that waits.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node and itself,
 *         and for a dependency that is there already; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_dependency(plinth_graph_t graph,
                                            plinth_graph_node_t from,
                                            plinth_graph_node_t to)
PLINTH_NOEXCEPT;

/**
 * Lists the nodes of a graph, without those of the graphs inside it, in an order of the driver's.
 *
 * @param graph The graph, which kept its nodes.
 * @param nodes Out: the nodes; NULL to ask for the count only.
 * @param count In: for how many there is room; out: how many there are. If they are more, only as many as fit are written.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_nodes(plinth_graph_t graph,
                                   plinth_graph_node_t *nodes,
                                   size_t *count)
PLINTH_NOEXCEPT;

/**
 * Tells what a node is.
 *
 * @param graph The graph, which kept its nodes.
 * @param node A node of it.
 * @param node_type Out: one of PLINTH_GRAPH_NODE_..., or another number of CUDA's CUgraphNodeType.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_node_type(plinth_graph_t graph,
                                       plinth_graph_node_t node,
                                       uint32_t *node_type)
PLINTH_NOEXCEPT;

/**
 * Tells what a kernel's node launches.
 *
 * @param graph The graph, which kept its nodes.
 * @param node A node of it that launches a kernel.
 * @param kernel Out: the launch. Its parameters are the graph's own and must not be written to; they are NULL where the
 *        program gave them packed into one buffer. The function is NULL where the driver has no CUfunction for it.
 * @return As plinth_graph_node_type; PLINTH_ERROR_INVALID_VALUE for a node that is no kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_node_kernel(plinth_graph_t graph,
                                         plinth_graph_node_t node,
                                         struct plinth_graph_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Gives a kernel of an instantiated graph another launch, in the replays from now on; those that run are not changed, nor
 * is what plinth_graph_instantiate will make of the graph next.
 *
 * @param graph The graph, which kept its nodes and is instantiated.
 * @param node A node of it that launches a kernel. It had to be there when the graph was instantiated.
 * @param kernel The launch, of a kernel of the same device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node that is no
 *         kernel or came later, for a launch that cannot be, and for the body of a conditional node;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is not instantiated, too; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_set_kernel(plinth_graph_t graph,
                                        plinth_graph_node_t node,
                                        const struct plinth_graph_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Switches a kernel, copy or fill of an instantiated graph off or on, in the replays from now on. What waits for it waits
 * for its dependencies then. plinth_graph_instantiate makes all nodes anew, switched on. With a last node that is switched
 * off, driver 580 (CUDA 13.0) may tell of the end of a replay before the nodes in front of it are done: let another node
 * come after it.
 *
 * @param graph The graph, which kept its nodes and is instantiated.
 * @param node A node of it that is a kernel, a copy or a fill. It had to be there when the graph was instantiated.
 * @param enabled Whether it is to be carried out.
 * @return As plinth_graph_set_kernel, for a node that is none of the three.
 */
PLINTH_API
plinth_status_t plinth_graph_node_set_enabled(plinth_graph_t graph,
                                              plinth_graph_node_t node,
                                              bool enabled)
PLINTH_NOEXCEPT;

/**
 * Tells whether a kernel, copy or fill of an instantiated graph is switched on.
 *
 * @param graph The graph, which kept its nodes and is instantiated.
 * @param node As in plinth_graph_node_set_enabled.
 * @param enabled Out: whether it is.
 * @return As plinth_graph_node_set_enabled.
 */
PLINTH_API
plinth_status_t plinth_graph_node_enabled(plinth_graph_t graph,
                                          plinth_graph_node_t node,
                                          bool *enabled)
PLINTH_NOEXCEPT;

/**
 * Makes a condition for one conditional node of a graph, or of a body inside it: a 32-bit value on the device, which kernels
 * in the graph set, and which the node asks when the graph gets to it. The condition must be used in a node before the graph
 * is instantiated, and lives as long as the graph.
 *
 * @param graph The graph: made by plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body of a
 *        conditional node.
 * @param default_value What each replay of the graph begins with.
 * @param condition Out: the condition.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older than
 *         CUDA 12.4; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_condition_create(plinth_graph_t graph,
                                              uint32_t default_value,
                                              plinth_graph_condition_t *condition)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph whose body is carried out if the condition is not 0 when the graph gets there.
 *
 * The rules that hold for the bodies of all conditional nodes:
 * - A body is a graph, empty at first. It is filled with the plinth_graph_add_ functions, or by capturing into it: with
 *   plinth_graph_capture_begin or plinth_graph_begin, and the end of those. A capture adds to what is there, behind it.
 *   Memory that it allocates belongs to the graph around it. Random numbers cannot be taken in it.
 * - It has kernels, copies and fills of device memory, empty nodes, child graphs and conditional nodes, all of one device.
 * - It belongs to the graph around it: it is not instantiated, replayed, reset or destroyed for itself
 *   (PLINTH_ERROR_INVALID_VALUE), and its handle ends when that graph is reset or destroyed. plinth_graph_reset of a body that
 *   is being captured throws the capture away.
 * - It can be filled until the graph around it is instantiated. Graphs with conditional nodes cannot be copied, added as
 *   children, or timed node by node.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition A condition of the graph, or of one around it, that no other node asks.
 * @param body Out: the body.
 * @param node Out: the node.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no graph or no condition,
 *         and for a dependency that is no node of the graph; PLINTH_ERROR_INVALID_VALUE for a condition that another node
 *         asks, or of another graph, and for a dependency that is there twice; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older than
 *         CUDA 12.4; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_if(plinth_graph_t graph,
                                    const plinth_graph_node_t *dependencies,
                                    size_t count,
                                    plinth_graph_condition_t condition,
                                    plinth_graph_t *body,
                                    plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph of whose two bodies the first one is carried out if the condition is not 0, and the second one if it
 * is.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition As in plinth_graph_add_if.
 * @param then_body Out: the first body.
 * @param else_body Out: the second body.
 * @param node Out: the node.
 * @return As plinth_graph_add_if, but the driver has to be of CUDA 12.8.
 */
PLINTH_API
plinth_status_t plinth_graph_add_if_else(plinth_graph_t graph,
                                         const plinth_graph_node_t *dependencies,
                                         size_t count,
                                         plinth_graph_condition_t condition,
                                         plinth_graph_t *then_body,
                                         plinth_graph_t *else_body,
                                         plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph whose body is carried out again and again while the condition is not 0. Something in the body has
 * to set the condition to 0 at some time: what never ends cannot be stopped.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition As in plinth_graph_add_if. With a default that is not 0 the body is carried out once at least.
 * @param body Out: the body.
 * @param node Out: the node.
 * @return As plinth_graph_add_if.
 */
PLINTH_API
plinth_status_t plinth_graph_add_while(plinth_graph_t graph,
                                       const plinth_graph_node_t *dependencies,
                                       size_t count,
                                       plinth_graph_condition_t condition,
                                       plinth_graph_t *body,
                                       plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph that carries out the body whose number the condition is, and none if there is no such body.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition As in plinth_graph_add_if.
 * @param bodies Out: the bodies, from number 0 on.
 * @param body_count How many bodies: 1 to 4096.
 * @param node Out: the node.
 * @return As plinth_graph_add_if, but the driver has to be of CUDA 12.8; PLINTH_ERROR_INVALID_VALUE for another body_count.
 */
PLINTH_API
plinth_status_t plinth_graph_add_switch(plinth_graph_t graph,
                                        const plinth_graph_node_t *dependencies,
                                        size_t count,
                                        plinth_graph_condition_t condition,
                                        plinth_graph_t *bodies,
                                        size_t body_count,
                                        plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a kernel to a graph that gives a condition the 32-bit value that is in memory when it runs.
 *
 * @param graph The graph that asks the condition, or one inside or around it.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition The condition.
 * @param value Where the value is: 4 bytes that the device can read, aligned.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no condition;
 *         PLINTH_ERROR_INVALID_VALUE for an address that is not aligned.
 */
PLINTH_API
plinth_status_t plinth_graph_add_condition_set(plinth_graph_t graph,
                                               const plinth_graph_node_t *dependencies,
                                               size_t count,
                                               plinth_graph_condition_t condition,
                                               const void *value,
                                               plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Launches the same kernel in a stream that is capturing, so that it becomes a part of what is captured: the body that asks
 * the condition, or a graph around it.
 *
 * @param condition The condition.
 * @param value As in plinth_graph_add_condition_set.
 * @param stream The stream, of the condition's device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no condition or no stream;
 *         PLINTH_ERROR_INVALID_VALUE for an address that is not aligned; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURING for a stream that is not capturing; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_condition_set_from(plinth_graph_condition_t condition,
                                                const void *value,
                                                plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Measures how long each node of a graph takes. The nodes of a copy of the graph run one after the other, with the recording of
 * an event before, between and behind them, in the current stream of the graph's device; this is waited for.
 *
 * They really run: once and then `repeats` times, as by so many replays, with all that this does to the program's memory,
 * random generators and events, and with its host functions. And nothing overlaps: nodes that a replay runs at the same
 * time are timed alone, and the sum of the times can be more than a replay takes. Each time has in it what an event costs,
 * about a microsecond on a GPU. A child graph is one node.
 *
 * @param graph The graph, which kept its nodes, and has no conditional ones.
 * @param repeats How many times; 1 to 10000. A node's time is the median.
 * @param times Out: the times, in the order in which the nodes ran; NULL to ask for the count only, which still measures.
 * @param count In: for how many there is room; out: how many nodes there are. If they are more, only as many as fit are
 *        written.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other
 *         repeats, for the body of a conditional node, and for nodes that wait for each other in a circle;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
 *         PLINTH_ERROR_NOT_SUPPORTED with conditional nodes; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_GRAPH_ASLEEP;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_node_times(plinth_graph_t graph,
                                        uint32_t repeats,
                                        struct plinth_node_time_t *times,
                                        size_t *count)
PLINTH_NOEXCEPT;

/**
 * Does the same as plinth_graph_node_times, and gives a table: a line of names, a line for each node with tabs between its time in
 * microseconds, its type and what it does, and a line with the sum.
 *
 * @param graph As in plinth_graph_node_times.
 * @param repeats As in plinth_graph_node_times.
 * @param text Out: the table; the caller frees it with plinth_string_free.
 * @return As plinth_graph_node_times.
 */
PLINTH_API
plinth_status_t plinth_graph_time_table(plinth_graph_t graph,
                                        uint32_t repeats,
                                        char **text)
PLINTH_NOEXCEPT;

/**
 * Captures functions of the program's as graphs: torch.cuda.make_graphed_callables. Each is run `warmup_count` times in a
 * stream of its own, forward and backward. Then all forward passes are captured in their order, and all backward passes in the
 * reverse order, in one pool: so they must be called in that order, too, as one step of a training calls them. The device is
 * waited for before and after warming up, and before each capture.
 *
 * The graphs reuse each other's memory: what one leaves in its outputs is good until the graphs before it in that order are
 * called again. Their calls never overlap; in another stream than the last one they wait for it.
 *
 * @param callables The functions, all of the current device.
 * @param count How many; not 0.
 * @param pool The pool, as in plinth_graph_capture_begin; NULL for a new one.
 * @param warmup_count How often each is run before; torch's default is PLINTH_CALLABLE_WARMUPS. 1000 at most.
 * @param graphed Out: a callable for each, in their order. The caller owns them and destroys each with
 *        plinth_graphed_callable_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a count of 0, for more warm-ups, and for a
 *         tensor that is malformed, or an input that does not fill one piece of memory; PLINTH_ERROR_DEVICE_MISMATCH for a
 *         tensor of another device; what a pass returned, with the message of its last call; PLINTH_ERROR_GRAPH_EMPTY for a
 *         pass that gives the device nothing to do; PLINTH_ERROR_CAPTURE_FORBIDS where the current stream captures; those of
 *         plinth_graph_begin and plinth_graph_end. After an error nothing is left of any of them.
 */
PLINTH_API
plinth_status_t plinth_make_graphed_callables(const struct plinth_callable_t *callables,
                                              size_t count,
                                              const struct plinth_pool_id_t *pool,
                                              uint32_t warmup_count,
                                              plinth_graphed_callable_t *graphed)
PLINTH_NOEXCEPT;

/**
 * Calls a graphed callable in the current stream of its device: copies each input whose data is not that of the captured one,
 * and replays. Returns before that is done. The outputs are at the same addresses at each call, and the next call of this or
 * another callable of the pool writes there. A program that writes its inputs to where they were captured saves the copies.
 * Thread-safe; calls of one callable follow one another.
 *
 * @param callable The callable.
 * @param inputs The inputs: each of the device, type, shape and strides of the captured one.
 * @param input_count How many; as many as were captured.
 * @param outputs Out: the outputs. Their memory, shapes and strides are the library's until the callable is reset or destroyed.
 * @param output_count How many; as many as were described.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other counts, and
 *         for an input of another type, shape or order in memory; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED for a callable that was reset; PLINTH_ERROR_CAPTURE_FORBIDS where the current
 *         stream captures; those of plinth_graph_replay.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_call(plinth_graphed_callable_t callable,
                                             const DLTensor *inputs,
                                             size_t input_count,
                                             DLTensor *outputs,
                                             size_t output_count)
PLINTH_NOEXCEPT;

/**
 * Calls the backward pass of a graphed callable in the same way, once after each call of the forward pass, whose results it uses
 * up.
 *
 * @param callable The callable, which was made with a backward pass.
 * @param output_gradients The gradients of the outputs, with their elements side by side.
 * @param output_count How many; as many as there are outputs.
 * @param input_gradients Out: the gradients of the inputs; data is NULL for those that are not differentiable. The rest as for
 *        the outputs of plinth_graphed_callable_call.
 * @param input_count How many; as many as there are inputs.
 * @return As plinth_graphed_callable_call; PLINTH_ERROR_INVALID_VALUE for a callable without a backward pass, and where no
 *         forward pass came before, or since the last backward pass.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_backward(plinth_graphed_callable_t callable,
                                                 const DLTensor *output_gradients,
                                                 size_t output_count,
                                                 DLTensor *input_gradients,
                                                 size_t input_count)
PLINTH_NOEXCEPT;

/**
 * Tells the pool that a graphed callable shares with those that were made with it, and that other graphs can share.
 *
 * @param callable The callable.
 * @param pool Out: its name.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED for one that was
 *         reset.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_pool(plinth_graphed_callable_t callable,
                                             struct plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Gives up the graphs of a callable, and its outputs. What runs finishes. Does nothing to one that was reset.
 *
 * @param callable The callable.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the call can be made again.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_reset(plinth_graphed_callable_t callable)
PLINTH_NOEXCEPT;

/**
 * Destroys a graphed callable, as plinth_graphed_callable_reset leaves it. It must not be destroyed while another thread is in a
 * call with it.
 *
 * @param callable The callable; NULL does nothing.
 * @return As plinth_graphed_callable_reset.
 */
PLINTH_API
plinth_status_t plinth_graphed_callable_destroy(plinth_graphed_callable_t callable)
PLINTH_NOEXCEPT;

/**
 * Adds a callback that may free memory when there is none for a request, before the device is waited for and the request
 * fails. Callbacks are called in the order in which they were added. Thread-safe.
 *
 * @param callback The callback, which stays callable, with the context, until it is removed and no request is under way
 *        that may have met it.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_add_free_memory_callback(plinth_free_memory_callback_t callback,
                                                void *context)
PLINTH_NOEXCEPT;

/**
 * Removes what plinth_add_free_memory_callback added, the last one of this callback and context. Thread-safe.
 *
 * @param callback The callback.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none.
 */
PLINTH_API
plinth_status_t plinth_remove_free_memory_callback(plinth_free_memory_callback_t callback,
                                                   void *context)
PLINTH_NOEXCEPT;

/**
 * Adds an observer of requests that fail for want of memory. Thread-safe.
 *
 * @param observer The observer, which stays callable, with the context, until it is detached and no request is under way
 *        that may have met it.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_attach_out_of_memory_observer(plinth_out_of_memory_observer_t observer,
                                                     void *context)
PLINTH_NOEXCEPT;

/**
 * Removes what plinth_attach_out_of_memory_observer added, the last one of this observer and context. Thread-safe.
 *
 * @param observer The observer.
 * @param context Its context.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if there is none.
 */
PLINTH_API
plinth_status_t plinth_detach_out_of_memory_observer(plinth_out_of_memory_observer_t observer,
                                                     void *context)
PLINTH_NOEXCEPT;

/**
 * Allocates as plinth_caching_allocator_alloc does: the alloc_fn of torch.cuda.memory.CUDAPluggableAllocator. Any live
 * stream will do, known to plinth or not. Thread-safe.
 *
 * @param size Bytes; 0 gives NULL. A negative size is one that is too large.
 * @param device The device's number; -1 for the current one.
 * @param stream The stream, of that device; NULL for its default stream.
 * @return The memory, which plinth_free or plinth_caching_allocator_delete frees; NULL on failure, and then
 *         plinth_last_error tells why.
 */
PLINTH_API
void *plinth_alloc(ptrdiff_t size,
                   int device,
                   plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Frees as plinth_caching_allocator_delete does: the free_fn of CUDAPluggableAllocator. A pointer that is not the
 * allocator's is left alone, and plinth_last_error tells so. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @param size What was asked for. The allocator knows better, and does not look.
 * @param device The device; likewise.
 * @param stream The stream; likewise.
 */
PLINTH_API
void plinth_free(void *pointer,
                 ptrdiff_t size,
                 int device,
                 plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * The init_fn of CUDAPluggableAllocator: initializes the library. Where there are several devices, each is given access to
 * the memory of every other that it can reach: PyTorch copies between devices without telling its allocator. Thread-safe.
 *
 * @param device_count How many devices PyTorch sees.
 */
PLINTH_API
void plinth_pluggable_init(int device_count)
PLINTH_NOEXCEPT;

/**
 * The reset_fn of CUDAPluggableAllocator, which torch.cuda.empty_cache calls: plinth_empty_cache. Thread-safe.
 */
PLINTH_API
void plinth_pluggable_reset(void)
PLINTH_NOEXCEPT;

/**
 * The memory_fraction_fn of CUDAPluggableAllocator: plinth_set_per_process_memory_fraction. Thread-safe.
 *
 * @param fraction From 0 to 1.
 * @param device The device's number.
 */
PLINTH_API void plinth_pluggable_memory_fraction(double fraction, int device) PLINTH_NOEXCEPT;

/**
 * The base_alloc_fn of CUDAPluggableAllocator: the block that a pointer belongs to. Thread-safe.
 *
 * @param pointer A pointer that plinth_alloc gave.
 * @param size Out: the block's bytes, if it is one; NULL is allowed.
 * @return The block; the pointer itself where it is none of the allocator's.
 */
PLINTH_API void *plinth_pluggable_base_alloc(void *pointer, size_t *size) PLINTH_NOEXCEPT;

/**
 * The record_stream_fn of CUDAPluggableAllocator: plinth_record_stream, for any live stream. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @param stream The stream.
 */
PLINTH_API void plinth_pluggable_record_stream(void *pointer, plinth_stream_t stream) PLINTH_NOEXCEPT;

/**
 * The begin_allocate_to_pool hook of CUDAPluggableAllocator, called when a capture is about to begin:
 * plinth_begin_allocate_to_pool. Thread-safe.
 *
 * @param device The device's number.
 * @param pool The graph's pool. PyTorch's MempoolId_t, a pair of 64-bit numbers, is passed in the same way.
 * @param filter A C++ function object that tells which streams are meant. It is not called; streams that capture are.
 */
PLINTH_API
void plinth_pluggable_begin_allocate_to_pool(int device,
                                             struct plinth_pool_id_t pool,
                                             void *filter)
PLINTH_NOEXCEPT;

/**
 * The end_allocate_to_pool_fn of CUDAPluggableAllocator: plinth_end_allocate_to_pool. Thread-safe.
 *
 * @param device The device's number.
 * @param pool The graph's pool.
 */
PLINTH_API
void plinth_pluggable_end_allocate_to_pool(int device,
                                           struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * The release_pool hook of CUDAPluggableAllocator, called when a graph is gone: plinth_release_pool. Thread-safe.
 *
 * @param device The device's number.
 * @param pool The graph's pool.
 */
PLINTH_API
void plinth_pluggable_release_pool(int device,
                                   struct plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * The malloc_func of cupy.cuda.CFunctionAllocator: allocates for the calling thread's current plinth stream on the device,
 * since CuPy does not tell its own. Thread-safe.
 *
 * @param param What CuPy was given; not looked at.
 * @param size Bytes; 0 gives NULL.
 * @param device The device's number.
 * @return As plinth_alloc.
 */
PLINTH_API
void *plinth_cupy_malloc(void *param,
                         size_t size,
                         int device)
PLINTH_NOEXCEPT;

/**
 * The free_func of cupy.cuda.CFunctionAllocator. Thread-safe.
 *
 * @param param What CuPy was given; not looked at.
 * @param pointer The memory; NULL does nothing.
 * @param device The device's number; not needed.
 */
PLINTH_API void plinth_cupy_free(void *param, void *pointer, int device) PLINTH_NOEXCEPT;

/**
 * The allocation callback of rmm::mr::callback_memory_resource, whose stream view is passed as a stream is: allocates on the
 * current device. Thread-safe.
 *
 * @param bytes Bytes; 0 gives NULL.
 * @param stream The stream, of the current device.
 * @param arg What RMM was given; not looked at.
 * @return As plinth_alloc.
 */
PLINTH_API
void *plinth_rmm_allocate(size_t bytes,
                          plinth_stream_t stream,
                          void *arg)
PLINTH_NOEXCEPT;

/**
 * The deallocation callback of rmm::mr::callback_memory_resource. Thread-safe.
 *
 * @param pointer The memory; NULL does nothing.
 * @param bytes What was asked for; not needed.
 * @param stream The stream; not needed: the memory goes back to the stream that it was allocated for.
 * @param arg What RMM was given; not looked at.
 */
PLINTH_API
void plinth_rmm_deallocate(void *pointer,
                           size_t bytes,
                           plinth_stream_t stream,
                           void *arg)
PLINTH_NOEXCEPT;

/**
 * Begins to write every allocation and free of the caching allocator to a file, on all devices and from all threads. What
 * is live already is written first. benches/replay replays such files. Thread-safe.
 *
 * A file is a row of events of 16 bytes, little-endian: the block's number (32 bits), 0 for an allocation or 1 for a free
 * (16 bits), the number of its stream in order of first use, 0 in a free (16 bits), and the bytes that were asked for (64
 * bits). Device 0's file has the path that was given; for the other devices ".1", ".2" and so on follow it, and files
 * without an event are removed at the end.
 *
 * @param path Where to write. What is there is overwritten.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE while there is a trace already;
 *         PLINTH_ERROR_SYSTEM for a file that cannot be written; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_trace_start(const char *path)
PLINTH_NOEXCEPT;

/**
 * Ends the trace, and writes what is not written yet. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE without a trace; PLINTH_ERROR_SYSTEM if something could not be written: the
 *         message tells after how many events the file ends; PLINTH_ERROR_NOT_SUPPORTED for more blocks or streams than
 *         the format can number; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_trace_stop(void)
PLINTH_NOEXCEPT;

/**
 * Writes a snapshot of the caching allocator to a file, for all devices: what torch.cuda.memory._dump_snapshot does. It
 * holds every segment and block at one moment and the history as far as plinth_record_memory_history keeps it.
 *
 * The end of the name says in which form: ".json", ".html" (or ".htm") for a page that opens in any browser and shows
 * it, and with any other name the pickle that <https://pytorch.org/memory_viz> and torch's _memory_viz.py read.
 *
 * Allocations of other threads wait while blocks and history are copied, some milliseconds for a hundred thousand of them,
 * and not while the file is written. No call of the driver is made, so work of the device goes on, and a capture does not
 * mind. May be called in an out-of-memory observer. Thread-safe.
 *
 * @param path Where to write. What is there is replaced when the file is complete, and stays as it is if it cannot be
 *        written; it keeps its permissions, and a link stays one. A pipe or another special file is written to as it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM for a file that cannot be written, with the path and the
 *         reason in the message; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_dump_snapshot(const char *path)
PLINTH_NOEXCEPT;

/**
 * As plinth_dump_snapshot, in a form that the caller chooses. Thread-safe.
 *
 * @param path Where to write.
 * @param format One of the PLINTH_SNAPSHOT_ constants.
 * @return As plinth_dump_snapshot; PLINTH_ERROR_INVALID_VALUE for a format that there is not.
 */
PLINTH_API
plinth_status_t plinth_dump_snapshot_as(const char *path,
                                        plinth_snapshot_format_t format)
PLINTH_NOEXCEPT;

/**
 * Gives a snapshot of the caching allocator as JSON, for all devices: what torch.cuda.memory_snapshot and
 * torch.cuda.memory._snapshot give, with the same keys. One thing differs: "frames" is a number, that of a stack in the list
 * "stacks". Waits and calls as plinth_dump_snapshot does. Thread-safe.
 *
 * @param include_traces Whether "device_traces" and "external_annotations" hold the history; else they are empty.
 * @param json Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_snapshot(bool include_traces,
                                       char **json)
PLINTH_NOEXCEPT;

/**
 * As plinth_memory_snapshot, of the segments of one pool and the history of what happened in it; annotations are all there.
 * A pool that nothing was allocated in, or that there is not, has no segments. Thread-safe.
 *
 * @param pool The pool; {0, 0} for the default one.
 * @param include_traces As there.
 * @param json Out: as there.
 * @return As plinth_memory_snapshot.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_snapshot(struct plinth_pool_id_t pool,
                                         bool include_traces,
                                         char **json)
PLINTH_NOEXCEPT;

/**
 * Tells a callback every segment of the caching allocator and every block, for all devices and by address, as they were at
 * one moment: the same as plinth_memory_snapshot, without texts. Thread-safe.
 *
 * @param callback What is told; see plinth_memory_snapshot_callback_t.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK, also when the callback ended it; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_snapshot_each(plinth_memory_snapshot_callback_t callback,
                                            void *context)
PLINTH_NOEXCEPT;

/**
 * Seeds the current device's default generator, and sets its offset to 0. Before the library is initialized the seed
 * waits until it is, for the device that is current then; so this is no error on a machine without a GPU. Thread-safe.
 *
 * @param seed The seed.
 * @return PLINTH_OK; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the generator;
 *         PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN.
 */
PLINTH_API
plinth_status_t plinth_manual_seed(uint64_t seed)
PLINTH_NOEXCEPT;

/**
 * Seeds the default generator of every device, as plinth_manual_seed does that of one.
 *
 * @param seed The seed, the same for all.
 * @return As plinth_manual_seed.
 */
PLINTH_API plinth_status_t plinth_manual_seed_all(uint64_t seed) PLINTH_NOEXCEPT;

/**
 * Seeds the current device's default generator with a seed of 53 bits from the operating system. Otherwise as
 * plinth_manual_seed.
 *
 * @return As plinth_manual_seed; PLINTH_ERROR_SYSTEM when there is no /dev/urandom.
 */
PLINTH_API plinth_status_t plinth_seed(void) PLINTH_NOEXCEPT;

/**
 * Seeds the default generator of every device with one seed of 53 bits from the operating system. Otherwise as
 * plinth_manual_seed.
 *
 * @return As plinth_seed.
 */
PLINTH_API
plinth_status_t plinth_seed_all(void)
PLINTH_NOEXCEPT;

/**
 * Tells the seed of the current device's default generator. One that was never seeded has a seed from the operating
 * system.
 *
 * @param seed Out: the seed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_initial_seed(uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Tells the state of a device's default generator: PLINTH_RNG_STATE_SIZE bytes that PyTorch's
 * torch.cuda.set_rng_state takes, too.
 *
 * @param device The device; -1 for the current one.
 * @param state Out: the bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph
 *         is being captured with the generator; PLINTH_ERROR_SYSTEM; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_rng_state(int32_t device,
                                     uint8_t *state)
PLINTH_NOEXCEPT;

/**
 * Sets the state of a device's default generator.
 *
 * @param device The device; -1 for the current one.
 * @param state PLINTH_RNG_STATE_SIZE bytes, of plinth_get_rng_state or torch.cuda.get_rng_state.
 * @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for an offset that is no multiple of 4.
 */
PLINTH_API plinth_status_t plinth_set_rng_state(int32_t device, const uint8_t *state) PLINTH_NOEXCEPT;

/**
 * Tells the states of the default generators of the first `count` devices, one after the other.
 *
 * @param states Out: PLINTH_RNG_STATE_SIZE bytes for each of them.
 * @param count How many; mostly the count of plinth_device_count.
 * @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for a count that is negative or larger than that of the
 *         devices.
 */
PLINTH_API
plinth_status_t plinth_get_rng_state_all(uint8_t *states,
                                         int32_t count)
PLINTH_NOEXCEPT;

/**
 * Sets the states of the default generators of the first `count` devices; nothing changes if one of them is malformed.
 *
 * @param states PLINTH_RNG_STATE_SIZE bytes for each of them.
 * @param count How many.
 * @return As plinth_set_rng_state; PLINTH_ERROR_INVALID_VALUE for more states than devices.
 */
PLINTH_API
plinth_status_t plinth_set_rng_state_all(const uint8_t *states,
                                         int32_t count)
PLINTH_NOEXCEPT;

/**
 * Tells the default generator of a device. It is the library's: it cannot be destroyed.
 *
 * @param device The device; -1 for the current one.
 * @param generator Out: the generator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_SYSTEM; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_default_generator(int32_t device,
                                         plinth_generator_t *generator)
PLINTH_NOEXCEPT;

/**
 * Creates a generator with PyTorch's default seed, 67280421310721, and an offset of 0. Thread-safe.
 *
 * @param device The device whose tensors it is to fill; -1 for the current one.
 * @param generator Out: the generator. The caller owns it and destroys it with plinth_generator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with 16 million
 *         live generators; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_create(int32_t device,
                                        plinth_generator_t *generator)
PLINTH_NOEXCEPT;

/**
 * Destroys a generator. Graphs that use it go on. Thread-safe, but a generator must not be destroyed while another thread
 * is in a call with it.
 *
 * @param generator The generator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a device's default generator.
 */
PLINTH_API
plinth_status_t plinth_generator_destroy(plinth_generator_t generator)
PLINTH_NOEXCEPT;

/**
 * Makes a generator with another's seed and offset, which from then on goes its own way: torch's clone_state.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param clone Out: the new one. The caller owns it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is
 *         being captured with the generator; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_clone(plinth_generator_t generator,
                                       plinth_generator_t *clone)
PLINTH_NOEXCEPT;

/**
 * Makes a generator that shares another's seed and offset: what one of them takes, the other does not get. torch's
 * graphsafe_get_state; allowed in a capture.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param shared Out: the new one. The caller owns it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_graphsafe_get_state(plinth_generator_t generator,
                                                     plinth_generator_t *shared)
PLINTH_NOEXCEPT;

/**
 * Lets a generator share another's seed and offset in place of its own. torch's graphsafe_set_state; allowed in a
 * capture.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param shared The other one, of the same device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_graphsafe_set_state(plinth_generator_t generator,
                                                     plinth_generator_t shared)
PLINTH_NOEXCEPT;

/**
 * Tells the device of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_device(plinth_generator_t generator,
                                        int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Seeds a generator, and sets its offset to 0. Thread-safe.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed The seed.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the
 *         generator; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_manual_seed(plinth_generator_t generator,
                                             uint64_t seed)
PLINTH_NOEXCEPT;

/**
 * Seeds a generator with a seed of 53 bits from the operating system, and sets its offset to 0. Thread-safe.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed Out: the seed; NULL when it is of no interest.
 * @return As plinth_generator_manual_seed; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_generator_seed(plinth_generator_t generator,
                                      uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Tells the seed of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed Out: the seed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_initial_seed(plinth_generator_t generator,
                                              uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Tells the state of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param state Out: PLINTH_RNG_STATE_SIZE bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is
 *         being captured with the generator; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_get_state(plinth_generator_t generator,
                                           uint8_t *state)
PLINTH_NOEXCEPT;

/**
 * Sets the state of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param state The state.
 * @param size PLINTH_RNG_STATE_SIZE bytes, or 8 for a seed alone, with which the offset is 0.
 * @return As plinth_generator_get_state; PLINTH_ERROR_INVALID_VALUE for another size, and for an offset that is no
 *         multiple of 4.
 */
PLINTH_API
plinth_status_t plinth_generator_set_state(plinth_generator_t generator,
                                           const uint8_t *state,
                                           size_t size)
PLINTH_NOEXCEPT;

/**
 * Tells the offset of a generator: how many 32-bit numbers each of its subsequences has given.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param offset Out: the offset, a multiple of 4.
 * @return As plinth_generator_get_state.
 */
PLINTH_API
plinth_status_t plinth_generator_get_offset(plinth_generator_t generator,
                                            uint64_t *offset)
PLINTH_NOEXCEPT;

/**
 * Sets the offset of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param offset The offset, a multiple of 4.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an offset that is no multiple of 4;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the generator; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_set_offset(plinth_generator_t generator,
                                            uint64_t offset)
PLINTH_NOEXCEPT;

/**
 * Takes numbers of a generator for a kernel of the caller's own, launched in the current stream of the generator's
 * device. plinth_philox.cuh turns the state into numbers, on the device and on the CPU. Thread-safe: no two calls give the
 * same numbers.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param increment How many 32-bit numbers a thread of the kernel takes at most; rounded up to a multiple of 4.
 * @param state Out: the state. Outside a capture it has the seed and the offset. In one, it has the addresses of both in
 *        device memory, where each replay puts its own, and what is to be added to the offset; it is valid for kernels of
 *        that capture only.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a
 *         capture of a graph that does not know the generator; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_philox_state(plinth_generator_t generator,
                                              uint64_t increment,
                                              plinth_philox_state_t *state)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with uniform numbers in [low, high): low + u * (high - low) for a u in (0, 1], where what comes out as `high`
 * becomes `low`. For 16-bit elements it is computed in float and rounded; low, high and their difference are rounded to the
 * element's type before.
 *
 * The rules that hold for all functions that fill a tensor with random numbers:
 * - Every element gets the number that PyTorch 2.11 gives it on the same model of GPU, from a generator in the same state,
 *   and the generator's offset advances alike; the host device has the geometry of its model (PLINTH_HOST_MODEL). docs/random.md
 *   has the rule, and tells how near the host device comes where a GPU has fast but rough instructions.
 * - The tensor may have any shape, also an empty one, which takes no numbers, and any strides, by which the order of its
 *   elements is that of memory; but no two elements in one place. It is filled in the stream, asynchronously, and must stay
 *   valid until then. In a capture the fill becomes a node of the graph, and each replay takes new numbers.
 * - Where an error is returned the generator has not advanced.
 * - Thread-safe: threads that share a generator get numbers of their own, in the order of their calls.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param low The least number, which float types of the element's size can hold.
 * @param high The end of the range, not below low; equal to it, every element is low.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tensor of another type or of a malformed
 *         shape, for a low or high that the elements cannot hold, and NaN; for low > high; for high - low that they cannot hold;
 *         PLINTH_ERROR_INVALID_HANDLE for a generator or stream that is none; PLINTH_ERROR_DEVICE_MISMATCH for a tensor that
 *         is not on a CUDA device or not on that of generator and stream; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a capture of a graph that does not know the generator;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_uniform(DLTensor *tensor,
                               double low,
                               double high,
                               plinth_generator_t generator,
                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with numbers of the normal distribution, by Box and Muller (1958).
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param mean The mean.
 * @param std The standard deviation, 0 or more.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for std < 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_normal(DLTensor *tensor,
                              double mean,
                              double std,
                              plinth_generator_t generator,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with e to the power of numbers of the normal distribution.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param mean The mean of the exponents.
 * @param std Their standard deviation, more than 0.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for std <= 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_log_normal(DLTensor *tensor,
                                  double mean,
                                  double std,
                                  plinth_generator_t generator,
                                  plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with numbers of the exponential distribution, of density lambda * e^(-lambda * x): -ln(u) / lambda. No
 * element is 0 but where the type has no smaller number.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param lambda The rate, more than 0.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for lambda <= 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_exponential(DLTensor *tensor,
                                   double lambda,
                                   plinth_generator_t generator,
                                   plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with numbers of the Cauchy distribution: median + sigma * tan(pi * (u - 1/2)).
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param median The median.
 * @param sigma Half the distance of the quartiles, more than 0.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for sigma <= 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_cauchy(DLTensor *tensor,
                              double median,
                              double sigma,
                              plinth_generator_t generator,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with numbers of the geometric distribution, how many trials the first success takes: ceil(ln(u) / ln(1 - p)).
 * Where the last number is 0, u was 1. A number too large for an integer element is cut off as the GPU's conversion does.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64.
 * @param p The probability of a success, between 0 and 1.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for p <= 0, p >= 1, and NaN.
 */
PLINTH_API
plinth_status_t plinth_geometric(DLTensor *tensor,
                                 double p,
                                 plinth_generator_t generator,
                                 plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with ones and zeros: one where u < p.
 *
 * @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64.
 * @param p The probability of a one, from 0 to 1. With 1, one of 2^25 elements is 0 all the same, as in PyTorch: u may be 1.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for p outside of [0, 1], and NaN.
 */
PLINTH_API
plinth_status_t plinth_bernoulli(DLTensor *tensor,
                                 double p,
                                 plinth_generator_t generator,
                                 plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with ones and zeros, with a probability for each element: one where u <= p. PyTorch's bernoulli_ with a
 * tensor, which takes 12 numbers of the generator, however large the tensor is. A probability outside of [0, 1] or NaN is no
 * error, for it is seen only on the device: below 0 and NaN never give a one, above 1 always does.
 *
 * @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64. With more than 2^30
 *        elements, they and their probabilities lie side by side.
 * @param p The probabilities: float16, bfloat16, float32 or float64, of the tensor's shape, or of one that is stretched to it
 *        by repeating dimensions of one element or missing in front. Read in the stream.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for probabilities of another type or shape;
 *         PLINTH_ERROR_DEVICE_MISMATCH for probabilities on another device; PLINTH_ERROR_NOT_SUPPORTED for more than 2^30
 *         elements that do not lie side by side.
 */
PLINTH_API
plinth_status_t plinth_bernoulli_tensor(DLTensor *tensor,
                                        const DLTensor *p,
                                        plinth_generator_t generator,
                                        plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with whole numbers, all alike: of an integer type, those from 0 to its largest; of a float type, those from
 * 0 to 2^d, where d is the digits of its fraction (11 for float16, 8 for bfloat16, 24, 53).
 *
 * @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform.
 */
PLINTH_API
plinth_status_t plinth_random(DLTensor *tensor,
                              plinth_generator_t generator,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with whole numbers of [low, high): x mod (high - low) + low, where x has 32 bits, and 64 from 2^28 numbers
 * on. Float elements get the nearest number; low and high move inwards to what such a type can hold.
 *
 * @param tensor The tensor: any type.
 * @param low The least number.
 * @param high The end of the range, above low.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for low >= high, and for low or high - 1 that the elements cannot
 *         hold.
 */
PLINTH_API
plinth_status_t plinth_random_range(DLTensor *tensor,
                                    int64_t low,
                                    int64_t high,
                                    plinth_generator_t generator,
                                    plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with whole numbers from low to the largest that plinth_random gives: torch's random_(low, None). With
 * INT64_MIN, all 64 bits are random (int64, float64, float32 and bfloat16 only).
 *
 * @param tensor The tensor: bool, uint8, int8, int16, int32, int64, uint16, uint32, float16, bfloat16, float32, float64.
 * @param low The least number.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for a low that the elements cannot hold.
 */
PLINTH_API
plinth_status_t plinth_random_from(DLTensor *tensor,
                                   int64_t low,
                                   plinth_generator_t generator,
                                   plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Writes the numbers from 0 to n - 1 to a tensor of n elements, in a random order. From 2497 elements on it takes memory
 * of the caching allocator, 8 bytes for each and a little more, which is free again for what comes later in the stream.
 *
 * @param tensor The tensor: one dimension; uint8, int8, int16, int32, int64, float16, float32 or float64, which has
 *        to tell n numbers apart; at most 2^30 elements.
 * @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
 * @param stream The stream, of the tensor's device; NULL for the current device's default stream.
 * @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for a tensor of another rank, or of more elements than its type can
 *         number; PLINTH_ERROR_NOT_SUPPORTED for more than 2^30; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_randperm(DLTensor *tensor,
                                plinth_generator_t generator,
                                plinth_stream_t stream)
PLINTH_NOEXCEPT;

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

/**
 * Becomes one of several ranks that meet by an id: in this process, in others of this machine, or on other machines. Each
 * rank makes this call, with the same id and number of ranks, in a thread of its own; it returns when all have met, or, through
 * NCCL and with PLINTH_COMMUNICATOR_NONBLOCKING, before. Thread-safe; not in a group.
 *
 * @param ranks How many ranks there are.
 * @param id The PLINTH_UNIQUE_ID_SIZE bytes that plinth_nccl_unique_id gave in one process, and that the others got by any
 *        channel, such as a plinth_store_t. An id is for one meeting.
 * @param rank The number of this rank, from 0 on.
 * @param device The device of this rank; -1 for the current one.
 * @param options How it is made; NULL for defaults.
 * @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for wrong numbers or options, and in a group;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_TIMED_OUT if not all ranks came in time; PLINTH_ERROR_NCCL_UNAVAILABLE
 *         where NCCL is needed and not there; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_communicator_init_rank(int32_t ranks,
                                              const uint8_t *id,
                                              int32_t rank,
                                              int32_t device,
                                              const struct plinth_communicator_options_t *options,
                                              plinth_communicator_t *communicator)
PLINTH_NOEXCEPT;

/**
 * Makes the communicators of several devices of this process, a rank for each. One thread can use them all, with what all
 * ranks do together between plinth_communicator_group_start and _group_end; or each is used by a thread of its own.
 * Thread-safe.
 *
 * @param devices The devices, one for each rank; none twice.
 * @param count How many.
 * @param options How they are made; NULL for defaults.
 * @param communicators Out: so many communicators. The caller owns each and destroys it with plinth_communicator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no devices, one that is there twice, and wrong
 *         options; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NCCL_UNAVAILABLE with PLINTH_ENGINE_NCCL; PLINTH_ERROR_NCCL;
 *         PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_communicator_init_all(const int32_t *devices,
                                             size_t count,
                                             const struct plinth_communicator_options_t *options,
                                             plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Destroys a communicator. The work that it was given should be done: wait for the streams first. Each rank destroys its
 * own. Thread-safe, but a communicator must not be destroyed while another thread is in a call with it.
 *
 * @param communicator The communicator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL or PLINTH_ERROR_DRIVER for what went wrong on the way:
 *         the communicator is gone all the same.
 */
PLINTH_API
plinth_status_t plinth_communicator_destroy(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

/**
 * Ends what a communicator does, and it itself, whatever the other ranks do: calls that wait in it return
 * PLINTH_ERROR_ABORTED, and so does every later one but plinth_communicator_destroy. Memory that its work
 * was to write has any content. Thread-safe, and made for a thread beside the one that waits.
 *
 * @param communicator The communicator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_communicator_abort(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

/**
 * Makes communicators of the ranks of one: the ranks that give the same color are together in a new one, in the order of
 * their keys, and where those are equal in their old order. All ranks make this call. In a group, the new communicator is
 * there when the group has ended.
 *
 * @param communicator The communicator; it stays.
 * @param color The color; -1 to be in no new communicator.
 * @param key The key.
 * @param part Out: the new communicator of this rank, NULL for color -1. The caller owns it and destroys it with
 *        plinth_communicator_destroy. In a group the place must be there until the end of that.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another negative
 *         color; the errors of plinth_communicator_all_reduce; PLINTH_ERROR_NCCL_UNAVAILABLE with an NCCL before 2.18.
 */
PLINTH_API
plinth_status_t plinth_communicator_split(plinth_communicator_t communicator,
                                          int32_t color,
                                          int32_t key,
                                          plinth_communicator_t *part)
PLINTH_NOEXCEPT;

/**
 * Tells the number of a communicator's own rank.
 *
 * @param communicator The communicator.
 * @param rank Out: the number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_rank(plinth_communicator_t communicator,
                                         int32_t *rank)
PLINTH_NOEXCEPT;

/**
 * Tells how many ranks a communicator has.
 *
 * @param communicator The communicator.
 * @param size Out: how many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_size(plinth_communicator_t communicator,
                                         int32_t *size)
PLINTH_NOEXCEPT;

/**
 * Tells the device of a communicator's own rank.
 *
 * @param communicator The communicator.
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_device(plinth_communicator_t communicator,
                                           int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Tells the engine of a communicator. One of the library's own may leave large messages to NCCL.
 *
 * @param communicator The communicator.
 * @param engine Out: PLINTH_ENGINE_NCCL, _LOCAL or _SHARED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_engine(plinth_communicator_t communicator,
                                           uint32_t *engine)
PLINTH_NOEXCEPT;

/**
 * Sets how long calls with a communicator wait for other ranks from now on.
 *
 * @param communicator The communicator.
 * @param timeout_milliseconds How long; 0 for ten minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_set_timeout(plinth_communicator_t communicator,
                                                uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Asks for errors that a communicator came to, without waiting: another rank that failed, a connection that was lost.
 * Thread-safe.
 *
 * @param communicator The communicator.
 * @param ready Out: whether all ranks have met, and what was asked is in the streams.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_NCCL or
 *         another for what it came to, when that is seen first, and from then on PLINTH_ERROR_ABORTED: abort or destroy it,
 *         and make a new one.
 */
PLINTH_API
plinth_status_t plinth_communicator_query(plinth_communicator_t communicator,
                                          bool *ready)
PLINTH_NOEXCEPT;

/**
 * Waits on the CPU until all work of a stream is done, as plinth_stream_synchronize does, but with an end: when the time is
 * over, or as soon as the communicator comes to an error. It also waits until the ranks have met. Thread-safe.
 *
 * @param communicator The communicator.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @param timeout_milliseconds How long; 0 for the communicator's own limit.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL communicator; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_TIMED_OUT: the communicator and its work are as they were, to be waited
 *         for again or aborted; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the errors of plinth_communicator_query.
 */
PLINTH_API
plinth_status_t plinth_communicator_wait(plinth_communicator_t communicator,
                                         plinth_stream_t stream,
                                         uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Begins a group: what this thread asks of communicators from now on is done at plinth_communicator_group_end, as one. So
 * one thread brings the parts of several ranks, and a rank sends and receives at once. Groups may be in groups. What is
 * asked in a group has no order in it, but for what all ranks of a communicator do together in one stream; and with
 * PLINTH_ENGINE_NCCL not even that.
 *
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_communicator_group_start(void)
PLINTH_NOEXCEPT;

/**
 * Ends a group. What was asked in it is in the streams when this returns. If a call in the group was refused, or one in a group
 * within it, nothing is asked of any communicator, and this returns the error of the first such call. After another
 * error some of what was asked may be in the streams; the rest is not done later, but what NCCL was at when the time was over
 * may be, until the communicator is aborted.
 *
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no group was begun in this thread; the errors of what was asked.
 */
PLINTH_API
plinth_status_t plinth_communicator_group_end(void)
PLINTH_NOEXCEPT;

/**
 * Reduces the elements of all ranks; each rank gets the result. All ranks make this call, in the same order as their other
 * calls with this communicator. It is put into the stream and not waited for; it may be captured. Memory stays valid until
 * the work is done. Thread-safe, but the order of calls of two threads is any.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements in its device's memory.
 * @param to Where it gets the result; the same as `from` to have it in place.
 * @param count How many elements; the same at all ranks. 0 does nothing.
 * @param element The type of the elements.
 * @param op One of PLINTH_REDUCE_.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for numbers out of
 *         range, misaligned memory, and types that are not known; PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device;
 *         PLINTH_ERROR_RANK_MISMATCH if ranks ask for different things, where that is seen; PLINTH_ERROR_TIMED_OUT if other
 *         ranks do not come; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_ABORTED; PLINTH_ERROR_NOT_SUPPORTED for what the engine
 *         cannot do with these elements; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_communicator_all_reduce(plinth_communicator_t communicator,
                                               const void *from,
                                               void *to,
                                               size_t count,
                                               DLDataType element,
                                               int32_t op,
                                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * As plinth_communicator_all_reduce, but one rank only gets the result.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements.
 * @param to Where the root gets the result; not looked at elsewhere.
 * @param count How many elements; the same at all ranks.
 * @param element The type of the elements.
 * @param op One of PLINTH_REDUCE_.
 * @param root The rank that gets the result.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_reduce(plinth_communicator_t communicator,
                                           const void *from,
                                           void *to,
                                           size_t count,
                                           DLDataType element,
                                           int32_t op,
                                           int32_t root,
                                           plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gives all ranks the elements of one. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from At the root, `count` elements; not looked at elsewhere.
 * @param to Where this rank gets them; at the root it may be `from`.
 * @param count How many elements; the same at all ranks.
 * @param element The type of the elements.
 * @param root The rank that gives.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_broadcast(plinth_communicator_t communicator,
                                              const void *from,
                                              void *to,
                                              size_t count,
                                              DLDataType element,
                                              int32_t root,
                                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gives all ranks the elements of all, in the order of ranks. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements; in place, its own part of `to`.
 * @param to Where it gets those of all ranks: `count` times as many elements as there are ranks.
 * @param count How many elements each rank gives; the same at all ranks.
 * @param element The type of the elements.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_all_gather(plinth_communicator_t communicator,
                                               const void *from,
                                               void *to,
                                               size_t count,
                                               DLDataType element,
                                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Reduces the elements of all ranks, and gives each rank its part of the result. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements for each rank, in the order of ranks.
 * @param to Where it gets its `count` elements; in place, its own part of `from`.
 * @param count How many elements each rank gets; the same at all ranks.
 * @param element The type of the elements.
 * @param op One of PLINTH_REDUCE_.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_reduce_scatter(plinth_communicator_t communicator,
                                                   const void *from,
                                                   void *to,
                                                   size_t count,
                                                   DLDataType element,
                                                   int32_t op,
                                                   plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gives each rank a part of each rank's elements. Otherwise as plinth_communicator_all_reduce; not in place.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements for each rank, in the order of ranks.
 * @param to Where it gets `count` elements of each rank, in the order of ranks.
 * @param count How many elements go from each rank to each; the same at all ranks.
 * @param element The type of the elements.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_all_to_all(plinth_communicator_t communicator,
                                               const void *from,
                                               void *to,
                                               size_t count,
                                               DLDataType element,
                                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Sends elements to one rank, which calls plinth_communicator_recv for as many of the same type. A rank that also receives
 * does both in a group, so that neither waits for the other. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from `count` elements.
 * @param count How many elements.
 * @param element The type of the elements.
 * @param peer The rank that receives.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_send(plinth_communicator_t communicator,
                                         const void *from,
                                         size_t count,
                                         DLDataType element,
                                         int32_t peer,
                                         plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Receives elements that one rank sends with plinth_communicator_send.
 *
 * @param communicator The communicator.
 * @param to Where they go.
 * @param count How many elements.
 * @param element The type of the elements.
 * @param peer The rank that sends.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_recv(plinth_communicator_t communicator,
                                         void *to,
                                         size_t count,
                                         DLDataType element,
                                         int32_t peer,
                                         plinth_stream_t stream)
PLINTH_NOEXCEPT;

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

/**
 * Makes a function of elements into one of tensors, which returns its one output: torch.cuda.jiterator._create_jit_fn.
 *
 * The code is C++ that ends in a template of one type, `template <typename T> T name(T x, T y, T alpha) { ... }`, with any
 * helpers before it. Its parameters are the inputs, 1 to PLINTH_JIT_MAX_TENSORS, and after them the scalars in the order
 * in which they are declared here; T is the type that the inputs have in common, float for float16 and bfloat16. CUDA's
 * functions may be used, std:: before them or not, and those of plinth_jiterator_call's complex numbers; no header has to be
 * included. docs/jiterator.md says more.
 *
 * The code is compiled when it is first called, for each list of types and each kind of layout. Thread-safe; needs no
 * device.
 *
 * @param code The code.
 * @param scalars The scalars with their names and defaults; NULL for none.
 * @param count How many scalars, at most PLINTH_JIT_MAX_SCALARS.
 * @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a code without such an entry, for one whose
 *         parameters are not inputs and scalars, and for scalars without a name or with another's; PLINTH_ERROR_OUT_OF_MEMORY
 *         with 16 million functions.
 */
PLINTH_API
plinth_status_t plinth_jiterator_create_jit_fn(const char *code,
                                               const struct plinth_jit_scalar_t *scalars,
                                               size_t count,
                                               plinth_jit_function_t *function)
PLINTH_NOEXCEPT;

/**
 * The same for a function with several outputs, which are its last parameters, `T &out`, behind inputs and scalars; it returns
 * void: torch.cuda.jiterator._create_multi_output_jit_fn.
 *
 * @param code The code.
 * @param num_outputs How many outputs, 1 to PLINTH_JIT_MAX_TENSORS.
 * @param scalars The scalars with their names and defaults; NULL for none.
 * @param count How many scalars, at most PLINTH_JIT_MAX_SCALARS.
 * @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
 * @return As plinth_jiterator_create_jit_fn.
 */
PLINTH_API
plinth_status_t plinth_jiterator_create_multi_output_jit_fn(const char *code,
                                                            int32_t num_outputs,
                                                            const struct plinth_jit_scalar_t *scalars,
                                                            size_t count,
                                                            plinth_jit_function_t *function)
PLINTH_NOEXCEPT;

/**
 * Destroys a jiterated function. Calls that are under way still end; what was compiled for it stays loaded, and captured
 * graphs stay whole.
 *
 * @param function The function; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_jiterator_destroy_jit_fn(plinth_jit_function_t function)
PLINTH_NOEXCEPT;

/**
 * Tells what the outputs of a call are: the type that the inputs have in common, as torch.result_type has it, and the shape that
 * they have in common when dimensions of one element are repeated. The inputs' elements are not looked at. Thread-safe.
 *
 * @param function The function.
 * @param inputs The inputs.
 * @param num_inputs How many there are.
 * @param dtype Out: the type of every output.
 * @param ndim Out: how many dimensions they have.
 * @param shape Out: their extents; room for 25.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another number of
 *         inputs than the function takes, and for shapes that do not go together; PLINTH_ERROR_NOT_SUPPORTED for types
 *         that have none in common: uint16, uint32 or uint64 and another integer; PLINTH_ERROR_DEVICE_MISMATCH for a tensor that
 *         is not on a CUDA device.
 */
PLINTH_API
plinth_status_t plinth_jiterator_result(plinth_jit_function_t function,
                                        const DLTensor *const *inputs,
                                        size_t num_inputs,
                                        DLDataType *dtype,
                                        int32_t *ndim,
                                        int64_t *shape)
PLINTH_NOEXCEPT;

/**
 * Calls a jiterated function: writes its outputs, in a stream, asynchronously.
 *
 * - The inputs may have any types, shapes and strides, also none, and also none of their own: dimensions of one element, and
 *   those that an input lacks, are repeated. Every input is brought to the type that all have in common; torch.result_type
 *   says which. Every output must be of that type and of the inputs' common shape (plinth_jiterator_result tells both), with any
 *   strides that give each element its own place. Tensors of more than 2^31 elements, and without elements, are fine.
 * - An output may be one of the inputs, element for element. Memory that outputs share with other tensors in another way gets
 *   undefined elements.
 * - The first call with a list of types and a kind of layout compiles, for tenths of a second or longer; docs/jiterator.md
 *   says what is compiled once, and where it is kept. Later calls do not allocate, and cost a launch.
 * - In a capture the call becomes a node of the graph, also a first call.
 * - The tensors must stay valid until the work is done; the structures that describe them, and the scalars, only until the call
 *   returns. Thread-safe.
 *
 * @param function The function.
 * @param inputs The inputs, all on one device.
 * @param num_inputs How many there are: as many as the function takes.
 * @param outputs The outputs, on the same device.
 * @param num_outputs How many there are: as many as the function has.
 * @param scalars Values of scalars, in any order; those that are left out have their defaults. NULL for none.
 * @param num_scalars How many there are.
 * @param stream The stream, of the tensors' device; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for a function or stream that is none;
 *         PLINTH_ERROR_INVALID_VALUE for other numbers of tensors than the function has, shapes that do not go together,
 *         an output of another type or shape, elements of it in one place, a malformed tensor, and a scalar that the function
 *         does not declare; PLINTH_ERROR_NOT_SUPPORTED as plinth_jiterator_result, and for a device older than the compiler
 *         knows; PLINTH_ERROR_DEVICE_MISMATCH for tensors that are not on a CUDA device, or not all on that of the stream;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC, or on the host device without a C++
 *         compiler; PLINTH_ERROR_COMPILATION_FAILED with the compiler's log, whose lines of "jiterator" are those of the code;
 *         PLINTH_ERROR_SYSTEM where a compiler cannot be run; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_jiterator_call(plinth_jit_function_t function,
                                      const DLTensor *const *inputs,
                                      size_t num_inputs,
                                      DLTensor *const *outputs,
                                      size_t num_outputs,
                                      const struct plinth_jit_scalar_t *scalars,
                                      size_t num_scalars,
                                      plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Compiles CUDA C++ with NVRTC, and gives the image back: torch.cuda._utils._nvrtc_compile. Loads nothing, and needs a device only
 * where no compute capability is named. Thread-safe.
 *
 * @param kernel_source The source. The compiler's log counts its lines from 1, and calls it "kernel.cu".
 * @param kernel_name The kernel, as the source writes its name: "add" or "outer::scale"; of a template with its arguments in
 *        angle brackets.
 * @param compute_capability What is compiled for: "90", "90a" or "sm_90" gives a cubin, "compute_90" PTX; NULL for the current
 *        device's.
 * @param cuda_include_dirs Where headers are looked for, a list that ends in NULL; NULL for none. CUDA's own are looked for behind
 *        them in the include folder that belongs to the NVRTC that was found, if there is one.
 * @param nvcc_options More options for NVRTC, a list that ends in NULL; NULL for none.
 * @param image Out: the image, to be freed with free().
 * @param bytes Out: its size.
 * @param lowered_name Out: the kernel's name in the image, to be freed with free().
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a compute capability that is none, and for an
 *         option that names an architecture; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC;
 *         PLINTH_ERROR_COMPILATION_FAILED with the compiler's log; PLINTH_ERROR_NOT_SUPPORTED for a device older than NVRTC
 *         knows; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization where the device is asked.
 */
PLINTH_API
plinth_status_t plinth_nvrtc_compile(const char *kernel_source,
                                     const char *kernel_name,
                                     const char *compute_capability,
                                     const char *const *cuda_include_dirs,
                                     const char *const *nvcc_options,
                                     void **image,
                                     size_t *bytes,
                                     char **lowered_name)
PLINTH_NOEXCEPT;

/**
 * Compiles a kernel from CUDA C++ and loads it: torch.cuda._compile_kernel. It stays loaded for as long as the process lives.
 * Thread-safe. The host device runs no CUDA C++.
 *
 * @param kernel_source As plinth_nvrtc_compile.
 * @param kernel_name As plinth_nvrtc_compile.
 * @param compute_capability As plinth_nvrtc_compile; NULL for that of the device.
 * @param cuda_include_dirs As plinth_nvrtc_compile.
 * @param nvcc_options As plinth_nvrtc_compile.
 * @param device The device; -1 for the current one.
 * @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
 * @return As plinth_nvrtc_compile; PLINTH_ERROR_NOT_SUPPORTED on the host device; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_DRIVER for an image that the device does not take; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_compile_kernel(const char *kernel_source,
                                      const char *kernel_name,
                                      const char *compute_capability,
                                      const char *const *cuda_include_dirs,
                                      const char *const *nvcc_options,
                                      int32_t device,
                                      plinth_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Loads a module from an image: torch.cuda._utils._cuda_load_module. Thread-safe.
 *
 * @param image PTX, which is text; a cubin; or a fatbin.
 * @param bytes Its size, a text's with or without the NUL at its end.
 * @param device The device; -1 for the current one.
 * @param module Out: the module. The caller owns it and destroys it with plinth_kernel_module_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no bytes; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_COMPILATION_FAILED for PTX that the driver does not compile, with its log; PLINTH_ERROR_DRIVER for an image
 *         that it does not take; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_load(const void *image,
                                          size_t bytes,
                                          int32_t device,
                                          plinth_kernel_module_t *module)
PLINTH_NOEXCEPT;

/**
 * Finds a kernel of a module. Thread-safe.
 *
 * @param module The module.
 * @param name The kernel's name in the image: of C++ that is not extern "C", the lowered one.
 * @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a name that the
 *         module does not have; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_get_kernel(plinth_kernel_module_t module,
                                                const char *name,
                                                plinth_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Destroys a module's handle. It is unloaded when that and all of its kernels' handles are destroyed: then no launch of them
 * may be under way, and no graph may have one.
 *
 * @param module The module; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, and the handle is still one.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_destroy(plinth_kernel_module_t module)
PLINTH_NOEXCEPT;

/**
 * Destroys a kernel's handle. What plinth_compile_kernel compiled stays loaded; of a kernel of a module see
 * plinth_kernel_module_destroy.
 *
 * @param kernel The kernel; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, and the handle is still one.
 */
PLINTH_API plinth_status_t plinth_kernel_destroy(plinth_kernel_t kernel) PLINTH_NOEXCEPT;

/**
 * Tells what is known of a kernel. Thread-safe.
 *
 * @param kernel The kernel.
 * @param attributes In: struct_size. Out: the attributes. On the host device sizes and versions are 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a struct_size that
 *         was not set; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_attributes(plinth_kernel_t kernel,
                                         struct plinth_kernel_attributes_t *attributes)
PLINTH_NOEXCEPT;

/**
 * Tells how many blocks of a kernel one multiprocessor runs at once. Thread-safe.
 *
 * @param kernel The kernel.
 * @param threads The threads of a block.
 * @param shared_bytes The dynamic shared memory of a block, in bytes; the kernel may have as much from then on.
 * @param blocks Out: how many blocks.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for no threads, and for
 *         more shared memory than a block of the device can have; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_occupancy(plinth_kernel_t kernel,
                                        uint32_t threads,
                                        uint32_t shared_bytes,
                                        int32_t *blocks)
PLINTH_NOEXCEPT;

/**
 * Lets launches of a kernel have so much dynamic shared memory, as torch's kernels want it before they are launched with more
 * than 48 KiB. plinth_kernel_launch does so itself. Thread-safe.
 *
 * @param kernel The kernel.
 * @param shared_bytes The bytes a block.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for more than a block of the device can have;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_set_shared_memory_config(plinth_kernel_t kernel,
                                                       uint32_t shared_bytes)
PLINTH_NOEXCEPT;

/**
 * Launches a kernel in a stream, asynchronously. More than 48 KiB of dynamic shared memory is asked for where it is needed. In a
 * capture the launch becomes a node of the graph. Thread-safe.
 *
 * Arguments are checked against the kernel's parameters, as far as the driver tells them (from CUDA 12.4 on): their number, and
 * the bytes of each.
 *
 * The stream sanitizer knows the launch by the kernel's name, with what `access` says of each tensor; of addresses it knows
 * nothing, and is told by plinth_sanitizer_operation.
 *
 * @param kernel The kernel.
 * @param launch Grid, block, and what else there is to say.
 * @param arguments The arguments, whose values are copied before the call returns; NULL for none.
 * @param count How many there are.
 * @param stream The stream, of the kernel's device; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for a kernel or stream that is none;
 *         PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set, arguments that are not the kernel's, flags and an
 *         access that are none, for more threads or shared memory than a block can have, and for a grid that is no multiple of
 *         the cluster; PLINTH_ERROR_DEVICE_MISMATCH for a tensor or a stream of another device, and a tensor in memory that
 *         devices cannot use; PLINTH_ERROR_RACE, as plinth_sanitizer_enable says;
 *         PLINTH_ERROR_NOT_SUPPORTED for clusters and cooperative launches where the driver or the device has none;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_launch(plinth_kernel_t kernel,
                                     const struct plinth_kernel_launch_t *launch,
                                     const struct plinth_kernel_argument_t *arguments,
                                     size_t count,
                                     plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Opens a store: a folder that all processes see, such as file:///shared/run-17, which is made if it is not there; or the
 * memory of one process that answers the others over TCP, such as tcp://10.0.0.1:29500. There is no thread: the process that
 * answers does so while it is in a call with the store, which it is while it waits for the others. Names and values are
 * seen by all who reach the folder or the port, so both belong on a network of one's own. A store is for one run: what an
 * earlier one left in a folder would be taken for this one's. Thread-safe; needs no device.
 *
 * @param address The address. Port 0 is any that is free; see plinth_store_port.
 * @param serves Whether this is the process that answers, of a TCP store. Not looked at for a folder.
 * @param timeout_milliseconds How long to try to reach the one that answers; 0 for five minutes.
 * @param store Out: the store. The caller owns it and destroys it with plinth_store_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another address; PLINTH_ERROR_TIMED_OUT if
 *         nobody answers; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_open(const char *address,
                                  bool serves,
                                  uint64_t timeout_milliseconds,
                                  plinth_store_t *store)
PLINTH_NOEXCEPT;

/**
 * Closes a store. Others lose what the process that answers has. Thread-safe, but a store must not be destroyed while
 * another thread is in a call with it.
 *
 * @param store The store; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_store_destroy(plinth_store_t store)
PLINTH_NOEXCEPT;

/**
 * Tells the port at which the process that answers listens. Thread-safe.
 *
 * @param store The store.
 * @param port Out: the port.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a store that does
 *         not listen; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_port(plinth_store_t store,
                                  int32_t *port)
PLINTH_NOEXCEPT;

/**
 * Puts a value under a name, in place of what was there. Thread-safe.
 *
 * @param store The store.
 * @param name The name: 1 to 1024 bytes.
 * @param value The value; NULL with 0 bytes.
 * @param bytes How long it is: up to a mebibyte.
 * @param timeout_milliseconds How long to wait for the one that answers; 0 for five minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong length;
 *         PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST if the one that answers is gone; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_set(plinth_store_t store,
                                 const char *name,
                                 const void *value,
                                 size_t bytes,
                                 uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Gets the value under a name, and waits until somebody sets it. Thread-safe.
 *
 * @param store The store.
 * @param name The name.
 * @param value Out: the value; not written if it has no room. NULL with a capacity of 0.
 * @param capacity How many bytes there is room for.
 * @param bytes Out: how long the value is, also where it has no room; NULL if nobody wants that.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong name, and
 *         if there is too little room; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_get(plinth_store_t store,
                                 const char *name,
                                 void *value,
                                 size_t capacity,
                                 size_t *bytes,
                                 uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Adds to the number under a name, which is 0 until somebody adds to it. Thread-safe.
 *
 * @param store The store.
 * @param name The name, of a number and not of a value that was set.
 * @param amount What is added.
 * @param sum Out: what it comes to.
 * @param timeout_milliseconds How long to wait for the one that answers; 0 for five minutes.
 * @return As plinth_store_set.
 */
PLINTH_API
plinth_status_t plinth_store_add(plinth_store_t store,
                                 const char *name,
                                 int64_t amount,
                                 int64_t *sum,
                                 uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Waits until as many processes as there are ranks have made this call with this name. A name is for one meeting.
 * Thread-safe.
 *
 * @param store The store.
 * @param name The name.
 * @param ranks How many there are.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @return As plinth_store_set; PLINTH_ERROR_TIMED_OUT says how many are missing.
 */
PLINTH_API
plinth_status_t plinth_store_barrier(plinth_store_t store,
                                     const char *name,
                                     int32_t ranks,
                                     uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Gives all ranks an id to meet by: rank 0 makes it as plinth_nccl_unique_id does, the others wait for it, and all return when
 * all have it. plinth_communicator_init_rank comes next. Thread-safe.
 *
 * @param store The store.
 * @param name A name for this meeting.
 * @param rank The number of this rank.
 * @param ranks How many there are.
 * @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @return As plinth_store_barrier; at rank 0 also as plinth_nccl_unique_id.
 */
PLINTH_API
plinth_status_t plinth_store_unique_id(plinth_store_t store,
                                       const char *name,
                                       int32_t rank,
                                       int32_t ranks,
                                       uint8_t *id,
                                       uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread's handle of cuBLAS for its current device, set to the thread's current stream and to a
 * workspace of the allocator's for that stream: torch.cuda.current_blas_handle.
 *
 * Ask for it before each use, as torch does: the stream, and in a capture the workspace, are those of the moment of
 * the call. cuBLAS's calls want the handle's device current. A handle is the thread's until that ends, and then
 * another thread's, which gets it with cuBLAS's own pointer mode, math mode and atomics mode; otherwise they stay as
 * the thread set them. May be called in a capture: the graph then keeps the workspace.
 *
 * The workspace has 32 MiB for compute capabilities 9 to 12 and 8,519,680 bytes for others, or what
 * CUBLAS_WORKSPACE_CONFIG says, ":SIZE:COUNT" once or more with the sizes in KiB. cuBLAS is looked for in the process,
 * where the system finds libraries, in CUDA's toolkit and in folders of Python packages; PLINTH_CUBLAS_LIBRARY names
 * another file. Thread-safe.
 *
 * @param handle Out: the cublasHandle_t, which belongs to the library and is not to be destroyed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_LIBRARY_UNAVAILABLE where there is no cuBLAS, with a
 *         message that says where it was looked for, and on the host device; PLINTH_ERROR_LIBRARY where cuBLAS fails;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_INVALID_CONFIGURATION for a variable that makes no sense;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_current_blas_handle(void **handle)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread's handle of cuBLASLt for its current device: the same as plinth_current_blas_handle gives,
 * which cuBLASLt takes, too. No stream and no workspace are set, since cuBLASLt's calls name both; see
 * plinth_current_blaslt_workspace. Thread-safe.
 *
 * @param handle Out: the cublasLtHandle_t, which belongs to the library and is not to be destroyed.
 * @return As plinth_current_blas_handle.
 */
PLINTH_API
plinth_status_t plinth_current_blaslt_handle(void **handle)
PLINTH_NOEXCEPT;

/**
 * Gives a workspace for one call of cuBLASLt's in the calling thread's current stream, such as cublasLtMatmul. Ask for
 * it before each use. cuBLAS's calls in the same thread and stream use the same memory. In a capture the graph keeps
 * it. Thread-safe.
 *
 * @param workspace Out: the memory; it belongs to the library.
 * @param bytes Out: its size: 1 MiB, or as many KiB as CUBLASLT_WORKSPACE_SIZE says.
 * @return As plinth_current_blas_handle.
 */
PLINTH_API
plinth_status_t plinth_current_blaslt_workspace(void **workspace,
                                                size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Gives back to the allocator the workspaces of cuBLAS and cuBLASLt, of all threads and streams:
 * torch._C._cuda_clearCublasWorkspaces. The next plinth_current_blas_handle makes new ones; a handle that a thread got
 * before must not be used until then. Graphs keep theirs, also those captured by the driver's own calls. Thread-safe.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_clear_blas_workspaces(void)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread's handle of cuSOLVER's dense part for its current device, set to the thread's current
 * stream. Ask for it before each use. cuSOLVER's calls take their workspaces as arguments. PLINTH_CUSOLVER_LIBRARY
 * names another file than the one that is found. Thread-safe.
 *
 * @param handle Out: the cusolverDnHandle_t, which belongs to the library and is not to be destroyed.
 * @return As plinth_current_blas_handle, of cuSOLVER.
 */
PLINTH_API
plinth_status_t plinth_current_solver_handle(void **handle)
PLINTH_NOEXCEPT;

/**
 * Gets a plan of Fourier transforms: from the device's cache, where it is the one used last from now on, or newly made
 * and put there. With a cache of no plans it is the caller's alone. Thread-safe; may be called while a stream
 * captures.
 *
 * cuFFT is looked for in the process, where the system finds libraries, in CUDA's toolkit and in folders of Python
 * packages; PLINTH_CUFFT_LIBRARY names another file.
 *
 * @param params What it is for.
 * @param device The device's number; -1 for the current one.
 * @param plan Out: the plan. The caller gives it up with plinth_cufft_plan_destroy; it lives on in the cache, and also
 *        in the graphs that it was captured into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for sizes,
 *         types or strides that cuFFT does not do; PLINTH_ERROR_LIBRARY_UNAVAILABLE where there is no cuFFT, with a
 *         message that says where it was looked for, and on the host device; PLINTH_ERROR_LIBRARY where cuFFT fails;
 *         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_get_plan(const struct plinth_cufft_params_t *params,
                                      int32_t device,
                                      plinth_cufft_plan_t *plan)
PLINTH_NOEXCEPT;

/**
 * Carries a plan out, in the calling thread's current stream on the plan's device. Threads may share a plan: each call
 * takes it for as long as the call lasts, and works in memory of its own, which the allocator gives. May be captured.
 * Thread-safe.
 *
 * @param plan The plan.
 * @param input The input, in the device's memory, aligned to its elements.
 * @param output The output; the input itself where both have the same layout. From complex to real numbers, cuFFT may
 *        overwrite the input.
 * @param direction PLINTH_CUFFT_FORWARD or _INVERSE; from real numbers always forward, to real numbers always inverse.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         direction, and for a plan that this thread has acquired; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_execute(plinth_cufft_plan_t plan,
                                     const void *input,
                                     void *output,
                                     int32_t direction)
PLINTH_NOEXCEPT;

/**
 * Gives the calling thread a plan for itself, for calls of cuFFT's that plinth does not make: set to the thread's
 * current stream on the plan's device, with memory to work with. Others that want the plan wait until
 * plinth_cufft_release_plan, which the thread must call before it ends. Thread-safe.
 *
 * @param plan The plan.
 * @param native Out: the cufftHandle. It belongs to the library; what is set in it stays set, but for stream and work
 *         area.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the thread
 *         has it already; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_acquire_plan(plinth_cufft_plan_t plan,
                                          int32_t *native)
PLINTH_NOEXCEPT;

/**
 * Ends what plinth_cufft_acquire_plan began. What was put into the stream meanwhile is still carried out.
 *
 * @param plan The plan.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the thread
 *         does not have it; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_release_plan(plinth_cufft_plan_t plan)
PLINTH_NOEXCEPT;

/**
 * Gives a plan up. What is in a stream is still carried out. Thread-safe.
 *
 * @param plan The plan; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while a thread has acquired the plan by this
 *         handle: plinth_cufft_release_plan comes first.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_destroy(plinth_cufft_plan_t plan)
PLINTH_NOEXCEPT;

/**
 * Tells how many plans a device's cache may hold: cufft_plan_cache.max_size, 4096 until it is set. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param max_size Out: how many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_cache_max_size(int32_t device,
                                                 int64_t *max_size)
PLINTH_NOEXCEPT;

/**
 * Says how many plans a device's cache may hold. If it holds more, those that were not used for the longest time go.
 * Thread-safe.
 *
 * @param max_size How many; 0 lets it hold none.
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a negative number; PLINTH_ERROR_INVALID_DEVICE; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_cufft_plan_cache_set_max_size(int64_t max_size,
                                                     int32_t device)
PLINTH_NOEXCEPT;

/**
 * Tells how many plans a device's cache holds: cufft_plan_cache.size. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param size Out: how many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_cufft_plan_cache_size(int32_t device, int64_t *size) PLINTH_NOEXCEPT;

/**
 * Empties a device's cache: cufft_plan_cache.clear. Plans that somebody has, or a graph, live on for them.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_cufft_plan_cache_clear(int32_t device) PLINTH_NOEXCEPT;

/**
 * Tells for how much of the time at least one kernel ran on a device, as torch.cuda.utilization. Of the host device: how
 * much of the processors' time was used, by whomever.
 *
 * This and the calls below ask NVML, which is loaded at the first of them (libnvidia-ml.so.1; PLINTH_NVML_LIBRARY names
 * another file). A device is matched with its card by UUID or place on the bus, never by number. They take microseconds to
 * milliseconds, do not wait for the device, and are allowed while streams capture. Of the host device they tell what Linux
 * tells of the machine's processors. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param percent Out: 0 to 100, over the card's last period of 1/6 to 1 s.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE;
 *         PLINTH_ERROR_NOT_SUPPORTED for what this card, this part of a card (MIG), or this machine does not tell;
 *         PLINTH_ERROR_SYSTEM where NVML refuses; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_utilization(int32_t device,
                                   uint32_t *percent)
PLINTH_NOEXCEPT;

/**
 * Tells for how much of the time memory of a device was read or written, as torch.cuda.memory_usage: not how much of it is in
 * use. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param percent Out: 0 to 100, over the card's last period.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_memory_usage(int32_t device,
                                    uint32_t *percent)
PLINTH_NOEXCEPT;

/**
 * Tells how warm a device is now, as torch.cuda.temperature. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param celsius Out: degrees Celsius.
 * @return As plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_temperature(int32_t device, uint32_t *celsius) PLINTH_NOEXCEPT;

/**
 * Tells how much power a device takes, as torch.cuda.power_draw. Over which time that is a mean, the card decides.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param milliwatts Out: milliwatts.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_power_draw(int32_t device,
                                  uint32_t *milliwatts)
PLINTH_NOEXCEPT;

/**
 * Tells the clock rate of a device's multiprocessors now, as torch.cuda.clock_rate. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param megahertz Out: megahertz.
 * @return As plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_clock_rate(int32_t device, uint32_t *megahertz) PLINTH_NOEXCEPT;

/**
 * Tells how much memory of a device is in use, by all processes and by the driver itself, as torch.cuda.device_memory_used.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_device_memory_used(int32_t device,
                                          uint64_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much energy a device has used since its driver was loaded; the difference of two readings is what was used
 * between them. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param millijoules Out: millijoules.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_energy_used(int32_t device,
                                   uint64_t *millijoules)
PLINTH_NOEXCEPT;

/**
 * Tells why a device's clock is slower than it could be. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param reasons Out: PLINTH_THROTTLE_ bits; 0 for a clock at its best.
 * @return As plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_throttle_reasons(int32_t device, uint64_t *reasons) PLINTH_NOEXCEPT;

/**
 * Puts such reasons in words, separated by commas. Thread-safe.
 *
 * @param reasons PLINTH_THROTTLE_ bits.
 * @param text Out: the words; "none" for 0. The caller owns them and frees them with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API plinth_status_t plinth_throttle_reasons_text(uint64_t reasons, char **text) PLINTH_NOEXCEPT;

/**
 * Reads all that a device tells in one call. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param readings In: its struct_size. Out: the readings; a reading that there is not leaves its bit of `valid` at 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a size that is too small for `valid`;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE; PLINTH_ERROR_SYSTEM; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_read_telemetry(int32_t device,
                                      struct plinth_telemetry_t *readings)
PLINTH_NOEXCEPT;

/**
 * Lists the processes that compute on a device, as torch.cuda.list_gpu_processes does: a line for each with its number and
 * its MiB, called MB. The first line names the card by NVML's number. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param text Out: the lines. The caller owns them and frees them with plinth_string_free.
 * @return As plinth_utilization, and PLINTH_ERROR_OUT_OF_MEMORY. Where torch puts an error into the text, this returns it.
 */
PLINTH_API
plinth_status_t plinth_list_gpu_processes(int32_t device,
                                          char **text)
PLINTH_NOEXCEPT;

/**
 * Lists the same as structs. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param processes Out: as many as there are and fit; NULL to be told their number alone.
 * @param capacity How many fit.
 * @param count Out: how many there are, which may be more than were written.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_gpu_processes(int32_t device,
                                     struct plinth_gpu_process_t *processes,
                                     size_t capacity,
                                     size_t *count)
PLINTH_NOEXCEPT;

/**
 * Begins to read a device's telemetry at a fixed rate, in a thread of its own, and to keep the last readings. The thread
 * lives until plinth_telemetry_sampler_destroy. All readings together take less than a thousandth of one processor: one that takes
 * long is read less often than the others, and is not valid in the samples between. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param interval_ms Milliseconds from one reading to the next, at least 1. NVML's own values change ten times a second
 *        or less.
 * @param capacity How many readings are kept; when there are more, the oldest are lost.
 * @param made Out: the sampler. The caller owns it and destroys it.
 * @return As plinth_read_telemetry, and PLINTH_ERROR_INVALID_VALUE for an interval or a capacity of 0.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_create(int32_t device,
                                                uint32_t interval_ms,
                                                size_t capacity,
                                                plinth_telemetry_sampler_t *made)
PLINTH_NOEXCEPT;

/**
 * Takes the readings since the last call out of a sampler, the oldest first. Thread-safe.
 *
 * @param sampler The sampler.
 * @param readings Out: as many as there are and fit. Their sizes are written, not read.
 * @param capacity How many fit.
 * @param count Out: how many were written.
 * @param lost Out, unless NULL: how many were lost since the last call because nobody took them.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; once everything is taken from a sampler that
 *         could not go on: its error.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_take(plinth_telemetry_sampler_t sampler,
                                              struct plinth_telemetry_t *readings,
                                              size_t capacity,
                                              size_t *count,
                                              uint64_t *lost)
PLINTH_NOEXCEPT;

/**
 * Ends a sampler and its thread. Thread-safe.
 *
 * @param sampler The sampler; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_destroy(plinth_telemetry_sampler_t sampler)
PLINTH_NOEXCEPT;

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

/**
 * Switches the stream sanitizer on, as torch.cuda._sanitizer.enable_cuda_sanitizer does, or changes its mode. From then on
 * it looks at all that the library does, for accesses to the same bytes from different streams, or from a stream and the
 * CPU, that nothing orders and of which one writes at least; and for uses of freed memory. It is about order and not about
 * time: what it finds is wrong also in a run in which nothing happened to go wrong. docs/sanitizer.md tells what it knows.
 *
 * Of what happened before it knows only which blocks there are. An access costs about a microsecond more while it is on, and
 * memory of the CPU is taken for what is under way; off, it costs nothing. The library prints nothing; see
 * PLINTH_SANITIZER_LOG in docs/sanitizer.md for who wants that. Thread-safe.
 *
 * @param mode PLINTH_SANITIZER_COLLECT, _WARN or _ERROR; _OFF as plinth_sanitizer_disable.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_enable(int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Switches the stream sanitizer off. What it knows is forgotten; the reports stay until plinth_sanitizer_clear. Thread-safe.
 *
 * @return PLINTH_OK; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_disable(void)
PLINTH_NOEXCEPT;

/**
 * Tells the mode of the stream sanitizer. Needs no device. Thread-safe.
 *
 * @param mode Out: PLINTH_SANITIZER_OFF, _COLLECT, _WARN or _ERROR.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_sanitizer_mode(int32_t *mode) PLINTH_NOEXCEPT;

/**
 * Sets who is told of reports that are new, in the modes PLINTH_SANITIZER_WARN and _ERROR. What two calls of the same places
 * in the program have between them is one report, however often it is found. Needs no device. Thread-safe.
 *
 * Other threads may still be in the callback that was set before when this returns, or about to call it, so that one's context
 * has to stay.
 *
 * @param callback Called by the thread whose call finds something, before that call returns. It may call the library, and what
 *        is wrong with these calls is only kept. NULL for nobody. It must not unwind or throw.
 * @param context Passed to the callback, which may be called by several threads at once.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_set_callback(plinth_sanitizer_callback_t callback,
                                              void *context)
PLINTH_NOEXCEPT;

/**
 * Tells the sanitizer of work of the program's own on some bytes: a kernel that it is about to launch into a stream, a call of
 * another library. In a capture it becomes a part of the graph, and is looked at in each replay. Does nothing while the
 * sanitizer is off. Thread-safe.
 *
 * @param pointer The first byte.
 * @param bytes How many.
 * @param kind PLINTH_SANITIZER_READ, PLINTH_SANITIZER_WRITE, or both.
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_RACE in the mode PLINTH_SANITIZER_ERROR, if the work must not be done;
 *         PLINTH_ERROR_INVALID_VALUE for another kind; PLINTH_ERROR_NULL_POINTER for a NULL pointer;
 *         PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_access(const void *pointer,
                                        size_t bytes,
                                        uint32_t kind,
                                        plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * The same for one operation that works on several runs of bytes, under a name. Thread-safe.
 *
 * @param name What reports call it: a kernel's name, say.
 * @param accesses The runs of bytes.
 * @param access_count How many.
 * @param stream The stream; NULL for the current device's default stream.
 * @return As plinth_sanitizer_access; PLINTH_ERROR_NULL_POINTER also for a NULL name or list.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_operation(const char *name,
                                           const struct plinth_sanitizer_access_t *accesses,
                                           size_t access_count,
                                           plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * The same for work that the CPU does itself and now, on memory that streams work on, too: pinned, managed, or read through
 * a mapping. What a host function does is told as an operation of its stream, when it is launched. Thread-safe.
 *
 * @param name What reports call it.
 * @param accesses The runs of bytes.
 * @param access_count How many.
 * @return As plinth_sanitizer_operation.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_host_operation(const char *name,
                                                const struct plinth_sanitizer_access_t *accesses,
                                                size_t access_count)
PLINTH_NOEXCEPT;

/**
 * Tells the sanitizer what a node of a graph does to memory at each replay: a kernel or a host function of a graph that was
 * built, or a conditional node with all that is in it. It takes the place of what was told of the node before, or seen of it,
 * and counts from when the graph is instantiated next. What a capture made is known from the capture, and has this counted
 * only once the graph got other nodes; in a copy of the graph that became a node of another graph it does not count. Does nothing while
 * the sanitizer is off. Thread-safe.
 *
 * @param graph The graph, which kept its nodes.
 * @param node A node of it that is neither a graph nor an event.
 * @param name What reports call it.
 * @param accesses The runs of bytes.
 * @param access_count How many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another kind of access and another kind of node;
 *         PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_graph_operation(plinth_graph_t graph,
                                                 plinth_graph_node_t node,
                                                 const char *name,
                                                 const struct plinth_sanitizer_access_t *accesses,
                                                 size_t access_count)
PLINTH_NOEXCEPT;

/**
 * Tells the sanitizer that later work of a stream waits for what another has now, by something that it does not see: an event
 * of CUDA's own, a flag in memory. It knows what the library's own calls order. Thread-safe.
 *
 * @param stream The stream that waits.
 * @param other The one that is waited for.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_wait_stream(plinth_stream_t stream,
                                             plinth_stream_t other)
PLINTH_NOEXCEPT;

/**
 * Tells the sanitizer that the CPU knows by something that it does not see that all work of a stream is done. Thread-safe.
 *
 * @param stream The stream; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_stream_done(plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Tells how many reports there are. Needs no device. Thread-safe.
 *
 * @param reports Out: how many there are to read: 1000 at most.
 * @param findings Out: how often anything was found, the same again included; may be NULL.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for NULL reports.
 */
PLINTH_API plinth_status_t plinth_sanitizer_count(size_t *reports, uint64_t *findings) PLINTH_NOEXCEPT;

/**
 * Shows all reports, in the order in which they were found. Finds out what functions their stacks are of, which takes
 * milliseconds the first time. Needs no device. Thread-safe.
 *
 * @param callback Called for each report, by this thread; it may call the library.
 * @param context What it is called with; never looked into.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_each(plinth_sanitizer_callback_t callback,
                                      void *context)
PLINTH_NOEXCEPT;

/**
 * Gives all reports in words, in the order in which they were found; an empty text if there are none. Needs no device.
 * Thread-safe.
 *
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_text(char **text)
PLINTH_NOEXCEPT;

/**
 * Gives all reports as JSON: a list of objects, in the order in which they were found.
 *
 * Each has "kind" ("race", "reuse", "use_after_free"), "message", "times", "address", "bytes", "access" and "previous", which
 * is null where freed memory was used, "missing" ("wait", "later_wait", "record_stream", "later_free"), "advice",
 * "allocation", the block that the bytes are in or null, and "former_allocation", the block that they were in before, if that
 * is concerned. An access has "name", "kind" ("read", "write", "read_write"), "device" and "stream", null for the CPU, "graph",
 * the driver's handle of what was launched or null, "address", "bytes", "operation" and "frames"; a block has "address",
 * "bytes", "device", "stream", "frames" and "freed_frames", null if it is not freed. A frame has "name", "filename" and "line".
 * Needs no device. Thread-safe.
 *
 * @param json Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_json(char **json)
PLINTH_NOEXCEPT;

/**
 * Forgets all reports, so that the same would be new again. What the sanitizer knows of the program stays. Needs no device.
 * Thread-safe.
 *
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_sanitizer_clear(void)
PLINTH_NOEXCEPT;

/**
 * Lets driver calls be made to fail, and counts them. For tests: it puts a layer before every driver call.
 *
 * Must come before the first use of a device and the first question about one; PLINTH_FAULT_INJECTION=1 in the
 * environment does the same. Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_ALREADY_INITIALIZED if it is too late.
 */
PLINTH_API
plinth_status_t plinth_enable_fault_injection(void)
PLINTH_NOEXCEPT;

/**
 * Makes one driver call fail, before it has any effect: the nth from now on, of all threads. It happens once.
 *
 * A test runs a piece of work with nth = 1, 2, 3 and so on until plinth_tripped_fault tells that the work ended before
 * the fault, and so sees every failure that the driver could cause.
 *
 * @param nth Which call from now on, the next being 1; 0 calls a fault off that has not happened yet.
 * @param driver_code The CUresult that it fails with; 2 is CUDA_ERROR_OUT_OF_MEMORY. Not 0, unless nth is.
 * @return PLINTH_OK; PLINTH_ERROR_NOT_SUPPORTED without plinth_enable_fault_injection; PLINTH_ERROR_INVALID_VALUE for a
 *         driver_code of 0.
 */
PLINTH_API
plinth_status_t plinth_inject_fault(uint64_t nth,
                                    int32_t driver_code)
PLINTH_NOEXCEPT;

/**
 * Tells which driver call met the fault that plinth_inject_fault set last.
 *
 * @return The call's name, a static text; NULL if none has.
 */
PLINTH_API const char *plinth_tripped_fault(void) PLINTH_NOEXCEPT;

/**
 * Counts the calls of a driver function: always on the host device, and on a GPU with plinth_enable_fault_injection.
 * Thread-safe.
 *
 * @param name The function, "cuMemCreate".
 * @param count Out: how often it was called in this process.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         PLINTH_ERROR_NOT_SUPPORTED where nobody counts; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_call_count(const char *name,
                                         uint64_t *count)
PLINTH_NOEXCEPT;

/**
 * Tells what the calls of a driver function would have cost on an H200 (driver 580): the host device keeps account
 * of it. Thread-safe.
 *
 * @param name The function, "cuMemCreate".
 * @param nanoseconds Out: the cost of all its calls in this process.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_call_cost(const char *name,
                                        uint64_t *nanoseconds)
PLINTH_NOEXCEPT;

/**
 * Gives the driver's function of a name, for programs that call the driver themselves, on a GPU and on the host device
 * alike, and for measuring plinth against the bare call. Thread-safe.
 *
 * @param name The function, with or without its version: "cuMemAlloc" or "cuMemAlloc_v2".
 * @param function Out: the function, of the type that cuda.h gives it. A function that the driver lacks is present
 *        and returns CUDA_ERROR_NOT_SUPPORTED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a function that plinth does not use;
 *         the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_driver_entry_point(const char *name,
                                          void **function)
PLINTH_NOEXCEPT;

/**
 * Tells what the host device holds. Thread-safe.
 *
 * @param usage In: struct_size. Out: the counts, as far as struct_size reaches.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set;
 *         PLINTH_ERROR_NOT_SUPPORTED on a GPU; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_usage(struct plinth_host_usage_t *usage)
PLINTH_NOEXCEPT;

/**
 * Describes the driver calls that plinth uses, a line each: name, the CUDA version that brought it, and "required" or
 * "optional". Needs no device. Thread-safe.
 *
 * @param text Out: the lines. The caller owns them and frees them with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_driver_calls(char **text)
PLINTH_NOEXCEPT;

/**
 * Walks every structure of the caching allocator and of that of pinned memory, and checks that they agree. For tests, while no other
 * thread allocates or frees: what is in the middle of a step does not agree with itself.
 *
 * @return PLINTH_OK; PLINTH_ERROR_PANIC with a message that names what is broken; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_testing_check_allocator(void)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLINTH_H */
