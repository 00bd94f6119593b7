/*
 * A fake of cuFFT that works on the host device: transforms by definition, in host functions. It is at least as strict as
 * cuFFT: a plan without a work area fails, and the process aborts if two threads use a plan at the same time or if a graph
 * replays a destroyed plan. Destroying a plan waits for its work, as freeing memory does.
 *
 * Environment variables, which each call reads:
 *   FAKE_CUFFT_FAIL=cufftCreate:2   this call fails with this code
 *   FAKE_CUFFT_ALLOCATES=1          creating a plan calls driver functions that a capture may forbid
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "faking.h"

#include <plinth.h>

#include "half.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS, INVALID_PLAN, ALLOC_FAILED, INVALID_TYPE, EXEC_FAILED = 6, SETUP_FAILED, INVALID_SIZE };
enum { R_32F, R_64F, R_16F, C_32F = 4, C_64F, C_16F, MAX_PLANS = 8192 };

typedef long long integer;

typedef struct {
  integer embed[3], stride, distance;
  int type;
} side;

typedef struct plan {
  int rank, allocates;
  integer sizes[3], batch;
  side input, output;
  plinth_stream_t stream;
  double *area;
  bool made;
  atomic_int busy, pending, destroyed;
  struct plan *next_destroyed;
} plan;

typedef struct task {
  plan *owner;
  double *area;
  const void *input;
  void *output;
  int direction;
  atomic_int counted;
  struct task *next;
} task;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static plan *plans[MAX_PLANS];
static int made_ever;
/* Destroyed plans and tasks are never freed, because a graph may replay them. */
static plan *destroyed;
static task *tasks;

#ifndef FOR_GPUS
EXPORT int plinth_cufft_on_host_device = 1;
#endif

static int fault(const char *call) { return fault_of("FAKE_CUFFT_FAIL", call); }
#define MAY_FAIL(call)                \
  do {                                \
    const int code = fault(#call);    \
    if (code != SUCCESS) return code; \
  } while (0)

static plan *begin(int index) {
  plan *self = index > 0 && index < MAX_PLANS ? plans[index] : NULL;
  if (self != NULL && atomic_exchange(&self->busy, 1) != 0) abort();
  return self;
}

static int end(plan *self, int code) {
  atomic_store(&self->busy, 0);
  return code;
}

EXPORT int cufftCreate(int *out) {
  MAY_FAIL(cufftCreate);
  int index = 1;
  pthread_mutex_lock(&lock);
  while (index < MAX_PLANS && plans[index] != NULL) index++;
  if (index < MAX_PLANS) {
    plans[index] = calloc(1, sizeof(plan));
    plans[index]->allocates = 1;
    made_ever++;
  }
  pthread_mutex_unlock(&lock);
  *out = index;
  return index < MAX_PLANS ? SUCCESS : ALLOC_FAILED;
}

EXPORT int cufftDestroy(int index) {
  MAY_FAIL(cufftDestroy);
  plan *self = begin(index);
  if (self == NULL) return INVALID_PLAN;
  while (atomic_load(&self->pending) > 0) {
    const struct timespec length = {0, 100000};
    nanosleep(&length, NULL);
  }
  atomic_store(&self->destroyed, 1);
  pthread_mutex_lock(&lock);
  plans[index] = NULL;
  self->next_destroyed = destroyed;
  destroyed = self;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

EXPORT int cufftSetAutoAllocation(int index, int allocates) {
  MAY_FAIL(cufftSetAutoAllocation);
  plan *self = begin(index);
  if (self == NULL) return INVALID_PLAN;
  self->allocates = allocates;
  return end(self, SUCCESS);
}

static bool is_complex(int type) { return type >= C_32F; }

static integer elements(const plan *self) {
  integer count = self->batch;
  for (int dimension = 0; dimension < self->rank; dimension++) count *= self->sizes[dimension];
  return count;
}

/* Sets the layout of the input or the output; without an embedding it is contiguous. */
static int set_side(const plan *self, side *made, const integer *embed, integer stride, integer distance, int type,
                    bool halved) {
  *made = (side){{1, 1, 1}, stride, distance, type};
  integer plain = 1;
  for (int dimension = 0; dimension < self->rank; dimension++) {
    const bool last = dimension == self->rank - 1;
    const integer extent = last && halved ? self->sizes[dimension] / 2 + 1 : self->sizes[dimension];
    made->embed[dimension] = embed == NULL ? extent : embed[dimension];
    plain *= extent;
  }
  if (embed == NULL) {
    made->stride = 1;
    made->distance = plain;
  }
  return made->stride > 0 && made->distance > 0 ? SUCCESS : INVALID_SIZE;
}

EXPORT int cufftXtMakePlanMany(int index, int rank, integer *sizes, integer *input_embed, integer input_stride,
                               integer input_distance, int input_type, integer *output_embed, integer output_stride,
                               integer output_distance, int output_type, integer batch, size_t *work, int execution_type) {
  MAY_FAIL(cufftXtMakePlanMany);
  plan *self = begin(index);
  if (self == NULL) return INVALID_PLAN;
  if (rank < 1 || rank > 3 || batch < 1 || (input_embed == NULL) != (output_embed == NULL)) return end(self, INVALID_SIZE);
  if (!is_complex(execution_type) || (!is_complex(input_type) && !is_complex(output_type))) return end(self, INVALID_TYPE);
  if (getenv("FAKE_CUFFT_ALLOCATES") != NULL) {
    int (*allocate)(uint64_t *, size_t);
    uint64_t memory = 0;
    void *symbol = entry_point("cuMemAlloc");
    memcpy(&allocate, &symbol, sizeof symbol);
    if (allocate(&memory, 1024) != 0) return end(self, SETUP_FAILED);
  }
  self->rank = rank;
  self->batch = batch;
  memcpy(self->sizes, sizes, (size_t)rank * sizeof *sizes);
  const bool to_real = !is_complex(output_type), from_real = !is_complex(input_type);
  const int wrong = set_side(self, &self->input, input_embed, input_stride, input_distance, input_type, to_real) |
                    set_side(self, &self->output, output_embed, output_stride, output_distance, output_type, from_real);
  self->made = wrong == SUCCESS && self->allocates == 0;
  *work = 2 * sizeof(double) * (size_t)elements(self);
  return end(self, wrong);
}

EXPORT int cufftSetWorkArea(int index, void *area) {
  MAY_FAIL(cufftSetWorkArea);
  plan *self = begin(index);
  if (self == NULL) return INVALID_PLAN;
  self->area = area;
  return end(self, SUCCESS);
}

EXPORT int cufftSetStream(int index, plinth_stream_t stream) {
  MAY_FAIL(cufftSetStream);
  plan *self = begin(index);
  if (self == NULL) return INVALID_PLAN;
  self->stream = stream;
  return end(self, SUCCESS);
}

static integer memory_index(const plan *self, const side *where, integer signal, const integer *position) {
  integer index = 0;
  for (int dimension = 0; dimension < self->rank; dimension++) {
    index = (dimension == 0 ? 0 : index * where->embed[dimension]) + position[dimension];
  }
  return signal * where->distance + index * where->stride;
}

static void load(const void *memory, integer index, int type, double *value) {
  const integer first = is_complex(type) ? 2 * index : index;
  for (int part = 0; part < (is_complex(type) ? 2 : 1); part++) {
    switch (type) {
      case R_32F: case C_32F: value[part] = (double)((const float *)memory)[first + part]; break;
      case R_64F: case C_64F: value[part] = ((const double *)memory)[first + part]; break;
      default: value[part] = number_of(((const uint16_t *)memory)[first + part]);
    }
  }
}

static void store(void *memory, integer index, int type, const double *value) {
  const integer first = is_complex(type) ? 2 * index : index;
  for (int part = 0; part < (is_complex(type) ? 2 : 1); part++) {
    switch (type) {
      case R_32F: case C_32F: ((float *)memory)[first + part] = (float)value[part]; break;
      case R_64F: case C_64F: ((double *)memory)[first + part] = value[part]; break;
      default: ((uint16_t *)memory)[first + part] = half_of(value[part]);
    }
  }
}

/* Splits an index into a position in each dimension. Returns false if a halved side does not store that position. */
static bool split_index(const plan *self, integer index, integer *position, bool halved) {
  for (int dimension = self->rank - 1; dimension >= 0; dimension--) {
    position[dimension] = index % self->sizes[dimension];
    index /= self->sizes[dimension];
  }
  return !halved || position[self->rank - 1] <= self->sizes[self->rank - 1] / 2;
}

/* Loads an element of the input. The other half of a halved input is conjugate symmetric. */
static void element(const task *job, integer signal, const integer *position, double *value) {
  const plan *self = job->owner;
  const bool to_real = !is_complex(self->output.type);
  integer other[3] = {0, 0, 0};
  value[0] = value[1] = 0;
  if (to_real && position[self->rank - 1] > self->sizes[self->rank - 1] / 2) {
    for (int dimension = 0; dimension < self->rank; dimension++) {
      other[dimension] = (self->sizes[dimension] - position[dimension]) % self->sizes[dimension];
    }
    load(job->input, memory_index(self, &self->input, signal, other), self->input.type, value);
    value[1] = -value[1];
  } else {
    load(job->input, memory_index(self, &self->input, signal, position), self->input.type, value);
  }
}

static void run_transform(void *context) {
  task *job = context;
  const plan *self = job->owner;
  if (atomic_load(&self->destroyed)) abort();
  const bool from_real = !is_complex(self->input.type);
  const integer signal_size = elements(self) / self->batch;
  for (integer signal = 0; signal < self->batch; signal++) {
    for (integer to = 0; to < signal_size; to++) {
      integer position[3] = {0, 0, 0}, input_position[3] = {0, 0, 0};
      double *sum = &job->area[2 * (signal * signal_size + to)];
      sum[0] = sum[1] = 0;
      if (!split_index(self, to, position, from_real)) continue;
      for (integer from = 0; from < signal_size; from++) {
        double value[2], angle = 0;
        split_index(self, from, input_position, false);
        element(job, signal, input_position, value);
        for (int dimension = 0; dimension < self->rank; dimension++) {
          const integer size = self->sizes[dimension];
          angle += (double)(position[dimension] * input_position[dimension] % size) / (double)size;
        }
        angle *= job->direction * 2 * 3.14159265358979323846;
        sum[0] += value[0] * cos(angle) - value[1] * sin(angle);
        sum[1] += value[0] * sin(angle) + value[1] * cos(angle);
      }
    }
  }
  for (integer signal = 0; signal < self->batch; signal++) {
    for (integer to = 0; to < signal_size; to++) {
      integer position[3] = {0, 0, 0};
      if (split_index(self, to, position, from_real)) {
        store(job->output, memory_index(self, &self->output, signal, position), self->output.type,
              &job->area[2 * (signal * signal_size + to)]);
      }
    }
  }
  if (atomic_exchange(&job->counted, 0)) atomic_fetch_sub(&job->owner->pending, 1);
}

EXPORT int cufftXtExec(int index, void *input, void *output, int direction) {
  MAY_FAIL(cufftXtExec);
  plan *self = begin(index);
  if (self == NULL) return INVALID_PLAN;
  if (!self->made || self->area == NULL) return end(self, EXEC_FAILED);
  int (*launch_host_function)(plinth_stream_t, void (*)(void *), void *);
  int (*is_capturing)(plinth_stream_t, unsigned *);
  unsigned captures = 0;
  void *symbol = entry_point("cuLaunchHostFunc");
  memcpy(&launch_host_function, &symbol, sizeof symbol);
  symbol = entry_point("cuStreamIsCapturing");
  memcpy(&is_capturing, &symbol, sizeof symbol);
  if ((uintptr_t)self->stream > 2 && is_capturing(self->stream, &captures) != 0) return end(self, EXEC_FAILED);
  task *job = calloc(1, sizeof *job);
  job->owner = self;
  job->area = self->area;
  job->input = input;
  job->output = output;
  job->direction = direction;
  atomic_store(&job->counted, captures == 0);
  atomic_fetch_add(&self->pending, captures == 0);
  pthread_mutex_lock(&lock);
  job->next = tasks;
  tasks = job;
  pthread_mutex_unlock(&lock);
  /* Each execution must set the area again. */
  self->area = NULL;
  if (launch_host_function(self->stream, run_transform, job) != 0) {
    if (atomic_exchange(&job->counted, 0)) atomic_fetch_sub(&self->pending, 1);
    return end(self, EXEC_FAILED);
  }
  return end(self, SUCCESS);
}

/* ---- functions for tests */

EXPORT int fake_cufft_plans(void) {
  int count = 0;
  pthread_mutex_lock(&lock);
  for (int index = 0; index < MAX_PLANS; index++) count += plans[index] != NULL;
  pthread_mutex_unlock(&lock);
  return count;
}

EXPORT int fake_cufft_made(void) { return made_ever; }
EXPORT plinth_stream_t fake_cufft_stream(int index) { return plans[index]->stream; }
