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
static unsigned seed; /* of the contents */

static void put_contents(void) {
  for (int index = 0; index < BLOCKS; index++) {
    put_pattern(blocks[index], sizes[index], seed + (unsigned)index);
  }
}

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
  }
  put_contents();
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
  if (!keeps_contents) {
    put_contents();
  }
  for (int index = 0; index < BLOCKS; index++) {
    CHECK(has_pattern(blocks[index], sizes[index], seed + (unsigned)index));
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

/* A limit below the memory that is held keeps a sleep that fails from mapping again what it has released. So the pools are
 * left partly asleep. */
TEST(a_sleep_that_fails_and_cannot_be_undone_keeps_the_contents) {
  CHECK_OK(plinth_enable_fault_injection());
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = PLINTH_BACKUP_PINNED;
  keeps_contents = true;
  need_devices(2);
  last_device = 1;
  set_up();
  /* With it, the first pool has memory in three places: when one is not yet saved, one may be released. */
  enter(pools[0], 0);
  unsigned char *third = alloc_on(4 * MIB, 0, NULL);
  leave(pools[0], 0);
  int partly_asleep = 0;
  for (uint64_t nth = 1;; nth++) {
    for (int32_t device = 0; device < 2; device++) {
      CHECK_OK(plinth_set_per_process_memory_fraction(1e-6, device));
    }
    /* Other contents than in earlier backups. */
    seed += BLOCKS;
    put_contents();
    put_pattern(third, 4 * MIB, seed);
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    const plinth_status_t slept = plinth_memory_sleep("weights,kv", &options);
    const bool tripped = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    for (int32_t device = 0; device < 2; device++) {
      CHECK_OK(plinth_set_per_process_memory_fraction(1.0, device));
    }
    const plinth_sleep_info_t info = info_now();
    partly_asleep += info.pools_asleep > 0 && info.mapped_bytes > 0;
    expect_contents();
    CHECK(has_pattern(third, 4 * MIB, seed));
    if (!tripped) {
      CHECK_OK(slept);
      break;
    }
  }
  CHECK(partly_asleep > 0);
  release(third);
  tear_down();
}

/* Drivers may let a call that maps memory wait for copies. The names of the calls that fail are those of a wake, in order. */
TEST(an_asynchronous_wake_maps_all_pools_before_it_copies) {
  CHECK_OK(plinth_enable_fault_injection());
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = PLINTH_BACKUP_PINNED;
  CHECK_OK(plinth_init());
  set_up();
  CHECK_OK(plinth_memory_alloc_backup(NULL, &options));
  uint64_t last_mapping = 0, first_copy = 0;
  const char *call = "";
  for (uint64_t nth = 1; call != NULL; nth++) {
    CHECK_OK(plinth_memory_sleep("weights,kv", &options));
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    const plinth_status_t woken = plinth_memory_wake_async("weights,kv");
    call = plinth_tripped_fault();
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK(call != NULL || woken == PLINTH_OK);
    CHECK_OK(plinth_memory_wake(NULL));
    if (call != NULL && strcmp(call, "cuMemSetAccess") == 0) {
      last_mapping = nth;
    } else if (call != NULL && first_copy == 0 && strstr(call, "Memcpy") != NULL) {
      first_copy = nth;
    }
  }
  CHECK(last_mapping > 0 && first_copy > last_mapping);
  CHECK_OK(plinth_memory_free_backup(NULL));
  tear_down();
}
