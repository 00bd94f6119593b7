/*!
 * @defgroup plinth_store Stores
 *
 * A store is a folder that all processes of a job can access. It holds small values under names, by which the
 * processes find each other before they have a communicator. Processes that have another channel, such as MPI, need
 * no store: they send each other the bytes of plinth_nccl_unique_id.
 *
 * The caller owns a store and destroys it; the values stay in the folder. Functions that wait for other processes
 * block the calling thread.
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
 * Opens the store in a folder that all processes can access, on one machine or on a file system that several machines
 * mount. A folder that does not exist is created for this user alone. Every key is good for one value, so use a new
 * folder for each run. Users who can read the folder can join the communicator, and users who can write to it can forge
 * values, so give no other user these rights. Needs no device.
 *
 * @param address The absolute path of the folder, such as /shared/run-17. It may begin with file://.
 * @param store Out: the store. The caller owns it and destroys it with plinth_store_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an invalid address;
 *         PLINTH_ERROR_NOT_SUPPORTED for an address of TCP; PLINTH_ERROR_SYSTEM if the folder cannot be created.
 */
PLINTH_API
plinth_status_t plinth_store_create(const char *address,
                                    plinth_store_t *store)
PLINTH_NOEXCEPT;

/**
 * Destroys a store. The folder and its values stay.
 *
 * @param store The store; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API plinth_status_t plinth_store_destroy(plinth_store_t store) PLINTH_NOEXCEPT;

/**
 * Sets the value of a key that has none. Other processes see all of the value or nothing.
 *
 * @param store The store.
 * @param name The key: 1 to 1024 bytes of UTF-8.
 * @param value The value; NULL if `bytes` is 0.
 * @param bytes Size of the value in bytes, at most 1 MiB.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong
 *         size, and if the key has a value; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_store_set(plinth_store_t store,
                                 const char *name,
                                 const void *value,
                                 size_t bytes)
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
 *         key, and if the value does not fit; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_SYSTEM, also if another process put
 *         something in the value's place that is not a file of at most 1 MiB.
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
 * @param name A key for this communicator. Each rank can use it once.
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
