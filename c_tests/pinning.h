/*
 * Helpers of the tests of the pinned memory cache.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PINNING_H
#define PINNING_H

#include "allocating.h"

/* Allocates memory with plinth_host_alloc. Free it with `unpin`. */
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

/* Whether PLINTH_ALLOC_CONF contains a setting. */
static inline bool has_setting(const char *key) {
  const char *chosen = getenv("PLINTH_ALLOC_CONF");
  return chosen != NULL && strstr(chosen, key) != NULL;
}

/* The size of the reserve, which is pinned by the first request and never freed, if PLINTH_ALLOC_CONF sets one. */
static inline size_t reserve_bytes(void) { return has_setting("pinned_reserve_segment_size_mb:64") ? 64 * MIB : 0; }

/* Whether a freed block of this size stays in the cache. */
static inline bool is_cached(size_t bytes) { return bytes <= 2 * MIB || !has_setting("pinned_max_cached_size_mb:2"); }

/* All memory is freed, and nothing stays in the cache. No work may use any of it. */
static inline void expect_nothing_pinned(void) {
  expect_sound();
  CHECK_OK(plinth_host_empty_cache());
  expect_sound();
  CHECK_EQ(pinned_active(), 0);
  CHECK(pinned_held() == 0 || pinned_held() == reserve_bytes());
}

/* Allocates until the cache has no free block of a size, and returns whether `old` was among the blocks. */
static inline bool pinned_is_reused(const void *old, size_t bytes) {
  enum { MAX_BLOCKS = 20000 };
  void **blocks = (void **)pageable_memory(MAX_BLOCKS * sizeof *blocks);
  int count = 0;
  bool found = false;
  const size_t held = pinned_held();
  while (!found && count < MAX_BLOCKS && pinned_held() == held) {
    blocks[count] = pin(bytes);
    found = blocks[count++] == old;
  }
  while (count > 0) {
    unpin(blocks[--count]);
  }
  free(blocks);
  return found;
}

/* Puts `count` free blocks of a size into the cache, so that allocating them calls no driver function. */
static inline void fill_cache(size_t bytes, int count) {
  void *blocks[64];
  CHECK(count <= 64);
  for (int index = 0; index < count; index++) {
    blocks[index] = pin(bytes);
  }
  while (count > 0) {
    unpin(blocks[--count]);
  }
}

#endif
