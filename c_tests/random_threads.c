/* Threads that draw from one generator, and from their own. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 120 */
#include "drawing.h"
#include "graphing.h"

enum { THREADS = 8, ROUNDS = 500, COUNT = 300 };

static plinth_generator_t shared;
static uint64_t offsets[THREADS][ROUNDS];

static int ascending(const void *left, const void *right) {
  const uint64_t one = *(const uint64_t *)left;
  const uint64_t other = *(const uint64_t *)right;
  return (one > other) - (one < other);
}

static void *draw_states(void *context) {
  const int thread = *(int *)context;
  for (int round = 0; round < ROUNDS; round++) {
    plinth_philox_state_t state;
    CHECK_OK(plinth_generator_philox_state(shared, 4, &state));
    CHECK_EQ(state.seed, 77);
    offsets[thread][round] = state.offset;
    CHECK(round == 0 || offsets[thread][round] > offsets[thread][round - 1]);
  }
  return NULL;
}

TEST(no_offset_is_taken_twice) {
  CHECK_OK(plinth_init());
  shared = new_generator(0, 77, 0);
  run_threads(THREADS, draw_states);
  qsort(offsets, THREADS * ROUNDS, sizeof(uint64_t), ascending);
  for (int index = 0; index < THREADS * ROUNDS; index++) {
    CHECK_EQ(((uint64_t *)offsets)[index], 4 * (uint64_t)index);
  }
  CHECK_EQ(offset_of(shared), 4 * THREADS * ROUNDS);
  CHECK_OK(plinth_generator_destroy(shared));
}

static float numbers[THREADS][ROUNDS];

/* Each fill of one element draws one number, which depends only on its offset. */
static void *draw_from_shared(void *context) {
  const int thread = *(int *)context;
  plinth_stream_t stream = stream_on(0);
  float *memory = (float *)device_memory(ROUNDS * sizeof *memory, 0);
  tensor out;
  for (int round = 0; round < ROUNDS; round++) {
    CHECK_OK(plinth_uniform(row(&out, memory + round, F32, 1), 0, 1, shared, stream));
  }
  CHECK_OK(plinth_stream_synchronize(stream));
  fetch(numbers[thread], memory, sizeof numbers[thread]);
  CHECK_OK(plinth_device_free(memory));
  return NULL;
}

static int ascending_floats(const void *left, const void *right) {
  const float one = *(const float *)left;
  const float other = *(const float *)right;
  return (one > other) - (one < other);
}

static void expect_every_number_once(uint64_t seed) {
  static float expected[THREADS * ROUNDS];
  for (int index = 0; index < THREADS * ROUNDS; index++) {
    expected[index] = uniform_at(seed, 4 * (uint64_t)index, 0, 1);
  }
  qsort(expected, THREADS * ROUNDS, sizeof(float), ascending_floats);
  qsort(numbers, THREADS * ROUNDS, sizeof(float), ascending_floats);
  CHECK(memcmp(expected, numbers, sizeof expected) == 0);
}

TEST(threads_that_share_a_generator_draw_every_number_once) {
  CHECK_OK(plinth_init());
  shared = new_generator(0, 77, 0);
  run_threads(THREADS, draw_from_shared);
  CHECK_EQ(offset_of(shared), 4 * THREADS * ROUNDS);
  expect_every_number_once(77);
  CHECK_OK(plinth_generator_destroy(shared));
}

TEST(threads_that_share_the_default_generator_draw_every_number_once) {
  CHECK_OK(plinth_init());
  CHECK_OK(plinth_manual_seed(78));
  shared = NULL;
  run_threads(THREADS, draw_from_shared);
  plinth_generator_t generator = NULL;
  CHECK_OK(plinth_default_generator(0, &generator));
  CHECK_EQ(offset_of(generator), 4 * THREADS * ROUNDS);
  expect_every_number_once(78);
}

static void *draw_mixed(void *context) {
  const int thread = *(int *)context;
  plinth_stream_t stream = stream_on(0);
  void *memory = device_memory(COUNT * 8, 0);
  uint64_t state = (uint64_t)thread;
  tensor out;
  for (int round = 0; round < ROUNDS; round++) {
    const fill *one = &fills[random_next(&state) % RANDPERM];
    const int kind = (int)(random_next(&state) % 2) + F32;
    const int64_t count = (int64_t)(random_next(&state) % COUNT);
    CHECK_OK(one->call(row(&out, memory, kind, count), shared, stream));
    __atomic_add_fetch(&offsets[0][0], advance_of(count, 4), __ATOMIC_SEQ_CST);
  }
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_device_free(memory));
  return NULL;
}

TEST(the_total_advance_of_many_threads_is_exact) {
  CHECK_OK(plinth_init());
  shared = new_generator(0, 77, 0);
  offsets[0][0] = 0;
  run_threads(THREADS, draw_mixed);
  CHECK_EQ(offset_of(shared), offsets[0][0]);
  CHECK_OK(plinth_generator_destroy(shared));
}

static void *draw_from_own(void *context) {
  const int thread = *(int *)context;
  plinth_stream_t stream = stream_on(0);
  float numbers_of_round[COUNT];
  void *memory = device_memory(sizeof numbers_of_round, 0);
  tensor out;
  for (int round = 0; round < 50; round++) {
    plinth_generator_t own = new_generator(0, (uint64_t)thread, 4 * (uint64_t)round);
    plinth_generator_t clone = NULL;
    CHECK_OK(plinth_generator_clone(own, &clone));
    CHECK_OK(plinth_uniform(row(&out, memory, F32, COUNT), 0, 1, clone, stream));
    CHECK_OK(plinth_generator_destroy(clone));
    CHECK_OK(plinth_stream_synchronize(stream));
    fetch(numbers_of_round, memory, sizeof numbers_of_round);
    for (int index = 0; index < COUNT; index++) {
      CHECK(numbers_of_round[index] == uniform_at((uint64_t)thread, 4 * (uint64_t)round, index, COUNT));
    }
    CHECK_EQ(offset_of(own), 4 * round);
    CHECK_OK(plinth_generator_destroy(own));
  }
  CHECK_OK(plinth_device_free(memory));
  return NULL;
}

TEST(threads_with_their_own_generators_are_independent) {
  CHECK_OK(plinth_init());
  run_threads(THREADS, draw_from_own);
}

/* Seeding while others draw: each state that is read must be one of those that were set or drawn from. */
static void *seed_and_read(void *context) {
  const int thread = *(int *)context;
  float *memory = (float *)device_memory(sizeof *memory, 0);
  plinth_stream_t stream = stream_on(0);
  tensor out;
  for (int round = 0; round < ROUNDS; round++) {
    uint8_t state[16];
    uint64_t seed, offset;
    if (thread % 2 == 0) {
      const uint64_t next = round % 2 == 0 ? 0 : UINT64_MAX;
      state_of(next, next == 0 ? 4 : UINT64_C(0x00000004FFFFFFF0), state);
      CHECK_OK(plinth_generator_set_state(shared, state, 16));
    } else {
      CHECK_OK(plinth_generator_get_state(shared, state));
      memcpy(&seed, state, 8);
      memcpy(&offset, state + 8, 8);
      CHECK((seed == 0 && offset < 1000000) || (seed == UINT64_MAX && offset >= UINT64_C(0x00000004FFFFFFF0)));
      CHECK_OK(plinth_uniform(row(&out, memory, F32, 1), 0, 1, shared, stream));
    }
  }
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_device_free(memory));
  return NULL;
}

TEST(a_state_is_read_atomically) {
  uint8_t state[16];
  CHECK_OK(plinth_init());
  shared = new_generator(0, 0, 0);
  state_of(0, 4, state);
  CHECK_OK(plinth_generator_set_state(shared, state, 16));
  run_threads(THREADS, seed_and_read);
  CHECK_OK(plinth_generator_destroy(shared));
}

/* A launch waits for room in a stream with many operations. */
enum { MORE_THAN_A_STREAM_HOLDS = 4096 };

static int launched;
static plinth_graph_t replayed;
static plinth_stream_t held;

static void *draw_in_a_held_stream(void *context) {
  (void)context;
  float *memory = (float *)device_memory(sizeof *memory, 0);
  tensor out;
  for (int round = 0; round < MORE_THAN_A_STREAM_HOLDS; round++) {
    CHECK_OK(plinth_uniform(row(&out, memory, F32, 1), 0, 1, shared, held));
    __atomic_add_fetch(&launched, 1, __ATOMIC_SEQ_CST);
  }
  CHECK_OK(plinth_stream_synchronize(held));
  CHECK_OK(plinth_device_free(memory));
  return NULL;
}

static void *replay_in_a_held_stream(void *context) {
  (void)context;
  CHECK_OK(plinth_set_stream(held));
  for (int round = 0; round < MORE_THAN_A_STREAM_HOLDS; round++) {
    CHECK_OK(plinth_graph_replay(replayed));
    __atomic_add_fetch(&launched, 1, __ATOMIC_SEQ_CST);
  }
  CHECK_OK(plinth_stream_synchronize(held));
  return NULL;
}

/* Draws while a thread waits for room in the stream in which it draws from the same generator. */
static void draw_beside(void *(*draws)(void *)) {
  plinth_stream_t other = stream_on(0);
  float *memory = (float *)device_memory(sizeof *memory, 0);
  tensor out;
  pthread_t thread;
  int before = -1;
  CHECK_OK(plinth_uniform(row(&out, memory, F32, 1), 0, 1, shared, other));
  CHECK_OK(plinth_stream_synchronize(other));
  launched = 0;
  gate *shut = hold(held);
  CHECK(pthread_create(&thread, NULL, draws, NULL) == 0);
  while (__atomic_load_n(&launched, __ATOMIC_SEQ_CST) != before) {
    before = __atomic_load_n(&launched, __ATOMIC_SEQ_CST);
    sleep_milliseconds(200);
  }
  CHECK(before > 0);
  plinth_philox_state_t state;
  CHECK_OK(plinth_generator_philox_state(shared, 4, &state));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, 1), 0, 1, shared, other));
  expect_held(shut);
  gate_open(shut);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(offset_of(shared), 4 * (MORE_THAN_A_STREAM_HOLDS + 3));
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_generator_destroy(shared));
}

TEST(a_generator_can_be_used_while_a_fill_waits_for_room_in_its_stream) {
  held = stream_on(0);
  shared = new_generator(0, 77, 0);
  draw_beside(draw_in_a_held_stream);
}

TEST(a_generator_can_be_used_while_a_replay_waits_for_room_in_its_stream) {
  held = on_new_stream(0);
  shared = new_generator(0, 77, 0);
  replayed = new_graph(0);
  float *memory = (float *)device_memory(sizeof *memory, 0);
  tensor out;
  CHECK_OK(plinth_graph_register_generator_state(replayed, shared));
  CHECK_OK(plinth_graph_capture_begin(replayed, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_uniform(row(&out, memory, F32, 1), 0, 1, shared, held));
  CHECK_OK(plinth_graph_capture_end(replayed));
  draw_beside(replay_in_a_held_stream);
  CHECK_OK(plinth_graph_destroy(replayed));
  CHECK_OK(plinth_device_free(memory));
}

static void *first_use(void *context) {
  static uint64_t seeds[THREADS];
  static int arrived;
  const int thread = *(int *)context;
  plinth_generator_t generator = NULL;
  __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < THREADS) {
  }
  CHECK_OK(plinth_default_generator(0, &generator));
  CHECK_OK(plinth_generator_initial_seed(generator, &seeds[thread]));
  __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < 2 * THREADS) {
  }
  CHECK_EQ(seeds[thread], seeds[0]);
  return NULL;
}

TEST(threads_that_create_the_default_generator_get_one_seed) { run_threads(THREADS, first_use); }
