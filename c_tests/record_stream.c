/* Memory that is used in streams other than its own. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_SANITIZER=error */
#include "allocating.h"
#include "driver.h"

static void record(void *memory, plinth_stream_t stream) { CHECK_OK(plinth_record_stream(memory, stream)); }

static uint64_t calls_of(const char *name) {
  uint64_t count = 0;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

/* Allocates a dozen blocks, none of which may overlap `old`, and frees them. */
static void expect_not_reused(const void *old, size_t bytes, int32_t device, plinth_stream_t stream) {
  void *blocks[12];
  for (int index = 0; index < 12; index++) {
    blocks[index] = alloc_on(bytes, device, stream);
    CHECK(!overlap(blocks[index], bytes, old, bytes));
  }
  for (int index = 0; index < 12; index++) {
    release(blocks[index]);
  }
}

TEST(memory_in_use_elsewhere_is_not_reused) {
  const size_t sizes[] = {1000, 100 * KIB, MIB, 3 * MIB, 24 * MIB};
  for (int index = 0; index < 5; index++) {
    const size_t bytes = sizes[index];
    plinth_stream_t own = stream_on(0);
    plinth_stream_t other = stream_on(0);
    unsigned char *memory = alloc_on(bytes, 0, own);
    gate *shut = hold(other);
    record(memory, other);
    CHECK_OK(plinth_memset(memory, 1, bytes, other));
    release(memory);
    expect_not_reused(memory, bytes, 0, own);
    expect_not_reused(memory, bytes, 0, other);
    expect_sound();
    expect_held(shut);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(other));
    CHECK(comes_back(memory, bytes, 0, own));
    expect_nothing_left();
  }
}

TEST(a_use_lasts_for_work_submitted_before_the_free) {
  /* Work that is submitted to the other stream after the record, but before the free, may use the memory, too. */
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *memory = alloc_on(4 * MIB, 0, own);
  record(memory, other);
  CHECK_OK(plinth_stream_synchronize(other));
  gate *shut = hold(other);
  CHECK_OK(plinth_memset(memory, 1, 4 * MIB, other));
  release(memory);
  expect_not_reused(memory, 4 * MIB, 0, own);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(comes_back(memory, 4 * MIB, 0, own));
  expect_nothing_left();
}

TEST(recording_the_own_stream_has_no_effect) {
  plinth_stream_t own = stream_on(0);
  unsigned char *memory = alloc_on(4 * MIB, 0, own);
  const uint64_t events = on_host_device() ? calls_of("cuEventRecord") : 0;
  gate *shut = hold(own);
  for (int round = 0; round < 10; round++) {
    record(memory, own);
  }
  release(memory);
  CHECK_SAME(alloc_on(4 * MIB, 0, own), memory);
  if (on_host_device()) {
    CHECK_EQ(calls_of("cuEventRecord"), events);
  }
  release(memory);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(own));
  expect_nothing_left();
}

TEST(the_default_stream_is_a_stream) {
  plinth_stream_t other = stream_on(0);
  /* Memory of the default stream used in another one. */
  unsigned char *memory = alloc_on(2 * MIB, 0, NULL);
  gate *shut = hold(other);
  record(memory, NULL);
  record(memory, other);
  release(memory);
  expect_not_reused(memory, 2 * MIB, 0, NULL);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(comes_back(memory, 2 * MIB, 0, NULL));
  /* Memory of another stream used in the default one. */
  memory = alloc_on(2 * MIB, 0, other);
  shut = hold(NULL);
  record(memory, NULL);
  release(memory);
  expect_not_reused(memory, 2 * MIB, 0, other);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK(comes_back(memory, 2 * MIB, 0, other));
  expect_nothing_left();
}

TEST(memory_waits_for_all_its_streams) {
  enum { STREAMS = 5 };
  const size_t bytes = 3 * MIB;
  plinth_stream_t own = stream_on(0);
  plinth_stream_t others[STREAMS];
  plinth_event_t opened = new_event(0);
  unsigned char *memory = alloc_on(bytes, 0, own);
  unsigned char *rest = alloc_on(bytes, 0, own);
  for (int index = 0; index < STREAMS; index++) {
    others[index] = stream_on(0);
    record(memory, others[index]);
  }
  /* A gate blocks the first stream. The last one runs a kernel after the gate opens; the others are idle. */
  gate *shut = hold(others[0]);
  CHECK_OK(plinth_event_record(opened, others[0]));
  CHECK_OK(plinth_stream_wait_event(others[STREAMS - 1], opened));
  CHECK_OK(plinth_sleep(400000000, others[STREAMS - 1]));
  release(memory);
  CHECK_OK(plinth_stream_synchronize(others[1]));
  expect_not_reused(memory, bytes, 0, own);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(others[0]));
  unsigned char *early = alloc_on(bytes, 0, own);
  if (!stream_done(others[STREAMS - 1])) {
    CHECK(!overlap(memory, bytes, early, bytes));
  }
  release(early);
  CHECK_OK(plinth_stream_synchronize(others[STREAMS - 1]));
  CHECK(comes_back(memory, bytes, 0, own));
  release(rest);
  CHECK_OK(plinth_event_destroy(opened));
  expect_nothing_left();
}

TEST(another_devices_stream_is_waited_for) {
  need_devices(2);
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(1);
  unsigned char *memory = alloc_on(4 * MIB, 0, own);
  gate *shut = hold(other);
  record(memory, other);
  release(memory);
  expect_not_reused(memory, 4 * MIB, 0, own);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(comes_back(memory, 4 * MIB, 0, own));
  expect_nothing_left();
}

TEST(recording_null_does_nothing) {
  record(NULL, stream_on(0));
  record(NULL, NULL);
  CHECK_EQ(allocated(0), 0);
}

static void expect_refused(void *pointer) {
  CHECK_STATUS(plinth_record_stream(pointer, NULL), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_record_stream(pointer, stream_on(0)), PLINTH_ERROR_INVALID_POINTER);
}

TEST(other_memory_is_refused) {
  int on_stack = 0;
  void *direct = device_memory(MIB, 0);
  void *pinned = pinned_memory(MIB);
  unsigned char *memory = alloc_on(MIB, 0, NULL);
  expect_refused(&on_stack);
  expect_refused(direct);
  expect_refused(pinned);
  expect_refused((void *)UINTPTR_MAX);
  expect_refused(memory + 1);
  expect_refused(memory + 512);
  expect_refused(memory + MIB);
  release(memory);
  expect_refused(memory);
  CHECK_OK(plinth_device_free(direct));
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(other_streams_are_refused) {
  int on_stack = 0;
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_STATUS(plinth_record_stream(memory, (plinth_stream_t)(void *)&on_stack), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_record_stream(memory, (plinth_stream_t)UINTPTR_MAX), PLINTH_ERROR_INVALID_HANDLE);
  release(memory);
  CHECK_SAME(alloc_on(MIB, 0, NULL), memory);
  release(memory);
  expect_nothing_left();
}

TEST(repeated_records_make_one_event) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *memory = alloc_on(MIB, 0, own);
  const uint64_t before = on_host_device() ? calls_of("cuEventRecord") : 0;
  for (int round = 0; round < 10000; round++) {
    record(memory, other);
  }
  if (on_host_device()) {
    CHECK_EQ(calls_of("cuEventRecord"), before);
  }
  release(memory);
  if (on_host_device()) {
    CHECK_EQ(calls_of("cuEventRecord"), before + 1);
  }
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(comes_back(memory, MIB, 0, own));
  expect_nothing_left();
}

TEST(a_recorded_use_ends_with_the_block) {
  /* The next block at the same address does not depend on the other stream. */
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *memory = alloc_on(24 * MIB, 0, own);
  record(memory, other);
  release(memory);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK_SAME(alloc_on(24 * MIB, 0, own), memory);
  gate *shut = hold(other);
  release(memory);
  CHECK_SAME(alloc_on(24 * MIB, 0, own), memory);
  release(memory);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  expect_nothing_left();
}

/* A request that other memory could serve polls for it, some milliseconds after the last request that did. */
TEST(a_block_is_reused_soon_after_its_streams_are_done) {
  const size_t sizes[] = {16, 1000, 100 * KIB, MIB, 24 * MIB};
  for (int index = 0; index < 5; index++) {
    const size_t bytes = sizes[index];
    plinth_stream_t own = stream_on(0);
    plinth_stream_t other = stream_on(0);
    void *memory = alloc_on(bytes, 0, own);
    gate *shut = hold(other);
    record(memory, other);
    release(memory);
    void *second = alloc_on(bytes, 0, own);
    CHECK(second != memory);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(other));
    sleep_milliseconds(20);
    void *third = alloc_on(bytes, 0, own);
    CHECK_SAME(third, memory);
    release(second);
    release(third);
    expect_nothing_left();
  }
}

TEST(many_blocks_are_pending_at_once) {
  enum { BLOCKS = 500 };
  unsigned char *memory[BLOCKS];
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  for (int index = 0; index < BLOCKS; index++) {
    memory[index] = alloc_on(64 * KIB, 0, own);
    record(memory[index], other);
  }
  gate *shut = hold(other);
  for (int index = 0; index < BLOCKS; index++) {
    release(memory[index]);
  }
  CHECK_EQ(allocated(0), 0);
  const size_t held = reserved(0);
  CHECK(held >= BLOCKS * 64 * KIB);
  unsigned char *fresh = alloc_on(64 * KIB, 0, own);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK(!overlap(fresh, 64 * KIB, memory[index], 64 * KIB));
  }
  release(fresh);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  const size_t held_now = reserved(0);
  for (int index = 0; index < BLOCKS; index++) {
    memory[index] = alloc_on(64 * KIB, 0, own);
  }
  CHECK_EQ(reserved(0), held_now);
  for (int index = 0; index < BLOCKS; index++) {
    release(memory[index]);
  }
  expect_nothing_left();
}

/* A long kernel runs in the other stream. No call may wait for it. */
TEST(no_call_waits_for_a_kernel) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  CHECK_OK(plinth_sleep(1000, other)); /* loads the kernel */
  release(alloc_on(MIB, 0, own));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_sleep(2000000000, other)); /* a second or more */
  for (int round = 0; round < 100; round++) {
    void *memory = alloc_on(MIB, 0, own);
    record(memory, other);
    release(memory);
    CHECK(allocated(0) == 0 && reserved(0) >= MIB);
  }
  CHECK(!stream_done(other));
  CHECK_OK(plinth_stream_synchronize(other));
  expect_nothing_left();
}

TEST(emptying_the_cache_waits_for_a_pending_block) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *memory = alloc_on(24 * MIB, 0, own);
  gate *shut = gate_shut(other);
  record(memory, other);
  CHECK_OK(plinth_memset(memory, 1, 24 * MIB, other));
  release(memory);
  pthread_t opener = gate_open_soon(shut);
  CHECK_OK(plinth_empty_cache());
  expect_sound();
  pthread_join(opener, NULL);
  CHECK_OK(plinth_stream_synchronize(other));
  expect_nothing_left();
}

TEST(a_shortage_waits_for_pending_blocks) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *pinned = pinned_memory(80 * MIB);
  limit_memory(128 * MIB, 0);
  void *memory = alloc_on(80 * MIB, 0, own);
  gate *shut = gate_shut(other);
  record(memory, other);
  fill_words(memory, 1, 80 * MIB, other);
  release(memory);
  pthread_t opener = gate_open_soon(shut);
  void *next = alloc_on(80 * MIB, 0, own);
  fill_words(next, 2, 80 * MIB, own);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(has_words(next, 2, 80 * MIB, own, pinned));
  pthread_join(opener, NULL);
  release(next);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* A capture forbids event queries. The memory stays pending, and the capture must stay valid. */
static void use_during_a_capture(unsigned mode) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  plinth_stream_t capturing = stream_on(0);
  void *graph = NULL;
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  unsigned char *memory = alloc_on(4 * MIB, 0, own);
  unsigned char *earlier = alloc_on(4 * MIB, 0, own);
  gate *shut = hold(other);
  record(earlier, other);
  release(earlier);
  begin_capture(capturing, mode);
  CHECK_OK(plinth_sleep(1000, capturing));
  record(memory, other);
  release(memory);
  unsigned char *next = alloc_on(4 * MIB, 0, own);
  CHECK(!overlap(next, 4 * MIB, memory, 4 * MIB));
  CHECK(!overlap(next, 4 * MIB, earlier, 4 * MIB));
  release(next);
  CHECK_EQ(end_capture(capturing, &graph), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(comes_back(memory, 4 * MIB, 0, own));
  expect_nothing_left();
}

TEST(use_during_a_global_capture) { use_during_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL); }
TEST(use_during_a_thread_local_capture) { use_during_a_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); }
TEST(use_during_a_relaxed_capture) { use_during_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED); }

/* The memory is used in the capturing stream itself: no event outside of the capture can show when the graph is done. */
static void use_in_a_capture(unsigned mode) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t capturing = stream_on(0);
  void *graph = NULL;
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  unsigned char *memory = alloc_on(4 * MIB, 0, own);
  begin_capture(capturing, mode);
  CHECK_OK(plinth_memset(memory, 1, 4 * MIB, capturing));
  record(memory, capturing);
  release(memory);
  unsigned char *next = alloc_on(4 * MIB, 0, own);
  CHECK(!overlap(next, 4 * MIB, memory, 4 * MIB));
  CHECK_EQ(end_capture(capturing, &graph), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  expect_sound();
  release(next);
  expect_nothing_left();
}

TEST(use_in_a_global_capture) { use_in_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL); }
TEST(use_in_a_relaxed_capture) { use_in_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED); }

/* A program that does not record a stream gets away with it as long as the memory serves no other request of its own stream. It
 * must not lose the memory to requests of other streams. */
static void expect_kept(plinth_stream_t user, plinth_stream_t requesting) {
  const size_t bytes = 64 * MIB;
  unsigned char *memory = alloc_on(bytes, 0, NULL);
  unsigned char *copy = alloc_on(bytes, 0, user);
  CHECK_OK(plinth_memset(memory, 7, bytes, NULL));
  CHECK_OK(plinth_synchronize(0));
  gate *shut = hold(user);
  CHECK_OK(plinth_memcpy(copy, memory, bytes, user));
  release(memory);
  unsigned char *other = alloc_on(bytes, 0, requesting);
  CHECK_OK(plinth_memset(other, 9, bytes, requesting));
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  unsigned char last = 0;
  CHECK_OK(plinth_memcpy(&last, copy + bytes - 1, 1, user));
  CHECK_OK(plinth_stream_synchronize(user));
  CHECK_EQ(last, 7);
  expect_sound();
  release(copy);
  release(other);
  expect_nothing_left();
}

TEST(an_unrecorded_use_in_the_requesting_stream) {
  if (getenv("PLINTH_SANITIZER") != NULL) {
    SKIP("the sanitizer reports the use");
  }
  plinth_stream_t user = stream_on(0);
  expect_kept(user, user);
}

TEST(an_unrecorded_use_in_a_third_stream) {
  if (getenv("PLINTH_SANITIZER") != NULL) {
    SKIP("the sanitizer reports the use");
  }
  expect_kept(stream_on(0), stream_on(0));
}

static void *shared[16];

static void *record_and_delete(void *context) {
  const int thread = *(int *)context;
  plinth_stream_t own = stream_on(0);
  for (int round = 0; round < 100; round++) {
    void *memory = alloc_on(MIB, 0, own);
    record(memory, stream_on(0));
    record(memory, stream_on(0));
    record(shared[(thread + round) % 16], own);
    release(memory);
  }
  return NULL;
}

TEST(threads_record_at_once) {
  for (int index = 0; index < 16; index++) {
    shared[index] = alloc_on(MIB, 0, NULL);
  }
  run_threads(16, record_and_delete);
  for (int index = 0; index < 16; index++) {
    release(shared[index]);
  }
  expect_nothing_left();
}

static void *empty_cache(void *context) {
  CHECK_OK(plinth_empty_cache());
  return context;
}

/* While one thread releases the cache of an idle stream, another gets some of that memory, gives the stream work with it and
 * frees it. The first thread asked whether the stream was idle before that work came. */
TEST(memory_is_used_again_while_its_cache_is_released) {
  enum { HOLES = 64 };
  for (int round = 0; round < 10; round++) {
    plinth_stream_t stream = stream_on(0);
    void *holes[HOLES], *kept[HOLES];
    for (int index = 0; index < HOLES; index++) {
      holes[index] = alloc_on(8 * MIB, 0, stream);
      kept[index] = alloc_on(8 * MIB, 0, stream);
    }
    /* The smallest free blocks are released first, so this one is the last. */
    void *large = alloc_on(24 * MIB, 0, stream);
    void *beside = alloc_on(8 * MIB, 0, stream);
    for (int index = 0; index < HOLES; index++) {
      release(holes[index]);
    }
    release(large);
    CHECK_OK(plinth_synchronize(0));
    const size_t before = reserved(0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, empty_cache, NULL) == 0);
    while (reserved(0) == before) {
    }
    gate *shut = hold(stream);
    void *again = alloc_on(16 * MIB, 0, stream);
    CHECK_OK(plinth_memset(again, 1, 16 * MIB, stream));
    release(again);
    /* Merges the free blocks beside it. */
    release(beside);
    CHECK(pthread_join(thread, NULL) == 0);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(stream));
    for (int index = 0; index < HOLES; index++) {
      release(kept[index]);
    }
    expect_nothing_left();
  }
}
