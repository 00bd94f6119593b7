/* Allocation while a stream captures, and the memory of graphs. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "allocating.h"
#include "driver.h"

static size_t pool_allocated(plinth_pool_id_t pool) {
  size_t bytes = UNTOUCHED;
  size_t held = UNTOUCHED;
  CHECK_OK(plinth_mem_pool_memory(pool, 0, &bytes, &held));
  return bytes;
}

static size_t pool_reserved(plinth_pool_id_t pool) {
  size_t bytes = UNTOUCHED;
  size_t held = UNTOUCHED;
  CHECK_OK(plinth_mem_pool_memory(pool, 0, &bytes, &held));
  return held;
}

static plinth_pool_id_t new_pool(void) {
  plinth_pool_id_t pool = {0, 0};
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  return pool;
}

static void *end_and_instantiate(plinth_stream_t stream) {
  void *graph = NULL;
  void *executable = NULL;
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(instantiate(&executable, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  return executable;
}

static void launch(void *executable, plinth_stream_t stream) {
  DRIVER(driver_graph_launch, call, "cuGraphLaunch");
  CHECK_EQ(call(executable, stream), CUDA_SUCCESS);
}

static void destroy_executable(void *executable) {
  DRIVER(driver_graph_destroy, destroy, "cuGraphExecDestroy");
  CHECK_EQ(destroy(executable), CUDA_SUCCESS);
}

enum { FIRST = 20 * MIB, SECOND = 8 * MIB, THIRD = 100 * KIB };

/*
 * A graph as PyTorch captures one: the pool begins, the stream captures, and the capture allocates and frees blocks. The
 * remaining blocks are freed after the capture, while the graph exists.
 */
typedef struct captured {
  plinth_pool_id_t pool;
  plinth_stream_t stream;
  void *executable;
  unsigned char *first, *second, *third;
  void *result;
} captured;

static captured capture_with_allocations(unsigned mode) {
  captured made = {new_pool(), stream_on(0), NULL, NULL, NULL, NULL, pinned_memory(SECOND)};
  CHECK_OK(plinth_begin_allocate_to_pool(0, made.pool));
  begin_capture(made.stream, mode);
  made.first = alloc_on(FIRST, 0, made.stream);
  fill_words(made.first, 0xAAAAAAAA, FIRST, made.stream);
  made.second = alloc_on(SECOND, 0, made.stream);
  CHECK_OK(plinth_memcpy(made.second, made.first, SECOND, made.stream));
  release(made.first);
  made.third = alloc_on(THIRD, 0, made.stream);
  fill_words(made.third, 0xBBBBBBBB, THIRD, made.stream);
  CHECK_OK(plinth_memcpy(made.second, made.third, THIRD, made.stream));
  CHECK_OK(plinth_memcpy(made.result, made.second, SECOND, made.stream));
  CHECK_EQ(pool_allocated(made.pool), SECOND + THIRD);
  made.executable = end_and_instantiate(made.stream);
  CHECK_OK(plinth_end_allocate_to_pool(0, made.pool));
  expect_sound();
  return made;
}

static void replay(const captured *graph) {
  memset(graph->result, 0, SECOND);
  launch(graph->executable, graph->stream);
  CHECK_OK(plinth_stream_synchronize(graph->stream));
  CHECK_EQ(words_mismatch(graph->result, 0xBBBBBBBB, THIRD), THIRD);
  CHECK_EQ(words_mismatch((char *)graph->result + THIRD, 0xAAAAAAAA, SECOND - THIRD), SECOND - THIRD);
}

static void destroy_captured(captured *graph) {
  destroy_executable(graph->executable);
  CHECK_OK(plinth_release_pool(0, graph->pool));
  CHECK_OK(plinth_mem_pool_destroy(graph->pool));
  CHECK_OK(plinth_pinned_free(graph->result));
}

/* Allocates memory of several sizes and streams, and checks that a replay does not write to it. */
static void expect_separate_from_eager_memory(const captured *graph) {
  enum { BLOCKS = 24 };
  static const size_t sizes[] = {FIRST, SECOND, THIRD, 4 * KIB, 2 * MIB, 11 * MIB};
  unsigned char *blocks[BLOCKS];
  void *pinned = pinned_memory(FIRST);
  plinth_stream_t other = stream_on(0);
  for (int index = 0; index < BLOCKS; index++) {
    const size_t bytes = sizes[index % 6];
    blocks[index] = alloc_on(bytes, 0, index % 2 ? other : graph->stream);
    CHECK(!overlap(blocks[index], bytes, graph->first, FIRST));
    CHECK(!overlap(blocks[index], bytes, graph->second, SECOND));
    CHECK(!overlap(blocks[index], bytes, graph->third, THIRD));
    fill_words(blocks[index], (uint32_t)index, bytes, index % 2 ? other : graph->stream);
  }
  CHECK_OK(plinth_stream_synchronize(other));
  replay(graph);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK(has_words(blocks[index], (uint32_t)index, sizes[index % 6], graph->stream, pinned));
    release(blocks[index]);
  }
  CHECK_OK(plinth_pinned_free(pinned));
}

static void test_graph_memory(unsigned mode) {
  captured graph = capture_with_allocations(mode);
  replay(&graph);
  replay(&graph);
  expect_separate_from_eager_memory(&graph);
  /* The remaining blocks are freed, but stay reserved for the graph. */
  release(graph.second);
  release(graph.third);
  CHECK_EQ(pool_allocated(graph.pool), 0);
  expect_separate_from_eager_memory(&graph);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_empty_cache());
  CHECK(pool_reserved(graph.pool) >= SECOND);
  expect_separate_from_eager_memory(&graph);
  destroy_captured(&graph);
  expect_nothing_left();
}

TEST(a_graph_of_a_global_capture_owns_its_memory) { test_graph_memory(CU_STREAM_CAPTURE_MODE_GLOBAL); }
TEST(a_graph_of_a_thread_local_capture_owns_its_memory) { test_graph_memory(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); }
TEST(a_graph_of_a_relaxed_capture_owns_its_memory) { test_graph_memory(CU_STREAM_CAPTURE_MODE_RELAXED); }

/* A shortage does not free a graph's memory. */
TEST(a_graph_keeps_its_memory_in_a_shortage) {
  void *pointer = NULL;
  captured graph = capture_with_allocations(CU_STREAM_CAPTURE_MODE_GLOBAL);
  release(graph.second);
  release(graph.third);
  limit_memory(reserved(0) + 16 * MIB, 0);
  CHECK_STATUS(plinth_caching_allocator_alloc(40 * MIB, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  replay(&graph);
  lift_limit(0);
  destroy_captured(&graph);
  expect_nothing_left();
}

/* The pool ends while a replay waits in a stream that never used the pool: nobody gets the memory until then. */
TEST(memory_outlasts_a_replay_in_another_stream) {
  captured graph = capture_with_allocations(CU_STREAM_CAPTURE_MODE_GLOBAL);
  plinth_stream_t other = stream_on(0);
  void *pinned = pinned_memory(FIRST);
  release(graph.second);
  release(graph.third);
  memset(graph.result, 0, SECOND);
  CHECK_OK(plinth_synchronize(0));
  gate *shut = gate_shut(other);
  launch(graph.executable, other);
  CHECK_OK(plinth_release_pool(0, graph.pool));
  CHECK_OK(plinth_mem_pool_destroy(graph.pool));
  CHECK_OK(plinth_empty_cache());
  unsigned char *memory = alloc_on(FIRST, 0, graph.stream);
  fill_words(memory, 0xCCCCCCCC, FIRST, graph.stream);
  CHECK_OK(plinth_stream_synchronize(graph.stream));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK_EQ(words_mismatch(graph.result, 0xBBBBBBBB, THIRD), THIRD);
  CHECK_EQ(words_mismatch((char *)graph.result + THIRD, 0xAAAAAAAA, SECOND - THIRD), SECOND - THIRD);
  CHECK(has_words(memory, 0xCCCCCCCC, FIRST, graph.stream, pinned));
  release(memory);
  destroy_executable(graph.executable);
  CHECK_OK(plinth_pinned_free(graph.result));
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(blocks_are_reused_within_a_capture) {
  plinth_pool_id_t pool = new_pool();
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_begin_allocate_to_pool(0, pool));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  unsigned char *memory = alloc_on(8 * MIB, 0, stream);
  const size_t held = pool_reserved(pool);
  for (int round = 0; round < 10; round++) {
    CHECK_OK(plinth_memset(memory, (uint8_t)round, 8 * MIB, stream));
    release(memory);
    CHECK_SAME(alloc_on(8 * MIB, 0, stream), memory);
  }
  CHECK_EQ(pool_reserved(pool), held);
  release(memory);
  void *executable = end_and_instantiate(stream);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  destroy_executable(executable);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(only_capturing_streams_use_the_pool) {
  plinth_pool_id_t pool = new_pool();
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t side = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *memory[5];
  CHECK_OK(plinth_begin_allocate_to_pool(0, pool));
  memory[0] = alloc_on(MIB, 0, stream);
  CHECK_EQ(pool_allocated(pool), 0);
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  memory[1] = alloc_on(2 * MIB, 0, stream);
  CHECK_EQ(pool_allocated(pool), 2 * MIB);
  memory[2] = alloc_on(3 * MIB, 0, other);
  memory[3] = alloc_on(3 * MIB, 0, NULL);
  CHECK_EQ(pool_allocated(pool), 2 * MIB);
  /* A stream that joined the capture also captures. */
  CHECK_OK(plinth_stream_wait_stream(side, stream));
  memory[4] = alloc_on(4 * MIB, 0, side);
  CHECK_EQ(pool_allocated(pool), 6 * MIB);
  CHECK_OK(plinth_memset(memory[4], 1, 4 * MIB, side));
  CHECK_OK(plinth_stream_wait_stream(stream, side));
  void *executable = end_and_instantiate(stream);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  launch(executable, stream);
  CHECK_OK(plinth_stream_synchronize(stream));
  destroy_executable(executable);
  for (int index = 0; index < 5; index++) {
    release(memory[index]);
  }
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

static plinth_stream_t shared_stream;
static void *from_another_thread;

static void *allocate_on_the_stream(void *context) {
  (void)context;
  from_another_thread = alloc_on(6 * MIB, 0, shared_stream);
  release(alloc_on(30 * MIB, 0, stream_on(0)));
  return NULL;
}

TEST(other_threads_allocate_while_one_captures) {
  for (unsigned mode = 0; mode < 3; mode++) {
    plinth_pool_id_t pool = new_pool();
    shared_stream = stream_on(0);
    CHECK_OK(plinth_begin_allocate_to_pool(0, pool));
    begin_capture(shared_stream, mode);
    CHECK_OK(plinth_sleep(1000, shared_stream));
    /* One allocation in the capturing stream and one in another: both need new memory of the driver. */
    run_threads(1, allocate_on_the_stream);
    CHECK_EQ(pool_allocated(pool), 6 * MIB);
    void *executable = end_and_instantiate(shared_stream);
    CHECK_OK(plinth_end_allocate_to_pool(0, pool));
    destroy_executable(executable);
    release(from_another_thread);
    CHECK_OK(plinth_release_pool(0, pool));
    CHECK_OK(plinth_mem_pool_destroy(pool));
    expect_nothing_left();
  }
}

TEST(eager_allocations_work_while_a_stream_captures) {
  for (unsigned mode = 0; mode < 3; mode++) {
    plinth_stream_t stream = stream_on(0);
    plinth_stream_t other = stream_on(0);
    void *graph = NULL;
    DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
    void *memory = alloc_on(4 * MIB, 0, other);
    begin_capture(stream, mode);
    CHECK_OK(plinth_sleep(1000, stream));
    for (int round = 0; round < 5; round++) {
      void *more = alloc_on((size_t)(round + 1) * 9 * MIB, 0, round % 2 ? other : NULL);
      CHECK_OK(plinth_memset(more, 1, MIB, round % 2 ? other : NULL));
      CHECK_OK(plinth_record_stream(more, stream_on(0)));
      release(more);
      if (device_count() > 1) {
        release(alloc_on(9 * MIB, 1, NULL));
      }
    }
    release(memory);
    (void)plinth_empty_cache();
    expect_sound();
    CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(destroy(graph), CUDA_SUCCESS);
    expect_nothing_left();
  }
}

TEST(memory_from_before_can_be_freed_during_a_capture) {
  plinth_stream_t stream = stream_on(0);
  void *graph = NULL;
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  void *memory = alloc_on(4 * MIB, 0, stream);
  plinth_pool_id_t pool = new_pool();
  CHECK_OK(plinth_begin_allocate_to_pool(0, pool));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_OK(plinth_sleep(1000, stream));
  release(memory);
  /* The pool does not get it. */
  unsigned char *inside = alloc_on(4 * MIB, 0, stream);
  CHECK(!overlap(inside, 4 * MIB, memory, 4 * MIB));
  CHECK_EQ(pool_allocated(pool), 4 * MIB);
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  CHECK_SAME(alloc_on(4 * MIB, 0, stream), memory);
  release(memory);
  release(inside);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

/* Two graphs of one pool share the memory that the first one freed, if they are replayed in the order of their captures. */
TEST(graphs_share_a_pool) {
  enum { BYTES = 16 * MIB };
  plinth_pool_id_t pool = new_pool();
  plinth_stream_t stream = stream_on(0);
  void *pinned = pinned_memory(BYTES);
  void *executables[2];
  unsigned char *memory[2];
  size_t held = 0;
  for (int index = 0; index < 2; index++) {
    CHECK_OK(plinth_begin_allocate_to_pool(0, pool));
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    memory[index] = alloc_on(BYTES, 0, stream);
    fill_words(memory[index], (uint32_t)index + 1, BYTES, stream);
    CHECK_OK(plinth_memcpy(pinned, memory[index], BYTES, stream));
    release(memory[index]);
    executables[index] = end_and_instantiate(stream);
    CHECK_OK(plinth_end_allocate_to_pool(0, pool));
    if (index == 0) {
      held = pool_reserved(pool);
    }
  }
  CHECK_SAME(memory[1], memory[0]);
  CHECK_EQ(pool_reserved(pool), held);
  for (int round = 0; round < 4; round++) {
    launch(executables[round % 2], stream);
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_EQ(words_mismatch(pinned, (uint32_t)(round % 2) + 1, BYTES), BYTES);
  }
  destroy_executable(executables[0]);
  CHECK_OK(plinth_release_pool(0, pool));
  /* The other graph is usable. */
  unsigned char *eager = alloc_on(BYTES, 0, stream);
  CHECK(!overlap(eager, BYTES, memory[1], BYTES));
  launch(executables[1], stream);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(words_mismatch(pinned, 2, BYTES), BYTES);
  destroy_executable(executables[1]);
  release(eager);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(memory_of_a_failed_capture_is_usable) {
  plinth_pool_id_t pool = new_pool();
  plinth_stream_t stream = stream_on(0);
  void *graph = NULL;
  CHECK_OK(plinth_begin_allocate_to_pool(0, pool));
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  void *memory = alloc_on(4 * MIB, 0, stream);
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  /* The capture is invalid now, so the allocation may succeed or fail. */
  void *late = NULL;
  const plinth_status_t status = plinth_caching_allocator_alloc(4 * MIB, 0, stream, &late);
  CHECK(end_capture(stream, &graph) != CUDA_SUCCESS);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  if (status == PLINTH_OK) {
    release(late);
  }
  CHECK_OK(plinth_memset(memory, 1, 4 * MIB, stream));
  release(memory);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(allocations_without_a_pool_do_not_disturb_a_capture) {
  for (unsigned mode = 0; mode < 3; mode++) {
    plinth_stream_t stream = stream_on(0);
    void *executable = NULL;
    begin_capture(stream, mode);
    void *memory = alloc_on(28 * MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, 3, 28 * MIB, stream));
    executable = end_and_instantiate(stream);
    launch(executable, stream);
    CHECK_OK(plinth_stream_synchronize(stream));
    destroy_executable(executable);
    release(memory);
    expect_nothing_left();
  }
}
