/*
 * Helpers for tests of the caching allocator.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef ALLOCATING_H
#define ALLOCATING_H

#include "support.h"

/* Block sizes are multiples of this. */
#define UNIT ((size_t)512)

static inline size_t rounded(size_t bytes) { return (bytes + UNIT - 1) / UNIT * UNIT; }

/* Allocates from the caching allocator. Free with `release`. */
static inline unsigned char *alloc_on(size_t bytes, int32_t device, plinth_stream_t stream) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_caching_allocator_alloc(bytes, device, stream, &pointer));
  CHECK(pointer != NULL && pointer != UNTOUCHED_POINTER);
  CHECK_EQ((uintptr_t)pointer % UNIT, 0);
  return (unsigned char *)pointer;
}

static inline void release(void *pointer) { CHECK_OK(plinth_caching_allocator_delete(pointer)); }

static inline size_t allocated(int32_t device) {
  size_t bytes = UNTOUCHED;
  CHECK_OK(plinth_memory_allocated(device, &bytes));
  return bytes;
}

static inline size_t max_allocated(int32_t device) {
  size_t bytes = UNTOUCHED;
  CHECK_OK(plinth_max_memory_allocated(device, &bytes));
  return bytes;
}

static inline size_t reserved(int32_t device) {
  size_t bytes = UNTOUCHED;
  CHECK_OK(plinth_memory_reserved(device, &bytes));
  return bytes;
}

static inline size_t max_reserved(int32_t device) {
  size_t bytes = UNTOUCHED;
  CHECK_OK(plinth_max_memory_reserved(device, &bytes));
  return bytes;
}

/* The driver's free memory. On a GPU other processes can change it at any time; the host device is private to a process. */
static inline size_t free_memory(int32_t device) {
  size_t available = 0;
  size_t total = 0;
  CHECK_OK(plinth_mem_get_info(device, &available, &total));
  return available;
}

static inline size_t total_memory(int32_t device) {
  size_t available = 0;
  size_t total = 0;
  CHECK_OK(plinth_mem_get_info(device, &available, &total));
  return total;
}

/* Runs the allocator's internal consistency check. */
static inline void expect_sound(void) { CHECK_OK(plinth_testing_check_allocator()); }

/* No block is allocated, and an emptied cache reserves nothing. */
static inline void expect_nothing_left(void) {
  int32_t device;
  expect_sound();
  for (device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
    CHECK_EQ(allocated(device), 0);
  }
  CHECK_OK(plinth_empty_cache());
  expect_sound();
  for (device = 0; device < device_count(); device++) {
    CHECK_EQ(allocated(device), 0);
    CHECK_EQ(reserved(device), 0);
  }
}

/* The backend cannot allocate in a capture: it refuses, with `text` in the message. Memory that is freed during the capture
 * is released when the capture ends. */
static inline void expect_no_memory_for_captures(const char *text) {
  plinth_graph_t graph = NULL;
  void *memory = UNTOUCHED_POINTER;
  plinth_stream_t stream = stream_on(0);
  unsigned char *before = alloc_on(MIB, 0, stream);
  unsigned char *used = alloc_on(MIB, 0, stream);
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_memset(used, 1, MIB, stream));
  CHECK_STATUS(plinth_caching_allocator_alloc(MIB, 0, stream, &memory), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_MESSAGE(text);
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  release(before);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  release(used);
  CHECK_OK(plinth_stream_synchronize(stream));
  expect_nothing_left();
}

/* The handles or segments that the allocator has created on device 0 so far. */
static inline int64_t created_handles(void) {
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  CHECK_OK(plinth_memory_stats(0, &stats));
  return stats.num_device_alloc;
}

/* Limits a device's allocator to `bytes` and half a MiB, since a fraction cannot express an exact number of bytes. */
static inline void limit_memory(size_t bytes, int32_t device) {
  const double fraction = ((double)bytes + (double)(MIB / 2)) / (double)total_memory(device);
  CHECK_OK(plinth_set_per_process_memory_fraction(fraction, device));
}

static inline void lift_limit(int32_t device) { CHECK_OK(plinth_set_per_process_memory_fraction(1.0, device)); }

static inline bool overlap(const void *one, size_t one_bytes, const void *other, size_t other_bytes) {
  const uintptr_t first = (uintptr_t)one;
  const uintptr_t second = (uintptr_t)other;
  return first < second + other_bytes && second < first + one_bytes;
}

/* Whether the cache reuses `old`: allocates blocks of a size until the allocator reserves more memory. */
static inline bool comes_back(const void *old, size_t bytes, int32_t device, plinth_stream_t stream) {
  enum { MAX_BLOCKS = 5000 };
  void **blocks = (void **)pageable_memory(MAX_BLOCKS * sizeof *blocks);
  int count = 0;
  bool found = false;
  const size_t held = reserved(device);
  while (!found && count < MAX_BLOCKS && reserved(device) == held) {
    blocks[count] = alloc_on(bytes, device, stream);
    found = overlap(blocks[count++], bytes, old, bytes);
  }
  while (count > 0) {
    release(blocks[--count]);
  }
  free(blocks);
  return found;
}

/* Fills a block with a word, in stream order. The size must be a multiple of 4. */
static inline void fill_words(void *memory, uint32_t word, size_t bytes, plinth_stream_t stream) {
  CHECK_OK(plinth_memset_pattern(memory, &word, sizeof word, bytes, stream));
}

/* The offset in bytes of the first word that differs; `bytes` if none does. */
static inline size_t words_mismatch(const void *host, uint32_t word, size_t bytes) {
  const uint32_t *in = (const uint32_t *)host;
  size_t index;
  for (index = 0; index < bytes / 4 && in[index] == word; index++) {
  }
  return index * 4;
}

/* Whether a block is filled with `word` when the stream's queued work is done. Waits for the stream. */
static inline bool has_words(const void *memory, uint32_t word, size_t bytes, plinth_stream_t stream, void *pinned) {
  CHECK_OK(plinth_memcpy(pinned, memory, bytes, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  return words_mismatch(pinned, word, bytes) == bytes;
}

static inline void *open_gate_after_timeout(void *context) {
  const double end = seconds_now() + 10;
  while (!gate_is_open((gate *)context) && seconds_now() < end) {
    sleep_milliseconds(5);
  }
  gate_open((gate *)context);
  return NULL;
}

/* A GPU's driver loads code at the first fill or copy, and may then wait for all work on the device. */
static inline void warm_up(void) {
  static bool warm;
  void *memory;
  void *pinned;
  if (warm || on_host_device()) {
    return;
  }
  warm = true;
  memory = device_memory(KIB, -1);
  pinned = pinned_memory(KIB);
  CHECK_OK(plinth_memset(memory, 1, KIB, NULL));
  fill_words(memory, 1, KIB, NULL);
  CHECK_OK(plinth_memcpy(pinned, memory, KIB, NULL));
  CHECK_OK(plinth_sleep(1, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
}

/*
 * Shuts a gate around calls that must not wait for the stream. If a call waits, the gate opens by itself after ten seconds,
 * and `expect_held` fails.
 */
static inline gate *hold(plinth_stream_t stream) {
  pthread_t thread;
  gate *shut;
  warm_up();
  shut = gate_shut(stream);
  CHECK(pthread_create(&thread, NULL, open_gate_after_timeout, shut) == 0);
  CHECK(pthread_detach(thread) == 0);
  return shut;
}

static inline void expect_held(const gate *shut) { CHECK(!gate_is_open(shut)); }

#endif
