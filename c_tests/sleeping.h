/*
 * Helpers of the tests of memory that sleeps. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef SLEEPING_H
#define SLEEPING_H

#include "pooling.h"

static inline plinth_sleep_options_t backup_in(plinth_backup_t backup) {
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = backup;
  return options;
}

static inline plinth_sleep_info_t info_of(const char *tags) {
  plinth_sleep_info_t info = PLINTH_SLEEP_INFO_INIT;
  CHECK_OK(plinth_memory_sleep_info(tags, &info));
  CHECK_EQ(info.struct_size, sizeof info);
  return info;
}

static inline plinth_pool_id_t tagged_pool(const char *tag) {
  const plinth_pool_id_t pool = new_pool(false, false);
  CHECK_OK(plinth_mem_pool_set_tag(pool, tag));
  return pool;
}

static inline unsigned char *alloc_in(plinth_pool_id_t pool, size_t bytes, int32_t device, plinth_stream_t stream) {
  enter(pool, device);
  unsigned char *block = alloc_on(bytes, device, stream);
  leave(pool, device);
  return block;
}

#endif
