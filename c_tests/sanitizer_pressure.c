/*
 * A program whose memory is short, so that the allocator moves memory between streams and makes them wait: what it does for
 * itself is no fault of the program's, and orders nothing for it. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* alone: all; leaves memory */
#include "sanitizing.h"

enum { STREAMS = 6, HELD = 60, ROUNDS = 1500 };

static plinth_stream_t streams[STREAMS];
static void *held[HELD];
static uint64_t state;

static uint64_t chance(uint64_t choices) { return random_next(&state) % choices; }

static void give_half_back(void) {
  for (int index = 0; index < HELD; index += 2) {
    CHECK_OK(plinth_caching_allocator_delete(held[index]));
    held[index] = NULL;
  }
}

/* Blocks are filled in their own streams, and some then in others behind these; before a free the other stream is recorded, or
 * waited for, or, where `forgets` is not 0, forgotten once in so many times. */
static void work(uint64_t seed, uint64_t forgets) {
  const double limit = 128.0 * (double)MIB / (double)total_memory(0);
  int failures = 0;
  state = seed;
  CHECK_OK(plinth_set_per_process_memory_fraction(limit < 1.0 ? limit : 1.0, 0));
  judge();
  for (int index = 0; index < STREAMS; index++) {
    streams[index] = stream_on(0);
  }
  for (int round = 0; round < ROUNDS; round++) {
    void **slot = &held[chance(HELD)];
    plinth_stream_t own = streams[chance(STREAMS)];
    plinth_stream_t user = streams[chance(STREAMS)];
    const size_t bytes = chance(4) != 0 ? 512 + chance(MIB) : MIB + chance(20 * MIB);
    if (*slot != NULL) {
      CHECK_OK(plinth_caching_allocator_delete(*slot));
      *slot = NULL;
      continue;
    }
    const plinth_status_t status = plinth_caching_allocator_alloc(bytes, 0, own, slot);
    if (status == PLINTH_ERROR_OUT_OF_MEMORY) {
      *slot = NULL;
      failures++;
      give_half_back();
      continue;
    }
    CHECK_OK(status);
    CHECK_OK(plinth_memset(*slot, 1, bytes, own));
    if (chance(3) == 0) {
      order(user, own);
      if (forgets != 0 && chance(forgets) == 0) {
        /* Told, and not done: the memory may be gone before. */
        kernel("forgotten", WRITE, *slot, bytes, user);
        continue;
      }
      CHECK_OK(plinth_memset(*slot, 2, bytes, user));
      if (chance(2) == 0) {
        CHECK_OK(plinth_record_stream(*slot, user));
      } else {
        order(own, user);
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

TEST(clean_while_memory_is_short_otherwise) {
  work(2, 0);
  CLEAN();
}

TEST(racy_while_memory_is_short) {
  work(3, 5);
  look_at_findings();
  CHECK(found > 0);
  for (size_t index = 0; index < found; index++) {
    CHECK_EQ(findings[index].kind, PLINTH_SANITIZER_REUSE);
    CHECK_EQ(findings[index].missing, PLINTH_SANITIZER_MISSING_RECORD_STREAM);
    CHECK_TEXT(findings[index].name, "plinth_memset");
    CHECK_TEXT(findings[index].previous_name, "forgotten");
    CHECK(findings[index].access.stream != findings[index].previous.stream);
  }
}
