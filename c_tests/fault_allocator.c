/*
 * Each driver call of each function of the allocator fails once. The function reports an error or recovers. In both cases the
 * allocator stays consistent, the function can be called again, and nothing leaks.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 600 */
/* alone: all; enables fault injection before the first call */
/* long: reuse_across_streams_survives_faults reuse_across_streams_between_live_blocks_survives_faults */
/* long: allocation_slow_path_survives_faults */
#include "faults.h"

static plinth_stream_t own, other;

/* Allocates, and checks that a failure changes nothing. */
static unsigned char *try_alloc(size_t bytes, int32_t device, plinth_stream_t stream) {
  void *pointer = UNTOUCHED_POINTER;
  const size_t before = allocated(device);
  if (!ATTEMPT(plinth_caching_allocator_alloc(bytes, device, stream, &pointer))) {
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
    CHECK_EQ(allocated(device), before);
    return NULL;
  }
  CHECK_EQ(allocated(device), before + rounded(bytes));
  return (unsigned char *)pointer;
}

static void free_block(void *memory, int32_t device, size_t bytes) {
  const size_t before = allocated(device);
  RETRY(plinth_caching_allocator_delete(memory));
  CHECK_EQ(allocated(device), memory == NULL ? before : before - rounded(bytes));
}

static void make_streams(void) {
  own = stream_on(last_device);
  other = stream_on(last_device);
}

static void expect_no_memory_left(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    lift_limit(device);
  }
  expect_nothing_left();
  if (on_host_device()) {
    CHECK_EQ(host_usage().device_bytes, 0);
    CHECK_EQ(host_usage().memory_handles, 0);
    CHECK_EQ(host_usage().mappings, 0);
  }
}

/* The debugging allocator makes the same driver calls for each block, so one code per call is enough in new processes. */
static bool is_debugging(void) {
  const char *chosen = getenv("PLINTH_ALLOC_CONF");
  return chosen != NULL && strstr(chosen, "debug") != NULL;
}

#ifdef EVERY_BACKEND
/* Other backends keep little state and take longer for a block, so there is no run without a fault after each fault. Only the
 * duration depends on the sizes. */
#define DEPTH .kinds = EVERY_CODE_ONCE, .no_run_between = true
#define SCALED(mebibytes) ((mebibytes) * MIB / 16)
#else
#define DEPTH .kinds = EVERY_KIND
#define SCALED(mebibytes) ((mebibytes) * MIB)
#endif

#define WARM_PLAN                                                                                                       \
  .set_up = make_streams, .inspect = expect_no_memory_left, .after_call = expect_sound, .report = FAULT_MAY_MEAN_NO_MEMORY, \
  .warm_up = 3, .one_kind_in_new_processes = is_debugging, DEPTH
#define WHOLE_PLAN WARM_PLAN, .kinds_in_new_processes = EVERY_CODE_ONCE

static const fault_plan allocator_plan = {WHOLE_PLAN};

/* With other backends, one-time initialization is covered by another scenario. */
#ifdef EVERY_BACKEND
static const fault_plan warm_plan = {WARM_PLAN};
#else
#define warm_plan allocator_plan
static void limit_device_memory(void) { limit_memory(64 * MIB, last_device); }
static const fault_plan limited_plan = {WHOLE_PLAN, .prepare = limit_device_memory};
#endif

SCENARIO_OF(warm_plan, growth_on_the_default_stream) {
  unsigned char *memory = try_alloc(SCALED(3), last_device, NULL);
  free_block(memory, last_device, SCALED(3));
}

/* These scenarios are for the caching allocator only; fault_backend.c runs the others with other backends. */
#ifndef EVERY_BACKEND

SCENARIO_OF(allocator_plan, growth) {
  static const size_t sizes[] = {1000, 100 * KIB, 3 * MIB, 25 * MIB, 60 * MIB};
  unsigned char *memory[5];
  for (int index = 0; index < 5; index++) {
    memory[index] = try_alloc(sizes[index], last_device, own);
  }
  for (int index = 0; index < 5; index++) {
    free_block(memory[index], last_device, sizes[index]);
  }
}

SCENARIO_OF(allocator_plan, written_memory) {
  unsigned char *memory = try_alloc(9 * MIB, last_device, own);
  if (memory != NULL && ATTEMPT(plinth_memset(memory, 1, 9 * MIB, own))) {
    (void)ATTEMPT(plinth_stream_synchronize(own));
  }
  free_block(memory, last_device, 9 * MIB);
}

SCENARIO_OF(allocator_plan, recorded_use) {
  unsigned char *memory = try_alloc(3 * MIB, last_device, own);
  if (memory != NULL) {
    RETRY(plinth_record_stream(memory, other));
  }
  free_block(memory, last_device, 3 * MIB);
  memory = try_alloc(3 * MIB, last_device, own);
  free_block(memory, last_device, 3 * MIB);
}

/* A request polls for the block, a tick of the coarse clock after the first one did. */
SCENARIO_OF(allocator_plan, polled_free) {
  unsigned char *memory = try_alloc(64 * KIB, last_device, own);
  if (memory != NULL) {
    RETRY(plinth_record_stream(memory, other));
  }
  free_block(memory, last_device, 64 * KIB);
  RETRY(plinth_stream_synchronize(other));
  sleep_milliseconds(12);
  memory = try_alloc(64 * KIB, last_device, own);
  free_block(memory, last_device, 64 * KIB);
}

SCENARIO_OF(allocator_plan, reuse) {
  for (int round = 0; round < 3; round++) {
    unsigned char *memory = try_alloc(5 * MIB, last_device, own);
    free_block(memory, last_device, 5 * MIB);
  }
}

/* A stream reuses cached memory of another stream, because no more can be allocated. */
SCENARIO_OF(limited_plan, reuse_across_streams) {
  for (int round = 0; round < 3; round++) {
    plinth_stream_t stream = round % 2 == 0 ? own : other;
    unsigned char *memory = try_alloc(44 * MIB, last_device, stream);
    free_block(memory, last_device, 44 * MIB);
  }
}

/* The cached memory is between live blocks. */
SCENARIO_OF(limited_plan, reuse_across_streams_between_live_blocks) {
  unsigned char *memory[6];
  for (int index = 0; index < 6; index++) {
    memory[index] = try_alloc(10 * MIB, last_device, own);
  }
  for (int index = 0; index < 6; index += 2) {
    free_block(memory[index], last_device, 10 * MIB);
  }
  if (!failure.failed) {
    unsigned char *more[2];
    for (int index = 0; index < 2; index++) {
      more[index] = try_alloc(10 * MIB, last_device, other);
    }
    for (int index = 0; index < 2; index++) {
      free_block(more[index], last_device, 10 * MIB);
    }
  }
  for (int index = 1; index < 6; index += 2) {
    free_block(memory[index], last_device, 10 * MIB);
  }
}

#endif

SCENARIO_OF(allocator_plan, recorded_use_of_several_streams) {
  plinth_stream_t more = NULL;
  unsigned char *memory = try_alloc(SCALED(3), last_device, own);
  if (memory != NULL && ATTEMPT(plinth_stream_create(0, 0, &more))) {
    RETRY(plinth_record_stream(memory, other));
    RETRY(plinth_record_stream(memory, more));
    RETRY(plinth_record_stream(memory, NULL));
  }
  free_block(memory, last_device, SCALED(3));
  RETRY(plinth_empty_cache());
}

SCENARIO_OF(warm_plan, empty_cache) {
  unsigned char *live = try_alloc(SCALED(3), last_device, own);
  unsigned char *memory = try_alloc(SCALED(30), last_device, other);
  unsigned char *elsewhere = try_alloc(MIB, 0, NULL);
  free_block(memory, last_device, SCALED(30));
  free_block(elsewhere, 0, MIB);
  RETRY(plinth_empty_cache());
  free_block(live, last_device, SCALED(3));
  RETRY(plinth_empty_cache());
  /* Memory that a fault kept from being released is released now. */
  RETRY(plinth_empty_cache());
  CHECK_EQ(reserved(last_device), 0);
  CHECK_EQ(reserved(0), 0);
}

#ifndef EVERY_BACKEND

SCENARIO_OF(allocator_plan, a_pool) {
  plinth_pool_id_t pool = {UNTOUCHED, UNTOUCHED};
  unsigned char *memory = NULL;
  if (!ATTEMPT(plinth_mem_pool_create(false, false, &pool))) {
    CHECK_EQ(pool.owner, UNTOUCHED);
    return;
  }
  if (ATTEMPT(plinth_begin_allocate_current_thread_to_pool(last_device, pool))) {
    memory = try_alloc(6 * MIB, last_device, own);
    RETRY(plinth_end_allocate_to_pool(last_device, pool));
    free_block(memory, last_device, 6 * MIB);
    memory = try_alloc(6 * MIB, last_device, own);
    RETRY(plinth_release_pool(last_device, pool));
  }
  RETRY(plinth_mem_pool_destroy(pool));
  free_block(memory, last_device, 6 * MIB);
}

SCENARIO_OF(allocator_plan, blocks_that_outlive_their_pool) {
  plinth_pool_id_t pool = {0, 0};
  unsigned char *memory[2] = {NULL, NULL};
  if (!ATTEMPT(plinth_mem_pool_create(true, false, &pool))) {
    return;
  }
  if (ATTEMPT(plinth_begin_allocate_current_stream_to_pool(last_device, own, pool))) {
    memory[0] = try_alloc(6 * MIB, last_device, own);
    memory[1] = try_alloc(30 * MIB, last_device, own);
    RETRY(plinth_end_allocate_to_pool(last_device, pool));
    RETRY(plinth_release_pool(last_device, pool));
  }
  RETRY(plinth_mem_pool_destroy(pool));
  free_block(memory[0], last_device, 6 * MIB);
  free_block(memory[1], last_device, 30 * MIB);
}

SCENARIO_OF(allocator_plan, a_stream_that_ends_before_its_memory) {
  plinth_stream_t stream = NULL;
  if (!ATTEMPT(plinth_stream_create_dedicated(last_device, -1, &stream))) {
    CHECK(stream == NULL);
    return;
  }
  unsigned char *memory[2] = {try_alloc(6 * MIB, last_device, stream), try_alloc(30 * MIB, last_device, stream)};
  if (memory[0] != NULL) {
    (void)ATTEMPT(plinth_memset(memory[0], 1, 6 * MIB, stream));
    (void)ATTEMPT(plinth_record_stream(memory[0], other));
  }
  free_block(memory[1], last_device, 30 * MIB);
  RETRY(plinth_stream_destroy(stream));
  free_block(memory[0], last_device, 6 * MIB);
  free_block(try_alloc(30 * MIB, last_device, own), last_device, 30 * MIB);
}

SCENARIO_OF(allocator_plan, a_checkpoint_of_a_pool) {
  plinth_pool_id_t pool = {0, 0};
  plinth_pool_checkpoint_t checkpoint = NULL;
  unsigned char *memory = NULL;
  if (!ATTEMPT(plinth_mem_pool_create(false, false, &pool))) {
    return;
  }
  if (ATTEMPT(plinth_begin_allocate_current_thread_to_pool(last_device, pool))) {
    memory = try_alloc(SCALED(3), last_device, own);
    unsigned char *used = try_alloc(MIB, last_device, own);
    if (used != NULL) {
      RETRY(plinth_record_stream(used, other));
    }
    free_block(used, last_device, MIB);
    RETRY(plinth_end_allocate_to_pool(last_device, pool));
    RETRY(plinth_release_pool(last_device, pool));
  }
  if (ATTEMPT(plinth_pool_checkpoint_create(last_device, pool, &checkpoint))) {
    free_block(memory, last_device, SCALED(3));
    RETRY(plinth_synchronize(last_device));
    RETRY(plinth_pool_checkpoint_restore(checkpoint, NULL, 0, NULL, NULL));
    RETRY(plinth_pool_checkpoint_destroy(checkpoint));
  }
  free_block(memory, last_device, SCALED(3));
  RETRY(plinth_mem_pool_destroy(pool));
}

SCENARIO_OF(allocator_plan, a_capture) {
  DRIVER(driver_begin_capture, begin_call, "cuStreamBeginCapture");
  DRIVER(driver_end_capture, end_call, "cuStreamEndCapture");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  plinth_pool_id_t pool = {0, 0};
  unsigned char *memory = NULL;
  void *graph = NULL;
  if (!ATTEMPT(plinth_graph_pool_handle(&pool)) || !ATTEMPT(plinth_begin_allocate_to_pool(last_device, pool))) {
    return;
  }
  if (attempt_driver("cuStreamBeginCapture_v2", begin_call(own, CU_STREAM_CAPTURE_MODE_GLOBAL))) {
    memory = try_alloc(24 * MIB, last_device, own);
    unsigned char *inside = try_alloc(MIB, last_device, own);
    free_block(inside, last_device, MIB);
    if (!attempt_driver("cuStreamEndCapture", end_call(own, &graph))) {
      CHECK_EQ(end_call(own, &graph), CUDA_SUCCESS);
    }
    if (!attempt_driver("cuGraphDestroy", destroy(graph))) {
      CHECK_EQ(destroy(graph), CUDA_SUCCESS);
    }
  }
  RETRY(plinth_end_allocate_to_pool(last_device, pool));
  free_block(memory, last_device, 24 * MIB);
  RETRY(plinth_release_pool(last_device, pool));
}

/* The whole allocation slow path: cached memory, recorded streams, other streams, pools with fallback, a callback. */
static void *reserve;

static bool free_reserve(int32_t device, size_t size, void *context) {
  (void)size;
  (void)context;
  if (reserve == NULL) {
    return false;
  }
  const bool freed = plinth_caching_allocator_delete(reserve) == PLINTH_OK;
  (void)device;
  if (freed) {
    reserve = NULL;
  }
  return freed;
}

SCENARIO_OF(limited_plan, allocation_slow_path) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_add_free_memory_callback(free_reserve, NULL));
  reserve = try_alloc(16 * MIB, last_device, own);
  unsigned char *recorded = try_alloc(16 * MIB, last_device, own);
  unsigned char *cached = try_alloc(16 * MIB, last_device, other);
  if (recorded != NULL) {
    RETRY(plinth_record_stream(recorded, other));
  }
  free_block(recorded, last_device, 16 * MIB);
  free_block(cached, last_device, 16 * MIB);
  const bool had_reserve = reserve != NULL;
  const size_t before = allocated(last_device);
  if (ATTEMPT(plinth_caching_allocator_alloc(52 * MIB, last_device, other, &pointer))) {
    CHECK(!had_reserve || reserve == NULL);
    CHECK_EQ(allocated(last_device), 52 * MIB);
    free_block(pointer, last_device, 52 * MIB);
  } else {
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
    CHECK_EQ(allocated(last_device), had_reserve && reserve == NULL ? before - 16 * MIB : before);
  }
  free_block(reserve, last_device, 16 * MIB);
  reserve = NULL;
  CHECK_OK(plinth_remove_free_memory_callback(free_reserve, NULL));
}

/* Out of memory, with and without a fault before that result. */
SCENARIO_OF(limited_plan, no_memory) {
  void *pointer = UNTOUCHED_POINTER;
  unsigned char *memory = try_alloc(20 * MIB, last_device, own);
  const plinth_status_t status = plinth_caching_allocator_alloc(60 * MIB, last_device, other, &pointer);
  if (status == PLINTH_OK) {
    CHECK(memory == NULL);
    free_block(pointer, last_device, 60 * MIB);
  } else if (status != PLINTH_ERROR_OUT_OF_MEMORY) {
    (void)attempt(status, "alloc");
  }
  expect_sound();
  free_block(memory, last_device, 20 * MIB);
}

/* Pseudorandom allocations of several sizes in several streams, freed in another order. */
LONG_SCENARIO_OF(allocator_plan, a_mixed_sequence) {
  enum { SLOTS = 10, STEPS = 60 };
  struct {
    unsigned char *memory;
    size_t bytes;
    int32_t device;
  } slots[SLOTS];
  uint64_t state = 12;
  memset(slots, 0, sizeof slots);
  for (int step = 0; step < STEPS; step++) {
    const uint64_t slot = random_next(&state) % SLOTS;
    const size_t bytes = 1 + random_next(&state) % (random_next(&state) % 3 == 0 ? 12 * MIB : 100 * KIB);
    const bool elsewhere = random_next(&state) % 4 == 0;
    plinth_stream_t stream = random_next(&state) % 2 == 0 ? own : other;
    if (slots[slot].memory != NULL) {
      if (step % 5 == 0 && slots[slot].device == last_device) {
        RETRY(plinth_record_stream(slots[slot].memory, stream));
      }
      free_block(slots[slot].memory, slots[slot].device, slots[slot].bytes);
      slots[slot].memory = NULL;
    } else {
      slots[slot].device = elsewhere ? 0 : last_device;
      slots[slot].bytes = bytes;
      slots[slot].memory = try_alloc(bytes, slots[slot].device, elsewhere ? NULL : stream);
    }
    if (step % 25 == 24) {
      RETRY(plinth_empty_cache());
    }
  }
  for (int slot = 0; slot < SLOTS; slot++) {
    free_block(slots[slot].memory, slots[slot].device, slots[slot].bytes);
  }
}

SCENARIO_OF(allocator_plan, queries_and_settings) {
  char *text = NULL;
  double fraction = 0;
  if (ATTEMPT(plinth_memory_summary(last_device, false, &text))) {
    plinth_string_free(text);
  }
  RETRY(plinth_set_per_process_memory_fraction(0.5, last_device));
  RETRY(plinth_get_per_process_memory_fraction(last_device, &fraction));
  CHECK(fraction > 0.49 && fraction < 0.51);
  RETRY(plinth_reset_peak_memory_stats(last_device));
  unsigned char *memory = try_alloc(MIB, last_device, own);
  free_block(memory, last_device, MIB);
}

/* The functions for PyTorch's CUDAPluggableAllocator, which return no status. */
SCENARIO_OF(allocator_plan, pluggable_functions) {
  const size_t before = allocated(last_device);
  void *memory = plinth_alloc(5 << 20, last_device, own);
  if (memory == NULL) {
    (void)attempt(PLINTH_ERROR_DRIVER, "plinth_alloc");
    failure.status = PLINTH_ERROR_OUT_OF_MEMORY; /* The call does not report which error it was. */
    CHECK_EQ(allocated(last_device), before);
    return;
  }
  expect_sound();
  plinth_pluggable_record_stream(memory, other);
  expect_sound();
  plinth_free(memory, 5 << 20, last_device, own);
  expect_sound();
  if (allocated(last_device) != before) {
    /* The free failed, and can be repeated. */
    CHECK(plinth_tripped_fault() != NULL);
    CHECK_OK(plinth_caching_allocator_delete(memory));
  }
  CHECK_EQ(allocated(last_device), before);
  plinth_pluggable_reset();
  expect_sound();
}

#endif
