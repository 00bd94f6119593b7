/* Backends other than the caching allocator: cudaMallocAsync with the driver's pools, and uncached.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; sets the environment */
/* long: threads_share_the_async_backend */
#include "allocating.h"
#include "driver.h"
#include "logging.h"

static void configure(const char *text) { CHECK(setenv("PLINTH_ALLOC_CONF", text, 1) == 0); }

static const char *backend(void) {
  const char *name = NULL;
  CHECK_OK(plinth_get_allocator_backend(&name));
  return name;
}

static uint64_t calls_of(const char *name) {
  uint64_t count = UNTOUCHED;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

/* Selects the cudaMallocAsync backend. Old drivers and some devices do not support it. */
static void select_async_backend(void) {
  const char *cuda = getenv("PLINTH_DEVICE");
  configure("backend:cudaMallocAsync");
  if (cuda == NULL || strcmp(cuda, "host") != 0) {
    void *memory = NULL;
    if (plinth_caching_allocator_alloc(KIB, 0, NULL, &memory) == PLINTH_ERROR_NOT_SUPPORTED) {
      SKIP("the device has no stream-ordered memory pools");
    }
    CHECK_OK(plinth_caching_allocator_delete(memory));
  }
}

TEST(the_default_backend_is_native) {
  CHECK_STATUS(plinth_get_allocator_backend(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_TEXT(backend(), "native");
  CHECK(!plinth_is_initialized());
  release(alloc_on(MIB, 0, NULL));
  CHECK_TEXT(backend(), "native");
  CHECK_STATUS(plinth_set_allocator_settings("backend:uncached"), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK_MESSAGE("backend");
  CHECK_OK(plinth_set_allocator_settings("backend:native"));
  CHECK_TEXT(backend(), "native");
}

TEST(a_backend_can_be_set_before_the_first_request) {
  CHECK_OK(plinth_init());
  CHECK_OK(plinth_set_allocator_settings("backend:uncached"));
  CHECK_TEXT(backend(), "uncached");
  release(alloc_on(MIB, 0, NULL));
  expect_nothing_left();
}

static void use(const char *name) {
  static const size_t sizes[] = {1, 512, 513, 100000, MIB, MIB + 1, 30 * MIB};
  plinth_stream_t stream = stream_on(0);
  unsigned char *blocks[7];
  size_t sum = 0;
  for (int index = 0; index < 7; index++) {
    blocks[index] = alloc_on(sizes[index], 0, stream);
    CHECK_OK(plinth_memset(blocks[index], index, sizes[index], stream));
    sum += rounded(sizes[index]);
  }
  CHECK_TEXT(backend(), name);
  CHECK_EQ(allocated(0), sum);
  CHECK(reserved(0) >= sum);
  for (int index = 0; index < 7; index++) {
    unsigned char byte = 77;
    CHECK_OK(plinth_memcpy(&byte, blocks[index] + sizes[index] - 1, 1, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_EQ(byte, index);
    for (int other = 0; other < index; other++) {
      CHECK(!overlap(blocks[index], sizes[index], blocks[other], sizes[other]));
    }
  }
  CHECK_STATUS(plinth_caching_allocator_delete(blocks[6] + 512), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_device_free(blocks[6]), PLINTH_ERROR_INVALID_POINTER);
  for (int index = 0; index < 7; index++) {
    release(blocks[index]);
    CHECK_STATUS(plinth_caching_allocator_delete(blocks[index]), PLINTH_ERROR_INVALID_POINTER);
    CHECK_STATUS(plinth_record_stream(blocks[index], stream), PLINTH_ERROR_INVALID_POINTER);
  }
  CHECK_EQ(max_allocated(0), sum);
  CHECK(max_reserved(0) >= sum);
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_EQ(max_allocated(0), 0);
  if (device_count() > 1) {
    plinth_stream_t far_stream = stream_on(1);
    void *far_memory = alloc_on(MIB, 1, far_stream);
    CHECK_OK(plinth_memset(far_memory, 1, MIB, far_stream));
    release(far_memory);
  }
  expect_nothing_left();
}

static void exceed_the_limit(void) {
  void *memory = UNTOUCHED_POINTER;
  limit_memory(64 * MIB, 0);
  unsigned char *half = alloc_on(40 * MIB, 0, NULL);
  CHECK_STATUS(plinth_caching_allocator_alloc(40 * MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("40.00 MiB");
  CHECK_MESSAGE("limit");
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  release(half);
  release(alloc_on(60 * MIB, 0, NULL));
  lift_limit(0);
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 60, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_STATUS(plinth_caching_allocator_alloc(SIZE_MAX, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  expect_nothing_left();
}

static bool callback_called;
static void *reserve;

static bool free_reserve(int32_t device, size_t size, void *context) {
  (void)device, (void)size, (void)context;
  callback_called = true;
  if (reserve == NULL) {
    return false;
  }
  release(reserve);
  reserve = NULL;
  return true;
}

static void expect_callback(void) {
  CHECK_OK(plinth_add_free_memory_callback(free_reserve, NULL));
  limit_memory(64 * MIB, 0);
  reserve = alloc_on(40 * MIB, 0, NULL);
  void *memory = alloc_on(50 * MIB, 0, NULL);
  CHECK(callback_called && reserve == NULL);
  release(memory);
  lift_limit(0);
  expect_nothing_left();
}

TEST(async_backend_allocates) { select_async_backend(), use("cudaMallocAsync"); }
TEST(async_backend_has_a_limit) { select_async_backend(), exceed_the_limit(); }
TEST(async_backend_calls_free_memory_callbacks) { select_async_backend(), expect_callback(); }
TEST(uncached_backend_allocates) { configure("backend:uncached"), use("uncached"); }
TEST(uncached_backend_has_a_limit) { configure("backend:uncached"), exceed_the_limit(); }
TEST(uncached_backend_calls_free_memory_callbacks) { configure("backend:uncached"), expect_callback(); }

TEST(torchs_variable_disables_caching) {
  CHECK(setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1) == 0);
  CHECK_TEXT(backend(), "uncached");
}

TEST(the_own_variable_overrides_torchs) {
  CHECK(setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1) == 0);
  CHECK(setenv("PLINTH_NO_CUDA_MEMORY_CACHING", "0", 1) == 0);
  CHECK_TEXT(backend(), "native");
}

TEST(pytorch_variable_disables_caching) {
  CHECK(setenv("PLINTH_NO_CUDA_MEMORY_CACHING", "1", 1) == 0);
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_TEXT(backend(), "uncached");
  for (int round = 0; round < 5; round++) {
    release(alloc_on(MIB, 0, NULL));
    CHECK_EQ(calls_of("cuMemAlloc"), round + 1);
    CHECK_EQ(calls_of("cuMemFree"), round + 1);
    CHECK_EQ(reserved(0), 0);
  }
}

/* Nothing was counted but one increase. */
static void expect_only(plinth_memory_stat_t stat, long long amount) {
  CHECK_EQ(stat.current, amount);
  CHECK_EQ(stat.peak, amount);
  CHECK_EQ(stat.allocated, amount);
  CHECK_EQ(stat.freed, 0);
}

/* A free without caching waits for the device, which this mode forbids. */
static void expect_a_refused_free(void *memory) {
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK(plinth_caching_allocator_delete(memory) != PLINTH_OK);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
}

TEST(a_free_that_fails_is_not_counted) {
  configure("backend:uncached");
  void *memory = alloc_on(4 * MIB, 0, NULL);
  for (int round = 0; round < 3; round++) {
    plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
    expect_a_refused_free(memory);
    CHECK_OK(plinth_memory_stats(0, &stats));
    const plinth_memory_stat_by_pool_t counts[] = {stats.allocation, stats.active};
    const plinth_memory_stat_by_pool_t sizes[] = {stats.allocated_bytes, stats.active_bytes, stats.requested_bytes};
    for (size_t index = 0; index < sizeof counts / sizeof *counts; index++) {
      expect_only(counts[index].all, 1);
      expect_only(counts[index].large_pool, 1);
    }
    for (size_t index = 0; index < sizeof sizes / sizeof *sizes; index++) {
      expect_only(sizes[index].all, 4 * MIB);
      expect_only(sizes[index].large_pool, 4 * MIB);
    }
  }
  CHECK_EQ(max_allocated(0), 4 * MIB);
  release(memory);
  expect_nothing_left();
}

TEST(memory_whose_free_failed_can_be_used) {
  size_t reports = UNTOUCHED;
  configure("backend:uncached");
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *memory = alloc_on(4 * MIB, 0, stream);
  CHECK_OK(plinth_record_stream(memory, other));
  expect_a_refused_free(memory);
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
  CHECK_OK(plinth_memset(memory + MIB, 1, MIB, other));
  CHECK_OK(plinth_sanitizer_count(&reports, NULL));
  CHECK_EQ(reports, 0);
  release(memory);
  CHECK_OK(plinth_sanitizer_disable());
  expect_nothing_left();
}

TEST(async_free_does_not_wait_for_the_stream) {
  select_async_backend();
  plinth_stream_t stream = stream_on(0);
  unsigned char *memory = alloc_on(2 * MIB, 0, stream);
  gate *shut = hold(stream);
  CHECK_OK(plinth_memset(memory, 1, 2 * MIB, stream));
  release(memory);
  CHECK_EQ(allocated(0), 0);
  /* The memory is still in use, so another stream must not get it. */
  unsigned char *elsewhere = alloc_on(2 * MIB, 0, stream_on(0));
  CHECK(!overlap(elsewhere, 2 * MIB, memory, 2 * MIB));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  release(elsewhere);
  expect_nothing_left();
}

TEST(async_backend_defers_a_free_behind_recorded_streams) {
  select_async_backend();
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *memory = alloc_on(2 * MIB, 0, own);
  gate *shut = hold(other);
  CHECK_OK(plinth_memset(memory, 1, 2 * MIB, other));
  CHECK_OK(plinth_record_stream(memory, other));
  release(memory);
  /* While the other stream uses the memory, its own stream does not get it back, and does not wait. */
  unsigned char *again = alloc_on(2 * MIB, 0, own);
  CHECK_OK(plinth_memset(again, 2, 2 * MIB, own));
  CHECK_OK(plinth_stream_synchronize(own));
  CHECK(!overlap(again, 2 * MIB, memory, 2 * MIB));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  release(again);
  expect_nothing_left();
}

TEST(async_backend_keeps_freed_memory_reserved) {
  select_async_backend();
  unsigned char *memory = alloc_on(32 * MIB, 0, NULL);
  release(memory);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(allocated(0), 0);
  CHECK(reserved(0) >= 32 * MIB);
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(reserved(0), 0);
}

/* ---- captures */

static unsigned char byte_of(const void *memory, plinth_stream_t stream) {
  unsigned char byte = 0;
  CHECK_OK(plinth_memcpy(&byte, memory, 1, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  return byte;
}

static plinth_graph_t begin_graph(plinth_stream_t stream) {
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  return graph;
}

/* Temporary memory of a graph, also used in a second stream, and memory that outlives the capture. */
TEST(async_backend_allocates_in_a_capture) {
  select_async_backend();
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t side = stream_on(0);
  unsigned char *result = alloc_on(2 * MIB, 0, stream);
  plinth_graph_t graph = begin_graph(stream);
  unsigned char *first = alloc_on(2 * MIB, 0, stream);
  CHECK_OK(plinth_memset(first, 7, 2 * MIB, stream));
  CHECK_OK(plinth_stream_wait_stream(side, stream));
  CHECK_OK(plinth_memcpy(result, first, MIB, side));
  CHECK_OK(plinth_record_stream(first, side));
  release(first);
  CHECK_OK(plinth_stream_wait_stream(stream, side));
  unsigned char *second = alloc_on(2 * MIB, 0, stream);
  unsigned char *kept = alloc_on(MIB, 0, stream);
  CHECK(!overlap(second, 2 * MIB, kept, MIB));
  CHECK_OK(plinth_memset(second, 8, 2 * MIB, stream));
  CHECK_OK(plinth_memset(kept, 9, MIB, stream));
  CHECK_OK(plinth_memcpy(result + MIB, second, MIB, stream));
  release(second);
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_memset(result, 0, 2 * MIB, stream));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_EQ(byte_of(result, stream), 7);
    CHECK_EQ(byte_of(result + MIB, stream), 8);
    CHECK_EQ(byte_of(kept + MIB - 1, stream), 9);
  }
  CHECK_EQ(allocated(0), 3 * MIB);
  release(kept);
  CHECK_EQ(allocated(0), 2 * MIB);
  /* The graph allocates it again. */
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_EQ(byte_of(result, stream), 7);
  CHECK_OK(plinth_graph_destroy(graph));
  release(result);
  CHECK_OK(plinth_stream_synchronize(stream));
  expect_nothing_left();
}

TEST(async_backend_frees_memory_of_a_graph_that_never_ran) {
  select_async_backend();
  plinth_stream_t stream = stream_on(0);
  unsigned char *before = alloc_on(MIB, 0, stream);
  plinth_graph_t graph = begin_graph(stream);
  unsigned char *memory = alloc_on(MIB, 0, stream);
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
  /* Memory from before the capture is freed after it. */
  release(before);
  CHECK_OK(plinth_graph_capture_end(graph));
  release(memory);
  CHECK_EQ(allocated(0), 0);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

static plinth_stream_t capturing, side;

/* Frees a block while its stream captures. The next call for this backend frees it in the driver, after the work of another
 * stream too. The capture is the program's own, because the library makes such calls when it ends one. */
static unsigned char *defer_a_free(void) {
  DRIVER(driver_begin_capture, begin, "cuStreamBeginCapture");
  DRIVER(driver_end_capture, end, "cuStreamEndCapture");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  void *graph = NULL;
  unsigned char *memory = alloc_on(2 * MIB, 0, capturing);
  CHECK_OK(plinth_record_stream(memory, side));
  CHECK_EQ(begin(capturing, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CHECK_OK(plinth_memset(memory, 1, KIB, capturing));
  release(memory);
  CHECK_EQ(end(capturing, &graph), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  return memory;
}

/* Frees a block of the default stream, and fails one driver call meanwhile. Returns whether that is a call for the order of
 * streams, which only the deferred free makes. */
static bool free_with_fault(void *memory, uint64_t nth) {
  CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
  const plinth_status_t status = plinth_caching_allocator_delete(memory);
  const char *tripped = plinth_tripped_fault();
  CHECK_OK(plinth_inject_fault(0, 0));
  if (tripped != NULL && (strcmp(tripped, "cuEventRecord") == 0 || strcmp(tripped, "cuStreamWaitEvent") == 0)) {
    CHECK_EQ(status, PLINTH_OK);
    return true;
  }
  if (status != PLINTH_OK) {
    release(memory);
  }
  return false;
}

TEST(a_deferred_free_that_fails_is_no_error_of_another_call) {
  enum { MOST_CALLS = 60, ATTEMPTS = 3 };
  uint64_t of_order = 0;
  void *others[ATTEMPTS];
  CHECK_OK(plinth_enable_fault_injection());
  select_async_backend();
  capturing = stream_on(0);
  side = stream_on(0);
  log_collect(PLINTH_LOG_ERROR);
  /* The first deferred free creates a stream. */
  defer_a_free();
  release(alloc_on(KIB, 0, NULL));
  for (uint64_t nth = 1; nth < MOST_CALLS; nth++) {
    void *other = alloc_on(KIB, 0, NULL);
    void *memory = defer_a_free();
    if (free_with_fault(other, nth)) {
      of_order = nth;
    }
    CHECK_EQ(allocated(0), 0);
    CHECK_STATUS(plinth_caching_allocator_delete(memory), PLINTH_ERROR_INVALID_POINTER);
    /* This call tries it again. */
    release(alloc_on(KIB, 0, NULL));
      CHECK_EQ(log_find(PLINTH_LOG_ERROR, "deferred"), -1);
  }
  CHECK(of_order > 0);
  CHECK_OK(plinth_stream_synchronize(side));
  expect_nothing_left();
  /* The driver always refuses it. */
  for (int index = 0; index < ATTEMPTS; index++) {
    others[index] = alloc_on(KIB, 0, NULL);
  }
  void *memory = defer_a_free();
  for (int index = 0; index < ATTEMPTS; index++) {
    CHECK_EQ(log_find(PLINTH_LOG_ERROR, "deferred"), -1);
    CHECK(free_with_fault(others[index], of_order));
  }
  CHECK_LOGGED(PLINTH_LOG_ERROR, "which was deferred");
  CHECK_EQ(allocated(0), 0);
  CHECK_STATUS(plinth_caching_allocator_delete(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_set_log_callback(PLINTH_LOG_ERROR, NULL, NULL));
  expect_sound();
}

TEST(async_backend_reuses_memory_within_a_capture) {
  select_async_backend();
  plinth_stream_t stream = stream_on(0);
  limit_memory(64 * MIB, 0);
  plinth_graph_t graph = begin_graph(stream);
  for (int layer = 0; layer < 8; layer++) {
    unsigned char *memory = alloc_on(48 * MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, layer, 48 * MIB, stream));
    release(memory);
  }
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_graph_destroy(graph));
  lift_limit(0);
  expect_nothing_left();
}

TEST(uncached_backend_refuses_allocations_in_a_capture) {
  configure("backend:uncached");
  expect_no_memory_for_captures(
      "the backend uncached cannot allocate in a stream that is capturing; allocate before the capture, or use the "
      "backend native or cudaMallocAsync");
}

TEST(async_backend_works_in_other_streams_during_a_capture) {
  select_async_backend();
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *memory = alloc_on(KIB, 0, stream);
  unsigned char *recorded = alloc_on(KIB, 0, stream);
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_record_stream(recorded, other));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_set_stream(stream_on(0)));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  release(memory);
  release(recorded);
  release(alloc_on(KIB, 0, stream));
  /* The driver has the statistics of its pool. */
  CHECK(reserved(0) > 0);
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  expect_nothing_left();
}

static void *empty_the_cache(void *context) {
  CHECK(context == NULL);
  CHECK_OK(plinth_empty_cache());
  return NULL;
}

/* Synchronizing the device would invalidate another thread's capture. */
TEST(emptying_the_cache_does_not_invalidate_captures) {
  select_async_backend();
  unsigned char *memory = alloc_on(KIB, 0, NULL);
  unsigned char *cached = alloc_on(32 * MIB, 0, NULL);
  plinth_graph_t graph = NULL;
  plinth_stream_t stream = stream_on(0);
  pthread_t thread;
  release(cached);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_memset(memory, 1, KIB, stream));
  CHECK(pthread_create(&thread, NULL, empty_the_cache, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_memset(memory, 2, KIB, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
  expect_nothing_left();
}

TEST(caching_can_be_disabled_and_enabled) {
  bool enabled = false;
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_STATUS(plinth_caching_allocator_is_enabled(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_caching_allocator_is_enabled(&enabled));
  CHECK(enabled);
  plinth_stream_t stream = stream_on(0);
  unsigned char *cached = alloc_on(MIB, 0, stream);
  release(alloc_on(3 * MIB, 0, stream));
  CHECK_OK(plinth_caching_allocator_enable(false));
  CHECK_OK(plinth_caching_allocator_is_enabled(&enabled));
  CHECK(!enabled);
  const uint64_t before = calls_of("cuMemAlloc");
  unsigned char *direct = alloc_on(3 * MIB, 0, stream);
  CHECK_EQ(calls_of("cuMemAlloc"), before + 1);
  CHECK_EQ(allocated(0), 4 * MIB);
  /* A block is freed by the allocator that made it, whether or not caching is enabled now. */
  release(cached);
  CHECK_EQ(allocated(0), 3 * MIB);
  CHECK_OK(plinth_caching_allocator_enable(true));
  CHECK_SAME(alloc_on(MIB, 0, stream), cached);
  CHECK_EQ(calls_of("cuMemAlloc"), before + 1);
  release(direct);
  release(cached);
  CHECK_TEXT(backend(), "native");
  expect_nothing_left();
}

static void *allocate_and_free_at_random(void *context) {
  plinth_stream_t stream = stream_on(0);
  uint64_t state = *(int *)context;
  void *blocks[8] = {NULL};
  for (int round = 0; round < 400; round++) {
    const int slot = (int)(random_next(&state) % 8);
    if (blocks[slot] != NULL) {
      release(blocks[slot]);
    }
    blocks[slot] = alloc_on(1 + random_next(&state) % (3 * MIB), 0, stream);
    if (random_next(&state) % 4 == 0) {
      CHECK_OK(plinth_record_stream(blocks[slot], stream_on(0)));
    }
  }
  for (int slot = 0; slot < 8; slot++) {
    CHECK_OK(plinth_caching_allocator_delete(blocks[slot]));
  }
  return NULL;
}

TEST(threads_share_the_async_backend) {
  select_async_backend();
  run_threads(4, allocate_and_free_at_random);
  expect_nothing_left();
}

TEST(threads_share_the_uncached_backend) {
  configure("backend:uncached");
  run_threads(4, allocate_and_free_at_random);
  expect_nothing_left();
}
