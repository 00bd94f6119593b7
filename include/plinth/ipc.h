/*!
 * @defgroup plinth_ipc Memory shared between processes
 *
 * Sends memory of the caching allocator to other processes, which see the same physical memory.
 *
 * The sender owns the block and may free it at any time. The memory is not reused before every receiver has closed it
 * or has ended. A receiver closes what it received, as often as it received it. Between the sender's and the
 * receiver's first use the library orders the streams; after that, the processes order their uses themselves.
 *
 * Two threads must not use the same socket at the same time.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_IPC_H
#define PLINTH_IPC_H

#include "base.h"

/*!
 * @file plinth/ipc.h
 * @brief Memory shared between processes.
 */

/*!
 * @addtogroup plinth_ipc
 * @{
 */

/**
 * The bytes of a handle of CUDA's for memory: a cudaIpcMemHandle_t.
 */
#define PLINTH_IPC_MEM_HANDLE_SIZE 64

/**
 * Memory of another process, as it is in this one.
 */
typedef struct plinth_ipc_memory_t {
  /**
   * The place that the other process named.
   */
  void *pointer;
  /**
   * The bytes from there to the end of the block that the other process had allocated.
   */
  size_t size;
  /**
   * How far that place is from the beginning of the block.
   */
  size_t offset;
  /**
   * The number of the memory's device in this process.
   */
  int32_t device;
  /**
   * 0.
   */
  int32_t reserved;
} plinth_ipc_memory_t;

/**
 * A message about memory, for a program that brings it to the other process itself.
 */
typedef struct plinth_ipc_export_t {
  /**
   * The bytes of the message.
   */
  uint8_t *bytes;
  /**
   * How many they are.
   */
  size_t size;
  /**
   * The file descriptors of the message, in order.
   */
  int32_t *descriptors;
  /**
   * How many they are.
   */
  size_t descriptor_count;
} plinth_ipc_export_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sends memory of the caching allocator to another process, through a Unix socket.
 *
 * The other process sees the same physical memory; nothing is copied. It has what the current stream of the memory's
 * device had to do to the memory when this was called: its own stream waits for that. From then on the two processes order
 * their uses themselves. The message, and then the receiver, hold the block: a free by
 * plinth_caching_allocator_delete is good at any time, but the memory is given to nobody else before every
 * receiver has closed it or has ended, however it ended. Until then the block counts as active, and no longer as allocated.
 *
 * The call may wait until the receiver takes a part of a long message out of the socket; on a socket that does not block it
 * waits only in the middle of a message. With PLINTH_IPC=wait in the environment it also waits for the device, and the
 * message names no event; so it does when 1000 events of messages may be in use already. Thread-safe, as long as no two
 * threads send through one socket.
 *
 * @param socket A connected Unix socket of any type: SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM. It stays the caller's.
 * @param pointer An address in memory that plinth_caching_allocator_alloc gave: its beginning, or any place in it.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for an address that is in no such memory; PLINTH_ERROR_IPC_REEXPORT for
 *         memory that was received itself; PLINTH_ERROR_IPC_NOT_SHAREABLE with PLINTH_IPC=0 and on a device that cannot;
 *         PLINTH_ERROR_GRAPH_ASLEEP for memory of a pool that sleeps; PLINTH_ERROR_CAPTURE_FORBIDS while the current
 *         stream of the memory's device captures; PLINTH_ERROR_INVALID_VALUE for a descriptor that is no Unix socket;
 *         PLINTH_ERROR_IPC_PEER_GONE when the other end is closed; PLINTH_ERROR_SYSTEM, as for a full socket that
 *         does not block; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode where the call waits for the device;
 *         PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_send(int32_t socket,
                                const void *pointer)
PLINTH_NOEXCEPT;

/**
 * Receives memory that another process sent with plinth_ipc_send, and maps it in this one.
 *
 * Waits for a message, on the CPU, as the socket does. Then the current stream of the memory's device waits for what the
 * sender's stream had to do to the memory; the call does not. The device is found by its UUID, whatever its number is in
 * either process. Memory that was received before and not closed is the same pointer again, which is to be closed as often.
 * Where the sender allocates without expandable segments, that is so for each device that the memory is received for: CUDA
 * opens such memory for one device, and no other can use it at that pointer.
 * The memory stays valid when the sender ends. plinth_record_stream notes further streams that use it. It cannot be sent on.
 * Thread-safe, as long as no two threads receive from one socket.
 *
 * @param socket The connected Unix socket. It stays the caller's.
 * @param device A device that is to use the memory, too, and whose current stream then waits as well; -1 for none beside
 *        the memory's own. Devices that plinth_enable_peer_access gave access to the memory's device have it here in
 *        any case. But where the sender allocates without expandable segments the device that is named here, or else the
 *        memory's own, is the only one that can use it, whatever access peers have.
 * @param memory Out: the memory. Give it back with plinth_ipc_close.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE, also when this process does not see the
 *         memory's device; PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED when `device` cannot use it; PLINTH_ERROR_INVALID_VALUE for
 *         a descriptor that is no Unix socket, for what is no message, and for a message of this very process;
 *         PLINTH_ERROR_IPC_PEER_GONE when the other end is closed or gave up in the middle; PLINTH_ERROR_SYSTEM, as for an
 *         empty socket that does not block, for a time limit of the socket's, and for too many open files;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_receive(int32_t socket,
                                   int32_t device,
                                   struct plinth_ipc_memory_t *memory)
PLINTH_NOEXCEPT;

/**
 * Makes the message that plinth_ipc_send would send, for a program that has a channel of its own: bytes to be copied, and
 * file descriptors to be passed on (SCM_RIGHTS, or inherited), which the receiver gives to plinth_ipc_import in the
 * same order.
 *
 * The message holds the block, as if it were received, until plinth_ipc_export_free. Each message is for one receiver.
 * Thread-safe.
 *
 * @param pointer As of plinth_ipc_send.
 * @param message Out: the message. Free it with plinth_ipc_export_free when it is sent.
 * @return As plinth_ipc_send, but for the errors of sockets; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_ipc_export(const void *pointer,
                                  struct plinth_ipc_export_t *message)
PLINTH_NOEXCEPT;

/**
 * Frees a message of plinth_ipc_export and closes its file descriptors. Thread-safe; needs no device.
 *
 * @param message The message, which is empty afterwards; NULL and an empty one do nothing.
 * @return PLINTH_OK.
 */
PLINTH_API plinth_status_t plinth_ipc_export_free(struct plinth_ipc_export_t *message) PLINTH_NOEXCEPT;

/**
 * Maps the memory that a message of plinth_ipc_export is about. See plinth_ipc_receive. Thread-safe.
 *
 * @param bytes The bytes of the message.
 * @param size How many they are.
 * @param descriptors The message's file descriptors as they are in this process, in order. They stay the caller's, who
 *        closes them after this call: an open one holds the block.
 * @param descriptor_count How many they are.
 * @param device As of plinth_ipc_receive.
 * @param memory Out: the memory. Give it back with plinth_ipc_close.
 * @return As plinth_ipc_receive, but for the errors of sockets; PLINTH_ERROR_SYSTEM for a number that is no open
 *         descriptor.
 */
PLINTH_API
plinth_status_t plinth_ipc_import(const uint8_t *bytes,
                                  size_t size,
                                  const int32_t *descriptors,
                                  size_t descriptor_count,
                                  int32_t device,
                                  struct plinth_ipc_memory_t *memory)
PLINTH_NOEXCEPT;

/**
 * Gives received memory back. With the last close the memory is unmapped here, and free for its own process.
 *
 * So that nobody writes there what this process still reads, the last close waits, on the CPU, for the current stream of
 * the memory's device, for those that were current at earlier closes, and for those that plinth_record_stream noted.
 * Thread-safe.
 *
 * @param pointer What plinth_ipc_receive or plinth_ipc_import gave, or any address in the block; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what was not received or was closed already;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while such a stream captures; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode
 *         where it would wait; PLINTH_ERROR_DRIVER; the errors of initialization. After an error the memory is as before.
 */
PLINTH_API
plinth_status_t plinth_ipc_close(void *pointer)
PLINTH_NOEXCEPT;

/**
 * Frees the memory that was freed while other processes held it, and is held by none any more.
 *
 * The allocator looks by itself, too: whenever a stream's memory does not suffice for a request. Waits for nothing.
 * Thread-safe.
 *
 * @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_collect(void)
PLINTH_NOEXCEPT;

/**
 * Makes CUDA's own handle of memory, a cudaIpcMemHandle_t: for programs that know nothing of plinth. Nothing is counted:
 * the memory must not be freed before every process has closed it. Thread-safe.
 *
 * @param pointer An address in memory of plinth_device_malloc, or of the caching allocator without expandable segments
 *        (PLINTH_ALLOC_CONF=expandable_segments:False).
 * @param ipc_handle Out: PLINTH_IPC_MEM_HANDLE_SIZE bytes, to be sent to the other process by any way.
 * @param offset Out: how far the pointer is from the beginning of the driver's allocation, which is what the other
 *        process gets.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER; PLINTH_ERROR_IPC_NOT_SHAREABLE for mapped
 *         memory, which has no such handle; PLINTH_ERROR_IPC_REEXPORT for another process's memory;
 *         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_mem_handle(const void *pointer,
                                      uint8_t *ipc_handle,
                                      size_t *offset)
PLINTH_NOEXCEPT;

/**
 * Opens memory of another process by CUDA's own handle. The same handle again, for the same device, gives the same pointer,
 * which is to be closed as often. Thread-safe.
 *
 * @param device The device that is to use the memory: its own, or one that can access that one; -1 for the current one. No
 *        other can use it at this pointer.
 * @param ipc_handle The PLINTH_IPC_MEM_HANDLE_SIZE bytes.
 * @param pointer Out: the beginning of the driver's allocation. Close it with plinth_ipc_close_mem_handle.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for bytes that are
 *         no handle; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER, as for a handle of this
 *         very process; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_open_mem_handle(int32_t device,
                                           const uint8_t *ipc_handle,
                                           void **pointer)
PLINTH_NOEXCEPT;

/**
 * Closes what plinth_ipc_open_mem_handle opened. As cudaIpcCloseMemHandle does, it waits for all work in this process of the
 * device that the memory was opened for. Thread-safe.
 *
 * @param pointer The pointer; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for what was not opened so; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync
 *         debug mode; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_ipc_close_mem_handle(void *pointer)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_IPC_H */
