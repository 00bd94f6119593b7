/*
 * Helpers for tests of collectives: tensors of any type and layout on any device, and their elements.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef COLLECTING_H
#define COLLECTING_H

#include "allocating.h"

#include <math.h>

/* A first round without a gate: a GPU's driver may wait for the device when a kernel or another device's memory is first used,
 * and that must be done before a gate is shut. */
enum { NO_GATE = -1 };

typedef struct type {
  const char *name;
  DLDataType type;
} type;

static const type types[] = {
    {"float16", {2, 16, 1}},   {"bfloat16", {4, 16, 1}}, {"float32", {2, 32, 1}}, {"float64", {2, 64, 1}},
    {"uint8", {1, 8, 1}},      {"uint16", {1, 16, 1}},   {"uint32", {1, 32, 1}},  {"uint64", {1, 64, 1}},
    {"int8", {0, 8, 1}},       {"int16", {0, 16, 1}},    {"int32", {0, 32, 1}},   {"int64", {0, 64, 1}},
    {"complex64", {5, 64, 1}}, {"complex128", {5, 128, 1}}, {"bool", {6, 8, 1}},
    /* Types that can only be copied. */
    {"float4", {17, 8, 1}},    {"float32x4", {2, 32, 4}},
};

enum { F16, BF16, F32, F64, U8, U16, U32, U64, I8, I16, I32, I64, C64, C128, BOOL, SUMMABLE, F8 = SUMMABLE, F32X4, TYPES };

static inline size_t width_of(int kind) { return (size_t)types[kind].type.bits * types[kind].type.lanes / 8; }

/* Values of `device` for host memory. */
enum { ON_CPU = -1, ON_PINNED = -2 };

enum { MAX_RANK = 6, GUARD_BYTE = 0xEE };

/* A tensor with its own memory, shape and strides. It must not be moved, because `dl` points into it. */
typedef struct test_tensor {
  DLTensor dl;
  int64_t shape[MAX_RANK];
  int64_t strides[MAX_RANK];
  int kind;
  int device;
  unsigned char *memory;
  size_t bytes;
} test_tensor;

static inline int64_t count_of(const test_tensor *tensor) {
  int64_t count = 1;
  for (int32_t index = 0; index < tensor->dl.ndim; index++) {
    count *= tensor->shape[index];
  }
  return count;
}

/* A tensor that a call must refuse, with the status and a part of the message. */
typedef struct refused_tensor {
  int device;
  int kind;
  int32_t rank;
  const int64_t *shape;
  plinth_status_t status;
  const char *message;
} refused_tensor;

/* Makes a tensor `offset` bytes into its memory. Without strides it is contiguous. */
static inline void make_tensor(test_tensor *out, int device, int kind, int32_t rank, const int64_t *shape,
                               const int64_t *strides, size_t offset) {
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

/* Describes an output that the library must allocate, with or without room for its strides. */
static inline void describe_output(test_tensor *out, int device, int32_t rank, bool strides) {
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

static inline void free_tensor(test_tensor *tensor) {
  if (tensor->memory == NULL) {
    return;
  }
  if (tensor->device >= 0) {
    release(tensor->memory);
  } else if (tensor->device == ON_CPU) {
    free(tensor->memory);
  } else {
    CHECK_OK(plinth_pinned_free(tensor->memory));
  }
  tensor->memory = NULL;
}

/* Checks an output that the library allocated, and records its type and strides. With `owned`, free_tensor frees its memory. */
static inline void complete_output(test_tensor *out, int kind, bool owned) {
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

/* The offset in bytes from element 0 to element `index`, counted in row-major order. */
static inline int64_t element_offset(const test_tensor *tensor, int64_t index) {
  int64_t at = 0;
  for (int32_t dimension = tensor->dl.ndim - 1; dimension >= 0; dimension--) {
    at += index % tensor->shape[dimension] * tensor->strides[dimension];
    index /= tensor->shape[dimension];
  }
  return at * (int64_t)width_of(tensor->kind);
}

/* The range of memory that the elements occupy: its start relative to element 0, and its size, in bytes. */
static inline void memory_range(const test_tensor *tensor, int64_t *low, size_t *bytes) {
  int64_t high = 0;
  *low = 0;
  for (int32_t index = 0; index < tensor->dl.ndim; index++) {
    const int64_t last = (tensor->shape[index] - 1) * tensor->strides[index];
    *low += last < 0 ? last : 0;
    high += last > 0 ? last : 0;
  }
  *bytes = (size_t)(high - *low + 1) * width_of(tensor->kind);
  *low *= (int64_t)width_of(tensor->kind);
}

/* Waits for all devices and returns the elements in row-major order. The caller frees them. */
static inline unsigned char *elements_of(const test_tensor *tensor) {
  const int64_t count = count_of(tensor);
  const size_t width = width_of(tensor->kind);
  unsigned char *out = (unsigned char *)pageable_memory((size_t)count * width + 1);
  if (count > 0) {
    int64_t low = 0;
    size_t bytes = 0;
    memory_range(tensor, &low, &bytes);
    unsigned char *raw = (unsigned char *)pageable_memory(bytes);
    synchronize_all();
    fetch(raw, (unsigned char *)tensor->dl.data + tensor->dl.byte_offset + low, bytes);
    for (int64_t index = 0; index < count; index++) {
      memcpy(out + (size_t)index * width, raw + (element_offset(tensor, index) - low), width);
    }
    free(raw);
  }
  return out;
}

/* Sets the elements, and writes GUARD_BYTE to the rest of the tensor's memory. */
static inline void set_elements(const test_tensor *tensor, const unsigned char *elements) {
  const int64_t count = count_of(tensor);
  const size_t width = width_of(tensor->kind);
  unsigned char *raw = (unsigned char *)pageable_memory(tensor->bytes);
  memset(raw, GUARD_BYTE, tensor->bytes);
  for (int64_t index = 0; index < count && elements != NULL; index++) {
    memcpy(raw + tensor->dl.byte_offset + element_offset(tensor, index), elements + (size_t)index * width, width);
  }
  put(tensor->memory, raw, tensor->bytes);
  free(raw);
}

/* Nothing was written to the tensor's memory outside of its elements. */
static inline void expect_guard_bytes(const test_tensor *tensor) {
  unsigned char *raw = (unsigned char *)pageable_memory(tensor->bytes);
  fetch(raw, tensor->memory, tensor->bytes);
  const int64_t count = count_of(tensor);
  for (int64_t index = 0; index < count; index++) {
    memset(raw + tensor->dl.byte_offset + element_offset(tensor, index), GUARD_BYTE, width_of(tensor->kind));
  }
  for (size_t at = 0; at < tensor->bytes; at++) {
    if (raw[at] != GUARD_BYTE) {
      fprintf(stderr, "byte %zu outside of the elements was overwritten\n", at);
      CHECK_EQ(raw[at], GUARD_BYTE);
    }
  }
  free(raw);
}

/* Arbitrary bytes, for tensors that are only copied. The caller frees them. */
static inline unsigned char *pattern_elements(const test_tensor *tensor, unsigned seed) {
  const size_t bytes = (size_t)count_of(tensor) * width_of(tensor->kind);
  unsigned char *out = (unsigned char *)pageable_memory(bytes + 1);
  pattern_fill(out, bytes, seed);
  return out;
}

/* Sets the elements to arbitrary bytes. */
static inline void set_pattern(const test_tensor *tensor, unsigned seed) {
  unsigned char *elements = pattern_elements(tensor, seed);
  set_elements(tensor, elements);
  free(elements);
}

static inline void expect_elements(const test_tensor *tensor, const unsigned char *expected, const char *label) {
  const size_t width = width_of(tensor->kind);
  const size_t bytes = (size_t)count_of(tensor) * width;
  unsigned char *actual = elements_of(tensor);
  for (size_t at = 0; at < bytes; at++) {
    if (actual[at] != expected[at]) {
      fprintf(stderr, "%s: byte %zu of element %zu of %s on device %d\n", label, at % width, at / width,
              types[tensor->kind].name, tensor->device);
      CHECK_EQ(actual[at], expected[at]);
    }
  }
  free(actual);
}

static inline void expect_pattern(const test_tensor *tensor, unsigned seed, const char *label) {
  unsigned char *expected = pattern_elements(tensor, seed);
  expect_elements(tensor, expected, label);
  free(expected);
}

/* An array of descriptors, as the library takes it. `take_descriptors` copies back what the library wrote, and frees it. */
static inline DLTensor *descriptors_of(test_tensor *tensors, size_t count) {
  DLTensor *descriptors = (DLTensor *)pageable_memory((count + 1) * sizeof *descriptors);
  for (size_t index = 0; index < count; index++) {
    descriptors[index] = tensors[index].dl;
  }
  return descriptors;
}

static inline void take_descriptors(test_tensor *tensors, size_t count, DLTensor *descriptors) {
  for (size_t index = 0; index < count; index++) {
    tensors[index].dl = descriptors[index];
  }
  free(descriptors);
}

static inline int64_t random_up_to(uint64_t *state, int64_t max) { return (int64_t)(random_next(state) % (uint64_t)(max + 1)); }

/* Stores a small integer as an element of any summable type, so that sums are exact. */
static inline void store_number(unsigned char *at, int kind, int number) {
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
      store_number(at + 4, F32, -2 * number);
      break;
    case C128:
      memcpy(at, &wide, 8);
      store_number(at + 8, F64, -2 * number);
      break;
    case BOOL:
      at[0] = number != 0;
      break;
    default:
      memcpy(at, &integer, width_of(kind));
  }
}

/* The value of element `index` of input `input`: small, and negative only if the type is signed. */
static inline int number_at(int kind, int input, int64_t index) {
  const int number = (int)pattern_byte((size_t)index, (unsigned)input + 77) % 13;
  if (kind == BOOL) {
    return number == 0;
  }
  return kind == U8 || kind == U16 || kind == U32 || kind == U64 ? number : number - 6;
}

static inline void set_numbers(const test_tensor *tensor, int input) {
  const int64_t count = count_of(tensor);
  unsigned char *elements = (unsigned char *)pageable_memory((size_t)count * width_of(tensor->kind) + 1);
  for (int64_t index = 0; index < count; index++) {
    store_number(elements + (size_t)index * width_of(tensor->kind), tensor->kind, number_at(tensor->kind, input, index));
  }
  set_elements(tensor, elements);
  free(elements);
}

/* The elements are the sum of inputs 0 to `inputs` - 1. */
static inline void expect_sum(const test_tensor *tensor, int inputs, const char *label) {
  const int64_t count = count_of(tensor);
  unsigned char *expected = (unsigned char *)pageable_memory((size_t)count * width_of(tensor->kind) + 1);
  for (int64_t index = 0; index < count; index++) {
    int sum = 0;
    for (int input = 0; input < inputs; input++) {
      sum += number_at(tensor->kind, input, index);
    }
    store_number(expected + (size_t)index * width_of(tensor->kind), tensor->kind, sum);
  }
  expect_elements(tensor, expected, label);
  free(expected);
}

#endif
