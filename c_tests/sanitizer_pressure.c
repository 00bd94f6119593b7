/*
 * A program with little memory, so that the allocator moves memory between streams and synchronizes them. The sanitizer
 * must not report the allocator's own use of memory, and must not take its synchronization as the program's.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* alone: all; leaves memory */
#include "sanitizing.h"

enum { STREAMS = 6, HELD = 60, ROUNDS = 1500 };

static plinth_stream_t streams[STREAMS];
static void *held[HELD];
static uint64_t state;

static uint64_t random_below(uint64_t choices) { return random_next(&state) % choices; }

static void free_every_second_block(void) {
  for (int index = 0; index < HELD; index += 2) {
    CHECK_OK(plinth_caching_allocator_delete(held[index]));
    held[index] = NULL;
  }
}

/* Fills blocks in their own streams, and some then in other streams, which wait. Before the free, the other stream is
 * recorded or waited for. If `forgets` is not 0, one in `forgets` of these uses is neither. */
static void work(uint64_t seed, uint64_t forgets) {
  const double limit = 128.0 * (double)MIB / (double)total_memory(0);
  int failures = 0;
  state = seed;
  CHECK_OK(plinth_set_per_process_memory_fraction(limit < 1.0 ? limit : 1.0, 0));
  enable_sanitizer();
  for (int index = 0; index < STREAMS; index++) {
    streams[index] = stream_on(0);
  }
  for (int round = 0; round < ROUNDS; round++) {
    void **slot = &held[random_below(HELD)];
    plinth_stream_t own = streams[random_below(STREAMS)];
    plinth_stream_t user = streams[random_below(STREAMS)];
    const size_t bytes = random_below(4) != 0 ? 512 + random_below(MIB) : MIB + random_below(20 * MIB);
    if (*slot != NULL) {
      CHECK_OK(plinth_caching_allocator_delete(*slot));
      *slot = NULL;
      continue;
    }
    const plinth_status_t status = plinth_caching_allocator_alloc(bytes, 0, own, slot);
    if (status == PLINTH_ERROR_OUT_OF_MEMORY) {
      *slot = NULL;
      failures++;
      free_every_second_block();
      continue;
    }
    CHECK_OK(status);
    CHECK_OK(plinth_memset(*slot, 1, bytes, own));
    if (random_below(3) == 0) {
      wait_for(user, own);
      if (forgets != 0 && random_below(forgets) == 0) {
        /* Only reported, not done, because the memory may be unmapped before. */
        kernel("forgotten", WRITE, *slot, bytes, user);
        continue;
      }
      CHECK_OK(plinth_memset(*slot, 2, bytes, user));
      if (random_below(2) == 0) {
        CHECK_OK(plinth_record_stream(*slot, user));
      } else {
        wait_for(own, user);
      }
    }
  }
  CHECK(failures > 0);
  expect_sound();
}

TEST(clean_while_memory_is_short) {
  work(1, 0);
  CLEAN();
}

TEST(clean_while_memory_is_short_with_another_seed) {
  work(2, 0);
  CLEAN();
}

TEST(racy_while_memory_is_short) {
  work(3, 5);
  read_findings();
  CHECK(found > 0);
  for (size_t index = 0; index < found; index++) {
    CHECK_EQ(findings[index].kind, PLINTH_SANITIZER_REUSE);
    CHECK_EQ(findings[index].missing, PLINTH_SANITIZER_MISSING_RECORD_STREAM);
    CHECK_TEXT(findings[index].name, "plinth_memset");
    CHECK_TEXT(findings[index].previous_name, "forgotten");
    CHECK(findings[index].access.stream != findings[index].previous.stream);
  }
}
