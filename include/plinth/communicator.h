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
 * The bytes of an id that ranks meet by.
 */
#define PLINTH_UNIQUE_ID_SIZE 128

/**
 * The engine is the library's choice, or that of the environment variable PLINTH_COMMUNICATOR_ENGINE.
 */
#define PLINTH_ENGINE_AUTO 0

/**
 * NCCL carries out what ranks do together.
 */
#define PLINTH_ENGINE_NCCL 1

/**
 * The library's own kernels and copies do, between devices of one process.
 */
#define PLINTH_ENGINE_LOCAL 2

/**
 * The library's own kernels do, between processes of one machine.
 */
#define PLINTH_ENGINE_SHARED 3

/**
 * Where ranks meet through NCCL, plinth_communicator_init_rank returns before they have met; plinth_communicator_query tells
 * when they have. Ranks that meet by an id of the library's own, and by whatever engine the ranks of one process, have met
 * when it returns.
 */
#define PLINTH_COMMUNICATOR_NONBLOCKING 1

/**
 * NCCL is used in its blocking mode: each call costs the CPU some microseconds less, and has no limit of time, so that a
 * rank that never comes makes the others wait for ever.
 */
#define PLINTH_COMMUNICATOR_UNLIMITED 2

/**
 * One rank's communicator: what it takes to work together with other ranks, which are devices of this process, or other
 * processes, on this machine or others. Opaque, and checked: a handle that was destroyed, is of another kind, or never was
 * one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_communicator plinth_communicator;

/**
 * How a communicator is made.
 */
typedef struct plinth_communicator_options_t {
  /**
   * sizeof(plinth_communicator_options_t).
   */
  size_t struct_size;
  /**
   * How long ranks wait for each other, in milliseconds; 0 for ten minutes.
   */
  uint64_t timeout_milliseconds;
  /**
   * One of PLINTH_ENGINE_.
   */
  uint32_t engine;
  /**
   * 0, or PLINTH_COMMUNICATOR_NONBLOCKING and _UNLIMITED or-ed together.
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
 * Becomes one of several ranks that meet by an id: in this process, in others of this machine, or on other machines. Each
 * rank makes this call, with the same id and number of ranks, in a thread of its own; it returns when all have met, or, through
 * NCCL and with PLINTH_COMMUNICATOR_NONBLOCKING, before. Thread-safe; not in a group.
 *
 * @param ranks How many ranks there are.
 * @param id The PLINTH_UNIQUE_ID_SIZE bytes that plinth_nccl_unique_id gave in one process, and that the others got by any
 *        channel, such as a plinth_store_t. An id is for one meeting.
 * @param rank The number of this rank, from 0 on.
 * @param device The device of this rank; -1 for the current one.
 * @param options How it is made; NULL for defaults.
 * @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for wrong numbers or options, and in a group;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_TIMED_OUT if not all ranks came in time; PLINTH_ERROR_NCCL_UNAVAILABLE
 *         where NCCL is needed and not there; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
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
 * Makes the communicators of several devices of this process, a rank for each. One thread can use them all, with what all
 * ranks do together between plinth_communicator_group_start and _group_end; or each is used by a thread of its own.
 * Thread-safe.
 *
 * @param devices The devices, one for each rank; none twice.
 * @param count How many.
 * @param options How they are made; NULL for defaults.
 * @param communicators Out: so many communicators. The caller owns each and destroys it with plinth_communicator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no devices, one that is there twice, and wrong
 *         options; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NCCL_UNAVAILABLE with PLINTH_ENGINE_NCCL; PLINTH_ERROR_NCCL;
 *         PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_communicator_init_all(const int32_t *devices,
                                             size_t count,
                                             const struct plinth_communicator_options_t *options,
                                             plinth_communicator_t *communicators)
PLINTH_NOEXCEPT;

/**
 * Destroys a communicator. The work that it was given should be done: wait for the streams first. Each rank destroys its
 * own. Thread-safe, but a communicator must not be destroyed while another thread is in a call with it.
 *
 * @param communicator The communicator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL or PLINTH_ERROR_DRIVER for what went wrong on the way:
 *         the communicator is gone all the same.
 */
PLINTH_API
plinth_status_t plinth_communicator_destroy(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

/**
 * Ends what a communicator does, and it itself, whatever the other ranks do: calls that wait in it return
 * PLINTH_ERROR_ABORTED, and so does every later one but plinth_communicator_destroy. Memory that its work
 * was to write has any content. Thread-safe, and made for a thread beside the one that waits.
 *
 * @param communicator The communicator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_communicator_abort(plinth_communicator_t communicator)
PLINTH_NOEXCEPT;

/**
 * Makes communicators of the ranks of one: the ranks that give the same color are together in a new one, in the order of
 * their keys, and where those are equal in their old order. All ranks make this call. In a group, the new communicator is
 * there when the group has ended.
 *
 * @param communicator The communicator; it stays.
 * @param color The color; -1 to be in no new communicator.
 * @param key The key.
 * @param part Out: the new communicator of this rank, NULL for color -1. The caller owns it and destroys it with
 *        plinth_communicator_destroy. In a group the place must be there until the end of that.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another negative
 *         color; the errors of plinth_communicator_all_reduce; PLINTH_ERROR_NCCL_UNAVAILABLE with an NCCL before 2.18.
 */
PLINTH_API
plinth_status_t plinth_communicator_split(plinth_communicator_t communicator,
                                          int32_t color,
                                          int32_t key,
                                          plinth_communicator_t *part)
PLINTH_NOEXCEPT;

/**
 * Tells the number of a communicator's own rank.
 *
 * @param communicator The communicator.
 * @param rank Out: the number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_rank(plinth_communicator_t communicator,
                                         int32_t *rank)
PLINTH_NOEXCEPT;

/**
 * Tells how many ranks a communicator has.
 *
 * @param communicator The communicator.
 * @param size Out: how many.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_size(plinth_communicator_t communicator,
                                         int32_t *size)
PLINTH_NOEXCEPT;

/**
 * Tells the device of a communicator's own rank.
 *
 * @param communicator The communicator.
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_device(plinth_communicator_t communicator,
                                           int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Tells the engine of a communicator. One of the library's own may leave large messages to NCCL.
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
 * Sets how long calls with a communicator wait for other ranks from now on.
 *
 * @param communicator The communicator.
 * @param timeout_milliseconds How long; 0 for ten minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_communicator_set_timeout(plinth_communicator_t communicator,
                                                uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Asks for errors that a communicator came to, without waiting: another rank that failed, a connection that was lost.
 * Thread-safe.
 *
 * @param communicator The communicator.
 * @param ready Out: whether all ranks have met, and what was asked is in the streams.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_NCCL or
 *         another for what it came to, when that is seen first, and from then on PLINTH_ERROR_ABORTED: abort or destroy it,
 *         and make a new one.
 */
PLINTH_API
plinth_status_t plinth_communicator_query(plinth_communicator_t communicator,
                                          bool *ready)
PLINTH_NOEXCEPT;

/**
 * Waits on the CPU until all work of a stream is done, as plinth_stream_synchronize does, but with an end: when the time is
 * over, or as soon as the communicator comes to an error. It also waits until the ranks have met. Thread-safe.
 *
 * @param communicator The communicator.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @param timeout_milliseconds How long; 0 for the communicator's own limit.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL communicator; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_TIMED_OUT: the communicator and its work are as they were, to be waited
 *         for again or aborted; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_ILLEGAL_ADDRESS,
 *         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the errors of plinth_communicator_query.
 */
PLINTH_API
plinth_status_t plinth_communicator_wait(plinth_communicator_t communicator,
                                         plinth_stream_t stream,
                                         uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Begins a group: what this thread asks of communicators from now on is done at plinth_communicator_group_end, as one. So
 * one thread brings the parts of several ranks, and a rank sends and receives at once. Groups may be in groups. What is
 * asked in a group has no order in it, but for what all ranks of a communicator do together in one stream; and with
 * PLINTH_ENGINE_NCCL not even that.
 *
 * @return PLINTH_OK.
 */
PLINTH_API
plinth_status_t plinth_communicator_group_start(void)
PLINTH_NOEXCEPT;

/**
 * Ends a group. What was asked in it is in the streams when this returns. If a call in the group was refused, or one in a group
 * within it, nothing is asked of any communicator, and this returns the error of the first such call. After another
 * error some of what was asked may be in the streams; the rest is not done later, but what NCCL was at when the time was over
 * may be, until the communicator is aborted.
 *
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no group was begun in this thread; the errors of what was asked.
 */
PLINTH_API
plinth_status_t plinth_communicator_group_end(void)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_communicator_work Collectives of a communicator
 *
 * What the ranks of a communicator do together: reduce, broadcast, gather, scatter, send and receive. Where two
 * threads use one communicator, the program must make the order of their calls the same on all ranks.
 *
 * @{
 */

/**
 * The sum of all ranks' elements; of truths, whether any is. The numbers are NCCL's own.
 */
#define PLINTH_REDUCE_SUM 0

/**
 * Their product; of truths, whether all are.
 */
#define PLINTH_REDUCE_PRODUCT 1

/**
 * The greatest of them; complex numbers have none.
 */
#define PLINTH_REDUCE_MAX 2

/**
 * The least of them; complex numbers have none.
 */
#define PLINTH_REDUCE_MIN 3

/**
 * Their sum divided by the number of ranks; truths have none.
 */
#define PLINTH_REDUCE_AVERAGE 4

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Reduces the elements of all ranks; each rank gets the result. All ranks make this call, in the same order as their other
 * calls with this communicator. It is put into the stream and not waited for; it may be captured. Memory stays valid until
 * the work is done. Thread-safe, but the order of calls of two threads is any.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements in its device's memory.
 * @param to Where it gets the result; the same as `from` to have it in place.
 * @param count How many elements; the same at all ranks. 0 does nothing.
 * @param element The type of the elements.
 * @param op One of PLINTH_REDUCE_.
 * @param stream The stream, of the communicator's device; NULL for that device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for numbers out of
 *         range, misaligned memory, and types that are not known; PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device;
 *         PLINTH_ERROR_RANK_MISMATCH if ranks ask for different things, where that is seen; PLINTH_ERROR_TIMED_OUT if other
 *         ranks do not come; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_ABORTED; PLINTH_ERROR_NOT_SUPPORTED for what the engine
 *         cannot do with these elements; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
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
 * As plinth_communicator_all_reduce, but one rank only gets the result.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements.
 * @param to Where the root gets the result; not looked at elsewhere.
 * @param count How many elements; the same at all ranks.
 * @param element The type of the elements.
 * @param op One of PLINTH_REDUCE_.
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
 * Gives all ranks the elements of one. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from At the root, `count` elements; not looked at elsewhere.
 * @param to Where this rank gets them; at the root it may be `from`.
 * @param count How many elements; the same at all ranks.
 * @param element The type of the elements.
 * @param root The rank that gives.
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
 * Gives all ranks the elements of all, in the order of ranks. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements; in place, its own part of `to`.
 * @param to Where it gets those of all ranks: `count` times as many elements as there are ranks.
 * @param count How many elements each rank gives; the same at all ranks.
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
 * Reduces the elements of all ranks, and gives each rank its part of the result. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements for each rank, in the order of ranks.
 * @param to Where it gets its `count` elements; in place, its own part of `from`.
 * @param count How many elements each rank gets; the same at all ranks.
 * @param element The type of the elements.
 * @param op One of PLINTH_REDUCE_.
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
 * Gives each rank a part of each rank's elements. Otherwise as plinth_communicator_all_reduce; not in place.
 *
 * @param communicator The communicator.
 * @param from What this rank gives: `count` elements for each rank, in the order of ranks.
 * @param to Where it gets `count` elements of each rank, in the order of ranks.
 * @param count How many elements go from each rank to each; the same at all ranks.
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
 * Sends elements to one rank, which calls plinth_communicator_recv for as many of the same type. A rank that also receives
 * does both in a group, so that neither waits for the other. Otherwise as plinth_communicator_all_reduce.
 *
 * @param communicator The communicator.
 * @param from `count` elements.
 * @param count How many elements.
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
 * @param to Where they go.
 * @param count How many elements.
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
