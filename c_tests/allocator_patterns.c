/*
 * Checks on the device that no two live blocks share memory. A stream fills each block with its own word, sleeps, and copies
 * the block out; the CPU frees the block as soon as this work is queued. The copies must have the words.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 120 */
#include "allocating.h"

enum { SLOTS = 600, SLOT_BYTES = 64 * 1024, STREAMS = 6 };

/* The destination of the copies: a slot for each block, and the word that it must contain. */
static unsigned char *slots;
static uint32_t words[SLOTS];
static size_t slot_bytes[SLOTS];
static int used;

static plinth_stream_t streams[STREAMS];

static void set_up(int32_t device) {
  slots = (unsigned char *)pinned_memory((size_t)SLOTS * SLOT_BYTES);
  memset(slots, 0, (size_t)SLOTS * SLOT_BYTES);
  for (int index = 0; index < STREAMS; index++) {
    streams[index] = index == 0 ? NULL : stream_on(device);
  }
  used = 0;
}

static void tear_down(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
  for (int index = 0; index < used; index++) {
    const size_t right = words_mismatch(slots + (size_t)index * SLOT_BYTES, words[index], slot_bytes[index]);
    if (right != slot_bytes[index]) {
      fprintf(stderr, "block %d of %d has the wrong word at byte %zu\n", index, used, right);
    }
    CHECK_EQ(right, slot_bytes[index]);
  }
  CHECK(used > 0);
  CHECK_OK(plinth_pinned_free(slots));
  expect_nothing_left();
}

/* Copies the end of a block to the next slot, in a stream. */
static void copy_out(const unsigned char *memory, size_t bytes, uint32_t word, plinth_stream_t stream) {
  const size_t part = bytes < SLOT_BYTES ? bytes : SLOT_BYTES;
  CHECK(used < SLOTS);
  words[used] = word;
  slot_bytes[used] = part;
  CHECK_OK(plinth_memcpy(slots + (size_t)used * SLOT_BYTES, memory + (bytes - part), part, stream));
  used++;
}

static size_t some_size(uint64_t *state, size_t max_bytes) { return 4 * (1 + random_next(state) % (max_bytes / 4)); }

/* Delays a stream long enough for later work in other streams to overtake it. */
static void delay(uint64_t *state, plinth_stream_t stream) {
  CHECK_OK(plinth_sleep(100000 + random_next(state) % 1000000, stream));
}

static uint32_t word_of(int index) { return 0xC0000000u + (uint32_t)index; }

TEST(without_record_stream_another_stream_reads_reused_memory) {
  /* Shows that the tests below can detect an error. */
  const size_t bytes = 64 * KIB;
  set_up(0);
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
  tear_down();
}

/* Uses blocks of several streams, and frees each block as soon as its work is queued. */
static void use_own_streams(size_t max_bytes, int32_t device, int count) {
  uint64_t state = max_bytes;
  set_up(device);
  CHECK_OK(plinth_set_device(device));
  for (int index = 0; index < count; index++) {
    plinth_stream_t stream = streams[random_next(&state) % STREAMS];
    const size_t bytes = some_size(&state, max_bytes);
    unsigned char *memory = alloc_on(bytes, device, stream);
    fill_words(memory, word_of(index), bytes, stream);
    if (index % 4 == 0) {
      delay(&state, stream);
    }
    copy_out(memory, bytes, word_of(index), stream);
    release(memory);
  }
  CHECK_OK(plinth_set_device(0));
  tear_down();
}

TEST(small_blocks_used_in_their_own_streams) { use_own_streams(32 * KIB, 0, SLOTS); }
TEST(blocks_of_all_sizes_used_in_their_own_streams) { use_own_streams(6 * MIB, 0, SLOTS); }
TEST(blocks_of_the_last_device) { use_own_streams(2 * MIB, device_count() - 1, SLOTS); }

/* Under a memory limit, a stream takes cached blocks of other streams, while their work is still queued. */
TEST(blocks_that_move_between_streams) {
  limit_memory(48 * MIB, 0);
  use_own_streams(12 * MIB, 0, 300);
}

/* Writes blocks in one stream, and reads them in another after a delay. */
static void use_other_streams(size_t max_bytes, bool empty) {
  uint64_t state = max_bytes + 1;
  set_up(0);
  for (int index = 0; index < 400; index++) {
    const uint64_t own = random_next(&state) % STREAMS;
    plinth_stream_t writer = streams[own];
    plinth_stream_t reader = streams[(own + 1 + random_next(&state) % (STREAMS - 1)) % STREAMS];
    const size_t bytes = some_size(&state, max_bytes);
    unsigned char *memory = alloc_on(bytes, 0, writer);
    fill_words(memory, word_of(index), bytes, writer);
    CHECK_OK(plinth_stream_wait_stream(reader, writer));
    delay(&state, reader);
    copy_out(memory, bytes, word_of(index), reader);
    CHECK_OK(plinth_record_stream(memory, reader));
    release(memory);
    if (empty && index % 50 == 49) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  expect_sound();
  tear_down();
}

TEST(small_blocks_used_in_other_streams) { use_other_streams(16 * KIB, false); }
TEST(blocks_of_all_sizes_used_in_other_streams) { use_other_streams(3 * MIB, false); }
TEST(blocks_used_in_other_streams_while_the_cache_is_emptied) { use_other_streams(3 * MIB, true); }

TEST(blocks_used_in_other_streams_under_a_memory_limit) {
  limit_memory(48 * MIB, 0);
  use_other_streams(10 * MIB, false);
}

TEST(blocks_used_in_streams_of_another_device) {
  need_devices(2);
  uint64_t state = 3;
  plinth_stream_t readers[3];
  set_up(0);
  for (int index = 0; index < 3; index++) {
    readers[index] = stream_on(1);
  }
  unsigned char *destination = alloc_on(SLOT_BYTES, 1, readers[0]);
  for (int index = 0; index < 200; index++) {
    plinth_stream_t writer = streams[index % STREAMS];
    plinth_stream_t reader = readers[0];
    unsigned char *memory = alloc_on(SLOT_BYTES, 0, writer);
    fill_words(memory, word_of(index), SLOT_BYTES, writer);
    CHECK_OK(plinth_stream_wait_stream(reader, writer));
    if (index % 3 == 0) {
      delay(&state, reader);
    }
    CHECK_OK(plinth_memcpy(destination, memory, SLOT_BYTES, reader));
    copy_out(destination, SLOT_BYTES, word_of(index), reader);
    CHECK_OK(plinth_record_stream(memory, reader));
    release(memory);
  }
  release(destination);
  tear_down();
}

/* Keeps many blocks live at once, and frees some of them while several streams write to others. */
TEST(many_live_blocks) {
  enum { LIVE = 48 };
  struct {
    unsigned char *memory;
    size_t bytes;
    uint32_t word;
    plinth_stream_t stream;
  } live[LIVE];
  uint64_t state = 77;
  set_up(0);
  memset(live, 0, sizeof live);
  for (int index = 0; index < SLOTS - LIVE; index++) {
    const uint64_t slot = random_next(&state) % LIVE;
    if (live[slot].memory != NULL) {
      copy_out(live[slot].memory, live[slot].bytes, live[slot].word, live[slot].stream);
      release(live[slot].memory);
    }
    live[slot].bytes = some_size(&state, index % 5 == 0 ? 4 * MIB : 40 * KIB);
    live[slot].word = word_of(index);
    live[slot].stream = streams[random_next(&state) % STREAMS];
    live[slot].memory = alloc_on(live[slot].bytes, 0, live[slot].stream);
    fill_words(live[slot].memory, live[slot].word, live[slot].bytes, live[slot].stream);
    if (index % 100 == 0) {
      expect_sound();
      CHECK_OK(plinth_empty_cache());
    }
  }
  for (int slot = 0; slot < LIVE; slot++) {
    if (live[slot].memory != NULL) {
      copy_out(live[slot].memory, live[slot].bytes, live[slot].word, live[slot].stream);
      release(live[slot].memory);
    }
  }
  tear_down();
}

/* Several pools and the default pool, in the same streams. */
TEST(blocks_of_pools) {
  enum { POOLS = 3 };
  plinth_pool_id_t pools[POOLS];
  uint64_t state = 5;
  set_up(0);
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
      delay(&state, stream);
    }
    copy_out(memory, bytes, word_of(index), stream);
    release(memory);
  }
  /* Destroyed while work is pending. */
  for (int index = 0; index < POOLS; index++) {
    CHECK_OK(plinth_mem_pool_destroy(pools[index]));
  }
  tear_down();
}
