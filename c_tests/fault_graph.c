/*
 * Each driver call of each function for graphs fails once. The function reports an error or recovers. In both cases streams,
 * pools and generators stay usable, a function that frees can be called again, and nothing leaks.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "drawing.h"
#include "faults.h"
#include "graphing.h"

enum { BYTES = 64 * 1024, COUNT = 1000 };

static plinth_stream_t own, other;
static void *memory, *pinned;
static plinth_generator_t generator;

/* After a run, streams, memory and generators work. */
static void expect_usable(void) {
  CHECK_OK(plinth_set_stream(own));
  CHECK(!capturing_here());
  expect_sound();
  CHECK_OK(plinth_generator_manual_seed(generator, 1));
  release(alloc_on(BYTES, 0, own));
  finish(own);
}

static void set_up(void) {
  need_host_device();
  own = stream_on(0);
  other = stream_on(0);
  pinned = pinned_memory(16 * MIB);
  generator = new_generator(0, 1, 0);
}

static void enter_stream(void) { CHECK_OK(plinth_set_stream(own)); }

static void expect_no_graph_leak(const plinth_host_usage_t *before, const plinth_host_usage_t *after) {
  CHECK_EQ(after->graphs, before->graphs);
  CHECK_EQ(after->device_bytes, before->device_bytes);
  CHECK_EQ(after->streams, before->streams);
}

static const fault_plan graph_plan = {
    .set_up = set_up,
    .prepare = enter_stream,
    .recover = expect_usable,
    .inspect = expect_nothing_left,
    .compare = expect_no_graph_leak,
    .report = FAULT_MAY_MEAN_NO_MEMORY,
    .kinds = KINDS_WITH_CONTEXT,
    .warm_up = 40,
    .min_faults = 2,
};

/* Enqueues work of every kind in a capture. Returns whether every call succeeds. */
static bool enqueue_work(uint32_t word, bool random) {
  tensor out;
  memory = NULL;
  bool enqueued = ATTEMPT(plinth_caching_allocator_alloc(4 * MIB, 0, own, &memory)) &&
                  ATTEMPT(plinth_memset_pattern(memory, &word, sizeof word, 4 * MIB, own));
  if (enqueued && random) {
    enqueued = ATTEMPT(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, generator, own));
  }
  enqueued = enqueued && ATTEMPT(plinth_memcpy(pinned, memory, BYTES, own));
  RETRY(plinth_caching_allocator_delete(memory));
  return enqueued;
}

static bool capture(plinth_graph_t graph, const plinth_pool_id_t *pool, uint32_t word, bool random) {
  if (random) {
    CHECK_OK(plinth_graph_register_generator_state(graph, generator));
  }
  if (!ATTEMPT(plinth_graph_capture_begin(graph, pool, PLINTH_CAPTURE_GLOBAL))) {
    CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_GRAPH_NOT_CAPTURING);
    return false;
  }
  const bool enqueued = enqueue_work(word, random);
  /* If a call failed before, the end of the capture either succeeds or reports that the capture is invalid. */
  const plinth_status_t status = plinth_graph_capture_end(graph);
  if (status != PLINTH_OK && enqueued) {
    return ATTEMPT(status);
  }
  return enqueued && status == PLINTH_OK;
}

/* The fault can happen in queries too. */
static uint64_t offset_now(void) {
  uint64_t offset = UNTOUCHED;
  RETRY(plinth_generator_get_offset(generator, &offset));
  return offset;
}

static bool capturing_now(void) {
  bool capturing = true;
  RETRY(plinth_is_current_stream_capturing(&capturing));
  return capturing;
}

static void destroy(plinth_graph_t graph) { RETRY(plinth_graph_destroy(graph)); }

SCENARIO_OF(graph_plan, capture_replay_and_reset) {
  plinth_graph_t graph = new_graph(0);
  for (int round = 0; round < 2; round++) {
    if (capture(graph, NULL, 5, false)) {
      for (int again = 0; again < 2; again++) {
        memset(pinned, 0, BYTES);
        if (ATTEMPT(plinth_graph_replay(graph)) && ATTEMPT(plinth_stream_synchronize(own))) {
          CHECK_EQ(words_mismatch(pinned, 5, BYTES), BYTES);
        }
      }
    } else {
      (void)plinth_graph_replay(graph);
    }
    RETRY(plinth_graph_reset(graph));
  }
  destroy(graph);
}

/* A failed replay does not advance the generator. */
SCENARIO_OF(graph_plan, random_replays) {
  plinth_graph_t graph = new_graph(0);
  if (capture(graph, NULL, 5, true)) {
    for (int again = 0; again < 3; again++) {
      const uint64_t before = offset_now();
      if (ATTEMPT(plinth_graph_replay(graph))) {
        CHECK_EQ(offset_now(), before + 4);
      } else {
        CHECK_EQ(offset_now(), before);
      }
    }
  } else {
    CHECK_EQ(offset_now(), 0);
  }
  RETRY(plinth_stream_synchronize(own));
  destroy(graph);
}

SCENARIO_OF(graph_plan, alternating_streams) {
  const plinth_pool_id_t pool = shared_pool();
  plinth_graph_t graphs[2] = {new_graph(0), new_graph(0)};
  bool made[2];
  made[0] = capture(graphs[0], &pool, 1, false);
  made[1] = capture(graphs[1], &pool, 2, true);
  for (int round = 0; round < 4; round++) {
    CHECK_OK(plinth_set_stream(round % 2 ? own : other));
    for (int index = 0; index < 2; index++) {
      if (made[index]) {
        (void)ATTEMPT(plinth_graph_replay(graphs[index]));
      }
    }
  }
  CHECK_OK(plinth_set_stream(own));
  if (made[0]) {
    CHECK_STATUS(plinth_graph_capture_begin(graphs[0], NULL, 0), PLINTH_ERROR_GRAPH_CAPTURED);
  }
  destroy(graphs[1]);
  destroy(graphs[0]);
}

SCENARIO_OF(graph_plan, an_aborted_capture) {
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_register_generator_state(graph, generator));
  for (int round = 0; round < 2; round++) {
    if (ATTEMPT(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL))) {
      (void)enqueue_work(1, round == 1);
    }
    RETRY(plinth_graph_reset(graph));
    CHECK(!capturing_now());
  }
  if (ATTEMPT(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_RELAXED))) {
    (void)enqueue_work(1, false);
  }
  destroy(graph);
}

SCENARIO_OF(graph_plan, graph_context) {
  plinth_graph_context_t context;
  plinth_graph_t graph = new_graph(0);
  plinth_stream_t now = NULL;
  if (ATTEMPT(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context))) {
    plinth_status_t body = PLINTH_OK;
    CHECK_OK(plinth_current_stream(0, &now));
    if (!ATTEMPT(plinth_sleep(1, now))) {
      body = failure.status;
    }
    const plinth_status_t status = plinth_graph_end(&context, body);
    if (body != PLINTH_OK) {
      CHECK_EQ(status, body);
    } else if (ATTEMPT(status)) {
      (void)ATTEMPT(plinth_graph_replay(graph));
    }
  }
  CHECK_OK(plinth_current_stream(0, &now));
  CHECK_SAME(now, own);
  destroy(graph);
}

SCENARIO_OF(graph_plan, kept_nodes) {
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_t copy = NULL;
  char *text = NULL;
  if (capture(graph, NULL, 5, false)) {
    (void)ATTEMPT(plinth_graph_instantiate(graph));
    (void)ATTEMPT(plinth_graph_upload(graph));
    (void)ATTEMPT(plinth_graph_replay(graph));
    if (ATTEMPT(plinth_graph_summary(graph, &text))) {
      plinth_string_free(text);
    }
    (void)ATTEMPT(plinth_graph_debug_dump(graph, "/dev/null"));
    if (ATTEMPT(plinth_graph_clone(graph, &copy))) {
      (void)ATTEMPT(plinth_graph_replay(copy));
      (void)ATTEMPT(plinth_graph_update(copy, graph));
      (void)ATTEMPT(plinth_graph_replay(copy));
    }
  }
  destroy(graph);
  destroy(copy);
}

SCENARIO_OF(graph_plan, sleep_and_wake) {
  plinth_graph_t graph = new_graph(0);
  if (capture(graph, NULL, 5, false)) {
    for (int round = 0; round < 2; round++) {
      (void)ATTEMPT(plinth_graph_replay(graph));
      RETRY(plinth_graph_sleep(graph));
      CHECK_EQ(graph_held(graph), 0);
      expect_sound();
      RETRY(plinth_graph_wake(graph));
      expect_sound();
      memset(pinned, 0, BYTES);
      if (ATTEMPT(plinth_graph_replay(graph)) && ATTEMPT(plinth_stream_synchronize(own))) {
        CHECK_EQ(words_mismatch(pinned, 5, BYTES), BYTES);
      }
    }
    RETRY(plinth_graph_sleep(graph));
  }
  destroy(graph);
}

/* Memory of the default pool could go back to the driver while the graph uses it. */
SCENARIO_OF(graph_plan, allocate_in_a_capture) {
  plinth_graph_t graph = new_graph(0);
  void *block = NULL;
  size_t in_pool = 0, held = 0;
  if (ATTEMPT(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_RELAXED))) {
    const bool allocated = ATTEMPT(plinth_caching_allocator_alloc(BYTES, 0, own, &block));
    (void)ATTEMPT(plinth_sleep(1, own));
    if (ATTEMPT(plinth_graph_capture_end(graph)) && allocated) {
      CHECK_OK(plinth_graph_memory(graph, &in_pool, &held));
      CHECK(in_pool >= BYTES);
    }
  }
  destroy(graph);
  if (block != NULL) {
    RETRY(plinth_caching_allocator_delete(block));
  }
}
