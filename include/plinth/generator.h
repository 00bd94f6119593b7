/*!
 * @defgroup plinth_generator Random number generators
 *
 * A generator is a seed and an offset, from which Philox4x32-10 makes numbers: torch.Generator of a CUDA device. Each
 * device has a default generator. NULL stands for the default generator of the current device, or of a tensor's device
 * where there is a tensor.
 *
 * The default generators belong to the library. The caller owns every other generator and destroys it; graphs that use
 * it keep its state. Threads may share a generator: each call takes its own numbers, in the order of the calls.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_GENERATOR_H
#define PLINTH_GENERATOR_H

#include "base.h"

/*!
 * @file plinth/generator.h
 * @brief Random number generators.
 */

/*!
 * @addtogroup plinth_generator
 * @{
 */

#if !defined(PLINTH_PHILOX_STATE_T)
/*! Defined when plinth_philox_state_t is declared, here or by plinth_philox.h. */
#define PLINTH_PHILOX_STATE_T
/*! The random state for a kernel: a seed and an offset, or, in a capture, the addresses from which each replay reads
 *  them. plinth_philox.cuh has the functions that use it in kernels. */
typedef struct plinth_philox_state_t {
  /*! The seed; in a capture its address in device memory. */
  uint64_t seed;
  /*! The number of 32-bit numbers that each subsequence has drawn; in a capture the address of that number. */
  uint64_t offset;
  /*! In a capture, a number to add to the offset. */
  uint64_t graph_offset;
  /*! 1 in a capture, else 0. */
  uint32_t captured;
  /*! Reserved: 0. */
  uint32_t reserved;
} plinth_philox_state_t;
#endif

/**
 * The size in bytes of a generator's state: the seed, then the offset, each as a little-endian 64-bit integer, as in
 * PyTorch.
 */
#define PLINTH_RNG_STATE_SIZE 16

/**
 * A generator of random numbers: Philox4x32-10 with a seed and an offset.
 *
 * The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
 * is of another kind, or that never was a handle.
 */
typedef struct plinth_generator plinth_generator;

/**
 * The handle of a generator. As an argument, NULL means the default generator of the device.
 */
typedef struct plinth_generator *plinth_generator_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Seeds the current device's default generator and sets its offset to 0.
 *
 * Before the library is initialized, the seed is stored and applied at initialization, to the device that is current
 * then. So the call does not fail on a machine without a GPU.
 *
 * @param seed The seed.
 * @return PLINTH_OK; PLINTH_ERROR_CAPTURE_FORBIDS if the thread's current stream captures;
 *         PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN.
 */
PLINTH_API
plinth_status_t plinth_manual_seed(uint64_t seed)
PLINTH_NOEXCEPT;

/**
 * Seeds the default generators of all devices, as plinth_manual_seed does for one device.
 *
 * @param seed The seed, the same for all devices.
 * @return As plinth_manual_seed.
 */
PLINTH_API plinth_status_t plinth_manual_seed_all(uint64_t seed) PLINTH_NOEXCEPT;

/**
 * Seeds the current device's default generator with a seed of 53 bits from the operating system. Otherwise as
 * plinth_manual_seed.
 *
 * @return As plinth_manual_seed; PLINTH_ERROR_SYSTEM if /dev/urandom is missing.
 */
PLINTH_API plinth_status_t plinth_seed(void) PLINTH_NOEXCEPT;

/**
 * Seeds the default generators of all devices with one seed of 53 bits from the operating system. Otherwise as
 * plinth_manual_seed.
 *
 * @return As plinth_seed.
 */
PLINTH_API
plinth_status_t plinth_seed_all(void)
PLINTH_NOEXCEPT;

/**
 * Gets the seed of the current device's default generator. A generator that was never seeded has a seed from the
 * operating system.
 *
 * @param seed Out: the seed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_initial_seed(uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Gets the state of a device's default generator: PLINTH_RNG_STATE_SIZE bytes, which PyTorch's
 * torch.cuda.set_rng_state accepts too.
 *
 * @param device The device index; -1 for the current device.
 * @param state Out: the bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_CAPTURE_FORBIDS if the
 *         thread's current stream captures; PLINTH_ERROR_SYSTEM; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_rng_state(int32_t device,
                                     uint8_t *state)
PLINTH_NOEXCEPT;

/**
 * Sets the state of a device's default generator.
 *
 * @param device The device index; -1 for the current device.
 * @param state PLINTH_RNG_STATE_SIZE bytes, from plinth_get_rng_state or torch.cuda.get_rng_state.
 * @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for an offset that is not a multiple of 4.
 */
PLINTH_API plinth_status_t plinth_set_rng_state(int32_t device, const uint8_t *state) PLINTH_NOEXCEPT;

/**
 * Gets the states of the default generators of the first `count` devices, one after the other.
 *
 * @param states Out: PLINTH_RNG_STATE_SIZE bytes for each device; may be NULL if `count` is 0.
 * @param count The number of devices, usually the result of plinth_device_count.
 * @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for a count that is negative or larger than the number
 *         of devices.
 */
PLINTH_API
plinth_status_t plinth_get_rng_state_all(uint8_t *states,
                                         int32_t count)
PLINTH_NOEXCEPT;

/**
 * Sets the states of the default generators of the first `count` devices. If one state is malformed, none is set.
 *
 * @param states PLINTH_RNG_STATE_SIZE bytes for each device; may be NULL if `count` is 0.
 * @param count The number of devices.
 * @return As plinth_set_rng_state; PLINTH_ERROR_INVALID_VALUE for more states than devices.
 */
PLINTH_API
plinth_status_t plinth_set_rng_state_all(const uint8_t *states,
                                         int32_t count)
PLINTH_NOEXCEPT;

/**
 * Gets the default generator of a device. It belongs to the library and cannot be destroyed.
 *
 * @param device The device index; -1 for the current device.
 * @param generator Out: the generator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_SYSTEM; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_default_generator(int32_t device,
                                         plinth_generator_t *generator)
PLINTH_NOEXCEPT;

/**
 * Creates a generator with PyTorch's default seed, 67280421310721, and an offset of 0.
 *
 * @param device The index of the device for whose tensors it generates numbers; -1 for the current device.
 * @param generator Out: the generator. The caller owns it and destroys it with plinth_generator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with 16
 *         million live generators; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_create(int32_t device,
                                        plinth_generator_t *generator)
PLINTH_NOEXCEPT;

/**
 * Destroys a generator. Graphs that use it can still be replayed.
 *
 * @param generator The generator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a device's default generator.
 */
PLINTH_API
plinth_status_t plinth_generator_destroy(plinth_generator_t generator)
PLINTH_NOEXCEPT;

/**
 * Creates an independent generator with the seed and offset of another one: torch's clone_state.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param clone Out: the new generator. The caller owns it and destroys it with plinth_generator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the
 *         thread's current stream captures; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_clone(plinth_generator_t generator,
                                       plinth_generator_t *clone)
PLINTH_NOEXCEPT;

/**
 * Creates a generator that shares the state of another one: torch's graphsafe_get_state.
 *
 * Both have the same seed and offset: numbers that one generator produces are not produced by the other. Allowed in
 * a capture.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param shared Out: the new generator. The caller owns it and destroys it with plinth_generator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_graphsafe_get_state(plinth_generator_t generator,
                                                     plinth_generator_t *shared)
PLINTH_NOEXCEPT;

/**
 * Makes a generator share the state of another one, in place of its own seed and offset: torch's
 * graphsafe_set_state. Allowed in a capture.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param shared The other generator, of the same device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH; the
 *         errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_graphsafe_set_state(plinth_generator_t generator,
                                                     plinth_generator_t shared)
PLINTH_NOEXCEPT;

/**
 * Gets the device of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param device Out: the device index.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_device(plinth_generator_t generator,
                                        int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Seeds a generator and sets its offset to 0.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed The seed.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the thread's current stream
 *         captures; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_manual_seed(plinth_generator_t generator,
                                             uint64_t seed)
PLINTH_NOEXCEPT;

/**
 * Seeds a generator with a seed of 53 bits from the operating system and sets its offset to 0.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed Out: the seed. May be NULL.
 * @return As plinth_generator_manual_seed; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_generator_seed(plinth_generator_t generator,
                                      uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Gets the seed of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed Out: the seed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_initial_seed(plinth_generator_t generator,
                                              uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Gets the state of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param state Out: PLINTH_RNG_STATE_SIZE bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the
 *         thread's current stream captures; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_get_state(plinth_generator_t generator,
                                           uint8_t *state)
PLINTH_NOEXCEPT;

/**
 * Sets the state of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param state The state.
 * @param size The size of the state: PLINTH_RNG_STATE_SIZE bytes, or 8 bytes for a seed alone, which sets the offset
 *        to 0.
 * @return As plinth_generator_get_state; PLINTH_ERROR_INVALID_VALUE for another size, and for an offset that is not
 *         a multiple of 4.
 */
PLINTH_API
plinth_status_t plinth_generator_set_state(plinth_generator_t generator,
                                           const uint8_t *state,
                                           size_t size)
PLINTH_NOEXCEPT;

/**
 * Gets the offset of a generator: the number of 32-bit values that each of its subsequences has produced.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param offset Out: the offset, a multiple of 4.
 * @return As plinth_generator_get_state.
 */
PLINTH_API
plinth_status_t plinth_generator_get_offset(plinth_generator_t generator,
                                            uint64_t *offset)
PLINTH_NOEXCEPT;

/**
 * Sets the offset of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param offset The offset, a multiple of 4.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an offset that is not a multiple of
 *         4; PLINTH_ERROR_CAPTURE_FORBIDS if the thread's current stream captures; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_set_offset(plinth_generator_t generator,
                                            uint64_t offset)
PLINTH_NOEXCEPT;

/**
 * Reserves random numbers of a generator for a kernel of the program, launched in the current stream of the
 * generator's device.
 *
 * plinth_philox.cuh converts the state to numbers, on the device and on the CPU. No two calls reserve the same
 * numbers, even if threads call at the same time.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param increment The maximum number of 32-bit values that one thread of the kernel uses, at most 2^62; rounded up to
 *        a multiple of 4.
 * @param state Out: the state. Outside of a capture it has the seed and the offset. In a capture it has the device
 *        addresses of the seed and the offset, which each replay writes, and a number to add to the offset. It is
 *        then valid only for kernels of that capture.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a larger
 *         increment; PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a capture of a graph with which the generator is not
 *         registered; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_philox_state(plinth_generator_t generator,
                                              uint64_t increment,
                                              plinth_philox_state_t *state)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_GENERATOR_H */
