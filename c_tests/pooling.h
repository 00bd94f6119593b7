/*
 * Helpers of the tests of memory pools. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POOLING_H
#define POOLING_H

#include "allocating.h"

static inline plinth_pool_id_t new_pool(bool use_on_oom, bool no_split) {
  plinth_pool_id_t pool = {UNTOUCHED, UNTOUCHED};
  CHECK_OK(plinth_mem_pool_create(use_on_oom, no_split, &pool));
  CHECK(pool.owner != UNTOUCHED || pool.index != UNTOUCHED);
  return pool;
}

static inline void destroy(plinth_pool_id_t pool) { CHECK_OK(plinth_mem_pool_destroy(pool)); }

static inline size_t pool_allocated(plinth_pool_id_t pool, int32_t device) {
  size_t bytes = UNTOUCHED;
  size_t held = UNTOUCHED;
  CHECK_OK(plinth_mem_pool_memory(pool, device, &bytes, &held));
  CHECK(held >= bytes);
  return bytes;
}

static inline size_t pool_reserved(plinth_pool_id_t pool, int32_t device) {
  size_t bytes = UNTOUCHED;
  size_t held = UNTOUCHED;
  CHECK_OK(plinth_mem_pool_memory(pool, device, &bytes, &held));
  return held;
}

static inline int32_t use_count(plinth_pool_id_t pool, int32_t device) {
  int32_t count = UNTOUCHED;
  CHECK_OK(plinth_mem_pool_use_count(pool, device, &count));
  return count;
}

/* As torch.cuda.use_mem_pool: begin at the start of the block, end and release at its end. */
static inline void enter(plinth_pool_id_t pool, int32_t device) {
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(device, pool));
}

static inline void leave(plinth_pool_id_t pool, int32_t device) {
  CHECK_OK(plinth_end_allocate_to_pool(device, pool));
  CHECK_OK(plinth_release_pool(device, pool));
}

#endif /* POOLING_H */
