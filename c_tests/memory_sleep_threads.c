/*
 * Memory that sleeps and wakes while other threads use the allocator.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "graphing.h"
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

static plinth_graph_t replayed;
static int woken_for_good;

static void *replay_beside_sleeps(void *argument) {
  (void)argument;
  (void)on_new_stream(0);
  while (!__atomic_load_n(&woken_for_good, __ATOMIC_SEQ_CST)) {
    const plinth_status_t status = plinth_graph_replay(replayed);
    CHECK(status == PLINTH_OK || status == PLINTH_ERROR_GRAPH_ASLEEP);
  }
  return NULL;
}

/* A replay of a graph with children locks the pools of all of them, as a sleep of these pools does. */
TEST(a_graph_of_several_pools_is_replayed_beside_sleeps) {
  enum { POOLS = 6 };
  const char *tags[POOLS] = {"0", "1", "2", "3", "4", "5"};
  plinth_stream_t stream = on_new_stream(0);
  plinth_pool_id_t pools[POOLS];
  plinth_graph_t graphs[POOLS];
  pthread_t thread;
  for (int index = 0; index < POOLS; index++) {
    pools[index] = tagged_pool(tags[index]);
  }
  for (int index = POOLS - 1; index >= 0; index--) {
    graphs[index] = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
    CHECK_OK(plinth_graph_capture_begin(graphs[index], &pools[index], PLINTH_CAPTURE_GLOBAL));
    void *memory = alloc_on(MIB, 0, stream);
    fill_words(memory, 1, MIB, stream);
    release(memory);
    CHECK_OK(plinth_graph_capture_end(graphs[index]));
  }
  replayed = graphs[0];
  for (int index = 1; index < POOLS; index++) {
    plinth_graph_node_t node = NULL;
    CHECK_OK(plinth_graph_add_child(replayed, NULL, 0, graphs[index], &node));
  }
  CHECK_OK(plinth_graph_instantiate(replayed));
  woken_for_good = 0;
  CHECK(pthread_create(&thread, NULL, replay_beside_sleeps, NULL) == 0);
  for (int round = 0; round < some_rounds(300); round++) {
    CHECK_OK(plinth_memory_sleep("0,1,2,3,4,5", NULL));
    CHECK_OK(plinth_memory_wake("0,1,2,3,4,5"));
  }
  __atomic_store_n(&woken_for_good, 1, __ATOMIC_SEQ_CST);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_synchronize(0));
  for (int index = 0; index < POOLS; index++) {
    CHECK_OK(plinth_graph_destroy(graphs[index]));
    destroy(pools[index]);
  }
  expect_nothing_left();
}
