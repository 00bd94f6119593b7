// Copies of one thread to shared memory. They are complete when they begin.
#pragma once
#include <cuda_awbarrier_primitives.h>
#include <stddef.h>

// Copies 4, 8 or 16 bytes, of which the last `zero_fill` become 0 instead.
static inline void __pipeline_memcpy_async(void *to, const void *from, size_t size, size_t zero_fill = 0,
                                           plinth_host::Site site = plinth_host::Site::here()) {
  if ((size != 4 && size != 8 && size != 16) || zero_fill > size) {
    plinth_host::trap("__pipeline_memcpy_async: a copy has 4, 8 or 16 bytes", site);
  }
  if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & (size - 1)) != 0) {
    plinth_host::trap("__pipeline_memcpy_async: addresses are multiples of the size of the copy", site);
  }
  __builtin_memmove(to, from, size - zero_fill);
  __builtin_memset(static_cast<char *>(to) + (size - zero_fill), 0, zero_fill);
}
static inline void __pipeline_commit() {}
static inline void __pipeline_wait_prior(size_t) {}
// The copies need no arrival of their own at the barrier.
static inline void __pipeline_arrive_on(__mbarrier_t *) {}
