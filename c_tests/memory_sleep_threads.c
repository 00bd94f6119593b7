/*
 * Memory that sleeps and wakes while other threads use the allocator.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "peering.h"
#include "sleeping.h"

static plinth_pool_id_t thread_pools[4];

static void *sleep_and_wake(void *argument) {
  const int number = *(const int *)argument;
  const char *tags[] = {"0", "1", "2", "3"};
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = stream_on(0);
  for (int round = 0; round < some_rounds(60); round++) {
    unsigned char *block = alloc_in(thread_pools[number], 3 * MIB, 0, stream);
    fill_words(block, (uint32_t)round, 3 * MIB, stream);
    CHECK_OK(plinth_memory_sleep(tags[number], &options));
    CHECK_OK(round % 2 ? plinth_memory_wake(tags[number]) : plinth_memory_wake_async(tags[number]));
    CHECK_OK(plinth_memory_wake_wait(tags[number], stream));
    void *pinned = pinned_memory(3 * MIB);
    CHECK(has_words(block, (uint32_t)round, 3 * MIB, stream, pinned));
    CHECK_OK(plinth_pinned_free(pinned));
    release(block);
  }
  return NULL;
}

TEST(threads_put_their_pools_to_sleep) {
  const char *tags[] = {"0", "1", "2", "3"};
  for (int index = 0; index < 4; index++) {
    thread_pools[index] = tagged_pool(tags[index]);
  }
  run_threads(4, sleep_and_wake);
  for (int index = 0; index < 4; index++) {
    destroy(thread_pools[index]);
  }
  expect_nothing_left();
}

typedef struct delayed_release {
  unsigned char *block;
  double seconds;
} delayed_release;

static void *release_later(void *argument) {
  const delayed_release *one = argument;
  const double begin = seconds_now();
  while (seconds_now() - begin < one->seconds) {
  }
  release(one->block);
  return NULL;
}

/* A block may be freed while its contents are being restored. What the next block writes there is not overwritten. */
TEST(a_block_that_is_freed_during_an_asynchronous_wake_is_not_overwritten) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = stream_on(0);
  const plinth_pool_id_t pool = tagged_pool("weights");
  void *pinned = pinned_memory(24 * MIB);
  const int rounds = some_rounds(30);
  for (int round = 0; round < rounds; round++) {
    pthread_t thread;
    delayed_release freed = {alloc_in(pool, 24 * MIB, 0, stream), 0.002 * (double)round / (double)rounds};
    unsigned char *kept = alloc_in(pool, 24 * MIB, 0, stream);
    put_pattern(freed.block, 24 * MIB, 1);
    put_pattern(kept, 24 * MIB, 2);
    CHECK_OK(plinth_memory_sleep("weights", &options));
    CHECK(pthread_create(&thread, NULL, release_later, &freed) == 0);
    CHECK_OK(plinth_memory_wake_async("weights"));
    CHECK(pthread_join(thread, NULL) == 0);
    unsigned char *block = alloc_in(pool, 24 * MIB, 0, stream);
    fill_words(block, 11, 24 * MIB, stream);
    CHECK_OK(plinth_synchronize(0));
    CHECK(has_words(block, 11, 24 * MIB, stream, pinned));
    CHECK(has_pattern(kept, 24 * MIB, 2));
    release(block);
    release(kept);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  destroy(pool);
  expect_nothing_left();
}
