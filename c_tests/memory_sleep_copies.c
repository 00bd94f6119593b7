/*
 * Sleeps and wakes whose copies take long, on machines whose driver maps memory of a device only when its copies are done.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* env: PLINTH_HOST_COPIES=exclusive */
#include "peering.h"
#include "sleeping.h"

#include <stdatomic.h>

enum { BLOCKS = 64 };

/* All pools are mapped before the first copy, so the call returns while the contents of the first one are being restored. */
TEST(an_asynchronous_wake_returns_before_its_copies) {
  if (!on_host_device()) {
    SKIP("copies of a GPU may be done by then");
  }
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pools[] = {tagged_pool("first"), tagged_pool("second")};
  plinth_stream_t stream = stream_on(0);
  unsigned char *blocks[2][BLOCKS];
  for (int i = 0; i < 2 * BLOCKS; i++) {
    /* Blocks with a gap between them are copied one by one. */
    blocks[i / BLOCKS][i % BLOCKS] = alloc_in(pools[i / BLOCKS], 2 * MIB, 0, NULL);
    put_pattern(blocks[i / BLOCKS][i % BLOCKS], 2 * MIB, (unsigned)i);
  }
  for (int i = 0; i < 2 * BLOCKS; i += 2) {
    release(blocks[i / BLOCKS][i % BLOCKS]);
  }
  CHECK_OK(plinth_memory_sleep("first,second", &options));
  CHECK_OK(plinth_memory_wake_async("first,second"));
  CHECK_OK(plinth_memory_wake_wait("first", stream));
  bool done = true;
  CHECK_OK(plinth_stream_query(stream, &done));
  CHECK(!done);
  CHECK_OK(plinth_memory_wake_wait("second", stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  for (int i = 1; i < 2 * BLOCKS; i += 2) {
    CHECK(has_pattern(blocks[i / BLOCKS][i % BLOCKS], 2 * MIB, (unsigned)i));
    release(blocks[i / BLOCKS][i % BLOCKS]);
  }
  destroy(pools[0]);
  destroy(pools[1]);
  expect_nothing_left();
}

typedef struct falling_asleep {
  plinth_pool_id_t pool;
  plinth_status_t status;
  atomic_bool ended;
} falling_asleep;

static void *fall_asleep(void *argument) {
  falling_asleep *one = argument;
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PAGEABLE);
  one->status = plinth_memory_sleep("weights", &options);
  atomic_store(&one->ended, true);
  return NULL;
}

static void *destroy_pool(void *argument) {
  destroy(((falling_asleep *)argument)->pool);
  return NULL;
}

/* A pool may be destroyed while it falls asleep. Until then its free memory stays in place, also if a thread needs memory. */
TEST(memory_of_a_pool_that_is_destroyed_while_it_falls_asleep_does_not_move) {
  enum { BYTES = 8 * MIB };
  for (int round = 0; round < some_rounds(4); round++) {
    falling_asleep one = {tagged_pool("weights"), PLINTH_OK, false};
    unsigned char *blocks[BLOCKS / 2];
    pthread_t sleeper, destroyer;
    for (int i = 0; i < BLOCKS / 2; i++) {
      blocks[i] = alloc_in(one.pool, BYTES, 0, NULL);
    }
    const int64_t created = created_handles();
    bool moved = false;
    limit_memory((size_t)reserved(0), 0);
    for (int i = 0; i < BLOCKS / 2; i += 2) {
      release(blocks[i]);
    }
    CHECK(pthread_create(&sleeper, NULL, fall_asleep, &one) == 0);
    const double begin = seconds_now();
    while (seconds_now() - begin < 0.004 * (1 + round)) {
    }
    CHECK(pthread_create(&destroyer, NULL, destroy_pool, &one) == 0);
    while (!atomic_load(&one.ended)) {
      void *block = NULL;
      if (plinth_caching_allocator_alloc(BYTES, 0, NULL, &block) == PLINTH_OK) {
        /* Otherwise it is in new memory, because the pool has released its own. */
        moved = moved || created_handles() == created;
        release(block);
      }
    }
    CHECK(pthread_join(sleeper, NULL) == 0 && pthread_join(destroyer, NULL) == 0);
    /* If the pool was destroyed before, it has no tag any more, and its memory may move. */
    CHECK(one.status == PLINTH_ERROR_INVALID_VALUE || (one.status == PLINTH_OK && !moved));
    lift_limit(0);
    for (int i = 1; i < BLOCKS / 2; i += 2) {
      release(blocks[i]);
    }
    expect_nothing_left();
  }
}
