/* Many thousands of captures and replays, which must not leak. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 240 */
/* alone: all; the parts of a test run side by side */
/* long: captures_replays_and_resets_leave_nothing_1_of_4 captures_replays_and_resets_leave_nothing_2_of_4 */
/* long: captures_replays_and_resets_leave_nothing_3_of_4 captures_replays_and_resets_leave_nothing_4_of_4 */
#include "drawing.h"
#include "graphing.h"

enum { COUNT = 1000, THREADS = 6 };

static int rounds(int many) { return some_rounds(HARNESS_SANITIZED ? many / 20 : many); }

/* Splits a test of many rounds into four, which run.py runs in parallel. */
#define IN_FOUR_PARTS(name, many)                    \
  TEST(name##_1_of_4) { name(rounds((many) / 4)); } \
  TEST(name##_2_of_4) { name(rounds((many) / 4)); } \
  TEST(name##_3_of_4) { name(rounds((many) / 4)); } \
  TEST(name##_4_of_4) { name(rounds((many) / 4)); }

static void captures_replays_and_resets_leave_nothing(int many) {
  tensor out;
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t side = stream_on(0);
  plinth_generator_t generator = new_generator(0, 1, 0);
  plinth_graph_t graph = new_graph(0);
  size_t held = 0;
  CHECK_OK(plinth_graph_register_generator_state(graph, generator));
  for (int round = 0; round < many; round++) {
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, (int32_t)(round % 3)));
    void *memory = alloc_on((size_t)(1 + round % 5) * MIB, 0, stream);
    if (round % 2 == 0) {
      CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, generator, stream));
    }
    CHECK_OK(plinth_stream_wait_stream(side, stream));
    CHECK_OK(plinth_memset(memory, 1, KIB, side));
    CHECK_OK(plinth_stream_wait_stream(stream, side));
    release(memory);
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_set_stream(round % 4 ? stream : side));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_OK(plinth_set_stream(stream));
    CHECK_OK(plinth_graph_reset(graph));
    if (round == many / 10) {
      CHECK_OK(plinth_synchronize(0));
      CHECK_OK(plinth_empty_cache());
      held = reserved(0);
    }
  }
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(0) <= held);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_generator_destroy(generator));
  expect_nothing_left();
  if (on_host_device()) {
    CHECK_EQ(host_usage().graphs, 0);
    CHECK_EQ(host_usage().device_bytes, 0);
  }
}

IN_FOUR_PARTS(captures_replays_and_resets_leave_nothing, on_host_device() ? 1000 : 10000)

/* Threads capture, replay and destroy graphs of their own, and replay shared graphs. */
static plinth_graph_t shared[THREADS];
static plinth_pool_id_t pool_of_all;
static int finished, rounds_of_a_thread;

static void *work(void *context) {
  const int number = *(const int *)context;
  uint64_t state = (uint64_t)number + 1;
  plinth_stream_t stream = on_new_stream(0);
  for (int round = 0; round < rounds_of_a_thread; round++) {
    plinth_graph_t graph = new_graph(0);
    const plinth_pool_id_t own = shared_pool();
    CHECK_OK(plinth_graph_capture_begin(graph, &own, PLINTH_CAPTURE_THREAD_LOCAL));
    void *memory = alloc_on(KIB + random_next(&state) % (3 * MIB), 0, stream);
    CHECK_OK(plinth_memset(memory, (uint8_t)number, KIB, stream));
    release(memory);
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_replay(graph));
    for (int again = 0; again < 4; again++) {
      const plinth_status_t status = plinth_graph_replay(shared[random_next(&state) % THREADS]);
      CHECK(status == PLINTH_OK || status == PLINTH_ERROR_GRAPH_ASLEEP);
    }
    CHECK_OK(plinth_graph_destroy(graph));
  }
  __atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static void threads_share_graphs(int many) {
  rounds_of_a_thread = many;
  plinth_stream_t stream = on_new_stream(0);
  pool_of_all = shared_pool();
  for (int index = 0; index < THREADS; index++) {
    shared[index] = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(shared[index], &pool_of_all, PLINTH_CAPTURE_THREAD_LOCAL));
    void *memory = alloc_on(MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, (uint8_t)index, MIB, stream));
    release(memory);
    CHECK_OK(plinth_graph_capture_end(shared[index]));
  }
  run_threads(THREADS, work);
  CHECK_EQ(finished, THREADS);
  CHECK_OK(plinth_synchronize(0));
  for (int index = 0; index < THREADS; index++) {
    CHECK_OK(plinth_graph_destroy(shared[index]));
  }
  expect_nothing_left();
}

IN_FOUR_PARTS(threads_share_graphs, 152)

/*
 * The allocator queries streams of other threads and records events in them at any time, also while they begin a capture or
 * join one. An event that is captured never completes, and its block would never be free again.
 */
static plinth_stream_t observed_streams[2];
static int captures_done;

static void *use_observed_streams(void *context) {
  (void)context;
  plinth_stream_t own = stream_on(0);
  while (!__atomic_load_n(&captures_done, __ATOMIC_SEQ_CST)) {
    for (int round = 0; round < 8; round++) {
      void *memory = alloc_on(KIB, 0, own);
      CHECK_OK(plinth_record_stream(memory, observed_streams[0]));
      CHECK_OK(plinth_record_stream(memory, observed_streams[1]));
      release(memory);
    }
    CHECK_OK(plinth_empty_cache());
  }
  return NULL;
}

static void stream_queries_do_not_disturb_captures(int many) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t side = stream_on(0);
  void *memory = device_memory(KIB, 0);
  pthread_t observer;
  observed_streams[0] = stream;
  observed_streams[1] = side;
  CHECK(pthread_create(&observer, NULL, use_observed_streams, NULL) == 0);
  for (int round = 0; round < many; round++) {
    plinth_graph_t graph = new_graph(0);
    release(alloc_on(2 * MIB, 0, stream));
    release(alloc_on(2 * MIB, 0, side));
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, (int32_t)(round % 3)));
    CHECK_OK(plinth_stream_wait_stream(side, stream));
    CHECK_OK(plinth_memset(memory, 1, KIB, side));
    CHECK_OK(plinth_stream_wait_stream(stream, side));
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_destroy(graph));
  }
  __atomic_store_n(&captures_done, 1, __ATOMIC_SEQ_CST);
  CHECK(pthread_join(observer, NULL) == 0);
  CHECK_OK(plinth_device_free(memory));
  expect_nothing_left();
}

IN_FOUR_PARTS(stream_queries_do_not_disturb_captures, on_host_device() ? 20000 : 4000)
