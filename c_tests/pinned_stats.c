/* The statistics of the cache of pinned memory. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=pinned_use_cuda_host_register:True,pinned_num_register_threads:4 */
/* also: PLINTH_ALLOC_CONF=pinned_use_background_threads:True */
#include "pinning.h"

static void expect_stat(plinth_host_stat_t stat, uint64_t current, uint64_t peak, uint64_t allocated_sum,
                        uint64_t freed_sum) {
  CHECK_EQ(stat.current, current);
  CHECK_EQ(stat.peak, peak);
  CHECK_EQ(stat.allocated, allocated_sum);
  CHECK_EQ(stat.freed, freed_sum);
}

TEST(stats_start_at_zero) {
  const plinth_host_memory_stats_t stats = host_stats();
  expect_stat(stats.active_bytes, 0, 0, 0, 0);
  expect_stat(stats.allocations, 0, 0, 0, 0);
  CHECK_EQ(stats.num_host_alloc, 0);
  CHECK_EQ(stats.host_alloc_time.count, 0);
  CHECK_EQ(stats.host_alloc_time.avg, 0);
}

TEST(blocks_count_with_their_rounded_size) {
  void *small = pin(1000);
  void *large = pin(9 * MIB - 5);
  plinth_host_memory_stats_t stats = host_stats();
  expect_stat(stats.active_requests, 2, 2, 2, 0);
  expect_stat(stats.active_bytes, 1024 + 9 * MIB, 1024 + 9 * MIB, 1024 + 9 * MIB, 0);
  expect_stat(stats.allocations, 2, 2, 2, 0);
  expect_stat(stats.allocated_bytes, 11 * MIB, 11 * MIB, 11 * MIB, 0);
  CHECK_EQ(stats.num_host_alloc, 2);
  CHECK_EQ(stats.num_host_free, 0);
  unpin(large);
  stats = host_stats();
  expect_stat(stats.active_requests, 1, 2, 2, 1);
  expect_stat(stats.active_bytes, 1024, 1024 + 9 * MIB, 1024 + 9 * MIB, 9 * MIB);
  expect_stat(stats.allocations, 2, 2, 2, 0);
  large = pin(9 * MIB);
  stats = host_stats();
  expect_stat(stats.active_requests, 2, 2, 3, 1);
  CHECK_EQ(stats.num_host_alloc, 2);
  unpin(large);
  unpin(small);
  CHECK_OK(plinth_host_empty_cache());
  stats = host_stats();
  expect_stat(stats.active_requests, 0, 2, 3, 3);
  expect_stat(stats.allocations, 0, 2, 2, 2);
  expect_stat(stats.allocated_bytes, 0, 11 * MIB, 11 * MIB, 11 * MIB);
  CHECK_EQ(stats.num_host_free, 2);
}

TEST(a_pending_block_is_active) {
  plinth_stream_t stream = stream_on(0);
  void *memory = pin(5 * MIB);
  gate *shut = hold(stream);
  CHECK_OK(plinth_host_record_stream(memory, stream));
  unpin(memory);
  plinth_host_memory_stats_t stats = host_stats();
  expect_stat(stats.active_requests, 1, 1, 1, 0);
  expect_stat(stats.active_bytes, 5 * MIB, 5 * MIB, 5 * MIB, 0);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  unpin(pin(5 * MIB));
  stats = host_stats();
  expect_stat(stats.active_requests, 0, 1, 2, 2);
  expect_stat(stats.active_bytes, 0, 5 * MIB, 10 * MIB, 10 * MIB);
  CHECK_EQ(stats.num_host_alloc, 1);
}

TEST(driver_calls_are_timed) {
  unpin(pin(64 * MIB));
  CHECK_OK(plinth_host_empty_cache());
  unpin(pin(2 * MIB));
  const plinth_host_memory_stats_t stats = host_stats();
  const plinth_host_time_t *times[] = {&stats.host_alloc_time, &stats.host_free_time};
  const uint64_t counts[] = {2, 1};
  for (int index = 0; index < 2; index++) {
    CHECK_EQ(times[index]->count, counts[index]);
    CHECK(times[index]->min <= times[index]->avg && times[index]->avg <= times[index]->max);
    CHECK(times[index]->total >= times[index]->max && times[index]->total <= counts[index] * times[index]->max);
    CHECK_EQ(times[index]->avg, times[index]->total / counts[index]);
    CHECK(times[index]->max < 10 * 1000 * 1000);
  }
}

TEST(peaks_can_be_reset) {
  void *kept = pin(3 * MIB);
  unpin(pin(20 * MIB));
  CHECK_OK(plinth_host_empty_cache());
  CHECK_OK(plinth_reset_peak_host_memory_stats());
  plinth_host_memory_stats_t stats = host_stats();
  expect_stat(stats.active_bytes, 3 * MIB, 3 * MIB, 23 * MIB, 20 * MIB);
  expect_stat(stats.active_requests, 1, 1, 2, 1);
  expect_stat(stats.allocated_bytes, 3 * MIB, 3 * MIB, 23 * MIB, 20 * MIB);
  expect_stat(stats.allocations, 1, 1, 2, 1);
  CHECK_EQ(stats.host_alloc_time.count, 2);
  CHECK_EQ(stats.host_alloc_time.max, 0);
  CHECK_EQ(stats.host_alloc_time.min, 0);
  unpin(kept);
  CHECK_EQ(host_stats().active_bytes.peak, 3 * MIB);
}

TEST(accumulated_stats_can_be_reset) {
  void *kept = pin(3 * MIB);
  unpin(pin(20 * MIB));
  CHECK_OK(plinth_host_empty_cache());
  CHECK_OK(plinth_reset_accumulated_host_memory_stats());
  plinth_host_memory_stats_t stats = host_stats();
  expect_stat(stats.active_bytes, 3 * MIB, 23 * MIB, 0, 0);
  expect_stat(stats.active_requests, 1, 2, 0, 0);
  expect_stat(stats.allocated_bytes, 3 * MIB, 23 * MIB, 0, 0);
  expect_stat(stats.allocations, 1, 2, 0, 0);
  CHECK_EQ(stats.num_host_alloc, 0);
  CHECK_EQ(stats.num_host_free, 0);
  CHECK_EQ(stats.host_alloc_time.total, 0);
  CHECK_EQ(stats.host_free_time.count, 0);
  unpin(kept);
  stats = host_stats();
  expect_stat(stats.active_requests, 0, 2, 0, 1);
  expect_stat(stats.active_bytes, 0, 23 * MIB, 0, 3 * MIB);
}

static struct {
  int count;
  char keys[64][64];
  uint64_t values[64];
} collected;

static void collect(const char *key, uint64_t value, void *context) {
  CHECK_SAME(context, &collected);
  CHECK(collected.count < 64);
  snprintf(collected.keys[collected.count], 64, "%s", key);
  collected.values[collected.count++] = value;
}

TEST(the_keys_are_those_of_pytorch) {
  const char *const keys[] = {
      "active_bytes.allocated",    "active_bytes.current",      "active_bytes.freed",        "active_bytes.peak",
      "active_requests.allocated", "active_requests.current",   "active_requests.freed",     "active_requests.peak",
      "allocated_bytes.allocated", "allocated_bytes.current",   "allocated_bytes.freed",     "allocated_bytes.peak",
      "allocations.allocated",     "allocations.current",       "allocations.freed",         "allocations.peak",
      "host_alloc_time.avg",       "host_alloc_time.count",     "host_alloc_time.max",       "host_alloc_time.min",
      "host_alloc_time.total",     "host_free_time.avg",        "host_free_time.count",      "host_free_time.max",
      "host_free_time.min",        "host_free_time.total",      "num_host_alloc",            "num_host_free"};
  void *memory = pin(3 * MIB);
  unpin(pin(MIB));
  CHECK_OK(plinth_host_memory_stats_each(collect, &collected));
  CHECK_EQ(collected.count, 28);
  const plinth_host_memory_stats_t stats = host_stats();
  const uint64_t values[] = {
      stats.active_bytes.allocated,    stats.active_bytes.current,    stats.active_bytes.freed,
      stats.active_bytes.peak,         stats.active_requests.allocated, stats.active_requests.current,
      stats.active_requests.freed,     stats.active_requests.peak,    stats.allocated_bytes.allocated,
      stats.allocated_bytes.current,   stats.allocated_bytes.freed,   stats.allocated_bytes.peak,
      stats.allocations.allocated,     stats.allocations.current,     stats.allocations.freed,
      stats.allocations.peak,          stats.host_alloc_time.avg,     stats.host_alloc_time.count,
      stats.host_alloc_time.max,       stats.host_alloc_time.min,     stats.host_alloc_time.total,
      stats.host_free_time.avg,        stats.host_free_time.count,    stats.host_free_time.max,
      stats.host_free_time.min,        stats.host_free_time.total,    stats.num_host_alloc,
      stats.num_host_free};
  for (int index = 0; index < 28; index++) {
    CHECK_TEXT(collected.keys[index], keys[index]);
    CHECK_EQ(collected.values[index], values[index]);
  }
  CHECK_STATUS(plinth_host_memory_stats_each(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  unpin(memory);
}

TEST(stats_as_json) {
  char *text = NULL;
  void *memory = pin(3 * MIB);
  CHECK_OK(plinth_host_memory_stats_as_json(false, &text));
  CHECK(strstr(text, "{\"active_bytes.allocated\": 3145728, \"active_bytes.current\": 3145728, ") == text);
  CHECK(strstr(text, ", \"num_host_alloc\": 1, \"num_host_free\": 0}") != NULL);
  plinth_string_free(text);
  CHECK_OK(plinth_host_memory_stats_as_json(true, &text));
  CHECK(strstr(text, "{\"active_bytes\": {\"allocated\": 3145728, \"current\": 3145728, ") == text);
  CHECK(strstr(text, "}, \"num_host_alloc\": 1, \"num_host_free\": 0}") != NULL);
  plinth_string_free(text);
  CHECK_STATUS(plinth_host_memory_stats_as_json(false, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_host_memory_stats_as_json(true, NULL), PLINTH_ERROR_NULL_POINTER);
  unpin(memory);
}

TEST(a_smaller_struct_is_filled_up_to_its_size) {
  plinth_host_memory_stats_t stats;
  void *memory = pin(3 * MIB);
  memset(&stats, 0x5A, sizeof stats);
  stats.struct_size = offsetof(plinth_host_memory_stats_t, active_requests);
  CHECK_OK(plinth_host_memory_stats(&stats));
  CHECK_EQ(stats.struct_size, offsetof(plinth_host_memory_stats_t, active_requests));
  CHECK_EQ(stats.allocations.current, 1);
  CHECK_EQ(stats.active_requests.current, UINT64_C(0x5A5A5A5A5A5A5A5A));
  stats.struct_size = sizeof stats + 64;
  CHECK_OK(plinth_host_memory_stats(&stats));
  CHECK_EQ(stats.struct_size, sizeof stats);
  stats.struct_size = 3;
  CHECK_STATUS(plinth_host_memory_stats(&stats), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_host_memory_stats(NULL), PLINTH_ERROR_NULL_POINTER);
  unpin(memory);
}
