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
 * In plinth_telemetry_t.valid: utilization is known.
 */
#define PLINTH_TELEMETRY_UTILIZATION 1

/**
 * In plinth_telemetry_t.valid: memory_usage is known.
 */
#define PLINTH_TELEMETRY_MEMORY_USAGE 2

/**
 * In plinth_telemetry_t.valid: temperature is known.
 */
#define PLINTH_TELEMETRY_TEMPERATURE 4

/**
 * In plinth_telemetry_t.valid: power_draw is known.
 */
#define PLINTH_TELEMETRY_POWER_DRAW 8

/**
 * In plinth_telemetry_t.valid: clock_rate is known.
 */
#define PLINTH_TELEMETRY_CLOCK_RATE 16

/**
 * In plinth_telemetry_t.valid: memory_clock_rate is known.
 */
#define PLINTH_TELEMETRY_MEMORY_CLOCK_RATE 32

/**
 * In plinth_telemetry_t.valid: memory_used is known.
 */
#define PLINTH_TELEMETRY_MEMORY_USED 64

/**
 * In plinth_telemetry_t.valid: energy is known.
 */
#define PLINTH_TELEMETRY_ENERGY 128

/**
 * In plinth_telemetry_t.valid: throttle_reasons is known.
 */
#define PLINTH_TELEMETRY_THROTTLE_REASONS 256

/**
 * Why a clock is slower than it could be: there is nothing to do.
 */
#define PLINTH_THROTTLE_IDLE 1

/**
 * Somebody set the clocks that applications get.
 */
#define PLINTH_THROTTLE_APPLICATION_CLOCKS 2

/**
 * The card may not take more power.
 */
#define PLINTH_THROTTLE_POWER_CAP 4

/**
 * The hardware slows down, for heat or for power.
 */
#define PLINTH_THROTTLE_HARDWARE 8

/**
 * The card keeps in step with others.
 */
#define PLINTH_THROTTLE_SYNC_BOOST 16

/**
 * It is too warm, the driver found.
 */
#define PLINTH_THROTTLE_THERMAL 32

/**
 * It is too warm, the hardware found.
 */
#define PLINTH_THROTTLE_HARDWARE_THERMAL 64

/**
 * The power supply asked for less.
 */
#define PLINTH_THROTTLE_POWER_BRAKE 128

/**
 * A display needs this clock.
 */
#define PLINTH_THROTTLE_DISPLAY 256

/**
 * What plinth_telemetry_sampler_t points at, never looked into.
 */
typedef struct plinth_telemetry_sampler plinth_telemetry_sampler;

/**
 * All readings of a device at a moment. Which of them there are, `valid` tells; the others are 0.
 */
typedef struct plinth_telemetry_t {
  /**
   * In: sizeof(plinth_telemetry_t), so that later versions may add to it. No more than that is written.
   */
  size_t struct_size;
  /**
   * When they were read, in microseconds since 1970.
   */
  uint64_t time_us;
  /**
   * PLINTH_TELEMETRY_ bits: what is known.
   */
  uint32_t valid;
  /**
   * Per cent of the time in which at least one kernel ran. The card chooses the period, from 1/6 to 1 s.
   */
  uint32_t utilization;
  /**
   * Per cent of the time in which memory was read or written; not how much of it is in use.
   */
  uint32_t memory_usage;
  /**
   * Degrees Celsius.
   */
  uint32_t temperature;
  /**
   * Milliwatts.
   */
  uint32_t power_draw;
  /**
   * Megahertz of the multiprocessors.
   */
  uint32_t clock_rate;
  /**
   * Megahertz of the memory.
   */
  uint32_t memory_clock_rate;
  /**
   * Nothing yet.
   */
  uint32_t reserved;
  /**
   * Bytes that all processes have.
   */
  uint64_t memory_used;
  /**
   * Millijoules since the driver was loaded.
   */
  uint64_t energy;
  /**
   * PLINTH_THROTTLE_ bits.
   */
  uint64_t throttle_reasons;
} plinth_telemetry_t;

/**
 * A process that computes on a device.
 */
typedef struct plinth_gpu_process_t {
  /**
   * The bytes of the device's memory that it has; UINT64_MAX where the driver does not tell.
   */
  uint64_t memory_used;
  /**
   * Its number.
   */
  uint32_t pid;
  /**
   * Nothing yet.
   */
  uint32_t reserved;
} plinth_gpu_process_t;

/**
 * A sampler of a device's telemetry.
 */
typedef struct plinth_telemetry_sampler *plinth_telemetry_sampler_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Tells for how much of the time at least one kernel ran on a device, as torch.cuda.utilization. Of the host device: how
 * much of the processors' time was used, by whomever.
 *
 * This and the calls below ask NVML, which is loaded at the first of them (libnvidia-ml.so.1; PLINTH_NVML_LIBRARY names
 * another file). A device is matched with its card by UUID or place on the bus, never by number. They take microseconds to
 * milliseconds, do not wait for the device, and are allowed while streams capture. Of the host device they tell what Linux
 * tells of the machine's processors. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param percent Out: 0 to 100, over the card's last period of 1/6 to 1 s.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE;
 *         PLINTH_ERROR_NOT_SUPPORTED for what this card, this part of a card (MIG), or this machine does not tell;
 *         PLINTH_ERROR_SYSTEM where NVML refuses; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_utilization(int32_t device,
                                   uint32_t *percent)
PLINTH_NOEXCEPT;

/**
 * Tells for how much of the time memory of a device was read or written, as torch.cuda.memory_usage: not how much of it is in
 * use. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param percent Out: 0 to 100, over the card's last period.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_memory_usage(int32_t device,
                                    uint32_t *percent)
PLINTH_NOEXCEPT;

/**
 * Tells how warm a device is now, as torch.cuda.temperature. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param celsius Out: degrees Celsius.
 * @return As plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_temperature(int32_t device, uint32_t *celsius) PLINTH_NOEXCEPT;

/**
 * Tells how much power a device takes, as torch.cuda.power_draw. Over which time that is a mean, the card decides.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param milliwatts Out: milliwatts.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_power_draw(int32_t device,
                                  uint32_t *milliwatts)
PLINTH_NOEXCEPT;

/**
 * Tells the clock rate of a device's multiprocessors now, as torch.cuda.clock_rate. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param megahertz Out: megahertz.
 * @return As plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_clock_rate(int32_t device, uint32_t *megahertz) PLINTH_NOEXCEPT;

/**
 * Tells how much memory of a device is in use, by all processes and by the driver itself, as torch.cuda.device_memory_used.
 * Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param bytes Out: bytes.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_device_memory_used(int32_t device,
                                          uint64_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Tells how much energy a device has used since its driver was loaded; the difference of two readings is what was used
 * between them. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param millijoules Out: millijoules.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_energy_used(int32_t device,
                                   uint64_t *millijoules)
PLINTH_NOEXCEPT;

/**
 * Tells why a device's clock is slower than it could be. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param reasons Out: PLINTH_THROTTLE_ bits; 0 for a clock at its best.
 * @return As plinth_utilization.
 */
PLINTH_API plinth_status_t plinth_throttle_reasons(int32_t device, uint64_t *reasons) PLINTH_NOEXCEPT;

/**
 * Puts such reasons in words, separated by commas. Thread-safe.
 *
 * @param reasons PLINTH_THROTTLE_ bits.
 * @param text Out: the words; "none" for 0. The caller owns them and frees them with plinth_string_free.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API plinth_status_t plinth_throttle_reasons_text(uint64_t reasons, char **text) PLINTH_NOEXCEPT;

/**
 * Reads all that a device tells in one call. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param readings In: its struct_size. Out: the readings; a reading that there is not leaves its bit of `valid` at 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a size that is too small for `valid`;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NVML_UNAVAILABLE; PLINTH_ERROR_SYSTEM; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_read_telemetry(int32_t device,
                                      struct plinth_telemetry_t *readings)
PLINTH_NOEXCEPT;

/**
 * Lists the processes that compute on a device, as torch.cuda.list_gpu_processes does: a line for each with its number and
 * its MiB, called MB. The first line names the card by NVML's number. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param text Out: the lines. The caller owns them and frees them with plinth_string_free.
 * @return As plinth_utilization, and PLINTH_ERROR_OUT_OF_MEMORY. Where torch puts an error into the text, this returns it.
 */
PLINTH_API
plinth_status_t plinth_list_gpu_processes(int32_t device,
                                          char **text)
PLINTH_NOEXCEPT;

/**
 * Lists the same as structs. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param processes Out: as many as there are and fit; NULL to be told their number alone.
 * @param capacity How many fit.
 * @param count Out: how many there are, which may be more than were written.
 * @return As plinth_utilization.
 */
PLINTH_API
plinth_status_t plinth_gpu_processes(int32_t device,
                                     struct plinth_gpu_process_t *processes,
                                     size_t capacity,
                                     size_t *count)
PLINTH_NOEXCEPT;

/**
 * Begins to read a device's telemetry at a fixed rate, in a thread of its own, and to keep the last readings. The thread
 * lives until plinth_telemetry_sampler_destroy. All readings together take less than a thousandth of one processor: one that takes
 * long is read less often than the others, and is not valid in the samples between. Thread-safe.
 *
 * @param device The device's number; -1 for the current one.
 * @param interval_ms Milliseconds from one reading to the next, at least 1. NVML's own values change ten times a second
 *        or less.
 * @param capacity How many readings are kept; when there are more, the oldest are lost.
 * @param made Out: the sampler. The caller owns it and destroys it.
 * @return As plinth_read_telemetry, and PLINTH_ERROR_INVALID_VALUE for an interval or a capacity of 0.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_create(int32_t device,
                                                uint32_t interval_ms,
                                                size_t capacity,
                                                plinth_telemetry_sampler_t *made)
PLINTH_NOEXCEPT;

/**
 * Takes the readings since the last call out of a sampler, the oldest first. Thread-safe.
 *
 * @param sampler The sampler.
 * @param readings Out: as many as there are and fit. Their sizes are written, not read.
 * @param capacity How many fit.
 * @param count Out: how many were written.
 * @param lost Out, unless NULL: how many were lost since the last call because nobody took them.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; once everything is taken from a sampler that
 *         could not go on: its error.
 */
PLINTH_API
plinth_status_t plinth_telemetry_sampler_take(plinth_telemetry_sampler_t sampler,
                                              struct plinth_telemetry_t *readings,
                                              size_t capacity,
                                              size_t *count,
                                              uint64_t *lost)
PLINTH_NOEXCEPT;

/**
 * Ends a sampler and its thread. Thread-safe.
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
