/* Shrinks of communicators of the devices of one process, with each engine. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* also: PLINTH_COMMUNICATOR_NCCL_FROM=1 */
/* library: fake_nccl */
#include "ranks.h"

enum { MOST = 4, COUNT = 1000, LONG = 30000, LIMIT = 300, SOON = 15 };

static plinth_communicator_t communicators[MOST], parts[MOST];
static plinth_stream_t streams[MOST];
static float *memory[MOST];
/* The number of ranks, and the last one, which is excluded. */
static int ranks;
static int32_t last;

static void make_communicators(uint64_t milliseconds) {
  const int32_t devices[MOST] = {0, 1, 2, 3};
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, milliseconds, 0);
  need_devices(2);
  need_nccl();
  ranks = device_count() < MOST ? device_count() : MOST;
  last = ranks - 1;
  CHECK_OK(plinth_communicator_init_all(devices, (size_t)ranks, &options, communicators));
  for (int rank = 0; rank < ranks; rank++) {
    streams[rank] = stream_on(rank);
    memory[rank] = floats_on(rank, COUNT, 1, 0);
    parts[rank] = UNTOUCHED_POINTER;
  }
}

static void destroy_communicators(void) {
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_stream_synchronize(streams[rank]));
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

static plinth_status_t reduce(plinth_communicator_t communicator, int rank) {
  return plinth_communicator_all_reduce(communicator, memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                        streams[rank]);
}

/* Checks that the first `size` ranks have communicators that reduce. */
static void expect_work(const plinth_communicator_t *ones, int size) {
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < size; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
    CHECK_OK(reduce(ones[rank], rank));
  }
  CHECK_OK(plinth_communicator_group_end());
  for (int rank = 0; rank < size; rank++) {
    int32_t number = -1;
    CHECK_OK(plinth_communicator_rank(ones[rank], &number));
    CHECK_EQ(number, rank);
    CHECK_OK(plinth_communicator_size(ones[rank], &number));
    CHECK_EQ(number, size);
    CHECK_OK(plinth_communicator_wait(ones[rank], LONG, streams[rank]));
    expect_floats(memory[rank], COUNT, (float)size, 0);
  }
}

static void destroy_parts(void) {
  for (int rank = 0; rank < last; rank++) {
    CHECK_OK(plinth_communicator_destroy(parts[rank]));
  }
}

static plinth_status_t shrink(int rank, uint32_t flags) {
  return plinth_communicator_shrink(communicators[rank], &last, 1, flags, &parts[rank]);
}

static void shrink_in_group(uint32_t flags) {
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < last; rank++) {
    CHECK_OK(shrink(rank, flags));
  }
  CHECK_OK(plinth_communicator_group_end());
}

TEST(one_thread_shrinks_for_all_ranks_that_remain) {
  make_communicators(LONG);
  expect_work(communicators, ranks);
  for (int round = 0; round < 2; round++) {
    shrink_in_group(PLINTH_SHRINK_DEFAULT);
    expect_work(parts, last);
    destroy_parts();
  }
  expect_work(communicators, ranks);
  shrink_in_group(PLINTH_SHRINK_ABORT);
  expect_work(parts, last);
  destroy_parts();
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_STATUS(reduce(communicators[rank], rank), PLINTH_ERROR_ABORTED);
  }
  destroy_communicators();
}

static void *shrink_in_thread(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(shrink(rank, PLINTH_SHRINK_DEFAULT));
  return NULL;
}

TEST(each_rank_shrinks_in_a_thread_of_its_own) {
  make_communicators(LONG);
  run_threads(last, shrink_in_thread);
  expect_work(parts, last);
  destroy_parts();
  expect_work(communicators, ranks);
  destroy_communicators();
}

/* The last rank is destroyed while the others wait for it. */
static void *lose_the_last(void *context) {
  const int rank = *(int *)context;
  if (rank == last) {
    sleep_milliseconds(100);
    CHECK_OK(plinth_communicator_destroy(communicators[last]));
    return NULL;
  }
  const plinth_status_t status = reduce(communicators[rank], rank);
  CHECK(status == PLINTH_ERROR_PEER_LOST || status == PLINTH_ERROR_ABORTED);
  CHECK_STATUS(shrink(rank, PLINTH_SHRINK_DEFAULT), PLINTH_ERROR_ABORTED);
  CHECK_SAME(parts[rank], UNTOUCHED_POINTER);
  CHECK_OK(shrink(rank, PLINTH_SHRINK_ABORT));
  return NULL;
}

TEST(the_ranks_that_remain_go_on_after_a_loss) {
  make_communicators(LONG);
  run_threads(ranks, lose_the_last);
  expect_work(parts, last);
  destroy_parts();
  communicators[last] = NULL;
  destroy_communicators();
}

/* Rank 0 ends what rank 1 waits in. */
static void *shrink_first_or_wait(void *context) {
  const int rank = *(int *)context;
  if (rank == 0) {
    sleep_milliseconds(100);
  } else {
    CHECK_STATUS(reduce(communicators[rank], rank), PLINTH_ERROR_ABORTED);
  }
  CHECK_OK(shrink(rank, PLINTH_SHRINK_ABORT));
  return NULL;
}

TEST(a_shrink_ends_calls_that_wait_for_the_excluded_rank) {
  make_communicators(LONG);
  need_devices(3);
  run_threads(last, shrink_first_or_wait);
  expect_work(parts, last);
  destroy_parts();
  destroy_communicators();
}

static void *exclude_different_ranks(void *context) {
  const int rank = *(int *)context;
  const int32_t excluded = rank + 2;
  CHECK_STATUS(plinth_communicator_shrink(communicators[rank], &excluded, 1, PLINTH_SHRINK_DEFAULT, &parts[rank]),
               PLINTH_ERROR_RANK_MISMATCH);
  CHECK_MESSAGE("excludes [2]");
  CHECK_SAME(parts[rank], UNTOUCHED_POINTER);
  return NULL;
}

TEST(ranks_that_exclude_different_ones_learn_it) {
  make_communicators(LONG);
  need_devices(4);
  const double start = seconds_now();
  run_threads(2, exclude_different_ranks);
  CHECK(seconds_now() - start < SOON);
  expect_work(communicators, ranks);
  run_threads(last, shrink_in_thread);
  expect_work(parts, last);
  destroy_parts();
  destroy_communicators();
}

/* Rank 0 excludes rank 1, and the others exclude rank 3. Rank 0 fails, and the others with it unless they come when it has
 * agreed. */
static void *exclude_as_most(void *context) {
  const int rank = *(int *)context;
  const int32_t excluded = rank == 0 ? 1 : last;
  const plinth_status_t status =
      plinth_communicator_shrink(communicators[rank], &excluded, 1, PLINTH_SHRINK_DEFAULT, &parts[rank]);
  if (rank == 0 || status != PLINTH_OK) {
    CHECK_EQ(status, PLINTH_ERROR_RANK_MISMATCH);
    CHECK_OK(shrink(rank, PLINTH_SHRINK_DEFAULT));
  }
  return NULL;
}

TEST(a_shrink_that_fails_on_one_rank_fails_on_all_that_remain) {
  make_communicators(LONG);
  need_devices(4);
  const double start = seconds_now();
  run_threads(last, exclude_as_most);
  CHECK(seconds_now() - start < SOON);
  expect_work(parts, last);
  destroy_parts();
  destroy_communicators();
}

/* Rank 1 takes rank 3 for lost, and all others take rank 1 for lost. */
static void *exclude_one_that_lives(void *context) {
  const int rank = *(int *)context;
  const int32_t excluded = rank == 1 ? last : 1;
  const plinth_status_t status =
      plinth_communicator_shrink(communicators[rank], &excluded, 1, PLINTH_SHRINK_ABORT, &parts[rank]);
  CHECK_EQ(status, rank == 1 ? PLINTH_ERROR_RANK_MISMATCH : PLINTH_OK);
  return NULL;
}

TEST(a_rank_that_the_others_exclude_learns_it) {
  make_communicators(LONG);
  need_devices(4);
  const double start = seconds_now();
  run_threads(ranks, exclude_one_that_lives);
  CHECK(seconds_now() - start < SOON);
  for (int rank = 0; rank < ranks; rank++) {
    if (rank != 1) CHECK_OK(plinth_communicator_destroy(parts[rank]));
  }
  destroy_communicators();
}

/* Rank 0 shrinks, and rank 1 sends to it. */
static void *shrink_or_send(void *context) {
  const int rank = *(int *)context;
  if (rank == 0) {
    CHECK_STATUS(shrink(rank, PLINTH_SHRINK_DEFAULT), PLINTH_ERROR_RANK_MISMATCH);
    CHECK_OK(plinth_communicator_recv(communicators[0], memory[0], COUNT, FLOAT32, 1, streams[0]));
  } else {
    CHECK_OK(plinth_communicator_send(communicators[1], memory[1], COUNT, FLOAT32, 0, streams[1]));
  }
  return NULL;
}

TEST(a_shrink_and_a_message_do_not_wait_for_each_other) {
  make_communicators(LONG);
  need_devices(3);
  const double start = seconds_now();
  run_threads(2, shrink_or_send);
  CHECK(seconds_now() - start < SOON);
  destroy_communicators();
}

/* Rank 0 shrinks, and the others reduce, which it does as well then. */
static void *shrink_or_reduce(void *context) {
  const int rank = *(int *)context;
  if (rank == 0) {
    CHECK_STATUS(shrink(rank, PLINTH_SHRINK_DEFAULT), PLINTH_ERROR_RANK_MISMATCH);
    CHECK_MESSAGE("makes another call");
  }
  CHECK_OK(reduce(communicators[rank], rank));
  return NULL;
}

TEST(a_shrink_and_another_call_do_not_wait_for_each_other) {
  make_communicators(LONG);
  need_devices(3);
  const double start = seconds_now();
  run_threads(ranks, shrink_or_reduce);
  CHECK(seconds_now() - start < SOON);
  destroy_communicators();
}

TEST(a_rank_that_does_not_shrink_is_waited_for_up_to_the_limit) {
  make_communicators(LIMIT);
  need_devices(3);
  CHECK_STATUS(shrink(0, PLINTH_SHRINK_DEFAULT), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("rank 0 waited for rank");
  CHECK_SAME(parts[0], UNTOUCHED_POINTER);
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_set_timeout(communicators[rank], LONG));
  }
  expect_work(communicators, ranks);
  run_threads(last, shrink_in_thread);
  expect_work(parts, last);
  destroy_parts();
  destroy_communicators();
}

TEST(a_shrink_names_a_destroyed_rank_that_is_to_remain) {
  make_communicators(LONG);
  need_devices(3);
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
  CHECK_STATUS(shrink(0, PLINTH_SHRINK_ABORT), PLINTH_ERROR_PEER_LOST);
  CHECK_MESSAGE("rank 1");
  const int32_t all[] = {1, 2, 3};
  CHECK_OK(plinth_communicator_shrink(communicators[0], all, (size_t)last, PLINTH_SHRINK_ABORT, &parts[0]));
  expect_work(parts, 1);
  CHECK_OK(plinth_communicator_destroy(parts[0]));
  communicators[1] = NULL;
  destroy_communicators();
}

TEST(a_group_that_aborts_a_communicator_has_no_other_call_of_it) {
  make_communicators(LONG);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(shrink(0, PLINTH_SHRINK_ABORT));
  CHECK_OK(reduce(communicators[last], last));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("another call of that communicator");
  expect_work(communicators, ranks);
  destroy_communicators();
}

TEST(a_refused_shrink_refuses_the_group) {
  make_communicators(LONG);
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(reduce(communicators[rank], rank));
  }
  CHECK_STATUS(shrink(last, PLINTH_SHRINK_DEFAULT), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(memory[rank], COUNT, 1, 0);
  }
  expect_work(communicators, ranks);
  destroy_communicators();
}
