/* The allocator's statistics, limits and summary, and the release of cached memory.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "allocating.h"

#include <math.h>

static double fraction_of(int32_t device) {
  double fraction = -1;
  CHECK_OK(plinth_get_per_process_memory_fraction(device, &fraction));
  return fraction;
}

TEST(initial_statistics_are_zero) {
  for (int32_t device = -1; device < device_count(); device++) {
    CHECK_EQ(allocated(device), 0);
    CHECK_EQ(max_allocated(device), 0);
    CHECK_EQ(reserved(device), 0);
    CHECK_EQ(max_reserved(device), 0);
    CHECK(fraction_of(device) == 1.0);
    CHECK_OK(plinth_reset_peak_memory_stats(device));
  }
  expect_sound();
}

TEST(requests_are_counted_in_units_of_512_bytes) {
  const size_t requests[] = {1, 511, 512, 513, 1024, MIB - 1, MIB, MIB + 1, 5 * MIB + 100, 10 * MIB + 1};
  const size_t counted[] = {512, 512, 512, 1024, 1024, MIB, MIB, MIB + 512, 5 * MIB + 512, 10 * MIB + 512};
  void *memory[10];
  size_t sum = 0;
  for (int index = 0; index < 10; index++) {
    memory[index] = alloc_on(requests[index], 0, NULL);
    sum += counted[index];
    CHECK_EQ(allocated(0), sum);
    CHECK_EQ(max_allocated(0), sum);
    CHECK(reserved(0) >= sum);
    CHECK(max_reserved(0) >= reserved(0));
  }
  const size_t peak = sum;
  for (int index = 0; index < 10; index++) {
    release(memory[index]);
    sum -= counted[index];
    CHECK_EQ(allocated(0), sum);
    CHECK_EQ(max_allocated(0), peak);
  }
  expect_nothing_left();
}

TEST(statistics_are_per_device) {
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(0);
  const int32_t last = device_count() - 1;
  void *memory[4];
  memory[0] = alloc_on(3 * MIB, 0, first);
  memory[1] = alloc_on(5 * MIB, 0, second);
  memory[2] = alloc_on(700, 0, NULL);
  CHECK_EQ(allocated(0), 8 * MIB + 1024);
  memory[3] = alloc_on(7 * MIB, last, stream_on(last));
  CHECK_EQ(allocated(last), last == 0 ? 15 * MIB + 1024 : 7 * MIB);
  if (last != 0) {
    CHECK_EQ(allocated(0), 8 * MIB + 1024);
    CHECK_EQ(max_allocated(last), 7 * MIB);
    CHECK_OK(plinth_set_device(last));
    CHECK_EQ(allocated(-1), 7 * MIB);
    CHECK_OK(plinth_set_device(0));
    release(memory[0]);
    CHECK_EQ(allocated(last), 7 * MIB);
    CHECK_EQ(allocated(0), 5 * MIB + 1024);
    CHECK_OK(plinth_reset_peak_memory_stats(last));
    CHECK_EQ(max_allocated(0), 8 * MIB + 1024);
  } else {
    release(memory[0]);
  }
  for (int index = 1; index < 4; index++) {
    release(memory[index]);
  }
  expect_nothing_left();
}

TEST(peaks_last_until_they_are_reset) {
  void *large = alloc_on(30 * MIB, 0, NULL);
  void *small = alloc_on(MIB, 0, NULL);
  release(large);
  CHECK_EQ(max_allocated(0), 31 * MIB);
  const size_t held = max_reserved(0);
  CHECK(held >= 31 * MIB);
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(0) < held);
  CHECK_EQ(max_reserved(0), held);
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_EQ(max_allocated(0), MIB);
  CHECK_EQ(max_reserved(0), reserved(0));
  void *another = alloc_on(2 * MIB, 0, NULL);
  CHECK_EQ(max_allocated(0), 3 * MIB);
  release(another);
  CHECK_EQ(max_allocated(0), 3 * MIB);
  release(small);
  CHECK_OK(plinth_reset_peak_memory_stats(-1));
  CHECK_EQ(max_allocated(0), 0);
  expect_nothing_left();
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_EQ(max_reserved(0), 0);
}

TEST(cached_memory_is_reserved_until_the_cache_is_emptied) {
  const bool counted = on_host_device();
  release(alloc_on(MIB, 0, NULL));
  CHECK_OK(plinth_empty_cache());
  const size_t baseline = free_memory(0);
  void *memory = alloc_on(50 * MIB, 0, NULL);
  const size_t held = reserved(0);
  CHECK(held >= 50 * MIB);
  CHECK(!counted || free_memory(0) + held <= baseline);
  release(memory);
  CHECK_EQ(allocated(0), 0);
  CHECK_EQ(reserved(0), held);
  CHECK(!counted || free_memory(0) + held <= baseline);
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(reserved(0), 0);
  CHECK(!counted || free_memory(0) == baseline);
  CHECK_OK(plinth_empty_cache());
  CHECK(!counted || free_memory(0) == baseline);
}

TEST(emptying_the_cache_covers_every_device_and_stream) {
  for (int32_t device = 0; device < device_count(); device++) {
    for (int index = 0; index < 4; index++) {
      plinth_stream_t stream = index == 0 ? NULL : stream_on(device);
      release(alloc_on(KIB, device, stream));
      release(alloc_on(3 * MIB, device, stream));
      release(alloc_on(25 * MIB, device, stream));
    }
    CHECK(reserved(device) > 0);
  }
  CHECK_OK(plinth_empty_cache());
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_EQ(reserved(device), 0);
  }
  if (on_host_device()) {
    CHECK_EQ(host_usage().device_bytes, 0);
    CHECK_EQ(host_usage().memory_handles, 0);
    CHECK_EQ(host_usage().mappings, 0);
  }
}

TEST(one_live_block_keeps_few_bytes_reserved) {
  void *memory[40];
  for (int index = 0; index < 40; index++) {
    memory[index] = alloc_on(4 * MIB, 0, NULL);
  }
  for (int index = 1; index < 40; index++) {
    release(memory[index]);
  }
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(allocated(0), 4 * MIB);
  CHECK(reserved(0) >= 4 * MIB);
  CHECK(reserved(0) <= 64 * MIB);
  release(memory[0]);
  expect_nothing_left();
}

/* Growing requests, as for a sequence that gets longer: each is larger than any cached block. */
TEST(growing_requests_do_not_accumulate_cached_blocks) {
  for (size_t megabytes = 10; megabytes <= 200; megabytes += 10) {
    release(alloc_on(megabytes * MIB, 0, NULL));
    if (getenv("PLINTH_ALLOC_CONF") == NULL) {
      CHECK(reserved(0) <= megabytes * MIB + 64 * MIB);
    }
  }
  CHECK(max_reserved(0) >= 200 * MIB);
  expect_nothing_left();
}

TEST(a_valid_fraction_is_set_and_others_are_refused) {
  const double good[] = {0.0, 1e-9, 0.25, 0.5, 0.999, 1.0};
  const double bad[] = {-0.1, -1e-300, 1.0000001, 2.0, -1.0, INFINITY, -INFINITY, NAN};
  const int32_t last = device_count() - 1;
  for (int index = 0; index < 6; index++) {
    CHECK_OK(plinth_set_per_process_memory_fraction(good[index], last));
    CHECK(fabs(fraction_of(last) - good[index]) < 1e-9);
  }
  CHECK_OK(plinth_set_per_process_memory_fraction(0.5, last));
  for (int index = 0; index < 8; index++) {
    CHECK_STATUS(plinth_set_per_process_memory_fraction(bad[index], last), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("fraction");
    CHECK(fabs(fraction_of(last) - 0.5) < 1e-9);
  }
  if (last != 0) {
    CHECK(fraction_of(0) == 1.0);
  }
}

TEST(a_fraction_of_zero_allows_no_memory) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_set_per_process_memory_fraction(0.0, 0));
  CHECK_STATUS(plinth_caching_allocator_alloc(1, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK_OK(plinth_caching_allocator_alloc(0, 0, NULL, &pointer));
  CHECK(pointer == NULL);
  if (device_count() > 1) {
    release(alloc_on(MIB, 1, NULL));
  }
  lift_limit(0);
  release(alloc_on(MIB, 0, NULL));
  expect_nothing_left();
}

/* Allocates blocks until out of memory. Returns their number. */
static int allocate_all(void **memory, int most, size_t bytes) {
  int count = 0;
  for (; count < most; count++) {
    const plinth_status_t status = plinth_caching_allocator_alloc(bytes, 0, NULL, &memory[count]);
    if (status != PLINTH_OK) {
      CHECK_STATUS(status, PLINTH_ERROR_OUT_OF_MEMORY);
      return count;
    }
  }
  return count;
}

TEST(a_limit_is_not_exceeded) {
  void *memory[64];
  limit_memory(128 * MIB, 0);
  for (int round = 0; round < 3; round++) {
    const int count = allocate_all(memory, 64, 8 * MIB);
    /* The granularity of segments may cost some memory. */
    CHECK(count >= 12 && count <= 16);
    CHECK(reserved(0) <= 128 * MIB + MIB);
    CHECK(max_reserved(0) <= 128 * MIB + MIB);
    for (int index = 0; index < count; index++) {
      release(memory[index]);
    }
  }
  /* Cached blocks of one size do not count against requests of another. */
  release(alloc_on(100 * MIB, 0, NULL));
  release(alloc_on(100 * MIB, 0, stream_on(0)));
  CHECK(max_reserved(0) <= 128 * MIB + MIB);
  lift_limit(0);
  release(alloc_on(200 * MIB, 0, NULL));
  expect_nothing_left();
}

TEST(a_limit_below_the_allocated_memory_keeps_it_valid) {
  void *pinned = pinned_memory(8 * MIB);
  void *memory[8];
  void *pointer = UNTOUCHED_POINTER;
  for (int index = 0; index < 8; index++) {
    memory[index] = alloc_on(8 * MIB, 0, NULL);
    fill_words(memory[index], (uint32_t)index, 8 * MIB, NULL);
  }
  limit_memory(32 * MIB, 0);
  CHECK_STATUS(plinth_caching_allocator_alloc(8 * MIB, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  for (int index = 0; index < 8; index++) {
    CHECK(has_words(memory[index], (uint32_t)index, 8 * MIB, NULL, pinned));
    release(memory[index]);
  }
  CHECK_OK(plinth_empty_cache());
  release(alloc_on(8 * MIB, 0, NULL));
  CHECK(reserved(0) <= 32 * MIB + MIB);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(limits_are_per_device) {
  need_devices(2);
  void *pointer = NULL;
  limit_memory(40 * MIB, 1);
  void *memory = alloc_on(80 * MIB, 0, NULL);
  CHECK_STATUS(plinth_caching_allocator_alloc(80 * MIB, 1, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  release(memory);
  expect_nothing_left();
}

/* Checks the format of PyTorch's table: lines of 77 characters between bars. */
static char *summary_of(int32_t device, bool abbreviated) {
  char *text = NULL;
  CHECK_OK(plinth_memory_summary(device, abbreviated, &text));
  CHECK(text != NULL);
  for (const char *line = text; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    CHECK_EQ(length, 77);
    CHECK(line[0] == '|' && line[76] == '|');
    line += length + (line[length] == '\n');
  }
  return text;
}

/* The row of a summary with this name contains `part`. */
static void expect_row(const char *text, const char *name, const char *part) {
  char begin[64];
  char line[128];
  snprintf(begin, sizeof begin, "| %s ", name);
  const char *found = strstr(text, begin);
  if (found == NULL) {
    fprintf(stderr, "no row \"%s\" in\n%s\n", name, text);
  }
  CHECK(found != NULL);
  snprintf(line, sizeof line, "%.*s", (int)strcspn(found, "\n"), found);
  if (strstr(line, part) == NULL) {
    fprintf(stderr, "no \"%s\" in \"%s\"\n", part, line);
  }
  CHECK(strstr(line, part) != NULL);
}

TEST(the_summary_has_the_format_of_pytorch) {
  static const char *const rows[] = {"Allocated memory",
                                     "Active memory",
                                     "Requested memory",
                                     "GPU reserved memory",
                                     "Non-releasable memory",
                                     "Allocations",
                                     "Active allocs",
                                     "GPU reserved segments",
                                     "Non-releasable allocs",
                                     "Oversize allocations",
                                     "Oversize GPU segments"};
  for (int abbreviated = 0; abbreviated < 2; abbreviated++) {
    char *text = summary_of(-1, abbreviated);
    for (int index = 0; index < 11; index++) {
      expect_row(text, rows[index], "|");
    }
    CHECK(strstr(text, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |") != NULL);
    CHECK((strstr(text, "from large pool") == NULL) == (abbreviated == 1));
    CHECK((strstr(text, "from small pool") == NULL) == (abbreviated == 1));
    plinth_string_free(text);
  }
}

TEST(the_summary_shows_the_statistics) {
  const int32_t last = device_count() - 1;
  char heading[32];
  void *live = alloc_on(3 * MIB, last, NULL);
  void *freed = alloc_on(2 * MIB - 100, last, NULL);
  release(freed);
  char *text = summary_of(last, true);
  expect_row(text, "Allocated memory", "  3072 KiB |   5120 KiB |   5120 KiB |   2048 KiB |");
  expect_row(text, "Active memory", "  3072 KiB |   5120 KiB |   5120 KiB |   2048 KiB |");
  expect_row(text, "Allocations", "     1    |       2    |       2    |       1    |");
  expect_row(text, "Active allocs", "     1    |       2    |       2    |       1    |");
  snprintf(heading, sizeof heading, "device ID %d", (int)last);
  CHECK(strstr(text, heading) != NULL);
  CHECK(strstr(text, "OOMs: 0") != NULL);
  plinth_string_free(text);
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, last, NULL, &freed), PLINTH_ERROR_OUT_OF_MEMORY);
  text = summary_of(last, false);
  CHECK(strstr(text, "OOMs: 1") != NULL);
  plinth_string_free(text);
  release(live);
  expect_nothing_left();
}

TEST(freed_memory_in_use_by_a_stream_is_active_but_not_allocated) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  void *memory = alloc_on(4 * MIB, 0, stream);
  gate *shut = hold(other);
  CHECK_OK(plinth_record_stream(memory, other));
  release(memory);
  CHECK_EQ(allocated(0), 0);
  CHECK(reserved(0) >= 4 * MIB);
  char *text = summary_of(0, true);
  expect_row(text, "Allocated memory", "     0 B   ");
  expect_row(text, "Active memory", "  4096 KiB |   4096 KiB |   4096 KiB |      0 B   |");
  plinth_string_free(text);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  expect_nothing_left();
}

TEST(queries_need_no_allocation) {
  char *text = summary_of(0, false);
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  CHECK_EQ(max_reserved(0), 0);
  plinth_string_free(text);
  plinth_string_free(NULL);
}

static int stop_queries;

static void *query_until_stopped(void *context) {
  (void)context;
  while (!__atomic_load_n(&stop_queries, __ATOMIC_SEQ_CST)) {
    const size_t now = allocated(0);
    CHECK(now % UNIT == 0 && now <= 4 * MIB);
    CHECK(max_allocated(0) <= 4 * MIB);
    CHECK_OK(plinth_empty_cache());
  }
  return NULL;
}

TEST(queries_can_run_concurrently_with_allocations) {
  pthread_t thread;
  plinth_stream_t stream = stream_on(0);
  CHECK(pthread_create(&thread, NULL, query_until_stopped, NULL) == 0);
  for (int round = 0; round < 300; round++) {
    void *one = alloc_on(MIB, 0, stream);
    void *other = alloc_on(3 * MIB, 0, stream);
    CHECK_EQ(allocated(0), 4 * MIB);
    release(one);
    release(other);
  }
  __atomic_store_n(&stop_queries, 1, __ATOMIC_SEQ_CST);
  pthread_join(thread, NULL);
  expect_nothing_left();
}
