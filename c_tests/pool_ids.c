/* Which ids of memory pools are valid, and which thread may end the use of a pool. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pooling.h"

static plinth_pool_id_t shared_pool;
static plinth_stream_t shared_stream;

typedef plinth_status_t (*begin_function)(int32_t device, plinth_pool_id_t pool);

static plinth_status_t begin_for_stream(int32_t device, plinth_pool_id_t pool) {
  return plinth_begin_allocate_current_stream_to_pool(device, shared_stream, pool);
}

static const begin_function begins[] = {plinth_begin_allocate_current_thread_to_pool, plinth_begin_allocate_to_pool,
                                        begin_for_stream};

/* As use_mem_pool in a thread, where the begin fails because another thread uses the pool: it ends nothing. */
static void *fail_to_begin_and_end(void *context) {
  (void)context;
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(begins[index](0, shared_pool), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("already recording to mempool_id");
    CHECK_STATUS(plinth_end_allocate_to_pool(0, shared_pool), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("another thread began it; end it in that thread");
  }
  CHECK_EQ(use_count(shared_pool, 0), 2);
  return NULL;
}

TEST(only_the_thread_that_began_it_ends_it) {
  shared_stream = stream_on(0);
  for (int index = 0; index < 3; index++) {
    shared_pool = new_pool(false, false);
    CHECK_OK(begins[index](0, shared_pool));
    run_threads(2, fail_to_begin_and_end);
    void *memory = alloc_on(MIB, 0, shared_stream);
    /* Requests of capturing streams only are routed by the second function. */
    CHECK_EQ(pool_allocated(shared_pool, 0), index == 1 ? 0 : MIB);
    release(memory);
    leave(shared_pool, 0);
    CHECK_STATUS(plinth_end_allocate_to_pool(0, shared_pool), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("not currently recording to mempool_id");
    destroy(shared_pool);
  }
  expect_nothing_left();
}

static void *begin_and_exit(void *context) {
  (void)context;
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, shared_pool));
  return NULL;
}

TEST(any_thread_ends_it_for_a_thread_that_exited) {
  shared_pool = new_pool(false, false);
  run_threads(1, begin_and_exit);
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_EQ(pool_allocated(shared_pool, 0), 0);
  release(memory);
  leave(shared_pool, 0);
  enter(shared_pool, 0);
  leave(shared_pool, 0);
  destroy(shared_pool);
  expect_nothing_left();
}

static void expect_refused(plinth_pool_id_t pool) {
  plinth_graph_t graph = NULL;
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  size_t bytes = UNTOUCHED;
  int32_t count = UNTOUCHED;
  char *text = (char *)UNTOUCHED_POINTER;
  shared_stream = stream_on(0);
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(begins[index](0, pool), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_MESSAGE("it was never created or was destroyed");
  }
  CHECK_STATUS(plinth_release_pool(0, pool), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_set_budget(pool, MIB), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_get_budget(pool, &bytes), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_set_use_on_oom(pool, true), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_use_count(pool, 0, &count), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_memory(pool, 0, &bytes, &bytes), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_stats(pool, 0, &stats), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_snapshot(pool, false, &text), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_destroy(pool), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_set_stream(shared_stream));
  CHECK_STATUS(plinth_graph_capture_begin(graph, &pool, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("it was never created or was destroyed");
  CHECK_OK(plinth_set_stream(NULL));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_EQ(bytes, UNTOUCHED);
  CHECK_EQ(count, UNTOUCHED);
  CHECK_SAME(text, UNTOUCHED_POINTER);
}

TEST(ids_that_nobody_issued_are_refused) {
  const uint64_t far = (uint64_t)1 << 40; /* beyond what other tests have created */
  const plinth_pool_id_t invented[] = {{0, far}, {0, far + 1}, {far, 0}, {0, 1}, {1, 1}, {0, UINT64_MAX}};
  for (int index = 0; index < 6; index++) {
    expect_refused(invented[index]);
  }
  expect_nothing_left();
}

TEST(a_destroyed_pool_is_not_used_again) {
  plinth_pool_id_t pool = new_pool(false, false);
  CHECK_OK(plinth_mem_pool_set_budget(pool, 64 * MIB));
  destroy(pool);
  expect_refused(pool);
  /* Its blocks can be asked about as long as there are any. */
  pool = new_pool(false, false);
  enter(pool, 0);
  void *memory = alloc_on(MIB, 0, NULL);
  leave(pool, 0);
  destroy(pool);
  CHECK_EQ(pool_allocated(pool, 0), MIB);
  release(memory);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_empty_cache());
  expect_refused(pool);
  expect_nothing_left();
}

/* A handle for graphs exists without a pool, so it may be used at any time, and keeps its budget. */
TEST(a_graph_pool_handle_is_always_valid) {
  plinth_pool_id_t pool = {UNTOUCHED, UNTOUCHED};
  size_t bytes = UNTOUCHED;
  void *pointer = NULL;
  CHECK_OK(plinth_graph_pool_handle(&pool));
  CHECK_EQ(use_count(pool, 0), 0);
  CHECK_EQ(pool_allocated(pool, 0), 0);
  CHECK_STATUS(plinth_mem_pool_destroy(pool), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_mem_pool_set_budget(pool, 8 * MIB));
  for (int round = 0; round < 2; round++) {
    enter(pool, 0);
    void *memory = alloc_on(2 * MIB, 0, NULL);
    CHECK_EQ(pool_allocated(pool, 0), 2 * MIB);
    CHECK_STATUS(plinth_caching_allocator_alloc(30 * MIB, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_MESSAGE("budget");
    release(memory);
    CHECK_OK(plinth_synchronize(0));
    leave(pool, 0);
    CHECK_EQ(pool_reserved(pool, 0), 0);
    CHECK_OK(plinth_mem_pool_get_budget(pool, &bytes));
    CHECK_EQ(bytes, 8 * MIB);
  }
  expect_nothing_left();
}
