/* The allocator's statistics, with PyTorch's names. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* alone: a_read_is_of_one_moment memory_that_was_never_used_is_in_no_peak blocks_that_are_not_split_are_counted; settings */
#include "allocating.h"
#include "driver.h"

enum { KEYS = 122 };

static plinth_memory_stats_t stats_of(int32_t device) {
  plinth_memory_stats_t stats;
  memset(&stats, 0x5A, sizeof stats);
  stats.struct_size = sizeof stats;
  CHECK_OK(plinth_memory_stats(device, &stats));
  CHECK_EQ(stats.struct_size, sizeof stats);
  return stats;
}

static void expect_stat(plinth_memory_stat_t stat, long long current, long long peak, long long allocated_sum,
                        long long freed_sum) {
  CHECK_EQ(stat.current, current);
  CHECK_EQ(stat.peak, peak);
  CHECK_EQ(stat.allocated, allocated_sum);
  CHECK_EQ(stat.freed, freed_sum);
}

static char keys[KEYS][64];
static int64_t values[KEYS];
static int key_count;

static void collect(const char *name, int64_t value, void *context) {
  CHECK_SAME(context, &key_count);
  CHECK(key_count < KEYS);
  snprintf(keys[key_count], sizeof keys[0], "%s", name);
  values[key_count++] = value;
}

static void collect_all(int32_t device) {
  key_count = 0;
  CHECK_OK(plinth_memory_stats_each(device, collect, &key_count));
  CHECK_EQ(key_count, KEYS);
}

static int64_t value_of(const char *key) {
  for (int index = 0; index < key_count; index++) {
    if (strcmp(keys[index], key) == 0) {
      return values[index];
    }
  }
  harness_fail(__FILE__, __LINE__, key);
  return 0;
}

TEST(keys_are_those_of_pytorch_in_order) {
  static const char *const by_pool[] = {
      "allocation", "segment", "active", "inactive_split", "allocated_bytes",
      "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"};
  static const char *const pools[] = {"all", "small_pool", "large_pool"};
  static const char *const fields[] = {"current", "peak", "allocated", "freed"};
  static const char *const others[] = {
      "oversize_allocations.current", "oversize_allocations.peak", "oversize_allocations.allocated",
      "oversize_allocations.freed", "oversize_segments.current", "oversize_segments.peak", "oversize_segments.allocated",
      "oversize_segments.freed", "num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams",
      "num_device_alloc", "num_device_free"};
  char key[128];
  int count = 0;
  collect_all(0);
  for (int index = 1; index < KEYS; index++) {
    CHECK(strcmp(keys[index - 1], keys[index]) < 0);
  }
  for (size_t quantity = 0; quantity < sizeof by_pool / sizeof *by_pool; quantity++) {
    for (int pool = 0; pool < 3; pool++) {
      for (int field = 0; field < 4; field++) {
        snprintf(key, sizeof key, "%s.%s.%s", by_pool[quantity], pools[pool], fields[field]);
        CHECK_EQ(value_of(key), 0);
        count++;
      }
    }
  }
  for (size_t index = 0; index < sizeof others / sizeof *others; index++) {
    CHECK_EQ(value_of(others[index]), strcmp(others[index], "max_split_size") == 0 ? -1 : 0);
    count++;
  }
  CHECK_EQ(count, KEYS);
}

TEST(requests_are_counted) {
  void *small = alloc_on(1000, 0, NULL);
  void *large = alloc_on(3 * MIB + 1, 0, NULL);
  release(alloc_on(100, 0, NULL));
  plinth_memory_stats_t stats = stats_of(0);
  expect_stat(stats.allocation.all, 2, 3, 3, 1);
  expect_stat(stats.allocation.small_pool, 1, 2, 2, 1);
  expect_stat(stats.allocation.large_pool, 1, 1, 1, 0);
  expect_stat(stats.active.all, 2, 3, 3, 1);
  expect_stat(stats.allocated_bytes.small_pool, 1024, 1536, 1536, 512);
  expect_stat(stats.allocated_bytes.large_pool, 3 * MIB + 512, 3 * MIB + 512, 3 * MIB + 512, 0);
  expect_stat(stats.requested_bytes.all, 3 * MIB + 1001, 3 * MIB + 1101, 3 * MIB + 1101, 100);
  CHECK_EQ(stats.allocated_bytes.all.current, allocated(0));
  CHECK_EQ(stats.allocated_bytes.all.peak, max_allocated(0));
  CHECK_EQ(stats.reserved_bytes.all.current, reserved(0));
  CHECK_EQ(stats.reserved_bytes.all.peak, max_reserved(0));
  CHECK_EQ(stats.reserved_bytes.small_pool.current + stats.reserved_bytes.large_pool.current,
           stats.reserved_bytes.all.current);
  CHECK(stats.segment.all.current >= 2);
  CHECK_EQ(stats.num_device_alloc, stats.segment.all.allocated);
  CHECK(stats.inactive_split.all.current > 0);
  CHECK(stats.inactive_split_bytes.all.current > 0);
  CHECK(stats.inactive_split_bytes.all.peak >= stats.inactive_split_bytes.all.current);
  CHECK_EQ(stats.max_split_size, -1);
  collect_all(-1);
  CHECK_EQ(value_of("allocated_bytes.all.current"), allocated(0));
  CHECK_EQ(value_of("requested_bytes.all.allocated"), 3 * MIB + 1101);
  release(small);
  release(large);
  expect_nothing_left();
  stats = stats_of(0);
  expect_stat(stats.segment.all, 0, stats.segment.all.peak, stats.segment.all.allocated, stats.segment.all.allocated);
  CHECK_EQ(stats.num_device_free, stats.num_device_alloc);
}

TEST(emptying_the_cache_counts_as_a_wait_for_each_device) {
  int32_t devices = 0;
  CHECK_OK(plinth_init());
  CHECK_OK(plinth_device_count(&devices));
  for (int64_t calls = 0; calls < 3; calls++) {
    for (int32_t device = 0; device < devices; device++) {
      CHECK_OK(plinth_reset_accumulated_memory_stats(device));
    }
    for (int64_t call = 0; call < calls; call++) {
      CHECK_OK(plinth_empty_cache());
    }
    for (int32_t device = 0; device < devices; device++) {
      CHECK_EQ(stats_of(device).num_sync_all_streams, calls);
    }
  }
}

TEST(accumulated_stats_can_be_reset) {
  void *memory = alloc_on(2 * MIB, 0, NULL);
  release(alloc_on(5 * MIB, 0, NULL));
  void *pointer = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(stats_of(0).num_ooms, 1);
  CHECK_OK(plinth_reset_accumulated_memory_stats(0));
  plinth_memory_stats_t stats = stats_of(0);
  expect_stat(stats.allocation.all, 1, 2, 0, 0);
  expect_stat(stats.active.all, 1, 2, 0, 0);
  expect_stat(stats.allocated_bytes.all, 2 * MIB, 7 * MIB, 0, 0);
  expect_stat(stats.requested_bytes.large_pool, 2 * MIB, 7 * MIB, 0, 0);
  CHECK(stats.reserved_bytes.all.current > 0);
  CHECK_EQ(stats.reserved_bytes.all.allocated, 0);
  CHECK_EQ(stats.reserved_bytes.all.freed, 0);
  CHECK_EQ(stats.segment.all.allocated, 0);
  CHECK_EQ(stats.num_ooms + stats.num_alloc_retries + stats.num_sync_all_streams, 0);
  CHECK_EQ(stats.num_device_alloc + stats.num_device_free, 0);
  release(memory);
  release(alloc_on(3 * MIB, 0, NULL));
  stats = stats_of(0);
  expect_stat(stats.allocation.all, 0, 2, 1, 2);
  expect_stat(stats.allocated_bytes.all, 0, 7 * MIB, 3 * MIB, 5 * MIB);
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  stats = stats_of(0);
  expect_stat(stats.allocation.all, 0, 0, 1, 2);
  const long long held = stats.reserved_bytes.all.current;
  expect_nothing_left();
  CHECK_EQ(stats_of(0).reserved_bytes.all.freed, held);
}

TEST(a_pending_free_stays_active) {
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *memory = alloc_on(4 * MIB - 100, 0, own);
  gate *shut = hold(other);
  CHECK_OK(plinth_record_stream(memory, other));
  release(memory);
  plinth_memory_stats_t stats = stats_of(0);
  expect_stat(stats.allocation.all, 0, 1, 1, 1);
  expect_stat(stats.active.all, 1, 1, 1, 0);
  expect_stat(stats.active_bytes.large_pool, 4 * MIB, 4 * MIB, 4 * MIB, 0);
  expect_stat(stats.requested_bytes.large_pool, 4 * MIB - 100, 4 * MIB - 100, 4 * MIB - 100, 0);
  CHECK_OK(plinth_reset_accumulated_memory_stats(0));
  expect_stat(stats_of(0).active.all, 1, 1, 0, 0);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  expect_nothing_left();
  expect_stat(stats_of(0).active.all, 0, 1, 0, 1);
  expect_stat(stats_of(0).allocation.all, 0, 1, 0, 0);
  expect_stat(stats_of(0).requested_bytes.all, 0, 4 * MIB - 100, 0, 4 * MIB - 100);
}

static void expect_peaks(plinth_memory_stat_by_pool_t stat, size_t all, size_t small, size_t large) {
  CHECK_EQ(stat.all.peak, all);
  CHECK_EQ(stat.small_pool.peak, small);
  CHECK_EQ(stat.large_pool.peak, large);
}

/* One block at a time, in eight streams: the peak is one block. */
TEST(peaks_are_those_of_the_device) {
  enum { STREAMS = 8, LARGE = 64 * MIB, SMALL = 1000 };
  for (int index = 0; index < STREAMS; index++) {
    plinth_stream_t stream = stream_on(0);
    release(alloc_on(LARGE, 0, stream));
    release(alloc_on(SMALL, 0, stream));
  }
  plinth_memory_stats_t stats = stats_of(0);
  expect_peaks(stats.allocation, 1, 1, 1);
  expect_peaks(stats.active, 1, 1, 1);
  expect_peaks(stats.allocated_bytes, LARGE, 1024, LARGE);
  expect_peaks(stats.active_bytes, LARGE, 1024, LARGE);
  expect_peaks(stats.requested_bytes, LARGE, SMALL, LARGE);
  CHECK_EQ(max_allocated(0), LARGE);
  CHECK_EQ(stats.reserved_bytes.all.peak, max_reserved(0));
  CHECK(stats.reserved_bytes.large_pool.peak >= LARGE);
  CHECK(stats.reserved_bytes.large_pool.peak <= stats.reserved_bytes.all.peak);
  CHECK(stats.segment.all.peak <= stats.segment.all.allocated);
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  stats = stats_of(0);
  expect_peaks(stats.allocation, 0, 0, 0);
  expect_peaks(stats.active_bytes, 0, 0, 0);
  expect_peaks(stats.requested_bytes, 0, 0, 0);
  CHECK_EQ(stats.segment.all.peak, stats.segment.all.current);
  CHECK_EQ(stats.reserved_bytes.small_pool.peak, stats.reserved_bytes.small_pool.current);
  /* Blocks of several streams at a time, and a freed one that another stream uses. */
  plinth_stream_t streams[2] = {stream_on(0), stream_on(0)};
  void *kept = alloc_on(SMALL, 0, streams[0]);
  void *used = alloc_on(3 * MIB, 0, streams[1]);
  gate *shut = hold(streams[0]);
  CHECK_OK(plinth_record_stream(used, streams[0]));
  release(used);
  void *next = alloc_on(2 * MIB, 0, NULL);
  stats = stats_of(0);
  expect_peaks(stats.allocation, 2, 1, 1);
  expect_peaks(stats.allocated_bytes, 3 * MIB + 1024, 1024, 3 * MIB);
  expect_peaks(stats.active, 3, 1, 2);
  expect_peaks(stats.active_bytes, 5 * MIB + 1024, 1024, 5 * MIB);
  expect_peaks(stats.requested_bytes, 5 * MIB + SMALL, SMALL, 5 * MIB);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  release(next);
  release(kept);
  expect_nothing_left();
}

/* Fails each driver call of `attempt` once. An attempt that fails must not raise the peak; one that succeeds is undone. */
static void fail_each_call(plinth_status_t (*attempt)(void), plinth_status_t (*undo)(void)) {
  enum { MOST_CALLS = 200 };
  bool failed = false;
  for (uint64_t nth = 1; nth < MOST_CALLS; nth++) {
    CHECK_OK(plinth_empty_cache());
    const size_t held = reserved(0);
    CHECK_OK(plinth_reset_peak_memory_stats(0));
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    const plinth_status_t status = attempt();
    const bool tripped = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    if (status == PLINTH_OK) {
      CHECK_OK(undo());
    } else {
      failed = true;
      CHECK_EQ(reserved(0), held);
      CHECK_EQ(max_reserved(0), held);
    }
    if (!tripped) {
      break;
    }
  }
  CHECK(failed);
}

static void *attempted;

static plinth_status_t allocate_attempted(void) {
  return plinth_caching_allocator_alloc(100 * MIB, 0, NULL, &attempted);
}

static plinth_status_t free_attempted(void) { return plinth_caching_allocator_delete(attempted); }

static plinth_status_t wake_all(void) { return plinth_memory_wake(NULL); }

static plinth_status_t put_all_to_sleep(void) { return plinth_memory_sleep(NULL, NULL); }

TEST(memory_that_was_never_used_is_in_no_peak) {
  const char *settings = getenv("PLINTH_ALLOC_CONF");
  plinth_pool_id_t pool;
  CHECK_OK(plinth_enable_fault_injection());
  release(alloc_on(MIB, 0, NULL));
  fail_each_call(allocate_attempted, free_attempted);
  if (settings != NULL && strstr(settings, "expandable_segments:False") != NULL) {
    /* Such memory does not sleep. */
    expect_nothing_left();
    return;
  }
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_mem_pool_set_tag(pool, "peak"));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *memory = alloc_on(100 * MIB, 0, NULL);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(put_all_to_sleep());
  fail_each_call(wake_all, put_all_to_sleep);
  CHECK_OK(wake_all());
  release(memory);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(blocks_that_are_not_split_are_counted) {
  const char *settings = getenv("PLINTH_ALLOC_CONF");
  /* Only memory that cannot move has a limit on splitting. */
  const bool limited = settings != NULL && strstr(settings, "expandable_segments:False") != NULL;
  CHECK_OK(plinth_set_allocator_settings("max_split_size_mb:32"));
  void *blocks[3] = {alloc_on(64 * MIB, 0, NULL), alloc_on(40 * MIB, 0, NULL), alloc_on(8 * MIB, 0, NULL)};
  plinth_memory_stats_t stats = stats_of(0);
  expect_stat(stats.oversize_allocations, 2 * limited, 2 * limited, 2 * limited, 0);
  expect_stat(stats.oversize_segments, 2 * limited, 2 * limited, 2 * limited, 0);
  release(blocks[0]);
  release(blocks[2]);
  stats = stats_of(0);
  expect_stat(stats.oversize_allocations, limited, 2 * limited, 2 * limited, limited);
  expect_stat(stats.oversize_segments, 2 * limited, 2 * limited, 2 * limited, 0);
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_OK(plinth_reset_accumulated_memory_stats(0));
  stats = stats_of(0);
  expect_stat(stats.oversize_allocations, limited, limited, 0, 0);
  CHECK_EQ(stats.oversize_segments.current, limited);
  release(blocks[1]);
  expect_nothing_left();
  stats = stats_of(0);
  CHECK_EQ(stats.oversize_allocations.current, 0);
  CHECK_EQ(stats.oversize_segments.current, 0);
}

enum { PEAK_THREADS = 4, PEAK_BYTES = 64 * MIB, PEAK_ROUNDS = 2000 };
static pthread_barrier_t peak_barrier;

static void *allocate_pairs(void *context) {
  (void)context;
  plinth_stream_t stream = stream_on(0);
  pthread_barrier_wait(&peak_barrier);
  for (int round = 0; round < PEAK_ROUNDS; round++) {
    release(alloc_on(PEAK_BYTES, 0, stream));
  }
  /* All threads have one block at this point. */
  void *memory = alloc_on(PEAK_BYTES, 0, stream);
  pthread_barrier_wait(&peak_barrier);
  release(memory);
  return NULL;
}

/* The bound of plinth_memory_stats: never too high, and too low by an eighth or 4 MiB for each stream at most. */
TEST(peaks_of_concurrent_threads_are_within_the_bound) {
  CHECK_EQ(pthread_barrier_init(&peak_barrier, NULL, PEAK_THREADS), 0);
  run_threads(PEAK_THREADS, allocate_pairs);
  plinth_memory_stats_t stats = stats_of(0);
  const int64_t most = (int64_t)PEAK_THREADS * PEAK_BYTES;
  const int64_t peaks[] = {stats.allocated_bytes.all.peak, stats.active_bytes.large_pool.peak,
                           stats.requested_bytes.all.peak};
  for (int index = 0; index < 3; index++) {
    CHECK(peaks[index] <= most);
    CHECK(peaks[index] + most / 8 >= most);
  }
  CHECK(stats.allocation.all.peak <= PEAK_THREADS && stats.allocation.all.peak > 0);
  CHECK_EQ(pthread_barrier_destroy(&peak_barrier), 0);
  expect_nothing_left();
}

TEST(pools_and_streams_have_their_own_stats) {
  plinth_stream_t stream = stream_on(0);
  plinth_pool_id_t pool;
  plinth_pool_id_t none = {0, 0};
  plinth_memory_stats_t stats = {.struct_size = sizeof stats};
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *in_pool = alloc_on(3 * MIB, 0, stream);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  void *outside = alloc_on(5 * MIB, 0, stream);
  void *elsewhere = alloc_on(1, 0, NULL);
  CHECK_OK(plinth_mem_pool_stats(pool, 0, &stats));
  expect_stat(stats.allocated_bytes.all, 3 * MIB, 3 * MIB, 3 * MIB, 0);
  CHECK(stats.reserved_bytes.all.current >= (int64_t)(3 * MIB));
  CHECK_EQ(stats.num_device_alloc, 0);
  CHECK_OK(plinth_mem_pool_stats(none, -1, &stats));
  expect_stat(stats.allocation.all, 2, 2, 2, 0);
  CHECK_OK(plinth_stream_memory_stats(stream, &stats));
  expect_stat(stats.allocated_bytes.all, 8 * MIB, 8 * MIB, 8 * MIB, 0);
  CHECK_OK(plinth_stream_memory_stats(NULL, &stats));
  expect_stat(stats.requested_bytes.all, 1, 1, 1, 0);
  release(in_pool);
  release(outside);
  release(elsewhere);
  CHECK_OK(plinth_mem_pool_stats(pool, 0, &stats));
  expect_stat(stats.allocation.all, 0, 1, 1, 1);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(a_smaller_struct_is_filled_up_to_its_size) {
  plinth_memory_stats_t stats;
  memset(&stats, 0x5A, sizeof stats);
  stats.struct_size = offsetof(plinth_memory_stats_t, segment);
  release(alloc_on(KIB, 0, NULL));
  CHECK_OK(plinth_memory_stats(0, &stats));
  CHECK_EQ(stats.struct_size, offsetof(plinth_memory_stats_t, segment));
  expect_stat(stats.allocation.all, 0, 1, 1, 1);
  CHECK_EQ((uint64_t)stats.segment.all.current, 0x5A5A5A5A5A5A5A5A);
  struct newer {
    plinth_memory_stats_t known;
    uint64_t more;
  } newer = {{.struct_size = sizeof newer}, 7};
  CHECK_OK(plinth_memory_stats(0, &newer.known));
  CHECK_EQ(newer.known.struct_size, sizeof newer.known);
  CHECK_EQ(newer.more, 7);
}

TEST(json_has_every_key) {
  char *flat = NULL;
  char *nested = NULL;
  char part[96];
  void *memory = alloc_on(2048, 0, NULL);
  CHECK_OK(plinth_memory_stats_as_json(0, false, &flat));
  CHECK_OK(plinth_memory_stats_as_json(0, true, &nested));
  collect_all(0);
  for (int index = 0; index < KEYS; index++) {
    snprintf(part, sizeof part, "\"%.60s\": %lld", keys[index], (long long)values[index]);
    CHECK(strstr(flat, part) != NULL);
  }
  CHECK(strstr(nested, "\"allocated_bytes\": {\"all\": {\"allocated\": 2048, \"current\": 2048, \"freed\": 0, "
                       "\"peak\": 2048}, \"large_pool\": {") != NULL);
  CHECK(strstr(nested, "\"max_split_size\": -1") != NULL);
  plinth_string_free(flat);
  plinth_string_free(nested);
  release(memory);
}

TEST(deprecated_functions_return_the_same) {
  size_t bytes = UNTOUCHED;
  release(alloc_on(7 * MIB, 0, NULL));
  CHECK_OK(plinth_memory_cached(0, &bytes));
  CHECK_EQ(bytes, reserved(0));
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_max_memory_cached(0, &bytes));
  CHECK_EQ(bytes, max_reserved(0));
  CHECK(bytes >= 7 * MIB);
  CHECK_OK(plinth_reset_max_memory_allocated(0));
  CHECK_EQ(max_allocated(0), 0);
  CHECK_EQ(max_reserved(0), 0);
  release(alloc_on(7 * MIB, 0, NULL));
  CHECK_OK(plinth_reset_max_memory_cached(-1));
  CHECK_EQ(max_allocated(0), 0);
  CHECK_EQ(max_reserved(0), reserved(0));
}

enum { WORKERS = 4, BLOCKS = 24 };

static plinth_stream_t worker_streams[WORKERS];
static int reading;

/* Allocates and frees in a stream of its own, so that all quantities change. */
static void *change_all_quantities(void *context) {
  const int worker = *(int *)context;
  uint64_t state = (uint64_t)worker;
  unsigned char *held[BLOCKS] = {NULL};
  while (__atomic_load_n(&reading, __ATOMIC_SEQ_CST)) {
    const uint64_t number = random_next(&state);
    unsigned char **block = &held[number % BLOCKS];
    release(*block);
    *block = NULL;
    if (number >> 8 & 1) {
      *block = alloc_on(number >> 9 & 1 ? 1 + (number >> 20) % MIB : 1 + (number >> 20) % (6 * MIB), 0, worker_streams[worker]);
      if (number >> 10 & 1) {
        CHECK_OK(plinth_record_stream(*block, worker_streams[(worker + 1) % WORKERS]));
      }
    } else if ((number >> 8 & 255) == 0) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  for (int index = 0; index < BLOCKS; index++) {
    release(held[index]);
  }
  return NULL;
}

static void *read_and_compare(void *context) {
  for (int round = 0; round < some_rounds(50000); round++) {
    const plinth_memory_stats_t stats = stats_of(0);
    const plinth_memory_stat_by_pool_t *const quantities[] = {
        &stats.allocation,     &stats.segment,        &stats.active, &stats.inactive_split,
        &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes,
        &stats.requested_bytes};
    for (size_t index = 0; index < sizeof quantities / sizeof *quantities; index++) {
      const plinth_memory_stat_by_pool_t *of = quantities[index];
      const plinth_memory_stat_t *const scopes[] = {&of->all, &of->small_pool, &of->large_pool};
      for (int scope = 0; scope < 3; scope++) {
        CHECK(scopes[scope]->current >= 0 && scopes[scope]->current <= scopes[scope]->peak);
        CHECK_EQ(scopes[scope]->allocated - scopes[scope]->freed, scopes[scope]->current);
      }
      if (of == &stats.reserved_bytes) {
        CHECK(of->all.current >= of->small_pool.current + of->large_pool.current);
      } else {
        CHECK_EQ(of->all.current, of->small_pool.current + of->large_pool.current);
        CHECK_EQ(of->all.allocated, of->small_pool.allocated + of->large_pool.allocated);
      }
    }
    CHECK(stats.active.all.current >= stats.allocation.all.current);
    CHECK(stats.active_bytes.all.current >= stats.allocated_bytes.all.current);
    CHECK(stats.active_bytes.all.current >= stats.requested_bytes.all.current);
    CHECK(stats.reserved_bytes.small_pool.current >= stats.active_bytes.small_pool.current);
    CHECK(stats.reserved_bytes.large_pool.current >= stats.active_bytes.large_pool.current);
  }
  return context;
}

TEST(a_read_is_of_one_moment) {
  pthread_t workers[WORKERS];
  int numbers[WORKERS];
  for (int worker = 0; worker < WORKERS; worker++) {
    worker_streams[worker] = stream_on(0);
  }
  __atomic_store_n(&reading, 1, __ATOMIC_SEQ_CST);
  for (int worker = 0; worker < WORKERS; worker++) {
    numbers[worker] = worker;
    CHECK_EQ(pthread_create(&workers[worker], NULL, change_all_quantities, &numbers[worker]), 0);
  }
  read_and_compare(NULL);
  __atomic_store_n(&reading, 0, __ATOMIC_SEQ_CST);
  for (int worker = 0; worker < WORKERS; worker++) {
    CHECK_EQ(pthread_join(workers[worker], NULL), 0);
  }
  expect_nothing_left();
}

/* The memory of a destroyed stream returns to the driver; what was counted stays counted. */
TEST(sums_include_destroyed_streams) {
  enum { STREAMS = 5 };
  CHECK_OK(plinth_reset_accumulated_memory_stats(0));
  for (int index = 1; index <= STREAMS; index++) {
    plinth_stream_t stream = NULL;
    CHECK_OK(plinth_stream_create_dedicated(0, 0, &stream));
    release(alloc_on(KIB, 0, stream));
    release(alloc_on(3 * MIB, 0, stream));
    CHECK_OK(plinth_stream_destroy(stream));
    CHECK_OK(plinth_empty_cache());
    const plinth_memory_stats_t stats = stats_of(0);
    expect_stat(stats.allocation.small_pool, 0, 1, index, index);
    expect_stat(stats.allocated_bytes.large_pool, 0, 3 * MIB, index * 3 * MIB, index * 3 * MIB);
    CHECK(stats.reserved_bytes.all.allocated >= (long long)(index * 3 * MIB));
    CHECK_EQ(stats.reserved_bytes.all.allocated, stats.reserved_bytes.all.freed);
  }
  CHECK_OK(plinth_reset_accumulated_memory_stats(0));
  CHECK_EQ(stats_of(0).allocation.all.allocated, 0);
  plinth_stream_t stream = NULL;
  CHECK_OK(plinth_stream_create_dedicated(0, 0, &stream));
  release(alloc_on(KIB, 0, stream));
  CHECK_EQ(stats_of(0).allocation.all.allocated, 1);
  CHECK_OK(plinth_stream_destroy(stream));
  expect_nothing_left();
}

TEST(invalid_arguments_are_errors) {
  const int32_t none = device_count();
  plinth_memory_stats_t stats = {.struct_size = sizeof stats};
  plinth_pool_id_t pool = {0, 0};
  char *text = (char *)UNTOUCHED_POINTER;
  size_t bytes = UNTOUCHED;
  CHECK_STATUS(plinth_memory_stats(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_stats(none, &stats), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_mem_pool_stats(pool, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_pool_stats(pool, none, &stats), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_stream_memory_stats(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  stats.struct_size = 0;
  CHECK_STATUS(plinth_memory_stats(0, &stats), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("struct_size");
  CHECK_STATUS(plinth_memory_stats_each(0, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_stats_each(none, collect, NULL), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_memory_stats_as_json(0, true, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_stats_as_json(none, true, &text), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_SAME(text, UNTOUCHED_POINTER);
  CHECK_STATUS(plinth_reset_accumulated_memory_stats(none), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_memory_cached(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_max_memory_cached(none, &bytes), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(bytes, UNTOUCHED);
  CHECK_STATUS(plinth_reset_max_memory_allocated(none), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_reset_max_memory_cached(none), PLINTH_ERROR_INVALID_DEVICE);
}
