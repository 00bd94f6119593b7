/* Fills of strided tensors: elements are filled in the order of their addresses, and bytes between them do not change.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "drawing.h"

enum { ROOM = 64 * 1024, FILLER = 0xA5 };

static unsigned char *memory;
static unsigned char before[ROOM];
static unsigned char after[ROOM];

static void begin(void) {
  memset(before, FILLER, ROOM);
  memory = (unsigned char *)device_memory(ROOM, 0);
  put(memory, before, ROOM);
}

static int64_t elements_of(int32_t rank, const int64_t *shape) {
  int64_t count = 1;
  for (int32_t d = 0; d < rank; d++) {
    count *= shape[d];
  }
  return count;
}

/* Returns the offsets of a tensor's elements, in elements, in ascending order. */
static void offsets_of(int32_t rank, const int64_t *shape, const int64_t *strides, int64_t count, int64_t *offsets) {
  int64_t count_found = 0;
  bool *is_occupied = (bool *)calloc(ROOM, 1);
  CHECK(is_occupied != NULL);
  for (int64_t index = 0; index < count; index++) {
    int64_t rest = index;
    int64_t offset = 0;
    for (int32_t d = rank - 1; d >= 0; d--) {
      offset += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    CHECK(offset >= 0 && offset < ROOM && !is_occupied[offset]);
    is_occupied[offset] = true;
  }
  for (int64_t offset = 0; offset < ROOM; offset++) {
    if (is_occupied[offset]) {
      offsets[count_found++] = offset;
    }
  }
  CHECK_EQ(count_found, count);
  free(is_occupied);
}

/* Fills a strided tensor, and a contiguous one of as many elements with a generator in the same state. Expects the same
 * numbers in the order of addresses, the same offset, and no change of other bytes. */
static void expect_like_contiguous(const fill *one, int kind, int32_t rank, const int64_t *shape, const int64_t *strides,
                                   size_t byte_offset) {
  const int64_t count = elements_of(rank, shape);
  const size_t size = bytes_of(kind);
  int64_t *offsets = (int64_t *)pageable_memory((size_t)(count + 1) * sizeof *offsets);
  unsigned char *expected = (unsigned char *)pageable_memory((size_t)count * size + 1);
  tensor out;
  plinth_generator_t generator = new_generator(0, 21, 4);
  plinth_generator_t same = new_generator(0, 21, 4);
  void *dense = device_memory((size_t)count * size, 0);
  CHECK_OK(one->call(row(&out, dense, kind, count), same, NULL));
  fetch(expected, dense, (size_t)count * size);
  put(memory, before, ROOM);
  describe(&out, memory, kind, rank, shape, strides);
  out.dl.byte_offset = byte_offset;
  CHECK_OK(one->call(&out.dl, generator, NULL));
  CHECK_EQ(offset_of(generator), offset_of(same));
  fetch(after, memory, ROOM);
  offsets_of(rank, shape, strides, count, offsets);
  for (int64_t index = 0; index < count; index++) {
    unsigned char *at = after + byte_offset + (size_t)offsets[index] * size;
    CHECK(memcmp(at, expected + (size_t)index * size, size) == 0);
    memset(at, FILLER, size);
  }
  CHECK(memcmp(after, before, ROOM) == 0);
  free(offsets);
  free(expected);
  CHECK_OK(plinth_device_free(dense));
  CHECK_OK(plinth_generator_destroy(generator));
  CHECK_OK(plinth_generator_destroy(same));
}

/* As above, with every fill that takes tensors of any rank, and several dtypes. */
static void expect_all_like_contiguous(int32_t rank, const int64_t *shape, const int64_t *strides) {
  static const int kinds[] = {F32, F64, F16, BF16, U8, I64, I32, BOOL};
  begin();
  for (int index = 0; index < RANDPERM; index++) {
    for (int kind = 0; kind < 8; kind++) {
      if (takes(&fills[index], kinds[kind])) {
        expect_like_contiguous(&fills[index], kinds[kind], rank, shape, strides, 0);
      }
    }
  }
  CHECK_OK(plinth_device_free(memory));
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

TEST(every_second_element) { expect_all_like_contiguous(1, SHAPE(1500), SHAPE(2)); }

TEST(some_columns_of_a_matrix) { expect_all_like_contiguous(2, SHAPE(30, 7), SHAPE(50, 1)); }

TEST(a_transposed_matrix) { expect_all_like_contiguous(2, SHAPE(40, 30), SHAPE(1, 40)); }

TEST(a_transposed_part_of_a_matrix) { expect_all_like_contiguous(2, SHAPE(13, 20), SHAPE(3, 64)); }

TEST(channels_last) { expect_all_like_contiguous(4, SHAPE(3, 5, 7, 11), SHAPE(385, 1, 55, 5)); }

TEST(a_part_of_channels_last) { expect_all_like_contiguous(4, SHAPE(2, 3, 7, 5), SHAPE(616, 2, 88, 8)); }

TEST(three_dimensions_in_every_order) {
  static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  const int64_t sizes[3] = {4, 9, 5};
  const int64_t steps[3] = {2, 10, 100};
  for (int index = 0; index < 6; index++) {
    int64_t shape[3], strides[3];
    for (int d = 0; d < 3; d++) {
      shape[d] = sizes[order[index][d]];
      strides[d] = steps[order[index][d]];
    }
    expect_all_like_contiguous(3, shape, strides);
  }
}

TEST(dimensions_of_one_element_have_any_stride) {
  expect_all_like_contiguous(3, SHAPE(1, 40, 1), SHAPE(7, 1, 7777));
  expect_all_like_contiguous(4, SHAPE(1, 20, 1, 10), SHAPE(0, 30, 0, 2));
  expect_all_like_contiguous(2, SHAPE(1, 1), SHAPE(123456789, 0));
  expect_all_like_contiguous(2, SHAPE(1, 300), SHAPE(INT64_MAX, 1));
}

TEST(contiguous_strides_are_like_none) {
  expect_all_like_contiguous(3, SHAPE(5, 6, 7), SHAPE(42, 7, 1));
  begin();
  tensor out;
  float numbers[210];
  plinth_generator_t generator = new_generator(0, 21, 0);
  CHECK_OK(plinth_uniform(describe(&out, memory, F32, 3, SHAPE(5, 6, 7), NULL), 0, 1, generator, NULL));
  fetch(numbers, memory, sizeof numbers);
  for (int index = 0; index < 210; index++) {
    CHECK(numbers[index] == uniform_at(21, 0, index, 210));
  }
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(the_maximum_number_of_dimensions) {
  int64_t shape[25], strides[25];
  for (int d = 0; d < 25; d++) {
    shape[d] = d % 3 == 0 ? 2 : 1;
    strides[d] = 3;
  }
  for (int d = 24, step = 3; d >= 0; d--) {
    if (shape[d] == 2) {
      strides[d] = step;
      step *= 2;
    }
  }
  expect_all_like_contiguous(25, shape, strides);
  for (int d = 0; d < 12; d++) {
    const int64_t size = shape[d], stride = strides[d];
    shape[d] = shape[24 - d];
    strides[d] = strides[24 - d];
    shape[24 - d] = size;
    strides[24 - d] = stride;
  }
  expect_all_like_contiguous(25, shape, strides);
}

TEST(alignment_to_an_element_is_sufficient) {
  begin();
  for (size_t offset = 0; offset < 20; offset++) {
    expect_like_contiguous(&fills[0], F32, 1, SHAPE(1000), SHAPE(1), offset * 4);
    expect_like_contiguous(&fills[0], F16, 1, SHAPE(1000), SHAPE(1), offset * 2);
    expect_like_contiguous(&fills[0], F64, 1, SHAPE(1000), SHAPE(1), offset * 8);
    expect_like_contiguous(&fills[6], U8, 1, SHAPE(1000), SHAPE(1), offset);
    expect_like_contiguous(&fills[6], U8, 2, SHAPE(10, 99), SHAPE(100, 1), offset);
  }
}

TEST(an_offset_in_bytes_is_like_a_pointer) {
  tensor out;
  float numbers[30];
  begin();
  plinth_generator_t generator = new_generator(0, 21, 0);
  describe(&out, memory, F32, 2, SHAPE(3, 5), SHAPE(5, 1));
  out.dl.byte_offset = 60;
  CHECK_OK(plinth_uniform(&out.dl, 0, 1, generator, NULL));
  fetch(numbers, memory, sizeof numbers);
  for (int index = 0; index < 15; index++) {
    CHECK(numbers[15 + index] == uniform_at(21, 0, index, 15));
  }
  CHECK_EQ(((unsigned char *)numbers)[59], FILLER);
  CHECK_OK(plinth_generator_destroy(generator));
}

/* Random layouts: each dimension's stride exceeds the extent of the dimensions before it in a random order. */
TEST(random_layouts) {
  uint64_t state = 5;
  begin();
  for (int round = 0; round < 300; round++) {
    const int32_t rank = (int32_t)(random_next(&state) % 6);
    const fill *one = &fills[random_next(&state) % RANDPERM];
    int kind;
    int order[6] = {0, 1, 2, 3, 4, 5};
    int64_t shape[6], strides[6];
    int64_t step = 1;
    do {
      kind = (int)(random_next(&state) % DTYPES);
    } while (!takes(one, kind));
    for (int32_t d = rank - 1; d > 0; d--) {
      const int other = (int)(random_next(&state) % (uint64_t)(d + 1));
      const int swapped = order[d];
      order[d] = order[other];
      order[other] = swapped;
    }
    for (int32_t d = 0; d < rank; d++) {
      const int64_t most = step > 1000 ? 2 : 7;
      shape[order[d]] = 1 + (int64_t)(random_next(&state) % (uint64_t)most);
      strides[order[d]] = step;
      step = step * shape[order[d]] + (int64_t)(random_next(&state) % 3);
    }
    if (step < ROOM / 8) {
      expect_like_contiguous(one, kind, rank, shape, strides, bytes_of(kind) * (random_next(&state) % 5));
    }
  }
}

TEST(a_strided_tensor_larger_than_a_grid) {
  const int64_t rows = 1100, columns = 1000;
  tensor out;
  float *numbers = (float *)pageable_memory((size_t)(rows * 1024) * 4);
  void *large = device_memory((size_t)(rows * 1024) * 4, 0);
  plinth_generator_t generator = new_generator(0, 21, 8);
  CHECK_OK(plinth_memset(large, 0, (size_t)(rows * 1024) * 4, NULL));
  CHECK_OK(plinth_uniform(describe(&out, large, F32, 2, SHAPE(rows, columns), SHAPE(1024, 1)), 0, 1, generator, NULL));
  CHECK_EQ(offset_of(generator), 8 + advance_of(rows * columns, 4));
  fetch(numbers, large, (size_t)(rows * 1024) * 4);
  for (int64_t index = 0; index < rows * columns; index += index % 1000 == 999 ? 1 : 37) {
    CHECK(numbers[index / columns * 1024 + index % columns] == uniform_at(21, 8, index, rows * columns));
  }
  for (int64_t line = 0; line < rows; line++) {
    CHECK(numbers[line * 1024 + columns] == 0 && numbers[line * 1024 + 1023] == 0);
  }
  free(numbers);
  CHECK_OK(plinth_device_free(large));
  CHECK_OK(plinth_generator_destroy(generator));
}

/* If 31 bits cannot address a tensor's bytes, PyTorch fills it in parts: the whole tensor advances the offset, without using
 * the numbers, and then each part does. */
TEST(a_tensor_that_spans_2_GiB_is_filled_in_parts) {
  const int64_t far = (INT64_C(1) << 29) + 64;
  const size_t bytes = (size_t)(far + 3) * 4;
  tensor out;
  float numbers[6];
  unsigned char *large = (unsigned char *)device_memory(bytes, 0);
  plinth_generator_t generator = new_generator(0, 21, 0);
  CHECK_OK(plinth_uniform(describe(&out, large, F32, 2, SHAPE(2, 3), SHAPE(far, 1)), 0, 1, generator, NULL));
  CHECK_EQ(offset_of(generator), 12);
  fetch(numbers, large, 12);
  fetch(numbers + 3, large + (size_t)far * 4, 12);
  for (int part = 0; part < 2; part++) {
    for (int index = 0; index < 3; index++) {
      CHECK(numbers[part * 3 + index] == uniform_at(21, 4 + 4 * (uint64_t)part, index, 3));
    }
  }
  CHECK_OK(plinth_device_free(large));
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(more_elements_than_31_bits_can_count) {
  if (on_host_device()) {
    SKIP("takes minutes on the host device");
  }
  const int64_t count = (INT64_C(1) << 31) + 5;
  const int64_t half = count / 2;
  tensor out;
  unsigned char ends[16];
  unsigned char *large = (unsigned char *)device_memory((size_t)count, 0);
  plinth_generator_t generator = new_generator(0, 21, 0);
  CHECK_OK(plinth_random(row(&out, large, U8, count), generator, NULL));
  const uint64_t first = advance_of(count, 4);
  CHECK_EQ(offset_of(generator), first + advance_of(half, 4) + advance_of(count - half, 4));
  fetch(ends, large, 8);
  fetch(ends + 8, large + half, 8);
  for (int index = 0; index < 8; index++) {
    CHECK_EQ(ends[index], word_at(21, first, index, half) % 256);
    CHECK_EQ(ends[8 + index], word_at(21, first + advance_of(half, 4), index, count - half) % 256);
  }
  CHECK_OK(plinth_device_free(large));
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(probabilities_are_expanded_to_the_shape) {
  /* p of shape [4, 1, 3], for a tensor of [5, 4, 6, 3]: contiguous, transposed, and with every second element. */
  enum { COUNT = 5 * 4 * 6 * 3 };
  const struct {
    int64_t strides[3];
  } layouts[] = {{{3, 3, 1}}, {{1, 99, 4}}, {{6, 1, 2}}};
  tensor out, p;
  for (int layout = 0; layout < 3; layout++) {
    for (int kind = F16; kind <= F64; kind++) {
      unsigned char zeros[64 * 8] = {0};
      unsigned char ones[COUNT];
      begin();
      plinth_generator_t generator = new_generator(0, 21, 4);
      unsigned char *probabilities = (unsigned char *)device_memory(sizeof zeros, 0);
      /* All are 0, except for a 1 at [2, 0, 1]: the bits of 1.0 in each dtype, little endian. */
      const uint64_t one = kind == F16    ? 0x3C00
                           : kind == BF16 ? 0x3F80
                           : kind == F32  ? 0x3F800000
                                          : UINT64_C(0x3FF0000000000000);
      const size_t offset = (size_t)(2 * layouts[layout].strides[0] + layouts[layout].strides[2]) * bytes_of(kind);
      memcpy(zeros + offset, &one, bytes_of(kind));
      put(probabilities, zeros, sizeof zeros);
      describe(&p, probabilities, kind, 3, SHAPE(4, 1, 3), layouts[layout].strides);
      CHECK_OK(plinth_bernoulli_tensor(describe(&out, memory, U8, 4, SHAPE(5, 4, 6, 3), NULL), &p.dl, generator, NULL));
      CHECK_EQ(offset_of(generator), 16);
      fetch(ones, memory, COUNT);
      for (int index = 0; index < COUNT; index++) {
        CHECK_EQ(ones[index], index / 18 % 4 == 2 && index % 3 == 1);
      }
      CHECK_OK(plinth_device_free(probabilities));
      CHECK_OK(plinth_device_free(memory));
      CHECK_OK(plinth_generator_destroy(generator));
    }
  }
}

TEST(elements_may_share_a_probability) {
  const float probabilities[5] = {0, 1, 0, 1, 1};
  tensor out, p;
  unsigned char ones[20];
  begin();
  plinth_generator_t generator = new_generator(0, 21, 4);
  void *probability_memory = device_memory(sizeof probabilities, 0);
  put(probability_memory, probabilities, sizeof probabilities);
  describe(&p, probability_memory, F32, 2, SHAPE(4, 5), SHAPE(0, 1));
  CHECK_OK(plinth_bernoulli_tensor(describe(&out, memory, U8, 2, SHAPE(4, 5), NULL), &p.dl, generator, NULL));
  fetch(ones, memory, sizeof ones);
  for (int index = 0; index < 20; index++) {
    CHECK_EQ(ones[index], probabilities[index % 5] == 1);
  }
  CHECK_OK(plinth_device_free(probability_memory));
  CHECK_OK(plinth_generator_destroy(generator));
}
