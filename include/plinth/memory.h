/*!
 * @defgroup plinth_memory Memory of the driver, copies and fills
 *
 * Memory that comes straight from the driver, for programs that want no cache, and copies and fills of memory of any
 * kind.
 *
 * The caller owns the memory and frees it with the function that belongs to the one that allocated it. Copies and
 * fills are asynchronous: the memory must stay valid until the stream has done them. Frees may wait for all work of
 * the device.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_MEMORY_H
#define PLINTH_MEMORY_H

#include "base.h"
#include "mem_pool.h"

/*!
 * @file plinth/memory.h
 * @brief Memory of the driver, copies and fills.
 */

/*!
 * @addtogroup plinth_memory
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_pointer Pointer attributes and managed memory
 *
 * What the library and the driver know of an address, and managed memory, which the host and all devices use at the
 * same address. Any value may be asked about: the library looks addresses up and never reads what they point to.
 *
 * @{
 */

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
  plinth_pool_id_t pool;
} plinth_pointer_attributes_t;

/*! An initializer for a plinth_pointer_attributes_t. */
#define PLINTH_POINTER_ATTRIBUTES_INIT {sizeof(plinth_pointer_attributes_t), 0, 0, 0, 0, NULL, NULL, NULL, 0, NULL, 0, {0, 0}}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_MEMORY_H */
