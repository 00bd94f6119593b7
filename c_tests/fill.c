/* Fills, with a byte and with patterns. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "support.h"

enum { ROOM = 8192 };

static unsigned char host[ROOM];

/* Fills a part of a memory, and checks all of it. */
static void expect_fill(plinth_stream_t stream, unsigned char *memory, size_t offset, const void *pattern,
                        size_t pattern_size, size_t bytes) {
  memset(host, 0xEE, ROOM);
  put(memory, host, ROOM);
  CHECK_OK(plinth_memset_pattern(memory + offset, pattern, pattern_size, bytes, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  fetch(host, memory, ROOM);
  for (size_t index = 0; index < ROOM; index++) {
    const bool filled = index >= offset && index < offset + bytes;
    CHECK_EQ(host[index], filled ? ((const unsigned char *)pattern)[(index - offset) % pattern_size] : 0xEE);
  }
}

static void expect_fills(plinth_stream_t stream, unsigned char *memory) {
  /* The pattern starts at an odd address, since it need not be aligned. */
  const unsigned char pattern[] = {0, 0x12, 0x34, 0x56, 0x78};
  for (size_t size = 1; size <= 4; size *= 2) {
    for (size_t count = 1; count <= 1024; count = count * 3 + 1) {
      expect_fill(stream, memory, 0, pattern + 1, size, size * count);
      expect_fill(stream, memory, size, pattern + 1, size, size * count);
      expect_fill(stream, memory, 3 * size, pattern + 1, size, size * count);
    }
  }
}

TEST(device_memory_is_filled) {
  for (int32_t device = 0; device < device_count(); device++) {
    unsigned char *memory = (unsigned char *)device_memory(ROOM, device);
    expect_fills(stream_on(device), memory);
    CHECK_OK(plinth_device_free(memory));
  }
}

TEST(pinned_memory_is_filled) {
  unsigned char *memory = (unsigned char *)pinned_memory(ROOM);
  expect_fills(NULL, memory);
  CHECK_OK(plinth_pinned_free(memory));
}

TEST(memset_fills_with_a_byte) {
  unsigned char *memory = (unsigned char *)device_memory(ROOM, 0);
  CHECK_OK(plinth_memset(memory, 0xAB, ROOM, NULL));
  CHECK_OK(plinth_memset(memory + 1, 0xCD, 3, NULL));
  fetch(host, memory, ROOM);
  CHECK_EQ(host[0], 0xAB);
  CHECK_EQ(host[1], 0xCD);
  CHECK_EQ(host[3], 0xCD);
  CHECK_EQ(host[4], 0xAB);
  CHECK_EQ(host[ROOM - 1], 0xAB);
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_large_fill) {
  const size_t bytes = 64 * MIB;
  unsigned char *memory = (unsigned char *)device_memory(bytes, 0);
  unsigned char *whole = (unsigned char *)pageable_memory(bytes);
  const uint32_t pattern = 0xDEADBEEF;
  CHECK_OK(plinth_memset_pattern(memory, &pattern, 4, bytes, NULL));
  fetch(whole, memory, bytes);
  for (size_t index = 0; index < bytes; index += 4) {
    uint32_t word = 0;
    memcpy(&word, whole + index, 4);
    if (word != pattern) {
      CHECK_EQ(index, bytes);
    }
  }
  free(whole);
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_pattern_is_read_before_the_call_returns) {
  uint32_t pattern = 0x01020304;
  plinth_stream_t stream = stream_on(0);
  unsigned char *memory = (unsigned char *)device_memory(ROOM, 0);
  unsigned char *pinned = (unsigned char *)pinned_memory(ROOM);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_memset_pattern(memory, &pattern, 4, ROOM, stream));
  CHECK_OK(plinth_memcpy(pinned, memory, ROOM, stream));
  pattern = 0;
  CHECK(stays_undone(stream));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  memcpy(&pattern, pinned + 16, 4);
  CHECK_EQ(pattern, 0x01020304);
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_pattern_has_1_2_or_4_bytes) {
  const size_t sizes[] = {0, 3, 5, 8, 16, SIZE_MAX};
  const unsigned char pattern[16] = {0};
  unsigned char *memory = (unsigned char *)device_memory(ROOM, 0);
  for (int index = 0; index < 6; index++) {
    CHECK_STATUS(plinth_memset_pattern(memory, pattern, sizes[index], 240, NULL), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_STATUS(plinth_memset_pattern(memory, NULL, 4, 16, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("pattern");
  CHECK_OK(plinth_device_free(memory));
}

TEST(address_and_length_are_multiples_of_the_pattern) {
  const uint32_t pattern = 7;
  unsigned char *memory = (unsigned char *)device_memory(ROOM, 0);
  memset(host, 0, ROOM);
  put(memory, host, ROOM);
  for (size_t offset = 1; offset < 4; offset++) {
    CHECK_STATUS(plinth_memset_pattern(memory + offset, &pattern, 4, 16, NULL), PLINTH_ERROR_INVALID_VALUE);
    CHECK_STATUS(plinth_memset_pattern(memory, &pattern, 4, 16 + offset, NULL), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_STATUS(plinth_memset_pattern(memory + 1, &pattern, 2, 16, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memset_pattern(memory, &pattern, 2, 15, NULL), PLINTH_ERROR_INVALID_VALUE);
  fetch(host, memory, ROOM);
  for (size_t index = 0; index < ROOM; index++) {
    CHECK_EQ(host[index], 0);
  }
  CHECK_OK(plinth_device_free(memory));
}

TEST(nothing_is_filled_for_zero_bytes) {
  const unsigned char pattern = 1;
  CHECK_OK(plinth_memset(NULL, 1, 0, NULL));
  CHECK_OK(plinth_memset_pattern(NULL, &pattern, 1, 0, NULL));
}

TEST(invalid_ranges_are_refused) {
  const unsigned char pattern = 1;
  unsigned char *memory = (unsigned char *)device_memory(ROOM, 0);
  CHECK_STATUS(plinth_memset(NULL, 1, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memset_pattern(NULL, &pattern, 1, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memset(memory, 1, SIZE_MAX, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memset_pattern(memory, &pattern, 1, SIZE_MAX, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_device_free(memory));
}

TEST(pageable_memory_is_not_filled) {
  unsigned char *pageable = (unsigned char *)pageable_memory(KIB);
  memset(pageable, 0, KIB);
  CHECK_STATUS(plinth_memset(pageable, 1, KIB, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("filling 1.00 KiB: the destination at 0x");
  CHECK_MESSAGE(" is host memory that is not pinned");
  CHECK_EQ(pageable[0] | pageable[KIB - 1], 0);
  free(pageable);
}
