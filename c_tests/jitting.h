/*
 * Helpers of the jiterator tests: tensors of every type, in device memory and in a copy on the host, and their elements as
 * numbers.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef JITTING_H
#define JITTING_H

#include "support.h"

#include <math.h>

enum { F16, BF16, F32, F64, U8, U16, U32, U64, I8, I16, I32, I64, BOOL, C64, C128, DTYPES };

static const DLDataType dtypes[DTYPES] = {
    {2, 16, 1}, {4, 16, 1}, {2, 32, 1}, {2, 64, 1}, {1, 8, 1},  {1, 16, 1}, {1, 32, 1},  {1, 64, 1},
    {0, 8, 1},  {0, 16, 1}, {0, 32, 1}, {0, 64, 1}, {6, 8, 1}, {5, 64, 1}, {5, 128, 1},
};

/* A complex number, or a real one. */
typedef struct number {
  double re, im;
} number;

enum { MOST_DIMENSIONS = 25 };

/* A tensor: device memory, its copy on the host, and the offset of the first element in both. */
typedef struct tensor {
  DLTensor dl;
  int kind;
  int64_t shape[MOST_DIMENSIONS];
  int64_t strides[MOST_DIMENSIONS];
  unsigned char *device;
  unsigned char *host;
  size_t bytes;
  size_t first;
} tensor;

static inline size_t bytes_of(int kind) { return dtypes[kind].bits / 8u; }

/* Conversions of float16, for numbers that it represents exactly. */
static inline double of_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 0    ? ldexp(fraction, -24)
                           : exponent == 31 ? (fraction ? NAN : INFINITY)
                                            : ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

/* The smallest half whose magnitude is not below the value's, found by bisection. */
static inline uint16_t to_half(double value) {
  int bits = 0, high = 0x7c00;
  while (bits < high) {
    const int middle = (bits + high) / 2;
    if (of_half((uint16_t)middle) < fabs(value)) {
      bits = middle + 1;
    } else {
      high = middle;
    }
  }
  return (uint16_t)(bits | (value < 0 ? 0x8000 : 0));
}

static inline number get(const tensor *from, size_t offset) {
  const unsigned char *address = from->host + offset;
  number value = {0, 0};
  uint16_t half;
  uint32_t word;
  float pair[2];
  int16_t short_integer;
  int32_t integer;
  int64_t long_integer;
  uint64_t long_word;
  switch (from->kind) {
    case F16: memcpy(&half, address, 2); value.re = of_half(half); break;
    case BF16:
      memcpy(&half, address, 2);
      word = (uint32_t)half << 16;
      memcpy(pair, &word, 4);
      value.re = pair[0];
      break;
    case F32: memcpy(pair, address, 4); value.re = pair[0]; break;
    case F64: memcpy(&value.re, address, 8); break;
    case U8: value.re = *address; break;
    case U16: memcpy(&half, address, 2); value.re = half; break;
    case U32: memcpy(&word, address, 4); value.re = word; break;
    case U64: memcpy(&long_word, address, 8); value.re = (double)long_word; break;
    case I8: value.re = (signed char)*address; break;
    case I16: memcpy(&short_integer, address, 2); value.re = short_integer; break;
    case I32: memcpy(&integer, address, 4); value.re = integer; break;
    case I64: memcpy(&long_integer, address, 8); value.re = (double)long_integer; break;
    case BOOL: value.re = *address != 0; break;
    case C64: memcpy(pair, address, 8); value.re = pair[0]; value.im = pair[1]; break;
    default: memcpy(&value, address, 16); break;
  }
  return value;
}

static inline void set(tensor *to, size_t offset, number value) {
  unsigned char *address = to->host + offset;
  uint16_t half;
  uint32_t word;
  float pair[2];
  int64_t integer;
  pair[0] = (float)value.re;
  pair[1] = (float)value.im;
  switch (to->kind) {
    case F16: half = to_half(value.re); memcpy(address, &half, 2); break;
    case BF16:
      memcpy(&word, pair, 4);
      half = (uint16_t)(word >> 16);
      memcpy(address, &half, 2);
      break;
    case F32: memcpy(address, pair, 4); break;
    case F64: memcpy(address, &value.re, 8); break;
    case BOOL: *address = value.re != 0; break;
    case C64: memcpy(address, pair, 8); break;
    case C128: memcpy(address, &value, 16); break;
    default:
      integer = (int64_t)value.re;
      memcpy(address, &integer, bytes_of(to->kind));
      break;
  }
}

/* Returns the number of elements of a shape. */
static inline int64_t count_of(int32_t rank, const int64_t *shape) {
  int64_t count = 1;
  for (int32_t dimension = 0; dimension < rank; dimension++) {
    count *= shape[dimension];
  }
  return count;
}

enum { MARGIN = 64 };

/* Makes a tensor with a shape, with strides in elements or NULL, `shift` bytes after an aligned address. All bytes of its
 * memory are 0xA5, also those between elements. Free it with `drop`. */
static inline void make(tensor *out, int kind, int32_t rank, const int64_t *shape, const int64_t *strides, size_t shift) {
  int64_t low = 0, high = 0, stride = 1;
  const int64_t size = (int64_t)bytes_of(kind);
  memset(out, 0, sizeof *out);
  out->kind = kind;
  out->dl.device.device_type = 2;
  out->dl.dtype = dtypes[kind];
  out->dl.ndim = rank;
  out->dl.shape = out->shape;
  for (int32_t dimension = rank - 1; dimension >= 0; dimension--) {
    out->shape[dimension] = shape[dimension];
    out->strides[dimension] = strides != NULL ? strides[dimension] : stride;
    stride *= shape[dimension];
    if (shape[dimension] > 0) {
      const int64_t reach = (shape[dimension] - 1) * out->strides[dimension];
      *(reach < 0 ? &low : &high) += reach;
    }
  }
  out->dl.strides = strides != NULL ? out->strides : NULL;
  out->bytes = (size_t)((high - low + 1) * size) + shift + (size_t)(2 * MARGIN);
  out->first = (size_t)(-low * size) + shift + MARGIN;
  out->device = (unsigned char *)device_memory(out->bytes, 0);
  out->host = (unsigned char *)pageable_memory(out->bytes);
  memset(out->host, 0xA5, out->bytes);
  out->dl.data = out->device + out->first;
}

static inline void upload(tensor *out) { put(out->device, out->host, out->bytes); }

static inline void drop(tensor *out) {
  CHECK_OK(plinth_device_free(out->device));
  free(out->host);
}

/* Returns the offset of element `index`, in row-major order of `shape`, in a tensor that is broadcast to that shape. */
static inline size_t offset_of_element(const tensor *self, int64_t index, int32_t rank, const int64_t *shape) {
  int64_t offset = 0;
  for (int32_t dimension = rank - 1; dimension >= 0; dimension--) {
    const int32_t own_dimension = dimension - (rank - self->dl.ndim);
    const int64_t step = index % shape[dimension];
    index /= shape[dimension];
    if (own_dimension >= 0 && self->shape[own_dimension] != 1) {
      offset += step * self->strides[own_dimension];
    }
  }
  return self->first + (size_t)(offset * (int64_t)bytes_of(self->kind));
}

/* Fills a tensor with small integers, which every type represents. */
static inline void fill_small(tensor *out, uint64_t seed) {
  const int64_t count = count_of(out->dl.ndim, out->shape);
  for (int64_t index = 0; index < count; index++) {
    number value = {(double)(random_next(&seed) % 13), (double)(random_next(&seed) % 7)};
    if (out->kind < C64) {
      value.im = 0;
    }
    if (out->kind == BOOL) {
      value.re = (double)((int)value.re % 2);
    }
    set(out, offset_of_element(out, index, out->dl.ndim, out->shape), value);
  }
  upload(out);
}

/* Makes a one-dimensional tensor of small integers. */
static inline void make_row(tensor *out, int kind, int64_t count, uint64_t seed) {
  make(out, kind, 1, &count, NULL, 0);
  fill_small(out, seed);
}

static inline plinth_jit_function_t jit(const char *code) {
  plinth_jit_function_t function = NULL;
  CHECK_OK(plinth_jiterator_create_jit_fn(code, NULL, 0, &function));
  CHECK(function != NULL);
  return function;
}

static inline plinth_status_t call1(plinth_jit_function_t function, tensor *x, tensor *out, plinth_stream_t stream) {
  const DLTensor *inputs[1] = {&x->dl};
  DLTensor *outputs[1] = {&out->dl};
  return plinth_jiterator_call(function, inputs, 1, outputs, 1, NULL, 0, stream);
}

static inline plinth_status_t call2(plinth_jit_function_t function, tensor *x, tensor *y, tensor *out,
                                    plinth_stream_t stream) {
  const DLTensor *inputs[2] = {&x->dl, &y->dl};
  DLTensor *outputs[1] = {&out->dl};
  return plinth_jiterator_call(function, inputs, 2, outputs, 1, NULL, 0, stream);
}

typedef number (*model)(number x, number y);

static inline number model_add(number x, number y) {
  number sum = {x.re + y.re, x.im + y.im};
  return sum;
}

/* Calls a function of two inputs. Expects the model's result in every element, and unchanged bytes between elements. */
static inline void expect_call(plinth_jit_function_t function, tensor *x, tensor *y, tensor *out, model expected_of) {
  const int32_t rank = out->dl.ndim;
  const int64_t count = count_of(rank, out->shape);
  unsigned char *expected = (unsigned char *)pageable_memory(out->bytes);
  upload(out);
  for (int64_t index = 0; index < count; index++) {
    const number first = get(x, offset_of_element(x, index, rank, out->shape));
    const number second = get(y, offset_of_element(y, index, rank, out->shape));
    const number value = expected_of(first, second);
    set(out, offset_of_element(out, index, rank, out->shape), value);
  }
  memcpy(expected, out->host, out->bytes);
  CHECK_OK(call2(function, x, y, out, NULL));
  fetch(out->host, out->device, out->bytes);
  for (size_t offset = 0; offset < out->bytes; offset++) {
    if (out->host[offset] != expected[offset]) {
      fprintf(stderr, "byte %zu of %zu (first element at %zu) is %#x instead of %#x\n", offset, out->bytes, out->first,
              out->host[offset], expected[offset]);
      CHECK(out->host[offset] == expected[offset]);
    }
  }
  free(expected);
}

#define ADD "template <typename T> T add(T x, T y) { return x + y; }"

#endif
