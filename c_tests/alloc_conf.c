/* The allocator's settings: PLINTH_ALLOC_CONF and plinth_set_allocator_settings. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; expects a new process */
#include "allocating.h"

static void configure(const char *text) { CHECK(setenv("PLINTH_ALLOC_CONF", text, 1) == 0); }

static uint64_t calls_of(const char *name) {
  uint64_t count = UNTOUCHED;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

static void use_memory(void) {
  void *memory = alloc_on(3 * MIB, 0, NULL);
  CHECK_OK(plinth_memset(memory, 1, 3 * MIB, NULL));
  release(memory);
}

static void expect_mapped_memory(bool pages) {
  CHECK_OK(plinth_enable_fault_injection());
  use_memory();
  /* Every CUDA device in the test machines can map memory. */
  CHECK_EQ(calls_of("cuMemCreate") > 0, pages);
  CHECK_EQ(calls_of("cuMemAlloc") > 0, !pages);
  expect_nothing_left();
}

TEST(without_a_setting_segments_are_expandable) {
  CHECK(unsetenv("PLINTH_ALLOC_CONF") == 0);
  expect_mapped_memory(true);
}

TEST(with_an_empty_setting_segments_are_expandable) {
  configure("");
  expect_mapped_memory(true);
}

TEST(expandable_segments) {
  configure("expandable_segments:True");
  expect_mapped_memory(true);
}

TEST(plain_segments) {
  configure("expandable_segments:False");
  expect_mapped_memory(false);
}

TEST(blanks_are_ignored) {
  configure(" expandable_segments : False , ");
  expect_mapped_memory(false);
}

TEST(the_last_value_of_a_key_counts) {
  configure("expandable_segments:True,expandable_segments:False");
  expect_mapped_memory(false);
}

/* The first allocation reports the invalid setting. It can be repeated with a valid one. */
static void expect_refused(const char *text, const char *part) {
  void *pointer = UNTOUCHED_POINTER;
  configure(text);
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, NULL, &pointer), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_ALLOC_CONF");
  CHECK_MESSAGE(part);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK(plinth_alloc(1024, 0, NULL) == NULL);
  CHECK_MESSAGE("PLINTH_ALLOC_CONF");
  CHECK_EQ(allocated(0), 0);
  CHECK_OK(plinth_empty_cache());
  expect_sound();
}

TEST(an_invalid_setting_is_refused_at_the_first_allocation) {
  static const char *const texts[][2] = {
      {"expandable_segments", "expandable_segments"}, {"expandable_segments:", "True"},
      {"expandable_segments:yes", "yes"},             {"expandable_segments:true", "true"},
      {"expandable_segment:True", "expandable_segment"}, {":", "key"},
      {"nonsense", "nonsense"},                       {"expandable_segments:True,x:1", "x"},
  };
  for (int index = 0; index < 8; index++) {
    expect_refused(texts[index][0], texts[index][1]);
  }
  configure("expandable_segments:True");
  use_memory();
  expect_nothing_left();
}

TEST(the_environment_is_read_once) {
  configure("expandable_segments:True");
  use_memory();
  configure("nonsense");
  use_memory();
  if (device_count() > 1) {
    release(alloc_on(MIB, 1, NULL));
  }
  expect_nothing_left();
}

/* ---- Settings changed at run time. */

static bool has_setting(const char *pair) {
  char *text = NULL;
  CHECK_OK(plinth_get_allocator_settings(&text));
  CHECK(text != NULL);
  const char *found = strstr(text, pair);
  const bool has = found != NULL && (found == text || found[-1] == ',') && strchr(",", found[strlen(pair)]) != NULL;
  CHECK_OK(plinth_set_allocator_settings(text));
  plinth_string_free(text);
  return has;
}

TEST(settings_can_be_queried_and_changed) {
  configure("max_split_size_mb:123");
  CHECK_STATUS(plinth_set_allocator_settings(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_allocator_settings(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK(has_setting("max_split_size_mb:123"));
  CHECK(has_setting("expandable_segments:True"));
  CHECK_OK(plinth_set_allocator_settings("garbage_collection_threshold:0.25, expandable_segments:False"));
  CHECK(has_setting("garbage_collection_threshold:0.25"));
  CHECK(has_setting("expandable_segments:False"));
  CHECK(has_setting("max_split_size_mb:123"));
  CHECK_OK(plinth_set_allocator_settings(""));
  CHECK(has_setting("garbage_collection_threshold:0.25"));
  CHECK(!plinth_is_initialized());
}

TEST(an_invalid_setting_changes_nothing) {
  static const char *const texts[][2] = {
      {"expandable_segments:False,nonsense:1", "nonsense"}, {"max_split_size_mb:19", "max_split_size_mb"},
      {"garbage_collection_threshold:1", "garbage_collection_threshold"}, {"backend:torch", "backend"},
      {"roundup_power2_divisions:[256:3]", "roundup_power2_divisions"}, {"large_segment_size_mb:10", "large_segment_size_mb"},
      {"per_process_memory_fraction:2", "per_process_memory_fraction"}, {"pinned_num_register_threads:3", "pinned_num"},
      {"debug:[guard],backend:uncached", "debug"},
      {"expandable_segment:False", "unknown key \"expandable_segment\"; did you mean expandable_segments?"},
      {"speed:high", "unknown key \"speed\"; the keys are backend, expandable_segments, "},
  };
  for (size_t index = 0; index < sizeof texts / sizeof texts[0]; index++) {
    CHECK_STATUS(plinth_set_allocator_settings(texts[index][0]), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("changing the allocator's settings: ");
    CHECK_MESSAGE(texts[index][1]);
  }
  CHECK(has_setting("expandable_segments:True"));
}

TEST(some_settings_cannot_change_after_initialization) {
  use_memory();
  CHECK_STATUS(plinth_set_allocator_settings("expandable_segments:False"), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK_MESSAGE("expandable_segments");
  CHECK_STATUS(plinth_set_allocator_settings("debug:[guard]"), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK_MESSAGE("debug");
  CHECK_OK(plinth_set_allocator_settings("expandable_segments:True,garbage_collection_threshold:0.5"));
  use_memory();
  expect_nothing_left();
}

TEST(pytorch_variables_are_read_on_request) {
  CHECK(unsetenv("PLINTH_ALLOC_CONF") == 0);
  CHECK(setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:100", 1) == 0);
  CHECK(setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:200", 1) == 0);
  CHECK(setenv("PLINTH_USE_PYTORCH_ALLOC_CONF", "1", 1) == 0);
  CHECK(has_setting("max_split_size_mb:200"));
}

TEST(pytorch_variables_are_ignored_by_default) {
  CHECK(unsetenv("PLINTH_ALLOC_CONF") == 0);
  CHECK(setenv("PYTORCH_ALLOC_CONF", "nonsense", 1) == 0);
  CHECK(has_setting("expandable_segments:True"));
}

/* ---- The effect of each key. */

TEST(sizes_are_rounded_to_divisions_of_a_power_of_two) {
  plinth_stream_t stream = stream_on(0);
  configure("roundup_power2_divisions:4");
  void *memory = alloc_on(1200 * KIB, 0, stream);
  CHECK_EQ(allocated(0), 1280 * KIB);
  CHECK_OK(plinth_set_allocator_settings("roundup_power2_divisions:0"));
  void *other = alloc_on(1200 * KIB, 0, stream);
  CHECK_EQ(allocated(0), (1280 + 1200) * KIB);
  void *third = alloc_on(1200 * KIB, 0, stream);
  CHECK_OK(plinth_set_allocator_settings("roundup_power2_divisions:[1:2,>:0]"));
  void *fourth = alloc_on(1200 * KIB, 0, stream);
  CHECK_EQ(allocated(0), (1280 + 1200 + 1200 + 1536) * KIB);
  release(memory);
  release(other);
  release(third);
  release(fourth);
  expect_nothing_left();
}

TEST(blocks_above_max_split_size_are_not_split) {
  configure("expandable_segments:False,max_split_size_mb:40,max_non_split_rounding_mb:20");
  unsigned char *large = alloc_on(100 * MIB, 0, NULL);
  release(large);
  CHECK_EQ(reserved(0), 100 * MIB);
  /* A request below the split limit, one that would waste too much of the block, and one that fits. */
  unsigned char *small = alloc_on(30 * MIB, 0, NULL);
  CHECK(!overlap(small, 30 * MIB, large, 100 * MIB));
  unsigned char *middle = alloc_on(80 * MIB, 0, NULL);
  CHECK(!overlap(middle, 80 * MIB, large, 100 * MIB));
  CHECK_SAME(alloc_on(90 * MIB, 0, NULL), large);
  CHECK_EQ(allocated(0), (30 + 80 + 100) * MIB);
  CHECK_EQ(reserved(0), allocated(0));
  release(small);
  release(middle);
  release(large);
  expect_nothing_left();
}

TEST(blocks_are_split_without_max_split_size) {
  configure("expandable_segments:False");
  unsigned char *large = alloc_on(100 * MIB, 0, NULL);
  release(large);
  CHECK_SAME(alloc_on(30 * MIB, 0, NULL), large);
  CHECK_EQ(reserved(0), 100 * MIB);
  /* From now on large blocks are not split. */
  release(large);
  CHECK_OK(plinth_set_allocator_settings("max_split_size_mb:40"));
  unsigned char *small = alloc_on(31 * MIB, 0, NULL);
  CHECK(!overlap(small, 31 * MIB, large, 100 * MIB));
  release(small);
  expect_nothing_left();
}

TEST(large_segments_have_the_configured_size) {
  configure("expandable_segments:False,large_segment_size_mb:40");
  void *memory = alloc_on(3 * MIB, 0, NULL);
  CHECK_EQ(reserved(0), 40 * MIB);
  void *more = alloc_on(33 * MIB, 0, NULL);
  CHECK_EQ(reserved(0), 40 * MIB);
  void *small = alloc_on(KIB, 0, NULL);
  CHECK_EQ(reserved(0), 42 * MIB);
  release(memory);
  release(more);
  release(small);
  expect_nothing_left();
}

static size_t reserved_after_garbage_collection(const char *text) {
  configure(text);
  limit_memory(256 * MIB, 0);
  release(alloc_on(100 * MIB, 0, stream_on(0)));
  void *memory = alloc_on(40 * MIB, 0, stream_on(0));
  const size_t held = reserved(0);
  release(memory);
  expect_nothing_left();
  return held;
}

TEST(cached_memory_is_released_above_the_threshold) {
  CHECK_EQ(reserved_after_garbage_collection("expandable_segments:False,garbage_collection_threshold:0.5"), 40 * MIB);
}

TEST(cached_memory_is_kept_below_the_threshold) {
  CHECK_EQ(reserved_after_garbage_collection("expandable_segments:False,garbage_collection_threshold:0.9"), 140 * MIB);
}

TEST(cached_pages_are_released_above_the_threshold) {
  CHECK(reserved_after_garbage_collection("garbage_collection_threshold:0.3") <= 80 * MIB);
}

TEST(the_memory_fraction_can_be_configured) {
  double fraction = 0;
  void *memory = UNTOUCHED_POINTER;
  configure("per_process_memory_fraction:0.25");
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction == 0.25);
  const size_t quarter = total_memory(0) / 4;
  CHECK_STATUS(plinth_caching_allocator_alloc(quarter + MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("may hold");
  CHECK_OK(plinth_set_allocator_settings("per_process_memory_fraction:0.5"));
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction == 0.5);
  CHECK_OK(plinth_set_per_process_memory_fraction(1.0, 0));
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction == 1.0);
  /* The last call applies, also with the value that the settings had before. */
  CHECK_OK(plinth_set_allocator_settings("max_split_size_mb:100, per_process_memory_fraction : 0.5"));
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction == 0.5);
  CHECK_OK(plinth_set_per_process_memory_fraction(1.0, 0));
  CHECK_OK(plinth_set_allocator_settings("max_split_size_mb:200"));
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction == 1.0);
  use_memory();
  expect_nothing_left();
}

TEST(a_fraction_of_0_allows_no_memory) {
  double fraction = 1;
  void *memory = UNTOUCHED_POINTER;
  configure("per_process_memory_fraction:0");
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction == 0);
  CHECK_STATUS(plinth_caching_allocator_alloc(1, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK(memory == UNTOUCHED_POINTER);
  CHECK_OK(plinth_set_allocator_settings("per_process_memory_fraction:1"));
  CHECK_OK(plinth_get_per_process_memory_fraction(0, &fraction));
  CHECK(fraction == 1.0);
  use_memory();
  expect_nothing_left();
}

TEST(keys_without_effect_are_accepted) {
  configure("release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True,throw_on_cudamalloc_oom:True,"
            "pinned_use_cuda_host_register:True,pinned_num_register_threads:8,pinned_use_background_threads:True,"
            "pinned_reserve_segment_size_mb:64,pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:2");
  CHECK(has_setting("release_lock_on_cudamalloc:True"));
  CHECK(has_setting("graph_capture_record_stream_reuse:True"));
  CHECK(has_setting("throw_on_cudamalloc_oom:True"));
  CHECK(has_setting("pinned_use_cuda_host_register:True"));
  CHECK(has_setting("pinned_num_register_threads:8"));
  CHECK(has_setting("pinned_reserve_segment_size_mb:64"));
  use_memory();
  expect_nothing_left();
}
