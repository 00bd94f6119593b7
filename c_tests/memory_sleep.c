/*
 * Memory that sleeps and wakes: contents, addresses, graphs, order.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_HOST_MEMORY=140GiB */
/* alone: large_blocks_wake_in_handles_of_their_own; sets the environment */
#include "driver.h"
#include "graphing.h"
#include "peering.h"
#include "sleeping.h"

static const plinth_sleep_options_t no_backup = PLINTH_SLEEP_OPTIONS_INIT;

/* ---- contents */

enum { BLOCKS = 60 };

/* Blocks of a pool, each with a pattern of its own; some between them are freed. */
typedef struct filled_pool {
  plinth_pool_id_t id;
  unsigned char *blocks[BLOCKS];
  size_t sizes[BLOCKS];
} filled_pool;

static filled_pool fill(const char *tag, int32_t device, uint64_t seed) {
  filled_pool pool = {tagged_pool(tag), {NULL}, {0}};
  plinth_stream_t streams[2] = {NULL, stream_on(device)};
  enter(pool.id, device);
  for (int index = 0; index < BLOCKS; index++) {
    const uint64_t random = random_next(&seed);
    pool.sizes[index] = index % 8 == 7 ? 1 + random % (24 * MIB) : 1 + random % (index % 2 ? 3 * MIB : 3000);
    pool.blocks[index] = alloc_on(pool.sizes[index], device, streams[index % 3 == 2]);
  }
  leave(pool.id, device);
  for (int index = 0; index < BLOCKS; index++) {
    if (index % 5 == 4) {
      release(pool.blocks[index]);
      pool.blocks[index] = NULL;
    } else {
      put_pattern(pool.blocks[index], pool.sizes[index], (unsigned)index + 1);
    }
  }
  return pool;
}

static void expect_contents(const filled_pool *pool) {
  for (int index = 0; index < BLOCKS; index++) {
    if (pool->blocks[index] != NULL) {
      CHECK(has_pattern(pool->blocks[index], pool->sizes[index], (unsigned)index + 1));
    }
  }
}

static void end(filled_pool *pool) {
  for (int index = 0; index < BLOCKS; index++) {
    if (pool->blocks[index] != NULL) {
      release(pool->blocks[index]);
    }
  }
  destroy(pool->id);
}

TEST(contents_survive_in_each_backup) {
  for (plinth_backup_t backup = PLINTH_BACKUP_PINNED; backup <= PLINTH_BACKUP_FILE; backup++) {
    const plinth_sleep_options_t options = backup_in(backup);
    filled_pool pool = fill("weights", 0, 7);
    const size_t live = pool_allocated(pool.id, 0), held = pool_reserved(pool.id, 0);
    size_t still_live = UNTOUCHED, still_held = UNTOUCHED;
    CHECK_OK(plinth_empty_cache());
    const size_t elsewhere = reserved(0) - held;
    for (int round = 0; round < 3; round++) {
      CHECK_OK(plinth_memory_sleep("weights", &options));
      expect_sound();
      const plinth_sleep_info_t asleep = info_of("weights");
      CHECK(asleep.pools == 1 && asleep.pools_asleep == 1);
      CHECK_EQ(asleep.mapped_bytes, 0);
      CHECK_EQ(asleep.asleep_bytes, held);
      CHECK(asleep.saved_bytes >= live && asleep.saved_bytes <= held);
      CHECK(asleep.backup_bytes >= asleep.saved_bytes);
      CHECK_EQ(reserved(0), elsewhere);
      CHECK_OK(plinth_mem_pool_memory(pool.id, 0, &still_live, &still_held));
      CHECK(still_live == live && still_held == 0);
      /* Others use the memory meanwhile. */
      unsigned char *other = alloc_on(32 * MIB, 0, NULL);
      put_pattern(other, 32 * MIB, 99);
      release(other);
      CHECK_OK(plinth_memory_sleep("weights", &options));
      CHECK_OK(plinth_memory_wake("weights"));
      expect_sound();
      const plinth_sleep_info_t awake = info_of("weights");
      CHECK(awake.pools_asleep == 0 && awake.asleep_bytes == 0 && awake.saved_bytes == 0 && awake.backup_bytes == 0);
      CHECK_EQ(awake.mapped_bytes, held);
      CHECK_OK(plinth_memory_wake("weights"));
      expect_contents(&pool);
      CHECK_OK(plinth_empty_cache());
    }
    end(&pool);
    expect_nothing_left();
  }
}

TEST(memory_without_a_backup_keeps_its_addresses) {
  const plinth_pool_id_t pool = tagged_pool("kv");
  unsigned char *block = alloc_in(pool, 40 * MIB, 0, NULL);
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_memory_sleep("kv", round == 0 ? NULL : &no_backup));
    CHECK_EQ(pool_reserved(pool, 0), 0);
    CHECK_EQ(info_of("kv").saved_bytes, 0);
    CHECK_OK(plinth_memory_wake("kv"));
    put_pattern(block, 40 * MIB, 3);
    CHECK(has_pattern(block, 40 * MIB, 3));
  }
  release(block);
  destroy(pool);
  expect_nothing_left();
}

TEST(a_thousand_cycles_change_no_bit) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *large = alloc_in(pool, 5 * MIB, 0, NULL), *small = alloc_in(pool, 700, 0, NULL);
  put_pattern(large, 5 * MIB, 1);
  put_pattern(small, 700, 2);
  CHECK_OK(plinth_memory_alloc_backup("weights", &options));
  CHECK(info_of("weights").backup_bytes >= 5 * MIB + 700);
  for (int round = 0; round < 1000; round++) {
    CHECK_OK(plinth_memory_sleep("weights", &options));
    CHECK_OK(plinth_memory_wake("weights"));
    if (round % 100 == 0) {
      CHECK(has_pattern(large, 5 * MIB, 1));
    }
  }
  CHECK(has_pattern(large, 5 * MIB, 1));
  CHECK(has_pattern(small, 700, 2));
  CHECK(info_of("weights").backup_bytes > 0);
  CHECK_OK(plinth_memory_free_backup("weights"));
  CHECK_EQ(info_of("weights").backup_bytes, 0);
  release(large);
  release(small);
  destroy(pool);
  expect_nothing_left();
}

TEST(pools_of_several_devices_sleep_together) {
  need_devices(2);
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *first = alloc_in(pool, 20 * MIB, 0, NULL), *second = alloc_in(pool, 30 * MIB, 1, NULL);
  put_pattern(first, 20 * MIB, 1);
  put_pattern(second, 30 * MIB, 2);
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK(pool_reserved(pool, 0) == 0 && pool_reserved(pool, 1) == 0);
  CHECK_EQ(info_of(NULL).saved_bytes, 50 * MIB);
  CHECK_OK(plinth_memory_wake("weights"));
  CHECK(has_pattern(first, 20 * MIB, 1));
  CHECK(has_pattern(second, 30 * MIB, 2));
  release(first);
  release(second);
  destroy(pool);
  expect_nothing_left();
}

static int64_t large_handles(void) {
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  CHECK_OK(plinth_memory_stats(0, &stats));
  return stats.segment.large_pool.current;
}

/* A pool that grew block by block has small handles. It gets those of a pool that grows at once. */
TEST(memory_wakes_in_fewer_handles) {
  enum { PIECES = 32 };
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *pieces[PIECES];
  for (int index = 0; index < PIECES; index++) {
    pieces[index] = alloc_in(pool, 8 * MIB, 0, NULL);
    put_pattern(pieces[index], 8 * MIB, (unsigned)index + 1);
  }
  const int64_t handles = large_handles();
  const size_t held = pool_reserved(pool, 0);
  for (int round = 0; round < 2; round++) {
    CHECK_OK(plinth_memory_sleep("weights", &options));
    CHECK_OK(plinth_memory_wake("weights"));
    CHECK_EQ(pool_reserved(pool, 0), held);
    CHECK(large_handles() <= handles / 2);
    expect_sound();
    for (int index = 0; index < PIECES; index++) {
      CHECK(has_pattern(pieces[index], 8 * MIB, (unsigned)index + 1));
    }
  }
  /* Blocks share handles now; the memory of all is released in the end. */
  for (int index = 0; index < PIECES; index++) {
    release(pieces[(index * 5) % PIECES]);
  }
  expect_sound();
  destroy(pool);
  expect_nothing_left();
}

/* A block that is larger than the handles of new memory gets one of its own; on a small device, several. */
TEST(large_blocks_wake_in_handles_of_their_own) {
  static const size_t mebibytes[] = {96, 50, 120, 34};
  enum { BLOCKS = sizeof mebibytes / sizeof *mebibytes };
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  harness_setenv("PLINTH_HOST_MEMORY", "128GiB");
  const plinth_pool_id_t pool = tagged_pool("weights");
  size_t allocated = 0;
  unsigned char *blocks[BLOCKS];
  for (int index = 0; index < BLOCKS; index++) {
    blocks[index] = alloc_in(pool, mebibytes[index] * MIB, 0, NULL);
    put_pattern(blocks[index], mebibytes[index] * MIB, (unsigned)index + 1);
    allocated += mebibytes[index] * MIB;
  }
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK_OK(plinth_memory_wake("weights"));
  /* The last handles of new memory may have a free end, whose handles are halves of each other, down to 2 MiB. */
  const size_t free_bytes = pool_reserved(pool, 0) - allocated;
  CHECK(free_bytes < 64 * MIB);
  CHECK(large_handles() <= BLOCKS + __builtin_popcountll(free_bytes / (2 * MIB)));
  expect_sound();
  for (int index = 0; index < BLOCKS; index++) {
    CHECK(has_pattern(blocks[index], mebibytes[index] * MIB, (unsigned)index + 1));
  }
  for (int index = 0; index < BLOCKS; index++) {
    release(blocks[index]);
  }
  expect_sound();
  destroy(pool);
  expect_nothing_left();
}

/* The new handles begin and end elsewhere than the old ones, whose contents were saved each for itself. */
TEST(memory_of_odd_sizes_wakes_in_other_handles) {
  static const size_t mebibytes[] = {5, 13, 2, 30, 22, 7, 64, 18, 3, 96, 41, 1, 27};
  enum { PIECES = sizeof mebibytes / sizeof *mebibytes };
  static const plinth_backup_t backups[] = {PLINTH_BACKUP_PINNED, PLINTH_BACKUP_PINNED, PLINTH_BACKUP_PAGEABLE,
                                            PLINTH_BACKUP_FILE};
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *pieces[PIECES];
  for (int index = 0; index < PIECES; index++) {
    pieces[index] = alloc_in(pool, mebibytes[index] * MIB + 3000, 0, NULL);
    put_pattern(pieces[index], mebibytes[index] * MIB + 3000, (unsigned)index + 1);
  }
  for (int round = 0; round < 4; round++) {
    const plinth_sleep_options_t options = backup_in(backups[round]);
    CHECK_OK(plinth_memory_sleep("weights", &options));
    if (round == 1) {
      CHECK_OK(plinth_memory_wake_async("weights"));
      CHECK_OK(plinth_memory_wake_wait("weights", NULL));
    } else {
      CHECK_OK(plinth_memory_wake("weights"));
    }
    for (int index = 0; index < PIECES; index++) {
      CHECK(has_pattern(pieces[index], mebibytes[index] * MIB + 3000, (unsigned)index + 1));
    }
    expect_sound();
  }
  for (int index = 0; index < PIECES; index++) {
    release(pieces[index]);
  }
  destroy(pool);
  expect_nothing_left();
}

/* ---- graphs */

TEST(a_graph_over_the_memory_replays_afterwards) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = on_new_stream(0);
  const plinth_pool_id_t weights = tagged_pool("weights"), graphs = shared_pool();
  CHECK_OK(plinth_mem_pool_set_tag(graphs, "graphs"));
  unsigned char *weight = alloc_in(weights, 8 * MIB, 0, stream);
  fill_words(weight, 5, 8 * MIB, stream);
  void *result = pinned_memory(8 * MIB);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, &graphs, PLINTH_CAPTURE_GLOBAL));
  unsigned char *inside = alloc_on(8 * MIB, 0, stream), *kept = alloc_on(4 * MIB, 0, stream);
  CHECK_OK(plinth_memcpy(inside, weight, 8 * MIB, stream));
  CHECK_OK(plinth_memcpy(result, inside, 8 * MIB, stream));
  release(inside);
  CHECK_OK(plinth_graph_capture_end(graph));
  fill_words(kept, 6, 4 * MIB, stream);
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_memory_sleep(round == 0 ? NULL : "graphs,weights", &options));
    CHECK_EQ(info_of(NULL).pools_asleep, 2);
    CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_OK(plinth_memory_wake("weights"));
    CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_OK(plinth_memory_wake(NULL));
    memset(result, 0, 8 * MIB);
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    CHECK_EQ(words_mismatch(result, 5, 8 * MIB), 8 * MIB);
    /* What a capture leaves to the program keeps its contents, too. */
    CHECK_OK(plinth_memcpy(result, kept, 4 * MIB, stream));
    finish(stream);
    CHECK_EQ(words_mismatch(result, 6, 4 * MIB), 4 * MIB);
  }
  release(kept);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_mem_pool_set_tag(graphs, NULL));
  CHECK_OK(plinth_pinned_free(result));
  release(weight);
  destroy(weights);
  expect_nothing_left();
}

/* ---- frees and requests */

TEST(blocks_may_be_freed_while_they_sleep) {
  for (plinth_backup_t backup = PLINTH_BACKUP_NONE; backup <= PLINTH_BACKUP_PINNED; backup++) {
    const plinth_sleep_options_t options = backup_in(backup);
    const plinth_pool_id_t pool = tagged_pool("weights");
    unsigned char *kept = alloc_in(pool, 3 * MIB, 0, NULL), *freed = alloc_in(pool, 3 * MIB, 0, NULL);
    put_pattern(kept, 3 * MIB, 1);
    CHECK_OK(plinth_memory_sleep("weights", &options));
    release(freed);
    CHECK_STATUS(plinth_begin_allocate_current_thread_to_pool(0, pool), PLINTH_ERROR_GRAPH_ASLEEP);
    expect_sound();
    CHECK_OK(plinth_memory_wake("weights"));
    unsigned char *again = alloc_in(pool, 3 * MIB, 0, NULL);
    CHECK_SAME(again, freed);
    put_pattern(again, 3 * MIB, 2);
    CHECK(backup == PLINTH_BACKUP_NONE || has_pattern(kept, 3 * MIB, 1));
    release(again);
    release(kept);
    destroy(pool);
    expect_nothing_left();
  }
}

TEST(a_pool_may_be_destroyed_while_it_sleeps) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *block = alloc_in(pool, 3 * MIB, 0, NULL);
  CHECK_OK(plinth_memory_sleep("weights", &options));
  destroy(pool);
  CHECK_STATUS(plinth_memory_wake("weights"), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(info_of(NULL).pools, 0);
  release(block);
  expect_nothing_left();
}

/* ---- order */

/* The copies of a wake run while the CPU goes on; the streams that are told to wait for them do. */
TEST(an_asynchronous_wake_restores_in_order) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = stream_on(0);
  const plinth_pool_id_t layers[2] = {tagged_pool("layer 0"), tagged_pool("layer 1")};
  unsigned char *blocks[2], *results[2];
  for (int layer = 0; layer < 2; layer++) {
    blocks[layer] = alloc_in(layers[layer], 64 * MIB, 0, stream);
    results[layer] = pinned_memory(64 * MIB);
    put_pattern(blocks[layer], 64 * MIB, (unsigned)layer + 1);
  }
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_memory_sleep("layer 0,layer 1", &options));
    CHECK_STATUS(plinth_memory_wake_wait("layer 0", stream), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_OK(plinth_memory_wake_async("layer 0,layer 1"));
    CHECK_OK(plinth_memory_wake_async("layer 0,layer 1"));
    for (int layer = 0; layer < 2; layer++) {
      CHECK_OK(plinth_memory_wake_wait(layer == 0 ? "layer 0" : "layer 1", stream));
      CHECK_OK(plinth_memcpy(results[layer], blocks[layer], 64 * MIB, stream));
    }
    finish(stream);
    for (int layer = 0; layer < 2; layer++) {
      CHECK_EQ(pattern_mismatch(results[layer], 64 * MIB, (unsigned)layer + 1), 64 * MIB);
    }
  }
  for (int layer = 0; layer < 2; layer++) {
    release(blocks[layer]);
    CHECK_OK(plinth_pinned_free(results[layer]));
    destroy(layers[layer]);
  }
  CHECK_OK(plinth_synchronize(0));
  expect_nothing_left();
}

/* A wake that waits also waits for the copies of an earlier one that did not. */
TEST(a_wake_waits_for_an_asynchronous_one) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *block = alloc_in(pool, 64 * MIB, 0, NULL);
  put_pattern(block, 64 * MIB, 1);
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_memory_sleep("weights", &options));
    CHECK_OK(plinth_memory_wake_async("weights"));
    CHECK_OK(plinth_memory_wake("weights"));
    CHECK(has_pattern(block, 64 * MIB, 1));
  }
  release(block);
  destroy(pool);
  expect_nothing_left();
}

/* A block that is freed at once after an asynchronous wake is not written to after the next request got it. */
TEST(an_asynchronous_wake_does_not_overwrite_later_blocks) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = stream_on(0);
  const plinth_pool_id_t pool = tagged_pool("weights");
  for (int round = 0; round < some_rounds(16); round++) {
    unsigned char *freed = alloc_in(pool, 24 * MIB, 0, stream), *before = alloc_in(pool, 24 * MIB, 0, stream);
    put_pattern(freed, 24 * MIB, 1);
    put_pattern(before, 24 * MIB, 2);
    CHECK_OK(plinth_memory_sleep("weights", &options));
    if (round % 2 == 0) {
      release(before);
    }
    CHECK_OK(plinth_memory_wake_async("weights"));
    if (round % 2 != 0) {
      release(before);
    }
    release(freed);
    unsigned char *one = alloc_in(pool, 24 * MIB, 0, stream), *two = alloc_in(pool, 24 * MIB, 0, stream);
    fill_words(one, 11, 24 * MIB, stream);
    fill_words(two, 12, 24 * MIB, stream);
    finish(stream);
    CHECK_OK(plinth_synchronize(0));
    void *pinned = pinned_memory(24 * MIB);
    CHECK(has_words(one, 11, 24 * MIB, stream, pinned));
    CHECK(has_words(two, 12, 24 * MIB, stream, pinned));
    CHECK_OK(plinth_pinned_free(pinned));
    release(one);
    release(two);
  }
  destroy(pool);
  expect_nothing_left();
}

/* Sleep waits for the work of every stream; with PLINTH_SLEEP_NO_WAIT it is refused. */
TEST(sleep_waits_for_work_or_is_refused) {
  plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = stream_on(0);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *block = alloc_in(pool, 4 * MIB, 0, NULL);
  warm_up();
  options.flags = PLINTH_SLEEP_NO_WAIT;
  gate *shut = gate_shut(stream);
  fill_words(block, 8, 4 * MIB, stream);
  CHECK_STATUS(plinth_memory_sleep("weights", &options), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("has work that is not complete");
  CHECK_EQ(info_of("weights").pools_asleep, 0);
  CHECK_EQ(info_of("weights").backup_bytes, 0);
  options.flags = 0;
  const pthread_t thread = gate_open_soon(shut);
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK(gate_is_open(shut));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_memory_wake("weights"));
  void *pinned = pinned_memory(4 * MIB);
  CHECK(has_words(block, 8, 4 * MIB, stream, pinned));
  CHECK_OK(plinth_pinned_free(pinned));
  options.flags = PLINTH_SLEEP_NO_WAIT;
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK_OK(plinth_memory_wake("weights"));
  release(block);
  destroy(pool);
  expect_nothing_left();
}
