/*
 * Each driver call of each function for pinned memory fails once. The function reports an error or recovers. In both cases the
 * allocator stays consistent, the function can be called again, and nothing leaks.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "faults.h"
#include "graphing.h"
#include "pinning.h"

#include <sys/mman.h>

static plinth_stream_t own, other;
static unsigned char *device_buffer, *pages;

enum { BYTES = 3 << 20 };

static unsigned char *try_pin(size_t bytes) {
  void *pointer = UNTOUCHED_POINTER;
  const size_t before = pinned_active();
  if (!ATTEMPT(plinth_host_alloc(bytes, &pointer))) {
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
    CHECK(pinned_active() <= before);
    return NULL;
  }
  return (unsigned char *)pointer;
}

/* A free succeeds for the caller even if a driver call fails. */
static void use_cache(void) {
  unsigned char *small = try_pin(5000);
  unsigned char *large = try_pin(BYTES);
  bool pinned = false;
  plinth_pointer_attributes_t found = PLINTH_POINTER_ATTRIBUTES_INIT;
  if (small != NULL) {
    (void)ATTEMPT(plinth_memcpy(device_buffer, small, 5000, own));
    (void)ATTEMPT(plinth_memset(small, 1, 5000, other));
    (void)ATTEMPT(plinth_pointer_attributes(small, &found));
    CHECK_OK(plinth_host_free(small));
  }
  if (large != NULL) {
    (void)ATTEMPT(plinth_host_record_stream(large, other));
    (void)ATTEMPT(plinth_copy(device_buffer, large, BYTES, true));
    CHECK_OK(plinth_host_free(large));
  }
  large = try_pin(BYTES);
  CHECK_OK(plinth_host_free(large));
  (void)ATTEMPT(plinth_is_pinned(device_buffer, &pinned));
  (void)ATTEMPT(plinth_host_empty_cache());
}

static void capture(void) {
  unsigned char *memory = try_pin(5000);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_set_stream(own));
  if (ATTEMPT(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL))) {
    (void)ATTEMPT(plinth_memset(device_buffer, 1, 100, own));
    if (memory != NULL) {
      (void)ATTEMPT(plinth_memcpy(device_buffer, memory, 5000, own));
    }
    (void)ATTEMPT(plinth_graph_capture_end(graph));
  }
  CHECK_OK(plinth_host_free(memory));
  RETRY(plinth_graph_destroy(graph));
}

static void managed_and_registered(void) {
  void *managed = NULL;
  if (ATTEMPT(plinth_managed_malloc(MIB, last_device, &managed))) {
    RETRY(plinth_managed_free(managed));
  }
  if (ATTEMPT(plinth_host_register(pages, MIB, PLINTH_HOST_REGISTER_PORTABLE))) {
    RETRY(plinth_host_unregister(pages));
  }
}

static void set_up(void) {
  own = stream_on(0);
  other = stream_on(last_device);
  device_buffer = (unsigned char *)device_memory(BYTES, 0);
  pages = (unsigned char *)mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
}

/* Without a fault all memory is freed. The driver frees resources of graphs some time after their destruction. */
static bool no_memory_left(void) {
  CHECK_OK(plinth_host_empty_cache());
  return pinned_active() == 0;
}

static void expect_no_memory_left(void) {
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_synchronize(last_device));
  EVENTUALLY(no_memory_left());
  expect_nothing_pinned();
  CHECK_OK(plinth_empty_cache());
  if (on_host_device()) {
    CHECK_EQ(host_usage().pinned_bytes, 0);
  }
}

static void expect_device_memory_back(const plinth_host_usage_t *before, const plinth_host_usage_t *after) {
  CHECK_EQ(after->device_bytes, before->device_bytes);
}

static const fault_plan pinned_plan = {
    .set_up = set_up,
    .inspect = expect_no_memory_left,
    .after_call = expect_sound,
    .compare = expect_device_memory_back,
    .report = FAULT_MAY_MEAN_NO_MEMORY,
    .kinds = KINDS_WITH_CONTEXT,
    .warm_up = 1,
};

TEST(the_cache_survives_faults) { survive_faults(&pinned_plan, use_cache); }
TEST(a_capture_survives_faults) { survive_faults(&pinned_plan, capture); }
TEST(managed_and_registered_memory_survives_faults) { survive_faults(&pinned_plan, managed_and_registered); }

static plinth_status_t status_of_request;
static void *requested;

static void request_more(void) { status_of_request = plinth_host_alloc(9 * MIB, &requested); }

/* If the driver is out of memory, the cache is released and the allocation is retried. */
TEST(out_of_memory_releases_the_cache_and_retries) {
  plan = &pinned_plan;
  begin_process();
  unpin(pin(5 * MIB));
  for (uint64_t nth = 1; nth < 100; nth++) {
    requested = NULL;
    const char *call = run_armed(request_more, nth, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(call != NULL);
    if (strcmp(call, "cuMemHostAlloc") == 0) {
      CHECK_EQ(status_of_request, PLINTH_OK);
      CHECK_EQ(pinned_held(), 9 * MIB);
      unpin(requested);
      expect_no_memory_left();
      return;
    }
    if (status_of_request == PLINTH_OK) {
      unpin(requested);
      CHECK_OK(plinth_host_empty_cache());
      unpin(pin(5 * MIB));
    }
  }
  CHECK(false);
}
