/*!
 * @file plinth_philox.cuh
 * @brief plinth_philox.h, and what kernels make of it most often. For nvcc and NVRTC.
 *
 * A kernel that takes a plinth_philox_state_t by value, and draws four numbers a thread:
 *
 *     __global__ void noise(float4 *out, plinth_philox_state_t state) {
 *       plinth_philox_engine_t engine = plinth_philox_engine_of_thread(state);
 *       out[plinth_philox_thread()] = plinth_philox_normal4(&engine);
 *     }
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef PLINTH_PHILOX_CUH
#define PLINTH_PHILOX_CUH

#if !defined(__CUDACC__)
#error "plinth_philox.cuh is for CUDA C++; plinth_philox.h is for everything else"
#endif

#include "plinth_philox.h"

#define PLINTH_PHILOX_DEVICE_FN static __device__ __forceinline__

/*!
 * The index of the calling thread among all of a launch in one dimension.
 *
 * @return The index.
 */
PLINTH_PHILOX_DEVICE_FN plinth_u64_t plinth_philox_thread() {
  return (plinth_u64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/*!
 * An engine for the calling thread, at the state's offset of the subsequence of the thread's index: where PyTorch's
 * kernels start.
 *
 * @param state The state; in a capture its seed and offset are read here.
 * @return The engine.
 */
PLINTH_PHILOX_DEVICE_FN plinth_philox_engine_t plinth_philox_engine_of_thread(plinth_philox_state_t state) {
  plinth_u64_t seed, offset;
  plinth_philox_engine_t engine;
  plinth_philox_unpack(state, &seed, &offset);
  plinth_philox_init(&engine, seed, plinth_philox_thread(), offset);
  return engine;
}

/*!
 * The next four numbers as plinth_philox_uniform() has them: what curand_uniform4() gives.
 *
 * @param engine The engine.
 * @return The fractions.
 */
PLINTH_PHILOX_DEVICE_FN float4 plinth_philox_uniform4(plinth_philox_engine_t *engine) {
  plinth_u32_t words[4];
  plinth_philox_next4(engine, words);
  return make_float4(plinth_philox_uniform(words[0]), plinth_philox_uniform(words[1]), plinth_philox_uniform(words[2]),
                     plinth_philox_uniform(words[3]));
}

/*!
 * Four normal numbers of the next four: what curand_normal4() gives.
 *
 * @param engine The engine.
 * @return The numbers, of mean 0 and deviation 1.
 */
PLINTH_PHILOX_DEVICE_FN float4 plinth_philox_normal4(plinth_philox_engine_t *engine) {
  plinth_u32_t words[4];
  float first[2], second[2];
  plinth_philox_next4(engine, words);
  plinth_philox_normal(words[0], words[1], first);
  plinth_philox_normal(words[2], words[3], second);
  return make_float4(first[0], first[1], second[0], second[1]);
}

/*!
 * Two f64 fractions of the next four numbers: what curand_uniform2_double() gives.
 *
 * @param engine The engine.
 * @return The fractions.
 */
PLINTH_PHILOX_DEVICE_FN double2 plinth_philox_uniform2_double(plinth_philox_engine_t *engine) {
  plinth_u32_t words[4];
  plinth_philox_next4(engine, words);
  return make_double2(plinth_philox_uniform_double(words[0], words[1]),
                      plinth_philox_uniform_double(words[2], words[3]));
}

/*!
 * Two f64 normal numbers of the next four: what curand_normal2_double() gives.
 *
 * @param engine The engine.
 * @return The numbers, of mean 0 and deviation 1.
 */
PLINTH_PHILOX_DEVICE_FN double2 plinth_philox_normal2_double(plinth_philox_engine_t *engine) {
  plinth_u32_t words[4];
  double pair[2];
  plinth_philox_next4(engine, words);
  plinth_philox_normal_double(words[0], words[1], words[2], words[3], pair);
  return make_double2(pair[0], pair[1]);
}

#endif
