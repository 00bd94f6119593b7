/* A history of the allocations of many threads. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "memory_history.h"

enum { THREADS = 16, ROUNDS = 1000 };

static void *allocate_in_a_thread(void *context) {
  const int number = *(int *)context;
  char tag[32];
  snprintf(tag, sizeof tag, "thread %d", number);
  CHECK_OK(plinth_set_memory_metadata(tag));
  plinth_stream_t stream = number % 2 == 0 ? stream_on(0) : NULL;
  for (int round = 0; round < ROUNDS; round++) {
    release(alloc_on((size_t)(number + 1) * 1000 + (size_t)round, 0, stream));
  }
  return NULL;
}

static int running;

static void *allocate_until_stopped(void *context) {
  plinth_stream_t stream = *(int *)context % 2 == 0 ? stream_on(0) : NULL;
  while (__atomic_load_n(&running, __ATOMIC_SEQ_CST) != 0) {
    void *one = alloc_on(1000, 0, stream);
    void *other = alloc_on(2 * MIB, 0, stream);
    release(one);
    release(other);
  }
  return NULL;
}

static void ignore(const plinth_memory_history_entry_t *reported, void *context) {
  CHECK(reported != NULL && context == NULL);
}

static void *start_and_stop(void *context) {
  (void)context;
  for (int round = 0; round < 60; round++) {
    plinth_memory_history_options_t options = history_options();
    options.enabled = round % 3;
    options.context = round % 4;
    options.max_entries = round % 5 == 0 ? 0 : 3000;
    options.clear_history = round % 2;
    CHECK_OK(plinth_record_memory_history(&options));
    CHECK_OK(plinth_attach_allocator_trace_tracker(ignore, NULL));
    sleep_milliseconds(1);
    if (options.max_entries != 0) {
      CHECK(read_history(0) <= 3000);
    }
    CHECK_OK(plinth_detach_allocator_trace_tracker(ignore, NULL));
  }
  __atomic_store_n(&running, 0, __ATOMIC_SEQ_CST);
  return NULL;
}

static void *start_or_allocate(void *context) {
  return *(int *)context == 0 ? start_and_stop(context) : allocate_until_stopped(context);
}

TEST(a_history_begins_and_ends_while_threads_allocate) {
  running = 1;
  run_threads(5, start_or_allocate);
  stop_recording();
  expect_nothing_left();
}

/* An address, and the requested size of the live block there. */
typedef struct live {
  uint64_t address;
  uint64_t size;
} live;

TEST(no_entry_is_lost_and_each_address_is_in_order) {
  static live table[4096];
  int count[THREADS] = {0};
  int used = 0;
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  run_threads(THREADS, allocate_in_a_thread);
  CHECK_EQ(read_history(0), THREADS * ROUNDS * 3);
  for (int index = 0; index < entry_count; index++) {
    const plinth_memory_history_entry_t *raw = &entries[index].raw;
    int number = -1;
    int slot = 0;
    CHECK_EQ(sscanf(entries[index].metadata, "thread %d", &number), 1);
    CHECK(number >= 0 && number < THREADS);
    CHECK(raw->stack != 0);
    while (slot < used && table[slot].address != raw->address) {
      slot++;
    }
    CHECK(slot < 4096);
    if (slot == used) {
      table[used++].address = raw->address;
    }
    if (raw->action == PLINTH_MEMORY_ACTION_ALLOC) {
      CHECK_EQ(table[slot].size, 0);
      table[slot].size = raw->size;
      CHECK_EQ(raw->size, (number + 1) * 1000 + count[number]);
      count[number]++;
    } else {
      CHECK_EQ(table[slot].size, raw->size);
      table[slot].size = raw->action == PLINTH_MEMORY_ACTION_FREE_REQUESTED ? raw->size : 0;
    }
  }
  for (int number = 0; number < THREADS; number++) {
    CHECK_EQ(count[number], ROUNDS);
  }
  stop_recording();
  expect_nothing_left();
}

TEST(trackers_get_all_actions_of_threads) {
  clear_entries();
  CHECK_OK(plinth_attach_allocator_trace_tracker(collect_entry, &entry_count));
  run_threads(8, allocate_in_a_thread);
  CHECK_OK(plinth_detach_allocator_trace_tracker(collect_entry, &entry_count));
  int blocks = 0;
  for (int index = 0; index < entry_count; index++) {
    const int32_t action = entries[index].raw.action;
    blocks += action <= PLINTH_MEMORY_ACTION_FREE_COMPLETED ? 1 : 0;
  }
  CHECK_EQ(blocks, 8 * ROUNDS * 3);
  expect_nothing_left();
}
