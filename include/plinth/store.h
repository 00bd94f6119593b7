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
 * A store: a key-value store by which processes find each other before they have a communicator. The handle is opaque
 * and validated.
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
 * Creates a store, or connects to one. Its address is either a folder that all processes can access, such as
 * file:///shared/run-17, which is created if necessary; or a process that serves the others from its memory over TCP,
 * such as tcp://10.0.0.1:29500. The server has no thread of its own: it serves requests while it is in a call with the
 * store, and therefore also while it waits for the others. Keys and values are readable by everyone with access to the
 * folder or the port, so use a private network. Use a store for one run only: values that an earlier run left in a
 * folder would be mistaken for this run's. Needs no device.
 *
 * @param address The address. Port 0 selects any free port; see plinth_store_port.
 * @param serves Whether this process is the server of a TCP store. Ignored for a folder.
 * @param timeout_milliseconds How long to try to connect to the server; 0 for five minutes.
 * @param store Out: the store. The caller owns it and destroys it with plinth_store_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an invalid address;
 *         PLINTH_ERROR_TIMED_OUT if no server responds; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_create(const char *address,
                                    bool serves,
                                    uint64_t timeout_milliseconds,
                                    plinth_store_t *store)
PLINTH_NOEXCEPT;

/**
 * Destroys a store. If this process is the server, the others lose its contents.
 *
 * @param store The store; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API plinth_status_t plinth_store_destroy(plinth_store_t store) PLINTH_NOEXCEPT;

/**
 * Returns the port at which the server listens.
 *
 * @param store The store.
 * @param port Out: the port.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a store
 *         without a server; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_port(plinth_store_t store,
                                  int32_t *port)
PLINTH_NOEXCEPT;

/**
 * Sets the value of a key, and replaces an existing value.
 *
 * @param store The store.
 * @param name The key: 1 to 1024 bytes.
 * @param value The value; NULL if `bytes` is 0.
 * @param bytes Size of the value in bytes, at most 1 MiB.
 * @param timeout_milliseconds How long to wait for the server; 0 for five minutes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong
 *         size; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST if the server has ended; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_set(plinth_store_t store,
                                 const char *name,
                                 const void *value,
                                 size_t bytes,
                                 uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Returns the value of a key, and waits until it is set.
 *
 * @param store The store.
 * @param name The key.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @param value Out: the value; not written if it does not fit. NULL if `capacity` is 0.
 * @param capacity Size of the buffer in bytes.
 * @param bytes Out, unless NULL: the size of the value in bytes, also if it does not fit.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an invalid
 *         key, and if the value does not fit; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_get(plinth_store_t store,
                                 const char *name,
                                 uint64_t timeout_milliseconds,
                                 void *value,
                                 size_t capacity,
                                 size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Adds to the counter of a key, which is 0 initially.
 *
 * @param store The store.
 * @param name The key: of a counter, not of a value of plinth_store_set.
 * @param amount The number to add.
 * @param timeout_milliseconds How long to wait for the server; 0 for five minutes.
 * @param sum Out: the sum.
 * @return The statuses of plinth_store_set.
 */
PLINTH_API
plinth_status_t plinth_store_add(plinth_store_t store,
                                 const char *name,
                                 int64_t amount,
                                 uint64_t timeout_milliseconds,
                                 int64_t *sum)
PLINTH_NOEXCEPT;

/**
 * Waits until `ranks` processes have made this call with this key. A key can be used for one barrier only.
 *
 * @param store The store.
 * @param name The key.
 * @param ranks The number of ranks.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @return The statuses of plinth_store_set; PLINTH_ERROR_TIMED_OUT with a message that states how many ranks are
 *         missing.
 */
PLINTH_API
plinth_status_t plinth_store_barrier(plinth_store_t store,
                                     const char *name,
                                     int32_t ranks,
                                     uint64_t timeout_milliseconds)
PLINTH_NOEXCEPT;

/**
 * Distributes the unique id of a communicator to all ranks: rank 0 creates it as plinth_nccl_unique_id does, the
 * others wait for it, and all calls return when every rank has it. Call plinth_communicator_init_rank next.
 *
 * @param store The store.
 * @param name A key for this communicator.
 * @param rank The number of this rank.
 * @param ranks The number of ranks.
 * @param timeout_milliseconds How long to wait; 0 for five minutes.
 * @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
 * @return The statuses of plinth_store_barrier; at rank 0 also those of plinth_nccl_unique_id.
 */
PLINTH_API
plinth_status_t plinth_store_unique_id(plinth_store_t store,
                                       const char *name,
                                       int32_t rank,
                                       int32_t ranks,
                                       uint64_t timeout_milliseconds,
                                       uint8_t *id)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_STORE_H */
