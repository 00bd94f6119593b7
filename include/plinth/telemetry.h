/*!
 * @defgroup plinth_telemetry Telemetry
 *
 * What a device is doing now: utilization, temperature, power, clocks, energy and processes, as torch.cuda.utilization
 * and its siblings return them. GPUs are read through NVML, and the host device through Linux.
 *
 * The caller provides the structs. A text that a function returns is the caller's, who frees it with
 * plinth_string_free. The caller owns a sampler, which has a thread of its own, and destroys it. No function waits for
 * a device, and all are allowed during captures.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_TELEMETRY_H
#define PLINTH_TELEMETRY_H

#include "base.h"

/*!
 * @file plinth/telemetry.h
 * @brief Telemetry.
 */

/*!
 * @addtogroup plinth_telemetry
 * @{
 */

/**
 * Bit of plinth_telemetry_t.valid: `utilization` is valid.
 */
#define PLINTH_TELEMETRY_UTILIZATION 1

/**
 * Bit of plinth_telemetry_t.valid: `memory_usage` is valid.
 */
#define PLINTH_TELEMETRY_MEMORY_USAGE 2

/**
 * Bit of plinth_telemetry_t.valid: `temperature` is valid.
 */
#define PLINTH_TELEMETRY_TEMPERATURE 4

/**
 * Bit of plinth_telemetry_t.valid: `power_draw` is valid.
 */
#define PLINTH_TELEMETRY_POWER_DRAW 8

/**
 * Bit of plinth_telemetry_t.valid: `clock_rate` is valid.
 */
#define PLINTH_TELEMETRY_CLOCK_RATE 16

/**
 * Bit of plinth_telemetry_t.valid: `memory_clock_rate` is valid.
 */
#define PLINTH_TELEMETRY_MEMORY_CLOCK_RATE 32

/**
 * Bit of plinth_telemetry_t.valid: `memory_used` is valid.
 */
#define PLINTH_TELEMETRY_MEMORY_USED 64

/**
 * Bit of plinth_telemetry_t.valid: `energy` is valid.
 */
#define PLINTH_TELEMETRY_ENERGY 128

/**
 * Bit of plinth_telemetry_t.valid: `throttle_reasons` is valid.
 */
#define PLINTH_TELEMETRY_THROTTLE_REASONS 256

/**
 * Throttle reason: the GPU is idle.
 */
#define PLINTH_THROTTLE_IDLE 1

/**
 * Throttle reason: the application clock setting limits the clocks.
 */
#define PLINTH_THROTTLE_APPLICATION_CLOCKS 2

/**
 * Throttle reason: the power limit.
 */
#define PLINTH_THROTTLE_POWER_CAP 4

/**
 * Throttle reason: hardware slowdown, because of temperature or power.
 */
#define PLINTH_THROTTLE_HARDWARE 8

/**
 * Throttle reason: the clocks are synchronized with those of other GPUs (sync boost).
 */
#define PLINTH_THROTTLE_SYNC_BOOST 16

/**
 * Throttle reason: the driver reduces the clocks because of the temperature.
 */
#define PLINTH_THROTTLE_THERMAL 32

/**
 * Throttle reason: the hardware reduces the clocks because of the temperature.
 */
#define PLINTH_THROTTLE_HARDWARE_THERMAL 64

/**
 * Throttle reason: the power supply asserted the power brake.
 */
#define PLINTH_THROTTLE_POWER_BRAKE 128

/**
 * Throttle reason: a display requires this clock.
 */
#define PLINTH_THROTTLE_DISPLAY 256

/**
 * The opaque type behind plinth_telemetry_sampler_t.
 */
typedef struct plinth_telemetry_sampler plinth_telemetry_sampler;

/**
 * All readings of a device at one time. `valid` states which readings are available; the others are 0.
 */
typedef struct plinth_telemetry_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * Time of the readings, in microseconds since 1970.
   */
  uint64_t time_us;
  /**
   * PLINTH_TELEMETRY_ bits of the valid readings.
   */
  uint32_t valid;
  /**
   * Percentage of time in which at least one kernel ran. The GPU chooses the sample period, from 1/6 to 1 s.
   */
  uint32_t utilization;
  /**
   * Percentage of time in which memory was read or written; not the fraction of memory in use.
   */
  uint32_t memory_usage;
  /**
   * Temperature in degrees Celsius.
   */
  uint32_t temperature;
  /**
   * Power draw in milliwatts.
   */
  uint32_t power_draw;
  /**
   * Clock rate of the multiprocessors, in MHz.
   */
  uint32_t clock_rate;
  /**
   * Clock rate of the memory, in MHz.
   */
  uint32_t memory_clock_rate;
  /**
   * Reserved: 0.
   */
  uint32_t reserved;
  /**
   * Memory in use by all processes, in bytes.
   */
  uint64_t memory_used;
  /**
   * Energy in millijoules since the driver was loaded.
   */
  uint64_t energy;
  /**
   * PLINTH_THROTTLE_ bits of the throttle reasons.
   */
  uint64_t throttle_reasons;
} plinth_telemetry_t;

/*! An initializer for a plinth_telemetry_t. */
#define PLINTH_TELEMETRY_INIT {sizeof(plinth_telemetry_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * A process that has a compute context on a device.
 */
typedef struct plinth_gpu_process_t {
  /**
   * The size of the struct in the library's version.
   */
  size_t struct_size;
  /**
   * The process's memory on the device in bytes; UINT64_MAX if the driver does not report it.
   */
  uint64_t memory_used;
  /**
   * The process id.
   */
  uint32_t pid;
  /**
   * Reserved: 0.
   */
  uint32_t reserved;
} plinth_gpu_process_t;

/*! An initializer for a plinth_gpu_process_t. */
#define PLINTH_GPU_PROCESS_INIT {sizeof(plinth_gpu_process_t), 0, 0, 0}

/**
 * Receives a process, which is valid during the call, and the context. It must not throw.
 */
typedef void (*plinth_gpu_process_callback_t)(const struct plinth_gpu_process_t *process, void *context);

/**
 * A sampler of a device's telemetry.
 */
typedef struct plinth_telemetry_sampler *plinth_telemetry_sampler_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the percentage of time in which at least one kernel ran on a device, as torch.cuda.utilization. For the host
 * device: the utilization of the machine's processors by all processes.
 *
 * This and the following calls read NVML, which is loaded at the first of them (libnvidia-ml.so.1; PLINTH_NVML_LIBRARY
 * names another file). A device is matched with its card by UUID or PCI address, never by number. The calls take
 * microseconds to milliseconds, do not wait for the device, and may be called while streams capture. For the host
 * device they return what Linux reports of the machine's processors.
 *
 * @param device The device number; -1 for the current device.
 * @param percent Out: 0 to 100, over the card's last sample period of 1/6 to 1 s.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE;
 *         PLINTH_ERROR_NOT_SUPPORTED if this card, MIG instance or machine does not report the reading;
 *         PLINTH_ERROR_SYSTEM if NVML denies permission; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_utilization(int32_t device,
                                   uint32_t *percent)
PLINTH_NOEXCEPT;

/**
 * Returns the percentage of time in which memory of a device was read or written, as torch.cuda.memory_usage; not the
 * fraction of memory in use.
 *
 * @param device The device number; -1 for the current device.
 * @param percent Out: 0 to 100, over the card's last sample period.
 * @return The statuses of plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_memory_usage(int32_t device,
                                    uint32_t *percent)
PLINTH_NOEXCEPT;

/**
 * Returns the current temperature of a device, as torch.cuda.temperature.
 *
 * @param device The device number; -1 for the current device.
 * @param celsius Out: degrees Celsius.
 * @return The statuses of plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_temperature(int32_t device, uint32_t *celsius) PLINTH_NOEXCEPT;

/**
 * Returns the power draw of a device, as torch.cuda.power_draw. The card decides over which time it is averaged.
 *
 * @param device The device number; -1 for the current device.
 * @param milliwatts Out: the power in milliwatts.
 * @return The statuses of plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_power_draw(int32_t device,
                                  uint32_t *milliwatts)
PLINTH_NOEXCEPT;

/**
 * Returns the current clock rate of a device's multiprocessors, as torch.cuda.clock_rate.
 *
 * @param device The device number; -1 for the current device.
 * @param megahertz Out: the clock rate in MHz.
 * @return The statuses of plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_clock_rate(int32_t device, uint32_t *megahertz) PLINTH_NOEXCEPT;

/**
 * Returns how much memory of a device is in use by all processes and by the driver itself, as
 * torch.cuda.device_memory_used.
 *
 * @param device The device number; -1 for the current device.
 * @param bytes Out: the number of bytes.
 * @return The statuses of plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_device_memory_used(int32_t device, uint64_t *bytes) PLINTH_NOEXCEPT;

/**
 * Returns the energy that a device has used since its driver was loaded. Subtract two readings to measure a period.
 *
 * @param device The device number; -1 for the current device.
 * @param millijoules Out: the energy in millijoules.
 * @return The statuses of plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_energy_used(int32_t device,
                                   uint64_t *millijoules)
PLINTH_NOEXCEPT;

/**
 * Returns the reasons why a device's clocks are below their maximum.
 *
 * @param device The device number; -1 for the current device.
 * @param reasons Out: PLINTH_THROTTLE_ bits; 0 if the clocks are not reduced.
 * @return The statuses of plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_throttle_reasons(int32_t device, uint64_t *reasons) PLINTH_NOEXCEPT;

/**
 * Describes throttle reasons as text, separated by commas.
 *
 * @param reasons PLINTH_THROTTLE_ bits.
 * @param text Out: the text; "none" for 0. The caller owns it and frees it with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API plinth_status_t plinth_throttle_reasons_text(uint64_t reasons, char **text) PLINTH_NOEXCEPT;

/**
 * Reads all available telemetry of a device in one call.
 *
 * @param device The device number; -1 for the current device.
 * @param readings In: struct_size. Out: the readings; the bits of `valid` for unavailable readings are 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE if struct_size was not set;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE; PLINTH_ERROR_SYSTEM;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_read_telemetry(int32_t device,
                                      struct plinth_telemetry_t *readings)
PLINTH_NOEXCEPT;

/**
 * Lists the processes with a compute context on a device as text, as torch.cuda.list_gpu_processes does: one line per
 * process with its id and its memory in MiB (labelled MB). The first line names the card by its NVML index.
 *
 * @param device The device number; -1 for the current device.
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return The statuses of plinth_utilization, and PLINTH_ERROR_OUT_OF_MEMORY. Errors are returned as statuses; torch
 *         writes some of them into the text.
 */
PLINTH_API
plinth_status_t plinth_list_gpu_processes(int32_t device,
                                          char **text)
PLINTH_NOEXCEPT;

/**
 * Passes the processes with a compute context on a device to a callback one by one.
 *
 * @param device The device number; -1 for the current device.
 * @param callback Called for each process, in the calling thread; it may call the library.
 * @param context Passed to the callback; the library does not dereference it.
 * @return The statuses of plinth_utilization; PLINTH_ERROR_NULL_POINTER if the callback is NULL.
 */
PLINTH_API
plinth_status_t plinth_gpu_processes_each(int32_t device,
                                          plinth_gpu_process_callback_t callback,
                                          void *context)
PLINTH_NOEXCEPT;

/**
 * Starts a thread that reads a device's telemetry at a fixed rate and keeps the latest readings. The thread runs until
 * plinth_telemetry_sampler_destroy. All readings together take less than a thousandth of one processor: slow readings
 * are taken less often, and are not valid in the samples in between. The times of the samples ascend, even if the
 * system's time is set; a thread that the system delays skips samples.
 *
 * @param device The device number; -1 for the current device.
 * @param interval_ms Interval between samples in milliseconds, at least 1. NVML's own values change ten times per
 *        second or less.
 * @param capacity The number of samples that are kept; when it is exceeded, the oldest are dropped.
 * @param made Out: the sampler. The caller owns it and destroys it with plinth_telemetry_sampler_destroy.
 * @return The statuses of plinth_read_telemetry, and PLINTH_ERROR_INVALID_VALUE for an interval or a capacity of 0.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_create(int32_t device,
                                                uint32_t interval_ms,
                                                size_t capacity,
                                                plinth_telemetry_sampler_t *made)
PLINTH_NOEXCEPT;

/**
 * Removes the samples since the last call from a sampler, the oldest first, and returns them.
 *
 * @param sampler The sampler.
 * @param readings In: struct_size of the first element. Out: up to `capacity` samples.
 * @param capacity The number of elements that `readings` has room for.
 * @param count Out: the number of samples that were written.
 * @param lost Out, unless NULL: the number of samples that were dropped since the last call because the capacity was
 *        exceeded.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if struct_size was not
 *         set. If the sampler's thread failed, its error is returned after all samples were taken.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_take(plinth_telemetry_sampler_t sampler,
                                              struct plinth_telemetry_t *readings,
                                              size_t capacity,
                                              size_t *count,
                                              uint64_t *lost)
PLINTH_NOEXCEPT;

/**
 * Stops a sampler's thread and destroys the sampler.
 *
 * @param sampler The sampler; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_destroy(plinth_telemetry_sampler_t sampler)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_TELEMETRY_H */
