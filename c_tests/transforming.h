/*
 * What the tests of Fourier transforms share: cuFFT or its stand-in, and signals with what they must become.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef TRANSFORMING_H
#define TRANSFORMING_H

#include "libraries.h"

#include "helpers/half.h"

#define CUFFT "PLINTH_CUFFT_LIBRARY"

static const char *const cufft_names[] = {"libcufft.so.12", "libcufft.so.11", "libcufft.so.10", NULL};

static inline plinth_cufft_params_t params_of(int32_t rank, int32_t transform, uint8_t bits) {
  plinth_cufft_params_t params = PLINTH_CUFFT_PARAMS_INIT;
  const DLDataType number = {2, bits, 1};
  params.rank = rank;
  params.transform = transform;
  params.number = number;
  for (int index = 0; index < 4; index++) {
    params.sizes[index] = index <= rank ? 1 : 0;
  }
  return params;
}

/* So many signals of one dimension. */
static inline plinth_cufft_params_t row_of(int64_t batch, int64_t size) {
  plinth_cufft_params_t params = params_of(1, PLINTH_CUFFT_C2C, 32);
  params.sizes[0] = batch;
  params.sizes[1] = size;
  return params;
}

/* cuFFT: on the host device the stand-in, on a GPU the real one, or none, and then the test is skipped. */
static inline void need_cufft(void) {
  if (on_host_device()) {
    name_library(CUFFT, "fake_cufft");
    return;
  }
  const plinth_cufft_params_t params = row_of(1, 8);
  plinth_cufft_plan_t plan = NULL;
  const plinth_status_t status = plinth_cufft_plan_create(&params, 0, &plan);
  if (status == PLINTH_ERROR_LIBRARY_UNAVAILABLE) {
    SKIP("needs cuFFT");
  }
  CHECK_OK(status);
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
}

/* The stand-in's answers. */
static inline int ask(const char *symbol) {
  int (*call)(void);
  void *found = function_of(CUFFT, cufft_names, symbol);
  memcpy(&call, &found, sizeof found);
  return call();
}

static inline int plans_now(void) { return ask("fake_cufft_plans"); }
static inline int plans_ever(void) { return ask("fake_cufft_made"); }

static inline plinth_cufft_plan_t plan_for(const plinth_cufft_params_t *params, int32_t device) {
  plinth_cufft_plan_t plan = (plinth_cufft_plan_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_cufft_plan_create(params, device, &plan));
  CHECK(plan != NULL && plan != UNTOUCHED_POINTER);
  return plan;
}

static inline int64_t cached(int32_t device) {
  int64_t size = UNTOUCHED;
  CHECK_OK(plinth_cufft_plan_cache_size(device, &size));
  return size;
}

/* One side of a transform: whether it is complex, how large each dimension is, and how it lies. */
typedef struct {
  bool is_complex;
  int64_t extents[4], strides[4], places;
  double *values; /* Two for each place that the strides reach: the real part and the other. */
  unsigned char *bytes;
  size_t width, size;
  void *memory;
} side_of;

typedef struct {
  plinth_cufft_params_t params;
  side_of input, output;
  int direction;
} transform;

static inline void write_number(side_of *side, size_t index, double value) {
  unsigned char *to = side->bytes + index * side->width;
  const float single = (float)value;
  const uint16_t small = half_of(value);
  memcpy(to, side->width == 8 ? (const void *)&value : side->width == 4 ? (const void *)&single : (const void *)&small,
         side->width);
}

static inline double read_number(const side_of *side, size_t index) {
  const unsigned char *from = side->bytes + index * side->width;
  double value = 0;
  float single = 0;
  uint16_t small = 0;
  if (side->width == 8) {
    memcpy(&value, from, sizeof value);
    return value;
  }
  if (side->width == 4) {
    memcpy(&single, from, sizeof single);
    return (double)single;
  }
  memcpy(&small, from, sizeof small);
  return number_of(small);
}

/* Lays a side out, with gaps in every dimension if it is strided, and tells the params. */
static inline void lay_out(transform *made, side_of *side, bool input, bool strided) {
  plinth_cufft_params_t *params = &made->params;
  const int rank = params->rank;
  int64_t *strides = input ? params->input_strides : params->output_strides;
  int64_t next = strided ? 2 : 1;
  side->is_complex = params->transform != (input ? PLINTH_CUFFT_R2C : PLINTH_CUFFT_C2R);
  for (int dimension = 0; dimension <= rank; dimension++) {
    side->extents[dimension] = params->sizes[dimension];
  }
  if (side->is_complex && params->transform != PLINTH_CUFFT_C2C) {
    side->extents[rank] = params->sizes[rank] / 2 + 1;
  }
  for (int dimension = rank; dimension >= 0; dimension--) {
    side->strides[dimension] = next;
    next *= side->extents[dimension] + (strided && dimension > 0 ? 1 : 0);
    if (strided) {
      strides[dimension] = side->strides[dimension];
    }
  }
  side->places = next;
  side->width = params->number.bits / 8;
  const size_t numbers = (size_t)next * (side->is_complex ? 2 : 1);
  side->size = numbers * side->width;
  side->bytes = (unsigned char *)calloc(numbers, side->width);
  side->values = (double *)calloc((size_t)next, 2 * sizeof(double));
  CHECK(side->bytes != NULL && side->values != NULL);
}

/* The place of an element in a side, by its number among all of a full signal; -1 if the side has none such. */
static inline int64_t place_in(const transform *of, const side_of *side, int64_t signal, int64_t number) {
  int64_t place = signal * side->strides[0];
  for (int dimension = of->params.rank; dimension > 0; dimension--) {
    const int64_t at = number % of->params.sizes[dimension];
    if (at >= side->extents[dimension]) {
      return -1;
    }
    place += at * side->strides[dimension];
    number /= of->params.sizes[dimension];
  }
  return place;
}

static inline int64_t size_of_signal(const transform *of) {
  int64_t size = 1;
  for (int dimension = 1; dimension <= of->params.rank; dimension++) {
    size *= of->params.sizes[dimension];
  }
  return size;
}

/* The transform of one signal by its definition. Both are full, two numbers an element. */
static inline void define(const transform *of, const double *from, double *to, int direction) {
  const int64_t size = size_of_signal(of);
  for (int64_t one = 0; one < size; one++) {
    to[2 * one] = to[2 * one + 1] = 0;
    for (int64_t other = 0; other < size; other++) {
      int64_t first = one, second = other;
      double turns = 0;
      for (int dimension = of->params.rank; dimension > 0; dimension--) {
        const int64_t extent = of->params.sizes[dimension];
        turns += (double)(first % extent * (second % extent) % extent) / (double)extent;
        first /= extent;
        second /= extent;
      }
      const double angle = direction * 2 * 3.14159265358979323846 * turns;
      to[2 * one] += from[2 * other] * cos(angle) - from[2 * other + 1] * sin(angle);
      to[2 * one + 1] += from[2 * other] * sin(angle) + from[2 * other + 1] * cos(angle);
    }
  }
}

enum { GAP = 99 };

/* A transform of random signals, its input in memory of a device, and what must come of it. */
static inline transform *new_transform(plinth_cufft_params_t params, int direction, bool strided, int32_t device,
                                       uint64_t seed) {
  transform *made = (transform *)calloc(1, sizeof *made);
  CHECK(made != NULL);
  made->params = params;
  made->direction = direction;
  lay_out(made, &made->input, true, strided);
  lay_out(made, &made->output, false, strided);
  const int64_t size = size_of_signal(made);
  double *signal = (double *)calloc((size_t)size, 2 * sizeof(double));
  double *result = (double *)calloc((size_t)size, 2 * sizeof(double));
  CHECK(signal != NULL && result != NULL);
  side_of *sides[] = {&made->input, &made->output};
  for (int index = 0; index < 2; index++) {
    for (int64_t place = 0; place < sides[index]->places; place++) {
      sides[index]->values[2 * place] = sides[index]->values[2 * place + 1] = GAP;
    }
  }
  for (int64_t number = 0; number < params.sizes[0]; number++) {
    for (int64_t one = 0; one < 2 * size; one++) {
      const bool zero = params.transform != PLINTH_CUFFT_C2C && one % 2 == 1;
      signal[one] = zero ? 0 : (double)(int)(random_next(&seed) % 17) / 8 - 1;
    }
    /* What becomes real must be the transform of something real. */
    if (params.transform == PLINTH_CUFFT_C2R) {
      define(made, signal, result, -1);
      double *swap = signal;
      signal = result;
      result = swap;
    }
    for (int index = 0; index < 2; index++) {
      if (index == 1) {
        define(made, signal, result, direction);
      }
      for (int64_t one = 0; one < size; one++) {
        const int64_t place = place_in(made, sides[index], number, one);
        if (place >= 0) {
          memcpy(&sides[index]->values[2 * place], &(index == 0 ? signal : result)[2 * one], 2 * sizeof(double));
        }
      }
    }
  }
  free(signal);
  free(result);
  for (int index = 0; index < 2; index++) {
    side_of *side = sides[index];
    for (int64_t place = 0; place < side->places; place++) {
      for (int part = 0; part < (side->is_complex ? 2 : 1); part++) {
        write_number(side, (size_t)place * (side->is_complex ? 2 : 1) + (size_t)part,
                     index == 0 ? side->values[2 * place + part] : GAP);
      }
    }
    side->memory = device_memory(side->size, device);
    put(side->memory, side->bytes, side->size);
  }
  return made;
}

/* Takes the output away, so that a later transform has to bring it. */
static inline void forget_output(transform *of, plinth_stream_t stream) {
  for (size_t index = 0; index < of->output.size / of->output.width; index++) {
    write_number(&of->output, index, GAP);
  }
  CHECK_OK(plinth_memcpy(of->output.memory, of->output.bytes, of->output.size, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
}

/* cuFFT may have overwritten it. */
static inline void restore_input(transform *of, plinth_stream_t stream) {
  CHECK_OK(plinth_memcpy(of->input.memory, of->input.bytes, of->input.size, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
}

static inline void expect_transformed_in(transform *of, void *memory, plinth_stream_t stream) {
  side_of *side = &of->output;
  const double size = (double)size_of_signal(of);
  const double allowed = size * (side->width == 8 ? 1e-12 : side->width == 4 ? 2e-6 : 2e-2);
  const int parts = side->is_complex ? 2 : 1;
  CHECK_OK(plinth_memcpy(side->bytes, memory, side->size, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  for (int64_t place = 0; place < side->places; place++) {
    for (int part = 0; part < parts; part++) {
      const double found = read_number(side, (size_t)(place * parts + part));
      const double expected = side->values[2 * place + part];
      if (!(fabs(found - expected) <= allowed)) {
        fprintf(stderr, "rank %d, transform %d, %d bits, place %d of %d: %g instead of %g\n", (int)of->params.rank,
                (int)of->params.transform, (int)(8 * side->width), (int)place, (int)side->places, found, expected);
      }
      CHECK(fabs(found - expected) <= allowed);
    }
  }
}

static inline void expect_transformed(transform *of, plinth_stream_t stream) {
  expect_transformed_in(of, of->output.memory, stream);
}

static inline void carry_out(transform *of, plinth_cufft_plan_t plan) {
  CHECK_OK(plinth_cufft_execute(plan, of->input.memory, of->output.memory, of->direction));
}

static inline void free_transform(transform *of) {
  CHECK_OK(plinth_device_free(of->input.memory));
  CHECK_OK(plinth_device_free(of->output.memory));
  free(of->input.values);
  free(of->input.bytes);
  free(of->output.values);
  free(of->output.bytes);
  free(of);
}

#endif
