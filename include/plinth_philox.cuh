/*!
 * @file plinth_philox.cuh
 * @brief plinth_philox.h, and helpers for common kernels. For nvcc and NVRTC.
 *
 * A kernel that takes a plinth_philox_state_t by value, and draws four numbers per thread:
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
 * Returns the index of the calling thread in a one-dimensional launch.
 *
 * @return The index.
 */
PLINTH_PHILOX_DEVICE_FN plinth_u64_t plinth_philox_thread() {
  return (plinth_u64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/*!
 * Creates an engine for the calling thread, at the state's offset in the subsequence of the thread's index, as
 * PyTorch's kernels do.
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
 * Returns the next four numbers as fractions of plinth_philox_uniform(), as curand_uniform4() does.
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
 * Returns four normally distributed numbers from the next four numbers, as curand_normal4() does.
 *
 * @param engine The engine.
 * @return The numbers, with mean 0 and standard deviation 1.
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
 * Returns two double fractions from the next four numbers, as curand_uniform2_double() does.
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
 * Returns two normally distributed doubles from the next four numbers, as curand_normal2_double() does.
 *
 * @param engine The engine.
 * @return The numbers, with mean 0 and standard deviation 1.
 */
PLINTH_PHILOX_DEVICE_FN double2 plinth_philox_normal2_double(plinth_philox_engine_t *engine) {
  plinth_u32_t words[4];
  double pair[2];
  plinth_philox_next4(engine, words);
  plinth_philox_normal_double(words[0], words[1], words[2], words[3], pair);
  return make_double2(pair[0], pair[1]);
}

#endif
