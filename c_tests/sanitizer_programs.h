/*
 * Helpers of the small programs that the stream sanitizer checks. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef SANITIZER_PROGRAMS_H
#define SANITIZER_PROGRAMS_H

#include "driver.h"
#include "sanitizing.h"

#define SIZE (64 * KIB)

/* The program's streams and memory. */
static plinth_stream_t a, b, c;
static unsigned char *memory, *other;

static inline void begin(void) {
  enable_sanitizer();
  a = stream_on(0);
  b = stream_on(0);
  c = stream_on(0);
  memory = alloc_on(SIZE, 0, a);
  other = alloc_on(SIZE, 0, a);
}

static inline void set(void *pointer, plinth_stream_t stream) { CHECK_OK(plinth_memset(pointer, 7, SIZE, stream)); }
static inline void copy(void *to, const void *from, plinth_stream_t stream) {
  CHECK_OK(plinth_memcpy(to, from, SIZE, stream));
}

static inline DLTensor floats(void *pointer, int64_t *shape, int64_t *strides, int32_t rank, int32_t device) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = pointer;
  tensor.device.device_type = 2;
  tensor.device.device_id = device;
  tensor.ndim = rank;
  tensor.dtype.code = 2;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  tensor.strides = strides;
  return tensor;
}

static int64_t elements[1] = {SIZE / 4};

static inline void normal(void *pointer, plinth_stream_t stream) {
  DLTensor tensor = floats(pointer, elements, NULL, 1, 0);
  CHECK_OK(plinth_normal(&tensor, 0.0, 1.0, NULL, stream));
}

#endif
