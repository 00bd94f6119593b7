/*
 * Addresses that the driver gives to another owner. What the library remembers by address ends with the memory, also if another
 * library allocates and frees it. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; leaves reports */
#include "driver.h"
#include "sanitizing.h"

typedef int (*driver_alloc)(unsigned long long *memory, size_t bytes);
typedef int (*driver_free)(unsigned long long memory);

#define BYTES (20 * MIB)

/* The memory of another library. */
static unsigned char *foreign_alloc(void) {
  unsigned long long memory = 0;
  DRIVER(driver_alloc, alloc, "cuMemAlloc_v2");
  CHECK_EQ(alloc(&memory, BYTES), CUDA_SUCCESS);
  return (unsigned char *)(uintptr_t)memory;
}

static void foreign_free(void *memory) {
  DRIVER(driver_free, release_memory, "cuMemFree_v2");
  CHECK_EQ(release_memory((unsigned long long)(uintptr_t)memory), CUDA_SUCCESS);
}

/* Allocates as another library until the memory overlaps `old`. */
static unsigned char *foreign_at(const void *old) {
  enum { TRIES = 8 };
  unsigned char *memory[TRIES];
  unsigned char *same = NULL;
  int count = 0;
  for (; count < TRIES && same == NULL; count++) {
    memory[count] = foreign_alloc();
    if (overlap(memory[count], BYTES, old, BYTES)) {
      same = memory[count];
    }
  }
  while (count-- > 0) {
    if (memory[count] != same) {
      foreign_free(memory[count]);
    }
  }
  if (same == NULL) {
    SKIP("the driver does not reuse the address");
  }
  return same;
}

/* Lets the device's threads and the library's state begin, which would otherwise get the addresses. */
static void use_streams(plinth_stream_t a, plinth_stream_t b) {
  unsigned char *memory = foreign_alloc();
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_memset(memory, 1, BYTES, a));
    CHECK_OK(plinth_stream_synchronize(a));
    CHECK_OK(plinth_memset(memory, 1, BYTES, b));
    CHECK_OK(plinth_stream_synchronize(b));
  }
  foreign_free(memory);
}

static void expect_foreign(unsigned char *memory) {
  plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
  char *name = NULL;
  CHECK_OK(plinth_pointer_attributes(memory, &attributes));
  CHECK_EQ(attributes.owner, PLINTH_OWNER_PROGRAM);
  CHECK_STATUS(plinth_caching_allocator_delete(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_record_stream(memory, NULL), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_memory_get_name(memory, &name));
  CHECK_TEXT(name, "");
  plinth_string_free(name);
}

TEST(memory_of_another_library_at_one_address_has_no_race) {
  plinth_stream_t a = stream_on(0);
  plinth_stream_t b = stream_on(0);
  CHECK_OK(plinth_init());
  CHECK_OK(plinth_set_device(0));
  enable_sanitizer();
  use_streams(a, b);
  unsigned char *first = foreign_alloc();
  for (int round = 0; round < 4; round++) {
    CHECK_OK(plinth_memset(first, 1, BYTES, round % 2 ? b : a));
    foreign_free(first);
    first = foreign_at(first);
  }
  CLEAN();
  /* Within one allocation a race is found. */
  CHECK_OK(plinth_memset(first, 2, KIB, a));
  CHECK_OK(plinth_memset(first, 3, KIB, b));
  RACE(MISSING_WAIT, first, KIB, writes("plinth_memset", b), writes("plinth_memset", a));
  foreign_free(first);
}

TEST(memory_that_the_allocator_released_is_not_used_late) {
  harness_setenv("PLINTH_ALLOC_CONF", "expandable_segments:False");
  plinth_stream_t a = stream_on(0);
  plinth_stream_t b = stream_on(0);
  enable_sanitizer();
  use_streams(a, b);
  unsigned char *block = alloc_on(BYTES, 0, a);
  CHECK_OK(plinth_memory_set_name(block, "weights"));
  CHECK_OK(plinth_memset(block, 1, BYTES, a));
  release(block);
  CHECK_OK(plinth_stream_synchronize(a));
  CHECK_OK(plinth_empty_cache());
  unsigned char *memory = foreign_at(block);
  CHECK_OK(plinth_memset(memory, 2, BYTES, b));
  CLEAN();
  expect_foreign(memory);
  foreign_free(memory);
  /* The addresses go to a block again. */
  block = alloc_on(BYTES, 0, a);
  CHECK_OK(plinth_memset(block, 1, BYTES, a));
  CLEAN();
  release(block);
  CHECK_OK(plinth_memset(block, 1, KIB, a));
  USE_AFTER_FREE(block, KIB, writes("plinth_memset", a));
}

TEST(a_name_ends_with_memory_that_another_library_freed) {
  CHECK_OK(plinth_init());
  CHECK_OK(plinth_set_device(0));
  char *name = NULL;
  unsigned char *first = foreign_alloc();
  CHECK_OK(plinth_memory_set_name(first + 100, "weights"));
  CHECK_OK(plinth_memory_get_name(first + 200, &name));
  CHECK_TEXT(name, "weights");
  plinth_string_free(name);
  foreign_free(first);
  unsigned char *second = foreign_at(first);
  expect_foreign(second);
  CHECK_STATUS(plinth_caching_allocator_delete(second), PLINTH_ERROR_INVALID_POINTER);
  CHECK(strstr(plinth_last_error(), "weights") == NULL);
  foreign_free(second);
}

/* The cache of pinned memory gives its memory back, too. */
TEST(pinned_memory_that_the_cache_released_is_the_programs) {
  void *cached = NULL;
  CHECK_OK(plinth_host_alloc(BYTES, &cached));
  CHECK_OK(plinth_memory_set_name(cached, "batch"));
  CHECK_OK(plinth_host_free(cached));
  CHECK_OK(plinth_host_empty_cache());
  void *pinned[8];
  bool same = false;
  int count = 0;
  for (; count < 8 && !same; count++) {
    pinned[count] = pinned_memory(BYTES);
    same = pinned[count] == cached;
  }
  if (same) {
    plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
    char *name = NULL;
    CHECK_OK(plinth_pointer_attributes(cached, &attributes));
    CHECK_EQ(attributes.owner, PLINTH_OWNER_PROGRAM);
    CHECK_OK(plinth_memory_get_name(cached, &name));
    CHECK_TEXT(name, "");
    plinth_string_free(name);
    CHECK_STATUS(plinth_host_free(cached), PLINTH_ERROR_INVALID_POINTER);
  }
  while (count-- > 0) {
    CHECK_OK(plinth_pinned_free(pinned[count]));
  }
}
