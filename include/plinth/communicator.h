/*!
 * @defgroup plinth_communicator Communicators
 *
 * A communicator lets ranks exchange and reduce data. A rank is a device of this process, of another process of this
 * machine, or of another machine.
 *
 * The caller owns a communicator and destroys it; each rank destroys its own. The work is put into a stream and not
 * waited for, so its memory must stay valid until it is done. All ranks make the same calls in the same order.
 *
 * Calls that wait for other ranks block the calling thread. plinth_communicator_abort, from another thread, makes them
 * return. A group belongs to the thread that began it: either one thread makes the calls of several ranks in a group,
 * or each rank has its own thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_COMMUNICATOR_H
#define PLINTH_COMMUNICATOR_H

#include "base.h"
#include "tensor.h"

/*!
 * @file plinth/communicator.h
 * @brief Communicators.
 */

/*!
 * @addtogroup plinth_communicator
 * @{
 */

/**
 * The size in bytes of the id with which ranks find each other.
 */
#define PLINTH_UNIQUE_ID_SIZE 128

/**
 * The library chooses the engine, or the environment variable PLINTH_COMMUNICATOR_ENGINE does.
 */
#define PLINTH_ENGINE_AUTO 0

/**
 * NCCL performs the communication.
 */
#define PLINTH_ENGINE_NCCL 1

/**
 * The library's own kernels and copies perform the communication, between devices of one process. Several ranks that
 * connect by an id have PLINTH_ENGINE_SHARED instead, also in one process.
 */
#define PLINTH_ENGINE_LOCAL 2

/**
 * The library's own kernels perform the communication, between processes of one machine. The ranks of
 * plinth_communicator_init_all, and a single rank, have PLINTH_ENGINE_LOCAL instead.
 */
#define PLINTH_ENGINE_SHARED 3

/**
 * If ranks connect through NCCL, plinth_communicator_init_rank returns before all ranks are connected;
 * plinth_communicator_query reports when they are, and other calls return PLINTH_ERROR_COMMUNICATOR_NOT_READY until then.
 * If ranks connect through an id of the library's own, or if all ranks belong to one process, whatever the engine, they
 * are connected when the call returns.
 */
#define PLINTH_COMMUNICATOR_NONBLOCKING 1

/**
 * Uses NCCL in its blocking mode. Each call costs the CPU 50 to 100 microseconds less, but neither the call nor its work
 * in a stream has a timeout: if a rank never joins, the others wait forever.
 */
#define PLINTH_COMMUNICATOR_UNLIMITED 2

/**
 * One rank's communicator, for work with other ranks. Ranks are devices of this process, or other processes on this
 * machine or on others.
 *
 * The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
 * is of another kind, or that never was a handle.
 */
typedef struct plinth_communicator plinth_communicator;

/**
 * Options for the creation of a communicator.
 */
typedef struct plinth_communicator_options_t {
  /**
   * sizeof(plinth_communicator_options_t).
   */
  size_t struct_size;
  /**
   * How long calls, and their work in streams, wait for other ranks, in milliseconds; 0 for ten minutes.
   */
  uint64_t timeout_milliseconds;
  /**
   * One of the PLINTH_ENGINE_ constants.
   */
  uint32_t engine;
  /**
   * 0, or PLINTH_COMMUNICATOR_NONBLOCKING and _UNLIMITED combined with bitwise or.
   */
  uint32_t flags;
} plinth_communicator_options_t;

/*! An initializer for a plinth_communicator_options_t. */
#define PLINTH_COMMUNICATOR_OPTIONS_INIT {sizeof(plinth_communicator_options_t), 0, 0, 0}

/**
 * The handle of a communicator.
 */
typedef struct plinth_communicator *plinth_communicator_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates the communicator of one rank. Ranks find each other by an id, in this process, in other processes of this
 * machine, or on other machines.
 *
 * Each rank makes this call in a thread of its own, with the same id and number of ranks. It returns when all ranks
 * are connected, or earlier through NCCL with PLINTH_COMMUNICATOR_NONBLOCKING. Must not be called in a group.
 *
 * @param ranks The number of ranks.
 * @param id The PLINTH_UNIQUE_ID_SIZE bytes from plinth_nccl_unique_id. One process calls that function and sends
 *        the bytes to the others over any channel, such as a plinth_store_t. Each id can be used for one group of
 *        ranks only.
 * @param rank The number of this rank, starting at 0.
 * @param device The device index of this rank; -1 for the current device.
 * @param options The options; NULL for the defaults.
 * @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for numbers out of range or invalid
 *         options, and in a group; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_TIMED_OUT if not all ranks joined in
 *         time; PLINTH_ERROR_NCCL_UNAVAILABLE if NCCL is needed and not found; PLINTH_ERROR_PEER_LOST;
 *         PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_communicator_init_rank(int32_t ranks,
                                              const uint8_t *id,
                                              int32_t rank,
                                              int32_t device,
                                              const struct plinth_communicator_options_t *options,
                                              plinth_communicator_t *communicator)
PLINTH_NOEXCEPT;

/**
 * Creates the communicators of several devices of this process, one rank for each device.
 *
 * One thread can use all of them, if it makes the calls of all ranks for a collective between
 * plinth_communicator_group_start and _group_end. Alternatively each communicator is used by a thread of its own.
 *
 * @param devices The device indices, one for each rank, without duplicates.
 * @param count The number of devices.
 * @param options The options; NULL for the defaults.
 * @param communicators Out: `count` communicators. The caller owns each and destroys it with
 *        plinth_communicator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no devices, a duplicate device, and
 *         invalid options; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NCCL_UNAVAILABLE with PLINTH_ENGINE_NCCL;
 *         PLINTH_ERROR_NCCL; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_communicator_init_all(const int32_t *devices,
                                             size_t count,
                                             const struct plinth_communicator_options_t *options,
                                             plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Destroys a communicator. Each rank destroys its own.
 *
 * The communicator's work should be done: synchronize its streams first, and destroy the graphs that captured it.
 *
 * NCCL releases its memory of a communicator with the last rank of the process that is destroyed or aborted. That call
 * waits up to its communicator's timeout for the ranks of the other processes of the machine, and for the end of graphs
 * with NCCL's calls. NCCL 2.32 or newer aborts the ranks of the process then; an older one may keep their memory until the
 * other processes end. With PLINTH_COMMUNICATOR_UNLIMITED there is no limit. So processes destroy several communicators in
 * the same order.
 *
 * @param communicator The communicator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_TIMED_OUT if other ranks were not destroyed in time, or
 *         PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_NCCL, PLINTH_ERROR_SYSTEM or PLINTH_ERROR_DRIVER if a step failed: the
 *         communicator is destroyed nevertheless, as far as NCCL lets it.
 */
PLINTH_API
plinth_status_t plinth_communicator_destroy(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

/**
 * Aborts a communicator and its work, whatever the other ranks do. Ends those of its process that are destroyed already.
 * NCCL keeps memory until the graphs that captured its calls are destroyed; the call does not wait for that.
 *
 * Calls that wait in the communicator return PLINTH_ERROR_ABORTED, and so does every later call except
 * plinth_communicator_destroy. The contents of memory that the aborted work was to write are undefined. Intended for
 * a thread other than the one that waits.
 *
 * @param communicator The communicator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_communicator_abort(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

/**
 * Registers memory with all ranks of a communicator, so that collectives read and write it where it is. All ranks make
 * this call, each with memory of its own and with the same number of bytes; it waits for the other ranks.
 *
 * The memory is of the caching allocator and of the rank's device. Each rank maps the memory of all others once. Later
 * calls with the communicator do not copy messages through its buffers, if these are registered: the output of
 * plinth_communicator_all_gather and _broadcast, the input of _reduce_scatter and of _reduce, the output of _all_to_all or
 * else its input, unless it is in place, the input and the output of _all_reduce, and where _recv receives more than a
 * mebibyte. Results have the same bits as without a registration. In a collective all ranks must use registered memory of
 * the same call of this function, at the same offset; otherwise it fails with PLINTH_ERROR_RANK_MISMATCH. Short messages
 * are unaffected. If a call fails, other ranks may still write to its output until their own work on it ends.
 *
 * With PLINTH_ENGINE_NCCL the memory becomes a window of NCCL 2.28 or newer, if that of all ranks begins at a multiple of 4096
 * and is in one physical allocation; otherwise, and if the ranks cannot access each other's memory, a buffer. NCCL decides what
 * it copies then, and does not compare offsets. A call with memory that is registered in part is refused
 * (PLINTH_ERROR_INVALID_VALUE).
 *
 * The registration keeps the memory in place, as plinth_memory_registration_create does: a free is deferred until it
 * ends, and the memory cannot be put to sleep. It ends with plinth_communicator_deregister, and with the communicator.
 *
 * @param communicator The communicator, with PLINTH_ENGINE_SHARED or PLINTH_ENGINE_NCCL.
 * @param pointer The first byte of this rank's memory.
 * @param bytes The number of bytes, which may be a part of a block; the same for all ranks.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for no bytes,
 *         for more than the block has, for memory that overlaps registered memory of this communicator, and in a
 *         group; PLINTH_ERROR_RANK_MISMATCH for another number of bytes than another rank's;
 *         PLINTH_ERROR_DEVICE_MISMATCH for memory of another device; PLINTH_ERROR_INVALID_POINTER for memory that is
 *         not allocated; PLINTH_ERROR_GRAPH_ASLEEP; PLINTH_ERROR_IPC_REEXPORT for memory of another process;
 *         PLINTH_ERROR_IPC_NOT_SHAREABLE for memory that other processes cannot map;
 *         PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED; PLINTH_ERROR_SYSTEM, for example if there are too few file
 *         descriptors; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_NOT_SUPPORTED for the devices of one process;
 *         PLINTH_ERROR_NCCL_UNAVAILABLE with an NCCL older than 2.19; PLINTH_ERROR_TIMED_OUT, PLINTH_ERROR_PEER_LOST
 *         and PLINTH_ERROR_ABORTED, if another rank does not make the call; PLINTH_ERROR_DRIVER, PLINTH_ERROR_NCCL. An error
 *         of one rank is returned by all, and registers nothing; but with PLINTH_ENGINE_NCCL an error of the driver or of
 *         NCCL may be that of the rank alone. PLINTH_ERROR_COMMUNICATOR_NOT_READY.
 */
PLINTH_API
plinth_status_t plinth_communicator_register(plinth_communicator_t communicator,
                                             void *pointer,
                                             size_t bytes)
PLINTH_NOEXCEPT;

/**
 * Ends the registration of this rank's memory with a communicator. Each rank makes this call, at the same point of the
 * order of its calls; the ranks do not wait for each other.
 *
 * The call waits until the collectives that this rank has launched with the communicator are done, but not for replays of
 * graphs. plinth_graph_replay refuses graphs that have captured calls with the memory from then on (PLINTH_ERROR_ABORTED);
 * do not launch such a graph in another way.
 *
 * @param communicator The communicator.
 * @param pointer The pointer that was passed to plinth_communicator_register; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if no
 *         registered memory begins there; PLINTH_ERROR_NOT_SUPPORTED for the devices of one process; PLINTH_ERROR_NCCL;
 *         PLINTH_ERROR_TIMED_OUT if the work is not done within the communicator's timeout, after which the memory is
 *         still registered; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
 *         PLINTH_ERROR_ABORTED after an error of the communicator: its destruction ends the registration.
 */
PLINTH_API
plinth_status_t plinth_communicator_deregister(plinth_communicator_t communicator,
                                               void *pointer)
PLINTH_NOEXCEPT;

/**
 * Gets the rank of a communicator.
 *
 * @param communicator The communicator.
 * @param rank Out: the rank.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_rank(plinth_communicator_t communicator,
                                         int32_t *rank)
PLINTH_NOEXCEPT;

/**
 * Gets the number of ranks of a communicator.
 *
 * @param communicator The communicator.
 * @param size Out: the number of ranks.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_size(plinth_communicator_t communicator,
                                         int32_t *size)
PLINTH_NOEXCEPT;

/**
 * Gets the device of a communicator's own rank.
 *
 * @param communicator The communicator.
 * @param device Out: the device index.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_device(plinth_communicator_t communicator,
                                           int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Gets the engine of a communicator. The library's own engines may use NCCL for large messages.
 *
 * @param communicator The communicator.
 * @param engine Out: PLINTH_ENGINE_NCCL, _LOCAL or _SHARED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_engine(plinth_communicator_t communicator,
                                           uint32_t *engine)
PLINTH_NOEXCEPT;

/**
 * Sets how long later calls with a communicator wait for other ranks.
 *
 * The timeout also ends work in a stream, from the time when the device executes it. The communicator is unusable then;
 * the next call returns PLINTH_ERROR_TIMED_OUT with the call that waited. Replays of graphs with NCCL's work, and NCCL's
 * work with PLINTH_COMMUNICATOR_UNLIMITED, are not ended.
 *
 * @param communicator The communicator.
 * @param timeout_milliseconds The timeout in milliseconds; 0 for ten minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_set_timeout(plinth_communicator_t communicator,
                                                uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Checks a communicator for errors, such as a failed rank or a lost connection, without waiting.
 *
 * @param communicator The communicator.
 * @param ready Out: whether all ranks are connected and all requested work is in the streams.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_PEER_LOST,
 *         PLINTH_ERROR_NCCL or another error of the communicator, by the first call that detects it;
 *         PLINTH_ERROR_ABORTED by later calls: abort or destroy the communicator and create a new one.
 */
PLINTH_API
plinth_status_t plinth_communicator_query(plinth_communicator_t communicator,
                                          bool *ready)
PLINTH_NOEXCEPT;

/**
 * Waits on the CPU until all work of a stream is done, as plinth_stream_synchronize does, but with a timeout.
 *
 * The call also ends when the communicator has an error: as soon as the stream's work has ended, at most one second
 * later, and with NCCL at once. It also waits until all ranks are connected.
 *
 * @param communicator The communicator.
 * @param timeout_milliseconds The timeout in milliseconds; 0 for the communicator's own timeout.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL communicator; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_TIMED_OUT: the communicator and its work are unchanged (wait
 *         again or abort); PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids it;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures, or another thread with PLINTH_CAPTURE_GLOBAL;
 *         PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the
 *         errors of plinth_communicator_query.
 */
PLINTH_API
plinth_status_t plinth_communicator_wait(plinth_communicator_t communicator,
                                         uint64_t timeout_milliseconds,
                                         plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Releases the device memory of a communicator, and keeps its addresses. All ranks make this call.
 *
 * Waits for all work of the rank's device and for the other ranks; when it returns, all ranks have released the memory.
 * Until plinth_communicator_wake the communicator's calls fail with PLINTH_ERROR_GRAPH_ASLEEP, and so does
 * plinth_graph_replay for a graph that captured them; do not launch such a graph in another way. Messages that were sent
 * and not received are kept. A communicator that sleeps stays so.
 *
 * The ranks that plinth_communicator_init_all makes do not wait for each other, so that one thread can call for all of them:
 * each call ends the use of its rank, and that of the last rank waits for all devices and releases the memory. If that fails
 * other than by PLINTH_ERROR_NCCL, which aborts the communicator, the last rank is awake and the others are not: repeat the
 * call, or wake them.
 *
 * NCCL releases its memory from 2.30.3 on: that of PLINTH_ENGINE_NCCL, and with PLINTH_ENGINE_AUTO and PLINTH_ENGINE_SHARED
 * that for large messages, which an older NCCL keeps. Devices of one process without NCCL have no memory of their own, and
 * the call does nothing.
 *
 * @param communicator The communicator. Must not be called in a group.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE in a group, if
 *         memory is registered with a communicator of NCCL, or while a call of a rank of plinth_communicator_init_all waits
 *         in another thread; PLINTH_ERROR_NCCL_UNAVAILABLE with PLINTH_ENGINE_NCCL and an older version; PLINTH_ERROR_NCCL;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while a stream of the device captures; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync
 *         debug mode forbids the wait; PLINTH_ERROR_OUT_OF_MEMORY for host memory; PLINTH_ERROR_DRIVER. If one rank
 *         fails, all ranks return its status, and the communicator is awake, or, if some memory could not be released,
 *         asleep: repeat the call, or wake it. PLINTH_ERROR_TIMED_OUT if a rank does not make the call,
 *         PLINTH_ERROR_PEER_LOST and PLINTH_ERROR_ABORTED abort the communicator.
 */
PLINTH_API
plinth_status_t plinth_communicator_sleep(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

/**
 * Allocates the device memory of a communicator that sleeps, at the same addresses. All ranks make this call.
 *
 * The communicator continues where it was, and graphs that captured its calls can be replayed. A communicator that is
 * awake stays so. Of the ranks that plinth_communicator_init_all makes, the first call allocates the memory of all,
 * or fails alone.
 *
 * Ranks that wake NCCL cannot tell each other anything. One whose device captures, or with PLINTH_ENGINE_NCCL has no room,
 * fails alone: repeat the call there, while the other ranks wait.
 *
 * @param communicator The communicator. Must not be called in a group.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE in a group;
 *         PLINTH_ERROR_NCCL_UNAVAILABLE as plinth_communicator_sleep; PLINTH_ERROR_NCCL; PLINTH_ERROR_CAPTURE_FORBIDS with
 *         NCCL, while a stream of the device captures; PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_SYSTEM; PLINTH_ERROR_DRIVER. If one rank fails, all ranks return its status, and the communicator
 *         sleeps on: repeat the call on all ranks. PLINTH_ERROR_TIMED_OUT if a rank does not make the call,
 *         PLINTH_ERROR_PEER_LOST and PLINTH_ERROR_ABORTED abort the communicator.
 */
PLINTH_API
plinth_status_t plinth_communicator_wake(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_communicator_parts Parts of a communicator
 *
 * New communicators of the ranks of one: a split by colors, or a shrink to the ranks that remain, also after another rank
 * was lost.
 *
 * @{
 */

/**
 * A shrink leaves the communicator as it is, for all of its ranks.
 */
#define PLINTH_SHRINK_DEFAULT 0

/**
 * A shrink aborts the communicator first, as plinth_communicator_abort does.
 */
#define PLINTH_SHRINK_ABORT 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Splits the ranks of a communicator into new communicators. All ranks make this call.
 *
 * Ranks that pass the same color belong to the same new communicator. They are ordered by key, and by their old rank
 * if keys are equal. In a group, the new communicator exists when the group has ended. With PLINTH_ENGINE_SHARED it does not
 * use NCCL for large messages.
 *
 * @param communicator The communicator, which remains valid.
 * @param color The color; -1 for a rank that joins no new communicator.
 * @param key The key.
 * @param part Out: the new communicator of this rank, NULL for color -1. The caller owns it and destroys it with
 *        plinth_communicator_destroy. In a group the pointer must stay valid until the group ends.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         negative color; the errors of plinth_communicator_all_reduce; PLINTH_ERROR_NCCL_UNAVAILABLE with an NCCL
 *         older than 2.18.
 */
PLINTH_API
plinth_status_t plinth_communicator_split(plinth_communicator_t communicator,
                                          int32_t color,
                                          int32_t key,
                                          plinth_communicator_t *part)
PLINTH_NOEXCEPT;

/**
 * Makes a communicator of the ranks that remain when others are excluded. The ranks that remain make this call, all with
 * the same excluded ranks and flags; the excluded ones do not. They keep their order.
 *
 * With PLINTH_SHRINK_DEFAULT the communicator remains valid for all ranks, and its work should be done.
 *
 * With PLINTH_SHRINK_ABORT the call first aborts it for all ranks (if they met by an id of NCCL, for this rank), and with it the
 * work that waits for a rank that is gone; afterwards it can only be shrunk again or destroyed. The call may follow an error,
 * such as PLINTH_ERROR_PEER_LOST or PLINTH_ERROR_TIMED_OUT, or an abort. For ranks of PLINTH_ENGINE_NCCL that met by an id it
 * may only follow an error of work in a stream, with NCCL 2.28.7 or newer and if no graph has captured calls of the
 * communicator: not the error of a call that NCCL worked at, and no abort. NCCL also waits, without a limit, for work of other
 * communicators that is ahead of this one's in its streams: abort or shrink those first.
 *
 * In a group, the new communicator exists when the group has ended; a group with PLINTH_SHRINK_ABORT has no other call of
 * that communicator, nor of those made with it by plinth_communicator_init_all. The new communicator has this one's timeout. As
 * after a split, PLINTH_ENGINE_SHARED does not use NCCL for large messages there.
 *
 * If the call fails on one rank, it fails on all that remain, which may repeat it with the same or with more excluded ranks. If
 * they met by an id of NCCL, a failure may abort the communicator, and ranks that exclude different ones wait for each other
 * until the timeout.
 *
 * @param communicator The communicator.
 * @param excluded The excluded ranks, in any order, each once.
 * @param count The number of excluded ranks, at least one.
 * @param flags PLINTH_SHRINK_DEFAULT or PLINTH_SHRINK_ABORT.
 * @param part Out: the new communicator of this rank. The caller owns it and destroys it with plinth_communicator_destroy. In a
 *        group the pointer must stay valid until the group ends.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for no excluded
 *         ranks, for ranks that do not exist or are named twice, for this rank, and for other flags;
 *         PLINTH_ERROR_RANK_MISMATCH if another rank excludes different ones or makes another call; PLINTH_ERROR_PEER_LOST
 *         if a rank that is to remain is gone, or, with PLINTH_SHRINK_DEFAULT, an excluded one; PLINTH_ERROR_TIMED_OUT if a
 *         rank does not make the call; PLINTH_ERROR_ABORTED or the error of the communicator if it cannot shrink any more;
 *         PLINTH_ERROR_GRAPH_ASLEEP while it sleeps, except with PLINTH_SHRINK_ABORT without NCCL;
 *         PLINTH_ERROR_COMMUNICATOR_NOT_READY; PLINTH_ERROR_NCCL_UNAVAILABLE if the ranks met by an id of NCCL and it is
 *         older than 2.27; PLINTH_ERROR_NCCL; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_SYSTEM, for example if there are too
 *         few file descriptors; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_communicator_shrink(plinth_communicator_t communicator,
                                           const int32_t *excluded,
                                           size_t count,
                                           uint32_t flags,
                                           plinth_communicator_t *part)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*!
 * @defgroup plinth_communicator_work Collectives of a communicator
 *
 * What the ranks of a communicator do together: reduce, broadcast, gather, scatter, send and receive, alone or in groups.
 * Where two threads use one communicator, the program must make the order of their calls the same on all ranks.
 *
 * @{
 */

/**
 * The sum of the elements of all ranks; for bools, their logical or. The constants have NCCL's values.
 */
#define PLINTH_REDUCE_SUM 0

/**
 * The product of the elements; for bools, their logical and.
 */
#define PLINTH_REDUCE_PRODUCT 1

/**
 * The maximum of the elements; not for complex numbers.
 */
#define PLINTH_REDUCE_MAX 2

/**
 * The minimum of the elements; not for complex numbers.
 */
#define PLINTH_REDUCE_MIN 3

/**
 * The sum of the elements divided by the number of ranks; not for bools.
 */
#define PLINTH_REDUCE_AVERAGE 4

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Starts a group: plinth_communicator_group_end submits all communicator calls that this thread makes until then, as
 * one operation.
 *
 * A group lets one thread make the calls of several ranks, and lets a rank send and receive at the same time. Groups
 * can be nested. The calls in a group are not ordered among each other, except for collectives of the same
 * communicator in the same stream. With PLINTH_ENGINE_NCCL not even these are ordered.
 *
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_communicator_group_start(void)
PLINTH_NOEXCEPT;

/**
 * Ends a group. When the call returns, the work of the group is in the streams.
 *
 * If a call in the group or in a nested group failed, nothing is submitted to any communicator, and this call
 * returns the error of the first failed call. After another error, part of the work may be in the streams. The rest
 * is not submitted later, with one exception: work that NCCL was processing at a timeout may still be submitted
 * until the communicator is aborted.
 *
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if this thread has no open group; the errors of the calls in the
 *         group.
 */
PLINTH_API
plinth_status_t plinth_communicator_group_end(void)
PLINTH_NOEXCEPT;

/**
 * Cancels a group: the calls that this thread has made since its plinth_communicator_group_start are discarded, and
 * so are their errors. Call it in place of plinth_communicator_group_end, for example when the program fails in the
 * middle of a group.
 *
 * Nothing of the group is in a stream, or has reached NCCL, before the end of the outermost group. An enclosing
 * group remains as it was before the cancelled one. The outputs of plinth_communicator_split in the group are not
 * written. The other ranks are not told: if they have made their calls of the group, they wait for this rank until
 * their timeout, or until plinth_communicator_abort.
 *
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if this thread has no open group.
 */
PLINTH_API
plinth_status_t plinth_communicator_group_cancel(void)
PLINTH_NOEXCEPT;

/**
 * Reduces the elements of all ranks; each rank gets the result.
 *
 * All ranks make this call, in the same order relative to their other calls with this communicator. The call is
 * asynchronous: it adds work to the stream and does not wait for it. It may be captured. Memory must stay valid
 * until the work is done. Several threads may call at once, but then the order of their calls is undefined.
 *
 * @param communicator The communicator.
 * @param from The input of this rank: `count` elements in its device's memory.
 * @param to The output of this rank: `count` elements. The same pointer as `from` for an in-place reduction.
 * @param count The number of elements; the same at all ranks. 0 does nothing.
 * @param element The type of the elements.
 * @param op One of the PLINTH_REDUCE_ constants.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for numbers
 *         out of range, misaligned memory, unknown types, and an input and an output that overlap and are not in place;
 *         PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device; PLINTH_ERROR_RANK_MISMATCH if the calls of the
 *         ranks differ and the engine detects it;
 *         PLINTH_ERROR_TIMED_OUT if other ranks do not make the call in time; PLINTH_ERROR_PEER_LOST;
 *         PLINTH_ERROR_ABORTED; PLINTH_ERROR_NOT_SUPPORTED if the engine does not support the operation for these
 *         elements; PLINTH_ERROR_COMMUNICATOR_NOT_READY after PLINTH_COMMUNICATOR_NONBLOCKING, if not all ranks are
 *         connected; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_communicator_all_reduce(plinth_communicator_t communicator,
                                               const void *from,
                                               void *to,
                                               size_t count,
                                               DLDataType element,
                                               int32_t op,
                                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Reduces the elements of all ranks; only the root gets the result. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from The input of this rank: `count` elements.
 * @param to The output at the root: `count` elements; ignored at other ranks.
 * @param count The number of elements; the same at all ranks.
 * @param element The type of the elements.
 * @param op One of the PLINTH_REDUCE_ constants.
 * @param root The rank that gets the result.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_reduce(plinth_communicator_t communicator,
                                           const void *from,
                                           void *to,
                                           size_t count,
                                           DLDataType element,
                                           int32_t op,
                                           int32_t root,
                                           plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Copies the elements of the root to all ranks. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from The input at the root: `count` elements; ignored at other ranks.
 * @param to The output of this rank: `count` elements. At the root it may be `from`.
 * @param count The number of elements; the same at all ranks.
 * @param element The type of the elements.
 * @param root The rank whose elements are copied.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_broadcast(plinth_communicator_t communicator,
                                              const void *from,
                                              void *to,
                                              size_t count,
                                              DLDataType element,
                                              int32_t root,
                                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Gathers the elements of all ranks at every rank, in rank order. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from The input of this rank: `count` elements. For an in-place gather, this rank's own part of `to`.
 * @param to The output: `count` elements of each rank, so `count` times the number of ranks.
 * @param count The number of elements of each rank's input; the same at all ranks.
 * @param element The type of the elements.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_all_gather(plinth_communicator_t communicator,
                                               const void *from,
                                               void *to,
                                               size_t count,
                                               DLDataType element,
                                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Reduces the elements of all ranks and gives each rank its part of the result. Otherwise as
 * plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from The input of this rank: `count` elements for each rank, in rank order.
 * @param to The output: `count` elements. For an in-place operation, this rank's own part of `from`.
 * @param count The number of elements of each rank's output; the same at all ranks.
 * @param element The type of the elements.
 * @param op One of the PLINTH_REDUCE_ constants.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_reduce_scatter(plinth_communicator_t communicator,
                                                   const void *from,
                                                   void *to,
                                                   size_t count,
                                                   DLDataType element,
                                                   int32_t op,
                                                   plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Sends a different part of each rank's elements to each rank. Otherwise as plinth_communicator_all_reduce, but not
 * in place, which PLINTH_ENGINE_LOCAL and NCCL refuse (PLINTH_ERROR_INVALID_VALUE).
 *
 * @param communicator The communicator.
 * @param from The input of this rank: `count` elements for each rank, in rank order.
 * @param to The output: `count` elements of each rank, in rank order.
 * @param count The number of elements that each rank sends to each rank; the same at all ranks.
 * @param element The type of the elements.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_all_to_all(plinth_communicator_t communicator,
                                               const void *from,
                                               void *to,
                                               size_t count,
                                               DLDataType element,
                                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Sends elements to one rank, which calls plinth_communicator_recv with the same count and type.
 *
 * A rank that also receives must make both calls in a group, so that neither waits for the other. Otherwise as
 * plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from The elements to send: `count` elements.
 * @param count The number of elements.
 * @param element The type of the elements.
 * @param peer The rank that receives.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_send(plinth_communicator_t communicator,
                                         const void *from,
                                         size_t count,
                                         DLDataType element,
                                         int32_t peer,
                                         plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Receives elements that one rank sends with plinth_communicator_send.
 *
 * @param communicator The communicator.
 * @param to The memory for the received elements: `count` elements.
 * @param count The number of elements.
 * @param element The type of the elements.
 * @param peer The rank that sends.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return As plinth_communicator_all_reduce.
 */
PLINTH_API
plinth_status_t plinth_communicator_recv(plinth_communicator_t communicator,
                                         void *to,
                                         size_t count,
                                         DLDataType element,
                                         int32_t peer,
                                         plinth_stream_t stream)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_COMMUNICATOR_H */
