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
 * What plinth_nvtx_domain_t points at, never looked into.
 */
typedef struct plinth_nvtx_domain plinth_nvtx_domain;

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
 * The handle of an event.
 */
typedef struct plinth_event *plinth_event_t;

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
 * All readings of a device at a moment. Which of them there are, `valid` tells; the others are 0.
 */
typedef struct plinth_telemetry_t {
  /**
   * In: sizeof(plinth_telemetry_t), so that later versions may add to it. No more than that is written.
   */
  size_t size;
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
 * A mark, or what a range begins with. All zero but `size` and `message` is a plain one.
 */
typedef struct plinth_nvtx_event_t {
  /**
   * sizeof(plinth_nvtx_event_t), so that later versions may add to it.
   */
  size_t size;
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
 * NVML, which knows what GPUs are doing, is not on this machine or cannot be used.
 */
#define PLINTH_ERROR_NVML_UNAVAILABLE 43

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
 * with pageable host memory, plinth_device_free and plinth_pinned_free. Needs no device. Thread-safe.
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
 * @param fraction Out: what plinth_set_per_process_memory_fraction was given; 1 if it was not called.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_per_process_memory_fraction(int32_t device,
                                                       double *fraction)
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
 *         PLINTH_ERROR_NOT_SUPPORTED for memory that is not mapped (expandable_segments:False);
 *         PLINTH_ERROR_CAPTURE_FORBIDS while a stream of the device captures; PLINTH_ERROR_WOULD_SYNCHRONIZE;
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
 * Tells how much memory of a device is in use, by all processes, as torch.cuda.device_memory_used. Thread-safe.
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
 * @param readings In: its size. Out: the readings; a reading that there is not leaves its bit of `valid` at 0.
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
 * lives until plinth_telemetry_sampler_destroy. Thread-safe.
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
 * Walks every structure of the caching allocator and checks that they agree with each other. For tests, while no other
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
