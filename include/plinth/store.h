/*!
 * @defgroup plinth_store Stores
 *
 * A store holds small values under names, by which the processes of a job find each other before they have a
 * communicator.
 *
 * The caller owns a store and destroys it. The process that serves a TCP store must keep it open as long as others
 * need it, and answers them only while it is in a call with it. Functions that wait for other processes block the
 * calling thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_STORE_H
#define PLINTH_STORE_H

#include "base.h"

/*!
 * @file plinth/store.h
 * @brief Stores.
 */

/*!
 * @addtogroup plinth_store
 * @{
 */

/**
 * A store: small values under names, by which processes find each other before they have a communicator. Opaque, and checked
 * as every handle is.
 */
typedef struct plinth_store plinth_store;

/**
 * The handle of a store.
 */
typedef struct plinth_store *plinth_store_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens a store: a folder that all processes see, such as file:///shared/run-17, which is made if it is not there; or the
 * memory of one process that answers the others over TCP, such as tcp://10.0.0.1:29500. There is no thread: the process that
 * answers does so while it is in a call with the store, which it is while it waits for the others. Names and values are
 * seen by all who reach the folder or the port, so both belong on a network of one's own. A store is for one run: what an
 * earlier one left in a folder would be taken for this one's. Thread-safe; needs no device.
 *
 * @param address The address. Port 0 is any that is free; see plinth_store_port.
 * @param serves Whether this is the process that answers, of a TCP store. Not looked at for a folder.
 * @param timeout_milliseconds How long to try to reach the one that answers; 0 for five minutes.
 * @param store Out: the store. The caller owns it and destroys it with plinth_store_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another address; PLINTH_ERROR_TIMED_OUT if
 *         nobody answers; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_open(const char *address,
                                  bool serves,
                                  uint64_t timeout_milliseconds,
                                  plinth_store_t *store)
PLINTH_NOEXCEPT;

/**
 * Closes a store. Others lose what the process that answers has. Thread-safe, but a store must not be destroyed while
 * another thread is in a call with it.
 *
 * @param store The store; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_store_destroy(plinth_store_t store)
PLINTH_NOEXCEPT;

/**
 * Tells the port at which the process that answers listens. Thread-safe.
 *
 * @param store The store.
 * @param port Out: the port.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a store that does
 *         not listen; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_port(plinth_store_t store,
                                  int32_t *port)
PLINTH_NOEXCEPT;

/**
 * Puts a value under a name, in place of what was there. Thread-safe.
 *
 * @param store The store.
 * @param name The name: 1 to 1024 bytes.
 * @param value The value; NULL with 0 bytes.
 * @param bytes How long it is: up to a mebibyte.
 * @param timeout_milliseconds How long to wait for the one that answers; 0 for five minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong length;
 *         PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST if the one that answers is gone; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_set(plinth_store_t store,
                                 const char *name,
                                 const void *value,
                                 size_t bytes,
                                 uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Gets the value under a name, and waits until somebody sets it. Thread-safe.
 *
 * @param store The store.
 * @param name The name.
 * @param value Out: the value; not written if it has no room. NULL with a capacity of 0.
 * @param capacity How many bytes there is room for.
 * @param bytes Out: how long the value is, also where it has no room; NULL if nobody wants that.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong name, and
 *         if there is too little room; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_get(plinth_store_t store,
                                 const char *name,
                                 void *value,
                                 size_t capacity,
                                 size_t *bytes,
                                 uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Adds to the number under a name, which is 0 until somebody adds to it. Thread-safe.
 *
 * @param store The store.
 * @param name The name, of a number and not of a value that was set.
 * @param amount What is added.
 * @param sum Out: what it comes to.
 * @param timeout_milliseconds How long to wait for the one that answers; 0 for five minutes.
 * @return As plinth_store_set.
 */
PLINTH_API
plinth_status_t plinth_store_add(plinth_store_t store,
                                 const char *name,
                                 int64_t amount,
                                 int64_t *sum,
                                 uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Waits until as many processes as there are ranks have made this call with this name. A name is for one meeting.
 * Thread-safe.
 *
 * @param store The store.
 * @param name The name.
 * @param ranks How many there are.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @return As plinth_store_set; PLINTH_ERROR_TIMED_OUT says how many are missing.
 */
PLINTH_API
plinth_status_t plinth_store_barrier(plinth_store_t store,
                                     const char *name,
                                     int32_t ranks,
                                     uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Gives all ranks an id to meet by: rank 0 makes it as plinth_nccl_unique_id does, the others wait for it, and all return when
 * all have it. plinth_communicator_init_rank comes next. Thread-safe.
 *
 * @param store The store.
 * @param name A name for this meeting.
 * @param rank The number of this rank.
 * @param ranks How many there are.
 * @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @return As plinth_store_barrier; at rank 0 also as plinth_nccl_unique_id.
 */
PLINTH_API
plinth_status_t plinth_store_unique_id(plinth_store_t store,
                                       const char *name,
                                       int32_t rank,
                                       int32_t ranks,
                                       uint8_t *id,
                                       uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_STORE_H */
