/*
 * Proof from the device's side that live memory is nobody else's: streams write a word over each block, take their
 * time, and copy it out, while the CPU has long given the block back and goes on. What was copied must be what was
 * written.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 120 */
#include "allocating.h"

enum { SLOTS = 600, SLOT_BYTES = 64 * 1024, STREAMS = 6 };

/* Where results go: a slot for each block, with the word that must be in it. */
static unsigned char *slots;
static uint32_t words[SLOTS];
static size_t slot_bytes[SLOTS];
static int used;

static plinth_stream_t streams[STREAMS];

static void begin(int32_t device) {
  slots = (unsigned char *)pinned_memory((size_t)SLOTS * SLOT_BYTES);
  memset(slots, 0, (size_t)SLOTS * SLOT_BYTES);
  for (int index = 0; index < STREAMS; index++) {
    streams[index] = index == 0 ? NULL : stream_on(device);
  }
  used = 0;
}

static void end(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
  for (int index = 0; index < used; index++) {
    const size_t right = words_mismatch(slots + (size_t)index * SLOT_BYTES, words[index], slot_bytes[index]);
    if (right != slot_bytes[index]) {
      fprintf(stderr, "block %d of %d has another's word at byte %zu\n", index, used, right);
    }
    CHECK_EQ(right, slot_bytes[index]);
  }
  CHECK(used > 0);
  CHECK_OK(plinth_pinned_free(slots));
  expect_nothing_left();
}

/* Copies a part of a block, its end included, to the next slot, in a stream. */
static void copy_out(const unsigned char *memory, size_t bytes, uint32_t word, plinth_stream_t stream) {
  const size_t part = bytes < SLOT_BYTES ? bytes : SLOT_BYTES;
  CHECK(used < SLOTS);
  words[used] = word;
  slot_bytes[used] = part;
  CHECK_OK(plinth_memcpy(slots + (size_t)used * SLOT_BYTES, memory + (bytes - part), part, stream));
  used++;
}

static size_t some_size(uint64_t *state, size_t most) { return 4 * (1 + random_next(state) % (most / 4)); }

/* Long enough for everything that is queued after it elsewhere to overtake it. */
static void take_time(uint64_t *state, plinth_stream_t stream) {
  CHECK_OK(plinth_sleep(100000 + random_next(state) % 1000000, stream));
}

static uint32_t word_of(int index) { return 0xC0000000u + (uint32_t)index; }

TEST(without_a_record_another_streams_work_comes_too_late) {
  /* That the proofs below can fail: this is what they would see. */
  const size_t bytes = 64 * KIB;
  begin(0);
  unsigned char *memory = alloc_on(bytes, 0, streams[1]);
  fill_words(memory, 1, bytes, streams[1]);
  CHECK_OK(plinth_stream_synchronize(streams[1]));
  gate *shut = hold(streams[2]);
  copy_out(memory, bytes, 2, streams[2]);
  release(memory);
  CHECK_SAME(alloc_on(bytes, 0, streams[1]), memory);
  fill_words(memory, 2, bytes, streams[1]);
  CHECK_OK(plinth_stream_synchronize(streams[1]));
  expect_held(shut);
  gate_open(shut);
  release(memory);
  end();
}

/* Blocks of several streams, given back as soon as the work with them is queued. */
static void use_own_streams(size_t most, int32_t device, int count) {
  uint64_t state = most;
  begin(device);
  CHECK_OK(plinth_set_device(device));
  for (int index = 0; index < count; index++) {
    plinth_stream_t stream = streams[random_next(&state) % STREAMS];
    const size_t bytes = some_size(&state, most);
    unsigned char *memory = alloc_on(bytes, device, stream);
    fill_words(memory, word_of(index), bytes, stream);
    if (index % 4 == 0) {
      take_time(&state, stream);
    }
    copy_out(memory, bytes, word_of(index), stream);
    release(memory);
  }
  CHECK_OK(plinth_set_device(0));
  end();
}

TEST(small_blocks_in_their_own_streams) { use_own_streams(32 * KIB, 0, SLOTS); }
TEST(blocks_of_all_sizes_in_their_own_streams) { use_own_streams(6 * MIB, 0, SLOTS); }
TEST(blocks_of_the_last_device) { use_own_streams(2 * MIB, device_count() - 1, SLOTS); }

/* Full memory makes streams take from each other, while their work is still queued. */
TEST(blocks_that_go_from_stream_to_stream) {
  limit_memory(48 * MIB, 0);
  use_own_streams(12 * MIB, 0, 300);
}

/* Written in one stream, read in another after a while. */
static void use_other_streams(size_t most, bool empty) {
  uint64_t state = most + 1;
  begin(0);
  for (int index = 0; index < 400; index++) {
    const uint64_t own = random_next(&state) % STREAMS;
    plinth_stream_t writer = streams[own];
    plinth_stream_t reader = streams[(own + 1 + random_next(&state) % (STREAMS - 1)) % STREAMS];
    const size_t bytes = some_size(&state, most);
    unsigned char *memory = alloc_on(bytes, 0, writer);
    fill_words(memory, word_of(index), bytes, writer);
    CHECK_OK(plinth_stream_wait_stream(reader, writer));
    take_time(&state, reader);
    copy_out(memory, bytes, word_of(index), reader);
    CHECK_OK(plinth_record_stream(memory, reader));
    release(memory);
    if (empty && index % 50 == 49) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  expect_sound();
  end();
}

TEST(small_blocks_in_other_streams) { use_other_streams(16 * KIB, false); }
TEST(blocks_of_all_sizes_in_other_streams) { use_other_streams(3 * MIB, false); }
TEST(blocks_in_other_streams_while_the_cache_is_emptied) { use_other_streams(3 * MIB, true); }

TEST(blocks_in_other_streams_when_memory_is_full) {
  limit_memory(48 * MIB, 0);
  use_other_streams(10 * MIB, false);
}

TEST(blocks_in_other_devices_streams) {
  need_devices(2);
  uint64_t state = 3;
  plinth_stream_t readers[3];
  begin(0);
  for (int index = 0; index < 3; index++) {
    readers[index] = stream_on(1);
  }
  unsigned char *landing = alloc_on(SLOT_BYTES, 1, readers[0]);
  for (int index = 0; index < 200; index++) {
    plinth_stream_t writer = streams[index % STREAMS];
    plinth_stream_t reader = readers[0];
    unsigned char *memory = alloc_on(SLOT_BYTES, 0, writer);
    fill_words(memory, word_of(index), SLOT_BYTES, writer);
    CHECK_OK(plinth_stream_wait_stream(reader, writer));
    if (index % 3 == 0) {
      take_time(&state, reader);
    }
    CHECK_OK(plinth_memcpy(landing, memory, SLOT_BYTES, reader));
    copy_out(landing, SLOT_BYTES, word_of(index), reader);
    CHECK_OK(plinth_record_stream(memory, reader));
    release(memory);
  }
  release(landing);
  end();
}

/* Many blocks live at once, with work of several streams in flight; some die while others are written. */
TEST(live_blocks_beside_each_other) {
  enum { LIVE = 48 };
  struct {
    unsigned char *memory;
    size_t bytes;
    uint32_t word;
    plinth_stream_t stream;
  } live[LIVE];
  uint64_t state = 77;
  begin(0);
  memset(live, 0, sizeof live);
  for (int index = 0; index < SLOTS - LIVE; index++) {
    const uint64_t place = random_next(&state) % LIVE;
    if (live[place].memory != NULL) {
      copy_out(live[place].memory, live[place].bytes, live[place].word, live[place].stream);
      release(live[place].memory);
    }
    live[place].bytes = some_size(&state, index % 5 == 0 ? 4 * MIB : 40 * KIB);
    live[place].word = word_of(index);
    live[place].stream = streams[random_next(&state) % STREAMS];
    live[place].memory = alloc_on(live[place].bytes, 0, live[place].stream);
    fill_words(live[place].memory, live[place].word, live[place].bytes, live[place].stream);
    if (index % 100 == 0) {
      expect_sound();
      CHECK_OK(plinth_empty_cache());
    }
  }
  for (int place = 0; place < LIVE; place++) {
    if (live[place].memory != NULL) {
      copy_out(live[place].memory, live[place].bytes, live[place].word, live[place].stream);
      release(live[place].memory);
    }
  }
  end();
}

/* Pools beside each other and beside the default pool, in the same streams. */
TEST(blocks_of_pools) {
  enum { POOLS = 3 };
  plinth_pool_id_t pools[POOLS];
  uint64_t state = 5;
  begin(0);
  for (int index = 0; index < POOLS; index++) {
    CHECK_OK(plinth_mem_pool_create(false, false, &pools[index]));
  }
  for (int index = 0; index < 400; index++) {
    const uint64_t pool = random_next(&state) % (POOLS + 1);
    plinth_stream_t stream = streams[random_next(&state) % STREAMS];
    const size_t bytes = some_size(&state, 3 * MIB);
    if (pool < POOLS) {
      CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pools[pool]));
    }
    unsigned char *memory = alloc_on(bytes, 0, stream);
    if (pool < POOLS) {
      CHECK_OK(plinth_end_allocate_to_pool(0, pools[pool]));
      CHECK_OK(plinth_release_pool(0, pools[pool]));
    }
    fill_words(memory, word_of(index), bytes, stream);
    if (index % 3 == 0) {
      take_time(&state, stream);
    }
    copy_out(memory, bytes, word_of(index), stream);
    release(memory);
  }
  /* With work in flight. */
  for (int index = 0; index < POOLS; index++) {
    CHECK_OK(plinth_mem_pool_destroy(pools[index]));
  }
  end();
}
