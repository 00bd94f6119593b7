/* Streams that a program creates for itself and destroys. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_SANITIZER=error */
#include "driver.h"
#include "graphing.h"
#include "peering.h"

static plinth_stream_t dedicated(int32_t priority) {
  plinth_stream_t stream = NULL;
  CHECK_OK(plinth_stream_create_dedicated(0, priority, &stream));
  CHECK(stream != NULL);
  return stream;
}

static void destroy_stream(plinth_stream_t stream) { CHECK_OK(plinth_stream_destroy(stream)); }

static void destroy_foreign(plinth_stream_t stream) {
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  CHECK_EQ(destroy(stream), CUDA_SUCCESS);
}

static int byte_at(const unsigned char *memory) {
  unsigned char byte = 0;
  CHECK_OK(plinth_copy(&byte, memory, 1, false));
  return byte;
}

TEST(a_dedicated_stream_is_shared_with_nobody) {
  enum { STREAMS = 40 };
  plinth_stream_t streams[STREAMS];
  int32_t least = UNTOUCHED;
  int32_t greatest = UNTOUCHED;
  CHECK_OK(plinth_stream_priority_range(0, &least, &greatest));
  for (int index = 0; index < STREAMS; index++) {
    int32_t priority = UNTOUCHED;
    int32_t device = UNTOUCHED;
    uint64_t id = 0;
    streams[index] = dedicated(index % 2 == 0 ? 0 : -1000);
    for (int other = 0; other < index; other++) {
      CHECK(streams[index] != streams[other]);
    }
    CHECK(streams[index] != stream_on(0));
    CHECK_OK(plinth_stream_priority(streams[index], &priority));
    CHECK_EQ(priority, index % 2 == 0 ? 0 : greatest);
    CHECK_OK(plinth_stream_device(streams[index], &device));
    CHECK_EQ(device, 0);
    CHECK_OK(plinth_stream_id(streams[index], &id));
    CHECK_EQ(id, (uintptr_t)streams[index]);
  }
  for (int index = 0; index < STREAMS; index++) {
    destroy_stream(streams[index]);
  }
}

TEST(only_dedicated_streams_can_be_destroyed) {
  plinth_stream_t stream = dedicated(0);
  plinth_stream_t foreign = foreign_stream(0, CU_STREAM_NON_BLOCKING, 0);
  plinth_stream_t known = NULL;
  bool done = false;
  int on_stack = 0;
  CHECK_OK(plinth_stream_destroy(NULL));
  CHECK_OK(plinth_stream_unregister(NULL));
  CHECK_STATUS(plinth_stream_destroy(stream_on(0)), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("the library owns the streams of its pools");
  CHECK_STATUS(plinth_stream_unregister(stream_on(0)), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_destroy((plinth_stream_t)(uintptr_t)1), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("a default stream has no owner");
  CHECK_STATUS(plinth_stream_destroy((plinth_stream_t)(void *)&on_stack), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_unregister((plinth_stream_t)(void *)&on_stack), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_unregister(stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("plinth_stream_destroy");
  CHECK_STATUS(plinth_stream_unregister(foreign), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_stream_from_external(foreign, 0, &known));
  CHECK_STATUS(plinth_stream_destroy(foreign), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("plinth_stream_unregister");
  CHECK_OK(plinth_stream_unregister(foreign));
  CHECK_STATUS(plinth_stream_query(foreign, &done), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_unregister(foreign), PLINTH_ERROR_INVALID_HANDLE);
  destroy_foreign(foreign);
  destroy_stream(stream);
  CHECK_STATUS(plinth_stream_destroy(stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_query(stream, &done), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_create_dedicated(0, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_create_dedicated(device_count(), 0, &known), PLINTH_ERROR_INVALID_DEVICE);
}

TEST(queued_work_of_a_destroyed_stream_still_runs) {
  plinth_stream_t stream = dedicated(0);
  unsigned char *memory = alloc_on(MIB, 0, stream);
  gate *shut = hold(stream);
  CHECK_OK(plinth_memset(memory, 0x5A, MIB, stream));
  destroy_stream(stream);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(byte_at(memory), 0x5A);
  release(memory);
  expect_nothing_left();
}

TEST(memory_of_a_destroyed_stream_waits_for_its_work) {
  plinth_stream_t other = stream_on(0);
  plinth_stream_t stream = dedicated(0);
  unsigned char *freed = alloc_on(24 * MIB, 0, stream);
  unsigned char *live = alloc_on(24 * MIB, 0, stream);
  gate *shut = hold(stream);
  CHECK_OK(plinth_memset(freed, 1, 24 * MIB, stream));
  CHECK_OK(plinth_memset(live, 2, 24 * MIB, stream));
  release(freed);
  destroy_stream(stream);
  release(live);
  expect_held(shut);
  unsigned char *later = alloc_on(24 * MIB, 0, other);
  CHECK(!overlap(later, 24 * MIB, freed, 24 * MIB));
  CHECK(!overlap(later, 24 * MIB, live, 24 * MIB));
  expect_sound();
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  release(later);
  expect_nothing_left();
}

/* Segments of the driver's own allocation calls do not move. They are released in a shortage, or by plinth_empty_cache. */
TEST(other_streams_take_over_the_memory_of_destroyed_streams) {
  enum { ROUNDS = 20 };
  size_t held = 0;
  for (int round = 0; round < ROUNDS; round++) {
    plinth_stream_t stream = dedicated(0);
    unsigned char *memory = alloc_on(64 * MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, round, 64 * MIB, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    release(memory);
    destroy_stream(stream);
    if (round == 0) {
      held = reserved(0);
    }
    CHECK(reserved(0) < held + 32 * MIB || has_segments());
  }
  expect_nothing_left();
}

/* Also small memory, which is created before any moves, and segments. */
TEST(new_streams_get_the_memory_of_destroyed_streams) {
  enum { ROUNDS = 20 };
  size_t held = 0;
  unsigned char *kept[ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    plinth_stream_t stream = dedicated(0);
    unsigned char *memory = alloc_on(KIB, 0, stream);
    kept[round] = alloc_on(KIB, 0, stream);
    CHECK_OK(plinth_memset(memory, round, KIB, stream));
    CHECK_OK(plinth_memset(kept[round], round, KIB, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    release(memory);
    destroy_stream(stream);
    /* The next stream may come before the successor is known to be idle. */
    if (round == 1) {
      held = reserved(0);
    }
    CHECK(round < 2 || reserved(0) == held);
  }
  expect_sound();
  for (int round = 0; round < ROUNDS; round++) {
    CHECK_EQ(byte_at(kept[round]), round);
    release(kept[round]);
  }
  expect_nothing_left();
}

TEST(blocks_outlive_their_stream) {
  plinth_stream_t stream = dedicated(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *memory = alloc_on(4 * MIB, 0, stream);
  CHECK_OK(plinth_memset(memory, 1, 4 * MIB, stream));
  CHECK_OK(plinth_stream_wait_stream(other, stream));
  destroy_stream(stream);
  gate *shut = hold(other);
  CHECK_OK(plinth_memset(memory, 2, 4 * MIB, other));
  CHECK_OK(plinth_record_stream(memory, other));
  release(memory);
  plinth_stream_t third = dedicated(0);
  unsigned char *later = alloc_on(4 * MIB, 0, third);
  CHECK(!overlap(later, 4 * MIB, memory, 4 * MIB));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  release(later);
  destroy_stream(third);
  expect_nothing_left();
}

TEST(recorded_streams_may_end_before_the_block_is_freed) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t user = dedicated(0);
  unsigned char *memory = alloc_on(4 * MIB, 0, own);
  void *pinned = NULL;
  CHECK_OK(plinth_host_alloc(64 * KIB, &pinned));
  gate *shut = hold(user);
  CHECK_OK(plinth_record_stream(memory, user));
  CHECK_OK(plinth_host_record_stream(pinned, user));
  destroy_stream(user);
  release(memory);
  CHECK_OK(plinth_host_free(pinned));
  unsigned char *later = alloc_on(4 * MIB, 0, own);
  CHECK(!overlap(later, 4 * MIB, memory, 4 * MIB));
  void *pinned_later = NULL;
  CHECK_OK(plinth_host_alloc(64 * KIB, &pinned_later));
  CHECK(pinned_later != pinned);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  release(later);
  CHECK_OK(plinth_host_free(pinned_later));
  CHECK(comes_back(memory, 4 * MIB, 0, own));
  expect_nothing_left();
}

TEST(a_graph_outlives_the_stream_of_its_replay) {
  plinth_stream_t capturing = on_new_stream(0);
  unsigned char *memory = alloc_on(MIB, 0, capturing);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_memset(memory, 3, MIB, capturing));
  CHECK_OK(plinth_graph_capture_end(graph));
  plinth_stream_t stream = dedicated(0);
  CHECK_OK(plinth_set_stream(stream));
  gate *shut = hold(stream);
  CHECK_OK(plinth_graph_replay(graph));
  destroy_stream(stream);
  /* The destroyed stream was the current one. */
  CHECK(current_on(0) == NULL);
  CHECK_OK(plinth_set_stream(capturing));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK(stays_undone(capturing));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(capturing));
  CHECK_EQ(byte_at(memory), 3);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  expect_nothing_left();
}

TEST(a_capturing_stream_is_not_destroyed) {
  plinth_stream_t stream = dedicated(0);
  unsigned char *memory = alloc_on(MIB, 0, stream);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_stream_destroy(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_OK(plinth_memset(memory, 4, MIB, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(byte_at(memory), 4);
  release(memory);
  CHECK_OK(plinth_graph_destroy(graph));
  destroy_stream(stream);
  expect_nothing_left();
}

TEST(a_stream_may_end_while_another_captures) {
  plinth_stream_t stream = dedicated(0);
  plinth_stream_t capturing = on_new_stream(0);
  unsigned char *memory = alloc_on(MIB, 0, stream);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  destroy_stream(stream);
  CHECK_OK(plinth_memset(memory, 5, MIB, capturing));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(capturing));
  CHECK_EQ(byte_at(memory), 5);
  release(memory);
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

static void *use_current_stream(void *context) {
  plinth_stream_t *stream = (plinth_stream_t *)context;
  unsigned char *memory = alloc_on(MIB, 0, NULL);
  CHECK_OK(plinth_set_stream(*stream));
  __atomic_store_n(stream, NULL, __ATOMIC_SEQ_CST);
  EVENTUALLY(__atomic_load_n(stream, __ATOMIC_SEQ_CST) != NULL);
  CHECK_STATUS(plinth_memset(memory, 1, MIB, PLINTH_STREAM_CURRENT), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("was destroyed by another thread");
  CHECK_OK(plinth_set_stream_of(0, NULL));
  CHECK_OK(plinth_memset(memory, 1, MIB, PLINTH_STREAM_CURRENT));
  release(memory);
  return NULL;
}

TEST(a_thread_learns_that_its_current_stream_ended) {
  plinth_stream_t stream = dedicated(0);
  plinth_stream_t shared = stream;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use_current_stream, &shared) == 0);
  EVENTUALLY(__atomic_load_n(&shared, __ATOMIC_SEQ_CST) == NULL);
  destroy_stream(stream);
  __atomic_store_n(&shared, stream, __ATOMIC_SEQ_CST);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_synchronize(0));
  expect_nothing_left();
}

TEST(an_external_stream_may_be_destroyed_after_it_was_unregistered) {
  for (int registered = 0; registered < 2; registered++) {
    plinth_stream_t foreign = foreign_stream(0, CU_STREAM_NON_BLOCKING, 0);
    plinth_stream_t known = NULL;
    if (registered) {
      CHECK_OK(plinth_stream_from_external(foreign, 0, &known));
    }
    void *freed = plinth_alloc((ptrdiff_t)(64 * MIB), 0, foreign);
    void *live = plinth_alloc((ptrdiff_t)(4 * MIB), 0, foreign);
    CHECK(freed != NULL && live != NULL);
    plinth_free(freed, (ptrdiff_t)(64 * MIB), 0, foreign);
    CHECK_OK(plinth_stream_unregister(foreign));
    destroy_foreign(foreign);
    /* Memory moves from the stream that has ended to another one. */
    CHECK_OK(plinth_synchronize(0));
    const size_t held = reserved(0);
    unsigned char *later = alloc_on(64 * MIB, 0, stream_on(0));
    CHECK(reserved(0) < held + 32 * MIB || has_segments());
    release(later);
    release(live);
    expect_nothing_left();
  }
}

TEST(many_streams_leave_nothing_behind) {
  for (int round = 0; round < 300; round++) {
    plinth_stream_t stream = dedicated(-round % 3);
    release(alloc_on(KIB * (size_t)(round + 1), 0, stream));
    destroy_stream(stream);
    if (round % 50 == 0) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  expect_nothing_left();
}
