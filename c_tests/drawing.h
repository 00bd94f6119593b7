/*
 * Helpers for tests of random numbers: tensors, generators, and a second implementation of the numbers.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef DRAWING_H
#define DRAWING_H

#include "support.h"

#include <math.h>

#define DEFAULT_SEED UINT64_C(67280421310721)

/* A dtype, and whether it is a floating-point type. */
typedef struct dtype {
  const char *name;
  DLDataType type;
  bool floating;
} dtype;

static const dtype dtypes[] = {
    {"float16", {2, 16, 1}, true}, {"bfloat16", {4, 16, 1}, true}, {"float32", {2, 32, 1}, true},
    {"float64", {2, 64, 1}, true}, {"uint8", {1, 8, 1}, false},    {"int8", {0, 8, 1}, false},
    {"int16", {0, 16, 1}, false},  {"int32", {0, 32, 1}, false},   {"int64", {0, 64, 1}, false},
    {"bool", {6, 8, 1}, false},
};

enum { F16, BF16, F32, F64, U8, I8, I16, I32, I64, BOOL, DTYPES };

static inline size_t bytes_of(int kind) { return dtypes[kind].type.bits / 8u; }

/* A tensor with its own shape and strides. It must not be moved, because `dl` points into it. */
typedef struct tensor {
  DLTensor dl;
  int64_t shape[32];
  int64_t strides[32];
} tensor;

static inline DLTensor *describe(tensor *out, void *data, int kind, int32_t rank, const int64_t *shape,
                                 const int64_t *strides) {
  memset(out, 0, sizeof *out);
  out->dl.data = data;
  out->dl.device.device_type = 2;
  out->dl.dtype = dtypes[kind].type;
  out->dl.ndim = rank;
  if (rank > 0) {
    memcpy(out->shape, shape, (size_t)rank * sizeof *shape);
  }
  out->dl.shape = out->shape;
  if (strides != NULL) {
    memcpy(out->strides, strides, (size_t)rank * sizeof *strides);
    out->dl.strides = out->strides;
  }
  return &out->dl;
}

/* A contiguous tensor of one dimension. */
static inline DLTensor *row(tensor *out, void *data, int kind, int64_t count) {
  return describe(out, data, kind, 1, &count, NULL);
}

static inline plinth_generator_t new_generator(int32_t device, uint64_t seed, uint64_t offset) {
  plinth_generator_t generator = NULL;
  CHECK_OK(plinth_generator_create(device, &generator));
  CHECK(generator != NULL);
  CHECK_OK(plinth_generator_manual_seed(generator, seed));
  CHECK_OK(plinth_generator_set_offset(generator, offset));
  return generator;
}

static inline uint64_t offset_of(plinth_generator_t generator) {
  uint64_t offset = UNTOUCHED;
  CHECK_OK(plinth_generator_get_offset(generator, &offset));
  return offset;
}

static inline uint64_t seed_of(plinth_generator_t generator) {
  uint64_t seed = UNTOUCHED;
  CHECK_OK(plinth_generator_initial_seed(generator, &seed));
  return seed;
}

/* The state of a generator with this seed and offset, in the format of get_state. */
static inline void state_of(uint64_t seed, uint64_t offset, uint8_t state[16]) {
  memcpy(state, &seed, 8);
  memcpy(state + 8, &offset, 8);
}

/* The number of Philox subsequences in a fill of `count` elements, which is the number of threads that PyTorch launches. */
static inline uint64_t lanes_of(int64_t count) {
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  uint64_t most;
  uint64_t blocks = ((uint64_t)count + 255) / 256;
  CHECK_OK(plinth_get_device_properties(0, &properties));
  most = (uint64_t)properties.multi_processor_count * (uint64_t)(properties.max_threads_per_multi_processor / 256);
  return 256 * (blocks < most ? blocks : most);
}

/* By how much a fill advances the offset; `unroll` is 4, or 2 if an element takes 64 random bits. */
static inline uint64_t advance_of(int64_t count, int unroll) {
  return count == 0 ? 0 : (((uint64_t)count - 1) / (lanes_of(count) * (uint64_t)unroll) + 1) * 4;
}

/* Philox 4x32-10: call number `call` of subsequence `lane`. */
static inline void philox(uint64_t seed, uint64_t lane, uint64_t call, uint32_t out[4]) {
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  int round;
  out[0] = (uint32_t)call;
  out[1] = (uint32_t)(call >> 32);
  out[2] = (uint32_t)lane;
  out[3] = (uint32_t)(lane >> 32);
  for (round = 0; round < 10; round++) {
    const uint64_t first = UINT64_C(0xD2511F53) * out[0];
    const uint64_t third = UINT64_C(0xCD9E8D57) * out[2];
    const uint32_t second = out[1];
    out[0] = (uint32_t)(third >> 32) ^ second ^ key[0];
    out[1] = (uint32_t)third;
    out[2] = (uint32_t)(first >> 32) ^ out[3] ^ key[1];
    out[3] = (uint32_t)first;
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

/* The 32 random bits of element `index` in a fill of `count` that started at `offset`. */
static inline uint32_t word_at(uint64_t seed, uint64_t offset, int64_t index, int64_t count) {
  const uint64_t lanes = lanes_of(count);
  const uint64_t line = (uint64_t)index / lanes;
  uint32_t words[4];
  philox(seed, (uint64_t)index % lanes, offset / 4 + line / 4, words);
  return words[line % 4];
}

/* The same for an element that takes 64 bits: the earlier word is the high one. */
static inline uint64_t long_at(uint64_t seed, uint64_t offset, int64_t index, int64_t count) {
  const uint64_t lanes = lanes_of(count);
  const uint64_t line = (uint64_t)index / lanes;
  uint32_t words[4];
  philox(seed, (uint64_t)index % lanes, offset / 4 + line / 2, words);
  return (uint64_t)words[line % 2 * 2] << 32 | words[line % 2 * 2 + 1];
}

/* Converts a word to a float32 in (0, 1]; a uniform fill replaces 1 by 0. The sum is exact as a double, so that it is rounded
 * once. */
static inline float fraction(uint32_t word) { return (float)((double)(float)word * 0x1p-32 + 0x1p-33); }

static inline float uniform_at(uint64_t seed, uint64_t offset, int64_t index, int64_t count) {
  const float number = fraction(word_at(seed, offset, index, count));
  return number == 1.0f ? 0.0f : number;
}

/* Converts an element of any dtype to a double. */
static inline double number_at(const void *memory, int kind, int64_t index) {
  const unsigned char *at = (const unsigned char *)memory + (size_t)index * bytes_of(kind);
  uint16_t half;
  uint32_t word;
  float narrow;
  double wide;
  int64_t integer;
  memcpy(&half, at, 2 <= bytes_of(kind) ? 2 : 0);
  switch (kind) {
    case F16: {
      const int exponent = half >> 10 & 31;
      const double fractional = (double)(half & 1023);
      const double magnitude = exponent == 31  ? (fractional != 0 ? NAN : INFINITY)
                               : exponent == 0 ? ldexp(fractional, -24)
                                               : ldexp(fractional + 1024, exponent - 25);
      return half >> 15 ? -magnitude : magnitude;
    }
    case BF16:
      word = (uint32_t)half << 16;
      memcpy(&narrow, &word, 4);
      return narrow;
    case F32:
      memcpy(&narrow, at, 4);
      return narrow;
    case F64:
      memcpy(&wide, at, 8);
      return wide;
    case I8:
      return *(const int8_t *)at;
    case I16:
      return (int16_t)half;
    case I32:
      memcpy(&word, at, 4);
      return (int32_t)word;
    case I64:
      memcpy(&integer, at, 8);
      return (double)integer;
    default:
      return *at;
  }
}

/* The fills with one signature, so that tests can iterate over them. */
typedef plinth_status_t (*fill_call)(DLTensor *out, plinth_generator_t generator, plinth_stream_t stream);

#define FILL(identifier, call)                                                                               \
  static inline plinth_status_t identifier(DLTensor *out, plinth_generator_t generator, plinth_stream_t stream) { \
    return call;                                                                                             \
  }
FILL(draw_uniform, plinth_uniform(out, 0, 1, generator, stream))
FILL(draw_normal, plinth_normal(out, 0, 1, generator, stream))
FILL(draw_log_normal, plinth_log_normal(out, 0, 1, generator, stream))
FILL(draw_exponential, plinth_exponential(out, 1, generator, stream))
FILL(draw_cauchy, plinth_cauchy(out, 0, 1, generator, stream))
FILL(draw_geometric, plinth_geometric(out, 0.5, generator, stream))
FILL(draw_bernoulli, plinth_bernoulli(out, 0.5, generator, stream))
FILL(draw_random, plinth_random(out, generator, stream))
FILL(draw_random_from, plinth_random_range(out, 0, PLINTH_RANDOM_TO_LARGEST, generator, stream))
FILL(draw_random_range, plinth_random_range(out, 0, 2, generator, stream))
FILL(draw_randperm, plinth_randperm(out, generator, stream))
#undef FILL

/* A fill, and the dtypes that it accepts. The last fill accepts only tensors of one dimension. */
typedef struct fill {
  const char *name;
  fill_call call;
  bool integers;
  bool booleans;
} fill;

static const fill fills[] = {
    {"uniform", draw_uniform, false, false},         {"normal", draw_normal, false, false},
    {"log_normal", draw_log_normal, false, false},   {"exponential", draw_exponential, false, false},
    {"cauchy", draw_cauchy, false, false},           {"geometric", draw_geometric, true, false},
    {"bernoulli", draw_bernoulli, true, true},       {"random", draw_random, true, true},
    {"random_from", draw_random_from, true, true},   {"random_range", draw_random_range, true, true},
    {"randperm", draw_randperm, true, false},
};

enum { FILLS = sizeof fills / sizeof fills[0], RANDPERM = FILLS - 1 };

static inline bool takes(const fill *one, int kind) {
  if (kind == BF16 && one->call == draw_randperm) {
    return false;
  }
  return dtypes[kind].floating || (kind == BOOL ? one->booleans : one->integers);
}

#endif
