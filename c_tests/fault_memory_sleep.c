/*
 * Each driver call of sleep and wake fails once. A pool that cannot be put to sleep stays awake with its contents, one that
 * cannot be woken sleeps on with them, and the call can be repeated.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_HOST_COPIES=slow */
/* timeout: 600 */
/* alone: all; enables fault injection before the first call */
#include "driver.h"
#include "faults.h"
#include "peering.h"
#include "pooling.h"

enum { BLOCKS = 6 };

static plinth_pool_id_t pools[2];
static unsigned char *blocks[BLOCKS];
static const size_t sizes[BLOCKS] = {700, 5 * MIB, 3 * MIB, 900, 64 * 1024, 2 * MIB};
static plinth_stream_t own;
static bool keeps_contents;

/* Two pools, with blocks of two streams and, where there are two, of two devices. */
static void set_up(void) {
  own = stream_on(0);
  for (int pool = 0; pool < 2; pool++) {
    pools[pool] = new_pool(false, false);
    CHECK_OK(plinth_mem_pool_set_tag(pools[pool], pool == 0 ? "weights" : "kv"));
  }
  for (int index = 0; index < BLOCKS; index++) {
    const plinth_pool_id_t pool = pools[index % 2];
    const int32_t device = index >= 4 ? last_device : 0;
    enter(pool, device);
    blocks[index] = alloc_on(sizes[index], device, index == 2 ? own : NULL);
    leave(pool, device);
    put_pattern(blocks[index], sizes[index], (unsigned)index + 1);
  }
}

static void tear_down(void) {
  for (int index = 0; index < BLOCKS; index++) {
    release(blocks[index]);
  }
  destroy(pools[0]);
  destroy(pools[1]);
  expect_nothing_left();
}

static plinth_sleep_info_t info_now(void) {
  plinth_sleep_info_t info = PLINTH_SLEEP_INFO_INIT;
  CHECK_OK(plinth_memory_sleep_info(NULL, &info));
  return info;
}

static void expect_awake(void) {
  const plinth_sleep_info_t info = info_now();
  CHECK(info.pools == 2 && info.pools_asleep == 0);
  CHECK(info.asleep_bytes == 0 && info.saved_bytes == 0 && info.mapped_bytes > 0);
  expect_sound();
}

static void expect_contents(void) {
  RETRY(plinth_memory_wake(NULL));
  RETRY(plinth_memory_free_backup(NULL));
  expect_awake();
  CHECK_EQ(info_now().backup_bytes, 0);
  for (int index = 0; index < BLOCKS; index++) {
    if (!keeps_contents) {
      put_pattern(blocks[index], sizes[index], (unsigned)index + 1);
    }
    CHECK(has_pattern(blocks[index], sizes[index], (unsigned)index + 1));
  }
}

static const fault_plan sleep_plan = {
    .set_up = set_up,
    .tear_down = tear_down,
    .recover = expect_contents,
    .report = FAULT_MAY_MEAN_NO_MEMORY,
    .kinds = EVERY_CODE_ONCE,
    .warm_up = 2,
    .min_faults = 10,
    .min_failures = 5,
};

static void sleep_with(plinth_backup_t backup) {
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = backup;
  keeps_contents = backup != PLINTH_BACKUP_NONE;
  if (!ATTEMPT(plinth_memory_sleep("weights,kv", &options))) {
    if (keeps_contents) {
      expect_awake();
    }
    CHECK_OK(plinth_memory_sleep("weights,kv", &options));
  }
  expect_sound();
  CHECK(info_now().pools_asleep == 2 && info_now().mapped_bytes == 0);
}

/* The first pool may be awake after a wake that fails. */
static void wake(plinth_status_t (*function)(const char *)) {
  const bool tripped_before = plinth_tripped_fault() != NULL;
  const bool woken = ATTEMPT(function("weights,kv"));
  /* No call that waits is among those of an asynchronous wake. */
  const char *tripped_in = plinth_tripped_fault();
  if (function == plinth_memory_wake_async && !tripped_before && tripped_in != NULL) {
    CHECK(strstr(tripped_in, "Synchronize") == NULL);
  }
  if (!woken) {
    const plinth_sleep_info_t info = info_now();
    CHECK(info.pools_asleep == 1 || info.pools_asleep == 2);
    expect_sound();
    CHECK_OK(function("weights,kv"));
  }
  expect_awake();
}

SCENARIO_OF(sleep_plan, memory_without_a_backup) {
  sleep_with(PLINTH_BACKUP_NONE);
  wake(plinth_memory_wake);
}

SCENARIO_OF(sleep_plan, memory_in_a_pinned_backup) {
  sleep_with(PLINTH_BACKUP_PINNED);
  wake(plinth_memory_wake);
}

SCENARIO_OF(sleep_plan, memory_in_a_pageable_backup) {
  sleep_with(PLINTH_BACKUP_PAGEABLE);
  wake(plinth_memory_wake);
}

SCENARIO_OF(sleep_plan, memory_in_a_file) {
  sleep_with(PLINTH_BACKUP_FILE);
  wake(plinth_memory_wake);
}

SCENARIO_OF(sleep_plan, an_asynchronous_wake) {
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = PLINTH_BACKUP_PINNED;
  RETRY(plinth_memory_alloc_backup(NULL, &options));
  sleep_with(PLINTH_BACKUP_PINNED);
  wake(plinth_memory_wake_async);
  RETRY(plinth_memory_wake_wait("kv", own));
  RETRY(plinth_stream_synchronize(own));
}
