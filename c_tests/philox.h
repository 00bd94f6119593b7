/*
 * The tests of plinth_philox.h: philox.c compiles them as C, philox_cpp.cpp as C++. The expected numbers are those of
 * the paper's implementation, and of PyTorch on a GPU.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef PHILOX_TESTS_H
#define PHILOX_TESTS_H

#include "support.h"

#include <math.h>
#include <plinth_philox.h>

static void expect_numbers(const uint32_t counter[4], const uint32_t key[2], const uint32_t expected[4]) {
  uint32_t numbers[4];
  plinth_philox_4x32_10(counter, key, numbers);
  for (int index = 0; index < 4; index++) {
    CHECK_EQ(numbers[index], expected[index]);
  }
}

TEST(known_answers) {
  const uint32_t zeros[4] = {0, 0, 0, 0};
  const uint32_t ones[4] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
  const uint32_t pi[6] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0};
  const uint32_t of_zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  expect_numbers(zeros, zeros, of_zeros);
  expect_numbers(ones, ones, of_ones);
  expect_numbers(pi, pi + 4, of_pi);
}

/* Returns number `index` of a subsequence, by definition. */
static uint32_t number_of(uint64_t seed, uint64_t subsequence, uint64_t index) {
  const uint64_t block = index / 4;
  const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)subsequence,
                               (uint32_t)(subsequence >> 32)};
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t numbers[4];
  plinth_philox_4x32_10(counter, key, numbers);
  return numbers[index % 4];
}

TEST(an_engine_returns_a_subsequence_in_order_from_any_offset) {
  const uint64_t offsets[] = {0, 1, 2, 3, 4, 5, 1000002, ((uint64_t)1 << 34) - 6, UINT64_MAX - 5000};
  const uint64_t seed = UINT64_C(0x123456789ABCDEF0), subsequence = UINT64_C(0xFFFFFFFF00000007);
  for (size_t which = 0; which < sizeof offsets / sizeof *offsets; which++) {
    uint64_t random = which, position = offsets[which];
    plinth_philox_engine_t engine;
    plinth_philox_init(&engine, seed, subsequence, position);
    for (int step = 0; step < 300; step++) {
      const uint64_t choice = random_next(&random) % 3;
      if (choice == 0) {
        CHECK_EQ(plinth_philox_next(&engine), number_of(seed, subsequence, position));
        position++;
      } else if (choice == 1) {
        uint32_t numbers[4];
        plinth_philox_next4(&engine, numbers);
        for (int index = 0; index < 4; index++) {
          CHECK_EQ(numbers[index], number_of(seed, subsequence, position));
          position++;
        }
      } else {
        const uint64_t count = random_next(&random) % 12;
        plinth_philox_skip(&engine, count);
        position += count;
      }
    }
  }
}

TEST(after_2_to_the_64_blocks_comes_the_next_subsequence) {
  plinth_philox_engine_t engine, next;
  /* A subsequence has 2^64 blocks, which are 2^66 numbers of 32 bits: four skips of 2^64 numbers. */
  plinth_philox_init(&engine, 1, UINT32_MAX, 2);
  plinth_philox_init(&next, 1, (uint64_t)UINT32_MAX + 1, 2);
  for (int step = 0; step < 4; step++) {
    plinth_philox_skip(&engine, UINT64_MAX);
    plinth_philox_skip(&engine, 1);
  }
  for (int index = 0; index < 10; index++) {
    CHECK_EQ(plinth_philox_next(&engine), plinth_philox_next(&next));
  }
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

static uint64_t bits_of_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

/* Draws what a GPU's thread draws with seed 42. */
static void draw(uint64_t thread, uint64_t offset, uint32_t numbers[4]) {
  plinth_philox_engine_t engine;
  plinth_philox_init(&engine, 42, thread, offset);
  plinth_philox_next4(&engine, numbers);
}

TEST(uniform_numbers_equal_those_of_a_gpu) {
  const uint32_t first[4] = {0x3f1ceaf0, 0x3c24cdda, 0x3ecbfce1, 0x3d251a6b};
  const uint64_t first_double[2] = {UINT64_C(0x3fddfd537715e0a7), UINT64_C(0x3fc028f483ccdda6)};
  uint32_t numbers[4];
  for (uint64_t thread = 0; thread < 4; thread++) {
    draw(thread, 0, numbers);
    CHECK_EQ(bits_of(plinth_philox_uniform(numbers[0])), first[thread]);
    CHECK_EQ(bits_of(plinth_philox_uniform_below_1(numbers[0])), first[thread]);
    if (thread < 2) {
      CHECK_EQ(bits_of_double(plinth_philox_uniform_double(numbers[0], numbers[1])), first_double[thread]);
    }
  }
  /* The last elements of a tensor of 1081345: the last thread's fourth number, and the first thread's fifth. */
  draw(270335, 0, numbers);
  CHECK_EQ(bits_of(plinth_philox_uniform(numbers[3])), 0x3e2b35b0);
  draw(0, 4, numbers);
  CHECK_EQ(bits_of(plinth_philox_uniform(numbers[0])), 0x3f7cdb21);
}

TEST(uniform_numbers_at_the_ends_of_their_range) {
  CHECK(plinth_philox_uniform(0) > 0.0f);
  CHECK(plinth_philox_uniform(UINT32_MAX) == 1.0f);
  CHECK(plinth_philox_uniform_below_1(UINT32_MAX) == 0.0f);
  CHECK(plinth_philox_uniform_below_1(UINT32_MAX - 256) < 1.0f);
  CHECK(plinth_philox_uniform_below_1(UINT32_MAX - 256) > 0.999f);
  CHECK(plinth_philox_uniform_double(0, 0) > 0.0);
  CHECK(plinth_philox_uniform_double(0x1FFFFF, UINT32_MAX) == 1.0);
}

TEST(normal_numbers_are_near_those_of_a_gpu) {
  const uint32_t first[4] = {0x3e46acdd, 0x400a53f2, 0xbe302def, 0x3f595c01};
  const uint64_t first_double[2] = {UINT64_C(0x3ff0938d6e3710a3), UINT64_C(0xbfff9be3fcfaa933)};
  uint32_t numbers[4];
  float pair[2];
  double pair_double[2];
  for (uint64_t thread = 0; thread < 4; thread++) {
    draw(thread, 0, numbers);
    plinth_philox_normal(numbers[0], numbers[1], pair);
    CHECK(fabsf(pair[0] - float_of(first[thread])) < 2e-6f);
    if (thread < 2) {
      plinth_philox_normal_double(numbers[0], numbers[1], numbers[2], numbers[3], pair_double);
      CHECK(fabs(pair_double[0] - double_of(first_double[thread])) < 1e-15);
    }
  }
  /* The second output for the other two numbers. */
  draw(270335, 0, numbers);
  plinth_philox_normal(numbers[2], numbers[3], pair);
  CHECK(fabsf(pair[1] - float_of(0x3ec181e6)) < 2e-6f);
}

TEST(normal_numbers_lie_on_circles) {
  uint32_t numbers[4];
  for (uint64_t thread = 0; thread < 1000; thread++) {
    double pair[2], radius, angle;
    draw(thread, 8, numbers);
    plinth_philox_normal_double(numbers[0], numbers[1], numbers[2], numbers[3], pair);
    radius = sqrt(-2.0 * log(plinth_philox_uniform_double(numbers[0], numbers[1])));
    angle = 6.283185307179586 * plinth_philox_uniform_double(numbers[2], numbers[3]);
    CHECK(fabs(pair[0] - radius * sin(angle)) < 1e-14);
    CHECK(fabs(pair[1] - radius * cos(angle)) < 1e-14);
  }
}

TEST(a_state_is_unpacked) {
  uint64_t words[2] = {77, 400}, seed = 0, offset = 0;
  plinth_philox_state_t state = {5, 12, 99, 0, 0};
  plinth_philox_unpack(state, &seed, &offset);
  CHECK_EQ(seed, 5);
  CHECK_EQ(offset, 12);
  state.captured = 1;
  state.seed = (uint64_t)(uintptr_t)&words[0];
  state.offset = (uint64_t)(uintptr_t)&words[1];
  plinth_philox_unpack(state, &seed, &offset);
  CHECK_EQ(seed, 77);
  CHECK_EQ(offset, 499);
  CHECK_EQ(sizeof state, 32);
}

#endif
