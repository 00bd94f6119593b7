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

/*! An initializer for a plinth_device_properties_t. */
#define PLINTH_DEVICE_PROPERTIES_INIT {sizeof(plinth_device_properties_t), {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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
 * Is told of a warning. The message is valid during the call only.
 */
typedef void (*plinth_sync_debug_callback_t)(const char *message, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_DEVICE_H */
