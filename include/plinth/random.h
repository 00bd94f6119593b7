/*!
 * @defgroup plinth_random Random tensors
 *
 * Functions that fill a tensor with random numbers: torch's uniform_, normal_ and so on, with the same numbers for the
 * same state of the generator.
 *
 * The tensor is the caller's. It is filled asynchronously in the stream, and must stay valid until then. Threads that
 * share a generator get different numbers, in the order of their calls.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_RANDOM_H
#define PLINTH_RANDOM_H

#include "base.h"
#include "tensor.h"
#include "generator.h"

/*!
 * @file plinth/random.h
 * @brief Random tensors.
 */

/*!
 * @addtogroup plinth_random
 * @{
 */

/**
 * As the `high` of plinth_random_range: up to the largest number of plinth_random.
 */
#define PLINTH_RANDOM_TO_LARGEST INT64_MIN

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Fills a tensor with uniform random numbers in [low, high): low + u * (high - low) for u in (0, 1], where a result
 * equal to `high` becomes `low`. For 16-bit elements the computation is in float, and the result is rounded; low, high
 * and their difference are first rounded to the element type.
 *
 * These rules apply to all functions that fill a tensor with random numbers:
 * - Every element gets the number that PyTorch 2.11 generates on the same GPU model from a generator in the same
 *   state, and the generator's offset advances by the same amount. The host device uses the launch geometry of the
 *   model that it simulates (PLINTH_HOST_MODEL). docs/random.md specifies the rule, and states how close the host
 *   device is where a GPU uses fast approximate instructions.
 * - The tensor may have any shape, including an empty one, which consumes no random numbers. It may have any strides;
 *   elements are numbered in the order of their addresses. No two elements may have the same address. The fill is
 *   asynchronous in the stream; the memory must stay valid until it is complete. In a capture the fill becomes a node
 *   of the graph, and each replay generates new numbers.
 * - If a call fails, the generator has not advanced.
 * - Threads that share a generator get disjoint numbers, in the order of their calls.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64; of complex64 and complex128 the real and imaginary
 *        parts are filled.
 * @param low The smallest number; must be representable in the element type.
 * @param high The end of the range, not below low. If it equals low, every element is low.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tensor of another type or with a
 *         malformed shape, for low, high or high - low that the element type cannot represent, for NaN, and for low >
 *         high; PLINTH_ERROR_INVALID_HANDLE for an invalid generator or stream; PLINTH_ERROR_DEVICE_MISMATCH for a
 *         tensor that is not on a CUDA device, or not on the device of generator and stream;
 *         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a capture of a graph that the
 *         generator is not registered with; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_uniform(DLTensor *tensor,
                               double low,
                               double high,
                               plinth_generator_t generator,
                               plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with normally distributed random numbers, by the Box-Muller transform.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64, complex64, complex128. The real and imaginary parts of
 *        a complex number are independent numbers of the mean and of std / sqrt(2), as in torch, numbered as elements
 *        of torch.view_as_real(tensor).
 * @param mean The mean; of a complex number that of both parts.
 * @param std The standard deviation, 0 or more.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for std < 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_normal(DLTensor *tensor,
                              double mean,
                              double std,
                              plinth_generator_t generator,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with log-normally distributed random numbers: the exponential of normally distributed numbers.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param mean The mean of the underlying normal distribution.
 * @param std The standard deviation of the underlying normal distribution, more than 0.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for std <= 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_log_normal(DLTensor *tensor,
                                  double mean,
                                  double std,
                                  plinth_generator_t generator,
                                  plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with exponentially distributed random numbers, with density lambda * e^(-lambda * x): -ln(u) /
 * lambda. Elements are 0 only where the type has no smaller number.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param lambda The rate, more than 0.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for lambda <= 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_exponential(DLTensor *tensor,
                                   double lambda,
                                   plinth_generator_t generator,
                                   plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with Cauchy-distributed random numbers: median + sigma * tan(pi * (u - 1/2)).
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64.
 * @param median The median.
 * @param sigma The scale: half the interquartile range, more than 0.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for sigma <= 0, and NaN.
 */
PLINTH_API
plinth_status_t plinth_cauchy(DLTensor *tensor,
                              double median,
                              double sigma,
                              plinth_generator_t generator,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with geometrically distributed random numbers, the number of trials until the first success:
 * ceil(ln(u) / ln(1 - p)). The result is 0 if u is 1. A number that is too large for an integer element is truncated
 * as the GPU's conversion does.
 *
 * @param tensor The tensor: float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64.
 * @param p The probability of success, between 0 and 1, both excluded.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for p <= 0, p >= 1, and NaN.
 */
PLINTH_API
plinth_status_t plinth_geometric(DLTensor *tensor,
                                 double p,
                                 plinth_generator_t generator,
                                 plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with ones and zeros, of a Bernoulli distribution: one where u < p.
 *
 * @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64.
 * @param p The probability of a one, from 0 to 1. Even with 1, one of 2^25 elements is 0 on average, as in PyTorch,
 *        because u may be 1.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for p outside of [0, 1], and NaN.
 */
PLINTH_API
plinth_status_t plinth_bernoulli(DLTensor *tensor,
                                 double p,
                                 plinth_generator_t generator,
                                 plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with ones and zeros, with a probability for each element: one where u <= p. As PyTorch's bernoulli_
 * with a tensor, it advances the generator by 12 numbers, however large the tensor is. A probability outside [0, 1] or
 * NaN is not an error, because it is read only on the device: below 0 and NaN give 0, above 1 gives 1.
 *
 * @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64. With more
 *        than 2^30 elements, the tensor and the probabilities must be contiguous.
 * @param p The probabilities: float16, bfloat16, float32 or float64, of the tensor's shape, or of a shape that can be
 *        broadcast to it. Read in the stream.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for probabilities of another type or shape;
 *         PLINTH_ERROR_DEVICE_MISMATCH for probabilities on another device; PLINTH_ERROR_NOT_SUPPORTED for more than
 *         2^30 elements that are not contiguous.
 */
PLINTH_API
plinth_status_t plinth_bernoulli_tensor(DLTensor *tensor,
                                        const DLTensor *p,
                                        plinth_generator_t generator,
                                        plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with uniformly distributed integers: for an integer type from 0 to its largest number; for a
 * floating-point type from 0 to 2^d, where d is the number of its significand bits (11 for float16, 8 for bfloat16, 24
 * for float32, 53 for float64).
 *
 * @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform.
 */
PLINTH_API
plinth_status_t plinth_random(DLTensor *tensor,
                              plinth_generator_t generator,
                              plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Fills a tensor with uniformly distributed integers in [low, high): x mod (high - low) + low, where x has 32 bits, or
 * 64 bits if high - low is 2^28 or more. Floating-point elements get the nearest representable number; low and high
 * are first moved inwards to numbers that the type can represent.
 *
 * With PLINTH_RANDOM_TO_LARGEST as high, the largest number is that of plinth_random: torch's random_(low, None). If
 * low is INT64_MIN too, all 64 bits are random (int64, float64, float32 and bfloat16 only).
 *
 * @param tensor The tensor: any type but complex ones; with PLINTH_RANDOM_TO_LARGEST not uint64.
 * @param low The smallest number.
 * @param high The end of the range, above low; or PLINTH_RANDOM_TO_LARGEST.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for low >= high, and for low or high - 1 that the
 *         element type cannot represent.
 */
PLINTH_API
plinth_status_t plinth_random_range(DLTensor *tensor,
                                    int64_t low,
                                    int64_t high,
                                    plinth_generator_t generator,
                                    plinth_stream_t stream)
PLINTH_NOEXCEPT;

/**
 * Writes a random permutation of 0 to n - 1 to a tensor of n elements. From 2497 elements on it allocates about 8
 * bytes per element from the caching allocator; later work in the stream can reuse that memory.
 *
 * @param tensor The tensor: one dimension; uint8, int8, int16, int32, int64, float16, float32 or float64, which must
 *        be able to represent n different numbers; at most 2^30 elements.
 * @param generator The generator, of the tensor's device; NULL for the device's default generator.
 * @param stream The stream, of the tensor's device; NULL for that device's default stream.
 * @return The statuses of plinth_uniform; PLINTH_ERROR_INVALID_VALUE for a tensor of another rank, or with more
 *         elements than its type can number; PLINTH_ERROR_NOT_SUPPORTED for more than 2^30 elements;
 *         PLINTH_ERROR_OUT_OF_MEMORY.
 */
PLINTH_API
plinth_status_t plinth_randperm(DLTensor *tensor,
                                plinth_generator_t generator,
                                plinth_stream_t stream)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

#endif /* PLINTH_RANDOM_H */
