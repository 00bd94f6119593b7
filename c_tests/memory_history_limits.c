/* What the allocator's history keeps: modes, limits, skipped actions. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "memory_history.h"

TEST(the_state_mode_has_no_entries) {
  bool enabled = true;
  plinth_memory_history_options_t options = history_options();
  CHECK_OK(plinth_memory_history_is_enabled(&enabled));
  CHECK(!enabled);
  options.enabled = PLINTH_MEMORY_HISTORY_STATE;
  CHECK_OK(plinth_record_memory_history(&options));
  CHECK_OK(plinth_memory_history_is_enabled(&enabled));
  CHECK(enabled);
  release(alloc_on(KIB, 0, NULL));
  CHECK_EQ(read_history(0), 0);
  stop_recording();
  CHECK_OK(plinth_memory_history_is_enabled(&enabled));
  CHECK(!enabled);
  expect_nothing_left();
}

TEST(the_state_mode_discards_earlier_entries_and_adds_none) {
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  release(alloc_on(KIB, 0, NULL));
  plinth_memory_history_options_t options = history_options();
  options.enabled = PLINTH_MEMORY_HISTORY_STATE;
  CHECK_OK(plinth_record_memory_history(&options));
  release(alloc_on(KIB, 0, NULL));
  CHECK_EQ(read_history(0), 0);
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  release(alloc_on(KIB, 0, NULL));
  CHECK_EQ(read_history(0), 3);
  stop_recording();
  expect_nothing_left();
}

TEST(the_newest_entries_are_kept) {
  plinth_stream_t stream = stream_on(0);
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 1000);
  for (size_t round = 1; round <= 4000; round++) {
    release(alloc_on(round, 0, round % 2 == 0 ? NULL : stream));
  }
  CHECK_EQ(read_history(0), 1000);
  /* 333 rounds of three entries each, and one entry of an earlier round. */
  CHECK_EQ(entries[0].raw.action, PLINTH_MEMORY_ACTION_FREE_COMPLETED);
  for (int index = 1; index < 1000; index++) {
    CHECK_EQ(entries[index].raw.size, 3668 + (index - 1) / 3);
  }
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 1);
  CHECK_EQ(read_history(0), 1);
  CHECK_EQ(entries[0].raw.size, 4000);
  CHECK_EQ(entries[0].raw.action, PLINTH_MEMORY_ACTION_FREE_COMPLETED);
  stop_recording();
}

TEST(each_device_keeps_its_newest_entries) {
  void *pointer = NULL;
  need_devices(2);
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 2);
  for (int index = 0; index < 3; index++) {
    const int32_t device = index == 0;
    CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, device, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  }
  CHECK_EQ(read_history(0), 2);
  CHECK_EQ(read_history(1), 1);
  CHECK_EQ(entries[0].raw.action, PLINTH_MEMORY_ACTION_OOM);
  stop_recording();
}

/* A program that runs for long may tag each of its steps, and name each of its blocks. */
TEST(texts_are_dropped_with_their_entries) {
  char text[256];
  long pages = 0;
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 1000);
  for (int step = 1; step <= 40000; step++) {
    snprintf(text, sizeof text, "step %d %200d", step, 0);
    CHECK_OK(plinth_set_memory_metadata(text));
    void *memory = alloc_on(KIB, 0, NULL);
    CHECK_OK(plinth_memory_set_name(memory, text));
    release(memory);
    if (step == 10000) {
      pages = resident_pages();
    }
  }
#if !HARNESS_SANITIZED
  /* If each text were kept once, they would occupy more than 1600 pages. */
  CHECK(resident_pages() - pages < 500);
#else
  (void)pages;
#endif
  CHECK_EQ(read_history(0), 1000);
  CHECK(strncmp(entries[999].metadata, "step 40000 ", 11) == 0);
  CHECK_OK(plinth_set_memory_metadata(""));
  stop_recording();
}

TEST(a_history_is_cleared_on_request) {
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  release(alloc_on(KIB, 0, NULL));
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  release(alloc_on(KIB, 0, NULL));
  CHECK_EQ(read_history(0), 6);
  plinth_memory_history_options_t options = history_options();
  options.clear_history = 1;
  options.skip_actions = SEGMENTS;
  CHECK_OK(plinth_record_memory_history(&options));
  CHECK_EQ(read_history(0), 0);
  release(alloc_on(KIB, 0, NULL));
  CHECK_EQ(read_history(0), 3);
  stop_recording();
}

TEST(skipped_actions_are_not_recorded) {
  plinth_memory_history_options_t options = history_options();
  options.skip_actions = SEGMENTS | BIT(FREE_REQUESTED) | BIT(OOM);
  CHECK_OK(plinth_record_memory_history(&options));
  void *pointer = NULL;
  release(alloc_on(KIB, 0, NULL));
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(read_history(0), 2);
  CHECK_EQ(entries[0].raw.action, PLINTH_MEMORY_ACTION_ALLOC);
  CHECK_EQ(entries[1].raw.action, PLINTH_MEMORY_ACTION_FREE_COMPLETED);
  CHECK(entries[1].raw.stack != 0);
  stop_recording();
}

TEST(destroyed_pools_keep_the_newest_entries) {
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 100);
  for (size_t round = 1; round <= 60; round++) {
    plinth_pool_id_t pool;
    CHECK_OK(plinth_mem_pool_create(false, false, &pool));
    CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
    for (int pair = 0; pair < 10; pair++) {
      release(alloc_on(round, 0, NULL));
    }
    CHECK_OK(plinth_end_allocate_to_pool(0, pool));
    CHECK_OK(plinth_release_pool(0, pool));
    CHECK_OK(plinth_mem_pool_destroy(pool));
  }
  CHECK_EQ(read_history(0), 100);
  for (int index = 0; index < 100; index++) {
    CHECK_EQ(entries[index].raw.size, 57 + (index + 20) / 30);
  }
  stop_recording();
  expect_nothing_left();
}
