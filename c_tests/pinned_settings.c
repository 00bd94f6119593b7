/*
 * The settings of pinned memory. The other tests of pinned memory also run with some of them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
/* alone: all; changes the allocator's settings */
/* long: threads_allocate_uncached_sizes */
#include "graphing.h"
#include "library_threads.h"
#include "pinning.h"

#include <signal.h>
#include <sys/resource.h>

/* Changes settings. The first call enables counts of driver calls, so it must come before any other call. */
static void set_settings(const char *settings) {
  static bool counting;
  if (!counting) {
    CHECK_OK(plinth_enable_fault_injection());
    counting = true;
  }
  CHECK_OK(plinth_set_allocator_settings(settings));
}

static uint64_t calls_of(const char *name) {
  uint64_t count = 0;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

/* Copies memory to a device and back. */
static void expect_usable(unsigned char *memory, size_t bytes) {
  unsigned char *device = (unsigned char *)device_memory(bytes, 0);
  plinth_stream_t stream = stream_on(0);
  pattern_fill(memory, bytes, 3);
  CHECK_OK(plinth_memcpy(device, memory, bytes, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  memset(memory, 0, bytes);
  CHECK_OK(plinth_memcpy(memory, device, bytes, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(pattern_mismatch(memory, bytes, 3), bytes);
  CHECK_OK(plinth_device_free(device));
}

/* ---- pinned_use_cuda_host_register, pinned_num_register_threads */

TEST(pages_are_registered_instead_of_allocated) {
  set_settings("pinned_use_cuda_host_register:True");
  CHECK_OK(plinth_init());
  const uint64_t allocations = calls_of("cuMemHostAlloc");
  unsigned char *large = pin(3 * MIB);
  unsigned char *small = pin(1000);
  CHECK_EQ(calls_of("cuMemHostRegister_v2"), 2);
  CHECK(is_pinned(large) && is_pinned(large + 3 * MIB - 1) && is_pinned(small));
  expect_usable(large, 3 * MIB);
  expect_usable(small, 1000);
  CHECK_EQ(host_stats().num_host_alloc, 2);
  unpin(large);
  unpin(small);
  CHECK_EQ(calls_of("cuMemHostUnregister"), 0);
  expect_nothing_pinned();
  CHECK_EQ(calls_of("cuMemHostUnregister"), 2);
  CHECK_EQ(calls_of("cuMemHostAlloc"), allocations);
  CHECK_EQ(calls_of("cuMemFreeHost"), 0);
  CHECK(!is_pinned(large) && !is_pinned(small));
  CHECK_EQ(host_stats().num_host_free, 2);
}

/* Pins memory, and returns this thread's share of the page faults meanwhile, in percent. */
static uint64_t own_fault_share(void) {
  struct rusage before[2];
  struct rusage after[2];
  CHECK(getrusage(RUSAGE_THREAD, &before[0]) == 0 && getrusage(RUSAGE_SELF, &before[1]) == 0);
  unsigned char *memory = pin(256 * MIB);
  CHECK(getrusage(RUSAGE_THREAD, &after[0]) == 0 && getrusage(RUSAGE_SELF, &after[1]) == 0);
  unpin(memory);
  CHECK_OK(plinth_host_empty_cache());
  const long own = after[0].ru_minflt - before[0].ru_minflt;
  const long all = after[1].ru_minflt - before[1].ru_minflt;
  CHECK(all >= 32 && own <= all);
  return (uint64_t)(100 * own / all);
}

TEST(several_threads_touch_the_pages) {
  set_settings("pinned_use_cuda_host_register:True");
  unpin(pin(KIB));
  CHECK(own_fault_share() > 80);
  set_settings("pinned_num_register_threads:8");
  CHECK(own_fault_share() < 50);
  set_settings("pinned_num_register_threads:1");
  CHECK(own_fault_share() > 80);
  expect_nothing_pinned();
}

/* ---- pinned_reserve_segment_size_mb */

TEST(a_reserve_is_pinned_once_and_split) {
  const size_t sizes[] = {1000, 3 * MIB, 20 * MIB, 600 * KIB, MIB + 1};
  enum { COUNT = 5 };
  unsigned char *blocks[COUNT];
  set_settings("pinned_reserve_segment_size_mb:64");
  for (int index = 0; index < COUNT; index++) {
    blocks[index] = pin(sizes[index]);
    CHECK(is_pinned(blocks[index]) && is_pinned(blocks[index] + sizes[index] - 1));
    CHECK(blocks[index] >= blocks[0] && blocks[index] + sizes[index] <= blocks[0] + 64 * MIB);
    for (int other = 0; other < index; other++) {
      CHECK(!overlap(blocks[index], sizes[index], blocks[other], sizes[other]));
    }
    expect_usable(blocks[index], sizes[index]);
    const plinth_host_memory_stats_t stats = host_stats();
    CHECK_EQ(stats.num_host_alloc, 1);
    CHECK_EQ(stats.allocations.current, 1);
    CHECK_EQ(stats.allocated_bytes.current, 64 * MIB);
    CHECK_EQ(stats.active_requests.current, index + 1);
  }
  for (int index = 0; index < COUNT; index++) {
    unpin(blocks[index]);
  }
  CHECK_OK(plinth_host_empty_cache());
  expect_sound();
  const plinth_host_memory_stats_t stats = host_stats();
  CHECK_EQ(stats.active_bytes.current, 0);
  CHECK_EQ(stats.allocated_bytes.current, 64 * MIB);
  CHECK_EQ(stats.num_host_free, 0);
  for (int index = 0; index < COUNT; index++) {
    CHECK(is_pinned(blocks[index]));
    CHECK_SAME(pin(sizes[index]), blocks[index]);
  }
  CHECK_EQ(host_stats().num_host_alloc, 1);
}

TEST(requests_beyond_the_reserve_use_the_driver) {
  set_settings("pinned_reserve_segment_size_mb:8");
  unsigned char *within = pin(6 * MIB);
  CHECK_EQ(pinned_held(), 8 * MIB);
  unsigned char *beyond = pin(6 * MIB);
  CHECK_EQ(pinned_held(), 14 * MIB);
  expect_usable(within, 6 * MIB);
  expect_usable(beyond, 6 * MIB);
  unpin(within);
  unpin(beyond);
  CHECK_OK(plinth_host_empty_cache());
  expect_sound();
  CHECK_EQ(pinned_held(), 8 * MIB);
  CHECK(is_pinned(within) && !is_pinned(beyond));
}

TEST(a_request_larger_than_the_reserve_uses_the_driver) {
  set_settings("pinned_reserve_segment_size_mb:4");
  unsigned char *memory = pin(10 * MIB);
  CHECK_EQ(pinned_held(), 14 * MIB);
  expect_usable(memory, 10 * MIB);
  unpin(memory);
  CHECK_OK(plinth_host_empty_cache());
  CHECK_EQ(pinned_held(), 4 * MIB);
}

TEST(a_reserve_can_be_registered) {
  set_settings("pinned_reserve_segment_size_mb:16,pinned_use_cuda_host_register:True,pinned_num_register_threads:2");
  unsigned char *memory = pin(10 * MIB);
  unsigned char *small = pin(70);
  CHECK_EQ(calls_of("cuMemHostRegister_v2"), 1);
  CHECK_EQ(pinned_held(), 16 * MIB);
  expect_usable(memory, 10 * MIB);
  unpin(memory);
  unpin(small);
  CHECK_OK(plinth_host_empty_cache());
  CHECK_EQ(calls_of("cuMemHostUnregister"), 0);
}

TEST(a_reserve_that_cannot_be_allocated_is_an_error) {
  void *pointer = UNTOUCHED_POINTER;
  /* 64 TiB. */
  set_settings("pinned_reserve_segment_size_mb:67108864");
  CHECK_STATUS(plinth_host_alloc(1000, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("pinned_reserve_segment_size_mb");
  CHECK_MESSAGE("64.00 TiB");
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  expect_nothing_pinned();
  set_settings("pinned_reserve_segment_size_mb:4");
  unsigned char *memory = pin(1000);
  CHECK_EQ(pinned_held(), 4 * MIB);
  unpin(memory);
}

/* ---- pinned_use_background_threads */

static uint64_t event_queries(void) { return calls_of("cuEventQuery"); }

/* Returns a block whose free waited for a stream that is now done. The next query finds the block free. */
static unsigned char *block_with_completed_use(size_t bytes) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *memory = pin(bytes);
  gate *shut = hold(stream);
  CHECK_OK(plinth_host_record_stream(memory, stream));
  unpin(memory);
  CHECK(pinned_active() >= bytes);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  return memory;
}

TEST(without_the_thread_events_are_not_queried) {
  set_settings("pinned_use_background_threads:False");
  unsigned char *memory = block_with_completed_use(5000);
  const uint64_t queries = event_queries();
  sleep_milliseconds(50);
  CHECK_EQ(event_queries(), queries);
  CHECK(pinned_active() >= 5000);
  CHECK(pinned_is_reused(memory, 5000));
  expect_nothing_pinned();
}

TEST(a_thread_queries_pending_events) {
  set_settings("pinned_use_background_threads:True");
  for (int round = 0; round < 3; round++) {
    unsigned char *memory = block_with_completed_use(5000);
    EVENTUALLY(pinned_active() == 0);
    /* No free is pending any more, so the thread queries nothing, and a request needs no query. */
    sleep_milliseconds(5);
    const uint64_t queries = event_queries();
    sleep_milliseconds(30);
    CHECK_SAME(pin(5000), memory);
    CHECK_EQ(event_queries(), queries);
    unpin(memory);
  }
  expect_nothing_pinned();
}

TEST(the_thread_exists_while_frees_are_pending) {
  set_settings("pinned_use_background_threads:True");
  for (int round = 0; round < 2; round++) {
    plinth_stream_t stream = stream_on(0);
    unsigned char *memory = pin(5000);
    gate *shut = hold(stream);
    CHECK_OK(plinth_host_record_stream(memory, stream));
    unpin(memory);
    sleep_milliseconds(300);
    CHECK_EQ(count_threads("plinth-pinned"), 1);
    /* The program's handlers run in its own threads. */
    CHECK_EQ(count_threads_that_block("plinth-pinned", SIGUSR1), 1);
    CHECK_EQ(count_threads_that_block("plinth-pinned", SIGSEGV), 0);
    gate_open(shut);
    EVENTUALLY(count_threads("plinth-pinned") == 0);
    CHECK_EQ(pinned_active(), 0);
  }
  expect_nothing_pinned();
}

TEST(the_thread_can_start_later) {
  set_settings("pinned_use_background_threads:False");
  unsigned char *first = block_with_completed_use(5000);
  CHECK(pinned_active() >= 5000);
  set_settings("pinned_use_background_threads:True");
  /* It starts with the next pending free, and queries all of them. */
  block_with_completed_use(300);
  EVENTUALLY(pinned_active() == 0);
  CHECK(pinned_is_reused(first, 5000));
  expect_nothing_pinned();
}

/* ---- pinned_max_cached_size_mb */

TEST(larger_blocks_are_freed_to_the_driver) {
  set_settings("pinned_max_cached_size_mb:2");
  unsigned char *cached = pin(2 * MIB);
  unsigned char *larger = pin(2 * MIB + 1);
  unsigned char *large = pin(30 * MIB);
  unsigned char *small = pin(100);
  unpin(small);
  unpin(cached);
  CHECK(is_pinned(small) && is_pinned(cached));
  CHECK_EQ(host_stats().num_host_free, 0);
  unpin(larger);
  CHECK(!is_pinned(larger) && is_pinned(large));
  CHECK_EQ(host_stats().num_host_free, 1);
  unpin(large);
  CHECK(!is_pinned(large));
  CHECK_EQ(host_stats().num_host_free, 2);
  CHECK(pinned_held() <= 4 * MIB + 4 * KIB);
  CHECK_SAME(pin(2 * MIB), cached);
  unpin(cached);
  expect_nothing_pinned();
}

TEST(a_large_pending_block_is_freed_after_its_stream) {
  set_settings("pinned_max_cached_size_mb:2");
  unsigned char *memory = block_with_completed_use(3 * MIB);
  CHECK(is_pinned(memory));
  CHECK_EQ(host_stats().num_host_free, 0);
  /* A request that finds no free block queries events. The driver may return the same addresses. */
  unpin(pin(100));
  CHECK_EQ(host_stats().num_host_free, 1);
  expect_nothing_pinned();
}

TEST(the_thread_frees_a_large_pending_block) {
  set_settings("pinned_max_cached_size_mb:2,pinned_use_background_threads:True");
  unsigned char *memory = block_with_completed_use(3 * MIB);
  EVENTUALLY(!is_pinned(memory));
  expect_nothing_pinned();
}

TEST(a_graphs_large_block_is_freed_after_the_graph) {
  set_settings("pinned_max_cached_size_mb:2");
  void *device = device_memory(3 * MIB, 0);
  unsigned char *memory = pin(3 * MIB);
  plinth_graph_t graph = new_graph(0);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_memcpy(device, memory, 3 * MIB, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  unpin(memory);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  unpin(pin(4 * MIB));
  CHECK(is_pinned(memory));
  CHECK_OK(plinth_graph_destroy(graph));
  /* A request that finds no free block queries events. Blocks of this size are never cached. */
  EVENTUALLY((unpin(pin(4 * MIB)), !is_pinned(memory)));
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(the_maximum_cached_size_can_change) {
  set_settings("pinned_max_cached_size_mb:0");
  unsigned char *memory = pin(3 * MIB);
  set_settings("pinned_max_cached_size_mb:2");
  unpin(memory);
  CHECK(!is_pinned(memory));
  memory = pin(3 * MIB);
  set_settings("pinned_max_cached_size_mb:3");
  unpin(memory);
  CHECK(is_pinned(memory));
  set_settings("pinned_max_cached_size_mb:0");
  unsigned char *large = pin(40 * MIB);
  unpin(large);
  CHECK(is_pinned(large));
  expect_nothing_pinned();
}

TEST(blocks_of_a_reserve_stay_cached_at_any_size) {
  set_settings("pinned_max_cached_size_mb:2,pinned_reserve_segment_size_mb:32");
  unsigned char *memory = pin(20 * MIB);
  unpin(memory);
  CHECK(is_pinned(memory));
  CHECK_SAME(pin(20 * MIB), memory);
  unpin(memory);
  CHECK_EQ(host_stats().num_host_alloc, 1);
}

enum { THREADS = 8, ROUNDS = 150, HELD = 3 };

/* Threads get segments of all sizes from the driver and free them, so that addresses are reused. */
static void *pin_and_unpin(void *context) {
  uint64_t state = (uint64_t) * (int *)context + 11;
  unsigned char *held[HELD] = {NULL};
  for (int round = 0; round < ROUNDS; round++) {
    const int slot = (int)(random_next(&state) % HELD);
    if (held[slot] != NULL) {
      unpin(held[slot]);
    }
    const size_t bytes = MIB + 1 + random_next(&state) % (3 * MIB);
    held[slot] = pin(bytes);
    held[slot][0] = held[slot][bytes - 1] = (unsigned char)round;
    CHECK(is_pinned(held[slot]) && is_pinned(held[slot] + bytes - 1));
  }
  for (int slot = 0; slot < HELD; slot++) {
    CHECK_OK(plinth_host_free(held[slot]));
  }
  return NULL;
}

TEST(threads_allocate_uncached_sizes) {
  set_settings("pinned_max_cached_size_mb:1");
  run_threads(THREADS, pin_and_unpin);
  CHECK_EQ(pinned_held(), 0);
  expect_nothing_pinned();
}
