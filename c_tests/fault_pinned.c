/*
 * Every driver call made to fail, once, in every call of pinned memory. A call that meets the fault gives an error or
 * finds another way; either way the allocator is sound after it, what was not done can be done again, and nothing is
 * lost.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* timeout: 240 */
/* alone: all; enables fault injection, which comes before everything else */
#include "faults.h"
#include "graphing.h"
#include "pinning.h"

#include <sys/mman.h>

static plinth_stream_t own, other;
static unsigned char *there, *pages;

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

/* What is freed is not the caller's any more, whatever the driver says. */
static void cache(void) {
  unsigned char *small = try_pin(5000);
  unsigned char *large = try_pin(BYTES);
  bool pinned = false;
  plinth_pointer_attributes_t found = PLINTH_POINTER_ATTRIBUTES_INIT;
  if (small != NULL) {
    (void)ATTEMPT(plinth_memcpy(there, small, 5000, own));
    (void)ATTEMPT(plinth_memset(small, 1, 5000, other));
    (void)ATTEMPT(plinth_pointer_attributes(small, &found));
    CHECK_OK(plinth_host_free(small));
  }
  if (large != NULL) {
    (void)ATTEMPT(plinth_host_record_stream(large, other));
    (void)ATTEMPT(plinth_copy(there, large, BYTES, true));
    CHECK_OK(plinth_host_free(large));
  }
  large = try_pin(BYTES);
  CHECK_OK(plinth_host_free(large));
  (void)ATTEMPT(plinth_is_pinned(there, &pinned));
  (void)ATTEMPT(plinth_host_empty_cache());
}

static void capture(void) {
  unsigned char *memory = try_pin(5000);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_set_stream(own));
  if (ATTEMPT(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL))) {
    (void)ATTEMPT(plinth_memset(there, 1, 100, own));
    if (memory != NULL) {
      (void)ATTEMPT(plinth_memcpy(there, memory, 5000, own));
    }
    (void)ATTEMPT(plinth_graph_capture_end(graph));
  }
  CHECK_OK(plinth_host_free(memory));
  GIVE_BACK(plinth_graph_destroy(graph));
}

static void other_kinds(void) {
  void *managed = NULL;
  if (ATTEMPT(plinth_managed_malloc(MIB, last, &managed))) {
    GIVE_BACK(plinth_managed_free(managed));
  }
  if (ATTEMPT(plinth_host_register(pages, MIB, PLINTH_HOST_REGISTER_PORTABLE))) {
    GIVE_BACK(plinth_host_unregister(pages));
  }
}

static void set_up(void) {
  own = stream_on(0);
  other = stream_on(last);
  there = (unsigned char *)device_memory(BYTES, 0);
  pages = (unsigned char *)mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
}

/* With no fault, all that was left behind comes back. The tickets of graphs do so some time later. */
static bool all_is_back(void) {
  CHECK_OK(plinth_host_empty_cache());
  return pinned_active() == 0;
}

static void settle(void) {
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_synchronize(last));
  EVENTUALLY(all_is_back());
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
    .inspect = settle,
    .after_call = expect_sound,
    .compare = expect_device_memory_back,
    .report = FAULT_MAY_MEAN_NO_MEMORY,
    .kinds = KINDS_WITH_CONTEXT,
    .warm_up = 1,
};

TEST(the_cache_survives) { survive_faults(&pinned_plan, cache); }
TEST(a_capture_survives) { survive_faults(&pinned_plan, capture); }
TEST(other_kinds_of_memory_survive) { survive_faults(&pinned_plan, other_kinds); }

static plinth_status_t status_of_request;
static void *requested;

static void request_more(void) { status_of_request = plinth_host_alloc(9 * MIB, &requested); }

/* If the driver has no memory, the cache is released and the driver is asked again. */
TEST(a_shortage_is_overcome_with_what_is_free) {
  plan = &pinned_plan;
  begin_faults();
  unpin(pin(5 * MIB));
  for (uint64_t nth = 1; nth < 100; nth++) {
    requested = NULL;
    const char *call = run_armed(request_more, nth, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(call != NULL);
    if (strcmp(call, "cuMemHostAlloc") == 0) {
      CHECK_EQ(status_of_request, PLINTH_OK);
      CHECK_EQ(pinned_held(), 9 * MIB);
      unpin(requested);
      settle();
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
