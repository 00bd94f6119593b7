/* The shared-memory engine with ranks in threads: order of messages, early destruction, and failed splits.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
#include "ranks.h"

enum { COUNT = 16, CYCLES_OF_A_SECOND = 1980000000 };

static uint64_t limit = 20000;
static plinth_communicator_t communicators[2];

static void make_communicators(void) { init_ranks(2, options_of(PLINTH_ENGINE_AUTO, limit, 0), communicators); }

static void destroy_communicators(void) {
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

/* ---- order */

static void *exchange_in_two_streams(void *context) {
  const int rank = *(int *)context, other = 1 - rank;
  plinth_stream_t first = stream_on(rank), second = stream_on(rank);
  const plinth_stream_t streams[] = {first, second, first, second, first};
  float *from = floats_on(rank, 5 * COUNT, (float)(100 * rank), 1), *to = floats_on(rank, 5 * COUNT, -1, 0);
  CHECK_OK(plinth_communicator_group_start());
  for (int index = 0; index < 5; index++) {
    CHECK_OK(plinth_communicator_send(communicators[rank], from + index * COUNT, COUNT, FLOAT32, other, streams[index]));
    /* The ranks receive in different streams. */
    CHECK_OK(plinth_communicator_recv(communicators[rank], to + index * COUNT, COUNT, FLOAT32, other,
                                      streams[(index + rank) % 5]));
  }
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, first));
  CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, second));
  expect_floats(to, 5 * COUNT, (float)(100 * other), 1);
  return NULL;
}

TEST(messages_are_ordered_across_streams) {
  make_communicators();
  run_threads(2, exchange_in_two_streams);
  destroy_communicators();
}

/* ---- a full queue */

enum { MESSAGES = 20000 };

static _Atomic int launched;

/* Sends until the stream takes no more launches, which no rank receives yet, and goes on when one does. */
static void *send_many(void *context) {
  const int32_t *numbers = (const int32_t *)context;
  plinth_stream_t stream = stream_on(0);
  for (launched = 0; launched < MESSAGES; launched++) {
    CHECK_OK(plinth_communicator_send(communicators[0], numbers + launched, 1, INT32, 1, stream));
  }
  CHECK_OK(plinth_communicator_wait(communicators[0], limit, stream));
  return NULL;
}

/* Returns when the count has not changed for a while. */
static int await_last_launch(void) {
  int before = -1;
  while (before != launched || before == 0) {
    before = launched;
    sleep_milliseconds(500);
  }
  return before;
}

TEST(a_query_does_not_wait_for_a_launch_that_waits_for_room) {
  make_communicators();
  int32_t sent[MESSAGES + 1], last = 0;
  for (int index = 0; index <= MESSAGES; index++) {
    sent[index] = index;
  }
  int32_t *from = (int32_t *)device_memory(sizeof sent, 0), *to = (int32_t *)device_memory(sizeof *to, 1);
  put(from, sent, sizeof sent);
  pthread_t sender;
  CHECK(pthread_create(&sender, NULL, send_many, from) == 0);
  const bool is_full = await_last_launch() < MESSAGES;
  const double begin = seconds_now();
  bool ready = false;
  CHECK_OK(plinth_communicator_query(communicators[0], &ready));
  CHECK(ready && seconds_now() - begin < 10);
  plinth_stream_t stream = stream_on(1);
  for (int index = 0; index < MESSAGES; index++) {
    CHECK_OK(plinth_communicator_recv(communicators[1], to, 1, INT32, 0, stream));
  }
  CHECK_OK(plinth_communicator_wait(communicators[1], limit, stream));
  CHECK(pthread_join(sender, NULL) == 0);
  fetch(&last, to, sizeof last);
  CHECK_EQ(last, MESSAGES - 1);
  destroy_communicators();
  CHECK(is_full);
}

/* ---- threads without a context */

enum { CALLS = 8 };

static plinth_stream_t streams[2];
static float *numbers[2];
static size_t calls;

/* The first call of a new thread. Every second one reduces fewer numbers. */
static void *reduce_fewer(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_all_reduce(communicators[rank], numbers[rank], numbers[rank], COUNT - calls / 2, FLOAT32,
                                          PLINTH_REDUCE_SUM, streams[rank]));
  return NULL;
}

static _Atomic int refusals;

static void count_refusals(int32_t level, const char *message, void *context) {
  (void)level, (void)context;
  refusals += strstr(message, "preparing a launch") != NULL;
}

TEST(each_call_may_be_made_by_a_new_thread) {
  make_communicators();
  CHECK_OK(plinth_set_log_callback(PLINTH_LOG_INFO, count_refusals, NULL));
  for (int rank = 0; rank < 2; rank++) {
    streams[rank] = stream_on(rank);
    numbers[rank] = floats_on(rank, COUNT, 1, 0);
  }
  for (calls = 0; calls < CALLS; calls++) {
    run_threads(2, reduce_fewer);
  }
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_stream_synchronize(streams[rank]));
    expect_floats(numbers[rank], COUNT - CALLS / 2 + 1, 1 << CALLS, 0);
    expect_floats(numbers[rank] + COUNT - 1, 1, 4, 0);
  }
  CHECK_OK(plinth_set_log_callback(PLINTH_LOG_WARNING, NULL, NULL));
  CHECK_EQ(refusals, 0);
  destroy_communicators();
}

/* ---- floating point in 8 bits */

/* For each type and operation, the bits of 1 and 2, and those of the result: 3, 2, 1, 2 and 1.5. */
static const struct {
  DLDataType type;
  unsigned char inputs[2], results[5];
} float8[] = {{{10, 8, 1}, {0x38, 0x40}, {0x44, 0x40, 0x38, 0x40, 0x3C}},
              {{12, 8, 1}, {0x3C, 0x40}, {0x42, 0x40, 0x3C, 0x40, 0x3E}}};
static const uint32_t operations[] = {PLINTH_REDUCE_SUM, PLINTH_REDUCE_PRODUCT, PLINTH_REDUCE_MIN, PLINTH_REDUCE_MAX,
                                      PLINTH_REDUCE_AVERAGE};

/* In packets, through slots, and of a length that is no multiple of the units of 16 bytes. */
static void *reduce_float8(void *context) {
  enum { MOST = 9 << 20 };
  static const size_t counts[] = {1, 100, 300007, MOST};
  const int rank = *(int *)context;
  plinth_stream_t stream = stream_on(rank);
  unsigned char *memory = device_memory(MOST, rank), *actual = pageable_memory(MOST);
  for (int type = 0; type < 2; type++) {
    for (int operation = 0; operation < 5; operation++) {
      for (int index = 0; index < 4; index++) {
        CHECK_OK(plinth_memset(memory, float8[type].inputs[rank], counts[index], stream));
        CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory, memory, counts[index], float8[type].type,
                                                operations[operation], stream));
        CHECK_OK(plinth_communicator_wait(communicators[rank], limit, stream));
        fetch(actual, memory, counts[index]);
        for (size_t element = 0; element < counts[index]; element++) {
          CHECK_EQ(actual[element], float8[type].results[operation]);
        }
      }
    }
  }
  free(actual);
  return NULL;
}

TEST(float8_is_reduced) {
  make_communicators();
  run_threads(2, reduce_float8);
  destroy_communicators();
}

/* ---- destruction */

TEST(a_sender_may_be_destroyed_before_its_message_is_received) {
  make_communicators();
  float *from = floats_on(1, COUNT, 5, 1), *to = floats_on(0, COUNT, -1, 0);
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_communicator_send(communicators[1], from, COUNT, FLOAT32, 0, NULL));
  CHECK_OK(plinth_communicator_wait(communicators[1], 20000, NULL));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
  CHECK_OK(plinth_sleep((uint64_t)CYCLES_OF_A_SECOND * 5 / 2, stream));
  CHECK_OK(plinth_communicator_recv(communicators[0], to, COUNT, FLOAT32, 1, stream));
  CHECK_OK(plinth_communicator_wait(communicators[0], 20000, stream));
  expect_floats(to, COUNT, 5, 1);
  /* No second message was sent. */
  CHECK_OK(plinth_communicator_recv(communicators[0], to, COUNT, FLOAT32, 1, stream));
  CHECK_STATUS(plinth_communicator_wait(communicators[0], 20000, stream), PLINTH_ERROR_PEER_LOST);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
}

/* ---- splits */

TEST(one_thread_splits_for_both_ranks) {
  plinth_communicator_t parts[2] = {NULL, NULL};
  make_communicators();
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_communicator_group_start());
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_split(communicators[rank], 0, -rank, &parts[rank]));
    }
    CHECK_OK(plinth_communicator_group_end());
    for (int rank = 0; rank < 2; rank++) {
      int32_t number = -1;
      CHECK_OK(plinth_communicator_rank(parts[rank], &number));
      CHECK_EQ(number, 1 - rank);
      CHECK_OK(plinth_communicator_destroy(parts[rank]));
    }
  }
  destroy_communicators();
}

static plinth_communicator_t other_communicators[2];

static void *split_both(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t parts[2] = {NULL, NULL};
  plinth_communicator_t *both[] = {rank == 0 ? communicators : other_communicators,
                                   rank == 0 ? other_communicators : communicators};
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_split(both[0][rank], 0, 0, &parts[0]));
  CHECK_OK(plinth_communicator_split(both[1][rank], 0, 0, &parts[1]));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_destroy(parts[0]));
  CHECK_OK(plinth_communicator_destroy(parts[1]));
  return NULL;
}

TEST(two_communicators_are_split_in_any_order_within_groups) {
  make_communicators();
  memcpy(other_communicators, communicators, sizeof communicators);
  make_communicators();
  run_threads(2, split_both);
  destroy_communicators();
  CHECK_OK(plinth_communicator_destroy(other_communicators[0]));
  CHECK_OK(plinth_communicator_destroy(other_communicators[1]));
}

static void *split_alone(void *context) {
  plinth_communicator_t part = UNTOUCHED_POINTER;
  (void)context;
  CHECK_STATUS(plinth_communicator_split(communicators[0], 0, 0, &part), PLINTH_ERROR_ABORTED);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  return NULL;
}

TEST(an_abort_ends_a_split_at_once) {
  pthread_t thread;
  bool ready = false;
  make_communicators();
  CHECK(pthread_create(&thread, NULL, split_alone, NULL) == 0);
  sleep_milliseconds(100);
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_abort(communicators[0]));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(seconds_now() - start < 10);
  CHECK_STATUS(plinth_communicator_query(communicators[1], &ready), PLINTH_ERROR_ABORTED);
  destroy_communicators();
}

static plinth_communicator_t three_ranks[3];

static void *split_or_abort(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t part = UNTOUCHED_POINTER;
  if (rank == 2) {
    sleep_milliseconds(100);
    CHECK_OK(plinth_communicator_abort(three_ranks[2]));
    return NULL;
  }
  CHECK_STATUS(plinth_communicator_split(three_ranks[rank], 0, 0, &part), PLINTH_ERROR_ABORTED);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  return NULL;
}

TEST(an_abort_of_one_rank_ends_the_splits_of_the_others) {
  init_ranks(3, options_of(PLINTH_ENGINE_AUTO, limit, 0), three_ranks);
  const double start = seconds_now();
  run_threads(3, split_or_abort);
  CHECK(seconds_now() - start < 10);
  for (int rank = 0; rank < 3; rank++) {
    CHECK_OK(plinth_communicator_destroy(three_ranks[rank]));
  }
}

TEST(a_split_that_times_out_aborts_the_communicator) {
  plinth_communicator_t part = NULL;
  bool ready = false;
  make_communicators();
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], 300));
  float *memory = floats_on(0, COUNT, 1, 0);
  CHECK_STATUS(plinth_communicator_split(communicators[0], 0, 0, &part), PLINTH_ERROR_TIMED_OUT);
  /* The other rank gets an error, and does not use rank 0's split for a later call. */
  CHECK_STATUS(plinth_communicator_split(communicators[1], 0, 0, &part), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("rank 0 of 2 waited too long for rank 1");
  CHECK_STATUS(plinth_communicator_query(communicators[1], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_ABORTED);
  destroy_communicators();
}
