/*
 * The device memory of a communicator of the fake NCCL. A suspension releases it and keeps its address.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAKE_NCCL_BUFFER_H
#define FAKE_NCCL_BUFFER_H

#include "faking.h"

#include <stdbool.h>
#include <stdint.h>

enum { BUFFER_BYTES = 8 << 20 };

typedef struct {
  uint64_t address, handle;
  int device;
} buffer;

/* CUmemLocation, CUmemAllocationProp and CUmemAccessDesc. */
typedef struct {
  int type, device;
} location;

typedef struct {
  int type, handle_types;
  location place;
  void *metadata;
  unsigned char flags[8];
} allocation;

typedef struct {
  location place;
  int flags;
} access_rights;

static struct {
  int (*device)(int *);
  int (*reserve)(uint64_t *, size_t, size_t, uint64_t, uint64_t);
  int (*create)(uint64_t *, size_t, const allocation *, uint64_t);
  int (*map)(uint64_t, size_t, size_t, uint64_t, uint64_t);
  int (*allow)(uint64_t, size_t, const access_rights *, size_t);
  int (*unmap)(uint64_t, size_t);
  int (*release)(uint64_t);
  int (*leave)(uint64_t, size_t);
} memory_calls;

static inline void find_memory_calls(void) {
  void *symbols[] = {entry_point("cuCtxGetDevice"), entry_point("cuMemAddressReserve"), entry_point("cuMemCreate"),
                     entry_point("cuMemMap"),       entry_point("cuMemSetAccess"),      entry_point("cuMemUnmap"),
                     entry_point("cuMemRelease"),   entry_point("cuMemAddressFree")};
  memcpy(&memory_calls, symbols, sizeof memory_calls);
}

/* Makes a call that releases something; an injected fault happens once. */
#define RELEASE(call) (void)((call) != 0 && (call))

static inline void buffer_unmap(buffer *self) {
  RELEASE(memory_calls.unmap(self->address, BUFFER_BYTES));
  RELEASE(memory_calls.release(self->handle));
  self->handle = 0;
}

/* Allocates the memory and maps it at its address. */
static inline bool buffer_map(buffer *self) {
  const allocation wanted = {1, 0, {1, self->device}, NULL, {0}};
  const access_rights allowed = {{1, self->device}, 3};
  if (memory_calls.create(&self->handle, BUFFER_BYTES, &wanted, 0) != 0) return false;
  if (memory_calls.map(self->address, BUFFER_BYTES, 0, self->handle, 0) != 0) {
    memory_calls.release(self->handle);
    return false;
  }
  if (memory_calls.allow(self->address, BUFFER_BYTES, &allowed, 1) == 0) return true;
  buffer_unmap(self);
  return false;
}

/* The device of the current context; -1 if there is none. */
static inline int current_device(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int device = -1;
  pthread_once(&once, find_memory_calls);
  return memory_calls.device(&device) == 0 ? device : -1;
}

/* Allocates the memory on a device. */
static inline bool buffer_create(buffer *self, int device) {
  self->device = device;
  if (memory_calls.reserve(&self->address, BUFFER_BYTES, 0, 0, 0) != 0) return false;
  if (buffer_map(self)) return true;
  memory_calls.leave(self->address, BUFFER_BYTES);
  return false;
}

static inline void buffer_destroy(buffer *self) {
  buffer_unmap(self);
  RELEASE(memory_calls.leave(self->address, BUFFER_BYTES));
}

#endif
