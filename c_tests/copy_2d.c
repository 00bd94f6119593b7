/* Copies of rows. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "graphing.h"
#include "sanitizing.h"

/* Kinds of memory. */
enum { PAGEABLE, PINNED, DEVICE_0, DEVICE_1, KINDS };

enum { ROOM = 8192 };

static int kinds(void) { return device_count() > 1 ? KINDS : DEVICE_1; }

static unsigned char *memory_of(int kind) {
  return (unsigned char *)(kind == PAGEABLE ? pageable_memory(ROOM)
                           : kind == PINNED ? pinned_memory(ROOM)
                                            : device_memory(ROOM, kind - DEVICE_0));
}

static void free_kind(int kind, void *memory) {
  if (kind == PAGEABLE) {
    free(memory);
  } else {
    CHECK_OK(kind == PINNED ? plinth_pinned_free(memory) : plinth_device_free(memory));
  }
}

typedef struct shape {
  size_t to_offset, to_pitch, from_offset, from_pitch, width, height;
} shape;

static const shape shapes[] = {
    {0, 64, 0, 64, 64, 16},  {3, 70, 5, 64, 60, 20}, {0, 100, 1, 33, 33, 40}, {16, 512, 0, 16, 16, 9}, {0, 2, 0, 3, 1, 1000},
    {7, 4096, 9, 50, 50, 1}, {0, 8, 0, 8, 0, 5},     {0, 8, 0, 8, 8, 0},
};

/* Checks all bytes of the destination, which was filled with 0xEE before. */
static void expect_rows(const unsigned char *to, const shape *one, unsigned seed) {
  unsigned char *actual = (unsigned char *)pageable_memory(ROOM);
  fetch(actual, to, ROOM);
  for (size_t at = 0; at < ROOM; at++) {
    const size_t row = at < one->to_offset ? one->height : (at - one->to_offset) / one->to_pitch;
    const size_t column = at < one->to_offset ? 0 : (at - one->to_offset) % one->to_pitch;
    const bool copied = row < one->height && column < one->width;
    const size_t from = one->from_offset + row * one->from_pitch + column;
    CHECK_EQ(actual[at], copied ? pattern_byte(from, seed) : 0xEE);
  }
  free(actual);
}

static void prepare(unsigned char *to, unsigned char *from, unsigned seed) {
  unsigned char *host = (unsigned char *)pageable_memory(ROOM);
  memset(host, 0xEE, ROOM);
  put(to, host, ROOM);
  pattern_fill(host, ROOM, seed);
  put(from, host, ROOM);
  free(host);
}

static plinth_status_t copy(unsigned char *to, const unsigned char *from, const shape *one, plinth_stream_t stream) {
  return plinth_memcpy_2d(to + one->to_offset, one->to_pitch, from + one->from_offset, one->from_pitch, one->width,
                          one->height, stream);
}

TEST(rows_are_copied_between_all_kinds_of_memory) {
  unsigned seed = 0;
  for (int from_kind = 0; from_kind < kinds(); from_kind++) {
    for (int to_kind = 0; to_kind < kinds(); to_kind++) {
      unsigned char *from = memory_of(from_kind);
      unsigned char *to = memory_of(to_kind);
      for (size_t index = 0; index < sizeof shapes / sizeof shapes[0]; index++) {
        plinth_stream_t stream = stream_on(0);
        prepare(to, from, ++seed);
        CHECK_OK(copy(to, from, &shapes[index], stream));
        CHECK_OK(plinth_stream_synchronize(stream));
        expect_rows(to, &shapes[index], seed);
      }
      free_kind(from_kind, from);
      free_kind(to_kind, to);
    }
  }
}

TEST(the_default_stream_is_that_of_the_memory) {
  const int32_t device = device_count() - 1;
  plinth_stream_t stream = stream_on(device);
  unsigned char *from = memory_of(DEVICE_0 + device);
  unsigned char *to = memory_of(PINNED);
  prepare(to, from, 1);
  CHECK_OK(plinth_set_stream_of(device, stream));
  gate *held = gate_shut(stream);
  CHECK_OK(copy(to, from, &shapes[1], PLINTH_STREAM_CURRENT));
  CHECK(stays_undone(stream));
  CHECK_EQ(to[shapes[1].to_offset], 0xEE);
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  expect_rows(to, &shapes[1], 1);
  prepare(to, from, 2);
  CHECK_OK(copy(to, from, &shapes[2], NULL));
  CHECK_OK(plinth_synchronize(device));
  expect_rows(to, &shapes[2], 2);
  CHECK_OK(plinth_set_stream_of(device, NULL));
  free_kind(DEVICE_0 + device, from);
  free_kind(PINNED, to);
}

TEST(wrong_rows_are_refused) {
  unsigned char *from = memory_of(PINNED);
  unsigned char *to = memory_of(DEVICE_0);
  prepare(to, from, 1);
  CHECK_STATUS(plinth_memcpy_2d(to, 15, from, 16, 16, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("destination_pitch is 15 bytes; it must be at least width_bytes, 16");
  CHECK_STATUS(plinth_memcpy_2d(to, 16, from, 15, 16, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("source_pitch is 15 bytes");
  CHECK_STATUS(plinth_memcpy_2d(to, 16, from, (size_t)1 << 31, 16, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("source_pitch is 2147483648 bytes; it must be at most 2147483647");
  CHECK_STATUS(plinth_memcpy_2d(NULL, 16, from, 16, 16, 2, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("the destination is NULL");
  CHECK_STATUS(plinth_memcpy_2d(to, 16, NULL, 16, 16, 2, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memcpy_2d(to, 16, from, 32, 16, SIZE_MAX / 16, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the destination runs past the end of all addresses");
  CHECK_STATUS(plinth_memcpy_2d(to, 32, from, 32, 16, SIZE_MAX / 16, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("do not fit into the address space");
  CHECK_STATUS(plinth_memcpy_2d(to, 16, from, 16, 16, 2, (plinth_stream_t)to), PLINTH_ERROR_INVALID_HANDLE);
  /* Past the end of the destination: as on a GPU, an error of the driver. */
  if (on_host_device()) {
    CHECK_STATUS(plinth_memcpy_2d(to, 1 << 30, from, 16, 16, 64, NULL), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_OK(plinth_synchronize(0));
  const shape none = {0, 16, 0, 16, 0, 0};
  expect_rows(to, &none, 1);
  free_kind(PINNED, from);
  free_kind(DEVICE_0, to);
}

TEST(a_captured_copy_of_rows_is_a_node) {
  unsigned char *from = memory_of(PINNED);
  unsigned char *to = memory_of(DEVICE_0);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  prepare(to, from, 1);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(copy(to, from, &shapes[1], stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  for (unsigned seed = 2; seed < 4; seed++) {
    prepare(to, from, seed);
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    expect_rows(to, &shapes[1], seed);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_set_stream(NULL));
  free_kind(PINNED, from);
  free_kind(DEVICE_0, to);
}

TEST(the_sanitizer_sees_rows_and_not_the_bytes_between) {
  plinth_stream_t a = stream_on(0);
  plinth_stream_t b = stream_on(0);
  unsigned char *from = memory_of(DEVICE_0);
  unsigned char *to = memory_of(DEVICE_0);
  enable_sanitizer();
  CHECK_OK(plinth_memcpy_2d(to, 128, from, 64, 32, 4, a));
  kernel("beside", WRITE, to + 32, 96, b);
  kernel("beside", WRITE, from + 32, 32, b);
  CLEAN();
  kernel("inside", WRITE, to + 128 + 31, 1, b);
  RACE(MISSING_WAIT, to + 128 + 31, 1, writes("inside", b), writes("plinth_memcpy_2d", a));
  CHECK_OK(plinth_synchronize(0));
  free_kind(DEVICE_0, from);
  free_kind(DEVICE_0, to);
}

TEST(the_sync_debug_mode_sees_pageable_memory) {
  unsigned char *pageable = memory_of(PAGEABLE);
  unsigned char *pinned = memory_of(PINNED);
  unsigned char *to = memory_of(DEVICE_0);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(copy(to, pageable, &shapes[1], NULL), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(copy(to, pinned, &shapes[1], NULL));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_synchronize(0));
  free_kind(PAGEABLE, pageable);
  free_kind(PINNED, pinned);
  free_kind(DEVICE_0, to);
}
