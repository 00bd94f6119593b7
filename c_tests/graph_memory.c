/* The memory of graphs: its pool, how graphs share it, and sleep and wake. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "driver.h"
#include "graphing.h"

enum { BYTES = 16 * MIB };

/* A graph that fills memory of its pool with a word, and copies that to pinned memory. */
typedef struct captured_graph {
  plinth_graph_t graph;
  unsigned char *inside;
  void *result;
} captured_graph;

static captured_graph capture(const plinth_pool_id_t *pool, uint32_t word, plinth_stream_t stream, bool freed) {
  captured_graph made = {new_graph(0), NULL, pinned_memory(BYTES)};
  CHECK_OK(plinth_graph_capture_begin(made.graph, pool, PLINTH_CAPTURE_GLOBAL));
  made.inside = alloc_on(BYTES, 0, stream);
  fill_words(made.inside, word, BYTES, stream);
  CHECK_OK(plinth_memcpy(made.result, made.inside, BYTES, stream));
  if (freed) {
    release(made.inside);
  }
  CHECK_OK(plinth_graph_capture_end(made.graph));
  return made;
}

static void expect_replay(const captured_graph *graph, uint32_t word, plinth_stream_t stream) {
  memset(graph->result, 0, BYTES);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_replay(graph->graph));
  finish(stream);
  CHECK_EQ(words_mismatch(graph->result, word, BYTES), BYTES);
}

static void destroy(captured_graph *graph) {
  CHECK_OK(plinth_graph_destroy(graph->graph));
  CHECK_OK(plinth_pinned_free(graph->result));
}

TEST(memory_stays_until_the_graph_is_destroyed) {
  plinth_stream_t stream = on_new_stream(0);
  captured_graph graph = capture(NULL, 3, stream, false);
  CHECK_EQ(graph_allocated(graph.graph), BYTES);
  CHECK(graph_held(graph.graph) >= BYTES);
  release(graph.inside);
  CHECK_EQ(graph_allocated(graph.graph), 0);
  CHECK_OK(plinth_empty_cache());
  CHECK(graph_held(graph.graph) >= BYTES);
  /* Eager allocations do not get the graph's memory. */
  for (int round = 0; round < 6; round++) {
    unsigned char *eager = alloc_on(BYTES, 0, round % 2 ? stream : NULL);
    CHECK(!overlap(eager, BYTES, graph.inside, BYTES));
    fill_words(eager, 9, BYTES, round % 2 ? stream : NULL);
    CHECK_OK(plinth_synchronize(0));
    expect_replay(&graph, 3, stream);
    void *pinned = pinned_memory(BYTES);
    CHECK(has_words(eager, 9, BYTES, stream, pinned));
    CHECK_OK(plinth_pinned_free(pinned));
    release(eager);
  }
  destroy(&graph);
  expect_nothing_left();
}

TEST(allocations_of_a_capture_outlive_the_graph) {
  plinth_stream_t stream = on_new_stream(0);
  void *pinned = pinned_memory(BYTES);
  captured_graph graph = capture(NULL, 4, stream, false);
  expect_replay(&graph, 4, stream);
  unsigned char *inside = graph.inside;
  destroy(&graph);
  CHECK(has_words(inside, 4, BYTES, stream, pinned));
  release(inside);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(graphs_share_a_pool) {
  plinth_stream_t stream = on_new_stream(0);
  const plinth_pool_id_t pool = shared_pool();
  CHECK(pool.owner == 0 && pool.index != 0);
  captured_graph first = capture(&pool, 1, stream, true);
  const size_t held = graph_held(first.graph);
  captured_graph second = capture(&pool, 2, stream, true);
  CHECK_SAME(second.inside, first.inside);
  CHECK_EQ(graph_held(second.graph), held);
  CHECK_EQ(pool_of_graph(second.graph).index, pool.index);
  for (int round = 0; round < 3; round++) {
    expect_replay(&first, 1, stream);
    expect_replay(&second, 2, stream);
  }
  destroy(&first);
  CHECK_OK(plinth_empty_cache());
  expect_replay(&second, 2, stream);
  /* A graph's pool can be named by its id, too. */
  const plinth_pool_id_t named = pool_of_graph(second.graph);
  captured_graph third = capture(&named, 3, stream, true);
  CHECK_SAME(third.inside, second.inside);
  expect_replay(&third, 3, stream);
  destroy(&second);
  destroy(&third);
  expect_nothing_left();
}

TEST(a_pool_has_one_capture_at_a_time) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  const plinth_pool_id_t pool = shared_pool();
  plinth_graph_t graph = new_graph(0);
  plinth_graph_t second = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, &pool, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_set_stream(other));
  CHECK_STATUS(plinth_graph_capture_begin(second, &pool, PLINTH_CAPTURE_THREAD_LOCAL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("already recording to mempool_id");
  CHECK(!capturing_here());
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graph_destroy(second));
  expect_nothing_left();
}

/* ---- replays that would overlap */

TEST(replays_of_a_pool_wait_for_each_other) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  const plinth_pool_id_t pool = shared_pool();
  captured_graph first = capture(&pool, 1, stream, true);
  captured_graph second = capture(&pool, 2, stream, true);
  expect_replay(&first, 1, stream);
  gate *shut = hold(stream);
  CHECK_OK(plinth_graph_replay(first.graph));
  CHECK_OK(plinth_set_stream(other));
  CHECK_OK(plinth_graph_replay(second.graph));
  expect_held(shut);
  CHECK(stays_undone(other));
  gate_open(shut);
  finish(other);
  CHECK_EQ(words_mismatch(first.result, 1, BYTES), BYTES);
  CHECK_EQ(words_mismatch(second.result, 2, BYTES), BYTES);
  /* Replays of one graph in two streams wait, too. */
  shut = hold(other);
  CHECK_OK(plinth_graph_replay(second.graph));
  CHECK_OK(plinth_set_stream(NULL));
  CHECK_OK(plinth_graph_replay(second.graph));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  destroy(&first);
  destroy(&second);
  expect_nothing_left();
}

TEST(overlapping_replays_are_refused_on_request) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  const plinth_pool_id_t pool = shared_pool();
  captured_graph first = capture(&pool, 1, stream, true);
  captured_graph second = capture(&pool, 2, stream, true);
  CHECK_STATUS(plinth_graph_set_overlap_policy(second.graph, 2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_graph_set_overlap_policy(second.graph, PLINTH_GRAPH_OVERLAP_REFUSE));
  gate *shut = hold(stream);
  CHECK_OK(plinth_graph_replay(first.graph));
  CHECK_OK(plinth_graph_replay(second.graph));
  CHECK_OK(plinth_set_stream(other));
  CHECK_STATUS(plinth_graph_replay(second.graph), PLINTH_ERROR_GRAPH_OVERLAP);
  expect_held(shut);
  gate_open(shut);
  finish(stream);
  expect_replay(&second, 2, other);
  CHECK_OK(plinth_graph_set_overlap_policy(second.graph, PLINTH_GRAPH_OVERLAP_ORDER));
  destroy(&first);
  destroy(&second);
  expect_nothing_left();
}

/* Other work in the stream of the capture is no replay. The next replay waits for it, because it may use the pool. */
TEST(a_capture_without_a_replay_refuses_no_overlap) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  captured_graph graph = capture(NULL, 1, stream, true);
  CHECK_OK(plinth_graph_set_overlap_policy(graph.graph, PLINTH_GRAPH_OVERLAP_REFUSE));
  gate *shut = hold(stream);
  CHECK_OK(plinth_set_stream(other));
  CHECK_OK(plinth_graph_replay(graph.graph));
  CHECK(stays_undone(other));
  /* Now a replay waits, and another one would overlap, also after one more capture into the pool. */
  CHECK_OK(plinth_set_stream(stream));
  CHECK_STATUS(plinth_graph_replay(graph.graph), PLINTH_ERROR_GRAPH_OVERLAP);
  const plinth_pool_id_t pool = pool_of_graph(graph.graph);
  plinth_stream_t third = on_new_stream(0);
  plinth_graph_t later = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(later, &pool, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_sleep(1, third));
  CHECK_OK(plinth_graph_capture_end(later));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_STATUS(plinth_graph_replay(graph.graph), PLINTH_ERROR_GRAPH_OVERLAP);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(words_mismatch(graph.result, 1, BYTES), BYTES);
  expect_replay(&graph, 1, stream);
  CHECK_OK(plinth_graph_destroy(later));
  destroy(&graph);
  expect_nothing_left();
}

/* The stream of the last replay captures when the next replay is submitted in another stream, so that no event can be
 * recorded in it. */
TEST(a_replay_waits_for_a_stream_that_now_captures) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  captured_graph graph = capture(NULL, 1, stream, true);
  expect_replay(&graph, 1, stream);
  gate *shut = hold(stream);
  CHECK_OK(plinth_graph_replay(graph.graph));
  plinth_graph_t later = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(later, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_set_stream(other));
  CHECK_OK(plinth_graph_replay(graph.graph));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_capture_end(later));
  CHECK(stays_undone(other));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(words_mismatch(graph.result, 1, BYTES), BYTES);
  CHECK_OK(plinth_graph_replay(later));
  expect_replay(&graph, 1, stream);
  CHECK_OK(plinth_graph_destroy(later));
  destroy(&graph);
  expect_nothing_left();
}

/* ---- sleep */

TEST(a_graph_sleeps_and_wakes) {
  plinth_stream_t stream = on_new_stream(0);
  bool asleep = true;
  captured_graph graph = capture(NULL, 6, stream, true);
  expect_replay(&graph, 6, stream);
  const size_t held = graph_held(graph.graph);
  CHECK_OK(plinth_empty_cache());
  const size_t all = reserved(0);
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_graph_is_asleep(graph.graph, &asleep));
    CHECK(!asleep);
    CHECK_OK(plinth_graph_sleep(graph.graph));
    expect_sound();
    CHECK_OK(plinth_graph_is_asleep(graph.graph, &asleep));
    CHECK(asleep);
    CHECK_EQ(graph_held(graph.graph), 0);
    CHECK_EQ(reserved(0), all - held);
    CHECK_STATUS(plinth_graph_replay(graph.graph), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_OK(plinth_graph_sleep(graph.graph));
    /* The addresses stay reserved. */
    unsigned char *eager = alloc_on(BYTES, 0, stream);
    CHECK(!overlap(eager, BYTES, graph.inside, BYTES));
    release(eager);
    CHECK_OK(plinth_empty_cache());
    expect_sound();
    CHECK_OK(plinth_graph_wake(graph.graph));
    expect_sound();
    CHECK_OK(plinth_graph_wake(graph.graph));
    CHECK_EQ(graph_held(graph.graph), held);
    expect_replay(&graph, 6, stream);
  }
  destroy(&graph);
  expect_nothing_left();
}

static plinth_graph_t observed_graph;
static int notified;

static void query_graph_memory(const plinth_memory_history_entry_t *entry, void *context) {
  size_t used = UNTOUCHED, held = UNTOUCHED;
  CHECK(entry != NULL && context == NULL);
  CHECK_OK(plinth_graph_memory(observed_graph, &used, &held));
  CHECK_EQ(used, 0);
  notified++;
}

/* Trackers are called after the graph is unlocked. */
TEST(a_tracker_may_query_the_graph_that_sleeps) {
  plinth_stream_t stream = on_new_stream(0);
  captured_graph graph = capture(NULL, 6, stream, true);
  observed_graph = graph.graph;
  CHECK_OK(plinth_attach_allocator_trace_tracker(query_graph_memory, NULL));
  CHECK_OK(plinth_graph_sleep(graph.graph));
  const int slept = notified;
  CHECK(slept > 0);
  CHECK_OK(plinth_graph_wake(graph.graph));
  CHECK_EQ(notified, 2 * slept);
  CHECK_OK(plinth_detach_allocator_trace_tracker(query_graph_memory, NULL));
  expect_replay(&graph, 6, stream);
  destroy(&graph);
  expect_nothing_left();
}

static void use_observed_graph(void) {
  bool asleep = false;
  const plinth_status_t status = plinth_graph_is_asleep(observed_graph, &asleep);
  CHECK(status == PLINTH_OK || status == PLINTH_ERROR_GRAPH_NOT_CAPTURED);
  notified++;
}

static void use_graph_in_tracker(const plinth_memory_history_entry_t *entry, void *context) {
  CHECK(entry != NULL && context == NULL);
  use_observed_graph();
}

static void expect_notified(void) {
  CHECK(notified > 0);
  notified = 0;
}

/* Each of these calls allocates or frees memory of the graph. */
TEST(a_tracker_may_use_the_graph_of_a_call) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  observed_graph = graph;
  notified = 0;
  CHECK_OK(plinth_attach_allocator_trace_tracker(use_graph_in_tracker, NULL));
  for (int round = 0; round < 2; round++) {
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    expect_notified();
    unsigned char *inside = alloc_on(BYTES, 0, stream);
    fill_words(inside, 1, BYTES, stream);
    release(inside);
    notified = 0;
    /* Frees the memory for the seeds of random numbers, which the graph does not use. */
    CHECK_OK(plinth_graph_capture_end(graph));
    expect_notified();
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    notified = 0;
    CHECK_OK(round ? plinth_graph_destroy(graph) : plinth_graph_reset(graph));
    observed_graph = round ? new_graph(0) : graph;
    expect_notified();
  }
  CHECK_OK(plinth_detach_allocator_trace_tracker(use_graph_in_tracker, NULL));
  CHECK_OK(plinth_graph_destroy(observed_graph));
  expect_nothing_left();
}

static void capture_in_tracker(const plinth_memory_history_entry_t *entry, void *context) {
  plinth_graph_context_t scope;
  (void)entry;
  if (notified++ == 0) {
    CHECK_OK(plinth_graph_begin(*(plinth_graph_t *)context, NULL, NULL, PLINTH_CAPTURE_THREAD_LOCAL, &scope));
    CHECK_OK(plinth_graph_end(&scope, PLINTH_OK));
  }
}

/* The scopes choose different streams. */
TEST(a_tracker_may_capture_while_a_capture_begins) {
  plinth_graph_t graph = new_graph(0);
  plinth_graph_t inner = new_graph(0);
  plinth_graph_context_t scope;
  notified = 0;
  CHECK_OK(plinth_attach_allocator_trace_tracker(capture_in_tracker, &inner));
  CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_THREAD_LOCAL, &scope));
  CHECK_OK(plinth_detach_allocator_trace_tracker(capture_in_tracker, &inner));
  CHECK(capturing_here());
  CHECK_OK(plinth_graph_end(&scope, PLINTH_OK));
  expect_notified();
  CHECK_OK(plinth_graph_destroy(inner));
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

static void use_graph_in_warning(const char *message, void *context) {
  CHECK(message != NULL && context == NULL);
  use_observed_graph();
}

TEST(a_callback_for_waits_may_use_the_graph_of_a_call) {
  plinth_stream_t stream = on_new_stream(0);
  char *text = NULL;
  captured_graph graph = capture(NULL, 6, stream, true);
  plinth_graph_t kept = graph_of_fill(graph.result, 6, BYTES, stream, PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_set_sync_debug_callback(use_graph_in_warning, NULL));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  observed_graph = graph.graph;
  notified = 0;
  CHECK_OK(plinth_graph_sleep(graph.graph));
  expect_notified();
  observed_graph = kept;
  CHECK_OK(plinth_graph_time_table(kept, 1, &text));
  expect_notified();
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_set_sync_debug_callback(NULL, NULL));
  plinth_string_free(text);
  CHECK_OK(plinth_graph_wake(graph.graph));
  CHECK_OK(plinth_graph_destroy(kept));
  destroy(&graph);
  expect_nothing_left();
}

static captured_graph *other_of_pool;

static void replay_other_in_warning(const char *message, void *context) {
  CHECK(strstr(message, "a free of graph memory") != NULL);
  use_observed_graph();
  gate_open((gate *)context);
  CHECK_OK(plinth_graph_replay(other_of_pool->graph));
}

/* A stream of the pool captures, so that it cannot wait for the last replay, and the CPU does. */
TEST(a_callback_for_waits_may_use_the_graph_that_is_reset_and_its_pool) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  const plinth_pool_id_t pool = shared_pool();
  captured_graph first = capture(&pool, 1, stream, true);
  captured_graph second = capture(&pool, 2, stream, true);
  plinth_graph_t capturing = new_graph(0);
  other_of_pool = &second;
  observed_graph = first.graph;
  CHECK_OK(plinth_set_stream(other));
  gate *shut = hold(other);
  CHECK_OK(plinth_graph_replay(first.graph));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_capture_begin(capturing, &pool, PLINTH_CAPTURE_RELAXED));
  CHECK_OK(plinth_set_stream(other));
  CHECK_OK(plinth_set_sync_debug_callback(replay_other_in_warning, shut));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  notified = 0;
  CHECK_OK(plinth_graph_reset(first.graph));
  expect_notified();
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_set_sync_debug_callback(NULL, NULL));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_capture_end(capturing));
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(words_mismatch(second.result, 2, BYTES), BYTES);
  CHECK_OK(plinth_graph_destroy(capturing));
  destroy(&first);
  destroy(&second);
  expect_nothing_left();
}

static bool use_graph_when_short(int32_t device, size_t bytes, void *context) {
  CHECK(device == 0 && bytes > 0 && context == NULL);
  use_observed_graph();
  return false;
}

TEST(a_free_memory_callback_may_use_the_graph_whose_capture_begins) {
  (void)on_new_stream(0);
  observed_graph = new_graph(0);
  notified = 0;
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_add_free_memory_callback(use_graph_when_short, NULL));
  limit_memory(reserved(0), 0);
  CHECK_STATUS(plinth_graph_capture_begin(observed_graph, NULL, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_OUT_OF_MEMORY);
  expect_notified();
  CHECK(!capturing_here());
  lift_limit(0);
  CHECK_OK(plinth_remove_free_memory_callback(use_graph_when_short, NULL));
  CHECK_OK(plinth_graph_destroy(observed_graph));
  expect_nothing_left();
}

TEST(sleep_waits_for_the_work) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  captured_graph graph = capture(NULL, 6, stream, true);
  CHECK_OK(plinth_set_stream(other));
  gate *shut = gate_shut(other);
  CHECK_OK(plinth_graph_replay(graph.graph));
  const pthread_t thread = gate_open_soon(shut);
  CHECK_OK(plinth_graph_sleep(graph.graph));
  CHECK(gate_is_open(shut));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQ(words_mismatch(graph.result, 6, BYTES), BYTES);
  CHECK_OK(plinth_graph_wake(graph.graph));
  expect_replay(&graph, 6, other);
  destroy(&graph);
  expect_nothing_left();
}

/* Outputs that the program still holds keep their addresses, and all graphs of the pool sleep. */
TEST(a_pool_sleeps_as_a_whole) {
  plinth_stream_t stream = on_new_stream(0);
  const plinth_pool_id_t pool = shared_pool();
  plinth_graph_t third = new_graph(0);
  captured_graph first = capture(&pool, 1, stream, false);
  captured_graph second = capture(&pool, 2, stream, false);
  expect_replay(&first, 1, stream);
  CHECK_OK(plinth_graph_sleep(first.graph));
  CHECK_STATUS(plinth_graph_replay(second.graph), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_STATUS(plinth_graph_capture_begin(third, &pool, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK(!capturing_here());
  CHECK_EQ(graph_allocated(first.graph), 2 * BYTES);
  /* A block can be freed while the pool sleeps. */
  release(second.inside);
  expect_sound();
  CHECK_OK(plinth_graph_wake(second.graph));
  expect_replay(&second, 2, stream);
  expect_replay(&first, 1, stream);
  release(first.inside);
  CHECK_OK(plinth_graph_destroy(third));
  destroy(&first);
  destroy(&second);
  expect_nothing_left();
}

TEST(a_graph_may_be_destroyed_while_it_sleeps) {
  plinth_stream_t stream = on_new_stream(0);
  for (int held = 0; held < 2; held++) {
    captured_graph graph = capture(NULL, 1, stream, held == 0);
    captured_graph other = capture(NULL, 2, stream, true);
    CHECK_OK(plinth_graph_sleep(graph.graph));
    unsigned char *inside = graph.inside;
    destroy(&graph);
    expect_sound();
    if (held) {
      CHECK_EQ(allocated(0), BYTES);
      release(inside);
    }
    expect_sound();
    expect_replay(&other, 2, stream);
    destroy(&other);
    expect_nothing_left();
  }
}

TEST(a_pool_in_use_does_not_sleep) {
  plinth_stream_t stream = on_new_stream(0);
  const plinth_pool_id_t pool = shared_pool();
  captured_graph graph = capture(&pool, 1, stream, true);
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  CHECK_STATUS(plinth_graph_sleep(graph.graph), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  void *eager = alloc_on(MIB, 0, stream);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_STATUS(plinth_graph_sleep(graph.graph), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  expect_replay(&graph, 1, stream);
  release(eager);
  CHECK_OK(plinth_graph_sleep(graph.graph));
  CHECK_STATUS(plinth_begin_allocate_current_thread_to_pool(0, pool), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_graph_wake(graph.graph));
  expect_replay(&graph, 1, stream);
  CHECK_OK(plinth_release_pool(0, pool));
  destroy(&graph);
  expect_nothing_left();
}

TEST(a_graph_stays_asleep_when_memory_is_short) {
  plinth_stream_t stream = on_new_stream(0);
  bool asleep = false;
  captured_graph graph = capture(NULL, 1, stream, true);
  CHECK_OK(plinth_graph_sleep(graph.graph));
  void *eager = alloc_on(64 * MIB, 0, stream);
  limit_memory(reserved(0) + MIB, 0);
  CHECK_STATUS(plinth_graph_wake(graph.graph), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("stays asleep");
  expect_sound();
  CHECK_OK(plinth_graph_is_asleep(graph.graph, &asleep));
  CHECK(asleep);
  CHECK_STATUS(plinth_graph_replay(graph.graph), PLINTH_ERROR_GRAPH_ASLEEP);
  /* Waking releases cached memory. */
  release(eager);
  finish(stream);
  CHECK_OK(plinth_graph_wake(graph.graph));
  lift_limit(0);
  expect_replay(&graph, 1, stream);
  destroy(&graph);
  expect_nothing_left();
}

TEST(graphs_cannot_sleep_while_a_stream_captures) {
  plinth_stream_t stream = on_new_stream(0);
  captured_graph graph = capture(NULL, 1, stream, true);
  plinth_graph_t other = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(other, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_STATUS(plinth_graph_sleep(graph.graph), PLINTH_ERROR_CAPTURE_FORBIDS);
  /* The refused call does not invalidate the capture. */
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_graph_capture_end(other));
  CHECK_OK(plinth_graph_replay(other));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(other));
  expect_replay(&graph, 1, stream);
  destroy(&graph);
  expect_nothing_left();
}
