/*
 * Every driver call made to fail, once, in every call of the allocator. A call that meets the fault gives an error or
 * finds another way; either way the allocator is sound after it, what was not done can be done again, and nothing is
 * lost.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 600 */
/* alone: all; enables fault injection, which comes before everything else */
#include "faults.h"

static plinth_stream_t own, other;

/* Allocates, and sees that a failure leaves everything as it was. */
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

static void give_back(void *memory, int32_t device, size_t bytes) {
  const size_t before = allocated(device);
  GIVE_BACK(plinth_caching_allocator_delete(memory));
  CHECK_EQ(allocated(device), memory == NULL ? before : before - rounded(bytes));
}

static void make_streams(void) {
  own = stream_on(last);
  other = stream_on(last);
}

static void expect_everything_back(void) {
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

/* The debugging allocator makes all its calls for each block. In a new process each of them need not fail with every code. */
static bool is_debugging(void) {
  const char *chosen = getenv("PLINTH_ALLOC_CONF");
  return chosen != NULL && strstr(chosen, "debug") != NULL;
}

#ifdef EVERY_BACKEND
/* Other backends keep little that a fault could leave in disorder, and take longer for a block: so there is no other run after
 * each with a fault but the next of those, and the last one, which meets none. Of the sizes nothing depends but the time. */
#define DEPTH .kinds = EVERY_CODE_ONCE, .no_run_between = true
#define SIZE(mebibytes) ((mebibytes) * MIB / 16)
#else
#define DEPTH .kinds = EVERY_KIND
#define SIZE(mebibytes) ((mebibytes) * MIB)
#endif

#define WARM_PLAN                                                                                                       \
  .set_up = make_streams, .inspect = expect_everything_back, .after_call = expect_sound, .report = FAULT_MAY_MEAN_NO_MEMORY, \
  .warm_up = 3, .one_kind_in_new_processes = is_debugging, DEPTH
#define WHOLE_PLAN WARM_PLAN, .kinds_in_new_processes = EVERY_CODE_ONCE

static const fault_plan allocator_plan = {WHOLE_PLAN};

/* What other backends do only once they do in another scenario. */
#ifdef EVERY_BACKEND
static const fault_plan warm_plan = {WARM_PLAN};
#else
#define warm_plan allocator_plan
static void keep_memory_short(void) { limit_memory(64 * MIB, last); }
static const fault_plan short_of_memory_plan = {WHOLE_PLAN, .prepare = keep_memory_short};
#endif

SCENARIO_OF(warm_plan, growth_on_the_default_stream) {
  unsigned char *memory = try_alloc(SIZE(3), last, NULL);
  give_back(memory, last, SIZE(3));
}

/* What follows is about the caching allocator; fault_backend.c runs the rest with other backends. */
#ifndef EVERY_BACKEND

SCENARIO_OF(allocator_plan, growth) {
  static const size_t sizes[] = {1000, 100 * KIB, 3 * MIB, 25 * MIB, 60 * MIB};
  unsigned char *memory[5];
  for (int index = 0; index < 5; index++) {
    memory[index] = try_alloc(sizes[index], last, own);
  }
  for (int index = 0; index < 5; index++) {
    give_back(memory[index], last, sizes[index]);
  }
}

SCENARIO_OF(allocator_plan, written_memory) {
  unsigned char *memory = try_alloc(9 * MIB, last, own);
  if (memory != NULL && ATTEMPT(plinth_memset(memory, 1, 9 * MIB, own))) {
    (void)ATTEMPT(plinth_stream_synchronize(own));
  }
  give_back(memory, last, 9 * MIB);
}

SCENARIO_OF(allocator_plan, recorded_use) {
  unsigned char *memory = try_alloc(3 * MIB, last, own);
  if (memory != NULL) {
    GIVE_BACK(plinth_record_stream(memory, other));
  }
  give_back(memory, last, 3 * MIB);
  memory = try_alloc(3 * MIB, last, own);
  give_back(memory, last, 3 * MIB);
}

SCENARIO_OF(allocator_plan, reuse) {
  for (int round = 0; round < 3; round++) {
    unsigned char *memory = try_alloc(5 * MIB, last, own);
    give_back(memory, last, 5 * MIB);
  }
}

/* What one stream has in its cache goes to another, because there is no more. */
SCENARIO_OF(short_of_memory_plan, stealing) {
  for (int round = 0; round < 3; round++) {
    plinth_stream_t stream = round % 2 == 0 ? own : other;
    unsigned char *memory = try_alloc(44 * MIB, last, stream);
    give_back(memory, last, 44 * MIB);
  }
}

/* In pieces, around what is live. */
SCENARIO_OF(short_of_memory_plan, stealing_in_pieces) {
  unsigned char *memory[6];
  for (int index = 0; index < 6; index++) {
    memory[index] = try_alloc(10 * MIB, last, own);
  }
  for (int index = 0; index < 6; index += 2) {
    give_back(memory[index], last, 10 * MIB);
  }
  if (!failure.failed) {
    unsigned char *more[2];
    for (int index = 0; index < 2; index++) {
      more[index] = try_alloc(10 * MIB, last, other);
    }
    for (int index = 0; index < 2; index++) {
      give_back(more[index], last, 10 * MIB);
    }
  }
  for (int index = 1; index < 6; index += 2) {
    give_back(memory[index], last, 10 * MIB);
  }
}

#endif

SCENARIO_OF(allocator_plan, recorded_use_of_several_streams) {
  plinth_stream_t more = NULL;
  unsigned char *memory = try_alloc(SIZE(3), last, own);
  if (memory != NULL && ATTEMPT(plinth_stream_create(0, 0, &more))) {
    GIVE_BACK(plinth_record_stream(memory, other));
    GIVE_BACK(plinth_record_stream(memory, more));
    GIVE_BACK(plinth_record_stream(memory, NULL));
  }
  give_back(memory, last, SIZE(3));
  GIVE_BACK(plinth_empty_cache());
}

SCENARIO_OF(warm_plan, empty_cache) {
  unsigned char *kept = try_alloc(SIZE(3), last, own);
  unsigned char *memory = try_alloc(SIZE(30), last, other);
  unsigned char *elsewhere = try_alloc(MIB, 0, NULL);
  give_back(memory, last, SIZE(30));
  give_back(elsewhere, 0, MIB);
  GIVE_BACK(plinth_empty_cache());
  give_back(kept, last, SIZE(3));
  GIVE_BACK(plinth_empty_cache());
  /* What a fault kept from going back goes the next time. */
  GIVE_BACK(plinth_empty_cache());
  CHECK_EQ(reserved(last), 0);
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
  if (ATTEMPT(plinth_begin_allocate_current_thread_to_pool(last, pool))) {
    memory = try_alloc(6 * MIB, last, own);
    GIVE_BACK(plinth_end_allocate_to_pool(last, pool));
    give_back(memory, last, 6 * MIB);
    memory = try_alloc(6 * MIB, last, own);
    GIVE_BACK(plinth_release_pool(last, pool));
  }
  GIVE_BACK(plinth_mem_pool_destroy(pool));
  give_back(memory, last, 6 * MIB);
}

SCENARIO_OF(allocator_plan, blocks_that_outlive_their_pool) {
  plinth_pool_id_t pool = {0, 0};
  unsigned char *memory[2] = {NULL, NULL};
  if (!ATTEMPT(plinth_mem_pool_create(true, false, &pool))) {
    return;
  }
  if (ATTEMPT(plinth_begin_allocate_current_stream_to_pool(last, own, pool))) {
    memory[0] = try_alloc(6 * MIB, last, own);
    memory[1] = try_alloc(30 * MIB, last, own);
    GIVE_BACK(plinth_end_allocate_to_pool(last, pool));
    GIVE_BACK(plinth_release_pool(last, pool));
  }
  GIVE_BACK(plinth_mem_pool_destroy(pool));
  give_back(memory[0], last, 6 * MIB);
  give_back(memory[1], last, 30 * MIB);
}

SCENARIO_OF(allocator_plan, a_capture) {
  DRIVER(driver_begin_capture, begin_call, "cuStreamBeginCapture");
  DRIVER(driver_end_capture, end_call, "cuStreamEndCapture");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  const plinth_pool_id_t pool = {4321, 0};
  unsigned char *memory = NULL;
  void *graph = NULL;
  if (!ATTEMPT(plinth_begin_allocate_to_pool(last, pool))) {
    return;
  }
  if (attempt_driver("cuStreamBeginCapture_v2", begin_call(own, CU_STREAM_CAPTURE_MODE_GLOBAL))) {
    memory = try_alloc(24 * MIB, last, own);
    unsigned char *inside = try_alloc(MIB, last, own);
    give_back(inside, last, MIB);
    if (!attempt_driver("cuStreamEndCapture", end_call(own, &graph))) {
      CHECK_EQ(end_call(own, &graph), CUDA_SUCCESS);
    }
    if (!attempt_driver("cuGraphDestroy", destroy(graph))) {
      CHECK_EQ(destroy(graph), CUDA_SUCCESS);
    }
  }
  GIVE_BACK(plinth_end_allocate_to_pool(last, pool));
  give_back(memory, last, 24 * MIB);
  GIVE_BACK(plinth_release_pool(last, pool));
}

/* Down to the last resort: cached memory, recorded uses, other streams, pools that may help, a callback. */
static void *spare;

static bool free_the_spare(int32_t device, size_t size, void *context) {
  (void)size;
  (void)context;
  if (spare == NULL) {
    return false;
  }
  const bool freed = plinth_caching_allocator_delete(spare) == PLINTH_OK;
  (void)device;
  if (freed) {
    spare = NULL;
  }
  return freed;
}

SCENARIO_OF(short_of_memory_plan, the_last_resort) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_add_free_memory_callback(free_the_spare, NULL));
  spare = try_alloc(16 * MIB, last, own);
  unsigned char *recorded = try_alloc(16 * MIB, last, own);
  unsigned char *cached = try_alloc(16 * MIB, last, other);
  if (recorded != NULL) {
    GIVE_BACK(plinth_record_stream(recorded, other));
  }
  give_back(recorded, last, 16 * MIB);
  give_back(cached, last, 16 * MIB);
  const bool had_spare = spare != NULL;
  const size_t before = allocated(last);
  if (ATTEMPT(plinth_caching_allocator_alloc(52 * MIB, last, other, &pointer))) {
    CHECK(!had_spare || spare == NULL);
    CHECK_EQ(allocated(last), 52 * MIB);
    give_back(pointer, last, 52 * MIB);
  } else {
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
    CHECK_EQ(allocated(last), had_spare && spare == NULL ? before - 16 * MIB : before);
  }
  give_back(spare, last, 16 * MIB);
  spare = NULL;
  CHECK_OK(plinth_remove_free_memory_callback(free_the_spare, NULL));
}

/* No memory, with and without a fault on the way to that answer. */
SCENARIO_OF(short_of_memory_plan, no_memory) {
  void *pointer = UNTOUCHED_POINTER;
  unsigned char *memory = try_alloc(20 * MIB, last, own);
  const plinth_status_t status = plinth_caching_allocator_alloc(60 * MIB, last, other, &pointer);
  if (status == PLINTH_OK) {
    CHECK(memory == NULL);
    give_back(pointer, last, 60 * MIB);
  } else if (status != PLINTH_ERROR_OUT_OF_MEMORY) {
    (void)attempt(status, "alloc");
  }
  expect_sound();
  give_back(memory, last, 20 * MIB);
}

/* A short program's life, from a table: allocations of a few sizes in a few streams, freed in another order. */
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
    const uint64_t place = random_next(&state) % SLOTS;
    const size_t bytes = 1 + random_next(&state) % (random_next(&state) % 3 == 0 ? 12 * MIB : 100 * KIB);
    const bool elsewhere = random_next(&state) % 4 == 0;
    plinth_stream_t stream = random_next(&state) % 2 == 0 ? own : other;
    if (slots[place].memory != NULL) {
      if (step % 5 == 0 && slots[place].device == last) {
        GIVE_BACK(plinth_record_stream(slots[place].memory, stream));
      }
      give_back(slots[place].memory, slots[place].device, slots[place].bytes);
      slots[place].memory = NULL;
    } else {
      slots[place].device = elsewhere ? 0 : last;
      slots[place].bytes = bytes;
      slots[place].memory = try_alloc(bytes, slots[place].device, elsewhere ? NULL : stream);
    }
    if (step % 25 == 24) {
      GIVE_BACK(plinth_empty_cache());
    }
  }
  for (int place = 0; place < SLOTS; place++) {
    give_back(slots[place].memory, slots[place].device, slots[place].bytes);
  }
}

SCENARIO_OF(allocator_plan, questions) {
  char *text = NULL;
  double fraction = 0;
  if (ATTEMPT(plinth_memory_summary(last, false, &text))) {
    plinth_string_free(text);
  }
  GIVE_BACK(plinth_set_per_process_memory_fraction(0.5, last));
  GIVE_BACK(plinth_get_per_process_memory_fraction(last, &fraction));
  CHECK(fraction > 0.49 && fraction < 0.51);
  GIVE_BACK(plinth_reset_peak_memory_stats(last));
  unsigned char *memory = try_alloc(MIB, last, own);
  give_back(memory, last, MIB);
}

/* PyTorch's forms, which have no status. */
SCENARIO_OF(allocator_plan, the_pluggable_forms) {
  const size_t before = allocated(last);
  void *memory = plinth_alloc(5 << 20, last, own);
  if (memory == NULL) {
    (void)attempt(PLINTH_ERROR_DRIVER, "plinth_alloc");
    failure.status = PLINTH_ERROR_OUT_OF_MEMORY; /* The call does not say which of the two it was. */
    CHECK_EQ(allocated(last), before);
    return;
  }
  expect_sound();
  plinth_pluggable_record_stream(memory, other);
  expect_sound();
  plinth_free(memory, 5 << 20, last, own);
  expect_sound();
  if (allocated(last) != before) {
    /* It could not be freed, and can be still. */
    CHECK(plinth_tripped_fault() != NULL);
    CHECK_OK(plinth_caching_allocator_delete(memory));
  }
  CHECK_EQ(allocated(last), before);
  plinth_pluggable_reset();
  expect_sound();
}

#endif
