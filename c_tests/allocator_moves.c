/*
 * Memory that moves between streams: its previous addresses stay mapped until they, or the memory, are needed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "allocating.h"

enum { BYTES = 64 * MIB, ROUNDS = 6 };

static uint64_t calls(const char *name) {
  uint64_t count = 0;
  if (on_host_device()) {
    CHECK_OK(plinth_driver_call_count(name, &count));
  }
  return count;
}

/* Limits the memory to one block, which therefore moves to the stream of each request. */
static void limit_to_one_block(void) {
  CHECK_OK(plinth_empty_cache());
  limit_memory(BYTES, 0);
}

/* Allocates the block for a stream, and uses all of it. */
static unsigned char *block_on(plinth_stream_t stream, uint32_t word) {
  unsigned char *block = alloc_on(BYTES, 0, stream);
  fill_words(block, word, BYTES, stream);
  CHECK_OK(plinth_stream_synchronize(stream));
  return block;
}

/* Creates the block's memory for one stream and moves it to the other. With `gate`, kernels of the first stream may use it until
 * the gate is open. Returns the block of the second. */
static unsigned char *moved_block(plinth_stream_t from, plinth_stream_t to, gate **gate) {
  limit_to_one_block();
  release(block_on(from, 1));
  const int64_t created = created_handles();
  const uint64_t unmapped = calls("cuMemUnmap");
  unsigned char *block;
  if (gate != NULL) {
    *gate = hold(from);
    block = alloc_on(BYTES, 0, to);
  } else {
    block = block_on(to, 2);
  }
  CHECK_EQ(created_handles(), created);
  CHECK_EQ(calls("cuMemUnmap"), unmapped);
  expect_sound();
  return block;
}

TEST(addresses_of_moved_memory_are_unmapped_when_they_are_needed) {
  plinth_stream_t one = stream_on(0);
  plinth_stream_t two = stream_on(0);
  unsigned char *pinned = pinned_memory(BYTES);
  release(moved_block(one, two, NULL));
  const int64_t created = created_handles();
  const uint64_t unmapped = calls("cuMemUnmap");
  for (uint32_t round = 0; round < ROUNDS; round++) {
    plinth_stream_t stream = round % 2 == 0 ? one : two;
    unsigned char *block = block_on(stream, round + 3);
    CHECK(has_words(block, round + 3, BYTES, stream, pinned));
    release(block);
    expect_sound();
  }
  CHECK_EQ(created_handles(), created);
  if (on_host_device()) {
    CHECK(calls("cuMemUnmap") > unmapped);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  lift_limit(0);
  expect_nothing_left();
}

static void expect_returned(size_t available) {
  if (on_host_device()) {
    CHECK_EQ(free_memory(0), available);
    CHECK_EQ(host_usage().mappings, 0);
  }
}

/* The driver frees memory only when no address maps it. */
TEST(memory_with_previous_addresses_returns_to_the_driver) {
  const size_t available = free_memory(0);
  release(moved_block(stream_on(0), stream_on(0), NULL));
  lift_limit(0);
  expect_nothing_left();
  expect_returned(available);
}

/* The memory returns after the kernels that may use the previous addresses. */
TEST(memory_with_previous_addresses_in_use_returns_later) {
  gate *shut = NULL;
  plinth_stream_t from = stream_on(0);
  const size_t available = free_memory(0);
  unsigned char *block = moved_block(from, stream_on(0), &shut);
  expect_held(shut);
  release(block);
  CHECK_OK(plinth_empty_cache());
  expect_held(shut);
  gate_open(shut);
  lift_limit(0);
  expect_nothing_left();
  expect_returned(available);
}

/* A pool that sleeps gives up its memory, also what it got from a stream that still maps it. */
static void sleep_after_a_move(bool in_use) {
  gate *shut = NULL;
  plinth_stream_t from = stream_on(0);
  plinth_pool_id_t pool;
  const size_t available = free_memory(0);
  const plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_mem_pool_set_tag(pool, "moved"));
  limit_to_one_block();
  release(block_on(from, 1));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  if (in_use) {
    shut = hold(from);
  }
  const int64_t created = created_handles();
  unsigned char *block = alloc_on(BYTES, 0, stream_on(0));
  CHECK_EQ(created_handles(), created);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  if (in_use) {
    expect_held(shut);
    gate_open(shut);
  }
  CHECK_OK(plinth_memory_sleep("moved", &options));
  if (in_use) {
    /* The next request of the stream finds that it has passed the kernels. */
    release(alloc_on(2 * MIB, 0, from));
    CHECK_OK(plinth_empty_cache());
  }
  if (on_host_device()) {
    CHECK_EQ(free_memory(0), available);
  }
  CHECK_OK(plinth_memory_wake("moved"));
  release(block);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  lift_limit(0);
  expect_nothing_left();
}

TEST(memory_with_previous_addresses_is_released_for_a_sleep) { sleep_after_a_move(false); }
TEST(memory_with_previous_addresses_in_use_is_released_for_a_sleep) { sleep_after_a_move(true); }
