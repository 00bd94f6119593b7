/* Who gives memory out, where it is not the caching allocator: the driver's pools, or the driver each time.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; sets the environment */
#include "allocating.h"
#include "driver.h"

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

/* Older drivers, and some devices, have no pools. */
static void use_pools(void) {
  const char *cuda = getenv("PLINTH_DEVICE");
  configure("backend:cudaMallocAsync");
  if (cuda == NULL || strcmp(cuda, "host") != 0) {
    void *memory = NULL;
    if (plinth_caching_allocator_alloc(KIB, 0, NULL, &memory) == PLINTH_ERROR_NOT_SUPPORTED) {
      SKIP("no pools in stream order");
    }
    CHECK_OK(plinth_caching_allocator_delete(memory));
  }
}

TEST(the_name_of_the_backend) {
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
    plinth_stream_t far = stream_on(1);
    void *there = alloc_on(MIB, 1, far);
    CHECK_OK(plinth_memset(there, 1, MIB, far));
    release(there);
  }
  expect_nothing_left();
}

static void meet_the_limit(void) {
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

static bool offered;
static void *held_back;

static bool give_up_memory(int32_t device, size_t size, void *context) {
  (void)device, (void)size, (void)context;
  offered = true;
  if (held_back == NULL) {
    return false;
  }
  release(held_back);
  held_back = NULL;
  return true;
}

static void ask_callbacks(void) {
  CHECK_OK(plinth_add_free_memory_callback(give_up_memory, NULL));
  limit_memory(64 * MIB, 0);
  held_back = alloc_on(40 * MIB, 0, NULL);
  void *memory = alloc_on(50 * MIB, 0, NULL);
  CHECK(offered && held_back == NULL);
  release(memory);
  lift_limit(0);
  expect_nothing_left();
}

TEST(pools_give_memory) { use_pools(), use("cudaMallocAsync"); }
TEST(pools_have_a_limit) { use_pools(), meet_the_limit(); }
TEST(pools_ask_callbacks) { use_pools(), ask_callbacks(); }
TEST(the_driver_gives_memory) { configure("backend:uncached"), use("uncached"); }
TEST(the_driver_has_a_limit) { configure("backend:uncached"), meet_the_limit(); }
TEST(the_driver_asks_callbacks) { configure("backend:uncached"), ask_callbacks(); }

TEST(torchs_switch_turns_caching_off) {
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

TEST(a_free_does_not_wait_for_the_stream) {
  use_pools();
  plinth_stream_t stream = stream_on(0);
  unsigned char *memory = alloc_on(2 * MIB, 0, stream);
  gate *shut = hold(stream);
  CHECK_OK(plinth_memset(memory, 1, 2 * MIB, stream));
  release(memory);
  CHECK_EQ(allocated(0), 0);
  /* In the same stream order protects it; in another nobody may have it yet. */
  unsigned char *elsewhere = alloc_on(2 * MIB, 0, stream_on(0));
  CHECK(!overlap(elsewhere, 2 * MIB, memory, 2 * MIB));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  release(elsewhere);
  expect_nothing_left();
}

TEST(recorded_streams_come_first) {
  use_pools();
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *memory = alloc_on(2 * MIB, 0, own);
  gate *shut = hold(other);
  CHECK_OK(plinth_memset(memory, 1, 2 * MIB, other));
  CHECK_OK(plinth_record_stream(memory, other));
  release(memory);
  /* Not even its own stream may have it while the other uses it, and its own work goes on meanwhile. */
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

TEST(pools_keep_what_was_freed) {
  use_pools();
  unsigned char *memory = alloc_on(32 * MIB, 0, NULL);
  release(memory);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(allocated(0), 0);
  CHECK(reserved(0) >= 32 * MIB);
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(reserved(0), 0);
}

TEST(pools_are_for_no_capture) {
  use_pools();
  expect_no_memory_for_captures("the backend cudaMallocAsync cannot allocate in a stream that is capturing");
}

static void *empty_the_cache(void *context) {
  CHECK(context == NULL);
  CHECK_OK(plinth_empty_cache());
  return NULL;
}

/* To wait for the device would end the capture of whoever is at it. */
TEST(emptying_the_cache_leaves_captures_of_others_alone) {
  use_pools();
  unsigned char *memory = alloc_on(KIB, 0, NULL);
  unsigned char *spare = alloc_on(32 * MIB, 0, NULL);
  plinth_graph_t graph = NULL;
  plinth_stream_t stream = stream_on(0);
  pthread_t thread;
  release(spare);
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

TEST(caching_can_be_switched_off_and_on) {
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
  /* Each goes back to where it is from, whatever the switch says. */
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

static void *churn(void *context) {
  plinth_stream_t stream = stream_on(0);
  uint64_t state = *(int *)context;
  void *kept[8] = {NULL};
  for (int round = 0; round < 400; round++) {
    const int place = (int)(random_next(&state) % 8);
    if (kept[place] != NULL) {
      release(kept[place]);
    }
    kept[place] = alloc_on(1 + random_next(&state) % (3 * MIB), 0, stream);
    if (random_next(&state) % 4 == 0) {
      CHECK_OK(plinth_record_stream(kept[place], stream_on(0)));
    }
  }
  for (int place = 0; place < 8; place++) {
    CHECK_OK(plinth_caching_allocator_delete(kept[place]));
  }
  return NULL;
}

TEST(threads_share_a_pool) {
  use_pools();
  run_threads(4, churn);
  expect_nothing_left();
}

TEST(threads_share_the_driver) {
  configure("backend:uncached");
  run_threads(4, churn);
  expect_nothing_left();
}
