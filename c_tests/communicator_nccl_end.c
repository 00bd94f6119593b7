/* The end of communicators of NCCL, whose ranks wait for each other. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* library: fake_nccl */
/* alone: a_rank_of_another_process_is_waited_for_up_to_the_limit; forks a child that uses the device */
/* alone: an_older_nccl_waits_no_longer_either a_rank_ends_at_once_if_another_process_has_aborted; forks a child that uses the device */
/* alone: a_failure_of_nccl_is_reported_and_all_ranks_end; sets faults of NCCL */
#include "sleeping_ranks.h"

enum { SHORT_LIMIT = 500, SOON_SECONDS = 10 };

/* Makes communicators of the streams and the memory of earlier ones. */
static void make(uint32_t flags) {
  init_ranks(RANKS, options_of(PLINTH_ENGINE_NCCL, MILLISECONDS, flags), communicators);
  reduce_all();
}

static uint64_t unused[RANKS];

static void note_unused(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    unused[rank] = free_bytes(rank);
  }
}

/* Makes the first communicators, and notes what is free without them. */
static void begin(void) {
  need_nccl();
  engine = PLINTH_ENGINE_NCCL;
  make_communicators();
  reduce_all();
  destroy_communicators();
  note_unused();
  make(0);
}

/* On a GPU, other processes use memory, too. */
static void expect_released(void) {
  for (int rank = 0; rank < RANKS && on_host_device(); rank++) {
    CHECK_EQ(free_bytes(rank), unused[rank]);
  }
}

static void *destroy_as(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  return NULL;
}

TEST(the_last_rank_of_a_process_releases_the_memory_of_all) {
  begin();
  const uint64_t before = free_bytes(1);
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
  if (on_host_device()) {
    CHECK_EQ(free_bytes(1), before);
  }
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  expect_released();
}

TEST(ranks_end_in_their_own_threads) {
  begin();
  run_threads(RANKS, destroy_as);
  expect_released();
}

TEST(a_rank_ends_after_another_was_aborted) {
  begin();
  for (int first = 0; first < RANKS; first++) {
    const double start = seconds_now();
    CHECK_OK(plinth_communicator_abort(communicators[first]));
    destroy_communicators();
    CHECK(seconds_now() - start < SOON_SECONDS);
    expect_released();
    make(0);
  }
  destroy_communicators();
}

TEST(a_rank_without_a_limit_ends_after_another_was_aborted) {
  begin();
  destroy_communicators();
  make(PLINTH_COMMUNICATOR_UNLIMITED);
  CHECK_OK(plinth_communicator_abort(communicators[0]));
  destroy_communicators();
  expect_released();
}

/* A rank that waits for the last one is ended by its abort. */
TEST(a_destroyed_rank_ends_with_the_abort_of_another) {
  begin();
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_abort(communicators[1]));
  CHECK(seconds_now() - start < SOON_SECONDS);
  expect_released();
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

/* The first graphs leave memory in the cache. */
static void begin_with_graphs(void) {
  begin();
  run_threads(RANKS, capture_as);
  replay_all();
  destroy_graphs();
  destroy_communicators();
  note_unused();
  make(0);
  run_threads(RANKS, capture_as);
  replay_all();
}

static bool is_released(void) {
  for (int rank = 0; rank < RANKS && on_host_device(); rank++) {
    if (free_bytes(rank) != unused[rank]) {
      return false;
    }
  }
  return true;
}

/* NCCL keeps the memory until the graphs end, which nobody waits for. */
TEST(an_abort_does_not_wait_for_the_end_of_graphs) {
  begin_with_graphs();
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_abort(communicators[0]));
  CHECK_OK(plinth_communicator_abort(communicators[1]));
  destroy_communicators();
  CHECK(seconds_now() - start < SOON_SECONDS);
  if (on_host_device()) {
    CHECK(!is_released());
  }
  destroy_graphs();
  EVENTUALLY(is_released());
}

TEST(a_call_that_never_ends_is_aborted_in_spite_of_graphs) {
  begin_with_graphs();
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], SHORT_LIMIT));
  CHECK_OK(reduce(0, COUNT));
  const double start = seconds_now();
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  CHECK(seconds_now() - start < SOON_SECONDS);
  destroy_graphs();
  destroy_communicators();
  EVENTUALLY(is_released());
}

TEST(a_split_and_its_parent_end_in_any_order_in_a_process) {
  begin();
  for (int parents_first = 0; parents_first < 2; parents_first++) {
    plinth_communicator_t parents[RANKS], parts[RANKS];
    memcpy(parents, communicators, sizeof parents);
    CHECK_EQ(on_all(split_for_all), PLINTH_OK);
    memcpy(parts, communicators, sizeof parts);
    reduce_all();
    for (int turn = 0; turn < 2; turn++) {
      memcpy(communicators, turn == parents_first ? parts : parents, sizeof parts);
      reduce_all();
      destroy_communicators();
    }
    expect_released();
    make(0);
  }
  destroy_communicators();
}

TEST(a_failure_of_nccl_is_reported_and_all_ranks_end) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  begin();
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  harness_setenv("FAKE_NCCL_FAIL", "ncclCommFinalize:1");
  CHECK_STATUS(plinth_communicator_destroy(communicators[1]), PLINTH_ERROR_NCCL);
  harness_setenv("FAKE_NCCL_FAIL", "");
  expect_released();
  make(0);
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  harness_setenv("FAKE_NCCL_FAIL", "ncclCommDestroy:1");
  CHECK_STATUS(plinth_communicator_destroy(communicators[1]), PLINTH_ERROR_NCCL);
  harness_setenv("FAKE_NCCL_FAIL", "");
}

/* Two ranks of one thread wait in a group for a third one. */
TEST(a_group_whose_ranks_wait_for_another_ends) {
  enum { ALL = 3 };
  plinth_communicator_t all[ALL];
  need_nccl();
  init_ranks(ALL, options_of(PLINTH_ENGINE_NCCL, MILLISECONDS, 0), all);
  for (int rank = 0; rank < ALL; rank++) {
    CHECK_OK(plinth_communicator_set_timeout(all[rank], SHORT_LIMIT));
  }
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(all[rank], floats_on(rank, COUNT, 1, 0), floats_on(rank, COUNT, 1, 0), COUNT, FLOAT32,
                                            PLINTH_REDUCE_SUM, stream_on(rank)));
  }
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_TIMED_OUT);
  for (int rank = 0; rank < ALL; rank++) {
    CHECK_OK(plinth_communicator_destroy(all[rank]));
  }
  CHECK(seconds_now() - start < SOON_SECONDS);
}

/* ---- ranks in processes */

static int ends[2], aborted[2];
static const char *version;

static plinth_communicator_t join(int rank) {
  const plinth_communicator_options_t options = options_of(engine, MILLISECONDS, 0);
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t made = NULL;
  need_nccl();
  need_devices(RANKS);
  if (version != NULL) {
    harness_setenv("FAKE_NCCL_VERSION", version);
  }
  share_id(rank, id);
  CHECK_OK(plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &made));
  CHECK_OK(plinth_communicator_all_reduce(made, floats_on(rank, COUNT, 1, 0), floats_on(rank, COUNT, 1, 0), COUNT, FLOAT32,
                                          PLINTH_REDUCE_SUM, NULL));
  CHECK_OK(plinth_synchronize(rank));
  CHECK_OK(plinth_communicator_set_timeout(made, SHORT_LIMIT));
  return made;
}

/* Rank 1 exits without an end, when rank 0 has ended. The exits end the watchdogs. */
static void end_alone(int rank) {
  char byte = 0;
  engine = PLINTH_ENGINE_NCCL;
  plinth_communicator_t made = join(rank);
  if (rank == 1) {
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    exit(0);
  }
  const double start = seconds_now();
  const plinth_status_t status = plinth_communicator_destroy(made);
  if (status != PLINTH_OK) {
    CHECK_EQ(status, PLINTH_ERROR_TIMED_OUT);
    CHECK_MESSAGE("NCCL waited for the other ranks to end for ");
  }
  if (on_host_device()) {
    CHECK_EQ(status, PLINTH_ERROR_TIMED_OUT);
  }
  CHECK(seconds_now() - start < SOON_SECONDS);
  CHECK_EQ(write(ends[1], &byte, 1), 1);
  exit(0);
}

TEST(a_rank_of_another_process_is_waited_for_up_to_the_limit) {
  CHECK(pipe(ends) == 0);
  run_processes(RANKS, end_alone);
}

TEST(an_older_nccl_waits_no_longer_either) {
  version = "23007";
  CHECK(pipe(ends) == 0);
  run_processes(RANKS, end_alone);
}

/* The shared engine knows at once what has become of the other ranks. */
static void end_after_an_abort(int rank) {
  char byte = 0;
  uint32_t found = 0;
  engine = PLINTH_ENGINE_AUTO;
  plinth_communicator_t made = join(rank);
  CHECK_OK(plinth_communicator_engine(made, &found));
  if (found != PLINTH_ENGINE_SHARED) {
    SKIP("the ranks share no memory");
  }
  CHECK_OK(plinth_communicator_set_timeout(made, MILLISECONDS));
  if (rank == 1) {
    CHECK_OK(plinth_communicator_abort(made));
    CHECK_EQ(write(aborted[1], &byte, 1), 1);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_OK(plinth_communicator_destroy(made));
    exit(0);
  }
  CHECK_EQ(read(aborted[0], &byte, 1), 1);
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_destroy(made));
  CHECK(seconds_now() - start < SOON_SECONDS);
  CHECK_EQ(write(ends[1], &byte, 1), 1);
  exit(0);
}

TEST(a_rank_ends_at_once_if_another_process_has_aborted) {
  CHECK(pipe(ends) == 0 && pipe(aborted) == 0);
  run_processes(RANKS, end_after_an_abort);
}
