/*
 * The registered memory of a communicator of the fake NCCL. NCCL maps of a window only the physical allocation in which
 * the window begins, and looks for the window in which a buffer begins; a kernel of it then accesses whatever follows.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAKE_NCCL_MEMORY_H
#define FAKE_NCCL_MEMORY_H

#include "faking.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_REGISTERED = 16 };

typedef struct {
  const void *memory;
  size_t window_bytes; /* 0: a buffer */
  bool is_mapped;      /* all of the window */
} registration;

typedef struct {
  registration entries[MAX_REGISTERED];
  int count;
} registry;

/* Whether memory is in one physical allocation. */
static inline bool is_one_allocation(const void *memory, size_t bytes) {
  int (*retain)(uint64_t *, const void *);
  int (*release)(uint64_t);
  uint64_t first = 0, last = 0;
  void *symbols[2] = {entry_point("cuMemRetainAllocationHandle"), entry_point("cuMemRelease")};
  memcpy(&retain, &symbols[0], sizeof retain);
  memcpy(&release, &symbols[1], sizeof release);
  if (retain == NULL || release == NULL || retain(&first, memory) != 0) return false;
  const bool has_last = retain(&last, (const char *)memory + bytes - 1) == 0;
  release(first);
  if (has_last) release(last);
  return has_last && first == last;
}

/* Adds a buffer, or a window of some bytes. The caller has checked that there is room. */
static inline void registry_add(registry *self, const void *memory, size_t window_bytes) {
  const bool is_mapped = window_bytes > 0 && is_one_allocation(memory, window_bytes);
  self->entries[self->count++] = (registration){memory, window_bytes, is_mapped};
}

static inline bool registry_remove(registry *self, const void *memory) {
  for (int index = 0; index < self->count; index++) {
    if (self->entries[index].memory == memory) {
      self->entries[index] = self->entries[--self->count];
      return true;
    }
  }
  return false;
}

/* Whether a kernel that reads or writes memory accesses mapped addresses only. */
static inline bool registry_is_mapped(const registry *self, const void *memory, size_t bytes) {
  for (int index = 0; index < self->count; index++) {
    const registration *each = &self->entries[index];
    const uintptr_t offset = (uintptr_t)memory - (uintptr_t)each->memory;
    if (offset < each->window_bytes) return each->is_mapped && bytes <= each->window_bytes - offset;
  }
  return true;
}

#endif
