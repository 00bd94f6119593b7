/*!
 * @defgroup plinth_pluggable_allocator Pluggable allocators
 *
 * A program can replace the caching allocator with its own functions, for all memory or for one pool:
 * torch.cuda.memory.CUDAPluggableAllocator. It can also turn caching off.
 *
 * The caller owns the handle of an allocator and destroys it. The allocator itself stays in use as long as a pool or a
 * block needs it, so its functions must stay callable. Its functions are called from any thread; see each function for
 * the locks that are held.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_PLUGGABLE_ALLOCATOR_H
#define PLINTH_PLUGGABLE_ALLOCATOR_H

#include "base.h"
#include "mem_pool.h"

/*!
 * @file plinth/pluggable_allocator.h
 * @brief Pluggable allocators.
 */

/*!
 * @addtogroup plinth_pluggable_allocator
 * @{
 */

/**
 * An allocator of the program's own: two functions and some hooks, with the signatures of torch's CUDAPluggableAllocator.
 * Opaque, and checked: a handle that was destroyed, is of another kind, or never was one is answered with
 * PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_pluggable_allocator plinth_pluggable_allocator;

/**
 * The handle of such an allocator.
 */
typedef struct plinth_pluggable_allocator *plinth_pluggable_allocator_t;

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
  void (*begin_allocate_to_pool)(int device, plinth_pool_id_t pool, void *filter);
  /**
   * Called when they do so no longer.
   */
  void (*end_allocate_to_pool)(int device, plinth_pool_id_t pool);
  /**
   * Called when a pool has lost a user.
   */
  void (*release_pool)(int device, plinth_pool_id_t pool);
} plinth_allocator_hooks_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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
                                                      plinth_pool_id_t *pool)
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_pluggable Functions for the allocators of other frameworks
 *
 * plinth's allocator in the form in which PyTorch's CUDAPluggableAllocator, CuPy's CFunctionAllocator and RMM's
 * callback resource call it. Give their names or addresses to those frameworks.
 *
 * The streams belong to the framework, and need not be registered with plinth_stream_from_external. An allocation that
 * fails returns NULL, and plinth_last_error() has the message.
 *
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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
                                             plinth_pool_id_t pool,
                                             void *filter)
PLINTH_NOEXCEPT;

/**
 * The end_allocate_to_pool_fn of CUDAPluggableAllocator: plinth_end_allocate_to_pool. Thread-safe.
 *
 * @param device The device's number.
 * @param pool The graph's pool.
 */
PLINTH_API void plinth_pluggable_end_allocate_to_pool(int device, plinth_pool_id_t pool) PLINTH_NOEXCEPT;

/**
 * The release_pool hook of CUDAPluggableAllocator, called when a graph is gone: plinth_release_pool. Thread-safe.
 *
 * @param device The device's number.
 * @param pool The graph's pool.
 */
PLINTH_API
void plinth_pluggable_release_pool(int device,
                                   plinth_pool_id_t pool)
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_PLUGGABLE_ALLOCATOR_H */
