/* Copies: directions, sizes and stream order. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "support.h"

/* Kinds of memory. */
enum { PAGEABLE, PINNED, DEVICE_0, DEVICE_1, KINDS };

static int kinds(void) { return device_count() > 1 ? KINDS : DEVICE_1; }

static unsigned char *memory_of(int kind, size_t bytes) {
  switch (kind) {
    case PAGEABLE:
      return (unsigned char *)pageable_memory(bytes);
    case PINNED:
      return (unsigned char *)pinned_memory(bytes);
    default:
      return (unsigned char *)device_memory(bytes, kind - DEVICE_0);
  }
}

static void free_memory(int kind, void *memory) {
  switch (kind) {
    case PAGEABLE:
      free(memory);
      break;
    case PINNED:
      CHECK_OK(plinth_pinned_free(memory));
      break;
    default:
      CHECK_OK(plinth_device_free(memory));
  }
}

/* The calls that copy. */
enum { IN_A_STREAM, BLOCKING, NOT_BLOCKING, CALLS };

static void copy(int call, void *to, const void *from, size_t bytes) {
  if (call == IN_A_STREAM) {
    plinth_stream_t stream = stream_on(0);
    CHECK_OK(plinth_memcpy(to, from, bytes, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    return;
  }
  CHECK_OK(plinth_copy(to, from, bytes, call == NOT_BLOCKING));
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
}

/* Copies part of one memory to part of another, and checks all bytes of the destination. */
static void expect_copy(int call, unsigned char *to, size_t to_offset, const unsigned char *from, size_t from_offset,
                        size_t bytes, unsigned char *scratch, size_t total, unsigned seed) {
  memset(scratch, 0xEE, total);
  put(to, scratch, total);
  copy(call, to + to_offset, from + from_offset, bytes);
  fetch(scratch, to, total);
  for (size_t index = 0; index < total; index++) {
    const bool copied = index >= to_offset && index < to_offset + bytes;
    const unsigned char expected = copied ? pattern_byte(index - to_offset + from_offset, seed) : 0xEE;
    if (scratch[index] != expected) {
      fprintf(stderr, "%zu bytes, offsets %zu and %zu, call %d: byte %zu\n", bytes, to_offset, from_offset, call, index);
      CHECK_EQ(scratch[index], expected);
    }
  }
}

static void expect_every_direction(void) {
  enum { ROOM = 70000 };
  static const size_t sizes[] = {1, 2, 3, 7, 64, 255, 4096, 65537};
  static const size_t offsets[] = {0, 1, 13, 4096};
  unsigned char *scratch = (unsigned char *)pageable_memory(ROOM);
  unsigned seed = 0;
  for (int from_kind = 0; from_kind < kinds(); from_kind++) {
    for (int to_kind = 0; to_kind < kinds(); to_kind++) {
      unsigned char *from = memory_of(from_kind, ROOM);
      unsigned char *to = memory_of(to_kind, ROOM);
      pattern_fill(scratch, ROOM, ++seed);
      put(from, scratch, ROOM);
      for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
        for (size_t offset = 0; offset < 4; offset++) {
          expect_copy((int)((size + offset) % CALLS), to, offsets[offset], from, offsets[3 - offset], sizes[size],
                      scratch, ROOM, seed);
        }
      }
      free_memory(from_kind, from);
      free_memory(to_kind, to);
    }
  }
  free(scratch);
}

TEST(every_direction_and_odd_sizes) { expect_every_direction(); }

TEST(every_direction_with_peer_access) {
  bool can_access = false;
  need_devices(2);
  CHECK_OK(plinth_can_device_access_peer(0, 1, &can_access));
  if (!can_access) {
    SKIP("the devices cannot access each other");
  }
  CHECK_OK(plinth_enable_peer_access(0, 1));
  CHECK_OK(plinth_enable_peer_access(1, 0));
  expect_every_direction();
}

TEST(large_copies_in_every_direction) {
  const size_t bytes = 64 * MIB + 13;
  unsigned char *scratch = (unsigned char *)pageable_memory(bytes);
  unsigned char *memory[KINDS];
  pattern_fill(scratch, bytes, 5);
  for (int kind = 0; kind < kinds(); kind++) {
    memory[kind] = memory_of(kind, bytes);
  }
  put(memory[PAGEABLE], scratch, bytes);
  /* Through all kinds of memory and back, so that each copy depends on the one before. */
  const int round_trip[] = {PAGEABLE, DEVICE_0, PINNED, kinds() - 1, DEVICE_0, kinds() - 1, PAGEABLE};
  for (int hop = 1; hop < 7; hop++) {
    if (memory[round_trip[hop]] != memory[round_trip[hop - 1]]) {
      copy(hop % CALLS, memory[round_trip[hop]], memory[round_trip[hop - 1]], bytes);
    }
  }
  CHECK_EQ(pattern_mismatch(memory[PAGEABLE], bytes, 5), bytes);
  for (int kind = 0; kind < kinds(); kind++) {
    free_memory(kind, memory[kind]);
  }
  free(scratch);
}

TEST(copies_of_one_stream_are_in_order) {
  enum { ROUNDS = 200 };
  plinth_stream_t stream = stream_on(0);
  unsigned char *pinned = memory_of(PINNED, 2 * ROUNDS);
  unsigned char *memory = memory_of(DEVICE_0, 1);
  for (int round = 0; round < ROUNDS; round++) {
    pinned[round] = (unsigned char)(round * 7 + 1);
    CHECK_OK(plinth_memcpy(memory, pinned + round, 1, stream));
    CHECK_OK(plinth_memcpy(pinned + ROUNDS + round, memory, 1, stream));
  }
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK(memcmp(pinned, pinned + ROUNDS, ROUNDS) == 0);
  free_memory(DEVICE_0, memory);
  free_memory(PINNED, pinned);
}

TEST(a_copy_in_a_stream_returns_without_waiting) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *pinned = memory_of(PINNED, 2 * KIB);
  unsigned char *memory = memory_of(DEVICE_0, KIB);
  memset(pinned, 0, 2 * KIB);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_memcpy(memory, pinned, KIB, stream));
  CHECK_OK(plinth_memcpy(pinned + KIB, memory, KIB, stream));
  /* The copy reads the source when it runs, not when it is queued. */
  pattern_fill(pinned, KIB, 3);
  CHECK(stays_undone(stream));
  CHECK_EQ(pinned[KIB] | pinned[2 * KIB - 1], 0);
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(pattern_mismatch(pinned + KIB, KIB, 3), KIB);
  free_memory(DEVICE_0, memory);
  free_memory(PINNED, pinned);
}

/* A blocking plinth_copy waits for the current stream of the memory's device, even if another device is current. */
static void expect_blocking(int32_t device, void *to, const void *from) {
  plinth_stream_t stream = stream_on(device);
  plinth_stream_context_t saved;
  CHECK_OK(plinth_stream_context_enter(stream, &saved));
  CHECK_OK(plinth_set_device(0));
  gate *held = gate_shut(stream);
  pthread_t opener = gate_open_soon(held);
  CHECK_OK(plinth_copy(to, from, KIB, false));
  CHECK(gate_is_open(held));
  CHECK(stream_done(stream));
  pthread_join(opener, NULL);
  CHECK_OK(plinth_stream_context_exit(&saved));
}

TEST(a_blocking_copy_waits_for_the_devices_current_stream) {
  for (int host_kind = PAGEABLE; host_kind <= PINNED; host_kind++) {
    for (int kind = DEVICE_0; kind < kinds(); kind++) {
      unsigned char *host = memory_of(host_kind, KIB);
      unsigned char *memory = memory_of(kind, KIB);
      pattern_fill(host, KIB, 1);
      expect_blocking(kind - DEVICE_0, memory, host);
      memset(host, 0, KIB);
      expect_blocking(kind - DEVICE_0, host, memory);
      CHECK_EQ(pattern_mismatch(host, KIB, 1), KIB);
      free_memory(kind, memory);
      free_memory(host_kind, host);
    }
  }
}

TEST(a_copy_between_host_memories_waits_for_the_current_stream) {
  unsigned char *from = memory_of(PAGEABLE, KIB);
  unsigned char *to = memory_of(PINNED, KIB);
  pattern_fill(from, KIB, 2);
  expect_blocking(0, to, from);
  CHECK_EQ(pattern_mismatch(to, KIB, 2), KIB);
  free_memory(PINNED, to);
  free(from);
}

TEST(a_copy_that_does_not_block_runs_in_the_devices_current_stream) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *pinned = memory_of(PINNED, 2 * KIB);
  unsigned char *memory = memory_of(DEVICE_0, KIB);
  pattern_fill(pinned, KIB, 4);
  memset(pinned + KIB, 0, KIB);
  CHECK_OK(plinth_set_stream(stream));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_copy(memory, pinned, KIB, true));
  CHECK_OK(plinth_copy(pinned + KIB, memory, KIB, true));
  CHECK(stays_undone(stream));
  CHECK(stream_done(other));
  CHECK(stream_done(NULL));
  CHECK_EQ(pinned[KIB], 0);
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(pattern_mismatch(pinned + KIB, KIB, 4), KIB);
  CHECK_OK(plinth_set_stream(NULL));
  free_memory(DEVICE_0, memory);
  free_memory(PINNED, pinned);
}

TEST(a_copy_within_a_device_never_blocks) {
  const int32_t device = device_count() - 1;
  plinth_stream_t stream = stream_on(device);
  unsigned char *from = memory_of(DEVICE_0 + device, KIB);
  unsigned char *to = memory_of(DEVICE_0 + device, KIB);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_set_device(0));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_copy(to, from, KIB, false));
  CHECK(stays_undone(stream));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  free_memory(DEVICE_0 + device, from);
  free_memory(DEVICE_0 + device, to);
}

/* A copy between devices is ordered with the current streams of both. */
static void expect_order_across_devices(int32_t shut_device) {
  plinth_stream_t streams[2] = {stream_on(0), stream_on(1)};
  plinth_event_t last_event = new_event(0);
  unsigned char *host = memory_of(PINNED, KIB);
  unsigned char *from = memory_of(DEVICE_0, KIB);
  unsigned char *to = memory_of(DEVICE_1, KIB);
  pattern_fill(host, KIB, 6);
  put(from, host, KIB);
  memset(host, 0, KIB);
  put(to, host, KIB);
  CHECK_OK(plinth_set_stream(streams[1]));
  CHECK_OK(plinth_set_stream(streams[0]));
  CHECK_OK(plinth_event_record(last_event, streams[1]));
  CHECK_OK(plinth_event_synchronize(last_event));
  gate *held = gate_shut(streams[shut_device]);
  CHECK_OK(plinth_copy(to, from, KIB, true));
  CHECK(stays_undone(streams[0]));
  /* Later work in the destination's stream waits for the copy, and reads its result. */
  CHECK_OK(plinth_memcpy(host, to, KIB, streams[1]));
  CHECK_OK(plinth_event_record(last_event, streams[1]));
  CHECK(stays_undone(streams[1]));
  CHECK_EQ(host[0] | host[KIB - 1], 0);
  gate_open(held);
  CHECK_OK(plinth_event_synchronize(last_event));
  CHECK(stream_done(streams[0]));
  CHECK_EQ(pattern_mismatch(host, KIB, 6), KIB);
  CHECK_OK(plinth_event_destroy(last_event));
  free_memory(DEVICE_0, from);
  free_memory(DEVICE_1, to);
  free_memory(PINNED, host);
}

TEST(a_copy_across_devices_waits_for_the_source) {
  need_devices(2);
  expect_order_across_devices(0);
}

TEST(a_copy_across_devices_waits_for_the_destination) {
  need_devices(2);
  expect_order_across_devices(1);
}

TEST(a_copy_across_devices_does_not_wait_for_other_streams) {
  need_devices(2);
  plinth_stream_t unrelated = stream_on(1);
  unsigned char *from = memory_of(DEVICE_0, KIB);
  unsigned char *to = memory_of(DEVICE_1, KIB);
  CHECK_OK(plinth_copy(to, from, KIB, true));
  CHECK_OK(plinth_stream_synchronize(NULL));
  gate *held = gate_shut(unrelated);
  CHECK_OK(plinth_copy(to, from, KIB, true));
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK(!stream_done(unrelated));
  gate_open(held);
  free_memory(DEVICE_0, from);
  free_memory(DEVICE_1, to);
}

TEST(a_copy_does_not_change_the_current_device) {
  need_devices(2);
  int32_t device = UNTOUCHED;
  unsigned char *from = memory_of(DEVICE_1, KIB);
  unsigned char *to = memory_of(DEVICE_1, KIB);
  CHECK_OK(plinth_copy(to, from, KIB, false));
  CHECK_OK(plinth_memcpy(to, from, KIB, stream_on(1)));
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  free_memory(DEVICE_1, from);
  free_memory(DEVICE_1, to);
}

TEST(nothing_is_copied_for_zero_bytes) {
  unsigned char host[4] = {1, 2, 3, 4};
  CHECK_OK(plinth_memcpy(NULL, NULL, 0, NULL));
  CHECK_OK(plinth_memcpy(host, host + 2, 0, NULL));
  CHECK_OK(plinth_copy(NULL, NULL, 0, false));
  CHECK_OK(plinth_copy(host, host + 2, 0, true));
  CHECK_EQ(host[0], 1);
}

TEST(addresses_must_not_be_null) {
  unsigned char host[4] = {1, 2, 3, 4};
  CHECK_STATUS(plinth_memcpy(NULL, host, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("destination");
  CHECK_STATUS(plinth_memcpy(host, NULL, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("source");
  CHECK_STATUS(plinth_copy(NULL, host, 1, false), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_copy(host, NULL, 1, true), PLINTH_ERROR_NULL_POINTER);
}

TEST(ranges_must_not_exceed_the_address_space) {
  unsigned char *memory = memory_of(DEVICE_0, KIB);
  unsigned char host[4] = {0};
  const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - KIB};
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(plinth_memcpy(memory, host, sizes[index], NULL), PLINTH_ERROR_INVALID_VALUE);
    CHECK_STATUS(plinth_memcpy(host, memory, sizes[index], NULL), PLINTH_ERROR_INVALID_VALUE);
    CHECK_STATUS(plinth_copy(memory, host, sizes[index], false), PLINTH_ERROR_INVALID_VALUE);
    CHECK_STATUS(plinth_copy(host, memory, sizes[index], true), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("past the end");
  }
  free_memory(DEVICE_0, memory);
}
