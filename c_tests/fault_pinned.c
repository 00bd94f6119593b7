/*
 * Every driver call made to fail, once, in every call of pinned memory. A call that meets the fault gives an error or
 * finds another way; either way the allocator is sound after it, what was not done can be done again, and nothing is
 * lost.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* timeout: 240 */
/* alone: all; enables fault injection, which comes before everything else */
#include "driver.h"
#include "graphing.h"
#include "pinning.h"
#include "process.h"

#include <sys/mman.h>

static struct {
  bool failed;
  char call[256];
} failure;

static int32_t last;
static plinth_stream_t own, other;
static unsigned char *there, *pages;

enum { BYTES = 3 << 20 };

static bool attempt(plinth_status_t status, const char *call) {
  if (status == PLINTH_OK) {
    expect_sound();
    return true;
  }
  if (plinth_tripped_fault() == NULL || failure.failed) {
    fprintf(stderr, "%s fails: \"%s\"; after %s\n", call, plinth_last_error(), failure.call);
    CHECK_OK(status);
  }
  failure.failed = true;
  snprintf(failure.call, sizeof failure.call, "%s", call);
  CHECK(plinth_last_error()[0] != '\0');
  CHECK(status == PLINTH_ERROR_OUT_OF_MEMORY || status == PLINTH_ERROR_DRIVER);
  expect_sound();
  return false;
}

/* A call that may meet the fault. */
#define ATTEMPT(call) attempt((call), #call)

/* The same for one that gives something back: if it fails it did nothing, and can be made again. */
#define GIVE_BACK(call)   \
  do {                    \
    if (!ATTEMPT(call)) { \
      CHECK_OK(call);     \
    }                     \
  } while (0)

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
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_init());
  last = device_count() - 1;
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
  CHECK_OK(plinth_inject_fault(0, 0));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_synchronize(last));
  EVENTUALLY(all_is_back());
  expect_nothing_pinned();
  CHECK_OK(plinth_empty_cache());
  if (on_host_device()) {
    CHECK_EQ(host_usage().pinned_bytes, 0);
  }
}

static const int32_t codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, 12345};

static void survive(void (*scenario)(void)) {
  set_up();
  scenario();
  settle();
  for (int index = 0; index < 3; index++) {
    for (uint64_t nth = 1;; nth++) {
      CHECK(nth < 500);
      const uint64_t before = on_host_device() ? host_usage().device_bytes : 0;
      failure.failed = false;
      CHECK_OK(plinth_inject_fault(nth, codes[index]));
      scenario();
      const bool met = plinth_tripped_fault() != NULL;
      settle();
      if (on_host_device()) {
        CHECK_EQ(host_usage().device_bytes, before);
      }
      scenario();
      settle();
      if (!met) {
        break;
      }
    }
  }
}

TEST(the_cache_survives) { survive(cache); }
TEST(a_capture_survives) { survive(capture); }
TEST(other_kinds_of_memory_survive) { survive(other_kinds); }

/* The driver says that there is no memory: it is given what is free, and asked again. */
TEST(a_shortage_is_overcome_with_what_is_free) {
  set_up();
  unpin(pin(5 * MIB));
  for (uint64_t nth = 1; nth < 100; nth++) {
    void *pointer = NULL;
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_OUT_OF_MEMORY));
    const plinth_status_t status = plinth_host_alloc(9 * MIB, &pointer);
    const char *call = plinth_tripped_fault();
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK(call != NULL);
    if (strcmp(call, "cuMemHostAlloc") == 0) {
      CHECK_EQ(status, PLINTH_OK);
      CHECK_EQ(pinned_held(), 9 * MIB);
      unpin(pointer);
      settle();
      return;
    }
    if (status == PLINTH_OK) {
      unpin(pointer);
      CHECK_OK(plinth_host_empty_cache());
      unpin(pin(5 * MIB));
    }
  }
  CHECK(false);
}
