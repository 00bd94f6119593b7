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
 * An allocator that the program supplies: two functions and optional hooks, with the signatures of torch's
 * CUDAPluggableAllocator.
 *
 * The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
 * is of another kind, or that never was a handle.
 */
typedef struct plinth_pluggable_allocator plinth_pluggable_allocator;

/**
 * The handle of a pluggable allocator.
 */
typedef struct plinth_pluggable_allocator *plinth_pluggable_allocator_t;

/**
 * The hooks of a pluggable allocator; NULL for a hook that it does not have. The hooks are those of torch. They are
 * called from any thread; the library holds no lock during the call.
 *
 * No hook may throw. The struct grows at its end in newer versions. PLINTH_ALLOCATOR_HOOKS_INIT sets struct_size, and no hook.
 */
typedef struct plinth_allocator_hooks_t {
  /**
   * sizeof(plinth_allocator_hooks_t) in the caller's version of the header.
   */
  size_t struct_size;
  /**
   * Called once before the first request, with the number of devices.
   */
  void (*init)(int device_count);
  /**
   * Called by plinth_empty_cache, and when an allocation fails for lack of memory.
   */
  void (*reset)(void);
  /**
   * Called by plinth_set_per_process_memory_fraction.
   */
  void (*memory_fraction)(double fraction, int device);
  /**
   * Returns the base address of the allocation that contains a pointer, and writes its size in bytes.
   */
  void *(*base_alloc)(void *pointer, size_t *size);
  /**
   * Called by plinth_record_stream. An allocator without this hook needs another way to prevent reuse of freed
   * memory that other streams still use.
   */
  void (*record_stream)(void *pointer, plinth_stream_t stream);
  /**
   * Called when requests start to be allocated from a pool. The filter is an empty std::function: any stream can
   * be concerned.
   */
  void (*begin_allocate_to_pool)(int device, plinth_pool_id_t pool, void *filter);
  /**
   * Called when requests stop being allocated from a pool.
   */
  void (*end_allocate_to_pool)(int device, plinth_pool_id_t pool);
  /**
   * Called when a pool has lost a user.
   */
  void (*release_pool)(int device, plinth_pool_id_t pool);
} plinth_allocator_hooks_t;

/*! An initializer for a plinth_allocator_hooks_t. */
#define PLINTH_ALLOCATOR_HOOKS_INIT {sizeof(plinth_allocator_hooks_t), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates an allocator from two functions of a shared library, as torch.cuda.memory.CUDAPluggableAllocator does.
 *
 * The functions are found by name. The library is loaded and is never unloaded.
 *
 * The functions are `void *alloc(size_t size, int device, cudaStream_t stream)`, which returns NULL if there is no
 * memory, and `void free(void *pointer, size_t size, int device, cudaStream_t stream)`, which receives the arguments
 * of the allocation. They are called from any thread; the library holds no lock during the call. They must not
 * throw.
 *
 * @param path The path of the library, as for dlopen; NULL for the program itself.
 * @param alloc_name The name of the function that allocates.
 * @param free_name The name of the function that frees.
 * @param allocator Out: the allocator. The caller owns it and releases it with plinth_pluggable_allocator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM if the library cannot be loaded, with the
 *         system's reason; PLINTH_ERROR_INVALID_VALUE for a name that the library does not export.
 */
PLINTH_API
plinth_status_t plinth_pluggable_allocator_create(const char *path,
                                                  const char *alloc_name,
                                                  const char *free_name,
                                                  plinth_pluggable_allocator_t *allocator)
PLINTH_NOEXCEPT;

/**
 * Sets the hooks of an allocator and replaces those that were set before.
 *
 * @param allocator The allocator.
 * @param hooks The hooks. The struct is copied; the functions must stay callable.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if
 *         struct_size was not set.
 */
PLINTH_API
plinth_status_t plinth_pluggable_allocator_set_hooks(plinth_pluggable_allocator_t allocator,
                                                     const struct plinth_allocator_hooks_t *hooks)
PLINTH_NOEXCEPT;

/**
 * Releases the caller's reference to an allocator.
 *
 * The allocator's free function still frees the memory that the allocator allocated. An allocator that is in use
 * stays in use.
 *
 * @param allocator The allocator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_pluggable_allocator_destroy(plinth_pluggable_allocator_t allocator)
PLINTH_NOEXCEPT;

/**
 * Creates a pool whose memory comes from an external allocator, as torch.cuda.MemPool(allocator) does. The caching
 * allocator requests segments from it (2 MiB; large_segment_size_mb of PLINTH_ALLOC_CONF; multiples of 2 MiB) for the
 * stream of the request, and frees them to it when the pool is destroyed or when memory runs out. The external
 * allocator is called with a lock of the pool held, and must not allocate from the caching allocator.
 *
 * @param allocator The external allocator. The pool holds a reference to it; the handle may be destroyed.
 * @param use_on_oom As in plinth_mem_pool_create.
 * @param no_split As in plinth_mem_pool_create.
 * @param pool Out: the pool's id. The caller releases it with plinth_mem_pool_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_mem_pool_create_with_allocator(plinth_pluggable_allocator_t allocator,
                                                      bool use_on_oom,
                                                      bool no_split,
                                                      plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Makes a pluggable allocator serve all requests for memory, as torch.cuda.memory.change_current_allocator does.
 *
 * Can be called once, and only before the first request for memory.
 *
 * @param allocator The allocator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_ALREADY_INITIALIZED after a
 *         request for memory, or after an earlier change; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid setting in
 *         the environment.
 */
PLINTH_API
plinth_status_t plinth_change_current_allocator(plinth_pluggable_allocator_t allocator)
PLINTH_NOEXCEPT;

/**
 * Gets the name of the active allocator backend, as torch.cuda.get_allocator_backend does.
 *
 * The names are "native", "cudaMallocAsync" and "pluggable", and plinth's own "uncached" and "debug". Needs no
 * device.
 *
 * @param backend Out: the name, which belongs to the library.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid setting in the
 *         environment.
 */
PLINTH_API
plinth_status_t plinth_get_allocator_backend(const char **backend)
PLINTH_NOEXCEPT;

/**
 * Switches the caching of memory on or off, as torch.cuda.caching_allocator_enable does.
 *
 * While caching is off, each request allocates from the driver, and each free of such memory releases it to the
 * driver, which waits for the device. Memory that was allocated earlier is freed in the way in which it was
 * allocated. Has no effect on backends other than the native one.
 *
 * @param enable Whether to cache memory; initially true.
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_caching_allocator_enable(bool enable)
PLINTH_NOEXCEPT;

/**
 * Gets whether caching is on, as set by plinth_caching_allocator_enable.
 *
 * @param enabled Out: whether it is on.
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
 * Allocates memory as plinth_caching_allocator_alloc does: the alloc_fn of torch.cuda.memory.CUDAPluggableAllocator.
 * Accepts any live stream, including streams that plinth has not seen before.
 *
 * @param size Number of bytes; 0 returns NULL. A negative size is treated as too large.
 * @param device The device number; -1 for the current device.
 * @param stream The stream, of that device; NULL for its default stream.
 * @return The memory, to be freed with plinth_free or plinth_caching_allocator_delete; NULL on failure, with the
 *         reason in plinth_last_error.
 */
PLINTH_API
void *plinth_alloc(ptrdiff_t size,
                   int device,
                   plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Frees memory as plinth_caching_allocator_delete does: the free_fn of CUDAPluggableAllocator. A pointer that does not
 * belong to the allocator is ignored, with an error in plinth_last_error.
 *
 * @param pointer The memory; NULL does nothing.
 * @param size The requested size; ignored.
 * @param device The device number; ignored.
 * @param stream The stream; ignored.
 */
PLINTH_API
void plinth_free(void *pointer,
                 ptrdiff_t size,
                 int device,
                 plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Initializes the library: the init_fn of CUDAPluggableAllocator. If there are several devices, it enables peer access
 * from each device to the memory of every other device that it can access, because PyTorch copies between devices
 * without notifying its allocator.
 *
 * @param device_count The number of devices that PyTorch sees.
 */
PLINTH_API
void plinth_pluggable_init(int device_count)
PLINTH_NOEXCEPT;

/**
 * Releases cached memory, as plinth_empty_cache does: the reset_fn of CUDAPluggableAllocator, which
 * torch.cuda.empty_cache calls.
 */
PLINTH_API void plinth_pluggable_reset(void) PLINTH_NOEXCEPT;

/**
 * Limits a device's memory, as plinth_set_per_process_memory_fraction does: the memory_fraction_fn of
 * CUDAPluggableAllocator.
 *
 * @param fraction The fraction of the device's memory, from 0 to 1.
 * @param device The device number.
 */
PLINTH_API void plinth_pluggable_memory_fraction(double fraction, int device) PLINTH_NOEXCEPT;

/**
 * Finds the block of a pointer: the base_alloc_fn of CUDAPluggableAllocator. For pointers into a block, call
 * plinth_pointer_attributes.
 *
 * @param pointer Memory of plinth_alloc.
 * @param size Out, unless NULL: the size of the block in bytes. Not written if no block of the allocator begins at the
 *        pointer.
 * @return The beginning of the block; the pointer itself if no block of the allocator begins there.
 */
PLINTH_API
void *plinth_pluggable_base_alloc(void *pointer,
                                  size_t *size)
PLINTH_NOEXCEPT;

/**
 * Records that a stream uses memory, as plinth_record_stream does, for any live stream: the record_stream_fn of
 * CUDAPluggableAllocator.
 *
 * @param pointer The memory; NULL does nothing.
 * @param stream The stream.
 */
PLINTH_API
void plinth_pluggable_record_stream(void *pointer,
                                    plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Begins allocating to a graph's pool, as plinth_begin_allocate_to_pool does: the begin_allocate_to_pool hook of
 * CUDAPluggableAllocator, which is called before a capture begins.
 *
 * @param device The device number.
 * @param pool The graph's pool, with any id: PyTorch issues it, and it never names a pool of the library. PyTorch's
 *        MempoolId_t, a pair of 64-bit numbers, has the same ABI.
 * @param filter A C++ function object that selects the streams. It is not called; all capturing streams are selected.
 */
PLINTH_API
void plinth_pluggable_begin_allocate_to_pool(int device,
                                             plinth_pool_id_t pool,
                                             void *filter)
PLINTH_NOEXCEPT;

/**
 * Ends allocating to a graph's pool: the end_allocate_to_pool_fn of CUDAPluggableAllocator. Any thread may call it.
 *
 * @param device The device number.
 * @param pool The graph's pool.
 */
PLINTH_API
void plinth_pluggable_end_allocate_to_pool(int device,
                                           plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Releases a graph's pool, as plinth_release_pool does: the release_pool hook of CUDAPluggableAllocator, which is
 * called when a graph is destroyed.
 *
 * @param device The device number.
 * @param pool The graph's pool.
 */
PLINTH_API
void plinth_pluggable_release_pool(int device,
                                   plinth_pool_id_t pool)
PLINTH_NOEXCEPT;

/**
 * Allocates memory for the calling thread's current plinth stream on a device: the malloc_func of
 * cupy.cuda.CFunctionAllocator. CuPy does not pass its own stream.
 *
 * @param param The parameter that was passed to CuPy; ignored.
 * @param size Number of bytes; 0 returns NULL.
 * @param device The device number.
 * @return The memory, or NULL on failure; see plinth_alloc.
 */
PLINTH_API void *plinth_cupy_malloc(void *param, size_t size, int device) PLINTH_NOEXCEPT;

/**
 * Frees memory: the free_func of cupy.cuda.CFunctionAllocator.
 *
 * @param param The parameter that was passed to CuPy; ignored.
 * @param pointer The memory; NULL does nothing.
 * @param device The device number; ignored.
 */
PLINTH_API void plinth_cupy_free(void *param, void *pointer, int device) PLINTH_NOEXCEPT;

/**
 * Allocates memory on the current device: the allocation callback of rmm::mr::callback_memory_resource, whose stream
 * view has the ABI of a stream.
 *
 * @param bytes Number of bytes; 0 returns NULL.
 * @param stream The stream, of the current device.
 * @param arg The argument that was passed to RMM; ignored.
 * @return The memory, or NULL on failure; see plinth_alloc.
 */
PLINTH_API
void *plinth_rmm_allocate(size_t bytes,
                          plinth_stream_t stream,
                          void *arg)
PLINTH_NOEXCEPT;

/**
 * Frees memory: the deallocation callback of rmm::mr::callback_memory_resource.
 *
 * @param pointer The memory; NULL does nothing.
 * @param bytes The requested size; ignored.
 * @param stream The stream; ignored: the block is returned to the stream that it was allocated for.
 * @param arg The argument that was passed to RMM; ignored.
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
