/*!
 * @defgroup plinth_memory_share A device that processes share
 *
 * Several processes of a user on one device: each has a budget, the most memory that its allocator holds, and a floor. A
 * process whose request finds no memory asks the others for memory that they hold but do not use, before it waits for its
 * own work. They give back what is free above their floors, the oldest first: those that needed no more memory for the
 * longest time are asked first, and each begins with the streams that it used least recently. Memory that a stream's work may
 * still use is given back when that work is done, for which both processes wait for at most 5 s.
 *
 * A thread of each process answers as long as the device is shared. Allocations and frees that need no memory from the
 * driver do not pay for any of this. A process that ends, in whatever way, gives all its memory back.
 *
 * The functions may be called from any thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_MEMORY_SHARE_H
#define PLINTH_MEMORY_SHARE_H

#include "base.h"

/*!
 * @file plinth/memory_share.h
 * @brief A device that processes share.
 */

/*!
 * @addtogroup plinth_memory_share
 * @{
 */

/**
 * How a process shares a device.
 */
typedef struct plinth_memory_share_options_t {
  /**
   * The size of the struct in the caller.
   */
  size_t struct_size;
  /**
   * The most bytes that the allocator holds of the device; 0 for all of it. Memory that it holds already is kept.
   */
  size_t budget;
  /**
   * The bytes that the process is not asked for. They are not reserved.
   */
  size_t floor;
  /**
   * The name of the processes that share with each other: at most 64 letters, digits, '-', '_' or '.'; NULL and "" for
   * those without a name.
   */
  const char *name;
} plinth_memory_share_options_t;

/*! An initializer for a plinth_memory_share_options_t: no budget, no floor and no name. */
#define PLINTH_MEMORY_SHARE_OPTIONS_INIT {sizeof(plinth_memory_share_options_t), 0, 0, NULL}

/**
 * The state of the sharing of a device.
 */
typedef struct plinth_memory_share_info_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The number of processes that share the device, with this one; 0 if this one does not.
   */
  uint32_t processes;
  /**
   * Reserved: 0.
   */
  uint32_t reserved;
  /**
   * The budget of this process in bytes.
   */
  uint64_t budget;
  /**
   * The floor of this process in bytes.
   */
  uint64_t floor;
  /**
   * Bytes that the other processes held when they last needed more memory or gave some back.
   */
  uint64_t held_by_others;
  /**
   * How often this process asked another one.
   */
  uint64_t asked;
  /**
   * How often this process was asked.
   */
  uint64_t answered;
  /**
   * Bytes that this process gave back.
   */
  uint64_t given;
} plinth_memory_share_info_t;

/*! An initializer for a plinth_memory_share_info_t. */
#define PLINTH_MEMORY_SHARE_INFO_INIT {sizeof(plinth_memory_share_info_t), 0, 0, 0, 0, 0, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Begins to share a device with other processes of this user, or changes the budget and the floor.
 *
 * The processes find each other by the device's UUID and the name, in a file in /dev/shm, or in the folder of temporary
 * files where there is none. At most 64 processes share a device by one name.
 *
 * @param device The device index; -1 for the current device.
 * @param options The options; NULL for those of PLINTH_MEMORY_SHARE_OPTIONS_INIT.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a floor above the budget, a
 *         name that is not one, and a struct_size that was not set; PLINTH_ERROR_ALREADY_INITIALIZED if this process
 *         shares the device by another name; PLINTH_ERROR_SYSTEM if the file cannot be used or has no room for another
 *         process; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_share_enable(int32_t device,
                                           const struct plinth_memory_share_options_t *options)
PLINTH_NOEXCEPT;

/**
 * Ends the sharing of a device; a device that is not shared stays so. The process keeps what it holds, and has no budget
 * any more.
 *
 * @param device The device index; -1 for the current device.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_share_disable(int32_t device)
PLINTH_NOEXCEPT;

/**
 * Returns the state of the sharing of a device.
 *
 * @param device The device index; -1 for the current device.
 * @param result In: struct_size. Out: the state.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for a struct_size
 *         that was not set; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_memory_share_info(int32_t device,
                                         struct plinth_memory_share_info_t *result)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_MEMORY_SHARE_H */
