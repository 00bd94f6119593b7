/*!
 * @file plinth_philox.h
 * @brief The random numbers of plinth's generators, for the program's own kernels and host code.
 *
 * A generator provides a seed and an offset (plinth_philox_state_t). Each thread of a kernel then draws from its own
 * subsequence, usually numbered by the thread's index, and gets the same numbers as cuRAND's curandStatePhilox4_32_10_t
 * and PyTorch's kernels. The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3" (SC 2011): the numbers are a function of counter and key, so there is no state to keep in memory.
 *
 * For C99, C++11, nvcc and NVRTC (which needs no other header for it). Nothing has to be linked, except the C library's
 * -lm for the functions of normally distributed numbers.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef PLINTH_PHILOX_H
#define PLINTH_PHILOX_H

#if defined(__CUDACC_RTC__)
typedef unsigned int plinth_u32_t;
typedef unsigned long long plinth_u64_t;
#else
#include <math.h>
#include <stdint.h>
/*! A 32-bit integer, also in compilers without <stdint.h>. */
typedef uint32_t plinth_u32_t;
/*! A 64-bit integer, also in compilers without <stdint.h>. */
typedef uint64_t plinth_u64_t;
#endif

#if defined(__CUDACC__)
#define PLINTH_PHILOX_FN static __host__ __device__ __forceinline__
#else
#define PLINTH_PHILOX_FN static inline
#endif

#ifndef PLINTH_PHILOX_STATE_T
#define PLINTH_PHILOX_STATE_T
/*! The random state for a kernel: seed and offset, or, for a kernel that is captured into a graph, the addresses
 *  from which each replay reads them. Pass it to the kernel by value, and call plinth_philox_unpack() there to get
 *  seed and offset. */
typedef struct plinth_philox_state_t {
  /*! The seed; in a capture its address in device memory. */
  plinth_u64_t seed;
  /*! The number of 32-bit numbers that each subsequence has drawn; in a capture the address of that number in device
   *  memory. */
  plinth_u64_t offset;
  /*! In a capture, a number to add to the offset: what the graph has drawn before this kernel. */
  plinth_u64_t graph_offset;
  /*! 1 in a capture, else 0. */
  plinth_u32_t captured;
  /*! Reserved: 0. */
  plinth_u32_t reserved;
} plinth_philox_state_t;
#endif

/*! A position in a subsequence. The fields are private; start with plinth_philox_init(). */
typedef struct plinth_philox_engine_t {
  /*! The counter of the next block of four numbers. */
  plinth_u32_t counter[4];
  /*! The seed. */
  plinth_u32_t key[2];
  /*! The current block of four numbers. */
  plinth_u32_t numbers[4];
  /*! How many of them, the last ones, are still unused. */
  plinth_u32_t left;
} plinth_philox_engine_t;

/*!
 * Computes the four numbers of a counter and a key: ten rounds of Philox4x32, with the constants of the paper's table
 * 2.
 *
 * cuRAND's counters are (n, high half of n, subsequence, high half of subsequence) for the numbers 4n to 4n + 3 of a
 * subsequence; its key is the seed, the low half first.
 *
 * @param counter The counter.
 * @param key The key.
 * @param out Out: the numbers. May be the same array as counter.
 */
PLINTH_PHILOX_FN void plinth_philox_4x32_10(const plinth_u32_t counter[4], const plinth_u32_t key[2],
                                            plinth_u32_t out[4]) {
  plinth_u32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  int round;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (round = 0; round < 10; round++) {
    const plinth_u64_t p0 = (plinth_u64_t)0xD2511F53u * c0, p1 = (plinth_u64_t)0xCD9E8D57u * c2;
    c0 = (plinth_u32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (plinth_u32_t)p1;
    c2 = (plinth_u32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (plinth_u32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/*!
 * Advances the engine's counter by a number of blocks of four numbers; used by the functions below.
 *
 * @param engine The engine.
 * @param blocks The number of blocks.
 */
PLINTH_PHILOX_FN void plinth_philox_advance(plinth_philox_engine_t *engine, plinth_u64_t blocks) {
  const plinth_u64_t before = (plinth_u64_t)engine->counter[1] << 32 | engine->counter[0], after = before + blocks;
  engine->counter[0] = (plinth_u32_t)after;
  engine->counter[1] = (plinth_u32_t)(after >> 32);
  /* Behind the end of a subsequence lies the next one, as in cuRAND. */
  if (after < before && ++engine->counter[2] == 0) {
    engine->counter[3]++;
  }
}

/*!
 * Generates the next block of numbers.
 *
 * @param engine The engine.
 * @param out Out: the numbers.
 */
PLINTH_PHILOX_FN void plinth_philox_block(plinth_philox_engine_t *engine, plinth_u32_t out[4]) {
  plinth_philox_4x32_10(engine->counter, engine->key, out);
  plinth_philox_advance(engine, 1);
}

/*!
 * Returns the next 32-bit number, as curand() does.
 *
 * @param engine The engine.
 * @return The number.
 */
PLINTH_PHILOX_FN plinth_u32_t plinth_philox_next(plinth_philox_engine_t *engine) {
  if (engine->left == 0) {
    plinth_philox_block(engine, engine->numbers);
    engine->left = 4;
  }
  /* No index: it would put the engine into memory, out of a GPU's registers. */
  switch (engine->left--) {
    case 4:
      return engine->numbers[0];
    case 3:
      return engine->numbers[1];
    case 2:
      return engine->numbers[2];
    default:
      return engine->numbers[3];
  }
}

/*!
 * Returns the next four numbers, as curand4() does: the same as four single ones, at any position. Fastest if the
 * engine always draws four at a time, from an offset that is a multiple of 4.
 *
 * @param engine The engine.
 * @param out Out: the numbers.
 */
PLINTH_PHILOX_FN void plinth_philox_next4(plinth_philox_engine_t *engine, plinth_u32_t out[4]) {
  if (engine->left == 0) {
    plinth_philox_block(engine, out);
  } else {
    int index;
    for (index = 0; index < 4; index++) {
      out[index] = plinth_philox_next(engine);
    }
  }
}

/*!
 * Skips numbers, as cuRAND's skipahead() does.
 *
 * @param engine The engine.
 * @param count How many 32-bit numbers to skip.
 */
PLINTH_PHILOX_FN void plinth_philox_skip(plinth_philox_engine_t *engine, plinth_u64_t count) {
  if (count < engine->left) {
    engine->left -= (plinth_u32_t)count;
    return;
  }
  count -= engine->left;
  engine->left = 0;
  plinth_philox_advance(engine, count / 4);
  if (count % 4 != 0) {
    plinth_philox_block(engine, engine->numbers);
    engine->left = 4 - (plinth_u32_t)(count % 4);
  }
}

/*!
 * Initializes an engine as curand_init(seed, subsequence, offset, &state) does.
 *
 * @param engine Out: the engine.
 * @param seed The seed.
 * @param subsequence Which of the 2^64 subsequences of the seed; in most kernels the index of the thread.
 * @param offset How many 32-bit numbers of the subsequence to skip. Any number is valid; generators count in multiples
 *        of 4.
 */
PLINTH_PHILOX_FN void plinth_philox_init(plinth_philox_engine_t *engine, plinth_u64_t seed, plinth_u64_t subsequence,
                                         plinth_u64_t offset) {
  engine->key[0] = (plinth_u32_t)seed;
  engine->key[1] = (plinth_u32_t)(seed >> 32);
  engine->counter[0] = 0;
  engine->counter[1] = 0;
  engine->counter[2] = (plinth_u32_t)subsequence;
  engine->counter[3] = (plinth_u32_t)(subsequence >> 32);
  engine->numbers[0] = engine->numbers[1] = engine->numbers[2] = engine->numbers[3] = 0;
  engine->left = 0;
  plinth_philox_skip(engine, offset);
}

/*!
 * Reads seed and offset of a state. In a capture they are in device memory and change from replay to replay: call this
 * in the kernel, not before.
 *
 * @param state The state.
 * @param seed Out: the seed.
 * @param offset Out: the offset.
 */
PLINTH_PHILOX_FN void plinth_philox_unpack(plinth_philox_state_t state, plinth_u64_t *seed, plinth_u64_t *offset) {
  if (state.captured != 0) {
    *seed = *(const plinth_u64_t *)state.seed;
    *offset = *(const plinth_u64_t *)state.offset + state.graph_offset;
  } else {
    *seed = state.seed;
    *offset = state.offset;
  }
}

/*!
 * Converts a number to a fraction in (0, 1]: x 2^-32 + 2^-33, rounded to float as curand_uniform() does.
 *
 * @param x A number.
 * @return The fraction.
 */
PLINTH_PHILOX_FN float plinth_philox_uniform(plinth_u32_t x) {
  return (float)x * 2.3283064365386963e-10f + 1.1641532182693481e-10f;
}

/*!
 * Converts a number to a fraction in [0, 1), as PyTorch's uniform_() and rand() do: plinth_philox_uniform(), with 0 in
 * place of 1.
 *
 * @param x A number.
 * @return The fraction.
 */
PLINTH_PHILOX_FN float plinth_philox_uniform_below_1(plinth_u32_t x) {
  const float fraction = plinth_philox_uniform(x);
  return fraction < 1.0f ? fraction : 0.0f;
}

/*!
 * Converts two numbers to a double fraction in (0, 1]: z 2^-53 + 2^-54 with z = x ^ (y << 21), rounded as
 * curand_uniform2_double() does.
 *
 * @param x A number.
 * @param y Another.
 * @return The fraction.
 */
PLINTH_PHILOX_FN double plinth_philox_uniform_double(plinth_u32_t x, plinth_u32_t y) {
  const plinth_u64_t bits = (plinth_u64_t)x ^ (plinth_u64_t)y << 21;
  return (double)bits * 1.1102230246251565e-16 + 5.5511151231257827e-17;
}

/*!
 * Converts two numbers to two independent, normally distributed numbers with mean 0 and standard deviation 1, by the
 * Box-Muller transform: with the fractions u and v of x and y, sqrt(-2 ln u) sin(2 pi v) and sqrt(-2 ln u) cos(2 pi v).
 *
 * In a kernel the computation uses the same functions as curand_normal4(), and gives equal numbers. Elsewhere it uses
 * the C library's functions, which are more exact: the difference is about 1e-6.
 *
 * @param x A number.
 * @param y Another.
 * @param out Out: the two numbers, the sine first.
 */
PLINTH_PHILOX_FN void plinth_philox_normal(plinth_u32_t x, plinth_u32_t y, float out[2]) {
  const float turn = 2.3283064e-10f * 6.2831855f;
  const float angle = fmaf((float)y, turn, turn / 2.0f);
  const float radius = sqrtf(-2.0f * logf(plinth_philox_uniform(x)));
#if defined(__CUDA_ARCH__)
  float sine, cosine;
  __sincosf(angle, &sine, &cosine);
#else
  const float sine = sinf(angle), cosine = cosf(angle);
#endif
  out[0] = radius * sine;
  out[1] = radius * cosine;
}

/*!
 * As plinth_philox_normal(), in double, as curand_normal2_double() does: u of x and y, v of z and w. Outside of a
 * kernel the difference is a few units in the last place.
 *
 * @param x A number.
 * @param y Another.
 * @param z Another.
 * @param w Another.
 * @param out Out: the two numbers, the sine first.
 */
PLINTH_PHILOX_FN void plinth_philox_normal_double(plinth_u32_t x, plinth_u32_t y, plinth_u32_t z, plinth_u32_t w,
                                                  double out[2]) {
  /* Half turns: twice a fraction, with the same half unit. */
  const plinth_u64_t bits = (plinth_u64_t)z ^ (plinth_u64_t)w << 21;
  const double halves = (double)bits * 2.2204460492503131e-16 + 1.1102230246251565e-16;
  const double radius = sqrt(-2.0 * log(plinth_philox_uniform_double(x, y)));
#if defined(__CUDA_ARCH__)
  double sine, cosine;
  sincospi(halves, &sine, &cosine);
#else
  /* The nearest half turn is taken away first, exactly, so that the product is a small angle. */
  const double whole = floor(halves + 0.5), rest = (halves - whole) * 3.14159265358979323846;
  const double sign = whole > 0.5 && whole < 1.5 ? -1.0 : 1.0;
  const double sine = sign * sin(rest), cosine = sign * cos(rest);
#endif
  out[0] = radius * sine;
  out[1] = radius * cosine;
}

#endif
