/*
 * Helpers of the cuFFT tests: cuFFT or its fake, and signals with their expected transforms.
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

/* `batch` signals of one dimension. */
static inline plinth_cufft_params_t row_of(int64_t batch, int64_t size) {
  plinth_cufft_params_t params = params_of(1, PLINTH_CUFFT_C2C, 32);
  params.sizes[0] = batch;
  params.sizes[1] = size;
  return params;
}

/* Uses the fake cuFFT on the host device, and the real one on a GPU. Skips the test if there is none. */
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

/* Calls a function of the fake. */
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

/* The input or the output of a transform: whether it is complex, its extents and its strides. */
typedef struct {
  bool is_complex;
  int64_t extents[4], strides[4], length;
  double *values; /* Two for each element in the range of the strides: the real and the imaginary part. */
  unsigned char *bytes;
  size_t width, size;
  void *memory;
} transform_data;

typedef struct {
  plinth_cufft_params_t params;
  transform_data input, output;
  int direction;
} transform;

static inline void write_number(transform_data *side, size_t index, double value) {
  unsigned char *to = side->bytes + index * side->width;
  const float single = (float)value;
  const uint16_t small = half_of(value);
  memcpy(to, side->width == 8 ? (const void *)&value : side->width == 4 ? (const void *)&single : (const void *)&small,
         side->width);
}

static inline double read_number(const transform_data *side, size_t index) {
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

/* Sets extents and strides of an input or an output, with gaps in every dimension if it is strided. */
static inline void set_layout(transform *made, transform_data *side, bool input, bool strided) {
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
  side->length = next;
  side->width = params->number.bits / 8;
  const size_t numbers = (size_t)next * (side->is_complex ? 2 : 1);
  side->size = numbers * side->width;
  side->bytes = (unsigned char *)calloc(numbers, side->width);
  side->values = (double *)calloc((size_t)next, 2 * sizeof(double));
  CHECK(side->bytes != NULL && side->values != NULL);
}

/* Returns the index of an element in an input or an output, by its number in a full signal; -1 if it is not stored there. */
static inline int64_t element_index(const transform *self, const transform_data *side, int64_t signal, int64_t number) {
  int64_t position = signal * side->strides[0];
  for (int dimension = self->params.rank; dimension > 0; dimension--) {
    const int64_t coordinate = number % self->params.sizes[dimension];
    if (coordinate >= side->extents[dimension]) {
      return -1;
    }
    position += coordinate * side->strides[dimension];
    number /= self->params.sizes[dimension];
  }
  return position;
}

static inline int64_t size_of_signal(const transform *self) {
  int64_t size = 1;
  for (int dimension = 1; dimension <= self->params.rank; dimension++) {
    size *= self->params.sizes[dimension];
  }
  return size;
}

/* Transforms one signal by definition. Both signals are full, with two numbers for each element. */
static inline void define(const transform *self, const double *from, double *to, int direction) {
  const int64_t size = size_of_signal(self);
  for (int64_t one = 0; one < size; one++) {
    to[2 * one] = to[2 * one + 1] = 0;
    for (int64_t other = 0; other < size; other++) {
      int64_t first = one, second = other;
      double turns = 0;
      for (int dimension = self->params.rank; dimension > 0; dimension--) {
        const int64_t extent = self->params.sizes[dimension];
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

/* Makes a transform of random signals, with its input in device memory, and the expected output. */
static inline transform *new_transform(plinth_cufft_params_t params, int direction, bool strided, int32_t device,
                                       uint64_t seed) {
  transform *made = (transform *)calloc(1, sizeof *made);
  CHECK(made != NULL);
  made->params = params;
  made->direction = direction;
  set_layout(made, &made->input, true, strided);
  set_layout(made, &made->output, false, strided);
  const int64_t size = size_of_signal(made);
  double *signal = (double *)calloc((size_t)size, 2 * sizeof(double));
  double *result = (double *)calloc((size_t)size, 2 * sizeof(double));
  CHECK(signal != NULL && result != NULL);
  transform_data *sides[] = {&made->input, &made->output};
  for (int index = 0; index < 2; index++) {
    for (int64_t position = 0; position < sides[index]->length; position++) {
      sides[index]->values[2 * position] = sides[index]->values[2 * position + 1] = GAP;
    }
  }
  for (int64_t number = 0; number < params.sizes[0]; number++) {
    for (int64_t one = 0; one < 2 * size; one++) {
      const bool zero = params.transform != PLINTH_CUFFT_C2C && one % 2 == 1;
      signal[one] = zero ? 0 : (double)(int)(random_next(&seed) % 17) / 8 - 1;
    }
    /* The input of a transform to real numbers must be the transform of real numbers. */
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
        const int64_t position = element_index(made, sides[index], number, one);
        if (position >= 0) {
          memcpy(&sides[index]->values[2 * position], &(index == 0 ? signal : result)[2 * one], 2 * sizeof(double));
        }
      }
    }
  }
  free(signal);
  free(result);
  for (int index = 0; index < 2; index++) {
    transform_data *side = sides[index];
    for (int64_t position = 0; position < side->length; position++) {
      for (int part = 0; part < (side->is_complex ? 2 : 1); part++) {
        write_number(side, (size_t)position * (side->is_complex ? 2 : 1) + (size_t)part,
                     index == 0 ? side->values[2 * position + part] : GAP);
      }
    }
    side->memory = device_memory(side->size, device);
    put(side->memory, side->bytes, side->size);
  }
  return made;
}

/* Overwrites the output, so that a later transform has to write it again. */
static inline void forget_output(transform *self, plinth_stream_t stream) {
  for (size_t index = 0; index < self->output.size / self->output.width; index++) {
    write_number(&self->output, index, GAP);
  }
  CHECK_OK(plinth_memcpy(self->output.memory, self->output.bytes, self->output.size, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
}

/* Restores the input, which cuFFT may have overwritten. */
static inline void restore_input(transform *self, plinth_stream_t stream) {
  CHECK_OK(plinth_memcpy(self->input.memory, self->input.bytes, self->input.size, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
}

static inline void expect_transformed_in(transform *self, void *memory, plinth_stream_t stream) {
  transform_data *side = &self->output;
  const double size = (double)size_of_signal(self);
  const double allowed = size * (side->width == 8 ? 1e-12 : side->width == 4 ? 2e-6 : 2e-2);
  const int parts = side->is_complex ? 2 : 1;
  CHECK_OK(plinth_memcpy(side->bytes, memory, side->size, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  for (int64_t position = 0; position < side->length; position++) {
    for (int part = 0; part < parts; part++) {
      const double found = read_number(side, (size_t)(position * parts + part));
      const double expected = side->values[2 * position + part];
      if (!(fabs(found - expected) <= allowed)) {
        fprintf(stderr, "rank %d, transform %d, %d bits, place %d of %d: %g instead of %g\n", (int)self->params.rank,
                (int)self->params.transform, (int)(8 * side->width), (int)position, (int)side->length, found, expected);
      }
      CHECK(fabs(found - expected) <= allowed);
    }
  }
}

static inline void expect_transformed(transform *self, plinth_stream_t stream) {
  expect_transformed_in(self, self->output.memory, stream);
}

static inline void carry_out(transform *self, plinth_cufft_plan_t plan) {
  CHECK_OK(plinth_cufft_execute(plan, self->input.memory, self->output.memory, self->direction));
}

static inline void free_transform(transform *self) {
  CHECK_OK(plinth_device_free(self->input.memory));
  CHECK_OK(plinth_device_free(self->output.memory));
  free(self->input.values);
  free(self->input.bytes);
  free(self->output.values);
  free(self->output.bytes);
  free(self);
}

#endif
