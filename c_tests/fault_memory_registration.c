/*
 * Each driver call of a pool for sharing, and of the exports of a registration, fails once. What fails leaves nothing
 * behind, and can be repeated.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_HOST_FABRIC=1 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "driver.h"
#include "faults.h"
#include "peering.h"
#include "pooling.h"

#define BYTES (5 * MIB)

static void recover(void) { expect_sound(); }

static const fault_plan registration_plan = {
    .tear_down = expect_nothing_left,
    .recover = recover,
    .report = FAULT_MAY_MEAN_NO_MEMORY,
    .kinds = EVERY_CODE_ONCE,
    .kinds_in_new_processes = EVERY_CODE_ONCE,
    .min_faults = 8,
    .min_failures = 4,
};

SCENARIO_OF(registration_plan, a_pool_for_windows_grows) {
  static const size_t sizes[3] = {BYTES, 30 * MIB, 700};
  void *blocks[3];
  plinth_pool_id_t pool;
  CHECK_OK(plinth_mem_pool_create_with_flags(PLINTH_MEM_POOL_NCCL_WINDOW, &pool));
  for (int round = 0; round < 2; round++) {
    enter(pool, 0);
    for (int index = 0; index < 3; index++) {
      if (!ATTEMPT(plinth_caching_allocator_alloc(sizes[index], 0, NULL, &blocks[index]))) {
        CHECK_OK(plinth_caching_allocator_alloc(sizes[index], 0, NULL, &blocks[index]));
      }
      RETRY(plinth_memset(blocks[index], 7, sizes[index], NULL));
    }
    RETRY(plinth_synchronize(0)); /* Else most driver calls are queries whether the work is done. */
    leave(pool, 0);
    for (int index = 0; index < 3; index++) {
      release(blocks[index]);
    }
    RETRY(plinth_empty_cache());
  }
  destroy(pool);
}

SCENARIO_OF(registration_plan, memory_is_registered_and_exported) {
  plinth_memory_registration_t registration = NULL;
  plinth_pool_id_t pool;
  void *block = NULL;
  int32_t descriptor = -1;
  size_t offset = 0, size = 0;
  plinth_memory_part_t part = PLINTH_MEMORY_PART_INIT;
  plinth_memory_uses_t uses = PLINTH_MEMORY_USES_INIT;
  CHECK_OK(plinth_mem_pool_create_with_flags(PLINTH_MEM_POOL_FABRIC | PLINTH_MEM_POOL_GPU_DIRECT_RDMA, &pool));
  enter(pool, 0);
  if (!ATTEMPT(plinth_caching_allocator_alloc(BYTES, 0, NULL, &block))) {
    CHECK_OK(plinth_caching_allocator_alloc(BYTES, 0, NULL, &block));
  }
  leave(pool, 0);
  RETRY(plinth_memset(block, 7, BYTES, NULL));
  RETRY(plinth_synchronize(0));
  const size_t descriptors = open_descriptors();
  if (!ATTEMPT(plinth_memory_uses(block, &uses))) {
    CHECK_OK(plinth_memory_uses(block, &uses));
  }
  CHECK(uses.supported >> PLINTH_MEMORY_USE_DMA_BUF & 1);
  CHECK_OK(plinth_memory_registration_create(block, BYTES, NULL, &registration));
  if (!ATTEMPT(plinth_memory_registration_dma_buf(registration, &descriptor, &offset, &size))) {
    CHECK_EQ(descriptor, -1);
    CHECK_OK(plinth_memory_registration_dma_buf(registration, &descriptor, &offset, &size));
  }
  CHECK(size >= BYTES && close(descriptor) == 0);
  if (!ATTEMPT(plinth_memory_registration_part(registration, 0, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR, &part))) {
    CHECK_EQ(part.descriptor, -1);
    CHECK_OK(plinth_memory_registration_part(registration, 0, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR, &part));
  }
  CHECK(part.size > 0 && close(part.descriptor) == 0);
  CHECK_OK(plinth_memory_registration_destroy(registration));
  release(block);
  RETRY(plinth_mem_pool_destroy(pool));
  RETRY(plinth_empty_cache());
  CHECK_EQ(open_descriptors(), descriptors);
}
