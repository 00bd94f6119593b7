/*!
 * @defgroup plinth_base Basics
 *
 * Every other header includes this one. It holds the macros that functions are declared with, the type of a stream,
 * the statuses that functions return, and the version.
 *
 * A status and the message behind plinth_last_error() belong to the thread that made the call: two threads do not see
 * each other's errors. The rules that hold for every function of plinth are in plinth.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_BASE_H
#define PLINTH_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*!
 * @file plinth/base.h
 * @brief Basics.
 */

/*!
 * @addtogroup plinth_base
 * @{
 */

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

/*!
 * A stream: the same type as cudaStream_t and CUstream, so that it can be passed to kernel<<<...>>>.
 *
 * Every call that takes a stream also takes three names. They refer to the device that the call is about: that of the
 * tensor, of the memory, of the event, of the communicator, or of the device argument; the current device if the call
 * names none. docs/stream.md lists the device of each call.
 *
 * - NULL: the default stream of that device. CUDA's own names 1 (cudaStreamLegacy) and 2 (cudaStreamPerThread) refer to
 *   the same device.
 * - PLINTH_STREAM_CURRENT: the calling thread's current stream on that device.
 * - PLINTH_STREAM_DEFAULT_OF(device): the default stream of the device with this number.
 */
typedef struct CUstream_st *plinth_stream_t;

/*!
 * The calling thread's current stream on the device that the call is about, which is what torch uses if no stream is
 * passed. Only plinth's calls accept it, and none returns it.
 */
#define PLINTH_STREAM_CURRENT ((plinth_stream_t)(uintptr_t)0x504C530100000000u)

/*!
 * The default stream of a device. NULL is the default stream of every device, and does not name it. Only plinth's calls
 * accept this name, and none returns it. A call refuses the number of a device that does not exist with
 * PLINTH_ERROR_INVALID_DEVICE. -1 is the current device.
 */
#define PLINTH_STREAM_DEFAULT_OF(device) ((plinth_stream_t)(uintptr_t)(0x504C530000000000u | (uint32_t)(device)))

/*!
 * @defgroup plinth_status Statuses and errors
 *
 * Almost every function returns a plinth_status_t. The library also keeps, for each thread, a message and the driver's
 * code of that thread's last call. Read them in the same thread, before its next call that returns a status.
 *
 * All texts here belong to the library. None of these functions needs a device.
 *
 * @{
 */

/**
 * The result of a call: PLINTH_OK, which is 0, or one of the PLINTH_ERROR_ constants. The numbers never change their
 * meaning. Newer versions of the library add more, so treat an unknown number as a failure.
 */
typedef int32_t plinth_status_t;

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
 * The handle was never created, was destroyed, or is of another kind.
 */
#define PLINTH_ERROR_INVALID_HANDLE 4

/**
 * The pointer does not belong to memory that the call accepts.
 */
#define PLINTH_ERROR_INVALID_POINTER 5

/**
 * There is not enough free memory for the request.
 */
#define PLINTH_ERROR_OUT_OF_MEMORY 6

/**
 * This machine has no CUDA driver, or no device that is visible to the process.
 */
#define PLINTH_ERROR_NO_DEVICE 7

/**
 * The CUDA driver lacks a required function.
 */
#define PLINTH_ERROR_DRIVER_TOO_OLD 8

/**
 * The libcuda that was found is the stub of the CUDA toolkit, not a driver.
 */
#define PLINTH_ERROR_STUB_LIBRARY 9

/**
 * An environment variable has an invalid value.
 */
#define PLINTH_ERROR_INVALID_CONFIGURATION 10

/**
 * The call must come before the library is initialized.
 */
#define PLINTH_ERROR_ALREADY_INITIALIZED 11

/**
 * A process created by fork cannot use the devices of its parent.
 */
#define PLINTH_ERROR_FORKED_CHILD 12

/**
 * The process is exiting, and the driver must not be called any more.
 */
#define PLINTH_ERROR_SHUTTING_DOWN 13

/**
 * The device or its driver does not support this.
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
 * Both events must be recorded before the elapsed time can be read.
 */
#define PLINTH_ERROR_EVENT_NOT_RECORDED 17

/**
 * Both events must be complete before the elapsed time can be read.
 */
#define PLINTH_ERROR_EVENT_NOT_COMPLETE 18

/**
 * The call would wait for the device, and the sync debug mode forbids it.
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
 * Work on the device made an illegal memory access; the context is lost.
 */
#define PLINTH_ERROR_ILLEGAL_ADDRESS 23

/**
 * A kernel failed on the device; the context is lost.
 */
#define PLINTH_ERROR_LAUNCH_FAILED 24

/**
 * A driver call failed; plinth_last_driver_error returns its code.
 */
#define PLINTH_ERROR_DRIVER 25

/**
 * A call to the operating system failed.
 */
#define PLINTH_ERROR_SYSTEM 26

/**
 * An internal error (panic) in the library was caught.
 */
#define PLINTH_ERROR_PANIC 27

/**
 * The generator is not registered with the graph that is being captured.
 */
#define PLINTH_ERROR_GENERATOR_NOT_REGISTERED 28

/**
 * The graph already owns a capture; reset it, or create another graph, to capture again.
 */
#define PLINTH_ERROR_GRAPH_CAPTURED 29

/**
 * The graph is being captured, and the call needs a finished capture.
 */
#define PLINTH_ERROR_GRAPH_CAPTURING 30

/**
 * The graph is not being captured.
 */
#define PLINTH_ERROR_GRAPH_NOT_CAPTURING 31

/**
 * The graph has no successful capture yet.
 */
#define PLINTH_ERROR_GRAPH_NOT_CAPTURED 32

/**
 * A graph must be captured in a stream other than the default stream; it can be replayed in any.
 */
#define PLINTH_ERROR_GRAPH_DEFAULT_STREAM 33

/**
 * A capture must end in the stream in which it began.
 */
#define PLINTH_ERROR_GRAPH_WRONG_STREAM 34

/**
 * A capture that is not relaxed must end in the thread in which it began.
 */
#define PLINTH_ERROR_GRAPH_WRONG_THREAD 35

/**
 * A stream that took part in the capture was not joined to the stream in which the capture began.
 */
#define PLINTH_ERROR_GRAPH_UNJOINED 36

/**
 * Nothing was captured; this version does not return it, because an empty capture is a valid graph.
 */
#define PLINTH_ERROR_GRAPH_EMPTY 37

/**
 * The graph's nodes are not available: it was created without keeping them.
 */
#define PLINTH_ERROR_GRAPH_NOT_KEPT 38

/**
 * The graph's memory is suspended; wake it first.
 */
#define PLINTH_ERROR_GRAPH_ASLEEP 39

/**
 * Memory of the pool is in use outside of its graphs.
 */
#define PLINTH_ERROR_GRAPH_MEMORY_IN_USE 40

/**
 * Another replay of the pool's graphs is still running in another stream.
 */
#define PLINTH_ERROR_GRAPH_OVERLAP 41

/**
 * The graphs differ in something that an update cannot change.
 */
#define PLINTH_ERROR_GRAPH_UPDATE_REFUSED 42

/**
 * Guard bytes around an allocation were overwritten.
 */
#define PLINTH_ERROR_MEMORY_CORRUPTED 43

/**
 * The memory was received from another process, and only its owner can share it.
 */
#define PLINTH_ERROR_IPC_REEXPORT 44

/**
 * The process at the other end has ended, or has closed the connection.
 */
#define PLINTH_ERROR_IPC_PEER_GONE 45

/**
 * Memory of this kind cannot be shared in this way.
 */
#define PLINTH_ERROR_IPC_NOT_SHAREABLE 46

/**
 * A wait for other processes or ranks timed out.
 */
#define PLINTH_ERROR_TIMED_OUT 47

/**
 * The process of another rank has ended, or has left the group.
 */
#define PLINTH_ERROR_PEER_LOST 48

/**
 * The group was aborted, here or by another rank.
 */
#define PLINTH_ERROR_ABORTED 49

/**
 * Collective mismatch: the ranks of a group made different calls.
 */
#define PLINTH_ERROR_RANK_MISMATCH 50

/**
 * An NCCL call failed; the message names it.
 */
#define PLINTH_ERROR_NCCL 51

/**
 * NCCL is required, but is not installed or too old.
 */
#define PLINTH_ERROR_NCCL_UNAVAILABLE 52

/**
 * The initialization of the communicator is in progress.
 */
#define PLINTH_ERROR_COMMUNICATOR_NOT_READY 53

/**
 * NVML, which reports the state of GPUs, is not installed or cannot be used.
 */
#define PLINTH_ERROR_NVML_UNAVAILABLE 54

/**
 * A call to one of CUDA's libraries failed; the message names it.
 */
#define PLINTH_ERROR_LIBRARY 55

/**
 * One of CUDA's libraries is required, but is not installed or too old.
 */
#define PLINTH_ERROR_LIBRARY_UNAVAILABLE 56

/**
 * The stream sanitizer found that the call is not ordered after earlier work that it conflicts with.
 */
#define PLINTH_ERROR_RACE 57

/**
 * A compiler is required, but is not installed or too old.
 */
#define PLINTH_ERROR_COMPILER_UNAVAILABLE 58

/**
 * Compilation failed; the message contains the compiler's log.
 */
#define PLINTH_ERROR_COMPILATION_FAILED 59

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the name of a status, for example "PLINTH_ERROR_OUT_OF_MEMORY"; "PLINTH_ERROR_UNKNOWN" for an unknown
 * number.
 *
 * Needs no device.
 *
 * @param status The status.
 * @return A static string, never NULL.
 */
PLINTH_API
const char *plinth_status_name(plinth_status_t status)
PLINTH_NOEXCEPT;

/**
 * Returns a one-sentence description of a status. plinth_last_error is more specific: it names the request.
 *
 * Needs no device.
 *
 * @param status The status.
 * @return A static string, never NULL.
 */
PLINTH_API const char *plinth_status_string(plinth_status_t status) PLINTH_NOEXCEPT;

/**
 * Returns the message of the calling thread's last call that returned a status: what was attempted and why it failed;
 * "" after a success.
 *
 * The string belongs to the library and is valid until the thread's next call that returns a status. Needs no device.
 *
 * @return A string, never NULL.
 */
PLINTH_API
const char *plinth_last_error(void)
PLINTH_NOEXCEPT;

/**
 * Returns the CUresult of the driver call that made the calling thread's last call fail; 0 after a success, and after
 * an error that did not come from the driver.
 *
 * @return The driver's error code.
 */
PLINTH_API
int32_t plinth_last_driver_error(void)
PLINTH_NOEXCEPT;

/**
 * Converts an error code of the CUDA runtime to a status: torch.cuda.check_error.
 *
 * Codes of the driver (CUresult) have the same numbers and meanings, as far as both have them. Needs no device.
 *
 * @param code The cudaError_t.
 * @return PLINTH_OK for 0; otherwise the status that fits the code, PLINTH_ERROR_DRIVER if none does. The message has the
 *         name and the meaning of the code, and plinth_last_driver_error returns the code.
 */
PLINTH_API
plinth_status_t plinth_check_error(int32_t code)
PLINTH_NOEXCEPT;

/**
 * Returns the number of statuses: they are numbered from 0 without gaps.
 *
 * @return The count.
 */
PLINTH_API int32_t plinth_status_count(void) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*!
 * @defgroup plinth_version Versions and the kind of device
 *
 * The constants are the version that a program was compiled with; the functions return the version that it runs with.
 *
 * A process uses one kind of device: NVIDIA GPUs, or the host device, which runs on the CPU and needs no GPU. The
 * choice holds for the whole process. It is made before the first use of a device and cannot change afterwards.
 *
 * @{
 */

/**
 * The major version of the library that a program was compiled with. plinth_version returns the version at run time.
 */
#define PLINTH_VERSION_MAJOR 0

/**
 * The minor version; before 1.0 it changes whenever programs must be recompiled.
 */
#define PLINTH_VERSION_MINOR 2

/**
 * The patch version.
 */
#define PLINTH_VERSION_PATCH 0

/**
 * NVIDIA GPUs, through libcuda. The default.
 */
#define PLINTH_DEVICE_CUDA 0

/**
 * The device that is built into the library and runs on the CPU.
 */
#define PLINTH_DEVICE_HOST 1

/**
 * GPUs if any is visible to the process, else the built-in device.
 */
#define PLINTH_DEVICE_AUTO 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library at run time, as major * 10000 + minor * 100 + patch.
 *
 * Needs no device.
 *
 * @return The version.
 */
PLINTH_API int32_t plinth_version(void) PLINTH_NOEXCEPT;

/**
 * Returns the version of the library at run time as text, "0.2.0".
 *
 * Needs no device.
 *
 * @return A static string, never NULL.
 */
PLINTH_API const char *plinth_version_string(void) PLINTH_NOEXCEPT;

/**
 * Returns the newest CUDA version that the driver supports.
 *
 * Loads the driver, but creates no context.
 *
 * @param version Out: the version in CUDA's encoding, 13000 for 13.0. The host device reports 13000.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of plinth_init if there is no device.
 */
PLINTH_API plinth_status_t plinth_driver_version(int32_t *version) PLINTH_NOEXCEPT;

/**
 * Selects the kind of device for the process: PLINTH_DEVICE_CUDA, PLINTH_DEVICE_HOST or PLINTH_DEVICE_AUTO.
 *
 * Takes precedence over the environment variable PLINTH_DEVICE (cuda, host or auto). Must be called before the first
 * call that uses a device.
 *
 * @param kind The kind.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number; PLINTH_ERROR_ALREADY_INITIALIZED if another kind
 *         is in use already.
 */
PLINTH_API
plinth_status_t plinth_set_device_kind(int32_t kind)
PLINTH_NOEXCEPT;

/**
 * Returns the kind of device that the process uses: PLINTH_DEVICE_CUDA or PLINTH_DEVICE_HOST.
 *
 * Does not initialize the driver, as plinth_device_count: until something does, plinth_set_device_kind can change the
 * kind.
 *
 * @param kind Out: the kind.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of plinth_init if there is no device.
 */
PLINTH_API
plinth_status_t plinth_get_device_kind(int32_t *kind)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_BASE_H */
