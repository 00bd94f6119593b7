/*!
 * @mainpage plinth: torch.cuda without libtorch
 *
 * plinth gives a C or C++ program devices, streams, events, graphs and memory of NVIDIA GPUs, as torch.cuda gives them
 * to a Python program. It also has a device of its own, the host device, for machines without a GPU.
 *
 * torch.cuda.X.y(...) is plinth_X_y(...). These rules hold for every function, unless its comment says otherwise:
 *
 * - **Status.** A function returns a plinth_status_t: PLINTH_OK, or one of the PLINTH_ERROR_ constants.
 *   plinth_last_error() returns a sentence that says what was attempted and why it failed; plinth_last_driver_error()
 *   returns the driver's own code.
 * - **Arguments.** The order is: the object or device that the call is about, inputs, options, the stream, outputs.
 *   Outputs are written only on success. An array stands before its count or capacity. A device of -1 is the calling
 *   thread's current device. A NULL stream is the default stream of the device that the call is about, and
 *   PLINTH_STREAM_CURRENT the current stream there; see plinth_stream_t. Sizes are in bytes unless the comment
 *   says elements.
 * - **Threads.** Every function may be called from any thread at any time, with one exception: do not destroy an object
 *   while another thread is in a call with it. The current device, the current streams and the last error belong to
 *   the calling thread. Callbacks must not unwind or throw. A call of a signal handler that interrupted another call of
 *   its thread returns PLINTH_ERROR_NOT_SUPPORTED, and does nothing; this holds for frees, too. A thread that is
 *   cancelled during a call completes it first; a thread with PTHREAD_CANCEL_ASYNCHRONOUS must not make calls.
 * - **Callbacks.** The type of a callback ends in `_callback_t`. Its `void *context` follows it in the call, and is its
 *   own last parameter. What it receives is valid until it returns.
 * - **Ownership.** The caller owns what a function creates, allocates or opens. An object of type plinth_x_t is released
 *   with plinth_x_destroy, memory with free, what was opened with close. A text in a `char **` output belongs to the
 *   caller, who frees it with plinth_string_free; a `const char *` belongs to the library.
 * - **Structs.** A struct that may grow begins with `struct_size`, the struct's size, which its `_INIT` macro sets. New
 *   fields are added at the end. The library gives fields that the program's struct lacks the values of `_INIT`, and
 *   writes no more bytes than `struct_size`. It refuses inputs with unknown fields that are not 0. All elements of an
 *   array have the `struct_size` of the first.
 * - **Values.** A value with a setter is read by get_x and set by set_x; one without a setter is read by x.
 * - **Process.** The library initializes itself when a device is first used. It prints nothing and never ends the
 *   process. In a child that is forked later, calls that destroy or free do nothing and succeed, and all others return
 *   PLINTH_ERROR_FORKED_CHILD, except those about versions, statuses and messages; docs/errors.md lists them.
 *
 * plinth.h includes every header below. Each of them may also be included alone, in C99 or later and C++11 or later.
 *
 * - @ref plinth_base "plinth/base.h": Basics
 * - @ref plinth_log "plinth/log.h": Log
 * - @ref plinth_tensor "plinth/tensor.h": Tensors
 * - @ref plinth_device "plinth/device.h": Devices
 * - @ref plinth_stream "plinth/stream.h": Streams
 * - @ref plinth_green_context "plinth/green_context.h": Green contexts
 * - @ref plinth_event "plinth/event.h": Events
 * - @ref plinth_allocator "plinth/allocator.h": Caching allocator
 * - @ref plinth_mem_pool "plinth/mem_pool.h": Memory pools
 * - @ref plinth_pluggable_allocator "plinth/pluggable_allocator.h": Pluggable allocators
 * - @ref plinth_memory "plinth/memory.h": Memory of the driver, copies and fills
 * - @ref plinth_names "plinth/names.h": Names of streams and memory
 * - @ref plinth_host_memory "plinth/host_memory.h": Pinned host memory
 * - @ref plinth_memory_sleep "plinth/memory_sleep.h": Memory that sleeps
 * - @ref plinth_memory_registration "plinth/memory_registration.h": Memory that others register
 * - @ref plinth_memory_share "plinth/memory_share.h": A device that processes share
 * - @ref plinth_memory_stats "plinth/memory_stats.h": Statistics of the allocator
 * - @ref plinth_memory_history "plinth/memory_history.h": History of the allocator
 * - @ref plinth_snapshot "plinth/snapshot.h": Snapshots of the allocator
 * - @ref plinth_ipc "plinth/ipc.h": Memory shared between processes
 * - @ref plinth_generator "plinth/generator.h": Random number generators
 * - @ref plinth_random "plinth/random.h": Random tensors
 * - @ref plinth_graph "plinth/graph.h": Graphs
 * - @ref plinth_graph_build "plinth/graph_build.h": Graphs built by hand
 * - @ref plinth_graph_callable "plinth/graph_callable.h": Graphed callables
 * - @ref plinth_kernel "plinth/kernel.h": Kernels
 * - @ref plinth_jiterator "plinth/jiterator.h": Jiterator
 * - @ref plinth_comm "plinth/comm.h": Collectives between the devices of a process
 * - @ref plinth_store "plinth/store.h": Stores
 * - @ref plinth_communicator "plinth/communicator.h": Communicators
 * - @ref plinth_nccl "plinth/nccl.h": torch.cuda.nccl
 * - @ref plinth_blas "plinth/blas.h": Handles of cuBLAS, cuBLASLt and cuSOLVER
 * - @ref plinth_cufft "plinth/cufft.h": Plans of cuFFT
 * - @ref plinth_telemetry "plinth/telemetry.h": Telemetry
 * - @ref plinth_nvtx "plinth/nvtx.h": Ranges and marks for profilers
 * - @ref plinth_sanitizer "plinth/sanitizer.h": Stream sanitizer
 * - @ref plinth_testing "plinth/testing.h": Testing
 *
 * plinth.hpp is the same for C++17, with exceptions and owning objects. plinth_philox.h and plinth_philox.cuh make random
 * numbers in the program's own kernels; no header here includes them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_H
#define PLINTH_H

/*!
 * @file plinth.h
 * @brief All of plinth for C: includes every header of the folder plinth.
 */

#include "plinth/base.h"
#include "plinth/log.h"
#include "plinth/tensor.h"
#include "plinth/device.h"
#include "plinth/stream.h"
#include "plinth/green_context.h"
#include "plinth/event.h"
#include "plinth/allocator.h"
#include "plinth/mem_pool.h"
#include "plinth/pluggable_allocator.h"
#include "plinth/memory.h"
#include "plinth/names.h"
#include "plinth/host_memory.h"
#include "plinth/memory_sleep.h"
#include "plinth/memory_registration.h"
#include "plinth/memory_share.h"
#include "plinth/memory_stats.h"
#include "plinth/memory_history.h"
#include "plinth/snapshot.h"
#include "plinth/ipc.h"
#include "plinth/generator.h"
#include "plinth/random.h"
#include "plinth/graph.h"
#include "plinth/graph_build.h"
#include "plinth/graph_callable.h"
#include "plinth/kernel.h"
#include "plinth/jiterator.h"
#include "plinth/comm.h"
#include "plinth/store.h"
#include "plinth/communicator.h"
#include "plinth/nccl.h"
#include "plinth/blas.h"
#include "plinth/cufft.h"
#include "plinth/telemetry.h"
#include "plinth/nvtx.h"
#include "plinth/sanitizer.h"
#include "plinth/testing.h"

#endif /* PLINTH_H */
