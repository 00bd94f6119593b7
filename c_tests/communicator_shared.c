/* Ranks in threads that share memory: the order between two of them, who leaves early, and splits that come to nothing.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
#include "ranks.h"

enum { COUNT = 16, CYCLES_OF_A_SECOND = 1980000000 };

static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
static uint64_t limit = 20000;
static plinth_communicator_t team[2];

static void *join(void *context) {
  const int rank = *(int *)context;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, limit, 0);
  CHECK_OK(plinth_communicator_init_rank(2, id, rank, rank, &options, &team[rank]));
  return NULL;
}

static void make_team(void) {
  need_devices(2);
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(2, join);
}

static void end_team(void) {
  CHECK_OK(plinth_communicator_destroy(team[0]));
  CHECK_OK(plinth_communicator_destroy(team[1]));
}

/* ---- order */

static void *talk_in_two_streams(void *context) {
  const int rank = *(int *)context, other = 1 - rank;
  plinth_stream_t first = stream_on(rank), second = stream_on(rank);
  const plinth_stream_t streams[] = {first, second, first, second, first};
  float *from = floats_on(rank, 5 * COUNT, (float)(100 * rank), 1), *to = floats_on(rank, 5 * COUNT, -1, 0);
  CHECK_OK(plinth_communicator_group_start());
  for (int index = 0; index < 5; index++) {
    CHECK_OK(plinth_communicator_send(team[rank], from + index * COUNT, COUNT, FLOAT32, other, streams[index]));
    /* The ranks receive in different streams. */
    CHECK_OK(plinth_communicator_recv(team[rank], to + index * COUNT, COUNT, FLOAT32, other, streams[(index + rank) % 5]));
  }
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(team[rank], 20000, first));
  CHECK_OK(plinth_communicator_wait(team[rank], 20000, second));
  expect_floats(to, 5 * COUNT, (float)(100 * other), 1);
  return NULL;
}

TEST(what_is_sent_comes_in_order_whatever_the_streams) {
  make_team();
  run_threads(2, talk_in_two_streams);
  end_team();
}

/* ---- leaving */

TEST(who_has_sent_may_leave_long_before_it_is_received) {
  make_team();
  float *from = floats_on(1, COUNT, 5, 1), *to = floats_on(0, COUNT, -1, 0);
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_communicator_send(team[1], from, COUNT, FLOAT32, 0, NULL));
  CHECK_OK(plinth_communicator_wait(team[1], 20000, NULL));
  CHECK_OK(plinth_communicator_destroy(team[1]));
  CHECK_OK(plinth_sleep((uint64_t)CYCLES_OF_A_SECOND * 5 / 2, stream));
  CHECK_OK(plinth_communicator_recv(team[0], to, COUNT, FLOAT32, 1, stream));
  CHECK_OK(plinth_communicator_wait(team[0], 20000, stream));
  expect_floats(to, COUNT, 5, 1);
  /* There is no more to come. */
  CHECK_OK(plinth_communicator_recv(team[0], to, COUNT, FLOAT32, 1, stream));
  CHECK_STATUS(plinth_communicator_wait(team[0], 20000, stream), PLINTH_ERROR_PEER_LOST);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_communicator_destroy(team[0]));
}

/* ---- splits */

TEST(one_thread_splits_for_both_ranks) {
  plinth_communicator_t parts[2] = {NULL, NULL};
  make_team();
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_communicator_group_start());
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_split(team[rank], 0, -rank, &parts[rank]));
    }
    CHECK_OK(plinth_communicator_group_end());
    for (int rank = 0; rank < 2; rank++) {
      int32_t number = -1;
      CHECK_OK(plinth_communicator_rank(parts[rank], &number));
      CHECK_EQ(number, 1 - rank);
      CHECK_OK(plinth_communicator_destroy(parts[rank]));
    }
  }
  end_team();
}

static plinth_communicator_t other_team[2];

static void *split_both(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t parts[2] = {NULL, NULL};
  plinth_communicator_t *teams[] = {rank == 0 ? team : other_team, rank == 0 ? other_team : team};
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_split(teams[0][rank], 0, 0, &parts[0]));
  CHECK_OK(plinth_communicator_split(teams[1][rank], 0, 0, &parts[1]));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_destroy(parts[0]));
  CHECK_OK(plinth_communicator_destroy(parts[1]));
  return NULL;
}

TEST(two_teams_are_split_in_groups_of_any_order) {
  make_team();
  memcpy(other_team, team, sizeof team);
  make_team();
  run_threads(2, split_both);
  end_team();
  CHECK_OK(plinth_communicator_destroy(other_team[0]));
  CHECK_OK(plinth_communicator_destroy(other_team[1]));
}

static void *split_alone(void *context) {
  plinth_communicator_t part = UNTOUCHED_POINTER;
  (void)context;
  CHECK_STATUS(plinth_communicator_split(team[0], 0, 0, &part), PLINTH_ERROR_ABORTED);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  return NULL;
}

TEST(an_abort_ends_a_split_at_once) {
  pthread_t thread;
  bool ready = false;
  make_team();
  CHECK(pthread_create(&thread, NULL, split_alone, NULL) == 0);
  sleep_milliseconds(100);
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_abort(team[0]));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(seconds_now() - start < 10);
  CHECK_STATUS(plinth_communicator_query(team[1], &ready), PLINTH_ERROR_ABORTED);
  end_team();
}

static plinth_communicator_t whole[3];

static void *join_three(void *context) {
  const int rank = *(int *)context;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, limit, 0);
  CHECK_OK(plinth_communicator_init_rank(3, id, rank, rank, &options, &whole[rank]));
  return NULL;
}

static void *split_or_abort(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t part = UNTOUCHED_POINTER;
  if (rank == 2) {
    sleep_milliseconds(100);
    CHECK_OK(plinth_communicator_abort(whole[2]));
    return NULL;
  }
  CHECK_STATUS(plinth_communicator_split(whole[rank], 0, 0, &part), PLINTH_ERROR_ABORTED);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  return NULL;
}

TEST(an_abort_of_one_rank_ends_the_splits_of_the_others) {
  need_devices(3);
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(3, join_three);
  const double start = seconds_now();
  run_threads(3, split_or_abort);
  CHECK(seconds_now() - start < 10);
  for (int rank = 0; rank < 3; rank++) {
    CHECK_OK(plinth_communicator_destroy(whole[rank]));
  }
}

TEST(a_split_that_is_not_in_time_ends_the_communicator) {
  plinth_communicator_t part = NULL;
  bool ready = false;
  limit = 300;
  make_team();
  float *memory = floats_on(0, COUNT, 1, 0);
  CHECK_STATUS(plinth_communicator_split(team[0], 0, 0, &part), PLINTH_ERROR_TIMED_OUT);
  /* The other rank is told, and does not take what the first has said for a part of anything later. */
  CHECK_STATUS(plinth_communicator_split(team[1], 0, 0, &part), PLINTH_ERROR_ABORTED);
  CHECK_STATUS(plinth_communicator_query(team[1], &ready), PLINTH_ERROR_ABORTED);
  CHECK_STATUS(plinth_communicator_query(team[0], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_ABORTED);
  end_team();
}
