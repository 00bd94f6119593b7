/* The sanitizer's reports of accesses past the end of a block, and the places in its errors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "allocating.h"
#include "graphing.h"
#include "sanitizing.h"

#define OUT_OF_BOUNDS(address, bytes, access)                                                                              \
  expect_report(PLINTH_SANITIZER_OUT_OF_BOUNDS, PLINTH_SANITIZER_MISSING_LARGER_BLOCK, address, bytes, access, no_access, \
                __FILE__, __LINE__)

static void expect_text(const char *part) {
  char *text = NULL;
  CHECK_OK(plinth_sanitizer_text(&text));
  if (strstr(text, part) == NULL) {
    fprintf(stderr, "\"%s\" is not in\n%s", part, text);
    harness_fail(__FILE__, __LINE__, "the report lacks a part");
  }
  plinth_string_free(text);
}

TEST(a_fill_past_the_end_names_block_and_size) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *block = (unsigned char *)alloc_on(4 * KIB, 0, stream);
  char where[128];
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  CHECK_OK(plinth_memset(block, 1, 4 * KIB, stream));
  CLEAN();
  CHECK_OK(plinth_memset(block + KIB, 1, 8 * KIB, stream));
  OUT_OF_BOUNDS(block + 4 * KIB, 5 * KIB, writes("plinth_memset", stream));
  snprintf(where, sizeof where, "writes 8.00 KiB from byte 1024 of a block of 4.00 KiB at %#zx: 5.00 KiB lie past its end",
           (size_t)block);
  expect_text(where);
  expect_text("out of bounds: ");
  expect_text("the block: 4.00 KiB from ");
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_stream_synchronize(stream));
  release(block);
}

TEST(both_ends_of_a_copy_are_checked) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *small = (unsigned char *)alloc_on(KIB, 0, stream);
  unsigned char *large = (unsigned char *)alloc_on(8 * KIB, 0, stream);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  CHECK_STATUS(plinth_memcpy(large, small, 2 * KIB, stream), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("out of bounds: \"plinth_memcpy\"");
  CHECK_MESSAGE("reads 2.00 KiB from byte 0 of a block of 1.00 KiB at ");
  OUT_OF_BOUNDS(small + KIB, KIB, reads("plinth_memcpy", stream));
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_STATUS(plinth_memcpy(small, large, 2 * KIB, stream), PLINTH_ERROR_RACE);
  OUT_OF_BOUNDS(small + KIB, KIB, writes("plinth_memcpy", stream));
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_memcpy(large, small, KIB, stream));
  CLEAN();
  CHECK_OK(plinth_sanitizer_disable());
  release(small);
  release(large);
}

TEST(a_captured_access_is_checked_once) {
  plinth_stream_t stream = on_new_stream(0);
  unsigned char *block = (unsigned char *)alloc_on(4 * KIB, 0, stream);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_memset(block, 1, 4 * KIB, stream));
  CHECK_STATUS(plinth_memset(block, 1, 4 * KIB + 1, stream), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("1 bytes lie past its end");
  void *own = alloc_on(KIB, 0, stream);
  CHECK_STATUS(plinth_memset(own, 1, 2 * KIB, stream), PLINTH_ERROR_RACE);
  CHECK_OK(plinth_memset(own, 1, KIB, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_graph_replay(graph));
  CLEAN();
  finish(stream);
  CHECK_OK(plinth_sanitizer_disable());
  release(own);
  release(block);
  CHECK_OK(plinth_graph_destroy(graph));
}

__attribute__((noinline)) static plinth_status_t fill_in_first(void *memory, plinth_stream_t stream) {
  const plinth_status_t status = plinth_memset(memory, 1, KIB, stream);
  __asm__ volatile("" ::: "memory"); /* no tail call */
  return status;
}

__attribute__((noinline)) static plinth_status_t fill_in_second(void *memory, plinth_stream_t stream) {
  const plinth_status_t status = plinth_memset(memory, 2, KIB, stream);
  __asm__ volatile("" ::: "memory");
  return status;
}

TEST(an_error_names_the_place_of_each_access) {
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(0);
  void *memory = device_memory(KIB, 0);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  CHECK_OK(fill_in_first(memory, first));
  CHECK_STATUS(fill_in_second(memory, second), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("; the access is in fill_in_second (");
  CHECK_MESSAGE("; the earlier access is in fill_in_first (");
  CHECK_MESSAGE("sanitizer_bounds.c:");
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_device_free(memory));
}

__attribute__((noinline)) static void *make_block(plinth_stream_t stream) {
  void *memory = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(KIB, 0, stream, &memory));
  return memory;
}

__attribute__((noinline)) static void drop_block(void *memory) {
  CHECK_OK(plinth_caching_allocator_delete(memory));
  __asm__ volatile("" ::: "memory");
}

TEST(an_error_names_the_allocation_and_the_free_of_the_block) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  void *memory = make_block(stream);
  CHECK_STATUS(plinth_memset(memory, 1, 2 * KIB, stream), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("; the block was allocated in make_block (");
  drop_block(memory);
  CHECK_STATUS(fill_in_first(memory, stream), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("use after free: ");
  CHECK_MESSAGE("; the access is in fill_in_first (");
  CHECK_MESSAGE("; the block was allocated in make_block (");
  CHECK_MESSAGE("; it was freed in drop_block (");
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(plinth_sanitizer_clear());
}
