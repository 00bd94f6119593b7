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
/*! plinth_philox_state_t is declared: here, or by plinth_philox.h. */
#define PLINTH_PHILOX_STATE_T
/*! Where a kernel takes its random numbers: a seed and an offset, or, in a capture, where each replay finds them.
 *  plinth_philox.cuh has what a kernel does with it. */
typedef struct plinth_philox_state_t {
  /*! The seed; in a capture the address of one in the device's memory. */
  uint64_t seed;
  /*! How many 32-bit numbers each subsequence has given; in a capture the address of such a count. */
  uint64_t offset;
  /*! In a capture, what is added to the offset there. */
  uint64_t graph_offset;
  /*! 1 in a capture, else 0. */
  uint32_t captured;
  /*! 0. */
  uint32_t reserved;
} plinth_philox_state_t;
#endif

/**
 * The bytes of a generator's state: the seed as a little-endian 64-bit integer, then the offset as one, as in PyTorch.
 */
#define PLINTH_RNG_STATE_SIZE 16

/**
 * A generator of random numbers: Philox4x32-10 with a seed and an offset. Opaque, and checked: a handle that was
 * destroyed, is of another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_generator plinth_generator;

/**
 * The handle of a generator. Where a function takes one, NULL stands for the device's default generator.
 */
typedef struct plinth_generator *plinth_generator_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Seeds the current device's default generator, and sets its offset to 0. Before the library is initialized the seed
 * waits until it is, for the device that is current then; so this is no error on a machine without a GPU. Thread-safe.
 *
 * @param seed The seed.
 * @return PLINTH_OK; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the generator;
 *         PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN.
 */
PLINTH_API
plinth_status_t plinth_manual_seed(uint64_t seed)
PLINTH_NOEXCEPT;

/**
 * Seeds the default generator of every device, as plinth_manual_seed does that of one.
 *
 * @param seed The seed, the same for all.
 * @return As plinth_manual_seed.
 */
PLINTH_API plinth_status_t plinth_manual_seed_all(uint64_t seed) PLINTH_NOEXCEPT;

/**
 * Seeds the current device's default generator with a seed of 53 bits from the operating system. Otherwise as
 * plinth_manual_seed.
 *
 * @return As plinth_manual_seed; PLINTH_ERROR_SYSTEM when there is no /dev/urandom.
 */
PLINTH_API plinth_status_t plinth_seed(void) PLINTH_NOEXCEPT;

/**
 * Seeds the default generator of every device with one seed of 53 bits from the operating system. Otherwise as
 * plinth_manual_seed.
 *
 * @return As plinth_seed.
 */
PLINTH_API
plinth_status_t plinth_seed_all(void)
PLINTH_NOEXCEPT;

/**
 * Tells the seed of the current device's default generator. One that was never seeded has a seed from the operating
 * system.
 *
 * @param seed Out: the seed.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_initial_seed(uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Tells the state of a device's default generator: PLINTH_RNG_STATE_SIZE bytes that PyTorch's
 * torch.cuda.set_rng_state takes, too.
 *
 * @param device The device; -1 for the current one.
 * @param state Out: the bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph
 *         is being captured with the generator; PLINTH_ERROR_SYSTEM; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_get_rng_state(int32_t device,
                                     uint8_t *state)
PLINTH_NOEXCEPT;

/**
 * Sets the state of a device's default generator.
 *
 * @param device The device; -1 for the current one.
 * @param state PLINTH_RNG_STATE_SIZE bytes, of plinth_get_rng_state or torch.cuda.get_rng_state.
 * @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for an offset that is no multiple of 4.
 */
PLINTH_API plinth_status_t plinth_set_rng_state(int32_t device, const uint8_t *state) PLINTH_NOEXCEPT;

/**
 * Tells the states of the default generators of the first `count` devices, one after the other.
 *
 * @param states Out: PLINTH_RNG_STATE_SIZE bytes for each of them.
 * @param count How many; mostly the count of plinth_device_count.
 * @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for a count that is negative or larger than that of the
 *         devices.
 */
PLINTH_API
plinth_status_t plinth_get_rng_state_all(uint8_t *states,
                                         int32_t count)
PLINTH_NOEXCEPT;

/**
 * Sets the states of the default generators of the first `count` devices; nothing changes if one of them is malformed.
 *
 * @param states PLINTH_RNG_STATE_SIZE bytes for each of them.
 * @param count How many.
 * @return As plinth_set_rng_state; PLINTH_ERROR_INVALID_VALUE for more states than devices.
 */
PLINTH_API
plinth_status_t plinth_set_rng_state_all(const uint8_t *states,
                                         int32_t count)
PLINTH_NOEXCEPT;

/**
 * Tells the default generator of a device. It is the library's: it cannot be destroyed.
 *
 * @param device The device; -1 for the current one.
 * @param generator Out: the generator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_SYSTEM; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_default_generator(int32_t device,
                                         plinth_generator_t *generator)
PLINTH_NOEXCEPT;

/**
 * Creates a generator with PyTorch's default seed, 67280421310721, and an offset of 0. Thread-safe.
 *
 * @param device The device whose tensors it is to fill; -1 for the current one.
 * @param generator Out: the generator. The caller owns it and destroys it with plinth_generator_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with 16 million
 *         live generators; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_create(int32_t device,
                                        plinth_generator_t *generator)
PLINTH_NOEXCEPT;

/**
 * Destroys a generator. Graphs that use it go on. Thread-safe, but a generator must not be destroyed while another thread
 * is in a call with it.
 *
 * @param generator The generator; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a device's default generator.
 */
PLINTH_API
plinth_status_t plinth_generator_destroy(plinth_generator_t generator)
PLINTH_NOEXCEPT;

/**
 * Makes a generator with another's seed and offset, which from then on goes its own way: torch's clone_state.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param clone Out: the new one. The caller owns it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is
 *         being captured with the generator; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_clone(plinth_generator_t generator,
                                       plinth_generator_t *clone)
PLINTH_NOEXCEPT;

/**
 * Makes a generator that shares another's seed and offset: what one of them takes, the other does not get. torch's
 * graphsafe_get_state; allowed in a capture.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param shared Out: the new one. The caller owns it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_graphsafe_get_state(plinth_generator_t generator,
                                                     plinth_generator_t *shared)
PLINTH_NOEXCEPT;

/**
 * Lets a generator share another's seed and offset in place of its own. torch's graphsafe_set_state; allowed in a
 * capture.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param shared The other one, of the same device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_graphsafe_set_state(plinth_generator_t generator,
                                                     plinth_generator_t shared)
PLINTH_NOEXCEPT;

/**
 * Tells the device of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param device Out: the device's number.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_device(plinth_generator_t generator,
                                        int32_t *device)
PLINTH_NOEXCEPT;

/**
 * Seeds a generator, and sets its offset to 0. Thread-safe.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed The seed.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the
 *         generator; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_manual_seed(plinth_generator_t generator,
                                             uint64_t seed)
PLINTH_NOEXCEPT;

/**
 * Seeds a generator with a seed of 53 bits from the operating system, and sets its offset to 0. Thread-safe.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param seed Out: the seed; NULL when it is of no interest.
 * @return As plinth_generator_manual_seed; PLINTH_ERROR_SYSTEM.
 */
PLINTH_API
plinth_status_t plinth_generator_seed(plinth_generator_t generator,
                                      uint64_t *seed)
PLINTH_NOEXCEPT;

/**
 * Tells the seed of a generator.
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
 * Tells the state of a generator.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param state Out: PLINTH_RNG_STATE_SIZE bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is
 *         being captured with the generator; the errors of initialization.
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
 * @param size PLINTH_RNG_STATE_SIZE bytes, or 8 for a seed alone, with which the offset is 0.
 * @return As plinth_generator_get_state; PLINTH_ERROR_INVALID_VALUE for another size, and for an offset that is no
 *         multiple of 4.
 */
PLINTH_API
plinth_status_t plinth_generator_set_state(plinth_generator_t generator,
                                           const uint8_t *state,
                                           size_t size)
PLINTH_NOEXCEPT;

/**
 * Tells the offset of a generator: how many 32-bit numbers each of its subsequences has given.
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
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an offset that is no multiple of 4;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the generator; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_generator_set_offset(plinth_generator_t generator,
                                            uint64_t offset)
PLINTH_NOEXCEPT;

/**
 * Takes numbers of a generator for a kernel of the caller's own, launched in the current stream of the generator's
 * device. plinth_philox.cuh turns the state into numbers, on the device and on the CPU. Thread-safe: no two calls give the
 * same numbers.
 *
 * @param generator The generator; NULL for the current device's default one.
 * @param increment How many 32-bit numbers a thread of the kernel takes at most; rounded up to a multiple of 4.
 * @param state Out: the state. Outside a capture it has the seed and the offset. In one, it has the addresses of both in
 *        device memory, where each replay puts its own, and what is to be added to the offset; it is valid for kernels of
 *        that capture only.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a
 *         capture of a graph that does not know the generator; the errors of initialization.
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
