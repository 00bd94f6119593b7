/*!
 * @defgroup plinth_memory_registration Memory that others register
 *
 * Network adapters, drivers of other devices and communication libraries register memory: they note its physical place
 * and use it without the streams of this process. plinth_memory_uses tells what a block can be used for, and why not. A
 * registration object keeps the block's memory in its place as long as the others use it.
 *
 * A block keeps its memory while it is allocated. While it is registered, its free is deferred: it counts as active, no
 * longer as allocated, until its last registration is destroyed. A pool with registered memory cannot be put to sleep,
 * unless PLINTH_SLEEP_RELEASE_REGISTRATIONS ends the registrations first.
 *
 * The functions may be called from any thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_MEMORY_REGISTRATION_H
#define PLINTH_MEMORY_REGISTRATION_H

#include "base.h"

/*!
 * @file plinth/memory_registration.h
 * @brief Memory that others register.
 */

/*!
 * @addtogroup plinth_memory_registration
 * @{
 */

/**
 * The number of uses.
 */
#define PLINTH_MEMORY_USE_COUNT 7

/**
 * Size in bytes of a fabric handle, CUmemFabricHandle.
 */
#define PLINTH_FABRIC_HANDLE_SIZE 64

/**
 * A registration of memory. The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for an invalid one.
 */
typedef struct plinth_memory_registration plinth_memory_registration;

/**
 * What a block can be used for.
 */
typedef struct plinth_memory_uses_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The first address of the block.
   */
  void *block;
  /**
   * The size in bytes that was requested for the block.
   */
  size_t size;
  /**
   * The number of the memory's device.
   */
  int32_t device;
  /**
   * The number of physical allocations under the block.
   */
  uint32_t parts;
  /**
   * The number of registrations of the block.
   */
  uint32_t registrations;
  /**
   * The uses that the block can be put to: bit `1 << PLINTH_MEMORY_USE_...`.
   */
  uint32_t supported;
  /**
   * For each use: NULL if the block can be put to it; otherwise the reason why not, a text that is never freed.
   */
  const char *reasons[PLINTH_MEMORY_USE_COUNT];
} plinth_memory_uses_t;

/*! An initializer for a plinth_memory_uses_t. */
#define PLINTH_MEMORY_USES_INIT {sizeof(plinth_memory_uses_t), NULL, 0, 0, 0, 0, 0, {NULL}}

/**
 * Ends the use of registered memory, because the memory is about to be put to sleep: deregisters it where it was
 * registered, and closes the descriptors that were exported of it. The library holds no lock during the call. The
 * callback may destroy the registration; it must not throw.
 *
 * @param context The context of the options.
 */
typedef void (*plinth_memory_release_callback_t)(void *context);

/**
 * How memory is registered.
 */
typedef struct plinth_memory_registration_options_t {
  /**
   * The size of the struct in the caller.
   */
  size_t struct_size;
  /**
   * A name for messages; NULL for none. It is copied.
   */
  const char *name;
  /**
   * Called before the memory is put to sleep with PLINTH_SLEEP_RELEASE_REGISTRATIONS; NULL if the use of the memory
   * cannot be ended, so that its pool does not sleep.
   */
  plinth_memory_release_callback_t release;
  /**
   * Passed to `release`.
   */
  void *context;
} plinth_memory_registration_options_t;

/*! An initializer for a plinth_memory_registration_options_t: no name, and no callback. */
#define PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT {sizeof(plinth_memory_registration_options_t), NULL, NULL, NULL}

/**
 * The handle of a registration of memory.
 */
typedef struct plinth_memory_registration *plinth_memory_registration_t;

/**
 * What a registration covers.
 */
typedef struct plinth_memory_registration_info_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The first registered address.
   */
  void *pointer;
  /**
   * The number of registered bytes.
   */
  size_t size;
  /**
   * The number of the memory's device.
   */
  int32_t device;
  /**
   * The number of physical allocations under the registered bytes.
   */
  uint32_t parts;
  /**
   * 1 if the registration was ended because the memory was put to sleep; otherwise 0.
   */
  int32_t is_released;
  /**
   * Reserved: 0.
   */
  int32_t reserved;
} plinth_memory_registration_info_t;

/*! An initializer for a plinth_memory_registration_info_t. */
#define PLINTH_MEMORY_REGISTRATION_INFO_INIT {sizeof(plinth_memory_registration_info_t), NULL, 0, 0, 0, 0, 0}

/**
 * What another process imports physical memory by. The numbers are those of CUmemAllocationHandleType.
 */
typedef int32_t plinth_memory_handle_type_t;

/**
 * A physical allocation under registered memory.
 */
typedef struct plinth_memory_part_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The address at which it is mapped, which may be before the first registered address.
   */
  void *pointer;
  /**
   * Its size in bytes.
   */
  size_t size;
  /**
   * The file descriptor, with the close-on-exec flag; -1 for another handle.
   */
  int32_t descriptor;
  /**
   * Reserved: 0.
   */
  int32_t reserved;
  /**
   * The fabric handle; zeros for another handle.
   */
  uint8_t fabric[PLINTH_FABRIC_HANDLE_SIZE];
} plinth_memory_part_t;

/*! An initializer for a plinth_memory_part_t. */
#define PLINTH_MEMORY_PART_INIT {sizeof(plinth_memory_part_t), NULL, 0, -1, 0, {0}}

/**
 * A use that memory can be put to. The numbers are indices of plinth_memory_uses_t::reasons and of the bits of
 * plinth_memory_uses_t::supported.
 */
typedef int32_t plinth_memory_use_t;

/**
 * By other processes of this machine: plinth_ipc_send, plinth_ipc_export.
 */
#define PLINTH_MEMORY_USE_IPC 0

/**
 * By other processes of this machine, through CUDA's handles of 64 bytes: plinth_ipc_mem_handle, cudaIpcGetMemHandle.
 */
#define PLINTH_MEMORY_USE_IPC_HANDLE 1

/**
 * By processes of this and other machines of the same NVLink fabric: PLINTH_MEMORY_HANDLE_FABRIC.
 */
#define PLINTH_MEMORY_USE_FABRIC 2

/**
 * By drivers of other devices, such as network adapters: plinth_memory_registration_dma_buf.
 */
#define PLINTH_MEMORY_USE_DMA_BUF 3

/**
 * By network adapters that look the address up, as ibv_reg_mr does with nvidia-peermem.
 */
#define PLINTH_MEMORY_USE_GPU_DIRECT_RDMA 4

/**
 * As a buffer of an NCCL communicator: ncclCommRegister.
 */
#define PLINTH_MEMORY_USE_NCCL 5

/**
 * As a window of an NCCL communicator, like memory of ncclMemAlloc: ncclCommWindowRegister. The answer is about the whole block.
 */
#define PLINTH_MEMORY_USE_NCCL_WINDOW 6

/**
 * A file descriptor, for processes of this machine.
 */
#define PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR 1

/**
 * A fabric handle, for processes of this and other machines of the same NVLink fabric.
 */
#define PLINTH_MEMORY_HANDLE_FABRIC 8

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns what a block of the caching allocator can be used for, and why not.
 *
 * @param pointer Any address in memory of plinth_caching_allocator_alloc.
 * @param result In: struct_size. Out: the uses.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER for an address that is not in such memory;
 *         PLINTH_ERROR_IPC_REEXPORT for memory of another process; PLINTH_ERROR_IPC_NOT_SHAREABLE for memory of another
 *         allocator; PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_uses(const void *pointer,
                                   struct plinth_memory_uses_t *result)
PLINTH_NOEXCEPT;

/**
 * Registers memory: until the registration is destroyed, the memory keeps its physical place.
 *
 * Registering makes no driver call and costs about a microsecond. A part of a block may be registered, and a block several
 * times.
 *
 * @param pointer The first address, in memory of plinth_caching_allocator_alloc.
 * @param size Number of bytes, which lie in one block.
 * @param options The options; NULL for those of PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT.
 * @param registration Out: the registration. The caller owns it and destroys it with plinth_memory_registration_destroy,
 *        after the others have ended their use of the memory.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER for an address that is not in such memory, or
 *         in memory that was freed; PLINTH_ERROR_INVALID_VALUE for bytes beyond the block, and for a struct_size that was
 *         not set; PLINTH_ERROR_GRAPH_ASLEEP for memory that sleeps; PLINTH_ERROR_IPC_REEXPORT for memory of another
 *         process; PLINTH_ERROR_IPC_NOT_SHAREABLE for memory of another allocator; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_registration_create(const void *pointer,
                                                  size_t size,
                                                  const struct plinth_memory_registration_options_t *options,
                                                  plinth_memory_registration_t *registration)
PLINTH_NOEXCEPT;

/**
 * Destroys a registration. A block that was freed meanwhile, and that nothing else uses, becomes free.
 *
 * The library does not end the use of the memory by others: deregister it with them, and close the descriptors, before
 * this call. A DMA-BUF or a handle that is still open keeps the physical memory allocated but not in its place: what it
 * refers to and what the address refers to may then differ.
 *
 * @param registration The registration; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_memory_registration_destroy(plinth_memory_registration_t registration)
PLINTH_NOEXCEPT;

/**
 * Returns what a registration covers.
 *
 * @param registration The registration.
 * @param result In: struct_size. Out: what it covers.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a struct_size
 *         that was not set.
 */
PLINTH_API
plinth_status_t plinth_memory_registration_info(plinth_memory_registration_t registration,
                                                struct plinth_memory_registration_info_t *result)
PLINTH_NOEXCEPT;

/**
 * Exports registered memory as one DMA-BUF, for drivers of other devices: ibv_reg_dmabuf_mr, for example.
 *
 * The DMA-BUF is the smallest range of whole pages of the host that contains the registered bytes, however many physical
 * allocations are under them. An open descriptor keeps the physical memory allocated.
 *
 * @param registration The registration.
 * @param descriptor Out: the file descriptor, with the close-on-exec flag. The caller owns it and closes it.
 * @param offset Out: the offset of the first registered byte in the DMA-BUF.
 * @param size Out: the size of the DMA-BUF in bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_IPC_NOT_SHAREABLE if the device
 *         or the memory does not support it, with the reason; PLINTH_ERROR_GRAPH_ASLEEP if the registration was ended;
 *         PLINTH_ERROR_NOT_SUPPORTED if the driver is older than CUDA 11.7; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_registration_dma_buf(plinth_memory_registration_t registration,
                                                   int32_t *descriptor,
                                                   size_t *offset,
                                                   size_t *size)
PLINTH_NOEXCEPT;

/**
 * Exports one of the physical allocations under registered memory, for cuMemImportFromShareableHandle in another process.
 *
 * @param registration The registration.
 * @param index The index of the allocation, from 0 to plinth_memory_registration_info_t::parts - 1, in the order of their
 *        addresses.
 * @param handle_type Which handle to export.
 * @param part In: struct_size. Out: the allocation. The caller closes a descriptor; a fabric handle keeps nothing
 *        allocated.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an index that
 *         does not exist, an unknown handle type, and a struct_size that was not set; PLINTH_ERROR_IPC_NOT_SHAREABLE if
 *         the memory has no such handle, with the reason; PLINTH_ERROR_GRAPH_ASLEEP if the registration was ended;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_registration_part(plinth_memory_registration_t registration,
                                                uint32_t index,
                                                plinth_memory_handle_type_t handle_type,
                                                struct plinth_memory_part_t *part)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_MEMORY_REGISTRATION_H */
