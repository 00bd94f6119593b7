/*
 * A fake of cuBLAS, cuBLASLt and cuSOLVER that works on the host device: handles, and some functions, which run as host
 * functions in streams. It is at least as strict as the libraries: setting a stream removes the workspace, a product fails
 * if no workspace is set, and the process aborts if two threads use a handle at the same time.
 *
 * Environment variables, which each call reads:
 *   FAKE_CUBLAS_FAIL=cublasCreate_v2:3   this call fails with this code
 *   FAKE_CUBLAS_ALLOCATES=1              creating a handle calls driver functions that a capture may forbid
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "faking.h"

#include <plinth.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };
enum { MAGIC = 0x6B1A5 };

typedef struct handle {
  int magic, device;
  plinth_stream_t stream;
  void *workspace;
  size_t bytes;
  bool has_workspace;
  int pointer_mode, math_mode, atomics_mode;
  atomic_int busy;
  struct handle *next;
} handle;

/* Work in a stream. It is never freed, because a graph may replay it. */
typedef struct task {
  int transposed_a, transposed_b, rows, columns, depth, lda, ldb, ldc;
  float alpha, beta;
  const float *a, *b;
  float *c, *workspace;
  size_t bytes;
  int *info;
  struct task *next;
} task;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static handle *handles;
static task *tasks;

#ifndef FOR_GPUS
EXPORT int plinth_cublas_on_host_device = 1;
EXPORT int plinth_cusolver_on_host_device = 1;
#endif

static int fault(const char *call) { return fault_of("FAKE_CUBLAS_FAIL", call); }
#define MAY_FAIL(call)                \
  do {                                \
    const int code = fault(#call);    \
    if (code != SUCCESS) return code; \
  } while (0)

/* Whether the driver can allocate memory now, which a capture may forbid. */
static bool can_allocate(void) {
  int (*allocate)(uint64_t *, size_t);
  uint64_t memory = 0;
  void *symbol = entry_point("cuMemAlloc");
  memcpy(&allocate, &symbol, sizeof symbol);
  return allocate(&memory, 1024) == 0;
}

static int create(void **out) {
  handle *made = calloc(1, sizeof *made);
  made->magic = MAGIC;
  if (getenv("FAKE_CUBLAS_ALLOCATES") != NULL) {
    int (*device_of_context)(int *);
    void *symbol = entry_point("cuCtxGetDevice");
    memcpy(&device_of_context, &symbol, sizeof symbol);
    if (device_of_context(&made->device) != 0 || !can_allocate()) {
      free(made);
      return NOT_INITIALIZED;
    }
  }
  pthread_mutex_lock(&lock);
  made->next = handles;
  handles = made;
  pthread_mutex_unlock(&lock);
  *out = made;
  return SUCCESS;
}

/* Begins a call with a handle. plinth must not give a handle to two threads, so that is fatal. */
static bool begin(handle *self) {
  if (self == NULL || self->magic != MAGIC) return false;
  if (atomic_exchange(&self->busy, 1) != 0) abort();
  return true;
}

static int end(handle *self, int code) {
  atomic_store(&self->busy, 0);
  return code;
}

EXPORT int cublasCreate_v2(void **out) {
  MAY_FAIL(cublasCreate_v2);
  return create(out);
}

EXPORT int cublasSetStream_v2(handle *self, plinth_stream_t stream) {
  MAY_FAIL(cublasSetStream_v2);
  if (!begin(self)) return NOT_INITIALIZED;
  self->stream = stream;
  self->has_workspace = false;
  return end(self, SUCCESS);
}

EXPORT int cublasSetWorkspace_v2(handle *self, void *workspace, size_t bytes) {
  MAY_FAIL(cublasSetWorkspace_v2);
  if (!begin(self)) return NOT_INITIALIZED;
  if (((uintptr_t)workspace & 255) != 0 || (workspace == NULL) != (bytes == 0)) return end(self, INVALID_VALUE);
  self->workspace = workspace;
  self->bytes = bytes;
  self->has_workspace = true;
  return end(self, SUCCESS);
}

EXPORT int cublasSetPointerMode_v2(handle *self, int mode) {
  MAY_FAIL(cublasSetPointerMode_v2);
  self->pointer_mode = mode;
  return SUCCESS;
}

EXPORT int cublasSetMathMode(handle *self, int mode) {
  self->math_mode = mode;
  return SUCCESS;
}

EXPORT int cublasSetAtomicsMode(handle *self, int mode) {
  self->atomics_mode = mode;
  return SUCCESS;
}

static int launch(plinth_stream_t stream, void (*body)(void *), task *job) {
  int (*launch_host_function)(plinth_stream_t, void (*)(void *), void *);
  void *symbol = entry_point("cuLaunchHostFunc");
  memcpy(&launch_host_function, &symbol, sizeof symbol);
  pthread_mutex_lock(&lock);
  job->next = tasks;
  tasks = job;
  pthread_mutex_unlock(&lock);
  return launch_host_function(stream, body, job) == 0 ? SUCCESS : EXECUTION_FAILED;
}

/* Computes in the workspace if the product fits, so that a test fails if two products share a workspace. */
static void multiply(void *context) {
  const task *job = context;
  const bool fits = job->bytes >= sizeof(float) * (size_t)job->rows * (size_t)job->columns;
  for (int pass = 0; pass < 2; pass++) {
    for (int column = 0; column < job->columns; column++) {
      for (int row = 0; row < job->rows; row++) {
        float *c = &job->c[column * job->ldc + row], *partial = &job->workspace[column * job->rows + row];
        if (pass == 1) {
          if (fits) *c = job->alpha * *partial + (job->beta != 0 ? job->beta * *c : 0);
          continue;
        }
        float sum = 0;
        for (int step = 0; step < job->depth; step++) {
          sum += job->a[job->transposed_a ? row * job->lda + step : step * job->lda + row] *
                 job->b[job->transposed_b ? step * job->ldb + column : column * job->ldb + step];
        }
        if (fits) {
          *partial = sum;
        } else {
          *c = job->alpha * sum + (job->beta != 0 ? job->beta * *c : 0);
        }
      }
    }
  }
}

EXPORT int cublasSgemm_v2(handle *self, int op_a, int op_b, int rows, int columns, int depth, const float *alpha,
                          const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
  MAY_FAIL(cublasSgemm_v2);
  if (!begin(self)) return NOT_INITIALIZED;
  if (!self->has_workspace) return end(self, EXECUTION_FAILED);
  task *job = malloc(sizeof *job);
  *job = (task){op_a != 0, op_b != 0, rows, columns, depth, lda, ldb, ldc, *alpha, *beta, a, b, c, self->workspace,
                self->bytes, NULL, NULL};
  return end(self, launch(self->stream, multiply, job));
}

/* ---- cuBLASLt */

typedef struct {
  int rows, columns, stride;
} layout;

EXPORT int cublasLtMatmulDescCreate(void **out, int computation, int scale) {
  (void)computation, (void)scale;
  *out = calloc(1, 1);
  return SUCCESS;
}

EXPORT int cublasLtMatmulDescDestroy(void *made) {
  free(made);
  return SUCCESS;
}

EXPORT int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  (void)type;
  *out = malloc(sizeof **out);
  **out = (layout){(int)rows, (int)columns, (int)stride};
  return SUCCESS;
}

EXPORT int cublasLtMatrixLayoutDestroy(layout *made) {
  free(made);
  return SUCCESS;
}

/* The handle is one of cuBLAS. Its stream and workspace are not used. */
EXPORT int cublasLtMatmul(handle *self, void *description, const float *alpha, const float *a, const layout *layout_a,
                          const float *b, const layout *layout_b, const float *beta, const float *c, const layout *layout_c,
                          float *d, const layout *layout_d, const void *algorithm, void *workspace, size_t bytes,
                          plinth_stream_t stream) {
  (void)description, (void)c, (void)layout_c, (void)algorithm;
  if (!begin(self)) return NOT_INITIALIZED;
  task *job = malloc(sizeof *job);
  *job = (task){0, 0, layout_d->rows, layout_d->columns, layout_a->columns, layout_a->stride, layout_b->stride,
                layout_d->stride, *alpha, *beta, a, b, d, workspace, bytes, NULL, NULL};
  return end(self, launch(stream, multiply, job));
}

/* ---- cuSOLVER */

EXPORT int cusolverDnCreate(void **out) {
  MAY_FAIL(cusolverDnCreate);
  return create(out);
}

EXPORT int cusolverDnSetStream(handle *self, plinth_stream_t stream) {
  MAY_FAIL(cusolverDnSetStream);
  if (!begin(self)) return NOT_INITIALIZED;
  self->stream = stream;
  return end(self, SUCCESS);
}

EXPORT int cusolverDnSpotrf_bufferSize(handle *self, int part, int size, float *a, int lda, int *count) {
  (void)self, (void)part, (void)a, (void)lda;
  *count = size;
  return SUCCESS;
}

static float square_root(float number) {
  float guess = number > 1 ? number : 1;
  for (int round = 0; round < 60; round++) guess = (guess + number / guess) / 2;
  return guess;
}

/* A Cholesky factorization of the lower triangle. */
static void factor(void *context) {
  const task *job = context;
  float *a = job->c;
  const int lda = job->ldc;
  for (int column = 0; column < job->rows; column++) {
    for (int row = column; row < job->rows; row++) {
      float sum = a[column * lda + row];
      for (int step = 0; step < column; step++) sum -= a[step * lda + row] * a[step * lda + column];
      a[column * lda + row] = row == column ? square_root(sum) : sum / a[column * lda + column];
    }
  }
  *job->info = 0;
}

EXPORT int cusolverDnSpotrf(handle *self, int part, int size, float *a, int lda, float *workspace, int count, int *info) {
  (void)part, (void)workspace, (void)count;
  if (!begin(self)) return NOT_INITIALIZED;
  task *job = calloc(1, sizeof *job);
  job->rows = size;
  job->c = a;
  job->ldc = lda;
  job->info = info;
  return end(self, launch(self->stream, factor, job));
}

/* ---- functions for tests */

EXPORT int fake_cublas_handles(void) {
  int count = 0;
  for (const handle *each = handles; each != NULL; each = each->next) count++;
  return count;
}

EXPORT plinth_stream_t fake_cublas_stream(const handle *self) { return self->stream; }
EXPORT void *fake_cublas_workspace(const handle *self) { return self->has_workspace ? self->workspace : NULL; }
EXPORT size_t fake_cublas_workspace_bytes(const handle *self) { return self->has_workspace ? self->bytes : 0; }
EXPORT int fake_cublas_modes(const handle *self) {
  return self->pointer_mode | self->math_mode << 4 | self->atomics_mode << 12;
}
EXPORT int fake_cublas_device(const handle *self) { return self->device; }
