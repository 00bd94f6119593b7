/* Shrinks of communicators between processes: without a rank, and after a rank was lost. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* env: PLINTH_GROUP_TUNING=shared_gpu=1 */
/* alone: a_rank_that_does_not_shrink_is_waited_for_up_to_the_limit; its time is limited */
#include "ranks.h"

enum { RANKS = 4, COUNT = 3000, LONG = 60000, LIMIT = 1500, SOON = 20 };

/* Ranks tell rank `to` that they have come so far, on a pipe of its own. */
static int steps[RANKS][2];

static void start_steps(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK(pipe(steps[rank]) == 0);
  }
}

static void tell(int to) { CHECK_EQ(write(steps[to][1], "", 1), 1); }

static void await_ranks(int rank, int count) {
  char byte = 1;
  for (int index = 0; index < count; index++) {
    CHECK_EQ(read(steps[rank][0], &byte, 1), 1);
  }
}

static int device_of(int rank) { return rank % device_count(); }

static plinth_communicator_t join(int rank, uint64_t milliseconds) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, milliseconds, 0);
  plinth_communicator_t made = NULL;
  share_id(rank, id);
  CHECK_OK(plinth_communicator_init_rank(processes.count, id, rank, device_of(rank), &options, &made));
  return made;
}

static plinth_status_t reduce(plinth_communicator_t communicator, float *memory) {
  return plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL);
}

/* Checks a communicator's rank and size, and that its ranks reduce. */
static void expect_works(plinth_communicator_t communicator, int rank, int size) {
  int32_t device = -1, number = -1;
  CHECK_OK(plinth_communicator_rank(communicator, &number));
  CHECK_EQ(number, rank);
  CHECK_OK(plinth_communicator_size(communicator, &number));
  CHECK_EQ(number, size);
  CHECK_OK(plinth_communicator_device(communicator, &device));
  float *memory = floats_on(device, COUNT, 1, 0);
  CHECK_OK(reduce(communicator, memory));
  CHECK_OK(plinth_communicator_wait(communicator, LONG, NULL));
  expect_floats(memory, COUNT, (float)size, 0);
}

static plinth_status_t shrink(plinth_communicator_t communicator, int excluded, uint32_t flags, plinth_communicator_t *part) {
  const int32_t ranks[] = {excluded};
  return plinth_communicator_shrink(communicator, ranks, 1, flags, part);
}

/* ---- without a rank */

static void shrink_and_go_on(int rank) {
  plinth_communicator_t communicator = join(rank, LONG);
  const int32_t two[] = {3, 0};
  for (int round = 0; round < 2 && rank != 1; round++) {
    plinth_communicator_t part = UNTOUCHED_POINTER, half = UNTOUCHED_POINTER;
    CHECK_OK(shrink(communicator, 1, PLINTH_SHRINK_DEFAULT, &part));
    expect_works(part, rank == 0 ? 0 : rank - 1, RANKS - 1);
    if (rank == 0) {
      CHECK_OK(plinth_communicator_destroy(part));
      continue;
    }
    /* A part of a part, whose other rank has left. */
    CHECK_OK(shrink(part, 0, PLINTH_SHRINK_DEFAULT, &half));
    expect_works(half, rank - 2, 2);
    CHECK_OK(plinth_communicator_destroy(half));
    CHECK_OK(plinth_communicator_destroy(part));
  }
  /* The excluded rank has made none of these calls, and all ranks have the communicator still. */
  expect_works(communicator, rank, RANKS);
  if (rank == 1 || rank == 2) {
    plinth_communicator_t part = UNTOUCHED_POINTER;
    CHECK_OK(plinth_communicator_shrink(communicator, two, 2, PLINTH_SHRINK_DEFAULT, &part));
    expect_works(part, rank - 1, 2);
    CHECK_OK(plinth_communicator_destroy(part));
  }
  plinth_communicator_t half = UNTOUCHED_POINTER;
  CHECK_OK(plinth_communicator_split(communicator, rank % 2, 0, &half));
  expect_works(half, rank / 2, 2);
  CHECK_OK(plinth_communicator_destroy(half));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(the_ranks_that_remain_keep_their_order_and_the_old_communicator) { run_processes(RANKS, shrink_and_go_on); }

static void shrink_without_one_that_ends(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  if (rank == 3) {
    CHECK_OK(plinth_communicator_destroy(communicator));
    return;
  }
  CHECK_OK(shrink(communicator, 3, PLINTH_SHRINK_DEFAULT, &part));
  expect_works(part, rank, RANKS - 1);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(an_excluded_rank_may_end_meanwhile) { run_processes(RANKS, shrink_without_one_that_ends); }

static void shrink_to_one(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  const int32_t others[] = {0, 1, 2, 3};
  int32_t excluded[RANKS - 1];
  for (int index = 0, other = 0; other < RANKS; other++) {
    if (other != rank) excluded[index++] = others[other];
  }
  CHECK_OK(plinth_communicator_shrink(communicator, excluded, RANKS - 1, PLINTH_SHRINK_DEFAULT, &part));
  expect_works(part, 0, 1);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(each_rank_may_remain_alone) { run_processes(RANKS, shrink_to_one); }

static void shrink_while_asleep(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  CHECK_OK(plinth_communicator_sleep(communicator));
  if (rank < 3) {
    CHECK_STATUS(shrink(communicator, 3, PLINTH_SHRINK_DEFAULT, &part), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_SAME(part, UNTOUCHED_POINTER);
    for (int other = 0; other < 3; other++) tell(other);
    await_ranks(rank, 3);
    CHECK_OK(shrink(communicator, 3, PLINTH_SHRINK_ABORT, &part));
    expect_works(part, rank, 3);
    CHECK_OK(plinth_communicator_destroy(part));
    tell(3);
  } else {
    await_ranks(3, 3);
  }
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_communicator_that_sleeps_shrinks_if_it_ends) {
  start_steps();
  run_processes(RANKS, shrink_while_asleep);
}

/* ---- after a loss */

/* Rank 3 dies while the others wait for it in a stream, and later rank 0 does. */
static void lose_two_ranks(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER, last = UNTOUCHED_POINTER;
  float *memory = floats_on(device_of(rank), COUNT, 1, 0);
  if (rank == 3) {
    await_ranks(3, 3);
    _exit(0);
  }
  CHECK_OK(reduce(communicator, memory));
  tell(3);
  CHECK_STATUS(plinth_communicator_wait(communicator, LONG, NULL), PLINTH_ERROR_PEER_LOST);
  /* The error stays, but for a shrink that aborts what is left. */
  CHECK_STATUS(shrink(communicator, 3, PLINTH_SHRINK_DEFAULT, &part), PLINTH_ERROR_ABORTED);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  CHECK_OK(shrink(communicator, 3, PLINTH_SHRINK_ABORT, &part));
  expect_works(part, rank, 3);
  CHECK_STATUS(reduce(communicator, memory), PLINTH_ERROR_ABORTED);
  if (rank == 0) {
    await_ranks(0, 2);
    _exit(0);
  }
  tell(0);
  CHECK_OK(reduce(part, memory));
  CHECK_STATUS(plinth_communicator_wait(part, LONG, NULL), PLINTH_ERROR_PEER_LOST);
  CHECK_OK(shrink(part, 0, PLINTH_SHRINK_ABORT, &last));
  expect_works(last, rank - 1, 2);
  /* Another shrink of the first one, which knows of the second loss as well. */
  CHECK_OK(plinth_communicator_destroy(last));
  const int32_t both[] = {0, 3};
  CHECK_OK(plinth_communicator_shrink(communicator, both, 2, PLINTH_SHRINK_ABORT, &last));
  expect_works(last, rank - 1, 2);
  CHECK_OK(plinth_communicator_destroy(last));
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(the_ranks_that_remain_go_on_after_a_loss) {
  start_steps();
  run_processes(RANKS, lose_two_ranks);
}

/* Rank 1 lives, and does not take part in what the others wait for. */
static void leave_a_rank_that_hangs(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  bool ready = false;
  if (rank == 1) {
    await_ranks(1, 3);
    CHECK_STATUS(plinth_communicator_query(communicator, &ready), PLINTH_ERROR_ABORTED);
    CHECK_OK(plinth_communicator_destroy(communicator));
    return;
  }
  CHECK_OK(reduce(communicator, floats_on(device_of(rank), COUNT, 1, 0)));
  const double start = seconds_now();
  CHECK_OK(shrink(communicator, 1, PLINTH_SHRINK_ABORT, &part));
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK(seconds_now() - start < SOON);
  expect_works(part, rank == 0 ? 0 : rank - 1, RANKS - 1);
  tell(1);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_shrink_ends_work_that_waits_for_the_excluded_rank) {
  start_steps();
  run_processes(RANKS, leave_a_rank_that_hangs);
}

/* Rank 2 dies before the others have excluded rank 3, and they exclude it as well. */
static void exclude_more(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  if (rank >= 2) {
    _exit(0);
  }
  const double start = seconds_now();
  CHECK_STATUS(shrink(communicator, 3, PLINTH_SHRINK_ABORT, &part), PLINTH_ERROR_PEER_LOST);
  CHECK_MESSAGE("rank 2 of 4 is gone; exclude it as well");
  CHECK_SAME(part, UNTOUCHED_POINTER);
  const int32_t both[] = {2, 3};
  CHECK_OK(plinth_communicator_shrink(communicator, both, 2, PLINTH_SHRINK_ABORT, &part));
  CHECK(seconds_now() - start < SOON);
  expect_works(part, rank, 2);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_shrink_names_a_lost_rank_that_is_to_remain) { run_processes(RANKS, exclude_more); }

/* Rank 3 dies while ranks 0 and 1 wait for it in different calls, and rank 2 in its stream. */
static void lose_a_rank_in_different_calls(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER, half = UNTOUCHED_POINTER;
  if (rank == 3) {
    await_ranks(3, 3);
    sleep_milliseconds(100);
    _exit(0);
  }
  tell(3);
  if (rank == 0) {
    const plinth_status_t status = plinth_communicator_split(communicator, 0, 0, &half);
    CHECK(status == PLINTH_ERROR_PEER_LOST || status == PLINTH_ERROR_ABORTED);
  } else if (rank == 2) {
    CHECK_OK(reduce(communicator, floats_on(device_of(rank), COUNT, 1, 0)));
  }
  /* Rank 1 has made no call, and shrinks before the others may know of the loss. */
  CHECK_OK(shrink(communicator, 3, PLINTH_SHRINK_ABORT, &part));
  expect_works(part, rank, 3);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_shrink_ends_other_calls_of_the_ranks_that_remain) {
  start_steps();
  run_processes(RANKS, lose_a_rank_in_different_calls);
}

/* ---- ranks that do not agree */

static void exclude_different_ranks(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  const double start = seconds_now();
  for (int round = 0; round < 3 && rank < 2; round++) {
    CHECK_STATUS(shrink(communicator, rank + 2, PLINTH_SHRINK_DEFAULT, &part), PLINTH_ERROR_RANK_MISMATCH);
    CHECK_SAME(part, UNTOUCHED_POINTER);
  }
  CHECK(seconds_now() - start < SOON);
  /* It can still be used, and shrunk by ranks that agree. */
  expect_works(communicator, rank, RANKS);
  if (rank != 3) {
    CHECK_OK(shrink(communicator, 3, PLINTH_SHRINK_DEFAULT, &part));
    expect_works(part, rank, 3);
    CHECK_OK(plinth_communicator_destroy(part));
  }
  /* No rank takes an attempt that is over for a call of now. */
  CHECK_OK(plinth_communicator_split(communicator, 0, 0, &part));
  expect_works(part, rank, RANKS);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(ranks_that_exclude_different_ones_learn_it) { run_processes(RANKS, exclude_different_ranks); }

/* Rank 1 takes rank 3 for lost, and all others take rank 1 for lost. */
static void exclude_one_that_lives(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  const double start = seconds_now();
  if (rank == 1) {
    CHECK_STATUS(shrink(communicator, 3, PLINTH_SHRINK_ABORT, &part), PLINTH_ERROR_RANK_MISMATCH);
    CHECK_MESSAGE("excludes [1]");
  } else {
    CHECK_OK(shrink(communicator, 1, PLINTH_SHRINK_ABORT, &part));
    expect_works(part, rank == 0 ? 0 : rank - 1, 3);
    CHECK_OK(plinth_communicator_destroy(part));
  }
  CHECK(seconds_now() - start < SOON);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_rank_that_the_others_exclude_learns_it) { run_processes(RANKS, exclude_one_that_lives); }

static bool splits_first;

static void shrink_and_split(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  const double start = seconds_now();
  const bool waits = (rank == 0) != splits_first;
  if (rank == 3) {
    /* It stays until the others have returned. */
    await_ranks(3, 3);
    CHECK_OK(plinth_communicator_destroy(communicator));
    return;
  }
  if (waits) await_ranks(rank, 1);
  for (int other = 0; other < 3 && !waits; other++) tell(other);
  const plinth_status_t status = rank == 0 ? plinth_communicator_split(communicator, 0, 0, &part)
                                           : shrink(communicator, 3, PLINTH_SHRINK_DEFAULT, &part);
  CHECK_STATUS(status, PLINTH_ERROR_RANK_MISMATCH);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  CHECK(seconds_now() - start < SOON);
  tell(3);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_shrink_and_a_split_do_not_wait_for_each_other) {
  for (int round = 0; round < 2; round++) {
    splits_first = round == 0;
    start_steps();
    run_processes(RANKS, shrink_and_split);
  }
}

/* Rank 0 comes when the others have given up, and fails at once. Then all try again. */
static void come_late(int rank) {
  plinth_communicator_t communicator = join(rank, rank == 0 ? LONG : LIMIT), part = UNTOUCHED_POINTER;
  if (rank == 0) await_ranks(0, 2);
  const double start = seconds_now();
  if (rank < 3) {
    CHECK_STATUS(shrink(communicator, 3, PLINTH_SHRINK_DEFAULT, &part), PLINTH_ERROR_TIMED_OUT);
    CHECK_MESSAGE("waited for rank 0 to shrink the group");
    CHECK_SAME(part, UNTOUCHED_POINTER);
    CHECK_OK(plinth_communicator_set_timeout(communicator, LONG));
    if (rank > 0) tell(0);
    CHECK_OK(shrink(communicator, 3, PLINTH_SHRINK_DEFAULT, &part));
    CHECK(seconds_now() - start < SOON);
    expect_works(part, rank, 3);
    CHECK_OK(plinth_communicator_destroy(part));
  }
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_rank_that_does_not_shrink_is_waited_for_up_to_the_limit) {
  start_steps();
  run_processes(RANKS, come_late);
}

/* ---- bad input */

static void pass_nonsense(int rank) {
  plinth_communicator_t communicator = join(rank, LONG), part = UNTOUCHED_POINTER;
  const int32_t ranks[] = {4, -1, 1 - rank, 1 - rank, rank};
#define REFUSES(status, ...) \
  CHECK_STATUS(plinth_communicator_shrink(__VA_ARGS__, &part), status)
  REFUSES(PLINTH_ERROR_INVALID_VALUE, communicator, ranks, 0, PLINTH_SHRINK_ABORT);
  CHECK_MESSAGE("excludes no rank");
  REFUSES(PLINTH_ERROR_INVALID_VALUE, communicator, ranks, 1, PLINTH_SHRINK_ABORT);
  CHECK_MESSAGE("no rank 4 among 2");
  REFUSES(PLINTH_ERROR_INVALID_VALUE, communicator, ranks + 1, 1, PLINTH_SHRINK_ABORT);
  REFUSES(PLINTH_ERROR_INVALID_VALUE, communicator, ranks + 2, 2, PLINTH_SHRINK_ABORT);
  CHECK_MESSAGE("excluded twice");
  REFUSES(PLINTH_ERROR_INVALID_VALUE, communicator, ranks + 3, 2, PLINTH_SHRINK_ABORT);
  CHECK_MESSAGE("excludes itself");
  REFUSES(PLINTH_ERROR_INVALID_VALUE, communicator, ranks + 2, 1, 2);
  CHECK_MESSAGE("flags is 2");
  REFUSES(PLINTH_ERROR_INVALID_VALUE, communicator, ranks, SIZE_MAX, PLINTH_SHRINK_ABORT);
  REFUSES(PLINTH_ERROR_NULL_POINTER, communicator, NULL, 1, PLINTH_SHRINK_ABORT);
  REFUSES(PLINTH_ERROR_NULL_POINTER, NULL, ranks + 2, 1, PLINTH_SHRINK_ABORT);
  CHECK_STATUS(plinth_communicator_shrink(communicator, ranks + 2, 1, PLINTH_SHRINK_ABORT, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  /* A group is not half executed. */
  float *memory = floats_on(device_of(rank), COUNT, 1, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(reduce(communicator, memory));
  CHECK_OK(shrink(communicator, 1 - rank, PLINTH_SHRINK_ABORT, &part));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("another call of that communicator");
  /* Nothing has happened to the communicator. */
  expect_works(communicator, rank, 2);
  expect_floats(memory, COUNT, 1, 0);
  tell(1 - rank);
  await_ranks(rank, 1);
  /* A shrink after an abort, in a group. */
  CHECK_OK(plinth_communicator_abort(communicator));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(shrink(communicator, 1 - rank, PLINTH_SHRINK_ABORT, &part));
  CHECK_OK(plinth_communicator_group_end());
  expect_works(part, 0, 1);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(bad_input_is_refused_before_anything_happens) {
  start_steps();
  run_processes(2, pass_nonsense);
}
