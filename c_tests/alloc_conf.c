/* What the environment says of the allocator. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "allocating.h"

static void configure(const char *text) { CHECK(setenv("PLINTH_ALLOC_CONF", text, 1) == 0); }

static uint64_t calls_of(const char *name) {
  uint64_t count = UNTOUCHED;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

static void use_memory(void) {
  void *memory = alloc_on(3 * MIB, 0, NULL);
  CHECK_OK(plinth_memset(memory, 1, 3 * MIB, NULL));
  release(memory);
}

static void expect_pages(bool pages) {
  CHECK_OK(plinth_enable_fault_injection());
  use_memory();
  /* Every CUDA device that is tested on can map memory. */
  CHECK_EQ(calls_of("cuMemCreate") > 0, pages);
  CHECK_EQ(calls_of("cuMemAlloc") > 0, !pages);
  expect_nothing_left();
}

TEST(nothing_said) {
  CHECK(unsetenv("PLINTH_ALLOC_CONF") == 0);
  expect_pages(true);
}

TEST(an_empty_text) {
  configure("");
  expect_pages(true);
}

TEST(expandable_segments) {
  configure("expandable_segments:True");
  expect_pages(true);
}

TEST(plain_segments) {
  configure("expandable_segments:False");
  expect_pages(false);
}

TEST(blanks_do_not_matter) {
  configure(" expandable_segments : False , ");
  expect_pages(false);
}

TEST(the_last_word_counts) {
  configure("expandable_segments:True,expandable_segments:False");
  expect_pages(false);
}

/* The call that meets it says so, gives nothing, and works once the text is right. */
static void expect_refused(const char *text, const char *part) {
  void *pointer = UNTOUCHED_POINTER;
  configure(text);
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, NULL, &pointer), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_ALLOC_CONF");
  CHECK_MESSAGE(part);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK(plinth_alloc(1024, 0, NULL) == NULL);
  CHECK_MESSAGE("PLINTH_ALLOC_CONF");
  CHECK_EQ(allocated(0), 0);
  CHECK_OK(plinth_empty_cache());
  expect_sound();
}

TEST(a_text_that_makes_no_sense) {
  static const char *const texts[][2] = {
      {"expandable_segments", "expandable_segments"}, {"expandable_segments:", "True"},
      {"expandable_segments:yes", "yes"},             {"expandable_segments:true", "true"},
      {"expandable_segment:True", "expandable_segment"}, {":", "key"},
      {"nonsense", "nonsense"},                       {"expandable_segments:True,x:1", "x"},
  };
  for (int index = 0; index < 8; index++) {
    expect_refused(texts[index][0], texts[index][1]);
  }
  configure("expandable_segments:True");
  use_memory();
  expect_nothing_left();
}

TEST(it_is_read_once) {
  configure("expandable_segments:True");
  use_memory();
  configure("nonsense");
  use_memory();
  if (device_count() > 1) {
    release(alloc_on(MIB, 1, NULL));
  }
  expect_nothing_left();
}
