/* What a thread leaves behind when it ends: the memory of its per-thread default stream.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 120 */
/* alone: driver_calls_may_fail_at_the_end_of_a_thread; enables fault injection */
#include "allocating.h"
#include "driver.h"

enum { SMALL = 4096, LARGE = 3 << 20, WARM = 200, SEVERAL = 8 };

static const plinth_stream_t own_stream = (plinth_stream_t)(uintptr_t)2;

static plinth_memory_stats_t stats_now(void) {
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  CHECK_OK(plinth_memory_stats(0, &stats));
  return stats;
}

static void run_thread(void *(*function)(void *), void *context) {
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, function, context), 0);
  CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void *use_own_stream(void *context) {
  void *small = alloc_on(SMALL, 0, own_stream);
  void *large = alloc_on(LARGE, 0, own_stream);
  CHECK_OK(plinth_memset(small, 1, SMALL, own_stream));
  release(large);
  CHECK_OK(plinth_stream_synchronize(own_stream));
  release(small);
  return context;
}

TEST(short_threads_share_the_memory_of_their_streams) {
  const int threads = some_rounds(20000);
  for (int index = 0; index < WARM; index++) {
    run_thread(use_own_stream, NULL);
  }
  const plinth_memory_stats_t before = stats_now();
  const long pages = resident_pages();
  for (int index = 0; index < threads; index++) {
    run_thread(use_own_stream, NULL);
  }
  const plinth_memory_stats_t after = stats_now();
  CHECK_EQ(after.allocation.all.allocated - before.allocation.all.allocated, 2 * threads);
  CHECK_EQ(after.allocation.all.freed - before.allocation.all.freed, 2 * threads);
  CHECK_EQ(after.allocated_bytes.small_pool.allocated - before.allocated_bytes.small_pool.allocated,
           (long long)SMALL * threads);
  CHECK_EQ(after.allocated_bytes.large_pool.freed - before.allocated_bytes.large_pool.freed,
           (long long)LARGE * threads);
  CHECK_EQ(after.allocation.all.current, 0);
  CHECK_EQ(after.allocation.all.peak, 2);
  CHECK_EQ(after.reserved_bytes.all.current, before.reserved_bytes.all.current);
  CHECK_EQ(after.num_device_alloc, before.num_device_alloc);
#if !HARNESS_SANITIZED
  /* 1 KiB a thread would be 20 MiB. */
  CHECK((resident_pages() - pages) * sysconf(_SC_PAGESIZE) < (long)(4 * MIB));
#else
  (void)pages;
#endif
  expect_nothing_left();
}

static unsigned char *blocks[SEVERAL];

static void *allocate_and_write(void *context) {
  const int index = *(int *)context;
  blocks[index] = alloc_on(LARGE, 0, own_stream);
  fill_words(blocks[index], (uint32_t)index, LARGE, own_stream);
  CHECK_OK(plinth_stream_synchronize(own_stream));
  return NULL;
}

static void *use_and_free_anothers(void *context) {
  const int index = *(int *)context;
  void *pinned = pinned_memory(LARGE);
  CHECK(has_words(blocks[index], (uint32_t)index, LARGE, own_stream, pinned));
  release(blocks[index]);
  CHECK_OK(plinth_pinned_free(pinned));
  return NULL;
}

/* The sanitizer keeps no state of a thread whose work it knows to be complete. */
TEST(the_sanitizer_forgets_ended_threads) {
  /* A thread takes ten milliseconds under a sanitizer. */
  const int threads = HARNESS_SANITIZED ? 500 : some_rounds(20000);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  for (int index = 0; index < WARM; index++) {
    run_thread(use_own_stream, NULL);
  }
  const long pages = resident_pages();
  for (int index = 0; index < threads; index++) {
    run_thread(use_own_stream, NULL);
  }
#if !HARNESS_SANITIZED
  CHECK((resident_pages() - pages) * sysconf(_SC_PAGESIZE) < (long)KIB * threads);
#else
  (void)pages;
#endif
  CHECK_OK(plinth_sanitizer_disable());
  expect_nothing_left();
}

TEST(blocks_outlive_their_thread) {
  for (int index = 0; index < SEVERAL; index++) {
    run_thread(allocate_and_write, &index);
    for (int round = 0; round < 3; round++) {
      run_thread(use_own_stream, NULL);
    }
  }
  CHECK_EQ(allocated(0), (long long)SEVERAL * LARGE);
  expect_sound();
  for (int index = 0; index < SEVERAL; index += 2) {
    run_thread(use_and_free_anothers, &index);
  }
  for (int index = 1; index < SEVERAL; index += 2) {
    use_and_free_anothers(&index);
  }
  CHECK_EQ(allocated(0), 0);
  expect_sound();
  expect_nothing_left();
}

static gate *shut;

static void *leave_work_behind(void *context) {
  void *memory = alloc_on(LARGE, 0, own_stream);
  CHECK_OK(plinth_launch_host_function(own_stream, gate_function, shut));
  CHECK_OK(plinth_memset(memory, 1, LARGE, own_stream));
  release(memory);
  *(void **)context = memory;
  return NULL;
}

static void *allocate_only(void *context) {
  void *memory = alloc_on(LARGE, 0, own_stream);
  *(void **)context = memory;
  release(memory);
  return NULL;
}

TEST(memory_waits_for_the_work_of_its_ended_thread) {
  void *old = NULL;
  void *other = NULL;
  shut = (gate *)calloc(1, sizeof(gate));
  warm_up();
  run_thread(leave_work_behind, &old);
  for (int index = 0; index < SEVERAL; index++) {
    run_thread(allocate_only, &other);
    CHECK(!overlap(old, LARGE, other, LARGE));
  }
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  const size_t held = reserved(0);
  bool back = false;
  for (int index = 0; index < SEVERAL && !back; index++) {
    run_thread(allocate_only, &other);
    back = overlap(old, LARGE, other, LARGE);
  }
  CHECK(back);
  CHECK_EQ(reserved(0), held);
  expect_nothing_left();
}

static pthread_key_t key;
static void *kept[2];

/* Runs after the library's own work at the end of the thread. */
static void use_memory_at_end(void *context) {
  void *memory = alloc_on(LARGE, 0, own_stream);
  CHECK_OK(plinth_memset(memory, 2, LARGE, own_stream));
  CHECK_OK(plinth_memset(context, 2, LARGE, own_stream));
  release(context);
  release(memory);
}

static void *allocate_for_destructor(void *context) {
  void *memory = alloc_on(LARGE, 0, own_stream);
  *(void **)context = memory;
  CHECK_EQ(pthread_setspecific(key, memory), 0);
  return NULL;
}

TEST(destructors_of_a_thread_allocate_and_free) {
  CHECK_EQ(pthread_key_create(&key, use_memory_at_end), 0);
  for (int index = 0; index < WARM; index++) {
    run_thread(allocate_for_destructor, &kept[0]);
    CHECK_EQ(allocated(0), 0);
    CHECK_OK(plinth_synchronize(0));
  }
  CHECK_EQ(pthread_key_delete(key), 0);
  CHECK(reserved(0) <= 16 * (size_t)LARGE);
  expect_nothing_left();
}

/* A thread's last use of a block may be in such a destructor. The block must wait for it, whoever frees it. */
static void leave_work_at_end(void *context) {
  CHECK_OK(plinth_launch_host_function(own_stream, gate_function, shut));
  CHECK_OK(plinth_memset(context, 2, LARGE, own_stream));
  release(context);
}

TEST(memory_waits_for_work_that_a_destructor_launched) {
  void *other = NULL;
  shut = (gate *)calloc(1, sizeof(gate));
  warm_up();
  CHECK_EQ(pthread_key_create(&key, leave_work_at_end), 0);
  run_thread(allocate_for_destructor, &kept[0]);
  CHECK_EQ(pthread_key_delete(key), 0);
  for (int index = 0; index < SEVERAL; index++) {
    run_thread(allocate_only, &other);
    CHECK(!overlap(kept[0], LARGE, other, LARGE));
  }
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  expect_sound();
  expect_nothing_left();
}

static void *queue[64];

/* Leaves a block for another thread, and frees what another thread left in its place. */
static void *exchange_block(void *context) {
  const unsigned index = *(const unsigned *)context;
  unsigned char *memory = alloc_on(SMALL + index % 7 * 100000, 0, own_stream);
  CHECK_OK(plinth_memset(memory, (int)index, SMALL, own_stream));
  CHECK_OK(plinth_stream_synchronize(own_stream));
  release(__atomic_exchange_n(&queue[index % 64], memory, __ATOMIC_SEQ_CST));
  return NULL;
}

static void *start_threads(void *context) {
  unsigned index = (unsigned)*(int *)context * 5;
  for (const unsigned end = index + (unsigned)some_rounds(2000); index < end; index++) {
    run_thread(exchange_block, &index);
  }
  return NULL;
}

TEST(threads_that_run_at_once_exchange_blocks) {
  const plinth_memory_stats_t before = stats_now();
  run_threads(SEVERAL, start_threads);
  for (int index = 0; index < 64; index++) {
    release(queue[index]);
  }
  const plinth_memory_stats_t after = stats_now();
  CHECK_EQ(after.allocation.all.current, 0);
  CHECK_EQ(after.allocation.all.allocated - before.allocation.all.allocated, (long long)SEVERAL * some_rounds(2000));
  CHECK_EQ(after.allocation.all.freed - before.allocation.all.freed, (long long)SEVERAL * some_rounds(2000));
  expect_nothing_left();
}

/* The memory of an ended thread returns to the driver, too. */
TEST(an_emptied_cache_includes_the_memory_of_ended_threads) {
  for (int index = 0; index < SEVERAL; index++) {
    run_thread(use_own_stream, NULL);
    expect_nothing_left();
  }
  run_thread(use_own_stream, NULL);
  CHECK(reserved(0) > 0);
  expect_nothing_left();
}

static void *fail_at_end(void *context) {
  release(alloc_on(LARGE, 0, own_stream));
  CHECK_OK(plinth_inject_fault(*(const uint64_t *)context, CUDA_ERROR_UNKNOWN));
  return NULL;
}

/* Without an event of its own, the thread's memory waits for one in the default stream. */
TEST(driver_calls_may_fail_at_the_end_of_a_thread) {
  CHECK_OK(plinth_enable_fault_injection());
  bool failed = false;
  for (uint64_t nth = 1; nth < 8; nth++) {
    run_thread(fail_at_end, &nth);
    const char *tripped = plinth_tripped_fault();
    failed = failed || (tripped != NULL && strcmp(tripped, "cuEventRecord") == 0);
    CHECK_OK(plinth_inject_fault(0, 0));
    run_thread(use_own_stream, NULL);
    expect_sound();
  }
  CHECK(failed);
  CHECK_OK(plinth_synchronize(0));
  const size_t held = reserved(0);
  for (int index = 0; index < WARM; index++) {
    run_thread(use_own_stream, NULL);
  }
  CHECK_EQ(reserved(0), held);
  expect_nothing_left();
}
