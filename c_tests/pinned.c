/* The cache of pinned memory. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 180 */
/* also: PLINTH_ALLOC_CONF=pinned_use_cuda_host_register:True,pinned_num_register_threads:4 */
/* also: PLINTH_ALLOC_CONF=pinned_reserve_segment_size_mb:64 */
/* also: PLINTH_ALLOC_CONF=pinned_use_background_threads:True */
/* also: PLINTH_ALLOC_CONF=pinned_max_cached_size_mb:2 */
/* alone: freed_memory_is_reused_without_driver_calls; enables fault injection, which comes before everything else */
/* alone: a_free_while_the_process_exits_is_harmless; forks a child that uses the device */
/* alone: the_message_contains_request_and_usage; expects what only a fresh process has */
/* long: rounding_adds_less_than_an_eighth */
#include "pinning.h"
#include "process.h"

static uint64_t calls_of(const char *name) {
  uint64_t count = 0;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

static uint64_t pinning_calls(void) { return calls_of("cuMemHostAlloc") + calls_of("cuMemHostRegister_v2"); }

TEST(zero_bytes_are_null) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_host_alloc(0, &pointer));
  CHECK(pointer == NULL);
  CHECK_OK(plinth_host_free(NULL));
  CHECK_OK(plinth_host_record_stream(NULL, NULL));
}

TEST(outputs_must_not_be_null) {
  CHECK_STATUS(plinth_host_alloc(KIB, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_host_alloc(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_is_pinned("", NULL), PLINTH_ERROR_NULL_POINTER);
}

TEST(memory_is_pinned_to_its_last_byte) {
  const size_t sizes[] = {1, 64, 513, 4096, 100000, MIB, MIB + 1, 40 * MIB + 4097};
  for (int index = 0; index < 8; index++) {
    unsigned char *memory = pin(sizes[index]);
    CHECK(is_pinned(memory) && is_pinned(memory + sizes[index] - 1));
    memory[0] = 1;
    memory[sizes[index] - 1] = 2;
    unpin(memory);
  }
  expect_nothing_pinned();
}

TEST(is_pinned_of_other_memory) {
  int local = 0;
  void *device = device_memory(MIB, 0);
  void *raw = pinned_memory(MIB);
  void *heap = pageable_memory(MIB);
  CHECK(!is_pinned(NULL) && !is_pinned(&local) && !is_pinned(device) && !is_pinned(heap));
  CHECK(!is_pinned(UNTOUCHED_POINTER));
  CHECK(is_pinned(raw) && is_pinned((char *)raw + MIB - 1));
  CHECK_OK(plinth_pinned_free(raw));
  CHECK(!is_pinned(raw));
  CHECK_OK(plinth_device_free(device));
  free(heap);
}

TEST(freed_memory_is_reused_without_driver_calls) {
  CHECK_OK(plinth_enable_fault_injection());
  const size_t sizes[] = {1, 1000, 70000, MIB, 3 * MIB, 20 * MIB};
  for (int index = 0; index < 6 && is_cached(sizes[index]); index++) {
    void *memory = pin(sizes[index]);
    unpin(memory);
    const uint64_t pinned = pinning_calls();
    const uint64_t calls = calls_of("cuEventQuery") + calls_of("cuEventRecord") + calls_of("cuPointerGetAttributes");
    for (int round = 0; round < 100; round++) {
      void *again = pin(sizes[index]);
      CHECK_SAME(again, memory);
      unpin(again);
    }
    CHECK_EQ(pinning_calls(), pinned);
    CHECK_EQ(calls_of("cuEventQuery") + calls_of("cuEventRecord") + calls_of("cuPointerGetAttributes"), calls);
  }
  expect_nothing_pinned();
}

TEST(small_blocks_share_a_segment) {
  void *blocks[1000];
  /* A reserved segment stays after an earlier test. */
  const bool is_reserved = pinned_held() > 0;
  for (int index = 0; index < 1000; index++) {
    blocks[index] = pin(2000);
  }
  CHECK_EQ(host_stats().num_host_alloc, is_reserved ? 0 : 1);
  CHECK(pinned_held() <= (reserve_bytes() != 0 ? reserve_bytes() : 2 * MIB + 4 * KIB));
  for (int index = 0; index < 1000; index++) {
    unpin(blocks[index]);
  }
  expect_nothing_pinned();
}

TEST(rounding_adds_less_than_an_eighth) {
  uint64_t state = 5;
  /* Each larger block is pinned by the driver and unpinned again, which is slow on a GPU. */
  for (int round = 0; round < (on_host_device() ? 3000 : 300); round++) {
    const size_t bytes = 1 + random_next(&state) % ((size_t)1 << (6 + random_next(&state) % 17));
    void *memory = pin(bytes);
    const size_t active = pinned_active();
    CHECK(active >= bytes && (active - bytes < 64 || (active - bytes) * 8 < bytes));
    if (bytes > MIB) {
      CHECK(is_pinned(memory));
      unpin(memory);
      CHECK_OK(plinth_host_empty_cache());
    } else {
      unpin(memory);
    }
  }
  expect_nothing_pinned();
}

TEST(invalid_pointers_are_refused) {
  unsigned char *memory = pin(1000);
  unsigned char *large = pin(5 * MIB);
  void *raw = pinned_memory(MIB);
  void *device = alloc_on(MIB, 0, NULL);
  int local = 0;
  void *const wrong[] = {memory + 1,   memory + 64, memory + 1024, large + 4096, large + 5 * MIB - 64, raw,
                         device, &local,      UNTOUCHED_POINTER, (void *)-1, (void *)64};
  for (size_t index = 0; index < sizeof wrong / sizeof wrong[0]; index++) {
    CHECK_STATUS(plinth_host_free(wrong[index]), PLINTH_ERROR_INVALID_POINTER);
    expect_sound();
  }
  CHECK_STATUS(plinth_host_record_stream(raw, NULL), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_host_record_stream(&local, NULL), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_host_record_stream(memory, (plinth_stream_t)&local), PLINTH_ERROR_INVALID_HANDLE);
  /* The driver would free a whole segment of the cache. */
  CHECK_STATUS(plinth_pinned_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_pinned_free(large), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_host_unregister(large), PLINTH_ERROR_INVALID_POINTER);
  unpin(memory);
  unpin(large);
  CHECK_STATUS(plinth_host_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_host_free(large), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_host_record_stream(large, NULL), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_pinned_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_host_empty_cache());
  CHECK_STATUS(plinth_host_free(large), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_pinned_free(raw));
  release(device);
  expect_nothing_pinned();
}

TEST(emptying_the_cache_frees_unused_memory) {
  if (reserve_bytes() != 0) {
    SKIP("a reserve does not go back");
  }
  unsigned char *used = pin(300);
  unsigned char *neighbor = pin(300);
  unsigned char *large = pin(9 * MIB);
  unsigned char *other = pin(700 * KIB);
  pattern_fill(used, 300, 1);
  unpin(neighbor);
  unpin(large);
  unpin(other);
  const size_t before = pinned_held();
  CHECK(before >= (is_cached(9 * MIB) ? 9 * MIB : 0) + 2 * 2 * MIB - MIB);
  CHECK_OK(plinth_host_empty_cache());
  expect_sound();
  CHECK(pinned_held() <= 2 * MIB + 4 * KIB);
  CHECK(!is_pinned(large) && is_pinned(used));
  if (on_host_device()) {
    CHECK_EQ(host_usage().pinned_bytes, pinned_held());
  }
  CHECK_EQ(pattern_mismatch(used, 300, 1), 300);
  unpin(used);
  expect_nothing_pinned();
  if (on_host_device()) {
    CHECK_EQ(host_usage().pinned_bytes, 0);
  }
}

TEST(a_request_that_is_too_large_is_refused) {
  const size_t sizes[] = {(size_t)1 << 46, (size_t)1 << 47, ((size_t)1 << 47) + 1, (size_t)1 << 60, SIZE_MAX / 2 + 1,
                          SIZE_MAX - 1,    SIZE_MAX};
  unsigned char *used = pin(KIB);
  for (size_t index = 0; index < sizeof sizes / sizeof sizes[0]; index++) {
    void *pointer = UNTOUCHED_POINTER;
    CHECK_STATUS(plinth_host_alloc(sizes[index], &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_MESSAGE("of pinned host memory");
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
    expect_sound();
  }
  unpin(used);
  expect_nothing_pinned();
}

TEST(the_message_contains_request_and_usage) {
  void *pointer = NULL;
  unsigned char *used = pin(2 * MIB);
  CHECK_STATUS(plinth_host_alloc((size_t)64 << 40, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("tried to allocate 64.00 TiB of pinned host memory");
  CHECK_MESSAGE(reserve_bytes() != 0 ? "plinth has reserved 64.00 MiB of pinned host memory, 2.00 MiB of which are in use"
                                     : "plinth has reserved 2.00 MiB of pinned host memory, 2.00 MiB of which are in use");
  CHECK_MESSAGE(has_setting("pinned_use_cuda_host_register") ? "the system is out of memory" : "cuMemHostAlloc");
  unpin(used);
}

TEST(a_shortage_frees_cached_memory) {
  void *pointer = NULL;
  unpin(pin(6 * MIB));
  unpin(pin(600));
  CHECK_STATUS(plinth_host_alloc((size_t)64 << 40, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(pinned_held(), reserve_bytes());
  expect_nothing_pinned();
}

TEST(memory_can_be_allocated_while_a_stream_captures) {
  plinth_graph_t graph = NULL;
  void *memory = device_memory(MIB, 0);
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  unsigned char *small = pin(KIB);
  unsigned char *large = pin(7 * MIB);
  unpin(large);
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
  unpin(small);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
  expect_nothing_pinned();
}

TEST(every_device_can_access_it) {
  unsigned char *memory = pin(MIB);
  unsigned char *back = pin(MIB);
  pattern_fill(memory, MIB, 7);
  for (int32_t device = 0; device < device_count(); device++) {
    void *device_copy = device_memory(MIB, device);
    plinth_stream_t stream = stream_on(device);
    memset(back, 0, MIB);
    CHECK_OK(plinth_memcpy(device_copy, memory, MIB, stream));
    CHECK_OK(plinth_memcpy(back, device_copy, MIB, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_EQ(pattern_mismatch(back, MIB, 7), MIB);
    CHECK_OK(plinth_device_free(device_copy));
  }
  unpin(memory);
  unpin(back);
  expect_nothing_pinned();
}

enum { THREADS = 8, SHARED = 256 };

static struct {
  unsigned char *memory;
  size_t bytes;
  unsigned seed;
} shared[SHARED];
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

/* Exchanges a new block with one of the shared ones and frees that, so that threads free blocks of other threads. */
static void *exchange_blocks(void *context) {
  uint64_t state = (uint64_t) * (int *)context + 77;
  for (int round = 0; round < 3000; round++) {
    const size_t bytes = 1 + random_next(&state) % ((size_t)1 << (6 + random_next(&state) % 14));
    const unsigned seed = (unsigned)random_next(&state);
    const int slot = (int)(random_next(&state) % SHARED);
    unsigned char *memory = pin(bytes);
    pattern_fill(memory, bytes < 256 ? bytes : 256, seed);
    pthread_mutex_lock(&shared_lock);
    unsigned char *old = shared[slot].memory;
    const size_t old_bytes = shared[slot].bytes < 256 ? shared[slot].bytes : 256;
    const unsigned old_seed = shared[slot].seed;
    shared[slot].memory = memory;
    shared[slot].bytes = bytes;
    shared[slot].seed = seed;
    pthread_mutex_unlock(&shared_lock);
    if (old != NULL) {
      CHECK_EQ(pattern_mismatch(old, old_bytes, old_seed), old_bytes);
      unpin(old);
    }
    if (round % 500 == 0) {
      CHECK_OK(plinth_host_empty_cache());
    }
  }
  return NULL;
}

TEST(threads_share_the_cache) {
  run_threads(THREADS, exchange_blocks);
  expect_sound();
  for (int slot = 0; slot < SHARED; slot++) {
    if (shared[slot].memory != NULL) {
      unpin(shared[slot].memory);
    }
  }
  const plinth_host_memory_stats_t stats = host_stats();
  CHECK_EQ(stats.active_requests.allocated, THREADS * 3000);
  CHECK_EQ(stats.active_requests.freed, THREADS * 3000);
  CHECK_EQ(stats.active_requests.current, 0);
  CHECK_EQ(stats.active_bytes.allocated, stats.active_bytes.freed);
  expect_nothing_pinned();
}

static void *allocate_alone(void *context) {
  (void)context;
  for (int round = 0; round < 20000; round++) {
    unpin(pin(4096));
  }
  return NULL;
}

TEST(memory_of_ended_threads_is_reused) {
  if (reserve_bytes() != 0) {
    SKIP("a part of a reserve stays with the size that it was divided for");
  }
  run_threads(THREADS, allocate_alone);
  const plinth_host_memory_stats_t before = host_stats();
  CHECK_EQ(before.active_requests.current, 0);
  CHECK(before.active_requests.peak >= 1 && before.active_requests.peak <= THREADS);
  CHECK(before.active_bytes.peak >= 4096 && before.active_bytes.peak <= THREADS * 4096);
  /* Whichever thread used it: all of it serves this thread before more memory is pinned. */
  const size_t blocks = before.allocated_bytes.current / 4096;
  void **all = calloc(blocks, sizeof *all);
  for (size_t block = 0; block < blocks; block++) {
    all[block] = pin(4096);
  }
  CHECK_EQ(host_stats().num_host_alloc, before.num_host_alloc);
  for (size_t block = 0; block < blocks; block++) {
    unpin(all[block]);
  }
  free(all);
  expect_sound();
  expect_nothing_pinned();
}

static void *inherited;

static void expect_refused(void) {
  void *pointer = UNTOUCHED_POINTER;
  bool pinned = true;
  plinth_host_memory_stats_t stats = PLINTH_HOST_MEMORY_STATS_INIT;
  CHECK_STATUS(plinth_host_alloc(KIB, &pointer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_host_alloc(0, &pointer), PLINTH_ERROR_FORKED_CHILD);
  CHECK_OK(plinth_host_free(inherited));
  CHECK_STATUS(plinth_host_record_stream(inherited, NULL), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_host_empty_cache(), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_is_pinned(inherited, &pinned), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_host_memory_stats(&stats), PLINTH_ERROR_FORKED_CHILD);
  CHECK_OK(plinth_host_free(NULL));
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  exit(7);
}

TEST(a_child_of_a_fork_is_refused) {
  inherited = pin(KIB);
  expect_child(start_child(expect_refused), 7);
  unpin(inherited);
  expect_nothing_pinned();
}

static void free_at_exit(void) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_host_alloc(KIB, &pointer), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK_OK(plinth_host_free(inherited));
}

static void exit_with_memory(void) {
  CHECK(atexit(free_at_exit) == 0);
  inherited = pin(KIB);
  exit(7);
}

TEST(a_free_while_the_process_exits_is_harmless) { expect_child(start_child(exit_with_memory), 7); }

TEST(nothing_may_be_freed_before_the_first_use) {
  int local = 0;
  CHECK_STATUS(plinth_host_free(&local), PLINTH_ERROR_INVALID_POINTER);
}
