/* Graphs: capture, replay, reset, destruction, and the errors of these. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_SANITIZER=error */
#include "driver.h"
#include "graphing.h"

enum { BYTES = 64 * 1024 };

TEST(a_graph_runs_when_it_is_replayed) {
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(BYTES, 0, stream);
  void *pinned = pinned_memory(BYTES);
  fill_words(memory, 1, BYTES, stream);
  finish(stream);
  plinth_graph_t graph = graph_of_fill(memory, 2, BYTES, stream, 0);
  CHECK(!capturing_here());
  CHECK(has_words(memory, 1, BYTES, stream, pinned));
  for (uint32_t round = 0; round < 3; round++) {
    fill_words(memory, 3, BYTES, stream);
    CHECK_OK(plinth_graph_replay(graph));
    CHECK(has_words(memory, 2, BYTES, stream, pinned));
  }
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_graph_is_replayed_in_any_stream) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  void *memory = alloc_on(BYTES, 0, stream);
  void *pinned = pinned_memory(BYTES);
  plinth_graph_t graph = graph_of_fill(memory, 7, BYTES, stream, 0);
  plinth_stream_t streams[] = {stream, other, NULL, stream};
  for (int index = 0; index < 4; index++) {
    CHECK_OK(plinth_set_stream(streams[index]));
    fill_words(memory, 1, BYTES, streams[index]);
    gate *shut = gate_shut(streams[index]);
    CHECK_OK(plinth_graph_replay(graph));
    CHECK(stays_undone(streams[index]));
    gate_open(shut);
    CHECK(has_words(memory, 7, BYTES, streams[index], pinned));
  }
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_graph_of_another_device_is_replayed_there) {
  need_devices(2);
  plinth_stream_t stream = on_new_stream(1);
  void *memory = alloc_on(BYTES, 1, stream);
  void *pinned = pinned_memory(BYTES);
  plinth_graph_t graph = graph_of_fill(memory, 5, BYTES, stream, 0);
  int32_t device = -1;
  CHECK_OK(plinth_set_device(0));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  CHECK(has_words(memory, 5, BYTES, stream, pinned));
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_graph_is_captured_again_after_a_reset) {
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(BYTES, 0, stream);
  void *pinned = pinned_memory(BYTES);
  plinth_graph_t graph = new_graph(0);
  for (uint32_t round = 1; round < 5; round++) {
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, (int32_t)(round % 3)));
    CHECK(capturing_here());
    fill_words(memory, round, BYTES, stream);
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK(has_words(memory, round, BYTES, stream, pinned));
    CHECK_OK(plinth_graph_reset(graph));
    CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_GRAPH_NOT_CAPTURED);
    CHECK_OK(plinth_graph_reset(graph));
  }
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* Destroys a graph while a replay is blocked. Unmapping memory does not wait; cuMemFree waits for all work. */
static void destroy_while_blocked(plinth_graph_t graph, plinth_stream_t stream, gate *shut) {
  if (getenv("PLINTH_ALLOC_CONF") != NULL) {
    const pthread_t thread = gate_open_soon(shut);
    CHECK_OK(plinth_graph_destroy(graph));
    CHECK_OK(plinth_empty_cache());
    CHECK(pthread_join(thread, NULL) == 0);
  } else {
    CHECK_OK(plinth_graph_destroy(graph));
    CHECK_OK(plinth_empty_cache());
    CHECK(!stream_done(stream));
    gate_open(shut);
  }
  expect_sound();
}

/* The graph is destroyed while its replay is blocked. The work is done nevertheless. */
TEST(a_graph_may_be_destroyed_while_it_runs) {
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(BYTES, 0, stream);
  void *pinned = pinned_memory(BYTES);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  void *inside = alloc_on(8 * MIB, 0, stream);
  fill_words(inside, 9, 8 * MIB, stream);
  CHECK_OK(plinth_memcpy(memory, inside, BYTES, stream));
  release(inside);
  CHECK_OK(plinth_graph_capture_end(graph));
  gate *shut = gate_shut(stream);
  CHECK_OK(plinth_graph_replay(graph));
  destroy_while_blocked(graph, stream, shut);
  CHECK(has_words(memory, 9, BYTES, stream, pinned));
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* As above, but the replay is not in the stream of the capture, whose completion would free the pool's memory. */
TEST(a_graph_may_be_destroyed_while_it_runs_in_another_stream) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  void *memory = alloc_on(BYTES, 0, other);
  void *pinned = pinned_memory(BYTES);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  void *inside = alloc_on(8 * MIB, 0, stream);
  fill_words(inside, 9, 8 * MIB, stream);
  CHECK_OK(plinth_memcpy(memory, inside, BYTES, stream));
  release(inside);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_set_stream(other));
  gate *shut = gate_shut(other);
  CHECK_OK(plinth_graph_replay(graph));
  destroy_while_blocked(graph, stream, shut);
  CHECK(has_words(memory, 9, BYTES, other, pinned));
  release(memory);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_capture_ends_with_its_graph) {
  plinth_stream_t stream = on_new_stream(0);
  for (int destroyed = 0; destroyed < 2; destroyed++) {
    plinth_graph_t graph = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    void *memory = alloc_on(3 * MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, 1, 3 * MIB, stream));
    CHECK_OK(destroyed ? plinth_graph_destroy(graph) : plinth_graph_reset(graph));
    CHECK(!capturing_here());
    expect_sound();
    CHECK_OK(plinth_memset(memory, 1, 3 * MIB, stream));
    finish(stream);
    release(memory);
    if (!destroyed) {
      CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_GRAPH_NOT_CAPTURING);
      CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
      CHECK_OK(plinth_sleep(1, stream));
      CHECK_OK(plinth_graph_capture_end(graph));
      CHECK_OK(plinth_graph_destroy(graph));
    }
    expect_nothing_left();
  }
}

/* ---- errors */

TEST(a_capture_needs_a_stream_of_its_own) {
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_set_stream(NULL));
  CHECK_STATUS(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_GRAPH_DEFAULT_STREAM);
  CHECK_MESSAGE("default");
  on_new_stream(0);
  CHECK_STATUS(plinth_graph_capture_begin(graph, NULL, 3), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_capture_begin(graph, NULL, -1), PLINTH_ERROR_INVALID_VALUE);
  const plinth_pool_id_t both = {1, 1};
  CHECK_STATUS(plinth_graph_capture_begin(graph, &both, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK(!capturing_here());
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

TEST(a_graph_owns_one_capture) {
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(BYTES, 0, stream);
  plinth_graph_t graph = graph_of_fill(memory, 2, BYTES, stream, 0);
  CHECK_STATUS(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_GRAPH_CAPTURED);
  CHECK_STATUS(plinth_graph_register_generator_state(graph, NULL), PLINTH_ERROR_GRAPH_CAPTURED);
  CHECK_STATUS(plinth_graph_set_flags(graph, PLINTH_GRAPH_KEEP_GRAPH), PLINTH_ERROR_GRAPH_CAPTURED);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_GRAPH_NOT_CAPTURING);
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  expect_nothing_left();
}

TEST(calls_on_a_graph_without_a_capture_fail) {
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_t copy = (plinth_graph_t)UNTOUCHED_POINTER;
  plinth_pool_id_t pool = {UNTOUCHED, UNTOUCHED};
  size_t sizes[2] = {UNTOUCHED, UNTOUCHED};
  char *text = (char *)UNTOUCHED_POINTER;
  void *native = UNTOUCHED_POINTER;
  on_new_stream(0);
  for (int capturing = 0; capturing < 2; capturing++) {
    const plinth_status_t expected = capturing ? PLINTH_ERROR_GRAPH_CAPTURING : PLINTH_ERROR_GRAPH_NOT_CAPTURED;
    CHECK_STATUS(plinth_graph_replay(graph), expected);
    CHECK_MESSAGE("replay");
    CHECK_STATUS(plinth_graph_instantiate(graph), expected);
    CHECK_STATUS(plinth_graph_upload(graph), expected);
    CHECK_STATUS(plinth_graph_sleep(graph), expected);
    CHECK_STATUS(plinth_graph_wake(graph), expected);
    CHECK_STATUS(plinth_graph_debug_dump(graph, "/tmp/never"), expected);
    CHECK_STATUS(plinth_graph_summary(graph, &text), expected);
    CHECK_STATUS(plinth_graph_native(graph, &native), expected);
    CHECK_STATUS(plinth_graph_exec_native(graph, &native), expected);
    CHECK_STATUS(plinth_graph_clone(graph, &copy), expected);
    if (!capturing) {
      CHECK_STATUS(plinth_graph_pool(graph, &pool), expected);
      CHECK_STATUS(plinth_graph_memory(graph, &sizes[0], &sizes[1]), expected);
      CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    }
  }
  CHECK_STATUS(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_GRAPH_CAPTURING);
  CHECK_STATUS(plinth_graph_set_flags(graph, 0), PLINTH_ERROR_GRAPH_CAPTURING);
  CHECK_EQ(pool.owner, UNTOUCHED);
  CHECK_EQ(sizes[0], UNTOUCHED);
  CHECK_SAME(text, UNTOUCHED_POINTER);
  CHECK_SAME(native, UNTOUCHED_POINTER);
  CHECK_SAME(copy, UNTOUCHED_POINTER);
  CHECK_OK(plinth_graph_pool(graph, &pool));
  CHECK(pool.owner != 0 && pool.index == 0);
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(invalid_handles_are_refused) {
  plinth_graph_t graph = new_graph(0);
  plinth_event_t event = new_event(0);
  CHECK_STATUS(plinth_graph_create(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_graph_set_flags(graph, 2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_graph_replay(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_graph_replay((plinth_graph_t)event), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("is an event, not a graph");
  CHECK_STATUS(plinth_event_destroy((plinth_event_t)graph), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_graph_destroy(NULL));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_STATUS(plinth_graph_destroy(graph), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_graph_reset(graph), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_graph_set_overlap_policy(graph, 0), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_graph_enable_debug_mode(graph), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_graph_set_flags(graph, 0), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(a_capture_ends_in_its_stream) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_set_stream(other));
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_GRAPH_WRONG_STREAM);
  /* The capture continues, and can end in its stream. */
  CHECK_OK(plinth_set_stream(stream));
  CHECK(capturing_here());
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
}

static plinth_graph_t shared_graph;
static plinth_stream_t shared_stream;

static void *expect_wrong_thread(void *context) {
  (void)context;
  CHECK_OK(plinth_set_stream(shared_stream));
  CHECK_STATUS(plinth_graph_capture_end(shared_graph), PLINTH_ERROR_GRAPH_WRONG_THREAD);
  CHECK_STATUS(plinth_graph_reset(shared_graph), PLINTH_ERROR_GRAPH_WRONG_THREAD);
  CHECK_STATUS(plinth_graph_destroy(shared_graph), PLINTH_ERROR_GRAPH_WRONG_THREAD);
  return NULL;
}

static void *end_in_another_thread(void *context) {
  (void)context;
  CHECK_OK(plinth_set_stream(shared_stream));
  CHECK_OK(plinth_graph_capture_end(shared_graph));
  return NULL;
}

TEST(a_capture_ends_in_its_thread) {
  shared_stream = on_new_stream(0);
  shared_graph = new_graph(0);
  for (int32_t mode = 0; mode < 3; mode++) {
    CHECK_OK(plinth_graph_capture_begin(shared_graph, NULL, mode));
    CHECK_OK(plinth_sleep(1, shared_stream));
    run_threads(1, mode == PLINTH_CAPTURE_RELAXED ? end_in_another_thread : expect_wrong_thread);
    if (mode != PLINTH_CAPTURE_RELAXED) {
      CHECK_OK(plinth_graph_capture_end(shared_graph));
    }
    CHECK_OK(plinth_graph_replay(shared_graph));
    finish(shared_stream);
    CHECK_OK(plinth_graph_reset(shared_graph));
  }
  CHECK_OK(plinth_graph_destroy(shared_graph));
}

TEST(an_empty_graph_replays_as_nothing) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  for (uint32_t keep = 0; keep < 2; keep++) {
    CHECK_OK(plinth_graph_set_flags(graph, keep ? PLINTH_GRAPH_KEEP_GRAPH : 0));
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK(!capturing_here());
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    CHECK_OK(plinth_graph_reset(graph));
  }
  CHECK_OK(plinth_graph_set_flags(graph, 0));
  /* The graph can capture again, and the stream is usable. */
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

TEST(a_capture_cannot_wait_for_work_from_outside) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  plinth_event_t event = NULL;
  CHECK_OK(plinth_event_create(0, &event));
  CHECK_OK(plinth_event_record(event, NULL));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_event_wait(event, stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_EQ(plinth_last_driver_error(), 905);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

TEST(a_side_stream_must_be_joined) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t side = stream_on(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_stream_wait_stream(side, stream));
  CHECK_OK(plinth_sleep(1, side));
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_GRAPH_UNJOINED);
  CHECK(!capturing_here());
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_stream_wait_stream(side, stream));
  void *memory = alloc_on(2 * MIB, 0, side);
  CHECK_EQ(graph_allocated(graph), 2 * MIB);
  CHECK_OK(plinth_memset(memory, 1, 2 * MIB, side));
  CHECK_OK(plinth_stream_wait_stream(stream, side));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  release(memory);
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

/* The error names the call that a capture forbids, and the process continues. */
TEST(the_error_names_the_call_that_a_capture_forbids) {
  for (int which = 0; which < 4; which++) {
    plinth_stream_t stream = on_new_stream(0);
    plinth_event_t event = new_event(0);
    plinth_graph_t graph = new_graph(0);
    plinth_graph_t earlier = new_graph(0);
    CHECK_OK(plinth_event_record(event, stream));
    CHECK_OK(plinth_graph_capture_begin(earlier, NULL, PLINTH_CAPTURE_GLOBAL));
    CHECK_OK(plinth_sleep(1, stream));
    CHECK_OK(plinth_graph_capture_end(earlier));
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    void *memory = alloc_on(3 * MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, 1, 3 * MIB, stream));
    if (which == 0) {
      CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
      CHECK_MESSAGE("synchronizing stream");
    } else if (which == 1) {
      CHECK_STATUS(plinth_synchronize(0), PLINTH_ERROR_CAPTURE_FORBIDS);
      CHECK_MESSAGE("synchronizing device 0");
    } else if (which == 2) {
      bool done = false;
      CHECK_STATUS(plinth_stream_query(stream, &done), PLINTH_ERROR_CAPTURE_FORBIDS);
      CHECK_MESSAGE("cuStreamQuery");
    } else {
      CHECK_STATUS(plinth_graph_replay(earlier), PLINTH_ERROR_CAPTURE_FORBIDS);
      CHECK_MESSAGE("replaying a graph");
    }
    if (which == 1 || which == 3) {
      /* The library refused the call, so the capture stays valid. */
      CHECK_OK(plinth_graph_capture_end(graph));
      CHECK_OK(plinth_graph_replay(graph));
    } else {
      CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
    }
    CHECK(!capturing_here());
    CHECK_OK(plinth_memset(memory, 1, 3 * MIB, stream));
    finish(stream);
    release(memory);
    CHECK_OK(plinth_graph_reset(graph));
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    CHECK_OK(plinth_sleep(1, stream));
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    CHECK_OK(plinth_graph_destroy(graph));
    CHECK_OK(plinth_graph_destroy(earlier));
    CHECK_OK(plinth_event_destroy(event));
    expect_nothing_left();
  }
}

TEST(a_stream_captures_one_graph_at_a_time) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  plinth_graph_t second = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_graph_capture_begin(second, NULL, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graph_destroy(second));
  expect_nothing_left();
}

/* Captures in different streams are concurrent, each with its own pool. */
TEST(captures_are_concurrent) {
  enum { COUNT = 6 };
  plinth_stream_t streams[COUNT];
  plinth_graph_t graphs[COUNT];
  void *memory[COUNT];
  void *pinned = pinned_memory(BYTES);
  for (int index = 0; index < COUNT; index++) {
    streams[index] = on_new_stream(0);
    graphs[index] = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(graphs[index], NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  }
  for (int index = COUNT - 1; index >= 0; index--) {
    memory[index] = alloc_on(BYTES, 0, streams[index]);
    fill_words(memory[index], (uint32_t)index, BYTES, streams[index]);
    CHECK_EQ(graph_allocated(graphs[index]), BYTES);
  }
  for (int index = 0; index < COUNT; index++) {
    CHECK_OK(plinth_set_stream(streams[index]));
    CHECK_OK(plinth_graph_capture_end(graphs[index]));
  }
  for (int index = 0; index < COUNT; index++) {
    CHECK_OK(plinth_graph_replay(graphs[index]));
  }
  CHECK_OK(plinth_synchronize(0));
  for (int index = 0; index < COUNT; index++) {
    CHECK(has_words(memory[index], (uint32_t)index, BYTES, streams[index], pinned));
    release(memory[index]);
    CHECK_OK(plinth_graph_destroy(graphs[index]));
  }
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* More than a stream has room for. */
enum { MANY_REPLAYS = 4096 };

static struct {
  plinth_graph_t graph;
  plinth_stream_t stream;
  int launched;
} busy;

static void *replay_often(void *context) {
  (void)context;
  CHECK_OK(plinth_set_stream(busy.stream));
  for (int round = 0; round < MANY_REPLAYS; round++) {
    CHECK_OK(plinth_graph_replay(busy.graph));
    __atomic_add_fetch(&busy.launched, 1, __ATOMIC_SEQ_CST);
  }
  return NULL;
}

/* On a GPU the driver itself may wait: two H200s took until the gate opened by itself. */
TEST(a_capture_begins_while_a_replay_waits_for_room_in_its_stream) {
  need_host_device();
  plinth_stream_t stream = on_new_stream(0);
  void *memory = alloc_on(BYTES, 0, stream);
  pthread_t thread;
  int before = -1;
  busy.graph = graph_of_fill(memory, 1, BYTES, stream, 0);
  busy.stream = stream_on(0);
  plinth_graph_t earlier = graph_of_fill(memory, 2, BYTES, stream, 0);
  CHECK_OK(plinth_graph_replay(earlier));
  finish(stream);
  gate *shut = hold(busy.stream);
  CHECK(pthread_create(&thread, NULL, replay_often, NULL) == 0);
  while (__atomic_load_n(&busy.launched, __ATOMIC_SEQ_CST) != before) {
    before = __atomic_load_n(&busy.launched, __ATOMIC_SEQ_CST);
    sleep_milliseconds(200);
  }
  CHECK(before > 0);
  plinth_graph_t later = graph_of_fill(memory, 3, BYTES, stream, 0);
  expect_held(shut);
  gate_open(shut);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_graph_destroy(busy.graph));
  CHECK_OK(plinth_graph_destroy(earlier));
  CHECK_OK(plinth_graph_destroy(later));
  release(memory);
  expect_nothing_left();
}
