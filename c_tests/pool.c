/* Memory pools: allocations from them and isolation from others. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_HOST_MEMORY=140GiB */
/* long: pools_with_live_blocks_do_not_leak */
#include "pooling.h"

TEST(pools_are_distinct) {
  plinth_pool_id_t pools[50];
  for (int index = 0; index < 50; index++) {
    pools[index] = new_pool(index % 2 == 1, index % 3 == 1);
    CHECK(pools[index].owner != 0 || pools[index].index != 0);
    for (int other = 0; other < index; other++) {
      CHECK(pools[index].owner != pools[other].owner || pools[index].index != pools[other].index);
    }
    CHECK_EQ(pool_allocated(pools[index], 0), 0);
    CHECK_EQ(pool_reserved(pools[index], 0), 0);
  }
  for (int index = 0; index < 50; index++) {
    destroy(pools[index]);
  }
  expect_nothing_left();
}

TEST(outputs_must_not_be_null) {
  plinth_pool_id_t pool = new_pool(false, false);
  size_t bytes = UNTOUCHED;
  CHECK_STATUS(plinth_mem_pool_create(false, false, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_pool_use_count(pool, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_pool_memory(pool, 0, NULL, &bytes), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_pool_memory(pool, 0, &bytes, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(bytes, UNTOUCHED);
  destroy(pool);
}

TEST(devices_and_streams_are_checked) {
  plinth_pool_id_t pool = new_pool(false, false);
  int32_t count = UNTOUCHED;
  size_t bytes = UNTOUCHED;
  int on_stack = 0;
  const int32_t devices[] = {-2, INT32_MAX, device_count()};
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(plinth_mem_pool_use_count(pool, devices[index], &count), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_mem_pool_memory(pool, devices[index], &bytes, &bytes), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_begin_allocate_to_pool(devices[index], pool), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_begin_allocate_current_thread_to_pool(devices[index], pool), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_begin_allocate_current_stream_to_pool(devices[index], NULL, pool), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_end_allocate_to_pool(devices[index], pool), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_release_pool(devices[index], pool), PLINTH_ERROR_INVALID_DEVICE);
  }
  CHECK_STATUS(plinth_begin_allocate_current_stream_to_pool(0, (plinth_stream_t)(void *)&on_stack, pool),
               PLINTH_ERROR_INVALID_HANDLE);
  if (device_count() > 1) {
    CHECK_STATUS(plinth_begin_allocate_current_stream_to_pool(0, stream_on(1), pool), PLINTH_ERROR_DEVICE_MISMATCH);
  }
  CHECK_EQ(count, UNTOUCHED);
  CHECK_EQ(bytes, UNTOUCHED);
  destroy(pool);
}

TEST(uses_are_counted) {
  plinth_pool_id_t pool = new_pool(false, false);
  CHECK_EQ(use_count(pool, 0), 1);
  enter(pool, 0);
  CHECK_EQ(use_count(pool, 0), 2);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_EQ(use_count(pool, 0), 2);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_EQ(use_count(pool, 0), 1);
  destroy(pool);
}

TEST(a_pool_must_be_begun_to_end) {
  plinth_pool_id_t pool = new_pool(false, false);
  plinth_pool_id_t other = new_pool(false, false);
  CHECK_STATUS(plinth_end_allocate_to_pool(0, pool), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("not currently recording to mempool_id");
  enter(pool, 0);
  CHECK_STATUS(plinth_end_allocate_to_pool(0, other), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("not currently recording to mempool_id");
  if (device_count() > 1) {
    CHECK_STATUS(plinth_end_allocate_to_pool(1, pool), PLINTH_ERROR_INVALID_VALUE);
  }
  leave(pool, 0);
  CHECK_STATUS(plinth_end_allocate_to_pool(0, pool), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("not currently recording to mempool_id");
  destroy(pool);
  destroy(other);
}

TEST(a_pool_cannot_begin_twice) {
  plinth_pool_id_t pool = new_pool(false, false);
  enter(pool, 0);
  CHECK_STATUS(plinth_begin_allocate_current_thread_to_pool(0, pool), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("already recording to mempool_id");
  CHECK_STATUS(plinth_begin_allocate_to_pool(0, pool), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("already recording to mempool_id");
  CHECK_STATUS(plinth_begin_allocate_current_stream_to_pool(0, NULL, pool), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("already recording to mempool_id");
  CHECK_EQ(use_count(pool, 0), 2);
  /* It can begin on another device. */
  if (device_count() > 1) {
    enter(pool, 1);
    leave(pool, 1);
  }
  leave(pool, 0);
  enter(pool, 0);
  leave(pool, 0);
  destroy(pool);
  expect_sound();
}

TEST(a_thread_allocates_from_its_pool) {
  plinth_pool_id_t pool = new_pool(false, false);
  plinth_stream_t stream = stream_on(0);
  void *before = alloc_on(MIB, 0, stream);
  enter(pool, 0);
  void *small = alloc_on(1000, 0, stream);
  void *large = alloc_on(30 * MIB, 0, NULL);
  CHECK_EQ(pool_allocated(pool, 0), 30 * MIB + 1024);
  /* The device's statistics include the pool's. */
  CHECK_EQ(allocated(0), 31 * MIB + 1024);
  leave(pool, 0);
  void *after = alloc_on(MIB, 0, stream);
  CHECK_EQ(pool_allocated(pool, 0), 30 * MIB + 1024);
  release(small);
  CHECK_EQ(pool_allocated(pool, 0), 30 * MIB);
  release(large);
  CHECK_EQ(pool_allocated(pool, 0), 0);
  CHECK(pool_reserved(pool, 0) > 30 * MIB);
  release(before);
  release(after);
  destroy(pool);
  expect_nothing_left();
}

static plinth_pool_id_t shared_pool;
static void *from_another_thread;

static void *allocate_elsewhere(void *context) {
  (void)context;
  from_another_thread = alloc_on(MIB, 0, NULL);
  return NULL;
}

TEST(another_thread_does_not_allocate_from_it) {
  shared_pool = new_pool(false, false);
  enter(shared_pool, 0);
  run_threads(1, allocate_elsewhere);
  CHECK_EQ(pool_allocated(shared_pool, 0), 0);
  void *own_memory = alloc_on(2 * MIB, 0, NULL);
  CHECK_EQ(pool_allocated(shared_pool, 0), 2 * MIB);
  leave(shared_pool, 0);
  release(own_memory);
  release(from_another_thread);
  destroy(shared_pool);
  expect_nothing_left();
}

TEST(another_device_does_not_allocate_from_it) {
  need_devices(2);
  plinth_pool_id_t pool = new_pool(false, false);
  enter(pool, 0);
  void *memory = alloc_on(MIB, 1, NULL);
  CHECK_EQ(pool_allocated(pool, 0), 0);
  CHECK_EQ(pool_allocated(pool, 1), 0);
  leave(pool, 0);
  release(memory);
  destroy(pool);
  expect_nothing_left();
}

static plinth_stream_t shared_stream;

static void *allocate_on_the_stream(void *context) {
  (void)context;
  from_another_thread = alloc_on(3 * MIB, 0, shared_stream);
  return NULL;
}

TEST(a_stream_allocates_from_its_pool) {
  plinth_stream_t other = stream_on(0);
  shared_pool = new_pool(false, false);
  shared_stream = stream_on(0);
  CHECK_OK(plinth_begin_allocate_current_stream_to_pool(0, shared_stream, shared_pool));
  run_threads(1, allocate_on_the_stream);
  CHECK_EQ(pool_allocated(shared_pool, 0), 3 * MIB);
  void *elsewhere = alloc_on(5 * MIB, 0, other);
  void *in_default = alloc_on(7 * MIB, 0, NULL);
  CHECK_EQ(pool_allocated(shared_pool, 0), 3 * MIB);
  leave(shared_pool, 0);
  void *after = alloc_on(MIB, 0, shared_stream);
  CHECK_EQ(pool_allocated(shared_pool, 0), 3 * MIB);
  release(from_another_thread);
  release(elsewhere);
  release(in_default);
  release(after);
  destroy(shared_pool);
  expect_nothing_left();
}

TEST(both_handles_of_the_default_stream_use_its_pool) {
  plinth_pool_id_t pool = new_pool(false, false);
  CHECK_OK(plinth_begin_allocate_current_stream_to_pool(0, NULL, pool));
  void *one = alloc_on(MIB, 0, NULL);
  void *other = alloc_on(MIB, 0, (plinth_stream_t)(uintptr_t)1);
  CHECK_EQ(pool_allocated(pool, 0), 2 * MIB);
  leave(pool, 0);
  release(one);
  release(other);
  destroy(pool);
  expect_nothing_left();
}

TEST(the_last_pool_begun_is_used) {
  enum { POOLS = 4 };
  plinth_pool_id_t pools[POOLS];
  void *memory[2 * POOLS];
  for (int index = 0; index < POOLS; index++) {
    pools[index] = new_pool(false, false);
    enter(pools[index], 0);
    memory[index] = alloc_on(MIB, 0, NULL);
  }
  for (int index = POOLS - 1; index >= 0; index--) {
    CHECK_EQ(pool_allocated(pools[index], 0), MIB);
    memory[POOLS + index] = alloc_on(2 * MIB, 0, NULL);
    CHECK_EQ(pool_allocated(pools[index], 0), 3 * MIB);
    leave(pools[index], 0);
  }
  void *after = alloc_on(MIB, 0, NULL);
  release(after);
  for (int index = 0; index < POOLS; index++) {
    CHECK_EQ(pool_allocated(pools[index], 0), 3 * MIB);
    release(memory[index]);
    release(memory[POOLS + index]);
    destroy(pools[index]);
  }
  expect_nothing_left();
}

TEST(pools_may_end_out_of_order) {
  plinth_pool_id_t outer = new_pool(false, false);
  plinth_pool_id_t inner = new_pool(false, false);
  enter(outer, 0);
  enter(inner, 0);
  leave(outer, 0);
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_EQ(pool_allocated(inner, 0), MIB);
  leave(inner, 0);
  release(memory);
  destroy(outer);
  destroy(inner);
  expect_nothing_left();
}

TEST(pool_memory_is_separate_from_other_memory) {
  const size_t sizes[] = {4 * KIB, MIB, 5 * MIB, 40 * MIB};
  for (int index = 0; index < 4; index++) {
    const size_t bytes = sizes[index];
    plinth_pool_id_t pool = new_pool(false, false);
    plinth_stream_t stream = stream_on(0);
    enter(pool, 0);
    unsigned char *in_pool = alloc_on(bytes, 0, stream);
    leave(pool, 0);
    release(in_pool);
    /* Others do not get free memory of the pool... */
    unsigned char *outside = alloc_on(bytes, 0, stream);
    CHECK(!overlap(in_pool, bytes, outside, bytes));
    release(outside);
    /* ...and the pool does not get free memory of others, but reuses its own. */
    enter(pool, 0);
    const size_t held = pool_reserved(pool, 0);
    unsigned char *again = alloc_on(bytes, 0, stream);
    CHECK_SAME(again, in_pool);
    CHECK_EQ(pool_reserved(pool, 0), held);
    unsigned char *more = alloc_on(bytes, 0, stream);
    CHECK(!overlap(more, bytes, outside, bytes));
    leave(pool, 0);
    release(again);
    release(more);
    destroy(pool);
    expect_nothing_left();
  }
}

TEST(a_pool_keeps_its_memory_in_a_shortage) {
  plinth_pool_id_t pool = new_pool(false, false);
  void *pointer = UNTOUCHED_POINTER;
  limit_memory(128 * MIB, 0);
  enter(pool, 0);
  unsigned char *memory = alloc_on(80 * MIB, 0, NULL);
  leave(pool, 0);
  release(memory);
  CHECK_STATUS(plinth_caching_allocator_alloc(80 * MIB, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("pool");
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK(pool_reserved(pool, 0) >= 80 * MIB);
  enter(pool, 0);
  CHECK_SAME(alloc_on(80 * MIB, 0, NULL), memory);
  leave(pool, 0);
  release(memory);
  destroy(pool);
  release(alloc_on(80 * MIB, 0, NULL));
  expect_nothing_left();
}

TEST(use_on_oom_frees_a_pools_memory_in_a_shortage) {
  plinth_pool_id_t pool = new_pool(true, false);
  void *pointer = NULL;
  limit_memory(128 * MIB, 0);
  enter(pool, 0);
  unsigned char *memory = alloc_on(80 * MIB, 0, NULL);
  leave(pool, 0);
  release(memory);
  unsigned char *memory_of_pool = alloc_on(80 * MIB, 0, NULL);
  CHECK_OK(plinth_memset(memory_of_pool, 1, 80 * MIB, NULL));
  release(memory_of_pool);
  CHECK_OK(plinth_mem_pool_set_use_on_oom(pool, false));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_empty_cache());
  enter(pool, 0);
  memory = alloc_on(80 * MIB, 0, NULL);
  leave(pool, 0);
  release(memory);
  CHECK_STATUS(plinth_caching_allocator_alloc(80 * MIB, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_OK(plinth_mem_pool_set_use_on_oom(pool, true));
  memory_of_pool = alloc_on(80 * MIB, 0, NULL);
  release(memory_of_pool);
  destroy(pool);
  expect_nothing_left();
}

TEST(no_split_keeps_blocks_whole) {
  const size_t block_size = 16 * MIB;
  plinth_pool_id_t pool = new_pool(false, true);
  enter(pool, 0);
  unsigned char *memory = alloc_on(block_size, 0, NULL);
  release(memory);
  unsigned char *first_part = alloc_on(4 * MIB, 0, NULL);
  unsigned char *next = alloc_on(4 * MIB, 0, NULL);
  if (overlap(first_part, 4 * MIB, memory, block_size)) {
    CHECK(!overlap(next, 4 * MIB, memory, block_size));
  }
  leave(pool, 0);
  release(first_part);
  release(next);
  destroy(pool);
  expect_nothing_left();
}

TEST(blocks_outlive_their_pool) {
  plinth_pool_id_t pool = new_pool(false, false);
  void *pinned = pinned_memory(12 * MIB);
  enter(pool, 0);
  void *memory = alloc_on(12 * MIB, 0, NULL);
  void *gone = alloc_on(50 * MIB, 0, NULL);
  leave(pool, 0);
  fill_words(memory, 77, 12 * MIB, NULL);
  release(gone);
  CHECK_OK(plinth_synchronize(0));
  destroy(pool);
  expect_sound();
  CHECK_EQ(allocated(0), 12 * MIB);
  CHECK(reserved(0) < 62 * MIB);
  unsigned char *other = alloc_on(12 * MIB, 0, NULL);
  CHECK(!overlap(memory, 12 * MIB, other, 12 * MIB));
  fill_words(other, 78, 12 * MIB, NULL);
  CHECK(has_words(memory, 77, 12 * MIB, NULL, pinned));
  release(memory);
  release(other);
  CHECK_EQ(allocated(0), 0);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_destroyed_pools_memory_is_freed) {
  release(alloc_on(MIB, 0, NULL));
  CHECK_OK(plinth_empty_cache());
  const size_t free_before = free_memory(0);
  plinth_pool_id_t pool = new_pool(false, false);
  enter(pool, 0);
  void *memory = alloc_on(40 * MIB, 0, NULL);
  leave(pool, 0);
  release(memory);
  CHECK(reserved(0) >= 40 * MIB);
  CHECK_OK(plinth_synchronize(0));
  destroy(pool);
  CHECK_EQ(reserved(0), 0);
  CHECK(!on_host_device() || free_memory(0) == free_before);
}

TEST(a_destroyed_pool_is_refused) {
  plinth_pool_id_t pool = new_pool(false, false);
  plinth_pool_id_t never = {0, UINT64_MAX - 1};
  destroy(pool);
  CHECK(plinth_mem_pool_destroy(pool) != PLINTH_OK);
  CHECK(plinth_mem_pool_destroy(never) != PLINTH_OK);
  CHECK(plinth_mem_pool_set_use_on_oom(never, true) != PLINTH_OK);
  CHECK(plinth_release_pool(0, never) != PLINTH_OK);
  CHECK(plinth_end_allocate_to_pool(0, never) != PLINTH_OK);
  expect_sound();
}

TEST(a_recorded_use_outlives_the_pool) {
  plinth_pool_id_t pool = new_pool(false, false);
  plinth_stream_t own = stream_on(0);
  plinth_stream_t other = stream_on(0);
  enter(pool, 0);
  unsigned char *memory = alloc_on(9 * MIB, 0, own);
  leave(pool, 0);
  gate *shut = hold(other);
  CHECK_OK(plinth_record_stream(memory, other));
  CHECK_OK(plinth_memset(memory, 1, 9 * MIB, other));
  destroy(pool);
  release(memory);
  unsigned char *next = alloc_on(9 * MIB, 0, own);
  CHECK(!overlap(next, 9 * MIB, memory, 9 * MIB));
  release(next);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  expect_nothing_left();
}

TEST(a_pool_may_be_destroyed_while_it_is_begun) {
  plinth_pool_id_t pool = new_pool(true, false);
  enter(pool, 0);
  void *before = alloc_on(MIB, 0, NULL);
  destroy(pool);
  void *after = alloc_on(MIB, 0, NULL);
  CHECK_EQ(allocated(0), 2 * MIB);
  leave(pool, 0);
  expect_sound();
  release(before);
  release(after);
  expect_nothing_left();
}

/* A server may use a pool for each request, so destroyed pools must not leak. */
static void use_many_pools(bool destroy_first) {
  for (int round = 0; round < 2000; round++) {
    plinth_pool_id_t pool = new_pool(false, false);
    enter(pool, 0);
    void *memory = alloc_on(KIB, 0, NULL);
    leave(pool, 0);
    if (destroy_first) {
      destroy(pool);
      release(memory);
    } else {
      release(memory);
      destroy(pool);
    }
    CHECK(reserved(0) < 256 * MIB);
  }
  if (on_host_device()) {
    CHECK(host_usage().reservations < 100);
  }
  expect_nothing_left();
}

TEST(pools_do_not_leak) { use_many_pools(false); }
TEST(pools_with_live_blocks_do_not_leak) { use_many_pools(true); }

static void *work_in_a_pool(void *context) {
  const int thread = *(int *)context;
  const int32_t device = thread % device_count();
  plinth_stream_t stream = stream_on(device);
  for (int round = 0; round < 15; round++) {
    plinth_pool_id_t pool = new_pool(thread % 2 == 1, false);
    void *memory[8];
    size_t sum = 0;
    enter(pool, device);
    for (int index = 0; index < 8; index++) {
      const size_t bytes = (size_t)(thread + 1) * (size_t)(index + 1) * 10000;
      memory[index] = alloc_on(bytes, device, stream);
      CHECK_OK(plinth_memset(memory[index], (uint8_t)thread, bytes, stream));
      sum += rounded(bytes);
      CHECK_EQ(pool_allocated(pool, device), sum);
    }
    leave(pool, device);
    if (round % 3 == 0) {
      destroy(pool);
    }
    for (int index = 0; index < 8; index++) {
      release(memory[index]);
    }
    if (round % 3 != 0) {
      destroy(pool);
    }
  }
  return NULL;
}

TEST(threads_have_pools_of_their_own) {
  run_threads(12, work_in_a_pool);
  expect_nothing_left();
}

TEST(a_pool_has_a_budget) {
  plinth_pool_id_t pool = new_pool(false, false);
  plinth_pool_id_t no_pool = {0, 0};
  void *memory = UNTOUCHED_POINTER;
  size_t budget = UNTOUCHED;
  CHECK_STATUS(plinth_mem_pool_get_budget(pool, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_pool_get_budget(no_pool, &budget), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_set_budget(no_pool, MIB), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_mem_pool_get_budget(pool, &budget));
  CHECK_EQ(budget, SIZE_MAX);
  CHECK_OK(plinth_mem_pool_set_budget(pool, 64 * MIB));
  CHECK_OK(plinth_mem_pool_get_budget(pool, &budget));
  CHECK_EQ(budget, 64 * MIB);
  /* The pool does not use free memory of others. */
  release(alloc_on(100 * MIB, 0, NULL));
  enter(pool, 0);
  unsigned char *first = alloc_on(40 * MIB, 0, NULL);
  CHECK_STATUS(plinth_caching_allocator_alloc(40 * MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("budget of 64.00 MiB");
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  CHECK(pool_reserved(pool, 0) <= 64 * MIB);
  unsigned char *rest = alloc_on(20 * MIB, 0, stream_on(0));
  CHECK(pool_reserved(pool, 0) <= 64 * MIB);
  CHECK_OK(plinth_mem_pool_set_budget(pool, SIZE_MAX));
  unsigned char *more = alloc_on(40 * MIB, 0, NULL);
  leave(pool, 0);
  release(first);
  release(rest);
  release(more);
  destroy(pool);
  expect_nothing_left();
}
