/*
 * What the tests of collectives share: tensors of any type and layout on any device, and what is in them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef COLLECTING_H
#define COLLECTING_H

#include "allocating.h"

#include <math.h>

/* Whose stream is held up in a first round: a GPU's driver may wait for the device when a kernel or another device's memory
 * is used for the first time, which must be over before a gate is shut. */
enum { NOBODY = -1 };

typedef struct type {
  const char *name;
  DLDataType type;
} type;

static const type types[] = {
    {"float16", {2, 16, 1}},   {"bfloat16", {4, 16, 1}}, {"float32", {2, 32, 1}}, {"float64", {2, 64, 1}},
    {"uint8", {1, 8, 1}},      {"uint16", {1, 16, 1}},   {"uint32", {1, 32, 1}},  {"uint64", {1, 64, 1}},
    {"int8", {0, 8, 1}},       {"int16", {0, 16, 1}},    {"int32", {0, 32, 1}},   {"int64", {0, 64, 1}},
    {"complex64", {5, 64, 1}}, {"complex128", {5, 128, 1}}, {"bool", {6, 8, 1}},
    /* Types of which copies know only how wide they are. */
    {"float8", {10, 8, 1}},    {"float32x4", {2, 32, 4}},
};

enum { F16, BF16, F32, F64, U8, U16, U32, U64, I8, I16, I32, I64, C64, C128, BOOL, SUMMED, F8 = SUMMED, F32X4, TYPES };

static inline size_t width_of(int kind) { return (size_t)types[kind].type.bits * types[kind].type.lanes / 8; }

/* Devices, and what is none. */
enum { ON_CPU = -1, ON_PINNED = -2 };

enum { MOST_RANK = 6 };

/* A tensor with memory of its own. It must stay where it is. */
typedef struct item {
  DLTensor dl;
  int64_t shape[MOST_RANK];
  int64_t strides[MOST_RANK];
  int kind;
  int device;
  unsigned char *memory;
  size_t bytes;
} item;

static inline int64_t count_of(const item *one) {
  int64_t count = 1;
  for (int32_t index = 0; index < one->dl.ndim; index++) {
    count *= one->shape[index];
  }
  return count;
}

/* A tensor, `offset` bytes into its memory. Without strides it is contiguous. */
static inline void make(item *out, int device, int kind, int32_t rank, const int64_t *shape, const int64_t *strides,
                        size_t offset) {
  int64_t low = 0;
  int64_t high = 0;
  int64_t stride = 1;
  memset(out, 0, sizeof *out);
  out->kind = kind;
  out->device = device;
  out->dl.ndim = rank;
  out->dl.dtype = types[kind].type;
  out->dl.device.device_type = device >= 0 ? 2 : device == ON_CPU ? 1 : 3;
  out->dl.device.device_id = device >= 0 ? device : 0;
  out->dl.shape = out->shape;
  out->dl.strides = strides == NULL ? NULL : out->strides;
  for (int32_t index = rank - 1; index >= 0; index--) {
    out->shape[index] = shape[index];
    out->strides[index] = strides == NULL ? stride : strides[index];
    stride *= shape[index];
    if (shape[index] > 0) {
      const int64_t last = (shape[index] - 1) * out->strides[index];
      low += last < 0 ? last : 0;
      high += last > 0 ? last : 0;
    }
  }
  out->bytes = (size_t)(high - low + 1) * width_of(kind) + offset + 64;
  out->dl.byte_offset = (uint64_t)(-low) * width_of(kind) + offset;
  if (device >= 0) {
    plinth_stream_t stream = NULL;
    CHECK_OK(plinth_current_stream(device, &stream));
    out->memory = alloc_on(out->bytes, device, stream);
  } else {
    out->memory = (unsigned char *)(device == ON_CPU ? pageable_memory(out->bytes) : pinned_memory(out->bytes));
  }
  out->dl.data = out->memory;
}

/* A description of an output that is to be made; with room for strides, or without. */
static inline void want(item *out, int device, int32_t rank, bool strides) {
  memset(out, 0, sizeof *out);
  out->device = device;
  out->dl.device.device_type = 2;
  out->dl.device.device_id = device;
  out->dl.ndim = rank;
  out->dl.shape = out->shape;
  out->dl.strides = strides ? out->strides : NULL;
}

static inline void synchronize_all(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
}

static inline void drop(item *one) {
  if (one->memory == NULL) {
    return;
  }
  if (one->device >= 0) {
    release(one->memory);
  } else if (one->device == ON_CPU) {
    free(one->memory);
  } else {
    CHECK_OK(plinth_pinned_free(one->memory));
  }
  one->memory = NULL;
}

/* Completes the record of a tensor that was made for a wanted output. With `owned`, its memory is dropped with it. */
static inline void adopt(item *out, int kind, bool owned) {
  int64_t stride = 1;
  out->kind = kind;
  out->memory = owned ? (unsigned char *)out->dl.data : NULL;
  CHECK_EQ(out->dl.dtype.code, types[kind].type.code);
  CHECK_EQ(out->dl.dtype.bits, types[kind].type.bits);
  CHECK_EQ(out->dl.dtype.lanes, types[kind].type.lanes);
  CHECK_EQ(out->dl.byte_offset, 0);
  CHECK_EQ(out->dl.device.device_type, 2);
  CHECK_EQ(out->dl.device.device_id, out->device);
  if (out->dl.strides == NULL) {
    for (int32_t index = out->dl.ndim - 1; index >= 0; index--) {
      out->strides[index] = stride;
      stride *= out->shape[index];
    }
  }
}

/* Where element `index` is, counted by the shape with the last dimension's fastest, from element 0 in bytes. */
static inline int64_t place_of(const item *one, int64_t index) {
  int64_t at = 0;
  for (int32_t dimension = one->dl.ndim - 1; dimension >= 0; dimension--) {
    at += index % one->shape[dimension] * one->strides[dimension];
    index /= one->shape[dimension];
  }
  return at * (int64_t)width_of(one->kind);
}

/* How far the elements reach: from the least to the greatest, in bytes from element 0. */
static inline void reach_of(const item *one, int64_t *low, size_t *bytes) {
  int64_t high = 0;
  *low = 0;
  for (int32_t index = 0; index < one->dl.ndim; index++) {
    const int64_t last = (one->shape[index] - 1) * one->strides[index];
    *low += last < 0 ? last : 0;
    high += last > 0 ? last : 0;
  }
  *bytes = (size_t)(high - *low + 1) * width_of(one->kind);
  *low *= (int64_t)width_of(one->kind);
}

/* The elements in the order of their indices, once all devices are done. Free them. */
static inline unsigned char *elements_of(const item *one) {
  const int64_t count = count_of(one);
  const size_t width = width_of(one->kind);
  unsigned char *out = (unsigned char *)pageable_memory((size_t)count * width + 1);
  if (count > 0) {
    int64_t low = 0;
    size_t bytes = 0;
    reach_of(one, &low, &bytes);
    unsigned char *raw = (unsigned char *)pageable_memory(bytes);
    synchronize_all();
    fetch(raw, (unsigned char *)one->dl.data + one->dl.byte_offset + low, bytes);
    for (int64_t index = 0; index < count; index++) {
      memcpy(out + (size_t)index * width, raw + (place_of(one, index) - low), width);
    }
    free(raw);
  }
  return out;
}

/* Gives a tensor these elements, and a mark to all of its memory beside them. */
static inline void set_elements(const item *one, const unsigned char *elements) {
  const int64_t count = count_of(one);
  const size_t width = width_of(one->kind);
  unsigned char *raw = (unsigned char *)pageable_memory(one->bytes);
  memset(raw, 0xEE, one->bytes);
  for (int64_t index = 0; index < count && elements != NULL; index++) {
    memcpy(raw + one->dl.byte_offset + place_of(one, index), elements + (size_t)index * width, width);
  }
  put(one->memory, raw, one->bytes);
  free(raw);
}

/* Whether the memory beside a tensor's elements still has its mark. */
static inline void expect_marks(const item *one) {
  unsigned char *raw = (unsigned char *)pageable_memory(one->bytes);
  fetch(raw, one->memory, one->bytes);
  const int64_t count = count_of(one);
  for (int64_t index = 0; index < count; index++) {
    memset(raw + one->dl.byte_offset + place_of(one, index), 0xEE, width_of(one->kind));
  }
  for (size_t at = 0; at < one->bytes; at++) {
    if (raw[at] != 0xEE) {
      fprintf(stderr, "byte %zu beside the elements was written\n", at);
      CHECK_EQ(raw[at], 0xEE);
    }
  }
  free(raw);
}

/* Bytes without meaning, for tensors that are only copied. Free them. */
static inline unsigned char *some_elements(const item *one, unsigned seed) {
  const size_t bytes = (size_t)count_of(one) * width_of(one->kind);
  unsigned char *out = (unsigned char *)pageable_memory(bytes + 1);
  pattern_fill(out, bytes, seed);
  return out;
}

/* Fills a tensor with bytes without meaning. */
static inline void set_some(const item *one, unsigned seed) {
  unsigned char *elements = some_elements(one, seed);
  set_elements(one, elements);
  free(elements);
}

static inline void expect_elements(const item *one, const unsigned char *expected, const char *what) {
  const size_t width = width_of(one->kind);
  const size_t bytes = (size_t)count_of(one) * width;
  unsigned char *actual = elements_of(one);
  for (size_t at = 0; at < bytes; at++) {
    if (actual[at] != expected[at]) {
      fprintf(stderr, "%s: byte %zu of element %zu of %s on device %d\n", what, at % width, at / width,
              types[one->kind].name, one->device);
      CHECK_EQ(actual[at], expected[at]);
    }
  }
  free(actual);
}

static inline void expect_some(const item *one, unsigned seed, const char *what) {
  unsigned char *expected = some_elements(one, seed);
  expect_elements(one, expected, what);
  free(expected);
}

/* Descriptions in a row, as the library takes them. Those that it writes are taken back by `unrow`. */
static inline DLTensor *row_of(item *items, size_t count) {
  DLTensor *row = (DLTensor *)pageable_memory((count + 1) * sizeof *row);
  for (size_t index = 0; index < count; index++) {
    row[index] = items[index].dl;
  }
  return row;
}

static inline void unrow(item *items, size_t count, DLTensor *row) {
  for (size_t index = 0; index < count; index++) {
    items[index].dl = row[index];
  }
  free(row);
}

static inline int64_t up_to(uint64_t *state, int64_t most) { return (int64_t)(random_next(state) % (uint64_t)(most + 1)); }

/* Small whole numbers as elements of any type that can be added, so that sums are exact. */
static inline void put_number(unsigned char *at, int kind, int number) {
  const float narrow = (float)number;
  const double wide = number;
  uint32_t bits;
  uint16_t half = 0;
  const int64_t integer = number;
  memcpy(&bits, &narrow, 4);
  switch (kind) {
    case F16:
      if (number != 0) {
        const int magnitude = number < 0 ? -number : number;
        int exponent = 0;
        while (magnitude >> (exponent + 1) != 0) {
          exponent++;
        }
        half = (uint16_t)((number < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | ((magnitude << 10 >> exponent) & 0x3FF));
      }
      memcpy(at, &half, 2);
      break;
    case BF16:
      half = (uint16_t)(bits >> 16);
      memcpy(at, &half, 2);
      break;
    case F32:
      memcpy(at, &narrow, 4);
      break;
    case F64:
      memcpy(at, &wide, 8);
      break;
    case C64:
      memcpy(at, &narrow, 4);
      put_number(at + 4, F32, -2 * number);
      break;
    case C128:
      memcpy(at, &wide, 8);
      put_number(at + 8, F64, -2 * number);
      break;
    case BOOL:
      at[0] = number != 0;
      break;
    default:
      memcpy(at, &integer, width_of(kind));
  }
}

/* The number of element `index` of input `input`: small, and of either sign unless the type has none. */
static inline int number_at(int kind, int input, int64_t index) {
  const int number = (int)pattern_byte((size_t)index, (unsigned)input + 77) % 13;
  if (kind == BOOL) {
    return number == 0;
  }
  return kind == U8 || kind == U16 || kind == U32 || kind == U64 ? number : number - 6;
}

static inline void set_numbers(const item *one, int input) {
  const int64_t count = count_of(one);
  unsigned char *elements = (unsigned char *)pageable_memory((size_t)count * width_of(one->kind) + 1);
  for (int64_t index = 0; index < count; index++) {
    put_number(elements + (size_t)index * width_of(one->kind), one->kind, number_at(one->kind, input, index));
  }
  set_elements(one, elements);
  free(elements);
}

/* The sum of inputs 0 to `inputs` - 1. */
static inline void expect_sum(const item *one, int inputs, const char *what) {
  const int64_t count = count_of(one);
  unsigned char *expected = (unsigned char *)pageable_memory((size_t)count * width_of(one->kind) + 1);
  for (int64_t index = 0; index < count; index++) {
    int sum = 0;
    for (int input = 0; input < inputs; input++) {
      sum += number_at(one->kind, input, index);
    }
    put_number(expected + (size_t)index * width_of(one->kind), one->kind, sum);
  }
  expect_elements(one, expected, what);
  free(expected);
}

#endif
