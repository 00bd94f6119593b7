/*
 * What the tests of cached pinned memory share.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PINNING_H
#define PINNING_H

#include "allocating.h"

/* Memory of plinth_host_alloc. Give it back with `unpin`. */
static inline unsigned char *pin(size_t bytes) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_host_alloc(bytes, &pointer));
  CHECK(pointer != NULL && pointer != UNTOUCHED_POINTER);
  CHECK_EQ((uintptr_t)pointer % 64, 0);
  return (unsigned char *)pointer;
}

static inline void unpin(void *pointer) { CHECK_OK(plinth_host_free(pointer)); }

static inline plinth_host_memory_stats_t host_stats(void) {
  plinth_host_memory_stats_t stats = PLINTH_HOST_MEMORY_STATS_INIT;
  CHECK_OK(plinth_host_memory_stats(&stats));
  CHECK_EQ(stats.struct_size, sizeof stats);
  return stats;
}

static inline size_t pinned_active(void) { return (size_t)host_stats().active_bytes.current; }
static inline size_t pinned_held(void) { return (size_t)host_stats().allocated_bytes.current; }

static inline bool is_pinned(const void *pointer) {
  bool pinned = false;
  CHECK_OK(plinth_is_pinned(pointer, &pinned));
  return pinned;
}

/* Whether the environment sets a key of the settings. */
static inline bool has_setting(const char *key) {
  const char *chosen = getenv("PLINTH_ALLOC_CONF");
  return chosen != NULL && strstr(chosen, key) != NULL;
}

/* What is pinned with the first request and never goes back, if the environment says so: 64 MiB. */
static inline size_t reserve_bytes(void) { return has_setting("pinned_reserve_segment_size_mb:64") ? 64 * MIB : 0; }

/* Whether a block of so many bytes is kept when it is freed. */
static inline bool is_kept(size_t bytes) { return bytes <= 2 * MIB || !has_setting("pinned_max_cached_size_mb:2"); }

/* Everything was given back, and nothing stays in the cache. For when no work uses any of it. */
static inline void expect_nothing_pinned(void) {
  expect_sound();
  CHECK_OK(plinth_host_empty_cache());
  expect_sound();
  CHECK_EQ(pinned_active(), 0);
  CHECK(pinned_held() == 0 || pinned_held() == reserve_bytes());
}

/* Allocates until the cache has no more of a size, and tells whether `old` was handed out again on the way. */
static inline bool pinned_comes_back(const void *old, size_t bytes) {
  enum { MOST = 20000 };
  void **taken = (void **)pageable_memory(MOST * sizeof *taken);
  int count = 0;
  bool found = false;
  const size_t held = pinned_held();
  while (!found && count < MOST && pinned_held() == held) {
    taken[count] = pin(bytes);
    found = taken[count++] == old;
  }
  while (count > 0) {
    unpin(taken[--count]);
  }
  free(taken);
  return found;
}

/* Lets the cache have so many free blocks of a size, so that taking them asks nothing of the driver. */
static inline void stock(size_t bytes, int count) {
  void *taken[64];
  CHECK(count <= 64);
  for (int index = 0; index < count; index++) {
    taken[index] = pin(bytes);
  }
  while (count > 0) {
    unpin(taken[--count]);
  }
}

#endif
