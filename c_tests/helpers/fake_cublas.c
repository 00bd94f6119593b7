/*
 * A stand-in for cuBLAS, cuBLASLt and cuSOLVER that works on the host device: handles, and some work, by host functions
 * in streams. It is as strict as the libraries are, or stricter: a stream takes the workspace away, a product without a
 * workspace that was set fails, and so does a handle that two threads use at once.
 *
 * What it is told by the environment, looked at in each call:
 *   FAKE_CUBLAS_FAIL=cublasCreate_v2:3   this call fails with this code
 *   FAKE_CUBLAS_ALLOCATES=1              making a handle makes calls of the driver's, which a capture may forbid
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
enum { MARK = 0x6B1A5 };

typedef struct handle {
  int mark, device;
  plinth_stream_t stream;
  void *workspace;
  size_t bytes;
  bool has_workspace;
  int pointer_mode, math_mode, atomics_mode;
  atomic_int busy;
  struct handle *next;
} handle;

/* Work that was put into a stream. Never freed: a graph may replay it. */
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

/* Whether the driver gives memory at this moment. */
static bool can_allocate(void) {
  int (*allocate)(uint64_t *, size_t);
  uint64_t memory = 0;
  void *found = entry_point("cuMemAlloc");
  memcpy(&allocate, &found, sizeof found);
  return allocate(&memory, 1024) == 0;
}

static int create(void **out) {
  handle *made = calloc(1, sizeof *made);
  made->mark = MARK;
  if (getenv("FAKE_CUBLAS_ALLOCATES") != NULL) {
    int (*device_of_context)(int *);
    void *found = entry_point("cuCtxGetDevice");
    memcpy(&device_of_context, &found, sizeof found);
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

/* Begins a call with a handle. Two threads in calls with one are a defect of whoever gave it to both. */
static bool begin(handle *of) {
  if (of == NULL || of->mark != MARK) return false;
  if (atomic_exchange(&of->busy, 1) != 0) abort();
  return true;
}

static int end(handle *of, int code) {
  atomic_store(&of->busy, 0);
  return code;
}

EXPORT int cublasCreate_v2(void **out) {
  MAY_FAIL(cublasCreate_v2);
  return create(out);
}

EXPORT int cublasSetStream_v2(handle *of, plinth_stream_t stream) {
  MAY_FAIL(cublasSetStream_v2);
  if (!begin(of)) return NOT_INITIALIZED;
  of->stream = stream;
  of->has_workspace = false;
  return end(of, SUCCESS);
}

EXPORT int cublasSetWorkspace_v2(handle *of, void *workspace, size_t bytes) {
  MAY_FAIL(cublasSetWorkspace_v2);
  if (!begin(of)) return NOT_INITIALIZED;
  if (((uintptr_t)workspace & 255) != 0 || (workspace == NULL) != (bytes == 0)) return end(of, INVALID_VALUE);
  of->workspace = workspace;
  of->bytes = bytes;
  of->has_workspace = true;
  return end(of, SUCCESS);
}

EXPORT int cublasSetPointerMode_v2(handle *of, int mode) {
  MAY_FAIL(cublasSetPointerMode_v2);
  of->pointer_mode = mode;
  return SUCCESS;
}

EXPORT int cublasSetMathMode(handle *of, int mode) {
  of->math_mode = mode;
  return SUCCESS;
}

EXPORT int cublasSetAtomicsMode(handle *of, int mode) {
  of->atomics_mode = mode;
  return SUCCESS;
}

static int launch(plinth_stream_t stream, void (*body)(void *), task *given) {
  int (*launch_host_function)(plinth_stream_t, void (*)(void *), void *);
  void *found = entry_point("cuLaunchHostFunc");
  memcpy(&launch_host_function, &found, sizeof found);
  pthread_mutex_lock(&lock);
  given->next = tasks;
  tasks = given;
  pthread_mutex_unlock(&lock);
  return launch_host_function(stream, body, given) == 0 ? SUCCESS : EXECUTION_FAILED;
}

/* By way of the workspace, where the product fits into it, so that a workspace that is somebody else's shows. */
static void multiply(void *context) {
  const task *given = context;
  const bool fits = given->bytes >= sizeof(float) * (size_t)given->rows * (size_t)given->columns;
  for (int pass = 0; pass < 2; pass++) {
    for (int column = 0; column < given->columns; column++) {
      for (int row = 0; row < given->rows; row++) {
        float *c = &given->c[column * given->ldc + row], *between = &given->workspace[column * given->rows + row];
        if (pass == 1) {
          if (fits) *c = given->alpha * *between + (given->beta != 0 ? given->beta * *c : 0);
          continue;
        }
        float sum = 0;
        for (int step = 0; step < given->depth; step++) {
          sum += given->a[given->transposed_a ? row * given->lda + step : step * given->lda + row] *
                 given->b[given->transposed_b ? step * given->ldb + column : column * given->ldb + step];
        }
        if (fits) {
          *between = sum;
        } else {
          *c = given->alpha * sum + (given->beta != 0 ? given->beta * *c : 0);
        }
      }
    }
  }
}

EXPORT int cublasSgemm_v2(handle *of, int op_a, int op_b, int rows, int columns, int depth, const float *alpha,
                          const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
  MAY_FAIL(cublasSgemm_v2);
  if (!begin(of)) return NOT_INITIALIZED;
  if (!of->has_workspace) return end(of, EXECUTION_FAILED);
  task *given = malloc(sizeof *given);
  *given = (task){op_a != 0, op_b != 0, rows, columns, depth, lda, ldb, ldc, *alpha, *beta, a, b, c, of->workspace,
                  of->bytes, NULL, NULL};
  return end(of, launch(of->stream, multiply, given));
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

/* The handle is cuBLAS's; its own stream and workspace are of no account. */
EXPORT int cublasLtMatmul(handle *of, void *description, const float *alpha, const float *a, const layout *of_a,
                          const float *b, const layout *of_b, const float *beta, const float *c, const layout *of_c,
                          float *d, const layout *of_d, const void *algorithm, void *workspace, size_t bytes,
                          plinth_stream_t stream) {
  (void)description, (void)c, (void)of_c, (void)algorithm;
  if (!begin(of)) return NOT_INITIALIZED;
  task *given = malloc(sizeof *given);
  *given = (task){0, 0, of_d->rows, of_d->columns, of_a->columns, of_a->stride, of_b->stride, of_d->stride, *alpha,
                  *beta, a, b, d, workspace, bytes, NULL, NULL};
  return end(of, launch(stream, multiply, given));
}

/* ---- cuSOLVER */

EXPORT int cusolverDnCreate(void **out) {
  MAY_FAIL(cusolverDnCreate);
  return create(out);
}

EXPORT int cusolverDnSetStream(handle *of, plinth_stream_t stream) {
  MAY_FAIL(cusolverDnSetStream);
  if (!begin(of)) return NOT_INITIALIZED;
  of->stream = stream;
  return end(of, SUCCESS);
}

EXPORT int cusolverDnSpotrf_bufferSize(handle *of, int part, int size, float *a, int lda, int *count) {
  (void)of, (void)part, (void)a, (void)lda;
  *count = size;
  return SUCCESS;
}

static float root(float of) {
  float guess = of > 1 ? of : 1;
  for (int round = 0; round < 60; round++) guess = (guess + of / guess) / 2;
  return guess;
}

/* The lower triangle only. */
static void factor(void *context) {
  const task *given = context;
  float *a = given->c;
  const int lda = given->ldc;
  for (int column = 0; column < given->rows; column++) {
    for (int row = column; row < given->rows; row++) {
      float sum = a[column * lda + row];
      for (int step = 0; step < column; step++) sum -= a[step * lda + row] * a[step * lda + column];
      a[column * lda + row] = row == column ? root(sum) : sum / a[column * lda + column];
    }
  }
  *given->info = 0;
}

EXPORT int cusolverDnSpotrf(handle *of, int part, int size, float *a, int lda, float *workspace, int count, int *info) {
  (void)part, (void)workspace, (void)count;
  if (!begin(of)) return NOT_INITIALIZED;
  task *given = calloc(1, sizeof *given);
  given->rows = size;
  given->c = a;
  given->ldc = lda;
  given->info = info;
  return end(of, launch(of->stream, factor, given));
}

/* ---- what tests ask of it */

EXPORT int fake_cublas_handles(void) {
  int count = 0;
  for (const handle *each = handles; each != NULL; each = each->next) count++;
  return count;
}

EXPORT plinth_stream_t fake_cublas_stream(const handle *of) { return of->stream; }
EXPORT void *fake_cublas_workspace(const handle *of) { return of->has_workspace ? of->workspace : NULL; }
EXPORT size_t fake_cublas_workspace_bytes(const handle *of) { return of->has_workspace ? of->bytes : 0; }
EXPORT int fake_cublas_modes(const handle *of) {
  return of->pointer_mode | of->math_mode << 4 | of->atomics_mode << 8;
}
EXPORT int fake_cublas_device(const handle *of) { return of->device; }
