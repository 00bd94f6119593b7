/*
 * A stand-in for cuFFT that works on the host device: transforms by their definition, in host functions. It is as strict
 * as cuFFT is, or stricter: a plan without a work area fails, two threads in one plan end the process, and so does a
 * replay of a plan that was destroyed. Destroying a plan waits for its work, as freeing memory does.
 *
 * What it is told by the environment, looked at in each call:
 *   FAKE_CUFFT_FAIL=cufftCreate:2   this call fails with this code
 *   FAKE_CUFFT_ALLOCATES=1          making a plan makes calls of the driver's, which a capture may forbid
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
enum { R_32F, R_64F, R_16F, C_32F = 4, C_64F, C_16F, MOST = 8192 };

typedef long long number;

typedef struct {
  number embed[3], stride, distance;
  int type;
} side;

typedef struct plan {
  int rank, allocates;
  number sizes[3], batch;
  side input, output;
  plinth_stream_t stream;
  double *area;
  bool made;
  atomic_int busy, pending, dead;
  struct plan *next_dead;
} plan;

typedef struct task {
  plan *of;
  double *area;
  const void *input;
  void *output;
  int direction;
  atomic_int counted;
  struct task *next;
} task;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static plan *plans[MOST];
static int made_ever;
/* Plans that were destroyed, and work: neither is ever freed, since a graph may replay it. */
static plan *dead;
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
  plan *of = index > 0 && index < MOST ? plans[index] : NULL;
  if (of != NULL && atomic_exchange(&of->busy, 1) != 0) abort();
  return of;
}

static int end(plan *of, int code) {
  atomic_store(&of->busy, 0);
  return code;
}

EXPORT int cufftCreate(int *out) {
  MAY_FAIL(cufftCreate);
  int index = 1;
  pthread_mutex_lock(&lock);
  while (index < MOST && plans[index] != NULL) index++;
  if (index < MOST) {
    plans[index] = calloc(1, sizeof(plan));
    plans[index]->allocates = 1;
    made_ever++;
  }
  pthread_mutex_unlock(&lock);
  *out = index;
  return index < MOST ? SUCCESS : ALLOC_FAILED;
}

EXPORT int cufftDestroy(int index) {
  MAY_FAIL(cufftDestroy);
  plan *of = begin(index);
  if (of == NULL) return INVALID_PLAN;
  while (atomic_load(&of->pending) > 0) {
    const struct timespec length = {0, 100000};
    nanosleep(&length, NULL);
  }
  atomic_store(&of->dead, 1);
  pthread_mutex_lock(&lock);
  plans[index] = NULL;
  of->next_dead = dead;
  dead = of;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

EXPORT int cufftSetAutoAllocation(int index, int allocates) {
  MAY_FAIL(cufftSetAutoAllocation);
  plan *of = begin(index);
  if (of == NULL) return INVALID_PLAN;
  of->allocates = allocates;
  return end(of, SUCCESS);
}

static bool is_complex(int type) { return type >= C_32F; }

static number elements(const plan *of) {
  number count = of->batch;
  for (int dimension = 0; dimension < of->rank; dimension++) count *= of->sizes[dimension];
  return count;
}

/* How one side lies; without an embedding, side by side. */
static int lay(const plan *of, side *made, const number *embed, number stride, number distance, int type, bool halved) {
  *made = (side){{1, 1, 1}, stride, distance, type};
  number plain = 1;
  for (int dimension = 0; dimension < of->rank; dimension++) {
    const bool last = dimension == of->rank - 1;
    const number extent = last && halved ? of->sizes[dimension] / 2 + 1 : of->sizes[dimension];
    made->embed[dimension] = embed == NULL ? extent : embed[dimension];
    plain *= extent;
  }
  if (embed == NULL) {
    made->stride = 1;
    made->distance = plain;
  }
  return made->stride > 0 && made->distance > 0 ? SUCCESS : INVALID_SIZE;
}

EXPORT int cufftXtMakePlanMany(int index, int rank, number *sizes, number *input_embed, number input_stride,
                               number input_distance, int input_type, number *output_embed, number output_stride,
                               number output_distance, int output_type, number batch, size_t *work, int execution_type) {
  MAY_FAIL(cufftXtMakePlanMany);
  plan *of = begin(index);
  if (of == NULL) return INVALID_PLAN;
  if (rank < 1 || rank > 3 || batch < 1 || (input_embed == NULL) != (output_embed == NULL)) return end(of, INVALID_SIZE);
  if (!is_complex(execution_type) || (!is_complex(input_type) && !is_complex(output_type))) return end(of, INVALID_TYPE);
  if (getenv("FAKE_CUFFT_ALLOCATES") != NULL) {
    int (*allocate)(uint64_t *, size_t);
    uint64_t memory = 0;
    void *found = entry_point("cuMemAlloc");
    memcpy(&allocate, &found, sizeof found);
    if (allocate(&memory, 1024) != 0) return end(of, SETUP_FAILED);
  }
  of->rank = rank;
  of->batch = batch;
  memcpy(of->sizes, sizes, (size_t)rank * sizeof *sizes);
  const bool back = !is_complex(output_type), there = !is_complex(input_type);
  const int wrong = lay(of, &of->input, input_embed, input_stride, input_distance, input_type, back) |
                    lay(of, &of->output, output_embed, output_stride, output_distance, output_type, there);
  of->made = wrong == SUCCESS && of->allocates == 0;
  *work = 2 * sizeof(double) * (size_t)elements(of);
  return end(of, wrong);
}

EXPORT int cufftSetWorkArea(int index, void *area) {
  MAY_FAIL(cufftSetWorkArea);
  plan *of = begin(index);
  if (of == NULL) return INVALID_PLAN;
  of->area = area;
  return end(of, SUCCESS);
}

EXPORT int cufftSetStream(int index, plinth_stream_t stream) {
  MAY_FAIL(cufftSetStream);
  plan *of = begin(index);
  if (of == NULL) return INVALID_PLAN;
  of->stream = stream;
  return end(of, SUCCESS);
}

static number place(const plan *of, const side *where, number signal, const number *at) {
  number index = 0;
  for (int dimension = 0; dimension < of->rank; dimension++) {
    index = (dimension == 0 ? 0 : index * where->embed[dimension]) + at[dimension];
  }
  return signal * where->distance + index * where->stride;
}

static void load(const void *memory, number index, int type, double *value) {
  const number first = is_complex(type) ? 2 * index : index;
  for (int part = 0; part < (is_complex(type) ? 2 : 1); part++) {
    switch (type) {
      case R_32F: case C_32F: value[part] = (double)((const float *)memory)[first + part]; break;
      case R_64F: case C_64F: value[part] = ((const double *)memory)[first + part]; break;
      default: value[part] = number_of(((const uint16_t *)memory)[first + part]);
    }
  }
}

static void store(void *memory, number index, int type, const double *value) {
  const number first = is_complex(type) ? 2 * index : index;
  for (int part = 0; part < (is_complex(type) ? 2 : 1); part++) {
    switch (type) {
      case R_32F: case C_32F: ((float *)memory)[first + part] = (float)value[part]; break;
      case R_64F: case C_64F: ((double *)memory)[first + part] = value[part]; break;
      default: ((uint16_t *)memory)[first + part] = half_of(value[part]);
    }
  }
}

/* Splits a number into the places of the dimensions; false if the side that is halved has no such place. */
static bool locate(const plan *of, number index, number *at, bool halved) {
  for (int dimension = of->rank - 1; dimension >= 0; dimension--) {
    at[dimension] = index % of->sizes[dimension];
    index /= of->sizes[dimension];
  }
  return !halved || at[of->rank - 1] <= of->sizes[of->rank - 1] / 2;
}

/* An element of the input, where half of it says it all the other half, too. */
static void element(const task *given, number signal, const number *at, double *value) {
  const plan *of = given->of;
  const bool back = !is_complex(of->output.type);
  number other[3] = {0, 0, 0};
  value[0] = value[1] = 0;
  if (back && at[of->rank - 1] > of->sizes[of->rank - 1] / 2) {
    for (int dimension = 0; dimension < of->rank; dimension++) {
      other[dimension] = (of->sizes[dimension] - at[dimension]) % of->sizes[dimension];
    }
    load(given->input, place(of, &of->input, signal, other), of->input.type, value);
    value[1] = -value[1];
  } else {
    load(given->input, place(of, &of->input, signal, at), of->input.type, value);
  }
}

static void carry_out(void *context) {
  task *given = context;
  const plan *of = given->of;
  if (atomic_load(&of->dead)) abort();
  const bool there = !is_complex(of->input.type);
  const number each = elements(of) / of->batch;
  for (number signal = 0; signal < of->batch; signal++) {
    for (number to = 0; to < each; to++) {
      number at[3] = {0, 0, 0}, from_at[3] = {0, 0, 0};
      double *sum = &given->area[2 * (signal * each + to)];
      sum[0] = sum[1] = 0;
      if (!locate(of, to, at, there)) continue;
      for (number from = 0; from < each; from++) {
        double value[2], angle = 0;
        locate(of, from, from_at, false);
        element(given, signal, from_at, value);
        for (int dimension = 0; dimension < of->rank; dimension++) {
          const number size = of->sizes[dimension];
          angle += (double)(at[dimension] * from_at[dimension] % size) / (double)size;
        }
        angle *= given->direction * 2 * 3.14159265358979323846;
        sum[0] += value[0] * cos(angle) - value[1] * sin(angle);
        sum[1] += value[0] * sin(angle) + value[1] * cos(angle);
      }
    }
  }
  for (number signal = 0; signal < of->batch; signal++) {
    for (number to = 0; to < each; to++) {
      number at[3] = {0, 0, 0};
      if (locate(of, to, at, there)) {
        store(given->output, place(of, &of->output, signal, at), of->output.type, &given->area[2 * (signal * each + to)]);
      }
    }
  }
  if (atomic_exchange(&given->counted, 0)) atomic_fetch_sub(&given->of->pending, 1);
}

EXPORT int cufftXtExec(int index, void *input, void *output, int direction) {
  MAY_FAIL(cufftXtExec);
  plan *of = begin(index);
  if (of == NULL) return INVALID_PLAN;
  if (!of->made || of->area == NULL) return end(of, EXEC_FAILED);
  int (*launch_host_function)(plinth_stream_t, void (*)(void *), void *);
  int (*is_capturing)(plinth_stream_t, unsigned *);
  unsigned captures = 0;
  void *found = entry_point("cuLaunchHostFunc");
  memcpy(&launch_host_function, &found, sizeof found);
  found = entry_point("cuStreamIsCapturing");
  memcpy(&is_capturing, &found, sizeof found);
  if ((uintptr_t)of->stream > 2 && is_capturing(of->stream, &captures) != 0) return end(of, EXEC_FAILED);
  task *given = calloc(1, sizeof *given);
  given->of = of;
  given->area = of->area;
  given->input = input;
  given->output = output;
  given->direction = direction;
  atomic_store(&given->counted, captures == 0);
  atomic_fetch_add(&of->pending, captures == 0);
  pthread_mutex_lock(&lock);
  given->next = tasks;
  tasks = given;
  pthread_mutex_unlock(&lock);
  /* Whatever sets the area next sets its own. */
  of->area = NULL;
  if (launch_host_function(of->stream, carry_out, given) != 0) {
    if (atomic_exchange(&given->counted, 0)) atomic_fetch_sub(&of->pending, 1);
    return end(of, EXEC_FAILED);
  }
  return end(of, SUCCESS);
}

/* ---- what tests ask of it */

EXPORT int fake_cufft_plans(void) {
  int count = 0;
  pthread_mutex_lock(&lock);
  for (int index = 0; index < MOST; index++) count += plans[index] != NULL;
  pthread_mutex_unlock(&lock);
  return count;
}

EXPORT int fake_cufft_made(void) { return made_ever; }
EXPORT plinth_stream_t fake_cufft_stream(int index) { return plans[index]->stream; }
