/*!
 * @defgroup plinth_device Devices
 *
 * The devices of the process, numbered from 0 as CUDA_VISIBLE_DEVICES orders them. Nothing here is created or
 * destroyed. A device's context is made when the device is first used.
 *
 * Each thread has its own current device, which is 0 until the thread sets it. Access between devices, once enabled,
 * holds for the whole process.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_DEVICE_H
#define PLINTH_DEVICE_H

#include "base.h"

/*!
 * @file plinth/device.h
 * @brief Devices.
 */

/*!
 * @addtogroup plinth_device
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Initializes the library: loads the driver and checks that there is a device.
 *
 * The call is optional: every call that uses a device initializes the library first. It may be repeated, also after
 * a failure. Creates no context.
 *
 * @return PLINTH_OK; PLINTH_ERROR_NO_DEVICE with a message that says how to run without a GPU;
 *         PLINTH_ERROR_DRIVER_TOO_OLD with a message that names the missing function; PLINTH_ERROR_STUB_LIBRARY;
 *         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN;
 *         PLINTH_ERROR_DRIVER. These are "the errors of initialization" of all other calls.
 */
PLINTH_API
plinth_status_t plinth_init(void)
PLINTH_NOEXCEPT;

/**
 * Checks whether a device is available. Never fails, and does not initialize the driver, as plinth_device_count.
 *
 * @return Whether plinth_device_count would report more than 0.
 */
PLINTH_API
bool plinth_is_available(void)
PLINTH_NOEXCEPT;

/**
 * Checks whether the library is initialized and usable; false in a child process created by fork.
 *
 * @return Whether it is.
 */
PLINTH_API bool plinth_is_initialized(void) PLINTH_NOEXCEPT;

/**
 * Counts the devices that are visible to the process. CUDA_VISIBLE_DEVICES applies, also to the host device.
 *
 * Does not initialize the driver, so a process can count its devices and then fork children that use them: NVML counts
 * the GPUs. The driver counts them, and is initialized, if NVML is not installed, for MIG instances, and with
 * PLINTH_NVML_BASED_CUDA_CHECK=0 in the environment. If there is no driver or no device, the count is 0, which is not
 * an error.
 *
 * @param count Out: the number of devices.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
 */
PLINTH_API
plinth_status_t plinth_device_count(int32_t *count)
PLINTH_NOEXCEPT;

/**
 * Gets the calling thread's current device, initially 0.
 *
 * plinth stores the current device of each thread. plinth_set_device also makes the device current for the CUDA
 * runtime and driver. A device that the program sets directly with CUDA is not visible here: each call of plinth
 * that depends on the current device uses plinth's.
 *
 * @param device Out: the device index.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_current_device(int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Sets the calling thread's current device, for plinth and for CUDA. Creates the device's context if necessary.
 *
 * @param device The device index; a negative one does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_set_device(int32_t device)
PLINTH_NOEXCEPT;

/**
 * Gets the device to whose memory a pointer belongs.
 *
 * The pointer may be anywhere in the memory, and may have any value: it is looked up, not dereferenced.
 *
 * @param pointer An address.
 * @param device Out: the device index; -1 for host memory, pinned or not, for NULL, and for an address that is not
 *        in any memory. The value suits plinth_exchange_device, as torch's device_of context uses it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL device; the errors of initialization; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_device_of(const void *pointer,
                                 int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Gets the name of a device, such as "NVIDIA H200".
 *
 * @param device The device index; -1 for the current device.
 * @param name Out: the name, NUL-terminated. A longer name is truncated to capacity - 1 bytes.
 * @param capacity The size of `name` in bytes, at least 1; 256 is always enough.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a capacity of 0;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_device_name(int32_t device,
                                       char *name,
                                       size_t capacity)
PLINTH_NOEXCEPT;

/**
 * Gets the compute capability of a device.
 *
 * @param device The device index; -1 for the current device.
 * @param major Out: the major version, 9 on an H200.
 * @param minor Out: the minor version, 0 on an H200.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_device_capability(int32_t device,
                                             int32_t *major,
                                             int32_t *minor)
PLINTH_NOEXCEPT;

/**
 * Checks whether one device can access the memory of another. Creates no context.
 *
 * @param device The device that would access; -1 for the current device.
 * @param peer The device whose memory it would access; -1 for the current device.
 * @param can_access Out: whether it can; false if both are the same device, as in CUDA.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_can_device_access_peer(int32_t device,
                                              int32_t peer,
                                              bool *can_access)
PLINTH_NOEXCEPT;

/**
 * Enables access of one device to the memory of another, in one direction.
 *
 * The access covers existing and later allocations with plinth_device_malloc or cudaMalloc. Does nothing if the
 * access is already enabled or if both are the same device.
 *
 * @param device The device that will access; -1 for the current device.
 * @param peer The device whose memory it will access; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED; PLINTH_ERROR_DRIVER; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_enable_peer_access(int32_t device,
                                          int32_t peer)
PLINTH_NOEXCEPT;

/**
 * Disables access that plinth_enable_peer_access enabled. Does nothing if the access is not enabled.
 *
 * @param device The device that accessed; -1 for the current device.
 * @param peer The device whose memory it accessed; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_disable_peer_access(int32_t device, int32_t peer) PLINTH_NOEXCEPT;

/**
 * Waits until all work in all streams of a device is done. Reports errors of that work.
 *
 * @param device The device index; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids it;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while a stream of the device captures, whose capture stays valid if plinth began
 *         it; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_synchronize(int32_t device)
PLINTH_NOEXCEPT;

/**
 * Gets the free and total memory of a device, as the driver reports them for all processes. Memory that an allocator
 * caches is not free. On the host device other processes count only if they have the same PLINTH_HOST_MEMORY_NAME in
 * their environment; without that name each process has a device's memory to itself.
 *
 * @param device The device index; -1 for the current device.
 * @param free_bytes Out: the free memory in bytes.
 * @param total_bytes Out: the total memory in bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_get_info(int32_t device,
                                    size_t *free_bytes,
                                    size_t *total_bytes)
PLINTH_NOEXCEPT;

/**
 * Lists the architectures for which the library's own kernels are compiled, separated by spaces.
 *
 * "compute_75" is PTX that the driver compiles for every device of compute capability 7.5 or higher. The list is
 * empty if there is no device.
 *
 * @param text Out: the list. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization except
 *         PLINTH_ERROR_NO_DEVICE.
 */
PLINTH_API
plinth_status_t plinth_get_arch_list(char **text)
PLINTH_NOEXCEPT;

/**
 * Gets the compiler flags for the architectures of plinth_get_arch_list.
 *
 * The flags have torch's form, with "compute=" instead of nvcc's "arch=". The text is empty if there is no device.
 *
 * @param text Out: the flags. The caller owns them and frees them with plinth_string_free.
 * @return As plinth_get_arch_list.
 */
PLINTH_API
plinth_status_t plinth_get_gencode_flags(char **text)
PLINTH_NOEXCEPT;

/**
 * Frees a text that the library returned to the caller. NULL does nothing.
 *
 * @param text The text, from a function that says that the caller frees it with plinth_string_free.
 */
PLINTH_API void plinth_string_free(char *text) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_device_context Changing the current device for a block of code
 *
 * torch's `device` and `device_of` contexts, as pairs of calls: the first call changes the current device and returns
 * the previous one, and the second call restores it. Both calls of a pair must be made by the same thread.
 *
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets the current device and returns the previous one: the start of torch's `device` context. Call
 * plinth_maybe_exchange_device(previous, ...) at its end.
 *
 * @param device The device index; a negative one changes nothing.
 * @param previous Out: the device that was current; -1 if nothing was changed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API plinth_status_t plinth_exchange_device(int32_t device, int32_t *previous) PLINTH_NOEXCEPT;

/**
 * Does the same as plinth_exchange_device, but never creates a context. A device without a context becomes current
 * for plinth at once, and for CUDA when it is first used.
 *
 * @param device The device index; a negative one changes nothing.
 * @param previous Out: the device that was current; -1 if nothing was changed.
 * @return As plinth_exchange_device.
 */
PLINTH_API
plinth_status_t plinth_maybe_exchange_device(int32_t device,
                                             int32_t *previous)
PLINTH_NOEXCEPT;

/**
 * Makes the device current to whose memory a pointer belongs, and returns the previous device: the start of torch's
 * `device_of` context. Call plinth_maybe_exchange_device(previous, ...) at its end.
 *
 * @param pointer An address. If it is not in a device's memory, or there is no device, nothing changes.
 * @param previous Out: the device that was current; -1 if nothing was changed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL previous; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_exchange_device_of(const void *pointer,
                                          int32_t *previous)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*!
 * @defgroup plinth_properties Device properties
 *
 * The fixed properties of a device, as torch.cuda.get_device_properties returns them. The caller provides the struct,
 * and the library fills it.
 *
 * @{
 */

/**
 * The properties of a device. The names are torch's; sizes are in bytes.
 *
 * The struct grows at its end in newer versions, and programs that were compiled against older versions keep working:
 * set struct_size to sizeof(plinth_device_properties_t) before the call, as PLINTH_DEVICE_PROPERTIES_INIT does.
 */
typedef struct plinth_device_properties_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The name, NUL-terminated.
   */
  char name[256];
  /**
   * The UUID; all zero if the driver cannot report it (before CUDA 11.4).
   */
  uint8_t uuid[16];
  /**
   * The PCI address, such as "0000:3b:00.0", NUL-terminated.
   */
  char pci_bus_id_text[32];
  /**
   * The size of the device's memory.
   */
  uint64_t total_memory;
  /**
   * The size of the L2 cache.
   */
  uint64_t l2_cache_size;
  /**
   * Maximum shared memory per block.
   */
  uint64_t shared_memory_per_block;
  /**
   * Maximum shared memory per block if the kernel opts in.
   */
  uint64_t shared_memory_per_block_optin;
  /**
   * Shared memory per multiprocessor.
   */
  uint64_t shared_memory_per_multiprocessor;
  /**
   * The major number of the compute capability.
   */
  int32_t major;
  /**
   * The minor number of the compute capability.
   */
  int32_t minor;
  /**
   * The number of multiprocessors.
   */
  int32_t multi_processor_count;
  /**
   * Maximum resident threads per multiprocessor.
   */
  int32_t max_threads_per_multi_processor;
  /**
   * Maximum threads per block.
   */
  int32_t max_threads_per_block;
  /**
   * Threads per warp.
   */
  int32_t warp_size;
  /**
   * 32-bit registers per multiprocessor.
   */
  int32_t regs_per_multiprocessor;
  /**
   * Peak clock rate of the multiprocessors, in kHz.
   */
  int32_t clock_rate;
  /**
   * Peak clock rate of the memory, in kHz.
   */
  int32_t memory_clock_rate;
  /**
   * Width of the memory bus, in bits.
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
   * 1 if the device supports virtual memory management (separate address reservation and physical memory), else 0.
   */
  int32_t has_virtual_memory;
} plinth_device_properties_t;

/*! An initializer for a plinth_device_properties_t. */
#define PLINTH_DEVICE_PROPERTIES_INIT {sizeof(plinth_device_properties_t), {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns whether the current device computes with bfloat16: torch.cuda.is_bf16_supported.
 *
 * @param including_emulation Whether it is enough that bfloat16 is emulated, as every device does it. Otherwise the device
 *        needs compute capability 8.0.
 * @param supported Out: whether it does; false without a device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
 */
PLINTH_API
plinth_status_t plinth_is_bf16_supported(bool including_emulation,
                                         bool *supported)
PLINTH_NOEXCEPT;

/**
 * Returns whether the current device computes with TF32: torch.cuda.is_tf32_supported. As in torch, the devices are those
 * that compute with bfloat16 without emulation.
 *
 * @param supported Out: whether it does; false without a device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization except PLINTH_ERROR_NO_DEVICE.
 */
PLINTH_API
plinth_status_t plinth_is_tf32_supported(bool *supported)
PLINTH_NOEXCEPT;

/**
 * Returns the properties of a device.
 *
 * @param device The device number; -1 for the current device.
 * @param properties In: struct_size. Out: the properties, as far as struct_size reaches; struct_size is set to the
 *        number of bytes that were filled.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
 *         PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_device_properties(int32_t device,
                                             struct plinth_device_properties_t *properties)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*!
 * @defgroup plinth_sync_debug Sync debug mode
 *
 * Finds calls that make the CPU wait for a device, as torch.cuda.set_sync_debug_mode does. The mode, the callback and
 * the count of warnings hold for the whole process. The callback is called by the thread whose call waits, possibly by
 * several threads at once.
 *
 * @{
 */

/**
 * Calls wait for the device without notice. The initial mode.
 */
#define PLINTH_SYNC_DEBUG_DEFAULT 0

/**
 * The callback of plinth_set_sync_debug_callback is called for each call that waits, and the call is counted.
 */
#define PLINTH_SYNC_DEBUG_WARN 1

/**
 * Each call that would wait fails with PLINTH_ERROR_WOULD_SYNCHRONIZE before it waits, and without an effect.
 */
#define PLINTH_SYNC_DEBUG_ERROR 2

/**
 * Receives a warning and the context. The message is valid only during the call. It must not throw.
 */
typedef void (*plinth_sync_debug_callback_t)(const char *message, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets, for all threads, what happens when a call of the library makes the CPU wait for the device.
 *
 * Some calls always wait: plinth_synchronize, plinth_stream_synchronize, plinth_event_synchronize, blocking copies and
 * copies with pageable host memory, plinth_device_free, plinth_pinned_free, plinth_managed_free and
 * plinth_host_unregister. Others wait at times: an allocation for which memory is short waits for work that uses freed
 * memory; without caching each free waits; plinth_empty_cache waits up to a millisecond for work that is about to
 * complete. All are reported, by the name of the call or of the driver's. A call is reported once.
 *
 * In the error mode an allocation that would have to wait fails with PLINTH_ERROR_WOULD_SYNCHRONIZE,
 * plinth_empty_cache keeps memory that running work uses, and a call waits all the same where memory would otherwise
 * be reused too early: a free of a graph's memory for a stream that is capturing, and the destruction of a
 * communicator. Needs no device.
 *
 * @param mode PLINTH_SYNC_DEBUG_DEFAULT, _WARN or _ERROR.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
 */
PLINTH_API
plinth_status_t plinth_set_sync_debug_mode(int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Returns the sync debug mode. Needs no device.
 *
 * @param mode Out: the mode.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_get_sync_debug_mode(int32_t *mode) PLINTH_NOEXCEPT;

/**
 * Sets the callback for warnings in the mode PLINTH_SYNC_DEBUG_WARN, for all threads. Without a callback, warnings are
 * only counted: the library prints nothing. Needs no device.
 *
 * @param callback Called with the message, by the thread whose call waits, before it waits; NULL for none. It must not
 *        unwind or throw.
 * @param context Passed to the callback, which may be called by several threads at once.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_set_sync_debug_callback(plinth_sync_debug_callback_t callback,
                                               void *context)
PLINTH_NOEXCEPT;

/**
 * Returns the number of warnings since the process started, with or without a callback. Needs no device.
 *
 * @param count Out: the count.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_sync_debug_warnings(uint64_t *count) PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_DEVICE_H */
