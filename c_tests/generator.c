/* Random generators: creation, seeds, states, clones, the default generators. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: a_machine_without_a_device_can_be_seeded; expects what only a fresh process has */
/* alone: a_seed_before_the_first_use_is_kept; expects what only a fresh process has */
#include "drawing.h"

static plinth_generator_t default_of(int32_t device) {
  plinth_generator_t generator = NULL;
  CHECK_OK(plinth_default_generator(device, &generator));
  CHECK(generator != NULL);
  return generator;
}

static uint64_t first_word(plinth_generator_t generator) {
  uint32_t word = 0;
  tensor out;
  void *memory = device_memory(4, 0);
  CHECK_OK(plinth_random_range(row(&out, memory, I32, 1), 0, 1 << 27, generator, NULL));
  fetch(&word, memory, 4);
  CHECK_OK(plinth_device_free(memory));
  return word;
}

static void expect_state(plinth_generator_t generator, uint64_t seed, uint64_t offset) {
  uint8_t state[16], expected[16];
  state_of(seed, offset, expected);
  CHECK_OK(plinth_generator_get_state(generator, state));
  CHECK(memcmp(state, expected, 16) == 0);
  CHECK_EQ(seed_of(generator), seed);
  CHECK_EQ(offset_of(generator), offset);
}

static void expect_device_state(int32_t device, uint64_t seed, uint64_t offset) {
  uint8_t state[16], expected[16];
  state_of(seed, offset, expected);
  CHECK_OK(plinth_get_rng_state(device, state));
  CHECK(memcmp(state, expected, 16) == 0);
}

TEST(a_new_generator_has_the_default_seed) {
  plinth_generator_t generator = NULL;
  CHECK_OK(plinth_generator_create(0, &generator));
  expect_state(generator, DEFAULT_SEED, 0);
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(manual_seed_resets_the_offset) {
  const uint64_t seeds[] = {0, 1, 42, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
  plinth_generator_t generator = new_generator(0, 5, 400);
  for (size_t index = 0; index < sizeof seeds / sizeof seeds[0]; index++) {
    CHECK_OK(plinth_generator_set_offset(generator, 8));
    CHECK_OK(plinth_generator_manual_seed(generator, seeds[index]));
    expect_state(generator, seeds[index], 0);
  }
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(seed_picks_a_random_seed) {
  plinth_generator_t generator = new_generator(0, 5, 400);
  uint64_t seeds[8];
  for (int index = 0; index < 8; index++) {
    seeds[index] = UNTOUCHED;
    CHECK_OK(plinth_generator_seed(generator, &seeds[index]));
    expect_state(generator, seeds[index], 0);
    for (int other = 0; other < index; other++) {
      CHECK(seeds[other] != seeds[index]);
    }
  }
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(a_state_can_be_restored) {
  plinth_generator_t generator = new_generator(0, 77, 4);
  plinth_generator_t other = new_generator(0, 1, 0);
  uint8_t state[16];
  CHECK_OK(plinth_generator_get_state(generator, state));
  const uint64_t word = first_word(generator);
  CHECK(first_word(generator) != word);
  CHECK_OK(plinth_generator_set_state(generator, state, sizeof state));
  CHECK_EQ(first_word(generator), word);
  CHECK_OK(plinth_generator_set_state(other, state, sizeof state));
  CHECK_EQ(first_word(other), word);
  expect_state(other, 77, 8);
  CHECK_OK(plinth_generator_destroy(generator));
  CHECK_OK(plinth_generator_destroy(other));
}

TEST(a_state_of_8_bytes_is_a_seed) {
  plinth_generator_t generator = new_generator(0, 77, 4);
  const uint64_t seed = UINT64_C(0x0123456789ABCDEF);
  CHECK_OK(plinth_generator_set_state(generator, (const uint8_t *)&seed, 8));
  expect_state(generator, seed, 0);
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(states_of_other_sizes_are_refused) {
  plinth_generator_t generator = new_generator(0, 77, 4);
  uint8_t state[1024] = {1};
  const size_t sizes[] = {0, 1, 7, 9, 15, 17, 816, SIZE_MAX};
  for (size_t index = 0; index < sizeof sizes / sizeof sizes[0]; index++) {
    CHECK_STATUS(plinth_generator_set_state(generator, state, sizes[index]), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("16");
    expect_state(generator, 77, 4);
  }
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(an_offset_is_a_multiple_of_4) {
  plinth_generator_t generator = new_generator(0, 77, 4);
  uint8_t state[16];
  const uint64_t good[] = {0, 4, 12, (uint64_t)1 << 34, UINT64_C(0x7FFFFFFFFFFFFFFC)};
  const uint64_t bad[] = {1, 2, 3, 5, 4095, UINT64_MAX};
  for (size_t index = 0; index < sizeof good / sizeof good[0]; index++) {
    CHECK_OK(plinth_generator_set_offset(generator, good[index]));
    expect_state(generator, 77, good[index]);
  }
  CHECK_OK(plinth_generator_set_offset(generator, 4));
  for (size_t index = 0; index < sizeof bad / sizeof bad[0]; index++) {
    CHECK_STATUS(plinth_generator_set_offset(generator, bad[index]), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("multiple of 4");
    state_of(1, bad[index], state);
    CHECK_STATUS(plinth_generator_set_state(generator, state, 16), PLINTH_ERROR_INVALID_VALUE);
    CHECK_STATUS(plinth_set_rng_state(0, state), PLINTH_ERROR_INVALID_VALUE);
    expect_state(generator, 77, 4);
  }
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(a_clone_is_independent) {
  plinth_generator_t generator = new_generator(0, 77, 4);
  plinth_generator_t clone = NULL;
  CHECK_OK(plinth_generator_clone(generator, &clone));
  CHECK(clone != generator);
  expect_state(clone, 77, 4);
  const uint64_t word = first_word(generator);
  expect_state(clone, 77, 4);
  CHECK_EQ(first_word(clone), word);
  CHECK_OK(plinth_generator_manual_seed(clone, 3));
  expect_state(generator, 77, 8);
  CHECK_OK(plinth_generator_destroy(generator));
  expect_state(clone, 3, 0);
  (void)first_word(clone);
  CHECK_OK(plinth_generator_destroy(clone));
}

TEST(the_clone_of_a_default_generator_can_be_destroyed) {
  plinth_generator_t clone = NULL;
  CHECK_OK(plinth_manual_seed(9));
  CHECK_OK(plinth_generator_clone(default_of(0), &clone));
  CHECK_OK(plinth_manual_seed(10));
  expect_state(clone, 9, 0);
  CHECK_OK(plinth_generator_destroy(clone));
  expect_state(default_of(0), 10, 0);
}

TEST(a_generator_reports_its_device) {
  for (int32_t device = 0; device < device_count(); device++) {
    plinth_generator_t generator = new_generator(device, 1, 0);
    plinth_generator_t clone = NULL;
    int32_t reported_device = UNTOUCHED;
    CHECK_OK(plinth_generator_device(generator, &reported_device));
    CHECK_EQ(reported_device, device);
    CHECK_OK(plinth_generator_device(default_of(device), &reported_device));
    CHECK_EQ(reported_device, device);
    CHECK_OK(plinth_generator_clone(generator, &clone));
    CHECK_OK(plinth_generator_device(clone, &reported_device));
    CHECK_EQ(reported_device, device);
    CHECK_OK(plinth_generator_destroy(clone));
    CHECK_OK(plinth_generator_destroy(generator));
  }
}

TEST(minus_1_is_the_current_device) {
  need_devices(2);
  int32_t reported_device = UNTOUCHED;
  CHECK_OK(plinth_set_device(1));
  plinth_generator_t generator = new_generator(-1, 1, 0);
  CHECK_OK(plinth_generator_device(generator, &reported_device));
  CHECK_EQ(reported_device, 1);
  CHECK_SAME(default_of(-1), default_of(1));
  CHECK(default_of(0) != default_of(1));
  uint8_t state[16];
  state_of(21, 4, state);
  CHECK_OK(plinth_set_rng_state(-1, state));
  expect_device_state(1, 21, 4);
  expect_device_state(-1, 21, 4);
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(invalid_devices_are_refused) {
  plinth_generator_t generator = (plinth_generator_t)UNTOUCHED_POINTER;
  uint8_t state[16] = {7};
  const int32_t numbers[] = {device_count(), 64, -2, INT32_MIN, INT32_MAX};
  for (size_t index = 0; index < sizeof numbers / sizeof numbers[0]; index++) {
    CHECK_STATUS(plinth_generator_create(numbers[index], &generator), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_default_generator(numbers[index], &generator), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_get_rng_state(numbers[index], state), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_set_rng_state(numbers[index], state), PLINTH_ERROR_INVALID_DEVICE);
  }
  CHECK_SAME(generator, UNTOUCHED_POINTER);
  CHECK_EQ(state[0], 7);
}

TEST(default_generators_are_seeded_at_random) {
  need_devices(2);
  CHECK(seed_of(default_of(0)) != seed_of(default_of(1)));
  CHECK(seed_of(default_of(0)) != DEFAULT_SEED);
  CHECK_EQ(offset_of(default_of(0)), 0);
  const uint64_t seed = seed_of(default_of(0));
  CHECK_EQ(seed_of(default_of(0)), seed);
  uint64_t initial = UNTOUCHED;
  CHECK_OK(plinth_initial_seed(&initial));
  CHECK_EQ(initial, seed);
}

TEST(a_default_generator_is_always_the_same_one) {
  plinth_generator_t generator = default_of(0);
  CHECK_OK(plinth_manual_seed(12));
  CHECK_SAME(default_of(0), generator);
  expect_state(generator, 12, 0);
  CHECK_EQ(first_word(NULL), word_at(12, 0, 0, 1) % (1 << 27));
  expect_state(generator, 12, 4);
  CHECK_EQ(first_word(generator), word_at(12, 4, 0, 1) % (1 << 27));
  expect_device_state(0, 12, 8);
}

TEST(a_default_generator_is_not_destroyed) {
  plinth_generator_t generator = default_of(0);
  CHECK_OK(plinth_manual_seed(12));
  CHECK(plinth_generator_destroy(generator) != PLINTH_OK);
  CHECK_MESSAGE("default");
  expect_state(generator, 12, 0);
}

TEST(manual_seed_affects_the_current_device) {
  need_devices(2);
  CHECK_OK(plinth_manual_seed_all(3));
  expect_device_state(0, 3, 0);
  expect_device_state(1, 3, 0);
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_manual_seed(4));
  expect_device_state(0, 3, 0);
  expect_device_state(1, 4, 0);
  uint64_t initial = UNTOUCHED;
  CHECK_OK(plinth_initial_seed(&initial));
  CHECK_EQ(initial, 4);
  CHECK_OK(plinth_seed());
  CHECK_OK(plinth_initial_seed(&initial));
  CHECK(initial != 4);
  expect_device_state(0, 3, 0);
}

TEST(seed_all_sets_the_same_seed_on_every_device) {
  need_devices(2);
  CHECK_OK(plinth_manual_seed_all(3));
  CHECK_OK(plinth_seed_all());
  const uint64_t seed = seed_of(default_of(0));
  CHECK(seed != 3);
  for (int32_t device = 0; device < device_count(); device++) {
    expect_device_state(device, seed, 0);
  }
}

TEST(devices_have_separate_generators) {
  need_devices(2);
  tensor out;
  void *memory = device_memory(4, 1);
  CHECK_OK(plinth_manual_seed_all(3));
  row(&out, memory, F32, 1)->device.device_id = 1;
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_uniform(&out.dl, 0, 1, NULL, NULL));
  expect_device_state(0, 3, 0);
  expect_device_state(1, 3, 4);
  CHECK_OK(plinth_synchronize(1));
  CHECK_OK(plinth_device_free(memory));
}

TEST(states_of_all_devices_are_saved_and_restored) {
  const int32_t count = device_count();
  uint8_t states[64 * 16], saved[64 * 16];
  CHECK(count <= 64);
  for (int32_t device = 0; device < count; device++) {
    state_of(100 + (uint64_t)device, 4 * (uint64_t)device, states + 16 * device);
  }
  CHECK_OK(plinth_set_rng_state_all(states, count));
  for (int32_t device = 0; device < count; device++) {
    expect_device_state(device, 100 + (uint64_t)device, 4 * (uint64_t)device);
  }
  memset(saved, 0xA5, sizeof saved);
  CHECK_OK(plinth_get_rng_state_all(saved, count));
  CHECK(memcmp(saved, states, (size_t)count * 16) == 0);
  CHECK(count == 64 || saved[16 * count] == 0xA5);
  memset(saved, 0xA5, sizeof saved);
  CHECK_OK(plinth_get_rng_state_all(saved, 1));
  CHECK(memcmp(saved, states, 16) == 0);
  CHECK_EQ(saved[16], 0xA5);
  CHECK_OK(plinth_get_rng_state_all(saved, 0));
  CHECK_STATUS(plinth_get_rng_state_all(saved, -1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_get_rng_state_all(saved, count + 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_get_rng_state_all(NULL, count), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_get_rng_state_all(NULL, 0));
  CHECK_OK(plinth_set_rng_state_all(NULL, 0));
  /* One invalid state makes the call change no generator. */
  state_of(7, 0, states);
  state_of(8, 3, states + 16 * (count - 1));
  CHECK_STATUS(plinth_set_rng_state_all(states, count), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_set_rng_state_all(states, -1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_set_rng_state_all(saved, count + 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_set_rng_state_all(NULL, count), PLINTH_ERROR_NULL_POINTER);
  expect_device_state(0, 100, 0);
}

TEST(null_stands_for_the_default_generator) {
  const int32_t device = device_count() - 1;
  uint64_t seed = UNTOUCHED;
  int32_t reported_device = UNTOUCHED;
  plinth_generator_t clone = NULL;
  plinth_philox_state_t taken;
  CHECK_OK(plinth_set_device(device));
  CHECK_OK(plinth_generator_manual_seed(NULL, 55));
  CHECK_OK(plinth_generator_set_offset(NULL, 12));
  expect_device_state(device, 55, 12);
  expect_state(NULL, 55, 12);
  CHECK_OK(plinth_generator_device(NULL, &reported_device));
  CHECK_EQ(reported_device, device);
  CHECK_OK(plinth_generator_philox_state(NULL, 4, &taken));
  CHECK_EQ(taken.seed, 55);
  CHECK_EQ(taken.offset, 12);
  expect_device_state(device, 55, 16);
  CHECK_OK(plinth_generator_clone(NULL, &clone));
  expect_state(clone, 55, 16);
  CHECK_OK(plinth_generator_seed(NULL, &seed));
  expect_device_state(device, seed, 0);
  CHECK_OK(plinth_generator_seed(NULL, NULL));
  CHECK(seed_of(NULL) != seed);
  CHECK_OK(plinth_generator_destroy(clone));
}

TEST(a_seed_before_the_first_use_is_kept) {
  CHECK(!plinth_is_initialized());
  CHECK_OK(plinth_manual_seed(31));
  CHECK_OK(plinth_init());
  expect_device_state(0, 31, 0);
}

TEST(a_seed_for_all_before_the_first_use_is_kept) {
  CHECK_OK(plinth_manual_seed_all(32));
  CHECK_OK(plinth_init());
  for (int32_t device = 0; device < device_count(); device++) {
    expect_device_state(device, 32, 0);
  }
}

TEST(the_last_seed_before_the_first_use_wins) {
  CHECK_OK(plinth_manual_seed(31));
  CHECK_OK(plinth_manual_seed_all(32));
  CHECK_OK(plinth_manual_seed(33));
  CHECK_OK(plinth_init());
  expect_device_state(0, 33, 0);
  if (device_count() > 1) {
    expect_device_state(1, 32, 0);
  }
}

TEST(a_machine_without_a_device_can_be_seeded) {
  /* As in PyTorch, programs may seed without a device; all other calls fail. */
  plinth_generator_t generator = (plinth_generator_t)UNTOUCHED_POINTER;
  uint64_t seed = UNTOUCHED;
  setenv("PLINTH_DEVICE", "cuda", 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK_OK(plinth_manual_seed(31));
  CHECK_OK(plinth_manual_seed_all(32));
  CHECK(plinth_initial_seed(&seed) != PLINTH_OK);
  CHECK(plinth_generator_create(0, &generator) != PLINTH_OK);
  CHECK(plinth_default_generator(0, &generator) != PLINTH_OK);
  CHECK_EQ(seed, UNTOUCHED);
  CHECK_SAME(generator, UNTOUCHED_POINTER);
}

TEST(philox_states_do_not_overlap) {
  plinth_generator_t generator = new_generator(0, 77, 40);
  plinth_philox_state_t state;
  memset(&state, 0xA5, sizeof state);
  const uint64_t increments[] = {4, 1, 3, 5, 0, 1024};
  uint64_t offset = 40;
  for (size_t index = 0; index < sizeof increments / sizeof increments[0]; index++) {
    CHECK_OK(plinth_generator_philox_state(generator, increments[index], &state));
    CHECK_EQ(state.seed, 77);
    CHECK_EQ(state.offset, offset);
    CHECK_EQ(state.captured, 0);
    offset += (increments[index] + 3) / 4 * 4;
    CHECK_EQ(offset_of(generator), offset);
  }
  CHECK_STATUS(plinth_generator_philox_state(generator, 4, NULL), PLINTH_ERROR_NULL_POINTER);
  /* A negative number that became unsigned: rounded up, it would be 0. */
  CHECK_STATUS(plinth_generator_philox_state(generator, (uint64_t)-1, &state), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_generator_philox_state(generator, (UINT64_C(1) << 62) + 1, &state), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(offset_of(generator), offset);
  CHECK_OK(plinth_generator_destroy(generator));
}

/* Calls each function that takes a generator with an invalid handle. */
static void expect_invalid_generator(plinth_generator_t bad, plinth_status_t status) {
  uint64_t number = UNTOUCHED;
  int32_t device = UNTOUCHED;
  uint8_t state[16] = {7};
  plinth_generator_t clone = (plinth_generator_t)UNTOUCHED_POINTER;
  plinth_philox_state_t taken = {0};
  taken.seed = UNTOUCHED;
  CHECK_STATUS(plinth_generator_manual_seed(bad, 1), status);
  CHECK_MESSAGE("generator");
  CHECK_STATUS(plinth_generator_seed(bad, &number), status);
  CHECK_STATUS(plinth_generator_initial_seed(bad, &number), status);
  CHECK_STATUS(plinth_generator_get_state(bad, state), status);
  CHECK_STATUS(plinth_generator_set_state(bad, state, 16), status);
  CHECK_STATUS(plinth_generator_get_offset(bad, &number), status);
  CHECK_STATUS(plinth_generator_set_offset(bad, 4), status);
  CHECK_STATUS(plinth_generator_clone(bad, &clone), status);
  CHECK_STATUS(plinth_generator_device(bad, &device), status);
  CHECK_STATUS(plinth_generator_philox_state(bad, 4, &taken), status);
  CHECK_STATUS(plinth_generator_destroy(bad), status);
  CHECK_EQ(number, UNTOUCHED);
  CHECK_EQ(device, UNTOUCHED);
  CHECK_EQ(state[0], 7);
  CHECK_EQ(taken.seed, UNTOUCHED);
  CHECK_SAME(clone, UNTOUCHED_POINTER);
}

TEST(invalid_generator_handles_are_refused) {
  int on_stack = 0;
  plinth_event_t event = new_event(0);
  plinth_generator_t destroyed = new_generator(0, 1, 0);
  CHECK_OK(plinth_generator_destroy(destroyed));
  expect_invalid_generator(destroyed, PLINTH_ERROR_INVALID_HANDLE);
  expect_invalid_generator((plinth_generator_t)(void *)event, PLINTH_ERROR_INVALID_HANDLE);
  expect_invalid_generator((plinth_generator_t)(void *)stream_on(0), PLINTH_ERROR_INVALID_HANDLE);
  expect_invalid_generator((plinth_generator_t)(void *)&on_stack, PLINTH_ERROR_INVALID_HANDLE);
  expect_invalid_generator((plinth_generator_t)(uintptr_t)1, PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_event_destroy((plinth_event_t)(void *)default_of(0)), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(a_fill_refuses_an_invalid_generator_handle) {
  tensor out;
  float before = 5;
  void *memory = device_memory(4, 0);
  plinth_generator_t destroyed = new_generator(0, 1, 0);
  put(memory, &before, 4);
  CHECK_OK(plinth_generator_destroy(destroyed));
  CHECK_STATUS(plinth_uniform(row(&out, memory, F32, 1), 0, 1, destroyed, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("generator");
  fetch(&before, memory, 4);
  CHECK(before == 5);
  CHECK_OK(plinth_device_free(memory));
}

TEST(destroying_null_does_nothing) { CHECK_OK(plinth_generator_destroy(NULL)); }

TEST(outputs_must_not_be_null) {
  plinth_generator_t generator = new_generator(0, 77, 4);
  CHECK_STATUS(plinth_generator_create(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_default_generator(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_generator_initial_seed(generator, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_generator_get_state(generator, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_generator_set_state(generator, NULL, 16), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_generator_get_offset(generator, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_generator_clone(generator, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_generator_device(generator, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_initial_seed(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_rng_state(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_set_rng_state(0, NULL), PLINTH_ERROR_NULL_POINTER);
  expect_state(generator, 77, 4);
  CHECK_OK(plinth_generator_destroy(generator));
}

TEST(many_generators_are_created_and_destroyed) {
  for (int round = 0; round < 10000; round++) {
    plinth_generator_t generator = NULL;
    plinth_generator_t clone = NULL;
    CHECK_OK(plinth_generator_create(0, &generator));
    CHECK_OK(plinth_generator_clone(generator, &clone));
    CHECK_OK(plinth_generator_destroy(generator));
    CHECK_OK(plinth_generator_destroy(clone));
  }
}
