/* Fills with random numbers: the numbers, their order, and the advance of the offset. SPDX-License-Identifier: MIT OR
 * Apache-2.0 */
/* also: PLINTH_SANITIZER=error */
#include "drawing.h"

#define PAST_A_GRID (INT64_C(1081344) + 3)

/* Allocates memory with guard bytes on both sides, to find writes out of bounds. */
enum { GUARD = 256 };

static unsigned char *alloc_guarded(size_t bytes) {
  unsigned char *memory = (unsigned char *)device_memory(bytes + 2 * GUARD, 0);
  CHECK_OK(plinth_memset(memory, 0xA5, bytes + 2 * GUARD, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
  return memory + GUARD;
}

/* Checks the guard bytes, copies the bytes between them to the host, and frees the memory. Free the copy. */
static unsigned char *check_and_fetch(unsigned char *memory, size_t bytes) {
  unsigned char *host = (unsigned char *)pageable_memory(bytes + 2 * GUARD);
  fetch(host, memory - GUARD, bytes + 2 * GUARD);
  for (size_t index = 0; index < GUARD; index++) {
    CHECK_EQ(host[index], 0xA5);
    CHECK_EQ(host[GUARD + bytes + index], 0xA5);
  }
  CHECK_OK(plinth_device_free(memory - GUARD));
  memmove(host, host + GUARD, bytes);
  return host;
}

/* Returns the numbers of a fill of one dimension. Free them. */
static void *drawn(fill_call call, int kind, int64_t count, plinth_generator_t generator) {
  tensor out;
  const size_t bytes = (size_t)count * bytes_of(kind);
  unsigned char *memory = alloc_guarded(bytes);
  CHECK_OK(call(row(&out, memory, kind, count), generator, NULL));
  return check_and_fetch(memory, bytes);
}

static void expect_floats(const float *numbers, const double *expected, int count) {
  for (int index = 0; index < count; index++) {
    CHECK(fabs((double)numbers[index] - expected[index]) < 5.1e-5);
  }
}

TEST(known_seeds_give_the_known_first_numbers) {
  const double uniform_0[] = {0.3990, 0.5167, 0.0249, 0.9401, 0.9459};
  const double uniform_0_next[] = {0.9722, 0.7910, 0.4690, 0.3300, 0.3345};
  const double uniform_42[] = {0.6130, 0.0101, 0.3984, 0.0403, 0.1563};
  const double normal_0[] = {-0.9247, -0.4253, -2.6438, 0.1452, -0.1209};
  const double normal_42[] = {0.1940, 2.1614, -0.1721, 0.8491, -1.9244};
  plinth_generator_t generator = new_generator(0, 0, 0);
  float *numbers = (float *)drawn(draw_uniform, F32, 5, generator);
  expect_floats(numbers, uniform_0, 5);
  CHECK_EQ(offset_of(generator), 4);
  free(numbers);
  numbers = (float *)drawn(draw_uniform, F32, 5, generator);
  expect_floats(numbers, uniform_0_next, 5);
  CHECK_EQ(offset_of(generator), 8);
  free(numbers);
  CHECK_OK(plinth_generator_manual_seed(generator, 0));
  numbers = (float *)drawn(draw_normal, F32, 5, generator);
  expect_floats(numbers, normal_0, 5);
  free(numbers);
  CHECK_OK(plinth_generator_manual_seed(generator, 42));
  numbers = (float *)drawn(draw_uniform, F32, 5, generator);
  expect_floats(numbers, uniform_42, 5);
  free(numbers);
  CHECK_OK(plinth_generator_manual_seed(generator, 42));
  numbers = (float *)drawn(draw_normal, F32, 5, generator);
  expect_floats(numbers, normal_42, 5);
  free(numbers);
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(known_seeds_give_the_known_first_integers) {
  const int64_t expected[] = {1, 7, 1, 2, 3, 4, 3, 3};
  int64_t numbers[8];
  tensor out;
  void *memory = device_memory(sizeof numbers, 0);
  plinth_generator_t generator = new_generator(0, 0, 0);
  CHECK_OK(plinth_random_range(row(&out, memory, I64, 8), 0, 10, generator, NULL));
  fetch(numbers, memory, sizeof numbers);
  for (int index = 0; index < 8; index++) {
    CHECK_EQ(numbers[index], expected[index]);
  }
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

static void expect_uniform(uint64_t seed, uint64_t offset, int64_t count) {
  plinth_generator_t generator = new_generator(0, seed, offset);
  float *numbers = (float *)drawn(draw_uniform, F32, count, generator);
  for (int64_t index = 0; index < count; index++) {
    CHECK(numbers[index] == uniform_at(seed, offset, index, count));
    /* Check the first and the last 3000. */
    if (index == 3000 && count > 10000) {
      index = count - 3000;
    }
  }
  CHECK_EQ(offset_of(generator), offset + advance_of(count, 4));
  free(numbers);
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(uniform_numbers_are_those_of_philox_at_every_size) {
  const int64_t grid = (int64_t)lanes_of(INT32_MAX);
  const int64_t counts[] = {1, 2, 3, 31, 255, 256, 257, 1000, 4096, 4097, grid - 1, grid, grid + 1, 2 * grid + 5, 4 * grid,
                            4 * grid + 1, 9 * grid - 7};
  for (size_t index = 0; index < sizeof counts / sizeof counts[0]; index++) {
    expect_uniform(42, 0, counts[index]);
    expect_uniform(UINT64_MAX, 4096, counts[index]);
  }
}

TEST(large_seeds_and_offsets_use_all_64_bits) {
  const uint64_t seeds[] = {0, UINT32_MAX, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX};
  const uint64_t offsets[] = {4, ((uint64_t)1 << 34) - 4, (uint64_t)1 << 34, (uint64_t)1 << 40, (uint64_t)1 << 62};
  for (int seed = 0; seed < 5; seed++) {
    for (int offset = 0; offset < 5; offset++) {
      expect_uniform(seeds[seed], offsets[offset], 1000);
    }
  }
  /* The counter carries from its low word within one fill. */
  expect_uniform(1, ((uint64_t)1 << 34) - 4, PAST_A_GRID);
}

TEST(integers_are_remainders_of_philox_numbers) {
  const int64_t counts[] = {1, 257, 300000, PAST_A_GRID};
  tensor out;
  for (int size = 0; size < 4; size++) {
    const int64_t count = counts[size];
    plinth_generator_t generator = new_generator(0, 7, 8);
    int64_t *numbers;
    unsigned char *memory = alloc_guarded((size_t)count * 8);
    CHECK_OK(plinth_random_range(row(&out, memory, I64, count), -50, 1000003, generator, NULL));
    numbers = (int64_t *)(void *)check_and_fetch(memory, (size_t)count * 8);
    for (int64_t index = 0; index < count; index += index % 1000 == 999 ? 999 : 1) {
      CHECK_EQ(numbers[index], (int64_t)(word_at(7, 8, index, count) % 1000053u) - 50);
    }
    CHECK_EQ(offset_of(generator), 8 + advance_of(count, 4));
    free(numbers);
    CHECK_OK(plinth_generator_destroy(generator));
  }
}

TEST(wide_integers_take_64_bits) {
  const int64_t count = PAST_A_GRID;
  const struct {
    int64_t low, high;
  } ranges[] = {{0, 1 << 28}, {-5, (INT64_C(1) << 32) + 1}, {0, INT64_MAX}, {INT64_MIN, INT64_MAX}};
  tensor out;
  for (int range = 0; range < 4; range++) {
    const uint64_t width = (uint64_t)ranges[range].high - (uint64_t)ranges[range].low;
    plinth_generator_t generator = new_generator(0, 7, 8);
    int64_t *numbers;
    unsigned char *memory = alloc_guarded((size_t)count * 8);
    CHECK_OK(plinth_random_range(row(&out, memory, I64, count), ranges[range].low, ranges[range].high, generator, NULL));
    numbers = (int64_t *)(void *)check_and_fetch(memory, (size_t)count * 8);
    for (int64_t index = 0; index < count; index += 997) {
      CHECK_EQ((uint64_t)numbers[index], long_at(7, 8, index, count) % width + (uint64_t)ranges[range].low);
    }
    CHECK_EQ(offset_of(generator), 8 + advance_of(count, 2));
    free(numbers);
    CHECK_OK(plinth_generator_destroy(generator));
  }
}

TEST(random_from_reaches_the_largest_number) {
  int64_t numbers[300];
  uint8_t small[300];
  tensor out;
  void *memory = device_memory(sizeof numbers, 0);
  plinth_generator_t generator = new_generator(0, 7, 0);
  CHECK_OK(plinth_random_range(row(&out, memory, I64, 300), INT64_MIN, PLINTH_RANDOM_TO_LARGEST, generator, NULL));
  fetch(numbers, memory, sizeof numbers);
  for (int index = 0; index < 300; index++) {
    CHECK_EQ((uint64_t)numbers[index], long_at(7, 0, index, 300));
  }
  CHECK_OK(plinth_random_range(row(&out, memory, U8, 300), 200, PLINTH_RANDOM_TO_LARGEST, generator, NULL));
  fetch(small, memory, sizeof small);
  for (int index = 0; index < 300; index++) {
    CHECK_EQ(small[index], word_at(7, 4, index, 300) % 56 + 200);
  }
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(random_covers_the_dtype) {
  const double most[] = {2048, 256, 16777216, 9007199254740992.0, 255, 127, 32767, INT32_MAX, 9223372036854775807.0, 1};
  for (int kind = 0; kind < DTYPES; kind++) {
    plinth_generator_t generator = new_generator(0, 11, 0);
    void *numbers = drawn(draw_random, kind, 20000, generator);
    double smallest = INFINITY;
    double largest = -INFINITY;
    for (int index = 0; index < 20000; index++) {
      const double number = number_at(numbers, kind, index);
      smallest = number < smallest ? number : smallest;
      largest = number > largest ? number : largest;
    }
    CHECK(smallest >= 0 && smallest <= most[kind] / 100);
    CHECK(largest <= most[kind] && largest >= most[kind] * 0.99);
    free(numbers);
    CHECK_OK(plinth_generator_destroy(generator));
  }
}

static bool is_whole(double number) { return number == (double)(int64_t)number; }

static bool is_possible(const fill *one, double number) {
  switch (one->name[0]) {
    case 'u':
      return number >= 0 && number < 1;
    case 'n':
    case 'c':
      return number == number;
    case 'l':
    case 'e':
      return number >= 0;
    case 'g':
      return number >= 1 && is_whole(number);
    case 'b':
      return number == 0 || number == 1;
    default:
      return number >= 0 && is_whole(number);
  }
}

TEST(every_fill_takes_every_dtype_that_can_hold_its_numbers) {
  for (int index = 0; index < FILLS; index++) {
    for (int kind = 0; kind < DTYPES; kind++) {
      const int64_t count = index == RANDPERM ? 100 : 1000;
      if (!takes(&fills[index], kind)) {
        continue;
      }
      plinth_generator_t generator = new_generator(0, 13, 0);
      void *numbers = drawn(fills[index].call, kind, count, generator);
      double sum = 0;
      for (int64_t at = 0; at < count; at++) {
        const double number = number_at(numbers, kind, at);
        CHECK(is_possible(&fills[index], number));
        sum += number != number_at(numbers, kind, 0);
      }
      CHECK(sum > 0);
      CHECK(offset_of(generator) > 0 && offset_of(generator) % 4 == 0);
      CHECK_OK(plinth_generator_manual_seed(generator, 13));
      void *again = drawn(fills[index].call, kind, count, generator);
      CHECK(memcmp(numbers, again, (size_t)count * bytes_of(kind)) == 0);
      CHECK_OK(plinth_generator_manual_seed(generator, 14));
      void *other = drawn(fills[index].call, kind, count, generator);
      CHECK(memcmp(numbers, other, (size_t)count * bytes_of(kind)) != 0);
      free(numbers);
      free(again);
      free(other);
      CHECK_OK(plinth_generator_destroy(generator));
    }
  }
}

TEST(the_offset_moves_by_what_the_busiest_thread_used) {
  const int64_t grid = (int64_t)lanes_of(INT32_MAX);
  const int64_t counts[] = {1, 256, 257, grid, 2 * grid, 2 * grid + 1, 4 * grid, 4 * grid + 1};
  tensor out;
  void *memory = device_memory((size_t)(4 * grid + 1) * 8, 0);
  plinth_generator_t generator = new_generator(0, 1, 0);
  for (int index = 0; index < RANDPERM; index++) {
    for (int size = 0; size < 8; size++) {
      for (int kind = F32; kind <= F64; kind++) {
        if (counts[size] > 1000 && index % 3 != 0) {
          continue;
        }
        CHECK_OK(plinth_generator_manual_seed(generator, 1));
        CHECK_OK(fills[index].call(row(&out, memory, kind, counts[size]), generator, NULL));
        /* A double takes 64 bits, except for a small range of integers. */
        const bool narrow = kind == F32 || strcmp(fills[index].name, "random_range") == 0;
        CHECK_EQ(offset_of(generator), advance_of(counts[size], narrow ? 4 : 2));
      }
    }
  }
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(an_empty_tensor_does_not_advance_the_offset) {
  const int64_t shapes[][3] = {{0, 0, 0}, {0, 5, 7}, {5, 0, 7}, {5, 7, 0}};
  const int64_t ignored[3] = {1, 1, 1};
  tensor out;
  void *memory = device_memory(64, 0);
  plinth_generator_t generator = new_generator(0, 1, 40);
  for (int index = 0; index < FILLS; index++) {
    CHECK_OK(fills[index].call(row(&out, NULL, F32, 0), generator, NULL));
    CHECK_OK(fills[index].call(row(&out, memory, F32, 0), generator, NULL));
    for (int shape = 0; shape < 4 && index != RANDPERM; shape++) {
      CHECK_OK(fills[index].call(describe(&out, NULL, F32, 3, shapes[shape], NULL), generator, NULL));
      CHECK_OK(fills[index].call(describe(&out, NULL, F32, 3, shapes[shape], ignored), generator, NULL));
    }
    CHECK_EQ(offset_of(generator), 40);
  }
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(a_tensor_of_rank_0_has_one_number) {
  tensor out;
  float number = 0;
  plinth_generator_t generator = new_generator(0, 5, 0);
  unsigned char *memory = alloc_guarded(4);
  CHECK_OK(plinth_uniform(describe(&out, memory, F32, 0, NULL, NULL), 0, 1, generator, NULL));
  CHECK_EQ(offset_of(generator), 4);
  out.dl.shape = NULL;
  CHECK_OK(plinth_uniform(&out.dl, 0, 1, generator, NULL));
  CHECK_EQ(offset_of(generator), 8);
  void *host = check_and_fetch(memory, 4);
  memcpy(&number, host, 4);
  CHECK(number == uniform_at(5, 4, 0, 1));
  free(host);
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(uniform_numbers_lie_in_their_range) {
  const double ranges[][2] = {{0, 1}, {-1, 1}, {5, 5}, {0, 0}, {-60000, 5000}, {1, 1.001}, {0, 1e-7}};
  tensor out;
  void *memory = device_memory(5000 * 8, 0);
  void *host = pageable_memory(5000 * 8);
  plinth_generator_t generator = new_generator(0, 5, 0);
  for (int range = 0; range < 7; range++) {
    for (int kind = F16; kind <= F64; kind++) {
      const double low = ranges[range][0];
      const double high = ranges[range][1];
      CHECK_OK(plinth_uniform(row(&out, memory, kind, 5000), low, high, generator, NULL));
      fetch(host, memory, 5000 * bytes_of(kind));
      /* A bound that the dtype cannot represent may be rounded up or down. */
      const double slack = (fabs(low) + fabs(high)) * (kind == F16 ? 0x1p-11 : kind == BF16 ? 0x1p-8 : 0x1p-24);
      for (int index = 0; index < 5000; index++) {
        const double number = number_at(host, kind, index);
        CHECK(number >= low - slack && number <= high + slack);
        CHECK(low != high || number == low);
      }
    }
  }
  free(host);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(a_distribution_of_width_zero_is_constant) {
  tensor out;
  float numbers[1000];
  void *memory = device_memory(sizeof numbers, 0);
  plinth_generator_t generator = new_generator(0, 5, 0);
  CHECK_OK(plinth_normal(row(&out, memory, F32, 1000), 2.5, 0, generator, NULL));
  fetch(numbers, memory, sizeof numbers);
  for (int index = 0; index < 1000; index++) {
    CHECK(numbers[index] == 2.5f);
  }
  for (int p = 0; p < 2; p++) {
    CHECK_OK(plinth_bernoulli(row(&out, memory, F32, 1000), p, generator, NULL));
    fetch(numbers, memory, sizeof numbers);
    for (int index = 0; index < 1000; index++) {
      /* A number may round to 1, which is not less than a probability of 1. */
      CHECK(numbers[index] == (p == 1 && fraction(word_at(5, 4 + 4 * (uint64_t)p, index, 1000)) < 1 ? 1.0f : 0.0f));
    }
  }
  CHECK_EQ(offset_of(generator), 12);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

/* Element i uses number i % 4 of the first call of subsequence i / 4. */
static bool bernoulli_at(uint64_t seed, uint64_t offset, int64_t index, float p) {
  uint32_t words[4];
  philox(seed, (uint64_t)index / 4, offset / 4, words);
  return fraction(words[index % 4]) <= p;
}

TEST(each_element_may_have_its_own_probability) {
  enum { COUNT = 5003 };
  float probabilities[COUNT];
  unsigned char found[COUNT];
  tensor out, p;
  void *memory = device_memory(COUNT, 0);
  void *probability_memory = device_memory(sizeof probabilities, 0);
  plinth_generator_t generator = new_generator(0, 5, 8);
  for (int index = 0; index < COUNT; index++) {
    probabilities[index] = (float)(index % 1001) / 1000.0f;
  }
  put(probability_memory, probabilities, sizeof probabilities);
  CHECK_OK(plinth_bernoulli_tensor(row(&out, memory, BOOL, COUNT), row(&p, probability_memory, F32, COUNT), generator,
                                   NULL));
  CHECK_EQ(offset_of(generator), 20);
  fetch(found, memory, COUNT);
  for (int index = 0; index < COUNT; index++) {
    CHECK_EQ(found[index], bernoulli_at(5, 8, index, probabilities[index]));
  }
  CHECK_OK(plinth_bernoulli_tensor(row(&out, NULL, BOOL, 0), row(&p, NULL, F32, 0), generator, NULL));
  CHECK_EQ(offset_of(generator), 20);
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_device_free(probability_memory));
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(randperm_is_a_permutation) {
  const int64_t counts[] = {1, 2, 3, 16, 100, 127, 1000, 4097, 65536, 100003};
  plinth_generator_t generator = new_generator(0, 5, 0);
  for (int size = 0; size < 10; size++) {
    const int64_t count = counts[size];
    int64_t *numbers = (int64_t *)drawn(draw_randperm, I64, count, generator);
    unsigned char *is_present = (unsigned char *)calloc((size_t)count, 1);
    CHECK(is_present != NULL);
    for (int64_t index = 0; index < count; index++) {
      CHECK(numbers[index] >= 0 && numbers[index] < count);
      CHECK_EQ(is_present[numbers[index]]++, 0);
    }
    free(is_present);
    free(numbers);
    CHECK(offset_of(generator) % 4 == 0);
  }
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(a_fill_waits_only_for_its_stream) {
  enum { COUNT = 1000 };
  tensor out;
  float numbers[COUNT];
  plinth_generator_t generator = new_generator(0, 5, 0);
  plinth_stream_t stream = stream_on(0);
  void *memory = device_memory(sizeof numbers, 0);
  /* A GPU loads a kernel when it is first used, and may wait for everything meanwhile. */
  CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, generator, NULL));
  CHECK_OK(plinth_memset(memory, 0, sizeof numbers, NULL));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_generator_manual_seed(generator, 5));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_uniform(&out.dl, 0, 1, generator, stream));
  CHECK(!gate_is_open(held));
  CHECK(stays_undone(stream));
  /* The fill takes its state at the call. The tensor description may go, too. */
  CHECK_EQ(offset_of(generator), 4);
  CHECK_OK(plinth_generator_manual_seed(generator, 99));
  memset(&out, 0, sizeof out);
  CHECK_OK(plinth_generator_destroy(generator));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  fetch(numbers, memory, sizeof numbers);
  for (int index = 0; index < COUNT; index++) {
    CHECK(numbers[index] == uniform_at(5, 0, index, COUNT));
  }
  CHECK_OK(plinth_device_free(memory));
}

TEST(every_device_fills_its_own_memory) {
  for (int32_t device = 0; device < device_count(); device++) {
    tensor out;
    float number = 0;
    CHECK_OK(plinth_set_device(device));
    plinth_generator_t generator = new_generator(device, 5, 0);
    plinth_stream_t stream = stream_on(device);
    void *memory = device_memory(4, device);
    row(&out, memory, F32, 1)->device.device_id = device;
    CHECK_OK(plinth_uniform(&out.dl, 0, 1, generator, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    fetch(&number, memory, 4);
    CHECK(number == uniform_at(5, 0, 0, 1));
    CHECK_OK(plinth_device_free(memory));
    CHECK_OK(plinth_generator_destroy(generator));
  }
}

/* A fill of complex numbers is one of their parts: the same numbers, the same offset. */
static void expect_parts(bool is_normal, uint8_t bits, int real_kind) {
  enum { ROWS = 37, COLUMNS = 700 };
  const int64_t shape[] = {ROWS, COLUMNS}, strides[] = {1, ROWS}, parts[] = {COLUMNS, ROWS, 2};
  const size_t bytes = (size_t)ROWS * COLUMNS * bits / 8;
  tensor complex, real;
  unsigned char *memory[2], *host[2];
  plinth_generator_t generators[2] = {new_generator(0, 5, 8), new_generator(0, 5, 8)};
  for (int side = 0; side < 2; side++) {
    memory[side] = (unsigned char *)device_memory(bytes, 0);
    host[side] = (unsigned char *)pageable_memory(bytes);
  }
  describe(&complex, memory[0], real_kind, 2, shape, strides);
  complex.dl.dtype = (DLDataType){5, bits, 1};
  describe(&real, memory[1], real_kind, 3, parts, NULL);
  if (is_normal) {
    CHECK_OK(plinth_normal(&complex.dl, 1.5, 3, generators[0], NULL));
    CHECK_OK(plinth_normal(&real.dl, 1.5, 3 / sqrt(2), generators[1], NULL));
  } else {
    CHECK_OK(plinth_uniform(&complex.dl, -1, 2, generators[0], NULL));
    CHECK_OK(plinth_uniform(&real.dl, -1, 2, generators[1], NULL));
  }
  CHECK_EQ(offset_of(generators[0]), offset_of(generators[1]));
  CHECK_EQ(offset_of(generators[0]), 8 + advance_of(2 * ROWS * COLUMNS, real_kind == F64 ? 2 : 4));
  for (int side = 0; side < 2; side++) {
    fetch(host[side], memory[side], bytes);
    CHECK_OK(plinth_device_free(memory[side]));
    CHECK_OK(plinth_generator_destroy(generators[side]));
  }
  CHECK(memcmp(host[0], host[1], bytes) == 0);
  free(host[0]);
  free(host[1]);
}

TEST(complex_numbers_have_random_parts) {
  expect_parts(true, 64, F32);
  expect_parts(true, 128, F64);
  expect_parts(false, 64, F32);
  expect_parts(false, 128, F64);
}
