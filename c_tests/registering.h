/*
 * Helpers of the tests of registered memory: ranks in processes, each with a device and blocks of its memory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef REGISTERING_H
#define REGISTERING_H

#include "ranks.h"

enum { MILLISECONDS = 30000, SOON = 15, BLOCK = 1 << 20 };

static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
static int ranks;

static inline plinth_communicator_t join(int rank, uint64_t milliseconds) {
  plinth_communicator_t communicator = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, milliseconds, 0);
  need_devices(ranks);
  share_id(rank, id);
  CHECK_OK(plinth_set_device(rank));
  CHECK_OK(plinth_communicator_init_rank(ranks, id, rank, rank, &options, &communicator));
  return communicator;
}

static inline void finish(plinth_communicator_t communicator) {
  CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, NULL));
}

static inline void *block_on(size_t bytes, int32_t device) {
  void *block = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(bytes, device, NULL, &block));
  return block;
}

/* A block of `BLOCK` bytes, with one number everywhere. */
static inline float *floats_in_block(int32_t device, float number) {
  float *block = (float *)block_on(BLOCK, device);
  static float numbers[BLOCK / sizeof(float)];
  for (size_t index = 0; index < BLOCK / sizeof(float); index++) {
    numbers[index] = number;
  }
  put(block, numbers, sizeof numbers);
  return block;
}

static inline plinth_memory_uses_t uses_of(const void *block) {
  plinth_memory_uses_t uses = PLINTH_MEMORY_USES_INIT;
  CHECK_OK(plinth_memory_uses(block, &uses));
  return uses;
}

#endif
