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
#include "tensor.h"
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
 * Allocates device memory from the driver, as cudaMalloc does. Slow; the memory is not cached.
 *
 * @param size Number of bytes; 0 returns NULL.
 * @param device The device number; -1 for the current device.
 * @param pointer Out: the memory, aligned to at least 256 bytes. The caller owns it and frees it with
 *        plinth_device_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a message
 *         that states the requested, free and total bytes; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_device_malloc(size_t size,
                                     int32_t device,
                                     void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees memory of plinth_device_malloc. Waits for all work of the memory's device, as cudaFree does.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_device_malloc did not return, or that was
 *         freed already; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
 *         PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_device_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Allocates pinned host memory from the driver, as cudaHostAlloc does. Slow; the memory is not cached. Every device
 * can access it, and copies to and from it are asynchronous.
 *
 * @param size Number of bytes; 0 returns NULL.
 * @param pointer Out: the memory, aligned to a page. The caller owns it and frees it with plinth_pinned_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_CAPTURE_FORBIDS;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_pinned_malloc(size_t size,
                                     void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees memory of plinth_pinned_malloc. May wait for the device.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_pinned_malloc did not return, or that was
 *         freed already; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
 *         PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_pinned_free(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Copies memory in a stream, between any two kinds of memory: pageable or pinned host memory, memory of the stream's
 * device, memory of another device. Asynchronous; as in CUDA, the call may wait if one side is pageable host memory.
 *
 * @param destination The destination; must stay valid until the copy is complete.
 * @param source The source; must stay valid until the copy is complete. The two ranges must not overlap.
 * @param bytes Number of bytes; 0 does nothing.
 * @param stream The stream; NULL for the default stream of the destination's device, or of the source's if the
 *        destination is in host memory.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range past the end of the address
 *         space; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE for pageable host memory if the sync
 *         debug mode forbids the wait; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memcpy(void *destination,
                              const void *source,
                              size_t bytes,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Copies memory as torch's copy_ does, in the current streams of the devices that own the memory.
 *
 * Between two devices, with or without peer access, the copy runs in the source device's current stream: that stream
 * first waits for the work in the destination device's current stream, and later work of the destination's stream
 * waits for the copy. Between host and device, and within a device, the copy runs in the device's current stream.
 * Between two ranges of host memory, the call waits for the current device's current stream.
 *
 * @param destination The destination; must stay valid until the copy is complete.
 * @param source The source; must stay valid until the copy is complete. The two ranges must not overlap.
 * @param bytes Number of bytes; 0 does nothing.
 * @param non_blocking Between host and device: false waits for the copy; true returns at once if the host memory is
 *        pinned. Ignored otherwise.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range past the end of the address
 *         space; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait; PLINTH_ERROR_CAPTURE_FORBIDS
 *         for a copy that would wait for a stream that is capturing, and for a captured one between devices without peer
 *         access, which leaves the capture valid; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_copy(void *destination,
                            const void *source,
                            size_t bytes,
                            bool non_blocking)
PLINTH_NOEXCEPT;

/**
 * Copies rows of bytes in a stream, between any two kinds of memory: cudaMemcpy2DAsync with cudaMemcpyDefault.
 * Asynchronous; as in CUDA, the call may wait if one side is pageable host memory.
 *
 * @param destination The first row of the destination; all rows must stay valid until the copy is complete.
 * @param destination_pitch Distance between the beginnings of two rows of the destination, in bytes: at least
 *        width_bytes, at most 2147483647.
 * @param source The first row of the source; all rows must stay valid until the copy is complete. No row of the source
 *        may overlap a row of the destination.
 * @param source_pitch Distance between the beginnings of two rows of the source, in bytes, with the same limits.
 * @param width_bytes Number of bytes of a row; 0 does nothing.
 * @param height Number of rows; 0 does nothing.
 * @param stream The stream; NULL for the default stream of the destination's device, or of the source's if the
 *        destination is in host memory.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a pitch out of its limits and for rows
 *         past the end of the address space; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_WOULD_SYNCHRONIZE for pageable
 *         host memory if the sync debug mode forbids the wait; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memcpy_2d(void *destination,
                                 size_t destination_pitch,
                                 const void *source,
                                 size_t source_pitch,
                                 size_t width_bytes,
                                 size_t height,
                                 plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Copies the elements of a tensor to another: torch.Tensor.copy_. The tensors may have any strides, also negative ones,
 * different element types, and be on devices or on the CPU.
 *
 * The source is broadcast to the shape of the destination: it has at most as many dimensions, and each of them, counted
 * from the last, is 1 or that of the destination. Elements are converted as torch converts them on a GPU: floating-point
 * numbers are truncated towards 0 to integers, and rounded to the nearest, ties to even, in narrower floating-point
 * types; integers that are too wide lose their high bits; complex numbers lose their imaginary part; bool is true for
 * everything but 0, also for NaN. What a float becomes in an integer type that cannot hold it is undefined in torch; here
 * it is what a GPU computes: the nearest value of a 32- or 64-bit type, whose low bits an 8- or 16-bit type keeps; for
 * NaN 0, or the highest bit alone if one of the types has 64 bits.
 *
 * Streams are those of plinth_copy: between two devices, the copy runs in the source device's current stream, after the
 * present work of the destination device's current stream and before its later work; between host and device, and
 * within a device, in the device's current stream. Elements are converted and rearranged on the device, with temporary
 * memory of the caching allocator if the tensors are not on one device; between two tensors of the CPU, the call waits for
 * the current device's current stream, and the CPU copies. Captures contain the copy; one that the CPU would wait for is
 * refused there.
 *
 * A tensor with kDLCPU memory may be in pageable or in pinned memory.
 *
 * @param destination The destination; its memory must stay valid until the copy is complete. No two of its elements may be
 *        in one place.
 * @param source The source; its memory must stay valid until the copy is complete. It may be the destination itself, but
 *        must not overlap it otherwise.
 * @param non_blocking Between host and device: false waits for the copy; true returns at once if the host memory is
 *        pinned. Ignored otherwise.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tensor that is not described correctly,
 *         for shapes that cannot be broadcast, for a destination with several elements in one place, and for dense
 *         tensors that overlap; PLINTH_ERROR_DEVICE_MISMATCH for a device type other than those of CUDA and the CPU;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode
 *         forbids the wait; PLINTH_ERROR_CAPTURE_FORBIDS if the CPU would wait for a stream that is capturing, or if devices
 *         without peer access would take part in a capture: nothing is enqueued, and the capture stays valid;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_copy_tensor(const DLTensor *destination,
                                   const DLTensor *source,
                                   bool non_blocking)
PLINTH_NOEXCEPT;

/**
 * Sets every byte of a range of memory to one value, in a stream. Asynchronous.
 *
 * @param destination The memory: of the stream's device, of a device that it has access to, or pinned. Must stay valid
 *        until the fill is complete.
 * @param value The byte.
 * @param bytes Number of bytes; 0 does nothing.
 * @param stream The stream; NULL for the default stream of the memory's device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a range past the end of the address
 *         space, and for memory that the stream's device cannot access; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memset(void *destination,
                              uint8_t value,
                              size_t bytes,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills memory with a pattern of 1, 2 or 4 bytes, in a stream. Asynchronous.
 *
 * @param destination The memory, aligned to pattern_size: of the stream's device, of a device that it has access to,
 *        or pinned. Must stay valid until the fill is complete.
 * @param pattern The pattern; read before the call returns.
 * @param pattern_size Size of the pattern in bytes: 1, 2 or 4.
 * @param bytes Number of bytes to fill, a multiple of pattern_size; 0 does nothing.
 * @param stream The stream; NULL for the default stream of the memory's device.
 * @return The statuses of plinth_memset; PLINTH_ERROR_INVALID_VALUE also for another pattern_size, and for an address
 *         or a length that is not a multiple of it.
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
 * Memory that the driver does not know: pageable host memory, or an unmapped address.
 */
#define PLINTH_MEMORY_UNREGISTERED 0

/**
 * Pinned host memory.
 */
#define PLINTH_MEMORY_HOST 1

/**
 * Device memory.
 */
#define PLINTH_MEMORY_DEVICE 2

/**
 * Managed memory, which the driver migrates between host and devices.
 */
#define PLINTH_MEMORY_MANAGED 3

/**
 * The memory was not allocated by CUDA.
 */
#define PLINTH_OWNER_NONE 0

/**
 * Allocated by the program or another library, or by plinth without a cache: plinth_device_malloc,
 * plinth_pinned_malloc and the like.
 */
#define PLINTH_OWNER_PROGRAM 1

/**
 * The caching allocator, plinth_caching_allocator_alloc.
 */
#define PLINTH_OWNER_CACHING_ALLOCATOR 2

/**
 * The allocator of pinned host memory, plinth_host_alloc.
 */
#define PLINTH_OWNER_HOST_ALLOCATOR 3

/**
 * The attributes of a pointer.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_pointer_attributes_t) before the
 * call.
 */
typedef struct plinth_pointer_attributes_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The kind of memory: one of PLINTH_MEMORY_....
   */
  int32_t kind;
  /**
   * The device that the memory belongs to; for pinned memory the device that was current when it was pinned. -1 for
   * unregistered memory.
   */
  int32_t device;
  /**
   * What allocated the memory from the driver: one of PLINTH_OWNER_....
   */
  int32_t owner;
  /**
   * 1 if the address range and the physical memory were allocated separately (virtual memory management), so that
   * physical memory can be remapped, else 0.
   */
  int32_t is_virtual;
  /**
   * The address for access by devices; NULL if devices cannot access the memory.
   */
  void *device_pointer;
  /**
   * The address for access by the host; NULL if the host cannot access the memory, and for unregistered memory.
   */
  void *host_pointer;
  /**
   * The beginning of the block that contains the pointer: a block of one of the library's allocators, else the
   * driver's allocation. NULL for unregistered memory, and for free memory of the library's allocators.
   */
  void *base;
  /**
   * Size of the block in bytes.
   */
  size_t size;
  /**
   * The beginning of the driver allocation that contains the block; NULL for unregistered memory.
   */
  void *range_base;
  /**
   * Size of the driver allocation in bytes.
   */
  size_t range_size;
  /**
   * The pool of the caching allocator that the memory belongs to; {0, 0} for the default pool, and for all other
   * memory.
   */
  plinth_pool_id_t pool;
} plinth_pointer_attributes_t;

/*! An initializer for a plinth_pointer_attributes_t. */
#define PLINTH_POINTER_ATTRIBUTES_INIT {sizeof(plinth_pointer_attributes_t), 0, 0, 0, 0, NULL, NULL, NULL, 0, NULL, 0, {0, 0}}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the attributes of a pointer: the kind of memory, its device, its addresses, its allocator and its block.
 *
 * Every value is valid: the address is looked up, not dereferenced. For memory of the caching allocator, the block is
 * found by a search through all blocks of its stream, so do not call this in a hot path.
 *
 * @param pointer An address.
 * @param attributes In: struct_size. Out: the attributes.
 * @return PLINTH_OK, also for unregistered memory; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if
 *         struct_size is too small; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_pointer_attributes(const void *pointer,
                                          struct plinth_pointer_attributes_t *attributes)
PLINTH_NOEXCEPT;

/**
 * Allocates managed memory, which the host and every device access by the same address, and which the driver migrates
 * on access. Slow; the memory is not cached.
 *
 * The driver itself would allow more managed memory than the device has, and migrate it in and out with every use.
 * This call does not oversubscribe: it fails if the device has less free memory now than requested.
 *
 * @param size Number of bytes; 0 returns NULL.
 * @param device The number of the device that the memory belongs to; -1 for the current device.
 * @param pointer Out: the memory. The caller owns it and frees it with plinth_managed_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with a message
 *         that states the requested, free and total bytes; PLINTH_ERROR_NOT_SUPPORTED for a device or a driver without
 *         managed memory; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_managed_malloc(size_t size,
                                      int32_t device,
                                      void **pointer)
PLINTH_NOEXCEPT;

/**
 * Frees memory of plinth_managed_malloc. Waits for all work of the memory's device, as cudaFree does.
 *
 * @param pointer The memory; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_managed_malloc did not return, or that was
 *         freed already; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
 *         PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
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
