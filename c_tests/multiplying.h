/*
 * Helpers of the cuBLAS tests: cuBLAS or its fake, and matrix products.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MULTIPLYING_H
#define MULTIPLYING_H

#include "libraries.h"

#define BLAS "PLINTH_CUBLAS_LIBRARY"
#define SOLVER "PLINTH_CUSOLVER_LIBRARY"

static const char *const blas_names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", NULL};
static const char *const solver_names[] = {"libcusolver.so.12", "libcusolver.so.11", NULL};

/* Uses the fake cuBLAS on the host device, and the real one on a GPU. Skips the test if there is none. */
static inline void need_blas(void) {
  void *handle = NULL;
  if (on_host_device()) {
    name_library(BLAS, "fake_cublas");
    name_library(SOLVER, "fake_cublas");
  } else if (plinth_current_blaslt_handle(&handle) == PLINTH_ERROR_LIBRARY_UNAVAILABLE) {
    SKIP("needs cuBLAS");
  }
}

static inline void need_stand_in(void) {
  need_host_device();
  need_blas();
}

static inline void *handle_now(void) {
  void *handle = UNTOUCHED_POINTER;
  CHECK_OK(plinth_current_blas_handle(&handle));
  CHECK(handle != NULL && handle != UNTOUCHED_POINTER);
  return handle;
}

/* Functions that return the fake's state of a handle. */
#define FAKE_QUERY(type, name)               \
  static inline type name(const void *self) { \
    type (*call)(const void *);       \
    void *found = function_of(BLAS, blas_names, "fake_cublas_" #name); \
    memcpy(&call, &found, sizeof found); \
    return call(self);                  \
  }
FAKE_QUERY(plinth_stream_t, stream)
FAKE_QUERY(void *, workspace)
FAKE_QUERY(size_t, workspace_bytes)
FAKE_QUERY(int, modes)
FAKE_QUERY(int, device)

static inline int handles_made(void) {
  int (*call)(void);
  void *found = function_of(BLAS, blas_names, "fake_cublas_handles");
  memcpy(&call, &found, sizeof found);
  return call();
}

typedef int (*sgemm)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int,
                     const float *, float *, int);

enum { ROWS = 67, COLUMNS = 41, DEPTH = 53 };

typedef struct {
  float *a, *b, *c;
  float host_a[ROWS * DEPTH], host_b[DEPTH * COLUMNS], host_c[ROWS * COLUMNS];
} product;

static inline float number(unsigned *state) {
  *state = *state * 1103515245u + 12345u;
  return (float)((int)(*state >> 16 & 15) - 7);
}

static inline void fill_product(product *made, unsigned seed) {
  for (int index = 0; index < ROWS * DEPTH; index++) {
    made->host_a[index] = number(&seed);
  }
  for (int index = 0; index < DEPTH * COLUMNS; index++) {
    made->host_b[index] = number(&seed);
  }
  put(made->a, made->host_a, sizeof made->host_a);
  put(made->b, made->host_b, sizeof made->host_b);
}

/* Allocates matrices of small integers, so that the product is exact in every order of additions. */
static inline product *new_product(int32_t device, unsigned seed) {
  product *made = (product *)calloc(1, sizeof *made);
  CHECK(made != NULL);
  made->a = (float *)device_memory(sizeof made->host_a, device);
  made->b = (float *)device_memory(sizeof made->host_b, device);
  made->c = (float *)device_memory(sizeof made->host_c, device);
  fill_product(made, seed);
  return made;
}

/* Computes c = a b, in column-major order. */
static inline void multiply(void *handle, product *self) {
  sgemm call;
  void *found = function_of(BLAS, blas_names, "cublasSgemm_v2");
  const float one = 1, zero = 0;
  memcpy(&call, &found, sizeof found);
  CHECK_EQ(call(handle, 0, 0, ROWS, COLUMNS, DEPTH, &one, self->a, ROWS, self->b, DEPTH, &zero, self->c, ROWS), 0);
}

static inline void expect_right(product *self, plinth_stream_t stream) {
  CHECK_OK(plinth_memcpy(self->host_c, self->c, sizeof self->host_c, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  for (int column = 0; column < COLUMNS; column++) {
    for (int row = 0; row < ROWS; row++) {
      float sum = 0;
      for (int step = 0; step < DEPTH; step++) {
        sum += self->host_a[step * ROWS + row] * self->host_b[column * DEPTH + step];
      }
      CHECK(self->host_c[column * ROWS + row] == sum);
    }
  }
}

static inline void free_product(product *self) {
  CHECK_OK(plinth_device_free(self->a));
  CHECK_OK(plinth_device_free(self->b));
  CHECK_OK(plinth_device_free(self->c));
  free(self);
}

/* PyTorch's default sizes of a workspace. */
static inline size_t usual_bytes(void) {
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(0, &properties));
  return properties.major >= 9 && properties.major <= 12 ? 32 * MIB : 8519680;
}

#endif
