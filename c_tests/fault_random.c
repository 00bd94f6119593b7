/* Every driver call made to fail, once, in generators and fills: a fill that fails takes no numbers of its generator.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 240 */
/* alone: all; enables fault injection, which comes before everything else */
#include "drawing.h"
#include "faults.h"

enum { COUNT = 1000, LONG = 5000 };

/* A generator that is made without a fault, and its offset now. */
static uint64_t offset_now(plinth_generator_t generator) {
  uint64_t offset = UNTOUCHED;
  CHECK_OK(plinth_generator_get_offset(generator, &offset));
  return offset;
}

/* Fills memory of the last device, in one of its streams, with a generator of its own. */
static void survive_fill(fill_call call, int kind, int64_t count) {
  tensor out;
  void *memory = NULL;
  plinth_stream_t stream = NULL;
  plinth_generator_t generator = NULL;
  if (ATTEMPT(plinth_generator_create(last, &generator)) &&
      ATTEMPT(plinth_device_malloc((size_t)count * bytes_of(kind), last, &memory)) &&
      ATTEMPT(plinth_stream_create(last, 0, &stream))) {
    row(&out, memory, kind, count);
    out.dl.device.device_id = last;
    const uint64_t before = failure.failed ? 0 : offset_now(generator);
    if (!ATTEMPT(call(&out.dl, generator, stream))) {
      CHECK_EQ(offset_now(generator), before);
    } else {
      (void)ATTEMPT(plinth_stream_synchronize(stream));
    }
  }
  GIVE_BACK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

SCENARIO(uniform) { survive_fill(draw_uniform, F32, COUNT); }

SCENARIO(normal_of_16_bits) { survive_fill(draw_normal, F16, COUNT); }

SCENARIO(random_range) { survive_fill(draw_random_range, I64, COUNT); }

SCENARIO(short_permutation) { survive_fill(draw_randperm, I64, COUNT); }

/* Takes memory of the caching allocator, which has other ways to it when one fails, and three kernels. */
TEST(long_permutation_survives_faults) {
  CHECK_OK(plinth_enable_fault_injection());
  tensor out;
  plinth_generator_t generator = new_generator(0, 5, 0);
  void *memory = device_memory(LONG * sizeof(int64_t), 0);
  int64_t numbers[LONG];
  int failures = 0;
  bool met = true;
  row(&out, memory, I64, LONG);
  for (uint64_t nth = 1; met; nth++) {
    CHECK(nth < MOST_CALLS);
    const uint64_t before = offset_now(generator);
    CHECK_OK(plinth_empty_cache());
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    const plinth_status_t status = plinth_randperm(&out.dl, generator, NULL);
    const char *call = plinth_tripped_fault();
    CHECK_OK(plinth_inject_fault(0, 0));
    met = call != NULL;
    if (status != PLINTH_OK) {
      failures++;
      CHECK_EQ(offset_now(generator), before);
    }
    CHECK_OK(plinth_synchronize(0));
    CHECK_OK(plinth_randperm(&out.dl, generator, NULL));
    CHECK_OK(plinth_memcpy(numbers, memory, sizeof numbers, NULL));
    CHECK_OK(plinth_synchronize(0));
    int64_t sum = 0;
    for (int index = 0; index < LONG; index++) {
      sum += numbers[index];
    }
    CHECK_EQ(sum, (int64_t)LONG * (LONG - 1) / 2);
    CHECK_OK(plinth_testing_check_allocator());
  }
  CHECK(failures > 3);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}
