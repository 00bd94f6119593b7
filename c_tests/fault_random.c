/* Each driver call of generators and fills fails once: a fill that fails does not advance its generator.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "drawing.h"
#include "faults.h"

enum { COUNT = 1000, LONG = 5000 };

/* The current offset of a generator, from a call without a fault. */
static uint64_t offset_now(plinth_generator_t generator) {
  uint64_t offset = UNTOUCHED;
  CHECK_OK(plinth_generator_get_offset(generator, &offset));
  return offset;
}

/* Fills memory of the last device, in one of its streams, with a new generator. */
static void survive_fill(fill_call call, int kind, int64_t count) {
  tensor out;
  void *memory = NULL;
  plinth_stream_t stream = NULL;
  plinth_generator_t generator = NULL;
  if (ATTEMPT(plinth_generator_create(last_device, &generator)) &&
      ATTEMPT(plinth_device_malloc((size_t)count * bytes_of(kind), last_device, &memory)) &&
      ATTEMPT(plinth_stream_create(last_device, 0, &stream))) {
    row(&out, memory, kind, count);
    out.dl.device.device_id = last_device;
    const uint64_t before = failure.failed ? 0 : offset_now(generator);
    if (!ATTEMPT(call(&out.dl, generator, stream))) {
      CHECK_EQ(offset_now(generator), before);
    } else {
      (void)ATTEMPT(plinth_stream_synchronize(stream));
    }
  }
  RETRY(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

SCENARIO(uniform) { survive_fill(draw_uniform, F32, COUNT); }

SCENARIO(normal_of_16_bits) { survive_fill(draw_normal, F16, COUNT); }

SCENARIO(random_range) { survive_fill(draw_random_range, I64, COUNT); }

SCENARIO(short_permutation) { survive_fill(draw_randperm, I64, COUNT); }

static plinth_generator_t generator_of_permutations;
static int64_t *permuted;

static void make_permutation(void) {
  generator_of_permutations = new_generator(0, 5, 0);
  permuted = (int64_t *)device_memory(LONG * sizeof *permuted, 0);
}

static void end_permutation(void) {
  CHECK_OK(plinth_device_free(permuted));
  CHECK_OK(plinth_generator_destroy(generator_of_permutations));
}

static void empty_cache(void) { CHECK_OK(plinth_empty_cache()); }

static void long_permutation(void) {
  tensor out;
  row(&out, permuted, I64, LONG);
  const uint64_t before = offset_now(generator_of_permutations);
  if (!ATTEMPT(plinth_randperm(&out.dl, generator_of_permutations, NULL))) {
    CHECK_EQ(offset_now(generator_of_permutations), before);
  }
}

static void expect_permutation(void) {
  static int64_t numbers[LONG];
  int64_t sum = 0;
  CHECK_OK(plinth_synchronize(0));
  if (!failure.failed) {
    CHECK_OK(plinth_memcpy(numbers, permuted, sizeof numbers, NULL));
    CHECK_OK(plinth_synchronize(0));
    for (int index = 0; index < LONG; index++) {
      sum += numbers[index];
    }
    CHECK_EQ(sum, (int64_t)LONG * (LONG - 1) / 2);
  }
  expect_sound();
}

/* A long permutation uses three kernels, and memory of the caching allocator, which can recover from faults. */
static const fault_plan permutation_plan = {
    .set_up = make_permutation,
    .tear_down = end_permutation,
    .prepare = empty_cache,
    .recover = expect_permutation,
    .report = FAULT_MAY_MEAN_NO_MEMORY,
    .kinds = UNKNOWN_WITH_CONTEXT,
    .min_failures = 4,
};

TEST(long_permutation_survives_faults) { survive_faults(&permutation_plan, long_permutation); }
