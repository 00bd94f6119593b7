/*
 * Pools of graphs that sleep and lose their users: contents, what is left, and repeated wakes.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_HOST_MEMORY=140GiB */
#include "driver.h"
#include "graphing.h"
#include "peering.h"
#include "sleeping.h"

/* The pool is one of a graph, or has no user before it sleeps; both leave a block to the program. */
TEST(a_pool_without_users_sleeps_with_its_contents) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t streams[2] = {on_new_stream(0), stream_on(0)};
  unsigned char *result = (unsigned char *)pinned_memory(4 * MIB);
  for (int ends_first = 0; ends_first < 2; ends_first++) {
    const plinth_pool_id_t graphs = shared_pool();
    CHECK_OK(plinth_mem_pool_set_tag(graphs, "graphs"));
    plinth_graph_t graph = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(graph, &graphs, PLINTH_CAPTURE_GLOBAL));
    unsigned char *kept = alloc_on(4 * MIB, 0, streams[0]);
    release(alloc_on(30 * MIB, 0, streams[0]));
    CHECK_OK(plinth_graph_capture_end(graph));
    unsigned char *other = alloc_in(graphs, 4 * MIB, 0, streams[1]);
    fill_words(kept, 6, 4 * MIB, streams[0]);
    finish(streams[0]);
    if (ends_first) {
      CHECK_OK(plinth_graph_destroy(graph));
    }
    CHECK_OK(plinth_memory_sleep("graphs", &options));
    if (!ends_first) {
      CHECK_OK(plinth_graph_destroy(graph));
    }
    /* The last block of the other stream; the contents of the first one stay. */
    release(other);
    const uint64_t asleep = info_of("graphs").saved_bytes;
    CHECK(asleep >= 4 * MIB);
    /* Without room the pool sleeps on; this must not wait for itself. */
    limit_memory(2 * MIB, 0);
    CHECK_STATUS(plinth_memory_wake("graphs"), PLINTH_ERROR_OUT_OF_MEMORY);
    lift_limit(0);
    CHECK_OK(plinth_memory_wake("graphs"));
    CHECK_EQ(info_of("graphs").pools_asleep, 0);
    memset(result, 0, 4 * MIB);
    CHECK_OK(plinth_memcpy(result, kept, 4 * MIB, streams[0]));
    finish(streams[0]);
    CHECK_EQ(words_mismatch(result, 6, 4 * MIB), 4 * MIB);
    /* Handles that are free as a whole go back to the driver, because the pool has no user. */
    CHECK(info_of("graphs").mapped_bytes <= 32 * MIB);
    release(kept);
    CHECK_OK(plinth_mem_pool_set_tag(graphs, NULL));
  }
  CHECK_OK(plinth_pinned_free(result));
  expect_nothing_left();
}

/* A graph on the first of two devices ends while its pool sleeps. With a tag, the pool can wake. */
TEST(a_pool_that_ends_in_its_sleep_leaves_nothing) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = on_new_stream(0);
  need_devices(2);
  need_host_device();
  plinth_host_usage_t before = PLINTH_HOST_USAGE_INIT;
  for (int round = 0; round < 4; round++) {
    const plinth_pool_id_t pool = shared_pool();
    const bool is_tagged = round % 2 == 1;
    if (is_tagged) {
      CHECK_OK(plinth_mem_pool_set_tag(pool, "graphs"));
    }
    plinth_graph_t graph = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(graph, &pool, PLINTH_CAPTURE_GLOBAL));
    unsigned char *inside = alloc_on(8 * MIB, 0, stream);
    CHECK_OK(plinth_memset(inside, 1, 8 * MIB, stream));
    if (!is_tagged) {
      release(inside);
    }
    CHECK_OK(plinth_graph_capture_end(graph));
    if (is_tagged) {
      CHECK_OK(plinth_memory_sleep("graphs", &options));
    } else {
      CHECK_OK(plinth_graph_sleep(graph));
    }
    CHECK_OK(plinth_graph_destroy(graph));
    if (is_tagged) {
      CHECK_STATUS(plinth_mem_pool_set_tag(pool, NULL), PLINTH_ERROR_GRAPH_ASLEEP);
      CHECK_MESSAGE("wake it first");
      release(inside);
      CHECK_OK(plinth_memory_wake("graphs"));
      CHECK_OK(plinth_mem_pool_set_tag(pool, NULL));
    }
    CHECK_OK(plinth_empty_cache());
    const plinth_host_usage_t after = host_usage();
    /* Pinned memory is cached. */
    if (round > 1) {
      CHECK_EQ(after.reservations, before.reservations);
      CHECK_EQ(after.pinned_bytes, before.pinned_bytes);
      CHECK_EQ(after.memory_handles, before.memory_handles);
    }
    before = after;
  }
  expect_nothing_left();
}

/* A block that the program got in a capture outlives the graph and the sleep, and nothing can wake it. */
TEST(a_pool_with_a_block_that_sleeps_on_is_refused) {
  plinth_stream_t stream = on_new_stream(0);
  const plinth_pool_id_t pool = shared_pool();
  plinth_graph_t graph = new_graph(0), other = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, &pool, PLINTH_CAPTURE_GLOBAL));
  unsigned char *inside = alloc_on(KIB, 0, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_sleep(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_STATUS(plinth_graph_capture_begin(other, &pool, PLINTH_CAPTURE_GLOBAL), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_STATUS(plinth_begin_allocate_current_thread_to_pool(0, pool), PLINTH_ERROR_GRAPH_ASLEEP);
  release(inside);
  CHECK_OK(plinth_graph_capture_begin(other, &pool, PLINTH_CAPTURE_GLOBAL));
  inside = alloc_on(KIB, 0, stream);
  CHECK_OK(plinth_memset(inside, 1, KIB, stream));
  release(inside);
  CHECK_OK(plinth_graph_capture_end(other));
  CHECK_OK(plinth_graph_replay(other));
  finish(stream);
  CHECK_OK(plinth_graph_destroy(other));
  expect_nothing_left();
}

/* A pool that woke has a live block and no user, and the one behind it does not fit. */
TEST(a_wake_that_is_repeated_does_not_wait_for_itself) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  plinth_stream_t stream = on_new_stream(0);
  unsigned char *kept[2];
  plinth_pool_id_t pools[2];
  for (int index = 0; index < 2; index++) {
    pools[index] = shared_pool();
    CHECK_OK(plinth_mem_pool_set_tag(pools[index], "graphs"));
    plinth_graph_t graph = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(graph, &pools[index], PLINTH_CAPTURE_GLOBAL));
    kept[index] = alloc_on(8 * MIB, 0, stream);
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_destroy(graph));
  }
  CHECK_OK(plinth_memory_sleep("graphs", &options));
  limit_memory(12 * MIB, 0);
  CHECK_STATUS(plinth_memory_wake("graphs"), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(info_of("graphs").pools_asleep, 1);
  CHECK_STATUS(plinth_memory_wake_async("graphs"), PLINTH_ERROR_OUT_OF_MEMORY);
  lift_limit(0);
  CHECK_OK(plinth_memory_wake_async("graphs"));
  CHECK_EQ(info_of("graphs").pools_asleep, 0);
  for (int index = 0; index < 2; index++) {
    release(kept[index]);
    CHECK_OK(plinth_mem_pool_set_tag(pools[index], NULL));
  }
  expect_nothing_left();
}
